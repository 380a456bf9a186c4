/* cpu_moe.c - by_op_moe on the kernels of cpu_mm.h, in five dispatches:
 *
 *   pack x     for the way the experts read rows, and for the shared expert's
 *   up         32 columns of w1 and w3 at a time: gated product, routing weight, act8 (its groups are these 32 columns)
 *   pack a     the gated products, for w2
 *   down       w2: one row for each (token, slot)
 *   sum        slots in order, then the shared expert
 *
 * A product is one expert with the rows that chose it; the shared expert is one more, with all rows. Each reads its weights
 * once. The order of sums over slots is fixed, so a row does not depend on the others. */
#include <math.h>
#include <string.h>

#include "ops/cpu/cpu_ops.h"

/* Rows to be packed: all rows of x for one way, or (ways with blocks) the rows of one product. */
typedef struct {
    const by_mm_way *way;
    by_mm_rows rows;
    int64_t item0; /* its first work item: one block of rows each */
} pack_job;

typedef struct {
    const by_expert *e;
    const by_mm_way *up, *down;
    int64_t row0, n, inner; /* its rows among all products' rows; columns of a */
    int64_t up0, down0;     /* first work items */
    int32_t pack;           /* pack_job of x */
} product;

typedef struct {
    const by_moe_args *a;
    product *p;
    pack_job *px, *pa;
    int64_t n_products, n_rows, n_px; /* n_rows: T * k, and T for the shared expert */
    int32_t *token, *place; /* [n_rows]: row of x; row of part */
    float *weight;          /* [n_rows] */
    uint8_t *act, *part, *scratch;
    int64_t act_stride, act_cols, part_stride;
    size_t scratch_bytes;
    bool bf16; /* activation dtype */
} call;

/* ---- packing ---- */

static int64_t blocks_of(const pack_job *j) { return (j->rows.n + j->way->block - 1) / j->way->block; }

static void pack_items(const pack_job *jobs, int64_t n_jobs, int64_t k_fixed, const product *p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        int64_t j = 0;
        while (j + 1 < n_jobs && jobs[j + 1].item0 <= i) j++;
        int64_t block = jobs[j].way->block, i0 = (i - jobs[j].item0) * block, k = k_fixed ? k_fixed : p[j].inner;
        int64_t i1 = i0 + block < jobs[j].rows.n ? i0 + block : jobs[j].rows.n;
        by_mm_pack_rows(jobs[j].way, &jobs[j].rows, i0, i1, k, 0, by_mm_groups(k));
    }
}

static void pack_x(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const call *c = arg;
    pack_items(c->px, c->n_px, c->a->x.cols, NULL, begin, end);
}

static void pack_a(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const call *c = arg;
    pack_items(c->pa, c->n_products, 0, c->p, begin, end);
}

/* ---- products ---- */

static by_mm_rows x_rows(const call *c, const product *p) {
    by_mm_rows r = c->px[p->pack].rows;
    r.list = c->token + p->row0;
    r.n = p->n;
    return r;
}

static float rounded(const call *c, float v) { return c->bf16 ? by_bf16_round(v) : v; }

/* Gated products of rows [m0, m1) and columns [n0, n1) from the outputs of w1 and w3. */
static void gate(const call *c, const product *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1, const float *g, const float *u) {
    float L = c->a->limit;
    for (int64_t m = m0; m < m1; m++, g += BY_MM_ROWS, u += BY_MM_ROWS) {
        float v[BY_MM_ROWS], w = c->weight[p->row0 + m];
        for (int64_t i = 0; i < n1 - n0; i++) {
            float gv = rounded(c, g[i]), uv = rounded(c, u[i]);
            if (L > 0) {
                gv = gv < L ? gv : L;
                uv = uv < -L ? -L : uv > L ? L : uv;
            }
            v[i] = gv / (1.0f + expf(-gv)) * uv * w;
        }
        uint8_t *row = c->act + (p->row0 + m) * c->act_stride;
        if (c->a->quant) by_quant_act8(v, n1 - n0, row + n0, row + c->act_cols + n0 / 32);
        else memcpy(row + 4 * n0, v, (size_t)(n1 - n0) * 4);
    }
}

static const product *find(const call *c, int64_t item, bool up) {
    int64_t lo = 0, hi = c->n_products - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if ((up ? c->p[mid].up0 : c->p[mid].down0) <= item) lo = mid;
        else hi = mid - 1;
    }
    return &c->p[lo];
}

static void up(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const call *c = arg;
    float *g = (float *)(void *)(c->scratch + (size_t)worker * c->scratch_bytes), *u = g + BY_MM_MT * BY_MM_ROWS;
    void *core = u + BY_MM_MT * BY_MM_ROWS;
    for (int64_t i = begin; i < end; i++) {
        const product *p = find(c, i, true);
        by_mm_weight w1 = by_cpu_mm_weight(&p->e->w1), w3 = by_cpu_mm_weight(&p->e->w3);
        by_mm_rows x = x_rows(c, p);
        int64_t n0 = (i - p->up0) * BY_MM_ROWS, n1 = n0 + BY_MM_ROWS < p->inner ? n0 + BY_MM_ROWS : p->inner;
        int64_t step = BY_MM_MT / p->up->block * p->up->block;
        for (int64_t m0 = 0; m0 < p->n; m0 += step) {
            int64_t m1 = m0 + step < p->n ? m0 + step : p->n;
            by_mm_block_f32(p->up, &w1, n0, n1, &x, m0, m1, g, core);
            by_mm_block_f32(p->up, &w3, n0, n1, &x, m0, m1, u, core);
            gate(c, p, m0, m1, n0, n1, g, u);
        }
    }
}

static void down(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const call *c = arg;
    uint8_t *scratch = c->scratch + (size_t)worker * c->scratch_bytes;
    int64_t D = c->a->y.cols;
    for (int64_t i = begin; i < end; i++) {
        const product *p = find(c, i, false);
        by_mm_weight w2 = by_cpu_mm_weight(&p->e->w2);
        by_mm_out out = {c->part, c->part_stride, c->bf16, c->place + p->row0};
        int64_t n0 = (i - p->down0) * BY_MM_ROWS, n1 = n0 + BY_MM_ROWS < D ? n0 + BY_MM_ROWS : D;
        by_mm_block(p->down, &w2, n0, n1, &c->pa[p - c->p].rows, 0, p->n, &out, scratch);
    }
}

static float part_value(const call *c, int64_t row, int64_t i) {
    const uint8_t *p = c->part + row * c->part_stride;
    if (!c->bf16) return ((const float *)(const void *)p)[i];
    return by_bf16_to_f32(((const uint16_t *)(const void *)p)[i]);
}

enum { SUM_COLUMNS = 256 };

/* Item i: SUM_COLUMNS columns of one token. */
static void sum(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const call *c = arg;
    int64_t D = c->a->y.cols, k = c->a->idx.cols, T = c->a->x.rows, cuts = (D + SUM_COLUMNS - 1) / SUM_COLUMNS;
    for (int64_t item = begin; item < end; item++) {
        int64_t t = item / cuts, c0 = item % cuts * SUM_COLUMNS, c1 = c0 + SUM_COLUMNS < D ? c0 + SUM_COLUMNS : D;
        uint8_t *y = by_tensor_row(&c->a->y, t);
        for (int64_t i = c0; i < c1; i++) {
            float v = 0;
            for (int64_t j = 0; j < k; j++) v += part_value(c, t * k + j, i);
            if (c->a->shared) v += part_value(c, T * k + t, i);
            if (c->bf16) ((uint16_t *)(void *)y)[i] = by_bf16_of_f32(v);
            else ((float *)(void *)y)[i] = v;
        }
    }
}

/* ---- the call ---- */

/* Rows of each chosen expert, in the order of tokens; then the shared expert with all tokens. */
static void make_products(call *c, int32_t *count) {
    const by_moe_args *a = c->a;
    int64_t T = a->x.rows, k = a->idx.cols, at = 0;
    memset(count, 0, (size_t)a->n_experts * 4);
    for (int64_t t = 0; t < T; t++)
        for (int64_t j = 0; j < k; j++) count[by_tensor_i32(&a->idx, t)[j]]++;
    c->n_products = 0;
    for (int32_t e = 0; e < a->n_experts; e++) {
        int32_t n = count[e];
        count[e] = (int32_t)at; /* from here on: where the expert's next row goes */
        if (n == 0) continue;
        c->p[c->n_products++] = (product){.e = &a->experts[e], .row0 = at, .n = n, .inner = a->inner};
        at += n;
    }
    for (int64_t t = 0; t < T; t++) {
        for (int64_t j = 0; j < k; j++) {
            int32_t r = count[by_tensor_i32(&a->idx, t)[j]]++;
            c->token[r] = (int32_t)t;
            c->place[r] = (int32_t)(t * k + j);
            c->weight[r] = by_tensor_f32(&a->weight, t)[j];
        }
    }
    if (!a->shared) return;
    c->p[c->n_products++] = (product){.e = a->shared, .row0 = at, .n = T, .inner = a->shared->w1.w.rows};
    for (int64_t t = 0; t < T; t++, at++) {
        c->token[at] = (int32_t)t;
        c->place[at] = (int32_t)at;
        c->weight[at] = 1;
    }
}

/* The pack_job of x for a product: one for all that read rows one by one, one each for those that read blocks. */
static void plan_x(call *c, product *p) {
    by_mm_rows rows = {.stride = by_mm_row_bytes(p->up, c->a->x.cols), .src = by_cpu_mm_src(&c->a->x, 0), .src_stride = c->a->x.stride,
                       .n = c->a->x.rows};
    if (p->up->block == 1) {
        for (int64_t j = 0; j < c->n_px; j++) {
            if (c->px[j].way != p->up) continue;
            p->pack = (int32_t)j;
            return;
        }
    } else {
        rows.list = c->token + p->row0;
        rows.n = p->n;
    }
    p->pack = (int32_t)c->n_px;
    c->px[c->n_px++] = (pack_job){.way = p->up, .rows = rows};
}

typedef struct {
    int64_t x_items, a_items, up_items, down_items, packed_bytes, unsafe_bytes;
    double macs;
} plan;

/* Ways, jobs and work items; the jobs' `packed` holds offsets until the memory is there. */
static plan plan_call(call *c, const by_mm_kernels *mm) {
    plan s = {0};
    int64_t D = c->a->x.cols;
    by_mm_type xt = by_cpu_mm_src(&c->a->x, 0).type, at = c->a->quant ? BY_MM_A8 : BY_MM_F32;
    c->n_px = 0;
    for (int64_t i = 0; i < c->n_products; i++) {
        product *p = &c->p[i];
        p->up = by_mm_choose(mm, by_cpu_mm_weight(&p->e->w1).type, xt);
        p->down = by_mm_choose(mm, by_cpu_mm_weight(&p->e->w2).type, at);
        plan_x(c, p);
        p->up0 = s.up_items;
        p->down0 = s.down_items;
        s.up_items += (p->inner + BY_MM_ROWS - 1) / BY_MM_ROWS;
        s.down_items += (D + BY_MM_ROWS - 1) / BY_MM_ROWS;
        s.macs += 3.0 * (double)p->inner * (double)D * (double)p->n;
        c->pa[i] = (pack_job){.way = p->down, .item0 = s.a_items,
                              .rows = {.stride = by_mm_row_bytes(p->down, p->inner), .src_stride = c->act_stride, .n = p->n}};
        s.a_items += blocks_of(&c->pa[i]);
    }
    for (int64_t i = 0; i < c->n_px; i++) {
        c->px[i].item0 = s.x_items;
        s.x_items += blocks_of(&c->px[i]);
    }
    for (int set = 0; set < 2; set++) {
        pack_job *jobs = set ? c->pa : c->px;
        for (int64_t i = 0; i < (set ? c->n_products : c->n_px); i++) {
            int64_t rows = blocks_of(&jobs[i]) * jobs[i].way->block;
            jobs[i].rows.packed = (uint8_t *)(uintptr_t)s.packed_bytes;
            jobs[i].rows.unsafe = (uint8_t *)(uintptr_t)s.unsafe_bytes;
            s.packed_bytes += (rows * jobs[i].rows.stride + 63) / 64 * 64;
            s.unsafe_bytes += rows;
        }
    }
    return s;
}

static void place_jobs(call *c, uint8_t *packed, uint8_t *unsafe) {
    for (int set = 0; set < 2; set++) {
        pack_job *jobs = set ? c->pa : c->px;
        for (int64_t i = 0; i < (set ? c->n_products : c->n_px); i++) {
            jobs[i].rows.packed = packed + (uintptr_t)jobs[i].rows.packed;
            jobs[i].rows.unsafe = unsafe + (uintptr_t)jobs[i].rows.unsafe;
            if (!set) continue;
            const uint8_t *row = c->act + c->p[i].row0 * c->act_stride;
            jobs[i].rows.src = c->a->quant ? (by_mm_src){BY_MM_A8, row, row + c->act_cols} : (by_mm_src){BY_MM_F32, row, NULL};
        }
    }
}

by_status by_cpu_moe(by_device *dev, const by_moe_args *a, by_err *err) {
    const by_cpu_state *st = by_cpu_state_of(dev);
    int64_t T = a->x.rows, D = a->x.cols, k = a->idx.cols, rows = T * k + (a->shared ? T : 0);
    if (T == 0) return BY_OK;
    int64_t most = rows < a->n_experts + 1 ? rows : a->n_experts + 1;
    int64_t wide = a->shared && a->shared->w1.w.rows > a->inner ? a->shared->w1.w.rows : a->inner;
    call c = {.a = a, .n_rows = rows, .bf16 = a->y.dtype == BY_BF16, .act_cols = wide};
    c.act_stride = (by_dtype_row_bytes(a->quant ? BY_A8 : BY_F32, wide) + 63) / 64 * 64;
    c.part_stride = by_dtype_row_bytes(a->y.dtype, D);
    /* First the lists, whose sizes are known, then what they lead to: the scratch may move in between. */
    by_cpu_carve m = {0};
    size_t o_p = by_cpu_carve_add(&m, (size_t)most * sizeof *c.p), o_px = by_cpu_carve_add(&m, (size_t)most * sizeof *c.px);
    size_t o_pa = by_cpu_carve_add(&m, (size_t)most * sizeof *c.pa), o_token = by_cpu_carve_add(&m, (size_t)rows * 4);
    size_t o_place = by_cpu_carve_add(&m, (size_t)rows * 4), o_weight = by_cpu_carve_add(&m, (size_t)rows * 4);
    size_t o_count = by_cpu_carve_add(&m, (size_t)a->n_experts * 4), o_act = by_cpu_carve_add(&m, (size_t)(rows * c.act_stride));
    size_t o_part = by_cpu_carve_add(&m, (size_t)(rows * c.part_stride));
    c.scratch_bytes = (by_mm_scratch_bytes(st->mm, D > wide ? D : wide) + 2 * BY_MM_MT * BY_MM_ROWS * 4 + 63) & ~(size_t)63;
    size_t o_scratch = by_cpu_carve_add(&m, (size_t)dev->n_threads * c.scratch_bytes);
    /* Packed rows: no way takes more than 4 bytes a value, padded to 128 columns and 16 rows. */
    int64_t kx = (D + 127) / 128 * 128 * 4, ka = (wide + 127) / 128 * 128 * 4;
    size_t o_packed = by_cpu_carve_add(&m, (size_t)((rows + 2 * T + 16 * most) * kx + (rows + 16 * most) * ka + 128 * most));
    size_t n_unsafe = (size_t)(2 * rows + 2 * T + 32 * most), o_unsafe = by_cpu_carve_add(&m, n_unsafe);
    m.base = by_device_scratch(dev, m.at, err);
    if (!m.base) return BY_ENOMEM;
    c.p = (product *)(void *)(m.base + o_p);
    c.px = (pack_job *)(void *)(m.base + o_px);
    c.pa = (pack_job *)(void *)(m.base + o_pa);
    c.token = (int32_t *)(void *)(m.base + o_token);
    c.place = (int32_t *)(void *)(m.base + o_place);
    c.weight = (float *)(void *)(m.base + o_weight);
    c.act = m.base + o_act;
    c.part = m.base + o_part;
    c.scratch = m.base + o_scratch;
    make_products(&c, (int32_t *)(void *)(m.base + o_count));
    plan s = plan_call(&c, st->mm);
    assert((size_t)s.packed_bytes <= o_unsafe - o_packed && (size_t)s.unsafe_bytes <= n_unsafe);
    memset(m.base + o_unsafe, 0, (size_t)s.unsafe_bytes);
    place_jobs(&c, m.base + o_packed, m.base + o_unsafe);
    double little = s.macs / 100;
    by_cpu_for(dev, s.x_items, 0, little, pack_x, &c);
    by_cpu_for(dev, s.up_items, 1, s.macs, up, &c);
    by_cpu_for(dev, s.a_items, 0, little, pack_a, &c);
    by_cpu_for(dev, s.down_items, 1, s.macs, down, &c);
    by_cpu_for(dev, T * ((D + SUM_COLUMNS - 1) / SUM_COLUMNS), 0, little, sum, &c);
    return BY_OK;
}
