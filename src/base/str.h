/* str.h - byte slices. A by_str borrows its bytes; NUL bytes are allowed inside, no terminator is promised. */
#ifndef BY_BASE_STR_H
#define BY_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct by_str {
    const char *ptr;
    size_t len;
} by_str;

#define BY_STR(literal) ((by_str){(literal), sizeof(literal) - 1})
/* For printf's "%.*s". */
#define BY_STR_ARG(s) (int)((s).len > 1000 ? 1000 : (s).len), (s).ptr ? (s).ptr : ""

static inline by_str by_str_of(const char *ptr, size_t len) { return (by_str){ptr, len}; }
static inline by_str by_str_z(const char *z) { return (by_str){z, z ? strlen(z) : 0}; }
static inline bool by_str_eq(by_str a, by_str b) {
    return a.len == b.len && (a.len == 0 || (a.ptr[0] == b.ptr[0] && memcmp(a.ptr, b.ptr, a.len) == 0));
}
static inline bool by_str_eqz(by_str a, const char *z) { return by_str_eq(a, by_str_z(z)); }
static inline bool by_str_starts(by_str s, by_str prefix) {
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}
static inline bool by_str_ends(by_str s, by_str suffix) {
    return s.len >= suffix.len &&
           (suffix.len == 0 || memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0);
}
/* n <= s.len; an empty text may have no pointer, which takes part in no arithmetic. */
static inline by_str by_str_skip(by_str s, size_t n) { return n ? (by_str){s.ptr + n, s.len - n} : s; }
static inline by_str by_str_take(by_str s, size_t n) { return (by_str){s.ptr, n < s.len ? n : s.len}; }

/* Byte-wise order, shorter first among equals; for qsort and binary search. */
static inline int by_str_cmp(by_str a, by_str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

#endif
