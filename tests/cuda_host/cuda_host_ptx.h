/* cuda_host_ptx.h - what cuda_ptx.cuh has in PTX, for kernels that run on the host: see cuda_host.h. Bulk copies and stores to other
 * blocks arrive at once; other asynchronous copies arrive when they are waited for. */
#ifndef BY_CUDA_HOST_PTX_H
#define BY_CUDA_HOST_PTX_H

#include <math.h>

#include "cuda_host/cuda_host.h"
#include "cuda_host/cuda_runtime.h"

/* Five exchanges in one: half of the time of a model's step goes into sums of warps. */
static inline float warp_sum(float v) { return cuda_host::warp_reduce(cuda_host::WARP_SUM, v); }
static inline float warp_max(float v) { return cuda_host::warp_reduce(cuda_host::WARP_MAX, v); }

static inline uint32_t warp_most(uint32_t v) {
    for (int m = 16; m; m >>= 1) v = max(v, __shfl_xor_sync(~0u, v, m));
    return v;
}
static inline uint32_t warp_least(uint32_t v) {
    for (int m = 16; m; m >>= 1) v = min(v, __shfl_xor_sync(~0u, v, m));
    return v;
}

static inline void depend_wait() { cuda_host::depend_wait(); }
static inline void depend_launch() { cuda_host::depend_launch(); }
static inline void prefetch_line(const unsigned char *) {}
static inline void bulk_prefetch(const void *, int) {}

static inline uint32_t smem_addr(const void *p) { return cuda_host::shared_address(p); }
static inline uint32_t remote(uint32_t addr, uint32_t rank) { return cuda_host::remote_address(addr, rank); }
template <class T> static inline T cuda_host_load(uint32_t addr) {
    T v;
    if (addr % sizeof v) cuda_host::fail("an access to shared memory is not aligned");
    memcpy(&v, cuda_host::shared_at(addr, sizeof v), sizeof v);
    return v;
}
template <class T> static inline void cuda_host_store(uint32_t addr, T v) {
    if (addr % sizeof v) cuda_host::fail("an access to shared memory is not aligned");
    memcpy(cuda_host::shared_at(addr, sizeof v), &v, sizeof v);
}
static inline float remote_f32(uint32_t addr) { return cuda_host_load<float>(addr); }
static inline uint32_t remote_u32(uint32_t addr) { return cuda_host_load<uint32_t>(addr); }
static inline float4 remote_f32x4(uint32_t addr) { return cuda_host_load<float4>(addr); }
static inline void cluster_arrive() { cuda_host::cluster_arrive(); }
static inline void cluster_wait() { cuda_host::cluster_wait(); }
static inline void cluster_sync() {
    cuda_host::cluster_arrive();
    cuda_host::cluster_wait();
}
static inline void cluster_meet() { cluster_sync(); }
static inline uint32_t cluster_size() { return cuda_host::cluster_size(); }
static inline uint32_t cluster_rank() { return cuda_host::cluster_rank(); }

static inline void mbar_init(uint32_t bar, int count) { cuda_host::mbar_init(bar, count); }
static inline void mbar_init_done() {}
static inline void mbar_expect(uint32_t bar, int bytes) { cuda_host::mbar_arrive(bar, bytes); }
static inline void mbar_arrive(uint32_t bar) { cuda_host::mbar_arrive(bar, 0); }
static inline void mbar_arrive_remote(uint32_t bar, uint32_t rank) { cuda_host::mbar_arrive(remote(bar, rank), 0); }
static inline void mbar_wait(uint32_t bar, uint32_t parity) { cuda_host::mbar_wait(bar, parity); }
static inline void bulk_load(uint32_t dst, const void *src, int bytes, uint32_t bar) {
    uintptr_t all = dst | reinterpret_cast<uintptr_t>(src) | static_cast<uintptr_t>(bytes);
    if (bytes <= 0 || all % 16) cuda_host::fail("a bulk copy is not aligned");
    memcpy(cuda_host::shared_at(dst, static_cast<size_t>(bytes)), src, static_cast<size_t>(bytes));
    cuda_host::mbar_complete(bar, bytes);
}
static inline void bulk_load_all(uint32_t dst, const void *src, int bytes, uint32_t bar, uint32_t mask) {
    for (uint32_t r = 0; r < 16; r++)
        if (mask >> r & 1) bulk_load(remote(dst, r), src, bytes, remote(bar, r));
}
static inline void cp_async16(uint32_t dst, const void *src) { cuda_host::copy_later(dst, src, 16); }
template <int N> static inline void cp_async_small(uint32_t dst, const void *src) { cuda_host::copy_later(dst, src, N); }
static inline void cp_commit() { cuda_host::copy_commit(); }
template <int N> static inline void cp_wait() { cuda_host::copy_wait(N); }
static inline void bar_sync(int id, int threads) { cuda_host::named_barrier(id, threads); }
static inline void fence_async() {}

static inline void load_shared16(uint32_t *q, uint32_t at) {
    uint4 v = cuda_host_load<uint4>(at);
    q[0] = v.x, q[1] = v.y, q[2] = v.z, q[3] = v.w;
}
static inline uint32_t load_shared_byte(uint32_t at) { return *cuda_host::shared_at(at, 1); }
static inline uint32_t load_shared32(uint32_t at) { return cuda_host_load<uint32_t>(at); }
static inline uint2 load_shared64(uint32_t at) { return cuda_host_load<uint2>(at); }
static inline void put16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) { cuda_host_store(at, make_uint4(a, b, c, d)); }
static inline void put4(uint32_t at, uint32_t v) { cuda_host_store(at, v); }
template <int OFF> static inline void put4_behind(uint32_t at, uint32_t v) { cuda_host_store(at + OFF, v); }
/* Lane l has elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4) of each block as it comes to lie. */
static inline void put_turned(uint32_t at, const uint32_t (&r)[4]) {
    int lane = static_cast<int>(threadIdx.x & 31);
    for (int i = 0; i < 4; i++) {
        uint32_t first = __shfl_sync(~0u, at, i * 8 + lane % 4 * 2), second = __shfl_sync(~0u, at, i * 8 + lane % 4 * 2 + 1);
        cuda_host_store(first + static_cast<uint32_t>(lane / 4 * 2), static_cast<uint16_t>(r[i]));
        cuda_host_store(second + static_cast<uint32_t>(lane / 4 * 2), static_cast<uint16_t>(r[i] >> 16));
    }
}
static inline void send4(uint32_t to, float v, uint32_t bar) {
    cuda_host_store(to, v);
    cuda_host::mbar_complete(bar, 4);
}
static inline void send16(uint32_t to, float a, float b, float c, float d, uint32_t bar) {
    cuda_host_store(to, make_float4(a, b, c, d));
    cuda_host::mbar_complete(bar, 16);
}

static inline float cuda_host_bf16(uint32_t bits) { return __uint_as_float(bits << 16); }
static inline void mma16x8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    int lane = static_cast<int>(threadIdx.x & 31);
    uint32_t(*board)[4] = cuda_host::board();
    memcpy(board[lane], a, sizeof a);
    __syncwarp();
    float rows[2][16];
    for (int k = 0; k < 16; k++)
        for (int r = 0; r < 2; r++) rows[r][k] = cuda_host_bf16(board[lane / 4 * 4 + k % 8 / 2][k / 8 * 2 + r] >> k % 2 * 16 & 0xffff);
    board = cuda_host::board();
    board[lane][0] = b0, board[lane][1] = b1;
    __syncwarp();
    static const char *order = getenv("CUDA_HOST_MMA");
    static const bool backwards = order && !strcmp(order, "backwards"); /* unlike the warpgroup's instruction */
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 16; j++) {
            int k = backwards ? 15 - j : j;
            float b = cuda_host_bf16(board[(lane % 4 * 2 + i) * 4 + k % 8 / 2][k / 8] >> k % 2 * 16 & 0xffff);
            d[i] += rows[0][k] * b;
            d[2 + i] += rows[1][k] * b;
        }
}
static inline uint4 load_once16(const void *p) {
    if (reinterpret_cast<uintptr_t>(p) % 16) cuda_host::fail("a load of 16 bytes is not aligned");
    uint4 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t cuda_host_to_bf16(float v) {
    uint32_t u = __float_as_uint(v);
    return v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
    return cuda_host_to_bf16(cuda_host_bf16(a & 0xffff) * cuda_host_bf16(b & 0xffff)) |
           cuda_host_to_bf16(cuda_host_bf16(a >> 16) * cuda_host_bf16(b >> 16)) << 16;
}
static inline float exp2_fast(float x) { return x < -126 ? 0 : exp2f(x); }
static inline float reciprocal_fast(float x) { return 1.0f / x; }
static inline void keep_here(uint32_t &) {}
template <int N> static inline void fewer_registers() {}
template <int N> static inline void more_registers() {}

#endif
