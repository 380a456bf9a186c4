/* test_tally.c - the engine's histograms against counting by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "engine/tally.h"
#include "support/seed.h"

static void values_fall_between_the_bounds(void **state) {
    (void)state;
    enum { N = 2000 };
    static int64_t seen[N];
    by_rng rng = by_test_rng(5);
    by_tally t = {0};
    uint64_t sum = 0;
    assert_true(by_tally_bound(0) == 1 && by_tally_bound(4) == 20 && by_tally_bound(BY_TALLY_BOUNDS - 1) == 50000000);
    assert_true(by_tally_quantile(&t, 0.5) == 0);
    for (int i = 0; i < N; i++) {
        seen[i] = i < BY_TALLY_BOUNDS ? by_tally_bound(i) : (int64_t)(by_rng_below(&rng, 1000) << by_rng_below(&rng, 18));
        by_tally_add(&t, seen[i]);
        sum += (uint64_t)seen[i];
    }
    uint64_t below = 0;
    for (int i = 0; i < BY_TALLY_BOUNDS; i++) {
        uint64_t want = 0;
        for (int k = 0; k < N; k++) want += seen[k] <= by_tally_bound(i);
        below += t.n[i];
        assert_true(below == want);
        if (t.n[i]) assert_true(by_tally_quantile(&t, (double)want / N) == (double)by_tally_bound(i));
    }
    assert_true(t.sum == sum && by_tally_count(&t) == N && below < N);
    assert_true(isinf(by_tally_quantile(&t, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_fall_between_the_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
