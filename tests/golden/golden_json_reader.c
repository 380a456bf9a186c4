/* The reader against deepseek-recipe 0.2.0: what it accepts, and what it writes back in both styles, on the rows of
 * tests/golden/data/json/reader.jsonl.gz (numbers, strings, literals, brackets, equal keys, depth, one-byte mutations). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "json/json_write.h"
#include "support/golden.h"

/* The oracle read the texts inside five containers and allows 127 levels. */
static const by_json_opts opts = {.depth_max = 122, .merge_keys = true};

static void accepts_and_writes_what_the_original_does(void **state) {
    (void)state;
    by_lines *lines = by_lines_open(by_golden_path("json/reader.jsonl.gz"));
    by_arena row_arena, arena;
    by_arena_init(&row_arena, BY_MEM_JSON);
    by_arena_init(&arena, BY_MEM_JSON);
    by_buf out = {0};
    by_str line;
    int n = 0, n_bad = 0, n_ok = 0;
    while (by_lines_next(lines, &line)) {
        by_arena_reset(&row_arena);
        by_arena_reset(&arena);
        by_json row, v;
        by_err err = {0};
        assert_int_equal(by_json_parse(&row, &row_arena, line, NULL, &err), BY_OK);
        by_str text = by_json_get(&row, "text")->v.s;
        bool want = by_json_get(&row, "ok")->v.b, got = by_json_parse(&v, &arena, text, &opts, &err) == BY_OK;
        bool same = want == got;
        for (int style = 0; same && got && style < 2; style++) {
            by_buf_clear(&out);
            by_json_write(&out, &v, style ? BY_JSON_COMPACT : BY_JSON_PYTHON);
            same = by_str_eq(by_buf_str(&out), by_json_get(&row, style ? "compact" : "python")->v.s);
        }
        if (!same) {
            n_bad++;
            fprintf(stderr, "row %zu: %.*s: want %d, got %d %s -> %.*s\n", by_lines_number(lines), BY_STR_ARG(text), want,
                    got, got ? "" : err.msg, BY_STR_ARG(by_buf_str(&out)));
        }
        n++;
        n_ok += want;
    }
    by_lines_close(lines);
    by_buf_deinit(&out);
    by_arena_deinit(&arena);
    by_arena_deinit(&row_arena);
    assert_int_equal(n_bad, 0);
    assert_true(n > 2500 && n_ok > 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(accepts_and_writes_what_the_original_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
