/* mm_avx2.c - f32 cores with 8 lanes. Compiled with AVX2, FMA, F16C. */
#include "ops/cpu/cpu_mm.h"

#include <immintrin.h>

#include "ops/formats.h"

typedef __m256 vec;
#define VL 8
typedef __m256i bad_t;

static inline vec v_zero(void) { return _mm256_setzero_ps(); }
static inline vec v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline bad_t bad_none(void) { return _mm256_setzero_si256(); }
static inline bool bad_any(bad_t b) { return _mm256_movemask_epi8(b) != 0; }

/* Lanes i and i + 4, then i + 2, then i + 1. */
static inline void v_sum4(vec a, vec b, vec c, vec d, float out[4]) {
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    /* halves now hold (a | b) and (c | d): add lanes 2 and 3 to 0 and 1, then 1 to 0 */
    __m256 u = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    u = _mm256_add_ps(_mm256_shuffle_ps(u, u, 0x88), _mm256_shuffle_ps(u, u, 0xdd));
    /* u: low half a c a c, high half b d b d */
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(u), _mm256_extractf128_ps(u, 1)));
}

/* See mm_avx512.h: E4M3 read as half precision is 2^8 too small. */
static inline void expand_fp8(vec w[4], const uint8_t *p, uint8_t s, bad_t *bad) {
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)p);
    *bad = _mm256_or_si256(*bad, _mm256_cmpeq_epi8(_mm256_and_si256(b, _mm256_set1_epi8(0x7f)), _mm256_set1_epi8(0x7f)));
    const __m256i zero = _mm256_setzero_si256(), keep = _mm256_set1_epi16((short)0xbf80);
    __m256i even = _mm256_permute4x64_epi64(b, 0xd8); /* so that the unpacked halves come out in order */
    __m256i h0 = _mm256_and_si256(_mm256_srai_epi16(_mm256_unpacklo_epi8(zero, even), 1), keep);
    __m256i h1 = _mm256_and_si256(_mm256_srai_epi16(_mm256_unpackhi_epi8(zero, even), 1), keep);
    __m256 scale = _mm256_set1_ps(by_ue8m0_to_f32(s) * 256.0f);
    w[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h0)), scale);
    w[1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h0, 1)), scale);
    w[2] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h1)), scale);
    w[3] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h1, 1)), scale);
}

/* Twice the value of a code is a small integer: look it up as a byte, widen, convert. */
static inline void expand_fp4(vec w[4], const uint8_t *p, uint8_t s) {
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i low = _mm_set1_epi8(15);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i even = _mm_shuffle_epi8(twice, _mm_and_si128(b, low));
    __m128i odd = _mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(b, 4), low));
    __m256 scale = _mm256_set1_ps(by_ue8m0_to_f32(s) * 0.5f);
    w[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(even)), scale);
    w[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(even, even))), scale);
    w[2] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(odd)), scale);
    w[3] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(odd, odd))), scale);
}

static inline void expand_bf16(vec w[4], const uint8_t *p) {
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    for (int i = 0; i < 2; i++) {
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)p + i);
        w[i] = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
        w[2 + i] = _mm256_castsi256_ps(_mm256_and_si256(b, high));
    }
}

#define MM_MT 4
#define MM_R(m) ((m) <= 2 ? 4 : 2)
#include "ops/cpu/mm_f32.h"

const by_mm_kernels by_mm_avx2 = {.isa = BY_ISA_AVX2, .plain = MM_PLAIN_WAYS, .peak = peak_f32};
