/* vec_neon.h - sixteen fp32 lanes as four NEON registers; the interface is described in rows.h. */
#ifndef BY_OPS_CPU_VEC_NEON_H
#define BY_OPS_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define VEC static inline __attribute__((always_inline))

typedef struct {
    float32x4_t v[4];
} v16;
typedef struct {
    int32x4_t v[4];
} v16i;
typedef struct {
    float64x2_t v[8];
} v16d;

#define VEC_EACH(type, expr)                                                                                           \
    type r_;                                                                                                           \
    for (int i = 0; i < 4; i++) r_.v[i] = (expr);                                                                      \
    return r_

VEC v16 v_load(const float *p) { VEC_EACH(v16, vld1q_f32(p + 4 * i)); }
VEC void v_store(float *p, v16 a) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.v[i]);
}
VEC v16 v_set1(float x) { VEC_EACH(v16, vdupq_n_f32(x)); }
VEC v16 v_add(v16 a, v16 b) { VEC_EACH(v16, vaddq_f32(a.v[i], b.v[i])); }
VEC v16 v_sub(v16 a, v16 b) { VEC_EACH(v16, vsubq_f32(a.v[i], b.v[i])); }
VEC v16 v_mul(v16 a, v16 b) { VEC_EACH(v16, vmulq_f32(a.v[i], b.v[i])); }
VEC v16 v_div(v16 a, v16 b) { VEC_EACH(v16, vdivq_f32(a.v[i], b.v[i])); }
VEC v16 v_sqrt(v16 a) { VEC_EACH(v16, vsqrtq_f32(a.v[i])); }
VEC v16 v_fma(v16 a, v16 b, v16 c) { VEC_EACH(v16, vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
/* As on x86: the second operand where one is NaN. */
VEC v16 v_max(v16 a, v16 b) { VEC_EACH(v16, vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
VEC v16 v_min(v16 a, v16 b) { VEC_EACH(v16, vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
VEC v16i v_bits(v16 a) { VEC_EACH(v16i, vreinterpretq_s32_f32(a.v[i])); }
VEC v16 v_float(v16i a) { VEC_EACH(v16, vreinterpretq_f32_s32(a.v[i])); }

VEC v16i vi_set1(int32_t x) { VEC_EACH(v16i, vdupq_n_s32(x)); }
VEC v16i vi_add(v16i a, v16i b) { VEC_EACH(v16i, vaddq_s32(a.v[i], b.v[i])); }
VEC v16i vi_sub(v16i a, v16i b) { VEC_EACH(v16i, vsubq_s32(a.v[i], b.v[i])); }
VEC v16i vi_and(v16i a, v16i b) { VEC_EACH(v16i, vandq_s32(a.v[i], b.v[i])); }
VEC v16i vi_or(v16i a, v16i b) { VEC_EACH(v16i, vorrq_s32(a.v[i], b.v[i])); }
VEC v16i vi_min(v16i a, v16i b) { VEC_EACH(v16i, vminq_s32(a.v[i], b.v[i])); }
VEC v16i vi_shift(v16i a, int n) { /* left, or right without sign for n < 0 */
    VEC_EACH(v16i, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[i]), vdupq_n_s32(n))));
}
#define vi_srl(a, n) vi_shift((a), -(n))
#define vi_sll(a, n) vi_shift((a), (n))
VEC v16i vi_pick_gt(v16i a, v16i b, v16i x, v16i y) {
    VEC_EACH(v16i, vbslq_s32(vcgtq_s32(a.v[i], b.v[i]), x.v[i], y.v[i]));
}
VEC v16 v_of_int(v16i a) { VEC_EACH(v16, vcvtq_f32_s32(a.v[i])); }
VEC v16i v_to_int(v16 a) { VEC_EACH(v16i, vcvtnq_s32_f32(a.v[i])); }

VEC v16 v_swap(v16 a) { VEC_EACH(v16, vrev64q_f32(a.v[i])); }
VEC v16 v_even(v16 a) { VEC_EACH(v16, vtrn1q_f32(a.v[i], a.v[i])); }
VEC v16 v_odd(v16 a) { VEC_EACH(v16, vtrn2q_f32(a.v[i], a.v[i])); }

VEC v16i vi_widen(uint16x8_t lo, uint16x8_t hi) {
    return (v16i){{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(lo))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(lo))),
                   vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(hi))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(hi)))}};
}
VEC v16i vi_load_u8(const uint8_t *p) {
    uint8x16_t b = vld1q_u8(p);
    return vi_widen(vmovl_u8(vget_low_u8(b)), vmovl_u8(vget_high_u8(b)));
}
VEC uint16x8_t vi_half_words(v16i v, int at) {
    return vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(v.v[at])), vmovn_u32(vreinterpretq_u32_s32(v.v[at + 1])));
}
VEC void vi_store_u8(uint8_t *p, v16i v) { vst1q_u8(p, vcombine_u8(vmovn_u16(vi_half_words(v, 0)), vmovn_u16(vi_half_words(v, 2)))); }
VEC v16i vi_load_u16(const void *p) {
    uint8x16_t a = vld1q_u8((const uint8_t *)p), b = vld1q_u8((const uint8_t *)p + 16);
    return vi_widen(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b));
}
VEC void vi_store_u16(void *p, v16i v) {
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_u16(vi_half_words(v, 0)));
    vst1q_u8((uint8_t *)p + 16, vreinterpretq_u8_u16(vi_half_words(v, 2)));
}

VEC v16 v_load_e4m3(const uint8_t *p) {
    const int16x8_t keep = vdupq_n_s16((int16_t)0xbf80);
    uint8x16_t b = vld1q_u8(p);
    v16i code = vi_and(vi_load_u8(p), vi_set1(0x7f));
    int16x8_t h[2] = {vandq_s16(vshrq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(vget_low_u8(b), 8)), 1), keep),
                      vandq_s16(vshrq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(vget_high_u8(b), 8)), 1), keep)};
    v16 r;
    for (int i = 0; i < 4; i++) {
        int16x4_t part = i % 2 ? vget_high_s16(h[i / 2]) : vget_low_s16(h[i / 2]);
        float32x4_t x = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_s16(part)), 256.0f);
        r.v[i] = vbslq_f32(vceqq_s32(code.v[i], vdupq_n_s32(0x7f)), vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000)), x);
    }
    return r;
}

VEC v16 v_half_bytes(int8x16_t b) {
    int16x8_t lo = vmovl_s8(vget_low_s8(b)), hi = vmovl_s8(vget_high_s8(b));
    return (v16){{vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), 0.5f),
                  vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))), 0.5f),
                  vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), 0.5f),
                  vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi))), 0.5f)}};
}
VEC void v_load_e2m1(v16 out[2], const uint8_t *p) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint8x16_t b = vld1q_u8(p);
    int8x16_t table = vld1q_s8(twice);
    int8x16_t even = vqtbl1q_s8(table, vandq_u8(b, vdupq_n_u8(15))), odd = vqtbl1q_s8(table, vshrq_n_u8(b, 4));
    out[0] = v_half_bytes(vzip1q_s8(even, odd));
    out[1] = v_half_bytes(vzip2q_s8(even, odd));
}

VEC float v_sum(v16 a) {
    float32x4_t s = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
}
VEC float v_max_all(v16 a) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[2]), vmaxq_f32(a.v[1], a.v[3]))); }
VEC void v_sum4(float out[4], v16 a, v16 b, v16 c, v16 d) {
    out[0] = v_sum(a);
    out[1] = v_sum(b);
    out[2] = v_sum(c);
    out[3] = v_sum(d);
}

VEC v16d vd_zero(void) {
    v16d r;
    for (int i = 0; i < 8; i++) r.v[i] = vdupq_n_f64(0);
    return r;
}
VEC v16d vd_fma(v16d acc, v16 a, v16 b) {
    for (int i = 0; i < 4; i++) {
        acc.v[2 * i] = vfmaq_f64(acc.v[2 * i], vcvt_f64_f32(vget_low_f32(a.v[i])), vcvt_f64_f32(vget_low_f32(b.v[i])));
        acc.v[2 * i + 1] = vfmaq_f64(acc.v[2 * i + 1], vcvt_high_f64_f32(a.v[i]), vcvt_high_f64_f32(b.v[i]));
    }
    return acc;
}
VEC double vd_sum(v16d a) {
    double lane[4];
    for (int i = 0; i < 2; i++) {
        float64x2_t s = vaddq_f64(vaddq_f64(a.v[i], a.v[i + 4]), vaddq_f64(a.v[i + 2], a.v[i + 6]));
        vst1q_f64(lane + 2 * i, s);
    }
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}
VEC v16 vd_float(v16d a) { VEC_EACH(v16, vcombine_f32(vcvt_f32_f64(a.v[2 * i]), vcvt_f32_f64(a.v[2 * i + 1]))); }
VEC v16d vd_mul(v16d a, double s) {
    for (int i = 0; i < 8; i++) a.v[i] = vmulq_n_f64(a.v[i], s);
    return a;
}

#endif
