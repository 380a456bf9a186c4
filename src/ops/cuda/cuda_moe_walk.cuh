// cuda_moe_walk.cuh - experts of few tokens each: one block a multiprocessor that walks through its share of all products.
//
// With a block for each tile of weight rows an expert's activations pass the L2 cache once for every 64 weight rows, half as many bytes
// again as the weights. Here a block of four warpgroups takes 256 weight rows at a time and goes on to the expert's next ones; its
// activations stay in shared memory for all of them. Weights arrive without a pause, also from one expert to the next, and all blocks
// take equally many steps. An expert with more than 8 tokens has several tiles, which take turns and bring their activations each time.
//
// A row's bits are those of moe_up_kernel and moe_down_kernel: the same instructions in the same order.
#ifndef BY_OPS_CUDA_MOE_WALK_CUH
#define BY_OPS_CUDA_MOE_WALK_CUH

#include "ops/cuda/cuda_moe.cuh"

/* GROUPS warpgroups multiply tiles of up to BT tokens, in groups of G instructions; ST stages of K values of k are in flight. */
namespace walk {
constexpr int GROUPS = 4, BT = 8, G = 4, ST = 4, U = 2, K = 128 * U, TOKEN = K * 2; /* TOKEN: bytes of a token's image in a stage */
constexpr int CONSUMERS = GROUPS * 128, THREADS = CONSUMERS + 128; /* the last warpgroup has a warp for each other one's copies */
constexpr int W = GROUPS * 2 * U * STRIP_UNIT, S = GROUPS * 2 * U * STRIP_SCALES;
constexpr int X = 80 << 10; /* shared memory for images: 8 tokens of 5,120 channels, or all stages of a tile */
constexpr int BYTES = 1024 + X + ST * (W + S + 16);
static_assert(GROUPS == 4 && K / 64 == 4, "each of those warps brings a quarter of the images, too");
static_assert(ST * BT * TOKEN <= X, "a stage of the widest tile has room");
} // namespace walk

/* One step: 256 weight rows (the block's `x`th) times the tokens of a tile. */
struct walk_step {
    moe_tile t;
    int x;
    __device__ int width() const { return moe_width<walk::BT>(t.n); }
    /* The tile's images stay in shared memory from step to step: whole stages of k beside one another. */
    __device__ bool stays(int stages) const { return t.of == 1 && stages * width() * walk::TOKEN <= walk::X; }
};
/* Steps [first, end) of the block, of `each` a tile. An expert's tiles take turns, so that its weights come from memory once. */
struct walk_range {
    const moe_tile *tiles;
    int each, first, end;
    __device__ walk_range(const moe_args &a, int across) {
        int64_t all = static_cast<int64_t>(*a.n_tiles) * across;
        tiles = a.tiles, each = across;
        first = static_cast<int>(all * blockIdx.x / gridDim.x), end = static_cast<int>(all * (blockIdx.x + 1) / gridDim.x);
    }
    __device__ walk_step at(int i) const {
        walk_step s;
        int tile = i / each;
        s.t = tiles[tile], s.x = i % each;
        if (s.t.of > 1) {
            int begin = tile - s.t.at, step = i - begin * each, of = s.t.of;
            s.t = tiles[begin + step % of], s.x = step / of;
        }
        return s;
    }
};

struct walk_ring {
    uint32_t x, w, s, full, empty; /* shared memory: images, weights, scales, barriers */
    __device__ explicit walk_ring(unsigned char *smem) {
        x = (smem_addr(smem) + 1023) & ~1023u;
        w = x + walk::X;
        s = w + walk::ST * walk::W;
        full = s + walk::ST * walk::S;
        empty = full + walk::ST * 8;
        if (threadIdx.x == 0) {
            for (int i = 0; i < walk::ST; i++) {
                mbar_init(full + i * 8, walk::GROUPS);
                mbar_init(empty + i * 8, walk::GROUPS * 4);
            }
            mbar_init_done();
        }
        __syncthreads();
    }
    /* Weights of warpgroup `group` for a stage into slot st; g moves on. A thread takes 150 cycles for a copy: hence four. */
    __device__ void strips(gemm_strips &g, int group, uint32_t st, int x_bytes) const {
        constexpr int RUN = walk::U * STRIP_UNIT, SCALES = walk::U * STRIP_SCALES;
        uint32_t bar = full + st * 8, to = w + st * walk::W + group * 2 * RUN, scales = s + st * walk::S + group * 2 * SCALES;
        mbar_expect(bar, 2 * RUN + 2 * SCALES + x_bytes);
        bulk_load(to, g.w0, RUN, bar);
        bulk_load(to + RUN, g.w1, RUN, bar);
        bulk_load(scales, g.s0, SCALES, bar);
        bulk_load(scales + SCALES, g.s1, SCALES, bar);
        g.w0 += RUN, g.w1 += RUN, g.s0 += SCALES, g.s1 += SCALES;
    }
    /* Waits until stage n (counted through all steps) has been multiplied. */
    __device__ void used(int n) const { mbar_wait(empty + n % walk::ST * 8, static_cast<uint32_t>(n / walk::ST & 1)); }
};

/* The extra warps: bring weights and images of all steps. */
template <bool UP> __device__ static void walk_produce(const moe_args &a, const walk_ring &ring, const walk_range &range, int stages) {
    int group = static_cast<int>(threadIdx.x - walk::CONSUMERS) / 32;
    if (threadIdx.x & 31) return;
    if (range.first >= range.end) return depend_wait();
    const image &from = UP ? a.x : a.h;
    walk_step next = range.at(range.first);
    expert_view e = a.experts[next.t.expert];
    int n = 0, layout = 0, row = -1; /* stages so far; how images lie: a width, negative where they stay; tile that lies there */
    bool waited = false;
    for (int i = range.first; i < range.end; i++) {
        walk_step now = next;
        gemm_strips g = UP ? up_strips<walk::GROUPS>(a, e, now.x) : down_strips<walk::GROUPS>(a, e, now.x);
        g.skip(group);
        if (i + 1 < range.end) {
            next = range.at(i + 1);
            if (next.t.expert != now.t.expert) e = a.experts[next.t.expert];
        }
        int width = now.width(), bytes = width * walk::TOKEN, block = width * 128;
        bool stays = now.stays(stages), bring = !stays || now.t.row != row;
        bool over = layout != (stays ? -width : width) || (stays && bring && stages < walk::ST);
        if (over) { /* images would overwrite others that are still read */
            for (int j = max(n - walk::ST, 0); j < n; j++) ring.used(j);
        }
        layout = stays ? -width : width;
        row = stays ? now.t.row : -1;
        const unsigned char *at = from.p + group * from.block_stride + static_cast<int64_t>(now.t.row) * 128;
        int early = 0;
        if (!waited) {
            for (; early < walk::ST && early < stages; early++) ring.strips(g, group, static_cast<uint32_t>(early), block);
            depend_wait();
            waited = true;
        }
        for (int it = 0; it < stages; it++, n++) {
            uint32_t st = static_cast<uint32_t>(n % walk::ST);
            if (n >= walk::ST) ring.used(n - walk::ST);
            if (it >= early) ring.strips(g, group, st, bring ? block : 0);
            if (!bring) continue;
            int slot = stays ? it : static_cast<int>(st);
            bulk_load(ring.x + static_cast<uint32_t>(slot * bytes + group * block), at, block, ring.full + st * 8);
            at += 4 * from.block_stride;
        }
    }
}

/* All stages of one step: acc (zeros before) becomes the products with N tokens. st: slot of the next stage, with the phase of its
 * barrier. */
template <int N>
__device__ static void walk_consume(float (&acc)[N / 2], const walk_ring &ring, int stages, bool stays, uint32_t &st, uint32_t &parity) {
    int tid = threadIdx.x, lane = tid & 31;
    uint32_t before = st;
    wgmma_done(acc);
#pragma unroll 1
    for (int it = 0; it < stages; it++) {
        mbar_wait(ring.full + st * 8, parity);
        uint64_t desc = wgmma_desc(ring.x + static_cast<uint32_t>((stays ? it : static_cast<int>(st)) * N * walk::TOKEN));
        uint32_t a[2][walk::G][4];
#pragma unroll
        for (int u = 0; u < walk::U; u++) {
            uint32_t q0[4], q1[4], run = static_cast<uint32_t>(tid / 128 * 2 * walk::U + u);
            uint32_t from = ring.w + st * walk::W + run * STRIP_UNIT + tid % 128 * 16;
            uint32_t scales = ring.s + st * walk::S + run * STRIP_SCALES + tid % 128;
            load_shared16(q0, from);
            load_shared16(q1, from + walk::U * STRIP_UNIT);
            uint32_t m0 = strip_scale(load_shared_byte(scales));
            uint32_t m1 = strip_scale(load_shared_byte(scales + walk::U * STRIP_SCALES));
#pragma unroll
            for (int g = 0; g < 8 / walk::G; g++) {
#pragma unroll
                for (int i = 0; i < walk::G; i++) expand<W_FP4>(a[g % 2][i], g * walk::G + i, q0, q1, m0, m1);
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < walk::G; i++) {
                    int j = u * 8 + g * walk::G + i;
                    wgmma<N>(acc, a[g % 2][i], desc + j / 4 * N * 8 + j % 4 * 2);
                }
                wgmma_commit();
                wgmma_wait<1>(); /* the other set of operands is free */
                if (u == 0 && g == 0 && it > 0) {
                    __syncwarp(); /* what all lanes have read of the stage before lies before the arrival */
                    if (lane == 0) mbar_arrive(ring.empty + before * 8);
                }
            }
        }
        before = st;
        if (++st == walk::ST) st = 0, parity ^= 1;
    }
    wgmma_wait<0>();
    wgmma_done(acc);
    __syncwarp();
    if (lane == 0) mbar_arrive(ring.empty + before * 8);
#pragma unroll
    for (int i = 0; i < N / 2; i++) acc[i] *= 0x1p20f;
}

template <bool UP> __global__ void __launch_bounds__(walk::THREADS, 1) moe_walk_kernel(const __grid_constant__ moe_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    __shared__ float amax[UP ? walk::GROUPS * 4 * walk::BT : 1];
    walk_ring ring(smem);
    depend_launch();
    int stages = (UP ? a.D : a.I) / walk::K, rows = UP ? a.I / 32 : a.D / 64;
    walk_range range(a, (rows + walk::GROUPS - 1) / walk::GROUPS);
    if (threadIdx.x >= walk::CONSUMERS) {
        fewer_registers<56>();
        walk_produce<UP>(a, ring, range, stages);
        return;
    }
    more_registers<104>();
    int group = threadIdx.x / 128, place = threadIdx.x / 32 % 4 * 8 + (threadIdx.x >> 2 & 7);
    uint32_t st = 0, parity = 0;
    walk_step next = {};
    if (range.first < range.end) next = range.at(range.first);
    for (int i = range.first; i < range.end; i++) {
        walk_step now = next;
        if (i + 1 < range.end) next = range.at(i + 1);
        moe_with_width<walk::BT, 8>(now.width(), [&](auto width) {
            constexpr int N = decltype(width)::value;
            float acc[N / 2] = {};
            walk_consume<N>(acc, ring, stages, now.stays(stages), st, parity);
            int tile = now.x * walk::GROUPS + group;
            if constexpr (UP) {
                moe_tile to = now.t;
                if (tile >= rows) to.n = -8; /* nothing to store */
                bar_sync(1 + group, 128);    /* nobody reads the maxima of the step before any more */
                gate_and_quantise<W_FP4, walk::GROUPS, walk::BT, N>(a, to, acc, tile < rows ? tile * 32 + place : 0, amax);
            } else {
                store_down<N>(a, now.t, acc, tile * 64 + place);
            }
        });
    }
}

static inline by_status walk_products(by_cuda *c, const moe_args &a, by_err *err) {
    auto up = moe_walk_kernel<true>, down = moe_walk_kernel<false>;
    BY_TRY(by_cuda_smem(up, walk::BYTES, err));
    BY_TRY(by_cuda_smem(down, walk::BYTES, err));
    dim3 grid(static_cast<unsigned>(c->sms));
    BY_CUDA_TRY(err, by_cuda_chain(c, up, grid, walk::THREADS, walk::BYTES, 1, a));
    BY_CUDA_TRY(err, by_cuda_chain(c, down, grid, walk::THREADS, walk::BYTES, 1, a));
    return BY_OK;
}

#endif
