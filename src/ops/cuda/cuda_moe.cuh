// cuda_moe.cuh - what the kernels for experts share: cuda_moe.cu for any number of tokens, cuda_moe_few.cu for very few.
#ifndef BY_OPS_CUDA_MOE_CUH
#define BY_OPS_CUDA_MOE_CUH

#include <type_traits>

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

/* ---- tiles of tokens ---------------------------------------------------------------------------------------------- */

/* Tokens of one expert. */
struct moe_tile {
    int32_t expert, row, n; /* first padded row, valid rows */
};
struct moe_args {
    const expert_view *experts;
    const moe_tile *tiles;
    const int32_t *n_tiles;
    const float *weight; /* [rows] */
    image x, h;
    unsigned char *out; /* [rows, D] bf16 */
    int rows, D, I;
    float limit;
    int32_t *flags;
};

/* Strips of tile x of an expert's up products (32 channels of w1 and of w3 a warpgroup) and of its down product (64 rows). */
template <int GROUPS> __device__ static inline gemm_strips up_strips(const moe_args &a, const expert_view &e, int x) {
    int64_t first = min(x * GROUPS, a.I / 32 - 1), at = first * 32 * e.w1_stride;
    return {e.w1 + at, e.w3 + at, e.s1 + at / 16, e.s3 + at / 16, 32 * e.w1_stride, static_cast<int>(a.I / 32 - first)};
}
template <int GROUPS> __device__ static inline gemm_strips down_strips(const moe_args &a, const expert_view &e, int x) {
    int64_t first = min(x * GROUPS, a.D / 64 - 1), at = first * 64 * e.w2_stride, next = at + 32 * e.w2_stride;
    return {e.w2 + at, e.w2 + next, e.s2 + at / 16, e.s2 + next / 16, 64 * e.w2_stride, static_cast<int>(a.D / 64 - first)};
}

/* Tokens that the matrix instruction takes for a tile of n: the steps of the tile's kernel. */
template <int BT> __host__ __device__ constexpr int moe_step() { return BT <= 32 ? 8 : 16; }
template <int BT> __device__ static inline int moe_width(int n) {
    constexpr int step = moe_step<BT>();
    return max((n + step - 1) / step * step, BT <= 32 ? 8 : 32);
}
/* Calls f with the width as a constant. */
template <int BT, int N, class F> __device__ static inline void moe_with_width(int width, F f) {
    if constexpr (N < BT) {
        if (width > N) return moe_with_width<BT, N + moe_step<BT>()>(width, f);
    }
    f(std::integral_constant<int, N>());
}

/* Gate of one channel for the tokens of this thread, then E4M3 per 32 channels, written to the image of the next product.
 * All threads of the warpgroup; `amax` is [GROUPS][4][BT] floats. */
template <int WT, int GROUPS, int BT, int N>
__device__ static void gate_and_quantise(const moe_args &a, const moe_tile &t, float (&acc)[N / 2], int channel, float *amax) {
    int lane = threadIdx.x & 31, c = lane & 3, group = threadIdx.x / 128, w = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        int j = i / 2 * 4 + i % 2, token = i / 2 * 8 + c * 2 + i % 2;
        float weight = token < t.n ? a.weight[t.row + token] : 0.0f;
        float v = token < t.n ? gated(round_to(BY_BF16, acc[j]), round_to(BY_BF16, acc[j + 2]), a.limit, weight) : 0.0f;
        acc[j] = v;
        float m = fabsf(v);
        for (int k = 4; k < 32; k *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
        if (lane < 4) amax[(group * 4 + w) * BT + token] = m;
    }
    bar_sync(1 + group, 128);
    int place = image_place<WT>(channel % kind<WT>::K);
    unsigned char *to = a.h.p + (static_cast<int64_t>(channel / kind<WT>::K) * kind<WT>::BLOCKS + place / 64) * a.h.block_stride;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        int j = i / 2 * 4 + i % 2, token = i / 2 * 8 + c * 2 + i % 2;
        if (token >= (t.n + 7) / 8 * 8) continue;
        const float *m = amax + group * 4 * BT + token;
        uint32_t b = act8_scale(fmaxf(fmaxf(m[0], m[BT]), fmaxf(m[2 * BT], m[3 * BT])));
        float q = kept_nan(acc[j], e4m3_value(e4m3_of(acc[j] * ue8m0_inverse(b))) * ue8m0_value(b));
        *reinterpret_cast<uint16_t *>(to + image_offset(t.row + token, place % 64)) = bf16_bits(q);
    }
}

/* bf16 rows of the second product: rows `row` and `row` + 32 of the weight. */
template <int N> __device__ static inline void store_down(const moe_args &a, const moe_tile &t, const float (&acc)[N / 2], int row) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        int j = i / 2 * 4 + i % 2, token = i / 2 * 8 + (threadIdx.x & 3) * 2 + i % 2;
        if (token >= t.n) continue;
        uint16_t *to = reinterpret_cast<uint16_t *>(a.out) + static_cast<int64_t>(t.row + token) * a.D;
        if (row < a.D) to[row] = bf16_bits(acc[j]);
        if (row + 32 < a.D) to[row + 32] = bf16_bits(acc[j + 2]);
    }
}

/* A call with at most this many tokens takes the kernels of cuda_moe_few.cu (without a shared expert: one token). */
enum { MOE_FEW = 4 };
bool by_cuda_moe_few_fits(const by_cuda *c, const by_moe_args *a);
/* The whole operator; `table` holds the layer's experts. Takes scratch. */
by_status by_cuda_moe_few(by_device *dev, const by_moe_args *a, const expert_view *table, by_err *err);

#endif
