/* tok_derive.c - what encoding needs beyond the file's own lists: the pair table, how each id is made, whether the merges
 * are proper, which ids can appear in an encoding, the tries. */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tok/tok_load.h"

static by_status out_of_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for the tokenizer"); }

/* ---- pairs ---- */

by_status by_tok_alloc_pairs(by_tok *t, size_t n, by_err *err) {
    uint32_t slots = 16, bits = 7;
    while (slots < 2 * n) slots *= 2;
    while ((size_t)1 << bits < 16 * n) bits++;
    t->pairs = by_alloc(BY_MEM_TOK, slots * sizeof *t->pairs);
    t->pair_filter = by_alloc_zero(BY_MEM_TOK, ((size_t)1 << bits) / 8);
    if (!t->pairs || !t->pair_filter) return out_of_memory(err);
    for (uint32_t i = 0; i < slots; i++) t->pairs[i] = (by_tok_pair){.id = -1};
    t->pair_mask = slots - 1;
    t->filter_shift = 64 - bits;
    return BY_OK;
}

bool by_tok_add_pair(by_tok *t, by_tok_pair pair, int32_t *rank) {
    const by_tok_pair *old = by_tok_pair_find(t, pair.left, pair.right);
    if (old) {
        *rank = old->rank;
        return false;
    }
    uint64_t h = by_tok_pair_hash(pair.left, pair.right), bit = h >> t->filter_shift;
    t->pair_filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
    uint32_t i = (uint32_t)h & t->pair_mask;
    while (t->pairs[i].id >= 0) i = (i + 1) & t->pair_mask;
    t->pairs[i] = pair;
    return true;
}

/* ---- how ids are made ---- */

/* Pairs in the order of their ranks. */
static by_tok_pair *pairs_by_rank(const by_tok *t, size_t *n) {
    *n = 0;
    for (uint32_t i = 0; i <= t->pair_mask; i++) *n += t->pairs[i].id >= 0;
    by_tok_pair *list = by_alloc(BY_MEM_TOK, (*n + 1) * sizeof *list);
    for (uint32_t i = 0; list && i <= t->pair_mask; i++)
        if (t->pairs[i].id >= 0) list[t->pairs[i].rank] = t->pairs[i]; /* ranks are 0..n-1, each once */
    return list;
}

static bool is_byte(const by_tok *t, int32_t id) {
    return by_tok_len(t, id) == 1 && t->byte_ids[(unsigned char)t->bytes[t->at[id]]] == id;
}

/* Fills made and tells whether the merges are proper (see tok_bpe.c). */
static bool record_merges(by_tok *t, const by_tok_pair *list, size_t n) {
    bool proper = true;
    for (size_t i = 0; i < n; i++) {
        const by_tok_pair *p = &list[i];
        by_tok_made *made = &t->made[p->id];
        for (int k = 0; k < 2; k++) {
            int32_t part = k ? p->right : p->left;
            proper = proper && (is_byte(t, part) || t->made[part].rank != BY_TOK_RANK_NONE);
        }
        if (made->rank != BY_TOK_RANK_NONE) {
            proper = false;
            continue;
        }
        made->left = p->left;
        made->right = p->right;
        made->rank = p->rank;
    }
    return proper;
}

/* An id is whole when its parts are and no merge crosses their seam before the one that joins them. */
static void mark_whole(by_tok *t, const by_tok_pair *list, size_t n) {
    for (int b = 0; b < 256; b++) t->flags[t->byte_ids[b]] |= BY_TOK_WHOLE;
    for (size_t i = 0; i < n; i++) {
        const by_tok_pair *p = &list[i];
        bool parts = t->flags[p->left] & t->flags[p->right] & BY_TOK_WHOLE;
        if (parts && by_tok_seam_holds(t, p->left, p->right, p->rank)) t->flags[p->id] |= BY_TOK_WHOLE;
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
            t->made[i].shorter = by_tok_trie_longest(&t->whole, t->bytes + t->at[i], len - 1);
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
    size_t n;
    by_tok_pair *list = pairs_by_rank(t, &n);
    if (!list) return out_of_memory(err);
    t->linear = record_merges(t, list, n) && !plain_merges;
    if (t->linear) mark_whole(t, list, n);
    by_free(list);
    BY_TRY(list_added(t, err));
    if (!t->linear) BY_TRY(mark_whole_by_merging(t, err));
    BY_TRY(build_trie(t, &t->whole, BY_TOK_WHOLE, err));
    link_shorter(t);
    mark_clean(t);
    return BY_OK;
}
