/* graph_impl.h - private to graph*.c: one pass over layers. */
#ifndef BY_MODEL_GRAPH_IMPL_H
#define BY_MODEL_GRAPH_IMPL_H

#include "model/runner_impl.h"

typedef struct by_pass {
    by_runner *r;
    const by_model *m;
    const by_config *c;
    const by_layer *kind;
    const by_layer_weights *w;
    by_device *dev;
    by_buffers b; /* views of this pass's rows */
    by_batch batch;
    by_tensor from; /* first visible window position of each sequence, in this half of the model */
    by_tensor features; /* trunk: what the drafts read, [rows, n_targets * D]; absent when nobody drafts */
    int32_t layer;      /* its ring; draft layers follow the trunk's */
    int32_t n_experts;  /* routed experts of a layer */
    bool owes;          /* the last sublayer's output is not yet written back to the streams */
    bool block;         /* rows are draft blocks: attention in both directions, rings are only read */
    by_err *err;
} by_pass;

/* What an FP8 or FP4 product reads: the quantised twin, or the plain rows in exact numerics. */
by_tensor by_graph_quantised(const by_pass *p, by_tensor q, by_tensor plain);
/* First n rows of every per-row buffer; what has another number of rows is cut where it is used. */
void by_graph_cut_rows(by_buffers *b, int64_t n, int32_t index_heads);
/* The two sublayers of p->layer. After attention batch.n_rows may be 0: every row ended at the boundary. Each leaves its output for the
 * next one to write back: who reads the streams in between settles that first. */
by_status by_graph_attention(by_pass *p);
by_status by_graph_experts(by_pass *p);
by_status by_graph_settle(by_pass *p);

/* graph_draft.c: the trunk's side of drafting, nothing when the runner has no drafts. take: the mean of the streams in front of
 * a target layer. compact: the boundary leaves n rows. context: rings of the draft layers from the features. */
by_status by_graph_take_features(by_pass *p);
by_status by_graph_compact_features(by_pass *p, int64_t n);
by_status by_graph_draft_context(by_pass *p);

#endif
