/* cpu_hc.c - hyper-connections, reading side. Source: model.md section 3.
 *
 *   phase 1  z = fn . h (a product with few outputs and long rows), beside it for each row: u, its norm, sum of h^2
 *   phase 2  for each row: the coefficients
 *
 * The two parts of phase 1 do not depend on each other, so one barrier serves both. */
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "ops/cpu/cpu_ops.h"

enum { MAX_Z = BY_LIMIT_HC_MULT * (BY_LIMIT_HC_MULT + 2), ROW_BLOCK = 64, FEW_PACKED = 1 << 16, LANES = 16 };

typedef struct {
    const by_hc_mix_args *a;
    const by_vec *vec;
    const by_mm_kernels *mm;
    const by_mm_way *way;
    by_mm_weight fn;
    by_mm_rows h;
    int64_t D, chunk, chunks, blocks; /* of outputs, of rows */
    float *z;       /* [T][n] */
    double *square; /* [T]: sum of h^2 */
    float *norm;    /* [D] */
    uint8_t *scratch;
    size_t scratch_bytes, product_bytes; /* of a thread; of them for products, a row's values stand behind */
} mixing;

/* Rows [t0, t0 + n), n <= LANES, together: value i of row t0 + r is z[i * LANES + r]. */
static void coefficients(const mixing *p, int64_t t0, int64_t n) {
    const by_hc_mix_args *a = p->a;
    int64_t m = a->m, n_z = m * (m + 2);
    float z[MAX_Z * LANES];
    if (n < LANES) memset(z, 0, (size_t)(n_z * LANES) * 4);
    for (int64_t r = 0; r < n; r++) {
        double scale = 1.0 / sqrt(p->square[t0 + r] / (double)a->h.cols + (double)a->norm_eps);
        const float *from = p->z + (t0 + r) * n_z;
        for (int64_t i = 0; i < n_z; i++) z[i * LANES + r] = (float)((double)from[i] * scale);
    }
    p->vec->hc_weights(z, by_tensor_f32(&a->base, 0), by_tensor_f32(&a->scale, 0), a->m, a->iters, a->hc_eps);
    for (int64_t r = 0; r < n; r++) {
        float *pre = by_tensor_f32(&a->next_pre, t0 + r), *post = by_tensor_f32(&a->post, t0 + r), *comb = by_tensor_f32(&a->comb, t0 + r);
        for (int64_t i = 0; i < m; i++) {
            pre[i] = z[i * LANES + r];
            post[i] = z[(m + i) * LANES + r];
        }
        for (int64_t i = 0; i < m * m; i++) comb[i] = z[(2 * m + i) * LANES + r];
    }
}

static void mix_row(const mixing *p, int64_t t, uint8_t *scratch) {
    const by_hc_mix_args *a = p->a;
    float *u = (float *)(void *)scratch;
    /* next_pre, which may be pre, is written in phase 2 */
    p->square[t] = p->vec->mix_squares(u, by_tensor_f32(&a->pre, t), a->h.dtype, by_tensor_row(&a->h, t), a->m, p->D);
    p->vec->round(u, a->y.dtype, p->D);
    p->vec->norm(u, u, p->norm, p->D, a->norm_eps);
    p->vec->round(u, a->y.dtype, p->D);
    p->vec->store(by_tensor_row(&a->y, t), a->y.dtype, u, p->D);
    if (by_tensor_is(&a->y_a8)) p->vec->store(by_tensor_row(&a->y_a8, t), BY_A8, u, p->D);
}

/* Items are rows, or blocks of them. */
static void pack_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const mixing *p = arg;
    int64_t T = p->a->h.rows, last = end * p->way->block;
    by_mm_pack_rows(p->way, &p->h, begin * p->way->block, last < T ? last : T, p->fn.k, 0, by_mm_groups(p->fn.k));
}

/* Items: products first (rows of h block by block, outputs chunk by chunk), then rows. */
static void phase1_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const mixing *p = arg;
    uint8_t *scratch = p->scratch + (size_t)worker * p->scratch_bytes;
    int64_t products = p->blocks * p->chunks, T = p->a->h.rows;
    by_mm_out out = {.y = (uint8_t *)p->z, .stride = p->fn.n * 4};
    by_mm_enter(p->mm, scratch);
    for (int64_t i = begin; i < end; i++) {
        if (i >= products) {
            mix_row(p, i - products, scratch + p->product_bytes);
            continue;
        }
        int64_t m0 = i / p->chunks * ROW_BLOCK, n0 = i % p->chunks * p->chunk, n1 = n0 + p->chunk;
        by_mm_block(p->way, &p->fn, n0, n1 < p->fn.n ? n1 : p->fn.n, &p->h, m0, T - m0 < ROW_BLOCK ? T : m0 + ROW_BLOCK, &out, scratch);
    }
    by_mm_leave(p->mm, scratch);
}

/* Items are LANES rows. */
static void coefficient_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const mixing *p = arg;
    int64_t T = p->a->h.rows;
    for (int64_t i = begin; i < end; i++) coefficients(p, i * LANES, T - i * LANES < LANES ? T - i * LANES : LANES);
}

static void region(void *arg, by_team *team) {
    mixing *p = arg;
    int64_t T = p->a->h.rows;
    if (T * p->fn.k > FEW_PACKED) by_team_for(team, (T + p->way->block - 1) / p->way->block, 1, pack_items, p);
    by_team_for(team, p->blocks * p->chunks + T, 1, phase1_items, p);
    by_team_for(team, (T + LANES - 1) / LANES, 1, coefficient_items, p);
}

by_status by_cpu_hc_mix(by_device *dev, const by_hc_mix_args *a, by_err *err) {
    const by_cpu_impl *cpu = by_cpu_of(dev);
    int64_t T = a->h.rows, mD = a->h.cols;
    if (T == 0) return BY_OK;
    by_hc_post_args post = {.h = a->h, .out = a->out, .post = a->post, .comb = a->comb, .m = a->m};
    if (by_tensor_is(&a->out)) BY_TRY(by_cpu_hc_post(dev, &post, err));
    by_weight fn = {.w = a->fn};
    mixing p = {.a = a, .vec = cpu->vec, .mm = cpu->mm, .fn = by_cpu_weight(&fn), .D = mD / a->m};
    p.way = by_mm_choose(cpu->mm, p.fn.type, by_cpu_x_type(a->h.dtype));
    by_pool *pool = by_cpu_pool(dev, (double)T * (double)mD * (double)p.fn.n);
    int32_t threads = by_pool_threads(pool);
    p.blocks = (T + ROW_BLOCK - 1) / ROW_BLOCK;
    p.chunk = threads == 1 || p.blocks >= 2 * threads ? 32 : threads <= 4 ? 8 : 4;
    p.chunks = (p.fn.n + p.chunk - 1) / p.chunk;
    int64_t row_bytes = by_mm_row_bytes(p.way, mD);
    p.product_bytes = by_cpu_round64(by_mm_scratch_bytes(cpu->mm, mD));
    p.scratch_bytes = by_cpu_round64(p.product_bytes + (size_t)p.D * 4);
    by_cpu_scratch s = {0};
    by_cpu_want(&s, by_mul_size((size_t)T, (size_t)row_bytes + 1));
    by_cpu_want(&s, (size_t)(T * p.fn.n) * 4);
    by_cpu_want(&s, (size_t)T * 8);
    by_cpu_want(&s, (size_t)p.D * 4);
    by_cpu_want(&s, by_mul_size((size_t)threads, p.scratch_bytes));
    BY_TRY(by_cpu_begin(&s, dev, err));
    uint8_t *packed = by_cpu_take(&s, (size_t)T * ((size_t)row_bytes + 1));
    p.z = by_cpu_take(&s, (size_t)(T * p.fn.n) * 4);
    p.square = by_cpu_take(&s, (size_t)T * 8);
    p.norm = by_cpu_take(&s, (size_t)p.D * 4);
    p.scratch = by_cpu_take(&s, (size_t)threads * p.scratch_bytes);
    p.h = (by_mm_rows){.packed = packed, .stride = row_bytes, .unsafe = packed + T * row_bytes, .src = by_cpu_src(&a->h, 0),
                       .src_stride = a->h.stride, .n = T};
    memset(p.h.unsafe, 0, (size_t)T);
    p.vec->load(p.norm, a->norm.dtype, by_tensor_row(&a->norm, 0), p.D);
    if (T * p.fn.k <= FEW_PACKED) pack_items(&p, 0, (T + p.way->block - 1) / p.way->block, 0);
    by_pool_run(pool, region, &p);
    return BY_OK;
}
