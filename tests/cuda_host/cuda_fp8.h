/* cuda_fp8.h - stands in for the header of the CUDA toolkit: see cuda_host.h. E4M3 with saturation only. */
#ifndef BY_CUDA_HOST_FP8_H
#define BY_CUDA_HOST_FP8_H

#include "cuda_host/cuda_runtime.h"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
static inline uint8_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t, __nv_fp8_interpretation_t) {
    uint8_t sign = static_cast<uint8_t>(__float_as_uint(x) >> 24 & 0x80);
    float a = fabsf(x);
    if (x != x) return sign | 0x7f;
    if (a >= 448.0f) return sign | 0x7e;
    int e = 0;
    frexpf(a, &e);                             /* a = m 2^e, m in [0.5, 1) */
    int step = (a == 0 || e < -5 ? -5 : e) - 4; /* of the last place: 2^-9 for denormals */
    int n = static_cast<int>(lrintf(ldexpf(a, -step)));
    if (n >= 16) n = 8, step++;
    if (n < 8) return sign | static_cast<uint8_t>(n); /* a denormal */
    return sign | static_cast<uint8_t>((step + 10) << 3 | (n & 7));
}
static inline uint16_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
    return static_cast<uint16_t>(__nv_cvt_float_to_fp8(v.x, s, i) | __nv_cvt_float_to_fp8(v.y, s, i) << 8);
}

#endif
