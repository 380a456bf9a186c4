/* primes.c - Miller-Rabin with the bases 2, 3, 5, 7, which has no false prime below 3,215,031,751 (Jaeschke 1993). The
 * reference walks layers, n-gram sizes and heads, restarts at the same number for each size and skips primes taken
 * before: that is the sequence of consecutive primes, so no set of taken primes is needed. */
#include "model/primes.h"

static uint32_t pow_mod(uint32_t base, uint32_t e, uint32_t n) {
    uint64_t r = 1, b = base % n;
    for (; e; e >>= 1) {
        if (e & 1) r = r * b % n;
        b = b * b % n;
    }
    return (uint32_t)r;
}

bool by_prime_is(uint32_t n) {
    static const uint32_t bases[] = {2, 3, 5, 7};
    if (n < 2) return false;
    for (int i = 0; i < 4; i++)
        if (n % bases[i] == 0) return n == bases[i];
    int s = __builtin_ctz(n - 1);
    uint32_t d = (n - 1) >> s;
    for (int i = 0; i < 4; i++) {
        uint64_t x = pow_mod(bases[i], d, n);
        bool passes = x == 1 || x == n - 1;
        for (int k = 1; k < s && !passes; k++) {
            x = x * x % n;
            passes = x == n - 1;
        }
        if (!passes) return false;
    }
    return true;
}

void by_primes_from(uint32_t start, int n, uint32_t *out) {
    uint32_t p = start;
    for (int i = 0; i < n; i++, p++) {
        while (!by_prime_is(p))
            p++;
        out[i] = p;
    }
}
