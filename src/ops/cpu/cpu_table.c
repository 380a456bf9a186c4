/* cpu_table.c - opening the cpu backend: instruction set, threads, operators. */
#include <string.h>

#include "base/alloc.h"
#include "ops/cpu/cpu_ops.h"

by_status by_ops_cpu_open(by_device *dev, const by_device_opts *opts, by_err *err) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    if (opts->isa && by_cpu_limit(&cpu, opts->isa, err) < 0) {
        by_status status = err ? err->code : BY_EINVAL;
        by_err_prefix(err, "--cpu-isa: ");
        return status;
    }
    by_cpu_impl *impl = by_alloc_zero(BY_MEM_TENSOR, sizeof *impl);
    if (!impl) return BY_FAIL(err, BY_ENOMEM, "out of memory for the cpu backend");
    dev->impl = impl;
    dev->name = "cpu";
    dev->ops = by_ops_ref;
    impl->isa = cpu.isa;
    impl->mm = by_mm_kernels_for(cpu.isa);
    impl->vec = by_vec_for(cpu.isa);
    if (!impl->mm || !impl->vec) return BY_OK; /* the ref operators on one thread */
#define SET(op) dev->ops.op = by_cpu_##op;
    BY_CPU_OPS(SET)
#undef SET
    BY_TRY(by_pool_create(&dev->pool, opts->n_threads, err));
    dev->n_threads = by_pool_threads(dev->pool);
    return BY_OK;
}

void by_ops_cpu_close(by_device *dev) {
    by_cpu_impl *impl = dev->impl;
    by_pool_destroy(dev->pool);
    if (impl) by_free(impl->side.ptr);
    by_free(impl);
}

const by_vec *by_vec_for(by_isa isa) {
#if defined(BY_CPU_X86)
    if (by_isa_includes(isa, BY_ISA_AVX512BF16)) return &by_vec_avx512bf16;
    if (by_isa_includes(isa, BY_ISA_AVX512)) return &by_vec_avx512;
    if (by_isa_includes(isa, BY_ISA_AVX2)) return &by_vec_avx2;
#elif defined(BY_CPU_ARM)
    if (by_isa_includes(isa, BY_ISA_NEON)) return &by_vec_neon;
#endif
    (void)isa;
    return NULL;
}

by_status by_cpu_begin(by_cpu_scratch *s, by_device *dev, by_err *err) {
    s->at = by_device_scratch(dev, s->bytes, err);
    return s->at ? BY_OK : BY_ENOMEM;
}

by_status by_cpu_begin_side(by_cpu_scratch *s, by_device *dev, by_err *err) {
    by_cpu_impl *impl = dev->impl;
    if (s->bytes > impl->side.bytes) {
        by_free(impl->side.ptr);
        size_t want = by_add_size(s->bytes, s->bytes / 4);
        impl->side.ptr = by_alloc_aligned(BY_MEM_TENSOR, 64, want);
        impl->side.bytes = impl->side.ptr ? want : 0;
        if (!impl->side.ptr) return BY_FAIL(err, BY_ENOMEM, "out of memory: %zu bytes of operator scratch", want);
    }
    s->at = impl->side.ptr;
    return BY_OK;
}

by_mm_type by_cpu_x_type(by_dtype t) {
    assert(t == BY_F32 || t == BY_BF16 || t == BY_A8);
    return t == BY_A8 ? BY_MM_A8 : t == BY_BF16 ? BY_MM_BF16 : BY_MM_F32;
}

by_mm_weight by_cpu_weight(const by_weight *w) {
    by_mm_weight m = {.type = w->w.dtype == BY_FP4_ROW ? BY_MM_FP4 : w->w.dtype == BY_FP8_TILE ? BY_MM_FP8
                              : w->w.dtype == BY_BF16   ? BY_MM_BF16 : BY_MM_F32,
                      .n = w->w.rows, .k = w->w.cols, .w = w->w.mem->ptr + w->w.off, .stride = w->w.stride};
    assert(m.type != BY_MM_F32 || w->w.dtype == BY_F32);
    if (by_tensor_is(&w->scale)) {
        m.scale = w->scale.mem->ptr + w->scale.off;
        m.scale_stride = w->scale.stride;
    }
    return m;
}

by_mm_src by_cpu_src(const by_tensor *x, int64_t c) {
    const uint8_t *p = x->mem->ptr + x->off;
    switch (by_cpu_x_type(x->dtype)) {
    case BY_MM_A8: return (by_mm_src){BY_MM_A8, p + c, p + x->cols + c / 32};
    case BY_MM_BF16: return (by_mm_src){BY_MM_BF16, p + 2 * c, NULL};
    default: return (by_mm_src){BY_MM_F32, p + 4 * c, NULL};
    }
}
