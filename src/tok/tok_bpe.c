/* tok_bpe.c - merging one piece. The rule: merge the adjacent pair of lowest rank, leftmost first among equals, until no
 * pair has a merge.
 *
 * merge_heap follows the rule literally with a linked list and a heap, O(n log n). It works for every file.
 *
 * merge_linear finds the same result without merging. It needs proper merges: every id is made by at most one merge, from
 * parts that are bytes or made by earlier merges. Then time can be told by rank (a pair of lower rank never appears
 * after a merge of higher rank), and two facts hold:
 *
 *   - A sequence of ids is the encoding of its bytes exactly when every id is the encoding of its own bytes and every two
 *     neighbours are the encoding of theirs. For consider the first merge that crosses a seam of the sequence: until
 *     then both sides of that seam evolve as they do alone, so the two neighbours alone would cross as well. The same
 *     holds among merges of one rank, since they are made from left to right.
 *   - So the encoding of each prefix that ends at a seam is known once found, and unique: an offset that led into a dead
 *     end once is dead for good.
 *
 * Hence: take the longest id that begins at the offset and may stand behind the one before, else the next shorter one
 * (by_tok_made.shorter); if none is left, mark the offset dead and take a shorter one before it. Every offset is entered
 * once. Test of one against the other: tests/prop/prop_tok.c. */
#include <string.h>

#include "base/alloc.h"
#include "tok/tok_impl.h"

void by_tok_work_deinit(by_tok_work *w) {
    by_free(w->dead);
    by_free(w->nodes);
    by_free(w->heap);
    *w = (by_tok_work){0};
}

/* ---- linear ---- */

/* Walks back in time along the right edge of `left` and the left edge of `right`: at each step the two ids that touch
 * the seam, each with the rank of the merge that ends its life. They merge across the seam when their pair's rank comes
 * before both ends; on a tie the merge further left is first. */
bool by_tok_seam_holds(const by_tok *t, int32_t left, int32_t right, int32_t before) {
    int32_t left_end = before, right_end = before;
    for (;;) {
        int32_t rank = by_tok_pair_rank(t, left, right);
        if (rank < left_end && rank <= right_end) return false;
        int32_t made_left = t->made[left].rank, made_right = t->made[right].rank;
        if (made_left > made_right) {
            left_end = made_left;
            left = t->made[left].right;
        } else if (made_right != BY_TOK_RANK_NONE) {
            right_end = made_right;
            right = t->made[right].left;
        } else {
            return true; /* two bytes */
        }
    }
}

/* The same for a seam between two characters and all merges, which is nearly every seam of a text. Only ids that have a merge
 * with a neighbour across such a seam, early enough, are visited (by_tok_edges). Lives of the ids at one edge follow each other,
 * so of the two steps possible the one to the id that lived longer is the only one that can reach a common time. */
static bool seam_holds_between_characters(const by_tok *t, int32_t left, int32_t right) {
    int32_t left_end = INT32_MAX, right_end = INT32_MAX;
    for (;;) {
        int32_t rank = by_tok_pair_rank(t, left, right);
        if (rank < left_end && rank <= right_end) return false;
        by_tok_edge l = t->edges[left].right, r = t->edges[right].left;
        if (l.end > r.end) {
            left = l.id;
            left_end = l.end;
        } else if (r.end >= 0) {
            right = r.id;
            right_end = r.end;
        } else {
            return true;
        }
    }
}

/* `first` is the first byte of right: inside a character the long way is taken. Keeping the answers does not pay: only half
 * of the seams of a text have been met before, and a table of answers drives other tables out of the cache. */
static inline bool seam_holds(const by_tok *t, int32_t left, int32_t right, char first) {
    if (((unsigned char)first & 0xc0) == 0x80) return by_tok_seam_holds(t, left, right, INT32_MAX);
    return seam_holds_between_characters(t, left, right);
}

/* Clears the marks of a piece; they are needed only after the first dead end, which most pieces do not have. */
static by_status reset_dead(by_tok_work *w, size_t len, by_err *err) {
    size_t words = len / 64 + 1;
    if (words > w->cap_dead) {
        uint64_t *dead = by_realloc(BY_MEM_TOK, w->dead, (words + words / 2) * sizeof *dead);
        if (!dead) return BY_FAIL(err, BY_ENOMEM, "out of memory while encoding a piece of %zu bytes", len);
        w->dead = dead;
        w->cap_dead = words + words / 2;
    }
    memset(w->dead, 0, words * sizeof *w->dead);
    return BY_OK;
}

static by_tok_match shorter_match(const by_tok *t, int32_t id) {
    int32_t shorter = t->made[id].shorter;
    return (by_tok_match){shorter, shorter >= 0 ? by_tok_len(t, shorter) : 0};
}

static by_status merge_linear(const by_tok *t, by_tok_work *w, const char *piece, size_t len, int32_t *out, size_t *n,
                              by_err *err) {
    size_t at = 0, k = 0;
    bool any_dead = false;
    by_tok_match m = by_tok_trie_longest(&t->whole, piece, len);
    for (;;) {
        for (; m.value >= 0; m = shorter_match(t, m.value)) {
            size_t end = at + m.len;
            if (any_dead && w->dead[end >> 6] >> (end & 63) & 1) continue;
            if (k == 0 || seam_holds(t, out[k - 1], m.value, piece[at])) break;
        }
        if (m.value >= 0) {
            out[k++] = m.value;
            at += m.len;
            if (at == len) break;
            m = by_tok_trie_longest(&t->whole, piece + at, len - at);
            continue;
        }
        if (k == 0) return BY_FAIL(err, BY_EINTERNAL, "the tokenizer finds no encoding of a piece of %zu bytes", len);
        if (!any_dead) BY_TRY(reset_dead(w, len, err));
        any_dead = true;
        w->dead[at >> 6] |= (uint64_t)1 << (at & 63);
        k--;
        at -= by_tok_len(t, out[k]);
        m = shorter_match(t, out[k]);
    }
    *n = k;
    return BY_OK;
}

/* ---- heap ---- */

static bool earlier(const by_tok_candidate *a, const by_tok_candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(by_tok_candidate *heap, size_t *n, by_tok_candidate c) {
    size_t i = (*n)++;
    while (i > 0 && earlier(&c, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = c;
}

static by_tok_candidate heap_pop(by_tok_candidate *heap, size_t *n) {
    by_tok_candidate top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && earlier(&heap[child + 1], &heap[child])) child++;
        if (!earlier(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* Node 0 is the list's end on both sides; the bytes are nodes 1..len. At most 3 len candidates are ever pushed: len - 1
 * at first, two per merge, and there are at most len - 1 merges. */
static by_status reserve_heap(by_tok_work *w, size_t len, by_err *err) {
    if (len + 1 > w->cap_nodes) {
        size_t cap = by_add_size(len, len / 2 + 16);
        by_tok_node *nodes = by_realloc(BY_MEM_TOK, w->nodes, by_mul_size(cap, sizeof *nodes));
        if (!nodes) return BY_FAIL(err, BY_ENOMEM, "out of memory while encoding a piece of %zu bytes", len);
        w->nodes = nodes;
        w->cap_nodes = cap;
    }
    if (3 * len > w->cap_heap) {
        size_t cap = by_mul_size(3, len + len / 2 + 16);
        by_tok_candidate *heap = by_realloc(BY_MEM_TOK, w->heap, by_mul_size(cap, sizeof *heap));
        if (!heap) return BY_FAIL(err, BY_ENOMEM, "out of memory while encoding a piece of %zu bytes", len);
        w->heap = heap;
        w->cap_heap = cap;
    }
    return BY_OK;
}

static void consider(const by_tok *t, by_tok_work *w, size_t *n_heap, uint32_t at) {
    uint32_t next = w->nodes[at].next;
    if (at == 0 || next == 0) return;
    int32_t rank = by_tok_pair_rank(t, w->nodes[at].id, w->nodes[next].id);
    if (rank != BY_TOK_NO_RANK) heap_push(w->heap, n_heap, (by_tok_candidate){.rank = rank, .at = at});
}

static by_status merge_heap(const by_tok *t, by_tok_work *w, const char *piece, size_t len, int32_t *out, size_t *n,
                            by_err *err) {
    if (len > UINT32_MAX / 8) return BY_FAIL(err, BY_ELIMIT, "a piece of %zu bytes is too long to encode", len);
    BY_TRY(reserve_heap(w, len, err));
    by_tok_node *nodes = w->nodes;
    for (uint32_t i = 0; i <= len; i++) {
        int32_t id = i ? t->byte_ids[(unsigned char)piece[i - 1]] : -1;
        nodes[i] = (by_tok_node){.id = id, .prev = i ? i - 1 : (uint32_t)len, .next = i < len ? i + 1 : 0};
    }
    size_t n_heap = 0;
    for (uint32_t i = 1; i < len; i++) consider(t, w, &n_heap, i);
    while (n_heap) {
        by_tok_candidate c = heap_pop(w->heap, &n_heap);
        const by_tok_merge *merge = &t->merges[c.rank];
        uint32_t next = nodes[c.at].next;
        if (nodes[c.at].id != merge->left || next == 0 || nodes[next].id != merge->right) continue; /* merged otherwise since */
        nodes[c.at].id = merge->id;
        nodes[next].id = -1;
        nodes[c.at].next = nodes[next].next;
        nodes[nodes[next].next].prev = c.at;
        consider(t, w, &n_heap, nodes[c.at].prev);
        consider(t, w, &n_heap, c.at);
    }
    size_t k = 0;
    for (uint32_t i = nodes[0].next; i; i = nodes[i].next) out[k++] = nodes[i].id;
    *n = k;
    return BY_OK;
}

by_status by_tok_bpe(const by_tok *t, by_tok_work *w, const char *piece, size_t len, int32_t *out, size_t *n,
                     by_err *err) {
    if (!t->linear) return merge_heap(t, w, piece, len, out, n, err);
    return merge_linear(t, w, piece, len, out, n, err);
}
