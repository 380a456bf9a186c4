// cuda_draw.cu - draws tokens from rows of logits where they lie, by laws that keep every token: the same numbers in the same order
// as sample/sample_dist.c, sample_kernels.c and sample_pick.c, so that the token is the host's, bit for bit. One block a draw.
//
// Only integer sums and sums in a fixed order decide: blocks of 256 exponentials are added by 16 lanes and a tree, the blocks in
// order in double; masses are integers. No product is contracted with a sum.
#include <float.h>

#include "ops/cuda/cuda.cuh"

enum { DRAW_THREADS = 1024, DRAW_BLOCK = 256, DRAW_LANES = 8192, DRAW_EACH = DRAW_LANES / DRAW_THREADS };

/* by_sample_exp */
__device__ static inline float draw_exp(float x) {
    const float magic = 12582912.0f;
    float xc = x < -87.0f ? -87.0f : x, shifted = __fadd_rn(__fmul_rn(xc, 1.44269504088896341f), magic);
    uint32_t n = __float_as_uint(shifted) - __float_as_uint(magic);
    float nf = __fsub_rn(shifted, magic), r = __fsub_rn(xc, __fmul_rn(nf, 0.693359375f));
    r = __fsub_rn(r, __fmul_rn(nf, -2.12194440e-4f));
    float y = 1.9875691500e-4f;
    y = __fadd_rn(__fmul_rn(y, r), 1.3981999507e-3f);
    y = __fadd_rn(__fmul_rn(y, r), 8.3334519073e-3f);
    y = __fadd_rn(__fmul_rn(y, r), 4.1665795894e-2f);
    y = __fadd_rn(__fmul_rn(y, r), 1.6666665459e-1f);
    y = __fadd_rn(__fmul_rn(y, r), 5.0000001201e-1f);
    y = __fadd_rn(__fadd_rn(__fmul_rn(y, __fmul_rn(r, r)), r), 1.0f);
    float scaled = __fmul_rn(y, __uint_as_float((n + 127u) << 23));
    return x < -87.0f ? 0.0f : scaled;
}
/* by_sample_log of a positive normal number */
__device__ static double draw_log(double x) {
    uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x));
    int e = static_cast<int>(bits >> 52) - 1022;
    double m = __longlong_as_double(static_cast<long long>((bits & 0xfffffffffffffull) | 1022ull << 52));
    if (m < 0.70710678118654752) {
        m = __dmul_rn(m, 2);
        e--;
    }
    double s = __ddiv_rn(__dadd_rn(m, -1), __dadd_rn(m, 1)), s2 = __dmul_rn(s, s), sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = __dadd_rn(__dmul_rn(sum, s2), __ddiv_rn(1.0, k));
    return __dadd_rn(__dmul_rn(__dmul_rn(2, s), sum), __dmul_rn(e, 0.69314718055994531));
}
/* by_sample_mass of the exponential of a scaled logit */
__device__ static inline uint32_t draw_mass(float l, float max, float inv_t, float log_s) {
    float x = __fmul_rn(draw_exp(__fsub_rn(__fmul_rn(__fsub_rn(l, max), inv_t), log_s)), 0x1p31f);
    uint32_t high = x >= 0x1p31f ? 0x80000000u : 0;
    return static_cast<uint32_t>(static_cast<int32_t>(__fsub_rn(x, high ? 0x1p31f : 0.0f))) + high;
}

struct draw_shared {
    float part[32];
    double total[2]; /* of the draw's temperature, of the report's */
    uint64_t warp_sum[32];
    uint32_t lanes[DRAW_LANES];
    int32_t at, lane;
    uint64_t rest;
};

/* Sums of exp((x - max) * inv_t) over blocks of 256, to sum [blocks]: half a warp a block. */
__device__ static void sum_blocks(const float *row, int V, float max, float inv_t, float *sum) {
    int j = threadIdx.x & 15;
    for (int b = threadIdx.x / 16; b < (V + DRAW_BLOCK - 1) / DRAW_BLOCK; b += DRAW_THREADS / 16) {
        float acc = 0;
#pragma unroll
        for (int i = 0; i < DRAW_BLOCK / 16; i++) {
            int c = b * DRAW_BLOCK + i * 16 + j;
            float x = c < V ? __fmul_rn(__fsub_rn(row[c], max), inv_t) : -INFINITY;
            if (x >= -87.0f) acc = __fadd_rn(acc, draw_exp(x)); /* below, the exponential is 0 */
        }
        uint32_t half = 0xffffu << (threadIdx.x & 16);
        for (int m = 8; m; m >>= 1) acc = __fadd_rn(acc, __shfl_down_sync(half, acc, m, 16));
        if (j == 0) sum[b] = acc;
    }
}

/* Largest logit, the same in all threads; NaN when one is no number or +infinity. */
__device__ static float row_top(const float *row, int V, draw_shared &s) {
    float m = -INFINITY;
    int bad = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < V; i += DRAW_THREADS) {
        float x = row[i];
        m = fmaxf(m, x);
        bad |= !(x <= FLT_MAX);
    }
    m = warp_max(m);
    if ((threadIdx.x & 31) == 0) s.part[threadIdx.x >> 5] = m;
    if (__syncthreads_or(bad)) return NAN;
    return warp_max(s.part[threadIdx.x & 31]);
}

__device__ static uint32_t lane_count(int V) {
    uint32_t n = 1;
    while (n < static_cast<uint32_t>(V)) n *= 2;
    return V >= 8192 ? 2048 : n;
}
/* A number below total; false when no word would do. */
__device__ static bool draw_below(const by_draw &d, uint64_t total, uint64_t &r) {
    if (d.kind == BY_DRAW_SMOOTH) {
        r = static_cast<uint64_t>(static_cast<unsigned __int128>(d.words[0]) * total >> 32);
        return true;
    }
    uint64_t limit = 0xffffffffull / total * total;
    for (int i = 0; i < BY_DRAW_WORDS; i++) {
        if (limit != 0 && d.words[i] >= limit) continue;
        r = limit == 0 ? d.words[i] : d.words[i] % total;
        return true;
    }
    return false;
}

/* The token whose mass crosses the drawn number: masses by lane (column modulo the number of lanes), then within the lane. -1: none. */
__device__ static int32_t pick(const by_draw &d, const float *row, int V, float max, float log_s, draw_shared &s) {
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    uint32_t n = lane_count(V);
    for (uint32_t k = static_cast<uint32_t>(tid); k < n; k += DRAW_THREADS) {
        uint32_t sum = 0;
#pragma unroll 8
        for (int c = static_cast<int>(k); c < V; c += static_cast<int>(n)) sum += draw_mass(row[c], max, d.inv_t, log_s);
        s.lanes[k] = sum;
    }
    __syncthreads();
    uint64_t mine = 0; /* a thread goes on with neighbouring lanes */
    uint32_t first = static_cast<uint32_t>(tid) * DRAW_EACH;
    for (uint32_t k = first; k < first + DRAW_EACH && k < n; k++) mine += s.lanes[k];
    uint64_t run = mine;
    for (int m = 1; m < 32; m *= 2) {
        uint64_t v = __shfl_up_sync(~0u, run, m);
        if (lane >= m) run += v;
    }
    if (lane == 31) s.warp_sum[warp] = run;
    if (tid == 0) s.lane = -1;
    __syncthreads();
    uint64_t total = 0, before = run - mine, r = 0;
    for (int i = 0; i < 32; i++) {
        if (i < warp) before += s.warp_sum[i];
        total += s.warp_sum[i];
    }
    if (total == 0 || !draw_below(d, total, r)) return -1;
    if (r >= before && r < before + mine) {
        uint32_t k = first;
        for (r -= before; r >= s.lanes[k]; k++) r -= s.lanes[k];
        s.lane = static_cast<int32_t>(k);
        s.rest = r;
    }
    __syncthreads();
    if (s.lane < 0) return -1;
    if (warp == 0) { /* the lane's columns, 32 at a time */
        uint64_t rest = s.rest;
        int32_t found = -1;
        for (int base = s.lane; base < V && found < 0; base += 32 * static_cast<int>(n)) {
            int c = base + lane * static_cast<int>(n);
            uint64_t mass = c < V ? draw_mass(row[c], max, d.inv_t, log_s) : 0, sum = mass;
            for (int m = 1; m < 32; m *= 2) {
                uint64_t v = __shfl_up_sync(~0u, sum, m);
                if (lane >= m) sum += v;
            }
            uint32_t crossed = __ballot_sync(~0u, rest < sum);
            if (crossed) found = base + (__ffs(static_cast<int>(crossed)) - 1) * static_cast<int>(n);
            rest -= __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) s.at = found;
    }
    __syncthreads();
    return s.at;
}

__global__ void __launch_bounds__(DRAW_THREADS) draw_kernel(view logits, const by_draw *draws, by_drawn *out) {
    BY_CUDA_DYNAMIC(float, sums); /* [2][blocks] */
    __shared__ draw_shared s;
    const by_draw &d = draws[blockIdx.x];
    const float *row = logits.f32(d.row);
    int V = logits.cols, blocks = (V + DRAW_BLOCK - 1) / DRAW_BLOCK, tid = threadIdx.x;
    float max = row_top(row, V, s);
    by_drawn q = {-1, 0, max, 0};
    if (!(max > -INFINITY)) { /* also NaN */
        if (tid == 0) out[blockIdx.x] = q;
        return;
    }
    if (d.kind == BY_DRAW_ARGMAX) {
        if (tid == 0) s.at = V;
        __syncthreads();
        for (int i = tid; i < V; i += DRAW_THREADS)
            if (row[i] == max) {
                atomicMin(&s.at, i);
                break;
            }
        __syncthreads();
        q.id = s.at;
    } else {
        bool two = d.inv_t != d.report_inv_t;
        sum_blocks(row, V, max, d.inv_t, sums);
        if (two) sum_blocks(row, V, max, d.report_inv_t, sums + blocks);
        __syncthreads();
        if (tid == 0 || (tid == 32 && two)) {
            double total = 0;
#pragma unroll 16
            for (int b = 0; b < blocks; b++) total = __dadd_rn(total, static_cast<double>(sums[tid / 32 * blocks + b]));
            s.total[tid / 32] = draw_log(total);
        }
        __syncthreads();
        q.log_sum = __double2float_rn(s.total[two]);
        q.id = pick(d, row, V, max, __double2float_rn(s.total[0]), s);
    }
    if (q.id >= 0) q.logit = row[q.id];
    if (tid == 0) out[blockIdx.x] = q;
}

by_status by_cuda_draw(by_device *dev, const by_tensor *logits, const by_draw *draws, int32_t n, by_drawn *out, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    size_t in = static_cast<size_t>(n) * sizeof *draws, back = static_cast<size_t>(n) * sizeof *out;
    BY_TRY(by_cuda_scratch(c, by_cuda_pad(in) + by_cuda_pad(back), err));
    unsigned char *to = by_cuda_take<unsigned char>(c, in);
    by_drawn *drawn = by_cuda_take<by_drawn>(c, static_cast<size_t>(n));
    BY_TRY(by_cuda_upload(c, to, draws, in, err));
    size_t smem = static_cast<size_t>((logits->cols + DRAW_BLOCK - 1) / DRAW_BLOCK) * 8;
    BY_TRY(by_cuda_smem(draw_kernel, smem, err));
    BY_CUDA_TRY(err, by_cuda_launch(c, draw_kernel, dim3(static_cast<unsigned>(n)), DRAW_THREADS, smem, view_of(*logits),
                                    reinterpret_cast<const by_draw *>(to), drawn));
    return by_cuda_download(c, out, reinterpret_cast<const unsigned char *>(drawn), back, err);
}
