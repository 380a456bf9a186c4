/* primes.h - the table sizes of the Engram hash: consecutive primes. Source: DeepSeek-V4.1 Engram configuration. */
#ifndef BY_MODEL_PRIMES_H
#define BY_MODEL_PRIMES_H

#include <stdbool.h>
#include <stdint.h>

#define BY_LIMIT_PRIME_START 2000000000u /* the test of by_prime_is is exact below 3,215,031,751 */

/* Exact for every 32-bit number below 3,215,031,751. */
bool by_prime_is(uint32_t n);

/* out[0..n) = the n smallest primes >= start (start <= BY_LIMIT_PRIME_START, n <= 100000), ascending. */
void by_primes_from(uint32_t start, int n, uint32_t *out);

#endif
