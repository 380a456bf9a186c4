/* tok_impl.h - what a by_tok is made of; for the files of this folder and for tests only. */
#ifndef BY_TOK_TOK_IMPL_H
#define BY_TOK_TOK_IMPL_H

#include "tok/tok.h"
#include "tok/tok_trie.h"

/* Merge rank of ids that no merge makes. Merges count from 0, so all of them are later. */
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

/* Open addressing; id < 0 marks an empty slot. */
typedef struct by_tok_pair {
    int32_t left, right;
    int32_t id, rank;
} by_tok_pair;

struct by_tok {
    int32_t n_ids;
    by_err cannot_encode; /* code BY_OK: it can */
    char *bytes;   /* of all ids, one after the other */
    uint32_t *at;  /* [n_ids + 1] offsets into bytes */
    uint8_t *flags; /* [n_ids] */
    by_tok_made *made; /* [n_ids] */
    by_tok_pair *pairs;
    uint32_t pair_mask;    /* slots - 1; a power of two, at least twice the merges */
    uint64_t *pair_filter; /* one bit per hash value: most pairs that do not merge are told by it, from L2 */
    uint32_t filter_shift; /* the hash's top bits index the filter */
    int32_t byte_ids[256];
    by_tok_trie whole; /* BY_TOK_WHOLE ids by bytes */
    bool linear;       /* the merges allow the linear-time encoder, see tok_bpe.c */
    by_tok_trie added; /* added tokens by content */
    bool added_first[256]; /* bytes that an added token begins with */
    int32_t *added_ids;    /* [n_added] ascending */
    size_t n_added;
};

static inline uint32_t by_tok_len(const by_tok *t, int32_t id) { return t->at[id + 1] - t->at[id]; }

static inline uint64_t by_tok_pair_hash(int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
}

/* The merge of two neighbours, NULL when there is none. */
static inline const by_tok_pair *by_tok_pair_find(const by_tok *t, int32_t left, int32_t right) {
    uint64_t h = by_tok_pair_hash(left, right);
    uint64_t bit = h >> t->filter_shift;
    if (!(t->pair_filter[bit >> 6] >> (bit & 63) & 1)) return NULL;
    for (uint32_t i = (uint32_t)h & t->pair_mask;; i = (i + 1) & t->pair_mask) {
        const by_tok_pair *p = &t->pairs[i];
        if (p->id < 0) return NULL;
        if (p->left == left && p->right == right) return p;
    }
}

/* ---- tok_bpe.c ---- */

/* Working memory of one encoding thread. */
typedef struct by_tok_node {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t prev, next;
} by_tok_node;

typedef struct by_tok_candidate {
    int32_t rank, id;
    uint32_t at; /* node of the left part */
    int32_t left, right;
} by_tok_candidate;

enum { BY_TOK_SEAM_BITS = 14, BY_TOK_SEAMS = 1 << BY_TOK_SEAM_BITS };

typedef struct by_tok_work {
    uint64_t *seams; /* [BY_TOK_SEAMS] left << 32 | right << 1 | holds, all bits set when empty; not owned; NULL: none */
    uint64_t *dead;  /* bit per offset */
    size_t cap_dead;
    by_tok_node *nodes;
    by_tok_candidate *heap;
    size_t cap_nodes, cap_heap;
} by_tok_work;

void by_tok_work_deinit(by_tok_work *w);

/* Ids of one piece (len >= 1) to out, which has room for len of them; *n is their number. Errors: BY_ENOMEM. */
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
