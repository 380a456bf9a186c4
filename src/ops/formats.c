/* formats.c - see formats.h. */
#include "ops/formats.h"

#include <math.h>

#define E4M3_OCTAVE(e)                                                                                                 \
    1.0f * (e), 1.125f * (e), 1.25f * (e), 1.375f * (e), 1.5f * (e), 1.625f * (e), 1.75f * (e), 1.875f * (e)
#define E4M3_HALF(s)                                                                                                   \
    s 0.0f, s 0x1p-9f, s 0x2p-9f, s 0x3p-9f, s 0x4p-9f, s 0x5p-9f, s 0x6p-9f, s 0x7p-9f, E4M3_OCTAVE(s 0x1p-6f),       \
        E4M3_OCTAVE(s 0x1p-5f), E4M3_OCTAVE(s 0x1p-4f), E4M3_OCTAVE(s 0x1p-3f), E4M3_OCTAVE(s 0x1p-2f),                \
        E4M3_OCTAVE(s 0x1p-1f), E4M3_OCTAVE(s 0x1p0f), E4M3_OCTAVE(s 0x1p1f), E4M3_OCTAVE(s 0x1p2f),                   \
        E4M3_OCTAVE(s 0x1p3f), E4M3_OCTAVE(s 0x1p4f), E4M3_OCTAVE(s 0x1p5f), E4M3_OCTAVE(s 0x1p6f),                    \
        E4M3_OCTAVE(s 0x1p7f), s 256.0f, s 288.0f, s 320.0f, s 352.0f, s 384.0f, s 416.0f, s 448.0f, NAN

const float by_e4m3_table[256] = {E4M3_HALF(+), E4M3_HALF(-)};
const float by_e2m1_table[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

uint8_t by_e4m3_of_f32(float x) {
    uint8_t sign = (uint8_t)(by_f32_bits(x) >> 31 << 7);
    float a = fabsf(x);
    if (!(a < 464.0f)) return sign | 0x7e;
    if (a < 0x1p-6f) return sign | (uint8_t)lrintf(a * 0x1p9f); /* denormals; 8 of them are the first normal */
    uint32_t u = by_f32_bits(a);
    u += 0x7ffffu + (u >> 20 & 1); /* to three mantissa bits, nearest even */
    uint32_t code = (u >> 20) - (120u << 3);
    return sign | (uint8_t)(code > 0x7e ? 0x7e : code);
}

uint8_t by_e2m1_of_f32(float x) {
    uint8_t sign = (uint8_t)(by_f32_bits(x) >> 31 << 3);
    float a = fabsf(x);
    if (!(a <= 5.0f)) return sign | 7;
    if (a < 2.0f) return sign | (uint8_t)lrintf(a * 2.0f); /* 0 .5 1 1.5 (2) are codes 0 1 2 3 (4) */
    if (a < 4.0f) return sign | (uint8_t)(2 + lrintf(a));  /* 2 3 (4) are codes 4 5 (6) */
    return sign | 6;                                       /* up to the tie at 5, which is even at 4 */
}

static float amax_of(const float *x, int64_t n) {
    float m = 0;
    for (int64_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        m = a > m ? a : m;
    }
    return m;
}

void by_quant_act8(const float *x, int64_t n, uint8_t *data, uint8_t *scales) {
    for (int64_t g = 0; g < n / 32; g++, x += 32, data += 32) {
        float m = amax_of(x, 32);
        uint8_t byte = by_ue8m0_ceil((m > 1e-4f ? m : 1e-4f) * (1.0f / 448.0f));
        float scale = by_ue8m0_to_f32(byte);
        for (int i = 0; i < 32; i++) data[i] = by_e4m3_of_f32(x[i] / scale);
        scales[g] = byte;
    }
}

void by_quant_kv4(const float *x, int64_t n, uint8_t *data, uint8_t *scales) {
    for (int64_t g = 0; g < n / 16; g++, x += 16, data += 8) {
        float s = amax_of(x, 16) * (1.0f / 6.0f);
        s = s < 0x1p-9f ? 0x1p-9f : s > 448.0f ? 448.0f : s;
        scales[g] = by_e4m3_of_f32(s);
        float scale = by_e4m3_to_f32(scales[g]); /* a true division follows: the scale is no power of two */
        for (int i = 0; i < 8; i++)
            data[i] = (uint8_t)(by_e2m1_of_f32(x[2 * i] / scale) | by_e2m1_of_f32(x[2 * i + 1] / scale) << 4);
    }
}

void by_quant_ix4(const float *x, int64_t n, uint8_t *data, uint8_t *scales) {
    for (int64_t g = 0; g < n / 32; g++, x += 32, data += 16) {
        float m = amax_of(x, 32);
        uint8_t byte = by_ue8m0_ceil((m > 6.0f * 0x1p-126f ? m : 6.0f * 0x1p-126f) * (1.0f / 6.0f));
        float scale = by_ue8m0_to_f32(byte);
        for (int i = 0; i < 16; i++)
            data[i] = (uint8_t)(by_e2m1_of_f32(x[2 * i] / scale) | by_e2m1_of_f32(x[2 * i + 1] / scale) << 4);
        scales[g] = byte;
    }
}

void by_dequant_act8(const uint8_t *data, const uint8_t *scales, int64_t n, float *x) {
    for (int64_t g = 0; g < n / 32; g++) {
        float s = by_ue8m0_to_f32(scales[g]);
        for (int64_t i = g * 32; i < g * 32 + 32; i++) x[i] = by_e4m3_to_f32(data[i]) * s;
    }
}

void by_dequant_kv4(const uint8_t *data, const uint8_t *scales, int64_t n, float *x) {
    for (int64_t i = 0; i < n / 2; i++) {
        float s = by_e4m3_to_f32(scales[i / 8]);
        x[2 * i] = by_e2m1_to_f32(data[i]) * s;
        x[2 * i + 1] = by_e2m1_to_f32(data[i] >> 4) * s;
    }
}

void by_dequant_ix4(const uint8_t *data, const uint8_t *scales, int64_t n, float *x) {
    for (int64_t i = 0; i < n / 2; i++) {
        float s = by_ue8m0_to_f32(scales[i / 16]);
        x[2 * i] = by_e2m1_to_f32(data[i]) * s;
        x[2 * i + 1] = by_e2m1_to_f32(data[i] >> 4) * s;
    }
}
