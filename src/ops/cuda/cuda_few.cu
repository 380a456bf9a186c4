// cuda_few.cu - products of FP8 and bf16 weights with up to 8 rows of activations.
//
// A warp owns 16 weight rows and one segment of k; it reads the first weights while the kernel before still runs. Nothing waits for
// another warp before the segments of a tile are added, in their order, by the block that has them all. Two ways:
// - With a row or two the block expands the activations once, for all its warps, and weights come by bulk copies into a ring of the
//   warp's own: the instructions of expanding are what bounds the other way.
// - Else the lanes read the weights straight into registers, and the activations as they lie, which each warp expands for itself.
//
// Bits. The order of k, the expansion and the segments are those of cuda_gemm.cuh, and the warp's matrix instruction must round as
// the warpgroup's does, or a row's bits would depend on the number of rows: by_cuda_few_probe compares the two when the device is
// opened, and without equal bits these kernels are not used.
#include "ops/cuda/cuda_gemm.cuh"

enum {
    FEW_TOKENS = 8,      /* one operand of the warp's instruction */
    FEW_PITCH = 20,      /* floats of a token's 16 sums in shared memory: lanes that write together meet no bank twice */
    FEW_DEPTH = 4,       /* turns under way in registers */
    FEW_STAGE = 4224     /* bytes of two turns in shared memory: see few_place */
};

struct few_args {
    const unsigned char *x;
    int64_t x_stride;
    int x_cols, T, K, n_parts, tiles, split; /* tiles: of 16 rows, of all parts */
    int32_t *flags;
    gemm_part part[BY_MATMUL_PARTS]; /* tile0 counts tiles of 16 rows */
};

/* Where the 256 bytes of row r of a stage lie: rows g and g + 1, read together, in different halves of the banks. */
__device__ static inline uint32_t few_place(int r) { return (r >> 1) * 256 + (r & 1) * (2048 + 64); }

/* Sixteen bytes of words by number. */
__device__ static inline uint32_t word_of(const uint4 &q, int i) { return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w; }

template <int WT> struct few_loop {
    static constexpr int K = WT == W_FP8 ? 128 : 64;    /* k of 128 bytes of a weight row, which a turn takes */
    static constexpr int STEPS = WT == W_FP8 ? 4 : 2;   /* matrix instructions of half of them */
    static constexpr int PIECES = WT == W_FP8 ? 2 : 1;  /* of 16 bytes: the operands of half a turn of one lane */
    struct weights {
        uint4 q[4]; /* row g: first and second half, row g + 8 likewise */
        uint32_t scales;
    };
    struct tokens { /* half a turn of token g as it lies */
        uint32_t w[4], scale;
    };
    const unsigned char *w, *s; /* the tile's first row at the segment's first turn, its scales there */
    const uint4 *x;             /* ring: this lane's operands of the segment's first turn; see expand_rows */
    const unsigned char *x_row, *x_scale; /* else its bytes of token g there */
    int64_t w_stride;
    int last, T; /* rows of the tile beyond `last` repeat it */

    /* As image_kernel does it. */
    __device__ static void operand(const tokens &from, int i, uint32_t &b0, uint32_t &b1) {
        if constexpr (WT == W_FP8) {
            uint32_t lo, hi, scale = from.scale ? from.scale << 7 | from.scale << 23 : 0x00400040u;
            expand_fp8(from.w[i], 0x7b807b80u, lo, hi);
            b0 = mul_bf16x2(lo, scale), b1 = mul_bf16x2(hi, scale);
        } else {
            b0 = from.w[2 * i], b1 = from.w[2 * i + 1];
        }
    }
    /* The block's activations in operand order: [half turns][PIECES][T][4] pieces of 16 bytes. All threads, behind depend_wait. */
    __device__ static void expand_rows(const few_args &a, int k0, uint4 *to) {
        constexpr int AT_ONCE = 4;
        int n = a.K / (K / 2) * a.T * 4, step = static_cast<int>(blockDim.x);
        for (int first = threadIdx.x; first < n; first += AT_ONCE * step) {
            tokens from[AT_ONCE] = {};
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int i = first + j * step, c = i & 3, half = (i >> 2) / a.T;
                if (i >= n) break;
                const unsigned char *row = a.x + ((i >> 2) - half * a.T) * a.x_stride;
                const uint2 *p = reinterpret_cast<const uint2 *>(row + (WT == W_FP8 ? k0 : 2 * k0) + half * 64 + c * 16);
                from[j].w[0] = p[0].x, from[j].w[1] = p[0].y, from[j].w[2] = p[1].x, from[j].w[3] = p[1].y;
                if constexpr (WT == W_FP8) from[j].scale = row[a.x_cols + k0 / 32 + half * 2 + c / 2];
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int i = first + j * step, c = i & 3, half = (i >> 2) / a.T, t = (i >> 2) - half * a.T;
                if (i >= n) break;
#pragma unroll
                for (int k = 0; k < PIECES; k++) {
                    uint4 b;
                    operand(from[j], 2 * k, b.x, b.y);
                    operand(from[j], 2 * k + 1, b.z, b.w);
                    to[((half * PIECES + k) * a.T + t) * 4 + c] = b;
                }
            }
        }
    }

    __device__ const unsigned char *row(int r) const { return w + min(r, last) * w_stride; }
    __device__ uint32_t scales_of(int it) const {
        return WT == W_FP8 ? __ldg(reinterpret_cast<const uint32_t *>(s + it * 4)) : 0;
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
    __device__ static void half_turn(float (&acc)[4], const weights &from, const uint4 (&b)[PIECES], int half, bool &bad) {
        uint32_t m = 0;
        if constexpr (WT == W_FP8) m = scale_pair<WT>(from.scales >> (half * 2 + (threadIdx.x & 3) / 2) * 8 & 255, bad);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const uint4 &q = b[i / 2];
            uint32_t a[4];
            operand(from, half, i, m, a);
            mma16x8(acc, a, i % 2 ? q.z : q.x, i % 2 ? q.w : q.y);
        }
    }
    __device__ static void half_turn(float (&acc)[4], const weights &from, const tokens &x, int half, bool &bad) {
        uint32_t m = 0;
        if constexpr (WT == W_FP8) m = scale_pair<WT>(from.scales >> (half * 2 + (threadIdx.x & 3) / 2) * 8 & 255, bad);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            uint32_t a[4], b0, b1;
            operand(from, half, i, m, a);
            operand(x, i, b0, b1);
            mma16x8(acc, a, b0, b1);
        }
    }
    __device__ void load(weights &to, const unsigned char *w0, const unsigned char *w1, int it) const {
        to.q[0] = load_once16(w0 + it * 128), to.q[1] = load_once16(w0 + it * 128 + 64);
        to.q[2] = load_once16(w1 + it * 128), to.q[3] = load_once16(w1 + it * 128 + 64);
        if constexpr (WT == W_FP8) to.scales = *reinterpret_cast<const uint32_t *>(s + it * 4);
    }
    __device__ void load(tokens &to, int it, int half) const {
        int g = threadIdx.x >> 2 & 7, c = threadIdx.x & 3;
        uint2 a = {}, b = {};
        to.scale = 0;
        if (g < T) {
            const unsigned char *p = x_row + it * 128 + half * 64;
            a = reinterpret_cast<const uint2 *>(p)[0], b = reinterpret_cast<const uint2 *>(p)[1];
            if constexpr (WT == W_FP8) to.scale = x_scale[it * 4 + half * 2 + c / 2];
        }
        to.w[0] = a.x, to.w[1] = a.y, to.w[2] = b.x, to.w[3] = b.y;
    }
    /* acc (zeros before) becomes the product over n turns. False: a scale was out of range. */
    __device__ bool run(float (&acc)[4], int n) const {
        int g = threadIdx.x >> 2 & 7, c = threadIdx.x & 3;
        const unsigned char *w0 = row(g) + c * 16, *w1 = row(g + 8) + c * 16;
        weights ring[FEW_DEPTH];
#pragma unroll
        for (int j = 0; j < FEW_DEPTH; j++)
            if (j < n) load(ring[j], w0, w1, j);
        depend_wait();
        bool bad = false;
        tokens x0, x1;
        if (n > 0) load(x0, 0, 0);
#pragma unroll 1
        for (int it = 0; it < n; it += FEW_DEPTH) {
#pragma unroll
            for (int j = 0; j < FEW_DEPTH; j++) {
                if (it + j >= n) break;
                load(x1, it + j, 1);
                half_turn(acc, ring[j], x0, 0, bad);
                if (it + j + 1 < n) load(x0, it + j + 1, 0);
                half_turn(acc, ring[j], x1, 1, bad);
                if (it + j + FEW_DEPTH < n) load(ring[j], w0, w1, it + j + FEW_DEPTH);
            }
        }
        return !bad;
    }
    /* The same through the warp's own STAGES stages of two turns at `ring`, filled behind its own barriers at `full`. ready() returns when
     * the activations are expanded. */
    template <int STAGES, class F> __device__ bool run_ring(float (&acc)[4], int n, uint32_t ring, uint32_t full, const F &ready) const {
        int lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, stages = (n + 1) / 2;
        if (lane < STAGES) mbar_init(full + lane * 8, 1);
        mbar_init_done();
        __syncwarp();
        const unsigned char *mine = row(lane & 15);
        uint32_t to = ring + few_place(lane & 15);
        auto bring = [&](int it, int st) {
            int bytes = it * 2 + 1 < n ? 256 : 128;
            if (lane == 0) mbar_expect(full + st * 8, 16 * bytes);
            __syncwarp();
            if (lane < 16) bulk_load(to + st * FEW_STAGE, mine + it * 256, bytes, full + st * 8);
        };
#pragma unroll
        for (int it = 0; it < STAGES; it++)
            if (it < stages) bring(it, it);
        uint32_t scales[2] = {n > 0 ? scales_of(0) : 0, n > 1 ? scales_of(1) : 0};
        ready();
        bool bad = false;
        int st = 0, parity = 0;
        uint32_t from = ring + few_place(g) + c * 16;
#pragma unroll 1
        for (int it = 0; it < stages; it++) {
            uint32_t next[2] = {it * 2 + 2 < n ? scales_of(it * 2 + 2) : 0, it * 2 + 3 < n ? scales_of(it * 2 + 3) : 0};
            mbar_wait(full + st * 8, parity);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (it * 2 + j >= n) break;
                weights now;
                now.scales = scales[j];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t q[4];
                    load_shared16(q, from + st * FEW_STAGE + few_place(i / 2 * 8) + j * 128 + i % 2 * 64);
                    now.q[i] = make_uint4(q[0], q[1], q[2], q[3]);
                }
                uint4 b[2][PIECES] = {}; /* before the first instruction: their way is long */
                if (g < T) {
#pragma unroll
                    for (int i = 0; i < 2 * PIECES; i++) b[i / PIECES][i % PIECES] = x[((it * 2 + j) * 2 * PIECES + i) * T * 4];
                }
                half_turn(acc, now, b[0], 0, bad);
                half_turn(acc, now, b[1], 1, bad);
            }
            __syncwarp();
            if (it + STAGES < stages) bring(it + STAGES, st);
            scales[0] = next[0], scales[1] = next[1];
            if (++st == STAGES) st = 0, parity ^= 1;
        }
        return !bad;
    }
};

/* STAGES 0: through registers. Shared memory: the sums [warps][FEW_TOKENS][FEW_PITCH]; for a ring also the warps' barriers, their rings, the
 * activations' operands. */
template <int WT, int STAGES> __global__ void __launch_bounds__(256, 2) few_kernel(const __grid_constant__ few_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    int warp = threadIdx.x >> 5, g = threadIdx.x >> 2 & 7, c = threadIdx.x & 3, warps = blockDim.x / 32, per_block = warps / a.split;
    int first_tile = blockIdx.x * per_block, tile = first_tile + warp / a.split, segment = warp % a.split;
    float *sums = reinterpret_cast<float *>(smem + (STAGES ? a.K * a.T * 2 : 0));
    depend_launch();
    auto part_of = [&](int t) {
        int i = 0;
        while (i + 1 < a.n_parts && t >= a.part[i + 1].tile0) i++;
        return i;
    };
    const gemm_part &first_part = a.part[part_of(first_tile)];
    int k0 = (first_tile - first_part.tile0) * 16 / first_part.group_rows * a.K; /* of all tiles of the block: see few_shares */
    auto ready = [&] {
        depend_wait();
        few_loop<WT>::expand_rows(a, k0, reinterpret_cast<uint4 *>(smem));
        __syncthreads();
    };
    float acc[4] = {};
    if (tile < a.tiles) { /* all of a warp or none of it */
        const gemm_part &p = a.part[part_of(tile)];
        constexpr int K = few_loop<WT>::K, PIECES = few_loop<WT>::PIECES;
        int n0 = (tile - p.tile0) * 16, turns = a.K / K;
        int from = segment_first<K>(segment, a.split, turns), n = segment_first<K>(segment + 1, a.split, turns) - from;
        few_loop<WT> loop;
        loop.w = p.w + n0 * p.w_stride + from * 128;
        loop.s = p.s + n0 / 32 * p.s_stride + from * 4;
        loop.x = reinterpret_cast<const uint4 *>(smem) + (from * 2 * PIECES * a.T + g) * 4 + c;
        int mine = n0 / p.group_rows * a.K;
        loop.x_row = a.x + g * a.x_stride + (WT == W_FP8 ? mine : 2 * mine) + from * 128 + c * 16;
        loop.x_scale = a.x + g * a.x_stride + a.x_cols + mine / 32 + from * 4;
        loop.w_stride = p.w_stride, loop.last = p.rows - 1 - n0, loop.T = a.T;
        bool good;
        if constexpr (STAGES > 0) {
            uint32_t full = smem_addr(sums + warps * (FEW_TOKENS * FEW_PITCH));
            uint32_t ring = ((full + warps * STAGES * 8 + 127) & ~127u) + warp * STAGES * FEW_STAGE;
            good = loop.template run_ring<STAGES>(acc, n, ring, full + warp * STAGES * 8, ready);
        } else {
            good = loop.run(acc, n);
        }
        if (!good) atomicOr(a.flags, BY_CUDA_FLAG_SCALE);
    } else if constexpr (STAGES > 0) {
        ready();
    } else {
        depend_wait();
    }
    float *own = sums + warp * (FEW_TOKENS * FEW_PITCH), up = WT == W_FP8 ? 0x1p20f : 1.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) own[(2 * c + i % 2) * FEW_PITCH + g + i / 2 * 8] = acc[i] * up;
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

static int few_per_block(int split) { return split >= 4 ? 1 : 4 / split; } /* tiles of a block: small blocks spread evenly */
static size_t few_bytes(int warps, int T, int K, int stages) {
    size_t sums = static_cast<size_t>(warps) * (FEW_TOKENS * FEW_PITCH * 4);
    return stages ? sums + static_cast<size_t>(K) * T * 2 + static_cast<size_t>(warps) * stages * (8 + FEW_STAGE) + 128 : sums;
}

template <int WT, int STAGES> static by_status launch_few(by_cuda *c, const few_args &a, by_err *err) {
    int per_block = few_per_block(a.split), threads = per_block * a.split * 32;
    size_t bytes = few_bytes(threads / 32, a.T, a.K, STAGES);
    auto kernel = few_kernel<WT, STAGES>;
    BY_TRY(by_cuda_smem(kernel, bytes, err));
    dim3 grid(static_cast<unsigned>((a.tiles + per_block - 1) / per_block));
    BY_CUDA_TRY(err, by_cuda_chain(c, kernel, grid, threads, bytes, 1, a));
    return BY_OK;
}

/* Whether all tiles of a block read the same k. */
static bool few_shares(const few_args &a, int per_block) {
    for (int i = 0; i < a.n_parts; i++)
        if (a.part[i].group_rows != a.part[i].rows && (a.part[i].group_rows | a.part[i].tile0 * 16) % (per_block * 16)) return false;
    return true;
}

/* A ring pays where the block's activations are few for its weights (measured), if all blocks are resident at once with it. */
template <int WT> static by_status launch_best(by_cuda *c, const few_args &a, by_err *err) {
    int per_block = few_per_block(a.split), blocks = (a.tiles + per_block - 1) / per_block, warps = per_block * a.split;
    size_t most = (c->smem_max + 1024) / static_cast<size_t>((blocks + c->sms - 1) / c->sms); /* a block takes 1 KB beside its own */
    if ((a.T > 2 && per_block < 2) || !few_shares(a, per_block)) return launch_few<WT, 0>(c, a, err);
    if (few_bytes(warps, a.T, a.K, 3) + 1024 <= most) return launch_few<WT, 3>(c, a, err);
    if (few_bytes(warps, a.T, a.K, 2) + 1024 <= most) return launch_few<WT, 2>(c, a, err);
    return launch_few<WT, 0>(c, a, err);
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
    return kind == W_FP8 ? launch_best<W_FP8>(c, a, err) : launch_best<W_BF16>(c, a, err);
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
