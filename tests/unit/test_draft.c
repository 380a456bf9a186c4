/* test_draft.c - which drafts the engine verifies: all that are worth their row, and none that nobody can see. The twin is a generation of
 * one sequence that looks at what would be proposed at every position. BY_TEST_TIMEOUT=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/draft_cost.h"
#include "engine/engine.h"
#include "engine/solo_gen.h"
#include "json/json.h"
#include "support/golden.h"
#include "support/seed.h"

enum { PROMPTS = 10, PROMPT_MAX = 100, TOKENS = 48, CONTEXT = PROMPT_MAX + TOKENS };

typedef struct {
    int32_t tokens[CONTEXT], n_prompt, n_total;
    int32_t drafts[TOKENS][BY_SPEC_DRAFTS_MAX]; /* [i]: proposed for the tokens at n_prompt + 1 + i and on */
    int32_t n_positions;
} answer;

static answer answers[PROMPTS];
static int32_t eos, K, n_prompts;
static by_err err;
static const char *folder;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

/* ---- the twin ---- */

static by_status ignore(void *arg, int32_t token, float logprob, by_err *e) {
    (void)arg, (void)token, (void)logprob, (void)e;
    return BY_OK;
}

static by_status note_drafts(void *arg, int64_t position, const by_spec_drafts *d, by_err *e) {
    (void)e;
    answer *a = arg;
    assert_int_equal(position, a->n_prompt + 1 + a->n_positions);
    memcpy(a->drafts[a->n_positions++], d->ids, (size_t)d->n * 4);
    return BY_OK;
}

static void read_prompts(void) {
    by_lines *lines = by_lines_open(by_golden_path("tiny/greedy.jsonl"));
    by_str line;
    for (int i = 0; i < n_prompts;) {
        by_arena arena;
        by_arena_init(&arena, BY_MEM_JSON);
        by_json row;
        assert_true(by_lines_next(lines, &line));
        check(by_json_parse(&row, &arena, line, NULL, &err));
        const by_json *ids = by_json_get(&row, "tokens");
        answer *a = &answers[i];
        if (ids->n <= PROMPT_MAX) {
            for (uint32_t k = 0; k < ids->n; k++) a->tokens[k] = (int32_t)ids->v.items[k].v.i;
            a->n_prompt = (int32_t)ids->n;
            i++;
        }
        by_arena_deinit(&arena);
    }
    by_lines_close(lines);
}

static int make_answers(void **state) {
    (void)state;
    n_prompts = PROMPTS;
    folder = by_source_path("models/tiny");
    by_solo s;
    by_solo_opts o = {.device = {.backend = BY_BACKEND_CPU, .n_threads = 1}, .model = {.numerics = BY_NUMERICS_DEPLOYED}, .draft = true};
    read_prompts();
    check(by_solo_open(&s, folder, &o, &err));
    check(by_solo_reserve(&s, CONTEXT, 64, &err));
    eos = s.model->cfg.eos_id;
    K = s.n_drafts;
    for (int i = 0; i < n_prompts; i++) {
        answer *a = &answers[i];
        by_solo_gen_opts g = {.sampling = by_sample_params_default(), .max_tokens = TOKENS, .probe = note_drafts, .probe_arg = a};
        g.sampling.law.temperature = 0;
        g.sampling.eos_id = eos;
        by_solo_gen_result r;
        by_solo_reset(&s);
        check(by_solo_generate(&s, a->tokens, a->n_prompt, &g, ignore, NULL, &r, &err));
        a->n_total = r.n_prompt + r.n_output;
    }
    by_solo_close(&s);
    return 0;
}

typedef struct {
    int64_t n_steps, n_verified, n_accepted, n_proposed;
} counts;

/* What a sequence does that verifies `most` of each block: all of it, or up to an end token. */
static counts walk(const answer *a, bool whole) {
    counts c = {0};
    for (int32_t at = a->n_prompt + 1; at < a->n_total;) {
        const int32_t *d = a->drafts[at - a->n_prompt - 1];
        int32_t n = 0, k = 0, left = a->n_prompt + TOKENS - at; /* the last token needs no draft */
        while (n < K && (whole || n == 0 || d[n - 1] != eos)) n++;
        if (n > left - 1) n = left - 1;
        while (k < n && at + k < a->n_total && d[k] == a->tokens[at + k]) k++;
        c.n_steps++;
        c.n_verified += n;
        c.n_accepted += k;
        at += at + k < a->n_total ? k + 1 : k;
    }
    return c;
}

/* ---- the engine ---- */

/* The answers again; endless: they go on behind their end, as far as there is room. */
static counts run(by_draft_mode mode, const by_draft_cost_point *cost, int32_t n_cost, bool async, bool endless) {
    by_engine_opts o = by_engine_opts_default();
    o.model_dir = folder;
    o.device.n_threads = 1;
    o.max_context = CONTEXT;
    o.kv_blocks = 2 * n_prompts;
    o.sched.max_seqs = n_prompts;
    o.sched.max_rows = 128;
    o.draft_mode = mode;
    o.cost = cost;
    o.n_cost = n_cost;
    o.async = async;
    by_engine *e;
    by_request *r[PROMPTS];
    counts c = {0};
    check(by_engine_open(&e, &o, &err));
    for (int i = 0; i < n_prompts; i++) {
        by_request_opts q = by_request_opts_default();
        q.tokens = answers[i].tokens;
        q.n_tokens = answers[i].n_prompt;
        q.max_tokens = endless ? CONTEXT - q.n_tokens : TOKENS;
        q.sampling.law.temperature = 0;
        q.sampling.eos_id = eos;
        q.ignore_eos = endless;
        check(by_engine_submit(e, &q, &r[i], &err));
    }
    for (int i = 0; i < n_prompts; i++) {
        const answer *a = &answers[i];
        by_event ev;
        int32_t at = a->n_prompt;
        while (by_request_next(r[i], &ev, -1) == BY_OK) {
            assert_int_not_equal(ev.finish, BY_CHOICE_ERROR);
            if (ev.token >= 0 && at < a->n_total) assert_int_equal(ev.token, a->tokens[at]);
            at += ev.token >= 0;
        }
        assert_int_equal(at, endless ? CONTEXT : a->n_total);
        by_request_info info = by_request_info_get(r[i]);
        c.n_steps += info.n_steps;
        c.n_verified += info.n_verified;
        c.n_accepted += info.n_accepted;
        by_request_release(r[i]);
    }
    c.n_proposed = (int64_t)by_engine_stats_get(e).draft.n_proposed;
    by_engine_close(e);
    return c;
}

static counts expected(bool whole) {
    counts sum = {0};
    for (int i = 0; i < n_prompts; i++) {
        counts c = walk(&answers[i], whole);
        sum.n_steps += c.n_steps;
        sum.n_verified += c.n_verified;
        sum.n_accepted += c.n_accepted;
    }
    return sum;
}

static void expect(counts got, counts want) {
    assert_int_equal(got.n_steps, want.n_steps);
    assert_int_equal(got.n_verified, want.n_verified);
    assert_int_equal(got.n_accepted, want.n_accepted);
}

static const by_draft_cost_point flat[] = {{1, 1}, {400, 1}};
static const by_draft_cost_point steep[] = {{1, 1e3}, {2, 4e3}, {4, 16e3}, {8, 64e3}, {16, 256e3}, {400, 16e7}};

/* Rows that cost nothing: every draft is worth its row but those behind a drafted end, which nobody can see. */
static void nothing_behind_an_end_is_verified(void **state) {
    (void)state;
    counts all = expected(true), useful = expected(false);
    assert_true(useful.n_verified < all.n_verified && useful.n_accepted == all.n_accepted && useful.n_steps == all.n_steps);
    for (int async = 0; async < 2; async++) {
        expect(run(BY_DRAFT_FIXED, NULL, 0, async, false), all);
        expect(run(BY_DRAFT_CONFIDENCE, flat, 2, async, false), useful);
    }
}

/* One more row costs twice what a row costs on average, so no draft is worth it; but for the first steps, when confidences are unknown. */
static void dear_rows_are_not_spent(void **state) {
    (void)state;
    counts c = run(BY_DRAFT_CONFIDENCE, steep, 6, true, false);
    assert_true(c.n_verified < expected(false).n_verified / 10);
}

/* Steps that cost next to nothing beside proposing: auto finds that out and pauses, for each number of sequences anew. */
static void auto_pauses_when_proposing_is_dear(void **state) {
    (void)state;
    static const by_draft_cost_point cheap[] = {{1, 1e-4}, {400, 2e-4}};
    counts c = run(BY_DRAFT_AUTO, cheap, 2, true, true), always = run(BY_DRAFT_CONFIDENCE, cheap, 2, true, true);
    assert_true(always.n_proposed > always.n_steps * (K - 1) && c.n_proposed < c.n_steps * K / 2);
    assert_true(c.n_steps > always.n_steps);
}

/* ---- costs ---- */

static void costs_follow_what_steps_take(void **state) {
    (void)state;
    static const by_draft_cost_point curve[] = {{1, 2}, {5, 4}, {9, 10}};
    by_draft_cost_model m;
    check(by_cost_init(&m, 4, &err));
    check(by_cost_set(&m, curve, 3, &err));
    by_draft_cost c = by_cost_for(&m, 3, true);
    assert_true(c.any_size && by_draft_cost_ms(&c, 3) == 3 && by_draft_cost_ms(&c, 9) == 10 && by_draft_cost_ms(&c, 10) > 1e300);
    assert_true(c.sampler_ms == 0 && !by_cost_knows_drafts(&m));
    /* twice as slow, but for disturbances; 0.25 ms of sampling a row; proposing 7 ms, for two sequences 3 */
    for (int i = 0; i < 48; i++) by_cost_note(&m, 3, i % 4 ? 6 : 60, i % 2 ? 2 : 3, 0.75, i % 2 ? 3 : 7);
    c = by_cost_for(&m, 3, true);
    assert_true(by_draft_cost_ms(&c, 3) == 6 + 0.75 && by_draft_cost_ms(&c, 9) == 20 + 2.25);
    assert_true(by_cost_knows_drafts(&m) && c.sampler_ms == 7 && by_cost_for(&m, 2, true).sampler_ms == 3);
    assert_true(by_cost_for(&m, 2, false).sampler_ms == 0);
    double any = by_cost_for(&m, 4, true).sampler_ms; /* not seen with four */
    assert_true(any == 3 || any == 7);
    m.given = true;
    check(by_cost_set(&m, curve, 3, &err));
    for (int i = 0; i < 48; i++) by_cost_note(&m, 9, 1000, 3, 1000, 5);
    c = by_cost_for(&m, 3, true);
    assert_true(c.sampler_ms == 5 && by_draft_cost_ms(&c, 3) == 6 + 0.75);
    assert_int_equal(by_cost_set(&m, (by_draft_cost_point[]){{2, 1}, {2, 2}}, 2, NULL), BY_EINVAL);
    by_cost_deinit(&m);
}

/* Measured: every size up to the last, none dearer than a larger one, beyond the budget along a line. */
static void measured_costs_rise(void **state) {
    (void)state;
    by_solo s;
    by_solo_opts o = {.device = {.backend = BY_BACKEND_CPU, .n_threads = 1}, .model = {.numerics = BY_NUMERICS_DEPLOYED}};
    check(by_solo_open(&s, folder, &o, &err));
    check(by_solo_reserve(&s, CONTEXT, 64, &err));
    by_kv_seq_deinit(&s.seq, s.kv); /* nobody uses the caches */
    for (int budget = 0; budget < 2; budget++) {
        by_draft_cost_model m;
        check(by_cost_init(&m, 1, &err));
        check(by_cost_measure(&m, s.dev, s.runner, s.kv, s.model->cfg.vocab_size, 40, budget ? 30 : 1e-3, &err));
        assert_true(m.n_curve >= 7 && m.curve[0].rows == 1 && m.curve[m.n_curve - 1].rows == 40);
        for (int32_t i = 0; i < m.n_curve; i++) {
            assert_true(m.curve[i].ms > 0 && (i == 0 || m.curve[i].rows > m.curve[i - 1].rows));
            assert_true(i == 0 || m.curve[i].ms >= m.curve[i - 1].ms);
        }
        by_cost_deinit(&m);
    }
    check(by_kv_seq_init(&s.seq, s.kv, CONTEXT, &err));
    by_solo_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_behind_an_end_is_verified),
        cmocka_unit_test(dear_rows_are_not_spent),
        cmocka_unit_test(auto_pauses_when_proposing_is_dear),
        cmocka_unit_test(costs_follow_what_steps_take),
        cmocka_unit_test(measured_costs_rise),
    };
    return cmocka_run_group_tests(tests, make_answers, NULL);
}
