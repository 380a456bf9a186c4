/* ref_attention.c - index queries, scores and selection, attention over window and entries. Source: model.md 5, 7. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ref/ref.h"

by_status by_ref_index_query(by_device *dev, const by_index_query_args *a, by_err *err) {
    int64_t d = a->d;
    float *x = by_device_scratch(dev, (size_t)a->q.cols * 4, err);
    if (!x) return BY_ENOMEM;
    for (int64_t t = 0; t < a->q.rows; t++) {
        by_row_load(x, &a->q, t);
        for (int32_t h = 0; h < a->heads; h++) {
            float *v = x + h * d;
            by_ref_rotate(v, d, by_tensor_f32(&a->cs, t), a->cs.cols, 1);
            for (int64_t i = 0; i < d; i++) v[i] = by_round_to(a->q.dtype, v[i]);
            if (a->out.dtype != BY_IX4) continue;
            unsigned char *at = by_tensor_row(&a->out, t * a->heads + h);
            by_quant_ix4(v, d, at, at + d / 2);
        }
        if (a->out.dtype == BY_F32) by_row_store(&a->out, t, x);
    }
    return BY_OK;
}

typedef struct {
    float score;
    int32_t idx;
} ranked;

/* Higher score first, then the lower index: a total order, so the kind of sort does not matter. */
static int by_rank(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->idx > b->idx) - (a->idx < b->idx);
}
static int by_index(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* The k best of n into out (count, then indices ascending). Sorts r. */
static void keep_top(ranked *r, int32_t n, int32_t k, int32_t *out) {
    qsort(r, (size_t)n, sizeof *r, by_rank);
    if (n > k) n = k;
    out[0] = n;
    for (int32_t i = 0; i < n; i++) out[1 + i] = r[i].idx;
    qsort(out + 1, (size_t)n, sizeof *out, by_index);
}

typedef struct {
    float *q, *key, *weight, *score;
    ranked *rank;
    bool *inside;
} select_scratch;

static void load_query(const by_index_select_args *a, int64_t t, float *q) {
    if (a->q.dtype == BY_F32) {
        by_row_load(q, &a->q, t);
        return;
    }
    for (int32_t h = 0; h < a->heads; h++) {
        const unsigned char *at = by_tensor_row(&a->q, t * a->heads + h);
        by_dequant_ix4(at, at + a->d / 2, a->d, q + (int64_t)h * a->d);
    }
}

static float score_entry(const by_index_select_args *a, int32_t seq, int32_t c, const select_scratch *s) {
    unsigned char *scales = NULL, *at = by_page_entry(&a->keys, &a->batch, seq, c, a->d, &scales);
    if (a->keys.rec == BY_REC_IX4) by_dequant_ix4(at, scales, a->d, s->key);
    else by_rec_load(s->key, a->keys.rec, at, a->d);
    double sum = 0;
    for (int32_t h = 0; h < a->heads; h++) {
        double dot = by_ref_dot(s->q + (int64_t)h * a->d, s->key, a->d);
        if (dot > 0) sum += dot * (double)s->weight[h];
    }
    float v = (float)(sum * (double)a->scale);
    if (a->round_bf16) v = by_bf16_round(v);
    return v + 0.0f; /* -0 becomes +0: they rank equal */
}

/* Candidate blocks of a row from its n scores; the last visible block always stays. */
static void choose_blocks(const by_index_select_args *a, int32_t n, const float *score, ranked *r, int32_t *out) {
    int32_t size = a->cand_block_size, blocks = (n + size - 1) / size;
    if (blocks <= a->cand_blocks) {
        out[0] = -1;
        return;
    }
    for (int32_t b = 0; b < blocks; b++) {
        float best = -INFINITY;
        for (int32_t c = b * size; c < (b + 1) * size && c < n; c++) best = fmaxf(best, score[c]);
        r[b] = (ranked){b == blocks - 1 ? INFINITY : best, b};
    }
    keep_top(r, blocks, a->cand_blocks, out);
}

static void select_row(const by_index_select_args *a, int64_t t, const select_scratch *s) {
    int32_t pos = *by_tensor_i32(&a->batch.row_pos, t), seq = *by_tensor_i32(&a->batch.row_seq, t);
    int32_t n = (pos + 1) / a->ratio, *sel = by_tensor_i32_mut(&a->sel, t);
    int32_t *cand = by_tensor_is(&a->cand) ? by_tensor_i32_mut(&a->cand, t) : NULL;
    bool blocks_cut = a->mode == BY_CAND_SOURCE && (n + a->cand_block_size - 1) / a->cand_block_size > a->cand_blocks;
    if (a->mode == BY_CAND_SOURCE && !blocks_cut) cand[0] = -1;
    if (n <= a->topk && !blocks_cut && !by_tensor_is(&a->scores)) {
        sel[0] = -1;
        return;
    }
    load_query(a, t, s->q);
    by_row_load(s->weight, &a->weights, t);
    bool restricted = a->mode == BY_CAND_INSIDE && cand[0] >= 0;
    for (int32_t c = 0; c < n; c++) s->inside[c] = !restricted;
    for (int32_t i = 0; restricted && i < cand[0]; i++)
        for (int32_t c = cand[1 + i] * a->cand_block_size, end = c + a->cand_block_size; c < end && c < n; c++)
            s->inside[c] = true;
    int32_t k = 0;
    for (int32_t c = 0; c < n; c++) {
        s->score[c] = s->inside[c] ? score_entry(a, seq, c, s) : -INFINITY;
        if (s->inside[c]) s->rank[k++] = (ranked){s->score[c], c};
    }
    if (by_tensor_is(&a->scores)) memcpy(by_tensor_f32(&a->scores, t), s->score, (size_t)n * 4);
    keep_top(s->rank, k, a->topk, sel);
    if (n <= a->topk) sel[0] = -1;
    if (blocks_cut) choose_blocks(a, n, s->score, s->rank, cand);
}

by_status by_ref_index_select(by_device *dev, const by_index_select_args *a, by_err *err) {
    size_t hd = (size_t)a->heads * (size_t)a->d, n = (size_t)a->n_entries_max;
    float *p = by_device_scratch(dev, (hd + (size_t)a->d + (size_t)a->heads + n * 4 + 16) * 4, err);
    if (!p) return BY_ENOMEM;
    select_scratch s = {.q = p, .key = p + hd, .weight = p + hd + a->d};
    s.score = s.weight + a->heads;
    s.rank = (ranked *)(void *)(s.score + n);
    s.inside = (bool *)(s.rank + n);
    for (int64_t t = 0; t < a->batch.n_rows; t++) select_row(a, t, &s);
    return BY_OK;
}

/* Keys that row t sees, dequantised to keys[][d]; returns their number. */
static int32_t gather_keys(const by_attention_args *a, int64_t t, float *keys) {
    int32_t pos = *by_tensor_i32(&a->batch.row_pos, t), seq = *by_tensor_i32(&a->batch.row_seq, t);
    int32_t pos0 = *by_tensor_i32(&a->batch.seq_pos0, seq), row0 = *by_tensor_i32(&a->batch.seq_row0, seq);
    int32_t slot = *by_tensor_i32(&a->batch.seq_slot, seq), n = 0, d = a->d;
    const unsigned char *ring = a->ring.mem->ptr + a->ring.off + slot * a->ring.slot_stride;
    int32_t from = by_tensor_is(&a->from) ? *by_tensor_i32(&a->from, seq) : 0;
    int32_t first = a->block ? pos0 - a->window : pos - a->window + 1, last = pos;
    if (a->block) last = pos0 + *by_tensor_i32(&a->batch.seq_row0, seq + 1) - row0 - 1;
    for (int32_t p = first > from ? first : from; p <= last; p++, n++) {
        const unsigned char *at = p >= pos0 ? by_tensor_row(&a->kv, row0 + (p - pos0))
                                            : ring + p % a->ring.len * by_rec_bytes(a->ring.rec, d);
        by_rec_load(keys + (int64_t)n * d, a->ring.rec, at, d);
    }
    if (!a->main.mem) return n;
    const int32_t *sel = by_tensor_i32(&a->sel, t);
    int32_t count = sel[0] < 0 ? (pos + 1) / a->ratio : sel[0];
    for (int32_t i = 0; i < count; i++, n++) {
        int32_t c = sel[0] < 0 ? i : sel[1 + i];
        by_rec_load(keys + (int64_t)n * d, a->main.rec, by_page_entry(&a->main, &a->batch, seq, c, d, NULL), d);
    }
    return n;
}

static void attend_head(const float *q, const float *keys, int32_t n, int64_t d, float scale, float sink, float *p,
                        float *o) {
    float top = sink;
    for (int32_t j = 0; j < n; j++) {
        p[j] = (float)(by_ref_dot(q, keys + j * d, d) * (double)scale);
        top = fmaxf(top, p[j]);
    }
    double sum = exp((double)sink - (double)top);
    for (int32_t j = 0; j < n; j++) sum += p[j] = expf(p[j] - top);
    for (int64_t i = 0; i < d; i++) {
        double acc = 0;
        for (int32_t j = 0; j < n; j++) acc += (double)p[j] * (double)keys[j * d + i];
        o[i] = (float)(acc / sum);
    }
}

by_status by_ref_attention(by_device *dev, const by_attention_args *a, by_err *err) {
    int64_t d = a->d, hd = a->heads * d;
    int64_t topk = a->main.mem ? a->sel.cols - 1 : 0, keys_max = a->window + topk + a->block;
    float *q = by_device_scratch(dev, (size_t)(2 * hd + keys_max * (d + 1)) * 4, err);
    if (!q) return BY_ENOMEM;
    float *o = q + hd, *p = o + hd, *keys = p + keys_max;
    const float *sink = by_tensor_f32(&a->sink, 0);
    for (int64_t t = 0; t < a->q.rows; t++) {
        by_row_load(q, &a->q, t);
        int32_t n = gather_keys(a, t, keys);
        for (int32_t h = 0; h < a->heads; h++) {
            attend_head(q + h * d, keys, n, d, a->scale, sink[h], p, o + h * d);
            by_ref_rotate(o + h * d, d, by_tensor_f32(&a->cs, t), a->cs.cols, -1);
        }
        by_row_store(&a->o, t, o);
    }
    return BY_OK;
}
