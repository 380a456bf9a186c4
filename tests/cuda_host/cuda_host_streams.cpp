// cuda_host_streams.cpp - streams, events, graphs and memory of the stand-in for a CUDA device. See cuda_host.h for the modes.
//
// What is queued is a list of steps a stream, with every parameter copied where the real runtime copies it. A step of a stream runs
// when somebody waits for it, after all in front of it; a wait for an event runs the other stream as far as that event, no further.
// So work runs as late as CUDA's rules allow: a join that is missing leaves the other stream's work undone, and bytes that the host
// changes too early are those that the device gets.
#include "cuda_host/cuda_runtime.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <vector>

using task = std::function<void()>;

struct cuda_host_stream {
    struct step {
        task run;                /* empty: wait for `other` */
        cuda_host_stream *other;
        uint64_t until;
    };
    std::deque<step> queue;
    uint64_t queued, done;
    cuda_host_graph *captures;   /* what is queued now becomes part of it */
};
struct cuda_host_event {
    cuda_host_stream *on; /* NULL: never recorded */
    uint64_t at;          /* done when the stream has done so many steps */
    bool captured;
};
struct cuda_host_graph {
    std::shared_ptr<std::vector<task>> steps;
    bool broken; /* something was called that a capture does not allow */
};
struct cuda_host_exec {
    std::shared_ptr<std::vector<task>> steps;
};

namespace {

enum mode { NOW, LATE, RUSH };

struct runtime {
    std::recursive_mutex lock;
    std::map<const void *, size_t> device, pinned; /* allocations and registered ranges */
    std::vector<cuda_host_stream *> streams;
    int capturing = 0, in_host_function = 0, runs = 0;
    cudaError_t last_error = cudaSuccess;
    cuda_host_counts counts = {};
    mode how = NOW;
    runtime() {
        const char *name = getenv("CUDA_HOST_STREAMS");
        how = !name || !strcmp(name, "now") ? NOW : !strcmp(name, "rush") ? RUSH : LATE;
    }
};
runtime &rt() {
    static runtime *all = new runtime(); /* never destroyed: other objects' destructors may come here */
    return *all;
}

/* Every call of the runtime begins with one. */
struct call {
    std::lock_guard<std::recursive_mutex> held;
    explicit call(const char *name) : held(rt().lock) {
        if (!rt().in_host_function) return;
        fprintf(stderr, "cuda_host: %s is called from a host function\n", name);
        abort();
    }
};

cudaError_t report(cudaError_t rc) {
    if (rc != cudaSuccess) rt().last_error = rc;
    return rc;
}

bool within(const std::map<const void *, size_t> &ranges, const void *p, size_t n) {
    auto at = ranges.upper_bound(p);
    if (at == ranges.begin()) return false;
    --at;
    size_t off = static_cast<size_t>(static_cast<const char *>(p) - static_cast<const char *>(at->first));
    return off <= at->second && n <= at->second - off;
}

/* Runs steps of s until it has done `until` of them. True when there was something to do. */
bool run_until(cuda_host_stream *s, uint64_t until) {
    bool any = false;
    while (s->done < until) {
        cuda_host_stream::step next = std::move(s->queue.front());
        s->queue.pop_front();
        s->done++; /* first: host functions may not come back here, but a failing kernel prints */
        if (next.run) next.run();
        else run_until(next.other, next.until);
        any = true;
    }
    return any;
}
bool run_all() {
    bool any = false;
    for (cuda_host_stream *s : rt().streams) any |= run_until(s, s->queued);
    return any;
}

/* A capture that is broken stays so until its end. */
cudaError_t forbidden(cuda_host_stream *s) {
    if (s) s->captures->broken = true;
    for (cuda_host_stream *other : rt().streams)
        if (!s && other->captures) other->captures->broken = true;
    return report(cudaErrorStreamCaptureUnsupported);
}

void push(cuda_host_stream *s, cuda_host_stream::step step) {
    s->queue.push_back(std::move(step));
    s->queued++;
    bool first = !rt().streams.empty() && rt().streams[0] == s;
    if (rt().how == NOW || (rt().how == RUSH && !first)) run_until(s, s->queued);
}
void queue(cuda_host_stream *s, task step, bool is_kernel = false) {
    task run = is_kernel ? std::move(step) : [step] {
        cuda_host::chain_cut();
        step();
    };
    if (s->captures) s->captures->steps->push_back(std::move(run));
    else push(s, {std::move(run), nullptr, 0});
}

uint64_t sum_of(const void *p, size_t n) {
    const unsigned char *b = static_cast<const unsigned char *>(p);
    uint64_t h = 1469598103934665603ull, w;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) memcpy(&w, b + i, 8), h = (h ^ w) * 1099511628211ull, h ^= h >> 29;
    for (; i < n; i++) h = (h ^ b[i]) * 1099511628211ull;
    return h;
}

/* A host allocation of exactly n bytes, full of NaNs: what stands there before anybody writes is nothing to count on. */
cudaError_t allocate(std::map<const void *, size_t> &ranges, void **p, size_t n) {
    *p = nullptr;
    if (rt().capturing) return forbidden(nullptr);
    if (n > static_cast<size_t>(1) << 40) return report(cudaErrorMemoryAllocation);
    if (&ranges == &rt().device && cuda_host::chain_checks()) *p = cuda_host::chain_map(n ? n : 1);
    else if (posix_memalign(p, 256, n ? n : 1)) *p = nullptr;
    if (!*p) return report(cudaErrorMemoryAllocation);
    memset(*p, 0xff, n);
    ranges[*p] = n ? n : 1;
    return cudaSuccess;
}
cudaError_t release(std::map<const void *, size_t> &ranges, void *p) {
    if (!p) return cudaSuccess;
    if (rt().capturing) return forbidden(nullptr);
    auto at = ranges.find(p);
    if (at == ranges.end()) return report(cudaErrorInvalidValue);
    rt().counts.waits += run_all(); /* freeing waits for the device */
    if (&ranges == &rt().device && cuda_host::chain_checks()) cuda_host::chain_unmap(p);
    else free(p);
    ranges.erase(at);
    return cudaSuccess;
}

} // namespace

cuda_host_counts cuda_host_counts_get() { return rt().counts; }

/* ---- errors ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaPeekAtLastError() { return rt().last_error; }
cudaError_t cudaGetLastError() {
    cudaError_t rc = rt().last_error;
    rt().last_error = cudaSuccess;
    return rc;
}
const char *cudaGetErrorString(cudaError_t rc) {
    switch (rc) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    default: return "invalid configuration argument";
    }
}
cudaError_t cuda_host_report(cudaError_t rc) { return report(rc); }

/* ---- memory ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **p, size_t n) {
    call in("cudaMalloc");
    rt().counts.allocs++;
    return allocate(rt().device, p, n);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) {
    call in("cudaHostAlloc");
    rt().counts.allocs++;
    return allocate(rt().pinned, p, n);
}
cudaError_t cudaFree(void *p) {
    call in("cudaFree");
    return release(rt().device, p);
}
cudaError_t cudaFreeHost(void *p) {
    call in("cudaFreeHost");
    return release(rt().pinned, p);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned) {
    call in("cudaHostRegister");
    rt().pinned[p] = n;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p) {
    call in("cudaHostUnregister");
    rt().pinned.erase(p);
    return cudaSuccess;
}

/* Pinned memory is read and written when the copy runs. Pageable memory is read at once, and written while the caller waits. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s) {
    call in("cudaMemcpyAsync");
    bool from_device = within(rt().device, from, n), to_device = within(rt().device, to, n);
    bool from_pinned = within(rt().pinned, from, n), to_pinned = within(rt().pinned, to, n);
    if (kind == cudaMemcpyHostToDevice && (from_device || !(to_device || to_pinned))) return report(cudaErrorInvalidValue);
    if (kind == cudaMemcpyDeviceToHost && (to_device || !(from_device || from_pinned))) return report(cudaErrorInvalidValue);
    if (kind == cudaMemcpyDeviceToDevice && !((from_device || from_pinned) && (to_device || to_pinned))) return report(cudaErrorInvalidValue);
    bool from_pageable = !from_device && !from_pinned, to_pageable = !to_device && !to_pinned;
    if (s->captures && (from_pageable || to_pageable)) return forbidden(s);
    if (from_pageable) {
        auto bytes = std::make_shared<std::vector<char>>(static_cast<const char *>(from), static_cast<const char *>(from) + n);
        queue(s, [=] { memcpy(to, bytes->data(), n); });
    } else if (from_pinned && !s->captures && rt().how != NOW && kind == cudaMemcpyHostToDevice) {
        uint64_t sum = sum_of(from, n);
        queue(s, [=] {
            if (sum_of(from, n) != sum) cuda_host::fail("the host has changed pinned memory in front of the copy that reads it");
            memmove(to, from, n);
        });
    } else {
        if (to_pinned && !s->captures && rt().how != NOW && kind == cudaMemcpyDeviceToHost) memset(to, 0xff, n); /* nobody may read it yet */
        queue(s, [=] { memmove(to, from, n); });
    }
    if (to_pageable) rt().counts.waits++, run_until(s, s->queued);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s) {
    call in("cudaMemsetAsync");
    queue(s, [=] { memset(p, byte, n); });
    return cudaSuccess;
}

/* ---- streams and events ----------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    call in("cudaStreamCreateWithFlags");
    *s = new cuda_host_stream();
    rt().streams.push_back(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    call in("cudaStreamDestroy");
    run_all(); /* others may wait for what is queued here */
    rt().streams.erase(std::find(rt().streams.begin(), rt().streams.end(), s));
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    call in("cudaStreamSynchronize");
    if (s->captures) return forbidden(s);
    rt().counts.waits++;
    run_until(s, s->queued);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    call in("cudaStreamWaitEvent");
    if (s->captures || e->captured) return s->captures ? forbidden(s) : report(cudaErrorCapturedEvent); /* nobody here captures two streams */
    if (e->on && e->on != s) push(s, {nullptr, e->on, e->at});
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*f)(void *), void *arg) {
    call in("cudaLaunchHostFunc");
    queue(s, [=] {
        rt().in_host_function++;
        f(arg);
        rt().in_host_function--;
    });
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    *e = new cuda_host_event();
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    call in("cudaEventRecord");
    *e = {s, s->queued, s->captures != nullptr};
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    call in("cudaEventQuery");
    if (e->captured) return report(cudaErrorCapturedEvent);
    return e->on && e->on->done < e->at ? report(cudaErrorNotReady) : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    call in("cudaEventSynchronize");
    if (e->captured) return report(cudaErrorCapturedEvent);
    if (e->on) rt().counts.waits += run_until(e->on, e->at);
    return cudaSuccess;
}

/* ---- kernels and graphs ----------------------------------------------------------------------------------------- */

cudaError_t cuda_host_queue_kernel(cudaStream_t s, task run) {
    call in("a launch");
    queue(s, std::move(run), true);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    call in("cudaStreamBeginCapture");
    if (s->captures) return forbidden(s);
    s->captures = new cuda_host_graph{std::make_shared<std::vector<task>>(), false};
    rt().capturing++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
    call in("cudaStreamEndCapture");
    *out = s->captures;
    s->captures = nullptr;
    if (!*out) return report(cudaErrorInvalidValue);
    rt().capturing--;
    if (!(*out)->broken) return cudaSuccess;
    delete *out;
    *out = nullptr;
    return report(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long) {
    call in("cudaGraphInstantiate");
    *out = new cuda_host_exec{g->steps};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s) {
    call in("cudaGraphLaunch");
    if (s->captures) return forbidden(s);
    rt().counts.graph_launches++;
    auto steps = g->steps;
    queue(s, [steps] {
        for (const task &t : *steps) t();
    });
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
    delete g;
    return cudaSuccess;
}
