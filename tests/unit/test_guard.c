/* The guard backend: what lies behind a small import is no neighbour's values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/device.h"

enum { N = 16 };

static void reading_behind_a_small_import_gives_nan(void **s) {
    (void)s;
    by_err err = {0};
    by_device *dev = by_test_device(&(by_test_backend){BY_BACKEND_GUARD, NULL, "guard"}, 1);
    float ones[N];
    for (int i = 0; i < N; i++) ones[i] = 1;
    by_mem *mem[3];
    for (int i = 0; i < 3; i++) assert_int_equal(by_mem_import(&mem[i], dev, ones, sizeof ones, true, &err), BY_OK);
    for (int i = 0; i < 3; i++) {
        by_tensor x = by_tensor_make(mem[i], 0, BY_F32, 1, N), y = by_test_tensor(dev, BY_F32, 1, 2 * N, NULL);
        x.cols = 2 * N; /* too far */
        by_add_args a = {x, y};
        assert_int_equal(by_op_add(dev, &a, &err), BY_OK);
        float *sum = by_test_values(y);
        for (int j = 0; j < 2 * N; j++) assert_true(j < N ? sum[j] == 1 : isnan(sum[j]));
        free(sum);
        by_test_free_all();
    }
    for (int i = 0; i < 3; i++) by_mem_free(mem[i]);
    by_device_close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reading_behind_a_small_import_gives_nan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
