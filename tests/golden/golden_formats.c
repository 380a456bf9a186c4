/* golden_formats.c - every code table, rounding and record of tests/golden/data/model/formats, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/formats.h"
#include "ops/host.h"
#include "support/golden.h"
#include "support/npz.h"

static by_npz *open_file(const char *name) {
    by_npz *z = by_npz_open(by_golden_path(name));
    assert_non_null(z);
    return z;
}

static void tables_hold_every_code(void **state) {
    (void)state;
    by_npz *z = open_file("model/formats/tables.npz");
    const float *e4m3 = by_npy_f32(by_npz_need(z, "<f4", "e4m3.value"));
    for (int i = 0; i < 256; i++) {
        if ((i & 0x7f) == 0x7f) assert_true(isnan(by_e4m3_to_f32((uint8_t)i)) && isnan(e4m3[i]));
        else assert_int_equal(by_f32_bits(by_e4m3_to_f32((uint8_t)i)), by_f32_bits(e4m3[i]));
    }
    const float *e8m0 = by_npy_f32(by_npz_need(z, "<f4", "e8m0.value"));
    for (int i = 0; i < 255; i++) assert_int_equal(by_f32_bits(by_ue8m0_to_f32((uint8_t)i)), by_f32_bits(e8m0[i]));
    const float *e2m1 = by_npy_f32(by_npz_need(z, "<f4", "e2m1.value"));
    for (int i = 0; i < 16; i++) assert_int_equal(by_f32_bits(by_e2m1_to_f32((uint8_t)i)), by_f32_bits(e2m1[i]));
    const by_npy *bits = by_npz_need(z, "<i4", "bf16_to_f32.bits");
    const int32_t *value = by_npy_i32(by_npz_need(z, "<i4", "bf16_to_f32.value_bits"));
    for (size_t i = 0; i < bits->n; i++)
        assert_int_equal(by_f32_bits(by_bf16_to_f32((uint16_t)by_npy_i32(bits)[i])), (uint32_t)value[i]);
    by_npz_close(z);
}

static void single_values_round_to_nearest_even(void **state) {
    (void)state;
    by_npz *z = open_file("model/formats/rounding.npz");
    const by_npy *x = by_npz_need(z, "<f4", "f32_to_e4m3.x");
    const uint8_t *byte = by_npy_u8(by_npz_need(z, "|u1", "f32_to_e4m3.byte"));
    for (size_t i = 0; i < x->n; i++) assert_int_equal(by_e4m3_of_f32(by_npy_f32(x)[i]), byte[i]);
    x = by_npz_need(z, "<f4", "f32_to_e2m1.x");
    const uint8_t *code = by_npy_u8(by_npz_need(z, "|u1", "f32_to_e2m1.code"));
    for (size_t i = 0; i < x->n; i++) {
        uint8_t got = by_e2m1_of_f32(by_npy_f32(x)[i]);
        assert_int_equal(got == 8 ? 0 : got, code[i] == 8 ? 0 : code[i]);
    }
    x = by_npz_need(z, "<i4", "f32_to_bf16.x_bits");
    const int32_t *bf16 = by_npy_i32(by_npz_need(z, "<i4", "f32_to_bf16.bf16_bits"));
    for (size_t i = 0; i < x->n; i++)
        assert_int_equal(by_bf16_of_f32(by_f32_of_bits((uint32_t)by_npy_i32(x)[i])), (uint16_t)bf16[i]);
    x = by_npz_need(z, "<f4", "pow2_ceil.x");
    const float *pow2 = by_npy_f32(by_npz_need(z, "<f4", "pow2_ceil.value"));
    for (size_t i = 0; i < x->n; i++)
        assert_int_equal(by_f32_bits(by_ue8m0_to_f32(by_ue8m0_ceil(by_npy_f32(x)[i]))), by_f32_bits(pow2[i]));
    by_npz_close(z);
}

/* Weights decode through the same accessor as the operators use. */
static void check_weight(by_npz *z, by_device *dev, const char *name, by_dtype dtype, int64_t k_per_byte) {
    const by_npy *w = by_npz_need(z, "|u1", "%s.weight", name), *s = by_npz_need(z, "|u1", "%s.scale", name);
    const float *want = by_npy_f32(by_npz_need(z, "<f4", "%s.value", name));
    by_mem *wm, *sm;
    assert_int_equal(by_mem_import(&wm, dev, w->data, w->n, false, NULL), BY_OK);
    assert_int_equal(by_mem_import(&sm, dev, s->data, s->n, false, NULL), BY_OK);
    int64_t rows = (int64_t)w->shape[0], k = (int64_t)w->shape[1] * k_per_byte;
    by_weight weight = {by_tensor_make(wm, 0, dtype, rows, k),
                        by_tensor_make(sm, 0, BY_U8, (int64_t)s->shape[0], (int64_t)s->shape[1])};
    float *row = malloc((size_t)k * 4);
    assert_non_null(row);
    for (int64_t n = 0; n < rows; n++) {
        by_weight_row_load(row, &weight, n);
        for (int64_t i = 0; i < k; i++) {
            float v = want[n * k + i];
            if (isnan(v)) assert_true(isnan(row[i]));
            else assert_int_equal(by_f32_bits(row[i]), by_f32_bits(v));
        }
    }
    free(row);
    by_mem_free(wm);
    by_mem_free(sm);
}

static void weights_decode_bit_for_bit(void **state) {
    (void)state;
    by_npz *z = open_file("model/formats/weights.npz");
    by_device *dev;
    assert_int_equal(by_device_open(&dev, &(by_device_opts){.backend = BY_BACKEND_REF}, NULL), BY_OK);
    check_weight(z, dev, "fp8_block_ragged", BY_FP8_TILE, 1);
    check_weight(z, dev, "fp8_block_any_bytes", BY_FP8_TILE, 1);
    check_weight(z, dev, "fp8_rows", BY_FP8_ROW, 1);
    check_weight(z, dev, "fp4_rows", BY_FP4_ROW, 2);
    check_weight(z, dev, "fp4_rows_any_bytes", BY_FP4_ROW, 2);
    by_device_close(dev);
    by_npz_close(z);
}

/* Codes of negative zero count as zero. */
static uint8_t plain_zero(uint8_t b) { return (uint8_t)(((b & 15) == 8 ? 0 : b & 15) | (b >> 4 == 8 ? 0 : b & 0xf0)); }

static void check_record(by_npz *z, const char *name, by_rec rec, size_t n_codes, bool fp4) {
    const by_npy *x = by_npz_need(z, "<f4", "%s.x", name), *r = by_npz_need(z, "|u1", "%s.record", name);
    const float *want = by_npy_f32(by_npz_need(z, "<f4", "%s.value", name));
    int64_t d = (int64_t)x->shape[1];
    size_t bytes = (size_t)by_rec_bytes(rec, d);
    assert_int_equal(bytes, r->shape[1]);
    unsigned char *got = malloc(bytes);
    float *value = malloc((size_t)d * 4);
    assert_true(got && value);
    for (size_t i = 0; i < x->shape[0]; i++) {
        by_rec_store(got, rec, by_npy_f32(x) + i * (size_t)d, d);
        for (size_t b = 0; b < bytes; b++) {
            uint8_t g = got[b], w = by_npy_u8(r)[i * bytes + b];
            assert_int_equal(fp4 && b < n_codes ? plain_zero(g) : g, fp4 && b < n_codes ? plain_zero(w) : w);
        }
        by_rec_load(value, rec, got, d);
        assert_true(by_golden_close_f32(name, value, want + i * (size_t)d, (size_t)d, 0, 0));
    }
    free(got);
    free(value);
}

static void records_are_the_deployed_bytes(void **state) {
    (void)state;
    by_npz *z = open_file("model/formats/records.npz");
    check_record(z, "window_kv_528", BY_REC_FP8, 512, false);
    check_record(z, "compressed_kv_288", BY_REC_FP4, 256, true);
    check_record(z, "index_key_68", BY_REC_IX4, 64, true);
    const char *act8[] = {"act8", "act8_small"};
    for (int c = 0; c < 2; c++) {
        const by_npy *x = by_npz_need(z, "<f4", "%s.x", act8[c]);
        const uint8_t *byte = by_npy_u8(by_npz_need(z, "|u1", "%s.byte", act8[c]));
        const uint8_t *scale = by_npy_u8(by_npz_need(z, "|u1", "%s.scale", act8[c]));
        size_t n = x->shape[1];
        uint8_t data[512], scales[16];
        for (size_t i = 0; i < x->shape[0]; i++) {
            by_quant_act8(by_npy_f32(x) + i * n, (int64_t)n, data, scales);
            assert_memory_equal(data, byte + i * n, n);
            assert_memory_equal(scales, scale + i * (n / 32), n / 32);
        }
    }
    by_npz_close(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_hold_every_code),
        cmocka_unit_test(single_values_round_to_nearest_even),
        cmocka_unit_test(weights_decode_bit_for_bit),
        cmocka_unit_test(records_are_the_deployed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
