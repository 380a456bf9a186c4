/* prop_soak.c - many requests on the bundled model over caches a tenth of what the prompts would fill, with host memory as
 * small: nothing leaks, counters add up, gauges stay in their ranges, and equal requests give equal answers to the end.
 * The whole soak is 20,000 requests: BY_TEST_SCALE=20000. BY_TEST_TIMEOUT=600 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "support/golden.h"
#include "support/seed.h"

enum { FAMILIES = 40, MEMBERS = 6, PROMPTS = FAMILIES * MEMBERS };
enum { LONGEST = 258, SHARED = 130, AT_ONCE = 32, BLOCKS = 16, FEW = 8, OUT_MAX = 110 };

typedef struct {
    int32_t tokens[LONGEST], n;
    int32_t want[OUT_MAX], n_want; /* the longest answer seen */
    uint64_t seed;
} prompt;

typedef struct {
    by_request *handle;
    prompt *p;
    int32_t seen[2];
    bool cancelled;
    bool odd; /* has other choices or ends early: only what comes must be right */
} running;

static prompt prompts[PROMPTS];
static by_rng rng;
static by_err err;
static int64_t n_cancelled, n_answered;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

/* Half of them are short; the others end around a multiple of a block, so that answers need another one. Two of each family
 * share their first block and a bit. */
static void make_prompts(int32_t V) {
    for (int i = 0; i < PROMPTS; i++) {
        prompt *p = &prompts[i], *first = i % MEMBERS == 1 ? p - 1 : p;
        static const int32_t longest[MEMBERS] = {LONGEST, LONGEST, 128, 60, 60, 60},
                             spread[MEMBERS] = {12, 12, 9, 40, 40, 40};
        p->n = longest[i % MEMBERS] - (int32_t)by_rng_below(&rng, (uint64_t)spread[i % MEMBERS]);
        p->seed = by_rng_u64(&rng);
        for (int k = 0; k < p->n; k++) p->tokens[k] = (int32_t)by_rng_below(&rng, (uint64_t)V);
        if (p != first) memcpy(p->tokens, first->tokens, SHARED * sizeof *p->tokens);
    }
}

/* Blocks that all prompts with their answers fill, shared ones once. */
static int64_t working_set(void) {
    int64_t n = 0;
    for (int i = 0; i < PROMPTS; i++) n += by_kv_blocks_for(prompts[i].n + FEW) - (i % MEMBERS == 1);
    return n;
}

static void start(by_engine *e, running *r) {
    *r = (running){.p = &prompts[by_rng_below(&rng, 4) ? by_rng_below(&rng, PROMPTS) : by_rng_below(&rng, PROMPTS / 10)]};
    by_request_opts o = by_request_opts_default();
    o.tokens = r->p->tokens;
    o.n_tokens = r->p->n;
    o.max_tokens = 1 + (int32_t)by_rng_below(&rng, by_rng_below(&rng, 8) ? FEW : OUT_MAX);
    o.sampling.eos_id = -1;
    o.sampling.seed = r->p->seed;
    o.sampling.law.temperature = r->p->seed & 1 ? 1.0f : 0;
    o.ignore_eos = true;
    o.priority = by_rng_below(&rng, 10) == 0;
    if (by_rng_below(&rng, 20) == 0) {
        o.n = o.best_of = 2;
        r->odd = true;
    }
    if (by_rng_below(&rng, 50) == 0) {
        o.deadline_ms = 1;
        r->odd = true;
    }
    check(by_engine_submit(e, &o, &r->handle, &err));
    if (by_rng_below(&rng, 25) == 0) {
        by_request_abort(r->handle, -1, false);
        r->odd = true;
    }
}

/* Choice 0 of equal requests is equal, however far each goes. */
static void compare(running *r, const by_event *ev) {
    prompt *p = r->p;
    int32_t at = r->seen[ev->choice]++;
    if (ev->choice > 0) return;
    assert_true(at < OUT_MAX);
    if (at == p->n_want) p->want[p->n_want++] = ev->token;
    else if (p->want[at] != ev->token)
        fail_msg("prompt %d: token %d is %d, was %d", (int)(p - prompts), at, ev->token, p->want[at]);
}

/* Reads what has come; true at the end. early: lets go before that. */
static bool pump(running *r, bool early) {
    by_event ev;
    by_status status = BY_OK;
    while (!early && (status = by_request_next(r->handle, &ev, 0)) == BY_OK) {
        assert_int_not_equal(ev.finish, BY_CHOICE_ERROR);
        r->cancelled |= ev.finish == BY_CHOICE_CANCELLED;
        if (ev.token >= 0) compare(r, &ev);
    }
    if (status == BY_AGAIN) return false;
    if (r->cancelled) assert_true(r->odd);
    n_cancelled += r->cancelled || early;
    n_answered += !r->cancelled && !early;
    by_request_release(r->handle);
    *r = (running){0};
    return true;
}

static void check_gauges(const by_engine_stats *s, const by_engine_stats *last, int64_t host_max) {
    assert_in_range(s->blocks_used, 0, s->blocks_total);
    assert_in_range(s->blocks_keyed, 0, s->blocks_total);
    assert_in_range(s->slots_used, 0, s->slots_total);
    assert_true(s->host_bytes >= 0 && s->host_bytes <= host_max);
    assert_true(s->sched.n_waiting >= 0 && s->sched.n_running >= 0 && s->sched.n_swapped >= 0);
    assert_true(s->n_steps >= last->n_steps && s->n_rows >= last->n_rows && s->n_finished >= last->n_finished &&
                s->n_cancelled >= last->n_cancelled && s->n_hit_tokens >= last->n_hit_tokens &&
                s->n_output_tokens >= last->n_output_tokens && s->sched.n_admitted >= last->sched.n_admitted &&
                s->sched.n_preempted >= last->sched.n_preempted && s->sched.n_resumed >= last->sched.n_resumed);
    assert_int_equal(s->n_failed, 0);
}

static by_engine_opts options(void) {
    by_engine_opts o = by_engine_opts_default();
    o.model_dir = by_source_path("models/tiny");
    o.device.n_threads = 1;
    o.max_context = 512;
    o.sched.max_seqs = 20;
    o.sched.max_rows = 1024;
    o.kv_blocks = BLOCKS;
    o.state_slots = 18;
    o.ram_bytes = 12 << 20; /* a quarter of what is left of it: some 30 snapshots and swapped sequences */
    o.expect_quantile = 0.01; /* hardly any reserve: sequences have to be swapped */
    return o;
}

static by_engine_stats at_rest(by_engine *e) {
    by_engine_stats s = by_engine_stats_get(e);
    for (int i = 0; i < 12000 && (s.blocks_used || s.slots_used || s.sched.n_running || s.sched.n_waiting); i++) {
        nanosleep(&(struct timespec){0, 5000000}, NULL); /* the last figures come a moment after the last event */
        s = by_engine_stats_get(e);
    }
    return s;
}

static void soak(void **state) {
    (void)state;
    static running live[AT_ONCE];
    by_engine_opts o = options();
    by_engine *e;
    int64_t before = by_alloc_bytes_total(), t0 = by_clock_ns();
    check(by_engine_open(&e, &o, &err));
    make_prompts(by_engine_model(e)->cfg.vocab_size);
    assert_true(working_set() >= 10 * BLOCKS);
    by_engine_stats first = by_engine_stats_get(e), last = first;
    int n = by_test_scaled(100), n_started = 0, n_live = 0;
    int64_t moved_ns = t0;
    while (n_started < n || n_live > 0) {
        bool moved = false;
        for (int i = 0; i < AT_ONCE; i++) {
            running *r = &live[i];
            if (r->handle && pump(r, by_rng_below(&rng, 20000) == 0)) {
                n_live--;
                moved = true;
            }
            if (r->handle || n_started == n) continue;
            start(e, r);
            n_started++;
            n_live++;
        }
        by_engine_stats now = by_engine_stats_get(e);
        check_gauges(&now, &last, o.ram_bytes);
        last = now;
        if (moved) moved_ns = by_clock_ns();
        else nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (by_clock_ns() - moved_ns > INT64_C(120000000000)) fail_msg("nothing has ended for two minutes");
    }
    assert_true(by_engine_wait_idle(e, 60000));
    by_engine_stats s = at_rest(e);
    check_gauges(&s, &last, o.ram_bytes);
    assert_int_equal(s.blocks_used, first.blocks_used);
    assert_int_equal(s.slots_used, first.slots_used);
    assert_int_equal(s.sched.n_waiting + s.sched.n_running + s.sched.n_swapped, 0);
    assert_int_equal(n_answered + n_cancelled, n);
    assert_true((int64_t)s.n_finished >= n_answered);
    assert_true(by_tally_count(&s.step_us) == s.n_steps && by_tally_count(&s.step_rows) == s.n_steps);
    assert_true(s.step_rows.sum == s.n_rows && s.prefill_rows.sum == s.n_prompt_rows && by_tally_count(&s.prefill_rows) <= s.n_steps);
    assert_true(s.n_snapshots_replaced + s.n_snapshots_dropped <= s.n_snapshots && s.sched.n_preempted_paused <= s.sched.n_preempted);
    assert_true(s.sched.n_resumed <= s.sched.n_preempted); /* one that is swapped out may be cancelled there */
    print_message("%d requests, %lld blocks of prompts over %d: %lld answered, %lld cancelled, %d steps, %d rows, %d hit tokens, "
                  "%d replayed, %d snapshots, %d used, %d preempted, %d resumed, %d stuck, %.0f s\n",
                  n, (long long)working_set(), BLOCKS, (long long)n_answered, (long long)n_cancelled, (int)s.n_steps, (int)s.n_rows,
                  (int)s.n_hit_tokens, (int)s.n_replayed_rows, (int)s.n_snapshots, (int)s.n_snapshot_hits, (int)s.sched.n_preempted,
                  (int)s.sched.n_resumed, (int)s.sched.n_stuck, (double)(by_clock_ns() - t0) * 1e-9);
    if (n >= 1000) assert_true(s.n_hit_tokens > 0 && s.n_snapshot_hits > 0 && s.sched.n_preempted > 0 && s.sched.n_resumed > 0);
    if (n >= 1000) assert_true(s.n_blocks_forgotten > 0 && s.n_snapshots_replaced + s.n_snapshots_dropped > 0);
    by_engine_close(e);
    assert_int_equal(by_alloc_bytes_total(), before);
}

int main(void) {
    rng = by_test_rng(20261202);
    const struct CMUnitTest tests[] = {cmocka_unit_test(soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
