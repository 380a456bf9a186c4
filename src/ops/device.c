/* device.c - opening devices, host memory, and the dispatch of operators. */
#include "ops/host.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/membench.h"

/* ---- dtypes and tensors --------------------------------------------------------------------------------------- */

int64_t by_dtype_row_bytes(by_dtype t, int64_t cols) {
    switch (t) {
    case BY_F32: case BY_I32: return cols * 4;
    case BY_BF16: return cols * 2;
    case BY_I64: return cols * 8;
    case BY_U8: case BY_FP8_TILE: case BY_FP8_ROW: return cols;
    case BY_A8: return cols + cols / 32;
    case BY_FP4_ROW: return cols / 2;
    case BY_IX4: return cols / 2 + cols / 32;
    }
    return 0;
}

const char *by_dtype_name(by_dtype t) {
    static const char *const names[] = {"f32", "bf16", "i32", "i64", "u8", "a8", "fp8", "fp8-row", "fp4", "ix4"};
    return (unsigned)t < sizeof names / sizeof names[0] ? names[t] : "?";
}

int64_t by_rec_bytes(by_rec rec, int64_t d) {
    switch (rec) {
    case BY_REC_F32: return 4 * d;
    case BY_REC_FP8: return d + d / 32;
    case BY_REC_FP4: return d / 2 + d / 16;
    case BY_REC_IX4: return d / 2 + d / 32;
    }
    return 0;
}

by_tensor by_tensor_make(by_mem *mem, int64_t off, by_dtype dtype, int64_t rows, int64_t cols) {
    int64_t stride = by_dtype_row_bytes(dtype, cols);
    assert(mem == NULL || (off >= 0 && rows >= 0 && (size_t)(off + rows * stride) <= by_mem_bytes(mem)));
    return (by_tensor){.mem = mem, .off = off, .stride = stride, .rows = rows, .cols = cols, .dtype = dtype};
}

by_tensor by_tensor_rows(by_tensor t, int64_t r, int64_t n) {
    assert(r >= 0 && n >= 0 && r + n <= t.rows);
    t.off += r * t.stride;
    t.rows = n;
    return t;
}

/* ---- devices -------------------------------------------------------------------------------------------------- */

#ifndef BATHYC_CUDA
by_status by_ops_cuda_open(by_device *dev, by_err *err) {
    (void)dev;
    return BY_FAIL(err, BY_EUNSUPPORTED, "backend cuda: not in this build");
}
#endif

/* Without own memory there is nothing to take a share of. */
static by_status set_limit(by_device *dev, const by_device_opts *opts, by_err *err) {
    const double share = opts->memory_share > 0 ? opts->memory_share : 0.9;
    dev->limit = opts->memory_bytes;
    if (opts->memory_bytes || !dev->vt) return BY_OK;
    int64_t total = 0, unused = 0;
    BY_TRY(dev->vt->memory(dev, &total, &unused, err));
    dev->limit = (int64_t)((double)total * share) - (total - unused);
    if (dev->limit > 0) return BY_OK;
    return BY_FAIL(err, BY_ENOMEM, "device memory: a share of %g is %.0f bytes, and %lld of %lld are in use", share, (double)total * share,
                   (long long)(total - unused), (long long)total);
}

by_status by_device_open(by_device **out, const by_device_opts *opts, by_err *err) {
    *out = NULL;
    if (opts->n_threads < 0 || opts->n_threads > BY_LIMIT_THREADS)
        return BY_FAIL(err, BY_EINVAL, "threads: %d is outside 0..%d", opts->n_threads, BY_LIMIT_THREADS);
    if (opts->memory_bytes < 0 || !(opts->memory_share >= 0 && opts->memory_share <= 1))
        return BY_FAIL(err, BY_EINVAL, "device memory: %lld bytes, share %g", (long long)opts->memory_bytes, opts->memory_share);
    by_device *dev = by_alloc_zero(BY_MEM_TENSOR, sizeof *dev);
    if (!dev) return BY_FAIL(err, BY_ENOMEM, "out of memory for a device");
    dev->backend = opts->backend;
    dev->n_threads = 1;
    by_status status = BY_OK;
    if (opts->backend == BY_BACKEND_CPU) {
        status = by_ops_cpu_open(dev, opts, err);
    } else if (opts->backend == BY_BACKEND_CUDA) {
        status = by_ops_cuda_open(dev, err);
    } else {
        dev->ops = by_ops_ref;
        dev->name = opts->backend == BY_BACKEND_GUARD ? "guard" : "ref";
    }
    if (status == BY_OK) status = set_limit(dev, opts, err);
    if (status < 0) {
        by_device_close(dev);
        return status;
    }
    *out = dev;
    return BY_OK;
}

void by_device_close(by_device *dev) {
    if (!dev) return;
    assert(!dev->mems && "memory of this device is still in use");
    by_helper_stop(dev->helper);
    if (dev->vt) dev->vt->close(dev);
    if (dev->backend == BY_BACKEND_CPU) by_ops_cpu_close(dev);
    by_free(dev->scratch);
    by_free(dev);
}

const char *by_device_name(const by_device *dev) { return dev->name; }
by_backend by_device_backend(const by_device *dev) { return dev->backend; }
int32_t by_device_threads(const by_device *dev) { return dev->n_threads; }
const by_ops *by_device_ops(const by_device *dev) { return &dev->ops; }

by_status by_device_read_rate(by_device *dev, double *bytes_per_s, by_err *err) {
    if (dev->vt) return dev->vt->read_rate(dev, bytes_per_s, err);
    return by_membench_read(bytes_per_s, dev->n_threads, (size_t)512 << 20, 5, err);
}

void *by_device_scratch(by_device *dev, size_t n, by_err *err) {
    if (dev->measures) {
        dev->most_scratch = n > dev->most_scratch ? n : dev->most_scratch;
        dev->measured = true;
        return NULL;
    }
    if (n <= dev->scratch_bytes && dev->scratch) return dev->scratch;
    by_free(dev->scratch);
    dev->scratch_bytes = 0;
    size_t want = n < 65536 ? 65536 : by_add_size(n, n / 4);
    dev->scratch = by_alloc_aligned(BY_MEM_TENSOR, 64, want);
    if (dev->scratch) dev->scratch_bytes = want;
    else BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes of operator scratch", want);
    return dev->scratch;
}

bool by_device_measure_begin(by_device *dev) {
    if (dev->vt) return dev->vt->measure(dev, true, NULL) == BY_OK;
    dev->measures = true;
    return true;
}

by_status by_device_measure_end(by_device *dev, by_err *err) {
    if (dev->vt) return dev->vt->measure(dev, false, err);
    dev->measures = false;
    return by_device_scratch(dev, dev->most_scratch, err) ? BY_OK : BY_ENOMEM;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

typedef enum { OWN, IMPORTED, KEPT_ON_HOST, SHARED } origin;

static by_status check_room(const by_device *dev, size_t n, by_err *err) {
    if (dev->limit == 0 || (dev->used <= dev->limit && n <= (size_t)(dev->limit - dev->used))) return BY_OK;
    return BY_FAIL(err, BY_ENOMEM, "device memory: %zu bytes more do not fit, %lld of %lld are in use", n, (long long)dev->used,
                   (long long)dev->limit);
}

static by_status fill_mem(by_mem *m, const void *host, origin from, by_err *err) {
    by_device *dev = m->dev;
    if (dev->vt) return dev->vt->alloc(m, host, from == KEPT_ON_HOST, err);
    if (dev->backend == BY_BACKEND_GUARD && from != SHARED) return by_guard_map(m, host, err);
    m->ptr = host ? (unsigned char *)(uintptr_t)host : by_alloc_zero_aligned(BY_MEM_TENSOR, 64, m->bytes);
    return m->ptr ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes of device memory", m->bytes);
}

static by_status mem_create(by_mem **out, by_device *dev, const void *host, size_t n, origin from, by_err *err) {
    *out = NULL;
    if (n == 0) return BY_FAIL(err, BY_EINVAL, "device memory of 0 bytes");
    bool counted = from == OWN || from == IMPORTED;
    if (counted) BY_TRY(check_room(dev, n, err));
    by_mem *m = by_alloc_zero(BY_MEM_TENSOR, sizeof *m);
    if (!m) return BY_FAIL(err, BY_ENOMEM, "out of memory for a buffer handle");
    m->dev = dev;
    m->bytes = n;
    m->imported = host != NULL;
    m->counted = counted;
    m->shared = from == SHARED;
    by_status status = fill_mem(m, host, from, err);
    if (status < 0) {
        by_free(m);
        return status;
    }
    if (counted) dev->used += (int64_t)n;
    m->next = dev->mems;
    m->link = &dev->mems;
    if (m->next) m->next->link = &m->next;
    dev->mems = m;
    *out = m;
    return BY_OK;
}

by_status by_mem_alloc(by_mem **out, by_device *dev, size_t n, by_err *err) {
    return mem_create(out, dev, NULL, n, OWN, err);
}

by_status by_mem_import(by_mem **out, by_device *dev, const void *host, size_t n, bool keep_on_host, by_err *err) {
    return mem_create(out, dev, host, n, keep_on_host ? KEPT_ON_HOST : IMPORTED, err);
}

by_status by_mem_share(by_mem **out, by_device *dev, size_t n, by_err *err) {
    return mem_create(out, dev, NULL, n, SHARED, err);
}

void *by_mem_host(const by_mem *shared) {
    assert(shared->shared);
    return shared->ptr;
}

by_device_room by_device_room_get(const by_device *dev) { return (by_device_room){dev->limit, dev->used, dev->scratch_used}; }

void by_mem_free(by_mem *m) {
    if (!m) return;
    *m->link = m->next;
    if (m->next) m->next->link = m->link;
    if (m->counted) m->dev->used -= (int64_t)m->bytes;
    m->dev->n_gone++;
    if (m->dev->vt) m->dev->vt->free(m);
    else if (m->map_bytes || m->chunk) by_guard_unmap(m);
    else if (!m->imported) by_free(m->ptr);
    if (m->dev->vt) m->dev->vt->host_free(m->view);
    by_free(m);
}

size_t by_mem_bytes(const by_mem *mem) { return mem->bytes; }

by_status by_mem_write(by_mem *mem, size_t off, const void *src, size_t n, by_err *err) {
    assert(!mem->imported && off <= mem->bytes && n <= mem->bytes - off);
    if (mem->dev->vt) return mem->dev->vt->write(mem, off, src, n, err);
    by_guard_set(mem->dev, true);
    if (n) memcpy(mem->ptr + off, src, n);
    by_guard_set(mem->dev, false);
    return BY_OK;
}

by_status by_mem_read(void *dst, const by_mem *mem, size_t off, size_t n, by_err *err) {
    assert(off <= mem->bytes && n <= mem->bytes - off);
    if (mem->dev->vt) return mem->dev->vt->read(dst, mem, off, n, err);
    by_guard_set(mem->dev, true);
    if (n) memcpy(dst, mem->ptr + off, n);
    by_guard_set(mem->dev, false);
    return BY_OK;
}

by_status by_mem_zero(by_mem *mem, size_t off, size_t n, by_err *err) {
    assert(!mem->imported && off <= mem->bytes && n <= mem->bytes - off);
    if (mem->dev->vt) return mem->dev->vt->zero(mem, off, n, err);
    by_guard_set(mem->dev, true);
    memset(mem->ptr + off, 0, n);
    by_guard_set(mem->dev, false);
    return BY_OK;
}

by_status by_mem_copy(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *err) {
    assert(dst->dev == src->dev && !dst->imported);
    assert(dst_off <= dst->bytes && n <= dst->bytes - dst_off && src_off <= src->bytes && n <= src->bytes - src_off);
    if (dst->dev->vt) return dst->dev->vt->copy(dst, dst_off, src, src_off, n, err);
    by_guard_set(dst->dev, true);
    if (n) memcpy(dst->ptr + dst_off, src->ptr + src_off, n);
    by_guard_set(dst->dev, false);
    return BY_OK;
}

by_status by_mem_view_room(by_mem *mem, size_t n, by_err *err) {
    if (!mem->dev->vt || n <= mem->view_bytes) return BY_OK;
    mem->dev->vt->host_free(mem->view);
    mem->view = mem->dev->vt->host_alloc(n);
    mem->view_bytes = mem->view ? n : 0;
    if (!mem->view) return BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes for views of device memory", n);
    mem->dev->view_allocs++;
    return BY_OK;
}

by_status by_mem_view(const void **ptr, by_mem *mem, size_t off, size_t n, by_err *err) {
    assert(off <= mem->bytes && n <= mem->bytes - off);
    if (!mem->dev->vt) {
        by_guard_set(mem->dev, true);
        *ptr = mem->ptr + off;
        return BY_OK;
    }
    size_t want = n > 2 * mem->view_bytes ? n : 2 * mem->view_bytes; /* by steps: a run's longest views come late */
    if (n > mem->view_bytes) BY_TRY(by_mem_view_room(mem, want < mem->bytes ? want : mem->bytes, err));
    *ptr = mem->view;
    return mem->dev->vt->read(mem->view, mem, off, n, err);
}

void by_mem_unview(by_mem *mem) {
    if (!mem->dev->vt) by_guard_set(mem->dev, false);
}

by_device_counts by_device_counts_get(const by_device *dev) {
    by_device_counts n = {0};
    if (dev->vt) dev->vt->counts(dev, &n);
    n.n_allocs += dev->view_allocs;
    return n;
}

by_device_pace by_device_pace_get(const by_device *dev) {
    by_device_pace p = {0};
    if (dev->vt) dev->vt->pace(dev, &p);
    return p;
}

void by_device_lap(by_device *dev) {
    if (dev->vt) dev->vt->lap(dev);
}

void by_device_rests(by_device *dev) {
    if (dev->vt) dev->vt->rests(dev);
}

/* ---- recordings ---- */

bool by_device_records(const by_device *dev) { return dev->vt != NULL; }

by_status by_device_record_begin(by_device *dev, by_err *err) {
    if (!dev->vt) return BY_FAIL(err, BY_EUNSUPPORTED, "backend %s records nothing", dev->name);
    return dev->vt->record_begin(dev, err);
}

by_status by_device_record_end(by_device *dev, by_recording **out, by_err *err) {
    by_recording *r = out ? by_alloc_zero(BY_MEM_TENSOR, sizeof *r) : NULL;
    if (out) *out = NULL;
    by_status status = dev->vt->record_end(dev, r ? &r->recorded : NULL, err);
    if (status == BY_OK && out && !r) status = BY_FAIL(err, BY_ENOMEM, "out of memory for a recording");
    if (status < 0 || !out) {
        by_free(r);
        return status;
    }
    r->dev = dev;
    r->n_gone = dev->n_gone;
    *out = r;
    return BY_OK;
}

bool by_recording_stands(const by_recording *r) { return r->n_gone == r->dev->n_gone; }

by_status by_recording_queue(by_recording *r, by_err *err) {
    assert(by_recording_stands(r));
    return r->dev->vt->replay(r->dev, r->recorded, err);
}

void by_recording_drop(by_recording *r) {
    if (!r) return;
    r->dev->vt->forget(r->recorded);
    by_free(r);
}

/* ---- draws ---- */

bool by_device_draws(const by_device *dev) { return dev->vt != NULL; }

by_status by_device_draw_room(by_device *dev, int32_t n, int64_t V, int32_t n_edits, int32_t n_top, by_err *err) {
    if (!dev->vt) return BY_FAIL(err, BY_EUNSUPPORTED, "backend %s does not draw", dev->name);
    assert(n > 0 && V > 0 && n_edits >= 0 && n_top >= 0);
    return dev->vt->draw_room(dev, n, V, n_edits, n_top, err);
}

by_status by_device_draw(by_device *dev, by_tensor logits, const by_draws *what, by_err *err) {
    if (!dev->vt) return BY_FAIL(err, BY_EUNSUPPORTED, "backend %s does not draw", dev->name);
    for (int32_t i = 0; i < what->n; i++) {
        const by_draw *d = &what->draws[i];
        assert(d->row >= 0 && d->row < logits.rows && (!d->cuts || d->inv_t == d->report_inv_t));
        assert(d->edit0 >= 0 && d->edit0 + d->n_added + d->n_seen + d->n_banned <= what->n_edits);
        assert(d->n_top <= what->top_stride && d->n_top <= logits.cols);
        assert(!d->judges || (d->draft >= 0 && d->draft < logits.cols && d->q_row >= 0 && d->q_row < what->proposed.rows));
        assert(!d->judges || (d->inv_t == d->report_inv_t && d->kind != BY_DRAW_ARGMAX && what->proposed.cols == logits.cols));
    }
    assert(!what->ids.mem || (what->ids.dtype == BY_I32 && what->ids.rows == 2 && what->ids.cols == what->n));
    assert(logits.dtype == BY_F32);
    return what->n > 0 ? dev->vt->draw(dev, &logits, what, err) : BY_OK;
}

/* ---- dispatch ------------------------------------------------------------------------------------------------- */

#define BY_OP_DEF(op)                                                                                                  \
    by_status by_op_##op(by_device *dev, const by_##op##_args *args, by_err *err) {                                    \
        by_guard_set(dev, true);                                                                                          \
        by_status status = dev->ops.op(dev, args, err);                                                                \
        by_guard_set(dev, false);                                                                                         \
        if (!dev->measured) return status;                                                                             \
        dev->measured = false;                                                                                         \
        return BY_OK;                                                                                                  \
    }
BY_OP_TABLE(BY_OP_DEF)
#undef BY_OP_DEF
