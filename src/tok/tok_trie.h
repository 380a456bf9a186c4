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

/* Value of the longest key that text begins with, -1 for none. */
static inline int32_t by_tok_trie_longest(const by_tok_trie *t, const char *text, size_t len) {
    const uint64_t *nodes = t->nodes;
    uint64_t node = nodes[0];
    uint32_t best = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t c = (unsigned char)text[i];
        node = nodes[(uint32_t)(node >> 32) ^ c];
        if ((node & 511) != c + 1) break;
        uint32_t value = (uint32_t)node >> 9;
        if (value) best = value;
    }
    return (int32_t)best - 1;
}

#endif
