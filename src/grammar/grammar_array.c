/* grammar_array.c - JSON arrays: items by index, counts, contains, and distinct items.
 *
 * ARR terms: a = definition, b = items so far (clamped to what can still matter), c = a tuple of the contains counters
 * and the list of distinct values seen, x = 1 behind an item. For distinct items the value in progress is captured byte
 * by byte in a UNIQ term; scalars that were seen are taken out of the next item's language, so no dead end arises; of
 * lists and objects an equal one is refused at its last byte. */
#include <stdlib.h>

#include "grammar/grammar_schema.h"

#define CONTAINS_MAX   4u /* two 16-bit counters fit in each of two numbers of a tuple */
#define COUNT_MAX      65000u
#define ITEM_EXPRS_MAX 4096u /* positions with an item condition of their own */

struct by_gr_arrdef {
    by_gr_arec *rec;
    uint32_t n;        /* positions with their own item: the last one stands for all later */
    by_gr_expr *items; /* [n + 1] */
    uint32_t clamp;    /* indexes from here on are alike */
    uint32_t max;      /* maximum number of items, productivity included */
    bool finished;
};

typedef struct {
    uint32_t idx;
    uint32_t count[CONTAINS_MAX];
    uint32_t seen; /* tuple list of values, 0 = none */
} state;

static by_gr_expr item_at(const by_gr_arrdef *d, uint32_t i) {
    return d->items[i < d->n ? i : d->n];
}

static by_gr_expr with(by_gr *g, by_gr_expr a, by_gr_expr b) {
    by_gr_expr pair[2] = {a, b};
    return by_gr_x_and(g, pair, 2);
}

/* Item condition when contains spec k is met (or, counted exactly, not met). */
static by_gr_expr variant(by_gr *g, const by_gr_arrdef *d, uint32_t i, unsigned met) {
    by_gr_expr e = item_at(d, i);
    for (uint32_t k = 0; k < d->rec->n_contains; k++) {
        const by_gr_contains *c = &d->rec->contains[k];
        if (met >> k & 1)
            e = with(g, e, c->val);
        else if (c->max != BY_GR_INF && i >= c->from)
            e = with(g, e, by_gr_x_not(g, c->val));
    }
    return e;
}

uint32_t by_gr_arrdef_new(by_gr *g, by_gr_arec *r) {
    by_gr_arrdef *d = by_gr_alloc(g, sizeof *d);
    if (!d || !by_gr_grow(g, &g->arrdefs, g->n_arrdefs, &g->cap_arrdefs, sizeof *g->arrdefs)) return 0;
    d->rec = r;
    if (r->n_contains > CONTAINS_MAX) {
        by_gr_fail(g, BY_EUNSUPPORTED, "more than %u contains conditions on one array", CONTAINS_MAX);
        return 0;
    }
    for (uint32_t i = 0; i < r->n_scopes; i++)
        if (r->scopes[i]->n > d->n) d->n = r->scopes[i]->n;
    for (uint32_t i = 0; i < r->n_contains; i++) {
        const by_gr_contains *c = &r->contains[i];
        if (c->from > d->n) d->n = c->from;
        if (c->min > COUNT_MAX || (c->max != BY_GR_INF && c->max > COUNT_MAX)) {
            by_gr_fail(g, BY_EUNSUPPORTED, "contains counted beyond %u", COUNT_MAX);
            return 0;
        }
    }
    if (d->n > ITEM_EXPRS_MAX) {
        by_gr_fail(g, BY_ELIMIT, "schema: more than %u prefixItems", ITEM_EXPRS_MAX);
        return 0;
    }
    d->items = by_gr_alloc(g, (d->n + 1) * sizeof *d->items);
    for (uint32_t i = 0; d->items && i <= d->n; i++)
        d->items[i] = by_gr_arec_item(g, r, i);
    if (by_gr_bad(g)) return 0;
    g->arrdefs[g->n_arrdefs++] = d;
    return g->n_arrdefs;
}

bool by_gr_arrdef_each(by_gr *g, uint32_t def, by_gr_expr_fn *fn, void *user) {
    const by_gr_arrdef *d = g->arrdefs[def];
    for (uint32_t i = 0; i <= d->n; i++)
        for (unsigned met = 0; met < 1u << d->rec->n_contains; met++)
            if (!fn(g, variant(g, d, i, met), user)) return false;
    return !by_gr_bad(g);
}

static bool prod_any(by_gr *g, const by_gr_arrdef *d, uint32_t i) {
    for (unsigned met = 0; met < 1u << d->rec->n_contains; met++)
        if (by_gr_expr_prod(g, variant(g, d, i, met))) return true;
    return false;
}

/* Items that can follow one another from the start. */
static uint32_t reach(by_gr *g, const by_gr_arrdef *d) {
    for (uint32_t i = 0; i <= d->n; i++)
        if (!prod_any(g, d, i)) return i < d->rec->max ? i : d->rec->max;
    return d->rec->max;
}

/* Positions in [from, to) where contains k can be met, as far as it matters. */
static uint32_t chances(by_gr *g, const by_gr_arrdef *d, uint32_t k, uint32_t from, uint32_t to, uint32_t enough) {
    uint32_t n = 0;
    if (from < d->rec->contains[k].from) from = d->rec->contains[k].from;
    for (uint32_t i = from; i < to && n < enough; i++) {
        bool ok = false;
        for (unsigned met = 0; met < 1u << d->rec->n_contains && !ok; met++)
            ok = met >> k & 1 && by_gr_expr_prod(g, variant(g, d, i, met));
        n += ok;
        if (i >= d->n) return ok ? (to - i > enough ? enough : to - i + n - 1) : n;
    }
    return n;
}

bool by_gr_arrdef_productive(by_gr *g, uint32_t def) {
    const by_gr_arrdef *d = g->arrdefs[def];
    uint32_t max = reach(g, d);
    if (max < d->rec->min) return false;
    for (uint32_t k = 0; k < d->rec->n_contains; k++) {
        const by_gr_contains *c = &d->rec->contains[k];
        if (c->min > c->max || (c->min && chances(g, d, k, 0, max, c->min) < c->min)) return false;
    }
    return true;
}

void by_gr_arrdef_finish(by_gr *g, uint32_t def) {
    by_gr_arrdef *d = g->arrdefs[def];
    if (d->finished || by_gr_bad(g)) return;
    d->finished = true;
    d->max = reach(g, d);
    d->clamp = d->n > d->rec->min ? d->n : d->rec->min;
    if (d->max != BY_GR_INF && d->max > d->clamp) d->clamp = d->max;
}

/* ---- states ---- */

static by_gr_term make(by_gr *g, uint32_t def, state s, unsigned x) {
    const by_gr_arrdef *d = g->arrdefs[def];
    if (s.idx > d->clamp) s.idx = d->clamp;
    for (uint32_t k = 0; k < d->rec->n_contains; k++) {
        const by_gr_contains *c = &d->rec->contains[k];
        uint32_t top = c->max != BY_GR_INF ? c->max : c->min;
        if (s.count[k] > top) s.count[k] = top;
    }
    by_gr_term t =
        by_gr_node_make(g, BY_GR_K_TUPLE, 1, s.count[0] | s.count[1] << 16, s.count[2] | s.count[3] << 16, s.seen, 0);
    return by_gr_node_make(g, BY_GR_K_ARR, x, def, s.idx, t, d->rec->unique && x < 2 ? BY_GR_F_UNIQ : 0);
}

static state state_of(const by_gr *g, by_gr_node n) {
    by_gr_node t = g->nodes[n.c];
    return (state){n.b, {t.a & 0xffff, t.a >> 16, t.b & 0xffff, t.b >> 16}, t.c};
}

by_gr_term by_gr_arr_start(by_gr *g, uint32_t def) {
    return by_gr_seq(g, by_gr_lit(g, BY_STR("[")), make(g, def, (state){0}, 0));
}

static bool can_finish(by_gr *g, const by_gr_arrdef *d, state s) {
    for (uint32_t k = 0; k < d->rec->n_contains; k++) {
        const by_gr_contains *c = &d->rec->contains[k];
        if (s.count[k] > c->max) return false;
        if (s.count[k] < c->min && chances(g, d, k, s.idx, d->max, c->min - s.count[k]) < c->min - s.count[k])
            return false;
    }
    return s.idx <= d->max;
}

/* ---- distinct items ---- */

/* Value of a captured scalar as a canonical text: S + decoded string, N + digits and point, or the literal itself. */
static bool canonical(by_gr *g, const by_json *v, by_buf *out);

static int cmp_member(const void *a, const void *b) {
    const by_json_member *const *x = a, *const *y = b;
    return by_str_cmp((*x)->key, (*y)->key);
}

static bool canonical_object(by_gr *g, const by_json *v, by_buf *out) {
    const by_json_member **m = by_alloc(BY_MEM_GRAMMAR, (v->n + 1) * sizeof *m);
    uint32_t n = 0;
    if (!m) return false;
    for (uint32_t i = 0; i < v->n; i++)
        if (by_json_get_str(v, v->v.members[i].key) == &v->v.members[i].value) m[n++] = &v->v.members[i];
    qsort(m, n, sizeof *m, cmp_member);
    bool ok = by_buf_printf(out, "{%u,", n);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = by_buf_printf(out, "%zu:", m[i]->key.len) && by_buf_push_str(out, m[i]->key) &&
             canonical(g, &m[i]->value, out);
    by_free(m);
    return ok;
}

static bool canonical(by_gr *g, const by_json *v, by_buf *out) {
    by_gr_decimal d;
    switch (v->type) {
    case BY_JSON_NULL: return by_buf_push_z(out, "null");
    case BY_JSON_BOOL: return by_buf_push_z(out, v->v.b ? "true" : "false");
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE:
        if (!by_gr_decimal_parse(&d, v->raw)) return by_buf_push_byte(out, 'R') && by_buf_push_str(out, v->raw);
        return by_buf_printf(out, "N%s%.*s@%d;", d.neg ? "-" : "", (int)d.n, d.digits, d.point);
    case BY_JSON_STRING: return by_buf_printf(out, "S%zu:", v->v.s.len) && by_buf_push_str(out, v->v.s);
    case BY_JSON_ARRAY:
        if (!by_buf_printf(out, "[%u,", v->n)) return false;
        for (uint32_t i = 0; i < v->n; i++)
            if (!canonical(g, &v->v.items[i], out)) return false;
        return true;
    case BY_JSON_OBJECT: return canonical_object(g, v, out);
    }
    return false;
}

/* Seen lists are tuples (literal, rest) with x = 2; captures are tuples (byte, rest) with x = 3. */
static uint32_t push(by_gr *g, unsigned x, uint32_t value, uint32_t rest) {
    return by_gr_node_make(g, BY_GR_K_TUPLE, x, value, rest, 0, 0);
}

static uint32_t value_id(by_gr *g, by_str canon) {
    for (uint32_t i = 0; i < g->n_lits; i++) /* values must be found again wherever they are */
        if (by_str_eq(g->lits[i], canon)) return i;
    if (!by_gr_grow(g, &g->lits, g->n_lits, &g->cap_lits, sizeof *g->lits)) return 0;
    by_str copy = by_arena_dup(&g->arena, canon);
    if (!copy.ptr) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), 0;
    g->lits[g->n_lits] = copy;
    return g->n_lits++;
}

static bool has_seen(const by_gr *g, uint32_t seen, uint32_t value) {
    for (; seen; seen = g->nodes[seen].b)
        if (g->nodes[seen].a == value) return true;
    return false;
}

static bool text_of(by_gr *g, uint32_t capture, by_str more, by_buf *out) {
    uint32_t n = 0;
    for (uint32_t c = capture; c; c = g->nodes[c].b)
        n++;
    char *p = by_buf_reserve(out, n + 1u);
    if (!p) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
    out->len += n;
    for (uint32_t c = capture; c; c = g->nodes[c].b)
        p[--n] = (char)g->nodes[c].a;
    return by_buf_push_str(out, more) || (by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false);
}

/* Parses a captured text and writes its canonical form. False when it is no whole value, or on an error. */
static bool value_of(by_gr *g, const by_buf *text, by_arena *a, by_json *v, by_buf *canon) {
    by_json_opts o = {.depth_max = 1000};
    by_status s = by_json_parse(v, a, by_buf_str(text), &o, NULL);
    if (s >= 0 && canonical(g, v, canon)) return true;
    if (s >= 0 || s == BY_ENOMEM) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    else if (s == BY_ELIMIT) by_gr_fail(g, BY_EUNSUPPORTED, "grammar: distinct items nest deeper than %u", o.depth_max);
    return false;
}

/* The list with the captured value added; *dup when it is there already. */
static uint32_t remember(by_gr *g, uint32_t capture, uint32_t seen, bool *dup) {
    *dup = false;
    by_buf canon = {0}, text = {0};
    by_arena a;
    by_json v;
    by_arena_init(&a, BY_MEM_GRAMMAR);
    if (text_of(g, capture, (by_str){0}, &text) && value_of(g, &text, &a, &v, &canon)) {
        uint32_t id = value_id(g, by_buf_str(&canon));
        *dup = has_seen(g, seen, id);
        if (!*dup) seen = push(g, 2, id, seen);
    }
    by_buf_deinit(&canon);
    by_buf_deinit(&text);
    by_arena_deinit(&a);
    return seen;
}

/* The UNIQ of ARR state arr inside a state that is being matched. */
static const by_gr_node *find_uniq(const by_gr *g, by_gr_term t, by_gr_term arr, unsigned depth) {
    const by_gr_node *n = &g->nodes[t], *found = NULL;
    if (!(n->flags & BY_GR_F_UNIQ) || depth > 500) return NULL;
    if (n->kind == BY_GR_K_UNIQ) return g->nodes[n->b].a == arr ? n : find_uniq(g, n->a, arr, depth + 1);
    if (n->kind == BY_GR_K_SEQ) {
        found = find_uniq(g, n->a, arr, depth + 1);
        return !found && by_gr_nullable(g, n->a) ? find_uniq(g, n->b, arr, depth + 1) : found;
    }
    for (uint32_t i = 0; n->kind == BY_GR_K_ALT && i < n->x && !found; i++)
        found = find_uniq(g, g->lists.v[n->a + i], arr, depth + 1);
    return found;
}

bool by_gr_uniq_is_dup(by_gr *g, by_gr_term t, by_gr_term arr, by_str path) {
    const by_gr_node *uniq = find_uniq(g, t, arr, 0);
    uint32_t seen = state_of(g, g->nodes[arr]).seen;
    if (!seen) return false;
    if (!uniq) return by_gr_step_bytes(g, t, path) == BY_GR_NEVER; /* the item began inside the token */
    bool dup = false;
    by_buf text = {0}, canon = {0};
    by_arena a;
    by_json v;
    by_arena_init(&a, BY_MEM_GRAMMAR);
    if (text_of(g, uniq->c, path, &text) && value_of(g, &text, &a, &v, &canon))
        for (; seen && !dup; seen = g->nodes[seen].b)
            dup = by_str_eq(g->lits[g->nodes[seen].a], by_buf_str(&canon));
    by_arena_deinit(&a);
    by_buf_deinit(&text);
    by_buf_deinit(&canon);
    return dup;
}

/* ARR with x = 2 stands, for masks, behind an item whose value is left open, so that it is one state for all values.
 * Its rows hold MARK wherever the value could matter: where a second item ends, at the first byte of an item out of
 * a finite set, and at the comma where all sets are finite: they may be used up. A token that meets a MARK is tried by by_gr_step. */
static by_gr_term open_tail(by_gr *g, by_gr_term arr) {
    by_gr_node n = g->nodes[arr];
    state s = state_of(g, n);
    s.seen = 0;
    return make(g, n.a, s, 2);
}

static bool open_number(by_gr *g, const by_gr_norm *n) {
    return n->num == by_gr_norm_true(g)->num || n->num == by_gr_integer(g);
}
static bool open_string(by_gr *g, const by_gr_norm *n) {
    return n->str && by_gr_always_live(g, n->str);
}

/* Is there always another value, whatever was seen? */
static bool open_ended(by_gr *g, by_gr_expr e) {
    const by_gr_norm *n = g->schema->x[e].norm;
    return n && by_gr_expr_prod(g, e) && (open_number(g, n) || open_string(g, n));
}

static by_gr_term open_item(by_gr *g, by_gr_expr e, by_gr_term rest) {
    const by_gr_norm *n = g->schema->x[e].norm;
    if (!n || !by_gr_expr_prod(g, e)) return BY_GR_NEVER;
    by_gr_norm free = {.obj = n->obj, .arr = n->arr, .n_obj = n->n_obj, .n_arr = n->n_arr}, tried = *n;
    if (open_string(g, n)) free.str = n->str, tried.str = BY_GR_NEVER;
    if (open_number(g, n)) free.num = n->num, tried.num = BY_GR_NEVER;
    tried.n_obj = tried.n_arr = 0;
    by_gr_term v[6] = {by_gr_seq(g, by_gr_norm_term(g, &free), by_gr_mark(g, rest)),
                       by_gr_seq(g, by_gr_mark(g, by_gr_norm_term(g, &tried)), rest)};
    return by_gr_alt(g, v, 6);
}

/* The item's normal form without the scalars seen. */
static bool distinct_item(by_gr *g, by_gr_expr e, uint32_t seen, by_gr_norm *out) {
    const by_gr_norm *n = g->schema->x[e].norm;
    if (!n || !by_gr_expr_prod(g, e)) return false;
    by_gr_norm m = *n;
    *out = m;
    if (!seen) return true;
    by_gr_vec numbers = {0};
    by_str *words = by_alloc(BY_MEM_GRAMMAR, 65536u * sizeof *words);
    uint32_t n_words = 0;
    if (!words) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
    for (; seen && !by_gr_bad(g); seen = g->nodes[seen].b) {
        by_str v = g->lits[g->nodes[seen].a];
        by_gr_decimal d = {0};
        const char *at = memchr(v.ptr, '@', v.len);
        if (by_str_eqz(v, "null"))
            m.null = false;
        else if (by_str_eqz(v, "false"))
            m.bools &= 2;
        else if (by_str_eqz(v, "true"))
            m.bools &= 1;
        else if (v.ptr[0] == 'S' && n_words < 65536u) {
            const char *colon = memchr(v.ptr, ':', v.len);
            words[n_words++] = by_str_skip(v, (size_t)(colon - v.ptr) + 1);
        } else if (v.ptr[0] == 'N' && at) {
            size_t k = 1;
            if (v.ptr[k] == '-') d.neg = true, k++;
            while (v.ptr + k < at && d.n < sizeof d.digits)
                d.digits[d.n++] = v.ptr[k++];
            d.point = (int32_t)strtol(at + 1, NULL, 10);
            by_gr_vec_push(g, &numbers, by_gr_number_equal(g, &d));
        }
    }
    if (n_words) {
        by_gr_term others = by_gr_except(g, words, n_words);
        m.str = by_gr_and2(g, m.str, others);
        m.lit = by_gr_and2(g, m.lit, others);
    }
    if (numbers.n && m.num) { /* spellings with exponents are found out when the number ends */
        by_gr_term old = by_gr_not(g, by_gr_alt(g, numbers.v, numbers.n));
        m.num = by_gr_and2(g, m.num, old);
    }
    by_free(words);
    by_gr_vec_free(&numbers);
    *out = m;
    return !by_gr_bad(g);
}

/* b of a UNIQ: what masks see of the item and its rest. Strings and literals seen are out of the language already;
 * tokens that end a number (exponents!) are tried, those that end a list or object compared, unless nothing was seen.
 */
static by_gr_term uniq_make(by_gr *g, by_gr_term item, by_gr_term arr, by_gr_term seen_by_masks, uint32_t capture) {
    if (item == BY_GR_NEVER) return BY_GR_NEVER;
    by_gr_term b = by_gr_node_make(g, BY_GR_K_TUPLE, 4, arr, seen_by_masks, 0, 0);
    return by_gr_node_make(g, BY_GR_K_UNIQ, 0, item, b, capture, BY_GR_F_UNIQ);
}

static by_gr_term uniq_start(by_gr *g, by_gr_expr e, uint32_t seen, by_gr_term arr) {
    by_gr_norm n, plain, number, many;
    if (!distinct_item(g, e, seen, &n)) return BY_GR_NEVER;
    plain = n;
    plain.num = plain.n_obj = plain.n_arr = 0;
    number = (by_gr_norm){.num = n.num};
    many = (by_gr_norm){.obj = n.obj, .arr = n.arr, .n_obj = n.n_obj, .n_arr = n.n_arr};
    by_gr_term tail = open_tail(g, arr),
               v[3] = {by_gr_seq(g, by_gr_norm_term(g, &plain), tail),
                       by_gr_seq(g, by_gr_norm_term(g, &number), seen ? by_gr_mark(g, tail) : tail),
                       by_gr_seq(g, by_gr_norm_term(g, &many), seen ? by_gr_close(g, tail, arr) : tail)};
    return uniq_make(g, by_gr_norm_term(g, &n), arr, by_gr_alt(g, v, 3), 0);
}

/* Behind the item: arr has the index and counters of after the item, but the old list. */
static by_gr_term behind(by_gr *g, by_gr_term arr, uint32_t capture) {
    by_gr_node n = g->nodes[arr];
    state s = state_of(g, n);
    bool dup;
    s.seen = remember(g, capture, s.seen, &dup);
    return dup ? BY_GR_NEVER : make(g, n.a, s, 1);
}

by_gr_term by_gr_uniq_step(by_gr *g, by_gr_node n, unsigned byte) {
    by_gr_term to = by_gr_step(g, n.a, byte), t = BY_GR_NEVER, arr = g->nodes[n.b].a; /* lists of distinct items nest */
    if (to == BY_GR_NEVER) return BY_GR_NEVER;
    uint32_t capture = push(g, 3, byte, n.c);
    by_gr_term masks = BY_GR_NEVER;
    if (to != BY_GR_EPS &&
        by_gr_nullable(g, to)) /* a number that may end here: ending it is the other alternative below */
        masks = by_gr_seq(g, by_gr_nonempty(g, to), by_gr_mark(g, open_tail(g, arr)));
    else if (to != BY_GR_EPS)
        masks = by_gr_step(g, g->nodes[n.b].b, byte);
    if (to != BY_GR_EPS) t = uniq_make(g, to, arr, masks, capture);
    if (by_gr_nullable(g, to)) t = by_gr_alt2(g, t, behind(g, arr, capture));
    return t;
}

/* ---- rows ---- */

static by_gr_term item_then(by_gr *g, uint32_t def, state s, unsigned met, unsigned x) {
    by_gr_arrdef *d = g->arrdefs[def];
    by_gr_expr e = variant(g, d, s.idx, met);
    if (!by_gr_expr_prod(g, e)) return BY_GR_NEVER;
    state t = s;
    t.idx++;
    for (uint32_t k = 0; k < d->rec->n_contains; k++) {
        if (!(met >> k & 1)) continue;
        if (s.idx < d->rec->contains[k].from) return BY_GR_NEVER;
        t.count[k]++;
    }
    if (!can_finish(g, d, t)) return BY_GR_NEVER;
    if (x == 2) return open_item(g, e, make(g, def, t, 2));
    if (!d->rec->unique) return by_gr_seq(g, by_gr_expr_term(g, e), make(g, def, t, 1));
    return uniq_start(g, e, s.seen, make(g, def, t, 1));
}

by_gr_term by_gr_arr_body(by_gr *g, by_gr_node n) {
    by_gr_arrdef *d = g->arrdefs[n.a];
    state s = state_of(g, n);
    by_gr_term v[1u << CONTAINS_MAX], more = BY_GR_NEVER;
    if (s.idx < d->max) {
        unsigned sets = 1u << d->rec->n_contains;
        for (unsigned met = 0; met < sets; met++)
            v[met] = item_then(g, n.a, s, met, n.x);
        more = by_gr_alt(g, v, sets);
    }
    if (n.x) more = by_gr_seq(g, by_gr_lit(g, BY_STR(",")), by_gr_seq(g, g->ws_behind, more));
    if (n.x == 2 && !open_ended(g, variant(g, d, s.idx, 0))) more = by_gr_mark(g, more); /* maybe nothing is left */
    bool done = s.idx >= d->rec->min;
    for (uint32_t k = 0; k < d->rec->n_contains; k++)
        done &= s.count[k] >= d->rec->contains[k].min;
    return by_gr_seq(g, g->ws, by_gr_alt2(g, more, done ? by_gr_lit(g, BY_STR("]")) : BY_GR_NEVER));
}

const by_gr_row *by_gr_row_arr(by_gr *g, by_gr_node n) {
    return by_gr_row_of(g, by_gr_arr_body(g, n));
}

uint32_t by_gr_arr_min_bytes(by_gr *g, by_gr_node n) {
    by_gr_arrdef *d = g->arrdefs[n.a];
    state s = state_of(g, n);
    uint32_t ws = by_gr_min_bytes(g, g->ws), sep = 1 + ws + by_gr_min_bytes(g, g->ws_behind);
    uint32_t need = d->rec->min > s.idx ? d->rec->min - s.idx : 0;
    uint64_t sum = 1 + ws;
    uint32_t hits = 0;
    for (uint32_t k = 0; k < d->rec->n_contains; k++)
        if (s.count[k] < d->rec->contains[k].min) hits += d->rec->contains[k].min - s.count[k];
    if (hits > need) need = hits;
    for (uint32_t i = 0; i < need; i++) {
        uint32_t worst = 0;
        for (unsigned met = 0; met < 1u << d->rec->n_contains; met++) {
            by_gr_expr e = variant(g, d, s.idx + i, met);
            uint32_t one = by_gr_expr_prod(g, e) ? by_gr_min_bytes(g, by_gr_expr_term(g, e)) : 0;
            if (one > worst) worst = one;
        }
        sum += worst + sep;
        if (s.idx + i >= d->n) {
            sum += (uint64_t)(need - i - 1) * (worst + sep);
            break;
        }
    }
    return sum > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)sum;
}
