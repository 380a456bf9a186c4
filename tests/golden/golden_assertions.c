/* golden_assertions.c - patterns with look-arounds, anchors and word edges, and what they match of all short texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/grammar_internal.h"
#include "support/golden.h"
#include "support/seed.h"
#include "support/vocab.h"

#define DIGITS 86 /* of the number whose bits are the verdicts */

static by_str field(by_str *line) {
    const char *tab = memchr(line->ptr, '\t', line->len);
    size_t n = tab ? (size_t)(tab - line->ptr) : line->len;
    by_str f = by_str_of(line->ptr, n);
    *line = by_str_skip(*line, n + (tab != NULL));
    return f;
}

/* The i-th text over four characters, by length, then in order. */
static by_str text_at(unsigned i, char out[8]) {
    unsigned len = 0, n = 1;
    for (; i >= n; n *= 4, len++)
        i -= n;
    for (unsigned k = len; k-- > 0; i /= 4)
        out[k] = "ab-\n"[i % 4];
    return by_str_of(out, len);
}

static bool expected(by_str hex, unsigned i) {
    char c = hex.ptr[DIGITS - 1 - i / 4];
    unsigned digit = (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    return digit >> (i % 4) & 1;
}

static void patterns_match_what_is_stored(void **state) {
    (void)state;
    by_grammar_vocab *vocab = by_test_vocab_tiny(1);
    by_lines *l = by_lines_open(by_golden_path("structured/assertions.tsv"));
    by_str line;
    char text[8];
    int n = 0, step = 100 / (by_test_scaled(100) > 100 ? 100 : by_test_scaled(100));
    assert_non_null(vocab);
    for (; by_lines_next(l, &line); n++) {
        by_str mode = field(&line), pattern = field(&line);
        by_gr g;
        by_gr_regex_opts o = {.search = by_str_eqz(mode, "search")};
        if (n % step) continue;
        assert_int_equal(line.len, DIGITS);
        assert_int_equal(by_gr_init(&g, vocab, NULL, NULL), BY_OK);
        by_gr_term t = by_gr_regex(&g, pattern, &o);
        for (unsigned i = 0; i < 341; i++) {
            by_gr_begin_step(&g);
            if (by_gr_accepts(&g, t, text_at(i, text)) != expected(line, i))
                fail_msg("%.*s: /%.*s/ and text %u: %s", BY_STR_ARG(mode), BY_STR_ARG(pattern), i, by_gr_bad(&g) ? g.err.msg : "wrong");
        }
        by_gr_deinit(&g);
    }
    by_lines_close(l);
    by_grammar_vocab_destroy(vocab);
    assert_true(n > 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns_match_what_is_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
