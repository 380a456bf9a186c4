/* tok_decode.c - ids to text, whole and id by id, and access to the tables. */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tok/tok_impl.h"

/* ---- tables ---- */

int32_t by_tok_n_ids(const by_tok *t) { return t->n_ids; }

static uint8_t flags_of(const by_tok *t, int32_t id) { return id >= 0 && id < t->n_ids ? t->flags[id] : 0; }

by_str by_tok_bytes(const by_tok *t, int32_t id) {
    if (!(flags_of(t, id) & BY_TOK_PRESENT)) return (by_str){0};
    return by_str_of(t->bytes + t->at[id], by_tok_len(t, id));
}

bool by_tok_is_added(const by_tok *t, int32_t id) { return flags_of(t, id) & BY_TOK_ADDED; }
bool by_tok_is_special(const by_tok *t, int32_t id) { return flags_of(t, id) & BY_TOK_SPECIAL; }

size_t by_tok_n_added(const by_tok *t) { return t->n_added; }

by_tok_added by_tok_added_at(const by_tok *t, size_t i) {
    int32_t id = t->added_ids[i];
    return (by_tok_added){.id = id, .special = by_tok_is_special(t, id), .content = by_tok_bytes(t, id)};
}

int32_t by_tok_find_added(const by_tok *t, by_str content) {
    return by_tok_trie_exact(&t->added, content.ptr, content.len);
}

int32_t by_tok_find_bytes(const by_tok *t, by_str bytes) {
    return by_tok_trie_exact(&t->whole, bytes.ptr, bytes.len);
}

bool by_tok_spelling(const by_tok *t, int32_t id, by_buf *out) {
    uint8_t flags = flags_of(t, id);
    if (!(flags & BY_TOK_PRESENT)) return false;
    by_str bytes = by_tok_bytes(t, id);
    if (flags & (BY_TOK_ADDED | BY_TOK_VERBATIM)) {
        by_buf_push_str(out, bytes);
        return true;
    }
    for (size_t i = 0; i < bytes.len; i++) {
        char utf8[4];
        by_buf_push(out, utf8, by_utf8_put(by_tok_byte_symbol((unsigned char)bytes.ptr[i]), utf8));
    }
    return true;
}

/* ---- whole ---- */

by_status by_tok_decode(const by_tok *t, const int32_t *ids, size_t n, bool skip_special, by_buf *out, by_err *err) {
    by_tok_stream s;
    by_tok_stream_init(&s, t, BY_TOK_STREAM_LOSSLESS, skip_special);
    by_status status = BY_OK;
    for (size_t i = 0; i < n && status == BY_OK; i++) status = by_tok_stream_push(&s, ids[i], out, err);
    if (status == BY_OK) status = by_tok_stream_finish(&s, out, err);
    by_tok_stream_deinit(&s);
    return status;
}

/* ---- id by id ---- */

void by_tok_stream_init(by_tok_stream *s, const by_tok *tok, by_tok_stream_mode mode, bool skip_special) {
    *s = (by_tok_stream){.tok = tok, .mode = mode, .skip_special = skip_special};
}

void by_tok_stream_deinit(by_tok_stream *s) { by_buf_deinit(&s->pending); }

static by_status out_of_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory while decoding token ids"); }

/* by_buf_push_str, in place for the usual case of a short text and room for it. */
static inline bool push_bytes(by_buf *out, by_str s) {
    enum { SHORT = 16 };
    if (s.len > SHORT || out->cap - out->len < SHORT) return by_buf_push_str(out, s);
    char *to = out->ptr + out->len;
    for (size_t i = 0; i < s.len; i++) to[i] = s.ptr[i];
    out->len += s.len;
    return true;
}

/* Moves `settled` over everything that is decided; tells whether the last character of the decided text is a good one.
 * was_good is the answer while nothing new is decided. */
static bool settle(by_tok_stream *s, bool was_good) {
    while (s->settled < s->pending.len) {
        const char *p = s->pending.ptr + s->settled;
        by_utf8_step st = by_utf8_next(p, s->pending.len - s->settled);
        if (st.kind == BY_UTF8_CUT) return was_good;
        was_good = st.kind == BY_UTF8_CHAR && st.cp != 0xfffd;
        s->settled += st.n;
    }
    return was_good;
}

/* Appends the decided part to out and keeps the rest. */
static by_status emit(by_tok_stream *s, by_buf *out, by_err *err) {
    if (!by_utf8_push_lossy(out, by_str_of(s->pending.ptr, s->settled))) return out_of_memory(err);
    s->pending.len -= s->settled;
    if (s->pending.len) memmove(s->pending.ptr, s->pending.ptr + s->settled, s->pending.len);
    s->settled = 0;
    return BY_OK;
}

by_status by_tok_stream_push(by_tok_stream *s, int32_t id, by_buf *out, by_err *err) {
    uint8_t flags = flags_of(s->tok, id);
    if (!(flags & BY_TOK_PRESENT) || (s->skip_special && flags & BY_TOK_SPECIAL)) return BY_OK;
    by_str bytes = by_str_of(s->tok->bytes + s->tok->at[id], by_tok_len(s->tok, id));
    if (s->pending.len == 0 && flags & BY_TOK_CLEAN) /* nearly every id */
        return push_bytes(out, bytes) ? BY_OK : out_of_memory(err);
    if (!by_buf_push_str(&s->pending, bytes)) return out_of_memory(err);
    bool good = settle(s, false);
    if (s->mode == BY_TOK_STREAM_LOSSLESS) return emit(s, out, err);
    return good && s->settled == s->pending.len ? emit(s, out, err) : BY_OK;
}

by_status by_tok_stream_finish(by_tok_stream *s, by_buf *out, by_err *err) {
    by_status status = BY_OK;
    if (s->mode == BY_TOK_STREAM_LOSSLESS && s->pending.len) {
        s->settled = s->pending.len;
        status = emit(s, out, err);
    }
    s->pending.len = s->settled = 0;
    return status;
}
