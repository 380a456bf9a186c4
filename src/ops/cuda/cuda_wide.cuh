// cuda_wide.cuh - the product for many rows (cuda_gemm.cuh is for few; the bits are the same).
//
// With many rows it pays to expand the weights in memory first: an image of them as of the activations, so that both operands
// come by bulk copies and no instruction stands between memory and the matrix unit. A block owns 128 weight rows and BT tokens
// at a time and goes from tile to tile; the two blocks of a cluster have the same tokens, of which each fetches one half for
// both. One warp starts the copies, ahead by the whole ring when a tile ends; two warpgroups multiply, 64 rows each, and have
// registers for the sum so far beside the chain of the segment at hand.
#ifndef BY_OPS_CUDA_WIDE_CUH
#define BY_OPS_CUDA_WIDE_CUH

#include "ops/cuda/cuda_gemm.cuh"

template <int BT> struct wide_shape {
    static constexpr int THREADS = 384, ROWS = 128;
    static constexpr int A = ROWS * 128, B = BT * 128; /* operands of a stage of 64 k */
    static constexpr int OUT_TOKENS = BT == 192 ? 96 : BT == 256 ? 32 : 64, PITCH = 144; /* of a warpgroup, on their way out */
    static constexpr int OUT = OUT_TOKENS * PITCH;
    static constexpr int STAGES = BT == 128 ? 6 : 4;
    static constexpr int BYTES = 1024 + STAGES * (A + B) + 2 * OUT + 128;
};

/* The tiles of a block, one after another: tokens first, then pairs of weight tiles. */
struct wide_tiles {
    int at, step, end, token_tiles, rank, peers;
    __device__ wide_tiles(const gemm_args &a, int all) {
        peers = static_cast<int>(cluster_size());
        rank = static_cast<int>(cluster_rank());
        at = blockIdx.x / peers;
        step = gridDim.x / peers;
        end = all / peers;
        token_tiles = a.token_tiles;
    }
    __device__ bool more() const { return at < end; }
    __device__ void next() { at += step; }
    __device__ int tile() const { return at / token_tiles * peers + rank; }
    /* The part of this tile, and its first weight row and token. */
    template <int BT> __device__ const gemm_part &get(const gemm_args &a, int &n0, int &t0) const {
        int pi = 0;
        while (pi + 1 < a.n_parts && tile() >= a.part[pi + 1].tile0) pi++;
        n0 = (tile() - a.part[pi].tile0) * 128;
        t0 = at % token_tiles * BT;
        return a.part[pi];
    }
};

/* One thread: starts the copies. */
template <int BT>
__device__ static void wide_bring(const gemm_args &g, uint32_t a, uint32_t full, uint32_t empty, wide_tiles tiles) {
    using shape = wide_shape<BT>;
    int stages = g.K / 64, half = shape::B / tiles.peers;
    uint32_t st = 0, parity = 1, b = a + shape::STAGES * shape::A + tiles.rank * half;
    bool first = true;
    depend_wait();
#pragma unroll 1
    for (; tiles.more(); tiles.next()) {
        int n0, t0;
        const gemm_part &p = tiles.get<BT>(g, n0, t0);
        int64_t block = static_cast<int64_t>(min(n0, p.rows - 1) / p.group_rows) * stages;
        const unsigned char *x = g.x.p + block * g.x.block_stride + static_cast<int64_t>(t0) * 128 + tiles.rank * half;
        const unsigned char *w = g.w.p + static_cast<int64_t>(tiles.tile()) * shape::A;
#pragma unroll 1
        for (int it = 0; it < stages; it++) {
            if (!first) mbar_wait(empty + st * 8, parity);
            mbar_expect(full + st * 8, shape::A + shape::B);
            bulk_load(a + st * shape::A, w, shape::A, full + st * 8);
            if (tiles.peers == 1) bulk_load(b + st * shape::B, x, half, full + st * 8);
            else bulk_load_all(b + st * shape::B, x, half, full + st * 8, 3);
            x += g.x.block_stride;
            w += g.w.block_stride;
            if (++st == shape::STAGES) st = 0, parity ^= 1, first = false;
        }
    }
}

/* bf16 rows of one warpgroup's 64 x BT sums through shared memory, in pieces of 16 bytes. */
template <int BT>
__device__ static void wide_store(const gemm_part &p, const float (&v)[BT / 2], float up, int n0, int t0, int T, uint32_t smem,
                                  int group) {
    using shape = wide_shape<BT>;
    int tid = threadIdx.x % 128, lane = tid & 31;
    uint32_t at = smem + ((lane >> 4) * 8 + (lane & 7)) * shape::PITCH + (tid / 32 * 16 + (lane >> 3 & 1) * 8) * 2;
    unsigned char *y = p.y + n0 * 2 + tid % 8 * 16;
#pragma unroll
    for (int from = 0; from < BT; from += shape::OUT_TOKENS) {
        if (from) bar_sync(1 + group, 128);
#pragma unroll
        for (int i = 0; i < shape::OUT_TOKENS / 8; i += 2) {
            uint32_t r[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int k = (from / 8 + i) * 4 + 2 * j;
                r[j] = bf16_bits(v[k] * up) | static_cast<uint32_t>(bf16_bits(v[k + 1] * up)) << 16;
            }
            put_turned(at + i * 8 * shape::PITCH, r);
        }
        bar_sync(1 + group, 128);
#pragma unroll
        for (int i = 0; i < shape::OUT_TOKENS / 16; i++) {
            int t = i * 16 + tid / 8;
            uint32_t q[4];
            load_shared16(q, smem + t * shape::PITCH + tid % 8 * 16);
            t += t0 + from;
            if (t < T) *reinterpret_cast<uint4 *>(y + t * p.y_stride) = make_uint4(q[0], q[1], q[2], q[3]);
        }
    }
    bar_sync(1 + group, 128); /* before the next tile writes here */
}

/* One chain of sums over n stages. */
template <int BT>
__device__ static inline void wide_chain(float (&acc)[BT / 2], uint32_t a, uint32_t b, uint32_t full, uint32_t empty, int n,
                                         uint32_t &st, uint32_t &parity, uint32_t peers) {
    using shape = wide_shape<BT>;
    uint32_t before = st, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < BT / 2; i++) acc[i] = 0;
    wgmma_done(acc);
#pragma unroll 1
    for (int it = 0; it < n; it++) {
        uint64_t da = wgmma_desc(a + st * shape::A), db = wgmma_desc(b + st * shape::B);
        mbar_wait(full + st * 8, parity);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) wgmma_ss<BT, 0>(acc, da + i * 2, db + i * 2);
        wgmma_commit();
        wgmma_wait<1>();
        if (lane < peers && it > 0) mbar_arrive_remote(empty + before * 8, lane);
        before = st;
        if (++st == shape::STAGES) st = 0, parity ^= 1;
    }
    wgmma_wait<0>();
    wgmma_done(acc);
    if (lane < peers) mbar_arrive_remote(empty + before * 8, lane);
}

/* `all`: tiles of 128 rows x BT tokens, of all parts. SUMS: k has several segments. up: see cuda_gemm.cuh. */
template <int BT, bool SUMS>
__global__ void __launch_bounds__(384, 1) wide_kernel(const __grid_constant__ gemm_args g, int all, float up) {
    using shape = wide_shape<BT>;
    BY_CUDA_DYNAMIC(unsigned char, smem);
    uint32_t a = (smem_addr(smem) + 1023) & ~1023u, b = a + shape::STAGES * shape::A, out = b + shape::STAGES * shape::B;
    uint32_t full = out + 2 * shape::OUT, empty = full + 64, peers = cluster_size();
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape::STAGES; i++) {
            mbar_init(full + i * 8, 1);
            mbar_init(empty + i * 8, static_cast<int>(8 * peers));
        }
        mbar_init_done();
    }
    __syncthreads();
    if (peers > 1) cluster_sync();
    depend_launch();
    wide_tiles tiles(g, all);
    if (threadIdx.x >= 256) {
        fewer_registers<24>();
        if (threadIdx.x == 256) wide_bring<BT>(g, a, full, empty, tiles);
    } else {
        more_registers<240>();
        int group = threadIdx.x / 128, stages = g.K / 64;
        uint32_t st = 0, parity = 0, mine = a + group * 8192;
#pragma unroll 1
        for (; tiles.more(); tiles.next()) {
            float acc[BT / 2], total[SUMS ? BT / 2 : 1];
            if constexpr (SUMS) {
#pragma unroll 1
                for (int i = 0; i < g.segments; i++) {
                    int n = segment_first<64>(i + 1, g.segments, stages) - segment_first<64>(i, g.segments, stages);
                    wide_chain<BT>(acc, mine, b, full, empty, n, st, parity, peers);
#pragma unroll
                    for (int k = 0; k < BT / 2; k++) total[k] = i ? total[k] + acc[k] : acc[k];
                }
#pragma unroll
                for (int k = 0; k < BT / 2; k++) acc[k] = total[k];
            } else {
                wide_chain<BT>(acc, mine, b, full, empty, stages, st, parity, peers);
            }
            int n0, t0;
            const gemm_part &p = tiles.get<BT>(g, n0, t0);
            n0 += group * 64;
            if (in_pieces(p, n0 + 64)) {
                wide_store<BT>(p, acc, up, n0, t0, g.T, out + group * shape::OUT, group);
            } else {
#pragma unroll
                for (int k = 0; k < BT / 2; k++) acc[k] *= up;
                store_direct<BT>(p, acc, n0 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7), t0, g.T);
            }
        }
    }
    if (peers > 1) cluster_meet(); /* nobody leaves while others still write here */
}

/* Images of the weights of all parts, tile after tile (part.tile0 in tiles of 128 rows). A thread makes the 16 values of one
 * instruction of one row. */
template <int WT> __global__ void weight_image_kernel(const __grid_constant__ gemm_args g, int part) {
    constexpr int PER = kind<WT>::K / 16;
    const gemm_part &p = g.part[part];
    int steps = g.K / 16;
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x, r = i / steps;
    depend_launch();
    if (r >= p.rows) {
        depend_wait();
        return;
    }
    int step = static_cast<int>(i % steps), stage = step / PER, s = step % PER;
    const unsigned char *w = p.w + r * p.w_stride;
    uint32_t out[8];
    if constexpr (WT == W_BF16) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint2 q = *reinterpret_cast<const uint2 *>(w + 2 * (stage * 64 + s / 2 * 32 + c * 8 + s % 2 * 4));
            out[c] = q.x, out[4 + c] = q.y;
        }
    } else {
        bool bad = false;
        uint32_t scales = *reinterpret_cast<const uint16_t *>(p.s + r / 32 * p.s_stride + stage * 2);
        uint32_t m[2] = {scale_pair<WT>(scales & 0xff, bad), scale_pair<WT>(scales >> 8, bad)};
#pragma unroll
        for (int c = 0; c < 4; c++)
            expand_fp8(*reinterpret_cast<const uint32_t *>(w + stage * 64 + c * 16 + s * 4), m[c / 2], out[c], out[4 + c]);
        if (bad) atomicOr(g.flags, BY_CUDA_FLAG_SCALE);
    }
    unsigned char *to = g.w.p + stage * g.w.block_stride + p.tile0 * static_cast<int64_t>(128 * 128);
    *reinterpret_cast<uint4 *>(to + image_offset(r, s * 16)) = make_uint4(out[0], out[1], out[2], out[3]);
    *reinterpret_cast<uint4 *>(to + image_offset(r, s * 16 + 8)) = make_uint4(out[4], out[5], out[6], out[7]);
    depend_wait(); /* not before the image of the activations is whole, which this does not read, but the one behind does */
}

#endif
