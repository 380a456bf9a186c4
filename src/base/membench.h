/* membench.h - the machine's own limit for a benchmark: how fast these threads read memory. */
#ifndef BY_BASE_MEMBENCH_H
#define BY_BASE_MEMBENCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct by_membench by_membench;

/* A buffer of `bytes` bytes (larger than the caches) and n_threads threads that read it in windows, one after the other and
 * round again. Errors: BY_ENOMEM, those of by_pool_create. One thread calls. */
by_status by_membench_create(by_membench **out, int32_t n_threads, size_t bytes, by_err *err);
void by_membench_destroy(by_membench *m); /* NULL is allowed */

/* Reads the next n windows, a few milliseconds each, and returns the best rate so far in bytes per second: a window that
 * another program disturbs does not count, and calls between other measurements see the machine as those do. */
double by_membench_step(by_membench *m, int n);

/* All of it: the best of `rounds` passes over the buffer. Errors as for by_membench_create. */
by_status by_membench_read(double *bytes_per_s, int32_t n_threads, size_t bytes, int rounds, by_err *err);

#endif
