/* prop_sample.c - the sampler against slow twins on random rows, and against the laws it promises.
 * BY_TEST_TIMEOUT=300 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "sample/draft_plan.h"
#include "sample/sample_edit.h"
#include "sample/sample_math.h"
#include "sample/sample_scratch.h"
#include "sample/sample_verify.h"
#include "support/seed.h"

#define V_MAX 9000

static by_rng rng;
static by_isa isa;

static int below(int n) {
    return (int)by_rng_below(&rng, (uint64_t)n);
}
static float unit(void) {
    return (float)by_rng_unit(&rng);
}

static by_sample_scratch *scratch_for(int32_t V, by_isa tier) {
    by_sample_scratch *s = NULL;
    assert_int_equal(by_sample_scratch_create(&s, V, tier, NULL), BY_OK);
    return s;
}

/* Rows of many kinds: smooth, with many ties, flat, peaked, with removed tokens, with signed zeros, very large values.
 */
static void random_row(float *row, int V) {
    int kind = below(7);
    float scale = kind == 6 ? 1e30f : 0.2f + 5 * unit();
    for (int i = 0; i < V; i++) {
        float x = (float)by_rng_normal(&rng) * scale;
        if (kind == 1) x = roundf(x);
        if (kind == 2) x = 0.25f;
        if (kind == 4 && below(3) == 0) x = -INFINITY;
        if (kind == 5) x = (float[]){0.0f, -0.0f, -1.0f}[below(3)];
        row[i] = x;
    }
    if (kind == 3) row[below(V)] += 20;
    if (kind == 4) row[below(V)] = 1;
}

static by_sample_law random_law(int V) {
    static const float temperatures[] = {0, 1e-5f, 0.3f, 0.7f, 1, 1, 1.5f, 100};
    static const float top_ps[] = {1, 1, 0.99999f, 0.95f, 0.8f, 0.5f, 0.05f, 1e-10f};
    by_sample_law law = {.temperature = temperatures[below(8)], .top_p = top_ps[below(8)], .top_k = -1};
    if (below(3) == 0) law.top_p = 1e-3f + 0.998f * unit();
    if (below(2)) law.top_k = 1 + below(below(2) ? 5 : V + 3);
    if (below(3) == 0) law.min_p = below(8) == 0 ? 1 : unit() * unit() * unit();
    return law;
}

/* ---- the twin: a full sort ---- */

typedef struct ranked {
    float l;
    int32_t id;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->l != y->l) return x->l < y->l ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* lp[V] under law, straight from the definition; -inf for removed tokens. The border of top_p hangs on the last bits of
 * the normaliser, so the one of d is used after a check. */
static void twin_law(float *lp, const float *row, int V, by_sample_law law, const by_sample_dist *d) {
    static ranked order[V_MAX];
    if (law.temperature < 1e-5f) law = (by_sample_law){1e-5f, 1, 0, -1};
    float max = row[0], inv_t = 1.0f / law.temperature;
    for (int i = 0; i < V; i++)
        max = row[i] > max ? row[i] : max, order[i] = (ranked){row[i], i};
    double sum = 0;
    for (int i = 0; i < V; i++)
        sum += exp((double)((row[i] - max) * inv_t));
    float log_s = d->log_s;
    assert_true(fabs((double)log_s - log(sum)) <= 1e-6 * (1 + log(sum)));
    for (int i = 0; i < V; i++)
        lp[i] = (row[i] - max) * inv_t - log_s;
    if (law.top_p >= 1 && (law.top_k < 0 || law.top_k >= V) && law.min_p <= 0) return;
    qsort(order, (size_t)V, sizeof order[0], by_rank);
    uint64_t before = 0, limit = (uint64_t)floor((double)law.top_p * 0x1p31);
    double kept_sum = 0;
    for (int r = 0; r < V; r++) {
        int id = order[r].id;
        uint64_t mass = (uint64_t)floor((double)by_sample_exp(lp[id]) * 0x1p31);
        bool keep = (law.top_p >= 1 || before <= limit) && (law.top_k < 0 || r < law.top_k) &&
                    (law.min_p <= 0 || (row[id] - max) * inv_t >= (float)log((double)law.min_p));
        before += mass;
        if (keep)
            kept_sum += exp((double)lp[id]);
        else
            lp[id] = -INFINITY;
    }
    for (int i = 0; i < V; i++)
        lp[i] -= (float)log(kept_sum);
}

/* The column of a number in [0, total) when columns are visited in the order (c mod B, c div B). */
static int32_t twin_pick(const float *lp, int V, by_sample_stream *stream, by_sample_rule rule) {
    int B = 2048;
    if (V < 8192)
        for (B = 1; B < V;)
            B *= 2;
    uint64_t total = 0;
    for (int i = 0; i < V; i++)
        total += by_sample_mass(by_sample_exp(lp[i]));
    if (total == 0) return BY_SAMPLE_NONE;
    uint64_t r = 0xffffffffu, limit = 0xffffffffu / total * total;
    if (rule == BY_SAMPLE_SMOOTH)
        r = by_sample_stream_word(stream) * total >> 32; /* total <= 2^32: fits */
    else
        while ((r = by_sample_stream_word(stream)) >= limit)
            continue;
    r = rule == BY_SAMPLE_SMOOTH ? r : r % total;
    for (int k = 0; k < B; k++)
        for (int c = k; c < V; c += B) {
            uint32_t mass = by_sample_mass(by_sample_exp(lp[c]));
            if (r < mass) return c;
            r -= mass;
        }
    return -2;
}

static void laws_equal_a_full_sort(void **state) {
    (void)state;
    static float row[V_MAX], want[V_MAX];
    by_sample_scratch *s = scratch_for(V_MAX, isa);
    int rounds = by_test_scaled(3000);
    for (int i = 0; i < rounds; i++) {
        int V = below(20) == 0 ? 8000 + below(1001) : 1 + below(below(2) ? 600 : 20);
        random_row(row, V);
        by_sample_law law = random_law(V);
        by_sample_dist d;
        assert_int_equal(by_sample_dist_make(&d, row, V, &law, s, NULL), BY_OK);
        twin_law(want, row, V, law, &d);
        int32_t n_kept = 0;
        for (int id = 0; id < V; id++) {
            float got = by_sample_dist_logprob(&d, id), lp0 = (row[id] - d.max) * d.inv_t - d.log_s;
            if (isfinite(got)) n_kept++;
            assert_int_equal(isfinite(got), isfinite(want[id]));
            if (isfinite(got)) assert_true(fabsf(got - want[id]) <= 3e-6f + 1e-6f * fabsf(lp0));
        }
        if (d.listed) assert_int_equal(n_kept, d.n_kept);

        uint64_t seed = by_rng_u64(&rng);
        for (int id = 0; id < V; id++)
            want[id] = by_sample_dist_logprob(&d, id);
        for (by_sample_rule rule = BY_SAMPLE_SMOOTH; rule <= BY_SAMPLE_DEEPINFER; rule++) {
            by_sample_stream a = by_sample_stream_at(seed, (uint32_t)i, BY_SAMPLE_DRAW_FRESH), b = a;
            int32_t got = by_sample_dist_pick(&d, &a, rule, s), pick = twin_pick(want, V, &b, rule);
            assert_int_equal(got, pick);
            assert_true(isfinite(by_sample_dist_logprob(&d, got)));
        }
    }
    by_sample_scratch_destroy(s);
}

static void reports_equal_a_full_sort(void **state) {
    (void)state;
    static float row[600];
    static ranked order[600];
    static by_sample_top top[600];
    by_sample_scratch *s = scratch_for(600, isa);
    int rounds = by_test_scaled(1500);
    for (int i = 0; i < rounds; i++) {
        int V = 1 + below(600), n = 1 + below(V);
        random_row(row, V);
        by_sample_law law = random_law(V);
        by_sample_dist d;
        assert_int_equal(by_sample_dist_make(&d, row, V, &law, s, NULL), BY_OK);
        for (int id = 0; id < V; id++)
            order[id] = (ranked){by_sample_dist_logprob(&d, id), id};
        qsort(order, (size_t)V, sizeof order[0], by_rank);
        by_sample_dist_top(top, n, &d);
        for (int r = 0; r < n; r++) {
            assert_int_equal(top[r].id, order[r].id);
            assert_true(top[r].logprob == order[r].l);
        }
        int r = below(V); /* everything behind it in rank order, but among equals the lower ids */
        double want = 0;
        for (int k = 0; k < V; k++)
            if (order[k].l < order[r].l || (order[k].l == order[r].l && order[k].id <= order[r].id))
                want += exp((double)order[k].l);
        assert_true(fabs(by_sample_dist_smaller(&d, order[r].id) - want) <= 1e-5);
    }
    assert_true(by_sample_dist_smaller(&(by_sample_dist){0}, -1) == 0);
    by_sample_scratch_destroy(s);
}

static void every_instruction_set_gives_the_same_bits(void **state) {
    (void)state;
    static float row[V_MAX];
    const by_isa tiers[] = {BY_ISA_REF, BY_ISA_AVX2, BY_ISA_AVX512, BY_ISA_NEON};
    int rounds = by_test_scaled(400);
    for (int i = 0; i < rounds; i++) {
        int V = 1 + below(below(2) ? V_MAX : 700);
        random_row(row, V);
        by_sample_params p = by_sample_params_default();
        p.law = random_law(V);
        p.seed = by_rng_u64(&rng);
        by_sample_token first = {0};
        for (size_t k = 0; k < sizeof tiers / sizeof tiers[0]; k++) {
            if (!by_isa_includes(isa, tiers[k])) continue;
            by_sample_scratch *s = scratch_for(V, tiers[k]);
            by_sample_token t;
            assert_int_equal(by_sample_row(&t, row, V, &p, (uint32_t)i, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
            if (k == 0) first = t;
            assert_int_equal(t.id, first.id);
            assert_memory_equal(&t.law.log_s, &first.law.log_s, sizeof(float));
            assert_memory_equal(&t.law.log_kept, &first.law.log_kept, sizeof(float));
            assert_memory_equal(&t.logprob, &first.logprob, sizeof(float));
            assert_int_equal(t.law.n_kept, first.law.n_kept);
            by_sample_scratch_destroy(s);
        }
    }
}

/* ---- masks ---- */

/* Masks of few tokens, of some, of nearly all, and of none at times; bits behind the row are anything. */
static void random_mask(uint32_t *mask, int V) {
    int kind = below(4), n = below(V / 32 + 2);
    for (int w = 0; w <= V / 32; w++)
        mask[w] = kind == 0 ? 0 : kind == 1 ? (uint32_t)by_rng_u64(&rng) : (uint32_t)(by_rng_u64(&rng) | by_rng_u64(&rng) >> 7);
    if (kind == 2)
        for (int w = 0; w <= V / 32; w++)
            mask[w] = below(3) ? UINT32_MAX : mask[w] & (uint32_t)by_rng_u64(&rng);
    for (int i = 0; i < n; i++)
        mask[below(V) / 32] |= 1u << below(32);
}

static void assert_same_dist(const by_sample_dist *a, const by_sample_dist *b, int V) {
    assert_true(a->max == b->max);
    assert_memory_equal(&a->log_s, &b->log_s, sizeof(float));
    assert_memory_equal(&a->log_kept, &b->log_kept, sizeof(float));
    assert_true(a->cut == b->cut && a->cut_id == b->cut_id && a->listed == b->listed && a->n_kept == b->n_kept);
    for (int id = 0; id < V; id++)
        assert_true(by_sample_dist_logprob(a, id) == by_sample_dist_logprob(b, id));
}

/* A masked row, with its law and its draws, is what the slow way gives: a loop over the row, then the law of what it has left. */
static void masked_rows_equal_the_slow_way(void **state) {
    (void)state;
    static float row[V_MAX], want[V_MAX], to[V_MAX];
    static uint32_t mask[V_MAX / 32 + 1];
    const by_isa tiers[] = {BY_ISA_REF, BY_ISA_AVX2, BY_ISA_AVX512, BY_ISA_NEON};
    int rounds = by_test_scaled(1500), n_few = 0, n_none = 0;
    by_sample_scratch *slow = scratch_for(V_MAX, BY_ISA_REF), *fast[4] = {NULL};
    for (int k = 0; k < 4; k++)
        if (by_isa_includes(isa, tiers[k])) fast[k] = scratch_for(V_MAX, tiers[k]);
    for (int i = 0; i < rounds; i++) {
        int V = 1 + below(below(4) ? 700 : V_MAX);
        random_row(row, V);
        random_mask(mask, V);
        by_sample_law law = random_law(V), other = random_law(V);
        by_sample_dist d, e, f;
        for (int id = 0; id < V; id++)
            want[id] = mask[id / 32] >> (id % 32) & 1 ? row[id] : -INFINITY;
        by_status status = by_sample_dist_make(&d, want, V, &law, slow, NULL);
        for (int k = 0; k < 4; k++) {
            bool in_place = below(2);
            if (!fast[k]) continue;
            if (in_place) memcpy(to, row, (size_t)V * 4);
            by_status got = by_sample_dist_make_masked(&e, to, in_place ? to : row, V, mask, &law, fast[k], NULL);
            assert_memory_equal(to, want, (size_t)V * 4);
            n_none += status != BY_OK;
            assert_int_equal(got, status == BY_OK ? BY_OK : BY_EGRAMMAR);
            if (status != BY_OK) continue;
            n_few += e.few;
            assert_same_dist(&d, &e, V);
            for (by_sample_rule rule = BY_SAMPLE_SMOOTH; rule <= BY_SAMPLE_DEEPINFER; rule++) {
                by_sample_stream a = by_sample_stream_at((uint64_t)i, 5, BY_SAMPLE_DRAW_FRESH), b = a;
                assert_int_equal(by_sample_dist_pick(&d, &a, rule, slow), by_sample_dist_pick(&e, &b, rule, fast[k]));
            }
            by_sample_dist_change_law(&e, &other, fast[k]);
            assert_int_equal(by_sample_dist_make(&f, want, V, &other, slow, NULL), BY_OK);
            assert_same_dist(&f, &e, V);
            by_sample_dist_change_law(&e, &law, fast[k]);
            assert_int_equal(by_sample_dist_make(&d, want, V, &law, slow, NULL), BY_OK); /* lists its tokens again */
        }
    }
    print_message("%d rows of few tokens, %d of none\n", n_few, n_none);
    assert_true(rounds < 100 || (n_few > 0 && n_none > 0));
    for (int k = 0; k < 4; k++) by_sample_scratch_destroy(fast[k]);
    by_sample_scratch_destroy(slow);
}

/* ---- laws ---- */

/* Draws follow p: chi-squared over n draws stays below its mean plus five standard deviations. */
static void check_chi2(const int *count, const double *p, int V, int n) {
    double chi2 = 0, freedom = -1;
    double rest_p = 0, rest_n = 0; /* cells with an expectation below 5 are put together */
    for (int i = 0; i < V; i++) {
        double want = p[i] * n;
        if (want < 5) {
            rest_p += want;
            rest_n += count[i];
            continue;
        }
        chi2 += (count[i] - want) * (count[i] - want) / want;
        freedom++;
    }
    if (rest_p >= 5) {
        chi2 += (rest_n - rest_p) * (rest_n - rest_p) / rest_p;
        freedom++;
    } else {
        assert_true(rest_n <= rest_p + 5 * sqrt(rest_p + 1) + 3);
    }
    if (!(chi2 <= freedom + 5 * sqrt(2 * freedom) + 5)) {
        print_error("chi2 %.1f at %.0f degrees of freedom\n", chi2, freedom);
        fail();
    }
}

static void draws_follow_the_law(void **state) {
    (void)state;
    enum { V = 50 };
    float row[V];
    by_sample_scratch *s = scratch_for(V, isa);
    int n = by_test_scaled(20000);
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < V; i++)
            row[i] = (float)by_rng_normal(&rng) * 1.5f;
        by_sample_params p = by_sample_params_default();
        p.law = (by_sample_law){.temperature = c & 1 ? 1 : 0.7f,
                                .top_p = c & 2 ? 0.9f : 1,
                                .top_k = c == 7 ? 9 : -1,
                                .min_p = c == 6 ? 0.05f : 0};
        p.rule = c & 4 ? BY_SAMPLE_SMOOTH : BY_SAMPLE_DEEPINFER;
        p.seed = by_rng_u64(&rng);
        int count[V] = {0};
        double prob[V];
        by_sample_token t;
        for (int i = 0; i < n; i++) {
            assert_int_equal(by_sample_row(&t, row, V, &p, (uint32_t)i, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
            count[t.id]++;
        }
        for (int i = 0; i < V; i++)
            prob[i] = exp((double)by_sample_dist_logprob(&t.law, i));
        check_chi2(count, prob, V, n);
    }
    by_sample_scratch_destroy(s);
}

/* Speculative output over two positions (one draft and what follows) has the law p1 x p2 for any q and either rule. */
static void verified_drafts_follow_the_law(void **state) {
    (void)state;
    enum { V = 6 };
    float rows[2][V], proposal[V];
    by_sample_scratch *s = scratch_for(V, isa), *sq = scratch_for(V, isa);
    int n = by_test_scaled(20000);
    for (int c = 0; c < 6; c++) {
        by_sample_params p = by_sample_params_default();
        p.law = (by_sample_law){.temperature = 1, .top_p = c % 3 == 1 ? 0.9f : 1, .top_k = c % 3 == 2 ? 4 : -1};
        p.rule = c & 1 ? BY_SAMPLE_DEEPINFER : BY_SAMPLE_SMOOTH;
        by_sample_verify_rule rule = c < 4 ? BY_SAMPLE_REJECTION : BY_SAMPLE_COUPLED;
        for (int i = 0; i < V; i++) {
            rows[0][i] = (float)by_rng_normal(&rng), rows[1][i] = (float)by_rng_normal(&rng);
            proposal[i] = rows[0][i] + (float)by_rng_normal(&rng);
        }
        const float *row_ptrs[2] = {rows[0], rows[1]};
        int count[V * V] = {0}, n_two = 0;
        double prob[V * V];
        for (int i = 0; i < n; i++) {
            p.seed = by_rng_u64(&rng);
            by_sample_token d, out[2];
            assert_int_equal(by_sample_row(&d, proposal, V, &p, 7, BY_SAMPLE_DRAW_DRAFT, sq, NULL), BY_OK);
            by_sample_draft draft = {.id = d.id, .q = &d.law};
            by_sample_step step = {row_ptrs, &draft, 1, V, 7, rule};
            int32_t n_out;
            assert_int_equal(by_sample_verify(out, &n_out, NULL, &step, &p, s, NULL), BY_OK);
            n_two += n_out == 2;
            if (n_out == 1) /* the next step starts from the rejected row's token */
                assert_int_equal(by_sample_row(&out[1], rows[1], V, &p, 8, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
            count[out[0].id * V + out[1].id]++;
        }
        assert_true(n_two > 0 && n_two < n);
        by_sample_dist a, b;
        by_sample_dist_make(&a, rows[0], V, &p.law, s, NULL);
        by_sample_dist_make(&b, rows[1], V, &p.law, sq, NULL);
        for (int i = 0; i < V * V; i++)
            prob[i] = exp((double)(by_sample_dist_logprob(&a, i / V) + by_sample_dist_logprob(&b, i % V)));
        check_chi2(count, prob, V * V, n);
    }
    by_sample_scratch_destroy(s);
    by_sample_scratch_destroy(sq);
}

/* A toy model whose logits depend on the last token only: any drafts, any number a step, give the undrafted text. */
static void coupled_text_does_not_depend_on_drafts(void **state) {
    (void)state;
    enum { V = 40, LEN = 60, DRAFTS = 5 };
    static float model[V][V];
    by_sample_scratch *s = scratch_for(V, isa);
    int rounds = by_test_scaled(100);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < V; i++)
            random_row(model[i], V);
        by_sample_params p = by_sample_params_default();
        p.law = random_law(V);
        p.seed = by_rng_u64(&rng);
        p.rule = below(2) ? BY_SAMPLE_SMOOTH : BY_SAMPLE_DEEPINFER;
        int32_t want[LEN + 1] = {below(V)}, at = 0, n_accepted = 0;
        for (int i = 1; i <= LEN; i++) {
            by_sample_token t;
            assert_int_equal(by_sample_row(&t, model[want[i - 1]], V, &p, (uint32_t)i, BY_SAMPLE_DRAW_FRESH, s, NULL),
                             BY_OK);
            want[i] = t.id;
        }
        while (at < LEN) {
            int v = below(DRAFTS + 1);
            if (v > LEN - at - 1) v = LEN - at - 1;
            by_sample_draft drafts[DRAFTS];
            const float *rows[DRAFTS + 1] = {model[want[at]]};
            for (int j = 0; j < v; j++) { /* half the drafts are right */
                drafts[j] = (by_sample_draft){.id = below(2) ? want[at + 1 + j] : below(V)};
                rows[j + 1] = model[drafts[j].id];
            }
            by_sample_step step = {rows, drafts, v, V, (uint32_t)at + 1, BY_SAMPLE_COUPLED};
            by_sample_token out[DRAFTS + 1];
            int32_t n;
            assert_int_equal(by_sample_verify(out, &n, NULL, &step, &p, s, NULL), BY_OK);
            for (int j = 0; j < n; j++)
                assert_int_equal(out[j].id, want[at + 1 + j]);
            n_accepted += n - 1;
            at += n;
        }
        if (round == 0) assert_true(n_accepted > 0);
    }
    by_sample_scratch_destroy(s);
}

/* ---- parts ---- */

static void exp_and_log_are_close_to_libm(void **state) {
    (void)state;
    double worst = 0;
    for (float x = -86.9f; x < 20; x += 0.00137f) {
        double want = exp((double)x), err = fabs((double)by_sample_exp(x) - want) / want;
        worst = err > worst ? err : worst;
    }
    assert_true(worst < 1.5e-7);
    assert_true(by_sample_exp(0) == 1 && by_sample_exp(-87.5f) == 0 && by_sample_exp(-INFINITY) == 0);
    for (int i = 0; i < 100000; i++) {
        double x = exp(by_rng_unit(&rng) * 80 - 40), err = fabs(by_sample_log(x) - log(x));
        assert_true(err <= 1e-14 * (1 + fabs(log(x))));
    }
    assert_true(by_sample_log(1) == 0);
    const float edges[] = {0, 0x1p-31f, 0x1.fffffep-32f, 0.5f, 0x1.fffffep-1f, 1, 0x1.000002p0f, 1.5f};
    const uint32_t masses[] = {0, 1, 0, 1u << 30, 0x7fffff80u, 1u << 31, 0x80000100u, 0xc0000000u};
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(by_sample_mass(edges[i]), masses[i]);
}

/* The history's edits against counting the tokens anew. */
static void edits_equal_a_recount(void **state) {
    (void)state;
    enum { V = 80, LEN = 200 };
    int rounds = by_test_scaled(300);
    for (int round = 0; round < rounds; round++) {
        by_sample_history h = {0};
        int32_t prompt[LEN], output[LEN];
        int n_prompt = below(LEN), n_output = 0;
        for (int i = 0; i < n_prompt; i++)
            prompt[i] = below(V);
        assert_int_equal(by_sample_history_add_prompt(&h, prompt, n_prompt, NULL), BY_OK);
        by_sample_params p = by_sample_params_default();
        p.repetition_penalty = below(3) ? 0.5f + unit() : 1;
        p.frequency_penalty = below(3) ? 4 * unit() - 2 : 0;
        p.presence_penalty = below(3) ? 4 * unit() - 2 : 0;
        for (int step = 0; step < 120; step++) {
            if (n_output > 0 && below(3) == 0)
                by_sample_history_pop(&h, output[--n_output]);
            else
                assert_int_equal(by_sample_history_push(&h, output[n_output++] = below(V), NULL), BY_OK);
        }
        assert_int_equal(h.n_output, n_output);
        float row[V], want[V];
        for (int id = 0; id < V; id++) {
            row[id] = (float)by_rng_normal(&rng) * 3;
            int in_prompt = 0, in_output = 0;
            for (int i = 0; i < n_prompt; i++)
                in_prompt += prompt[i] == id;
            for (int i = 0; i < n_output; i++)
                in_output += output[i] == id;
            want[id] = row[id];
            if (in_prompt + in_output > 0)
                want[id] = want[id] > 0 ? want[id] / p.repetition_penalty : want[id] * p.repetition_penalty;
            want[id] -= p.frequency_penalty * (float)in_output;
            if (in_output > 0) want[id] -= p.presence_penalty;
        }
        assert_int_equal(by_sample_edit(row, V, &p, &h, n_output, NULL), BY_OK);
        for (int id = 0; id < V; id++)
            assert_true(row[id] == want[id]);
        by_sample_history_deinit(&h);
    }
}

typedef struct survival {
    double v;
    int request, at;
} survival;

static int by_survival(const void *a, const void *b) {
    const survival *x = a, *y = b;
    if (x->v != y->v) return x->v < y->v ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static int sorted_survivals(survival *out, double conf[][5], int n, int K) {
    for (int i = 0; i < n; i++) {
        double v = 1;
        for (int j = 0; j < K; j++)
            out[i * K + j] = (survival){v *= conf[i][j], i, i * K + j};
    }
    qsort(out, (size_t)(n * K), sizeof out[0], by_survival);
    return n * K;
}

static double slow_step_ms(const by_draft_cost *c, int at, int rows) {
    const by_draft_cost_point *p = &c->curve[at];
    double slope = c->slope_ms > 0 ? c->slope_ms : 0, ms = p->ms;
    if (c->any_size && at > 0) ms = p[-1].ms + (ms - p[-1].ms) * (rows - p[-1].rows) / (p->rows - p[-1].rows);
    return ms + slope * (c->any_size ? rows : p->rows);
}

static void plans_equal_a_full_search(void **state) {
    (void)state;
    enum { N = 12, K_MAX = 5 };
    int rounds = by_test_scaled(10000);
    for (int pass = 0; pass < rounds; pass++) {
        int n = 1 + below(N), K = below(K_MAX + 1), n_curve = 1 + below(5);
        double budget[N][5], split[N][5];
        by_draft_request requests[N];
        for (int i = 0; i < n; i++) {
            int known = below(4);
            for (int j = 0; j < K; j++) {
                double unknown = known == 1 ? 1 : 0, grain = below(2) ? 4 : 1000; /* coarse values make ties */
                budget[i][j] = known < 2 ? unknown : round((double)unit() * grain) / grain;
                split[i][j] = known < 2 ? unknown : round((double)unit() * grain) / grain;
            }
            requests[i] = (by_draft_request){known < 2 ? NULL : budget[i], known < 2 ? NULL : split[i], known == 1};
        }
        by_draft_cost_point curve[5];
        for (int i = 0; i < n_curve; i++)
            curve[i] = (by_draft_cost_point){(i ? curve[i - 1].rows : n - 1) + 1 + below(8), 1 + (double)unit() * 9};
        by_draft_cost cost = {curve, n_curve, below(2) ? 0 : (double)unit() - 0.3, below(2), below(2)};
        by_draft_plan plan;
        by_draft_heap_entry heap[N];
        int32_t rows[N];
        assert_int_equal(by_draft_plan_make(&plan, rows, requests, n, K, &cost, heap, NULL), BY_OK);

        survival best[N * K_MAX];
        int total = 0, m = sorted_survivals(best, budget, n, K);
        double rate = 0, expected = n;
        for (int t = n; t <= n + m; t++) {
            if (t > n) expected += best[t - n - 1].v;
            int at = 0;
            while (at < n_curve && curve[at].rows < t)
                at++;
            if (at == n_curve) break;
            double ms = slow_step_ms(&cost, at, t);
            assert_true(fabs(ms - by_draft_cost_ms(&cost, t)) < 1e-12);
            if (expected / (ms + cost.sampler_ms) > rate) rate = expected / (ms + cost.sampler_ms), total = t;
        }
        assert_int_equal(plan.total_rows, total);
        assert_true(cost.any_size ? plan.row_ms >= 0 : plan.row_ms == 0);
        int32_t want[N];
        for (int i = 0; i < n; i++)
            want[i] = 1;
        sorted_survivals(best, split, n, K);
        for (int i = 0; i < total - n; i++)
            want[best[i].request]++;
        for (int i = 0; i < n; i++)
            assert_int_equal(rows[i], want[i]);
        double least = (double)unit();
        int given = n;
        for (int i = 0; i < n; i++) want[i] = 1;
        for (int i = 0; i < total - n && best[i].v >= least; i++, given++) want[best[i].request]++;
        assert_int_equal(by_draft_plan_split(rows, total, least, requests, n, K, heap), given);
        for (int i = 0; i < n; i++) assert_int_equal(rows[i], want[i]);
    }
}

/* Giving a row to every draft that is worth the price is about as fast as the best total, which looks at all of them together. Curves here
 * are convex, as of a machine that is asked for more and more. */
static void prices_find_the_best_total(void **state) {
    (void)state;
    enum { N = 12, K = 5, SIZES = N * (K + 1), ROUNDS = 1000 };
    double sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int n = 1 + below(N);
        static double conf[N][K];
        by_draft_request requests[N];
        by_draft_cost_point curve[SIZES];
        double base = 1 + 10 * (double)unit(), row = 0.02 + (double)unit() * 0.5, bend = (double)unit() * 0.01;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < K; j++) conf[i][j] = 1 - (double)unit() * (double)unit();
            requests[i] = (by_draft_request){.budget = conf[i], .split = conf[i], .has_drafts = true};
        }
        for (int i = 0; i < SIZES; i++) curve[i] = (by_draft_cost_point){i + 1, base + row * i + bend * i * i};
        by_draft_cost cost = {.curve = curve, .n_curve = SIZES, .any_size = true};
        by_draft_plan plan;
        by_draft_heap_entry heap[N];
        int32_t rows[N];
        assert_int_equal(by_draft_plan_make(&plan, rows, requests, n, K, &cost, heap, NULL), BY_OK);
        by_draft_pace pace = {0};
        double plain_ms = by_draft_cost_ms(&cost, n), price = by_draft_price(&pace, &plan, n, plain_ms);
        by_draft_pace_note(&pace, &plan, n, plain_ms);
        assert_true(fabs(by_draft_price(&pace, &plan, n, plain_ms) - price) < 1e-12);
        int32_t given = by_draft_plan_split(rows, n * (K + 1), price, requests, n, K, heap);
        double expected = n, speed;
        for (int i = 0; i < n; i++) {
            double s = 1;
            for (int j = 0; j < rows[i] - 1; j++) expected += s *= conf[i][j];
        }
        speed = expected / by_draft_cost_ms(&cost, given);
        double ratio = speed / (plan.expected / plan.ms); /* rows are few and survivals lie apart: one row more or less */
        assert_true(ratio >= 0.8 && ratio <= 1 + 1e-9);
        sum += ratio;
    }
    print_message("at the price %.4f of the best plan's speed on average\n", sum / ROUNDS);
    assert_true(sum / ROUNDS >= 0.998);
}

int main(void) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    isa = cpu.isa;
    rng = by_test_rng(20261129);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws_equal_a_full_sort),
        cmocka_unit_test(reports_equal_a_full_sort),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(masked_rows_equal_the_slow_way),
        cmocka_unit_test(draws_follow_the_law),
        cmocka_unit_test(verified_drafts_follow_the_law),
        cmocka_unit_test(coupled_text_does_not_depend_on_drafts),
        cmocka_unit_test(exp_and_log_are_close_to_libm),
        cmocka_unit_test(edits_equal_a_recount),
        cmocka_unit_test(plans_equal_a_full_search),
        cmocka_unit_test(prices_find_the_best_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
