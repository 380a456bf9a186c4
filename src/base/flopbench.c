/* flopbench.c - see flopbench.h. Each unit has one loop with enough independent sums to hide its latency; the sums are kept so
 * that the loop cannot be removed. */
#include "base/flopbench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SUMS = 12 };

typedef float lanes __attribute__((vector_size(32)));

typedef struct {
    double (*loop)(int64_t n, float *kept); /* operations done */
    int64_t n;
    float kept[BY_LIMIT_THREADS];
    double flops[BY_LIMIT_THREADS];
} probe;

static double loop_plain(int64_t n, float *kept) {
    lanes sums[SUMS] = {{0}}, x = {1, 2, 3, 4, 5, 6, 7, 8}, y = x * 0.001f;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++) sums[k] = sums[k] * y + x;
    for (int k = 0; k < SUMS; k++) *kept += sums[k][k % 8];
    return (double)n * SUMS * 8 * 2;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double loop_fma(int64_t n, float *kept) {
    __m256 sums[SUMS], x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm256_set1_ps((float)k);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++) sums[k] = _mm256_fmadd_ps(x, y, sums[k]);
    for (int k = 0; k < SUMS; k++) *kept += _mm256_cvtss_f32(sums[k]);
    return (double)n * SUMS * 8 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) static double loop_bf16(int64_t n, float *kept) {
    __m512 sums[SUMS];
    __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f00), y = (__m512bh)_mm512_set1_epi16(0x3e80);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm512_set1_ps((float)k);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++) sums[k] = _mm512_dpbf16_ps(sums[k], x, y);
    for (int k = 0; k < SUMS; k++) *kept += _mm512_cvtss_f32(sums[k]);
    return (double)n * SUMS * 32 * 2;
}

__attribute__((target("amx-tile,amx-bf16"))) static double loop_amx(int64_t n, float *kept) {
    static const uint8_t zeros[1024];
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    float out[16][16];
    for (int t = 0; t < 8; t++) {
        config.bytes[t] = 64;
        config.rows[t] = 16;
    }
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    for (int64_t i = 0; i < n; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, 64);
    _tile_release();
    *kept += out[0][0];
    return (double)n * 4 * 16 * 16 * 32 * 2;
}
#endif

static void choose(probe *p, const char **unit) {
    p->loop = loop_plain;
    *unit = "fp32";
#if defined(__x86_64__)
    by_cpu cpu;
    by_cpu_detect(&cpu);
    if (cpu.isa >= BY_ISA_AVX2) {
        p->loop = loop_fma;
        *unit = "fp32 AVX2";
    }
    if (cpu.isa >= BY_ISA_AVX512BF16) {
        p->loop = loop_bf16;
        *unit = "bf16 AVX-512";
    }
    if (cpu.isa >= BY_ISA_AMX) {
        p->loop = loop_amx;
        *unit = "bf16 AMX";
    }
#endif
}

static void run_part(void *arg, int64_t begin, int64_t end, int32_t worker) {
    probe *p = arg;
    for (int64_t i = begin; i < end; i++) p->flops[worker] += p->loop(p->n, &p->kept[worker]);
}

by_status by_flopbench_bf16(double *flop_per_s, const char **unit, int32_t n_threads, int rounds, by_err *err) {
    *flop_per_s = 0;
    by_pool *pool = NULL;
    probe *p = by_alloc_zero(BY_MEM_MISC, sizeof *p);
    if (!p) return BY_FAIL(err, BY_ENOMEM, "out of memory for the arithmetic probe");
    choose(p, unit);
    by_status status = by_pool_create(&pool, n_threads, err);
    p->n = 1000;
    if (status == BY_OK) { /* as many turns as take about 10 ms */
        int64_t t0 = by_clock_ns(), spent;
        p->loop(p->n, &p->kept[0]);
        spent = by_clock_ns() - t0;
        if (spent > 0 && spent < 10000000) p->n = p->n * 10000000 / spent;
    }
    for (int r = 0; status == BY_OK && r < rounds; r++) {
        for (int i = 0; i < BY_LIMIT_THREADS; i++) p->flops[i] = 0;
        int64_t t0 = by_clock_ns();
        by_pool_for(pool, n_threads, 0, run_part, p);
        double s = (double)(by_clock_ns() - t0) * 1e-9, sum = 0;
        for (int i = 0; i < BY_LIMIT_THREADS; i++) sum += p->flops[i];
        if (sum / s > *flop_per_s) *flop_per_s = sum / s;
    }
    by_pool_destroy(pool);
    by_free(p);
    return status;
}
