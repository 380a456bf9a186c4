/* grammar_mask.h - masks of states. */
#ifndef BY_GRAMMAR_MASK_H
#define BY_GRAMMAR_MASK_H

#include "grammar/grammar_internal.h"

/* A finished mask. Many states allow few tokens: these are kept as a list. */
struct by_gr_mask {
    uint32_t n_ids; /* length of ids, used when bits is NULL */
    uint32_t *bits; /* [words], or NULL */
    uint32_t *ids;
    uint32_t n_exits; /* heads only: places in the trie where the head is complete */
    uint32_t *exits;
    uint64_t *open; /* plain string heads: which of the vocabulary's exits are exits of this head */
    size_t bytes;
    bool borrowed; /* bits belong to the vocabulary */
};

/* Mask of state t; kept in g until by_gr_masks_flush. NULL on failure (g->status). */
const by_gr_mask *by_gr_mask_of(by_gr *g, by_gr_term t);
void by_gr_mask_write(const by_gr *g, const by_gr_mask *m, uint32_t *words);
/* The tokens behind which a member of at most `room` bytes is left. Not kept. The end token where t is nullable. */
void by_gr_mask_closing(by_gr *g, by_gr_term t, uint32_t room, uint32_t *words);
void by_gr_masks_flush(by_gr *g);

#endif
