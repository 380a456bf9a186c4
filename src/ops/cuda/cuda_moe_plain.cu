// cuda_moe_plain.cu - the experts for any dtype and width: one warp an output, expert by expert of each token. For exact
// numerics and small models; the tensor-core path is in cuda_moe.cu.
#include "ops/cuda/cuda_gemm.cuh"

struct plain_expert {
    view w[3], s[3]; /* w1, w3, w2 */
    int packed[3];   /* FP4 as the matrix kernels have rearranged it, see cuda_gemm.cuh */
};
struct moe_plain_view {
    view x, idx, weight, y;
    view far; /* products of absent experts (their weights have no address), [T * k, D] */
    const plain_expert *experts; /* the shared expert, if any, is number n_experts */
    float *h;                    /* [T, slots, I] */
    int slots, k, n_experts, inner, act; /* inner: of the widest expert; an expert's own is its w1's rows */
    float limit;
    bool quant;
};

/* Nibble n of a rearranged word. */
__device__ static uint32_t packed_nibble(uint32_t w, int n) {
    uint32_t h = w >> n / 4 * 16;
    switch (n % 4) {
    case 0: return (h >> 12 & 8) | (h >> 6 & 7);
    case 1: return (h >> 9 & 8) | (h >> 3 & 7);
    case 2: return (h >> 6 & 8) | (h & 7);
    default: return (h >> 11 & 8) | (h >> 11 & 4) | (h >> 10 & 3);
    }
}
__device__ static float any_weight(const plain_expert &e, int which, int64_t n, int k) {
    const view &w = e.w[which], &s = e.s[which];
    const unsigned char *p = w.row(n);
    if (e.packed[which]) {
        int64_t at = strip_place(n, k, w.cols);
        return e2m1_value(packed_nibble(reinterpret_cast<const uint32_t *>(w.p + at)[k % 32 / 8], k % 8)) * ue8m0_value(s.p[at / 16]);
    }
    switch (w.dtype) {
    case BY_FP8_TILE: return e4m3_value(p[k]) * ue8m0_value(s.row(n / 32)[k / 32]);
    case BY_FP4_ROW: return e2m1_value(p[k / 2] >> (k & 1) * 4 & 15) * ue8m0_value(s.row(n)[k / 32]);
    case BY_BF16: return bf16_at(p, k);
    default: return reinterpret_cast<const float *>(p)[k];
    }
}

/* Grid: token (y and z end at 65535), slot, 32 channels. 8 warps of 4 channels each; then the gate, and one group of the quantiser. */
__global__ void moe_plain_up_kernel(moe_plain_view a) {
    __shared__ float out[2][32];
    int slot = blockIdx.y, t = blockIdx.x, c0 = blockIdx.z * 32, lane = threadIdx.x & 31, D = a.x.cols;
    const plain_expert &e = a.experts[slot < a.k ? a.idx.i32(t)[slot] : a.n_experts];
    int inner = e.w[0].rows;
    if (!e.w[0].p) return;
    const unsigned char *x = a.x.row(t);
    for (int i = threadIdx.x >> 5; i < 64; i += 8) {
        int which = i / 32, c = c0 + i % 32;
        float s = 0;
        for (int j = lane; c < inner && j < D; j += 32)
            s = fmaf(value_at(a.x.dtype, x, D, j), any_weight(e, which, c, j), s);
        s = warp_sum(s);
        if (lane == 0) out[which][i % 32] = round_to(a.act, s);
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    float g = out[0][lane], u = out[1][lane], w = slot < a.k ? a.weight.f32(t)[slot] : 1.0f;
    float bad = fmaf(g, 0.0f, u * 0.0f); /* NaN when one is not finite: neither clamp nor quantiser may hide that */
    if (a.limit > 0) g = fminf(g, a.limit), u = fmaxf(-a.limit, fminf(u, a.limit));
    float v = c0 + lane < inner ? fmaf(g / (1.0f + expf(-g)) * u, w, bad) : 0.0f;
    if (a.quant) {
        uint32_t b = act8_scale(warp_max(fabsf(v)));
        v = fmaf(v, 0.0f, e4m3_value(e4m3_of(v * ue8m0_inverse(b))) * ue8m0_value(b));
    }
    if (c0 + lane < inner) a.h[(static_cast<int64_t>(t) * a.slots + slot) * a.inner + c0 + lane] = v;
}

__global__ void moe_plain_down_kernel(moe_plain_view a) {
    int n = blockIdx.y * 8 + (threadIdx.x >> 5), t = blockIdx.x, lane = threadIdx.x & 31;
    if (n >= a.y.cols) return;
    float sum = 0;
    for (int slot = 0; slot < a.slots; slot++) {
        const plain_expert &e = a.experts[slot < a.k ? a.idx.i32(t)[slot] : a.n_experts];
        if (!e.w[0].p) {
            sum += value_at(a.far.dtype, a.far.row(static_cast<int64_t>(t) * a.k + slot), a.far.cols, n);
            continue;
        }
        const float *h = a.h + (static_cast<int64_t>(t) * a.slots + slot) * a.inner;
        float s = 0;
        for (int j = lane; j < e.w[0].rows; j += 32) s = fmaf(h[j], any_weight(e, 2, n, j), s);
        sum += round_to(a.act, warp_sum(s));
    }
    if (lane == 0) store_value(a.y.dtype, a.y.row(t), n, sum);
}

static void describe(plain_expert *to, const by_expert *e) {
    const by_weight *w[] = {&e->w1, &e->w3, &e->w2};
    for (int i = 0; i < 3; i++) {
        to->w[i] = view_of(w[i]->w);
        to->s[i] = view_of(w[i]->scale);
        to->packed[i] = w[i]->w.mem && w[i]->w.mem->packed;
    }
}

static by_status plain_table(by_cuda *c, const by_moe_args *a, const plain_expert **out, by_err *err) {
    void *device = by_cuda_find_table(c, a->experts, a->shared, true);
    *out = static_cast<const plain_expert *>(device);
    if (device) return BY_OK;
    size_t bytes = (static_cast<size_t>(a->n_experts) + 1) * sizeof(plain_expert);
    plain_expert *host = static_cast<plain_expert *>(by_alloc_zero(BY_MEM_TENSOR, bytes));
    if (!host) return BY_FAIL(err, BY_ENOMEM, "out of memory for an expert table");
    for (int i = 0; i < a->n_experts; i++) describe(&host[i], &a->experts[i]);
    if (a->shared) describe(&host[a->n_experts], a->shared);
    by_status status = by_cuda_keep_table(c, a->experts, a->shared, true, host, bytes, &device, err);
    by_free(host);
    *out = static_cast<const plain_expert *>(device);
    return status;
}

by_status by_cuda_moe_plain(by_device *dev, const by_moe_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int64_t T = a->x.rows, k = a->idx.cols, slots = k + (a->shared ? 1 : 0), D = a->x.cols;
    by_step_shape shape = {};
    shape.rows = T, shape.n_chosen = k, shape.inner = a->inner, shape.shared_inner = a->shared ? a->shared->w1.w.rows : 0;
    int64_t I = shape.shared_inner > a->inner ? shape.shared_inner : a->inner;
    const plain_expert *table = nullptr;
    BY_TRY(plain_table(c, a, &table, err));
    BY_TRY(by_cuda_scratch(c, static_cast<size_t>(by_scratch_moe_plain(&shape)), err));
    moe_plain_view v = {view_of(a->x), view_of(a->idx), view_of(a->weight), view_of(a->y), view_of(a->part), table,
                        by_cuda_take<float>(c, static_cast<size_t>(T * slots * I)), static_cast<int>(slots), static_cast<int>(k), a->n_experts,
                        static_cast<int>(I), a->y.dtype, a->limit, a->quant};
    dim3 up(static_cast<unsigned>(T), static_cast<unsigned>(slots), static_cast<unsigned>((I + 31) / 32));
    dim3 down(static_cast<unsigned>(T), static_cast<unsigned>((D + 7) / 8));
    BY_CUDA_TRY(err, by_cuda_launch(c, moe_plain_up_kernel, up, 256, 0, v));
    if (a->part.mem) BY_TRY(by_cuda_join(dev, err));
    BY_CUDA_TRY(err, by_cuda_launch(c, moe_plain_down_kernel, down, 256, 0, v));
    return BY_OK;
}
