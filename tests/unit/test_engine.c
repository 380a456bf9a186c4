/* test_engine.c - the engine where something is scarce: memory calls in steady state, the scheduler's time, readers that do not
 * read, host memory that holds no swapped sequence or more prompts than can run. What fails is in test_engine_faults.c. BY_TEST_TIMEOUT=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "model/flop_count.h"
#include "support/engine_runs.h"
#include "support/golden.h"
#include "support/seed.h"

enum { MANY = 1024 };

static by_rng rng;

static by_engine_opts options(void) { return by_run_engine_opts(1, 600, 60, 16, 128); }

static void nap(void) { nanosleep(&(struct timespec){0, 2000000}, NULL); }

/* Figures once so many tokens have come out. */
static by_engine_stats stats_after(by_engine *e, uint64_t n_tokens) {
    by_engine_stats s = by_engine_stats_get(e);
    for (int i = 0; i < 60000 && s.n_output_tokens < n_tokens; i++) {
        nap();
        s = by_engine_stats_get(e);
    }
    assert_true(s.n_output_tokens >= n_tokens);
    return s;
}

/* ---- steady state ---- */

/* Microseconds of the scheduler thread in a step that n sequences decode in; the least of some windows of steps, because the
 * machine is shared. Nothing may be allocated meanwhile. */
static double cost_of_a_step(uint64_t n) {
    static by_request *r[MANY];
    int32_t tokens[4];
    by_engine_opts o = options();
    o.sched.max_seqs = (int32_t)n;
    o.sched.max_rows = 4 * (int32_t)n;
    o.state_slots = (int32_t)n;
    o.max_context = 100;
    o.kv_blocks = (int32_t)n;
    o.sched.watermark = 1; /* one each, and no more */
    o.draft_mode = BY_DRAFT_OFF; /* all go at the same pace */
    by_engine *e = by_run_open(&o);
    for (uint64_t i = 0; i < n; i++) {
        by_run_random_tokens(&rng, tokens, 4, e);
        by_request_opts q = by_run_request(tokens, 4, 64, i);
        q.n_top = 0;
        r[i] = by_run_submit(e, &q);
    }
    by_engine_stats last = stats_after(e, 8 * n);
    uint64_t calls = by_alloc_calls();
    double best = 1e9;
    for (uint64_t k = 1; k <= 6; k++) {
        by_engine_stats s = stats_after(e, (8 + 8 * k) * n);
        assert_int_equal(s.sched.n_running, n);
        double us = (s.plan_s - last.plan_s) / (double)(s.n_steps - last.n_steps) * 1e6;
        if (us < best) best = us;
        last = s;
    }
    assert_int_equal(by_alloc_calls(), calls);
    for (uint64_t i = 0; i < n; i++) by_request_release(r[i]);
    by_engine_close(e);
    return best;
}

static void a_step_allocates_nothing_and_leaves_the_processor_alone(void **state) {
    (void)state;
    bool whole = by_test_scaled(100) >= 100;
    double few = cost_of_a_step(whole ? 256 : 64), many = whole ? cost_of_a_step(MANY) : few, each = (many - few) / (MANY - 256);
    if (whole) print_message("the scheduler takes %.1f us of a step of 256 sequences, %.3f us for each one more\n", few, each);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* The bounds are 100 us and 1 us on a machine of its own (`bathyc bench engine`); tests share theirs. */
    if (whole) assert_true(few < 400 && each < 4);
#endif
}

/* Settings of all kinds, by turns and together. */
static void mix_settings(by_request_opts *q, int i) {
    static const by_sample_bias bias[] = {{7, 2.5f}, {11, -3}};
    static const int32_t banned[] = {13, 17}, stops[] = {19};
    by_sample_params *p = &q->sampling;
    bool all = i % 8 == 7;
    q->n_top = all || i % 8 == 6 ? 5 : 0;
    if (all || i % 8 == 1) p->law.top_p = 0.9f;
    if (all || i % 8 == 2) p->law.top_k = 40;
    if (all || i % 8 == 3) p->law.min_p = 0.02f;
    if (all || i % 8 == 4) {
        p->frequency_penalty = 0.5f;
        p->presence_penalty = 0.25f;
        p->repetition_penalty = 1.25f;
    }
    if (!all && i % 8 != 5) return;
    p->bias = bias;
    p->n_bias = 2;
    p->banned = banned;
    p->n_banned = 2;
    p->stop_ids = stops;
    p->n_stop_ids = 1;
    p->min_tokens = 64; /* so that no stop id ends it */
}

static void steps_of_many_settings_with_drafts_allocate_nothing(void **state) {
    (void)state;
    static by_request *r[256];
    const int N = by_test_scaled(100) >= 100 ? 256 : 48;
    for (int rule = 0; rule < 2; rule++) {
        by_engine_opts o = by_run_engine_opts(2, 120, N, N, 6 * N);
        o.state_slots = N;
        o.sched.watermark = 1; /* one block each, and no more */
        o.draft_mode = BY_DRAFT_FIXED;
        o.verify = rule ? BY_SAMPLE_REJECTION : BY_SAMPLE_COUPLED;
        by_engine *e = by_run_open(&o);
        for (int i = 0; i < N; i++) {
            int32_t tokens[4];
            by_run_random_tokens(&rng, tokens, 4, e);
            by_request_opts q = by_run_request(tokens, 4, 64, (uint64_t)i);
            mix_settings(&q, i);
            r[i] = by_run_submit(e, &q);
        }
        stats_after(e, 6 * (uint64_t)N);
        uint64_t calls = by_alloc_calls();
        by_engine_stats s = stats_after(e, 16 * (uint64_t)N);
        assert_int_equal(s.sched.n_running, N);
        assert_true(s.draft.n_verified > 0);
        assert_int_equal(by_alloc_calls(), calls);
        for (int i = 0; i < N; i++) by_request_release(r[i]);
        by_engine_close(e);
    }
}

/* The same for choices that a grammar limits, but for what a matcher remembers of its text, which grows now and then. */
static void steps_of_limited_requests_allocate_next_to_nothing(void **state) {
    (void)state;
    by_request *r[12];
    const int N = by_test_scaled(100) >= 100 ? 12 : 5; /* each of the five settings */
    by_engine_opts o = by_run_engine_opts(2, 200, 64, N, 6 * N);
    o.model_dir = by_source_path("models/tiny");
    o.draft_mode = BY_DRAFT_FIXED;
    by_engine *e = by_run_open(&o);
    for (int i = 0; i < N; i++) {
        int32_t tokens[4];
        by_run_random_tokens(&rng, tokens, 4, e);
        by_request_opts q = by_run_request(tokens, 4, 150, (uint64_t)i);
        by_request_grammar g = {.spec = {.kind = BY_GRAMMAR_REGEX, .text = BY_STR("([a-z]{2,9}[0-9]?[ ,])*")}, .bound_id = -1};
        q.n_top = 0;
        q.grammar = &g;
        mix_settings(&q, i % 5); /* no bans */
        r[i] = by_run_submit(e, &q);
    }
    stats_after(e, 60 * (uint64_t)N);
    uint64_t calls = by_alloc_calls();
    by_engine_stats s = stats_after(e, 80 * (uint64_t)N);
    assert_in_range(by_alloc_calls() - calls, 0, N); /* of 20 N tokens */
    assert_int_equal(s.sched.n_running, N);
    for (int i = 0; i < N; i++) by_request_release(r[i]);
    by_engine_close(e);
}

/* ---- snapshots ---- */

/* A long prompt is computed in chunks, and rows in front of the cut never reach the layers behind the boundary: a chunk that
 * happens to end on a block must leave no snapshot there, whose rings another request has written. */
static void a_prefix_of_a_long_prompt_is_no_strangers_state(void **state) {
    (void)state;
    static int32_t junk[300], a[590], b[250];
    static by_run_result want, got;
    by_engine_opts o = options();
    o.draft_mode = BY_DRAFT_OFF;
    o.state_slots = 1;
    o.sched.max_seqs = 1;
    for (int round = 0; round < by_test_scaled(6) + 1; round++) {
        o.restore = round % 2 ? BY_RESTORE_FULL : BY_RESTORE_AUTO;
        o.prefix_cache = false;
        by_engine *cold = by_run_open(&o);
        o.prefix_cache = true;
        by_engine *warm = by_run_open(&o);
        by_run_random_tokens(&rng, junk, 300, cold);
        by_run_random_tokens(&rng, a, 590, cold);
        int32_t shared = 130 + (int32_t)by_rng_below(&rng, 100);
        by_run_random_tokens(&rng, b, 250, cold);
        memcpy(b, a, (size_t)shared * 4);
        by_request_opts first = by_run_request(junk, 300, 4, 1), second = by_run_request(a, 590, 4, 2),
                        third = by_run_request(b, shared + 1 + (int32_t)by_rng_below(&rng, 20), 16, 3);
        by_run_read(&want, by_run_submit(cold, &third));
        by_run_read(&got, by_run_submit(warm, &first));
        by_run_read(&got, by_run_submit(warm, &second));
        by_run_read(&got, by_run_submit(warm, &third));
        assert_true(by_run_same("behind a prefix of a long prompt", &got, &want));
        by_engine_close(cold);
        by_engine_close(warm);
    }
}

/* ---- choices ---- */

/* The first choice, whose prompt the others share, is aborted before that prompt is done. */
static void choices_go_on_without_the_first(void **state) {
    (void)state;
    static int32_t a[560];
    static by_run_result want, got;
    by_engine_opts o = options();
    by_engine *e = by_run_open(&o);
    for (int round = 0; round < by_test_scaled(4) + 1; round++) {
        by_run_random_tokens(&rng, a, 560, e);
        by_request_opts q = by_run_request(a, 560, 12, 40 + (uint64_t)round);
        q.n = q.best_of = 3;
        by_run_read(&want, by_run_submit(e, &q));
        by_request *r = by_run_submit(e, &q);
        by_request_abort(r, 0, false);
        by_run_read(&got, r);
        assert_false(got.stuck);
        assert_int_equal(got.finish[0], BY_CHOICE_CANCELLED);
        for (int c = 1; c < 3; c++) {
            assert_int_equal(got.finish[c], want.finish[c]);
            assert_int_equal(got.n[c], want.n[c]);
            assert_memory_equal(got.tokens[c], want.tokens[c], (size_t)want.n[c] * 4);
        }
    }
    by_engine_close(e);
}

/* ---- slow readers ---- */

static void a_reader_that_does_not_read_stops_only_its_own_request(void **state) {
    (void)state;
    by_engine_opts o = options();
    by_engine *e = by_run_open(&o);
    int32_t a[30], b[30];
    by_run_random_tokens(&rng, a, 30, e);
    by_run_random_tokens(&rng, b, 30, e);
    static by_run_result want[2], got[2];
    by_request_opts slow = by_run_request(a, 30, 300, 5), quick = by_run_request(b, 30, 300, 6);
    by_run_read(&want[0], by_run_submit(e, &slow));
    by_run_read(&want[1], by_run_submit(e, &quick));
    slow.queue_cap = 10;
    by_request *r = by_run_submit(e, &slow);
    by_engine_stats before = by_engine_stats_get(e);
    for (int round = 0; round < 2; round++) { /* in the second one it is paused from the beginning */
        by_run_read(&got[1], by_run_submit(e, &quick));
        assert_true(by_run_same("beside a slow reader", &got[1], &want[1]));
    }
    for (int i = 0; i < 20; i++) nap();
    by_engine_stats s = by_engine_stats_get(e);
    assert_in_range(s.n_output_tokens - before.n_output_tokens, 600, 600 + 12); /* what its queue holds and no more */
    by_run_read(&got[0], r);
    assert_true(by_run_same("read late", &got[0], &want[0]));
    by_engine_close(e);
}

/* ---- no host memory ---- */

static void a_swap_finds_its_memory_when_nothing_else_can_run(void **state) {
    (void)state;
    const int n = by_test_scaled(100) >= 100 ? 6 : 3;
    static by_run_result want[6], got;
    static int32_t tokens[6][128];
    by_engine_opts o = options();
    by_engine *e = by_run_open(&o);
    for (int i = 0; i < n; i++) {
        by_run_random_tokens(&rng, tokens[i], 120, e);
        by_request_opts q = by_run_request(tokens[i], 120, 200, (uint64_t)i);
        by_run_read(&want[i], by_run_submit(e, &q));
    }
    by_engine_close(e);
    o.max_context = 384;
    o.kv_blocks = n; /* one each at first, three in the end */
    o.state_slots = n;
    o.ram_bytes = 1; /* nothing left for swapped state */
    o.expect_quantile = 0.01;
    for (int async = 0; async < 2; async++) {
        o.async = async;
        e = by_run_open(&o);
        by_request *r[6];
        for (int i = 0; i < n; i++) {
            by_request_opts q = by_run_request(tokens[i], 120, 200, (uint64_t)i);
            r[i] = by_run_submit(e, &q);
        }
        for (int i = 0; i < n; i++) {
            by_run_read(&got, r[i]);
            assert_true(by_run_same("without host memory", &got, &want[i]));
        }
        by_engine_stats s = by_run_stats_at_rest(e);
        assert_int_equal(s.blocks_used + s.slots_used + s.host_bytes, 0);
        by_engine_close(e);
    }
}

/* ---- time between tokens ---- */

/* Beside a sequence that decodes a long prompt comes a few rows at a time when the budget is short, at once when it is not, and the
 * tokens are the same. */
static void a_budget_between_tokens_bounds_prompts(void **state) {
    (void)state;
    static by_run_result want[2], got;
    int32_t few[4], many[300];
    int32_t most[3];
    for (int k = 0; k < 3; k++) {
        by_engine_opts o = by_run_engine_opts(1, 600, 60, 16, 512);
        o.itl_budget_s = k == 0 ? 0 : k == 1 ? 1e-9 : 1e6;
        o.prefix_cache = false; /* a snapshot would cut the prompt */
        by_engine *e = by_run_open(&o);
        if (k == 0) {
            by_run_random_tokens(&rng, few, 4, e);
            by_run_random_tokens(&rng, many, 300, e);
        }
        by_request_opts q = by_run_request(few, 4, 400, 0);
        by_request *decodes = by_run_submit(e, &q);
        stats_after(e, 4);
        q = by_run_request(many, 300, 4, 0);
        by_request *reads = by_run_submit(e, &q);
        by_run_read(k ? &got : &want[0], reads);
        if (k) assert_true(by_run_same("with a budget", &got, &want[0]));
        by_run_read(k ? &got : &want[1], decodes);
        if (k) assert_true(by_run_same("beside it", &got, &want[1]));
        by_engine_stats s = by_run_stats_at_rest(e);
        most[k] = 0;
        for (int i = 0; i < BY_TALLY_BOUNDS; i++)
            if (s.prefill_rows.n[i]) most[k] = (int32_t)by_tally_bound(i);
        by_engine_close(e);
    }
    assert_int_equal(most[0], 500); /* the bounds around 300 are 200 and 500 */
    assert_int_equal(most[1], 20);  /* around 16: 10 and 20 */
    assert_int_equal(most[2], 500);
}

/* ---- figures ---- */

/* The same prompt of 260 tokens twice, 3 tokens each, the second time with two choices: every row's place is known, so is what must have
 * been counted. */
static void work_and_copies_are_counted(void **state) {
    (void)state;
    static by_run_result got;
    int32_t tokens[260];
    by_engine_opts o = by_run_engine_opts(1, 600, 60, 4, 512);
    o.draft_mode = BY_DRAFT_OFF;
    o.trunc = BY_TRUNC_OFF;
    by_engine *e = by_run_open(&o);
    const by_model *m = by_engine_model(e);
    by_flop_model flops;
    by_flop_model_make(&flops, &m->cfg, m->boundary);
    struct { int64_t first, end, logits; int times; } rows[] = {
        {0, 256, 0, 1}, {256, 260, 1, 2}, {260, 261, 1, 3}, {261, 262, 1, 3}}; /* 256: where the first run takes a snapshot */
    double ops = 0, attention = 0, qk = 0;
    for (int i = 0; i < 4; i++) {
        by_flop_count n = by_flop_count_rows(&flops, rows[i].first, rows[i].end, rows[i].first, rows[i].logits);
        ops += n.all * rows[i].times;
        attention += n.attention * rows[i].times;
        qk += (double)((rows[i].end - rows[i].first) * rows[i].end) * rows[i].times;
    }
    by_run_random_tokens(&rng, tokens, 260, e);
    for (int i = 0; i < 2; i++) {
        by_request_opts q = by_run_request(tokens, 260, 3, 0);
        q.n = q.best_of = 1 + i;
        by_run_read(&got, by_run_submit(e, &q));
        by_run_stats_at_rest(e);
    }
    by_engine_stats s = by_run_stats_at_rest(e);
    assert_true(s.query_keys == qk && s.ops == ops && s.attention_ops == attention);
    assert_true(s.k_least == 262 && s.k_most == 262);
    assert_int_equal(s.n_finished, 3);
    assert_true(s.n_finished_in == 780 && s.n_finished_out == 9);
    assert_true(s.n_hit_tokens == 256 && s.n_snapshot_hit_tokens == 256);
    assert_true(s.copied_bytes[BY_COPY_SWAP_OUT] == 0 && s.copied_bytes[BY_COPY_SWAP_IN] == 0);
    uint64_t slot = s.copied_bytes[BY_COPY_SNAPSHOT]; /* one snapshot: one slot */
    assert_true(s.n_snapshots == 1 && slot > 0 && s.copied_bytes[BY_COPY_RESTORE] == slot && s.copied_bytes[BY_COPY_FORK] > slot);
    by_engine_close(e);
}

/* ---- more memory ---- */

/* Resident memory of this process in bytes, 0 where the system does not say. */
static int64_t resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* One sequence of 300 tokens needs 3 blocks. What is given beyond holds prompts that have been answered, and is not touched before. */
static void more_memory_holds_more_prompts(void **state) {
    (void)state;
    enum { PROMPTS = 12 };
    static int32_t tokens[PROMPTS][260];
    static by_run_result got;
    by_engine_opts o = options();
    o.max_context = 300;
    o.kv_blocks = 0;
    o.sched.max_seqs = 1;
    o.ram_bytes = INT64_C(3) << 30;
    int64_t before = resident();
    by_engine *e = by_run_open(&o);
    int64_t taken = resident() - before;
    for (int i = 0; i < 2 * PROMPTS; i++) {
        int32_t *prompt = tokens[i % PROMPTS];
        if (i < PROMPTS) by_run_random_tokens(&rng, prompt, 260, e);
        by_request_opts q = by_run_request(prompt, 260, 2, 0);
        by_run_read(&got, by_run_submit(e, &q));
        assert_int_equal(got.info.n_cached, i < PROMPTS ? 0 : 256);
    }
    by_engine_stats s = by_run_stats_at_rest(e);
    assert_true(s.blocks_total > 10000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (before > 0) assert_true(taken < INT64_C(1) << 30);
#else
    (void)taken;
#endif
    by_engine_close(e);
}

/* A JSON object may name a token twice ("5" and "05"): the last counts, whatever order a backend adds them in. */
static void of_biases_of_one_token_the_last_counts(void **state) {
    (void)state;
    static by_run_result got;
    static const by_sample_bias bias[] = {{300, 1}, {9, -100}, {300, 2}, {9, 100}};
    int32_t tokens[4];
    by_engine_opts o = options();
    by_engine *e = by_run_open(&o);
    by_run_random_tokens(&rng, tokens, 4, e);
    by_request_opts q = by_run_request(tokens, 4, 3, 1);
    q.sampling.law.temperature = 0;
    q.sampling.bias = bias;
    q.sampling.n_bias = 4;
    by_run_read(&got, by_run_submit(e, &q));
    assert_int_equal(got.n[0], 3);
    for (int i = 0; i < 3; i++) assert_int_equal(got.tokens[0][i], 9);
    by_engine_close(e);
}

int main(void) {
    rng = by_test_rng(20261203);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing_and_leaves_the_processor_alone),
        cmocka_unit_test(steps_of_many_settings_with_drafts_allocate_nothing),
        cmocka_unit_test(steps_of_limited_requests_allocate_next_to_nothing),
        cmocka_unit_test(a_prefix_of_a_long_prompt_is_no_strangers_state),
        cmocka_unit_test(choices_go_on_without_the_first),
        cmocka_unit_test(a_reader_that_does_not_read_stops_only_its_own_request),
        cmocka_unit_test(a_swap_finds_its_memory_when_nothing_else_can_run),
        cmocka_unit_test(a_budget_between_tokens_bounds_prompts),
        cmocka_unit_test(work_and_copies_are_counted),
        cmocka_unit_test(more_memory_holds_more_prompts),
        cmocka_unit_test(of_biases_of_one_token_the_last_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
