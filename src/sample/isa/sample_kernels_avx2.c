/* sample_kernels_avx2.c - the row passes of sample_kernels.c for AVX2; module.cmake sets the flags. */
#define BY_SAMPLE_TABLE    by_sample_kernels_avx2
#define BY_SAMPLE_OWN_MASK 1
#include <float.h>
#include <immintrin.h>

#include "sample/sample_kernels.h"

/* 8 logits under the lowest 8 bits of a word. */
static inline __m256 mask_8(float *to, const float *row, uint32_t allowed, __m256 *worst) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)allowed), bits);
    __m256 x = _mm256_loadu_ps(row), keep = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
    *worst = _mm256_or_ps(*worst, _mm256_cmp_ps(x, _mm256_set1_ps(FLT_MAX), _CMP_NLE_UQ));
    x = _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, keep);
    _mm256_storeu_ps(to, x);
    return x;
}

static float mask_row(float *to, const float *row, const uint32_t *mask, size_t n, bool *bad) {
    __m256 m0 = _mm256_set1_ps(-__builtin_inff()), m1 = m0, worst = _mm256_setzero_ps();
    float m[8], max;
    bool any = false;
    size_t at = 0;
    for (; at + 32 <= n; at += 32) {
        uint32_t w = mask[at / 32];
        m0 = _mm256_max_ps(m0, mask_8(to + at, row + at, w, &worst));
        m1 = _mm256_max_ps(m1, mask_8(to + at + 8, row + at + 8, w >> 8, &worst));
        m0 = _mm256_max_ps(m0, mask_8(to + at + 16, row + at + 16, w >> 16, &worst));
        m1 = _mm256_max_ps(m1, mask_8(to + at + 24, row + at + 24, w >> 24, &worst));
    }
    _mm256_storeu_ps(m, _mm256_max_ps(m0, m1));
    max = m[0];
    for (int i = 1; i < 8; i++) max = m[i] > max ? m[i] : max;
    for (; at < n; at++) {
        any = any || !(row[at] <= FLT_MAX);
        to[at] = mask[at / 32] >> (at % 32) & 1 ? row[at] : -__builtin_inff();
        max = to[at] > max ? to[at] : max;
    }
    *bad = any || _mm256_movemask_ps(worst) != 0;
    return max;
}

#include "sample/sample_kernels.c"
