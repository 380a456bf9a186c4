/* golden_checkpoint.c - the three checkpoints of the reference implementation and the tiny model load without a problem
 * and without an unknown tensor; sums over the published sizes equal the published numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/checkpoint.h"
#include "model/tensor_table.h"

#define DATA BATHYC_SOURCE_DIR "/tests/golden/data/model"

static by_config g_config;

static by_checkpoint *open_clean(const char *dir) {
    by_err err = {0};
    by_problems problems = {0};
    by_checkpoint *ck = NULL;
    if (by_config_load(&g_config, dir, &problems, &err) != BY_OK) fail_msg("%s", by_buf_z(&problems.text));
    if (by_checkpoint_open(&ck, dir, &g_config, &problems, &err) != BY_OK) fail_msg("%s", by_buf_z(&problems.text));
    assert_int_equal(problems.n, 0);
    assert_int_equal(by_checkpoint_notes(ck)->n, 0);
    by_problems_deinit(&problems);
    return ck;
}

static void reference_checkpoints_load_without_problem_or_note(void **state) {
    (void)state;
    static const struct {
        const char *dir;
        size_t n;
        int shards;
    } cases[] = {
        {DATA "/first_light/checkpoint", 237, 1},
        {DATA "/tiny_a/checkpoint", 1052, 1},
        {DATA "/tiny_b/checkpoint", 831, 1},
        {BATHYC_SOURCE_DIR "/models/tiny", 1542, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_checkpoint *ck = open_clean(cases[i].dir);
        by_part_sums sums;
        by_tensor_table_sum(&g_config, &sums);
        assert_int_equal(by_checkpoint_n_tensors(ck), cases[i].n);
        assert_int_equal(sums.n_total, cases[i].n);
        assert_int_equal(by_checkpoint_n_shards(ck), cases[i].shards);
        int64_t bytes = 0, checked = 0;
        for (size_t t = 0; t < cases[i].n; t++)
            bytes += by_checkpoint_at(ck, t)->bytes;
        assert_int_equal(bytes, sums.bytes_total);
        by_err err = {0};
        if (by_checkpoint_check_values(ck, BY_CHECK_FULL, &checked, NULL, &err) != BY_OK) fail_msg("%s", err.msg);
        assert_true(checked > bytes / 2);
        by_checkpoint_close(ck);
    }
}

static void a_known_tensor_has_its_bytes(void **state) {
    (void)state;
    by_checkpoint *ck = open_clean(DATA "/tiny_a/checkpoint");
    const by_ckpt_tensor *t = by_checkpoint_find(ck, "layers.0.attn.attn_sink");
    assert_non_null(t);
    assert_int_equal(t->dtype, BY_ST_F32);
    assert_int_equal(t->n_dims, 1);
    assert_int_equal(t->shape[0], 4);
    assert_int_equal(t->bytes, 16);
    /* first bytes of the file's data area: this tensor has data_offsets [0, 16] */
    FILE *f = fopen(DATA "/tiny_a/checkpoint/model-00001-of-00001.safetensors", "rb");
    unsigned char want[16];
    assert_non_null(f);
    assert_int_equal(fseek(f, 8 + 101200, SEEK_SET), 0);
    assert_int_equal(fread(want, 1, sizeof want, f), sizeof want);
    fclose(f);
    assert_memory_equal(t->data, want, sizeof want);
    assert_null(by_checkpoint_find(ck, "layers.0.attn.attn_sin"));
    assert_null(by_checkpoint_find(ck, ""));
    by_checkpoint_close(ck);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_checkpoints_load_without_problem_or_note),
        cmocka_unit_test(a_known_tensor_has_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
