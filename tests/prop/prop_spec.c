/* prop_spec.c - speculative decoding end to end: the law of what rejection gives, coupled texts with blocks of any length, fits of
 * temperatures. BY_TEST_TIMEOUT=300
 *
 * Rejection: many answers of three tokens behind one prompt, each with a draft block that proposes the second and third; the joint law of
 * the three must be that of the model without drafts, which is computed row by row. BY_TEST_SCALE=100 takes 2,000 answers, 10000 the
 * 200,000 that the figures of docs/dspark.md are from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/solo_gen.h"
#include "engine/spec.h"
#include "sample/draft_fit.h"
#include "support/golden.h"
#include "support/seed.h"

/* A prompt so short that rings never wrap, and odd, so that no pair of a compressor is open behind all but its last token: its state
 * outlives the answers, and each sample goes back to it. */
enum { CONTEXT = 128, PROMPT = 15, V_MAX = 512, TOKENS = 3, CELLS = V_MAX };

static by_err err;
static by_rng rng;
static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

static by_solo open_model(const char *dir) {
    by_solo s;
    by_solo_opts o = {.device = {.backend = BY_BACKEND_CPU, .n_threads = 1}, .model = {.numerics = BY_NUMERICS_DEPLOYED}, .draft = true};
    check(by_solo_open(&s, dir, &o, &err));
    check(by_solo_reserve(&s, CONTEXT, 64, &err));
    assert_true(s.n_drafts > 0 && s.model->cfg.vocab_size <= V_MAX);
    return s;
}

/* ---- the law ---- */

typedef struct {
    int32_t tokens[TOKENS];
    double p;
    int64_t n;
} cell;

/* Every text of TOKENS tokens with its probability, one row of the model after the other. */
static int list_texts(by_solo *s, const by_sample_params *p, const int32_t *prompt, int depth, cell at, cell *out, int n) {
    if (depth == TOKENS) {
        assert_true(n < CELLS);
        out[n++] = at;
        return n;
    }
    int32_t V = s->model->cfg.vocab_size, tokens[PROMPT + TOKENS];
    static float row[TOKENS][V_MAX];
    memcpy(tokens, prompt, PROMPT * 4);
    memcpy(tokens + PROMPT, at.tokens, (size_t)depth * 4);
    s->seq.n_tokens = PROMPT - 1 + depth;
    check(by_solo_feed(s, tokens, PROMPT + depth, &err));
    check(by_solo_logits(s, row[depth], &err));
    by_spec spec;
    check(by_spec_init(&spec, V, &err));
    by_sample_dist d;
    check(by_sample_dist_make(&d, row[depth], V, &p->law, spec.scratch, &err));
    double lp[V_MAX];
    for (int32_t i = 0; i < V; i++) lp[i] = exp((double)by_sample_dist_logprob(&d, i));
    by_spec_deinit(&spec);
    for (int32_t i = 0; i < V; i++) {
        if (lp[i] <= 0) continue;
        cell next = at;
        next.tokens[depth] = i;
        next.p *= lp[i];
        n = list_texts(s, p, prompt, depth + 1, next, out, n);
    }
    return n;
}

static by_status ignore(void *arg, int32_t token, float logprob, by_err *e) {
    (void)arg, (void)token, (void)logprob, (void)e;
    return BY_OK;
}

static void one_law(by_solo *s, const int32_t *prompt, by_sample_law law, int n_samples, bool print) {
    static cell cells[CELLS];
    by_sample_params p = by_sample_params_default();
    p.law = law;
    by_solo_reset(s);
    check(by_solo_feed(s, prompt, PROMPT, &err));
    int n = list_texts(s, &p, prompt, 0, (cell){.p = 1}, cells, 0);
    int64_t n_drafted = 0, n_accepted = 0;
    for (int k = 0; k < n_samples; k++) {
        int32_t tokens[PROMPT + TOKENS];
        memcpy(tokens, prompt, PROMPT * 4);
        by_solo_gen_opts o = {.sampling = p, .max_tokens = TOKENS, .ignore_eos = true, .draft = true, .verify = BY_SAMPLE_REJECTION};
        o.sampling.seed = by_rng_u64(&rng);
        by_solo_gen_result r;
        s->seq.n_tokens = PROMPT - 1; /* the prompt is there */
        check(by_solo_generate(s, tokens, PROMPT, &o, ignore, NULL, &r, &err));
        n_drafted += r.n_drafted;
        n_accepted += r.n_accepted;
        int c = 0;
        while (c < n && memcmp(cells[c].tokens, tokens + PROMPT, sizeof cells[c].tokens) != 0) c++;
        assert_true(c < n); /* a text that the law does not have */
        cells[c].n++;
    }
    assert_true(n_drafted > 0);
    double chi2 = 0, rest_p = 0, rest_n = 0, freedom = -1;
    for (int c = 0; c < n; c++) {
        double want = cells[c].p * n_samples, got = (double)cells[c].n;
        if (want < 10) {
            rest_p += want;
            rest_n += got;
            continue;
        }
        chi2 += (got - want) * (got - want) / want;
        freedom++;
    }
    if (rest_p > 0) {
        chi2 += (rest_n - rest_p) * (rest_n - rest_p) / fmax(rest_p, 1e-9);
        freedom++;
    }
    if (print)
        print_message("temperature %.2f, top_p %.2f, top_k %d: chi2 %.1f at %.0f degrees of freedom, %.3f of the drafts accepted\n",
                      (double)law.temperature, (double)law.top_p, law.top_k, chi2, freedom, (double)n_accepted / (double)n_drafted);
    if (!(chi2 <= freedom + 5 * sqrt(2 * freedom) + 5)) fail_msg("chi2 %.1f at %.0f degrees of freedom", chi2, freedom);
}

static void rejection_keeps_the_law(void **state) {
    (void)state;
    static const by_sample_law laws[] = {{1, 1, 0, 4}, {0.5f, 1, 0, 6}, {2, 0.03f, 0, 7}, {1, 1, 0.2f, 5}};
    by_solo s = open_model(by_golden_path("model/tiny_a/checkpoint"));
    /* A golden's, and its first token: the Markov head knows what follows. */
    static const int32_t prompt[PROMPT] = {0, 245, 212, 14, 88, 176, 255, 112, 319, 94, 319, 279, 25, 134, 129};
    for (int i = 0; i < 4; i++) one_law(&s, prompt, laws[i], by_test_scaled(500), true); /* 10000: 50,000 each */
    by_solo_close(&s);
}

/* ---- coupled texts ---- */

static void coupled_texts_are_the_undrafted_ones(void **state) {
    (void)state;
    by_solo s = open_model(by_golden_path("model/tiny_a/checkpoint"));
    int most = s.n_drafts, rounds = by_test_scaled(40);
    int64_t n_accepted = 0;
    for (int k = 0; k < rounds; k++) {
        int32_t want[CONTEXT], got[CONTEXT], n = 1 + (int32_t)by_rng_below(&rng, 40);
        for (int32_t i = 0; i < n; i++) want[i] = (int32_t)by_rng_below(&rng, (uint64_t)s.model->cfg.vocab_size);
        memcpy(got, want, sizeof want);
        by_solo_gen_opts o = {.sampling = by_sample_params_default(), .max_tokens = 1 + (int32_t)by_rng_below(&rng, 40)};
        o.sampling.seed = by_rng_u64(&rng);
        o.sampling.law.temperature = by_rng_below(&rng, 3) ? 0.2f : 0;
        o.sampling.frequency_penalty = by_rng_below(&rng, 2) ? 1.0f : 0;
        o.sampling.eos_id = s.model->cfg.eos_id;
        o.sampling.rule = by_rng_below(&rng, 2) ? BY_SAMPLE_SMOOTH : BY_SAMPLE_DEEPINFER;
        by_solo_gen_result a, b;
        by_solo_reset(&s);
        check(by_solo_generate(&s, want, n, &o, ignore, NULL, &a, &err));
        o.draft = true;
        s.n_drafts = 1 + (int32_t)by_rng_below(&rng, (uint64_t)most);
        by_solo_reset(&s);
        check(by_solo_generate(&s, got, n, &o, ignore, NULL, &b, &err));
        s.n_drafts = most;
        assert_int_equal(a.n_output, b.n_output);
        assert_int_equal(a.finish, b.finish);
        assert_memory_equal(want, got, (size_t)(n + a.n_output) * 4);
        assert_true(b.n_steps <= a.n_steps);
        n_accepted += b.n_accepted;
    }
    assert_true(n_accepted > 0);
    by_solo_close(&s);
}

/* ---- temperatures ---- */

/* The fit as its description reads, everything computed anew for each candidate. */
static double slow_error(const by_draft_outcome *o, int n, const double *t, int upto) {
    double sum[15] = {0}, hits[15] = {0}, error = 0;
    int counted = 0;
    for (int i = 0; i < n; i++) {
        if (o[i].n <= upto) continue; /* void: behind an end */
        counted++;
        double p = 1;
        for (int j = 0; j <= upto; j++) p *= 1 / (1 + exp(-(double)o[i].raw[j] / t[j]));
        p = fmin(fmax(p, 1e-8), 1 - 1e-8);
        int b = (int)(p * 15);
        sum[b] += p;
        hits[b] += o[i].accepted > upto;
    }
    for (int b = 0; b < 15; b++) error += fabs(sum[b] - hits[b]);
    return error / counted;
}

static void fits_equal_the_slow_ones(void **state) {
    (void)state;
    enum { N = 400, K = 4 };
    static float raw[N][K];
    static by_draft_outcome o[N];
    for (int round = 0; round < by_test_scaled(10); round++) {
        double truth = 0.3 + by_rng_unit(&rng) * 3, got[K], before, after;
        for (int i = 0; i < N; i++) {
            o[i] = (by_draft_outcome){.raw = raw[i], .n = i > 0 && by_rng_below(&rng, 4) == 0 ? 1 + (int32_t)by_rng_below(&rng, K) : K};
            for (int j = 0; j < K; j++) raw[i][j] = (float)(by_rng_normal(&rng) * 2 + 1);
            while (o[i].accepted < o[i].n && by_rng_unit(&rng) < 1 / (1 + exp(-(double)raw[i][o[i].accepted] / truth))) o[i].accepted++;
        }
        check(by_draft_fit_temperatures(got, &before, &after, o, N, K, &err));
        double t[K], total = 0;
        for (int j = 0; j < K; j++) {
            double best = INFINITY, best_t = 0;
            for (int g = 0; g < 41; g++) {
                t[j] = pow(10, -1 + 2.0 * g / 40);
                double e = slow_error(o, N, t, j);
                if (e < best) best = e, best_t = t[j];
            }
            t[j] = best_t;
            total += best;
            assert_true(fabs(got[j] - best_t) < 1e-9);
        }
        assert_true(fabs(after - total / K) < 1e-9 && after <= before + 1e-9);
    }
}

int main(void) {
    rng = by_test_rng(20261131);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejection_keeps_the_law),
        cmocka_unit_test(coupled_texts_are_the_undrafted_ones),
        cmocka_unit_test(fits_equal_the_slow_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
