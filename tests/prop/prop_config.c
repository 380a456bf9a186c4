/* prop_config.c - real configurations with one to three numbers replaced by likely troublemakers: each is refused with
 * a reason or keeps every promise of config.h (the checks of the fuzz entry). Blind mutation of text rarely gets past
 * the JSON reader; this stays inside the grammar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "support/seed.h"

#include "fuzz/fuzz_config.c"

static const char *const files[] = {"first_light", "tiny_a", "tiny_b", "flash", "flat"};
static const char *const values[] = {"0",     "1",     "2",          "3",         "4",   "8",    "16",
                                     "31",    "32",    "33",         "64",        "128", "-1",   "2147483647",
                                     "65536", "65537", "4294967296", "0.5",       "1e3", "null", "true",
                                     "\"4\"", "[]",    "[0]",        "[1, 2, 3]", "{}"};

typedef struct {
    size_t at, len;
} span;

/* Places of the numbers outside strings. */
static int find_numbers(by_str text, span out[1024]) {
    bool string = false;
    int n = 0;
    for (size_t i = 0; i < text.len && n < 1024; i++) {
        if (text.ptr[i] == '"') string = !string;
        if (string || text.ptr[i] == '\0' || !strchr("-0123456789", text.ptr[i])) continue;
        size_t len = 1;
        while (i + len < text.len && text.ptr[i + len] && strchr("0123456789.eE+-", text.ptr[i + len])) len++;
        out[n++] = (span){i, len};
        i += len - 1;
    }
    return n;
}

static void replace_one(by_buf *text, by_rng *rng) {
    static span numbers[1024];
    int n = find_numbers(by_buf_str(text), numbers);
    if (n == 0) return;
    span s = numbers[by_rng_below(rng, (uint64_t)n)];
    const char *value = values[by_rng_below(rng, sizeof values / sizeof values[0])];
    by_buf out = {0};
    by_buf_push(&out, text->ptr, s.at);
    by_buf_push_z(&out, value);
    by_buf_push(&out, text->ptr + s.at + s.len, text->len - s.at - s.len);
    by_buf_deinit(text);
    *text = out;
}

static void changed_numbers_are_refused_or_keep_the_promises(void **state) {
    (void)state;
    static by_config c;
    by_rng rng = by_test_rng(1);
    int accepted = 0, refused = 0;
    for (int i = 0; i < by_test_scaled(4000); i++) {
        char path[512];
        by_buf text = {0};
        by_err err = {0};
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/config/%s", BATHYC_SOURCE_DIR, files[i % 5]);
        assert_int_equal(by_file_read(&text, path, 1 << 20, &err), BY_OK);
        for (uint64_t k = by_rng_below(&rng, 3) + 1; k > 0; k--)
            replace_one(&text, &rng);
        LLVMFuzzerTestOneInput((const uint8_t *)text.ptr, text.len);
        if (by_config_parse(&c, by_buf_str(&text), NULL, &err) == BY_OK)
            accepted++;
        else
            refused++;
        by_buf_deinit(&text);
    }
    print_message("%d accepted, %d refused\n", accepted, refused);
    if (accepted + refused >= 400) assert_true(accepted > 0 && refused > accepted);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_numbers_are_refused_or_keep_the_promises)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
