/* cpu_moe.c - the router and the experts.
 *
 * Experts run in one region, whatever number of rows each has. A pair is a (row, chosen expert); the pairs of an expert follow
 * each other, the shared expert comes last with a pair for every row.
 *
 *   phase 1  rows of x are packed                                            (by the caller alone when they are few)
 *   phase 2  for (expert, 32 inner columns): w1 x and w3 x, swiglu, act8, and the result packed for w2
 *   phase 3  for (expert, 32 output columns): w2 products of all pairs       (few pairs: and their sums, which ends here)
 *   phase 4  for (row): the sum over its pairs in the order of the slots, then the shared expert
 *
 * by_cpu_moe_part is the first three phases, with the results of phase 3 as its output.
 *
 * 32 inner columns are one act8 group, so quantising needs no phase of its own. */
#include <math.h>
#include <string.h>

#include "ops/cpu/cpu_ops.h"

enum { LITTLE_PACKING = 1 << 15, FEW_PAIRS = 64, SUM_COLUMNS = 512, OUTER_COLUMNS = BY_MM_JOBS * BY_MM_ROWS };

/* ---- router ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const by_router_args *a;
    const by_vec *vec;
    by_tensor score; /* [T, E] F32: w x */
} routing;

static void route_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const routing *r = arg;
    const by_router_args *a = r->a;
    int32_t E = (int32_t)a->gate.rows;
    for (int64_t t = begin; t < end; t++) {
        bool image = by_tensor_is(&a->row_image) && *by_tensor_i32(&a->row_image, t) && by_tensor_is(&a->bias_vl);
        const float *bias = by_tensor_f32(image ? &a->bias_vl : &a->bias, 0);
        float *g = by_tensor_f32(&r->score, t), *weight = by_tensor_f32(&a->weight, t), sum = 0;
        int32_t *idx = by_tensor_i32_mut(&a->idx, t);
        r->vec->softplus_root(g, E);
        /* The k best in descending order, kept sorted; of equals the lower expert stays in front. */
        int32_t n = 0;
        for (int32_t e = 0; e < E; e++) {
            float s = g[e] + bias[e];
            if (n == a->k && !(s > g[idx[n - 1]] + bias[idx[n - 1]])) continue;
            int32_t at = n < a->k ? n++ : n - 1;
            for (; at > 0 && s > g[idx[at - 1]] + bias[idx[at - 1]]; at--) idx[at] = idx[at - 1];
            idx[at] = e;
        }
        for (int32_t k = 0; k < a->k; k++) sum += weight[k] = g[idx[k]];
        for (int32_t k = 0; k < a->k; k++)
            weight[k] = (a->norm_topk ? weight[k] / (sum + 1e-20f) : weight[k]) * a->routed_scale;
    }
}

by_status by_cpu_router(by_device *dev, const by_router_args *a, by_err *err) {
    int64_t T = a->x.rows, E = a->gate.rows;
    assert(a->k >= 1 && a->k <= E);
    if (T == 0) return BY_OK;
    by_cpu_scratch side = {0};
    by_cpu_want(&side, (size_t)(T * E) * 4);
    BY_TRY(by_cpu_begin_side(&side, dev, err));
    by_mem mem = {.dev = dev, .ptr = side.at, .bytes = side.bytes};
    routing r = {a, by_cpu_of(dev)->vec, by_tensor_make(&mem, 0, BY_F32, T, E)};
    by_matmul_args m = {.x = a->x, .n_parts = 1, .groups = 1};
    m.part[0].w.w = a->gate;
    m.part[0].y = r.score;
    BY_TRY(by_cpu_matmul(dev, &m, err));
    by_pool_for(by_cpu_pool(dev, (double)(T * E) * 8), T, 4, route_rows, &r);
    return BY_OK;
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* An expert with work. */
typedef struct {
    by_mm_weight w1, w3, w2;
    const by_mm_way *way1, *way3, *way2;
    int64_t first, n; /* its pairs */
    int64_t chunks;   /* of 32 inner columns */
    int64_t first_chunk;
    bool shared;
    bool packs1, packs3;   /* it packs its rows of x itself: layouts in blocks */
    by_mm_rows x1, x3, in; /* packed rows of x for w1 and for w3, packed inner rows */
} expert;

typedef struct {
    const by_moe_args *a;
    const by_vec *vec;
    const by_mm_kernels *mm;
    int64_t T, D, k, n_pairs;
    int32_t n_experts;
    expert *experts;
    int32_t *row;   /* [pairs]: row of x */
    int32_t *place; /* [pairs]: t * k + slot; shared: T * k + t */
    float *weight;  /* [pairs] */
    int32_t *bad;   /* [T]: an inner value of one of the row's experts is not finite; set by several workers */
    uint8_t *inner; /* [pairs]: A8 or F32 rows, for elements out of range */
    int64_t inner_stride;
    uint8_t *part;  /* [T * k + T][D] of y's dtype, or NULL: summed at once */
    int64_t part_stride;
    bool only_parts; /* part is the output: nothing is summed */
    int64_t n_chunks;
    uint8_t *scratch;
    size_t scratch_bytes, product_bytes;
} moe;

static bool is_here(const by_moe_args *a, int32_t e) { return by_tensor_is(&a->experts[e].w1.w); }

/* Items are experts: layouts in blocks hold each expert's rows in its own order. */
static void pack_experts(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const moe *s = arg;
    for (int64_t i = begin; i < end; i++) {
        const expert *e = &s->experts[i];
        if (e->packs1) by_mm_pack_rows(e->way1, &e->x1, 0, e->n, s->D, 0, by_mm_groups(s->D));
        if (e->packs3) by_mm_pack_rows(e->way3, &e->x3, 0, e->n, s->D, 0, by_mm_groups(s->D));
    }
}

typedef struct {
    const moe *s;
    const by_mm_way *way;
    const by_mm_rows *rows;
} row_packing;

static void pack_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const row_packing *p = arg;
    by_mm_pack_rows(p->way, p->rows, begin, end, p->s->D, 0, by_mm_groups(p->s->D));
}

static void spoil(float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = NAN;
}

/* A thread's scratch: what its products need, then room for results. */
static uint8_t *scratch_of(const moe *s, int32_t worker) { return s->scratch + (size_t)worker * s->scratch_bytes; }
static float *results_of(const moe *s, uint8_t *scratch) { return (float *)(void *)(scratch + s->product_bytes); }

/* Inner columns [c, c + n) of up to BY_MM_MT pairs of an expert from pair m0 on. */
static void inner_block(const moe *s, const expert *e, int64_t c, int64_t n, int64_t m0, int64_t m1, uint8_t *scratch) {
    float *g = results_of(s, scratch), *u = g + BY_MM_MT * BY_MM_ROWS;
    by_dtype act = s->a->y.dtype;
    const by_mm_job jobs[2] = {{&e->w1, c, c + n, g}, {&e->w3, c, c + n, u}};
    bool alike = e->way1 == e->way3 && e->w1.stride == e->w3.stride && e->w1.scale_stride == e->w3.scale_stride;
    by_mm_blocks_f32(e->way1, jobs, alike ? 2 : 1, &e->x1, m0, m1, scratch);
    if (!alike) by_mm_blocks_f32(e->way3, jobs + 1, 1, &e->x3, m0, m1, scratch);
    const int64_t first = e->first + m0;
    const bool quant = s->a->quant;
    /* Clamping and quantising turn what is not finite into numbers. A bad expert must not go unseen, so its outputs become NaN. */
    s->vec->gate_rows(&(by_vec_gate){.g = g, .u = u, .m = m1 - m0, .n = n, .act = act, .limit = s->a->limit,
                                     .weight = e->shared ? NULL : s->weight + first,
                                     .to = s->inner + first * s->inner_stride + c * (quant ? 1 : 4), .stride = s->inner_stride,
                                     .scale_off = quant ? e->w2.k - c + c / 32 : 0, .bad = s->bad,
                                     .row = s->row + first});
    by_mm_pack_rows(e->way2, &e->in, m0, m1, e->w2.k, c / BY_MM_GROUP, by_mm_groups(c + n));
}

static const expert *expert_of(const moe *s, int64_t chunk) {
    int32_t lo = 0, hi = s->n_experts - 1;
    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (s->experts[mid].first_chunk <= chunk) lo = mid;
        else hi = mid - 1;
    }
    return &s->experts[lo];
}

static void inner_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const moe *s = arg;
    uint8_t *scratch = scratch_of(s, worker);
    by_mm_enter(s->mm, scratch);
    for (int64_t i = begin; i < end; i++) {
        const expert *e = expert_of(s, i);
        int64_t c = (i - e->first_chunk) * BY_MM_ROWS, n = e->w1.n - c < BY_MM_ROWS ? e->w1.n - c : BY_MM_ROWS;
        for (int64_t m = 0; m < e->n; m += BY_MM_MT)
            inner_block(s, e, c, n, m, e->n - m < BY_MM_MT ? e->n : m + BY_MM_MT, scratch);
    }
    by_mm_leave(s->mm, scratch);
}

/* Output columns [c, c + n) of all experts for few pairs, summed. */
static void sum_block(const moe *s, int64_t c, int64_t n, uint8_t *scratch) {
    float *part = results_of(s, scratch), *y = part + 2 * FEW_PAIRS * BY_MM_ROWS; /* part[place][32] */
    by_dtype act = s->a->y.dtype;
    for (int32_t j = 0; j < s->n_experts; j++) {
        const expert *e = &s->experts[j];
        by_mm_block_f32(e->way2, &e->w2, c, c + n, &e->in, 0, e->n, y, scratch);
        for (int64_t i = 0; i < e->n; i++) {
            s->vec->round(y + i * BY_MM_ROWS, act, n);
            memcpy(part + s->place[e->first + i] * BY_MM_ROWS, y + i * BY_MM_ROWS, (size_t)n * 4);
        }
    }
    for (int64_t t = 0; t < s->T; t++) {
        float sum[BY_MM_ROWS] = {0};
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < s->k; k++) sum[i] += part[(t * s->k + k) * BY_MM_ROWS + i];
            if (s->a->shared) sum[i] += part[(s->T * s->k + t) * BY_MM_ROWS + i];
        }
        if (s->bad[t]) spoil(sum, n);
        uint8_t *to = by_tensor_row(&s->a->y, t);
        s->vec->store(to + c * (act == BY_BF16 ? 2 : 4), act, sum, n);
    }
}

static void sum_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const moe *s = arg;
    uint8_t *scratch = scratch_of(s, worker);
    by_mm_enter(s->mm, scratch);
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i * BY_MM_ROWS;
        sum_block(s, c, s->D - c < BY_MM_ROWS ? s->D - c : BY_MM_ROWS, scratch);
    }
    by_mm_leave(s->mm, scratch);
}

/* Items are (expert, OUTER_COLUMNS output columns). */
static void outer_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const moe *s = arg;
    int64_t chunks = (s->D + OUTER_COLUMNS - 1) / OUTER_COLUMNS;
    uint8_t *scratch = scratch_of(s, worker);
    by_mm_enter(s->mm, scratch);
    for (int64_t i = begin; i < end; i++) {
        const expert *e = &s->experts[i / chunks];
        int64_t c = i % chunks * OUTER_COLUMNS, n = s->D - c < OUTER_COLUMNS ? s->D - c : OUTER_COLUMNS;
        by_mm_out out = {.y = s->part, .stride = s->part_stride, .bf16 = s->a->y.dtype == BY_BF16, .list = s->place + e->first};
        by_mm_block(e->way2, &e->w2, c, c + n, &e->in, 0, e->n, &out, scratch);
    }
    by_mm_leave(s->mm, scratch);
}

/* Items are (row, SUM_COLUMNS columns). */
static void row_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const moe *s = arg;
    int64_t pieces = (s->D + SUM_COLUMNS - 1) / SUM_COLUMNS;
    by_dtype act = s->a->y.dtype;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / pieces, c = i % pieces * SUM_COLUMNS, n = s->D - c < SUM_COLUMNS ? s->D - c : SUM_COLUMNS;
        int64_t off = c * (act == BY_BF16 ? 2 : 4);
        const uint8_t *own = s->part + t * s->k * s->part_stride + off, *shared = s->part + (s->T * s->k + t) * s->part_stride + off;
        uint8_t *y = by_tensor_row(&s->a->y, t) + off;
        s->vec->add_rows(y, act, own, s->part_stride, s->k, s->a->shared ? shared : NULL, n);
        if (!s->bad[t]) continue;
        float nan[SUM_COLUMNS];
        spoil(nan, n);
        s->vec->store(y, act, nan, n);
    }
}

/* Items are rows: what phase 4 does for sums. */
static void spoil_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const moe *s = arg;
    by_dtype act = s->a->y.dtype;
    float nan[SUM_COLUMNS];
    spoil(nan, SUM_COLUMNS);
    for (int64_t t = begin; t < end; t++) {
        for (int64_t i = t * s->k; s->bad[t] && i < (t + 1) * s->k; i++) {
            uint8_t *to = s->part + i * s->part_stride;
            if (!is_here(s->a, by_tensor_i32(&s->a->idx, t)[i - t * s->k])) continue;
            for (int64_t c = 0; c < s->D; c += SUM_COLUMNS)
                s->vec->store(to + c * (act == BY_BF16 ? 2 : 4), act, nan, s->D - c < SUM_COLUMNS ? s->D - c : SUM_COLUMNS);
        }
    }
}

static bool packs_little(const moe *s) { return s->n_pairs * s->D <= LITTLE_PACKING; }

static void pack_all(moe *s, by_team *team) {
    for (int i = 0; i < 4 && s->n_experts > 0; i++) { /* routed w1, routed w3, shared w1, shared w3: once each, where rows are apart */
        const expert *e = &s->experts[i < 2 ? 0 : s->n_experts - 1];
        const by_mm_way *way = i % 2 ? e->way3 : e->way1;
        const by_mm_rows *x = i % 2 ? &e->x3 : &e->x1;
        bool seen = (i % 2 && e->x3.packed == e->x1.packed) || (i >= 2 && x->packed == (i % 2 ? s->experts[0].x3 : s->experts[0].x1).packed);
        if (way->block > 1 || seen) continue;
        row_packing p = {s, way, x};
        if (team) by_team_for(team, s->T, 1, pack_rows, &p);
        else pack_rows(&p, 0, s->T, 0);
    }
    if (team) by_team_for(team, s->n_experts, 1, pack_experts, s);
    else pack_experts(s, 0, s->n_experts, 0);
}

static void region(void *arg, by_team *team) {
    moe *s = arg;
    int64_t chunks = (s->D + BY_MM_ROWS - 1) / BY_MM_ROWS;
    if (!packs_little(s)) pack_all(s, team);
    by_team_for(team, s->n_chunks, 1, inner_items, s);
    if (!s->part) {
        by_team_for(team, chunks, 1, sum_items, s);
        return;
    }
    by_team_for(team, s->n_experts * ((s->D + OUTER_COLUMNS - 1) / OUTER_COLUMNS), 1, outer_items, s);
    if (s->only_parts) by_team_for(team, s->T, 1, spoil_items, s);
    else by_team_for(team, s->T * ((s->D + SUM_COLUMNS - 1) / SUM_COLUMNS), 1, row_items, s);
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */

static void add_expert(moe *s, const by_expert *from, int64_t n, bool shared) {
    by_mm_type x = by_cpu_x_type(s->a->x.dtype), in = s->a->quant ? BY_MM_A8 : BY_MM_F32;
    expert *e = &s->experts[s->n_experts++];
    *e = (expert){.w1 = by_cpu_weight(&from->w1), .w3 = by_cpu_weight(&from->w3), .w2 = by_cpu_weight(&from->w2), .first = s->n_pairs,
                  .n = n, .shared = shared, .first_chunk = s->n_chunks};
    assert(e->w1.k == s->D && e->w3.k == s->D && e->w1.n == e->w3.n && e->w2.k == e->w1.n && e->w2.n == s->D);
    e->way1 = by_mm_choose(s->mm, e->w1.type, x);
    e->way3 = by_mm_choose(s->mm, e->w3.type, x);
    e->way2 = by_mm_choose(s->mm, e->w2.type, in);
    e->chunks = (e->w1.n + BY_MM_ROWS - 1) / BY_MM_ROWS;
    s->n_chunks += e->chunks;
    s->n_pairs += n;
}

/* Counts the pairs of each expert that is here, then lists them expert by expert, rows ascending. */
static void list_pairs(moe *s, int32_t *count) {
    const by_moe_args *a = s->a;
    memset(count, 0, (size_t)a->n_experts * sizeof *count);
    for (int64_t t = 0; t < s->T; t++) {
        const int32_t *idx = by_tensor_i32(&a->idx, t);
        for (int64_t k = 0; k < s->k; k++) count[idx[k]]++;
    }
    for (int32_t e = 0; e < a->n_experts; e++) {
        int64_t first = s->n_pairs;
        if (count[e] && is_here(a, e)) add_expert(s, &a->experts[e], count[e], false);
        count[e] = (int32_t)first;
    }
    for (int64_t t = 0; t < s->T; t++) {
        const int32_t *idx = by_tensor_i32(&a->idx, t);
        for (int64_t k = 0; k < s->k; k++) {
            if (!is_here(a, idx[k])) continue;
            int32_t at = count[idx[k]]++;
            s->row[at] = (int32_t)t;
            s->place[at] = (int32_t)(t * s->k + k);
            s->weight[at] = by_tensor_f32(&a->weight, t)[k];
        }
    }
    if (!a->shared) return;
    for (int64_t t = 0; t < s->T; t++) {
        s->row[s->n_pairs + t] = (int32_t)t;
        s->place[s->n_pairs + t] = (int32_t)(s->T * s->k + t);
    }
    add_expert(s, a->shared, s->T, true);
}

/* Space for packed rows: of x apart (T rows) or by product (every pair), of the inner rows always by pair. */
static size_t packed_bytes(const moe *s, const by_mm_way *way, int64_t k, bool by_pair) {
    int64_t rows = by_pair ? s->n_pairs : s->T;
    return by_mul_size((size_t)rows, (size_t)by_mm_row_bytes(way, k) + 1);
}

static by_mm_rows twin(const moe *s, uint8_t *at, int64_t rows, const by_mm_way *way, int64_t k) {
    int64_t stride = by_mm_row_bytes(way, k);
    uint8_t *unsafe = at + rows * stride;
    memset(unsafe, 0, (size_t)rows);
    return (by_mm_rows){.packed = at, .stride = stride, .unsafe = unsafe, .src = by_cpu_src(&s->a->x, 0), .src_stride = s->a->x.stride};
}

/* The rows of one expert in a twin that holds rows apart or pairs in order. */
static by_mm_rows rows_of(const moe *s, const expert *e, by_mm_rows t, const by_mm_way *way) {
    bool one = s->T == 1;
    if (way->block > 1 && !one) {
        t.packed += e->first * t.stride;
        t.unsafe += e->first;
    }
    t.list = e->shared && way->block == 1 ? NULL : s->row + e->first;
    t.n = e->n;
    return t;
}

static void place_rows(moe *s, by_cpu_scratch *mem, const by_mm_way *ways[4]) {
    by_mm_rows x[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        if (!ways[i]) continue;
        for (int j = 0; j < i; j++)
            if (ways[j] && ways[j]->pack == ways[i]->pack) x[i] = x[j];
        if (x[i].packed) continue;
        bool by_pair = ways[i]->block > 1 && s->T > 1;
        x[i] = twin(s, by_cpu_take(mem, packed_bytes(s, ways[i], s->D, by_pair)), by_pair ? s->n_pairs : s->T, ways[i], s->D);
    }
    for (int32_t j = 0; j < s->n_experts; j++) {
        expert *e = &s->experts[j];
        e->x1 = rows_of(s, e, x[e->shared ? 2 : 0], e->way1);
        e->x3 = rows_of(s, e, x[e->shared ? 3 : 1], e->way3);
        /* With one row of x all experts share its packed form, and the first to use it packs. */
        const expert *e0 = &s->experts[0];
        bool first = s->T > 1 || j == 0;
        e->packs1 = e->way1->block > 1 && (first || (e->shared && e->x1.packed != e0->x1.packed && e->x1.packed != e0->x3.packed));
        e->packs3 = e->way3->block > 1 && e->x3.packed != e->x1.packed &&
                    (first || (e->shared && e->x3.packed != e0->x1.packed && e->x3.packed != e0->x3.packed));
        int64_t I = e->w2.k;
        uint8_t *inner = s->inner + e->first * s->inner_stride;
        uint8_t *at = by_cpu_take(mem, by_mul_size((size_t)e->n, (size_t)by_mm_row_bytes(e->way2, I) + 1));
        e->in = twin(s, at, e->n, e->way2, I);
        e->in.n = e->n;
        e->in.src = s->a->quant ? (by_mm_src){BY_MM_A8, inner, inner + I} : (by_mm_src){BY_MM_F32, inner, NULL};
        e->in.src_stride = s->inner_stride;
    }
}

/* Products of experts that are elsewhere, where phase 4 looks for those of the others. */
static void take_parts(moe *s) {
    const by_moe_args *a = s->a;
    size_t n = (size_t)by_dtype_row_bytes(a->part.dtype, s->D);
    assert(a->part.dtype == a->y.dtype && a->part.rows == s->T * s->k);
    for (int64_t i = 0; i < s->T * s->k; i++)
        if (!is_here(a, by_tensor_i32(&a->idx, i / s->k)[i % s->k])) memcpy(s->part + i * s->part_stride, by_tensor_row(&a->part, i), n);
}

static by_status make_lists(moe *s, by_device *dev, int64_t pairs, by_err *err) {
    const by_moe_args *a = s->a;
    int64_t most = pairs < a->n_experts ? pairs : a->n_experts;
    by_cpu_scratch lists = {0};
    by_cpu_want(&lists, (size_t)(most + 1) * sizeof(expert));
    for (int i = 0; i < 4; i++) by_cpu_want(&lists, (size_t)pairs * 4);
    by_cpu_want(&lists, (size_t)a->n_experts * 4);
    BY_TRY(by_cpu_begin_side(&lists, dev, err));
    s->experts = by_cpu_take(&lists, (size_t)(most + 1) * sizeof(expert));
    s->row = by_cpu_take(&lists, (size_t)pairs * 4);
    s->place = by_cpu_take(&lists, (size_t)pairs * 4);
    s->weight = by_cpu_take(&lists, (size_t)pairs * 4);
    s->bad = by_cpu_take(&lists, (size_t)s->T * 4);
    memset(s->bad, 0, (size_t)s->T * 4);
    list_pairs(s, by_cpu_take(&lists, (size_t)a->n_experts * 4));
    return BY_OK;
}

/* out: where the products of phase 3 go, instead of a sum; NULL: they are summed. */
static by_status run_moe(by_device *dev, const by_moe_args *a, const by_tensor *out, by_err *err) {
    const by_cpu_impl *cpu = by_cpu_of(dev);
    moe s = {.a = a, .vec = cpu->vec, .mm = cpu->mm, .T = a->x.rows, .D = a->x.cols, .k = a->idx.cols, .only_parts = out != NULL};
    if (s.T == 0) return by_tensor_is(&a->part) ? by_device_join(dev, err) : BY_OK;
    int64_t pairs = s.T * s.k + (a->shared ? s.T : 0), I = a->shared && a->shared->w1.w.rows > a->inner ? a->shared->w1.w.rows : a->inner;
    BY_TRY(make_lists(&s, dev, pairs, err));
    const expert *first = s.n_experts ? &s.experts[0] : NULL, *last = s.n_experts ? &s.experts[s.n_experts - 1] : NULL;
    const by_mm_way *ways[4] = {first && !first->shared ? first->way1 : NULL, first && !first->shared ? first->way3 : NULL,
                                last && last->shared ? last->way1 : NULL, last && last->shared ? last->way3 : NULL};
    s.inner_stride = a->quant ? by_dtype_row_bytes(BY_A8, I) : I * 4;
    s.product_bytes = by_cpu_round64(by_mm_scratch_bytes(s.mm, s.D > I ? s.D : I));
    s.scratch_bytes = s.product_bytes + (2 * FEW_PAIRS + 2 * BY_MM_MT) * BY_MM_ROWS * 4;
    bool few = pairs <= FEW_PAIRS && !out && !by_tensor_is(&a->part);
    by_pool *pool = by_cpu_pool(dev, (double)pairs * 3 * (double)s.D * (double)I);
    int32_t threads = by_pool_threads(pool);
    by_cpu_scratch mem = {0};
    by_cpu_want(&mem, by_mul_size((size_t)pairs, (size_t)s.inner_stride));
    s.part_stride = out ? out->stride : by_dtype_row_bytes(a->y.dtype, s.D);
    if (!few && !out) by_cpu_want(&mem, by_mul_size((size_t)pairs, (size_t)s.part_stride));
    by_cpu_want(&mem, by_mul_size((size_t)threads, s.scratch_bytes));
    for (int i = 0; i < 4; i++)
        if (ways[i]) by_cpu_want(&mem, packed_bytes(&s, ways[i], s.D, ways[i]->block > 1));
    for (int32_t j = 0; j < s.n_experts; j++) {
        const expert *e = &s.experts[j];
        by_cpu_want(&mem, by_mul_size((size_t)e->n, (size_t)by_mm_row_bytes(e->way2, e->w2.k) + 1));
    }
    BY_TRY(by_cpu_begin(&mem, dev, err));
    s.inner = by_cpu_take(&mem, (size_t)(pairs * s.inner_stride));
    if (out) s.part = by_tensor_row(out, 0);
    else if (!few) s.part = by_cpu_take(&mem, (size_t)(pairs * s.part_stride));
    s.scratch = by_cpu_take(&mem, (size_t)threads * s.scratch_bytes);
    place_rows(&s, &mem, ways);
    if (packs_little(&s)) pack_all(&s, NULL);
    if (by_tensor_is(&a->part)) {
        BY_TRY(by_device_join(dev, err));
        take_parts(&s);
    }
    by_pool_run(pool, region, &s);
    return BY_OK;
}

by_status by_cpu_moe(by_device *dev, const by_moe_args *a, by_err *err) { return run_moe(dev, a, NULL, err); }

by_status by_cpu_moe_part(by_device *dev, const by_moe_part_args *a, by_err *err) {
    by_moe_args all = {.x = a->x, .idx = a->idx, .weight = a->weight, .experts = a->experts, .n_experts = a->n_experts, .y = a->part,
                       .inner = a->inner, .limit = a->limit, .quant = a->quant};
    assert(a->part.rows == a->x.rows * a->idx.cols);
    return run_moe(dev, &all, &a->part, err);
}
