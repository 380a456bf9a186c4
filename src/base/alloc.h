/* alloc.h - the one place that asks libc for memory.
 *
 * Every allocation carries a tag so that `bathyc` can say where its memory is, counts are kept with relaxed atomics, and
 * a test can make the N-th call fail. Sizes are checked: by_mul_size and by_add_size saturate to SIZE_MAX, which never
 * succeeds. Thread-safe. */
#ifndef BY_BASE_ALLOC_H
#define BY_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum by_mem_tag {
    BY_MEM_MISC,
    BY_MEM_JSON,
    BY_MEM_TOK,
    BY_MEM_MODEL,
    BY_MEM_TENSOR,
    BY_MEM_KV,
    BY_MEM_REQUEST,
    BY_MEM_GRAMMAR,
    BY_MEM_HTTP,
    BY_MEM_N
} by_mem_tag;

/* malloc, calloc and realloc with a tag; NULL when memory is out or n is 0 (realloc to 0 frees). Alignment 16. */
void *by_alloc(by_mem_tag tag, size_t n);
void *by_alloc_zero(by_mem_tag tag, size_t n);
void *by_realloc(by_mem_tag tag, void *ptr, size_t n);

/* align is a power of two, 16..4096. Release with by_free. */
void *by_alloc_aligned(by_mem_tag tag, size_t align, size_t n);
/* The same filled with zeros. Much memory is not touched, so that what is never used costs nothing. */
void *by_alloc_zero_aligned(by_mem_tag tag, size_t align, size_t n);

/* NULL is allowed. */
void by_free(void *ptr);

/* Copies n bytes and a terminating NUL. */
char *by_strndup(by_mem_tag tag, const char *s, size_t n);

/* Products and sums of sizes from outside; SIZE_MAX when they do not fit. */
static inline size_t by_mul_size(size_t a, size_t b) {
    size_t r;
    return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}
static inline size_t by_add_size(size_t a, size_t b) {
    size_t r;
    return __builtin_add_overflow(a, b, &r) ? SIZE_MAX : r;
}

/* Number of allocation calls since start, and bytes now held under a tag. */
uint64_t by_alloc_calls(void);
int64_t by_alloc_bytes(by_mem_tag tag);
int64_t by_alloc_bytes_total(void);
const char *by_mem_tag_name(by_mem_tag tag);

/* Tests: the n-th allocation call from now fails (1 = the next one); 0 switches it off. Only one call fails. */
void by_alloc_fail_nth(int64_t n);

#endif
