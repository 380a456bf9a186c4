// cuda_moe.cuh - what the kernels for experts share: cuda_moe.cu for any number of tokens, cuda_moe_few.cu for very few.
#ifndef BY_OPS_CUDA_MOE_CUH
#define BY_OPS_CUDA_MOE_CUH

#include "ops/cuda/cuda_gemm.cuh"

/* An expert's weights and scales in strips (cuda_gemm.cuh); w1 NULL: absent. */
struct expert_view {
    const unsigned char *w1, *w3, *w2, *s1, *s3, *s2;
    int64_t w1_stride, w2_stride, s1_stride, s2_stride;
};
/* The gate, from its two products rounded to bf16. Clamping and quantising turn what is not finite into numbers; a bad expert
 * must not go unseen, so what is not finite comes out as NaN, and kept_nan carries it through the quantiser. */
__device__ static inline float gated(float g, float u, float limit, float weight) {
    float bad = fmaf(g, 0.0f, u * 0.0f);
    if (limit > 0) g = fminf(g, limit), u = fmaxf(-limit, fminf(u, limit));
    return fmaf(g / (1.0f + __expf(-g)) * u, weight, bad);
}
__device__ static inline float kept_nan(float v, float quantised) { return fmaf(v, 0.0f, quantised); }

/* A call with at most this many tokens takes the kernels of cuda_moe_few.cu. */
enum { MOE_FEW = 4 };
bool by_cuda_moe_few_fits(const by_cuda *c, const by_moe_args *a);
/* The whole operator; `table` holds the layer's experts. Takes scratch. */
by_status by_cuda_moe_few(by_device *dev, const by_moe_args *a, const expert_view *table, by_err *err);

#endif
