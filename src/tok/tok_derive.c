/* tok_derive.c - what encoding needs beyond the file's own lists: the pair table, how each id is made, whether the merges
 * are proper, which ids can appear in an encoding, the tries. */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tok/tok_load.h"

static by_status out_of_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for the tokenizer"); }

/* ---- merges ---- */

by_status by_tok_alloc_merges(by_tok *t, size_t n, by_err *err) {
    uint32_t slot_bits = 4, filter_bits = 7;
    while ((size_t)1 << slot_bits < 2 * n) slot_bits++;
    while ((size_t)1 << filter_bits < 16 * n) filter_bits++;
    t->merges = by_alloc(BY_MEM_TOK, (n + 1) * sizeof *t->merges);
    t->pairs = by_alloc_zero(BY_MEM_TOK, sizeof *t->pairs << slot_bits);
    t->pair_filter = by_alloc_zero(BY_MEM_TOK, ((size_t)1 << filter_bits) / 8);
    if (!t->merges || !t->pairs || !t->pair_filter) return out_of_memory(err);
    t->pair_mask = ((uint64_t)1 << slot_bits) - 1;
    t->pair_shift = 64 - slot_bits;
    t->filter_shift = 64 - filter_bits;
    return BY_OK;
}

bool by_tok_add_merge(by_tok *t, by_tok_merge merge, int32_t *rank) {
    *rank = by_tok_pair_rank(t, merge.left, merge.right);
    if (*rank != BY_TOK_NO_RANK) return false;
    uint64_t h = by_tok_pair_hash(merge.left, merge.right), bit = h >> t->filter_shift, i = h >> t->pair_shift;
    t->pair_filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
    while (t->pairs[i]) i = (i + 1) & t->pair_mask;
    t->merges[t->n_merges++] = merge;
    t->pairs[i] = by_tok_pair_key(merge.left, merge.right) | (uint32_t)t->n_merges; /* rank + 1 */
    return true;
}

/* ---- how ids are made ---- */

static bool is_byte(const by_tok *t, int32_t id) {
    return by_tok_len(t, id) == 1 && t->byte_ids[(unsigned char)t->bytes[t->at[id]]] == id;
}

/* Fills made and tells whether the merges are proper (see tok_bpe.c). */
static bool record_merges(by_tok *t) {
    bool proper = true;
    for (int32_t rank = 0; rank < t->n_merges; rank++) {
        const by_tok_merge *m = &t->merges[rank];
        by_tok_made *made = &t->made[m->id];
        for (int k = 0; k < 2; k++) {
            int32_t part = k ? m->right : m->left;
            proper = proper && (is_byte(t, part) || t->made[part].rank != BY_TOK_RANK_NONE);
        }
        if (made->rank != BY_TOK_RANK_NONE) {
            proper = false;
            continue;
        }
        made->left = m->left;
        made->right = m->right;
        made->rank = rank;
    }
    return proper;
}

/* An id is whole when its parts are and no merge crosses their seam before the one that joins them. */
static void mark_whole(by_tok *t) {
    for (int b = 0; b < 256; b++) t->flags[t->byte_ids[b]] |= BY_TOK_WHOLE;
    for (int32_t rank = 0; rank < t->n_merges; rank++) {
        const by_tok_merge *m = &t->merges[rank];
        bool parts = t->flags[m->left] & t->flags[m->right] & BY_TOK_WHOLE;
        if (parts && by_tok_seam_holds(t, m->left, m->right, rank)) t->flags[m->id] |= BY_TOK_WHOLE;
    }
}

/* The same by the definition, for merges that are not proper. */
static by_status mark_whole_by_merging(by_tok *t, by_err *err) {
    by_tok_work work = {0};
    by_tok_ids ids = {0};
    by_status status = BY_OK;
    for (int32_t i = 0; i < t->n_ids && status == BY_OK; i++) {
        by_str bytes = by_tok_bytes(t, i);
        if (!(t->flags[i] & BY_TOK_VOCAB) || t->flags[i] & BY_TOK_VERBATIM) continue;
        ids.n = 0;
        status = by_tok_ids_reserve(&ids, bytes.len, err);
        if (status == BY_OK) status = by_tok_bpe(t, &work, bytes.ptr, bytes.len, ids.ids, &ids.n, err);
        if (status == BY_OK && ids.n == 1 && ids.ids[0] == i) t->flags[i] |= BY_TOK_WHOLE;
    }
    by_tok_ids_deinit(&ids);
    by_tok_work_deinit(&work);
    return status;
}

/* ---- edges ---- */

/* False when the bytes end inside a character that begins in them: then no character boundary can follow. */
static bool may_end_character(by_str s) {
    for (size_t i = s.len; i-- > 0;) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c < 0x80) return true;
        if (c < 0xc0) continue;
        size_t want = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        return s.len - i >= want;
    }
    return true;
}

static bool may_begin_character(by_str s) { return ((unsigned char)s.ptr[0] & 0xc0) != 0x80; }

/* Per id the rank of its first merge across a character boundary, as the left part (first[0]) and as the right (first[1]). */
static void first_merges(const by_tok *t, int32_t *first[2]) {
    for (int32_t i = 0; i < t->n_ids; i++) first[0][i] = first[1][i] = BY_TOK_NO_RANK;
    for (int32_t rank = t->n_merges; rank-- > 0;) {
        const by_tok_merge *m = &t->merges[rank];
        if (!may_end_character(by_tok_bytes(t, m->left)) || !may_begin_character(by_tok_bytes(t, m->right))) continue;
        first[0][m->left] = first[1][m->right] = rank;
    }
}

/* The parts of an id come before it in rank order, so their edges are known. */
static by_status fill_edges(by_tok *t, by_err *err) {
    size_t n = (size_t)t->n_ids;
    t->edges = by_alloc(BY_MEM_TOK, (n + 1) * sizeof *t->edges);
    int32_t *both = by_alloc(BY_MEM_TOK, 2 * (n + 1) * sizeof *both), *first[2] = {both, both + n + 1};
    if (!t->edges || !both) {
        by_free(both);
        return out_of_memory(err);
    }
    first_merges(t, first);
    for (size_t i = 0; i < n; i++) t->edges[i] = (by_tok_edges){{-1, -1}, {-1, -1}};
    for (int32_t rank = 0; rank < t->n_merges; rank++) {
        const by_tok_merge *m = &t->merges[rank];
        by_tok_edges *e = &t->edges[m->id];
        e->right = first[0][m->right] < rank ? (by_tok_edge){m->right, rank} : t->edges[m->right].right;
        e->left = first[1][m->left] <= rank ? (by_tok_edge){m->left, rank} : t->edges[m->left].left;
    }
    by_free(both);
    return BY_OK;
}

/* ---- tries ---- */

static by_status build_trie(by_tok *t, by_tok_trie *trie, uint8_t flag, by_err *err) {
    size_t n = 0;
    for (int32_t i = 0; i < t->n_ids; i++) n += (t->flags[i] & flag) != 0;
    by_tok_key *keys = by_alloc(BY_MEM_TOK, (n + 1) * sizeof *keys);
    if (!keys) return out_of_memory(err);
    n = 0;
    for (int32_t i = 0; i < t->n_ids; i++)
        if (t->flags[i] & flag) keys[n++] = (by_tok_key){.text = by_tok_bytes(t, i), .value = i};
    by_status status = by_tok_trie_init(trie, keys, n, err);
    by_free(keys);
    return status;
}

static void link_shorter(by_tok *t) {
    for (int32_t i = 0; i < t->n_ids; i++) {
        uint32_t len = by_tok_len(t, i);
        if ((t->flags[i] & BY_TOK_WHOLE) && len > 1)
            t->made[i].shorter = by_tok_trie_longest(&t->whole, t->bytes + t->at[i], len - 1).value;
    }
}

static by_status list_added(by_tok *t, by_err *err) {
    t->added_ids = by_alloc(BY_MEM_TOK, (t->n_added + 1) * sizeof *t->added_ids);
    if (!t->added_ids) return out_of_memory(err);
    size_t n = 0;
    for (int32_t i = 0; i < t->n_ids; i++) {
        if (!(t->flags[i] & BY_TOK_ADDED)) continue;
        t->added_ids[n++] = i;
        t->added_first[(unsigned char)t->bytes[t->at[i]]] = true;
    }
    for (int b = 0; b < 256; b++) {
        if (!t->added_first[b]) continue;
        if (t->n_added_starts < BY_TOK_STARTS) t->added_starts[t->n_added_starts] = (uint8_t)b;
        t->n_added_starts++;
    }
    by_status status = build_trie(t, &t->added, BY_TOK_ADDED, err);
    return status < 0 ? by_err_prefix(err, "added_tokens: ") : status;
}

static void mark_clean(by_tok *t) {
    for (int32_t i = 0; i < t->n_ids; i++) {
        by_str bytes = by_tok_bytes(t, i);
        if (bytes.len && by_utf8_valid(bytes, NULL) && !by_str_ends(bytes, BY_STR(BY_UTF8_REPLACEMENT)))
            t->flags[i] |= BY_TOK_CLEAN;
    }
}

by_status by_tok_derive(by_tok *t, bool plain_merges, by_err *err) {
    t->linear = record_merges(t) && !plain_merges;
    if (t->linear) BY_TRY(fill_edges(t, err));
    if (t->linear) mark_whole(t);
    else BY_TRY(mark_whole_by_merging(t, err));
    BY_TRY(list_added(t, err));
    BY_TRY(build_trie(t, &t->whole, BY_TOK_WHOLE, err));
    link_shorter(t);
    mark_clean(t);
    return BY_OK;
}
