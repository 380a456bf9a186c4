/* grammar_mask.h - masks of states, and the sets of tokens they are made of. */
#ifndef BY_GRAMMAR_MASK_H
#define BY_GRAMMAR_MASK_H

#include "grammar/grammar_internal.h"

/* Whole sets that one mask refers to, and ids that it lists. A list of that many ids is written about as fast as 16 KB are copied. */
enum { BY_GR_BASES = 4, BY_GR_IDS_MAX = 1500 };

/* A finished mask: sets that belong to the vocabulary or to a head of the same grammar, and single ids; or all of it as bits.
 * Nearly all masks are a few hundred ids, alone or beside one set, so that a kept mask takes 1 KB and not 16. */
struct by_gr_mask {
    const uint32_t *base[BY_GR_BASES];
    uint32_t n_base;
    uint32_t n_ids;
    const uint32_t *ids; /* part of this object; repeats are possible */
    uint32_t *bits;      /* [words] instead of all of these, or NULL */
    uint32_t n_exits;    /* heads only: places in the trie where the head is complete */
    uint32_t *exits;
    uint64_t *open; /* plain string heads: which of the vocabulary's exits are exits of this head */
    size_t bytes;
};

/* A mask in the making. */
typedef struct by_gr_tokens {
    const uint32_t *base[BY_GR_BASES];
    uint32_t n_base, n_ids, words;
    bool dense;     /* there were too many: all of it is in bits */
    uint32_t *bits; /* [words], behind the object */
    uint32_t ids[BY_GR_IDS_MAX];
} by_gr_tokens;

/* An empty set. level 0: a mask; 1: a head that it needs. The object is kept in g. NULL on failure. */
by_gr_tokens *by_gr_tokens_begin(by_gr *g, unsigned level);
/* From here on all is in bits. */
void by_gr_tokens_spill(by_gr_tokens *o);
/* Adds a whole set [words], which must stay valid as long as the mask. */
void by_gr_tokens_add_set(by_gr_tokens *o, const uint32_t *set);
void by_gr_tokens_add_mask(by_gr_tokens *o, const by_gr_mask *m);
static inline void by_gr_tokens_add(by_gr_tokens *o, uint32_t id) {
    if (!o->dense && o->n_ids == BY_GR_IDS_MAX) by_gr_tokens_spill(o);
    if (o->dense) o->bits[id >> 5] |= 1u << (id & 31);
    else o->ids[o->n_ids++] = id;
}
/* A mask of its own with these tokens; NULL on failure. */
by_gr_mask *by_gr_tokens_keep(by_gr *g, const by_gr_tokens *o);
void by_gr_mask_free(by_gr_mask *m);

/* Mask of state t; kept in g until by_gr_masks_flush. NULL on failure (g->status). */
const by_gr_mask *by_gr_mask_of(by_gr *g, by_gr_term t);
void by_gr_mask_write(const by_gr *g, const by_gr_mask *m, uint32_t *words);
/* The tokens behind which a member of at most `room` bytes is left. Not kept. The end token where t is nullable. */
void by_gr_mask_closing(by_gr *g, by_gr_term t, uint32_t room, uint32_t *words);
void by_gr_masks_flush(by_gr *g);

#endif
