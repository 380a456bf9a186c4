// cuda_matmul.cu - the matmul operator: tensor cores for A8 x FP8 and BF16 x BF16 at the widths of the model, and a plain
// kernel, one warp an output, for everything else (fp32 activations, small or odd widths).
#include "ops/cuda/cuda_image.cuh"
#include "ops/cuda/cuda_wide.cuh"

/* ---- any dtype, any width ------------------------------------------------------------------------------------- */

struct plain_view {
    view x, w, scale, y;
    int groups;
};

__device__ static float weight_at(const view &w, const view &s, int64_t n, int k) {
    const unsigned char *p = w.row(n);
    switch (w.dtype) {
    case BY_FP8_TILE: return e4m3_value(p[k]) * ue8m0_value(s.row(n / 32)[k / 32]);
    case BY_FP8_ROW: return e4m3_value(p[k]) * ue8m0_value(s.row(n)[k / 32]);
    case BY_FP4_ROW: return e2m1_value(p[k / 2] >> (k & 1) * 4 & 15) * ue8m0_value(s.row(n)[k / 32]);
    case BY_BF16: return bf16_at(p, k);
    default: return reinterpret_cast<const float *>(p)[k];
    }
}

__global__ void plain_matmul_kernel(plain_view a) {
    int n = blockIdx.y * 8 + (threadIdx.x >> 5), t = blockIdx.x, lane = threadIdx.x & 31, K = a.w.cols;
    if (n >= a.w.rows) return;
    int k0 = n / (a.w.rows / a.groups) * K;
    const unsigned char *x = a.x.row(t);
    float s = 0;
    for (int k = lane; k < K; k += 32) s = fmaf(value_at(a.x.dtype, x, a.x.cols, k0 + k), weight_at(a.w, a.scale, n, k), s);
    s = warp_sum(s);
    if (lane == 0) store_value(a.y.dtype, a.y.row(t), n, s);
}

/* ---- tensor cores --------------------------------------------------------------------------------------------- */

/* Through shared memory (free by now), so that each token's bf16 row leaves in 16-byte pieces. */
template <int GROUPS, int BT>
__device__ static void store_turned(const gemm_part &p, const float (&acc)[BT / 2], int n0, int t0, int T, uint32_t smem) {
    constexpr int PITCH = GROUPS * 128 + 16, PIECES = GROUPS * 8;
    int tid = threadIdx.x, lane = tid & 31;
    bar_sync(1, GROUPS * 128);
    uint32_t at = smem + ((lane >> 4) * 8 + (lane & 7)) * PITCH + (tid / 32 * 16 + (lane >> 3 & 1) * 8) * 2;
#pragma unroll
    for (int i = 0; i < BT / 8; i += 2) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            r[j] = bf16_bits(acc[4 * i + 2 * j]) | static_cast<uint32_t>(bf16_bits(acc[4 * i + 2 * j + 1])) << 16;
        put_turned(at + i * 8 * PITCH, r);
    }
    bar_sync(1, GROUPS * 128);
    for (int i = tid; i < BT * PIECES; i += GROUPS * 128) {
        int t = i / PIECES, piece = i % PIECES;
        if (t0 + t >= T) break;
        uint32_t q[4];
        load_shared16(q, smem + t * PITCH + piece * 16);
        *reinterpret_cast<uint4 *>(p.y + (t0 + t) * p.y_stride + n0 * 2 + piece * 16) = make_uint4(q[0], q[1], q[2], q[3]);
    }
}

template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int DEPTH = 2>
__global__ void __maxnreg__((gemm_shape<WT, U, GROUPS, BT, ST>::regs(PER_SM))) gemm_kernel(const __grid_constant__ gemm_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    /* blocks of a cluster take neighbouring weight tiles of the same tokens; clusters run over the tokens first */
    int peers = static_cast<int>(cluster_size()), id = blockIdx.x / peers, pi = 0;
    int tile = id / a.token_tiles * peers + blockIdx.x % peers, t0 = id % a.token_tiles * BT;
    while (pi + 1 < a.n_parts && tile >= a.part[pi + 1].tile0) pi++;
    const gemm_part &p = a.part[pi];
    int n0 = (tile - p.tile0) * GROUPS * 64, first = min(n0, p.rows - 1);
    int stages = a.K / gemm_shape<WT, U, GROUPS, BT, ST>::K;
    gemm_loop<WT, U, GROUPS, BT, ST, DEPTH> loop(smem, true);
    depend_launch();
    if (threadIdx.x >= GROUPS * 128) {
        int64_t block = static_cast<int64_t>(first / p.group_rows) * (a.K / 64);
        loop.produce(a.x.p + block * a.x.block_stride + static_cast<int64_t>(t0) * 128, a.x.block_stride, BT, stages);
        loop.leave();
        return;
    }
    int row = n0 + (threadIdx.x >> 5) * 16 + (threadIdx.x >> 2 & 7);
    int r0 = min(row, p.rows - 1), r1 = min(row + 8, p.rows - 1);
    gemm_rows rows = {p.w + r0 * p.w_stride, p.w + r1 * p.w_stride, p.s + r0 / 32 * p.s_stride, p.s + r1 / 32 * p.s_stride};
    float acc[BT / 2] = {};
    if (!loop.template consume<BT>(acc, rows, stages)) atomicOr(a.flags, BY_CUDA_FLAG_SCALE);
    loop.leave(); /* from here on its shared memory is this block's own */
    if constexpr (BT >= 32) {
        if (in_pieces(p, n0 + GROUPS * 64)) {
            store_turned<GROUPS, BT>(p, acc, n0, t0, a.T, loop.x);
            return;
        }
    }
    store_direct<BT>(p, acc, row, t0, a.T);
}

template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int DEPTH = 2>
static by_status launch(by_cuda *c, gemm_args &g, int peers, by_err *err) {
    using shape = gemm_shape<WT, U, GROUPS, BT, ST>;
    int tiles = 0;
    for (int i = 0; i < g.n_parts; i++) {
        g.part[i].tile0 = tiles;
        tiles += ((g.part[i].rows + GROUPS * 64 - 1) / (GROUPS * 64) + peers - 1) / peers * peers;
        if (g.part[i].group_rows % (GROUPS * 64 * peers)) assert(peers == 1 || g.part[i].group_rows == g.part[i].rows);
    }
    auto kernel = gemm_kernel<WT, U, GROUPS, BT, ST, PER_SM, DEPTH>;
    BY_TRY(by_cuda_smem(kernel, shape::BYTES, err));
    g.token_tiles = (g.T + BT - 1) / BT;
    dim3 grid(static_cast<unsigned>(g.token_tiles * tiles));
    BY_CUDA_TRY(err, by_cuda_chain(c, kernel, grid, shape::THREADS, shape::BYTES, peers, g));
    return BY_OK;
}

/* Few tokens: each block of a cluster multiplies one segment of k, and adds a part of the tile's outputs over the segments in
 * order. */
template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int DEPTH = 2>
__global__ void __maxnreg__((gemm_shape<WT, U, GROUPS, BT, ST>::regs(PER_SM))) gemm_split_kernel(const __grid_constant__ gemm_args a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    using shape = gemm_shape<WT, U, GROUPS, BT, ST>;
    constexpr int ROWS = GROUPS * 64, PITCH = ROWS + 4;
    int tile = blockIdx.y, t0 = blockIdx.z * BT, pi = 0, split = gridDim.x, rank = blockIdx.x;
    while (pi + 1 < a.n_parts && tile >= a.part[pi + 1].tile0) pi++;
    const gemm_part &p = a.part[pi];
    int n0 = (tile - p.tile0) * ROWS, all = a.K / shape::K;
    int first = segment_first<shape::K>(rank, split, all), stages = segment_first<shape::K>(rank + 1, split, all) - first;
    gemm_loop<WT, U, GROUPS, BT, ST, DEPTH> loop(smem, false);
    depend_launch();
    if (threadIdx.x >= shape::CONSUMERS) { /* to the end in its own branch: it may have given its registers away */
        int64_t block = static_cast<int64_t>(n0 / p.group_rows) * (a.K / 64) + static_cast<int64_t>(first) * (shape::K / 64);
        loop.produce(a.x.p + block * a.x.block_stride + static_cast<int64_t>(t0) * 128, a.x.block_stride, BT, stages);
        cluster_sync();
        cluster_sync();
        return;
    }
    int row = n0 + (threadIdx.x >> 5) * 16 + (threadIdx.x >> 2 & 7), c = threadIdx.x & 3;
    int r0 = min(row, p.rows - 1), r1 = min(row + 8, p.rows - 1);
    int64_t w = static_cast<int64_t>(first) * (kind<WT>::CHUNKS * U * 64);
    int64_t s = WT == W_FP8 && U == 1 ? first / 2 * 4 : static_cast<int64_t>(first) * shape::SCALE;
    gemm_rows rows = {p.w + r0 * p.w_stride + w, p.w + r1 * p.w_stride + w, p.s + r0 / 32 * p.s_stride + s,
                      p.s + r1 / 32 * p.s_stride + s};
    float acc[BT / 2] = {};
    if (!loop.template consume<BT>(acc, rows, stages)) atomicOr(a.flags, BY_CUDA_FLAG_SCALE);
    bar_sync(1, shape::CONSUMERS); /* all operands are used: their memory takes the sums, [BT][ROWS] */
    float *out = reinterpret_cast<float *>(smem + (loop.x - smem_addr(smem)));
#pragma unroll
    for (int i = 0; i < BT / 4; i++) {
        int j = i / 2 * 4 + i % 2, token = i / 2 * 8 + c * 2 + i % 2;
        out[token * PITCH + row - n0] = acc[j];
        out[token * PITCH + row - n0 + 8] = acc[j + 2];
    }
    cluster_sync();
    uint32_t at[8];
#pragma unroll
    for (int i = 0; i < 8; i++) at[i] = i < split ? remote(loop.x, static_cast<uint32_t>(i)) : 0;
    int tokens = min(BT, a.T - t0), n = tokens * (ROWS / 4);
    for (int i = rank * n / split + threadIdx.x; i < (rank + 1) * n / split; i += shape::CONSUMERS) {
        int token = i / (ROWS / 4), row4 = i % (ROWS / 4) * 4;
        uint32_t off = static_cast<uint32_t>(token * PITCH + row4) * 4;
        float4 v = remote_f32x4(at[0] + off);
#pragma unroll
        for (int k = 1; k < 8; k++) {
            if (k >= split) continue;
            float4 u = remote_f32x4(at[k] + off);
            v.x += u.x, v.y += u.y, v.z += u.z, v.w += u.w;
        }
        const float sum[4] = {v.x, v.y, v.z, v.w};
        for (int k = 0; k < 4; k++)
            if (n0 + row4 + k < p.rows) store_value(p.y_dtype, p.y + (t0 + token) * p.y_stride, n0 + row4 + k, sum[k]);
    }
    cluster_sync();
}

template <int WT, int U, int GROUPS, int BT, int ST, int PER_SM, int DEPTH = 2>
static by_status launch_split(by_cuda *c, gemm_args &g, int split, by_err *err) {
    using shape = gemm_shape<WT, U, GROUPS, BT, ST>;
    static_assert(BT * (GROUPS * 64 + 4) * 4 <= ST * (shape::X + shape::W), "the sums fit where the operands were");
    int tiles = 0;
    for (int i = 0; i < g.n_parts; i++) {
        g.part[i].tile0 = tiles;
        tiles += (g.part[i].rows + GROUPS * 64 - 1) / (GROUPS * 64);
    }
    auto kernel = gemm_split_kernel<WT, U, GROUPS, BT, ST, PER_SM, DEPTH>;
    BY_TRY(by_cuda_smem(kernel, shape::BYTES, err));
    dim3 grid(static_cast<unsigned>(split), static_cast<unsigned>(tiles), static_cast<unsigned>((g.T + BT - 1) / BT));
    BY_CUDA_TRY(err, by_cuda_chain(c, kernel, grid, shape::THREADS, shape::BYTES, split, g));
    return BY_OK;
}

/* Tiles of 128 rows of all parts, each part's rounded up to `peers`. */
static int wide_rows(gemm_args &g, int peers) {
    int tiles = 0;
    for (int i = 0; i < g.n_parts; i++) {
        g.part[i].tile0 = tiles;
        tiles += ((g.part[i].rows + 127) / 128 + peers - 1) / peers * peers;
    }
    return tiles;
}

template <int WT> static by_status weight_images(by_cuda *c, gemm_args &g, int tiles, by_err *err) {
    g.w.block_stride = static_cast<int64_t>(tiles) * (128 * 128);
    for (int i = 0; i < g.n_parts; i++) {
        int64_t n = static_cast<int64_t>(g.part[i].rows) * (g.K / 16);
        dim3 grid(static_cast<unsigned>((n + 255) / 256));
        BY_CUDA_TRY(err, by_cuda_chain(c, weight_image_kernel<WT>, grid, 256, 0, 1, g, i));
    }
    return BY_OK;
}

template <int BT, bool SUMS>
static by_status launch_wide(by_cuda *c, gemm_args &g, int tiles, int peers, float up, by_err *err) {
    using shape = wide_shape<BT>;
    auto kernel = wide_kernel<BT, SUMS>;
    BY_TRY(by_cuda_smem(kernel, shape::BYTES, err));
    g.token_tiles = (g.T + BT - 1) / BT;
    int all = tiles * g.token_tiles, most = c->sms / peers * peers;
    dim3 grid(static_cast<unsigned>(all < most ? all : most));
    BY_CUDA_TRY(err, by_cuda_chain(c, kernel, grid, shape::THREADS, shape::BYTES, peers, g, all, up));
    return BY_OK;
}

static int row_tiles(const gemm_args &g, int rows) {
    int tiles = 0;
    for (int i = 0; i < g.n_parts; i++) tiles += (g.part[i].rows + rows - 1) / rows;
    return tiles;
}
/* Whether all groups of rows (see gemm_part) are whole tiles of `rows`. */
static bool groups_fit(const gemm_args &g, int rows) {
    for (int i = 0; i < g.n_parts; i++)
        if (g.part[i].group_rows != g.part[i].rows && g.part[i].group_rows % rows != 0) return false;
    return true;
}

/* Segments of k: each is a chain of fp32 sums, and the segments are added in order. Their number depends on the weights
 * alone, so that all kernels here give a row the same bits. It is chosen to fill the device when there are few tokens. */
static int segments_of(const gemm_args &g) {
    int tiles = row_tiles(g, 64);
    int n = tiles <= SEGMENT_SMS / 3 ? 8 : tiles <= SEGMENT_SMS * 3 / 4 ? 4 : tiles <= SEGMENT_SMS * 2 ? 2 : 1;
    while (n > g.K / 128) n--;
    return n < 1 ? 1 : n;
}
size_t by_cuda_weight_image(const gemm_args &g) {
    gemm_args copy = g;
    size_t bytes = image_bytes(static_cast<int64_t>(wide_rows(copy, 2)) * 128, g.K);
    int from = segments_of(g) > 1 ? BY_SCRATCH_WEIGHTS_FROM : 2 * BY_SCRATCH_WEIGHTS_FROM; /* tokens from which on it pays: measured */
    return g.T >= from && bytes <= BY_SCRATCH_WEIGHTS_MAX ? bytes : 0;
}

template <int WT> static by_status launch_images(by_cuda *c, gemm_args &g, by_err *err) {
    int peers = groups_fit(g, 256) ? 2 : 1, tiles = wide_rows(g, peers);
    BY_TRY(weight_images<WT>(c, g, tiles, err));
    float up = kind<WT>::SCALES ? 0x1p20f : 1.0f;
    /* Rounds of all blocks, by the time that a tile of so many tokens needs (measured, of 192: 192). */
    int clusters = c->sms / peers, pairs = tiles / peers;
    auto cost = [&](int bt, int time) { return (pairs * ((g.T + bt - 1) / bt) + clusters - 1) / clusters * time; };
    int narrow = cost(128, 136), broad = cost(192, 192);
    if (g.segments > 1) {
        if (narrow < broad) return launch_wide<128, true>(c, g, tiles, peers, up, err);
        return launch_wide<192, true>(c, g, tiles, peers, up, err);
    }
    if (cost(256, 264) < broad) return launch_wide<256, false>(c, g, tiles, peers, up, err);
    return launch_wide<192, false>(c, g, tiles, peers, up, err);
}

/* Few tokens, several segments. */
template <int WT> static by_status launch_segments(by_cuda *c, gemm_args &g, by_err *err) {
    int T = g.T, n = g.segments, blocks = row_tiles(g, 64) * n;
    if constexpr (WT == W_BF16) {
        if (T <= 8) return launch_split<WT, 1, 1, 8, 4, 4>(c, g, n, err);
        if (T <= 16) return launch_split<WT, 1, 1, 16, 4, 3>(c, g, n, err);
        if (T <= 32) return launch_split<WT, 1, 1, 32, 4, 3>(c, g, n, err);
        if (T <= 64) return launch_split<WT, 1, 1, 64, 4, 2>(c, g, n, err);
        return launch_split<WT, 1, 2, 128, 5, 1>(c, g, n, err);
    } else {
        bool lengthy = g.K / 128 / n >= 16;   /* a block has many stages: a deeper ring pays */
        bool loose = blocks <= 2 * c->sms;    /* two blocks a multiprocessor hold all */
        bool three = groups_fit(g, 192);      /* else three warpgroups a block let one round do */
        if (T <= 8 && lengthy) return launch_split<WT, 2, 1, 8, 6, 3>(c, g, n, err);
        if (T <= 8) return launch_split<WT, 2, 1, 8, 4, 4>(c, g, n, err);
        if (T <= 16 && lengthy) return launch_split<WT, 2, 1, 16, 5, 3>(c, g, n, err);
        if (T <= 16) return launch_split<WT, 2, 1, 16, 4, 3>(c, g, n, err);
        if (T <= 32 && loose) return launch_split<WT, 2, 1, 32, 5, 2>(c, g, n, err);
        if (T <= 32) return launch_split<WT, 2, 1, 32, 4, 3>(c, g, n, err);
        if (T <= 64 && (loose || !three)) return launch_split<WT, 2, 1, 64, 4, 2>(c, g, n, err);
        if (T <= 64) return launch_split<WT, 2, 3, 64, 4, 1, 4>(c, g, n, err);
        if (!three || row_tiles(g, 128) * n <= c->sms) return launch_split<WT, 2, 2, 128, 4, 1, 4>(c, g, n, err);
        return launch_split<WT, 2, 3, 128, 3, 1>(c, g, n, err);
    }
}

template <int WT> static by_status launch_any(by_cuda *c, gemm_args &g, by_err *err) {
    int T = g.T;
    g.segments = segments_of(g);
    if (by_cuda_weight_image(g)) return launch_images<WT>(c, g, err);
    if (g.segments > 1) return launch_segments<WT>(c, g, err);
    if constexpr (WT == W_BF16) {
        if (T <= 8) return launch<WT, 1, 1, 8, 4, 4>(c, g, 1, err);
        if (T <= 16) return launch<WT, 1, 1, 16, 4, 3>(c, g, 1, err);
        if (T <= 32) return launch<WT, 1, 1, 32, 4, 3>(c, g, 1, err);
        if (T <= 64) return launch<WT, 1, 1, 64, 4, 2>(c, g, 1, err);
    } else {
        if (T <= 8) return launch<WT, 2, 1, 8, 4, 4>(c, g, 1, err);
        if (T <= 32 && groups_fit(g, 256)) return launch<WT, 2, 4, 32, 3, 1, 4>(c, g, 1, err);
        if (T <= 64 && groups_fit(g, 256)) return launch<WT, 2, 4, 64, 4, 1, 4>(c, g, 1, err);
        if (T <= 128) return launch<WT, 2, 2, 128, 4, 1, 4>(c, g, groups_fit(g, 256) ? 2 : 1, err);
    }
    /* two blocks share the images, but for groups narrower than two blocks of 128 rows */
    int peers = groups_fit(g, 256) ? 2 : 1;
    if ((T + 255) / 256 * row_tiles(g, 128) >= c->sms - c->sms / 8) return launch<WT, 1, 2, 256, 4, 1>(c, g, peers, err);
    return launch<WT, 1, 2, 128, 5, 1>(c, g, peers, err);
}

by_status by_cuda_products(by_cuda *c, weight_kind kind, gemm_args &g, by_err *err) {
    return kind == W_FP8 ? launch_any<W_FP8>(c, g, err) : launch_any<W_BF16>(c, g, err);
}

static bool aligned(const by_tensor &t, int64_t n) {
    return (reinterpret_cast<uintptr_t>(t.mem->ptr + t.off) | static_cast<uintptr_t>(t.stride)) % static_cast<uintptr_t>(n) == 0;
}

/* Whether the tensor cores can take this part; all parts of a call must be of one kind. */
static bool fits(const by_matmul_args *a, int i, by_dtype w) {
    const by_weight *q = &a->part[i].w;
    int64_t K = q->w.cols, group = q->w.rows / a->groups;
    if (q->w.dtype != w || !aligned(q->w, 16)) return false;
    if (a->groups > 1 && group % 128) return false;
    if (w == BY_FP8_TILE) return a->x.dtype == BY_A8 && K % 128 == 0 && aligned(q->scale, 4) && aligned(a->x, 4);
    return a->x.dtype == BY_BF16 && K % 64 == 0 && aligned(a->x, 4);
}

static by_status tensor_core(by_cuda *c, const by_matmul_args *a, by_dtype w, by_err *err) {
    int64_t T = a->x.rows, padded = by_scratch_rows256(T);
    gemm_args g = {};
    g.T = static_cast<int>(T);
    g.K = static_cast<int>(a->x.cols / a->groups);
    g.n_parts = a->n_parts;
    g.flags = c->flags;
    for (int i = 0; i < a->n_parts; i++) {
        const by_weight *q = &a->part[i].w;
        view wv = view_of(q->w), sv = view_of(q->scale), y = view_of(a->part[i].y);
        g.part[i] = {wv.p, sv.p, y.p, wv.stride, sv.stride, y.stride, wv.rows, y.dtype, 0, wv.rows / a->groups};
    }
    weight_kind kind = w == BY_FP8_TILE ? W_FP8 : W_BF16;
    g.segments = segments_of(g);
    /* no scratch, which the caller may be using; measured as if there were no such kernels: fewer rows may not fit them */
    if (by_cuda_few_fits(c, kind, a->x, g) && !c->measures) return by_cuda_few(c, kind, a->x, g, err);
    size_t weights = by_cuda_weight_image(g);
    BY_TRY(by_cuda_scratch(c, static_cast<size_t>(by_scratch_matmul(T, a->x.cols, static_cast<int64_t>(weights))), err));
    g.x = {by_cuda_take<unsigned char>(c, image_bytes(padded, a->x.cols)), padded * 128};
    g.w.p = by_cuda_take<unsigned char>(c, weights);
    int64_t rows = (T + 7) / 8 * 8;
    if (kind == W_FP8) make_image<W_FP8>(c, a->x, nullptr, nullptr, rows, g.x);
    else make_image<W_BF16>(c, a->x, nullptr, nullptr, rows, g.x);
    return by_cuda_products(c, kind, g, err);
}

by_status by_cuda_matmul(by_device *dev, const by_matmul_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    if (a->x.rows == 0) return BY_OK;
    bool fp8 = c->wgmma, bf16 = c->wgmma;
    for (int i = 0; i < a->n_parts; i++) {
        assert(a->part[i].w.w.cols * a->groups == a->x.cols && a->part[i].y.cols == a->part[i].w.w.rows);
        fp8 = fp8 && fits(a, i, BY_FP8_TILE);
        bf16 = bf16 && fits(a, i, BY_BF16);
    }
    if (fp8) return tensor_core(c, a, BY_FP8_TILE, err);
    if (bf16) return tensor_core(c, a, BY_BF16, err);
    for (int i = 0; i < a->n_parts; i++) {
        if (a->part[i].w.w.mem->packed) return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: matmul with the FP4 weights of experts");
        plain_view v = {view_of(a->x), view_of(a->part[i].w.w), view_of(a->part[i].w.scale), view_of(a->part[i].y), a->groups};
        dim3 grid(static_cast<unsigned>(a->x.rows), static_cast<unsigned>((v.w.rows + 7) / 8)); /* y ends at 65535 */
        BY_CUDA_TRY(err, by_cuda_launch(c, plain_matmul_kernel, grid, 256, 0, v));
    }
    return BY_OK;
}
