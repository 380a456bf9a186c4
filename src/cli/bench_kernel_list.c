/* bench_kernel_list.c - the operators of bench_kernels.h. Dimensions are those of tools/presets/flash.json; activations are
 * small random numbers; sequences hold CONTEXT tokens. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "cli/bench_kernels.h"

enum {
    D = 5120, STREAMS = 4, Q_RANK = 1280, HEADS = 64, HEAD_DIM = 512, ROPE = 64, O_GROUPS = 8, O_RANKS = 8192, EXPERTS = 384,
    TOP_K = 6, MOE = 2304, VOCAB = 129280, IX_HEADS = 32, IX_DIM = 128, IX_TOPK = 512, WINDOW = 128, ENGRAM_IN = 6144,
    CONTEXT = 8192, BLOCK = 128
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static by_status keep(by_mem **out, by_kernel_ctx *c, int64_t n, by_err *err) {
    if (c->n_mems == BY_KERNEL_MEMS) return BY_FAIL(err, BY_ELIMIT, "more than %d buffers", BY_KERNEL_MEMS);
    BY_TRY(by_mem_alloc(out, c->dev, (size_t)(n > 0 ? n : 1), err));
    c->mems[c->n_mems++] = *out;
    return BY_OK;
}

/* Zeros. */
static by_status zeros(by_tensor *out, by_kernel_ctx *c, by_dtype t, int64_t rows, int64_t cols, by_err *err) {
    by_mem *mem;
    BY_TRY(keep(&mem, c, rows * by_dtype_row_bytes(t, cols), err));
    *out = by_tensor_make(mem, 0, t, rows, cols);
    return BY_OK;
}

/* Random values of about one: bytes that are a number in every format. */
static by_status values(by_tensor *out, by_kernel_ctx *c, by_dtype t, int64_t rows, int64_t cols, by_err *err) {
    BY_TRY(zeros(out, c, t, rows, cols, err));
    int64_t n = rows * by_dtype_row_bytes(t, cols);
    uint8_t *p = by_alloc(BY_MEM_MISC, (size_t)n);
    if (!p) return BY_FAIL(err, BY_ENOMEM, "out of memory: %lld bytes", (long long)n);
    by_rng rng = {(uint64_t)n};
    for (int64_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)by_rng_u64(&rng);
        p[i] = i % 2 ? (uint8_t)((b & 0x81) | 0x3e) : (uint8_t)(b & 0xf7);
    }
    if (t == BY_A8)
        for (int64_t r = 0; r < rows; r++) memset(p + r * out->stride + cols, 120, (size_t)(cols / 32));
    by_status status = by_mem_write(out->mem, 0, p, (size_t)n, err);
    by_free(p);
    return status;
}

static by_status ints(by_tensor *out, by_kernel_ctx *c, int64_t rows, int64_t cols, const int32_t *v, by_err *err) {
    BY_TRY(zeros(out, c, BY_I32, rows, cols, err));
    return by_mem_write(out->mem, 0, v, (size_t)(rows * cols) * 4, err);
}

/* first, first + step, ... */
static by_status count_up(by_tensor *out, by_kernel_ctx *c, int64_t n, int32_t first, int32_t step, by_err *err) {
    int32_t *v = by_alloc(BY_MEM_MISC, (size_t)n * 4);
    if (!v) return BY_FAIL(err, BY_ENOMEM, "out of memory for %lld numbers", (long long)n);
    for (int64_t i = 0; i < n; i++) v[i] = first + (int32_t)i * step;
    by_status status = ints(out, c, n, 1, v, err);
    by_free(v);
    return status;
}

static int64_t scale_rows(by_dtype t, int64_t n) { return t == BY_FP8_TILE ? (n + 31) / 32 : t == BY_FP4_ROW ? n : 0; }
static int64_t weight_size(by_dtype t, int64_t n, int64_t k) {
    return n * by_dtype_row_bytes(t, k) + scale_rows(t, n) * (k / 32);
}

/* The next window of the shared block. */
static void window(by_weight *w, by_kernel_ctx *c, by_dtype t, int64_t n, int64_t k) {
    int64_t bytes = (n * by_dtype_row_bytes(t, k) + 4095) / 4096 * 4096;
    if (c->at + bytes > c->weight_bytes) c->at = 0;
    w->w = by_tensor_make(c->weights, c->at, t, n, k);
    w->scale = (by_tensor){0};
    if (scale_rows(t, n)) w->scale = by_tensor_make(c->scales, c->at / 16, BY_U8, scale_rows(t, n), k / 32);
    c->at += bytes;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    by_dtype x, w, y;
    int32_t groups;
    int64_t k, n[2];
} product;

static const product products[] = {
    {"wq_a, wkv", BY_A8, BY_FP8_TILE, BY_BF16, 1, D, {Q_RANK, HEAD_DIM}},
    {"wq_b, indexer wq_b", BY_A8, BY_FP8_TILE, BY_BF16, 1, Q_RANK, {HEADS * HEAD_DIM, IX_HEADS * IX_DIM}},
    {"wo_a, 8 groups", BY_A8, BY_FP8_TILE, BY_F32, O_GROUPS, HEADS *HEAD_DIM / O_GROUPS, {O_RANKS, 0}},
    {"wo_b", BY_A8, BY_FP8_TILE, BY_BF16, 1, O_RANKS, {D, 0}},
    {"shared w1, w3", BY_A8, BY_FP8_TILE, BY_BF16, 1, D, {MOE, MOE}},
    {"shared w2", BY_A8, BY_FP8_TILE, BY_BF16, 1, MOE, {D, 0}},
    {"expert w1", BY_A8, BY_FP4_ROW, BY_BF16, 1, D, {MOE, 0}},
    {"expert w2", BY_A8, BY_FP4_ROW, BY_BF16, 1, MOE, {D, 0}},
    {"engram wkv", BY_A8, BY_FP8_TILE, BY_F32, 1, ENGRAM_IN, {(STREAMS + 1) * D, 0}},
    {"compressor wkv, wgate", BY_BF16, BY_BF16, BY_F32, 1, D, {HEAD_DIM, HEAD_DIM}},
    {"indexer wk", BY_BF16, BY_BF16, BY_BF16, 1, HEAD_DIM, {IX_DIM, 0}},
    {"indexer weights", BY_BF16, BY_BF16, BY_BF16, 1, D, {IX_HEADS, 0}},
    {"head", BY_BF16, BY_BF16, BY_F32, 1, D, {VOCAB, 0}},
};
enum { N_PRODUCTS = sizeof products / sizeof products[0] };

static int64_t product_bytes(const product *p) {
    return weight_size(p->w, p->n[0], p->k) + (p->n[1] ? weight_size(p->w, p->n[1], p->k) : 0);
}

static by_status call_matmul(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    by_matmul_args *a = &k->a.matmul;
    for (int i = 0; i < a->n_parts; i++) {
        by_tensor w = a->part[i].w.w;
        window(&a->part[i].w, c, w.dtype, w.rows, w.cols);
    }
    return by_op_matmul(c->dev, a, err);
}

static by_status make_product(by_kernel *k, by_kernel_ctx *c, const product *p, int64_t T, by_err *err) {
    by_matmul_args *a = &k->a.matmul;
    k->call = call_matmul;
    k->bf16_dot = p->x == BY_A8;
    a->groups = p->groups;
    BY_TRY(values(&a->x, c, p->x, T, p->k * p->groups, err));
    k->bytes = (double)(T * a->x.stride);
    for (int i = 0; i < 2 && p->n[i]; i++, a->n_parts++) {
        BY_TRY(zeros(&a->part[i].y, c, p->y, T, p->n[i], err));
        a->part[i].w.w = (by_tensor){.dtype = p->w, .rows = p->n[i], .cols = p->k};
        k->bytes += (double)(T * a->part[i].y.stride);
        k->flops += 2.0 * (double)T * (double)p->n[i] * (double)p->k;
    }
    k->weight_bytes = product_bytes(p);
    k->bytes += (double)k->weight_bytes;
    return BY_OK;
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

static int64_t expert_bytes(by_dtype t) { return 2 * weight_size(t, MOE, D) + weight_size(t, D, MOE); }

static void place_expert(by_expert *e, by_kernel_ctx *c, by_dtype t) {
    window(&e->w1, c, t, MOE, D);
    window(&e->w3, c, t, MOE, D);
    window(&e->w2, c, t, D, MOE);
}

static by_status call_moe(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    for (int e = 0; e < EXPERTS; e++) place_expert(&k->experts[e], c, BY_FP4_ROW);
    place_expert(&k->experts[EXPERTS], c, BY_FP8_TILE);
    return by_op_moe(c->dev, &k->a.moe, err);
}

static by_status make_moe(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_moe_args *a = &k->a.moe;
    k->call = call_moe;
    k->bf16_dot = true;
    k->experts = by_alloc_zero(BY_MEM_MISC, (EXPERTS + 1) * sizeof *k->experts);
    int32_t *idx = by_alloc(BY_MEM_MISC, (size_t)T * TOP_K * 4), distinct = 0;
    if (!k->experts || !idx) {
        by_free(idx);
        return BY_FAIL(err, BY_ENOMEM, "out of memory for %d experts", EXPERTS);
    }
    bool used[EXPERTS] = {false};
    by_rng rng = {7};
    for (int64_t t = 0; t < T; t++) {
        for (int i = 0; i < TOP_K; i++) { /* distinct within a row */
            int32_t *at = idx + t * TOP_K, e;
            int j;
            do {
                e = (int32_t)by_rng_below(&rng, EXPERTS);
                for (j = 0; j < i && at[j] != e; j++) {}
            } while (j < i);
            at[i] = e;
            distinct += !used[e];
            used[e] = true;
        }
    }
    *a = (by_moe_args){.experts = k->experts, .n_experts = EXPERTS, .shared = &k->experts[EXPERTS], .inner = MOE,
                       .limit = 10, .quant = true};
    by_status status = ints(&a->idx, c, T, TOP_K, idx, err);
    by_free(idx);
    BY_TRY(status);
    BY_TRY(values(&a->weight, c, BY_F32, T, TOP_K, err));
    BY_TRY(values(&a->x, c, BY_A8, T, D, err));
    BY_TRY(zeros(&a->y, c, BY_BF16, T, D, err));
    k->weight_bytes = distinct * expert_bytes(BY_FP4_ROW) + expert_bytes(BY_FP8_TILE);
    k->bytes = (double)k->weight_bytes + (double)(T * (a->x.stride + a->y.stride));
    k->flops = 2.0 * 3 * D * MOE * (TOP_K + 1) * (double)T;
    return BY_OK;
}

static by_status call_router(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    by_weight w;
    window(&w, c, BY_BF16, EXPERTS, D);
    k->a.router.gate = w.w;
    return by_op_router(c->dev, &k->a.router, err);
}

static by_status make_router(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_router_args *a = &k->a.router;
    k->call = call_router;
    *a = (by_router_args){.k = TOP_K, .norm_topk = true, .routed_scale = 1.5f};
    BY_TRY(values(&a->x, c, BY_BF16, T, D, err));
    BY_TRY(values(&a->bias, c, BY_F32, 1, EXPERTS, err));
    BY_TRY(zeros(&a->idx, c, BY_I32, T, TOP_K, err));
    BY_TRY(zeros(&a->weight, c, BY_F32, T, TOP_K, err));
    k->weight_bytes = weight_size(BY_BF16, EXPERTS, D);
    k->bytes = (double)k->weight_bytes + (double)(T * a->x.stride);
    k->flops = 2.0 * EXPERTS * D * (double)T;
    return BY_OK;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* One sequence of CONTEXT tokens, this step's T rows behind them. */
static by_status sequence(by_batch *b, by_kernel_ctx *c, int64_t T, by_err *err) {
    b->n_rows = (int32_t)T;
    b->n_seqs = 1;
    const int32_t row0[2] = {0, (int32_t)T}, pos0 = CONTEXT;
    BY_TRY(count_up(&b->row_pos, c, T, CONTEXT, 1, err));
    BY_TRY(zeros(&b->row_seq, c, BY_I32, T, 1, err));
    BY_TRY(zeros(&b->row_image, c, BY_I32, T, 1, err));
    BY_TRY(ints(&b->seq_row0, c, 2, 1, row0, err));
    BY_TRY(ints(&b->seq_pos0, c, 1, 1, &pos0, err));
    BY_TRY(zeros(&b->seq_slot, c, BY_I32, 1, 1, err));
    by_tensor blocks;
    BY_TRY(count_up(&blocks, c, (CONTEXT + T) / BLOCK + 1, 0, 1, err));
    b->seq_blocks = by_tensor_make(blocks.mem, 0, BY_I32, 1, blocks.rows);
    return BY_OK;
}

/* Records whose bytes do for values and for scales of every format. */
static by_status pages(by_pages *p, by_kernel_ctx *c, by_rec rec, int64_t d, int64_t T, by_err *err) {
    by_tensor t;
    *p = (by_pages){.per_block = BLOCK, .rec = rec, .block_stride = BLOCK * by_rec_bytes(rec, d)};
    BY_TRY(zeros(&t, c, BY_U8, (CONTEXT + T) / BLOCK + 1, p->block_stride, err));
    p->mem = t.mem;
    uint8_t *bytes = by_alloc(BY_MEM_MISC, (size_t)(t.rows * t.stride));
    if (!bytes) return BY_FAIL(err, BY_ENOMEM, "out of memory for %lld records", (long long)t.rows * BLOCK);
    by_rng rng = {11};
    for (int64_t i = 0; i < t.rows * t.stride; i++) bytes[i] = (uint8_t)(0x70 | (by_rng_u64(&rng) & 7));
    by_status status = by_mem_write(t.mem, 0, bytes, (size_t)(t.rows * t.stride), err);
    by_free(bytes);
    return status;
}

static by_status call_attention(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_attention(c->dev, &k->a.attention, err);
}

static by_status make_attention(by_kernel *k, by_kernel_ctx *c, int64_t T, bool sparse, by_err *err) {
    by_attention_args *a = &k->a.attention;
    k->call = call_attention;
    *a = (by_attention_args){.heads = HEADS, .d = HEAD_DIM, .window = WINDOW, .ratio = sparse ? 1 : 0, .scale = 0.0442f};
    int64_t rec = by_rec_bytes(BY_REC_FP8, HEAD_DIM), n = sparse ? IX_TOPK : 0;
    BY_TRY(sequence(&a->batch, c, T, err));
    BY_TRY(values(&a->q, c, BY_BF16, T, HEADS * HEAD_DIM, err));
    BY_TRY(values(&a->cs, c, BY_F32, T, ROPE, err));
    BY_TRY(zeros(&a->kv, c, BY_U8, T, rec, err));
    BY_TRY(values(&a->sink, c, BY_F32, 1, HEADS, err));
    BY_TRY(zeros(&a->o, c, BY_A8, T, HEADS * HEAD_DIM, err));
    by_tensor ring;
    BY_TRY(zeros(&ring, c, BY_U8, WINDOW + T, rec, err));
    a->ring = (by_ring){.mem = ring.mem, .len = (int32_t)(WINDOW + T), .rec = BY_REC_FP8, .slot_stride = (WINDOW + T) * rec};
    if (sparse) {
        BY_TRY(pages(&a->main, c, BY_REC_FP4, HEAD_DIM, T, err));
        int32_t *sel = by_alloc(BY_MEM_MISC, (size_t)T * (1 + IX_TOPK) * 4);
        if (!sel) return BY_FAIL(err, BY_ENOMEM, "out of memory for a selection");
        for (int64_t t = 0; t < T; t++) {
            sel[t * (1 + IX_TOPK)] = IX_TOPK;
            for (int32_t i = 0; i < IX_TOPK; i++)
                sel[t * (1 + IX_TOPK) + 1 + i] = i * (CONTEXT / IX_TOPK) + (int32_t)(t % (CONTEXT / IX_TOPK));
        }
        by_status status = ints(&a->sel, c, T, 1 + IX_TOPK, sel, err);
        by_free(sel);
        BY_TRY(status);
    }
    /* Keys are read once, whatever number of rows: neighbours share them. */
    int64_t n_entries = T > 1 && sparse ? CONTEXT : n;
    k->bytes = (double)(WINDOW * rec + n_entries * by_rec_bytes(BY_REC_FP4, HEAD_DIM) + T * (a->q.stride + a->o.stride));
    k->flops = 4.0 * HEADS * HEAD_DIM * (double)((WINDOW + n) * T);
    return BY_OK;
}

static by_status call_index_query(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_index_query(c->dev, &k->a.index_query, err);
}

static by_status make_index_query(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_index_query_args *a = &k->a.index_query;
    k->call = call_index_query;
    *a = (by_index_query_args){.heads = IX_HEADS, .d = IX_DIM};
    BY_TRY(values(&a->q, c, BY_BF16, T, IX_HEADS * IX_DIM, err));
    BY_TRY(values(&a->cs, c, BY_F32, T, ROPE, err));
    BY_TRY(zeros(&a->out, c, BY_IX4, T * IX_HEADS, IX_DIM, err));
    k->bytes = (double)(T * a->q.stride + T * IX_HEADS * a->out.stride);
    k->flops = 4.0 * IX_HEADS * IX_DIM * (double)T;
    return BY_OK;
}

static by_status call_index_select(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_index_select(c->dev, &k->a.index_select, err);
}

static by_status make_index_select(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_index_select_args *a = &k->a.index_select;
    k->call = call_index_select;
    *a = (by_index_select_args){.scale = 0.0156f, .heads = IX_HEADS, .d = IX_DIM, .ratio = 1, .topk = IX_TOPK,
                                .round_bf16 = true, .n_entries_max = (int32_t)(CONTEXT + T)};
    BY_TRY(sequence(&a->batch, c, T, err));
    BY_TRY(values(&a->q, c, BY_IX4, T * IX_HEADS, IX_DIM, err));
    BY_TRY(values(&a->weights, c, BY_BF16, T, IX_HEADS, err));
    BY_TRY(pages(&a->keys, c, BY_REC_IX4, IX_DIM, T, err));
    BY_TRY(zeros(&a->sel, c, BY_I32, T, 1 + IX_TOPK, err));
    k->bytes = (double)((CONTEXT + T) * by_rec_bytes(BY_REC_IX4, IX_DIM) + T * (IX_HEADS * a->q.stride + a->sel.stride));
    k->flops = 2.0 * IX_HEADS * IX_DIM * (double)T * ((double)CONTEXT + (double)T / 2);
    return BY_OK;
}

static by_status call_window_kv(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_window_kv(c->dev, &k->a.window_kv, err);
}

static by_status make_window_kv(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_window_kv_args *a = &k->a.window_kv;
    k->call = call_window_kv;
    *a = (by_window_kv_args){.rec = BY_REC_FP8, .eps = 1e-20f};
    BY_TRY(values(&a->x, c, BY_BF16, T, HEAD_DIM, err));
    BY_TRY(values(&a->norm, c, BY_BF16, 1, HEAD_DIM, err));
    BY_TRY(values(&a->cs, c, BY_F32, T, ROPE, err));
    BY_TRY(zeros(&a->kv, c, BY_U8, T, by_rec_bytes(BY_REC_FP8, HEAD_DIM), err));
    k->bytes = (double)(T * (a->x.stride + a->kv.stride));
    k->flops = 4.0 * HEAD_DIM * (double)T;
    return BY_OK;
}

static by_status call_rope(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_rope(c->dev, &k->a.rope, err);
}

static by_status make_rope(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    k->call = call_rope;
    k->a.rope = (by_rope_args){.heads = HEADS, .d = HEAD_DIM};
    BY_TRY(values(&k->a.rope.x, c, BY_BF16, T, HEADS * HEAD_DIM, err));
    BY_TRY(zeros(&k->a.rope.cs, c, BY_F32, T, ROPE, err));
    k->bytes = (double)(T * 2 * HEADS * ROPE * 2);
    k->flops = 3.0 * HEADS * ROPE * (double)T;
    return BY_OK;
}

/* ---- norms, streams, quantising ---------------------------------------------------------------------------------- */

static by_status call_hc_mix(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    by_weight w;
    window(&w, c, BY_BF16, STREAMS * (STREAMS + 2), STREAMS * D);
    k->a.hc_mix.fn = w.w;
    return by_op_hc_mix(c->dev, &k->a.hc_mix, err);
}

static by_status make_hc_mix(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_hc_mix_args *a = &k->a.hc_mix;
    k->call = call_hc_mix;
    *a = (by_hc_mix_args){.m = STREAMS, .iters = 20, .norm_eps = 1e-20f, .hc_eps = 1e-6f};
    BY_TRY(values(&a->h, c, BY_BF16, T, STREAMS * D, err));
    BY_TRY(values(&a->pre, c, BY_F32, T, STREAMS, err));
    BY_TRY(values(&a->base, c, BY_F32, 1, STREAMS * (STREAMS + 2), err));
    BY_TRY(values(&a->scale, c, BY_F32, 1, 3, err));
    BY_TRY(values(&a->norm, c, BY_BF16, 1, D, err));
    BY_TRY(zeros(&a->y, c, BY_BF16, T, D, err));
    BY_TRY(zeros(&a->y_a8, c, BY_A8, T, D, err));
    BY_TRY(zeros(&a->next_pre, c, BY_F32, T, STREAMS, err));
    BY_TRY(zeros(&a->post, c, BY_F32, T, STREAMS, err));
    BY_TRY(zeros(&a->comb, c, BY_F32, T, STREAMS * STREAMS, err));
    k->weight_bytes = weight_size(BY_BF16, STREAMS * (STREAMS + 2), STREAMS * D);
    k->bytes = (double)k->weight_bytes + (double)(T * (a->h.stride + a->y.stride + a->y_a8.stride));
    k->flops = 2.0 * STREAMS * D * (STREAMS * (STREAMS + 2) + 2) * (double)T;
    return BY_OK;
}

static by_status call_hc_post(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_hc_post(c->dev, &k->a.hc_post, err);
}

static by_status make_hc_post(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_hc_post_args *a = &k->a.hc_post;
    k->call = call_hc_post;
    a->m = STREAMS;
    BY_TRY(zeros(&a->h, c, BY_BF16, T, STREAMS * D, err)); /* in place: other values would grow from call to call */
    BY_TRY(values(&a->out, c, BY_BF16, T, D, err));
    BY_TRY(zeros(&a->post, c, BY_F32, T, STREAMS, err));
    BY_TRY(zeros(&a->comb, c, BY_F32, T, STREAMS * STREAMS, err));
    k->bytes = (double)(T * (2 * a->h.stride + a->out.stride));
    k->flops = 2.0 * STREAMS * (STREAMS + 1) * D * (double)T;
    return BY_OK;
}

static by_status call_rmsnorm(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_rmsnorm(c->dev, &k->a.rmsnorm, err);
}

static by_status make_rmsnorm(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_rmsnorm_args *a = &k->a.rmsnorm;
    k->call = call_rmsnorm;
    a->eps = 1e-20f;
    BY_TRY(values(&a->x, c, BY_BF16, T, Q_RANK, err));
    BY_TRY(values(&a->norm, c, BY_BF16, 1, Q_RANK, err));
    BY_TRY(zeros(&a->y_a8, c, BY_A8, T, Q_RANK, err));
    k->bytes = (double)(T * (a->x.stride + a->y_a8.stride));
    k->flops = 4.0 * Q_RANK * (double)T;
    return BY_OK;
}

static by_status call_act8(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_act8(c->dev, &k->a.act8, err);
}

static by_status make_act8(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    k->call = call_act8;
    BY_TRY(values(&k->a.act8.x, c, BY_F32, T, O_RANKS, err));
    BY_TRY(zeros(&k->a.act8.y, c, BY_A8, T, O_RANKS, err));
    k->bytes = (double)(T * (k->a.act8.x.stride + k->a.act8.y.stride));
    k->flops = 2.0 * O_RANKS * (double)T;
    return BY_OK;
}

static by_status call_engram_gate(by_kernel_ctx *c, by_kernel *k, by_err *err) {
    return by_op_engram_gate(c->dev, &k->a.engram_gate, err);
}

static by_status make_engram_gate(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    by_engram_gate_args *a = &k->a.engram_gate;
    k->call = call_engram_gate;
    *a = (by_engram_gate_args){.m = STREAMS, .eps = 1e-20f};
    BY_TRY(values(&a->h, c, BY_BF16, T, STREAMS * D, err));
    BY_TRY(zeros(&a->kv, c, BY_F32, T, (STREAMS + 1) * D, err));
    BY_TRY(values(&a->q_weight, c, BY_BF16, STREAMS, D, err));
    BY_TRY(values(&a->k_weight, c, BY_BF16, STREAMS, D, err));
    BY_TRY(zeros(&a->row_image, c, BY_I32, T, 1, err));
    k->weight_bytes = 2 * STREAMS * D * 2;
    k->bytes = (double)k->weight_bytes + (double)(T * (2 * a->h.stride + a->kv.stride));
    k->flops = 2.0 * 4 * STREAMS * D * (double)T;
    return BY_OK;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static by_status make_window_attention(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    return make_attention(k, c, T, false, err);
}
static by_status make_sparse_attention(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err) {
    return make_attention(k, c, T, true, err);
}

static const struct {
    const char *op, *name;
    by_status (*make)(by_kernel *k, by_kernel_ctx *c, int64_t T, by_err *err);
} others[] = {
    {"moe", "6 of 384 experts and the shared one", make_moe},
    {"router", "384 experts", make_router},
    {"attention", "window of 128", make_window_attention},
    {"attention", "window and 512 entries", make_sparse_attention},
    {"index_query", "32 heads", make_index_query},
    {"index_select", "512 of 8192 entries", make_index_select},
    {"window_kv", "width 512", make_window_kv},
    {"rope", "64 heads", make_rope},
    {"hc_mix", "4 streams", make_hc_mix},
    {"hc_post", "4 streams", make_hc_post},
    {"rmsnorm", "width 1280, to fp8", make_rmsnorm},
    {"act8", "width 8192", make_act8},
    {"engram_gate", "4 streams", make_engram_gate},
};
enum { N_OTHERS = sizeof others / sizeof others[0] };

int by_kernel_count(void) { return N_PRODUCTS + N_OTHERS; }

const char *by_kernel_name(int i, const char **op) {
    *op = i < N_PRODUCTS ? "matmul" : others[i - N_PRODUCTS].op;
    return i < N_PRODUCTS ? products[i].name : others[i - N_PRODUCTS].name;
}

int64_t by_kernel_weight_bytes(int i) {
    if (i < N_PRODUCTS) return product_bytes(&products[i]);
    return others[i - N_PRODUCTS].make == make_moe ? expert_bytes(BY_FP8_TILE) : 2 * weight_size(BY_BF16, EXPERTS, D);
}

by_status by_kernel_make(by_kernel *out, by_kernel_ctx *c, int i, int64_t rows, by_err *err) {
    *out = (by_kernel){0};
    out->name = by_kernel_name(i, &out->op);
    return i < N_PRODUCTS ? make_product(out, c, &products[i], rows, err) : others[i - N_PRODUCTS].make(out, c, rows, err);
}

void by_kernel_drop(by_kernel *k, by_kernel_ctx *c) {
    while (c->n_mems > 0) by_mem_free(c->mems[--c->n_mems]);
    by_free(k->experts);
    *k = (by_kernel){0};
}
