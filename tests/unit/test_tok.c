/* The tokenizer's interface on small files made here: tables, modes, ranges, streams, errors, memory, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "support/tok_v4.h"
#include "support/toy_tok.h"
#include "tok/token_map.h"

static const char toy_vocab[] = "\"ab\": 256, \"abc\": 257, \"Ġa\": 258, \"<|x|>\": 300, \"xy\": 259";
static const char toy_merges[] = "\"a b\", \"ab c\", [\"Ġ\", \"a\"]";
static const char toy_added[] =
    "{\"id\": 300, \"content\": \"<|x|>\", \"special\": true}, {\"id\": 301, \"content\": \"<t>\", \"special\": false},"
    "{\"id\": 303, \"content\": \"<t>>\", \"single_word\": false}";

static by_tok *toy(const by_tok_opts *opts) {
    by_buf file = {0};
    by_tok *t = NULL;
    by_err err;
    by_toy_file(&file, toy_vocab, toy_merges, toy_added);
    if (by_tok_parse(&t, by_buf_str(&file), opts, &err) != BY_OK) fail_msg("%s", err.msg);
    by_buf_deinit(&file);
    return t;
}

static void expect_ids(const by_tok_ids *got, const int32_t *want, size_t n) {
    assert_int_equal(got->n, n);
    assert_memory_equal(got->ids, want, n * sizeof *want);
}

#define EXPECT_IDS(got, ...)                                                                       \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        expect_ids(got, want_, sizeof want_ / sizeof want_[0]);                                    \
    } while (0)

/* ---- tables ---- */

static void tables_answer_for_every_id(void **state) {
    (void)state;
    by_tok *t = toy(NULL);
    by_buf b = {0};
    assert_int_equal(by_tok_n_ids(t), 304);
    assert_true(by_str_eqz(by_tok_bytes(t, 257), "abc"));
    assert_true(by_str_eqz(by_tok_bytes(t, 258), " a"));
    assert_true(by_str_eqz(by_tok_bytes(t, 300), "<|x|>"));
    assert_int_equal(by_tok_bytes(t, 0).len, 1);
    const int32_t missing[] = {-1, 260, 299, 302, 304, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 7; i++) {
        assert_null(by_tok_bytes(t, missing[i]).ptr);
        assert_false(by_tok_is_added(t, missing[i]) || by_tok_is_special(t, missing[i]));
        assert_false(by_tok_spelling(t, missing[i], &b));
    }
    assert_int_equal(b.len, 0);
    assert_true(by_tok_spelling(t, 258, &b) && by_tok_spelling(t, 301, &b));
    assert_string_equal(by_buf_z(&b), "Ġa<t>");
    assert_int_equal(by_tok_n_added(t), 3);
    assert_int_equal(by_tok_added_at(t, 1).id, 301);
    assert_false(by_tok_added_at(t, 1).special);
    assert_true(by_tok_added_at(t, 0).special);
    assert_int_equal(by_tok_find_added(t, BY_STR("<t>")), 301);
    assert_int_equal(by_tok_find_added(t, BY_STR("<t")), -1);
    assert_int_equal(by_tok_find_added(t, BY_STR("<t>x")), -1);
    assert_int_equal(by_tok_find_added(t, (by_str){0}), -1);
    assert_int_equal(by_tok_find_added(t, BY_STR("abc")), -1);
    by_buf_deinit(&b);
    by_tok_destroy(t);
}

static void ids_are_found_by_their_bytes(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        by_tok *t = toy(&(by_tok_opts){.plain_merges = plain});
        assert_int_equal(by_tok_find_bytes(t, BY_STR("abc")), 257);
        assert_int_equal(by_tok_find_bytes(t, BY_STR("\xff")), 255);
        assert_int_equal(by_tok_find_bytes(t, BY_STR(" a")), 258);
        assert_int_equal(by_tok_find_bytes(t, BY_STR("xy")), -1); /* no merge makes it */
        assert_int_equal(by_tok_find_bytes(t, BY_STR("abcd")), -1);
        assert_int_equal(by_tok_find_bytes(t, BY_STR("<t>")), -1);
        assert_int_equal(by_tok_find_bytes(t, (by_str){0}), -1);
        by_tok_destroy(t);
    }
}

/* ---- encoding ---- */

static void added_tokens_count_in_full_mode_only(void **state) {
    (void)state;
    by_tok *t = toy(NULL);
    by_tok_ids ids = {0};
    by_str text = BY_STR("abc<t>>ab<t><|x|> a");
    assert_int_equal(by_tok_encode(t, NULL, text, BY_TOK_FULL, &ids, NULL), BY_OK);
    EXPECT_IDS(&ids, 257, 303, 256, 301, 300, 258);
    assert_int_equal(by_tok_encode(t, NULL, BY_STR("<t>"), BY_TOK_PLAIN, &ids, NULL), BY_OK); /* appends */
    EXPECT_IDS(&ids, 257, 303, 256, 301, 300, 258, '<', 't', '>');
    by_tok_ids_deinit(&ids);
    by_tok_destroy(t);
}

static void nothing_encodes_to_nothing(void **state) {
    (void)state;
    by_tok *t = toy(NULL);
    by_tok_ids ids = {0};
    for (int mode = 0; mode < 2; mode++) {
        assert_int_equal(by_tok_encode(t, NULL, (by_str){0}, (by_tok_mode)mode, &ids, NULL), BY_OK);
        assert_int_equal(by_tok_encode(t, NULL, BY_STR(""), (by_tok_mode)mode, &ids, NULL), BY_OK);
    }
    assert_int_equal(by_tok_encode_ranges(t, NULL, (by_str){0}, NULL, 0, &ids, NULL), BY_OK);
    assert_int_equal(ids.n, 0);
    assert_null(ids.ids);
    by_tok_destroy(t);
}

static void text_that_is_not_utf8_is_refused_with_its_offset(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"abc\xff", "byte 0xff at offset 3"},  {"\xc3", "byte 0xc3 at offset 0"},
        {"a\xed\xa0\x80", "offset 1"},         {"aaaaaaaaaaaaaaaa\xf4\x90\x80\x80", "offset 16"},
        {"\xe4\xb8\xad\xe4\xb8", "offset 3"}, {"\xc0\x80", "byte 0xc0 at offset 0"},
    };
    by_tok *t = toy(NULL);
    by_tok_ids ids = {0};
    by_err err;
    assert_int_equal(by_tok_ids_push(&ids, 7, NULL), BY_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(by_tok_encode(t, NULL, by_str_z(cases[i].text), BY_TOK_FULL, &ids, &err), BY_EFORMAT);
        assert_non_null(strstr(err.msg, cases[i].message));
        assert_int_equal(by_tok_encode_ranges(t, NULL, by_str_z(cases[i].text), NULL, 0, &ids, &err), BY_EFORMAT);
    }
    EXPECT_IDS(&ids, 7);
    by_tok_ids_deinit(&ids);
    by_tok_destroy(t);
}

static void ranges_must_spell_added_tokens_in_order(void **state) {
    (void)state;
    by_tok *t = toy(NULL);
    by_tok_ids ids = {0};
    by_err err;
    by_str text = BY_STR("<t>ab<t>é");
    const by_tok_range good[] = {{0, 3}};
    assert_int_equal(by_tok_encode_ranges(t, NULL, text, good, 1, &ids, &err), BY_OK);
    EXPECT_IDS(&ids, 301, 256, '<', 't', '>', 0xc3, 0xa9);
    static const by_tok_range bad[][2] = {
        {{0, 3}, {2, 5}}, {{5, 8}, {0, 3}}, {{3, 3}, {5, 8}}, {{5, 4}, {5, 8}}, {{0, 3}, {5, 11}}, {{0, 3}, {8, 9}},
        {{0, 3}, {9, 10}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(by_tok_encode_ranges(t, NULL, text, bad[i], 2, &ids, &err), BY_EINVAL);
    const by_tok_range unknown[] = {{3, 5}};
    assert_int_equal(by_tok_encode_ranges(t, NULL, text, unknown, 1, &ids, &err), BY_EMISSING);
    assert_non_null(strstr(err.msg, "'ab'"));
    assert_int_equal(ids.n, 7);
    by_tok_ids_deinit(&ids);
    by_tok_destroy(t);
}

static void scratch_of_another_tokenizer_is_refused(void **state) {
    (void)state;
    by_tok *a = toy(NULL), *b = toy(NULL);
    by_tok_scratch *s = NULL;
    by_tok_ids ids = {0};
    by_err err;
    assert_int_equal(by_tok_scratch_create(&s, a, &err), BY_OK);
    assert_int_equal(by_tok_encode(b, s, BY_STR("x"), BY_TOK_FULL, &ids, &err), BY_EINVAL);
    by_tok_scratch_destroy(s);
    by_tok_scratch_destroy(NULL);
    by_tok_destroy(a);
    by_tok_destroy(b);
    by_tok_destroy(NULL);
}

static void overrides_rename_added_tokens(void **state) {
    (void)state;
    const by_tok_override rename = {.id = 301, .content = "<System>"};
    by_tok *t = toy(&(by_tok_opts){.overrides = &rename, .n_overrides = 1});
    by_tok_ids ids = {0};
    assert_int_equal(by_tok_encode(t, NULL, BY_STR("<System><t>"), BY_TOK_FULL, &ids, NULL), BY_OK);
    EXPECT_IDS(&ids, 301, '<', 't', '>');
    assert_int_equal(by_tok_find_added(t, BY_STR("<t>")), -1);
    by_tok_ids_deinit(&ids);
    by_tok_destroy(t);

    static const by_tok_override bad[] = {{299, "x"}, {-1, "x"}, {5000, "x"}, {97, "x"}, {301, ""}, {301, "\xff"},
                                          {301, "<t>>"}, {300, "<y>"}};
    by_buf file = {0};
    by_toy_file(&file, toy_vocab, toy_merges, toy_added);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        by_tok_opts opts = {.overrides = &bad[i], .n_overrides = 1};
        assert_true(by_tok_parse(&t, by_buf_str(&file), &opts, NULL) < 0);
    }
    by_buf_deinit(&file);
}

/* ---- long texts ---- */

/* One piece of a megabyte: linear time, and the same ids as the heap. */
static void a_very_long_piece_is_no_problem(void **state) {
    (void)state;
    by_tok *fast = by_test_tok_v4(NULL), *plain = by_test_tok_v4(&(by_tok_opts){.plain_merges = true});
    static const char *const units[] = {"a", "ab", " ", "\n", "=", "哈", "中国", "e\u0301"};
    by_buf text = {0};
    by_tok_ids got = {0}, want = {0};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        by_buf_clear(&text);
        while (text.len < 200000) by_buf_push_z(&text, units[i]);
        got.n = want.n = 0;
        assert_int_equal(by_tok_encode(fast, NULL, by_buf_str(&text), BY_TOK_FULL, &got, NULL), BY_OK);
        assert_int_equal(by_tok_encode(plain, NULL, by_buf_str(&text), BY_TOK_FULL, &want, NULL), BY_OK);
        expect_ids(&got, want.ids, want.n);
    }
    by_buf_deinit(&text);
    by_tok_ids_deinit(&got);
    by_tok_ids_deinit(&want);
    by_tok_destroy(fast);
    by_tok_destroy(plain);
}

/* ---- streams ---- */

static void push_all(by_tok_stream *s, const int32_t *ids, size_t n, by_buf *out) {
    for (size_t i = 0; i < n; i++) assert_int_equal(by_tok_stream_push(s, ids[i], out, NULL), BY_OK);
}

static void the_two_streams_differ_in_what_waits(void **state) {
    (void)state;
    by_tok *t = toy(NULL);
    static const int32_t ids[] = {'x', 0xff, 0xf0, 0x9f};
    for (int mode = 0; mode < 2; mode++) {
        by_tok_stream s;
        by_buf out = {0};
        by_tok_stream_init(&s, t, (by_tok_stream_mode)mode, false);
        push_all(&s, ids, 4, &out);
        assert_string_equal(by_buf_z(&out), mode == BY_TOK_STREAM_REFERENCE ? "x" : "x\ufffd");
        assert_int_equal(by_tok_stream_finish(&s, &out, NULL), BY_OK);
        assert_string_equal(by_buf_z(&out), mode == BY_TOK_STREAM_REFERENCE ? "x" : "x\ufffd\ufffd");
        by_buf_clear(&out); /* ready for another text; the old tail is gone */
        push_all(&s, (const int32_t[]){0x80, 0x81, 'y', 303, -5}, 5, &out);
        assert_string_equal(by_buf_z(&out), "\ufffd\ufffdy<t>>");
        by_tok_stream_deinit(&s);
        by_buf_deinit(&out);
    }
    by_tok_destroy(t);
}

static void special_tokens_can_be_left_out(void **state) {
    (void)state;
    by_tok *t = toy(NULL);
    by_buf out = {0};
    const int32_t ids[] = {300, 'a', 301, 0xc3, 300, 0xa9};
    assert_int_equal(by_tok_decode(t, ids, 6, false, &out, NULL), BY_OK);
    assert_string_equal(by_buf_z(&out), "<|x|>a<t>\ufffd<|x|>\ufffd");
    by_buf_clear(&out);
    assert_int_equal(by_tok_decode(t, ids, 6, true, &out, NULL), BY_OK);
    assert_string_equal(by_buf_z(&out), "a<t>é");
    by_buf_deinit(&out);
    by_tok_destroy(t);
}

/* ---- memory ---- */

static void steady_state_allocates_nothing(void **state) {
    (void)state;
    by_tok *t = by_test_tok_tiny(NULL);
    by_tok_scratch *s = NULL;
    by_tok_ids ids = {0};
    by_buf text = {0}, out = {0};
    by_tok_stream st;
    assert_int_equal(by_tok_scratch_create(&s, t, NULL), BY_OK);
    by_tok_stream_init(&st, t, BY_TOK_STREAM_LOSSLESS, false);
    for (int i = 0; i < 300; i++) by_buf_printf(&text, "The %d quick foxes, 敏捷的狐狸 %x\n\n\tjump()\xf0\x9f\xa6\x8a;", i * i, i);
    uint64_t calls = 0;
    for (int round = 0; round < 4; round++) {
        if (round == 1) calls = by_alloc_calls();
        ids.n = out.len = 0;
        assert_int_equal(by_tok_encode(t, s, by_buf_str(&text), BY_TOK_FULL, &ids, NULL), BY_OK);
        push_all(&st, ids.ids, ids.n, &out);
        assert_int_equal(by_tok_stream_finish(&st, &out, NULL), BY_OK);
        assert_true(by_str_eq(by_buf_str(&out), by_buf_str(&text)));
    }
    assert_int_equal(by_alloc_calls(), calls);
    by_tok_stream_deinit(&st);
    by_tok_scratch_destroy(s);
    by_tok_ids_deinit(&ids);
    by_buf_deinit(&text);
    by_buf_deinit(&out);
    by_tok_destroy(t);
}

/* One life of a tokenizer; the first failure ends it. */
static by_status live(by_str file, bool plain, by_err *err) {
    by_tok *t = NULL;
    by_tok_scratch *s = NULL;
    by_tok_ids ids = {0};
    by_buf out = {0};
    int32_t map[304], n;
    const by_tok_range range = {0, 3};
    by_status status = by_tok_parse(&t, file, &(by_tok_opts){.plain_merges = plain}, err);
    if (status == BY_OK) status = by_tok_scratch_create(&s, t, err);
    if (status == BY_OK) status = by_tok_encode(t, s, BY_STR("abcabc ababc<t>aabbcc"), BY_TOK_FULL, &ids, err);
    if (status == BY_OK) status = by_tok_encode(t, NULL, BY_STR("abcabcab"), BY_TOK_FULL, &ids, err);
    if (status == BY_OK) status = by_tok_encode_ranges(t, s, BY_STR("<t>abc"), &range, 1, &ids, err);
    if (status == BY_OK) status = by_tok_ids_push(&ids, 0xf0, err);
    if (status == BY_OK) status = by_tok_decode(t, ids.ids, ids.n, false, &out, err);
    if (status == BY_OK) status = by_tok_compressed_ids(t, map, 304, &n, err);
    by_buf_deinit(&out);
    by_tok_ids_deinit(&ids);
    by_tok_scratch_destroy(s);
    by_tok_destroy(t);
    return status;
}

static void every_failed_allocation_is_an_error_without_a_leak(void **state) {
    (void)state;
    by_buf file = {0};
    by_toy_file(&file, toy_vocab, toy_merges, toy_added);
    for (int plain = 0; plain < 2; plain++) {
        int64_t held = by_alloc_bytes_total(), n = 0;
        by_status status;
        do {
            by_err err = {0};
            by_alloc_fail_nth(++n);
            status = live(by_buf_str(&file), plain, &err);
            by_alloc_fail_nth(0);
            assert_true(status == BY_OK || status == BY_ENOMEM);
            if (status == BY_ENOMEM) assert_true(err.msg[0] != '\0');
            assert_int_equal(by_alloc_bytes_total(), held);
        } while (n < 20 || status != BY_OK);
        assert_true(n < 1000);
    }
    by_buf_deinit(&file);
}

/* ---- threads ---- */

typedef struct {
    const by_tok *tok;
    by_str text;
    by_tok_ids ids;
    by_status status;
} worker;

static void *encode_many(void *arg) {
    worker *w = arg;
    by_tok_scratch *s = NULL;
    w->status = by_tok_scratch_create(&s, w->tok, NULL);
    for (int i = 0; i < 50 && w->status == BY_OK; i++) {
        w->ids.n = 0;
        w->status = by_tok_encode(w->tok, i % 2 ? s : NULL, w->text, BY_TOK_FULL, &w->ids, NULL);
    }
    by_tok_scratch_destroy(s);
    return NULL;
}

static void threads_share_one_tokenizer(void **state) {
    (void)state;
    by_tok *t = by_test_tok_tiny(NULL);
    worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.tok = t, .text = BY_STR("Some text, 一些文字, <think> and numbers 12345.\n  x = y;")};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(workers[i].status, BY_OK);
        expect_ids(&workers[i].ids, workers[0].ids.ids, workers[0].ids.n);
    }
    for (int i = 0; i < 4; i++) by_tok_ids_deinit(&workers[i].ids);
    by_tok_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_answer_for_every_id),
        cmocka_unit_test(ids_are_found_by_their_bytes),
        cmocka_unit_test(added_tokens_count_in_full_mode_only),
        cmocka_unit_test(nothing_encodes_to_nothing),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_with_its_offset),
        cmocka_unit_test(ranges_must_spell_added_tokens_in_order),
        cmocka_unit_test(scratch_of_another_tokenizer_is_refused),
        cmocka_unit_test(overrides_rename_added_tokens),
        cmocka_unit_test(a_very_long_piece_is_no_problem),
        cmocka_unit_test(the_two_streams_differ_in_what_waits),
        cmocka_unit_test(special_tokens_can_be_left_out),
        cmocka_unit_test(steady_state_allocates_nothing),
        cmocka_unit_test(every_failed_allocation_is_an_error_without_a_leak),
        cmocka_unit_test(threads_share_one_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
