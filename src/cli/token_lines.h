/* token_lines.h - the input lines of `logits` and `generate`: {"id", "tokens", ...}, one JSON object a line, checked. */
#ifndef BY_CLI_TOKEN_LINES_H
#define BY_CLI_TOKEN_LINES_H

#include "base/arena.h"
#include "base/buf.h"
#include "json/json.h"

typedef struct by_token_line {
    by_str id;         /* [A-Za-z0-9._-]+, unique in the file; empty when the line has none that can be used */
    int32_t *tokens;
    int64_t n_tokens;
    by_json row;       /* the whole object */
    size_t number;     /* of the line, from 1 */
    char *problem;     /* NULL = good, else what is wrong with the line */
} by_token_line;

typedef struct by_token_lines {
    by_token_line *lines;
    size_t n, cap;
    by_arena arena; /* everything of the lines */
    by_buf text;
} by_token_lines;

/* Reads a file ("-" = standard input). A bad line becomes one with `problem` set; blank lines are skipped. Token ids must lie
 * in [0, vocab). Errors: those of the file, BY_ENOMEM. */
by_status by_token_lines_read(by_token_lines *out, const char *path, int32_t vocab, by_err *err);
void by_token_lines_deinit(by_token_lines *t);

/* Sets the problem of a line, once. */
void by_token_line_refuse(by_token_lines *t, by_token_line *l, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
