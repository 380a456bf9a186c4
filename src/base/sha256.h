/* sha256.h - SHA-256 (FIPS 180-4) of one piece of memory. In our own words rather than from a library, because it is the only
 * thing that a CPU-only build would need one for. About 0.2 GB/s: keys of blocks are small. */
#ifndef BY_BASE_SHA256_H
#define BY_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* out = digest of data[0, n); n = 0 is allowed. */
void by_sha256(const void *data, size_t n, uint8_t out[32]);

#endif
