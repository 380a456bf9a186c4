/* The output parser against the original's deltas: every row of tests/golden/data/recipe/parse*.jsonl.gz, chunk by chunk,
 * with the deltas of each chunk compared exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "json/json_write.h"
#include "support/golden.h"
#include "support/parse_rows.h"

/* Appends the record's deltas as one list and clears it; with finish, a last {"finish": ...}. */
static void close_list(by_buf *out, by_parse_record *r, const char *finish) {
    if (out->len) by_buf_push_byte(out, ',');
    by_buf_push_byte(out, '[');
    by_buf_push_str(out, by_buf_str(&r->deltas));
    if (finish) by_buf_printf(out, "%s{\"finish\":\"%s\"}", r->deltas.len ? "," : "", finish);
    by_buf_push_byte(out, ']');
    by_buf_clear(&r->deltas);
}

static const char *end_reason(const by_parser *p, const by_json *finish) {
    if (!by_json_is(finish, BY_JSON_STRING)) return "stop";
    if (by_str_eqz(finish->v.s, "stop")) return by_parser_calls(p) ? "tool_calls" : "stop";
    return by_str_eqz(finish->v.s, "length") ? "length" : "content_filter";
}

static void replay(by_buf *out, int64_t *ended_before, const by_parse_row *row) {
    by_parse_record r = {0};
    by_parser *p = NULL;
    assert_int_equal(by_parser_create(&p, &row->opts, by_parse_record_delta, &r, NULL), BY_OK);
    *ended_before = -1;
    for (uint32_t i = 0; i < row->chunks->n; i++) {
        if (by_parser_ended(p)) {
            *ended_before = i;
            break;
        }
        assert_int_equal(by_parser_push(p, row->chunks->v.items[i].v.s, NULL), BY_OK);
        close_list(out, &r, by_parser_ended(p) ? "stop" : NULL);
    }
    if (!by_parser_ended(p)) {
        assert_int_equal(by_parser_finish(p, NULL), BY_OK);
        close_list(out, &r, end_reason(p, row->finish));
    }
    assert_false(r.broken);
    by_parser_destroy(p);
    by_parse_record_deinit(&r);
}

static int check_file(const char *name) {
    by_lines *lines = by_lines_open(by_golden_path(name));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_buf got = {0}, want = {0};
    by_str line;
    int n = 0, bad = 0;
    for (; by_lines_next(lines, &line); n++) {
        by_json row;
        by_arena_reset(&arena);
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        const by_json *expected = by_json_get(&row, "expected"), *before;
        by_parse_row pr;
        by_parse_row_read(&pr, by_json_get(&row, "input"));
        int64_t ended_before;
        by_buf_clear(&got);
        by_buf_push_byte(&got, '[');
        by_buf body = {0};
        replay(&body, &ended_before, &pr);
        by_buf_push_str(&got, by_buf_str(&body));
        by_buf_push_byte(&got, ']');
        by_buf_deinit(&body);
        by_buf_clear(&want);
        by_json_write(&want, by_json_get(expected, "deltas"), BY_JSON_COMPACT);
        before = by_json_get(expected, "finished_before_chunk");
        int64_t want_before = by_json_is(before, BY_JSON_INT) ? before->v.i : -1;
        if (by_str_eq(by_buf_str(&got), by_buf_str(&want)) && ended_before == want_before) continue;
        if (bad++ < 5) fprintf(stderr, "%s:%d\n got  %s\n want %s\n", name, n + 1, by_buf_z(&got), by_buf_z(&want));
    }
    by_lines_close(lines);
    by_arena_deinit(&arena);
    by_buf_deinit(&got);
    by_buf_deinit(&want);
    assert_int_equal(bad, 0);
    return n;
}

static void written_rows(void **state) {
    (void)state;
    assert_int_equal(check_file("recipe/parse.jsonl"), 675);
}
static void random_rows(void **state) {
    (void)state;
    assert_int_equal(check_file("recipe/parse_random.jsonl"), 157);
}
static void newlines_behind_broken_tags(void **state) {
    (void)state;
    assert_int_equal(check_file("recipe/parse_quirks.jsonl"), 36);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_rows),
        cmocka_unit_test(random_rows),
        cmocka_unit_test(newlines_behind_broken_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
