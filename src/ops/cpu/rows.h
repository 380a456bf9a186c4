/* rows.h - the loops of cpu_vec.h, written once over sixteen lanes. A file per instruction set includes its vec_*.h and then
 * this one, and exports the table.
 *
 * The lanes: v16 fp32, v16i int32, v16d sixteen doubles as an accumulator. v_* arithmetic; v_fma(a, b, c) = a b + c fused;
 * v_swap neighbours, v_even/v_odd duplicate; v_sum adds lanes i and i + 8, then i + 4, i + 2, i + 1; vi_pick_gt(a, b, x, y) =
 * a > b ? x : y; v_load_e4m3 16 bytes, v_load_e2m1 16 bytes to 32 values; vi_load_u8/u16, vi_store_u8/u16 narrow types. */
#ifndef BY_OPS_CPU_ROWS_H
#define BY_OPS_CPU_ROWS_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "ops/cpu/cpu_vec.h"
#include "ops/formats.h"

#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

enum { L = 16 };

#ifndef VEC_OWN_PART
/* The last n < 16 values of an array, filled up with zeros. */
VEC v16 v_load_part(const float *p, int64_t n) {
    float x[L] = {0};
    memcpy(x, p, (size_t)n * 4);
    return v_load(x);
}
VEC void v_store_part(float *p, v16 v, int64_t n) {
    float x[L];
    v_store(x, v);
    memcpy(p, x, (size_t)n * 4);
}
/* The first n < 16 lanes, the others zero. */
VEC v16 v_first(v16 v, int64_t n) {
    float x[L];
    v_store(x, v);
    return v_load_part(x, n);
}
/* The larger ones of most and of n < 16 values, which stand in any lanes. */
VEC v16 v_max_part(const float *p, v16 most, int64_t n) {
    for (int64_t j = 0; j < n; j++) most = v_max(v_set1(p[j]), most);
    return most;
}
#endif
/* Blocks of sixteen and a last part: i is the first index, `part` the number of values, for LOAD and STORE. */
#define FOR_BLOCKS(n) for (int64_t i = 0, part; i < (n) && (part = (n) - i < L ? (n) - i : L) > 0; i += L)
#define LOAD(p) (part == L ? v_load((p) + i) : v_load_part((p) + i, part))
#define STORE(p, v)                                                                                                    \
    do {                                                                                                               \
        if (part == L) v_store((p) + i, (v));                                                                          \
        else v_store_part((p) + i, (v), part);                                                                         \
    } while (0)

/* ---- number formats ---------------------------------------------------------------------------------------------- */

VEC v16 v_abs(v16 x) { return v_float(vi_and(v_bits(x), vi_set1(0x7fffffff))); }

#ifndef VEC_OWN_BF16
/* The upper halves, rounded to nearest even; NaN stays a quiet NaN. */
VEC v16i v_to_bf16(v16 x) {
    v16i u = v_bits(x), high = vi_srl(u, 16);
    v16i rounded = vi_srl(vi_add(u, vi_add(vi_set1(0x7fff), vi_and(high, vi_set1(1)))), 16);
    return vi_pick_gt(vi_and(u, vi_set1(0x7fffffff)), vi_set1(0x7f800000), vi_or(high, vi_set1(0x40)), rounded);
}
#endif
#ifndef VEC_OWN_STORE_BF16
VEC void v_store_bf16(void *p, v16 x) { vi_store_u16(p, v_to_bf16(x)); }
#endif
VEC v16 v_load_bf16(const void *p) { return v_float(vi_sll(vi_load_u16(p), 16)); }

/* |x| as E4M3 with the sign of x; see by_e4m3_of_f32. NaN and what rounds beyond 448 end at the largest code. */
VEC v16i v_to_e4m3(v16 x) {
    v16i u = v_bits(x), sign = vi_and(vi_srl(u, 24), vi_set1(0x80)), a = vi_and(u, vi_set1(0x7fffffff));
    v16i low = v_to_int(v_mul(v_float(a), v_set1(512.0f))); /* below 2^-6: multiples of 2^-9 */
    v16i r = vi_add(a, vi_add(vi_set1(0x7ffff), vi_and(vi_srl(a, 20), vi_set1(1))));
    v16i code = vi_min(vi_sub(vi_srl(r, 20), vi_set1(120 << 3)), vi_set1(0x7e));
    return vi_or(vi_pick_gt(vi_set1(0x3c800000), a, low, code), sign); /* 2^-6 */
}

/* |x| as E2M1 with the sign of x; see by_e2m1_of_f32. */
VEC v16i v_to_e2m1(v16 x) {
    v16i u = v_bits(x), sign = vi_and(vi_srl(u, 28), vi_set1(8)), a = vi_and(u, vi_set1(0x7fffffff));
    v16 size = v_float(vi_min(a, vi_set1(0x40c00000))); /* at most 6 */
    v16i code = vi_pick_gt(vi_set1(0x40000000), a, v_to_int(v_add(size, size)), vi_add(v_to_int(size), vi_set1(2)));
    code = vi_pick_gt(a, vi_set1(0x407fffff), vi_set1(6), code);   /* 4 and more */
    code = vi_pick_gt(a, vi_set1(0x40a00000), vi_set1(7), code);   /* more than 5, NaN */
    return vi_or(code, sign);
}

VEC void store_e2m1(uint8_t *to, v16i codes) {
    uint8_t c[L];
    vi_store_u8(c, codes);
    for (int i = 0; i < L / 2; i++) to[i] = (uint8_t)(c[2 * i] | c[2 * i + 1] << 4);
}

/* 1 / 2^(byte - 127), exactly. */
VEC float inverse_scale(uint8_t byte) { return by_f32_of_bits(byte < 254 ? (uint32_t)(254 - byte) << 23 : 0x00400000u); }

static void quant_act8(const float *x, int64_t n, uint8_t *data, uint8_t *scales) {
    for (int64_t g = 0; g < n / 32; g++, x += 32, data += 32) {
        v16 a = v_load(x), b = v_load(x + 16);
        float m = v_max_all(v_max(v_abs(a), v_abs(b)));
        scales[g] = by_ue8m0_ceil((m > 1e-4f ? m : 1e-4f) * (1.0f / 448.0f));
        v16 inv = v_set1(inverse_scale(scales[g]));
        vi_store_u8(data, v_to_e4m3(v_mul(a, inv)));
        vi_store_u8(data + 16, v_to_e4m3(v_mul(b, inv)));
    }
}

static void quant_kv4(const float *x, int64_t n, uint8_t *data, uint8_t *scales) {
    for (int64_t g = 0; g < n / 16; g++, x += 16, data += 8) {
        v16 a = v_load(x);
        float s = v_max_all(v_abs(a)) * (1.0f / 6.0f);
        s = s < 0x1p-9f ? 0x1p-9f : s > 448.0f ? 448.0f : s;
        scales[g] = by_e4m3_of_f32(s);
        store_e2m1(data, v_to_e2m1(v_div(a, v_set1(by_e4m3_to_f32(scales[g])))));
    }
}

static void quant_ix4(const float *x, int64_t n, uint8_t *data, uint8_t *scales) {
    for (int64_t g = 0; g < n / 32; g++, x += 32, data += 16) {
        v16 a = v_load(x), b = v_load(x + 16);
        float m = v_max_all(v_max(v_abs(a), v_abs(b)));
        scales[g] = by_ue8m0_ceil((m > 6.0f * 0x1p-126f ? m : 6.0f * 0x1p-126f) * (1.0f / 6.0f));
        v16 inv = v_set1(inverse_scale(scales[g]));
        store_e2m1(data, v_to_e2m1(v_mul(a, inv)));
        store_e2m1(data + 8, v_to_e2m1(v_mul(b, inv)));
    }
}

static void load_row(float *dst, by_dtype type, const void *src, int64_t n) {
    const uint8_t *p = src;
    if (type == BY_F32) {
        memcpy(dst, src, (size_t)n * 4);
    } else if (type == BY_BF16) {
        int64_t i = 0;
        for (; i + L <= n; i += L) v_store(dst + i, v_load_bf16(p + 2 * i));
        for (; i < n; i++) {
            uint16_t b;
            memcpy(&b, p + 2 * i, 2);
            dst[i] = by_bf16_to_f32(b);
        }
    } else {
        for (int64_t i = 0; i < n; i += L) v_store(dst + i, v_mul(v_load_e4m3(p + i), v_set1(by_ue8m0_to_f32(p[n + i / 32]))));
    }
}

static void store_row(void *dst, by_dtype type, const float *src, int64_t n) {
    uint8_t *p = dst;
    if (type == BY_F32) {
        memcpy(dst, src, (size_t)n * 4);
    } else if (type == BY_BF16) {
        int64_t i = 0;
        for (; i + L <= n; i += L) v_store_bf16(p + 2 * i, v_load(src + i));
        for (; i < n; i++) {
            uint16_t b = by_bf16_of_f32(src[i]);
            memcpy(p + 2 * i, &b, 2);
        }
    } else {
        quant_act8(src, n, p, p + n);
    }
}

static void round_row(float *x, by_dtype type, int64_t n) {
    if (type != BY_BF16) return;
    FOR_BLOCKS(n) STORE(x, v_float(vi_sll(v_to_bf16(LOAD(x)), 16)));
}

#ifndef VEC_OWN_E4M3
VEC void v_load_e4m3_pair(v16 out[2], const uint8_t *p) {
    out[0] = v_load_e4m3(p);
    out[1] = v_load_e4m3(p + L);
}
#endif

VEC void rec_load_one(float *x, by_rec rec, const uint8_t *data, const uint8_t *scales, int64_t d) {
    if (rec == BY_REC_F32) {
        memcpy(x, data, (size_t)d * 4);
        return;
    }
    for (int64_t i = 0; i < d; i += 32) {
        v16 v[2];
        bool fp4 = rec == BY_REC_FP4;
        if (rec == BY_REC_FP8) v_load_e4m3_pair(v, data + i);
        else v_load_e2m1(v, data + i / 2);
        float s0 = fp4 ? by_e4m3_to_f32(scales[i / 16]) : by_ue8m0_to_f32(scales[i / 32]);
        float s1 = fp4 ? by_e4m3_to_f32(scales[i / 16 + 1]) : s0;
        v_store(x + i, v_mul(v[0], v_set1(s0)));
        v_store(x + i + L, v_mul(v[1], v_set1(s1)));
    }
}

static void rec_load(float *x, by_rec rec, const uint8_t *data, const uint8_t *scales, int64_t d) {
    switch (rec) {
    case BY_REC_F32: rec_load_one(x, BY_REC_F32, data, scales, d); return;
    case BY_REC_FP8: rec_load_one(x, BY_REC_FP8, data, scales, d); return;
    case BY_REC_FP4: rec_load_one(x, BY_REC_FP4, data, scales, d); return;
    case BY_REC_IX4: rec_load_one(x, BY_REC_IX4, data, scales, d); return;
    }
}

static void rec_load_rows(float *x, by_rec rec, const uint8_t *data, int64_t stride, int64_t n, int64_t d) {
    if (rec == BY_REC_FP8)
        for (int64_t i = 0; i < n; i++, x += d, data += stride) rec_load_one(x, BY_REC_FP8, data, data + d, d);
    else if (rec == BY_REC_FP4)
        for (int64_t i = 0; i < n; i++, x += d, data += stride) rec_load_one(x, BY_REC_FP4, data, data + d / 2, d);
    else
        for (int64_t i = 0; i < n; i++, x += d, data += stride) rec_load_one(x, BY_REC_F32, data, NULL, d);
}

static void rec_store(uint8_t *data, uint8_t *scales, by_rec rec, const float *x, int64_t d) {
    switch (rec) {
    case BY_REC_F32: memcpy(data, x, (size_t)d * 4); return;
    case BY_REC_FP8: quant_act8(x, d, data, scales); return;
    case BY_REC_FP4: quant_kv4(x, d, data, scales); return;
    case BY_REC_IX4: quant_ix4(x, d, data, scales); return;
    }
}

/* ---- sums and norms ---------------------------------------------------------------------------------------------- */

static double dot_rows(const float *x, const float *y, int64_t n) {
    v16d acc = vd_zero();
    FOR_BLOCKS(n) acc = vd_fma(acc, LOAD(x), LOAD(y));
    return vd_sum(acc);
}

static double dot4_rows(const float *x, const float *a, const float *b, const float *y, int64_t n) {
    v16d acc = vd_zero();
    FOR_BLOCKS(n) acc = vd_fma(acc, v_mul(LOAD(x), v_mul(LOAD(a), LOAD(b))), LOAD(y));
    return vd_sum(acc);
}

static void norm_row(float *y, const float *x, const float *w, int64_t n, float eps) {
    v16 r = v_set1((float)(1.0 / sqrt(dot_rows(x, x, n) / (double)n + (double)eps)));
    FOR_BLOCKS(n) STORE(y, v_mul(v_mul(LOAD(x), r), LOAD(w)));
}

/* Lane a of a pair gets a cos - b sin, lane b gets b cos + a sin. */
static void rotate_row(float *x, const float *cs, int64_t r, float sign) {
    float flip[L];
    for (int i = 0; i < L; i++) flip[i] = i % 2 ? sign : -sign;
    const v16 signs = v_load(flip);
    FOR_BLOCKS(r) {
        v16 v = LOAD(x), t = LOAD(cs);
        STORE(x, v_add(v_mul(v, v_even(t)), v_mul(v_swap(v), v_mul(v_odd(t), signs))));
    }
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void mix_rows(float *u, const float *a, const float *x, int64_t ldx, int32_t m, int64_t n) {
    FOR_BLOCKS(n) {
        v16 sum = v_set1(0);
        for (int32_t j = 0; j < m; j++) sum = v_add(sum, v_mul(v_set1(a[j]), LOAD(x + j * ldx)));
        STORE(u, sum);
    }
}

VEC v16 load_as(by_dtype type, const void *p, int64_t i) {
    return type == BY_BF16 ? v_load_bf16((const uint16_t *)p + i) : v_load((const float *)p + i);
}
/* The last n < 16 of them. */
VEC v16 load_part_as(by_dtype type, const void *p, int64_t i, int64_t n) {
    float x[L] = {0};
    for (int64_t j = 0; j < n; j++) x[j] = type == BY_BF16 ? by_bf16_to_f32(((const uint16_t *)p)[i + j]) : ((const float *)p)[i + j];
    return v_load(x);
}

VEC void store_as(by_dtype type, void *p, int64_t i, v16 v, int64_t n) { /* n <= 16 of them */
    if (n == L && type == BY_BF16) v_store_bf16((uint16_t *)p + i, v);
    else if (type == BY_BF16) {
        float x[L];
        v_store(x, v);
        for (int64_t j = 0; j < n; j++) ((uint16_t *)p)[i + j] = by_bf16_of_f32(x[j]);
    } else if (n == L) v_store((float *)p + i, v);
    else v_store_part((float *)p + i, v, n);
}

VEC void write_back_as(void *h, by_dtype type, const void *out, const float *post, const float *comb, int m, int64_t D, int64_t n) {
    FOR_BLOCKS(n) {
        v16 x[BY_LIMIT_HC_MULT], o = part == L ? load_as(type, out, i) : load_part_as(type, out, i, part);
        for (int k = 0; k < m; k++) x[k] = part == L ? load_as(type, h, k * D + i) : load_part_as(type, h, k * D + i, part);
        for (int j = 0; j < m; j++) {
            v16 sum = v_mul(v_set1(post[j]), o);
            for (int k = 0; k < m; k++) sum = v_add(sum, v_mul(v_set1(comb[k * m + j]), x[k]));
            store_as(type, h, j * D + i, sum, part);
        }
    }
}
static void write_back_streams(void *h, by_dtype type, const void *out, const float *post, const float *comb, int32_t m, int64_t D,
                               int64_t n) {
    if (type == BY_BF16 && m == 4) write_back_as(h, BY_BF16, out, post, comb, 4, D, n); /* loops of known length */
    else if (type == BY_BF16) write_back_as(h, BY_BF16, out, post, comb, m, D, n);
    else write_back_as(h, BY_F32, out, post, comb, m, D, n);
}

/* The sum of squares of numbers whose squares leave fp32. */
VEC double large_squares_as(by_dtype type, const void *x, int64_t n) {
    v16d acc = vd_zero();
    FOR_BLOCKS(n) {
        v16 v = part == L ? load_as(type, x, i) : load_part_as(type, x, i, part);
        acc = vd_fma(acc, v, v);
    }
    return vd_sum(acc);
}

VEC double mix_squares_as(float *u, const float *a, by_dtype type, const void *x, int32_t m, int64_t n) {
    v16d acc = vd_zero();
    const v16 ones = v_set1(1);
    FOR_BLOCKS(n) {
        v16 sum = v_set1(0), squares = v_set1(0); /* m squares in fp32, then in double */
        for (int32_t j = 0; j < m; j++) {
            v16 v = part == L ? load_as(type, x, j * n + i) : load_part_as(type, x, j * n + i, part);
            sum = v_add(sum, v_mul(v_set1(a[j]), v));
            squares = v_fma(v, v, squares);
        }
        acc = vd_fma(acc, squares, ones);
        STORE(u, sum);
    }
    const double all = vd_sum(acc);
    return all > DBL_MAX ? large_squares_as(type, x, m * n) : all;
}
static double mix_squares_rows(float *u, const float *a, by_dtype type, const void *x, int32_t m, int64_t n) {
    if (type == BY_BF16) return m == 4 ? mix_squares_as(u, a, BY_BF16, x, 4, n) : mix_squares_as(u, a, BY_BF16, x, m, n);
    return mix_squares_as(u, a, BY_F32, x, m, n);
}

VEC void add_rows_as(void *y, by_dtype type, const void *x, int64_t stride, int64_t k, const void *last, int64_t n) {
    FOR_BLOCKS(n) {
        v16 sum = v_set1(0);
        for (int64_t j = 0; j <= k; j++) {
            const void *row = j < k ? (const uint8_t *)x + j * stride : last;
            if (row) sum = v_add(sum, part == L ? load_as(type, row, i) : load_part_as(type, row, i, part));
        }
        store_as(type, y, i, sum, part);
    }
}
static void add_rows_row(void *y, by_dtype type, const void *x, int64_t stride, int64_t k, const void *last, int64_t n) {
    if (type == BY_BF16) add_rows_as(y, BY_BF16, x, stride, k, last, n);
    else add_rows_as(y, BY_F32, x, stride, k, last, n);
}

static void add_scaled_row(float *y, float a, const float *x, int64_t n) {
    FOR_BLOCKS(n) STORE(y, v_add(LOAD(y), v_mul(v_set1(a), LOAD(x))));
}

/* ---- exponentials ------------------------------------------------------------------------------------------------ */

#ifndef VEC_OWN_EXP
VEC v16 v_nearest(v16 x) { return v_of_int(v_to_int(x)); }

/* p 2^fn, but 0 where x is below -87.3, infinity where it is above 88.3, and x where it is NaN. */
VEC v16 v_exp_finish(v16 p, v16 fn, v16 x) {
    p = v_mul(p, v_float(vi_sll(vi_add(v_to_int(fn), vi_set1(127)), 23)));
    v16i size = vi_and(v_bits(x), vi_set1(0x7fffffff)), inf = vi_set1(0x7f800000);
    v16i below = vi_pick_gt(vi_set1(0), v_bits(x), size, vi_set1(0)), above = vi_pick_gt(vi_set1(0), v_bits(x), vi_set1(0), size);
    v16i y = vi_pick_gt(below, vi_set1(0x42ae999a), vi_set1(0), v_bits(p)); /* 87.3 */
    y = vi_pick_gt(above, vi_set1(0x42b0999a), inf, y);                     /* 88.3 */
    return v_float(vi_pick_gt(size, inf, v_bits(x), y));
}
#endif

/* e^x to about one unit in the last place: x = n ln 2 + r, a polynomial for r, a multiplication by 2^n. Below -87.3 zero,
 * above 88.3 infinity; NaN stays NaN. */
VEC v16 v_exp(v16 x) {
    v16 c = v_min(v_set1(88.3f), x); /* the second operand where one is NaN */
    c = v_max(v_set1(-87.3f), c);
    v16 fn = v_nearest(v_mul(c, v_set1(1.44269504f))), r = v_fma(fn, v_set1(-0.693145752f), c);
    r = v_fma(fn, v_set1(-1.42860677e-6f), r);
    v16 p = v_set1(1.0f / 5040);
    p = v_fma(p, r, v_set1(1.0f / 720));
    p = v_fma(p, r, v_set1(1.0f / 120));
    p = v_fma(p, r, v_set1(1.0f / 24));
    p = v_fma(p, r, v_set1(1.0f / 6));
    p = v_fma(p, r, v_set1(0.5f));
    return v_exp_finish(v_fma(v_mul(p, r), r, v_add(r, v_set1(1.0f))), fn, x);
}

VEC v16 v_swiglu(v16 g, v16 u, float limit, float w) {
    if (limit > 0) { /* NaN stays: it is the second operand */
        g = v_min(v_set1(limit), g);
        u = v_max(v_set1(-limit), v_min(v_set1(limit), u));
    }
    v16 s = v_div(g, v_add(v_set1(1), v_exp(v_sub(v_set1(0), g))));
    return v_mul(v_mul(s, u), v_set1(w));
}

static void swiglu_row(float *y, const float *g, const float *u, int64_t n, float limit, float w) {
    FOR_BLOCKS(n) STORE(y, v_swiglu(LOAD(g), LOAD(u), limit, w));
}

VEC v16 v_round_bf16(v16 x) { return v_float(vi_sll(v_to_bf16(x), 16)); }

#ifndef VEC_OWN_BAD
/* Is one of them not finite? With its exponent bits alone such a value is infinite, and any other is not. */
VEC bool v_has_bad(v16 a, v16 b, v16 c, v16 d) {
    const v16i exponent = vi_set1(0x7f800000);
    v16 most = v_max(v_max(v_float(vi_and(v_bits(a), exponent)), v_float(vi_and(v_bits(b), exponent))),
                     v_max(v_float(vi_and(v_bits(c), exponent)), v_float(vi_and(v_bits(d), exponent))));
    return v_max_all(most) == INFINITY;
}
#endif

static void gate_rows(const by_vec_gate *e) {
    const bool bf16 = e->act == BY_BF16;
    for (int64_t r = 0; r < e->m; r++) {
        const float *g = e->g + r * 2 * L, *u = e->u + r * 2 * L;
        const int64_t n0 = e->n < L ? e->n : L, n1 = e->n - n0;
        v16 g0 = n0 == L ? v_load(g) : v_load_part(g, n0), g1 = n1 == L ? v_load(g + L) : v_load_part(g + L, n1);
        v16 u0 = n0 == L ? v_load(u) : v_load_part(u, n0), u1 = n1 == L ? v_load(u + L) : v_load_part(u + L, n1);
        if (bf16) {
            g0 = v_round_bf16(g0);
            g1 = v_round_bf16(g1);
            u0 = v_round_bf16(u0);
            u1 = v_round_bf16(u1);
        }
        if (v_has_bad(g0, g1, u0, u1)) __atomic_store_n(&e->bad[e->row[r]], 1, __ATOMIC_RELAXED);
        const float w = e->weight ? e->weight[r] : 1;
        float y[2 * L];
        v_store(y, v_swiglu(g0, u0, e->limit, w));
        v_store(y + L, v_swiglu(g1, u1, e->limit, w));
        uint8_t *to = e->to + r * e->stride;
        if (e->scale_off) quant_act8(y, 2 * L, to, to + e->scale_off);
        else memcpy(to, y, (size_t)e->n * 4);
    }
}

/* log(1 + e^x) = max(x, 0) + log(1 + z), z = e^-|x|, by the series of 2 atanh(z / (2 + z)). Far below zero its root is
 * e^(x / 2) to within fp32, and stays a number longer. */
static void softplus_root_row(float *x, int64_t n) {
    FOR_BLOCKS(n) {
        v16 t = LOAD(x), z = v_exp(v_sub(v_set1(0), v_abs(t))), s = v_div(z, v_add(z, v_set1(2))), q = v_mul(s, s);
        v16 p = v_set1(1.0f / 13);
        p = v_fma(p, q, v_set1(1.0f / 11));
        p = v_fma(p, q, v_set1(1.0f / 9));
        p = v_fma(p, q, v_set1(1.0f / 7));
        p = v_fma(p, q, v_set1(1.0f / 5));
        p = v_fma(p, q, v_set1(1.0f / 3));
        v16 l = v_mul(v_add(s, s), v_fma(p, q, v_set1(1)));
        v16 root = v_sqrt(v_add(v_max(v_set1(0), t), l)), far = v_exp(v_mul(t, v_set1(0.5f)));
        v16i below = vi_pick_gt(vi_set1(0), v_bits(t), vi_and(v_bits(t), vi_set1(0x7fffffff)), vi_set1(0)); /* |t| where t < 0 */
        STORE(x, v_float(vi_pick_gt(below, vi_set1(0x41a00000), v_bits(far), v_bits(root)))); /* 20 */
    }
}

static double softmax_row(float *p, int64_t n, float sink) {
    v16 most = v_set1(sink);
    FOR_BLOCKS(n) {
        most = part == L ? v_max(v_load(p + i), most) : v_max_part(p + i, most, part);
    }
    float top = v_max_all(most);
    v16d sum = vd_zero();
    const v16 ones = v_set1(1);
    FOR_BLOCKS(n) {
        v16 e = v_exp(v_sub(LOAD(p), v_set1(top)));
        STORE(p, e);
        sum = vd_fma(sum, part == L ? e : v_first(e, part), ones);
    }
    return 1.0 / (vd_sum(sum) + exp((double)sink - (double)top));
}

/* ---- hyper-connections ------------------------------------------------------------------------------------------- */

VEC v16 v_sigmoid(v16 x) { return v_div(v_set1(1), v_add(v_set1(1), v_exp(v_sub(v_set1(0), x)))); }

/* Values a, a + step, ... of n are divided by their sum: a product with its inverse, one division for all. They stay in memory:
 * the division takes longer than reaching them. */
VEC void divide_by_sum(float *c, int n, int step, float eps) {
    v16 sum = v_set1(eps);
    for (int i = 0; i < n; i++) sum = v_add(sum, v_load(c + i * step * L));
    v16 inv = v_div(v_set1(1), sum);
    for (int i = 0; i < n; i++) v_store(c + i * step * L, v_mul(v_load(c + i * step * L), inv));
}

VEC void sinkhorn_lanes(float *c, int m, int iters, float eps) {
    for (int i = 0; i < m; i++) {
        float *row = c + i * m * L;
        v16 top = v_load(row);
        for (int j = 1; j < m; j++) top = v_max(top, v_load(row + j * L));
        for (int j = 0; j < m; j++) v_store(row + j * L, v_exp(v_sub(v_load(row + j * L), top)));
        divide_by_sum(row, m, 1, 0);
        for (int j = 0; j < m; j++) v_store(row + j * L, v_add(v_load(row + j * L), v_set1(eps)));
    }
    for (int it = 0; it < iters; it++) {
        for (int i = 0; i < m && it > 0; i++) divide_by_sum(c + i * m * L, m, 1, eps);
        for (int j = 0; j < m; j++) divide_by_sum(c + j * L, m, m, eps);
    }
}

VEC void hc_weights_of(float *z, const float *base, const float *scale, int m, int iters, float eps) {
    for (int i = 0; i < m * (m + 2); i++) {
        v16 x = v_add(v_mul(v_load(z + i * L), v_set1(scale[i < 2 * m ? i / m : 2])), v_set1(base[i]));
        if (i < m) x = v_add(v_sigmoid(x), v_set1(eps));
        else if (i < 2 * m) x = v_mul(v_set1(2), v_sigmoid(x));
        v_store(z + i * L, x);
    }
    sinkhorn_lanes(z + 2 * m * L, m, iters, eps);
}

static void hc_weights_lanes(float *z, const float *base, const float *scale, int32_t m, int32_t iters, float eps) {
    if (m == 4) hc_weights_of(z, base, scale, 4, iters, eps); /* the usual one, with loops of known length */
    else hc_weights_of(z, base, scale, m, iters, eps);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* H heads times K keys; each pair has one accumulator, so the tile does not matter. */
VEC void scores_tile(float *s, int64_t lds, const float *q, int64_t ldq, const float *k, int64_t d, float scale, int H, int K) {
    v16 acc[16];
    VEC_UNROLL for (int i = 0; i < H * K; i++) acc[i] = v_set1(0);
    for (int64_t c = 0; c < d; c += L) {
        v16 key[4];
        VEC_UNROLL for (int j = 0; j < K; j++) key[j] = v_load(k + j * d + c);
        VEC_UNROLL for (int h = 0; h < H; h++) {
            v16 x = v_load(q + h * ldq + c);
            VEC_UNROLL for (int j = 0; j < K; j++) acc[h * K + j] = v_fma(x, key[j], acc[h * K + j]);
        }
    }
#ifdef VEC_OWN_SUM16
    if (H == 4 && K == 4) {
        v_sum16(s, lds, acc, scale);
        return;
    }
#endif
    VEC_UNROLL for (int i = 0; i < H * K; i += 4) {
        float sum[4];
        v_sum4(sum, acc[i], i + 1 < H * K ? acc[i + 1] : acc[i], i + 2 < H * K ? acc[i + 2] : acc[i],
               i + 3 < H * K ? acc[i + 3] : acc[i]);
        VEC_UNROLL for (int j = 0; j < 4; j++)
            if (i + j < H * K) s[(i + j) / K * lds + (i + j) % K] = sum[j] * scale;
    }
}

static void scores_rows(float *s, int64_t lds, const float *q, int64_t ldq, int32_t heads, const float *k, int64_t n, int64_t d,
                        float scale) {
    for (int64_t j = 0; j < n;) {
        const bool four = n - j >= SCORE_KEYS;
        int32_t h = 0;
        for (; h + SCORE_HEADS <= heads; h += SCORE_HEADS) {
            if (four) scores_tile(s + h * lds + j, lds, q + h * ldq, ldq, k + j * d, d, scale, SCORE_HEADS, SCORE_KEYS);
            else scores_tile(s + h * lds + j, lds, q + h * ldq, ldq, k + j * d, d, scale, SCORE_HEADS, 1);
        }
        for (; h < heads; h++) {
            if (four) scores_tile(s + h * lds + j, lds, q + h * ldq, ldq, k + j * d, d, scale, 1, SCORE_KEYS);
            else scores_tile(s + h * lds + j, lds, q + h * ldq, ldq, k + j * d, d, scale, 1, 1);
        }
        j += four ? SCORE_KEYS : 1;
    }
}

/* H heads, C blocks of sixteen columns; keys ascending. */
VEC void values_tile(float *o, int64_t ldo, const float *p, int64_t ldp, const double *inv, const float *k, int64_t n, int64_t d,
                     int H, int C) {
    v16 acc[16];
    VEC_UNROLL for (int i = 0; i < H * C; i++) acc[i] = v_set1(0);
    for (int64_t j = 0; j < n; j++) {
        v16 key[4];
        VEC_UNROLL for (int c = 0; c < C; c++) key[c] = v_load(k + j * d + c * L);
        VEC_UNROLL for (int h = 0; h < H; h++) {
            v16 w = v_set1(p[h * ldp + j]);
            VEC_UNROLL for (int c = 0; c < C; c++) acc[h * C + c] = v_fma(w, key[c], acc[h * C + c]);
        }
    }
    VEC_UNROLL for (int h = 0; h < H; h++)
        VEC_UNROLL for (int c = 0; c < C; c++) v_store(o + h * ldo + c * L, v_mul(acc[h * C + c], v_set1((float)inv[h])));
}

static void values_rows(float *o, int64_t ldo, const float *p, int64_t ldp, const double *inv, int32_t heads, const float *k,
                        int64_t n, int64_t d) {
    for (int64_t c = 0; c < d;) {
        const bool wide = d - c >= VALUE_COLUMNS * L;
        int32_t h = 0;
        for (; h + VALUE_HEADS <= heads; h += VALUE_HEADS) {
            if (wide) values_tile(o + h * ldo + c, ldo, p + h * ldp, ldp, inv + h, k + c, n, d, VALUE_HEADS, VALUE_COLUMNS);
            else values_tile(o + h * ldo + c, ldo, p + h * ldp, ldp, inv + h, k + c, n, d, VALUE_HEADS, 1);
        }
        for (; h < heads; h++) {
            if (wide) values_tile(o + h * ldo + c, ldo, p + h * ldp, ldp, inv + h, k + c, n, d, 1, VALUE_COLUMNS);
            else values_tile(o + h * ldo + c, ldo, p + h * ldp, ldp, inv + h, k + c, n, d, 1, 1);
        }
        c += wide ? VALUE_COLUMNS * L : L;
    }
}

static void head_sum_rows(float *score, const float *s, int64_t lds, const float *w, int32_t heads, int64_t n, float scale) {
    FOR_BLOCKS(n) {
        v16d acc = vd_zero();
        for (int32_t h = 0; h < heads; h++) acc = vd_fma(acc, v_max(LOAD(s + h * lds), v_set1(0)), v_set1(w[h]));
        STORE(score, v_add(vd_float(vd_mul(acc, (double)scale)), v_set1(0)));
    }
}

#define BY_VEC_TABLE(set)                                                                                              \
    {.isa = set, .load = load_row, .store = store_row, .round = round_row, .rec_load = rec_load,                       \
     .rec_load_rows = rec_load_rows, .rec_store = rec_store, .dot = dot_rows, .norm = norm_row, .rotate = rotate_row,  \
     .mix = mix_rows, .mix_squares = mix_squares_rows, .hc_weights = hc_weights_lanes, .write_back = write_back_streams,  \
     .add_scaled = add_scaled_row, .add_rows = add_rows_row, .swiglu = swiglu_row, .gate_rows = gate_rows,             \
     .softplus_root = softplus_root_row, .dot4 = dot4_rows, .scores = scores_rows, .softmax = softmax_row,             \
     .values = values_rows, .head_sum = head_sum_rows}

#endif
