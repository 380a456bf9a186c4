// cuda_hc.cu - hyper-connections: reading, writing and closing the residual streams. Source: model.md section 3.
//
// Reading runs as two kernels. The products with `fn` (24 x 20480 at the real size) are cut into chunks of 512 channels,
// so that one token already keeps 40 multiprocessors busy; the cut depends on the width only. The second kernel adds the
// chunks in order, makes the coefficients (one warp) while the other warps mix the streams, then norms and quantises.
#include "ops/cuda/cuda.cuh"

enum { CHUNK = BY_SCRATCH_HC_CHUNK, VALUES = BY_SCRATCH_HC_VALUES, PART_WARPS = 8, Z_MAX = 31 };

struct hc_view {
    view h, pre, fn, base, scale, norm, y, y_a8, next_pre, post, comb;
    float *part; /* [T, chunks, 32]: products with the rows of fn, then the sum of squares at 31 */
    int m, iters, chunks, tokens_per_block;
    float norm_eps, hc_eps;
    bool wide; /* rows allow 16-byte accesses, four streams, width a multiple of 256 */
};

// v[i] summed over the warp for i = lane: 31 exchanges for 32 sums. (Recursion, so that v stays in registers.)
template <int M = 16> __device__ static inline float warp_sum_each(float (&v)[VALUES], int lane) {
#pragma unroll
    for (int i = 0; i < M; i++) {
        float send = lane & M ? v[i] : v[i + M], keep = lane & M ? v[i + M] : v[i];
        v[i] = keep + __shfl_xor_sync(~0u, send, M);
    }
    if constexpr (M > 1) return warp_sum_each<M / 2>(v, lane);
    return v[0];
}

// Each warp takes TOK tokens at a time; lanes take pairs of channels; fn's chunk lies in shared memory.
template <int N, int TOK> __global__ void __launch_bounds__(PART_WARPS * 32) hc_part_kernel(hc_view a) {
    BY_CUDA_DYNAMIC(float2, fn); /* [n][CHUNK / 2] */
    int n = N ? N : a.m * (a.m + 2), c0 = blockIdx.x * CHUNK, mD = a.h.cols, lane = threadIdx.x & 31;
    if (a.fn.dtype == BY_F32 && a.wide) {
#pragma unroll 12
        for (int i = threadIdx.x; i < n * (CHUNK / 4); i += PART_WARPS * 32) {
            int row = i / (CHUNK / 4), c = c0 + i % (CHUNK / 4) * 4;
            float4 w = {0, 0, 0, 0};
            if (c < mD) w = *reinterpret_cast<const float4 *>(a.fn.f32(row) + c);
            reinterpret_cast<float4 *>(fn)[i] = w;
        }
    } else {
        for (int i = threadIdx.x; i < n * (CHUNK / 2); i += blockDim.x) {
            int row = i / (CHUNK / 2), c = c0 + i % (CHUNK / 2) * 2;
            float2 w = {0, 0};
            if (c < mD) w = {value_at(a.fn.dtype, a.fn.row(row), 0, c), value_at(a.fn.dtype, a.fn.row(row), 0, c + 1)};
            fn[i] = w;
        }
    }
    depend_wait(); /* the weights do not: they were there before any kernel of this step */
    depend_launch();
    __syncthreads();
    int t0 = blockIdx.y * a.tokens_per_block, end = min(t0 + a.tokens_per_block, a.h.rows);
    for (int t = t0 + (threadIdx.x >> 5) * TOK; t < end; t += PART_WARPS * TOK) {
        float v[TOK][VALUES] = {};
        float2 hs[TOK][CHUNK / 64];
#pragma unroll
        for (int k = 0; k < TOK; k++) {
            const unsigned char *h = a.h.row(min(t + k, end - 1));
#pragma unroll
            for (int i = 0; i < CHUNK / 64; i++) {
                int c = c0 + 2 * (i * 32 + lane);
                hs[k][i] = {0, 0};
                if (c < mD && a.h.dtype == BY_BF16 && a.wide) {
                    uint32_t w = *reinterpret_cast<const uint32_t *>(h + 2 * c);
                    hs[k][i] = {__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)};
                } else if (c < mD) {
                    hs[k][i] = {value_at(a.h.dtype, h, 0, c), value_at(a.h.dtype, h, 0, c + 1)};
                }
            }
        }
#pragma unroll
        for (int i = 0; i < CHUNK / 64; i++) {
#pragma unroll
            for (int j = 0; j < (N ? N : Z_MAX); j++) {
                if (!N && j >= n) break;
                float2 w = fn[j * (CHUNK / 2) + i * 32 + lane];
#pragma unroll
                for (int k = 0; k < TOK; k++) v[k][j] = fmaf(w.y, hs[k][i].y, fmaf(w.x, hs[k][i].x, v[k][j]));
            }
#pragma unroll
            for (int k = 0; k < TOK; k++) v[k][31] = fmaf(hs[k][i].y, hs[k][i].y, fmaf(hs[k][i].x, hs[k][i].x, v[k][31]));
        }
#pragma unroll
        for (int k = 0; k < TOK; k++) {
            float sum = warp_sum_each(v[k], lane);
            if (t + k < end) a.part[(static_cast<int64_t>(t + k) * a.chunks + blockIdx.x) * VALUES + lane] = sum;
        }
    }
}

/* The same sums for few tokens: a warp has three of the 24 rows of fn, which are in registers before the streams are there. */
__global__ void __launch_bounds__(PART_WARPS * 32) hc_part_few_kernel(hc_view a) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, t = blockIdx.y, c0 = blockIdx.x * CHUNK + 2 * lane;
    float2 w[3][CHUNK / 64], h[CHUNK / 64];
    float v[3] = {}, square = 0;
#pragma unroll
    for (int j = 0; j < 3; j++)
#pragma unroll
        for (int i = 0; i < CHUNK / 64; i++) w[j][i] = *reinterpret_cast<const float2 *>(a.fn.f32(warp * 3 + j) + c0 + 64 * i);
    depend_wait();
    depend_launch();
#pragma unroll
    for (int i = 0; i < CHUNK / 64; i++) {
        h[i] = {value_at(a.h.dtype, a.h.row(t), 0, c0 + 64 * i), value_at(a.h.dtype, a.h.row(t), 0, c0 + 64 * i + 1)};
    }
#pragma unroll
    for (int i = 0; i < CHUNK / 64; i++) {
#pragma unroll
        for (int j = 0; j < 3; j++) v[j] = fmaf(w[j][i].y, h[i].y, fmaf(w[j][i].x, h[i].x, v[j]));
        square = fmaf(h[i].y, h[i].y, fmaf(h[i].x, h[i].x, square));
    }
    float *to = a.part + (static_cast<int64_t>(t) * a.chunks + blockIdx.x) * VALUES;
#pragma unroll
    for (int j = 0; j < 3; j++) {
        v[j] = warp_sum(v[j]);
        if (lane == 0) to[warp * 3 + j] = v[j];
    }
    square = warp_sum(square);
    if (threadIdx.x == 0) to[31] = square;
}

__device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// One warp: from z (in shared memory) to next_pre, post and comb of token t. c: m * m floats of shared memory.
__device__ static void coefficients(const hc_view &a, int t, const float *z, float *c) {
    int m = a.m, mm = m * m, lane = threadIdx.x & 31;
    const float *base = a.base.f32(0), *scale = a.scale.f32(0);
    if (lane < m) {
        a.next_pre.f32(t)[lane] = sigmoid(z[lane] * scale[0] + base[lane]) + a.hc_eps;
        a.post.f32(t)[lane] = 2 * sigmoid(z[m + lane] * scale[1] + base[m + lane]);
    }
    for (int i = lane; i < mm; i += 32) c[i] = z[2 * m + i] * scale[2] + base[2 * m + i];
    __syncwarp();
    for (int it = -1; it < 2 * a.iters - 1; it++) { /* -1: softmax of rows; even: columns; odd: rows */
        float v[2];
        for (int i = lane, k = 0; i < mm; i += 32, k++) {
            int row = i / m, col = i % m;
            float sum = a.hc_eps, top = c[row * m];
            if (it < 0) {
                sum = 0;
                for (int j = 1; j < m; j++) top = fmaxf(top, c[row * m + j]);
                for (int j = 0; j < m; j++) sum += expf(c[row * m + j] - top);
                v[k] = expf(c[i] - top) / sum + a.hc_eps;
            } else {
                for (int j = 0; j < m; j++) sum += it & 1 ? c[row * m + j] : c[j * m + col];
                v[k] = c[i] / sum;
            }
        }
        __syncwarp();
        for (int i = lane, k = 0; i < mm; i += 32, k++) c[i] = v[k];
        __syncwarp();
    }
    for (int i = lane; i < mm; i += 32) a.comb.f32(t)[i] = c[i];
}

__global__ void __launch_bounds__(288) hc_finish_kernel(hc_view a) {
    prefetch_weights(a.norm.p, a.norm.cols * 2);
    depend_wait();
    depend_launch();
    BY_CUDA_DYNAMIC(float, u);
    __shared__ float part[32], z[VALUES], c[BY_LIMIT_HC_MULT * BY_LIMIT_HC_MULT];
    int t = blockIdx.x, m = a.m, mD = a.h.cols, D = mD / m, lane = threadIdx.x & 31;
    float pre[BY_LIMIT_HC_MULT];
#pragma unroll
    for (int i = 0; i < BY_LIMIT_HC_MULT; i++) pre[i] = i < m ? a.pre.f32(t)[i] : 0;
    __syncthreads(); /* next_pre may be pre */
    if (threadIdx.x < 32) {
        float s = 0;
        for (int k = 0; k < a.chunks; k++) s += a.part[(static_cast<int64_t>(t) * a.chunks + k) * VALUES + lane];
        float r = rsqrtf(__shfl_sync(~0u, s, 31) / static_cast<float>(mD) + a.norm_eps);
        z[lane] = s * r;
        __syncwarp();
        coefficients(a, t, z, c);
    } else {
        const unsigned char *h = a.h.row(t);
        for (int i = threadIdx.x - 32; i < D; i += blockDim.x - 32) {
            float s = 0;
#pragma unroll
            for (int k = 0; k < BY_LIMIT_HC_MULT; k++)
                if (k < m) s += pre[k] * value_at(a.h.dtype, h, 0, k * D + i);
            u[i] = round_to(a.y.dtype, s);
        }
    }
    __syncthreads();
    block_norm(u, a.norm.p, D, a.norm_eps, a.y.dtype, part);
    block_store_row(a.y.dtype, a.y.row(t), u, D);
    if (a.y_a8.p) block_store_row(BY_A8, a.y_a8.row(t), u, D);
}

/* Lane i < 16 holds c[i / 4][i % 4]: the same coefficients for four streams, in registers. */
__device__ static void coefficients4(const hc_view &a, int t, float z, int lane) {
    const float *base = a.base.f32(0), *scale = a.scale.f32(0);
    int i = lane & 15;
    float head = __shfl_sync(~0u, z, lane & 7), logit = __shfl_sync(~0u, z, 8 + i);
    if (lane < 4) a.next_pre.f32(t)[lane] = sigmoid(head * scale[0] + base[lane]) + a.hc_eps;
    else if (lane < 8) a.post.f32(t)[lane - 4] = 2 * sigmoid(head * scale[1] + base[lane]);
    float c = logit * scale[2] + base[8 + i], top = c;
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    c = expf(c - top);
    float s = c + __shfl_xor_sync(~0u, c, 1);
    s += __shfl_xor_sync(~0u, s, 2);
    c = c / s + a.hc_eps;
    for (int it = 0; it < a.iters; it++) {
        if (it > 0) {
            s = c + __shfl_xor_sync(~0u, c, 1);
            s += __shfl_xor_sync(~0u, s, 2);
            c = __fdividef(c, s + a.hc_eps);
        }
        s = c + __shfl_xor_sync(~0u, c, 4);
        s += __shfl_xor_sync(~0u, s, 8);
        c = __fdividef(c, s + a.hc_eps);
    }
    if (lane < 16) a.comb.f32(t)[lane] = c;
}

/* Four streams of up to 8 * 3 * 256 channels: one warp makes the coefficients, eight keep the mixed row in registers. */
__global__ void __launch_bounds__(288) hc_finish4_kernel(hc_view a) {
    prefetch_weights(a.norm.p, a.norm.cols * 2);
    depend_wait();
    depend_launch();
    __shared__ float part[32];
    int t = blockIdx.x, mD = a.h.cols, D = mD / 4, lane = threadIdx.x & 31, tid = static_cast<int>(threadIdx.x) - 32;
    float4 pre = *reinterpret_cast<const float4 *>(a.pre.f32(t));
    float v[3][8], s = 0;
    __syncthreads(); /* next_pre may be pre */
    if (tid < 0) {
        float z = 0;
#pragma unroll 20
        for (int k = 0; k < a.chunks; k++) z += a.part[(static_cast<int64_t>(t) * a.chunks + k) * VALUES + lane];
        z *= rsqrtf(__shfl_sync(~0u, z, 31) / static_cast<float>(mD) + a.norm_eps);
        coefficients4(a, t, z, lane);
    } else {
#pragma unroll
        for (int j = 0; j < 3; j++) {
            int i = (j * 256 + tid) * 8;
            if (i >= D) break;
            float x[4][8];
#pragma unroll
            for (int k = 0; k < 4; k++) load8(a.h.dtype, a.h.row(t), mD, k * D + i, x[k]);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float u = pre.x * x[0][k] + pre.y * x[1][k] + pre.z * x[2][k] + pre.w * x[3][k];
                v[j][k] = round_to(a.y.dtype, u);
                s += v[j][k] * v[j][k];
            }
        }
    }
    s = block_sum(s, part);
    if (tid < 0) return;
    float r = 1.0f / sqrtf(s / static_cast<float>(D) + a.norm_eps);
#pragma unroll
    for (int j = 0; j < 3; j++) {
        int i = (j * 256 + tid) * 8;
        if (i >= D) break;
        float w[8];
        load8(BY_BF16, a.norm.p, D, i, w);
#pragma unroll
        for (int k = 0; k < 8; k++) v[j][k] = round_to(a.y.dtype, v[j][k] * r * w[k]);
        store8(a.y.dtype, a.y.row(t), i, v[j]);
        if (a.y_a8.p) quantise8(a.y_a8.row(t), D, i, v[j]);
    }
}

by_status by_cuda_hc_mix(by_device *dev, const by_hc_mix_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int T = static_cast<int>(a->h.rows), n = a->m * (a->m + 2), mD = static_cast<int>(a->h.cols);
    if (T == 0) return BY_OK;
    if (n > Z_MAX || mD % 2)
        return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: hc_mult %d: at most 4 streams are supported", a->m);
    int chunks = (mD + CHUNK - 1) / CHUNK;
    BY_TRY(by_cuda_scratch(c, static_cast<size_t>(by_scratch_hc(T, mD)), err));
    hc_view v = {view_of(a->h), view_of(a->pre), view_of(a->fn), view_of(a->base), view_of(a->scale), view_of(a->norm),
                 view_of(a->y), view_of(a->y_a8), view_of(a->next_pre), view_of(a->post), view_of(a->comb),
                 by_cuda_take<float>(c, static_cast<size_t>(T) * chunks * VALUES), a->m, a->iters, chunks,
                 T <= 64 ? PART_WARPS : 64, a->norm_eps, a->hc_eps, false};
    v.wide = a->m == 4 && mD % 1024 == 0 && mD <= 4 * 6144 && wide_row(a->h, 16) && wide_row(a->fn, 16) && wide_row(a->y, 16) &&
             wide_row(a->y_a8, 8) && wide_row(a->norm, 16) && wide_row(a->pre, 16);
    dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>((T + v.tokens_per_block - 1) / v.tokens_per_block));
    size_t smem = static_cast<size_t>(n) * CHUNK * 4;
    bool few = T <= 8 && n == 24 && v.wide && a->fn.dtype == BY_F32 && mD % CHUNK == 0;
    if (few) {
        grid.y = static_cast<unsigned>(T);
        smem = 0;
    }
    auto part = few ? hc_part_few_kernel : n != 24 ? hc_part_kernel<0, 1> : T > 64 && T < 1024 ? hc_part_kernel<24, 2> : hc_part_kernel<24, 1>;
    BY_TRY(by_cuda_smem(part, smem, err));
    BY_CUDA_TRY(err, by_cuda_chain(c, part, grid, PART_WARPS * 32, smem, 1, v));
    if (v.wide) {
        BY_CUDA_TRY(err, by_cuda_chain(c, hc_finish4_kernel, dim3(static_cast<unsigned>(T)), 288, 0, 1, v));
        BY_CUDA_LAUNCHED(err, "hc_mix");
        return BY_OK;
    }
    BY_TRY(by_cuda_smem(hc_finish_kernel, static_cast<size_t>(mD / a->m) * 4, err));
    BY_CUDA_TRY(err, by_cuda_chain(c, hc_finish_kernel, dim3(static_cast<unsigned>(T)), 288,
                                static_cast<size_t>(mD / a->m) * 4, 1, v));
    BY_CUDA_LAUNCHED(err, "hc_mix");
    return BY_OK;
}

__global__ void hc_post_kernel(view h, view out, view post, view comb, int m) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, D = h.cols / m;
    const float *p = post.f32(t), *c = comb.f32(t);
    unsigned char *x = h.row(t);
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < D; i += gridDim.y * blockDim.x) {
        float o = value_at(out.dtype, out.row(t), 0, i), old[BY_LIMIT_HC_MULT];
#pragma unroll
        for (int k = 0; k < BY_LIMIT_HC_MULT; k++) old[k] = k < m ? value_at(h.dtype, x, 0, k * D + i) : 0;
        for (int j = 0; j < m; j++) {
            float s = p[j] * o;
#pragma unroll
            for (int k = 0; k < BY_LIMIT_HC_MULT; k++)
                if (k < m) s += c[k * m + j] * old[k];
            store_value(h.dtype, x, j * D + i, s);
        }
    }
}

/* Four streams, eight channels a thread. */
__global__ void __launch_bounds__(128) hc_post4_kernel(view h, view out, view post, view comb) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, D = h.cols / 4, i = (blockIdx.y * 128 + threadIdx.x) * 8;
    if (i >= D) return;
    float4 p = *reinterpret_cast<const float4 *>(post.f32(t)), c[4];
    float o[8], x[4][8], y[8];
#pragma unroll
    for (int k = 0; k < 4; k++) c[k] = reinterpret_cast<const float4 *>(comb.f32(t))[k], load8(h.dtype, h.row(t), 0, k * D + i, x[k]);
    load8(out.dtype, out.row(t), 0, i, o);
    const float scale[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float w[4] = {j == 0 ? c[0].x : j == 1 ? c[0].y : j == 2 ? c[0].z : c[0].w,
                            j == 0 ? c[1].x : j == 1 ? c[1].y : j == 2 ? c[1].z : c[1].w,
                            j == 0 ? c[2].x : j == 1 ? c[2].y : j == 2 ? c[2].z : c[2].w,
                            j == 0 ? c[3].x : j == 1 ? c[3].y : j == 2 ? c[3].z : c[3].w};
#pragma unroll
        for (int k = 0; k < 8; k++) y[k] = scale[j] * o[k] + w[0] * x[0][k] + w[1] * x[1][k] + w[2] * x[2][k] + w[3] * x[3][k];
        store8(h.dtype, h.row(t), j * D + i, y);
    }
}

by_status by_cuda_hc_post(by_device *dev, const by_hc_post_args *a, by_err *err) {
    if (a->h.rows == 0) return BY_OK;
    if (a->m == 4 && a->h.cols % 1024 == 0 && wide_row(a->h, 16) && wide_row(a->out, 16) && wide_row(a->post, 16) &&
        wide_row(a->comb, 16)) {
        dim3 grid(static_cast<unsigned>(a->h.rows), static_cast<unsigned>((a->h.cols / 32 + 127) / 128));
        BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), hc_post4_kernel, grid, 128, 0, 1, view_of(a->h), view_of(a->out),
                                    view_of(a->post), view_of(a->comb)));
        BY_CUDA_LAUNCHED(err, "hc_post");
        return BY_OK;
    }
    unsigned parts = static_cast<unsigned>((a->h.cols / a->m + 511) / 512);
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), hc_post_kernel, dim3(static_cast<unsigned>(a->h.rows), parts), 256, 0, 1,
                                view_of(a->h), view_of(a->out), view_of(a->post), view_of(a->comb), a->m));
    BY_CUDA_LAUNCHED(err, "hc_post");
    return BY_OK;
}

__global__ void hc_close_kernel(view h, view pre, view norm, view rows, view y, int m, float eps) {
    prefetch_weights(norm.p, norm.cols * 2);
    depend_wait();
    depend_launch();
    BY_CUDA_DYNAMIC(float, u);
    __shared__ float part[32];
    int i = blockIdx.x, t = *rows.i32(i), D = h.cols / m;
    for (int c = threadIdx.x; c < D; c += blockDim.x) {
        float s = 0;
        for (int k = 0; k < m; k++) s += pre.f32(t)[k] * value_at(h.dtype, h.row(t), 0, k * D + c);
        u[c] = round_to(y.dtype, s);
    }
    __syncthreads();
    block_norm(u, norm.p, D, eps, BY_F32, part);
    block_store_row(y.dtype, y.row(i), u, D);
}

by_status by_cuda_hc_close(by_device *dev, const by_hc_close_args *a, by_err *err) {
    if (a->rows.rows == 0) return BY_OK;
    size_t smem = static_cast<size_t>(a->h.cols / a->m) * 4;
    BY_TRY(by_cuda_smem(hc_close_kernel, smem, err));
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), hc_close_kernel, dim3(static_cast<unsigned>(a->rows.rows)), 256, smem, 1,
                                view_of(a->h), view_of(a->pre), view_of(a->norm), view_of(a->rows), view_of(a->y), a->m,
                                a->eps));
    BY_CUDA_LAUNCHED(err, "hc_close");
    return BY_OK;
}

/* Eight channels a thread. */
__global__ void __launch_bounds__(128) hc_read_kernel(view h, view pre, view rows, view y, int m, bool wide) {
    depend_wait();
    depend_launch();
    int i = blockIdx.x, t = rows.p ? *rows.i32(i) : i, D = h.cols / m, c = (blockIdx.y * 128 + threadIdx.x) * 8;
    if (c >= D) return;
    const float *p = pre.f32(t);
    if (wide) {
        float s[8] = {}, x[8];
        for (int k = 0; k < m; k++) {
            load8(h.dtype, h.row(t), 0, k * D + c, x);
#pragma unroll
            for (int j = 0; j < 8; j++) s[j] += p[k] * x[j];
        }
        store8(y.dtype, y.row(i), c, s);
        return;
    }
    for (int j = c; j < min(c + 8, D); j++) {
        float s = 0;
        for (int k = 0; k < m; k++) s += p[k] * value_at(h.dtype, h.row(t), 0, k * D + j);
        store_value(y.dtype, y.row(i), j, s);
    }
}

by_status by_cuda_hc_read(by_device *dev, const by_hc_read_args *a, by_err *err) {
    int64_t n = a->rows.mem ? a->rows.rows : a->h.rows, D = a->h.cols / a->m;
    if (n == 0) return BY_OK;
    bool wide = D % 8 == 0 && wide_row(a->h, 16) && wide_row(a->y, 16);
    dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>((D + 1023) / 1024)); /* y ends at 65535 */
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), hc_read_kernel, grid, 128, 0, 1, view_of(a->h), view_of(a->pre),
                                view_of(a->rows), view_of(a->y), a->m, wide));
    BY_CUDA_LAUNCHED(err, "hc_read");
    return BY_OK;
}
