/* grammar_mask.c - the mask of a state: walk the byte trie, but only where something is to be decided.
 *
 * Three things keep the walk short. A union's mask is the union of its members' masks. A sequence that begins with a
 * JSON string or a number is cut in two: what its head says about every token is computed once per head (and is one of
 * the vocabulary's tables for plain strings), and only the trie below the head's exits is walked for the tail. And a
 * state that returns to itself on all bytes of a group, or counts them and has enough left, takes whole subtrees whose
 * tokens hold nothing else. */
#include "grammar/grammar_host.h"
#include "grammar/grammar_mask.h"

#include "grammar/grammar_vocab.h"

#define MASK_BYTES_MAX                                                                                                 \
    ((size_t)64 << 20)         /* kept masks of one grammar; beyond, all are dropped and made again on demand */
#define RUN_MIN 2u          /* shorter runs are walked */
#define WORTH_A_RUN 12u     /* tokens of a subtree */
#define PURE    0x80000000u /* stack flag: only absorbed bytes on the path, so the base set covers it */

typedef struct {
    by_gr *g;
    const by_grammar_vocab *v;
    by_gr_tokens *out;
    bool record; /* collect exits */
    by_gr_vec exits;
    by_gr_vec stack; /* pairs: node | PURE, state */
    uint32_t depth;
    by_gv_sig base_dead; /* groups that are refused wherever the base set holds */
    by_gv_sig base_sig; /* what the base set of this walk covers: tokens of these groups with at most base_n characters */
    uint32_t base_n;
    bool base_last; /* behind base_n of them no character of these groups can come */
    by_gr_term marked; /* the state whose mask is made: tokens that meet a MARK are tried on it */
} walker;

/* ---- absorption ---- */

/* Where a usual character beyond ASCII leads, for states that take hardly any other. */
static by_gr_term target_beyond_ascii(by_gr *g, by_gr_term t) {
    static const char *const samples[] = {"\xe4\xb8\x80", "\xd0\xb0", "\xc3\xa9", "\xe3\x81\x82", "\xea\xb0\x80"};
    const by_gr_row *row = by_gr_row_of(g, t);
    by_gr_term to = BY_GR_NEVER;
    if (row->n == 0 || row->r[row->n - 1].hi < 0xc2) return to;
    for (unsigned i = 0; i < sizeof samples / sizeof samples[0] && to == BY_GR_NEVER; i++)
        to = by_gr_next_bytes(g, t, by_str_z(samples[i]));
    return to;
}

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
    return best == BY_GR_NEVER ? target_beyond_ascii(g, t) : best;
}

#define ALL_MULTI ((((by_gv_sig)1 << BY_GV_N_MULTI) - 1) << BY_GV_MULTI)

/* Looks for characters beyond ASCII that do not lead from a state to `to`. */
typedef struct {
    by_gr *g;
    by_gr_term to;
    uint32_t no;           /* groups that have one */
    by_gr_term full[4];    /* by continuation bytes that are missing: a state from which all lead there */
} finder;

static bool is_full(finder *f, by_gr_term t, unsigned need) {
    if (need == 0) return t == f->to;
    if (t == BY_GR_NEVER) return false;
    if (f->full[need] == t) return true;
    const by_gr_row *row = by_gr_row_of(f->g, t);
    unsigned at = 0x80;
    for (unsigned i = 0; i < row->n && at <= 0xbf; i++) {
        if (row->r[i].hi < at) continue;
        if (row->r[i].lo > at || !is_full(f, row->r[i].to, need - 1)) return false;
        at = row->r[i].hi + 1u;
    }
    if (at > 0xbf) f->full[need] = t;
    return at > 0xbf;
}

static void find_misses(finder *f, by_gr_term t, unsigned need, uint32_t cp, unsigned lo, unsigned hi);

/* The bytes lo..hi, `need` more behind each, go to state t; cp: the bits before them. */
static void find_in_range(finder *f, by_gr_term t, unsigned need, uint32_t cp, unsigned lo, unsigned hi) {
    const by_grammar_vocab *v = f->g->vocab;
    uint32_t first = cp << 6 | (lo & 0x3f), last = cp << 6 | (hi & 0x3f);
    if (is_full(f, t, need)) return;
    if (need == 0 && last - first < 63) {
        for (uint32_t c = first; c <= last; c++)
            f->no |= 1u << (v->group_of[c] - BY_GV_MULTI);
    } else if (t == BY_GR_NEVER || need == 0)
        f->no |= by_gv_groups_in(v, first << 6 * need, ((last + 1) << 6 * need) - 1);
    else
        for (uint32_t c = first; c <= last; c++)
            find_misses(f, t, need - 1, c, 0x80, 0xbf);
}

/* The bytes lo..hi come in state t, `need` more behind each. */
static void find_misses(finder *f, by_gr_term t, unsigned need, uint32_t cp, unsigned lo, unsigned hi) {
    if (need == 0 && !(f->g->vocab->block_groups[cp] & ~f->no)) return; /* nothing new can be found */
    const by_gr_row *row = by_gr_row_of(f->g, t);
    unsigned at = lo;
    for (unsigned i = 0; i < row->n && at <= hi; i++) {
        unsigned from = row->r[i].lo, to = row->r[i].hi;
        if (to < at || from > hi) continue;
        if (from > at) find_in_range(f, BY_GR_NEVER, need, cp, at, from - 1);
        from = from > at ? from : at;
        to = to < hi ? to : hi;
        find_in_range(f, row->r[i].to, need, cp, from, to);
        at = to + 1;
    }
    if (at <= hi) find_in_range(f, BY_GR_NEVER, need, cp, at, hi);
}

/* Groups beyond ASCII all of whose characters lead from t to `to`. */
static by_gv_sig multi_step(by_gr *g, by_gr_term t, by_gr_term to) {
    static const struct {
        uint8_t lead_lo, lead_hi, need, lo, hi; /* leads whose second byte has one range */
    } rows[] = {{0xc2, 0xdf, 1, 0x80, 0xbf}, {0xe0, 0xe0, 2, 0xa0, 0xbf}, {0xe1, 0xec, 2, 0x80, 0xbf}, {0xed, 0xed, 2, 0x80, 0x9f},
                {0xee, 0xef, 2, 0x80, 0xbf}, {0xf0, 0xf0, 3, 0x90, 0xbf}, {0xf1, 0xf3, 3, 0x80, 0xbf}, {0xf4, 0xf4, 3, 0x80, 0x8f}};
    const uint32_t all = (1u << BY_GV_N_MULTI) - 1;
    finder f = {.g = g, .to = to};
    const by_gr_row *row = by_gr_row_of(g, t);
    if (row->n == 0 || row->r[row->n - 1].hi < 0xc2) return 0;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0] && f.no != all; i++)
        for (unsigned b = rows[i].lead_lo; b <= rows[i].lead_hi; b++) {
            by_gr_term s = by_gr_row_get(row, b);
            uint32_t cp = b & (0x3fu >> rows[i].need), first = cp << 6 | (rows[i].lo & 0x3fu), last = cp << 6 | (rows[i].hi & 0x3fu);
            unsigned shift = 6 * (rows[i].need - 1u);
            if (s == BY_GR_NEVER) f.no |= by_gv_groups_in(g->vocab, first << shift, ((last + 1) << shift) - 1);
            else if (rows[i].lo > 0x80 || rows[i].hi < 0xbf || !is_full(&f, s, rows[i].need))
                find_misses(&f, s, rows[i].need - 1u, cp, rows[i].lo, rows[i].hi);
        }
    return (by_gv_sig)(all & ~f.no) << BY_GV_MULTI;
}

/* The same for a set of single characters, remembered: counted sets come again in every state of a run. */
static by_gv_sig set_multi(by_gr *g, by_gr_term set) {
    unsigned k = (set ^ set >> 6) & (BY_GR_SET_SLOTS - 1);
    if (g->set_of[k] != set) {
        by_gv_sig groups = multi_step(g, set, BY_GR_EPS);
        if (by_gr_bad(g)) return 0; /* rows were missing: nothing to remember */
        g->set_multi[k] = groups;
        g->set_of[k] = set;
    }
    return g->set_multi[k];
}

/* Multi-byte groups whose characters lead a text language to where the byte b leads it, by its form alone: rows of all the states
 * inside the characters are not made. False: its form does not say. */
static bool like_byte(by_gr *g, by_gr_term t, uint8_t b, by_gv_sig *groups) {
    by_gr_node n = g->nodes[t];
    by_gv_sig x;
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

/* Groups of ASCII whose characters lead from a state to `to`. */
static by_gv_sig ascii_step(const by_gr_row *row, by_gr_term to) {
    by_gv_sig yes = 0;
    uint32_t low = 0; /* bytes below the blank */
    for (unsigned i = 0; i < row->n && row->r[i].lo < 0x80; i++) {
        unsigned lo = row->r[i].lo, hi = row->r[i].hi < 0x7f ? row->r[i].hi : 0x7f;
        if (row->r[i].to != to) continue;
        for (; lo <= hi && lo < 0x20; lo++)
            low |= 1u << lo;
        if (hi == 0x7f) yes |= (by_gv_sig)1 << by_gv_group(0x7f), hi--;
        if (lo <= hi) yes |= (((by_gv_sig)1 << (hi - lo + 1)) - 1) << (lo - 0x20);
    }
    if (!low) return yes;
    for (unsigned b = 9; b < 14; b += b == 9 ? 1 : 3) /* tab, line feed, carriage return */
        if (low >> b & 1) yes |= (by_gv_sig)1 << by_gv_group(b);
    return (low | 0x2600) == UINT32_MAX ? yes | (by_gv_sig)1 << by_gv_group(0) : yes;
}

/* Groups all of whose characters lead from t to `to`. */
static by_gv_sig step_sig(by_gr *g, by_gr_term t, by_gr_term to) {
    const by_gr_row *row = by_gr_row_of(g, t);
    by_gv_sig some = ascii_step(row, to), above;
    if (!some) return multi_step(g, t, to);
    uint8_t b = 0x20;
    while (b < 0x7f && by_gr_row_get(row, b) != to) b++;
    by_gr_node n = g->nodes[t];
    if (n.kind == BY_GR_K_JSTR && b < 0x7f && b != '\\' && like_byte(g, n.a, b, &above)) return some | above;
    return some | multi_step(g, t, to);
}

typedef struct {
    by_gv_sig sig; /* any n characters of these groups are taken, and more can follow */
    uint32_t n;   /* FOREVER: any number */
    bool ended;   /* no longer run exists */
    bool last;    /* behind the n characters no other of these groups can come */
    by_gv_sig dead; /* groups that are refused in front of each of the n characters, and with `last` behind them */
} run;
#define FOREVER 255u

static run find_run(by_gr *g, by_gr_term t, uint32_t want, bool inner);

static int count(by_gv_sig s) { return __builtin_popcountll((uint64_t)s) + __builtin_popcountll((uint64_t)(s >> 64)); }

/* Can no character of the groups come in state t? */
static bool refuses(by_gr *g, by_gr_term t, by_gv_sig sig) {
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n; i++)
        for (unsigned b = row->r[i].lo; b <= row->r[i].hi; b++)
            if (b >= 0x80 || sig >> g->vocab->group[b] & 1) return false;
    return true;
}

/* Groups none of whose characters can come in state t. */
static by_gv_sig dead_groups(by_gr *g, by_gr_term t) {
    const by_gr_row *row = by_gr_row_of(g, t);
    by_gv_sig live = 0;
    for (unsigned i = 0; i < row->n && row->r[i].lo < 0x80; i++) {
        unsigned lo = row->r[i].lo, hi = row->r[i].hi < 0x7f ? row->r[i].hi : 0x7f;
        for (; lo <= hi && lo < 0x20; lo++)
            live |= (by_gv_sig)1 << by_gv_group(lo);
        if (hi == 0x7f) live |= (by_gv_sig)1 << by_gv_group(0x7f), hi--;
        if (lo <= hi) live |= (((by_gv_sig)1 << (hi - lo + 1)) - 1) << (lo - 0x20);
    }
    if (row->n && row->r[row->n - 1].hi >= 0x80) live |= ALL_MULTI;
    return ~live & ~BY_GV_BAD;
}

/* A state that counts goes on to another one for every character of a group; the run is as long as that repeats. inner: something
 * follows t, or the places where t may end are looked for: the run ends before the first of them. */
static run follow(by_gr *g, by_gr_term t, uint32_t want, bool inner) {
    const run none = {.ended = true};
    by_gr_term to = common_target(g, t);
    if (to == t) return (run){step_sig(g, t, t), FOREVER, true, false, dead_groups(g, t)};
    if (to == BY_GR_NEVER || g->nodes[to].flags & BY_GR_F_UNIQ || (inner && by_gr_nullable(g, to))) return none;
    if (g->nodes[to].kind == BY_GR_K_MARK || g->nodes[to].kind == BY_GR_K_CLOSE) return none;
    by_gv_sig sig = step_sig(g, t, to);
    if (!sig) return none;
    by_gv_sig dead = dead_groups(g, t);
    if (to == BY_GR_EPS) return (run){sig, 1, true, true, dead};
    if (want <= 1) return (run){sig, 1, false, false, dead};
    run rest = find_run(g, to, want - 1, inner);
    by_gv_sig both = sig & rest.sig;
    if (!rest.n || count(both) * 2 < count(sig)) {
        bool last = refuses(g, to, sig);
        return (run){sig, 1, true, last, last ? dead & dead_groups(g, to) : dead};
    }
    return (run){both, rest.n == FOREVER ? FOREVER : rest.n + 1, rest.ended, rest.last, dead & rest.dead};
}

/* Is the run of a state known? */
static bool knows_run(const by_gr *g, by_gr_term t, bool inner) {
    if (g->nodes[t].kind == BY_GR_K_SEQ && !by_gr_nullable(g, g->nodes[t].a)) t = g->nodes[t].a, inner = true;
    return g->absorb_of[(t ^ t >> 9 ^ inner) & (BY_GR_ABSORB_SLOTS - 1)] == (t << 1 | inner);
}

/* The run of a state, remembered; at least `want` characters are looked at. A sequence whose head cannot be empty runs as its head
 * does. */
static run find_run(by_gr *g, by_gr_term t, uint32_t want, bool inner) {
    if (g->nodes[t].kind == BY_GR_K_SEQ && !by_gr_nullable(g, g->nodes[t].a)) t = g->nodes[t].a, inner = true;
    unsigned k = (t ^ t >> 9 ^ inner) & (BY_GR_ABSORB_SLOTS - 1);
    uint32_t key = t << 1 | inner;
    if (g->absorb_of[k] != key || (!g->absorb_ended[k] && g->absorb_n[k] < want)) {
        run r = follow(g, t, want, inner);
        if (by_gr_bad(g)) return (run){.ended = true}; /* rows were missing: nothing to remember */
        g->absorb_of[k] = key;
        g->absorb_sig[k] = r.sig;
        g->absorb_n[k] = (uint8_t)r.n;
        g->absorb_ended[k] = r.ended;
        g->absorb_last[k] = r.last;
        g->absorb_dead[k] = r.dead;
    }
    return (run){g->absorb_sig[k], g->absorb_n[k], g->absorb_ended[k], g->absorb_last[k], g->absorb_dead[k]};
}

/* ---- the walk ---- */

static void take_subtree(walker *w, const by_gv_node *n) {
    for (uint32_t i = n->tok_lo; i < n->tok_hi; i++)
        by_gr_tokens_add(w->out, w->v->order[i]);
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

/* Where the children of some bytes lead, and what is known of that state. */
typedef struct {
    by_gr_term t;
    bool nullable; /* heads: every child is an exit */
    bool is_mark;  /* the token must be tried */
    bool has_run;  /* run is known */
    run run;
} target;

static target target_of(walker *w, by_gr_term t) {
    return (target){.t = t, .nullable = w->record && by_gr_nullable(w->g, t), .is_mark = w->g->nodes[t].kind == BY_GR_K_MARK};
}

/* One child reached in a state that is not among distinct items (resolve). */
static inline void visit(walker *w, uint32_t child, target *to, bool pure) {
    const by_gv_node *n = &w->v->nodes[child];
    if (n->tok && (!to->is_mark || by_gr_step_bytes(w->g, w->marked, w->v->bytes[n->tok - 1])))
        by_gr_tokens_add(w->out, n->tok - 1);
    if (to->nullable) by_gr_vec_push(w->g, &w->exits, child);
    if (n->n_child == 0 || to->t == BY_GR_EPS) return;
    if (pure) /* a character that loops although its group as a whole does not is not in the base set */
        pure = n->chars <= w->base_n && (n->group == BY_GV_INSIDE || w->base_sig >> n->group & 1);
    by_gv_sig sig = w->v->node_sig[child];
    if (!to->nullable && !to->is_mark && !(sig & BY_GV_BAD)) {
        if (pure && !(sig & ~(w->base_sig | w->base_dead)) && (w->base_n == FOREVER || w->base_last || n->chars + n->below <= w->base_n)) return;
        /* a run makes states; a small subtree makes fewer */
        bool worth = n->tok_hi - n->tok_lo >= WORTH_A_RUN || (!to->has_run && knows_run(w->g, to->t, w->record));
        if (worth && (!to->has_run || (!to->run.ended && to->run.n < n->below && to->run.n < BY_GV_FIT_MAX))) {
            to->run = find_run(w->g, to->t, n->below < BY_GV_FIT_MAX ? n->below : BY_GV_FIT_MAX, w->record);
            to->has_run = true;
        }
        if (to->has_run && to->run.sig && !(sig & ~to->run.sig) && (to->run.n == FOREVER || n->below <= to->run.n)) {
            take_subtree(w, n);
            return;
        }
    }
    __builtin_prefetch(
        &w->v->nodes[n->first]); /* the trie is larger than the caches; the stack is last in, first out */
    __builtin_prefetch(&w->v->byte[n->first]);
    w->stack.v[w->stack.n] = child | (pure ? PURE : 0); /* walk() made room for all children */
    w->stack.v[w->stack.n + 1] = to->t;
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

/* The children of c..end whose bytes are in a range; returns the first one behind them. */
static uint32_t visit_range(walker *w, uint32_t c, uint32_t end, const by_gr_range *r, bool pure) {
    const by_grammar_vocab *v = w->v;
    if (v->byte[c] < r->lo && end - c > 8) c = lower_bound(v->byte, c, end, r->lo);
    while (c < end && v->byte[c] < r->lo)
        c++;
    if (c == end || v->byte[c] > r->hi) return c;
    if (w->g->nodes[r->to].flags & BY_GR_F_UNIQ) {
        for (; c < end && v->byte[c] <= r->hi; c++) {
            target one = target_of(w, resolve(w, &v->nodes[c], r->to));
            if (one.t != BY_GR_NEVER) visit(w, c, &one, pure);
        }
        return c;
    }
    target to = target_of(w, r->to);
    for (; c < end && v->byte[c] <= r->hi; c++)
        visit(w, c, &to, pure);
    return c;
}

/* States inside an A-label of a host name: there each text is a state, so its tokens are found without making states. A union
 * with such a state is taken apart. False: t is none. */
static bool walk_alabel(walker *w, uint32_t node, by_gr_term t) {
    by_gr *g = w->g;
    if (by_gr_alabel_split(g, t, node, &w->stack)) return true;
    if (!by_gr_is_alabel(g, t)) return false;
    by_gr_term tail = g->nodes[t].kind == BY_GR_K_SEQ ? g->nodes[t].b : BY_GR_EPS;
    by_gr_vec ends = {0};
    by_gr_alabel_tokens(g, t, node, w->out, &ends);
    for (uint32_t i = 0; i < ends.n; i += 2) {
        by_gr_vec_push(g, &w->stack, ends.v[i]);
        by_gr_vec_push(g, &w->stack, by_gr_seq(g, by_gr_jstr(g, ends.v[i + 1], BY_GR_STYLE_PLAIN), tail));
    }
    by_gr_vec_free(&ends);
    return true;
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
        const by_gv_node *n = &v->nodes[at & ~PURE];
        if (g->host && walk_alabel(w, at & ~PURE, s)) continue;
        const by_gr_row *row = by_gr_row_of(g, s);
        uint32_t c = n->first, end = c + n->n_child;
        if (n->n_child == 0 || row->n == 0) continue;
        if (!by_gr_grow(g, &w->stack.v, w->stack.n + 2u * n->n_child, &w->stack.cap, sizeof *w->stack.v)) break;
        for (unsigned i = 0; i < row->n && c < end; i++)
            c = visit_range(w, c, end, &row->r[i], at & PURE);
    }
    w->stack.n = base;
}

static void or_mask(walker *w, by_gr_term t);

static void walk_root(walker *w, by_gr_term t) {
    run r = {0};
    bool alabel = w->g->host && by_gr_is_alabel(w->g, t);
    if (!alabel && (!w->record || !by_gr_nullable(w->g, t))) r = find_run(w->g, t, BY_GV_FIT_MAX, w->record);
    bool no_memory = false;
    if (by_gr_bad(w->g)) return;
    const uint32_t *base = r.sig && r.n >= RUN_MIN ? by_gv_base(w->v, r.sig, r.n == FOREVER ? BY_GV_ANY_LENGTH : r.n, &no_memory) : NULL;
    if (no_memory) by_gr_fail(w->g, BY_ENOMEM, "grammar: out of memory");
    w->base_sig = r.sig;
    w->base_dead = r.dead;
    w->base_n = r.n == FOREVER || r.n < BY_GV_FIT_MAX ? r.n : BY_GV_FIT_MAX;
    w->base_last = r.last && r.n <= BY_GV_FIT_MAX;
    if (base) by_gr_tokens_add_set(w->out, base);
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

void by_gr_masks_flush(by_gr *g) {
    for (uint32_t i = 0; i < g->masks_cap; i++) {
        by_gr_mask_free(g->masks[i]);
        by_gr_mask_free(g->heads[i]);
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
    if (by_gr_bad(g)) { /* texts were refused because rows were missing */
        by_free(m);
        by_free(exits);
        by_free(open);
        return NULL;
    }
    m->base[0] = bits;
    m->n_base = 1;
    m->exits = exits;
    m->open = open;
    m->bytes = sizeof *m + (size_t)v->n_exits * 5;
    return m;
}

static by_gr_mask *head_walked(walker *w, by_gr_term t) {
    by_gr *g = w->g;
    walker in = {.g = g, .v = w->v, .out = by_gr_tokens_begin(g, 1), .record = true, .marked = w->marked};
    if (in.out) walk_root(&in, t);
    by_gr_vec_free(&in.stack);
    by_gr_mask *m = by_gr_bad(g) ? NULL : by_gr_tokens_keep(g, in.out);
    if (!m) {
        by_gr_vec_free(&in.exits);
        return NULL;
    }
    m->exits = in.exits.v;
    m->n_exits = in.exits.n;
    m->bytes += (size_t)in.exits.cap * 4;
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
    if (!m || !s) return by_gr_mask_free(m), NULL;
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
            if (m->open[v->items[i].exit >> 6] >> (v->items[i].exit & 63) & 1) by_gr_tokens_add(w->out, v->items[i].tok);
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
    by_gr_tokens_add_mask(w->out, m);
    if (m->open && !w->record && !(w->g->nodes[w->marked].flags & BY_GR_F_UNIQ)) {
        or_tails(w, m, tail);
        return;
    }
    for (uint32_t i = 0; i < m->n_exits && !by_gr_bad(w->g); i++) {
        const by_gv_node *n = &w->v->nodes[m->exits[i]];
        if (m->open && n->tok) by_gr_tokens_add(w->out, n->tok - 1);
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
    if (ok) by_gr_tokens_add_set(w->out, w->v->body_plain);
    for (uint32_t i = 0; i < h.x && ok && !by_gr_bad(g); i++) {
        by_gr_node m = g->nodes[g->lists.v[h.a + i]];
        by_gr_mask *exits = head_plain(g, m.a, w->v->body_plain, 0, BY_GR_INF, true);
        if (exits) or_tails(w, exits, by_gr_seq(g, m.b, rest));
        by_gr_mask_free(exits);
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

static void or_token_leaves(by_gr *g, by_gr_term t, by_gr_tokens *out) {
    if (g->host && by_gr_is_alabel(g, t)) return;
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n_tok; i++) {
        const by_gr_tokset *s = &g->toksets[row->tok[i].set];
        if (!s->negate) {
            for (uint32_t k = 0; k < s->n; k++)
                if (s->ids[k] < g->vocab->n && s->ids[k] != g->vocab->eos) by_gr_tokens_add(out, s->ids[k]);
            continue;
        }
        for (uint32_t id = 0; id < g->vocab->n; id++)
            if (g->vocab->bytes[id].len && by_gr_tokset_has(g, row->tok[i].set, id)) by_gr_tokens_add(out, id);
    }
}

const by_gr_mask *by_gr_mask_of(by_gr *g, by_gr_term t) {
    if (t < g->masks_cap && g->masks[t]) return g->masks[t];
    if (g->mask_bytes > MASK_BYTES_MAX) by_gr_masks_flush(g);
    walker w = {.g = g, .v = g->vocab, .out = by_gr_tokens_begin(g, 0), .stack = g->walk_stack, .marked = t};
    if (!w.out) return NULL;
    or_mask(&w, t);
    g->walk_stack = w.stack;
    or_token_leaves(g, t, w.out);
    if (by_gr_nullable(g, t)) by_gr_tokens_add(w.out, g->vocab->eos);
    by_gr_mask *m = by_gr_bad(g) ? NULL : by_gr_tokens_keep(g, w.out);
    by_gr_mask **s = m ? slot(g, &g->masks, t) : NULL;
    if (!s) return by_gr_mask_free(m), NULL;
    g->mask_bytes += m->bytes;
    return *s = m;
}

/* ---- closing in time ---- */

static void set_bit(uint32_t *bits, uint32_t id) {
    bits[id >> 5] |= 1u << (id & 31);
}

void by_gr_mask_closing(by_gr *g, by_gr_term t, uint32_t room, uint32_t *words) {
    const by_grammar_vocab *v = g->vocab;
    by_gr_vec stack = {0};
    memset(words, 0, (size_t)v->words * 4);
    by_gr_vec_push(g, &stack, 0);
    by_gr_vec_push(g, &stack, t);
    while (stack.n && !by_gr_bad(g)) {
        by_gr_term s = stack.v[--stack.n];
        uint32_t at = stack.v[--stack.n];
        const by_gv_node *n = &v->nodes[at];
        if (g->host && by_gr_alabel_split(g, s, at, &stack)) continue;
        int only = g->host && by_gr_is_alabel(g, s) ? by_gr_alabel_hint(g, s) : -1; /* elsewhere there are too many states */
        for (uint32_t c = n->first; c < n->first + n->n_child; c++) {
            if (only >= 0 && v->byte[c] != only) continue;
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
