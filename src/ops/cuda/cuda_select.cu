// cuda_select.cu - index scores and top-k. Source: model.md section 7.
//
// Scores: a warpgroup takes 64 keys at a time. Keys and queries are E2M1 with a power of two per 32 channels, exact in bf16,
// so the tensor core gives exact products; a thread expands the 16 bytes of a key that it loads itself, for the operand that
// comes from registers, and the row's queries lie in shared memory. The heads' relu and weighted sum follow in registers,
// in a fixed order. Selection: cuda_topk.cuh.
#include "ops/cuda/cuda_gemm.cuh"
#include "ops/cuda/cuda_topk.cuh"

struct select_view {
    batch_view b;
    view q, weights, sel, cand, scores;
    pages_view keys;
    void *score; /* [T, stride] keys of the scores: of all visible entries, or of those in the candidate blocks, ascending */
    void *block; /* [T, block_stride] keys: maxima of candidate blocks */
    int64_t stride, block_stride;
    float scale;
    int mode, heads, d, ratio, topk, cand_blocks, cand_size, cand_shift, page_shift; /* shifts: log2 of the sizes, fast path */
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
    if (a.round_bf16) static_cast<uint16_t *>(a.score)[t * a.stride + item] = topk_key<uint16_t>(v);
    else static_cast<uint32_t *>(a.score)[t * a.stride + item] = topk_key<uint32_t>(v);
    if (a.scores.p) a.scores.f32(t)[entry] = v;
}
/* Selection reads eight keys at a time: those behind a row's last are the least of all. */
__device__ static inline int up_to_eight(int n) { return (n + 7) & ~7; }
__device__ static void put_nothing(const select_view &a, int t, int item) {
    if (a.round_bf16) static_cast<uint16_t *>(a.score)[t * a.stride + item] = 0;
    else static_cast<uint32_t *>(a.score)[t * a.stride + item] = 0;
}

/* Any formats: one warp an entry. */
__global__ void score_plain_kernel(select_view a) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, lane = threadIdx.x & 31;
    row_items r = items_of(a, t);
    if (!row_needed(a, r)) return;
    const int32_t *table = a.b.blocks + a.b.seq[t] * a.b.blocks_stride;
    if (blockIdx.y == 0 && r.items + static_cast<int>(threadIdx.x) < up_to_eight(r.items)) put_nothing(a, t, r.items + threadIdx.x);
    for (int i = blockIdx.y * 8 + (threadIdx.x >> 5); i < r.items; i += gridDim.y * 8) {
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

/* 2^(b - 127) of an E2M1 code in bf16, whose exponent is 126 too small: two factors, each inside bf16. */
__device__ static uint32_t pair_of_scale(uint32_t b) {
    uint32_t e = b < 1 ? 1 : b;
    return e << 7 | e << 23;
}

/* What a thread multiplies of a tile of 64 keys: 32 channels of two keys, and their scales. */
struct raw_pair {
    uint4 v[2];
    uint32_t s[2];
};
/* entry of scored item i; sizes of candidate blocks and of pages are powers of two here. */
__device__ static inline int fast_entry(const select_view &a, const row_items &r, int i) {
    return r.inside ? r.inside[1 + (i >> a.cand_shift)] << a.cand_shift | (i & (a.cand_size - 1)) : i;
}
__device__ static inline void load_pair(const select_view &a, const row_items &r, const int32_t *table, int item, raw_pair &p) {
    int c = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int e = fast_entry(a, r, min(item + 8 * i, r.items - 1)), at = e & (a.keys.per_block - 1);
        const unsigned char *base = a.keys.p + table[e >> a.page_shift] * a.keys.block_stride;
        p.v[i] = *reinterpret_cast<const uint4 *>(base + at * 64 + c * 16);
        p.s[i] = base[a.keys.per_block * 64 + at * 4 + c];
    }
}

/* 32 heads of 128 channels, keys and queries in the index format. */
__global__ void __launch_bounds__(256, 3) score_kernel(select_view a) {
    depend_wait();
    depend_launch();
    __shared__ __align__(1024) unsigned char queries[2 * 32 * 128]; /* [64 k][head], as cuda_gemm.cuh wants images */
    int peers = static_cast<int>(gridDim.x) / a.b.n_rows, part = blockIdx.x % peers, t = blockIdx.x / peers; /* y ends at 65535 */
    int tid = threadIdx.x, lane = tid & 31, g = lane >> 2, c = lane & 3;
    row_items r = items_of(a, t);
    if (!row_needed(a, r)) return;
    constexpr uint32_t up = 0x7e807e80u; /* 2^126: exact value of the code */
    const int32_t *table = a.b.blocks + a.b.seq[t] * a.b.blocks_stride;
    int first = (part * 2 + tid / 128) * 64, step = peers * 128, row = tid / 32 % 4 * 16 + g;
    raw_pair next = {};
    if (first < r.items) load_pair(a, r, table, first + row, next);
    if (tid < 128) { /* piece tid % 4 of head tid / 4: word i goes to instructions 2 i and 2 i + 1 */
        int head = tid / 4, piece = tid % 4;
        const unsigned char *at = a.q.row(static_cast<int64_t>(t) * 32 + head);
        uint32_t s = pair_of_scale(at[64 + piece]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t w = reinterpret_cast<const uint32_t *>(at + piece * 16)[i]; /* rows are 68 bytes apart */
            const uint32_t pair[4] = {mul_bf16x2(expand_fp4<0>(w, up), s), mul_bf16x2(expand_fp4<1>(w, up), s),
                                      mul_bf16x2(expand_fp4<2>(w, up), s), mul_bf16x2(expand_fp4<3>(w, up), s)};
#pragma unroll
            for (int p = 0; p < 4; p++) {
                int k = (2 * i + p / 2) * 16 + p % 2 * 8 + piece * 2; /* place among the 128 */
                *reinterpret_cast<uint32_t *>(queries + k / 64 * 4096 + image_offset(head, k % 64)) = pair[p];
            }
        }
    }
    float w[8];
#pragma unroll
    for (int i = 0; i < 8; i++) w[i] = value_at(a.weights.dtype, a.weights.row(t), 0, i / 2 * 8 + c * 2 + i % 2);
    fence_async();
    __syncthreads();
    uint64_t desc = wgmma_desc(smem_addr(queries));
    for (; first < r.items; first += step) { /* a warpgroup stays together */
        raw_pair now = next;
        if (first + step < r.items) load_pair(a, r, table, first + step + row, next);
        /* the code's factor 2^126 and the scale in one, times 2^-20; scales above 2^21 in a second step */
        uint32_t k[8][4], m[2];
        bool large = false;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t e = min(now.s[i], 148u) + 106;
            m[i] = e << 7 | e << 23;
            large |= now.s[i] > 148;
            const uint32_t word[4] = {now.v[i].x, now.v[i].y, now.v[i].z, now.v[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                k[2 * j][i] = expand_fp4<0>(word[j], m[i]), k[2 * j][2 + i] = expand_fp4<1>(word[j], m[i]);
                k[2 * j + 1][i] = expand_fp4<2>(word[j], m[i]), k[2 * j + 1][2 + i] = expand_fp4<3>(word[j], m[i]);
            }
        }
        if (__any_sync(~0u, large)) {
#pragma unroll
            for (int j = 0; j < 32; j++)
                k[j / 4][j % 4] = mul_bf16x2(k[j / 4][j % 4], pair_of_scale(127 + max(now.s[j & 1], 148u) - 148));
        }
        float d[16] = {};
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 8; j++) wgmma<32>(d, k[j], desc + (j / 4 * 256 + j % 4 * 2));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_done(d);
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                sum[e] = fmaf(fmaxf(d[4 * j + 2 * e], 0), w[2 * j], sum[e]);
                sum[e] = fmaf(fmaxf(d[4 * j + 2 * e + 1], 0), w[2 * j + 1], sum[e]);
            }
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            sum[e] += __shfl_xor_sync(~0u, sum[e], 1);
            sum[e] += __shfl_xor_sync(~0u, sum[e], 2);
        }
        int out = first + row + 8 * c;
        if (c >= 2) continue;
        if (out >= r.items && out < up_to_eight(r.items)) put_nothing(a, t, out);
        if (out < r.items) put_score(a, t, out, fast_entry(a, r, out), (c == 0 ? sum[0] : sum[1]) * 0x1p20f);
    }
}

__global__ void fill_scores_kernel(view scores) {
    depend_wait();
    depend_launch();
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < scores.cols; i += gridDim.y * blockDim.x)
        scores.f32(blockIdx.x)[i] = -INFINITY;
}

template <class KEY> __global__ void block_max_kernel(select_view a) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, n = (a.b.pos[t] + 1) / a.ratio, blocks = (n + a.cand_size - 1) / a.cand_size;
    if (blocks <= a.cand_blocks) return;
    const KEY *s = static_cast<const KEY *>(a.score) + t * a.stride;
    KEY *to = static_cast<KEY *>(a.block) + t * a.block_stride;
    for (int b = blockIdx.y * blockDim.x + threadIdx.x; b < up_to_eight(blocks); b += gridDim.y * blockDim.x) {
        KEY best = 0; /* and of what is no block */
        for (int i = b * a.cand_size; i < (b + 1) * a.cand_size && i < n; i++) best = max(best, s[i]);
        to[b] = b == blocks - 1 ? topk_key<KEY>(INFINITY) : best;
    }
}

/* One block a row, or the blocks of a cluster; grid.z 2: the second layer of the grid chooses the candidate blocks. */
template <class KEY, int PEERS> __global__ void __launch_bounds__(TOPK_THREADS) select_kernel(select_view a) {
    depend_wait();
    depend_launch();
    BY_CUDA_DYNAMIC(__align__(16) unsigned char, bytes);
    topk_shared &m = *reinterpret_cast<topk_shared *>(bytes);
    int t = blockIdx.x / PEERS, tid = threadIdx.x;
    row_items r = items_of(a, t);
    if (blockIdx.z == 0) {
        int32_t *sel = reinterpret_cast<int32_t *>(a.sel.row(t));
        const KEY *score = static_cast<const KEY *>(a.score) + t * a.stride;
        auto put = [&](int rank, int place) { sel[1 + rank] = item_entry(a, r, place); };
        bool some = r.visible > a.topk && r.items > a.topk, first = PEERS == 1 || cluster_rank() == 0;
        if (first && tid == 0) sel[0] = r.visible <= a.topk ? -1 : min(r.items, a.topk);
        if (PEERS > 1 && some && r.items >= topk_shared_least(PEERS)) topk_select_shared<PEERS>(m, score, r.items, a.topk, put);
        else if (first && some) topk_select(m, score, r.items, a.topk, put);
        else if (first && r.visible > a.topk)
            for (int i = tid; i < r.items; i += TOPK_THREADS) sel[1 + i] = item_entry(a, r, i);
    }
    if (a.mode != BY_CAND_SOURCE || blockIdx.z + 1 < gridDim.z || (PEERS > 1 && cluster_rank() != 0)) return;
    int32_t *cand = reinterpret_cast<int32_t *>(a.cand.row(t));
    int blocks = (r.visible + a.cand_size - 1) / a.cand_size;
    if (tid == 0) cand[0] = blocks <= a.cand_blocks ? -1 : a.cand_blocks;
    if (blocks > a.cand_blocks)
        topk_select(m, static_cast<const KEY *>(a.block) + t * a.block_stride, blocks, a.cand_blocks,
                    [&](int rank, int place) { cand[1 + rank] = place; });
}

/* items: most scored items of a row. */
template <class KEY> static by_status launch_select(by_cuda *c, const select_view &v, int items, int blocks, by_err *err) {
    unsigned rows = static_cast<unsigned>(v.b.n_rows);
    bool cuts = v.mode == BY_CAND_SOURCE && blocks > v.cand_blocks;
    int peers = topk_peers(v.b.n_rows, c->sms);
    if (cuts)
        BY_CUDA_TRY(err, by_cuda_chain(c, block_max_kernel<KEY>, dim3(rows, static_cast<unsigned>((blocks + 255) / 256)), 256, 0, 1, v));
    unsigned layers = cuts && peers > 1 ? 2 : 1;
    if (items < topk_shared_least(peers) || v.topk > TOPK_THREADS) peers = 1;
    auto kernel = peers == 4 ? select_kernel<KEY, 4> : peers == 2 ? select_kernel<KEY, 2> : select_kernel<KEY, 1>;
    BY_TRY(by_cuda_smem(kernel, sizeof(topk_shared), err));
    BY_CUDA_TRY(err, by_cuda_chain(c, kernel, dim3(static_cast<unsigned>(peers) * rows, 1, layers), TOPK_THREADS, sizeof(topk_shared),
                                peers, v));
    return BY_OK;
}

static int log2_of(int n) { /* -1: no power of two */
    int i = 0;
    while (i < 30 && 1 << i < n) i++;
    return 1 << i == n ? i : -1;
}

static int64_t blocks_of(const by_index_select_args *a) {
    int n = a->n_entries_max > 0 ? a->n_entries_max : 1, size = a->cand_block_size > 0 ? a->cand_block_size : 1;
    return a->mode == BY_CAND_SOURCE ? (n + size - 1) / size : 1;
}

/* Rows for which there is scratch. */
static by_status select_slice(by_cuda *c, const by_index_select_args *a, by_err *err) {
    int T = a->batch.n_rows, n = a->n_entries_max > 0 ? a->n_entries_max : 1, size = a->cand_block_size > 0 ? a->cand_block_size : 1;
    /* rows of keys start at multiples of 32 bytes and end at one of 8 keys */
    int64_t T64 = T, stride = (n + 31) / 32 * 32, blocks = blocks_of(a);
    int64_t block_stride = (blocks + 31) / 32 * 32, bytes = a->round_bf16 ? 2 : 4;
    size_t score = static_cast<size_t>(T64 * stride * bytes), block = static_cast<size_t>(T64 * block_stride * bytes);
    BY_TRY(by_cuda_scratch(c, by_cuda_pad(score) + by_cuda_pad(block), err));
    select_view v = {batch_of(a->batch), view_of(a->q), view_of(a->weights), view_of(a->sel), view_of(a->cand),
                     view_of(a->scores), pages_of(a->keys), by_cuda_take<unsigned char>(c, score), by_cuda_take<unsigned char>(c, block),
                     stride, block_stride, a->scale, static_cast<int>(a->mode), a->heads, a->d, a->ratio, a->topk, a->cand_blocks, size,
                     log2_of(size), log2_of(a->keys.per_block), a->round_bf16};
    int most = a->mode == BY_CAND_INSIDE && a->cand_blocks * size < n ? a->cand_blocks * size : n;
    unsigned rows = static_cast<unsigned>(T);
    if (a->scores.mem) BY_CUDA_TRY(err, by_cuda_chain(c, fill_scores_kernel, dim3(rows, 32), 256, 0, 1, v.scores));
    bool fast = c->wgmma && v.page_shift >= 0 && v.cand_shift >= 0 && a->heads == 32 && a->d == 128 &&
                a->q.dtype == BY_IX4 && a->keys.rec == BY_REC_IX4 &&
                reinterpret_cast<uintptr_t>(v.keys.p) % 16 == 0 && a->keys.block_stride % 16 == 0;
    if (fast) {
        int want = (most + 127) / 128, room = (3 * c->sms + T - 1) / T;
        BY_CUDA_TRY(err, by_cuda_chain(c, score_kernel, dim3(static_cast<unsigned>(want < room || room < 1 ? want : room) *
                                    rows), 256, 0, 1, v));
    } else {
        dim3 grid(rows, static_cast<unsigned>(most < 1 << 20 ? (most + 63) / 64 : 1 << 14));
        BY_CUDA_TRY(err, by_cuda_chain(c, score_plain_kernel, grid, 256, 0, 1, v));
    }
    if (a->round_bf16) return launch_select<uint16_t>(c, v, most, static_cast<int>(blocks), err);
    return launch_select<uint32_t>(c, v, most, static_cast<int>(blocks), err);
}

/* In slices of rows when the scores of all would take too much scratch. */
by_status by_cuda_index_select(by_device *dev, const by_index_select_args *a, by_err *err) {
    int32_t T = a->batch.n_rows, per_row = a->q.dtype == BY_IX4 ? a->heads : 1;
    int64_t row = by_scratch_select_row(a->n_entries_max > 0 ? a->n_entries_max : 1, blocks_of(a), a->round_bf16 ? 2 : 4);
    int32_t most = static_cast<int32_t>(by_scratch_select_rows(T, row));
    for (int32_t t = 0; t < T; t += most) {
        int32_t n = T - t < most ? T - t : most;
        by_index_select_args part = *a;
        part.batch.n_rows = n;
        part.batch.row_pos = by_tensor_rows(a->batch.row_pos, t, n);
        part.batch.row_seq = by_tensor_rows(a->batch.row_seq, t, n);
        part.q = by_tensor_rows(a->q, static_cast<int64_t>(t) * per_row, static_cast<int64_t>(n) * per_row);
        part.weights = by_tensor_rows(a->weights, t, n);
        part.sel = by_tensor_rows(a->sel, t, n);
        if (a->cand.mem) part.cand = by_tensor_rows(a->cand, t, n);
        if (a->scores.mem) part.scores = by_tensor_rows(a->scores, t, n);
        BY_TRY(select_slice(by_cuda_of(dev), &part, err));
    }
    return BY_OK;
}
