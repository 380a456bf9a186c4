/* grammar_live.c - questions about the states behind a term: is there a member, must there be a dead end, how short is
 * the shortest member. All searches are bounded; a search that gives up answers on the side that never refuses a text.
 */
#include "grammar/grammar_internal.h"

#define LIVE_SEARCH_MAX 200000u /* states of one emptiness search at compile time */
#define FREE_SEARCH_MAX 64u     /* states of one "never refuses" search: larger automata walk their masks */

typedef struct {
    by_gr_vec q;    /* visited, in order */
    by_gr_vec from; /* index of the predecessor */
} search;

static void search_free(search *s) {
    by_gr_vec_free(&s->q);
    by_gr_vec_free(&s->from);
}

static bool needs_search(const by_gr *g, by_gr_term t) {
    unsigned k = g->nodes[t].kind;
    return k == BY_GR_K_AND || k == BY_GR_K_NOT || k == BY_GR_K_UNQUOT;
}

/* Small open-addressing set of terms. */
typedef struct {
    uint32_t *t;
    uint32_t cap, n;
} set32;

static bool set_add(by_gr *g, set32 *s, uint32_t x, bool *is_new) {
    if (s->n * 2 >= s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 64;
        uint32_t *t = by_alloc_zero(BY_MEM_GRAMMAR, cap * sizeof *t);
        if (!t) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
        for (uint32_t i = 0; i < s->cap; i++) {
            if (!s->t[i]) continue;
            uint32_t h = s->t[i] * 0x9e3779b1u >> 7 & (cap - 1);
            while (t[h])
                h = (h + 1) & (cap - 1);
            t[h] = s->t[i];
        }
        by_free(s->t);
        s->t = t;
        s->cap = cap;
    }
    uint32_t h = (x + 1) * 0x9e3779b1u >> 7 & (s->cap - 1);
    while (s->t[h] && s->t[h] != x + 1)
        h = (h + 1) & (s->cap - 1);
    *is_new = !s->t[h];
    if (*is_new) s->t[h] = x + 1, s->n++;
    return true;
}

/* The AND node of v without an emptiness check: by_gr_live answers yes at once while g->searching is set. */
static by_gr_term raw_and(by_gr *g, const by_gr_term *v, uint32_t n) {
    bool was = g->searching;
    g->searching = true;
    by_gr_term t = by_gr_and(g, v, n);
    g->searching = was;
    return t;
}

/* Targets of a state before dead ones are taken out: this is where emptiness comes from. */
static bool raw_targets(by_gr *g, by_gr_term t, by_gr_vec *out) {
    by_gr_node n = g->nodes[t];
    out->n = 0;
    if (n.row || n.kind == BY_GR_K_NOT) {
        const by_gr_row *row = by_gr_row_of(g, t);
        for (unsigned i = 0; i < row->n; i++)
            if (!by_gr_vec_push(g, out, row->r[i].to)) return false;
        return !by_gr_bad(g);
    }
    if (n.kind == BY_GR_K_UNQUOT) {
        const by_gr_row *ra = by_gr_row_of(g, n.a);
        for (unsigned i = 0; i < ra->n && ra->r[i].lo < 0xf8; i++) {
            by_gr_term a = ra->r[i].to;
            unsigned f = by_gr_nullable(g, by_gr_next(g, a, 0xff)) ? BY_GR_F_NULLABLE : 0;
            if (!by_gr_vec_push(g, out, by_gr_node_make(g, BY_GR_K_UNQUOT, 0, a, 0, 0, f))) return false;
        }
        return !by_gr_bad(g);
    }
    by_gr_term to[64];
    if (n.x > 64) return by_gr_fail(g, BY_ELIMIT, "grammar: more than 64 conditions on one text"), false;
    uint8_t cut[257] = {[0] = 1};
    for (uint32_t i = 0; i < n.x; i++) {
        const by_gr_row *r = by_gr_row_of(g, g->lists.v[n.a + i]);
        for (unsigned j = 0; j < r->n; j++)
            cut[r->r[j].lo] = cut[r->r[j].hi + 1] = 1;
    }
    for (unsigned lo = 0, hi; lo < 256 && !by_gr_bad(g); lo = hi) {
        for (hi = lo + 1; hi < 256 && !cut[hi]; hi++) {
        }
        bool dead = false;
        for (uint32_t i = 0; i < n.x && !dead; i++) {
            to[i] = by_gr_row_get(by_gr_row_of(g, g->lists.v[n.a + i]), lo);
            dead = to[i] == BY_GR_NEVER;
        }
        if (!dead && !by_gr_vec_push(g, out, raw_and(g, to, n.x))) return false;
    }
    return !by_gr_bad(g);
}

/* Characters of some member of a plain regular expression, a short one; NOT_KNOWN for others. */
#define NOT_KNOWN (UINT32_MAX / 4)

static uint32_t times(uint32_t a, uint32_t n) {
    uint64_t v = (uint64_t)a * n;
    return v < NOT_KNOWN ? (uint32_t)v : NOT_KNOWN;
}

static uint32_t short_member(const by_gr *g, by_gr_term t, unsigned depth) {
    enum { DEEPEST = 24, ALTERNATIVES = 32 };
    uint32_t sum = 0;
    for (unsigned k = 0; k < ALTERNATIVES && sum < NOT_KNOWN; k++) {
        by_gr_node n = g->nodes[t];
        uint32_t v = NOT_KNOWN;
        if (n.flags & BY_GR_F_NULLABLE) return sum;
        if (depth > DEEPEST) return NOT_KNOWN;
        if (n.kind == BY_GR_K_SEQ) {
            sum += short_member(g, n.a, depth + 1);
            t = n.b;
            continue;
        }
        if (t == BY_GR_ANYCHAR || n.kind == BY_GR_K_CLS) v = 1;
        if (n.kind == BY_GR_K_LIT) v = (uint32_t)g->lits[n.a].len - n.b;
        if (n.kind == BY_GR_K_GROUP) v = short_member(g, n.a, depth + 1);
        if (n.kind == BY_GR_K_REP) v = times(short_member(g, n.a, depth + 1), n.b);
        for (uint32_t i = 0; n.kind == BY_GR_K_ALT && i < n.x && n.x <= ALTERNATIVES; i++) {
            uint32_t one = short_member(g, g->lists.v[n.a + i], depth + 1);
            if (one < v) v = one;
        }
        return v < NOT_KNOWN ? sum + v : NOT_KNOWN;
    }
    return NOT_KNOWN;
}

/* A pattern beside a bound of the length: the pattern has a member that is short enough. */
static bool fits_bound(const by_gr *g, by_gr_node n) {
    if (n.kind != BY_GR_K_AND || n.x != 2) return false;
    for (unsigned i = 0; i < 2; i++) {
        by_gr_node bound = g->nodes[g->lists.v[n.a + i]];
        by_gr_term other = g->lists.v[n.a + 1 - i];
        if (bound.kind != BY_GR_K_REP || bound.a != BY_GR_ANYCHAR || bound.b > !by_gr_nullable(g, other)) continue;
        uint32_t n_chars = short_member(g, other, 0);
        if (n_chars < NOT_KNOWN && n_chars <= bound.c) return true;
    }
    return false;
}

bool by_gr_live(by_gr *g, by_gr_term t) {
    if (t == BY_GR_NEVER) return false;
    if (!needs_search(g, t) || g->searching) return true;
    if (g->nodes[t].flags & (BY_GR_F_NULLABLE | BY_GR_F_LIVE)) return true;
    if (g->nodes[t].flags & BY_GR_F_DEAD) return false;
    if (fits_bound(g, g->nodes[t])) {
        g->nodes[t].flags |= BY_GR_F_LIVE;
        return true;
    }
    search s = {0};
    set32 seen = {0};
    by_gr_vec out = {0};
    bool is_new, found = false;
    uint32_t hit = 0;
    set_add(g, &seen, t, &is_new);
    by_gr_vec_push(g, &s.q, t);
    by_gr_vec_push(g, &s.from, 0);
    for (uint32_t i = 0; i < s.q.n && !found && by_gr_check(g); i++) {
        if (!raw_targets(g, s.q.v[i], &out)) break;
        for (uint32_t j = out.n; j-- > 0 && !found;) {
            by_gr_term x = out.v[j];
            if (x == BY_GR_NEVER || (g->nodes[x].flags & BY_GR_F_DEAD)) continue;
            bool yes = by_gr_nullable(g, x) || !needs_search(g, x) || (g->nodes[x].flags & BY_GR_F_LIVE);
            if (yes) {
                found = true;
                hit = i;
                if (needs_search(g, x)) g->nodes[x].flags |= BY_GR_F_LIVE;
            } else if (set_add(g, &seen, x, &is_new) && is_new) {
                by_gr_vec_push(g, &s.q, x);
                by_gr_vec_push(g, &s.from, i);
            }
        }
        if (s.q.n > LIVE_SEARCH_MAX) {
            if (g->compiling)
                by_gr_fail(g, BY_ELIMIT, "grammar: conditions on one text need more than %u states", LIVE_SEARCH_MAX);
            found = true, hit = i;
        }
    }
    if (found)
        for (uint32_t i = hit;; i = s.from.v[i]) {
            g->nodes[s.q.v[i]].flags |= BY_GR_F_LIVE;
            if (i == 0) break;
        }
    else if (!by_gr_bad(g))
        for (uint32_t i = 0; i < s.q.n; i++)
            g->nodes[s.q.v[i]].flags |= BY_GR_F_DEAD;
    search_free(&s);
    by_gr_vec_free(&out);
    by_free(seen.t);
    return found || by_gr_bad(g);
}

/* ---- every text goes on ---- */

/* All code points have a live next state: the rows of t along the UTF-8 structure cover all bytes. Pushes the states
 * behind one code point. */
static bool covers(by_gr *g, by_gr_term t, unsigned lo, unsigned hi, by_gr_vec *out) {
    const by_gr_row *row = by_gr_row_of(g, t);
    unsigned at = lo;
    for (unsigned i = 0; i < row->n && at <= hi; i++) {
        if (row->r[i].hi < at) continue;
        if (row->r[i].lo > at) return false;
        if (!by_gr_vec_push(g, out, row->r[i].to)) return false;
        at = row->r[i].hi + 1u;
    }
    return at > hi;
}

static const by_gr_utf8_seq shapes[] = {
    {1, {0}, {0x7f}},
    {2, {0xc2, 0x80}, {0xdf, 0xbf}},
    {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}},
    {3, {0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}},
    {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}},
    {3, {0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}},
    {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}},
    {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}},
    {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}},
};

static bool all_chars(by_gr *g, by_gr_term t, by_gr_vec *out, by_gr_vec *a, by_gr_vec *b) {
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        a->n = 0;
        if (!by_gr_vec_push(g, a, t)) return false;
        for (unsigned d = 0; d < shapes[i].n; d++) {
            b->n = 0;
            for (uint32_t j = 0; j < a->n; j++) {
                if (j && a->v[j] == a->v[j - 1]) continue;
                if (b->n > 4096 || !covers(g, a->v[j], shapes[i].lo[d], shapes[i].hi[d], b)) return false;
            }
            by_gr_vec tmp = *a;
            *a = *b;
            *b = tmp;
        }
        for (uint32_t j = 0; j < a->n; j++)
            if ((j == 0 || a->v[j] != a->v[j - 1]) && !by_gr_vec_push(g, out, a->v[j])) return false;
    }
    return true;
}

bool by_gr_always_live(by_gr *g, by_gr_term t) {
    if (t == BY_GR_ANYTEXT) return true;
    if (g->nodes[t].flags & (BY_GR_F_FREE_YES | BY_GR_F_FREE_NO)) return g->nodes[t].flags & BY_GR_F_FREE_YES;
    if (g->nodes[t].kind == BY_GR_K_EXCEPT && g->nodes[t].c == BY_GR_ANYTEXT) return true;
    by_gr_vec q = {0}, out = {0}, a = {0}, b = {0};
    set32 seen = {0};
    bool is_new, ok = true;
    set_add(g, &seen, t, &is_new);
    by_gr_vec_push(g, &q, t);
    for (uint32_t i = 0; i < q.n && ok && !by_gr_bad(g); i++) {
        out.n = 0;
        ok = q.n <= FREE_SEARCH_MAX && all_chars(g, q.v[i], &out, &a, &b);
        for (uint32_t j = 0; j < out.n && ok; j++) {
            if (out.v[j] == BY_GR_ANYTEXT || (g->nodes[out.v[j]].flags & BY_GR_F_FREE_YES)) continue;
            ok = !(g->nodes[out.v[j]].flags & BY_GR_F_FREE_NO) && set_add(g, &seen, out.v[j], &is_new);
            if (ok && is_new) ok = by_gr_vec_push(g, &q, out.v[j]);
        }
    }
    ok = ok && !by_gr_bad(g);
    if (ok)
        for (uint32_t i = 0; i < q.n; i++)
            g->nodes[q.v[i]].flags |= BY_GR_F_FREE_YES;
    else if (!by_gr_bad(g))
        g->nodes[t].flags |= BY_GR_F_FREE_NO;
    by_gr_vec_free(&q);
    by_gr_vec_free(&out);
    by_gr_vec_free(&a);
    by_gr_vec_free(&b);
    by_free(seen.t);
    return ok;
}

/* ---- code point ranges ---- */

static bool path_live(by_gr *g, by_gr_term t, const by_gr_utf8_seq *s, unsigned d) {
    if (d == s->n) return true;
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n; i++)
        if (row->r[i].hi >= s->lo[d] && row->r[i].lo <= s->hi[d] && path_live(g, row->r[i].to, s, d + 1)) return true;
    return false;
}

bool by_gr_range_live(by_gr *g, by_gr_term t, uint32_t lo, uint32_t hi) {
    by_gr_utf8_seq s[32];
    unsigned n = by_gr_utf8_split(lo, hi, s);
    for (unsigned i = 0; i < n; i++)
        if (path_live(g, t, &s[i], 0)) return true;
    return false;
}

/* "Any text but these words": asked of every exit of every key, so without making states. */
static bool except_accepts(by_gr *g, by_gr_node n, by_str s) {
    const by_gr_trie_node *nodes = g->tries[n.a].nodes;
    uint32_t at = n.b;
    for (size_t i = 0; i < s.len; i++) {
        uint32_t c = nodes[at].child;
        while (c && nodes[c].byte < (uint8_t)s.ptr[i])
            c = nodes[c].sibling;
        if (!c || nodes[c].byte != (uint8_t)s.ptr[i]) return true; /* the caller's text is whole characters */
        at = c;
    }
    return !nodes[at].word;
}

bool by_gr_accepts(by_gr *g, by_gr_term t, by_str s) {
    if (t == BY_GR_ANYTEXT) return true;
    if (g->nodes[t].kind == BY_GR_K_EXCEPT && g->nodes[t].c == BY_GR_ANYTEXT) return except_accepts(g, g->nodes[t], s);
    return by_gr_nullable(g, by_gr_next_bytes(g, t, s));
}
