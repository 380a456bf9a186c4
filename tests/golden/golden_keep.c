/* golden_keep.c - what the approximate modes cost the trained tiny model: loss on the reference's own answers, and how many answers
 * stay as they are, with 140 decoder rows kept and with a replayed window. The exact keep must change no bit. The whole table of
 * docs/engine.md: BY_TEST_SCALE=2000. BY_TEST_TIMEOUT=600 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json/json.h"
#include "model/runner.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/seed.h"

enum { CONTEXT = 4096, ROWS = 512, KEEP = 140, CASES_MAX = 128 };
typedef enum { ALL_ROWS, EXACT_KEEP, SHORT_KEEP, REPLAY, N_WAYS } way;
static const char *const names[N_WAYS] = {"all rows", "exact keep", "keep 140", "keep 140 and replay"};

typedef struct {
    double loss;
    int tokens, same, cases; /* answer tokens; answers whose every token wins; answers */
} tally;

static by_arena arena;
static by_err err;
static by_device *dev;
static by_model *model;
static by_kv *kv;
static by_runner *runners[2]; /* off, compact */
static tally total[N_WAYS];
static float *logits;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

static const by_json *member(const by_json *obj, const char *key) {
    const by_json *v = by_json_get(obj, key);
    if (!v) fail_msg("no %s", key);
    return v;
}

/* Rows [s->n_tokens, end) in chunks; the last chunk begins at `from`, whose rows' logits are wanted (-1: none). */
static void feed(by_runner *r, by_kv_seq *s, const int32_t *tokens, int64_t end, by_want want, const by_step_seq *marks) {
    while (s->n_tokens < end) {
        int64_t left = end - s->n_tokens;
        by_step_seq step = *marks;
        step.kv = s;
        step.tokens = tokens;
        step.n_rows = (int32_t)(left < ROWS ? left : ROWS);
        step.want = want;
        check(by_runner_step(r, &step, 1, &err));
    }
}

/* The answer's rows are one step: their number is at most ROWS. */
static void judge(by_runner *r, by_kv_seq *s, const int32_t *tokens, int n_prompt, int n, const by_step_seq *marks, tally *t) {
    int64_t V = model->cfg.vocab_size;
    bool same = true;
    feed(r, s, tokens, n_prompt - 1, BY_WANT_NONE, marks);
    feed(r, s, tokens, n - 1, BY_WANT_ALL, marks);
    for (int i = 0; i < n - n_prompt; i++) {
        check(by_runner_read_logits(r, i, logits, &err));
        double sum = 0, max = -INFINITY;
        for (int64_t v = 0; v < V; v++) max = fmax(max, (double)logits[v]);
        for (int64_t v = 0; v < V; v++) sum += exp((double)logits[v] - max);
        int32_t want = tokens[n_prompt + i];
        t->loss -= (double)logits[want] - max - log(sum);
        t->tokens++;
        for (int64_t v = 0; v < V; v++) same = same && logits[v] <= logits[want];
    }
    t->same += same;
    t->cases++;
}

static int64_t positive(int64_t v) { return v > 0 ? v : 0; }

static void one_case(const by_json *row) {
    static int32_t tokens[CONTEXT];
    const by_json *prompt = member(row, "tokens"), *expect = member(row, "expect");
    int n_prompt = (int)prompt->n, n = n_prompt + (int)expect->n, window = model->cfg.window;
    if (n_prompt <= KEEP || n_prompt > by_test_scaled(320) || (int)expect->n > ROWS || n > CONTEXT) return; /* shorter ones change nothing */
    for (int i = 0; i < n; i++) tokens[i] = (int32_t)(i < n_prompt ? prompt->v.items[i] : expect->v.items[i - n_prompt]).v.i;
    int64_t exact = by_kv_layout_of(kv)->ring_len + (int64_t)(window - 1) * (model->cfg.n_layers - 1 - model->boundary);
    const int64_t from[N_WAYS] = {0, positive(n_prompt - exact), n_prompt - KEEP, n_prompt - KEEP};
    by_kv_seq first;
    for (int w = 0; w < N_WAYS; w++) {
        by_kv_seq s;
        by_step_seq marks = {.keep_from = from[w]};
        check(by_kv_seq_init(&s, kv, CONTEXT, &err));
        if (w == REPLAY) { /* the blocks of the run before */
            int64_t hit = (n_prompt - 1) / BY_KV_BLOCK_TOKENS * BY_KV_BLOCK_TOKENS;
            int64_t start = hit - window < n_prompt - KEEP ? hit - window : n_prompt - KEEP;
            for (int32_t i = 0; i < hit / BY_KV_BLOCK_TOKENS; i++) {
                by_kv_block_retain(kv, first.blocks[i]);
                s.blocks[s.n_blocks++] = first.blocks[i];
            }
            s.n_tokens = marks.valid_from = positive(start) & ~(int64_t)1;
            marks.store_from = hit;
        }
        check(by_kv_seq_reserve(&s, kv, n, &err));
        judge(runners[w != ALL_ROWS], &s, tokens, n_prompt, n, &marks, &total[w]);
        if (w == SHORT_KEEP) first = s;
        else by_kv_seq_deinit(&s, kv);
    }
    by_kv_seq_deinit(&first, kv);
}

static void approximations_cost_what_the_documents_say(void **state) {
    (void)state;
    by_str line;
    by_lines *l = by_lines_open(by_golden_path("tiny/greedy.jsonl"));
    while (by_lines_next(l, &line)) {
        by_json row;
        check(by_json_parse(&row, &arena, by_arena_dup(&arena, line), NULL, &err));
        one_case(&row);
    }
    by_lines_close(l);
    l = by_lines_open(by_golden_path("tiny/chats.jsonl"));
    while (by_lines_next(l, &line)) {
        by_json row;
        check(by_json_parse(&row, &arena, by_arena_dup(&arena, line), NULL, &err));
        const by_json *turns = member(&row, "turns");
        for (uint32_t i = 0; i < turns->n; i++) one_case(&turns->v.items[i]);
    }
    by_lines_close(l);
    if (total[0].cases == 0) return; /* a short run without any */
    for (int w = 0; w < N_WAYS; w++)
        print_message("%-20s %3d answers, %5d tokens: loss %.4f, %3d unchanged\n", names[w], total[w].cases, total[w].tokens,
                      total[w].loss / total[w].tokens, total[w].same);
    assert_true(total[EXACT_KEEP].loss == total[ALL_ROWS].loss);
    assert_int_equal(total[EXACT_KEEP].same, total[ALL_ROWS].same);
}

static int open_all(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_JSON);
    dev = by_test_device(&(by_test_backend){BY_BACKEND_CPU, NULL, "cpu"}, 2);
    check(by_model_open(&model, by_source_path("models/tiny"), dev, &(by_model_opts){.numerics = BY_NUMERICS_DEPLOYED}, &err));
    by_kv_layout layout;
    check(by_model_kv_layout(&layout, model, 6, &err));
    check(by_kv_create(&kv, dev, &layout, &(by_kv_opts){.n_blocks = 2 * CONTEXT / BY_KV_BLOCK_TOKENS, .n_slots = 2}, &err));
    for (int i = 0; i < 2; i++) {
        by_runner_opts o = {.max_rows = ROWS, .max_seqs = 1, .max_logits = ROWS, .max_context = CONTEXT,
                            .trunc = i ? BY_TRUNC_COMPACT : BY_TRUNC_OFF};
        check(by_runner_create(&runners[i], model, kv, &o, &err));
    }
    logits = malloc((size_t)model->cfg.vocab_size * sizeof *logits);
    return logits ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) by_runner_destroy(runners[i]);
    by_kv_destroy(kv);
    by_model_close(model);
    by_device_close(dev);
    by_arena_deinit(&arena);
    free(logits);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(approximations_cost_what_the_documents_say)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
