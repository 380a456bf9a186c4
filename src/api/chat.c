/* chat.c - Chat Completions requests. The order of the checks is the original's: model, tools, messages one by one, place
 * of a prefix, the word json, choice of tools, prefix against tools, stop, stream_options, schema, n, penalties,
 * sampling, max_tokens, seed. */
#include "api/convert.h"

/* ---- shape ---- */

static const by_shape_field image_url_fields[] = {
    {"url", &by_shape_string, BY_FIELD_REQUIRED},
    {"detail", &by_shape_detail, BY_FIELD_OPTIONAL},
};
static const by_shape image_url = BY_SHAPE_STRUCT_OF(image_url_fields);

static const by_shape_field text_part[] = {{"text", &by_shape_string, BY_FIELD_REQUIRED}};
static const by_shape_field image_part[] = {{"image_url", &image_url, BY_FIELD_REQUIRED}};
static const by_shape_field file_part[] = {
    {"file_data", &by_shape_string, BY_FIELD_OPTIONAL},
    {"file_id", &by_shape_string, BY_FIELD_OPTIONAL},
    {"filename", &by_shape_string, BY_FIELD_OPTIONAL},
};
enum { PART_TEXT, PART_IMAGE, PART_FILE };
static const by_shape_variant part_variants[] = {
    {"text", text_part, BY_COUNT(text_part)},
    {"image_url", image_part, BY_COUNT(image_part)},
    {"file", file_part, BY_COUNT(file_part)},
};
static const by_shape part = BY_SHAPE_TAGGED_OF("type", part_variants);
static const by_shape content = BY_SHAPE_STRING_OR_LIST_OF(&part);

static const char *const function_words[] = {"function"};
static const by_shape function_word = BY_SHAPE_WORD_OF(function_words);
static const by_shape_field call_function_fields[] = {
    {"name", &by_shape_string, BY_FIELD_REQUIRED},
    {"arguments", &by_shape_string, BY_FIELD_REQUIRED},
};
static const by_shape call_function = BY_SHAPE_STRUCT_OF(call_function_fields);
enum { CALL_ID, CALL_TYPE, CALL_FUNCTION };
static const by_shape_field call_fields[] = {
    {"id", &by_shape_string, BY_FIELD_REQUIRED},
    {"type", &function_word, BY_FIELD_REQUIRED},
    {"function", &call_function, BY_FIELD_REQUIRED},
};
static const by_shape call = BY_SHAPE_STRUCT_OF(call_fields);
static const by_shape calls = BY_SHAPE_LIST_OF(&call);

/* Content is the first field of every message; the record begins with the role. */
enum { MSG_ROLE, MSG_CONTENT, MSG_CALLS, MSG_REASONING, MSG_PREFIX, MSG_CALL_ID = 2 };
static const by_shape_field plain_message[] = {
    {"content", &content, BY_FIELD_REQUIRED},
    {"name", &by_shape_string, BY_FIELD_OPTIONAL},
};
static const by_shape_field assistant_message[] = {
    {"content", &content, BY_FIELD_OPTIONAL},           {"tool_calls", &calls, BY_FIELD_OPTIONAL},
    {"reasoning_content", &by_shape_string, BY_FIELD_OPTIONAL}, {"prefix", &by_shape_bool, BY_FIELD_OPTIONAL},
    {"name", &by_shape_string, BY_FIELD_OPTIONAL},
};
static const by_shape_field tool_message[] = {
    {"content", &content, BY_FIELD_REQUIRED},
    {"tool_call_id", &by_shape_string, BY_FIELD_REQUIRED},
};
static const by_shape_field reminder_message[] = {{"content", &by_shape_string, BY_FIELD_REQUIRED}};
static const by_shape_variant message_variants[] = {
    [BY_ROLE_SYSTEM] = {"system", plain_message, BY_COUNT(plain_message)},
    [BY_ROLE_USER] = {"user", plain_message, BY_COUNT(plain_message)},
    [BY_ROLE_ASSISTANT] = {"assistant", assistant_message, BY_COUNT(assistant_message)},
    [BY_ROLE_TOOL] = {"tool", tool_message, BY_COUNT(tool_message)},
    [BY_ROLE_LATEST_REMINDER] = {"latest_reminder", reminder_message, BY_COUNT(reminder_message)},
};
static const by_shape tagged_message = BY_SHAPE_TAGGED_OF("role", message_variants);

/* The server profile reads the developer role as the system role. */
static by_status check_message(by_shape_job *job, by_json *v) {
    const by_json *role = job->server ? by_json_get(v, "role") : NULL;
    if (role && role->type == BY_JSON_STRING && by_str_eqz(role->v.s, "developer"))
        for (uint32_t i = 0; i < v->n; i++)
            if (&v->v.members[i].value == role) v->v.members[i].value.v.s = BY_STR("system");
    return by_shape_check(job, v, &tagged_message);
}
static const by_shape message = {.kind = BY_SHAPE_CUSTOM, .check = check_message};
static const by_shape messages = BY_SHAPE_LIST_OF(&message);

static const by_shape_field function_fields[] = {
    {"name", &by_shape_string, BY_FIELD_REQUIRED},
    {"description", &by_shape_string, BY_FIELD_OPTIONAL},
    {"parameters", &by_shape_any, BY_FIELD_OPTIONAL},
    {"strict", &by_shape_bool, BY_FIELD_OPTIONAL},
};
static const by_shape function = BY_SHAPE_STRUCT_OF(function_fields);
static const by_shape_field tool_fields[] = {
    {"type", &function_word, BY_FIELD_REQUIRED},
    {"function", &function, BY_FIELD_REQUIRED},
};
static const by_shape tool = BY_SHAPE_STRUCT_OF(tool_fields);
static const by_shape tools = BY_SHAPE_LIST_OF(&tool);

static const by_shape_field named_function_fields[] = {{"name", &by_shape_string, BY_FIELD_REQUIRED}};
static const by_shape named_function = BY_SHAPE_STRUCT_OF(named_function_fields);
static const by_shape_field named_choice_fields[] = {
    {"type", &function_word, BY_FIELD_REQUIRED},
    {"function", &named_function, BY_FIELD_REQUIRED},
};
static const by_shape named_choice = BY_SHAPE_STRUCT_OF(named_choice_fields);
static const char *const choice_words[] = {"auto", "none", "required"}; /* order of by_recipe_choice */
static const by_shape choice_word = BY_SHAPE_WORD_OF(choice_words);
static by_status check_choice(by_shape_job *job, by_json *v) {
    return by_shape_check(job, v, v->type == BY_JSON_OBJECT ? &named_choice : &choice_word);
}
static const by_shape choice = {.kind = BY_SHAPE_CUSTOM, .check = check_choice};

static const by_shape_field json_schema_fields[] = {
    {"schema", &by_shape_any, BY_FIELD_REQUIRED},
    {"strict", &by_shape_bool, BY_FIELD_OPTIONAL},
    {"name", &by_shape_string, BY_FIELD_OPTIONAL},
};
static const by_shape json_schema = BY_SHAPE_STRUCT_OF(json_schema_fields);
static const by_shape_field format_schema[] = {{"json_schema", &json_schema, BY_FIELD_REQUIRED}};
static const by_shape_field format_regex[] = {{"regex", &by_shape_string, BY_FIELD_REQUIRED}};
static const by_shape_variant format_variants[] = {
    [BY_FORMAT_TEXT] = {"text", NULL, 0},
    [BY_FORMAT_JSON_OBJECT] = {"json_object", NULL, 0},
    [BY_FORMAT_JSON_SCHEMA] = {"json_schema", format_schema, BY_COUNT(format_schema)},
    [BY_FORMAT_REGEX] = {"regex", format_regex, BY_COUNT(format_regex)},
};
static const by_shape tagged_format = {.kind = BY_SHAPE_TAGGED, .tag = "type", .words = by_extra_formats,
                                       .variants = format_variants, .n = BY_COUNT(format_variants)};

/* Formats that only the server profile knows are read by grammar_fields.c; here they are text. */
static by_status check_format(by_shape_job *job, by_json *v) {
    static const uint32_t text = BY_FORMAT_TEXT;
    if (job->server && v->type == BY_JSON_OBJECT && by_is_extra_format(v)) return by_shape_check_fields(job, v, NULL, 0, &text);
    return by_shape_check(job, v, &tagged_format);
}
static const by_shape format = {.kind = BY_SHAPE_CUSTOM, .check = check_format};

static const by_shape stop = BY_SHAPE_STRING_OR_LIST_OF(&by_shape_string);
static const by_shape_field stream_options_fields[] = {{"include_usage", &by_shape_bool, BY_FIELD_OPTIONAL},
                                                      {"continuous_usage_stats", &by_shape_any, BY_FIELD_OPTIONAL}};
static const by_shape stream_options = BY_SHAPE_STRUCT_OF(stream_options_fields);

enum {
    F_MODEL, F_MESSAGES, F_THINKING, F_EFFORT, F_TOOLS, F_CHOICE, F_FORMAT, F_STOP, F_STREAM, F_STREAM_OPTIONS, F_N,
    F_PRESENCE, F_FREQUENCY, F_TEMPERATURE, F_TOP_P, F_LOGPROBS, F_TOP_LOGPROBS, F_MAX_TOKENS, F_SEED, F_PARALLEL
};
static const by_shape_field body_fields[] = {
    [F_MODEL] = {"model", &by_shape_string, BY_FIELD_REQUIRED},
    [F_MESSAGES] = {"messages", &messages, BY_FIELD_REQUIRED},
    [F_THINKING] = {"thinking", &by_shape_thinking, BY_FIELD_OPTIONAL},
    [F_EFFORT] = {"reasoning_effort", &by_shape_effort, BY_FIELD_OPTIONAL},
    [F_TOOLS] = {"tools", &tools, BY_FIELD_OPTIONAL},
    [F_CHOICE] = {"tool_choice", &choice, BY_FIELD_OPTIONAL},
    [F_FORMAT] = {"response_format", &format, BY_FIELD_OPTIONAL},
    [F_STOP] = {"stop", &stop, BY_FIELD_OPTIONAL},
    [F_STREAM] = {"stream", &by_shape_bool, BY_FIELD_OPTIONAL},
    [F_STREAM_OPTIONS] = {"stream_options", &stream_options, BY_FIELD_OPTIONAL},
    [F_N] = {"n", &by_shape_n, BY_FIELD_OPTIONAL},
    [F_PRESENCE] = {"presence_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_FREQUENCY] = {"frequency_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_TEMPERATURE] = {"temperature", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_TOP_P] = {"top_p", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_LOGPROBS] = {"logprobs", &by_shape_bool, BY_FIELD_OPTIONAL},
    [F_TOP_LOGPROBS] = {"top_logprobs", &by_shape_top, BY_FIELD_OPTIONAL},
    [F_MAX_TOKENS] = {"max_tokens", &by_shape_count, BY_FIELD_OPTIONAL},
    [F_SEED] = {"seed", &by_shape_seed, BY_FIELD_OPTIONAL},
    [F_PARALLEL] = {"parallel_tool_calls", &by_shape_bool, BY_FIELD_OPTIONAL},
};
static const by_shape body_shape = BY_SHAPE_STRUCT_OF(body_fields);

/* ---- tools ---- */

static by_status place_of(by_convert *cv, const char *before, uint32_t i, const char *behind, by_str *out) {
    const by_str parts[] = {by_str_z(before), by_number_text(cv, i), by_str_z(behind)};
    return by_join(cv, parts, 3, by_str_of(NULL, 0), out);
}

static by_status convert_tools(by_convert *cv, const by_json *list) {
    enum { NAME, DESCRIPTION, PARAMETERS, STRICT };
    if (!by_given(list) || list->n == 0) return BY_OK;
    by_recipe_tool *out = BY_MAKE(cv, by_recipe_tool, list->n);
    if (!out) return by_no_memory(cv);
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *f = by_field(&list->v.items[i], 1), *description = by_field(f, DESCRIPTION), *strict = by_field(f, STRICT);
        by_str name = by_field(f, NAME)->v.s;
        out[i] = (by_recipe_tool){
            .name = name, .has_description = by_given(description), .parameters = by_field(f, PARAMETERS)};
        if (by_given(description)) out[i].description = description->v.s;
        if (by_given(strict)) out[i].strict = &strict->v.b;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        by_str place;
        if (by_is_tool_name(out[i].name)) continue;
        BY_TRY(place_of(cv, "tools[", i, "].function", &place));
        return by_refuse_tool_name(cv, out[i].name, place);
    }
    cv->tools = out;
    cv->n_tools = list->n;
    return BY_OK;
}

/* ---- messages ---- */

static by_status check_link(by_convert *cv, by_str url, uint32_t at, uint32_t i) {
    if (!by_is_long_link(url)) return BY_OK;
    by_str place;
    const by_str parts[] = {BY_STR(".messages["), by_number_text(cv, at), BY_STR("].image_url.url["), by_number_text(cv, i),
                            BY_STR("]: image_url.url ")};
    BY_TRY(by_join(cv, parts, BY_COUNT(parts), by_str_of(NULL, 0), &place));
    return by_refuse_long_link(cv, url, place);
}

static by_status check_file(by_convert *cv, const by_json *p, by_str path) {
    const by_json *data = by_field(p, 1), *id = by_field(p, 2), *name = by_field(p, 3);
    if (by_given(id) && by_given(data))
        return BY_REFUSE(cv, path, BY_STR(": file cannot have both file_id and file_data"));
    if (by_given(id) && by_given(name))
        return BY_REFUSE(cv, path, BY_STR(": file cannot have filename when file_id is present"));
    if (by_given(id))
        return BY_REFUSE(cv, path, BY_STR(": file_id is not supported. Pass the image as a base64 data url instead."));
    if (!by_given(data)) return BY_REFUSE(cv, path, BY_STR(": file must have a file_id or file_data"));
    return by_check_file_data(cv, data->v.s, path);
}

static void at_part(by_convert *cv, const by_json *p, uint32_t at, uint32_t i) {
    cv->at = (by_place){"messages", at, ".content", i, by_variant(p) == PART_IMAGE ? ".image_url.url" : ".file_data"};
}

/* All pictures of a message, before any of them is looked at closely. path: of the message, made when there is one. */
static by_status check_pictures(by_convert *cv, const by_json *list, uint32_t at, bool allowed, by_str *path) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *p = &list->v.items[i];
        if (by_variant(p) == PART_TEXT) continue;
        at_part(cv, p, at, i);
        if (n++ == 0) BY_TRY(place_of(cv, ".messages[", at, "]", path));
        if (by_variant(p) == PART_IMAGE) BY_TRY(check_link(cv, by_field(by_field(p, 1), 0)->v.s, at, i));
        else BY_TRY(check_file(cv, p, *path));
    }
    by_at_item(cv, "messages", at, ".content");
    if (n && !allowed) return BY_REFUSE(cv, BY_STR("Image in assistant message is not supported"));
    return BY_OK;
}

static by_status convert_picture(by_convert *cv, const by_json *p, by_str path, by_content *c) {
    const by_json *url = by_field(p, 1), *detail = NULL;
    const by_recipe_image *image = NULL;
    if (cv->out->version == BY_RECIPE_V41) {
        if (by_variant(p) == PART_IMAGE) {
            detail = by_field(url, 1);
            url = by_field(url, 0);
        }
        by_recipe_detail d = detail && by_given(detail) ? (by_recipe_detail)detail->v.i : BY_DETAIL_HIGH;
        BY_TRY(by_image_from_url(cv, url->v.s, d, path, &image));
    }
    by_content_image(cv, c, image);
    return BY_OK;
}

/* v: string or list of parts. at: index of the message. */
static by_status convert_content(by_convert *cv, const by_json *v, uint32_t at, bool images, by_recipe_text *out) {
    if (v->type == BY_JSON_STRING) return by_content_of_string(cv, v->v.s, out);
    by_content c;
    by_str path = {0};
    if (cv->out->version == BY_RECIPE_V41) BY_TRY(check_pictures(cv, v, at, images, &path));
    BY_TRY(by_content_begin(cv, &c, v->n));
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json *p = &v->v.items[i];
        at_part(cv, p, at, i);
        if (by_variant(p) == PART_TEXT) by_content_text(&c, by_field(p, 1)->v.s);
        else BY_TRY(convert_picture(cv, p, path, &c));
    }
    *out = by_content_end(&c);
    return BY_OK;
}

/* The server profile refuses an empty list of parts. */
static by_status check_not_empty(by_convert *cv, const by_json *content_value, uint32_t at) {
    if (!cv->server || content_value->type != BY_JSON_ARRAY || content_value->n) return BY_OK;
    by_str place;
    BY_TRY(place_of(cv, "messages[", at, "].content: ", &place));
    by_at_item(cv, "messages", at, ".content");
    return BY_REFUSE_CODE(cv, "empty_array", place, BY_STR("must not be an empty list"));
}

/* Calls that wait for their tool messages. */
typedef struct {
    const by_recipe_call *calls;
    uint32_t n;        /* calls of the last assistant message; 0 when none waits */
    uint32_t answered;
    by_str_set ids;    /* answered: value of an id is 1 */
} pending;

static by_status insufficient(by_convert *cv) {
    by_at(cv, "messages");
    return BY_REFUSE(cv, BY_STR("An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                                "'tool_call_id'. (insufficient tool messages following tool_calls message)"));
}

static by_status duplicate_id(by_convert *cv, by_str id, uint32_t at, const char *member) {
    by_at_item(cv, "messages", at, member);
    return BY_REFUSE(cv, BY_STR("Duplicate value for 'tool_call_id' of "), id, BY_STR(" in message["), by_number_text(cv, at),
                     BY_STR("]"));
}

static by_status convert_calls(by_convert *cv, const by_json *list, uint32_t at, by_recipe_message *m, pending *wait) {
    by_recipe_call *out = BY_MAKE(cv, by_recipe_call, list->n);
    if (!out) return by_no_memory(cv);
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *c = &list->v.items[i], *f = by_field(c, CALL_FUNCTION);
        out[i] = (by_recipe_call){by_field(c, CALL_ID)->v.s, by_field(f, 0)->v.s, by_field(f, 1)->v.s};
    }
    m->calls = out;
    m->n_calls = list->n;
    *wait = (pending){.calls = out, .n = list->n};
    BY_TRY(by_str_set_init(cv, &wait->ids, list->n));
    for (uint32_t i = 0; i < list->n; i++) {
        uint32_t *value;
        if (!by_str_set_add(&wait->ids, out[i].id, &value)) return duplicate_id(cv, out[i].id, at, ".tool_calls");
    }
    return BY_OK;
}

static by_status convert_assistant(by_convert *cv, const by_json *v, uint32_t at, pending *wait) {
    const by_json *text = by_field(v, MSG_CONTENT), *list = by_field(v, MSG_CALLS), *reasoning = by_field(v, MSG_REASONING);
    by_recipe_message *m;
    BY_TRY(by_add_message(cv, BY_ROLE_ASSISTANT, &m));
    if (by_given(text)) BY_TRY(check_not_empty(cv, text, at));
    if (by_given(text)) BY_TRY(convert_content(cv, text, at, false, &m->content));
    if (by_given(list) && list->n == 0) {
        by_str place;
        BY_TRY(place_of(cv, "Invalid 'messages[", at, "].tool_calls': ", &place));
        by_at_item(cv, "messages", at, ".tool_calls");
        return BY_REFUSE_CODE(cv, "empty_array", place,
                              BY_STR("empty array. Expected an array with minimum length 1, but got an empty array instead."));
    }
    by_at_item(cv, "messages", at, ".content");
    if (!by_given(text) && !by_given(list))
        return BY_REFUSE_CODE(cv, "missing_required_parameter", BY_STR("Invalid assistant message: content or tool_calls must be set"));
    m->has_reasoning = by_given(reasoning);
    if (m->has_reasoning) m->reasoning = reasoning->v.s;
    m->prefix = by_given(by_field(v, MSG_PREFIX)) && by_field(v, MSG_PREFIX)->v.b;
    return by_given(list) ? convert_calls(cv, list, at, m, wait) : BY_OK;
}

static by_status convert_tool_message(by_convert *cv, const by_json *v, uint32_t at, pending *wait) {
    by_at_item(cv, "messages", at, wait->n ? ".tool_call_id" : ".role");
    if (wait->n == 0)
        return BY_REFUSE(cv, BY_STR("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"));
    by_str id = by_field(v, MSG_CALL_ID)->v.s;
    uint32_t *answered = by_str_set_find(&wait->ids, id);
    if (!answered)
        return BY_REFUSE(cv, BY_STR("An assistant message with 'tool_calls' must be followed by tool messages responding to "
                                    "each 'tool_call_id', The following tool_call_ids did not have response messages: "),
                         id);
    if ((*answered)++) return duplicate_id(cv, id, at, ".tool_call_id");
    by_recipe_message *m;
    BY_TRY(by_add_message(cv, BY_ROLE_TOOL, &m));
    m->call_id = id;
    m->has_call_id = true;
    if (++wait->answered == wait->n) wait->n = 0;
    return convert_content(cv, by_field(v, MSG_CONTENT), at, true, &m->content);
}

static by_status convert_message(by_convert *cv, const by_json *v, uint32_t at, pending *wait) {
    by_recipe_role role = (by_recipe_role)by_variant(v);
    if (role == BY_ROLE_TOOL) return convert_tool_message(cv, v, at, wait);
    if (wait->n) return insufficient(cv);
    if (role == BY_ROLE_ASSISTANT) return convert_assistant(cv, v, at, wait);
    by_recipe_message *m;
    BY_TRY(by_add_message(cv, role, &m));
    const by_json *text = by_field(v, MSG_CONTENT);
    BY_TRY(check_not_empty(cv, text, at));
    BY_TRY(convert_content(cv, text, at, true, &m->content));
    if (role == BY_ROLE_SYSTEM && by_recipe_text_is_empty(m->content)) cv->n_messages--; /* as if it were not there */
    return BY_OK;
}

static by_status convert_all_messages(by_convert *cv, const by_json *list) {
    pending wait = {0};
    by_at(cv, "messages");
    if (list->n == 0) return BY_REFUSE_CODE(cv, "empty_array", BY_STR("Empty input messages"));
    for (uint32_t i = 0; i < list->n; i++) BY_TRY(convert_message(cv, &list->v.items[i], i, &wait));
    if (wait.n) return insufficient(cv);
    by_at(cv, "messages");
    for (uint32_t i = 0; i + 1 < cv->n_messages; i++)
        if (cv->messages[i].prefix)
            return BY_REFUSE(cv, BY_STR("Invalid completion message: prefix set true with message which is not final message "
                                        "or message role is not assistant"));
    return BY_OK;
}

/* ---- the rest ---- */

static by_status check_json_word(by_convert *cv, const by_json *f) {
    if (!by_given(f) || by_variant(f) != BY_FORMAT_JSON_OBJECT || by_mentions_json(cv)) return BY_OK;
    by_at(cv, "messages");
    return BY_REFUSE(cv, BY_STR("Prompt must contain the word 'json' in some form to use 'response_format' of type "
                                "'json_object'."));
}

static by_status convert_choice(by_convert *cv, const by_json *v) {
    by_choice c = {BY_CHOICE_AUTO, {NULL, 0}};
    if (v->type == BY_JSON_OBJECT) c.name = by_field(by_field(v, 1), 0)->v.s;
    else if (by_given(v)) c.word = (by_recipe_choice)v->v.i;
    return by_apply_choice(cv, c);
}

static by_status check_prefix(by_convert *cv, const by_json *body) {
    const by_json *f = by_field(body, F_FORMAT), *list = by_field(body, F_TOOLS);
    if (cv->n_messages == 0 || !cv->messages[cv->n_messages - 1].prefix) return BY_OK;
    by_at(cv, "response_format");
    if (by_given(f) && by_variant(f) == BY_FORMAT_JSON_OBJECT)
        return BY_REFUSE(cv, BY_STR("response_format json_object should not be used with prefix"));
    bool has_calls = by_given(list) && list->n;
    by_at(cv, has_calls ? "tools" : "messages");
    for (uint32_t i = 0; i < cv->n_messages; i++) has_calls = has_calls || cv->messages[i].n_calls;
    return has_calls ? BY_REFUSE(cv, BY_STR("Function call should not be used with prefix")) : BY_OK;
}

static by_status convert_format(by_convert *cv, const by_json *f) {
    by_recipe_conversation *c = &cv->out->conversation;
    if (by_given(f)) c->format = (by_recipe_format)by_variant(f);
    if (c->format == BY_FORMAT_REGEX) c->regex = by_field(f, 1)->v.s;
    if (c->format == BY_FORMAT_JSON_SCHEMA) {
        const by_json *s = by_field(f, 1);
        BY_TRY(by_set_schema_format(cv, by_field(s, 0), by_given(by_field(s, 1)) && by_field(s, 1)->v.b));
    }
    return by_check_all_strict(cv, by_given(f));
}

static by_status convert_stream(by_convert *cv, const by_json *body) {
    const by_json *stream = by_field(body, F_STREAM), *options = by_field(body, F_STREAM_OPTIONS);
    cv->out->stream = by_given(stream) && stream->v.b;
    if (!by_given(options)) return BY_OK;
    by_at(cv, "stream_options");
    if (!cv->out->stream) return BY_REFUSE(cv, BY_STR("stream_options should be set along with stream = true"));
    cv->out->include_usage = by_given(by_field(options, 0)) && by_field(options, 0)->v.b;
    const by_json *each = by_field(options, 1); /* vLLM's; the original ignores it whatever it holds */
    cv->out->continuous_usage = cv->server && cv->out->include_usage && by_json_is(each, BY_JSON_BOOL) && each->v.b;
    return BY_OK;
}

static by_status convert_logprobs(by_convert *cv, const by_json *on, const by_json *top) {
    by_api_inference *inf = &cv->out->inference;
    inf->logprobs = by_given(on) && on->v.b;
    if (!by_given(top)) return BY_OK;
    by_at(cv, inf->logprobs ? "top_logprobs" : "logprobs");
    if (!inf->logprobs)
        return BY_REFUSE(cv, BY_STR("Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is "
                                    "used."));
    if (top->v.i > 20) return BY_REFUSE(cv, BY_STR("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]."));
    inf->has_top_logprobs = true;
    inf->top_logprobs = (uint32_t)top->v.i;
    return BY_OK;
}

static by_status convert_sampling(by_convert *cv, const by_json *body) {
    const by_json *n = by_field(body, F_N);
    by_api_inference *inf = &cv->out->inference;
    by_at(cv, "n");
    if (by_given(n) && n->v.i != 1 && !cv->server)
        return BY_REFUSE(cv, BY_STR("Invalid n value (currently only n = 1 is supported)"));
    if (by_given(n)) BY_TRY(by_set_n(cv, n));
    BY_TRY(by_set_penalty(cv, by_field(body, F_PRESENCE), "presence_penalty", &inf->presence_penalty));
    BY_TRY(by_set_penalty(cv, by_field(body, F_FREQUENCY), "frequency_penalty", &inf->frequency_penalty));
    BY_TRY(by_set_temperature(cv, by_field(body, F_TEMPERATURE)));
    BY_TRY(by_set_top_p(cv, by_field(body, F_TOP_P)));
    BY_TRY(convert_logprobs(cv, by_field(body, F_LOGPROBS), by_field(body, F_TOP_LOGPROBS)));
    BY_TRY(by_set_max_tokens(cv, by_field(body, F_MAX_TOKENS), "max_tokens", false));
    return by_set_seed(cv, by_field(body, F_SEED));
}

by_status by_convert_chat(by_convert *cv, by_json *body) {
    by_json whole = *body;
    BY_TRY(by_check_body(cv, body, &body_shape));
    BY_TRY(by_check_model(cv, by_field(body, F_MODEL)->v.s));
    by_set_thinking(cv, by_field(body, F_THINKING), by_field(body, F_EFFORT));
    BY_TRY(by_begin_server_fields(cv, &whole, by_field(body, F_THINKING), by_field(body, F_EFFORT)));
    BY_TRY(convert_tools(cv, by_field(body, F_TOOLS)));
    BY_TRY(convert_all_messages(cv, by_field(body, F_MESSAGES)));
    BY_TRY(by_check_reasoning(cv, BY_STR("reasoning_content")));
    BY_TRY(check_json_word(cv, by_field(body, F_FORMAT)));
    const by_json *parallel = by_field(body, F_PARALLEL);
    cv->one_call = by_given(parallel) && !parallel->v.b;
    BY_TRY(convert_choice(cv, by_field(body, F_CHOICE)));
    BY_TRY(check_prefix(cv, body));
    BY_TRY(by_set_stop(cv, by_field(body, F_STOP)));
    BY_TRY(convert_stream(cv, body));
    BY_TRY(convert_format(cv, by_field(body, F_FORMAT)));
    BY_TRY(convert_sampling(cv, body));
    BY_TRY(by_end_server_fields(cv, &whole));
    return by_finish_conversation(cv);
}
