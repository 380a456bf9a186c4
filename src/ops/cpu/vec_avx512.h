/* vec_avx512.h - sixteen fp32 lanes on AVX-512; the interface is described in rows.h. */
#ifndef BY_OPS_CPU_VEC_AVX512_H
#define BY_OPS_CPU_VEC_AVX512_H

#include <immintrin.h>
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
