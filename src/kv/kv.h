/* kv.h - the caches of one device: a pool of blocks for what grows with the context, a pool of slots for what does not.
 *
 *   block = BY_KV_BLOCK_TOKENS tokens of every long-range layer: [index keys of all sources | main entries of all sources],
 *           each part padded to 32 bytes, so that the index half can move alone
 *   slot  = [window ring of layer 0 | layer 1 | ... | draft layers | compressor tails]
 *
 * by_kv_layout is plain arithmetic on a by_kv_spec and can be used without a device (inspect prints it). by_kv owns the
 * memory. Block 0 and slot 0 are never handed out: zero means "none" and padding rows may write there. Blocks are counted:
 * a sequence holds one count of each of its blocks, and two sequences may share a block that neither will write again.
 * Not thread-safe: the step thread is the only user. Source: engine.md section 2. */
#ifndef BY_KV_KV_H
#define BY_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "ops/ops.h"

#define BY_KV_BLOCK_TOKENS 128
#define BY_KV_SOURCES_MAX 256

typedef struct by_kv_spec {
    int32_t n_rings;   /* trunk layers, then draft layers */
    int32_t head_dim, index_dim;
    int32_t window;    /* W */
    int32_t backtrack; /* tokens that may be rolled back: the ring holds W + backtrack */
    int32_t n_sources;
    int32_t source_ratio[BY_KV_SOURCES_MAX]; /* 1 or 2, in layer order */
    by_rec ring_rec, main_rec, index_rec;
} by_kv_spec;

typedef struct by_kv_layout {
    by_kv_spec spec;
    int32_t ring_len, tail_len, n_tails;
    int64_t ring_bytes;                     /* one layer's ring */
    int64_t slot_bytes, tails_off;          /* tails follow the rings */
    int64_t tail_bytes;                     /* one layer's tail */
    int64_t block_bytes;                    /* incl. padding */
    int64_t main_off[BY_KV_SOURCES_MAX];    /* of source i in a block */
    int64_t index_off[BY_KV_SOURCES_MAX];
    int64_t token_bytes_x128;               /* block_bytes without padding: bytes per 128 tokens */
} by_kv_layout;

/* Errors: BY_EINVAL (a number out of range, named). */
by_status by_kv_layout_make(by_kv_layout *out, const by_kv_spec *spec, by_err *err);

/* Blocks that n tokens need. */
static inline int64_t by_kv_blocks_for(int64_t n_tokens) {
    return (n_tokens + BY_KV_BLOCK_TOKENS - 1) / BY_KV_BLOCK_TOKENS;
}

typedef struct by_kv by_kv;

typedef struct by_kv_opts {
    int32_t n_blocks; /* usable blocks, >= 1 */
    int32_t n_slots;  /* usable slots, >= 1 */
} by_kv_opts;

/* Allocates both pools on dev, which must outlive the caches. Errors: BY_ENOMEM, BY_EINVAL. */
by_status by_kv_create(by_kv **out, by_device *dev, const by_kv_layout *layout, const by_kv_opts *opts, by_err *err);
/* NULL is allowed. All blocks and slots must have been released (asserted). */
void by_kv_destroy(by_kv *kv);
const by_kv_layout *by_kv_layout_of(const by_kv *kv);

/* A block or slot with count 1; -1 when none is free. The content is what its last owner left. A block that carried a key
 * loses it. */
int32_t by_kv_block_acquire(by_kv *kv);
/* One more count; also takes a released block out of the free list again (a prefix hit). */
void by_kv_block_retain(by_kv *kv, int32_t block);
/* At count 0 the block goes to the end of the free list and stays findable by its key until it is handed out again. */
void by_kv_block_release(by_kv *kv, int32_t block);
int32_t by_kv_block_count(const by_kv *kv, int32_t block);
int32_t by_kv_slot_acquire(by_kv *kv);
void by_kv_slot_release(by_kv *kv, int32_t slot);
int32_t by_kv_blocks_free(const by_kv *kv); /* keyed ones included */
int32_t by_kv_slots_free(const by_kv *kv);
int32_t by_kv_n_blocks(const by_kv *kv);
int32_t by_kv_n_slots(const by_kv *kv);

/* ---- prefix index ---------------------------------------------------------------------------------------------- */

/* Name of a block's content: SHA-256 over the key of the block in front and its own tokens, so that equal keys mean equal
 * prefixes. Not a fast hash: keys decide whose data is reused, and collisions must not be constructible. */
typedef struct by_kv_key {
    uint8_t bytes[32];
} by_kv_key;

/* Root of a chain: everything that must be equal for blocks to be shared (model, numerics, layout, tenant), as text. */
by_kv_key by_kv_key_root(const void *data, size_t n);
/* keys[i] of block first + i from tokens of the whole sequence; `before` is the key of block first - 1, or the root. */
void by_kv_key_chain(by_kv_key *keys, const by_kv_key *before, const int32_t *tokens, int64_t first, int64_t n_blocks);

/* Gives a block in use a key. When another block has it already, nothing changes (false). */
bool by_kv_block_publish(by_kv *kv, int32_t block, const by_kv_key *key);
/* Block with this key, -1 when there is none. It may be in use or free: retain it before anything else is acquired. */
int32_t by_kv_block_find(const by_kv *kv, const by_kv_key *key);
/* Number of blocks that carry a key. */
int32_t by_kv_blocks_keyed(const by_kv *kv);
/* How many have lost theirs, because they were handed out again. */
uint64_t by_kv_blocks_forgotten(const by_kv *kv);

/* Views for operators: ring of layer l, tail of the i-th ratio-2 source, pages of source i. */
by_ring by_kv_ring(const by_kv *kv, int32_t layer);
by_pages by_kv_main(const by_kv *kv, int32_t source);
by_pages by_kv_index(const by_kv *kv, int32_t source);
by_mem *by_kv_slot_mem(const by_kv *kv);
by_mem *by_kv_block_mem(const by_kv *kv); /* NULL for a model of window layers only */
int64_t by_kv_tail_off(const by_kv *kv, int32_t source);

/* What one sequence holds in the caches. Zero-initialise with by_kv_seq_init. */
typedef struct by_kv_seq {
    int64_t n_tokens;  /* tokens whose state is in the caches */
    int32_t slot;      /* 0 = none yet */
    int32_t n_blocks, cap_blocks;
    int32_t *blocks;   /* block table */
} by_kv_seq;

/* Takes a slot and room for cap_tokens tokens in the table (no blocks yet). BY_EBUSY when no slot is free. */
by_status by_kv_seq_init(by_kv_seq *seq, by_kv *kv, int64_t cap_tokens, by_err *err);
/* Makes sure that the table covers n_tokens tokens. BY_EBUSY when blocks are missing (what was taken stays);
 * BY_ECONTEXT beyond cap_tokens. */
by_status by_kv_seq_reserve(by_kv_seq *seq, by_kv *kv, int64_t n_tokens, by_err *err);
/* Back to an empty sequence that keeps its slot and table. */
void by_kv_seq_clear(by_kv_seq *seq, by_kv *kv);
void by_kv_seq_deinit(by_kv_seq *seq, by_kv *kv);

#endif
