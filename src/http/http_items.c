/* http_items.c - see http_items.h. */
#include "http/http_items.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "http/http_list.h"

typedef struct {
    size_t at, len, id_at, id_len; /* in text; in ids */
} mark;

static mark *marks_of(const by_items *l) { return (mark *)(void *)l->marks.ptr; }
static size_t count_of(const by_items *l) { return l->marks.len / sizeof(mark); }
static by_str text_of(const by_items *l, const mark *m) { return by_str_of(l->text.ptr + m->at, m->len); }
static by_str id_of(const by_items *l, const mark *m) { return by_str_of(l->ids.ptr + m->id_at, m->id_len); }

void by_items_deinit(by_items *l) {
    by_buf_deinit(&l->text);
    by_buf_deinit(&l->ids);
    by_buf_deinit(&l->marks);
}

size_t by_items_bytes(const by_items *l) { return l->text.cap + l->ids.cap + l->marks.cap; }

/* What a buffer may hold after by_buf_reserve. */
static size_t grown(const by_buf *b, size_t n) {
    size_t need = by_add_size(b->len, n), cap = b->cap + b->cap / 2;
    if (need <= b->cap) return b->cap;
    if (cap < 64) cap = 64;
    return cap < need ? need : cap;
}

size_t by_items_bytes_with(const by_items *l, const by_items *more) {
    return by_add_size(grown(&l->text, more->text.len + 1), by_add_size(grown(&l->ids, more->ids.len), grown(&l->marks, more->marks.len)));
}

/* Room for so much more, so that what follows cannot fail half way. */
static bool reserve(by_items *l, size_t text, size_t ids, size_t n) {
    bool ok = by_buf_reserve(&l->text, by_add_size(text, 1)) && by_buf_reserve(&l->ids, ids) &&
              by_buf_reserve(&l->marks, by_mul_size(n, sizeof(mark)));
    l->text.failed = l->ids.failed = l->marks.failed = false; /* it is told, and nothing is damaged */
    return ok;
}

bool by_items_push(by_items *l, const by_items *more) {
    if (!more->marks.len) return true;
    if (!reserve(l, more->text.len, more->ids.len, count_of(more))) return false;
    if (l->text.len) by_buf_push_byte(&l->text, ',');
    size_t at = l->text.len, id_at = l->ids.len, first = count_of(l);
    by_buf_push_str(&l->text, by_buf_str(&more->text));
    by_buf_push_str(&l->ids, by_buf_str(&more->ids));
    by_buf_push_str(&l->marks, by_buf_str(&more->marks));
    mark *marks = marks_of(l);
    for (size_t i = first; i < count_of(l); i++) {
        marks[i].at += at;
        marks[i].id_at += id_at;
    }
    return true;
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

enum { ID_BYTES = 64 }; /* of ours */

static void make_id(char id[static ID_BYTES], by_rng *rng, by_str type) {
    snprintf(id, ID_BYTES, "%s_%016llx%08llx", prefix_of(type), (unsigned long long)by_rng_u64(rng),
             (unsigned long long)(by_rng_u64(rng) >> 32));
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

/* Writes an item. Returns its id: the item's own, or one that is made in `made`. */
static by_str put_item(by_buf *out, by_rng *rng, const by_json *item, char made[static ID_BYTES]) {
    const by_json *type = by_json_get(item, "type"), *role = by_json_get(item, "role"), *id = by_json_get(item, "id");
    by_str kind = type ? type->v.s : BY_STR("message");
    bool message = by_str_eqz(kind, "message"), assistant = by_json_is(role, BY_JSON_STRING) && by_str_eqz(role->v.s, "assistant");
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    if (!has_text(id)) {
        make_id(made, rng, kind);
        by_json_out_key(&o, "id");
        by_json_out_z(&o, made);
    }
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
    return has_text(id) ? id->v.s : by_str_z(made);
}

/* ---- lists ---- */

int64_t by_items_find_odd(const by_json *input) {
    for (uint32_t i = 0; i < input->n; i++) {
        const by_json *type = by_json_get(&input->v.items[i], "type"), *role = by_json_get(&input->v.items[i], "role");
        if (type ? type->type != BY_JSON_STRING : !by_json_is(role, BY_JSON_STRING)) return i;
    }
    return -1;
}

bool by_items_push_input(by_items *l, by_rng *rng, const by_json *input) {
    by_json_member members[] = {{BY_STR("role"), {.type = BY_JSON_STRING, .v.s = BY_STR("user")}}, {.key = BY_STR("content")}};
    by_json message = {.type = BY_JSON_OBJECT, .n = 2, .v.members = members};
    by_buf one = {0};
    bool ok = true;
    uint32_t n = by_json_is(input, BY_JSON_ARRAY) ? input->n : by_json_is(input, BY_JSON_STRING);
    for (uint32_t i = 0; i < n && ok; i++) {
        char made[ID_BYTES];
        by_buf_clear(&one);
        if (input->type == BY_JSON_STRING) members[1].value = *input;
        by_str id = put_item(&one, rng, input->type == BY_JSON_STRING ? &message : &input->v.items[i], made);
        ok = !one.failed && reserve(l, one.len, id.len, 1);
        if (!ok) break;
        if (l->text.len) by_buf_push_byte(&l->text, ',');
        mark m = {.at = l->text.len, .len = one.len, .id_at = l->ids.len, .id_len = id.len};
        by_buf_push_str(&l->text, by_buf_str(&one));
        by_buf_push_str(&l->ids, id);
        by_buf_push(&l->marks, &m, sizeof m);
    }
    by_buf_deinit(&one);
    return ok;
}

static const mark *find(const by_items *l, by_str id) {
    const mark *marks = marks_of(l);
    for (size_t i = 0; i < count_of(l); i++)
        if (by_str_eq(id_of(l, &marks[i]), id)) return &marks[i];
    return NULL;
}

by_str by_items_find(const by_items *l, by_str id) {
    const mark *m = find(l, id);
    return m ? text_of(l, m) : (by_str){0};
}

static void cut(by_buf *b, size_t at, size_t n) {
    memmove(b->ptr + at, b->ptr + at + n, b->len - at - n);
    b->len -= n;
}

bool by_items_remove(by_items *l, by_str id) {
    const mark *found = find(l, id);
    if (!found) return false;
    mark gone = *found, *marks = marks_of(l);
    size_t n = count_of(l), i = (size_t)(found - marks);
    size_t comma = n > 1, from = gone.at - (i > 0); /* the comma in front, or behind the first */
    cut(&l->text, from, gone.len + comma);
    cut(&l->ids, gone.id_at, gone.id_len);
    cut(&l->marks, i * sizeof(mark), sizeof(mark));
    for (; i < n - 1; i++) {
        marks[i].at -= gone.len + comma;
        marks[i].id_at -= gone.id_len;
    }
    return true;
}

void by_items_reply(by_exchange *ex, const by_items *l) {
    enum { PAGE = 20, PAGE_MAX = 100 };
    by_list_page page;
    if (!by_list_begin(&page, ex, PAGE, PAGE_MAX)) return;
    const mark *marks = marks_of(l);
    size_t n = count_of(l);
    for (size_t i = 0; i < n && !page.more; i++) {
        const mark *m = &marks[page.ascending ? i : n - 1 - i];
        if (by_list_takes(&page, id_of(l, m))) by_json_out_raw(&page.json, text_of(l, m));
    }
    by_list_end(&page, ex);
}
