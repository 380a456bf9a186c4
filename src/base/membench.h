/* membench.h - the machine's own limit for a benchmark: how fast these threads read memory. */
#ifndef BY_BASE_MEMBENCH_H
#define BY_BASE_MEMBENCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Bytes per second of streaming reads by n_threads threads over one buffer of `bytes` bytes (larger than the caches),
 * best of `rounds`. Errors: BY_ENOMEM, those of by_pool_create. */
by_status by_membench_read(double *bytes_per_s, int32_t n_threads, size_t bytes, int rounds, by_err *err);

#endif
