/* gpu_compare.h - for gpu_ops.c: what the two devices say, compared; a line a case. */
#ifndef BY_GPU_COMPARE_H
#define BY_GPU_COMPARE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_pairs.h"

static int n_cases, n_failed;

static unsigned char *download(by_tensor t) {
    size_t n = (size_t)(t.rows * t.stride);
    unsigned char *b = malloc(n + 1);
    if (n) MUST(by_mem_read(b, t.mem, (size_t)t.off, n, err));
    return b;
}
static float value(const by_tensor *t, const unsigned char *b, int64_t r, int64_t i) {
    const unsigned char *p = b + r * t->stride;
    float f;
    uint16_t h;
    switch (t->dtype) {
    case BY_F32: memcpy(&f, p + 4 * i, 4); return f;
    case BY_BF16: memcpy(&h, p + 2 * i, 2); return by_bf16_to_f32(h);
    case BY_A8: return by_e4m3_to_f32(p[i]) * by_ue8m0_to_f32(p[t->cols + i / 32]);
    default: return (float)p[i];
    }
}
static void verdict(const char *name, bool ok, double diff, double worst) {
    n_cases++;
    n_failed += !ok;
    printf("%-58s %10.2e %10.2e %s\n", name, diff, worst, ok ? "ok" : "FAILED");
    fflush(stdout);
}
static void compare(const char *name, pair p, double diff_max, double worst_max) {
    unsigned char *x = download(p.t[REF]), *y = download(p.t[GPU]);
    double xy = 0, xx = 0, yy = 0, worst = 0, top = 0;
    bool nan = false;
    for (int64_t r = 0; r < p.t[REF].rows; r++) {
        for (int64_t i = 0; i < p.t[REF].cols; i++) {
            double a = (double)value(&p.t[REF], x, r, i), b = (double)value(&p.t[GPU], y, r, i);
            nan |= !(fabs(b) <= 1e38);
            xy += a * b, xx += a * a, yy += b * b;
            worst = fmax(worst, fabs(a - b));
            top = fmax(top, fabs(a));
        }
    }
    double diff = xx + yy > 0 ? 1 - 2 * xy / (xx + yy) : 0;
    worst = top > 0 ? worst / top : worst;
    verdict(name, !nan && diff <= diff_max && worst <= worst_max, diff, worst);
    free(x);
    free(y);
}
static void same_bytes(const char *name, pair p, double share) {
    unsigned char *x = download(p.t[REF]), *y = download(p.t[GPU]);
    int64_t n = p.t[REF].rows * p.t[REF].stride, bad = 0;
    for (int64_t i = 0; i < n; i++) bad += x[i] != y[i];
    double part = n ? (double)bad / (double)n : 0;
    verdict(name, part <= share, part, 0);
    free(x);
    free(y);
}
static void same_on_device(const char *name, by_tensor p, by_tensor q) {
    unsigned char *x = download(p), *y = download(q);
    int64_t bad = 0;
    for (int64_t i = 0; i < p.rows * p.stride; i++) bad += x[i] != y[i];
    verdict(name, bad == 0, (double)bad, 0);
    free(x);
    free(y);
}
/* Limits by the dtype of the output. */
static double diff_of(by_dtype t) { return t == BY_F32 ? 1e-10 : t == BY_BF16 ? 1e-5 : 2e-4; }
static double worst_of(by_dtype t) { return t == BY_F32 ? 2e-5 : t == BY_BF16 ? 1e-2 : 0.08; }
static void check(const char *name, pair p) { compare(name, p, diff_of(p.t[REF].dtype), worst_of(p.t[REF].dtype)); }

#define NAME(...)                                                                                                      \
    char name[96];                                                                                                     \
    snprintf(name, sizeof name, __VA_ARGS__)
#define BOTH for (int i = 0; i < 2; i++)

/* The same values once more. */
static pair copy_of(pair p, int from) {
    unsigned char *b = download(p.t[from]);
    pair q = make(p.t[from].dtype, p.t[from].rows, p.t[from].cols, b);
    free(b);
    return q;
}

#endif
