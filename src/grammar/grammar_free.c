/* grammar_free.c - free text with triggers and excluded strings: one Aho-Corasick automaton over all of them.
 *
 * A FREE term's state is (automaton state, UTF-8 state). A whole trigger is followed by what its tags allow; a part of
 * one is free text. An excluded string cannot be completed. Flag DONE: the text may end (a tag has come, or none must).
 */
#include <stdlib.h>

#include "grammar/grammar_internal.h"

#define STATES_MAX 20000u
#define DONE       0x100u

/* UTF-8 states: 0 between characters, then what the next byte may be. */
static unsigned utf8_next(unsigned s, unsigned b) {
    static const uint8_t lo[] = {0, 0x80, 0x80, 0x80, 0xa0, 0x80, 0x90, 0x80},
                         hi[] = {0, 0xbf, 0xbf, 0xbf, 0xbf, 0x9f, 0xbf, 0x8f};
    static const uint8_t to[] = {0, 0, 1, 2, 1, 1, 2, 2};
    if (s) return b >= lo[s] && b <= hi[s] ? to[s] : 255;
    if (b < 0x80) return 0;
    if (b >= 0xc2 && b <= 0xdf) return 1;
    if (b == 0xe0) return 4;
    if (b == 0xed) return 5;
    if (b >= 0xe1 && b <= 0xef) return 2;
    if (b == 0xf0) return 6;
    if (b == 0xf4) return 7;
    if (b >= 0xf1 && b <= 0xf3) return 3;
    return 255;
}

static by_gr_term make(by_gr *g, uint32_t f, uint32_t at, uint32_t u) {
    unsigned flags = (u & DONE) && (u & 0xff) == 0 ? BY_GR_F_NULLABLE : 0;
    if (g->frees[f].n_control) flags |= BY_GR_F_TOKENS;
    return by_gr_node_make(g, BY_GR_K_FREE, 0, f, at, u, flags);
}

/* Adds a word to the goto function. Returns its last state. */
static uint32_t add_word(by_gr_free *f, by_str w) {
    uint32_t s = 0;
    for (size_t i = 0; i < w.len; i++) {
        uint8_t b = (uint8_t)w.ptr[i];
        if (!f->next[s][b]) f->next[s][b] = f->n_states++;
        s = f->next[s][b];
    }
    return s;
}

static bool close_automaton(by_gr *g, by_gr_free *f) {
    uint32_t *q = by_alloc(BY_MEM_GRAMMAR, f->n_states * sizeof *q),
             *fail = by_alloc_zero(BY_MEM_GRAMMAR, f->n_states * sizeof *fail);
    uint32_t head = 0, tail = 0;
    if (!q || !fail) {
        by_free(q);
        by_free(fail);
        return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), false;
    }
    for (unsigned b = 0; b < 256; b++)
        if (f->next[0][b]) q[tail++] = f->next[0][b];
    while (head < tail) {
        uint32_t s = q[head++];
        if (f->hit[s] == -1) f->hit[s] = f->hit[fail[s]];
        for (unsigned b = 0; b < 256; b++) {
            uint32_t t = f->next[s][b];
            if (t) {
                fail[t] = f->next[fail[s]][b];
                q[tail++] = t;
            } else
                f->next[s][b] = f->next[fail[s]][b];
        }
    }
    by_free(q);
    by_free(fail);
    return true;
}

/* Control tokens inside triggers are letters of the automaton beyond those of UTF-8. */
#define FIRST_CONTROL 0xf8u

/* Text with the spellings of control tokens replaced by letters; new tokens are added to f->control. */
static by_str with_controls(by_gr *g, by_gr_free *f, by_str s) {
    char *p = by_gr_alloc(g, s.len + 1);
    size_t n = 0;
    for (size_t i = 0; p && i < s.len;) {
        uint32_t id;
        size_t len = by_gr_control_at(g, by_str_skip(s, i), &id);
        if (!len) {
            p[n++] = s.ptr[i++];
            continue;
        }
        uint32_t k = 0;
        while (k < f->n_control && f->control[k] != id)
            k++;
        if (k == 8) {
            by_gr_fail(g, BY_ELIMIT, "structural tag: triggers with more than 8 control tokens");
            return (by_str){0};
        }
        if (k == f->n_control) f->control[f->n_control++] = id;
        p[n++] = (char)(FIRST_CONTROL + k);
        i += len;
    }
    return by_str_of(p, p ? n : 0);
}

uint32_t by_gr_free_new(by_gr *g, const by_str *triggers, const by_gr_term *then, uint32_t n, const by_str *excludes,
                        uint32_t n_excl, bool loop) {
    size_t total = 1;
    for (uint32_t i = 0; i < n; i++)
        total += triggers[i].len;
    for (uint32_t i = 0; i < n_excl; i++)
        total += excludes[i].len;
    if (total > STATES_MAX) {
        by_gr_fail(g, BY_ELIMIT, "structural tag: triggers and excluded strings are longer than %u bytes", STATES_MAX);
        return UINT32_MAX;
    }
    if (!by_gr_grow(g, &g->frees, g->n_frees, &g->cap_frees, sizeof *g->frees)) return UINT32_MAX;
    by_gr_free f = {.n_states = 1, .n_triggers = n, .loop = loop};
    f.next = by_alloc_zero(BY_MEM_GRAMMAR, total * sizeof *f.next);
    f.hit = by_gr_alloc(g, total * sizeof *f.hit);
    f.then = by_gr_alloc(g, (n + 1) * sizeof *f.then);
    if (!f.next || !f.hit || !f.then) {
        by_free(f.next);
        by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
        return UINT32_MAX;
    }
    for (size_t i = 0; i < total; i++)
        f.hit[i] = -1;
    for (uint32_t i = 0; i < n_excl; i++)
        if (excludes[i].len) f.hit[add_word(&f, excludes[i])] = -2;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = add_word(&f, with_controls(g, &f, triggers[i]));
        if (f.hit[s] == -1) f.hit[s] = (int32_t)i;
        f.then[i] = then[i];
    }
    bool ok = close_automaton(g, &f);
    g->frees[g->n_frees] = f;
    g->n_frees++;
    return ok ? g->n_frees - 1 : UINT32_MAX;
}

by_gr_term by_gr_free_term(by_gr *g, uint32_t f, bool done) {
    return f == UINT32_MAX ? BY_GR_NEVER : make(g, f, 0, done ? DONE : 0);
}

by_gr_term by_gr_free_text(by_gr *g, const by_str *excludes, uint32_t n) {
    if (n == 0) return BY_GR_ANYTEXT;
    return by_gr_free_term(g, by_gr_free_new(g, NULL, NULL, 0, excludes, n, true), true);
}

const by_gr_row *by_gr_row_free(by_gr *g, by_gr_node n) {
    by_gr_range out[256];
    unsigned k = 0;
    for (unsigned b = 0; b < 256 && !by_gr_bad(g); b++) {
        const by_gr_free *f = &g->frees[n.a];
        unsigned u = utf8_next(n.c & 0xff, b);
        if (u == 255) continue;
        uint32_t s = f->next[n.b][b];
        int32_t hit = f->hit[s];
        by_gr_term to;
        if (hit == -2) continue;
        if (hit >= 0) {
            to = f->then[hit];
            if (f->loop) to = by_gr_seq(g, to, make(g, n.a, 0, DONE));
        } else
            to = make(g, n.a, s, (n.c & DONE) | u);
        out[k++] = (by_gr_range){(uint8_t)b, (uint8_t)b, to};
    }
    by_gr_tok_edge edges[8];
    unsigned n_edges = 0;
    uint32_t n_control = g->frees[n.a].n_control;
    for (uint32_t c = 0; c < n_control && (n.c & 0xff) == 0 && !by_gr_bad(g); c++) {
        const by_gr_free *f = &g->frees[n.a];
        uint32_t s = f->next[n.b][FIRST_CONTROL + c], id = f->control[c];
        if (s == 0) continue; /* a control token is allowed only as part of a trigger */
        int32_t hit = f->hit[s];
        by_gr_term to = hit >= 0 ? f->then[hit] : make(g, n.a, s, n.c);
        if (hit >= 0 && g->frees[n.a].loop) to = by_gr_seq(g, to, make(g, n.a, 0, DONE));
        edges[n_edges++] = (by_gr_tok_edge){g->nodes[by_gr_tok_set(g, &id, 1, false)].a, to};
    }
    return by_gr_row_make(g, out, k, edges, n_edges);
}
