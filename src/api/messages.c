/* messages.c - Messages requests. Order of the checks: model, tools, messages block by block, choice of tools, stop,
 * temperature, top_p, max_tokens. */
#include <stdlib.h>

#include "api/convert.h"
#include "api/messages_shape.h"
#include "json/json_write.h"
#include "recipe/templates.h"

typedef struct {
    by_convert *cv;
    uint32_t at; /* index of the message */

    /* calls of the assistant message in front: ids, and 0 waiting, 1 answered */
    const by_recipe_call *calls;
    uint32_t n_calls, n_waiting;
    by_str_set ids;

    by_str_set tool_names; /* name -> index of the tool */
    /* tools that references of this message made available */
    by_recipe_tool *loaded;
    uint32_t n_loaded, cap_loaded;
} reader;

/* ---- places and errors ---- */

/* "messages.2", and behind it any of "", ".content[1]", ".content.1" ... */
static by_status place_of(reader *r, const char *before, uint32_t i, const char *behind, by_str *out) {
    by_convert *cv = r->cv;
    const by_str parts[] = {BY_STR("messages."), by_number_text(cv, r->at), by_str_z(before), by_number_text(cv, i),
                            by_str_z(behind)};
    return by_join(cv, parts, before[0] ? 5 : 2, by_str_of(NULL, 0), out);
}

static by_status refuse_at(reader *r, const char *what) {
    by_str place;
    BY_TRY(place_of(r, "", 0, "", &place));
    return BY_REFUSE(r->cv, place, by_str_z(what));
}

static int compare_texts(const void *a, const void *b) { return by_str_cmp(*(const by_str *)a, *(const by_str *)b); }

/* place ends in ": ", or, as the original has it at one place, in ":". */
static by_status refuse_waiting(reader *r, by_str place) {
    by_convert *cv = r->cv;
    by_str *names = BY_MAKE(cv, by_str, r->n_calls), list;
    size_t n = 0;
    if (!names) return by_no_memory(cv);
    for (uint32_t i = 0; i < r->n_calls; i++)
        if (*by_str_set_find(&r->ids, r->calls[i].id) == 0) names[n++] = r->calls[i].id;
    qsort(names, n, sizeof *names, compare_texts);
    BY_TRY(by_join(cv, names, (uint32_t)n, BY_STR(", "), &list));
    return BY_REFUSE(cv, place, BY_STR("`tool_use` ids were found without `tool_result` blocks immediately after: "), list,
                     BY_STR(". Each `tool_use` block must have a corresponding `tool_result` block in the next message."));
}

/* Calls of the message in front still wait where this message offers something else. */
static by_status check_no_waiting(reader *r) {
    if (r->n_waiting == 0) return BY_OK;
    by_str place;
    BY_TRY(place_of(r, "", 0, "", &place));
    const by_str parts[] = {place, BY_STR(": ")};
    BY_TRY(by_join(r->cv, parts, 2, by_str_of(NULL, 0), &place));
    return refuse_waiting(r, place);
}

/* The message behind the one with calls has ended, or there is none. */
static by_status check_answered(reader *r, uint32_t caller) {
    if (r->n_waiting == 0) return BY_OK;
    by_str place;
    uint32_t at = r->at;
    r->at = caller;
    by_status status = place_of(r, "", 0, "", &place);
    r->at = at;
    BY_TRY(status);
    const by_str parts[] = {place, BY_STR(":")};
    BY_TRY(by_join(r->cv, parts, 2, by_str_of(NULL, 0), &place));
    return refuse_waiting(r, place);
}

/* ---- tools ---- */

static by_status load_tool(reader *r, uint32_t index) {
    if (r->n_loaded == r->cap_loaded) {
        uint32_t cap = r->cap_loaded ? r->cap_loaded * 2 : 8;
        by_recipe_tool *fresh = BY_MAKE(r->cv, by_recipe_tool, cap);
        if (!fresh) return by_no_memory(r->cv);
        if (r->n_loaded) memcpy(fresh, r->loaded, r->n_loaded * sizeof *fresh);
        r->loaded = fresh;
        r->cap_loaded = cap;
    }
    r->loaded[r->n_loaded++] = r->cv->tools[index];
    return BY_OK;
}

/* The tools loaded so far become the message's. V4 has all of them in its first list. */
static void take_loaded(reader *r, by_recipe_message *m) {
    m->tools = r->loaded;
    m->n_tools = r->n_loaded;
    r->loaded = NULL;
    r->n_loaded = r->cap_loaded = 0;
}

static by_status convert_tool(by_convert *cv, const by_json *record, uint32_t i, by_recipe_tool *out, bool *ours) {
    *ours = by_variant(record) == 0;
    if (!*ours) {
        bool search = by_str_starts(by_field(record, MT_SERVER_TYPE)->v.s, BY_STR("web_search"));
        if (search && !cv->opt->reject_messages_web_search) return BY_OK;
        return BY_REFUSE(cv, BY_STR("tools["), by_number_text(cv, i), BY_STR("]: server tools are not supported"));
    }
    const by_json *description = by_field(record, MT_DESCRIPTION), *defer = by_field(record, MT_DEFER);
    const by_json *strict = by_field(record, MT_STRICT);
    if (cv->server && by_given(strict) && strict->type != BY_JSON_BOOL)
        return BY_REFUSE(cv, BY_STR("tools["), by_number_text(cv, i), BY_STR("].strict: a boolean is expected"));
    *out = (by_recipe_tool){.name = by_field(record, MT_NAME)->v.s,
                            .has_description = by_given(description),
                            .parameters = by_field(record, MT_SCHEMA),
                            .strict = cv->server && by_given(strict) ? &strict->v.b : NULL,
                            .defer_loading = by_given(defer) && defer->v.b};
    if (by_given(description)) out->description = description->v.s;
    if (by_is_tool_name(out->name)) return BY_OK;
    by_str place;
    const by_str parts[] = {BY_STR("tools["), by_number_text(cv, i), BY_STR("]")};
    BY_TRY(by_join(cv, parts, 3, by_str_of(NULL, 0), &place));
    return by_refuse_tool_name(cv, out->name, place);
}

static by_status convert_tools(reader *r, const by_json *list) {
    by_convert *cv = r->cv;
    if (!by_given(list) || list->n == 0) return by_str_set_init(cv, &r->tool_names, 0);
    by_recipe_tool *tools = BY_MAKE(cv, by_recipe_tool, list->n);
    uint32_t n = 0, n_deferred = 0;
    if (!tools) return by_no_memory(cv);
    for (uint32_t i = 0; i < list->n; i++) {
        bool ours;
        BY_TRY(convert_tool(cv, &list->v.items[i], i, &tools[n], &ours));
        if (!ours) continue;
        n_deferred += tools[n].defer_loading;
        n++;
    }
    if (n && n_deferred == n && cv->out->version == BY_RECIPE_V41)
        return BY_REFUSE(cv, BY_STR("tools: at least one tool must have defer_loading=false. All tools cannot be deferred."));
    BY_TRY(by_str_set_init(cv, &r->tool_names, n));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *index;
        by_str_set_add(&r->tool_names, tools[i].name, &index);
        *index = i;
        if (cv->out->version == BY_RECIPE_V4) tools[i].defer_loading = false;
    }
    cv->tools = tools;
    cv->n_tools = n;
    return BY_OK;
}

/* ---- blocks of content ---- */

/* path: what the source records; place: what messages begin with. */
static by_status convert_image(reader *r, const by_json *record, by_str path, by_str place, by_content *c) {
    by_convert *cv = r->cv;
    const by_json *source = by_field(record, MK_IMAGE_SOURCE);
    const by_recipe_image *image = NULL;
    if (cv->out->version == BY_RECIPE_V4) {
        by_content_image(cv, c, NULL);
        return BY_OK;
    }
    switch (by_variant(source)) {
    case MS_BASE64:
        BY_TRY(by_image_from_base64(cv, by_str_z(by_messages_media_types[by_field(source, MS_MEDIA_TYPE)->v.i]),
                                    by_field(source, MS_DATA)->v.s, path, place, &image));
        break;
    case MS_URL: BY_TRY(by_image_from_link(cv, by_field(source, MS_LINK)->v.s, path, place, &image)); break;
    default:
        return BY_REFUSE(cv, place, BY_STR(": file_id is not supported. Pass the image as a base64 data url instead."));
    }
    by_content_image(cv, c, image);
    return BY_OK;
}

static by_status convert_document(reader *r, const by_json *record, by_content *c) {
    const by_json *type = by_field(by_field(record, MK_DOCUMENT_SOURCE), 0);
    const by_str parts[] = {BY_STR("[Unsupported document type: "), by_given(type) ? type->v.s : BY_STR("unknown"), BY_STR("]")};
    by_str text;
    BY_TRY(by_join(r->cv, parts, 3, by_str_of(NULL, 0), &text));
    by_content_text(c, text);
    return BY_OK;
}

/* Text, image or document number i of a message. */
static by_status convert_plain(reader *r, const by_json *record, uint32_t i, bool system, by_content *c) {
    by_str place, path;
    switch (by_variant(record)) {
    case MK_TEXT: by_content_text(c, by_field(record, MK_TEXT_TEXT)->v.s); return BY_OK;
    case MK_IMAGE:
        BY_TRY(place_of(r, ".content[", i, "]", &place));
        BY_TRY(place_of(r, "", 0, "", &path));
        return convert_image(r, record, system ? path : place, place, c);
    default: return convert_document(r, record, c);
    }
}

/* In V4, empty texts of users leave no trace. */
static bool is_skipped(reader *r, const by_json *record) {
    return r->cv->out->version == BY_RECIPE_V4 && by_variant(record) == MK_TEXT && by_field(record, MK_TEXT_TEXT)->v.s.len == 0;
}

/* A block that its role may not hold. */
static by_status check_role(reader *r, const by_json *record, int64_t role) {
    switch (by_variant(record)) {
    case MK_THINKING:
        return role == MR_ASSISTANT ? BY_OK : refuse_at(r, ".content: thinking blocks may only be in `assistant` messages");
    case MK_TOOL_USE:
    case MK_SERVER_TOOL_USE:
        return role == MR_ASSISTANT ? BY_OK : refuse_at(r, ": `tool_use` blocks can only be in `assistant` messages");
    case MK_SEARCH_RESULT:
        return role == MR_ASSISTANT ? BY_OK
                                    : refuse_at(r, ": `web_search_tool_result` blocks can only be in `assistant` messages");
    case MK_TOOL_RESULT: return role == MR_USER ? BY_OK : refuse_at(r, ": `tool_result` blocks can only be in `user` messages");
    case MK_TOOL_ADDITION:
        return role == MR_SYSTEM ? BY_OK : refuse_at(r, ": `tool_addition` blocks can only be in `system` messages");
    default: return BY_OK;
    }
}

/* ---- user ---- */

static by_status check_references(reader *r, const by_json *list, uint32_t at) {
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *b = &list->v.items[i];
        if (by_variant(b) != MK_TOOL_REFERENCE) continue;
        by_str name = by_field(b, MK_REFERENCE_NAME)->v.s, place;
        const uint32_t *index = by_str_set_find(&r->tool_names, name);
        if (!index) {
            BY_TRY(place_of(r, ".content.", at, ": tool reference '", &place));
            return BY_REFUSE(r->cv, place, name, BY_STR("' not found in available tools"));
        }
        BY_TRY(load_tool(r, *index));
    }
    return BY_OK;
}

static by_status convert_result_content(reader *r, const by_json *v, uint32_t at, by_recipe_text *out) {
    if (!by_given(v)) return BY_OK;
    if (v->type == BY_JSON_STRING) return by_content_of_string(r->cv, v->v.s, out);
    by_content c;
    BY_TRY(check_references(r, v, at));
    BY_TRY(by_content_begin(r->cv, &c, v->n));
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json *b = &v->v.items[i];
        by_str path, place;
        switch (by_variant(b)) {
        case MK_TEXT: by_content_text(&c, by_field(b, MK_TEXT_TEXT)->v.s); break;
        case MK_TOOL_REFERENCE: by_content_text(&c, by_field(b, MK_REFERENCE_NAME)->v.s); break;
        case MK_DOCUMENT: BY_TRY(convert_document(r, b, &c)); break;
        default: {
            BY_TRY(place_of(r, ".content.", at, ".tool_result", &path));
            const by_str parts[] = {path, BY_STR(".content["), by_number_text(r->cv, i), BY_STR("]")};
            BY_TRY(by_join(r->cv, parts, 4, by_str_of(NULL, 0), &place));
            BY_TRY(convert_image(r, b, path, place, &c));
        }
        }
    }
    *out = by_content_end(&c);
    return BY_OK;
}

static by_status convert_result(reader *r, const by_json *record, uint32_t at) {
    by_convert *cv = r->cv;
    by_str id = by_field(record, MK_RESULT_ID)->v.s, place;
    uint32_t *answered = r->n_calls ? by_str_set_find(&r->ids, id) : NULL;
    if (!answered) {
        BY_TRY(place_of(r, ".content.", at, ": tool_use_id` found in `tool_result` blocks: ", &place));
        return BY_REFUSE(cv, BY_STR("unexpected `"), place, id,
                         BY_STR(". Each `tool_result` block must have a corresponding `tool_use` block in the previous message."));
    }
    if (*answered) {
        BY_TRY(place_of(r, ".content.", at,
                        ": each tool_use must have a single result. Found multiple `tool_result` blocks with id: ", &place));
        return BY_REFUSE(cv, place, id);
    }
    *answered = 1;
    r->n_waiting--;
    by_recipe_message *m;
    BY_TRY(by_add_message(cv, BY_ROLE_TOOL, &m));
    m->call_id = id;
    m->has_call_id = true;
    return convert_result_content(r, by_field(record, MK_RESULT_CONTENT), at, &m->content);
}

static by_status convert_user_blocks(reader *r, const by_json *list) {
    by_content c;
    bool speaks = false;
    if (list->n == 0) return refuse_at(r, ": all messages must have non-empty content");
    BY_TRY(by_content_begin(r->cv, &c, list->n));
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *b = &list->v.items[i];
        BY_TRY(check_role(r, b, MR_USER));
        if (by_variant(b) == MK_TOOL_RESULT) {
            BY_TRY(convert_result(r, b, i));
            continue;
        }
        BY_TRY(check_no_waiting(r));
        speaks = true;
        if (!is_skipped(r, b)) BY_TRY(convert_plain(r, b, i, false, &c));
    }
    if (r->n_waiting) return check_answered(r, r->at - 1);
    by_recipe_message *m;
    if (speaks) {
        BY_TRY(by_add_message(r->cv, BY_ROLE_USER, &m));
        m->content = by_content_end(&c);
    }
    if (r->n_loaded) {
        BY_TRY(by_add_message(r->cv, BY_ROLE_SYSTEM, &m));
        take_loaded(r, m);
    }
    return BY_OK;
}

static by_status convert_user(reader *r, const by_json *v) {
    if (v->type == BY_JSON_ARRAY) return convert_user_blocks(r, v);
    by_recipe_message *m;
    BY_TRY(check_no_waiting(r));
    BY_TRY(by_add_message(r->cv, BY_ROLE_USER, &m));
    return by_content_of_string(r->cv, v->v.s, &m->content);
}

/* ---- assistant ---- */

static by_status arguments_text(by_convert *cv, const by_json *v, by_str *out) {
    by_buf text = {0};
    by_json_write(&text, v, BY_JSON_WIDE); /* seen as it is where it is no object */
    *out = text.failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(&text));
    by_buf_deinit(&text);
    return out->ptr ? BY_OK : by_no_memory(cv);
}

static by_status add_call(reader *r, by_recipe_call *calls, const by_json *record, uint32_t at) {
    by_recipe_call *c = &calls[r->n_calls];
    uint32_t *value;
    *c = (by_recipe_call){.id = by_field(record, MK_USE_ID)->v.s, .name = by_field(record, MK_USE_NAME)->v.s};
    BY_TRY(arguments_text(r->cv, by_field(record, MK_USE_INPUT), &c->arguments));
    if (!by_str_set_add(&r->ids, c->id, &value)) {
        by_str place;
        BY_TRY(place_of(r, ".content.", at, ": `tool_use` ids must be unique", &place));
        return BY_REFUSE(r->cv, place);
    }
    r->calls = calls;
    r->n_calls++;
    r->n_waiting++;
    return BY_OK;
}

static by_status convert_assistant_plain(reader *r, const by_json *record, uint32_t at, by_content *c) {
    if (r->n_waiting) {
        by_str place;
        BY_TRY(place_of(r, ".", at, ": ", &place));
        return refuse_waiting(r, place);
    }
    if (c->n == 1 && !c->pieces[0].image && c->pieces[0].text.len == 0) c->n = 0; /* empty texts in front do not count */
    BY_TRY(convert_plain(r, record, at, false, c));
    if (c->pieces[c->n - 1].image) return BY_REFUSE(r->cv, BY_STR("Image in assistant message is unsupported"));
    return BY_OK;
}

static by_status convert_assistant_blocks(reader *r, const by_json *list, by_recipe_message *m) {
    by_convert *cv = r->cv;
    by_content c;
    if (list->n == 0) return refuse_at(r, ": all messages must have non-empty content");
    by_str *thoughts = BY_MAKE(cv, by_str, list->n);
    by_recipe_call *calls = BY_MAKE(cv, by_recipe_call, list->n);
    uint32_t n_thoughts = 0, n_uses = 0;
    if (!thoughts || !calls) return by_no_memory(cv);
    BY_TRY(by_content_begin(cv, &c, list->n));
    for (uint32_t i = 0; i < list->n; i++) n_uses += by_variant(&list->v.items[i]) == MK_TOOL_USE;
    BY_TRY(by_str_set_init(cv, &r->ids, n_uses));
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *b = &list->v.items[i];
        BY_TRY(check_role(r, b, MR_ASSISTANT));
        switch (by_variant(b)) {
        case MK_THINKING: thoughts[n_thoughts++] = by_field(b, 1)->v.s; break;
        case MK_TOOL_USE: BY_TRY(add_call(r, calls, b, i)); break;
        case MK_SERVER_TOOL_USE:
        case MK_SEARCH_RESULT:
            if (cv->opt->reject_messages_web_search)
                return BY_REFUSE(cv, BY_STR("Unsupported content block: server tools are not supported"));
            break;
        default: BY_TRY(convert_assistant_plain(r, b, i, &c));
        }
    }
    m->content = by_content_end(&c);
    m->calls = calls;
    m->n_calls = r->n_calls;
    m->has_reasoning = n_thoughts > 0;
    return by_join(cv, thoughts, n_thoughts, BY_STR("\n\n"), &m->reasoning);
}

static by_status convert_assistant(reader *r, const by_json *v) {
    by_recipe_message *m;
    BY_TRY(check_no_waiting(r));
    BY_TRY(by_add_message(r->cv, BY_ROLE_ASSISTANT, &m));
    r->n_calls = r->n_waiting = 0;
    if (v->type == BY_JSON_STRING) return by_content_of_string(r->cv, v->v.s, &m->content);
    return convert_assistant_blocks(r, v, m);
}

/* ---- system ---- */

static by_status convert_system_blocks(reader *r, const by_json *list, by_recipe_message *m) {
    by_content c;
    BY_TRY(by_content_begin(r->cv, &c, list->n));
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *b = &list->v.items[i];
        BY_TRY(check_role(r, b, MR_SYSTEM));
        if (by_variant(b) != MK_TOOL_ADDITION) {
            BY_TRY(convert_plain(r, b, i, true, &c));
            continue;
        }
        by_str name = by_field(by_field(b, MK_ADDITION_TOOL), 1)->v.s, place;
        const uint32_t *index = by_str_set_find(&r->tool_names, name);
        if (!index) {
            BY_TRY(place_of(r, ".content.", i, ": `tool_addition` references unknown tool '", &place));
            return BY_REFUSE(r->cv, place, name, BY_STR("'"));
        }
        BY_TRY(load_tool(r, *index));
    }
    m->content = by_content_end(&c);
    take_loaded(r, m);
    return BY_OK;
}

/* V4 has no system messages in the middle: the text becomes a user's, in a wrapping; an empty one vanishes. */
static by_status wrap_for_v4(reader *r, by_recipe_message *m) {
    const by_recipe_template *t = &by_recipe_templates[BY_TEMPLATE_V4_MESSAGES_MID_SYSTEM];
    if (by_recipe_text_is_empty(m->content)) {
        r->cv->n_messages--;
        return BY_OK;
    }
    by_recipe_piece *pieces = BY_MAKE(r->cv, by_recipe_piece, m->content.n + 2);
    if (!pieces) return by_no_memory(r->cv);
    pieces[0].text = by_str_of(t->parts[0].text, t->parts[0].len);
    memcpy(pieces + 1, m->content.pieces, m->content.n * sizeof *pieces);
    pieces[m->content.n + 1].text = by_str_of(t->parts[2].text, t->parts[2].len);
    *m = (by_recipe_message){.role = BY_ROLE_USER, .content = {pieces, m->content.n + 2}};
    return BY_OK;
}

static by_status convert_system(reader *r, const by_json *v) {
    by_recipe_message *m;
    BY_TRY(check_no_waiting(r));
    BY_TRY(by_add_message(r->cv, BY_ROLE_SYSTEM, &m));
    if (v->type == BY_JSON_STRING) BY_TRY(by_content_of_string(r->cv, v->v.s, &m->content));
    else BY_TRY(convert_system_blocks(r, v, m));
    return r->cv->out->version == BY_RECIPE_V4 ? wrap_for_v4(r, m) : BY_OK;
}

/* The system field; a first block with a client's billing line is left out. */
static by_status convert_system_field(by_convert *cv, const by_json *v) {
    by_recipe_message *m;
    if (!by_given(v)) return BY_OK;
    BY_TRY(by_add_message(cv, BY_ROLE_SYSTEM, &m));
    if (v->type == BY_JSON_STRING) return by_content_of_string(cv, v->v.s, &m->content);
    by_content c;
    BY_TRY(by_content_begin(cv, &c, v->n));
    for (uint32_t i = 0; i < v->n; i++) {
        by_str text = by_field(&v->v.items[i], 1)->v.s;
        if (i == 0 && by_str_starts(text, BY_STR("x-anthropic-billing-header"))) continue;
        by_content_text(&c, text);
    }
    m->content = by_content_end(&c);
    return BY_OK;
}

/* ---- the request ---- */

static by_status convert_messages(reader *r, const by_json *list) {
    if (list->n == 0) return BY_REFUSE(r->cv, BY_STR("messages: at least one message is required"));
    for (r->at = 0; r->at < list->n; r->at++) {
        const by_json *m = &list->v.items[r->at], *content = by_field(m, MM_CONTENT);
        int64_t role = by_field(m, MM_ROLE)->v.i;
        if (role == MR_ASSISTANT) {
            BY_TRY(convert_assistant(r, content));
            continue;
        }
        BY_TRY(role == MR_USER ? convert_user(r, content) : convert_system(r, content));
        r->n_calls = 0; /* results stand in the very next message */
    }
    return check_answered(r, list->n - 1);
}

/* A choice that names a web search tool which was dropped is no choice. */
static bool names_dropped_tool(const by_json *tools, by_str name) {
    for (uint32_t i = 0; by_given(tools) && i < tools->n; i++) {
        const by_json *t = &tools->v.items[i];
        if (by_variant(t) == 1 && by_given(by_field(t, MT_SERVER_NAME)) && by_str_eq(by_field(t, MT_SERVER_NAME)->v.s, name))
            return true;
    }
    return false;
}

/* The original takes `any` for `auto`, and so does the prompt; in the server profile a call is forced all the same. */
static by_status convert_choice(by_convert *cv, const by_json *v, const by_json *tools) {
    by_choice c = {BY_CHOICE_AUTO, {NULL, 0}};
    if (cv->server && by_given(v) && by_variant(v) != MC_NONE) {
        const by_json *one = by_field(v, by_variant(v) == MC_TOOL ? MC_NAME + 1 : MC_ONE_CALL);
        cv->one_call = by_given(one) && one->v.b;
        cv->force_call = by_variant(v) == MC_ANY;
    }
    if (by_given(v) && by_variant(v) == MC_NONE) c.word = BY_CHOICE_NONE;
    if (by_given(v) && by_variant(v) == MC_TOOL && !names_dropped_tool(tools, by_field(v, MC_NAME)->v.s))
        c.name = by_field(v, MC_NAME)->v.s;
    return by_apply_choice(cv, c);
}

by_status by_convert_messages(by_convert *cv, by_json *body) {
    static const by_json none = {.type = BY_JSON_NULL};
    by_json whole = *body;
    reader r = {.cv = cv};
    BY_TRY(by_check_body(cv, body, &by_messages_body));
    BY_TRY(by_check_model(cv, by_field(body, MB_MODEL)->v.s));
    const by_json *config = by_field(body, MB_OUTPUT_CONFIG), *effort = by_given(config) ? by_field(config, 0) : &none;
    const by_json *stream = by_field(body, MB_STREAM), *tools = by_field(body, MB_TOOLS);
    by_set_thinking(cv, by_field(body, MB_THINKING), effort);
    BY_TRY(by_begin_server_fields(cv, &whole, by_field(body, MB_THINKING), effort));
    cv->out->stream = by_given(stream) && stream->v.b;
    BY_TRY(convert_tools(&r, tools));
    BY_TRY(convert_system_field(cv, by_field(body, MB_SYSTEM)));
    BY_TRY(convert_messages(&r, by_field(body, MB_MESSAGES)));
    BY_TRY(by_check_reasoning(cv, BY_STR("content[].thinking")));
    BY_TRY(convert_choice(cv, by_field(body, MB_CHOICE), tools));
    BY_TRY(by_drop_unchosen_tools(cv));
    BY_TRY(by_set_stop(cv, by_field(body, MB_STOP)));
    BY_TRY(by_set_temperature(cv, by_field(body, MB_TEMPERATURE)));
    BY_TRY(by_set_top_p(cv, by_field(body, MB_TOP_P)));
    BY_TRY(by_set_max_tokens(cv, by_field(body, MB_MAX_TOKENS), "max_tokens", true));
    BY_TRY(by_end_server_fields(cv, &whole));
    return by_finish_conversation(cv);
}
