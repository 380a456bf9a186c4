/* mm_bf16.h - FP4 and FP8 codes as bf16, shared by the kernels that multiply in bf16; see mm_avx512bf16.c for the ideas. Only
 * for files compiled with AVX-512 VBMI. */
#ifndef BY_OPS_CPU_MM_BF16_H
#define BY_OPS_CPU_MM_BF16_H

#include "ops/cpu/cpu_mm.h"
#include "ops/cpu/mm_avx512.h"

#define MM_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 64")
#endif

/* Are all n scale bytes within the safe range? */
MM_INLINE bool scales_safe(const uint8_t *s, int64_t n) {
    const __m512i lo = _mm512_set1_epi8(BY_MM_SAFE_LO), range = _mm512_set1_epi8(BY_MM_SAFE_HI - BY_MM_SAFE_LO);
    __mmask64 bad = 0;
    for (int64_t i = 0; i < n; i += 64) {
        __mmask64 valid = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        __m512i v = _mm512_sub_epi8(_mm512_maskz_loadu_epi8(valid, s + i), lo);
        bad |= _mm512_mask_cmpgt_epu8_mask(valid, v, range);
    }
    return bad == 0;
}

/* ---- FP4 --------------------------------------------------------------------------------------------------------- */

#define FP4_CODES                                                                                                      \
    0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0, (short)0xbf00, (short)0xbf80, (short)0xbfc0,         \
        (short)0xc000, (short)0xc040, (short)0xc080, (short)0xc0c0
static const short fp4_table[32] = {FP4_CODES, FP4_CODES};

/* Sixteen bytes -> words whose low four bits are the codes of columns 0, 4, ..., then 1, 5, ..., and so on. */
MM_INLINE __m512i fp4_index(const uint8_t *p) {
    const __m512i shift = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(4), 1)),
        _mm256_inserti128_si256(_mm256_set1_epi16(8), _mm_set1_epi16(12), 1), 1);
    return _mm512_srlv_epi16(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p)), shift);
}

/* 32 values in that order. */
MM_INLINE __m512i fp4_order(__m512i v) {
    const __m512i by_four = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2, 29, 25, 21, 17, 13,
                                             9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
    return _mm512_permutexvar_epi16(by_four, v);
}

/* ---- FP8 --------------------------------------------------------------------------------------------------------- */

/* High and low byte of the bf16 value of the codes 0..127. */
#define FP8_HI8(b) b, b, b, b, b, b, b, b
#define FP8_LO8 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0
static const uint8_t fp8_hi[128] = {
    0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, FP8_HI8(0x3c), FP8_HI8(0x3d), FP8_HI8(0x3d), FP8_HI8(0x3e),
    FP8_HI8(0x3e), FP8_HI8(0x3f), FP8_HI8(0x3f), FP8_HI8(0x40), FP8_HI8(0x40), FP8_HI8(0x41), FP8_HI8(0x41), FP8_HI8(0x42),
    FP8_HI8(0x42), 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x7f};
static const uint8_t fp8_lo[128] = {
    0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0, FP8_LO8, FP8_LO8, FP8_LO8,
    FP8_LO8, FP8_LO8, FP8_LO8, 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xc0};

typedef struct {
    __m512i hi0, hi1, lo0, lo1;
} fp8_tables;

MM_INLINE fp8_tables fp8_load_tables(void) {
    return (fp8_tables){_mm512_loadu_si512(fp8_hi), _mm512_loadu_si512(fp8_hi + 64), _mm512_loadu_si512(fp8_lo),
                        _mm512_loadu_si512(fp8_lo + 64)};
}

/* 64 codes -> 2 x 32 bf16: the even runs of eight columns, the odd runs. */
MM_INLINE void fp8_expand(__m512i w[2], const fp8_tables *tab, __m512i b) {
    __m512i lo = _mm512_permutex2var_epi8(tab->lo0, b, tab->lo1);
    __m512i hi = _mm512_permutex2var_epi8(tab->hi0, b, tab->hi1);
    hi = _mm512_ternarylogic_epi32(hi, b, _mm512_set1_epi8((char)0x80), 0xf8); /* hi | (b & 0x80) */
    w[0] = _mm512_unpacklo_epi8(lo, hi);
    w[1] = _mm512_unpackhi_epi8(lo, hi);
}

/* 32 values as their even runs of eight (low half), then the odd ones. */
MM_INLINE __m512i fp8_order(__m512i v) { return _mm512_shuffle_i32x4(v, v, 0xd8); }

/* Group g of an A8 row as bf16, whatever its codes and scale. */
static __attribute__((noinline)) bool a8_any_group(__m512i *out, const fp8_tables *tab, const by_mm_src *src, int64_t g) {
    const __m256i seven = _mm256_set1_epi8(0x7f);
    const uint8_t scale = src->scale[g];
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src->data + g * BY_MM_GROUP));
    __m512i w[2];
    fp8_expand(w, tab, _mm512_castsi256_si512(b)); /* parts the runs of eight columns */
    __m512i v = _mm512_permutex2var_epi64(w[0], _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), w[1]);
    __mmask32 nonzero = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x7fff));
    *out = _mm512_mask_add_epi16(v, nonzero, v, _mm512_set1_epi16((short)((scale - 127) * 128)));
    if (_mm256_cmpeq_epi8_mask(_mm256_and_si256(b, seven), seven)) return false;
    return !nonzero || (scale >= BY_MM_SAFE_LO + 9 && scale <= BY_MM_SAFE_HI - 8); /* E4M3: 2^-9 to below 2^9 */
}

/* In natural order; false when the group holds NaN or lies outside the safe range. Codes of normal numbers are bf16 numbers without
 * the last four digits, with an exponent of their own: nearly always all 32 are. */
MM_INLINE bool a8_group(__m512i *out, const fp8_tables *tab, const by_mm_src *src, int64_t g) {
    enum { LEAST = 1 << 7, MOST = 0x7e << 4 };
    const unsigned scale = src->scale[g];
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src->data + g * BY_MM_GROUP));
    __m512i w = _mm512_slli_epi16(_mm512_cvtepi8_epi16(b), 4); /* the sign also stands in the top bit */
    __m512i size = _mm512_sub_epi16(_mm512_and_si512(w, _mm512_set1_epi16(0x7f0)), _mm512_set1_epi16(LEAST));
    __mmask32 other = _mm512_cmpgt_epu16_mask(size, _mm512_set1_epi16(MOST - LEAST)); /* zero, denormal, NaN */
    const bool safe = scale >= BY_MM_SAFE_LO + 9 && scale <= BY_MM_SAFE_HI - 8;
    if (__builtin_expect(other || !safe, 0)) return a8_any_group(out, tab, src, g);
    const unsigned exponent = (120 + scale - 127) * 128;
    *out = _mm512_add_epi16(_mm512_and_si512(w, _mm512_set1_epi16((short)0x87f0)), _mm512_set1_epi32((int)(exponent * 0x10001)));
    return true;
}

#endif
