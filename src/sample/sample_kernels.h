/* sample_kernels.h - the passes of the sampler over a whole row, as a table of functions.
 *
 * sample_kernels.c is compiled once for the base instruction set and once for each file of isa/; the arithmetic is the
 * same plain C without contraction, so all tables give the same bits. Each function has a fixed order
 * of operations that depends on the lengths alone. Internal to src/sample. */
#ifndef BY_SAMPLE_KERNELS_H
#define BY_SAMPLE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "sample/sample_dist.h"

/* From this inverse temperature on (greedy laws have 1e5) nearly every weight of a row is 0, and it pays to look where. */
#define BY_SAMPLE_SHARP 1000.0f

/* The order of sums: elements i % LANES of a block of BLOCK together, then halves onto halves, then the blocks one after another. */
enum { BY_SAMPLE_LANES = 16, BY_SAMPLE_BLOCK = 256 };

typedef struct by_sample_kernels {
    /* Largest value of row[n], n >= 1; *bad is set when one is NaN or +inf (the maximum then means nothing). */
    float (*max)(const float *row, size_t n, bool *bad);

    /* to[i] = row[i] where bit i % 32 of word i / 32 of mask is set, else -inf; returns the largest of to[n], n >= 1. *bad is set
     * when any row[i], allowed or not, is NaN or +inf. to may be row. */
    float (*mask)(float *to, const float *row, const uint32_t *mask, size_t n, bool *bad);

    /* Sum of exp((row - max) * inv_t): fp32 inside blocks of 256, in 16 running sums, double between blocks. */
    double (*exp_sum)(const float *row, size_t n, float max, float inv_t);

    /* out[i] = exp((row[i] - max) * inv_t - log_s) */
    void (*exp)(float *out, const float *row, size_t n, float max, float inv_t, float log_s);

    /* Writes index and value of every row[i] with (row[i] - max) * inv_t >= floor_s, in order; returns how many. Both
     * outputs have room for n. */
    size_t (*gather)(int32_t *ids, float *x, const float *row, size_t n, float max, float inv_t, float floor_s);

    /* In place from logits to x = (l - max) * inv_t - log_s; key = the logit as an integer that orders alike (-0 as
     * +0); mass = floor(exp(x) * 2^31). */
    void (*rank)(float *x, uint32_t *key, uint32_t *mass, size_t n, float max, float inv_t, float log_s);

    /* lanes[i] += floor(x[i] * 2^31), x in [0, 2) */
    void (*add_mass)(uint32_t *lanes, const float *x, size_t n);

    /* Sum of the lanes. */
    uint64_t (*total)(const uint32_t *lanes, size_t n);

    /* x[i] = max(0, x[i] - exp(lq - penalty)), lq the log-probability under q of ids[i], or of i when ids is NULL */
    void (*subtract)(float *x, const int32_t *ids, size_t n, const by_sample_dist *q, float penalty);
} by_sample_kernels;

/* The tables; those of isa/ exist where module.cmake builds them. */
extern const by_sample_kernels by_sample_kernels_base, by_sample_kernels_avx2, by_sample_kernels_avx512;

/* The fastest table for a processor of that tier. */
const by_sample_kernels *by_sample_kernels_for(by_isa isa);

#endif
