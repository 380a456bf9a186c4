/* ref_cache.c - what writes the caches: window records, compressor, entries. Source: model.md sections 5, 6, 11, 12. */
#include <math.h>
#include <string.h>

#include "ops/ref/ref.h"

by_status by_ref_window_kv(by_device *dev, const by_window_kv_args *a, by_err *err) {
    int64_t d = a->x.cols;
    float *x = by_device_scratch(dev, (size_t)d * 8, err);
    if (!x) return BY_ENOMEM;
    float *w = x + d;
    by_row_load(w, &a->norm, 0);
    for (int64_t t = 0; t < a->x.rows; t++) {
        by_row_load(x, &a->x, t);
        by_ref_norm(x, x, w, d, a->eps);
        for (int64_t i = 0; i < d; i++) x[i] = by_round_to(a->x.dtype, x[i]);
        by_ref_rotate(x, d, by_tensor_f32(&a->cs, t), a->cs.cols, 1);
        for (int64_t i = 0; i < d; i++) x[i] = by_round_to(a->x.dtype, x[i]);
        by_rec_store(by_tensor_row(&a->kv, t), a->rec, x, d);
    }
    by_rope_args rope = {.x = a->q, .cs = a->cs, .heads = a->heads, .d = (int32_t)d};
    if (by_tensor_is(&a->q)) BY_TRY(by_ref_rope(dev, &rope, err));
    by_ring_store_args ring = {.batch = a->batch, .kv = a->kv, .from = a->from, .ring = a->ring};
    return a->ring.mem ? by_ref_ring_store(dev, &ring, err) : BY_OK;
}

by_status by_ref_ring_store(by_device *dev, const by_ring_store_args *a, by_err *err) {
    (void)dev, (void)err;
    const by_batch *b = &a->batch;
    for (int64_t s = 0; s < b->n_seqs; s++) {
        int32_t r0 = *by_tensor_i32(&b->seq_row0, s), r1 = *by_tensor_i32(&b->seq_row0, s + 1);
        int32_t slot = *by_tensor_i32(&b->seq_slot, s);
        int32_t from = by_tensor_is(&a->from) ? *by_tensor_i32(&a->from, s) : 0;
        for (int32_t r = r1 - r0 > a->ring.len ? r1 - a->ring.len : r0; r < r1; r++) {
            if (*by_tensor_i32(&b->row_pos, r) < from) continue;
            int32_t place = *by_tensor_i32(&b->row_pos, r) % a->ring.len;
            unsigned char *to = a->ring.mem->ptr + a->ring.off + slot * a->ring.slot_stride + place * a->kv.stride;
            memcpy(to, by_tensor_row(&a->kv, r), (size_t)a->kv.stride);
        }
    }
    return BY_OK;
}

/* (value, score) of the token in front of `row`: from the step, or from the tail ring. */
static void previous_token(const by_compress_args *a, int32_t seq, int32_t row, float *v, float *s) {
    int64_t d = a->v.cols;
    if (row > *by_tensor_i32(&a->batch.seq_row0, seq)) {
        by_row_load(v, &a->v, row - 1);
        by_row_load(s, &a->s, row - 1);
        return;
    }
    int32_t pos = *by_tensor_i32(&a->batch.row_pos, row) - 1, slot = *by_tensor_i32(&a->batch.seq_slot, seq);
    const unsigned char *at = a->tail->ptr + a->tail_off + slot * a->tail_stride + pos % a->tail_len * 8 * d;
    memcpy(v, at, (size_t)d * 4);
    memcpy(s, at + 4 * d, (size_t)d * 4);
}

by_status by_ref_compress(by_device *dev, const by_compress_args *a, by_err *err) {
    int64_t d = a->v.cols;
    float *w = by_device_scratch(dev, (size_t)d * 5 * 4, err);
    if (!w) return BY_ENOMEM;
    float *v0 = w + d, *s0 = v0 + d, *v1 = s0 + d, *s1 = v1 + d;
    by_row_load(w, &a->norm, 0);
    for (int32_t e = 0; e < a->entries.n; e++) {
        int32_t row = *by_tensor_i32(&a->entries.row, e), seq = *by_tensor_i32(&a->entries.seq, e);
        by_row_load(v1, &a->v, row);
        if (a->ratio == 2) {
            by_row_load(s1, &a->s, row);
            previous_token(a, seq, row, v0, s0);
            for (int64_t i = 0; i < d; i++) {
                double p = 1.0 / (1.0 + exp((double)s1[i] - (double)s0[i])); /* weight of the first token */
                v1[i] = by_round_to(a->latent.dtype, (float)(p * (double)v0[i] + (1.0 - p) * (double)v1[i]));
            }
        }
        by_ref_norm(v1, v1, w, d, a->eps);
        by_row_store(&a->latent, e, v1);
    }
    if (a->ratio == 2) by_host_store_tail(a);
    return BY_OK;
}

by_status by_ref_entry_store(by_device *dev, const by_entry_store_args *a, by_err *err) {
    int64_t d = a->latent.cols, ix = a->ik.cols;
    float *x = by_device_scratch(dev, (size_t)(d + 2 * ix) * 4, err);
    if (!x) return BY_ENOMEM;
    float *k = x + d, *w = k + ix;
    by_row_load(w, &a->k_norm, 0);
    for (int32_t e = 0; e < a->entries.n; e++) {
        int32_t seq = *by_tensor_i32(&a->entries.seq, e), idx = *by_tensor_i32(&a->entries.idx, e);
        const float *cs = by_tensor_f32(&a->cs, e);
        by_dtype act = a->latent.dtype;
        by_row_load(x, &a->latent, e);
        by_ref_rotate(x, d, cs, a->cs.cols, 1);
        for (int64_t i = 0; i < d; i++) x[i] = by_round_to(act, x[i]);
        by_rec_store(by_page_entry(&a->main, &a->batch, seq, idx, d, NULL), a->main.rec, x, d);
        by_row_load(k, &a->ik, e);
        by_ref_norm(k, k, w, ix, a->eps);
        for (int64_t i = 0; i < ix; i++) k[i] = by_round_to(act, k[i]);
        by_ref_rotate(k, ix, cs, a->cs.cols, 1);
        for (int64_t i = 0; i < ix; i++) k[i] = by_round_to(act, k[i]);
        unsigned char *scales = NULL, *at = by_page_entry(&a->index, &a->batch, seq, idx, ix, &scales);
        if (a->index.rec == BY_REC_IX4) by_quant_ix4(k, ix, at, scales);
        else by_rec_store(at, a->index.rec, k, ix);
    }
    return BY_OK;
}
