/* Unit tests of json/json_write.h: escapes, number forms, separators, the incremental writer. The forms of the numbers are
 * those that Python's json.dumps and deepseek-recipe 0.2.0 print; tests/golden/golden_json_double.c has more of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "json/json_write.h"

static void expect(by_buf *b, const char *want) {
    assert_string_equal(by_buf_z(b), want);
    by_buf_clear(b);
}

static void strings_escape_only_what_json_requires(void **state) {
    (void)state;
    by_buf b = {0};
    by_json_write_string(&b, BY_STR("a\"b\\c/d\n\r\t\b\f\x01\x1f\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x99\x82"));
    expect(&b, "\"a\\\"b\\\\c/d\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x99\x82\"");
    by_json_write_string(&b, BY_STR("nul\0inside"));
    expect(&b, "\"nul\\u0000inside\"");
    by_json_write_string(&b, by_str_of(NULL, 0));
    expect(&b, "\"\"");
    by_buf_deinit(&b);
}

/* Every byte at every offset of a word: the word-wise scan must stop exactly at it. */
/* Strings of every length around the steps of the scan, with every byte at every place. */
static void every_byte_is_found_at_every_offset(void **state) {
    (void)state;
    by_buf b = {0};
    static const char xs[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    for (int n = 1; n <= 36; n++)
        for (int c = 0; c < 256; c++)
            for (int at = 0; at < n; at++) {
                char text[40], want[96], plain[8];
                memset(text, 'x', sizeof text);
                text[at] = (char)c;
                const char *letter = c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t"
                                     : c == '\b' ? "\\b" : c == '\f' ? "\\f" : NULL;
                snprintf(plain, sizeof plain, c < 0x20 ? "\\u%04x" : "%c", c);
                snprintf(want, sizeof want, "%.*s%s%.*s", at, xs, letter ? letter : plain, n - 1 - at, xs);
                by_json_write_escaped(&b, by_str_of(text, (size_t)n));
                expect(&b, want);
            }
    by_buf_deinit(&b);
}

static void numbers_have_two_styles(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *python, *compact;
    } rows[] = {
        {0.0, "0.0", "0.0"}, {-0.0, "-0.0", "-0.0"}, {100.0, "100.0", "100.0"}, {0.1, "0.1", "0.1"}, {1e-4, "0.0001", "0.0001"},
        {1e-5, "1e-05", "0.00001"}, {1.2e-5, "1.2e-05", "0.000012"}, {1e-6, "1e-06", "1e-6"}, {1e-7, "1e-07", "1e-7"},
        {1e15, "1000000000000000.0", "1000000000000000.0"}, {1e16, "1e+16", "1e+16"}, {1.5e300, "1.5e+300", "1.5e+300"},
        {5e-324, "5e-324", "5e-324"}, {1234567890123456.7, "1234567890123456.8", "1234567890123456.8"},
        {12345678901234567.0, "1.2345678901234568e+16", "1.2345678901234568e+16"}, {-1e-10, "-1e-10", "-1e-10"},
        {9007199254740993.0, "9007199254740992.0", "9007199254740992.0"}, {INFINITY, "null", "null"}, {NAN, "null", "null"},
    };
    by_buf b = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        by_json_write_double(&b, rows[i].v, BY_JSON_PYTHON);
        expect(&b, rows[i].python);
        by_json_write_double(&b, rows[i].v, BY_JSON_COMPACT);
        expect(&b, rows[i].compact);
    }
    by_json_write_int(&b, INT64_MIN);
    expect(&b, "-9223372036854775808");
    by_json_write_int(&b, 0);
    expect(&b, "0");
    by_json_write_uint(&b, UINT64_MAX);
    expect(&b, "18446744073709551615");
    by_buf_deinit(&b);
}

static void values_keep_order_and_spacing(void **state) {
    (void)state;
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json v;
    by_str text = BY_STR(" {\"z\" : [1,-0 , 1e2,18446744073709551615,true ,false,null ],\"a\":{},\"\\u00e9\":[ ],\"s\":\"\\/\"}");
    assert_int_equal(by_json_parse(&v, &arena, text, NULL, NULL), BY_OK);
    by_buf b = {0};
    by_json_write(&b, &v, BY_JSON_PYTHON);
    expect(&b, "{\"z\": [1, -0.0, 100.0, 18446744073709551615, true, false, null], \"a\": {}, \"\xc3\xa9\": [], \"s\": \"/\"}");
    by_json_write(&b, &v, BY_JSON_COMPACT);
    expect(&b, "{\"z\":[1,-0.0,100.0,18446744073709551615,true,false,null],\"a\":{},\"\xc3\xa9\":[],\"s\":\"/\"}");
    assert_int_equal(by_json_parse(&v, &arena, BY_STR("[1e-5,{\"a\":1e-7}]"), NULL, NULL), BY_OK);
    by_json_write(&b, &v, BY_JSON_WIDE);
    expect(&b, "[0.00001, {\"a\": 1e-7}]");
    by_buf_deinit(&b);
    by_arena_deinit(&arena);
}

static void incremental_writer_places_commas(void **state) {
    (void)state;
    by_buf b = {0};
    for (int style = 0; style < 2; style++) {
        by_json_out o = by_json_out_init(&b, style ? BY_JSON_COMPACT : BY_JSON_PYTHON);
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "a");
        by_json_out_array_begin(&o);
        by_json_out_int(&o, -1);
        by_json_out_array_begin(&o);
        by_json_out_array_end(&o);
        by_json_out_object_begin(&o);
        by_json_out_object_end(&o);
        by_json_out_z(&o, NULL);
        by_json_out_bool(&o, true);
        by_json_out_array_end(&o);
        by_json_out_raw(&o, BY_STR("\"x\":1"));
        by_json_out_key_str(&o, BY_STR("k\"y"));
        by_json_out_string_begin(&o);
        by_json_out_string_piece(&o, BY_STR("one\n"));
        by_json_out_string_piece(&o, BY_STR("two"));
        by_json_out_string_end(&o);
        by_json_out_key(&o, "d");
        by_json_out_double(&o, 1e-5);
        by_json_out_object_end(&o);
        expect(&b, style ? "{\"a\":[-1,[],{},null,true],\"x\":1,\"k\\\"y\":\"one\\ntwo\",\"d\":0.00001}"
                         : "{\"a\": [-1, [], {}, null, true], \"x\":1, \"k\\\"y\": \"one\\ntwo\", \"d\": 1e-05}");
    }
    by_buf_deinit(&b);
}

static void a_failed_growth_is_kept_in_the_buffer(void **state) {
    (void)state;
    by_buf b = {0};
    by_alloc_fail_nth(1);
    by_json_write_string(&b, BY_STR("text"));
    assert_true(b.failed);
    assert_int_equal(by_buf_check(&b, NULL), BY_ENOMEM);
    by_alloc_fail_nth(0);
    by_buf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_escape_only_what_json_requires), cmocka_unit_test(every_byte_is_found_at_every_offset),
        cmocka_unit_test(numbers_have_two_styles),                cmocka_unit_test(values_keep_order_and_spacing),
        cmocka_unit_test(incremental_writer_places_commas),       cmocka_unit_test(a_failed_growth_is_kept_in_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
