/* json_scan.h - finds the end of the plain part of a string, for the reader and the writer. Plain bytes stand for
 * themselves between JSON quotes: everything but the quote, the backslash and the controls below U+0020. Eight bytes are
 * looked at in one step. */
#ifndef BY_JSON_SCAN_H
#define BY_JSON_SCAN_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte of a word is its lowest");

#define BY_JSON_ONES 0x0101010101010101u
#define BY_JSON_HIGH 0x8080808080808080u

/* High bit set in each byte of w that is not plain. A borrow may also set it in bytes above such a byte, never below. */
static inline uint64_t by_json_special_bytes(uint64_t w) {
    uint64_t quote = w ^ BY_JSON_ONES * '"', slash = w ^ BY_JSON_ONES * '\\';
    uint64_t control = (w - BY_JSON_ONES * 0x20) & ~w;
    return (((quote - BY_JSON_ONES) & ~quote) | ((slash - BY_JSON_ONES) & ~slash) | control) & BY_JSON_HIGH;
}

/* First byte in [p, end) that is not plain, or end. */
static inline const char *by_json_plain_end(const char *p, const char *end) {
    while (end - p >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t hit = by_json_special_bytes(w);
        if (hit) return p + (__builtin_ctzll(hit) >> 3);
        p += 8;
    }
    while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\') p++;
    return p;
}

#endif
