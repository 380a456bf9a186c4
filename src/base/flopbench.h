/* flopbench.h - the machine's own limit for a benchmark: how many bf16 multiply-adds these threads do. */
#ifndef BY_BASE_FLOPBENCH_H
#define BY_BASE_FLOPBENCH_H

#include <stdint.h>

#include "base/err.h"

/* Floating point operations per second (two per multiply-add) of n_threads threads on operands that stay in registers, best of
 * `rounds` of about 10 ms: with the best bf16 unit that the processor has (AMX, AVX-512 BF16), else in fp32. *unit names it.
 * Errors: those of by_pool_create, BY_ENOMEM. */
by_status by_flopbench_bf16(double *flop_per_s, const char **unit, int32_t n_threads, int rounds, by_err *err);

#endif
