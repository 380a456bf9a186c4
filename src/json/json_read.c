/* json_read.c - the strict reader of json.h: recursive descent with a depth limit. Items of open arrays and members of
 * open objects wait on one growable stack and are copied to the arena when the bracket closes, so that each array is one
 * contiguous piece. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "json/json.h"
#include "json/json_number.h"
#include "json/json_scan.h"

typedef struct {
    const char *at, *end, *start;
    by_arena *arena;
    by_err *err;
    uint32_t depth, depth_max;
    bool merge_keys;
    by_json_member *stack; /* open items (key unused in arrays) */
    size_t n, cap;
} reader;

static by_status fail_at(reader *r, const char *where, const char *what) {
    size_t line = 1, column = 1;
    for (const char *p = r->start; p < where; p++) {
        column = *p == '\n' ? 1 : column + (((unsigned char)*p & 0xc0) != 0x80);
        line += *p == '\n';
    }
    return BY_FAIL(r->err, BY_EFORMAT, "line %zu column %zu: %s", line, column, what);
}

static by_status out_of_memory(reader *r) { return BY_FAIL(r->err, BY_ENOMEM, "out of memory while reading JSON"); }

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

/* ---- strings ---- */

static int hex4(const char *p, const char *end) {
    if (end - p < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* *p is behind "\u"; appends the code point at to. */
static by_status unescape_u(reader *r, const char **p, const char *end, char **to) {
    int hi = hex4(*p, end);
    if (hi < 0) return fail_at(r, *p, "expected four hexadecimal digits after \\u");
    *p += 4;
    uint32_t cp = (uint32_t)hi;
    if (cp >= 0xdc00 && cp < 0xe000) return fail_at(r, *p - 6, "lone surrogate escape");
    if (cp >= 0xd800 && cp < 0xdc00) {
        int lo = end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end) : -1;
        if (lo < 0xdc00 || lo >= 0xe000) return fail_at(r, *p - 6, "lone surrogate escape");
        *p += 6;
        cp = 0x10000 + ((cp - 0xd800) << 10) + ((uint32_t)lo - 0xdc00);
    }
    *to += by_utf8_put(cp, *to);
    return BY_OK;
}

/* [p, end) is the inside of a string that holds escapes; the result is never longer. */
static by_status unescape(reader *r, const char *p, const char *end, by_str *out) {
    char *buf = by_arena_alloc(r->arena, (size_t)(end - p) + 1), *to = buf;
    if (!buf) return out_of_memory(r);
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        size_t n = (size_t)((slash ? slash : end) - p);
        memcpy(to, p, n);
        to += n;
        p += n;
        if (!slash) break;
        char c = p[1]; /* the scan has seen that a byte follows */
        p += 2;
        switch (c) {
        case '"': case '\\': case '/': *to++ = c; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'u': BY_TRY(unescape_u(r, &p, end, &to)); break;
        default: return fail_at(r, p - 2, "unknown escape");
        }
    }
    *out = by_str_of(buf, (size_t)(to - buf));
    return BY_OK;
}

static by_status read_string(reader *r, by_str *out) {
    const char *open = r->at++, *p = r->at;
    bool escaped = false;
    for (;;) {
        p = by_json_plain_end(p, r->end);
        if (p >= r->end) return fail_at(r, open, "string is not closed");
        if (*p == '"') break;
        if (*p != '\\') return fail_at(r, p, "control character in a string");
        escaped = true;
        p += 2;
        if (p > r->end) return fail_at(r, open, "string is not closed");
    }
    by_str inside = by_str_of(r->at, (size_t)(p - r->at));
    r->at = p + 1;
    if (escaped) return unescape(r, inside.ptr, p, out);
    *out = inside;
    return BY_OK;
}

/* ---- equal keys ---- */

/* Objects up to here are compared pair by pair, larger ones are sorted: a hash table would need a secret seed to be safe
 * from keys that were made to collide. */
enum { PAIRWISE_MAX = 12 };

static size_t merge_pairwise(by_json_member *m, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < kept && !by_str_eq(m[at].key, m[i].key)) at++;
        if (at < kept) m[at].value = m[i].value;
        else if (kept++ != i) m[kept - 1] = m[i];
    }
    return kept;
}

/* By key, then by place. */
static int compare_members(const void *a, const void *b) {
    const by_json_member *x = *(by_json_member *const *)a, *y = *(by_json_member *const *)b;
    int c = by_str_cmp(x->key, y->key);
    return c ? c : (x > y) - (x < y);
}

static by_status merge_sorted(reader *r, by_json_member *m, size_t *n) {
    by_json_member **order = by_alloc(BY_MEM_JSON, by_mul_size(*n, sizeof *order));
    if (!order) return out_of_memory(r);
    for (size_t i = 0; i < *n; i++) order[i] = m + i;
    qsort(order, *n, sizeof *order, compare_members);
    bool merged = false;
    for (size_t i = 0, next; i < *n; i = next) {
        for (next = i + 1; next < *n && by_str_eq(order[i]->key, order[next]->key); next++) {
            order[i]->value = order[next]->value;
            order[next]->key.len = SIZE_MAX; /* dropped below; longer than any text, so that it equals no key */
            merged = true;
        }
    }
    by_free(order);
    if (!merged) return BY_OK;
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (m[i].key.len != SIZE_MAX) m[kept++] = m[i];
    *n = kept;
    return BY_OK;
}

/* Equal keys become one member: the first one's place, the last one's value. */
static by_status merge_keys(reader *r, by_json_member *m, size_t *n) {
    if (*n > PAIRWISE_MAX) return merge_sorted(r, m, n);
    *n = merge_pairwise(m, *n);
    return BY_OK;
}

/* ---- values ---- */

static by_status read_value(reader *r, by_json *out);
static by_status read_container(reader *r, by_json *out, bool object);

static by_status read_key(reader *r, by_str *key) {
    skip_space(r);
    if (r->at >= r->end || *r->at != '"') return fail_at(r, r->at, "expected a string as object key");
    BY_TRY(read_string(r, key));
    skip_space(r);
    if (r->at >= r->end || *r->at != ':') return fail_at(r, r->at, "expected ':'");
    r->at++;
    return BY_OK;
}

/* Room for the next item of the innermost open container; counted by r->n++. Reading a nested container may move the
 * stack. NULL when memory is out. */
static by_json_member *next_slot(reader *r) {
    if (r->n < r->cap) return r->stack + r->n;
    size_t cap = r->cap ? r->cap * 2 : 256;
    by_json_member *fresh = by_realloc(BY_MEM_JSON, r->stack, by_mul_size(cap, sizeof *fresh));
    if (!fresh) return NULL;
    r->stack = fresh;
    r->cap = cap;
    return r->stack + r->n;
}

/* One item or member onto the stack. Plain values are read in place; only containers go through a copy. */
static by_status read_item(reader *r, bool object) {
    by_json_member *slot = next_slot(r);
    if (!slot) return out_of_memory(r);
    if (object) BY_TRY(read_key(r, &slot->key));
    skip_space(r);
    if (r->at < r->end && (*r->at == '{' || *r->at == '[')) {
        by_str key = slot->key;
        by_json value;
        size_t mine = r->n++; /* the nested items lie above */
        BY_TRY(read_container(r, &value, *r->at == '{'));
        r->stack[mine] = (by_json_member){key, value};
        return BY_OK;
    }
    r->n++;
    return read_value(r, &slot->value);
}

static by_status close_array(reader *r, by_json *out, size_t base) {
    size_t n = r->n - base;
    if (n >= UINT32_MAX) return BY_FAIL(r->err, BY_ELIMIT, "array with more than 2^32 items");
    by_json *items = by_arena_alloc(r->arena, by_mul_size(n, sizeof *items));
    if (!items) return out_of_memory(r);
    for (size_t i = 0; i < n; i++) items[i] = r->stack[base + i].value;
    *out = (by_json){.type = BY_JSON_ARRAY, .n = (uint32_t)n, .v.items = items};
    r->n = base;
    return BY_OK;
}

static by_status close_object(reader *r, by_json *out, size_t base) {
    size_t n = r->n - base;
    if (n >= UINT32_MAX) return BY_FAIL(r->err, BY_ELIMIT, "object with more than 2^32 members");
    if (r->merge_keys && n > 1) BY_TRY(merge_keys(r, r->stack + base, &n));
    by_json_member *members = by_arena_alloc(r->arena, by_mul_size(n, sizeof *members));
    if (!members) return out_of_memory(r);
    if (n) memcpy(members, r->stack + base, n * sizeof *members);
    *out = (by_json){.type = BY_JSON_OBJECT, .n = (uint32_t)n, .v.members = members};
    r->n = base;
    return BY_OK;
}

static by_status read_container(reader *r, by_json *out, bool object) {
    char close = object ? '}' : ']';
    size_t base = r->n;
    if (++r->depth > r->depth_max)
        return BY_FAIL(r->err, BY_ELIMIT, "nested deeper than the limit of %u", r->depth_max);
    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
    } else {
        for (;;) {
            BY_TRY(read_item(r, object));
            skip_space(r);
            if (r->at < r->end && *r->at == ',') {
                r->at++;
                continue;
            }
            if (r->at >= r->end || *r->at != close)
                return fail_at(r, r->at, object ? "expected ',' or '}'" : "expected ',' or ']'");
            r->at++;
            break;
        }
    }
    r->depth--;
    return object ? close_object(r, out, base) : close_array(r, out, base);
}

static by_status read_word(reader *r, by_str word) {
    if (!by_str_starts(by_str_of(r->at, (size_t)(r->end - r->at)), word)) return fail_at(r, r->at, "expected a value");
    r->at += word.len;
    return BY_OK;
}

static by_status read_value(reader *r, by_json *out) {
    skip_space(r);
    *out = (by_json){.type = BY_JSON_NULL};
    if (r->at >= r->end) return fail_at(r, r->at, "expected a value, found the end");
    switch (*r->at) {
    case '{': return read_container(r, out, true);
    case '[': return read_container(r, out, false);
    case '"': out->type = BY_JSON_STRING; return read_string(r, &out->v.s);
    case 'n': return read_word(r, BY_STR("null"));
    case 't': out->type = BY_JSON_BOOL; out->v.b = true; return read_word(r, BY_STR("true"));
    case 'f': out->type = BY_JSON_BOOL; return read_word(r, BY_STR("false"));
    default: break;
    }
    if (*r->at != '-' && (*r->at < '0' || *r->at > '9')) return fail_at(r, r->at, "expected a value");
    const char *problem = by_json_scan_number(&r->at, r->end, r->arena, out);
    if (!problem) return BY_OK;
    return *problem ? fail_at(r, r->at, problem) : out_of_memory(r);
}

by_status by_json_parse(by_json *out, by_arena *arena, by_str text, const by_json_opts *opts, by_err *err) {
    size_t max = opts && opts->bytes_max ? opts->bytes_max : BY_LIMIT_JSON_FILE_BYTES;
    if (text.len > max) return BY_FAIL(err, BY_ELIMIT, "JSON text of %zu bytes is over the limit of %zu", text.len, max);
    if (!text.ptr) text = BY_STR(""); /* nothing may be added to a null pointer, not even nothing */
    reader r = {.at = text.ptr, .end = text.ptr + text.len, .start = text.ptr, .arena = arena, .err = err};
    r.depth_max = opts && opts->depth_max ? opts->depth_max : BY_LIMIT_JSON_DEPTH;
    r.merge_keys = opts && opts->merge_keys;
    size_t bad = 0;
    if (!by_utf8_valid(text, &bad)) return fail_at(&r, text.ptr + bad, "not valid UTF-8");
    by_status status = read_value(&r, out);
    if (status == BY_OK) {
        skip_space(&r);
        if (r.at < r.end) status = fail_at(&r, r.at, "text after the value");
    }
    by_free(r.stack);
    return status;
}

by_status by_json_read_file(by_json *out, by_arena *arena, by_buf *text, const char *path, by_err *err) {
    BY_TRY(by_file_read(text, path, BY_LIMIT_JSON_FILE_BYTES, err));
    by_status status = by_json_parse(out, arena, by_buf_str(text), NULL, err);
    if (status < 0) by_err_prefix(err, "%s: ", path);
    return status;
}
