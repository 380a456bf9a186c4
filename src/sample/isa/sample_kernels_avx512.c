/* sample_kernels_avx512.c - the row passes of sample_kernels.c for AVX-512; module.cmake sets the flags. */
#define BY_SAMPLE_TABLE    by_sample_kernels_avx512
#define BY_SAMPLE_OWN_MASK 1
#include <float.h>
#include <immintrin.h>

#include "sample/sample_kernels.h"

/* 16 logits, of which those of `there` exist. */
static inline __m512 mask_16(float *to, const float *row, __mmask16 allowed, __mmask16 there, __mmask16 *worst) {
    __m512 ninf = _mm512_set1_ps(-__builtin_inff()), x = _mm512_mask_loadu_ps(ninf, there, row);
    *worst |= _mm512_cmp_ps_mask(x, _mm512_set1_ps(FLT_MAX), _CMP_NLE_UQ);
    x = _mm512_mask_mov_ps(ninf, allowed, x);
    _mm512_mask_storeu_ps(to, there, x);
    return x;
}

static float mask_row(float *to, const float *row, const uint32_t *mask, size_t n, bool *bad) {
    __m512 m0 = _mm512_set1_ps(-__builtin_inff()), m1 = m0;
    __mmask16 worst0 = 0, worst1 = 0;
    size_t at = 0;
    for (; at + 32 <= n; at += 32) {
        uint32_t w = mask[at / 32];
        m0 = _mm512_max_ps(m0, mask_16(to + at, row + at, (__mmask16)w, 0xffff, &worst0));
        m1 = _mm512_max_ps(m1, mask_16(to + at + 16, row + at + 16, (__mmask16)(w >> 16), 0xffff, &worst1));
    }
    if (at < n) {
        uint32_t w = mask[at / 32], there = (1u << (n - at)) - 1;
        m0 = _mm512_max_ps(m0, mask_16(to + at, row + at, (__mmask16)w, (__mmask16)there, &worst0));
        m1 = _mm512_max_ps(m1, mask_16(to + at + 16, row + at + 16, (__mmask16)(w >> 16), (__mmask16)(there >> 16), &worst1));
    }
    *bad = (worst0 | worst1) != 0;
    return _mm512_reduce_max_ps(_mm512_max_ps(m0, m1));
}

#include "sample/sample_kernels.c"
