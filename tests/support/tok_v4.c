/* tok_v4.c - see tok_v4.h. */
#include "support/tok_v4.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/golden.h"

void by_test_read_gz(by_buf *out, const char *rel) {
    char command[4200];
    snprintf(command, sizeof command, "gzip -dc '%s.gz'", by_golden_path(rel));
    FILE *f = popen(command, "r");
    size_t n = 1;
    while (f && n > 0) {
        char *to = by_buf_reserve(out, 1 << 16);
        if (!to) break;
        n = fread(to, 1, 1 << 16, f);
        out->len += n;
    }
    if (!f || n > 0 || pclose(f) != 0) {
        fprintf(stderr, "cannot read %s.gz\n", rel);
        exit(1);
    }
}

by_tok *by_test_tok_v4(const by_tok_opts *opts) {
    by_buf text = {0};
    by_tok *tok = NULL;
    by_err err = {0};
    by_test_read_gz(&text, "tokenizer/tokenizer_v4.json");
    if (by_tok_parse(&tok, by_buf_str(&text), opts, &err) != BY_OK) {
        fprintf(stderr, "tokenizer_v4.json: %s\n", err.msg);
        exit(1);
    }
    by_buf_deinit(&text);
    return tok;
}

by_tok *by_test_tok_tiny(const by_tok_opts *opts) {
    by_tok *tok = NULL;
    by_err err = {0};
    if (by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), opts, &err) != BY_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    return tok;
}
