/* formats.h - the number formats of the checkpoint and of the caches, one value at a time.
 *
 * E4M3 (1-4-3, no infinity, 0x7f and 0xff are NaN), E2M1 (four bits), UE8M0 (byte b is 2^(b-127), byte 0 is a denormal,
 * byte 255 refused by the loader), bf16. Every quantiser rounds to nearest even and takes its scale from the fp32 bits.
 * Source: model.md sections 10 and 11; golden: tests/golden/data/model/formats. Pure functions; they are the truth that
 * the vector kernels are compared with. */
#ifndef BY_OPS_FORMATS_H
#define BY_OPS_FORMATS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t by_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static inline float by_f32_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline float by_bf16_to_f32(uint16_t b) { return by_f32_of_bits((uint32_t)b << 16); }

/* Nearest even; denormals kept, overflow gives infinity, NaN stays a (quiet) NaN. */
static inline uint16_t by_bf16_of_f32(float x) {
    uint32_t u = by_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline float by_bf16_round(float x) { return by_bf16_to_f32(by_bf16_of_f32(x)); }

/* Tables of all codes. */
extern const float by_e4m3_table[256];
extern const float by_e2m1_table[16];

static inline float by_e4m3_to_f32(uint8_t b) { return by_e4m3_table[b]; }
static inline float by_e2m1_to_f32(uint8_t code) { return by_e2m1_table[code & 15]; }
static inline float by_ue8m0_to_f32(uint8_t b) { return by_f32_of_bits(b ? (uint32_t)b << 23 : 0x00400000u); }

/* Nearest even, saturating at 448 and 6; a negative zero keeps its sign. x is not NaN. */
uint8_t by_e4m3_of_f32(float x);
uint8_t by_e2m1_of_f32(float x);

/* Smallest power of two >= x as a UE8M0 byte; x a positive normal number (smaller ones give byte 1). */
static inline uint8_t by_ue8m0_ceil(float x) {
    uint32_t u = by_f32_bits(x), e = (u >> 23) + ((u & 0x7fffffu) != 0);
    return (uint8_t)(e < 1 ? 1 : e > 254 ? 254 : e);
}

/* The quantisers of model.md section 11 over n channels of fp32 values. NaN or infinite input gives unspecified bytes
 * but stays inside the arrays (the engine checks for it elsewhere).
 * act8 (also kv8): n a multiple of 32, data [n] E4M3, scales [n / 32] UE8M0.
 * kv4: n a multiple of 16, data [n / 2], scales [n / 16] E4M3.   ix4: n a multiple of 32, data [n / 2], scales [n / 32]. */
void by_quant_act8(const float *x, int64_t n, uint8_t *data, uint8_t *scales);
void by_quant_kv4(const float *x, int64_t n, uint8_t *data, uint8_t *scales);
void by_quant_ix4(const float *x, int64_t n, uint8_t *data, uint8_t *scales);

/* The values that the bytes stand for: the inverse of the three above up to their rounding. */
void by_dequant_act8(const uint8_t *data, const uint8_t *scales, int64_t n, float *x);
void by_dequant_kv4(const uint8_t *data, const uint8_t *scales, int64_t n, float *x);
void by_dequant_ix4(const uint8_t *data, const uint8_t *scales, int64_t n, float *x);

#endif
