/* BY_TEST_TIMEOUT=300
 * Properties of the tokenizer on random texts and random merge tables: the scanner and both mergers against their slow twin,
 * round trips, streams against whole decoding, special ranges against single pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "json/json_write.h"
#include "support/seed.h"
#include "support/slow_tok.h"
#include "support/tok_v4.h"
#include "support/toy_tok.h"
#include "tok/tok_impl.h"

static by_tok *tok, *heap_tok;
static by_tok_scratch *scratch;
static by_rng rng;

static int setup(void **state) {
    (void)state;
    tok = by_test_tok_v4(NULL);
    heap_tok = by_test_tok_v4(&(by_tok_opts){.plain_merges = true});
    rng = by_test_rng(4);
    return by_tok_scratch_create(&scratch, tok, NULL) == BY_OK ? 0 : 1;
}

static int teardown(void **state) {
    (void)state;
    by_tok_scratch_destroy(scratch);
    by_tok_destroy(tok);
    by_tok_destroy(heap_tok);
    return 0;
}

/* ---- random text ---- */

static uint32_t random_cp(void) {
    static const char *const pools[] = {
        "abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "    \t", "\r\n", "\v\f\xc2\x85\u00a0\u2003\u2028\u3000", "0123456789",
        "½²Ⅷ①٣", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "，。！？「」…€£←≠", "的一是在不了有和人这中大为上个国我以要他",
        "あいうえおカタカナー゛・", "々〆\u3400\u9fa6\u9fff", "\u0301\u0308\u20dd\u0903", "\u200b\u200d\ufeff\u2060\u00ad",
        "éßıΩжאع한", "\U0001f600\U0001f1e9\U0001d400\U00020000\U000105c0\U000323b0", "\x01\x7f\ufffd\U0010ffff\ue000",
    };
    if (by_rng_below(&rng, 200) == 0) return 0;
    if (by_rng_below(&rng, 20) == 0) { /* anything */
        uint32_t cp = (uint32_t)by_rng_below(&rng, 0x110000);
        return cp >= 0xd800 && cp < 0xe000 ? 'x' : cp;
    }
    by_str pool = by_str_z(pools[by_rng_below(&rng, sizeof pools / sizeof pools[0])]);
    size_t k = by_rng_below(&rng, by_utf8_count(pool)), i = 0;
    for (; k > 0; k--) i += by_utf8_next(pool.ptr + i, pool.len - i).n;
    return by_utf8_next(pool.ptr + i, pool.len - i).cp;
}

/* Words, runs and whole token texts, so that pieces of every kind and long merges occur. */
static void random_text(by_buf *out, size_t n) {
    by_buf_clear(out);
    while (out->len < n) {
        char utf8[4];
        uint64_t what = by_rng_below(&rng, 10);
        if (what < 5) {
            by_buf_push(out, utf8, by_utf8_put(random_cp(), utf8));
        } else if (what < 7) {
            size_t len = by_utf8_put(random_cp(), utf8);
            for (uint64_t k = by_rng_below(&rng, 12); k > 0; k--) by_buf_push(out, utf8, len);
        } else {
            by_str s = by_tok_bytes(tok, (int32_t)by_rng_below(&rng, 129280));
            if (s.ptr && by_utf8_valid(s, NULL)) by_buf_push_str(out, s);
        }
    }
    assert_false(out->failed);
    by_buf_reserve(out, 1); /* never NULL */
}

static void fail_text(const char *what, by_str text) {
    by_buf b = {0};
    by_json_write_string(&b, text);
    print_error("%s: %s\n", what, by_buf_z(&b));
    fail();
}

static void expect_same(const char *what, by_str text, const by_tok_ids *got, const by_tok_ids *want) {
    if (got->n == want->n && (got->n == 0 || memcmp(got->ids, want->ids, got->n * sizeof *got->ids) == 0)) return;
    fail_text(what, text);
}

static void encode(const by_tok *t, by_tok_scratch *s, by_str text, by_tok_mode mode, by_tok_ids *out) {
    out->n = 0;
    assert_int_equal(by_tok_encode(t, s, text, mode, out, NULL), BY_OK);
}

/* ---- properties ---- */

static void pieces_are_those_of_the_three_splits(void **state) {
    (void)state;
    by_buf text = {0};
    size_t *ends = malloc(4096 * sizeof *ends);
    for (int i = by_test_scaled(20000); i > 0; i--) {
        random_text(&text, 1 + by_rng_below(&rng, 60));
        by_str s = by_buf_str(&text);
        size_t n = by_slow_pieces(s, ends), k = 0;
        for (size_t at = 0; at < s.len; k++) {
            at = by_tok_next_piece(s, at);
            if (k >= n || ends[k] != at) fail_text("pieces differ", s);
        }
        if (k != n) fail_text("pieces are missing", s);
    }
    free(ends);
    by_buf_deinit(&text);
}

static void all_encoders_agree_and_the_text_comes_back(void **state) {
    (void)state;
    by_buf text = {0}, back = {0};
    by_tok_ids want = {0}, got = {0};
    for (int i = by_test_scaled(6000); i > 0; i--) {
        random_text(&text, by_rng_below(&rng, 80));
        by_str s = by_buf_str(&text);
        want.n = 0;
        by_slow_encode(tok, s, &want);
        encode(tok, scratch, s, BY_TOK_PLAIN, &got);
        expect_same("linear", s, &got, &want);
        encode(tok, scratch, s, BY_TOK_PLAIN, &got);
        expect_same("linear, warm", s, &got, &want);
        encode(tok, NULL, s, BY_TOK_PLAIN, &got);
        expect_same("linear, without scratch", s, &got, &want);
        encode(heap_tok, NULL, s, BY_TOK_PLAIN, &got);
        expect_same("heap", s, &got, &want);
        for (int full = 0; full < 2; full++) {
            encode(tok, scratch, s, full ? BY_TOK_FULL : BY_TOK_PLAIN, &got);
            by_buf_clear(&back);
            assert_int_equal(by_tok_decode(tok, got.ids, got.n, false, &back, NULL), BY_OK);
            if (!by_str_eq(by_buf_str(&back), s)) fail_text("does not come back", s);
        }
    }
    by_buf_deinit(&text);
    by_buf_deinit(&back);
    by_tok_ids_deinit(&want);
    by_tok_ids_deinit(&got);
}

/* Merge tables that no training would make: three letters, or the bytes of four characters; ties of every kind. */
static void mergers_agree_on_random_merge_tables(void **state) {
    (void)state;
    by_buf file = {0}, text = {0};
    by_tok_ids want = {0}, got = {0};
    int n_linear = 0, n_heap = 0;
    for (int i = by_test_scaled(1500); i > 0; i--) {
        by_tok *t = NULL;
        by_tok_scratch *s = NULL;
        by_err err;
        static const char *const wide[] = {"a", "é", "è", "中"}, *const narrow[] = {"a", "b", "c"};
        by_toy_opts opts = {.n_merges = 1 + (int)by_rng_below(&rng, 60), .proper = by_rng_below(&rng, 4) != 0,
                            .wide = by_rng_below(&rng, 2)};
        by_buf_clear(&file);
        by_toy_random_file(&file, &rng, opts);
        if (by_tok_parse(&t, by_buf_str(&file), NULL, &err) != BY_OK) fail_msg("%s\n%s", err.msg, by_buf_z(&file));
        assert_int_equal(by_tok_scratch_create(&s, t, &err), BY_OK);
        assert_true(t->linear || !opts.proper);
        n_linear += t->linear;
        n_heap += !t->linear;
        uint64_t letters = 1 + by_rng_below(&rng, opts.wide ? 4 : 3);
        for (int k = 0; k < 30; k++) {
            by_buf_clear(&text);
            for (uint64_t n = 1 + by_rng_below(&rng, 40); n > 0; n--)
                by_buf_push_z(&text, (opts.wide ? wide : narrow)[by_rng_below(&rng, letters)]);
            want.n = 0;
            by_slow_encode(t, by_buf_str(&text), &want);
            encode(t, s, by_buf_str(&text), BY_TOK_PLAIN, &got);
            if (got.n != want.n || memcmp(got.ids, want.ids, got.n * sizeof *got.ids) != 0) print_error("%s\n", by_buf_z(&file));
            expect_same("random merges", by_buf_str(&text), &got, &want);
        }
        by_tok_scratch_destroy(s);
        by_tok_destroy(t);
    }
    assert_true(n_linear > 0 && (n_heap > 0 || by_test_scaled(100) < 100));
    by_buf_deinit(&file);
    by_buf_deinit(&text);
    by_tok_ids_deinit(&want);
    by_tok_ids_deinit(&got);
}

static int32_t random_id(void) {
    static const int32_t odd[] = {-1, -2147483647, 129280, 2147483647, 0, 1, 2, 128799};
    uint64_t what = by_rng_below(&rng, 10);
    if (what == 0) return odd[by_rng_below(&rng, 8)];
    if (what < 5) return tok->byte_ids[by_rng_below(&rng, 256)]; /* broken and unfinished characters */
    return (int32_t)by_rng_below(&rng, 129280);
}

static void streams_give_what_whole_decoding_gives(void **state) {
    (void)state;
    by_buf whole = {0}, joined = {0};
    for (int i = by_test_scaled(30000); i > 0; i--) {
        int32_t ids[24];
        size_t n = by_rng_below(&rng, 24);
        bool skip = by_rng_below(&rng, 2);
        for (size_t k = 0; k < n; k++) ids[k] = random_id();
        by_buf_clear(&whole);
        assert_int_equal(by_tok_decode(tok, ids, n, skip, &whole, NULL), BY_OK);
        if (whole.len) assert_true(by_utf8_valid(by_buf_str(&whole), NULL));
        for (int mode = 0; mode < 2; mode++) {
            by_tok_stream s;
            by_tok_stream_init(&s, tok, (by_tok_stream_mode)mode, skip);
            by_buf_clear(&joined);
            for (size_t k = 0; k < n; k++) {
                size_t from = joined.len;
                assert_int_equal(by_tok_stream_push(&s, ids[k], &joined, NULL), BY_OK);
                by_str piece = by_str_of(joined.ptr + from, joined.len - from);
                if (piece.len) assert_true(by_utf8_valid(piece, NULL));
                if (mode == BY_TOK_STREAM_REFERENCE) assert_false(by_str_ends(piece, BY_STR(BY_UTF8_REPLACEMENT)));
            }
            assert_int_equal(by_tok_stream_finish(&s, &joined, NULL), BY_OK);
            by_tok_stream_deinit(&s);
            by_str rest = by_buf_str(&whole);
            assert_true(by_str_starts(rest, by_buf_str(&joined)));
            if (joined.len) rest = by_str_skip(rest, joined.len);
            if (mode == BY_TOK_STREAM_LOSSLESS) assert_int_equal(rest.len, 0);
            else if (rest.len) assert_true(by_str_ends(rest, BY_STR(BY_UTF8_REPLACEMENT))); /* only such a tail is lost */
        }
    }
    by_buf_deinit(&whole);
    by_buf_deinit(&joined);
}

/* A prompt of special spellings and user text that is full of them, too: ranges decide what is special. */
static void ranges_are_special_and_gaps_are_plain(void **state) {
    (void)state;
    by_buf prompt = {0}, gap = {0};
    by_tok_ids want = {0}, got = {0}, one = {0};
    by_tok_range ranges[8];
    for (int i = by_test_scaled(3000); i > 0; i--) {
        size_t n = by_rng_below(&rng, 8);
        by_buf_clear(&prompt);
        by_buf_reserve(&prompt, 1);
        want.n = 0;
        for (size_t k = 0; k <= n; k++) {
            random_text(&gap, by_rng_below(&rng, 12));
            if (by_rng_below(&rng, 3) == 0) by_buf_push_str(&gap, by_tok_bytes(tok, 128822));
            by_buf_push_str(&prompt, by_buf_str(&gap));
            encode(tok, NULL, by_buf_str(&gap), BY_TOK_PLAIN, &one);
            for (size_t j = 0; j < one.n; j++) {
                assert_false(by_tok_is_added(tok, one.ids[j]));
                assert_int_equal(by_tok_ids_push(&want, one.ids[j], NULL), BY_OK);
            }
            if (k == n) break;
            by_tok_added a = by_tok_added_at(tok, by_rng_below(&rng, by_tok_n_added(tok)));
            ranges[k] = (by_tok_range){prompt.len, prompt.len + a.content.len};
            by_buf_push_str(&prompt, a.content);
            assert_int_equal(by_tok_ids_push(&want, a.id, NULL), BY_OK);
        }
        got.n = 0;
        assert_int_equal(by_tok_encode_ranges(tok, scratch, by_buf_str(&prompt), ranges, n, &got, NULL), BY_OK);
        expect_same("ranges", by_buf_str(&prompt), &got, &want);
    }
    by_buf_deinit(&prompt);
    by_buf_deinit(&gap);
    by_tok_ids_deinit(&want);
    by_tok_ids_deinit(&got);
    by_tok_ids_deinit(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_those_of_the_three_splits),
        cmocka_unit_test(all_encoders_agree_and_the_text_comes_back),
        cmocka_unit_test(mergers_agree_on_random_merge_tables),
        cmocka_unit_test(streams_give_what_whole_decoding_gives),
        cmocka_unit_test(ranges_are_special_and_gaps_are_plain),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
