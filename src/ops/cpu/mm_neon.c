/* mm_neon.c - f32 cores with 4 lanes for aarch64. */
#include "ops/cpu/cpu_mm.h"

#include <arm_neon.h>

#include "ops/formats.h"

typedef float32x4_t vec;
#define VL 4
typedef uint8x16_t bad_t;

static inline vec v_zero(void) { return vdupq_n_f32(0); }
static inline vec v_load(const float *p) { return vld1q_f32(p); }
static inline void v_store(float *p, vec v) { vst1q_f32(p, v); }
static inline vec v_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
static inline bad_t bad_none(void) { return vdupq_n_u8(0); }
static inline bool bad_any(bad_t b) { return vmaxvq_u8(b) != 0; }

/* Pairs of neighbours, then the two pairs. */
static inline void v_sum4(vec a, vec b, vec c, vec d, float out[4]) {
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

/* See mm_avx512.h: E4M3 read as half precision is 2^8 too small. */
static inline void expand_fp8(vec w[8], const uint8_t *p, uint8_t s, bad_t *bad) {
    float32x4_t scale = vdupq_n_f32(by_ue8m0_to_f32(s) * 256.0f);
    const int16x8_t keep = vdupq_n_s16((int16_t)0xbf80);
    for (int i = 0; i < 2; i++) {
        uint8x16_t b = vld1q_u8(p + 16 * i);
        *bad = vorrq_u8(*bad, vceqq_u8(vandq_u8(b, vdupq_n_u8(0x7f)), vdupq_n_u8(0x7f)));
        int16x8_t lo = vandq_s16(vshrq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(vget_low_u8(b), 8)), 1), keep);
        int16x8_t hi = vandq_s16(vshrq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(vget_high_u8(b), 8)), 1), keep);
        w[4 * i + 0] = vmulq_f32(vcvt_f32_f16(vreinterpret_f16_s16(vget_low_s16(lo))), scale);
        w[4 * i + 1] = vmulq_f32(vcvt_f32_f16(vreinterpret_f16_s16(vget_high_s16(lo))), scale);
        w[4 * i + 2] = vmulq_f32(vcvt_f32_f16(vreinterpret_f16_s16(vget_low_s16(hi))), scale);
        w[4 * i + 3] = vmulq_f32(vcvt_f32_f16(vreinterpret_f16_s16(vget_high_s16(hi))), scale);
    }
}

/* Twice the value of a code is a small integer: look it up as a byte, widen, convert. */
static inline void expand_fp4(vec w[8], const uint8_t *p, uint8_t s) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint8x16_t b = vld1q_u8(p);
    int8x16_t table = vld1q_s8(twice), code[2];
    code[0] = vqtbl1q_s8(table, vandq_u8(b, vdupq_n_u8(15)));
    code[1] = vqtbl1q_s8(table, vshrq_n_u8(b, 4));
    float32x4_t scale = vdupq_n_f32(by_ue8m0_to_f32(s) * 0.5f);
    for (int i = 0; i < 2; i++) {
        int16x8_t lo = vmovl_s8(vget_low_s8(code[i])), hi = vmovl_s8(vget_high_s8(code[i]));
        w[4 * i + 0] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), scale);
        w[4 * i + 1] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))), scale);
        w[4 * i + 2] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), scale);
        w[4 * i + 3] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi))), scale);
    }
}

static inline void expand_bf16(vec w[8], const uint8_t *p) {
    for (int i = 0; i < 4; i++) {
        uint32x4_t b = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
        w[i] = vreinterpretq_f32_u32(vshlq_n_u32(b, 16));
        w[4 + i] = vreinterpretq_f32_u32(vandq_u32(b, vdupq_n_u32(0xffff0000u)));
    }
}

#define MM_MT 4
#define MM_R(m) ((m) == 1 ? 4 : 2)
#include "ops/cpu/mm_f32.h"

const by_mm_kernels by_mm_neon = {.isa = BY_ISA_NEON, .plain = MM_PLAIN_WAYS, .peak = peak_f32};
