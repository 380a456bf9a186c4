/* by_utf8_valid, which looks at words, against by_utf8_next, which looks at one character at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"

static size_t first_bad(const char *s, size_t len) {
    size_t i = 0;
    while (i < len) {
        by_utf8_step st = by_utf8_next(s + i, len - i);
        if (st.kind != BY_UTF8_CHAR) return i;
        i += st.n;
    }
    return SIZE_MAX;
}

static void expect_same(const char *s, size_t len) {
    size_t bad = SIZE_MAX, want = first_bad(s, len);
    assert_int_equal(by_utf8_valid(by_str_of(s, len), &bad), want == SIZE_MAX);
    assert_int_equal(bad, want);
}

/* All first bytes with all second bytes, and edges of the third and fourth, in front of and behind ASCII. */
static void every_start_of_a_sequence_is_judged_alike(void **state) {
    (void)state;
    static const unsigned char edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    for (int lead = 0; lead < 12; lead += 3)
        for (int a = 0x7f; a < 256; a++)
            for (int b = 0; b < 256; b++)
                for (size_t c = 0; c < sizeof edges; c++)
                    for (size_t d = 0; d < sizeof edges; d += 3) {
                        char s[24];
                        memset(s, 'x', sizeof s);
                        char text[] = {(char)a, (char)b, (char)edges[c], (char)edges[d]};
                        memcpy(s + lead, text, 4);
                        expect_same(s, sizeof s);
                        if (c == 0 || d == 0) expect_same(s, (size_t)lead + 2 + (size_t)(c & 1));
                    }
}

static void random_mixtures_are_judged_alike(void **state) {
    (void)state;
    by_rng rng = {20261129};
    for (int round = 0; round < 200000; round++) {
        char s[64];
        size_t n = 0;
        while (n < 56) {
            uint64_t r = by_rng_u64(&rng);
            uint32_t cp = (uint32_t)(r >> 8) % (r & 1 ? 0x80 : r & 2 ? 0x3000 : 0x10ffff);
            if (cp >= 0xd800 && cp < 0xe000) cp = 'a';
            n += by_utf8_put(cp, s + n);
        }
        if (round & 1) s[by_rng_below(&rng, n)] = (char)by_rng_u64(&rng);
        expect_same(s, n - by_rng_below(&rng, 12));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_start_of_a_sequence_is_judged_alike),
        cmocka_unit_test(random_mixtures_are_judged_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
