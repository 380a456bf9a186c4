/* toy_tok.h - texts of small tokenizer files with the settings that the product accepts. For tests only. */
#ifndef BY_TEST_TOY_TOK_H
#define BY_TEST_TOY_TOK_H

#include "base/buf.h"
#include "base/rng.h"

/* A tokenizer.json with ids 0..255 for the bytes. vocab and merges are more JSON members and items ("\"ab\": 256",
 * "\"a b\""), added the items of added_tokens; each may be "". */
void by_toy_file(by_buf *out, const char *vocab, const char *merges, const char *added);

typedef struct by_toy_opts {
    int n_merges; /* at most; 1..300 */
    bool proper;  /* each merge joins what exists already, each text once; else shuffled, and texts made in several ways */
    bool wide;    /* over the bytes of a, é, è and 中, whole characters or not; else over the letters a, b, c */
} by_toy_opts;

/* A file with random merges. */
void by_toy_random_file(by_buf *out, by_rng *rng, by_toy_opts opts);

#endif
