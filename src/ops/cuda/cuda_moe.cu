// cuda_moe.cu - router and experts. Source: model.md section 8.
//
// Experts: one kernel sorts the (token, choice) pairs by expert into groups padded to 8 rows and cuts the groups into
// tiles; the activations are gathered into images; one kernel multiplies by w1 and w3 (a thread holds both outputs of a
// channel), applies the gate and quantises, writing the images of the second product; one multiplies by w2; the last adds
// a token's choices in their order. The shared expert is two calls of the FP8 products.
//
// Experts that are absent (on the host) get no rows: place is -1 for their choices, and the sum reads their products from pinned memory,
// over the bus and each once, when the host's work is joined.
#include <float.h>

#include "ops/cuda/cuda_image.cuh"
#include "ops/cuda/cuda_moe.cuh"

/* ---- router --------------------------------------------------------------------------------------------------- */

struct router_view {
    view x, gate, bias, bias_vl, image, idx, weight;
    float *score; /* [T, E] products, then scores */
    int k;
    bool norm_topk;
    float routed_scale;
};

__global__ void router_score_kernel(router_view a) {
    depend_wait();
    depend_launch();
    int e = blockIdx.y * 8 + (threadIdx.x >> 5), t = blockIdx.x, lane = threadIdx.x & 31, D = a.x.cols;
    if (e >= a.gate.rows) return;
    const unsigned char *x = a.x.row(t), *g = a.gate.row(e);
    float s = 0;
    for (int i = lane; i < D; i += 32) s = fmaf(value_at(a.x.dtype, x, D, i), value_at(a.gate.dtype, g, D, i), s);
    s = warp_sum(s);
    if (lane == 0) a.score[static_cast<int64_t>(t) * a.gate.rows + e] = s;
}

/* One warp a token. The k best of score + bias, ties to the lower expert; k rounds over registers. */
template <int PER> __global__ void __launch_bounds__(128) router_pick_kernel(router_view a) {
    int t = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31, E = a.gate.rows;
    float g[PER], bias[PER];
    uint32_t key[PER];
    bool some = t < a.x.rows;
    if (some) { /* the weights and the step's description are there */
        const float *from = a.image.p && a.bias_vl.p && *a.image.i32(t) ? a.bias_vl.f32(0) : a.bias.f32(0);
#pragma unroll
        for (int i = 0; i < PER; i++) bias[i] = from[min(i * 32 + lane, E - 1)];
    }
    depend_wait();
    depend_launch();
    if (!some) return;
    const float *z = a.score + static_cast<int64_t>(t) * E;
#pragma unroll
    for (int i = 0; i < PER; i++) g[i] = z[min(i * 32 + lane, E - 1)];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        g[i] = sqrtf(g[i] > 20 ? g[i] : log1pf(expf(g[i])));
        /* in the order of their values, +0 and -0 alike; NaN comes last, as a valid choice; 0: no expert */
        uint32_t u = __float_as_uint(fmaxf(g[i] + bias[i], -FLT_MAX) + 0.0f);
        key[i] = i * 32 + lane < E ? (u & 0x80000000u ? ~u : u | 0x80000000u) : 0;
    }
    float sum = 0, mine = 0;
    int32_t own = 0;
    for (int k = 0; k < a.k; k++) {
        uint32_t best = 0;
#pragma unroll
        for (int i = 0; i < PER; i++) best = max(best, key[i]);
        best = warp_most(best);
        uint32_t at = 0xffffffffu;
#pragma unroll
        for (int i = PER - 1; i >= 0; i--)
            if (key[i] == best) at = static_cast<uint32_t>(i * 32 + lane);
        at = warp_least(at);
        float score = 0;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (static_cast<uint32_t>(i * 32 + lane) == at) score = g[i], key[i] = 0;
        score = __shfl_sync(~0u, score, static_cast<int>(at & 31));
        sum += score;
        if (lane == k) own = static_cast<int32_t>(at), mine = score;
    }
    if (lane < a.k) {
        reinterpret_cast<int32_t *>(a.idx.row(t))[lane] = own;
        a.weight.f32(t)[lane] = (a.norm_topk ? mine / (sum + 1e-20f) : mine) * a.routed_scale;
    }
}

/* Rows whose scores fit into c->router. */
static by_status router_slice(by_device *dev, const by_router_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int64_t T = a->x.rows, E = a->gate.rows;
    router_view v = {view_of(a->x), view_of(a->gate), view_of(a->bias), view_of(a->bias_vl), view_of(a->row_image),
                     view_of(a->idx), view_of(a->weight), nullptr, a->k, a->norm_topk, a->routed_scale};
    /* the matrix kernels take scratch of their own, so the scores lie in a buffer that only the router uses */
    v.score = c->router;
    if (a->x.dtype == BY_BF16 && a->gate.dtype == BY_BF16 && a->x.cols % 64 == 0) {
        by_mem mem = {};
        mem.dev = dev;
        mem.ptr = reinterpret_cast<unsigned char *>(c->router);
        mem.bytes = c->router_bytes;
        by_matmul_args m = {};
        m.x = a->x;
        m.n_parts = m.groups = 1;
        m.part[0].w.w = a->gate;
        m.part[0].y = {&mem, 0, E * 4, T, E, BY_F32};
        BY_TRY(by_cuda_matmul(dev, &m, err));
    } else {
        dim3 grid(static_cast<unsigned>(T), static_cast<unsigned>((E + 7) / 8));
        BY_CUDA_TRY(err, by_cuda_chain(c, router_score_kernel, grid, 256, 0, 1, v));
    }
    auto pick = E <= 128 ? router_pick_kernel<4> : E <= 384 ? router_pick_kernel<12> : router_pick_kernel<32>;
    BY_CUDA_TRY(err, by_cuda_chain(c, pick, dim3(static_cast<unsigned>((T + 3) / 4)), 128, 0, 1, v));
    BY_CUDA_LAUNCHED(err, "router");
    return BY_OK;
}

/* In slices of rows: their number changes no bits, as each row has its own in any batch. */
by_status by_cuda_router(by_device *dev, const by_router_args *a, by_err *err) {
    int64_t T = a->x.rows, E = a->gate.rows;
    if (E > 1024 || a->k > 32) return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: router: more than 1024 experts or 32 choices");
    int64_t most = static_cast<int64_t>(by_cuda_of(dev)->router_bytes) / (E * 4);
    for (int64_t t = 0; t < T; t += most) {
        int64_t n = T - t < most ? T - t : most;
        by_router_args part = *a;
        part.x = by_tensor_rows(a->x, t, n);
        part.idx = by_tensor_rows(a->idx, t, n);
        part.weight = by_tensor_rows(a->weight, t, n);
        if (a->row_image.mem) part.row_image = by_tensor_rows(a->row_image, t, n);
        BY_TRY(router_slice(dev, &part, err));
    }
    return BY_OK;
}

/* ---- sorting by expert ---------------------------------------------------------------------------------------- */

struct moe_sort {
    int32_t *count;  /* [4]: tiles, padded rows */
    int32_t *place;  /* [T * k] padded row of each choice, -1 = its expert is absent */
    int32_t *token;  /* [rows] token of a padded row, -1 = padding */
    float *weight;   /* [rows] */
    moe_tile *tiles;
};

__global__ void __launch_bounds__(1024) moe_sort_kernel(view idx, view weight, const expert_view *experts, int E, int bt, moe_sort o) {
    __shared__ int32_t count[1024], first[1024], warp_rows[32], warp_tiles[32];
    int tid = threadIdx.x, lane = tid & 31, w = tid >> 5, k = idx.cols, n = idx.rows * k;
    depend_launch();
    depend_wait();
    count[tid] = 0;
    __syncthreads();
    for (int i = tid; i < n; i += 1024) atomicAdd(&count[idx.i32(i / k)[i % k]], 1);
    __syncthreads();
    bool here = tid < E && experts[tid].w1;
    int c = here ? count[tid] : 0, rows = (c + 7) / 8 * 8, tiles = (c + bt - 1) / bt, r = rows, s = tiles;
    for (int m = 1; m < 32; m *= 2) {
        int r2 = __shfl_up_sync(~0u, r, m), s2 = __shfl_up_sync(~0u, s, m);
        if (lane >= m) r += r2, s += s2;
    }
    if (lane == 31) warp_rows[w] = r, warp_tiles[w] = s;
    __syncthreads();
    for (int i = 0; i < w; i++) r += warp_rows[i], s += warp_tiles[i];
    first[tid] = here ? r - rows : -1;
    if (tid == 1023) o.count[0] = s, o.count[1] = r;
    int each = tiles ? min(bt, ((c + tiles - 1) / tiles + 15) / 16 * 16) : 0; /* an expert's tiles are alike */
    for (int i = 0; i < tiles; i++) o.tiles[s - tiles + i] = {tid, r - rows + i * each, min(each, c - i * each)};
    for (int i = c; i < rows; i++) o.token[r - rows + i] = -1, o.weight[r - rows + i] = 0;
    __syncthreads();
    count[tid] = 0;
    __syncthreads();
    for (int i = tid; i < n; i += 1024) {
        int e = idx.i32(i / k)[i % k];
        if (first[e] < 0) {
            o.place[i] = -1;
            continue;
        }
        int at = first[e] + atomicAdd(&count[e], 1); /* any order: rows are independent */
        o.place[i] = at;
        o.token[at] = i / k;
        o.weight[at] = weight.f32(i / k)[i % k];
    }
}

/* ---- products ------------------------------------------------------------------------------------------------- */

__device__ static bool moe_tile_of(const moe_args &a, moe_tile &t) {
    int i = static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y); /* y ends at 65535 */
    if (i >= *a.n_tiles) return false;
    t = a.tiles[i];
    return true;
}

template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int G = 4>
__global__ void __maxnreg__((gemm_shape<WT, U, GROUPS, BT, ST>::regs(PER_SM))) moe_up_kernel(const __grid_constant__ moe_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    BY_CUDA_SHARED(float, amax, GROUPS * 4 * BT);
    moe_tile t;
    if (!moe_tile_of(a, t)) return;
    gemm_loop<WT, U, GROUPS, BT, ST, 2, G> loop(smem, true);
    depend_launch();
    int stages = a.D / gemm_shape<WT, U, GROUPS, BT, ST>::K, width = moe_width<BT>(t.n);
    if (threadIdx.x >= GROUPS * 128) {
        loop.produce(a.x.p + static_cast<int64_t>(t.row) * 128, a.x.block_stride, width, stages,
                     up_strips<GROUPS>(a, a.experts[t.expert], blockIdx.x));
        loop.leave();
        return;
    }
    int channel = (blockIdx.x * GROUPS + threadIdx.x / 128) * 32 + threadIdx.x / 32 % 4 * 8 + (threadIdx.x >> 2 & 7);
    moe_with_width<BT, BT <= 32 ? 8 : 32>(width, [&](auto n) {
        constexpr int N = decltype(n)::value;
        float acc[N / 2] = {};
        loop.template consume<N>(acc, {}, stages);
        moe_tile to = t;
        if (channel >= a.I) to.n = -8; /* nothing to store */
        gate_and_quantise<WT, GROUPS, BT, N>(a, to, acc, channel < a.I ? channel : 0, amax);
    });
    loop.leave();
}

template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int G = 4>
__global__ void __maxnreg__((gemm_shape<WT, U, GROUPS, BT, ST>::regs(PER_SM))) moe_down_kernel(const __grid_constant__ moe_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    moe_tile t;
    if (!moe_tile_of(a, t)) return;
    gemm_loop<WT, U, GROUPS, BT, ST, 2, G> loop(smem, true);
    depend_launch();
    int stages = a.I / gemm_shape<WT, U, GROUPS, BT, ST>::K, width = moe_width<BT>(t.n);
    if (threadIdx.x >= GROUPS * 128) {
        loop.produce(a.h.p + static_cast<int64_t>(t.row) * 128, a.h.block_stride, width, stages,
                     down_strips<GROUPS>(a, a.experts[t.expert], blockIdx.x));
        loop.leave();
        return;
    }
    int row = (blockIdx.x * GROUPS + threadIdx.x / 128) * 64 + threadIdx.x / 32 % 4 * 8 + (threadIdx.x >> 2 & 7);
    moe_with_width<BT, BT <= 32 ? 8 : 32>(width, [&](auto n) {
        constexpr int N = decltype(n)::value;
        float acc[N / 2] = {};
        loop.template consume<N>(acc, {}, stages);
        store_down<N>(a, t, acc, row);
    });
    loop.leave();
}

/* Gate of the shared expert: g and u [T, I] bf16 to the image of the next product. A warp has 32 channels. */
__global__ void gate_image_kernel(const uint16_t *g, const uint16_t *u, int T, int I, float limit, image to) {
    int lane = threadIdx.x & 31, groups = I / 32, i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, t = i / groups;
    depend_wait();
    depend_launch();
    if (t >= (T + 7) / 8 * 8) return;
    int channel = i % groups * 32 + lane, place = image_place<W_FP8>(channel % 64);
    float v = 0;
    if (t < T) v = gated(bf16_at(g, static_cast<int64_t>(t) * I + channel), bf16_at(u, static_cast<int64_t>(t) * I + channel), limit, 1.0f);
    uint32_t b = act8_scale(warp_max(fabsf(v)));
    float q = kept_nan(v, e4m3_value(e4m3_of(v * ue8m0_inverse(b))) * ue8m0_value(b));
    *reinterpret_cast<uint16_t *>(to.p + channel / 64 * to.block_stride + image_offset(t, place)) = bf16_bits(q);
}

/* A thread has 8 channels; all rows start at multiples of 16 bytes. far: products of absent experts, [T * k, D] bf16 in pinned memory. */
__global__ void moe_sum_kernel(const uint16_t *part, const int32_t *place, const uint16_t *far, const uint16_t *shared, int k, int D, view y) {
    int t = blockIdx.x, i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    depend_launch();
    depend_wait();
    if (i >= D) return;
    float s[8] = {};
    auto add = [&](const uint16_t *row) {
        float v[8];
        load8(BY_BF16, reinterpret_cast<const unsigned char *>(row), D, i, v);
#pragma unroll
        for (int j = 0; j < 8; j++) s[j] += v[j];
    };
#pragma unroll 4
    for (int j = 0; j < k; j++) {
        int at = place[t * k + j];
        add(at < 0 ? far + (static_cast<int64_t>(t) * k + j) * D : part + static_cast<int64_t>(at) * D);
    }
    if (shared) add(shared + static_cast<int64_t>(t) * D);
    store8(BY_BF16, y.row(t), i, s);
}

template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int G = 4>
static by_status moe_launch(by_cuda *c, const moe_args &a, unsigned tiles, int peers, by_err *err) {
    using shape = gemm_shape<WT, U, GROUPS, BT, ST>;
    auto up = moe_up_kernel<WT, U, GROUPS, BT, ST, PER_SM, G>;
    auto down = moe_down_kernel<WT, U, GROUPS, BT, ST, PER_SM, G>;
    BY_TRY(by_cuda_smem(up, shape::BYTES, err));
    BY_TRY(by_cuda_smem(down, shape::BYTES, err));
    auto across = [&](int rows, int each) { return static_cast<unsigned>((rows + each * peers - 1) / (each * peers) * peers); };
    unsigned high = tiles < 65535 ? tiles : 65535, deep = (tiles + high - 1) / high;
    dim3 up_grid(across(a.I, GROUPS * 32), high, deep), down_grid(across(a.D, GROUPS * 64), high, deep);
    BY_CUDA_TRY(err, by_cuda_chain(c, up, up_grid, shape::THREADS, shape::BYTES, peers, a));
    BY_CUDA_TRY(err, by_cuda_chain(c, down, down_grid, shape::THREADS, shape::BYTES, peers, a));
    return BY_OK;
}

/* Tokens of a tile, from the mean number of rows of an expert. */
static int moe_bt(int64_t rows, int64_t experts) {
    int64_t mean = (rows + experts - 1) / experts;
    return mean <= 2 ? 8 : mean <= 20 ? 32 : mean <= 44 ? 64 : 80; /* crowded experts want wide tiles: each expands the weights again */
}
/* Several blocks a multiprocessor, so that the start and end of one hide behind the others. From 64 tokens on the two blocks of
 * a cluster share the images; below, waiting for one another costs more than it saves. */
template <int WT> static by_status moe_products(by_cuda *c, const moe_args &a, int bt, unsigned tiles, by_err *err) {
    switch (bt) {
    case 8:
        if (tiles <= 8) return moe_launch<WT, 2, 1, 8, 4, 5>(c, a, tiles, 1, err);
        return moe_launch<WT, 2, 1, 8, 3, 5>(c, a, tiles, 1, err);
    case 32: return moe_launch<WT, 2, 2, 32, 3, 2>(c, a, tiles, 1, err);
    case 64: return moe_launch<WT, 1, 2, 64, 4, 2>(c, a, tiles, 2, err);
    default: return moe_launch<WT, 1, 2, 80, 3, 2, 2>(c, a, tiles, 2, err);
    }
}

/* Weights of K columns and their scales to strips; a thread moves 16 bytes and their scale. */
__global__ void pack_kernel(const uint4 *w, const unsigned char *s, int64_t n, int K, uint4 *w_to, unsigned char *s_to, int32_t *flags) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x, r = i / (K / 32);
    if (i >= n) return;
    int k = static_cast<int>(i % (K / 32)) * 32;
    int64_t to = strip_place(r, k, K) / 16;
    uint4 q = w[i];
    w_to[to] = make_uint4(pack_fp4(q.x), pack_fp4(q.y), pack_fp4(q.z), pack_fp4(q.w));
    bool fits = s[i] <= 254 - STRIP_UP;
    if (!fits) atomicOr(flags, BY_CUDA_FLAG_SCALE);
    s_to[to] = static_cast<unsigned char>(fits ? s[i] + STRIP_UP : 255);
}
/* Rearranges a weight and its scales, which fill their buffers, once. */
static by_status pack(by_cuda *c, const by_weight &w, by_err *err) {
    by_mem *m = w.w.mem, *s = w.scale.mem;
    if (m->packed) return BY_OK;
    int64_t n = static_cast<int64_t>(m->bytes / 16);
    BY_TRY(by_cuda_scratch(c, by_cuda_pad(m->bytes) + by_cuda_pad(s->bytes), err));
    unsigned char *w_copy = by_cuda_take<unsigned char>(c, m->bytes), *s_copy = by_cuda_take<unsigned char>(c, s->bytes);
    BY_CUDA_TRY(err, cudaMemcpyAsync(w_copy, m->ptr, m->bytes, cudaMemcpyDeviceToDevice, c->stream));
    BY_CUDA_TRY(err, cudaMemcpyAsync(s_copy, s->ptr, s->bytes, cudaMemcpyDeviceToDevice, c->stream));
    BY_CUDA_TRY(err, by_cuda_launch(c, pack_kernel, dim3(static_cast<unsigned>((n + 255) / 256)), 256, 0, reinterpret_cast<uint4 *>(w_copy),
                                    s_copy, n, static_cast<int>(w.w.cols), reinterpret_cast<uint4 *>(m->ptr), s->ptr, c->flags));
    m->packed = s->packed = true;
    return BY_OK;
}

/* The table of a layer's experts, with their weights in strips. */
static by_status make_table(by_cuda *c, const by_moe_args *a, const expert_view **out, by_err *err) {
    void *device = by_cuda_find_table(c, a->experts, nullptr, false);
    *out = static_cast<const expert_view *>(device);
    if (device) return BY_OK;
    by_cuda_drop_tables(c, true); /* they say of these weights that they are as they were */
    size_t bytes = static_cast<size_t>(a->n_experts) * sizeof(expert_view);
    expert_view *host = static_cast<expert_view *>(by_alloc(BY_MEM_TENSOR, bytes));
    if (!host) return BY_FAIL(err, BY_ENOMEM, "out of memory for an expert table");
    for (int i = 0; i < a->n_experts; i++) {
        const by_expert *e = &a->experts[i];
        if (!e->w1.w.mem) { /* absent */
            host[i] = {};
            continue;
        }
        view w1 = view_of(e->w1.w), w3 = view_of(e->w3.w), w2 = view_of(e->w2.w), s1 = view_of(e->w1.scale),
             s3 = view_of(e->w3.scale), s2 = view_of(e->w2.scale);
        assert(w1.stride == w3.stride && s1.stride == s3.stride);
        by_status status = pack(c, e->w1, err);
        if (status >= 0) status = pack(c, e->w3, err);
        if (status >= 0) status = pack(c, e->w2, err);
        if (status < 0) {
            by_free(host);
            return status;
        }
        host[i] = {w1.p, w3.p, w2.p, s1.p, s3.p, s2.p, w1.stride, w2.stride, s1.stride, s2.stride};
    }
    by_status status = by_cuda_keep_table(c, a->experts, nullptr, false, host, bytes, &device, err);
    by_free(host);
    *out = static_cast<const expert_view *>(device);
    return status;
}
/* Also while the device measures: the first step finds weights and table as they will be. */
static by_status expert_table(by_cuda *c, const by_moe_args *a, const expert_view **out, by_err *err) {
    bool measures = c->measures;
    c->measures = false;
    by_status status = make_table(c, a, out, err);
    c->measures = measures;
    return status;
}

static bool fills(const by_tensor &t) {
    return t.off == 0 && t.stride == by_dtype_row_bytes(t.dtype, t.cols) && static_cast<size_t>(t.rows * t.stride) == t.mem->bytes;
}
static bool whole(const by_weight &w, by_dtype dtype) {
    uintptr_t at = reinterpret_cast<uintptr_t>(w.w.mem->ptr + w.w.off) | static_cast<uintptr_t>(w.w.stride);
    uintptr_t s = reinterpret_cast<uintptr_t>(w.scale.mem->ptr + w.scale.off) | static_cast<uintptr_t>(w.scale.stride);
    uintptr_t k = dtype == BY_FP4_ROW ? 256 : 128;
    if (dtype == BY_FP4_ROW && (w.w.rows % 64 || !fills(w.w) || !fills(w.scale))) return false;
    return w.w.dtype == dtype && at % 16 == 0 && s % 4 == 0 && static_cast<uintptr_t>(w.w.cols) % k == 0;
}
/* Whether the tensor cores can run this call; experts of a layer are alike, so the first and last that are here stand for all. */
static bool moe_fits(const by_moe_args *a) {
    int first = 0, last = a->n_experts - 1;
    while (first < last && !a->experts[first].w1.w.mem) first++;
    while (last > first && !a->experts[last].w1.w.mem) last--;
    const by_expert *ends[] = {&a->experts[first], &a->experts[last]};
    if (a->x.dtype != BY_A8 || !a->quant || a->y.dtype != BY_BF16 || a->n_experts > 1024 || a->inner % 32) return false;
    if (!wide_row(a->y, 16) || !wide_row(a->part, 16)) return false;
    for (const by_expert *e : ends)
        if (e->w1.w.mem && (!whole(e->w1, BY_FP4_ROW) || !whole(e->w3, BY_FP4_ROW) || !whole(e->w2, BY_FP4_ROW))) return false;
    const by_expert *s = a->shared;
    return !s || (s->w1.w.rows % 32 == 0 && whole(s->w1, BY_FP8_TILE) && whole(s->w3, BY_FP8_TILE) && whole(s->w2, BY_FP8_TILE));
}

/* The two calls of the shared expert, but for what lies in scratch. */
static gemm_part shared_part(const by_weight &q) {
    view w = view_of(q.w), s = view_of(q.scale);
    return {w.p, s.p, nullptr, w.stride, s.stride, static_cast<int64_t>(w.rows) * 2, w.rows, BY_BF16, 0, w.rows};
}
static gemm_args shared_up(const by_moe_args *a) {
    gemm_args g = {};
    g.T = static_cast<int>(a->x.rows);
    g.K = static_cast<int>(a->x.cols);
    g.n_parts = 2;
    g.part[0] = shared_part(a->shared->w1);
    g.part[1] = shared_part(a->shared->w3);
    return g;
}
static gemm_args shared_down(const by_moe_args *a) {
    gemm_args g = {};
    g.T = static_cast<int>(a->x.rows);
    g.K = static_cast<int>(a->shared->w2.w.cols);
    g.n_parts = 1;
    g.part[0] = shared_part(a->shared->w2);
    return g;
}
static size_t shared_weights(const by_moe_args *a) {
    if (!a->shared) return 0;
    size_t up = by_cuda_weight_image(shared_up(a)), down = by_cuda_weight_image(shared_down(a));
    return up > down ? up : down;
}
/* The shared expert on all tokens, bf16 [T, D] to `out`. Scratch for `all` rows. */
static by_status shared_expert(by_cuda *c, const by_moe_args *a, int64_t all, uint16_t *out, by_err *err) {
    const by_expert *e = a->shared;
    int64_t T = a->x.rows, D = a->x.cols, I = e->w1.w.rows;
    image x = {by_cuda_take<unsigned char>(c, image_bytes(all, D)), all * 128};
    image h = {by_cuda_take<unsigned char>(c, image_bytes(all, I)), all * 128};
    make_image<W_FP8>(c, a->x, nullptr, nullptr, (T + 7) / 8 * 8, x);
    unsigned char *g = by_cuda_take<unsigned char>(c, static_cast<size_t>(T * I) * 2);
    unsigned char *u = by_cuda_take<unsigned char>(c, static_cast<size_t>(T * I) * 2);
    gemm_args up = shared_up(a), down = shared_down(a);
    up.flags = down.flags = c->flags;
    up.w.p = down.w.p = by_cuda_take<unsigned char>(c, shared_weights(a));
    up.x = x;
    up.part[0].y = g;
    up.part[1].y = u;
    BY_TRY(by_cuda_products(c, W_FP8, up, err));
    unsigned warps = static_cast<unsigned>((T + 7) / 8 * 8 * (I / 32));
    BY_CUDA_TRY(err, by_cuda_chain(c, gate_image_kernel, dim3((warps + 7) / 8), 256, 0, 1, reinterpret_cast<uint16_t *>(g),
                                   reinterpret_cast<uint16_t *>(u), static_cast<int>(T), static_cast<int>(I), a->limit, h));
    down.x = h;
    down.part[0].y = reinterpret_cast<unsigned char *>(out);
    return by_cuda_products(c, W_FP8, down, err);
}

by_status by_cuda_moe(by_device *dev, const by_moe_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int64_t T = a->x.rows, k = a->idx.cols, D = a->x.cols, I = a->inner, n = T * k;
    int64_t wide = a->shared ? a->shared->w1.w.rows : 0; /* inner width of the shared expert */
    if (T == 0) return a->part.mem ? by_cuda_join(dev, err) : BY_OK;
    if (!c->wgmma || !moe_fits(a)) return by_cuda_moe_plain(dev, a, err);
    const expert_view *table = nullptr;
    BY_TRY(expert_table(c, a, &table, err));
    if (by_cuda_moe_few_fits(c, a) && !c->measures) return by_cuda_moe_few(dev, a, table, err); /* takes less than what follows */
    by_step_shape shape = {};
    shape.rows = T, shape.hidden = D, shape.n_experts = a->n_experts, shape.n_chosen = k, shape.inner = I, shape.shared_inner = wide;
    int64_t used = by_scratch_moe_used(a->n_experts, n);
    int bt = moe_bt(n, used);
    int64_t rows = by_scratch_moe_rows(a->n_experts, n), tiles = used + n / bt, all = by_scratch_rows256(T);
    static_assert(sizeof(moe_tile) == BY_SCRATCH_MOE_TILE, "as scratch.h counts");
    BY_TRY(by_cuda_scratch(c, static_cast<size_t>(by_scratch_moe(&shape, static_cast<int64_t>(shared_weights(a)))), err));
    moe_sort sort = {by_cuda_take<int32_t>(c, 16), by_cuda_take<int32_t>(c, static_cast<size_t>(n)),
                     by_cuda_take<int32_t>(c, static_cast<size_t>(rows)), by_cuda_take<float>(c, static_cast<size_t>(rows)),
                     by_cuda_take<moe_tile>(c, static_cast<size_t>(tiles))};
    moe_args m = {};
    m.experts = table;
    m.tiles = sort.tiles;
    m.n_tiles = sort.count;
    m.weight = sort.weight;
    m.x = {by_cuda_take<unsigned char>(c, image_bytes(rows, D)), rows * 128};
    m.h = {by_cuda_take<unsigned char>(c, image_bytes(rows, I)), rows * 128};
    m.out = by_cuda_take<unsigned char>(c, static_cast<size_t>(rows * D) * 2);
    m.rows = static_cast<int>(rows);
    m.D = static_cast<int>(D);
    m.I = static_cast<int>(I);
    m.limit = a->limit;
    m.flags = c->flags;
    BY_CUDA_TRY(err, by_cuda_chain(c, moe_sort_kernel, dim3(1), 1024, 0, 1, view_of(a->idx), view_of(a->weight), table, a->n_experts, bt,
                                   sort));
    make_image<W_FP4>(c, a->x, sort.token, sort.count + 1, rows, m.x);
    BY_TRY(moe_products<W_FP4>(c, m, bt, static_cast<unsigned>(tiles), err));
    uint16_t *shared_out = a->shared ? by_cuda_take<uint16_t>(c, static_cast<size_t>(T * D)) : nullptr;
    if (a->shared) BY_TRY(shared_expert(c, a, all, shared_out, err));
    dim3 grid(static_cast<unsigned>(T), static_cast<unsigned>((D / 8 + 127) / 128));
    const uint16_t *out = reinterpret_cast<uint16_t *>(m.out), *far = reinterpret_cast<const uint16_t *>(view_of(a->part).p);
    int width = static_cast<int>(D), choices = static_cast<int>(k);
    if (!far) {
        BY_CUDA_TRY(err, by_cuda_chain(c, moe_sum_kernel, grid, 128, 0, 1, out, sort.place, far, shared_out, choices, width, view_of(a->y)));
        return BY_OK;
    }
    assert(a->part.dtype == BY_BF16 && a->part.stride == D * 2);
    BY_TRY(by_cuda_join(dev, err));
    BY_CUDA_TRY(err, by_cuda_launch(c, moe_sum_kernel, grid, 128, 0, out, sort.place, far, shared_out, choices, width, view_of(a->y)));
    return BY_OK;
}
