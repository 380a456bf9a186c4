/* toy_tok.c - see toy_tok.h. */
#include "support/toy_tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "json/json_write.h"
#include "tok/tok_impl.h"

static const char head[] =
    "{\"version\": \"1.0\", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}, \"pre_tokenizer\": {\"type\": "
    "\"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}\"}, \"behavior\": "
    "\"Isolated\", \"invert\": false}, {\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
    "\"Split\", \"pattern\": {\"Regex\": \"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
    "\"trim_offsets\": true, \"use_regex\": false}]}, \"added_tokens\": [";

void by_toy_file(by_buf *out, const char *vocab, const char *merges, const char *added) {
    by_buf_push_z(out, head);
    by_buf_push_z(out, added);
    by_buf_push_z(out, "], \"model\": {\"type\": \"BPE\", \"unk_token\": null, \"vocab\": {");
    for (int b = 0; b < 256; b++) {
        char symbol[4];
        size_t n = by_utf8_put(by_tok_byte_symbol((unsigned char)b), symbol);
        if (b) by_buf_push_z(out, ", ");
        by_json_write_string(out, by_str_of(symbol, n));
        by_buf_printf(out, ": %d", b);
    }
    if (*vocab) by_buf_printf(out, ", %s", vocab);
    by_buf_printf(out, "}, \"merges\": [%s]}}", merges);
    if (out->failed) abort();
}

enum { TEXTS_MAX = 400, TEXT_BYTES = 64 };

static int find(char texts[][TEXT_BYTES], int n, const char *text) {
    for (int i = 0; i < n; i++)
        if (strcmp(texts[i], text) == 0) return i;
    return -1;
}

void by_toy_random_file(by_buf *out, by_rng *rng, by_toy_opts opts) {
    static const char *const narrow[] = {"a", "b", "c"}, *const wide[] = {"a", "Ã", "©", "¨", "ä", "¸", "Ń"};
    static char texts[TEXTS_MAX][TEXT_BYTES], merges[TEXTS_MAX][2 * TEXT_BYTES];
    by_buf vocab = {0}, list = {0};
    int n_texts = opts.wide ? 7 : 3, n = 0;
    for (int i = 0; i < n_texts; i++) snprintf(texts[i], TEXT_BYTES, "%s", opts.wide ? wide[i] : narrow[i]);
    for (int tries = 0; n < opts.n_merges && n < TEXTS_MAX - 8 && tries < 50 * opts.n_merges; tries++) {
        const char *l = texts[by_rng_below(rng, (uint64_t)n_texts)], *r = texts[by_rng_below(rng, (uint64_t)n_texts)];
        char joined[2 * TEXT_BYTES], merge[2 * TEXT_BYTES + 2];
        size_t nl = strlen(l), nr = strlen(r);
        if (nl + nr >= TEXT_BYTES - 1) continue;
        memcpy(joined, l, nl);
        memcpy(joined + nl, r, nr + 1);
        memcpy(merge, l, nl);
        merge[nl] = ' ';
        memcpy(merge + nl + 1, r, nr + 1);
        bool known = find(texts, n_texts, joined) >= 0, listed = false;
        for (int i = 0; i < n; i++) listed = listed || strcmp(merges[i], merge) == 0;
        if (listed || (known && opts.proper)) continue;
        memcpy(merges[n++], merge, nl + nr + 2);
        if (!known) {
            by_buf_printf(&vocab, "%s\"%s\": %d", vocab.len ? ", " : "", joined, 256 + n_texts);
            memcpy(texts[n_texts++], joined, nl + nr + 1);
        }
    }
    for (int i = n - 1; i > 0 && !opts.proper; i--) {
        char keep[2 * TEXT_BYTES];
        int k = (int)by_rng_below(rng, (uint64_t)i + 1);
        memcpy(keep, merges[i], sizeof keep);
        memcpy(merges[i], merges[k], sizeof keep);
        memcpy(merges[k], keep, sizeof keep);
    }
    for (int i = 0; i < n; i++) by_buf_printf(&list, "%s\"%s\"", i ? ", " : "", merges[i]);
    by_toy_file(out, vocab.len ? by_buf_z(&vocab) : "", list.len ? by_buf_z(&list) : "", "");
    by_buf_deinit(&vocab);
    by_buf_deinit(&list);
}
