/* tok_encode.c - text to ids: added tokens, pieces, the cache of pieces.
 *
 * Most pieces of a text have been seen before. The cache is direct-mapped and small enough for L2: 32 bytes an entry, the
 * piece itself (up to 15 bytes, with its length in the last byte) as the key, up to three ids. What does not fit goes
 * through by_tok_bpe each time, which for a piece that is one id is a single walk down the trie. */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tok/tok_impl.h"
#include "tok/tok_split.h"

enum { CACHE_BITS = 13, KEY_BYTES = 15, CACHE_IDS = 3 };

typedef struct {
    uint64_t low, high; /* bytes, zero-padded; top byte of high: length, 0 = empty */
    int32_t ids[CACHE_IDS];
    uint32_t n;
} cache_entry;

_Static_assert(sizeof(cache_entry) == 32, "two entries fill a cache line");

struct by_tok_scratch {
    const by_tok *tok;
    by_tok_work work;
    cache_entry cache[1 << CACHE_BITS];
};

by_status by_tok_scratch_create(by_tok_scratch **out, const by_tok *tok, by_err *err) {
    by_tok_scratch *s = by_alloc_zero(BY_MEM_TOK, sizeof *s);
    if (!s) return BY_FAIL(err, BY_ENOMEM, "out of memory for the tokenizer's working memory");
    s->tok = tok;
    *out = s;
    return BY_OK;
}

void by_tok_scratch_destroy(by_tok_scratch *s) {
    if (!s) return;
    by_tok_work_deinit(&s->work);
    by_free(s);
}

/* ---- output ---- */

void by_tok_ids_deinit(by_tok_ids *ids) {
    by_free(ids->ids);
    *ids = (by_tok_ids){0};
}

static by_status grow(by_tok_ids *ids, size_t room, by_err *err) {
    size_t cap = by_add_size(ids->cap + ids->cap / 2, by_add_size(room, 64));
    int32_t *fresh = by_realloc(BY_MEM_TOK, ids->ids, by_mul_size(cap, sizeof *fresh));
    if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for %zu token ids", cap);
    ids->ids = fresh;
    ids->cap = cap;
    return BY_OK;
}

static inline by_status reserve(by_tok_ids *ids, size_t room, by_err *err) {
    return ids->cap - ids->n >= room ? BY_OK : grow(ids, room, err);
}

by_status by_tok_ids_reserve(by_tok_ids *ids, size_t n, by_err *err) { return reserve(ids, n, err); }

by_status by_tok_ids_push(by_tok_ids *ids, int32_t id, by_err *err) {
    BY_TRY(reserve(ids, 1, err));
    ids->ids[ids->n++] = id;
    return BY_OK;
}

/* ---- pieces ---- */

/* The encoder's state for one call. */
typedef struct {
    const by_tok *tok;
    by_tok_work *work;
    cache_entry *cache; /* NULL: none */
    by_tok_ids *out;
    by_err *err;
} encoder;

/* First 16 bytes at p with everything behind len zero; 16 bytes are readable when `room` says so. */
static inline void load_key(const unsigned char *p, size_t len, bool room, uint64_t *low, uint64_t *high) {
    unsigned char bytes[16] = {0};
    if (!room) {
        memcpy(bytes, p, len);
        memcpy(low, bytes, 8);
        memcpy(high, bytes + 8, 8);
        return;
    }
    memcpy(low, p, 8);
    memcpy(high, p + 8, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    *low = __builtin_bswap64(*low);
    *high = __builtin_bswap64(*high);
#endif
    if (len < 8) {
        *low &= ((uint64_t)1 << 8 * len) - 1;
        *high = 0;
    } else {
        *high &= ((uint64_t)1 << 8 * (len - 8)) - 1; /* len <= 15 */
    }
}

static by_status encode_uncached(encoder *e, const unsigned char *p, size_t len, size_t *n) {
    BY_TRY(reserve(e->out, len, e->err));
    BY_TRY(by_tok_bpe(e->tok, e->work, (const char *)p, len, e->out->ids + e->out->n, n, e->err));
    e->out->n += *n;
    return BY_OK;
}

static by_status encode_cached(encoder *e, const unsigned char *p, size_t len, const unsigned char *text_end) {
    uint64_t low, high;
    load_key(p, len, text_end - p >= 16, &low, &high);
    high |= (uint64_t)len << 56;
    uint64_t h = (low ^ (high << 23 | high >> 41)) * 0x9e3779b97f4a7c15u;
    cache_entry *c = &e->cache[h >> (64 - CACHE_BITS)];
    if (c->low == low && c->high == high) {
        BY_TRY(reserve(e->out, CACHE_IDS, e->err));
        memcpy(e->out->ids + e->out->n, c->ids, sizeof c->ids);
        e->out->n += c->n;
        return BY_OK;
    }
    size_t n;
    BY_TRY(encode_uncached(e, p, len, &n));
    if (n > CACHE_IDS) return BY_OK;
    c->low = low;
    c->high = high;
    c->n = (uint32_t)n;
    memcpy(c->ids, e->out->ids + e->out->n - n, n * sizeof c->ids[0]);
    return BY_OK;
}

static by_status encode_plain(encoder *e, by_str text) {
    const unsigned char *p = (const unsigned char *)text.ptr, *end = p + text.len;
    while (p < end) {
        const unsigned char *next = by_tok_piece_end(p, end);
        size_t len = (size_t)(next - p), n;
        if (len <= KEY_BYTES && e->cache) BY_TRY(encode_cached(e, p, len, end));
        else BY_TRY(encode_uncached(e, p, len, &n));
        p = next;
    }
    return BY_OK;
}

/* The next place at or behind `at` where an added token may begin, or text.len. */
static size_t next_candidate(const by_tok *t, by_str text, size_t at) {
    const uint64_t ones = 0x0101010101010101u, high = 0x80 * ones;
    while (t->n_added_starts <= BY_TOK_STARTS && text.len - at >= 8) { /* eight bytes at a time */
        uint64_t w, found = 0;
        memcpy(&w, text.ptr + at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        w = __builtin_bswap64(w);
#endif
        for (uint32_t i = 0; i < t->n_added_starts; i++) {
            uint64_t x = w ^ t->added_starts[i] * ones; /* zero where the byte is; the lowest mark is exact */
            found |= (x - ones) & ~x & high;
        }
        if (found) return at + ((size_t)__builtin_ctzll(found) >> 3);
        at += 8;
    }
    while (at < text.len && !t->added_first[(unsigned char)text.ptr[at]]) at++;
    return at;
}

static by_status encode_full(encoder *e, by_str text) {
    const by_tok *t = e->tok;
    size_t from = 0, at = 0;
    while ((at = next_candidate(t, text, at)) < text.len) {
        by_tok_match m = by_tok_trie_longest(&t->added, text.ptr + at, text.len - at);
        if (m.value < 0) {
            at++;
            continue;
        }
        BY_TRY(encode_plain(e, by_str_of(text.ptr + from, at - from)));
        BY_TRY(by_tok_ids_push(e->out, m.value, e->err));
        at += m.len;
        from = at;
    }
    return encode_plain(e, by_str_skip(text, from));
}

/* ---- public ---- */

size_t by_tok_next_piece(by_str text, size_t at) {
    const unsigned char *p = (const unsigned char *)text.ptr;
    return (size_t)(by_tok_piece_end(p + at, p + text.len) - p);
}

by_status by_tok_check_encode(const by_tok *tok, by_err *err) {
    if (tok->cannot_encode.code != BY_OK && err) *err = tok->cannot_encode;
    return tok->cannot_encode.code;
}

static by_status begin(encoder *e, by_tok_scratch *scratch, by_tok_work *own, by_str text) {
    BY_TRY(by_tok_check_encode(e->tok, e->err));
    if (scratch && scratch->tok != e->tok)
        return BY_FAIL(e->err, BY_EINVAL, "the working memory is for another tokenizer");
    e->work = scratch ? &scratch->work : own;
    e->cache = scratch ? scratch->cache : NULL;
    size_t bad;
    if (by_utf8_valid(text, &bad)) return BY_OK;
    return BY_FAIL(e->err, BY_EFORMAT, "the text is not UTF-8: byte 0x%02x at offset %zu", (unsigned char)text.ptr[bad],
                   bad);
}

by_status by_tok_encode(const by_tok *tok, by_tok_scratch *scratch, by_str text, by_tok_mode mode, by_tok_ids *out,
                        by_err *err) {
    by_tok_work own = {0};
    encoder e = {.tok = tok, .out = out, .err = err};
    size_t n = out->n;
    if (text.len == 0) text = BY_STR(""); /* the pointer may be NULL */
    by_status status = begin(&e, scratch, &own, text);
    if (status == BY_OK) status = mode == BY_TOK_FULL ? encode_full(&e, text) : encode_plain(&e, text);
    if (status < 0) out->n = n;
    by_tok_work_deinit(&own);
    return status;
}

static bool is_boundary(by_str text, size_t at) {
    return at == text.len || ((unsigned char)text.ptr[at] & 0xc0) != 0x80;
}

static by_status encode_ranges(encoder *e, by_str text, const by_tok_range *ranges, size_t n_ranges) {
    size_t at = 0;
    for (size_t i = 0; i < n_ranges; i++) {
        by_tok_range r = ranges[i];
        if (r.begin < at || r.end <= r.begin || r.end > text.len || !is_boundary(text, r.begin) ||
            !is_boundary(text, r.end))
            return BY_FAIL(e->err, BY_EINVAL,
                           "range %zu, bytes %zu..%zu: out of order, outside the %zu bytes, or cuts a character", i,
                           r.begin, r.end, text.len);
        by_str spelling = by_str_of(text.ptr + r.begin, r.end - r.begin);
        int32_t id = by_tok_find_added(e->tok, spelling);
        if (id < 0)
            return BY_FAIL(e->err, BY_EMISSING, "the tokenizer has no added token '%.*s'", BY_STR_ARG(spelling));
        BY_TRY(encode_plain(e, by_str_of(text.ptr + at, r.begin - at)));
        BY_TRY(by_tok_ids_push(e->out, id, e->err));
        at = r.end;
    }
    return encode_plain(e, by_str_skip(text, at));
}

by_status by_tok_encode_ranges(const by_tok *tok, by_tok_scratch *scratch, by_str text, const by_tok_range *ranges,
                               size_t n_ranges, by_tok_ids *out, by_err *err) {
    by_tok_work own = {0};
    encoder e = {.tok = tok, .out = out, .err = err};
    size_t n = out->n;
    if (text.len == 0) text = BY_STR("");
    by_status status = begin(&e, scratch, &own, text);
    if (status == BY_OK) status = encode_ranges(&e, text, ranges, n_ranges);
    if (status < 0) out->n = n;
    by_tok_work_deinit(&own);
    return status;
}
