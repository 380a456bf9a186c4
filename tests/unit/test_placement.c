/* test_placement.c - engines whose experts lie partly on the host: the same answers, the errors, a host that fails.
 * BY_TEST_TIMEOUT=300 BY_TEST_WRAP=by_op_moe_part */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/placement.h"
#include "support/engine_runs.h"
#include "support/golden.h"
#include "support/seed.h"

enum { CONTEXT = 128, SEQS = 4, ROWS = 32, PROMPTS = 5 };

static by_rng rng;
static by_err err;
static _Atomic int calls, fail_at = -1; /* of the host's operator: how many there were, and which one fails */

by_status __real_by_op_moe_part(by_device *dev, const by_moe_part_args *a, by_err *e);
by_status __wrap_by_op_moe_part(by_device *dev, const by_moe_part_args *a, by_err *e);
by_status __wrap_by_op_moe_part(by_device *dev, const by_moe_part_args *a, by_err *e) {
    if (atomic_fetch_add(&calls, 1) == atomic_load(&fail_at)) return BY_FAIL(e, BY_ENOMEM, "no memory today");
    return __real_by_op_moe_part(dev, a, e);
}

static by_engine_opts options(by_backend backend, bool host_ref) {
    by_engine_opts o = by_run_engine_opts(1, CONTEXT, 8, SEQS, ROWS);
    static const by_draft_cost_point flat[] = {{8, 1}, {64, 1.1}};
    o.device.backend = backend;
    o.state_slots = SEQS + 1;
    o.model.host_ref = host_ref;
    o.model.host_threads = 2;
    o.cost = flat; /* measured ones are another story on each device */
    o.n_cost = 2;
    return o;
}

/* The limit under which a share of the experts fits beside all else. */
static int64_t limit_for(const by_engine_opts *base, double share) {
    by_engine_opts o = *base;
    o.device.memory_bytes = 1 << 30;
    by_engine *e = by_run_open(&o);
    const by_placement *p = &by_engine_model(e)->place;
    int64_t bytes = p->fixed_bytes + p->reserve + (int64_t)((double)p->expert_bytes[0] * share);
    assert_int_equal(p->n_experts[1], 0);
    by_engine_close(e);
    return bytes;
}

typedef struct {
    int32_t tokens[PROMPTS][CONTEXT], n[PROMPTS];
    int32_t n_prompts, max_tokens;
    by_run_result *out; /* [n_prompts] */
} answers;

static void run_all(by_engine *e, answers *a) {
    by_request *r[PROMPTS];
    for (int i = 0; i < a->n_prompts; i++) {
        by_request_opts q = by_run_request(a->tokens[i], a->n[i], a->max_tokens, i % 2 ? 7u + (uint64_t)i : 0);
        r[i] = by_run_submit(e, &q);
    }
    for (int i = 0; i < a->n_prompts; i++) by_run_read(&a->out[i], r[i]);
}

static answers make_answers(by_engine *e, int32_t n_prompts, int32_t max_tokens) {
    answers a = {.n_prompts = n_prompts, .max_tokens = max_tokens};
    a.out = calloc((size_t)n_prompts, sizeof *a.out);
    assert_non_null(a.out);
    for (int i = 0; i < n_prompts; i++) {
        a.n[i] = 1 + (int32_t)by_rng_below(&rng, 50);
        by_run_random_tokens(&rng, a.tokens[i], a.n[i], e);
    }
    return a;
}

/* Answers of an engine that holds everything, and of one under a limit, by flags, with drafts and without, asynchronous and not. */
static void compare(by_backend backend, bool host_ref, int32_t n_prompts, int32_t max_tokens, int n_rounds) {
    by_engine_opts plain = options(backend, host_ref);
    plain.draft_mode = BY_DRAFT_OFF;
    by_engine *e = by_run_open(&plain);
    answers want = make_answers(e, n_prompts, max_tokens), got = want;
    run_all(e, &want);
    by_engine_close(e);
    got.out = calloc((size_t)n_prompts, sizeof *got.out);
    assert_non_null(got.out);
    for (int i = 0; i < n_rounds; i++) {
        by_engine_opts o = options(backend, host_ref);
        o.async = i % 2 == 0;
        o.draft_mode = i % 3 == 1 ? BY_DRAFT_OFF : BY_DRAFT_FIXED;
        if (i == 0) o.device.memory_bytes = limit_for(&o, 0.5);
        if (i == 1) o.model.place.host_layers = 3;
        if (i == 2) o.model.place.host_experts = true;
        if (i == 3) o.device.memory_bytes = limit_for(&o, 0.2);
        e = by_run_open(&o);
        assert_true(by_engine_model(e)->place.n_experts[1] > 0);
        int before = atomic_load(&calls);
        run_all(e, &got);
        assert_true(atomic_load(&calls) > before);
        by_engine_stats st = by_run_stats_at_rest(e);
        assert_int_equal(st.n_failed, 0);
        if (o.draft_mode == BY_DRAFT_FIXED) assert_true(st.draft.n_verified > 0);
        by_device_room room = by_device_room_get(by_engine_model(e)->dev);
        assert_true(room.limit == o.device.memory_bytes && (room.limit == 0 || room.used <= room.limit));
        by_engine_close(e);
        for (int k = 0; k < n_prompts; k++) assert_true(by_run_same("experts on the host", &want.out[k], &got.out[k]));
    }
    free(want.out);
    free(got.out);
}

static void answers_are_the_same_bit_by_bit(void **s) {
    (void)s;
    compare(BY_BACKEND_CPU, false, PROMPTS, 24, 4);
}

static void answers_are_the_same_where_the_device_is_apart(void **s) {
    (void)s;
    compare(BY_BACKEND_GUARD, true, 2, 4, by_test_scaled(100) >= 100 ? 3 : 1);
}

static void what_cannot_be_placed_is_refused_with_both_numbers(void **s) {
    (void)s;
    by_engine *e = NULL;
    by_engine_opts o = options(BY_BACKEND_GUARD, false);
    o.device.memory_bytes = 100000;
    assert_int_equal(by_engine_open(&e, &o, &err), BY_ENOMEM);
    assert_non_null(strstr(err.msg, "without any routed expert"));
    assert_non_null(strstr(err.msg, "100000 are available"));
    o.device.memory_bytes = limit_for(&o, 0) - 1;
    assert_int_equal(by_engine_open(&e, &o, &err), BY_ENOMEM);
    o.device.memory_bytes++;
    assert_int_equal(by_engine_open(&e, &o, &err), BY_OK); /* no expert on the device */
    assert_int_equal(by_engine_model(e)->place.n_experts[0], 0);
    by_engine_close(e);
    o.device.memory_bytes = 0;
    o.model.place.host_layers = 11;
    assert_int_equal(by_engine_open(&e, &o, &err), BY_EINVAL);
    assert_non_null(strstr(err.msg, "11"));
    o.model.place.host_layers = 0;
    o.device.memory_bytes = -1;
    assert_int_equal(by_engine_open(&e, &o, &err), BY_EINVAL);
}

/* What is asked for is kept free, be it more than a quarter of the limit; what does not fit is refused with both numbers. */
static void caches_asked_for_may_take_more_than_a_quarter(void **s) {
    (void)s;
    by_engine *e = NULL;
    by_engine_opts o = options(BY_BACKEND_CPU, false);
    o.device.memory_bytes = 12 << 20;
    o.kv_blocks = 0;
    o.state_slots = 600; /* 8 MB */
    if (by_engine_open(&e, &o, &err) < 0) fail_msg("%s", err.msg);
    by_device_room room = by_device_room_get(by_engine_model(e)->dev);
    assert_true(room.used <= room.limit);
    by_engine_close(e);
    o.state_slots = 2000;
    assert_int_equal(by_engine_open(&e, &o, &err), BY_ENOMEM);
    assert_non_null(strstr(err.msg, "are available"));
    o.state_slots = 2;
    o.max_context = 4096;
    o.device.memory_bytes = 4 << 20;
    if (by_engine_open(&e, &o, &err) < 0) fail_msg("%s", err.msg);
    by_engine_close(e);
}

/* The plan is exact: each layer has its share, and what is left is less than an expert. */
static void the_plan_uses_what_there_is(void **s) {
    (void)s;
    by_config c;
    by_placement all, p;
    assert_int_equal(by_config_load(&c, by_source_path("models/tiny"), NULL, &err), BY_OK);
    assert_int_equal(by_placement_plan(&all, &c, 0, &(by_place_opts){0}, &err), BY_OK);
    assert_int_equal(all.n_experts[0], 10 * 16 + 3 * 8);
    int64_t one = all.expert_bytes[0] / all.n_experts[0]; /* the drafts' are as large */
    for (int i = 0; i < 200; i++) {
        int64_t room = (int64_t)by_rng_below(&rng, (uint64_t)(all.expert_bytes[0] * 5 / 4)), limit = all.fixed_bytes + 12345 + (1 << 20) + room;
        assert_int_equal(by_placement_plan(&p, &c, limit, &(by_place_opts){.reserve = 12345}, &err), BY_OK);
        assert_true(p.expert_bytes[0] <= room && p.expert_bytes[0] + p.expert_bytes[1] == all.expert_bytes[0]);
        assert_true(p.n_experts[1] == 0 || room - p.expert_bytes[0] < one);
        for (int l = 1; l < 10; l++) assert_in_range(p.on_device[l - 1] - p.on_device[l] + 1, 1, 2); /* equal, or one more in front */
    }
    assert_int_equal(by_placement_plan(&p, &c, all.fixed_bytes, &(by_place_opts){0}, &err), BY_ENOMEM);
}

/* Caches that nobody sized: as many slots as without a limit, room for a sequence, and all of it within the limit. */
static void caches_fit_beside_the_weights(void **s) {
    (void)s;
    for (int i = 0; i < 3; i++) {
        by_engine_opts o = options(BY_BACKEND_CPU, false);
        o.kv_blocks = o.state_slots = 0;
        o.device.memory_bytes = limit_for(&o, 0.1 + 0.3 * i);
        by_engine *e = by_run_open(&o);
        answers a = make_answers(e, 1, 2);
        run_all(e, &a); /* figures come with steps */
        free(a.out);
        by_device_room room = by_device_room_get(by_engine_model(e)->dev);
        by_engine_stats st = by_run_stats_at_rest(e);
        assert_int_equal(st.slots_total, (int)(1.2 * SEQS) + 1);
        assert_in_range(st.blocks_total, 2, SEQS + 1); /* one holds no data */
        assert_true(room.used <= room.limit);
        by_engine_close(e);
    }
}

/* The host's operator fails in the middle of a run: requests of that step end with the reason, later ones do not know of it. */
static void a_host_that_fails_costs_its_step(void **s) {
    (void)s;
    by_engine_opts o = options(BY_BACKEND_CPU, false);
    o.model.place.host_experts = true;
    o.draft_mode = BY_DRAFT_OFF;
    by_engine *e = by_run_open(&o);
    answers a = make_answers(e, 1, 12);
    run_all(e, &a);
    by_run_result good = a.out[0];
    atomic_store(&fail_at, atomic_load(&calls) + 33);
    run_all(e, &a);
    assert_int_equal(a.out[0].finish[0], BY_CHOICE_ERROR);
    assert_non_null(strstr(a.out[0].err.msg, "experts on the host, layer"));
    assert_non_null(strstr(a.out[0].err.msg, "no memory today"));
    atomic_store(&fail_at, -1);
    run_all(e, &a);
    assert_true(by_run_same("after a failure", &good, &a.out[0]));
    by_engine_close(e);
    free(a.out);
}

int main(void) {
    rng = by_test_rng(20261129);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_uses_what_there_is),
        cmocka_unit_test(answers_are_the_same_bit_by_bit),
        cmocka_unit_test(answers_are_the_same_where_the_device_is_apart),
        cmocka_unit_test(what_cannot_be_placed_is_refused_with_both_numbers),
        cmocka_unit_test(caches_fit_beside_the_weights),
        cmocka_unit_test(caches_asked_for_may_take_more_than_a_quarter),
        cmocka_unit_test(a_host_that_fails_costs_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
