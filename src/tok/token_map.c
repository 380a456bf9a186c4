/* token_map.c - see token_map.h. The key of an id is the normalised text; an id whose bytes are not whole characters keeps its
 * spelling in the file as the key, so that partial characters never meet. */
#include "tok/token_map.h"

#include <string.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "tok/tok_impl.h"
#include "tok/unicode_class.h"
#include "tok/unicode_fold.h"

/* ---- text ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static bool is_white(uint32_t cp) {
    by_unicode_class c = by_unicode_class_of(cp);
    return c == BY_UC_SPACE || c == BY_UC_NEWLINE;
}

/* Folds runs of blanks within [from, out->len) in place. */
static void fold_blanks(by_buf *out, size_t from) {
    size_t to = from;
    for (size_t i = from; i < out->len; i++) {
        bool blank = is_blank(out->ptr[i]);
        if (blank && to > from && i > from && is_blank(out->ptr[i - 1])) continue;
        out->ptr[to++] = blank ? ' ' : out->ptr[i];
    }
    out->len = to;
}

static void trim(by_buf *out, size_t from) {
    size_t begin = from, end = from;
    for (size_t i = from; i < out->len;) {
        by_utf8_step st = by_utf8_next(out->ptr + i, out->len - i);
        i += st.n;
        if (!is_white(st.cp)) end = i;
        else if (end == from) begin = i;
    }
    if (end == from) begin = from; /* nothing but white space */
    if (begin > from) memmove(out->ptr + from, out->ptr + begin, end - begin);
    out->len = from + (end - begin);
}

bool by_tok_normalise(by_buf *out, by_str text) {
    size_t from = out->len;
    for (size_t i = 0; i < text.len;) {
        by_utf8_step st = by_utf8_next(text.ptr + i, text.len - i);
        i += st.n;
        char folded[BY_UNICODE_FOLD_MAX];
        if (!by_buf_push(out, folded, by_unicode_fold(st.cp, folded))) return false;
    }
    fold_blanks(out, from);
    if (out->len == from + 1 && out->ptr[from] == ' ') return true;
    trim(out, from);
    return true;
}

/* ---- keys ---- */

/* The text that an id decodes to. For an added token that is the content, unless all its characters are byte symbols: the
 * reference decodes the content like any other spelling then. */
static bool decode_id(const by_tok *t, int32_t id, by_buf *out) {
    by_str bytes = by_tok_bytes(t, id);
    if (!by_tok_is_added(t, id)) return by_utf8_push_lossy(out, bytes);
    by_buf raw = {0};
    bool symbols = true, ok = true;
    for (size_t i = 0; i < bytes.len && symbols;) {
        by_utf8_step st = by_utf8_next(bytes.ptr + i, bytes.len - i);
        int byte = by_tok_symbol_byte(st.cp);
        symbols = byte >= 0;
        ok = ok && (!symbols || by_buf_push_byte(&raw, (char)byte));
        i += st.n;
    }
    ok = ok && (symbols ? by_utf8_push_lossy(out, by_buf_str(&raw)) : by_buf_push_str(out, bytes));
    by_buf_deinit(&raw);
    return ok;
}

static bool has_replacement(by_str s) { return s.len && memmem(s.ptr, s.len, BY_UTF8_REPLACEMENT, 3) != NULL; }

/* Key of an id with bytes. text is working memory. */
static bool key_of(const by_tok *t, int32_t id, by_buf *text, by_buf *key) {
    by_buf_clear(text);
    by_buf_clear(key);
    if (!decode_id(t, id, text)) return false;
    if (has_replacement(by_buf_str(text))) {
        by_tok_spelling(t, id, key);
        return !key->failed;
    }
    if (!by_tok_normalise(key, by_buf_str(text))) return false;
    return key->len || by_buf_push_str(key, by_buf_str(text));
}

/* ---- numbering ---- */

typedef struct {
    by_str key; /* ptr NULL: empty */
    int32_t number;
} slot;

static slot *find_slot(slot *slots, size_t mask, by_str key) {
    uint64_t h = key.len;
    for (size_t i = 0; i < key.len; i++) h = (h ^ (unsigned char)key.ptr[i]) * 0x100000001b3u;
    for (size_t i = (size_t)(h ^ h >> 32) & mask;; i = (i + 1) & mask)
        if (!slots[i].key.ptr || by_str_eq(slots[i].key, key)) return &slots[i];
}

static by_status out_of_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for compressed token ids"); }

static by_status number_ids(const by_tok *t, int32_t *map, int32_t n_vocab, int32_t *n_distinct, by_arena *arena,
                            by_buf *text, by_buf *key, by_err *err) {
    size_t n_slots = 16;
    while (n_slots < 2 * (size_t)n_vocab) n_slots *= 2;
    slot *slots = by_arena_zero(arena, n_slots * sizeof *slots);
    if (!slots) return out_of_memory(err);
    int32_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        map[id] = -1;
        if (!by_tok_bytes(t, id).ptr) continue;
        if (!key_of(t, id, text, key)) return out_of_memory(err);
        slot *s = find_slot(slots, n_slots - 1, by_buf_str(key));
        if (!s->key.ptr) {
            s->key = by_arena_dup(arena, by_buf_str(key));
            if (!s->key.ptr) return out_of_memory(err);
            s->number = n++;
        }
        map[id] = s->number;
    }
    *n_distinct = n;
    return BY_OK;
}

by_status by_tok_compressed_ids(const by_tok *tok, int32_t *map, int32_t n_vocab, int32_t *n_distinct, by_err *err) {
    if (n_vocab < 1 || n_vocab > BY_LIMIT_VOCAB)
        return BY_FAIL(err, BY_EINVAL, "a vocabulary of %d ids is outside 1..%d", n_vocab, BY_LIMIT_VOCAB);
    by_arena arena;
    by_buf text = {0}, key = {0};
    by_arena_init(&arena, BY_MEM_TOK);
    by_status status = number_ids(tok, map, n_vocab, n_distinct, &arena, &text, &key, err);
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
    by_buf_deinit(&key);
    return status;
}
