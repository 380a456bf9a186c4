// cuda_ptx.cuh - every instruction of the device that has to be written as PTX, but for the matrix instruction itself
// (cuda_wgmma.cuh): chained launches, clusters, barriers in shared memory, asynchronous copies, shared memory by address. And the sums
// of a warp.
//
// Where kernels are compiled for the host (tests/cuda_host) the same functions come from there.
#ifndef BY_OPS_CUDA_PTX_CUH
#define BY_OPS_CUDA_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Dynamic shared memory of the block, as an array of T. */
#ifndef BY_CUDA_DYNAMIC
#define BY_CUDA_DYNAMIC(T, name) extern __shared__ T name[]
#endif
/* n of them of fixed number, in kernels whose blocks may form clusters; one such array a kernel. */
#ifndef BY_CUDA_SHARED
#define BY_CUDA_SHARED(T, name, n) __shared__ T name[n]
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BY_HAS_WGMMA 1
#endif

#ifdef BY_CUDA_HOST
#include <cuda_host_ptx.h>
#else

/* Over the lanes, the same in all of them; all lanes. */
__device__ static inline float warp_sum(float v) {
    for (int m = 16; m; m >>= 1) v += __shfl_xor_sync(~0u, v, m);
    return v;
}
__device__ static inline float warp_max(float v) {
    for (int m = 16; m; m >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, m));
    return v;
}

__device__ static inline uint32_t warp_most(uint32_t v) { return __reduce_max_sync(~0u, v); }
__device__ static inline uint32_t warp_least(uint32_t v) { return __reduce_min_sync(~0u, v); }

/* See by_cuda_chain: waits for the kernels before; lets the next one start. */
__device__ static inline void depend_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ static inline void depend_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__device__ static inline void prefetch_line(const unsigned char *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* n bytes, a multiple of 16, to the L2 cache. */
__device__ static inline void bulk_prefetch(const void *p, int n) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(n) : "memory");
}

/* ---- clusters: blocks that read one another's shared memory ----------------------------------------------------- */

__device__ static inline uint32_t smem_addr(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ static inline uint32_t remote(uint32_t addr, uint32_t rank) {
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
    return r;
}
__device__ static inline float remote_f32(uint32_t addr) {
    float v;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(addr) : "memory");
    return v;
}
__device__ static inline uint32_t remote_u32(uint32_t addr) {
    uint32_t v;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}
__device__ static inline float4 remote_f32x4(uint32_t addr) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(addr) : "memory");
    return v;
}
__device__ static inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ static inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ static inline void cluster_sync() { /* threads of a warp need not arrive together */
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/* The same where nothing written before has to be seen behind: only that all have come so far. Spares the wait for this
 * thread's stores to memory. */
__device__ static inline void cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ static inline uint32_t cluster_size() {
    uint32_t n;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
    return n;
}
__device__ static inline uint32_t cluster_rank() {
    uint32_t n;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
    return n;
}

/* ---- barriers in shared memory, copies ---------------------------------------------------------------------------- */

__device__ static inline void mbar_init(uint32_t bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
/* What was set up so far is there for the other blocks of the cluster, once they meet. */
__device__ static inline void mbar_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ static inline void mbar_expect(uint32_t bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ static inline void mbar_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ static inline void mbar_wait(uint32_t bar, uint32_t parity) {
    asm volatile("{\n.reg .pred p;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, 0x989680;\n"
                 "@p bra DONE_%=;\nbra WAIT_%=;\nDONE_%=:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ static inline void bulk_load(uint32_t dst, const void *src, int bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar) : "memory");
}
__device__ static inline void cp_async16(uint32_t dst, const void *src) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
/* The same into the same place of every block of the cluster in `mask`, each completing on its own barrier. */
__device__ static inline void bulk_load_all(uint32_t dst, const void *src, int bytes, uint32_t bar, uint32_t mask) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 ::"r"(dst), "l"(src), "r"(bytes), "r"(bar), "h"(static_cast<uint16_t>(mask)) : "memory");
}
__device__ static inline void mbar_arrive_remote(uint32_t bar, uint32_t rank) {
    asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at];\n}" ::"r"(bar), "r"(rank) : "memory");
}
template <int N> __device__ static inline void cp_async_small(uint32_t dst, const void *src) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(dst), "l"(src), "n"(N) : "memory");
}
__device__ static inline void load_shared16(uint32_t *q, uint32_t at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3]) : "r"(at));
}
__device__ static inline uint32_t load_shared_byte(uint32_t at) {
    uint32_t b;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(b) : "r"(at));
    return b;
}
__device__ static inline void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ static inline void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ static inline void bar_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ static inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
/* Makes what this thread wrote to shared memory visible to the matrix unit and the copy engine. */
__device__ static inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ static inline void put16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ static inline void put4(uint32_t at, uint32_t v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
template <int OFF> __device__ static inline void put4_behind(uint32_t at, uint32_t v) {
    asm volatile("st.shared.u32 [%0+%2], %1;" ::"r"(at), "r"(v), "n"(OFF) : "memory");
}
__device__ static inline uint32_t load_shared32(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
__device__ static inline uint2 load_shared64(uint32_t at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
/* Four 8 x 8 blocks of bf16 to shared memory, turned; each thread has the address of one row. */
__device__ static inline void put_turned(uint32_t at, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3]) : "memory");
}
/* Stores to the other block that count on its barrier when they have arrived. */
__device__ static inline void send4(uint32_t to, float v, uint32_t bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(__float_as_uint(v)), "r"(bar)
                 : "memory");
}
__device__ static inline void send16(uint32_t to, float a, float b, float c, float d, uint32_t bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(__float_as_uint(c)), "r"(__float_as_uint(d)), "r"(bar) : "memory");
}
/* d += a b for the 16 x 8 outputs of a warp: thread (g, c) = (lane / 4, lane % 4) has of a rows g, g + 8 (and again) at k 2 c, 2 c + 1 (and 8
 * more), of b column g at the same k, and of d columns 2 c, 2 c + 1 of rows g and g + 8. */
__device__ static inline void mma16x8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Weights that this kernel reads once and nobody writes meanwhile. */
__device__ static inline uint4 load_once16(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ static inline float exp2_fast(float x) { /* 0 below 2^-126 */
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ static inline float reciprocal_fast(float x) { /* normal x with a normal reciprocal */
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- registers ----------------------------------------------------------------------------------------------------- */

/* Keeps the compiler from working out what depends on x before here. */
__device__ static inline void keep_here(uint32_t &x) { asm volatile("" : "+r"(x)); }
/* All warps of a warpgroup: gives registers away, or takes what others gave. */
template <int N> __device__ static inline void fewer_registers() {
#ifdef BY_HAS_WGMMA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> __device__ static inline void more_registers() {
#ifdef BY_HAS_WGMMA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

#endif // BY_CUDA_HOST

#endif
