/* json_scan.h - finds the end of the plain part of a string, for the reader and the writer. Plain bytes stand for
 * themselves between JSON quotes: everything but the quote, the backslash and the controls below U+0020. Sixteen bytes
 * are looked at in one step. */
#ifndef BY_JSON_SCAN_H
#define BY_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte of a word is its lowest");

typedef unsigned char by_json_bytes __attribute__((vector_size(16)));
typedef uint64_t by_json_halves __attribute__((vector_size(16)));

/* 255 in each byte of p[0..15] that is not plain, 0 elsewhere. */
static inline by_json_halves by_json_special_bytes(const char *p) {
    by_json_bytes x;
    memcpy(&x, p, sizeof x);
    return (by_json_halves)((x == '"') | (x == '\\') | (x < 0x20));
}

/* Not 0 when one of the eight bytes of x is not plain. (Which one, it does not say: a borrow may mark the byte above.) */
static inline uint64_t by_json_special_word(uint64_t x) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
    return (((x - ones * 0x20) & ~x) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & tops;
}

/* All of [p, end) is plain; at most 15 bytes. Two words that overlap cover any length from four. */
static inline bool by_json_short_is_plain(const char *p, const char *end) {
    uint64_t a, b;
    uint32_t c, d;
    if (end - p >= 8) {
        memcpy(&a, p, 8);
        memcpy(&b, end - 8, 8);
        return (by_json_special_word(a) | by_json_special_word(b)) == 0;
    }
    if (end - p < 4) return false;
    memcpy(&c, p, 4);
    memcpy(&d, end - 4, 4);
    return by_json_special_word((uint64_t)c << 32 | d) == 0;
}

/* First byte in [p, end) that is not plain, or end. */
static inline const char *by_json_plain_end(const char *p, const char *end) {
    while (end - p >= 16) {
        by_json_halves hit = by_json_special_bytes(p);
        if (hit[0]) return p + (__builtin_ctzll(hit[0]) >> 3);
        if (hit[1]) return p + 8 + (__builtin_ctzll(hit[1]) >> 3);
        p += 16;
    }
    if (by_json_short_is_plain(p, end)) return end;
    while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\') p++;
    return p;
}

#endif
