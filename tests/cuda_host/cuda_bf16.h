/* cuda_bf16.h - stands in for the header of the CUDA toolkit: see cuda_host.h. */
#ifndef BY_CUDA_HOST_BF16_H
#define BY_CUDA_HOST_BF16_H

#include "cuda_host/cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __align__(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
static inline __nv_bfloat16 __float2bfloat16_rn(float v) {
    uint32_t u = __float_as_uint(v);
    if (v != v) return {0x7fff};
    return {static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }

#endif
