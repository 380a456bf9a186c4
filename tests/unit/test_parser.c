/* Unit tests of recipe/parser.h: faults that users of other servers report, memory, and hostile input. The texts of the
 * first part follow open issues of other projects (kinds of fault, not their inputs). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "json/json.h"
#include "support/parse_rows.h"

#define T "｜DSML｜"

static by_parse_record rec;

static int teardown(void **state) {
    (void)state;
    by_parse_record_deinit(&rec);
    rec = (by_parse_record){0};
    return 0;
}

static by_parser *open_parser(const by_parser_opts *opts) {
    by_parser *p = NULL;
    by_parse_record_clear(&rec);
    assert_int_equal(by_parser_create(&p, opts, by_parse_record_delta, &rec, NULL), BY_OK);
    return p;
}
static void push(by_parser *p, const char *z) { assert_int_equal(by_parser_push(p, by_str_z(z), NULL), BY_OK); }
static void close_parser(by_parser *p) {
    assert_int_equal(by_parser_finish(p, NULL), BY_OK);
    assert_true(by_parser_ended(p));
    assert_false(rec.broken);
    by_parser_destroy(p);
}

static void assert_text(const by_buf *b, const char *want) {
    if (!by_str_eqz(by_buf_str(b), want)) fail_msg("got <%.*s>, want <%s>", BY_STR_ARG(by_buf_str(b)), want);
}
/* Call i of the record: its name and the arguments that follow. */
static const char *call_name(uint32_t i) {
    assert_true(i < rec.n_calls);
    const char *at = by_buf_z(&rec.calls);
    while (i--) at += strlen(at) + 1, at += strlen(at) + 1;
    return at;
}
static const char *call_args(uint32_t i) { return call_name(i) + strlen(call_name(i)) + 1; }

/* O1 */
static void tag_across_every_chunk_boundary(void **state) {
    (void)state;
    by_str text = BY_STR("Checking.\n\n<" T " calls>\n<" T " invoke name=\"clock\">\n<" T
                         " parameter name=\"zone\" string=\"true\">Asia/Oral</" T " parameter>\n</" T " invoke>\n</" T
                         " calls>");
    by_parser_opts opts = {.parse_calls = true};
    size_t cuts[512];
    for (size_t i = 0; i < text.len; i++) cuts[i] = i + 1;
    for (size_t i = 0; i <= text.len + 1; i++) {
        by_parse_record_clear(&rec);
        if (i <= text.len) by_parse_in_pieces(&rec, &opts, text, &i, 1);
        else by_parse_in_pieces(&rec, &opts, text, cuts, text.len);
        assert_text(&rec.content, "Checking.");
        assert_int_equal(rec.n_calls, 1);
        assert_string_equal(call_name(0), "clock");
        assert_string_equal(call_args(0), "{\"zone\": \"Asia/Oral\"}");
    }
}

/* O2 */
static void arguments_are_streamed(void **state) {
    (void)state;
    by_buf text = {0}, list = {0};
    for (int i = 1; i <= 900; i++) by_buf_printf(&list, "%s%d", i > 1 ? "-" : "", i);
    by_buf_printf(&text, "<" T " calls>\n<" T " invoke name=\"f\">\n<" T " parameter name=\"l\" string=\"true\">%s</" T
                         " parameter>\n</" T " invoke>\n</" T " calls>", by_buf_z(&list));
    by_parser_opts opts = {.parse_calls = true};
    by_parser *p = open_parser(&opts);
    for (size_t i = 0; i < text.len; i += 8)
        assert_int_equal(by_parser_push(p, by_str_take(by_str_skip(by_buf_str(&text), i), 8), NULL), BY_OK);
    close_parser(p);
    int n = 0;
    for (const char *at = by_buf_z(&rec.deltas); (at = strstr(at, "{\"args\"")); at++) n++;
    assert_true(n >= 50);
    by_buf want = {0};
    by_buf_printf(&want, "{\"l\": \"%s\"}", by_buf_z(&list));
    assert_string_equal(call_args(0), by_buf_z(&want));
    by_buf_deinit(&want);
    by_buf_deinit(&text);
    by_buf_deinit(&list);
}

/* O3 */
static void reserved_parameter_names_and_a_last_bracket(void **state) {
    (void)state;
    by_parser_opts opts = {.parse_calls = true};
    by_parser *p = open_parser(&opts);
    push(p, "<" T " calls>\n<" T " invoke name=\"relay\">\n<" T " parameter name=\"arguments\" string=\"true\">x</" T
            " parameter>\n<" T " parameter name=\"input\" string=\"false\">{\"arguments\": 1}</" T " parameter>\n</" T
            " invoke>\n</" T " calls>");
    close_parser(p);
    assert_string_equal(call_name(0), "relay");
    assert_string_equal(call_args(0), "{\"arguments\": \"x\", \"input\": {\"arguments\": 1}}");

    p = open_parser(&opts);
    push(p, "if 3 <");
    close_parser(p);
    assert_text(&rec.content, "if 3 <");
}

/* O4 */
static void types_are_those_of_the_markup(void **state) {
    (void)state;
    by_parser_opts opts = {.parse_calls = true};
    by_parser *p = open_parser(&opts);
    static const char *const params[] = {"\"a\" string=\"false\">-0.5", "\"b\" string=\"false\">[1,null]",
                                         "\"c\" string=\"false\">{\"k\":true}", "\"d\" string=\"true\">007"};
    push(p, "<" T " calls>\n<" T " invoke name=\"tune\">\n");
    for (int i = 0; i < 4; i++) {
        push(p, "<" T " parameter name=");
        push(p, params[i]);
        push(p, "</" T " parameter>\n");
    }
    push(p, "</" T " invoke>\n</" T " calls>");
    close_parser(p);
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json v;
    assert_int_equal(by_json_parse(&v, &arena, by_str_z(call_args(0)), NULL, NULL), BY_OK);
    assert_int_equal(by_json_get(&v, "a")->type, BY_JSON_DOUBLE);
    assert_int_equal(by_json_get(&v, "b")->type, BY_JSON_ARRAY);
    assert_int_equal(by_json_get(&v, "c")->type, BY_JSON_OBJECT);
    assert_int_equal(by_json_get(&v, "d")->type, BY_JSON_STRING);
    assert_true(by_str_eqz(by_json_get(&v, "d")->v.s, "007"));
    by_arena_deinit(&arena);
}

/* O5 */
static void a_call_without_the_end_of_thinking(void **state) {
    (void)state;
    by_parser_opts opts = {.parse_calls = true, .stage = BY_STAGE_REASONING_START};
    by_parser *p = open_parser(&opts);
    push(p, "need the list<" T " calls>\n<" T " invoke name=\"ls\">\n\n</" T " invoke>\n</" T " calls>");
    close_parser(p);
    assert_text(&rec.reasoning, "need the list");
    assert_text(&rec.content, "");
    assert_int_equal(rec.n_calls, 1);
    assert_string_equal(call_args(0), "{}");
}

/* O6 */
static void empty_thinking_before_a_call(void **state) {
    (void)state;
    by_parser_opts opts = {.parse_calls = true, .stage = BY_STAGE_REASONING_START};
    by_parser *p = open_parser(&opts);
    push(p, "</think>\n\n<" T " calls>\n<" T " invoke name=\"ls\">\n\n</" T " invoke>\n</" T " calls>");
    close_parser(p);
    assert_text(&rec.reasoning, "");
    assert_text(&rec.content, "");
    assert_int_equal(rec.n_calls, 1);
    assert_non_null(strstr(by_buf_z(&rec.deltas), "\"et\":true"));
}

/* O24 */
static void stop_strings_are_held_back(void **state) {
    (void)state;
    by_str stops[] = {BY_STR("<<END>>"), BY_STR("<<E2")};
    for (int eager = 0; eager < 2; eager++) {
        by_parser_opts opts = {.stops = stops, .n_stops = 2, .eager = eager};
        by_parser *p = open_parser(&opts);
        push(p, "ok <");
        push(p, "<EN");
        assert_text(&rec.content, eager ? "ok " : "");
        push(p, "D>>tail");
        assert_true(by_parser_ended(p));
        assert_int_equal(by_parser_stop_index(p), 0);
        push(p, "more");
        close_parser(p);
        assert_text(&rec.content, "ok ");

        p = open_parser(&opts);
        push(p, "ok <");
        push(p, "<EX");
        close_parser(p);
        assert_text(&rec.content, "ok <<EX");

        p = open_parser(&opts);
        push(p, "ok <");
        push(p, "<E2D>>");
        assert_int_equal(by_parser_stop_index(p), 1);
        close_parser(p);
        assert_text(&rec.content, "ok ");
    }
}

/* With include_stop the stop string comes out like the text before it, wherever it is cut. */
static void a_stop_string_may_be_part_of_the_text(void **state) {
    (void)state;
    by_str stops[] = {BY_STR("<<END>>"), BY_STR("\n")}, text = BY_STR("ok <<<END>>tail");
    for (int eager = 0; eager < 2; eager++) {
        by_parser_opts opts = {.stops = stops, .n_stops = 2, .eager = eager, .include_stop = true};
        for (size_t a = 0; a <= text.len; a++) {
            for (size_t b = a; b <= text.len; b++) {
                by_parser *p = open_parser(&opts);
                assert_int_equal(by_parser_push(p, by_str_take(text, a), NULL), BY_OK);
                assert_int_equal(by_parser_push(p, by_str_take(by_str_skip(text, a), b - a), NULL), BY_OK);
                assert_int_equal(by_parser_push(p, by_str_skip(text, b), NULL), BY_OK);
                assert_int_equal(by_parser_stop_index(p), 0);
                close_parser(p);
                assert_text(&rec.content, "ok <<<END>>");
            }
        }
        opts.stage = BY_STAGE_REASONING_START;
        by_parser *p = open_parser(&opts);
        push(p, "why</think>\n\nok");
        assert_int_equal(by_parser_stop_index(p), 1);
        close_parser(p);
        assert_text(&rec.content, "\n");
    }
}

/* A stop string that begins inside the text of a special token, or ends there, or holds one. */
static void stop_strings_reach_into_special_tokens(void **state) {
    (void)state;
    static const struct {
        const char *stop, *content;
    } cases[] = {{"ref|>x", "see <|"}, {"<|ref|>", "see "}, {"e <|re", "se"}, {"e <|ref|>xy", "se"}, {"|re", "see <"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int reaches = 0; reaches < 2; reaches++) {
            by_str stop = by_str_z(cases[i].stop);
            by_parser *p = open_parser(&(by_parser_opts){.stops = &stop, .n_stops = 1, .eager = true, .stops_in_special = reaches});
            assert_int_equal(by_parser_push_text(p, BY_STR("see "), BY_TEXT_PLAIN, 0, NULL), BY_OK);
            assert_int_equal(by_parser_push_text(p, BY_STR("<|ref|>"), BY_TEXT_SPECIAL, 0, NULL), BY_OK);
            assert_int_equal(by_parser_push_text(p, BY_STR("xyz"), BY_TEXT_PLAIN, 0, NULL), BY_OK);
            assert_int_equal(by_parser_stop_index(p), reaches ? 0 : -1);
            close_parser(p);
            assert_text(&rec.content, reaches ? cases[i].content : "see <|ref|>xyz");
        }
    }
}

/* O25 */
static void characters_are_never_cut(void **state) {
    (void)state;
    const char *text = "🧑🏽‍🚀é漢";
    by_parser_opts opts = {.stage = BY_STAGE_NONE};
    by_parser *p = open_parser(&opts);
    for (const char *c = text; *c; c++) assert_int_equal(by_parser_push(p, by_str_of(c, 1), NULL), BY_OK);
    close_parser(p);
    assert_text(&rec.content, text);

    p = open_parser(&opts);
    push(p, text);
    push(p, "\xe6\xbc");
    close_parser(p);
    by_buf want = {0};
    by_buf_printf(&want, "%s\xef\xbf\xbd", text);
    assert_text(&rec.content, by_buf_z(&want));
    by_buf_deinit(&want);
}

/* O26: a stop string acts on content, not on reasoning and not inside calls. */
static void stop_strings_do_not_cut_reasoning(void **state) {
    (void)state;
    by_str stop = BY_STR("42");
    by_parser_opts opts = {.stops = &stop, .n_stops = 1, .stage = BY_STAGE_REASONING_START, .parse_calls = true};
    by_parser *p = open_parser(&opts);
    push(p, "is it 42? yes</think>it is 42.");
    assert_true(by_parser_ended(p));
    close_parser(p);
    assert_text(&rec.reasoning, "is it 42? yes");
    assert_text(&rec.content, "it is ");
}

/* A token stream keeps apart what the model typed and what is a token of its own. */
static void typed_markup_is_text_in_a_token_stream(void **state) {
    (void)state;
    by_parser_opts opts = {.parse_calls = true, .stage = BY_STAGE_REASONING_START};
    by_parser *p = open_parser(&opts);
    static const struct {
        const char *text;
        by_text_class text_class;
    } pieces[] = {{"say </think> or <" T "\n\n", BY_TEXT_PLAIN}, {"</think>", BY_TEXT_SPECIAL},
                  {"\n\nok </think>\n<", BY_TEXT_PLAIN},         {T, BY_TEXT_SPECIAL},
                  {" calls>\n<", BY_TEXT_PLAIN},                 {T, BY_TEXT_SPECIAL},
                  {" invoke name=\"f\">\n<", BY_TEXT_PLAIN},     {T, BY_TEXT_SPECIAL},
                  {" parameter name=\"a\" string=\"true\">x</" T " y</", BY_TEXT_PLAIN},
                  {T, BY_TEXT_SPECIAL},                          {" parameter>\n</", BY_TEXT_PLAIN},
                  {T, BY_TEXT_SPECIAL},                          {" invoke>\n</", BY_TEXT_PLAIN},
                  {T, BY_TEXT_SPECIAL},                          {" calls>", BY_TEXT_PLAIN}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        assert_int_equal(by_parser_push_text(p, by_str_z(pieces[i].text), pieces[i].text_class, i, NULL), BY_OK);
    close_parser(p);
    assert_text(&rec.reasoning, "say </think> or <" T);
    assert_text(&rec.content, "ok </think>");
    assert_int_equal(rec.n_calls, 1);
    assert_string_equal(call_args(0), "{\"a\": \"x</" T " y\"}");
}

/* Held text of a call's value, a waiting tag and a waiting stop string: no allocation once the buffers have grown. */
static void steady_state_allocates_nothing(void **state) {
    (void)state;
    by_str stop = BY_STR("<<END>>");
    by_parser_opts opts = {.parse_calls = true, .stops = &stop, .n_stops = 1, .stage = BY_STAGE_REASONING_START};
    static const char *const parts[] = {"Hm", ",\n", "\n", " so <", "｜DS", "x é", "\xe6", "\xbc\xa2 </th", "ought> "};
    static const char *const call[] = {"<" T " calls>\n<" T " invoke name=\"f\">\n<" T
                                       " parameter name=\"a\" string=\"true\">", "x\n", "\"y\" <", "/", "｜z"};
    by_parser *p = NULL;
    by_parse_record sink = {0};
    assert_int_equal(by_parser_create(&p, &opts, by_parse_record_delta, &sink, NULL), BY_OK);
    by_buf_reserve(&sink.deltas, 1 << 20);
    by_buf_reserve(&sink.reasoning, 1 << 20);
    by_buf_reserve(&sink.calls, 1 << 20);
    for (int part = 0; part < 2; part++) {
        uint64_t calls = 0;
        if (part == 1) push(p, call[0]);
        for (int round = 0; round < 300; round++) {
            if (round == 20) calls = by_alloc_calls();
            if (part == 0)
                for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) push(p, parts[i]);
            else
                for (size_t i = 1; i < sizeof call / sizeof *call; i++) push(p, call[i]);
        }
        assert_int_equal(by_alloc_calls() - calls, 0);
    }
    by_parser_destroy(p);
    by_parse_record_deinit(&sink);
}

static void ignore(void *ctx, const by_delta *d) {
    (void)ctx;
    (void)d;
}

static by_status run_once(const by_parser_opts *opts, by_str text) {
    by_parser *p = NULL;
    by_status status = by_parser_create(&p, opts, ignore, NULL, NULL);
    for (size_t i = 0; status == BY_OK && i < text.len; i++) status = by_parser_push(p, by_str_of(text.ptr + i, 1), NULL);
    if (status == BY_OK) status = by_parser_finish(p, NULL);
    by_parser_destroy(p);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    by_str stop = BY_STR("a stop string that is somewhat longer than others");
    by_parser_opts opts = {.parse_calls = true, .stops = &stop, .n_stops = 1, .stage = BY_STAGE_REASONING_START};
    by_str text = BY_STR("\n\nthink\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n漢\xff</think>a stop string that is somewhat<" T
                         " calls>\n<" T " invoke name=\"f\">\n<" T " parameter name=\"a\" string=\"true\">x\"y</" T
                         " parameter>\n</" T " invoke>\n</" T " calls>");
    int n = 1;
    for (;; n++) {
        int64_t before = by_alloc_bytes_total();
        by_alloc_fail_nth(n);
        by_status status = run_once(&opts, text);
        by_alloc_fail_nth(0);
        assert_int_equal(by_alloc_bytes_total(), before);
        if (status == BY_OK) break;
        assert_int_equal(status, BY_ENOMEM);
    }
    assert_true(n > 10);
}

/* Time must stay linear: a megabyte of newlines, of half tags, and of a long stop string's front. */
static void hostile_text_is_linear(void **state) {
    (void)state;
    by_buf stop = {0}, text = {0};
    for (int i = 0; i < 100000; i++) by_buf_push_byte(&stop, 'a');
    by_buf_push_byte(&stop, 'b');
    by_str stops[] = {by_buf_str(&stop)};
    by_parser_opts opts = {.parse_calls = true, .stops = stops, .n_stops = 1};
    static const char *const units[] = {"\n", "<", "</think", "a", "a\n"};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        by_buf_clear(&text);
        by_buf_push_z(&text, "x");
        while (text.len < 1000000) by_buf_push_z(&text, units[u]);
        assert_int_equal(run_once(&opts, by_buf_str(&text)), BY_OK);
    }
    by_buf_deinit(&stop);
    by_buf_deinit(&text);
}

/* deepseek-recipe 0.2.0 gives all of "<<<R>x" out as content when the dsml token is "<R>": the second "<" belongs to the
 * token, so that it cannot be the "<" in front of it as well. */
static void a_token_that_begins_like_the_text_before_it(void **state) {
    (void)state;
    by_parser *p = open_parser(&(by_parser_opts){.parse_calls = true, .dsml = BY_STR("<R>")});
    for (const char *at = "<<<R>x"; *at; at++) push(p, (char[]){*at, 0});
    close_parser(p);
    assert_text(&rec.content, "<<<R>x");
    p = open_parser(&(by_parser_opts){.parse_calls = true, .dsml = BY_STR("<R>")});
    push(p, "a<<R>x");
    close_parser(p);
    assert_text(&rec.content, "a");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_token_that_begins_like_the_text_before_it, teardown),
        cmocka_unit_test_teardown(tag_across_every_chunk_boundary, teardown),
        cmocka_unit_test_teardown(arguments_are_streamed, teardown),
        cmocka_unit_test_teardown(reserved_parameter_names_and_a_last_bracket, teardown),
        cmocka_unit_test_teardown(types_are_those_of_the_markup, teardown),
        cmocka_unit_test_teardown(a_call_without_the_end_of_thinking, teardown),
        cmocka_unit_test_teardown(empty_thinking_before_a_call, teardown),
        cmocka_unit_test_teardown(stop_strings_are_held_back, teardown),
        cmocka_unit_test_teardown(a_stop_string_may_be_part_of_the_text, teardown),
        cmocka_unit_test_teardown(stop_strings_reach_into_special_tokens, teardown),
        cmocka_unit_test_teardown(characters_are_never_cut, teardown),
        cmocka_unit_test_teardown(stop_strings_do_not_cut_reasoning, teardown),
        cmocka_unit_test_teardown(typed_markup_is_text_in_a_token_stream, teardown),
        cmocka_unit_test_teardown(steady_state_allocates_nothing, teardown),
        cmocka_unit_test_teardown(every_allocation_may_fail, teardown),
        cmocka_unit_test_teardown(hostile_text_is_linear, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
