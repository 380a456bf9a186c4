/* inspect.h - private to the inspect command: everything it reports, gathered once, printed as text or as JSON. */
#ifndef BY_CLI_INSPECT_H
#define BY_CLI_INSPECT_H

#include "base/buf.h"
#include "model/checkpoint.h"
#include "model/footprint.h"
#include "model/placement.h"
#include "model/tensor_table.h"

typedef struct by_inspection {
    const char *dir;
    by_config config;
    by_checkpoint *ck;
    by_part_sums sums;
    int64_t resident_bytes;    /* weights without Engram tables, which stay mapped */
    int64_t step_fixed_bytes;  /* read by every decode step whatever the batch */
    int64_t step_expert_bytes; /* routed experts of one token, all layers */
    int64_t checked_bytes;     /* looked through for values that are not numbers */
    int64_t ctx_size, n_seqs;
    by_footprint footprint;
    by_memory_plan plan;
    bool is_placed; /* placement was asked for: caches as in plan */
    by_placement placement;
} by_inspection;

/* Aligned text for people, ASCII. */
void by_inspect_text(const by_inspection *in, by_buf *out);

/* One line of JSON; tests/integration/inspect.schema.json describes the keys. */
void by_inspect_json(const by_inspection *in, by_buf *out);

/* {"format": 1, "directory": ..., "problems": [...]} */
void by_inspect_problems_json(const char *dir, const by_problems *problems, by_buf *out);

#endif
