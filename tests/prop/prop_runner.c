/* prop_runner.c - no result depends on how a step is put together. BY_TEST_TIMEOUT=900
 *
 * For random prompts, the logits of every row are compared bit for bit between: one chunk and random chunks down to single
 * rows; the sequence alone and among others in the same steps; one and several threads; decoder rows masked and dropped; all
 * rows and the exact keep; a cold run and a replay over shared blocks from far enough back; a run and its continuation from
 * a copy of the state slot. On ref, guard (fewer cases) and cpu, in deployed numerics, where one differing bit would show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/runner.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/seed.h"
#include "support/stepper.h"

enum { CONTEXT = 640, ROWS = 96, SEQS = 4 };

static by_rng rng;
static by_err err;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

typedef by_test_stepper engine;

static engine engine_open(const char *folder, const by_test_backend *b, int32_t threads, by_truncation trunc) {
    by_runner_opts o = {.max_rows = ROWS, .max_seqs = SEQS, .max_logits = ROWS, .max_context = CONTEXT, .trunc = trunc};
    return by_test_stepper_open(by_test_device(b, threads), folder, &(by_model_opts){.numerics = BY_NUMERICS_DEPLOYED},
                                &(by_kv_opts){.n_blocks = SEQS * CONTEXT / 128 + 8, .n_slots = SEQS + 1}, &o);
}

/* One sequence on its way through an engine. */
typedef struct {
    const int32_t *tokens;
    int32_t n;
    by_kv_seq kv;
    float *logits;     /* [n, V]; rows that were wanted */
    int64_t store_from, valid_from, keep_from;
} track;

static track track_open(engine *e, const int32_t *tokens, int32_t n) {
    track t = {.tokens = tokens, .n = n, .logits = malloc((size_t)(n * e->V) * 4)};
    assert_non_null(t.logits);
    memset(t.logits, 0xff, (size_t)(n * e->V) * 4);
    check(by_kv_seq_init(&t.kv, e->kv, CONTEXT, &err));
    check(by_kv_seq_reserve(&t.kv, e->kv, n, &err));
    return t;
}

static void track_close(engine *e, track *t) {
    by_kv_seq_deinit(&t->kv, e->kv);
    free(t->logits);
}

/* One step with `rows[i]` rows of each track (0 = not in the step), wanting every row's logits from `keep_from` on. */
static void step(engine *e, track *const *tracks, const int32_t *rows, int n) {
    by_step_seq seqs[SEQS];
    track *in[SEQS];
    int32_t k = 0;
    for (int i = 0; i < n; i++) {
        if (rows[i] == 0) continue;
        track *t = tracks[i];
        bool all = t->kv.n_tokens >= t->keep_from;
        in[k] = t;
        seqs[k++] = (by_step_seq){.kv = &t->kv, .tokens = t->tokens, .n_rows = rows[i], .want = all ? BY_WANT_ALL : BY_WANT_NONE,
                                  .store_from = t->store_from, .valid_from = t->valid_from, .keep_from = t->keep_from};
    }
    if (k == 0) return;
    check(by_runner_step(e->runner, seqs, k, &err));
    for (int32_t i = 0, at = 0; i < k; i++) {
        if (seqs[i].want != BY_WANT_ALL) continue;
        for (int32_t r = 0; r < seqs[i].n_rows; r++)
            check(by_runner_read_logits(e->runner, at++, in[i]->logits + (in[i]->kv.n_tokens - seqs[i].n_rows + r) * e->V, &err));
    }
}

/* Runs a track alone to `end` in chunks of at most `chunk` rows (0 = random sizes). */
static void run_to(engine *e, track *t, int32_t end, int32_t chunk) {
    while (t->kv.n_tokens < end) {
        int32_t left = (int32_t)(end - t->kv.n_tokens), n = chunk ? chunk : 1 + (int32_t)by_rng_below(&rng, ROWS);
        if (t->kv.n_tokens < t->keep_from && t->kv.n_tokens + n > t->keep_from) n = (int32_t)(t->keep_from - t->kv.n_tokens);
        n = n < left ? n : left;
        step(e, (track *const[]){t}, &n, 1);
    }
}

static void same_rows(const char *what, const engine *e, const track *a, const track *b, int32_t from) {
    char text[160];
    snprintf(text, sizeof text, "%s on %s", what, by_device_name(e->dev));
    assert_true(by_golden_same_bytes(text, a->logits + from * e->V, b->logits + from * e->V, (size_t)((a->n - from) * e->V), 4));
}

static int32_t random_prompt(int32_t *tokens, int32_t min, int32_t max, int64_t V) {
    int32_t n = min + (int32_t)by_rng_below(&rng, (uint64_t)(max - min + 1));
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)by_rng_below(&rng, (uint64_t)V);
    return n;
}

/* ---- properties ------------------------------------------------------------------------------------------------ */

static void chunks_and_neighbours(engine *e, int cases) {
    static int32_t tokens[SEQS][CONTEXT];
    for (int c = 0; c < cases; c++) {
        int32_t n[SEQS];
        track whole, cut, among[SEQS];
        for (int i = 0; i < SEQS; i++) n[i] = random_prompt(tokens[i], i ? 1 : 30, 260, e->V);
        whole = track_open(e, tokens[0], n[0]);
        run_to(e, &whole, n[0], ROWS);
        cut = track_open(e, tokens[0], n[0]);
        run_to(e, &cut, n[0], c % 2 ? 0 : 1 + (int32_t)by_rng_below(&rng, 5));
        same_rows("random chunks", e, &whole, &cut, 0);
        track_close(e, &cut);
        for (int i = 0; i < SEQS; i++) among[i] = track_open(e, tokens[i], n[i]);
        for (;;) { /* random shares of a step for everybody, empty ones too */
            int32_t rows[SEQS], left = ROWS, done = 0;
            for (int i = 0; i < SEQS; i++) {
                int32_t want = (int32_t)(among[i].n - among[i].kv.n_tokens), r = (int32_t)by_rng_below(&rng, 40);
                rows[i] = r < want ? r : want;
                if (rows[i] > left) rows[i] = left;
                left -= rows[i];
                done += want == 0;
            }
            if (done == SEQS) break;
            step(e, (track *const[]){&among[0], &among[1], &among[2], &among[3]}, rows, SEQS);
        }
        same_rows("among others", e, &whole, &among[0], 0);
        for (int i = 0; i < SEQS; i++) track_close(e, &among[i]);
        track_close(e, &whole);
    }
}

/* Rows a truncated run needs for every logit from `from` on to be exact: each decoder layer looks back window - 1. */
static int32_t exact_keep(const by_model *m, int32_t from) {
    return from - (m->cfg.window - 1) * (m->cfg.n_layers - m->boundary);
}
static void truncation(engine *off, engine *mask, engine *compact, int cases) {
    static int32_t tokens[CONTEXT];
    if (off->model->boundary < 0) return;
    for (int c = 0; c < cases; c++) {
        int32_t n = random_prompt(tokens, 200, 500, off->V), keep = (int32_t)by_rng_below(&rng, (uint64_t)n);
        track a = track_open(mask, tokens, n), b = track_open(compact, tokens, n);
        a.keep_from = b.keep_from = keep;
        run_to(mask, &a, n, 0);
        run_to(compact, &b, n, 0);
        same_rows("mask equals compact", mask, &a, &b, keep);
        track_close(mask, &a);
        track_close(compact, &b);
        int32_t from = exact_keep(off->model, n - 1); /* the exact keep changes nothing on the last row */
        if (from <= 0) continue;
        a = track_open(off, tokens, n);
        b = track_open(compact, tokens, n);
        b.keep_from = from;
        run_to(off, &a, n, 0);
        run_to(compact, &b, n, 0);
        same_rows("exact keep equals off", off, &a, &b, n - 1);
        track_close(off, &a);
        track_close(compact, &b);
    }
}

/* A second sequence takes over the first one's full blocks and recomputes rows from `start` on. */
static void replay(engine *e, int cases) {
    static int32_t tokens[CONTEXT];
    for (int c = 0; c < cases; c++) {
        int32_t n = random_prompt(tokens, 300, 600, e->V), hit = (n - 1) / 128 * 128;
        track cold = track_open(e, tokens, n);
        run_to(e, &cold, n, ROWS);
        int32_t layers = e->model->cfg.n_layers, start = hit - (e->model->cfg.window - 1) * layers;
        start = start > 0 ? start & ~1 : 0;
        track warm = {.tokens = tokens, .n = n, .logits = malloc((size_t)(n * e->V) * 4)};
        assert_non_null(warm.logits);
        check(by_kv_seq_init(&warm.kv, e->kv, CONTEXT, &err));
        for (int32_t i = 0; i < hit / 128; i++) {
            by_kv_block_retain(e->kv, cold.kv.blocks[i]);
            warm.kv.blocks[warm.kv.n_blocks++] = cold.kv.blocks[i];
        }
        check(by_kv_seq_reserve(&warm.kv, e->kv, n, &err));
        warm.kv.n_tokens = start;
        warm.store_from = hit;
        warm.valid_from = start;
        run_to(e, &warm, n, 0);
        same_rows("exact replay equals cold", e, &cold, &warm, hit);
        track_close(e, &warm);
        track_close(e, &cold);
    }
}

/* State slot and blocks copied out in the middle, clobbered, and put back: a swap. */
static void swap(engine *e, int cases) {
    static int32_t tokens[CONTEXT];
    const by_kv_layout *l = by_kv_layout_of(e->kv);
    unsigned char *slot = malloc((size_t)l->slot_bytes), *blocks = malloc((size_t)(l->block_bytes * 8));
    assert_true(slot && blocks);
    for (int c = 0; c < cases; c++) {
        int32_t n = random_prompt(tokens, 100, 500, e->V), at = 1 + (int32_t)by_rng_below(&rng, (uint64_t)n - 1);
        track through = track_open(e, tokens, n);
        run_to(e, &through, n, 0);
        track t = track_open(e, tokens, n);
        run_to(e, &t, at, 0);
        by_mem *slots = by_kv_slot_mem(e->kv), *pages = by_kv_main(e->kv, 0).mem;
        check(by_mem_read(slot, slots, (size_t)(t.kv.slot * l->slot_bytes), (size_t)l->slot_bytes, &err));
        check(by_mem_zero(slots, (size_t)(t.kv.slot * l->slot_bytes), (size_t)l->slot_bytes, &err));
        for (int32_t i = 0; i < t.kv.n_blocks; i++) {
            size_t off = (size_t)(t.kv.blocks[i] * l->block_bytes), bytes = (size_t)l->block_bytes;
            check(by_mem_read(blocks + (size_t)i * bytes, pages, off, bytes, &err));
            check(by_mem_zero(pages, off, bytes, &err));
            check(by_mem_write(pages, off, blocks + (size_t)i * bytes, bytes, &err));
        }
        int32_t old = t.kv.slot;
        t.kv.slot = by_kv_slot_acquire(e->kv); /* another slot, as after a swap */
        assert_true(t.kv.slot > 0);
        by_kv_slot_release(e->kv, old);
        check(by_mem_write(slots, (size_t)(t.kv.slot * l->slot_bytes), slot, (size_t)l->slot_bytes, &err));
        run_to(e, &t, n, 0);
        same_rows("swapped out and in", e, &through, &t, at);
        track_close(e, &t);
        track_close(e, &through);
    }
    free(slot);
    free(blocks);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static const char *model_path(int i) {
    if (i == 0) return by_source_path("models/tiny");
    return by_golden_path(i == 1 ? "model/tiny_a/checkpoint" : "model/tiny_b/checkpoint");
}

static int cases_for(const by_test_backend *b, int model) {
    if (b->backend == BY_BACKEND_GUARD) return model == 0 ? 0 : 1;
    if (model == 0) return b->backend == BY_BACKEND_CPU; /* the trained model is larger than the random ones */
    return by_test_scaled(4);
}

static void for_each(void (*one)(engine *, int)) {
    const by_test_backend *all;
    int n = by_test_backends(&all);
    for (int i = 0; i < n; i++) {
        for (int m = 0; m < 3; m++) {
            if (cases_for(&all[i], m) == 0) continue;
            engine e = engine_open(model_path(m), &all[i], 2, BY_TRUNC_OFF);
            one(&e, cases_for(&all[i], m));
            by_test_stepper_close(&e);
        }
    }
}

static void rows_do_not_depend_on_chunks_or_neighbours(void **s) { (void)s; for_each(chunks_and_neighbours); }
static void an_exact_replay_over_shared_blocks_equals_a_cold_run(void **s) { (void)s; for_each(replay); }
static void a_swapped_sequence_goes_on_as_if_never_moved(void **s) { (void)s; for_each(swap); }

static void truncated_rows_are_the_same_masked_or_dropped(void **s) {
    (void)s;
    const by_test_backend *all;
    int n = by_test_backends(&all);
    for (int i = 0; i < n; i++) {
        for (int m = 0; m < 3; m++) {
            if (cases_for(&all[i], m) == 0) continue;
            engine off = engine_open(model_path(m), &all[i], 2, BY_TRUNC_OFF);
            engine mask = engine_open(model_path(m), &all[i], 2, BY_TRUNC_MASK);
            engine compact = engine_open(model_path(m), &all[i], 2, BY_TRUNC_COMPACT);
            truncation(&off, &mask, &compact, cases_for(&all[i], m));
            by_test_stepper_close(&off);
            by_test_stepper_close(&mask);
            by_test_stepper_close(&compact);
        }
    }
}

static void rows_do_not_depend_on_threads(void **s) {
    (void)s;
    static int32_t tokens[CONTEXT];
    const by_test_backend *all;
    int n = by_test_backends(&all);
    for (int i = 0; i < n; i++) {
        if (all[i].backend != BY_BACKEND_CPU) continue;
        for (int m = 0; m < 3; m++) {
            engine one = engine_open(model_path(m), &all[i], 1, BY_TRUNC_OFF);
            int32_t len = random_prompt(tokens, 150, 300, one.V);
            track a = track_open(&one, tokens, len);
            run_to(&one, &a, len, 0);
            for (int32_t threads = 2; threads <= 5; threads++) {
                engine many = engine_open(model_path(m), &all[i], threads, BY_TRUNC_OFF);
                track b = track_open(&many, tokens, len);
                run_to(&many, &b, len, 0);
                same_rows("threads", &many, &a, &b, 0);
                track_close(&many, &b);
                by_test_stepper_close(&many);
            }
            track_close(&one, &a);
            by_test_stepper_close(&one);
        }
    }
}

int main(void) {
    rng = by_test_rng(20261129);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_depend_on_chunks_or_neighbours),
        cmocka_unit_test(truncated_rows_are_the_same_masked_or_dropped),
        cmocka_unit_test(an_exact_replay_over_shared_blocks_equals_a_cold_run),
        cmocka_unit_test(a_swapped_sequence_goes_on_as_if_never_moved),
        cmocka_unit_test(rows_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
