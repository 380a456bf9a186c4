/* grammar_vocab.h - inside of a vocabulary, for the mask computation. */
#ifndef BY_GRAMMAR_VOCAB_H
#define BY_GRAMMAR_VOCAB_H

#include <stdatomic.h>

#include <pthread.h>

#include "grammar/grammar.h"

#define BY_GV_TOKEN_MAX 255u /* longest token that can be matched */
#define BY_GV_BODY_MAX  128u /* body tables: characters that are left in a bounded string; beyond, all tokens fit */
#define BY_GV_FIT_MAX   16u  /* sets of tokens by their number of characters; nearly all tokens have fewer */
#define BY_GV_BASES     256u /* cached "all bytes in these groups" sets */

/* Node of the byte trie. Children of a node are neighbours, sorted by byte. */
typedef struct by_gv_node {
    uint32_t first;          /* first child */
    uint32_t tok;            /* 1 + id of the token that ends here, 0 = none */
    uint32_t tok_lo, tok_hi; /* the tokens at and below: order[tok_lo..tok_hi) */
    uint64_t sig;            /* byte groups that occur below, read as UTF-8; inside a character: that of the character too */
    uint16_t n_child;
    uint8_t height, depth; /* bytes below and above */
    uint8_t chars, below;  /* characters above (a begun one counts) and below */
} by_gv_node;

/* A place in the trie where a JSON string that was open before the token has just been closed. */
typedef struct by_gv_exit {
    uint32_t node;
    uint32_t chars;        /* decoded characters before the quote */
    uint32_t text, n_text; /* the decoded text itself, in exit_text */
    bool plain;            /* only escapes that JSON needs */
} by_gv_exit;

/* Node of the trie of what follows a closing quote. Its items are the tokens that end here, each with its exit. */
typedef struct by_gv_tail {
    uint32_t first, n_child;
    uint32_t item_lo, item_hi;
    uint8_t byte;
} by_gv_tail;

typedef struct by_gv_item {
    uint32_t tok, exit;
} by_gv_item;

struct by_grammar_vocab {
    uint32_t n, words, eos;
    by_str *bytes;
    char *blob;
    uint8_t *control;
    by_gv_node *nodes;
    uint8_t *byte; /* [n_nodes] */
    uint32_t n_nodes;
    uint32_t *order;
    uint32_t n_order;
    uint8_t group[128];
    uint64_t *sig; /* by token; BY_GV_BAD also for tokens that are never matched as text */

    uint32_t *body[BY_GV_BODY_MAX + 1]; /* tokens that stay in a JSON string with so many characters left */
    uint32_t *body_all, *body_plain;    /* no limit; the same with only the escapes that JSON needs */
    by_gv_exit *exits;
    uint32_t n_exits;
    char *exit_text;
    by_gv_tail *tails; /* the tokens with a closing quote, merged by what follows it */
    by_gv_item *items;
    uint32_t n_tails, n_items;

    uint32_t *fit[BY_GV_FIT_MAX + 1]; /* tokens of at most so many characters */

    /* Sets of tokens all of whose bytes are in given groups, made on demand. */
    pthread_mutex_t lock;
    uint64_t base_sig[BY_GV_BASES];
    uint32_t *base[BY_GV_BASES];
    uint32_t n_bases;
};

/* Byte groups: bit of an ASCII byte, bit of a multi-byte character by its first byte, and "not UTF-8 from here". */
#define BY_GV_BAD     (1ull << 63)
#define BY_GV_MULTI   44u /* first of the 9 groups of multi-byte characters */
#define BY_GV_N_MULTI 9u
#define BY_GV_SPACES  53u /* the spaces above ASCII that \s takes: else every pattern with \s or \S would split the large groups */
unsigned by_gv_group(unsigned byte);
unsigned by_gv_multi_group(unsigned lead);
bool by_gv_is_space(uint32_t cp);

/* The set for a signature, or NULL when the cache is full, or (*no_memory) memory is out. Thread-safe; stays valid. */
const uint32_t *by_gv_base(const by_grammar_vocab *v, uint64_t sig, bool *no_memory);

#endif
