/* slow_tok.h - the slow twin of the encoder: the three splits one after another over code points, each by the rules of its
 * regular expression, and merging by looking at all pairs again and again. For tests only. */
#ifndef BY_TEST_SLOW_TOK_H
#define BY_TEST_SLOW_TOK_H

#include "tok/tok.h"

/* Byte offsets where pieces end, ascending, the last one text.len; returns their number. ends has room for text.len. */
size_t by_slow_pieces(by_str text, size_t *ends);

/* Appends the ids of one piece. O(n^2). */
void by_slow_merge(const by_tok *tok, by_str piece, by_tok_ids *out);

/* Appends the ids of text in plain mode. */
void by_slow_encode(const by_tok *tok, by_str text, by_tok_ids *out);

#endif
