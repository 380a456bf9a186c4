/* token_map.h - compressed token ids of the Engram layers: ids whose texts differ only in case, accents, compatibility
 * forms or surrounding white space share one number, so that their n-grams share table rows.
 *
 * Source: the reference's table builder; golden: tests/golden/golden_token_map.c. */
#ifndef BY_TOK_TOKEN_MAP_H
#define BY_TOK_TOKEN_MAP_H

#include "tok/tok.h"

/* Fills map[0..n_vocab) with compressed ids, numbered 0, 1, ... by first appearance; *n_distinct is how many there are.
 * An id without a text (a hole in the file, or one behind its end: n_vocab may be larger than by_tok_n_ids) gets -1 and
 * no number: the hash of a position treats it as the reference treats ids outside its table, like an image token.
 * Ids of the file from n_vocab on are left out. The caller compares *n_distinct with the config's number.
 * n_vocab in 1..BY_LIMIT_VOCAB. About 0.1 s for 129,280 ids. Errors: BY_EINVAL, BY_ENOMEM. */
by_status by_tok_compressed_ids(const by_tok *tok, int32_t *map, int32_t n_vocab, int32_t *n_distinct, by_err *err);

/* Appends the normalised form of valid UTF-8: NFKC, NFD, marks deleted, lower case code point by code point, runs of
 * blank, tab, CR and LF to one blank; a result of one blank stays, otherwise white space at both ends goes. False when
 * memory is out. */
bool by_tok_normalise(by_buf *out, by_str text);

#endif
