/* draft_plan.h - how many drafts each request verifies in the next step.
 *
 * A step of more rows costs more time; a draft deep in a chain is rarely reached. The plan takes the total that
 * maximises expected tokens per millisecond and splits it over the requests by the probability that a draft is reached
 * and accepted (its survival: the product of the confidences up to it). The total is decided from confidences two steps
 * old and the split from the newest ones, so that the batch size is known before the previous step's results and no
 * draft's fate depends on what was computed after it. Doubles throughout, ties to the lower request and then the
 * earlier draft, so that every machine plans alike. Source: src/sample/README.md; goldens:
 * model/sampler/schedule.jsonl. */
#ifndef BY_SAMPLE_DRAFT_PLAN_H
#define BY_SAMPLE_DRAFT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Measured time of a step of `rows` rows; a step of n rows runs the first size that is >= n. */
typedef struct by_draft_cost_point {
    int32_t rows;
    double ms;
} by_draft_cost_point;

typedef struct by_draft_cost {
    const by_draft_cost_point *curve; /* rows strictly increasing, ms > 0; n_curve 0 = unknown: verify everything */
    int32_t n_curve;
    double slope_ms;   /* added per row of the chosen size; below 0 counts as 0 */
    double sampler_ms; /* added once; does not depend on the rows */
} by_draft_cost;

/* Confidences [n_drafts] in [0, 1]; NULL = not known yet: 1 for a request that has drafts, 0 for one that has none. */
typedef struct by_draft_request {
    const double *budget; /* of the step before last: decides the total */
    const double *split;  /* the newest: decides the split; NULL = unknown as above */
    bool has_drafts;
} by_draft_request;

typedef struct by_draft_plan {
    int32_t total_rows;
    double expected; /* tokens the step is expected to produce; NaN without a curve */
    double ms;
} by_draft_plan;

/* One entry per request, the caller's memory. */
typedef struct by_draft_heap_entry {
    double survival;
    int32_t request, draft;
} by_draft_heap_entry;

/* Plans n >= 1 requests with n_drafts each: rows[n] gets 1 + drafts to verify. heap[n] is work memory.
 * Errors: BY_EINVAL when not even one row per request fits the largest size of the curve, or a number is out of range.
 */
by_status by_draft_plan_make(by_draft_plan *plan, int32_t *rows, const by_draft_request *requests, int32_t n,
                             int32_t n_drafts, const by_draft_cost *cost, by_draft_heap_entry *heap, by_err *err);

/* The second half alone: splits n <= total_rows <= n (n_drafts + 1) rows by the newest confidences (the `split` of each
 * request), which were checked. */
void by_draft_plan_split(int32_t *rows, int32_t total_rows, const by_draft_request *requests, int32_t n,
                         int32_t n_drafts, by_draft_heap_entry *heap);

#endif
