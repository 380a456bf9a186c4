/* grammar_schema.c - schema expressions, error places, and the order of a schema's compilation:
 * normal forms of everything reachable, machine definitions, then which expressions have a finite value at all. */
#include "grammar/grammar_schema.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t hash_expr(unsigned kind, const void *json, uint32_t base, const by_gr_expr *v, uint32_t n) {
    uint64_t h = (uint64_t)(uintptr_t)json * 0x9e3779b97f4a7c15u ^ (uint64_t)kind << 56 ^ base;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ v[i]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & (BY_GR_X_BUCKETS - 1);
}

static by_gr_expr intern_in(by_gr *g, by_gr_xkind kind, const by_json *json, uint32_t base, uint32_t scope,
                            const by_gr_expr *v, uint32_t n) {
    by_gr_schema *s = g->schema;
    if (by_gr_bad(g)) return BY_GR_X_FALSE;
    uint32_t h = hash_expr(kind, json, base ^ scope << 16, v, n);
    for (uint32_t i = s->bucket[h]; i; i = s->x[i - 1].next) {
        const by_gr_xnode *x = &s->x[i - 1];
        if (x->kind == kind && x->json == json && x->base == base && x->scope == scope && x->n == n &&
            (n == 0 || memcmp(x->list, v, n * sizeof *v) == 0))
            return i - 1;
    }
    if (!by_gr_check(g) || !by_gr_grow(g, &s->x, s->n, &s->cap, sizeof *s->x)) return BY_GR_X_FALSE;
    by_gr_expr *list = NULL;
    if (n && !(list = by_gr_alloc(g, n * sizeof *list))) return BY_GR_X_FALSE;
    if (n) memcpy(list, v, n * sizeof *v);
    s->x[s->n] = (by_gr_xnode){.kind = (uint8_t)kind,
                               .json = json,
                               .base = base,
                               .scope = scope,
                               .list = list,
                               .n = n,
                               .next = s->bucket[h]};
    s->bucket[h] = s->n + 1;
    return s->n++;
}

static by_gr_expr intern(by_gr *g, by_gr_xkind kind, const by_json *json, uint32_t base, const by_gr_expr *v,
                         uint32_t n) {
    return intern_in(g, kind, json, base, 0, v, n);
}

/* The place that says the same as json, or the place of json itself. */
static by_gr_expr place_of(by_gr *g, const by_json *json, uint32_t base, uint32_t scope) {
    by_gr_schema *s = g->schema;
    uint64_t h = by_gr_schema_hash(json);
    uint32_t *head = &s->alike[(uint32_t)(h >> 32) & (BY_GR_X_BUCKETS - 1)];
    for (uint32_t i = h ? *head : 0; i; i = s->x[i - 1].alike) {
        const by_gr_xnode *x = &s->x[i - 1];
        if (x->written == h && x->base == base && x->scope == scope && by_gr_schema_same(x->json, json)) return i - 1;
    }
    uint32_t n = s->n;
    by_gr_expr e = intern_in(g, BY_GR_XK_NODE, json, base, scope, NULL, 0);
    if (e == n && !by_gr_bad(g) && h) {
        s->x[e].written = h;
        s->x[e].alike = *head;
        *head = e + 1;
    }
    return e;
}

by_gr_expr by_gr_x_node(by_gr *g, const by_json *json, uint32_t base, by_gr_expr parent, const char *kw, by_str key) {
    if (json->type == BY_JSON_BOOL) return json->v.b ? BY_GR_X_TRUE : BY_GR_X_FALSE;
    if (json->type == BY_JSON_OBJECT && json->n == 0) return BY_GR_X_TRUE;
    uint32_t n = g->schema->n;
    base = by_gr_schema_base(g, json, base);
    uint32_t scope = by_gr_schema_enter(g, g->schema->x[parent].scope, base);
    by_gr_expr e = place_of(g, json, base, scope);
    if (e == n && !by_gr_bad(g)) {
        g->schema->x[e].parent = parent;
        g->schema->x[e].kw = kw;
        g->schema->x[e].key = key;
    }
    return e;
}

by_gr_expr by_gr_x_const(by_gr *g, const by_json *json) {
    return intern(g, BY_GR_XK_CONST, json, 0, NULL, 0);
}

static int cmp_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Does a sorted list hold an expression and its negation? */
static bool has_opposites(by_gr *g, const by_gr_expr *v, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const by_gr_xnode *x = &g->schema->x[v[i]];
        if (x->kind == BY_GR_XK_NOT && bsearch(x->list, v, n, sizeof *v, cmp_u32)) return true;
    }
    return false;
}

static by_gr_expr list_expr(by_gr *g, by_gr_xkind kind, const by_gr_expr *v, uint32_t n) {
    by_gr_expr neutral = kind == BY_GR_XK_AND ? BY_GR_X_TRUE : BY_GR_X_FALSE, zero = 1 - neutral;
    by_gr_vec out = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (v[i] == neutral) continue;
        if (v[i] == zero) {
            by_gr_vec_free(&out);
            return zero;
        }
        const by_gr_xnode *x = &g->schema->x[v[i]];
        if (x->kind != kind)
            by_gr_vec_push(g, &out, v[i]);
        else
            for (uint32_t k = 0; k < x->n; k++)
                by_gr_vec_push(g, &out, x->list[k]);
    }
    uint32_t k = 0;
    if (out.n > 1) qsort(out.v, out.n, sizeof *out.v, cmp_u32);
    for (uint32_t i = 0; i < out.n; i++)
        if (k == 0 || out.v[i] != out.v[k - 1]) out.v[k++] = out.v[i];
    by_gr_expr e = has_opposites(g, out.v, k) ? zero : k == 0 ? neutral : k == 1 ? out.v[0] : intern(g, kind, NULL, 0, out.v, k);
    by_gr_vec_free(&out);
    return e;
}

by_gr_expr by_gr_x_and(by_gr *g, const by_gr_expr *v, uint32_t n) {
    return list_expr(g, BY_GR_XK_AND, v, n);
}
by_gr_expr by_gr_x_or(by_gr *g, const by_gr_expr *v, uint32_t n) {
    return list_expr(g, BY_GR_XK_OR, v, n);
}

by_gr_expr by_gr_x_not(by_gr *g, by_gr_expr e) {
    if (e <= BY_GR_X_FALSE) return 1 - e;
    if (g->schema->x[e].kind == BY_GR_XK_NOT) return g->schema->x[e].list[0];
    return intern(g, BY_GR_XK_NOT, NULL, 0, &e, 1);
}

/* ---- places ---- */

static void push_step(char *out, size_t size, const char *step, size_t n) {
    size_t have = strlen(out);
    for (size_t i = 0; i < n && have + 3 < size; i++) {
        if (step[i] == '~' || step[i] == '/') {
            out[have++] = '~';
            out[have++] = step[i] == '~' ? '0' : '1';
        } else
            out[have++] = step[i];
    }
    out[have] = 0;
}

static void push_slash(char *out, size_t size) {
    size_t have = strlen(out);
    if (have + 1 < size) memcpy(out + have, "/", 2);
}

void by_gr_x_path(by_gr *g, by_gr_expr e, const char *kw, char *out, size_t size) {
    by_gr_expr chain[64];
    unsigned n = 0;
    const by_gr_schema *s = g->schema;
    for (; n < 64 && s->x[e].kind == BY_GR_XK_NODE && s->x[e].json != s->root; e = s->x[e].parent)
        chain[n++] = e;
    out[0] = 0;
    while (n-- > 0) {
        const by_gr_xnode *x = &s->x[chain[n]];
        if (x->kw) {
            push_slash(out, size);
            push_step(out, size, x->kw, strlen(x->kw));
        }
        if (x->key.ptr) {
            push_slash(out, size);
            push_step(out, size, x->key.ptr, x->key.len);
        }
    }
    if (kw) {
        push_slash(out, size);
        push_step(out, size, kw, strlen(kw));
    }
}

bool by_gr_x_error(by_gr *g, by_gr_expr e, by_status code, const char *kw, const char *why) {
    char path[200];
    if (by_gr_bad(g) && g->where[0]) return false;
    by_gr_x_path(g, e, kw, path, sizeof path);
    if (by_gr_bad(g))
        by_err_prefix(&g->err, "%s: ", path[0] ? path : "schema");
    else
        by_gr_fail(g, code, "%s: %s", path[0] ? path : "schema", why);
    snprintf(g->where, sizeof g->where, "%s", path);
    return false;
}

bool by_gr_x_unsupported(by_gr *g, by_gr_expr e, const char *kw, const char *why) {
    if (!g->opts.lenient) return by_gr_x_error(g, e, BY_EUNSUPPORTED, kw, why);
    char path[200];
    by_gr_x_path(g, e, kw, path, sizeof path);
    by_gr_warn(g, "%s: %s; not enforced", path, why);
    return false;
}

/* ---- compilation ---- */

static bool reach(by_gr *g, by_gr_expr e, void *user) {
    if (g->schema->x[e].reached) return true;
    g->schema->x[e].reached = true;
    return by_gr_vec_push(g, user, e);
}

static bool define(by_gr *g, by_gr_expr e, by_gr_vec *todo) {
    by_gr_norm *n = by_gr_norm_of(g, e);
    if (!n) return false;
    for (uint32_t i = 0; i < n->n_obj; i++) {
        if (!n->obj[i]->def && !(n->obj[i]->def = by_gr_objdef_new(g, n->obj[i]))) {
            by_gr_x_error(g, e, BY_EUNSUPPORTED, NULL, "object");
            return false;
        }
        if (!by_gr_objdef_each(g, n->obj[i]->def - 1, reach, todo)) return false;
    }
    for (uint32_t i = 0; i < n->n_arr; i++) {
        if (!n->arr[i]->def && !(n->arr[i]->def = by_gr_arrdef_new(g, n->arr[i]))) {
            by_gr_x_error(g, e, BY_EUNSUPPORTED, NULL, "array");
            return false;
        }
        if (!by_gr_arrdef_each(g, n->arr[i]->def - 1, reach, todo)) return false;
    }
    return true;
}

static bool productive(by_gr *g, const by_gr_norm *n) {
    if (n->null || n->bools || n->str || n->lit || n->num) return true;
    for (uint32_t i = 0; i < n->n_obj; i++)
        if (by_gr_objdef_productive(g, n->obj[i]->def - 1)) return true;
    for (uint32_t i = 0; i < n->n_arr; i++)
        if (by_gr_arrdef_productive(g, n->arr[i]->def - 1)) return true;
    return false;
}

/* Normal forms and definitions of all that root needs; then the least fixed point of "has a finite value". */
static bool settle(by_gr *g, by_gr_expr root) {
    by_gr_vec todo = {0};
    bool ok = reach(g, root, &todo);
    for (uint32_t i = 0; i < todo.n && ok; i++)
        ok = define(g, todo.v[i], &todo) && by_gr_check(g);
    for (bool again = ok; again && by_gr_check(g);) {
        again = false;
        for (uint32_t i = todo.n; i-- > 0;) { /* inner places were reached last */
            by_gr_xnode *x = &g->schema->x[todo.v[i]];
            if (!x->prod && productive(g, x->norm)) g->schema->x[todo.v[i]].prod = again = true;
        }
    }
    for (uint32_t i = 0; i < todo.n && ok && !by_gr_bad(g); i++) {
        const by_gr_norm *n = g->schema->x[todo.v[i]].norm;
        for (uint32_t k = 0; k < n->n_obj; k++)
            by_gr_objdef_finish(g, n->obj[k]->def - 1);
        for (uint32_t k = 0; k < n->n_arr; k++)
            by_gr_arrdef_finish(g, n->arr[k]->def - 1);
    }
    by_gr_vec_free(&todo);
    return ok && !by_gr_bad(g);
}

static by_gr_schema *schema_new(by_gr *g) {
    if (g->schema) return g->schema;
    by_gr_schema *s = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *s);
    if (!s) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
    by_arena_init(&s->json_arena, BY_MEM_GRAMMAR);
    g->schema = s;
    intern(g, BY_GR_XK_TRUE, NULL, 0, NULL, 0);
    intern(g, BY_GR_XK_FALSE, NULL, 0, NULL, 0);
    return by_gr_bad(g) ? NULL : s;
}

void by_gr_schema_destroy(by_gr_schema *s) {
    if (!s) return;
    by_free(s->x);
    by_free(s->res);
    by_free(s->anchors);
    by_free(s->bases);
    by_free(s->scopes);
    by_buf_deinit(&s->text);
    by_arena_deinit(&s->json_arena);
    by_free(s);
}

/* The settled expression of a whole schema; FALSE with the error set when there is none. */
static by_gr_expr whole(by_gr *g, const by_json *schema) {
    by_gr_schema *s = schema_new(g);
    if (!s) return BY_GR_X_FALSE;
    if (schema->type != BY_JSON_OBJECT && schema->type != BY_JSON_BOOL)
        return by_gr_fail(g, BY_EINVAL, "schema: an object or a boolean is expected, found %s",
                          by_json_type_name(schema->type)),
               BY_GR_X_FALSE;
    s->root = schema;
    s->n_res = s->n_anchors = s->n_bases = s->n_scopes = 0;
    memset(s->alike, 0, sizeof s->alike); /* another document may mean something else by the same words, as may other options */
    if (!by_gr_schema_index(g)) return BY_GR_X_FALSE;
    by_gr_expr root = by_gr_x_node(g, schema, 0, 0, NULL, (by_str){0});
    if (by_gr_bad(g) || !settle(g, root)) return BY_GR_X_FALSE;
    if (g->schema->x[root].prod) return root;
    if (g->opts.empty_ok) return BY_GR_X_FALSE;
    if (!g->where[0]) snprintf(g->where, sizeof g->where, "/");
    by_gr_fail(g, BY_EINVAL, "schema: no value satisfies it");
    return BY_GR_X_FALSE;
}

by_gr_term by_gr_schema_compile(by_gr *g, const by_json *schema) {
    by_gr_expr root = whole(g, schema);
    return by_gr_bad(g) ? BY_GR_NEVER : by_gr_expr_term(g, root);
}

by_gr_term by_gr_schema_dsml(by_gr *g, const by_json *schema) {
    by_gr_expr root = whole(g, schema);
    by_gr_vec v = {0};
    by_gr_term t = BY_GR_NEVER;
    if (by_gr_bad(g)) return BY_GR_NEVER;
    const by_gr_norm *n = g->schema->x[root].norm;
    for (uint32_t i = 0; i < n->n_obj && !by_gr_bad(g); i++)
        if (by_gr_objdef_productive(g, n->obj[i]->def - 1))
            by_gr_vec_push(g, &v, by_gr_objdef_dsml(g, n->obj[i]->def - 1));
    if (v.n)
        t = by_gr_alt(g, v.v, v.n);
    else if (!by_gr_bad(g))
        by_gr_fail(g, BY_EINVAL, "schema: parameters must be an object");
    by_gr_vec_free(&v);
    return t;
}

by_gr_term by_gr_schema_any_object(by_gr *g) {
    static const char text[] = "{\"type\":\"object\"}";
    by_gr_schema *s = schema_new(g);
    by_json v;
    if (!s) return BY_GR_NEVER;
    if (by_json_parse(&v, &g->arena, BY_STR(text), NULL, &g->err) < 0)
        return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    by_json *keep = by_gr_alloc(g, sizeof *keep);
    if (!keep) return BY_GR_NEVER;
    *keep = v;
    return by_gr_schema_compile(g, keep);
}
