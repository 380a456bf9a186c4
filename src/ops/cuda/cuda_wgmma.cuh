// cuda_wgmma.cuh - the warpgroup matrix instruction of SM90 at the tile widths in use, and its descriptors.
// D[64][N] += A[64][16] * B[16][N]: A from registers, B from shared memory (N rows of 64 k values, 128-byte swizzle), bf16
// products, fp32 sums.
//
// On other architectures the instruction does not exist and the function body traps: the host never launches it there.
#ifndef BY_OPS_CUDA_WGMMA_CUH
#define BY_OPS_CUDA_WGMMA_CUH

#include "ops/cuda/cuda.cuh"

// Descriptor of rows of 128 bytes (64 bf16), swizzled by 128 bytes, groups of 8 rows 1024 bytes apart.
__device__ static inline uint64_t wgmma_desc(uint32_t addr) {
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (addr >> 4 & 0x3fff);
}

/* The same `bytes` further on, a multiple of 16; all of shared memory fits the field, so nothing has to be masked again. */
__device__ static inline uint64_t wgmma_ahead(uint64_t desc, uint32_t bytes) {
    return (desc >> 32) << 32 | (static_cast<uint32_t>(desc) + (bytes >> 4));
}

/* Of an operand that is 16 rows (k) of N values, stored as blocks of 64 values: rows of 128 bytes, swizzled; the descriptor carries the
 * distance of blocks. */
__device__ static inline uint64_t wgmma_desc_wide(uint32_t addr, uint32_t block_bytes) {
    return 1ull << 62 | 64ull << 32 | static_cast<uint64_t>(block_bytes >> 4) << 16 | (addr >> 4 & 0x3fff);
}

/* d += a b: a in registers, b the rows that `desc` describes. */
template <int N> __device__ static inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t desc);
/* The same with both operands in shared memory. TB = 0: b as above. TB = 1: described by wgmma_desc_wide. */
template <int N, int TB> __device__ static inline void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b);

#ifdef BY_CUDA_HOST
#include <cuda_host_wgmma.h>
#else

__device__ static inline void wgmma_fence() {
#ifdef BY_HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ static inline void wgmma_commit() {
#ifdef BY_HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N> __device__ static inline void wgmma_wait() {
#ifdef BY_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
// The compiler does not know that the instruction writes d later than it stands: after a wait, this keeps uses of d behind.
template <int N> __device__ static inline void wgmma_done(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// Register lists of the instruction: the numbers of the sums in its text, and the sums as operands.
#define BY_D4 "%0, %1, %2, %3"
#define BY_D8 BY_D4 ", %4, %5, %6, %7"
#define BY_D12 BY_D8 ", %8, %9, %10, %11"
#define BY_D16 BY_D12 ", %12, %13, %14, %15"
#define BY_D24 BY_D16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define BY_D32 BY_D24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define BY_D40 BY_D32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define BY_D48 BY_D40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define BY_D56 BY_D48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define BY_D64 BY_D56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define BY_D96 BY_D64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
    "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define BY_D128 BY_D64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
    "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
    "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define BY_R4(b) "+f"(d[b]), "+f"(d[(b) + 1]), "+f"(d[(b) + 2]), "+f"(d[(b) + 3])
#define BY_R8(b) BY_R4(b), BY_R4((b) + 4)
#define BY_R16(b) BY_R8(b), BY_R8((b) + 8)
#define BY_R32(b) BY_R16(b), BY_R16((b) + 16)
#define BY_R64(b) BY_R32(b), BY_R32((b) + 32)
#define BY_R96(b) BY_R64(b), BY_R32((b) + 64)
#define BY_R128(b) BY_R64(b), BY_R64((b) + 64)
#define BY_R12(b) BY_R8(b), BY_R4((b) + 8)
#define BY_R24(b) BY_R16(b), BY_R8((b) + 16)
#define BY_R40(b) BY_R32(b), BY_R8((b) + 32)
#define BY_R48(b) BY_R32(b), BY_R16((b) + 32)
#define BY_R56(b) BY_R32(b), BY_R24((b) + 32)

#ifdef BY_HAS_WGMMA
/* N: width; R: registers of sums; the last arguments are the numbers of the operands behind them. */
#define BY_WGMMA_RS(N, R, A0, A1, A2, A3, B)                                                                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" BY_D##R "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B \
                 ", 1, 1, 1, 0;"                                                                                       \
                 : BY_R##R(0)                                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc))
#define BY_WGMMA_SS(N, R, TB, A, B)                                                                                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" BY_D##R "}, " A ", " B ", 1, 1, 1, 0, " #TB ";" \
                 : BY_R##R(0)                                                                                          \
                 : "l"(a), "l"(b))
#else
#define BY_WGMMA_RS(...) (void)d, (void)a, (void)desc, __trap()
#define BY_WGMMA_SS(...) (void)d, (void)a, (void)b, __trap()
#endif

#define BY_WGMMA_DEF(N, R, A0, A1, A2, A3, B)                                                                          \
    template <> __device__ inline void wgmma<N>(float(&d)[R], const uint32_t (&a)[4], uint64_t desc) {                 \
        BY_WGMMA_RS(N, R, A0, A1, A2, A3, B);                                                                          \
    }
BY_WGMMA_DEF(8, 4, "%4", "%5", "%6", "%7", "%8")
BY_WGMMA_DEF(16, 8, "%8", "%9", "%10", "%11", "%12")
BY_WGMMA_DEF(24, 12, "%12", "%13", "%14", "%15", "%16")
BY_WGMMA_DEF(32, 16, "%16", "%17", "%18", "%19", "%20")
BY_WGMMA_DEF(48, 24, "%24", "%25", "%26", "%27", "%28")
BY_WGMMA_DEF(64, 32, "%32", "%33", "%34", "%35", "%36")
BY_WGMMA_DEF(80, 40, "%40", "%41", "%42", "%43", "%44")
BY_WGMMA_DEF(96, 48, "%48", "%49", "%50", "%51", "%52")
BY_WGMMA_DEF(112, 56, "%56", "%57", "%58", "%59", "%60")
BY_WGMMA_DEF(128, 64, "%64", "%65", "%66", "%67", "%68")
BY_WGMMA_DEF(256, 128, "%128", "%129", "%130", "%131", "%132")

#define BY_WGMMA_SS_DEF(N, R, TB, A, B)                                                                                \
    template <> __device__ inline void wgmma_ss<N, TB>(float(&d)[R], uint64_t a, uint64_t b) { BY_WGMMA_SS(N, R, TB, A, B); }
BY_WGMMA_SS_DEF(8, 4, 0, "%4", "%5")
BY_WGMMA_SS_DEF(16, 8, 0, "%8", "%9")
BY_WGMMA_SS_DEF(32, 16, 0, "%16", "%17")
BY_WGMMA_SS_DEF(64, 32, 0, "%32", "%33")
BY_WGMMA_SS_DEF(80, 40, 0, "%40", "%41")
BY_WGMMA_SS_DEF(128, 64, 0, "%64", "%65")
BY_WGMMA_SS_DEF(192, 96, 0, "%96", "%97")
BY_WGMMA_SS_DEF(256, 128, 0, "%128", "%129")
BY_WGMMA_SS_DEF(128, 64, 1, "%64", "%65")
BY_WGMMA_SS_DEF(256, 128, 1, "%128", "%129")

#endif // BY_CUDA_HOST

#endif
