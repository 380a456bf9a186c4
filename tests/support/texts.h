/* texts.h - texts in an arena, which tests can make without thinking of who frees them. For tests only. */
#ifndef BY_TEST_TEXTS_H
#define BY_TEST_TEXTS_H

#include "base/arena.h"
#include "base/buf.h"

/* As printf, at most 64 KiB. */
const char *by_test_format(by_arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What b holds, with a NUL behind it; b is released. */
const char *by_test_keep(by_arena *arena, by_buf *b);

#endif
