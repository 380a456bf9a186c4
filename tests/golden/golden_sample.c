/* golden_sample.c - random streams, selection, transform, whole samples, verification and the verify plan against the
 * reference's values (data/model/sampler). The goldens use the original's selection rule. */
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
#include "json/json.h"
#include "sample/draft_plan.h"
#include "sample/sample_dist.h"
#include "sample/sample_pick.h"
#include "sample/sample_scratch.h"
#include "sample/sample_verify.h"
#include "support/golden.h"
#include "support/npz.h"

#define REMOVED -3e38f /* how the goldens write minus infinity */

static by_isa isa;

static by_npz *open_golden(const char *name) {
    char rel[128];
    snprintf(rel, sizeof rel, "model/sampler/%s.npz", name);
    by_npz *z = by_npz_open(by_golden_path(rel));
    assert_non_null(z);
    return z;
}

static by_sample_scratch *scratch_for(int32_t V) {
    by_sample_scratch *s = NULL;
    assert_int_equal(by_sample_scratch_create(&s, V, isa, NULL), BY_OK);
    return s;
}

static float golden_float(float x) {
    return isinf(x) ? REMOVED : x;
}

static void philox_blocks(void **state) {
    (void)state;
    by_npz *z = open_golden("random");
    const uint32_t *counter = by_npy_u32(by_npz_need(z, NULL, "block.counter"));
    const uint32_t *key = by_npy_u32(by_npz_need(z, NULL, "block.key"));
    const by_npy *words = by_npz_need(z, "<u4", "block.words");
    for (size_t i = 0; i < words->shape[0]; i++) {
        uint32_t out[4];
        by_sample_philox(out, counter + i * 4, key + i * 2);
        assert_true(by_golden_same_bytes("philox block", out, by_npy_u32(words) + i * 4, 4, 4));
    }
    by_npz_close(z);
}

static void streams_and_uniforms(void **state) {
    (void)state;
    by_npz *z = open_golden("random");
    const uint64_t *seed = by_npy_u64(by_npz_need(z, NULL, "streams.seed"));
    const int32_t *position = by_npy_i32(by_npz_need(z, NULL, "streams.position"));
    const by_npy *words = by_npz_need(z, "<u4", "streams.words");
    const float *uniform = by_npy_f32(by_npz_need(z, NULL, "streams.uniform"));
    const by_sample_draw draws[4] = {BY_SAMPLE_DRAW_FRESH, BY_SAMPLE_DRAW_RESIDUAL, BY_SAMPLE_DRAW_ACCEPT,
                                     BY_SAMPLE_DRAW_DRAFT};
    size_t n_words = words->shape[2];
    for (size_t i = 0; i < words->shape[0]; i++)
        for (size_t k = 0; k < 4; k++) {
            by_sample_stream s = by_sample_stream_at(seed[i], (uint32_t)position[i], draws[k]);
            for (size_t j = 0; j < n_words; j++) {
                uint32_t w = by_sample_stream_word(&s);
                assert_int_equal(w, by_npy_u32(words)[(i * 4 + k) * n_words + j]);
                if (j == 0) assert_true(by_sample_uniform(w) == uniform[i * 4 + k]);
            }
        }
    const by_npy *word = by_npz_need(z, "<u4", "word_to_uniform.word");
    const float *want = by_npy_f32(by_npz_need(z, NULL, "word_to_uniform.uniform"));
    for (size_t i = 0; i < word->n; i++)
        assert_true(by_sample_uniform(by_npy_u32(word)[i]) == want[i]);
    by_npz_close(z);
}

static void picks(void **state) {
    (void)state;
    by_npz *z = open_golden("pick");
    const int sizes[] = {1, 2, 4, 5, 50, 300, 9000};
    for (size_t c = 0; c < sizeof sizes / sizeof sizes[0]; c++) {
        int V = sizes[c];
        const by_npy *weights = by_npz_need(z, "<f4", "pick_V%d.weights", V);
        const uint64_t *seed = by_npy_u64(by_npz_need(z, NULL, "pick_V%d.seed", V));
        const int32_t *position = by_npy_i32(by_npz_need(z, NULL, "pick_V%d.position", V));
        const int32_t *token = by_npy_i32(by_npz_need(z, NULL, "pick_V%d.token", V));
        by_sample_scratch *s = scratch_for(V);
        for (size_t i = 0; i < weights->shape[0]; i++) {
            const float *x = by_npy_f32(weights) + i * (size_t)V;
            by_sample_stream stream = by_sample_stream_at(seed[i], (uint32_t)position[i], BY_SAMPLE_DRAW_FRESH);
            by_sample_weights all = {.x = x, .n = V, .V = V};
            assert_int_equal(by_sample_pick(&all, &stream, BY_SAMPLE_DEEPINFER, s), token[i]);

            int32_t ids[9000]; /* the same weights as a list of those that are not zero */
            float listed[9000];
            by_sample_weights list = {.x = listed, .ids = ids, .V = V};
            for (int32_t id = 0; id < V; id++)
                if (x[id] > 0) ids[list.n] = id, listed[list.n++] = x[id];
            stream = by_sample_stream_at(seed[i], (uint32_t)position[i], BY_SAMPLE_DRAW_FRESH);
            assert_int_equal(by_sample_pick(&list, &stream, BY_SAMPLE_DEEPINFER, s), token[i]);
        }
        by_sample_scratch_destroy(s);
    }
    by_npz_close(z);
}

static void transforms(void **state) {
    (void)state;
    by_npz *z = open_golden("transform");
    const char *cases[] = {"mixed", "ties"};
    for (size_t c = 0; c < 2; c++) {
        const by_npy *logits = by_npz_need(z, "<f4", "%s.logits", cases[c]);
        const float *temperature = by_npy_f32(by_npz_need(z, NULL, "%s.temperature", cases[c]));
        const float *top_p = by_npy_f32(by_npz_need(z, NULL, "%s.top_p", cases[c]));
        const int32_t *top_k = by_npy_i32(by_npz_need(z, NULL, "%s.top_k", cases[c]));
        const float *want = by_npy_f32(by_npz_need(z, NULL, "%s.lp", cases[c]));
        const uint8_t *keep = by_npy_u8(by_npz_need(z, NULL, "%s.keep", cases[c]));
        int32_t V = (int32_t)logits->shape[1];
        by_sample_scratch *s = scratch_for(V);
        for (size_t i = 0; i < logits->shape[0]; i++) {
            by_sample_law law = {.temperature = temperature[i], .top_p = top_p[i], .top_k = top_k[i]};
            by_sample_dist d;
            assert_int_equal(by_sample_dist_make(&d, by_npy_f32(logits) + i * (size_t)V, V, &law, s, NULL), BY_OK);
            float got[200];
            int32_t n_kept = 0;
            for (int32_t id = 0; id < V; id++) {
                float lp = by_sample_dist_logprob(&d, id);
                assert_int_equal(isfinite(lp) ? 1 : 0, keep[i * (size_t)V + (size_t)id]);
                n_kept += isfinite(lp) ? 1 : 0;
                got[id] = golden_float(lp);
            }
            if (d.listed) assert_int_equal(d.n_kept, n_kept);
            assert_true(by_golden_close_f32(cases[c], got, want + i * (size_t)V, (size_t)V, 3e-6, 3e-6));
        }
        by_sample_scratch_destroy(s);
    }
    by_npz_close(z);
}

static void whole_samples(void **state) {
    (void)state;
    by_npz *z = open_golden("sample");
    const by_npy *logits = by_npz_need(z, "<f4", "sample.logits");
    const float *temperature = by_npy_f32(by_npz_need(z, NULL, "sample.temperature"));
    const float *top_p = by_npy_f32(by_npz_need(z, NULL, "sample.top_p"));
    const int32_t *top_k = by_npy_i32(by_npz_need(z, NULL, "sample.top_k"));
    const uint8_t *draft = by_npy_u8(by_npz_need(z, NULL, "sample.draft"));
    const uint64_t *seed = by_npy_u64(by_npz_need(z, NULL, "sample.seed"));
    const int32_t *position = by_npy_i32(by_npz_need(z, NULL, "sample.position"));
    const int32_t *token = by_npy_i32(by_npz_need(z, NULL, "sample.token"));
    const float *logprob = by_npy_f32(by_npz_need(z, NULL, "sample.logprob"));
    int32_t V = (int32_t)logits->shape[1];
    by_sample_scratch *s = scratch_for(V);
    for (size_t i = 0; i < logits->shape[0]; i++) {
        const float *row = by_npy_f32(logits) + i * (size_t)V;
        by_sample_params p = by_sample_params_default();
        p.law = (by_sample_law){.temperature = temperature[i], .top_p = top_p[i], .top_k = top_k[i]};
        p.seed = seed[i];
        p.rule = BY_SAMPLE_DEEPINFER;
        by_sample_draw draw = draft[i] ? BY_SAMPLE_DRAW_DRAFT : BY_SAMPLE_DRAW_FRESH;
        by_sample_token t;
        assert_int_equal(by_sample_row(&t, row, V, &p, (uint32_t)position[i], draw, s, NULL), BY_OK);
        assert_int_equal(t.id, token[i]);
        if (by_sample_is_greedy(&p)) /* reported at temperature 1; the golden value is of the law at 1e-5 */
            assert_int_equal(by_sample_dist_make(&t.law, row, V, &p.law, s, NULL), BY_OK);
        float got = by_sample_dist_logprob(&t.law, t.id);
        assert_true(by_golden_close_f32("logprob", &got, logprob + i, 1, 3e-6, 3e-6));
    }
    by_sample_scratch_destroy(s);
    by_npz_close(z);
}

typedef struct verify_case {
    const char *name;
    const by_npy *logits, *drafts;
    const float *draft_lp, *temperature, *top_p, *logprob, *accept_prob;
    const int32_t *top_k, *first, *tokens, *accepted;
    const uint64_t *seed;
} verify_case;

static verify_case verify_read(const by_npz *z, const char *name) {
    return (verify_case){.name = name,
                         .logits = by_npz_need(z, "<f4", "%s.logits", name),
                         .drafts = by_npz_need(z, "<i4", "%s.drafts", name),
                         .draft_lp = by_npy_f32(by_npz_need(z, NULL, "%s.draft_lp", name)),
                         .temperature = by_npy_f32(by_npz_need(z, NULL, "%s.temperature", name)),
                         .top_p = by_npy_f32(by_npz_need(z, NULL, "%s.top_p", name)),
                         .top_k = by_npy_i32(by_npz_need(z, NULL, "%s.top_k", name)),
                         .seed = by_npy_u64(by_npz_need(z, NULL, "%s.seed", name)),
                         .first = by_npy_i32(by_npz_need(z, NULL, "%s.first_position", name)),
                         .tokens = by_npy_i32(by_npz_need(z, NULL, "%s.tokens", name)),
                         .accepted = by_npy_i32(by_npz_need(z, NULL, "%s.accepted", name)),
                         .logprob = by_npy_f32(by_npz_need(z, NULL, "%s.logprob", name)),
                         .accept_prob = by_npy_f32(by_npz_need(z, NULL, "%s.accept_prob", name))};
}

/* One stored step. force_rule keeps a greedy request on the general rule by writing its temperature of 1e-5. */
static void verify_one(const verify_case *c, size_t i, bool force_rule, by_sample_scratch *s) {
    enum { V_MAX = 5 };
    size_t v = c->drafts->shape[1], V = c->logits->shape[2];
    const float *rows[V_MAX + 1];
    by_sample_dist q[V_MAX];
    by_sample_draft drafts[V_MAX];
    for (size_t j = 0; j <= v; j++)
        rows[j] = by_npy_f32(c->logits) + (i * (v + 1) + j) * V;
    for (size_t j = 0; j < v; j++) {
        q[j] = (by_sample_dist){.row = c->draft_lp + (i * v + j) * V,
                                .V = (int32_t)V,
                                .inv_t = 1,
                                .cut = -1e38f,
                                .floor_s = -INFINITY}; /* stored log-probabilities are their own logits */
        drafts[j] = (by_sample_draft){.id = by_npy_i32(c->drafts)[i * v + j], .q = &q[j]};
    }
    by_sample_params p = by_sample_params_default();
    p.law = (by_sample_law){.temperature = c->temperature[i], .top_p = c->top_p[i], .top_k = c->top_k[i]};
    if (force_rule && by_sample_is_greedy(&p)) p.law.temperature = BY_SAMPLE_GREEDY_BELOW;
    p.seed = c->seed[i];
    p.rule = BY_SAMPLE_DEEPINFER;
    by_sample_step step = {.rows = rows,
                           .drafts = drafts,
                           .n_drafts = (int32_t)v,
                           .V = (int32_t)V,
                           .first = (uint32_t)c->first[i],
                           .rule = BY_SAMPLE_REJECTION};
    by_sample_token out[V_MAX + 1];
    int32_t n;
    float accept[V_MAX];
    for (int with_accept = 0; with_accept < 2; with_accept++) { /* watching must not change the result */
        assert_int_equal(by_sample_verify(out, &n, with_accept ? accept : NULL, &step, &p, s, NULL), BY_OK);
        assert_int_equal(n, c->accepted[i] + 1);
        for (int32_t j = 0; j < n; j++) {
            assert_int_equal(out[j].id, c->tokens[i * (v + 1) + (size_t)j]);
            assert_int_equal(out[j].accepted, j < n - 1);
            if (force_rule)
                assert_true(
                    by_golden_close_f32(c->name, &out[j].logprob, c->logprob + i * (v + 1) + (size_t)j, 1, 3e-6, 1e-5));
        }
    }
    if (force_rule) assert_true(by_golden_close_f32("accept_prob", accept, c->accept_prob + i * v, v, 1e-5, 1e-5));
}

static void verifications(void **state) {
    (void)state;
    by_npz *z = open_golden("verify");
    const char *cases[] = {"sampled", "greedy", "sampled_five"};
    by_sample_scratch *s = scratch_for(320);
    for (size_t k = 0; k < 3; k++) {
        verify_case c = verify_read(z, cases[k]);
        for (size_t i = 0; i < c.logits->shape[0]; i++) {
            verify_one(&c, i, true, s);
            verify_one(&c, i, false, s);
        }
    }
    by_sample_scratch_destroy(s);
    by_npz_close(z);
}

static double number(const by_json *row, const char *key) {
    const by_json *v = by_json_get(row, key);
    assert_true(by_json_is_number(v));
    return by_json_number(v);
}

static void one_plan(const by_json *row) {
    by_draft_cost_point curve[8];
    double budget[16][8], split[16][8];
    by_draft_request requests[16];
    by_draft_heap_entry heap[16];
    const by_json *c = by_json_get(row, "curve"), *b = by_json_get(row, "confidence_budget"),
                  *s = by_json_get(row, "confidence_split"), *want = by_json_get(row, "seqlens_q");
    assert_true(c && b && s && want && c->n <= 8 && b->n <= 16 && b->n == s->n && b->n == want->n);
    for (uint32_t i = 0; i < c->n; i++)
        curve[i] = (by_draft_cost_point){(int32_t)by_json_number(by_json_at(by_json_at(c, i), 0)),
                                         by_json_number(by_json_at(by_json_at(c, i), 1))};
    int32_t n_drafts = (int32_t)by_json_at(b, 0)->n;
    for (uint32_t i = 0; i < b->n; i++) {
        for (int32_t j = 0; j < n_drafts; j++) {
            budget[i][j] = by_json_number(by_json_at(by_json_at(b, i), (size_t)j));
            split[i][j] = by_json_number(by_json_at(by_json_at(s, i), (size_t)j));
        }
        requests[i] = (by_draft_request){.budget = budget[i], .split = split[i], .has_drafts = true};
    }
    by_draft_cost cost = {.curve = curve,
                          .n_curve = (int32_t)c->n,
                          .slope_ms = number(row, "slope_ms"),
                          .sampler_ms = number(row, "sampler_ms")};
    by_draft_plan plan;
    int32_t rows[16];
    assert_int_equal(by_draft_plan_make(&plan, rows, requests, (int32_t)b->n, n_drafts, &cost, heap, NULL), BY_OK);
    assert_int_equal(plan.total_rows, (int32_t)number(row, "total_q"));
    assert_true(fabs(plan.expected - number(row, "expected")) <= 1e-9);
    assert_true(fabs(plan.ms - number(row, "time_ms")) <= 1e-9);
    for (uint32_t i = 0; i < want->n; i++)
        assert_int_equal(rows[i], (int32_t)by_json_number(by_json_at(want, i)));
}

static void plans(void **state) {
    (void)state;
    by_lines *lines = by_lines_open(by_golden_path("model/sampler/schedule.jsonl"));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_str line;
    int n = 0;
    for (; by_lines_next(lines, &line); n++) {
        by_json row;
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        one_plan(&row);
        by_arena_reset(&arena);
    }
    assert_int_equal(n, 40);
    by_arena_deinit(&arena);
    by_lines_close(lines);
}

int main(void) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    isa = cpu.isa;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_blocks), cmocka_unit_test(streams_and_uniforms), cmocka_unit_test(picks),
        cmocka_unit_test(transforms),    cmocka_unit_test(whole_samples),        cmocka_unit_test(verifications),
        cmocka_unit_test(plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
