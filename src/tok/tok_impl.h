/* tok_impl.h - what a by_tok is made of; for the files of this folder and for tests only. */
#ifndef BY_TOK_TOK_IMPL_H
#define BY_TOK_TOK_IMPL_H

#include "base/limits.h"
#include "tok/tok.h"
#include "tok/tok_trie.h"

/* Rank of ids that no merge makes. Merges count from 0, so all of them are later. */
#define BY_TOK_RANK_NONE (-1)

enum {
    BY_TOK_PRESENT = 1, /* the id has bytes */
    BY_TOK_VOCAB = 2,   /* in model.vocab */
    BY_TOK_ADDED = 4,
    BY_TOK_SPECIAL = 8,
    BY_TOK_VERBATIM = 16, /* vocabulary entry with characters outside the byte alphabet: its text is its spelling */
    BY_TOK_CLEAN = 64,    /* its bytes are whole characters, and the last one is not U+FFFD */
    BY_TOK_WHOLE = 32     /* merging the id's own bytes gives this id alone; only such ids can appear in an encoding */
};

/* How an id is made by merging, one per id. */
typedef struct by_tok_made {
    int32_t left, right; /* -1 when no merge makes the id */
    int32_t rank;        /* of the merge that makes it first, or BY_TOK_RANK_NONE */
    int32_t shorter;     /* longest BY_TOK_WHOLE id that is a proper prefix of this one, or -1 */
} by_tok_made;

/* Where to look next for a merge across a seam between two characters, one step back in time from an id at the seam: the
 * next id inside it at its right (left) edge that can take part in such a merge at all, and the rank of the merge that
 * ends that id's life; -1, -1 when there is none. See tok_bpe.c. */
typedef struct by_tok_edge {
    int32_t id, end;
} by_tok_edge;

typedef struct by_tok_edges {
    by_tok_edge right, left;
} by_tok_edges;

/* A merge of the file: left and right become id. Its rank is its index. */
typedef struct by_tok_merge {
    int32_t left, right, id;
} by_tok_merge;

/* A slot of the pair table: left << 43 | right << 22 | rank + 1, or 0 when empty. Small, because the table is looked up at
 * random: every cache line counts. */
#define BY_TOK_PAIR_ID_BITS 21
_Static_assert(BY_LIMIT_VOCAB < 1 << BY_TOK_PAIR_ID_BITS, "ids and ranks fit a slot");

static inline uint64_t by_tok_pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 43 | (uint64_t)(uint32_t)right << 22;
}

enum { BY_TOK_STARTS = 4 };

struct by_tok {
    int32_t n_ids;
    by_err cannot_encode; /* code BY_OK: it can */
    char *bytes;   /* of all ids, one after the other */
    uint32_t *at;  /* [n_ids + 1] offsets into bytes */
    uint8_t *flags; /* [n_ids] */
    by_tok_made *made; /* [n_ids] */
    by_tok_edges *edges; /* [n_ids]; only when linear */
    by_tok_merge *merges; /* [n_merges] by rank */
    int32_t n_merges;
    uint64_t *pairs;
    uint64_t pair_mask;    /* slots - 1; a power of two, at least twice the merges */
    uint32_t pair_shift;   /* the hash's top bits index the slots */
    uint64_t *pair_filter; /* one bit per hash value: most pairs that do not merge are told by it, from L2 */
    uint32_t filter_shift; /* and the filter */
    int32_t byte_ids[256];
    by_tok_trie whole; /* BY_TOK_WHOLE ids by bytes */
    bool linear;       /* the merges allow the linear-time encoder, see tok_bpe.c */
    by_tok_trie added; /* added tokens by content */
    bool added_first[256]; /* bytes that an added token begins with */
    uint8_t added_starts[BY_TOK_STARTS]; /* the same as a list, as long as they are few */
    uint32_t n_added_starts;             /* may be larger than the list */
    int32_t *added_ids;    /* [n_added] ascending */
    size_t n_added;
};

static inline uint32_t by_tok_len(const by_tok *t, int32_t id) { return t->at[id + 1] - t->at[id]; }

/* The top bits depend on all bits of both ids: they index filter and table. */
static inline uint64_t by_tok_pair_hash(int32_t left, int32_t right) {
    return (uint32_t)left * 0x9e3779b97f4a7c15u ^ (uint32_t)right * 0xc2b2ae3d27d4eb4fu;
}

#define BY_TOK_NO_RANK INT32_MAX /* later than every merge */

/* Rank of the merge of two neighbours, or BY_TOK_NO_RANK. */
static inline int32_t by_tok_pair_rank(const by_tok *t, int32_t left, int32_t right) {
    uint64_t h = by_tok_pair_hash(left, right), bit = h >> t->filter_shift;
    if (!(t->pair_filter[bit >> 6] >> (bit & 63) & 1)) return BY_TOK_NO_RANK;
    uint64_t key = by_tok_pair_key(left, right);
    for (uint64_t i = h >> t->pair_shift;; i = (i + 1) & t->pair_mask) {
        uint64_t slot = t->pairs[i];
        if (slot == 0) return BY_TOK_NO_RANK;
        if (slot >> 22 == key >> 22) return (int32_t)(slot & ((1 << 22) - 1)) - 1;
    }
}

/* ---- tok_bpe.c ---- */

/* Working memory of one encoding thread. */
typedef struct by_tok_node {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t prev, next;
} by_tok_node;

typedef struct by_tok_candidate {
    int32_t rank;
    uint32_t at; /* node of the left part */
} by_tok_candidate;

typedef struct by_tok_work {
    uint64_t *dead; /* bit per offset */
    size_t cap_dead;
    by_tok_node *nodes;
    by_tok_candidate *heap;
    size_t cap_nodes, cap_heap;
} by_tok_work;

void by_tok_work_deinit(by_tok_work *w);

/* Ids of one piece (len >= 1, cut from UTF-8 between characters) to out, which has room for len of them; *n is their
 * number. Errors: BY_ENOMEM. */
by_status by_tok_bpe(const by_tok *t, by_tok_work *w, const char *piece, size_t len, int32_t *out, size_t *n,
                     by_err *err);

/* True when no merge crosses the seam of the neighbours left | right before a merge of rank `before`: with INT32_MAX,
 * when the two are neighbours in the encoding of their joined bytes. Needs linear merges and BY_TOK_WHOLE ids. */
bool by_tok_seam_holds(const by_tok *t, int32_t left, int32_t right, int32_t before);

/* ---- tok_load.c ---- */

/* Byte-level alphabet: code point of a byte, and byte of a code point (-1: not in the alphabet). */
uint32_t by_tok_byte_symbol(unsigned char byte);
int by_tok_symbol_byte(uint32_t cp);

#endif
