/* ref_basic.c - norms, rotation, embedding, matrix products. */
#include <math.h>
#include <string.h>

#include "ops/ref/ref.h"

double by_ref_dot(const float *x, const float *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

void by_ref_norm(float *y, const float *x, const float *w, int64_t n, float eps) {
    float r = (float)(1.0 / sqrt(by_ref_dot(x, x, n) / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * r * w[i];
}

void by_ref_rotate(float *x, int64_t d, const float *cs, int64_t r, float sign) {
    float *p = x + d - r;
    for (int64_t i = 0; i < r; i += 2) {
        float a = p[i], b = p[i + 1], c = cs[i], s = sign * cs[i + 1];
        p[i] = a * c - b * s;
        p[i + 1] = a * s + b * c;
    }
}

by_status by_ref_rope_table(by_device *dev, const by_rope_table_args *a, by_err *err) {
    (void)dev, (void)err;
    const float *freq = by_tensor_f32(&a->freq, 0);
    for (int64_t i = 0; i < a->pos.rows; i++) {
        float pos = (float)(*by_tensor_i32(&a->pos, i) * a->scale);
        float *cs = by_tensor_f32(&a->cs, i);
        for (int64_t j = 0; j < a->freq.cols; j++) {
            float angle = pos * freq[j];
            cs[2 * j] = cosf(angle);
            cs[2 * j + 1] = sinf(angle);
        }
    }
    return BY_OK;
}

by_status by_ref_embed(by_device *dev, const by_embed_args *a, by_err *err) {
    int64_t D = a->table.cols;
    float *x = by_device_scratch(dev, (size_t)(D * a->m) * 4, err);
    if (!x) return BY_ENOMEM;
    for (int64_t t = 0; t < a->h.rows; t++) {
        int32_t id = *by_tensor_i32(&a->ids, t);
        if (id >= 0) by_row_load(x, &a->table, id);
        else by_row_load(x, &a->image, -(int64_t)id - 1);
        for (int32_t i = 1; i < a->m; i++) memcpy(x + i * D, x, (size_t)D * 4);
        by_row_store(&a->h, t, x);
        float *pre = by_tensor_f32(&a->pre, t);
        for (int32_t i = 0; i < a->m; i++) pre[i] = i == 0;
    }
    return BY_OK;
}

by_status by_ref_gather_rows(by_device *dev, const by_gather_rows_args *a, by_err *err) {
    (void)dev, (void)err;
    for (int p = 0; p < a->n_parts; p++) {
        const by_tensor *x = &a->part[p].x, *y = &a->part[p].y;
        for (int64_t i = 0; i < a->rows.rows; i++)
            memcpy(by_tensor_row(y, i), by_tensor_row(x, *by_tensor_i32(&a->rows, i)),
                   (size_t)by_dtype_row_bytes(x->dtype, x->cols));
    }
    return BY_OK;
}

static void matmul_part(const by_matmul_args *a, int p, const float *x, float *row) {
    const by_weight *w = &a->part[p].w;
    const by_tensor *y = &a->part[p].y;
    int64_t N = w->w.rows, K = w->w.cols, T = a->x.rows;
    for (int64_t n = 0; n < N; n++) {
        by_weight_row_load(row, w, n);
        int64_t g = n / (N / a->groups);
        for (int64_t t = 0; t < T; t++) {
            float v = (float)by_ref_dot(x + t * a->x.cols + g * K, row, K);
            unsigned char *at = by_tensor_row(y, t);
            if (y->dtype == BY_F32) {
                memcpy(at + 4 * n, &v, 4);
            } else {
                uint16_t b = by_bf16_of_f32(v);
                memcpy(at + 2 * n, &b, 2);
            }
        }
    }
}

by_status by_ref_matmul(by_device *dev, const by_matmul_args *a, by_err *err) {
    int64_t T = a->x.rows, K = a->x.cols;
    float *x = by_device_scratch(dev, (size_t)((T + 1) * K) * 4, err);
    if (!x) return BY_ENOMEM;
    for (int64_t t = 0; t < T; t++) by_row_load(x + t * K, &a->x, t);
    for (int p = 0; p < a->n_parts; p++) {
        assert(a->part[p].w.w.cols * a->groups == K && a->part[p].y.cols == a->part[p].w.w.rows);
        matmul_part(a, p, x, x + T * K);
    }
    return BY_OK;
}

by_status by_ref_add(by_device *dev, const by_add_args *a, by_err *err) {
    (void)dev, (void)err;
    for (int64_t t = 0; t < a->y.rows; t++) {
        const float *x = by_tensor_f32(&a->x, t);
        float *y = by_tensor_f32(&a->y, t);
        for (int64_t i = 0; i < a->y.cols; i++) y[i] += x[i];
    }
    return BY_OK;
}

/* Adding one to the exponent carries into the place of the sign, which is cleared before, exactly when all its bits are set. */
static bool finite_words(const unsigned char *row, int64_t n_bytes, uint64_t exponents, uint64_t ones, uint64_t signs) {
    uint64_t carry = 0, word = 0;
    int64_t i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        memcpy(&word, row + i, 8);
        carry |= (word & exponents) + ones;
    }
    word = 0;
    memcpy(&word, row + i, (size_t)(n_bytes - i));
    carry |= (word & exponents) + ones;
    return (carry & signs) == 0;
}

static bool finite_row(by_dtype dtype, const void *row, int64_t n) {
    if (dtype == BY_BF16)
        return finite_words(row, n * 2, UINT64_C(0x7f807f807f807f80), UINT64_C(0x0080008000800080), UINT64_C(0x8000800080008000));
    return finite_words(row, n * 4, UINT64_C(0x7f8000007f800000), UINT64_C(0x0080000000800000), UINT64_C(0x8000000080000000));
}

by_status by_ref_check_rows(by_device *dev, const by_check_rows_args *a, by_err *err) {
    (void)dev, (void)err;
    assert(a->x.dtype == BY_BF16 || a->x.dtype == BY_F32);
    for (int64_t t = 0; t < a->x.rows; t++)
        *by_tensor_i32_mut(&a->bad, t) = !finite_row(a->x.dtype, by_tensor_row(&a->x, t), a->x.cols);
    return BY_OK;
}

by_status by_ref_rmsnorm(by_device *dev, const by_rmsnorm_args *a, by_err *err) {
    int64_t K = a->x.cols;
    float *x = by_device_scratch(dev, (size_t)K * 8, err);
    if (!x) return BY_ENOMEM;
    float *w = x + K;
    by_row_load(w, &a->norm, 0);
    for (int64_t t = 0; t < a->x.rows; t++) {
        by_row_load(x, &a->x, t);
        by_ref_norm(x, x, w, K, a->eps);
        for (int64_t i = 0; i < K; i++) x[i] = by_round_to(a->x.dtype, x[i]);
        if (by_tensor_is(&a->y)) by_row_store(&a->y, t, x);
        if (by_tensor_is(&a->y_a8)) by_row_store(&a->y_a8, t, x);
    }
    return BY_OK;
}

by_status by_ref_act8(by_device *dev, const by_act8_args *a, by_err *err) {
    float *x = by_device_scratch(dev, (size_t)a->x.cols * 4, err);
    if (!x) return BY_ENOMEM;
    for (int64_t t = 0; t < a->x.rows; t++) {
        by_row_load(x, &a->x, t);
        by_row_store(&a->y, t, x);
    }
    return BY_OK;
}

by_status by_ref_rope(by_device *dev, const by_rope_args *a, by_err *err) {
    float *x = by_device_scratch(dev, (size_t)a->x.cols * 4, err);
    if (!x) return BY_ENOMEM;
    for (int64_t t = 0; t < a->x.rows; t++) {
        by_row_load(x, &a->x, t);
        for (int32_t h = 0; h < a->heads; h++)
            by_ref_rotate(x + (int64_t)h * a->d, a->d, by_tensor_f32(&a->cs, t), a->cs.cols, 1);
        by_row_store(&a->x, t, x);
    }
    return BY_OK;
}
