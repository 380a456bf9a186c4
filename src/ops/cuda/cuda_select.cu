// cuda_select.cu - index scores and top-k. Source: model.md section 7.
//
// Scores: a warp takes 8 entries at a time. Keys and queries are E2M1 with a power of two per 32 channels, exact in bf16,
// so the tensor core gives exact products; a thread expands the 16 bytes of a key that it loads itself. The heads' relu
// and weighted sum follow in registers, in a fixed order.
//
// Selection: radix select on the scores' ordered bits (11, 11, 10 bits), one block a row, then each warp writes its part
// of the row in ascending order. Equal scores: the lower entry wins, because the ties that fit are counted from the left.
#include "ops/cuda/cuda_gemm.cuh"

struct select_view {
    batch_view b;
    view q, weights, sel, cand, scores;
    pages_view keys;
    float *score; /* [T, stride]: of all visible entries, or of those in the candidate blocks, ascending */
    float *block; /* [T, block_stride]: maxima of candidate blocks */
    int stride, block_stride;
    float scale;
    int mode, heads, d, ratio, topk, cand_blocks, cand_size;
    bool round_bf16;
};

/* Scored items of a row: all visible entries, or those inside the candidate blocks. */
struct row_items {
    int visible, items;
    const int32_t *inside; /* candidate row, NULL: all */
};
__device__ static row_items items_of(const select_view &a, int t) {
    row_items r = {(a.b.pos[t] + 1) / a.ratio, 0, nullptr};
    r.items = r.visible;
    if (a.mode == BY_CAND_INSIDE && a.cand.i32(t)[0] >= 0) {
        r.inside = a.cand.i32(t);
        int n = r.inside[0];
        r.items = n ? (n - 1) * a.cand_size + min(a.cand_size, r.visible - r.inside[n] * a.cand_size) : 0;
    }
    return r;
}
__device__ static int item_entry(const select_view &a, const row_items &r, int i) {
    return r.inside ? r.inside[1 + i / a.cand_size] * a.cand_size + i % a.cand_size : i;
}
/* Whether anything of this row's scores is read later. */
__device__ static bool row_needed(const select_view &a, const row_items &r) {
    bool cut = a.mode == BY_CAND_SOURCE && (r.visible + a.cand_size - 1) / a.cand_size > a.cand_blocks;
    return r.visible > a.topk || cut || a.scores.p;
}
__device__ static void put_score(const select_view &a, int t, int item, int entry, float sum) {
    float v = sum * a.scale;
    if (a.round_bf16) v = round_to(BY_BF16, v);
    v += 0.0f; /* -0 ranks as +0 */
    a.score[static_cast<int64_t>(t) * a.stride + item] = v;
    if (a.scores.p) a.scores.f32(t)[entry] = v;
}

/* Any formats: one warp an entry. */
__global__ void score_plain_kernel(select_view a) {
    int t = blockIdx.y, lane = threadIdx.x & 31;
    row_items r = items_of(a, t);
    if (!row_needed(a, r)) return;
    const int32_t *table = a.b.blocks + a.b.seq[t] * a.b.blocks_stride;
    for (int i = blockIdx.x * 8 + (threadIdx.x >> 5); i < r.items; i += gridDim.x * 8) {
        int entry = item_entry(a, r, i);
        unsigned char *scales = nullptr, *key = page_entry(a.keys, table, entry, a.d, &scales);
        if (a.keys.rec != BY_REC_IX4) scales = key + (record_scales(a.keys.rec, key, a.d) - key);
        float sum = 0;
        for (int h = 0; h < a.heads; h++) {
            float dot = 0;
            for (int c = lane; c < a.d; c += 32) {
                float q;
                if (a.q.dtype == BY_F32) {
                    q = a.q.f32(t)[h * a.d + c];
                } else {
                    const unsigned char *at = a.q.row(static_cast<int64_t>(t) * a.heads + h);
                    q = record_value(BY_REC_IX4, at, at + a.d / 2, c);
                }
                dot = fmaf(q, record_value(a.keys.rec, key, scales, c), dot);
            }
            dot = warp_sum(dot);
            if (dot > 0) sum += dot * value_at(a.weights.dtype, a.weights.row(t), 0, h);
        }
        if (lane == 0) put_score(a, t, i, entry, sum);
    }
}

__device__ static void mma16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* 2^(b - 127) of an E2M1 code in bf16, whose exponent is 126 too small: two factors, each inside bf16. */
__device__ static uint32_t pair_of_scale(uint32_t b) {
    uint32_t e = b < 1 ? 1 : b;
    return e << 7 | e << 23;
}

enum { GROUP = 32 }; /* entries of a warp at a time */

/* 32 heads of 128 channels, keys and queries in the index format. */
__global__ void __launch_bounds__(256) score_kernel(select_view a) {
    int t = blockIdx.y, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
    row_items r = items_of(a, t);
    if (!row_needed(a, r)) return;
    constexpr uint32_t up = 0x7e807e80u; /* 2^126: exact value of the code */
    uint32_t q[2][8][4];
    float w[2][2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        uint4 v[2];
        uint32_t s[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned char *at = a.q.row(static_cast<int64_t>(t) * 32 + m * 16 + i * 8 + g);
            const uint32_t *p = reinterpret_cast<const uint32_t *>(at + c * 16); /* rows are 68 bytes apart */
            v[i] = make_uint4(p[0], p[1], p[2], p[3]);
            s[i] = pair_of_scale(at[64 + c]);
            w[m][i] = value_at(a.weights.dtype, a.weights.row(t), 0, m * 16 + i * 8 + g);
        }
        const uint32_t word[2][4] = {{v[0].x, v[0].y, v[0].z, v[0].w}, {v[1].x, v[1].y, v[1].z, v[1].w}};
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int e = 0; e < 2; e++) { /* operand registers: row e, pairs of step i */
                uint32_t x = word[e][i / 2];
                q[m][i][e] = mul_bf16x2(i & 1 ? expand_fp4<2>(x, up) : expand_fp4<0>(x, up), s[e]);
                q[m][i][2 + e] = mul_bf16x2(i & 1 ? expand_fp4<3>(x, up) : expand_fp4<1>(x, up), s[e]);
            }
        }
    }
    const int32_t *table = a.b.blocks + a.b.seq[t] * a.b.blocks_stride;
    /* 32 entries at a time: their keys are all on the way before the first is used */
    int step = gridDim.x * 8 * GROUP;
    for (int i0 = (blockIdx.x * 8 + (threadIdx.x >> 5)) * GROUP; i0 < r.items; i0 += step) {
        uint4 v[GROUP / 8];
        uint32_t s[GROUP / 8];
#pragma unroll
        for (int j = 0; j < GROUP / 8; j++) {
            int item = min(i0 + j * 8 + g, r.items - 1), entry = item_entry(a, r, item);
            unsigned char *scales = nullptr, *key = page_entry(a.keys, table, entry, 128, &scales);
            v[j] = *reinterpret_cast<const uint4 *>(key + c * 16);
            s[j] = scales[c];
        }
        float mine = 0;
#pragma unroll
        for (int j = 0; j < GROUP / 8; j++) {
            uint32_t m = pair_of_scale(s[j]), k[16];
            const uint32_t word[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                k[4 * i] = mul_bf16x2(expand_fp4<0>(word[i], up), m);
                k[4 * i + 1] = mul_bf16x2(expand_fp4<1>(word[i], up), m);
                k[4 * i + 2] = mul_bf16x2(expand_fp4<2>(word[i], up), m);
                k[4 * i + 3] = mul_bf16x2(expand_fp4<3>(word[i], up), m);
            }
            float d[2][4] = {};
#pragma unroll
            for (int i = 0; i < 8; i++) {
                mma16816(d[0], q[0][i], k[2 * i], k[2 * i + 1]);
                mma16816(d[1], q[1][i], k[2 * i], k[2 * i + 1]);
            }
            float sum[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                sum[e] = fmaxf(d[0][e], 0) * w[0][0] + fmaxf(d[0][2 + e], 0) * w[0][1];
                sum[e] += fmaxf(d[1][e], 0) * w[1][0] + fmaxf(d[1][2 + e], 0) * w[1][1];
                for (int x = 4; x < 32; x *= 2) sum[e] += __shfl_xor_sync(~0u, sum[e], x);
            }
            /* lane 8 j + 2 c + e takes entry 2 c + e of this group, whose sum lane c holds */
            float even = __shfl_sync(~0u, sum[0], lane >> 1 & 3), odd = __shfl_sync(~0u, sum[1], lane >> 1 & 3);
            if (lane >> 3 == j) mine = lane & 1 ? odd : even;
        }
        int out = i0 + lane;
        if (out < r.items) put_score(a, t, out, item_entry(a, r, out), mine);
    }
}

__global__ void fill_scores_kernel(view scores) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < scores.cols; i += gridDim.x * blockDim.x)
        scores.f32(blockIdx.y)[i] = -INFINITY;
}

__global__ void block_max_kernel(select_view a) {
    int t = blockIdx.y, n = (a.b.pos[t] + 1) / a.ratio, blocks = (n + a.cand_size - 1) / a.cand_size;
    if (blocks <= a.cand_blocks) return;
    const float *s = a.score + static_cast<int64_t>(t) * a.stride;
    for (int b = blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += gridDim.x * blockDim.x) {
        float best = -INFINITY;
        for (int i = b * a.cand_size; i < (b + 1) * a.cand_size && i < n; i++) best = fmaxf(best, s[i]);
        a.block[static_cast<int64_t>(t) * a.block_stride + b] = b == blocks - 1 ? INFINITY : best;
    }
}

/* Larger floats give larger numbers. */
__device__ static uint32_t ordered(float x) {
    uint32_t u = __float_as_uint(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

enum { SELECT_THREADS = 512, WARPS = SELECT_THREADS / 32, BINS = 2048, DEEP = 8 };

__device__ static inline uint4 remote_u32x4(uint32_t addr) {
    uint4 v;
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(addr) : "memory");
    return v;
}
/* Calls f(i, ordered(s[i])) for i in [i0, i1), DEEP loads in flight. All threads of the block. */
template <class F> __device__ static inline void scan_row(const float *s, int i0, int i1, F f) {
    for (int base = i0 + static_cast<int>(threadIdx.x); base < i1; base += SELECT_THREADS * DEEP) {
        float v[DEEP];
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            int i = base + j * SELECT_THREADS;
            v[j] = i < i1 ? s[i] : 0;
        }
#pragma unroll
        for (int j = 0; j < DEEP; j++)
            if (base + j * SELECT_THREADS < i1) f(ordered(v[j]));
    }
}

/* The k best of s [n], k < n, as their places in ascending order through put(rank, place). The blocks of a cluster share
 * the row; all make the same decisions from the sum of their histograms. */
template <class PUT> __device__ static void select_best(const float *s, int n, int k, PUT put) {
    __shared__ __align__(16) uint32_t bins[2][BINS];
    __shared__ uint32_t warp_count[WARPS], above[WARPS], equal[WARPS], block_count[2], found[2];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    uint32_t peers = cluster_size(), rank = cluster_rank(), prefix = 0, mask = 0, left = static_cast<uint32_t>(k);
    int part = (n + static_cast<int>(peers) * 32 * WARPS - 1) / (static_cast<int>(peers) * 32 * WARPS) * 32 * WARPS;
    int i0 = min(static_cast<int>(rank) * part, n), i1 = min(i0 + part, n);
    for (int pass = 0; pass < 3; pass++) {
        int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        uint32_t *own = bins[pass & 1], low = pass == 2 ? 1023 : 2047;
        for (int i = tid; i < BINS; i += SELECT_THREADS) own[i] = 0;
        __syncthreads();
        scan_row(s, i0, i1, [&](uint32_t u) {
            if ((u & mask) == prefix) atomicAdd(&own[u >> shift & low], 1u);
        });
        cluster_sync();
        /* thread tid has the four bins BINS - 1 - 4 tid and below */
        uint4 b = {0, 0, 0, 0};
        uint32_t at = smem_addr(own + BINS - 4 - 4 * tid);
        for (uint32_t p = 0; p < peers; p++) {
            uint4 o = remote_u32x4(remote(at, p));
            b.x += o.x, b.y += o.y, b.z += o.z, b.w += o.w;
        }
        const uint32_t four[4] = {b.w, b.z, b.y, b.x}; /* highest first */
        uint32_t sum = b.x + b.y + b.z + b.w, run = sum;
        for (int m = 1; m < 32; m *= 2) {
            uint32_t v = __shfl_up_sync(~0u, run, m);
            if (lane >= m) run += v;
        }
        if (lane == 31) warp_count[warp] = run;
        __syncthreads();
        uint32_t before = run - sum;
        for (int i = 0; i < warp; i++) before += warp_count[i];
        if (before < left && before + sum >= left) {
            uint32_t bin = static_cast<uint32_t>(BINS - 1 - 4 * tid), x = before;
            int i = 0;
            while (x + four[i] < left) x += four[i++];
            found[0] = bin - static_cast<uint32_t>(i);
            found[1] = left - x;
        }
        __syncthreads();
        prefix |= found[0] << shift;
        mask |= low << shift;
        left = found[1];
    }
    /* prefix is the k-th best value; all above it stay, and the first `left` of its equals */
    int w = part / WARPS, w0 = min(i0 + warp * w, i1), w1 = min(w0 + w, i1);
    uint32_t up = 0, same = 0;
#pragma unroll 8
    for (int i = w0 + lane; i < w1; i += 32) {
        uint32_t u = ordered(s[i]);
        up += u > prefix;
        same += u == prefix;
    }
    for (int m = 16; m; m >>= 1) up += __shfl_xor_sync(~0u, up, m), same += __shfl_xor_sync(~0u, same, m);
    if (lane == 0) above[warp] = up, equal[warp] = same;
    __syncthreads();
    uint32_t n_above = 0, n_same = 0;
    for (int i = 0; i < WARPS; i++) {
        if (i == warp) up = n_above, same = n_same;
        n_above += above[i], n_same += equal[i];
    }
    if (tid == 0) block_count[0] = n_above, block_count[1] = n_same;
    cluster_sync();
    n_above = up, n_same = same;
    for (uint32_t p = 0; p < rank; p++) {
        uint32_t other = remote(smem_addr(block_count), p), v[2];
        asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(other) : "memory");
        n_above += v[0], n_same += v[1];
    }
#pragma unroll 4
    for (int i = w0; i < w1; i += 32) {
        uint32_t u = i + lane < w1 ? ordered(s[i + lane]) : 0;
        bool in = i + lane < w1, is_up = in && u > prefix, is_same = in && u == prefix;
        uint32_t below = (1u << lane) - 1, ups = __ballot_sync(~0u, is_up), sames = __ballot_sync(~0u, is_same);
        uint32_t my_same = n_same + static_cast<uint32_t>(__popc(sames & below)), my_up = n_above + static_cast<uint32_t>(__popc(ups & below));
        if (is_up || (is_same && my_same < left)) put(static_cast<int>(my_up + min(my_same, left)), i + lane);
        n_above += static_cast<uint32_t>(__popc(ups));
        n_same += static_cast<uint32_t>(__popc(sames));
    }
    cluster_sync(); /* nobody reads this block's counts any more */
}

__global__ void __launch_bounds__(SELECT_THREADS) select_kernel(select_view a) {
    int t = blockIdx.y, first = blockIdx.x * SELECT_THREADS + threadIdx.x;
    row_items r = items_of(a, t);
    int32_t *sel = reinterpret_cast<int32_t *>(a.sel.row(t));
    int32_t *cand = reinterpret_cast<int32_t *>(a.cand.row(t));
    if (r.visible <= a.topk || r.items <= a.topk) {
        if (first == 0) sel[0] = r.visible <= a.topk ? -1 : r.items;
        for (int i = first; r.visible > a.topk && i < r.items; i += gridDim.x * SELECT_THREADS) sel[1 + i] = item_entry(a, r, i);
    } else {
        if (first == 0) sel[0] = a.topk;
        select_best(a.score + static_cast<int64_t>(t) * a.stride, r.items, a.topk,
                    [&](int rank, int place) { sel[1 + rank] = item_entry(a, r, place); });
    }
    if (a.mode != BY_CAND_SOURCE) return;
    int blocks = (r.visible + a.cand_size - 1) / a.cand_size;
    if (first == 0) cand[0] = blocks <= a.cand_blocks ? -1 : a.cand_blocks;
    if (blocks > a.cand_blocks)
        select_best(a.block + static_cast<int64_t>(t) * a.block_stride, blocks, a.cand_blocks,
                    [&](int rank, int place) { cand[1 + rank] = place; });
}

by_status by_cuda_index_select(by_device *dev, const by_index_select_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int T = a->batch.n_rows;
    if (T == 0) return BY_OK;
    int n = a->n_entries_max > 0 ? a->n_entries_max : 1, size = a->cand_block_size > 0 ? a->cand_block_size : 1;
    int stride = (n + 31) / 32 * 32, blocks = a->mode == BY_CAND_SOURCE ? (n + size - 1) / size : 1;
    size_t score = static_cast<size_t>(T) * static_cast<size_t>(stride), block = static_cast<size_t>(T) * static_cast<size_t>(blocks);
    BY_TRY(by_cuda_scratch(c, by_cuda_pad(score * 4) + by_cuda_pad(block * 4), err));
    select_view v = {batch_of(a->batch), view_of(a->q), view_of(a->weights), view_of(a->sel), view_of(a->cand),
                     view_of(a->scores), pages_of(a->keys), by_cuda_take<float>(c, score), by_cuda_take<float>(c, block),
                     stride, blocks, a->scale, static_cast<int>(a->mode), a->heads, a->d, a->ratio, a->topk, a->cand_blocks, size,
                     a->round_bf16};
    int most = a->mode == BY_CAND_INSIDE && a->cand_blocks * size < n ? a->cand_blocks * size : n;
    unsigned rows = static_cast<unsigned>(T);
    if (a->scores.mem) fill_scores_kernel<<<dim3(32, rows), 256, 0, c->stream>>>(v.scores);
    bool fast = a->heads == 32 && a->d == 128 && a->q.dtype == BY_IX4 && a->keys.rec == BY_REC_IX4 &&
                reinterpret_cast<uintptr_t>(v.keys.p) % 16 == 0 && a->keys.block_stride % 16 == 0;
    if (fast) {
        int want = (most + 8 * GROUP - 1) / (8 * GROUP), room = (4 * c->sms + T - 1) / T;
        score_kernel<<<dim3(static_cast<unsigned>(want < room || room < 1 ? want : room), rows), 256, 0, c->stream>>>(v);
    } else {
        score_plain_kernel<<<dim3(static_cast<unsigned>((most + 63) / 64), rows), 256, 0, c->stream>>>(v);
    }
    if (a->mode == BY_CAND_SOURCE && blocks > a->cand_blocks)
        block_max_kernel<<<dim3(static_cast<unsigned>((blocks + 255) / 256), rows), 256, 0, c->stream>>>(v);
    BY_CUDA_LAUNCHED(err, "index_select");
    int peers = most > 65536 ? 8 : most > 16384 ? 4 : most > 4096 ? 2 : 1; /* blocks that share a row */
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(peers), 1, 1};
    config.gridDim = dim3(static_cast<unsigned>(peers), rows);
    config.blockDim = dim3(SELECT_THREADS);
    config.stream = c->stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    BY_CUDA_TRY(err, cudaLaunchKernelEx(&config, select_kernel, v));
    return BY_OK;
}
