/* test_safetensors.c - headers of one file: accepted forms, and one hostile header for each check. Files are put at the
 * end of an exact allocation, so that reading past it is seen by the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "model/safetensors.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define ENTRY(name, dtype, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* 8 bytes of length, the header, n zero bytes of data. */
static unsigned char *make_file(uint64_t length, const char *header, size_t header_bytes, size_t n, size_t *size) {
    *size = 8 + header_bytes + n;
    unsigned char *f = calloc(*size, 1);
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        f[i] = (unsigned char)(length >> (8 * i));
    memcpy(f + 8, header, header_bytes);
    return f;
}

typedef struct {
    int n_good, n_bad;
    by_status last;
    by_err err;        /* of the last bad entry, or of the end */
    by_st_entry entry; /* the last good one; its name is copied to `name` */
    char name[256];
} outcome;

static outcome read_file(const unsigned char *file, size_t size) {
    outcome o = {0};
    by_st_reader r;
    o.last = by_st_reader_init(&r, file, size, &o.err);
    while (o.last == BY_OK) {
        by_st_entry e;
        by_err err = {0};
        o.last = by_st_reader_next(&r, &e, &err);
        if (o.last == BY_OK) {
            o.n_good++;
            o.entry = e;
            snprintf(o.name, sizeof o.name, "%.*s", (int)e.name.len, e.name.ptr);
        } else if (o.last != BY_END) {
            o.err = err;
        }
        if (o.last == BY_ELIMIT) {
            o.n_bad++;
            o.last = BY_OK;
        }
    }
    by_st_reader_deinit(&r);
    return o;
}

static outcome read_text(const char *header, size_t data_bytes) {
    size_t size, n = strlen(header);
    unsigned char *f = make_file(n, header, n, data_bytes, &size);
    outcome o = read_file(f, size);
    free(f);
    return o;
}

static void a_header_gives_its_tensors(void **state) {
    (void)state;
    outcome o = read_text(
        "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY(
            "a", "F32", "[2,3]",
            "[0,24]") ","
                      "\"b\":{\"data_offsets\":[24,30],\"extra\":[{\"x\":1}],\"shape\":[3],\"dtype\":\"BF16\"}}   ",
        30);
    assert_int_equal(o.last, BY_END);
    assert_int_equal(o.n_good, 2);
    assert_string_equal(o.name, "b");
    assert_int_equal(o.entry.dtype, BY_ST_BF16);
    assert_int_equal(o.entry.n_dims, 1);
    assert_int_equal(o.entry.shape[0], 3);
    assert_int_equal(o.entry.begin, 24);
    assert_int_equal(o.entry.end, 30);
}

static void names_may_have_escapes_and_any_language(void **state) {
    (void)state;
    outcome o = read_text("{" ENTRY("\\u0065mb\\ud83d\\ude00\\\"\xc3\xa9", "U8", "[1]", "[0,1]") "}", 1);
    assert_int_equal(o.last, BY_END);
    assert_string_equal(o.name, "emb\xf0\x9f\x98\x80\"\xc3\xa9");
}

static void scalars_and_empty_tensors_have_their_sizes(void **state) {
    (void)state;
    outcome o = read_text("{" ENTRY("scalar", "F32", "[]", "[0,4]") "," ENTRY("empty", "F32", "[0,7]", "[4,4]") "}", 4);
    assert_int_equal(o.last, BY_END);
    assert_int_equal(o.n_good, 2);
    assert_int_equal(read_text("{}", 0).last, BY_END);
    /* a type from the future: nothing is known of its size */
    o = read_text("{" ENTRY("x", "F3_E1M1", "[5]", "[0,2]") "}", 2);
    assert_int_equal(o.n_good, 1);
    assert_int_equal(o.entry.dtype, BY_ST_OTHER);
}

typedef struct {
    const char *header;
    size_t data_bytes;
    const char *expect;
} bad_case;

/* Entries that are wrong by themselves: the reader reports them and goes on. */
static const bad_case bad_entries[] = {
    {"{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 7, "reach past the 7 data bytes of the file (truncated?)"},
    {"{" ENTRY("a", "F32", "[2]", "[8,0]") "}", 8, "run backwards"},
    {"{" ENTRY("a", "F32", "[2]", "[18446744073709551608,18446744073709551615]") "}", 8, "reach past"},
    {"{" ENTRY("a", "F32", "[2]", "[9223372036854775800,9223372036854775808]") "}", 8, "reach past"},
    {"{" ENTRY("a", "F32", "[3]", "[0,8]") "}", 8, "8 bytes, but its shape and F32 need 12"},
    {"{" ENTRY("a", "BF16", "[4294967296,4294967296]", "[0,8]") "}", 8, "its shape overflows"},
    {"{" ENTRY("a", "F32", "[4611686018427387905]", "[0,4]") "}", 8, "its shape overflows"}, /* 4 x 2^62 + 4 = 4 */
    {"{" ENTRY("a", "F32", "[18446744073709551615]", "[0,8]") "}", 8, "its shape overflows"},
    {"{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 8, "9 dimensions, at most 8"},
    {"{" ENTRY("a", "U8", "[1]", "[0]") "}", 8, "data_offsets has 1 numbers"},
    {"{" ENTRY("a", "U8", "[1]", "[0,1,2]") "}", 8, "data_offsets has 3 numbers"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 8, "is missing or given twice"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 8,
     "is missing or given twice"},
    {"{\"a\":{}}", 8, "is missing or given twice"},
};

static void a_wrong_entry_is_reported_and_the_next_one_read(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(bad_entries); i++) {
        const bad_case *b = &bad_entries[i];
        char both[1024];
        outcome o = read_text(b->header, b->data_bytes);
        if (o.n_bad != 1 || o.last != BY_END || !strstr(o.err.msg, b->expect) || !strstr(o.err.msg, "tensor a"))
            fail_msg("%s: %s", b->header, o.err.msg);
        snprintf(both, sizeof both, "%.*s,%s}", (int)strlen(b->header) - 1, b->header,
                 ENTRY("z", "U8", "[0]", "[0,0]"));
        o = read_text(both, b->data_bytes);
        assert_int_equal(o.n_bad, 1);
        assert_int_equal(o.n_good, 1);
    }
}

/* Headers that cannot be read on. */
static const bad_case bad_headers[] = {
    {"", 8, "expected '{'"},
    {"[]", 8, "expected '{'"},
    {"{", 8, "expected a string"},
    {"not json", 8, "expected '{'"},
    {"{\"a\":3}", 8, "expected '{'"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 8, "expected a non-negative integer"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 8, "expected a non-negative integer"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 8, "expected an integer"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1e3],\"data_offsets\":[0,1]}}", 8, "expected an integer"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}", 8, "leading zero"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,1]}}", 8, "integer above 2^64"},
    {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 8, "expected a string"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":\"1\",\"data_offsets\":[0,1]}}", 8, "expected '['"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},}", 8, "expected a string"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,],\"data_offsets\":[0,1]}}", 8, "expected a non-negative integer"},
    {"{\"a\":{\"dtype\":\"U8\" \"shape\":[1],\"data_offsets\":[0,1]}}", 8, "expected ',' or '}'"},
    {"{" ENTRY("a", "U8", "[1]", "[0,1]") "}x", 8, "text after the value"},
    {"{\"a\nb\":{}}", 8, "control character"},
    {"{\"a\\x\":{}}", 8, "bad escape"},
    {"{\"a\\ud800\":{}}", 8, "bad escape"},
    {"{\"\xff\":{}}", 8, "not valid UTF-8"},
    {"{\"\xc0\x80\":{}}", 8, "not valid UTF-8"},
    {"{\"\xed\xa0\x80\":{}}", 8, "not valid UTF-8"},
    {"{\"__metadata__\":{\"a\":tru}}", 8, "expected a value"},
};

static void a_malformed_header_ends_with_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(bad_headers); i++) {
        outcome o = read_text(bad_headers[i].header, bad_headers[i].data_bytes);
        if (o.last != BY_EFORMAT || !strstr(o.err.msg, bad_headers[i].expect))
            fail_msg("%s: status %d, %s", bad_headers[i].header, o.last, o.err.msg);
    }
}

static void a_length_that_cannot_be_true_is_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 1000, UINT64_MAX, UINT64_MAX - 7, (uint64_t)INT64_MAX, UINT64_C(1) << 32};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        size_t size;
        unsigned char *f = make_file(lengths[i], "{}", 2, 0, &size);
        outcome o = read_file(f, size);
        assert_int_equal(o.last, BY_EFORMAT);
        assert_non_null(strstr(o.err.msg, "larger than the file"));
        free(f);
    }
    static const unsigned char few[7] = {0};
    for (size_t n = 0; n < sizeof few; n++)
        assert_int_equal(read_file(few, n).last, BY_EFORMAT);
    assert_int_equal(read_file(NULL, 0).last, BY_EFORMAT);
}

static void a_nesting_bomb_costs_no_memory(void **state) {
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(N + 64);
    assert_non_null(text);
    int64_t before = by_alloc_bytes_total();
    for (int round = 0; round < 2; round++) {
        int at = sprintf(text, "%s", round ? "{\"__metadata__\":" : "{\"a\":{\"x\":");
        memset(text + at, '[', N - 1);
        text[at + N - 1] = '\0';
        outcome o = read_text(text, 0);
        assert_int_equal(o.last, BY_EFORMAT);
        assert_non_null(strstr(o.err.msg, "nested deeper"));
    }
    assert_int_equal(by_alloc_bytes_total(), before);
    free(text);
}

static void every_prefix_of_a_file_is_survived(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"}," ENTRY("a.\\u00e9", "F32", "[2]", "[0,8]") "," ENTRY(
        "b", "I8", "[4]", "[8,12]") "}";
    size_t size;
    unsigned char *f = make_file(sizeof header - 1, header, sizeof header - 1, 12, &size);
    for (size_t n = 0; n < size; n++) {
        unsigned char *part = malloc(n ? n : 1);
        assert_non_null(part);
        memcpy(part, f, n);
        outcome o = read_file(part, n);
        assert_true(o.last == BY_EFORMAT || (o.last == BY_END && o.n_bad > 0)); /* never clean */
        free(part);
    }
    assert_int_equal(read_file(f, size).n_good, 2);
    free(f);
}

/* Any single bit may be wrong: the reader answers, and never with a range outside the file. */
static void every_flipped_bit_is_survived(void **state) {
    (void)state;
    static const char header[] = "{" ENTRY("a\\n", "F32", "[2]", "[0,8]") "," ENTRY("b", "I8", "[4]", "[8,12]") "}";
    size_t size;
    unsigned char *f = make_file(sizeof header - 1, header, sizeof header - 1, 12, &size);
    for (size_t bit = 0; bit < (size - 12) * 8; bit++) {
        f[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        outcome o = read_file(f, size);
        assert_true(o.last == BY_EFORMAT || o.last == BY_END);
        if (o.n_good > 0) assert_true(o.entry.begin <= o.entry.end && o.entry.end <= size);
        f[bit / 8] ^= (unsigned char)(1u << (bit % 8));
    }
    free(f);
}

static void memory_failure_inside_a_name_is_reported(void **state) {
    (void)state;
    static const char header[] = "{" ENTRY("a\\n", "F32", "[2]", "[0,8]") "}";
    size_t size;
    unsigned char *f = make_file(sizeof header - 1, header, sizeof header - 1, 8, &size);
    by_alloc_fail_nth(1);
    outcome o = read_file(f, size);
    by_alloc_fail_nth(0);
    assert_int_equal(o.last, BY_ENOMEM);
    free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_gives_its_tensors),
        cmocka_unit_test(names_may_have_escapes_and_any_language),
        cmocka_unit_test(scalars_and_empty_tensors_have_their_sizes),
        cmocka_unit_test(a_wrong_entry_is_reported_and_the_next_one_read),
        cmocka_unit_test(a_malformed_header_ends_with_a_reason),
        cmocka_unit_test(a_length_that_cannot_be_true_is_refused),
        cmocka_unit_test(a_nesting_bomb_costs_no_memory),
        cmocka_unit_test(every_prefix_of_a_file_is_survived),
        cmocka_unit_test(every_flipped_bit_is_survived),
        cmocka_unit_test(memory_failure_inside_a_name_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
