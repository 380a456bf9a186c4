/* toy_tok.h - texts of small tokenizer files with the settings that the product accepts. For tests only. */
#ifndef BY_TEST_TOY_TOK_H
#define BY_TEST_TOY_TOK_H

#include "base/buf.h"
#include "base/rng.h"

/* A tokenizer.json with ids 0..255 for the bytes. vocab and merges are more JSON members and items ("\"ab\": 256",
 * "\"a b\""), added the items of added_tokens; each may be "". */
void by_toy_file(by_buf *out, const char *vocab, const char *merges, const char *added);

/* A file with up to n_merges random merges over the letters a, b, c. proper: each merge joins what exists already, each
 * text once; otherwise the order is shuffled and texts may be made in several ways. */
void by_toy_random_file(by_buf *out, by_rng *rng, int n_merges, bool proper);

#endif
