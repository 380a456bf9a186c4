/* grammar_object.c - JSON objects: which key may come next, and when the object may close.
 *
 * A definition holds the declared keys in order, each with its value; the state of an object in progress is a few
 * numbers: the index of the next declared key (or, in any order, the set of keys seen), the number of members where a
 * bound counts them, and which "some member" conditions are met. Optional members therefore never multiply states.
 * Keys of which only conditions speak (an "if", dependencies) have no place in the order: they may stand anywhere, and
 * the state says which of them were there.
 * OBJ terms stand behind "{" (x = 0) or behind a value (x = 1); a KEY term is inside a declared key. */
#include <stdlib.h>

#include "grammar/grammar_schema.h"

#define KEYS_MAX           100000u
#define KEYS_ANY_ORDER_MAX 4096u
#define EXISTS_MAX         8u
#define EXTRA_MAX          64u
#define LATE_MAX           20u /* bits of a state; more keep the order of appearance */

typedef struct {
    by_gr_term keys; /* text of the key */
    by_gr_expr val;
    uint8_t hits; /* bit i: the group can meet exist i (its keys are then cut in two) */
} extra_group;

struct by_gr_objdef {
    by_gr_orec *rec;
    uint32_t n;
    uint32_t n_ord; /* keys before this index come in order, those behind it anywhere (none of them in any_order) */
    uint32_t late_req, late_ok; /* bit i: key n_ord + i is required, has a value */
    by_str *keys;
    by_gr_expr *vals;
    uint8_t *req, *ok, *hits;
    uint32_t *next_req; /* [n_ord + 1]: index of the first required key at or behind i */
    uint32_t *n_req_at; /* [n_ord + 1]: required keys at or behind i */
    uint32_t *n_ok_at;
    uint32_t *next_gap; /* [n_ord + 1]: first place at or behind i where undeclared keys may stand: the end, and behind the keys of
                           each member of an allOf, whose own order this is */
    uint32_t trie;
    extra_group extras[EXTRA_MAX];
    uint32_t n_extra;
    bool open; /* some extra group has a value */
    bool counts;
    bool finished;
    uint64_t **sets; /* any order: interned sets of seen keys */
    uint32_t n_sets, cap_sets, set_words;
};

typedef struct {
    uint32_t at;  /* next index; any order: index of the set */
    uint32_t n;   /* members so far, when counted */
    uint32_t met; /* bits of the exists met */
    uint32_t late; /* bits of the late keys seen */
} state;

static const by_gr_exist *exist(const by_gr_objdef *d, uint32_t i) {
    return &d->rec->exist[i];
}

/* ---- definition ---- */

typedef struct {
    uint32_t *slot, cap; /* 1 + key */
} key_hash;

static void add_keys(by_gr_objdef *d, key_hash *h, const by_str *keys, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 2166136261u;
        for (size_t k = 0; k < keys[i].len; k++)
            at = (at ^ (uint8_t)keys[i].ptr[k]) * 16777619u;
        at &= h->cap - 1;
        while (h->slot[at] && !by_str_eq(d->keys[h->slot[at] - 1], keys[i]))
            at = (at + 1) & (h->cap - 1);
        if (h->slot[at]) continue;
        d->keys[d->n++] = keys[i];
        h->slot[at] = d->n;
    }
}

/* The keys in the order in which they may come, and the places where undeclared ones may stand. */
static void order_keys(const by_gr *g, by_gr_objdef *d, key_hash *h) {
    const by_gr_orec *r = d->rec;
    for (uint32_t s = 0; s < r->n_scopes; s++) {
        if (r->scopes[s]->late) continue;
        add_keys(d, h, r->scopes[s]->keys, r->scopes[s]->n);
        if (s + 1 < r->n_scopes) d->next_gap[d->n] = 1;
    }
    uint32_t declared = d->n;
    for (uint32_t s = 0; s < r->n_scopes; s++) /* a required key of which only a condition speaks is late, too */
        if (r->scopes[s]->late) add_keys(d, h, r->scopes[s]->keys, r->scopes[s]->n);
    uint32_t n_late = d->n - declared;
    add_keys(d, h, r->req, r->n_req);
    if (n_late > LATE_MAX || g->opts.any_order) {
        d->n_ord = d->n;
    } else { /* required ones stand before late ones */
        by_str late[LATE_MAX];
        if (n_late) memcpy(late, d->keys + declared, n_late * sizeof *late);
        memmove(d->keys + declared, d->keys + declared + n_late, (d->n - declared - n_late) * sizeof *late);
        d->n_ord = d->n - n_late;
        if (n_late) memcpy(d->keys + d->n_ord, late, n_late * sizeof *late);
    }
    d->next_gap[d->n_ord] = d->n_ord;
    for (uint32_t i = d->n_ord; i-- > 0;)
        d->next_gap[i] = d->next_gap[i] ? i : d->next_gap[i + 1];
}

static bool collect_keys(by_gr *g, by_gr_objdef *d) {
    const by_gr_orec *r = d->rec;
    uint32_t most = r->n_req;
    for (uint32_t i = 0; i < r->n_scopes; i++)
        most += r->scopes[i]->n;
    if (most > KEYS_MAX) return by_gr_fail(g, BY_ELIMIT, "schema: more than %u keys in one object", KEYS_MAX), false;
    d->keys = by_gr_alloc(g, (most + 1) * sizeof *d->keys);
    d->next_gap = by_gr_alloc(g, (most + 1) * sizeof *d->next_gap);
    key_hash h = {.cap = 16};
    while (h.cap < most * 2 + 2)
        h.cap *= 2;
    h.slot = by_alloc_zero(BY_MEM_GRAMMAR, h.cap * sizeof *h.slot);
    if (!d->keys || !d->next_gap || !h.slot) {
        by_free(h.slot);
        return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
    }
    order_keys(g, d, &h);
    by_free(h.slot);
    d->vals = by_gr_alloc(g, (d->n + 1) * sizeof *d->vals);
    d->req = by_gr_alloc(g, d->n + 1);
    d->ok = by_gr_alloc(g, d->n + 1);
    d->hits = by_gr_alloc(g, d->n + 1);
    d->next_req = by_gr_alloc(g, (d->n + 1) * sizeof *d->next_req);
    d->n_req_at = by_gr_alloc(g, (d->n + 1) * sizeof *d->n_req_at);
    d->n_ok_at = by_gr_alloc(g, (d->n + 1) * sizeof *d->n_ok_at);
    return !by_gr_bad(g);
}

/* Keys that are not declared fall into groups by the patterns they match; each group has one value. */
static bool split_extras(by_gr *g, by_gr_objdef *d) {
    const by_gr_orec *r = d->rec;
    by_gr_term all = by_gr_and2(g, by_gr_except(g, d->keys, d->n), r->names);
    by_gr_expr vals[EXTRA_MAX][2]; /* conjunction so far; whether a pattern of the present scope matched */
    d->extras[0] = (extra_group){all, BY_GR_X_TRUE, 0};
    d->n_extra = all != BY_GR_NEVER;
    for (uint32_t s = 0; s < r->n_scopes && !by_gr_bad(g); s++) {
        const by_gr_scope *sc = r->scopes[s];
        for (uint32_t k = 0; k < d->n_extra; k++)
            vals[k][0] = d->extras[k].val, vals[k][1] = 0;
        for (uint32_t p = 0; p < sc->n_pat; p++) {
            uint32_t n = d->n_extra;
            for (uint32_t k = 0; k < n && !by_gr_bad(g); k++) {
                by_gr_term in = by_gr_and2(g, d->extras[k].keys, sc->pats[p].keys);
                if (in == BY_GR_NEVER) continue;
                by_gr_term out = by_gr_and2(g, d->extras[k].keys, by_gr_text_not(g, sc->pats[p].keys));
                by_gr_expr pair[2] = {vals[k][0], sc->pats[p].val};
                if (out != BY_GR_NEVER) {
                    if (d->n_extra == EXTRA_MAX)
                        return by_gr_fail(g, BY_EUNSUPPORTED, "more than %u combinations of key patterns", EXTRA_MAX),
                               false;
                    d->extras[d->n_extra].keys = out;
                    vals[d->n_extra][0] = vals[k][0];
                    vals[d->n_extra++][1] = vals[k][1];
                }
                d->extras[k].keys = in;
                vals[k][0] = by_gr_x_and(g, pair, 2);
                vals[k][1] = 1;
            }
        }
        for (uint32_t k = 0; k < d->n_extra; k++) {
            by_gr_expr pair[2] = {vals[k][0], sc->rest};
            d->extras[k].val = vals[k][1] ? vals[k][0] : by_gr_x_and(g, pair, 2);
        }
    }
    uint32_t k = 0; /* groups with one value are one group */
    for (uint32_t i = 0; i < d->n_extra; i++) {
        uint32_t j = 0;
        while (j < k && d->extras[j].val != d->extras[i].val)
            j++;
        if (d->extras[i].val == BY_GR_X_FALSE) continue;
        if (j < k)
            d->extras[j].keys = by_gr_alt2(g, d->extras[j].keys, d->extras[i].keys);
        else
            d->extras[k++] = d->extras[i];
    }
    d->n_extra = k;
    return !by_gr_bad(g);
}

uint32_t by_gr_objdef_new(by_gr *g, by_gr_orec *r) {
    by_gr_objdef *d = by_gr_alloc(g, sizeof *d);
    if (!d || !by_gr_grow(g, &g->objdefs, g->n_objdefs, &g->cap_objdefs, sizeof *g->objdefs)) return 0;
    d->rec = r;
    if (r->n_exist > EXISTS_MAX) {
        by_gr_fail(g, BY_EUNSUPPORTED, "more than %u conditions on some member", EXISTS_MAX);
        return 0;
    }
    if (!collect_keys(g, d) || !split_extras(g, d)) return 0;
    if (g->opts.any_order && d->n > KEYS_ANY_ORDER_MAX) {
        by_gr_fail(g, BY_ELIMIT, "schema: more than %u keys in any order", KEYS_ANY_ORDER_MAX);
        return 0;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        d->vals[i] = by_gr_orec_value(g, r, d->keys[i]);
        for (uint32_t k = 0; k < r->n_req; k++)
            d->req[i] |= by_str_eq(r->req[k], d->keys[i]);
        for (uint32_t k = 0; k < r->n_exist; k++)
            if (by_gr_accepts(g, exist(d, k)->keys, d->keys[i])) d->hits[i] |= (uint8_t)(1u << k);
    }
    for (uint32_t i = 0; i < d->n_extra; i++)
        for (uint32_t k = 0; k < r->n_exist; k++)
            if (by_gr_and2(g, d->extras[i].keys, exist(d, k)->keys) != BY_GR_NEVER)
                d->extras[i].hits |= (uint8_t)(1u << k);
    if (by_gr_bad(g)) return 0;
    g->objdefs[g->n_objdefs++] = d;
    return g->n_objdefs;
}

/* The value of a member that meets all conditions of a set. */
static by_gr_expr meet_exists(by_gr *g, const by_gr_objdef *d, by_gr_expr val, uint32_t set) {
    by_gr_expr v[EXISTS_MAX + 1] = {val};
    uint32_t n = 1;
    for (uint32_t k = 0; k < d->rec->n_exist; k++)
        if (set >> k & 1) v[n++] = exist(d, k)->val;
    return by_gr_x_and(g, v, n);
}

static by_gr_expr meet_exist(by_gr *g, const by_gr_objdef *d, by_gr_expr val, uint32_t k) {
    return meet_exists(g, d, val, 1u << k);
}

/* The next smaller non-empty part of a set, 0 behind the last. */
static uint32_t next_part(uint32_t part, uint32_t set) {
    return (part - 1) & set;
}

bool by_gr_objdef_each(by_gr *g, uint32_t def, by_gr_expr_fn *fn, void *user) {
    const by_gr_objdef *d = g->objdefs[def];
    for (uint32_t i = 0; i < d->n + d->n_extra; i++) {
        by_gr_expr val = i < d->n ? d->vals[i] : d->extras[i - d->n].val;
        uint32_t hits = i < d->n ? d->hits[i] : d->extras[i - d->n].hits;
        if (!fn(g, val, user)) return false;
        for (uint32_t set = hits; set && by_gr_check(g); set = next_part(set, hits))
            if (!fn(g, meet_exists(g, d, val, set), user)) return false;
    }
    return !by_gr_bad(g);
}

bool by_gr_objdef_productive(by_gr *g, uint32_t def) {
    const by_gr_objdef *d = g->objdefs[def];
    uint32_t n_ok = 0, n_req = 0, met = 0;
    bool open = false;
    for (uint32_t i = 0; i < d->n; i++) {
        bool ok = by_gr_expr_prod(g, d->vals[i]);
        if (d->req[i] && !ok) return false;
        n_ok += ok;
        n_req += d->req[i];
        for (uint32_t k = 0; k < d->rec->n_exist; k++)
            if (d->hits[i] >> k & 1 && by_gr_expr_prod(g, meet_exist(g, d, d->vals[i], k))) met |= 1u << k;
    }
    for (uint32_t i = 0; i < d->n_extra; i++) {
        open |= by_gr_expr_prod(g, d->extras[i].val);
        for (uint32_t k = 0; k < d->rec->n_exist; k++)
            if (d->extras[i].hits >> k & 1 && by_gr_expr_prod(g, meet_exist(g, d, d->extras[i].val, k))) met |= 1u << k;
    }
    return met + 1 == 1u << d->rec->n_exist && n_req <= d->rec->max && d->rec->min <= d->rec->max &&
           (open || n_ok >= d->rec->min) && (d->rec->n_exist == 0 || d->rec->max > 0);
}

/* Text of a key inside quotes, escaped as JSON needs. */
static bool encode_key(by_buf *b, by_str key) {
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < key.len; i++) {
        uint8_t c = (uint8_t)key.ptr[i];
        const char *p = c ? strchr("\"\\\b\f\n\r\t", c) : NULL;
        if (p) {
            char e[2] = {'\\', 0};
            e[1] = c == '"'    ? '"'
                   : c == '\\' ? '\\'
                   : c == '\b' ? 'b'
                   : c == '\f' ? 'f'
                   : c == '\n' ? 'n'
                   : c == '\r' ? 'r'
                               : 't';
            by_buf_push(b, e, 2);
        } else if (c < 0x20) {
            char e[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            by_buf_push(b, e, 6);
        } else
            by_buf_push_byte(b, (char)c);
    }
    return !b->failed;
}

static uint32_t key_trie(by_gr *g, by_gr_objdef *d) {
    by_buf b = {0};
    by_str *words = by_alloc(BY_MEM_GRAMMAR, (d->n + 1) * sizeof *words);
    size_t *at = by_alloc(BY_MEM_GRAMMAR, (d->n + 2) * sizeof *at);
    uint32_t t = UINT32_MAX;
    bool ok = words && at;
    for (uint32_t i = 0; ok && i < d->n; i++) {
        at[i] = b.len;
        ok = encode_key(&b, d->keys[i]);
        at[i + 1] = b.len;
    }
    for (uint32_t i = 0; ok && i < d->n; i++)
        words[i] = b.len ? by_str_of(b.ptr + at[i], at[i + 1] - at[i]) : by_str_of("", 0); /* no key has a byte */
    if (ok)
        t = by_gr_trie_new(g, words, d->n, true);
    else
        by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    by_free(words);
    by_free(at);
    by_buf_deinit(&b);
    return t;
}

void by_gr_objdef_finish(by_gr *g, uint32_t def) {
    by_gr_objdef *d = g->objdefs[def];
    if (d->finished || by_gr_bad(g)) return;
    d->finished = true;
    for (uint32_t i = 0; i < d->n; i++)
        d->ok[i] = by_gr_expr_prod(g, d->vals[i]);
    for (uint32_t i = d->n_ord; i < d->n; i++) {
        d->late_req |= (uint32_t)d->req[i] << (i - d->n_ord);
        d->late_ok |= (uint32_t)d->ok[i] << (i - d->n_ord);
    }
    d->next_req[d->n_ord] = d->n_ord;
    for (uint32_t i = d->n_ord; i-- > 0;) {
        d->next_req[i] = d->req[i] ? i : d->next_req[i + 1];
        d->n_req_at[i] = d->n_req_at[i + 1] + d->req[i];
        d->n_ok_at[i] = d->n_ok_at[i + 1] + d->ok[i];
    }
    for (uint32_t i = 0; i < d->n_extra; i++)
        d->open |= by_gr_expr_prod(g, d->extras[i].val);
    d->counts = d->rec->min || d->rec->max != BY_GR_INF;
    d->trie = key_trie(g, d);
    if (!g->opts.any_order) return;
    d->set_words = (d->n + 63) / 64 + 1;
    d->sets = by_gr_alloc(g, 1024 * sizeof *d->sets);
    d->cap_sets = 1024;
    if (d->sets && (d->sets[0] = by_gr_alloc(g, d->set_words * 8))) d->n_sets = 1;
}

/* ---- states ---- */

static by_gr_term make(by_gr *g, uint32_t def, state s, unsigned x) {
    const by_gr_objdef *d = g->objdefs[def];
    uint32_t top = d->rec->max != BY_GR_INF ? d->rec->max : d->rec->min;
    if (!d->counts)
        s.n = 0;
    else if (s.n > top)
        s.n = top;
    by_gr_term t = by_gr_node_make(g, BY_GR_K_TUPLE, 0, s.at, s.n, s.met | s.late << EXISTS_MAX, 0);
    return by_gr_node_make(g, BY_GR_K_OBJ, x, def, t, 0, 0);
}

static state state_of(const by_gr *g, by_gr_node n) {
    by_gr_node t = g->nodes[n.b];
    return (state){t.a, t.b, t.c & ((1u << EXISTS_MAX) - 1), t.c >> EXISTS_MAX};
}

by_gr_term by_gr_obj_start(by_gr *g, uint32_t def) {
    return by_gr_seq(g, by_gr_lit(g, BY_STR("{")), make(g, def, (state){0}, 0));
}

_Static_assert(EXISTS_MAX + LATE_MAX <= 32, "both sets of a state share one number");

static bool seen(const by_gr_objdef *d, uint32_t set, uint32_t key) {
    return d->sets[set][key >> 6] >> (key & 63) & 1;
}

/* Can the key not come any more, because it was there or the keys behind it were? */
static bool passed(const by_gr *g, const by_gr_objdef *d, state s, uint32_t key) {
    if (g->opts.any_order) return seen(d, s.at, key);
    return key < d->n_ord ? key < s.at : s.late >> (key - d->n_ord) & 1;
}

/* The set with one key more, interned. */
static uint32_t set_with(by_gr *g, by_gr_objdef *d, uint32_t set, uint32_t key) {
    uint64_t *v = by_gr_alloc(g, d->set_words * 8);
    if (!v) return 0;
    memcpy(v, d->sets[set], d->set_words * 8);
    v[key >> 6] |= 1ull << (key & 63);
    for (uint32_t i = d->n_sets; i-- > 0;)
        if (memcmp(d->sets[i], v, d->set_words * 8) == 0) return i;
    if (d->n_sets == d->cap_sets) {
        uint64_t **more = by_gr_alloc(g, 2 * d->cap_sets * sizeof *more);
        if (!more) return 0;
        memcpy(more, d->sets, d->cap_sets * sizeof *more);
        d->sets = more;
        d->cap_sets *= 2;
    }
    d->sets[d->n_sets] = v;
    return d->n_sets++;
}

static uint32_t open_required(const by_gr *g, const by_gr_objdef *d, state s) {
    if (!g->opts.any_order) return d->n_req_at[s.at] + (uint32_t)__builtin_popcount(d->late_req & ~s.late);
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++)
        n += d->req[i] && !seen(d, s.at, i);
    return n;
}

/* Can a state still be completed? s.n counts the members so far. */
static bool can_finish(by_gr *g, const by_gr_objdef *d, state s) {
    uint32_t req = open_required(g, d, s), have = d->counts ? s.n : 0;
    if (d->rec->max != BY_GR_INF && (have > d->rec->max || req > d->rec->max - have)) return false;
    uint32_t can = 0, met = s.met;
    if (g->opts.any_order)
        for (uint32_t i = 0; i < d->n; i++)
            can += d->ok[i] && !seen(d, s.at, i);
    else
        can = d->n_ok_at[s.at] + (uint32_t)__builtin_popcount(d->late_ok & ~s.late);
    if (d->counts && !d->open && have + can < d->rec->min) return false;
    for (uint32_t k = 0; k < d->rec->n_exist; k++) {
        if (met >> k & 1) continue;
        bool later = false;
        for (uint32_t i = g->opts.any_order ? 0 : s.at; i < d->n && !later; i++)
            later = !passed(g, d, s, i) && d->hits[i] >> k & 1 &&
                    by_gr_expr_prod(g, meet_exist(g, d, d->vals[i], k));
        for (uint32_t i = 0; i < d->n_extra && !later; i++)
            later = d->extras[i].hits >> k & 1 && by_gr_expr_prod(g, meet_exist(g, d, d->extras[i].val, k));
        if (!later || (d->rec->max != BY_GR_INF && have >= d->rec->max)) return false;
    }
    return true;
}

static state after_extra(const by_gr *g, const by_gr_objdef *d, state s) {
    if (!g->opts.any_order) s.at = d->next_gap[s.at];
    s.n++;
    return s;
}

static state after_key(by_gr *g, by_gr_objdef *d, state s, uint32_t key) {
    if (g->opts.any_order)
        s.at = set_with(g, d, s.at, key);
    else if (key < d->n_ord)
        s.at = key + 1;
    else
        s.late |= 1u << (key - d->n_ord);
    s.n++;
    return s;
}

/* Cheap part of "key may come now", then whether the object can be completed behind it. */
static bool may_key(by_gr *g, by_gr_objdef *d, state s, uint32_t key) {
    if (!d->ok[key] || passed(g, d, s, key)) return false;
    if (!g->opts.any_order && key < d->n_ord && key > d->next_req[s.at]) return false;
    if (!d->counts && !d->rec->n_exist) return true;
    if (d->counts && s.n >= d->rec->max) return false;
    state t = after_key(g, d, s, key);
    if (d->rec->n_exist) t.met |= d->hits[key]; /* at best */
    return can_finish(g, d, t);
}

static bool may_extra(by_gr *g, const by_gr_objdef *d, state s, uint32_t i) {
    if (!by_gr_expr_prod(g, d->extras[i].val)) return false;
    if (!g->opts.any_order && d->next_req[s.at] < d->next_gap[s.at]) return false;
    if (d->counts && s.n >= d->rec->max) return false;
    state t = after_extra(g, d, s);
    t.met |= d->extras[i].hits;
    return can_finish(g, d, t);
}

/* ws ":" ws value, and the rest of the object. hits: conditions that the key can meet; every set of them that the value
 * may meet is one more alternative. must: those that the value has to meet. */
static by_gr_term value_then(by_gr *g, uint32_t def, by_gr_expr val, unsigned hits, unsigned must, state s) {
    by_gr_objdef *d = g->objdefs[def];
    by_gr_vec v = {0};
    uint32_t may = hits & ~must & ~s.met;
    for (uint32_t part = may;; part = next_part(part, may)) {
        state t = s;
        t.met |= part | must;
        by_gr_expr e = meet_exists(g, d, val, part | must);
        if (can_finish(g, d, t) && by_gr_expr_prod(g, e))
            by_gr_vec_push(g, &v, by_gr_seq(g, by_gr_expr_term(g, e), make(g, def, t, 1)));
        if (!part || by_gr_bad(g)) break;
    }
    by_gr_term head[3] = {g->ws, by_gr_lit(g, BY_STR(":")), g->ws_behind};
    by_gr_term t = by_gr_seq(g, by_gr_seq_n(g, head, 3), by_gr_alt(g, v.v, v.n));
    by_gr_vec_free(&v);
    return t;
}

static bool node_open(by_gr *g, by_gr_objdef *d, state s, uint32_t node) {
    const by_gr_trie_node *n = &g->tries[d->trie].nodes[node];
    for (uint32_t i = 0; i < n->n_ids; i++)
        if (may_key(g, d, s, g->lists.v[g->tries[d->trie].nodes[node].ids + i])) return true;
    return false;
}

/* Undeclared keys of one group. Keys that can meet conditions are told apart: for each set of conditions those that
 * can meet all of it, with a value that does. */
static void extra_members(by_gr *g, uint32_t def, const extra_group *x, state s, by_gr_vec *v) {
    by_gr_objdef *d = g->objdefs[def];
    uint32_t may = x->hits & ~s.met;
    for (uint32_t part = may; !by_gr_bad(g); part = next_part(part, may)) {
        by_gr_term keys = x->keys;
        for (uint32_t k = 0; k < d->rec->n_exist; k++)
            if (part >> k & 1) keys = by_gr_and2(g, keys, exist(d, k)->keys);
        if (keys != BY_GR_NEVER)
            by_gr_vec_push(g, v, by_gr_seq(g, by_gr_jstr(g, keys, by_gr_string_style(g, keys)),
                                           value_then(g, def, x->val, part, part, s)));
        if (!part) break;
    }
}

/* What may come behind "{" or a comma. */
static by_gr_term member(by_gr *g, uint32_t def, state s, by_gr_term self) {
    by_gr_objdef *d = g->objdefs[def];
    by_gr_vec v = {0};
    if (node_open(g, d, s, 0)) by_gr_vec_push(g, &v, by_gr_node_make(g, BY_GR_K_KEY, 0, self, 0, 0, 0));
    for (uint32_t i = 0; i < d->n_extra && !by_gr_bad(g); i++)
        if (may_extra(g, d, s, i)) extra_members(g, def, &d->extras[i], after_extra(g, d, s), &v);
    by_gr_term t = by_gr_seq(g, by_gr_lit(g, BY_STR("\"")), by_gr_alt(g, v.v, v.n));
    by_gr_vec_free(&v);
    return t;
}

const by_gr_row *by_gr_row_obj(by_gr *g, by_gr_node n, by_gr_term self) {
    by_gr_objdef *d = g->objdefs[n.a];
    state s = state_of(g, n);
    by_gr_term more = member(g, n.a, s, self);
    if (n.x) more = by_gr_seq(g, by_gr_lit(g, BY_STR(",")), by_gr_seq(g, g->ws_behind, more));
    bool done = open_required(g, d, s) == 0 && (!d->counts || s.n >= d->rec->min) && s.met + 1 == 1u << d->rec->n_exist;
    by_gr_term body = by_gr_seq(g, g->ws, by_gr_alt2(g, more, done ? by_gr_lit(g, BY_STR("}")) : BY_GR_NEVER));
    return by_gr_row_of(g, body);
}

const by_gr_row *by_gr_row_key(by_gr *g, by_gr_node n) {
    by_gr_node o = g->nodes[n.a];
    by_gr_objdef *d = g->objdefs[o.a];
    state s = state_of(g, o);
    by_gr_range out[257];
    unsigned k = 0;
    uint32_t word = g->tries[d->trie].nodes[n.b].word;
    by_gr_term end = BY_GR_NEVER;
    if (word && may_key(g, d, s, word - 1))
        end = value_then(g, o.a, d->vals[word - 1], d->hits[word - 1], 0, after_key(g, d, s, word - 1));
    bool ended = false;
    for (uint32_t c = g->tries[d->trie].nodes[n.b].child; c; c = g->tries[d->trie].nodes[c].sibling) {
        uint8_t b = g->tries[d->trie].nodes[c].byte;
        if (!ended && b > '"') {
            ended = true;
            out[k++] = (by_gr_range){'"', '"', end};
        }
        if (node_open(g, d, s, c)) out[k++] = (by_gr_range){b, b, by_gr_node_make(g, BY_GR_K_KEY, 0, n.a, c, 0, 0)};
    }
    if (!ended) out[k++] = (by_gr_range){'"', '"', end};
    return by_gr_row_make(g, out, k, NULL, 0);
}

/* The first declared key that may come, d->n when there is none. */
static uint32_t first_key(by_gr *g, by_gr_objdef *d, state s) {
    uint32_t i = g->opts.any_order ? 0 : s.at;
    while (i < d->n && !may_key(g, d, s, i))
        i++;
    return i;
}

bool by_gr_obj_has_next(by_gr *g, by_gr_term obj) {
    by_gr_node o = g->nodes[obj];
    by_gr_objdef *d = g->objdefs[o.a];
    return first_key(g, d, state_of(g, o)) < d->n;
}

int by_gr_key_hint(by_gr *g, by_gr_term key) {
    by_gr_node n = g->nodes[key], o = g->nodes[n.a];
    by_gr_objdef *d = g->objdefs[o.a];
    uint32_t i = first_key(g, d, state_of(g, o)), node = 0;
    by_buf b = {0};
    int byte = -1;
    if (i == d->n) return -1;
    if (!encode_key(&b, d->keys[i])) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    for (size_t k = 0; k <= b.len && byte < 0 && !b.failed; k++) {
        if (node == n.b) byte = k < b.len ? (uint8_t)b.ptr[k] : '"';
        if (k == b.len) break;
        uint32_t c = g->tries[d->trie].nodes[node].child;
        while (c && g->tries[d->trie].nodes[c].byte != (uint8_t)b.ptr[k])
            c = g->tries[d->trie].nodes[c].sibling;
        if (!c) break;
        node = c;
    }
    by_buf_deinit(&b);
    return byte;
}

static uint32_t encoded_len(by_str key) {
    by_buf b = {0};
    uint32_t n = encode_key(&b, key) ? (uint32_t)b.len : 6 * (uint32_t)key.len;
    by_buf_deinit(&b);
    return n;
}

uint32_t by_gr_obj_min_bytes(by_gr *g, by_gr_node n) {
    by_gr_objdef *d = g->objdefs[n.a];
    state s = state_of(g, n);
    uint32_t sep = 4 + 2 * (by_gr_min_bytes(g, g->ws) + by_gr_min_bytes(g, g->ws_behind)), members = 0, cheap = 64;
    uint64_t total = 1 + by_gr_min_bytes(g, g->ws); /* parts may be "not known", which is large */
    for (uint32_t i = 0; i < d->n; i++) {
        if (passed(g, d, s, i) || !d->ok[i]) continue;
        uint32_t one = sep + encoded_len(d->keys[i]) + by_gr_min_bytes(g, by_gr_expr_term(g, d->vals[i]));
        if (d->req[i])
            total += one, members++;
        else if (one > cheap)
            cheap = one;
    }
    for (uint32_t i = 0; i < d->n_extra; i++) {
        uint32_t one = sep + 8 + by_gr_min_bytes(g, by_gr_expr_term(g, d->extras[i].val));
        if (by_gr_expr_prod(g, d->extras[i].val) && one > cheap) cheap = one;
    }
    uint32_t want = d->counts && d->rec->min > s.n + members ? d->rec->min - s.n - members : 0;
    for (uint32_t k = 0; k < d->rec->n_exist; k++)
        want += !(s.met >> k & 1);
    uint64_t sum = total + (uint64_t)want * cheap;
    return sum > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)sum;
}

/* ---- tool calls: the members as parameters of DeepSeek's markup ---- */

#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"
#define DSML_KEYS_MAX 500u

/* One parameter, its name given as a term. The string attribute is bound to the value: "true" holds raw text, "false"
 * JSON that is no string. */
static by_gr_term parameter(by_gr *g, by_gr_term name, by_gr_expr val) {
    const by_gr_norm *n = g->schema->x[val].norm;
    if (!n || !by_gr_expr_prod(g, val)) return BY_GR_NEVER;
    by_str end = BY_STR("</" DSML);
    by_gr_term raw = by_gr_alt2(g, n->str, n->lit), free = by_gr_free_text(g, &end, 1);
    by_gr_norm json = *n;
    json.str = json.lit = BY_GR_NEVER;
    by_gr_term text = by_gr_seq(g, by_gr_lit(g, BY_STR("\" string=\"true\">")),
                                raw == BY_GR_NEVER ? BY_GR_NEVER : by_gr_and2(g, raw, free));
    by_gr_term other = by_gr_seq(g, by_gr_lit(g, BY_STR("\" string=\"false\">")), by_gr_norm_term(g, &json));
    by_gr_term v[4] = {by_gr_lit_tokens(g, BY_STR("<" DSML " parameter name=\"")), name, by_gr_alt2(g, text, other),
                       by_gr_lit_tokens(g, BY_STR("</" DSML " parameter>"))};
    return by_gr_seq_n(g, v, 4);
}

by_gr_term by_gr_objdef_dsml(by_gr *g, uint32_t def) {
    const by_gr_objdef *d = g->objdefs[def];
    bool declared = false;
    if (d->n > DSML_KEYS_MAX) return by_gr_fail(g, BY_ELIMIT, "schema: more than %u parameters", DSML_KEYS_MAX);
    if ((d->counts || d->rec->n_exist) && !g->opts.lenient)
        return by_gr_fail(g, BY_EUNSUPPORTED,
                          "schema: counted parameters (minProperties, maxProperties, some member) in a tool");
    for (uint32_t i = 0; i < d->rec->n_scopes; i++)
        declared |= d->rec->scopes[i]->n > 0;
    by_gr_term line = by_gr_lit(g, BY_STR("\n")), extra = BY_GR_NEVER;
    for (uint32_t i = 0; i < d->n_extra;
         i++) { /* names beyond the declared ones only where the schema speaks of them */
        bool spoken = !declared || d->extras[i].val != BY_GR_X_TRUE;
        by_gr_cps plain = {0};
        by_gr_cps_add(g, &plain, 0x20, '!');
        by_gr_cps_add(g, &plain, '#', ';');
        by_gr_cps_add(g, &plain, '=', 0x10ffff);
        by_gr_term name = by_gr_and2(g, d->extras[i].keys, by_gr_rep(g, by_gr_cps_term(g, &plain), 1, BY_GR_INF));
        by_gr_cps_free(&plain);
        if (spoken && name != BY_GR_NEVER) extra = by_gr_alt2(g, extra, parameter(g, name, d->extras[i].val));
    }
    /* after[i]: what may follow once the keys before i are done; first: the same without the leading line end */
    by_gr_term *after = by_gr_alloc(g, (d->n + 1) * sizeof *after), *param = by_gr_alloc(g, (d->n + 1) * sizeof *param);
    if (!after || !param) return BY_GR_NEVER;
    after[d->n] = by_gr_star(g, by_gr_seq(g, line, extra));
    for (uint32_t i = d->n; i-- > 0 && !by_gr_bad(g);) {
        param[i] = by_gr_seq(g, parameter(g, by_gr_lit(g, d->keys[i]), d->vals[i]), after[i + 1]);
        by_gr_term here = by_gr_seq(g, line, param[i]);
        after[i] = d->req[i] ? here : by_gr_alt2(g, here, after[i + 1]);
    }
    by_gr_term first = by_gr_opt(g, by_gr_seq(g, extra, after[d->n]));
    for (uint32_t i = d->n; i-- > 0 && !by_gr_bad(g);)
        first = d->req[i] ? param[i] : by_gr_alt2(g, param[i], first);
    return first;
}
