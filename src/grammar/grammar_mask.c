/* grammar_mask.c - the mask of a state: walk the byte trie, but only where something is to be decided.
 *
 * Three things keep the walk short. A union's mask is the union of its members' masks. A sequence that begins with a
 * JSON string or a number is cut in two: what its head says about every token is computed once per head (and is one of
 * the vocabulary's tables for plain strings), and only the trie below the head's exits is walked for the tail. And a
 * state that returns to itself on all bytes of a group, or counts them and has enough left, takes whole subtrees whose
 * tokens hold nothing else. */
#include "grammar/grammar_mask.h"

#include "grammar/grammar_vocab.h"

#define MASK_BYTES_MAX                                                                                                 \
    ((size_t)64 << 20)         /* kept masks of one grammar; beyond, all are dropped and made again on demand */
#define SPARSE_MAX 1500u       /* a list of that many ids is written faster than 16 KB are copied */
#define RUN_MIN    2u          /* shorter runs are walked */
#define PURE       0x80000000u /* stack flag: only absorbed bytes on the path, so the base set covers it */

typedef struct {
    by_gr *g;
    const by_grammar_vocab *v;
    uint32_t *bits;
    bool record; /* collect exits */
    by_gr_vec exits;
    by_gr_vec stack; /* pairs: node | PURE, state */
    uint32_t depth;
    uint64_t base_sig; /* what the base set of this walk covers: tokens of these groups with at most base_n characters */
    uint32_t base_n;
    bool base_last; /* behind base_n of them no character of these groups can come */
    by_gr_term marked; /* the state whose mask is made: tokens that meet a MARK are tried on it */
} walker;

static inline void set_bit(uint32_t *bits, uint32_t id) {
    bits[id >> 5] |= 1u << (id & 31);
}

static void or_bits(uint32_t *restrict to, const uint32_t *restrict from, uint32_t words) {
    for (uint32_t i = 0; i < words; i++)
        to[i] |= from[i];
}

/* ---- absorption ---- */

#define SPACES (BY_GV_SPACES - BY_GV_MULTI)

static bool loops(by_gr *g, by_gr_term t, const by_gr_utf8_seq *s, unsigned d, by_gr_term self) {
    const by_gr_row *row = by_gr_row_of(g, t);
    unsigned at = s->lo[d];
    for (unsigned i = 0; i < row->n && at <= s->hi[d]; i++) {
        if (row->r[i].hi < at) continue;
        if (row->r[i].lo > at) return false;
        if (d + 1 == s->n ? row->r[i].to != self : !loops(g, row->r[i].to, s, d + 1, self)) return false;
        at = row->r[i].hi + 1u;
    }
    return at > s->hi[d];
}

static const struct {
    unsigned group;
    by_gr_utf8_seq s;
} multi[] = {
    {0, {2, {0xc2, 0x80}, {0xc2, 0x9f}}},
    {0, {2, {0xc2, 0xa1}, {0xc2, 0xbf}}},
    {SPACES, {2, {0xc2, 0xa0}, {0xc2, 0xa0}}},
    {1, {2, {0xc3, 0x80}, {0xdf, 0xbf}}},
    {2, {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}}},
    {2, {3, {0xe1, 0x80, 0x80}, {0xe1, 0x99, 0xbf}}},
    {2, {3, {0xe1, 0x9a, 0x81}, {0xe1, 0x9a, 0xbf}}},
    {2, {3, {0xe1, 0x9b, 0x80}, {0xe1, 0xbf, 0xbf}}},
    {SPACES, {3, {0xe1, 0x9a, 0x80}, {0xe1, 0x9a, 0x80}}},
    {3, {3, {0xe2, 0x80, 0x8b}, {0xe2, 0x80, 0xa7}}},
    {3, {3, {0xe2, 0x80, 0xaa}, {0xe2, 0x80, 0xae}}},
    {3, {3, {0xe2, 0x80, 0xb0}, {0xe2, 0x80, 0xbf}}},
    {3, {3, {0xe2, 0x81, 0x80}, {0xe2, 0x81, 0x9e}}},
    {3, {3, {0xe2, 0x81, 0xa0}, {0xe2, 0x81, 0xbf}}},
    {3, {3, {0xe2, 0x82, 0x80}, {0xe2, 0xbf, 0xbf}}},
    {SPACES, {3, {0xe2, 0x80, 0x80}, {0xe2, 0x80, 0x8a}}},
    {SPACES, {3, {0xe2, 0x80, 0xa8}, {0xe2, 0x80, 0xa9}}},
    {SPACES, {3, {0xe2, 0x80, 0xaf}, {0xe2, 0x80, 0xaf}}},
    {SPACES, {3, {0xe2, 0x81, 0x9f}, {0xe2, 0x81, 0x9f}}},
    {4, {3, {0xe3, 0x80, 0x81}, {0xe3, 0x80, 0xbf}}},
    {4, {3, {0xe3, 0x81, 0x80}, {0xe3, 0xbf, 0xbf}}},
    {SPACES, {3, {0xe3, 0x80, 0x80}, {0xe3, 0x80, 0x80}}},
    {5, {3, {0xe4, 0x80, 0x80}, {0xe9, 0xbf, 0xbf}}},
    {6, {3, {0xea, 0x80, 0x80}, {0xec, 0xbf, 0xbf}}},
    {6, {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}}},
    {7, {3, {0xee, 0x80, 0x80}, {0xee, 0xbf, 0xbf}}},
    {7, {3, {0xef, 0x80, 0x80}, {0xef, 0xba, 0xbf}}},
    {7, {3, {0xef, 0xbb, 0x80}, {0xef, 0xbb, 0xbe}}},
    {7, {3, {0xef, 0xbc, 0x80}, {0xef, 0xbf, 0xbf}}},
    {SPACES, {3, {0xef, 0xbb, 0xbf}, {0xef, 0xbb, 0xbf}}},
    {8, {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}}},
    {8, {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}}},
    {8, {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}}},
};

/* Where most ASCII bytes lead from t: t itself when it is among the targets, NEVER when no target is common. */
static by_gr_term common_target(by_gr *g, by_gr_term t) {
    enum { COMMON = 20 }; /* fewer bytes are not worth it: their part of the trie is small */
    const by_gr_row *row = by_gr_row_of(g, t);
    by_gr_term best = BY_GR_NEVER;
    unsigned most = COMMON - 1;
    for (unsigned i = 0; i < row->n; i++) {
        if (row->r[i].to == t) return t;
        unsigned n = 0;
        for (unsigned k = i; k < row->n && row->r[k].lo < 128; k++)
            if (row->r[k].to == row->r[i].to) n += row->r[k].hi - row->r[k].lo + 1u;
        if (n > most) most = n, best = row->r[i].to;
    }
    return best;
}

#define ALL_MULTI (((1ull << (BY_GV_N_MULTI + 1)) - 1) << BY_GV_MULTI) /* with the spaces */

/* Multi-byte groups all of whose characters lead from t to `to`. */
static uint64_t multi_step(by_gr *g, by_gr_term t, by_gr_term to) {
    uint64_t yes = 0, no = 0;
    for (unsigned i = 0; i < sizeof multi / sizeof multi[0]; i++) {
        uint64_t bit = 1ull << (BY_GV_MULTI + multi[i].group);
        if (no & bit) continue;
        if (loops(g, t, &multi[i].s, 0, to))
            yes |= bit;
        else
            no |= bit;
    }
    return yes & ~no;
}

/* The same for a set of single characters, remembered: counted sets come again in every state of a run. */
static uint64_t set_multi(by_gr *g, by_gr_term set) {
    unsigned k = (set ^ set >> 6) & (BY_GR_SET_SLOTS - 1);
    if (g->set_of[k] != set) {
        g->set_multi[k] = multi_step(g, set, BY_GR_EPS);
        g->set_of[k] = set;
    }
    return g->set_multi[k];
}

/* Multi-byte groups whose characters lead a text language to where the byte b leads it, by its form alone: rows of all the states
 * inside the characters are not made. False: its form does not say. */
static bool like_byte(by_gr *g, by_gr_term t, uint8_t b, uint64_t *groups) {
    by_gr_node n = g->nodes[t];
    uint64_t x;
    *groups = ALL_MULTI;
    if (t == BY_GR_ANYTEXT) return true;
    switch (n.kind) {
    case BY_GR_K_REP:
        if (n.a != BY_GR_ANYCHAR && by_gr_row_get(by_gr_row_of(g, n.a), b) != BY_GR_EPS) return false;
        if (n.a != BY_GR_ANYCHAR) *groups = set_multi(g, n.a);
        return true;
    case BY_GR_K_SEQ: {
        if (!like_byte(g, n.a, b, groups)) return false;
        if (!by_gr_nullable(g, n.a)) return true;
        const by_gr_row *rest = by_gr_row_of(g, n.b);
        return by_gr_row_get(rest, b) == BY_GR_NEVER && (rest->n == 0 || rest->r[rest->n - 1].hi < 0x80);
    }
    case BY_GR_K_AND:
        for (uint32_t i = 0; i < n.x; i++) {
            if (!like_byte(g, g->lists.v[n.a + i], b, &x)) return false;
            *groups &= x;
        }
        return true;
    default: return false;
    }
}

/* Byte groups all of whose characters lead from t to `to`. */
static uint64_t step_sig(by_gr *g, by_gr_term t, by_gr_term to) {
    const uint8_t *group = g->vocab->group;
    const by_gr_row *row = by_gr_row_of(g, t);
    uint64_t yes = 0, no = 0;
    unsigned at = 0;
    for (unsigned i = 0; i < row->n; i++) {
        for (; at < row->r[i].lo && at < 128; at++)
            no |= 1ull << group[at];
        for (; at <= row->r[i].hi && at < 128; at++) {
            if (row->r[i].to == to)
                yes |= 1ull << group[at];
            else
                no |= 1ull << group[at];
        }
    }
    for (; at < 128; at++)
        no |= 1ull << group[at];
    uint64_t some = yes & ~no, above;
    if (!some) return 0;
    uint8_t b = 0x20;
    while (b < 0x7f && by_gr_row_get(row, b) != to) b++;
    by_gr_node n = g->nodes[t];
    if (n.kind == BY_GR_K_JSTR && b < 0x7f && b != '\\' && like_byte(g, n.a, b, &above)) return some | above;
    return some | multi_step(g, t, to);
}

typedef struct {
    uint64_t sig; /* any n characters of these groups are taken, and more can follow */
    uint32_t n;   /* FOREVER: any number */
    bool ended;   /* no longer run exists */
    bool last;    /* behind the n characters no other of these groups can come */
} run;
#define FOREVER 255u

static run find_run(walker *w, by_gr_term t, uint32_t want);

/* Can no character of the groups come in state t? */
static bool refuses(by_gr *g, by_gr_term t, uint64_t sig) {
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n; i++)
        for (unsigned b = row->r[i].lo; b <= row->r[i].hi; b++)
            if (b >= 0x80 || sig >> g->vocab->group[b] & 1) return false;
    return true;
}

/* A state that counts goes on to another one for every character of a group; the run is as long as that repeats. */
static run follow(walker *w, by_gr_term t, uint32_t want) {
    by_gr *g = w->g;
    const run none = {.ended = true};
    by_gr_term to = common_target(g, t);
    if (to == t) return (run){step_sig(g, t, t), FOREVER, true, false};
    if (to <= BY_GR_EPS || g->nodes[to].flags & BY_GR_F_UNIQ || by_gr_nullable(g, to)) return none;
    if (g->nodes[to].kind == BY_GR_K_MARK || g->nodes[to].kind == BY_GR_K_CLOSE) return none;
    uint64_t sig = step_sig(g, t, to);
    if (!sig) return none;
    if (want <= 1) return (run){sig, 1, false, false};
    run rest = find_run(w, to, want - 1);
    uint64_t both = sig & rest.sig;
    if (!rest.n || __builtin_popcountll(both) * 2 < __builtin_popcountll(sig)) return (run){sig, 1, true, refuses(g, to, sig)};
    return (run){both, rest.n == FOREVER ? FOREVER : rest.n + 1, rest.ended, rest.last};
}

/* The run of a state, remembered; at least `want` characters are looked at. A sequence whose head cannot be empty runs as its head
 * does. */
static run find_run(walker *w, by_gr_term t, uint32_t want) {
    by_gr *g = w->g;
    if (g->nodes[t].kind == BY_GR_K_SEQ && !by_gr_nullable(g, g->nodes[t].a)) t = g->nodes[t].a;
    unsigned k = (t ^ t >> 9) & (BY_GR_ABSORB_SLOTS - 1);
    if (g->absorb_of[k] != t || (!g->absorb_ended[k] && g->absorb_n[k] < want)) {
        run r = follow(w, t, want);
        g->absorb_of[k] = t;
        g->absorb_sig[k] = r.sig;
        g->absorb_n[k] = (uint8_t)r.n;
        g->absorb_ended[k] = r.ended;
        g->absorb_last[k] = r.last;
    }
    return (run){g->absorb_sig[k], g->absorb_n[k], g->absorb_ended[k], g->absorb_last[k]};
}

/* ---- the walk ---- */

static void take_subtree(walker *w, const by_gv_node *n) {
    for (uint32_t i = n->tok_lo; i < n->tok_hi; i++)
        set_bit(w->bits, w->v->order[i]);
}

/* A state in which an item of a list of distinct ones has just ended: goes on only where its value is new. */
static by_gr_term resolve(walker *w, const by_gv_node *n, by_gr_term t) {
    by_gr *g = w->g;
    by_gr_node x = g->nodes[t];
    if (x.kind == BY_GR_K_CLOSE) {
        by_str path = by_str_take(w->v->bytes[w->v->order[n->tok_lo]], n->depth);
        return by_gr_uniq_is_dup(g, w->marked, x.b, path) ? BY_GR_NEVER : x.a;
    }
    if (x.kind != BY_GR_K_ALT) return t;
    by_gr_vec v = {0};
    for (uint32_t i = 0; i < x.x; i++)
        by_gr_vec_push(g, &v, resolve(w, n, g->lists.v[x.a + i]));
    t = by_gr_alt(g, v.v, v.n);
    by_gr_vec_free(&v);
    return t;
}

/* Does a byte belong to a character that the base set covers? Behind the first byte of one that does, all do. */
static bool in_base(const walker *w, uint8_t b) {
    static const uint8_t with_spaces[] = {0xc2, 0xe1, 0xe2, 0xe3, 0xef};
    if (b < 0x80) return w->base_sig >> w->v->group[b] & 1;
    if (b < 0xc0) return true;
    if (b < 0xc2 || b > 0xf4 || !(w->base_sig >> by_gv_multi_group(b) & 1)) return false;
    if (w->base_sig >> BY_GV_SPACES & 1) return true;
    for (unsigned i = 0; i < sizeof with_spaces; i++)
        if (b == with_spaces[i]) return false;
    return true;
}

/* One child reached in state t. */
static inline void visit(walker *w, uint32_t child, by_gr_term t, bool pure) {
    const by_gv_node *n = &w->v->nodes[child];
    if (w->g->nodes[t].flags & BY_GR_F_UNIQ && (t = resolve(w, n, t)) == BY_GR_NEVER) return;
    if (n->tok && (w->g->nodes[t].kind != BY_GR_K_MARK || by_gr_step_bytes(w->g, w->marked, w->v->bytes[n->tok - 1])))
        set_bit(w->bits, n->tok - 1);
    bool nullable = w->record && by_gr_nullable(w->g, t);
    if (nullable) by_gr_vec_push(w->g, &w->exits, child);
    if (n->n_child == 0 || t == BY_GR_EPS) return;
    if (pure) { /* a byte that loops although its group as a whole does not is not in the base set */
        uint8_t b = w->v->byte[child];
        pure = n->chars <= w->base_n && in_base(w, b);
    }
    if (!nullable && !(n->sig & BY_GV_BAD) && w->g->nodes[t].kind != BY_GR_K_MARK) {
        if (pure && !(n->sig & ~w->base_sig) && (w->base_n == FOREVER || w->base_last || n->chars + n->below <= w->base_n)) return;
        run r = find_run(w, t, n->below < BY_GV_FIT_MAX ? n->below : BY_GV_FIT_MAX);
        if (r.sig && !(n->sig & ~r.sig) && (r.n == FOREVER || n->below <= r.n)) {
            take_subtree(w, n);
            return;
        }
    }
    __builtin_prefetch(
        &w->v->nodes[n->first]); /* the trie is larger than the caches; the stack is last in, first out */
    __builtin_prefetch(&w->v->byte[n->first]);
    w->stack.v[w->stack.n] = child | (pure ? PURE : 0); /* walk() made room for all children */
    w->stack.v[w->stack.n + 1] = t;
    w->stack.n += 2;
}

static uint32_t lower_bound(const uint8_t *byte, uint32_t lo, uint32_t hi, uint8_t b) {
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (byte[mid] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Sets the tokens below node that state t takes. pure: bytes absorbed by t are covered already. */
static void walk(walker *w, uint32_t node, by_gr_term t, bool pure) {
    by_gr *g = w->g;
    const by_grammar_vocab *v = w->v;
    uint32_t base = w->stack.n;
    by_gr_vec_push(g, &w->stack, node | (pure ? PURE : 0));
    by_gr_vec_push(g, &w->stack, t);
    while (w->stack.n > base && !by_gr_bad(g)) {
        by_gr_term s = w->stack.v[--w->stack.n];
        uint32_t at = w->stack.v[--w->stack.n];
        bool is_pure = at & PURE;
        const by_gv_node *n = &v->nodes[at & ~PURE];
        const by_gr_row *row = by_gr_row_of(g, s);
        uint32_t c = n->first, end = c + n->n_child;
        if (n->n_child == 0 || row->n == 0) continue;
        if (!by_gr_grow(g, &w->stack.v, w->stack.n + 2u * n->n_child, &w->stack.cap, sizeof *w->stack.v)) break;
        for (unsigned i = 0; i < row->n && c < end; i++) {
            uint8_t lo = row->r[i].lo, hi = row->r[i].hi;
            by_gr_term to = row->r[i].to;
            if (v->byte[c] < lo) c = end - c > 8 ? lower_bound(v->byte, c, end, lo) : c;
            while (c < end && v->byte[c] < lo)
                c++;
            for (; c < end && v->byte[c] <= hi; c++)
                visit(w, c, to, is_pure);
        }
    }
    w->stack.n = base;
}

static void or_mask(walker *w, by_gr_term t);

static void walk_root(walker *w, by_gr_term t) {
    run r = {0};
    if (!w->record || !by_gr_nullable(w->g, t)) r = find_run(w, t, BY_GV_FIT_MAX);
    bool no_memory = false;
    const uint32_t *base = r.sig && r.n >= RUN_MIN ? by_gv_base(w->v, r.sig, &no_memory) : NULL;
    if (no_memory) by_gr_fail(w->g, BY_ENOMEM, "grammar: out of memory");
    w->base_sig = r.sig;
    w->base_n = r.n == FOREVER || r.n < BY_GV_FIT_MAX ? r.n : BY_GV_FIT_MAX;
    w->base_last = r.last && r.n <= BY_GV_FIT_MAX;
    if (base && r.n == FOREVER) {
        or_bits(w->bits, base, w->v->words);
    } else if (base) {
        const uint32_t *fit = w->v->fit[w->base_n];
        for (uint32_t i = 0; i < w->v->words; i++)
            w->bits[i] |= base[i] & fit[i];
    }
    walk(w, 0, t, base != NULL);
}

/* ---- heads ---- */

static by_gr_mask **slot(by_gr *g, by_gr_mask ***table, by_gr_term t) {
    if (t >= g->masks_cap) {
        uint32_t cap = g->cap;
        by_gr_mask **m = by_realloc(BY_MEM_GRAMMAR, g->masks, by_mul_size(cap, sizeof *m));
        if (m) g->masks = m;
        by_gr_mask **h = m ? by_realloc(BY_MEM_GRAMMAR, g->heads, by_mul_size(cap, sizeof *h)) : NULL;
        if (!h) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
        g->heads = h;
        memset(g->masks + g->masks_cap, 0, (cap - g->masks_cap) * sizeof *m);
        memset(g->heads + g->masks_cap, 0, (cap - g->masks_cap) * sizeof *h);
        g->masks_cap = cap;
    }
    return &(*table)[t];
}

static void mask_free(by_gr_mask *m) {
    if (!m) return;
    if (!m->borrowed) by_free(m->bits);
    by_free(m->ids);
    by_free(m->exits);
    by_free(m->open);
    by_free(m);
}

void by_gr_masks_flush(by_gr *g) {
    for (uint32_t i = 0; i < g->masks_cap; i++) {
        mask_free(g->masks[i]);
        mask_free(g->heads[i]);
    }
    by_free(g->masks);
    by_free(g->heads);
    g->masks = g->heads = NULL;
    g->masks_cap = 0;
    g->mask_bytes = 0;
}

/* A plain JSON string: which table holds its inside, and how long its text must be; false for any other term. */
static bool plain_string(by_gr *g, by_gr_term t, const uint32_t **bits, uint32_t *min, uint32_t *max, bool *any) {
    by_gr_node n = g->nodes[t];
    const by_grammar_vocab *v = g->vocab;
    if (n.kind != BY_GR_K_JSTR) return false;
    by_gr_node x = g->nodes[n.a];
    *min = 0;
    *max = BY_GR_INF;
    *any = false;
    if (n.x == BY_GR_STYLE_PLAIN) {
        if (!by_gr_always_live(g, n.a)) return false;
        *any = true;
        *bits = v->body_plain;
        return true;
    }
    if (x.kind == BY_GR_K_REP && x.a == BY_GR_ANYCHAR) {
        *min = x.b;
        *max = x.c;
    } else if (n.a == BY_GR_ANYCHAR)
        *min = *max = 1;
    else if (n.a == BY_GR_EPS)
        *max = 0;
    else if (by_gr_always_live(g, n.a))
        *any = n.a != BY_GR_ANYTEXT;
    else
        return false;
    *bits = *max <= BY_GV_BODY_MAX ? v->body[*max] : v->body_all;
    return true;
}

static by_gr_mask *head_plain(by_gr *g, by_gr_term t, const uint32_t *bits, uint32_t min, uint32_t max, bool any) {
    const by_grammar_vocab *v = g->vocab;
    by_gr_mask *m = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *m);
    uint32_t *exits = by_alloc(BY_MEM_GRAMMAR, (size_t)(v->n_exits ? v->n_exits : 1) * 4);
    uint64_t *open = by_alloc_zero(BY_MEM_GRAMMAR, (v->n_exits / 64 + 1u) * sizeof *open);
    if (!m || !exits || !open) {
        by_free(m);
        by_free(exits);
        by_free(open);
        by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < v->n_exits; i++) {
        const by_gv_exit *e = &v->exits[i];
        if (e->chars < min || e->chars > max || (g->nodes[t].x == BY_GR_STYLE_PLAIN && !e->plain)) continue;
        if (any && !by_gr_accepts(g, g->nodes[t].a, by_str_of(v->exit_text + e->text, e->n_text))) continue;
        exits[m->n_exits++] = e->node;
        open[i >> 6] |= 1ull << (i & 63);
    }
    m->bits = (uint32_t *)(uintptr_t)bits;
    m->borrowed = true;
    m->exits = exits;
    m->open = open;
    m->bytes = sizeof *m + (size_t)v->n_exits * 5;
    return m;
}

static by_gr_mask *head_walked(walker *w, by_gr_term t) {
    by_gr *g = w->g;
    by_gr_mask *m = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *m);
    uint32_t *bits = by_alloc_zero(BY_MEM_GRAMMAR, (size_t)w->v->words * 4);
    if (!m || !bits) {
        by_free(m);
        by_free(bits);
        by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
        return NULL;
    }
    walker in = {.g = g, .v = w->v, .bits = bits, .record = true, .marked = w->marked};
    walk_root(&in, t);
    by_gr_vec_free(&in.stack);
    m->bits = bits;
    m->exits = in.exits.v;
    m->n_exits = in.exits.n;
    m->bytes = sizeof *m + (size_t)w->v->words * 4 + (size_t)in.exits.cap * 4;
    if (by_gr_bad(g)) {
        mask_free(m);
        return NULL;
    }
    return m;
}

static const by_gr_mask *head_of(walker *w, by_gr_term t) {
    by_gr *g = w->g;
    by_gr_mask **s = slot(g, &g->heads, t);
    if (!s) return NULL;
    if (*s) return *s;
    const uint32_t *bits;
    uint32_t min, max;
    bool any;
    by_gr_mask *m =
        plain_string(g, t, &bits, &min, &max, &any) ? head_plain(g, t, bits, min, max, any) : head_walked(w, t);
    s = slot(g, &g->heads, t); /* the tables may have moved */
    if (!m || !s) return mask_free(m), NULL;
    g->mask_bytes += m->bytes;
    return *s = m;
}

static bool is_head(const by_gr *g, by_gr_term t) {
    unsigned k = g->nodes[t].kind;
    return k == BY_GR_K_JSTR || (k == BY_GR_K_GROUP && !by_gr_nullable(g, t));
}

/* Tokens that close a plain string and go on as tail: one walk over the merged tries below all exits. */
static void or_tails(walker *w, const by_gr_mask *m, by_gr_term tail) {
    by_gr *g = w->g;
    const by_grammar_vocab *v = w->v;
    uint32_t base = w->stack.n;
    by_gr_vec_push(g, &w->stack, 0);
    by_gr_vec_push(g, &w->stack, tail);
    while (w->stack.n > base && !by_gr_bad(g)) {
        by_gr_term s = w->stack.v[--w->stack.n];
        const by_gv_tail *n = &v->tails[w->stack.v[--w->stack.n]];
        for (uint32_t i = n->item_lo; i < n->item_hi; i++)
            if (m->open[v->items[i].exit >> 6] >> (v->items[i].exit & 63) & 1) set_bit(w->bits, v->items[i].tok);
        if (n->n_child == 0) continue;
        const by_gr_row *row = by_gr_row_of(g, s);
        const by_gv_tail *c = &v->tails[n->first], *end = c + n->n_child;
        for (unsigned i = 0; i < row->n; i++) {
            while (c < end && c->byte < row->r[i].lo)
                c++;
            for (; c < end && c->byte <= row->r[i].hi; c++) {
                by_gr_vec_push(g, &w->stack, (uint32_t)(c - v->tails));
                by_gr_vec_push(g, &w->stack, row->r[i].to);
            }
        }
    }
    w->stack.n = base;
}

static void or_head(walker *w, by_gr_term head, by_gr_term tail) {
    const by_gr_mask *m = head_of(w, head);
    if (!m) return;
    bool plain = m->borrowed;
    or_bits(w->bits, m->bits, w->v->words);
    if (m->open && !w->record && !(w->g->nodes[w->marked].flags & BY_GR_F_UNIQ)) {
        or_tails(w, m, tail);
        return;
    }
    for (uint32_t i = 0; i < m->n_exits && !by_gr_bad(w->g); i++) {
        const by_gv_node *n = &w->v->nodes[m->exits[i]];
        if (plain && n->tok) set_bit(w->bits, n->tok - 1);
        if (n->n_child) walk(w, m->exits[i], tail, false);
    }
}

/* Members of a union that are keys with patterns: each refuses some texts, but together they may refuse none. Then what
 * stays inside the string is the plain table, and only the exits are asked one by one. False when this is not so. */
static bool or_covering(walker *w, by_gr_node h, by_gr_term rest) {
    by_gr *g = w->g;
    by_gr_vec texts = {0};
    bool ok = h.x > 1 && !w->record && !(g->nodes[w->marked].flags & BY_GR_F_UNIQ);
    for (uint32_t i = 0; i < h.x && ok; i++) {
        by_gr_node m = g->nodes[g->lists.v[h.a + i]], j = g->nodes[m.a];
        ok = m.kind == BY_GR_K_SEQ && j.kind == BY_GR_K_JSTR && j.x == BY_GR_STYLE_PLAIN &&
             by_gr_vec_push(g, &texts, j.a);
    }
    ok = ok && by_gr_always_live(g, by_gr_alt(g, texts.v, texts.n));
    if (ok) or_bits(w->bits, w->v->body_plain, w->v->words);
    for (uint32_t i = 0; i < h.x && ok && !by_gr_bad(g); i++) {
        by_gr_node m = g->nodes[g->lists.v[h.a + i]];
        by_gr_mask *exits = head_plain(g, m.a, w->v->body_plain, 0, BY_GR_INF, true);
        if (exits) or_tails(w, exits, by_gr_seq(g, m.b, rest));
        mask_free(exits);
    }
    by_gr_vec_free(&texts);
    return ok;
}

/* A union at the front is taken apart, so that its members meet as single heads. */
static void or_seq(walker *w, by_gr_term t, by_gr_node n) {
    by_gr *g = w->g;
    by_gr_node h = g->nodes[n.a];
    if (is_head(g, n.a))
        or_head(w, n.a, n.b);
    else if (h.kind == BY_GR_K_ALT && or_covering(w, h, n.b))
        return;
    else if (h.kind == BY_GR_K_ALT)
        for (uint32_t i = 0; i < h.x; i++)
            or_mask(w, by_gr_seq(g, g->lists.v[h.a + i], n.b));
    else if (h.kind == BY_GR_K_RULE)
        or_mask(w, by_gr_seq(g, by_gr_rule_body(g, h.a), n.b));
    else if (h.kind == BY_GR_K_UNIQ)
        or_mask(w, by_gr_seq(g, g->nodes[h.b].b, n.b));
    else
        walk_root(w, t);
}

static void or_mask(walker *w, by_gr_term t) {
    by_gr *g = w->g;
    by_gr_node n = g->nodes[t];
    if (by_gr_bad(g)) return;
    if (w->depth > 1000) {
        walk_root(w, t);
        return;
    }
    w->depth++;
    switch (n.kind) {
    case BY_GR_K_ALT:
        if (or_covering(w, n, BY_GR_EPS)) break;
        for (uint32_t i = 0; i < n.x; i++)
            or_mask(w, g->lists.v[n.a + i]);
        break;
    case BY_GR_K_RULE: or_mask(w, by_gr_rule_body(g, n.a)); break;
    case BY_GR_K_NONEMPTY: or_mask(w, n.a); break;
    case BY_GR_K_UNIQ: or_mask(w, g->nodes[n.b].b); break;
    case BY_GR_K_SEQ: or_seq(w, t, n); break;
    default:
        if (is_head(g, t))
            or_head(w, t, BY_GR_EPS);
        else
            walk_root(w, t);
        break;
    }
    w->depth--;
}

static void or_tokens(by_gr *g, by_gr_term t, uint32_t *bits) {
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n_tok; i++) {
        const by_gr_tokset *s = &g->toksets[row->tok[i].set];
        if (!s->negate) {
            for (uint32_t k = 0; k < s->n; k++)
                if (s->ids[k] < g->vocab->n && s->ids[k] != g->vocab->eos) set_bit(bits, s->ids[k]);
            continue;
        }
        for (uint32_t id = 0; id < g->vocab->n; id++)
            if (g->vocab->bytes[id].len && by_gr_tokset_has(g, row->tok[i].set, id)) set_bit(bits, id);
    }
}

/* Ids of the set bits, as many as fit. False when there are more than max. */
static bool list_bits(const uint32_t *bits, uint32_t words, uint32_t *ids, uint32_t max, uint32_t *n) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < words; i++)
        for (uint32_t x = bits[i]; x; x &= x - 1) {
            if (k == max) return false;
            ids[k++] = i * 32 + (uint32_t)__builtin_ctz(x);
        }
    *n = k;
    return true;
}

static by_gr_mask *finish(by_gr *g, by_gr_term t, uint32_t *bits) {
    const by_grammar_vocab *v = g->vocab;
    by_gr_mask *m = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *m);
    if (!m) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
    or_tokens(g, t, bits);
    if (by_gr_nullable(g, t)) set_bit(bits, v->eos);
    uint32_t ids[SPARSE_MAX];
    m->bytes = sizeof *m;
    if (list_bits(bits, v->words, ids, SPARSE_MAX, &m->n_ids)) {
        m->ids = by_alloc(BY_MEM_GRAMMAR, (size_t)(m->n_ids ? m->n_ids : 1) * 4);
        if (!m->ids) return mask_free(m), by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
        memcpy(m->ids, ids, (size_t)m->n_ids * 4);
        m->bytes += (size_t)m->n_ids * 4;
    } else {
        m->bits = by_alloc(BY_MEM_GRAMMAR, (size_t)v->words * 4);
        if (!m->bits) return mask_free(m), by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
        memcpy(m->bits, bits, (size_t)v->words * 4);
        m->bytes += (size_t)v->words * 4;
    }
    return m;
}

const by_gr_mask *by_gr_mask_of(by_gr *g, by_gr_term t) {
    if (t < g->masks_cap && g->masks[t]) return g->masks[t];
    if (g->mask_bytes > MASK_BYTES_MAX) by_gr_masks_flush(g);
    if (!g->work) g->work = by_alloc(BY_MEM_GRAMMAR, (size_t)g->vocab->words * 4);
    if (!g->work) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
    memset(g->work, 0, (size_t)g->vocab->words * 4);
    walker w = {.g = g, .v = g->vocab, .bits = g->work, .stack = g->walk_stack, .marked = t};
    or_mask(&w, t);
    g->walk_stack = w.stack;
    by_gr_mask *m = by_gr_bad(g) ? NULL : finish(g, t, g->work);
    by_gr_mask **s = m ? slot(g, &g->masks, t) : NULL;
    if (!s) return mask_free(m), NULL;
    g->mask_bytes += m->bytes;
    return *s = m;
}

void by_gr_mask_write(const by_gr *g, const by_gr_mask *m, uint32_t *words) {
    size_t bytes = (size_t)g->vocab->words * 4;
    if (m->bits) {
        memcpy(words, m->bits, bytes);
        return;
    }
    memset(words, 0, bytes);
    for (uint32_t i = 0; i < m->n_ids; i++)
        set_bit(words, m->ids[i]);
}

/* ---- closing in time ---- */

void by_gr_mask_closing(by_gr *g, by_gr_term t, uint32_t room, uint32_t *words) {
    const by_grammar_vocab *v = g->vocab;
    by_gr_vec stack = {0};
    memset(words, 0, (size_t)v->words * 4);
    by_gr_vec_push(g, &stack, 0);
    by_gr_vec_push(g, &stack, t);
    while (stack.n && !by_gr_bad(g)) {
        by_gr_term s = stack.v[--stack.n];
        const by_gv_node *n = &v->nodes[stack.v[--stack.n]];
        for (uint32_t c = n->first; c < n->first + n->n_child; c++) {
            by_gr_term to = by_gr_step(g, s, v->byte[c]);
            if (to == BY_GR_NEVER) continue;
            if (v->nodes[c].tok && by_gr_min_bytes(g, to) <= room) set_bit(words, v->nodes[c].tok - 1);
            if (v->nodes[c].n_child && to != BY_GR_EPS && by_gr_min_bytes(g, to) <= room + v->nodes[c].height) {
                by_gr_vec_push(g, &stack, c);
                by_gr_vec_push(g, &stack, to);
            }
        }
    }
    by_gr_vec_free(&stack);
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n_tok; i++) {
        const by_gr_tokset *set = &g->toksets[row->tok[i].set];
        if (by_gr_min_bytes(g, row->tok[i].to) > room) continue;
        for (uint32_t k = 0; !set->negate && k < set->n; k++)
            if (set->ids[k] < v->n && set->ids[k] != v->eos) set_bit(words, set->ids[k]);
    }
    if (by_gr_nullable(g, t)) set_bit(words, v->eos);
}
