/* counting.h - helpers around base/alloc.h and bit identity. For tests only. */
#ifndef BY_TEST_COUNTING_H
#define BY_TEST_COUNTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/err.h"

/* Allocation state at a point, to compare with later. */
typedef struct by_alloc_mark {
    uint64_t calls;
    int64_t bytes[BY_MEM_N];
} by_alloc_mark;
by_alloc_mark by_alloc_mark_now(void);

/* True when not one allocation call was made since; prints how many were. */
bool by_alloc_none_since(const by_alloc_mark *m, const char *what);

/* True when every tag holds what it held; prints the tags that differ. */
bool by_alloc_balanced_since(const by_alloc_mark *m, const char *what);

/* Runs body with the n-th allocation failing, n = 1, 2, ... until it succeeds without having met a failure. Every
 * failed run must return BY_ENOMEM and leave no memory behind. body(arg) cleans up after itself, also when it succeeds.
 * Returns the number of failures tried; 0 after a line on stderr when a run broke the rule. n_max bounds the search. */
typedef by_status (*by_alloc_body)(void *arg);
int by_alloc_fail_each(by_alloc_body body, void *arg, int n_max);

/* FNV-1a over bytes: a fingerprint of results to compare runs with each other (threads, chunks, batches). */
uint64_t by_bits_hash(uint64_t seed, const void *data, size_t n);
#define BY_BITS_SEED 0xcbf29ce484222325u

#endif
