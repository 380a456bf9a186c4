/* tools.c - tools of a request: names, parameters, choice, and the text of the constraint. */
#include "api/convert.h"
#include "json/json_write.h"

/* ---- names ---- */

enum { NAME_MAX_BYTES = 128 };

static by_status refuse_name(by_convert *cv, by_str place, by_str rest) {
    cv->at = (by_place){place.ptr, -1, ".name", -1, NULL};
    return BY_REFUSE(cv, BY_STR("Invalid '"), place, BY_STR(".name': "), rest);
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool by_is_tool_name(by_str name) {
    if (name.len == 0 || name.len > NAME_MAX_BYTES) return false;
    for (size_t i = 0; i < name.len; i++)
        if (!is_name_byte(name.ptr[i])) return false;
    return true;
}

by_status by_refuse_tool_name(by_convert *cv, by_str name, by_str place) {
    if (name.len == 0)
        return refuse_name(
            cv, place, BY_STR("empty string. Expected a string with minimum length 1, but got an empty string instead."));
    if (name.len > NAME_MAX_BYTES) {
        const by_str parts[] = {
            BY_STR("string too long. Expected a string with maximum length 128, but got a string with length "),
            by_number_text(cv, name.len), BY_STR(" instead.")};
        by_str rest;
        BY_TRY(by_join(cv, parts, 3, by_str_of(NULL, 0), &rest));
        return refuse_name(cv, place, rest);
    }
    return refuse_name(
        cv, place, BY_STR("string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."));
}

/* ---- parameters ---- */

static const by_json empty_object = {.type = BY_JSON_OBJECT};

static by_status refuse_schema(by_convert *cv, by_str tool_name, by_str why) {
    return BY_REFUSE_CODE(cv, "invalid_function_parameters", BY_STR("Invalid schema for function '"), tool_name, BY_STR("': "), why);
}

static by_status refuse_root_type(by_convert *cv, by_str tool_name, const by_json *type) {
    by_buf text = {0};
    by_buf_push_z(&text, "schema must be a JSON Schema of 'type: \"object\"', got 'type: ");
    if (type) by_json_write(&text, type, BY_JSON_COMPACT);
    else by_buf_push_z(&text, "null");
    by_buf_push_z(&text, "'.");
    by_status status = by_buf_check(&text, cv->err);
    if (status == BY_OK) status = refuse_schema(cv, tool_name, by_buf_str(&text));
    by_buf_deinit(&text);
    return status;
}

/* Checks parameters (NULL or null: none were sent), or rewrites them for a strict tool. */
static by_status check_parameters(by_convert *cv, by_recipe_tool *tool) {
    static const by_json_member object_type[] = {
        {.key = {"type", 4}, .value = {.type = BY_JSON_STRING, .v.s = {"object", 6}}}};
    static const by_json empty_schema = {.type = BY_JSON_OBJECT, .n = 1, .v.members = (by_json_member *)(uintptr_t)object_type};
    const by_json *parameters = tool->parameters;
    bool given = parameters && parameters->type != BY_JSON_NULL;
    tool->given = given ? parameters : NULL;
    if (tool->strict && *tool->strict && cv->out->api != BY_API_MESSAGES) /* there the model sees them as they were sent */
        return by_rewrite_strict(cv, given ? parameters : &empty_schema, true, &tool->parameters);
    if (!given && cv->out->api == BY_API_MESSAGES) /* here a schema is a must */
        return refuse_schema(cv, tool->name, BY_STR("null is not of types \"boolean\", \"object\""));
    tool->parameters = given ? parameters : &empty_object;
    if (!given) return BY_OK;
    by_str why;
    by_status status = by_check_schema(cv, parameters, &why);
    if (status == BY_EINVAL) return refuse_schema(cv, tool->name, why);
    BY_TRY(status);
    const by_json *type = by_json_get(parameters, "type");
    if (!by_json_is(type, BY_JSON_STRING) || !by_str_eqz(type->v.s, "object"))
        return refuse_root_type(cv, tool->name, type);
    return BY_OK;
}

by_status by_check_all_strict(by_convert *cv, bool has_format) {
    const by_recipe_conversation *c = &cv->out->conversation;
    uint32_t n_strict = 0;
    for (uint32_t i = 0; i < c->n_tools; i++) n_strict += c->tools[i].strict && *c->tools[i].strict;
    if (n_strict == 0) return BY_OK;
    by_at(cv, n_strict < c->n_tools ? "tools" : cv->out->api == BY_API_RESPONSES ? "text.format" : "response_format");
    if (n_strict == c->n_tools)
        return has_format ? BY_REFUSE(cv, BY_STR("response_format should not be used with tools")) : BY_OK;
    return BY_REFUSE(cv, BY_STR("Cannot use strict tool with non-strict tool in the same request"));
}

by_status by_set_schema_format(by_convert *cv, const by_json *schema, bool strict) {
    const by_json *shown = schema;
    by_at(cv, cv->out->api == BY_API_RESPONSES ? "text.format.schema" : "response_format.json_schema.schema");
    if (strict) {
        BY_TRY(by_rewrite_strict(cv, schema, false, &shown));
    } else {
        by_str why;
        by_status status = by_check_schema(cv, schema, &why);
        if (status == BY_EINVAL) return BY_REFUSE(cv, BY_STR("Invalid json schema: "), why);
        BY_TRY(status);
    }
    cv->out->conversation.format = BY_FORMAT_JSON_SCHEMA;
    cv->strict_format = strict;
    cv->out->conversation.schema = schema; /* the prompt shows it as it was sent */
    by_buf text = {0};
    by_json_write(&text, shown, BY_JSON_COMPACT);
    by_str copy = text.failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(&text));
    by_buf_deinit(&text);
    cv->out->inference.constraint.text = copy;
    return copy.ptr ? BY_OK : by_no_memory(cv);
}

/* ---- choice ---- */

static by_status check_tools(by_convert *cv) {
    by_str_set names;
    BY_TRY(by_str_set_init(cv, &names, cv->n_tools));
    for (uint32_t i = 0; i < cv->n_tools; i++) {
        uint32_t *value;
        if (cv->tool_places) cv->at = cv->tool_places[i];
        else by_at_item(cv, "tools", i, cv->out->api == BY_API_CHAT ? ".function" : NULL);
        if (!by_str_set_add(&names, cv->tools[i].name, &value)) return BY_REFUSE(cv, BY_STR("Tool names must be unique."));
        *(cv->at.k < 0 ? &cv->at.mid : &cv->at.tail) = cv->out->api == BY_API_CHAT ? ".function.parameters" : ".parameters";
        BY_TRY(check_parameters(cv, &cv->tools[i]));
    }
    return BY_OK;
}

/* Keeps only the named tool. */
static by_status keep_named(by_convert *cv, by_str name) {
    by_recipe_conversation *c = &cv->out->conversation;
    for (uint32_t i = 0; i < c->n_tools; i++) {
        if (!by_str_eq(c->tools[i].name, name)) continue;
        c->tools += i;
        c->n_tools = 1;
        return BY_OK;
    }
    by_at(cv, "tool_choice");
    return BY_REFUSE(cv, cv->server ? BY_STR("Invalid value for 'tool_choice': no function named '")
                                    : BY_STR("Invalid value for 'tool_call': no function named '"), name,
                     BY_STR("' was specified in the 'tools' parameter."));
}

by_status by_apply_choice(by_convert *cv, by_choice choice) {
    by_recipe_conversation *c = &cv->out->conversation;
    c->tools = cv->tools;
    c->n_tools = cv->n_tools;
    c->choice = choice.word;
    if (choice.word == BY_CHOICE_NONE) {
        c->n_tools = 0;
        return BY_OK;
    }
    if (c->n_tools == 0) {
        bool demanded = choice.word == BY_CHOICE_REQUIRED || choice.name.ptr || cv->force_call;
        by_at(cv, "tool_choice");
        if (cv->server && demanded) return BY_REFUSE(cv, BY_STR("tool_choice: needs tools"));
        c->choice = BY_CHOICE_AUTO;
        return BY_OK;
    }
    BY_TRY(check_tools(cv));
    if (choice.name.ptr) {
        BY_TRY(keep_named(cv, choice.name));
        c->choice = BY_CHOICE_REQUIRED;
    }
    if (c->choice != BY_CHOICE_REQUIRED || !c->thinking) return BY_OK;
    if (!cv->server) return BY_REFUSE(cv, BY_STR("Thinking mode does not support this tool_choice"));
    c->choice = BY_CHOICE_AUTO; /* the prompt can't begin a call in front of the reasoning: the grammar asks for one behind it */
    cv->force_call = true;
    return BY_OK;
}

/* Late tools are copies, made before the parameters were settled, of entries of the list. */
static uint32_t keep_chosen(const by_recipe_conversation *c, const by_str_set *names, by_recipe_tool *list, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *at = by_str_set_find(names, list[i].name);
        if (!at) continue;
        list[kept] = list[i];
        list[kept++].parameters = c->tools[*at].parameters;
    }
    return kept;
}

static by_status name_set(by_convert *cv, by_str_set *names) {
    const by_recipe_conversation *c = &cv->out->conversation;
    uint32_t n = cv->out->version == BY_RECIPE_V41 ? c->n_tools : 0;
    BY_TRY(by_str_set_init(cv, names, n));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *index;
        by_str_set_add(names, c->tools[i].name, &index);
        *index = i;
    }
    return BY_OK;
}

by_status by_drop_unchosen_tools(by_convert *cv) {
    uint32_t kept = 0, n_late = 0;
    for (uint32_t i = 0; i < cv->n_messages; i++) n_late += cv->messages[i].n_tools;
    if (n_late == 0) return BY_OK;
    by_str_set names;
    BY_TRY(name_set(cv, &names));
    for (uint32_t i = 0; i < cv->n_messages; i++) {
        by_recipe_message *m = &cv->messages[i];
        if (m->role == BY_ROLE_SYSTEM && m->n_tools) {
            by_recipe_tool *list = (by_recipe_tool *)(uintptr_t)m->tools; /* our own copies */
            m->n_tools = keep_chosen(&cv->out->conversation, &names, list, m->n_tools);
            if (m->n_tools == 0 && by_recipe_text_is_empty(m->content)) continue;
        }
        if (kept != i) cv->messages[kept] = *m;
        kept++;
    }
    cv->n_messages = kept;
    return BY_OK;
}

/* ---- constraint ---- */

static void put_tool(by_json_out *o, const by_recipe_tool *t) {
    by_json_out_raw(o, BY_STR("{\"type\":\"function\",\"function\":{\"name\":"));
    by_json_write_string(o->buf, t->name);
    by_json_out_key(o, "description");
    if (t->has_description) by_json_out_string(o, t->description);
    else by_json_out_null(o);
    by_json_out_key(o, "parameters");
    by_json_out_value(o, t->parameters);
    by_json_out_key(o, "strict");
    if (t->strict) by_json_out_bool(o, *t->strict);
    else by_json_out_null(o);
    by_buf_push_byte(o->buf, '}');
    if (t->defer_loading) by_buf_push_z(o->buf, ",\"defer_loading\":true");
    by_buf_push_byte(o->buf, '}');
}

by_status by_tools_constraint(by_convert *cv, by_str *out) {
    const by_recipe_conversation *c = &cv->out->conversation;
    enum { USUAL_BYTES = 1024 }; /* of a tool: most requests grow the buffer once */
    by_buf text = {0};
    by_buf_reserve(&text, by_mul_size(c->n_tools, USUAL_BYTES));
    by_json_out o = by_json_out_init(&text, BY_JSON_COMPACT);
    by_json_out_array_begin(&o);
    for (uint32_t i = 0; i < c->n_tools; i++) put_tool(&o, &c->tools[i]);
    by_json_out_array_end(&o);
    *out = text.failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(&text));
    by_buf_deinit(&text);
    return out->ptr ? BY_OK : by_no_memory(cv);
}
