/* prop_rejection.c - rejection keeps the law: 200,000 texts of the engine's sampler, without a model.
 *
 * The model is a table: the logits of the next token by the token before; the drafts' is another one. Texts have four tokens, or end with
 * the end token before that. Each step verifies as many drafts as the scheduler gives it at a random price, from confidences that see the
 * tokens in front of a draft, as the confidence head does, and none behind a drafted end: what is verified must not depend on what comes
 * of it. The joint law of the texts is known exactly. BY_TEST_SCALE=100 takes 25,000 texts for each of eight laws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/spec.h"
#include "sample/draft_plan.h"
#include "support/seed.h"

enum { V = 4, END = V - 1, LENGTH = 4, K = 3, CELLS = V * V * V * V, FIRST = 7 };

static by_rng rng;
static by_err err;
static float target[V][V], proposed[V][V]; /* logits by the token before */
static double conf[V][K];
static by_spec spec;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

static void random_tables(void) {
    for (int i = 0; i < V; i++) {
        for (int j = 0; j < V; j++) {
            target[i][j] = (float)by_rng_normal(&rng) * 1.5f;
            proposed[i][j] = target[i][j] + (float)by_rng_normal(&rng);
        }
        for (int j = 0; j < K; j++) conf[i][j] = sqrt(by_rng_unit(&rng));
    }
}

typedef struct {
    int32_t tokens[LENGTH];
    int n;
    bool ended;
} text;

typedef struct {
    int64_t n_verified, n_accepted, n_saved;
} counts;

static int32_t before(const text *t) { return t->n ? t->tokens[t->n - 1] : 0; }

/* Drafts behind the text. wrong: their laws are told wrongly. */
static void propose(const text *t, by_sample_params *p, by_spec_drafts *d, bool wrong) {
    int32_t prev = before(t);
    d->n = d->n_useful = 0;
    for (int j = 0; j < K; j++) {
        by_sample_token draft;
        memcpy(d->q + j * V, wrong ? target[prev] : proposed[prev], sizeof proposed[prev]);
        check(by_sample_row(&draft, proposed[prev], V, p, (uint32_t)(FIRST + t->n + j), BY_SAMPLE_DRAW_DRAFT, spec.scratch, &err));
        d->conf[j] = (float)conf[prev][j];
        d->ids[d->n++] = prev = draft.id;
        if (d->n_useful == j && (j == 0 || d->ids[j - 1] != END)) d->n_useful = j + 1;
    }
}

/* How many of them the scheduler has verified, at a price. */
static int32_t plan(const by_spec_drafts *d, double price, int32_t left) {
    double rates[K];
    int32_t rows, most = d->n_useful < left ? d->n_useful : left;
    by_draft_heap_entry heap;
    for (int j = 0; j < K; j++) rates[j] = j < most ? (double)d->conf[j] : 0;
    by_draft_request r = {.split = rates, .has_drafts = true};
    by_draft_plan_split(&rows, 1 + K, price, &r, 1, K, &heap);
    return rows - 1 < most ? rows - 1 : most;
}

static text one_text(by_sample_params *p, double price, bool wrong, counts *c) {
    float q[K * V];
    by_spec_drafts d = {.q = q};
    by_spec_law law = {.params = p, .seed = p->seed, .rule = BY_SAMPLE_REJECTION};
    text t = {.n = 0};
    while (!t.ended) {
        int32_t first = t.n, v = plan(&d, price, LENGTH - 1 - t.n);
        for (int32_t i = 0; i <= v && !t.ended; i++) {
            by_spec_token out;
            by_spec_row row = {.logits = target[before(&t)], .first = FIRST + first, .index = i, .n_out = t.n};
            check(by_spec_sample(&spec, &law, &row, &d, i < v ? d.ids[i] : -1, &out, NULL, &err));
            t.tokens[t.n++] = out.id;
            t.ended = out.id == END || t.n == LENGTH;
            c->n_accepted += out.accepted;
            if (!out.accepted) break;
        }
        c->n_verified += v;
        c->n_saved += d.n - v;
        if (!t.ended) propose(&t, p, &d, wrong);
    }
    return t;
}

static int cell_of(const text *t) {
    int cell = 0;
    for (int i = 0; i < LENGTH; i++) cell = cell * V + (i < t->n ? t->tokens[i] : END);
    return cell;
}

static void list_texts(double lp[V][V], text t, double p, double *out) {
    if (t.ended) {
        out[cell_of(&t)] += p;
        return;
    }
    for (int i = 0; i < V; i++) {
        text next = t;
        next.tokens[next.n++] = i;
        next.ended = i == END || next.n == LENGTH;
        list_texts(lp, next, p * lp[before(&t)][i], out);
    }
}

/* Standard deviations (nearly) that the counts' chi-squared lies above its mean. */
static double surprise(by_sample_params *p, int n, bool wrong, counts *c) {
    double lp[V][V], want[CELLS] = {0}, chi2 = 0, freedom = -1, rest_p = 0, rest_n = 0;
    int got[CELLS] = {0};
    for (int i = 0; i < V; i++) {
        by_sample_dist d;
        check(by_sample_dist_make(&d, target[i], V, &p->law, spec.scratch, &err));
        for (int j = 0; j < V; j++) lp[i][j] = exp((double)by_sample_dist_logprob(&d, j));
    }
    list_texts(lp, (text){.n = 0}, 1, want);
    for (int i = 0; i < n; i++) {
        p->seed = by_rng_u64(&rng);
        text t = one_text(p, (double)(i % 4) * 0.2, wrong, c);
        assert_true(want[cell_of(&t)] > 0);
        got[cell_of(&t)]++;
    }
    for (int i = 0; i < CELLS; i++) {
        double w = want[i] * n;
        if (w < 5) {
            rest_p += w;
            rest_n += got[i];
            continue;
        }
        chi2 += (got[i] - w) * (got[i] - w) / w;
        freedom++;
    }
    if (rest_p > 0) {
        chi2 += (rest_n - rest_p) * (rest_n - rest_p) / fmax(rest_p, 1);
        freedom++;
    }
    /* Wilson and Hilferty: the cube root of chi2 / freedom is nearly normal. */
    double k = 2 / (9 * fmax(freedom, 1));
    double z = (cbrt(chi2 / fmax(freedom, 1)) - (1 - k)) / sqrt(k);
    print_message("temperature %.2f, top_p %.2f, top_k %d, min_p %.2f, %s: chi2 %.1f at %.0f degrees of freedom, %+.2f deviations\n",
                  (double)p->law.temperature, (double)p->law.top_p, p->law.top_k, (double)p->law.min_p,
                  wrong ? "wrong laws of drafts" : "drafts", chi2, freedom, z);
    return z;
}

static void rejection_keeps_the_law(void **state) {
    (void)state;
    static const by_sample_law laws[] = {{1, 1, 0, -1},   {0.5f, 1, 0, -1}, {1.7f, 1, 0, -1}, {1, 0.8f, 0, -1},
                                         {1.3f, 1, 0, 3}, {1, 1, 0.1f, -1}, {0.8f, 0.9f, 0, 3}, {2, 0.7f, 0.02f, -1}};
    counts c = {0};
    for (int i = 0; i < 8; i++) {
        by_sample_params p = by_sample_params_default();
        p.law = laws[i];
        p.rule = i & 1 ? BY_SAMPLE_DEEPINFER : BY_SAMPLE_SMOOTH;
        random_tables();
        double z = surprise(&p, by_test_scaled(25000), false, &c);
        if (z > 5) fail_msg("law %d: %.1f deviations", i, z);
    }
    print_message("%lld drafts verified, %lld accepted, %lld not verified\n", (long long)c.n_verified, (long long)c.n_accepted,
                  (long long)c.n_saved);
    assert_true(c.n_accepted > 0 && c.n_accepted < c.n_verified && c.n_saved > 0);
}

/* The same test notices when drafts are judged by a law they were not drawn from. */
static void a_wrong_law_is_noticed(void **state) {
    (void)state;
    counts c = {0};
    by_sample_params p = by_sample_params_default();
    random_tables();
    assert_true(surprise(&p, 20000, true, &c) > 8);
}

int main(void) {
    rng = by_test_rng(20261201);
    check(by_spec_init(&spec, V, &err));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejection_keeps_the_law),
        cmocka_unit_test(a_wrong_law_is_noticed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    by_spec_deinit(&spec);
    return failed;
}
