/* config_read.c - see config_read.h. */
#include "model/config_read.h"

#include <inttypes.h>
#include <stdio.h>

static const char *show(const by_json *v, char *buf, size_t cap) {
    switch (v->type) {
    case BY_JSON_STRING:
        snprintf(buf, cap, "the string \"%.*s\"", (int)(v->v.s.len > 60 ? 60 : v->v.s.len), v->v.s.ptr);
        break;
    case BY_JSON_BOOL: snprintf(buf, cap, "%s", v->v.b ? "true" : "false"); break;
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE: snprintf(buf, cap, "%.*s", (int)(v->raw.len > 40 ? 40 : v->raw.len), v->raw.ptr); break;
    default: snprintf(buf, cap, "%s", by_json_type_name(v->type)); break;
    }
    return buf;
}

void by_config_wrong_type(by_config_reader *r, const char *key, const char *expected, const by_json *found) {
    char buf[128];
    by_problems_add(r->problems, "%s: expected %s, found %s", key, expected, show(found, buf, sizeof buf));
}

const by_json *by_config_find(by_config_reader *r, const by_json *obj, const char *key, by_key_need need) {
    const by_json *v = by_json_get(obj, key);
    if (v && v->type != BY_JSON_NULL) return v;
    if (need == BY_KEY_REQUIRED) by_problems_add(r->problems, "%s: %s", key, v ? "null, but it is needed" : "missing");
    return NULL;
}

static bool int_value(by_config_reader *r, const by_json *v, const char *key, int64_t min, int64_t max, int64_t *out) {
    if (v->type != BY_JSON_INT && v->type != BY_JSON_UINT) {
        by_config_wrong_type(r, key, "an integer", v);
        return false;
    }
    if (by_json_int_in(v, min, max, out)) return true;
    char buf[128];
    by_problems_add(r->problems, "%s: %s is outside %" PRId64 "..%" PRId64, key, show(v, buf, sizeof buf), min, max);
    return false;
}

bool by_config_read_int(by_config_reader *r, const by_json *obj, const char *key, by_key_need need, int64_t min,
                        int64_t max, int64_t *out) {
    const by_json *v = by_config_find(r, obj, key, need);
    return v && int_value(r, v, key, min, max, out);
}

bool by_config_read_real(by_config_reader *r, const by_json *obj, const char *key, by_key_need need, double min,
                         double max, double *out) {
    const by_json *v = by_config_find(r, obj, key, need);
    if (!v) return false;
    if (!by_json_is_number(v)) {
        by_config_wrong_type(r, key, "a number", v);
        return false;
    }
    double x = by_json_number(v);
    if (x >= min && x <= max) {
        *out = x;
        return true;
    }
    char buf[128];
    by_problems_add(r->problems, "%s: %s is outside %g..%g", key, show(v, buf, sizeof buf), min, max);
    return false;
}

bool by_config_read_bool(by_config_reader *r, const by_json *obj, const char *key, bool *out) {
    const by_json *v = by_config_find(r, obj, key, BY_KEY_OPTIONAL);
    if (!v) return false;
    if (v->type != BY_JSON_BOOL) {
        by_config_wrong_type(r, key, "true or false", v);
        return false;
    }
    *out = v->v.b;
    return true;
}

bool by_config_read_ints(by_config_reader *r, const by_json *obj, const char *key, by_key_need need, int64_t min,
                         int64_t max, int cap, int64_t *out, int *n) {
    *n = 0;
    const by_json *v = by_config_find(r, obj, key, need);
    if (!v) return false;
    if (v->type != BY_JSON_ARRAY) {
        by_config_wrong_type(r, key, "a list of integers", v);
        return false;
    }
    if (v->n > (uint32_t)cap) {
        by_problems_add(r->problems, "%s: %u entries, at most %d are allowed", key, v->n, cap);
        return false;
    }
    bool good = true;
    for (uint32_t i = 0; i < v->n; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s[%u]", key, i);
        good = int_value(r, &v->v.items[i], name, min, max, &out[i]) && good;
    }
    if (good) *n = (int)v->n;
    return good;
}

void by_config_read_int_fields(by_config_reader *r, const by_json *obj, const by_int_field *fields, int n, void *base) {
    for (int i = 0; i < n; i++) {
        int64_t v = 0;
        if (by_config_read_int(r, obj, fields[i].key, BY_KEY_REQUIRED, fields[i].min, fields[i].max, &v))
            *(int *)(void *)((char *)base + fields[i].at) = (int)v;
    }
}

void by_config_read_real_fields(by_config_reader *r, const by_json *obj, const by_real_field *fields, int n,
                                void *base) {
    for (int i = 0; i < n; i++)
        by_config_read_real(r, obj, fields[i].key, BY_KEY_REQUIRED, fields[i].min, fields[i].max,
                            (double *)(void *)((char *)base + fields[i].at));
}

void by_config_expect_str(by_config_reader *r, const by_json *obj, const char *key, const char *value) {
    const by_json *v = by_config_find(r, obj, key, BY_KEY_OPTIONAL);
    if (!v) return;
    char buf[128];
    if (v->type != BY_JSON_STRING || !by_str_eqz(v->v.s, value))
        by_problems_add(r->problems, "%s: %s is not supported, only \"%s\"", key, show(v, buf, sizeof buf), value);
}

void by_config_expect_bool(by_config_reader *r, const by_json *obj, const char *key, bool value, const char *why) {
    bool v = value;
    if (by_config_read_bool(r, obj, key, &v) && v != value)
        by_problems_add(r->problems, "%s: %s is not supported%s", key, v ? "true" : "false", why);
}
