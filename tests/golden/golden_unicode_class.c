/* Class of every code point against the ranges that the reference's regular expressions match
 * (tests/golden/data/tokenizer/unicode_classes.json.gz). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "json/json.h"
#include "support/tok_v4.h"
#include "tok/unicode_class.h"

enum { LETTER = 1, MARK = 2, NUMBER = 4, PUNCT = 8, SYMBOL = 16, SPACE = 32, CJK = 64 };
static uint8_t sets[0x110000];

static void read_ranges(const by_json *root, const char *name, uint8_t bit) {
    const by_json *ranges = by_json_get(root, name);
    assert_true(by_json_is(ranges, BY_JSON_ARRAY) && ranges->n > 0);
    for (uint32_t i = 0; i < ranges->n; i++) {
        int64_t from = by_json_at(by_json_at(ranges, i), 0)->v.i, to = by_json_at(by_json_at(ranges, i), 1)->v.i;
        for (int64_t cp = from; cp <= to; cp++) sets[cp] |= bit;
    }
}

static by_unicode_class expected(uint32_t cp) {
    uint8_t s = sets[cp];
    if (s & CJK) return BY_UC_CJK;
    if (s & SPACE) return cp == '\r' || cp == '\n' ? BY_UC_NEWLINE : BY_UC_SPACE;
    if (s & LETTER) return BY_UC_LETTER;
    if (s & MARK) return BY_UC_MARK;
    if (s & NUMBER) return BY_UC_NUMBER;
    return s & (PUNCT | SYMBOL) ? BY_UC_PUNCT : BY_UC_OTHER;
}

static void every_code_point_has_the_class_of_the_reference(void **state) {
    (void)state;
    by_buf text = {0};
    by_arena arena;
    by_json root;
    by_arena_init(&arena, BY_MEM_JSON);
    by_test_read_gz(&text, "tokenizer/unicode_classes.json");
    assert_int_equal(by_json_parse(&root, &arena, by_buf_str(&text), NULL, NULL), BY_OK);
    read_ranges(&root, "L", LETTER);
    read_ranges(&root, "M", MARK);
    read_ranges(&root, "N", NUMBER);
    read_ranges(&root, "P", PUNCT);
    read_ranges(&root, "S", SYMBOL);
    read_ranges(&root, "space", SPACE);
    read_ranges(&root, "cjk", CJK);
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        if (by_unicode_class_of(cp) != expected(cp))
            fail_msg("U+%04X: class %d, the reference says %d", cp, (int)by_unicode_class_of(cp), (int)expected(cp));
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
}

/* The scanner takes ASCII from the front of the value table without looking at the block table. */
static void ascii_is_the_first_block(void **state) {
    (void)state;
    assert_int_equal(by_unicode_class_block[0], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_has_the_class_of_the_reference),
        cmocka_unit_test(ascii_is_the_first_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
