/* cpu_ops.h - the operators of the cpu backend and what they share. Operators without a version here are the ref ones. */
#ifndef BY_OPS_CPU_CPU_OPS_H
#define BY_OPS_CPU_CPU_OPS_H

#include "base/alloc.h"
#include "base/pool.h"
#include "ops/cpu/cpu_mm.h"
#include "ops/cpu/cpu_vec.h"
#include "ops/host.h"

/* by_device.impl of the cpu backend. */
typedef struct by_cpu_impl {
    by_isa isa;
    const by_mm_kernels *mm;
    const by_vec *vec;
    struct {
        void *ptr;
        size_t bytes;
    } side; /* for operators that call another one, which takes the device's scratch */
} by_cpu_impl;

static inline const by_cpu_impl *by_cpu_of(const by_device *dev) { return dev->impl; }

#define BY_CPU_OPS(X)                                                                                                  \
    X(embed) X(hc_mix) X(hc_post) X(hc_close) X(hc_read) X(matmul) X(rmsnorm) X(act8) X(rope) X(window_kv) X(compress)            \
    X(entry_store) X(index_query) X(index_select) X(attention) X(router) X(moe) X(moe_part) X(engram_gate)
#define BY_CPU_DECL(name) by_status by_cpu_##name(by_device *dev, const by_##name##_args *args, by_err *err);
BY_CPU_OPS(BY_CPU_DECL)
#undef BY_CPU_DECL

/* Pieces of one scratch block: add up the sizes first, then take them in the same order. All 64-byte aligned. */
typedef struct by_cpu_scratch {
    uint8_t *at;
    size_t bytes;
} by_cpu_scratch;
static inline size_t by_cpu_round64(size_t n) { return (n + 63) / 64 * 64; }
static inline void by_cpu_want(by_cpu_scratch *s, size_t n) { s->bytes = by_add_size(s->bytes, by_cpu_round64(n)); }
static inline void *by_cpu_take(by_cpu_scratch *s, size_t n) {
    uint8_t *p = s->at;
    s->at += by_cpu_round64(n);
    return p;
}
by_status by_cpu_begin(by_cpu_scratch *s, by_device *dev, by_err *err);
/* The same in memory that by_cpu_begin does not touch. */
by_status by_cpu_begin_side(by_cpu_scratch *s, by_device *dev, by_err *err);

/* Work below this many multiply-adds (or bytes moved) is not worth waking other threads for. */
#define BY_CPU_SMALL_WORK 20000
/* The pool, or NULL (one thread) for little work. */
static inline by_pool *by_cpu_pool(const by_device *dev, double work) { return work < BY_CPU_SMALL_WORK ? NULL : dev->pool; }

/* A weight tensor as the kernels see it; a tensor of x. */
by_mm_weight by_cpu_weight(const by_weight *w);
by_mm_type by_cpu_x_type(by_dtype t);
/* Columns [c, c + ...) of row 0 of x. */
by_mm_src by_cpu_src(const by_tensor *x, int64_t c);

#endif
