/* json_write.c - see json_write.h. A string without escapes, the usual one, is one reservation and one copy. */
#include "json/json_write.h"

#include <math.h>
#include <string.h>

#include "json/json_scan.h"

/* by_buf_push for a few bytes of known number: no call while there is room. */
static inline void put(by_buf *out, const char *text, size_t n) {
    if (out->ptr && out->cap - out->len >= n) {
        memcpy(out->ptr + out->len, text, n);
        out->len += n;
    } else {
        by_buf_push(out, text, n);
    }
}

/* ---- strings ---- */

static void push_escape(by_buf *out, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    char letter = 0;
    switch (c) {
    case '"': letter = '"'; break;
    case '\\': letter = '\\'; break;
    case '\n': letter = 'n'; break;
    case '\r': letter = 'r'; break;
    case '\t': letter = 't'; break;
    case '\b': letter = 'b'; break;
    case '\f': letter = 'f'; break;
    default: break;
    }
    text[1] = letter ? letter : 'u';
    by_buf_push(out, text, letter ? 2 : 6);
}

void by_json_write_escaped(by_buf *out, by_str s) {
    if (s.len == 0) return;
    const char *p = s.ptr, *end = p + s.len;
    for (;;) {
        const char *stop = by_json_plain_end(p, end);
        by_buf_push(out, p, (size_t)(stop - p));
        if (stop == end) return;
        push_escape(out, (unsigned char)*stop);
        p = stop + 1;
    }
}

void by_json_write_string(by_buf *out, by_str s) {
    char *to = by_buf_reserve(out, by_add_size(s.len, 2)); /* one growth for the usual string */
    if (to && s.len && by_json_plain_end(s.ptr, s.ptr + s.len) == s.ptr + s.len) {
        to[0] = '"';
        memcpy(to + 1, s.ptr, s.len);
        to[s.len + 1] = '"';
        out->len += s.len + 2;
        return;
    }
    put(out, "\"", 1);
    by_json_write_escaped(out, s);
    put(out, "\"", 1);
}

/* ---- numbers ---- */

void by_json_write_uint(by_buf *out, uint64_t v) {
    char text[20], *p = text + sizeof text;
    do *--p = (char)('0' + v % 10);
    while (v /= 10);
    by_buf_push(out, p, (size_t)(text + sizeof text - p));
}

void by_json_write_int(by_buf *out, int64_t v) {
    if (v < 0) by_buf_push_byte(out, '-');
    by_json_write_uint(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* Digits d1..dn with v = 0.d1..dn * 10^e in positional form; there is always a point. */
static void push_positional(by_buf *out, const char *digits, int n, int e) {
    static const char zeros[] = "0000000000000000";
    if (e <= 0) {
        by_buf_push(out, "0.", 2);
        by_buf_push(out, zeros, (size_t)-e);
        by_buf_push(out, digits, (size_t)n);
    } else if (n <= e) {
        by_buf_push(out, digits, (size_t)n);
        by_buf_push(out, zeros, (size_t)(e - n));
        by_buf_push(out, ".0", 2);
    } else {
        by_buf_push(out, digits, (size_t)e);
        by_buf_push_byte(out, '.');
        by_buf_push(out, digits + e, (size_t)(n - e));
    }
}

static void push_exponential(by_buf *out, const char *digits, int n, int e, by_json_style style) {
    by_buf_push(out, digits, 1);
    if (n > 1) {
        by_buf_push_byte(out, '.');
        by_buf_push(out, digits + 1, (size_t)(n - 1));
    }
    int power = e - 1, size = power < 0 ? -power : power;
    by_buf_push(out, power < 0 ? "e-" : "e+", 2);
    if (style == BY_JSON_PYTHON && size < 10) by_buf_push_byte(out, '0');
    by_json_write_uint(out, (uint64_t)size);
}

void by_json_write_double(by_buf *out, double v, by_json_style style) {
    if (!isfinite(v)) {
        by_buf_push(out, "null", 4);
        return;
    }
    if (signbit(v)) {
        by_buf_push_byte(out, '-');
        v = -v;
    }
    if (v == 0) {
        by_buf_push(out, "0.0", 3);
        return;
    }
    char digits[17];
    int e, n = by_json_double_digits(v, digits, &e);
    int lowest = style == BY_JSON_PYTHON ? -3 : -4; /* 0.0001 and 0.00001 are the last positional ones */
    if (e >= lowest && e <= 16) push_positional(out, digits, n, e);
    else push_exponential(out, digits, n, e, style);
}

/* ---- values ---- */

static void write_container(by_buf *out, const by_json *v, by_json_style style) {
    bool object = v->type == BY_JSON_OBJECT, wide = style != BY_JSON_COMPACT;
    put(out, object ? "{" : "[", 1);
    for (uint32_t i = 0; i < v->n; i++) {
        if (i) wide ? put(out, ", ", 2) : put(out, ",", 1);
        if (object) {
            by_json_write_string(out, v->v.members[i].key);
            wide ? put(out, ": ", 2) : put(out, ":", 1);
        }
        by_json_write(out, object ? &v->v.members[i].value : &v->v.items[i], style);
    }
    put(out, object ? "}" : "]", 1);
}

void by_json_write(by_buf *out, const by_json *v, by_json_style style) {
    switch (v->type) {
    case BY_JSON_NULL: put(out, "null", 4); break;
    case BY_JSON_BOOL: v->v.b ? put(out, "true", 4) : put(out, "false", 5); break;
    case BY_JSON_INT: by_json_write_int(out, v->v.i); break;
    case BY_JSON_UINT: by_json_write_uint(out, v->v.u); break;
    case BY_JSON_DOUBLE: by_json_write_double(out, v->v.d, style); break;
    case BY_JSON_STRING: by_json_write_string(out, v->v.s); break;
    case BY_JSON_ARRAY:
    case BY_JSON_OBJECT: write_container(out, v, style); break;
    }
}

/* ---- incremental writer ---- */

static void separate(by_json_out *o) {
    if (o->comma) o->style != BY_JSON_COMPACT ? put(o->buf, ", ", 2) : put(o->buf, ",", 1);
    o->comma = true;
}

static void open_bracket(by_json_out *o, char c) {
    separate(o);
    put(o->buf, &c, 1);
    o->comma = false;
}

static void close_bracket(by_json_out *o, char c) {
    put(o->buf, &c, 1);
    o->comma = true;
}

void by_json_out_object_begin(by_json_out *o) { open_bracket(o, '{'); }
void by_json_out_object_end(by_json_out *o) { close_bracket(o, '}'); }
void by_json_out_array_begin(by_json_out *o) { open_bracket(o, '['); }
void by_json_out_array_end(by_json_out *o) { close_bracket(o, ']'); }

static void after_key(by_json_out *o) {
    o->style != BY_JSON_COMPACT ? put(o->buf, ": ", 2) : put(o->buf, ":", 1);
    o->comma = false;
}

void by_json_out_key(by_json_out *o, const char *key) {
    separate(o);
    put(o->buf, "\"", 1);
    put(o->buf, key, strlen(key));
    put(o->buf, "\"", 1);
    after_key(o);
}

void by_json_out_key_str(by_json_out *o, by_str key) {
    by_json_out_string(o, key);
    after_key(o);
}

void by_json_out_raw(by_json_out *o, by_str json) {
    separate(o);
    by_buf_push_str(o->buf, json);
}

void by_json_out_string(by_json_out *o, by_str s) {
    separate(o);
    by_json_write_string(o->buf, s);
}

void by_json_out_z(by_json_out *o, const char *z) {
    if (z) by_json_out_string(o, by_str_z(z));
    else by_json_out_null(o);
}

void by_json_out_int(by_json_out *o, int64_t v) {
    separate(o);
    by_json_write_int(o->buf, v);
}

void by_json_out_uint(by_json_out *o, uint64_t v) {
    separate(o);
    by_json_write_uint(o->buf, v);
}

void by_json_out_double(by_json_out *o, double v) {
    separate(o);
    by_json_write_double(o->buf, v, o->style);
}

void by_json_out_bool(by_json_out *o, bool v) { by_json_out_raw(o, v ? BY_STR("true") : BY_STR("false")); }
void by_json_out_null(by_json_out *o) { by_json_out_raw(o, BY_STR("null")); }

void by_json_out_value(by_json_out *o, const by_json *v) {
    separate(o);
    by_json_write(o->buf, v, o->style);
}

void by_json_out_string_begin(by_json_out *o) { open_bracket(o, '"'); }
void by_json_out_string_end(by_json_out *o) { close_bracket(o, '"'); }
