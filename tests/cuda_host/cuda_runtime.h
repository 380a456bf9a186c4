/* cuda_runtime.h - stands in for the header of the CUDA toolkit where kernels run on the host (cuda_host.h): as much of the runtime
 * and of the device's functions as src/ops/cuda uses. */
#ifndef BY_CUDA_HOST_RUNTIME_H
#define BY_CUDA_HOST_RUNTIME_H

#include <algorithm>
#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>

#include "cuda_host/cuda_host.h"
#include "cuda_host/cuda_host_counts.h"

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static /* one for all blocks, which run one after another, but for those of a cluster: they have the two below */
#define BY_CUDA_DYNAMIC(T, name) T *name = cuda_host::dynamic_smem()
#define BY_CUDA_SHARED(T, name, n) T *name = cuda_host::static_smem((n) * sizeof(T))

/* ---- types ------------------------------------------------------------------------------------------------------ */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

struct __align__(8) float2 {
    float x, y;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
struct __align__(8) uint2 {
    uint32_t x, y;
};
struct __align__(16) uint4 {
    uint32_t x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

/* ---- runtime ---------------------------------------------------------------------------------------------------- */

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorInvalidConfiguration,
    cudaErrorStreamCaptureUnsupported,
    cudaErrorStreamCaptureInvalidated,
    cudaErrorCapturedEvent,
    cudaErrorNotReady
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum { cudaHostRegisterMapped, cudaHostRegisterReadOnly, cudaHostAllocMapped, cudaHostAllocPortable };
enum { cudaStreamNonBlocking, cudaEventDisableTiming };
#define CUDART_CB
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
typedef struct cuda_host_stream *cudaStream_t;
typedef struct cuda_host_event *cudaEvent_t;
typedef struct cuda_host_graph *cudaGraph_t;
typedef struct cuda_host_exec *cudaGraphExec_t;
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t sharedMemPerBlockOptin;
};

cudaError_t cudaPeekAtLastError(), cudaGetLastError();
const char *cudaGetErrorString(cudaError_t rc);
cudaError_t cudaMalloc(void **p, size_t n);
template <class T> cudaError_t cudaMalloc(T **p, size_t n) { return cudaMalloc(reinterpret_cast<void **>(p), n); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags);
cudaError_t cudaFree(void *p);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute which, int value);
static inline cudaError_t cudaGetDeviceCount(int *n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
static inline cudaError_t cudaHostGetDevicePointer(void **seen, void *p, unsigned) {
    *seen = p;
    return cudaSuccess;
}
static inline cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) {
    *unused = *all = static_cast<size_t>(1) << 36;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*f)(void *), void *arg);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g);

static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { /* no time passes here that means anything */
    *ms = 1;
    return cudaSuccess;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 1, cudaLaunchAttributeClusterDimension };
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
        struct {
            unsigned x, y, z;
        } clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
cudaError_t cuda_host_report(cudaError_t rc);
cudaError_t cuda_host_queue_kernel(cudaStream_t s, std::function<void()> run);
template <class... P, class... A> static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A... args) {
    unsigned cluster = 1;
    bool chained = false;
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = c->attrs[i].val.clusterDim.x;
        else chained |= c->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    cuda_host::size3 grid = {c->gridDim.x, c->gridDim.y, c->gridDim.z}, block = {c->blockDim.x, c->blockDim.y, c->blockDim.z};
    const void *name = reinterpret_cast<const void *>(kernel);
    size_t smem = c->dynamicSmemBytes;
    if (!cuda_host::accepts(grid, block, cluster, smem, name)) return cuda_host_report(cudaErrorInvalidConfiguration);
    std::tuple<P...> with(args...);
    return cuda_host_queue_kernel(c->stream, [=] {
        struct bound {
            void (*kernel)(P...);
            const std::tuple<P...> *with;
        } all = {kernel, &with};
        auto call = [](const void *p) { std::apply(static_cast<const bound *>(p)->kernel, *static_cast<const bound *>(p)->with); };
        cuda_host::run(grid, block, cluster, smem, chained, name, call, &all);
    });
}

/* ---- threads that work together --------------------------------------------------------------------------------- */

static inline void __syncthreads() { cuda_host::block_barrier(0); }
static inline int __syncthreads_or(int v) { return cuda_host::block_barrier(v != 0); }
static inline void __syncwarp(unsigned mask = ~0u) { cuda_host::warp_exchange(cuda_host::WARP_SYNC, mask, 0, 0, 32); }
template <class T> static inline T cuda_host_shuffle(cuda_host::warp_op op, unsigned mask, T v, int arg, int width) {
    static_assert(sizeof(T) <= 8, "one exchange moves a word or two");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = cuda_host::warp_exchange(op, mask, bits, arg, width);
    memcpy(&v, &bits, sizeof v);
    return v;
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
    return cuda_host_shuffle(cuda_host::WARP_INDEX, mask, v, lane, width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, int by, int width = 32) {
    return cuda_host_shuffle(cuda_host::WARP_UP, mask, v, by, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, int by, int width = 32) {
    return cuda_host_shuffle(cuda_host::WARP_DOWN, mask, v, by, width);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32) {
    return cuda_host_shuffle(cuda_host::WARP_XOR, mask, v, with, width);
}
static inline unsigned __ballot_sync(unsigned mask, int v) {
    return static_cast<unsigned>(cuda_host::warp_exchange(cuda_host::WARP_BALLOT, mask, v != 0, 0, 32));
}
static inline int __any_sync(unsigned mask, int v) { return __ballot_sync(mask, v) != 0; }

template <class T> static inline T atomicAdd(T *p, T v) {
    T old = *p;
    *p = old + v;
    return old;
}
template <class T> static inline T atomicMin(T *p, T v) {
    T old = *p;
    *p = v < old ? v : old;
    return old;
}
template <class T> static inline T atomicMax(T *p, T v) {
    T old = *p;
    *p = v > old ? v : old;
    return old;
}
template <class T> static inline T atomicOr(T *p, T v) {
    T old = *p;
    *p = old | v;
    return old;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static inline int min(int a, int b) { return a < b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

template <class TO, class FROM> static inline TO cuda_host_bits(FROM v) {
    TO to;
    static_assert(sizeof to == sizeof v, "the same bits");
    memcpy(&to, &v, sizeof to);
    return to;
}
static inline uint32_t __float_as_uint(float x) { return cuda_host_bits<uint32_t>(x); }
static inline float __uint_as_float(uint32_t x) { return cuda_host_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return cuda_host_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return cuda_host_bits<double>(x); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __double2float_rn(double a) { return static_cast<float>(a); }
static inline int __float2int_rn(float a) { return static_cast<int>(lrintf(a)); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf expf /* the C library has declared one */
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s) {
    uint64_t all = static_cast<uint64_t>(b) << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) r |= static_cast<uint32_t>(all >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldg(const T *p) { return *p; }

#endif
