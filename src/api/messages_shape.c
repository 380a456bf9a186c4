/* messages_shape.c - tables of messages_shape.h. */
#include "api/messages_shape.h"

#include "api/convert.h"

#define STRING(key) {key, &by_shape_string, BY_FIELD_REQUIRED}
#define MAYBE_STRING(key) {key, &by_shape_string, BY_FIELD_OPTIONAL}
#define MAYBE_BOOL(key) {key, &by_shape_bool, BY_FIELD_OPTIONAL}
#define ANY(key) {key, &by_shape_any, BY_FIELD_REQUIRED}

/* ---- blocks ---- */

static const char *const media_words[] = {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"};
const char *const by_messages_media_types[] = {"image/jpeg", "image/jpeg", "image/png", "image/gif", "image/webp"};
static const by_shape media_type = BY_SHAPE_WORD_OF(media_words);
static const by_shape_field base64_source[] = {{"media_type", &media_type, BY_FIELD_REQUIRED}, STRING("data")};
static const by_shape_field url_source[] = {STRING("url")};
static const by_shape_field file_source[] = {STRING("file_id")};
static const by_shape_variant source_variants[] = {
    [MS_BASE64] = {"base64", base64_source, BY_COUNT(base64_source)},
    [MS_URL] = {"url", url_source, BY_COUNT(url_source)},
    [MS_FILE] = {"file", file_source, BY_COUNT(file_source)},
};
static const by_shape source = BY_SHAPE_TAGGED_OF("type", source_variants);
static const by_shape_field document_fields[] = {MAYBE_STRING("media_type")};
static const by_shape document = BY_SHAPE_STRUCT_OF(document_fields);

static const by_shape_field text_block[] = {STRING("text")};
static const by_shape_field image_block[] = {{"source", &source, BY_FIELD_REQUIRED}};
static const by_shape_field document_block[] = {{"source", &document, BY_FIELD_REQUIRED}};
static const by_shape_field reference_block[] = {STRING("tool_name")};
static const by_shape_variant result_variants[] = {
    [MK_TEXT] = {"text", text_block, BY_COUNT(text_block)},
    [MK_IMAGE] = {"image", image_block, BY_COUNT(image_block)},
    [MK_DOCUMENT] = {"document", document_block, BY_COUNT(document_block)},
    [MK_TOOL_REFERENCE] = {"tool_reference", reference_block, BY_COUNT(reference_block)},
};
static const by_shape result_block = BY_SHAPE_TAGGED_OF("type", result_variants);
static const by_shape result_content = BY_SHAPE_STRING_OR_LIST_OF(&result_block);

static const by_shape_field added_tool[] = {STRING("name")};
static const by_shape_variant added_variants[] = {{"tool_reference", added_tool, BY_COUNT(added_tool)}};
static const by_shape added = BY_SHAPE_TAGGED_OF("type", added_variants);

static const by_shape_field thinking_block[] = {STRING("thinking"), MAYBE_STRING("signature")};
static const by_shape_field use_block[] = {STRING("id"), STRING("name"), ANY("input")};
static const by_shape_field tool_result_block[] = {
    STRING("tool_use_id"), {"content", &result_content, BY_FIELD_OPTIONAL}, MAYBE_BOOL("is_error")};
static const by_shape_field search_result_block[] = {STRING("tool_use_id"), ANY("content")};
static const by_shape_field addition_block[] = {{"tool", &added, BY_FIELD_REQUIRED}};
static const by_shape_variant block_variants[] = {
    [MK_TEXT] = {"text", text_block, BY_COUNT(text_block)},
    [MK_IMAGE] = {"image", image_block, BY_COUNT(image_block)},
    [MK_DOCUMENT] = {"document", document_block, BY_COUNT(document_block)},
    [MK_THINKING] = {"thinking", thinking_block, BY_COUNT(thinking_block)},
    [MK_SERVER_TOOL_USE] = {"server_tool_use", use_block, BY_COUNT(use_block)},
    [MK_TOOL_USE] = {"tool_use", use_block, BY_COUNT(use_block)},
    [MK_TOOL_RESULT] = {"tool_result", tool_result_block, BY_COUNT(tool_result_block)},
    [MK_SEARCH_RESULT] = {"web_search_tool_result", search_result_block, BY_COUNT(search_result_block)},
    [MK_TOOL_ADDITION] = {"tool_addition", addition_block, BY_COUNT(addition_block)},
};
static const by_shape block = BY_SHAPE_TAGGED_OF("type", block_variants);
static const by_shape content = BY_SHAPE_STRING_OR_LIST_OF(&block);

static const char *const role_words[] = {"user", "assistant", "system"};
static const by_shape role = BY_SHAPE_WORD_OF(role_words);
static const by_shape_field message_fields[] = {
    [MM_ROLE] = {"role", &role, BY_FIELD_REQUIRED}, [MM_CONTENT] = {"content", &content, BY_FIELD_REQUIRED}};
static const by_shape message = BY_SHAPE_STRUCT_OF(message_fields);
static const by_shape messages = BY_SHAPE_LIST_OF(&message);

static const by_shape_variant system_variants[] = {{"text", text_block, BY_COUNT(text_block)}};
static const by_shape system_block = BY_SHAPE_TAGGED_OF("type", system_variants);
static const by_shape system_content = BY_SHAPE_STRING_OR_LIST_OF(&system_block);

/* ---- tools and settings ---- */

static const by_shape_field tool_fields[] = {
    STRING("name"), MAYBE_STRING("description"), {"input_schema", &by_shape_any, BY_FIELD_OPTIONAL},
    MAYBE_BOOL("defer_loading"), {"strict", &by_shape_any, BY_FIELD_OPTIONAL}};
static const by_shape_field server_tool_fields[] = {STRING("type"), MAYBE_STRING("name")};

static by_status check_tool(by_shape_job *job, by_json *v) {
    static const uint32_t ours = 0, server = 1;
    if (v->type != BY_JSON_OBJECT) return by_shape_fail(job, "expected an object", v);
    const by_json *type = by_json_get(v, "type");
    bool custom = by_json_is(type, BY_JSON_STRING) && by_str_eqz(type->v.s, "custom"); /* as Anthropic's API calls the client's own */
    if (type && !(job->server && custom))
        return by_shape_check_fields(job, v, server_tool_fields, BY_COUNT(server_tool_fields), &server);
    return by_shape_check_fields(job, v, tool_fields, BY_COUNT(tool_fields), &ours);
}
static const by_shape tool = {.kind = BY_SHAPE_CUSTOM, .check = check_tool};
static const by_shape tools = BY_SHAPE_LIST_OF(&tool);

static const by_shape_field auto_choice[] = {MAYBE_BOOL("disable_parallel_tool_use")};
static const by_shape_field tool_choice[] = {STRING("name"), MAYBE_BOOL("disable_parallel_tool_use")};
static const by_shape_variant choice_variants[] = {
    [MC_AUTO] = {"auto", auto_choice, BY_COUNT(auto_choice)},
    [MC_ANY] = {"any", auto_choice, BY_COUNT(auto_choice)},
    [MC_TOOL] = {"tool", tool_choice, BY_COUNT(tool_choice)},
    [MC_NONE] = {"none", NULL, 0},
};
static const by_shape choice = BY_SHAPE_TAGGED_OF("type", choice_variants);

static const by_shape stops = BY_SHAPE_LIST_OF(&by_shape_string);
static const by_shape_field output_config_fields[] = {{"effort", &by_shape_effort, BY_FIELD_OPTIONAL}};
static const by_shape output_config = BY_SHAPE_STRUCT_OF(output_config_fields);
static const by_shape_field metadata_fields[] = {MAYBE_STRING("user_id")};
static const by_shape metadata = BY_SHAPE_STRUCT_OF(metadata_fields);

static const by_shape_field body_fields[] = {
    [MB_MODEL] = STRING("model"),
    [MB_MAX_TOKENS] = {"max_tokens", &by_shape_count, BY_FIELD_OPTIONAL},
    [MB_MESSAGES] = {"messages", &messages, BY_FIELD_REQUIRED},
    [MB_SYSTEM] = {"system", &system_content, BY_FIELD_OPTIONAL},
    [MB_STOP] = {"stop_sequences", &stops, BY_FIELD_OPTIONAL},
    [MB_STREAM] = MAYBE_BOOL("stream"),
    [MB_TEMPERATURE] = {"temperature", &by_shape_f32, BY_FIELD_OPTIONAL},
    [MB_TOP_P] = {"top_p", &by_shape_f32, BY_FIELD_OPTIONAL},
    [MB_THINKING] = {"thinking", &by_shape_thinking, BY_FIELD_OPTIONAL},
    [MB_OUTPUT_CONFIG] = {"output_config", &output_config, BY_FIELD_OPTIONAL},
    [MB_TOOLS] = {"tools", &tools, BY_FIELD_OPTIONAL},
    [MB_CHOICE] = {"tool_choice", &choice, BY_FIELD_OPTIONAL},
    [MB_METADATA] = {"metadata", &metadata, BY_FIELD_OPTIONAL},
};
const by_shape by_messages_body = BY_SHAPE_STRUCT_OF(body_fields);
