/* cpu_peak.h - the processor's own limit for a benchmark: operations per second of the multiply-add instructions that the
 * matrix kernels use, on the same number of threads. */
#ifndef BY_OPS_CPU_CPU_PEAK_H
#define BY_OPS_CPU_CPU_PEAK_H

#include "base/cpu.h"
#include "base/err.h"

typedef struct by_cpu_peak {
    by_isa isa;
    double flop_s; /* two operations per multiply-add, all threads together */
} by_cpu_peak;

/* The peaks of an instruction set and of those that its kernels fall back to, best first; the last is plain fp32. *n <= max
 * of them, 0 where there are no vector kernels. Best of several windows of a few milliseconds. n_threads as in
 * by_pool_create. Errors: BY_ENOMEM, those of by_pool_create. */
by_status by_cpu_peak_measure(by_cpu_peak *out, int *n, int max, by_isa isa, int32_t n_threads, by_err *err);

#endif
