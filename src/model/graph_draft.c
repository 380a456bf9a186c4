/* graph_draft.c - the draft layers (DSpark) as calls of operators.
 *
 * Trunk side, in every trunk step: the streams in front of each target layer, averaged, side by side; one projection of that
 * gives every draft layer a window key per row, which goes into its ring. Draft side: a block of K rows per sequence (its newest
 * token, then noise) runs through the draft layers, then K times the Markov head corrects the head's logits by the token
 * before. Keys of a block are not stored: only its own rows see them, so a ring holds nothing but rows of trunk steps. */
#include "model/graph_impl.h"

by_status by_graph_take_features(by_pass *p) {
    if (!p->features.mem) return BY_OK;
    BY_TRY(by_graph_settle(p));
    const by_draft_config *d = &p->c->draft;
    int64_t D = p->c->hidden_size, i = 0;
    while (d->target_ids[i] != p->layer) i++;
    by_tensor y = p->features, pre = p->m->stream_mean;
    y.off += by_dtype_row_bytes(y.dtype, i * D);
    y.cols = D;
    pre.stride = 0;
    pre.rows = p->b.h.rows;
    return by_op_hc_read(p->dev, &(by_hc_read_args){.h = p->b.h, .pre = pre, .y = y, .m = p->c->hc_mult}, p->err);
}

by_status by_graph_compact_features(by_pass *p, int64_t n) {
    if (!p->features.mem) return BY_OK;
    by_tensor all = p->features;
    p->features = by_first(p->r->draft_buf.features_kept, n);
    if (n == 0) return BY_OK;
    by_gather_rows_args g = {.rows = p->r->kept_rows, .n_parts = 1};
    g.part[0].x = all;
    g.part[0].y = p->features;
    return by_op_gather_rows(p->dev, &g, p->err);
}

static by_status product(by_pass *p, by_tensor x, by_weight w, by_tensor y) {
    by_matmul_args a = {.x = x, .n_parts = 1, .groups = 1};
    a.part[0].w = w;
    a.part[0].y = y;
    return by_op_matmul(p->dev, &a, p->err);
}

by_status by_graph_draft_context(by_pass *p) {
    if (!p->features.mem) return BY_OK;
    by_runner *r = p->r;
    const by_draft_weights *w = &p->m->w.draft;
    by_tensor x = p->features;
    if (p->m->quant) {
        x = by_first(r->draft_buf.features_q, x.rows);
        BY_TRY(by_op_act8(p->dev, &(by_act8_args){.x = p->features, .y = x}, p->err));
    }
    BY_TRY(product(p, x, w->main_proj, p->b.out));
    by_rmsnorm_args n = {.x = p->b.out, .norm = w->main_norm, .y = p->b.y, .eps = (float)p->c->rms_norm_eps};
    if (p->m->quant) n.y_a8 = p->b.y_q;
    BY_TRY(by_op_rmsnorm(p->dev, &n, p->err));
    for (int32_t l = 0; l < p->c->draft.n_layers; l++) {
        const by_layer_weights *lw = &w->layers[l];
        BY_TRY(product(p, by_graph_quantised(p, p->b.y_q, p->b.y), lw->wkv, p->b.kv_raw));
        by_window_kv_args kv = {.x = p->b.kv_raw, .norm = lw->kv_norm, .cs = p->b.cs_window, .kv = p->b.kv,
                                .rec = by_kv_layout_of(r->kv)->spec.ring_rec, .eps = (float)p->c->rms_norm_eps,
                                .ring = by_kv_ring(r->kv, p->c->n_layers + l), .batch = p->batch, .from = p->from};
        BY_TRY(by_op_window_kv(p->dev, &kv, p->err));
    }
    return BY_OK;
}

/* The block through the layers: logits without the Markov correction, and the confidences' first half. */
static by_status run_block(by_pass *p) {
    by_runner *r = p->r;
    const by_draft_weights *w = &p->m->w.draft;
    static const by_layer window = {.kind = BY_LAYER_WINDOW, .kv_source = -1, .index_source = -1, .engram = -1};
    int64_t n = r->draft_block.n_rows;
    by_embed_args embed = {.ids = r->ids, .table = p->m->w.embed, .h = p->b.h, .pre = p->b.pre, .m = p->c->hc_mult};
    BY_TRY(by_op_embed(p->dev, &embed, p->err));
    by_rope_table_args t = {.pos = p->batch.row_pos, .scale = 1, .freq = p->m->freq_window, .cs = p->b.cs_window};
    BY_TRY(by_op_rope_table(p->dev, &t, p->err));
    p->kind = &window;
    for (int32_t l = 0; l < p->c->draft.n_layers; l++) {
        p->layer = p->c->n_layers + l;
        p->w = &w->layers[l];
        BY_TRY(by_graph_attention(p));
        BY_TRY(by_graph_experts(p));
    }
    BY_TRY(by_graph_settle(p));
    by_hc_read_args read = {.h = p->b.h, .pre = p->b.pre, .rows = r->rows, .y = by_first(r->draft_buf.u, n), .m = p->c->hc_mult};
    BY_TRY(by_op_hc_read(p->dev, &read, p->err));
    by_hc_close_args close = {.h = p->b.h, .pre = p->b.pre, .norm = w->norm, .rows = r->rows, .y = by_first(r->draft_buf.close, n),
                              .m = p->c->hc_mult, .eps = (float)p->c->rms_norm_eps};
    BY_TRY(by_op_hc_close(p->dev, &close, p->err));
    BY_TRY(product(p, close.y, p->m->w.head, by_first(r->draft_buf.logits, n)));
    return product(p, read.y, w->conf_u, by_first(r->draft_buf.conf, n));
}

by_status by_graph_run_block(by_runner *r, by_err *err) {
    const by_model *m = r->model;
    by_pass p = {.r = r, .m = m, .c = &m->cfg, .dev = m->dev, .b = r->buf, .batch = r->draft_block, .from = r->valid_from,
                 .n_experts = m->cfg.draft.n_experts, .block = true, .err = err};
    p.b.idx = r->draft_buf.idx;
    p.b.weight = r->draft_buf.weight;
    by_graph_cut_rows(&p.b, r->draft_block.n_rows, m->cfg.index_n_heads);
    return run_block(&p);
}

by_status by_graph_run_markov(by_runner *r, by_tensor prev, int32_t first, by_err *err) {
    const by_draft_weights *w = &r->model->w.draft;
    by_pass p = {.r = r, .m = r->model, .dev = r->model->dev, .err = err};
    int64_t n = prev.rows;
    by_tensor e = by_first(r->draft_buf.e, n), bias = by_first(r->draft_buf.bias, n);
    by_gather_rows_args g = {.rows = prev, .n_parts = 1};
    g.part[0].x = w->markov_embed;
    g.part[0].y = e;
    BY_TRY(by_op_gather_rows(p.dev, &g, err));
    by_matmul_args a = {.x = e, .n_parts = 2, .groups = 1};
    a.part[0].w = w->markov_head;
    a.part[0].y = bias;
    a.part[1].w = w->conf_e;
    a.part[1].y = by_tensor_rows(r->draft_buf.conf, r->draft_block.n_rows + first, n);
    BY_TRY(by_op_matmul(p.dev, &a, err));
    return by_op_add(p.dev, &(by_add_args){.x = bias, .y = by_tensor_rows(r->draft_buf.logits, first, n)}, err);
}
