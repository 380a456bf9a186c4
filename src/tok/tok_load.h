/* tok_load.h - the steps of loading that tok_load.c takes from tok_derive.c. */
#ifndef BY_TOK_TOK_LOAD_H
#define BY_TOK_TOK_LOAD_H

#include "tok/tok_impl.h"

/* An empty pair table and list for n merges. Errors: BY_ENOMEM. */
by_status by_tok_alloc_merges(by_tok *t, size_t n, by_err *err);

/* Appends a merge; its rank is the number of those before. False when the pair is there already, with *rank its rank. */
bool by_tok_add_merge(by_tok *t, by_tok_merge merge, int32_t *rank);

/* With bytes, flags and pairs in place: fills made, linear, the tries and the list of added tokens. plain_merges leaves
 * `linear` false. Errors: BY_EFORMAT (two added tokens with one content), BY_ENOMEM, BY_ELIMIT. */
by_status by_tok_derive(by_tok *t, bool plain_merges, by_err *err);

#endif
