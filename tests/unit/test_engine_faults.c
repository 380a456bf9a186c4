/* test_engine_faults.c - what fails in the engine costs the request that it concerns and no other: allocations, copies between device
 * and host, numbers that are none. BY_TEST_TIMEOUT=300 BY_TEST_WRAP=by_mem_read,by_mem_write,by_mem_copy */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/engine_runs.h"
#include "support/random_model.h"
#include "support/seed.h"
#include "support/temp.h"

enum { COMPANY = 5 };

static by_rng rng;
static by_err err;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

/* Few blocks, so that sequences are swapped too. */
static by_engine_opts options(void) {
    by_engine_opts o = by_run_engine_opts(1, 600, 7, 16, 128);
    o.state_slots = 8;
    o.expect_quantile = 0.01;
    return o;
}

/* ---- copies that fail: of whole slots and blocks, which only swaps, snapshots, restores and forks make ---- */

typedef enum { COPY_OUT, COPY_IN, COPY_WITHIN, COPY_KINDS } copy_kind;

static _Atomic size_t slot_bytes, block_bytes; /* of the engine under test; 0 = nothing is counted */
static _Atomic int64_t n_copies[COPY_KINDS], copy_to_fail; /* 0 = none */

static by_status copy_fails(copy_kind kind, size_t n, by_err *e) {
    if (n == 0 || (n != slot_bytes && n != block_bytes)) return BY_OK;
    n_copies[kind]++;
    if (copy_to_fail == 0 || --copy_to_fail > 0) return BY_OK;
    return BY_FAIL(e, BY_EDEVICE, "a copy of %zu bytes has failed", n);
}

by_status __real_by_mem_read(void *dst, const by_mem *mem, size_t off, size_t n, by_err *e);
by_status __wrap_by_mem_read(void *dst, const by_mem *mem, size_t off, size_t n, by_err *e);
by_status __wrap_by_mem_read(void *dst, const by_mem *mem, size_t off, size_t n, by_err *e) {
    BY_TRY(copy_fails(COPY_OUT, n, e));
    return __real_by_mem_read(dst, mem, off, n, e);
}

by_status __real_by_mem_write(by_mem *mem, size_t off, const void *src, size_t n, by_err *e);
by_status __wrap_by_mem_write(by_mem *mem, size_t off, const void *src, size_t n, by_err *e);
by_status __wrap_by_mem_write(by_mem *mem, size_t off, const void *src, size_t n, by_err *e) {
    BY_TRY(copy_fails(COPY_IN, n, e));
    return __real_by_mem_write(mem, off, src, n, e);
}

by_status __real_by_mem_copy(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *e);
by_status __wrap_by_mem_copy(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *e);
by_status __wrap_by_mem_copy(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *e) {
    BY_TRY(copy_fails(COPY_WITHIN, n, e));
    return __real_by_mem_copy(dst, dst_off, src, src_off, n, e);
}

static void count_copies_of(const by_engine *e) {
    by_kv_layout l;
    const by_draft_config *d = &by_engine_model(e)->cfg.draft;
    check(by_model_kv_layout(&l, by_engine_model(e), d->block_size > 5 ? d->block_size + 1 : 6, &err));
    slot_bytes = (size_t)l.slot_bytes;
    block_bytes = (size_t)l.block_bytes;
    for (int i = 0; i < COPY_KINDS; i++) n_copies[i] = 0;
}

/* ---- requests side by side ---- */

typedef struct {
    int32_t tokens[300];
    by_request_opts opts;
    by_run_result want;
} guest;

static guest guests[COMPANY];
static by_err reason; /* of the last failure */

static void make_guests(by_engine *e) {
    static const int32_t lengths[COMPANY] = {5, 250, 124, 3, 123}; /* three need another block while they decode */
    for (int i = 0; i < COMPANY; i++) {
        guest *g = &guests[i];
        by_run_random_tokens(&rng, g->tokens, lengths[i], e);
        g->opts = by_run_request(g->tokens, lengths[i], 9, (uint64_t)i);
        if (i == 1) g->opts.n = g->opts.best_of = 2;
        if (i == 2) {
            g->opts.n = 2;
            g->opts.best_of = 3;
        }
        if (i == 3) g->opts.sampling.frequency_penalty = 0.5f;
        if (i == 4) g->opts.prompt_logprobs = true;
    }
}

static bool has_failed(const by_run_result *r) {
    for (int c = 0; c < BY_RUN_CHOICES; c++)
        if (r->finish[c] == BY_CHOICE_ERROR) return true;
    return false;
}

/* All at once; returns how many failed. Those must say why, the others be right. */
static int run_company(by_engine *e, by_status failure, const char *what, int nth) {
    static by_run_result got;
    by_request *r[COMPANY];
    int n_failed = 0;
    for (int i = 0; i < COMPANY; i++) {
        by_status status = by_engine_submit(e, &guests[i].opts, &r[i], &err);
        if (status == BY_OK) continue;
        assert_int_equal(status, failure);
        n_failed++;
    }
    for (int i = 0; i < COMPANY; i++) {
        if (!r[i]) continue;
        by_run_read(&got, r[i]);
        assert_false(got.stuck);
        if (has_failed(&got)) {
            if (got.err.code != failure) fail_msg("%s %d: request %d: %s", what, nth, i, got.err.msg);
            n_failed++;
            reason = got.err;
        } else if (failure == BY_OK) {
            guests[i].want = got;
        } else if (!by_run_same(what, &got, &guests[i].want)) {
            fail_msg("%s %d: request %d", what, nth, i);
        }
    }
    assert_true(by_engine_wait_idle(e, 60000));
    return n_failed;
}

static int run_with_failed_allocation(by_engine *e, int nth) {
    by_alloc_fail_nth(nth);
    int n = run_company(e, BY_ENOMEM, "allocation", nth);
    by_alloc_fail_nth(0);
    return n;
}

static int run_with_failed_copy(by_engine *e, int nth) {
    copy_to_fail = nth;
    int n = run_company(e, BY_EDEVICE, "copy", nth);
    copy_to_fail = 0;
    return n;
}

static void nothing_is_held(by_engine *e) {
    by_engine_stats s = by_run_stats_at_rest(e);
    assert_int_equal(s.blocks_used + s.slots_used, 0);
}

/* The operators' scratch memory is there from the beginning: also the first steps of an engine fail nobody. */
static void a_failed_allocation_fails_one_request_at_most(void **state) {
    (void)state;
    by_engine_opts o = options();
    by_engine *e = by_run_open(&o);
    make_guests(e);
    assert_int_equal(run_company(e, BY_OK, "none", 0), 0);
    uint64_t n_swapped = 0;
    int n_failed = 0, step = by_test_scaled(100) >= 100 ? 1 : 15;
    for (int n = 1; n < 130; n += step) {
        bool fresh = n % 2 == 0;
        if (fresh) {
            by_engine_close(e);
            o.draft_mode = n % 4 ? BY_DRAFT_AUTO : BY_DRAFT_OFF; /* drafts measure steps when the engine is opened */
            e = by_run_open(&o);
        }
        int k = run_with_failed_allocation(e, n);
        if (k > 1) fail_msg("allocation %d%s: %d requests have failed: %s", n, fresh ? " of a new engine" : "", k, reason.msg);
        n_failed += k;
        n_swapped += by_engine_stats_get(e).sched.n_preempted;
        nothing_is_held(e);
    }
    assert_true(n_failed > 30 / step && n_swapped > 0);
    assert_int_equal(run_with_failed_allocation(e, 0), 0);
    by_engine_close(e);
}

static void a_failed_copy_fails_one_request_at_most(void **state) {
    (void)state;
    by_engine_opts o = options();
    for (int async = 0; async < 2; async++) {
        o.async = async;
        by_engine *e = by_run_open(&o);
        count_copies_of(e);
        make_guests(e);
        assert_int_equal(run_company(e, BY_OK, "none", 0), 0);
        int64_t n_all = 0;
        for (int i = 0; i < 3; i++) assert_int_equal(run_with_failed_copy(e, 0), 0);
        for (int i = 0; i < COPY_KINDS; i++) {
            print_message("%lld copies of kind %d\n", (long long)n_copies[i], i);
            assert_true(n_copies[i] > 0);
            n_all += n_copies[i];
        }
        int n_failed = 0, step = by_test_scaled(100) >= 100 ? 2 : 9, most = (int)n_all / 3;
        for (int n = 1; n <= most; n += step) {
            int k = run_with_failed_copy(e, n);
            if (k > 1) fail_msg("copy %d: %d requests have failed: %s", n, k, reason.msg);
            n_failed += k;
            nothing_is_held(e);
            if (n % 4 == 1) assert_int_equal(run_with_failed_copy(e, 0), 0); /* what it left in the caches is right */
        }
        assert_true(n_failed > 0);
        by_engine_close(e);
    }
}

/* ---- scratch memory of operators ---- */

static void steps_find_their_scratch_memory(void **state) {
    (void)state;
    const by_test_backend *all;
    int n = by_test_all_backends(&all);
    static int32_t longest[590];
    static by_run_result got;
    for (int i = 0; i < n; i++) {
        by_engine_opts o = options();
        o.device = (by_device_opts){.backend = all[i].backend, .isa = all[i].isa, .n_threads = 2};
        o.draft_mode = i % 2 ? BY_DRAFT_OFF : BY_DRAFT_FIXED;
        o.sched.max_rows = 64 + (int32_t)by_rng_below(&rng, 65); /* no even number, so that steps end anywhere */
        by_engine *e = by_run_open(&o);
        int64_t held = by_alloc_bytes(BY_MEM_TENSOR);
        make_guests(e);
        by_run_random_tokens(&rng, longest, 590, e);
        by_request_opts q = by_run_request(longest, 590, 4, 1);
        by_run_read(&got, by_run_submit(e, &q));
        assert_int_equal(got.n[0], 4);
        if (all[i].backend != BY_BACKEND_GUARD || by_test_scaled(100) >= 100) assert_int_equal(run_company(e, BY_OK, all[i].name, 0), 0);
        if (by_alloc_bytes(BY_MEM_TENSOR) != held)
            fail_msg("%s: %lld bytes more than after opening", all[i].name, (long long)(by_alloc_bytes(BY_MEM_TENSOR) - held));
        by_engine_close(e);
    }
}

/* ---- drafts that are no numbers ---- */

enum { DRAFTERS = 12, BAD_EXPERTS = 3 };

/* Some experts of the last draft layer are bad: who meets one loses drafts, the others lose none, and nobody's tokens change. */
static void bad_draft_logits_stop_the_drafts_of_one_sequence(void **state) {
    (void)state;
    static const char *const flags[] = {"--layers", "6", "--experts", "4", "--without-vision", "--without-engram", "--set",
                                        "dspark_n_routed_experts=32", NULL};
    static by_run_result alone[DRAFTERS], got;
    static int32_t tokens[DRAFTERS][8];
    const char *dir = by_temp_path("bad-drafts");
    by_request *r[DRAFTERS];
    by_request_opts q[DRAFTERS];
    int64_t n_verified = 0, n_healthy = 0;
    by_engine_opts o = options();
    o.model_dir = dir;
    o.draft_mode = BY_DRAFT_FIXED;
    o.kv_blocks = 60;
    o.state_slots = 16;
    o.model.check_weights = false;
    if (!by_random_model(dir, flags)) skip();
    for (int bad = 0; bad < 2; bad++) {
        for (int i = 0; bad && i < BAD_EXPERTS; i++) {
            char name[64];
            snprintf(name, sizeof name, "mtp.2.ffn.experts.%d.w1.scale", i);
            by_random_model_poison(dir, name, 0);
        }
        by_engine *e = by_run_open(&o);
        for (int i = 0; i < DRAFTERS; i++) {
            if (!bad) by_run_random_tokens(&rng, tokens[i], 8, e);
            q[i] = by_run_request(tokens[i], 8, 24, (uint64_t)i);
            by_run_read(&got, by_run_submit(e, &q[i]));
            if (bad) assert_true(by_run_same("with bad drafts", &got, &alone[i]));
            *(bad ? &n_verified : &n_healthy) += got.info.n_verified;
            alone[i] = got;
        }
        for (int i = 0; bad && i < DRAFTERS; i++) r[i] = by_run_submit(e, &q[i]);
        for (int i = 0; bad && i < DRAFTERS; i++) {
            by_run_read(&got, r[i]);
            assert_true(by_run_same("bad drafts in company", &got, &alone[i]));
            assert_int_equal(got.info.n_verified, alone[i].info.n_verified);
            assert_int_equal(got.info.n_accepted, alone[i].info.n_accepted);
        }
        by_engine_close(e);
    }
    print_message("%lld drafts verified, %lld with healthy weights\n", (long long)n_verified, (long long)n_healthy);
    assert_in_range(n_verified, n_healthy / 4, n_healthy - 1);
}

int main(void) {
    rng = by_test_rng(20261203);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_fails_one_request_at_most),
        cmocka_unit_test(a_failed_copy_fails_one_request_at_most),
        cmocka_unit_test(steps_find_their_scratch_memory),
        cmocka_unit_test(bad_draft_logits_stop_the_drafts_of_one_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
