/* The vector loops of every instruction set against one-value-at-a-time code: number formats bit for bit, functions to fp32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/cpu/cpu_vec.h"
#include "ops/formats.h"
#include "support/seed.h"

static by_rng rng;
static const by_vec *vec;

static void on_every_isa(void (*run)(void)) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    const by_vec *last = NULL;
    for (int i = 0; i < BY_ISA_N; i++) {
        vec = by_isa_includes(cpu.isa, (by_isa)i) ? by_vec_for((by_isa)i) : NULL;
        if (!vec || vec == last) continue;
        last = vec;
        run();
    }
    if (!last) skip();
}

/* Any fp32 that is a number, of every size. */
static float any_float(void) {
    for (;;) {
        float x = by_f32_of_bits((uint32_t)by_rng_u64(&rng));
        if (isfinite(x)) return x;
    }
}
static float near_float(void) { return (float)(by_rng_normal(&rng) * exp2((double)by_rng_below(&rng, 24) - 12)); }

static void rounding(void) {
    for (int round = 0; round < by_test_scaled(2000); round++) {
        float x[37], y[37];
        uint16_t b[37];
        for (int i = 0; i < 37; i++) x[i] = i == 5 ? NAN : i == 6 ? -INFINITY : any_float();
        if (round % 2) /* exact ties */
            for (int i = 0; i < 37; i++) x[i] = by_f32_of_bits((by_f32_bits(x[i]) & 0xffff0000u) | 0x8000u);
        vec->store(b, BY_BF16, x, 37);
        for (int i = 0; i < 37; i++) assert_int_equal(b[i], by_bf16_of_f32(x[i]));
        memcpy(y, x, sizeof x);
        vec->round(y, BY_BF16, 37);
        for (int i = 0; i < 37; i++) assert_int_equal(by_f32_bits(y[i]), (uint32_t)b[i] << 16);
        vec->load(y, BY_BF16, b, 37);
        for (int i = 0; i < 37; i++) assert_int_equal(by_f32_bits(y[i]), (uint32_t)b[i] << 16);
    }
}

/* Every bf16 value as the value to be coded, beside one that fixes the scale. */
static void codes(void) {
    for (uint32_t u = 0; u < 0x10000; u++) {
        float x[64], top = u % 3 ? 448.0f : near_float();
        for (int i = 0; i < 64; i++) x[i] = i % 32 == 7 ? top : by_f32_of_bits((u << 16) + (uint32_t)i * 997);
        if (!isfinite(x[0]) || !isfinite(x[63])) continue;
        uint8_t got[80], want[80], gs[8], ws[8];
        vec->rec_store(got, gs, BY_REC_FP8, x, 64);
        by_quant_act8(x, 64, want, ws);
        assert_memory_equal(got, want, 64);
        assert_memory_equal(gs, ws, 2);
        vec->rec_store(got, gs, BY_REC_FP4, x, 64);
        by_quant_kv4(x, 64, want, ws);
        assert_memory_equal(got, want, 32);
        assert_memory_equal(gs, ws, 4);
        vec->rec_store(got, gs, BY_REC_IX4, x, 64);
        by_quant_ix4(x, 64, want, ws);
        assert_memory_equal(got, want, 32);
        assert_memory_equal(gs, ws, 2);
        vec->store(got, BY_A8, x, 64);
        by_quant_act8(x, 64, want, want + 64);
        assert_memory_equal(got, want, 66);
    }
}

static void decoding(void) {
    for (int round = 0; round < by_test_scaled(3000); round++) {
        uint8_t data[96], scales[8];
        float got[96], want[96];
        for (int i = 0; i < 96; i++) data[i] = (uint8_t)(round < 3 ? round * 96 + i : (int)by_rng_below(&rng, 256));
        for (int i = 0; i < 8; i++) scales[i] = (uint8_t)by_rng_below(&rng, 255);
        vec->rec_load(got, BY_REC_FP8, data, scales, 96);
        by_dequant_act8(data, scales, 96, want);
        for (int i = 0; i < 96; i++) assert_true(by_f32_bits(got[i]) == by_f32_bits(want[i]) || (isnan(got[i]) && isnan(want[i])));
        vec->rec_load(got, BY_REC_IX4, data, scales, 96);
        by_dequant_ix4(data, scales, 96, want);
        for (int i = 0; i < 96; i++) assert_true(got[i] == want[i]);
        for (int i = 0; i < 8; i++) scales[i] &= 0x7e;
        vec->rec_load(got, BY_REC_FP4, data, scales, 96);
        by_dequant_kv4(data, scales, 96, want);
        for (int i = 0; i < 96; i++) assert_true(got[i] == want[i]);
    }
}

static double silu(double g) { return g / (1 + exp(-g)); }

static void functions(void) {
    for (int round = 0; round < by_test_scaled(20000); round++) {
        float x[19], y[19], z[19];
        for (int i = 0; i < 19; i++) {
            x[i] = near_float();
            y[i] = near_float();
        }
        float limit = round % 2 ? 10 : 0, w = near_float();
        vec->swiglu(z, x, y, 19, limit, w);
        for (int i = 0; i < 19; i++) {
            double g = limit > 0 && x[i] > limit ? limit : x[i], u = y[i];
            if (limit > 0) u = u > limit ? limit : u < -limit ? -limit : u;
            double want = silu(g) * u * w;
            assert_true(fabs((double)z[i] - want) <= 5e-7 * fabs(want) + 1e-36 * (1 + fabs(u * w))); /* silu below 1e-36 is 0 */
        }
        memcpy(z, x, sizeof x);
        vec->softplus_root(z, 19);
        for (int i = 0; i < 19; i++) {
            double want = sqrt(x[i] > 0 ? x[i] + log1p(exp(-(double)x[i])) : log1p(exp((double)x[i])));
            assert_true(fabs((double)z[i] - want) <= 4e-7 * want + 1e-36);
        }
        memcpy(z, x, sizeof x);
        float sink = round % 3 ? near_float() : -1e30f;
        double inv = vec->softmax(z, 19, sink), top = sink, sum = 0;
        for (int i = 0; i < 19; i++) top = fmax(top, x[i]);
        for (int i = 0; i < 19; i++) sum += exp(x[i] - top);
        sum += exp(sink - top);
        for (int i = 0; i < 19; i++) { /* the difference x - top is rounded to fp32, as in ref */
            double want = exp(x[i] - top) / sum;
            assert_true(fabs((double)z[i] * inv - want) <= (1e-6 + (top - x[i]) * 0x1p-23) * want + 1e-36);
        }
    }
    float g[3] = {NAN, 1, 0}, u[3] = {1, NAN, 0}, y[3];
    vec->swiglu(y, g, u, 3, 10, 1);
    assert_true(isnan(y[0]) && isnan(y[1]) && y[2] == 0);
    float p[2] = {NAN, 0};
    assert_true(isnan(vec->softmax(p, 2, 0)));
}

static void sums(void) {
    for (int64_t n = 1; n < 200; n += n < 40 ? 1 : 23) {
        float x[200], y[200], w[200], z[200];
        double dot = 0, ss = 0, size = 0;
        for (int64_t i = 0; i < n; i++) {
            x[i] = near_float();
            y[i] = near_float();
            w[i] = near_float();
            dot += (double)x[i] * (double)y[i];
            size += fabs((double)x[i] * (double)y[i]);
            ss += (double)x[i] * (double)x[i];
        }
        assert_true(fabs(vec->dot(x, y, n) - dot) <= 1e-13 * size);
        vec->norm(z, x, w, n, 1e-6f);
        float r = (float)(1.0 / sqrt(ss / (double)n + (double)1e-6f));
        for (int64_t i = 0; i < n; i++) assert_true(fabsf(z[i] - x[i] * r * w[i]) <= 3e-7f * fabsf(z[i]));
        int64_t even = n / 2 * 2;
        memcpy(z, x, sizeof x);
        vec->rotate(z, y, even, -1);
        for (int64_t i = 0; i < even; i += 2) { /* the same roundings as ref */
            assert_true(z[i] == x[i] * y[i] + x[i + 1] * y[i + 1]);
            assert_true(z[i + 1] == x[i + 1] * y[i] - x[i] * y[i + 1]);
        }
    }
}

#define CASE(name, run)                                                                                                \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        on_every_isa(run);                                                                                             \
    }
CASE(bf16_rounds_like_the_formats, rounding)
CASE(every_bf16_value_gets_the_code_of_the_formats, codes)
CASE(records_decode_like_the_formats, decoding)
CASE(exponentials_are_right_to_fp32, functions)
CASE(sums_and_rotations_are_those_of_ref, sums)

int main(void) {
    rng = by_test_rng(20262);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_rounds_like_the_formats),    cmocka_unit_test(every_bf16_value_gets_the_code_of_the_formats),
        cmocka_unit_test(records_decode_like_the_formats), cmocka_unit_test(exponentials_are_right_to_fp32),
        cmocka_unit_test(sums_and_rotations_are_those_of_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
