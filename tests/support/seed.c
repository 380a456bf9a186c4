/* seed.c - see seed.h. */
#include "support/seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

by_rng by_test_rng(uint64_t fallback) {
    const char *text = getenv("BY_SEED");
    uint64_t seed = text && *text ? strtoull(text, NULL, 0) : fallback;
    fprintf(stderr, "seed %" PRIu64 " (repeat with BY_SEED=%" PRIu64 ")\n", seed, seed);
    return (by_rng){seed};
}

int by_test_scaled(int n) {
    const char *text = getenv("BY_TEST_SCALE");
    long percent = text && *text ? strtol(text, NULL, 10) : 100;
    if (percent < 1) percent = 1;
    int64_t scaled = (int64_t)n * percent / 100;
    return scaled < 1 ? 1 : scaled > 1000000000 ? 1000000000 : (int)scaled;
}
