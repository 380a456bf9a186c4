/* Compares by_json_write_double with Python's repr on the rows of tests/golden/data/json/doubles.txt.gz, and reads each
 * text back to the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "json/json_write.h"

static void texts_equal_repr_and_read_back(void **state) {
    (void)state;
    FILE *f = popen("gzip -dc '" BATHYC_SOURCE_DIR "/tests/golden/data/json/doubles.txt.gz'", "r");
    assert_non_null(f);
    by_buf b = {0};
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    uint64_t bits;
    char text[64];
    int n = 0;
    while (fscanf(f, "%" SCNx64 " %63s", &bits, text) == 2) {
        double v;
        memcpy(&v, &bits, sizeof v);
        by_buf_clear(&b);
        by_json_write_double(&b, v, BY_JSON_PYTHON);
        assert_string_equal(by_buf_z(&b), text);
        by_json back;
        assert_int_equal(by_json_parse(&back, &arena, by_str_z(text), NULL, NULL), BY_OK);
        assert_int_equal(back.type, BY_JSON_DOUBLE);
        assert_memory_equal(&back.v.d, &v, sizeof v);
        n++;
    }
    assert_int_equal(pclose(f), 0);
    assert_int_equal(n, 4500);
    by_arena_deinit(&arena);
    by_buf_deinit(&b);
}

/* An embedding program may have set a locale with another decimal sign. */
static void other_decimal_signs_do_no_harm(void **state) {
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) skip();
    texts_equal_repr_and_read_back(state);
    setlocale(LC_NUMERIC, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_equal_repr_and_read_back),
        cmocka_unit_test(other_decimal_signs_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
