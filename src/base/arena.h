/* arena.h - bump allocation with one release. Blocks grow geometrically up to 1 MiB; large requests get a block of their
 * own. by_arena_reset keeps the first block so that a per-step arena allocates nothing in steady state. One thread. */
#ifndef BY_BASE_ARENA_H
#define BY_BASE_ARENA_H

#include <stddef.h>

#include "base/alloc.h"
#include "base/str.h"

typedef struct by_arena_block by_arena_block;

typedef struct by_arena {
    by_arena_block *head; /* block in use */
    char *at, *end;
    size_t next_bytes;
    size_t used_bytes; /* sum of requests, for limits */
    by_mem_tag tag;
} by_arena;

void by_arena_init(by_arena *a, by_mem_tag tag);
void by_arena_deinit(by_arena *a);
void by_arena_reset(by_arena *a);

/* n bytes aligned to 16, uninitialised (alloc) or zero; NULL when memory is out. n = 0 gives a valid pointer. */
void *by_arena_alloc(by_arena *a, size_t n);
void *by_arena_zero(by_arena *a, size_t n);

/* Copies bytes; the result is followed by a NUL. ptr is NULL when memory is out. */
by_str by_arena_dup(by_arena *a, by_str s);

#endif
