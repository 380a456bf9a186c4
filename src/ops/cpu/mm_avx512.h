/* mm_avx512.h - vector helpers of the AVX-512 kernels; see mm_f32.h. Only for files compiled with AVX-512. */
#ifndef BY_OPS_CPU_MM_AVX512_H
#define BY_OPS_CPU_MM_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "ops/formats.h"

typedef __m512 vec;
#define VL 16
typedef uint32_t bad_t;

static inline vec v_zero(void) { return _mm512_setzero_ps(); }
static inline vec v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline bad_t bad_none(void) { return 0; }
static inline bool bad_any(bad_t b) { return b != 0; }

/* Lanes i and i + 8, then i + 4, then i + 2, then i + 1. */
static inline void v_sum4(vec a, vec b, vec c, vec d, float out[4]) {
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 u = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    u = _mm512_add_ps(u, _mm512_permute_ps(u, 0x4e));
    u = _mm512_add_ps(u, _mm512_permute_ps(u, 0xb1));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, u)));
}

/* 2^(s - 127) for any byte; byte 0 is a denormal. */
static inline float scale_of(uint8_t s) { return by_ue8m0_to_f32(s); }

/* E4M3 as half precision has the same digits and an exponent that is 8 too small, denormals included; NaN comes out as
 * 480 and is noted instead. */
static inline void expand_fp8(vec w[2], const uint8_t *p, uint8_t s, bad_t *bad) {
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)p);
    *bad |= _mm256_cmpeq_epi8_mask(_mm256_and_si256(b, _mm256_set1_epi8(0x7f)), _mm256_set1_epi8(0x7f));
    __m512i h = _mm512_slli_epi16(_mm512_cvtepu8_epi16(b), 8);
    h = _mm512_and_si512(_mm512_srai_epi16(h, 1), _mm512_set1_epi16((short)0xbf80));
    __m512 scale = _mm512_set1_ps(scale_of(s) * 256.0f);
    w[0] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(h)), scale);
    w[1] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), scale);
}

/* The permutation looks at four bits of each index: the low code of a byte, and after a shift the high one. */
static inline void expand_fp4(vec w[2], const uint8_t *p, uint8_t s) {
    const __m512 codes = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                        -3.0f, -4.0f, -6.0f);
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512 table = _mm512_mul_ps(codes, _mm512_set1_ps(scale_of(s)));
    w[0] = _mm512_permutexvar_ps(b, table);
    w[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(b, 4), table);
}

static inline void expand_bf16(vec w[2], const uint8_t *p) {
    __m512i b = _mm512_loadu_si512(p);
    w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    w[1] = _mm512_castsi512_ps(_mm512_and_si512(b, _mm512_set1_epi32((int)0xffff0000)));
}

#endif
