/* json.c - accessors of json.h; the reader is in json_read.c. */
#include "json/json.h"

const by_json *by_json_get_str(const by_json *obj, by_str key) {
    if (!by_json_is(obj, BY_JSON_OBJECT)) return NULL;
    for (uint32_t i = obj->n; i-- > 0;)
        if (by_str_eq(obj->v.members[i].key, key)) return &obj->v.members[i].value;
    return NULL;
}

const by_json *by_json_get(const by_json *obj, const char *key) { return by_json_get_str(obj, by_str_z(key)); }

const by_json *by_json_at(const by_json *arr, size_t i) {
    return by_json_is(arr, BY_JSON_ARRAY) && i < arr->n ? &arr->v.items[i] : NULL;
}

double by_json_number(const by_json *v) {
    if (!v) return 0;
    if (v->type == BY_JSON_INT) return (double)v->v.i;
    if (v->type == BY_JSON_UINT) return (double)v->v.u;
    return v->type == BY_JSON_DOUBLE ? v->v.d : 0;
}

bool by_json_int_in(const by_json *v, int64_t min, int64_t max, int64_t *out) {
    if (!by_json_is(v, BY_JSON_INT) || v->v.i < min || v->v.i > max) return false;
    *out = v->v.i;
    return true;
}

const char *by_json_type_name(by_json_type t) {
    static const char *const names[] = {"null", "boolean", "integer", "integer", "number", "string", "array", "object"};
    return (unsigned)t < sizeof names / sizeof names[0] ? names[t] : "?";
}
