/* sample_dist.h - from a row of logits to a distribution: temperature, top-p, top-k, min-p.
 *
 *     M   = max(logits);  it = 1 / temperature
 *     lp0 = (l - M) * it - log(sum exp((l - M) * it))
 *     rank by (logit descending, id ascending);  mass w = floor(exp(lp0) * 2^31)
 *     kept: mass strictly before <= floor(top_p * 2^31), rank < top_k, (l - M) * it >= log(min_p)
 *     lp  = lp0 - log(sum over kept exp(lp0)), -inf for the others
 *
 * The masses are integers, so the kept set is the same whatever order they are added in, and no sort of the row is
 * needed: the last kept token is found by its logit's bits, 11 at a time. A distribution is described by four numbers
 * and a threshold; only the kept tokens of a cut row are written out, into the scratch. +0 and -0 rank equal. Source of
 * the rules: the sampler of the original program as described in src/sample/README.md; goldens: model/sampler. */
#ifndef BY_SAMPLE_DIST_H
#define BY_SAMPLE_DIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/err.h"
#include "sample/sample_params.h"
#include "sample/sample_philox.h"

#define BY_SAMPLE_NONE (-1)

/* Work memory for rows of up to V_max tokens, about 16 bytes a token. isa: the tier of by_cpu_detect; it changes the
 * speed and no bit of a result. One thread uses it at a time. Errors: BY_EINVAL (V_max), BY_ENOMEM. */
typedef struct by_sample_scratch by_sample_scratch;
by_status by_sample_scratch_create(by_sample_scratch **out, int32_t V_max, by_isa isa, by_err *err);
void by_sample_scratch_destroy(by_sample_scratch *s); /* NULL is allowed */

typedef struct by_sample_dist {
    const float *row; /* [V] f32, borrowed: must stay unchanged as long as the distribution is used */
    int32_t V;
    float max, inv_t, log_s, log_kept;
    float floor_s; /* kept tokens have (l - max) * inv_t >= floor_s; finite, so that -inf is never kept */
    float cut;     /* ... and l > cut, or l == cut and id <= cut_id */
    int32_t cut_id;
    bool listed;    /* the kept tokens stand in the scratch (until its next use) */
    bool few;       /* the tokens above -inf are few, and stand in the scratch (until its next use for a masked row) */
    int32_t n_kept; /* V when not listed */
} by_sample_dist;

/* The least scaled logit that min_p in (0, 1] keeps, as below. */
float by_sample_floor(float min_p);

/* Describes row[V] under law (checked by by_sample_params_check). V in [1, scratch's V_max].
 * Errors: BY_ENUMERIC for a row with NaN or +inf, or with -inf only. Allocates nothing. */
by_status by_sample_dist_make(by_sample_dist *d, const float *row, int32_t V, const by_sample_law *law,
                              by_sample_scratch *s, by_err *err);

/* A grammar's mask on a row: to[V] = from[V] where it allows the token, else -inf. mask: one bit per token, bit id % 32 of word
 * id / 32, 1 = allowed. to may be from. Errors: BY_ENUMERIC when a logit, allowed or not, is NaN or +inf (a mask must not hide a
 * broken row), BY_EGRAMMAR when nothing above -inf is left. */
by_status by_sample_mask_row(float *to, const float *from, int32_t V, const uint32_t *mask, by_sample_scratch *s, by_err *err);

/* Both at once, with the same bits: d describes to[V] and borrows it. A row is far away in memory and is looked at once; where few
 * tokens are allowed, all that follows looks at these alone. */
by_status by_sample_dist_make_masked(by_sample_dist *d, float *to, const float *from, int32_t V, const uint32_t *mask,
                                     const by_sample_law *law, by_sample_scratch *s, by_err *err);

/* The row of d, made with s, under another law. Cannot fail. */
void by_sample_dist_change_law(by_sample_dist *d, const by_sample_law *law, by_sample_scratch *s);

/* Log-probability of token id in [0, V); -inf when removed. O(1), needs no scratch. */
float by_sample_dist_logprob(const by_sample_dist *d, int32_t id);

/* A token drawn from d with the words of the stream, BY_SAMPLE_NONE if every mass is 0. s is the scratch d was made
 * with, not used for another distribution since. */
int32_t by_sample_dist_pick(const by_sample_dist *d, by_sample_stream *stream, by_sample_rule rule,
                            by_sample_scratch *s);

/* The n most likely tokens with their log-probabilities, ties by id; when fewer are kept, the lowest removed ids follow
 * with -inf. n <= V. O(V) plus the heap. Leaves the scratch's list as it is. */
typedef struct by_sample_top {
    int32_t id;
    float logprob;
} by_sample_top;
void by_sample_dist_top(by_sample_top *out, int32_t n, const by_sample_dist *d);

/* Mass of all tokens not more likely than `id` (among equals those with ids up to it), id included; 0 for id < 0. */
double by_sample_dist_smaller(const by_sample_dist *d, int32_t id);

/* The token with the largest logit, lowest id among equals; BY_ENUMERIC as above. */
by_status by_sample_argmax(int32_t *id, const float *row, int32_t V, by_sample_scratch *s, by_err *err);

#endif
