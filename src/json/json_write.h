/* json_write.h - JSON text: whole values, and an incremental writer for events.
 *
 * The text of tool schemas and arguments inside a prompt decides token ids, so the two styles are exact:
 *   BY_JSON_PYTHON   json.dumps(v, ensure_ascii=False): ", " and ": ", floats as Python's repr (1e-07, 1e+16, 100.0)
 *   BY_JSON_COMPACT  "," and ":", floats with the exponent form below 1e-5 and from 1e16 (0.00001, 1e-6, 1e+16)
 *   BY_JSON_WIDE     the separators of the first with the floats of the second, which is what V4 prompts hold
 * In all, strings escape only the quote, the backslash and U+0000..U+001F (\n \r \t \b \f, others \u00xx in lower case);
 * everything else, U+007F included, stays raw. 64-bit integers are exact. A non-finite double is written as null.
 *
 * All functions append to a by_buf and report nothing: a failed growth sets out->failed (by_buf_check at the end).
 * One thread per buffer. */
#ifndef BY_JSON_WRITE_H
#define BY_JSON_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "json/json.h"

typedef enum by_json_style { BY_JSON_PYTHON, BY_JSON_COMPACT, BY_JSON_WIDE } by_json_style;

/* Appends a value and everything below it; members in order, duplicates included. Recurses as deep as the value. */
void by_json_write(by_buf *out, const by_json *v, by_json_style style);

/* A string with quotes, and the same without (a piece of a longer string). s is valid UTF-8 or is copied as it is. */
void by_json_write_string(by_buf *out, by_str s);
void by_json_write_escaped(by_buf *out, by_str s);

/* Numbers; a failed growth shows in the buffer. */
void by_json_write_int(by_buf *out, int64_t v);
void by_json_write_uint(by_buf *out, uint64_t v);
void by_json_write_double(by_buf *out, double v, by_json_style style);

/* Shortest digits that read back as v (finite, > 0), the nearest to v among those: d1 d2 ... dn, v = 0.d1d2...dn * 10^e.
 * Writes n digits (1..17, no trailing zero) without terminator and returns n. */
int by_json_double_digits(double v, char digits[17], int *exponent);

/* ---- incremental writer ----
 *
 * Keeps one bit of state, whether a comma is due, so it nests without a stack and cannot check that brackets match:
 *
 *   by_json_out o = by_json_out_init(&buf, BY_JSON_COMPACT);
 *   by_json_out_object_begin(&o);
 *   by_json_out_key(&o, "index");  by_json_out_int(&o, 0);
 *   by_json_out_key(&o, "text");   by_json_out_string(&o, text);
 *   by_json_out_object_end(&o);
 *
 * Several values in a row at the top level would be joined by commas; call by_json_out_restart between documents. */
typedef struct by_json_out {
    by_buf *buf;
    by_json_style style;
    bool comma; /* a value came before in this container */
} by_json_out;

static inline by_json_out by_json_out_init(by_buf *buf, by_json_style style) {
    return (by_json_out){.buf = buf, .style = style};
}
static inline void by_json_out_restart(by_json_out *o) { o->comma = false; }

/* Containers; the writer puts the commas. */
void by_json_out_object_begin(by_json_out *o);
void by_json_out_object_end(by_json_out *o);
void by_json_out_array_begin(by_json_out *o);
void by_json_out_array_end(by_json_out *o);

/* The next call writes the value. key is a literal that needs no escapes; the _str form takes any text. */
void by_json_out_key(by_json_out *o, const char *key);
void by_json_out_key_str(by_json_out *o, by_str key);

/* One value, in an array or behind a key. */
void by_json_out_string(by_json_out *o, by_str s);
void by_json_out_z(by_json_out *o, const char *z); /* NULL is written as null */
void by_json_out_int(by_json_out *o, int64_t v);
void by_json_out_uint(by_json_out *o, uint64_t v);
void by_json_out_double(by_json_out *o, double v);
void by_json_out_bool(by_json_out *o, bool v);
void by_json_out_null(by_json_out *o);
void by_json_out_value(by_json_out *o, const by_json *v);

/* A member of an object in one call. */
static inline void by_json_out_member_int(by_json_out *o, const char *key, int64_t v) {
    by_json_out_key(o, key);
    by_json_out_int(o, v);
}
static inline void by_json_out_member_double(by_json_out *o, const char *key, double v) {
    by_json_out_key(o, key);
    by_json_out_double(o, v);
}
static inline void by_json_out_member_z(by_json_out *o, const char *key, const char *z) {
    by_json_out_key(o, key);
    by_json_out_z(o, z);
}

/* Text that is JSON already: one value, or inside an object a list of members ("a":1,"b":2). */
void by_json_out_raw(by_json_out *o, by_str json);

/* A string that arrives in pieces: begin, any number of pieces (cut between characters or not), end. */
void by_json_out_string_begin(by_json_out *o);
static inline void by_json_out_string_piece(by_json_out *o, by_str s) { by_json_write_escaped(o->buf, s); }
void by_json_out_string_end(by_json_out *o);

#endif
