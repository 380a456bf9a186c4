/* responses_shape.c - tables of responses_shape.h. */
#include "api/responses_shape.h"

#include "api/convert.h"

#define STRING(key) {key, &by_shape_string, BY_FIELD_REQUIRED}
#define MAYBE_STRING(key) {key, &by_shape_string, BY_FIELD_OPTIONAL}

/* ---- parts ---- */

static const by_shape_field text_part[] = {STRING("text")};
static const by_shape_field image_part[] = {
    MAYBE_STRING("image_url"), {"detail", &by_shape_detail, BY_FIELD_OPTIONAL}, MAYBE_STRING("file_id")};
static const by_shape_variant part_variants[] = {
    [RP_TEXT] = {"input_text", text_part, BY_COUNT(text_part)},
    [RP_OUTPUT_TEXT] = {"output_text", text_part, BY_COUNT(text_part)},
    [RP_IMAGE] = {"input_image", image_part, BY_COUNT(image_part)},
    [RP_FILE] = {"input_file", NULL, 0},
};
static const by_shape part = BY_SHAPE_TAGGED_OF("type", part_variants);
static const by_shape content = BY_SHAPE_STRING_OR_LIST_OF(&part);

/* Outputs have no output_text. */
static by_status check_output_part(by_shape_job *job, by_json *v) {
    const by_json *type = by_json_get(v, "type");
    if (type && type->type == BY_JSON_STRING && by_str_eqz(type->v.s, "output_text"))
        return by_shape_fail(job, "expected a part of type input_text, input_image or input_file", type);
    return by_shape_check(job, v, &part);
}
static const by_shape output_part = {.kind = BY_SHAPE_CUSTOM, .check = check_output_part};
static const by_shape output = BY_SHAPE_STRING_OR_LIST_OF(&output_part);

/* ---- tools ---- */

const char *const by_responses_level_words[] = {"low", "medium", "high"};
const char *const by_responses_execution_words[] = {"client", "server"};
static const by_shape level = {.kind = BY_SHAPE_WORD, .words = by_responses_level_words, .n = 3};
static const by_shape execution = {.kind = BY_SHAPE_WORD, .words = by_responses_execution_words, .n = 2};

static const by_shape_field function_tool[] = {
    STRING("name"), MAYBE_STRING("description"), {"parameters", &by_shape_any, BY_FIELD_OPTIONAL},
    {"strict", &by_shape_bool, BY_FIELD_OPTIONAL}};
static const by_shape_field custom_tool[] = {STRING("name")};
static const by_shape_variant member_variants[] = {
    {"function", function_tool, BY_COUNT(function_tool)},
    {"custom", custom_tool, BY_COUNT(custom_tool)},
};
static const by_shape member = BY_SHAPE_TAGGED_OF("type", member_variants); /* variants 0 and 1, not RT_... */
static const by_shape members = BY_SHAPE_LIST_OF(&member);
static const by_shape_field namespace_tool[] = {
    STRING("name"), MAYBE_STRING("description"), {"tools", &members, BY_FIELD_REQUIRED}};
static const by_shape_field search_tool[] = {
    {"execution", &execution, BY_FIELD_OPTIONAL}, MAYBE_STRING("description"), {"parameters", &by_shape_any, BY_FIELD_OPTIONAL}};
static const by_shape_field location_fields[] = {
    MAYBE_STRING("city"), MAYBE_STRING("country"), MAYBE_STRING("region"), MAYBE_STRING("timezone")};
static const by_shape location = BY_SHAPE_STRUCT_OF(location_fields);
static const by_shape_field web_tool[] = {
    {"search_context_size", &level, BY_FIELD_OPTIONAL}, {"user_location", &location, BY_FIELD_OPTIONAL}};
static const by_shape_variant tool_variants[] = {
    [RT_FUNCTION] = {"function", function_tool, BY_COUNT(function_tool)},
    [RT_NAMESPACE] = {"namespace", namespace_tool, BY_COUNT(namespace_tool)},
    [RT_CUSTOM] = {"custom", custom_tool, BY_COUNT(custom_tool)},
    [RT_TOOL_SEARCH] = {"tool_search", search_tool, BY_COUNT(search_tool)},
    [RT_WEB_SEARCH] = {"web_search", web_tool, BY_COUNT(web_tool)},
    [RT_WEB_SEARCH_2025] = {"web_search_2025_08_26", web_tool, BY_COUNT(web_tool)},
};

/* An object with a string `type`: one of the variants, or the number behind the last one. */
static by_status check_open(by_shape_job *job, by_json *v, const by_shape_variant *variants, uint32_t n) {
    const by_json *type = by_json_get(v, "type");
    if (!by_json_is(type, BY_JSON_STRING)) return by_shape_fail(job, "expected an object with a string as type", type ? type : v);
    uint32_t i = 0;
    while (i < n && !by_str_eqz(type->v.s, variants[i].word)) i++;
    return by_shape_check_fields(job, v, i < n ? variants[i].fields : NULL, i < n ? variants[i].n_fields : 0, &i);
}

static by_status check_tool(by_shape_job *job, by_json *v) { return check_open(job, v, tool_variants, BY_COUNT(tool_variants)); }
static const by_shape tool = {.kind = BY_SHAPE_CUSTOM, .check = check_tool};
static const by_shape tools = BY_SHAPE_LIST_OF(&tool);

/* ---- items ---- */

static const char *const role_words[] = {"user", "assistant", "system", "developer"};
static const by_shape role = BY_SHAPE_WORD_OF(role_words);
static const by_shape_field message_item[] = {
    {"role", &role, BY_FIELD_REQUIRED}, {"content", &content, BY_FIELD_REQUIRED}};
static const by_shape_field reasoning_text_fields[] = {STRING("text")};
static const by_shape reasoning_text = BY_SHAPE_STRUCT_OF(reasoning_text_fields);
static const by_shape reasoning_texts = BY_SHAPE_LIST_OF(&reasoning_text);
static const by_shape_field reasoning_item[] = {
    {"content", &reasoning_texts, BY_FIELD_OPTIONAL}, MAYBE_STRING("encrypted_content")};
static const by_shape_field call_item[] = {
    STRING("call_id"), STRING("name"), STRING("arguments"), MAYBE_STRING("namespace")};
static const by_shape_field output_item[] = {MAYBE_STRING("call_id"), {"output", &output, BY_FIELD_REQUIRED}};
static const by_shape_field custom_call_item[] = {STRING("call_id"), STRING("name"), STRING("input")};
static const by_shape_field custom_output_item[] = {STRING("call_id"), {"output", &output, BY_FIELD_OPTIONAL}};
static const by_shape_field search_call_item[] = {
    STRING("call_id"), {"execution", &execution, BY_FIELD_OPTIONAL}, {"arguments", &by_shape_map, BY_FIELD_REQUIRED}};
static const by_shape_field search_output_item[] = {
    STRING("call_id"), {"tools", &tools, BY_FIELD_REQUIRED}, {"execution", &execution, BY_FIELD_OPTIONAL}};
static const by_shape_variant item_variants[] = {
    [RI_MESSAGE] = {"message", message_item, BY_COUNT(message_item)},
    [RI_REASONING] = {"reasoning", reasoning_item, BY_COUNT(reasoning_item)},
    [RI_CALL] = {"function_call", call_item, BY_COUNT(call_item)},
    [RI_OUTPUT] = {"function_call_output", output_item, BY_COUNT(output_item)},
    [RI_CUSTOM_CALL] = {"custom_tool_call", custom_call_item, BY_COUNT(custom_call_item)},
    [RI_CUSTOM_OUTPUT] = {"custom_tool_call_output", custom_output_item, BY_COUNT(custom_output_item)},
    [RI_SEARCH_CALL] = {"tool_search_call", search_call_item, BY_COUNT(search_call_item)},
    [RI_SEARCH_OUTPUT] = {"tool_search_output", search_output_item, BY_COUNT(search_output_item)},
    [RI_WEB_SEARCH_CALL] = {"web_search_call", NULL, 0},
};

static by_status check_item(by_shape_job *job, by_json *v) {
    static const uint32_t message = RI_MESSAGE;
    if (by_json_get(v, "type")) return check_open(job, v, item_variants, BY_COUNT(item_variants));
    if (by_json_get(v, "role")) return by_shape_check_fields(job, v, message_item, BY_COUNT(message_item), &message);
    return by_shape_fail(job, "expected an item: an object with type or role", v);
}
static const by_shape item = {.kind = BY_SHAPE_CUSTOM, .check = check_item};
static const by_shape input = BY_SHAPE_STRING_OR_LIST_OF(&item);

/* ---- settings ---- */

static const char *const choice_words[] = {"auto", "none", "required"};
static const by_shape choice_word = BY_SHAPE_WORD_OF(choice_words);
static const by_shape_variant choice_variants[] = {
    [RC_FUNCTION] = {"function", custom_tool, BY_COUNT(custom_tool)},
    [RC_WEB_SEARCH] = {"web_search", NULL, 0},
    [RC_WEB_SEARCH_2025] = {"web_search_2025_08_26", NULL, 0},
    [RC_CUSTOM] = {"custom", custom_tool, BY_COUNT(custom_tool)},
};
static const by_shape named_choice = BY_SHAPE_TAGGED_OF("type", choice_variants);
static by_status check_choice(by_shape_job *job, by_json *v) {
    return by_shape_check(job, v, v->type == BY_JSON_OBJECT ? &named_choice : &choice_word);
}
static const by_shape choice = {.kind = BY_SHAPE_CUSTOM, .check = check_choice};

const char *const by_responses_effort_words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"};
const char *const by_responses_summary_words[] = {"auto", "concise", "detailed"};
static const by_shape summary = {.kind = BY_SHAPE_WORD, .words = by_responses_summary_words, .n = 3};
static const by_shape_field reasoning_fields[] = {
    [RS_EFFORT] = {"effort", &by_shape_effort, BY_FIELD_OPTIONAL},
    [RS_SUMMARY] = {"summary", &summary, BY_FIELD_OPTIONAL},
    [RS_GENERATE_SUMMARY] = {"generate_summary", &summary, BY_FIELD_OPTIONAL},
};
static const by_shape reasoning = BY_SHAPE_STRUCT_OF(reasoning_fields);

static const by_shape_field schema_format[] = {
    STRING("name"), {"schema", &by_shape_any, BY_FIELD_REQUIRED}, MAYBE_STRING("description"),
    {"strict", &by_shape_bool, BY_FIELD_OPTIONAL}};
static const by_shape_variant format_variants[] = {
    [BY_FORMAT_TEXT] = {"text", NULL, 0},
    [BY_FORMAT_JSON_OBJECT] = {"json_object", NULL, 0},
    [BY_FORMAT_JSON_SCHEMA] = {"json_schema", schema_format, BY_COUNT(schema_format)},
};
static const by_shape format = BY_SHAPE_TAGGED_OF("type", format_variants);
static const by_shape_field text_fields[] = {
    [RX_FORMAT] = {"format", &format, BY_FIELD_DEFAULT},
    [RX_VERBOSITY] = {"verbosity", &level, BY_FIELD_OPTIONAL},
};
static const by_shape text = BY_SHAPE_STRUCT_OF(text_fields);

static const by_shape_field body_fields[] = {
    [RB_MODEL] = STRING("model"),
    [RB_INPUT] = {"input", &input, BY_FIELD_OPTIONAL},
    [RB_INSTRUCTIONS] = MAYBE_STRING("instructions"),
    [RB_TOOLS] = {"tools", &tools, BY_FIELD_OPTIONAL},
    [RB_CHOICE] = {"tool_choice", &choice, BY_FIELD_OPTIONAL},
    [RB_REASONING] = {"reasoning", &reasoning, BY_FIELD_OPTIONAL},
    [RB_TEXT] = {"text", &text, BY_FIELD_OPTIONAL},
    [RB_TEMPERATURE] = {"temperature", &by_shape_f32, BY_FIELD_OPTIONAL},
    [RB_TOP_P] = {"top_p", &by_shape_f32, BY_FIELD_OPTIONAL},
    [RB_TOP_LOGPROBS] = {"top_logprobs", &by_shape_top, BY_FIELD_OPTIONAL},
    [RB_MAX_OUTPUT_TOKENS] = {"max_output_tokens", &by_shape_count, BY_FIELD_OPTIONAL},
    [RB_STREAM] = {"stream", &by_shape_bool, BY_FIELD_OPTIONAL},
    [RB_USER] = MAYBE_STRING("user"),
};
const by_shape by_responses_body = BY_SHAPE_STRUCT_OF(body_fields);
