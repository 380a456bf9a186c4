/* kv_pool.c - the pools of kv.h: counts, free lists and keys on the host, bytes on the device. Free blocks are reused in the
 * order in which they were released, so a released block keeps its content and its key as long as possible. The free list is
 * doubly linked, because a prefix hit takes a block out of its middle; keys lie in an open hash table of block numbers. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "kv/kv.h"

typedef struct {
    by_kv_key key;
    int32_t count;
    int32_t prev, next; /* in the free list; 0 = the list's ends */
    bool keyed;
} block_info;

struct by_kv {
    by_kv_layout layout;
    by_mem *blocks, *slots;
    block_info *info;   /* [n_blocks + 1]; info[0] is the free list's head: next = oldest, prev = newest */
    int32_t *table;     /* [n_table] block numbers by key, 0 = empty */
    uint32_t n_table;   /* power of two */
    int32_t *slot_free; /* stack */
    int32_t n_blocks, n_slots, n_free, n_slot_free, n_keyed;
    uint64_t n_forgotten;
};

/* ---- free list ---- */

static void list_push(by_kv *kv, int32_t b) {
    block_info *i = kv->info;
    i[b].prev = i[0].prev;
    i[b].next = 0;
    i[i[0].prev].next = b;
    i[0].prev = b;
    kv->n_free++;
}

static void list_remove(by_kv *kv, int32_t b) {
    block_info *i = kv->info;
    i[i[b].prev].next = i[b].next;
    i[i[b].next].prev = i[b].prev;
    kv->n_free--;
}

/* ---- key table: linear probing, deletion by moving later entries back ---- */

static uint32_t home(const by_kv *kv, const by_kv_key *key) {
    uint32_t h;
    memcpy(&h, key->bytes, 4);
    return h & (kv->n_table - 1);
}

static uint32_t probe(const by_kv *kv, const by_kv_key *key) {
    uint32_t at = home(kv, key);
    while (kv->table[at] && memcmp(&kv->info[kv->table[at]].key, key, sizeof *key) != 0) at = (at + 1) & (kv->n_table - 1);
    return at;
}

static void table_remove(by_kv *kv, int32_t block) {
    uint32_t mask = kv->n_table - 1, hole = probe(kv, &kv->info[block].key);
    assert(kv->table[hole] == block);
    for (uint32_t at = (hole + 1) & mask; kv->table[at]; at = (at + 1) & mask) {
        uint32_t want = home(kv, &kv->info[kv->table[at]].key);
        if (((at - want) & mask) < ((at - hole) & mask)) continue; /* it would move in front of its home */
        kv->table[hole] = kv->table[at];
        hole = at;
    }
    kv->table[hole] = 0;
    kv->info[block].keyed = false;
    kv->n_keyed--;
}

by_status by_kv_create(by_kv **out, by_device *dev, const by_kv_layout *layout, const by_kv_opts *opts, by_err *err) {
    *out = NULL;
    if (opts->n_blocks < 1 || opts->n_blocks == INT32_MAX)
        return BY_FAIL(err, BY_EINVAL, "kv-blocks: %d is outside 1..", opts->n_blocks);
    if (opts->n_slots < 1 || opts->n_slots > 2 * BY_LIMIT_SEQS)
        return BY_FAIL(err, BY_EINVAL, "state-slots: %d is outside 1..%d", opts->n_slots, 2 * BY_LIMIT_SEQS);
    by_kv *kv = by_alloc_zero(BY_MEM_KV, sizeof *kv);
    if (!kv) return BY_FAIL(err, BY_ENOMEM, "out of memory for the caches");
    kv->layout = *layout;
    kv->n_blocks = opts->n_blocks;
    kv->n_slots = opts->n_slots;
    kv->n_table = 16;
    while (kv->n_table < 2 * (uint32_t)opts->n_blocks) kv->n_table *= 2;
    kv->info = by_alloc_zero(BY_MEM_KV, ((size_t)opts->n_blocks + 1) * sizeof *kv->info);
    kv->table = by_alloc_zero(BY_MEM_KV, (size_t)kv->n_table * 4);
    kv->slot_free = by_alloc(BY_MEM_KV, (size_t)opts->n_slots * 4);
    by_status status = BY_OK;
    if (!kv->info || !kv->table || !kv->slot_free) status = BY_FAIL(err, BY_ENOMEM, "out of memory for the caches");
    size_t slots = by_mul_size((size_t)layout->slot_bytes, (size_t)opts->n_slots + 1);
    size_t blocks = by_mul_size((size_t)layout->block_bytes, (size_t)opts->n_blocks + 1);
    if (status == BY_OK) status = by_mem_alloc(&kv->slots, dev, slots, err);
    if (status == BY_OK && layout->block_bytes) status = by_mem_alloc(&kv->blocks, dev, blocks, err);
    if (status < 0) {
        by_kv_destroy(kv);
        return status;
    }
    for (int32_t b = 1; b <= opts->n_blocks; b++) list_push(kv, b);
    while (kv->n_slot_free < opts->n_slots) { /* the lowest is on top */
        kv->slot_free[kv->n_slot_free] = opts->n_slots - kv->n_slot_free;
        kv->n_slot_free++;
    }
    *out = kv;
    return BY_OK;
}

void by_kv_destroy(by_kv *kv) {
    if (!kv) return;
    assert(kv->n_free == 0 || (kv->n_free == kv->n_blocks && kv->n_slot_free == kv->n_slots));
    by_mem_free(kv->slots);
    by_mem_free(kv->blocks);
    by_free(kv->info);
    by_free(kv->table);
    by_free(kv->slot_free);
    by_free(kv);
}

const by_kv_layout *by_kv_layout_of(const by_kv *kv) { return &kv->layout; }

int32_t by_kv_block_acquire(by_kv *kv) {
    int32_t b = kv->info[0].next;
    if (b == 0) return -1;
    list_remove(kv, b);
    if (kv->info[b].keyed) {
        table_remove(kv, b);
        kv->n_forgotten++;
    }
    kv->info[b].count = 1;
    return b;
}

void by_kv_block_retain(by_kv *kv, int32_t block) {
    assert(block > 0 && block <= kv->n_blocks);
    if (kv->info[block].count++ == 0) list_remove(kv, block);
}

void by_kv_block_release(by_kv *kv, int32_t block) {
    assert(block > 0 && block <= kv->n_blocks && kv->info[block].count > 0);
    if (--kv->info[block].count == 0) list_push(kv, block);
}

int32_t by_kv_slot_acquire(by_kv *kv) { return kv->n_slot_free ? kv->slot_free[--kv->n_slot_free] : -1; }

void by_kv_slot_release(by_kv *kv, int32_t slot) {
    assert(slot > 0 && slot <= kv->n_slots && kv->n_slot_free < kv->n_slots);
    kv->slot_free[kv->n_slot_free++] = slot;
}

int32_t by_kv_block_count(const by_kv *kv, int32_t block) { return kv->info[block].count; }
int32_t by_kv_blocks_free(const by_kv *kv) { return kv->n_free; }
int32_t by_kv_slots_free(const by_kv *kv) { return kv->n_slot_free; }
int32_t by_kv_n_blocks(const by_kv *kv) { return kv->n_blocks; }
int32_t by_kv_n_slots(const by_kv *kv) { return kv->n_slots; }
by_mem *by_kv_slot_mem(const by_kv *kv) { return kv->slots; }
by_mem *by_kv_block_mem(const by_kv *kv) { return kv->blocks; }

/* ---- prefix index ---- */

by_kv_key by_kv_key_root(const void *data, size_t n) {
    by_kv_key key;
    by_sha256(data, n, key.bytes);
    return key;
}

void by_kv_key_chain(by_kv_key *keys, const by_kv_key *before, const int32_t *tokens, int64_t first, int64_t n_blocks) {
    struct {
        by_kv_key before;
        uint8_t ids[BY_KV_BLOCK_TOKENS][4];
    } text = {.before = *before};
    for (int64_t i = 0; i < n_blocks; i++) {
        const int32_t *t = tokens + (first + i) * BY_KV_BLOCK_TOKENS;
        for (int k = 0; k < BY_KV_BLOCK_TOKENS; k++)
            for (int byte = 0; byte < 4; byte++) text.ids[k][byte] = (uint8_t)((uint32_t)t[k] >> 8 * byte);
        by_sha256(&text, sizeof text, keys[i].bytes);
        text.before = keys[i];
    }
}

bool by_kv_block_publish(by_kv *kv, int32_t block, const by_kv_key *key) {
    assert(kv->info[block].count > 0);
    if (kv->info[block].keyed) return memcmp(&kv->info[block].key, key, sizeof *key) == 0;
    uint32_t at = probe(kv, key);
    if (kv->table[at]) return false;
    kv->table[at] = block;
    kv->info[block].key = *key;
    kv->info[block].keyed = true;
    kv->n_keyed++;
    return true;
}

int32_t by_kv_block_find(const by_kv *kv, const by_kv_key *key) {
    int32_t b = kv->table[probe(kv, key)];
    return b ? b : -1;
}

int32_t by_kv_blocks_keyed(const by_kv *kv) { return kv->n_keyed; }
uint64_t by_kv_blocks_forgotten(const by_kv *kv) { return kv->n_forgotten; }

by_ring by_kv_ring(const by_kv *kv, int32_t layer) {
    const by_kv_layout *l = &kv->layout;
    return (by_ring){kv->slots, layer * l->ring_bytes, l->slot_bytes, l->ring_len, l->spec.ring_rec};
}

by_pages by_kv_main(const by_kv *kv, int32_t source) {
    const by_kv_layout *l = &kv->layout;
    return (by_pages){kv->blocks, l->main_off[source], l->block_bytes, BY_KV_BLOCK_TOKENS / l->spec.source_ratio[source],
                      l->spec.main_rec};
}

by_pages by_kv_index(const by_kv *kv, int32_t source) {
    const by_kv_layout *l = &kv->layout;
    return (by_pages){kv->blocks, l->index_off[source], l->block_bytes, BY_KV_BLOCK_TOKENS / l->spec.source_ratio[source],
                      l->spec.index_rec};
}

int64_t by_kv_tail_off(const by_kv *kv, int32_t source) {
    int64_t before = 0;
    for (int32_t i = 0; i < source; i++) before += kv->layout.spec.source_ratio[i] == 2;
    return kv->layout.tails_off + before * kv->layout.tail_bytes;
}

/* ---- sequences ------------------------------------------------------------------------------------------------ */

by_status by_kv_seq_init(by_kv_seq *seq, by_kv *kv, int64_t cap_tokens, by_err *err) {
    *seq = (by_kv_seq){0};
    int64_t cap = kv->blocks ? by_kv_blocks_for(cap_tokens) : 1;
    if (cap < 1 || cap > INT32_MAX) return BY_FAIL(err, BY_EINVAL, "a sequence of %lld tokens", (long long)cap_tokens);
    seq->blocks = by_alloc_zero(BY_MEM_KV, (size_t)cap * 4);
    if (!seq->blocks) return BY_FAIL(err, BY_ENOMEM, "out of memory for a block table");
    seq->cap_blocks = (int32_t)cap;
    int32_t slot = by_kv_slot_acquire(kv);
    if (slot < 0) {
        by_free(seq->blocks);
        *seq = (by_kv_seq){0};
        return BY_FAIL(err, BY_EBUSY, "all %d state slots are in use", kv->n_slots);
    }
    seq->slot = slot;
    return BY_OK;
}

by_status by_kv_seq_reserve(by_kv_seq *seq, by_kv *kv, int64_t n_tokens, by_err *err) {
    if (!kv->blocks) return BY_OK; /* a model of window layers only */
    int64_t need = by_kv_blocks_for(n_tokens);
    if (need > seq->cap_blocks)
        return BY_FAIL(err, BY_ECONTEXT, "%lld tokens are over the sequence's limit of %lld", (long long)n_tokens,
                       (long long)seq->cap_blocks * BY_KV_BLOCK_TOKENS);
    while (seq->n_blocks < need) {
        int32_t b = by_kv_block_acquire(kv);
        if (b < 0) return BY_FAIL(err, BY_EBUSY, "all %d KV blocks are in use", kv->n_blocks);
        seq->blocks[seq->n_blocks++] = b;
    }
    return BY_OK;
}

void by_kv_seq_clear(by_kv_seq *seq, by_kv *kv) {
    while (seq->n_blocks > 0) by_kv_block_release(kv, seq->blocks[--seq->n_blocks]); /* deep blocks are reused first */
    seq->n_tokens = 0;
}

void by_kv_seq_deinit(by_kv_seq *seq, by_kv *kv) {
    if (!seq->blocks) return;
    by_kv_seq_clear(seq, kv);
    by_kv_slot_release(kv, seq->slot);
    by_free(seq->blocks);
    *seq = (by_kv_seq){0};
}
