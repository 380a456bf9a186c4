/* grammar_schema_norm.c - and, or and not on normal forms.
 *
 * Numbers, strings, null and booleans are closed under all of them. Objects and arrays are lists of alternatives whose
 * conjunctions are concatenations of conditions; their complement is a product of negated conditions, so its size is
 * bounded and a schema that needs more is refused. */
#include <stdlib.h>

#include "grammar/grammar_schema.h"

#define DEPTH_MAX        400u /* applicators inside applicators, references included */

static void *copy(by_gr *g, const void *p, size_t n) {
    void *q = by_gr_alloc(g, n ? n : 1);
    if (q && n) memcpy(q, p, n);
    return q;
}

by_gr_norm *by_gr_norm_new(by_gr *g) {
    return by_gr_alloc(g, sizeof(by_gr_norm));
}

static by_gr_orec *orec_any(by_gr *g) {
    by_gr_orec *r = by_gr_alloc(g, sizeof *r);
    if (r) r->names = BY_GR_ANYTEXT, r->max = BY_GR_INF;
    return r;
}

static by_gr_arec *arec_any(by_gr *g) {
    by_gr_arec *r = by_gr_alloc(g, sizeof *r);
    if (r) r->max = BY_GR_INF;
    return r;
}

by_gr_norm *by_gr_norm_true(by_gr *g) {
    by_gr_schema *s = g->schema;
    if (s->all) return s->all;
    by_gr_norm *n = by_gr_norm_new(g);
    by_gr_orec **o = by_gr_alloc(g, sizeof *o);
    by_gr_arec **a = by_gr_alloc(g, sizeof *a);
    if (!n || !o || !a || !(*o = orec_any(g)) || !(*a = arec_any(g))) return NULL;
    *n = (by_gr_norm){.null = true,
                      .bools = 3,
                      .str = BY_GR_ANYTEXT,
                      .num = by_gr_number(g),
                      .plain = by_gr_number_plain(g),
                      .obj = o,
                      .arr = a,
                      .n_obj = 1,
                      .n_arr = 1};
    return s->all = by_gr_bad(g) ? NULL : n;
}

bool by_gr_norm_empty(const by_gr_norm *n) {
    return !n->null && !n->bools && !n->str && !n->lit && !n->num && !n->n_obj && !n->n_arr;
}

by_gr_norm *by_gr_norm_wide(by_gr_norm *n) {
    return n->narrow ? n->wide : n;
}

/* n was made of a and b: it is narrow where they are. */
static by_gr_norm *narrow_as(by_gr *g, by_gr_norm *n, by_gr_norm *a, by_gr_norm *b,
                             by_gr_norm *(*fn)(by_gr *, by_gr_norm *, by_gr_norm *)) {
    if (by_gr_bad(g)) return NULL;
    if (!a->narrow && !b->narrow) return n;
    by_gr_norm *wa = by_gr_norm_wide(a), *wb = by_gr_norm_wide(b);
    n->narrow = true;
    n->wide = wa && wb ? fn(g, wa, wb) : NULL;
    return by_gr_bad(g) ? NULL : n;
}

/* ---- looking things up ---- */

static by_gr_expr scope_value(by_gr *g, const by_gr_scope *s, by_str key) {
    by_gr_expr v[65];
    uint32_t n = 0;
    bool hit = false;
    for (uint32_t i = 0; i < s->n; i++)
        if (by_str_eq(s->keys[i], key)) v[n++] = s->vals[i], hit = true;
    for (uint32_t i = 0; i < s->n_pat && n < 64; i++)
        if (by_gr_accepts(g, s->pats[i].keys, key)) v[n++] = s->pats[i].val, hit = true;
    return hit ? by_gr_x_and(g, v, n) : s->rest;
}

by_gr_expr by_gr_orec_value(by_gr *g, const by_gr_orec *r, by_str key) {
    if (r->names != BY_GR_ANYTEXT && !by_gr_accepts(g, r->names, key)) return BY_GR_X_FALSE;
    by_gr_vec v = {0};
    for (uint32_t i = 0; i < r->n_scopes; i++)
        by_gr_vec_push(g, &v, scope_value(g, r->scopes[i], key));
    by_gr_expr e = by_gr_x_and(g, v.v, v.n);
    by_gr_vec_free(&v);
    return e;
}

by_gr_expr by_gr_arec_item(by_gr *g, const by_gr_arec *r, uint32_t i) {
    by_gr_vec v = {0};
    for (uint32_t k = 0; k < r->n_scopes; k++)
        by_gr_vec_push(g, &v, i < r->scopes[k]->n ? r->scopes[k]->prefix[i] : r->scopes[k]->rest);
    by_gr_expr e = by_gr_x_and(g, v.v, v.n);
    by_gr_vec_free(&v);
    return e;
}

bool by_gr_expr_empty(by_gr *g, by_gr_expr e) {
    by_gr_schema *s = g->schema;
    if (e <= BY_GR_X_FALSE) return e == BY_GR_X_FALSE;
    bool soft = s->soft, busy = s->hit_busy;
    s->soft = true;
    s->hit_busy = false;
    by_gr_norm *n = by_gr_norm_of(g, e);
    bool known = n && !s->hit_busy;
    s->soft = soft;
    s->hit_busy = busy;
    if (known) n = by_gr_norm_wide(n);
    return known && n && by_gr_norm_empty(n);
}

/* Cheap proof that no object satisfies r. Only required members whose condition is a conjunction are looked into: that
 * is where merged alternatives contradict each other (a discriminator with two constants). */
static bool orec_unsat(by_gr *g, const by_gr_orec *r) {
    if (r->min > r->max || r->n_req > r->max || (r->names == BY_GR_NEVER && r->min + r->n_req > 0)) return true;
    for (uint32_t i = 0; i < r->n_req && !by_gr_bad(g); i++) {
        by_gr_expr e = by_gr_orec_value(g, r, r->req[i]);
        if (e == BY_GR_X_FALSE) return true;
        if (g->schema->x[e].kind == BY_GR_XK_AND && by_gr_expr_empty(g, e)) return true;
    }
    return false;
}

static bool arec_unsat(by_gr *g, const by_gr_arec *r) {
    if (r->min > r->max) return true;
    for (uint32_t i = 0; i < r->min && i < 16 && !by_gr_bad(g); i++) {
        by_gr_expr e = by_gr_arec_item(g, r, i);
        if (e == BY_GR_X_FALSE || (g->schema->x[e].kind == BY_GR_XK_AND && by_gr_expr_empty(g, e))) return true;
    }
    for (uint32_t i = 0; i < r->n_contains; i++) {
        const by_gr_contains *c = &r->contains[i];
        if (c->min > c->max || (c->min && (c->val == BY_GR_X_FALSE || r->max < c->min))) return true;
    }
    return false;
}

/* ---- conjunction ---- */

static bool orec_is_any(const by_gr_orec *r) {
    return !r->n_scopes && !r->n_req && !r->n_exist && r->names == BY_GR_ANYTEXT && !r->min && r->max == BY_GR_INF;
}
static bool arec_is_any(const by_gr_arec *r) {
    return !r->n_scopes && !r->n_contains && !r->min && r->max == BY_GR_INF && !r->unique;
}

#define CONCAT(dst, field, count, a, b)                                                                                \
    do {                                                                                                               \
        (dst)->count = (a)->count + (b)->count;                                                                        \
        (dst)->field = by_gr_alloc(g, ((dst)->count + 1) * sizeof *(dst)->field);                                      \
        if ((dst)->field) {                                                                                            \
            if ((a)->count) memcpy((dst)->field, (a)->field, (a)->count * sizeof *(dst)->field);                       \
            if ((b)->count) memcpy((dst)->field + (a)->count, (b)->field, (b)->count * sizeof *(dst)->field);          \
        }                                                                                                              \
    } while (0)

by_gr_orec *by_gr_orec_and(by_gr *g, by_gr_orec *a, by_gr_orec *b) {
    if (a == b || orec_is_any(b)) return a;
    if (orec_is_any(a)) return b;
    by_gr_orec *r = by_gr_alloc(g, sizeof *r);
    if (!r) return NULL;
    CONCAT(r, scopes, n_scopes, a, b);
    CONCAT(r, exist, n_exist, a, b);
    r->req = by_gr_alloc(g, (a->n_req + b->n_req + 1) * sizeof *r->req);
    if (by_gr_bad(g)) return NULL;
    uint32_t k = 0; /* a scope may come from both sides */
    for (uint32_t i = 0; i < r->n_scopes; i++) {
        uint32_t j = 0;
        while (j < k && r->scopes[j] != r->scopes[i])
            j++;
        if (j == k) r->scopes[k++] = r->scopes[i];
    }
    r->n_scopes = k;
    if (a->n_req) memcpy(r->req, a->req, a->n_req * sizeof *r->req);
    r->n_req = a->n_req;
    for (uint32_t i = 0; i < b->n_req; i++) {
        uint32_t j = 0;
        while (j < r->n_req && !by_str_eq(r->req[j], b->req[i]))
            j++;
        if (j == r->n_req) r->req[r->n_req++] = b->req[i];
    }
    r->names = by_gr_and2(g, a->names, b->names);
    r->min = a->min > b->min ? a->min : b->min;
    r->max = a->max < b->max ? a->max : b->max;
    return orec_unsat(g, r) ? NULL : r;
}

by_gr_arec *by_gr_arec_and(by_gr *g, by_gr_arec *a, by_gr_arec *b) {
    if (a == b || arec_is_any(b)) return a;
    if (arec_is_any(a)) return b;
    by_gr_arec *r = by_gr_alloc(g, sizeof *r);
    if (!r) return NULL;
    CONCAT(r, scopes, n_scopes, a, b);
    CONCAT(r, contains, n_contains, a, b);
    if (by_gr_bad(g)) return NULL;
    r->min = a->min > b->min ? a->min : b->min;
    r->max = a->max < b->max ? a->max : b->max;
    r->unique = a->unique || b->unique;
    return arec_unsat(g, r) ? NULL : r;
}

/* ---- alternatives that others hold ---- */

static bool scope_equal(const by_gr_scope *a, const by_gr_scope *b) {
    if (a == b) return true;
    if (a->n != b->n || a->n_pat != b->n_pat || a->rest != b->rest || a->has_rest != b->has_rest || a->ev != b->ev ||
        a->late != b->late)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->vals[i] != b->vals[i] || !by_str_eq(a->keys[i], b->keys[i])) return false;
    for (uint32_t i = 0; i < a->n_pat; i++)
        if (a->pats[i].keys != b->pats[i].keys || a->pats[i].val != b->pats[i].val) return false;
    return true;
}

static bool has_scope(const by_gr_orec *r, const by_gr_scope *s) {
    for (uint32_t i = 0; i < r->n_scopes; i++)
        if (scope_equal(r->scopes[i], s)) return true;
    return false;
}

static bool requires(const by_gr_orec *r, by_str key) {
    for (uint32_t i = 0; i < r->n_req; i++)
        if (by_str_eq(r->req[i], key)) return true;
    return false;
}

static bool declares(const by_gr_orec *r, by_str key) {
    for (uint32_t k = 0; k < r->n_scopes; k++)
        for (uint32_t i = 0; i < r->scopes[k]->n; i++)
            if (by_str_eq(r->scopes[k]->keys[i], key)) return true;
    return false;
}

/* Does a say all that b says, so that b alone will do beside it? What a evaluates, and the order in which it offers keys, must be
 * those of b: its other conditions only forbid keys, or speak of keys that b declares. */
bool by_gr_orec_within(const by_gr_orec *a, const by_gr_orec *b) {
    if (a->names != b->names || a->min < b->min || a->max > b->max || b->n_exist) return false;
    for (uint32_t i = 0; i < b->n_scopes; i++)
        if (!has_scope(a, b->scopes[i])) return false;
    for (uint32_t i = 0; i < b->n_req; i++)
        if (!requires(a, b->req[i])) return false;
    for (uint32_t i = 0; i < a->n_scopes; i++) {
        const by_gr_scope *s = a->scopes[i];
        if (has_scope(b, s)) continue;
        if (s->ev || s->has_rest) return false;
        for (uint32_t k = 0; k < s->n; k++)
            if (s->vals[k] != BY_GR_X_FALSE && !declares(b, s->keys[k])) return false;
    }
    return true;
}

typedef bool within_fn(const void *a, const void *b);
static bool orec_within_v(const void *a, const void *b) {
    return by_gr_orec_within(a, b);
}
static bool arec_within_v(const void *a, const void *b) {
    return a == b;
}

typedef void *pair_fn(by_gr *g, void *a, void *b);
static void *orec_and_v(by_gr *g, void *a, void *b) {
    return by_gr_orec_and(g, a, b);
}
static void *arec_and_v(by_gr *g, void *a, void *b) {
    return by_gr_arec_and(g, a, b);
}

/* All pairs that can hold together, less those that another one holds. */
static void **product(by_gr *g, void **a, uint32_t na, void **b, uint32_t nb, pair_fn *fn, within_fn *within, uint32_t *n) {
    void **out = NULL;
    uint32_t cap = 0;
    *n = 0;
    for (uint32_t i = 0; i < na && by_gr_check(g); i++)
        for (uint32_t j = 0; j < nb && by_gr_check(g); j++) {
            void *r = fn(g, a[i], b[j]);
            if (!r) continue;
            uint32_t k = 0, kept = 0;
            while (k < *n && !within(r, out[k]))
                k++;
            if (k < *n) continue;
            for (k = 0; k < *n; k++)
                if (!within(out[k], r)) out[kept++] = out[k];
            *n = kept;
            if (*n >= BY_GR_ALTERNATIVES_MAX) {
                by_gr_fail(g, BY_EUNSUPPORTED, "more than %u alternatives of objects or arrays", BY_GR_ALTERNATIVES_MAX);
                break;
            }
            if (by_gr_grow(g, &out, *n, &cap, sizeof *out)) out[(*n)++] = r;
        }
    void **keep = copy(g, out, *n * sizeof *out);
    by_free(out);
    return keep;
}

by_gr_norm *by_gr_norm_and(by_gr *g, by_gr_norm *a, by_gr_norm *b) {
    by_gr_norm *all = by_gr_norm_true(g);
    if (!a || !b || !all) return NULL;
    if (a == all || a == b) return b;
    if (b == all) return a;
    by_gr_norm *n = by_gr_norm_new(g);
    if (!n) return NULL;
    n->null = a->null && b->null;
    n->bools = a->bools & b->bools;
    n->str = by_gr_and2(g, a->str, b->str);
    by_gr_term lit[3] = {by_gr_and2(g, a->lit, b->lit), by_gr_and2(g, a->lit, b->str), by_gr_and2(g, a->str, b->lit)};
    n->lit = by_gr_alt(g, lit, 3);
    n->num = a->num == all->num ? b->num : b->num == all->num ? a->num : by_gr_and2(g, a->num, b->num);
    n->plain = a->plain == all->plain   ? b->plain
               : b->plain == all->plain ? a->plain
                                        : by_gr_and2(g, a->plain, b->plain);
    n->obj = (by_gr_orec **)product(g, (void **)a->obj, a->n_obj, (void **)b->obj, b->n_obj, orec_and_v, orec_within_v, &n->n_obj);
    n->arr = (by_gr_arec **)product(g, (void **)a->arr, a->n_arr, (void **)b->arr, b->n_arr, arec_and_v, arec_within_v, &n->n_arr);
    return narrow_as(g, n, a, b, by_gr_norm_and);
}

/* ---- disjunction ---- */

static void **join(by_gr *g, void **a, uint32_t na, void **b, uint32_t nb, uint32_t *n) {
    if (na + nb > 4 * BY_GR_ALTERNATIVES_MAX) {
        by_gr_fail(g, BY_EUNSUPPORTED, "more than %u alternatives of objects or arrays", 4 * BY_GR_ALTERNATIVES_MAX);
        return NULL;
    }
    void **out = by_gr_alloc(g, (na + nb + 1) * sizeof *out);
    if (!out) return NULL;
    if (na) memcpy(out, a, na * sizeof *out);
    *n = na;
    for (uint32_t i = 0; i < nb; i++) {
        uint32_t k = 0;
        while (k < na && out[k] != b[i])
            k++;
        if (k == na) out[(*n)++] = b[i];
    }
    return out;
}

by_gr_norm *by_gr_norm_or(by_gr *g, by_gr_norm *a, by_gr_norm *b) {
    if (!a || !b) return NULL;
    if (a == b) return a;
    by_gr_norm *all = by_gr_norm_true(g), *n = by_gr_norm_new(g);
    if (!n || !all) return NULL;
    n->null = a->null || b->null;
    n->bools = a->bools | b->bools;
    n->str = by_gr_alt2(g, a->str, b->str);
    n->lit = n->str == BY_GR_ANYTEXT ? BY_GR_NEVER : by_gr_alt2(g, a->lit, b->lit);
    n->num = a->num == all->num || b->num == all->num ? all->num : by_gr_alt2(g, a->num, b->num);
    n->plain = a->plain == all->plain || b->plain == all->plain ? all->plain : by_gr_alt2(g, a->plain, b->plain);
    n->obj = (by_gr_orec **)join(g, (void **)a->obj, a->n_obj, (void **)b->obj, b->n_obj, &n->n_obj);
    n->arr = (by_gr_arec **)join(g, (void **)a->arr, a->n_arr, (void **)b->arr, b->n_arr, &n->n_arr);
    for (uint32_t i = 0; n->obj && i < n->n_obj && !g->schema->track; i++)
        if (orec_is_any(n->obj[i])) n->obj[0] = n->obj[i], n->n_obj = 1;
    for (uint32_t i = 0; n->arr && i < n->n_arr && !g->schema->track; i++)
        if (arec_is_any(n->arr[i])) n->arr[0] = n->arr[i], n->n_arr = 1;
    return narrow_as(g, n, a, b, by_gr_norm_or);
}

/* ---- complement ---- */

static by_gr_orec *add_orec(by_gr *g, by_gr_rec_list *l) {
    by_gr_orec *r = orec_any(g);
    if (r && by_gr_grow(g, &l->v, l->n, &l->cap, sizeof *l->v)) l->v[l->n++] = r;
    return by_gr_bad(g) ? NULL : r;
}

static by_gr_scope *add_scope(by_gr *g, by_gr_orec *r, uint32_t n, uint32_t n_pat) {
    by_gr_scope *s = by_gr_alloc(g, sizeof *s), **list = by_gr_alloc(g, (r->n_scopes + 1) * sizeof *list);
    if (!s || !list) return NULL;
    s->keys = by_gr_alloc(g, (n + 1) * sizeof *s->keys);
    s->vals = by_gr_alloc(g, (n + 1) * sizeof *s->vals);
    s->pats = by_gr_alloc(g, (n_pat + 1) * sizeof *s->pats);
    if (by_gr_bad(g)) return NULL;
    s->n = n;
    s->n_pat = n_pat;
    s->late = true;
    if (r->n_scopes) memcpy(list, r->scopes, r->n_scopes * sizeof *list);
    list[r->n_scopes++] = s;
    r->scopes = list;
    return s;
}

static bool orec_require(by_gr *g, by_gr_orec *r, by_str key) {
    by_str *v = by_gr_alloc(g, (r->n_req + 1) * sizeof *v);
    if (!v) return false;
    if (r->n_req) memcpy(v, r->req, r->n_req * sizeof *v);
    v[r->n_req++] = key;
    r->req = v;
    return true;
}

/* A key whose value is not v, beside r's conditions where there are any: then what those say of the key already may do. */
static bool not_value(by_gr *g, by_gr_minus *o, by_str key, by_gr_expr v) {
    bool apart = false;
    if (o->from) {
        by_gr_expr both[2] = {by_gr_orec_value(g, o->from, key), v};
        apart = by_gr_expr_empty(g, by_gr_x_and(g, both, 2));
        if (both[0] == BY_GR_X_FALSE) return true;
        bool known = requires(o->from, key) || (o->narrow < 2 && declares(o->from, key));
        if (o->narrow && !apart && !known) return o->cut = true;
    }
    by_gr_orec *r = add_orec(g, &o->out);
    if (!r || !orec_require(g, r, key)) return false;
    if (apart || v == BY_GR_X_FALSE) return true;
    by_gr_scope *n = add_scope(g, r, 1, 0);
    if (!n) return false;
    n->keys[0] = key;
    n->vals[0] = by_gr_x_not(g, v);
    return true;
}

/* Some key of a language has a value that is not v. */
static bool not_some(by_gr *g, by_gr_minus *o, by_gr_term keys, by_gr_expr v) {
    for (uint32_t k = 0; o->from && k < o->from->n_scopes; k++) {
        const by_gr_scope *s = o->from->scopes[k];
        if (s->rest != BY_GR_X_FALSE || s->n_pat) continue;
        for (uint32_t i = 0; i < s->n; i++) /* only these keys can be it */
            if (by_gr_accepts(g, keys, s->keys[i]) && !not_value(g, o, s->keys[i], v)) return false;
        return true;
    }
    if (o->narrow) return o->cut = true;
    by_gr_orec *r = add_orec(g, &o->out);
    if (!r || !(r->exist = by_gr_alloc(g, sizeof *r->exist))) return false;
    r->exist[0] = (by_gr_exist){keys, by_gr_x_not(g, v)};
    r->n_exist = 1;
    return true;
}

static bool not_scope(by_gr *g, by_gr_minus *o, const by_gr_scope *s) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->vals[i] != BY_GR_X_TRUE && !not_value(g, o, s->keys[i], s->vals[i])) return false;
    by_gr_vec taken = {0};
    bool ok = true;
    for (uint32_t i = 0; i < s->n_pat && ok; i++) {
        by_gr_vec_push(g, &taken, s->pats[i].keys);
        if (s->pats[i].val != BY_GR_X_TRUE) ok = not_some(g, o, s->pats[i].keys, s->pats[i].val);
    }
    if (s->rest != BY_GR_X_TRUE && ok && !by_gr_bad(g)) {
        by_gr_term others = by_gr_except(g, s->keys, s->n);
        if (taken.n) others = by_gr_and2(g, others, by_gr_text_not(g, by_gr_alt(g, taken.v, taken.n)));
        if (others != BY_GR_NEVER) ok = not_some(g, o, others, s->rest);
    }
    by_gr_vec_free(&taken);
    return ok && !by_gr_bad(g);
}

/* The alternatives of "not r". */
bool by_gr_orec_not(by_gr *g, by_gr_minus *o, const by_gr_orec *r) {
    by_gr_orec *x;
    by_gr_rec_list *out = &o->out;
    for (uint32_t i = 0; i < r->n_req; i++) {
        by_gr_scope *s = (x = add_orec(g, out)) ? add_scope(g, x, 1, 0) : NULL;
        if (!s) return false;
        s->keys[0] = r->req[i];
        s->vals[0] = BY_GR_X_FALSE;
    }
    for (uint32_t i = 0; i < r->n_scopes; i++)
        if (!not_scope(g, o, r->scopes[i])) return false;
    if (r->min) {
        if (!(x = add_orec(g, out))) return false;
        x->max = r->min - 1;
    }
    if (r->max != BY_GR_INF) {
        if (!(x = add_orec(g, out))) return false;
        x->min = r->max + 1;
    }
    if (r->names != BY_GR_ANYTEXT) {
        if (!(x = add_orec(g, out)) || !(x->exist = by_gr_alloc(g, sizeof *x->exist))) return false;
        x->exist[0] = (by_gr_exist){by_gr_text_not(g, r->names), BY_GR_X_TRUE};
        x->n_exist = 1;
    }
    for (uint32_t i = 0; i < r->n_exist; i++) {
        by_gr_scope *s = (x = add_orec(g, out)) ? add_scope(g, x, 0, 1) : NULL;
        if (!s) return false;
        s->pats[0] = (by_gr_pattern){r->exist[i].keys, by_gr_x_not(g, r->exist[i].val)};
    }
    return !by_gr_bad(g);
}

static by_gr_arec *add_arec(by_gr *g, by_gr_rec_list *l) {
    by_gr_arec *r = arec_any(g);
    if (r && by_gr_grow(g, &l->v, l->n, &l->cap, sizeof *l->v)) l->v[l->n++] = r;
    return by_gr_bad(g) ? NULL : r;
}

static bool arec_contains(by_gr *g, by_gr_rec_list *out, by_gr_contains c) {
    by_gr_arec *r = add_arec(g, out);
    if (!r || !(r->contains = by_gr_alloc(g, sizeof c))) return false;
    r->contains[0] = c;
    r->n_contains = 1;
    return true;
}

bool by_gr_arec_not(by_gr *g, by_gr_minus *o, const by_gr_arec *r) {
    by_gr_arec *x;
    by_gr_rec_list *out = &o->out;
    o->cut |= r->unique;
    if (r->min) {
        if (!(x = add_arec(g, out))) return false;
        x->max = r->min - 1;
    }
    if (r->max != BY_GR_INF) {
        if (!(x = add_arec(g, out))) return false;
        x->min = r->max + 1;
    }
    for (uint32_t k = 0; k < r->n_scopes; k++) {
        const by_gr_ascope *s = r->scopes[k];
        for (uint32_t i = 0; i < s->n; i++) {
            if (s->prefix[i] == BY_GR_X_TRUE) continue;
            by_gr_ascope *n = by_gr_alloc(g, sizeof *n);
            if (!n || !(x = add_arec(g, out)) || !(x->scopes = by_gr_alloc(g, sizeof n)) ||
                !(n->prefix = by_gr_alloc(g, (i + 1) * sizeof *n->prefix)))
                return false;
            n->prefix[i] = by_gr_x_not(g, s->prefix[i]);
            n->n = i + 1;
            x->scopes[0] = n;
            x->n_scopes = 1;
            x->min = i + 1;
        }
        if (s->rest != BY_GR_X_TRUE &&
            !arec_contains(g, out, (by_gr_contains){by_gr_x_not(g, s->rest), 1, BY_GR_INF, s->n, false}))
            return false;
    }
    for (uint32_t i = 0; i < r->n_contains; i++) {
        by_gr_contains c = r->contains[i];
        c.ev = false;
        if (c.min && !arec_contains(g, out, (by_gr_contains){c.val, 0, c.min - 1, c.from, false})) return false;
        if (c.max != BY_GR_INF && !arec_contains(g, out, (by_gr_contains){c.val, c.max + 1, BY_GR_INF, c.from, false}))
            return false;
    }
    return !by_gr_bad(g);
}

/* The array alternatives of "not a". Where a member is negated, lists with equal items are left out: nothing here can ask for them. */
static bool not_arrays(by_gr *g, by_gr_expr at, by_gr_norm *n, const by_gr_norm *a, bool member) {
    for (uint32_t i = 0; i < a->n_arr && n->n_arr && !by_gr_bad(g); i++) {
        by_gr_minus o = {0};
        if (a->arr[i]->unique && !member && !by_gr_x_unsupported(g, at, "uniqueItems", "cannot be negated") && by_gr_bad(g))
            return false;
        if (by_gr_arec_not(g, &o, a->arr[i]))
            n->arr = (by_gr_arec **)product(g, (void **)n->arr, n->n_arr, o.out.v, o.out.n, arec_and_v, arec_within_v, &n->n_arr);
        by_free(o.out.v);
        n->narrow |= o.cut;
    }
    return !by_gr_bad(g);
}

static by_gr_norm *norm_not(by_gr *g, by_gr_expr at, by_gr_norm *a, bool member) {
    by_gr_norm *all = by_gr_norm_true(g), *n = by_gr_norm_new(g);
    if (!a || !all || !n) return NULL;
    n->narrow = a->narrow;
    if (!(a = by_gr_norm_wide(a))) {
        by_gr_x_error(g, at, BY_EUNSUPPORTED, NULL, "cannot be negated");
        return NULL;
    }
    n->null = !a->null;
    n->bools = ~a->bools & 3;
    n->str = a->str == BY_GR_ANYTEXT ? BY_GR_NEVER : by_gr_text_not(g, by_gr_alt2(g, a->str, a->lit));
    n->plain = a->plain == BY_GR_NEVER  ? all->plain
               : a->plain == all->plain ? BY_GR_NEVER
                                        : by_gr_and2(g, all->plain, by_gr_not(g, a->plain));
    n->num = a->plain == BY_GR_NEVER ? all->num : n->plain;
    n->obj = all->obj;
    n->n_obj = 1;
    n->arr = all->arr;
    n->n_arr = 1;
    for (uint32_t i = 0; i < a->n_obj && n->n_obj && !by_gr_bad(g); i++) {
        by_gr_minus o = {0};
        if (by_gr_orec_not(g, &o, a->obj[i]))
            n->obj = (by_gr_orec **)product(g, (void **)n->obj, n->n_obj, o.out.v, o.out.n, orec_and_v, orec_within_v, &n->n_obj);
        by_free(o.out.v);
    }
    return not_arrays(g, at, n, a, member) ? n : NULL;
}

by_gr_norm *by_gr_norm_not(by_gr *g, by_gr_expr at, by_gr_norm *a) {
    return norm_not(g, at, a, false);
}

/* ---- constants ---- */

by_gr_term by_gr_number_equal(by_gr *g, const by_gr_decimal *d) {
    char text[1700];
    size_t n = 0, dot = 0;
    if (d->neg) text[n++] = '-';
    for (int32_t k = 0; k < d->point; k++)
        text[n++] = (uint32_t)k < d->n ? d->digits[k] : '0';
    if (d->point <= 0) text[n++] = '0';
    dot = n;
    for (int32_t k = d->point; k < 0; k++)
        text[n++] = '0';
    for (int32_t k = d->point > 0 ? d->point : 0; (uint32_t)k < d->n; k++)
        text[n++] = d->digits[k];
    by_gr_term zero = by_gr_lit(g, BY_STR("0")), point = by_gr_lit(g, BY_STR("."));
    by_gr_term head = by_gr_lit(g, by_str_of(text, dot));
    if (d->n == 0) head = by_gr_seq(g, by_gr_opt(g, by_gr_lit(g, BY_STR("-"))), head);
    if (n == dot) return by_gr_seq(g, head, by_gr_opt(g, by_gr_seq(g, point, by_gr_rep(g, zero, 1, BY_GR_INF))));
    by_gr_term tail = by_gr_seq(g, by_gr_lit(g, by_str_of(text + dot, n - dot)), by_gr_star(g, zero));
    return by_gr_seq(g, head, by_gr_seq(g, point, tail));
}

static bool number_const(by_gr *g, by_gr_norm *n, by_str raw) {
    by_gr_decimal d;
    if (!by_gr_decimal_parse(&d, raw)) {
        by_gr_fail(g, BY_ELIMIT, "number %.*s has too many digits", BY_STR_ARG(raw));
        return false;
    }
    by_gr_term equal = by_gr_number_equal(g, &d), offered = by_gr_lit(g, raw);
    if ((int32_t)d.n <= d.point || d.n == 0) /* an integer: also written as one */
        offered = by_gr_alt2(g, offered, by_gr_and2(g, equal, by_gr_integer(g)));
    n->num = d.n == 0 ? by_gr_alt2(g, by_gr_lit(g, raw), by_gr_lit(g, BY_STR("0"))) : offered;
    n->plain = equal;
    return true;
}

static bool object_const(by_gr *g, by_gr_norm *n, const by_json *v) {
    by_gr_orec *r = orec_any(g), **list = by_gr_alloc(g, sizeof *list);
    if (!r || !list) return false;
    by_gr_scope *s = add_scope(g, r, v->n, 0);
    if (!s || !(r->req = by_gr_alloc(g, (v->n + 1) * sizeof *r->req))) return false;
    uint32_t k = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (by_json_get_str(v, v->v.members[i].key) != &v->v.members[i].value) continue; /* a later one wins */
        r->req[k] = s->keys[k] = v->v.members[i].key;
        s->vals[k++] = by_gr_x_const(g, &v->v.members[i].value);
    }
    s->n = r->n_req = k;
    s->late = false; /* the members of a constant stand in its order */
    s->rest = BY_GR_X_FALSE;
    *list = r;
    n->obj = list;
    n->n_obj = 1;
    return !by_gr_bad(g);
}

static bool array_const(by_gr *g, by_gr_norm *n, const by_json *v) {
    by_gr_arec *r = arec_any(g), **list = by_gr_alloc(g, sizeof *list);
    by_gr_ascope *s = by_gr_alloc(g, sizeof *s);
    if (!r || !list || !s || !(r->scopes = by_gr_alloc(g, sizeof s)) ||
        !(s->prefix = by_gr_alloc(g, (v->n + 1) * sizeof *s->prefix)))
        return false;
    for (uint32_t i = 0; i < v->n; i++)
        s->prefix[i] = by_gr_x_const(g, &v->v.items[i]);
    s->n = v->n;
    s->rest = BY_GR_X_FALSE;
    r->scopes[0] = s;
    r->n_scopes = 1;
    r->min = r->max = v->n;
    *list = r;
    n->arr = list;
    n->n_arr = 1;
    return !by_gr_bad(g);
}

by_gr_norm *by_gr_norm_const(by_gr *g, const by_json *v) {
    by_gr_norm *n = by_gr_norm_new(g);
    if (!n) return NULL;
    bool ok = true;
    switch (v->type) {
    case BY_JSON_NULL: n->null = true; break;
    case BY_JSON_BOOL: n->bools = v->v.b ? 2 : 1; break;
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE: ok = number_const(g, n, v->raw); break;
    case BY_JSON_STRING: n->lit = by_gr_lit(g, v->v.s); break;
    case BY_JSON_ARRAY: ok = array_const(g, n, v); break;
    case BY_JSON_OBJECT: ok = object_const(g, n, v); break;
    }
    return ok && !by_gr_bad(g) ? n : NULL;
}

/* Strings of an enum share one trie; the other values are joined one by one. */
by_gr_norm *by_gr_norm_enum(by_gr *g, const by_json *values) {
    by_gr_norm *n = by_gr_norm_new(g);
    by_str *words = by_gr_alloc(g, (values->n + 1) * sizeof *words);
    if (!n || !words) return NULL;
    uint32_t k = 0;
    for (uint32_t i = 0; i < values->n && n; i++) {
        if (values->v.items[i].type == BY_JSON_STRING)
            words[k++] = values->v.items[i].v.s;
        else
            n = by_gr_norm_or(g, n, by_gr_norm_const(g, &values->v.items[i]));
    }
    if (n && k) {
        by_gr_norm *m = by_gr_norm_new(g);
        if (!m) return NULL;
        *m = *n;
        m->lit = by_gr_words(g, words, k);
        n = m;
    }
    return by_gr_bad(g) ? NULL : n;
}

/* ---- expressions ---- */

static by_gr_norm *compute(by_gr *g, by_gr_expr e) {
    const by_gr_xnode x = g->schema->x[e];
    by_gr_norm *n;
    switch ((by_gr_xkind)x.kind) {
    case BY_GR_XK_TRUE: return by_gr_norm_true(g);
    case BY_GR_XK_FALSE: return by_gr_norm_new(g);
    case BY_GR_XK_CONST: return by_gr_norm_const(g, x.json);
    case BY_GR_XK_NODE: return by_gr_norm_node(g, e);
    case BY_GR_XK_NOT: return norm_not(g, x.list[0], by_gr_norm_of(g, x.list[0]), true);
    case BY_GR_XK_AND:
        n = by_gr_norm_true(g);
        for (uint32_t i = 0; i < x.n && n; i++)
            n = by_gr_norm_and(g, n, by_gr_norm_of(g, x.list[i]));
        return n;
    case BY_GR_XK_OR:
        n = by_gr_norm_new(g);
        for (uint32_t i = 0; i < x.n && n; i++)
            n = by_gr_norm_or(g, n, by_gr_norm_of(g, x.list[i]));
        return n;
    }
    return NULL;
}

by_gr_norm *by_gr_norm_of(by_gr *g, by_gr_expr e) {
    by_gr_schema *s = g->schema;
    if (by_gr_bad(g)) return NULL;
    if (s->x[e].norm) return s->x[e].norm;
    if (s->x[e].busy) {
        s->hit_busy = true;
        if (!s->soft) by_gr_x_error(g, e, BY_EINVAL, NULL, "the schema refers to itself without reading anything");
        return NULL;
    }
    if (s->depth >= DEPTH_MAX) {
        by_gr_fail(g, BY_ELIMIT, "schema: applicators and references nest deeper than %u", DEPTH_MAX);
        return NULL;
    }
    s->depth++;
    s->x[e].busy = 1;
    by_gr_norm *n = compute(g, e);
    s->x[e].busy = 0;
    s->depth--;
    if (by_gr_bad(g)) {
        by_gr_x_error(g, e, g->status, NULL, "");
        return NULL;
    }
    if (n && !(s->soft && s->hit_busy)) s->x[e].norm = n;
    return n;
}
