// cuda_moe_few.cu - the experts of up to MOE_FEW tokens. Source: model.md section 8.
//
// With so few tokens nearly every choice has an expert of its own, and what the general way (cuda_moe.cu) does around its
// products, sorting, gathering and images, takes as long as they do. Here each choice is a product of its own: one kernel for
// w1, w3 and the gate, one for w2 and the sum over the choices. A warp reads its strips straight into registers, as cuda_few.cu
// does, and multiplies with the warp's instruction, all of whose columns are the one token. A row's bits are those of the general way: the
// same order of k, the same roundings, and by_cuda_few_probe's leave.
#include "ops/cuda/cuda_moe.cuh"

/* A token's row as operand: bf16 in units of 128 k, where thread c of a quad finds its values of two steps in 16 bytes. */
__host__ __device__ static inline int few_place(int k) {
    return k / 128 * 128 + k % 32 / 8 * 32 + k / 32 % 4 * 8 + (k >> 1 & 1) * 4 + (k & 1) * 2 + (k >> 2 & 1);
}

struct few_moe {
    view x, idx, weight, y;
    const expert_view *experts;
    const uint16_t *shared; /* [T, D] or NULL */
    uint16_t *h;            /* [T * k, I] in few_place's order */
    int D, I, k;
    float limit;
    int32_t *flags;
    bool known; /* rows and choices are there when the kernel for w1 and w3 starts */
};

enum { UP_AHEAD = 5, DOWN_AHEAD = 4 }; /* more registers for the second would leave its blocks no room at once */

/* Two groups of 8 rows of strips: this lane's first bytes of each and of their scales. AHEAD units of 128 k are under way. */
template <int AHEAD> struct few_strips {
    const unsigned char *w0, *w1, *s0, *s1;
    struct piece {
        uint4 a, b;
        uint32_t sa, sb;
    };
    __device__ void load(piece &p, int u) const {
        p.a = load_once16(w0 + static_cast<int64_t>(u) * STRIP_UNIT), p.b = load_once16(w1 + static_cast<int64_t>(u) * STRIP_UNIT);
        p.sa = s0[static_cast<int64_t>(u) * STRIP_SCALES], p.sb = s1[static_cast<int64_t>(u) * STRIP_SCALES];
    }
    __device__ void begin(piece (&ring)[AHEAD], int units) const {
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (j < units) load(ring[j], j);
    }
    /* acc (zeros before) becomes the products with the row at x (few_place's order), the same in all columns; x is ready. */
    __device__ void run(piece (&ring)[AHEAD], float (&acc)[4], const uint4 *x, int units) const {
        x += threadIdx.x & 3;
#pragma unroll 1
        for (int u = 0; u < units; u += AHEAD) {
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                if (u + j >= units) break;
                const piece &p = ring[j];
                const uint32_t q0[4] = {p.a.x, p.a.y, p.a.z, p.a.w}, q1[4] = {p.b.x, p.b.y, p.b.z, p.b.w};
                uint32_t m0 = strip_scale(p.sa), m1 = strip_scale(p.sb);
                const uint4 *v = x + (u + j) * 16;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint4 b = v[i * 4];
                    uint32_t a[4];
                    expand<W_FP4>(a, 2 * i, q0, q1, m0, m1);
                    mma16x8(acc, a, b.x, b.y);
                    expand<W_FP4>(a, 2 * i + 1, q0, q1, m0, m1);
                    mma16x8(acc, a, b.z, b.w);
                }
                if (u + j + AHEAD < units) load(ring[j], u + j + AHEAD);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) acc[i] *= 0x1p20f;
    }
};

/* Block (strip of 32 channels, choice): products with w1 and w3, the gate, E4M3 per 32 channels. */
__global__ void __launch_bounds__(128) moe_up_few_kernel(const __grid_constant__ few_moe a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    __shared__ float amax[4];
    uint4 *x = reinterpret_cast<uint4 *>(smem);
    int choice = blockIdx.y, t = choice / a.k, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (!a.known) depend_wait();
    depend_launch(); /* so the next kernel starts with the choices known */
    const expert_view e = a.experts[a.idx.i32(t)[choice % a.k]];
    int64_t at = static_cast<int64_t>(blockIdx.x) * 32 * e.w1_stride + threadIdx.x * 16;
    few_strips<UP_AHEAD> strips = {e.w1 + at, e.w3 + at, e.s1 + at / 16, e.s3 + at / 16};
    few_strips<UP_AHEAD>::piece ring[UP_AHEAD];
    strips.begin(ring, a.D / 128);
    const unsigned char *row = a.x.row(t);
    for (int i = threadIdx.x; i < a.D / 8; i += 128) { /* 8 k: bytes 0, 1, 4, 5 are a step's, 2, 3, 6, 7 the next one's */
        uint2 w = *reinterpret_cast<const uint2 *>(row + 8 * i);
        uint32_t m = row[a.D + i / 4], scale = m ? m << 7 | m << 23 : 0x00400040u, lo[2], hi[2];
        expand_fp8(__byte_perm(w.x, w.y, 0x5410), 0x7b807b80u, lo[0], hi[0]);
        expand_fp8(__byte_perm(w.x, w.y, 0x7632), 0x7b807b80u, lo[1], hi[1]);
        uint4 v = make_uint4(mul_bf16x2(lo[0], scale), mul_bf16x2(hi[0], scale), mul_bf16x2(lo[1], scale), mul_bf16x2(hi[1], scale));
        x[few_place(8 * i) / 8] = v;
    }
    __syncthreads();
    float acc[4] = {};
    strips.run(ring, acc, x, a.D / 128);
    float v = gated(round_to(BY_BF16, acc[0]), round_to(BY_BF16, acc[2]), a.limit, a.weight.f32(t)[choice % a.k]);
    float m = fabsf(v);
    for (int i = 4; i < 32; i *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, i));
    if (lane == 0) amax[warp] = m;
    __syncthreads();
    uint32_t b = act8_scale(fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3])));
    float q = kept_nan(v, e4m3_value(e4m3_of(v * ue8m0_inverse(b))) * ue8m0_value(b));
    int channel = blockIdx.x * 32 + warp * 8 + lane / 4;
    depend_wait(); /* the chain ends here where the choices were known */
    if ((lane & 3) == 0) a.h[static_cast<int64_t>(choice) * a.I + few_place(channel)] = bf16_bits(q);
}

/* Block (16 rows of the output, token): a warp a choice, then their sum in order and the shared expert's. Dynamic: [k][I] bf16. The
 * weights are on their way, the first in registers and the others to the L2 cache, while the kernel before runs. */
__global__ void __launch_bounds__(512) moe_down_few_kernel(const __grid_constant__ few_moe a) {
    BY_CUDA_DYNAMIC(unsigned char, smem);
    __shared__ float part[16][16];
    int t = blockIdx.y, j = threadIdx.x >> 5, lane = threadIdx.x & 31, row0 = blockIdx.x * 16, choice = t * a.k + j, units = a.I / 128;
    const expert_view e = a.experts[a.idx.i32(t)[j]];
    int64_t first = static_cast<int64_t>(row0 / 32) * 32 * e.w2_stride + row0 % 32 / 8 * 512, at = first + lane * 16;
    few_strips<DOWN_AHEAD> strips = {e.w2 + at, e.w2 + at + 512, e.s2 + at / 16, e.s2 + at / 16 + 32};
    few_strips<DOWN_AHEAD>::piece ring[DOWN_AHEAD];
    strips.begin(ring, units);
    for (int u = DOWN_AHEAD + lane; u < units; u += 32) bulk_prefetch(e.w2 + first + static_cast<int64_t>(u) * STRIP_UNIT, 1024);
    depend_launch();
    depend_wait();
    const uint4 *from = reinterpret_cast<const uint4 *>(a.h + static_cast<int64_t>(choice) * a.I);
    uint4 *h = reinterpret_cast<uint4 *>(smem) + j * (a.I / 8);
    for (int i = lane; i < a.I / 8; i += 32) h[i] = from[i];
    __syncwarp();
    float acc[4] = {};
    strips.run(ring, acc, h, units);
    if ((lane & 3) == 0) part[j][lane / 4] = round_to(BY_BF16, acc[0]), part[j][8 + lane / 4] = round_to(BY_BF16, acc[2]);
    __syncthreads();
    if (threadIdx.x >= 16) return;
    int row = row0 + static_cast<int>(threadIdx.x);
    float s = 0;
    for (int i = 0; i < a.k; i++) s += part[i][threadIdx.x];
    if (a.shared) s += bf16_at(a.shared, static_cast<int64_t>(t) * a.D + row);
    reinterpret_cast<uint16_t *>(a.y.row(t))[row] = bf16_bits(s);
}

/* Gate of the shared expert: g and u [T, I] bf16 to A8. A group that is not finite gets the scale that stands for NaN, 255, which makes
 * every product with it infinite or NaN. A warp has 32 channels. */
__global__ void gate_rows_kernel(const uint16_t *g, const uint16_t *u, int T, int I, float limit, unsigned char *to) {
    int lane = threadIdx.x & 31, groups = I / 32, i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, t = i / groups;
    depend_wait();
    depend_launch();
    if (t >= T) return;
    int64_t at = static_cast<int64_t>(t) * I + i % groups * 32 + lane;
    float v = gated(bf16_at(g, at), bf16_at(u, at), limit, 1.0f);
    uint32_t b = act8_scale(warp_max(fabsf(v)));
    bool bad = __any_sync(~0u, !(fabsf(v) <= 3.4e38f));
    unsigned char *row = to + static_cast<int64_t>(t) * (I + I / 32);
    row[i % groups * 32 + lane] = e4m3_of(v * ue8m0_inverse(b));
    if (lane == 0) row[I + i % groups] = static_cast<uint8_t>(bad ? 255 : b);
}

bool by_cuda_moe_few_fits(const by_cuda *c, const by_moe_args *a) {
    int64_t wide = a->shared ? a->shared->w1.w.rows : 256, k = a->idx.cols;
    /* a row and four maxima fit a block's 48 KB, a token's rows between the products 96 */
    bool small = a->x.cols < 24 << 10 && k <= 16 && k * a->inner * 2 <= 96 << 10;
    small = small && a->x.rows <= (a->shared ? MOE_FEW : 1); /* beyond, sorting pays */
    return c->few && small && !a->part.mem && wide_row(a->x, 8) && wide % 256 == 0;
}

static by_matmul_args product(const by_tensor &x, by_mem *mem, int64_t rows, int64_t cols) {
    by_matmul_args m = {};
    m.x = x;
    m.n_parts = m.groups = 1;
    m.part[0].y = {mem, 0, cols * 2, rows, cols, BY_BF16};
    return m;
}
/* As rows of scratch: by_cuda_matmul takes tensors. */
static by_mem scratch_mem(by_device *dev, unsigned char *p, size_t bytes) {
    by_mem m = {};
    m.dev = dev, m.ptr = p, m.bytes = bytes;
    return m;
}
static by_status shared_few(by_device *dev, const by_moe_args *a, uint16_t *out, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    const by_expert *e = a->shared;
    int64_t T = a->x.rows, D = a->x.cols, I = e->w1.w.rows, row = I + I / 32;
    size_t half = static_cast<size_t>(T * I) * 2;
    unsigned char *g = by_cuda_take<unsigned char>(c, half), *u = by_cuda_take<unsigned char>(c, half);
    unsigned char *h = by_cuda_take<unsigned char>(c, static_cast<size_t>(T * row));
    by_mem gm = scratch_mem(dev, g, half), um = scratch_mem(dev, u, half), hm = scratch_mem(dev, h, static_cast<size_t>(T * row));
    by_mem om = scratch_mem(dev, reinterpret_cast<unsigned char *>(out), static_cast<size_t>(T * D) * 2);
    by_matmul_args up = product(a->x, &gm, T, I);
    up.n_parts = 2;
    up.part[0].w = e->w1, up.part[1].w = e->w3;
    up.part[1].y = {&um, 0, I * 2, T, I, BY_BF16};
    BY_TRY(by_cuda_matmul(dev, &up, err));
    unsigned warps = static_cast<unsigned>(T * (I / 32));
    BY_CUDA_TRY(err, by_cuda_chain(c, gate_rows_kernel, dim3((warps + 7) / 8), 256, 0, 1, reinterpret_cast<uint16_t *>(g),
                                   reinterpret_cast<uint16_t *>(u), static_cast<int>(T), static_cast<int>(I), a->limit, h));
    by_tensor hidden = {&hm, 0, row, T, I, BY_A8};
    by_matmul_args down = product(hidden, &om, T, D);
    down.part[0].w = e->w2;
    return by_cuda_matmul(dev, &down, err);
}

by_status by_cuda_moe_few(by_device *dev, const by_moe_args *a, const expert_view *table, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    int64_t T = a->x.rows, k = a->idx.cols, D = a->x.cols, I = a->inner, wide = a->shared ? a->shared->w1.w.rows : 0;
    size_t h = static_cast<size_t>(T * k * I), out = static_cast<size_t>(T * D), half = static_cast<size_t>(T * wide) * 2;
    BY_TRY(by_cuda_scratch(c, by_cuda_pad(h * 2) + by_cuda_pad(out * 2) + 3 * by_cuda_pad(half), err));
    few_moe m = {view_of(a->x), view_of(a->idx), view_of(a->weight), view_of(a->y), table, nullptr, by_cuda_take<uint16_t>(c, h),
                 static_cast<int>(D), static_cast<int>(I), static_cast<int>(k), a->limit, c->flags, false};
    uint16_t *shared = by_cuda_take<uint16_t>(c, out);
    m.shared = a->shared ? shared : nullptr;
    m.known = a->shared; /* kernels that have waited for one another lie between */
    size_t rows = static_cast<size_t>(k * I) * 2;
    dim3 up(static_cast<unsigned>(I / 32), static_cast<unsigned>(T * k)), down(static_cast<unsigned>(D / 16), static_cast<unsigned>(T));
    if (a->shared) BY_TRY(shared_few(dev, a, shared, err));
    BY_TRY(by_cuda_smem(moe_down_few_kernel, rows, err));
    BY_CUDA_TRY(err, by_cuda_chain(c, moe_up_few_kernel, up, 128, static_cast<size_t>(D) * 2, 1, m));
    BY_CUDA_TRY(err, by_cuda_chain(c, moe_down_few_kernel, down, static_cast<int>(k) * 32, rows, 1, m));
    return BY_OK;
}
