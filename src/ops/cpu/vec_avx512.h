/* vec_avx512.h - sixteen fp32 lanes on AVX-512; the interface is described in rows.h. */
#ifndef BY_OPS_CPU_VEC_AVX512_H
#define BY_OPS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define VEC static inline __attribute__((always_inline))

typedef __m512 v16;
typedef __m512i v16i;
typedef struct {
    __m512d lo, hi;
} v16d;

VEC v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
VEC void v_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
VEC v16 v_set1(float x) { return _mm512_set1_ps(x); }
VEC v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
VEC v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
VEC v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
VEC v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
VEC v16 v_sqrt(v16 a) { return _mm512_sqrt_ps(a); }
VEC v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
VEC v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
VEC v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
VEC v16i v_bits(v16 a) { return _mm512_castps_si512(a); }
VEC v16 v_float(v16i a) { return _mm512_castsi512_ps(a); }

VEC v16i vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
VEC v16i vi_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
VEC v16i vi_sub(v16i a, v16i b) { return _mm512_sub_epi32(a, b); }
VEC v16i vi_and(v16i a, v16i b) { return _mm512_and_si512(a, b); }
VEC v16i vi_or(v16i a, v16i b) { return _mm512_or_si512(a, b); }
#define vi_srl(a, n) _mm512_srli_epi32((a), (n))
#define vi_sll(a, n) _mm512_slli_epi32((a), (n))
VEC v16i vi_min(v16i a, v16i b) { return _mm512_min_epi32(a, b); }
/* Lanes where a > b (signed) take x, others y. */
VEC v16i vi_pick_gt(v16i a, v16i b, v16i x, v16i y) { return _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a, b), y, x); }
VEC v16 v_of_int(v16i a) { return _mm512_cvtepi32_ps(a); }
VEC v16i v_to_int(v16 a) { return _mm512_cvtps_epi32(a); } /* nearest even */

/* Shorter than the versions of rows.h, the same values. */
#define VEC_OWN_PART
VEC __mmask16 first_lanes(int64_t n) { return (__mmask16)((1u << n) - 1); }
VEC v16 v_load_part(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
VEC void v_store_part(float *p, v16 v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
VEC v16 v_first(v16 v, int64_t n) { return _mm512_maskz_mov_ps(first_lanes(n), v); }
VEC v16 v_max_part(const float *p, v16 most, int64_t n) {
    return _mm512_mask_max_ps(most, first_lanes(n), v_load_part(p, n), most);
}

#ifndef VEC_OWN_BF16
#define VEC_OWN_BF16
VEC v16i v_to_bf16(v16 x) {
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(half, _mm512_and_si512(high, one))), 16);
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
}
#endif

#define VEC_OWN_EXP
VEC v16 v_nearest(v16 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VEC v16 v_exp_finish(v16 p, v16 fn, v16 x) {
    p = _mm512_scalef_ps(p, fn);
    p = _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, _mm512_set1_ps(88.3f), _CMP_GT_OQ), _mm512_set1_ps(__builtin_inff()));
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ), p);
}

#define VEC_OWN_BAD
VEC bool v_has_bad(v16 a, v16 b, v16 c, v16 d) {
    enum { NAN_OR_INFINITE = 0x01 | 0x08 | 0x10 | 0x80 };
    return (_mm512_fpclass_ps_mask(a, NAN_OR_INFINITE) | _mm512_fpclass_ps_mask(b, NAN_OR_INFINITE) |
            _mm512_fpclass_ps_mask(c, NAN_OR_INFINITE) | _mm512_fpclass_ps_mask(d, NAN_OR_INFINITE)) != 0;
}

/* Neighbours swapped; even lanes twice; odd lanes twice. */
VEC v16 v_swap(v16 a) { return _mm512_permute_ps(a, 0xb1); }
VEC v16 v_even(v16 a) { return _mm512_moveldup_ps(a); }
VEC v16 v_odd(v16 a) { return _mm512_movehdup_ps(a); }

VEC v16i vi_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)); }
VEC void vi_store_u8(uint8_t *p, v16i v) { _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(v)); }
VEC v16i vi_load_u16(const void *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
VEC void vi_store_u16(void *p, v16i v) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(v)); }

/* E4M3: as half precision it is 2^8 too small; NaN must be put in by hand. */
VEC v16 v_load_e4m3(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m256i h = _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8);
    h = _mm256_and_si256(_mm256_srai_epi16(h, 1), _mm256_set1_epi16((short)0xbf80));
    const __m128i nan = _mm_set1_epi8(0x7f);
    __mmask16 is_nan = _mm_cmpeq_epi8_mask(_mm_and_si128(b, nan), nan);
    __m512 v = _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256.0f));
    return _mm512_mask_mov_ps(v, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

/* The same of 32 bytes; NaN is rare. */
#define VEC_OWN_E4M3
VEC void v_load_e4m3_pair(v16 out[2], const uint8_t *p) {
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i nan = _mm256_set1_epi8(0x7f);
    __m512i h = _mm512_slli_epi16(_mm512_cvtepu8_epi16(b), 8);
    h = _mm512_and_si512(_mm512_srai_epi16(h, 1), _mm512_set1_epi16((short)0xbf80));
    __mmask32 is_nan = _mm256_cmpeq_epi8_mask(_mm256_and_si256(b, nan), nan);
    const __m512 up = _mm512_set1_ps(256.0f), quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    out[0] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(h)), up);
    out[1] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), up);
    if (__builtin_expect(is_nan != 0, 0)) {
        out[0] = _mm512_mask_mov_ps(out[0], (__mmask16)is_nan, quiet);
        out[1] = _mm512_mask_mov_ps(out[1], (__mmask16)(is_nan >> 16), quiet);
    }
}

/* 16 bytes of E2M1 pairs -> 32 values in natural order. */
VEC void v_load_e2m1(v16 out[2], const uint8_t *p) {
    const __m512 codes = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                        -3.0f, -4.0f, -6.0f);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p), low = _mm_set1_epi8(15);
    __m128i even = _mm_and_si128(b, low), odd = _mm_and_si128(_mm_srli_epi16(b, 4), low);
    out[0] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(even, odd)), codes);
    out[1] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi8(even, odd)), codes);
}

/* Lanes i and i + 8, then i + 4, i + 2, i + 1. */
VEC float v_sum(v16 v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
VEC float v_max_all(v16 v) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
/* The sums of four vectors by that tree. */
VEC void v_sum4(float out[4], v16 a, v16 b, v16 c, v16 d) {
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 u = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    u = _mm512_add_ps(u, _mm512_permute_ps(u, 0x4e));
    u = _mm512_add_ps(u, _mm512_permute_ps(u, 0xb1));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, u)));
}

/* s[h * lds + j] = scale times the sum of a[h * 4 + j], by that tree for all sixteen at once. */
#define VEC_OWN_SUM16
VEC void v_sum16(float *s, int64_t lds, const v16 a[16], float scale) {
    __m512 u[4]; /* u[j]: quarter h is a[h * 4 + j], its lanes i and i + 8, then i + 4 added */
    for (int j = 0; j < 4; j++) {
        __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(a[j], a[4 + j], 0x44), _mm512_shuffle_f32x4(a[j], a[4 + j], 0xee));
        __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x44), _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xee));
        u[j] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
    }
    __m512 x = _mm512_add_ps(_mm512_shuffle_ps(u[0], u[1], 0x44), _mm512_shuffle_ps(u[0], u[1], 0xee));
    __m512 y = _mm512_add_ps(_mm512_shuffle_ps(u[2], u[3], 0x44), _mm512_shuffle_ps(u[2], u[3], 0xee));
    __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd));
    sum = _mm512_mul_ps(sum, _mm512_set1_ps(scale));
    _mm_storeu_ps(s, _mm512_castps512_ps128(sum));
    _mm_storeu_ps(s + lds, _mm512_extractf32x4_ps(sum, 1));
    _mm_storeu_ps(s + 2 * lds, _mm512_extractf32x4_ps(sum, 2));
    _mm_storeu_ps(s + 3 * lds, _mm512_extractf32x4_ps(sum, 3));
}

VEC v16d vd_zero(void) { return (v16d){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
/* acc + a * b in double. */
VEC v16d vd_fma(v16d acc, v16 a, v16 b) {
    __m512d al = _mm512_cvtps_pd(_mm512_castps512_ps256(a)), ah = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
    __m512d bl = _mm512_cvtps_pd(_mm512_castps512_ps256(b)), bh = _mm512_cvtps_pd(_mm512_extractf32x8_ps(b, 1));
    return (v16d){_mm512_fmadd_pd(al, bl, acc.lo), _mm512_fmadd_pd(ah, bh, acc.hi)};
}
VEC double vd_sum(v16d v) {
    double lane[8], sum = 0;
    _mm512_storeu_pd(lane, _mm512_add_pd(v.lo, v.hi));
    for (int i = 0; i < 4; i++) lane[i] += lane[i + 4];
    sum = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    return sum;
}
VEC v16 vd_float(v16d v) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(v.lo)), _mm512_cvtpd_ps(v.hi), 1);
}
VEC v16d vd_mul(v16d v, double s) { return (v16d){_mm512_mul_pd(v.lo, _mm512_set1_pd(s)), _mm512_mul_pd(v.hi, _mm512_set1_pd(s))}; }

#endif
