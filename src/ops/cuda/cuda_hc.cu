// cuda_hc.cu - hyper-connections: reading, writing and closing the residual streams. Source: model.md section 3.
//
// Reading runs as two kernels. The products with `fn` (24 x 20480 at the real size) are cut into chunks of 512 values, so that one
// token already keeps 40 multiprocessors busy; the cut depends on the width only. The second kernel adds the chunks in order, makes
// the coefficients (one warp) while the other warps mix the streams, then norms and quantises; with many tokens the coefficients are
// a kernel of their own.
//
// Four bf16 streams multiply on the matrix unit: an fp32 weight is the sum of three bf16 numbers, so that all products are exact. A
// chunk is then 128 channels of all four streams, 32 for each of four warps: a lane has the same channels of all streams, and can write
// the sublayer's output back before it multiplies.
#include "ops/cuda/cuda.cuh"

enum { CHUNK = BY_SCRATCH_HC_CHUNK, VALUES = BY_SCRATCH_HC_VALUES, PART_WARPS = 8, Z_MAX = 31 };
enum { FAST_WARPS = 4, FAST_ROWS = 16, FAST_STEPS = 8, FAST_PITCH = 25 };

struct hc_view {
    view h, out, pre, fn, base, scale, norm, y, y_a8, next_pre, post, comb;
    const int32_t *rows; /* of the mixing: which tokens, NULL = all */
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

// Any streams: a warp takes a token at a time; lanes take pairs of channels; fn's chunk lies in shared memory.
template <int N> __global__ void __launch_bounds__(PART_WARPS * 32) hc_part_kernel(hc_view a) {
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
    for (int t = t0 + (threadIdx.x >> 5); t < end; t += PART_WARPS) {
        float v[VALUES] = {};
        float2 hs[CHUNK / 64];
        const unsigned char *h = a.h.row(t);
#pragma unroll
        for (int i = 0; i < CHUNK / 64; i++) {
            int c = c0 + 2 * (i * 32 + lane);
            hs[i] = {0, 0};
            if (c < mD) hs[i] = {value_at(a.h.dtype, h, 0, c), value_at(a.h.dtype, h, 0, c + 1)};
        }
#pragma unroll
        for (int i = 0; i < CHUNK / 64; i++) {
#pragma unroll
            for (int j = 0; j < (N ? N : Z_MAX); j++) {
                if (!N && j >= n) break;
                float2 w = fn[j * (CHUNK / 2) + i * 32 + lane];
                v[j] = fmaf(w.y, hs[i].y, fmaf(w.x, hs[i].x, v[j]));
            }
            v[31] = fmaf(hs[i].y, hs[i].y, fmaf(hs[i].x, hs[i].x, v[31]));
        }
        float sum = warp_sum_each(v, lane);
        a.part[(static_cast<int64_t>(t) * a.chunks + blockIdx.x) * VALUES + lane] = sum;
    }
}

/* ---- the same on the matrix unit --------------------------------------------------------------------------------- */

/* Eight channels of stream j behind a sublayer: post[j] * out + sum over k of comb[k][j] * h[k], packed. */
struct hc_row {
    float4 post, comb[4];
    uint4 out, h[4];
};
__device__ static inline float of4(const float4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ static inline uint32_t of4(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ static inline float post_value(const float4 &post, const float4 (&comb)[4], int j, float out, const float (&h)[4]) {
    float y = of4(post, j) * out;
#pragma unroll
    for (int k = 0; k < 4; k++) y = fmaf(of4(comb[k], j), h[k], y);
    return y;
}
__device__ static inline uint4 post_words(const hc_row &r, int j) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t o = of4(r.out, i);
        float lo[4], hi[4];
#pragma unroll
        for (int k = 0; k < 4; k++) lo[k] = __uint_as_float(of4(r.h[k], i) << 16), hi[k] = __uint_as_float(of4(r.h[k], i) & 0xffff0000u);
        w[i] = bf16_bits(post_value(r.post, r.comb, j, __uint_as_float(o << 16), lo)) |
               static_cast<uint32_t>(bf16_bits(post_value(r.post, r.comb, j, __uint_as_float(o & 0xffff0000u), hi))) << 16;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Of four weights the first, second and third eight bits of their fractions, as pairs of bf16: their sum is the weight. */
struct split_weight {
    uint32_t w[3][2];
};
__device__ static inline split_weight split_of(const float4 &v) {
    split_weight s;
    float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int p = 0; p < 3; p++) {
        s.w[p][0] = __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x7632);
        s.w[p][1] = __byte_perm(__float_as_uint(x[2]), __float_as_uint(x[3]), 0x7632);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] -= __uint_as_float(__float_as_uint(x[i]) & 0xffff0000u);
    }
    return s;
}

/* Sums of a tile of 16 tokens: products with the leading parts of the weights, with the others, squares of the first and of the second
 * eight tokens (on the diagonal). */
struct hc_sums {
    float lead[3][4], rest[3][4], square[2][4];
};
__device__ static inline void multiply(hc_sums &sum, const uint32_t (&a)[4], const split_weight &w, int n) {
    mma16x8(sum.lead[n], a, w.w[0][0], w.w[0][1]);
    mma16x8(sum.rest[n], a, w.w[1][0], w.w[1][1]);
    mma16x8(sum.rest[n], a, w.w[2][0], w.w[2][1]);
}
__device__ static inline void load_row(const hc_view &a, int t, int at, bool post, hc_row &r) {
    int D = a.h.cols / 4;
#pragma unroll
    for (int k = 0; k < 4; k++) r.h[k] = *reinterpret_cast<const uint4 *>(a.h.row(t) + 2 * (k * D + at));
    if (!post) return;
    r.out = *reinterpret_cast<const uint4 *>(a.out.row(t) + 2 * at);
    r.post = *reinterpret_cast<const float4 *>(a.post.f32(t));
#pragma unroll
    for (int k = 0; k < 4; k++) r.comb[k] = reinterpret_cast<const float4 *>(a.comb.f32(t))[k];
}
/* Writes the output back, if there is one; what the streams are then. */
__device__ static inline void finish_row(const hc_view &a, int t, int at, bool post, const hc_row &r, uint4 (&h)[4]) {
    int D = a.h.cols / 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        h[j] = post ? post_words(r, j) : r.h[j];
        if (post) *reinterpret_cast<uint4 *>(a.h.row(t) + 2 * (j * D + at)) = h[j];
    }
}

/* A block: 128 channels of all streams, a tile of 16 tokens or (MANY) several of them. Bits are those of the same order of sums either
 * way: a warp's 8 steps of 16 values (stream, half of a lane's channels), then the four warps. */
template <bool POST, bool MANY> __global__ void __launch_bounds__(FAST_WARPS * 32, 2) hc_part_fast_kernel(hc_view a) {
    __shared__ float sums[2][FAST_WARPS][FAST_ROWS][FAST_PITCH];
    int warp = threadIdx.x >> 5, g = threadIdx.x >> 2 & 7, c = threadIdx.x & 3, D = a.h.cols / 4;
    int at = (blockIdx.x * FAST_WARPS + warp) * 32 + c * 8;
    float4 raw[FAST_STEPS][3];
#pragma unroll
    for (int s = 0; s < FAST_STEPS; s++)
#pragma unroll
        for (int n = 0; n < 3; n++) raw[s][n] = *reinterpret_cast<const float4 *>(a.fn.f32(n * 8 + g) + s / 2 * D + at + s % 2 * 4);
    split_weight w[MANY ? FAST_STEPS : 1][3];
    if constexpr (MANY) {
#pragma unroll
        for (int s = 0; s < FAST_STEPS; s++)
#pragma unroll
            for (int n = 0; n < 3; n++) w[s][n] = split_of(raw[s][n]);
    }
    depend_wait(); /* the weights do not: they were there before any kernel of this step */
    depend_launch();
    int t0 = blockIdx.y * a.tokens_per_block, end = min(t0 + a.tokens_per_block, a.h.rows), buffer = 0;
#pragma unroll 1
    for (int t = t0; t < end; t += FAST_ROWS, buffer ^= 1) {
        uint4 h[2][4] = {};
        bool some = t + g < end, more = t + 8 + g < end;
        hc_row row;
        if (some) load_row(a, t + g, at, POST, row);
        if constexpr (POST && MANY) { /* no registers for both rows at once */
            if (some) finish_row(a, t + g, at, POST, row, h[0]);
            if (more) {
                load_row(a, t + 8 + g, at, POST, row);
                finish_row(a, t + 8 + g, at, POST, row, h[1]);
            }
        } else {
            hc_row next;
            if (more) load_row(a, t + 8 + g, at, POST, next);
            if (some) finish_row(a, t + g, at, POST, row, h[0]);
            if (more) finish_row(a, t + 8 + g, at, POST, next, h[1]);
        }
        hc_sums sum = {};
#pragma unroll
        for (int s = 0; s < FAST_STEPS; s++) {
            const uint32_t x[4] = {of4(h[0][s / 2], s % 2 * 2), of4(h[1][s / 2], s % 2 * 2), of4(h[0][s / 2], s % 2 * 2 + 1),
                                   of4(h[1][s / 2], s % 2 * 2 + 1)};
#pragma unroll
            for (int n = 0; n < 3; n++) multiply(sum, x, MANY ? w[MANY ? s : 0][n] : split_of(raw[s][n]), n);
            mma16x8(sum.square[0], x, x[0], x[2]);
            mma16x8(sum.square[1], x, x[1], x[3]);
        }
        float(*own)[FAST_PITCH] = sums[buffer][warp];
#pragma unroll
        for (int n = 0; n < 3; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) own[g + i / 2 * 8][n * 8 + 2 * c + i % 2] = sum.lead[n][i] + sum.rest[n][i];
        if (c == g / 2) {
            own[g][24] = g % 2 ? sum.square[0][1] : sum.square[0][0];
            own[g + 8][24] = g % 2 ? sum.square[1][3] : sum.square[1][2];
        }
        __syncthreads(); /* one is enough: the next tile's sums lie in the other buffer */
        int value = threadIdx.x & 31, from = min(value, 24);
#pragma unroll
        for (int i = warp; i < FAST_ROWS; i += FAST_WARPS) {
            float v = 0;
#pragma unroll
            for (int k = 0; k < FAST_WARPS; k++) v += sums[buffer][k][i][from];
            if (t + i < end) a.part[(static_cast<int64_t>(t + i) * a.chunks + blockIdx.x) * VALUES + value] = v;
        }
        if (!MANY) break;
    }
}

/* ---- writing back --------------------------------------------------------------------------------------------------- */

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
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float old[4] = {x[0][k], x[1][k], x[2][k], x[3][k]};
            y[k] = post_value(p, c, j, o[k], old);
        }
        store8(h.dtype, h.row(t), j * D + i, y);
    }
}

static bool wide_view(const view &v) { return ((reinterpret_cast<uintptr_t>(v.p) | static_cast<uintptr_t>(v.stride)) & 15) == 0; }
static by_status launch_post(by_cuda *c, const view &h, const view &out, const view &post, const view &comb, int m, by_err *err) {
    unsigned rows = static_cast<unsigned>(h.rows);
    if (m == 4 && h.cols % 1024 == 0 && wide_view(h) && wide_view(out) && wide_view(post) && wide_view(comb)) {
        dim3 grid(rows, static_cast<unsigned>((h.cols / 32 + 127) / 128));
        BY_CUDA_TRY(err, by_cuda_chain(c, hc_post4_kernel, grid, 128, 0, 1, h, out, post, comb));
        return BY_OK;
    }
    dim3 grid(rows, static_cast<unsigned>((h.cols / m + 511) / 512));
    BY_CUDA_TRY(err, by_cuda_chain(c, hc_post_kernel, grid, 256, 0, 1, h, out, post, comb, m));
    return BY_OK;
}

/* ---- coefficients, mixing ------------------------------------------------------------------------------------------ */

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

/* The same for four streams, one warp, in registers; z: of this lane. Normalising rows and columns in turn multiplies the matrix by a
 * factor for each: u[i] K[i][j] v[j]. A column's new factor is 1 / (sum over i of u[i] K[i][j] + eps / v[j]), and 1 / v[j] is at hand. */
struct hc_bias {
    float base, scale[3];
};
__device__ static inline hc_bias load_bias(const hc_view &a, int lane) {
    const float *scale = a.scale.f32(0);
    return {lane < 24 ? a.base.f32(0)[lane] : 0, {scale[0], scale[1], scale[2]}};
}
__device__ static void coefficients4(const hc_view &a, int t, float z, const hc_bias &bias, int lane) {
    float x = fmaf(z, lane < 4 ? bias.scale[0] : lane < 8 ? bias.scale[1] : bias.scale[2], bias.base);
    if (lane < 4) a.next_pre.f32(t)[lane] = sigmoid(x) + a.hc_eps;
    else if (lane < 8) a.post.f32(t)[lane - 4] = 2 * sigmoid(x);
    int e = lane & 15, i = lane & 3;
    float k = __shfl_sync(~0u, x, 8 + e), top = k; /* lane 4 i + j has K[i][j] */
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    k = expf(k - top);
    float s = k + __shfl_xor_sync(~0u, k, 1);
    s += __shfl_xor_sync(~0u, s, 2);
    k = k / s + a.hc_eps;
    float row[4], col[4], u = 1, v = 1, du = 1, dv = 1; /* of row i and column i; du = 1 / u */
#pragma unroll
    for (int j = 0; j < 4; j++) row[j] = __shfl_sync(~0u, k, 4 * i + j), col[j] = __shfl_sync(~0u, k, 4 * j + i);
    for (int it = 0; it < a.iters; it++) {
        if (it > 0) {
            du *= a.hc_eps;
#pragma unroll
            for (int j = 0; j < 4; j++) du = fmaf(row[j], __shfl_sync(~0u, v, j), du);
            u = reciprocal_fast(du);
        }
        dv *= a.hc_eps;
#pragma unroll
        for (int j = 0; j < 4; j++) dv = fmaf(col[j], __shfl_sync(~0u, u, j), dv);
        v = reciprocal_fast(dv);
    }
    k *= __shfl_sync(~0u, u, e / 4) * __shfl_sync(~0u, v, e & 3);
    if (lane < 16) a.comb.f32(t)[lane] = k;
}
/* Lane's sum over the chunks, times the reciprocal of the streams' rms. */
__device__ static inline float normed_sum(const hc_view &a, int t, int lane) {
    const float *part = a.part + static_cast<int64_t>(t) * a.chunks * VALUES + lane;
    float z = 0;
#pragma unroll 20
    for (int k = 0; k < a.chunks; k++) z += part[k * VALUES];
    return z * rsqrtf(__shfl_sync(~0u, z, 31) / static_cast<float>(a.h.cols) + a.norm_eps);
}

/* One warp a token. */
__global__ void __launch_bounds__(128) hc_coefficients_kernel(hc_view a) {
    int lane = threadIdx.x & 31, t = blockIdx.x * 4 + (threadIdx.x >> 5);
    hc_bias bias = load_bias(a, lane);
    depend_wait();
    depend_launch();
    if (t < a.h.rows) coefficients4(a, t, normed_sum(a, t, lane), bias, lane);
}

/* Sums of the streams' channels i .. i + 7. HALF: they are bf16, and stay packed until they are used. */
template <bool HALF> __device__ static inline void mix8(const hc_view &a, int t, int i, const float4 &pre, float (&v)[8]) {
    int D = a.h.cols / 4;
    if constexpr (HALF) {
        uint4 x[4];
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] = *reinterpret_cast<const uint4 *>(a.h.row(t) + 2 * (k * D + i));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[2 * j] = pre.x * __uint_as_float(of4(x[0], j) << 16);
            v[2 * j + 1] = pre.x * __uint_as_float(of4(x[0], j) & 0xffff0000u);
#pragma unroll
            for (int k = 1; k < 4; k++) {
                v[2 * j] = fmaf(of4(pre, k), __uint_as_float(of4(x[k], j) << 16), v[2 * j]);
                v[2 * j + 1] = fmaf(of4(pre, k), __uint_as_float(of4(x[k], j) & 0xffff0000u), v[2 * j + 1]);
            }
        }
    } else {
        float x[8];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            load8(a.h.dtype, a.h.row(t), 0, k * D + i, x);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = k ? fmaf(of4(pre, k), x[j], v[j]) : pre.x * x[j];
        }
    }
}

/* Four streams of up to 5,120 channels, eight a thread. COEFFICIENTS: the first warp makes them; the others do not wait for it. */
template <bool COEFFICIENTS, bool HALF> __global__ void __launch_bounds__(672, 2) hc_finish4_kernel(hc_view a) {
    __shared__ float part[32];
    constexpr int SKIP = COEFFICIENTS ? 32 : 0;
    int t = blockIdx.x, mD = a.h.cols, D = mD / 4, lane = threadIdx.x & 31, i = (static_cast<int>(threadIdx.x) - SKIP) * 8;
    bool first = COEFFICIENTS && threadIdx.x < 32;
    hc_bias bias = {};
    uint4 norm = {};
    float z = 0, v[8] = {}, s = 0;
    if (first) {
        bias = load_bias(a, lane);
        depend_wait();
        depend_launch();
        z = normed_sum(a, t, lane);
    } else {
        norm = *reinterpret_cast<const uint4 *>(a.norm.p + 2 * i);
        if (a.rows) t = a.rows[t]; /* as old as the step's description */
        depend_wait();
        depend_launch();
        float4 pre = *reinterpret_cast<const float4 *>(a.pre.f32(t));
        mix8<HALF>(a, t, i, pre, v);
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = round_to(a.y.dtype, v[k]), s = fmaf(v[k], v[k], s);
    }
    if (COEFFICIENTS) __syncthreads(); /* next_pre may be pre, which the others have read */
    if (first) return coefficients4(a, t, z, bias, lane);
    s = warp_sum(s);
    if (lane == 0) part[threadIdx.x >> 5] = s;
    bar_sync(1, D / 8);
    s = 0;
    for (int k = SKIP / 32; k < (D / 8 + SKIP) / 32; k++) s += part[k];
    float r = 1.0f / sqrtf(s / static_cast<float>(D) + a.norm_eps);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[2 * k] = round_to(a.y.dtype, v[2 * k] * r * __uint_as_float(of4(norm, k) << 16));
        v[2 * k + 1] = round_to(a.y.dtype, v[2 * k + 1] * r * __uint_as_float(of4(norm, k) & 0xffff0000u));
    }
    store8(a.y.dtype, a.y.row(blockIdx.x), i, v);
    if (a.y_a8.p) quantise8(a.y_a8.row(blockIdx.x), D, i, v);
}

/* Whether the mixing for four streams and 16-byte accesses will do. */
static bool wide_mix(int m, const by_tensor &h, const by_tensor &pre, const by_tensor &norm, const by_tensor &y) {
    return m == 4 && h.cols % 1024 == 0 && h.cols <= 4 * 5120 && wide_row(h, 16) && wide_row(pre, 16) && wide_row(norm, 16) &&
           wide_row(y, 16);
}

/* Products with fn, behind the sublayer's output if it is to be written back. */
static by_status launch_part(by_cuda *c, const hc_view &a, by_err *err) {
    hc_view v = a;
    int T = a.h.rows, n = a.m * (a.m + 2);
    if (v.wide && a.h.dtype == BY_BF16 && a.fn.dtype == BY_F32 && (!a.out.p || a.out.dtype == BY_BF16)) {
        int tiles = (T + FAST_ROWS - 1) / FAST_ROWS, each = (tiles + 5) / 6; /* two blocks a multiprocessor: six times 40 at once */
        each = each < 8 ? each : 8;
        v.tokens_per_block = each * FAST_ROWS;
        auto part = each > 1 ? a.out.p ? hc_part_fast_kernel<true, true> : hc_part_fast_kernel<false, true>
                             : a.out.p ? hc_part_fast_kernel<true, false> : hc_part_fast_kernel<false, false>;
        dim3 grid(static_cast<unsigned>(a.chunks), static_cast<unsigned>((tiles + each - 1) / each));
        BY_CUDA_TRY(err, by_cuda_chain(c, part, grid, FAST_WARPS * 32, 0, 1, v));
        return BY_OK;
    }
    if (a.out.p) BY_TRY(launch_post(c, a.h, a.out, a.post, a.comb, a.m, err));
    v.tokens_per_block = T <= 64 ? PART_WARPS : 64;
    dim3 grid(static_cast<unsigned>(a.chunks), static_cast<unsigned>((T + v.tokens_per_block - 1) / v.tokens_per_block));
    size_t smem = static_cast<size_t>(n) * CHUNK * 4;
    auto part = n != 24 ? hc_part_kernel<0> : hc_part_kernel<24>;
    BY_TRY(by_cuda_smem(part, smem, err));
    BY_CUDA_TRY(err, by_cuda_chain(c, part, grid, PART_WARPS * 32, smem, 1, v));
    return BY_OK;
}

by_status by_cuda_hc_mix(by_device *dev, const by_hc_mix_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int T = static_cast<int>(a->h.rows), n = a->m * (a->m + 2), mD = static_cast<int>(a->h.cols), D = mD / a->m;
    if (T == 0) return BY_OK;
    if (n > Z_MAX || mD % 2)
        return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: hc_mult %d: at most 4 streams are supported", a->m);
    int chunks = (mD + CHUNK - 1) / CHUNK;
    BY_TRY(by_cuda_scratch(c, static_cast<size_t>(by_scratch_hc(T, mD)), err));
    hc_view v = {view_of(a->h), view_of(a->out), view_of(a->pre), view_of(a->fn), view_of(a->base), view_of(a->scale), view_of(a->norm),
                 view_of(a->y), view_of(a->y_a8), view_of(a->next_pre), view_of(a->post), view_of(a->comb), nullptr,
                 by_cuda_take<float>(c, static_cast<size_t>(T) * chunks * VALUES), a->m, a->iters, chunks, 0, a->norm_eps, a->hc_eps, false};
    v.wide = wide_mix(a->m, a->h, a->pre, a->norm, a->y) && wide_row(a->out, 16) && wide_row(a->fn, 16) && wide_row(a->y_a8, 8) &&
             wide_row(a->post, 16) && wide_row(a->comb, 16);
    BY_TRY(launch_part(c, v, err));
    dim3 rows(static_cast<unsigned>(T));
    bool half = a->h.dtype == BY_BF16;
    if (v.wide && T <= 2 * c->sms) {
        auto finish = half ? hc_finish4_kernel<true, true> : hc_finish4_kernel<true, false>;
        BY_CUDA_TRY(err, by_cuda_chain(c, finish, rows, D / 8 + 32, 0, 1, v));
    } else if (v.wide) { /* the mixing reads pre first */
        auto finish = half ? hc_finish4_kernel<false, true> : hc_finish4_kernel<false, false>;
        BY_CUDA_TRY(err, by_cuda_chain(c, finish, rows, D / 8, 0, 1, v));
        BY_CUDA_TRY(err, by_cuda_chain(c, hc_coefficients_kernel, dim3(static_cast<unsigned>((T + 3) / 4)), 128, 0, 1, v));
    } else {
        BY_TRY(by_cuda_smem(hc_finish_kernel, static_cast<size_t>(D) * 4, err));
        BY_CUDA_TRY(err, by_cuda_chain(c, hc_finish_kernel, rows, 288, static_cast<size_t>(D) * 4, 1, v));
    }
    BY_CUDA_LAUNCHED(err, "hc_mix");
    return BY_OK;
}

by_status by_cuda_hc_post(by_device *dev, const by_hc_post_args *a, by_err *err) {
    if (a->h.rows == 0) return BY_OK;
    BY_TRY(launch_post(by_cuda_of(dev), view_of(a->h), view_of(a->out), view_of(a->post), view_of(a->comb), a->m, err));
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
    by_cuda *c = by_cuda_of(dev);
    dim3 rows(static_cast<unsigned>(a->rows.rows));
    if (wide_mix(a->m, a->h, a->pre, a->norm, a->y)) {
        hc_view v = {};
        v.h = view_of(a->h), v.pre = view_of(a->pre), v.norm = view_of(a->norm), v.y = view_of(a->y);
        v.rows = i32_of(a->rows), v.norm_eps = a->eps;
        bool half = a->h.dtype == BY_BF16;
        auto mix = half ? hc_finish4_kernel<false, true> : hc_finish4_kernel<false, false>;
        BY_CUDA_TRY(err, by_cuda_chain(c, mix, rows, static_cast<int>(a->h.cols / 32), 0, 1, v));
        BY_CUDA_LAUNCHED(err, "hc_close");
        return BY_OK;
    }
    size_t smem = static_cast<size_t>(a->h.cols / a->m) * 4;
    BY_TRY(by_cuda_smem(hc_close_kernel, smem, err));
    BY_CUDA_TRY(err, by_cuda_chain(c, hc_close_kernel, rows, 256, smem, 1, view_of(a->h), view_of(a->pre), view_of(a->norm),
                                   view_of(a->rows), view_of(a->y), a->m, a->eps));
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
