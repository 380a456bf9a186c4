/* alloc.c - a 16-byte header in front of each block holds its size, tag and distance to the block's start, so that
 * by_free can keep the counters exact without asking libc. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t size;   /* bytes asked for */
    uint32_t offset; /* distance from malloc's pointer to the user's */
    uint32_t tag;
} header;

_Static_assert(sizeof(header) == 16, "the header keeps malloc's alignment");

static _Atomic int64_t g_bytes[BY_MEM_N];
static _Atomic uint64_t g_calls;
static _Atomic int64_t g_fail_in;

static bool must_fail(void) {
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&g_fail_in, memory_order_relaxed) <= 0) return false;
    return atomic_fetch_sub_explicit(&g_fail_in, 1, memory_order_relaxed) == 1;
}

static void count(uint32_t tag, int64_t n) {
    atomic_fetch_add_explicit(&g_bytes[tag], n, memory_order_relaxed);
}

static header *header_of(void *ptr) { return (header *)((char *)ptr - sizeof(header)); }

void *by_alloc_aligned(by_mem_tag tag, size_t align, size_t n) {
    if (n == 0 || n > (size_t)PTRDIFF_MAX - 2 * 4096 || must_fail()) return NULL;
    size_t lead = align > sizeof(header) ? align : sizeof(header);
    char *raw;
    if (align <= 16) {
        raw = malloc(lead + n);
        if (!raw) return NULL;
    } else {
        void *p = NULL;
        if (posix_memalign(&p, align, lead + n) != 0) return NULL;
        raw = p;
    }
    char *user = raw + lead;
    *header_of(user) = (header){n, (uint32_t)lead, (uint32_t)tag};
    count((uint32_t)tag, (int64_t)n);
    return user;
}

void *by_alloc_zero_aligned(by_mem_tag tag, size_t align, size_t n) {
    if (n == 0 || n > (size_t)PTRDIFF_MAX - 4 * 4096 || must_fail()) return NULL;
    size_t lead = align > sizeof(header) ? align : sizeof(header);
    char *raw = calloc(1, 2 * lead + n);
    if (!raw) return NULL;
    char *user = (char *)(((uintptr_t)raw + 2 * lead - 1) / lead * lead); /* lead or more behind raw: by_realloc takes align from there */
    *header_of(user) = (header){n, (uint32_t)(user - raw), (uint32_t)tag};
    count((uint32_t)tag, (int64_t)n);
    return user;
}

void *by_alloc(by_mem_tag tag, size_t n) { return by_alloc_aligned(tag, 16, n); }

void *by_alloc_zero(by_mem_tag tag, size_t n) {
    void *p = by_alloc_aligned(tag, 16, n);
    if (p) memset(p, 0, n);
    return p;
}

void *by_realloc(by_mem_tag tag, void *ptr, size_t n) {
    if (!ptr) return by_alloc(tag, n);
    if (n == 0) {
        by_free(ptr);
        return NULL;
    }
    header *h = header_of(ptr);
    if (h->offset != sizeof(header)) { /* an aligned block: move it by hand */
        void *fresh = by_alloc_aligned((by_mem_tag)h->tag, (size_t)1 << (31 - __builtin_clz(h->offset)), n);
        if (!fresh) return NULL;
        memcpy(fresh, ptr, n < h->size ? n : (size_t)h->size);
        by_free(ptr);
        return fresh;
    }
    if (n > (size_t)PTRDIFF_MAX - 4096 || must_fail()) return NULL;
    uint64_t old = h->size;
    uint32_t old_tag = h->tag;
    header *fresh = realloc(h, sizeof(header) + n);
    if (!fresh) return NULL;
    fresh->size = n;
    count(old_tag, (int64_t)n - (int64_t)old);
    return (char *)fresh + sizeof(header);
}

void by_free(void *ptr) {
    if (!ptr) return;
    header *h = header_of(ptr);
    count(h->tag, -(int64_t)h->size);
    free((char *)ptr - h->offset);
}

char *by_strndup(by_mem_tag tag, const char *s, size_t n) {
    char *p = by_alloc(tag, by_add_size(n, 1));
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

uint64_t by_alloc_calls(void) { return atomic_load_explicit(&g_calls, memory_order_relaxed); }

int64_t by_alloc_bytes(by_mem_tag tag) {
    return atomic_load_explicit(&g_bytes[tag], memory_order_relaxed);
}

int64_t by_alloc_bytes_total(void) {
    int64_t sum = 0;
    for (int t = 0; t < BY_MEM_N; t++) sum += by_alloc_bytes((by_mem_tag)t);
    return sum;
}

const char *by_mem_tag_name(by_mem_tag tag) {
    static const char *const names[BY_MEM_N] = {"misc", "json",    "tok",     "model", "tensor",
                                                "kv",   "request", "grammar", "http"};
    return (unsigned)tag < BY_MEM_N ? names[tag] : "?";
}

void by_alloc_fail_nth(int64_t n) { atomic_store(&g_fail_in, n); }
