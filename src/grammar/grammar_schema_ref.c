/* grammar_schema_ref.c - $id, $anchor and $ref inside one document. Nothing is ever fetched. */
#include <stdio.h>
#include <stdlib.h>

#include "grammar/grammar_schema.h"

typedef struct {
    const by_json *node;
    uint32_t base;
    bool is_schema; /* $id and $anchor count only where a schema stands */
} item;

/* Resolves ref against base (RFC 3986, without dot segments beyond the common case). Result in the arena. */
static by_str resolve_uri(by_gr *g, by_str base, by_str ref) {
    size_t colon = 0;
    while (colon < ref.len && ref.ptr[colon] != ':' && ref.ptr[colon] != '/' && ref.ptr[colon] != '#')
        colon++;
    if ((colon < ref.len && ref.ptr[colon] == ':') || base.len == 0) return by_arena_dup(&g->arena, ref);
    size_t frag = 0, scheme = 0, root, dir;
    while (frag < base.len && base.ptr[frag] != '#')
        frag++;
    base.len = frag;
    while (scheme < base.len && base.ptr[scheme] != ':')
        scheme++;
    root = scheme + 1;
    if (by_str_starts(by_str_skip(base, root < base.len ? root : base.len), BY_STR("//"))) {
        root += 2;
        while (root < base.len && base.ptr[root] != '/')
            root++;
    }
    dir = base.len;
    while (dir > root && base.ptr[dir - 1] != '/')
        dir--;
    size_t keep = ref.len && ref.ptr[0] == '/' ? root : ref.len && ref.ptr[0] == '#' ? base.len : dir;
    if (by_str_starts(ref, BY_STR("./"))) ref = by_str_skip(ref, 2);
    char *p = by_gr_alloc(g, keep + ref.len + 1);
    if (!p) return (by_str){0};
    memcpy(p, base.ptr, keep);
    memcpy(p + keep, ref.ptr, ref.len);
    return by_str_of(p, keep + ref.len);
}

static by_str without_fragment(by_str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == '#') return by_str_take(s, i);
    return s;
}

uint32_t by_gr_schema_base(by_gr *g, const by_json *node, uint32_t base) {
    const by_gr_schema *s = g->schema;
    for (uint32_t i = 0; i < s->n_bases; i++)
        if (s->bases[i].json == node) return s->bases[i].base;
    return base;
}

static bool add_resource(by_gr *g, const by_json *node, by_str uri, uint32_t *base) {
    by_gr_schema *s = g->schema;
    if (!by_gr_grow(g, &s->res, s->n_res, &s->cap_res, sizeof *s->res)) return false;
    if (!by_gr_grow(g, &s->bases, s->n_bases, &s->cap_bases, sizeof *s->bases)) return false;
    s->res[s->n_res] = (by_gr_resource){without_fragment(uri), node};
    s->bases[s->n_bases].json = node;
    s->bases[s->n_bases++].base = s->n_res;
    *base = s->n_res++;
    return true;
}

static bool add_anchor(by_gr *g, const by_json *node, const by_json *name, uint32_t base, bool dynamic) {
    by_gr_schema *s = g->schema;
    if (!by_json_is(name, BY_JSON_STRING)) return true;
    if (!by_gr_grow(g, &s->anchors, s->n_anchors, &s->cap_anchors, sizeof *s->anchors)) return false;
    s->anchors[s->n_anchors++] = (by_gr_anchor){name->v.s, base, node, dynamic};
    return true;
}

static const char *const one_schema[] = {
    "additionalProperties", "propertyNames",         "items",           "contains", "not", "if", "then", "else",
    "unevaluatedItems",     "unevaluatedProperties", "additionalItems", NULL};
static const char *const list_schema[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items", NULL};
static const char *const map_schema[] = {"properties",       "patternProperties", "$defs", "definitions",
                                         "dependentSchemas", "dependencies",      NULL};

static bool named(const char *const *list, by_str key) {
    for (; *list; list++)
        if (by_str_eqz(key, *list)) return true;
    return false;
}

static bool push_item(by_gr *g, item **stack, uint32_t *n, uint32_t *cap, item it) {
    if (it.node->type != BY_JSON_OBJECT && it.node->type != BY_JSON_ARRAY) return true;
    if (!by_gr_grow(g, stack, *n, cap, sizeof **stack)) return false;
    (*stack)[(*n)++] = it;
    return true;
}

static bool visit_schema(by_gr *g, item *it, bool draft4) {
    const by_json *id = by_json_get(it->node, "$id");
    if (!id && draft4) id = by_json_get(it->node, "id");
    if (by_json_is(id, BY_JSON_STRING) && id->v.s.len && id->v.s.ptr[0] != '#') {
        by_str uri = resolve_uri(g, g->schema->res[it->base].uri, id->v.s);
        if (it->node == g->schema->root)
            g->schema->res[0].uri = without_fragment(uri);
        else if (!add_resource(g, it->node, uri, &it->base))
            return false;
    } else if (by_json_is(id, BY_JSON_STRING) && id->v.s.len) {
        by_json name = {.type = BY_JSON_STRING, .v.s = by_str_skip(id->v.s, 1)}; /* draft 4 and 6: anchor by $id */
        if (!add_anchor(g, it->node, &name, it->base, false)) return false;
    }
    if (by_json_get(it->node, "unevaluatedProperties") || by_json_get(it->node, "unevaluatedItems"))
        g->schema->track = true;
    return add_anchor(g, it->node, by_json_get(it->node, "$anchor"), it->base, false) &&
           add_anchor(g, it->node, by_json_get(it->node, "$dynamicAnchor"), it->base, true);
}

/* The dynamic anchor that a name is bound to in a scope; NULL when there is none. */
static const by_gr_anchor *bound(const by_gr_schema *s, uint32_t scope, by_str name) {
    for (uint32_t i = scope; i; i = s->scopes[i - 1].outer)
        if (by_str_eq(s->anchors[s->scopes[i - 1].anchor].name, name)) return &s->anchors[s->scopes[i - 1].anchor];
    return NULL;
}

/* Has `scope` just the anchors of `other`, and one more? In any order. */
static bool is_extended(const by_gr_schema *s, uint32_t scope, uint32_t other, uint32_t anchor) {
    if (s->scopes[scope - 1].n != (other ? s->scopes[other - 1].n : 0) + 1) return false;
    if (bound(s, scope, s->anchors[anchor].name) != &s->anchors[anchor]) return false;
    for (uint32_t i = other; i; i = s->scopes[i - 1].outer) {
        const by_gr_anchor *a = &s->anchors[s->scopes[i - 1].anchor];
        if (bound(s, scope, a->name) != a) return false;
    }
    return true;
}

static uint32_t bind(by_gr *g, uint32_t scope, uint32_t anchor) {
    by_gr_schema *s = g->schema;
    uint64_t mixed = (anchor + 1) * 0x9e3779b97f4a7c15u, key = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
    uint32_t n = 1;
    if (scope) key += s->scopes[scope - 1].key, n += s->scopes[scope - 1].n;
    for (uint32_t i = 0; i < s->n_scopes; i++)
        if (s->scopes[i].key == key && is_extended(s, i + 1, scope, anchor)) return i + 1;
    if (!by_gr_grow(g, &s->scopes, s->n_scopes, &s->cap_scopes, sizeof *s->scopes)) return scope;
    s->scopes[s->n_scopes].outer = scope;
    s->scopes[s->n_scopes].anchor = anchor;
    s->scopes[s->n_scopes].n = n;
    s->scopes[s->n_scopes].key = key;
    return ++s->n_scopes;
}

/* Only the outermost resource that has an anchor's name counts for it: the ways that lead to the same ones are one scope. */
uint32_t by_gr_schema_enter(by_gr *g, uint32_t scope, uint32_t base) {
    by_gr_schema *s = g->schema;
    for (uint32_t k = 0; s->dynamic && k < s->n_anchors; k++) {
        if (!s->anchors[k].dynamic || s->anchors[k].base != base || bound(s, scope, s->anchors[k].name)) continue;
        if (!by_gr_check(g)) return scope;
        scope = bind(g, scope, k);
    }
    return scope;
}

static bool is_dynamic(const by_gr_schema *s, const by_json *node, by_str name) {
    for (uint32_t i = 0; i < s->n_anchors; i++)
        if (s->anchors[i].dynamic && s->anchors[i].json == node && by_str_eq(s->anchors[i].name, name)) return true;
    return false;
}

bool by_gr_schema_index(by_gr *g) {
    by_gr_schema *s = g->schema;
    item *stack = NULL;
    uint32_t n = 0, cap = 0, base;
    s->track = s->dynamic = false;
    const by_json *dialect = by_json_get(s->root, "$schema");
    bool draft4 = by_json_is(dialect, BY_JSON_STRING) && memmem(dialect->v.s.ptr, dialect->v.s.len, "draft-0", 7) &&
                  (memmem(dialect->v.s.ptr, dialect->v.s.len, "draft-04", 8) ||
                   memmem(dialect->v.s.ptr, dialect->v.s.len, "draft-03", 8));
    bool ok = add_resource(g, s->root, (by_str){0}, &base) && push_item(g, &stack, &n, &cap, (item){s->root, 0, true});
    while (n > 0 && ok) {
        item it = stack[--n];
        if (it.node->type == BY_JSON_ARRAY) {
            for (uint32_t i = 0; i < it.node->n && ok; i++)
                ok = push_item(g, &stack, &n, &cap, (item){&it.node->v.items[i], it.base, it.is_schema});
            continue;
        }
        if (it.is_schema) ok = visit_schema(g, &it, draft4);
        for (uint32_t i = 0; i < it.node->n && ok; i++) {
            by_str key = it.node->v.members[i].key;
            const by_json *v = &it.node->v.members[i].value;
            bool child = !it.is_schema || named(one_schema, key) || named(list_schema, key);
            if (child)
                ok = push_item(g, &stack, &n, &cap, (item){v, it.base, true});
            else if (named(map_schema, key))
                ok = push_item(g, &stack, &n, &cap, (item){v, it.base, false});
        }
    }
    by_free(stack);
    uint32_t n_dynamic = 0;
    for (uint32_t i = 0; i < s->n_anchors; i++)
        n_dynamic += s->anchors[i].dynamic;
    s->dynamic = n_dynamic > 1 && s->n_res > 1;
    return ok && !by_gr_bad(g);
}

/* ---- pointers ---- */

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Undoes %XX, then ~0 and ~1, of one step. */
static by_str unescape(by_gr *g, by_str s) {
    char *p = by_gr_alloc(g, s.len + 1);
    size_t n = 0;
    if (!p) return (by_str){0};
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '%' && i + 2 < s.len + 0 && hex(s.ptr[i + 1]) >= 0 && hex(s.ptr[i + 2]) >= 0) {
            p[n++] = (char)(hex(s.ptr[i + 1]) << 4 | hex(s.ptr[i + 2]));
            i += 2;
        } else
            p[n++] = s.ptr[i];
    }
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1'))
            p[k++] = p[++i] == '0' ? '~' : '/';
        else
            p[k++] = p[i];
    }
    return by_str_of(p, k);
}

static const by_json *follow(by_gr *g, const by_json *v, by_str ptr, uint32_t *base) {
    while (ptr.len && v) {
        size_t end = 1;
        while (end < ptr.len && ptr.ptr[end] != '/')
            end++;
        by_str step = unescape(g, by_str_of(ptr.ptr + 1, end - 1));
        ptr = by_str_skip(ptr, end);
        if (v->type == BY_JSON_OBJECT)
            v = by_json_get_str(v, step);
        else if (v->type == BY_JSON_ARRAY) {
            uint64_t i = 0;
            for (size_t k = 0; k < step.len && i < 1u << 30; k++) {
                if (step.ptr[k] < '0' || step.ptr[k] > '9') return NULL;
                i = i * 10 + (uint64_t)(step.ptr[k] - '0');
            }
            v = step.len ? by_json_at(v, i) : NULL;
        } else
            v = NULL;
        if (v) *base = by_gr_schema_base(g, v, *base);
    }
    return v;
}

static const by_json *anchor(by_gr *g, by_str name, uint32_t *base, bool dynamic) {
    const by_gr_schema *s = g->schema;
    const by_json *found = NULL;
    for (uint32_t i = 0; i < s->n_anchors; i++) {
        if (!by_str_eq(s->anchors[i].name, name)) continue;
        if (s->anchors[i].base == *base) {
            *base = by_gr_schema_base(g, s->anchors[i].json, *base);
            return s->anchors[i].json;
        }
        if (dynamic && s->anchors[i].dynamic) found = s->anchors[i].json;
    }
    return found;
}

const by_json *by_gr_schema_resolve(by_gr *g, by_gr_expr at, by_str ref, bool dynamic, uint32_t *base) {
    by_gr_schema *s = g->schema;
    const char *kw = dynamic ? "$dynamicRef" : "$ref";
    uint32_t b = s->x[at].base;
    by_str uri = without_fragment(ref), frag = by_str_skip(ref, uri.len);
    if (frag.len) frag = by_str_skip(frag, 1);
    if (uri.len) {
        by_str full = without_fragment(resolve_uri(g, s->res[b].uri, uri));
        uint32_t i = 0;
        while (i < s->n_res && !by_str_eq(s->res[i].uri, full))
            i++;
        for (uint32_t k = 0; i == s->n_res && k < s->n_res; k++)
            if (by_str_eq(s->res[k].uri, uri)) i = k;
        if (i == s->n_res) return by_gr_x_error(g, at, BY_EUNSUPPORTED, kw, "reference outside the document"), NULL;
        b = i;
    }
    const by_json *v;
    if (frag.len == 0 || frag.ptr[0] == '/') {
        v = follow(g, s->res[b].root, frag, &b);
        if (!v && !uri.len) b = 0, v = follow(g, s->root, frag, &b); /* generators give each place an $id, and mean the document */
    } else
        v = anchor(g, unescape(g, frag), &b, dynamic);
    if (v && dynamic && s->dynamic && is_dynamic(s, v, frag)) {
        const by_gr_anchor *outer = bound(s, by_gr_schema_enter(g, s->x[at].scope, b), frag);
        if (outer) v = outer->json, b = by_gr_schema_base(g, v, outer->base);
    }
    if (!v || (v->type != BY_JSON_OBJECT && v->type != BY_JSON_BOOL))
        return by_gr_x_error(g, at, BY_EINVAL, kw, "reference to nothing"), NULL;
    *base = b;
    return v;
}
