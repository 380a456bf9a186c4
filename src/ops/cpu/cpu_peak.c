/* cpu_peak.c - see cpu_peak.h. Every thread runs the same loop in one region; the slowest of them ends the window. */
#include "ops/cpu/cpu_peak.h"

#include "base/clock.h"
#include "base/pool.h"
#include "ops/cpu/cpu_mm.h"

enum { WINDOWS = 12, WINDOW_NS = 4000000 };

typedef struct {
    const by_mm_kernels *kernels;
    int64_t rounds;
} job;

static void run_rounds(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t i = begin; i < end; i++) j->kernels->peak(j->rounds);
}

static double window(by_pool *pool, job *j) {
    int64_t t0 = by_clock_ns();
    by_pool_for(pool, by_pool_threads(pool), 1, run_rounds, j);
    return (double)(by_clock_ns() - t0);
}

static double measure(by_pool *pool, const by_mm_kernels *kernels) {
    job j = {kernels, 100};
    double ns = 0, best = 0;
    while ((ns = window(pool, &j)) < WINDOW_NS) j.rounds = ns < WINDOW_NS / 16 ? j.rounds * 8 : j.rounds * 2;
    for (int i = 0; i < WINDOWS; i++) {
        ns = window(pool, &j);
        if (best == 0 || ns < best) best = ns;
    }
    return kernels->peak(1) * (double)j.rounds * by_pool_threads(pool) / (best * 1e-9);
}

by_status by_cpu_peak_measure(by_cpu_peak *out, int *n, int max, by_isa isa, int32_t n_threads, by_err *err) {
    by_pool *pool;
    *n = 0;
    const by_mm_kernels *kernels = by_mm_kernels_for(isa);
    if (!kernels) return BY_OK;
    BY_TRY(by_pool_create(&pool, n_threads, err));
    for (; kernels && *n < max; kernels = kernels->base) out[(*n)++] = (by_cpu_peak){kernels->isa, measure(pool, kernels)};
    by_pool_destroy(pool);
    return BY_OK;
}
