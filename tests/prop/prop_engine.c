/* prop_engine.c - the request engine against its simplest twin, one sequence at a time. BY_TEST_TIMEOUT=900
 *
 * Random requests (lengths, sampling, penalties, several choices, repeated prefixes) go through engines with random budgets,
 * pools so small that sequences are swapped, asynchronous steps on and off, and every exact way of prefix reuse. Every token
 * and every bit of every log-probability must equal the twin's. At the end the pools are as at the start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/solo_gen.h"
#include "json/json.h"
#include "support/golden.h"
#include "support/seed.h"

enum { REQUESTS = 24, CONTEXT = 700 };

typedef struct {
    int32_t tokens[CONTEXT], n_prompt, max_tokens, n;
    by_sample_params sampling;
    int32_t want[4][CONTEXT], n_want[4];
    float want_logprob[4][CONTEXT];
    by_choice_finish want_finish[4];
} request;

static by_rng rng;
static by_err err;
static request requests[REQUESTS];
static const char *folder;
static by_engine *engine;
static uint64_t n_swapped, n_snapshot_hits, n_replayed, n_accepted; /* over all rounds: none of them may stay zero */

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

/* ---- the twin ---- */

typedef struct {
    request *r;
    int choice;
} twin_arg;

static by_status twin_token(void *arg, int32_t token, float logprob, by_err *e) {
    (void)e;
    twin_arg *t = arg;
    int32_t at = t->r->n_want[t->choice]++;
    t->r->want[t->choice][at] = token;
    t->r->want_logprob[t->choice][at] = logprob;
    return BY_OK;
}

static void run_twin(by_solo *s, request *r) {
    static int32_t tokens[CONTEXT];
    for (int c = 0; c < r->n; c++) {
        memcpy(tokens, r->tokens, (size_t)r->n_prompt * 4);
        by_solo_gen_opts o = {.sampling = r->sampling, .max_tokens = r->max_tokens};
        o.sampling.seed += (uint64_t)c;
        by_solo_gen_result res;
        twin_arg arg = {r, c};
        by_solo_reset(s);
        check(by_solo_generate(s, tokens, r->n_prompt, &o, twin_token, &arg, &res, &err));
        r->want_finish[c] = res.finish == BY_SOLO_STOP ? BY_CHOICE_STOP : BY_CHOICE_LENGTH;
    }
}

/* Prompts that the trained model knows how to answer: its drafts are mostly right, so sequences advance by whole blocks. */
static void use_real_prompts(void) {
    by_lines *lines = by_lines_open(by_golden_path("tiny/greedy.jsonl"));
    by_str line;
    for (int i = 0; i < REQUESTS && by_lines_next(lines, &line);) {
        by_arena arena;
        by_arena_init(&arena, BY_MEM_JSON);
        by_json row;
        if (by_json_parse(&row, &arena, line, NULL, &err) < 0) fail_msg("golden: %s", err.msg);
        const by_json *ids = by_json_get(&row, "tokens");
        if (ids->n < CONTEXT - 200) {
            request *r = &requests[i++];
            r->n_prompt = (int32_t)ids->n;
            for (uint32_t k = 0; k < ids->n; k++) r->tokens[k] = (int32_t)ids->v.items[k].v.i;
        }
        by_arena_deinit(&arena);
    }
    by_lines_close(lines);
}

static void make_requests(bool trained) {
    by_solo s;
    by_solo_opts o = {.device = {.backend = BY_BACKEND_CPU, .n_threads = 1}, .model = {.numerics = BY_NUMERICS_DEPLOYED}};
    check(by_solo_open(&s, folder, &o, &err));
    check(by_solo_reserve(&s, CONTEXT, 64, &err));
    memset(requests, 0, sizeof requests);
    if (trained) use_real_prompts();
    for (int i = 0; i < REQUESTS; i++) {
        request *r = &requests[i];
        request *old = i > 3 && by_rng_below(&rng, 2) ? &requests[by_rng_below(&rng, (uint64_t)i)] : NULL;
        int32_t n = 1 + (int32_t)by_rng_below(&rng, by_rng_below(&rng, 3) ? 60 : 420);
        for (int k = 0; !trained && k < n; k++) r->tokens[k] = (int32_t)by_rng_below(&rng, (uint64_t)s.model->cfg.vocab_size);
        if (!trained) r->n_prompt = n;
        if (old && !trained) { /* the same beginning as an earlier one, or all of it */
            int32_t keep = by_rng_below(&rng, 2) ? old->n_prompt : (int32_t)by_rng_below(&rng, (uint64_t)old->n_prompt + 1);
            memcpy(r->tokens, old->tokens, (size_t)keep * 4);
            if (r->n_prompt < keep) r->n_prompt = keep;
        }
        r->max_tokens = 1 + (int32_t)by_rng_below(&rng, by_rng_below(&rng, 4) ? 40 : 160);
        r->n = 1 + (by_rng_below(&rng, 4) == 0) * (int32_t)by_rng_below(&rng, 4);
        r->sampling = by_sample_params_default();
        r->sampling.eos_id = s.model->cfg.eos_id;
        r->sampling.seed = by_rng_u64(&rng);
        r->sampling.law.temperature = by_rng_below(&rng, 3) ? 0.9f : 0;
        if (by_rng_below(&rng, 3) == 0) r->sampling.law.top_k = 20;
        if (by_rng_below(&rng, 4) == 0) r->sampling.frequency_penalty = 0.7f;
        if (by_rng_below(&rng, 4) == 0) r->sampling.repetition_penalty = 1.3f;
        if (by_rng_below(&rng, 4) == 0) r->sampling.min_tokens = (int32_t)by_rng_below(&rng, 30);
        static const by_sample_bias bias[] = {{5, 3}, {17, -100}, {23, 2}};
        if (by_rng_below(&rng, 4) == 0) r->sampling.bias = bias, r->sampling.n_bias = 3;
        run_twin(&s, r);
    }
    by_solo_close(&s);
}

/* ---- the engine ---- */

static by_engine_opts random_opts(int round) {
    by_engine_opts o = by_engine_opts_default();
    static const by_restore restores[] = {BY_RESTORE_AUTO, BY_RESTORE_FULL, BY_RESTORE_EXACT_REPLAY};
    o.model_dir = folder;
    o.device.n_threads = 1 + round % 2;
    o.max_context = CONTEXT;
    o.sched.max_seqs = 4 + (int32_t)by_rng_below(&rng, 12);
    o.sched.max_rows = o.sched.max_seqs + 10 + (int32_t)by_rng_below(&rng, 150);
    o.kv_blocks = 6 + (int32_t)by_rng_below(&rng, 12); /* one sequence needs up to 6 */
    o.state_slots = 4 + (int32_t)by_rng_below(&rng, 6);
    o.ram_bytes = 1 << 30;
    o.expect_quantile = by_rng_below(&rng, 2) ? 0.9 : 0.01; /* hardly any reserve: sequences have to be swapped */
    o.async = round % 3 != 0;
    o.prefix_cache = round % 5 != 4;
    o.restore = restores[round / 2 % 3];
    o.trunc = by_rng_below(&rng, 3) ? BY_TRUNC_COMPACT : BY_TRUNC_OFF;
    /* Drafts of any length, by any plan, change no token and no bit. Given costs: flat ones make the planner verify much, steep ones
     * little. */
    static const by_draft_cost_point flat[] = {{8, 1}, {64, 1.1}, {400, 1.5}}, steep[] = {{1, 1}, {2, 1.6}, {4, 2}, {16, 7}, {400, 150}};
    o.draft_mode = (by_draft_mode)(round % 4);
    o.n_drafts = (int32_t)by_rng_below(&rng, 9);
    bool is_flat = by_rng_below(&rng, 2);
    o.cost = is_flat ? flat : steep;
    o.n_cost = is_flat ? 3 : 5;
    return o;
}

/* Reads a request to its end and compares with the twin; one that was cancelled may stop after any correct beginning. */
static void read_and_compare(by_request *h, const request *r, int round) {
    int32_t seen[4] = {0};
    bool cancelled = false;
    by_event ev;
    by_status status;
    const int64_t limit_ms = by_test_scaled(100) >= 100 ? 30000 : 300000; /* under a sanitizer all is slower */
    while ((status = by_request_next(h, &ev, limit_ms)) == BY_OK) {
        cancelled |= ev.finish == BY_CHOICE_CANCELLED;
        if (ev.finish == BY_CHOICE_ERROR) {
            by_request_error(h, &err);
            fail_msg("round %d: %s", round, err.msg);
        }
        if (ev.token < 0) continue;
        int32_t c = ev.choice, at = seen[c]++;
        if (at < r->n_want[c] && ev.token == r->want[c][at] && memcmp(&ev.logprob, &r->want_logprob[c][at], 4) == 0) continue;
        by_request_info info = by_request_info_get(h);
        fail_msg("round %d choice %d token %d of %d: got %d (%.9g), want %d (%.9g); prompt %d, cached %d, replayed %d", round, c, at,
                 r->n_want[c], ev.token, (double)ev.logprob, r->want[c][at], (double)r->want_logprob[c][at], r->n_prompt,
                 info.n_cached, info.n_replayed);
    }
    if (status != BY_END) {
        by_engine_stats st = by_engine_stats_get(engine);
        by_request_info info = by_request_info_get(h);
        fail_msg("round %d: no event in time; %d waiting, %d running, %d swapped, %d stuck, blocks %d of %d, slots %d of %d, %d steps; "
                 "prompt %d, %d choices, started %d, cancelled %d, %d + %d + %d + %d events",
                 round, st.sched.n_waiting, st.sched.n_running, st.sched.n_swapped, (int)st.sched.n_stuck, st.blocks_used,
                 st.blocks_total, st.slots_used, st.slots_total, (int)st.n_steps, r->n_prompt, r->n, info.start_us > 0, cancelled,
                 seen[0], seen[1], seen[2], seen[3]);
    }
    for (int c = 0; !cancelled && c < r->n; c++) assert_int_equal(seen[c], r->n_want[c]);
}

/* The last figures come a moment after the last event. */
static by_engine_stats stats_at_rest(by_engine *e) {
    by_engine_stats st = {0};
    for (int k = 0; k < 12000; k++) {
        st = by_engine_stats_get(e);
        if (st.blocks_used == 0 && st.slots_used == 0) break;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return st;
}

static void one_round(int round) {
    by_engine_opts o = random_opts(round);
    by_engine *e;
    check(by_engine_open(&e, &o, &err));
    engine = e;
    by_request *handles[REQUESTS * 2] = {0};
    const request *which[REQUESTS * 2];
    for (int i = 0; i < REQUESTS * 2; i++) {
        const request *r = which[i] = &requests[by_rng_below(&rng, REQUESTS)];
        by_request_opts q = by_request_opts_default();
        q.tokens = r->tokens;
        q.n_tokens = r->n_prompt;
        q.max_tokens = r->max_tokens;
        q.sampling = r->sampling;
        q.n = q.best_of = r->n;
        q.priority = by_rng_below(&rng, 6) == 0;
        if (q.best_of > o.state_slots) continue;
        check(by_engine_submit(e, &q, &handles[i], &err));
        if (by_rng_below(&rng, 10) == 0) by_request_abort(handles[i], -1, false);
        if (by_rng_below(&rng, 20) == 0) {
            by_request_release(handles[i]);
            handles[i] = NULL;
        }
    }
    for (int i = 0; i < REQUESTS * 2; i++) {
        if (!handles[i]) continue;
        read_and_compare(handles[i], which[i], round);
        by_request_release(handles[i]);
    }
    assert_true(by_engine_wait_idle(e, 60000));
    by_engine_stats st = stats_at_rest(e);
    assert_int_equal(st.blocks_used, 0);
    assert_int_equal(st.slots_used, 0);
    assert_int_equal(st.n_failed, 0);
    print_message("round %d: %s, %d steps, %d rows, %d swapped out, %d hit tokens, %d replayed, %d snapshot hits, %d wasted rows\n",
                  round, o.async ? "async" : "sync", (int)st.n_steps, (int)st.n_rows, (int)st.sched.n_preempted, (int)st.n_hit_tokens,
                  (int)st.n_replayed_rows, (int)st.n_snapshot_hits, (int)st.n_wasted_rows);
    static const char *const modes[] = {"auto", "confidence", "fixed", "off"};
    print_message("  drafts %s of %d: %d proposed, %d verified, %d accepted in %d steps\n", modes[o.draft_mode], o.n_drafts,
                  (int)st.draft.n_proposed, (int)st.draft.n_verified, (int)st.draft.n_accepted, (int)st.draft.n_steps);
    assert_true(st.draft.n_accepted <= st.draft.n_verified && st.draft.n_verified <= st.draft.n_proposed);
    if (o.draft_mode == BY_DRAFT_OFF) assert_int_equal(st.draft.n_proposed, 0);
    if (o.draft_mode == BY_DRAFT_FIXED) assert_true(st.draft.n_verified > 0);
    n_accepted += st.draft.n_accepted;
    n_swapped += st.sched.n_preempted;
    n_snapshot_hits += st.n_snapshot_hits;
    n_replayed += st.n_replayed_rows;
    by_engine_close(e);
}

static void every_request_equals_its_twin(void **state) {
    (void)state;
    folder = by_golden_path("model/tiny_a/checkpoint");
    make_requests(false);
    int rounds = by_test_scaled(10);
    for (int i = 0; i < rounds; i++) one_round(i);
    if (rounds >= 10) assert_true(n_swapped > 0 && n_snapshot_hits > 0 && n_replayed > 0 && n_accepted > 0);
}

static void drafts_that_are_right_change_nothing(void **state) {
    (void)state;
    folder = by_source_path("models/tiny");
    make_requests(true);
    n_accepted = 0;
    for (int i = 0; i < by_test_scaled(4); i++) one_round(BY_DRAFT_FIXED + i); /* the first drafts whatever a step costs */
    assert_true(n_accepted > 100);
}

int main(void) {
    rng = by_test_rng(20261129);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_equals_its_twin),
        cmocka_unit_test(drafts_that_are_right_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
