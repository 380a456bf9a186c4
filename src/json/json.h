/* json.h - strict JSON reader into an arena, and accessors.
 *
 * RFC 8259 without extensions: UTF-8 only, one value, no duplicate-key rejection (the last one wins in by_json_get; all
 * are kept in order unless merge_keys is set), no lone surrogate escapes, numbers as written. Objects keep their order:
 * it decides token identity in prompts. Integers that fit are exact (int64, then uint64), everything else is a double;
 * `raw` is the number's text. Strings may hold NUL. Values and strings live in the arena, strings without escapes point
 * into the input text, so the text must outlive the values. Readers may share a value; nothing is changed after
 * parsing. */
#ifndef BY_JSON_JSON_H
#define BY_JSON_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

typedef enum by_json_type {
    BY_JSON_NULL,
    BY_JSON_BOOL,
    BY_JSON_INT,    /* v.i */
    BY_JSON_UINT,   /* v.u, above INT64_MAX */
    BY_JSON_DOUBLE, /* v.d, finite */
    BY_JSON_STRING,
    BY_JSON_ARRAY,
    BY_JSON_OBJECT
} by_json_type;

typedef struct by_json by_json;
typedef struct by_json_member by_json_member;

struct by_json {
    by_json_type type;
    uint32_t n; /* items of an array, members of an object */
    union {
        bool b;
        int64_t i;
        uint64_t u;
        double d;
        by_str s;
        by_json *items;          /* [n] */
        by_json_member *members; /* [n], in order */
    } v;
    by_str raw; /* numbers: as written */
};

struct by_json_member {
    by_str key;
    by_json value;
};

typedef struct by_json_opts {
    uint32_t depth_max; /* 0 = BY_LIMIT_JSON_DEPTH */
    size_t bytes_max;   /* 0 = BY_LIMIT_JSON_FILE_BYTES */
    bool merge_keys;    /* equal keys of an object become one member: place of the first, value of the last */
} by_json_opts;

/* Parses text; *out and everything below it live in arena. opts may be NULL.
 * Errors: BY_EFORMAT with line, column and what was expected; BY_ELIMIT (depth, size); BY_ENOMEM. */
by_status by_json_parse(by_json *out, by_arena *arena, by_str text, const by_json_opts *opts, by_err *err);

/* Reads and parses a file; *text keeps the bytes (the caller deinits it after the values are no longer used).
 * Errors as above, with the path in front, and those of by_file_read. */
by_status by_json_read_file(by_json *out, by_arena *arena, by_buf *text, const char *path, by_err *err);

/* Member by key (the last of equal keys), NULL when absent or obj is not an object. O(n). */
const by_json *by_json_get(const by_json *obj, const char *key);
const by_json *by_json_get_str(const by_json *obj, by_str key);

/* Item i of an array, NULL outside. */
const by_json *by_json_at(const by_json *arr, size_t i);

static inline bool by_json_is(const by_json *v, by_json_type t) { return v && v->type == t; }
static inline bool by_json_is_number(const by_json *v) {
    return v && (v->type == BY_JSON_INT || v->type == BY_JSON_UINT || v->type == BY_JSON_DOUBLE);
}
/* Value of a number as a double; 0 for anything else. */
double by_json_number(const by_json *v);
/* True and *out set when v is an integer in [min, max] (a double with an integral value does not count). */
bool by_json_int_in(const by_json *v, int64_t min, int64_t max, int64_t *out);

const char *by_json_type_name(by_json_type t); /* "null", "boolean", "integer", "number", "string", ... */

#endif
