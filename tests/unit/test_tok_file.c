/* Tokenizer files that are broken, contradict themselves or ask for what is not implemented: each is refused with a message
 * that names the place, or loads and refuses to encode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "support/toy_tok.h"
#include "tok/tok.h"
#include "tok/tok_impl.h"

static by_status parse(by_str file, by_err *err) {
    by_tok *t = NULL;
    int64_t held = by_alloc_bytes_total();
    by_status status = by_tok_parse(&t, file, NULL, err);
    if (status != BY_OK) assert_null(t);
    by_tok_destroy(t);
    assert_int_equal(by_alloc_bytes_total(), held);
    return status;
}

static void expect(by_str file, by_status want, const char *message) {
    by_err err = {0};
    by_status status = parse(file, &err);
    if (status == want && (want == BY_OK || strstr(err.msg, message))) return;
    fail_msg("got %s '%s', want %s with '%s'\n%.*s", by_status_name(status), err.msg, by_status_name(want), message,
             file.len > 400 ? 400 : (int)file.len, file.ptr);
}

/* ---- lists ---- */

static void lists_that_contradict_themselves_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *vocab, *merges, *added, *message;
        by_status status;
    } cases[] = {
        {"", "", "", "", BY_OK},
        {"\"ab\": 256", "\"a b\"", "", "", BY_OK},
        {"\"ab\": 700", "\"a b\"", "", "", BY_OK}, /* a hole */
        {"\"ab\": 97", "", "", "'ab' has id 97, which is taken", BY_EFORMAT},
        {"\"ab\": 256, \"ab\": 257", "", "", "'ab' appears twice", BY_EFORMAT},
        {"\"ab\": -1", "", "", "'ab': want an id", BY_EFORMAT},
        {"\"ab\": 2000000", "", "", "'ab': want an id in 0..1999999", BY_EFORMAT},
        {"\"ab\": 1e3", "", "", "'ab': want an id", BY_EFORMAT},
        {"\"ab\": \"256\"", "", "", "'ab': want an id", BY_EFORMAT},
        {"\"ab\": null", "", "", "'ab': want an id", BY_EFORMAT},
        {"\"\": 256", "", "", "model.vocab: an empty text", BY_EFORMAT},
        {"\"ab\": 256", "\"ab\"", "", "model.merges[0]: want two spellings", BY_EFORMAT},
        {"\"ab\": 256", "\"a b\", \"a b c\"", "", "model.merges[1]: want two spellings", BY_EFORMAT},
        {"\"ab\": 256", "[\"a\", \"b\", \"c\"]", "", "model.merges[0]: want two spellings", BY_EFORMAT},
        {"\"ab\": 256", "[\"a\", 5]", "", "model.merges[0]: want two spellings", BY_EFORMAT},
        {"\"ab\": 256", "7", "", "model.merges[0]: want two spellings", BY_EFORMAT},
        {"\"ab\": 256", "\"\"", "", "model.merges[0]: want two spellings", BY_EFORMAT},
        {"\"ab\": 256", "\" \"", "", "model.merges[0]: '' is not in model.vocab", BY_EFORMAT},
        {"\"ab\": 256", "\"a \"", "", "model.merges[0]: '' is not in model.vocab", BY_EFORMAT},
        {"\"ab\": 256", "\"a xyz\"", "", "model.merges[0]: 'xyz' is not in model.vocab", BY_EFORMAT},
        {"\"ab\": 256", "\"b a\"", "", "model.merges[0]: its result 'ba' is not in model.vocab", BY_EFORMAT},
        {"\"ab\": 256", "\"a b\", [\"a\", \"b\"]", "", "model.merges[1]: 'a b' is merge 0 already", BY_EFORMAT},
        {"\"｜\": 256, \"a｜\": 257", "\"a ｜\"", "", "model.merges[0]: 'a｜' is not made of byte symbols", BY_EFORMAT},
        {"", "", "7", "added_tokens[0].id: want an id", BY_EFORMAT},
        {"", "", "{\"content\": \"x1\"}", "added_tokens[0].id: want an id", BY_EFORMAT},
        {"", "", "{\"id\": 2000000, \"content\": \"x1\"}", "added_tokens[0].id: want an id", BY_EFORMAT},
        {"", "", "{\"id\": 256}", "added_tokens[0].content: want a string", BY_EFORMAT},
        {"", "", "{\"id\": 256, \"content\": \"\"}", "added_tokens: an empty text", BY_EFORMAT},
        {"", "", "{\"id\": 256, \"content\": \"x1\"}, {\"id\": 256, \"content\": \"x2\"}", "id 256 appears twice", BY_EFORMAT},
        {"", "", "{\"id\": 256, \"content\": \"x1\"}, {\"id\": 257, \"content\": \"x1\"}",
         "ids 256 and 257 have the same text 'x1'", BY_EFORMAT},
        {"", "", "{\"id\": 97, \"content\": \"x1\"}", "id 97 ('x1') has another text in model.vocab", BY_EFORMAT},
        {"\"x1\": 256", "", "{\"id\": 257, \"content\": \"x1\"}", "'x1' has id 257 here and 256 in model.vocab", BY_EFORMAT},
        {"\"x1\": 256", "", "{\"id\": 256, \"content\": \"x1\"}", "", BY_OK},
        {"\"Ġa\": 256", "", "{\"id\": 256, \"content\": \"Ġa\"}", "id 256 ('Ġa') has another text", BY_EFORMAT},
    };
    by_buf file = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_buf_clear(&file);
        by_toy_file(&file, cases[i].vocab, cases[i].merges, cases[i].added);
        expect(by_buf_str(&file), cases[i].status, cases[i].message);
    }
    by_buf_deinit(&file);
}

/* ---- the file as a whole ---- */

/* The toy file with the first occurrence of `from` replaced. */
static void edited(by_buf *out, const char *from, const char *to) {
    by_buf file = {0};
    by_toy_file(&file, "\"ab\": 256", "\"a b\"", "{\"id\": 300, \"content\": \"<t>\"}");
    const char *text = by_buf_z(&file), *at = strstr(text, from);
    if (!at) fail_msg("the toy file has no '%s'", from);
    by_buf_clear(out);
    by_buf_push(out, text, (size_t)(at - text));
    by_buf_push_z(out, to);
    by_buf_push_z(out, at + strlen(from));
    by_buf_deinit(&file);
}

static void files_of_another_shape_are_refused(void **state) {
    (void)state;
    expect(BY_STR(""), BY_EFORMAT, "expected a value");
    expect(BY_STR("[]"), BY_EFORMAT, "not a JSON object");
    expect(BY_STR("{}"), BY_EFORMAT, "model: want an object");
    expect(BY_STR("{\"model\": {}}"), BY_EUNSUPPORTED, "model.type");
    expect(BY_STR("{\"model\": {\"type\": \"Unigram\"}}"), BY_EUNSUPPORTED, "only BPE");
    expect(BY_STR("{\"model\": {\"type\": \"BPE\"}}"), BY_EFORMAT, "model.vocab: want an object");
    expect(BY_STR("{\"model\": {\"type\": \"BPE\", \"vocab\": {}}}"), BY_EFORMAT, "model.merges: want an array");
    expect(BY_STR("{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}"), BY_EFORMAT,
           "no entry for the byte 0x00 (U+0100)");
    by_buf b = {0};
    edited(&b, "\"Ġ\": 32", "\"Ġx\": 32");
    expect(by_buf_str(&b), BY_EFORMAT, "no entry for the byte 0x20 (U+0120)");
    edited(&b, "\"added_tokens\": [", "\"added_tokens\": 5, \"x\": [");
    expect(by_buf_str(&b), BY_EFORMAT, "added_tokens: want an array");
    edited(&b, "\"a b\"]", "\"a b\"");
    expect(by_buf_str(&b), BY_EFORMAT, "line 1 column");
    by_buf_deinit(&b);
    by_tok *t = NULL;
    by_err err;
    assert_int_equal(by_tok_open(&t, "/nonexistent/tokenizer.json", NULL, &err), BY_EMISSING);
    assert_non_null(strstr(err.msg, "/nonexistent/tokenizer.json"));
}

static void features_that_are_not_implemented_stop_encoding_only(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"unk_token\": null", "\"unk_token\": \"a\"", "model.unk_token is set"},
        {"\"unk_token\": null", "\"byte_fallback\": true", "model.byte_fallback is set"},
        {"\"unk_token\": null", "\"ignore_merges\": true", "model.ignore_merges is set"},
        {"\"unk_token\": null", "\"dropout\": 0.1", "model.dropout is set"},
        {"\"unk_token\": null", "\"continuing_subword_prefix\": \"##\"", "model.continuing_subword_prefix is set"},
        {"{\"type\": \"Sequence\", \"normalizers\": []}", "{\"type\": \"NFC\"}", "normalizer"},
        {"\"normalizers\": []", "\"normalizers\": [{\"type\": \"NFC\"}]", "normalizer"},
        {"{1,3}", "{1,4}", "pretokenizers[0]"},
        {"\\u3040", "\\u3041", "pretokenizers[1]"},
        {"(?!\\\\S)", "(?=\\\\S)", "pretokenizers[2]"},
        {"\"Isolated\"", "\"Removed\"", "pretokenizers[0]: only behavior"},
        {"\"invert\": false", "\"invert\": true", "pretokenizers[0]: only behavior"},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": true", "pretokenizers[3]"},
        {"\"use_regex\": false", "\"use_regexes\": false", "pretokenizers[3]"},
        {"\"pre_tokenizer\"", "\"x\"", "pre_tokenizer: want a Sequence"},
        {"\"id\": 300", "\"lstrip\": true, \"id\": 300", "added_tokens[0].lstrip is set"},
        {"\"id\": 300", "\"single_word\": true, \"id\": 300", "added_tokens[0].single_word is set"},
    };
    by_buf b = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_tok *t = NULL;
        by_tok_ids ids = {0};
        by_err err = {0};
        edited(&b, cases[i].from, cases[i].to);
        if (by_tok_parse(&t, by_buf_str(&b), NULL, &err) != BY_OK) fail_msg("%s: %s", cases[i].to, err.msg);
        assert_int_equal(by_tok_check_encode(t, &err), BY_EUNSUPPORTED);
        if (!strstr(err.msg, cases[i].message)) fail_msg("%s: %s", cases[i].to, err.msg);
        assert_int_equal(by_tok_encode(t, NULL, BY_STR("a"), BY_TOK_PLAIN, &ids, &err), BY_EUNSUPPORTED);
        assert_int_equal(by_tok_encode_ranges(t, NULL, BY_STR("a"), NULL, 0, &ids, NULL), BY_EUNSUPPORTED);
        assert_true(by_str_eqz(by_tok_bytes(t, 256), "ab"));
        by_tok_destroy(t);
    }
    by_buf_deinit(&b);
}

static void a_text_over_the_limit_is_refused(void **state) {
    (void)state;
    for (size_t n = 4096; n < 4098; n++) {
        by_buf file = {0}, added = {0};
        by_buf_push_z(&added, "{\"id\": 300, \"content\": \"");
        for (size_t i = 0; i < n; i++) by_buf_push_byte(&added, 'x');
        by_buf_push_z(&added, "\"}");
        by_toy_file(&file, "", "", by_buf_z(&added));
        expect(by_buf_str(&file), n == 4096 ? BY_OK : BY_ELIMIT, "4097 bytes is over the limit of 4096");
        by_buf_deinit(&file);
        by_buf_deinit(&added);
    }
}

/* A merge of parts that appear only later: the linear encoder would not notice the difference, so it must not be used. */
static void merges_out_of_order_use_the_heap(void **state) {
    (void)state;
    by_buf file = {0};
    by_tok *t = NULL;
    by_tok_ids ids = {0};
    by_toy_file(&file, "\"ab\": 256, \"abc\": 257", "\"ab c\", \"a b\"", "");
    assert_int_equal(by_tok_parse(&t, by_buf_str(&file), NULL, NULL), BY_OK);
    assert_false(t->linear);
    assert_int_equal(by_tok_encode(t, NULL, BY_STR("abc"), BY_TOK_PLAIN, &ids, NULL), BY_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.ids[0], 257);
    by_tok_ids_deinit(&ids);
    by_tok_destroy(t);
    by_buf_deinit(&file);
}

/* Any prefix of a file is an error, never a crash. */
static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    by_buf file = {0};
    by_toy_file(&file, "\"ab\": 256", "\"a b\"", "{\"id\": 300, \"content\": \"<t>\"}");
    for (size_t n = 0; n < file.len; n += 1 + n / 64) assert_int_equal(parse(by_str_of(file.ptr, n), NULL), BY_EFORMAT);
    by_buf_deinit(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_contradict_themselves_are_refused),
        cmocka_unit_test(files_of_another_shape_are_refused),
        cmocka_unit_test(features_that_are_not_implemented_stop_encoding_only),
        cmocka_unit_test(a_text_over_the_limit_is_refused),
        cmocka_unit_test(merges_out_of_order_use_the_heap),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
