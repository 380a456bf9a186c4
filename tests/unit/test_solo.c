/* test_solo.c - generation one sequence at a time on the bundled model: no allocation in steady state, errors that name what
 * is wrong, nothing left behind. BY_TEST_TIMEOUT=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/solo_gen.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/seed.h"

static by_err err;

static by_solo open_tiny(const by_test_backend *b, int64_t context) {
    by_solo s;
    by_solo_opts o = {.device = {.backend = b->backend, .isa = b->isa, .n_threads = 2}, .model = {.numerics = BY_NUMERICS_DEPLOYED}};
    if (by_solo_open(&s, by_source_path("models/tiny"), &o, &err) < 0) fail_msg("%s", err.msg);
    if (by_solo_reserve(&s, context, 32, &err) < 0) fail_msg("%s", err.msg);
    return s;
}

static void a_decode_step_allocates_nothing(void **state) {
    (void)state;
    const by_test_backend *all;
    int n = by_test_backends(&all), last = by_test_scaled(100) >= 100 ? 200 : 166;
    for (int i = 0; i < n; i++) {
        by_solo s = open_tiny(&all[i], 256);
        int32_t tokens[256];
        for (int k = 0; k < 256; k++) tokens[k] = 3 + 17 * k % 4000;
        assert_int_equal(by_solo_feed(&s, tokens, 140, &err), BY_OK);
        assert_int_equal(by_solo_feed(&s, tokens, 150, &err), BY_OK);
        uint64_t calls = by_alloc_calls();
        for (int64_t t = 151; t <= last; t++) assert_int_equal(by_solo_feed(&s, tokens, t, &err), BY_OK);
        assert_int_equal(by_alloc_calls(), calls);
        by_solo_close(&s);
    }
}

static by_status count_tokens(void *arg, int32_t token, float logprob, by_err *e) {
    (void)token, (void)logprob, (void)e;
    return ++*(int *)arg == 5 ? BY_END : BY_OK;
}

static void the_caller_can_stop_and_the_prompt_is_checked(void **state) {
    (void)state;
    const by_test_backend b = {BY_BACKEND_CPU, NULL, "cpu"};
    by_solo s = open_tiny(&b, 64);
    int32_t tokens[64] = {0, 4899, 569};
    by_solo_gen_opts o = {.sampling = by_sample_params_default(), .max_tokens = 20, .ignore_eos = true};
    o.sampling.law.temperature = 0;
    by_solo_gen_result r;
    int seen = 0;
    assert_int_equal(by_solo_generate(&s, tokens, 3, &o, count_tokens, &seen, &r, &err), BY_OK);
    assert_int_equal(r.finish, BY_SOLO_CALLER);
    assert_int_equal(r.n_output, 5);
    assert_int_equal(by_solo_generate(&s, tokens, 0, &o, count_tokens, &seen, &r, &err), BY_EINVAL);
    tokens[1] = 5376;
    assert_int_equal(by_solo_generate(&s, tokens, 3, &o, count_tokens, &seen, &r, &err), BY_EINVAL);
    assert_non_null(strstr(err.msg, "token 1: id 5376"));
    tokens[1] = 4899;
    o.max_tokens = 100;
    by_solo_reset(&s);
    seen = 100;
    int32_t many[200] = {0};
    assert_int_equal(by_solo_generate(&s, many, 60, &o, count_tokens, &seen, &r, &err), BY_ECONTEXT);
    by_solo_close(&s);
}

static by_status any_token(void *arg, int32_t token, float logprob, by_err *e) {
    (void)arg, (void)token, (void)logprob, (void)e;
    return BY_OK;
}

/* A generation ends at a stop token among its drafts, and the next one goes on behind it in the same caches with other words: it must
 * not find the rows of the drafts that came behind the stop token. */
static void a_second_turn_finds_nothing_behind_a_stop_token(void **state) {
    (void)state;
    enum { N = 60, MORE = 4 };
    by_solo_opts so = {.device = {.backend = BY_BACKEND_CPU, .n_threads = 1}, .model = {.numerics = BY_NUMERICS_DEPLOYED}, .draft = true};
    by_solo s, fresh;
    assert_int_equal(by_solo_open(&s, by_source_path("models/tiny"), &so, &err), BY_OK);
    assert_int_equal(by_solo_open(&fresh, by_source_path("models/tiny"), &so, &err), BY_OK);
    assert_int_equal(by_solo_reserve(&s, 256, 32, &err) + by_solo_reserve(&fresh, 256, 32, &err), 0);
    int32_t plain[3 + N] = {0, 4899, 569}, turn[256], again[256];
    by_solo_gen_opts o = {.sampling = by_sample_params_default(), .max_tokens = N, .ignore_eos = true, .draft = true};
    o.sampling.law.temperature = 0;
    by_solo_gen_result r, r2;
    assert_int_equal(by_solo_generate(&s, plain, 3, &o, any_token, NULL, &r, &err), BY_OK);
    assert_true(r.n_accepted > 8);
    int n_behind = 0, enough = by_test_scaled(100) >= 100 ? N : 2;
    for (int cut = 0; cut < N && n_behind < enough; cut++) {
        bool first = true; /* of its kind: else the generation would end earlier */
        for (int i = 0; i < cut; i++) first &= plain[3 + i] != plain[3 + cut];
        if (!first) continue;
        by_solo_reset(&s);
        memcpy(turn, plain, 3 * sizeof *turn);
        o.sampling.stop_ids = &plain[3 + cut];
        o.sampling.n_stop_ids = 1;
        assert_int_equal(by_solo_generate(&s, turn, 3, &o, any_token, NULL, &r, &err), BY_OK);
        assert_int_equal(r.n_output, cut + 1);
        n_behind += r.n_output < 1 + r.n_steps + r.n_accepted;
        int32_t n = 3 + r.n_output + MORE;
        for (int i = 0; i < MORE; i++) turn[n - MORE + i] = 100 + 7 * i + cut;
        memcpy(again, turn, sizeof again);
        o.sampling.n_stop_ids = 0;
        o.max_tokens = 8;
        assert_int_equal(by_solo_generate(&s, turn, n, &o, any_token, NULL, &r, &err), BY_OK);
        by_solo_reset(&fresh);
        assert_int_equal(by_solo_generate(&fresh, again, n, &o, any_token, NULL, &r2, &err), BY_OK);
        assert_memory_equal(turn, again, (size_t)(n + 8) * sizeof *turn);
        o.max_tokens = N;
    }
    assert_true(n_behind > 0);
    by_solo_close(&s);
    by_solo_close(&fresh);
}

static void opening_fails_cleanly_at_every_allocation(void **state) {
    (void)state;
    by_solo_opts o = {.device = {.backend = BY_BACKEND_REF}, .model = {.numerics = BY_NUMERICS_DEPLOYED}};
    for (int64_t n = 1;; n += n < 40 ? 1 : 37) {
        int64_t before = by_alloc_bytes_total();
        by_solo s;
        by_alloc_fail_nth(n);
        by_status status = by_solo_open(&s, by_golden_path("model/tiny_a/checkpoint"), &o, &err);
        if (status == BY_OK) status = by_solo_reserve(&s, 100, 16, &err);
        bool failed = status < 0;
        by_alloc_fail_nth(0);
        by_solo_close(&s);
        assert_int_equal(by_alloc_bytes_total(), before);
        if (!failed) break;
        assert_int_equal(status, BY_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decode_step_allocates_nothing),
        cmocka_unit_test(the_caller_can_stop_and_the_prompt_is_checked),
        cmocka_unit_test(a_second_turn_finds_nothing_behind_a_stop_token),
        cmocka_unit_test(opening_fails_cleanly_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
