/* test_sample.c - parameters, edits, errors and memory of the sampler. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "sample/draft_plan.h"
#include "sample/sample_edit.h"
#include "sample/sample_verify.h"

#define V 8

static by_sample_scratch *scratch(void) {
    by_sample_scratch *s = NULL;
    assert_int_equal(by_sample_scratch_create(&s, V, BY_ISA_REF, NULL), BY_OK);
    return s;
}

/* ---- parameters ---- */

static void refused(by_sample_params p, const char *field) {
    by_err err = {0};
    assert_int_equal(by_sample_params_check(&p, V, &err), BY_EINVAL);
    if (!strstr(err.msg, field)) fail_msg("\"%s\" does not name %s", err.msg, field);
}

static void parameters_out_of_range_are_named(void **state) {
    (void)state;
    const by_sample_params ok = by_sample_params_default();
    assert_int_equal(by_sample_params_check(&ok, V, NULL), BY_OK);
    assert_true(by_sample_params_plain(&ok));
    by_sample_params p;
    const int32_t outside[] = {V}, negative[] = {-1};
    const by_sample_bias far[] = {{V, 1}}, strong[] = {{0, 100.5f}};
#define BY_REFUSED(field_name, assignment) p = ok, assignment, refused(p, field_name)
    BY_REFUSED("temperature", p.law.temperature = -0.5f);
    BY_REFUSED("temperature", p.law.temperature = NAN);
    BY_REFUSED("temperature", p.law.temperature = INFINITY);
    BY_REFUSED("top_p", p.law.top_p = 0);
    BY_REFUSED("top_p", p.law.top_p = 1.5f);
    BY_REFUSED("top_p", p.law.top_p = NAN);
    BY_REFUSED("top_k", p.law.top_k = 0);
    BY_REFUSED("top_k", p.law.top_k = -2);
    BY_REFUSED("min_p", p.law.min_p = -0.1f);
    BY_REFUSED("min_p", p.law.min_p = NAN);
    BY_REFUSED("repetition_penalty", p.repetition_penalty = 0);
    BY_REFUSED("frequency_penalty", p.frequency_penalty = 2.1f);
    BY_REFUSED("presence_penalty", p.presence_penalty = -2.1f);
    BY_REFUSED("logit_bias", (p.bias = far, p.n_bias = 1));
    BY_REFUSED("logit_bias", (p.bias = strong, p.n_bias = 1));
    BY_REFUSED("logit_bias", p.n_bias = 1);
    BY_REFUSED("banned", (p.banned = outside, p.n_banned = 1));
    BY_REFUSED("stop_token_ids", (p.stop_ids = negative, p.n_stop_ids = 1));
    BY_REFUSED("stop_token_ids", p.n_stop_ids = 1);
    BY_REFUSED("eos_id", p.eos_id = V);
    BY_REFUSED("min_tokens", p.min_tokens = -1);
#undef BY_REFUSED
}

/* ---- rows ---- */

static void rows_that_are_no_distribution_are_errors(void **state) {
    (void)state;
    by_sample_scratch *s = scratch();
    const by_sample_params p = by_sample_params_default();
    for (int kind = 0; kind < 3; kind++)
        for (int at = 0; at < V; at++) {
            float row[V] = {0};
            if (kind == 2)
                for (int i = 0; i < V; i++)
                    row[i] = -INFINITY;
            else
                row[at] = kind ? INFINITY : NAN;
            by_err err = {0};
            by_sample_token t;
            assert_int_equal(by_sample_row(&t, row, V, &p, 0, BY_SAMPLE_DRAW_FRESH, s, &err), BY_ENUMERIC);
            char name[32];
            snprintf(name, sizeof name, "token %d", at);
            if (kind < 2) assert_non_null(strstr(err.msg, name));
            int32_t id;
            assert_int_equal(by_sample_argmax(&id, row, V, s, NULL), BY_ENUMERIC);
        }
    by_sample_scratch_destroy(s);
}

static void extreme_rows_are_still_sampled(void **state) {
    (void)state;
    by_sample_scratch *s = scratch();
    by_sample_params p = by_sample_params_default();
    p.law = (by_sample_law){1e30f, 0.5f, 0.5f, 3};
    float row[V] = {-FLT_MAX, FLT_MAX, -INFINITY, 0, FLT_MIN, -0.0f, 1e-45f, -1};
    by_sample_token t;
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(by_sample_row(&t, row, V, &p, i, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
        assert_true(t.id != 2 && t.logprob <= 1e-6f && isfinite(t.logprob));
    }
    p.law.temperature = 1e-5f; /* differences overflow to -inf: only the largest is left */
    assert_int_equal(by_sample_row(&t, row, V, &p, 1, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
    assert_int_equal(t.id, 1);
    by_sample_scratch_destroy(s);
}

static void greedy_takes_the_lowest_id_and_reports_at_temperature_one(void **state) {
    (void)state;
    by_sample_scratch *s = scratch();
    by_sample_params p = by_sample_params_default();
    p.law.temperature = 0;
    p.law.top_p = 0.1f; /* greedy ignores the cuts */
    const float row[V] = {0, 2, 1, 2, 0, 0, 0, 0};
    double sum = 2 * exp(2) + exp(1) + 5;
    by_sample_token t;
    for (p.seed = 0; p.seed < 20; p.seed++) {
        assert_int_equal(by_sample_row(&t, row, V, &p, 3, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
        assert_int_equal(t.id, 1);
        assert_true(fabs((double)t.logprob - (2 - log(sum))) < 1e-6);
    }
    const float *rows[2] = {row, row};
    by_sample_draft draft = {.id = 1};
    by_sample_step step = {rows, &draft, 1, V, 3, BY_SAMPLE_REJECTION}; /* greedy needs no proposal law */
    by_sample_token out[2];
    int32_t n;
    assert_int_equal(by_sample_verify(out, &n, NULL, &step, &p, s, NULL), BY_OK);
    assert_true(n == 2 && out[0].accepted && !out[1].accepted && out[1].logprob == t.logprob);
    draft.id = 3; /* equally likely, but not the one that is taken without drafts */
    assert_int_equal(by_sample_verify(out, &n, NULL, &step, &p, s, NULL), BY_OK);
    assert_true(n == 1 && out[0].id == 1);
    by_sample_scratch_destroy(s);
}

static void a_draft_without_its_law_or_outside_the_vocabulary_is_refused(void **state) {
    (void)state;
    by_sample_scratch *s = scratch();
    const by_sample_params p = by_sample_params_default();
    const float row[V] = {0};
    by_sample_token t;
    by_sample_draft d = {.id = 1};
    assert_int_equal(by_sample_judge(&t, NULL, row, V, &p, BY_SAMPLE_REJECTION, d, 1, 0, s, NULL), BY_EINVAL);
    d.id = V;
    assert_int_equal(by_sample_judge(&t, NULL, row, V, &p, BY_SAMPLE_COUPLED, d, 1, 0, s, NULL), BY_EINVAL);
    d.id = -1; /* nothing proposed: rejected, and the text goes on */
    assert_int_equal(by_sample_judge(&t, NULL, row, V, &p, BY_SAMPLE_COUPLED, d, 1, 0, s, NULL), BY_OK);
    assert_false(t.accepted);
    by_sample_scratch_destroy(s);
}

/* ---- edits ---- */

static void edits_come_in_the_stated_order(void **state) {
    (void)state;
    by_sample_history h = {0};
    const int32_t prompt[] = {0, 1};
    assert_int_equal(by_sample_history_add_prompt(&h, prompt, 2, NULL), BY_OK);
    assert_int_equal(by_sample_history_push(&h, 1, NULL), BY_OK);
    assert_int_equal(by_sample_history_push(&h, 2, NULL), BY_OK);
    assert_int_equal(by_sample_history_push(&h, 2, NULL), BY_OK);
    const by_sample_bias bias[] = {{0, 3}, {2, -2}, {5, 100}};
    const int32_t banned[] = {5}, stops[] = {6};
    by_sample_params p = by_sample_params_default();
    p.bias = bias, p.n_bias = 3;
    p.repetition_penalty = 2, p.frequency_penalty = 0.5f, p.presence_penalty = 0.25f;
    p.banned = banned, p.n_banned = 1;
    p.stop_ids = stops, p.n_stop_ids = 1, p.eos_id = 7, p.min_tokens = 4;
    assert_false(by_sample_params_plain(&p));
    float row[V] = {-1, 4, 1, 1, 1, 1, 1, 1};
    const uint32_t mask = 0xffffffffu & ~(1u << 4);
    by_sample_scratch *s = scratch();
    assert_int_equal(by_sample_edit(row, V, &p, &h, 3, NULL), BY_OK);
    assert_int_equal(by_sample_mask_row(row, row, V, &mask, s, NULL), BY_OK);
    by_sample_scratch_destroy(s);
    const float want[V] = {(-1 + 3) / 2.0f,         /* bias, then the sign decides that it is divided */
                           4 / 2.0f - 0.5f - 0.25f, /* in prompt and once in the output */
                           (1 - 2) * 2.0f - 2 * 0.5f - 0.25f,
                           1,
                           -INFINITY,
                           -INFINITY,
                           -INFINITY,
                           -INFINITY};
    assert_memory_equal(row, want, sizeof want);

    float later[V] = {0}; /* enough tokens: end and stop ids are free again */
    assert_int_equal(by_sample_edit(later, V, &p, NULL, 4, NULL), BY_OK);
    assert_true(later[6] == 0 && later[7] == 0 && later[5] == -INFINITY);
    by_sample_history_deinit(&h);
}

static void the_first_token_may_exclude_the_end(void **state) {
    (void)state;
    by_sample_params p = by_sample_params_default();
    p.first_no_eos = true;
    p.eos_id = 2;
    for (int32_t n_output = 0; n_output < 2; n_output++) {
        float row[V] = {0};
        assert_int_equal(by_sample_edit(row, V, &p, NULL, n_output, NULL), BY_OK);
        assert_true((row[2] == -INFINITY) == (n_output == 0));
    }
}

static void a_ban_does_not_hide_a_broken_row(void **state) {
    (void)state;
    by_sample_params p = by_sample_params_default();
    const int32_t banned[] = {3};
    p.banned = banned, p.n_banned = 1;
    float row[V] = {0};
    row[3] = NAN;
    assert_int_equal(by_sample_edit(row, V, &p, NULL, 0, NULL), BY_ENUMERIC);
}

static const by_isa tiers[] = {BY_ISA_REF, BY_ISA_AVX2, BY_ISA_AVX512, BY_ISA_NEON};
enum { N_TIERS = sizeof tiers / sizeof tiers[0] };

/* Words of all kinds, behind each other and at an end that is no whole word, in place and not. */
static void a_mask_of_any_words_is_kept_to(void **state) {
    (void)state;
    enum { N = 32 * 6 + 5 };
    const uint32_t mask[] = {UINT32_MAX, 0, 0x80000001u, 0x0ff0f00fu, UINT32_MAX - 1, 0x7fffffffu, 0x15u};
    by_cpu cpu;
    by_cpu_detect(&cpu);
    for (int k = 0; k < N_TIERS; k++) {
        by_sample_scratch *s;
        if (!by_isa_includes(cpu.isa, tiers[k])) continue;
        assert_int_equal(by_sample_scratch_create(&s, N, tiers[k], NULL), BY_OK);
        float row[N], to[N], broken[N];
        for (int i = 0; i < N; i++)
            row[i] = i % 7 == 3 ? -INFINITY : (float)(i - 90) * 0.5f;
        assert_int_equal(by_sample_mask_row(to, row, N, mask, s, NULL), BY_OK);
        for (int i = 0; i < N; i++)
            assert_true(to[i] == (mask[i / 32] >> (i % 32) & 1 ? row[i] : -INFINITY));
        for (int i = 0; i < N; i++) { /* each place is looked at, allowed or not: a mask does not hide a broken row */
            by_err err = {0};
            memcpy(broken, row, sizeof row);
            broken[i] = i & 1 ? NAN : INFINITY;
            assert_int_equal(by_sample_mask_row(to, broken, N, mask, s, &err), BY_ENUMERIC);
            char name[32];
            snprintf(name, sizeof name, "token %d is", i);
            assert_non_null(strstr(err.msg, name));
            assert_int_equal(by_sample_mask_row(broken, broken, N, mask, s, NULL), BY_ENUMERIC);
        }
        assert_int_equal(by_sample_mask_row(row, row, N, mask, s, NULL), BY_OK);
        assert_int_equal(by_sample_mask_row(to, row, N, mask, s, NULL), BY_OK);
        assert_memory_equal(to, row, sizeof row);
        by_sample_scratch_destroy(s);
    }
}

/* What the mask allows is -inf already, or it allows nothing, or only ids behind the row. */
static void a_mask_that_leaves_nothing_is_a_dead_end(void **state) {
    (void)state;
    by_sample_scratch *s = scratch();
    const by_sample_law law = {1, 1, 0, -1};
    float row[V] = {0, 0, -INFINITY, -INFINITY, 0, 0, 0, 0}, to[V];
    const uint32_t masks[] = {1u << 2 | 1u << 3, 0, UINT32_MAX << V};
    for (int i = 0; i < 3; i++) {
        by_sample_dist d;
        by_err err = {0};
        assert_int_equal(by_sample_mask_row(to, row, V, &masks[i], s, &err), BY_EGRAMMAR);
        assert_non_null(strstr(err.msg, "grammar_dead_end"));
        assert_int_equal(by_sample_dist_make_masked(&d, to, row, V, &masks[i], &law, s, NULL), BY_EGRAMMAR);
    }
    by_sample_scratch_destroy(s);
}

/* Penalties see the drafts before a row, and only as long as they are pushed. */
static void drafts_count_as_output_while_they_are_judged(void **state) {
    (void)state;
    by_sample_history h = {0};
    by_sample_params p = by_sample_params_default();
    p.frequency_penalty = 2;
    assert_int_equal(by_sample_history_push(&h, 4, NULL), BY_OK);
    float without[V] = {0}, with[V] = {0}, after[V] = {0};
    by_sample_edit(without, V, &p, &h, h.n_output, NULL);
    by_sample_history_push(&h, 4, NULL);
    by_sample_history_push(&h, 5, NULL);
    by_sample_edit(with, V, &p, &h, h.n_output, NULL);
    by_sample_history_pop(&h, 5);
    by_sample_history_pop(&h, 4);
    by_sample_edit(after, V, &p, &h, h.n_output, NULL);
    assert_true(without[4] == -2 && with[4] == -4 && with[5] == -2);
    assert_memory_equal(without, after, sizeof without);
    assert_int_equal(by_sample_history_get(&h, 4)->n_output, 1);
    assert_null(by_sample_history_get(&h, 6));
    by_sample_history_pop(&h, 6); /* never seen: nothing happens */
    assert_int_equal(h.n_output, 1);
    by_sample_history_deinit(&h);
}

/* ---- memory ---- */

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state) {
    (void)state;
    int64_t held = by_alloc_bytes_total();
    for (int n = 1; n <= 5; n++) {
        by_sample_scratch *s = NULL;
        by_alloc_fail_nth(n);
        assert_int_equal(by_sample_scratch_create(&s, V, BY_ISA_REF, NULL), BY_ENOMEM);
        by_alloc_fail_nth(0);
        assert_null(s);
        assert_int_equal(by_alloc_bytes_total(), held);
    }
    by_sample_history h = {0};
    for (int32_t i = 0; i < 12; i++)
        assert_int_equal(by_sample_history_push(&h, i, NULL), BY_OK);
    by_alloc_fail_nth(1); /* growing fails: what was there stays */
    assert_int_equal(by_sample_history_push(&h, 12, NULL), BY_ENOMEM);
    by_alloc_fail_nth(0);
    assert_int_equal(h.n_output, 12);
    assert_int_equal(by_sample_history_push(&h, 12, NULL), BY_OK);
    for (int32_t i = 0; i <= 12; i++)
        assert_int_equal(by_sample_history_get(&h, i)->n_output, 1);
    by_sample_history_deinit(&h);
    assert_int_equal(by_alloc_bytes_total(), held);
    by_sample_scratch *s = NULL;
    assert_int_equal(by_sample_scratch_create(&s, 0, BY_ISA_REF, NULL), BY_EINVAL);
    assert_int_equal(by_sample_scratch_create(&s, INT32_MAX, BY_ISA_REF, NULL), BY_EINVAL);
}

static void a_token_allocates_nothing(void **state) {
    (void)state;
    by_sample_scratch *s = scratch();
    by_sample_history h = {0};
    assert_int_equal(by_sample_history_reserve(&h, V, NULL), BY_OK);
    by_sample_params p = by_sample_params_default();
    p.repetition_penalty = 1.1f;
    p.law = (by_sample_law){0.8f, 0.9f, 0.01f, 5};
    uint64_t calls = by_alloc_calls();
    for (uint32_t i = 0; i < 100; i++) {
        float row[V] = {0, 1, 2, 3, 2, 1, 0, -1};
        by_sample_token t;
        assert_int_equal(by_sample_edit(row, V, &p, &h, h.n_output, NULL), BY_OK);
        assert_int_equal(by_sample_row(&t, row, V, &p, i, BY_SAMPLE_DRAW_FRESH, s, NULL), BY_OK);
        assert_int_equal(by_sample_history_push(&h, t.id, NULL), BY_OK);
    }
    assert_int_equal(by_alloc_calls(), calls);
    by_sample_history_deinit(&h);
    by_sample_scratch_destroy(s);
}

/* ---- the verify plan ---- */

/* The worked example of the rule: the budget takes eight rows, the newer confidences move them. */
static void the_plan_follows_the_worked_example(void **state) {
    (void)state;
    const double old[3][5] = {{.95, .9, .9, .8, .8}, {.6, .5, .5, .4, .4}, {.9, .7, .6, .5, .5}};
    const double new[3][5] = {{.5, .9, .9, .8, .8}, {.97, .95, .9, .9, .8}, {.9, .7, .6, .5, .5}};
    by_draft_cost_point curve[] = {{4, 10}, {8, 11}, {16, 20}};
    by_draft_cost cost = {.curve = curve, .n_curve = 3, .sampler_ms = 1};
    by_draft_request same[3], newer[3];
    for (int i = 0; i < 3; i++)
        same[i] = (by_draft_request){old[i], old[i], true}, newer[i] = (by_draft_request){old[i], new[i], true};
    by_draft_heap_entry heap[3];
    by_draft_plan plan;
    int32_t rows[3];
    assert_int_equal(by_draft_plan_make(&plan, rows, same, 3, 5, &cost, heap, NULL), BY_OK);
    assert_int_equal(plan.total_rows, 8);
    assert_true(fabs(plan.expected - 7.1045) < 1e-12 && plan.ms == 12);
    assert_true(rows[0] == 4 && rows[1] == 1 && rows[2] == 3);
    assert_int_equal(by_draft_plan_make(&plan, rows, newer, 3, 5, &cost, heap, NULL), BY_OK);
    assert_true(rows[0] == 1 && rows[1] == 5 && rows[2] == 2);
    curve[2].ms = 13;
    assert_int_equal(by_draft_plan_make(&plan, rows, same, 3, 5, &cost, heap, NULL), BY_OK);
    assert_int_equal(plan.total_rows, 16);
}

static void the_plan_handles_what_is_not_known(void **state) {
    (void)state;
    const double low[2] = {.1, .1};
    by_draft_request r[3] = {{NULL, NULL, true}, {low, low, true}, {NULL, NULL, false}};
    by_draft_cost_point curve[] = {{3, 10}, {5, 11}, {9, 30}};
    by_draft_cost cost = {.curve = curve, .n_curve = 3, .slope_ms = -1}, none = {0};
    by_draft_heap_entry heap[3];
    by_draft_plan plan;
    int32_t rows[3];
    assert_int_equal(by_draft_plan_make(&plan, rows, r, 3, 2, &cost, heap, NULL), BY_OK);
    assert_true(plan.total_rows == 5 && rows[0] == 3 && rows[1] == 1 && rows[2] == 1);
    assert_int_equal(by_draft_plan_make(&plan, rows, r, 3, 2, &none, heap, NULL), BY_OK);
    assert_true(plan.total_rows == 9 && rows[0] == 3 && rows[2] == 3 && isnan(plan.ms));
    assert_int_equal(by_draft_plan_make(&plan, rows, r, 3, 0, &cost, heap, NULL), BY_OK);
    assert_int_equal(plan.total_rows, 3);
    cost.n_curve = 1, curve[0].rows = 2;
    assert_int_equal(by_draft_plan_make(&plan, rows, r, 3, 2, &cost, heap, NULL), BY_EINVAL);
    cost.n_curve = 2, curve[1].rows = 2; /* not increasing */
    assert_int_equal(by_draft_plan_make(&plan, rows, r, 3, 2, &cost, heap, NULL), BY_EINVAL);
    const double bad[2] = {NAN, 0};
    r[1].budget = bad;
    assert_int_equal(by_draft_plan_make(&plan, rows, r, 3, 2, &none, heap, NULL), BY_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_out_of_range_are_named),
        cmocka_unit_test(rows_that_are_no_distribution_are_errors),
        cmocka_unit_test(extreme_rows_are_still_sampled),
        cmocka_unit_test(greedy_takes_the_lowest_id_and_reports_at_temperature_one),
        cmocka_unit_test(a_draft_without_its_law_or_outside_the_vocabulary_is_refused),
        cmocka_unit_test(edits_come_in_the_stated_order),
        cmocka_unit_test(the_first_token_may_exclude_the_end),
        cmocka_unit_test(a_ban_does_not_hide_a_broken_row), cmocka_unit_test(a_mask_of_any_words_is_kept_to),
        cmocka_unit_test(a_mask_that_leaves_nothing_is_a_dead_end),
        cmocka_unit_test(drafts_count_as_output_while_they_are_judged),
        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_token_allocates_nothing),
        cmocka_unit_test(the_plan_follows_the_worked_example),
        cmocka_unit_test(the_plan_handles_what_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
