/* grammar_step.c - derivatives: the row of next states of a term, made once and kept.
 *
 * The row of a term follows from the rows of its parts by one sweep over the bytes at which any of them changes.
 * Targets that hold no text are NEVER (by_gr_and decides emptiness), so a byte with a target can always be completed.
 */
#include "grammar/grammar_host.h"
#include "grammar/grammar_internal.h"

#define INDEX_FROM 12u   /* rows with more ranges get a table by byte */
#define DEPTH_MAX  2000u /* nested parts; front ends bound nesting far below, this guards the C stack */

by_gr_term by_gr_row_get(const by_gr_row *row, unsigned byte) {
    if (row->idx) {
        unsigned i = row->idx[byte];
        return i ? row->r[i - 1].to : BY_GR_NEVER;
    }
    for (unsigned i = 0; i < row->n; i++)
        if (byte <= row->r[i].hi) return byte >= row->r[i].lo ? row->r[i].to : BY_GR_NEVER;
    return BY_GR_NEVER;
}

static const by_gr_row empty_row;

const by_gr_row *by_gr_row_make(by_gr *g, const by_gr_range *r, unsigned n, const by_gr_tok_edge *tok, unsigned n_tok) {
    if (by_gr_bad(g)) return &empty_row;
    by_gr_range out[256];
    unsigned k = 0;
    for (unsigned i = 0; i < n; i++) {
        if (r[i].to == BY_GR_NEVER) continue;
        if (k && out[k - 1].to == r[i].to && out[k - 1].hi + 1 == r[i].lo)
            out[k - 1].hi = r[i].hi;
        else
            out[k++] = r[i];
    }
    if (k == 0 && n_tok == 0) return &empty_row;
    size_t bytes = sizeof(by_gr_row) + k * sizeof *r + n_tok * sizeof *tok + (k > INDEX_FROM ? 256 : 0);
    char *p = by_gr_alloc(g, bytes);
    if (!p) return &empty_row;
    by_gr_row *row = (by_gr_row *)(void *)p;
    row->r = (by_gr_range *)(void *)(row + 1);
    row->tok = (by_gr_tok_edge *)(void *)(row->r + k);
    row->n = (uint16_t)k;
    row->n_tok = (uint16_t)n_tok;
    if (k) memcpy(row->r, out, k * sizeof *r);
    if (n_tok) memcpy(row->tok, tok, n_tok * sizeof *tok);
    if (k > INDEX_FROM && k < 256) {
        row->idx = (uint8_t *)(row->tok + n_tok);
        for (unsigned i = 0; i < k; i++)
            for (unsigned b = row->r[i].lo; b <= row->r[i].hi; b++)
                row->idx[b] = (uint8_t)(i + 1);
    }
    return row;
}

/* ---- sweeping several rows ---- */

/* Marks where any of the rows changes: cut[b] = a new segment begins at byte b. */
static void mark_cuts(const by_gr_row *row, uint8_t cut[257]) {
    for (unsigned i = 0; i < row->n; i++)
        cut[row->r[i].lo] = cut[row->r[i].hi + 1] = 1;
}

static const by_gr_row *row_list(by_gr *g, by_gr_term t, bool is_and) {
    by_gr_node n = g->nodes[t];
    uint8_t cut[257] = {[0] = 1};
    by_gr_vec to = {0};
    for (uint32_t i = 0; i < n.x; i++)
        mark_cuts(by_gr_row_of(g, g->lists.v[n.a + i]), cut);
    by_gr_range out[256];
    unsigned k = 0;
    for (unsigned lo = 0, hi; lo < 256 && !by_gr_bad(g); lo = hi) {
        for (hi = lo + 1; hi < 256 && !cut[hi]; hi++) {
        }
        to.n = 0;
        bool dead = false;
        for (uint32_t i = 0; i < n.x && !dead; i++) {
            by_gr_term x = by_gr_row_get(by_gr_row_of(g, g->lists.v[n.a + i]), lo);
            if (x != BY_GR_NEVER)
                by_gr_vec_push(g, &to, x);
            else
                dead = is_and;
        }
        if (dead || to.n == 0) continue;
        out[k++] =
            (by_gr_range){(uint8_t)lo, (uint8_t)(hi - 1), is_and ? by_gr_and(g, to.v, to.n) : by_gr_alt(g, to.v, to.n)};
    }
    by_gr_vec_free(&to);
    by_gr_tok_edge tok[64];
    unsigned n_tok = 0;
    for (uint32_t i = 0; !is_and && i < n.x; i++) { /* token leaves take no part in intersections */
        const by_gr_row *r = by_gr_row_of(g, g->lists.v[n.a + i]);
        for (unsigned j = 0; j < r->n_tok && n_tok < 64; j++)
            tok[n_tok++] = r->tok[j];
        if (n_tok == 64) by_gr_fail(g, BY_ELIMIT, "grammar: more than 63 token sets at one place");
    }
    return by_gr_row_make(g, out, k, tok, n_tok);
}

static const by_gr_row *row_not(by_gr *g, by_gr_term a) {
    const by_gr_row *ra = by_gr_row_of(g, a);
    by_gr_range out[256];
    unsigned k = 0, at = 0;
    for (unsigned i = 0; i < ra->n; i++) {
        if (ra->r[i].lo > at) out[k++] = (by_gr_range){(uint8_t)at, (uint8_t)(ra->r[i].lo - 1), BY_GR_ANYBYTES};
        out[k++] = (by_gr_range){ra->r[i].lo, ra->r[i].hi, by_gr_not(g, ra->r[i].to)};
        at = ra->r[i].hi + 1u;
    }
    if (at < 256) out[k++] = (by_gr_range){(uint8_t)at, 255, BY_GR_ANYBYTES};
    return by_gr_row_make(g, out, k, NULL, 0);
}

/* Row of a with every target followed by tail; wrap = 1: targets in a GROUP, 2: in a MARK. */
static const by_gr_row *row_map(by_gr *g, by_gr_term a, by_gr_term tail, int wrap) {
    const by_gr_row *ra = by_gr_row_of(g, a);
    by_gr_range out[256];
    by_gr_tok_edge tok[64];
    unsigned k = 0, nt = 0;
    for (unsigned i = 0; i < ra->n; i++) {
        by_gr_term to = ra->r[i].to;
        if (wrap == 1) to = by_gr_group(g, to);
        if (wrap == 2) to = by_gr_mark(g, to);
        out[k++] = (by_gr_range){ra->r[i].lo, ra->r[i].hi, by_gr_seq(g, to, tail)};
    }
    for (unsigned i = 0; i < ra->n_tok && i < 64; i++) {
        by_gr_term to = wrap == 1 ? by_gr_group(g, ra->tok[i].to) : ra->tok[i].to;
        tok[nt++] = (by_gr_tok_edge){ra->tok[i].set, by_gr_seq(g, to, tail)};
    }
    return by_gr_row_make(g, out, k, tok, nt);
}

/* Union of two ready rows. */
static const by_gr_row *row_join(by_gr *g, const by_gr_row *x, const by_gr_row *y) {
    if (x->n == 0 && x->n_tok == 0) return y;
    if (y->n == 0 && y->n_tok == 0) return x;
    uint8_t cut[257] = {[0] = 1};
    mark_cuts(x, cut);
    mark_cuts(y, cut);
    by_gr_range out[256];
    by_gr_tok_edge tok[64];
    unsigned k = 0, nt = 0;
    for (unsigned lo = 0, hi; lo < 256; lo = hi) {
        for (hi = lo + 1; hi < 256 && !cut[hi]; hi++) {
        }
        by_gr_term to = by_gr_alt2(g, by_gr_row_get(x, lo), by_gr_row_get(y, lo));
        if (to != BY_GR_NEVER) out[k++] = (by_gr_range){(uint8_t)lo, (uint8_t)(hi - 1), to};
    }
    for (unsigned i = 0; i < x->n_tok && nt < 64; i++)
        tok[nt++] = x->tok[i];
    for (unsigned i = 0; i < y->n_tok && nt < 64; i++)
        tok[nt++] = y->tok[i];
    if (nt == 64) by_gr_fail(g, BY_ELIMIT, "grammar: more than 63 token sets at one place");
    return by_gr_row_make(g, out, k, tok, nt);
}

/* A chain of nullable heads is walked without recursion: from its end backwards, each link's row kept. */
static const by_gr_row *row_seq(by_gr *g, by_gr_term t) {
    by_gr_vec chain = {0};
    by_gr_term x = t;
    while (g->nodes[x].kind == BY_GR_K_SEQ && !g->nodes[x].row) {
        if (!by_gr_vec_push(g, &chain, x)) break;
        if (!by_gr_nullable(g, g->nodes[x].a)) break;
        x = g->nodes[x].b;
    }
    const by_gr_row *row = &empty_row;
    while (chain.n > 0 && !by_gr_bad(g)) {
        by_gr_term s = chain.v[--chain.n];
        by_gr_node n = g->nodes[s];
        row = row_map(g, n.a, n.b, 0);
        if (by_gr_nullable(g, n.a)) row = row_join(g, row, by_gr_row_of(g, n.b));
        if (!by_gr_bad(g)) g->nodes[s].row = row;
    }
    by_gr_vec_free(&chain);
    return row;
}

/* ---- leaves ---- */

static const by_gr_row *row_cls(by_gr *g, uint32_t set) {
    by_gr_range out[256];
    unsigned k = 0;
    by_gr_set256 s = g->sets[set].s;
    for (unsigned b = 0; b < 256; b++) {
        if (!by_gr_set_has(&s, b)) continue;
        if (k && out[k - 1].hi + 1u == b)
            out[k - 1].hi = (uint8_t)b;
        else
            out[k++] = (by_gr_range){(uint8_t)b, (uint8_t)b, BY_GR_EPS};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

static const by_gr_row *row_lit(by_gr *g, by_gr_node n) {
    by_str s = g->lits[n.a];
    uint8_t b = (uint8_t)s.ptr[n.b];
    by_gr_term to = n.b + 1 == s.len ? BY_GR_EPS : by_gr_node_make(g, BY_GR_K_LIT, 0, n.a, n.b + 1, 0, 0);
    by_gr_range r = {b, b, to};
    return by_gr_row_make(g, &r, 1, NULL, 0);
}

static const by_gr_row *row_trie(by_gr *g, by_gr_node n) {
    by_gr_range out[256];
    unsigned k = 0;
    for (uint32_t c = g->tries[n.a].nodes[n.b].child; c; c = g->tries[n.a].nodes[c].sibling) {
        by_gr_trie_node w = g->tries[n.a].nodes[c];
        by_gr_term to = w.word && !w.child
                            ? BY_GR_EPS
                            : by_gr_node_make(g, BY_GR_K_TRIE, 0, n.a, c, 0, w.word ? BY_GR_F_NULLABLE : 0);
        out[k++] = (by_gr_range){w.byte, w.byte, to};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

static const by_gr_row *row_except(by_gr *g, by_gr_node n) {
    const by_gr_row *base = by_gr_row_of(g, n.c);
    by_gr_range out[256];
    unsigned k = 0;
    uint32_t c = g->tries[n.a].nodes[n.b].child;
    for (unsigned i = 0; i < base->n; i++) {
        unsigned lo = base->r[i].lo;
        by_gr_term to = base->r[i].to;
        for (; c && g->tries[n.a].nodes[c].byte <= base->r[i].hi; c = g->tries[n.a].nodes[c].sibling) {
            by_gr_trie_node w = g->tries[n.a].nodes[c];
            if (w.byte < lo) continue;
            if (w.byte > lo) out[k++] = (by_gr_range){(uint8_t)lo, (uint8_t)(w.byte - 1), to};
            unsigned f = !w.word && by_gr_nullable(g, to) ? BY_GR_F_NULLABLE : 0;
            by_gr_term next = !w.child && !w.word ? to : by_gr_node_make(g, BY_GR_K_EXCEPT, 0, n.a, c, to, f);
            out[k++] = (by_gr_range){w.byte, w.byte, next};
            lo = w.byte + 1u;
        }
        if (lo <= base->r[i].hi) out[k++] = (by_gr_range){(uint8_t)lo, base->r[i].hi, to};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

static const by_gr_row *row_ws(by_gr *g, by_gr_node n) {
    if (n.a == 0) return &empty_row;
    by_gr_term space = by_gr_node_make(g, BY_GR_K_WS, 0, n.a - 1, n.b, 0, BY_GR_F_NULLABLE);
    by_gr_term line = n.b ? by_gr_node_make(g, BY_GR_K_WS, 0, n.a - 1, n.b - 1, 0, BY_GR_F_NULLABLE) : BY_GR_NEVER;
    by_gr_range r[4] = {{'\t', '\t', space}, {'\n', '\n', line}, {'\r', '\r', space}, {' ', ' ', space}};
    return by_gr_row_make(g, r, 4, NULL, 0);
}

static const by_gr_row *row_tok(by_gr *g, uint32_t set) {
    by_gr_tok_edge e = {set, BY_GR_EPS};
    return by_gr_row_make(g, NULL, 0, &e, 1);
}

/* ---- JSON strings ---- */

static by_gr_term next_cp(by_gr *g, by_gr_term t, uint32_t cp) {
    char u[4];
    size_t n;
    if (cp < 0x80)
        u[0] = (char)cp, n = 1;
    else if (cp < 0x800)
        u[0] = (char)(0xc0 | cp >> 6), u[1] = (char)(0x80 | (cp & 63)), n = 2;
    else if (cp < 0x10000)
        u[0] = (char)(0xe0 | cp >> 12), u[1] = (char)(0x80 | (cp >> 6 & 63)), u[2] = (char)(0x80 | (cp & 63)), n = 3;
    else
        u[0] = (char)(0xf0 | cp >> 18), u[1] = (char)(0x80 | (cp >> 12 & 63)), u[2] = (char)(0x80 | (cp >> 6 & 63)),
        u[3] = (char)(0x80 | (cp & 63)), n = 4;
    return by_gr_next_bytes(g, t, by_str_of(u, n));
}

/* Is a code point that must be escaped in the PLAIN style (no other escape is offered there). */
static bool must_escape(uint32_t cp) {
    return cp < 0x20 || cp == '"' || cp == '\\';
}

static const struct {
    char esc;
    uint8_t cp;
} short_escapes[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 8}, {'f', 12}, {'n', 10}, {'r', 13}, {'t', 9}};

static bool hex_live(by_gr *g, by_gr_term text, unsigned style, unsigned digits, uint32_t value) {
    uint32_t lo = value << 4 * (4 - digits), hi = lo + ((1u << 4 * (4 - digits)) - 1);
    if (style == BY_GR_STYLE_PLAIN) {
        for (uint32_t cp = lo; cp <= hi && cp < 0x20; cp++) {
            bool is_short = cp == 8 || cp == 9 || cp == 10 || cp == 12 || cp == 13;
            if (!is_short && next_cp(g, text, cp) != BY_GR_NEVER) return true;
        }
        return false;
    }
    if (by_gr_range_live(g, text, lo, hi)) return true;
    if (hi < 0xd800 || lo > 0xdbff) return false;
    uint32_t h0 = lo < 0xd800 ? 0xd800 : lo, h1 = hi > 0xdbff ? 0xdbff : hi;
    return by_gr_range_live(g, text, 0x10000 + ((h0 - 0xd800) << 10), 0x10000 + ((h1 - 0xd800) << 10) + 0x3ff);
}

static bool low_live(by_gr *g, by_gr_term text, uint32_t high, unsigned digits, uint32_t value) {
    uint32_t lo = value << 4 * (4 - digits), hi = lo + ((1u << 4 * (4 - digits)) - 1);
    if (hi < 0xdc00 || lo > 0xdfff) return false;
    lo = lo < 0xdc00 ? 0xdc00 : lo;
    hi = hi > 0xdfff ? 0xdfff : hi;
    uint32_t base = 0x10000 + ((high - 0xd800) << 10);
    return by_gr_range_live(g, text, base + (lo - 0xdc00), base + (hi - 0xdc00));
}

static const by_gr_row *row_jesc(by_gr *g, by_gr_node n) {
    by_gr_range out[10];
    unsigned k = 0;
    for (unsigned i = 0; i < 8; i++) {
        uint32_t cp = short_escapes[i].cp;
        if (n.x == BY_GR_STYLE_PLAIN && !must_escape(cp)) continue;
        by_gr_term to = by_gr_jstr(g, next_cp(g, n.a, cp), n.x);
        uint8_t b = (uint8_t)short_escapes[i].esc;
        if (to != BY_GR_NEVER) out[k++] = (by_gr_range){b, b, to};
    }
    if (hex_live(g, n.a, n.x, 0, 0))
        out[k++] = (by_gr_range){'u', 'u', by_gr_node_make(g, BY_GR_K_JHEX, n.x, n.a, 0, 0, 0)};
    return by_gr_row_make(g, out, k, NULL, 0);
}

/* May a character come that is spelled as an escape? rx: the row of the text. */
static bool needs_escapes(const by_gr_row *rx, unsigned style) {
    if (style != BY_GR_STYLE_PLAIN) return rx->n > 0;
    for (unsigned i = 0; i < rx->n; i++) {
        unsigned lo = rx->r[i].lo, hi = rx->r[i].hi;
        if (lo < 0x20 || (lo <= '"' && hi >= '"') || (lo <= '\\' && hi >= '\\')) return true;
    }
    return false;
}

static const by_gr_row *row_jstr(by_gr *g, by_gr_node n) {
    const by_gr_row *rx = by_gr_row_of(g, n.a);
    by_gr_range out[256];
    unsigned k = 0;
    by_gr_term esc = needs_escapes(rx, n.x) ? by_gr_node_make(g, BY_GR_K_JESC, n.x, n.a, 0, 0, 0) : BY_GR_NEVER;
    if (esc != BY_GR_NEVER && by_gr_row_of(g, esc)->n == 0) esc = BY_GR_NEVER;
    bool closed = false, escaped = false;
    for (unsigned i = 0; i < rx->n; i++) {
        by_gr_term to = BY_GR_NEVER;
        for (unsigned lo = rx->r[i].lo, hi; lo <= rx->r[i].hi; lo = hi + 1) {
            hi = rx->r[i].hi;
            if (lo < 0x20) {
                hi = hi < 0x1f ? hi : 0x1f;
                continue;
            }
            if (!closed && lo >= '"') {
                closed = true;
                if (by_gr_nullable(g, n.a)) out[k++] = (by_gr_range){'"', '"', BY_GR_EPS};
            }
            if (!escaped && lo >= '\\') {
                escaped = true;
                out[k++] = (by_gr_range){'\\', '\\', esc};
            }
            if (lo == '"' || lo == '\\') {
                hi = lo;
                continue;
            }
            if (lo < '"' && hi >= '"')
                hi = '"' - 1;
            else if (lo < '\\' && hi >= '\\')
                hi = '\\' - 1;
            if (to == BY_GR_NEVER) to = by_gr_jstr(g, rx->r[i].to, n.x);
            out[k++] = (by_gr_range){(uint8_t)lo, (uint8_t)hi, to};
        }
    }
    if (!closed && by_gr_nullable(g, n.a)) out[k++] = (by_gr_range){'"', '"', BY_GR_EPS};
    if (!escaped) out[k++] = (by_gr_range){'\\', '\\', esc};
    return by_gr_row_make(g, out, k, NULL, 0);
}

/* A text to which all characters are the same: then of an escape only matters what makes a surrogate, and the states behind other
 * digits are one. */
static bool is_uniform(const by_gr *g, by_gr_node n) {
    by_gr_node text = g->nodes[n.a];
    return n.x == BY_GR_STYLE_ANY && (n.a == BY_GR_ANYTEXT || n.a == BY_GR_ANYCHAR || (text.kind == BY_GR_K_REP && text.a == BY_GR_ANYCHAR));
}

static by_gr_term hex_target(by_gr *g, by_gr_node n, uint32_t value) {
    unsigned digits = n.b + 1, shift = 4 * (4 - digits);
    bool high = value >= 0xd800u >> shift && value <= 0xdbffu >> shift; /* or may become one */
    if (digits < 4) {
        bool live = hex_live(g, n.a, n.x, digits, value);
        if (is_uniform(g, n)) value = high ? 0xd800u >> shift : 0;
        return live ? by_gr_node_make(g, BY_GR_K_JHEX, n.x, n.a, digits, value, 0) : BY_GR_NEVER;
    }
    if (high) {
        bool live = hex_live(g, n.a, n.x, 4, value);
        if (is_uniform(g, n)) value = 0xd800;
        return live ? by_gr_node_make(g, BY_GR_K_JLOW, n.x, n.a, value, 0, 0) : BY_GR_NEVER;
    }
    if (value >= 0xdc00 && value <= 0xdfff) return BY_GR_NEVER;
    return hex_live(g, n.a, n.x, 4, value) ? by_gr_jstr(g, next_cp(g, n.a, value), n.x) : BY_GR_NEVER;
}

static by_gr_term low_target(by_gr *g, by_gr_node n, uint32_t value, unsigned digits) {
    if (!low_live(g, n.a, n.b, digits, value)) return BY_GR_NEVER;
    if (digits < 4 && is_uniform(g, n)) value = 0xdc00u >> 4 * (4 - digits);
    if (digits < 4) return by_gr_node_make(g, BY_GR_K_JLOW, n.x, n.a, n.b, (2 + digits) << 16 | value, 0);
    uint32_t cp = 0x10000 + ((n.b - 0xd800) << 10) + (value - 0xdc00);
    return by_gr_jstr(g, next_cp(g, n.a, cp), n.x);
}

/* Behind \u: JHEX; behind a high surrogate: JLOW, whose stages are the backslash, the u and four digits. */
static const by_gr_row *row_hex(by_gr *g, by_gr_node n) {
    unsigned stage = n.c >> 16;
    if (n.kind == BY_GR_K_JLOW && stage < 2) {
        by_gr_term to = by_gr_node_make(g, BY_GR_K_JLOW, n.x, n.a, n.b, (stage + 1) << 16, 0);
        uint8_t b = stage ? 'u' : '\\';
        return by_gr_row_make(g, &(by_gr_range){b, b, to}, 1, NULL, 0);
    }
    by_gr_range out[22];
    for (unsigned d = 0; d < 16; d++) {
        by_gr_term to = n.kind == BY_GR_K_JLOW ? low_target(g, n, (n.c & 0xffff) << 4 | d, stage - 1)
                                               : hex_target(g, n, n.c << 4 | d);
        if (d < 10)
            out[d] = (by_gr_range){(uint8_t)('0' + d), (uint8_t)('0' + d), to};
        else {
            out[d] = (by_gr_range){(uint8_t)('A' + d - 10), (uint8_t)('A' + d - 10), to};
            out[d + 6] = (by_gr_range){(uint8_t)('a' + d - 10), (uint8_t)('a' + d - 10), to};
        }
    }
    return by_gr_row_make(g, out, 22, NULL, 0);
}

static const by_gr_row *row_unquot(by_gr *g, by_gr_node n) {
    const by_gr_row *ra = by_gr_row_of(g, n.a);
    by_gr_range out[256];
    unsigned k = 0;
    for (unsigned i = 0; i < ra->n; i++) {
        if (ra->r[i].lo >= 0xf8) break; /* sentinels */
        by_gr_term a = ra->r[i].to;
        unsigned f = by_gr_nullable(g, by_gr_next(g, a, 0xff)) ? BY_GR_F_NULLABLE : 0;
        by_gr_term to = by_gr_node_make(g, BY_GR_K_UNQUOT, 0, a, 0, 0, f);
        if (to != BY_GR_NEVER && !by_gr_live(g, to)) to = BY_GR_NEVER;
        uint8_t hi = ra->r[i].hi < 0xf8 ? ra->r[i].hi : 0xf7;
        out[k++] = (by_gr_range){ra->r[i].lo, hi, to};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

/* ---- the dispatch ---- */

by_gr_term by_gr_rule_body(by_gr *g, uint32_t rule) {
    by_gr_rule *r = &g->rules[rule];
    if (!r->built) {
        r->built = true;
        by_gr_term body = r->expr ? by_gr_schema_rule_body(g, r->expr - 1) : BY_GR_NEVER;
        g->rules[rule].body = body;
        g->rules[rule].built = !by_gr_bad(g);
    }
    return g->rules[rule].body;
}

static const by_gr_row *row_rep(by_gr *g, by_gr_node n) {
    by_gr_term rest = by_gr_rep(g, n.a, n.b ? n.b - 1 : 0, n.c == BY_GR_INF ? BY_GR_INF : n.c - 1);
    return row_map(g, n.a, rest, 0);
}

static const by_gr_row *build(by_gr *g, by_gr_term t) {
    by_gr_node n = g->nodes[t];
    switch ((by_gr_kind)n.kind) {
    case BY_GR_K_CLS: return row_cls(g, n.a);
    case BY_GR_K_LIT: return row_lit(g, n);
    case BY_GR_K_SEQ: return row_seq(g, t);
    case BY_GR_K_ALT: return row_list(g, t, false);
    case BY_GR_K_AND: return row_list(g, t, true);
    case BY_GR_K_NOT: return row_not(g, n.a);
    case BY_GR_K_REP: return row_rep(g, n);
    case BY_GR_K_RULE: return by_gr_row_of(g, by_gr_rule_body(g, n.a));
    case BY_GR_K_NONEMPTY: return by_gr_row_of(g, n.a);
    case BY_GR_K_GROUP: return row_map(g, n.a, BY_GR_EPS, 1);
    case BY_GR_K_JSTR: return row_jstr(g, n);
    case BY_GR_K_JESC: return row_jesc(g, n);
    case BY_GR_K_JHEX:
    case BY_GR_K_JLOW: return row_hex(g, n);
    case BY_GR_K_TRIE: return row_trie(g, n);
    case BY_GR_K_EXCEPT: return row_except(g, n);
    case BY_GR_K_UNQUOT: return row_unquot(g, n);
    case BY_GR_K_LIFT: return by_gr_row_lift(g, n, t);
    case BY_GR_K_ERASE: return by_gr_row_erase(g, n);
    case BY_GR_K_MOD: return by_gr_row_mod(g, n);
    case BY_GR_K_LEAP: return by_gr_row_leap(g, n);
    case BY_GR_K_HOST: return by_gr_row_host(g, n, t);
    case BY_GR_K_WS: return row_ws(g, n);
    case BY_GR_K_OBJ: return by_gr_row_obj(g, n, t);
    case BY_GR_K_KEY: return by_gr_row_key(g, n);
    case BY_GR_K_ARR: return by_gr_row_arr(g, n);
    case BY_GR_K_UNIQ: return by_gr_row_of(g, g->nodes[n.b].b);
    case BY_GR_K_FREE: return by_gr_row_free(g, n);
    case BY_GR_K_MARK: return row_map(g, n.a, BY_GR_EPS, 2);
    case BY_GR_K_CLOSE: return by_gr_row_of(g, n.a);
    case BY_GR_K_TOK: return row_tok(g, n.a);
    case BY_GR_K_NEVER:
    case BY_GR_K_EPS:
    case BY_GR_K_TUPLE:
    case BY_GR_K_N: break;
    }
    return &empty_row;
}

const by_gr_row *by_gr_row_of(by_gr *g, by_gr_term t) {
    if (g->nodes[t].row) return g->nodes[t].row;
    if (by_gr_bad(g)) return &empty_row;
    if (g->nodes[t].flags & BY_GR_F_BUSY) {
        by_gr_fail(g, BY_EINTERNAL, "grammar: a rule begins with itself");
        return &empty_row;
    }
    if (g->depth >= DEPTH_MAX) {
        by_gr_fail(g, BY_ELIMIT, "grammar: nested deeper than %u levels", DEPTH_MAX);
        return &empty_row;
    }
    g->depth++;
    g->nodes[t].flags |= BY_GR_F_BUSY;
    const by_gr_row *row = build(g, t);
    g->nodes[t].flags &= (uint8_t)~BY_GR_F_BUSY;
    g->depth--;
    if (by_gr_bad(g)) return &empty_row;
    g->nodes[t].row = row;
    return row;
}

by_gr_term by_gr_next_bytes(by_gr *g, by_gr_term t, by_str s) {
    for (size_t i = 0; i < s.len && t != BY_GR_NEVER; i++)
        t = by_gr_next(g, t, (uint8_t)s.ptr[i]);
    return t;
}

/* ---- stepping with memory ---- */

static by_gr_term step_alabel(by_gr *g, by_gr_term t, unsigned byte) {
    by_gr_vec members = {0};
    by_gr_term to = BY_GR_NEVER;
    if (by_gr_is_alabel(g, t)) return by_gr_alabel_next(g, t, byte);
    if (!by_gr_alabel_split(g, t, 0, &members)) return by_gr_next(g, t, byte);
    for (uint32_t i = 1; i < members.n; i += 2)
        to = by_gr_alt2(g, to, by_gr_step(g, members.v[i], byte));
    by_gr_vec_free(&members);
    return to;
}

by_gr_term by_gr_step(by_gr *g, by_gr_term t, unsigned byte) {
    by_gr_node n = g->nodes[t];
    if (g->host && !(n.flags & BY_GR_F_UNIQ)) return step_alabel(g, t, byte);
    if (!(n.flags & BY_GR_F_UNIQ)) return by_gr_next(g, t, byte);
    if (by_gr_bad(g) || g->depth >= DEPTH_MAX)
        return by_gr_bad(g) ? BY_GR_NEVER
                            : by_gr_fail(g, BY_ELIMIT, "grammar: nested deeper than %u levels", DEPTH_MAX);
    by_gr_term to = BY_GR_NEVER;
    g->depth++;
    switch ((by_gr_kind)n.kind) {
    case BY_GR_K_UNIQ: to = by_gr_uniq_step(g, n, byte); break;
    case BY_GR_K_ARR: to = by_gr_step(g, by_gr_arr_body(g, n), byte); break;
    case BY_GR_K_SEQ:
        to = by_gr_seq(g, by_gr_step(g, n.a, byte), n.b);
        if (by_gr_nullable(g, n.a)) to = by_gr_alt2(g, to, by_gr_step(g, n.b, byte));
        break;
    case BY_GR_K_ALT:
        for (uint32_t i = 0; i < n.x; i++)
            to = by_gr_alt2(g, to, by_gr_step(g, g->lists.v[n.a + i], byte));
        break;
    default: to = by_gr_next(g, t, byte); break;
    }
    g->depth--;
    return to;
}

by_gr_term by_gr_step_bytes(by_gr *g, by_gr_term t, by_str s) {
    for (size_t i = 0; i < s.len && t != BY_GR_NEVER; i++)
        t = by_gr_step(g, t, (uint8_t)s.ptr[i]);
    return t;
}
