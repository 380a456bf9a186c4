/* gpu_pairs.h - tensors that lie on two devices, the ref backend's and the one under test: random activations and weights with the
 * same bytes on both. Outputs (no bytes) are poisoned. */
#ifndef BY_GPU_PAIRS_H
#define BY_GPU_PAIRS_H

#include <string.h>

#include "gpu_support.h"
#include "ops/formats.h"
#include "ops/ops.h"

enum { REF, GPU };
static by_device *dev[2]; /* opened by the program */

/* ---- tensors on both devices ---------------------------------------------------------------------------------- */

typedef struct {
    by_tensor t[2];
} pair;
#define MADE_MAX 65536
static by_mem *made[MADE_MAX];
static int n_made;

static pair make(by_dtype dtype, int64_t rows, int64_t cols, const void *bytes) {
    pair p;
    int64_t n = rows * by_dtype_row_bytes(dtype, cols);
    unsigned char *poison = NULL;
    if (!bytes) {
        poison = malloc((size_t)n + 1);
        memset(poison, 0xff, (size_t)n);
        bytes = poison;
    }
    for (int i = 0; i < 2; i++) {
        by_mem *m = NULL;
        MUST(by_mem_alloc(&m, dev[i], n > 0 ? (size_t)n : 1, err));
        if (n) MUST(by_mem_write(m, 0, bytes, (size_t)n, err));
        made[n_made++] = m;
        p.t[i] = by_tensor_make(m, 0, dtype, rows, cols);
    }
    free(poison);
    return p;
}
static void free_all(void) {
    while (n_made) by_mem_free(made[--n_made]);
}
static const pair none;

/* Random activations: F32, BF16 or A8. */
static pair acts(by_dtype dtype, int64_t rows, int64_t cols, float scale) {
    int64_t stride = by_dtype_row_bytes(dtype, cols);
    unsigned char *b = malloc((size_t)(rows * stride) + 1);
    float *x = malloc((size_t)cols * 4);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) x[i] = normal() * scale;
        unsigned char *p = b + r * stride;
        if (dtype == BY_A8) by_quant_act8(x, cols, p, p + cols);
        for (int64_t i = 0; i < cols && dtype != BY_A8; i++) {
            uint16_t h = by_bf16_of_f32(x[i]);
            if (dtype == BY_F32) memcpy(p + 4 * i, &x[i], 4);
            else memcpy(p + 2 * i, &h, 2);
        }
    }
    pair t = make(dtype, rows, cols, b);
    free(b);
    free(x);
    return t;
}
static pair i32s(int64_t rows, int64_t cols, const int32_t *v) { return make(BY_I32, rows, cols, v); }
static pair bytes_of(by_dtype dtype, int64_t rows, int64_t cols, int lo, int hi, bool no_nan) {
    int64_t n = rows * by_dtype_row_bytes(dtype, cols);
    unsigned char *b = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        b[i] = (unsigned char)(lo + (int)(rnd() % (uint32_t)(hi - lo + 1)));
        if (no_nan && (b[i] & 0x7f) == 0x7f) b[i] ^= 1;
    }
    pair t = make(dtype, rows, cols, b);
    free(b);
    return t;
}
typedef struct {
    by_weight w[2];
} wpair;
static wpair weight(by_dtype dtype, int64_t n, int64_t k) {
    wpair w = {0};
    pair d, s = none;
    if (dtype == BY_FP8_TILE) {
        d = bytes_of(dtype, n, k, 0, 255, true);
        s = bytes_of(BY_U8, (n + 31) / 32, k / 32, 112, 118, false);
    } else if (dtype == BY_FP4_ROW) {
        d = bytes_of(dtype, n, k, 0, 255, false);
        s = bytes_of(BY_U8, n, k / 32, 117, 122, false);
    } else {
        d = acts(dtype, n, k, 0.05f);
    }
    for (int i = 0; i < 2; i++) w.w[i] = (by_weight){d.t[i], s.t[i]};
    return w;
}

#endif
