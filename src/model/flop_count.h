/* flop_count.h - how many operations rows of a sequence take, in the unit of the original's MFU: operations of the FP8 units. A
 * multiply-add counts 2 with FP8, 1 with FP4, 4 with bf16 and 8 with fp32 operands. Draft layers and elementwise work are left out.
 * Plain arithmetic on a configuration. Source: engine.md section 10; docs/engine.md. */
#ifndef BY_MODEL_FLOP_COUNT_H
#define BY_MODEL_FLOP_COUNT_H

#include "model/config.h"

/* Sums over the layers in front of the boundary ([0]) and from it on ([1]). */
typedef struct by_flop_model {
    double row[2];          /* operations of a row that do not depend on its position */
    double cut;             /* of a row that goes behind the boundary, once */
    double entries[3];      /* [ratio]: of a token in front of the boundary, for its index keys */
    double window[2];       /* of a pair of a query and a key in the window */
    double selected[2][3];  /* [ratio]: of a pair with a selected entry */
    double scored[2][3];    /* [ratio]: of a pair whose score an indexer computes */
    double rescored[2][3];  /* [ratio]: the same inside the candidate blocks */
    double logits;          /* of a row of logits */
    int64_t n_window, topk, block, block_topk;
} by_flop_model;

/* boundary: the first layer of the second half, -1 = there is none. */
void by_flop_model_make(by_flop_model *out, const by_config *cfg, int32_t boundary);

typedef struct by_flop_count {
    double all, attention; /* attention: pairs only, selection included; a part of all */
} by_flop_count;

/* Rows of the positions [first, end) of one sequence, those from `kept` on (first <= kept <= end) also behind the boundary, and n_logits
 * rows of logits. */
by_flop_count by_flop_count_rows(const by_flop_model *m, int64_t first, int64_t end, int64_t kept, int64_t n_logits);

#endif
