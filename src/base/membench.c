/* membench.c - see membench.h. Each thread sums its own contiguous part, so that the hardware prefetchers see what a matrix
 * kernel shows them; the sums are kept so that the loop cannot be removed. */
#include "base/membench.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/pool.h"

typedef uint64_t lanes __attribute__((vector_size(64)));

enum { LINE = 64, BLOCK = 1 << 16, AHEAD = 2048, WINDOW = 16 << 20, WINDOW_OF_THREAD = 4 << 20 };

struct by_membench {
    by_pool *pool;
    unsigned char *data;
    int64_t n_blocks, window, at; /* in blocks: of the buffer, of a window, where the next one starts */
    double best;
    uint64_t sums[BY_LIMIT_THREADS];
};

static void read_blocks(void *arg, int64_t begin, int64_t end, int32_t worker) {
    by_membench *m = arg;
    lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    const unsigned char *at = m->data + (m->at + begin) * BLOCK, *stop = m->data + (m->at + end) * BLOCK;
    for (; at < stop; at += 4 * LINE) {
        for (int i = 0; i < 4; i++) __builtin_prefetch((const void *)((uintptr_t)at + AHEAD + (uintptr_t)i * LINE), 0, 0);
        const lanes *v = (const lanes *)(const void *)at;
        s0 += v[0];
        s1 += v[1];
        s2 += v[2];
        s3 += v[3];
    }
    s0 += s1 + s2 + s3;
    m->sums[worker] += s0[0] + s0[1] + s0[2] + s0[3] + s0[4] + s0[5] + s0[6] + s0[7];
}

by_status by_membench_create(by_membench **out, int32_t n_threads, size_t bytes, by_err *err) {
    *out = NULL;
    by_membench *m = by_alloc_zero(BY_MEM_MISC, sizeof *m);
    if (m) {
        m->n_blocks = (int64_t)(bytes / BLOCK > 0 ? bytes / BLOCK : 1);
        m->data = by_alloc_aligned(BY_MEM_MISC, LINE, (size_t)m->n_blocks * BLOCK);
    }
    by_status status = m && m->data ? by_pool_create(&m->pool, n_threads, err)
                                    : BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes for the bandwidth probe", bytes);
    if (status != BY_OK) {
        by_membench_destroy(m);
        return status;
    }
    memset(m->data, 1, (size_t)m->n_blocks * BLOCK);
    int64_t threads = by_pool_threads(m->pool), window = threads * WINDOW_OF_THREAD > WINDOW ? threads * WINDOW_OF_THREAD : WINDOW;
    m->window = window / BLOCK < m->n_blocks ? window / BLOCK : m->n_blocks;
    *out = m;
    return BY_OK;
}

void by_membench_destroy(by_membench *m) {
    if (!m) return;
    by_pool_destroy(m->pool);
    by_free(m->data);
    by_free(m);
}

double by_membench_step(by_membench *m, int n) {
    for (int i = 0; i < n; i++) {
        if (m->at + m->window > m->n_blocks) m->at = 0;
        int64_t t0 = by_clock_ns();
        by_pool_for(m->pool, m->window, 0, read_blocks, m);
        double rate = (double)m->window * BLOCK / ((double)(by_clock_ns() - t0) * 1e-9);
        if (rate > m->best) m->best = rate;
        m->at += m->window;
    }
    return m->best;
}

by_status by_membench_read(double *bytes_per_s, int32_t n_threads, size_t bytes, int rounds, by_err *err) {
    by_membench *m;
    *bytes_per_s = 0;
    BY_TRY(by_membench_create(&m, n_threads, bytes, err));
    *bytes_per_s = by_membench_step(m, rounds * (int)((m->n_blocks + m->window - 1) / m->window));
    by_membench_destroy(m);
    return BY_OK;
}
