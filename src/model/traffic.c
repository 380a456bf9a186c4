/* traffic.c - see traffic.h. */
#include "model/traffic.h"

#include <math.h>

typedef struct {
    by_traffic t;
    double rows;
} counter;

static double bytes_of(const by_tensor *t) { return t->mem ? (double)t->rows * (double)t->stride : 0; }

/* A weight that every row multiplies with. */
static void dense(counter *c, const by_weight *w) {
    if (!w->w.mem) return;
    c->t.weight_bytes += bytes_of(&w->w) + bytes_of(&w->scale);
    c->t.flops += 2 * (double)w->w.rows * (double)w->w.cols * c->rows;
}

static void plain(counter *c, const by_tensor *t) {
    c->t.weight_bytes += bytes_of(t);
    c->t.flops += 2 * (double)t->rows * (double)t->cols * c->rows;
}

static void layer(counter *c, const by_model *m, int l) {
    const by_layer_weights *w = &m->w.layers[l];
    const by_config *cfg = &m->cfg;
    const by_weight *all[] = {&w->wq_a, &w->wq_b, &w->wkv, &w->wo_a, &w->wo_b, &w->comp_wkv, &w->comp_wgate, &w->index_wk,
                              &w->index_wq_b, &w->index_weights, &w->shared.w1, &w->shared.w3, &w->shared.w2, &w->engram_wkv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) dense(c, all[i]);
    plain(c, &w->hc_attn.fn);
    plain(c, &w->hc_ffn.fn);
    plain(c, &w->gate);
    const by_expert *e = by_weights_expert(w, 0);
    double one = bytes_of(&e->w1.w) + bytes_of(&e->w1.scale) + bytes_of(&e->w3.w) + bytes_of(&e->w3.scale) +
                 bytes_of(&e->w2.w) + bytes_of(&e->w2.scale);
    double E = cfg->n_experts, k = cfg->n_experts_per_token;
    c->t.weight_bytes += one * E * (1 - pow(1 - k / E, c->rows));
    c->t.flops += 2 * 3 * (double)e->w1.w.rows * (double)e->w1.w.cols * k * c->rows;
}

double by_model_traffic_used(const by_model *m, int64_t n_rows, int64_t n_logits, int64_t n_used) {
    const by_expert *e = by_weights_expert(&m->w.layers[0], 0);
    double one = bytes_of(&e->w1.w) + bytes_of(&e->w1.scale) + bytes_of(&e->w3.w) + bytes_of(&e->w3.scale) +
                 bytes_of(&e->w2.w) + bytes_of(&e->w2.scale);
    double E = m->cfg.n_experts, k = m->cfg.n_experts_per_token;
    double expected = one * E * (1 - pow(1 - k / E, (double)n_rows)) * m->cfg.n_layers;
    return by_model_traffic(m, n_rows, n_logits).weight_bytes - expected + one * (double)n_used;
}

by_traffic by_model_traffic(const by_model *m, int64_t n_rows, int64_t n_logits) {
    counter c = {.rows = (double)n_rows};
    for (int l = 0; l < m->cfg.n_layers; l++) layer(&c, m, l);
    c.rows = (double)n_logits;
    if (n_logits) dense(&c, &m->w.head);
    return c.t;
}
