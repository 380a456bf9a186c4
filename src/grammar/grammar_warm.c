/* grammar_warm.c - masks of the states that a usual text goes through, made while the grammar is compiled.
 *
 * The first mask of a state costs microseconds, sometimes a millisecond, and all sequences of a step wait for it; compilation runs
 * beside them. So one text is walked as models write it (all declared keys in order, a blank behind colons and commas, short words
 * and numbers, two items in a list), and the masks at the ends of its tokens are made and kept. What it misses is made on demand. */
#include "base/clock.h"
#include "grammar/grammar_mask.h"

#define TEXT_MAX  1500u
#define CHAIN_MAX 16u /* parts of a sequence that are looked at */

typedef struct {
    by_gr *g;
    by_buf text;
    by_gr_vec states; /* before each byte */
    by_gr_vec seen;   /* lists behind whose item a comma was taken */
    uint32_t n_inside; /* characters of the string in progress */
} guide;

/* First part of kind a or b that can come next in t; NEVER when there is none. */
static by_gr_term find_part(by_gr *g, by_gr_term t, by_gr_kind a, by_gr_kind b, unsigned depth) {
    for (unsigned k = 0; k < CHAIN_MAX; k++) {
        by_gr_node n = g->nodes[t];
        by_gr_term head = n.kind == BY_GR_K_SEQ ? n.a : t, hit = BY_GR_NEVER;
        by_gr_node h = g->nodes[head];
        if (h.kind == a || h.kind == b) return head;
        for (uint32_t i = 0; h.kind == BY_GR_K_ALT && i < h.x && i < CHAIN_MAX && depth < 4 && hit == BY_GR_NEVER; i++)
            hit = find_part(g, g->lists.v[h.a + i], a, b, depth + 1);
        if (hit != BY_GR_NEVER || n.kind != BY_GR_K_SEQ || !by_gr_nullable(g, head)) return hit;
        t = n.b;
    }
    return BY_GR_NEVER;
}

static bool has(const by_gr_row *row, int byte) { return byte >= 0 && by_gr_row_get(row, (unsigned)byte) != BY_GR_NEVER; }

/* The first of the bytes that can come, or -1. */
static int first_of(const by_gr_row *row, const char *bytes) {
    for (; *bytes; bytes++)
        if (has(row, *bytes)) return *bytes;
    return -1;
}

static int inside_string(guide *w, const by_gr_row *row) {
    static const char word[] = "example";
    if (w->n_inside >= 3 && has(row, '"')) return '"';
    int b = word[w->n_inside % (sizeof word - 1)];
    if (has(row, b)) return b;
    b = first_of(row, "aeinrstobcdfghjklmpquvwxyz120-ABCDEFGHIJKLMNOPQRSTUVWXYZ ./:@_");
    if (b < 0 && has(row, '"')) return '"';
    for (unsigned i = 0; i < row->n && b < 0; i++)
        if (row->r[i].hi > ' ' && row->r[i].lo != '\\') b = row->r[i].lo > ' ' ? row->r[i].lo : '!';
    return b;
}

/* Between values. */
static int structure(guide *w, by_gr_term t, const by_gr_row *row) {
    by_gr *g = w->g;
    by_gr_term part = find_part(g, t, BY_GR_K_OBJ, BY_GR_K_ARR, 0);
    char last = w->text.len ? w->text.ptr[w->text.len - 1] : 0;
    if ((last == ':' || last == ',') && has(row, ' ')) return ' ';
    if (part != BY_GR_NEVER && g->nodes[part].kind == BY_GR_K_OBJ) {
        bool more = by_gr_obj_has_next(g, part);
        int b = first_of(row, more ? ",\"}" : g->nodes[part].x ? "},\"" : "\"},");
        if (b >= 0) return b;
    } else if (part != BY_GR_NEVER && g->nodes[part].x && (has(row, ',') || has(row, ']'))) {
        bool again = false;
        for (uint32_t i = 0; i < w->seen.n; i++)
            again |= w->seen.v[i] == part;
        if (!again) by_gr_vec_push(g, &w->seen, part);
        return first_of(row, again ? "]," : ",]");
    }
    int b = first_of(row, "{[\"1tn:,}]");
    return b >= 0 ? b : inside_string(w, row);
}

/* The next byte of the text, or -1 at its end. */
static int next_byte(guide *w, by_gr_term t) {
    by_gr *g = w->g;
    const by_gr_row *row = by_gr_row_of(g, t);
    if (row->n == 0) return -1;
    by_gr_term key = find_part(g, t, BY_GR_K_KEY, BY_GR_K_KEY, 0);
    if (key != BY_GR_NEVER) {
        int b = by_gr_key_hint(g, key);
        if (has(row, b)) return b;
    }
    if (find_part(g, t, BY_GR_K_JSTR, BY_GR_K_JSTR, 0) != BY_GR_NEVER) return inside_string(w, row);
    w->n_inside = 0;
    if (row->n == 1 && row->r[0].lo == row->r[0].hi) return row->r[0].lo;
    return structure(w, t, row);
}

static void write_text(guide *w, by_gr_term t, int64_t end_ns) {
    by_gr *g = w->g;
    while (w->text.len < TEXT_MAX && !by_gr_bad(g) && by_thread_ns() < end_ns) {
        if (!by_gr_vec_push(g, &w->states, t)) return;
        int b = next_byte(w, t);
        if (b < 0) return;
        t = by_gr_step(g, t, (unsigned)b);
        if (t == BY_GR_NEVER || !by_buf_push_byte(&w->text, (char)b)) return;
        w->n_inside++;
    }
}

/* Length of the longest token at the front of a text; at least 1. */
static size_t token_at(const by_grammar_vocab *v, by_str s) {
    uint32_t n = 0;
    size_t best = 1;
    for (size_t i = 0; i < s.len; i++) {
        uint32_t c = v->nodes[n].first, end = c + v->nodes[n].n_child;
        while (c < end && v->byte[c] < (uint8_t)s.ptr[i])
            c++;
        if (c == end || v->byte[c] != (uint8_t)s.ptr[i]) break;
        n = c;
        if (v->nodes[n].tok) best = i + 1;
    }
    return best;
}

void by_gr_warm(by_gr *g, by_gr_term root, int64_t budget_ns) {
    guide w = {.g = g};
    int64_t end = by_thread_ns() + budget_ns;
    write_text(&w, root, by_thread_ns() + budget_ns / 2);
    for (size_t i = 0; i < w.states.n && !by_gr_bad(g) && by_thread_ns() < end;) {
        by_gr_mask_of(g, w.states.v[i]);
        i += i < w.text.len ? token_at(g->vocab, by_str_skip(by_buf_str(&w.text), i)) : 1;
    }
    if (w.text.failed) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    by_buf_deinit(&w.text);
    by_gr_vec_free(&w.states);
    by_gr_vec_free(&w.seen);
}
