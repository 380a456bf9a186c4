/* test_service_grammar.c - requests of all APIs whose answers are limited, on random weights: what comes out follows the schema,
 * pattern or tool, whatever the weights say. Names in brackets are items of the list of complaints. BY_TEST_TIMEOUT=600 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "json/json_write.h"
#include "service/service.h"
#include "support/golden.h"
#include "support/seed.h"
#include "support/texts.h"

static by_service *service;
static by_arena arena;
static by_err err;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

static int set_up(void **state) {
    (void)state;
    static const char *const names[] = {"m"};
    by_service_opts o = {.engine = by_engine_opts_default(), .names = names, .n_names = 1};
    by_api_options_init(&o.api);
    o.api.default_thinking = false;
    o.api.honour_sampling = true;
    o.engine.model_dir = by_source_path("models/tiny");
    o.engine.device.n_threads = 1;
    o.engine.max_context = 1500;
    o.engine.ram_bytes = 512 << 20;
    by_arena_init(&arena, BY_MEM_MISC);
    check(by_service_open(&service, &o, &err));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    by_service_close(service);
    by_arena_deinit(&arena);
    return 0;
}

/* ---- calls ---- */

static const by_json *parse(by_str text) {
    by_json *v = by_arena_alloc(&arena, sizeof *v);
    if (by_json_parse(v, &arena, by_arena_dup(&arena, text), NULL, &err) < 0) fail_msg("%s in %.*s", err.msg, BY_STR_ARG(text));
    return v;
}

/* The whole answer, or NULL with *problem filled. */
static const by_json *ask(by_api_kind api, by_call_problem *problem, const char *body) {
    by_call_opts o = {.api = api, .body = by_str_z(body), .whole = true};
    by_call *call;
    by_buf text = {0};
    by_call_start(&call, service, &o, &err);
    assert_non_null(call);
    while (by_call_pump(call, 60000, &err) == BY_AGAIN) {
    }
    const by_call_problem *p = by_call_problem_get(call);
    if (p) *problem = *p;
    else check(by_call_write_whole(call, &text, &err));
    const by_json *v = p ? NULL : parse(by_buf_str(&text));
    by_buf_deinit(&text);
    by_call_destroy(call);
    return v;
}

static const by_json *answer(by_api_kind api, const char *body) {
    by_call_problem p;
    const by_json *v = ask(api, &p, body);
    if (!v) fail_msg("%d %s: %s, for %s", p.http_status, p.code, p.message, body);
    return v;
}

static const by_json *at(const by_json *v, const char *key) {
    const by_json *x = v ? by_json_get(v, key) : NULL;
    if (!x) fail_msg("no member %s", key);
    return x;
}

static const by_json *message_of(const by_json *whole) { return at(&at(whole, "choices")->v.items[0], "message"); }

#define CHAT "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"say it as json\"}]"

static const char *body_of(const char *head, const char *rest, int seed) {
    by_buf b = {0};
    by_buf_printf(&b, "{%s,\"seed\":%d,%s}", head, seed, rest);
    return by_test_keep(&arena, &b);
}

/* ---- formats ---- */

#define ROW                                                                                                                \
    "{\"$ref\":\"#/$defs/Row\",\"$defs\":{\"Row\":{\"type\":\"object\",\"required\":[\"c\xc3\xb4t\xc3\xa9\"],"             \
    "\"properties\":{\"c\xc3\xb4t\xc3\xa9\":{\"$ref\":\"#/$defs/E\"}},\"additionalProperties\":false},\"E\":{\"enum\":"      \
    "[\"\xd0\xbb\xd0\xb5\xd0\xb2\xd1\x8b\xd0\xb9\",\"\xd1\x80\xd0\xb0\xd0\xb2\",null]}}}"

/* [O16] An enum behind $ref is enforced. */
static void an_enum_behind_a_reference_is_enforced(void **state) {
    (void)state;
    static const char *const values[] = {"\xd0\xbb\xd0\xb5\xd0\xb2\xd1\x8b\xd0\xb9", "\xd1\x80\xd0\xb0\xd0\xb2"};
    int n = by_test_scaled(50), n_seen[3] = {0};
    for (int i = 0; i < n; i++) {
        const char *body = body_of(CHAT, "\"max_tokens\":400,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
                                         "{\"schema\":" ROW "}}", i);
        const by_json *m = message_of(answer(BY_API_CHAT, body)), *row = parse(at(m, "content")->v.s);
        const by_json *v = at(row, "c\xc3\xb4t\xc3\xa9");
        assert_int_equal(row->n, 1);
        int k = v->type == BY_JSON_NULL ? 2 : by_str_eqz(v->v.s, values[0]) ? 0 : by_str_eqz(v->v.s, values[1]) ? 1 : -1;
        assert_true(k >= 0);
        n_seen[k]++;
    }
    if (n >= 50) assert_true((n_seen[0] > 0) + (n_seen[1] > 0) + (n_seen[2] > 0) >= 2);
}

/* [O15] The grammar binds only behind the reasoning. */
static void the_grammar_begins_behind_the_reasoning(void **state) {
    (void)state;
    const by_tok *tok = by_service_tok(service);
    char bias[160];
    snprintf(bias, sizeof bias, "\"thinking\":{\"type\":\"enabled\"},\"max_tokens\":300,\"logit_bias\":{\"%d\":9},",
             by_tok_find_added(tok, BY_STR("</think>")));
    for (int i = 0; i < by_test_scaled(5); i++) {
        by_buf b = {0};
        by_buf_printf(&b,
                      "{" CHAT ",\"seed\":%d,%s\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":"
                      "{\"type\":\"boolean\"}}}}",
                      i, bias);
        by_buf_z(&b);
        const by_json *m = message_of(answer(BY_API_CHAT, b.ptr)), *content = at(m, "content");
        const by_json *reasoning = by_json_get(m, "reasoning_content");
        by_buf_deinit(&b);
        assert_true(by_str_eqz(content->v.s, "true") || by_str_eqz(content->v.s, "false"));
        assert_true(reasoning && reasoning->type == BY_JSON_STRING);
    }
}

static void every_spelling_limits_the_answer(void **state) {
    (void)state;
    static const struct {
        by_api_kind api;
        const char *rest;
        const char *want; /* the text is one of two of these, split by | */
    } rows[] = {
        {BY_API_CHAT, "\"response_format\":{\"type\":\"regex\",\"regex\":\"aa|bb\"}", "aa|bb"},
        {BY_API_CHAT, "\"response_format\":{\"type\":\"regex\",\"pattern\":\"aa|bb\"}", "aa|bb"},
        {BY_API_CHAT, "\"response_format\":{\"type\":\"ebnf\",\"grammar\":\"root ::= \\\"aa\\\" | \\\"bb\\\"\"}", "aa|bb"},
        {BY_API_CHAT, "\"response_format\":{\"type\":\"lark\",\"grammar\":\"start: \\\"aa\\\" | \\\"bb\\\"\"}", "aa|bb"},
        {BY_API_CHAT,
         "\"response_format\":{\"type\":\"structural_tag\",\"format\":{\"type\":\"or\",\"elements\":"
         "[{\"type\":\"const_string\",\"value\":\"aa\"},"
         "{\"type\":\"const_string\",\"value\":\"bb\"}]}}",
         "aa|bb"},
        {BY_API_CHAT, "\"structured_outputs\":{\"choice\":[\"aa\",\"bb\"]}", "aa|bb"},
        {BY_API_CHAT, "\"structured_outputs\":{\"regex\":\"aa|bb\"}", "aa|bb"},
        {BY_API_CHAT, "\"structured_outputs\":{\"json\":{\"enum\":[true,false]}}", "true|false"},
        {BY_API_CHAT, "\"structured_outputs\":{\"grammar\":\"start: \\\"aa\\\" | \\\"bb\\\"\"}", "aa|bb"},
        {BY_API_CHAT, "\"guided_choice\":[\"aa\",\"bb\"]", "aa|bb"},
        {BY_API_CHAT, "\"guided_json\":\"{\\\"enum\\\":[true,false]}\"", "true|false"},
        {BY_API_CHAT, "\"guided_grammar\":\"root ::= \\\"aa\\\" | \\\"bb\\\"\"", "aa|bb"},
        {BY_API_CHAT, "\"json_schema\":{\"enum\":[true,false]}", "true|false"},
        {BY_API_CHAT, "\"so_args\":{\"schema_type\":\"ebnf\",\"schema\":\"root ::= \\\"aa\\\" | \\\"bb\\\"\"}", "aa|bb"},
        {BY_API_COMPLETIONS, "\"guided_regex\":\"aa|bb\"", "aa|bb"},
        {BY_API_COMPLETIONS, "\"response_format\":{\"type\":\"regex\",\"regex\":\"aa|bb\"}", "aa|bb"},
        {BY_API_COMPLETIONS, "\"response_format\":{\"type\":\"regex\",\"pattern\":\"aa|bb\"}", "aa|bb"},
        {BY_API_COMPLETIONS,
         "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"enum\":[true,false]}}}",
         "true|false"},
        {BY_API_MESSAGES, "\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"enum\":[true,false]}}", "true|false"},
        {BY_API_MESSAGES, "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"enum\":[true,false]}}}", "true|false"},
        {BY_API_RESPONSES, "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"x\",\"schema\":{\"enum\":[true,false]}}}", "true|false"},
    };
    static const char *const heads[] = {CHAT, "\"model\":\"m\",\"input\":\"say it as json\"", CHAT ",\"max_tokens\":99",
                                        "\"model\":\"m\",\"prompt\":\"say it\""};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const by_json *v = answer(rows[i].api, body_of(heads[rows[i].api], rows[i].rest, (int)i));
        by_str text = {0};
        switch (rows[i].api) {
        case BY_API_CHAT: text = at(message_of(v), "content")->v.s; break;
        case BY_API_COMPLETIONS: text = at(&at(v, "choices")->v.items[0], "text")->v.s; break;
        case BY_API_MESSAGES: text = at(&at(v, "content")->v.items[0], "text")->v.s; break;
        case BY_API_RESPONSES: {
            const by_json *out = at(v, "output");
            text = at(&at(&out->v.items[out->n - 1], "content")->v.items[0], "text")->v.s;
        }
        }
        const char *bar = strchr(rows[i].want, '|');
        bool good = by_str_eq(text, by_str_of(rows[i].want, (size_t)(bar - rows[i].want))) || by_str_eqz(text, bar + 1);
        if (!good) fail_msg("row %zu: '%.*s'", i, BY_STR_ARG(text));
    }
}

static void json_object_is_an_object(void **state) {
    (void)state;
    const char *rest = "\"max_tokens\":80,\"structured_outputs\":{\"json_object\":true,\"close_by_budget\":true}";
    for (int i = 0; i < 3; i++)
        assert_int_equal(parse(at(message_of(answer(BY_API_CHAT, body_of(CHAT, rest, i))), "content")->v.s)->type, BY_JSON_OBJECT);
}

/* ---- refusals ---- */

static void a_refusal_names_field_and_place(void **state) {
    (void)state;
    static const struct {
        const char *rest, *part, *other;
    } rows[] = {
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"properties\":{\"a\":{\"not\":{\"uniqueItems\":true}}}}}}",
         "response_format", "/properties/a"},
        {"\"guided_json\":{\"properties\":{\"a\":{\"pattern\":\"(x\"}}}", "guided_json", "/properties/a/pattern"},
        {"\"guided_regex\":\"a(b\"", "guided_regex", "offset"},
        {"\"guided_regex\":\"a\",\"structured_outputs\":{\"regex\":\"b\"}", "guided_regex", "structured_outputs.regex"},
        {"\"structured_outputs\":{}", "structured_outputs", "nothing"},
        {"\"so_args\":{\"schema_type\":\"json\",\"schema\":\"{}\",\"serialized\":\"x\"}", "so_args.serialized", ""},
        {"\"so_args\":{\"schema_type\":\"json\",\"schema\":\"{}\",\"bound_token_id\":5}", "so_args.bound_token_id", ""},
        {"\"so_args\":{\"schema_type\":\"json\",\"schema\":\"{}\",\"trigger_token_ids\":[-1]}", "so_args.trigger_token_ids", ""},
        {"\"so_args\":{\"schema_type\":\"xml\",\"schema\":\"{}\"}", "so_args.schema_type", ""},
        {"\"structured_outputs\":{\"choice\":\"a\"}", "structured_outputs.choice", "list"},
        {"\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":\"yes\"}", "structured_outputs", "disable_any_whitespace"},
        {"\"guided_json_object\":1", "guided_json_object", "true or false"},
        {"\"response_format\":{\"type\":\"regex\"}", "response_format", "pattern"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        by_call_problem p = {0};
        if (ask(BY_API_CHAT, &p, body_of(CHAT, rows[i].rest, 1))) fail_msg("row %zu was not refused", i);
        assert_int_equal(p.http_status, 400);
        if (!strstr(p.message, rows[i].part) || !strstr(p.message, rows[i].other)) fail_msg("row %zu: '%s'", i, p.message);
    }
}

static void completions_refuse_formats_that_they_do_not_know(void **state) {
    (void)state;
    static const struct {
        const char *rest, *part;
    } rows[] = {{"\"response_format\":{\"type\":\"jsn\"}", "response_format.type"},
                {"\"response_format\":\"json_object\"", "response_format"},
                {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema.schema"},
                {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"strng\"}}}", "strng"},
                {"\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"", "guided_regex"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        by_call_problem p = {0};
        if (ask(BY_API_COMPLETIONS, &p, body_of("\"model\":\"m\",\"prompt\":\"say it\"", rows[i].rest, 1)))
            fail_msg("row %zu was not refused", i);
        assert_int_equal(p.http_status, 400);
        if (!strstr(p.message, rows[i].part)) fail_msg("row %zu: '%s'", i, p.message);
    }
}

/* ---- tools ---- */

#define TOOLS(strict)                                                                                                            \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"" strict ",\"parameters\":{\"type\":\"object\",\"properties\":{"  \
    "\"n\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"k\":{\"type\":\"boolean\"}},\"required\":[\"n\",\"s\",\"k\"],"       \
    "\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"" strict ",\"parameters\":{\"type\":"      \
    "\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}},\"required\":[\"v\"],"                         \
    "\"additionalProperties\":false}}}]"

static void check_call(const by_json *call, const char *name) {
    const by_json *f = at(call, "function");
    by_str own = at(f, "name")->v.s;
    const by_json *args = parse(at(f, "arguments")->v.s);
    if (name) assert_true(by_str_eqz(own, name));
    if (by_str_eqz(own, "g")) {
        assert_int_equal(at(args, "v")->type, BY_JSON_ARRAY);
        return;
    }
    assert_true(by_str_eqz(own, "f"));
    assert_true(at(args, "n")->type == BY_JSON_INT || at(args, "n")->type == BY_JSON_UINT || at(args, "n")->type == BY_JSON_DOUBLE);
    assert_int_equal(at(args, "s")->type, BY_JSON_STRING);
    assert_int_equal(at(args, "k")->type, BY_JSON_BOOL);
}

/* [O19] With tools enforced every argument has its type, on random weights too. */
static void a_required_tool_is_called_with_its_types(void **state) {
    (void)state;
    static const char *const choices[] = {"\"required\"", "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", "\"required\""};
    static const char *const tools[] = {TOOLS(""), TOOLS(",\"strict\":true"), TOOLS(",\"strict\":true")};
    int n = by_test_scaled(12), n_calls = 0;
    for (int i = 0; i < n; i++) {
        by_buf b = {0};
        by_buf_printf(&b, "\"max_tokens\":250,\"temperature\":1,\"tool_choice\":%s,%s%s", choices[i % 3], tools[i % 3],
                      i % 2 ? ",\"parallel_tool_calls\":false" : "");
        const by_json *v = answer(BY_API_CHAT, body_of(CHAT, by_buf_z(&b), i)), *m = message_of(v);
        const by_json *calls = by_json_get(m, "tool_calls"), *finish = at(&at(v, "choices")->v.items[0], "finish_reason");
        by_buf_deinit(&b);
        if (by_str_eqz(finish->v.s, "length")) continue; /* random weights can write very long strings */
        assert_true(by_str_eqz(finish->v.s, "tool_calls"));
        assert_true(calls && calls->n >= 1);
        if (i % 2) assert_int_equal(calls->n, 1);
        for (uint32_t k = 0; k < calls->n; k++) check_call(&calls->v.items[k], i % 3 == 1 ? "g" : NULL);
        n_calls++;
    }
    assert_true(n_calls > 0);
}

/* With thinking on nothing limits the reasoning, and behind it stands a call. */
static void a_required_tool_is_called_behind_the_reasoning(void **state) {
    (void)state;
    static const char *const choices[] = {"\"required\"", "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"};
    int n_calls = 0, end = by_tok_find_added(by_service_tok(service), BY_STR("</think>"));
    for (int i = 0; i < by_test_scaled(4); i++) {
        by_buf b = {0};
        by_buf_printf(&b, "\"max_tokens\":160,\"temperature\":1,\"structured_outputs\":{\"close_by_budget\":true},\"thinking\":{\"type\":"
                          "\"enabled\"},\"logit_bias\":{\"%d\":9},\"tool_choice\":%s,%s", end, choices[i % 2], TOOLS(""));
        const by_json *v = answer(BY_API_CHAT, body_of(CHAT, by_buf_z(&b), i));
        by_buf_deinit(&b);
        const by_json *calls = by_json_get(message_of(v), "tool_calls"), *finish = at(&at(v, "choices")->v.items[0], "finish_reason");
        if (by_str_eqz(finish->v.s, "length")) continue; /* thought too long */
        assert_true(by_str_eqz(finish->v.s, "tool_calls"));
        assert_true(calls && calls->n >= 1);
        for (uint32_t k = 0; k < calls->n; k++) check_call(&calls->v.items[k], i % 2 ? "g" : NULL);
        n_calls++;
    }
    assert_true(n_calls > 0);
}

/* The answer behind a reasoning that must not take all the room, nor end there: content, and how it ended. */
static by_str answer_behind_reasoning(const char *rest, by_str *finish) {
    const by_json *v = answer(BY_API_CHAT, body_of(CHAT, rest, 3)), *content = at(message_of(v), "content");
    *finish = at(&at(v, "choices")->v.items[0], "finish_reason")->v.s;
    return content->type == BY_JSON_STRING ? content->v.s : (by_str){0};
}

#define THINKS "\"thinking\":{\"type\":\"enabled\"},\"temperature\":1,\"logit_bias\":{\"%d\":%d},"
#define SHORT_SCHEMA "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\"," \
    "\"properties\":{\"ok\":{\"type\":\"boolean\"},\"why\":{\"type\":\"string\"}},\"required\":[\"ok\",\"why\"],"  \
    "\"additionalProperties\":false}}}"

/* A model that would think for ever is ended in time for the shortest answer, the same with drafts as without. */
static void reasoning_leaves_room_for_the_answer(void **state) {
    (void)state;
    int end = by_tok_find_added(by_service_tok(service), BY_STR("</think>"));
    for (int max = 8; max <= 90; max += by_test_scaled(100) >= 100 ? 9 : 40) {
        by_buf b = {0};
        by_str finish;
        by_buf_printf(&b, "\"max_tokens\":%d," THINKS SHORT_SCHEMA, max, end, -100);
        by_str content = answer_behind_reasoning(by_buf_z(&b), &finish);
        by_buf_deinit(&b);
        if (max < 27) continue; /* {"ok":true,"why":""}, a byte a token at worst, and the end of the reasoning */
        if (!by_str_eqz(finish, "stop")) fail_msg("%d tokens: %.*s, %.*s", max, BY_STR_ARG(finish), BY_STR_ARG(content));
        assert_int_equal(at(parse(content), "ok")->type, BY_JSON_BOOL);
    }
}

/* Who says so gets the reasoning as long as it is. */
static void room_for_the_answer_can_be_given_up(void **state) {
    (void)state;
    int end = by_tok_find_added(by_service_tok(service), BY_STR("</think>"));
    by_buf b = {0};
    by_str finish;
    by_buf_printf(&b, "\"max_tokens\":60,\"structured_outputs\":{\"close_by_budget\":false}," THINKS SHORT_SCHEMA, end, -100);
    by_str content = answer_behind_reasoning(by_buf_z(&b), &finish);
    assert_true(by_str_eqz(finish, "length") && content.len == 0);
    by_buf_deinit(&b);
}

/* A format or a call is still to come: the end token waits for it. Where nothing need come it ends the answer. */
static void the_end_token_does_not_end_the_reasoning(void **state) {
    (void)state;
    static const char *const rests[] = {SHORT_SCHEMA, "\"guided_regex\":\"[a-c]{3}\"", "\"tool_choice\":\"required\"," TOOLS(""),
                                        "\"guided_regex\":\"[a-c]{0,3}\""};
    int eos = by_tok_find_added(by_service_tok(service), BY_STR("<｜end▁of▁sentence｜>"));
    for (size_t i = 0; i < sizeof rests / sizeof rests[0]; i++) {
        by_buf b = {0};
        by_buf_printf(&b, "\"max_tokens\":700," THINKS "%s", eos, 100, rests[i]);
        const by_json *v = answer(BY_API_CHAT, body_of(CHAT, by_buf_z(&b), 3)), *m = message_of(v);
        by_str finish = at(&at(v, "choices")->v.items[0], "finish_reason")->v.s;
        const by_json *content = by_json_get(m, "content"), *calls = by_json_get(m, "tool_calls");
        by_buf_deinit(&b);
        assert_true(by_str_eqz(finish, i == 2 ? "tool_calls" : "stop"));
        if (i == 2) assert_true(calls && calls->n > 0);
        else if (i == 3) assert_true(!content || content->type != BY_JSON_STRING || content->v.s.len == 0);
        else assert_true(content->v.s.len >= 3);
    }
}

/* A forced tool without parameters gets none, however they are left out; one that takes any object may get some. */
static void a_tool_without_parameters_gets_none(void **state) {
    (void)state;
    static const char *const parameters[] = {"", ",\"parameters\":null", ",\"parameters\":{\"type\":\"object\",\"properties\":{}}",
                                             ",\"parameters\":{\"type\":\"object\",\"properties\":{},\"required\":[]}",
                                             ",\"parameters\":{\"type\":\"object\"}"};
    bool some = false;
    for (int i = 0; i < 5 * by_test_scaled(3); i++) {
        by_buf b = {0};
        by_buf_printf(&b, "\"max_tokens\":300,\"temperature\":2,\"structured_outputs\":{\"close_by_budget\":true},"
                          "\"parallel_tool_calls\":false,"
                          "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\"%s}}]",
                      parameters[i % 5]);
        const by_json *v = answer(BY_API_CHAT, body_of(CHAT, by_buf_z(&b), i));
        by_buf_deinit(&b);
        const by_json *calls = at(message_of(v), "tool_calls");
        assert_int_equal(calls->n, 1);
        by_str arguments = at(at(&calls->v.items[0], "function"), "arguments")->v.s;
        if (i % 5 < 4 && !by_str_eqz(arguments, "{}")) fail_msg("%s: %.*s", parameters[i % 5], BY_STR_ARG(arguments));
        if (i % 5 == 4) some = some || !by_str_eqz(arguments, "{}");
    }
    assert_true(some || by_test_scaled(100) < 100);
}

/* [O19] 200 outputs: what is marked as JSON is JSON. With room to close, none is cut. */
static void many_calls_hold_json_where_they_say_so(void **state) {
    (void)state;
    const int n_choices = by_test_scaled(100) >= 100 ? 20 : 8;
    for (int i = 0; i < by_test_scaled(10); i++) {
        by_buf b = {0};
        by_buf_printf(&b, "\"n\":%d,\"max_tokens\":160,\"temperature\":1,\"structured_outputs\":{\"close_by_budget\":true},"
                          "\"tool_choice\":\"required\",\"parallel_tool_calls\":false,%s",
                      n_choices, i % 2 ? TOOLS("") : TOOLS(",\"strict\":true"));
        const by_json *choices = at(answer(BY_API_CHAT, body_of(CHAT, by_buf_z(&b), 1000 * i)), "choices");
        by_buf_deinit(&b);
        assert_int_equal(choices->n, n_choices);
        for (uint32_t k = 0; k < choices->n; k++) {
            const by_json *c = &choices->v.items[k], *calls = by_json_get(at(c, "message"), "tool_calls");
            assert_true(by_str_eqz(at(c, "finish_reason")->v.s, "tool_calls"));
            assert_true(calls && calls->n == 1);
            check_call(&calls->v.items[0], NULL);
        }
    }
}

/* The calls of a Messages answer; *n_text counts its other blocks. */
static uint32_t message_calls(const by_json *v, uint32_t *n_text) {
    const by_json *content = at(v, "content");
    uint32_t n = 0;
    for (uint32_t i = 0; i < content->n; i++) {
        const by_json *b = &content->v.items[i];
        if (!by_str_eqz(at(b, "type")->v.s, "tool_use")) {
            ++*n_text;
            continue;
        }
        const by_json *args = at(b, "input");
        assert_true(by_str_eqz(at(b, "name")->v.s, "f") || by_str_eqz(at(b, "name")->v.s, "g"));
        assert_true(by_str_eqz(at(b, "name")->v.s, "g") ? at(args, "v")->type == BY_JSON_ARRAY : at(args, "k")->type == BY_JSON_BOOL);
        n++;
    }
    return n;
}

#define MESSAGES_TOOLS(strict)                                                                                                   \
    "\"tools\":[{\"name\":\"f\"" strict ",\"input_schema\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"boolean\"}},"         \
    "\"required\":[\"k\"],\"additionalProperties\":false}},{\"name\":\"g\",\"input_schema\":{\"type\":\"object\",\"properties\":{"        \
    "\"v\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}},\"required\":[\"v\"],\"additionalProperties\":false}}]"

/* Messages: any and tool force a call, with and without strict tools, behind the reasoning too; one call where no more are wanted. */
static void a_message_with_a_forced_tool_is_a_call(void **state) {
    (void)state;
    static const char *const choices[] = {"{\"type\":\"any\"}", "{\"type\":\"tool\",\"name\":\"g\"}",
                                          "{\"type\":\"any\",\"disable_parallel_tool_use\":true}"};
    static const char *const tools[] = {MESSAGES_TOOLS(""), MESSAGES_TOOLS(",\"strict\":true")};
    int n_calls = 0, end = by_tok_find_added(by_service_tok(service), BY_STR("</think>"));
    for (int i = 0; i < by_test_scaled(9); i++) {
        by_buf b = {0};
        uint32_t n_text = 0;
        bool thinks = i % 3 == 2;
        by_buf_printf(&b, "\"max_tokens\":250,\"tool_choice\":%s,%s", choices[i % 3], tools[i / 3 % 2]);
        if (thinks) by_buf_printf(&b, ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"logit_bias\":{\"%d\":9}", end);
        const by_json *v = answer(BY_API_MESSAGES, body_of(CHAT, by_buf_z(&b), i));
        by_buf_deinit(&b);
        if (by_str_eqz(at(v, "stop_reason")->v.s, "max_tokens")) continue; /* random weights can write very long arrays */
        uint32_t n = message_calls(v, &n_text);
        assert_true(by_str_eqz(at(v, "stop_reason")->v.s, "tool_use"));
        assert_true(n >= 1 && (thinks ? n == 1 : n_text == 0));
        n_calls++;
    }
    assert_true(n_calls > 0);
}

/* A format beside tools that may be called: the answer is a value of the format, or calls. */
static void a_format_beside_tools_holds_for_what_is_no_call(void **state) {
    (void)state;
    uint32_t kinds = 0;
    int32_t lines = by_tok_find_bytes(by_service_tok(service), BY_STR("\n\n"));
    if (lines < 0) lines = by_tok_find_bytes(by_service_tok(service), BY_STR("\n"));
    int32_t word = by_tok_find_bytes(by_service_tok(service), BY_STR("t"));
    for (int i = 0; i < 8; i++) {
        by_buf b = {0};
        by_buf_printf(&b, "\"max_tokens\":250,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
                          "\"boolean\"}}},%s", TOOLS(""));
        by_buf_printf(&b, ",\"logit_bias\":{\"%d\":90}", i % 2 ? lines : word);
        const by_json *v = answer(BY_API_CHAT, body_of(CHAT, by_buf_z(&b), i)), *m = message_of(v), *calls = by_json_get(m, "tool_calls");
        by_buf_deinit(&b);
        if (by_str_eqz(at(&at(v, "choices")->v.items[0], "finish_reason")->v.s, "length")) continue;
        if (calls && calls->type == BY_JSON_ARRAY) {
            check_call(&calls->v.items[0], NULL);
            kinds |= 1;
            continue;
        }
        by_str text = at(m, "content")->v.s;
        assert_true(by_str_eqz(text, "true") || by_str_eqz(text, "false"));
        kinds |= 2;
    }
    assert_int_equal(kinds, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_enum_behind_a_reference_is_enforced), cmocka_unit_test(the_grammar_begins_behind_the_reasoning),
        cmocka_unit_test(every_spelling_limits_the_answer),       cmocka_unit_test(json_object_is_an_object),
        cmocka_unit_test(a_refusal_names_field_and_place),
        cmocka_unit_test(completions_refuse_formats_that_they_do_not_know),        cmocka_unit_test(a_required_tool_is_called_with_its_types),
        cmocka_unit_test(a_required_tool_is_called_behind_the_reasoning),
        cmocka_unit_test(reasoning_leaves_room_for_the_answer),  cmocka_unit_test(room_for_the_answer_can_be_given_up),
        cmocka_unit_test(the_end_token_does_not_end_the_reasoning), cmocka_unit_test(a_tool_without_parameters_gets_none),
        cmocka_unit_test(many_calls_hold_json_where_they_say_so),
        cmocka_unit_test(a_message_with_a_forced_tool_is_a_call), cmocka_unit_test(a_format_beside_tools_holds_for_what_is_no_call),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
