/* Every row of the request kinds (convert, encode_ids, render, resolve_max_tokens, image_tokens, special_token) through
 * `bathyc conform`, compared as tests/golden/data/recipe/ORIGIN.md says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "json/json_write.h"
#include "support/golden.h"
#include "support/tok_v4.h"

static char folder[64];

static int set_up(void **state) {
    (void)state;
    by_buf text = {0};
    char path[128];
    snprintf(folder, sizeof folder, "/tmp/bathyc-golden-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    by_test_read_gz(&text, "tokenizer/tokenizer_v4.json");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    by_status status = by_file_write(path, text.ptr, text.len, NULL);
    by_buf_deinit(&text);
    return status == BY_OK ? 0 : 1;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* ---- comparison ---- */

/* Sampling values are floats that went through a double: equal to 1e-6. */
static bool is_rough(const char *key) { return strcmp(key, "temperature") == 0 || strcmp(key, "top_p") == 0; }

static bool same(const by_json *want, const by_json *got, const char *key, by_buf *where) {
    bool equal = want->type == got->type;
    if (equal && (want->type == BY_JSON_ARRAY || want->type == BY_JSON_OBJECT)) equal = want->n == got->n;
    if (equal) {
        switch (want->type) {
        case BY_JSON_NULL: return true;
        case BY_JSON_BOOL: equal = want->v.b == got->v.b; break;
        case BY_JSON_INT: equal = want->v.i == got->v.i; break;
        case BY_JSON_UINT: equal = want->v.u == got->v.u; break;
        case BY_JSON_DOUBLE: equal = fabs(want->v.d - got->v.d) <= (is_rough(key) ? 1e-6 : 0); break;
        case BY_JSON_STRING: equal = by_str_eq(want->v.s, got->v.s); break;
        case BY_JSON_ARRAY:
            for (uint32_t i = 0; i < want->n; i++)
                if (!same(&want->v.items[i], &got->v.items[i], key, where)) return false;
            return true;
        case BY_JSON_OBJECT:
            for (uint32_t i = 0; i < want->n; i++) {
                char name[64];
                snprintf(name, sizeof name, "%.*s", BY_STR_ARG(want->v.members[i].key));
                const by_json *other = by_json_get_str(got, want->v.members[i].key);
                if (!other) return by_buf_printf(where, "%s is missing", name), false;
                if (!same(&want->v.members[i].value, other, name, where)) return false;
            }
            return true;
        }
    }
    if (equal) return true;
    by_buf_printf(where, "%s\n  want ", key);
    by_json_write(where, want, BY_JSON_PYTHON);
    by_buf_push_z(where, "\n  got  ");
    by_json_write(where, got, BY_JSON_PYTHON);
    return false;
}

static by_str text_at(const by_json *v, const char *key) {
    const by_json *m = by_json_get(v, key);
    return by_json_is(m, BY_JSON_STRING) ? m->v.s : by_str_of(NULL, 0);
}

/* Body errors are compared by kind; of the two messages that come from a schema validator only the front counts. */
static bool same_error(const by_json *want, const by_json *got, by_buf *where) {
    if (!got || !by_str_eq(text_at(want, "kind"), text_at(got, "kind"))) return by_buf_push_z(where, "another kind of error"), false;
    if (!by_str_eqz(text_at(want, "kind"), "conversion")) return true;
    const by_json *want_error = by_json_get(by_json_get(want, "body"), "error"), *got_error = by_json_get(by_json_get(got, "body"), "error");
    by_str message = text_at(want_error, "message"), other = text_at(got_error, "message");
    static const char *const fronts[] = {"Invalid schema for function", "Invalid json schema"};
    for (int i = 0; i < 2; i++) {
        by_str front = by_str_z(fronts[i]);
        bool exact = by_str_ends(message, BY_STR("'.")) && memmem(message.ptr, message.len, "got 'type: ", 11);
        if (by_str_starts(message, front) && !exact) return by_str_starts(other, front);
    }
    return same(want, got, "error", where);
}

static bool same_result(const by_json *want, const by_json *got, by_buf *where) {
    const by_json *ok = by_json_get(want, "ok"), *error = by_json_get(want, "error");
    if (!got) return by_buf_push_z(where, "no result"), false;
    if (by_json_is(ok, BY_JSON_BOOL) && !ok->v.b) return same_error(error, by_json_get(got, "error"), where);
    return same(want, got, "result", where);
}

/* ---- files ---- */

static void check_file(const char *name, int n_rows) {
    char command[1024], rows_path[128], answers_path[128];
    snprintf(rows_path, sizeof rows_path, "recipe/%s.jsonl.gz", name);
    snprintf(answers_path, sizeof answers_path, "%s/answers.jsonl", folder);
    snprintf(command, sizeof command, "gzip -dc '%s' | '%s' conform --tokenizer '%s/tokenizer.json' -o '%s'",
             by_golden_path(rows_path), BATHYC_PROGRAM, folder, answers_path);
    assert_int_equal(system(command), 0);
    by_lines *rows = by_lines_open(by_golden_path(rows_path)), *answers = by_lines_open(answers_path);
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_buf where = {0};
    by_str line, answer_line;
    int n = 0, n_bad = 0;
    while (by_lines_next(rows, &line)) {
        by_json row, answer;
        by_arena_reset(&arena);
        by_buf_clear(&where);
        assert_true(by_lines_next(answers, &answer_line));
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        assert_int_equal(by_json_parse(&answer, &arena, answer_line, NULL, NULL), BY_OK);
        n++;
        if (same_result(by_json_get(&row, "expected"), by_json_get(&answer, "result"), &where)) continue;
        if (n_bad++ < 5) fprintf(stderr, "%s row %d: %s\n", name, n, by_buf_z(&where));
    }
    by_buf_deinit(&where);
    by_arena_deinit(&arena);
    by_lines_close(rows);
    by_lines_close(answers);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n, n_rows);
}

#define FILE_TEST(name, n)                                                                                             \
    static void name##_rows_are_answered_as_expected(void **state) {                                                   \
        (void)state;                                                                                                   \
        check_file(#name, n);                                                                                          \
    }
FILE_TEST(convert_chat, 868)
FILE_TEST(convert_responses, 425)
FILE_TEST(convert_messages, 418)
FILE_TEST(encode_ids, 90)
FILE_TEST(render, 272)
FILE_TEST(resolve, 48)
FILE_TEST(image_tokens, 132)
FILE_TEST(special_tokens, 18)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convert_chat_rows_are_answered_as_expected),
        cmocka_unit_test(convert_responses_rows_are_answered_as_expected),
        cmocka_unit_test(convert_messages_rows_are_answered_as_expected),
        cmocka_unit_test(encode_ids_rows_are_answered_as_expected),
        cmocka_unit_test(render_rows_are_answered_as_expected),
        cmocka_unit_test(resolve_rows_are_answered_as_expected),
        cmocka_unit_test(image_tokens_rows_are_answered_as_expected),
        cmocka_unit_test(special_tokens_rows_are_answered_as_expected),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
