/* test_row_cost.c - how many prompt rows fit into a time, learnt from steps whose true costs are known here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/row_cost.h"
#include "support/seed.h"

enum { LEAST = 16, MOST = 100000 };

static const double BASE = 0.020, ROW = 10e-6, BUDGET = 0.050; /* 3000 rows */

static int32_t rows_of(const by_row_cost *c) { return by_row_cost_rows(c, BUDGET, LEAST, MOST); }

static void note(by_row_cost *c, by_rng *rng, int32_t n, double noise) {
    by_row_cost_note(c, BASE + ROW * n + noise * (2 * by_rng_unit(rng) - 1), n);
}

static void what_is_not_known_is_learnt_soon(void **state) {
    (void)state;
    by_row_cost c = {0};
    assert_int_equal(rows_of(&c), 512);
    by_row_cost_note(&c, BASE, 12); /* a prompt before anything has decoded: what of it is the base nobody knows */
    assert_int_equal(rows_of(&c), 512);
    by_row_cost_note(&c, BASE, 0);
    assert_int_equal(rows_of(&c), 512);
    assert_int_equal(by_row_cost_rows(&c, BUDGET, LEAST, 100), 100);
    assert_int_equal(by_row_cost_rows(&c, BASE / 2, LEAST, MOST), LEAST);
    by_row_cost_note(&c, BASE + 1000 * ROW, 1000);
    assert_in_range(rows_of(&c), 2990, 3010);
}

static void a_time_below_the_base_leaves_the_least(void **state) {
    (void)state;
    by_row_cost c = {0};
    by_row_cost_note(&c, BASE, 0);
    by_row_cost_note(&c, BASE + 100 * ROW, 100);
    assert_int_equal(by_row_cost_rows(&c, BASE / 2, LEAST, MOST), LEAST);
    assert_int_equal(by_row_cost_rows(&c, BASE + 3 * ROW, LEAST, MOST), LEAST);
}

/* Prompts of any length, alone or beside what decodes, and steps that vary by a millisecond: the answer stays near the truth. */
static void short_prompts_and_noise_do_not_mislead(void **state) {
    (void)state;
    static const int32_t lengths[] = {12, 100, 1500, 4096};
    by_rng rng = by_test_rng(7);
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        by_row_cost c = {0};
        int far = 0, n = 0;
        for (int i = 0; i < 4000; i++) {
            note(&c, &rng, 0, 0.001);
            note(&c, &rng, lengths[k], 0.001);
            if (i < 400) continue;
            int32_t rows = rows_of(&c);
            far += rows < 1500 || rows > 9000;
            n++;
        }
        assert_true(far * 100 <= n); /* one in a hundred */
    }
}

/* A machine that has become slower is found out within a few thousand rows. */
static void costs_are_forgotten(void **state) {
    (void)state;
    by_row_cost c = {0};
    by_row_cost_note(&c, BASE, 0);
    for (int i = 0; i < 100; i++) by_row_cost_note(&c, BASE + 512 * ROW, 512);
    assert_in_range(rows_of(&c), 2990, 3010);
    for (int i = 0; i < 20; i++) by_row_cost_note(&c, BASE + 512 * 4 * ROW, 512);
    assert_in_range(rows_of(&c), 740, 770);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_known_is_learnt_soon),
        cmocka_unit_test(a_time_below_the_base_leaves_the_least),
        cmocka_unit_test(short_prompts_and_noise_do_not_mislead),
        cmocka_unit_test(costs_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
