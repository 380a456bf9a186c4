/* golden_model_tables.c - rotary frequencies and Engram multipliers against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/engram_hash.h"
#include "model/rope_freq.h"
#include "support/golden.h"
#include "support/npz.h"

static void frequencies_match_bit_for_bit(void **state) {
    (void)state;
    static by_config c;
    by_npz *z = by_npz_open(by_golden_path("model/ops/rope.npz"));
    assert_non_null(z);
    const char *names[] = {"real_plain", "real_yarn", "tiny_plain", "tiny_yarn"};
    for (int i = 0; i < 4; i++) {
        c = (by_config){.rope_dim = i < 2 ? 64 : 16, .rope_theta = 10000, .compress_rope_theta = 160000};
        c.rope_scaling = (by_rope_scaling){.yarn = true, .factor = 16, .beta_fast = 32, .beta_slow = 1,
                                           .original_max_positions = i < 2 ? 65536 : 256};
        float freq[32];
        by_rope_freq(freq, &c, i % 2 == 1);
        const by_npy *want = by_npz_need(z, "<f4", "%s.freq", names[i]);
        assert_true(by_golden_same_bytes(names[i], freq, want->data, want->n, 4));
    }
    by_npz_close(z);
}

static void multipliers_match(void **state) {
    (void)state;
    by_npz *z = by_npz_open(by_golden_path("model/ops/engram.npz"));
    assert_non_null(z);
    const struct { const char *name; int layer[2]; int64_t vocab; } cases[] = {{"hash_real", {1, 14}, 99092}, {"hash_tiny", {1, 4}, 320}};
    for (int i = 0; i < 2; i++) {
        const by_npy *want = by_npz_need(z, "<i8", "%s.multipliers", cases[i].name);
        for (int l = 0; l < 2; l++) {
            int64_t got[4];
            by_engram_multipliers(got, cases[i].layer[l], 4, cases[i].vocab);
            assert_true(by_golden_same_bytes(cases[i].name, got, by_npy_i64(want) + 4 * l, 4, 8));
        }
    }
    by_npz_close(z);
}

static void grams_stop_at_the_start_and_at_pictures(void **state) {
    (void)state;
    const int32_t ids[] = {10, 11, BY_ENGRAM_DEAD, 13, 14, 15, 16};
    const int32_t want[] = {11, 10, 2, 2, 2, 2, 2, 2, 13, 2, 2, 2, 14, 13, 2, 2, 15, 14, 13, 2, 16, 15, 14, 13};
    int32_t got[24];
    by_engram_grams(got, ids, 1, 6, 4, 2);
    assert_memory_equal(got, want, sizeof want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_match_bit_for_bit),
        cmocka_unit_test(multipliers_match),
        cmocka_unit_test(grams_stop_at_the_start_and_at_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
