/* tok_trie.h - a byte trie as a double array, for longest-prefix matching.
 *
 * The child of node x for byte c sits at index base(x) ^ c, and is there when that slot's label is c. No two nodes share
 * a base, so the label alone proves the parent. One step is one load of 8 bytes:
 *
 *   bits 63..32 base | 31..9 value + 1 (0: no key ends here) | 8..0 label + 1 (0: empty slot)
 *
 * The root is node 0 and the rest of its block of 256 stays empty: leaves have base 0 and thus no children.
 * Read-only after building, any thread. */
#ifndef BY_TOK_TOK_TRIE_H
#define BY_TOK_TOK_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct by_tok_trie {
    uint64_t *nodes; /* whole blocks of 256 */
} by_tok_trie;

typedef struct by_tok_key {
    by_str text;   /* not empty */
    int32_t value; /* 0..BY_LIMIT_VOCAB */
    uint64_t head; /* filled by by_tok_trie_init */
} by_tok_key;

/* Builds the trie of n keys; sorts them. Equal texts: BY_EFORMAT. Other errors: BY_ENOMEM, BY_ELIMIT. */
by_status by_tok_trie_init(by_tok_trie *t, by_tok_key *keys, size_t n, by_err *err);
void by_tok_trie_deinit(by_tok_trie *t);

typedef struct by_tok_match {
    int32_t value; /* -1: no key */
    uint32_t len;  /* bytes of the key; saves the caller a look at a table of lengths, which would miss the cache */
} by_tok_match;

/* The longest key that text begins with. len < 2^32. */
static inline by_tok_match by_tok_trie_longest(const by_tok_trie *t, const char *text, size_t len) {
    const uint64_t *nodes = t->nodes;
    uint64_t node = nodes[0];
    uint32_t best = 0, best_len = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t c = (unsigned char)text[i];
        node = nodes[(uint32_t)(node >> 32) ^ c];
        if ((node & 511) != c + 1) break;
        uint32_t value = (uint32_t)node >> 9;
        best_len = value ? (uint32_t)i + 1 : best_len;
        best = value ? value : best;
    }
    return (by_tok_match){(int32_t)best - 1, best_len};
}

/* Value of the key that is text, or -1. */
static inline int32_t by_tok_trie_exact(const by_tok_trie *t, const char *text, size_t len) {
    by_tok_match m = by_tok_trie_longest(t, text, len);
    return m.len == len ? m.value : -1;
}

#endif
