/* membench.c - see membench.h. Each thread sums its own contiguous part, so that the hardware prefetchers see what a matrix
 * kernel shows them; the sums are kept so that the loop cannot be removed. */
#include "base/membench.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/pool.h"

typedef uint64_t lanes __attribute__((vector_size(64)));

typedef struct {
    const unsigned char *data;
    uint64_t sums[BY_LIMIT_THREADS];
} probe;

enum { LINE = 64, BLOCK = 1 << 16, AHEAD = 2048 };

static void read_blocks(void *arg, int64_t begin, int64_t end, int32_t worker) {
    probe *p = arg;
    lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    const unsigned char *at = p->data + begin * BLOCK, *stop = p->data + end * BLOCK;
    for (; at < stop; at += 4 * LINE) {
        for (int i = 0; i < 4; i++) __builtin_prefetch(at + AHEAD + i * LINE, 0, 0);
        const lanes *v = (const lanes *)(const void *)at;
        s0 += v[0];
        s1 += v[1];
        s2 += v[2];
        s3 += v[3];
    }
    s0 += s1 + s2 + s3;
    p->sums[worker] += s0[0] + s0[1] + s0[2] + s0[3] + s0[4] + s0[5] + s0[6] + s0[7];
}

by_status by_membench_read(double *bytes_per_s, int32_t n_threads, size_t bytes, int rounds, by_err *err) {
    *bytes_per_s = 0;
    int64_t blocks = (int64_t)(bytes / BLOCK);
    by_pool *pool = NULL;
    probe *p = by_alloc_zero(BY_MEM_MISC, sizeof *p);
    unsigned char *data = by_alloc_aligned(BY_MEM_MISC, LINE, (size_t)blocks * BLOCK);
    by_status status = p && data ? by_pool_create(&pool, n_threads, err)
                                 : BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes for the bandwidth probe", bytes);
    if (status == BY_OK) {
        p->data = data;
        memset(data, 1, (size_t)blocks * BLOCK);
        for (int r = 0; r < rounds; r++) {
            int64_t t0 = by_clock_ns();
            by_pool_for(pool, blocks, 0, read_blocks, p);
            double rate = (double)blocks * BLOCK / ((double)(by_clock_ns() - t0) * 1e-9);
            if (rate > *bytes_per_s) *bytes_per_s = rate;
        }
    }
    by_pool_destroy(pool);
    by_free(data);
    by_free(p);
    return status;
}
