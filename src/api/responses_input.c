/* responses_input.c - items of a Responses request become messages. Reasoning, assistant text and calls that follow each
 * other are one assistant message; the outputs of its calls must come right behind it. */
#include "api/responses.h"
#include "json/json_write.h"

typedef struct {
    by_convert *cv;
    by_responses_tools *tools;
    uint32_t at; /* index of the item */

    /* the assistant message that is being put together */
    bool open;
    by_str *parts; /* reasoning texts */
    uint32_t n_parts, cap_parts;
    bool has_reasoning;
    by_recipe_piece *pieces;
    uint32_t n_pieces, cap_pieces;
    bool has_text; /* a piece that is not empty */
    by_recipe_call *calls; /* also when the message is finished, as long as a call waits for its output */
    uint32_t n_calls, cap_calls;
    uint32_t turn; /* index of the message of these calls */

    const by_json *input;
    uint32_t n_waiting; /* calls without an output */
    by_str_set ids;     /* of all calls so far: 0 called, 1 answered */

    /* tools that the search outputs found: one entry for each, in their order; and those of the current turn, which become
     * system messages when the outputs are complete */
    struct found {
        uint32_t first, n;
    } *found, *late;
    uint32_t n_found, cap_found, n_late, cap_late;
} reader;

/* Room for one more item of an arena array. */
static void *grow(by_convert *cv, void *items, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap) return items;
    uint32_t fresh_cap = *cap ? *cap * 2 : 8;
    void *fresh = by_make(cv, fresh_cap, size);
    if (!fresh) return NULL;
    if (n) memcpy(fresh, items, n * size);
    *cap = fresh_cap;
    return fresh;
}

static by_status place_of(reader *r, const char *behind, uint32_t i, by_str *out) {
    by_convert *cv = r->cv;
    const by_str parts[] = {BY_STR("input["), by_number_text(cv, r->at), BY_STR("]"), by_str_z(behind), by_number_text(cv, i),
                            BY_STR("]")};
    return by_join(cv, parts, *behind ? 6 : 3, by_str_of(NULL, 0), out);
}

/* ---- content ---- */

/* Every picture of a list has exactly a link, and none is too long. list: ".content[" or ".output[". */
static by_status check_picture(reader *r, const by_json *p, const char *list, uint32_t i) {
    by_convert *cv = r->cv;
    const by_json *url = by_field(p, RP_IMAGE_URL), *id = by_field(p, RP_IMAGE_FILE_ID);
    bool has_url = by_given(url) && url->v.s.len, has_id = by_given(id);
    cv->at = (by_place){"input", r->at, list[1] == 'c' ? ".content" : ".output", i, has_id ? ".file_id" : ".image_url"};
    if (has_url && !has_id && !by_is_long_link(url->v.s)) return BY_OK;
    by_str place;
    BY_TRY(place_of(r, list, i, &place));
    if (has_url && has_id) return BY_REFUSE(cv, place, BY_STR(": input_image cannot have both image_url and file_id"));
    if (has_id)
        return BY_REFUSE(cv, place, BY_STR(": file_id is not supported. Pass the image as a base64 data url instead."));
    if (!has_url) return BY_REFUSE(cv, place, BY_STR(": input_image must have image_url or file_id"));
    const by_str parts[] = {place, BY_STR(": image_url ")};
    BY_TRY(by_join(cv, parts, 2, by_str_of(NULL, 0), &place));
    return by_refuse_long_link(cv, url->v.s, place);
}

/* All pictures of a list, before any of them is looked at closely; assistant messages hold none. path: of the item, made
 * when there is a picture. */
static by_status check_pictures(reader *r, const by_json *v, const char *list, bool assistant, by_str *path) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (by_variant(&v->v.items[i]) != RP_IMAGE) continue;
        if (n++ == 0) BY_TRY(place_of(r, "", 0, path));
        BY_TRY(check_picture(r, &v->v.items[i], list, i));
    }
    by_at_item(r->cv, "input", r->at, ".content");
    if (n && assistant) return BY_REFUSE(r->cv, *path, BY_STR(": Image in assistant message is unsupported"));
    return BY_OK;
}

static by_status convert_image(by_convert *cv, const by_json *p, by_str path, by_content *c) {
    const by_json *url = by_field(p, RP_IMAGE_URL), *detail = by_field(p, RP_IMAGE_DETAIL);
    const by_recipe_image *image = NULL;
    by_recipe_detail d = by_given(detail) ? (by_recipe_detail)detail->v.i : BY_DETAIL_HIGH;
    if (cv->out->version == BY_RECIPE_V41) BY_TRY(by_image_from_url(cv, url->v.s, d, path, &image));
    by_content_image(cv, c, image);
    return BY_OK;
}

static by_status convert_content(reader *r, const by_json *v, const char *list, bool assistant, by_recipe_text *out) {
    by_convert *cv = r->cv;
    if (v->type == BY_JSON_STRING) return by_content_of_string(cv, v->v.s, out);
    by_content c;
    by_str path = {0};
    if (cv->out->version == BY_RECIPE_V41) BY_TRY(check_pictures(r, v, list, assistant, &path));
    BY_TRY(by_content_begin(cv, &c, v->n));
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json *p = &v->v.items[i];
        switch (by_variant(p)) {
        case RP_TEXT:
        case RP_OUTPUT_TEXT: by_content_text(&c, by_field(p, RP_TEXT_TEXT)->v.s); break;
        case RP_FILE: by_content_text(&c, BY_STR("[Unsupported Document]")); break;
        default:
            cv->at = (by_place){"input", r->at, list[1] == 'c' ? ".content" : ".output", i, ".image_url"};
            BY_TRY(convert_image(cv, p, path, &c));
        }
    }
    *out = by_content_end(&c);
    return BY_OK;
}

/* ---- the assistant message ---- */

static bool is_call(const by_json *item) {
    uint32_t kind = by_variant(item);
    return kind == RI_CALL || kind == RI_CUSTOM_CALL || kind == RI_SEARCH_CALL;
}

static by_status refuse_unanswered(reader *r) {
    if (r->n_waiting == 0) return BY_OK;
    for (uint32_t i = 0; i < r->input->n; i++) {
        const by_json *item = &r->input->v.items[i];
        if (!is_call(item)) continue;
        by_str id = by_field(item, RI_CALL_ID)->v.s;
        const uint32_t *answered = by_str_set_find(&r->ids, id);
        by_at_item(r->cv, "input", i, NULL);
        if (answered && *answered == 0) return BY_REFUSE(r->cv, BY_STR("No tool output found for tool call "), id, BY_STR("."));
    }
    return BY_OK;
}

/* Ends the assistant message. */
static by_status flush(reader *r) {
    by_convert *cv = r->cv;
    if (!r->open) return BY_OK;
    by_recipe_message *m;
    r->turn = cv->n_messages;
    BY_TRY(by_add_message(cv, BY_ROLE_ASSISTANT, &m));
    m->has_reasoning = r->has_reasoning;
    if (r->has_reasoning) BY_TRY(by_join(cv, r->parts, r->n_parts, BY_STR("\n"), &m->reasoning));
    m->content = (by_recipe_text){r->pieces, r->n_pieces};
    m->calls = r->calls;
    m->n_calls = r->n_calls;
    r->open = r->has_reasoning = r->has_text = false;
    r->parts = NULL;
    r->pieces = NULL;
    r->n_parts = r->cap_parts = r->n_pieces = r->cap_pieces = 0;
    return BY_OK;
}

/* Opens an assistant message, unless one is open. */
static void open_message(reader *r) {
    if (r->open) return;
    r->open = true;
    r->calls = NULL;
    r->n_calls = r->cap_calls = 0;
}

static by_status add_reasoning(reader *r, const by_json *item) {
    const by_json *list = by_field(item, RI_REASONING_CONTENT);
    BY_TRY(refuse_unanswered(r));
    bool empty = !by_given(list) || list->n == 0 || (list->n == 1 && by_field(&list->v.items[0], 0)->v.s.len == 0);
    if (empty) return BY_OK;
    if (r->has_text) BY_TRY(flush(r));
    open_message(r);
    for (uint32_t i = 0; i < list->n; i++) {
        r->parts = grow(r->cv, r->parts, r->n_parts, &r->cap_parts, sizeof *r->parts);
        if (!r->parts) return by_no_memory(r->cv);
        r->parts[r->n_parts++] = by_field(&list->v.items[i], 0)->v.s;
    }
    r->has_reasoning = true;
    return BY_OK;
}

static by_status refuse_empty_id(reader *r) {
    by_at_item(r->cv, "input", r->at, ".call_id");
    by_str place;
    BY_TRY(place_of(r, "", 0, &place));
    return BY_REFUSE(
        r->cv, BY_STR("Invalid '"), place,
        BY_STR(".call_id': empty string. Expected a string with minimum length 1, but got an empty string instead."));
}

static by_status add_piece(reader *r, by_recipe_piece piece) {
    r->pieces = grow(r->cv, r->pieces, r->n_pieces, &r->cap_pieces, sizeof *r->pieces);
    if (!r->pieces) return by_no_memory(r->cv);
    r->pieces[r->n_pieces++] = piece;
    return BY_OK;
}

static by_status add_assistant_text(reader *r, const by_json *item) {
    BY_TRY(refuse_unanswered(r));
    by_recipe_text text;
    BY_TRY(convert_content(r, by_field(item, RI_MSG_CONTENT), ".content[", true, &text));
    open_message(r);
    if (by_recipe_text_is_empty(text)) return BY_OK;
    if (r->has_text) BY_TRY(add_piece(r, (by_recipe_piece){.text = BY_STR("\n\n")}));
    for (uint32_t i = 0; i < text.n; i++) BY_TRY(add_piece(r, text.pieces[i]));
    r->has_text = true;
    return BY_OK;
}

/* As long as others wait for their outputs, a call belongs to their message, even behind some outputs. */
static by_status add_call(reader *r, by_recipe_call call) {
    by_convert *cv = r->cv;
    if (call.id.len == 0) return refuse_empty_id(r);
    by_at_item(cv, "input", r->at, ".call_id");
    uint32_t *value;
    if (!by_str_set_add(&r->ids, call.id, &value)) return BY_REFUSE(cv, BY_STR("Duplicate 'call_id': "), call.id, BY_STR("."));
    bool joins = !r->open && r->n_waiting > 0;
    if (!joins) open_message(r);
    r->calls = grow(cv, r->calls, r->n_calls, &r->cap_calls, sizeof *r->calls);
    if (!r->calls) return by_no_memory(cv);
    r->calls[r->n_calls++] = call;
    r->n_waiting++;
    if (joins) {
        cv->messages[r->turn].calls = r->calls;
        cv->messages[r->turn].n_calls = r->n_calls;
    }
    return BY_OK;
}

static by_status as_text(by_convert *cv, const by_json *v, by_str *out) {
    by_buf text = {0};
    by_json_write(&text, v, BY_JSON_COMPACT);
    *out = text.failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(&text));
    by_buf_deinit(&text);
    return out->ptr ? BY_OK : by_no_memory(cv);
}

static by_status convert_call(reader *r, const by_json *item, uint32_t kind) {
    by_recipe_call call = {.id = by_field(item, RI_CALL_ID)->v.s};
    if (kind == RI_SEARCH_CALL) {
        call.name = BY_STR("tool_search");
        BY_TRY(as_text(r->cv, by_field(item, RI_CALL_ARGUMENTS), &call.arguments));
        return add_call(r, call);
    }
    call.name = by_field(item, RI_CALL_NAME)->v.s;
    const by_json *arguments = by_field(item, RI_CALL_ARGUMENTS);
    if (kind == RI_CUSTOM_CALL) {
        by_json_member input[] = {{BY_STR("input"), *arguments}};
        by_json object = {.type = BY_JSON_OBJECT, .n = 1, .v.members = input};
        BY_TRY(as_text(r->cv, &object, &call.arguments));
        return add_call(r, call);
    }
    call.arguments = arguments->v.s;
    const by_json *ns = by_field(item, RI_CALL_NAMESPACE);
    if (by_given(ns)) BY_TRY(by_responses_mapped_name(r->cv, r->tools, ns->v.s, call.name, &call.name));
    return add_call(r, call);
}

/* ---- outputs ---- */

/* Found tools wait until all outputs of the turn are there. */
static by_status add_late_messages(reader *r) {
    for (uint32_t i = 0; i < r->n_late; i++) {
        by_recipe_message *m;
        BY_TRY(by_add_message(r->cv, BY_ROLE_SYSTEM, &m));
        by_recipe_tool *copies = BY_MAKE(r->cv, by_recipe_tool, r->late[i].n);
        if (!copies) return by_no_memory(r->cv);
        memcpy(copies, r->tools->tools + r->late[i].first, r->late[i].n * sizeof *copies);
        m->tools = copies;
        m->n_tools = r->late[i].n;
    }
    r->n_late = 0;
    return BY_OK;
}

/* Marks the call as answered. */
static by_status take_id(reader *r, by_str id) {
    by_convert *cv = r->cv;
    if (id.len == 0) return refuse_empty_id(r);
    by_at_item(cv, "input", r->at, ".call_id");
    uint32_t *answered = by_str_set_find(&r->ids, id);
    if (!answered) return BY_REFUSE(cv, BY_STR("No tool call found for tool output with call_id "), id, BY_STR("."));
    if (*answered) return BY_REFUSE(cv, BY_STR("Duplicate tool output for call_id: "), id, BY_STR("."));
    *answered = 1;
    r->n_waiting--;
    return BY_OK;
}

static by_status add_output(reader *r, by_str id, by_recipe_text content) {
    by_recipe_message *m;
    BY_TRY(by_add_message(r->cv, BY_ROLE_TOOL, &m));
    m->call_id = id;
    m->has_call_id = true;
    m->content = content;
    return r->n_waiting ? BY_OK : add_late_messages(r);
}

static by_status convert_custom_output(reader *r, const by_json *item) {
    by_str id = by_field(item, RI_OUTPUT_ID)->v.s;
    const by_json *v = by_field(item, RI_OUTPUT_CONTENT);
    by_recipe_text content = {0};
    BY_TRY(flush(r));
    BY_TRY(take_id(r, id));
    if (by_given(v)) BY_TRY(convert_content(r, v, ".output[", false, &content));
    return add_output(r, id, content);
}

/* Here the content is looked at before the id. */
static by_status convert_output(reader *r, const by_json *item) {
    const by_json *id = by_field(item, RI_OUTPUT_ID), *v = by_field(item, RI_OUTPUT_CONTENT);
    by_recipe_text content = {0};
    BY_TRY(flush(r));
    if (by_given(v)) BY_TRY(convert_content(r, v, ".output[", false, &content));
    if (!by_given(id)) BY_TRY(refuse_unanswered(r));
    if (by_given(id)) {
        BY_TRY(take_id(r, id->v.s));
        return add_output(r, id->v.s, content);
    }
    by_recipe_message *m; /* an output of nobody's call */
    BY_TRY(by_add_message(r->cv, BY_ROLE_TOOL, &m));
    m->content = content;
    return BY_OK;
}

static by_status convert_search_output(reader *r, const by_json *item) {
    by_convert *cv = r->cv;
    by_str id = by_field(item, RI_OUTPUT_ID)->v.s, place, text;
    by_recipe_text content;
    struct found found = r->found[r->n_found++];
    BY_TRY(flush(r));
    BY_TRY(take_id(r, id));
    BY_TRY(place_of(r, "", 0, &place));
    BY_TRY(by_responses_write_tools(cv, by_field(item, RI_OUTPUT_TOOLS), true, place, &text));
    BY_TRY(by_content_of_string(cv, text, &content));
    if (found.n) {
        r->late = grow(cv, r->late, r->n_late, &r->cap_late, sizeof *r->late);
        if (!r->late) return by_no_memory(cv);
        r->late[r->n_late++] = found;
    }
    return add_output(r, id, content);
}

/* ---- items ---- */

static by_status convert_message(reader *r, const by_json *item) {
    int64_t role = by_field(item, RI_MSG_ROLE)->v.i;
    if (role == RR_ASSISTANT) return add_assistant_text(r, item);
    BY_TRY(flush(r));
    BY_TRY(refuse_unanswered(r));
    by_recipe_message *m;
    bool user = role == RR_USER || (role == RR_DEVELOPER && r->cv->out->version == BY_RECIPE_V4);
    BY_TRY(by_add_message(r->cv, user ? BY_ROLE_USER : BY_ROLE_SYSTEM, &m));
    const by_json *v = by_field(item, RI_MSG_CONTENT);
    if (r->cv->server && v->type == BY_JSON_ARRAY && v->n == 0) {
        by_str place;
        BY_TRY(place_of(r, "", 0, &place));
        by_at_item(r->cv, "input", r->at, ".content");
        return BY_REFUSE_CODE(r->cv, "empty_array", place, BY_STR(".content: must not be an empty list"));
    }
    return convert_content(r, v, ".content[", false, &m->content);
}

static by_status convert_item(reader *r, const by_json *item) {
    uint32_t kind = by_variant(item);
    by_at_item(r->cv, "input", r->at, NULL);
    bool v4 = r->cv->out->version == BY_RECIPE_V4;
    switch (kind) {
    case RI_MESSAGE: return convert_message(r, item);
    case RI_REASONING: return add_reasoning(r, item);
    case RI_SEARCH_CALL:
        if (v4) return BY_OK;
        return convert_call(r, item, kind);
    case RI_CALL:
    case RI_CUSTOM_CALL: return convert_call(r, item, kind);
    case RI_OUTPUT: return convert_output(r, item);
    case RI_CUSTOM_OUTPUT: return convert_custom_output(r, item);
    case RI_SEARCH_OUTPUT: return v4 ? BY_OK : convert_search_output(r, item);
    case RI_WEB_SEARCH_CALL: return refuse_unanswered(r);
    default: return BY_OK;
    }
}

/* The tools of all search outputs are known before the first item is converted. */
static by_status collect_found_tools(reader *r, const by_json *input) {
    by_convert *cv = r->cv;
    for (r->at = 0; r->at < input->n; r->at++) {
        const by_json *item = &input->v.items[r->at];
        if (by_variant(item) != RI_SEARCH_OUTPUT || cv->out->version == BY_RECIPE_V4) continue;
        by_str place;
        uint32_t first = r->tools->n;
        BY_TRY(place_of(r, "", 0, &place));
        const by_str parts[] = {place, BY_STR(".tools")};
        BY_TRY(by_join(cv, parts, 2, by_str_of(NULL, 0), &place));
        cv->at = (by_place){"input", r->at, ".tools", -1, NULL};
        BY_TRY(by_responses_add_tools(cv, r->tools, by_field(item, RI_OUTPUT_TOOLS), place));
        for (uint32_t i = first; i < r->tools->n; i++) r->tools->tools[i].defer_loading = true;
        r->found = grow(cv, r->found, r->n_found, &r->cap_found, sizeof *r->found);
        if (!r->found) return by_no_memory(cv);
        r->found[r->n_found++] = (struct found){first, r->tools->n - first};
    }
    r->n_found = 0;
    return BY_OK;
}

static by_status count_calls(reader *r, const by_json *input) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < input->n; i++) n += is_call(&input->v.items[i]);
    return by_str_set_init(r->cv, &r->ids, n);
}

by_status by_responses_convert_input(by_convert *cv, const by_json *input, by_responses_tools *t) {
    reader r = {.cv = cv, .tools = t, .input = input};
    by_recipe_message *m;
    if (input->type == BY_JSON_STRING) {
        BY_TRY(by_add_message(cv, BY_ROLE_USER, &m));
        return by_content_of_string(cv, input->v.s, &m->content);
    }
    by_at(cv, "input");
    if (input->n == 0) return BY_REFUSE_CODE(cv, "empty_array", BY_STR("Input items array must not be empty"));
    BY_TRY(count_calls(&r, input));
    BY_TRY(collect_found_tools(&r, input));
    for (r.at = 0; r.at < input->n; r.at++) BY_TRY(convert_item(&r, &input->v.items[r.at]));
    BY_TRY(flush(&r));
    return refuse_unanswered(&r);
}
