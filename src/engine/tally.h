/* tally.h - how often a value fell between the bounds 1, 2, 5, 10, 20, 50, ...: the engine's histograms.
 *
 * Not for several threads at once. */
#ifndef BY_ENGINE_TALLY_H
#define BY_ENGINE_TALLY_H

#include <stdint.h>

enum { BY_TALLY_BOUNDS = 24 }; /* up to 5e7: 50 s in microseconds */

/* Zero-initialise. */
typedef struct by_tally {
    uint64_t n[BY_TALLY_BOUNDS + 1]; /* values up to that bound and above the one before; the last: above all */
    uint64_t sum;
} by_tally;

/* Bound i, inclusive, 0 <= i < BY_TALLY_BOUNDS. */
int64_t by_tally_bound(int i);
/* Counts v >= 0. */
void by_tally_add(by_tally *t, int64_t v);
/* Values counted. */
uint64_t by_tally_count(const by_tally *t);
/* The least bound that a share (0..1) of the values does not exceed; 0 without any, infinite above all bounds. */
double by_tally_quantile(const by_tally *t, double share);

#endif
