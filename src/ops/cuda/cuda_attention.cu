// cuda_attention.cu - attention over the window and the selected entries, from their packed records. Source: model.md 5.
//
// All 64 heads share one key, which is also the value, so a row is a 64 x keys x 512 product: made for the tensor core. Two
// blocks of a cluster share a row's keys in tiles of 64 (window records, then entries). In a block the warpgroups have trades:
// one expands the tiles' records to bf16 in shared memory (exact, times 2^-8), in a layout that serves both products; one
// computes scores = q k^T and the running softmax, and leaves probabilities in shared memory; two add o = p v, 256 channels
// each, from the same bytes turned. Two tiles are on their way at a time, so expansion, scores and sums overlap. At the end
// the blocks exchange maxima, sums and half of their channels, and each finishes its half. The split depends on the row alone.
//
// Rounding: probabilities enter the second product as bf16 and are summed as such; all else is fp32.
#include <type_traits>

#include "ops/cuda/cuda_gemm.cuh"

struct attention_view {
    batch_view b;
    view q, cs, kv, sel, o;
    unsigned char *ring;
    int64_t ring_stride;
    int ring_len, ring_rec;
    pages_view main;
    const float *sink;
    const int32_t *from; /* [sequences], NULL: 0 */
    int heads, d, window, ratio;
    float scale;
    bool block; /* draft block: its rows see the window in front of it and one another */
    uint32_t nil; /* 0 */
};

/* Keys of a row: window positions first, then entries in ascending order. */
struct row_keys {
    int first, n_window, n_entries, pos0, row0;
    const unsigned char *ring;
    const int32_t *chosen, *table; /* chosen NULL: entry i is i */
};
/* What the step's description says; entries come behind depend_wait. */
__device__ static row_keys window_of(const attention_view &a, int t) {
    row_keys k;
    int pos = a.b.pos[t], seq = a.b.seq[t];
    k.pos0 = a.b.pos0[seq];
    k.row0 = a.b.row0[seq];
    int last = a.block ? k.pos0 + a.b.row0[seq + 1] - k.row0 - 1 : pos;
    k.first = max((a.block ? k.pos0 : pos + 1) - a.window, a.from ? a.from[seq] : 0);
    k.n_window = max(last - k.first + 1, 0);
    k.ring = a.ring + a.b.slot[seq] * a.ring_stride;
    k.n_entries = a.main.p ? (pos + 1) / a.ratio : 0;
    k.chosen = nullptr;
    k.table = a.b.blocks + seq * a.b.blocks_stride;
    return k;
}
__device__ static void find_entries(const attention_view &a, int t, row_keys &k) {
    if (!a.main.p) return;
    const int32_t *sel = a.sel.i32(t);
    if (sel[0] < 0) return;
    k.n_entries = sel[0];
    k.chosen = sel + 1;
}
__device__ static const unsigned char *window_key(const attention_view &a, const row_keys &k, int i, int d) {
    int p = k.first + i;
    return p >= k.pos0 ? a.kv.row(k.row0 + (p - k.pos0)) : k.ring + p % a.ring_len * rec_bytes(a.ring_rec, d);
}
__device__ static const unsigned char *entry_key(const attention_view &a, const row_keys &k, int i, int d) {
    unsigned char *scales = nullptr;
    return page_entry(a.main, k.table, k.chosen ? k.chosen[i] : i, d, &scales);
}

/* ---- any shape ------------------------------------------------------------------------------------------------ */

/* One block a row and head. Shared: q [d], o [d], p [keys]. */
__global__ void __launch_bounds__(128) attention_plain_kernel(attention_view a) {
    BY_CUDA_DYNAMIC(float, q);
    __shared__ float part[32];
    int t = blockIdx.x, h = blockIdx.y, d = a.d, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *o = q + d, *p = o + d;
    row_keys k = window_of(a, t);
    find_entries(a, t, k);
    int n = k.n_window + k.n_entries;
    for (int i = threadIdx.x; i < d; i += 128) q[i] = value_at(a.q.dtype, a.q.row(t), 0, h * d + i);
    __syncthreads();
    float top = a.sink[h];
    for (int j = warp; j < n; j += 4) {
        bool in = j < k.n_window;
        const unsigned char *key = in ? window_key(a, k, j, d) : entry_key(a, k, j - k.n_window, d);
        int rec = in ? a.ring_rec : a.main.rec;
        const unsigned char *scales = record_scales(rec, key, d);
        float s = 0;
        for (int i = lane; i < d; i += 32) s = fmaf(q[i], record_value(rec, key, scales, i), s);
        s = warp_sum(s) * a.scale;
        if (lane == 0) p[j] = s;
        top = fmaxf(top, s);
    }
    if (lane == 0) part[warp] = top;
    __syncthreads();
    top = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
    float sum = 0;
    for (int j = threadIdx.x; j < n; j += 128) sum += p[j] = expf(p[j] - top);
    sum = block_sum(sum, part) + expf(a.sink[h] - top);
    for (int i = threadIdx.x; i < d; i += 128) {
        float acc = 0;
        for (int j = 0; j < n; j++) {
            bool in = j < k.n_window;
            const unsigned char *key = in ? window_key(a, k, j, d) : entry_key(a, k, j - k.n_window, d);
            int rec = in ? a.ring_rec : a.main.rec;
            acc = fmaf(p[j], record_value(rec, key, record_scales(rec, key, d), i), acc);
        }
        o[i] = acc / sum;
    }
    __syncthreads();
    block_rotate(o, d, a.cs.f32(t), a.cs.cols, -1, BY_F32);
    unsigned char *to = a.o.row(t);
    if (a.o.dtype != BY_A8) {
        for (int i = threadIdx.x; i < d; i += 128) store_value(a.o.dtype, to, h * d + i, o[i]);
        return;
    }
    for (int g = warp; g < d / 32; g += 4) {
        float v = o[g * 32 + lane];
        uint32_t b = act8_scale(warp_max(fabsf(v)));
        to[h * d + g * 32 + lane] = e4m3_of(v * ue8m0_inverse(b));
        if (lane == 0) to[a.heads * d + (h * d) / 32 + g] = static_cast<uint8_t>(b);
    }
}

/* ---- 64 heads of 512 ------------------------------------------------------------------------------------------ */

namespace {
constexpr int HEADS = 64, WIDTH = 512, TILE = 64, SPLIT = 2, STAGES = 2, BLOCK = TILE * 128;
constexpr int TILE_BYTES = TILE * WIDTH * 2, P_BYTES = HEADS * TILE * 2;
constexpr int SMEM_Q = 0, SMEM_K = HEADS * WIDTH * 2, SMEM_P = SMEM_K + STAGES * TILE_BYTES, SMEM_STAT = SMEM_P + STAGES * P_BYTES;
constexpr int MOST_TILES = 16; /* of a block */
constexpr int SMEM_AT = SMEM_STAT + (STAGES + 2 * SPLIT) * HEADS * 4, SMEM_BAR = SMEM_AT + MOST_TILES * TILE * 8;
constexpr int SMEM_BYTES = SMEM_BAR + (4 * STAGES + 5) * 8 + 1024;
constexpr int THREADS = 512;
constexpr float DOWN = 0x1p-8f; /* keys are kept times this, so that E2M1 times an E4M3 scale stays inside bf16's exponents */

/* Barriers in shared memory. A stage goes: expanded (keys), probabilities there (p), used (free for both). Then once: own maxima
 * and sums are there, the other block's, the other block reads no keys any more, its channels are there; first of all, q is there. */
enum { BAR_KEYS = 0, BAR_P = 1, BAR_KEYS_FREE = 2, BAR_P_FREE = 3 };
enum { BAR_OWN = 4 * STAGES, BAR_STATS, BAR_ROOM, BAR_GOT, BAR_Q };
__device__ inline uint32_t bar_of(uint32_t base, int which, int stage) {
    return base + SMEM_BAR + static_cast<uint32_t>(which * STAGES + stage) * 8;
}
__device__ inline uint32_t bar_once(uint32_t base, int which) { return base + SMEM_BAR + static_cast<uint32_t>(which) * 8; }
} // namespace

/* Place of channel block of 8 `chunk` (0..63) of row r in [8 blocks of 64 channels][64 rows][128 bytes], swizzled. */
__device__ static inline uint32_t tile_place(int r, int chunk) {
    return static_cast<uint32_t>(chunk / 8 * BLOCK + r * 128 + ((chunk & 7) ^ (r & 7)) * 16);
}
__device__ static inline void put_fp8(uint32_t tile, int r, int unit, const uint4 &v, uint32_t scale) {
    uint32_t s = scale + 112u, m = s << 7 | s << 23; /* 2^(b - 127 + 120 - 8) */
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    uint32_t out[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t lo, hi;
        expand_fp8(w[i], m, lo, hi);
        out[2 * i] = __byte_perm(lo, hi, 0x5410);
        out[2 * i + 1] = __byte_perm(lo, hi, 0x7632);
    }
    put16(tile + tile_place(r, unit * 2), out[0], out[1], out[2], out[3]);
    put16(tile + tile_place(r, unit * 2 + 1), out[4], out[5], out[6], out[7]);
}
__device__ static inline void put_fp4(uint32_t tile, int r, int unit, const uint2 &v, uint32_t scale) {
    uint32_t s = bf16_bits(e4m3_value(scale) * 0x1p118f), m = s | s << 16; /* 2^(126 - 8) */
    const uint32_t w[2] = {v.x, v.y};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t e0 = expand_fp4<0>(w[i], m), e1 = expand_fp4<1>(w[i], m), e2 = expand_fp4<2>(w[i], m),
                 e3 = expand_fp4<3>(w[i], m);
        put16(tile + tile_place(r, unit * 2 + i), __byte_perm(e0, e1, 0x5410), __byte_perm(e2, e3, 0x5410),
              __byte_perm(e0, e1, 0x7632), __byte_perm(e2, e3, 0x7632));
    }
}

/* Tiles of a row that this block takes. */
struct tile_range {
    int windows, first, end; /* windows: tiles of the window in the whole row */
};
__device__ static inline tile_range tiles_of(const row_keys &k, int rank) {
    int windows = (k.n_window + TILE - 1) / TILE, tiles = windows + (k.n_entries + TILE - 1) / TILE;
    return {windows, rank * tiles / SPLIT, (rank + 1) * tiles / SPLIT};
}

/* Where the keys of the block's tiles lie, to shared memory; NULL behind the last one. All threads. The records are on their way to
 * the L2 cache then. */
__device__ static void find_keys(const attention_view &a, const row_keys &k, const tile_range &n, const unsigned char **at) {
    for (int j = threadIdx.x; j < (n.end - n.first) * TILE; j += THREADS) {
        int tile = n.first + j / TILE;
        bool window = tile < n.windows;
        int i = (window ? tile : tile - n.windows) * TILE + j % TILE;
        const unsigned char *key = nullptr;
        if (i < (window ? k.n_window : k.n_entries)) key = window ? window_key(a, k, i, WIDTH) : entry_key(a, k, i, WIDTH);
        at[j] = key;
        int bytes = window || a.main.rec == BY_REC_FP8 ? WIDTH + WIDTH / 32 : WIDTH / 2 + WIDTH / 16;
        for (int b = 0; key && b < bytes; b += 128) prefetch_line(key + b);
    }
}
/* A thread expands 8 units of 16 channels of one row of each half of a tile; lanes 0..7 have neighbouring rows, so that neither
 * loads nor stores collide. */
__device__ static inline int row_of_thread() { return (threadIdx.x & 127) / 32 * 8 + (threadIdx.x & 7); }
template <bool FP4> struct raw_row { /* FP8: E4M3 with UE8M0 per 32 channels; FP4: E2M1 with E4M3 per 16 */
    typename std::conditional<FP4, uint2, uint4>::type v[8];
    uint4 scale[FP4 ? 2 : 1];
};
template <bool FP4> __device__ static inline void load_row(raw_row<FP4> &raw, const unsigned char *key) {
    using piece = typename std::conditional<FP4, uint2, uint4>::type;
    int first = threadIdx.x >> 3 & 3;
    raw = {};
    if (!key) return;
#pragma unroll
    for (int j = 0; j < 8; j++) raw.v[j] = reinterpret_cast<const piece *>(key)[first + 4 * j];
#pragma unroll
    for (int j = 0; j < (FP4 ? 2 : 1); j++) raw.scale[j] = reinterpret_cast<const uint4 *>(key + (FP4 ? WIDTH / 2 : WIDTH))[j];
}
template <bool FP4> __device__ static inline void store_row(const raw_row<FP4> &raw, uint32_t tile, int r) {
    int first = threadIdx.x >> 3 & 3;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if constexpr (FP4) { /* byte first + 4 j of 32 */
            const uint4 &q = raw.scale[j / 4];
            uint32_t w = j % 4 == 0 ? q.x : j % 4 == 1 ? q.y : j % 4 == 2 ? q.z : q.w;
            put_fp4(tile, r, first + 4 * j, raw.v[j], w >> 8 * first & 0xff);
        } else { /* byte first / 2 + 2 j of 16 */
            const uint4 &q = raw.scale[0];
            uint32_t w = j / 2 == 0 ? q.x : j / 2 == 1 ? q.y : j / 2 == 2 ? q.z : q.w;
            put_fp8(tile, r, first + 4 * j, raw.v[j], w >> (j % 2 * 16 + first / 2 * 8) & 0xff);
        }
    }
}
/* Tiles [i, end) of the block, counted from its first, of one format: half tiles, the next on its way while one is expanded. */
template <bool FP4> __device__ static void expand_tiles(const unsigned char *const *at, int i, int end, uint32_t base) {
    int r = row_of_thread();
    raw_row<FP4> low, high;
    if (i < end) load_row<FP4>(low, at[i * TILE + r]);
    for (; i < end; i++) {
        int stage = i % STAGES;
        uint32_t to = base + SMEM_K + static_cast<uint32_t>(stage) * TILE_BYTES;
        load_row<FP4>(high, at[i * TILE + r + 32]);
        mbar_wait(bar_of(base, BAR_KEYS_FREE, stage), static_cast<uint32_t>(i / STAGES & 1) ^ 1);
        store_row<FP4>(low, to, r);
        if (i + 1 < end) load_row<FP4>(low, at[(i + 1) * TILE + r]);
        store_row<FP4>(high, to, r + 32);
        fence_async();
        mbar_arrive(bar_of(base, BAR_KEYS, stage));
    }
}
/* One warpgroup: expands the tiles. */
__device__ static void expand_keys(const attention_view &a, const tile_range &n, const unsigned char *const *at, uint32_t base) {
    int windows = max(min(n.windows, n.end) - n.first, 0), tiles = n.end - n.first;
    if (a.main.rec == BY_REC_FP8) windows = tiles;
    expand_tiles<false>(at, 0, windows, base);
    expand_tiles<true>(at, windows, tiles, base);
}

struct softmax_state {
    float top[2], sum[2]; /* of a thread's two heads; top in units of log 2 */
};
/* Begins the scores of tile i of the block, once its keys are there. */
__device__ static inline void score_tile(const attention_view &a, float (&s)[32], uint32_t base, int i) {
    int stage = i % STAGES;
    mbar_wait(bar_of(base, BAR_KEYS, stage), static_cast<uint32_t>(i / STAGES & 1));
#pragma unroll
    for (int j = 0; j < 32; j++) s[j] = 0;
    wgmma_done(s); /* the zeros stand before the first instruction */
    wgmma_fence();
    uint32_t at = base + a.nil * static_cast<uint32_t>(i); /* keeps the compiler from holding all descriptors in registers from tile to tile */
    uint64_t q = wgmma_desc(at + SMEM_Q), keys = wgmma_desc(at + SMEM_K + static_cast<uint32_t>(stage) * TILE_BYTES);
#pragma unroll
    for (int j = 0; j < WIDTH / 16; j++)
        wgmma_ss<64, 0>(s, wgmma_ahead(q, j / 4 * BLOCK + j % 4 * 32), wgmma_ahead(keys, j / 4 * BLOCK + j % 4 * 32));
    wgmma_commit();
}
/* Softmax of tile i: probabilities and factors of the sums so far to shared memory. */
__device__ static inline void soften_tile(const attention_view &a, const row_keys &k, const tile_range &n, uint32_t base, float *stat, int i,
                                          float (&s)[32], softmax_state &state) {
    int tid = threadIdx.x & 127, c = tid & 3, row = tid / 32 * 16 + (tid >> 2 & 7), tile = n.first + i, stage = i % STAGES;
    const float to_log2 = a.scale * 1.44269504f / DOWN;
    float (&top)[2] = state.top, (&sum)[2] = state.sum, m[2] = {-INFINITY, -INFINITY}, down[2];
    wgmma_wait<0>();
    wgmma_done(s);
    bool window = tile < n.windows;
    int left = (window ? k.n_window : k.n_entries) - (window ? tile : tile - n.windows) * TILE;
    if (left < TILE) {
#pragma unroll
        for (int j = 0; j < 32; j++) s[j] = j / 4 * 8 + c * 2 + (j & 1) < left ? s[j] : -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < 32; j++) m[j / 2 & 1] = fmaxf(m[j / 2 & 1], s[j]);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        m[e] = fmaxf(m[e], __shfl_xor_sync(~0u, m[e], 1));
        m[e] = fmaxf(top[e], fmaxf(m[e], __shfl_xor_sync(~0u, m[e], 2)) * to_log2);
        down[e] = exp2_fast(top[e] - m[e]);
        top[e] = m[e];
        sum[e] *= down[e];
    }
    mbar_wait(bar_of(base, BAR_P_FREE, stage), static_cast<uint32_t>(i / STAGES & 1) ^ 1);
    uint32_t p = base + SMEM_P + static_cast<uint32_t>(stage) * P_BYTES + static_cast<uint32_t>(row * 128 + (row & 7) * 16 + c * 4);
    keep_here(p); /* or its eight variants stay in registers from tile to tile */
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            __nv_bfloat162 pair = __floats2bfloat162_rn(exp2_fast(fmaf(s[4 * j + 2 * e], to_log2, -top[e])),
                                                        exp2_fast(fmaf(s[4 * j + 2 * e + 1], to_log2, -top[e])));
            uint32_t v = reinterpret_cast<uint32_t &>(pair);
            sum[e] += __uint_as_float(v << 16) + __uint_as_float(v & 0xffff0000u);
            if (e == 0) put4(p ^ static_cast<uint32_t>(j * 16), v);
            else put4_behind<1024>(p ^ static_cast<uint32_t>(j * 16), v);
        }
    }
    if (c == 0) stat[stage * HEADS + row] = down[0], stat[stage * HEADS + row + 8] = down[1];
    fence_async();
    mbar_arrive(bar_of(base, BAR_P, stage));
}

/* One warpgroup: scores and softmax. A thread has heads `row` and `row` + 8. */
__device__ static void score_keys(const attention_view &a, const row_keys &k, const tile_range &n, uint32_t base, float *stat) {
    int tid = threadIdx.x & 127, lane = tid & 31, c = lane & 3, row = tid / 32 * 16 + (lane >> 2);
    mbar_wait(bar_once(base, BAR_Q), 0);
    softmax_state state = {{-INFINITY, -INFINITY}, {0, 0}};
    for (int i = 0; i < n.end - n.first; i++) {
        float s[32];
        score_tile(a, s, base, i);
        soften_tile(a, k, n, base, stat, i, s, state);
    }
    float (&top)[2] = state.top, (&sum)[2] = state.sum;
    uint32_t rank = cluster_rank(), bar = remote(bar_once(base, BAR_STATS), rank ^ 1);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        sum[e] += __shfl_xor_sync(~0u, sum[e], 1);
        sum[e] += __shfl_xor_sync(~0u, sum[e], 2);
        if (c != 0) continue;
        float *own = stat + (STAGES + 2 * rank) * HEADS + row + 8 * e;
        own[0] = top[e];
        own[HEADS] = sum[e];
        send4(remote(smem_addr(own), rank ^ 1), top[e], bar);
        send4(remote(smem_addr(own + HEADS), rank ^ 1), sum[e], bar);
    }
    mbar_arrive(bar_once(base, BAR_OWN));
}

/* Two bytes each of 4 blocks of 8 channels, from each of a quad's threads -> the 8 bytes of block `c`. */
__device__ static inline uint2 turn_quad(const uint32_t (&b)[4], int c) {
    bool odd = c & 1, upper = c & 2;
    uint32_t keep = odd ? b[1] | b[3] << 16 : b[0] | b[2] << 16, send = odd ? b[0] | b[2] << 16 : b[1] | b[3] << 16;
    uint32_t got = __shfl_xor_sync(~0u, send, 1), first = odd ? got : keep, second = odd ? keep : got;
    uint32_t low = __byte_perm(first, second, 0x5410), high = __byte_perm(first, second, 0x7632); /* blocks odd, odd + 2 */
    uint32_t other = __shfl_xor_sync(~0u, upper ? low : high, 2);
    return upper ? make_uint2(other, high) : make_uint2(low, other);
}
/* 128 channels from `channel` on of heads `row` and `row` + 8: divided, turned back, quantised, stored. v as the matrix
 * instruction leaves it; turn: cos and sin of this thread's channels among the last 64. */
__device__ static void finish_heads(const attention_view &a, int t, float (&v)[64], const float (&up)[2], const float2 (&turn)[8], int row,
                                    int channel) {
    int c = threadIdx.x & 3;
    unsigned char *to = a.o.row(t);
#pragma unroll
    for (int j = 0; j < 64; j++) v[j] *= up[j / 2 & 1];
    if (channel == WIDTH - 128) { /* the inverse rotation of the last 64 channels: sin negated */
#pragma unroll
        for (int j = 16; j < 32; j++) { /* pairs: j / 2 counts blocks of 8 channels, j % 2 is the head */
            float2 w = turn[j / 2 - 8];
            float x = v[2 * j], y = v[2 * j + 1];
            v[2 * j] = __fadd_rn(__fmul_rn(x, w.x), __fmul_rn(y, w.y));
            v[2 * j + 1] = __fsub_rn(__fmul_rn(y, w.x), __fmul_rn(x, w.y));
        }
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int h = row + 8 * e;
        uint32_t scales = 0;
#pragma unroll
        for (int g = 0; g < 4; g++) {
            float m = 0;
#pragma unroll
            for (int i = 4 * g; i < 4 * g + 4; i++) m = fmaxf(m, fmaxf(fabsf(v[4 * i + 2 * e]), fabsf(v[4 * i + 2 * e + 1])));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
            uint32_t scale = act8_scale(m), b[4];
            float inverse = ue8m0_inverse(scale);
#pragma unroll
            for (int i = 0; i < 4; i++)
                b[i] = __nv_cvt_float2_to_fp8x2(make_float2(v[16 * g + 4 * i + 2 * e] * inverse, v[16 * g + 4 * i + 2 * e + 1] * inverse),
                                                __NV_SATFINITE, __NV_E4M3);
            *reinterpret_cast<uint2 *>(to + h * WIDTH + channel + g * 32 + c * 8) = turn_quad(b, c);
            scales |= scale << 8 * g;
        }
        if (c == 0) *reinterpret_cast<uint32_t *>(to + HEADS * WIDTH + h * (WIDTH / 32) + channel / 32) = scales;
    }
}

/* Two warpgroups, 256 channels each: sums of p v; then the exchange with the other block. `half` is 0 or 1. */
__device__ static void sum_values(const attention_view &a, const tile_range &n, int t, int half, uint32_t rank, uint32_t base,
                                  const float *stat) {
    int lane = threadIdx.x & 31, w = threadIdx.x / 32 % 4, row = w * 16 + (lane >> 2);
    float sinks[2] = {a.sink[row] * 1.44269504f, a.sink[row + 8] * 1.44269504f};
    for (int i = threadIdx.x - 128; i < HEADS * 64; i += 256) /* q: 64 rows of 64 pieces of 16 bytes */
        cp_async16(base + SMEM_Q + tile_place(i >> 6, i & 63), a.q.row(t) + i * 16);
    cp_commit();
    cp_wait<0>();
    fence_async();
    mbar_arrive(bar_once(base, BAR_Q));
    float o[2][64] = {}; /* 128 channels each: ptxas has no room for an instruction with all 256 */
    for (int tile = n.first, i = 0; tile < n.end; tile++, i++) {
        int stage = i % STAGES;
        uint32_t parity = static_cast<uint32_t>(i / STAGES & 1);
        uint64_t keys = wgmma_desc_wide(base + SMEM_K + static_cast<uint32_t>(stage * TILE_BYTES + half * 4 * BLOCK), BLOCK);
        uint64_t p = wgmma_desc(base + SMEM_P + static_cast<uint32_t>(stage) * P_BYTES);
        mbar_wait(bar_of(base, BAR_P, stage), parity);
        float down[2] = {stat[stage * HEADS + row], stat[stage * HEADS + row + 8]};
        if (__any_sync(~0u, down[0] != 1.0f || down[1] != 1.0f)) {
#pragma unroll
            for (int j = 0; j < 128; j++) o[j / 64][j % 64] *= down[j / 2 & 1];
        }
        wgmma_done(o[0]);
        wgmma_done(o[1]);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            wgmma_ss<128, 1>(o[0], wgmma_ahead(p, j * 32), wgmma_ahead(keys, j * 2048));
            wgmma_ss<128, 1>(o[1], wgmma_ahead(p, j * 32), wgmma_ahead(keys, 2 * BLOCK + j * 2048));
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_done(o[0]);
        wgmma_done(o[1]);
        if (lane == 0) {
            mbar_arrive(bar_of(base, BAR_KEYS_FREE, stage));
            mbar_arrive(bar_of(base, BAR_P_FREE, stage));
        }
    }
    if (lane == 0) mbar_arrive_remote(bar_once(base, BAR_ROOM), rank ^ 1);
    mbar_wait(bar_once(base, BAR_OWN), 0);
    mbar_wait(bar_once(base, BAR_STATS), 0);
    float factor[2], up[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int h = row + 8 * e;
        const float *of = stat + STAGES * HEADS + h; /* maximum and sum of block 0, then of block 1 */
        float sink = sinks[e], all = fmaxf(sink, fmaxf(of[0], of[2 * HEADS]));
        float f0 = exp2_fast(of[0] - all), f1 = exp2_fast(of[2 * HEADS] - all);
        float l = exp2_fast(sink - all) + of[HEADS] * f0 + of[3 * HEADS] * f1;
        up[e] = 1.0f / (DOWN * l);
        factor[e] = rank == 0 ? f0 : f1;
    }
    /* channels 128 rank .. of this half are this block's to finish, the others go to the same thread of the other block */
    uint32_t mine = base + SMEM_K + static_cast<uint32_t>((half * 128 + (threadIdx.x & 127)) * 16), to = remote(mine, rank ^ 1);
    uint32_t bar = remote(bar_once(base, BAR_GOT), rank ^ 1);
    float v[64];
#pragma unroll
    for (int j = 0; j < 64; j++) {
        v[j] = (rank == 0 ? o[0][j] : o[1][j]) * factor[j / 2 & 1];
        o[0][j] = (rank == 0 ? o[1][j] : o[0][j]) * factor[j / 2 & 1];
    }
    mbar_wait(bar_once(base, BAR_ROOM), 0);
#pragma unroll
    for (int j = 0; j < 16; j++) send16(to + j * 4096, o[0][4 * j], o[0][4 * j + 1], o[0][4 * j + 2], o[0][4 * j + 3], bar);
    float2 turn[8];
#pragma unroll
    for (int i = 0; i < 8; i++) turn[i] = *reinterpret_cast<const float2 *>(a.cs.f32(t) + i * 8 + (lane & 3) * 2);
    mbar_wait(bar_once(base, BAR_GOT), 0);
#pragma unroll
    for (int j = 0; j < 16; j++) {
        uint32_t q[4];
        load_shared16(q, mine + j * 4096);
#pragma unroll
        for (int e = 0; e < 4; e++) v[4 * j + e] += __uint_as_float(q[e]);
    }
    finish_heads(a, t, v, up, turn, row, half * 256 + static_cast<int>(rank) * 128);
}

__global__ void __launch_bounds__(THREADS, 1) attention_kernel(const __grid_constant__ attention_view a) {
    BY_CUDA_DYNAMIC(unsigned char, bytes);
    uint32_t base = (smem_addr(bytes) + 1023) & ~1023u, rank = blockIdx.x % SPLIT;
    unsigned char *smem = bytes + (base - smem_addr(bytes));
    float *stat = reinterpret_cast<float *>(smem + SMEM_STAT); /* [STAGES][64] factors; maxima and sums of both blocks, [64] each */
    const unsigned char **at = reinterpret_cast<const unsigned char **>(smem + SMEM_AT);
    int t = blockIdx.x / SPLIT, group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbar_init(bar_of(base, BAR_KEYS, i), 128);
            mbar_init(bar_of(base, BAR_P, i), 128);
            mbar_init(bar_of(base, BAR_KEYS_FREE, i), 8);
            mbar_init(bar_of(base, BAR_P_FREE, i), 8);
        }
        mbar_init(bar_once(base, BAR_OWN), 128);
        mbar_init(bar_once(base, BAR_STATS), 1);
        mbar_init(bar_once(base, BAR_ROOM), 8);
        mbar_init(bar_once(base, BAR_GOT), 1);
        mbar_init(bar_once(base, BAR_Q), 256);
        mbar_expect(bar_once(base, BAR_STATS), 2 * HEADS * 4);
        mbar_expect(bar_once(base, BAR_GOT), HEADS * WIDTH * 2);
        fence_async();
    }
    cluster_arrive(); /* the other block's barriers exist: waited for below */
    row_keys k = window_of(a, t);
    depend_wait();
    depend_launch();
    find_entries(a, t, k);
    tile_range n = tiles_of(k, static_cast<int>(rank));
    find_keys(a, k, n, at);
    cluster_wait();
    __syncthreads();
    if (group == 0) {
        fewer_registers<80>();
        score_keys(a, k, n, base, stat);
    } else if (group == 3) {
        fewer_registers<112>();
        expand_keys(a, n, at, base);
    } else {
        more_registers<160>();
        sum_values(a, n, t, group - 1, rank, base, stat);
    }
}

by_status by_cuda_attention(by_device *dev, const by_attention_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    if (a->q.rows == 0) return BY_OK;
    assert(!a->block || !a->main.mem);
    attention_view v = {batch_of(a->batch), view_of(a->q), view_of(a->cs), view_of(a->kv), view_of(a->sel), view_of(a->o),
                        a->ring.mem->ptr + a->ring.off, a->ring.slot_stride, a->ring.len, a->ring.rec, pages_of(a->main),
                        reinterpret_cast<const float *>(a->sink.mem->ptr + a->sink.off), i32_of(a->from), a->heads, a->d, a->window, a->ratio,
                        a->scale, a->block > 0, 0};
    uintptr_t at = reinterpret_cast<uintptr_t>(v.q.p) | static_cast<uintptr_t>(v.q.stride) |
                   reinterpret_cast<uintptr_t>(v.cs.p) | static_cast<uintptr_t>(v.cs.stride) | reinterpret_cast<uintptr_t>(v.kv.p) |
                   static_cast<uintptr_t>(v.kv.stride) | reinterpret_cast<uintptr_t>(v.ring) | static_cast<uintptr_t>(v.ring_stride) |
                   reinterpret_cast<uintptr_t>(v.o.p) | static_cast<uintptr_t>(v.o.stride);
    if (v.main.p) at |= reinterpret_cast<uintptr_t>(v.main.p) | static_cast<uintptr_t>(v.main.block_stride);
    bool fast = c->wgmma && a->heads == HEADS && a->d == WIDTH && a->q.dtype == BY_BF16 && a->ring.rec == BY_REC_FP8 && at % 16 == 0 &&
                a->cs.cols == 64 && a->o.dtype == BY_A8 && (!v.main.p || a->main.rec == BY_REC_FP4 || a->main.rec == BY_REC_FP8);
    int64_t keys = a->window + (a->main.mem ? a->sel.cols - 1 : 0) + a->block;
    fast = fast && keys <= (SPLIT * MOST_TILES - 2) * TILE;
    unsigned rows = static_cast<unsigned>(a->q.rows);
    if (fast) {
        BY_TRY(by_cuda_smem(attention_kernel, SMEM_BYTES, err));
        BY_CUDA_TRY(err, by_cuda_chain(c, attention_kernel, dim3(SPLIT * rows), THREADS, SMEM_BYTES, SPLIT, v));
    } else {
        size_t smem = static_cast<size_t>(2 * a->d + keys) * 4;
        BY_TRY(by_cuda_smem(attention_plain_kernel, smem, err));
        BY_CUDA_TRY(err, by_cuda_launch(c, attention_plain_kernel, dim3(rows, static_cast<unsigned>(a->heads)), 128, smem, v));
    }
    BY_CUDA_LAUNCHED(err, "attention");
    return BY_OK;
}
