/* sample_scratch.h - the work memory behind by_sample_scratch. Internal to src/sample. */
#ifndef BY_SAMPLE_SCRATCH_H
#define BY_SAMPLE_SCRATCH_H

#include <stdint.h>

#include "sample/sample_dist.h"
#include "sample/sample_kernels.h"
#include "sample/sample_pick.h"

#define BY_SAMPLE_BINS 2048
/* Up to this share of a row its tokens are listed one by one; a list costs about ten times as much for each. */
#define BY_SAMPLE_FEW_SHARE 32

struct by_sample_scratch {
    const by_sample_kernels *kernels;
    int32_t V_max;
    int32_t *ids;   /* [V_max] tokens of a listed distribution, ascending */
    float *x;       /* [V_max] lp0 of the listed tokens while a cut is looked for; later weights, of the list or the
                       whole row */
    uint32_t *key;  /* [V_max] logits as integers that order alike */
    uint32_t *mass; /* [V_max] */
    int32_t *few_ids; /* [n_few, room for V_max / BY_SAMPLE_FEW_SHARE]: what a mask has left, ascending */
    float *few_x;     /* their logits */
    size_t n_few;
    uint32_t lanes[BY_SAMPLE_LANES_MAX];
    uint64_t bins[BY_SAMPLE_BINS];
};

/* Weights exp(lp) of d, in s->x. */
by_sample_weights by_sample_dist_weights(const by_sample_dist *d, by_sample_scratch *s);

#endif
