/* seed.h - seeds and sizes of property tests.
 *
 * BY_SEED=N repeats a run; BY_TEST_SCALE=percent makes loops shorter (emulation, sanitizers) or longer (a night). The
 * seed is printed once, so that a failure in a log can be repeated. For tests only. */
#ifndef BY_TEST_SEED_H
#define BY_TEST_SEED_H

#include <stdint.h>

#include "base/rng.h"

/* A generator for this process: from BY_SEED, else `fallback`. Prints the seed to stderr. */
by_rng by_test_rng(uint64_t fallback);

/* n scaled by BY_TEST_SCALE, at least 1. */
int by_test_scaled(int n);

#endif
