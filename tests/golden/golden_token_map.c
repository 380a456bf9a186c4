/* Compressed token ids of three tokenizers against the reference's table builder, and the normaliser below it against the
 * normalisers of Hugging Face `tokenizers`: every code point alone, and 800 strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "json/json.h"
#include "support/golden.h"
#include "support/npz.h"
#include "support/tok_v4.h"
#include "tok/token_map.h"
#include "tok/unicode_fold.h"

static void check_map(const by_tok *tok, const int32_t *want, int32_t n, int32_t want_distinct) {
    int32_t *map = calloc((size_t)n + 5, sizeof *map), distinct = 0;
    assert_non_null(map);
    assert_int_equal(by_tok_compressed_ids(tok, map, n, &distinct, NULL), BY_OK);
    assert_true(by_golden_same_bytes("compressed id", map, want, (size_t)n, sizeof *map));
    assert_int_equal(distinct, want_distinct);
    /* A larger vocabulary changes nothing; what has no text has no number. A smaller one is a prefix. */
    assert_int_equal(by_tok_compressed_ids(tok, map, n + 5, &distinct, NULL), BY_OK);
    assert_memory_equal(map, want, (size_t)n * sizeof *map);
    for (int i = 0; i < 5; i++) assert_int_equal(map[n + i], -1);
    assert_int_equal(distinct, want_distinct);
    assert_int_equal(by_tok_compressed_ids(tok, map, 200, &distinct, NULL), BY_OK);
    assert_memory_equal(map, want, 200 * sizeof *map);
    free(map);
}

static void check_stored_map(by_tok *tok, const char *file, int32_t n, int32_t want_distinct) {
    by_buf want = {0};
    by_test_read_gz(&want, file);
    assert_int_equal(want.len, (size_t)n * 4); /* little-endian */
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    for (size_t i = 0; i < (size_t)n; i++) {
        const unsigned char *p = (const unsigned char *)want.ptr + 4 * i;
        ids[i] = (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    }
    check_map(tok, ids, n, want_distinct);
    free(ids);
    by_buf_deinit(&want);
    by_tok_destroy(tok);
}

static void published_tokenizer_has_99092_distinct_ids(void **state) {
    (void)state;
    check_stored_map(by_test_tok_v4(NULL), "tokenizer/token_map_v4.i32", 129280, 99092);
}

static void tiny_model_has_4566_distinct_ids(void **state) {
    (void)state;
    check_stored_map(by_test_tok_tiny(NULL), "tokenizer/token_map_tiny.i32", 5376, 4566);
}

/* Its file has another pre-tokenizer: no encoding, but ids and texts are there. */
static void tiny_b_agrees_with_its_stored_map(void **state) {
    (void)state;
    by_tok *tok = NULL;
    by_err err;
    assert_int_equal(by_tok_open(&tok, by_golden_path("model/tiny_b/checkpoint/tokenizer.json"), NULL, &err), BY_OK);
    assert_int_equal(by_tok_check_encode(tok, &err), BY_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "pre_tokenizer"));
    by_npz *z = by_npz_open(by_golden_path("model/tiny_b/token_map.npz"));
    assert_non_null(z);
    const by_npy *want = by_npz_need(z, "<i4", "map");
    assert_int_equal(want->n, 300);
    check_map(tok, by_npy_i32(want), 300, 259);
    by_npz_close(z);
    by_tok_destroy(tok);
}

static void every_code_point_folds_as_in_the_oracle(void **state) {
    (void)state;
    by_lines *lines = by_lines_open(by_golden_path("tokenizer/fold.txt.gz"));
    by_str line = {0};
    bool more = by_lines_next(lines, &line);
    int n_listed = 0, n_open = 0;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (cp >= 0xd800 && cp < 0xe000) continue;
        char own[4], got[BY_UNICODE_FOLD_MAX];
        by_str want = by_str_of(own, by_utf8_put(cp, own));
        bool open = more && line.ptr[0] == '?';
        if (more && strtoul(line.ptr + open, NULL, 16) == cp) {
            n_listed++;
            n_open += open;
            const char *tab = memchr(line.ptr, '\t', line.len);
            if (tab) want = by_str_skip(line, (size_t)(tab + 1 - line.ptr));
            if (!open && !by_str_eq(by_str_of(got, by_unicode_fold(cp, got)), want))
                fail_msg("U+%04X does not fold to '%.*s'", cp, BY_STR_ARG(want));
            more = by_lines_next(lines, &line);
        } else if (!by_str_eq(by_str_of(got, by_unicode_fold(cp, got)), want)) {
            fail_msg("U+%04X folds, but stays in the oracle", cp);
        }
    }
    assert_false(more);
    assert_int_equal(n_listed, 20550);
    assert_int_equal(n_open, 207);
    by_lines_close(lines);
}

static void strings_normalise_as_in_the_oracle(void **state) {
    (void)state;
    by_lines *lines = by_lines_open(by_golden_path("tokenizer/normalise.jsonl.gz"));
    by_arena arena;
    by_buf got = {0};
    by_str line;
    int n = 0;
    by_arena_init(&arena, BY_MEM_JSON);
    for (; by_lines_next(lines, &line); n++) {
        by_json row;
        by_arena_reset(&arena);
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        by_buf_clear(&got);
        by_buf_push_z(&got, "before"); /* appends */
        assert_true(by_tok_normalise(&got, by_json_get(&row, "text")->v.s));
        by_str want = by_json_get(&row, "expected")->v.s;
        if (!by_str_eq(by_str_skip(by_buf_str(&got), 6), want))
            fail_msg("%.*s\ngot %s", BY_STR_ARG(line), by_buf_z(&got) + 6);
    }
    assert_int_equal(n, 800);
    by_lines_close(lines);
    by_buf_deinit(&got);
    by_arena_deinit(&arena);
}

static void a_vocabulary_size_out_of_range_is_refused(void **state) {
    (void)state;
    by_tok *tok = by_test_tok_tiny(NULL);
    int32_t map[1], n;
    by_err err;
    assert_int_equal(by_tok_compressed_ids(tok, map, 0, &n, &err), BY_EINVAL);
    assert_int_equal(by_tok_compressed_ids(tok, map, 2000001, &n, &err), BY_EINVAL);
    by_tok_destroy(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_tokenizer_has_99092_distinct_ids),
        cmocka_unit_test(tiny_model_has_4566_distinct_ids),
        cmocka_unit_test(tiny_b_agrees_with_its_stored_map),
        cmocka_unit_test(every_code_point_folds_as_in_the_oracle),
        cmocka_unit_test(strings_normalise_as_in_the_oracle),
        cmocka_unit_test(a_vocabulary_size_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
