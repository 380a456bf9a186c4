// cuda_attention.cu - attention over the window and the selected entries, from their packed records. Source: model.md 5.
//
// All 64 heads share one key, which is also the value, so a row is a 64 x keys x 512 product: made for the tensor core. Four
// blocks of a cluster share a row's keys in tiles of 64 (window records, then entries). A block expands a tile's records
// to bf16 in shared memory (exact, times 2^-8), once, in a layout that serves both products: scores = q k^T reads rows of
// keys, o = p v reads the same bytes turned. Two warpgroups halve the keys of the first product and the channels of the
// second; the next tile is expanded while the second product runs. At the end the blocks exchange maxima, and each
// adds a quarter of the heads over the four blocks in order. The split depends on the row alone.
//
// Rounding: probabilities enter the second product as bf16 and are summed as such; all else is fp32.
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
};

/* Keys of a row: window positions first, then entries in ascending order. */
struct row_keys {
    int first, n_window, n_entries, pos0, row0;
    const unsigned char *ring;
    const int32_t *chosen, *table; /* chosen NULL: entry i is i */
};
__device__ static row_keys keys_of(const attention_view &a, int t) {
    row_keys k;
    int pos = a.b.pos[t], seq = a.b.seq[t];
    k.first = max(pos - a.window + 1, a.from ? a.from[seq] : 0);
    k.n_window = max(pos - k.first + 1, 0);
    k.pos0 = a.b.pos0[seq];
    k.row0 = a.b.row0[seq];
    k.ring = a.ring + a.b.slot[seq] * a.ring_stride;
    k.n_entries = 0;
    k.chosen = k.table = nullptr;
    if (a.main.p) {
        const int32_t *sel = a.sel.i32(t);
        k.n_entries = sel[0] < 0 ? (pos + 1) / a.ratio : sel[0];
        k.chosen = sel[0] < 0 ? nullptr : sel + 1;
        k.table = a.b.blocks + seq * a.b.blocks_stride;
    }
    return k;
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
    extern __shared__ float q[];
    __shared__ float part[32];
    int t = blockIdx.x, h = blockIdx.y, d = a.d, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *o = q + d, *p = o + d;
    row_keys k = keys_of(a, t);
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
constexpr int HEADS = 64, WIDTH = 512, TILE = 64, SPLIT = 4, BLOCK = TILE * 128;
constexpr int TILE_BYTES = TILE * WIDTH * 2;
constexpr int SMEM_Q = 0, SMEM_K = HEADS * WIDTH * 2, SMEM_P = SMEM_K + 2 * TILE_BYTES, SMEM_STAT = SMEM_P + HEADS * TILE * 2;
constexpr int SMEM_BYTES = SMEM_STAT + 6 * HEADS * 4 + 1024;
constexpr int PITCH = WIDTH + 8; /* floats of a row of o when it is exchanged, over the key tiles and p */
static_assert(HEADS * PITCH * 4 <= 2 * TILE_BYTES + HEADS * TILE * 2, "o fits over the key tiles and p");
constexpr float DOWN = 0x1p-8f; /* keys are kept times this, so that E2M1 times an E4M3 scale stays inside bf16's exponents */
} // namespace

/* Place of channel block of 8 `chunk` (0..63) of row r in [8 blocks of 64 channels][64 rows][128 bytes], swizzled. */
__device__ static inline uint32_t tile_place(int r, int chunk) {
    return static_cast<uint32_t>(chunk / 8 * BLOCK + r * 128 + ((chunk & 7) ^ (r & 7)) * 16);
}
/* One thread's part of a tile, as loaded: 8 units of 16 channels of one key, and their scales. */
struct raw_keys {
    uint4 v[8];
    uint32_t scale[8];
    int format; /* 0: zeros, 1: E4M3 with UE8M0 per 32, 2: E2M1 with E4M3 per 16 */
};
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
__device__ static inline void put_fp4(uint32_t tile, int r, int unit, const uint4 &v, uint32_t scale) {
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
/* Loads this thread's part of tile number `tile` of the row (window tiles first); keys beyond the end are zeros. */
__device__ static void load_tile(const attention_view &a, const row_keys &k, int tile, raw_keys &raw) {
    int lane = threadIdx.x & 31, r = (threadIdx.x >> 5) * 8 + (lane & 7), windows = (k.n_window + TILE - 1) / TILE;
    bool window = tile < windows;
    int i = (window ? tile : tile - windows) * TILE + r;
    raw.format = 0;
    if (i >= (window ? k.n_window : k.n_entries)) return;
    const unsigned char *key = window ? window_key(a, k, i, WIDTH) : entry_key(a, k, i, WIDTH);
    raw.format = window || a.main.rec == BY_REC_FP8 ? 1 : 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int u = (lane >> 3) + 4 * j;
        if (raw.format == 1) {
            raw.v[j] = *reinterpret_cast<const uint4 *>(key + u * 16);
            raw.scale[j] = key[WIDTH + u / 2];
        } else {
            uint2 v = *reinterpret_cast<const uint2 *>(key + u * 8);
            raw.v[j].x = v.x;
            raw.v[j].y = v.y;
            raw.scale[j] = key[WIDTH / 2 + u];
        }
    }
}
/* Expands what load_tile loaded to shared memory. */
__device__ static void store_tile(const raw_keys &raw, uint32_t to) {
    int lane = threadIdx.x & 31, r = (threadIdx.x >> 5) * 8 + (lane & 7);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int u = (lane >> 3) + 4 * j;
        if (raw.format == 0) {
            put16(to + tile_place(r, 2 * u), 0, 0, 0, 0);
            put16(to + tile_place(r, 2 * u + 1), 0, 0, 0, 0);
        } else if (raw.format == 1) {
            put_fp8(to, r, u, raw.v[j], raw.scale[j]);
        } else {
            put_fp4(to, r, u, raw.v[j], raw.scale[j]);
        }
    }
}

/* Adds the heads 16 rank .. of the four blocks, divides, turns back and stores. A lane has 4 channels at a time. */
__device__ static void store_heads(const attention_view &a, int t, uint32_t base, const float *total, uint32_t rank) {
    int lane = threadIdx.x & 31, r = a.cs.cols;
    uint32_t at[SPLIT];
    for (uint32_t s = 0; s < SPLIT; s++) at[s] = remote(base + SMEM_K, s);
    unsigned char *to = a.o.row(t);
    for (int h = static_cast<int>(rank) * 16 + (threadIdx.x >> 5); h < static_cast<int>(rank) * 16 + 16; h += 8) {
        float up = 1.0f / (DOWN * total[h]);
#pragma unroll
        for (int g = 0; g < WIDTH / 128; g++) {
            int i = g * 128 + lane * 4, j = i - (WIDTH - r);
            uint32_t off = static_cast<uint32_t>(h * PITCH + i) * 4;
            float4 p[SPLIT];
#pragma unroll
            for (int s = 0; s < SPLIT; s++) p[s] = remote_f32x4(at[s] + off);
            float v[4] = {p[0].x, p[0].y, p[0].z, p[0].w};
#pragma unroll
            for (int s = 1; s < SPLIT; s++) v[0] += p[s].x, v[1] += p[s].y, v[2] += p[s].z, v[3] += p[s].w;
#pragma unroll
            for (int e = 0; e < 4; e++) v[e] *= up;
            if (j >= 0) {
                const float4 cs = *reinterpret_cast<const float4 *>(a.cs.f32(t) + j);
                float x = v[0], y = v[2];
                v[0] = __fadd_rn(__fmul_rn(x, cs.x), __fmul_rn(v[1], cs.y)); /* the inverse: sin negated */
                v[1] = __fsub_rn(__fmul_rn(v[1], cs.x), __fmul_rn(x, cs.y));
                v[2] = __fadd_rn(__fmul_rn(y, cs.z), __fmul_rn(v[3], cs.w));
                v[3] = __fsub_rn(__fmul_rn(v[3], cs.z), __fmul_rn(y, cs.w));
            }
            if (a.o.dtype == BY_A8) {
                float m = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
                for (int k = 1; k < 8; k *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
                uint32_t b = act8_scale(m), q = 0;
                float inverse = ue8m0_inverse(b);
#pragma unroll
                for (int e = 0; e < 4; e++) q |= static_cast<uint32_t>(e4m3_of(v[e] * inverse)) << 8 * e;
                *reinterpret_cast<uint32_t *>(to + h * WIDTH + i) = q;
                if ((lane & 7) == 0) to[HEADS * WIDTH + h * (WIDTH / 32) + g * 4 + lane / 8] = static_cast<uint8_t>(b);
            } else {
                for (int e = 0; e < 4; e++) store_value(a.o.dtype, to, h * WIDTH + i + e, v[e]);
            }
        }
    }
}

__global__ void __launch_bounds__(256, 1) attention_kernel(const __grid_constant__ attention_view a) {
    extern __shared__ unsigned char bytes[];
    uint32_t base = (smem_addr(bytes) + 1023) & ~1023u;
    unsigned char *smem = bytes + (base - smem_addr(bytes));
    float *stat = reinterpret_cast<float *>(smem + SMEM_STAT); /* [2][64] exchange, then [64] max, [64] sum, [64] total */
    float *own_max = stat + 2 * HEADS, *own_sum = own_max + HEADS, *total = own_sum + HEADS;
    int t = blockIdx.y, tid = threadIdx.x, wg = tid / 128, lane = tid & 31, g = lane >> 2, c = lane & 3;
    uint32_t rank = blockIdx.x;
    int row = (tid & 127) / 32 * 16 + g; /* this thread's heads: row and row + 8 */
    depend_wait();
    depend_launch();
    row_keys k = keys_of(a, t);
    int windows = (k.n_window + TILE - 1) / TILE, tiles = windows + (k.n_entries + TILE - 1) / TILE;
    int tile0 = static_cast<int>(rank) * tiles / SPLIT, tile1 = (static_cast<int>(rank) + 1) * tiles / SPLIT;
    raw_keys raw;
    if (tile0 < tile1) {
        load_tile(a, k, tile0, raw);
        for (int i = tid; i < HEADS * 64; i += 256) /* q: 64 rows of 64 pieces of 16 bytes */
            cp_async16(base + SMEM_Q + tile_place(i >> 6, i & 63), a.q.row(t) + i * 16);
        cp_commit();
        store_tile(raw, base + SMEM_K);
    }
    float o[128] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    const float to_log2 = a.scale * 1.44269504f / DOWN;
    for (int tile = tile0; tile < tile1; tile++) {
        uint32_t keys = base + SMEM_K + static_cast<uint32_t>((tile - tile0) & 1) * TILE_BYTES;
        cp_wait<0>();
        fence_async();
        __syncthreads();
        if (tile + 1 < tile1) load_tile(a, k, tile + 1, raw);
        float s[16] = {};
        wgmma_done(s); /* the zeros stand before the first instruction */
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++)
            wgmma_ss<32, 0>(s, wgmma_desc(base + SMEM_Q + i / 4 * BLOCK + i % 4 * 32),
                            wgmma_desc(keys + wg * 4096 + i / 4 * BLOCK + i % 4 * 32));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_done(s);
        bool window = tile < windows;
        int left = (window ? k.n_window : k.n_entries) - (window ? tile : tile - windows) * TILE - wg * 32;
        float m[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int key = i / 4 * 8 + c * 2 + (i & 1);
            s[i] = key < left ? s[i] * to_log2 : -INFINITY;
            m[i / 2 & 1] = fmaxf(m[i / 2 & 1], s[i]);
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            m[e] = fmaxf(m[e], __shfl_xor_sync(~0u, m[e], 1));
            m[e] = fmaxf(m[e], __shfl_xor_sync(~0u, m[e], 2));
            if (c == 0) stat[wg * HEADS + row + 8 * e] = m[e];
        }
        __syncthreads();
        float down[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float now = fmaxf(top[e], fmaxf(stat[row + 8 * e], stat[HEADS + row + 8 * e]));
            down[e] = exp2f(top[e] - now);
            top[e] = now;
            sum[e] *= down[e];
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t lo = bf16_bits(exp2f(s[4 * i + 2 * e] - top[e])), hi = bf16_bits(exp2f(s[4 * i + 2 * e + 1] - top[e]));
                sum[e] += __uint_as_float(lo << 16) + __uint_as_float(hi << 16);
                int r = row + 8 * e;
                uint32_t at = base + SMEM_P + r * 128 + ((wg * 4 + i) ^ (r & 7)) * 16 + c * 4;
                asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(lo | hi << 16) : "memory");
            }
        }
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] *= down[i / 2 & 1];
        fence_async();
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
            wgmma_ss<256, 1>(o, wgmma_desc(base + SMEM_P + i * 32), wgmma_desc_wide(keys + wg * 4 * BLOCK + i * 2048, BLOCK));
        wgmma_commit();
        if (tile + 1 < tile1)
            store_tile(raw, base + SMEM_K + static_cast<uint32_t>((tile + 1 - tile0) & 1) * TILE_BYTES);
        wgmma_wait<0>();
        wgmma_done(o);
    }
    /* maxima and sums of this block, then of the row */
#pragma unroll
    for (int e = 0; e < 2; e++) {
        sum[e] += __shfl_xor_sync(~0u, sum[e], 1);
        sum[e] += __shfl_xor_sync(~0u, sum[e], 2);
    }
    __syncthreads();
    if (c == 0) {
        for (int e = 0; e < 2; e++) {
            stat[wg * HEADS + row + 8 * e] = sum[e];
            if (wg == 0) own_max[row + 8 * e] = top[e];
        }
    }
    __syncthreads();
    if (tid < HEADS) own_sum[tid] = stat[tid] + stat[HEADS + tid];
    cluster_sync();
    float factor[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int h = row + 8 * e;
        float sink = a.sink[h] * 1.44269504f, all = sink, mx[SPLIT];
        for (uint32_t i = 0; i < SPLIT; i++) {
            mx[i] = remote_f32(remote(base + SMEM_STAT + (2 * HEADS + h) * 4, i));
            all = fmaxf(all, mx[i]);
        }
        float l = exp2f(sink - all);
        for (uint32_t i = 0; i < SPLIT; i++) l += remote_f32(remote(base + SMEM_STAT + (3 * HEADS + h) * 4, i)) * exp2f(mx[i] - all);
        if (c == 0 && wg == 0) total[h] = l;
        factor[e] = exp2f(top[e] - all);
    }
    /* o [64][512] fp32 over the key tiles and p, which nobody reads any more */
    float *out = reinterpret_cast<float *>(smem + SMEM_K);
#pragma unroll
    for (int i = 0; i < 32; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++)
            *reinterpret_cast<float2 *>(out + (row + 8 * e) * PITCH + wg * 256 + i * 8 + c * 2) =
                make_float2(o[4 * i + 2 * e] * factor[e], o[4 * i + 2 * e + 1] * factor[e]);
    }
    cluster_sync();
    store_heads(a, t, base, total, rank);
    cluster_meet(); /* others may still read this block's memory */
}

by_status by_cuda_attention(by_device *dev, const by_attention_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    if (a->q.rows == 0) return BY_OK;
    if (a->block) return BY_FAIL(err, BY_EUNSUPPORTED, "backend cuda: no attention over draft blocks");
    attention_view v = {batch_of(a->batch), view_of(a->q), view_of(a->cs), view_of(a->kv), view_of(a->sel), view_of(a->o),
                        a->ring.mem->ptr + a->ring.off, a->ring.slot_stride, a->ring.len, a->ring.rec, pages_of(a->main),
                        reinterpret_cast<const float *>(a->sink.mem->ptr + a->sink.off), i32_of(a->from), a->heads, a->d, a->window, a->ratio,
                        a->scale};
    uintptr_t at = reinterpret_cast<uintptr_t>(v.q.p) | static_cast<uintptr_t>(v.q.stride) |
                   reinterpret_cast<uintptr_t>(v.cs.p) | static_cast<uintptr_t>(v.cs.stride) | reinterpret_cast<uintptr_t>(v.kv.p) |
                   static_cast<uintptr_t>(v.kv.stride) | reinterpret_cast<uintptr_t>(v.ring) | static_cast<uintptr_t>(v.ring_stride);
    if (v.main.p) at |= reinterpret_cast<uintptr_t>(v.main.p) | static_cast<uintptr_t>(v.main.block_stride);
    bool fast = c->wgmma && a->heads == HEADS && a->d == WIDTH && a->q.dtype == BY_BF16 && a->ring.rec == BY_REC_FP8 && at % 16 == 0 &&
                a->cs.cols % 4 == 0 && (v.o.stride | static_cast<int64_t>(reinterpret_cast<uintptr_t>(v.o.p))) % 4 == 0 &&
                (!v.main.p || a->main.rec == BY_REC_FP4 || a->main.rec == BY_REC_FP8);
    unsigned rows = static_cast<unsigned>(a->q.rows);
    if (fast) {
        BY_TRY(by_cuda_smem(attention_kernel, SMEM_BYTES, err));
        BY_CUDA_TRY(err, by_cuda_chain(c, attention_kernel, dim3(SPLIT, rows), 256, SMEM_BYTES, SPLIT, v));
    } else {
        int64_t keys = a->window + (a->main.mem ? a->sel.cols - 1 : 0);
        size_t smem = static_cast<size_t>(2 * a->d + keys) * 4;
        BY_TRY(by_cuda_smem(attention_plain_kernel, smem, err));
        attention_plain_kernel<<<dim3(rows, static_cast<unsigned>(a->heads)), 128, smem, c->stream>>>(v);
    }
    BY_CUDA_LAUNCHED(err, "attention");
    return BY_OK;
}
