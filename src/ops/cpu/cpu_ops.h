/* cpu_ops.h - the operators of the cpu backend, and what they share: the device's kernels and threads. The table starts as
 * that of `ref`; an operator listed here takes its place. */
#ifndef BY_OPS_CPU_CPU_OPS_H
#define BY_OPS_CPU_CPU_OPS_H

#include "base/pool.h"
#include "ops/cpu/cpu_mm.h"
#include "ops/host.h"

/* Behind by_device.impl of a cpu device. */
typedef struct by_cpu_state {
    const by_mm_kernels *mm;
    by_isa isa;
} by_cpu_state;

static inline const by_cpu_state *by_cpu_state_of(const by_device *dev) { return dev->impl; }

/* The operators; rules and shapes in ops.h. */
by_status by_cpu_matmul(by_device *dev, const by_matmul_args *args, by_err *err);
by_status by_cpu_moe(by_device *dev, const by_moe_args *args, by_err *err);

/* The kernels' view of a weight and of a tensor's rows (columns from `col` on). */
by_mm_weight by_cpu_mm_weight(const by_weight *w);
by_mm_src by_cpu_mm_src(const by_tensor *x, int64_t col);

/* Runs body over [0, n): on the caller alone when `work` (multiply-adds or so) is little, since waking threads costs more. */
typedef void by_cpu_body(void *arg, int64_t begin, int64_t end, int32_t worker);
void by_cpu_for(by_device *dev, int64_t n, int64_t chunk, double work, by_cpu_body *body, void *arg);

/* Cuts memory for one operator call out of the device's scratch: add sizes, reserve once, then take in the same order. */
typedef struct by_cpu_carve {
    uint8_t *base;
    size_t at;
} by_cpu_carve;
static inline size_t by_cpu_carve_add(by_cpu_carve *c, size_t n) {
    size_t off = c->at;
    c->at += (n + 63) & ~(size_t)63;
    return off;
}

#endif
