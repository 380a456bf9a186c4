/* ref_hc.c - hyper-connections: reading, writing and closing the residual streams. Source: model.md section 3. */
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "ops/ref/ref.h"

static float sigmoid(float x) { return (float)(1.0 / (1.0 + exp(-(double)x))); }

/* Doubly stochastic m x m matrix from logits, row-major: softmax of rows, then alternating normalisation. */
static void sinkhorn(float *c, int m, int iters, float eps) {
    for (int i = 0; i < m; i++) {
        float top = c[i * m], sum = 0;
        for (int j = 1; j < m; j++) top = fmaxf(top, c[i * m + j]);
        for (int j = 0; j < m; j++) sum += c[i * m + j] = expf(c[i * m + j] - top);
        for (int j = 0; j < m; j++) c[i * m + j] = c[i * m + j] / sum + eps;
    }
    for (int it = 0; it < iters; it++) {
        if (it > 0) {
            for (int i = 0; i < m; i++) {
                float sum = eps;
                for (int j = 0; j < m; j++) sum += c[i * m + j];
                for (int j = 0; j < m; j++) c[i * m + j] /= sum;
            }
        }
        for (int j = 0; j < m; j++) {
            float sum = eps;
            for (int i = 0; i < m; i++) sum += c[i * m + j];
            for (int i = 0; i < m; i++) c[i * m + j] /= sum;
        }
    }
}

/* z of one token: m (m + 2) products with fn, normalised by the rms of all streams. */
static void coefficients(const by_hc_mix_args *a, int64_t t, const float *h, float *row) {
    int m = a->m, n = m * (m + 2);
    int64_t mD = a->h.cols;
    float z[BY_LIMIT_HC_MULT * (BY_LIMIT_HC_MULT + 2)];
    double r = 1.0 / sqrt(by_ref_dot(h, h, mD) / (double)mD + (double)a->norm_eps);
    for (int i = 0; i < n; i++) {
        by_row_load(row, &a->fn, i);
        z[i] = (float)(by_ref_dot(row, h, mD) * r);
    }
    const float *base = by_tensor_f32(&a->base, 0), *scale = by_tensor_f32(&a->scale, 0);
    float *pre = by_tensor_f32(&a->next_pre, t), *post = by_tensor_f32(&a->post, t);
    float *comb = by_tensor_f32(&a->comb, t);
    for (int i = 0; i < m; i++) {
        pre[i] = sigmoid(z[i] * scale[0] + base[i]) + a->hc_eps;
        post[i] = 2 * sigmoid(z[m + i] * scale[1] + base[m + i]);
    }
    for (int i = 0; i < m * m; i++) comb[i] = z[2 * m + i] * scale[2] + base[2 * m + i];
    sinkhorn(comb, m, a->iters, a->hc_eps);
}

static void mix_streams(float *u, const float *h, const float *pre, int m, int64_t D, by_dtype act) {
    for (int64_t c = 0; c < D; c++) {
        float sum = 0;
        for (int i = 0; i < m; i++) sum += pre[i] * h[i * D + c];
        u[c] = by_round_to(act, sum);
    }
}

by_status by_ref_hc_mix(by_device *dev, const by_hc_mix_args *a, by_err *err) {
    int64_t mD = a->h.cols, D = mD / a->m;
    by_hc_post_args post = {.h = a->h, .out = a->out, .post = a->post, .comb = a->comb, .m = a->m};
    if (by_tensor_is(&a->out)) BY_TRY(by_ref_hc_post(dev, &post, err));
    float *h = by_device_scratch(dev, (size_t)(2 * mD + 2 * D) * 4, err);
    if (!h) return BY_ENOMEM;
    float *row = h + mD, *u = row + mD, *w = u + D;
    by_row_load(w, &a->norm, 0);
    for (int64_t t = 0; t < a->h.rows; t++) {
        by_row_load(h, &a->h, t);
        mix_streams(u, h, by_tensor_f32(&a->pre, t), a->m, D, a->y.dtype); /* before next_pre, which may be pre */
        coefficients(a, t, h, row);
        by_ref_norm(u, u, w, D, a->norm_eps);
        for (int64_t c = 0; c < D; c++) u[c] = by_round_to(a->y.dtype, u[c]);
        by_row_store(&a->y, t, u);
        if (by_tensor_is(&a->y_a8)) by_row_store(&a->y_a8, t, u);
    }
    return BY_OK;
}

by_status by_ref_hc_post(by_device *dev, const by_hc_post_args *a, by_err *err) {
    int m = a->m;
    int64_t mD = a->h.cols, D = mD / m;
    float *h = by_device_scratch(dev, (size_t)(2 * mD + D) * 4, err);
    if (!h) return BY_ENOMEM;
    float *fresh = h + mD, *out = fresh + mD;
    for (int64_t t = 0; t < a->h.rows; t++) {
        by_row_load(h, &a->h, t);
        by_row_load(out, &a->out, t);
        const float *post = by_tensor_f32(&a->post, t), *comb = by_tensor_f32(&a->comb, t);
        for (int j = 0; j < m; j++) {
            for (int64_t c = 0; c < D; c++) {
                float sum = post[j] * out[c];
                for (int i = 0; i < m; i++) sum += comb[i * m + j] * h[i * D + c];
                fresh[j * D + c] = sum;
            }
        }
        by_row_store(&a->h, t, fresh);
    }
    return BY_OK;
}

by_status by_ref_hc_close(by_device *dev, const by_hc_close_args *a, by_err *err) {
    int64_t mD = a->h.cols, D = mD / a->m;
    float *h = by_device_scratch(dev, (size_t)(mD + 2 * D) * 4, err);
    if (!h) return BY_ENOMEM;
    float *u = h + mD, *w = u + D;
    by_row_load(w, &a->norm, 0);
    for (int64_t i = 0; i < a->rows.rows; i++) {
        int64_t t = *by_tensor_i32(&a->rows, i);
        by_row_load(h, &a->h, t);
        mix_streams(u, h, by_tensor_f32(&a->pre, t), a->m, D, a->y.dtype);
        by_ref_norm(u, u, w, D, a->eps);
        by_row_store(&a->y, i, u);
    }
    return BY_OK;
}

by_status by_ref_hc_read(by_device *dev, const by_hc_read_args *a, by_err *err) {
    int64_t mD = a->h.cols, D = mD / a->m, n = by_tensor_is(&a->rows) ? a->rows.rows : a->h.rows;
    float *h = by_device_scratch(dev, (size_t)(mD + D) * 4, err);
    if (!h) return BY_ENOMEM;
    float *u = h + mD;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = by_tensor_is(&a->rows) ? *by_tensor_i32(&a->rows, i) : i;
        by_row_load(h, &a->h, t);
        mix_streams(u, h, by_tensor_f32(&a->pre, t), a->m, D, a->y.dtype);
        by_row_store(&a->y, i, u);
    }
    return BY_OK;
}
