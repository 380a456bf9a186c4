/* slow_tok.c - see slow_tok.h. */
#include "support/slow_tok.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tok/tok_impl.h"
#include "tok/unicode_class.h"

/* ---- splitting ---- */

typedef struct {
    uint32_t *cp;      /* [n] */
    unsigned char *cut; /* [n + 1] 1 where a piece ends */
} text_view;

static bool is_class(uint32_t cp, by_unicode_class c) { return by_unicode_class_of(cp) == c; }
static bool is_letter(uint32_t cp) { return is_class(cp, BY_UC_LETTER) || is_class(cp, BY_UC_MARK); }
static bool is_newline(uint32_t cp) { return cp == '\r' || cp == '\n'; }
static bool is_space(uint32_t cp) { return is_class(cp, BY_UC_SPACE) || is_newline(cp); }
static bool is_alpha(uint32_t cp) { return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z'); }
static bool is_punct(uint32_t cp) { return is_class(cp, BY_UC_PUNCT); }

/* Matchers: end of a match at i within [i, n), or i for none. n is the end of the piece, which is the end of text. */

static size_t match_digits(const uint32_t *s, size_t i, size_t n) {
    size_t j = i;
    while (j < n && j < i + 3 && is_class(s[j], BY_UC_NUMBER)) j++;
    return j;
}

static size_t match_cjk(const uint32_t *s, size_t i, size_t n) {
    size_t j = i;
    while (j < n && is_class(s[j], BY_UC_CJK)) j++;
    return j;
}

static size_t match_rest(const uint32_t *s, size_t i, size_t n) {
    size_t j;
    if (s[i] < 0x80 && is_punct(s[i])) { /* a */
        for (j = i + 1; j < n && is_alpha(s[j]);) j++;
        if (j > i + 1) return j;
    }
    for (size_t lead = 2; lead-- > 0;) { /* b: with the optional character first, then without */
        if (lead && (is_newline(s[i]) || is_class(s[i], BY_UC_LETTER) || is_punct(s[i]))) continue;
        for (j = i + lead; j < n && is_letter(s[j]);) j++;
        if (j > i + lead) return j;
    }
    for (size_t lead = 2; lead-- > 0;) { /* c */
        if (lead && s[i] != ' ') continue;
        for (j = i + lead; j < n && is_punct(s[j]);) j++;
        if (j == i + lead) continue;
        while (j < n && is_newline(s[j])) j++;
        return j;
    }
    for (j = i; j < n && is_space(s[j]);) j++;
    size_t run = j;
    for (; j > i; j--) /* d: give back until the last character is a line end */
        if (is_newline(s[j - 1])) return j;
    for (j = run; j > i; j--) /* e: give back until the next character is no \S */
        if (j == n || is_space(s[j])) return j;
    return run; /* f */
}

static void split(const text_view *t, size_t n, size_t (*match)(const uint32_t *, size_t, size_t)) {
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; !t->cut[end];) end++;
        for (size_t i = begin; i < end;) {
            size_t j = match(t->cp, i, end);
            if (j == i) {
                i++;
                continue;
            }
            t->cut[i] = t->cut[j] = 1;
            i = j;
        }
    }
}

size_t by_slow_pieces(by_str text, size_t *ends) {
    size_t n = 0, n_ends = 0, at = 0;
    text_view t = {calloc(text.len + 1, sizeof *t.cp), calloc(text.len + 1, 1)};
    if (!t.cp || !t.cut) abort();
    for (size_t i = 0; i < text.len; n++) {
        by_utf8_step st = by_utf8_next(text.ptr + i, text.len - i);
        t.cp[n] = st.cp;
        i += st.n;
    }
    t.cut[0] = t.cut[n] = 1;
    split(&t, n, match_digits);
    split(&t, n, match_cjk);
    split(&t, n, match_rest);
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        at += by_utf8_put(t.cp[i], utf8);
        if (t.cut[i + 1]) ends[n_ends++] = at;
    }
    free(t.cp);
    free(t.cut);
    return n_ends;
}

/* ---- merging ---- */

static void push(by_tok_ids *ids, int32_t id) {
    if (ids->n == ids->cap) {
        ids->cap = ids->cap * 2 + 64;
        ids->ids = by_realloc(BY_MEM_TOK, ids->ids, ids->cap * sizeof *ids->ids);
        if (!ids->ids) abort();
    }
    ids->ids[ids->n++] = id;
}

void by_slow_merge(const by_tok *tok, by_str piece, by_tok_ids *out) {
    size_t from = out->n;
    for (size_t i = 0; i < piece.len; i++) push(out, tok->byte_ids[(unsigned char)piece.ptr[i]]);
    for (;;) {
        int32_t best = BY_TOK_NO_RANK;
        size_t best_at = 0;
        for (size_t i = from; i + 1 < out->n; i++) {
            int32_t rank = by_tok_pair_rank(tok, out->ids[i], out->ids[i + 1]);
            if (rank >= best) continue;
            best = rank;
            best_at = i;
        }
        if (best == BY_TOK_NO_RANK) return;
        out->ids[best_at] = tok->merges[best].id;
        out->n--;
        memmove(out->ids + best_at + 1, out->ids + best_at + 2, (out->n - best_at - 1) * sizeof *out->ids);
    }
}

void by_slow_encode(const by_tok *tok, by_str text, by_tok_ids *out) {
    size_t *ends = calloc(text.len + 1, sizeof *ends), at = 0;
    if (!ends) abort();
    size_t n = by_slow_pieces(text, ends);
    for (size_t i = 0; i < n; i++) {
        by_slow_merge(tok, by_str_of(text.ptr + at, ends[i] - at), out);
        at = ends[i];
    }
    free(ends);
}
