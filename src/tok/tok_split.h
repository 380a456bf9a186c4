/* tok_split.h - the pre-tokenizer as one hand-written scanner, inline for the encoder's loop.
 *
 * The reference applies three regular expressions one after another, each to the pieces of the one before:
 *
 *   1. \p{N}{1,3}
 *   2. the CJK ranges of BY_UC_CJK, one or more
 *   3. a  one ASCII punctuation character, then ASCII letters
 *      b  [^\r\n\p{L}\p{P}\p{S}]? [\p{L}\p{M}]+
 *      c  " "? [\p{P}\p{S}]+ [\r\n]*
 *      d  \s* [\r\n]+
 *      e  \s+ (?!\S)
 *      f  \s+
 *
 * Numbers and CJK are classes of their own here, so no run of the third expression reaches into them and one pass gives
 * the same pieces. The text behind a piece counts only as "a number, CJK or nothing follows", which is the end of text
 * for the third expression. Text must be valid UTF-8. Slow twin: tests/support/slow_tok.c, by regular expression rules. */
#ifndef BY_TOK_TOK_SPLIT_H
#define BY_TOK_TOK_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tok/unicode_class.h"

typedef const unsigned char *by_tok_at;

/* BY_UC_CJK without the table. */
static inline bool by_tok_is_cjk(uint32_t cp) { return cp - 0x4e00 <= 0x9fa5 - 0x4e00 || cp - 0x3040 <= 0x30ff - 0x3040; }

/* Class of the character at p < end; *n is its length in bytes. */
static inline by_unicode_class by_tok_class_at(by_tok_at p, uint32_t *n) {
    uint32_t c = p[0];
    if (c < 0x80) {
        *n = 1;
        return (by_unicode_class)by_unicode_class_value[c]; /* block 0 is the first block; the generator sees to it */
    }
    if (c < 0xe0) {
        *n = 2;
        return by_unicode_class_of((c & 0x1f) << 6 | (p[1] & 0x3fu));
    }
    if (c < 0xf0) {
        *n = 3;
        uint32_t cp = (c & 0x0f) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        return by_tok_is_cjk(cp) ? BY_UC_CJK : by_unicode_class_of(cp);
    }
    *n = 4;
    return by_unicode_class_of((c & 0x07) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu));
}

static inline bool by_tok_is_alpha(unsigned char c) { return (unsigned)(c | 0x20) - 'a' < 26u; }

/* End of the run of ASCII letters at p. Eight bytes at a time: words are short and of every length, so a loop that tests
 * byte by byte mispredicts its end nearly each time. */
static inline by_tok_at by_tok_skip_alpha(by_tok_at p, by_tok_at end) {
    const uint64_t ones = 0x0101010101010101u, high = 0x80 * ones;
    while (end - p >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        w = __builtin_bswap64(w);
#endif
        uint64_t lower = (w & ~high) | 0x20 * ones; /* no sum below carries into the next byte */
        uint64_t alpha = (lower + (0x80 - 'a') * ones) & ~(lower + (0x7f - 'z') * ones) & ~w & high;
        if (alpha != high) return p + (__builtin_ctzll(alpha ^ high) >> 3);
        p += 8;
    }
    while (p < end && by_tok_is_alpha(*p)) p++;
    return p;
}

/* End of the run of letters and marks at p. */
static inline by_tok_at by_tok_skip_letters(by_tok_at p, by_tok_at end) {
    for (;;) {
        p = by_tok_skip_alpha(p, end);
        if (p >= end || *p < 0x80) return p;
        uint32_t n;
        by_unicode_class c = by_tok_class_at(p, &n);
        if (c != BY_UC_LETTER && c != BY_UC_MARK) return p;
        p += n;
    }
}

static inline bool by_tok_letter_at(by_tok_at p, by_tok_at end) {
    if (p >= end) return false;
    uint32_t n;
    by_unicode_class c = by_tok_class_at(p, &n);
    return c == BY_UC_LETTER || c == BY_UC_MARK;
}

/* c without its optional blank: punctuation and symbols at p, then line ends. */
static inline by_tok_at by_tok_skip_punct(by_tok_at p, by_tok_at end) {
    uint32_t n;
    while (p < end && by_tok_class_at(p, &n) == BY_UC_PUNCT) p += n;
    while (p < end && (*p == '\r' || *p == '\n')) p++;
    return p;
}

/* d, e, f: p is at white space that neither b nor c takes. */
static inline by_tok_at by_tok_skip_space(by_tok_at p, by_tok_at end) {
    by_tok_at first = p, last = p, behind_newline = NULL;
    bool open_end = true; /* nothing, a number or CJK follows: the end of the text for e */
    while (p < end) {
        uint32_t n;
        by_unicode_class c = by_tok_class_at(p, &n);
        if (c != BY_UC_SPACE && c != BY_UC_NEWLINE) {
            open_end = c == BY_UC_NUMBER || c == BY_UC_CJK;
            break;
        }
        last = p;
        p += n;
        if (c == BY_UC_NEWLINE) behind_newline = p;
    }
    if (behind_newline) return behind_newline;
    return open_end || last == first ? p : last;
}

/* Characters that no expression takes join into one piece up to the next place where one matches. */
static inline by_tok_at by_tok_skip_other(by_tok_at p, by_tok_at end) {
    uint32_t n;
    bool first = true;
    while (p < end && by_tok_class_at(p, &n) == BY_UC_OTHER) {
        if (by_tok_letter_at(p + n, end)) return first ? by_tok_skip_letters(p + n, end) : p;
        first = false;
        p += n;
    }
    return p;
}

/* The rest of a group of three number characters. */
static inline by_tok_at by_tok_skip_two_numbers(by_tok_at p, by_tok_at end) {
    uint32_t n;
    for (int i = 0; p < end && i < 2 && by_tok_class_at(p, &n) == BY_UC_NUMBER; i++) p += n;
    return p;
}

/* End of the run of CJK characters at p, all of three bytes. By arithmetic: the class table would cost a cache line for
 * nearly each of 20,000 ideographs. */
static inline by_tok_at by_tok_skip_cjk(by_tok_at p, by_tok_at end) {
    while (end - p >= 3 && p[0] >= 0xe3 && p[0] <= 0xe9) {
        uint32_t cp = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        if (!by_tok_is_cjk(cp)) break;
        p += 3;
    }
    return p;
}

/* End of the piece that begins at p < end. */
static inline by_tok_at by_tok_piece_end(by_tok_at p, by_tok_at end) {
    uint32_t n;
    switch (by_tok_class_at(p, &n)) {
    case BY_UC_LETTER:
    case BY_UC_MARK: return by_tok_skip_letters(p + n, end);
    case BY_UC_NUMBER: return by_tok_skip_two_numbers(p + n, end);
    case BY_UC_CJK: return by_tok_skip_cjk(p + n, end);
    case BY_UC_PUNCT:
        if (n == 1 && p + 1 < end && by_tok_is_alpha(p[1])) return by_tok_skip_alpha(p + 1, end);
        return by_tok_skip_punct(p, end);
    case BY_UC_SPACE:
        if (by_tok_letter_at(p + n, end)) return by_tok_skip_letters(p + n, end);
        if (*p == ' ' && p + 1 < end) {
            uint32_t k;
            if (by_tok_class_at(p + 1, &k) == BY_UC_PUNCT) return by_tok_skip_punct(p + 1, end);
        }
        return by_tok_skip_space(p, end);
    case BY_UC_NEWLINE: return by_tok_skip_space(p, end);
    case BY_UC_OTHER: break;
    }
    return by_tok_skip_other(p, end);
}

#endif
