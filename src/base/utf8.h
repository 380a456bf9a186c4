/* utf8.h - UTF-8 as Python and Rust read it: shortest forms, no surrogates, at most U+10FFFF. */
#ifndef BY_BASE_UTF8_H
#define BY_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define BY_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Result of looking at the bytes at the front of a string. */
typedef struct by_utf8_step {
    uint32_t cp;    /* code point, valid when kind is BY_UTF8_CHAR */
    uint32_t n;     /* bytes of the character, or of the maximal invalid subpart, or of the unfinished tail; >= 1 */
    enum { BY_UTF8_CHAR, BY_UTF8_BAD, BY_UTF8_CUT } kind; /* CUT: the bytes end inside a so far valid sequence */
} by_utf8_step;

/* len >= 1. */
by_utf8_step by_utf8_next(const char *s, size_t len);

/* Whole string valid? On false *bad_at (may be NULL) is the offset of the first bad byte. */
bool by_utf8_valid(by_str s, size_t *bad_at);

/* Writes cp (<= 0x10FFFF, not a surrogate) to out[4]; returns 1..4. */
size_t by_utf8_put(uint32_t cp, char out[4]);

/* Appends s with each maximal invalid subpart (and a cut tail) replaced by one U+FFFD. */
bool by_utf8_push_lossy(by_buf *out, by_str s);

/* Number of code points of a valid string. */
size_t by_utf8_count(by_str s);

#endif
