// cuda.cuh - what the files of the CUDA backend share: the device state, tensors as seen by kernels, number formats and
// reductions. Only src/ops/cuda may include it.
//
// Rules of every kernel here: each output element is summed in one fixed order that depends on the shape of the operator
// and not on the number of rows, so a row gets the same bits in any batch; no floating-point atomics; kernels are queued
// on one stream and nothing waits for them except by_mem_read.
#ifndef BY_OPS_CUDA_CUH
#define BY_OPS_CUDA_CUH

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ops/cuda/cuda_ptx.cuh"

extern "C" {
#include "base/alloc.h"
#include "base/limits.h"
#include "ops/host.h"
#include "ops/scratch.h"
}

#define BY_CUDA_TABLES 512 /* layers with experts, drafts included; two kinds of tables */
#define BY_CUDA_STAGES 16
#define BY_CUDA_FLAG_SCALE 1 /* a weight scale outside the range that the matrix kernels keep exact */

#define BY_CUDA_CALLS 1024   /* host functions that may be queued beside the device */

/* A queued host function. */
struct by_cuda_call {
    void (*run)(void *arg, int32_t which, int32_t n);
    void *arg;
    int32_t which, n;
    uint64_t *done; /* counts those that have returned */
};

/* Of by_device_pace: events around what runs between two waits. */
struct by_cuda_pace {
    cudaEvent_t began, lapped, ended[2];
    int newest;                  /* of ended */
    bool works, has_lap, rested; /* began is of now; lapped is; what comes next has no idle time in front */
    by_device_pace sum;
};

/* dev->impl of the backend. */
struct by_cuda {
    by_device *dev;
    cudaStream_t stream;
    cudaStream_t side;       /* work beside the device: cuda_beside.cu; NULL until asked for */
    cudaEvent_t forked, joined;
    bool runs_beside;        /* a host function was queued and not joined */
    uint64_t calls_begun, calls_done; /* the second one is the driver thread's */
    by_cuda_call calls[BY_CUDA_CALLS];
    int sms;
    bool wgmma;              /* SM90: the matrix kernels run; elsewhere the plain ones do */
    bool few;                /* the kernels for few rows give the bits of the others here: cuda_few.cu */
    size_t smem_max;         /* shared memory that one block may ask for */
    unsigned char *scratch;  /* as large as the plan says (by_device_measure_begin), or grown while shapes were new */
    size_t scratch_bytes, scratch_asked, scratch_used;
    bool measures;           /* operators launch nothing, and say how much scratch they would take */
    bool records;            /* what is queued is recorded: cuda_record.cu */
    size_t most_scratch;
    unsigned char *pinned;   /* staging of uploads: a ring of parts, each free once its event has passed */
    cudaEvent_t staged[BY_CUDA_STAGES];
    int stage;
    size_t stage_used;       /* of the current part */
    int32_t *flags;          /* device word, BY_CUDA_FLAG_*: read with every by_mem_read */
    int32_t *flags_host;     /* pinned */
    float *router;           /* scores of the router */
    size_t router_bytes;
    struct {
        const void *experts, *shared; /* host addresses of a layer's; what a table of the plain kernels is made for, else shared is NULL */
        bool plain;
        void *device;
    } tables[BY_CUDA_TABLES];
    int n_tables;
    by_cuda_pace pace;
    uint64_t allocs, syncs;  /* calls that steady state must not make */
    uint64_t bytes_down;
};

static inline by_cuda *by_cuda_of(by_device *dev) { return static_cast<by_cuda *>(dev->impl); }

/* BY_EDEVICE with the call and CUDA's text. */
by_status by_cuda_fail(by_err *err, const char *what, cudaError_t rc);
#define BY_CUDA_TRY(err, call)                                                                                         \
    do {                                                                                                               \
        cudaError_t by_rc_ = (call);                                                                                   \
        if (by_rc_ != cudaSuccess) return by_cuda_fail(err, #call, by_rc_);                                            \
    } while (0)
/* After a launch: catches bad configurations at once; faults inside kernels surface at the next read. */
#define BY_CUDA_LAUNCHED(err, name)                                                                                    \
    do {                                                                                                               \
        cudaError_t by_rc_ = cudaPeekAtLastError();                                                                    \
        if (by_rc_ != cudaSuccess) return by_cuda_fail(err, "launch of " name, by_rc_);                                \
    } while (0)

/* Scratch of one operator: begin, then take parts (256-byte aligned). Total must be known at begin (scratch.h). While the device measures
 * there may be none behind the addresses. */
by_status by_cuda_scratch(by_cuda *c, size_t bytes, by_err *err);
/* Makes room for so much, once the stream is through. */
by_status by_cuda_grow_scratch(by_cuda *c, size_t bytes, by_err *err);
static inline size_t by_cuda_pad(size_t n) { return (n + 255) & ~static_cast<size_t>(255); }
template <class T> static inline T *by_cuda_take(by_cuda *c, size_t n) {
    uintptr_t p = reinterpret_cast<uintptr_t>(c->scratch) + c->scratch_used;
    c->scratch_used += by_cuda_pad(n * sizeof(T));
    assert(c->scratch_used <= c->scratch_asked);
    return reinterpret_cast<T *>(p);
}

#define BY_CUDA_DECL(name) by_status by_cuda_##name(by_device *dev, const by_##name##_args *args, by_err *err);
BY_OP_TABLE(BY_CUDA_DECL)
#undef BY_CUDA_DECL
by_status by_cuda_few_probe(by_cuda *c, by_err *err); /* sets c->few */
/* Device copies of expert tables, made at their first use and dropped when any memory of the device is freed. find: NULL = none.
 * keep: copies n bytes. Errors: BY_ENOMEM, BY_ELIMIT. */
void *by_cuda_find_table(const by_cuda *c, const void *experts, const void *shared, bool plain);
by_status by_cuda_keep_table(by_cuda *c, const void *experts, const void *shared, bool plain, const void *host, size_t n, void **out,
                             by_err *err);
void by_cuda_drop_tables(by_cuda *c, bool plain_only);
/* cuda_record.cu. refuse: BY_EUNSUPPORTED while the device records, for what cannot be done again as it was. */
by_status by_cuda_record_begin(by_device *dev, by_err *err);
by_status by_cuda_record_end(by_device *dev, void **out, by_err *err);
by_status by_cuda_replay(by_device *dev, void *recorded, by_err *err);
void by_cuda_forget(void *recorded);
by_status by_cuda_refuse_record(const by_cuda *c, const char *what, by_err *err);
/* cuda_pace.cu. begin: in front of what is sent. end: behind what an answer is of. waited: once that is complete. */
by_status by_cuda_pace_open(by_cuda *c, by_err *err);
void by_cuda_pace_close(by_cuda *c);
void by_cuda_pace_begin(by_cuda *c);
void by_cuda_pace_end(by_cuda *c);
void by_cuda_pace_waited(by_cuda *c);
void by_cuda_pace_get(const by_device *dev, by_device_pace *out);
void by_cuda_lap(by_device *dev);
void by_cuda_rests(by_device *dev);
by_status by_cuda_moe_plain(by_device *dev, const by_moe_args *args, by_err *err);
by_status by_cuda_beside_init(by_device *dev, by_err *err);
void by_cuda_beside_close(by_cuda *c);
by_status by_cuda_beside(by_device *dev, const by_beside *what, by_err *err);
by_status by_cuda_join(by_device *dev, by_err *err);
by_status by_cuda_draw(by_device *dev, const by_tensor *logits, const by_draws *what, by_err *err);
by_status by_cuda_draw_room(by_device *dev, int32_t n, int64_t V, int32_t n_edits, int32_t n_top, by_err *err);
/* Moves n bytes up; `src` may be reused on return. */
by_status by_cuda_upload(by_cuda *c, unsigned char *to, const void *src, size_t n, by_err *err);
/* Moves bytes down, behind everything queued, with one wait for all as long as they are few; reports what the kernels flagged. */
struct by_cuda_piece {
    void *to;
    const unsigned char *from;
    size_t n;
};
by_status by_cuda_download(by_cuda *c, const by_cuda_piece *pieces, int n, by_err *err);

/* ---- tensors in kernels --------------------------------------------------------------------------------------- */

struct view {
    unsigned char *p; /* NULL: absent */
    int64_t stride;
    int rows, cols, dtype;
    __device__ unsigned char *row(int64_t r) const { return p + r * stride; }
    __device__ const int32_t *i32(int64_t r) const { return reinterpret_cast<const int32_t *>(row(r)); }
    __device__ float *f32(int64_t r) const { return reinterpret_cast<float *>(row(r)); }
};
static inline view view_of(const by_tensor &t) {
    view v;
    v.p = t.mem ? t.mem->ptr + t.off : nullptr;
    v.stride = t.stride;
    v.rows = static_cast<int>(t.rows);
    v.cols = static_cast<int>(t.cols);
    v.dtype = t.dtype;
    return v;
}
struct batch_view {
    int n_rows, n_seqs;
    const int32_t *pos, *seq, *image, *row0, *pos0, *slot, *blocks;
    int64_t blocks_stride; /* int32s */
};
static inline const int32_t *i32_of(const by_tensor &t) {
    assert(!t.mem || t.dtype == BY_I32);
    return t.mem ? reinterpret_cast<const int32_t *>(t.mem->ptr + t.off) : nullptr;
}
static inline batch_view batch_of(const by_batch &b) {
    batch_view v;
    v.n_rows = b.n_rows;
    v.n_seqs = b.n_seqs;
    v.pos = i32_of(b.row_pos);
    v.seq = i32_of(b.row_seq);
    v.image = i32_of(b.row_image);
    v.row0 = i32_of(b.seq_row0);
    v.pos0 = i32_of(b.seq_pos0);
    v.slot = i32_of(b.seq_slot);
    v.blocks = i32_of(b.seq_blocks);
    v.blocks_stride = b.seq_blocks.stride / 4;
    return v;
}
struct pages_view {
    unsigned char *p; /* NULL: absent */
    int64_t block_stride;
    int per_block, rec;
};
static inline pages_view pages_of(const by_pages &g) {
    return {g.mem ? g.mem->ptr + g.off : nullptr, g.block_stride, g.per_block, static_cast<int>(g.rec)};
}
__device__ static inline int64_t rec_bytes(int rec, int64_t d) {
    return rec == BY_REC_F32 ? 4 * d : rec == BY_REC_FP8 ? d + d / 32 : rec == BY_REC_FP4 ? d / 2 + d / 16 : d / 2 + d / 32;
}
/* Entry e of a sequence; IX4 has its scales elsewhere in the block. */
__device__ static inline unsigned char *page_entry(const pages_view &g, const int32_t *table, int e, int d,
                                                   unsigned char **scales) {
    unsigned char *base = g.p + table[e / g.per_block] * g.block_stride;
    int i = e % g.per_block;
    if (g.rec != BY_REC_IX4) return base + i * rec_bytes(g.rec, d);
    *scales = base + static_cast<int64_t>(g.per_block) * (d / 2) + i * (d / 32);
    return base + static_cast<int64_t>(i) * (d / 2);
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

__device__ static inline float bf16_at(const void *p, int64_t i) {
    return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t *>(p)[i]) << 16);
}
__device__ static inline uint16_t bf16_bits(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
__device__ static inline float round_to(int dtype, float x) {
    return dtype == BY_BF16 ? __uint_as_float(static_cast<uint32_t>(bf16_bits(x)) << 16) : x;
}
/* E4M3 through bf16's exponent: exact for every code but NaN. */
__device__ static inline float e4m3_value(uint32_t b) {
    return __uint_as_float((b & 0x80) << 24 | (b & 0x7f) << 20) * 0x1p120f;
}
__device__ static inline float e2m1_value(uint32_t b) {
    return __uint_as_float((b & 8) << 28 | (b & 7) << 22) * 0x1p126f;
}
__device__ static inline float ue8m0_value(uint32_t b) { return __uint_as_float(b ? b << 23 : 0x00400000u); }
__device__ static inline uint8_t e4m3_of(float x) {
    return static_cast<uint8_t>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
}
__device__ static inline uint8_t e2m1_of(float x) {
    uint8_t sign = static_cast<uint8_t>(__float_as_uint(x) >> 31 << 3);
    float a = fabsf(x);
    if (!(a <= 5.0f)) return sign | 7;
    if (a < 2.0f) return sign | static_cast<uint8_t>(__float2int_rn(a * 2.0f));
    if (a < 4.0f) return sign | static_cast<uint8_t>(2 + __float2int_rn(a));
    return sign | 6;
}
__device__ static inline uint32_t ue8m0_ceil(float x) {
    uint32_t u = __float_as_uint(x), e = (u >> 23) + ((u & 0x7fffffu) != 0);
    return e < 1 ? 1 : e > 254 ? 254 : e;
}
__device__ static inline uint32_t act8_scale(float amax) { return ue8m0_ceil(fmaxf(amax, 1e-4f) * (1.0f / 448.0f)); }
__device__ static inline uint32_t ix4_scale(float amax) {
    return ue8m0_ceil(fmaxf(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f));
}
/* 1 / 2^(b - 127), exact for the bytes that the quantisers make. */
__device__ static inline float ue8m0_inverse(uint32_t b) { return __uint_as_float(b < 254 ? (254 - b) << 23 : 0x00400000u); }

/* Value i of an activation row of n channels (F32, BF16, A8). */
__device__ static inline float value_at(int dtype, const unsigned char *p, int n, int i) {
    if (dtype == BY_F32) return reinterpret_cast<const float *>(p)[i];
    if (dtype == BY_BF16) return bf16_at(p, i);
    return e4m3_value(p[i]) * ue8m0_value(p[n + i / 32]);
}
__device__ static inline void store_value(int dtype, unsigned char *p, int i, float x) {
    if (dtype == BY_F32) reinterpret_cast<float *>(p)[i] = x;
    else reinterpret_cast<uint16_t *>(p)[i] = bf16_bits(x);
}
/* Channel i of a d-wide record whose scales start at s. */
__device__ static inline float record_value(int rec, const unsigned char *p, const unsigned char *s, int i) {
    if (rec == BY_REC_F32) return reinterpret_cast<const float *>(p)[i];
    if (rec == BY_REC_FP8) return e4m3_value(p[i]) * ue8m0_value(s[i / 32]);
    float v = e2m1_value(p[i / 2] >> (i & 1) * 4 & 15);
    return v * (rec == BY_REC_FP4 ? e4m3_value(s[i / 16]) : ue8m0_value(s[i / 32]));
}
__device__ static inline const unsigned char *record_scales(int rec, const unsigned char *p, int d) {
    return rec == BY_REC_FP8 ? p + d : p + d / 2;
}

/* ---- reductions and rows -------------------------------------------------------------------------------------- */

/* Sum over the block, the same in all threads. `part` is 32 floats of shared memory; blockDim.x a multiple of 32. */
__device__ static inline float block_sum(float v, float *part) {
    v = warp_sum(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++) s += part[i];
    return s;
}
/* Stores the row x [n] held in shared memory, rounded or quantised. All threads; x complete. */
__device__ static inline void block_store_row(int dtype, unsigned char *p, const float *x, int n) {
    if (dtype != BY_A8) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) store_value(dtype, p, i, x[i]);
        return;
    }
    for (int g = threadIdx.x >> 5; g < n / 32; g += blockDim.x >> 5) {
        int i = g * 32 + (threadIdx.x & 31);
        float v = x[i];
        uint32_t b = act8_scale(warp_max(fabsf(v)));
        p[i] = e4m3_of(v * ue8m0_inverse(b));
        if ((threadIdx.x & 31) == 0) p[n + g] = static_cast<uint8_t>(b);
    }
}
/* Stores x [n] as a record (data at p, scales at s). All threads; x complete. */
__device__ static inline void block_store_record(int rec, unsigned char *p, unsigned char *s, const float *x, int n) {
    int lane = threadIdx.x & 31;
    if (rec == BY_REC_F32) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) reinterpret_cast<float *>(p)[i] = x[i];
        return;
    }
    for (int g = threadIdx.x >> 5; g < n / 32; g += blockDim.x >> 5) {
        float v = x[g * 32 + lane], m = fabsf(v);
        for (int k = 8; k; k >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
        float m32 = fmaxf(m, __shfl_xor_sync(~0u, m, 16));
        if (rec == BY_REC_FP8) {
            uint32_t b = act8_scale(m32);
            p[g * 32 + lane] = e4m3_of(v * ue8m0_inverse(b));
            if (lane == 0) s[g] = static_cast<uint8_t>(b);
            continue;
        }
        uint32_t code;
        if (rec == BY_REC_FP4) {
            uint8_t b = e4m3_of(fminf(fmaxf(m * (1.0f / 6.0f), 0x1p-9f), 448.0f));
            code = e2m1_of(__fdiv_rn(v, e4m3_value(b)));
            if ((lane & 15) == 0) s[g * 2 + lane / 16] = b;
        } else {
            uint32_t b = ix4_scale(m32);
            code = e2m1_of(v * ue8m0_inverse(b));
            if (lane == 0) s[g] = static_cast<uint8_t>(b);
        }
        uint32_t next = __shfl_down_sync(~0u, code, 1);
        if ((lane & 1) == 0) p[g * 16 + lane / 2] = static_cast<uint8_t>(code | next << 4);
    }
}
/* Eight channels at a time: how the kernels for wide rows load and store. p 16-byte aligned (8 for A8). */
__device__ static inline void load8(int dtype, const unsigned char *p, int n, int i, float (&v)[8]) {
    if (dtype == BY_BF16) {
        uint4 q = *reinterpret_cast<const uint4 *>(p + 2 * i);
        const uint32_t w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int k = 0; k < 4; k++) v[2 * k] = __uint_as_float(w[k] << 16), v[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
    } else if (dtype == BY_F32) {
        float4 a = reinterpret_cast<const float4 *>(p + 4 * i)[0], b = reinterpret_cast<const float4 *>(p + 4 * i)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        for (int k = 0; k < 8; k++) v[k] = value_at(dtype, p, n, i + k);
    }
}
__device__ static inline void store8(int dtype, unsigned char *p, int i, const float (&v)[8]) {
    if (dtype == BY_BF16) {
        uint32_t w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) w[k] = bf16_bits(v[2 * k]) | static_cast<uint32_t>(bf16_bits(v[2 * k + 1])) << 16;
        *reinterpret_cast<uint4 *>(p + 2 * i) = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
        reinterpret_cast<float4 *>(p + 4 * i)[0] = make_float4(v[0], v[1], v[2], v[3]);
        reinterpret_cast<float4 *>(p + 4 * i)[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
}
/* Quantises channels i .. i + 7 of a row of n; the four threads of a group of 32 are neighbours and all here. */
__device__ static inline void quantise8(unsigned char *p, int n, int i, const float (&v)[8]) {
    float m = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) m = fmaxf(m, fabsf(v[k]));
    uint32_t group = 0xfu << (threadIdx.x & 28);
    m = fmaxf(m, __shfl_xor_sync(group, m, 1));
    m = fmaxf(m, __shfl_xor_sync(group, m, 2));
    uint32_t b = act8_scale(m), q[2] = {0, 0};
    float inverse = ue8m0_inverse(b);
#pragma unroll
    for (int k = 0; k < 8; k++) q[k / 4] |= static_cast<uint32_t>(e4m3_of(v[k] * inverse)) << 8 * (k & 3);
    *reinterpret_cast<uint2 *>(p + i) = make_uint2(q[0], q[1]);
    if (i % 32 == 0) p[n + i / 32] = static_cast<uint8_t>(b);
}
static inline bool wide_row(const by_tensor &t, uintptr_t align) {
    if (!t.mem) return true;
    return ((reinterpret_cast<uintptr_t>(t.mem->ptr) + static_cast<uintptr_t>(t.off)) | static_cast<uintptr_t>(t.stride)) % align == 0;
}

/* x [n] in shared memory *= rsqrt(mean(x^2) + eps) * w, rounded to `dtype`. All threads; x complete; ends complete. */
__device__ static inline void block_norm(float *x, const unsigned char *w, int n, float eps, int dtype, float *part) {
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i] * x[i];
    s = block_sum(s, part);
    float r = 1.0f / sqrtf(s / static_cast<float>(n) + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = round_to(dtype, x[i] * r * bf16_at(w, i));
    __syncthreads();
}
/* Rotates the last r channels of x [d] (shared memory) and rounds every channel. sign -1 turns back. */
__device__ static inline void block_rotate(float *x, int d, const float *cs, int r, float sign, int dtype) {
    for (int i = threadIdx.x; i < d / 2; i += blockDim.x) {
        float a = x[2 * i], b = x[2 * i + 1];
        int j = 2 * i - (d - r);
        if (j >= 0) {
            float c = cs[j], s = sign * cs[j + 1], t = a;
            a = __fsub_rn(__fmul_rn(t, c), __fmul_rn(b, s));
            b = __fadd_rn(__fmul_rn(t, s), __fmul_rn(b, c));
        }
        x[2 * i] = round_to(dtype, a);
        x[2 * i + 1] = round_to(dtype, b);
    }
    __syncthreads();
}

/* Dynamic shared memory above 48 KB has to be asked for once per kernel and size. */
template <class F> static inline by_status by_cuda_smem(F *kernel, size_t bytes, by_err *err) {
    if (bytes <= 48 * 1024) return BY_OK;
    cudaError_t rc = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    return rc == cudaSuccess ? BY_OK : by_cuda_fail(err, "shared memory", rc);
}

/* Launches a kernel that starts when all before it have ended. */
template <class... P, class... A>
static inline cudaError_t by_cuda_launch(by_cuda *c, void (*kernel)(P...), dim3 grid, int threads, size_t smem, A... args) {
    if (c->measures) return cudaSuccess;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = smem;
    config.stream = c->stream;
    return cudaLaunchKernelEx(&config, kernel, P(args)...);
}
/* Launches a kernel that may start while the one before it still runs (it calls depend_wait before it touches what that
 * one writes), in clusters of `cluster` blocks along x. */
template <class... P, class... A>
static inline cudaError_t by_cuda_chain(by_cuda *c, void (*kernel)(P...), dim3 grid, int threads, size_t smem, int cluster,
                                        A... args) {
    if (c->measures) return cudaSuccess;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr[2] = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = smem;
    config.stream = c->stream;
    config.attrs = attr;
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
    if (cluster > 1) {
        attr[1].id = cudaLaunchAttributeClusterDimension;
        attr[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
        config.numAttrs = 2;
    }
    return cudaLaunchKernelEx(&config, kernel, P(args)...);
}
/* Before depend_wait: brings weights of n bytes to the L2 cache, once for the grid, while the kernel before still runs. */
__device__ static inline void prefetch_weights(const unsigned char *p, int n) {
    if (blockIdx.x + blockIdx.y + blockIdx.z) return;
    for (int i = threadIdx.x * 128; i < n; i += blockDim.x * 128) prefetch_line(p + i);
}

#endif
