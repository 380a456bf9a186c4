/* buf.h - growable byte buffer. Zero-initialise; grows by half; a failed growth sets `failed` and leaves the content as
 * it was, so that a writer may check once at the end. Owner: one thread. */
#ifndef BY_BASE_BUF_H
#define BY_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct by_buf {
    char *ptr;
    size_t len, cap;
    bool failed;
} by_buf;

void by_buf_deinit(by_buf *b);

/* Empties the buffer but keeps its memory. */
static inline void by_buf_clear(by_buf *b) { b->len = 0; }

/* Makes room for n more bytes and returns where they go, or NULL. The caller then adds to len. */
char *by_buf_reserve(by_buf *b, size_t n);
bool by_buf_push(by_buf *b, const void *data, size_t n);
bool by_buf_push_byte(by_buf *b, char c);
bool by_buf_push_str(by_buf *b, by_str s);
bool by_buf_push_z(by_buf *b, const char *z);
bool by_buf_printf(by_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends a NUL that is not counted in len and returns ptr ("" when growth failed). */
const char *by_buf_z(by_buf *b);
static inline by_str by_buf_str(const by_buf *b) { return (by_str){b->ptr, b->len}; }

/* BY_ENOMEM when any growth failed. */
by_status by_buf_check(const by_buf *b, by_err *err);

#endif
