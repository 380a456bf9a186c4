/* grammar_vocab.h - inside of a vocabulary, for the mask computation. */
#ifndef BY_GRAMMAR_VOCAB_H
#define BY_GRAMMAR_VOCAB_H

#include <stdatomic.h>

#include <pthread.h>

#include "grammar/grammar.h"

#define BY_GV_TOKEN_MAX 255u /* longest token that can be matched */
#define BY_GV_BODY_MAX  128u /* body tables: characters that are left in a bounded string; beyond, all tokens fit */
#define BY_GV_FIT_MAX   16u  /* sets of tokens by their number of characters; nearly all tokens have fewer */
#define BY_GV_BASES     768u /* cached "all bytes in these groups" sets */

/* A set of groups of characters (grammar_groups.c). */
__extension__ typedef unsigned __int128 by_gv_sig;
#define BY_GV_BAD         ((by_gv_sig)1 << 127) /* not UTF-8 from here */
#define BY_GV_MULTI       100u                  /* first of the groups of characters beyond ASCII */
#define BY_GV_N_MULTI     18u
#define BY_GV_GROUPS      (BY_GV_MULTI + BY_GV_N_MULTI)
#define BY_GV_INSIDE      255u /* group of a node at which no character ends */
#define BY_GV_CODE_POINTS 0x110000u

/* Node of the byte trie. Children of a node are neighbours, sorted by byte. */
typedef struct by_gv_node {
    uint32_t first;          /* first child */
    uint32_t tok;            /* 1 + id of the token that ends here, 0 = none */
    uint32_t tok_lo, tok_hi; /* the tokens at and below: order[tok_lo..tok_hi) */
    uint16_t n_child;
    uint8_t height, depth; /* bytes below and above */
    uint8_t chars, below;  /* characters above (a begun one counts) and below */
    uint8_t group;         /* of the character that ends here, or BY_GV_INSIDE */
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
    uint8_t *byte;       /* [n_nodes] */
    by_gv_sig *node_sig; /* [n_nodes]: groups that occur below, read as UTF-8; inside a character: that of the character too */
    uint32_t n_nodes;
    uint32_t *order;
    uint32_t n_order;
    uint8_t group[128];
    uint8_t *group_of;      /* [BY_GV_CODE_POINTS], beyond ASCII */
    uint32_t *block_groups; /* [BY_GV_CODE_POINTS / 64]: bit k: group BY_GV_MULTI + k occurs among these 64 */
    uint32_t *text;         /* tokens that are UTF-8, perhaps cut at the end */
    uint32_t *holds;        /* [BY_GV_GROUPS][words]: of these, the ones with a character of a group */

    uint32_t *body[BY_GV_BODY_MAX + 1]; /* tokens that stay in a JSON string with so many characters left */
    uint32_t *body_all, *body_plain;    /* no limit; the same with only the escapes that JSON needs */
    by_gv_exit *exits;
    uint32_t n_exits;
    char *exit_text;
    by_gv_tail *tails; /* the tokens with a closing quote, merged by what follows it */
    by_gv_item *items;
    uint32_t n_tails, n_items;

    uint32_t *fit[BY_GV_FIT_MAX + 1]; /* tokens of at most so many characters */

    /* Lower-case letters, digits and hyphens, as in A-labels: the tokens of them with a hyphen or of more than BY_GV_FIT_MAX, and the
     * nodes behind nothing else where a dot or a quote can follow. */
    uint32_t *label_tokens, *label_ends;
    uint32_t n_label_tokens, n_label_ends;

    /* Sets of tokens all of whose bytes are in given groups, made on demand. */
    pthread_mutex_t lock;
    struct by_gv_base {
        by_gv_sig sig;
        uint32_t n;
        uint32_t *set;
    } bases[BY_GV_BASES];
    uint32_t n_bases;
};

/* Parts of by_grammar_vocab_create: tables of characters, signatures of the trie, tables of tokens. */
by_status by_gv_groups_init(by_grammar_vocab *v, by_err *err);
void by_gv_sign_trie(by_grammar_vocab *v);
by_status by_gv_holds_init(by_grammar_vocab *v, by_err *err);
static inline bool by_gv_is_label_byte(unsigned b) {
    return (b >= 'a' && b <= 'z') || (b >= '0' && b <= '9') || b == '-';
}

/* Group of an ASCII byte. */
unsigned by_gv_group(unsigned byte);
/* Groups that occur among code points lo..hi beyond ASCII, whole blocks of 64: bit k is group BY_GV_MULTI + k. */
uint32_t by_gv_groups_in(const by_grammar_vocab *v, uint32_t lo, uint32_t hi);
/* Groups that occur in a token; BY_GV_BAD when it is not UTF-8. */
by_gv_sig by_gv_text_sig(const by_grammar_vocab *v, by_str s);

/* The tokens of a signature that have at most n characters (above BY_GV_FIT_MAX: that many; BY_GV_ANY_LENGTH: any number), or NULL
 * when the cache is full, or (*no_memory) memory is out. Thread-safe; stays valid. */
#define BY_GV_ANY_LENGTH 255u
const uint32_t *by_gv_base(const by_grammar_vocab *v, by_gv_sig sig, uint32_t n, bool *no_memory);

#endif
