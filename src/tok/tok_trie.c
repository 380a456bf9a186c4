/* tok_trie.c - builds the double array of tok_trie.h, depth first over the sorted keys.
 *
 * A walk costs what its cache misses cost, so children go as near to their parent as they can: an only child, which is
 * the usual case, next to it in the same cache line; others into the parent's block. Where that is full, nodes with
 * several children look in the newest blocks and open a new one otherwise, and only children fill the holes of the
 * oldest block that has one. That keeps the array near full without a search that grows with it. */
#include "tok/tok_trie.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { BLOCK = 256, LINE = 8, NEW_BLOCKS_TRIED = 4, BLOCKS_MAX = 1 << 23 };

typedef struct {
    uint64_t free[4], base_used[4]; /* bit per slot, and per base */
    int n_free;
} block;

typedef struct {
    uint32_t node, depth;
    size_t lo, hi; /* keys that pass through the node */
} job;

typedef struct {
    by_tok_trie *trie;
    block *blocks;
    size_t n_blocks, cap_blocks, oldest; /* blocks before `oldest` take no more single children */
    job *jobs;
    size_t n_jobs, cap_jobs;
} builder;

static bool has(const uint64_t bits[4], uint32_t i) { return bits[i >> 6] >> (i & 63) & 1; }
static void set(uint64_t bits[4], uint32_t i) { bits[i >> 6] |= (uint64_t)1 << (i & 63); }
static void clear(uint64_t bits[4], uint32_t i) { bits[i >> 6] &= ~((uint64_t)1 << (i & 63)); }

static by_status out_of_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for the token trie"); }

static by_status add_block(builder *b, by_err *err) {
    if (b->n_blocks == BLOCKS_MAX) return BY_FAIL(err, BY_ELIMIT, "the tokens need more than 2^31 trie nodes");
    if (b->n_blocks == b->cap_blocks) {
        size_t cap = b->cap_blocks ? b->cap_blocks * 2 : 16;
        uint64_t *nodes = by_realloc(BY_MEM_TOK, b->trie->nodes, cap * BLOCK * sizeof *nodes);
        if (!nodes) return out_of_memory(err);
        b->trie->nodes = nodes;
        block *blocks = by_realloc(BY_MEM_TOK, b->blocks, cap * sizeof *blocks);
        if (!blocks) return out_of_memory(err);
        b->blocks = blocks;
        b->cap_blocks = cap;
    }
    memset(b->trie->nodes + b->n_blocks * BLOCK, 0, BLOCK * sizeof(uint64_t));
    block *fresh = &b->blocks[b->n_blocks++];
    *fresh = (block){.n_free = BLOCK};
    memset(fresh->free, 0xff, sizeof fresh->free);
    return BY_OK;
}

/* Moves bit i of x to i ^ k, k < 64. */
static uint64_t xor_positions(uint64_t x, uint32_t k) {
    static const uint64_t low[6] = {0x5555555555555555u, 0x3333333333333333u, 0x0f0f0f0f0f0f0f0fu,
                                    0x00ff00ff00ff00ffu, 0x0000ffff0000ffffu, 0x00000000ffffffffu};
    for (uint32_t i = 0; i < 6; i++)
        if (k >> i & 1) x = (x >> (1u << i) & low[i]) | (x & low[i]) << (1u << i);
    return x;
}

/* A base within the block that puts all n labels on free slots, or -1: 64 bases at a time. */
static int fit(const block *blk, const unsigned char *labels, int n) {
    if (blk->n_free < n) return -1;
    for (uint32_t w = 0; w < 4; w++) {
        uint64_t bases = ~blk->base_used[w];
        for (int i = 0; i < n && bases; i++) bases &= xor_positions(blk->free[w ^ labels[i] >> 6], labels[i] & 63);
        if (bases) return (int)(w * 64 + (uint32_t)__builtin_ctzll(bases));
    }
    return -1;
}

/* A base that puts an only child into a free slot of the parent's cache line, or -1. */
static int fit_near(const block *blk, uint32_t parent, unsigned char label) {
    for (uint32_t i = 0; i < LINE; i++) {
        uint32_t slot = parent ^ i;
        if (has(blk->free, slot) && !has(blk->base_used, slot ^ label)) return (int)(slot ^ label);
    }
    return -1;
}

/* Chooses block and base for the children of node `parent`; marks their slots. */
static by_status place(builder *b, uint32_t parent, const unsigned char *labels, int n, uint32_t *out, by_err *err) {
    size_t at = parent / BLOCK;
    int base = -1;
    if (at > 0 && n == 1) base = fit_near(&b->blocks[at], parent % BLOCK, labels[0]);
    if (at > 0 && base < 0) base = fit(&b->blocks[at], labels, n);
    if (base < 0 && n == 1) {
        for (at = b->oldest; at < b->n_blocks; at++) {
            base = fit(&b->blocks[at], labels, n);
            if (base >= 0) break;
            if (at == b->oldest) b->oldest++;
        }
    } else if (base < 0) {
        size_t from = b->n_blocks > b->oldest + NEW_BLOCKS_TRIED ? b->n_blocks - NEW_BLOCKS_TRIED : b->oldest;
        for (at = from; at < b->n_blocks; at++)
            if ((base = fit(&b->blocks[at], labels, n)) >= 0) break;
    }
    if (base < 0) {
        BY_TRY(add_block(b, err));
        at = b->n_blocks - 1;
        base = fit(&b->blocks[at], labels, n);
    }
    block *blk = &b->blocks[at];
    set(blk->base_used, (uint32_t)base);
    for (int i = 0; i < n; i++) clear(blk->free, (uint32_t)base ^ labels[i]);
    blk->n_free -= n;
    *out = (uint32_t)(at * BLOCK) + (uint32_t)base;
    return BY_OK;
}

static by_status push_job(builder *b, job j, by_err *err) {
    if (b->n_jobs == b->cap_jobs) {
        size_t cap = b->cap_jobs ? b->cap_jobs * 2 : 1024;
        job *jobs = by_realloc(BY_MEM_TOK, b->jobs, by_mul_size(cap, sizeof *jobs));
        if (!jobs) return out_of_memory(err);
        b->jobs = jobs;
        b->cap_jobs = cap;
    }
    b->jobs[b->n_jobs++] = j;
    return BY_OK;
}

/* Gives node j.node its value and its children, and queues those. */
static by_status expand(builder *b, const by_tok_key *keys, job j, by_err *err) {
    if (j.lo < j.hi && keys[j.lo].text.len == j.depth) {
        b->trie->nodes[j.node] |= (uint64_t)((uint32_t)keys[j.lo].value + 1) << 9;
        j.lo++;
    }
    if (j.lo == j.hi) return BY_OK;
    unsigned char labels[BLOCK] = {0};
    size_t from[BLOCK + 1];
    int n = 0;
    for (size_t i = j.lo; i < j.hi; i++) {
        unsigned char c = (unsigned char)keys[i].text.ptr[j.depth];
        if (n && labels[n - 1] == c) continue;
        labels[n] = c;
        from[n++] = i;
    }
    from[n] = j.hi;
    uint32_t base;
    BY_TRY(place(b, j.node, labels, n, &base, err));
    b->trie->nodes[j.node] |= (uint64_t)base << 32;
    for (int i = 0; i < n; i++) {
        uint32_t child = base ^ labels[i];
        b->trie->nodes[child] = labels[i] + 1u;
        BY_TRY(push_job(b, (job){.node = child, .depth = j.depth + 1, .lo = from[i], .hi = from[i + 1]}, err));
    }
    return BY_OK;
}

/* The first eight bytes as a number: most keys differ there, and a number compares faster than a string. */
static uint64_t head_of(by_str s) {
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++) head = head << 8 | (i < s.len ? (unsigned char)s.ptr[i] : 0);
    return head;
}

static int compare(const void *a, const void *b) {
    const by_tok_key *x = a, *y = b;
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head) : by_str_cmp(x->text, y->text);
}

by_status by_tok_trie_init(by_tok_trie *t, by_tok_key *keys, size_t n, by_err *err) {
    builder b = {.trie = t};
    by_status status = BY_OK;
    t->nodes = NULL;
    for (size_t i = 0; i < n; i++) keys[i].head = head_of(keys[i].text);
    if (n) qsort(keys, n, sizeof *keys, compare);
    for (size_t i = 1; i < n; i++)
        if (by_str_eq(keys[i - 1].text, keys[i].text)) {
            status = BY_FAIL(err, BY_EFORMAT, "ids %d and %d have the same text '%.*s'", keys[i - 1].value,
                             keys[i].value, BY_STR_ARG(keys[i].text));
            goto out;
        }
    BY_TRY_OUT(add_block(&b, err)); /* the root's own block, see tok_trie.h */
    b.oldest = 1;
    BY_TRY_OUT(push_job(&b, (job){.hi = n}, err));
    while (b.n_jobs) BY_TRY_OUT(expand(&b, keys, b.jobs[--b.n_jobs], err));
    uint64_t *exact = by_realloc(BY_MEM_TOK, t->nodes, b.n_blocks * BLOCK * sizeof *exact);
    if (exact) t->nodes = exact;
out:
    by_free(b.blocks);
    by_free(b.jobs);
    if (status < 0) by_tok_trie_deinit(t);
    return status;
}

void by_tok_trie_deinit(by_tok_trie *t) {
    by_free(t->nodes);
    t->nodes = NULL;
}
