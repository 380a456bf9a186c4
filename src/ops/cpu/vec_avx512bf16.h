/* vec_avx512bf16.h - vec_avx512.h with the instruction that rounds to bf16; the same values. */
#ifndef BY_OPS_CPU_VEC_AVX512BF16_H
#define BY_OPS_CPU_VEC_AVX512BF16_H

#define VEC_OWN_BF16
#define VEC_OWN_STORE_BF16
#include "ops/cpu/vec_avx512.h"

/* The instruction takes denormals for zeros. They are rare, and rounded like integers then. */
VEC __m256i v_bf16_words(v16 x) {
    enum { DENORMAL = 0x20 };
    __m256i words = (__m256i)_mm512_cvtneps_pbh(x);
    const __mmask16 small = _mm512_fpclass_ps_mask(x, DENORMAL);
    if (__builtin_expect(small != 0, 0)) {
        const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        words = _mm256_mask_mov_epi16(words, small, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    }
    return words;
}
VEC v16i v_to_bf16(v16 x) { return _mm512_cvtepu16_epi32(v_bf16_words(x)); }
VEC void v_store_bf16(void *p, v16 x) { _mm256_storeu_si256((__m256i *)p, v_bf16_words(x)); }

#endif
