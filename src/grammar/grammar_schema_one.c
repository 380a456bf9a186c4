/* grammar_schema_one.c - exactly one of several normal forms.
 *
 * Objects and arrays of a branch are taken apart against those of the other branches, alternative by alternative. Where
 * branches overlap in so many ways that this needs too many alternatives, values are left out that only count because a
 * member of the other branch is wrong: what is offered still satisfies exactly one branch. */
#include "grammar/grammar_schema.h"

#define EXISTS_MAX 8u /* as in grammar_object.c */
#define NARROW_MAX 2u
#define TOTAL_MAX  256u /* alternatives that all branches together may gain */
#define EACH_MIN   8u   /* and each in any case */

typedef struct {
    by_gr *g;
    const by_gr_one_of *o;
    bool obj;
    unsigned narrow;
    uint32_t max; /* alternatives */
    bool cut;
} job;

static void *join(const job *j, void *a, void *b) {
    return j->obj ? (void *)by_gr_orec_and(j->g, a, b) : (void *)by_gr_arec_and(j->g, a, b);
}

static uint32_t count(const job *j, const by_gr_norm *n) {
    return j->obj ? n->n_obj : n->n_arr;
}
static void *at(const job *j, const by_gr_norm *n, uint32_t i) {
    return j->obj ? (void *)n->obj[i] : (void *)n->arr[i];
}

/* Can r hold where all that stands beside the branches holds? */
static bool possible(const job *j, void *r) {
    const by_gr_norm *b = j->o->beside;
    bool any = false;
    for (uint32_t i = 0; i < count(j, b) && !any && !by_gr_bad(j->g); i++)
        any = join(j, r, at(j, b, i)) != NULL;
    return any;
}

/* Adds r to l, unless another alternative holds it. */
static bool keep(job *j, by_gr_rec_list *l, void *r) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] == r || (j->obj && by_gr_orec_within(r, l->v[i]))) return true;
    for (uint32_t i = 0; i < l->n; i++)
        if (!j->obj || !by_gr_orec_within(l->v[i], r)) l->v[k++] = l->v[i];
    l->n = k;
    if (l->n >= j->max || (j->obj && ((by_gr_orec *)r)->n_exist > EXISTS_MAX)) return false;
    if (!by_gr_grow(j->g, &l->v, l->n, &l->cap, sizeof *l->v)) return false;
    l->v[l->n++] = r;
    return true;
}

/* The alternatives of "m and not r" go to l. */
static bool minus(job *j, by_gr_rec_list *l, void *m, void *r) {
    by_gr *g = j->g;
    void *both = join(j, m, r);
    if (by_gr_bad(g)) return false;
    if (!both || !possible(j, both)) return keep(j, l, m); /* disjoint */
    by_gr_minus o = {.from = j->obj ? m : NULL, .narrow = j->narrow};
    bool ok = j->obj ? by_gr_orec_not(g, &o, r) : by_gr_arec_not(g, &o, r);
    for (uint32_t i = 0; i < o.out.n && ok && by_gr_check(g); i++) {
        void *x = join(j, m, o.out.v[i]);
        if (x && possible(j, x)) ok = keep(j, l, x);
    }
    by_free(o.out.v);
    j->cut |= o.cut;
    return ok && !by_gr_bad(g);
}

/* Alternatives of branch i that no other branch takes. */
static bool alone(job *j, uint32_t i, by_gr_rec_list *l) {
    const by_gr_one_of *o = j->o;
    l->n = 0;
    for (uint32_t k = 0; k < count(j, o->v[i]); k++)
        if (possible(j, at(j, o->v[i], k)) && !keep(j, l, at(j, o->v[i], k))) return false;
    for (uint32_t b = 0; b < o->n; b++)
        for (uint32_t k = 0; b != i && k < count(j, o->wide[b]); k++) {
            by_gr_rec_list next = {0};
            bool ok = possible(j, at(j, o->wide[b], k));
            if (!ok && !by_gr_bad(j->g)) continue;
            for (uint32_t m = 0; m < l->n && ok; m++)
                ok = minus(j, &next, l->v[m], at(j, o->wide[b], k));
            by_free(l->v);
            *l = next;
            if (!ok) return false;
        }
    return !by_gr_bad(j->g);
}

static bool narrowed(by_gr *g, by_gr_expr e) {
    char path[200];
    by_gr_x_path(g, e, "oneOf", path, sizeof path);
    by_gr_warn(g, "%s: the branches overlap in many ways; not all values are offered of which only one holds", path);
    return true;
}

/* The objects (or arrays) of branch i alone, with as few left out as it takes. */
static bool branch(by_gr *g, const by_gr_one_of *o, uint32_t i, bool obj, by_gr_norm *out) {
    by_gr_rec_list l = {0};
    job j = {.g = g, .o = o, .obj = obj, .max = o->n * EACH_MIN > TOTAL_MAX ? EACH_MIN : TOTAL_MAX / o->n};
    bool ok = false;
    j.max += count(&j, o->v[i]);
    for (; j.narrow <= NARROW_MAX && !ok && !by_gr_bad(g); j.narrow++) {
        j.cut = false;
        ok = alone(&j, i, &l);
    }
    if (!ok && !by_gr_bad(g))
        by_gr_fail(g, BY_EUNSUPPORTED, "more than %u alternatives of objects or arrays", j.max);
    if (ok && j.cut && count(&j, o->v[i])) out->narrow = narrowed(g, o->at);
    by_gr_norm *n = ok ? by_gr_norm_new(g) : NULL;
    void **v = n ? by_gr_alloc(g, (l.n + 1) * sizeof *v) : NULL;
    if (v) {
        if (l.n) memcpy(v, l.v, l.n * sizeof *v);
        if (obj)
            n->obj = (by_gr_orec **)v, n->n_obj = l.n;
        else
            n->arr = (by_gr_arec **)v, n->n_arr = l.n;
        bool narrow = out->narrow;
        out->narrow = false;
        if ((n = by_gr_norm_or(g, out, n))) *out = *n;
        out->narrow = narrow;
    }
    by_free(l.v);
    return v && n;
}

/* Null, booleans, numbers and strings. */
static by_gr_norm *scalars(by_gr *g, const by_gr_one_of *o) {
    by_gr_norm *out = by_gr_norm_new(g), *one = by_gr_norm_new(g), *two = by_gr_norm_new(g);
    if (!out || !one || !two) return NULL;
    uint32_t nulls = 0, bits[2] = {0};
    for (uint32_t i = 0; i < o->n && !by_gr_bad(g); i++) {
        by_gr_norm x = *o->v[i], *both;
        nulls += x.null;
        bits[0] += x.bools & 1;
        bits[1] += x.bools >> 1 & 1;
        x.n_obj = x.n_arr = 0;
        x.narrow = false;
        if (!(both = by_gr_norm_and(g, one, &x)) || !(two = by_gr_norm_or(g, two, both)) ||
            !(one = by_gr_norm_or(g, one, &x)))
            return NULL;
    }
    two->n_obj = two->n_arr = 0;
    by_gr_norm *neg = by_gr_norm_empty(two) ? by_gr_norm_true(g) : by_gr_norm_not(g, o->at, two);
    by_gr_norm *rest = neg ? by_gr_norm_and(g, one, neg) : NULL;
    if (!rest) return NULL;
    *out = *rest;
    out->null = nulls == 1;
    out->bools = (uint8_t)((bits[0] == 1) | (bits[1] == 1) << 1);
    out->n_obj = out->n_arr = 0;
    return out;
}

by_gr_norm *by_gr_norm_one_of(by_gr *g, by_gr_one_of *o) {
    by_gr_norm *out = scalars(g, o), *any = by_gr_norm_new(g);
    if (!(o->wide = by_gr_alloc(g, o->n * sizeof *o->wide)) || !any || !out) return NULL;
    bool narrow = false;
    for (uint32_t i = 0; i < o->n; i++) {
        narrow |= o->v[i]->narrow;
        if (!(o->wide[i] = by_gr_norm_wide(o->v[i]))) {
            by_gr_x_error(g, o->at, BY_EUNSUPPORTED, "oneOf", "a branch cannot be negated");
            return NULL;
        }
    }
    for (uint32_t i = 0; i < o->n; i++)
        if (!branch(g, o, i, true, out) || !branch(g, o, i, false, out)) return NULL;
    if (!(out->narrow |= narrow)) return out;
    if (by_gr_norm_empty(out) && !by_gr_x_unsupported(g, o->at, "oneOf", "the branches cannot be told apart") && by_gr_bad(g)) return NULL;
    for (uint32_t i = 0; i < o->n && any; i++)
        any = by_gr_norm_or(g, any, o->wide[i]);
    out->wide = any;
    return any ? out : NULL;
}
