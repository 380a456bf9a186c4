/* BY_TEST_TIMEOUT=300
 * `bathyc conform` on every row of the answer half of the recipe, compared exactly with the original's results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "json/json_write.h"
#include "support/golden.h"

/* Starts the program on a file of rows, with the published tokenizer. */
static FILE *start(const char *rows) {
    char command[16384];
    int n = snprintf(command, sizeof command,
                     "t=$(mktemp) && trap 'rm -f $t' EXIT && gzip -dc '%s' > $t && gzip -dc '%s.gz' | '%s' conform --tokenizer $t",
                     by_golden_path("tokenizer/tokenizer_v4.json.gz"), by_golden_path(rows), BATHYC_PROGRAM);
    assert_true(n > 0 && (size_t)n < sizeof command);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    return f;
}

static void compact(by_buf *out, const by_json *v) {
    by_buf_clear(out);
    by_json_write(out, v, BY_JSON_COMPACT);
}

/* Where two texts begin to differ, with a little before it. */
static void print_difference(const char *name, int row, const by_buf *got, const by_buf *want) {
    size_t i = 0;
    while (i < got->len && i < want->len && got->ptr[i] == want->ptr[i]) i++;
    size_t from = i > 80 ? i - 80 : 0;
    print_error("%s:%d differs at byte %zu\n got  ...%.*s\n want ...%.*s\n", name, row, i,
                (int)(got->len - from < 300 ? got->len - from : 300), got->ptr + from,
                (int)(want->len - from < 300 ? want->len - from : 300), want->ptr + from);
}

static int check_file(const char *name) {
    by_lines *rows = by_lines_open(by_golden_path(name));
    FILE *answers = start(name);
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_buf got = {0}, want = {0};
    by_str line;
    char *answer = NULL;
    size_t cap = 0;
    int n = 0, bad = 0;
    for (; by_lines_next(rows, &line); n++) {
        by_arena_reset(&arena);
        ssize_t len = getline(&answer, &cap, answers);
        assert_true(len > 0);
        by_json row, a;
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        assert_int_equal(by_json_parse(&a, &arena, by_str_of(answer, (size_t)len), NULL, NULL), BY_OK);
        const by_json *result = by_json_get(&a, "result");
        if (!result) fail_msg("%s:%d: %s", name, n + 1, answer);
        compact(&got, result);
        compact(&want, by_json_get(&row, "expected"));
        if (by_str_eq(by_buf_str(&got), by_buf_str(&want))) continue;
        if (bad++ < 5) print_difference(name, n + 1, &got, &want);
    }
    assert_int_equal(getline(&answer, &cap, answers), -1);
    assert_int_equal(pclose(answers), 0);
    free(answer);
    by_lines_close(rows);
    by_arena_deinit(&arena);
    by_buf_deinit(&got);
    by_buf_deinit(&want);
    assert_int_equal(bad, 0);
    return n;
}

static void parse_rows(void **state) {
    (void)state;
    assert_int_equal(check_file("recipe/parse.jsonl"), 675);
    assert_int_equal(check_file("recipe/parse_random.jsonl"), 157);
    assert_int_equal(check_file("recipe/parse_quirks.jsonl"), 36);
}

static void stream_rows(void **state) {
    (void)state;
    assert_int_equal(check_file("recipe/stream.jsonl"), 101);
    assert_int_equal(check_file("recipe/stream_random.jsonl"), 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_rows),
        cmocka_unit_test(stream_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
