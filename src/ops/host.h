/* host.h - what backends whose memory is host memory share: the structs behind by_device and by_mem, and access to
 * tensor rows as fp32. Only files of src/ops may include it. */
#ifndef BY_OPS_HOST_H
#define BY_OPS_HOST_H

#include <assert.h>

#include "ops/formats.h"
#include "ops/ops.h"

struct by_mem {
    by_device *dev;
    unsigned char *ptr;
    size_t bytes;
    size_t map_bytes; /* > 0: own mapping of this size (guard) */
    bool imported;
    bool counted; /* its bytes are part of by_device.used */
    bool shared;  /* by_mem_share: the guard leaves it open */
    by_mem *chunk;    /* guard: it lies in this mapping of several small imports */
    size_t n_inside, fill; /* of such a mapping */
    bool packed;     /* cuda: holds FP4 weights in the order that its matrix kernels want; the host no longer reads it */
    void *view;      /* host copy of a by_mem_view, devices with their own memory */
    size_t view_bytes;
    by_mem *next, **link;
};

struct by_pool;
struct by_helper;

/* Memory of a backend that has its own: called by by_mem_* in place of the host functions, arguments already checked.
 * alloc fills m->ptr (an address of the device) for m->bytes, zeroed or with a copy of host bytes; with m->shared it is an address of
 * both sides. */
typedef struct by_mem_vt {
    void (*close)(by_device *dev);
    by_status (*measure)(by_device *dev, bool begins, by_err *err); /* by_device_measure_*; cannot fail when it begins */
    by_status (*alloc)(by_mem *m, const void *host, bool keep_on_host, by_err *err);
    void (*free)(by_mem *m);
    by_status (*write)(by_mem *m, size_t off, const void *src, size_t n, by_err *err);
    by_status (*read)(void *dst, const by_mem *m, size_t off, size_t n, by_err *err);
    by_status (*zero)(by_mem *m, size_t off, size_t n, by_err *err);
    by_status (*copy)(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *err);
    by_status (*read_rate)(by_device *dev, double *bytes_per_s, by_err *err);
    by_status (*draw)(by_device *dev, const by_tensor *logits, const by_draws *what, by_err *err);
    by_status (*draw_room)(by_device *dev, int32_t n, int64_t V, int32_t n_edits, int32_t n_top, by_err *err);
    /* Host memory that downloads reach fast; NULL when there is none. */
    void *(*host_alloc)(size_t n);
    void (*host_free)(void *p);
    /* An upload from such memory, which is read until `sent` has returned for *mark; that is made when it is NULL. sent waits. */
    by_status (*send)(by_mem *m, size_t off, const void *src, size_t n, void **mark, by_err *err);
    by_status (*sent)(by_device *dev, void *mark, by_err *err);
    void (*drop_mark)(void *mark);
    void (*counts)(const by_device *dev, by_device_counts *out);
    by_status (*memory)(by_device *dev, int64_t *total, int64_t *unused, by_err *err);
    by_status (*beside_init)(by_device *dev, by_err *err);
    by_status (*beside)(by_device *dev, const by_beside *what, by_err *err);
    by_status (*join)(by_device *dev, by_err *err);
    /* Recordings. end: *out is the backend's own, not made for NULL. */
    by_status (*record_begin)(by_device *dev, by_err *err);
    by_status (*record_end)(by_device *dev, void **out, by_err *err);
    by_status (*replay)(by_device *dev, void *recorded, by_err *err);
    void (*forget)(void *recorded);
    void (*pace)(const by_device *dev, by_device_pace *out);
    void (*lap)(by_device *dev);
    void (*rests)(by_device *dev);
} by_mem_vt;

struct by_recording {
    by_device *dev;
    void *recorded;
    uint64_t n_gone; /* by_device.n_gone when it was made */
};

struct by_device {
    by_backend backend;
    const by_mem_vt *vt; /* NULL: host memory */
    void *impl;          /* the backend's own state */
    by_ops ops;
    const char *name;
    struct by_pool *pool; /* NULL: one thread */
    int32_t n_threads;
    by_mem *mems;
    by_mem *chunks; /* guard: mappings of small imports, the newest first */
    int64_t limit, used, scratch_used; /* by_device_room */
    struct by_helper *helper; /* by_device_beside of host memory */
    void *scratch;
    size_t scratch_bytes;
    uint64_t view_allocs; /* of by_mem.view: part of by_device_counts */
    uint64_t n_gone;      /* times that memory which recordings may name has gone */
    bool open; /* guard: an operator or transfer runs */
    bool measures, measured; /* by_device_measure_begin: operators stop where they ask for scratch; one has done so */
    size_t most_scratch;     /* that was asked for */
};

extern const by_ops by_ops_ref;

/* guard.c: opens or closes all memory of a guard device, does nothing for others; memory for m->bytes, with the host's bytes unless
 * host is NULL. */
void by_guard_set(by_device *dev, bool open);
by_status by_guard_map(by_mem *m, const void *host, by_err *err);
void by_guard_unmap(by_mem *m);

/* beside.c: the thread behind by_device_beside of host memory. NULL is allowed. */
void by_helper_stop(struct by_helper *h);

/* Fills ops, impl, name and pool for an instruction set (opts->isa, NULL = best here) and a number of threads. On failure
 * by_ops_cpu_close releases what was made. Errors: BY_EINVAL, BY_EUNSUPPORTED (instruction set), BY_ENOMEM, BY_EIO. */
by_status by_ops_cpu_open(by_device *dev, const by_device_opts *opts, by_err *err);
void by_ops_cpu_close(by_device *dev);

/* Fills ops, vt, impl and name. Without BATHYC_CUDA: BY_EUNSUPPORTED, as on a machine without a device. */
by_status by_ops_cuda_open(by_device *dev, by_err *err);

/* At least n bytes, 64-byte aligned, valid until the next call; kept by the device, so that steady state allocates
 * nothing. NULL with err set when memory is out, and NULL while the device measures: the operator returns BY_ENOMEM then, which its
 * caller knows. Sizes must not shrink when rows or the context grow, and differ with the rows' values by a fifth at most. */
void *by_device_scratch(by_device *dev, size_t n, by_err *err);

static inline unsigned char *by_tensor_row(const by_tensor *t, int64_t r) {
    assert(r >= 0 && r < t->rows);
    return t->mem->ptr + t->off + r * t->stride;
}
static inline bool by_tensor_is(const by_tensor *t) { return t->mem != NULL; }
static inline const int32_t *by_tensor_i32(const by_tensor *t, int64_t r) {
    assert(t->dtype == BY_I32);
    return (const int32_t *)(const void *)by_tensor_row(t, r);
}
static inline int32_t *by_tensor_i32_mut(const by_tensor *t, int64_t r) {
    assert(t->dtype == BY_I32);
    return (int32_t *)(void *)by_tensor_row(t, r);
}
static inline float *by_tensor_f32(const by_tensor *t, int64_t r) {
    assert(t->dtype == BY_F32);
    return (float *)(void *)by_tensor_row(t, r);
}

/* Row r of an activation tensor (F32, BF16, A8) or a BF16/F32 vector as fp32; dst holds cols values. */
void by_row_load(float *dst, const by_tensor *t, int64_t r);
/* The compressor's last step: (v, s) of the last tokens of each sequence into its tail. */
void by_host_store_tail(const by_compress_args *a);
/* Rounds to the dtype (F32, BF16) or quantises (A8). */
void by_row_store(const by_tensor *t, int64_t r, const float *src);
/* The value after storing in that dtype and loading again, for F32 and BF16. */
static inline float by_round_to(by_dtype t, float x) { return t == BY_BF16 ? by_bf16_round(x) : x; }

/* Row n of a weight, dequantised; k values. */
void by_weight_row_load(float *dst, const by_weight *w, int64_t n);

/* A vector of d values to or from a record; IX4 lives in two sections and has functions of its own. */
void by_rec_store(unsigned char *at, by_rec rec, const float *x, int64_t d);
void by_rec_load(float *x, by_rec rec, const unsigned char *at, int64_t d);

/* Place of entry e of sequence s (index in the step). For IX4 also the place of its scales. */
unsigned char *by_page_entry(const by_pages *pages, const by_batch *batch, int64_t seq, int64_t entry, int64_t d,
                             unsigned char **scales);

#endif
