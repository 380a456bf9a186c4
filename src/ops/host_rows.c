/* host_rows.c - rows of tensors, weights and records as fp32; see host.h. Plain loops: the vector backends have their own
 * readers and use these for what is not worth a kernel. */
#include <string.h>

#include "ops/host.h"

void by_row_load(float *dst, const by_tensor *t, int64_t r) {
    const unsigned char *p = by_tensor_row(t, r);
    int64_t n = t->cols;
    switch (t->dtype) {
    case BY_F32: memcpy(dst, p, (size_t)n * 4); return;
    case BY_BF16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t b;
            memcpy(&b, p + 2 * i, 2);
            dst[i] = by_bf16_to_f32(b);
        }
        return;
    case BY_A8: by_dequant_act8(p, p + n, n, dst); return;
    default: assert(!"not an activation dtype");
    }
}

void by_row_store(const by_tensor *t, int64_t r, const float *src) {
    unsigned char *p = by_tensor_row(t, r);
    int64_t n = t->cols;
    switch (t->dtype) {
    case BY_F32: memcpy(p, src, (size_t)n * 4); return;
    case BY_BF16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t b = by_bf16_of_f32(src[i]);
            memcpy(p + 2 * i, &b, 2);
        }
        return;
    case BY_A8: by_quant_act8(src, n, p, p + n); return;
    default: assert(!"not an activation dtype");
    }
}

void by_weight_row_load(float *dst, const by_weight *w, int64_t n) {
    int64_t k = w->w.cols;
    const unsigned char *p = by_tensor_row(&w->w, n);
    switch (w->w.dtype) {
    case BY_FP8_TILE: {
        const unsigned char *s = by_tensor_row(&w->scale, n / 32);
        for (int64_t i = 0; i < k; i++) dst[i] = by_e4m3_to_f32(p[i]) * by_ue8m0_to_f32(s[i / 32]);
        return;
    }
    case BY_FP8_ROW: by_dequant_act8(p, by_tensor_row(&w->scale, n), k, dst); return;
    case BY_FP4_ROW: by_dequant_ix4(p, by_tensor_row(&w->scale, n), k, dst); return;
    default: by_row_load(dst, &w->w, n);
    }
}

void by_rec_store(unsigned char *at, by_rec rec, const float *x, int64_t d) {
    switch (rec) {
    case BY_REC_F32: memcpy(at, x, (size_t)d * 4); return;
    case BY_REC_FP8: by_quant_act8(x, d, at, at + d); return;
    case BY_REC_FP4: by_quant_kv4(x, d, at, at + d / 2); return;
    case BY_REC_IX4: by_quant_ix4(x, d, at, at + d / 2); return;
    }
}

void by_rec_load(float *x, by_rec rec, const unsigned char *at, int64_t d) {
    switch (rec) {
    case BY_REC_F32: memcpy(x, at, (size_t)d * 4); return;
    case BY_REC_FP8: by_dequant_act8(at, at + d, d, x); return;
    case BY_REC_FP4: by_dequant_kv4(at, at + d / 2, d, x); return;
    case BY_REC_IX4: by_dequant_ix4(at, at + d / 2, d, x); return;
    }
}

unsigned char *by_page_entry(const by_pages *pages, const by_batch *batch, int64_t seq, int64_t entry, int64_t d,
                             unsigned char **scales) {
    int32_t block = by_tensor_i32(&batch->seq_blocks, seq)[entry / pages->per_block];
    int64_t i = entry % pages->per_block;
    unsigned char *base = pages->mem->ptr + pages->off + block * pages->block_stride;
    if (pages->rec != BY_REC_IX4) return base + i * by_rec_bytes(pages->rec, d);
    if (scales) *scales = base + pages->per_block * (d / 2) + i * (d / 32);
    return base + i * (d / 2);
}

void by_host_store_tail(const by_compress_args *a) {
    int64_t d = a->v.cols;
    for (int64_t q = 0; q < a->batch.n_seqs; q++) {
        int32_t r0 = *by_tensor_i32(&a->batch.seq_row0, q), r1 = *by_tensor_i32(&a->batch.seq_row0, q + 1);
        int32_t slot = *by_tensor_i32(&a->batch.seq_slot, q);
        for (int32_t r = r1 - r0 > a->tail_len ? r1 - a->tail_len : r0; r < r1; r++) {
            int32_t pos = *by_tensor_i32(&a->batch.row_pos, r);
            unsigned char *at = a->tail->ptr + a->tail_off + slot * a->tail_stride + pos % a->tail_len * 8 * d;
            memcpy(at, by_tensor_row(&a->v, r), (size_t)d * 4);
            memcpy(at + 4 * d, by_tensor_row(&a->s, r), (size_t)d * 4);
        }
    }
}
