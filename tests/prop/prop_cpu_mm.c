/* Matrix kernels of the cpu backend, every instruction set of this machine, against sums in double; and bit equality of an
 * element whatever rows, blocks and neighbours it is computed with.
 * BY_TEST_TIMEOUT=300 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/cpu/cpu_mm.h"
#include "ops/formats.h"
#include "support/seed.h"

static by_rng rng;
static const by_mm_kernels *kernels;

/* ---- making operands --------------------------------------------------------------------------------------------- */

typedef enum { PLAIN, ALL_BYTES, FAR_SCALES, DENORMALS, FLAVOURS } flavour;
static const char *const flavour_names[] = {"plain", "all bytes", "far scales", "denormals"};

/* Exactly n bytes, so that the address sanitizer sees a kernel that reads behind an operand. */
static void *grab(size_t n) {
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    memset(p, 0, n);
    return p;
}

static uint8_t any_byte(void) { return (uint8_t)by_rng_u64(&rng); }
static uint8_t number_e4m3(void) { /* not NaN */
    uint8_t b;
    do b = any_byte();
    while ((b & 0x7f) == 0x7f);
    return b;
}
static uint8_t scale_byte(flavour f) {
    if (f == FAR_SCALES) return (uint8_t)by_rng_below(&rng, 255);
    if (f == DENORMALS) return (uint8_t)by_rng_below(&rng, 30);
    return (uint8_t)(112 + by_rng_below(&rng, 12));
}

static by_mm_weight make_weight(by_mm_type type, int64_t n, int64_t k, flavour f) {
    by_mm_weight w = {.type = type, .n = n, .k = k};
    w.stride = type == BY_MM_FP4 ? k / 2 : type == BY_MM_FP8 ? k : type == BY_MM_BF16 ? 2 * k : 4 * k;
    uint8_t *p = grab((size_t)(n * w.stride));
    for (int64_t i = 0; i < n * w.stride; i++) p[i] = type == BY_MM_FP8 ? number_e4m3() : any_byte();
    for (int64_t i = 0; i < n * k && type >= BY_MM_BF16; i++) {
        float v = (float)by_rng_normal(&rng);
        if (f == DENORMALS) v *= 0x1p-130f;
        if (type == BY_MM_F32) memcpy(p + 4 * i, &v, 4);
        else {
            uint16_t b = by_bf16_of_f32(v);
            memcpy(p + 2 * i, &b, 2);
        }
    }
    w.w = p;
    if (type > BY_MM_FP8) return w;
    int64_t rows = type == BY_MM_FP8 ? (n + 31) / 32 : n;
    w.scale_stride = k / 32;
    uint8_t *s = grab((size_t)(rows * w.scale_stride));
    for (int64_t i = 0; i < rows * w.scale_stride; i++) s[i] = scale_byte(f);
    w.scale = s;
    return w;
}

typedef struct {
    by_mm_type type;
    int64_t rows, k, stride;
    uint8_t *data; /* A8: values then scales in each row */
} input;

static input make_input(by_mm_type type, int64_t rows, int64_t k, flavour f) {
    input x = {type, rows, k, type == BY_MM_A8 ? k + k / 32 : type == BY_MM_BF16 ? 2 * k : 4 * k, NULL};
    x.data = grab((size_t)(rows * x.stride));
    for (int64_t m = 0; m < rows; m++) {
        uint8_t *p = x.data + m * x.stride;
        flavour rf = f == FAR_SCALES && m % 2 ? PLAIN : f; /* usual rows beside unusual ones */
        for (int64_t i = 0; i < k; i++) {
            float v = (float)(by_rng_normal(&rng) * (rf == DENORMALS ? 0x1p-128 : 1));
            uint16_t b = by_bf16_of_f32(v);
            if (type == BY_MM_A8) p[i] = number_e4m3();
            else if (type == BY_MM_BF16) memcpy(p + 2 * i, &b, 2);
            else memcpy(p + 4 * i, &v, 4);
        }
        for (int64_t g = 0; g < k / 32 && type == BY_MM_A8; g++) {
            p[k + g] = rf == FAR_SCALES ? (uint8_t)by_rng_below(&rng, 255) : rf == DENORMALS ? scale_byte(rf) : (uint8_t)(110 + any_byte() % 20);
            if (by_rng_below(&rng, 16) == 0) memset(p + g * 32, any_byte() & 0x80, 32); /* a group of zeros, any sign */
        }
    }
    return x;
}

static by_mm_src src_of(const input *x, int64_t m) {
    const uint8_t *p = x->data + m * x->stride;
    return (by_mm_src){x->type, p, x->type == BY_MM_A8 ? p + x->k : NULL};
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Rows packed for a product whose row i is row list[i] of x, in pieces of `piece` groups (0 = whole rows at once), over
 * memory that is not zero. */
static by_mm_rows pack(const by_mm_way *way, const input *x, const int32_t *list, int64_t n, int64_t piece) {
    int64_t stride = by_mm_row_bytes(way, x->k), groups = by_mm_groups(x->k), rows = way->block == 1 ? x->rows : n;
    by_mm_rows r = {.packed = grab((size_t)(stride * rows)), .stride = stride, .unsafe = grab((size_t)rows),
                    .src = src_of(x, 0), .src_stride = x->stride, .list = list, .n = n};
    memset(r.packed, 0xff, (size_t)(stride * rows));
    for (int64_t g = 0; g < groups; g += piece ? piece : groups)
        by_mm_pack_rows(way, &r, 0, rows, x->k, g, piece && g + piece < groups ? g + piece : groups);
    return r;
}

static void drop(by_mm_rows *r) {
    free(r->packed);
    free(r->unsafe);
}

/* y [rows, n] fp32: blocks cut at tile rows and at random places inside them when `cuts`. */
static void multiply(float *y, const by_mm_way *way, const by_mm_weight *w, const by_mm_rows *x, bool cuts) {
    void *scratch = aligned_alloc(64, (by_mm_scratch_bytes(kernels, w->k) + 63) / 64 * 64);
    assert_non_null(scratch);
    by_mm_out out = {.y = (uint8_t *)y, .stride = w->n * 4};
    by_mm_enter(kernels, scratch);
    for (int64_t n0 = 0; n0 < w->n;) {
        int64_t n1 = (n0 / 32 + 1) * 32;
        if (cuts) n1 = n0 + 1 + (int64_t)by_rng_below(&rng, (uint64_t)(n1 - n0));
        if (n1 > w->n) n1 = w->n;
        for (int64_t m0 = 0; m0 < x->n;) {
            int64_t m1 = x->n;
            if (cuts) m1 = m0 + way->block * (1 + (int64_t)by_rng_below(&rng, (uint64_t)((x->n - m0) / way->block + 1)));
            if (m1 > x->n) m1 = x->n;
            by_mm_block(way, w, n0, n1, x, m0, m1, &out, scratch);
            m0 = m1;
        }
        n0 = n1;
    }
    by_mm_leave(kernels, scratch);
    free(scratch);
}

/* What is stored as bf16 is the fp32 result, rounded as everywhere else: denormals too. */
static void check_bf16(const float *y, const by_mm_way *way, const by_mm_weight *w, const by_mm_rows *x, const char *what) {
    void *scratch = aligned_alloc(64, (by_mm_scratch_bytes(kernels, w->k) + 63) / 64 * 64);
    uint16_t *got = grab((size_t)(x->n * w->n) * 2);
    assert_non_null(scratch);
    by_mm_out out = {.y = (uint8_t *)got, .stride = w->n * 2, .bf16 = true};
    by_mm_enter(kernels, scratch);
    for (int64_t n = 0; x->n && n < w->n; n += 32) by_mm_block(way, w, n, n + 32 < w->n ? n + 32 : w->n, x, 0, x->n, &out, scratch);
    by_mm_leave(kernels, scratch);
    for (int64_t i = 0; i < x->n * w->n; i++)
        if (got[i] != by_bf16_of_f32(y[i]))
            fail_msg("%s, %s: result %lld, %.9g, is stored as %#x", by_isa_name(kernels->isa), what, (long long)i, (double)y[i], got[i]);
    free(scratch);
    free(got);
}

static double value_of(const input *x, int64_t m, int64_t k) {
    const uint8_t *p = x->data + m * x->stride;
    if (x->type == BY_MM_A8) return (double)by_e4m3_to_f32(p[k]) * (double)by_ue8m0_to_f32(p[x->k + k / 32]);
    if (x->type == BY_MM_BF16) return (double)by_bf16_to_f32((uint16_t)(p[2 * k] | p[2 * k + 1] << 8));
    float f;
    memcpy(&f, p + 4 * k, 4);
    return (double)f;
}

static double weight_of(const by_mm_weight *w, int64_t n, int64_t k) {
    const uint8_t *p = w->w + n * w->stride;
    float f;
    switch (w->type) {
    case BY_MM_FP4:
        return (double)by_e2m1_to_f32((uint8_t)(p[k / 2] >> (k & 1) * 4)) * (double)by_ue8m0_to_f32(w->scale[n * w->scale_stride + k / 32]);
    case BY_MM_FP8:
        return (double)by_e4m3_to_f32(p[k]) * (double)by_ue8m0_to_f32(w->scale[n / 32 * w->scale_stride + k / 32]);
    case BY_MM_BF16: return (double)by_bf16_to_f32((uint16_t)(p[2 * k] | p[2 * k + 1] << 8));
    default: memcpy(&f, p + 4 * k, 4); return (double)f;
    }
}

static void check_close(const float *y, const by_mm_weight *w, const input *x, const char *what) {
    for (int64_t m = 0; m < x->rows; m++) {
        for (int64_t n = 0; n < w->n; n++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < w->k; k++) {
                double p = weight_of(w, n, k) * value_of(x, m, k);
                sum += p;
                size += fabs(p);
            }
            /* One rounding of relative size 2^-24 for each of k / lanes + log2(lanes) steps, and the smallest fp32 each. */
            double steps = (double)w->k / 4 + 8, tol = steps * 0x1p-24 * size + steps * 0x1p-149;
            float got = y[m * w->n + n];
            if (size > 0x1p127) continue; /* the sum may leave fp32 on the way */
            if (!(fabs((double)got - sum) <= tol))
                fail_msg("%s, %s, k %d, row %d, output %d: got %.9g, want %.9g (terms %.3g)", by_isa_name(kernels->isa), what,
                         (int)w->k, (int)m, (int)n, (double)got, sum, size);
        }
    }
}

static void one_case(by_mm_type wt, by_mm_type xt, int64_t rows, int64_t n, int64_t k, flavour f) {
    by_mm_weight w = make_weight(wt, n, k, f);
    input x = make_input(xt, rows, k, f);
    const by_mm_way *way = by_mm_choose(kernels, wt, xt);
    size_t bytes = (size_t)(rows * n) * 4;
    float *whole = grab(bytes), *again = grab(bytes);
    by_mm_rows p = pack(way, &x, NULL, rows, 0);
    multiply(whole, way, &w, &p, false);
    char what[128];
    snprintf(what, sizeof what, "w %d x %d M %d N %d %s", wt, xt, (int)rows, (int)n, flavour_names[f]);
    check_close(whole, &w, &x, what);
    check_bf16(whole, way, &w, &p, what);
    multiply(again, way, &w, &p, true); /* cut in N and M */
    if (bytes && memcmp(whole, again, bytes) != 0) fail_msg("%s %s k %d: cuts change bits", by_isa_name(kernels->isa), what, (int)k);
    int32_t *list = grab((size_t)rows * 4);
    for (int64_t m = 0; m < rows; m++) list[m] = (int32_t)(rows - 1 - m);
    by_mm_rows q = pack(way, &x, list, rows, 1 + (int64_t)by_rng_below(&rng, 3)); /* in another order, packed in pieces */
    multiply(again, way, &w, &q, false);
    drop(&q);
    for (int64_t m = 0; m < rows; m++)
        if (n && memcmp(whole + m * n, again + (rows - 1 - m) * n, (size_t)n * 4) != 0)
            fail_msg("%s %s k %d: order of rows changes bits", by_isa_name(kernels->isa), what, (int)k);
    for (int32_t m = 0; m < rows; m++) {
        q = pack(way, &x, &m, 1, 0); /* alone */
        multiply(again, way, &w, &q, false);
        drop(&q);
        if (n && memcmp(whole + m * n, again, (size_t)n * 4) != 0)
            fail_msg("%s %s k %d: row %d differs alone", by_isa_name(kernels->isa), what, (int)k, (int)m);
    }
    free((void *)(uintptr_t)w.w);
    free((void *)(uintptr_t)w.scale);
    free(x.data);
    drop(&p);
    free(list);
    free(whole);
    free(again);
}

static const by_mm_type weight_types[] = {BY_MM_FP4, BY_MM_FP8, BY_MM_BF16, BY_MM_F32};
static const by_mm_type input_types[] = {BY_MM_A8, BY_MM_BF16, BY_MM_F32};

static void on_every_isa(void (*run)(void)) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    int n = 0;
    for (int i = 0; i < BY_ISA_N; i++) {
        kernels = by_isa_includes(cpu.isa, (by_isa)i) ? by_mm_kernels_for((by_isa)i) : NULL;
        if (!kernels) continue;
        n++;
        run();
    }
    if (n == 0) skip();
}

static bool quantised(by_mm_type t) { return t <= BY_MM_FP8 || t == BY_MM_A8; }

static void all_shapes(void) {
    static const int64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 32, 33, 49, 130}, ns[] = {0, 1, 3, 31, 32, 33, 70};
    static const int64_t ks[] = {32, 64, 96, 128, 160, 224, 512, 544, 2080, 2304}, odd_ks[] = {1, 7, 31, 33, 100};
    for (size_t a = 0; a < 4; a++) {
        for (size_t b = 0; b < 3; b++) {
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                int64_t n = ns[by_rng_below(&rng, 7)], k = ks[by_rng_below(&rng, 10)];
                one_case(weight_types[a], input_types[b], rows[i], n, k, PLAIN);
                if (rows[i] > 20) continue; /* only what the block structure of one tier asks for */
                one_case(weight_types[a], input_types[b], rows[i], ns[i % 7], ks[i % 10], PLAIN);
            }
            for (size_t i = 0; i < 10; i++) one_case(weight_types[a], input_types[b], 3, 40, ks[i], ALL_BYTES);
            if (quantised(weight_types[a]) || quantised(input_types[b])) continue;
            for (size_t i = 0; i < 5; i++) one_case(weight_types[a], input_types[b], 3, 40, odd_ks[i], PLAIN);
        }
    }
}

static void every_shape_agrees_with_double(void **state) {
    (void)state;
    on_every_isa(all_shapes);
}

static void all_extremes(void) {
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 3; b++)
            for (int64_t m = 1; m <= 9; m += 4)
                for (flavour f = FAR_SCALES; f < FLAVOURS; f++) one_case(weight_types[a], input_types[b], m, 45, 192, f);
}

static void extreme_scales_and_denormals_agree_too(void **state) {
    (void)state;
    on_every_isa(all_extremes);
}

/* One scale byte, everything else ordinary: each of the 255 bytes on its own, in weights and in activations. */
static void all_scales(void) {
    for (int s = 0; s < 255; s++) {
        for (int wt = 0; wt < 2; wt++) {
            by_mm_weight w = make_weight((by_mm_type)wt, 3, 64, PLAIN);
            input x = make_input(BY_MM_A8, 2, 64, PLAIN);
            const by_mm_way *way = by_mm_choose(kernels, w.type, BY_MM_A8);
            memset(s % 2 ? (uint8_t *)(uintptr_t)w.scale : x.data + 64, s, 1);
            by_mm_rows p = pack(way, &x, NULL, x.rows, 0);
            float y[6];
            multiply(y, way, &w, &p, false);
            check_close(y, &w, &x, "one scale");
            free((void *)(uintptr_t)w.w);
            free((void *)(uintptr_t)w.scale);
            free(x.data);
            drop(&p);
        }
    }
}

/* Scales so small that the results are denormals. */
static void all_denormal_results(void) {
    for (int wt = 0; wt < 2; wt++) {
        for (int64_t m = 1; m <= 40; m += 13) {
            enum { N = 45, K = 128 };
            by_mm_weight w = make_weight((by_mm_type)wt, N, K, PLAIN);
            input x = make_input(BY_MM_A8, m, K, PLAIN);
            const by_mm_way *way = by_mm_choose(kernels, w.type, BY_MM_A8);
            int64_t n_scales = wt == BY_MM_FP4 ? (N - 1) * w.scale_stride + K / 32 : (N - 1) / 32 * w.scale_stride + K / 32, n_denormal = 0;
            memset((uint8_t *)(uintptr_t)w.scale, 52, (size_t)n_scales);
            for (int64_t r = 0; r < m; r++) memset(x.data + r * x.stride + K, 52, K / 32);
            by_mm_rows p = pack(way, &x, NULL, m, 0);
            float *y = grab((size_t)(m * N) * 4);
            multiply(y, way, &w, &p, false);
            check_close(y, &w, &x, "denormal results");
            check_bf16(y, way, &w, &p, "denormal results");
            for (int64_t i = 0; i < m * N; i++) n_denormal += fpclassify(y[i]) == FP_SUBNORMAL;
            assert_true(2 * n_denormal > m * N);
            free((void *)(uintptr_t)w.w);
            free((void *)(uintptr_t)w.scale);
            free(x.data);
            drop(&p);
            free(y);
        }
    }
}

static void denormal_results_are_kept(void **state) {
    (void)state;
    on_every_isa(all_denormal_results);
}

static void every_scale_byte_is_right(void **state) {
    (void)state;
    on_every_isa(all_scales);
}

/* Each weight code against x = 1 in one column, so that products are exact: equality, not closeness. */
static void all_codes(void) {
    for (int wt = 0; wt < 2; wt++) {
        for (int code = 0; code < (wt == BY_MM_FP4 ? 16 : 256); code++) {
            int64_t k = 96, col = 1 + code % 90;
            by_mm_weight w = make_weight((by_mm_type)wt, 1, k, PLAIN);
            uint8_t *p = (uint8_t *)(uintptr_t)w.w;
            if (wt == BY_MM_FP4) p[col / 2] = (uint8_t)(code << (col & 1) * 4);
            else p[col] = (uint8_t)code;
            input x = make_input(BY_MM_A8, 1, k, PLAIN);
            memset(x.data, 0, (size_t)k);
            x.data[col] = 0x38; /* 1.0 */
            const by_mm_way *way = by_mm_choose(kernels, w.type, BY_MM_A8);
            by_mm_rows q = pack(way, &x, NULL, x.rows, 0);
            float y, want = (float)(weight_of(&w, 0, col) * value_of(&x, 0, col));
            multiply(&y, way, &w, &q, false);
            if (isnan(want)) assert_true(isnan(y));
            else if (!(y == want)) fail_msg("%s code %02x: %g, want %g", by_isa_name(kernels->isa), code, (double)y, (double)want);
            free(p);
            free((void *)(uintptr_t)w.scale);
            free(x.data);
            drop(&q);
        }
    }
}

static void every_code_is_exact(void **state) {
    (void)state;
    on_every_isa(all_codes);
}

/* NaN comes through, and what an infinity gives is not finite: no product hides one. */
static void odd_cases(float odd) {
    for (size_t a = 0; a < 4; a++) {
        for (size_t b = 0; b < 3; b++) {
            by_mm_weight w = make_weight(weight_types[a], 35, 96, PLAIN);
            input x = make_input(input_types[b], 3, 96, PLAIN);
            uint8_t *p = (uint8_t *)(uintptr_t)w.w;
            uint16_t half = by_bf16_of_f32(odd);
            bool in_w = isnan(odd) ? w.type != BY_MM_FP4 : w.type == BY_MM_BF16 || w.type == BY_MM_F32; /* fp8 has no infinity */
            bool in_x = isnan(odd) || x.type != BY_MM_A8;
            if (w.type == BY_MM_FP8 && in_w) p[33 * 96 + 50] = 0xff;
            if (w.type == BY_MM_BF16) memcpy(p + (33 * 96 + 50) * 2, &half, 2);
            if (w.type == BY_MM_F32) memcpy(p + (33 * 96 + 50) * 4, &odd, 4);
            uint8_t *q = x.data + 2 * x.stride; /* row 2 */
            if (x.type == BY_MM_A8 && in_x) q[70] = 0x7f;
            if (x.type == BY_MM_BF16) memcpy(q + 70 * 2, &half, 2);
            if (x.type == BY_MM_F32) memcpy(q + 70 * 4, &odd, 4);
            const by_mm_way *way = by_mm_choose(kernels, w.type, x.type);
            by_mm_rows rows = pack(way, &x, NULL, x.rows, 0);
            float y[3 * 35];
            multiply(y, way, &w, &rows, false);
            for (int m = 0; m < 3; m++)
                for (int n = 0; n < 35; n++) {
                    bool hit = (in_x && m == 2) || (in_w && n == 33);
                    assert_int_equal(hit ? (isnan(odd) ? !!isnan(y[m * 35 + n]) : !isfinite(y[m * 35 + n])) : !!isfinite(y[m * 35 + n]), 1);
                }
            free(p);
            free((void *)(uintptr_t)w.scale);
            free(x.data);
            drop(&rows);
        }
    }
}

static void nan_cases(void) { odd_cases(NAN), odd_cases(INFINITY), odd_cases(-INFINITY); }

static void nan_is_never_hidden(void **state) {
    (void)state;
    on_every_isa(nan_cases);
}

static void bf16_output_rounds_once(void **state) {
    (void)state;
    by_cpu cpu;
    by_cpu_detect(&cpu);
    kernels = by_mm_kernels_for(cpu.isa);
    if (!kernels) skip();
    by_mm_weight w = make_weight(BY_MM_FP8, 50, 128, PLAIN);
    input x = make_input(BY_MM_A8, 5, 128, PLAIN);
    const by_mm_way *way = by_mm_choose(kernels, w.type, x.type);
    by_mm_rows p = pack(way, &x, NULL, x.rows, 0);
    float y[5 * 50];
    uint16_t b[5 * 50], list_y[7 * 50];
    multiply(y, way, &w, &p, false);
    void *scratch = aligned_alloc(64, (by_mm_scratch_bytes(kernels, 128) + 63) / 64 * 64);
    by_mm_enter(kernels, scratch);
    by_mm_out out = {.y = (uint8_t *)b, .stride = 100, .bf16 = true};
    int32_t to[5] = {6, 0, 3, 1, 4};
    by_mm_out listed = {.y = (uint8_t *)list_y, .stride = 100, .bf16 = true, .list = to};
    for (int64_t n = 0; n < 50; n += 32) {
        by_mm_block(way, &w, n, n + 32 < 50 ? n + 32 : 50, &p, 0, 5, &out, scratch);
        by_mm_block(way, &w, n, n + 32 < 50 ? n + 32 : 50, &p, 0, 5, &listed, scratch);
    }
    by_mm_leave(kernels, scratch);
    for (int i = 0; i < 250; i++) {
        assert_int_equal(b[i], by_bf16_of_f32(y[i]));
        assert_int_equal(list_y[to[i / 50] * 50 + i % 50], b[i]);
    }
    free(scratch);
    free((void *)(uintptr_t)w.w);
    free((void *)(uintptr_t)w.scale);
    free(x.data);
    drop(&p);
}

int main(void) {
    rng = by_test_rng(20261);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_agrees_with_double), cmocka_unit_test(extreme_scales_and_denormals_agree_too),
        cmocka_unit_test(denormal_results_are_kept),
        cmocka_unit_test(every_scale_byte_is_right),      cmocka_unit_test(every_code_is_exact),
        cmocka_unit_test(nan_is_never_hidden),            cmocka_unit_test(bf16_output_rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
