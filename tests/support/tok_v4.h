/* tok_v4.h - the published tokenizer for tests. For tests only. */
#ifndef BY_TEST_TOK_V4_H
#define BY_TEST_TOK_V4_H

#include "base/buf.h"
#include "tok/tok.h"

/* Appends a gzip-compressed golden file (path below tests/golden/data, without ".gz"); ends the program on failure. */
void by_test_read_gz(by_buf *out, const char *rel);

/* The V4 tokenizer; opts may be NULL. Ends the program on failure. */
by_tok *by_test_tok_v4(const by_tok_opts *opts) __attribute__((returns_nonnull));

/* The tokenizer of models/tiny. */
by_tok *by_test_tok_tiny(const by_tok_opts *opts) __attribute__((returns_nonnull));

#endif
