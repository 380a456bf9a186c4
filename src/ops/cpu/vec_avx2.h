/* vec_avx2.h - sixteen fp32 lanes as two AVX2 registers; the interface is described in rows.h. */
#ifndef BY_OPS_CPU_VEC_AVX2_H
#define BY_OPS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VEC static inline __attribute__((always_inline))

typedef struct {
    __m256 lo, hi;
} v16;
typedef struct {
    __m256i lo, hi;
} v16i;
typedef struct {
    __m256d v[4];
} v16d;

VEC v16 v_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
VEC void v_store(float *p, v16 v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
VEC v16 v_set1(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
#define VEC_PAIRWISE(name, type, op)                                                                                   \
    VEC type name(type a, type b) { return (type){op(a.lo, b.lo), op(a.hi, b.hi)}; }
VEC_PAIRWISE(v_add, v16, _mm256_add_ps)
VEC_PAIRWISE(v_sub, v16, _mm256_sub_ps)
VEC_PAIRWISE(v_mul, v16, _mm256_mul_ps)
VEC_PAIRWISE(v_div, v16, _mm256_div_ps)
VEC_PAIRWISE(v_max, v16, _mm256_max_ps)
VEC_PAIRWISE(v_min, v16, _mm256_min_ps)
VEC v16 v_sqrt(v16 a) { return (v16){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
VEC v16 v_fma(v16 a, v16 b, v16 c) { return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
VEC v16i v_bits(v16 a) { return (v16i){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
VEC v16 v_float(v16i a) { return (v16){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }

VEC v16i vi_set1(int32_t x) { return (v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
VEC_PAIRWISE(vi_add, v16i, _mm256_add_epi32)
VEC_PAIRWISE(vi_sub, v16i, _mm256_sub_epi32)
VEC_PAIRWISE(vi_and, v16i, _mm256_and_si256)
VEC_PAIRWISE(vi_or, v16i, _mm256_or_si256)
VEC_PAIRWISE(vi_min, v16i, _mm256_min_epi32)
#define vi_srl(a, n) ((v16i){_mm256_srli_epi32((a).lo, (n)), _mm256_srli_epi32((a).hi, (n))})
#define vi_sll(a, n) ((v16i){_mm256_slli_epi32((a).lo, (n)), _mm256_slli_epi32((a).hi, (n))})
VEC v16i vi_pick_gt(v16i a, v16i b, v16i x, v16i y) {
    return (v16i){_mm256_blendv_epi8(y.lo, x.lo, _mm256_cmpgt_epi32(a.lo, b.lo)),
                  _mm256_blendv_epi8(y.hi, x.hi, _mm256_cmpgt_epi32(a.hi, b.hi))};
}
VEC v16 v_of_int(v16i a) { return (v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
VEC v16i v_to_int(v16 a) { return (v16i){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }

VEC v16 v_swap(v16 a) { return (v16){_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)}; }
VEC v16 v_even(v16 a) { return (v16){_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)}; }
VEC v16 v_odd(v16 a) { return (v16){_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)}; }

VEC v16i vi_load_u8(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (v16i){_mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(b, b))};
}
/* Values 0..65535 -> words in order. */
VEC __m256i vi_words(v16i v) { return _mm256_permute4x64_epi64(_mm256_packus_epi32(v.lo, v.hi), 0xd8); }
VEC void vi_store_u8(uint8_t *p, v16i v) {
    v = vi_and(v, vi_set1(255));
    __m256i w = vi_words(v);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
VEC v16i vi_load_u16(const void *p) {
    __m256i w = _mm256_loadu_si256((const __m256i *)p);
    return (v16i){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(w)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(w, 1))};
}
VEC void vi_store_u16(void *p, v16i v) { _mm256_storeu_si256((__m256i *)p, vi_words(vi_and(v, vi_set1(65535)))); }

VEC v16 v_load_e4m3(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m256i h = _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8);
    h = _mm256_and_si256(_mm256_srai_epi16(h, 1), _mm256_set1_epi16((short)0xbf80));
    const __m256 up = _mm256_set1_ps(256.0f), nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    v16i code = vi_and(vi_load_u8(p), vi_set1(0x7f));
    const __m256i top = _mm256_set1_epi32(0x7f);
    __m256 lo = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), up);
    __m256 hi = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)), up);
    return (v16){_mm256_blendv_ps(lo, nan, _mm256_castsi256_ps(_mm256_cmpeq_epi32(code.lo, top))),
                 _mm256_blendv_ps(hi, nan, _mm256_castsi256_ps(_mm256_cmpeq_epi32(code.hi, top)))};
}

/* Twice the value is a small integer: look it up as a byte, widen, convert. */
VEC v16 v_half_bytes(__m128i b) {
    const __m256 half = _mm256_set1_ps(0.5f);
    return (v16){_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)), half),
                 _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(b, b))), half)};
}
VEC void v_load_e2m1(v16 out[2], const uint8_t *p) {
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), low = _mm_set1_epi8(15);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i even = _mm_shuffle_epi8(twice, _mm_and_si128(b, low));
    __m128i odd = _mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(b, 4), low));
    out[0] = v_half_bytes(_mm_unpacklo_epi8(even, odd));
    out[1] = v_half_bytes(_mm_unpackhi_epi8(even, odd));
}

VEC float v_sum(v16 v) {
    __m256 a = _mm256_add_ps(v.lo, v.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
VEC float v_max_all(v16 v) {
    __m256 a = _mm256_max_ps(v.lo, v.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
VEC void v_sum4(float out[4], v16 a, v16 b, v16 c, v16 d) {
    out[0] = v_sum(a);
    out[1] = v_sum(b);
    out[2] = v_sum(c);
    out[3] = v_sum(d);
}

VEC v16d vd_zero(void) {
    __m256d z = _mm256_setzero_pd();
    return (v16d){{z, z, z, z}};
}
VEC v16d vd_fma(v16d acc, v16 a, v16 b) {
    __m128 x[4] = {_mm256_castps256_ps128(a.lo), _mm256_extractf128_ps(a.lo, 1), _mm256_castps256_ps128(a.hi), _mm256_extractf128_ps(a.hi, 1)};
    __m128 y[4] = {_mm256_castps256_ps128(b.lo), _mm256_extractf128_ps(b.lo, 1), _mm256_castps256_ps128(b.hi), _mm256_extractf128_ps(b.hi, 1)};
    for (int i = 0; i < 4; i++) acc.v[i] = _mm256_fmadd_pd(_mm256_cvtps_pd(x[i]), _mm256_cvtps_pd(y[i]), acc.v[i]);
    return acc;
}
VEC double vd_sum(v16d v) {
    double lane[4];
    _mm256_storeu_pd(lane, _mm256_add_pd(_mm256_add_pd(v.v[0], v.v[2]), _mm256_add_pd(v.v[1], v.v[3])));
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}
VEC v16 vd_float(v16d v) {
    return (v16){_mm256_set_m128(_mm256_cvtpd_ps(v.v[1]), _mm256_cvtpd_ps(v.v[0])),
                 _mm256_set_m128(_mm256_cvtpd_ps(v.v[3]), _mm256_cvtpd_ps(v.v[2]))};
}
VEC v16d vd_mul(v16d v, double s) {
    for (int i = 0; i < 4; i++) v.v[i] = _mm256_mul_pd(v.v[i], _mm256_set1_pd(s));
    return v;
}

#endif
