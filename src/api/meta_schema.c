/* meta_schema.c - is a value a JSON schema that a validator could be built from?
 *
 * Two steps. First the meta-schema: every keyword has a value of its kind, in the dialect that `$schema` names (2020-12
 * without one). Then what building needs, from the root on: patterns are regular expressions and references lead
 * somewhere. Only the verdict matters, the reason is for people. Both steps visit each schema once. */
#include <stdlib.h>

#include "api/convert.h"
#include "api/pattern_syntax.h"

enum { D4 = 1, D6 = 2, D7 = 4, D19 = 8, D20 = 16, ALL = 31, D6_UP = 30, D7_UP = 28, D19_UP = 24, TO_7 = 7 };

typedef enum {
    K_STRING,
    K_BOOL,
    K_ARRAY,
    K_NUMBER,
    K_POSITIVE,   /* number above 0 */
    K_COUNT,      /* integer from 0, maybe written 2.0 */
    K_NAMES,      /* strings, all different */
    K_NAMES_1,    /* the same, at least one */
    K_ENUM_1,     /* array of different values, at least one */
    K_TYPE,       /* a type word, or different ones */
    K_SCHEMA,
    K_BOOL_SCHEMA, /* draft 4: boolean or schema object */
    K_SCHEMAS,    /* array of schemas, at least one */
    K_ITEMS,      /* schema or array of schemas */
    K_MAP,        /* object of schemas */
    K_PATTERNS,   /* object of schemas whose keys are patterns */
    K_DEPENDENCIES, /* object of schemas or names */
    K_NAME_MAP,   /* object of names */
    K_BOOL_MAP,
    K_PATTERN,    /* string, a regular expression */
    K_ID,         /* string without a fragment */
    K_ANCHOR,
    K_REF
} kind;

typedef struct {
    by_str key;
    kind kind;
    int drafts;
    enum { PLAIN, BUILT, LAX } use; /* built: a validator is made of it; lax: where a value that is no schema does no harm */
} keyword;

/* By length of the name. */
static const keyword of_2[] = {{BY_STR("id"), K_STRING, D4, PLAIN}, {BY_STR("if"), K_SCHEMA, D7_UP, LAX}};
static const keyword of_3[] = {
    {BY_STR("$id"), K_ID, D19_UP, PLAIN}, {BY_STR("$id"), K_STRING, D6 | D7, PLAIN},
    {BY_STR("not"), K_SCHEMA, ALL, BUILT},
};
static const keyword of_4[] = {
    {BY_STR("$ref"), K_REF, D6_UP, BUILT}, {BY_STR("$ref"), K_REF, D4, BUILT}, {BY_STR("then"), K_SCHEMA, D7_UP, LAX},
    {BY_STR("else"), K_SCHEMA, D7_UP, LAX}, {BY_STR("type"), K_TYPE, ALL, BUILT}, {BY_STR("enum"), K_ARRAY, D7_UP, BUILT},
    {BY_STR("enum"), K_ENUM_1, D4 | D6, BUILT},
};
static const keyword of_5[] = {
    {BY_STR("$defs"), K_MAP, D19_UP, PLAIN}, {BY_STR("items"), K_SCHEMA, D20, LAX},
    {BY_STR("items"), K_ITEMS, ALL & ~D20, BUILT}, {BY_STR("allOf"), K_SCHEMAS, ALL, BUILT},
    {BY_STR("anyOf"), K_SCHEMAS, ALL, BUILT}, {BY_STR("oneOf"), K_SCHEMAS, ALL, BUILT},
    {BY_STR("title"), K_STRING, ALL, PLAIN},
};
static const keyword of_6[] = {{BY_STR("format"), K_STRING, ALL, BUILT}};
static const keyword of_7[] = {
    {BY_STR("$schema"), K_STRING, ALL, PLAIN}, {BY_STR("$anchor"), K_ANCHOR, D19_UP, PLAIN},
    {BY_STR("maximum"), K_NUMBER, ALL, BUILT}, {BY_STR("minimum"), K_NUMBER, ALL, BUILT},
    {BY_STR("pattern"), K_PATTERN, ALL, BUILT},
};
static const keyword of_8[] = {
    {BY_STR("$comment"), K_STRING, D7_UP, PLAIN}, {BY_STR("contains"), K_SCHEMA, D6_UP, BUILT},
    {BY_STR("maxItems"), K_COUNT, ALL, BUILT}, {BY_STR("minItems"), K_COUNT, ALL, BUILT},
    {BY_STR("required"), K_NAMES, D6_UP, BUILT}, {BY_STR("required"), K_NAMES_1, D4, BUILT},
    {BY_STR("readOnly"), K_BOOL, D7_UP, PLAIN}, {BY_STR("examples"), K_ARRAY, D6_UP, PLAIN},
};
static const keyword of_9[] = {
    {BY_STR("maxLength"), K_COUNT, ALL, BUILT}, {BY_STR("minLength"), K_COUNT, ALL, BUILT},
    {BY_STR("writeOnly"), K_BOOL, D7_UP, PLAIN},
};
static const keyword of_10[] = {
    {BY_STR("properties"), K_MAP, ALL, BUILT}, {BY_STR("multipleOf"), K_POSITIVE, ALL, BUILT},
    {BY_STR("deprecated"), K_BOOL, D19_UP, PLAIN},
};
static const keyword of_11[] = {
    {BY_STR("$dynamicRef"), K_REF, D20, BUILT}, {BY_STR("$vocabulary"), K_BOOL_MAP, D19_UP, PLAIN},
    {BY_STR("definitions"), K_MAP, ALL, PLAIN}, {BY_STR("prefixItems"), K_SCHEMAS, D20, BUILT},
    {BY_STR("uniqueItems"), K_BOOL, ALL, PLAIN}, {BY_STR("maxContains"), K_COUNT, D19_UP, PLAIN},
    {BY_STR("minContains"), K_COUNT, D19_UP, PLAIN}, {BY_STR("description"), K_STRING, ALL, PLAIN},
};
static const keyword of_12[] = {{BY_STR("dependencies"), K_DEPENDENCIES, ALL, BUILT}};
static const keyword of_13[] = {
    {BY_STR("$recursiveRef"), K_STRING, D19_UP, PLAIN}, {BY_STR("propertyNames"), K_SCHEMA, D6_UP, LAX},
    {BY_STR("maxProperties"), K_COUNT, ALL, BUILT}, {BY_STR("minProperties"), K_COUNT, ALL, BUILT},
    {BY_STR("contentSchema"), K_SCHEMA, D19_UP, PLAIN},
};
static const keyword of_14[] = {{BY_STR("$dynamicAnchor"), K_ANCHOR, D20, PLAIN}};
static const keyword of_15[] = {
    {BY_STR("additionalItems"), K_SCHEMA, D6 | D7 | D19, LAX}, {BY_STR("additionalItems"), K_BOOL_SCHEMA, D4, LAX},
    {BY_STR("contentEncoding"), K_STRING, D7_UP, PLAIN},
};
static const keyword of_16[] = {
    {BY_STR("$recursiveAnchor"), K_BOOL, D19, PLAIN}, {BY_STR("$recursiveAnchor"), K_ANCHOR, D20, PLAIN},
    {BY_STR("dependentSchemas"), K_MAP, D19_UP, BUILT}, {BY_STR("unevaluatedItems"), K_SCHEMA, D19_UP, BUILT},
    {BY_STR("exclusiveMaximum"), K_NUMBER, D6_UP, BUILT}, {BY_STR("exclusiveMinimum"), K_NUMBER, D6_UP, BUILT},
    {BY_STR("exclusiveMaximum"), K_BOOL, D4, BUILT}, {BY_STR("exclusiveMinimum"), K_BOOL, D4, BUILT},
    {BY_STR("contentMediaType"), K_STRING, D7_UP, PLAIN},
};
static const keyword of_17[] = {
    {BY_STR("patternProperties"), K_PATTERNS, ALL, BUILT}, {BY_STR("dependentRequired"), K_NAME_MAP, D19_UP, BUILT},
};
static const keyword of_20[] = {
    {BY_STR("additionalProperties"), K_SCHEMA, D6_UP, BUILT}, {BY_STR("additionalProperties"), K_BOOL_SCHEMA, D4, BUILT},
};
static const keyword of_21[] = {{BY_STR("unevaluatedProperties"), K_SCHEMA, D19_UP, BUILT}};
static const struct {
    const keyword *list;
    uint32_t n;
} keywords[] = {
    [2] = {of_2, BY_COUNT(of_2)}, [3] = {of_3, BY_COUNT(of_3)}, [4] = {of_4, BY_COUNT(of_4)},
    [5] = {of_5, BY_COUNT(of_5)}, [6] = {of_6, BY_COUNT(of_6)}, [7] = {of_7, BY_COUNT(of_7)},
    [8] = {of_8, BY_COUNT(of_8)}, [9] = {of_9, BY_COUNT(of_9)}, [10] = {of_10, BY_COUNT(of_10)},
    [11] = {of_11, BY_COUNT(of_11)}, [12] = {of_12, BY_COUNT(of_12)}, [13] = {of_13, BY_COUNT(of_13)},
    [14] = {of_14, BY_COUNT(of_14)}, [15] = {of_15, BY_COUNT(of_15)}, [16] = {of_16, BY_COUNT(of_16)},
    [17] = {of_17, BY_COUNT(of_17)}, [20] = {of_20, BY_COUNT(of_20)}, [21] = {of_21, BY_COUNT(of_21)},
};

typedef struct {
    by_convert *cv;
    int draft;
    const by_json *root, *at; /* at: the schema looked at */
    by_buf why;
    /* schemas that were visited in the second step, and those to visit */
    const by_json **seen;
    size_t n_seen, cap_seen; /* power of two, open addressing */
    const by_json **todo;
    size_t n_todo, cap_todo;
    unsigned n_searches; /* references by name or id: each walks the whole text */
} checker;

enum { SEARCHES_MAX = 1000 };

static by_status fault(checker *k, by_str key, const char *what) {
    by_buf_clear(&k->why);
    by_buf_push_str(&k->why, key);
    by_buf_push_z(&k->why, what);
    return BY_EINVAL;
}

static const keyword *find_keyword(const checker *k, by_str key) {
    if (key.len >= BY_COUNT(keywords)) return NULL;
    for (uint32_t i = 0; i < keywords[key.len].n; i++) {
        const keyword *w = &keywords[key.len].list[i];
        if (w->key.ptr[0] == key.ptr[0] && (w->drafts & k->draft) && memcmp(w->key.ptr, key.ptr, key.len) == 0) return w;
    }
    return NULL;
}

/* ---- equal values ---- */

static bool equal(const by_json *a, const by_json *b) {
    if (by_json_is_number(a) && by_json_is_number(b)) {
        if (a->type == b->type && a->type == BY_JSON_INT) return a->v.i == b->v.i;
        if (a->type == b->type && a->type == BY_JSON_UINT) return a->v.u == b->v.u;
        return by_json_number(a) == by_json_number(b);
    }
    if (a->type != b->type || (a->type >= BY_JSON_ARRAY && a->n != b->n)) return false;
    switch (a->type) {
    case BY_JSON_BOOL: return a->v.b == b->v.b;
    case BY_JSON_STRING: return by_str_eq(a->v.s, b->v.s);
    case BY_JSON_ARRAY:
        for (uint32_t i = 0; i < a->n; i++)
            if (!equal(&a->v.items[i], &b->v.items[i])) return false;
        return true;
    case BY_JSON_OBJECT:
        for (uint32_t i = 0; i < a->n; i++) {
            const by_json *other = by_json_get_str(b, a->v.members[i].key);
            if (!other || !equal(&a->v.members[i].value, other)) return false;
        }
        return true;
    default: return true;
    }
}

static int compare_texts(const void *a, const void *b) { return by_str_cmp(*(const by_str *)a, *(const by_str *)b); }

/* Strings only, all different. */
static by_status check_names(checker *k, by_str key, const by_json *v, uint32_t least) {
    if (v->type != BY_JSON_ARRAY) return fault(k, key, ": expected a list of strings");
    if (v->n < least) return fault(k, key, ": expected at least one item");
    by_str *names = BY_MAKE(k->cv, by_str, v->n);
    if (!names) return by_no_memory(k->cv);
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->v.items[i].type != BY_JSON_STRING) return fault(k, key, ": expected strings");
        names[i] = v->v.items[i].v.s;
    }
    qsort(names, v->n, sizeof *names, compare_texts);
    for (uint32_t i = 1; i < v->n; i++)
        if (by_str_eq(names[i - 1], names[i])) return fault(k, key, ": items repeat");
    return BY_OK;
}

/* Pairwise: lists of old dialects only, cut off where that would take long. */
static by_status check_enum(checker *k, by_str key, const by_json *v) {
    enum { ITEMS_MAX = 2000 };
    if (v->type != BY_JSON_ARRAY || v->n == 0) return fault(k, key, ": expected a list of at least one item");
    for (uint32_t i = 0; i < v->n && v->n <= ITEMS_MAX; i++)
        for (uint32_t j = 0; j < i; j++)
            if (equal(&v->v.items[i], &v->v.items[j])) return fault(k, key, ": items repeat");
    return BY_OK;
}

/* ---- first step: values of keywords ---- */

static by_status check_meta(checker *k, const by_json *v);

static bool is_type_word(const by_json *v) {
    static const char *const words[] = {"array", "boolean", "integer", "null", "number", "object", "string"};
    for (uint32_t i = 0; v->type == BY_JSON_STRING && i < BY_COUNT(words); i++)
        if (by_str_eqz(v->v.s, words[i])) return true;
    return false;
}

static by_status unknown_type(checker *k, by_str key, const by_json *v) {
    enum { SHOWN_BYTES = 32 };
    by_status status = fault(k, key, ": unknown type");
    if (v->type == BY_JSON_STRING && v->v.s.len <= SHOWN_BYTES) by_buf_printf(&k->why, " '%.*s'", BY_STR_ARG(v->v.s));
    return status;
}

static by_status check_type(checker *k, by_str key, const by_json *v) {
    if (v->type != BY_JSON_ARRAY) return is_type_word(v) ? BY_OK : unknown_type(k, key, v);
    for (uint32_t i = 0; i < v->n; i++)
        if (!is_type_word(&v->v.items[i])) return unknown_type(k, key, &v->v.items[i]);
    return check_names(k, key, v, 1);
}

static bool is_count(const by_json *v) {
    if (v->type == BY_JSON_UINT) return true;
    if (v->type == BY_JSON_INT) return v->v.i >= 0;
    return v->type == BY_JSON_DOUBLE && v->v.d >= 0 && v->v.d == __builtin_floor(v->v.d);
}

static bool is_anchor(by_str s) {
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '-' || c == '.'))) return false;
    }
    return s.len > 0;
}

static by_status check_schemas(checker *k, by_str key, const by_json *v, uint32_t least) {
    if (v->type != BY_JSON_ARRAY) return fault(k, key, ": expected a list of schemas");
    if (v->n < least) return fault(k, key, ": expected at least one schema");
    for (uint32_t i = 0; i < v->n; i++) BY_TRY(check_meta(k, &v->v.items[i]));
    return BY_OK;
}

static by_status check_map(checker *k, by_str key, const by_json *v, kind of) {
    if (v->type != BY_JSON_OBJECT) return fault(k, key, ": expected an object");
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json *item = &v->v.members[i].value;
        by_status status = BY_OK;
        if (of == K_BOOL_MAP) status = item->type == BY_JSON_BOOL ? BY_OK : fault(k, key, ": expected booleans");
        else if (of == K_NAME_MAP) status = check_names(k, key, item, 0);
        else if (of == K_DEPENDENCIES && item->type == BY_JSON_ARRAY) status = check_names(k, key, item, k->draft == D4);
        else status = check_meta(k, item);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status want(checker *k, by_str key, bool ok, const char *what) { return ok ? BY_OK : fault(k, key, what); }

static by_status check_keyword(checker *k, by_str key, kind want_kind, const by_json *v) {
    switch (want_kind) {
    case K_PATTERN:
    case K_REF:
    case K_STRING: return want(k, key, v->type == BY_JSON_STRING, ": expected a string");
    case K_BOOL: return want(k, key, v->type == BY_JSON_BOOL, ": expected a boolean");
    case K_ARRAY: return want(k, key, v->type == BY_JSON_ARRAY, ": expected a list");
    case K_NUMBER: return want(k, key, by_json_is_number(v), ": expected a number");
    case K_POSITIVE: return want(k, key, by_json_is_number(v) && by_json_number(v) > 0, ": expected a number above 0");
    case K_COUNT: return want(k, key, is_count(v), ": expected an integer from 0");
    case K_NAMES: return check_names(k, key, v, 0);
    case K_NAMES_1: return check_names(k, key, v, 1);
    case K_ENUM_1: return check_enum(k, key, v);
    case K_TYPE: return check_type(k, key, v);
    case K_SCHEMA: return check_meta(k, v);
    case K_BOOL_SCHEMA: return v->type == BY_JSON_BOOL ? BY_OK : check_meta(k, v);
    case K_SCHEMAS: return check_schemas(k, key, v, 1);
    case K_ITEMS: return v->type == BY_JSON_ARRAY ? check_schemas(k, key, v, k->draft == D4) : check_meta(k, v);
    case K_MAP:
    case K_PATTERNS:
    case K_DEPENDENCIES:
    case K_NAME_MAP:
    case K_BOOL_MAP: return check_map(k, key, v, want_kind);
    case K_ID: {
        bool ok = v->type == BY_JSON_STRING && (v->v.s.len == 0 || !memchr(v->v.s.ptr, '#', v->v.s.len - 1));
        return want(k, key, ok, ": expected a string without a fragment");
    }
    case K_ANCHOR: return want(k, key, v->type == BY_JSON_STRING && is_anchor(v->v.s), ": expected a name");
    }
    return BY_OK;
}

static by_status check_meta(checker *k, const by_json *v) {
    k->at = v;
    if (v->type == BY_JSON_BOOL && k->draft != D4) return BY_OK;
    if (v->type != BY_JSON_OBJECT) return fault(k, by_str_of(NULL, 0), "expected an object or a boolean");
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json_member *m = &v->v.members[i];
        const keyword *w = find_keyword(k, m->key);
        if (w) BY_TRY(check_keyword(k, m->key, w->kind, &m->value));
        k->at = v;
    }
    if (k->draft != D4) return BY_OK;
    if (by_json_get(v, "exclusiveMaximum") && !by_json_get(v, "maximum")) return fault(k, BY_STR("maximum"), ": missing");
    if (by_json_get(v, "exclusiveMinimum") && !by_json_get(v, "minimum")) return fault(k, BY_STR("minimum"), ": missing");
    return BY_OK;
}

/* ---- second step: what building visits ---- */

static size_t slot_of(const checker *k, const by_json *v) {
    uint64_t h = (uint64_t)(uintptr_t)v * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(h >> 20) & (k->cap_seen - 1);
    while (k->seen[at] && k->seen[at] != v) at = (at + 1) & (k->cap_seen - 1);
    return at;
}

static by_status grow_seen(checker *k) {
    const by_json **old = k->seen;
    size_t old_cap = k->cap_seen;
    k->cap_seen = old_cap ? old_cap * 2 : 64;
    k->seen = BY_MAKE(k->cv, const by_json *, k->cap_seen);
    if (!k->seen) return by_no_memory(k->cv);
    for (size_t i = 0; i < old_cap; i++)
        if (old[i]) k->seen[slot_of(k, old[i])] = old[i];
    return BY_OK;
}

/* Puts a schema on the list of those to visit, once. */
static by_status visit_later(checker *k, const by_json *v) {
    if (k->n_seen * 2 >= k->cap_seen) BY_TRY(grow_seen(k));
    size_t at = slot_of(k, v);
    if (k->seen[at]) return BY_OK;
    k->seen[at] = v;
    k->n_seen++;
    if (k->n_todo == k->cap_todo) {
        size_t cap = k->cap_todo ? k->cap_todo * 2 : 32;
        const by_json **fresh = BY_MAKE(k->cv, const by_json *, cap);
        if (!fresh) return by_no_memory(k->cv);
        if (k->n_todo) memcpy(fresh, k->todo, k->n_todo * sizeof *fresh);
        k->todo = fresh;
        k->cap_todo = cap;
    }
    k->todo[k->n_todo++] = v;
    return BY_OK;
}

static const by_json *find_anchor(const by_json *v, by_str name, by_str id_of_it) {
    if (v->type == BY_JSON_ARRAY) {
        for (uint32_t i = 0; i < v->n; i++) {
            const by_json *hit = find_anchor(&v->v.items[i], name, id_of_it);
            if (hit) return hit;
        }
    }
    if (v->type != BY_JSON_OBJECT) return NULL;
    static const char *const keys[] = {"$anchor", "$dynamicAnchor"};
    static const char *const id_keys[] = {"$id", "id"};
    for (int i = 0; i < 2; i++) {
        const by_json *a = by_json_get(v, keys[i]), *id = by_json_get(v, id_keys[i]);
        if (name.len && by_json_is(a, BY_JSON_STRING) && by_str_eq(a->v.s, name)) return v;
        if (by_json_is(id, BY_JSON_STRING) && by_str_eq(id->v.s, id_of_it)) return v;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json *hit = find_anchor(&v->v.members[i].value, name, id_of_it);
        if (hit) return hit;
    }
    return NULL;
}

/* One step of a pointer: ~1 is '/', ~0 is '~', %xx a byte. */
static by_status unescape_step(checker *k, by_str step, by_str *out) {
    char *text = by_arena_alloc(k->cv->arena, step.len), *to = text;
    if (!text) return by_no_memory(k->cv);
    for (size_t i = 0; i < step.len; i++) {
        int c = step.ptr[i];
        if (c == '%' && i + 2 < step.len) {
            char hex[] = {step.ptr[i + 1], step.ptr[i + 2], '\0'}, *end;
            long byte = strtol(hex, &end, 16);
            if (end == hex + 2) c = (int)byte, i += 2;
        } else if (c == '~' && i + 1 < step.len && (step.ptr[i + 1] == '0' || step.ptr[i + 1] == '1')) {
            c = step.ptr[++i] == '0' ? '~' : '/';
        }
        *to++ = (char)c;
    }
    *out = by_str_of(text, (size_t)(to - text));
    return BY_OK;
}

static const by_json *array_item(const by_json *v, by_str step) {
    uint64_t index = 0;
    if (step.len == 0 || step.len > 9 || (step.len > 1 && step.ptr[0] == '0')) return NULL;
    for (size_t i = 0; i < step.len; i++) {
        if (step.ptr[i] < '0' || step.ptr[i] > '9') return NULL;
        index = index * 10 + (uint64_t)(step.ptr[i] - '0');
    }
    return by_json_at(v, index);
}

static by_status follow_pointer(checker *k, const by_json *v, by_str pointer, const by_json **out) {
    while (v && pointer.len) {
        pointer = by_str_skip(pointer, 1);
        const char *slash = pointer.len ? memchr(pointer.ptr, '/', pointer.len) : NULL;
        size_t n = slash ? (size_t)(slash - pointer.ptr) : pointer.len;
        by_str step;
        BY_TRY(unescape_step(k, by_str_take(pointer, n), &step));
        v = v->type == BY_JSON_ARRAY ? array_item(v, step) : by_json_get_str(v, step);
        pointer = by_str_skip(pointer, n);
    }
    *out = v;
    return BY_OK;
}

static int draft_of(by_str uri) {
    static const struct {
        const char *uri;
        int draft;
    } known[] = {
        {"://json-schema.org/draft-04/schema", D4},          {"://json-schema.org/draft-06/schema", D6},
        {"://json-schema.org/draft-07/schema", D7},          {"://json-schema.org/draft/2019-09/schema", D19},
        {"://json-schema.org/draft/2020-12/schema", D20},
    };
    if (by_str_starts(uri, BY_STR("https"))) uri = by_str_skip(uri, 5);
    else if (by_str_starts(uri, BY_STR("http"))) uri = by_str_skip(uri, 4);
    if (by_str_ends(uri, BY_STR("#"))) uri.len--;
    for (uint32_t i = 0; i < BY_COUNT(known); i++)
        if (by_str_eqz(uri, known[i].uri)) return known[i].draft;
    return 0;
}

static by_status follow_ref(checker *k, by_str ref) {
    const char *hash = ref.len ? memchr(ref.ptr, '#', ref.len) : NULL;
    size_t before = hash ? (size_t)(hash - ref.ptr) : ref.len;
    by_str document = by_str_take(ref, before), fragment = hash ? by_str_skip(ref, before + 1) : by_str_of(NULL, 0);
    const by_json *target = k->root;
    if (++k->n_searches > SEARCHES_MAX && (document.len || (fragment.len && fragment.ptr[0] != '/')))
        return fault(k, ref, ": too many references by name");
    if (document.len) {
        if (draft_of(document)) return BY_OK;
        target = find_anchor(k->root, by_str_of(NULL, 0), document);
        if (!target) return fault(k, ref, ": no such reference");
    }
    if (fragment.len && fragment.ptr[0] == '/') BY_TRY(follow_pointer(k, target, fragment, &target));
    else if (fragment.len) target = find_anchor(target, fragment, ref);
    if (!target) return fault(k, ref, ": no such reference");
    if (target->type != BY_JSON_OBJECT && target->type != BY_JSON_BOOL) return fault(k, ref, ": leads to no schema");
    return visit_later(k, target);
}

static by_status not_schema(checker *k, by_str key) { return fault(k, key, ": expected an object or a boolean"); }

static bool is_schema(const by_json *v) { return v->type == BY_JSON_OBJECT || v->type == BY_JSON_BOOL; }

static by_status visit_schema(checker *k, by_str key, const by_json *v) {
    return is_schema(v) ? visit_later(k, v) : not_schema(k, key);
}

static by_status visit_list(checker *k, by_str key, const by_json *v) {
    if (v->type != BY_JSON_ARRAY) return fault(k, key, ": expected a list of schemas");
    for (uint32_t i = 0; i < v->n; i++) BY_TRY(visit_schema(k, key, &v->v.items[i]));
    return BY_OK;
}

static by_status visit_map(checker *k, by_str key, const by_json *v, kind of) {
    if (v->type != BY_JSON_OBJECT) return fault(k, key, ": expected an object");
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json_member *m = &v->v.members[i];
        if (of == K_PATTERNS) BY_TRY(want(k, key, by_pattern_is_valid(m->key), ": a key is not a regular expression"));
        if (of == K_NAME_MAP) BY_TRY(want(k, key, m->value.type == BY_JSON_ARRAY, ": expected lists"));
        else if (of != K_DEPENDENCIES || m->value.type != BY_JSON_ARRAY) BY_TRY(visit_schema(k, key, &m->value));
    }
    return BY_OK;
}

static by_status build_words(checker *k, by_str key, const by_json *v, bool types) {
    if (v->type != BY_JSON_ARRAY) return want(k, key, types && is_type_word(v), types ? ": unknown type" : ": expected a list");
    for (uint32_t i = 0; i < v->n; i++)
        BY_TRY(want(k, key, types ? is_type_word(&v->v.items[i]) : v->v.items[i].type == BY_JSON_STRING, ": unknown word"));
    return BY_OK;
}

/* Values are looked at again, not quite as closely: a reference can lead to what the first step took for plain values. */
static by_status build_keyword(checker *k, const keyword *w, by_str key, const by_json *v) {
    switch (w->kind) {
    case K_PATTERN: return want(k, key, v->type == BY_JSON_STRING && by_pattern_is_valid(v->v.s), ": not a regular expression");
    case K_REF: return v->type == BY_JSON_STRING ? follow_ref(k, v->v.s) : fault(k, key, ": expected a string");
    case K_SCHEMA:
    case K_BOOL_SCHEMA: return w->use == LAX && !is_schema(v) ? BY_OK : visit_schema(k, key, v);
    case K_ITEMS:
        if (v->type == BY_JSON_ARRAY) return visit_list(k, key, v);
        return is_schema(v) ? visit_later(k, v) : BY_OK;
    case K_SCHEMAS: return visit_list(k, key, v);
    case K_MAP:
    case K_PATTERNS:
    case K_NAME_MAP:
    case K_DEPENDENCIES: return visit_map(k, key, v, w->kind);
    case K_TYPE: return build_words(k, key, v, true);
    case K_NAMES:
    case K_NAMES_1: return build_words(k, key, v, false);
    case K_POSITIVE: return want(k, key, by_json_is_number(v), ": expected a number");
    case K_ENUM_1: return want(k, key, v->type == BY_JSON_ARRAY, ": expected a list");
    default: return check_keyword(k, key, w->kind, v);
    }
}

static by_status build(checker *k) {
    BY_TRY(visit_later(k, k->root));
    while (k->n_todo) {
        const by_json *v = k->todo[--k->n_todo];
        k->at = v;
        if (v->type != BY_JSON_OBJECT) continue;
        const by_json *ref = by_json_get(v, "$ref");
        if (ref && (k->draft & TO_7)) { /* siblings of a reference do not count there */
            if (ref->type == BY_JSON_STRING) BY_TRY(follow_ref(k, ref->v.s));
            continue;
        }
        for (uint32_t i = 0; i < v->n; i++) {
            const keyword *w = find_keyword(k, v->v.members[i].key);
            if (w && w->use != PLAIN)
                BY_TRY(build_keyword(k, w, v->v.members[i].key, &v->v.members[i].value));
        }
    }
    return BY_OK;
}

/* ---- entry ---- */

static by_status choose_draft(checker *k, const by_json *schema) {
    const by_json *uri = by_json_get(schema, "$schema");
    k->draft = D20;
    if (!uri || (uri->type == BY_JSON_STRING && uri->v.s.len == 0)) return BY_OK;
    if (uri->type != BY_JSON_STRING) return fault(k, BY_STR("$schema"), ": expected a string");
    k->draft = draft_of(uri->v.s);
    return k->draft ? BY_OK : fault(k, BY_STR("$schema"), ": unknown dialect");
}

/* Appends the place of `want` in v, as a JSON pointer that is not escaped: it is for people. False: not in there. */
static bool push_place(by_buf *b, const by_json *v, const by_json *want) {
    size_t len = b->len;
    if (v == want) return true;
    for (uint32_t i = 0; v->type >= BY_JSON_ARRAY && i < v->n; i++) {
        bool list = v->type == BY_JSON_ARRAY;
        b->len = len;
        by_buf_push_byte(b, '/');
        if (list) by_buf_printf(b, "%u", i);
        else by_buf_push_str(b, v->v.members[i].key);
        if (push_place(b, list ? &v->v.items[i] : &v->v.members[i].value, want)) return true;
    }
    b->len = len;
    return false;
}

static by_status say_why(const checker *k, by_str *why) {
    enum { PLACE_BYTES = 200 }; /* a longer one tells people nothing */
    by_buf b = {0};
    if (k->at) push_place(&b, k->root, k->at);
    if (b.len > PLACE_BYTES) by_buf_clear(&b);
    if (b.len) by_buf_push_z(&b, ": ");
    by_buf_push_str(&b, by_buf_str(&k->why));
    *why = by_arena_dup(k->cv->arena, by_buf_str(&b));
    bool failed = b.failed || k->why.failed || !why->ptr;
    by_buf_deinit(&b);
    return failed ? by_no_memory(k->cv) : BY_EINVAL;
}

by_status by_check_schema(by_convert *cv, const by_json *schema, by_str *why) {
    checker k = {.cv = cv, .root = schema};
    by_status status = choose_draft(&k, schema);
    if (status == BY_OK) status = check_meta(&k, schema);
    if (status == BY_OK) status = build(&k);
    if (status == BY_EINVAL) status = say_why(&k, why);
    by_buf_deinit(&k.why);
    return status;
}
