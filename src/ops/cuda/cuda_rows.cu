// cuda_rows.cu - operators that work on single rows: rotation tables, embedding, norms, quantisation, rotation, and what
// writes the caches. One block a row (or a row and part of its channels); the row stays in shared memory as fp32.
#include "ops/cuda/cuda.cuh"

enum { ROW_THREADS = 256 };

// Threads for a row of n channels: enough for one pass over short rows.
static int row_threads(int64_t n) { return n >= 1024 ? ROW_THREADS : n >= 128 ? 128 : 64; }

__global__ void rope_table_kernel(view pos, int scale, view freq, view cs) {
    depend_wait();
    depend_launch();
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int half = freq.cols;
    if (i >= static_cast<int64_t>(pos.rows) * half) return;
    int64_t t = i / half;
    int j = static_cast<int>(i % half);
    float angle = __fmul_rn(static_cast<float>(*pos.i32(t) * scale), freq.f32(0)[j]);
    float *to = cs.f32(t) + 2 * j;
    sincosf(angle, &to[1], &to[0]);
}

by_status by_cuda_rope_table(by_device *dev, const by_rope_table_args *a, by_err *err) {
    int64_t n = a->pos.rows * a->freq.cols;
    if (n == 0) return BY_OK;
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), rope_table_kernel, dim3(static_cast<unsigned>((n + 127) / 128)), 128, 0,
                                1, view_of(a->pos), a->scale, view_of(a->freq), view_of(a->cs)));
    BY_CUDA_LAUNCHED(err, "rope_table");
    return BY_OK;
}

__global__ void embed_kernel(view ids, view table, view image, view h, view pre, int m) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, D = table.cols, id = *ids.i32(t);
    const view &src = id >= 0 ? table : image;
    const unsigned char *from = src.row(id >= 0 ? id : -static_cast<int64_t>(id) - 1);
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        float x = value_at(src.dtype, from, D, i);
        for (int s = 0; s < m; s++) store_value(h.dtype, h.row(t), s * D + i, x);
    }
    if (threadIdx.x < static_cast<unsigned>(m)) pre.f32(t)[threadIdx.x] = threadIdx.x == 0;
}

/* Eight channels a thread. */
__global__ void __launch_bounds__(128) embed_wide_kernel(view ids, view table, view image, view h, view pre, int m) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, D = table.cols, id = *ids.i32(t), i = (blockIdx.y * 128 + threadIdx.x) * 8;
    if (blockIdx.y == 0 && threadIdx.x < static_cast<unsigned>(m)) pre.f32(t)[threadIdx.x] = threadIdx.x == 0;
    if (i >= D) return;
    const view &src = id >= 0 ? table : image;
    float x[8];
    load8(src.dtype, src.row(id >= 0 ? id : -static_cast<int64_t>(id) - 1), D, i, x);
    for (int s = 0; s < m; s++) store8(h.dtype, h.row(t), s * D + i, x);
}

by_status by_cuda_embed(by_device *dev, const by_embed_args *a, by_err *err) {
    if (a->h.rows == 0) return BY_OK;
    by_cuda *c = by_cuda_of(dev);
    unsigned rows = static_cast<unsigned>(a->h.rows);
    if (a->table.cols % 8 == 0 && wide_row(a->table, 16) && wide_row(a->image, 16) && wide_row(a->h, 16)) {
        BY_CUDA_TRY(err, by_cuda_chain(c, embed_wide_kernel, dim3(rows, static_cast<unsigned>((a->table.cols + 1023) / 1024)), 128, 0, 1,
                                       view_of(a->ids), view_of(a->table), view_of(a->image), view_of(a->h), view_of(a->pre), a->m));
    } else {
        BY_CUDA_TRY(err, by_cuda_chain(c, embed_kernel, dim3(rows), row_threads(a->table.cols), 0, 1, view_of(a->ids), view_of(a->table),
                                       view_of(a->image), view_of(a->h), view_of(a->pre), a->m));
    }
    BY_CUDA_LAUNCHED(err, "embed");
    return BY_OK;
}

__global__ void rmsnorm_kernel(view x, view norm, view y, view y_a8, float eps) {
    prefetch_weights(norm.p, norm.cols * 2);
    depend_wait();
    depend_launch();
    BY_CUDA_DYNAMIC(float, row);
    __shared__ float part[32];
    int t = blockIdx.x, n = x.cols;
    for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = value_at(x.dtype, x.row(t), n, i);
    block_norm(row, norm.p, n, eps, x.dtype, part);
    if (y.p) block_store_row(y.dtype, y.row(t), row, n);
    if (y_a8.p) block_store_row(BY_A8, y_a8.row(t), row, n);
}

/* The same for rows of up to 8 * 4 * 256 channels, kept in registers. */
__global__ void __launch_bounds__(256) rmsnorm_wide_kernel(view x, view norm, view y, view y_a8, float eps) {
    prefetch_weights(norm.p, norm.cols * 2);
    depend_wait();
    depend_launch();
    __shared__ float part[32];
    int t = blockIdx.x, n = x.cols;
    float v[4][8], w[8], s = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = (j * 256 + threadIdx.x) * 8;
        if (i >= n) break;
        load8(x.dtype, x.row(t), n, i, v[j]);
#pragma unroll
        for (int k = 0; k < 8; k++) s += v[j][k] * v[j][k];
    }
    s = block_sum(s, part);
    float r = 1.0f / sqrtf(s / static_cast<float>(n) + eps);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = (j * 256 + threadIdx.x) * 8;
        if (i >= n) break;
        load8(BY_BF16, norm.p, n, i, w);
#pragma unroll
        for (int k = 0; k < 8; k++) v[j][k] = round_to(x.dtype, v[j][k] * r * w[k]);
        if (y.p) store8(y.dtype, y.row(t), i, v[j]);
        if (y_a8.p) quantise8(y_a8.row(t), n, i, v[j]);
    }
}

by_status by_cuda_rmsnorm(by_device *dev, const by_rmsnorm_args *a, by_err *err) {
    size_t smem = static_cast<size_t>(a->x.cols) * 4;
    if (a->x.rows == 0) return BY_OK;
    bool wide = a->x.cols % 256 == 0 && a->x.cols >= 512 && a->x.cols <= 8192 && wide_row(a->x, 16) && wide_row(a->y, 16) &&
                wide_row(a->y_a8, 8) && wide_row(a->norm, 16);
    if (wide) {
        BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), rmsnorm_wide_kernel, dim3(static_cast<unsigned>(a->x.rows)), 256, 0,
                                    1, view_of(a->x), view_of(a->norm), view_of(a->y), view_of(a->y_a8), a->eps));
        BY_CUDA_LAUNCHED(err, "rmsnorm");
        return BY_OK;
    }
    BY_TRY(by_cuda_smem(rmsnorm_kernel, smem, err));
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), rmsnorm_kernel, dim3(static_cast<unsigned>(a->x.rows)),
                                row_threads(a->x.cols), smem, 1, view_of(a->x), view_of(a->norm), view_of(a->y),
                                view_of(a->y_a8), a->eps));
    BY_CUDA_LAUNCHED(err, "rmsnorm");
    return BY_OK;
}

// One warp a group of 32 channels.
__global__ void act8_kernel(view x, view y) {
    depend_wait();
    depend_launch();
    int n = x.cols, lane = threadIdx.x & 31;
    int64_t g = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) >> 5, t = g / (n / 32);
    if (t >= x.rows) return;
    g %= n / 32;
    int i = static_cast<int>(g) * 32 + lane;
    float v = value_at(x.dtype, x.row(t), n, i);
    uint32_t b = act8_scale(warp_max(fabsf(v)));
    y.row(t)[i] = e4m3_of(v * ue8m0_inverse(b));
    if (lane == 0) y.row(t)[n + g] = static_cast<uint8_t>(b);
}

/* Eight channels a thread; x [T, n] and y start at multiples of 16 and 8 bytes. */
__global__ void __launch_bounds__(256) act8_wide_kernel(view x, view y) {
    depend_wait();
    depend_launch();
    int n = x.cols, pieces = n / 8;
    int64_t g = blockIdx.x * static_cast<int64_t>(256) + threadIdx.x, t = g / pieces;
    if (t >= x.rows) return; /* the four threads of a group are all here or none */
    int i = static_cast<int>(g % pieces) * 8;
    float v[8];
    load8(x.dtype, x.row(t), n, i, v);
    quantise8(y.row(t), n, i, v);
}

by_status by_cuda_act8(by_device *dev, const by_act8_args *a, by_err *err) {
    int64_t groups = a->x.rows * (a->x.cols / 32);
    if (groups == 0) return BY_OK;
    by_cuda *c = by_cuda_of(dev);
    if (wide_row(a->x, 16) && wide_row(a->y, 8)) {
        dim3 grid(static_cast<unsigned>((groups * 4 + 255) / 256));
        BY_CUDA_TRY(err, by_cuda_chain(c, act8_wide_kernel, grid, 256, 0, 1, view_of(a->x), view_of(a->y)));
    } else {
        dim3 grid(static_cast<unsigned>((groups + 7) / 8));
        BY_CUDA_TRY(err, by_cuda_chain(c, act8_kernel, grid, 256, 0, 1, view_of(a->x), view_of(a->y)));
    }
    BY_CUDA_LAUNCHED(err, "act8");
    return BY_OK;
}

__global__ void rope_kernel(view x, view cs, int heads, int d) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, r = cs.cols;
    const float *rot = cs.f32(t);
    for (int i = threadIdx.x; i < heads * (r / 2); i += blockDim.x) {
        int j = i % (r / 2) * 2, at = i / (r / 2) * d + d - r + j;
        float p = value_at(x.dtype, x.row(t), 0, at), q = value_at(x.dtype, x.row(t), 0, at + 1);
        store_value(x.dtype, x.row(t), at, __fsub_rn(__fmul_rn(p, rot[j]), __fmul_rn(q, rot[j + 1])));
        store_value(x.dtype, x.row(t), at + 1, __fadd_rn(__fmul_rn(p, rot[j + 1]), __fmul_rn(q, rot[j])));
    }
}

/* What a step's rows need between the products in front of attention and attention, eight channels a thread: rotation of the queries,
 * and in one more block a row the window key, which goes into the ring as well if that is given. */
struct query_view {
    view q, cs, x, norm, kv; /* x.p NULL: queries alone; q.p NULL: keys alone */
    int heads, d;
    float eps;
    batch_view b;
    const int32_t *from;
    unsigned char *ring; /* NULL: later */
    int64_t slot_stride;
    int ring_len;
};
/* Turns channels j .. j + 7 of the rotated part. */
__device__ static inline void rotate8(float (&v)[8], const float *cs, int j) {
    float4 a = *reinterpret_cast<const float4 *>(cs + j), b = *reinterpret_cast<const float4 *>(cs + j + 4);
    const float c[4] = {a.x, a.z, b.x, b.z}, s[4] = {a.y, a.w, b.y, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = v[2 * i], y = v[2 * i + 1];
        v[2 * i] = __fsub_rn(__fmul_rn(x, c[i]), __fmul_rn(y, s[i]));
        v[2 * i + 1] = __fadd_rn(__fmul_rn(x, s[i]), __fmul_rn(y, c[i]));
    }
}
__device__ static inline unsigned char *ring_place(const query_view &a, int r) {
    if (!a.ring) return nullptr;
    int s = a.b.seq[r], p = a.b.pos[r];
    if (r < a.b.row0[s + 1] - a.ring_len || (a.from && p < a.from[s])) return nullptr;
    return a.ring + a.b.slot[s] * a.slot_stride + p % a.ring_len * a.kv.stride;
}
__global__ void __launch_bounds__(256) query_kernel(const __grid_constant__ query_view a) {
    __shared__ float part[8];
    int t = blockIdx.x, tid = threadIdx.x, r = a.cs.cols, d = a.d, turned = gridDim.y - (a.x.p != nullptr);
    float v[8];
    if (blockIdx.y < turned) {
        int i = (blockIdx.y * 256 + tid) * 8, at = i / r * d + d - r + i % r;
        depend_wait();
        depend_launch();
        if (i >= a.heads * r) return;
        load8(a.q.dtype, a.q.row(t), 0, at, v);
        rotate8(v, a.cs.f32(t), i % r);
        store8(a.q.dtype, a.q.row(t), at, v);
        return;
    }
    int i = tid * 8, j = i - (d - r);
    uint4 norm = {};
    unsigned char *place = nullptr;
    if (i < d) {
        norm = *reinterpret_cast<const uint4 *>(a.norm.p + 2 * i);
        place = ring_place(a, t); /* follows from the step's description */
    }
    depend_wait();
    depend_launch();
    if (i >= d) return;
    load8(a.x.dtype, a.x.row(t), d, i, v);
    float s = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) s = fmaf(v[k], v[k], s);
    s = warp_sum(s);
    if ((tid & 31) == 0) part[tid >> 5] = s;
    bar_sync(1, d / 8);
    s = 0;
    for (int k = 0; k < d / 256; k++) s += part[k];
    float scale = 1.0f / sqrtf(s / static_cast<float>(d) + a.eps);
    const uint32_t w[4] = {norm.x, norm.y, norm.z, norm.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[2 * k] = round_to(a.x.dtype, v[2 * k] * scale * __uint_as_float(w[k] << 16));
        v[2 * k + 1] = round_to(a.x.dtype, v[2 * k + 1] * scale * __uint_as_float(w[k] & 0xffff0000u));
    }
    if (j >= 0) rotate8(v, a.cs.f32(t), j);
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = round_to(a.x.dtype, v[k]);
    quantise8(a.kv.row(t), d, i, v); /* an FP8 record is a quantised row */
    if (place) quantise8(place, d, i, v);
}
static bool wide_rope(const by_tensor &x, const by_tensor &cs, int d) {
    return cs.cols % 8 == 0 && d % 8 == 0 && wide_row(x, 16) && wide_row(cs, 16);
}
static bool wide_ring(const by_ring &r) {
    if (!r.mem) return true;
    return ((reinterpret_cast<uintptr_t>(r.mem->ptr) + static_cast<uintptr_t>(r.off)) | static_cast<uintptr_t>(r.slot_stride)) % 8 == 0;
}
static unsigned query_blocks(int heads, int64_t r) { return static_cast<unsigned>((heads * r / 8 + 255) / 256); }

by_status by_cuda_rope(by_device *dev, const by_rope_args *a, by_err *err) {
    if (a->x.rows == 0) return BY_OK;
    by_cuda *c = by_cuda_of(dev);
    unsigned rows = static_cast<unsigned>(a->x.rows);
    if (wide_rope(a->x, a->cs, a->d)) {
        query_view v = {};
        v.q = view_of(a->x), v.cs = view_of(a->cs), v.heads = a->heads, v.d = a->d;
        BY_CUDA_TRY(err, by_cuda_chain(c, query_kernel, dim3(rows, query_blocks(a->heads, a->cs.cols)), 256, 0, 1, v));
    } else {
        BY_CUDA_TRY(err, by_cuda_chain(c, rope_kernel, dim3(rows), 256, 0, 1, view_of(a->x), view_of(a->cs), a->heads, a->d));
    }
    BY_CUDA_LAUNCHED(err, "rope");
    return BY_OK;
}

__global__ void window_kv_kernel(view x, view norm, view cs, view kv, int rec, float eps) {
    prefetch_weights(norm.p, norm.cols * 2);
    depend_wait();
    depend_launch();
    BY_CUDA_DYNAMIC(float, row);
    __shared__ float part[32];
    int t = blockIdx.x, d = x.cols;
    for (int i = threadIdx.x; i < d; i += blockDim.x) row[i] = value_at(x.dtype, x.row(t), d, i);
    block_norm(row, norm.p, d, eps, x.dtype, part);
    block_rotate(row, d, cs.f32(t), cs.cols, 1, x.dtype);
    block_store_record(rec, kv.row(t), kv.row(t) + (record_scales(rec, kv.row(t), d) - kv.row(t)), row, d);
}

by_status by_cuda_window_kv(by_device *dev, const by_window_kv_args *a, by_err *err) {
    if (a->x.rows == 0) return BY_OK;
    by_cuda *c = by_cuda_of(dev);
    int d = static_cast<int>(a->x.cols);
    unsigned rows = static_cast<unsigned>(a->x.rows);
    if (a->rec == BY_REC_FP8 && d % 256 == 0 && d <= 2048 && wide_row(a->x, 16) && wide_row(a->norm, 16) && wide_row(a->kv, 8) &&
        wide_rope(a->q, a->cs, d) && wide_ring(a->ring)) {
        query_view v = {view_of(a->q), view_of(a->cs), view_of(a->x), view_of(a->norm), view_of(a->kv), a->heads, d, a->eps};
        if (a->ring.mem) {
            v.b = batch_of(a->batch), v.from = i32_of(a->from);
            v.ring = a->ring.mem->ptr + a->ring.off, v.slot_stride = a->ring.slot_stride, v.ring_len = a->ring.len;
        }
        unsigned turned = a->q.mem ? query_blocks(a->heads, a->cs.cols) : 0;
        BY_CUDA_TRY(err, by_cuda_chain(c, query_kernel, dim3(rows, turned + 1), 256, 0, 1, v));
        BY_CUDA_LAUNCHED(err, "window_kv");
        return BY_OK;
    }
    size_t smem = static_cast<size_t>(d) * 4;
    BY_TRY(by_cuda_smem(window_kv_kernel, smem, err));
    BY_CUDA_TRY(err, by_cuda_chain(c, window_kv_kernel, dim3(rows), row_threads(d), smem, 1, view_of(a->x), view_of(a->norm),
                                   view_of(a->cs), view_of(a->kv), a->rec, a->eps));
    BY_CUDA_LAUNCHED(err, "window_kv");
    by_rope_args rope = {a->q, a->cs, a->heads, d};
    if (a->q.mem) BY_TRY(by_cuda_rope(dev, &rope, err));
    by_ring_store_args ring = {a->batch, a->kv, a->from, a->ring};
    return a->ring.mem ? by_cuda_ring_store(dev, &ring, err) : BY_OK;
}

/* All threads of a block. */
__device__ static void copy_row(unsigned char *to, const unsigned char *from, int64_t n) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(n)) % 4 == 0) {
        for (int64_t i = threadIdx.x; i < n / 4; i += blockDim.x)
            reinterpret_cast<uint32_t *>(to)[i] = reinterpret_cast<const uint32_t *>(from)[i];
    } else {
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
    }
}

__global__ void ring_store_kernel(batch_view b, view kv, const int32_t *from, unsigned char *ring, int64_t slot_stride, int len) {
    depend_wait();
    depend_launch();
    int r = blockIdx.x, s = b.seq[r];
    if (r < b.row0[s + 1] - len || (from && b.pos[r] < from[s])) return;
    copy_row(ring + b.slot[s] * slot_stride + b.pos[r] % len * kv.stride, kv.row(r), kv.stride);
}

by_status by_cuda_ring_store(by_device *dev, const by_ring_store_args *a, by_err *err) {
    if (a->batch.n_rows == 0) return BY_OK;
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), ring_store_kernel, dim3(static_cast<unsigned>(a->batch.n_rows)), 128, 0,
                                1, batch_of(a->batch), view_of(a->kv), i32_of(a->from), a->ring.mem->ptr + a->ring.off,
                                a->ring.slot_stride, a->ring.len));
    BY_CUDA_LAUNCHED(err, "ring_store");
    return BY_OK;
}

struct gather_view {
    const int32_t *rows;
    view x[BY_GATHER_PARTS], y[BY_GATHER_PARTS];
    int64_t bytes[BY_GATHER_PARTS];
};

__global__ void gather_rows_kernel(const __grid_constant__ gather_view a) {
    depend_wait();
    depend_launch();
    int i = blockIdx.x, p = blockIdx.y;
    copy_row(a.y[p].row(i), a.x[p].row(a.rows[i]), a.bytes[p]);
}

by_status by_cuda_gather_rows(by_device *dev, const by_gather_rows_args *a, by_err *err) {
    if (a->rows.rows == 0 || a->n_parts == 0) return BY_OK;
    gather_view v = {};
    v.rows = i32_of(a->rows);
    for (int p = 0; p < a->n_parts; p++) {
        v.x[p] = view_of(a->part[p].x);
        v.y[p] = view_of(a->part[p].y);
        v.bytes[p] = by_dtype_row_bytes(a->part[p].x.dtype, a->part[p].x.cols);
    }
    dim3 grid(static_cast<unsigned>(a->rows.rows), static_cast<unsigned>(a->n_parts));
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), gather_rows_kernel, grid, 256, 0, 1, v));
    BY_CUDA_LAUNCHED(err, "gather_rows");
    return BY_OK;
}

struct compress_view {
    batch_view b;
    const int32_t *seq, *row;
    view v, s, norm, latent;
    unsigned char *tail;
    int64_t tail_stride;
    int tail_len, ratio;
    float eps;
};

__global__ void compress_kernel(compress_view a) {
    prefetch_weights(a.norm.p, a.norm.cols * 2);
    BY_CUDA_DYNAMIC(float, x);
    __shared__ float part[32];
    /* where things lie follows from the step's description, whose loads wait for one another: before the wait */
    int e = blockIdx.x, d = a.v.cols, row = a.row[e], seq = a.seq[e];
    const float *v0 = nullptr, *s0 = nullptr;
    if (a.ratio == 2) {
        if (row > a.b.row0[seq]) {
            v0 = a.v.f32(row - 1);
            s0 = a.s.f32(row - 1);
        } else {
            int place = (a.b.pos[row] - 1) % a.tail_len;
            v0 = reinterpret_cast<const float *>(a.tail + a.b.slot[seq] * a.tail_stride + static_cast<int64_t>(place) * 8 * d);
            s0 = v0 + d;
        }
    }
    depend_wait();
    depend_launch();
#pragma unroll 4
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        float v1 = value_at(a.v.dtype, a.v.row(row), d, i);
        if (a.ratio == 2) {
            float p = 1.0f / (1.0f + expf(a.s.f32(row)[i] - s0[i]));
            v1 = round_to(a.latent.dtype, p * v0[i] + (1.0f - p) * v1);
        }
        x[i] = v1;
    }
    block_norm(x, a.norm.p, d, a.eps, BY_F32, part);
    block_store_row(a.latent.dtype, a.latent.row(e), x, d);
}

__global__ void compress_tail_kernel(compress_view a) {
    depend_wait();
    depend_launch();
    int r = blockIdx.x, seq = a.b.seq[r], d = a.v.cols;
    if (r < a.b.row0[seq + 1] - a.tail_len) return;
    float *to = reinterpret_cast<float *>(a.tail + a.b.slot[seq] * a.tail_stride +
                                          static_cast<int64_t>(a.b.pos[r] % a.tail_len) * 8 * d);
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        to[i] = a.v.f32(r)[i];
        to[d + i] = a.s.f32(r)[i];
    }
}

by_status by_cuda_compress(by_device *dev, const by_compress_args *a, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    compress_view v = {batch_of(a->batch), i32_of(a->entries.seq), i32_of(a->entries.row), view_of(a->v), view_of(a->s),
                       view_of(a->norm), view_of(a->latent), a->tail ? a->tail->ptr + a->tail_off : nullptr,
                       a->tail_stride, a->tail_len, a->ratio, a->eps};
    size_t smem = static_cast<size_t>(a->v.cols) * 4;
    BY_TRY(by_cuda_smem(compress_kernel, smem, err));
    int threads = row_threads(a->v.cols);
    if (a->entries.n) BY_CUDA_TRY(err, by_cuda_chain(c, compress_kernel, dim3(static_cast<unsigned>(a->entries.n)), threads,
                                smem, 1, v));
    if (a->ratio == 2 && a->batch.n_rows)
        BY_CUDA_TRY(err, by_cuda_chain(c, compress_tail_kernel, dim3(static_cast<unsigned>(a->batch.n_rows)), threads, 0, 1,
                                    v));
    BY_CUDA_LAUNCHED(err, "compress");
    return BY_OK;
}

struct entry_store_view {
    batch_view b;
    const int32_t *seq, *idx;
    view latent, ik, k_norm, cs;
    pages_view main, index;
    float eps;
};

/* Two blocks an entry: its latent, its index key. */
__global__ void entry_store_kernel(entry_store_view a) {
    prefetch_weights(a.k_norm.p, a.k_norm.cols * 2);
    BY_CUDA_DYNAMIC(float, x);
    __shared__ float part[32];
    int e = blockIdx.x, act = a.latent.dtype;
    bool key = blockIdx.y;
    const view &from = key ? a.ik : a.latent;
    const pages_view &pages = key ? a.index : a.main;
    const int32_t *table = a.b.blocks + a.seq[e] * a.b.blocks_stride; /* all of the step's description */
    unsigned char *scales = nullptr, *at = page_entry(pages, table, a.idx[e], from.cols, &scales);
    if (pages.rec != BY_REC_IX4) scales = at + (record_scales(pages.rec, at, from.cols) - at);
    depend_wait();
    depend_launch();
#pragma unroll 4
    for (int i = threadIdx.x; i < from.cols; i += blockDim.x) x[i] = value_at(from.dtype, from.row(e), from.cols, i);
    __syncthreads();
    if (key) block_norm(x, a.k_norm.p, from.cols, a.eps, act, part);
    block_rotate(x, from.cols, a.cs.f32(e), a.cs.cols, 1, act);
    block_store_record(pages.rec, at, scales, x, from.cols);
}

by_status by_cuda_entry_store(by_device *dev, const by_entry_store_args *a, by_err *err) {
    if (a->entries.n == 0) return BY_OK;
    int64_t widest = a->latent.cols > a->ik.cols ? a->latent.cols : a->ik.cols;
    size_t smem = static_cast<size_t>(widest) * 4;
    BY_TRY(by_cuda_smem(entry_store_kernel, smem, err));
    entry_store_view v = {batch_of(a->batch), i32_of(a->entries.seq), i32_of(a->entries.idx), view_of(a->latent),
                          view_of(a->ik), view_of(a->k_norm), view_of(a->cs), pages_of(a->main), pages_of(a->index), a->eps};
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), entry_store_kernel, dim3(static_cast<unsigned>(a->entries.n), 2),
                                row_threads(widest), smem, 1, v));
    BY_CUDA_LAUNCHED(err, "entry_store");
    return BY_OK;
}

__global__ void index_query_kernel(view q, view cs, view out, int heads, int d) {
    depend_wait();
    depend_launch();
    BY_CUDA_DYNAMIC(float, x);
    int t = blockIdx.x, h = blockIdx.y, act = q.dtype;
    for (int i = threadIdx.x; i < d; i += blockDim.x) x[i] = value_at(act, q.row(t), 0, h * d + i);
    __syncthreads();
    block_rotate(x, d, cs.f32(t), cs.cols, 1, act);
    if (out.dtype == BY_F32) {
        for (int i = threadIdx.x; i < d; i += blockDim.x) out.f32(t)[h * d + i] = x[i];
    } else {
        unsigned char *at = out.row(static_cast<int64_t>(t) * heads + h);
        block_store_record(BY_REC_IX4, at, at + d / 2, x, d);
    }
}

/* The index format, eight channels a thread. */
__global__ void __launch_bounds__(256) index_query_wide_kernel(view q, view cs, view out, int heads, int d) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, i = (blockIdx.y * 256 + threadIdx.x) * 8, at = i % d, j = at - (d - cs.cols);
    if (i >= heads * d) return; /* the four threads of a group of 32 are all here or none */
    float v[8], m = 0;
    load8(q.dtype, q.row(t), 0, i, v);
    if (j >= 0) rotate8(v, cs.f32(t), j);
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = round_to(q.dtype, v[k]), m = fmaxf(m, fabsf(v[k]));
    uint32_t group = 0xfu << (threadIdx.x & 28), codes = 0;
    m = fmaxf(m, __shfl_xor_sync(group, m, 1));
    m = fmaxf(m, __shfl_xor_sync(group, m, 2));
    uint32_t b = ix4_scale(m);
    float inverse = ue8m0_inverse(b);
#pragma unroll
    for (int k = 0; k < 8; k++) codes |= static_cast<uint32_t>(e2m1_of(v[k] * inverse)) << 4 * k;
    unsigned char *to = out.row(static_cast<int64_t>(t) * heads + i / d);
    *reinterpret_cast<uint32_t *>(to + at / 2) = codes;
    if (at % 32 == 0) to[d / 2 + at / 32] = static_cast<uint8_t>(b);
}

by_status by_cuda_index_query(by_device *dev, const by_index_query_args *a, by_err *err) {
    if (a->q.rows == 0) return BY_OK;
    if (a->out.dtype == BY_IX4 && wide_rope(a->q, a->cs, a->d) && wide_row(a->out, 4)) {
        dim3 pieces(static_cast<unsigned>(a->q.rows), static_cast<unsigned>((a->heads * a->d / 8 + 255) / 256));
        BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), index_query_wide_kernel, pieces, 256, 0, 1, view_of(a->q), view_of(a->cs),
                                       view_of(a->out), a->heads, a->d));
        BY_CUDA_LAUNCHED(err, "index_query");
        return BY_OK;
    }
    dim3 grid(static_cast<unsigned>(a->q.rows), static_cast<unsigned>(a->heads));
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), index_query_kernel, grid, 64, static_cast<size_t>(a->d) * 4, 1,
                                view_of(a->q), view_of(a->cs), view_of(a->out), a->heads, a->d));
    BY_CUDA_LAUNCHED(err, "index_query");
    return BY_OK;
}

struct engram_view {
    view grams, mult, prime, base, w, scale, e, row_idx;
};

// One block a row and n-gram column; every thread hashes for itself.
__global__ void engram_kernel(engram_view a) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, col = blockIdx.y, heads = a.prime.cols, d = a.w.cols, cols = gridDim.y;
    int b = col / heads, h = col % heads;
    const int32_t *gram = a.grams.i32(t);
    const int64_t *mult = reinterpret_cast<const int64_t *>(a.mult.p);
    int64_t x = gram[0] * mult[0];
    for (int i = 1; i <= b + 1; i++) x ^= gram[i] * mult[i];
    int64_t row = x % reinterpret_cast<const int64_t *>(a.prime.row(b))[h] +
                  reinterpret_cast<const int64_t *>(a.base.row(b))[h];
    if (a.row_idx.p && threadIdx.x == 0) reinterpret_cast<int64_t *>(a.row_idx.row(t))[col] = row;
    const unsigned char *from = a.w.row(row), *s = a.scale.row(row);
    unsigned char *to = a.e.row(t);
    if (a.e.dtype == BY_A8) {
        for (int i = threadIdx.x; i < d; i += blockDim.x) to[col * d + i] = from[i];
        for (int i = threadIdx.x; i < d / 32; i += blockDim.x) to[cols * d + col * (d / 32) + i] = s[i];
    } else {
        for (int i = threadIdx.x; i < d; i += blockDim.x)
            store_value(a.e.dtype, to, col * d + i, e4m3_value(from[i]) * ue8m0_value(s[i / 32]));
    }
}

by_status by_cuda_engram(by_device *dev, const by_engram_args *a, by_err *err) {
    if (a->grams.rows == 0) return BY_OK;
    dim3 grid(static_cast<unsigned>(a->grams.rows), static_cast<unsigned>((a->grams.cols - 1) * a->prime.cols));
    engram_view v = {view_of(a->grams), view_of(a->mult), view_of(a->prime), view_of(a->base), view_of(a->table.w),
                     view_of(a->table.scale), view_of(a->e), view_of(a->row_idx)};
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), engram_kernel, grid, 64, 0, 1, v));
    BY_CUDA_LAUNCHED(err, "engram");
    return BY_OK;
}

// One block a row and stream: gate from three sums, then the write-back.
__global__ void engram_gate_kernel(view h, view kv, view qw, view kw, view image, int m, float eps) {
    prefetch_weights(qw.p, qw.rows * qw.cols * 2);
    prefetch_weights(kw.p, kw.rows * kw.cols * 2);
    depend_wait();
    depend_launch();
    __shared__ float part[32];
    int t = blockIdx.x, s = blockIdx.y, D = h.cols / m;
    if (image.p && *image.i32(t)) return;
    const unsigned char *q = qw.row(s), *k = kw.row(s);
    const float *key = kv.f32(t) + s * D, *value = kv.f32(t) + m * D;
    float dot = 0, xx = 0, kk = 0;
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        float x = value_at(h.dtype, h.row(t), 0, s * D + i);
        dot += x * (bf16_at(q, i) * bf16_at(k, i)) * key[i];
        xx += x * x;
        kk += key[i] * key[i];
    }
    dot = block_sum(dot, part);
    xx = block_sum(xx, part);
    kk = block_sum(kk, part);
    float n = static_cast<float>(D);
    dot = dot / sqrtf(xx / n + eps) / sqrtf(kk / n + eps) / sqrtf(n);
    float root = copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot), gate = 1.0f / (1.0f + expf(-root));
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        float x = value_at(h.dtype, h.row(t), 0, s * D + i);
        store_value(h.dtype, h.row(t), s * D + i, x + gate * value[i]);
    }
}

/* The same with eight channels a thread, which stay in registers; D a multiple of 256 up to 5120. */
__global__ void __launch_bounds__(640, 2) engram_gate_wide_kernel(view h, view kv, view qw, view kw, view image, int m, float eps) {
    __shared__ float part[3][32];
    int t = blockIdx.x, s = blockIdx.y, D = h.cols / m, i = threadIdx.x * 8, warps = blockDim.x / 32;
    float x[8], key[8], value[8], q[8], k[8], dot = 0, xx = 0, kk = 0;
    bool skip = image.p && *image.i32(t); /* of the step's description */
    load8(BY_BF16, qw.row(s), 0, i, q);
    load8(BY_BF16, kw.row(s), 0, i, k);
    depend_wait();
    depend_launch();
    if (skip) return;
    load8(h.dtype, h.row(t), 0, s * D + i, x);
    load8(BY_F32, kv.row(t), 0, s * D + i, key);
    load8(BY_F32, kv.row(t), 0, m * D + i, value);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        dot = fmaf(x[j] * (q[j] * k[j]), key[j], dot);
        xx = fmaf(x[j], x[j], xx);
        kk = fmaf(key[j], key[j], kk);
    }
    dot = warp_sum(dot), xx = warp_sum(xx), kk = warp_sum(kk);
    if ((threadIdx.x & 31) == 0) part[0][threadIdx.x >> 5] = dot, part[1][threadIdx.x >> 5] = xx, part[2][threadIdx.x >> 5] = kk;
    __syncthreads();
    dot = xx = kk = 0;
    for (int w = 0; w < warps; w++) dot += part[0][w], xx += part[1][w], kk += part[2][w];
    float n = static_cast<float>(D);
    dot = dot / sqrtf(xx / n + eps) / sqrtf(kk / n + eps) / sqrtf(n);
    float root = copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot), gate = 1.0f / (1.0f + expf(-root));
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] = fmaf(gate, value[j], x[j]);
    store8(h.dtype, h.row(t), s * D + i, x);
}

by_status by_cuda_engram_gate(by_device *dev, const by_engram_gate_args *a, by_err *err) {
    if (a->h.rows == 0) return BY_OK;
    assert(a->kv.dtype == BY_F32);
    int64_t D = a->h.cols / a->m;
    bool wide = D % 256 == 0 && D <= 5120 && wide_row(a->h, 16) && wide_row(a->kv, 16) && wide_row(a->q_weight, 16) && wide_row(a->k_weight, 16);
    dim3 grid(static_cast<unsigned>(a->h.rows), static_cast<unsigned>(a->m));
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), wide ? engram_gate_wide_kernel : engram_gate_kernel, grid,
                                   wide ? static_cast<int>(D / 8) : 256, 0, 1, view_of(a->h), view_of(a->kv), view_of(a->q_weight),
                                   view_of(a->k_weight), view_of(a->row_image), a->m, a->eps));
    BY_CUDA_LAUNCHED(err, "engram_gate");
    return BY_OK;
}

__global__ void add_kernel(view x, view y) {
    depend_wait();
    depend_launch();
    int i = blockIdx.y * blockDim.x + threadIdx.x, t = blockIdx.x;
    if (i < y.cols) y.f32(t)[i] += x.f32(t)[i];
}

by_status by_cuda_add(by_device *dev, const by_add_args *a, by_err *err) {
    if (a->y.rows == 0) return BY_OK;
    assert(a->x.dtype == BY_F32 && a->y.dtype == BY_F32);
    dim3 grid(static_cast<unsigned>(a->y.rows), static_cast<unsigned>((a->y.cols + 255) / 256));
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), add_kernel, grid, 256, 0, 1, view_of(a->x), view_of(a->y)));
    BY_CUDA_LAUNCHED(err, "add");
    return BY_OK;
}

__global__ void check_rows_kernel(view x, view bad) {
    depend_wait();
    depend_launch();
    int t = blockIdx.x, found = 0;
    const unsigned char *row = x.row(t);
    if (x.dtype == BY_BF16) {
        for (int i = threadIdx.x; i < x.cols; i += blockDim.x) found |= (reinterpret_cast<const uint16_t *>(row)[i] & 0x7fff) >= 0x7f80;
    } else {
        for (int i = threadIdx.x; i < x.cols; i += blockDim.x) found |= (reinterpret_cast<const uint32_t *>(row)[i] & 0x7fffffff) >= 0x7f800000;
    }
    found = __syncthreads_or(found);
    if (threadIdx.x == 0) *reinterpret_cast<int32_t *>(bad.row(t)) = found != 0;
}

by_status by_cuda_check_rows(by_device *dev, const by_check_rows_args *a, by_err *err) {
    if (a->x.rows == 0) return BY_OK;
    BY_CUDA_TRY(err, by_cuda_chain(by_cuda_of(dev), check_rows_kernel, dim3(static_cast<unsigned>(a->x.rows)), 512, 0, 1,
                                view_of(a->x), view_of(a->bad)));
    BY_CUDA_LAUNCHED(err, "check_rows");
    return BY_OK;
}
