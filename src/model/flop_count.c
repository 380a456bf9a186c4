/* flop_count.c - see flop_count.h. */
#include "model/flop_count.h"

void by_flop_model_make(by_flop_model *out, const by_config *c, int32_t boundary) {
    double H = c->hidden_size, d = c->head_dim, heads = c->n_heads, idx = c->index_n_heads, m = c->hc_mult;
    double hc_read = 8 * m * H * m * (m + 2) + 8 * m * H, hc_write = 8 * m * (m + 1) * H;
    double experts = 2 * 3 * H * (c->moe_width * (double)c->n_experts_per_token + c->shared_width) + 4 * H * c->n_experts;
    double project = 2 * (H * (c->q_lora_rank + d) + c->q_lora_rank * heads * d + heads * d * c->o_lora_rank +
                          (double)c->o_groups * c->o_lora_rank * H);
    *out = (by_flop_model){.logits = 4 * H * c->vocab_size, .n_window = c->window, .topk = c->index_topk,
                           .block = c->candidate_block_size > 0 ? c->candidate_block_size : 1, .block_topk = c->candidate_topk_blocks};
    for (int l = 0; l < c->n_layers; l++) {
        const by_layer *layer = &c->layers[l];
        int half = boundary >= 0 && l >= boundary;
        out->row[half] += experts + 2 * (hc_read + hc_write) + project;
        if (layer->engram >= 0) {
            double features = (c->engram.max_ngram - 1) * (double)c->engram.n_heads * c->engram.head_dim;
            out->row[half] += 2 * features * H * (m + 1) + 8 * m * H;
        }
        out->window[half] += 4 * heads * 2 * d;
        if (layer->ratio == 0) continue;
        out->selected[half][layer->ratio] += 4 * heads * 2 * d;
        if (layer->is_index_source) {
            out->row[half] += 2.0 * c->q_lora_rank * idx * c->index_head_dim + 4 * H * idx;
            (layer->uses_candidates ? out->rescored : out->scored)[half][layer->ratio] += idx * c->index_head_dim;
        }
        if (!layer->is_kv_source) continue; /* what sources give they make of every row, the boundary's layer too */
        out->row[0] += 4 * H * d * layer->ratio;
        out->entries[layer->ratio] += 4 * d * c->index_head_dim;
    }
    if (boundary >= 0) out->cut = hc_read;
}

/* Sum over i < n of min(i / q + 1, cap). */
static double stairs(int64_t n, int64_t q, int64_t cap) {
    if (n <= 0 || cap <= 0) return 0;
    int64_t whole = n / q < cap ? n : q * cap, a = whole / q, b = whole % q;
    return (double)q * 0.5 * (double)a * (double)(a + 1) + (double)b * (double)(a + 1) + (double)(n - whole) * (double)cap;
}

/* Pairs of the queries at [first, end): the query at p sees (p + 1) / ratio entries, in blocks of `block`, at most cap blocks. */
static double pairs(int64_t first, int64_t end, int64_t ratio, int64_t block, int64_t cap) {
    int64_t q = ratio * block, off = ratio - 1; /* the query at p = ratio - 1 is the first that sees an entry */
    if (end - first == 1) { /* a row that decodes: hundreds of them in a step */
        int64_t i = first - off, seen = i < 0 ? 0 : i < q ? 1 : (int64_t)((uint32_t)i / (uint32_t)q) + 1; /* 24 bits */
        return (double)(block * (seen < cap ? seen : cap));
    }
    return (double)block * (stairs(end - off, q, cap) - stairs(first - off, q, cap));
}

static double count_pairs(const by_flop_model *m, int half, int64_t first, int64_t end) {
    if (first >= end) return 0;
    double sum = m->window[half] * pairs(first, end, 1, 1, m->n_window);
    for (int ratio = 1; ratio <= 2; ratio++) {
        if (m->selected[half][ratio] == 0) continue;
        sum += m->selected[half][ratio] * pairs(first, end, ratio, 1, m->topk);
        if (m->scored[half][ratio] > 0) sum += m->scored[half][ratio] * pairs(first, end, ratio, 1, INT32_MAX);
        if (m->rescored[half][ratio] > 0) sum += m->rescored[half][ratio] * pairs(first, end, ratio, m->block, m->block_topk);
    }
    return sum;
}

by_flop_count by_flop_count_rows(const by_flop_model *m, int64_t first, int64_t end, int64_t kept, int64_t n_logits) {
    double rows = (double)(end - first), kept_rows = (double)(end - kept);
    by_flop_count n = {.attention = count_pairs(m, 0, first, end) + count_pairs(m, 1, kept, end)};
    double entries = m->entries[1] * rows + m->entries[2] * (double)(end / 2 - first / 2);
    n.all = n.attention + m->row[0] * rows + (m->row[1] + m->cut) * kept_rows + entries + m->logits * (double)n_logits;
    return n;
}
