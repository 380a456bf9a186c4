/* grammar_trie.c - byte tries over word lists: choices, enums, keys, and "any text but these words". */
#include <stdlib.h>

#include "grammar/grammar_internal.h"

typedef struct {
    by_str s;
    uint32_t idx;
} word;

static int cmp_word(const void *a, const void *b) {
    const word *x = a, *y = b;
    int c = by_str_cmp(x->s, y->s);
    return c ? c : (x->idx > y->idx) - (x->idx < y->idx);
}

static uint32_t add_node(by_gr *g, by_gr_trie *t, uint8_t byte) {
    if (!by_gr_grow(g, &t->nodes, t->n, &t->cap, sizeof *t->nodes)) return 0;
    t->nodes[t->n] = (by_gr_trie_node){.byte = byte};
    return t->n++;
}

/* Words in sorted order: the new word's path leaves the last path at their common prefix. path[d] is the node at
 * depth d of the last word. */
static bool add_word(by_gr *g, by_gr_trie *t, by_str w, size_t common, uint32_t *path, uint32_t idx) {
    for (size_t d = common; d < w.len; d++) {
        uint32_t node = add_node(g, t, (uint8_t)w.ptr[d]);
        if (by_gr_bad(g)) return false;
        uint32_t parent = path[d];
        if (!t->nodes[parent].child)
            t->nodes[parent].child = node;
        else {
            uint32_t c = d == common ? path[d + 1] : t->nodes[parent].child; /* the last child so far */
            while (t->nodes[c].sibling)
                c = t->nodes[c].sibling;
            t->nodes[c].sibling = node;
        }
        path[d + 1] = node;
    }
    if (!t->nodes[path[w.len]].word) t->nodes[path[w.len]].word = idx + 1;
    return true;
}

/* Every node gets the list of the words at or below it: the words are sorted, so it is one run of order[]. */
static bool list_ids(by_gr *g, by_gr_trie *t, const word *ws, uint32_t n) {
    uint32_t base = g->lists.n;
    for (uint32_t i = 0; i < n; i++)
        if (!by_gr_vec_push(g, &g->lists, ws[i].idx)) return false;
    t->nodes[0].ids = base;
    t->nodes[0].n_ids = n;
    for (uint32_t i = 0; i < n; i++) { /* walk each word again; the first visitor of a node is its lowest word */
        uint32_t node = 0;
        for (size_t d = 0; d < ws[i].s.len; d++) {
            uint32_t c = t->nodes[node].child;
            while (t->nodes[c].byte != (uint8_t)ws[i].s.ptr[d])
                c = t->nodes[c].sibling;
            if (t->nodes[c].n_ids++ == 0) t->nodes[c].ids = base + i;
            node = c;
        }
    }
    return true;
}

uint32_t by_gr_trie_new(by_gr *g, const by_str *words, uint32_t n, bool ids) {
    if (by_gr_bad(g) || !by_gr_grow(g, &g->tries, g->n_tries, &g->cap_tries, sizeof *g->tries)) return UINT32_MAX;
    by_gr_trie t = {0};
    size_t longest = 0;
    word *ws = by_alloc(BY_MEM_GRAMMAR, by_mul_size(n ? n : 1, sizeof *ws));
    for (uint32_t i = 0; i < n; i++)
        longest = words[i].len > longest ? words[i].len : longest;
    uint32_t *path = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(longest + 2, sizeof *path));
    bool ok = ws && path;
    if (!ok) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    if (ok) {
        for (uint32_t i = 0; i < n; i++)
            ws[i] = (word){words[i], i};
        qsort(ws, n, sizeof *ws, cmp_word);
        add_node(g, &t, 0);
        ok = !by_gr_bad(g);
        for (uint32_t i = 0; i < n && ok; i++) {
            size_t common = 0;
            if (i) {
                size_t m = ws[i].s.len < ws[i - 1].s.len ? ws[i].s.len : ws[i - 1].s.len;
                while (common < m && ws[i].s.ptr[common] == ws[i - 1].s.ptr[common])
                    common++;
            }
            ok = add_word(g, &t, ws[i].s, common, path, ws[i].idx);
        }
    }
    if (ok && ids) ok = list_ids(g, &t, ws, n);
    by_free(ws);
    by_free(path);
    if (!ok) {
        by_free(t.nodes);
        return UINT32_MAX;
    }
    g->tries[g->n_tries] = t;
    return g->n_tries++;
}

by_gr_term by_gr_words(by_gr *g, const by_str *words, uint32_t n) {
    if (n == 0 || by_gr_bad(g)) return BY_GR_NEVER;
    if (n == 1) return by_gr_lit(g, words[0]);
    uint32_t t = by_gr_trie_new(g, words, n, false);
    if (t == UINT32_MAX) return BY_GR_NEVER;
    return by_gr_node_make(g, BY_GR_K_TRIE, 0, t, 0, 0, g->tries[t].nodes[0].word ? BY_GR_F_NULLABLE : 0);
}

by_gr_term by_gr_except(by_gr *g, const by_str *words, uint32_t n) {
    if (n == 0 || by_gr_bad(g)) return by_gr_bad(g) ? BY_GR_NEVER : BY_GR_ANYTEXT;
    uint32_t t = by_gr_trie_new(g, words, n, false);
    if (t == UINT32_MAX) return BY_GR_NEVER;
    return by_gr_node_make(g, BY_GR_K_EXCEPT, 0, t, 0, BY_GR_ANYTEXT, g->tries[t].nodes[0].word ? 0 : BY_GR_F_NULLABLE);
}
