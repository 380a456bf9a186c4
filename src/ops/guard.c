/* guard.c - memory of the guard backend: `ref` on memory that no one may touch outside an operator.
 *
 * A buffer is a mapping of its own, opened for the duration of an operator or a transfer and closed again. A host access in
 * between is a fault, which is the point. Imported bytes that fill whole pages are protected where they lie; others are copied, small
 * ones into mappings that they share, so that a model of many tensors does not cost as many system calls: behind each lies a gap of
 * NaNs, so that who reads a little too far spoils the result instead of taking a neighbour's values for its own. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "ops/host.h"

enum { PAGE = 4096, SMALL_BYTES = 1 << 20, CHUNK_BYTES = 8 << 20, GAP_BYTES = 64 };

static void protect(by_mem *m, int prot) {
    int rc = mprotect(m->ptr, m->map_bytes, prot);
    assert(rc == 0 && "guard: mprotect failed");
    (void)rc;
}

void by_guard_set(by_device *dev, bool open) {
    if (dev->backend != BY_BACKEND_GUARD) return;
    dev->open = open;
    for (by_mem *m = dev->mems; m; m = m->next)
        if (m->map_bytes) protect(m, !open ? PROT_NONE : m->imported ? PROT_READ : PROT_READ | PROT_WRITE);
    for (by_mem *m = dev->chunks; m; m = m->next) protect(m, open ? PROT_READ : PROT_NONE);
}

static by_status map(by_mem *m, size_t n, by_err *err) {
    m->map_bytes = (n + PAGE - 1) & ~(size_t)(PAGE - 1);
    void *p = mmap(NULL, m->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return BY_FAIL(err, BY_ENOMEM, "guard: cannot map %zu bytes", m->map_bytes);
    m->ptr = p;
    return BY_OK;
}

/* The mapping that takes the next n bytes of small imports. */
static by_mem *chunk_for(by_device *dev, size_t n, by_err *err) {
    by_mem *c = dev->chunks;
    if (c && n <= c->map_bytes - c->fill) return c;
    c = by_alloc_zero(BY_MEM_TENSOR, sizeof *c);
    if (!c) BY_FAIL(err, BY_ENOMEM, "out of memory for a buffer handle");
    if (!c || map(c, CHUNK_BYTES, err) < 0) {
        by_free(c);
        return NULL;
    }
    c->dev = dev;
    c->next = dev->chunks;
    c->link = &dev->chunks;
    if (c->next) c->next->link = &c->next;
    return dev->chunks = c;
}

static by_status copy_small(by_mem *m, const void *host, by_err *err) {
    size_t n = (m->bytes + 63) / 64 * 64 + GAP_BYTES;
    by_mem *c = chunk_for(m->dev, n, err);
    if (!c) return BY_ENOMEM;
    m->chunk = c;
    m->ptr = c->ptr + c->fill;
    protect(c, PROT_READ | PROT_WRITE);
    memcpy(m->ptr, host, m->bytes);
    memset(m->ptr + m->bytes, 0xff, n - m->bytes); /* NaN in fp32, bf16, fp8 and as a scale */
    protect(c, PROT_NONE);
    c->fill += n;
    c->n_inside++;
    return BY_OK;
}

by_status by_guard_map(by_mem *m, const void *host, by_err *err) {
    if (host && (uintptr_t)host % PAGE == 0 && m->bytes % PAGE == 0) {
        m->ptr = (unsigned char *)(uintptr_t)host;
        m->map_bytes = m->bytes;
        protect(m, PROT_NONE);
        return BY_OK;
    }
    if (host && m->bytes <= SMALL_BYTES) return copy_small(m, host, err);
    BY_TRY(map(m, m->bytes, err));
    if (host) memcpy(m->ptr, host, m->bytes);
    m->imported = false;
    protect(m, PROT_NONE);
    return BY_OK;
}

void by_guard_unmap(by_mem *m) {
    by_mem *c = m->chunk;
    if (!c && m->imported) mprotect(m->ptr, m->map_bytes, PROT_READ); /* the importer's mapping goes on living */
    else if (!c) munmap(m->ptr, m->map_bytes);
    if (!c || --c->n_inside > 0) return;
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    munmap(c->ptr, c->map_bytes);
    by_free(c);
}
