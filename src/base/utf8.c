/* utf8.c - see utf8.h. The second byte's range depends on the first (Unicode table 3-7), which is what makes an invalid
 * subpart maximal in the sense of the standard. */
#include "base/utf8.h"

#include <string.h>

by_utf8_step by_utf8_next(const char *s, size_t len) {
    const unsigned char *p = (const unsigned char *)s;
    uint32_t c = p[0];
    if (c < 0x80) return (by_utf8_step){c, 1, BY_UTF8_CHAR};
    uint32_t n, low = 0x80, high = 0xbf;
    if (c >= 0xc2 && c <= 0xdf) {
        n = 2;
        c &= 0x1f;
    } else if (c >= 0xe0 && c <= 0xef) {
        n = 3;
        if (c == 0xe0) low = 0xa0;
        if (c == 0xed) high = 0x9f;
        c &= 0x0f;
    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 4;
        if (c == 0xf0) low = 0x90;
        if (c == 0xf4) high = 0x8f;
        c &= 0x07;
    } else {
        return (by_utf8_step){0, 1, BY_UTF8_BAD};
    }
    for (uint32_t i = 1; i < n; i++) {
        if (i >= len) return (by_utf8_step){0, i, BY_UTF8_CUT};
        uint32_t b = p[i];
        if (b < low || b > high) return (by_utf8_step){0, i, BY_UTF8_BAD};
        low = 0x80;
        high = 0xbf;
        c = c << 6 | (b & 0x3f);
    }
    return (by_utf8_step){c, n, BY_UTF8_CHAR};
}

/* Length of the character at p if it is a valid one of 2 or 3 bytes (p[3] may be read), else 0. Little-endian words: the
 * first byte is the lowest. */
static inline size_t short_character(const char *p) {
    uint32_t w;
    memcpy(&w, p, 4);
    if ((w & 0x00c0c0f0) == 0x008080e0) { /* not overlong, not a surrogate */
        uint32_t top = w & 0x200f;
        return top != 0 && top != 0x200d ? 3 : 0;
    }
    return (w & 0xc0e0) == 0x80c0 && (w & 0x1e) != 0 ? 2 : 0;
}

bool by_utf8_valid(by_str s, size_t *bad_at) {
    size_t i = 0;
    while (i < s.len) {
        if (s.len - i >= 8) { /* runs of ASCII, eight at a time; then runs of short characters */
            uint64_t w;
            memcpy(&w, s.ptr + i, 8);
            w &= 0x8080808080808080u;
            if (w == 0) {
                i += 8;
                continue;
            }
            i += (size_t)__builtin_ctzll(w) >> 3;
            size_t n = 1;
            while (s.len - i >= 4 && (n = short_character(s.ptr + i)) != 0) i += n;
            if (n != 0 || (signed char)s.ptr[i] >= 0) continue;
        }
        by_utf8_step st = by_utf8_next(s.ptr + i, s.len - i);
        if (st.kind != BY_UTF8_CHAR) {
            if (bad_at) *bad_at = i;
            return false;
        }
        i += st.n;
    }
    return true;
}

size_t by_utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool by_utf8_push_lossy(by_buf *out, by_str s) {
    size_t from = 0, i = 0;
    while (i < s.len) {
        by_utf8_step st = by_utf8_next(s.ptr + i, s.len - i);
        if (st.kind != BY_UTF8_CHAR) {
            if (!by_buf_push(out, s.ptr + from, i - from) ||
                !by_buf_push(out, BY_UTF8_REPLACEMENT, 3))
                return false;
            from = i + st.n;
        }
        i += st.n;
    }
    return by_buf_push(out, s.ptr + from, s.len - from);
}

size_t by_utf8_count(by_str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((unsigned char)s.ptr[i] & 0xc0) != 0x80;
    return n;
}
