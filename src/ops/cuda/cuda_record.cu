// cuda_record.cu - recordings of what is queued, as CUDA graphs. Kernels that are chained in the stream stay chained in the graph: their
// launches become programmatic edges.
//
// A graph keeps the arguments of its launches. So nothing is recorded that reads host memory which changes, and nothing that waits or
// allocates; whoever would, is refused, and the recording with it.
#include "ops/cuda/cuda.cuh"

by_status by_cuda_refuse_record(const by_cuda *c, const char *what, by_err *err) {
    return c->records ? BY_FAIL(err, BY_EUNSUPPORTED, "cuda: %s cannot be recorded", what) : BY_OK;
}

/* The calling thread alone is held to what can be captured: others may open devices meanwhile. */
by_status by_cuda_record_begin(by_device *dev, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    assert(!c->records && !c->measures);
    BY_CUDA_TRY(err, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    c->records = true;
    return BY_OK;
}

by_status by_cuda_record_end(by_device *dev, void **out, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    c->records = false;
    cudaError_t rc = cudaStreamEndCapture(c->stream, &graph);
    if (!out || rc != cudaSuccess) {
        cudaGetLastError(); /* what failed inside is told by whoever failed */
        if (graph) cudaGraphDestroy(graph);
        return out ? by_cuda_fail(err, "recording", rc) : BY_OK;
    }
    rc = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    if (rc != cudaSuccess) return by_cuda_fail(err, "a graph", rc);
    *out = exec;
    return BY_OK;
}

by_status by_cuda_replay(by_device *dev, void *recorded, by_err *err) {
    BY_CUDA_TRY(err, cudaGraphLaunch(static_cast<cudaGraphExec_t>(recorded), by_cuda_of(dev)->stream));
    return BY_OK;
}

void by_cuda_forget(void *recorded) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recorded)); }
