/* runner_impl.h - what runner.c (buffers, step description) and graph.c (the layers) share. */
#ifndef BY_MODEL_RUNNER_IMPL_H
#define BY_MODEL_RUNNER_IMPL_H

#include "model/host_experts.h"
#include "model/runner.h"

/* Activation buffers for max_rows rows. Quantised twins (_q) are absent in exact numerics. */
typedef struct by_buffers {
    by_tensor h, pre, post, comb;
    by_tensor y, y_q;           /* a sublayer's input after the norm */
    by_tensor qa, qr, qr_q;     /* low-rank query before and after its norm */
    by_tensor q, kv_raw, kv;    /* queries; window key before norm, as record */
    by_tensor v, s, latent, ik; /* compressor */
    by_tensor iq, iq_rec, iw;   /* indexer */
    by_tensor sel, cand;
    by_tensor o, t, t_q;        /* attention output, after wo_a */
    by_tensor out;              /* a sublayer's output */
    by_tensor idx, weight;      /* routing */
    by_tensor engram_e, engram_kv;
    by_tensor cs_window, cs_row, cs_entry[3]; /* rotations: window layers, compressed layers, entries by ratio */
    by_tensor close, logits;
} by_buffers;

/* Twins of the buffers that cross the boundary, for the rows that stay. */
typedef struct by_kept_buffers {
    by_tensor h, pre, post, comb, y, y_q, cs_window, cs_row;
} by_kept_buffers;

/* Drafting only. B sequences of one draft call, K drafts each. */
typedef struct by_draft_buffers {
    by_tensor features, features_q, features_kept; /* [T, n_targets * D] */
    by_tensor idx, weight;                         /* routing of the draft layers, [T, k] */
    by_tensor u, close;                            /* [B K, D]: last hidden before and after its norm, by draft, then sequence */
    by_tensor logits;                              /* [B K, V] */
    by_tensor conf;                                /* [4 B K, 1]: the halves of the confidences, first those from u, then those from e;
                                                    * behind them what was drawn on the device, [K][2][B] int32: all in one piece */
    by_tensor bias, e;                             /* one draft of every sequence: [B, V], [B, rank] */
} by_draft_buffers;

struct by_replays;

struct by_runner {
    by_model *model;
    by_kv *kv;
    by_runner_opts opts;
    by_host_experts *host; /* NULL: all experts are on the device */
    bool measures;         /* by_runner_reserve: operators compute nothing */
    by_mem *work; /* all activation buffers */
    by_buffers buf;
    by_mem *meta;   /* the step's description */
    by_staging *staging; /* the same on the host, for this step and the one before */
    int32_t *stage;    /* what is being filled */
    int64_t meta_ints, n_staged;
    by_kept_buffers kept_buf; /* absent without truncation */
    by_draft_buffers draft_buf; /* absent without drafts */
    int32_t max_draft_seqs;
    float *conf_halves; /* [4 max_draft_seqs n_drafts]: of the confidences, and what was drawn, on the host */
    int32_t *draft_ids; /* [max_draft_seqs]: the newest draft of each sequence */
    by_batch draft_block;     /* rows of the draft call */
    by_batch batch;           /* all rows */
    by_batch kept;            /* rows that stay behind the boundary; the same as batch unless a step compacts */
    by_tensor kept_rows;      /* their numbers in batch */
    by_tensor valid_from, keep_from; /* [n_seqs]: first visible window position before and behind the boundary */
    bool compacts, limits;    /* this step drops rows; has window limits */
    by_entries ent[3];        /* by ratio: 1, 2 */
    by_tensor ids, grams, rows;
    int32_t n_rows, n_logits, n_entries_max[3];
    int32_t n_own_rows, n_own_logits; /* without those that fill the step up to a size */
    int64_t padded_context; /* the step has a size that is recorded, as if its sequences were so long; 0 = it is as it is */
    by_tensor marks[BY_MARKS_N], all_marks; /* of the step; [2 * max_rows, 1], absent when nobody wants any */
    struct by_replays *replays; /* NULL: no step is recorded */
    int32_t longest; /* most rows of a sequence of this step */
    by_runner_tap *tap;
    void *tap_arg;
};

/* Views of a buffer's first n rows. */
static inline by_tensor by_first(by_tensor t, int64_t n) { return t.mem ? by_tensor_rows(t, 0, n) : t; }

/* Begins a description; sends what has been staged. */
by_status by_runner_stage_begin(by_runner *r, by_err *err);
by_status by_runner_stage_send(by_runner *r, by_err *err);
/* Space for n int32 in the staged description; *t becomes the device's view of it as rows x cols. */
int32_t *by_runner_stage(by_runner *r, by_tensor *t, int64_t rows, int64_t cols);

/* Runs all layers and the head on the step that r describes. */
by_status by_graph_run(by_runner *r, by_err *err);
/* Runs the draft layers on r->draft_block with r->ids; r->rows orders the outputs by draft, then sequence. */
by_status by_graph_run_block(by_runner *r, by_err *err);
/* Adds the Markov correction for the tokens prev [n] I32 to rows [first, first + n) of the draft logits, and leaves the
 * confidences' second half behind the first in conf. */
by_status by_graph_run_markov(by_runner *r, by_tensor prev, int32_t first, by_err *err);

/* runner_replay.c. pad: the step filled up to a size that is recorded, with the sequences it has in front, or `seqs` as it is; sets
 * padded_context. Valid until the next step. run: what by_graph_run does, from a recording when there is one. */
enum { BY_REPLAY_SPARE = 8 }; /* sequences of a step beyond max_seqs */
by_status by_replays_create(by_runner *r, by_err *err);
void by_replays_destroy(struct by_replays *p); /* NULL is allowed */
const by_step_seq *by_replays_pad(by_runner *r, const by_step_seq *seqs, int32_t *n_seqs);
by_status by_replays_run(by_runner *r, by_err *err);

/* The largest draft call, for by_runner_reserve: proposes nothing. */
by_status by_runner_measure_drafts(by_runner *r, by_err *err);

#endif
