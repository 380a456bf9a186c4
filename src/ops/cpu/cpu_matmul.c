/* cpu_matmul.c - by_op_matmul on the kernels of cpu_mm.h: one dispatch packs x, one multiplies all parts.
 *
 * Parts that share x and the kernels' way of reading it are multiplied together; the work is cut into rows of scale tiles (32
 * weight rows), each of which reads its weights once for all rows of x. */
#include <string.h>

#include "ops/cpu/cpu_ops.h"
#include "ops/ref/ref.h"

by_mm_weight by_cpu_mm_weight(const by_weight *w) {
    by_mm_weight m = {.n = w->w.rows, .k = w->w.cols, .w = by_tensor_row(&w->w, 0), .stride = w->w.stride};
    switch (w->w.dtype) {
    case BY_FP8_TILE: m.type = BY_MM_FP8; break;
    case BY_FP4_ROW: m.type = BY_MM_FP4; break;
    case BY_BF16: m.type = BY_MM_BF16; break;
    default: m.type = BY_MM_F32; break;
    }
    if (by_tensor_is(&w->scale)) {
        m.scale = by_tensor_row(&w->scale, 0);
        m.scale_stride = w->scale.stride;
    }
    return m;
}

by_mm_src by_cpu_mm_src(const by_tensor *x, int64_t col) {
    const uint8_t *p = by_tensor_row(x, 0);
    switch (x->dtype) {
    case BY_A8: return (by_mm_src){BY_MM_A8, p + col, p + x->cols + col / 32};
    case BY_BF16: return (by_mm_src){BY_MM_BF16, p + 2 * col, NULL};
    default: return (by_mm_src){BY_MM_F32, p + 4 * col, NULL};
    }
}

/* Below this many multiply-adds a call stays on its thread. */
#define SMALL_WORK 3e5

void by_cpu_for(by_device *dev, int64_t n, int64_t chunk, double work, by_cpu_body *body, void *arg) {
    if (n <= 0) return;
    if (work < SMALL_WORK || !dev->pool) body(arg, 0, n, 0);
    else by_pool_for(dev->pool, n, chunk, body, arg);
}

typedef struct {
    const by_matmul_args *a;
    const by_mm_way *way;
    by_mm_weight w[BY_MATMUL_PARTS];
    by_mm_out out[BY_MATMUL_PARTS];
    int64_t tile0[BY_MATMUL_PARTS + 1]; /* first work item of each part */
    int32_t first, n_parts;             /* parts [first, first + n_parts) */
    by_mm_rows x;                       /* of group 0; group g lies g * group_bytes behind */
    int64_t T, K, group_bytes, groups;
    uint8_t *scratch;
    size_t scratch_bytes;
} call;

static by_mm_rows group_rows(const call *c, int64_t g) {
    by_mm_rows r = c->x;
    r.packed += g * c->group_bytes;
    r.unsafe += g * c->T;
    r.src = by_cpu_mm_src(&c->a->x, g * c->K);
    return r;
}

/* Item i packs block i % n_blocks of group i / n_blocks. */
static void pack(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const call *c = arg;
    int64_t block = c->way->block, n_blocks = (c->T + block - 1) / block;
    for (int64_t i = begin; i < end; i++) {
        by_mm_rows r = group_rows(c, i / n_blocks);
        int64_t i0 = i % n_blocks * block, i1 = i0 + block < c->T ? i0 + block : c->T;
        by_mm_pack_rows(c->way, &r, i0, i1, c->K, 0, by_mm_groups(c->K));
    }
}

static void multiply(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const call *c = arg;
    uint8_t *scratch = c->scratch + (size_t)worker * c->scratch_bytes;
    for (int64_t i = begin; i < end; i++) {
        int32_t p = 0;
        while (i >= c->tile0[p + 1]) p++;
        const by_mm_weight *w = &c->w[p];
        int64_t n0 = (i - c->tile0[p]) * BY_MM_ROWS, n1 = n0 + BY_MM_ROWS < w->n ? n0 + BY_MM_ROWS : w->n;
        int64_t per_group = w->n / c->groups;
        while (n0 < n1) { /* a tile that spans two groups is cut at the border */
            int64_t g = n0 / per_group, cut = (g + 1) * per_group < n1 ? (g + 1) * per_group : n1;
            by_mm_rows r = group_rows(c, g);
            by_mm_block(c->way, w, n0, cut, &r, 0, c->T, &c->out[p], scratch);
            n0 = cut;
        }
    }
}

static by_status run_parts(by_device *dev, call *c, by_err *err) {
    const by_cpu_state *st = by_cpu_state_of(dev);
    c->scratch_bytes = (by_mm_scratch_bytes(st->mm, c->K) + 63) & ~(size_t)63;
    int64_t block = c->way->block, n_blocks = (c->T + block - 1) / block;
    c->x.stride = by_mm_row_bytes(c->way, c->K);
    c->group_bytes = n_blocks * block * c->x.stride;
    by_cpu_carve m = {0};
    size_t packed = by_cpu_carve_add(&m, (size_t)(c->groups * c->group_bytes));
    size_t unsafe = by_cpu_carve_add(&m, (size_t)(c->groups * c->T));
    size_t scratch = by_cpu_carve_add(&m, (size_t)dev->n_threads * c->scratch_bytes);
    m.base = by_device_scratch(dev, m.at, err);
    if (!m.base) return BY_ENOMEM;
    c->x.packed = m.base + packed;
    c->x.unsafe = m.base + unsafe;
    c->scratch = m.base + scratch;
    memset(c->x.unsafe, 0, (size_t)(c->groups * c->T));
    double macs = 0;
    for (int32_t p = 0; p < c->n_parts; p++) {
        const by_tensor *y = &c->a->part[c->first + p].y;
        c->w[p] = by_cpu_mm_weight(&c->a->part[c->first + p].w);
        c->out[p] = (by_mm_out){by_tensor_row(y, 0), y->stride, y->dtype == BY_BF16, NULL};
        c->tile0[p + 1] = c->tile0[p] + (c->w[p].n + BY_MM_ROWS - 1) / BY_MM_ROWS;
        macs += (double)c->w[p].n * (double)c->K * (double)c->T;
    }
    by_cpu_for(dev, c->groups * n_blocks, 0, macs < SMALL_WORK ? 0 : 8.0 * (double)(c->groups * c->T * c->K), pack, c);
    by_cpu_for(dev, c->tile0[c->n_parts], 1, macs, multiply, c);
    return BY_OK;
}

by_status by_cpu_matmul(by_device *dev, const by_matmul_args *a, by_err *err) {
    const by_cpu_state *st = by_cpu_state_of(dev);
    if (a->x.rows == 0) return BY_OK;
    by_mm_type xt = by_cpu_mm_src(&a->x, 0).type;
    for (int32_t p = 0; p < a->n_parts;) {
        call c = {.a = a, .first = p, .T = a->x.rows, .groups = a->groups};
        c.way = by_mm_choose(st->mm, by_cpu_mm_weight(&a->part[p].w).type, xt);
        c.K = a->part[p].w.w.cols;
        c.x.n = c.T;
        c.x.src_stride = a->x.stride;
        while (p < a->n_parts && by_mm_choose(st->mm, by_cpu_mm_weight(&a->part[p].w).type, xt) == c.way) {
            assert(a->part[p].w.w.cols * a->groups == a->x.cols && a->part[p].y.cols == a->part[p].w.w.rows);
            p++;
        }
        c.n_parts = p - c.first;
        BY_TRY(run_parts(dev, &c, err));
    }
    return BY_OK;
}
