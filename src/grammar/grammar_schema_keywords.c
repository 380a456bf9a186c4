/* grammar_schema_keywords.c - the normal form of one schema object: every keyword that can change validity is either
 * enforced here or refused by name. */
#include <stdio.h>

#include "grammar/grammar_schema.h"

#define COUNT_MAX   1000000000u /* larger counts are "no bound": no output reaches them */
#define SUBSETS_MAX 5u          /* anyOf branches whose combinations are kept apart for unevaluated keywords */

typedef struct {
    by_gr *g;
    by_gr_expr e;
    const by_json *s;
    uint32_t base;
    by_gr_norm *n;     /* conjunction so far */
    by_gr_norm *types; /* what the keywords of single types say, once it is made */
} place;

static const by_json *get(const place *p, const char *kw) {
    return by_json_get(p->s, kw);
}

static by_gr_expr child(place *p, const by_json *v, const char *kw, by_str key) {
    if (v->type != BY_JSON_OBJECT && v->type != BY_JSON_BOOL) {
        by_gr_x_error(p->g, p->e, BY_EINVAL, kw, "a schema (object or boolean) is expected");
        return BY_GR_X_FALSE;
    }
    return by_gr_x_node(p->g, v, p->base, p->e, kw, key);
}

static by_gr_norm *sub(place *p, const by_json *v, const char *kw, uint32_t i) {
    char *buf = by_gr_alloc(p->g, 12);
    by_str key = {0};
    if (!buf) return NULL;
    if (i != UINT32_MAX) key = by_str_of(buf, (size_t)snprintf(buf, 12, "%u", i));
    by_gr_expr e = child(p, v, kw, key);
    return by_gr_bad(p->g) ? NULL : by_gr_norm_of(p->g, e);
}

static bool meet(place *p, by_gr_norm *n) {
    p->n = n ? by_gr_norm_and(p->g, p->n, n) : NULL;
    return p->n != NULL;
}

/* A non-negative integer keyword (2.0 counts as 2). */
static bool count(place *p, const char *kw, uint32_t *out) {
    const by_json *v = get(p, kw);
    if (!v) return true;
    double d = by_json_number(v);
    if (!by_json_is_number(v) || d < 0 || (d < 1e15 && d != (double)(int64_t)d))
        return by_gr_x_error(p->g, p->e, BY_EINVAL, kw, "a whole number of at least 0 is expected");
    *out = d > COUNT_MAX ? BY_GR_INF : (uint32_t)d;
    return true;
}

static bool has_type(const by_json *type, const char *name) {
    if (!type) return true;
    if (type->type == BY_JSON_STRING) return by_str_eqz(type->v.s, name);
    for (uint32_t i = 0; type->type == BY_JSON_ARRAY && i < type->n; i++)
        if (by_json_is(&type->v.items[i], BY_JSON_STRING) && by_str_eqz(type->v.items[i].v.s, name)) return true;
    return false;
}

static bool check_type(place *p, const by_json *type) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object", "any"};
    uint32_t n = type->type == BY_JSON_ARRAY ? type->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        const by_json *t = type->type == BY_JSON_ARRAY ? &type->v.items[i] : type;
        bool ok = false;
        for (unsigned k = 0; k < 8 && t->type == BY_JSON_STRING; k++)
            ok |= by_str_eqz(t->v.s, names[k]);
        char why[64] = "unknown type";
        if (t->type == BY_JSON_STRING && t->v.s.len <= 32) snprintf(why, sizeof why, "unknown type '%.*s'", BY_STR_ARG(t->v.s));
        if (!ok) return by_gr_x_error(p->g, p->e, BY_EINVAL, "type", why);
    }
    return true;
}

/* ---- strings and numbers ---- */

static bool string_terms(place *p, by_gr_norm *n) {
    by_gr *g = p->g;
    uint32_t min = 0, max = BY_GR_INF;
    if (!count(p, "minLength", &min) || !count(p, "maxLength", &max)) return false;
    const by_json *pattern = get(p, "pattern"), *format = get(p, "format");
    if (min > max)
        n->str = BY_GR_NEVER;
    else if (min || max != BY_GR_INF)
        n->str = by_gr_rep(g, BY_GR_ANYCHAR, min, max);
    if (pattern) {
        if (pattern->type != BY_JSON_STRING)
            return by_gr_x_error(g, p->e, BY_EINVAL, "pattern", "a string is expected");
        by_gr_regex_opts o = {.search = true, .ecma_space = true};
        by_gr_term t = by_gr_regex(g, pattern->v.s, &o);
        if (by_gr_bad(g)) {
            g->where[0] = 0;
            if (!g->opts.lenient || g->status != BY_EUNSUPPORTED)
                return by_gr_x_error(g, p->e, g->status, "pattern", "");
            g->status = BY_OK;
            by_gr_x_unsupported(g, p->e, "pattern", g->err.msg);
        } else
            n->str = by_gr_and2(g, n->str, t);
    }
    if (by_json_is(format, BY_JSON_STRING)) {
        bool known;
        by_gr_term t = by_gr_format(g, format->v.s, &known);
        static const char *const numeric[] = {"int32", "int64", "float", "double", "uint32", "uint64"};
        bool number = false;
        for (unsigned i = 0; i < 6; i++)
            number |= by_str_eqz(format->v.s, numeric[i]);
        if (known)
            n->str = by_gr_and2(g, n->str, t);
        else if (!number) {
            char path[200];
            by_gr_x_path(g, p->e, "format", path, sizeof path);
            by_gr_warn(g, "%s: format \"%.*s\" is an annotation only", path, BY_STR_ARG(format->v.s));
        }
    }
    return !by_gr_bad(g);
}

static bool bound(place *p, by_gr_norm *n, const char *kw, const char *excl_kw, by_gr_cmp cmp, by_gr_cmp strict) {
    const by_json *v = get(p, kw), *x = get(p, excl_kw);
    by_gr *g = p->g;
    if (v && !by_json_is_number(v)) return by_gr_x_error(g, p->e, BY_EINVAL, kw, "a number is expected");
    bool flag = by_json_is(x, BY_JSON_BOOL) && x->v.b; /* draft 4 */
    if (x && x->type != BY_JSON_BOOL && !by_json_is_number(x))
        return by_gr_x_error(g, p->e, BY_EINVAL, excl_kw, "a number is expected");
    by_gr_term t[2] = {0}, all[2] = {0};
    unsigned k = 0;
    if (v) {
        t[k] = by_gr_number_cmp(g, flag ? strict : cmp, v->raw, false);
        all[k++] = by_gr_number_cmp(g, flag ? strict : cmp, v->raw, true);
    }
    if (by_json_is_number(x)) {
        t[k] = by_gr_number_cmp(g, strict, x->raw, false);
        all[k++] = by_gr_number_cmp(g, strict, x->raw, true);
    }
    if (by_gr_bad(g)) return by_gr_x_error(g, p->e, g->status, v ? kw : excl_kw, "");
    for (unsigned i = 0; i < k; i++) {
        n->num = n->num == by_gr_norm_true(g)->num ? t[i] : by_gr_and2(g, n->num, t[i]);
        n->plain = n->plain == by_gr_norm_true(g)->plain ? all[i] : by_gr_and2(g, n->plain, all[i]);
    }
    return true;
}

static bool number_format(place *p, by_gr_norm *n) {
    static const struct {
        const char *name, *lo, *hi;
    } ranges[] = {{"int32", "-2147483648", "2147483647"},
                  {"int64", "-9223372036854775808", "9223372036854775807"},
                  {"uint32", "0", "4294967295"},
                  {"uint64", "0", "18446744073709551615"}};
    const by_json *format = get(p, "format");
    by_gr *g = p->g;
    for (unsigned i = 0; i < 4; i++) {
        if (!by_json_is(format, BY_JSON_STRING) || !by_str_eqz(format->v.s, ranges[i].name)) continue;
        by_gr_term t = by_gr_and2(g, by_gr_number_cmp(g, BY_GR_GE, by_str_z(ranges[i].lo), true),
                                  by_gr_number_cmp(g, BY_GR_LE, by_str_z(ranges[i].hi), true));
        n->num = by_gr_and2(g, n->num, by_gr_and2(g, by_gr_integer(g), t));
        n->plain = by_gr_and2(g, n->plain, t);
    }
    return !by_gr_bad(g);
}

static bool number_terms(place *p, by_gr_norm *n, const by_json *type) {
    by_gr *g = p->g;
    by_gr_norm *all = by_gr_norm_true(g);
    if (!bound(p, n, "minimum", "exclusiveMinimum", BY_GR_GE, BY_GR_GT) ||
        !bound(p, n, "maximum", "exclusiveMaximum", BY_GR_LE, BY_GR_LT))
        return false;
    const by_json *m = get(p, "multipleOf");
    if (!m) m = get(p, "divisibleBy");
    if (m && !by_json_is_number(m)) return by_gr_x_error(g, p->e, BY_EINVAL, "multipleOf", "a number is expected");
    bool integer = has_type(type, "integer") && !has_type(type, "number") && !has_type(type, "any") && type;
    bool alone = m && integer && n->num == all->num && n->plain == all->plain;
    if (m) {
        by_gr_term t = by_gr_number_multiple(g, m->raw, alone ? BY_GR_MULTIPLE_DOT_0 : BY_GR_MULTIPLE);
        if (by_gr_bad(g)) {
            if (!g->opts.lenient || g->status != BY_EUNSUPPORTED)
                return by_gr_x_error(g, p->e, g->status, "multipleOf", "");
            g->status = BY_OK;
            by_gr_x_unsupported(g, p->e, "multipleOf", g->err.msg);
            alone = false;
        } else {
            n->num = alone && !g->opts.integer_dot_zero ? by_gr_number_multiple(g, m->raw, BY_GR_MULTIPLE_WHOLE)
                     : n->num == all->num               ? t
                                                        : by_gr_and2(g, n->num, t);
            n->plain = n->plain == all->plain ? t : by_gr_and2(g, n->plain, t);
        }
    }
    if (type && !has_type(type, "integer") && !has_type(type, "number") && !has_type(type, "any"))
        n->num = n->plain = BY_GR_NEVER;
    else if (integer) {
        by_gr_term i = by_gr_integer(g);
        by_gr_term dot = by_gr_opt(
            g, by_gr_seq(g, by_gr_lit(g, BY_STR(".")), by_gr_rep(g, by_gr_lit(g, BY_STR("0")), 1, BY_GR_INF)));
        by_gr_term dotted = by_gr_seq(g, by_gr_integer(g), dot);
        if (!alone) {
            n->num = n->num == all->num ? i : by_gr_and2(g, n->num, i);
            n->plain = n->plain == all->plain ? dotted : by_gr_and2(g, n->plain, dotted);
        }
    }
    return number_format(p, n);
}

/* ---- objects ---- */

static bool object_scope(place *p, by_gr_orec *r) {
    by_gr *g = p->g;
    const by_json *props = get(p, "properties"), *pats = get(p, "patternProperties"),
                  *rest = get(p, "additionalProperties");
    if ((props && props->type != BY_JSON_OBJECT) || (pats && pats->type != BY_JSON_OBJECT))
        return by_gr_x_error(g, p->e, BY_EINVAL,
                             props && props->type != BY_JSON_OBJECT ? "properties" : "patternProperties",
                             "an object is expected");
    bool closed = g->opts.strict && props && !rest && !get(p, "unevaluatedProperties");
    if (!props && !pats && !rest && !closed) return true;
    by_gr_scope *s = by_gr_alloc(g, sizeof *s);
    uint32_t n = props ? props->n : 0, n_pat = pats ? pats->n : 0;
    if (!s || !(s->keys = by_gr_alloc(g, (n + 1) * sizeof *s->keys)) ||
        !(s->vals = by_gr_alloc(g, (n + 1) * sizeof *s->vals)) ||
        !(s->pats = by_gr_alloc(g, (n_pat + 1) * sizeof *s->pats)) || !(r->scopes = by_gr_alloc(g, sizeof s)))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        s->keys[i] = props->v.members[i].key;
        s->vals[i] = child(p, &props->v.members[i].value, "properties", s->keys[i]);
    }
    by_gr_regex_opts o = {.search = true, .ecma_space = true};
    for (uint32_t i = 0; i < n_pat && !by_gr_bad(g); i++) {
        s->pats[i].keys = by_gr_regex(g, pats->v.members[i].key, &o);
        if (by_gr_bad(g)) {
            g->where[0] = 0;
            return by_gr_x_error(g, p->e, g->status, "patternProperties", "");
        }
        s->pats[i].val = child(p, &pats->v.members[i].value, "patternProperties", pats->v.members[i].key);
    }
    s->n = n;
    s->n_pat = n_pat;
    s->rest = closed ? BY_GR_X_FALSE : rest ? child(p, rest, "additionalProperties", (by_str){0}) : BY_GR_X_TRUE;
    s->has_rest = rest || closed;
    s->ev = true;
    r->scopes[0] = s;
    r->n_scopes = 1;
    return !by_gr_bad(g);
}

static bool string_list(place *p, const by_json *v, const char *kw, by_str **out, uint32_t *n) {
    if (v->type == BY_JSON_BOOL) return *n = 0, true; /* draft 3: required beside a property */
    if (v->type != BY_JSON_ARRAY) return by_gr_x_error(p->g, p->e, BY_EINVAL, kw, "a list of strings is expected");
    *out = by_gr_alloc(p->g, (v->n + 1) * sizeof **out);
    if (!*out) return false;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->v.items[i].type != BY_JSON_STRING)
            return by_gr_x_error(p->g, p->e, BY_EINVAL, kw, "a list of strings is expected");
        uint32_t k = 0;
        while (k < *n && !by_str_eq((*out)[k], v->v.items[i].v.s))
            k++;
        if (k == *n) (*out)[(*n)++] = v->v.items[i].v.s;
    }
    return true;
}

/* Keys that an enum lists become declared keys: they are finite, may not repeat and come in the listed order. */
static bool property_names(place *p, by_gr_orec *r) {
    by_gr *g = p->g;
    const by_json *names = get(p, "propertyNames");
    if (!names) return true;
    by_gr_norm *n = sub(p, names, "propertyNames", UINT32_MAX);
    if (!n) return false;
    r->names = by_gr_alt2(g, n->str, n->lit);
    const by_json *list = by_json_get(names, "enum");
    if (!list || list->type != BY_JSON_ARRAY || n->str != BY_GR_NEVER) return !by_gr_bad(g);
    by_gr_scope *s = by_gr_alloc(g, sizeof *s), **scopes = by_gr_alloc(g, (r->n_scopes + 1) * sizeof *scopes);
    if (!s || !scopes || !(s->keys = by_gr_alloc(g, (list->n + 1) * sizeof *s->keys)) ||
        !(s->vals = by_gr_alloc(g, (list->n + 1) * sizeof *s->vals)))
        return false;
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *k = &list->v.items[i];
        if (k->type != BY_JSON_STRING || !by_gr_accepts(g, n->lit, k->v.s)) continue;
        by_gr_expr e = by_gr_orec_value(g, r, k->v.s);
        s->keys[s->n] = k->v.s;
        s->vals[s->n++] = e;
    }
    s->rest = BY_GR_X_FALSE;
    if (r->n_scopes) memcpy(scopes, r->scopes, r->n_scopes * sizeof *scopes);
    scopes[r->n_scopes++] = s;
    r->scopes = scopes;
    return !by_gr_bad(g);
}

static bool object_terms(place *p, by_gr_norm *n) {
    by_gr *g = p->g;
    by_gr_orec *r = by_gr_alloc(g, sizeof *r), **list = by_gr_alloc(g, sizeof *list);
    if (!r || !list) return false;
    *r = (by_gr_orec){.names = BY_GR_ANYTEXT, .max = BY_GR_INF};
    const by_json *req = get(p, "required");
    if (!object_scope(p, r) || !property_names(p, r)) return false;
    if (req && !string_list(p, req, "required", &r->req, &r->n_req)) return false;
    if (!count(p, "minProperties", &r->min) || !count(p, "maxProperties", &r->max)) return false;
    if (!r->n_scopes && !r->n_req && !r->min && r->max == BY_GR_INF && r->names == BY_GR_ANYTEXT) return true;
    *list = r;
    n->obj = list;
    return true;
}

/* ---- arrays ---- */

static bool array_scope(place *p, by_gr_arec *r) {
    by_gr *g = p->g;
    const by_json *prefix = get(p, "prefixItems"), *items = get(p, "items"), *rest = items;
    const char *kw = "items";
    if (items && items->type == BY_JSON_ARRAY) { /* drafts before 2020-12 */
        prefix = items;
        rest = get(p, "additionalItems");
        kw = "additionalItems";
    }
    if (!prefix && !rest) return true;
    if (prefix && prefix->type != BY_JSON_ARRAY)
        return by_gr_x_error(g, p->e, BY_EINVAL, "prefixItems", "a list of schemas is expected");
    by_gr_ascope *s = by_gr_alloc(g, sizeof *s);
    uint32_t n = prefix ? prefix->n : 0;
    if (!s || !(s->prefix = by_gr_alloc(g, (n + 1) * sizeof *s->prefix)) || !(r->scopes = by_gr_alloc(g, sizeof s)))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        char *buf = by_gr_alloc(g, 12);
        if (!buf) return false;
        s->prefix[i] = child(p, &prefix->v.items[i], prefix == items ? "items" : "prefixItems",
                             by_str_of(buf, (size_t)snprintf(buf, 12, "%u", i)));
    }
    s->n = n;
    s->rest = rest ? child(p, rest, kw, (by_str){0}) : BY_GR_X_TRUE;
    s->has_rest = rest != NULL;
    s->ev = true;
    r->scopes[0] = s;
    r->n_scopes = 1;
    return !by_gr_bad(g);
}

static bool array_terms(place *p, by_gr_norm *n) {
    by_gr *g = p->g;
    by_gr_arec *r = by_gr_alloc(g, sizeof *r), **list = by_gr_alloc(g, sizeof *list);
    if (!r || !list) return false;
    *r = (by_gr_arec){.max = BY_GR_INF};
    const by_json *contains = get(p, "contains"), *unique = get(p, "uniqueItems");
    if (!array_scope(p, r)) return false;
    if (!count(p, "minItems", &r->min) || !count(p, "maxItems", &r->max)) return false;
    if (unique && !by_json_is(unique, BY_JSON_BOOL)) return by_gr_x_error(g, p->e, BY_EINVAL, "uniqueItems", "true or false is expected");
    r->unique = unique && unique->v.b;
    if (contains) {
        by_gr_contains c = {.min = 1, .max = BY_GR_INF, .ev = true};
        if (!count(p, "minContains", &c.min) || !count(p, "maxContains", &c.max)) return false;
        c.val = child(p, contains, "contains", (by_str){0});
        if (!(r->contains = by_gr_alloc(g, sizeof c))) return false;
        r->contains[0] = c;
        r->n_contains = 1;
    }
    if (!r->n_scopes && !r->n_contains && !r->min && r->max == BY_GR_INF && !r->unique) return true;
    *list = r;
    n->arr = list;
    return true;
}

/* ---- what stands beside: applicators ---- */

static by_gr_norm *types_of(place *p) {
    by_gr *g = p->g;
    if (p->types) return p->types;
    by_gr_norm *n = by_gr_norm_new(g), *all = by_gr_norm_true(g);
    const by_json *type = get(p, "type"), *nullable = get(p, "nullable");
    if (!n || !all || (type && !check_type(p, type))) return NULL;
    *n = *all;
    if (!number_terms(p, n, type)) return NULL;
    if (type && !has_type(type, "any")) {
        n->null = has_type(type, "null") || (by_json_is(nullable, BY_JSON_BOOL) && nullable->v.b);
        if (!has_type(type, "boolean")) n->bools = 0;
        if (!has_type(type, "string")) n->str = BY_GR_NEVER;
        if (!has_type(type, "array")) n->n_arr = 0;
        if (!has_type(type, "object")) n->n_obj = 0;
    }
    if (n->str && !string_terms(p, n)) return NULL;
    if (n->n_obj && !object_terms(p, n)) return NULL;
    if (n->n_arr && !array_terms(p, n)) return NULL;
    return p->types = n;
}

static bool type_norm(place *p) {
    return meet(p, types_of(p));
}

static bool values(place *p) {
    const by_json *c = get(p, "const"), *e = get(p, "enum");
    if (c && !meet(p, by_gr_norm_const(p->g, c))) return false;
    if (e && e->type != BY_JSON_ARRAY) return by_gr_x_error(p->g, p->e, BY_EINVAL, "enum", "a list is expected");
    return !e || meet(p, by_gr_norm_enum(p->g, e));
}

static bool reference(place *p, const char *kw, bool dynamic) {
    const by_json *ref = get(p, kw);
    uint32_t base;
    if (!ref) return true;
    if (ref->type != BY_JSON_STRING) return by_gr_x_error(p->g, p->e, BY_EINVAL, kw, "a string is expected");
    const by_json *to = by_gr_schema_resolve(p->g, p->e, ref->v.s, dynamic, &base);
    if (!to) {
        if (p->g->opts.lenient && p->g->status == BY_EUNSUPPORTED) {
            p->g->status = BY_OK;
            p->g->where[0] = 0;
            by_gr_x_unsupported(p->g, p->e, kw, "reference outside the document");
            return true;
        }
        return false;
    }
    by_gr_expr e = by_gr_x_node(p->g, to, base, p->e, kw, (by_str){0});
    return meet(p, by_gr_norm_of(p->g, e));
}

/* Branches of a list keyword; NULL on error. */
static by_gr_norm **branches(place *p, const by_json *list, const char *kw) {
    if (list->type != BY_JSON_ARRAY || list->n == 0) {
        by_gr_x_error(p->g, p->e, BY_EINVAL, kw, "a list of at least one schema is expected");
        return NULL;
    }
    by_gr_norm **v = by_gr_alloc(p->g, list->n * sizeof *v);
    for (uint32_t i = 0; v && i < list->n; i++)
        if (!(v[i] = sub(p, &list->v.items[i], kw, i))) return NULL;
    return v;
}

static bool any_of(place *p, const by_json *list, const char *kw) {
    by_gr *g = p->g;
    by_gr_norm **v = branches(p, list, kw), *sum = by_gr_norm_new(g);
    if (!v || !sum) return false;
    if (!g->schema->track || list->n > SUBSETS_MAX) {
        if (g->schema->track && list->n > SUBSETS_MAX &&
            !by_gr_x_unsupported(g, p->e, kw, "too many branches beside unevaluated keywords") && by_gr_bad(g))
            return false;
        for (uint32_t i = 0; i < list->n && sum; i++)
            sum = by_gr_norm_or(g, sum, v[i]);
        return sum && meet(p, sum);
    }
    for (uint32_t set = 1; set < 1u << list->n && sum; set++) { /* larger sets evaluate more members */
        by_gr_norm *all = by_gr_norm_true(g);
        for (uint32_t i = 0; i < list->n && all; i++)
            if (set >> i & 1) all = by_gr_norm_and(g, all, v[i]);
        sum = all ? by_gr_norm_or(g, sum, all) : NULL;
    }
    return sum && meet(p, sum);
}

static bool references(place *p) {
    return reference(p, "$ref", false) && reference(p, "$dynamicRef", true) && reference(p, "$recursiveRef", true);
}

/* A member {"type": "object"} declares no key, but undeclared ones may stand behind it as behind others: an empty scope says so. */
static by_gr_norm *plain_object(by_gr *g, const by_json *s, by_gr_norm *n) {
    const by_json *type = by_json_get(s, "type");
    bool is_object = by_json_is(type, BY_JSON_STRING) && by_str_eqz(type->v.s, "object");
    if (!is_object || n->n_obj != 1 || n->obj[0]->n_scopes) return n;
    by_gr_norm *own = by_gr_norm_new(g);
    by_gr_orec *r = by_gr_alloc(g, sizeof *r);
    by_gr_scope *scope = by_gr_alloc(g, sizeof *scope);
    if (!own || !r || !scope) return NULL;
    *own = *n;
    *r = *n->obj[0];
    r->def = 0;
    if (!(own->obj = by_gr_alloc(g, sizeof r)) || !(r->scopes = by_gr_alloc(g, sizeof scope))) return NULL;
    own->obj[0] = r;
    r->scopes[0] = scope;
    r->n_scopes = 1;
    return own;
}

static bool all_of(place *p) {
    const by_json *all = get(p, "allOf");
    by_gr_norm **v = all ? branches(p, all, "allOf") : NULL;
    for (uint32_t i = 0; v && i < all->n; i++) {
        by_gr_norm *n = i + 1 < all->n ? plain_object(p->g, &all->v.items[i], v[i]) : v[i];
        if (!n || !meet(p, n)) return false;
    }
    return !all || v;
}

static bool any_of_here(place *p) {
    const by_json *any = get(p, "anyOf");
    return !any || any_of(p, any, "anyOf");
}

static bool one_of(place *p) {
    const by_json *one = get(p, "oneOf");
    if (!one) return true;
    if (p->g->opts.one_of_any) return any_of(p, one, "oneOf");
    by_gr_norm **v = branches(p, one, "oneOf");
    by_gr_norm *types = v ? types_of(p) : NULL, *beside = types ? by_gr_norm_and(p->g, p->n, types) : NULL;
    return beside && meet(p, by_gr_norm_one_of(p->g, &(by_gr_one_of){p->e, v, one->n, beside, NULL}));
}

static bool negation(place *p) {
    const by_json *no = get(p, "not");
    by_gr_norm *n = no ? sub(p, no, "not", UINT32_MAX) : NULL;
    return !no || (n && meet(p, by_gr_norm_not(p->g, p->e, n)));
}

/* The objects of n with their keys as those of a condition: without a place in the order of keys. */
static by_gr_norm *late(by_gr *g, by_gr_norm *n) {
    by_gr_norm *own = n && n->n_obj ? by_gr_norm_new(g) : NULL;
    if (!own) return n;
    *own = *n;
    if (!(own->obj = by_gr_alloc(g, n->n_obj * sizeof *n->obj))) return NULL;
    for (uint32_t i = 0; i < n->n_obj; i++) {
        const by_gr_orec *r = n->obj[i];
        by_gr_orec *o = own->obj[i] = by_gr_alloc(g, sizeof *r);
        by_gr_scope *all = by_gr_alloc(g, (r->n_scopes + 1) * sizeof *all);
        if (!o || !all) return NULL;
        *o = *r;
        o->def = 0;
        if (!(o->scopes = by_gr_alloc(g, (r->n_scopes + 1) * sizeof *o->scopes))) return NULL;
        for (uint32_t k = 0; k < r->n_scopes; k++) {
            all[k] = *r->scopes[k];
            all[k].late = true;
            o->scopes[k] = &all[k];
        }
        if (!r->n_req) continue;
        by_gr_scope *req = &all[r->n_scopes]; /* required keys count as declared by it; vals are TRUE (0) */
        if (!(req->vals = by_gr_alloc(g, r->n_req * sizeof *req->vals))) return NULL;
        req->keys = r->req;
        req->n = r->n_req;
        req->late = true;
        o->scopes[o->n_scopes++] = req;
    }
    return own;
}

static bool conditional(place *p) {
    by_gr *g = p->g;
    const by_json *c = get(p, "if"), *then = get(p, "then"), *other = get(p, "else");
    if (!c || (!then && !other && !g->schema->track)) return true;
    by_gr_norm *n = sub(p, c, "if", UINT32_MAX), *no = n ? by_gr_norm_not(g, p->e, n) : NULL;
    if (!no) return false;
    by_gr_norm *a = n = late(g, n), *b = no;
    if (then) a = by_gr_norm_and(g, n, sub(p, then, "then", UINT32_MAX));
    if (other) b = by_gr_norm_and(g, no, sub(p, other, "else", UINT32_MAX));
    return meet(p, a && b ? by_gr_norm_or(g, a, b) : NULL);
}

/* All values, objects only those without (or with) the key. */
static by_gr_norm *key_norm(by_gr *g, by_str key, bool present, const by_str *req, uint32_t n_req) {
    by_gr_norm *n = by_gr_norm_new(g), *all = by_gr_norm_true(g);
    by_gr_orec *r = by_gr_alloc(g, sizeof *r), **list = by_gr_alloc(g, sizeof *list);
    by_gr_scope *s = by_gr_alloc(g, sizeof *s);
    if (!n || !all || !r || !list || !s) return NULL;
    *n = *all;
    *r = (by_gr_orec){.names = BY_GR_ANYTEXT, .max = BY_GR_INF};
    if (!present) {
        if (!(s->keys = by_gr_alloc(g, sizeof *s->keys)) || !(s->vals = by_gr_alloc(g, sizeof *s->vals)) ||
            !(r->scopes = by_gr_alloc(g, sizeof s)))
            return NULL;
        s->keys[0] = key;
        s->vals[0] = BY_GR_X_FALSE;
        s->n = 1;
        s->late = true;
        r->scopes[0] = s;
        r->n_scopes = 1;
    } else {
        if (!(r->req = by_gr_alloc(g, (n_req + 1) * sizeof *r->req))) return NULL;
        if (n_req) memcpy(r->req, req, n_req * sizeof *r->req);
        r->n_req = n_req;
        if (n_req == 0) r->req[r->n_req++] = key;
        if (!(s->keys = by_gr_alloc(g, (n_req + 1) * sizeof *s->keys)) ||
            !(s->vals = by_gr_alloc(g, (n_req + 1) * sizeof *s->vals)) || !(r->scopes = by_gr_alloc(g, sizeof s)))
            return NULL;
        s->keys[s->n++] = key; /* TRUE: it only says that the keys have no place of their own */
        for (uint32_t i = 0; i < n_req; i++)
            s->keys[s->n++] = req[i];
        s->late = true;
        r->scopes[0] = s;
        r->n_scopes = 1;
    }
    *list = r;
    n->obj = list;
    return n;
}

static by_gr_norm *objects_of(by_gr *g, const by_gr_norm *a) {
    by_gr_norm *n = by_gr_norm_new(g);
    if (!n) return NULL;
    n->obj = a->obj, n->n_obj = a->n_obj;
    n->narrow = a->narrow;
    n->wide = a->wide ? objects_of(g, a->wide) : NULL;
    return n;
}

static bool dependency(place *p, const char *kw, by_str key, const by_json *v) {
    by_gr *g = p->g;
    by_gr_norm *absent = key_norm(g, key, false, NULL, 0), *then;
    if (v->type == BY_JSON_ARRAY || v->type == BY_JSON_STRING) {
        by_str *req = NULL, one;
        uint32_t n = 0;
        if (v->type == BY_JSON_STRING)
            one = v->v.s, req = &one, n = 1;
        else if (!string_list(p, v, kw, &req, &n))
            return false;
        if (n == 0) return true;
        then = key_norm(g, key, true, req, n);
    } else {
        by_gr_expr e = child(p, v, kw, key);
        if (e == BY_GR_X_TRUE) return true;
        then = by_gr_bad(g) ? NULL : late(g, by_gr_norm_of(g, e));
        if (then && !(then = objects_of(g, then))) return false; /* the keyword says nothing of other values */
        if (g->schema->track && then) then = by_gr_norm_and(g, then, key_norm(g, key, true, NULL, 0));
    }
    return meet(p, absent && then ? by_gr_norm_or(g, absent, then) : NULL);
}

static bool dependencies(place *p) {
    static const char *const kws[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (unsigned k = 0; k < 3; k++) {
        const by_json *d = get(p, kws[k]);
        if (d && d->type != BY_JSON_OBJECT)
            return by_gr_x_error(p->g, p->e, BY_EINVAL, kws[k], "an object is expected");
        for (uint32_t i = 0; d && i < d->n; i++)
            if (!dependency(p, kws[k], d->v.members[i].key, &d->v.members[i].value)) return false;
    }
    return true;
}

/* ---- unevaluated: like additional, over what each alternative has evaluated ---- */

static by_gr_orec *unevaluated_members(by_gr *g, const by_gr_orec *r, by_gr_expr val) {
    by_gr_scope *s = by_gr_alloc(g, sizeof *s);
    by_gr_orec *o = by_gr_alloc(g, sizeof *o);
    uint32_t n = 0, n_pat = 0;
    bool done = false;
    for (uint32_t i = 0; i < r->n_scopes; i++) {
        if (!r->scopes[i]->ev) continue;
        n += r->scopes[i]->n;
        n_pat += r->scopes[i]->n_pat;
        done |= r->scopes[i]->has_rest;
    }
    if (!s || !o || !(s->keys = by_gr_alloc(g, (n + 1) * sizeof *s->keys)) ||
        !(s->vals = by_gr_alloc(g, (n + 1) * sizeof *s->vals)) ||
        !(s->pats = by_gr_alloc(g, (n_pat + 1) * sizeof *s->pats)) ||
        !(o->scopes = by_gr_alloc(g, (r->n_scopes + 1) * sizeof s)))
        return NULL;
    by_gr_scope **scopes = o->scopes;
    *o = *r;
    o->scopes = scopes;
    o->def = 0;
    if (r->n_scopes) memcpy(scopes, r->scopes, r->n_scopes * sizeof s);
    for (uint32_t i = 0; i < r->n_scopes; i++) {
        const by_gr_scope *x = r->scopes[i];
        for (uint32_t k = 0; x->ev && k < x->n; k++)
            s->keys[s->n++] = x->keys[k]; /* vals are TRUE (0) */
        for (uint32_t k = 0; x->ev && k < x->n_pat; k++)
            s->pats[s->n_pat++] = (by_gr_pattern){x->pats[k].keys, BY_GR_X_TRUE};
    }
    s->rest = done ? BY_GR_X_TRUE : val;
    s->has_rest = s->ev = s->late = true;
    scopes[o->n_scopes++] = s;
    return o;
}

static by_gr_arec *unevaluated_items(by_gr *g, const by_gr_arec *r, by_gr_expr val) {
    by_gr_ascope *s = by_gr_alloc(g, sizeof *s);
    by_gr_arec *o = by_gr_alloc(g, sizeof *o);
    by_gr_ascope **scopes = by_gr_alloc(g, (r->n_scopes + 1) * sizeof *scopes);
    by_gr_vec rest = {0};
    if (!s || !o || !scopes) return NULL;
    bool done = false;
    *o = *r;
    o->def = 0;
    o->scopes = scopes;
    for (uint32_t i = 0; i < r->n_scopes; i++) {
        scopes[i] = r->scopes[i];
        if (!r->scopes[i]->ev) continue;
        if (r->scopes[i]->n > s->n) s->n = r->scopes[i]->n;
        done |= r->scopes[i]->has_rest;
    }
    s->prefix = by_gr_alloc(g, (s->n + 1) * sizeof *s->prefix);
    by_gr_vec_push(g, &rest, val);
    for (uint32_t i = 0; i < r->n_contains; i++)
        if (r->contains[i].ev) by_gr_vec_push(g, &rest, r->contains[i].val);
    s->rest = done ? BY_GR_X_TRUE : by_gr_x_or(g, rest.v, rest.n);
    s->has_rest = s->ev = true;
    by_gr_vec_free(&rest);
    scopes[o->n_scopes++] = s;
    return by_gr_bad(g) ? NULL : o;
}

static bool unevaluated(place *p) {
    by_gr *g = p->g;
    const by_json *props = get(p, "unevaluatedProperties"), *items = get(p, "unevaluatedItems");
    if (!props && !items) return true;
    by_gr_norm *n = by_gr_norm_new(g);
    if (!n) return false;
    *n = *p->n;
    if (props) {
        by_gr_expr e = child(p, props, "unevaluatedProperties", (by_str){0});
        n->obj = by_gr_alloc(g, (n->n_obj + 1) * sizeof *n->obj);
        for (uint32_t i = 0; n->obj && i < n->n_obj; i++)
            if (!(n->obj[i] = unevaluated_members(g, p->n->obj[i], e))) return false;
    }
    if (items) {
        by_gr_expr e = child(p, items, "unevaluatedItems", (by_str){0});
        n->arr = by_gr_alloc(g, (n->n_arr + 1) * sizeof *n->arr);
        for (uint32_t i = 0; n->arr && i < n->n_arr; i++)
            if (!(n->arr[i] = unevaluated_items(g, p->n->arr[i], e))) return false;
    }
    p->n = n;
    return !by_gr_bad(g);
}

/* Parts of a place are joined in the order in which they are written: that is the order of the declared keys. */
static bool in_order(place *p) {
    static const struct {
        const char *kw;
        bool (*fn)(place *);
    } parts[] = {
        {"$ref", references}, {"properties", type_norm}, {"allOf", all_of},   {"anyOf", any_of_here},
        {"oneOf", one_of},         {"not", negation},    {"if", conditional}, {"dependentSchemas", dependencies},
        {"enum", values}};
    enum { N = sizeof parts / sizeof parts[0] };
    bool done[N] = {true};
    if (!references(p)) return false; /* what a place builds upon comes first */
    for (uint32_t i = 0; i < p->s->n; i++)
        for (unsigned k = 0; k < N; k++) {
            if (done[k] || !by_str_eqz(p->s->v.members[i].key, parts[k].kw)) continue;
            done[k] = true;
            if (!parts[k].fn(p)) return false;
        }
    for (unsigned k = 0; k < N; k++)
        if (!done[k] && !parts[k].fn(p)) return false;
    return true;
}

by_gr_norm *by_gr_norm_node(by_gr *g, by_gr_expr e) {
    place p = {.g = g, .e = e, .s = g->schema->x[e].json, .base = g->schema->x[e].base, .n = by_gr_norm_true(g)};
    if (!p.n) return NULL;
    static const char *const refused[] = {"extends", "disallow"}; /* draft 3 */
    for (unsigned i = 0; i < 2; i++)
        if (get(&p, refused[i]) && !by_gr_x_unsupported(g, e, refused[i], "keyword of draft 3") && by_gr_bad(g))
            return NULL;
    if (!in_order(&p) || !unevaluated(&p)) return NULL;
    return p.n;
}
