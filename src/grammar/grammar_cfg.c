/* grammar_cfg.c - from rules to terms.
 *
 * Left recursion. In a component X1..Xn of rules that can begin with one another, write each body as
 * Xi = union of Xj R_ji, and Bi (what begins with a byte or with another component). Then
 * Xi = union of Bj Y_ji, where Y_ji = (empty if j = i) or union of R_jk Y_ki: right-recursive rules with the same
 * language. A rest R_jk that may be empty counts without its empty text, which adds nothing to the union. */
#include "grammar/grammar_cfg.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define RULES_MAX     100000u
#define NEST_MAX      1000u /* nested expressions, and chains of rules that begin with one another */
#define COMPONENT_MAX 64u

void by_gr_text_error(by_gr *g, by_str text, size_t at, by_status code, const char *fmt, ...) {
    if (by_gr_bad(g) && g->where[0]) return;
    char msg[256], shown[81];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (at > text.len) at = text.len;
    size_t line = 1, begin = 0, end, from;
    for (size_t i = 0; i < at; i++)
        if (text.ptr[i] == '\n') line++, begin = i + 1;
    for (end = at; end < text.len && text.ptr[end] != '\n'; end++) {
    }
    from = at - begin > 40 ? at - 40 : begin;
    size_t n = end - from < 80 ? end - from : 80;
    if (n) memcpy(shown, text.ptr + from, n);
    shown[n] = 0;
    snprintf(g->where, sizeof g->where, "line %zu, column %zu", line, at - begin + 1);
    if (by_gr_bad(g)) {
        by_err_prefix(&g->err, "line %zu, column %zu: ", line, at - begin + 1);
        return;
    }
    by_gr_fail(g, code, "line %zu, column %zu: %s\n  %s\n  %*s^", line, at - begin + 1, msg, shown, (int)(at - from),
               "");
}

/* ---- building ---- */

static uint32_t make(by_gr_cfg *c, by_gr_cnode n) {
    if (!by_gr_check(c->g) || !by_gr_grow(c->g, &c->nodes, c->n, &c->cap, sizeof *c->nodes)) return 0;
    c->nodes[c->n] = n;
    return c->n++;
}

bool by_gr_cfg_init(by_gr_cfg *c, by_gr *g) {
    *c = (by_gr_cfg){.g = g};
    make(c, (by_gr_cnode){.kind = BY_GR_C_EMPTY});
    return !by_gr_bad(g);
}

void by_gr_cfg_free(by_gr_cfg *c) {
    by_free(c->nodes);
    by_free(c->rules);
    by_free(c->buckets);
}

uint32_t by_gr_cfg_term(by_gr_cfg *c, by_gr_term t) {
    return t == BY_GR_EPS ? 0 : make(c, (by_gr_cnode){.kind = BY_GR_C_TERM, .a = t});
}
uint32_t by_gr_cfg_rule(by_gr_cfg *c, uint32_t r) {
    return make(c, (by_gr_cnode){.kind = BY_GR_C_RULE, .a = r});
}
uint32_t by_gr_cfg_seq(by_gr_cfg *c, uint32_t a, uint32_t b) {
    if (a == 0) return b;
    if (b == 0) return a;
    return make(c, (by_gr_cnode){.kind = BY_GR_C_SEQ, .a = a, .b = b});
}
uint32_t by_gr_cfg_alt(by_gr_cfg *c, uint32_t a, uint32_t b) {
    return a == b ? a : make(c, (by_gr_cnode){.kind = BY_GR_C_ALT, .a = a, .b = b});
}
uint32_t by_gr_cfg_rep(by_gr_cfg *c, uint32_t a, uint32_t min, uint32_t max) {
    if (a == 0 || max == 0) return 0;
    return min == 1 && max == 1 ? a : make(c, (by_gr_cnode){.kind = BY_GR_C_REP, .a = a, .min = min, .max = max});
}

uint32_t by_gr_cfg_new_rule(by_gr_cfg *c) {
    if (c->n_rules >= RULES_MAX) by_gr_fail(c->g, BY_ELIMIT, "grammar: more than %u rules", RULES_MAX);
    if (by_gr_bad(c->g) || !by_gr_grow(c->g, &c->rules, c->n_rules, &c->cap_rules, sizeof *c->rules)) return 0;
    c->rules[c->n_rules] = (by_gr_crule){0};
    return c->n_rules++;
}

static uint32_t hash_name(by_str s) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (uint8_t)s.ptr[i]) * 16777619u;
    return h;
}

uint32_t by_gr_cfg_find(by_gr_cfg *c, by_str name, size_t at) {
    if (c->n_rules * 2 >= c->bucket_cap) {
        uint32_t cap = c->bucket_cap ? c->bucket_cap * 2 : 256;
        uint32_t *b = by_alloc_zero(BY_MEM_GRAMMAR, cap * sizeof *b);
        if (!b) return by_gr_fail(c->g, BY_ENOMEM, "grammar: out of memory");
        for (uint32_t i = 0; i < c->n_rules; i++) {
            if (!c->rules[i].name.ptr) continue;
            uint32_t h = hash_name(c->rules[i].name) & (cap - 1);
            while (b[h])
                h = (h + 1) & (cap - 1);
            b[h] = i + 1;
        }
        by_free(c->buckets);
        c->buckets = b;
        c->bucket_cap = cap;
    }
    uint32_t h = hash_name(name) & (c->bucket_cap - 1);
    for (; c->buckets[h]; h = (h + 1) & (c->bucket_cap - 1))
        if (by_str_eq(c->rules[c->buckets[h] - 1].name, name)) return c->buckets[h] - 1;
    uint32_t r = by_gr_cfg_new_rule(c);
    if (by_gr_bad(c->g)) return 0;
    c->rules[r].name = name;
    c->rules[r].at = at;
    c->buckets[h] = r + 1;
    return r;
}

/* ---- analysis. Expressions nest as deep as the text; SEQ and ALT chains lean left and are walked with loops. ---- */

typedef bool visit_fn(by_gr_cfg *c, uint32_t n, uint32_t depth);

static bool too_deep(by_gr_cfg *c, uint32_t depth) {
    if (depth <= NEST_MAX) return false;
    by_gr_fail(c->g, BY_ELIMIT, "grammar: expressions nest deeper than %u", NEST_MAX);
    return true;
}

static bool nullable(by_gr_cfg *c, uint32_t n, uint32_t depth) {
    if (too_deep(c, depth)) return false;
    for (;;) {
        by_gr_cnode x = c->nodes[n];
        switch ((by_gr_ckind)x.kind) {
        case BY_GR_C_EMPTY: return true;
        case BY_GR_C_TERM: return by_gr_nullable(c->g, x.a);
        case BY_GR_C_RULE: return c->rules[x.a].nullable;
        case BY_GR_C_NONEMPTY: return false;
        case BY_GR_C_REP: return x.min == 0 || nullable(c, x.a, depth + 1);
        case BY_GR_C_SEQ:
            if (!nullable(c, x.b, depth + 1)) return false;
            n = x.a;
            break;
        case BY_GR_C_ALT:
            if (nullable(c, x.b, depth + 1)) return true;
            n = x.a;
            break;
        }
    }
}

static bool live(by_gr_cfg *c, uint32_t n, uint32_t depth) {
    if (too_deep(c, depth)) return false;
    for (;;) {
        by_gr_cnode x = c->nodes[n];
        switch ((by_gr_ckind)x.kind) {
        case BY_GR_C_EMPTY: return true;
        case BY_GR_C_TERM: return x.a != BY_GR_NEVER;
        case BY_GR_C_RULE: return c->rules[x.a].live;
        case BY_GR_C_NONEMPTY: return live(c, x.a, depth + 1);
        case BY_GR_C_REP: return x.min == 0 || live(c, x.a, depth + 1);
        case BY_GR_C_SEQ:
            if (!live(c, x.b, depth + 1)) return false;
            n = x.a;
            break;
        case BY_GR_C_ALT:
            if (live(c, x.b, depth + 1)) return true;
            n = x.a;
            break;
        }
    }
}

/* Least fixed point of a property over all rules. */
static void fixed_point(by_gr_cfg *c, visit_fn *fn, size_t off) {
    for (bool again = true; again && by_gr_check(c->g);) {
        again = false;
        for (uint32_t i = c->n_rules; i-- > 0;) {
            bool *p = (bool *)((char *)&c->rules[i] + off);
            if (!*p && fn(c, c->rules[i].body, 0)) *p = again = true;
        }
    }
}

/* Rules that can stand first in n, appended to out. */
static void leading(by_gr_cfg *c, uint32_t n, by_gr_vec *out, uint32_t depth) {
    if (too_deep(c, depth)) return;
    by_gr_cnode x = c->nodes[n];
    switch ((by_gr_ckind)x.kind) {
    case BY_GR_C_EMPTY:
    case BY_GR_C_TERM: break;
    case BY_GR_C_RULE: by_gr_vec_push(c->g, out, x.a); break;
    case BY_GR_C_NONEMPTY:
    case BY_GR_C_REP: leading(c, x.a, out, depth + 1); break;
    case BY_GR_C_ALT:
        for (; c->nodes[n].kind == BY_GR_C_ALT; n = c->nodes[n].a)
            leading(c, c->nodes[n].b, out, depth + 1);
        leading(c, n, out, depth + 1);
        break;
    case BY_GR_C_SEQ: {
        by_gr_vec parts = {0};
        for (; c->nodes[n].kind == BY_GR_C_SEQ; n = c->nodes[n].a)
            by_gr_vec_push(c->g, &parts, c->nodes[n].b);
        by_gr_vec_push(c->g, &parts, n);
        for (uint32_t i = parts.n; i-- > 0;) { /* first part last */
            leading(c, parts.v[i], out, depth + 1);
            if (!nullable(c, parts.v[i], depth + 1)) break;
        }
        by_gr_vec_free(&parts);
        break;
    }
    }
}

typedef struct {
    uint32_t rule, next;
    by_gr_vec edges;
} frame;

/* Tarjan's components over "can begin with", iteratively. Components with a cycle are numbered from 1. Also bounds the
 * length of chains of rules that begin with one another, since derivatives follow them. */
static uint32_t components(by_gr_cfg *c) {
    by_gr *g = c->g;
    frame *st = NULL;
    uint32_t n_st = 0, cap_st = 0, num = 0, comps = 0;
    by_gr_vec open = {0};
    for (uint32_t root = 0; root < c->n_rules && !by_gr_bad(g); root++) {
        if (c->rules[root].num) continue;
        uint32_t enter = root;
        for (bool push = true; (n_st || push) && !by_gr_bad(g);) {
            if (push) {
                if (!by_gr_grow(g, &st, n_st, &cap_st, sizeof *st)) break;
                if (n_st > NEST_MAX)
                    by_gr_fail(g, BY_ELIMIT, "grammar: more than %u rules begin with one another", NEST_MAX);
                st[n_st] = (frame){.rule = enter};
                c->rules[enter].num = c->rules[enter].low = ++num;
                by_gr_vec_push(g, &open, enter);
                c->rules[enter].stack_pos = open.n;
                leading(c, c->rules[enter].body, &st[n_st++].edges, 0);
                push = false;
                if (by_gr_bad(g)) break;
            }
            frame *f = &st[n_st - 1];
            by_gr_crule *r = &c->rules[f->rule];
            if (f->next < f->edges.n) {
                uint32_t to = f->edges.v[f->next++];
                by_gr_crule *t = &c->rules[to];
                if (!t->num)
                    enter = to, push = true;
                else if (t->stack_pos && t->num < r->low)
                    r->low = t->num;
                continue;
            }
            bool self = false;
            for (uint32_t i = 0; i < f->edges.n; i++)
                self |= f->edges.v[i] == f->rule;
            if (r->low == r->num) {
                bool cycle = self || open.v[open.n - 1] != f->rule;
                comps += cycle;
                for (uint32_t x = UINT32_MAX; x != f->rule;) {
                    x = open.v[--open.n];
                    c->rules[x].stack_pos = 0;
                    c->rules[x].comp = cycle ? comps : 0;
                }
            }
            uint32_t low = r->low;
            by_gr_vec_free(&f->edges);
            if (--n_st && low < c->rules[st[n_st - 1].rule].low) c->rules[st[n_st - 1].rule].low = low;
        }
    }
    while (n_st > 0)
        by_gr_vec_free(&st[--n_st].edges);
    by_free(st);
    by_gr_vec_free(&open);
    return comps;
}

static void clear_components(by_gr_cfg *c) {
    for (uint32_t i = 0; i < c->n_rules; i++)
        c->rules[i].num = c->rules[i].low = c->rules[i].stack_pos = c->rules[i].comp = 0;
}

/* ---- left recursion ---- */

static bool begins_in(by_gr_cfg *c, uint32_t n, uint32_t comp) {
    by_gr_vec first = {0};
    bool found = false;
    leading(c, n, &first, 0);
    for (uint32_t i = 0; i < first.n && !found; i++)
        found = c->rules[first.v[i]].comp == comp;
    by_gr_vec_free(&first);
    return found;
}

/* An endless repeat that begins with a rule of its own component becomes a rule, x{min,} = x{min} R with R = nothing or x R: a
 * linear form of the repeat itself would have no end. */
static void open_repeats(by_gr_cfg *c, uint32_t n, uint32_t comp, uint32_t depth) {
    if (too_deep(c, depth)) return;
    for (; c->nodes[n].kind == BY_GR_C_SEQ || c->nodes[n].kind == BY_GR_C_ALT; n = c->nodes[n].a)
        open_repeats(c, c->nodes[n].b, comp, depth + 1);
    by_gr_cnode x = c->nodes[n];
    if (x.kind != BY_GR_C_REP) return;
    open_repeats(c, x.a, comp, depth + 1);
    if (x.max != BY_GR_INF || !begins_in(c, x.a, comp)) return;
    uint32_t r = by_gr_cfg_new_rule(c);
    if (by_gr_bad(c->g)) return;
    uint32_t more = by_gr_cfg_seq(c, x.a, by_gr_cfg_rule(c, r));
    c->rules[r].body = by_gr_cfg_alt(c, 0, more);
    c->rules[r].defined = true;
    uint32_t whole = by_gr_cfg_seq(c, by_gr_cfg_rep(c, x.a, x.min, x.min), by_gr_cfg_rule(c, r));
    if (!by_gr_bad(c->g)) c->nodes[n] = c->nodes[whole];
}

/* Body split: rest[j] = union of what follows a leading member j; base = everything else. UINT32_MAX = nothing. */
typedef struct {
    uint32_t rest[COMPONENT_MAX];
    uint32_t base;
} linear;

static uint32_t unite(by_gr_cfg *c, uint32_t a, uint32_t b) {
    if (a == UINT32_MAX) return b;
    if (b == UINT32_MAX) return a;
    return by_gr_cfg_alt(c, a, b);
}

static void split(by_gr_cfg *c, uint32_t n, const uint32_t *member, uint32_t m, linear *out, uint32_t depth);

static void split_seq(by_gr_cfg *c, uint32_t n, const uint32_t *member, uint32_t m, linear *out, uint32_t depth) {
    by_gr_vec parts = {0};
    uint32_t tail = 0;
    for (; c->nodes[n].kind == BY_GR_C_SEQ; n = c->nodes[n].a)
        by_gr_vec_push(c->g, &parts, c->nodes[n].b);
    by_gr_vec_push(c->g, &parts, n); /* last part first */
    for (uint32_t i = 0; i < m; i++)
        out->rest[i] = UINT32_MAX;
    out->base = 0; /* linear form of the empty tail: just the empty text */
    linear head;
    for (uint32_t i = 0; i < parts.n && !by_gr_bad(c->g); i++) {
        uint32_t part = parts.v[i];
        split(c, part, member, m, &head, depth + 1);
        bool skip = head.base != UINT32_MAX && nullable(c, head.base, depth + 1);
        linear sum;
        for (uint32_t j = 0; j < m; j++) {
            sum.rest[j] = head.rest[j] == UINT32_MAX ? UINT32_MAX : by_gr_cfg_seq(c, head.rest[j], tail);
            if (skip) sum.rest[j] = unite(c, sum.rest[j], out->rest[j]);
        }
        sum.base = UINT32_MAX;
        if (head.base != UINT32_MAX && head.base != 0) {
            uint32_t first = skip ? make(c, (by_gr_cnode){.kind = BY_GR_C_NONEMPTY, .a = head.base}) : head.base;
            sum.base = by_gr_cfg_seq(c, first, tail);
        }
        if (skip) sum.base = unite(c, sum.base, out->base);
        *out = sum;
        tail = by_gr_cfg_seq(c, part, tail);
    }
    by_gr_vec_free(&parts);
}

static void split(by_gr_cfg *c, uint32_t n, const uint32_t *member, uint32_t m, linear *out, uint32_t depth) {
    for (uint32_t i = 0; i < m; i++)
        out->rest[i] = UINT32_MAX;
    out->base = UINT32_MAX;
    if (too_deep(c, depth)) return;
    by_gr_cnode x = c->nodes[n];
    linear part;
    switch ((by_gr_ckind)x.kind) {
    case BY_GR_C_RULE:
        for (uint32_t i = 0; i < m; i++)
            if (member[i] == x.a) {
                out->rest[i] = 0;
                return;
            }
        out->base = n;
        return;
    case BY_GR_C_EMPTY:
    case BY_GR_C_TERM: out->base = n; return;
    case BY_GR_C_SEQ: split_seq(c, n, member, m, out, depth); return;
    case BY_GR_C_ALT:
        for (;; n = c->nodes[n].a) {
            bool more = c->nodes[n].kind == BY_GR_C_ALT;
            split(c, more ? c->nodes[n].b : n, member, m, &part, depth + 1);
            for (uint32_t i = 0; i < m; i++)
                out->rest[i] = unite(c, out->rest[i], part.rest[i]);
            out->base = unite(c, out->base, part.base);
            if (!more || by_gr_bad(c->g)) return;
        }
    case BY_GR_C_NONEMPTY: /* only made here, over parts without members */ out->base = n; return;
    case BY_GR_C_REP: {
        split(c, x.a, member, m, &part, depth + 1);
        bool has = false;
        for (uint32_t i = 0; i < m; i++)
            has |= part.rest[i] != UINT32_MAX;
        if (!has) {
            out->base = n;
            return;
        }
        /* x{min,max} = x x{min-1,max-1}, or nothing where min is 0; a nullable body may be repeated fewer times */
        uint32_t again = by_gr_cfg_rep(c, x.a, x.min ? x.min - 1 : 0, x.max == BY_GR_INF ? BY_GR_INF : x.max - 1);
        uint32_t seq = make(c, (by_gr_cnode){.kind = BY_GR_C_SEQ, .a = x.a, .b = again});
        if (again == 0)
            *out = part;
        else
            split_seq(c, seq, member, m, out, depth + 1);
        if (x.min == 0) out->base = unite(c, out->base, 0);
        return;
    }
    }
}

static uint32_t nonempty(by_gr_cfg *c, uint32_t n) {
    if (n == 0) return UINT32_MAX;
    return nullable(c, n, 0) ? make(c, (by_gr_cnode){.kind = BY_GR_C_NONEMPTY, .a = n}) : n;
}

/* Linear form of the texts of n that are not empty, over the members' own such texts: a member that may be empty leaves
 * its rest to be looked into, and rests are shorter, so this ends. */
static void split_nonempty(by_gr_cfg *c, uint32_t n, const uint32_t *member, uint32_t m, linear *out, uint32_t depth) {
    linear part;
    split(c, n, member, m, &part, depth);
    if (part.base != UINT32_MAX) out->base = unite(c, out->base, nonempty(c, part.base));
    for (uint32_t j = 0; j < m && !by_gr_bad(c->g); j++) {
        if (part.rest[j] == UINT32_MAX) continue;
        out->rest[j] = unite(c, out->rest[j], part.rest[j]);
        if (c->rules[member[j]].nullable && part.rest[j] != 0)
            split_nonempty(c, part.rest[j], member, m, out, depth + 1);
    }
}

static uint32_t body_of(by_gr_cfg *c, uint32_t n) {
    return n == UINT32_MAX ? by_gr_cfg_term(c, BY_GR_NEVER) : n;
}

/* Bodies of the rules Y_ji (y[j * m + i]). reach[j][k]: a step from j to k that may read nothing. */
static void make_tails(by_gr_cfg *c, const linear *forms, const uint32_t *y, uint32_t m) {
    bool reach[COMPONENT_MAX][COMPONENT_MAX] = {{false}};
    for (uint32_t j = 0; j < m; j++)
        for (uint32_t k = 0; k < m; k++)
            reach[j][k] = j == k || (forms[k].rest[j] != UINT32_MAX && nullable(c, forms[k].rest[j], 0));
    for (uint32_t q = 0; q < m; q++)
        for (uint32_t j = 0; j < m; j++)
            for (uint32_t k = 0; k < m; k++)
                reach[j][k] |= reach[j][q] && reach[q][k];
    for (uint32_t j = 0; j < m; j++)
        for (uint32_t i = 0; i < m && !by_gr_bad(c->g); i++) {
            uint32_t body = reach[j][i] ? 0 : UINT32_MAX;
            for (uint32_t p = 0; p < m; p++)
                for (uint32_t k = 0; reach[j][p] && k < m; k++) {
                    uint32_t r = forms[k].rest[p] == UINT32_MAX ? UINT32_MAX : nonempty(c, forms[k].rest[p]);
                    if (r != UINT32_MAX) body = unite(c, body, by_gr_cfg_seq(c, r, by_gr_cfg_rule(c, y[k * m + i])));
                }
            c->rules[y[j * m + i]].body = body_of(c, body);
            c->rules[y[j * m + i]].defined = true;
        }
}

/* forms[i].rest[j] is R_ji: what follows Xj in Xi. A member that may be empty becomes "its other texts, or nothing". */
static void remove_component(by_gr_cfg *c, uint32_t comp) {
    by_gr *g = c->g;
    uint32_t member[COMPONENT_MAX], m = 0;
    for (uint32_t i = 0; i < c->n_rules; i++) {
        if (c->rules[i].comp != comp) continue;
        if (m == COMPONENT_MAX) {
            by_gr_fail(g, BY_ELIMIT, "grammar: more than %u rules are left-recursive through one another",
                       COMPONENT_MAX);
            return;
        }
        member[m++] = i;
    }
    linear *forms = by_gr_alloc(g, m * sizeof *forms);
    uint32_t *y = by_gr_alloc(g, m * m * sizeof *y);
    if (!forms || !y) return;
    for (uint32_t i = 0; i < m; i++) {
        for (uint32_t j = 0; j < m; j++)
            forms[i].rest[j] = UINT32_MAX;
        forms[i].base = UINT32_MAX;
        split_nonempty(c, c->rules[member[i]].body, member, m, &forms[i], 0);
    }
    for (uint32_t k = 0; k < m * m && !by_gr_bad(g); k++)
        y[k] = by_gr_cfg_new_rule(c);
    if (by_gr_bad(g)) return;
    make_tails(c, forms, y, m);
    for (uint32_t i = 0; i < m && !by_gr_bad(g); i++) {
        uint32_t body = UINT32_MAX;
        for (uint32_t j = 0; j < m; j++)
            if (forms[j].base != UINT32_MAX)
                body = unite(c, body, by_gr_cfg_seq(c, forms[j].base, by_gr_cfg_rule(c, y[j * m + i])));
        if (c->rules[member[i]].nullable) body = unite(c, body, 0);
        c->rules[member[i]].body = body_of(c, body);
        c->rules[member[i]].comp = 0;
    }
}

/* ---- terms ---- */

static by_gr_term translate(by_gr_cfg *c, uint32_t n, uint32_t depth) {
    by_gr *g = c->g;
    if (by_gr_bad(g) || too_deep(c, depth)) return BY_GR_NEVER;
    by_gr_cnode x = c->nodes[n];
    by_gr_term t = BY_GR_EPS;
    by_gr_vec v = {0};
    switch ((by_gr_ckind)x.kind) {
    case BY_GR_C_EMPTY: return BY_GR_EPS;
    case BY_GR_C_TERM: return x.a;
    case BY_GR_C_RULE: return by_gr_rule_term(g, c->rules[x.a].rule);
    case BY_GR_C_NONEMPTY: return by_gr_nonempty(g, translate(c, x.a, depth + 1));
    case BY_GR_C_REP: return by_gr_rep(g, translate(c, x.a, depth + 1), x.min, x.max);
    case BY_GR_C_SEQ:
        for (; c->nodes[n].kind == BY_GR_C_SEQ; n = c->nodes[n].a)
            t = by_gr_seq(g, translate(c, c->nodes[n].b, depth + 1), t);
        return by_gr_seq(g, translate(c, n, depth + 1), t);
    case BY_GR_C_ALT:
        for (; c->nodes[n].kind == BY_GR_C_ALT; n = c->nodes[n].a)
            by_gr_vec_push(g, &v, translate(c, c->nodes[n].b, depth + 1));
        by_gr_vec_push(g, &v, translate(c, n, depth + 1));
        t = by_gr_alt(g, v.v, v.n);
        by_gr_vec_free(&v);
        return t;
    }
    return BY_GR_NEVER;
}

by_gr_term by_gr_cfg_finish(by_gr_cfg *c, uint32_t root) {
    by_gr *g = c->g;
    if (by_gr_bad(g)) return BY_GR_NEVER;
    fixed_point(c, nullable, offsetof(by_gr_crule, nullable));
    /* Removing one component can lay open another (a rest that begins with a rule of it): repeat until none is left. */
    for (int round = 0; round < 16 && !by_gr_bad(g); round++) {
        clear_components(c);
        uint32_t comps = components(c), n_rules = c->n_rules;
        for (uint32_t i = 0; i < n_rules && !by_gr_bad(g); i++)
            if (c->rules[i].comp) open_repeats(c, c->rules[i].body, c->rules[i].comp, 0);
        if (c->n_rules > n_rules) {
            fixed_point(c, nullable, offsetof(by_gr_crule, nullable));
            clear_components(c);
            comps = components(c);
        }
        if (comps == 0) break;
        if (round == 15) by_gr_fail(g, BY_EUNSUPPORTED, "grammar: left recursion that cannot be removed");
        for (uint32_t k = 1; k <= comps && !by_gr_bad(g); k++)
            remove_component(c, k);
        fixed_point(c, nullable, offsetof(by_gr_crule, nullable));
    }
    fixed_point(c, live, offsetof(by_gr_crule, live));
    if (by_gr_bad(g)) return BY_GR_NEVER;
    for (uint32_t i = 0; i < c->n_rules; i++) {
        uint32_t r = by_gr_rule_new(g);
        if (by_gr_bad(g)) return BY_GR_NEVER;
        g->rules[r].nullable = c->rules[i].nullable;
        g->rules[r].dead = !c->rules[i].live;
        g->rules[r].built = true;
        c->rules[i].rule = r;
    }
    for (uint32_t i = 0; i < c->n_rules && !by_gr_bad(g); i++) {
        by_gr_term t = translate(c, c->rules[i].body, 0);
        g->rules[c->rules[i].rule].body = t;
    }
    return by_gr_rule_term(g, c->rules[root].rule);
}
