/* cpu_matmul.c - the matmul operator: rows of x are packed once, then the outputs are cut into blocks of 32 weight rows and up
 * to 128 rows of x. Blocks of one group of rows follow each other, so that their packed rows stay in the second cache while
 * the weights stream past. */
#include <string.h>

#include "ops/cpu/cpu_ops.h"

enum { ROW_BLOCK = 128, FEW_BLOCKS_PER_THREAD = 4, LITTLE_PACKING = 1 << 15 };

/* One weight, one group of its rows. */
typedef struct {
    const by_mm_way *way;
    by_mm_weight w;
    int64_t group_rows;   /* n / groups */
    int64_t chunk;        /* weight rows per item: tiles of 32, or a part of one when there are few */
    int64_t group_chunks; /* chunks that a group touches */
    int64_t first_item;   /* within one block of rows */
    int packed;           /* which packed twin of x */
    by_mm_out out;
} part;

typedef struct {
    const by_mm_way *way;
    uint8_t *values, *unsafe; /* [groups][T] rows */
    int64_t stride;           /* bytes of a row of values */
} twin;

typedef struct {
    const by_matmul_args *a;
    const by_mm_kernels *mm;
    int n_twins;
    twin twins[BY_MATMUL_PARTS];
    part parts[BY_MATMUL_PARTS];
    int64_t T, k, groups, items, row_blocks, row_block;
    uint8_t *scratch;
    size_t scratch_bytes; /* per thread */
} product;

static by_mm_rows rows_of(const product *p, const twin *t, int64_t group) {
    return (by_mm_rows){.packed = t->values + group * p->T * t->stride, .stride = t->stride, .unsafe = t->unsafe + group * p->T,
                        .src = by_cpu_src(&p->a->x, group * p->k), .src_stride = p->a->x.stride, .n = p->T};
}

/* Items are (twin, group, block of 16 rows). */
static void pack_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const product *p = arg;
    int64_t blocks = (p->T + BY_MM_BLOCK - 1) / BY_MM_BLOCK;
    for (int64_t i = begin; i < end; i++) {
        const twin *t = &p->twins[i / (p->groups * blocks)];
        int64_t group = i / blocks % p->groups, m0 = i % blocks * BY_MM_BLOCK;
        int64_t m1 = p->T - m0 < BY_MM_BLOCK ? p->T : m0 + BY_MM_BLOCK;
        by_mm_rows rows = rows_of(p, t, group);
        memset(rows.unsafe + m0, 0, (size_t)(m1 - m0));
        by_mm_pack_rows(t->way, &rows, m0, m1, p->k, 0, by_mm_groups(p->k));
    }
}

/* Items are (block of rows, part, group, chunk). */
static void multiply_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const product *p = arg;
    void *scratch = p->scratch + (size_t)worker * p->scratch_bytes;
    by_mm_enter(p->mm, scratch);
    int64_t m0 = begin / p->items * p->row_block, item = begin % p->items;
    for (int64_t i = begin; i < end; i++, item++) {
        if (item == p->items) {
            item = 0;
            m0 += p->row_block;
        }
        int64_t m1 = p->T - m0 < p->row_block ? p->T : m0 + p->row_block;
        int n = 0;
        while (n + 1 < p->a->n_parts && p->parts[n + 1].first_item <= item) n++;
        const part *q = &p->parts[n];
        int64_t at = item - q->first_item, group = p->groups > 1 ? at / q->group_chunks : 0; /* a division takes its time */
        int64_t first = group * q->group_rows, last = first + q->group_rows;
        int64_t n0 = ((group ? first / q->chunk : 0) + at - group * q->group_chunks) * q->chunk, n1 = n0 + q->chunk;
        n0 = n0 > first ? n0 : first;
        n1 = n1 < last ? n1 : last;
        if (n0 >= n1) continue; /* a group may touch one chunk less than the most */
        by_mm_rows rows = rows_of(p, &p->twins[q->packed], group);
        by_mm_block(q->way, &q->w, n0, n1, &rows, m0, m1, &q->out, scratch);
    }
    by_mm_leave(p->mm, scratch);
}

static void region(void *arg, by_team *team) {
    product *p = arg;
    int64_t packs = p->n_twins * p->groups * ((p->T + BY_MM_BLOCK - 1) / BY_MM_BLOCK);
    if (p->T * p->groups * p->k * p->n_twins > LITTLE_PACKING) by_team_for(team, packs, 1, pack_items, p);
    by_team_for(team, p->items * p->row_blocks, 1, multiply_items, p);
}

/* Cuts the parts into chunks; smaller ones when they would not keep the threads busy. */
static void cut(product *p, int32_t threads) {
    p->row_block = ROW_BLOCK;
    for (int64_t chunk = BY_MM_JOBS * BY_MM_ROWS;; chunk /= 2) {
        p->items = 0;
        for (int i = 0; i < p->a->n_parts; i++) {
            part *q = &p->parts[i];
            q->chunk = chunk;
            q->group_chunks = (q->group_rows + chunk - 1) / chunk + (p->groups > 1 && q->group_rows % chunk != 0);
            q->first_item = p->items;
            p->items += q->group_chunks * p->groups;
        }
        p->row_blocks = (p->T + p->row_block - 1) / p->row_block;
        if (threads == 1 || chunk == 8 || p->items * p->row_blocks >= FEW_BLOCKS_PER_THREAD * threads) return;
        while (chunk <= BY_MM_ROWS && p->row_block > 32 && p->T > p->row_block / 2 &&
               p->items * p->row_blocks < FEW_BLOCKS_PER_THREAD * threads) {
            p->row_block /= 2;
            p->row_blocks = (p->T + p->row_block - 1) / p->row_block;
        }
        if (p->items * p->row_blocks >= FEW_BLOCKS_PER_THREAD * threads) return;
    }
}

static void describe(product *p, const by_cpu_impl *cpu) {
    const by_matmul_args *a = p->a;
    for (int i = 0; i < a->n_parts; i++) {
        part *q = &p->parts[i];
        const by_tensor *y = &a->part[i].y;
        assert(y->dtype == BY_F32 || y->dtype == BY_BF16);
        q->w = by_cpu_weight(&a->part[i].w);
        assert(q->w.k * p->groups == a->x.cols && y->cols == q->w.n && q->w.n % p->groups == 0);
        q->way = by_mm_choose(cpu->mm, q->w.type, by_cpu_x_type(a->x.dtype));
        q->group_rows = q->w.n / p->groups;
        q->out = (by_mm_out){.y = y->mem->ptr + y->off, .stride = y->stride, .bf16 = y->dtype == BY_BF16};
        q->packed = 0;
        while (q->packed < p->n_twins && p->twins[q->packed].way->pack != q->way->pack) q->packed++;
        if (q->packed == p->n_twins) p->twins[p->n_twins++] = (twin){.way = q->way, .stride = by_mm_row_bytes(q->way, p->k)};
    }
}

by_status by_cpu_matmul(by_device *dev, const by_matmul_args *a, by_err *err) {
    if (a->x.rows == 0 || a->n_parts == 0) return BY_OK;
    product p = {.a = a, .mm = by_cpu_of(dev)->mm, .T = a->x.rows, .groups = a->groups, .k = a->x.cols / a->groups};
    describe(&p, by_cpu_of(dev));
    double macs = 0;
    for (int i = 0; i < a->n_parts; i++) macs += (double)p.parts[i].w.n * (double)p.k * (double)p.T;
    by_pool *pool = by_cpu_pool(dev, macs);
    int32_t threads = by_pool_threads(pool);
    cut(&p, threads);
    by_cpu_scratch s = {0};
    size_t rows = (size_t)(p.T * p.groups);
    for (int i = 0; i < p.n_twins; i++) {
        by_cpu_want(&s, by_mul_size(rows, (size_t)p.twins[i].stride));
        by_cpu_want(&s, rows);
    }
    p.scratch_bytes = by_cpu_round64(by_mm_scratch_bytes(p.mm, p.k));
    by_cpu_want(&s, by_mul_size(p.scratch_bytes, (size_t)threads));
    BY_TRY(by_cpu_begin(&s, dev, err));
    for (int i = 0; i < p.n_twins; i++) {
        p.twins[i].values = by_cpu_take(&s, rows * (size_t)p.twins[i].stride);
        p.twins[i].unsafe = by_cpu_take(&s, rows);
    }
    p.scratch = by_cpu_take(&s, p.scratch_bytes * (size_t)threads);
    if (p.T * p.groups * p.k * p.n_twins <= LITTLE_PACKING) /* less than a phase costs */
        pack_items(&p, 0, p.n_twins * p.groups * ((p.T + BY_MM_BLOCK - 1) / BY_MM_BLOCK), 0);
    by_pool_run(pool, region, &p);
    return BY_OK;
}
