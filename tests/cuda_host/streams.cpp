// streams.cpp - the stand-in's streams and chains themselves: each mistake that the modes late, rush and early are there for is made, and
// must show.
// The second argument of `expect` says whether the answer is the right one. Exit code 1 when something differs.
#include "cuda_host/cuda_runtime.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int n_failed;
static void expect(const char *what, bool ok) {
    printf("%s %s\n", what, ok ? "ok" : "FAILED");
    n_failed += !ok;
}

__global__ static void add(int *p, int v) { *p += v; }
__global__ static void copy(int *to, const int *from) { *to = *from; }

/* Chained. next: whether the next one may start in front of the wait. */
__global__ static void put(int *p, int v, bool next) {
    if (next) cuda_host::depend_launch();
    cuda_host::depend_wait();
    *p = v;
    cuda_host::depend_launch();
}
__global__ static void copy_early(int *to, const int *from) {
    int v = *from;
    cuda_host::depend_wait();
    cuda_host::depend_launch();
    *to = v;
}
__global__ static void copy_in_time(int *to, const int *from) {
    cuda_host::depend_launch();
    cuda_host::depend_wait();
    *to = *from;
}
__global__ static void put_early(int *p, int v) {
    *p = v;
    cuda_host::depend_wait();
}

static cudaStream_t main_stream, side;
static cudaEvent_t forked, joined;
static int *a, *b, *host; /* two words of the device, two pinned ones */

template <class... P, class... A> static cudaError_t launch(cudaStream_t s, void (*kernel)(P...), A... args) {
    cudaLaunchConfig_t c = {};
    c.stream = s;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}
template <class... P, class... A> static void chain(void (*kernel)(P...), A... args) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute attr = {};
    attr.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr.val.programmaticStreamSerializationAllowed = 1;
    c.stream = main_stream;
    c.attrs = &attr;
    c.numAttrs = 1;
    cudaLaunchKernelEx(&c, kernel, P(args)...);
}
static void set(int *p, int v) {
    cudaMemcpyAsync(p, &v, 4, cudaMemcpyHostToDevice, main_stream); /* pageable: read at once */
    cudaStreamSynchronize(main_stream);
}
static int get(cudaStream_t s, const int *p) {
    cudaMemcpyAsync(host + 1, p, 4, cudaMemcpyDeviceToHost, s);
    cudaStreamSynchronize(s);
    return host[1];
}

/* b = a + 1 beside, between a += 1 on both sides; what the main stream sees of b. */
static int beside(bool forks, bool joins) {
    set(a, 10);
    set(b, 0);
    launch(main_stream, add, a, 1);
    if (forks) {
        cudaEventRecord(forked, main_stream);
        cudaStreamWaitEvent(side, forked);
    }
    launch(side, copy, b, a);
    cudaEventRecord(joined, side);
    if (joins) cudaStreamWaitEvent(main_stream, joined);
    int seen = get(main_stream, b);
    cudaStreamSynchronize(side);
    return seen;
}

/* Whether f ends the program. */
static bool aborts(void (*f)()) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        f();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}
static void overwrite_early() {
    host[0] = 1;
    cudaMemcpyAsync(a, host, 4, cudaMemcpyHostToDevice, main_stream);
    host[0] = 2; /* the copy may not have run */
    cudaStreamSynchronize(main_stream);
}
static void overwrite_behind_event() {
    host[0] = 1;
    cudaMemcpyAsync(a, host, 4, cudaMemcpyHostToDevice, main_stream);
    cudaEventRecord(forked, main_stream);
    cudaEventSynchronize(forked);
    host[0] = 2;
    cudaStreamSynchronize(main_stream);
}
static void call_from_host_function() {
    cudaLaunchHostFunc(side, [](void *) { cudaEventRecord(joined, side); }, nullptr);
    cudaStreamSynchronize(side);
}

static void graphs() {
    cudaGraph_t g = nullptr;
    cudaGraphExec_t exec = nullptr;
    set(a, 0);
    int baked = 1;
    cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal);
    launch(main_stream, add, a, baked);
    cudaMemcpyAsync(b, a, 4, cudaMemcpyDeviceToDevice, main_stream);
    expect("a capture ends", cudaStreamEndCapture(main_stream, &g) == cudaSuccess && cudaGraphInstantiate(&exec, g) == cudaSuccess);
    expect("a capture runs nothing", get(main_stream, a) == 0);
    baked = 100; /* changes nothing in the graph */
    for (int i = 0; i < 3; i++) cudaGraphLaunch(exec, main_stream);
    expect("a graph repeats what it was made of", get(main_stream, b) == 3);
    cudaGraphDestroy(g);
    cudaGraphExecDestroy(exec);
    void *p = nullptr;
    cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal);
    bool refused = cudaMalloc(&p, 4) != cudaSuccess || cudaStreamSynchronize(main_stream) != cudaSuccess;
    expect("a capture with an allocation is none", cudaStreamEndCapture(main_stream, &g) != cudaSuccess && refused && !g);
    cudaGetLastError();
    expect("the stream goes on behind it", get(main_stream, b) == 3);
}

/* What a kernel reads of a that the first of the two before it wrote; `passes`: the second lets it start in front of its own wait. */
static int two_back(bool passes) {
    set(a, 1);
    chain(put, a, 2, false);
    chain(put, b + 1, 0, passes);
    chain(copy_early, b, a);
    return get(main_stream, b);
}
static void write_early() {
    chain(put, a, 3, false);
    chain(put_early, a, 4);
    cudaStreamSynchronize(main_stream);
}
static void chains(bool early) {
    set(a, 1);
    chain(copy_early, b, a);
    expect("a chained kernel behind a copy reads at once", get(main_stream, b) == 1);
    chain(put, a, 2, true);
    chain(copy_in_time, b, a);
    expect("a chained kernel that waits", get(main_stream, b) == 2);
    chain(put, a, 3, false);
    chain(copy_early, b, a);
    expect("a chained kernel that does not", get(main_stream, b) == (early ? -1 : 3));
    launch(main_stream, put, a, 4, false);
    launch(main_stream, copy_early, b, a);
    expect("a kernel that is not chained", get(main_stream, b) == 4);
    expect("two kernels back", two_back(false) == 2);
    expect("two kernels back, past one that did not wait first", two_back(true) == (early ? -1 : 2));
    expect("a chained kernel that writes in front of its wait", aborts(write_early) == early);
}

int main() {
    const char *how = getenv("CUDA_HOST_STREAMS");
    bool late = how && !strcmp(how, "late"), rush = how && !strcmp(how, "rush");
    cudaStreamCreateWithFlags(&main_stream, 0);
    cudaStreamCreateWithFlags(&side, 0);
    cudaEventCreate(&forked);
    cudaEventCreate(&joined);
    cudaMalloc(&a, 4);
    cudaMalloc(&b, 8);
    void *pinned = nullptr;
    cudaHostAlloc(&pinned, 8, 0);
    host = static_cast<int *>(pinned);
    expect("fork and join", beside(true, true) == 11);
    expect("a missing join", beside(true, false) == (late ? 0 : 11)); /* rush: the side has run, as it may */
    expect("a missing fork", beside(false, true) == (rush ? 10 : 11));
    expect("pinned memory that changes too early", aborts(overwrite_early) == (late || rush));
    expect("pinned memory that changes in time", !aborts(overwrite_behind_event));
    expect("a host function that calls the runtime", aborts(call_from_host_function));
    set(a, 5);
    host[1] = 7;
    cudaMemcpyAsync(host + 1, a, 4, cudaMemcpyDeviceToHost, main_stream);
    expect("an answer that is read too early", (host[1] != 5 && host[1] != 7) == (late || rush));
    cudaStreamSynchronize(main_stream);
    uint64_t waits = cuda_host_counts_get().waits;
    cudaEventRecord(forked, main_stream);
    cudaEventSynchronize(forked);
    expect("an event that has passed is no wait", cuda_host_counts_get().waits == waits);
    int word = 0;
    cudaMemcpyAsync(&word, a, 4, cudaMemcpyDeviceToHost, main_stream);
    expect("a copy to pageable memory is one", cuda_host_counts_get().waits == waits + 1 && word == 5);
    graphs();
    chains(cuda_host::chain_checks());
    cudaFree(a);
    cudaFree(b);
    cudaFreeHost(pinned);
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaStreamDestroy(side);
    cudaStreamDestroy(main_stream);
    return n_failed != 0;
}
