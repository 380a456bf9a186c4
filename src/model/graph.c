/* graph.c - the trunk as calls of operators: embedding, Engram, the layers of graph_layer.c, the head. */
#include "model/graph_impl.h"

static by_status engram(by_pass *p) {
    BY_TRY(by_graph_settle(p));
    int e = p->kind->engram;
    by_engram_args g = {.grams = p->r->grams, .mult = p->m->engram_mult[e], .prime = p->m->engram_prime[e],
                        .base = p->m->engram_base[e], .table = p->w->engram_table, .e = p->b.engram_e};
    BY_TRY(by_op_engram(p->dev, &g, p->err));
    by_matmul_args kv = {.x = p->b.engram_e, .n_parts = 1, .groups = 1};
    kv.part[0].w = p->w->engram_wkv;
    kv.part[0].y = p->b.engram_kv;
    BY_TRY(by_op_matmul(p->dev, &kv, p->err));
    by_engram_gate_args gate = {.h = p->b.h, .kv = p->b.engram_kv, .q_weight = p->w->engram_q, .k_weight = p->w->engram_k,
                                .row_image = p->batch.row_image, .m = p->c->hc_mult, .eps = (float)p->c->rms_norm_eps};
    return by_op_engram_gate(p->dev, &gate, p->err);
}

static by_status tap(by_pass *p, int32_t layer) {
    if (!p->r->tap) return BY_OK;
    BY_TRY(by_graph_settle(p));
    return p->r->tap(p->r->tap_arg, layer, p->b.h, p->err);
}

/* Which rows are not finite, where `layers` layers have run. Quantisers turn NaN into numbers, so that one inside a prompt would not show in
 * the logits behind it. */
static by_status mark(by_pass *p, int32_t layers) {
    by_runner *r = p->r;
    bool boundary = layers == p->m->boundary && r->opts.trunc == BY_TRUNC_COMPACT, last = layers == p->c->n_layers;
    if (!r->all_marks.mem || !(boundary || last)) return BY_OK;
    BY_TRY(by_graph_settle(p)); /* what the last sublayer gave belongs to it */
    by_tensor *t = &r->marks[last ? BY_MARKS_LAST : BY_MARKS_BOUNDARY];
    *t = by_tensor_rows(r->all_marks, last ? r->marks[BY_MARKS_BOUNDARY].rows : 0, p->b.h.rows); /* one behind the other, for one answer */
    return by_op_check_rows(p->dev, &(by_check_rows_args){.x = p->b.h, .bad = *t}, p->err);
}

/* What happens to the streams where `layers` layers have run. */
static by_status between(by_pass *p, int32_t layers) {
    BY_TRY(mark(p, layers));
    return tap(p, layers);
}

static by_status begin(by_pass *p) {
    const by_batch *batch = &p->r->batch;
    by_embed_args embed = {.ids = p->r->ids, .table = p->m->w.embed, .h = p->b.h, .pre = p->b.pre, .m = p->c->hc_mult};
    BY_TRY(by_op_embed(p->dev, &embed, p->err));
    by_rope_table_args t = {.pos = batch->row_pos, .scale = 1, .freq = p->m->freq_window, .cs = p->b.cs_window};
    BY_TRY(by_op_rope_table(p->dev, &t, p->err));
    t.freq = p->m->freq_compressed;
    t.cs = p->b.cs_row;
    BY_TRY(by_op_rope_table(p->dev, &t, p->err));
    for (int32_t ratio = 1; ratio <= 2; ratio++) {
        const by_entries *e = &p->r->ent[ratio];
        if (e->n == 0) continue;
        t = (by_rope_table_args){.pos = e->idx, .scale = ratio, .freq = p->m->freq_compressed, .cs = by_first(p->b.cs_entry[ratio], e->n)};
        BY_TRY(by_op_rope_table(p->dev, &t, p->err));
    }
    return BY_OK;
}

static by_status finish(by_pass *p) {
    if (p->r->n_logits == 0) return BY_OK;
    by_hc_close_args close = {.h = p->b.h, .pre = p->b.pre, .norm = p->m->w.norm, .rows = p->r->rows,
                              .y = by_first(p->r->buf.close, p->r->n_logits), .m = p->c->hc_mult,
                              .eps = (float)p->c->rms_norm_eps};
    BY_TRY(by_op_hc_close(p->dev, &close, p->err));
    by_matmul_args head = {.x = close.y, .n_parts = 1, .groups = 1};
    head.part[0].w = p->m->w.head;
    head.part[0].y = by_first(p->r->buf.logits, p->r->n_logits);
    return by_op_matmul(p->dev, &head, p->err);
}

by_status by_graph_run(by_runner *r, by_err *err) {
    const by_model *m = r->model;
    by_pass p = {.r = r, .m = m, .c = &m->cfg, .dev = m->dev, .b = r->buf, .batch = r->batch, .n_experts = m->cfg.n_experts,
                 .features = by_first(r->draft_buf.features, r->n_rows), .err = err};
    if (r->limits) p.from = r->valid_from;
    by_graph_cut_rows(&p.b, r->n_rows, m->cfg.index_n_heads);
    for (int i = 0; i < BY_MARKS_N; i++) r->marks[i] = by_first(r->all_marks, 0);
    BY_TRY(begin(&p));
    BY_TRY(between(&p, 0));
    for (int32_t l = 0; l < m->cfg.n_layers; l++) {
        p.layer = l;
        p.kind = &m->cfg.layers[l];
        p.w = &m->w.layers[l];
        if (p.kind->engram >= 0) BY_TRY(engram(&p));
        if (p.kind->is_draft_target) BY_TRY(by_graph_take_features(&p));
        BY_TRY(by_graph_attention(&p));
        if (p.batch.n_rows == 0) return BY_OK; /* no row of this step goes beyond the boundary */
        BY_TRY(by_graph_experts(&p));
        BY_TRY(between(&p, l + 1));
    }
    BY_TRY(by_graph_settle(&p));
    BY_TRY(by_graph_draft_context(&p));
    return finish(&p);
}
