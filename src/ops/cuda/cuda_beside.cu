// cuda_beside.cu - host functions beside the device: a second stream that waits for the first one's work so far, copies rows to
// pinned memory and calls the function from the driver's thread; the first stream waits for it where it is joined. Nobody else waits:
// the thread that queues a step goes on.
//
// What a call needs lies in a ring until the function has returned, since many may be queued. The driver's thread must not call CUDA.
#include "ops/cuda/cuda.cuh"

static void CUDART_CB run_call(void *p) {
    const by_cuda_call *call = static_cast<const by_cuda_call *>(p);
    uint64_t *done = call->done;
    call->run(call->arg, call->which, call->n);
    __atomic_fetch_add(done, 1, __ATOMIC_RELEASE); /* the place in the ring is free */
}

by_status by_cuda_beside_init(by_device *dev, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    if (c->side) return BY_OK;
    BY_CUDA_TRY(err, cudaEventCreateWithFlags(&c->forked, cudaEventDisableTiming));
    BY_CUDA_TRY(err, cudaEventCreateWithFlags(&c->joined, cudaEventDisableTiming));
    BY_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->side, cudaStreamNonBlocking));
    return BY_OK;
}

void by_cuda_beside_close(by_cuda *c) {
    if (c->side) cudaStreamSynchronize(c->side);
    if (c->side) cudaStreamDestroy(c->side);
    if (c->forked) cudaEventDestroy(c->forked);
    if (c->joined) cudaEventDestroy(c->joined);
}

static by_status queue(by_cuda *c, const by_beside *what, by_err *err) {
    if (c->calls_begun - __atomic_load_n(&c->calls_done, __ATOMIC_ACQUIRE) >= BY_CUDA_CALLS) { /* far more than a step has */
        c->syncs++;
        BY_CUDA_TRY(err, cudaStreamSynchronize(c->side));
    }
    BY_CUDA_TRY(err, cudaEventRecord(c->forked, c->stream));
    BY_CUDA_TRY(err, cudaStreamWaitEvent(c->side, c->forked, 0));
    for (int i = 0; i < what->n_copies; i++) {
        const by_tensor &from = what->copy[i].from;
        size_t n = static_cast<size_t>(from.rows * from.stride);
        if (n) BY_CUDA_TRY(err, cudaMemcpyAsync(what->copy[i].to->ptr, from.mem->ptr + from.off, n, cudaMemcpyDeviceToHost, c->side));
    }
    by_cuda_call *call = &c->calls[c->calls_begun % BY_CUDA_CALLS];
    *call = {what->run, what->arg, what->which, what->n, &c->calls_done};
    BY_CUDA_TRY(err, cudaLaunchHostFunc(c->side, run_call, call));
    c->calls_begun++;
    BY_CUDA_TRY(err, cudaEventRecord(c->joined, c->side));
    return BY_OK;
}

by_status by_cuda_beside(by_device *dev, const by_beside *what, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    assert(c->side && !c->runs_beside);
    BY_TRY(by_cuda_refuse_record(c, "work beside the device", err));
    by_status status = queue(c, what, err);
    if (status < 0) cudaStreamSynchronize(c->side); /* what it queued before it failed: nothing of it runs when this returns */
    c->runs_beside = status >= 0;
    return status;
}

by_status by_cuda_join(by_device *dev, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    if (!c->runs_beside) return BY_OK;
    c->runs_beside = false;
    BY_CUDA_TRY(err, cudaStreamWaitEvent(c->stream, c->joined, 0));
    return BY_OK;
}

by_status by_cuda_moe_part(by_device *dev, const by_moe_part_args *a, by_err *err) {
    (void)dev;
    (void)a;
    return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: products of experts for another device's sum");
}
