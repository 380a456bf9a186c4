/* test_api_request.c - api/api_request.h: each row of the table of differences between the profiles in docs/recipe.md, the limits
 * of a body, and faults that users of other servers report (kinds of fault, not their inputs). What the original does is tested
 * by golden_requests and recipe_requests_original.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api_request.h"
#include "base/limits.h"
#include "recipe/prompt.h"
#include "support/counting.h"
#include "support/golden.h"

#define MODEL "\"model\":\"DeepSeek-V4.1-Flash\","
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define BOS "<｜begin▁of▁sentence｜>"
#define EFFORT(n) "<｜System｜>Reasoning Effort: " n " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
#define THINK "<｜Assistant｜><think>"

static by_arena arena;
static by_api_converted req;
static by_api_error refusal;
static by_recipe_prompt prompt;
static bool honour;

static int set_up(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_REQUEST);
    honour = false;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    by_recipe_prompt_deinit(&prompt);
    prompt = (by_recipe_prompt){0};
    by_arena_deinit(&arena);
    return 0;
}

static by_status convert_bytes(by_api_kind api, by_api_profile profile, by_str body) {
    by_api_options o;
    by_api_options_init(&o);
    o.profile = profile;
    o.honour_sampling = honour;
    return by_api_convert(&req, &refusal, &arena, api, body, &o, NULL);
}

static by_status convert(by_api_kind api, by_api_profile profile, const char *rest) {
    by_buf body = {0};
    by_buf_printf(&body, "{" MODEL "%s}", rest);
    by_str kept = by_arena_dup(&arena, by_buf_str(&body));
    by_buf_deinit(&body);
    return convert_bytes(api, profile, kept);
}

static void good(by_api_kind api, by_api_profile profile, const char *rest) {
    by_status status = convert(api, profile, rest);
    if (status != BY_OK) fail_msg("%s\n  refused: %.*s", rest, BY_STR_ARG(refusal.message));
}

/* Refused with 400 and a message that has `part`. */
static void bad(by_api_kind api, by_api_profile profile, const char *rest, const char *part) {
    by_status status = convert(api, profile, rest);
    if (status == BY_OK) fail_msg("%s\n  was accepted", rest);
    assert_int_equal(status, BY_EINVAL);
    assert_int_equal(refusal.http_status, 400);
    if (!memmem(refusal.message.ptr, refusal.message.len, part, strlen(part)))
        fail_msg("%s\n  %.*s\n  has no %s", rest, BY_STR_ARG(refusal.message), part);
}

static const char *text(void) {
    assert_int_equal(by_recipe_render(&prompt, &req.conversation, req.version, NULL, NULL), BY_OK);
    return by_buf_z(&prompt.text);
}

#define chat(profile, rest) good(BY_API_CHAT, BY_API_##profile, USER "," rest)
#define chat_bad(profile, rest, part) bad(BY_API_CHAT, BY_API_##profile, USER "," rest, part)

/* ---- the table of differences ---- */

static void kinds_of_response_format(void **state) {
    (void)state;
    static const char all[] = "text, json_object, json_schema, regex, structural_tag, ebnf, grammar, lark, got \"xml\"";
    chat_bad(SERVER, "\"response_format\":{\"type\":\"xml\"}", all);
    chat_bad(PARITY, "\"response_format\":{\"type\":\"xml\"}", "text, json_object, json_schema, regex, got \"xml\"");
    chat(SERVER, "\"response_format\":{\"type\":\"ebnf\",\"grammar\":\"root ::= \\\"a\\\"\"}");
}

static void n_choices(void **state) {
    (void)state;
    chat(SERVER, "\"n\":3");
    assert_int_equal(req.inference.n, 3);
    assert_int_equal(req.inference.best_of, 3);
    chat(SERVER, "\"n\":3,\"best_of\":5");
    assert_int_equal(req.inference.best_of, 5);
    chat_bad(SERVER, "\"n\":0", "n value");
    chat_bad(SERVER, "\"n\":129", "[1, 128]");
    chat_bad(SERVER, "\"n\":3,\"best_of\":2", "best_of");
    chat_bad(PARITY, "\"n\":3", "n");
}

static void ranges_in_messages(void **state) {
    (void)state;
    chat_bad(SERVER, "\"n\":300", "n: expected an integer from 1 to 128, got 300");
    chat_bad(SERVER, "\"n\":1.5", "n: expected an integer from 1 to 128, got 1.5");
    chat_bad(SERVER, "\"max_tokens\":-1", "max_tokens: expected an integer from 1, got -1");
    chat_bad(SERVER, "\"top_logprobs\":-1", "top_logprobs: expected an integer from 0 to 20, got -1");
    chat_bad(SERVER, "\"n\":[]", "got array");
    chat_bad(PARITY, "\"n\":300", "n: expected an integer from 0 to 255, got integer");
    chat_bad(PARITY, "\"max_tokens\":-1", "max_tokens: expected an integer from 0 to 4294967295, got integer");
    bad(BY_API_COMPLETIONS, BY_API_SERVER, "\"prompt\":\"a\",\"logprobs\":-1", "logprobs: expected an integer from 0 to 20, got -1");
    chat(SERVER, "\"seed\":-1");
    assert_true(req.inference.has_seed && req.inference.seed == UINT64_MAX);
    good(BY_API_COMPLETIONS, BY_API_SERVER, "\"prompt\":\"a\",\"seed\":-2");
    assert_true(req.inference.seed == UINT64_MAX - 1);
    chat_bad(SERVER, "\"seed\":9223372036854775808", "[-2^63, 2^63)");
    chat_bad(PARITY, "\"seed\":-1", "seed: expected an integer from 0 to 18446744073709551615, got integer");
    static const char picture[] =
        "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:x\"}}]}]";
    bad(BY_API_CHAT, BY_API_SERVER, picture, "messages[0]");
    assert_true(refusal.message.ptr[0] == 'm');
    bad(BY_API_CHAT, BY_API_PARITY, picture, ".messages[0]");
}

/* Who demands a call has to offer something to call. */
static void a_demanded_call_needs_tools(void **state) {
    (void)state;
    static const struct {
        by_api_kind api;
        const char *front, *choices[2];
    } rows[] = {
        {BY_API_CHAT, USER, {"\"required\"", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"}},
        {BY_API_RESPONSES, "\"input\":\"a\"", {"\"required\"", "{\"type\":\"function\",\"name\":\"f\"}"}},
        {BY_API_MESSAGES, USER ",\"max_tokens\":9", {"{\"type\":\"any\"}", "{\"type\":\"tool\",\"name\":\"f\"}"}},
    };
    for (uint32_t i = 0; i < 12; i++) {
        by_buf b = {0};
        by_buf_printf(&b, "%s%s,\"tool_choice\":", rows[i / 4].front, i & 1 ? ",\"tools\":[]" : "");
        size_t n = b.len;
        by_buf_push_z(&b, rows[i / 4].choices[i / 2 % 2]);
        bad(rows[i / 4].api, BY_API_SERVER, by_buf_z(&b), "tool_choice: needs tools");
        good(rows[i / 4].api, BY_API_PARITY, by_buf_z(&b));
        b.len = n;
        by_buf_push_z(&b, rows[i / 4].api == BY_API_MESSAGES ? "{\"type\":\"auto\"}" : "\"auto\"");
        good(rows[i / 4].api, BY_API_SERVER, by_buf_z(&b));
        by_buf_deinit(&b);
    }
}

/* The prompt can't begin a call in front of the reasoning; in the server profile the grammar asks for one behind it. */
static void a_demanded_call_with_thinking(void **state) {
    (void)state;
#define F "\"thinking\":{\"type\":\"enabled\"},\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
    chat(SERVER, F "\"required\"");
    assert_true(req.inference.grammar.forced);
    chat(SERVER, F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}");
    assert_true(req.inference.grammar.forced);
    chat_bad(PARITY, F "\"required\"", "Thinking mode does not support this tool_choice");
    chat_bad(SERVER, F "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", "Invalid value for 'tool_choice': no function named 'g'");
    chat_bad(PARITY, F "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", "'tool_call': no function named 'g'");
#undef F
}

/* [OpenAI] Only who sees all of them can tell the most likely ones. */
static void best_of_is_not_streamed(void **state) {
    (void)state;
    bad(BY_API_COMPLETIONS, BY_API_SERVER, "\"prompt\":\"a\",\"best_of\":2,\"stream\":true", "best_of: must be n with stream");
    bad(BY_API_COMPLETIONS, BY_API_SERVER, "\"prompt\":\"a\",\"best_of\":3,\"n\":2,\"stream\":true", "best_of: must be n with stream");
    good(BY_API_COMPLETIONS, BY_API_SERVER, "\"prompt\":\"a\",\"best_of\":2,\"n\":2,\"stream\":true");
    good(BY_API_COMPLETIONS, BY_API_SERVER, "\"prompt\":\"a\",\"best_of\":2,\"stream\":false");
}

static void faults_of_schemas_name_place_and_value(void **state) {
    (void)state;
#define F(type) "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" \
                "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":" type "}}}}}]"
    chat_bad(SERVER, F("\"int\""), "Invalid schema for function 'f': /properties/a: type: unknown type 'int'");
    chat_bad(SERVER, F("[\"string\",\"int\"]"), "type: unknown type 'int'");
    chat_bad(SERVER, F("7"), "type: unknown type");
#undef F
    chat_bad(SERVER, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"s\",\"schema\":"
                     "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[true,{\"$ref\":\"http://x/y\"}]}}}}}",
             "Invalid json schema: /properties/a/anyOf/1: http://x/y: no such reference");
}

/* The field is in the original's Chat shape, where it changes nothing. */
static void one_call_at_most(void **state) {
    (void)state;
    static const by_api_kind apis[] = {BY_API_CHAT, BY_API_RESPONSES, BY_API_MESSAGES};
    static const char *const bodies[] = {USER ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"parallel_tool_calls\":false",
                                         "\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"parallel_tool_calls\":false",
                                         USER ",\"max_tokens\":9,\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],"
                                              "\"tool_choice\":{\"type\":\"auto\","
                                              "\"disable_parallel_tool_use\":true}"};
    for (int i = 0; i < 3; i++) {
        good(apis[i], BY_API_SERVER, bodies[i]);
        assert_int_equal(req.parsing.most_calls, 1);
        assert_null(req.inference.grammar.kind); /* left to the model but for the number */
        good(apis[i], BY_API_PARITY, bodies[i]);
        assert_int_equal(req.parsing.most_calls, 0);
    }
    good(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"a\",\"parallel_tool_calls\":null");
    assert_false(req.echo.one_call);
    bad(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"a\",\"parallel_tool_calls\":1", "parallel_tool_calls");
    good(BY_API_RESPONSES, BY_API_PARITY, "\"input\":\"a\",\"parallel_tool_calls\":1");
}

static void metadata_comes_back(void **state) {
    (void)state;
    good(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"a\",\"metadata\":{\"a\": \"b\"}");
    assert_true(by_str_eqz(req.echo.metadata, "{\"a\":\"b\"}"));
    good(BY_API_RESPONSES, BY_API_PARITY, "\"input\":\"a\",\"metadata\":{\"a\": \"b\"}");
    assert_int_equal(req.echo.metadata.len, 0);
    bad(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"a\",\"metadata\":[]", "metadata");
    good(BY_API_RESPONSES, BY_API_PARITY, "\"input\":\"a\",\"metadata\":[]");
    by_buf many = {0};
    by_buf_push_z(&many, "\"input\":\"a\",\"metadata\":{");
    for (int i = 0; i < 17; i++) by_buf_printf(&many, "%s\"%d\":\"\"", i ? "," : "", i);
    by_buf_push_z(&many, "}");
    bad(BY_API_RESPONSES, BY_API_SERVER, by_buf_z(&many), "metadata");
    by_buf_deinit(&many);
}

static void penalties(void **state) {
    (void)state;
    static const char fields[] = "\"presence_penalty\":-2,\"frequency_penalty\":0.5,\"repetition_penalty\":1.25";
    chat(SERVER, "\"presence_penalty\":-2,\"frequency_penalty\":0.5,\"repetition_penalty\":1.25");
    assert_true(req.inference.presence_penalty == -2 && req.inference.frequency_penalty == 0.5f);
    assert_true(req.inference.repetition_penalty == 1.25f);
    chat(PARITY, "\"presence_penalty\":-2,\"frequency_penalty\":0.5,\"repetition_penalty\":1.25");
    assert_true(req.inference.presence_penalty == 0 && req.inference.frequency_penalty == 0);
    assert_true(req.inference.repetition_penalty == 1);
    chat_bad(SERVER, "\"presence_penalty\":2.1", "presence_penalty");
    chat_bad(PARITY, "\"presence_penalty\":2.1", "presence_penalty");
    chat_bad(SERVER, "\"repetition_penalty\":0", "repetition_penalty");
    chat(PARITY, "\"repetition_penalty\":0");
    by_buf others = {0};
    by_buf_printf(&others, "\"input\":\"a\",%s", fields);
    good(BY_API_RESPONSES, BY_API_SERVER, by_buf_z(&others));
    assert_true(req.inference.frequency_penalty == 0.5f);
    by_buf_clear(&others);
    by_buf_printf(&others, USER ",\"max_tokens\":5,%s", fields);
    good(BY_API_MESSAGES, BY_API_SERVER, by_buf_z(&others));
    assert_true(req.inference.presence_penalty == -2);
    by_buf_deinit(&others);
}

static void logit_bias(void **state) {
    (void)state;
    chat(SERVER, "\"logit_bias\":{\"5\":-100,\"129279\":2.5}");
    assert_int_equal(req.inference.n_logit_bias, 2);
    assert_int_equal(req.inference.logit_bias[1].token, 129279);
    assert_true(req.inference.logit_bias[1].value == 2.5f);
    chat(PARITY, "\"logit_bias\":{\"x\":-100}");
    assert_int_equal(req.inference.n_logit_bias, 0);
    chat_bad(SERVER, "\"logit_bias\":{\"x\":1}", "'x' is no token id");
    chat_bad(SERVER, "\"logit_bias\":{\"1\":101}", "[-100, 100]");
    chat_bad(SERVER, "\"logit_bias\":{\"1\":\"2\"}", "number");
    chat_bad(SERVER, "\"logit_bias\":[1]", "logit_bias");
}

static void top_k_and_min_p(void **state) {
    (void)state;
    chat(SERVER, "\"top_k\":40,\"min_p\":0.1");
    assert_int_equal(req.inference.top_k, 40);
    assert_true(req.inference.min_p == 0.1f);
    chat(SERVER, "\"top_k\":0,\"min_p\":null");
    assert_int_equal(req.inference.top_k, -1);
    chat(PARITY, "\"top_k\":\"x\",\"min_p\":7");
    assert_int_equal(req.inference.top_k, -1);
    assert_true(req.inference.min_p == 0);
    chat_bad(SERVER, "\"top_k\":-2", "top_k");
    chat_bad(SERVER, "\"top_k\":1.5", "top_k");
    chat_bad(SERVER, "\"min_p\":1.1", "min_p");
}

static void max_completion_tokens(void **state) {
    (void)state;
    chat(SERVER, "\"max_completion_tokens\":77");
    assert_true(req.inference.has_max_tokens && req.inference.max_tokens == 77);
    chat(SERVER, "\"max_completion_tokens\":77,\"max_tokens\":77");
    chat_bad(SERVER, "\"max_completion_tokens\":77,\"max_tokens\":78", "contradict");
    chat_bad(SERVER, "\"max_completion_tokens\":0", "max_tokens");
    chat(PARITY, "\"max_completion_tokens\":77");
    assert_false(req.inference.has_max_tokens);
}

static void end_rules(void **state) {
    (void)state;
    chat(SERVER, "\"ignore_eos\":true,\"min_tokens\":4,\"stop_token_ids\":[7,8]");
    assert_false(req.inference.include_stop);
    assert_true(req.inference.ignore_eos && req.inference.min_tokens == 4);
    assert_int_equal(req.inference.n_stop_ids, 2);
    assert_int_equal(req.inference.stop_ids[1], 8);
    chat(PARITY, "\"ignore_eos\":true,\"min_tokens\":4,\"stop_token_ids\":[7,8]");
    assert_true(!req.inference.ignore_eos && req.inference.min_tokens == 0 && req.inference.n_stop_ids == 0);
    chat_bad(SERVER, "\"stop_token_ids\":[-1]", "stop_token_ids");
    chat(SERVER, "\"stop\":[\"x\"],\"include_stop_str_in_output\":true");
    assert_true(req.inference.include_stop);
    chat_bad(SERVER, "\"include_stop_str_in_output\":1", "include_stop_str_in_output");
    good(BY_API_MESSAGES, BY_API_SERVER, USER ",\"max_tokens\":5,\"seed\":9"); /* only Chat has it in the original */
    assert_true(req.inference.has_seed && req.inference.seed == 9);
}

static void integer_efforts(void **state) {
    (void)state;
    static const struct {
        by_api_kind api;
        const char *rest;
    } requests[] = {{BY_API_CHAT, USER ",\"reasoning_effort\":%s"},
                    {BY_API_RESPONSES, "\"input\":\"a\",\"reasoning\":{\"effort\":%s}"},
                    {BY_API_MESSAGES, USER ",\"max_tokens\":5,\"output_config\":{\"effort\":%s}"}};
    static const char *const good_ones[] = {"1", "63", "100"}, *const bad_ones[] = {"0", "101", "-5", "7.5", "1e2"};
    for (size_t i = 0; i < 3; i++) {
        char rest[256], want[256];
        for (size_t k = 0; k < 3; k++) {
            snprintf(rest, sizeof rest, requests[i].rest, good_ones[k]);
            snprintf(want, sizeof want, BOS EFFORT("%s") "<｜User｜>a" THINK, good_ones[k]);
            good(requests[i].api, BY_API_SERVER, rest);
            assert_string_equal(text(), want);
            assert_int_equal(convert(requests[i].api, BY_API_PARITY, rest), BY_EINVAL);
        }
        for (size_t k = 0; k < sizeof bad_ones / sizeof bad_ones[0]; k++) {
            snprintf(rest, sizeof rest, requests[i].rest, bad_ones[k]);
            bad(requests[i].api, BY_API_SERVER, rest, "effort");
        }
    }
}

static void switches_of_thinking(void **state) {
    (void)state;
    static const char *const off[] = {"\"chat_template_kwargs\":{\"thinking\":false}", "\"chat_template_kwargs\":{\"enable_thinking\":false}",
                                      "\"enable_thinking\":false"};
    static const char *const on[] = {"\"chat_template_kwargs\":{\"thinking\":true}", "\"chat_template_kwargs\":{\"enable_thinking\":true}",
                                     "\"enable_thinking\":true"};
    static const struct {
        by_api_kind api;
        const char *rest;
    } requests[] = {{BY_API_CHAT, USER ",%s"}, {BY_API_RESPONSES, "\"input\":\"a\",%s"}, {BY_API_MESSAGES, USER ",\"max_tokens\":5,%s"}};
    char rest[512];
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            snprintf(rest, sizeof rest, requests[i].rest, off[k]);
            good(requests[i].api, BY_API_SERVER, rest);
            assert_false(req.conversation.thinking);
            assert_int_equal(req.conversation.effort, BY_EFFORT_UNSET);
            assert_int_equal(req.parsing.stage, BY_STAGE_NONE);
            good(requests[i].api, BY_API_PARITY, rest);
            assert_true(req.conversation.thinking);
            snprintf(rest, sizeof rest, requests[i].rest, on[k]);
            good(requests[i].api, BY_API_SERVER, rest);
            assert_true(req.conversation.thinking);
        }
}

static void contradictions(void **state) {
    (void)state;
    chat_bad(SERVER, "\"thinking\":{\"type\":\"enabled\"},\"enable_thinking\":false", "thinking and enable_thinking contradict");
    chat_bad(SERVER, "\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"thinking\":true}", "contradict");
    chat_bad(SERVER, "\"reasoning_effort\":70,\"enable_thinking\":false", "reasoning_effort and enable_thinking contradict");
    chat_bad(SERVER, "\"chat_template_kwargs\":{\"thinking\":true,\"enable_thinking\":false}", "contradict");
    bad(BY_API_MESSAGES, BY_API_SERVER, USER ",\"max_tokens\":5,\"thinking\":{\"type\":\"disabled\"},\"enable_thinking\":true", "contradict");
    bad(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"a\",\"reasoning\":{\"effort\":\"none\"},\"enable_thinking\":true", "contradict");
    /* Fields that agree do not; between thinking and reasoning_effort the original's rule stays: thinking wins. */
    chat(SERVER, "\"thinking\":{\"type\":\"disabled\"},\"enable_thinking\":false,\"chat_template_kwargs\":{\"thinking\":false}");
    chat(SERVER, "\"thinking\":{\"type\":\"enabled\"},\"reasoning_effort\":\"none\"");
    assert_true(req.conversation.thinking);
    chat(SERVER, "\"thinking\":{\"type\":\"disabled\"},\"reasoning_effort\":\"max\"");
    assert_false(req.conversation.thinking);
    chat(PARITY, "\"thinking\":{\"type\":\"enabled\"},\"enable_thinking\":false");
    assert_true(req.conversation.thinking);
}

/* O39 */
static void empty_content_and_prompts(void **state) {
    (void)state;
    static const char *const roles[] = {"user", "system", "assistant"};
    char rest[256];
    for (size_t i = 0; i < 3; i++) {
        snprintf(rest, sizeof rest, "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"%s\",\"content\":[]}]", roles[i]);
        bad(BY_API_CHAT, BY_API_SERVER, rest, "messages[1].content");
        good(BY_API_CHAT, BY_API_PARITY, rest);
    }
    bad(BY_API_RESPONSES, BY_API_SERVER, "\"input\":[{\"role\":\"user\",\"content\":[]}]", "content");
    good(BY_API_RESPONSES, BY_API_PARITY, "\"input\":[{\"role\":\"user\",\"content\":[]}]");
    bad(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"\"", "input");
    bad(BY_API_RESPONSES, BY_API_SERVER, "\"input\":[]", "must not be empty");
    good(BY_API_RESPONSES, BY_API_PARITY, "\"input\":\"\"");
    good(BY_API_RESPONSES, BY_API_SERVER, "\"input\":\"\",\"instructions\":\"Go.\"");
    for (int profile = 0; profile < 2; profile++) {
        bad(BY_API_COMPLETIONS, (by_api_profile)profile, "\"prompt\":\"\"", "prompt");
        bad(BY_API_COMPLETIONS, (by_api_profile)profile, "\"prompt\":[]", "prompt");
        bad(BY_API_COMPLETIONS, (by_api_profile)profile, "\"prompt\":[[]]", "prompt");
        bad(BY_API_COMPLETIONS, (by_api_profile)profile, "\"prompt\":[\"a\",\"\"]", "prompt");
        bad(BY_API_CHAT, (by_api_profile)profile, "\"messages\":[]", "messages");
        bad(BY_API_CHAT, (by_api_profile)profile, "\"messages\":[{\"role\":\"user\",\"content\":null}]", "content");
        bad(BY_API_MESSAGES, (by_api_profile)profile, "\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[]}]", "content");
    }
}

/* O41 */
static void context_length_exceeded(void **state) {
    (void)state;
    by_api_options o;
    by_api_options_init(&o);
    static const struct {
        const char *rest;
        uint64_t prompt;
        const char *numbers[3]; /* NULL: it fits */
        uint32_t want;
    } cases[] = {{"\"max_tokens\":64", 500, {"512", "564", "500"}, 0},
                 {"\"max_tokens\":12", 500, {NULL}, 12},
                 {"\"max_tokens\":1", 512, {"512", "513"}, 0},
                 {"\"seed\":1", 513, {"512", "513"}, 0},
                 {"\"seed\":1", 500, {NULL}, 12},
                 {"\"seed\":1", 512, {NULL}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int profile = 0; profile < 2; profile++) {
            char rest[256];
            uint32_t n = 0;
            o.profile = (by_api_profile)profile;
            snprintf(rest, sizeof rest, USER ",%s", cases[i].rest);
            good(BY_API_CHAT, o.profile, rest);
            by_status status = by_api_resolve_max_tokens(&n, &refusal, &arena, &req, &o, cases[i].prompt, 512, NULL);
            if (!cases[i].numbers[0]) {
                assert_int_equal(status, BY_OK);
                assert_int_equal(n, cases[i].want);
                continue;
            }
            assert_int_equal(status, BY_EINVAL);
            assert_int_equal(refusal.http_status, 400);
            assert_string_equal(refusal.code, profile == BY_API_SERVER ? "context_length_exceeded" : "invalid_request_error");
            for (int k = 0; k < 3 && cases[i].numbers[k]; k++)
                assert_non_null(memmem(refusal.message.ptr, refusal.message.len, cases[i].numbers[k], 3));
        }
}

/* Completions generate 16 tokens where nothing is said, and fewer where the context ends: only what was asked for is refused. */
static void completions_default_ends_with_the_context(void **state) {
    (void)state;
    by_api_options o;
    uint32_t n = 0;
    by_api_options_init(&o);
    o.profile = BY_API_SERVER;
    for (int asked = 0; asked < 2; asked++) {
        good(BY_API_COMPLETIONS, BY_API_SERVER, asked ? "\"prompt\":\"a\",\"max_tokens\":16" : "\"prompt\":\"a\"");
        by_status status = by_api_resolve_max_tokens(&n, &refusal, &arena, &req, &o, 100, 512, NULL);
        assert_true(status == BY_OK && n == 16);
        status = by_api_resolve_max_tokens(&n, &refusal, &arena, &req, &o, 502, 512, NULL);
        if (asked) assert_int_equal(status, BY_EINVAL);
        else assert_true(status == BY_OK && n == 10);
    }
}

static void developer_role(void **state) {
    (void)state;
    const char *rest = "\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"a\"}]";
    good(BY_API_CHAT, BY_API_SERVER, rest);
    assert_string_equal(text(), BOS EFFORT("75") "Be brief.<｜User｜>a" THINK);
    bad(BY_API_CHAT, BY_API_PARITY, rest, "role");
}

/* Anthropic's API calls the client's own tools custom. */
static void custom_tools_of_messages(void **state) {
    (void)state;
    const char *rest = "\"max_tokens\":9," USER ",\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]";
    good(BY_API_MESSAGES, BY_API_SERVER, rest);
    assert_int_equal(req.conversation.n_tools, 1);
    assert_true(by_str_eqz(req.conversation.tools[0].name, "f"));
    bad(BY_API_MESSAGES, BY_API_PARITY, rest, "server tools");
    bad(BY_API_MESSAGES, BY_API_SERVER, "\"max_tokens\":9," USER ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]", "server tools");
}

static void honoured_sampling(void **state) {
    (void)state;
#define COLD "\"temperature\":0,\"top_p\":0.5"
    chat(SERVER, COLD);
    assert_true(req.inference.temperature == 1 && req.inference.top_p == 0.95f);
    chat(SERVER, COLD ",\"honour_sampling\":true"); /* greedy thinking */
    assert_true(req.conversation.thinking && req.inference.temperature == 0 && req.inference.top_p == 0.5f);
    chat(PARITY, COLD ",\"honour_sampling\":true");
    assert_true(req.inference.temperature == 1 && req.inference.top_p == 0.95f);
    honour = true; /* the server's own setting, which a request may turn off */
    chat(SERVER, COLD);
    assert_true(req.inference.temperature == 0 && req.inference.top_p == 0.5f);
    chat(SERVER, COLD ",\"honour_sampling\":false");
    assert_true(req.inference.temperature == 1 && req.inference.top_p == 0.95f);
    chat(PARITY, COLD);
    assert_true(req.inference.temperature == 1);
    chat(SERVER, "\"seed\":1"); /* nothing asked for */
    assert_true(req.inference.temperature == 1 && req.inference.top_p == 1);
    good(BY_API_COMPLETIONS, BY_API_PARITY, "\"prompt\":\"a\"," COLD);
    assert_true(req.inference.temperature == 0 && req.inference.top_p == 0.5f);
}

/* ---- limits ---- */

static void depth_of_a_body(void **state) {
    (void)state;
    for (int deep = 0; deep < 2; deep++) {
        by_buf b = {0};
        int n = BY_LIMIT_REQUEST_DEPTH - 1 + deep; /* arrays inside the body's own object */
        by_buf_printf(&b, "{" MODEL USER ",\"x\":");
        for (int i = 0; i < n; i++) by_buf_push_byte(&b, '[');
        for (int i = 0; i < n; i++) by_buf_push_byte(&b, ']');
        by_buf_push_byte(&b, '}');
        by_status status = convert_bytes(BY_API_CHAT, BY_API_SERVER, by_buf_str(&b));
        assert_int_equal(status, deep ? BY_EINVAL : BY_OK);
        if (deep) {
            assert_int_equal(refusal.http_status, 400);
            assert_non_null(memmem(refusal.message.ptr, refusal.message.len, "127", 3));
        }
        by_buf_deinit(&b);
    }
}

static void size_of_a_body(void **state) {
    (void)state;
    static const char front[] = "{" MODEL "\"messages\":[{\"role\":\"user\",\"content\":\"", back[] = "\"}]}";
    for (int over = 0; over < 2; over++) {
        by_buf b = {0};
        size_t bytes = BY_LIMIT_REQUEST_BYTES + (size_t)over - (sizeof front - 1) - (sizeof back - 1);
        by_buf_push_z(&b, front);
        char *to = by_buf_reserve(&b, bytes);
        assert_non_null(to);
        memset(to, 'a', bytes);
        b.len += bytes;
        by_buf_push_z(&b, back);
        by_status status = convert_bytes(BY_API_CHAT, BY_API_SERVER, by_buf_str(&b));
        assert_int_equal(status, over ? BY_EINVAL : BY_OK);
        if (over) {
            assert_int_equal(refusal.http_status, 400);
            assert_non_null(memmem(refusal.message.ptr, refusal.message.len, "33554432", 8));
        } else {
            assert_int_equal(req.conversation.messages[0].content.pieces[0].text.len, bytes);
        }
        by_buf_deinit(&b);
    }
}

static void number_of_messages(void **state) {
    (void)state;
    static const struct {
        by_api_kind api;
        const char *front;
    } requests[] = {{BY_API_CHAT, "\"messages\":["}, {BY_API_RESPONSES, "\"input\":["}, {BY_API_MESSAGES, "\"max_tokens\":5,\"messages\":["}};
    for (size_t i = 0; i < 3; i++)
        for (int over = 0; over < 2; over++) {
            by_buf b = {0};
            by_buf_printf(&b, "{" MODEL "%s", requests[i].front);
            for (int k = 0; k < BY_LIMIT_MESSAGES + over; k++)
                by_buf_push_z(&b, k ? ",{\"role\":\"user\",\"content\":\"a\"}" : "{\"role\":\"user\",\"content\":\"a\"}");
            by_buf_push_z(&b, "]}");
            by_status status = convert_bytes(requests[i].api, BY_API_PARITY, by_buf_str(&b));
            assert_int_equal(status, over ? BY_EINVAL : BY_OK);
            if (over) {
                assert_int_equal(refusal.http_status, 400);
                assert_non_null(memmem(refusal.message.ptr, refusal.message.len, "100000", 6));
            } else {
                assert_int_equal(req.conversation.n_messages, BY_LIMIT_MESSAGES);
            }
            by_arena_reset(&arena);
            by_buf_deinit(&b);
        }
}

/* ---- faults that users report ---- */

/* O7 */
static void one_odd_tool_does_not_break_the_others(void **state) {
    (void)state;
    by_buf b = {0};
    by_buf_push_z(&b, USER ",\"tools\":[");
    for (int i = 1; i <= 12; i++) {
        by_buf_printf(&b, "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\"", i > 1 ? "," : "", i);
        if (i == 7) by_buf_push_z(&b, ",\"parameters\":{\"type\":\"object\",\"properties\":{}}");
        else if (i != 8) by_buf_push_z(&b, ",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"}}}");
        by_buf_push_z(&b, "}}");
    }
    by_buf_push_z(&b, "]");
    for (int profile = 0; profile < 2; profile++) {
        good(BY_API_CHAT, (by_api_profile)profile, by_buf_z(&b));
        assert_int_equal(req.conversation.n_tools, 12);
        const char *p = text();
        assert_non_null(strstr(p, "{\"name\": \"tool_7\", \"description\": \"\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}"));
        assert_non_null(strstr(p, "{\"name\": \"tool_8\", \"description\": \"\", \"parameters\": {}}"));
        assert_non_null(strstr(p, "\"tool_12\""));
    }
    by_buf_deinit(&b);
}

/* O10: with reasoning_content it comes back into the prompt; without it the request is answered all the same, unless the options
 * ask for it. */
static void reasoning_of_earlier_turns_with_tools(void **state) {
    (void)state;
    static const char *const reasoning[] = {",\"reasoning_content\":\"R1\"", ""};
    for (int given = 0; given < 2; given++) {
        by_buf b = {0};
        by_buf_push_z(&b, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
                          "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}");
        for (int turn = 0; turn < 2; turn++)
            by_buf_printf(&b,
                          ",{\"role\":\"assistant\",\"content\":\"\"%s,\"tool_calls\":[{\"id\":\"c%d\",\"type\":\"function\",\"function\":"
                          "{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c%d\",\"content\":\"r\"}",
                          reasoning[given], turn, turn);
        by_buf_push_z(&b, "]");
        for (int profile = 0; profile < 2; profile++) {
            good(BY_API_CHAT, (by_api_profile)profile, by_buf_z(&b));
            const char *p = text();
            const char *first = strstr(p, "<think>R1</think>");
            assert_int_equal(first != NULL, given == 0);
            if (first) assert_non_null(strstr(first + 1, "<think>R1</think>"));
        }
        by_buf_deinit(&b);
    }
}

/* O11 */
static void budgets_of_efforts(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"\"low\"", "50"}, {"\"high\"", "75"}, {"\"max\"", "100"}, {"1", "1"}, {"63", "63"}, {"100", "100"}};
    char rest[256], want[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(rest, sizeof rest, USER ",\"reasoning_effort\":%s", cases[i][0]);
        snprintf(want, sizeof want, BOS EFFORT("%s") "<｜User｜>a" THINK, cases[i][1]);
        good(BY_API_CHAT, BY_API_SERVER, rest);
        assert_string_equal(text(), want);
    }
    chat(SERVER, "\"seed\":1"); /* none given */
    assert_string_equal(text(), BOS EFFORT("75") "<｜User｜>a" THINK);
    chat(SERVER, "\"reasoning_effort\":\"none\",\"thinking\":{\"type\":\"enabled\"}");
    assert_string_equal(text(), BOS EFFORT("75") "<｜User｜>a" THINK);
}

/* O12 */
static void quoted_placeholders_are_text(void **state) {
    (void)state;
    const char *rest = "\"messages\":[{\"role\":\"user\",\"content\":\"what does `<｜deepseek_image｜>` mean? <｜image｜>\"},"
                       "{\"role\":\"assistant\",\"content\":\"<｜image｜> is one\"},{\"role\":\"user\",\"content\":\"<｜image｜>\"}]";
    for (int profile = 0; profile < 2; profile++) {
        good(BY_API_CHAT, (by_api_profile)profile, rest);
        const char *p = text(), *at = p;
        assert_int_equal(prompt.n_images, 0);
        for (int n = 0; n < 3; n++) {
            at = strstr(at + 1, "<｜image｜>");
            assert_non_null(at);
            for (size_t i = 0; i < prompt.n_ranges; i++) assert_int_not_equal(prompt.ranges[i].begin, at - p);
        }
    }
}

/* O13: the expected text is the original's. */
static void a_system_message_in_the_middle(void **state) {
    (void)state;
    good(BY_API_CHAT, BY_API_SERVER, "\"messages\":[{\"role\":\"user\",\"content\":\"One?\"},{\"role\":\"assistant\",\"content\":\"1\"},"
                                     "{\"role\":\"system\",\"content\":\"Now in words.\"},{\"role\":\"user\",\"content\":\"Two?\"}]");
    assert_string_equal(text(), BOS EFFORT("75") "<｜User｜>One?<｜Assistant｜></think>1<｜end▁of▁sentence｜>"
                                                 "<｜System｜>Now in words.<｜User｜>Two?" THINK);
}

/* O14 */
static void spellings_of_the_thinking_switch_give_one_prompt(void **state) {
    (void)state;
    static const char *const off[] = {"\"thinking\":{\"type\":\"disabled\"}", "\"reasoning_effort\":\"none\"",
                                      "\"enable_thinking\":false", "\"chat_template_kwargs\":{\"thinking\":false}",
                                      "\"chat_template_kwargs\":{\"enable_thinking\":false}"};
    static const char *const on[] = {"\"chat_template_kwargs\":{\"thinking\":true}", "\"chat_template_kwargs\":{\"enable_thinking\":true}"};
    char rest[256];
    for (size_t i = 0; i < 5; i++) {
        snprintf(rest, sizeof rest, USER ",%s", off[i]);
        good(BY_API_CHAT, BY_API_SERVER, rest);
        assert_string_equal(text(), BOS "<｜User｜>a<｜Assistant｜></think>");
    }
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 2; k++) {
            snprintf(rest, sizeof rest, USER ",%s,%s", off[i], on[k]);
            bad(BY_API_CHAT, BY_API_SERVER, rest, "contradict");
        }
}

/* O40; the expected text is the original's. */
static void empty_assistant_content(void **state) {
    (void)state;
    for (int profile = 0; profile < 2; profile++) {
        good(BY_API_CHAT, (by_api_profile)profile, "\"messages\":[{\"role\":\"user\",\"content\":\"A\"},"
             "{\"role\":\"assistant\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"B\"}]");
        assert_string_equal(text(), BOS EFFORT("75") "<｜User｜>A<｜Assistant｜></think><｜end▁of▁sentence｜><｜User｜>B" THINK);
    }
}

/* ---- memory ---- */

static by_status convert_and_render(void *arg) {
    by_arena own;
    by_api_options o;
    by_api_converted c;
    by_api_error error;
    by_recipe_prompt p = {0};
    by_arena_init(&own, BY_MEM_REQUEST);
    by_api_options_init(&o);
    o.profile = BY_API_SERVER;
    by_status status = by_api_convert(&c, &error, &own, BY_API_CHAT, by_str_z(arg), &o, NULL);
    if (status == BY_OK) status = by_recipe_render(&p, &c.conversation, c.version, NULL, NULL);
    by_recipe_prompt_deinit(&p);
    by_arena_deinit(&own);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    char body[] = "{" MODEL "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"json\"}]}],\"tools\":[{\"type\":"
                  "\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":"
                  "{\"x\":{\"type\":\"string\"}},\"required\":[\"x\"],\"additionalProperties\":false}}}],\"stop\":[\"a\"],"
                  "\"logit_bias\":{\"1\":2},\"stop_token_ids\":[3]}";
    assert_true(by_alloc_fail_each(convert_and_render, body, 5000) > 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(kinds_of_response_format),
        TEST(n_choices), TEST(ranges_in_messages),
        TEST(one_call_at_most), TEST(a_demanded_call_needs_tools), TEST(a_demanded_call_with_thinking),
        TEST(best_of_is_not_streamed), TEST(faults_of_schemas_name_place_and_value),
        TEST(metadata_comes_back),
        TEST(penalties),
        TEST(logit_bias),
        TEST(top_k_and_min_p),
        TEST(max_completion_tokens),
        TEST(end_rules),
        TEST(integer_efforts),
        TEST(switches_of_thinking),
        TEST(contradictions),
        TEST(empty_content_and_prompts),
        TEST(context_length_exceeded),
        TEST(completions_default_ends_with_the_context),
        TEST(developer_role), TEST(custom_tools_of_messages),
        TEST(honoured_sampling),
        TEST(depth_of_a_body),
        TEST(size_of_a_body),
        TEST(number_of_messages),
        TEST(one_odd_tool_does_not_break_the_others),
        TEST(reasoning_of_earlier_turns_with_tools),
        TEST(budgets_of_efforts),
        TEST(quoted_placeholders_are_text),
        TEST(a_system_message_in_the_middle),
        TEST(spellings_of_the_thinking_switch_give_one_prompt),
        TEST(empty_assistant_content),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
