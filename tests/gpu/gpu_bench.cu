// gpu_bench.cu - times the operators of the cuda backend at the model's true sizes, each beside its floor: bytes that must
// move over the read bandwidth, or operations over the bf16 rate, both measured first in the same run. Times are medians
// of CUDA-graph replays; weights rotate through more memory than the L2 cache holds. Random data everywhere.
//
// usage: gpu_bench [section ...]     sections: gemm moe attention select rows (default: all)
#include <algorithm>
#include <dlfcn.h>
#include <functional>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#include "ops/cuda/cuda_topk.cuh"

static by_device *dev;
static by_cuda *c;
static double read_bps = 4.5e12, bf16_flops = 780e12;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t rc_ = (call);                                                                                      \
        if (rc_ != cudaSuccess) {                                                                                      \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(rc_));                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define MUST(expr)                                                                                                     \
    do {                                                                                                               \
        by_err err_ = {};                                                                                              \
        by_err *err = &err_;                                                                                           \
        if ((expr) < 0) {                                                                                              \
            fprintf(stderr, "%s: %s\n", #expr, err_.msg);                                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// Median microseconds of fn() by graph replay, divided by `per`.
static double timed(const std::function<void()> &fn, int per = 1, int reps = 15) {
    fn();
    fn();
    CHECK(cudaStreamSynchronize(c->stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    fn();
    CHECK(cudaStreamEndCapture(c->stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<float> v;
    for (int i = 0; i < reps + 2; i++) {
        CHECK(cudaEventRecord(a, c->stream));
        CHECK(cudaGraphLaunch(exec, c->stream));
        CHECK(cudaEventRecord(b, c->stream));
        CHECK(cudaEventSynchronize(b));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 2) v.push_back(ms);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    std::sort(v.begin(), v.end());
    return v[v.size() / 2] * 1e3 / per;
}
static void line(const char *name, double us, double bytes, double flops) {
    double floor_us = std::max(bytes / read_bps, flops / bf16_flops) * 1e6;
    printf("%-52s %9.1f us  floor %8.2f  x %6.2f  %6.0f GB/s %6.0f TFLOP/s\n", name, us, floor_us, us / floor_us,
           bytes / us * 1e-3, flops / us * 1e-6);
    fflush(stdout);
}

__global__ void fill_kernel(unsigned char *p, size_t n, uint32_t lo, uint32_t hi, uint32_t seed) {
    size_t first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x, step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = first; i < n / 4; i += step) {
        uint32_t v = 0;
        for (int k = 0; k < 4; k++) {
            uint64_t x = (i * 4 + k + seed) * 0x9e3779b97f4a7c15ull;
            x ^= x >> 29, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 32;
            uint32_t b = lo + static_cast<uint32_t>(x) % (hi - lo + 1);
            if (hi - lo == 255 && (b & 0x7f) == 0x7f) b ^= 1;
            v |= b << 8 * k;
        }
        reinterpret_cast<uint32_t *>(p)[i] = v;
    }
}
__global__ void fill_float_kernel(unsigned char *p, size_t n, int bf16, uint32_t seed, float scale) {
    size_t first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x, step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = first; i < n; i += step) {
        uint64_t x = (i + seed) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 32;
        float f = (static_cast<float>(x & 0xffff) + static_cast<float>(x >> 16 & 0xffff) - 65535.0f) * scale / 32768.0f;
        if (bf16) reinterpret_cast<uint16_t *>(p)[i] = bf16_bits(f);
        else reinterpret_cast<float *>(p)[i] = f;
    }
}
static std::vector<by_mem *> made;
static by_tensor make(by_dtype t, int64_t rows, int64_t cols, uint32_t lo = 0, uint32_t hi = 255) {
    static uint32_t seed = 1;
    size_t n = static_cast<size_t>(rows * by_dtype_row_bytes(t, cols));
    by_mem *m = nullptr;
    MUST(by_mem_alloc(&m, dev, n, err));
    made.push_back(m);
    size_t values = static_cast<size_t>(rows * cols);
    if (t == BY_F32 || t == BY_BF16) fill_float_kernel<<<1024, 256, 0, c->stream>>>(m->ptr, values, t == BY_BF16, seed, 1.0f);
    else fill_kernel<<<1024, 256, 0, c->stream>>>(m->ptr, n, lo, hi, seed);
    seed += 77777;
    return by_tensor_make(m, 0, t, rows, cols);
}
static void put(by_tensor t, const std::vector<int32_t> &v) {
    MUST(by_mem_write(t.mem, 0, v.data(), v.size() * 4, err));
}
static by_tensor a8(int64_t rows, int64_t cols) {
    by_tensor f = make(BY_F32, rows, cols), x = make(BY_A8, rows, cols);
    by_act8_args a = {f, x};
    MUST(by_op_act8(dev, &a, err));
    return x;
}
static by_weight fp8(int64_t n, int64_t k) { return {make(BY_FP8_TILE, n, k), make(BY_U8, (n + 31) / 32, k / 32, 112, 118)}; }
static by_weight fp4(int64_t n, int64_t k) { return {make(BY_FP4_ROW, n, k), make(BY_U8, n, k / 32, 117, 122)}; }
static void free_all() {
    CHECK(cudaStreamSynchronize(c->stream));
    for (by_mem *m : made) by_mem_free(m);
    made.clear();
}

__global__ void read_kernel(const uint4 *p, size_t n, uint32_t *out) {
    uint32_t s = 0;
    size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) * 8 + threadIdx.x;
    size_t step = static_cast<size_t>(gridDim.x) * blockDim.x * 8;
    for (; i < n; i += step) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            uint4 v = __ldcs(p + i + k * blockDim.x);
            s ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    }
    if (s == 0x12345678) *out = s;
}

static void ceilings() {
    by_tensor big = make(BY_U8, 4, 1 << 30), out = make(BY_U8, 1, 256);
    double us = timed([&] {
        read_kernel<<<c->sms * 8, 512, 0, c->stream>>>(reinterpret_cast<uint4 *>(big.mem->ptr), size_t(4) << 26,
                                                       reinterpret_cast<uint32_t *>(out.mem->ptr));
    });
    read_bps = 4.294967296e9 / us * 1e6;
    printf("read 4 GiB: %.0f GB/s\n", read_bps * 1e-9);
    void *lib = dlopen("libcublas.so.13", RTLD_NOW);
    if (!lib) {
        printf("bf16 peak: no libcublas; 780 TFLOP/s assumed\n");
        free_all();
        return;
    }
    typedef int (*create_fn)(void **);
    typedef int (*stream_fn)(void *, cudaStream_t);
    typedef int (*gemm_fn)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                           const void *, void *, int, int, int, int);
    create_fn create = reinterpret_cast<create_fn>(dlsym(lib, "cublasCreate_v2"));
    stream_fn set_stream = reinterpret_cast<stream_fn>(dlsym(lib, "cublasSetStream_v2"));
    gemm_fn gemm = reinterpret_cast<gemm_fn>(dlsym(lib, "cublasGemmEx"));
    int n = 8192;
    by_tensor x = make(BY_BF16, n, n), y = make(BY_BF16, n, n), z = make(BY_BF16, n, n);
    void *h = nullptr;
    float one = 1, zero = 0;
    if (create(&h) || set_stream(h, c->stream)) exit(1);
    auto run = [&](int m, int nn, int k) {
        return gemm(h, 1, 0, m, nn, k, &one, x.mem->ptr, 14, k, y.mem->ptr, 14, k, &zero, z.mem->ptr, 14, m, 68, -1);
    };
    if (run(n, n, n)) printf("cublas failed\n");
    us = timed([&] { run(n, n, n); }, 1, 9);
    bf16_flops = 2.0 * n * n * n / us * 1e6;
    printf("bf16 8192^3 by cuBLAS: %.0f TFLOP/s\n", bf16_flops * 1e-12);
    free_all();
}

static void gemm_section() {
    static const struct { const char *name; int64_t k, n; } shapes[] = {
        {"5120 -> 1792 (wq_a, wkv)", 5120, 1792},
        {"8 x 4096 -> 1024 (wo_a)", 4096, 8192},
        {"1280 -> 32768 (wq_b)", 1280, 32768},
        {"8192 -> 5120 (wo_b)", 8192, 5120},
        {"5120 -> 4608 (shared w1, w3)", 5120, 4608}, {"2304 -> 5120 (shared w2)", 2304, 5120}};
    printf("\nFP8 x A8, 32x32 scales (image of the activations included); kernels for few rows (cuda_few.cu): %s\n",
           c->few ? "used" : "not used, they would round otherwise");
    for (auto &s : shapes) {
        int copies = static_cast<int>(std::min<int64_t>(16, 200000000 / (s.k * s.n) + 1));
        std::vector<by_weight> w;
        for (int i = 0; i < copies; i++) w.push_back(fp8(s.n, s.k));
        for (int64_t m : {1, 2, 4, 8, 16, 64, 128, 256, 1024, 4096}) {
            int groups = s.n == 8192 ? 8 : 1; /* wo_a: each group of heads has its own columns */
            by_tensor x = a8(m, s.k * groups), y = make(BY_BF16, m, s.n);
            int r = m <= 256 ? copies : 1;
            auto time_it = [&] {
                return timed([&] {
                    for (int i = 0; i < r; i++) {
                        by_matmul_args a = {};
                        a.x = x, a.n_parts = 1, a.groups = groups, a.part[0].w = w[static_cast<size_t>(i)], a.part[0].y = y;
                        MUST(by_op_matmul(dev, &a, err));
                    }
                }, r);
            };
            double bytes = static_cast<double>(s.k * s.n + m * s.k * groups + 2 * m * s.n), flops = 2.0 * m * s.k * s.n;
            char name[96];
            snprintf(name, sizeof name, "%s M %d", s.name, static_cast<int>(m));
            line(name, time_it(), bytes, flops);
            if (!c->few || m > 8) continue;
            c->few = false;
            line("  by the kernels for more rows", time_it(), bytes, flops);
            c->few = true;
        }
        free_all();
    }
    by_weight head = {make(BY_BF16, 129280, 5120), {}};
    for (int64_t m : {1, 64}) {
        by_tensor x = make(BY_BF16, m, 5120), y = make(BY_F32, m, 129280);
        double us = timed([&] {
            by_matmul_args a = {};
            a.x = x, a.n_parts = a.groups = 1, a.part[0].w = head, a.part[0].y = y;
            MUST(by_op_matmul(dev, &a, err));
        });
        char name[96];
        snprintf(name, sizeof name, "head bf16 5120 -> 129280 M %d", static_cast<int>(m));
        line(name, us, 129280.0 * 5120 * 2 + m * 129280.0 * 4, 2.0 * m * 5120 * 129280);
    }
    free_all();
}

static void moe_section() {
    const int E = 384, k = 6, D = 5120, I = 2304;
    std::vector<by_expert> e;
    for (int i = 0; i < E; i++) e.push_back({fp4(I, D), fp4(I, D), fp4(D, I)});
    by_expert shared = {fp8(I, D), fp8(I, D), fp8(D, I)};
    printf("\nexperts, FP4 x A8, 384 experts, top 6, all steps of the operator\n");
    for (int with = 0; with < 2; with++) {
        for (int64_t T : {1, 2, 3, 4, 6, 16, 64, 256, -256, 512, 1024, 2048, 4096, 8192}) {
            bool skewed = T < 0; /* half of the tokens' choices fall on a sixteenth of the experts */
            if (skewed) T = -T;
            std::vector<int32_t> v;
            std::vector<char> used(E, 0);
            for (int64_t t = 0; t < T; t++)
                for (int j = 0; j < k; j++) {
                    int x = 0;
                    do x = skewed ? static_cast<int>(E * pow(rand() / (RAND_MAX + 1.0), 4)) : rand() % E;
                    while (std::find(v.end() - j, v.end(), x) != v.end());
                    v.push_back(x), used[static_cast<size_t>(x)] = 1;
                }
            int n_used = static_cast<int>(std::count(used.begin(), used.end(), 1));
            by_tensor x = a8(T, D), idx = make(BY_I32, T, k), w = make(BY_F32, T, k), y = make(BY_BF16, T, D);
            put(idx, v);
            auto time_it = [&] {
                return timed([&] {
                    by_moe_args a = {x, idx, w, e.data(), E, with ? &shared : nullptr, y, I, 10, true};
                    MUST(by_op_moe(dev, &a, err));
                });
            };
            double bytes = n_used * 3.0 * D * I * (0.5 + 1.0 / 32) + with * 3.0 * D * I;
            bytes += T * k * (D + 5.0 * I + 2 * D) + 2.0 * T * D;
            char name[96];
            snprintf(name, sizeof name, "moe%s%s T %d, %d experts used", with ? " + shared" : "", skewed ? ", skewed," : "",
                     static_cast<int>(T), n_used);
            double flops = 2.0 * 3 * D * I * static_cast<double>(T) * (k + with);
            line(name, time_it(), bytes, flops);
            if (!c->few || T > (with ? 4 : 1)) continue;
            c->few = false;
            line("  by the kernels for more rows", time_it(), bytes, flops);
            c->few = true;
        }
    }
    free_all();
}

// A decode step of B sequences at position pos, blocks of 128 tokens.
static by_batch decode_batch(int B, int pos, int blocks) {
    std::vector<int32_t> p, q, r0, tb, sl;
    for (int i = 0; i < B; i++) {
        p.push_back(pos), q.push_back(i), r0.push_back(i), sl.push_back(i);
        for (int k = 0; k < blocks; k++) tb.push_back(1 + k * B + i);
    }
    r0.push_back(B);
    by_batch b = {};
    b.n_rows = b.n_seqs = B;
    b.row_pos = b.seq_pos0 = make(BY_I32, B, 1), b.row_seq = make(BY_I32, B, 1), b.row_image = make(BY_I32, B, 1);
    b.seq_row0 = make(BY_I32, B + 1, 1), b.seq_slot = make(BY_I32, B, 1), b.seq_blocks = make(BY_I32, B, blocks);
    put(b.row_pos, p), put(b.row_seq, q), put(b.seq_row0, r0), put(b.seq_slot, sl), put(b.seq_blocks, tb);
    return b;
}

// Eight calls behind one another, as a step makes them, each on records and queries of its own: nothing waits in the L2 cache.
static void attention_section() {
    printf("\nattention, 64 heads of 512, 128 window + 512 entries, packed records\n");
    const int CALLS = 8;
    for (int B : {1, 32, 64, 128, 1024}) {
        int n = B <= 32 ? 131072 : B <= 128 ? 32768 : 4096, blocks = n / 128;
        by_batch b = decode_batch(B, n - 1, blocks);
        int64_t block = 128 * 288;
        by_tensor pool = make(BY_U8, static_cast<int64_t>(B) * blocks + 1, block, 0x20, 0x3f);
        by_tensor cs = make(BY_F32, B, 64), sink = make(BY_F32, 1, 64), q[CALLS], ring[CALLS], kv[CALLS], o[CALLS], sel[CALLS];
        for (int call = 0; call < CALLS; call++) {
            ring[call] = make(BY_U8, B, 134 * 528, 0x60, 0x78), kv[call] = make(BY_U8, B, 528, 0x60, 0x78);
            q[call] = make(BY_BF16, B, 64 * 512), o[call] = make(BY_A8, B, 64 * 512), sel[call] = make(BY_I32, B, 513);
            std::vector<int32_t> s;
            for (int i = 0; i < B; i++) {
                s.push_back(512);
                for (int j = 0; j < 512; j++) s.push_back(j * (n / 512) + rand() % (n / 512));
            }
            put(sel[call], s);
        }
        for (int entries = 1; entries >= 0; entries--) {
            double us = timed([&] {
                for (int call = 0; call < CALLS; call++) {
                    by_attention_args a = {};
                    a.batch = b, a.q = q[call], a.cs = cs, a.kv = kv[call], a.sel = sel[call], a.sink = sink, a.o = o[call];
                    a.ring = {ring[call].mem, 0, 134 * 528, 134, BY_REC_FP8};
                    a.heads = 64, a.d = 512, a.window = 128, a.ratio = 1, a.scale = 0.0442f;
                    if (entries) a.main = {pool.mem, 0, block, 128, BY_REC_FP4};
                    MUST(by_op_attention(dev, &a, err));
                }
            }, CALLS);
            double keys = 128 + 512 * entries, bytes = B * (512.0 * 288 * entries + 128 * 528 + 64 * 512 * 3.0);
            char name[96];
            snprintf(name, sizeof name, "attention B %d%s", B, entries ? "" : ", window only");
            line(name, us, bytes, B * 4.0 * 64 * 512 * keys);
        }
        free_all();
    }
}

template <class KEY, int PEERS> __global__ void __launch_bounds__(TOPK_THREADS) topk_kernel(const KEY *keys, int n, int k, int32_t *out) {
    extern __shared__ __align__(16) unsigned char bytes[];
    depend_wait();
    depend_launch();
    int32_t *to = out + blockIdx.y * static_cast<int64_t>(k);
    const KEY *from = keys + blockIdx.y * static_cast<int64_t>(n);
    auto put = [&](int rank, int place) { to[rank] = place; };
    if constexpr (PEERS > 1) topk_select_shared<PEERS>(*reinterpret_cast<topk_shared *>(bytes), from, n, k, put);
    else topk_select(*reinterpret_cast<topk_shared *>(bytes), from, n, k, put);
}
__global__ void score_keys_kernel(uint16_t *p, uint32_t *q, size_t n) { /* bf16 scores, as index_select makes them */
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<size_t>(gridDim.x) * blockDim.x) {
        uint64_t x = (i + 5) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 32;
        float f = 0;
        for (int k = 0; k < 4; k++) f += static_cast<float>(x >> 16 * k & 0xffff) / 32768.0f - 1.0f;
        if (p) p[i] = topk_key<uint16_t>(round_to(BY_BF16, f));
        else q[i] = topk_key<uint32_t>(f);
    }
}
// The selection alone, as index_select launches it: eight calls behind one another, each on keys of its own.
template <class KEY> static void topk_case(int B, int n) {
    const int CALLS = 8;
    int peers = topk_peers(B, c->sms);
    if (n < topk_shared_least(peers)) peers = 1;
    by_tensor keys[CALLS], out = make(BY_I32, B, 512);
    for (by_tensor &k : keys) {
        k = make(BY_U8, B, n * static_cast<int64_t>(sizeof(KEY)));
        score_keys_kernel<<<1024, 256, 0, c->stream>>>(sizeof(KEY) == 2 ? reinterpret_cast<uint16_t *>(k.mem->ptr) : nullptr,
                                                       reinterpret_cast<uint32_t *>(k.mem->ptr), static_cast<size_t>(B) * n);
    }
    auto kernel = peers == 4 ? topk_kernel<KEY, 4> : peers == 2 ? topk_kernel<KEY, 2> : topk_kernel<KEY, 1>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(topk_shared))));
    double us = timed([&] {
        for (const by_tensor &k : keys)
            CHECK(by_cuda_chain(c, kernel, dim3(static_cast<unsigned>(peers), static_cast<unsigned>(B)), TOPK_THREADS, sizeof(topk_shared),
                                peers, reinterpret_cast<const KEY *>(k.mem->ptr), n, 512, reinterpret_cast<int32_t *>(out.mem->ptr)));
    }, CALLS);
    char name[96];
    snprintf(name, sizeof name, "top 512 alone B %d n %d, %d-bit keys", B, n, 8 * static_cast<int>(sizeof(KEY)));
    line(name, us, static_cast<double>(B) * n * sizeof(KEY), 0);
    free_all();
}

static void select_section() {
    printf("\nselection alone (floor: keys read once)\n");
    topk_case<uint16_t>(1, 131072), topk_case<uint16_t>(32, 131072), topk_case<uint16_t>(128, 16384), topk_case<uint16_t>(32, 524288);
    topk_case<uint32_t>(32, 131072);
    printf("\nindex: scores of 32 heads x 128 over packed keys, then top 512\n");
    static const struct { int B, n; } cases[] = {{1, 131072}, {8, 131072}, {32, 131072}, {128, 16384}};
    for (auto &s : cases) {
        int blocks = s.n / 128;
        by_batch b = decode_batch(s.B, s.n - 1, blocks);
        int64_t block = 128 * 68;
        by_tensor pool = make(BY_U8, static_cast<int64_t>(s.B) * blocks + 1, block, 0x78, 0x7f);
        by_tensor q = make(BY_IX4, static_cast<int64_t>(s.B) * 32, 128, 0x78, 0x7f);
        by_tensor w = make(BY_BF16, s.B, 32), sel = make(BY_I32, s.B, 513), cand = make(BY_I32, s.B, 2049);
        for (int mode : {0, 1, 2}) {
            double us = timed([&] {
                by_index_select_args a = {};
                a.batch = b, a.q = q, a.weights = w, a.scale = 0x1p-6f, a.sel = sel, a.cand = cand;
                a.keys = {pool.mem, 0, block, 128, BY_REC_IX4};
                a.mode = static_cast<by_candidates>(mode), a.heads = 32, a.d = 128, a.ratio = 1;
                a.topk = 512, a.cand_blocks = 2048, a.cand_block_size = 8;
                a.round_bf16 = true, a.n_entries_max = s.n;
                MUST(by_op_index_select(dev, &a, err));
            });
            double scored = mode == 2 ? std::min(s.n, 16384) : s.n;
            char name[96];
            snprintf(name, sizeof name, "index_select B %d n %d mode %d", s.B, s.n, mode);
            line(name, us, s.B * scored * (68.0 + 4), s.B * scored * 2.0 * 32 * 128);
        }
        free_all();
    }
}

static void rows_section() {
    printf("\nsmall operators (bytes: operands once)\n");
    const int D = 5120, m = 4;
    by_tensor fn = make(BY_F32, 24, m * D), base = make(BY_F32, 1, 24), scale = make(BY_F32, 1, 3);
    by_tensor streams = make(BY_BF16, m, D), table = make(BY_BF16, 4096, D);
    by_tensor norm = make(BY_BF16, 1, D), gate = make(BY_BF16, 384, D), bias = make(BY_F32, 1, 384);
    for (int64_t T : {1, 16, 64, 256, 4096}) {
        by_tensor h = make(BY_BF16, T, m * D), pre = make(BY_F32, T, m), y = make(BY_BF16, T, D), q = make(BY_A8, T, D);
        by_tensor post = make(BY_F32, T, m), comb = make(BY_F32, T, m * m), out = make(BY_BF16, T, D);
        by_tensor idx = make(BY_I32, T, 6), w = make(BY_F32, T, 6), next = make(BY_F32, T, m);
        by_tensor heads = make(BY_BF16, T, 64 * 512), cs = make(BY_F32, T, 64);
        by_hc_mix_args mix = {h, {}, pre, fn, base, scale, norm, y, q, next, post, comb, m, 20, 1e-20f, 1e-6f};
        by_hc_post_args back = {h, out, post, comb, m};
        by_rmsnorm_args rms = {out, norm, y, q, 1e-20f};
        by_router_args route = {y, gate, bias, {}, {}, idx, w, 6, true, 1.5f};
        by_rope_args turn = {heads, cs, 64, 512};
        by_hc_mix_args both = mix;
        both.out = out;
        by_tensor raw = make(BY_BF16, T, 512), record = make(BY_U8, T, 528), wide = make(BY_BF16, T, 8192), wide_q = make(BY_A8, T, 8192);
        by_window_kv_args key = {};
        key.x = raw, key.norm = by_tensor_rows(norm, 0, 1), key.norm.cols = 512, key.cs = cs, key.kv = record, key.rec = BY_REC_FP8;
        key.eps = 1e-20f, key.q = heads, key.heads = 64;
        by_act8_args eight = {wide, wide_q};
        by_tensor gates = make(BY_F32, T, 5 * D), which = make(BY_I32, T, 1);
        std::vector<int32_t> all;
        for (int t = 0; t < T; t++) all.push_back(t);
        put(which, all);
        by_engram_gate_args engram = {h, gates, streams, streams, {}, m, 1e-20f};
        by_hc_close_args close = {h, pre, norm, which, y, m, 1e-20f};
        by_tensor index = make(BY_BF16, T, 32 * 128), packed = make(BY_IX4, T * 32, 128);
        by_index_query_args query = {index, cs, packed, 32, 128};
        by_embed_args embed = {which, table, {}, h, pre, m};
        struct {
            const char *name;
            std::function<void()> f;
            double bytes;
        } ops[] = {{"hc_mix", [&] { MUST(by_op_hc_mix(dev, &mix, err)); }, T * D * 11.0 + 24.0 * m * D * 4},
                   {"hc_post", [&] { MUST(by_op_hc_post(dev, &back, err)); }, T * D * 18.0},
                   {"rmsnorm + act8", [&] { MUST(by_op_rmsnorm(dev, &rms, err)); }, T * D * 5.0},
                   {"router", [&] { MUST(by_op_router(dev, &route, err)); }, T * D * 2.0 + 384.0 * D * 2},
                   {"rope 64 heads", [&] { MUST(by_op_rope(dev, &turn, err)); }, T * 64 * 64 * 4.0},
                   {"hc_post and hc_mix in one", [&] { MUST(by_op_hc_mix(dev, &both, err)); }, T * D * 21.0 + 24.0 * m * D * 4},
                   {"window_kv and rope", [&] { MUST(by_op_window_kv(dev, &key, err)); }, T * (64 * 64 * 4.0 + 512 * 2 + 528)},
                   {"act8 of 8192", [&] { MUST(by_op_act8(dev, &eight, err)); }, T * 8192 * 3.0},
                   {"engram_gate", [&] { MUST(by_op_engram_gate(dev, &engram, err)); }, T * D * (16 + 20.0) + 16.0 * D},
                   {"index_query", [&] { MUST(by_op_index_query(dev, &query, err)); }, T * 32 * (256.0 + 68)},
                   {"hc_close", [&] { MUST(by_op_hc_close(dev, &close, err)); }, T * D * 10.0},
                   {"embed", [&] { MUST(by_op_embed(dev, &embed, err)); }, T * D * 10.0}};
        for (auto &o : ops) {
            char name[96];
            snprintf(name, sizeof name, "%s T %d", o.name, static_cast<int>(T));
            line(name, timed([&] { for (int i = 0; i < 8; i++) o.f(); }, 8), o.bytes, 0);
        }
    }
    free_all();
}

int main(int argc, char **argv) {
    by_device_opts opts = {};
    opts.backend = BY_BACKEND_CUDA;
    by_err err = {};
    by_status status = by_device_open(&dev, &opts, &err);
    if (status < 0) {
        printf("skipped: %s\n", err.msg);
        return status == BY_EUNSUPPORTED ? 77 : 1;
    }
    c = by_cuda_of(dev);
    printf("%s\n", by_device_name(dev));
    ceilings();
    auto wanted = [&](const char *s) {
        for (int i = 1; i < argc; i++)
            if (!strcmp(argv[i], s)) return true;
        return argc < 2;
    };
    if (wanted("gemm")) gemm_section();
    if (wanted("rows")) rows_section();
    if (wanted("attention")) attention_section();
    if (wanted("select")) select_section();
    if (wanted("moe")) moe_section();
    by_device_close(dev);
    return 0;
}
