/* strict_schema.c - the rewriting of schemas of strict tools and strict response formats.
 *
 * Two passes, as in the original, because a fault of the first kind anywhere wins over one of the second:
 *   read    every schema is one of {"type": word, ...}, {"type": [words], ...}, {"anyOf": [...]}, {"$ref": ...}; the known
 *           members have their types. The messages are those of the original's deserialiser.
 *   build   objects need properties (a tool's root may do without), `required` names all of them, nothing else is allowed.
 * Members are read in the order of the text, since the first faulty one is reported. */
#include <stdlib.h>

#include "api/convert.h"
#include "api/value_text.h"

typedef struct {
    by_convert *cv;
    by_buf why; /* read: the fault */
} strict;

enum { T_OBJECT, T_STRING, T_NUMBER, T_INTEGER, T_BOOLEAN, T_ARRAY, T_NULL, T_N };
static const char *const type_words[T_N] = {"object", "string", "number", "integer", "boolean", "array", "null"};
static const char *const list_words[] = {"string", "number", "integer", "boolean", "null"};
static const char *const format_words[] = {"email", "hostname", "ipv4", "ipv6", "uuid"};

/* ---- read ---- */

static by_status read_schema(strict *s, const by_json *v);

static by_status fail(strict *s, const char *head, const by_json *v, const char *expected) {
    by_buf_clear(&s->why);
    by_buf_push_z(&s->why, head);
    if (v) by_text_put_value(&s->why, v);
    by_buf_push_z(&s->why, expected);
    return BY_EINVAL;
}

static by_status wrong_type(strict *s, const by_json *v, const char *expected) {
    by_buf_clear(&s->why);
    by_buf_push_z(&s->why, "invalid type: ");
    by_text_put_value(&s->why, v);
    by_buf_push_z(&s->why, ", expected ");
    by_buf_push_z(&s->why, expected);
    return BY_EINVAL;
}

static by_status unknown_word(strict *s, by_str word, const char *const *words, uint32_t n) {
    by_buf_clear(&s->why);
    by_buf_push_z(&s->why, "unknown variant `");
    by_buf_push_str(&s->why, word);
    by_buf_push_z(&s->why, "`, expected one of ");
    for (uint32_t i = 0; i < n; i++) by_buf_printf(&s->why, "%s`%s`", i ? ", " : "", words[i]);
    return BY_EINVAL;
}

/* Puts "field `name`: " in front of the fault. */
static by_status in_field(strict *s, const char *name, by_status status) {
    if (status != BY_EINVAL) return status;
    by_buf inner = s->why;
    s->why = (by_buf){0};
    by_buf_push_z(&s->why, "field `");
    by_buf_push_z(&s->why, name);
    by_buf_push_z(&s->why, "`: ");
    by_buf_push_str(&s->why, by_buf_str(&inner));
    by_buf_deinit(&inner);
    return BY_EINVAL;
}

static bool find_word(by_str word, const char *const *words, uint32_t n, uint32_t *at) {
    for (uint32_t i = 0; i < n; i++)
        if (by_str_eqz(word, words[i])) return *at = i, true;
    return false;
}

static by_status read_string(strict *s, const by_json *v) {
    return v->type == BY_JSON_STRING ? BY_OK : wrong_type(s, v, "a string");
}

static by_status read_strings(strict *s, const by_json *v) {
    if (v->type != BY_JSON_ARRAY) return wrong_type(s, v, "a sequence");
    for (uint32_t i = 0; i < v->n; i++) BY_TRY(read_string(s, &v->v.items[i]));
    return BY_OK;
}

/* A word, or an object with the word as its only key and null as its value. */
static by_status read_word(strict *s, const by_json *v, const char *const *words, uint32_t n, uint32_t *at) {
    by_str word = {0};
    if (v->type == BY_JSON_STRING) {
        word = v->v.s;
    } else if (v->type == BY_JSON_OBJECT) {
        if (v->n != 1) return fail(s, "invalid value: ", v, ", expected map with a single key");
        word = v->v.members[0].key;
    } else {
        return wrong_type(s, v, "string or map");
    }
    if (!find_word(word, words, n, at)) return unknown_word(s, word, words, n);
    if (v->type == BY_JSON_OBJECT && v->v.members[0].value.type != BY_JSON_NULL)
        return wrong_type(s, &v->v.members[0].value, "unit");
    return BY_OK;
}

static by_status read_integer(strict *s, const by_json *v) {
    if (v->type == BY_JSON_INT) return BY_OK;
    if (v->type == BY_JSON_UINT) return fail(s, "invalid value: ", v, ", expected i64");
    return wrong_type(s, v, "i64");
}

static bool is_number_key(by_str key) {
    static const char *const keys[] = {"const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
    uint32_t at;
    return find_word(key, keys, BY_COUNT(keys), &at);
}

static by_status read_object_member(strict *s, by_str key, const by_json *v) {
    if (by_str_eqz(key, "properties")) {
        if (v->type != BY_JSON_OBJECT) return wrong_type(s, v, "a map");
        for (uint32_t i = 0; i < v->n; i++) BY_TRY(read_schema(s, &v->v.members[i].value));
        return BY_OK;
    }
    if (by_str_eqz(key, "required")) return read_strings(s, v);
    if (by_str_eqz(key, "additionalProperties") && v->type != BY_JSON_BOOL) return wrong_type(s, v, "a boolean");
    return BY_OK;
}

static by_status read_member(strict *s, uint32_t type, by_str key, const by_json *v) {
    uint32_t at;
    if (type == T_ARRAY && by_str_eqz(key, "items")) return read_schema(s, v); /* the only one that may not be null */
    if (v->type == BY_JSON_NULL) return BY_OK;
    if (by_str_eqz(key, "description")) return read_string(s, v);
    switch (type) {
    case T_OBJECT: return read_object_member(s, key, v);
    case T_STRING:
        if (by_str_eqz(key, "pattern")) return read_string(s, v);
        if (by_str_eqz(key, "enum")) return read_strings(s, v);
        if (by_str_eqz(key, "format")) return read_word(s, v, format_words, BY_COUNT(format_words), &at);
        return BY_OK;
    case T_INTEGER: return is_number_key(key) ? read_integer(s, v) : BY_OK;
    case T_NUMBER: return is_number_key(key) && !by_json_is_number(v) ? wrong_type(s, v, "a JSON number") : BY_OK;
    default: return BY_OK;
    }
}

/* An object whose `type` is one word. */
static by_status read_typed(strict *s, const by_json *v) {
    uint32_t type;
    if (v->type == BY_JSON_ARRAY && v->n == 0) return fail(s, "missing field `type`", NULL, "");
    if (v->type != BY_JSON_OBJECT) return wrong_type(s, v, "internally tagged enum JsonSchemaType");
    const by_json *word = by_json_get(v, "type");
    if (!word) return fail(s, "missing field `type`", NULL, "");
    if (word->type != BY_JSON_STRING) return wrong_type(s, word, "variant identifier");
    if (!find_word(word->v.s, type_words, T_N, &type)) return unknown_word(s, word->v.s, type_words, T_N);
    for (uint32_t i = 0; i < v->n; i++) BY_TRY(read_member(s, type, v->v.members[i].key, &v->v.members[i].value));
    if (type == T_ARRAY && !by_json_get(v, "items")) return fail(s, "missing field `items`", NULL, "");
    return BY_OK;
}

static by_status read_type_list(strict *s, const by_json *list) {
    uint32_t at;
    for (uint32_t i = 0; i < list->n; i++) BY_TRY(read_word(s, &list->v.items[i], list_words, BY_COUNT(list_words), &at));
    return BY_OK;
}

static by_status read_choices(strict *s, const by_json *list) {
    if (list->type != BY_JSON_ARRAY) return wrong_type(s, list, "a sequence");
    for (uint32_t i = 0; i < list->n; i++) BY_TRY(read_typed(s, &list->v.items[i]));
    return BY_OK;
}

static by_status read_description(strict *s, const by_json *v) {
    const by_json *d = by_json_get(v, "description");
    return in_field(s, "description", d && d->type != BY_JSON_NULL ? read_string(s, d) : BY_OK);
}

static by_status read_schema(strict *s, const by_json *v) {
    const by_json *type = by_json_get(v, "type"), *any = by_json_get(v, "anyOf"), *ref = by_json_get(v, "$ref");
    if (type && type->type == BY_JSON_ARRAY) {
        BY_TRY(in_field(s, "type", read_type_list(s, type)));
        return read_description(s, v);
    }
    if (type) return read_typed(s, v);
    if (any) {
        BY_TRY(in_field(s, "anyOf", read_choices(s, any)));
        return read_description(s, v);
    }
    if (ref) return in_field(s, "$ref", read_string(s, ref));
    return fail(s, "one of `type`, `anyOf`, `$ref` field is required", NULL, "");
}

/* ---- build ---- */

typedef struct {
    by_json_member *members;
    uint32_t n;
} object;

static by_status build_schema(strict *s, const by_json *v, bool may_be_empty, by_json *out);

static void add(object *o, const char *key, by_json value) { o->members[o->n++] = (by_json_member){by_str_z(key), value}; }

static void copy(object *o, const by_json *from, const char *key) {
    const by_json *v = by_json_get(from, key);
    if (v && v->type != BY_JSON_NULL) add(o, key, *v);
}

static by_json string_value(by_str s) { return (by_json){.type = BY_JSON_STRING, .v.s = s}; }

/* Words may have been given as {"word": null}. */
static by_json word_value(const by_json *v) { return v->type == BY_JSON_STRING ? *v : string_value(v->v.members[0].key); }

static int compare_keys(const void *a, const void *b) {
    const by_str *x = *(const by_str *const *)a, *y = *(const by_str *const *)b;
    int c = by_str_cmp(*x, *y);
    return c ? c : (x > y) - (x < y);
}

/* Ascending by text, equal ones by place; NULL when memory is out. */
static const by_str **sort_keys(by_convert *cv, const by_str *keys, uint32_t n) {
    const by_str **order = BY_MAKE(cv, const by_str *, n);
    if (!order) return NULL;
    for (uint32_t i = 0; i < n; i++) order[i] = &keys[i];
    qsort(order, n, sizeof *order, compare_keys);
    return order;
}

static bool is_among(const by_str **sorted, uint32_t n, by_str key) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        int c = by_str_cmp(*sorted[mid], key);
        if (c == 0) return true;
        if (c < 0) low = mid + 1;
        else high = mid;
    }
    return false;
}

static by_status check_required(strict *s, const by_json *required, const by_json *properties) {
    by_convert *cv = s->cv;
    uint32_t n = required->n, n_keys = properties ? properties->n : 0;
    by_str *names = BY_MAKE(cv, by_str, n), *keys = BY_MAKE(cv, by_str, n_keys);
    bool *repeated = BY_MAKE(cv, bool, n);
    if (!names || !keys || !repeated) return by_no_memory(cv);
    for (uint32_t i = 0; i < n; i++) names[i] = required->v.items[i].v.s;
    for (uint32_t i = 0; i < n_keys; i++) keys[i] = properties->v.members[i].key;
    const by_str **sorted_names = sort_keys(cv, names, n), **sorted_keys = sort_keys(cv, keys, n_keys);
    if (!sorted_names || !sorted_keys) return by_no_memory(cv);
    for (uint32_t i = 1; i < n; i++)
        if (by_str_eq(*sorted_names[i], *sorted_names[i - 1])) repeated[sorted_names[i] - names] = true;
    for (uint32_t i = 0; i < n; i++) {
        if (repeated[i]) return BY_REFUSE(cv, BY_STR("Duplicate required property '"), names[i], BY_STR("'"));
        if (!is_among(sorted_keys, n_keys, names[i]))
            return BY_REFUSE(cv, BY_STR("Required property '"), names[i], BY_STR("' not found in object"));
    }
    if (n != n_keys) return BY_REFUSE(cv, BY_STR("Required properties must match all properties in the object"));
    return BY_OK;
}

static by_status build_object(strict *s, const by_json *v, bool may_be_empty, object *o) {
    by_convert *cv = s->cv;
    const by_json *given = by_json_get(v, "properties"), *required = by_json_get(v, "required");
    const by_json *additional = by_json_get(v, "additionalProperties");
    uint32_t n = by_json_is(given, BY_JSON_OBJECT) ? given->n : 0;
    if (n == 0 && !may_be_empty) return BY_REFUSE(cv, BY_STR("An object with no properties is not allowed."));
    by_json_member *properties = BY_MAKE(cv, by_json_member, n);
    by_json *names = BY_MAKE(cv, by_json, n);
    if (!properties || !names) return by_no_memory(cv);
    for (uint32_t i = 0; i < n; i++) {
        properties[i].key = given->v.members[i].key;
        names[i] = string_value(properties[i].key);
        BY_TRY(build_schema(s, &given->v.members[i].value, false, &properties[i].value));
    }
    if (by_json_is(required, BY_JSON_ARRAY)) BY_TRY(check_required(s, required, n ? given : NULL));
    if (by_json_is(additional, BY_JSON_BOOL) && additional->v.b)
        return BY_REFUSE(cv, BY_STR("additionalProperties should not be true"));
    add(o, "properties", (by_json){.type = BY_JSON_OBJECT, .n = n, .v.members = properties});
    add(o, "additionalProperties", (by_json){.type = BY_JSON_BOOL});
    add(o, "required", (by_json){.type = BY_JSON_ARRAY, .n = n, .v.items = names});
    copy(o, v, "description");
    return BY_OK;
}

static void build_numbers(const by_json *v, object *o) {
    static const char *const keys[] = {"description", "const", "default", "minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum", "multipleOf"};
    for (uint32_t i = 0; i < BY_COUNT(keys); i++) copy(o, v, keys[i]);
}

static by_status build_typed(strict *s, const by_json *v, bool may_be_empty, object *o) {
    uint32_t type = T_NULL;
    const by_json *word = by_json_get(v, "type");
    find_word(word->v.s, type_words, T_N, &type);
    add(o, "type", *word);
    switch (type) {
    case T_OBJECT: return build_object(s, v, may_be_empty, o);
    case T_STRING:
        copy(o, v, "description");
        copy(o, v, "pattern");
        if (by_json_get(v, "format") && by_json_get(v, "format")->type != BY_JSON_NULL)
            add(o, "format", word_value(by_json_get(v, "format")));
        copy(o, v, "enum");
        return BY_OK;
    case T_INTEGER:
    case T_NUMBER: build_numbers(v, o); return BY_OK;
    case T_ARRAY: {
        by_json items;
        BY_TRY(build_schema(s, by_json_get(v, "items"), false, &items));
        add(o, "items", items);
        copy(o, v, "description");
        return BY_OK;
    }
    default: copy(o, v, "description"); return BY_OK;
    }
}

static by_status build_words(strict *s, const by_json *list, by_json *out) {
    by_json *items = BY_MAKE(s->cv, by_json, list->n);
    if (!items) return by_no_memory(s->cv);
    for (uint32_t i = 0; i < list->n; i++) items[i] = word_value(&list->v.items[i]);
    *out = (by_json){.type = BY_JSON_ARRAY, .n = list->n, .v.items = items};
    return BY_OK;
}

static by_status build_any(strict *s, const by_json *list, bool may_be_empty, by_json *out) {
    by_json *items = BY_MAKE(s->cv, by_json, list->n);
    if (!items) return by_no_memory(s->cv);
    for (uint32_t i = 0; i < list->n; i++) BY_TRY(build_schema(s, &list->v.items[i], may_be_empty, &items[i]));
    *out = (by_json){.type = BY_JSON_ARRAY, .n = list->n, .v.items = items};
    return BY_OK;
}

static by_status build_schema(strict *s, const by_json *v, bool may_be_empty, by_json *out) {
    enum { MEMBERS_MAX = 10 };
    const by_json *type = by_json_get(v, "type"), *any = by_json_get(v, "anyOf");
    object o = {.members = BY_MAKE(s->cv, by_json_member, MEMBERS_MAX)};
    by_json list;
    if (!o.members) return by_no_memory(s->cv);
    if (type && type->type == BY_JSON_ARRAY) {
        BY_TRY(build_words(s, type, &list));
        add(&o, "type", list);
        copy(&o, v, "description");
    } else if (type) {
        BY_TRY(build_typed(s, v, may_be_empty, &o));
    } else if (any) {
        BY_TRY(build_any(s, any, may_be_empty, &list));
        add(&o, "anyOf", list);
        copy(&o, v, "description");
    } else {
        copy(&o, v, "$ref");
    }
    *out = (by_json){.type = BY_JSON_OBJECT, .n = o.n, .v.members = o.members};
    return BY_OK;
}

/* ---- entry ---- */

static by_status refuse_read(strict *s, bool is_tool) {
    if (by_buf_check(&s->why, s->cv->err) < 0) return BY_ENOMEM;
    return BY_REFUSE(s->cv, is_tool ? BY_STR("Invalid tool parameters schema : ") : BY_STR("Invalid json schema: "),
                     by_buf_str(&s->why));
}

by_status by_rewrite_strict(by_convert *cv, const by_json *schema, bool is_tool, const by_json **out) {
    strict s = {.cv = cv};
    by_json *built = BY_MAKE(cv, by_json, 1);
    by_status status = built ? read_schema(&s, schema) : by_no_memory(cv);
    if (status == BY_EINVAL) status = refuse_read(&s, is_tool);
    by_buf_deinit(&s.why);
    BY_TRY(status);
    BY_TRY(build_schema(&s, schema, is_tool, built));
    const by_json *type = by_json_get(schema, "type");
    if (!by_json_is(type, BY_JSON_STRING) || !by_str_eqz(type->v.s, "object"))
        return is_tool ? BY_REFUSE(cv, BY_STR("The top level of the function parameters schema must be an object."))
                       : BY_REFUSE(cv, BY_STR("The top level of the json schema must be an object."));
    *out = built;
    return BY_OK;
}
