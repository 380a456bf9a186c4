/* sample_math.h - the exponential and logarithm of the sampler.
 *
 * libm's results differ between versions and processors in the last bit, and the integer masses of sampling hang on
 * that bit. These two are plain IEEE arithmetic in a fixed order (the build forbids contraction), so a row gives the
 * same token with every compiler and on every processor, in vector code and alone. */
#ifndef BY_SAMPLE_MATH_H
#define BY_SAMPLE_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t by_sample_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float by_sample_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Below it by_sample_exp is exactly 0. */
#define BY_SAMPLE_EXP_LEAST (-87.0f)

/* exp(x) for x <= 80, NaN excluded; about one unit in the last place; 0 below -87 (the smallest normal number is near
 * 2^-126), so that no denormal is ever made. exp(0) is exactly 1. */
static inline float by_sample_exp(float x) {
    const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits */
    float xc = x < BY_SAMPLE_EXP_LEAST ? BY_SAMPLE_EXP_LEAST : x;
    float shifted = xc * 1.44269504088896341f + round_magic;
    uint32_t n = by_sample_bits(shifted) - by_sample_bits(round_magic);
    float nf = shifted - round_magic;
    float r = xc - nf * 0.693359375f; /* ln 2 in two parts; the first product is exact */
    r = r - nf * -2.12194440e-4f;
    float y = 1.9875691500e-4f; /* minimax polynomial of degree 5 for (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2 */
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    float scaled = y * by_sample_float((n + 127u) << 23);
    return x < BY_SAMPLE_EXP_LEAST ? 0.0f : scaled;
}

/* Natural logarithm of a positive finite number, to about 1e-15 relative to max(1, |log x|). */
static inline double by_sample_log(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0; /* log m = 2 atanh(s), |s| <= 0.172 */
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum + e * 0.69314718055994531;
}

/* Integer mass of a probability or weight x in [0, 2): floor(x * 2^31). The product is exact in fp32. */
static inline uint32_t by_sample_mass(float x) {
    float scaled = x * 0x1p31f;
    uint32_t high = scaled >= 0x1p31f ? 0x80000000u : 0;
    return (uint32_t)(int32_t)(scaled - (high ? 0x1p31f : 0.0f)) + high;
}

#endif
