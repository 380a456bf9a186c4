/* json_walk.h - pull reader for large, flat JSON: constant memory, no tree.
 *
 * For files whose tree would cost many times their size (a safetensors index of 25 MB, shard headers): the caller walks
 * objects and arrays in order and takes what it needs. The grammar is the strict one of json.h. The caller checks UTF-8
 * of the whole text once before (by_utf8_valid). One thread per walk.
 *
 *     by_json_walk_begin_object(&w, err);
 *     while ((status = by_json_walk_member(&w, &key, err)) == BY_OK) ... read or skip the value ...
 *     // BY_END: the object is closed; negative: malformed */
#ifndef BY_JSON_JSON_WALK_H
#define BY_JSON_JSON_WALK_H

#include "json/json.h"

typedef struct by_json_walk {
    const char *at, *end, *start;
    bool opened;          /* the last thing read was an opening bracket: no comma is due */
    by_buf keys, strings; /* decoded texts of strings with escapes */
} by_json_walk;

/* The text must outlive the walk; release with deinit. */
void by_json_walk_init(by_json_walk *w, by_str text);
void by_json_walk_deinit(by_json_walk *w);

/* Type of the next value: OBJECT, ARRAY, STRING, INT (any number), BOOL or NULL. Does not move and does not fail: a
 * byte that starts no value gives NULL, and reading it fails then. */
by_json_type by_json_walk_peek(by_json_walk *w);

/* Enters a container; BY_EFORMAT when the next value is another one. */
by_status by_json_walk_begin_object(by_json_walk *w, by_err *err);
by_status by_json_walk_begin_array(by_json_walk *w, by_err *err);

/* BY_OK: a member follows, its key is valid until the next key is read. BY_END: '}' was read. */
by_status by_json_walk_member(by_json_walk *w, by_str *key, by_err *err);

/* BY_OK: an item follows. BY_END: ']' was read. */
by_status by_json_walk_item(by_json_walk *w, by_err *err);

/* Values. A string is valid until the next string is read. A uint is an integer in 0..2^64-1 without sign, fraction or
 * exponent. */
by_status by_json_walk_string(by_json_walk *w, by_str *out, by_err *err);
by_status by_json_walk_uint(by_json_walk *w, uint64_t *out, by_err *err);

/* Passes over any value, nested at most BY_LIMIT_JSON_DEPTH deep (BY_ELIMIT), without storing anything. */
by_status by_json_walk_skip(by_json_walk *w, by_err *err);

/* Only white space may follow. */
by_status by_json_walk_finish(by_json_walk *w, by_err *err);

#endif
