/* buf.c - see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void by_buf_deinit(by_buf *b) {
    by_free(b->ptr);
    *b = (by_buf){0};
}

char *by_buf_reserve(by_buf *b, size_t n) {
    size_t need = by_add_size(b->len, n);
    if (need <= b->cap && b->ptr) return b->ptr + b->len;
    size_t cap = b->cap + b->cap / 2;
    if (cap < 64) cap = 64;
    if (cap < need) cap = need;
    char *fresh = by_realloc(BY_MEM_MISC, b->ptr, cap);
    if (!fresh) {
        b->failed = true;
        return NULL;
    }
    b->ptr = fresh;
    b->cap = cap;
    return b->ptr + b->len;
}

bool by_buf_push(by_buf *b, const void *data, size_t n) {
    if (n == 0) return true;
    char *to = by_buf_reserve(b, n);
    if (!to) return false;
    memcpy(to, data, n);
    b->len += n;
    return true;
}

bool by_buf_push_byte(by_buf *b, char c) { return by_buf_push(b, &c, 1); }
bool by_buf_push_str(by_buf *b, by_str s) { return by_buf_push(b, s.ptr, s.len); }
bool by_buf_push_z(by_buf *b, const char *z) { return by_buf_push(b, z, strlen(z)); }

bool by_buf_printf(by_buf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = false;
    if (n >= 0) {
        char *to = by_buf_reserve(b, (size_t)n + 1);
        if (to) {
            vsnprintf(to, (size_t)n + 1, fmt, again);
            b->len += (size_t)n;
            ok = true;
        }
    }
    va_end(again);
    return ok;
}

const char *by_buf_z(by_buf *b) {
    char *to = by_buf_reserve(b, 1);
    if (!to) return "";
    *to = '\0';
    return b->ptr;
}

by_status by_buf_check(const by_buf *b, by_err *err) {
    return b->failed ? BY_FAIL(err, BY_ENOMEM, "out of memory while growing a buffer of %zu bytes", b->len)
                     : BY_OK;
}
