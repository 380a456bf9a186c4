/* Fuzz entry of by_tok_encode with the tiny model's tokenizer: any bytes. Bytes that are not UTF-8 are an error, then repaired;
 * the ids must be the slow twin's, with an old cache and without, and the text must come back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "support/slow_tok.h"
#include "support/tok_v4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static by_tok *tok;
static by_tok_scratch *scratch;

static void check(const by_tok_ids *got, const by_tok_ids *want) {
    if (got->n != want->n || (got->n && memcmp(got->ids, want->ids, got->n * sizeof *got->ids) != 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 1024) return 0; /* the slow twin is quadratic */
    if (!tok) tok = by_test_tok_tiny(NULL);
    if (!scratch && by_tok_scratch_create(&scratch, tok, NULL) != BY_OK) abort();
    by_str raw = by_str_of((const char *)data, size);
    by_buf text = {0}, back = {0};
    by_tok_ids got = {0}, want = {0};
    by_buf_reserve(&text, 1);
    by_utf8_push_lossy(&text, raw);
    bool valid = by_utf8_valid(raw, NULL);
    if ((by_tok_encode(tok, scratch, raw, BY_TOK_PLAIN, &got, NULL) == BY_OK) != valid) abort();
    by_slow_encode(tok, by_buf_str(&text), &want);
    if (valid) check(&got, &want);
    for (int pass = 0; pass < 2; pass++) {
        got.n = 0;
        if (by_tok_encode(tok, pass ? scratch : NULL, by_buf_str(&text), BY_TOK_PLAIN, &got, NULL) != BY_OK) abort();
        check(&got, &want);
    }
    got.n = 0;
    if (by_tok_encode(tok, scratch, by_buf_str(&text), BY_TOK_FULL, &got, NULL) != BY_OK) abort();
    if (by_tok_decode(tok, got.ids, got.n, false, &back, NULL) != BY_OK) abort();
    if (!by_str_eq(by_buf_str(&back), by_buf_str(&text))) abort();
    by_buf_deinit(&text);
    by_buf_deinit(&back);
    by_tok_ids_deinit(&got);
    by_tok_ids_deinit(&want);
    return 0;
}
