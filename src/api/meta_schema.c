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
    const char *key;
    kind kind;
    int drafts;
    bool applies; /* a validator is built for the schemas below */
} keyword;

static const keyword keywords[] = {
    {"$id", K_ID, D19_UP, false}, {"$id", K_STRING, D6 | D7, false}, {"id", K_STRING, D4, false},
    {"$schema", K_STRING, ALL, false}, {"$ref", K_REF, D6_UP, false}, {"$ref", K_REF, D4, false},
    {"$anchor", K_ANCHOR, D19_UP, false}, {"$dynamicAnchor", K_ANCHOR, D20, false}, {"$dynamicRef", K_REF, D20, false},
    {"$recursiveAnchor", K_BOOL, D19, false}, {"$recursiveAnchor", K_ANCHOR, D20, false},
    {"$recursiveRef", K_STRING, D19_UP, false}, {"$vocabulary", K_BOOL_MAP, D19_UP, false},
    {"$comment", K_STRING, D7_UP, false}, {"$defs", K_MAP, D19_UP, false}, {"definitions", K_MAP, ALL, false},
    {"dependencies", K_DEPENDENCIES, ALL, true}, {"prefixItems", K_SCHEMAS, D20, true}, {"items", K_SCHEMA, D20, true},
    {"items", K_ITEMS, ALL & ~D20, true}, {"additionalItems", K_SCHEMA, D6 | D7 | D19, true},
    {"additionalItems", K_BOOL_SCHEMA, D4, true}, {"contains", K_SCHEMA, D6_UP, true},
    {"additionalProperties", K_SCHEMA, D6_UP, true}, {"additionalProperties", K_BOOL_SCHEMA, D4, true},
    {"properties", K_MAP, ALL, true}, {"patternProperties", K_PATTERNS, ALL, true}, {"dependentSchemas", K_MAP, D19_UP, true},
    {"propertyNames", K_SCHEMA, D6_UP, true}, {"if", K_SCHEMA, D7_UP, true}, {"then", K_SCHEMA, D7_UP, true},
    {"else", K_SCHEMA, D7_UP, true}, {"allOf", K_SCHEMAS, ALL, true}, {"anyOf", K_SCHEMAS, ALL, true},
    {"oneOf", K_SCHEMAS, ALL, true}, {"not", K_SCHEMA, ALL, true}, {"unevaluatedItems", K_SCHEMA, D19_UP, true},
    {"unevaluatedProperties", K_SCHEMA, D19_UP, true}, {"type", K_TYPE, ALL, false}, {"enum", K_ARRAY, D7_UP, false},
    {"enum", K_ENUM_1, D4 | D6, false}, {"multipleOf", K_POSITIVE, ALL, false}, {"maximum", K_NUMBER, ALL, false},
    {"minimum", K_NUMBER, ALL, false}, {"exclusiveMaximum", K_NUMBER, D6_UP, false},
    {"exclusiveMinimum", K_NUMBER, D6_UP, false}, {"exclusiveMaximum", K_BOOL, D4, false},
    {"exclusiveMinimum", K_BOOL, D4, false}, {"maxLength", K_COUNT, ALL, false}, {"minLength", K_COUNT, ALL, false},
    {"pattern", K_PATTERN, ALL, false}, {"maxItems", K_COUNT, ALL, false}, {"minItems", K_COUNT, ALL, false},
    {"uniqueItems", K_BOOL, ALL, false}, {"maxContains", K_COUNT, D19_UP, false}, {"minContains", K_COUNT, D19_UP, false},
    {"maxProperties", K_COUNT, ALL, false}, {"minProperties", K_COUNT, ALL, false}, {"required", K_NAMES, D6_UP, false},
    {"required", K_NAMES_1, D4, false}, {"dependentRequired", K_NAME_MAP, D19_UP, false}, {"title", K_STRING, ALL, false},
    {"description", K_STRING, ALL, false}, {"deprecated", K_BOOL, D19_UP, false}, {"readOnly", K_BOOL, D7_UP, false},
    {"writeOnly", K_BOOL, D7_UP, false}, {"examples", K_ARRAY, D6_UP, false}, {"format", K_STRING, ALL, false},
    {"contentEncoding", K_STRING, D7_UP, false}, {"contentMediaType", K_STRING, D7_UP, false},
    {"contentSchema", K_SCHEMA, D19_UP, false},
};

typedef struct {
    by_convert *cv;
    int draft;
    const by_json *root;
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
    for (uint32_t i = 0; i < BY_COUNT(keywords); i++)
        if ((keywords[i].drafts & k->draft) && by_str_eqz(key, keywords[i].key)) return &keywords[i];
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

static by_status check_type(checker *k, by_str key, const by_json *v) {
    if (v->type != BY_JSON_ARRAY) return is_type_word(v) ? BY_OK : fault(k, key, ": unknown type");
    for (uint32_t i = 0; i < v->n; i++)
        if (!is_type_word(&v->v.items[i])) return fault(k, key, ": unknown type");
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
    if (v->type == BY_JSON_BOOL && k->draft != D4) return BY_OK;
    if (v->type != BY_JSON_OBJECT) return fault(k, by_str_of(NULL, 0), "expected an object or a boolean");
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json_member *m = &v->v.members[i];
        const keyword *w = find_keyword(k, m->key);
        if (w) BY_TRY(check_keyword(k, m->key, w->kind, &m->value));
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

static by_status visit_list(checker *k, const by_json *v) {
    for (uint32_t i = 0; i < v->n; i++)
        BY_TRY(visit_later(k, v->type == BY_JSON_ARRAY ? &v->v.items[i] : &v->v.members[i].value));
    return BY_OK;
}

static by_status build_keyword(checker *k, const keyword *w, by_str key, const by_json *v) {
    switch (w->kind) {
    case K_PATTERN: return want(k, key, v->type == BY_JSON_STRING && by_pattern_is_valid(v->v.s), ": not a regular expression");
    case K_REF: return v->type == BY_JSON_STRING ? follow_ref(k, v->v.s) : fault(k, key, ": expected a string");
    case K_PATTERNS:
        for (uint32_t i = 0; v->type == BY_JSON_OBJECT && i < v->n; i++)
            BY_TRY(want(k, key, by_pattern_is_valid(v->v.members[i].key), ": a key is not a regular expression"));
        return visit_list(k, v);
    case K_SCHEMA:
    case K_BOOL_SCHEMA: return visit_later(k, v);
    case K_SCHEMAS:
    case K_MAP: return visit_list(k, v);
    case K_ITEMS: return v->type == BY_JSON_ARRAY ? visit_list(k, v) : visit_later(k, v);
    case K_DEPENDENCIES:
        for (uint32_t i = 0; v->type == BY_JSON_OBJECT && i < v->n; i++)
            if (v->v.members[i].value.type == BY_JSON_OBJECT) BY_TRY(visit_later(k, &v->v.members[i].value));
        return BY_OK;
    default: return BY_OK;
    }
}

static by_status build(checker *k) {
    BY_TRY(visit_later(k, k->root));
    while (k->n_todo) {
        const by_json *v = k->todo[--k->n_todo];
        if (v->type != BY_JSON_OBJECT) continue;
        const by_json *ref = by_json_get(v, "$ref");
        if (ref && (k->draft & TO_7)) { /* siblings of a reference do not count there */
            if (ref->type == BY_JSON_STRING) BY_TRY(follow_ref(k, ref->v.s));
            continue;
        }
        for (uint32_t i = 0; i < v->n; i++) {
            const keyword *w = find_keyword(k, v->v.members[i].key);
            if (w && (w->applies || w->kind == K_PATTERN || w->kind == K_REF))
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

by_status by_check_schema(by_convert *cv, const by_json *schema, by_str *why) {
    checker k = {.cv = cv, .root = schema};
    by_status status = choose_draft(&k, schema);
    if (status == BY_OK) status = check_meta(&k, schema);
    if (status == BY_OK) status = build(&k);
    if (status == BY_EINVAL) {
        *why = by_arena_dup(cv->arena, by_buf_str(&k.why));
        if (k.why.failed || !why->ptr) status = by_no_memory(cv);
    }
    by_buf_deinit(&k.why);
    return status;
}
