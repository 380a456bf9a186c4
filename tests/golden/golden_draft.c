/* golden_draft.c - the draft layers against the reference: whole traces of greedy speculation, every draft verified.
 *
 * Tolerances: tests/golden/data/model/ORIGIN.md: drafted and emitted ids equal, confidences within 2e-5, draft logits within
 * 2e-4, context rows within 1e-4 (exact numerics). BY_TEST_TIMEOUT=300 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json/json.h"
#include "model/runner.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/npz.h"

enum { CONTEXT = 1024, ROWS = 64, BACKTRACK = 6, K_MAX = 8 };

typedef struct {
    by_device *dev;
    by_model *model;
    by_kv *kv;
    by_runner *runner;
    by_kv_seq seq;
    int32_t K;
    const by_npz *first; /* draft_first.npz */
    const char *id;      /* the line at hand */
    bool is_first;       /* its first draft call: logits are compared */
    int32_t picked[K_MAX];
} bench;

static by_err err;
static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

static bench bench_open(const char *folder, const by_test_backend *b) {
    bench e = {.dev = by_test_device(b, 2)};
    char path[256];
    snprintf(path, sizeof path, "model/%s/checkpoint", folder);
    check(by_model_open(&e.model, by_golden_path(path), e.dev, &(by_model_opts){.numerics = BY_NUMERICS_EXACT}, &err));
    e.K = e.model->cfg.draft.block_size;
    by_kv_layout layout;
    check(by_model_kv_layout(&layout, e.model, BACKTRACK, &err));
    check(by_kv_create(&e.kv, e.dev, &layout, &(by_kv_opts){.n_blocks = 16, .n_slots = 4}, &err));
    by_runner_opts o = {.max_rows = ROWS, .max_seqs = 4, .max_logits = ROWS, .max_context = CONTEXT, .n_drafts = e.K};
    check(by_runner_create(&e.runner, e.model, e.kv, &o, &err));
    return e;
}

static void bench_close(bench *e) {
    by_runner_destroy(e->runner);
    by_kv_destroy(e->kv);
    by_model_close(e->model);
    by_device_close(e->dev);
}

static void feed(bench *e, const int32_t *tokens, int64_t n, int32_t chunk) {
    check(by_kv_seq_reserve(&e->seq, e->kv, n, &err));
    while (e->seq.n_tokens < n) {
        int64_t left = n - e->seq.n_tokens;
        by_step_seq step = {.kv = &e->seq, .tokens = tokens, .n_rows = left < chunk ? (int32_t)left : chunk, .want = BY_WANT_NONE};
        check(by_runner_step(e->runner, &step, 1, &err));
    }
}

static int32_t argmax(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return (int32_t)best;
}

static by_status pick(void *arg, int32_t j, by_tensor logits, int32_t *ids, by_err *e_) {
    (void)e_;
    bench *e = arg;
    assert_int_equal(logits.rows, 1);
    float *row = by_test_values(logits);
    ids[0] = e->picked[j] = argmax(row, logits.cols);
    if (e->is_first) {
        char what[128];
        snprintf(what, sizeof what, "draft logits %d of %s", (int)j, e->id);
        const by_npy *want = by_npz_need(e->first, "<f4", "%s.draft_logits", e->id);
        assert_true(by_golden_close_f32(what, row, by_npy_f32(want) + j * logits.cols, (size_t)logits.cols, 2e-4, 0));
    }
    free(row);
    return BY_OK;
}

/* Context rows of the first and last draft layer: the window in front of the anchor. (The stored rings also have the rows of the
 * block, which we do not keep.) */
static void check_context(const bench *e, const char *name, int32_t layer, int64_t anchor) {
    const by_npy *want = by_npz_need(e->first, "<f4", "%s.%s", e->id, name);
    by_ring ring = by_kv_ring(e->kv, e->model->cfg.n_layers + layer);
    int64_t stored = (int64_t)want->shape[0], d = (int64_t)want->shape[1], p = anchor - e->model->cfg.window;
    int32_t n = 0;
    for (p = p > 0 ? p : 0; p < anchor; p++, n++) {
        float row[BY_LIMIT_HEAD_DIM];
        size_t off = (size_t)(ring.off + e->seq.slot * ring.slot_stride + p % ring.len * by_rec_bytes(ring.rec, d));
        check(by_mem_read(row, ring.mem, off, (size_t)d * 4, &err));
        char what[128];
        snprintf(what, sizeof what, "%s of %s, position %d", name, e->id, (int)p);
        assert_true(by_golden_close_f32(what, row, by_npy_f32(want) + p % stored * d, (size_t)d, 1e-4, 0));
    }
    assert_true(n > 0);
}

static int64_t integer(const by_json *obj, const char *key) { return by_json_get(obj, key)->v.i; }

/* One step of the trace: drafts, confidences, judgement. tokens[a] is the anchor; returns the new anchor's position. */
static int64_t replay_step(bench *e, const by_json *step, int32_t *tokens, int64_t a) {
    assert_int_equal(integer(step, "anchor_position"), a);
    assert_int_equal(integer(step, "anchor_token"), tokens[a]);
    float conf[K_MAX];
    by_draft_seq q = {.slot = e->seq.slot, .token = tokens[a], .position = a};
    check(by_runner_draft(e->runner, &q, 1, e->K, &(by_draft_picker){.pick = pick, .arg = e}, conf, &err));
    const by_json *drafts = by_json_get(step, "drafts"), *want = by_json_get(step, "confidence"), *out = by_json_get(step, "emitted");
    assert_int_equal(drafts->n, e->K);
    for (int32_t j = 0; j < e->K; j++) {
        double c = 1 / (1 + exp(-(double)conf[j])), w = by_json_number(&want->v.items[j]);
        if (fabs(c - w) > 2e-5) fail_msg("%s, anchor %d: confidence %d is %.7f, not %.7f", e->id, (int)a, (int)j, c, w);
        assert_int_equal(e->picked[j], drafts->v.items[j].v.i);
        tokens[a + 1 + j] = e->picked[j];
    }
    check(by_kv_seq_reserve(&e->seq, e->kv, a + 1 + e->K, &err));
    by_step_seq verify = {.kv = &e->seq, .tokens = tokens, .n_rows = 1 + e->K, .want = BY_WANT_ALL};
    check(by_runner_step(e->runner, &verify, 1, &err));
    int64_t V = e->model->cfg.vocab_size;
    float *row = malloc((size_t)V * 4);
    int32_t m = 0;
    for (;; m++) {
        check(by_runner_read_logits(e->runner, m, row, &err));
        int32_t t = argmax(row, V);
        bool accepted = m < e->K && tokens[a + 1 + m] == t;
        assert_int_equal(t, out->v.items[m].v.i);
        tokens[a + 1 + m] = t;
        if (!accepted) break;
    }
    free(row);
    assert_int_equal(m, integer(step, "accepted"));
    assert_int_equal(m + 1, out->n);
    e->seq.n_tokens = a + 1 + m; /* rollback: the rows of rejected drafts are written again before they are read */
    return a + 1 + m;
}

static void replay_trace(bench *e, const by_json *line, const int32_t *prompt, int32_t n, int32_t chunk) {
    static int32_t tokens[CONTEXT + 16];
    const by_json *steps = by_json_get(line, "steps");
    memcpy(tokens, prompt, (size_t)n * 4);
    check(by_kv_seq_init(&e->seq, e->kv, CONTEXT, &err));
    feed(e, tokens, n, chunk);
    tokens[n] = (int32_t)integer(&steps->v.items[0], "anchor_token");
    int64_t a = n;
    for (uint32_t i = 0; i < steps->n; i++) {
        e->is_first = i == 0;
        if (i == 0) {
            check_context(e, "context_row_0", 0, a);
            check_context(e, "context_row_last", e->model->cfg.draft.n_layers - 1, a);
        }
        a = replay_step(e, &steps->v.items[i], tokens, a);
    }
    by_kv_seq_deinit(&e->seq, e->kv);
}

static by_json parse(by_arena *arena, by_str line) {
    by_json row;
    if (by_json_parse(&row, arena, line, NULL, &err) != BY_OK) fail_msg("golden: %s", err.msg);
    return row;
}

/* Tokens of the prompt with that id; 0 when it has pictures. */
static int32_t find_prompt(const char *folder, by_str id, int32_t *tokens) {
    char path[256];
    snprintf(path, sizeof path, "model/%s/in.jsonl", folder);
    by_lines *lines = by_lines_open(by_golden_path(path));
    by_str line;
    int32_t n = -1;
    while (n < 0 && by_lines_next(lines, &line)) {
        by_arena arena;
        by_arena_init(&arena, BY_MEM_JSON);
        by_json row = parse(&arena, line);
        if (by_str_eq(by_json_get(&row, "id")->v.s, id)) {
            const by_json *ids = by_json_get(&row, "tokens");
            n = by_json_get(&row, "images") ? 0 : (int32_t)ids->n;
            assert_true(n <= CONTEXT);
            for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)ids->v.items[i].v.i;
        }
        by_arena_deinit(&arena);
    }
    by_lines_close(lines);
    assert_true(n >= 0);
    return n;
}

static int replay_folder(const char *folder, const by_test_backend *b) {
    bench e = bench_open(folder, b);
    char path[256], id[64];
    snprintf(path, sizeof path, "model/%s/draft_first.npz", folder);
    by_npz *first = by_npz_open(by_golden_path(path));
    assert_non_null(first);
    e.first = first;
    e.id = id;
    snprintf(path, sizeof path, "model/%s/speculation.jsonl", folder);
    by_lines *lines = by_lines_open(by_golden_path(path));
    by_str line;
    int n_traces = 0;
    while (by_lines_next(lines, &line)) {
        static int32_t prompt[CONTEXT];
        by_arena arena;
        by_arena_init(&arena, BY_MEM_JSON);
        by_json row = parse(&arena, line);
        by_str name = by_json_get(&row, "id")->v.s;
        snprintf(id, sizeof id, "%.*s", BY_STR_ARG(name));
        int32_t n = find_prompt(folder, name, prompt);
        for (int32_t chunk = ROWS; n > 0 && chunk > 4; chunk = chunk / 8 + 1) {
            replay_trace(&e, &row, prompt, n, chunk);
            n_traces++;
        }
        by_arena_deinit(&arena);
    }
    by_lines_close(lines);
    by_npz_close(first);
    bench_close(&e);
    return n_traces;
}

static void traces_match(void **s) {
    (void)s;
    const by_test_backend *all;
    int n = by_test_all_backends(&all);
    for (int i = 0; i < n; i++) {
        assert_true(replay_folder("tiny_a", &all[i]) >= 2);
        assert_true(replay_folder("tiny_b", &all[i]) >= 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(traces_match)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
