/* conform_recipe.c - kinds of vectors/recipe that turn requests and conversations into prompts: render, image_tokens,
 * special_token (and, in conform_convert.c, those that start from a request). */
#include <string.h>

#include "cli/conform.h"
#include "cli/conform_recipe.h"
#include "recipe/image_tokens.h"
#include "recipe/prompt.h"

/* ---- reading a conversation ---- */

static by_str string_of(const by_json *obj, const char *key) {
    const by_json *v = by_json_get(obj, key);
    return by_json_is(v, BY_JSON_STRING) ? v->v.s : by_str_of(NULL, 0);
}

static bool has_string(const by_json *obj, const char *key) { return by_json_is(by_json_get(obj, key), BY_JSON_STRING); }
static bool is_true(const by_json *obj, const char *key) {
    const by_json *v = by_json_get(obj, key);
    return by_json_is(v, BY_JSON_BOOL) && v->v.b;
}

static uint32_t items_of(const by_json *obj, const char *key, const by_json **items) {
    const by_json *v = by_json_get(obj, key);
    if (!by_json_is(v, BY_JSON_ARRAY)) return 0;
    *items = v->v.items;
    return v->n;
}

static by_status no_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for a row"); }

static by_status read_tools(by_arena *arena, const by_json *obj, const by_recipe_tool **out, uint32_t *n, by_err *err) {
    const by_json *items = NULL;
    *n = items_of(obj, "tools", &items);
    by_recipe_tool *tools = by_arena_zero(arena, by_mul_size(*n, sizeof *tools));
    if (!tools) return no_memory(err);
    for (uint32_t i = 0; i < *n; i++) {
        const by_json *p = by_json_get(&items[i], "parameters");
        tools[i] = (by_recipe_tool){.name = string_of(&items[i], "name"),
                                    .description = string_of(&items[i], "description"),
                                    .has_description = has_string(&items[i], "description"),
                                    .parameters = p && p->type != BY_JSON_NULL ? p : NULL,
                                    .defer_loading = is_true(&items[i], "defer_loading")};
    }
    *out = tools;
    return BY_OK;
}

static by_status read_content(by_arena *arena, const by_json *row, by_recipe_text *out, by_err *err) {
    const by_json *urls = NULL;
    uint32_t n = items_of(row, "images", &urls);
    by_recipe_image *images = by_arena_zero(arena, by_mul_size(n, sizeof *images));
    if (!images) return no_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        if (urls[i].type != BY_JSON_STRING) return BY_FAIL(err, BY_EFORMAT, "images[%u]: want string", i);
        images[i] = (by_recipe_image){.kind = BY_IMAGE_URL, .detail = BY_DETAIL_HIGH, .url = urls[i].v.s};
    }
    /* other special tokens do not change the spelling in a conversation that is given directly */
    by_str spelling = by_recipe_specials_default()->text[BY_SPECIAL_IMAGE];
    return by_recipe_text_with_images(out, arena, string_of(row, "content"), images, n, spelling, err);
}

static by_status read_message(by_arena *arena, const by_json *row, by_recipe_message *m, by_err *err) {
    by_str role = string_of(row, "role");
    int r = BY_ROLE_SYSTEM;
    while (r <= BY_ROLE_LATEST_REMINDER && !by_str_eqz(role, by_recipe_role_name((by_recipe_role)r))) r++;
    if (r > BY_ROLE_LATEST_REMINDER) return BY_FAIL(err, BY_EFORMAT, "unknown role '%.*s'", BY_STR_ARG(role));
    *m = (by_recipe_message){.role = (by_recipe_role)r,
                             .prefix = is_true(row, "prefix"),
                             .reasoning = string_of(row, "reasoning_content"),
                             .has_reasoning = has_string(row, "reasoning_content"),
                             .call_id = string_of(row, "tool_call_id"),
                             .has_call_id = has_string(row, "tool_call_id")};
    BY_TRY(read_content(arena, row, &m->content, err));
    BY_TRY(read_tools(arena, row, &m->tools, &m->n_tools, err));
    const by_json *items = NULL;
    m->n_calls = items_of(row, "tool_calls", &items);
    by_recipe_call *calls = by_arena_zero(arena, by_mul_size(m->n_calls, sizeof *calls));
    if (!calls) return no_memory(err);
    for (uint32_t i = 0; i < m->n_calls; i++)
        calls[i] = (by_recipe_call){string_of(&items[i], "id"), string_of(&items[i], "name"),
                                    string_of(&items[i], "arguments")};
    m->calls = calls;
    return BY_OK;
}

static void read_settings(const by_json *row, by_recipe_conversation *c) {
    const by_json *thinking = by_json_get(row, "thinking_mode"), *schema = by_json_get(row, "response_schema");
    c->thinking = !by_json_is(thinking, BY_JSON_BOOL) || thinking->v.b;
    by_str choice = string_of(row, "tool_choice"), effort = string_of(row, "reasoning_effort");
    for (int i = BY_CHOICE_AUTO; i <= BY_CHOICE_REQUIRED; i++)
        if (by_str_eqz(choice, by_recipe_choice_name((by_recipe_choice)i))) c->choice = (by_recipe_choice)i;
    for (int i = BY_EFFORT_LOW; i <= BY_EFFORT_MAX; i++)
        if (by_str_eqz(effort, by_recipe_effort_name((by_recipe_effort)i))) c->effort = (by_recipe_effort)i;
    if (by_str_eqz(string_of(row, "response_format"), "json_object")) c->format = BY_FORMAT_JSON_OBJECT;
    if (schema && schema->type != BY_JSON_NULL) {
        c->format = BY_FORMAT_JSON_SCHEMA;
        c->schema = schema;
    }
    if (has_string(row, "response_regex")) {
        c->format = BY_FORMAT_REGEX;
        c->regex = string_of(row, "response_regex");
    }
}

static by_status read_conversation(by_arena *arena, const by_json *row, by_recipe_conversation *c, by_err *err) {
    const by_json *items = NULL;
    *c = (by_recipe_conversation){.n_messages = items_of(row, "messages", &items)};
    by_recipe_message *messages = by_arena_zero(arena, by_mul_size(c->n_messages, sizeof *messages));
    if (!messages) return no_memory(err);
    for (uint32_t i = 0; i < c->n_messages; i++) BY_TRY(read_message(arena, &items[i], &messages[i], err));
    c->messages = messages;
    BY_TRY(read_tools(arena, row, &c->tools, &c->n_tools, err));
    read_settings(row, c);
    return BY_OK;
}

by_status by_conform_specials(const by_json *overrides, by_recipe_specials *out, by_err *err) {
    *out = *by_recipe_specials_default();
    if (!by_json_is(overrides, BY_JSON_OBJECT)) return BY_OK;
    for (uint32_t i = 0; i < overrides->n; i++) {
        const by_json_member *m = &overrides->v.members[i];
        by_recipe_special token;
        if (!by_recipe_special_by_key(m->key, &token) || m->value.type != BY_JSON_STRING)
            return BY_FAIL(err, BY_EFORMAT, "special_tokens.%.*s", BY_STR_ARG(m->key));
        out->text[token] = m->value.v.s;
    }
    return BY_OK;
}

/* ---- writing ---- */

void by_conform_write_ranges(by_json_out *o, const by_recipe_prompt *p) {
    size_t at = 0, n_chars = 0;
    by_json_out_array_begin(o);
    for (size_t i = 0; i < p->n_ranges; i++) {
        n_chars += by_utf8_count(by_str_of(p->text.ptr + at, p->ranges[i].begin - at));
        by_json_out_array_begin(o);
        by_json_out_uint(o, n_chars);
        n_chars += by_utf8_count(by_str_of(p->text.ptr + p->ranges[i].begin, p->ranges[i].end - p->ranges[i].begin));
        by_json_out_uint(o, n_chars);
        by_json_out_array_end(o);
        at = p->ranges[i].end;
    }
    by_json_out_array_end(o);
}

static void write_rendered(by_json_out *o, const by_recipe_prompt *p) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "ok");
    by_json_out_bool(o, true);
    by_json_out_key(o, "prompt");
    by_json_out_string(o, by_buf_str(&p->text));
    by_json_out_key(o, "special_ranges");
    by_conform_write_ranges(o, p);
    by_json_out_key(o, "images");
    by_json_out_array_begin(o);
    for (size_t i = 0; i < p->n_images; i++) by_json_out_string(o, p->images[i]->url);
    by_json_out_array_end(o);
    by_json_out_object_end(o);
}

static by_status run_render(by_conform *c, const by_json *row, const by_json *input, by_json_out *result, by_err *err) {
    (void)c, (void)row;
    const by_json *encoding, *conversation;
    BY_TRY(by_conform_field(input, "encoding", BY_JSON_STRING, &encoding, err));
    BY_TRY(by_conform_field(input, "conversation", BY_JSON_OBJECT, &conversation, err));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_REQUEST);
    by_recipe_prompt prompt = {0};
    by_recipe_specials specials;
    by_recipe_conversation cv;
    by_status status = by_conform_specials(by_json_get(input, "special_tokens"), &specials, err);
    /* messages are built with the default spelling of the placeholder, as the vectors' maker did */
    if (status == BY_OK) status = read_conversation(&arena, conversation, &cv, err);
    bool v4 = by_str_eqz(encoding->v.s, "v4");
    if (status == BY_OK) status = by_recipe_render(&prompt, &cv, v4 ? BY_RECIPE_V4 : BY_RECIPE_V41, &specials, err);
    if (status == BY_OK) write_rendered(result, &prompt);
    by_recipe_prompt_deinit(&prompt);
    by_arena_deinit(&arena);
    return status;
}

static by_status run_image_tokens(by_conform *c, const by_json *row, const by_json *input, by_json_out *result,
                                  by_err *err) {
    (void)c, (void)row;
    int64_t w, h;
    if (!by_json_int_in(by_json_get(input, "width"), 0, UINT32_MAX, &w) ||
        !by_json_int_in(by_json_get(input, "height"), 0, UINT32_MAX, &h))
        return BY_FAIL(err, BY_EFORMAT, "input.width, input.height: want integers of 32 bits");
    uint32_t n;
    BY_TRY(by_recipe_image_tokens(&n, (uint32_t)w, (uint32_t)h, err));
    by_json_out_object_begin(result);
    by_json_out_key(result, "ok");
    by_json_out_bool(result, true);
    by_json_out_key(result, "tokens");
    by_json_out_uint(result, n);
    by_json_out_object_end(result);
    return BY_OK;
}

static by_status run_special(by_conform *c, const by_json *row, const by_json *input, by_json_out *result, by_err *err) {
    (void)c, (void)row;
    const by_json *name;
    by_recipe_special token;
    BY_TRY(by_conform_field(input, "token", BY_JSON_STRING, &name, err));
    if (!by_recipe_special_by_name(name->v.s, &token))
        return BY_FAIL(err, BY_EFORMAT, "unknown token '%.*s'", BY_STR_ARG(name->v.s));
    by_json_out_object_begin(result);
    by_json_out_key(result, "spelling");
    by_json_out_string(result, by_recipe_specials_default()->text[token]);
    by_json_out_object_end(result);
    return BY_OK;
}

const by_conform_kind by_conform_recipe_kinds[] = {
    {"render", run_render},
    {"image_tokens", run_image_tokens},
    {"special_token", run_special},
    {NULL, NULL},
};
