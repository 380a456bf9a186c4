/* safetensors.c - see safetensors.h. */
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const struct {
    const char *name;
    int bits;
} dtypes[BY_ST_DTYPE_N] = {
#define ROW(name, text, bits) {text, bits},
    BY_ST_DTYPE_TABLE(ROW)
#undef ROW
};

const char *by_st_dtype_name(by_st_dtype t) {
    return (unsigned)t < BY_ST_DTYPE_N ? dtypes[t].name : "?";
}
int by_st_dtype_bits(by_st_dtype t) {
    return (unsigned)t < BY_ST_DTYPE_N ? dtypes[t].bits : 0;
}

static by_st_dtype dtype_of(by_str name) {
    for (int i = 1; i < BY_ST_DTYPE_N; i++)
        if (by_str_eqz(name, dtypes[i].name)) return (by_st_dtype)i;
    return BY_ST_OTHER;
}

by_status by_st_reader_init(by_st_reader *r, const unsigned char *file, size_t size, by_err *err) {
    memset(r, 0, sizeof *r);
    if (size < 8) return BY_FAIL(err, BY_EFORMAT, "%zu bytes are too few for a safetensors file", size);
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)file[i] << (8 * i);
    if (n > size - 8)
        return BY_FAIL(err, BY_EFORMAT, "header of %" PRIu64 " bytes is larger than the file of %zu bytes", n, size);
    if (n > BY_LIMIT_ST_HEADER_BYTES)
        return BY_FAIL(err, BY_EFORMAT, "header of %" PRIu64 " bytes is over the limit of %u", n,
                       BY_LIMIT_ST_HEADER_BYTES);
    by_str text = by_str_of((const char *)file + 8, (size_t)n);
    size_t bad = 0;
    if (!by_utf8_valid(text, &bad)) return BY_FAIL(err, BY_EFORMAT, "header: byte %zu is not valid UTF-8", bad);
    r->data_off = 8 + n;
    r->data_bytes = size - 8 - n;
    by_json_walk_init(&r->walk, text);
    by_status status = by_json_walk_begin_object(&r->walk, err);
    if (status < 0) by_err_prefix(err, "header: ");
    return status;
}

void by_st_reader_deinit(by_st_reader *r) {
    by_json_walk_deinit(&r->walk);
}

/* Reads the list [a, b, ...]; more than cap numbers are read but not kept. */
static by_status read_list(by_json_walk *w, uint64_t *out, int cap, int *n, by_err *err) {
    *n = 0;
    BY_TRY(by_json_walk_begin_array(w, err));
    by_status status;
    while ((status = by_json_walk_item(w, err)) == BY_OK) {
        uint64_t v = 0;
        BY_TRY(by_json_walk_uint(w, &v, err));
        if (*n < cap) out[*n] = v;
        (*n)++;
    }
    return status == BY_END ? BY_OK : status;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

typedef struct {
    uint64_t shape[BY_LIMIT_ST_DIMS], offsets[2];
    int n_dims, n_offsets;
    unsigned has, twice;
} fields;

static by_status read_fields(by_json_walk *w, by_st_entry *out, fields *f, by_err *err) {
    BY_TRY(by_json_walk_begin_object(w, err));
    by_status status;
    by_str key, text;
    /* the entry's name lives in the key buffer when it has escapes; the inner keys must not overwrite it */
    by_buf name_buf = w->keys;
    w->keys = (by_buf){0};
    while ((status = by_json_walk_member(w, &key, err)) == BY_OK) {
        unsigned bit = 0;
        if (by_str_eqz(key, "dtype")) {
            bit = HAS_DTYPE;
            status = by_json_walk_string(w, &text, err);
            if (status == BY_OK) out->dtype = dtype_of(text);
        } else if (by_str_eqz(key, "shape")) {
            bit = HAS_SHAPE;
            status = read_list(w, f->shape, BY_LIMIT_ST_DIMS, &f->n_dims, err);
        } else if (by_str_eqz(key, "data_offsets")) {
            bit = HAS_OFFSETS;
            status = read_list(w, f->offsets, 2, &f->n_offsets, err);
        } else {
            status = by_json_walk_skip(w, err);
        }
        if (status < 0) break;
        f->twice |= f->has & bit;
        f->has |= bit;
    }
    by_buf_deinit(&w->keys);
    w->keys = name_buf;
    return status == BY_END ? BY_OK : status;
}

#define BAD(...) BY_FAIL(err, BY_ELIMIT, __VA_ARGS__)

static by_status check_entry(const by_st_reader *r, by_st_entry *out, const fields *f, by_err *err) {
    int len = (int)(out->name.len > 120 ? 120 : out->name.len);
    const char *name = out->name.ptr;
    if (f->has != 7 || f->twice)
        return BAD("tensor %.*s: dtype, shape or data_offsets is missing or given twice", len, name);
    if (f->n_offsets != 2) return BAD("tensor %.*s: data_offsets has %d numbers, not 2", len, name, f->n_offsets);
    if (f->n_dims > BY_LIMIT_ST_DIMS)
        return BAD("tensor %.*s: %d dimensions, at most %d", len, name, f->n_dims, BY_LIMIT_ST_DIMS);
    out->n_dims = f->n_dims;
    uint64_t count = 1, bits = (uint64_t)by_st_dtype_bits(out->dtype), want = 0;
    bool fits = true;
    for (int i = 0; i < f->n_dims; i++) {
        fits = fits && f->shape[i] <= INT64_MAX && !__builtin_mul_overflow(count, f->shape[i], &count);
        out->shape[i] = (int64_t)f->shape[i];
    }
    fits = fits && !__builtin_mul_overflow(count, bits / 8, &want);
    if (!fits) return BAD("tensor %.*s: its shape overflows 64 bits", len, name);
    out->begin = f->offsets[0];
    out->end = f->offsets[1];
    if (out->begin > out->end)
        return BAD("tensor %.*s: data_offsets [%" PRIu64 ", %" PRIu64 "] run backwards", len, name, out->begin,
                   out->end);
    if (out->end > r->data_bytes)
        return BAD("tensor %.*s: data_offsets [%" PRIu64 ", %" PRIu64 "] reach past the %" PRIu64
                   " data bytes of the file (truncated?)",
                   len, name, out->begin, out->end, r->data_bytes);
    if (out->dtype != BY_ST_OTHER && out->end - out->begin != want)
        return BAD("tensor %.*s: %" PRIu64 " bytes, but its shape and %s need %" PRIu64, len, name,
                   out->end - out->begin, by_st_dtype_name(out->dtype), want);
    return BY_OK;
}

by_status by_st_reader_next(by_st_reader *r, by_st_entry *out, by_err *err) {
    by_json_walk *w = &r->walk;
    by_status status;
    for (;;) {
        memset(out, 0, sizeof *out);
        status = by_json_walk_member(w, &out->name, err);
        if (status == BY_END) {
            status = by_json_walk_finish(w, err);
            if (status == BY_OK) return BY_END;
        }
        if (status < 0) break;
        if (by_str_eqz(out->name, "__metadata__")) {
            status = by_json_walk_skip(w, err);
            if (status < 0) break;
            continue;
        }
        fields f = {0};
        status = read_fields(w, out, &f, err);
        if (status < 0) break;
        return check_entry(r, out, &f, err);
    }
    if (status == BY_ELIMIT) status = err ? (err->code = BY_EFORMAT) : BY_EFORMAT; /* nesting: the walk cannot go on */
    if (status < 0) by_err_prefix(err, "header: ");
    return status;
}
