// cuda_gemm.cuh - the matrix product of the backend: weights in any stored format times rows of activations.
//
// One warpgroup owns 64 weight rows and up to 256 tokens. It reads the weights' own bytes (E4M3 or bf16) with
// asynchronous copies whose destination only the issuing thread reads, so that no barrier stands between memory and
// registers, or (E2M1) finds them brought by bulk copies; expands them in registers to bf16 with the scale multiplied in,
// which is exact; and feeds them as the A operand of the tensor core. Activations come as bf16 rows in the order that the
// B operand wants (an "image", made by by_cuda_image_*), by bulk copies of an extra warp.
//
// Sums. Each output is a chain of fp32 accumulations over k in ascending steps of 16, or several chains over segments of k,
// added in order; how many, depends on the weights alone: a row's bits do not depend on the number of rows. Scales: a
// weight is multiplied by 2^(s - 127 - 20) and the sum by 2^20, so that scales
// up to 2^20 keep all products inside bf16's range; a larger one raises BY_CUDA_FLAG_SCALE.
//
// Order of k. Thread c of a quad owns 16 consecutive bytes of a row in each unit and cuts them into operand registers in
// the order that costs fewest instructions; an image stores the activations in the same order. image_place() is that
// order, and the only thing both sides must agree on.
#ifndef BY_OPS_CUDA_GEMM_CUH
#define BY_OPS_CUDA_GEMM_CUH

#include "ops/cuda/cuda_wgmma.cuh"

enum weight_kind { W_FP8, W_FP4, W_BF16 };

template <int WT> struct kind {
    static constexpr int K = WT == W_FP4 ? 128 : 64;       /* k of a unit: 64 bytes of a row (bf16: 128) */
    static constexpr int BLOCKS = K / 64;                  /* image blocks of a unit */
    static constexpr int CHUNKS = WT == W_BF16 ? 2 : 1;    /* 16-byte pieces of a row that one thread reads */
    static constexpr int SCALES = WT == W_BF16 ? 0 : 1;
    static constexpr bool STRIPS = WT == W_FP4;            /* rearranged in memory, see strip_place */
    static constexpr int STEPS = K / 16;                   /* matrix instructions of a unit */
};

/* Position in the image of channel k within its unit. */
template <int WT> __host__ __device__ static inline int image_place(int k) {
    if (WT == W_FP8) return k % 16 / 4 * 16 + (k / 16) * 2 + (k & 1) * 8 + (k >> 1 & 1);
    if (WT == W_FP4) return (k % 32 / 8 * 2 + (k >> 1 & 1)) * 16 + k / 32 * 2 + (k & 1) * 8 + (k >> 2 & 1);
    return (k / 32 * 2 + (k >> 2 & 1)) * 16 + k % 32 / 8 * 2 + (k >> 1 & 1) * 8 + (k & 1);
}
/* Byte offset in a 64-k block of image row r, position p (0..63). */
__host__ __device__ static inline int64_t image_offset(int64_t r, int p) {
    return r / 8 * 1024 + r % 8 * 128 + ((p >> 3) ^ (r & 7)) * 16 + (p & 7) * 2;
}

/* Activations ready for the tensor core: blocks of 64 k, each [rows / 8][8][128 bytes], rows a multiple of 8. */
struct image {
    unsigned char *p;
    int64_t block_stride;
};
static inline size_t image_bytes(int64_t rows, int64_t k) { return static_cast<size_t>(by_scratch_image(rows, k)); }

/* Segments of k are cut for a device of this many multiprocessors, whatever the device: bits do not depend on it. */
enum { SEGMENT_SMS = 132 };

/* First stage of segment i of n, of `stages` stages of SK values of k: cut at multiples of 128. */
template <int SK> __device__ static inline int segment_first(int i, int n, int stages) {
    constexpr int UNIT = 128 / SK;
    return i == n ? stages : i * (stages / UNIT) / n * UNIT;
}

/* Products of one image of T tokens with several weights (cuda_matmul.cu). */
struct gemm_part {
    const unsigned char *w, *s;
    unsigned char *y;
    int64_t w_stride, s_stride, y_stride;
    int rows, y_dtype, tile0, group_rows; /* group_rows: rows that read the same k of the image; all rows without groups */
};
struct gemm_args {
    image x, w; /* w: room for the weights' own image, by_cuda_weight_image bytes; NULL where that is 0 */
    int T, K, n_parts, token_tiles, segments;
    int32_t *flags;
    gemm_part part[BY_MATMUL_PARTS];
};
/* Bytes of g.w that by_cuda_products wants for these tokens, weights and K. */
size_t by_cuda_weight_image(const gemm_args &g);
/* Kinds W_FP8 and W_BF16, K a multiple of 128 and 64. The image holds a multiple of 256 rows; those from T on may hold
 * anything. */
by_status by_cuda_products(by_cuda *c, weight_kind kind, gemm_args &g, by_err *err);
/* The same from the activations themselves (A8 or bf16 by kind), without an image: cuda_few.cu. g.segments and all but x and w are set. */
bool by_cuda_few_fits(const by_cuda *c, weight_kind kind, const by_tensor &x, const gemm_args &g);
by_status by_cuda_few(by_cuda *c, weight_kind kind, const by_tensor &x, const gemm_args &g, by_err *err);

/* ---- weights in registers ------------------------------------------------------------------------------------- */

/* W_FP8: a weight's scale as what its expansion is multiplied by. */
template <int WT> __device__ static inline uint32_t scale_pair(uint32_t byte, bool &bad) {
    constexpr uint32_t up = 100; /* exponent of the expansion (120) less 20 */
    bad |= byte > 254 - up;
    return (byte + up) << 7 | (byte + up) << 23;
}
/* The same of FP4 weights in strips, whose scales have STRIP_UP added when they are rearranged; one that is too large has become
 * infinite there. */
enum { STRIP_UP = 106 }; /* exponent of the expansion (126) less 20 */
__device__ static inline uint32_t strip_scale(uint32_t byte) { return byte * 0x00800080u; }
__device__ static inline void expand_fp8(uint32_t w, uint32_t m, uint32_t &lo, uint32_t &hi) {
    lo = mul_bf16x2((w << 8 & 0x80008000u) | (w << 4 & 0x07f007f0u), m);
    hi = mul_bf16x2((w & 0x80008000u) | (w >> 4 & 0x07f007f0u), m);
}
template <int PAIR> __device__ static inline uint32_t expand_fp4(uint32_t w, uint32_t m) {
    uint32_t sign = PAIR == 0 ? w << 12 : PAIR == 1 ? w << 8 : PAIR == 2 ? w << 4 : w;
    uint32_t em = PAIR == 0 ? w << 6 : PAIR == 1 ? w << 2 : PAIR == 2 ? w >> 2 : w >> 6;
    return mul_bf16x2((sign & 0x80008000u) | (em & 0x01c001c0u), m);
}
/* FP4 weights are rearranged in place at their first use (cuda_moe.cu), in two ways.
 * Rows: a strip of 32 rows holds, for each 128 k, the 16 bytes that each of a warpgroup's 128 threads multiplies, one after
 * another, and its scales a byte for each thread likewise. So a stage is a few bulk copies of kilobytes: fewer instructions,
 * fewer requests to the L2 cache (which bounds these products) and whole sectors of scales.
 * Words: a word's four pairs come out with fewer instructions. In each half word, for nibbles s e1 e0 m: nibble 0 has s at
 * bit 15 and e1 e0 m at 8..6, nibble 1 at 12 and 5..3, nibble 2 at 9 and 2..0, nibble 3 at 14 and 13, 11, 10. */
enum { STRIP_UNIT = 2048, STRIP_SCALES = 128 }; /* bytes of 128 k */
/* Thread of the warpgroup that has the 32 k from k on of row r. */
__host__ __device__ static inline int strip_thread(int r, int k) { return r % 32 / 8 * 32 + r % 8 * 4 + k % 128 / 32; }
/* Byte of a rearranged weight of K columns where those 32 k (16 bytes) of row r lie; of its scales: the same / 16. */
__host__ __device__ static inline int64_t strip_place(int64_t r, int k, int K) {
    return (r / 32 * (K / 128) + k / 128) * STRIP_UNIT + strip_thread(static_cast<int>(r % 32), k) * 16;
}
__host__ __device__ static inline uint32_t pack_fp4(uint32_t w) {
    uint32_t r = 0;
    for (int half = 0; half < 32; half += 16) {
        uint32_t n0 = w >> half & 15, n1 = w >> (half + 4) & 15, n2 = w >> (half + 8) & 15, n3 = w >> (half + 12) & 15;
        uint32_t h = (n0 & 8) << 12 | (n0 & 7) << 6 | (n1 & 8) << 9 | (n1 & 7) << 3 | (n2 & 8) << 6 | (n2 & 7) |
                     (n3 & 8) << 11 | (n3 & 4) << 11 | (n3 & 3) << 10;
        r |= h << half;
    }
    return r;
}
template <int PAIR> __device__ static inline uint32_t expand_packed(uint32_t w, uint32_t m) {
    if (PAIR < 3) return mul_bf16x2((PAIR == 0 ? w : PAIR == 1 ? w << 3 : w << 6) & 0x81c081c0u, m);
    return mul_bf16x2((w << 1 & 0x80008000u) | ((w >> 5 & 0x01000100u) | (w >> 4 & 0x00c000c0u)), m);
}
/* Operand of instruction `i` of a unit from the two rows of a thread, q0 and q1: the unit's words. */
template <int WT>
__device__ static inline void expand(uint32_t (&a)[4], int i, const uint32_t *q0, const uint32_t *q1, uint32_t m0,
                                     uint32_t m1) {
    if constexpr (WT == W_FP8) {
        expand_fp8(q0[i], m0, a[0], a[2]);
        expand_fp8(q1[i], m1, a[1], a[3]);
    } else if constexpr (WT == W_FP4) {
        if (i % 2 == 0) {
            a[0] = expand_packed<0>(q0[i / 2], m0), a[2] = expand_packed<1>(q0[i / 2], m0);
            a[1] = expand_packed<0>(q1[i / 2], m1), a[3] = expand_packed<1>(q1[i / 2], m1);
        } else {
            a[0] = expand_packed<2>(q0[i / 2], m0), a[2] = expand_packed<3>(q0[i / 2], m0);
            a[1] = expand_packed<2>(q1[i / 2], m1), a[3] = expand_packed<3>(q1[i / 2], m1);
        }
    } else {
        a[0] = q0[2 * i], a[2] = q0[2 * i + 1];
        a[1] = q1[2 * i], a[3] = q1[2 * i + 1];
    }
}

/* ---- the main loop -------------------------------------------------------------------------------------------- */

/* A block of GROUPS warpgroups with BT tokens, and ST stages of U units each in flight. The widest tiles need more
 * registers than a multiprocessor shares out evenly, so their producer is a whole warpgroup that gives registers away. */
template <int WT, int U, int GROUPS, int BT, int ST> struct gemm_shape {
    static constexpr bool TRADE = GROUPS == 2 && (BT == 256 || WT == W_FP4);
    static constexpr int BRINGERS = TRADE && WT == W_FP4 ? 4 : 1; /* warps that copy */
    static constexpr int FEWER = BT == 256 ? 40 : 32, MORE = BT == 256 ? 232 : 104; /* registers of either side then */
    static constexpr int CONSUMERS = GROUPS * 128, THREADS = CONSUMERS + (TRADE ? 128 : 32);
    static constexpr int K = kind<WT>::K * U;
    static constexpr int X = kind<WT>::BLOCKS * U * BT * 128;
    static constexpr int W = kind<WT>::CHUNKS * U * 2 * CONSUMERS * 16;
    static constexpr int SCALE = 4; /* bytes of scales of a row */
    static constexpr int S = kind<WT>::STRIPS ? 2 * CONSUMERS * U : kind<WT>::SCALES * 2 * CONSUMERS * SCALE;
    static constexpr int BYTES = 1024 + ST * (X + W + S + 16);
    /* Registers of a thread with PER_SM blocks on a multiprocessor; each of its quarters takes every fourth warp. */
    static constexpr int regs(int per_sm) {
        int warps = (per_sm * THREADS / 32 + 3) / 4, n = 512 / warps / 8 * 8;
        return n > 248 ? 248 : n;
    }
};

/* What one thread multiplies: two weight rows (8 apart in the operand) and their scales. */
struct gemm_rows {
    const unsigned char *w0, *w1, *s0, *s1;
};

/* Strips of a tile (see strip_place): those of the operand's two halves, `step` bytes from one warpgroup to the next; `groups`
 * of these exist, the others read the first. */
struct gemm_strips {
    const unsigned char *w0, *w1, *s0, *s1;
    int64_t step;
    int groups;
    /* To those of warpgroup i. */
    __device__ void skip(int i) {
        int64_t off = i < groups ? i * step : 0;
        w0 += off, w1 += off, s0 += off / 16, s1 += off / 16;
    }
};

/* DEPTH groups of G instructions are in flight. */
template <int WT, int U, int GROUPS, int BT, int ST, int DEPTH = 2, int G = DEPTH == 2 ? kind<WT>::STEPS / 2 : 2> struct gemm_loop {
    using shape = gemm_shape<WT, U, GROUPS, BT, ST>;
    uint32_t x, w, s, full, empty; /* shared memory: images, weights, scales, barriers */
    uint32_t peers, rank, rank0;   /* blocks of the cluster that share the images (1: none); this one; the first of them */

    /* share: the blocks of the cluster multiply the same tokens over the same k: each fetches a part of the images for all. */
    __device__ gemm_loop(unsigned char *smem, bool share) {
        peers = share ? cluster_size() : 1;
        rank = share ? cluster_rank() : 0;
        rank0 = share ? 0 : cluster_rank();
        uint32_t base = (smem_addr(smem) + 1023) & ~1023u;
        x = base;
        w = x + ST * shape::X;
        s = w + ST * shape::W;
        full = s + ST * shape::S;
        empty = full + ST * 8;
        if (threadIdx.x == 0) {
            for (int i = 0; i < ST; i++) {
                mbar_init(full + i * 8, shape::BRINGERS);
                mbar_init(empty + i * 8, static_cast<int>(GROUPS * 4 * peers));
            }
            mbar_init_done();
        }
        __syncthreads();
        if (peers > 1) cluster_sync();
    }
    /* At the end of the kernel, all threads: nobody leaves while others still write here. */
    __device__ void leave() const {
        if (peers > 1) cluster_meet();
    }

    static constexpr int BLOCKS = kind<WT>::BLOCKS * U, STRIP_BYTES = kind<WT>::STRIPS ? shape::W + shape::S : 0;

    /* The extra warps: bring the images of `rows` tokens (a multiple of 8) once the kernels before are done, and the weights
     * that lie in strips at once. `at` is the first block at the first token. */
    __device__ void produce(const unsigned char *at, int64_t block_stride, int rows, int stages, gemm_strips g = {}) const {
        if constexpr (shape::TRADE) fewer_registers<shape::FEWER>();
        if constexpr (shape::BRINGERS > 1) return produce_apart(at, block_stride, rows, stages, g);
        if (threadIdx.x != shape::CONSUMERS) return;
        uint32_t n = static_cast<uint32_t>(rows) / 8, first = n * rank / peers * 1024;
        uint32_t bytes = n * (rank + 1) / peers * 1024 - first;
        int early = 0;
        if constexpr (kind<WT>::STRIPS) {
            for (; early < ST && early < stages; early++) strips(g, rows, static_cast<uint32_t>(early));
        }
        depend_wait();
        uint32_t st = 0, parity = 1;
        at += first;
        for (int it = 0; it < stages; it++) {
            if (it >= ST) mbar_wait(empty + st * 8, parity);
            if constexpr (!kind<WT>::STRIPS) mbar_expect(full + st * 8, rows * 128 * BLOCKS);
            else if (it >= early) strips(g, rows, st);
            for (int b = 0; b < BLOCKS; b++) {
                uint32_t to = x + st * shape::X + b * BT * 128 + first;
                if (peers == 1) bulk_load(to, at, static_cast<int>(bytes), full + st * 8);
                else if (bytes) bulk_load_all(to, at, static_cast<int>(bytes), full + st * 8, (1u << peers) - 1);
                at += block_stride;
            }
            if (++st == ST) st = 0, parity ^= 1;
        }
    }
    /* The same by four warps, as a thread takes some 150 cycles for a copy: two bring the weights of a warpgroup each, two the images. */
    __device__ void produce_apart(const unsigned char *at, int64_t block_stride, int rows, int stages, gemm_strips g) const {
        static_assert(GROUPS == 2 && BLOCKS % 2 == 0, "a warp for each group and for half of the blocks of an image");
        int warp = static_cast<int>(threadIdx.x - shape::CONSUMERS) / 32, i = warp & 1;
        if (threadIdx.x & 31) return;
        uint32_t n = static_cast<uint32_t>(rows) / 8, first = n * rank / peers * 1024, st = 0, parity = 1;
        uint32_t bytes = n * (rank + 1) / peers * 1024 - first;
        g.skip(i);
        if (warp >= 2) depend_wait();
        at += first + i * block_stride;
        for (int it = 0; it < stages; it++) {
            uint32_t bar = full + st * 8;
            if (it >= ST) mbar_wait(empty + st * 8, parity);
            if (warp < 2) {
                mbar_expect(bar, STRIP_BYTES / 2);
                strip_pair(g, st, i);
            } else {
                mbar_expect(bar, rows * 128 * BLOCKS / 2);
                for (int b = i; b < BLOCKS; b += 2, at += 2 * block_stride) {
                    uint32_t to = x + st * shape::X + b * BT * 128 + first;
                    if (peers == 1) bulk_load(to, at, static_cast<int>(bytes), bar);
                    else if (bytes) bulk_load_all(to, at, static_cast<int>(bytes), bar, (1u << peers) - 1);
                }
            }
            if (++st == ST) st = 0, parity ^= 1;
        }
    }
    /* Weights and scales of warpgroup i for the next stage into slot st; g moves on. */
    __device__ void strip_pair(gemm_strips &g, uint32_t st, int i) const {
        constexpr int RUN = U * STRIP_UNIT, SCALES = U * STRIP_SCALES;
        uint32_t bar = full + st * 8, to = w + st * shape::W + i * 2 * RUN, scales = s + st * shape::S + i * 2 * SCALES;
        bulk_load(to, g.w0, RUN, bar);
        bulk_load(to + RUN, g.w1, RUN, bar);
        bulk_load(scales, g.s0, SCALES, bar);
        bulk_load(scales + SCALES, g.s1, SCALES, bar);
        g.w0 += RUN, g.w1 += RUN, g.s0 += SCALES, g.s1 += SCALES;
    }
    /* The weights of the next stage into slot st; the images of `rows` tokens will follow. */
    __device__ void strips(gemm_strips &g, int rows, uint32_t st) const {
        constexpr int RUN = U * STRIP_UNIT, SCALES = U * STRIP_SCALES;
        mbar_expect(full + st * 8, rows * 128 * BLOCKS + STRIP_BYTES);
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            int64_t off = i < g.groups ? i * g.step : 0;
            uint32_t to = w + st * shape::W + i * 2 * RUN, scales = s + st * shape::S + i * 2 * SCALES;
            bulk_load(to, g.w0 + off, RUN, full + st * 8);
            bulk_load(to + RUN, g.w1 + off, RUN, full + st * 8);
            bulk_load(scales, g.s0 + off / 16, SCALES, full + st * 8);
            bulk_load(scales + SCALES, g.s1 + off / 16, SCALES, full + st * 8);
        }
        g.w0 += RUN, g.w1 += RUN, g.s0 += SCALES, g.s1 += SCALES;
    }

    /* Starts the copies of one stage into slot st; the pointers move on to the next. */
    __device__ void fetch(gemm_rows &r, uint32_t st, int it) const {
        uint32_t to = w + st * shape::W + threadIdx.x * 16;
#pragma unroll
        for (int i = 0; i < kind<WT>::CHUNKS * U; i++) {
            cp_async16(to + i * 2 * shape::CONSUMERS * 16, r.w0 + i * 64);
            cp_async16(to + (i * 2 + 1) * shape::CONSUMERS * 16, r.w1 + i * 64);
        }
        r.w0 += 64 * kind<WT>::CHUNKS * U;
        r.w1 += 64 * kind<WT>::CHUNKS * U;
        if constexpr (kind<WT>::SCALES) {
            uint32_t ts = s + st * shape::S + threadIdx.x * shape::SCALE;
            cp_async_small<shape::SCALE>(ts, r.s0);
            cp_async_small<shape::SCALE>(ts + shape::CONSUMERS * shape::SCALE, r.s1);
            int step = U == 1 ? (it & 1) * 4 : 4; /* a word of scales lasts 128 k */
            r.s0 += step;
            r.s1 += step;
        }
    }

    /* acc (zeros before) becomes the product of all stages with the first N tokens. Returns false when a scale was out of
     * range. */
    template <int N> __device__ bool consume(float (&acc)[N / 2], gemm_rows r, int stages) const {
        if constexpr (shape::TRADE) more_registers<shape::MORE>();
        if constexpr (!kind<WT>::STRIPS) {
            r.w0 += (threadIdx.x & 3) * 16;
            r.w1 += (threadIdx.x & 3) * 16;
#pragma unroll 1
            for (int it = 0; it < ST - 1; it++) {
                if (it < stages) fetch(r, static_cast<uint32_t>(it), it);
                cp_commit();
            }
        }
        bool bad = false;
        run<N>(acc, r, stages, bad);
        if constexpr (!kind<WT>::STRIPS) cp_wait<0>();
        if constexpr (kind<WT>::SCALES) {
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[i] *= 0x1p20f;
        }
        return !bad;
    }

    /* All stages. Instructions are issued in groups; DEPTH groups are in flight, each with operands of its own. */
    template <int N> __device__ void run(float (&acc)[N / 2], gemm_rows &r, int stages, bool &bad) const {
        constexpr int CH = kind<WT>::CHUNKS, ROW = shape::CONSUMERS * 16, STEPS = kind<WT>::STEPS;
        constexpr int GROUPS_OF_UNIT = STEPS / G;
        static_assert(GROUPS_OF_UNIT * U % DEPTH == 0, "a stage uses each set of operands equally often");
        int tid = threadIdx.x, c = tid & 3;
        uint32_t st = 0, ahead = ST - 1, parity = 0; /* slot of this stage, the one in front of it, phase of its barrier */
        wgmma_done(acc);
#pragma unroll 1
        for (int it = 0; it < stages; it++) {
            if constexpr (kind<WT>::STRIPS) {
                mbar_wait(full + st * 8, parity);
            } else {
                if (it + ST - 1 < stages) fetch(r, ahead, it + ST - 1);
                cp_commit();
                cp_wait<ST - 1>();
            }
            uint64_t desc = wgmma_desc(x + st * shape::X);
            uint32_t a[DEPTH][G][4];
#pragma unroll
            for (int u = 0; u < U; u++) {
                uint32_t q0[4 * CH], q1[4 * CH], m0 = 0, m1 = 0, from = w + st * shape::W;
                from += kind<WT>::STRIPS ? (tid / 128 * 2 * U + u) * STRIP_UNIT + tid % 128 * 16 : tid * 16 + u * CH * 2 * ROW;
                load_shared16(q0, from);
                load_shared16(q1, from + (kind<WT>::STRIPS ? U * STRIP_UNIT : ROW));
                if constexpr (kind<WT>::STRIPS) {
                    uint32_t sc = s + st * shape::S + (tid / 128 * 2 * U + u) * STRIP_SCALES + tid % 128;
                    m0 = strip_scale(load_shared_byte(sc));
                    m1 = strip_scale(load_shared_byte(sc + U * STRIP_SCALES));
                } else if constexpr (kind<WT>::SCALES) {
                    uint32_t sc = s + st * shape::S + tid * shape::SCALE;
                    sc += (U == 2 ? u : it & 1) * 2 + c / 2;
                    m0 = scale_pair<WT>(load_shared_byte(sc), bad);
                    m1 = scale_pair<WT>(load_shared_byte(sc + shape::CONSUMERS * shape::SCALE), bad);
                }
#pragma unroll
                for (int g = 0; g < GROUPS_OF_UNIT; g++) {
                    int n = u * GROUPS_OF_UNIT + g; /* group of the stage */
                    if constexpr (CH == 2) { /* bf16: operands are the loaded words, so not before their set is free */
                        if (g == GROUPS_OF_UNIT / 2) {
                            load_shared16(q0 + 4, from + 2 * ROW);
                            load_shared16(q1 + 4, from + 3 * ROW);
                        }
                    }
#pragma unroll
                    for (int i = 0; i < G; i++) expand<WT>(a[n % DEPTH][i], g * G + i, q0, q1, m0, m1);
                    if (n == 0 && !kind<WT>::STRIPS) mbar_wait(full + st * 8, parity);
                    wgmma_fence();
#pragma unroll
                    for (int i = 0; i < G; i++) wgmma<N>(acc, a[n % DEPTH][i], desc + place(u, g * G + i));
                    wgmma_commit();
                    wgmma_wait<DEPTH - 1>(); /* the next set of operands is free */
                    if (n == DEPTH - 2 && it > 0) release(empty + ahead * 8); /* the stage before is done with its image */
                }
            }
            ahead = st; /* the slot in front of the next stage */
            if (++st == ST) {
                st = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
        wgmma_done(acc);
    }

    /* One arrival of this warp at the barrier of every block that writes here. Without a branch: one between matrix
     * instructions makes the compiler serialise them. */
    __device__ void release(uint32_t bar) const {
        uint32_t lane = threadIdx.x & 31;
        if (lane < peers) mbar_arrive_remote(bar, rank0 + lane);
    }

    /* Descriptor offset (16-byte units) of instruction i of unit u. */
    __device__ static constexpr int place(int u, int i) {
        return (u * kind<WT>::BLOCKS + i / 4) * BT * 8 + i % 4 * 2;
    }
};

/* Whether the outputs of rows up to `end` can leave in 16-byte pieces of bf16. */
__device__ static inline bool in_pieces(const gemm_part &p, int end) {
    return p.y_dtype == BY_BF16 && end <= p.rows && p.y_stride % 16 == 0 && reinterpret_cast<uintptr_t>(p.y) % 16 == 0;
}
/* A warpgroup's sums, element by element: row `row` and `row` + 8 of tokens t0 on, as far as they exist. */
template <int BT>
__device__ static void store_direct(const gemm_part &p, const float (&acc)[BT / 2], int row, int t0, int T) {
    int c = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < BT / 8; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int t = t0 + i * 8 + c * 2 + e;
            if (t >= T) continue;
            unsigned char *y = p.y + t * p.y_stride;
            if (row < p.rows) store_value(p.y_dtype, y, row, acc[4 * i + e]);
            if (row + 8 < p.rows) store_value(p.y_dtype, y, row + 8, acc[4 * i + 2 + e]);
        }
    }
}

#endif
