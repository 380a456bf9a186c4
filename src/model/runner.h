/* runner.h - runs the model on a step: any rows of any sequences, prefill and decode alike.
 *
 * A step lists sequences with the rows to compute for each; row i of a sequence is its token number kv->n_tokens + i. The
 * runner uploads the step's description, calls the operators of every layer in order, and leaves the logits of the wanted
 * rows in device memory. A chunk of any length at any position gives the same as token by token; on CPU backends bit for bit.
 *
 * The runner owns its activation buffers, sized for max_rows at creation: a step allocates nothing. Thread rule: one thread.
 * Source: model.md sections 2 to 12; golden: tests/golden/data/model. */
#ifndef BY_MODEL_RUNNER_H
#define BY_MODEL_RUNNER_H

#include "kv/kv.h"
#include "model/model.h"

typedef enum by_want {
    BY_WANT_NONE, /* caches only */
    BY_WANT_LAST, /* logits of the last row */
    BY_WANT_ALL   /* logits of every row */
} by_want;

/* What happens to decoder rows below keep_from (layers from by_model.boundary on, where no layer owns long-range state any
 * more). compact and mask give the same bits on the rows that stay. Source: engine.md section 6. */
typedef enum by_truncation {
    BY_TRUNC_OFF,    /* keep_from is ignored */
    BY_TRUNC_MASK,   /* all rows are computed, but decoder windows and rings begin at keep_from */
    BY_TRUNC_COMPACT /* rows below keep_from end at the boundary */
} by_truncation;

typedef struct by_step_seq {
    by_kv_seq *kv;         /* blocks for n_tokens + n_rows tokens are reserved; n_tokens grows by n_rows on success */
    const int32_t *tokens; /* ids of the whole sequence so far: [n_tokens + n_rows]; each in [0, vocab) */
    int32_t n_rows;        /* >= 1 */
    by_want want;          /* wanted rows must not lie below keep_from */
    int64_t store_from;    /* entries of tokens below it are in the caches already and are not written again; even */
    int64_t valid_from;    /* window keys below it are not visible: a replay begins there */
    int64_t keep_from;     /* first position with decoder rows; 0 = all */
} by_step_seq;

typedef struct by_runner by_runner;

typedef struct by_runner_opts {
    int32_t max_rows;    /* rows of one step, >= 1 */
    int32_t max_seqs;    /* sequences of one step, >= 1 */
    int32_t max_logits;  /* rows with logits of one step, >= 1 */
    int64_t max_context; /* tokens of the longest sequence, for scratch and block tables */
    by_truncation trunc;
    int32_t n_drafts;    /* longest draft block; 0 = nobody drafts, steps prepare nothing for it. Needs draft layers */
    int32_t replay_rows; /* decode steps of up to so many rows are recorded and queued as a whole, where the device can; 0 = none */
    bool marks;          /* steps say which of their rows are not finite: by_runner_marks */
    bool all_draft_rows; /* one draft call holds max_seqs sequences, however many bytes the logits of their drafts take */
} by_runner_opts;

/* model and kv must outlive the runner. Errors: BY_EINVAL, BY_ENOMEM. */
by_status by_runner_create(by_runner **out, by_model *model, by_kv *kv, const by_runner_opts *opts, by_err *err);
void by_runner_destroy(by_runner *r);

/* Makes the device allocate now what operators need for the largest step and draft call that the runner's options allow, so that no
 * later one allocates. Before the first step: the caches hold nothing behind it. Errors: BY_ENOMEM (with the bytes), those of the
 * operators. */
by_status by_runner_reserve(by_runner *r, by_err *err);

/* Runs a step. Errors: BY_EINVAL (an empty step, more rows than the runner holds, a token id out of range: named), those of
 * the operators. After an error the caches of the step's sequences hold n_tokens as before. */
by_status by_runner_step(by_runner *r, const by_step_seq *seqs, int32_t n_seqs, by_err *err);

/* What has gone wrong beside the device (experts on the host) since the last call, or BY_OK; the rows it concerned are NaN. by_runner_step
 * says so itself where the device works in host memory; one that runs by itself is known to have failed once its answers are
 * read: ask then. by_runner_read_logits and by_runner_draft have asked. */
by_status by_runner_problem(by_runner *r, by_err *err);

/* Logits of the last step: wanted rows in order of the step, [n, vocab] fp32 on the device. */
by_tensor by_runner_logits(const by_runner *r);
/* Copies row i to host memory, vocab floats. Errors: BY_EINVAL, BY_EDEVICE, what by_runner_problem tells. */
by_status by_runner_read_logits(const by_runner *r, int32_t i, float *dst, by_err *err);

/* With opts.marks: which rows of the last step are not finite, [rows, 1] int32 on the device, in order of the step: all rows where those in
 * front of the boundary end (BY_MARKS_BOUNDARY, compact truncation only), and behind the last layer what is left of them (BY_MARKS_LAST).
 * Both lie in one piece, the first one first. 0 rows: that place was not reached. */
typedef enum by_marks_place { BY_MARKS_BOUNDARY, BY_MARKS_LAST, BY_MARKS_N } by_marks_place;
by_tensor by_runner_marks(const by_runner *r, by_marks_place place);

/* Steps that were queued from a recording, and the recordings: made since the start, and there now. */
typedef struct by_replay_counts {
    uint64_t n_replayed, n_recorded;
    int32_t n_kept;
} by_replay_counts;
by_replay_counts by_runner_replays(const by_runner *r);

/* ---- drafts ---------------------------------------------------------------------------------------------------- */

/* What drafting asks of a backend beyond the trunk's operators (ops.h has their shapes):
 *   trunk steps   hc_read with pre of stride 0 into columns of a wider row (features), gather_rows of them, act8, matmul, rmsnorm,
 *                 window_kv and ring_store into the draft layers' rings
 *   draft calls   attention with `block` set (no pages, `from` as in steps; kv has the block's own records, which are stored nowhere),
 *                 router and moe with the draft's number of experts and no bias_vl, hc_read and hc_close of all rows in another order,
 *                 matmul of fp32 results with one column (confidences) and with [V, rank] BF16 weights (the Markov head), gather_rows
 *                 from its BF16 embedding, add of fp32 rows in place
 *   host          logits are looked at row by row through by_mem_view where the device does not draw; the confidences are read in the end */

/* A sequence whose newest token has been chosen and not been run: the draft layers propose what follows it. */
typedef struct by_draft_seq {
    int32_t slot;     /* state slot whose rings hold the rows of the tokens in front */
    int32_t token;    /* the newest token */
    int64_t position; /* its position: rows of all positions in front were part of steps */
    int64_t from;     /* window positions below it are not visible (keep_from or valid_from of its steps) */
} by_draft_seq;

/* Chooses the token of draft j (0-based) of each sequence: row i of logits [n, V] fp32 on the device is the proposal's law for
 * sequence i before temperature, behind the tokens chosen before. */
typedef by_status by_draft_pick(void *arg, int32_t j, by_tensor logits, int32_t *ids, by_err *err);
/* The same, queued on a device that draws: ids as by_draws.ids has them. Nobody waits between the drafts of a block. */
typedef by_status by_draft_queue(void *arg, int32_t j, by_tensor logits, by_tensor ids, by_err *err);
typedef struct by_draft_picker {
    by_draft_pick *pick;
    by_draft_queue *queue; /* in place of pick; NULL = pick */
    void *arg;
    int32_t *drawn; /* [n_drafts][n] with queue: what was drawn, -1 = nothing */
} by_draft_picker;

/* Proposes n_drafts (1..opts.n_drafts) tokens for each of n sequences, at most by_runner_draft_seqs of them. conf [n][n_drafts]
 * gets the confidence head's raw values: 1 / (1 + exp(-value / temperature)) estimates the chance that the draft is
 * accepted when the ones before it were. Reads caches and writes none. Errors: BY_EINVAL, those of the operators and of pick.
 * Source: dspark.md section 4; goldens: model/<checkpoint>/speculation.jsonl, draft_first.npz. */
by_status by_runner_draft(by_runner *r, const by_draft_seq *seqs, int32_t n, int32_t n_drafts, const by_draft_picker *picker, float *conf,
                          by_err *err);
int32_t by_runner_draft_seqs(const by_runner *r);

/* Called with the residual streams [rows, m * D] before layer 0 (layer = 0) and after every layer (layer + 1). Tests and
 * --dump-layers; NULL switches it off. */
typedef by_status by_runner_tap(void *arg, int32_t layer, by_tensor h, by_err *err);
void by_runner_set_tap(by_runner *r, by_runner_tap *tap, void *arg);

/* Experts of each row of the layer that ran last, [rows, k] int32 on the device: at a tap of layer l + 1, those of layer l. */
by_tensor by_runner_routing(const by_runner *r);

/* Bytes of device memory a runner with these options takes; and what operators then take at most beside it, on a device with memory of
 * its own (by_runner_reserve takes no more). Neither looks at weights: they are good for plans. */
int64_t by_runner_bytes(const by_model *model, const by_runner_opts *opts);
int64_t by_runner_scratch_bytes(const by_model *model, const by_runner_opts *opts);

#endif
