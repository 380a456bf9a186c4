// cuda_pace.cu - how long the device works and how long it has nothing to do, by events between two waits for answers. An event costs the
// stream nothing that could be measured, and times are asked for only when everything has passed anyway.
#include "ops/cuda/cuda.cuh"

by_status by_cuda_pace_open(by_cuda *c, by_err *err) {
    by_cuda_pace *p = &c->pace;
    for (cudaEvent_t *e : {&p->began, &p->lapped, &p->ended[0], &p->ended[1]}) BY_CUDA_TRY(err, cudaEventCreate(e));
    p->rested = true;
    return BY_OK;
}

void by_cuda_pace_close(by_cuda *c) {
    by_cuda_pace *p = &c->pace;
    for (cudaEvent_t e : {p->began, p->lapped, p->ended[0], p->ended[1]})
        if (e) cudaEventDestroy(e);
}

void by_cuda_pace_begin(by_cuda *c) {
    if (c->pace.works) return;
    c->pace.works = cudaEventRecord(c->pace.began, c->stream) == cudaSuccess;
    c->pace.has_lap = false;
}

void by_cuda_pace_end(by_cuda *c) {
    by_cuda_pace *p = &c->pace;
    if (p->works) p->works = cudaEventRecord(p->ended[p->newest ^ 1], c->stream) == cudaSuccess;
}

static double seconds(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, from, to) == cudaSuccess) return static_cast<double>(ms) * 1e-3;
    cudaGetLastError(); /* see by_cuda_fail */
    return 0;
}

void by_cuda_pace_waited(by_cuda *c) {
    by_cuda_pace *p = &c->pace;
    if (!p->works) return;
    cudaEvent_t end = p->ended[p->newest ^ 1];
    p->sum.busy_s += seconds(p->began, end);
    if (!p->rested) p->sum.idle_s += seconds(p->ended[p->newest], p->began), p->sum.n_idle++;
    p->sum.lap_ms[0] = p->has_lap ? 1e3 * seconds(p->began, p->lapped) : 0;
    p->sum.lap_ms[1] = p->has_lap ? 1e3 * seconds(p->lapped, end) : 0;
    p->newest ^= 1;
    p->works = p->rested = false;
}

void by_cuda_pace_get(const by_device *dev, by_device_pace *out) { *out = static_cast<const by_cuda *>(dev->impl)->pace.sum; }

void by_cuda_lap(by_device *dev) {
    by_cuda *c = by_cuda_of(dev);
    if (c->pace.works) c->pace.has_lap = cudaEventRecord(c->pace.lapped, c->stream) == cudaSuccess;
}

void by_cuda_rests(by_device *dev) {
    by_cuda_pace *p = &by_cuda_of(dev)->pace;
    if (!p->works) p->rested = true;
}
