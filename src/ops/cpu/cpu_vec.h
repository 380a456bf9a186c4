/* cpu_vec.h - vector loops over rows of fp32 values, one table per instruction set.
 *
 * Lengths are any number unless said. Every sum has one fixed order, a function of the length only; element-wise results
 * round exactly like the ref operators (the same multiplications and additions, none fused), so that only sums differ. */
#ifndef BY_OPS_CPU_VEC_H
#define BY_OPS_CPU_VEC_H

#include <stdint.h>

#include "base/cpu.h"
#include "ops/ops.h"

/* A group of inner columns of an expert: m rows of n <= 32 columns, g and u rows 32 apart. */
typedef struct by_vec_gate {
    const float *g, *u;   /* what w1 and w3 gave */
    int64_t m, n;
    by_dtype act;         /* g and u are rounded to it first */
    float limit;          /* of swiglu */
    const float *weight;  /* [m], NULL = 1 */
    uint8_t *to;          /* the group in the first row's output, rows `stride` bytes apart */
    int64_t stride;
    int64_t scale_off;    /* bytes from `to` to the scale of 32 E4M3 codes; 0: `to` takes fp32 */
    int32_t *bad;         /* bad[row[i]] = 1 where g or u of row i is not finite; other threads may do the same */
    const int32_t *row;   /* [m] */
} by_vec_gate;

typedef struct by_vec {
    by_isa isa;

    /* A row of dtype F32, BF16 or A8 to fp32, and back (A8: quantised by act8; n a multiple of 32 then). */
    void (*load)(float *dst, by_dtype type, const void *src, int64_t n);
    void (*store)(void *dst, by_dtype type, const float *src, int64_t n);
    /* x to BF16 and back when type is BF16; nothing for F32. */
    void (*round)(float *x, by_dtype type, int64_t n);
    /* Cache records; IX4 with its scales apart. d a multiple of 32. */
    void (*rec_load)(float *x, by_rec rec, const uint8_t *data, const uint8_t *scales, int64_t d);
    /* n FP8, FP4 or F32 records with their scales behind their data, stride bytes apart, to rows of d values. */
    void (*rec_load_rows)(float *x, by_rec rec, const uint8_t *data, int64_t stride, int64_t n, int64_t d);
    void (*rec_store)(uint8_t *data, uint8_t *scales, by_rec rec, const float *x, int64_t d);

    double (*dot)(const float *x, const float *y, int64_t n);
    /* y = x * (float)(1 / sqrt(mean(x^2) + eps)) * w, sum in double; y may be x. */
    void (*norm)(float *y, const float *x, const float *w, int64_t n, float eps);
    /* Rotates pairs of x[r] by (cos, sin) pairs cs[r]; sign -1 turns back. */
    void (*rotate)(float *x, const float *cs, int64_t r, float sign);

    /* u = sum_i a[i] x[i * ldx + ...], i ascending, m terms. */
    void (*mix)(float *u, const float *a, const float *x, int64_t ldx, int32_t m, int64_t n);
    /* The same of m rows of n values of dtype F32 or BF16, one behind another; returns the sum of all their squares. */
    double (*mix_squares)(float *u, const float *a, by_dtype type, const void *x, int32_t m, int64_t n);
    /* Hyper-connection coefficients of sixteen rows, value i of row r at z[i * 16 + r], m (m + 2) values: in the projections, out
     * pre = sigmoid + eps, post = 2 sigmoid, and comb, an m x m matrix made doubly stochastic: softmax of its rows, then
     * `iters` times columns and rows divided by their sums, beginning and ending with columns. base [m (m + 2)], scale [3]. */
    void (*hc_weights)(float *z, const float *base, const float *scale, int32_t m, int32_t iters, float eps);
    /* In place: h[j] = post[j] * out + sum_i comb[i * m + j] h[i], n values of each of m <= BY_LIMIT_HC_MULT streams that are D values
     * apart, all of dtype F32 or BF16. */
    void (*write_back)(void *h, by_dtype type, const void *out, const float *post, const float *comb, int32_t m, int64_t D, int64_t n);
    /* y += a * x. */
    void (*add_scaled)(float *y, float a, const float *x, int64_t n);
    /* y = sum of k rows of x, `stride` bytes apart, then of `last` (NULL: none), everything of dtype F32 or BF16. */
    void (*add_rows)(void *y, by_dtype type, const void *x, int64_t stride, int64_t k, const void *last, int64_t n);
    /* y = silu(min(g, limit)) * clamp(u, -limit, limit) * w; limit 0: none. */
    void (*swiglu)(float *y, const float *g, const float *u, int64_t n, float limit, float w);
    /* swiglu of m rows, quantised. */
    void (*gate_rows)(const by_vec_gate *e);
    /* x = sqrt(log(1 + e^x)): the router's score. */
    void (*softplus_root)(float *x, int64_t n);
    /* sum of x * (a * b) * y in double: Engram's gate. */
    double (*dot4)(const float *x, const float *a, const float *b, const float *y, int64_t n);

    /* s[h * lds + j] = scale * q_h . k_j; q rows ldq apart, k rows d apart; d a multiple of 16. */
    void (*scores)(float *s, int64_t lds, const float *q, int64_t ldq, int32_t heads, const float *k, int64_t n, int64_t d,
                   float scale);
    /* p = exp(p - top), top the largest of p and sink; returns 1 / (sum of p + exp(sink - top)). */
    double (*softmax)(float *p, int64_t n, float sink);
    /* o[h * ldo + c] = sum_j p[h * ldp + j] k[j * d + c] * (float)inv[h], j ascending; d a multiple of 16. */
    void (*values)(float *o, int64_t ldo, const float *p, int64_t ldp, const double *inv, int32_t heads, const float *k,
                   int64_t n, int64_t d);
    /* score[j] = (float)(scale * sum_h w[h] max(s[h * lds + j], 0)) + 0, h ascending, in double. */
    void (*head_sum)(float *score, const float *s, int64_t lds, const float *w, int32_t heads, int64_t n, float scale);
} by_vec;

extern const by_vec by_vec_avx2, by_vec_avx512, by_vec_avx512bf16, by_vec_neon;

/* The table for an instruction set, NULL for BY_ISA_REF. */
const by_vec *by_vec_for(by_isa isa);

#endif
