/* mm_f32.h - the f32 cores, written once over the vector helpers of an instruction set. A kernel file defines them,
 * includes this file and puts the four cores into its table:
 *
 *   vec, VL                    fp32 vector and its lanes (4, 8, 16)
 *   v_zero() v_load(p) v_store(p, v) v_fma(a, b, c)
 *   v_sum4(a, b, c, d, out)    sums of the lanes in a fixed tree, four vectors at once
 *   expand_fp8(w, p, s, &bad)  32 E4M3 bytes times scale byte s -> w[32 / VL] in natural order; notes NaN in bad
 *   expand_fp4(w, p, s)        16 bytes -> 32 values: even columns, then odd ones
 *   expand_bf16(w, p)          32 bf16 -> even columns, then odd ones
 *   bad_t, bad_none(), bad_any(b)
 *   MM_MT                      most rows of x per call; MM_R(m) weight rows held at once for m rows of x
 *
 * Each (weight row, x row) pair has one accumulator vector; k ascends; so the sum does not depend on how pairs are grouped. */
#ifndef BY_OPS_CPU_MM_F32_H
#define BY_OPS_CPU_MM_F32_H

#include <string.h>

#include "ops/cpu/mm_put.h"

#define MM_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 32")
#endif

enum { MM_VECS = BY_MM_GROUP / VL, MM_R_MAX = 8 };

MM_INLINE void expand(vec w[MM_VECS], int type, const uint8_t *p, const uint8_t *s, bad_t *bad) {
    if (type == BY_MM_FP4) expand_fp4(w, p, *s);
    else if (type == BY_MM_FP8) expand_fp8(w, p, *s, bad);
    else if (type == BY_MM_BF16) expand_bf16(w, p);
    else
        for (int v = 0; v < MM_VECS; v++) w[v] = v_load((const float *)(const void *)p + v * VL);
}

MM_INLINE int64_t group_bytes(int type) {
    return type == BY_MM_FP4 ? 16 : type == BY_MM_FP8 ? 32 : type == BY_MM_BF16 ? 64 : 128;
}

/* R weight rows from r0 on times M rows of x; R and M are constants after inlining. */
MM_INLINE uint32_t mm_rows(const by_mm_tile *t, int64_t r0, int R, int M, int type) {
    vec acc[MM_R_MAX * MM_MT];
    bad_t bad[MM_R_MAX];
    MM_UNROLL for (int i = 0; i < R * M; i++) acc[i] = v_zero();
    MM_UNROLL for (int r = 0; r < R; r++) bad[r] = bad_none();
    const int64_t step = group_bytes(type), groups = t->k / BY_MM_GROUP, tail = t->k % BY_MM_GROUP;
    const uint8_t *w0 = t->w + r0 * t->stride;
    const uint8_t *s0 = type == BY_MM_FP4 ? t->scale + r0 * t->scale_stride : t->scale;
    for (int64_t g = 0; g < groups; g++) {
        MM_UNROLL for (int r = 0; r < R; r++) {
            vec w[MM_VECS];
            const uint8_t *p = w0 + r * t->stride + g * step;
            /* The next rows of weights, at the same columns: what this call or the one after it reads next. */
            __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)(R * t->stride)));
            expand(w, type, p, type == BY_MM_FP4 ? s0 + r * t->scale_stride + g : s0 + g, &bad[r]);
            MM_UNROLL for (int m = 0; m < M; m++) {
                const float *x = (const float *)(const void *)t->rows[m] + g * BY_MM_GROUP;
                MM_UNROLL for (int v = 0; v < MM_VECS; v++)
                    acc[m * R + r] = v_fma(w[v], v_load(x + v * VL), acc[m * R + r]);
            }
        }
    }
    if (tail) { /* BF16 and F32 only: the last columns, filled up with zeros */
        MM_UNROLL for (int r = 0; r < R; r++) {
            vec w[MM_VECS];
            uint8_t last[BY_MM_GROUP * 4] = {0};
            memcpy(last, w0 + r * t->stride + groups * step, (size_t)(tail * (step / BY_MM_GROUP)));
            expand(w, type, last, s0, &bad[r]);
            MM_UNROLL for (int m = 0; m < M; m++) {
                const float *x = (const float *)(const void *)t->rows[m] + groups * BY_MM_GROUP;
                MM_UNROLL for (int v = 0; v < MM_VECS; v++)
                    acc[m * R + r] = v_fma(w[v], v_load(x + v * VL), acc[m * R + r]);
            }
        }
    }
    uint32_t rows = 0;
    MM_UNROLL for (int r = 0; r < R; r++) rows |= (uint32_t)bad_any(bad[r]) << (r0 + r);
    MM_UNROLL for (int i = 0; i < R * M; i += 4) {
        float sum[4];
        v_sum4(acc[i], i + 1 < R * M ? acc[i + 1] : v_zero(), i + 2 < R * M ? acc[i + 2] : v_zero(),
               i + 3 < R * M ? acc[i + 3] : v_zero(), sum);
        MM_UNROLL for (int j = 0; j < 4; j++)
            if (i + j < R * M) t->y[(i + j) / R * BY_MM_ROWS + r0 + (i + j) % R] = sum[j];
    }
    return rows;
}

MM_INLINE uint32_t mm_all(const by_mm_tile *t, int R, int M, int type) {
    uint32_t bad = 0;
    int64_t r = 0;
    for (; r + R <= t->n_rows; r += R) bad |= mm_rows(t, r, R, M, type);
    for (; r < t->n_rows; r++) bad |= mm_rows(t, r, 1, M, type);
    return bad;
}

#define MM_CASE(M)                                                                                                     \
    case M: return mm_all(t, MM_R(M), M, type);
MM_INLINE uint32_t mm_core(const by_mm_tile *t, int type) {
    switch (t->m) {
        MM_CASE(1)
        MM_CASE(2)
        MM_CASE(3)
        MM_CASE(4)
#if MM_MT > 4
        MM_CASE(5)
        MM_CASE(6)
        MM_CASE(7)
        MM_CASE(8)
#endif
    }
    return 0;
}

static uint32_t core_fp4_f32(const by_mm_tile *t) { return mm_core(t, BY_MM_FP4); }
static uint32_t core_fp8_f32(const by_mm_tile *t) { return mm_core(t, BY_MM_FP8); }
static uint32_t core_bf16_f32(const by_mm_tile *t) { return mm_core(t, BY_MM_BF16); }
static uint32_t core_f32_f32(const by_mm_tile *t) { return mm_core(t, BY_MM_F32); }

/* ---- the limit ---------------------------------------------------------------------------------------------------- */

/* Ten sums hide the latency of two units of four cycles and leave registers for the operands. All are zeros of which the
 * compiler knows nothing, or it would compute equal sums once; they count as used because they are returned. */
static double peak_f32(int64_t n) {
    enum { SUMS = 10 };
    static volatile float zero;
    float copy[VL], sum = 0;
    vec acc[SUMS];
    MM_UNROLL for (int i = 0; i < SUMS; i++) {
        for (int j = 0; j < VL; j++) copy[j] = zero;
        acc[i] = v_load(copy);
    }
    vec x = v_load(copy);
    for (int64_t r = 0; r < n; r++) MM_UNROLL for (int i = 0; i < SUMS; i++) acc[i] = v_fma(x, x, acc[i]);
    MM_UNROLL for (int i = 0; i < SUMS; i++) {
        v_store(copy, acc[i]);
        sum += copy[0];
    }
    return (double)n * SUMS * VL * 2 + (double)sum;
}

/* ---- packing fp32 layouts ---------------------------------------------------------------------------------------- */

/* Columns [c, c + n) of a row as fp32, n <= 32, the rest of the group zero. False: not finite or too large. */
static bool group_values(float x[BY_MM_GROUP], const by_mm_src *src, int64_t c, int64_t n) {
    if (n < BY_MM_GROUP) memset(x, 0, BY_MM_GROUP * sizeof(float));
    if (src->type == BY_MM_F32) {
        memcpy(x, src->data + c * 4, (size_t)n * 4);
        return true;
    }
    if (src->type == BY_MM_BF16) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t b;
            memcpy(&b, src->data + (c + i) * 2, 2);
            x[i] = by_bf16_to_f32(b);
        }
        return true;
    }
    vec w[MM_VECS];
    bad_t bad = bad_none();
    uint8_t scale = src->scale[c / BY_MM_GROUP], any = 0;
    for (int i = 0; i < BY_MM_GROUP; i++) any |= (uint8_t)(src->data[c + i] & 0x7f);
    expand_fp8(w, src->data + c, any ? scale : 127, &bad);
    for (int v = 0; v < MM_VECS; v++) v_store(x + v * VL, w[v]);
    return !bad_any(bad) && (!any || scale <= BY_MM_SCALE_MAX);
}

/* Whole groups of bf16, which are most of what comes here. */
MM_INLINE void pack_bf16_groups(float *to, const uint8_t *from, int64_t n, bool split) {
    for (int64_t g = 0; g < n; g++, to += BY_MM_GROUP, from += BY_MM_GROUP * 2) {
        if (split) {
            vec w[MM_VECS];
            expand_bf16(w, from);
            for (int v = 0; v < MM_VECS; v++) v_store(to + v * VL, w[v]);
        } else {
            uint16_t b[BY_MM_GROUP];
            memcpy(b, from, sizeof b);
            for (int i = 0; i < BY_MM_GROUP; i++) to[i] = by_bf16_to_f32(b[i]);
        }
    }
}

MM_INLINE bool pack_groups(uint8_t *to, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1, bool split) {
    bool safe = true;
    if (src->type == BY_MM_BF16) {
        int64_t whole = g1 < k / BY_MM_GROUP ? g1 : k / BY_MM_GROUP;
        if (whole > g0) {
            pack_bf16_groups((float *)(void *)to + g0 * BY_MM_GROUP, src->data + g0 * BY_MM_GROUP * 2, whole - g0, split);
            g0 = whole;
        }
    }
    for (int64_t g = g0; g < g1; g++) {
        float x[BY_MM_GROUP], *at = (float *)(void *)to + g * BY_MM_GROUP;
        int64_t c = g * BY_MM_GROUP;
        safe &= group_values(x, src, c, k - c < BY_MM_GROUP ? k - c : BY_MM_GROUP);
        if (!split) {
            memcpy(at, x, sizeof x);
            continue;
        }
        for (int i = 0; i < BY_MM_GROUP / 2; i++) {
            at[i] = x[2 * i];
            at[BY_MM_GROUP / 2 + i] = x[2 * i + 1];
        }
    }
    return safe;
}

/* Natural order. */
static uint32_t pack_straight(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    (void)n_block;
    return !pack_groups(to, src, k, g0, g1, false);
}
/* Each 32 columns as 16 even ones, then 16 odd ones. */
static uint32_t pack_split(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    (void)n_block;
    return !pack_groups(to, src, k, g0, g1, true);
}

#define MM_PLAIN_WAY(c, p) {.core = c, .pack = p, .mt = MM_MT, .block = 1, .elem_bytes = 4, .pad = BY_MM_GROUP, .put = put_rows}
#define MM_PLAIN_WAYS                                                                                                  \
    {MM_PLAIN_WAY(core_fp4_f32, pack_split), MM_PLAIN_WAY(core_fp8_f32, pack_straight),                                \
     MM_PLAIN_WAY(core_bf16_f32, pack_split), MM_PLAIN_WAY(core_f32_f32, pack_straight)}

#endif
