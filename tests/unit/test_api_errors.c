/* test_api_errors.c - the field and the code that an error of the server profile names, for many bad bodies of the three APIs of OpenAI's
 * kind; and that the parity profile says nothing of either. Codes are those of OpenAI's API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api_request.h"

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
#define INPUT "\"input\":\"a\","
#define PROMPT "\"prompt\":\"a\","
#define TOOL(f) "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"ok\"}},{\"type\":\"function\",\"function\":{" f "}}]"
#define MISSING "missing_required_parameter"
#define TYPE "invalid_type"
#define VALUE "invalid_value"

typedef struct {
    const char *rest, *param, *code; /* rest: the body without its braces and the model */
} row;

static const row chat_rows[] = {
    {"\"n\":1", "messages", MISSING},
    {"\"messages\":{}", "messages", TYPE},
    {"\"messages\":[]", "messages", "empty_array"},
    {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"wizard\",\"content\":\"a\"}]", "messages[1].role", VALUE},
    {"\"messages\":[{\"role\":7,\"content\":\"a\"}]", "messages[0].role", TYPE},
    {"\"messages\":[{\"content\":\"a\"}]", "messages[0].role", MISSING},
    {"\"messages\":[\"a\"]", "messages[0]", TYPE},
    {"\"messages\":[{\"role\":\"user\"}]", "messages[0].content", MISSING},
    {"\"messages\":[{\"role\":\"user\",\"content\":3}]", "messages[0].content", TYPE},
    {"\"messages\":[{\"role\":\"user\",\"content\":[]}]", "messages[0].content", "empty_array"},
    {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0].text", MISSING},
    {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"video\"}]}]",
     "messages[0].content[1].type", VALUE},
    {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":"
     "{\"url\":\"ftp://a\"}}]}]", "messages[0].content[1].image_url.url", VALUE},
    {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file_data\":\"x\"}]}]", "messages[0].content[0].file_data", VALUE},
    {"\"messages\":[{\"role\":\"assistant\"}]", "messages[0].content", MISSING},
    {"\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[]}]", "messages[0].tool_calls", "empty_array"},
    {"\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}]",
     "messages[0].tool_calls[0].function.arguments", MISSING},
    {CHAT "\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\"}]", "messages[0].role", VALUE},
    {"\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
     "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"a\"}]", "messages[1].tool_call_id", VALUE},
    {CHAT "\"temperature\":2.5", "temperature", VALUE},
    {CHAT "\"temperature\":\"hot\"", "temperature", TYPE},
    {CHAT "\"top_p\":0", "top_p", VALUE},
    {CHAT "\"top_k\":-7", "top_k", VALUE},
    {CHAT "\"min_p\":1.5", "min_p", VALUE},
    {CHAT "\"n\":0", "n", VALUE},
    {CHAT "\"n\":1.5", "n", VALUE},
    {CHAT "\"n\":\"1\"", "n", TYPE},
    {CHAT "\"n\":4,\"best_of\":2", "best_of", VALUE},
    {CHAT "\"presence_penalty\":3", "presence_penalty", VALUE},
    {CHAT "\"frequency_penalty\":-3", "frequency_penalty", VALUE},
    {CHAT "\"repetition_penalty\":0", "repetition_penalty", VALUE},
    {CHAT "\"logit_bias\":{\"x\":1}", "logit_bias", VALUE},
    {CHAT "\"logit_bias\":[]", "logit_bias", TYPE},
    {CHAT "\"stop\":[\"a\",\"\"]", "stop[1]", VALUE},
    {CHAT "\"stop\":\"\"", "stop", VALUE},
    {CHAT "\"stop\":[1]", "stop[0]", TYPE},
    {CHAT "\"stop\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]", "stop",
     "array_above_max_length"},
    {CHAT "\"max_tokens\":0", "max_tokens", VALUE},
    {CHAT "\"max_completion_tokens\":0", "max_completion_tokens", VALUE},
    {CHAT "\"max_completion_tokens\":-1", "max_completion_tokens", VALUE},
    {CHAT "\"max_tokens\":4,\"max_completion_tokens\":5", "max_completion_tokens", VALUE},
    {CHAT "\"top_logprobs\":3", "logprobs", VALUE},
    {CHAT "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", VALUE},
    {CHAT "\"seed\":18446744073709551615", "seed", VALUE},
    {CHAT "\"stream\":\"yes\"", "stream", TYPE},
    {CHAT "\"stream_options\":{\"include_usage\":true}", "stream_options", VALUE},
    {CHAT "\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage", TYPE},
    {CHAT "\"tools\":{}", "tools", TYPE},
    {CHAT "\"tools\":[{\"type\":\"retrieval\"}]", "tools[0].type", VALUE},
    {CHAT "\"tools\":[{\"type\":\"function\"}]", "tools[0].function", MISSING},
    {CHAT TOOL("\"description\":\"a\""), "tools[1].function.name", MISSING},
    {CHAT TOOL("\"name\":\"a b\""), "tools[1].function.name", VALUE},
    {CHAT TOOL("\"name\":\"ok\""), "tools[1].function", VALUE},
    {CHAT TOOL("\"name\":\"f\",\"parameters\":{\"type\":\"array\"}"), "tools[1].function.parameters", "invalid_function_parameters"},
    {CHAT TOOL("\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":3}"), "tools[1].function.parameters",
     "invalid_function_parameters"},
    {CHAT TOOL("\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"string\"}"), "tools[1].function.parameters", VALUE},
    {CHAT TOOL("\"name\":\"f\",\"strict\":true"), "tools", VALUE},
    {CHAT "\"tool_choice\":\"required\"", "tool_choice", VALUE},
    {CHAT "\"tool_choice\":\"maybe\"", "tool_choice", VALUE},
    {CHAT TOOL("\"name\":\"f\"") ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", "tool_choice", VALUE},
    {CHAT "\"response_format\":\"json\"", "response_format", TYPE},
    {CHAT "\"response_format\":{\"type\":\"yaml\"}", "response_format.type", VALUE},
    {CHAT "\"response_format\":{\"type\":\"json_object\"}", "messages", VALUE},
    {CHAT "\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema", MISSING},
    {CHAT "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}", "response_format.json_schema.schema", MISSING},
    {CHAT "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"thing\"}}}",
     "response_format.json_schema.schema", VALUE},
    {CHAT "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":true,\"schema\":{\"type\":\"array\",\"items\":{}}}}",
     "response_format.json_schema.schema", VALUE},
    {CHAT "\"structured_outputs\":{\"choice\":3}", "structured_outputs.choice", VALUE},
    {CHAT "\"guided_json\":[]", "guided_json", VALUE},
    {CHAT "\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]", "guided_choice", VALUE},
    {CHAT "\"so_args\":{\"schema_type\":\"x\"}", "so_args.schema_type", VALUE},
    {CHAT "\"reasoning_effort\":\"huge\"", "reasoning_effort", VALUE},
    {CHAT "\"reasoning_effort\":\"none\",\"enable_thinking\":true", "enable_thinking", VALUE},
    {CHAT "\"thinking\":{\"type\":\"yes\"}", "thinking.type", VALUE},
    {CHAT "\"chat_template_kwargs\":{\"thinking\":1}", "chat_template_kwargs.thinking", TYPE},
    {CHAT "\"stop_token_ids\":[-1]", "stop_token_ids[0]", VALUE},
    {CHAT "\"min_tokens\":-1", "min_tokens", VALUE},
    {CHAT "\"prompt_logprobs\":21", "prompt_logprobs", VALUE},
    {CHAT "\"stream\":true,\"prompt_logprobs\":1", "prompt_logprobs", VALUE},
    {"\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"prefix\":true},{\"role\":\"user\",\"content\":\"a\"}]", "messages", VALUE},
};

static const row responses_rows[] = {
    {"\"stream\":false", "input", MISSING},
    {"\"input\":\"\"", "input", VALUE},
    {"\"input\":[]", "input", "empty_array"},
    {"\"input\":7", "input", TYPE},
    {"\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"wizard\",\"content\":\"a\"}]", "input[1].role", VALUE},
    {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]", "input[0].content[0].text", MISSING},
    {"\"input\":[{\"role\":\"user\",\"content\":[]}]", "input[0].content", "empty_array"},
    {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"file_id\":\"f\"}]}]", "input[0].content[0].file_id", VALUE},
    {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"ftp://a\"}]}]", "input[0].content[0].image_url",
     VALUE},
    {"\"input\":[{\"type\":\"function_call\",\"call_id\":\"\",\"name\":\"f\",\"arguments\":\"{}\"}]", "input[0].call_id", VALUE},
    {"\"input\":[{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"}]", "input[0]", VALUE},
    {"\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"a\"}]",
     "input[1].call_id", VALUE},
    {INPUT "\"temperature\":-1", "temperature", VALUE},
    {INPUT "\"max_output_tokens\":0", "max_output_tokens", VALUE},
    {INPUT "\"top_logprobs\":30", "top_logprobs", VALUE},
    {INPUT "\"metadata\":7", "metadata", TYPE},
    {INPUT "\"reasoning\":{\"effort\":\"huge\"}", "reasoning.effort", VALUE},
    {INPUT "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\"}}", "text.format.schema", MISSING},
    {INPUT "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\",\"schema\":{\"type\":\"thing\"}}}", "text.format.schema", VALUE},
    {INPUT "\"text\":{\"format\":{\"type\":\"json_object\"}}", "input", VALUE},
    {INPUT "\"tools\":[{\"type\":\"web_search\"},{\"type\":\"function\",\"name\":\"a b\",\"parameters\":{}}]", "tools[1].name", VALUE},
    {INPUT "\"tools\":[{\"type\":\"web_search\"},{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"array\"}}]",
     "tools[1].parameters", "invalid_function_parameters"},
    {INPUT "\"tools\":[{\"type\":\"namespace\",\"name\":\"s\",\"description\":\"d\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},"
           "{\"type\":\"function\",\"name\":\"g\",\"parameters\":{\"type\":\"array\"}}]}]",
     "tools[0].tools[1].parameters", "invalid_function_parameters"},
    {INPUT "\"tools\":[{\"type\":\"custom\",\"name\":\"x\"}]", "tools[0]", VALUE},
    {INPUT "\"tool_choice\":\"required\"", "tool_choice", VALUE},
};

static const row completions_rows[] = {
    {"\"n\":1", "prompt", MISSING},
    {"\"prompt\":\"\"", "prompt", VALUE},
    {"\"prompt\":[]", "prompt", VALUE},
    {"\"prompt\":[-1]", "prompt", VALUE},
    {PROMPT "\"logprobs\":21", "logprobs", VALUE},
    {PROMPT "\"max_tokens\":0", "max_tokens", VALUE},
    {PROMPT "\"echo\":1", "echo", TYPE},
    {"\"prompt\":[1,2],\"suffix\":\"a\"", "suffix", VALUE},
    {PROMPT "\"stream\":true,\"best_of\":2", "best_of", VALUE},
    {PROMPT "\"stream_options\":{}", "stream_options", VALUE},
    {PROMPT "\"n\":500", "n", VALUE},
};

static by_api_error refusal;
static by_arena arena;

static by_status convert(by_api_kind api, by_api_profile profile, const char *model, const char *rest) {
    by_api_options o;
    by_api_converted c;
    by_buf body = {0};
    by_api_options_init(&o);
    o.profile = profile;
    by_buf_printf(&body, "{\"model\":\"%s\",%s}", model, rest);
    by_str kept = by_arena_dup(&arena, by_buf_str(&body));
    by_buf_deinit(&body);
    return by_api_convert(&c, &refusal, &arena, api, kept, &o, NULL);
}

static void check_rows(by_api_kind api, const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        by_arena_init(&arena, BY_MEM_REQUEST);
        if (convert(api, BY_API_SERVER, "DeepSeek-V4.1-Flash", rows[i].rest) != BY_EINVAL) fail_msg("%s\n  was accepted", rows[i].rest);
        if (!by_str_eqz(refusal.param, rows[i].param) || strcmp(refusal.code, rows[i].code) != 0 || refusal.http_status != 400)
            fail_msg("%s\n  is refused with %.*s, %s: %.*s", rows[i].rest, BY_STR_ARG(refusal.param), refusal.code,
                     BY_STR_ARG(refusal.message));
        if (api != BY_API_COMPLETIONS && convert(api, BY_API_PARITY, "DeepSeek-V4.1-Flash", rows[i].rest) == BY_EINVAL &&
            (refusal.param.len || strcmp(refusal.code, "invalid_request_error") != 0))
            fail_msg("%s\n  in parity: %.*s, %s", rows[i].rest, BY_STR_ARG(refusal.param), refusal.code);
        by_arena_deinit(&arena);
    }
}

static void errors_of_chat_name_their_field(void **state) {
    (void)state;
    check_rows(BY_API_CHAT, chat_rows, sizeof chat_rows / sizeof chat_rows[0]);
}

static void errors_of_responses_name_their_field(void **state) {
    (void)state;
    check_rows(BY_API_RESPONSES, responses_rows, sizeof responses_rows / sizeof responses_rows[0]);
}

static void errors_of_completions_name_their_field(void **state) {
    (void)state;
    check_rows(BY_API_COMPLETIONS, completions_rows, sizeof completions_rows / sizeof completions_rows[0]);
}

static void an_unknown_model_is_the_fields(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_REQUEST);
    assert_int_equal(convert(BY_API_CHAT, BY_API_SERVER, "x", "\"messages\":[]"), BY_EINVAL);
    assert_true(by_str_eqz(refusal.param, "model") && refusal.http_status == 404);
    assert_string_equal(refusal.code, "model_not_found");
    by_arena_deinit(&arena);
}

/* What is no JSON, or no object, has no field. */
static void a_body_that_is_no_object_has_no_field(void **state) {
    static const char *const bodies[] = {"{\"model\":", "[]", "7", "", "\"a\""};
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        by_api_options o;
        by_api_converted c;
        by_buf json = {0};
        by_arena_init(&arena, BY_MEM_REQUEST);
        by_api_options_init(&o);
        o.profile = BY_API_SERVER;
        assert_int_equal(by_api_convert(&c, &refusal, &arena, BY_API_CHAT, by_str_z(bodies[i]), &o, NULL), BY_EINVAL);
        assert_int_equal(refusal.param.len, 0);
        by_api_error_write(&json, &refusal);
        assert_non_null(strstr(by_buf_z(&json), "\"param\":null"));
        by_buf_deinit(&json);
        by_arena_deinit(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_chat_name_their_field),
        cmocka_unit_test(errors_of_responses_name_their_field),
        cmocka_unit_test(errors_of_completions_name_their_field),
        cmocka_unit_test(an_unknown_model_is_the_fields),
        cmocka_unit_test(a_body_that_is_no_object_has_no_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
