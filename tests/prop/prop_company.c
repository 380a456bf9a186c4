/* prop_company.c - a request gives the same tokens and the same bits alone and among 1, 7, 31 and 255 strangers: while prompts are
 * cut into chunks, sequences are swapped, choices fork, and steps are asynchronous or not. And the two ways to leave out decoder
 * rows give the same bits at the same keep. BY_TEST_TIMEOUT=600 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/engine_runs.h"
#include "support/golden.h"
#include "support/seed.h"

enum { MINE = 4, STRANGERS = 255, LONGEST = 300 };

typedef struct {
    int32_t tokens[LONGEST];
    by_request_opts opts;
    by_run_result alone;
} mine;

static by_rng rng;
static by_err err;
static mine me[MINE];

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

static by_engine_opts roomy(void) { return by_run_engine_opts(2, 500, 100, 24, 400); }

static void alone(by_engine *e, const by_request_opts *o, by_run_result *out) {
    by_request *r;
    check(by_engine_submit(e, o, &r, &err));
    by_run_read(out, r);
    assert_false(out->stuck);
}

/* Greedy, sampled, with penalties, with choices; prompts short and long. */
static void make_mine(void) {
    static const int32_t lengths[MINE] = {7, 290, 60, 130};
    by_engine_opts o = roomy();
    by_engine *e;
    check(by_engine_open(&e, &o, &err));
    for (int i = 0; i < MINE; i++) {
        by_run_random_tokens(&rng, me[i].tokens, lengths[i], e);
        me[i].opts = by_run_request(me[i].tokens, lengths[i], 24, (uint64_t)i);
        if (i == 2) me[i].opts.sampling.frequency_penalty = 0.8f;
        if (i == 3) me[i].opts.n = me[i].opts.best_of = 3;
        alone(e, &me[i].opts, &me[i].alone);
    }
    by_engine_close(e);
}

/* Small pools and steps, so that strangers get in the way as much as they can. */
static by_engine_opts narrow(int round) {
    by_engine_opts o = roomy();
    o.device.n_threads = 1 + round % 2;
    o.async = round % 2;
    o.sched.max_seqs = 6 + (int32_t)by_rng_below(&rng, 16);
    o.sched.max_rows = o.sched.max_seqs + 5 + (int32_t)by_rng_below(&rng, 60);
    o.kv_blocks = 8 + (int32_t)by_rng_below(&rng, 8);
    o.state_slots = o.sched.max_seqs;
    o.expect_quantile = 0.01;
    o.trunc = round % 3 ? BY_TRUNC_COMPACT : BY_TRUNC_OFF;
    return o;
}

static by_request *stranger(by_engine *e) {
    int32_t tokens[200], n = 1 + (int32_t)by_rng_below(&rng, by_rng_below(&rng, 5) ? 12 : 160);
    by_request *r;
    by_run_random_tokens(&rng, tokens, n, e);
    by_request_opts o = by_run_request(tokens, n, 1 + (int32_t)by_rng_below(&rng, by_rng_below(&rng, 5) ? 6 : 60), by_rng_u64(&rng));
    o.n_top = 0;
    o.priority = by_rng_below(&rng, 9) == 0;
    if (by_rng_below(&rng, 9) == 0) o.n = o.best_of = 2;
    check(by_engine_submit(e, &o, &r, &err));
    return r;
}

static void strangers_change_no_bit(void **state) {
    (void)state;
    static const int counts[] = {1, 7, 31, STRANGERS};
    static by_run_result got;
    by_request *others[STRANGERS], *mine_[MINE];
    uint64_t n_swapped = 0;
    make_mine();
    int rounds = by_test_scaled(8);
    /* Whether a sequence is swapped is a matter of time: a whole run goes on until it has seen one. */
    for (int round = 0; round < rounds || (rounds >= 8 && n_swapped == 0 && round < 10 * rounds); round++) {
        int n = counts[(round + 3) % 4], next = 0;
        by_engine_opts o = narrow(round);
        by_engine *e;
        check(by_engine_open(&e, &o, &err));
        for (int i = 0; i < n || next < MINE; i++) {
            if (next < MINE && (i >= n || by_rng_below(&rng, (uint64_t)n) < 2 * MINE)) {
                check(by_engine_submit(e, &me[next].opts, &mine_[next], &err));
                next++;
            }
            if (i < n) others[i] = stranger(e);
        }
        for (int i = 0; i < MINE; i++) {
            by_run_read(&got, mine_[i]);
            if (!by_run_same("among strangers", &got, &me[i].alone)) fail_msg("round %d, %d strangers, request %d", round, n, i);
        }
        for (int i = 0; i < n; i++) {
            if (by_rng_below(&rng, 2)) by_run_read(&got, others[i]);
            else by_request_release(others[i]); /* in the middle, where it still runs */
        }
        assert_true(by_engine_wait_idle(e, 60000));
        by_engine_stats s = by_run_stats_at_rest(e);
        assert_int_equal(s.blocks_used + s.slots_used, 0);
        assert_int_equal(s.n_failed, 0);
        n_swapped += s.sched.n_preempted;
        by_engine_close(e);
    }
    print_message("%d sequences were swapped\n", (int)n_swapped);
    assert_true(rounds < 8 || n_swapped > 0);
}

/* The approximation is one and the same whether rows are hidden or left out, wherever chunks end. */
static void masked_and_compact_rows_give_the_same_bits(void **state) {
    (void)state;
    static by_run_result want[2], got;
    int32_t tokens[LONGEST];
    for (int keep = 22; keep <= 82; keep += 60) { /* the ring is the least that counts */
        uint64_t seed = by_rng_u64(&rng);
        for (int round = 0; round < 4; round++) {
            by_engine_opts o = roomy();
            o.trunc = round % 2 ? BY_TRUNC_MASK : BY_TRUNC_COMPACT;
            o.keep = keep;
            o.restore = BY_RESTORE_REPLAY;
            o.sched.max_rows = round < 2 ? 400 : 41;
            by_engine *e;
            check(by_engine_open(&e, &o, &err));
            by_rng one = {seed};
            for (int i = 0; i < LONGEST; i++) tokens[i] = (int32_t)by_rng_below(&one, (uint64_t)by_engine_model(e)->cfg.vocab_size);
            for (int i = 0; i < 2; i++) { /* cold, then with a replay */
                by_request_opts q = by_run_request(tokens, LONGEST, 20, 3);
                alone(e, &q, &got);
                assert_int_equal(got.info.n_cached, i ? 256 : 0);
                if (round == 0) want[i] = got;
                else if (!by_run_same("masked or left out", &got, &want[i])) fail_msg("keep %d, round %d", keep, round);
            }
            by_engine_close(e);
        }
    }
}

int main(void) {
    rng = by_test_rng(20261204);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_change_no_bit),
        cmocka_unit_test(masked_and_compact_rows_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
