/* engram_hash.h - the constants of Engram's hash that are not in the checkpoint, and the n-grams of a step.
 *
 * Multipliers come from NumPy's default_rng(10007 * layer): SeedSequence hashing, PCG64 (XSL-RR 128/64), Lemire's bounded
 * draw. Source: model.md section 9; golden ops/engram. Pure functions. */
#ifndef BY_MODEL_ENGRAM_HASH_H
#define BY_MODEL_ENGRAM_HASH_H

#include <stdint.h>

#include "base/limits.h"

#define BY_ENGRAM_DEAD (-1) /* compressed id of an image position */

/* n odd factors for one Engram layer (n <= BY_LIMIT_NGRAM); vocab = number of compressed ids, 1 .. 2^30. */
void by_engram_multipliers(int64_t *out, int layer_id, int n, int64_t vocab);

/* grams[i][b] = compressed id of position i - b of the sequence, for positions first .. first + n_rows - 1; looking back
 * stops at the sequence start or at an image position, from where on pad is used. ids [first + n_rows] are the compressed
 * ids of the whole sequence. grams [n_rows, n]. */
void by_engram_grams(int32_t *grams, const int32_t *ids, int64_t first, int64_t n_rows, int n, int32_t pad);

#endif
