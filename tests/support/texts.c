/* texts.c - see texts.h. */
#include "support/texts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES_MAX = 65536 };

const char *by_test_format(by_arena *arena, const char *fmt, ...) {
    char *z = by_arena_alloc(arena, BYTES_MAX);
    if (!z) abort();
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(z, BYTES_MAX, fmt, ap);
    va_end(ap);
    return z;
}

const char *by_test_keep(by_arena *arena, by_buf *b) {
    const char *z = by_arena_dup(arena, by_buf_str(b)).ptr;
    by_buf_deinit(b);
    return z;
}
