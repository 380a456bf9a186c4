/* cpu_table.c - the table of the cpu backend: the ref operators with the vector versions in their places. */
#include "base/alloc.h"
#include "ops/cpu/cpu_ops.h"

by_status by_ops_cpu_open(by_device *dev, const char *isa, int32_t n_threads, by_err *err) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    if (isa) BY_TRY(by_cpu_limit(&cpu, isa, err));
    by_cpu_state *st = by_alloc_zero(BY_MEM_TENSOR, sizeof *st);
    if (!st) return BY_FAIL(err, BY_ENOMEM, "out of memory for a device");
    dev->impl = st;
    st->isa = cpu.isa;
    st->mm = by_mm_kernels_for(cpu.isa);
    dev->ops = by_ops_ref;
    dev->name = "cpu";
    BY_TRY(by_pool_create(&dev->pool, n_threads, err));
    dev->n_threads = by_pool_threads(dev->pool);
    if (!st->mm) return BY_OK; /* a processor without vector kernels: the ref operators are what there is */
    dev->ops.matmul = by_cpu_matmul;
    dev->ops.moe = by_cpu_moe;
    return BY_OK;
}

void by_ops_cpu_close(by_device *dev) {
    by_pool_destroy(dev->pool);
    by_free(dev->impl);
    dev->pool = NULL;
    dev->impl = NULL;
}
