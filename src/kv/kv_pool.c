/* kv_pool.c - the pools of kv.h: counts and free lists on the host, bytes on the device. Free blocks are reused in the
 * order in which they were released (a released block keeps its content as long as possible). */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/kv.h"

/* A FIFO of ids that never holds more than all of them. */
typedef struct {
    int32_t *ids;
    int32_t n, cap, head;
} id_queue;

struct by_kv {
    by_kv_layout layout;
    by_mem *blocks, *slots;
    id_queue free_blocks, free_slots;
    int32_t *count; /* per block */
    int32_t n_blocks, n_slots;
};

static bool queue_init(id_queue *q, int32_t n) {
    q->ids = by_alloc(BY_MEM_KV, (size_t)n * 4);
    if (!q->ids) return false;
    q->cap = q->n = n;
    for (int32_t i = 0; i < n; i++) q->ids[i] = i + 1;
    return true;
}

static int32_t queue_pop(id_queue *q) {
    if (q->n == 0) return -1;
    int32_t id = q->ids[q->head];
    q->head = (q->head + 1) % q->cap;
    q->n--;
    return id;
}

static void queue_push(id_queue *q, int32_t id) {
    assert(q->n < q->cap);
    q->ids[(q->head + q->n++) % q->cap] = id;
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
    kv->count = by_alloc_zero(BY_MEM_KV, ((size_t)opts->n_blocks + 1) * 4);
    by_status status = BY_OK;
    if (!kv->count || !queue_init(&kv->free_blocks, opts->n_blocks) || !queue_init(&kv->free_slots, opts->n_slots))
        status = BY_FAIL(err, BY_ENOMEM, "out of memory for the caches");
    size_t slots = by_mul_size((size_t)layout->slot_bytes, (size_t)opts->n_slots + 1);
    size_t blocks = by_mul_size((size_t)layout->block_bytes, (size_t)opts->n_blocks + 1);
    if (status == BY_OK) status = by_mem_alloc(&kv->slots, dev, slots, err);
    if (status == BY_OK && layout->block_bytes) status = by_mem_alloc(&kv->blocks, dev, blocks, err);
    if (status < 0) {
        by_kv_destroy(kv);
        return status;
    }
    *out = kv;
    return BY_OK;
}

void by_kv_destroy(by_kv *kv) {
    if (!kv) return;
    assert(!kv->slots || (kv->free_blocks.n == kv->n_blocks && kv->free_slots.n == kv->n_slots));
    by_mem_free(kv->slots);
    by_mem_free(kv->blocks);
    by_free(kv->free_blocks.ids);
    by_free(kv->free_slots.ids);
    by_free(kv->count);
    by_free(kv);
}

const by_kv_layout *by_kv_layout_of(const by_kv *kv) { return &kv->layout; }

int32_t by_kv_block_acquire(by_kv *kv) {
    int32_t b = queue_pop(&kv->free_blocks);
    if (b > 0) kv->count[b] = 1;
    return b;
}

void by_kv_block_retain(by_kv *kv, int32_t block) {
    assert(block > 0 && block <= kv->n_blocks && kv->count[block] > 0);
    kv->count[block]++;
}

void by_kv_block_release(by_kv *kv, int32_t block) {
    assert(block > 0 && block <= kv->n_blocks && kv->count[block] > 0);
    if (--kv->count[block] == 0) queue_push(&kv->free_blocks, block);
}

int32_t by_kv_block_count(const by_kv *kv, int32_t block) { return kv->count[block]; }
int32_t by_kv_slot_acquire(by_kv *kv) { return queue_pop(&kv->free_slots); }
void by_kv_slot_release(by_kv *kv, int32_t slot) { queue_push(&kv->free_slots, slot); }
int32_t by_kv_blocks_free(const by_kv *kv) { return kv->free_blocks.n; }
int32_t by_kv_slots_free(const by_kv *kv) { return kv->free_slots.n; }
by_mem *by_kv_slot_mem(const by_kv *kv) { return kv->slots; }

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
