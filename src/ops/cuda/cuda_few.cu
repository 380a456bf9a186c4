// cuda_few.cu - products of FP8 and bf16 weights with up to 8 rows of activations.
//
// A warp owns 16 weight rows and one segment of k. Its lanes read the weights' own bytes straight into registers, several
// pieces ahead and the first of them while the kernel before still runs; the activations come as they lie (A8 or bf16, no
// image); nothing waits for another warp before the segments of a tile are added, in their order, by the block that has
// them all. From 16 rows on the activations, which every warp reads, cost more than that saves.
//
// Bits. The order of k, the expansion and the segments are those of cuda_gemm.cuh, and the warp's matrix instruction must round as
// the warpgroup's does, or a row's bits would depend on the number of rows: by_cuda_few_probe compares the two when the device is
// opened, and without equal bits these kernels are not used.
#include "ops/cuda/cuda_gemm.cuh"

enum {
    FEW_TOKENS = 8, /* one operand of the warp's instruction */
    FEW_PITCH = 20  /* floats of a token's 16 sums in shared memory: lanes that write together meet no bank twice */
};

struct few_args {
    const unsigned char *x;
    int64_t x_stride;
    int x_cols, T, K, n_parts, tiles, split; /* tiles: of 16 rows, of all parts */
    int32_t *flags;
    gemm_part part[BY_MATMUL_PARTS]; /* tile0 counts tiles of 16 rows */
};

/* Sixteen bytes of words by number. */
__device__ static inline uint32_t word_of(const uint4 &q, int i) { return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w; }

template <int WT> struct few_loop {
    static constexpr int K = WT == W_FP8 ? 128 : 64;    /* k of 128 bytes of a weight row, which a turn takes */
    static constexpr int STEPS = WT == W_FP8 ? 4 : 2;   /* matrix instructions of half of them */
    struct weights {
        uint4 q[4]; /* row g: first and second half, row g + 8 likewise */
        uint32_t scales;
    };
    struct tokens {
        uint32_t w[4], scale;
    };
    const unsigned char *w0, *w1, *s; /* this lane's bytes of the two rows, the tile's scales */
    const unsigned char *x, *x_scale; /* this lane's bytes of token g */
    int64_t x_stride;
    int T;

    __device__ void load(weights &to, int it) const {
        to.q[0] = load_once16(w0 + it * 128), to.q[1] = load_once16(w0 + it * 128 + 64);
        to.q[2] = load_once16(w1 + it * 128), to.q[3] = load_once16(w1 + it * 128 + 64);
        if constexpr (WT == W_FP8) to.scales = *reinterpret_cast<const uint32_t *>(s + it * 4);
    }
    __device__ void load(tokens &to, int it, int half) const {
        int g = threadIdx.x >> 2 & 7, c = threadIdx.x & 3;
        uint2 a = {}, b = {};
        to.scale = 0;
        if (g < T) {
            const unsigned char *p = x + it * 128 + half * 64;
            a = reinterpret_cast<const uint2 *>(p)[0], b = reinterpret_cast<const uint2 *>(p)[1];
            if constexpr (WT == W_FP8) to.scale = x_scale[it * 4 + half * 2 + c / 2];
        }
        to.w[0] = a.x, to.w[1] = a.y, to.w[2] = b.x, to.w[3] = b.y;
    }
    __device__ static void operand(const weights &from, int half, int i, uint32_t m, uint32_t (&a)[4]) {
        const uint4 &p = from.q[half], &q = from.q[2 + half];
        if constexpr (WT == W_FP8) {
            expand_fp8(word_of(p, i), m, a[0], a[2]);
            expand_fp8(word_of(q, i), m, a[1], a[3]);
        } else {
            a[0] = word_of(p, 2 * i), a[2] = word_of(p, 2 * i + 1);
            a[1] = word_of(q, 2 * i), a[3] = word_of(q, 2 * i + 1);
        }
    }
    /* As image_kernel does it. */
    __device__ static void operand(const tokens &from, int i, uint32_t &b0, uint32_t &b1) {
        if constexpr (WT == W_FP8) {
            uint32_t lo, hi, m = from.scale, scale = m ? m << 7 | m << 23 : 0x00400040u;
            expand_fp8(from.w[i], 0x7b807b80u, lo, hi);
            b0 = mul_bf16x2(lo, scale), b1 = mul_bf16x2(hi, scale);
        } else {
            b0 = from.w[2 * i], b1 = from.w[2 * i + 1];
        }
    }
    __device__ static void half_turn(float (&acc)[4], const weights &w, const tokens &x, int half, bool &bad) {
        int c = threadIdx.x & 3;
        uint32_t m = 0;
        if constexpr (WT == W_FP8) m = scale_pair<WT>(w.scales >> (half * 2 + c / 2) * 8 & 255, bad);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            uint32_t a[4], b0, b1;
            operand(w, half, i, m, a);
            operand(x, i, b0, b1);
            mma16x8(acc, a, b0, b1);
        }
    }
    /* acc (zeros before) becomes the product over n turns from `first` on; DEPTH of them are under way. False: a scale was out of range. */
    template <int DEPTH> __device__ bool run(float (&acc)[4], int first, int n) const {
        weights ring[DEPTH];
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (j < n) load(ring[j], first + j);
        depend_wait();
        bool bad = false;
        tokens x0, x1;
        if (n > 0) load(x0, first, 0);
#pragma unroll 1
        for (int it = 0; it < n; it += DEPTH) {
#pragma unroll
            for (int j = 0; j < DEPTH; j++) {
                if (it + j >= n) break;
                load(x1, first + it + j, 1);
                half_turn(acc, ring[j], x0, 0, bad);
                if (it + j + 1 < n) load(x0, first + it + j + 1, 0);
                half_turn(acc, ring[j], x1, 1, bad);
                if (it + j + DEPTH < n) load(ring[j], first + it + j + DEPTH);
            }
        }
        if constexpr (WT == W_FP8) {
            for (int i = 0; i < 4; i++) acc[i] *= 0x1p20f;
        }
        return !bad;
    }
};

template <int WT, int DEPTH> __global__ void __launch_bounds__(256) few_kernel(const __grid_constant__ few_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    float *sums = reinterpret_cast<float *>(smem); /* [warps][FEW_TOKENS][FEW_PITCH] */
    int warp = threadIdx.x >> 5, g = threadIdx.x >> 2 & 7, c = threadIdx.x & 3, per_block = blockDim.x / 32 / a.split;
    int first_tile = blockIdx.x * per_block, tile = first_tile + warp / a.split, segment = warp % a.split;
    depend_launch();
    auto part_of = [&](int t) {
        int i = 0;
        while (i + 1 < a.n_parts && t >= a.part[i + 1].tile0) i++;
        return i;
    };
    float acc[4] = {};
    if (tile < a.tiles) { /* all of a warp or none of it */
        const gemm_part &p = a.part[part_of(tile)];
        constexpr int K = few_loop<WT>::K;
        int n0 = (tile - p.tile0) * 16, k0 = n0 / p.group_rows * a.K, turns = a.K / K;
        int from = segment_first<K>(segment, a.split, turns), to = segment_first<K>(segment + 1, a.split, turns);
        few_loop<WT> loop;
        loop.w0 = p.w + min(n0 + g, p.rows - 1) * p.w_stride + c * 16;
        loop.w1 = p.w + min(n0 + 8 + g, p.rows - 1) * p.w_stride + c * 16;
        loop.s = p.s + n0 / 32 * p.s_stride;
        const unsigned char *row = a.x + g * a.x_stride;
        loop.x = row + (WT == W_FP8 ? k0 : 2 * k0) + c * 16;
        loop.x_scale = row + a.x_cols + k0 / 32;
        loop.x_stride = a.x_stride, loop.T = a.T;
        if (!loop.template run<DEPTH>(acc, from, to - from)) atomicOr(a.flags, BY_CUDA_FLAG_SCALE);
    } else {
        depend_wait();
    }
    float *own = sums + warp * (FEW_TOKENS * FEW_PITCH);
#pragma unroll
    for (int i = 0; i < 4; i++) own[(2 * c + i % 2) * FEW_PITCH + g + i / 2 * 8] = acc[i];
    __syncthreads();
    int n = a.T * 16;
    for (int i = threadIdx.x; i < per_block * n; i += blockDim.x) {
        int which = i / n, token = i % n / 16, at = i % 16, t = first_tile + which;
        if (t >= a.tiles) break;
        const gemm_part &p = a.part[part_of(t)];
        int row = (t - p.tile0) * 16 + at;
        const float *from = sums + (which * a.split * FEW_TOKENS + token) * FEW_PITCH + at;
        float v = from[0];
        for (int k = 1; k < a.split; k++) v += from[k * FEW_TOKENS * FEW_PITCH];
        if (row < p.rows) store_value(p.y_dtype, p.y + token * p.y_stride, row, v);
    }
}

template <int WT, int DEPTH> static by_status launch_few(by_cuda *c, const few_args &a, by_err *err) {
    int per_block = a.split >= 4 ? 1 : 4 / a.split, threads = per_block * a.split * 32; /* small blocks spread evenly */
    size_t bytes = static_cast<size_t>(threads / 32) * (FEW_TOKENS * FEW_PITCH * 4);
    auto kernel = few_kernel<WT, DEPTH>;
    dim3 grid(static_cast<unsigned>((a.tiles + per_block - 1) / per_block));
    BY_CUDA_TRY(err, by_cuda_chain(c, kernel, grid, threads, bytes, 1, a));
    return BY_OK;
}

bool by_cuda_few_fits(const by_cuda *c, weight_kind kind, const by_tensor &x, const gemm_args &g) {
    if (!c->few || g.T > FEW_TOKENS || !wide_row(x, 8)) return false;
    return kind == W_FP8 || g.segments > 1; /* wider bf16 products (the output head) are at 1.1 times their floor without */
}

by_status by_cuda_few(by_cuda *c, weight_kind kind, const by_tensor &x, const gemm_args &g, by_err *err) {
    few_args a = {};
    view v = view_of(x);
    a.x = v.p, a.x_stride = v.stride, a.x_cols = v.cols;
    a.T = g.T, a.K = g.K, a.n_parts = g.n_parts, a.split = g.segments, a.flags = c->flags;
    for (int i = 0; i < g.n_parts; i++) {
        a.part[i] = g.part[i];
        a.part[i].tile0 = a.tiles;
        a.tiles += (g.part[i].rows + 15) / 16;
    }
    return kind == W_FP8 ? launch_few<W_FP8, 4>(c, a, err) : launch_few<W_BF16, 4>(c, a, err);
}

/* ---- do the two instructions round alike? ----------------------------------------------------------------------- */

enum { PROBE_BLOCKS = 16, PROBE_ROUNDS = 16 };

__device__ static inline uint32_t scrambled(uint32_t x) {
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
/* Two bf16 with random signs and fractions and exponents up to 2^-spread .. 2^spread. */
__device__ static inline uint32_t random_pair(uint32_t seed, int spread) {
    uint32_t r = scrambled(seed), range = static_cast<uint32_t>(2 * spread + 1), pair = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t h = scrambled(r + static_cast<uint32_t>(i));
        pair |= ((h & 0x807f) | (127u - static_cast<uint32_t>(spread) + (h >> 16) % range) << 7) << 16 * i;
    }
    return pair;
}

/* Chains of 64 k, over and over: sums from both instructions, and how many differ. */
__global__ void __launch_bounds__(128) probe_kernel(int32_t *differ) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    uint32_t base = (smem_addr(smem) + 1023) & ~1023u;
    int lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
    float wide[4] = {}, few[1][4] = {};
    int32_t n = 0;
    for (int round = 0; round < PROBE_ROUNDS; round++) {
        uint32_t seed = scrambled(blockIdx.x * PROBE_ROUNDS + round), spread = seed % 12;
        for (int i = 0; i < 4 && round % 4 == 0; i++) wide[i] = few[0][i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < 8 * 32; i += 128) /* pairs of k of 8 columns */
            put4(base + static_cast<uint32_t>(image_offset(i / 32, i % 32 * 2)), random_pair(seed + 1000000u + i, static_cast<int>(spread)));
        fence_async();
        __syncthreads();
        uint64_t desc = wgmma_desc(base);
        uint32_t a[4][4];
        for (int i = 0; i < 16; i++) a[i / 4][i % 4] = random_pair(seed + threadIdx.x * 16 + i, static_cast<int>(spread));
        wgmma_done(wide);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) wgmma<8>(wide, a[i], desc + i * 2);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_done(wide);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t b0 = load_shared32(base + static_cast<uint32_t>(image_offset(g, 16 * i + 2 * c)));
            uint32_t b1 = load_shared32(base + static_cast<uint32_t>(image_offset(g, 16 * i + 2 * c + 8)));
            mma16x8(few[0], a[i], b0, b1);
        }
        for (int i = 0; i < 4; i++) n += __float_as_uint(wide[i]) != __float_as_uint(few[0][i]);
    }
    if (n) atomicAdd(differ, n);
}

by_status by_cuda_few_probe(by_cuda *c, by_err *err) {
    c->few = false;
    if (!c->wgmma) return BY_OK;
    int32_t *differ = c->flags + 1, n = 0; /* a word of the flags' buffer that nothing else uses */
    BY_CUDA_TRY(err, cudaMemsetAsync(differ, 0, 4, c->stream));
    BY_CUDA_TRY(err, by_cuda_launch(c, probe_kernel, dim3(PROBE_BLOCKS), 128, 2048, differ));
    BY_CUDA_TRY(err, cudaMemcpyAsync(&n, differ, 4, cudaMemcpyDeviceToHost, c->stream));
    BY_CUDA_TRY(err, cudaStreamSynchronize(c->stream));
    c->few = n == 0;
    return BY_OK;
}
