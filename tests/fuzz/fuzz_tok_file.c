/* Fuzz entry of by_tok_parse: any bytes. What loads must encode a text so that it comes back, and number its ids. */
#include <stdint.h>
#include <stdlib.h>

#include "tok/tok.h"
#include "tok/token_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const by_tok *t) {
    enum { MAP = 512 };
    static const char text[] = "abcabc aab<t>\n\n\xe4\xb8\xad\xe6\x96\x87 12345 x\u0301, ()";
    by_str s = BY_STR(text);
    by_tok_ids ids = {0};
    by_buf back = {0};
    int32_t map[MAP], n = 0;
    by_status status = by_tok_encode(t, NULL, s, BY_TOK_FULL, &ids, NULL);
    if (status != by_tok_check_encode(t, NULL)) abort();
    if (status == BY_OK) {
        if (by_tok_decode(t, ids.ids, ids.n, false, &back, NULL) != BY_OK) abort();
        if (!by_str_eq(by_buf_str(&back), s)) abort();
    }
    if (by_tok_compressed_ids(t, map, MAP, &n, NULL) != BY_OK) abort();
    for (int32_t i = 0; i < MAP; i++) {
        if (map[i] >= n || (map[i] >= 0) != (by_tok_bytes(t, i).ptr != NULL)) abort();
        by_tok_spelling(t, i, &back);
    }
    by_buf_deinit(&back);
    by_tok_ids_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    by_tok *t = NULL;
    by_err err;
    if (by_tok_parse(&t, by_str_of((const char *)data, size), NULL, &err) == BY_OK) use(t);
    by_tok_destroy(t);
    return 0;
}
