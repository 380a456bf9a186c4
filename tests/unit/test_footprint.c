/* test_footprint.c - sums over the published sizes (tools/presets/flash.json) equal the published numbers: bytes of the
 * parts, tensors, cache records, blocks and slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/footprint.h"
#include "model/tensor_table.h"

static by_config g_flash;

static int read_flash(void **state) {
    (void)state;
    by_buf text = {0};
    by_err err = {0};
    by_status status = by_file_read(&text, BATHYC_SOURCE_DIR "/tools/presets/flash.json", 1 << 20, &err);
    if (status == BY_OK) status = by_config_parse(&g_flash, by_buf_str(&text), NULL, &err);
    if (status != BY_OK) print_error("%s\n", err.msg);
    by_buf_deinit(&text);
    return status == BY_OK ? 0 : -1;
}

static void assert_gb(int64_t bytes, double want, double unit) {
    double got = (double)bytes * 1e-9;
    if (got < want - unit / 2 || got > want + unit / 2) fail_msg("%.6f GB instead of %.3f", got, want);
}

static void weights_by_part_are_the_published_sums(void **state) {
    (void)state;
    by_part_sums s;
    by_tensor_table_sum(&g_flash, &s);
    assert_gb(s.bytes[BY_PART_ATTENTION], 5.070, 0.001);
    assert_gb(s.bytes[BY_PART_SHARED_EXPERT], 1.417, 0.001);
    assert_gb(s.bytes[BY_PART_HEAD], 1.324, 0.001);
    assert_gb(s.bytes[BY_PART_ENGRAM_PROJECTION], 0.315, 0.001);
    assert_gb(s.bytes[BY_PART_ROUTER], 0.157, 0.001);
    assert_gb(s.bytes[BY_PART_HYPER], 0.157, 0.001);
    assert_gb(s.bytes[BY_PART_INDEXER], 0.045, 0.001);
    assert_gb(s.bytes[BY_PART_COMPRESSOR], 0.037, 0.001);
    int64_t fixed = s.bytes[BY_PART_ATTENTION] + s.bytes[BY_PART_SHARED_EXPERT] + s.bytes[BY_PART_HEAD] +
                    s.bytes[BY_PART_ENGRAM_PROJECTION] + s.bytes[BY_PART_ROUTER] + s.bytes[BY_PART_HYPER] +
                    s.bytes[BY_PART_INDEXER] + s.bytes[BY_PART_COMPRESSOR] + s.bytes[BY_PART_NORMS];
    assert_gb(fixed, 8.52, 0.01);
    assert_gb(s.bytes[BY_PART_EXPERTS], 288.8, 0.1);
    assert_gb(s.bytes[BY_PART_EXPERTS] / 384 * 6, 4.51, 0.01);
    assert_int_equal(s.bytes[BY_PART_EXPERTS] / (384 * 40),
                     18800640); /* 18.8 MB: 3 x 2304 x 5120 values at 4.25 bits */
    assert_gb(fixed + s.bytes[BY_PART_EXPERTS] / 384 * 6, 13.03, 0.02);
    assert_int_equal(s.bytes[BY_PART_ENGRAM_TABLE], (INT64_C(384006168) + 384016682) * 264);
    assert_gb(s.bytes_total - s.bytes[BY_PART_ENGRAM_TABLE] - s.bytes[BY_PART_VISION], 306.6, 0.1);
    assert_gb(s.bytes_total, 510, 1);
    int64_t trunk = s.params_total - s.params[BY_PART_ENGRAM_TABLE] - s.params[BY_PART_DRAFT] -
                    s.params[BY_PART_DRAFT_EXPERTS] - s.params[BY_PART_VISION];
    assert_true(trunk > INT64_C(551500000000) && trunk < INT64_C(552500000000)); /* 552 G */
    assert_int_equal(s.params[BY_PART_ENGRAM_TABLE], (INT64_C(384006168) + 384016682) * 256);
}

static by_status count_vision(void *ctx, const by_tensor_spec *spec, by_err *err) {
    (void)err;
    if (spec->part == BY_PART_VISION) *(int64_t *)ctx += spec->rows * spec->cols;
    return BY_OK;
}

static void draft_and_image_tensors_are_as_many_as_published(void **state) {
    (void)state;
    by_part_sums s;
    by_tensor_table_sum(&g_flash, &s);
    assert_int_equal(s.n_tensors[BY_PART_DRAFT_EXPERTS], 3 * 128 * 6);
    assert_int_equal(s.n_tensors[BY_PART_DRAFT], 97);
    int64_t vision = 0;
    assert_int_equal(by_tensor_table_walk(&g_flash, count_vision, &vision, NULL), BY_OK);
    assert_true(vision > INT64_C(485250000) && vision < INT64_C(485350000)); /* 485.3 M */
}

static by_status compare_row(void *ctx, const by_tensor_spec *spec, by_err *err) {
    (void)err;
    static const struct {
        const char *name, *dtype;
        int64_t rows, cols;
    } published[] = {
        {"embed.weight", "BF16", 129280, 5120},
        {"layers.0.hc_attn_fn", "F32", 24, 20480},
        {"layers.39.attn.wq_b.weight", "F8_E4M3", 32768, 1280},
        {"layers.39.attn.wq_b.scale", "F8_E8M0", 1024, 40},
        {"layers.5.attn.wo_a.scale", "F8_E8M0", 256, 128},
        {"layers.2.attn.compressor.wgate.weight", "BF16", 512, 5120},
        {"layers.36.attn.indexer.wq_b.weight", "F8_E4M3", 4096, 1280},
        {"layers.20.attn.indexer.wk.weight", "BF16", 128, 512},
        {"layers.7.ffn.experts.383.w1.weight", "I8", 2304, 2560},
        {"layers.7.ffn.experts.383.w1.scale", "F8_E8M0", 2304, 160},
        {"layers.7.ffn.experts.0.w2.weight", "I8", 5120, 1152},
        {"layers.7.ffn.experts.0.w2.scale", "F8_E8M0", 5120, 72},
        {"layers.14.engram.embed.weight", "F8_E4M3", 384016682, 256},
        {"layers.14.engram.embed.scale", "F8_E8M0", 384016682, 8},
        {"layers.1.engram.wkv.weight", "F8_E4M3", 25600, 6144},
        {"layers.1.engram.wkv.scale", "F8_E8M0", 800, 192},
        {"mtp.0.main_proj.scale", "F8_E8M0", 160, 480},
        {"mtp.2.confidence_head.proj.weight", "BF16", 1, 5376},
        {"mtp.2.ffn.experts.127.w3.weight", "I8", 2304, 2560},
        {"vision.blocks.31.mlp.w1.weight", "BF16", 5632, 1024},
        {"aligner.w1.weight", "BF16", 5120, 9216},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        if (strcmp(spec->name, published[i].name) != 0) continue;
        assert_string_equal(by_st_dtype_name(spec->dtype), published[i].dtype);
        assert_int_equal(spec->shape[0], published[i].rows);
        assert_int_equal(spec->shape[1], published[i].cols);
        (*(int *)ctx)++;
    }
    static const char *const absent[] = {"layers.20.attn.compressor.wgate.weight",
                                         "layers.3.attn.indexer.wq_b.weight",
                                         "layers.24.attn.indexer.wk.weight",
                                         "layers.0.engram.q_weight",
                                         "mtp.1.main_proj.weight",
                                         "mtp.0.norm.weight",
                                         "mtp.1.attn.compressor.wkv.weight"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_string_not_equal(spec->name, absent[i]);
    return BY_OK;
}

static void shapes_are_the_published_ones(void **state) {
    (void)state;
    int n = 0;
    assert_int_equal(by_tensor_table_walk(&g_flash, compare_row, &n, NULL), BY_OK);
    assert_int_equal(n, 21);
}

static by_footprint footprint(const by_config *c, int drafts) {
    by_footprint f;
    by_err err = {0};
    if (by_footprint_of(c, drafts, &f, &err) != BY_OK) fail_msg("%s", err.msg);
    return f;
}

static void caches_are_the_published_sizes(void **state) {
    (void)state;
    by_footprint f = footprint(&g_flash, 5);
    const by_kv_layout *l = &f.layout;
    assert_int_equal(f.window_record, 528);
    assert_int_equal(f.kv_record, 288);
    assert_int_equal(f.index_record, 68);
    assert_true(f.token_bytes == 890);
    assert_int_equal(l->ring_len, 134);
    assert_int_equal(l->ring_bytes, 70752);
    assert_int_equal(l->spec.n_rings * l->ring_bytes, 3042336);
    assert_int_equal(f.tail_bytes, 86016);
    /* before padding, which is a choice of the layout: the published engine pads blocks to 1152 and slots to 1056 */
    assert_in_range(l->block_bytes, 113920, 113920 + 1151);
    assert_in_range(l->slot_bytes, 3042336 + 86016, 3042336 + 86016 + 1055);
    by_memory_plan p;
    by_footprint_plan(&f, 4096, 256, &p);
    assert_int_equal(p.n_slots, 308);
    assert_int_equal(p.n_blocks, 256 * 33 + 1);
    static by_config fp8;
    fp8 = g_flash;
    fp8.fp4_sparse_kv = false;
    f = footprint(&fp8, 5);
    assert_int_equal(f.kv_record, 528);
    assert_int_equal(f.layout.token_bytes_x128, 190720);
}

static void a_window_only_model_has_no_blocks(void **state) {
    (void)state;
    static by_config window;
    window = g_flash;
    for (int l = 0; l < window.n_layers; l++) window.layers[l].is_kv_source = false;
    by_footprint f = footprint(&window, 0);
    by_memory_plan p;
    by_footprint_plan(&f, 1000, 3, &p);
    assert_int_equal(f.layout.block_bytes, 0);
    assert_int_equal(p.n_blocks, 0);
    assert_int_equal(f.layout.ring_len, 129);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_by_part_are_the_published_sums),
        cmocka_unit_test(draft_and_image_tensors_are_as_many_as_published),
        cmocka_unit_test(shapes_are_the_published_ones),
        cmocka_unit_test(caches_are_the_published_sizes),
        cmocka_unit_test(a_window_only_model_has_no_blocks),
    };
    return cmocka_run_group_tests(tests, read_flash, NULL);
}
