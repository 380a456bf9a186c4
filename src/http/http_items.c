/* http_items.c - see http_items.h. */
#include "http/http_items.h"

#include <stdio.h>
#include <string.h>

#include "http/http_list.h"

void by_items_push(by_buf *list, by_str items) {
    if (!items.len) return;
    if (list->len) by_buf_push_byte(list, ',');
    by_buf_push_str(list, items);
}

/* ---- one item ---- */

static const char *prefix_of(by_str type) {
    static const struct {
        const char *type, *prefix;
    } table[] = {{"message", "msg"}, {"reasoning", "rs"}, {"function_call", "fc"}, {"function_call_output", "fco"},
                 {"custom_tool_call", "ctc"}, {"custom_tool_call_output", "ctco"}, {"tool_search_call", "tsc"},
                 {"tool_search_output", "tso"}, {"web_search_call", "ws"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (by_str_eqz(type, table[i].type)) return table[i].prefix;
    return "item";
}

static void put_id(by_json_out *o, by_http *h, by_str type) {
    char id[64];
    snprintf(id, sizeof id, "%s_%016llx%08llx", prefix_of(type), (unsigned long long)by_rng_u64(&h->rng),
             (unsigned long long)(by_rng_u64(&h->rng) >> 32));
    by_json_out_key(o, "id");
    by_json_out_z(o, id);
}

/* A text as the list of parts that means the same. */
static void put_parts(by_json_out *o, by_str text, bool assistant) {
    by_json_out_array_begin(o);
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, assistant ? "output_text" : "input_text");
    by_json_out_key(o, "text");
    by_json_out_string(o, text);
    if (assistant) {
        by_json_out_key(o, "annotations");
        by_json_out_array_begin(o);
        by_json_out_array_end(o);
    }
    by_json_out_object_end(o);
    by_json_out_array_end(o);
}

static bool has_text(const by_json *v) { return by_json_is(v, BY_JSON_STRING) && v->v.s.len > 0; }

static void put_item(by_buf *out, by_http *h, const by_json *item) {
    const by_json *type = by_json_get(item, "type"), *role = by_json_get(item, "role"), *id = by_json_get(item, "id");
    by_str kind = type ? type->v.s : BY_STR("message");
    bool message = by_str_eqz(kind, "message"), assistant = by_json_is(role, BY_JSON_STRING) && by_str_eqz(role->v.s, "assistant");
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    if (!has_text(id)) put_id(&o, h, kind);
    if (!type) {
        by_json_out_key(&o, "type");
        by_json_out_string(&o, kind);
    }
    if (message && !by_json_get(item, "status")) {
        by_json_out_key(&o, "status");
        by_json_out_z(&o, "completed");
    }
    for (uint32_t i = 0; i < item->n; i++) {
        const by_json_member *m = &item->v.members[i];
        if (by_str_eqz(m->key, "id") && !has_text(id)) continue;
        by_json_out_key_str(&o, m->key);
        if (message && by_str_eqz(m->key, "content") && m->value.type == BY_JSON_STRING) put_parts(&o, m->value.v.s, assistant);
        else by_json_out_value(&o, &m->value);
    }
    by_json_out_object_end(&o);
}

/* ---- lists ---- */

int64_t by_items_find_odd(const by_json *input) {
    for (uint32_t i = 0; i < input->n; i++) {
        const by_json *type = by_json_get(&input->v.items[i], "type"), *role = by_json_get(&input->v.items[i], "role");
        if (type ? type->type != BY_JSON_STRING : !by_json_is(role, BY_JSON_STRING)) return i;
    }
    return -1;
}

void by_items_push_input(by_buf *list, by_http *h, const by_json *input) {
    by_json_member members[] = {{BY_STR("role"), {.type = BY_JSON_STRING, .v.s = BY_STR("user")}}, {.key = BY_STR("content")}};
    by_json message = {.type = BY_JSON_OBJECT, .n = 2, .v.members = members};
    by_buf one = {0};
    uint32_t n = by_json_is(input, BY_JSON_ARRAY) ? input->n : by_json_is(input, BY_JSON_STRING);
    for (uint32_t i = 0; i < n; i++) {
        by_buf_clear(&one);
        if (input->type == BY_JSON_STRING) members[1].value = *input;
        put_item(&one, h, input->type == BY_JSON_STRING ? &message : &input->v.items[i]);
        by_items_push(list, by_buf_str(&one));
    }
    if (one.failed) list->failed = true;
    by_buf_deinit(&one);
}

static bool parse_list(by_json *out, by_str items, by_arena *arena) {
    char *text = by_arena_alloc(arena, items.len + 2);
    if (!text) return false;
    text[0] = '[';
    if (items.len) memcpy(text + 1, items.ptr, items.len);
    text[items.len + 1] = ']';
    return by_json_parse(out, arena, by_str_of(text, items.len + 2), NULL, NULL) == BY_OK;
}

static by_str id_of(const by_json *item) {
    const by_json *id = by_json_get(item, "id");
    return by_json_is(id, BY_JSON_STRING) ? id->v.s : (by_str){0};
}

bool by_items_find(by_str items, by_str id, by_arena *arena, by_json *item) {
    by_json list;
    if (!parse_list(&list, items, arena)) return false;
    for (uint32_t i = 0; i < list.n; i++) {
        if (!by_str_eq(id_of(&list.v.items[i]), id)) continue;
        *item = list.v.items[i];
        return true;
    }
    return false;
}

bool by_items_remove(by_buf *list, by_str id, by_arena *arena) {
    by_json all;
    by_buf left = {0};
    bool found = false;
    if (!parse_list(&all, by_buf_str(list), arena)) return false;
    for (uint32_t i = 0; i < all.n; i++) {
        bool gone = !found && by_str_eq(id_of(&all.v.items[i]), id);
        found |= gone;
        if (gone) continue;
        if (left.len) by_buf_push_byte(&left, ',');
        by_json_write(&left, &all.v.items[i], BY_JSON_COMPACT);
    }
    if (!found || left.failed) {
        by_buf_deinit(&left);
        return false;
    }
    by_buf_deinit(list);
    *list = left;
    return true;
}

void by_items_reply(by_exchange *ex, by_str items) {
    enum { PAGE = 20, PAGE_MAX = 100 };
    by_list_page page;
    by_json list;
    if (!by_list_begin(&page, ex, PAGE, PAGE_MAX)) return;
    if (!parse_list(&list, items, &ex->arena)) page.out.failed = page.found = true;
    for (uint32_t i = 0; !page.out.failed && i < list.n; i++) {
        const by_json *item = &list.v.items[page.ascending ? i : list.n - 1 - i];
        if (by_list_takes(&page, id_of(item))) by_json_out_value(&page.json, item);
    }
    by_list_end(&page, ex);
}
