/* mm_avx512bf16.c - bf16 cores: A8 rows times FP4 and FP8 weights with vdpbf16ps. Compiled with AVX-512 F, BW, VL, DQ, VBMI,
 * BF16.
 *
 * FP4. Sixteen bytes hold 32 columns of one row and share one scale. Broadcast to the four quarters of a register and shifted
 * by 0, 4, 8, 12, its words have in their low bits the codes of columns 4 j + quarter. A word permutation looks at five bits
 * and so reads a table that holds the sixteen codes twice; adding the scale's exponent to the nonzero entries of the table
 * makes the looked-up values exact products weight x scale in bf16.
 *
 * FP8. High and low bytes of the bf16 value of each E4M3 code come from two 128-entry byte tables (denormal codes become
 * normal numbers, which matters because vdpbf16ps flushes denormals; NaN stays NaN). Interleaving the bytes gives words in
 * the order of the packed layout. One scale serves 32 rows, so it is multiplied into x once per 32 rows (fold).
 *
 * Scales outside the safe range are applied to the sum of each group instead (the `far` variants), still exactly. */
#include "ops/cpu/cpu_mm.h"

#include "ops/cpu/mm_avx512.h"
#include "ops/cpu/mm_bf16.h"
#include "ops/cpu/mm_put.h"

enum { MT = 8, R_MAX = 8, SEGMENT = 64 /* groups whose exponents are kept at hand */ };

MM_INLINE __m512 dot(__m512 acc, __m512i w, const uint16_t *x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_loadu_si512(x));
}

MM_INLINE void prefetch_next(const uint8_t *p, int64_t bytes) {
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)bytes));
}

/* Sums of n = R * M accumulators, i = m * R + r, into y[m][r0 + r]. */
MM_INLINE void store_sums(const by_mm_tile *t, int64_t r0, int R, int M, const __m512 *acc) {
    MM_UNROLL for (int i = 0; i < R * M; i += 4) {
        float sum[4];
        v_sum4(acc[i], i + 1 < R * M ? acc[i + 1] : v_zero(), i + 2 < R * M ? acc[i + 2] : v_zero(),
               i + 3 < R * M ? acc[i + 3] : v_zero(), sum);
        MM_UNROLL for (int j = 0; j < 4; j++)
            if (i + j < R * M) t->y[(i + j) / R * BY_MM_ROWS + r0 + (i + j) % R] = sum[j];
    }
}

/* ---- FP4 --------------------------------------------------------------------------------------------------------- */

/* Exponent differences of n <= SEGMENT scale bytes as pairs of words, ready to be broadcast. */
MM_INLINE void fp4_exponents(uint32_t out[SEGMENT], const uint8_t *s, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 valid = (__mmask16)(n - i >= 16 ? 0xffffu : (1u << (n - i)) - 1);
        __m512i v = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(valid, s + i));
        v = _mm512_slli_epi16(_mm512_sub_epi16(v, _mm512_set1_epi32(127)), 7); /* low words; high words are zero */
        _mm512_storeu_si512(out + i, _mm512_or_si512(v, _mm512_slli_epi32(v, 16)));
    }
}

MM_INLINE void fp4_rows(const by_mm_tile *t, int64_t r0, int R, int M) {
    __m512 acc[R_MAX * MT];
    MM_UNROLL for (int i = 0; i < R * M; i++) acc[i] = v_zero();
    const __m512i table = _mm512_loadu_si512(fp4_table);
    const __mmask32 nonzero = 0xfefefefe;
    const uint8_t *w0 = t->w + r0 * t->stride, *s0 = t->scale + r0 * t->scale_stride;
    const int64_t groups = t->k / BY_MM_GROUP;
    uint32_t e[R_MAX][SEGMENT];
    for (int64_t base = 0; base < groups; base += SEGMENT) {
        int64_t n = groups - base < SEGMENT ? groups - base : SEGMENT;
        MM_UNROLL for (int r = 0; r < R; r++) fp4_exponents(e[r], s0 + r * t->scale_stride + base, n);
        for (int64_t g = 0; g < n; g++) {
            MM_UNROLL for (int r = 0; r < R; r++) {
                const uint8_t *p = w0 + r * t->stride + (base + g) * 16;
                if (g % 4 == 0) prefetch_next(p, R * t->stride);
                __m512i scaled = _mm512_mask_add_epi16(table, nonzero, table, _mm512_set1_epi32((int)e[r][g]));
                __m512i w = _mm512_permutexvar_epi16(fp4_index(p), scaled);
                MM_UNROLL for (int m = 0; m < M; m++)
                    acc[m * R + r] = dot(acc[m * R + r], w, (const uint16_t *)(const void *)t->rows[m] + (base + g) * BY_MM_GROUP);
            }
        }
    }
    store_sums(t, r0, R, M, acc);
}

/* One row whose scales are far from 1: they multiply the sum of each group. */
static void fp4_row_far(const by_mm_tile *t, int64_t r) {
    const __m512i table = _mm512_loadu_si512(fp4_table);
    const uint8_t *w = t->w + r * t->stride, *s = t->scale + r * t->scale_stride;
    for (int m = 0; m < t->m; m++) {
        __m512 acc = v_zero();
        for (int64_t g = 0; g < t->k / BY_MM_GROUP; g++) {
            __m512i v = _mm512_permutexvar_epi16(fp4_index(w + g * 16), table);
            __m512 sum = dot(v_zero(), v, (const uint16_t *)(const void *)t->rows[m] + g * BY_MM_GROUP);
            acc = v_fma(sum, _mm512_set1_ps(scale_of(s[g])), acc);
        }
        float sum[4];
        v_sum4(acc, v_zero(), v_zero(), v_zero(), sum);
        t->y[m * BY_MM_ROWS + r] = sum[0];
    }
}

MM_INLINE void fp4_all(const by_mm_tile *t, int R, int M) {
    const int64_t groups = t->k / BY_MM_GROUP;
    for (int64_t r = 0; r < t->n_rows;) {
        bool safe = r + R <= t->n_rows;
        for (int i = 0; i < R && safe; i++) safe = scales_safe(t->scale + (r + i) * t->scale_stride, groups);
        if (safe) {
            fp4_rows(t, r, R, M);
            r += R;
        } else { /* one by one, so that a row's own scales decide */
            for (int64_t end = r + R < t->n_rows ? r + R : t->n_rows; r < end; r++) {
                if (scales_safe(t->scale + r * t->scale_stride, groups)) fp4_rows(t, r, 1, M);
                else fp4_row_far(t, r);
            }
        }
    }
}

static uint32_t core_fp4(const by_mm_tile *t) {
    switch (t->m) {
    case 1: fp4_all(t, 8, 1); break;
    case 2: fp4_all(t, 4, 2); break;
    case 3: fp4_all(t, 4, 3); break;
    case 4: fp4_all(t, 4, 4); break;
    case 5: fp4_all(t, 2, 5); break;
    case 6: fp4_all(t, 2, 6); break;
    case 7: fp4_all(t, 2, 7); break;
    case 8: fp4_all(t, 2, 8); break;
    }
    return 0;
}

/* ---- FP8 --------------------------------------------------------------------------------------------------------- */

MM_INLINE void fp8_rows(const by_mm_tile *t, int64_t r0, int R, int M) {
    __m512 acc[R_MAX * MT];
    MM_UNROLL for (int i = 0; i < R * M; i++) acc[i] = v_zero();
    const fp8_tables tab = fp8_load_tables();
    const uint8_t *w0 = t->w + r0 * t->stride;
    for (int64_t c = 0; c < t->k; c += 64) {
        __mmask64 valid = t->k - c >= 64 ? ~(__mmask64)0 : 0xffffffff; /* k is a multiple of 32 */
        MM_UNROLL for (int r = 0; r < R; r++) {
            const uint8_t *p = w0 + r * t->stride + c;
            prefetch_next(p, R * t->stride);
            __m512i w[2];
            fp8_expand(w, &tab, _mm512_maskz_loadu_epi8(valid, p));
            MM_UNROLL for (int m = 0; m < M; m++) {
                const uint16_t *x = (const uint16_t *)(const void *)t->rows[m] + c;
                acc[m * R + r] = dot(acc[m * R + r], w[0], x);
                acc[m * R + r] = dot(acc[m * R + r], w[1], x + 32);
            }
        }
    }
    store_sums(t, r0, R, M, acc);
}

/* One row with unfolded x: lanes 0..7 of both halves belong to the first group of 32 columns, lanes 8..15 to the second. */
static void fp8_row_far(const by_mm_tile *t, int64_t r) {
    const fp8_tables tab = fp8_load_tables();
    const uint8_t *p = t->w + r * t->stride;
    for (int m = 0; m < t->m; m++) {
        __m512 acc = v_zero();
        for (int64_t c = 0; c < t->k; c += 64) {
            bool half = t->k - c < 64;
            __m512i w[2];
            fp8_expand(w, &tab, _mm512_maskz_loadu_epi8(half ? 0xffffffff : ~(__mmask64)0, p + c));
            const uint16_t *x = (const uint16_t *)(const void *)t->rows[m] + c;
            __m512 sum = dot(dot(v_zero(), w[0], x), w[1], x + 32);
            __m512 scale = _mm512_set1_ps(scale_of(t->scale[c / 32]));
            if (!half) scale = _mm512_mask_mov_ps(scale, 0xff00, _mm512_set1_ps(scale_of(t->scale[c / 32 + 1])));
            acc = v_fma(sum, scale, acc);
        }
        float sum[4];
        v_sum4(acc, v_zero(), v_zero(), v_zero(), sum);
        t->y[m * BY_MM_ROWS + r] = sum[0];
    }
}

MM_INLINE void fp8_all(const by_mm_tile *t, int R, int M) {
    int64_t r = 0;
    if (!t->folded) {
        for (; r < t->n_rows; r++) fp8_row_far(t, r);
        return;
    }
    for (; r + R <= t->n_rows; r += R) fp8_rows(t, r, R, M);
    for (; r < t->n_rows; r++) fp8_rows(t, r, 1, M);
}

static uint32_t core_fp8(const by_mm_tile *t) {
    switch (t->m) {
    case 1: fp8_all(t, 8, 1); break;
    case 2: fp8_all(t, 4, 2); break;
    case 3: fp8_all(t, 4, 3); break;
    case 4: fp8_all(t, 4, 4); break;
    case 5: fp8_all(t, 2, 5); break;
    case 6: fp8_all(t, 2, 6); break;
    case 7: fp8_all(t, 2, 7); break;
    case 8: fp8_all(t, 2, 8); break;
    }
    return 0;
}

/* Adds the exponents of the scales to the nonzero values. In a block of two vectors, the low halves belong to the first
 * group, the high halves to the second. */
static void fold(uint8_t *out, int64_t out_stride, const uint8_t *const *rows, int32_t m, int64_t k, const uint8_t *scale) {
    const int64_t groups = k / BY_MM_GROUP;
    for (int64_t g = 0; g < groups; g += 2) {
        short e0 = (short)((scale[g] - 127) * 128), e1 = (short)(g + 1 < groups ? (scale[g + 1] - 127) * 128 : 0);
        __m512i e = _mm512_inserti64x4(_mm512_set1_epi16(e0), _mm256_set1_epi16(e1), 1);
        for (int32_t i = 0; i < m; i++) {
            for (int h = 0; h < 2; h++) {
                __m512i v = _mm512_loadu_si512(rows[i] + g * 64 + 64 * h);
                __mmask32 nonzero = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x7fff));
                _mm512_storeu_si512(out + i * out_stride + g * 64 + 64 * h, _mm512_mask_add_epi16(v, nonzero, v, e));
            }
        }
    }
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static uint32_t pack_fp4(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    (void)n_block, (void)k;
    const fp8_tables tab = fp8_load_tables();
    bool safe = true;
    for (int64_t g = g0; g < g1; g++) {
        __m512i v;
        safe &= a8_group(&v, &tab, src, g);
        _mm512_storeu_si512(to + g * 64, fp4_order(v));
    }
    return !safe;
}

static uint32_t pack_fp8(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    (void)n_block;
    const fp8_tables tab = fp8_load_tables();
    bool safe = true;
    for (int64_t g = g0; g < g1; g++) {
        __m512i v;
        safe &= a8_group(&v, &tab, src, g);
        v = fp8_order(v);
        uint8_t *at = to + g / 2 * 128 + g % 2 * 32;
        _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(v));
        _mm256_storeu_si256((__m256i *)(void *)(at + 64), _mm512_extracti64x4_epi64(v, 1));
    }
    if (g1 == k / BY_MM_GROUP && g1 % 2) { /* the missing half of the last block */
        _mm256_storeu_si256((__m256i *)(void *)(to + g1 / 2 * 128 + 32), _mm256_setzero_si256());
        _mm256_storeu_si256((__m256i *)(void *)(to + g1 / 2 * 128 + 96), _mm256_setzero_si256());
    }
    return !safe;
}

/* ---- the limit ---------------------------------------------------------------------------------------------------- */

static double peak(int64_t n) {
    enum { SUMS = 12 };
    static volatile short zero;
    __m512i x = _mm512_set1_epi16(zero);
    __m512 acc[SUMS];
    float sum = 0;
    MM_UNROLL for (int i = 0; i < SUMS; i++) acc[i] = _mm512_castsi512_ps(_mm512_set1_epi16(zero));
    for (int64_t r = 0; r < n; r++)
        MM_UNROLL for (int i = 0; i < SUMS; i++) acc[i] = _mm512_dpbf16_ps(acc[i], (__m512bh)x, (__m512bh)x);
    MM_UNROLL for (int i = 0; i < SUMS; i++) sum += _mm512_cvtss_f32(acc[i]);
    return (double)n * SUMS * 64 + (double)sum; /* see mm_f32.h */
}

const by_mm_kernels by_mm_avx512bf16 = {
    .isa = BY_ISA_AVX512BF16,
    .base = &by_mm_avx512,
    .a8 = {{.core = core_fp4, .pack = pack_fp4, .mt = MT, .block = 1, .elem_bytes = 2, .pad = 32, .bf16 = true, .put = put_rows},
           {.core = core_fp8, .pack = pack_fp8, .mt = MT, .block = 1, .elem_bytes = 2, .pad = 64, .bf16 = true, .fold = fold,
            .put = put_rows}},
    .peak = peak,
};
