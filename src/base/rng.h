/* rng.h - SplitMix64, for tests, hash seeds and synthetic weights. Sampling uses the counter-based generator of
 * src/sample instead. */
#ifndef BY_BASE_RNG_H
#define BY_BASE_RNG_H

#include <math.h>
#include <stdint.h>

typedef struct by_rng {
    uint64_t state;
} by_rng;

static inline uint64_t by_rng_u64(by_rng *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
/* [0, n), n >= 1, without a measurable bias for n below 2^32. */
static inline uint64_t by_rng_below(by_rng *r, uint64_t n) {
    return (uint64_t)((unsigned __int128)by_rng_u64(r) * n >> 64);
}
/* [0, 1) */
static inline double by_rng_unit(by_rng *r) { return (double)(by_rng_u64(r) >> 11) * 0x1p-53; }
/* Standard normal. */
static inline double by_rng_normal(by_rng *r) {
    double u = 1.0 - by_rng_unit(r), v = by_rng_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

#endif
