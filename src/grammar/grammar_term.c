/* grammar_term.c - the term store: hash-consing, normal forms, limits.
 *
 * Constructors keep terms in a normal form that makes equal languages meet in one id as often as that is cheap: SEQ to
 * the right, ALT and AND flat, sorted and without repeats, common heads of an ALT factored out, neutral and absorbing
 * elements removed. A better normal form means fewer states, never a different language. */
#include "grammar/grammar_host.h"
#include "grammar/grammar_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

#define STATES_DEFAULT 1000000u
#define MEMORY_DEFAULT ((size_t)256 << 20)
#define LIST_MAX       65535u /* members of one union: the node's count is 16 bits */

by_gr_term by_gr_fail(by_gr *g, by_status code, const char *fmt, ...) {
    if (g->status < 0) return BY_GR_NEVER;
    va_list ap;
    va_start(ap, fmt);
    char text[BY_ERR_MSG_MAX];
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    g->status = by_err_set(&g->err, code, __FILE__, __LINE__, "%s", text);
    return BY_GR_NEVER;
}

void by_gr_warn(by_gr *g, const char *fmt, ...) {
    if (g->warnings.len > 64000) return; /* a schema of thousands of odd formats needs no thousand lines */
    va_list ap;
    va_start(ap, fmt);
    char text[512];
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    by_buf_printf(&g->warnings, "%s\n", text);
}

void by_gr_begin_step(by_gr *g) {
    g->tick = 0;
    g->deadline_ns = 0;
}

bool by_gr_check(by_gr *g) {
    if (g->status < 0) return false;
    if ((++g->tick & 63) == 0) {
        int64_t now = g->compiling ? by_clock_ns() : by_thread_ns(); /* a step is not to blame for a busy machine */
        if (g->deadline_ns == 0) g->deadline_ns = now + BY_GR_STEP_NS; /* the clock starts with the first work that is not small */
        if (now > g->deadline_ns)
            by_gr_fail(g, BY_ETIMEOUT, "grammar: %s took longer than its time limit", g->compiling ? "compiling" : "one step");
    }
    if (g->n > (g->opts.states_max ? g->opts.states_max : STATES_DEFAULT))
        by_gr_fail(g, BY_ELIMIT, "grammar: more than %u states",
                   g->opts.states_max ? g->opts.states_max : STATES_DEFAULT);
    size_t bytes = g->arena.used_bytes + (size_t)g->cap * sizeof(by_gr_node) + (size_t)g->lists.cap * 4;
    if (bytes > (g->opts.memory_max ? g->opts.memory_max : MEMORY_DEFAULT))
        by_gr_fail(g, BY_ELIMIT, "grammar: more than its memory limit");
    return g->status >= 0;
}

void *by_gr_alloc(by_gr *g, size_t n) {
    void *p = by_arena_zero(&g->arena, n);
    if (!p) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    return p;
}

bool by_gr_grow(by_gr *g, void *array, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap) return true;
    uint32_t want = *cap ? *cap + *cap / 2 + 8 : 16;
    if (want <= n) want = n + 16;
    void *old, *p;
    memcpy(&old, array, sizeof old);
    p = by_realloc(BY_MEM_GRAMMAR, old, by_mul_size(want, size));
    if (!p) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
    memcpy(array, &p, sizeof p);
    *cap = want;
    return true;
}

bool by_gr_vec_push(by_gr *g, by_gr_vec *v, uint32_t x) {
    if (!by_gr_grow(g, &v->v, v->n, &v->cap, sizeof *v->v)) return false;
    v->v[v->n++] = x;
    return true;
}

void by_gr_vec_free(by_gr_vec *v) {
    by_free(v->v);
    *v = (by_gr_vec){0};
}

const uint32_t *by_gr_list(const by_gr *g, by_gr_term t, uint32_t *n) {
    *n = g->nodes[t].x;
    return g->lists.v + g->nodes[t].a;
}

/* ---- hash-consing ---- */

static uint32_t mix(uint32_t h, uint32_t x) {
    h = (h ^ x) * 0x9e3779b1u;
    return h ^ h >> 15;
}

static bool is_list(unsigned kind) {
    return kind == BY_GR_K_ALT || kind == BY_GR_K_AND;
}

static uint32_t hash_fields(unsigned kind, uint32_t x, uint32_t a, uint32_t b, uint32_t c) {
    return mix(mix(mix(mix(kind * 0x85ebca6bu, x), a), b), c);
}

static uint32_t hash_list(unsigned kind, const uint32_t *v, uint32_t n) {
    uint32_t h = mix(kind * 0x85ebca6bu, n);
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, v[i]);
    return h;
}

static uint32_t hash_node(const by_gr *g, const by_gr_node *n) {
    if (is_list(n->kind)) return hash_list(n->kind, g->lists.v + n->a, n->x);
    return hash_fields(n->kind, n->x, n->a, n->b, n->c);
}

static bool rehash(by_gr *g) {
    uint32_t cap = g->hash_cap ? g->hash_cap * 2 : 1024;
    uint32_t *t = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(cap, sizeof *t));
    if (!t) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t h = hash_node(g, &g->nodes[i]) & (cap - 1);
        while (t[h])
            h = (h + 1) & (cap - 1);
        t[h] = i + 1;
    }
    by_free(g->hash);
    g->hash = t;
    g->hash_cap = cap;
    return true;
}

static by_gr_term append(by_gr *g, by_gr_node node, uint32_t hash) {
    if (!by_gr_check(g)) return BY_GR_NEVER;
    if (g->n * 2 >= g->hash_cap && !rehash(g)) return BY_GR_NEVER;
    if (!by_gr_grow(g, &g->nodes, g->n, &g->cap, sizeof *g->nodes)) return BY_GR_NEVER;
    uint32_t h = hash & (g->hash_cap - 1);
    while (g->hash[h])
        h = (h + 1) & (g->hash_cap - 1);
    g->nodes[g->n] = node;
    g->hash[h] = g->n + 1;
    return g->n++;
}

by_gr_term by_gr_node_make(by_gr *g, by_gr_kind kind, uint32_t x, uint32_t a, uint32_t b, uint32_t c, unsigned flags) {
    if (by_gr_bad(g)) return BY_GR_NEVER;
    uint32_t hash = hash_fields(kind, x, a, b, c);
    if (g->hash_cap)
        for (uint32_t h = hash & (g->hash_cap - 1); g->hash[h]; h = (h + 1) & (g->hash_cap - 1)) {
            const by_gr_node *n = &g->nodes[g->hash[h] - 1];
            if (n->kind == kind && n->x == x && n->a == a && n->b == b && n->c == c) return g->hash[h] - 1;
        }
    by_gr_node node = {.kind = (uint8_t)kind, .flags = (uint8_t)flags, .x = (uint16_t)x, .a = a, .b = b, .c = c};
    return append(g, node, hash);
}

static by_gr_term list_make(by_gr *g, by_gr_kind kind, const uint32_t *v, uint32_t n, unsigned flags) {
    uint32_t hash = hash_list(kind, v, n);
    for (uint32_t h = hash & (g->hash_cap - 1); g->hash[h]; h = (h + 1) & (g->hash_cap - 1)) {
        const by_gr_node *o = &g->nodes[g->hash[h] - 1];
        if (o->kind == kind && o->x == n && memcmp(g->lists.v + o->a, v, n * sizeof *v) == 0) return g->hash[h] - 1;
    }
    if (n > LIST_MAX) return by_gr_fail(g, BY_ELIMIT, "grammar: more than %u alternatives in one place", LIST_MAX);
    uint32_t at = g->lists.n;
    for (uint32_t i = 0; i < n; i++)
        if (!by_gr_vec_push(g, &g->lists, v[i])) return BY_GR_NEVER;
    by_gr_node node = {.kind = (uint8_t)kind, .flags = (uint8_t)flags, .x = (uint16_t)n, .a = at};
    return append(g, node, hash);
}

/* ---- leaves ---- */

by_gr_term by_gr_cls(by_gr *g, const by_gr_set256 *set) {
    if (!(set->w[0] | set->w[1] | set->w[2] | set->w[3])) return BY_GR_NEVER;
    uint64_t h = (set->w[0] * 3 + set->w[1] * 5 + set->w[2] * 7 + set->w[3]) * 0x9e3779b97f4a7c15u;
    uint32_t *head = &g->set_head[h >> 56];
    uint32_t i = *head;
    while (i && memcmp(&g->sets[i - 1].s, set, sizeof *set) != 0)
        i = g->sets[i - 1].next;
    if (!i) {
        if (!by_gr_grow(g, &g->sets, g->n_sets, &g->cap_sets, sizeof *g->sets)) return BY_GR_NEVER;
        g->sets[g->n_sets].s = *set;
        g->sets[g->n_sets].next = *head;
        i = *head = ++g->n_sets;
    }
    return by_gr_node_make(g, BY_GR_K_CLS, 0, i - 1, 0, 0, 0);
}

by_gr_term by_gr_byte_range(by_gr *g, unsigned lo, unsigned hi) {
    by_gr_set256 s = {0};
    for (unsigned b = lo; b <= hi && b < 256; b++)
        by_gr_set_add(&s, b);
    return by_gr_cls(g, &s);
}

by_gr_term by_gr_lit(by_gr *g, by_str s) {
    if (s.len == 0) return BY_GR_EPS;
    uint32_t i = g->n_lits > 64 ? g->n_lits - 64 : 0; /* punctuation and recent ones; a repeat costs only its bytes */
    while (i < g->n_lits && !by_str_eq(g->lits[i], s))
        i++;
    for (uint32_t k = 0; i == g->n_lits && k < 16 && k < g->n_lits; k++)
        if (by_str_eq(g->lits[k], s)) i = k;
    if (i == g->n_lits) {
        if (!by_gr_grow(g, &g->lits, g->n_lits, &g->cap_lits, sizeof *g->lits)) return BY_GR_NEVER;
        by_str copy = by_arena_dup(&g->arena, s);
        if (!copy.ptr) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
        g->lits[g->n_lits++] = copy;
    }
    return by_gr_node_make(g, BY_GR_K_LIT, 0, i, 0, 0, 0);
}

/* ---- sequences and unions ---- */

static by_gr_term seq_one(by_gr *g, by_gr_term a, by_gr_term b) {
    if (a == BY_GR_NEVER || b == BY_GR_NEVER) return BY_GR_NEVER;
    if (a == BY_GR_EPS) return b;
    if (b == BY_GR_EPS) return a;
    by_gr_node na = g->nodes[a], nb = g->nodes[b];
    if (na.kind == BY_GR_K_MARK) return by_gr_mark(g, by_gr_seq(g, na.a, b)); /* these stay outermost */
    if (na.kind == BY_GR_K_CLOSE) return by_gr_close(g, by_gr_seq(g, na.a, b), na.b);
    if (na.kind == BY_GR_K_REP && na.b == 0 && na.c == BY_GR_INF && (a == b || (nb.kind == BY_GR_K_SEQ && nb.a == a)))
        return b; /* x* x* = x* */
    unsigned f = na.flags & nb.flags & BY_GR_F_NULLABLE;
    f |= na.flags & (BY_GR_F_TOKENS | BY_GR_F_UNIQ);
    if (na.flags & BY_GR_F_NULLABLE) f |= nb.flags & (BY_GR_F_TOKENS | BY_GR_F_UNIQ);
    return by_gr_node_make(g, BY_GR_K_SEQ, 0, a, b, 0, f);
}

by_gr_term by_gr_seq(by_gr *g, by_gr_term a, by_gr_term b) {
    if (g->nodes[a].kind != BY_GR_K_SEQ) return seq_one(g, a, b);
    uint32_t local[32], n = 0;
    by_gr_vec more = {0};
    for (; g->nodes[a].kind == BY_GR_K_SEQ; a = g->nodes[a].b) {
        if (n < 32)
            local[n] = g->nodes[a].a;
        else if (!by_gr_vec_push(g, &more, g->nodes[a].a))
            break;
        n++;
    }
    by_gr_term t = seq_one(g, a, b);
    while (n-- > 0)
        t = seq_one(g, n < 32 ? local[n] : more.v[n - 32], t);
    by_gr_vec_free(&more);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}

by_gr_term by_gr_seq_n(by_gr *g, const by_gr_term *v, uint32_t n) {
    by_gr_term t = BY_GR_EPS;
    while (n-- > 0)
        t = by_gr_seq(g, v[n], t);
    return t;
}

static int cmp_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t sort_unique(uint32_t *v, uint32_t n) {
    if (n < 2) return n;
    if (n <= 8) {
        for (uint32_t i = 1; i < n; i++)
            for (uint32_t j = i; j > 0 && v[j - 1] > v[j]; j--) {
                uint32_t t = v[j];
                v[j] = v[j - 1];
                v[j - 1] = t;
            }
    } else
        qsort(v, n, sizeof *v, cmp_u32);
    uint32_t k = 1;
    for (uint32_t i = 1; i < n; i++)
        if (v[i] != v[k - 1]) v[k++] = v[i];
    return k;
}

/* Flattens lists of the same kind into out. */
static bool flatten(by_gr *g, by_gr_kind kind, const by_gr_term *v, uint32_t n, by_gr_vec *out) {
    for (uint32_t i = 0; i < n; i++) {
        if (g->nodes[v[i]].kind != kind) {
            if (!by_gr_vec_push(g, out, v[i])) return false;
            continue;
        }
        uint32_t k = g->nodes[v[i]].x, at = g->nodes[v[i]].a;
        for (uint32_t j = 0; j < k; j++)
            if (!by_gr_vec_push(g, out, g->lists.v[at + j])) return false;
    }
    return true;
}

static by_gr_term head_of(const by_gr *g, by_gr_term t) {
    return g->nodes[t].kind == BY_GR_K_SEQ ? g->nodes[t].a : t;
}

static int cmp_pair(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Replaces members with one head by head . (union of tails). Returns the new count. */
static uint32_t factor(by_gr *g, uint32_t *v, uint32_t n) {
    uint64_t local[64], *p = n <= 64 ? local : by_alloc(BY_MEM_GRAMMAR, n * sizeof *p);
    if (!p) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), 0;
    for (uint32_t i = 0; i < n; i++)
        p[i] = (uint64_t)head_of(g, v[i]) << 32 | v[i];
    qsort(p, n, sizeof *p, cmp_pair);
    uint32_t k = 0;
    by_gr_vec tails = {0};
    for (uint32_t i = 0, j; i < n && !by_gr_bad(g); i = j) {
        uint32_t head = (uint32_t)(p[i] >> 32);
        for (j = i + 1; j < n && p[j] >> 32 == head; j++) {
        }
        if (j == i + 1) {
            v[k++] = (uint32_t)p[i];
            continue;
        }
        tails.n = 0;
        for (uint32_t q = i; q < j; q++) {
            by_gr_term t = (uint32_t)p[q];
            by_gr_vec_push(g, &tails, t == head ? BY_GR_EPS : g->nodes[t].b);
        }
        v[k++] = by_gr_seq(g, head, by_gr_alt(g, tails.v, tails.n));
    }
    by_gr_vec_free(&tails);
    if (p != local) by_free(p);
    return k;
}

static bool shares_head(const by_gr *g, const uint32_t *v, uint32_t n) {
    if (n > 16) return true;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (head_of(g, v[i]) == head_of(g, v[j])) return true;
    return false;
}

static by_gr_term alt_finish(by_gr *g, uint32_t *v, uint32_t n) {
    unsigned f = 0;
    bool any = false, mark = false;
    uint32_t k = 0;
    n = sort_unique(v, n);
    for (uint32_t i = 0; i < n; i++) {
        if (v[i] == BY_GR_NEVER) continue;
        f |= g->nodes[v[i]].flags & (BY_GR_F_NULLABLE | BY_GR_F_TOKENS | BY_GR_F_UNIQ);
        any |= v[i] == BY_GR_ANYTEXT;
        mark |= g->nodes[v[i]].kind == BY_GR_K_MARK;
        v[k++] = v[i];
    }
    if (mark) {
        for (uint32_t i = 0; i < k; i++)
            if (g->nodes[v[i]].kind == BY_GR_K_MARK) v[i] = g->nodes[v[i]].a;
        return by_gr_mark(g, by_gr_alt(g, v, k));
    }
    if (any && !(f & BY_GR_F_TOKENS)) return BY_GR_ANYTEXT; /* all members are text: it holds the others */
    if (k > 1 && shares_head(g, v, k)) {
        if (g->depth > 200) return by_gr_fail(g, BY_ELIMIT, "grammar: alternatives nest too deeply");
        g->depth++;
        k = factor(g, v, k);
        g->depth--;
        if (by_gr_bad(g)) return BY_GR_NEVER;
        k = sort_unique(v, k);
    }
    if (k == 0) return BY_GR_NEVER;
    if (k == 1) return v[0];
    return list_make(g, BY_GR_K_ALT, v, k, f);
}

by_gr_term by_gr_alt(by_gr *g, const by_gr_term *v, uint32_t n) {
    if (by_gr_bad(g) || n == 0) return BY_GR_NEVER;
    if (n == 1) return v[0];
    if (n == 2) {
        if (v[0] == v[1] || v[1] == BY_GR_NEVER) return v[0];
        if (v[0] == BY_GR_NEVER) return v[1];
    }
    by_gr_vec out = {0};
    by_gr_term t = BY_GR_NEVER;
    if (flatten(g, BY_GR_K_ALT, v, n, &out)) t = alt_finish(g, out.v, out.n);
    by_gr_vec_free(&out);
    return t;
}

by_gr_term by_gr_alt2(by_gr *g, by_gr_term a, by_gr_term b) {
    by_gr_term v[2] = {a, b};
    return by_gr_alt(g, v, 2);
}

/* ---- intersection and complement ---- */

by_gr_term by_gr_and(by_gr *g, const by_gr_term *v, uint32_t n) {
    if (by_gr_bad(g)) return BY_GR_NEVER;
    if (n == 0) return BY_GR_ANYBYTES;
    if (n == 1) return v[0];
    by_gr_vec out = {0};
    by_gr_term t = BY_GR_NEVER;
    if (!flatten(g, BY_GR_K_AND, v, n, &out)) goto done;
    uint32_t k = 0;
    unsigned f = BY_GR_F_NULLABLE;
    bool text = false, positive = false;
    if (g->host) by_gr_host_meet(g, out.v, out.n);
    out.n = sort_unique(out.v, out.n);
    for (uint32_t i = 0; i < out.n; i++) {
        by_gr_term x = out.v[i];
        if (x == BY_GR_NEVER) goto done;
        if (x == BY_GR_ANYBYTES) continue;
        f &= g->nodes[x].flags;
        if (x == BY_GR_ANYTEXT) {
            text = true;
            continue;
        }
        positive |= g->nodes[x].kind != BY_GR_K_NOT;
        out.v[k++] = x;
    }
    if (text && !positive) { /* every positive member is text already */
        out.v[k++] = BY_GR_ANYTEXT;
        k = sort_unique(out.v, k);
    }
    if (k == 0)
        t = BY_GR_ANYBYTES;
    else if (k == 1)
        t = out.v[0];
    else if (out.v[0] == BY_GR_EPS)
        t = f ? BY_GR_EPS : BY_GR_NEVER;
    else {
        t = list_make(g, BY_GR_K_AND, out.v, k, f);
        if (!by_gr_bad(g) && !by_gr_live(g, t)) t = BY_GR_NEVER;
    }
done:
    by_gr_vec_free(&out);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}

by_gr_term by_gr_and2(by_gr *g, by_gr_term a, by_gr_term b) {
    by_gr_term v[2] = {a, b};
    return a == b ? a : by_gr_and(g, v, 2);
}

by_gr_term by_gr_not(by_gr *g, by_gr_term a) {
    if (by_gr_bad(g)) return BY_GR_NEVER;
    if (g->host) a = by_gr_host_regular(g, a, true);
    if (a == BY_GR_NEVER) return BY_GR_ANYBYTES;
    if (a == BY_GR_ANYBYTES) return BY_GR_NEVER;
    if (g->nodes[a].kind == BY_GR_K_NOT) return g->nodes[a].a;
    return by_gr_node_make(g, BY_GR_K_NOT, 0, a, 0, 0, ~g->nodes[a].flags & BY_GR_F_NULLABLE);
}

by_gr_term by_gr_text_not(by_gr *g, by_gr_term a) {
    if (a == BY_GR_ANYTEXT) return BY_GR_NEVER;
    return by_gr_and2(g, BY_GR_ANYTEXT, by_gr_not(g, a));
}

/* ---- repetition and wrappers ---- */

by_gr_term by_gr_rep(by_gr *g, by_gr_term a, uint32_t min, uint32_t max) {
    if (by_gr_bad(g) || min > max) return BY_GR_NEVER;
    if (a == BY_GR_NEVER) return min ? BY_GR_NEVER : BY_GR_EPS;
    if (a == BY_GR_EPS || max == 0) return BY_GR_EPS;
    if (min == 1 && max == 1) return a;
    by_gr_node n = g->nodes[a];
    if (n.flags & BY_GR_F_NULLABLE) min = 0;
    if (min == 0 && max == 1 && (n.flags & BY_GR_F_NULLABLE)) return a;
    if (min == 0 && max == BY_GR_INF && n.kind == BY_GR_K_REP && n.b <= 1) {
        if (n.c == BY_GR_INF) return by_gr_rep(g, n.a, 0, BY_GR_INF);
    }
    unsigned f = n.flags & BY_GR_F_TOKENS;
    if (min == 0) f |= BY_GR_F_NULLABLE;
    return by_gr_node_make(g, BY_GR_K_REP, 0, a, min, max, f);
}

by_gr_term by_gr_opt(by_gr *g, by_gr_term a) {
    return by_gr_alt2(g, a, BY_GR_EPS);
}
by_gr_term by_gr_star(by_gr *g, by_gr_term a) {
    return by_gr_rep(g, a, 0, BY_GR_INF);
}

by_gr_term by_gr_nonempty(by_gr *g, by_gr_term a) {
    if (!by_gr_nullable(g, a)) return a;
    if (a == BY_GR_EPS) return BY_GR_NEVER;
    by_gr_node n = g->nodes[a];
    if (n.kind == BY_GR_K_ALT) { /* dropping the empty member keeps the shape simple */
        by_gr_vec out = {0};
        by_gr_term t = BY_GR_NEVER;
        for (uint32_t i = 0; i < n.x; i++)
            by_gr_vec_push(g, &out, by_gr_nonempty(g, g->lists.v[n.a + i]));
        t = by_gr_alt(g, out.v, out.n);
        by_gr_vec_free(&out);
        return t;
    }
    return by_gr_node_make(g, BY_GR_K_NONEMPTY, 0, a, 0, 0, n.flags & BY_GR_F_TOKENS);
}

by_gr_term by_gr_mark(by_gr *g, by_gr_term a) {
    if (a == BY_GR_NEVER || g->nodes[a].kind == BY_GR_K_MARK) return a;
    return by_gr_node_make(g, BY_GR_K_MARK, 0, a, 0, 0, g->nodes[a].flags & (BY_GR_F_NULLABLE | BY_GR_F_TOKENS));
}

by_gr_term by_gr_close(by_gr *g, by_gr_term a, by_gr_term arr) {
    if (a == BY_GR_NEVER) return a;
    return by_gr_node_make(g, BY_GR_K_CLOSE, 0, a, arr, 0, BY_GR_F_UNIQ);
}

by_gr_term by_gr_group(by_gr *g, by_gr_term a) {
    if (by_gr_bad(g) || a <= BY_GR_EPS) return a;
    unsigned k = g->nodes[a].kind;
    if (k == BY_GR_K_GROUP || k == BY_GR_K_CLS || k == BY_GR_K_LIT || k == BY_GR_K_REP) return a;
    return by_gr_node_make(g, BY_GR_K_GROUP, 0, a, 0, 0, g->nodes[a].flags & (BY_GR_F_NULLABLE | BY_GR_F_TOKENS));
}

by_gr_term by_gr_jstr(by_gr *g, by_gr_term text, unsigned style) {
    if (text == BY_GR_NEVER) return BY_GR_NEVER;
    by_gr_term split = g->host ? by_gr_host_split(g, text, style) : BY_GR_NEVER;
    if (split != BY_GR_NEVER) return split;
    return by_gr_node_make(g, BY_GR_K_JSTR, style, text, 0, 0, 0);
}

uint32_t by_gr_rule_new(by_gr *g) {
    if (!by_gr_grow(g, &g->rules, g->n_rules, &g->cap_rules, sizeof *g->rules)) return 0;
    g->rules[g->n_rules] = (by_gr_rule){0};
    return g->n_rules++;
}

by_gr_term by_gr_rule_term(by_gr *g, uint32_t rule) {
    if (by_gr_bad(g) || g->rules[rule].dead) return BY_GR_NEVER;
    unsigned f = g->rules[rule].nullable ? BY_GR_F_NULLABLE : 0;
    if (g->n_toksets) f |= BY_GR_F_TOKENS; /* its body is not made yet: it may hold some */
    return by_gr_node_make(g, BY_GR_K_RULE, 0, rule, 0, 0, f);
}

/* ---- token sets ---- */

by_gr_term by_gr_tok_set(by_gr *g, const uint32_t *ids, uint32_t n, bool negate) {
    uint32_t *v = by_gr_alloc(g, by_mul_size(n ? n : 1, sizeof *v));
    if (!v) return BY_GR_NEVER;
    if (n) memcpy(v, ids, n * sizeof *v);
    n = sort_unique(v, n);
    if (n == 0 && !negate) return BY_GR_NEVER;
    uint32_t i = 0;
    for (; i < g->n_toksets; i++) {
        const by_gr_tokset *s = &g->toksets[i];
        if (s->negate == negate && s->n == n && memcmp(s->ids, v, n * sizeof *v) == 0) break;
    }
    if (i == g->n_toksets) {
        if (!by_gr_grow(g, &g->toksets, g->n_toksets, &g->cap_toksets, sizeof *g->toksets)) return BY_GR_NEVER;
        g->toksets[g->n_toksets++] = (by_gr_tokset){v, n, negate};
    }
    return by_gr_node_make(g, BY_GR_K_TOK, 0, i, 0, 0, BY_GR_F_TOKENS);
}

bool by_gr_tokset_has(const by_gr *g, uint32_t set, uint32_t id) {
    const by_gr_tokset *s = &g->toksets[set];
    if (id == by_grammar_vocab_eos(g->vocab)) return false;
    return (bsearch(&id, s->ids, s->n, sizeof id, cmp_u32) != NULL) != s->negate;
}

/* ---- life ---- */

by_status by_gr_init(by_gr *g, const by_grammar_vocab *vocab, const by_grammar_opts *opts, by_err *err) {
    memset(g, 0, sizeof *g);
    g->vocab = vocab;
    if (opts) g->opts = *opts;
    by_arena_init(&g->arena, BY_MEM_GRAMMAR);
    by_gr_node_make(g, BY_GR_K_NEVER, 0, 0, 0, 0, 0);
    by_gr_node_make(g, BY_GR_K_EPS, 0, 0, 0, 0, BY_GR_F_NULLABLE);
    by_gr_term any = by_gr_node_make(g, BY_GR_K_RULE, 0, by_gr_rule_new(g), 0, 0, 0); /* holds id 2 for now */
    by_gr_term text = by_gr_rep(g, any, 0, BY_GR_INF);
    by_gr_set256 all = {{~0ull, ~0ull, ~0ull, ~0ull}};
    /* ANYBYTES needs its class first; its id must be 4, so the class is made behind it. */
    by_gr_term bytes = by_gr_node_make(g, BY_GR_K_REP, 0, BY_GR_ANYBYTES + 1, 0, BY_GR_INF, BY_GR_F_NULLABLE);
    by_gr_cls(g, &all);
    if (!by_gr_bad(g) && (any != BY_GR_ANYCHAR || text != BY_GR_ANYTEXT || bytes != BY_GR_ANYBYTES))
        by_gr_fail(g, BY_EINTERNAL, "grammar: the fixed terms moved");
    if (!by_gr_bad(g)) {
        by_gr_term body = by_gr_char_range(g, 0, 0x10ffff);
        g->rules[0].body = body;
        g->rules[0].built = true;
    }
    if (by_gr_bad(g)) {
        if (err) *err = g->err;
        by_status s = g->status;
        by_gr_deinit(g);
        return s;
    }
    return BY_OK;
}

void by_gr_deinit(by_gr *g) {
    by_gr_schema_destroy(g->schema);
    for (uint32_t i = 0; i < g->n_tries; i++)
        by_free(g->tries[i].nodes);
    for (uint32_t i = 0; i < g->n_frees; i++)
        by_free(g->frees[i].next);
    by_free(g->nodes);
    by_free(g->hash);
    by_gr_vec_free(&g->lists);
    by_free(g->sets);
    by_free(g->lits);
    by_free(g->tries);
    by_free(g->rules);
    by_free(g->frees);
    by_free(g->toksets);
    by_free(g->objdefs);
    by_free(g->arrdefs);
    by_free(g->making[0]);
    by_free(g->making[1]);
    by_gr_vec_free(&g->walk_stack);
    by_free(g->minlen);
    by_free(g->rule_min);
    by_buf_deinit(&g->warnings);
    by_arena_deinit(&g->arena);
    memset(g, 0, sizeof *g);
}
