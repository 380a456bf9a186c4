/* grammar_assert.c - assertions of regular expressions that ask what stands before a place, or stand inside repeats.
 *
 * Such an assertion is a byte in the language, a mark, at every place where it was asked. What it asks is a condition on whole texts
 * with marks: none of them stands at a place that does not satisfy it. LIFT reads a language of texts as one of texts with marks
 * anywhere, ERASE takes the marks out again, once the conditions are met. */
#include "grammar/grammar_internal.h"

static bool is_mark(unsigned byte) {
    return byte >= BY_GR_MARK_FIRST && byte < BY_GR_MARK_FIRST + BY_GR_MARKS;
}

by_gr_term by_gr_lift(by_gr *g, by_gr_term a) {
    if (a == BY_GR_NEVER || a == BY_GR_ANYBYTES || by_gr_bad(g)) return by_gr_bad(g) ? BY_GR_NEVER : a;
    return by_gr_node_make(g, BY_GR_K_LIFT, 0, a, 0, 0, g->nodes[a].flags & BY_GR_F_NULLABLE);
}

by_gr_term by_gr_erase(by_gr *g, by_gr_term a) {
    if (a <= BY_GR_EPS || by_gr_bad(g)) return by_gr_bad(g) ? BY_GR_NEVER : a;
    return by_gr_node_make(g, BY_GR_K_ERASE, 0, a, 0, 0, g->nodes[a].flags & BY_GR_F_NULLABLE);
}

/* Maps the targets outside the marks; room for one range more. */
static unsigned map_texts(by_gr *g, const by_gr_row *row, by_gr_term (*fn)(by_gr *, by_gr_term), by_gr_range *out) {
    unsigned k = 0, last = BY_GR_MARK_FIRST + BY_GR_MARKS - 1;
    for (unsigned i = 0; i < row->n; i++) {
        by_gr_range r = row->r[i];
        if (r.lo < BY_GR_MARK_FIRST) out[k++] = (by_gr_range){r.lo, r.hi < BY_GR_MARK_FIRST ? r.hi : BY_GR_MARK_FIRST - 1, fn(g, r.to)};
        if (r.hi > last) out[k++] = (by_gr_range){r.lo > last ? r.lo : (uint8_t)(last + 1), r.hi, fn(g, r.to)};
    }
    return k;
}

const by_gr_row *by_gr_row_lift(by_gr *g, by_gr_node n, by_gr_term self) {
    by_gr_range out[258];
    unsigned k = map_texts(g, by_gr_row_of(g, n.a), by_gr_lift, out), at = k;
    while (at > 0 && out[at - 1].lo > BY_GR_MARK_FIRST)
        out[at] = out[at - 1], at--;
    out[at] = (by_gr_range){BY_GR_MARK_FIRST, BY_GR_MARK_FIRST + BY_GR_MARKS - 1, self};
    return by_gr_row_make(g, out, k + 1, NULL, 0);
}

/* Marks are passed without a byte: what follows any number of them goes on beside the state itself. */
const by_gr_row *by_gr_row_erase(by_gr *g, by_gr_node n) {
    by_gr_vec states = {0};
    by_gr_vec_push(g, &states, n.a);
    for (uint32_t i = 0; i < states.n && !by_gr_bad(g); i++) {
        const by_gr_row *row = by_gr_row_of(g, states.v[i]);
        for (unsigned k = 0; k < row->n; k++) {
            uint32_t seen = 0;
            if (!is_mark(row->r[k].lo) && !is_mark(row->r[k].hi)) continue;
            while (seen < states.n && states.v[seen] != row->r[k].to)
                seen++;
            if (seen == states.n) by_gr_vec_push(g, &states, row->r[k].to);
        }
    }
    by_gr_range out[258];
    unsigned k = by_gr_bad(g) ? 0 : map_texts(g, by_gr_row_of(g, by_gr_alt(g, states.v, states.n)), by_gr_erase, out);
    by_gr_vec_free(&states);
    return by_gr_row_make(g, out, k, NULL, 0);
}
