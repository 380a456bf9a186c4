/* gpu_support.h - what the device's test programs share: random numbers that repeat, and errors that end the program. */
#ifndef BY_GPU_SUPPORT_H
#define BY_GPU_SUPPORT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

static uint64_t rnd_state = 1;

static inline uint32_t rnd(void) {
    rnd_state ^= rnd_state << 13, rnd_state ^= rnd_state >> 7, rnd_state ^= rnd_state << 17;
    return (uint32_t)(rnd_state >> 32);
}
static inline float uniform(void) { return (float)(rnd() >> 8) * 0x1p-24f; }
/* Four uniform numbers' sum, with mean 0 and variance 1. */
static inline float normal(void) { return (uniform() + uniform() + uniform() + uniform() - 2.0f) * 1.7320508f; }

/* Runs a call that sets `err`; a failure is printed and ends the program with exit code 1. */
#define MUST(expr)                                                                                                     \
    do {                                                                                                               \
        by_err err_ = {0};                                                                                             \
        by_err *err = &err_;                                                                                           \
        if ((expr) < 0) {                                                                                              \
            fprintf(stderr, "%s: %s: %s\n", __FILE__, #expr, err->msg);                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
