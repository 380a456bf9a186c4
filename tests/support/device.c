/* device.c - see device.h. */
#include "support/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/formats.h"

#define MADE_MAX 8192
static by_mem *made[MADE_MAX];
static int n_made;

static void die(const char *what, const by_err *err) {
    fprintf(stderr, "test device: %s: %s\n", what, err ? err->msg : "");
    exit(1);
}

int by_test_backends(const by_test_backend **out) {
    static const by_test_backend all[] = {
        {BY_BACKEND_REF, NULL, "ref"},
        {BY_BACKEND_GUARD, NULL, "guard"},
        {BY_BACKEND_CPU, NULL, "cpu"},
    };
    *out = all;
    return sizeof all / sizeof all[0];
}

int by_test_all_backends(const by_test_backend **out) {
    static by_test_backend all[3 + BY_ISA_N];
    const by_test_backend *first;
    int n = by_test_backends(&first);
    by_cpu cpu;
    by_cpu_detect(&cpu);
    memcpy(all, first, (size_t)n * sizeof *all);
    for (int i = BY_ISA_REF + 1; i < BY_ISA_N; i++)
        if ((by_isa)i != cpu.isa && by_isa_includes(cpu.isa, (by_isa)i))
            all[n++] = (by_test_backend){BY_BACKEND_CPU, by_isa_name((by_isa)i), by_isa_name((by_isa)i)};
    *out = all;
    return n;
}

by_device *by_test_device(const by_test_backend *b, int32_t n_threads) {
    by_device *dev = NULL;
    by_err err = {0};
    by_device_opts opts = {.backend = b->backend, .n_threads = n_threads, .isa = b->isa};
    if (by_device_open(&dev, &opts, &err) < 0) die(b->name, &err);
    return dev;
}

/* fp32 values into the bytes of an activation row. */
static void encode_row(unsigned char *to, by_dtype dtype, const float *x, int64_t n) {
    switch (dtype) {
    case BY_F32: memcpy(to, x, (size_t)n * 4); return;
    case BY_BF16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t b = by_bf16_of_f32(x[i]);
            memcpy(to + 2 * i, &b, 2);
        }
        return;
    case BY_A8: by_quant_act8(x, n, to, to + n); return;
    default: die("cannot encode this dtype", NULL);
    }
}

by_tensor by_test_tensor(by_device *dev, by_dtype dtype, int64_t rows, int64_t cols, const void *src) {
    int64_t stride = by_dtype_row_bytes(dtype, cols);
    size_t bytes = (size_t)(rows * stride);
    by_err err = {0};
    by_mem *mem;
    if (n_made == MADE_MAX) die("too many tensors", NULL);
    if (by_mem_alloc(&mem, dev, bytes ? bytes : 1, &err) < 0) die("alloc", &err);
    made[n_made++] = mem;
    if (src && bytes) {
        bool raw = dtype == BY_I32 || dtype == BY_I64 || dtype == BY_U8 || dtype == BY_FP8_TILE || dtype == BY_FP4_ROW ||
                   dtype == BY_FP8_ROW || dtype == BY_IX4;
        unsigned char *enc = malloc(bytes);
        if (!enc) die("out of memory", NULL);
        if (raw) memcpy(enc, src, bytes);
        for (int64_t r = 0; !raw && r < rows; r++) encode_row(enc + r * stride, dtype, (const float *)src + r * cols, cols);
        if (by_mem_write(mem, 0, enc, bytes, &err) < 0) die("write", &err);
        free(enc);
    }
    return by_tensor_make(mem, 0, dtype, rows, cols);
}

by_tensor by_test_i32(by_device *dev, int64_t rows, int64_t cols, const int32_t *src) {
    return by_test_tensor(dev, BY_I32, rows, cols, src);
}

unsigned char *by_test_bytes(by_tensor t) {
    int64_t bytes = by_dtype_row_bytes(t.dtype, t.cols);
    unsigned char *out = malloc((size_t)(t.rows * bytes) + 1);
    if (!out) die("out of memory", NULL);
    for (int64_t r = 0; r < t.rows; r++)
        if (by_mem_read(out + r * bytes, t.mem, (size_t)(t.off + r * t.stride), (size_t)bytes, NULL) < 0) die("read", NULL);
    return out;
}

float *by_test_values(by_tensor t) {
    unsigned char *raw = by_test_bytes(t);
    int64_t bytes = by_dtype_row_bytes(t.dtype, t.cols);
    float *out = malloc((size_t)(t.rows * t.cols) * 4 + 4);
    if (!out) die("out of memory", NULL);
    for (int64_t r = 0; r < t.rows; r++) {
        const unsigned char *p = raw + r * bytes;
        float *x = out + r * t.cols;
        if (t.dtype == BY_F32) memcpy(x, p, (size_t)bytes);
        else if (t.dtype == BY_A8) by_dequant_act8(p, p + t.cols, t.cols, x);
        else if (t.dtype == BY_BF16)
            for (int64_t i = 0; i < t.cols; i++) x[i] = by_bf16_to_f32((uint16_t)(p[2 * i] | p[2 * i + 1] << 8));
        else die("cannot decode this dtype", NULL);
    }
    free(raw);
    return out;
}

void by_test_free_all(void) {
    for (int i = 0; i < n_made; i++) by_mem_free(made[i]);
    n_made = 0;
}
