/* runner_replay.c - decode steps as recordings: see by_device_record_begin in ops.h.
 *
 * A recording holds the numbers of its calls. So a step gets one of few sizes, and everything that depends on who is in it comes from its
 * description in device memory: rows are filled up with copies of the first row of the first sequence, which choose the experts that it
 * chooses and write the bytes that it writes to the same places; sequences with some that have no rows; entries with some in block 0; tables
 * of blocks and bounds of entries are as wide as sequences of a power of two of tokens need. A size is recorded when it comes the
 * second time: the first time operators make what they keep. Rows get the bits that they get in any other step. */
#include <string.h>

#include "base/alloc.h"
#include "model/runner_impl.h"

/* A recording takes some megabytes with a large model: the oldest one makes room. */
enum { KEPT_MAX = 48, MULTIPLE = BY_REPLAY_SPARE, CONTEXT_LEAST = 512 };

/* A size. */
typedef struct {
    int32_t rows;
    int64_t context;
    bool seen, refused; /* has run as it is; cannot be recorded */
    by_recording *recording; /* or NULL */
    by_tensor marks[BY_MARKS_N];
    uint64_t used;
} replay;

struct by_replays {
    int32_t most; /* rows */
    by_step_seq *seqs; /* [max_seqs + BY_REPLAY_SPARE]: a step that is filled up */
    by_kv_seq nobody;
    replay all[KEPT_MAX];
    int32_t n;
    uint64_t tick, n_replayed, n_recorded;
};

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

by_status by_replays_create(by_runner *r, by_err *err) {
    const by_runner_opts *o = &r->opts;
    if (o->replay_rows == 0 || !by_device_records(r->model->dev) || r->host) return BY_OK;
    r->replays = by_alloc_zero(BY_MEM_MODEL, sizeof *r->replays);
    if (!r->replays) return BY_FAIL(err, BY_ENOMEM, "out of memory for recorded steps");
    r->replays->most = least(o->replay_rows, least(o->max_rows, o->max_logits));
    r->replays->seqs = by_alloc(BY_MEM_MODEL, by_mul_size((size_t)o->max_seqs + BY_REPLAY_SPARE, sizeof *r->replays->seqs));
    return r->replays->seqs ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for recorded steps");
}

void by_replays_destroy(struct by_replays *p) {
    if (!p) return;
    for (int32_t i = 0; i < p->n; i++) by_recording_drop(p->all[i].recording);
    by_free(p->seqs);
    by_free(p);
}

by_replay_counts by_runner_replays(const by_runner *r) {
    by_replay_counts c = {0};
    if (!r->replays) return c;
    c = (by_replay_counts){.n_replayed = r->replays->n_replayed, .n_recorded = r->replays->n_recorded};
    for (int32_t i = 0; i < r->replays->n; i++) c.n_kept += r->replays->all[i].recording != NULL;
    return c;
}

/* ---- filling up ---- */

/* 1, 2, 4, multiples of 8, and the most there may be. */
static int32_t size_of(int32_t rows, int32_t most) {
    int32_t size = rows <= 2 ? rows : rows <= 4 ? 4 : (rows + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    return rows > most ? 0 : least(size, most);
}

/* Rows of a step that only decodes and wants logits of every row, else 0. */
static int32_t decode_rows(const by_runner *r, const by_step_seq *seqs, int32_t n_seqs) {
    int32_t rows = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        const by_step_seq *q = &seqs[s];
        int64_t at = q->kv->n_tokens;
        bool all_wanted = q->want == BY_WANT_ALL || (q->want == BY_WANT_LAST && q->n_rows == 1);
        if (!all_wanted || q->n_rows > 1 + r->opts.n_drafts || at < 1 || q->store_from > at || q->keep_from > at) return 0;
        rows += q->n_rows;
    }
    return rows;
}

const by_step_seq *by_replays_pad(by_runner *r, const by_step_seq *seqs, int32_t *n_seqs) {
    struct by_replays *p = r->replays;
    r->padded_context = 0;
    int32_t rows = p && !r->tap ? decode_rows(r, seqs, *n_seqs) : 0, size = rows ? size_of(rows, p->most) : 0;
    if (size == 0) return seqs;
    int64_t context = CONTEXT_LEAST;
    for (int32_t s = 0; s < *n_seqs; s++)
        while (context < seqs[s].kv->n_tokens + seqs[s].n_rows) context *= 2;
    r->padded_context = context < r->opts.max_context ? context : r->opts.max_context;
    r->n_own_rows = r->n_own_logits = rows;
    int32_t n = *n_seqs, all = least(size, r->opts.max_seqs + MULTIPLE - 1) + 1;
    memcpy(p->seqs, seqs, (size_t)n * sizeof *seqs);
    for (; rows < size; rows++) { /* entries are stored by the row that this is a copy of */
        p->seqs[n] = seqs[0];
        p->seqs[n].n_rows = 1;
        p->seqs[n].want = BY_WANT_ALL;
        p->seqs[n++].store_from = INT64_MAX;
    }
    while (n < all) p->seqs[n++] = (by_step_seq){.kv = &p->nobody};
    *n_seqs = n;
    return p->seqs;
}

/* ---- recording ---- */

static replay *find(struct by_replays *p, int32_t rows, int64_t context) {
    replay *oldest = &p->all[0];
    p->tick++;
    for (int32_t i = 0; i < p->n; i++) {
        replay *a = &p->all[i];
        if (a->used < oldest->used) oldest = a;
        if (a->rows != rows || a->context != context) continue;
        a->used = p->tick;
        return a;
    }
    if (p->n < KEPT_MAX) oldest = &p->all[p->n++];
    else by_recording_drop(oldest->recording);
    *oldest = (replay){.rows = rows, .context = context, .used = p->tick};
    return oldest;
}

/* What cannot be recorded runs as it is, for good. */
static void record(by_runner *r, replay *a) {
    by_err err;
    by_device *dev = r->model->dev;
    a->refused = true;
    if (by_device_record_begin(dev, &err) < 0) return;
    by_status status = by_graph_run(r, &err);
    by_status end = by_device_record_end(dev, status == BY_OK ? &a->recording : NULL, &err);
    a->refused = status < 0 || end < 0;
    memcpy(a->marks, r->marks, sizeof a->marks);
    r->replays->n_recorded += !a->refused;
}

by_status by_replays_run(by_runner *r, by_err *err) {
    replay *a = find(r->replays, r->n_rows, r->padded_context);
    if (a->recording && !by_recording_stands(a->recording)) {
        by_recording_drop(a->recording);
        a->recording = NULL;
        a->seen = false; /* what operators keep may be gone, too */
    }
    if (!a->recording && a->seen && !a->refused) record(r, a);
    a->seen = true;
    if (!a->recording) return by_graph_run(r, err);
    memcpy(r->marks, a->marks, sizeof r->marks);
    r->replays->n_replayed++;
    return by_recording_queue(a->recording, err);
}
