/* footprint.h - how much memory the caches of a model take, from its layer kinds alone.
 *
 * Two kinds of memory: blocks of 128 tokens hold what grows with the context (compressed KV and index keys of the KV
 * source layers), a state slot per sequence holds what does not (window rings of all layers, open pairs of compressors).
 * Their layout is kv/kv.h's; this part knows which layers of a configuration own what. Plain arithmetic. */
#ifndef BY_MODEL_FOOTPRINT_H
#define BY_MODEL_FOOTPRINT_H

#include <stdint.h>

#include "kv/kv.h"
#include "model/config.h"

/* What the caches of a configuration must hold. quantised: the record formats of the deployed model, else fp32.
 * backtrack: tokens that may be rolled back, the drafts of a step and one. */
void by_config_kv_spec(by_kv_spec *out, const by_config *c, bool quantised, int32_t backtrack);

typedef struct by_footprint {
    by_kv_layout layout;   /* of blocks and slots, quantised records */
    int64_t window_record; /* bytes of one window KV entry: E4M3 and one scale per 32 */
    int64_t kv_record;     /* of one compressed KV entry */
    int64_t index_record;  /* of one index key */
    double token_bytes;    /* long-range bytes per token before padding */
    int64_t tail_bytes;    /* compressor tails of one sequence */
} by_footprint;

/* n_draft_tokens: drafts of one step, 0..BY_LIMIT_DRAFT_BLOCK. Errors: those of by_kv_layout_make. */
by_status by_footprint_of(const by_config *c, int n_draft_tokens, by_footprint *out, by_err *err);

typedef struct by_memory_plan {
    int64_t n_blocks, n_slots;       /* block 0 and slot 0 included, which hold no data */
    int64_t block_bytes, slot_bytes; /* totals */
} by_memory_plan;

/* Memory for n_seqs sequences of n_tokens each: 1.2 slots a sequence and one to pad. n_tokens >= 1, n_seqs >= 1, both
 * at most 2^24. */
void by_footprint_plan(const by_footprint *f, int64_t n_tokens, int64_t n_seqs, by_memory_plan *out);

#endif
