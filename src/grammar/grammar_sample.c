/* grammar_sample.c - random members: a random walk over live states that turns to the shortest completion in time. */
#include "base/rng.h"
#include "grammar/grammar_internal.h"

/* The next state that needs the fewest bytes, and its byte (256 + token set for a token edge). */
static by_gr_term shortest(by_gr *g, const by_gr_row *row, unsigned *byte) {
    by_gr_term best = BY_GR_NEVER;
    uint32_t least = UINT32_MAX;
    for (unsigned i = 0; i < row->n; i++) {
        uint32_t v = by_gr_min_bytes(g, row->r[i].to);
        if (v < least) least = v, best = row->r[i].to, *byte = row->r[i].lo;
    }
    for (unsigned i = 0; i < row->n_tok; i++) {
        uint32_t v = by_gr_min_bytes(g, row->tok[i].to);
        if (v < least) least = v, best = row->tok[i].to, *byte = 256 + row->tok[i].set;
    }
    return best;
}

static void emit(by_gr *g, by_buf *out, unsigned byte) {
    if (byte < 256) {
        by_buf_push_byte(out, (char)byte);
        return;
    }
    const by_gr_tokset *s = &g->toksets[byte - 256];
    if (!s->negate && s->n) by_buf_push_str(out, by_grammar_vocab_bytes(g->vocab, s->ids[0]));
}

/* Another way on from a state whose row offers what its memory of items refuses. */
static by_gr_term another(by_gr *g, by_gr_term from, const by_gr_row *row, unsigned *byte) {
    for (unsigned i = 0; i < row->n; i++)
        for (unsigned b = row->r[i].lo; b <= row->r[i].hi; b++) {
            by_gr_term t = by_gr_step(g, from, b);
            if (t != BY_GR_NEVER) return *byte = b, t;
        }
    return BY_GR_NEVER;
}

void by_gr_sample(by_gr *g, by_gr_term t, uint64_t seed, size_t max_bytes, by_buf *out) {
    by_rng rng = {seed};
    size_t base = out->len;
    while (!by_gr_bad(g) && !out->failed) {
        by_gr_begin_step(g);
        const by_gr_row *row = by_gr_row_of(g, t);
        unsigned n = row->n + row->n_tok, byte = 0;
        bool final = by_gr_nullable(g, t);
        size_t used = out->len - base;
        if (final && (n == 0 || used >= max_bytes || by_rng_below(&rng, 4) == 0)) return;
        if (n == 0) break;
        bool uniq = g->nodes[t].flags & BY_GR_F_UNIQ;
        by_gr_term from = t;
        if (used + by_gr_min_bytes(g, t) >= max_bytes || by_rng_below(&rng, 16) == 0)
            t = shortest(g, row, &byte);
        else {
            unsigned k = (unsigned)by_rng_below(&rng, n);
            if (k < row->n) {
                byte = row->r[k].lo + (unsigned)by_rng_below(&rng, row->r[k].hi - row->r[k].lo + 1u);
                t = row->r[k].to;
            } else {
                byte = 256 + row->tok[k - row->n].set;
                t = row->tok[k - row->n].to;
            }
        }
        if (uniq && byte < 256) t = by_gr_step(g, from, byte); /* the row does not remember items */
        if (uniq && t == BY_GR_NEVER) t = another(g, from, row, &byte);
        if (t == BY_GR_NEVER) break;
        emit(g, out, byte);
    }
    if (out->failed) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    else by_gr_fail(g, BY_EGRAMMAR, "grammar_dead_end: the sample has no end behind %zu bytes", out->len - base); /* or failed before */
}
