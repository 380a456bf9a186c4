/* arena.c - see arena.h. Blocks form a list from newest to oldest. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

struct by_arena_block {
    by_arena_block *older;
    size_t cap; /* bytes behind this header */
    _Alignas(16) char data[];
};

enum { FIRST_BYTES = 4096, MAX_BYTES = 1 << 20 };

void by_arena_init(by_arena *a, by_mem_tag tag) {
    *a = (by_arena){.next_bytes = FIRST_BYTES, .tag = tag};
}

void by_arena_deinit(by_arena *a) {
    for (by_arena_block *b = a->head; b;) {
        by_arena_block *older = b->older;
        by_free(b);
        b = older;
    }
    by_arena_init(a, a->tag);
}

void by_arena_reset(by_arena *a) {
    by_arena_block *b = a->head;
    while (b && b->older) {
        by_arena_block *older = b->older;
        by_free(b);
        b = older;
    }
    a->head = b;
    a->at = b ? b->data : NULL;
    a->end = b ? b->data + b->cap : NULL;
    a->used_bytes = 0;
}

void *by_arena_alloc(by_arena *a, size_t n) {
    if (n > SIZE_MAX / 4) return NULL;
    size_t want = (n + 15) & ~(size_t)15;
    if (want == 0) want = 16;
    if (!a->at || (size_t)(a->end - a->at) < want) {
        size_t cap = a->next_bytes ? a->next_bytes : FIRST_BYTES;
        if (cap < want) cap = want;
        by_arena_block *b = by_alloc(a->tag, sizeof(by_arena_block) + cap);
        if (!b) return NULL;
        b->older = a->head;
        b->cap = cap;
        a->head = b;
        a->at = b->data;
        a->end = b->data + cap;
        if (a->next_bytes < MAX_BYTES) a->next_bytes *= 2;
    }
    void *p = a->at;
    a->at += want;
    a->used_bytes += want;
    return p;
}

void *by_arena_zero(by_arena *a, size_t n) {
    void *p = by_arena_alloc(a, n);
    if (p) memset(p, 0, n);
    return p;
}

by_str by_arena_dup(by_arena *a, by_str s) {
    char *p = by_arena_alloc(a, by_add_size(s.len, 1));
    if (!p) return (by_str){NULL, 0};
    if (s.len) memcpy(p, s.ptr, s.len);
    p[s.len] = '\0';
    return (by_str){p, s.len};
}
