/* staging.c - descriptions on their way to the device: see by_staging in ops.h. */
#include "base/alloc.h"
#include "ops/host.h"

enum { BUFFERS = 2 };

struct by_staging {
    by_device *dev;
    size_t bytes;
    int now;
    void *buffer[BUFFERS]; /* only the first in host memory */
    void *mark[BUFFERS];   /* of its last upload */
};

by_status by_staging_create(by_staging **out, by_device *dev, size_t n, by_err *err) {
    *out = NULL;
    by_staging *s = by_alloc_zero(BY_MEM_TENSOR, sizeof *s);
    if (!s) return BY_FAIL(err, BY_ENOMEM, "out of memory for a step's description");
    s->dev = dev;
    s->bytes = n;
    for (int i = 0; i < (dev->vt ? BUFFERS : 1); i++) {
        s->buffer[i] = dev->vt ? dev->vt->host_alloc(n) : by_alloc_zero(BY_MEM_TENSOR, n);
        if (s->buffer[i]) continue;
        by_staging_destroy(s);
        return BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes for a step's description", n);
    }
    *out = s;
    return BY_OK;
}

void by_staging_destroy(by_staging *s) {
    if (!s) return;
    const by_mem_vt *vt = s->dev->vt;
    for (int i = 0; i < BUFFERS; i++) {
        if (!vt) {
            by_free(s->buffer[i]);
            continue;
        }
        by_err ignored;
        if (s->mark[i]) (void)vt->sent(s->dev, s->mark[i], &ignored);
        vt->drop_mark(s->mark[i]);
        vt->host_free(s->buffer[i]);
    }
    by_free(s);
}

void *by_staging_next(by_staging *s, by_err *err) {
    if (!s->dev->vt) return s->buffer[0];
    s->now = (s->now + 1) % BUFFERS;
    if (s->mark[s->now] && s->dev->vt->sent(s->dev, s->mark[s->now], err) < 0) return NULL;
    return s->buffer[s->now];
}

by_status by_staging_upload(by_staging *s, by_mem *to, size_t off, size_t n, by_err *err) {
    assert(n <= s->bytes && !to->imported && off <= to->bytes && n <= to->bytes - off);
    if (!s->dev->vt) return by_mem_write(to, off, s->buffer[0], n, err);
    return s->dev->vt->send(to, off, s->buffer[s->now], n, &s->mark[s->now], err);
}
