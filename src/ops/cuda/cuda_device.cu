// cuda_device.cu - opening a CUDA device, its memory and transfers, and the table of the backend.
//
// Everything runs on one stream. Uploads go through a ring of pinned buffers, so the caller's bytes are free again on
// return while the copy may still be in flight; downloads wait. Imported bytes (weights) are copied to the device;
// `keep_on_host` ones (Engram tables) are registered where they lie and read over the bus by the kernels, or copied
// when the system refuses to register them.
#include "ops/cuda/cuda.cuh"

enum { STAGES = BY_CUDA_STAGES, STAGE_BYTES = 1 << 20, ANSWER_BYTES = 1 << 20 };

/* Takes the error from the thread too: it would stay its last one, and every later launch would report it. Errors that leave the
 * device unusable come again by themselves. */
by_status by_cuda_fail(by_err *err, const char *what, cudaError_t rc) {
    cudaGetLastError();
    by_status code = rc == cudaErrorMemoryAllocation ? BY_ENOMEM : BY_EDEVICE;
    return BY_FAIL(err, code, "cuda: %s: %s", what, cudaGetErrorString(rc));
}

/* Counts as memory of the device, like what by_mem handles take. */
by_status by_cuda_grow_scratch(by_cuda *c, size_t bytes, by_err *err) {
    by_device *dev = c->dev;
    if (bytes <= c->scratch_bytes) return BY_OK;
    BY_TRY(by_cuda_refuse_record(c, "scratch memory that grows", err));
    dev->n_gone++;
    c->syncs++;
    BY_CUDA_TRY(err, cudaStreamSynchronize(c->stream));
    if (c->scratch) BY_CUDA_TRY(err, cudaFree(c->scratch));
    dev->used -= dev->scratch_used;
    dev->scratch_used = 0;
    c->scratch = nullptr;
    c->scratch_bytes = 0;
    size_t want = by_cuda_pad(bytes);
    if (dev->limit && (dev->used > dev->limit || want > static_cast<size_t>(dev->limit - dev->used)))
        return BY_FAIL(err, BY_ENOMEM, "device memory: operators need %zu bytes of scratch, %lld of %lld are in use", want,
                       static_cast<long long>(dev->used), static_cast<long long>(dev->limit));
    cudaError_t rc = cudaMalloc(&c->scratch, want);
    if (rc != cudaSuccess) {
        c->scratch = nullptr;
        BY_TRY(by_cuda_fail(err, "scratch memory of operators", rc));
    }
    c->scratch_bytes = want;
    dev->scratch_used = static_cast<int64_t>(want);
    dev->used += dev->scratch_used;
    c->allocs++;
    return BY_OK;
}

by_status by_cuda_scratch(by_cuda *c, size_t bytes, by_err *err) {
    c->scratch_used = 0;
    c->scratch_asked = bytes;
    if (!c->measures) return bytes <= c->scratch_bytes ? BY_OK : by_cuda_grow_scratch(c, bytes + bytes / 4, err);
    if (bytes > c->most_scratch) c->most_scratch = bytes;
    return BY_OK;
}

static by_status cuda_measure(by_device *dev, bool begins, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    c->measures = begins;
    if (begins) c->most_scratch = 0;
    return begins ? BY_OK : by_cuda_grow_scratch(c, c->most_scratch, err);
}

void *by_cuda_find_table(const by_cuda *c, const void *experts, const void *shared, bool plain) {
    for (int i = 0; i < c->n_tables; i++)
        if (c->tables[i].experts == experts && c->tables[i].shared == shared && c->tables[i].plain == plain) return c->tables[i].device;
    return nullptr;
}

by_status by_cuda_keep_table(by_cuda *c, const void *experts, const void *shared, bool plain, const void *host, size_t n, void **out,
                             by_err *err) {
    *out = nullptr;
    BY_TRY(by_cuda_refuse_record(c, "a table of experts", err));
    if (c->n_tables == BY_CUDA_TABLES) return BY_FAIL(err, BY_ELIMIT, "cuda: more than %d expert tables", BY_CUDA_TABLES);
    void *device = nullptr;
    c->allocs++, c->syncs++;
    BY_CUDA_TRY(err, cudaMalloc(&device, n));
    cudaError_t rc = cudaMemcpyAsync(device, host, n, cudaMemcpyHostToDevice, c->stream);
    if (rc == cudaSuccess) rc = cudaStreamSynchronize(c->stream);
    if (rc != cudaSuccess) {
        cudaFree(device);
        return by_cuda_fail(err, "expert table", rc);
    }
    c->tables[c->n_tables++] = {experts, shared, plain, device};
    *out = device;
    return BY_OK;
}

void by_cuda_drop_tables(by_cuda *c, bool plain_only) {
    int kept = 0;
    for (int i = 0; i < c->n_tables; i++) {
        if (plain_only && !c->tables[i].plain) {
            c->tables[kept++] = c->tables[i];
        } else {
            c->dev->n_gone++; /* recordings name it */
            cudaFree(c->tables[i].device);
        }
    }
    c->n_tables = kept;
}

static void cuda_close(by_device *dev) {
    by_cuda *c = by_cuda_of(dev);
    if (!c) return;
    if (c->stream) cudaStreamSynchronize(c->stream);
    by_cuda_beside_close(c);
    by_cuda_pace_close(c);
    for (cudaEvent_t e : c->staged)
        if (e) cudaEventDestroy(e);
    by_cuda_drop_tables(c, false);
    cudaFree(c->router);
    cudaFreeHost(c->pinned);
    cudaFreeHost(c->flags_host);
    cudaFree(c->flags);
    cudaFree(c->scratch);
    if (c->stream) cudaStreamDestroy(c->stream);
    by_free(c);
    dev->impl = nullptr;
}

/* For copies that should have passed long ago: counts when they have not. */
static by_status wait_for(by_cuda *c, cudaEvent_t event, by_err *err) {
    cudaError_t rc = cudaEventQuery(event);
    if (rc == cudaSuccess) return BY_OK;
    if (rc != cudaErrorNotReady) return by_cuda_fail(err, "an upload", rc);
    cudaGetLastError(); /* not ready is an error to CUDA */
    c->syncs++;
    BY_CUDA_TRY(err, cudaEventSynchronize(event));
    return BY_OK;
}

/* Moves n bytes up through the ring. */
by_status by_cuda_upload(by_cuda *c, unsigned char *to, const void *src, size_t n, by_err *err) {
    BY_TRY(by_cuda_refuse_record(c, "an upload", err));
    by_cuda_pace_begin(c);
    const unsigned char *from = static_cast<const unsigned char *>(src);
    while (n) {
        size_t room = STAGE_BYTES - c->stage_used, part = n < room ? n : room;
        unsigned char *at = c->pinned + static_cast<size_t>(c->stage) * STAGE_BYTES + c->stage_used;
        memcpy(at, from, part);
        BY_CUDA_TRY(err, cudaMemcpyAsync(to, at, part, cudaMemcpyHostToDevice, c->stream));
        c->stage_used += by_cuda_pad(part);
        to += part;
        from += part;
        n -= part;
        if (c->stage_used < STAGE_BYTES) continue;
        BY_CUDA_TRY(err, cudaEventRecord(c->staged[c->stage], c->stream)); /* all copies from this part are in front of it */
        c->stage = (c->stage + 1) % STAGES;
        c->stage_used = 0;
        BY_TRY(wait_for(c, c->staged[c->stage], err)); /* whole models that are loaded fill the ring, nothing else */
    }
    return BY_OK;
}

static by_status cuda_alloc(by_mem *m, const void *host, bool keep_on_host, by_err *err) {
    by_cuda *c = by_cuda_of(m->dev);
    if (m->shared) { /* the device sees it at the host's address */
        BY_CUDA_TRY(err, cudaHostAlloc(reinterpret_cast<void **>(&m->ptr), m->bytes, cudaHostAllocMapped | cudaHostAllocPortable));
        memset(m->ptr, 0, m->bytes);
        return BY_OK;
    }
    if (host && keep_on_host) {
        void *p = const_cast<void *>(host), *seen = nullptr;
        unsigned flags = cudaHostRegisterMapped | cudaHostRegisterReadOnly;
        if (cudaHostRegister(p, m->bytes, flags) == cudaSuccess) {
            if (cudaHostGetDevicePointer(&seen, p, 0) == cudaSuccess) {
                m->ptr = static_cast<unsigned char *>(seen);
                m->map_bytes = m->bytes; /* marks a registered range */
                return BY_OK;
            }
            cudaHostUnregister(p);
        }
        cudaGetLastError();
    }
    c->allocs++;
    BY_CUDA_TRY(err, cudaMalloc(reinterpret_cast<void **>(&m->ptr), m->bytes));
    by_status status = BY_OK;
    if (host) {
        status = by_cuda_upload(c, m->ptr, host, m->bytes, err);
    } else {
        cudaError_t rc = cudaMemsetAsync(m->ptr, 0, m->bytes, c->stream);
        if (rc != cudaSuccess) status = by_cuda_fail(err, "clearing memory", rc);
    }
    if (status < 0) cudaFree(m->ptr);
    return status;
}

static void cuda_free(by_mem *m) {
    by_cuda *c = by_cuda_of(m->dev);
    cudaStreamSynchronize(c->stream);
    if (c->side) cudaStreamSynchronize(c->side);
    by_cuda_drop_tables(c, false);
    if (m->shared) cudaFreeHost(m->ptr);
    else if (m->map_bytes) cudaHostUnregister(m->ptr);
    else cudaFree(m->ptr);
}

/* The host has no business with weights that the kernels have rearranged. */
static by_status refuse_packed(const by_mem *m, by_err *err) {
    if (!m->packed) return BY_OK;
    return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: access to weights that were rearranged for the matrix kernels");
}

static by_status cuda_write(by_mem *m, size_t off, const void *src, size_t n, by_err *err) {
    BY_TRY(refuse_packed(m, err));
    return by_cuda_upload(by_cuda_of(m->dev), m->ptr + off, src, n, err);
}

static by_status cuda_read(void *dst, const by_mem *m, size_t off, size_t n, by_err *err) {
    BY_TRY(refuse_packed(m, err));
    const by_cuda_piece piece = {dst, m->ptr + off, n};
    return by_cuda_download(by_cuda_of(m->dev), &piece, 1, err);
}

/* Answers come through pinned memory as far as they fit: a copy to memory that may move is done in steps by the driver, which waits. */
by_status by_cuda_download(by_cuda *c, const by_cuda_piece *pieces, int n, by_err *err) {
    BY_TRY(by_cuda_refuse_record(c, "an answer", err));
    unsigned char *answer = reinterpret_cast<unsigned char *>(c->flags_host);
    size_t used = 64;
    auto fits = [&](const by_cuda_piece &p) { return p.n <= ANSWER_BYTES - used; };
    BY_CUDA_TRY(err, cudaMemcpyAsync(c->flags_host, c->flags, 4, cudaMemcpyDeviceToHost, c->stream));
    for (int i = 0; i < n; i++) {
        if (pieces[i].n == 0) continue;
        bool small = fits(pieces[i]);
        c->bytes_down += pieces[i].n;
        BY_CUDA_TRY(err, cudaMemcpyAsync(small ? answer + used : pieces[i].to, pieces[i].from, pieces[i].n, cudaMemcpyDeviceToHost, c->stream));
        if (small) used += (pieces[i].n + 63) / 64 * 64;
    }
    c->syncs++;
    by_cuda_pace_end(c);
    BY_CUDA_TRY(err, cudaStreamSynchronize(c->stream));
    by_cuda_pace_waited(c);
    used = 64;
    for (int i = 0; i < n; i++) {
        if (pieces[i].n == 0 || !fits(pieces[i])) continue;
        memcpy(pieces[i].to, answer + used, pieces[i].n);
        used += (pieces[i].n + 63) / 64 * 64;
    }
    if (*c->flags_host & BY_CUDA_FLAG_SCALE)
        return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: a weight scale is above 2^20; its products would not be exact");
    return BY_OK;
}

static by_status cuda_zero(by_mem *m, size_t off, size_t n, by_err *err) {
    BY_TRY(refuse_packed(m, err));
    if (n) BY_CUDA_TRY(err, cudaMemsetAsync(m->ptr + off, 0, n, by_cuda_of(m->dev)->stream));
    return BY_OK;
}

static by_status cuda_copy(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *err) {
    BY_TRY(refuse_packed(src, err));
    BY_TRY(refuse_packed(dst, err));
    if (n)
        BY_CUDA_TRY(err, cudaMemcpyAsync(dst->ptr + dst_off, src->ptr + src_off, n, cudaMemcpyDefault,
                                         by_cuda_of(dst->dev)->stream));
    return BY_OK;
}

__global__ void read_rate_kernel(const uint4 *p, size_t n, int32_t *out) {
    uint32_t s = 0;
    size_t step = static_cast<size_t>(gridDim.x) * blockDim.x * 8;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) * 8 + threadIdx.x; i + 7 * blockDim.x < n; i += step) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            uint4 v = __ldcs(p + i + k * blockDim.x);
            s ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    }
    if (s == 0x12345678) atomicOr(out, 0); /* the reads must not be dropped */
}

static by_status cuda_read_rate(by_device *dev, double *bytes_per_s, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    size_t bytes = static_cast<size_t>(2) << 30;
    void *p = nullptr;
    cudaEvent_t a, b;
    float best = 0;
    while (cudaMalloc(&p, bytes) != cudaSuccess) { /* a model has left little; 256 MiB are still more than the L2 cache holds */
        cudaGetLastError();
        bytes /= 2;
        if (bytes < static_cast<size_t>(256) << 20) return BY_FAIL(err, BY_ENOMEM, "cuda: no memory is left to measure the read rate with");
    }
    cudaMemsetAsync(p, 1, bytes, c->stream);
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    for (int i = 0; i < 6; i++) {
        float ms = 0;
        cudaEventRecord(a, c->stream);
        by_cuda_launch(c, read_rate_kernel, dim3(static_cast<unsigned>(c->sms * 8)), 512, 0, static_cast<const uint4 *>(p), bytes / 16,
                       c->flags);
        cudaEventRecord(b, c->stream);
        cudaEventSynchronize(b);
        cudaEventElapsedTime(&ms, a, b);
        if (ms > 0 && (best == 0 || ms < best)) best = ms;
    }
    cudaError_t rc = cudaGetLastError();
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    cudaFree(p);
    if (rc != cudaSuccess || best <= 0) return by_cuda_fail(err, "read rate", rc);
    *bytes_per_s = static_cast<double>(bytes) / best * 1e3;
    return BY_OK;
}

static void cuda_counts(const by_device *dev, by_device_counts *out) {
    const by_cuda *c = static_cast<const by_cuda *>(dev->impl);
    *out = {c->allocs, c->syncs, c->bytes_down};
}

static by_status cuda_memory(by_device *dev, int64_t *total, int64_t *unused, by_err *err) {
    (void)dev;
    size_t free_bytes = 0, all = 0;
    BY_CUDA_TRY(err, cudaMemGetInfo(&free_bytes, &all));
    *total = static_cast<int64_t>(all);
    *unused = static_cast<int64_t>(free_bytes);
    return BY_OK;
}

static void *cuda_host_alloc(size_t n) {
    void *p = nullptr;
    if (cudaHostAlloc(&p, n, 0) == cudaSuccess) return p;
    cudaGetLastError(); /* see by_cuda_fail */
    return nullptr;
}
static void cuda_host_free(void *p) {
    if (p) cudaFreeHost(p);
}

static by_status cuda_send(by_mem *m, size_t off, const void *src, size_t n, void **mark, by_err *err) {
    by_cuda *c = by_cuda_of(m->dev);
    BY_TRY(refuse_packed(m, err));
    BY_TRY(by_cuda_refuse_record(c, "an upload", err));
    cudaEvent_t event = static_cast<cudaEvent_t>(*mark);
    if (!event) BY_CUDA_TRY(err, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *mark = event;
    by_cuda_pace_begin(c);
    if (n) BY_CUDA_TRY(err, cudaMemcpyAsync(m->ptr + off, src, n, cudaMemcpyHostToDevice, c->stream));
    BY_CUDA_TRY(err, cudaEventRecord(event, c->stream));
    return BY_OK;
}
static by_status cuda_sent(by_device *dev, void *mark, by_err *err) {
    return wait_for(by_cuda_of(dev), static_cast<cudaEvent_t>(mark), err);
}
static void cuda_drop_mark(void *mark) {
    if (mark) cudaEventDestroy(static_cast<cudaEvent_t>(mark));
}

static const by_mem_vt cuda_vt = {cuda_close, cuda_measure, cuda_alloc, cuda_free, cuda_write, cuda_read, cuda_zero, cuda_copy, cuda_read_rate,
                                  by_cuda_draw, by_cuda_draw_room, cuda_host_alloc, cuda_host_free, cuda_send, cuda_sent, cuda_drop_mark,
                                  cuda_counts, cuda_memory, by_cuda_beside_init, by_cuda_beside, by_cuda_join, by_cuda_record_begin,
                                  by_cuda_record_end, by_cuda_replay, by_cuda_forget, by_cuda_pace_get, by_cuda_lap, by_cuda_rests};

static by_status open_state(by_cuda *c, const char **name, by_err *err) {
    static char text[280];
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return BY_FAIL(err, BY_EUNSUPPORTED, "backend cuda: this machine has no device that the driver shows");
    cudaDeviceProp p;
    BY_CUDA_TRY(err, cudaGetDeviceProperties(&p, 0));
    if (p.major < 9)
        return BY_FAIL(err, BY_EUNSUPPORTED, "backend cuda: %s has compute capability %d.%d, 9.0 is needed", p.name, p.major,
                       p.minor);
    snprintf(text, sizeof text, "cuda (%s)", p.name);
    *name = text;
    c->sms = p.multiProcessorCount;
    c->wgmma = p.major == 9;
    c->smem_max = p.sharedMemPerBlockOptin;
    BY_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    BY_CUDA_TRY(err, cudaHostAlloc(reinterpret_cast<void **>(&c->pinned), static_cast<size_t>(STAGES) * STAGE_BYTES, 0));
    BY_CUDA_TRY(err, cudaHostAlloc(reinterpret_cast<void **>(&c->flags_host), ANSWER_BYTES, 0));
    BY_CUDA_TRY(err, cudaMalloc(reinterpret_cast<void **>(&c->flags), 256));
    BY_CUDA_TRY(err, cudaMemsetAsync(c->flags, 0, 256, c->stream));
    c->router_bytes = 16 << 20; /* 10,922 rows of 384 experts; more go in slices */
    BY_CUDA_TRY(err, cudaMalloc(reinterpret_cast<void **>(&c->router), c->router_bytes));
    for (cudaEvent_t &e : c->staged) BY_CUDA_TRY(err, cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    BY_TRY(by_cuda_pace_open(c, err));
    return by_cuda_few_probe(c, err);
}

extern "C" by_status by_ops_cuda_open(by_device *dev, by_err *err) {
    by_cuda *c = static_cast<by_cuda *>(by_alloc_zero(BY_MEM_TENSOR, sizeof(by_cuda)));
    if (!c) return BY_FAIL(err, BY_ENOMEM, "out of memory for a device");
    c->dev = dev;
    dev->impl = c;
    dev->vt = &cuda_vt;
#define BY_CUDA_ROW(name) dev->ops.name = by_cuda_##name;
    BY_OP_TABLE(BY_CUDA_ROW)
#undef BY_CUDA_ROW
    return open_state(c, &dev->name, err); /* on failure the caller closes the device */
}
