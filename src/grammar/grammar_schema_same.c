/* grammar_schema_same.c - small schemas that are written alike are one expression wherever they stand.
 *
 * What two places say then contradicts, or repeats, what each says where the expressions are equal or one is the negation
 * of the other: alternatives of oneOf, not and if vanish without a look into them, and machines are shared. */
#include "grammar/grammar_schema.h"

#define NODES_MAX 64u /* values of one schema that are looked at; larger ones stay apart */

typedef enum { SCHEMA, MAP, PLAIN } role; /* a schema (or a list of them), schemas by name, anything else */

static const char *const notes[] = {"title", "description", "default", "examples", "$comment", "markdownDescription", NULL};
static const char *const names_places[] = {"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", NULL};
static const char *const maps[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
                                   "dependencies", NULL};
static const char *const plain[] = {"const", "enum", "required", "dependentRequired", "type", NULL};

static bool named(const char *const *list, by_str key) {
    for (; *list; list++)
        if (by_str_eqz(key, *list)) return true;
    return false;
}

static role role_of(role parent, by_str key) {
    if (parent == PLAIN) return PLAIN;
    if (parent == MAP) return SCHEMA;
    return named(maps, key) ? MAP : named(plain, key) ? PLAIN : SCHEMA;
}

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, by_str s) {
    h = mix(h, s.len);
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (uint8_t)s.ptr[i]) * 0x100000001b3u;
    return mix(h, 0);
}

/* Depth is bounded by the number of values. False for what is too large or gives places a name. */
static bool hash(const by_json *v, role is, uint32_t *left, uint64_t *h) {
    if ((*left)-- == 0) return false;
    *h = mix(*h, v->type);
    switch (v->type) {
    case BY_JSON_NULL: return true;
    case BY_JSON_BOOL: *h = mix(*h, v->v.b); return true;
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE: *h = mix_text(*h, v->raw); return true;
    case BY_JSON_STRING: *h = mix_text(*h, v->v.s); return true;
    case BY_JSON_ARRAY:
        for (uint32_t i = 0; i < v->n; i++)
            if (!hash(&v->v.items[i], is, left, h)) return false;
        break;
    case BY_JSON_OBJECT:
        for (uint32_t i = 0; i < v->n; i++) {
            const by_json_member *m = &v->v.members[i];
            if (is == SCHEMA && named(names_places, m->key)) return false;
            if (is == SCHEMA && named(notes, m->key)) continue;
            *h = mix_text(*h, m->key);
            if (!hash(&m->value, role_of(is, m->key), left, h)) return false;
        }
        break;
    }
    *h = mix(*h, 0x5d);
    return true;
}

uint64_t by_gr_schema_hash(const by_json *v) {
    uint64_t h = 0x7f4a7c15;
    uint32_t left = NODES_MAX;
    return hash(v, SCHEMA, &left, &h) ? h | 1 : 0;
}

static uint32_t next_member(const by_json *v, role is, uint32_t i) {
    while (i < v->n && is == SCHEMA && named(notes, v->v.members[i].key))
        i++;
    return i;
}

static bool same(const by_json *a, const by_json *b, role is) {
    if (a == b) return true;
    if (a->type != b->type) return false;
    switch (a->type) {
    case BY_JSON_NULL: return true;
    case BY_JSON_BOOL: return a->v.b == b->v.b;
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE: return by_str_eq(a->raw, b->raw);
    case BY_JSON_STRING: return by_str_eq(a->v.s, b->v.s);
    case BY_JSON_ARRAY:
        for (uint32_t i = 0; i < a->n && a->n == b->n; i++)
            if (!same(&a->v.items[i], &b->v.items[i], is)) return false;
        return a->n == b->n;
    case BY_JSON_OBJECT: break;
    }
    uint32_t i = next_member(a, is, 0), k = next_member(b, is, 0);
    while (i < a->n && k < b->n) {
        const by_json_member *x = &a->v.members[i], *y = &b->v.members[k];
        if (!by_str_eq(x->key, y->key) || !same(&x->value, &y->value, role_of(is, x->key))) return false;
        i = next_member(a, is, i + 1);
        k = next_member(b, is, k + 1);
    }
    return i >= a->n && k >= b->n;
}

bool by_gr_schema_same(const by_json *a, const by_json *b) {
    return same(a, b, SCHEMA);
}
