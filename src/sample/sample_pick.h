/* sample_pick.h - drawing an index from weights by integer inversion.
 *
 * Weights x in [0, 2) with a sum of at most about 1 become masses floor(x * 2^31). Column c belongs to lane c mod B,
 * with B = 2048 for V >= 8192, else the power of two >= V; the cumulated mass runs over the lanes and inside a lane
 * over the columns. That order is the original program's (a thread per lane) and part of its random stream. */
#ifndef BY_SAMPLE_PICK_H
#define BY_SAMPLE_PICK_H

#include <stddef.h>
#include <stdint.h>

#include "sample/sample_dist.h"
#include "sample/sample_params.h"
#include "sample/sample_philox.h"

#define BY_SAMPLE_LANES_MAX 8192 /* V = 8191 */

/* Weights of a row of V columns: all of them (ids NULL, n = V), or those of the listed ids, ascending. */
typedef struct by_sample_weights {
    const float *x;     /* [n] */
    const int32_t *ids; /* [n] or NULL */
    int32_t n, V;
} by_sample_weights;

/* A column, or -1 when every mass is 0. s->lanes is overwritten. Reads one word (smooth) or as many as the redraw rule
 * needs (deepinfer: fewer than two on average). */
int32_t by_sample_pick(const by_sample_weights *w, by_sample_stream *stream, by_sample_rule rule, by_sample_scratch *s);

/* Sum of the masses. */
uint64_t by_sample_mass_sum(const by_sample_weights *w);

#endif
