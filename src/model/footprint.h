/* footprint.h - how much memory the caches of a model take, from its layer kinds alone.
 *
 * Two kinds of memory: blocks of 128 tokens hold what grows with the context (compressed KV and index keys of the KV
 * source layers), a state slot per sequence holds what does not (window rings of all layers, open pairs of the
 * compressors).
 *
 *   block  [ index keys of each KV source | compressed KV of each KV source | pad ]     each part padded to 32 bytes,
 * the block to a common multiple of 128 and the KV record slot   [ rings of the trunk layers | rings of the draft
 * layers | compressor tails ]  padded to a common multiple of 32 and the window record; a ring has window + backtrack
 * records
 *
 * Plain arithmetic, no state. Source: the cache layout of the engine; tests/unit/test_footprint.c has its published
 * sums. */
#ifndef BY_MODEL_FOOTPRINT_H
#define BY_MODEL_FOOTPRINT_H

#include <stdint.h>

#include "model/config.h"

#define BY_BLOCK_TOKENS 128 /* tokens of one KV block */

typedef struct by_footprint {
    int64_t window_record;                    /* bytes of one window KV entry: E4M3 and one scale per 32 */
    int64_t kv_record;                        /* of one compressed KV entry */
    int64_t index_record;                     /* of one index key */
    int64_t token_bytes_num, token_bytes_den; /* long-range bytes per token before padding, as a fraction */
    int64_t block_bytes;
    int64_t backtrack;   /* positions that may be taken back: drafts + 1 */
    int64_t ring_tokens; /* window + backtrack */
    int64_t ring_bytes;  /* one layer */
    int64_t tail_bytes;  /* compressor tails of one sequence */
    int64_t slot_bytes;
    int n_rings; /* trunk and draft layers */
} by_footprint;

/* n_draft_tokens: drafts of one step, 0..BY_LIMIT_DRAFT_BLOCK. */
void by_footprint_of(const by_config *c, int n_draft_tokens, by_footprint *out);

typedef struct by_memory_plan {
    int64_t n_blocks, n_slots;       /* block 0 and slot 0 included, which hold no data */
    int64_t block_bytes, slot_bytes; /* totals */
} by_memory_plan;

/* Memory for n_seqs sequences of n_tokens each: 1.2 slots a sequence and one to pad. n_tokens >= 1, n_seqs >= 1, both
 * at most 2^24. */
void by_footprint_plan(const by_footprint *f, int64_t n_tokens, int64_t n_seqs, by_memory_plan *out);

#endif
