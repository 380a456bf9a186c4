/* json_walk.c - see json_walk.h. Errors give the byte offset: such files are one long line. */
#include "json/json_walk.h"

#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "json/json_scan.h"

#define FAIL_AT(w, p, what) BY_FAIL(err, BY_EFORMAT, "byte %zu: %s", (size_t)((p) - (w)->start), what)

void by_json_walk_init(by_json_walk *w, by_str text) {
    *w = (by_json_walk){.at = text.ptr, .end = text.ptr + text.len, .start = text.ptr, .opened = true};
}

void by_json_walk_deinit(by_json_walk *w) {
    by_buf_deinit(&w->keys);
    by_buf_deinit(&w->strings);
}

static void skip_space(by_json_walk *w) {
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\n' || *w->at == '\r' || *w->at == '\t'))
        w->at++;
}

by_json_type by_json_walk_peek(by_json_walk *w) {
    skip_space(w);
    if (w->at >= w->end) return BY_JSON_NULL;
    switch (*w->at) {
    case '{': return BY_JSON_OBJECT;
    case '[': return BY_JSON_ARRAY;
    case '"': return BY_JSON_STRING;
    case 't':
    case 'f': return BY_JSON_BOOL;
    default: return *w->at == '-' || (*w->at >= '0' && *w->at <= '9') ? BY_JSON_INT : BY_JSON_NULL;
    }
}

static by_status begin(by_json_walk *w, char open, const char *what, by_err *err) {
    skip_space(w);
    if (w->at >= w->end || *w->at != open) return FAIL_AT(w, w->at, what);
    w->at++;
    w->opened = true;
    return BY_OK;
}

by_status by_json_walk_begin_object(by_json_walk *w, by_err *err) {
    return begin(w, '{', "expected '{'", err);
}
by_status by_json_walk_begin_array(by_json_walk *w, by_err *err) {
    return begin(w, '[', "expected '['", err);
}

/* Reads the closing bracket or the comma that is due; BY_OK when something follows. */
static by_status next(by_json_walk *w, char close, by_err *err) {
    skip_space(w);
    bool opened = w->opened;
    w->opened = false;
    if (w->at < w->end && *w->at == close) {
        w->at++;
        return BY_END;
    }
    if (opened) return BY_OK;
    if (w->at >= w->end || *w->at != ',')
        return FAIL_AT(w, w->at, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    w->at++;
    return BY_OK;
}

static int hex4(const char *p, const char *end) {
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* p is behind a backslash; appends the character (out may be NULL) and returns the position behind the escape, or NULL.
 */
static const char *unescape_one(const char *p, const char *end, by_buf *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p >= end) return NULL;
    if (*p != 'u') {
        const char *hit = memchr(from, *p, sizeof from - 1);
        if (!hit) return NULL;
        if (out) by_buf_push_byte(out, to[hit - from]);
        return p + 1;
    }
    int hi = hex4(p + 1, end);
    p += 5;
    if (hi < 0 || (hi >= 0xdc00 && hi < 0xe000)) return NULL;
    uint32_t cp = (uint32_t)hi;
    if (hi >= 0xd800 && hi < 0xdc00) {
        int lo = end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2, end) : -1;
        if (lo < 0xdc00 || lo >= 0xe000) return NULL;
        cp = 0x10000 + ((cp - 0xd800) << 10) + ((uint32_t)lo - 0xdc00);
        p += 6;
    }
    char utf8[4];
    if (out) by_buf_push(out, utf8, by_utf8_put(cp, utf8));
    return p;
}

/* Reads a string; *out is set only when scratch is given. */
static by_status read_string(by_json_walk *w, by_buf *scratch, by_str *out, by_err *err) {
    skip_space(w);
    if (w->at >= w->end || *w->at != '"') return FAIL_AT(w, w->at, "expected a string");
    const char *open = w->at++, *from = w->at, *p = from;
    bool copied = false;
    if (scratch) by_buf_clear(scratch);
    for (;;) {
        p = by_json_plain_end(p, w->end);
        if (p >= w->end) return FAIL_AT(w, open, "string is not closed");
        if (*p == '"') break;
        if (*p != '\\') return FAIL_AT(w, p, "control character in a string");
        if (scratch) by_buf_push(scratch, from, (size_t)(p - from));
        const char *behind = unescape_one(p + 1, w->end, scratch);
        if (!behind) return FAIL_AT(w, p, "bad escape in a string");
        from = p = behind;
        copied = true;
    }
    w->at = p + 1;
    if (!scratch) return BY_OK;
    if (copied) {
        by_buf_push(scratch, from, (size_t)(p - from));
        BY_TRY(by_buf_check(scratch, err));
    }
    *out = copied ? by_buf_str(scratch) : by_str_of(from, (size_t)(p - from));
    return BY_OK;
}

by_status by_json_walk_member(by_json_walk *w, by_str *key, by_err *err) {
    by_status status = next(w, '}', err);
    if (status != BY_OK) return status;
    BY_TRY(read_string(w, &w->keys, key, err));
    skip_space(w);
    if (w->at >= w->end || *w->at != ':') return FAIL_AT(w, w->at, "expected ':'");
    w->at++;
    return BY_OK;
}

by_status by_json_walk_item(by_json_walk *w, by_err *err) {
    return next(w, ']', err);
}

by_status by_json_walk_string(by_json_walk *w, by_str *out, by_err *err) {
    return read_string(w, &w->strings, out, err);
}

static const char *digits(const char *p, const char *end) {
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

by_status by_json_walk_uint(by_json_walk *w, uint64_t *out, by_err *err) {
    skip_space(w);
    const char *p = w->at, *stop = digits(p, w->end);
    if (stop == p) return FAIL_AT(w, p, "expected a non-negative integer");
    if (*p == '0' && stop - p > 1) return FAIL_AT(w, p, "number with a leading zero");
    if (stop < w->end && (*stop == '.' || *stop == 'e' || *stop == 'E')) return FAIL_AT(w, p, "expected an integer");
    uint64_t v = 0;
    for (; p < stop; p++)
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return FAIL_AT(w, w->at, "integer above 2^64");
    w->at = stop;
    *out = v;
    return BY_OK;
}

static by_status skip_number(by_json_walk *w, by_err *err) {
    const char *p = w->at + (*w->at == '-'), *stop = digits(p, w->end);
    if (stop == p) return FAIL_AT(w, p, "expected a digit");
    if (*p == '0' && stop - p > 1) return FAIL_AT(w, p, "number with a leading zero");
    p = stop;
    if (p < w->end && *p == '.') {
        stop = digits(p + 1, w->end);
        if (stop == p + 1) return FAIL_AT(w, p, "expected a digit after the point");
        p = stop;
    }
    if (p < w->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < w->end && (*p == '+' || *p == '-')) p++;
        stop = digits(p, w->end);
        if (stop == p) return FAIL_AT(w, p, "expected a digit in the exponent");
        p = stop;
    }
    w->at = p;
    return BY_OK;
}

static by_status skip_word(by_json_walk *w, by_err *err) {
    static const by_str words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    for (int i = 0; i < 3; i++) {
        if (!by_str_starts(by_str_of(w->at, (size_t)(w->end - w->at)), words[i])) continue;
        w->at += words[i].len;
        return BY_OK;
    }
    return FAIL_AT(w, w->at, "expected a value");
}

static by_status skip_value(by_json_walk *w, int depth, by_err *err) {
    by_status status = BY_OK;
    by_str key;
    switch (by_json_walk_peek(w)) {
    case BY_JSON_OBJECT:
    case BY_JSON_ARRAY: break;
    case BY_JSON_STRING: return read_string(w, NULL, &key, err);
    case BY_JSON_INT: return skip_number(w, err);
    default: return skip_word(w, err);
    }
    if (depth >= BY_LIMIT_JSON_DEPTH)
        return BY_FAIL(err, BY_ELIMIT, "byte %zu: nested deeper than %d", (size_t)(w->at - w->start),
                       BY_LIMIT_JSON_DEPTH);
    bool object = *w->at == '{';
    w->at++;
    w->opened = true;
    while ((status = object ? by_json_walk_member(w, &key, err) : by_json_walk_item(w, err)) == BY_OK)
        BY_TRY(skip_value(w, depth + 1, err));
    return status == BY_END ? BY_OK : status;
}

by_status by_json_walk_skip(by_json_walk *w, by_err *err) {
    return skip_value(w, 0, err);
}

by_status by_json_walk_finish(by_json_walk *w, by_err *err) {
    skip_space(w);
    return w->at == w->end ? BY_OK : FAIL_AT(w, w->at, "text after the value");
}
