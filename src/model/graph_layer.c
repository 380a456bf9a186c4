/* graph_layer.c - one layer as calls of operators: attention with its compressor and indexer, and the experts. Trunk and draft
 * layers alike; read it beside model.md sections 3 to 8.
 *
 * The same code runs prefill chunks and decode rows: what differs is the number of rows. Within a layer: compress and
 * store, then index, then attend, then write the ring (a chunk may overwrite what its first rows still read; decode rows do not, and
 * write it before). */
#include <math.h>

#include "model/graph_impl.h"

/* What an FP8 or FP4 product reads: the quantised twin, or the plain rows in exact numerics. */
by_tensor by_graph_quantised(const by_pass *p, by_tensor q, by_tensor plain) { return p->m->quant ? q : plain; }

/* Reads the streams, behind what the sublayer before owes them. */
static by_status mix(by_pass *p, const by_hc_weights *hc, by_tensor norm) {
    by_hc_mix_args a = {.h = p->b.h, .pre = p->b.pre, .fn = hc->fn, .base = hc->base, .scale = hc->scale, .norm = norm, .y = p->b.y,
                        .y_a8 = p->b.y_q, .next_pre = p->b.pre, .post = p->b.post, .comb = p->b.comb, .m = p->c->hc_mult,
                        .iters = p->c->hc_iters, .norm_eps = (float)p->c->rms_norm_eps, .hc_eps = (float)p->c->hc_eps};
    if (p->owes) a.out = p->b.out;
    p->owes = false;
    return by_op_hc_mix(p->dev, &a, p->err);
}

by_status by_graph_settle(by_pass *p) {
    if (!p->owes) return BY_OK;
    p->owes = false;
    return by_op_hc_post(
        p->dev, &(by_hc_post_args){.h = p->b.h, .out = p->b.out, .post = p->b.post, .comb = p->b.comb, .m = p->c->hc_mult},
        p->err);
}

/* The products that read the sublayer's input: low-rank query and window key from its quantised form, the indexer's head
 * weights from its bf16 form. */
static by_status project_input(by_pass *p) {
    by_matmul_args a = {.x = by_graph_quantised(p, p->b.y_q, p->b.y), .n_parts = 2, .groups = 1};
    a.part[0].w = p->w->wq_a;
    a.part[0].y = p->b.qa;
    a.part[1].w = p->w->wkv;
    a.part[1].y = p->b.kv_raw;
    BY_TRY(by_op_matmul(p->dev, &a, p->err));
    if (!p->kind->is_index_source) return BY_OK;
    by_matmul_args y = {.x = p->b.y, .n_parts = 1, .groups = 1};
    y.part[0].w = p->w->index_weights;
    y.part[0].y = p->b.iw;
    return by_op_matmul(p->dev, &y, p->err);
}

static by_status project_query(by_pass *p) {
    by_rmsnorm_args n = {.x = p->b.qa, .norm = p->w->q_norm, .eps = (float)p->c->rms_norm_eps};
    if (p->m->quant) n.y_a8 = p->b.qr_q;
    else n.y = p->b.qr;
    BY_TRY(by_op_rmsnorm(p->dev, &n, p->err));
    by_matmul_args a = {.x = by_graph_quantised(p, p->b.qr_q, p->b.qr), .n_parts = 1, .groups = 1};
    a.part[0].w = p->w->wq_b;
    a.part[0].y = p->b.q;
    if (p->kind->is_index_source) {
        a.part[1].w = p->w->index_wq_b;
        a.part[1].y = p->b.iq;
        a.n_parts = 2;
    }
    return by_op_matmul(p->dev, &a, p->err);
}

/* A KV source turns its input into new entries: main KV and index keys. */
static by_status publish(by_pass *p) {
    int32_t ratio = p->kind->ratio, src = by_model_source_index(p->m, p->layer);
    const by_kv_layout *l = by_kv_layout_of(p->r->kv);
    by_entries *e = &p->r->ent[ratio];
    by_tensor v = p->b.v, latent = by_first(p->b.latent, e->n), ik = by_first(p->b.ik, e->n);
    if (ratio == 1) { /* rounded like any projection; ratio 2 keeps the sums for the pooling */
        v.dtype = p->m->act;
        v.stride = by_dtype_row_bytes(v.dtype, v.cols);
    }
    by_matmul_args y = {.x = p->b.y, .n_parts = ratio, .groups = 1};
    y.part[0].w = p->w->comp_wkv;
    y.part[0].y = v;
    if (ratio == 2) {
        y.part[1].w = p->w->comp_wgate;
        y.part[1].y = p->b.s;
    }
    BY_TRY(by_op_matmul(p->dev, &y, p->err));
    by_compress_args c = {.batch = p->batch, .entries = *e, .v = v, .norm = p->w->comp_norm, .latent = latent,
                          .ratio = ratio, .eps = (float)p->c->rms_norm_eps};
    if (ratio == 2) {
        c.s = p->b.s;
        c.tail = by_kv_slot_mem(p->r->kv);
        c.tail_off = by_kv_tail_off(p->r->kv, src);
        c.tail_stride = l->slot_bytes;
        c.tail_len = l->tail_len;
    }
    BY_TRY(by_op_compress(p->dev, &c, p->err));
    if (e->n == 0) return BY_OK;
    by_matmul_args k = {.x = latent, .n_parts = 1, .groups = 1};
    k.part[0].w = p->w->index_wk;
    k.part[0].y = ik;
    BY_TRY(by_op_matmul(p->dev, &k, p->err));
    by_entry_store_args s = {.batch = p->batch, .entries = *e, .latent = latent, .ik = ik, .k_norm = p->w->index_k_norm,
                             .cs = by_first(p->b.cs_entry[ratio], e->n), .main = by_kv_main(p->r->kv, src),
                             .index = by_kv_index(p->r->kv, src), .eps = (float)p->c->rms_norm_eps};
    return by_op_entry_store(p->dev, &s, p->err);
}

static by_status select_entries(by_pass *p) {
    const by_config *c = p->c;
    int32_t ratio = p->kind->ratio, src = by_model_source_index(p->m, p->kind->kv_source);
    by_index_query_args q = {.q = p->b.iq, .cs = p->b.cs_row, .out = p->b.iq_rec, .heads = c->index_n_heads,
                             .d = c->index_head_dim};
    BY_TRY(by_op_index_query(p->dev, &q, p->err));
    by_index_select_args s = {.batch = p->batch, .q = p->b.iq_rec, .weights = p->b.iw,
                              .scale = (float)(1.0 / sqrt((double)c->index_n_heads * c->index_head_dim)),
                              .keys = by_kv_index(p->r->kv, src), .sel = p->b.sel, .heads = c->index_n_heads,
                              .d = c->index_head_dim, .ratio = ratio, .topk = c->index_topk,
                              .cand_blocks = c->candidate_topk_blocks, .cand_block_size = c->candidate_block_size,
                              .round_bf16 = p->m->act == BY_BF16, .n_entries_max = p->r->n_entries_max[ratio]};
    if (p->kind->picks_candidates || p->kind->uses_candidates) {
        s.cand = p->b.cand;
        s.mode = p->kind->picks_candidates ? BY_CAND_SOURCE : BY_CAND_INSIDE;
    }
    return by_op_index_select(p->dev, &s, p->err);
}

static by_status attend(by_pass *p) {
    const by_config *c = p->c;
    int32_t ratio = p->kind->ratio;
    by_attention_args a = {.batch = p->batch, .from = p->from, .q = p->b.q, .cs = ratio ? p->b.cs_row : p->b.cs_window, .kv = p->b.kv,
                           .ring = by_kv_ring(p->r->kv, p->layer), .sel = p->b.sel, .sink = p->w->sink, .o = p->b.o,
                           .heads = c->n_heads, .d = c->head_dim, .window = c->window, .ratio = ratio,
                           .scale = (float)(1.0 / sqrt((double)c->head_dim)),
                           .block = p->block ? p->batch.n_rows / p->batch.n_seqs : 0}; /* all are equally long */
    if (ratio) a.main = by_kv_main(p->r->kv, by_model_source_index(p->m, p->kind->kv_source));
    return by_op_attention(p->dev, &a, p->err);
}

static by_status project_output(by_pass *p) {
    by_matmul_args a = {.x = p->b.o, .n_parts = 1, .groups = p->c->o_groups};
    a.part[0].w = p->w->wo_a;
    a.part[0].y = p->b.t;
    BY_TRY(by_op_matmul(p->dev, &a, p->err));
    if (p->m->quant) BY_TRY(by_op_act8(p->dev, &(by_act8_args){.x = p->b.t, .y = p->b.t_q}, p->err));
    by_matmul_args o = {.x = by_graph_quantised(p, p->b.t_q, p->b.t), .n_parts = 1, .groups = 1};
    o.part[0].w = p->w->wo_b;
    o.part[0].y = p->b.out;
    return by_op_matmul(p->dev, &o, p->err);
}

/* First n rows of every per-row buffer; what has another number of rows is cut where it is used. */
void by_graph_cut_rows(by_buffers *b, int64_t n, int32_t index_heads) {
    by_tensor *per_row[] = {&b->h,  &b->pre,    &b->post, &b->comb, &b->y,   &b->y_q,    &b->qa,       &b->qr,        &b->qr_q,
                            &b->q,  &b->kv_raw, &b->kv,   &b->v,    &b->s,   &b->iq,     &b->iw,       &b->sel,       &b->cand,
                            &b->o,  &b->t,      &b->t_q,  &b->out,  &b->idx, &b->weight, &b->engram_e, &b->engram_kv, &b->cs_window,
                            &b->cs_row};
    for (size_t i = 0; i < sizeof per_row / sizeof per_row[0]; i++) *per_row[i] = by_first(*per_row[i], n);
    b->iq_rec = by_first(b->iq_rec, b->iq_rec.dtype == BY_IX4 ? n * index_heads : n);
}

/* Drops the rows that end at the boundary: what the rest of the layer and of the model reads moves to the twins. */
static by_status compact(by_pass *p) {
    by_runner *r = p->r;
    by_kept_buffers k = r->kept_buf;
    int64_t n = r->kept.n_rows;
    by_tensor *from[] = {&p->b.h, &p->b.pre, &p->b.post, &p->b.comb, &p->b.y, &p->b.cs_window, &p->b.cs_row, &p->b.y_q};
    by_tensor *to[] = {&k.h, &k.pre, &k.post, &k.comb, &k.y, &k.cs_window, &k.cs_row, &k.y_q};
    by_gather_rows_args g = {.rows = r->kept_rows};
    for (int i = 0; i < 8; i++) {
        if (!from[i]->mem) continue;
        g.part[g.n_parts].x = *from[i];
        g.part[g.n_parts++].y = *to[i] = by_first(*to[i], n);
    }
    if (n > 0) BY_TRY(by_op_gather_rows(p->dev, &g, p->err));
    BY_TRY(by_graph_compact_features(p, n));
    by_graph_cut_rows(&p->b, n, p->c->index_n_heads);
    for (int i = 0; i < 8; i++)
        if (from[i]->mem) *from[i] = *to[i];
    p->batch = r->kept;
    return BY_OK;
}

by_status by_graph_attention(by_pass *p) {
    BY_TRY(mix(p, &p->w->hc_attn, p->w->attn_norm));
    if (p->kind->is_kv_source) BY_TRY(publish(p));
    if (p->layer == p->m->boundary) {
        p->from = p->r->limits ? p->r->keep_from : (by_tensor){0};
        if (p->r->compacts) BY_TRY(compact(p));
        if (p->batch.n_rows == 0) return BY_OK;
    }
    by_tensor cs = p->kind->ratio ? p->b.cs_row : p->b.cs_window;
    BY_TRY(project_input(p));
    BY_TRY(project_query(p));
    by_ring ring = by_kv_ring(p->r->kv, p->layer);
    by_window_kv_args kv = {.x = p->b.kv_raw, .norm = p->w->kv_norm, .cs = cs, .kv = p->b.kv, .rec = ring.rec,
                            .eps = (float)p->c->rms_norm_eps, .q = p->b.q, .heads = p->c->n_heads};
    /* short runs overwrite only what their first row no longer sees; nobody reads a block's keys after it */
    bool early = !p->block && p->r->longest <= ring.len - p->c->window + 1, late = !p->block && !early;
    if (early) kv.ring = ring, kv.batch = p->batch, kv.from = p->from;
    BY_TRY(by_op_window_kv(p->dev, &kv, p->err));
    if (p->kind->is_index_source) BY_TRY(select_entries(p));
    BY_TRY(attend(p));
    BY_TRY(project_output(p));
    p->owes = true;
    if (!late) return BY_OK;
    by_ring_store_args store = {.batch = p->batch, .kv = p->b.kv, .from = p->from, .ring = ring};
    return by_op_ring_store(p->dev, &store, p->err);
}

/* by_op_moe with the layer's host experts beside it, if it has any. */
static by_status run_experts(by_pass *p, by_moe_args *moe) {
    by_runner *r = p->r;
    bool beside = p->w->host_experts != NULL;
    if (beside) moe->part = by_host_experts_part(r->host, moe->x.rows, (int32_t)moe->idx.cols);
    by_status status = BY_OK;
    if (beside && !r->measures) status = by_host_experts_begin(r->host, p->layer, moe->x, moe->idx, moe->weight, p->err);
    if (status == BY_OK) status = by_op_moe(p->dev, moe, p->err);
    by_err own;
    by_status joined = beside && status < 0 ? by_device_join(p->dev, &own) : BY_OK; /* the operator has not come to it */
    (void)joined;
    return status;
}

by_status by_graph_experts(by_pass *p) {
    const by_config *c = p->c;
    BY_TRY(mix(p, &p->w->hc_ffn, p->w->ffn_norm));
    by_router_args route = {.x = p->b.y, .gate = p->w->gate, .bias = p->w->bias, .bias_vl = p->w->bias_vl,
                            .row_image = p->batch.row_image, .idx = p->b.idx, .weight = p->b.weight,
                            .k = (int32_t)p->b.idx.cols, .norm_topk = true, .routed_scale = (float)c->routed_scaling};
    BY_TRY(by_op_router(p->dev, &route, p->err));
    by_moe_args moe = {.x = by_graph_quantised(p, p->b.y_q, p->b.y), .idx = p->b.idx, .weight = p->b.weight,
                       .experts = p->w->experts, .n_experts = p->n_experts,
                       .shared = c->n_shared_experts ? &p->w->shared : NULL, .y = p->b.out, .inner = c->moe_width,
                       .limit = (float)c->swiglu_limit, .quant = p->m->quant};
    BY_TRY(run_experts(p, &moe));
    p->owes = true;
    return BY_OK;
}
