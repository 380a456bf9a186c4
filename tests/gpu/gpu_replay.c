/* gpu_replay.c - steps from recordings against steps as they are, with a small model on the device: two runners in the same steps, whose
 * logits must have the same bits. Sequences come and go, so that sizes and who fills them change; they stand at even and odd places, some
 * with several rows as drafts have, one with a limit of its window; they grow past the context that a recording was made for; what the rows
 * that fill a step up leave behind is poisoned; memory is freed in between, behind which nothing recorded may be used. Exit code 1 when
 * something differs, 77 when the machine has no device.
 * usage: gpu_replay MODEL */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_support.h"
#include "model/runner.h"

enum { SEQS = 5, DRAFTS = 2, MOST = 20, CONTEXT = 1200 };
#ifdef BY_CUDA_HOST
enum { ROUNDS = 8, PROMPT = 20 };
#else
enum { ROUNDS = 200, PROMPT = 96 };
#endif

/* One runner with caches of its own. */
typedef struct {
    by_kv *kv;
    by_runner *runner;
    by_kv_seq seqs[SEQS];
    float *logits; /* [MOST, V] */
} side;

static by_device *dev;
static by_model *model;
static int32_t tokens[SEQS][CONTEXT];
static int n_failed;

static void side_open(side *s, int32_t replay_rows) {
    by_kv_layout layout;
    MUST(by_model_kv_layout(&layout, model, 6, err));
    by_kv_opts pool = {.n_blocks = SEQS * (CONTEXT / 128 + 1), .n_slots = SEQS};
    MUST(by_kv_create(&s->kv, dev, &layout, &pool, err));
    by_runner_opts o = {.max_rows = PROMPT, .max_seqs = SEQS, .max_logits = MOST, .max_context = CONTEXT, .replay_rows = replay_rows,
                        .marks = true, .n_drafts = DRAFTS, .trunc = BY_TRUNC_COMPACT};
    MUST(by_runner_create(&s->runner, model, s->kv, &o, err));
    MUST(by_runner_reserve(s->runner, err));
    for (int i = 0; i < SEQS; i++) {
        MUST(by_kv_seq_init(&s->seqs[i], s->kv, CONTEXT, err));
        MUST(by_kv_seq_reserve(&s->seqs[i], s->kv, CONTEXT, err));
    }
    s->logits = malloc((size_t)MOST * (size_t)model->cfg.vocab_size * 4);
}
static void side_close(side *s) {
    for (int i = 0; i < SEQS; i++) by_kv_seq_deinit(&s->seqs[i], s->kv);
    by_runner_destroy(s->runner);
    by_kv_destroy(s->kv);
    free(s->logits);
}

/* What no own row wrote is not to be read: the rows behind the logits of the step, and block 0 and slot 0, which nobody owns. */
static void poison(side *s, int32_t n) {
    unsigned char *nan = malloc(1 << 16);
    memset(nan, 0xff, 1 << 16);
    by_tensor l = by_runner_logits(s->runner);
    size_t row = (size_t)l.stride;
    for (int32_t i = n; i < MOST; i++) MUST(by_mem_write(l.mem, (size_t)l.off + (size_t)i * row, nan, row < 1 << 16 ? row : 1 << 16, err));
    const by_kv_layout *k = by_kv_layout_of(s->kv);
    by_mem *mem[] = {by_kv_slot_mem(s->kv), by_kv_block_mem(s->kv)};
    int64_t bytes[] = {k->slot_bytes, k->block_bytes};
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; mem[i] && at < bytes[i]; at += 1 << 16)
            MUST(by_mem_write(mem[i], (size_t)at, nan, (size_t)(bytes[i] - at < 1 << 16 ? bytes[i] - at : 1 << 16), err));
    free(nan);
}

/* A step of those sequences with rows[i] > 0; returns the rows of logits. */
static int32_t step(side *s, const int32_t *rows, const int64_t *from) {
    by_step_seq q[SEQS];
    int32_t n = 0, wanted = 0, marked[BY_MARKS_N], *bad = malloc(2 * MOST * 4);
    for (int i = 0; i < SEQS; i++) {
        if (rows[i] == 0) continue;
        q[n] = (by_step_seq){.kv = &s->seqs[i], .tokens = tokens[i], .n_rows = rows[i], .want = rows[i] > 1 ? BY_WANT_ALL : BY_WANT_LAST,
                             .valid_from = from[i], .keep_from = from[i]};
        if (rows[i] > 1 + DRAFTS) q[n].want = BY_WANT_NONE;
        else wanted += rows[i];
        n++;
    }
    MUST(by_runner_step(s->runner, q, n, err));
    if (wanted == 0) {
        free(bad);
        return 0;
    }
    by_tensor l = by_runner_logits(s->runner);
    if (l.rows != wanted) printf("%d rows of logits instead of %d FAILED\n", (int)l.rows, wanted), n_failed++;
    MUST(by_mem_read(s->logits, l.mem, (size_t)l.off, (size_t)(wanted * l.stride), err));
    for (int p = 0; p < BY_MARKS_N; p++) {
        by_tensor m = by_runner_marks(s->runner, (by_marks_place)p);
        marked[p] = (int32_t)m.rows;
        MUST(by_mem_read(bad, m.mem, (size_t)m.off, (size_t)m.rows * 4, err));
        for (int64_t i = 0; i < m.rows; i++) n_failed += bad[i] != 0;
    }
    if (marked[BY_MARKS_LAST] != wanted) printf("%d marks instead of %d FAILED\n", marked[BY_MARKS_LAST], wanted), n_failed++;
    free(bad);
    return wanted;
}

/* Greedy tokens of the rows that ran; drafts are any tokens, and as many of them stay as chance has it. */
static void choose(side *both, const int32_t *rows) {
    int32_t V = model->cfg.vocab_size, at = 0;
    for (int i = 0; i < SEQS; i++) {
        if (rows[i] == 0) continue;
        int32_t stay = 1 + (int32_t)(rnd() % (uint32_t)rows[i]);
        int64_t first = both[0].seqs[i].n_tokens - rows[i];
        const float *row = both[0].logits + (size_t)(at + stay - 1) * (size_t)V;
        int32_t best = 0;
        for (int32_t v = 1; v < V; v++) best = row[v] > row[best] ? v : best;
        for (int k = 0; k < 2; k++) both[k].seqs[i].n_tokens = first + stay;
        tokens[i][first + stay] = best;
        for (int j = 1; j <= DRAFTS; j++) tokens[i][first + stay + j] = (int32_t)(rnd() % (uint32_t)V);
        at += rows[i];
    }
}

static void run(side *both, int n_rounds, const int64_t *from) {
    size_t V = (size_t)model->cfg.vocab_size;
    for (int round = 0; round < n_rounds; round++) {
        int32_t rows[SEQS] = {0}, n[2];
        int many = round % 4 < 3 ? 3 + round / 8 % 4 : 1; /* sizes come again, with others in them */
        for (int k = 0; k < many && k < SEQS; k++) rows[(round + k) % SEQS] = round % 3 == 2 ? 1 + k % (1 + DRAFTS) : 1;
        for (int k = 0; k < 2; k++) n[k] = step(&both[k], rows, from);
        if (memcmp(both[0].logits, both[1].logits, (size_t)n[0] * V * 4) != 0) printf("round %d differs FAILED\n", round), n_failed++;
        choose(both, rows);
        poison(&both[1], n[1]);
    }
}

int main(int argc, char **argv) {
    static side both[2];
    if (argc < 2) return fprintf(stderr, "usage: gpu_replay MODEL\n"), 2;
    by_err why = {0};
    by_status status = by_device_open(&dev, &(by_device_opts){.backend = BY_BACKEND_CUDA}, &why);
    if (status == BY_EUNSUPPORTED) return printf("skipped: %s\n", why.msg), 77;
    if (status < 0) return fprintf(stderr, "gpu_replay: %s\n", why.msg), 1;
    by_model_opts opts = {.numerics = BY_NUMERICS_DEPLOYED};
    MUST(by_model_open(&model, argv[1], dev, &opts, err));
    rnd_state = 5;
    side_open(&both[0], 0);
    side_open(&both[1], MOST);
    int64_t from[SEQS] = {0};
    for (int i = 0; i < SEQS; i++) {
        int32_t rows[SEQS] = {0};
        for (int k = 0; k < CONTEXT; k++) tokens[i][k] = (int32_t)(rnd() % (uint32_t)model->cfg.vocab_size);
        rows[i] = i == 1 ? PROMPT : 4 + i * 2;
        for (int k = 0; k < 2; k++) step(&both[k], rows, from);
        if (i == 3) from[i] = 2; /* its window begins there from now on */
    }
    run(both, ROUNDS, from);
    by_replay_counts a = by_runner_replays(both[1].runner);
    bool ok = a.n_recorded >= 3 && a.n_replayed > a.n_recorded && a.n_kept == (int32_t)a.n_recorded;
    printf("%d recordings, %d steps from them %s\n", (int)a.n_recorded, (int)a.n_replayed, ok ? "ok" : "FAILED");
    n_failed += !ok;
    by_mem *gone = NULL; /* recordings might name it */
    MUST(by_mem_alloc(&gone, dev, 4096, err));
    by_mem_free(gone);
    run(both, ROUNDS / 2, from);
    by_replay_counts b = by_runner_replays(both[1].runner);
    ok = b.n_recorded > a.n_recorded && b.n_kept < (int32_t)b.n_recorded && by_runner_replays(both[0].runner).n_replayed == 0;
    printf("%d more once memory was freed %s\n", (int)(b.n_recorded - a.n_recorded), ok ? "ok" : "FAILED");
    n_failed += !ok;
    for (int k = 0; k < 2; k++) { /* past 512 tokens: wider tables */
        both[k].seqs[1].n_tokens = 510;
        both[k].seqs[0].n_tokens = 7;
    }
    run(both, ROUNDS / 2, from);
    printf("%d comparisons failed\n", n_failed);
    for (int k = 0; k < 2; k++) side_close(&both[k]);
    by_model_close(model);
    by_device_close(dev);
    return n_failed != 0;
}
