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

/* Start and length of the k-th number of the text; false behind the last one. */
static bool nth_number(by_str text, int k, size_t *at, size_t *len) {
    bool string = false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"') string = !string;
        if (string || !strchr("-0123456789", text.ptr[i]) || text.ptr[i] == '\0') continue;
        size_t n = 1;
        while (i + n < text.len && strchr("0123456789.eE+-", text.ptr[i + n]) && text.ptr[i + n])
            n++;
        if (k-- == 0) {
            *at = i;
            *len = n;
            return true;
        }
        i += n - 1;
    }
    return false;
}

static void replace_one(by_buf *text, by_rng *rng) {
    size_t at, len;
    int n = 0;
    while (nth_number(by_buf_str(text), n, &at, &len))
        n++;
    if (n == 0 || !nth_number(by_buf_str(text), (int)by_rng_below(rng, (uint64_t)n), &at, &len)) return;
    const char *value = values[by_rng_below(rng, sizeof values / sizeof values[0])];
    by_buf out = {0};
    by_buf_push(&out, text->ptr, at);
    by_buf_push_z(&out, value);
    by_buf_push(&out, text->ptr + at + len, text->len - at - len);
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
