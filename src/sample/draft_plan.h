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

/* Measured time of a step of `rows` rows. */
typedef struct by_draft_cost_point {
    int32_t rows;
    double ms;
} by_draft_cost_point;

typedef struct by_draft_cost {
    const by_draft_cost_point *curve; /* rows strictly increasing, ms > 0; n_curve 0 = unknown: verify everything */
    int32_t n_curve;
    double slope_ms;   /* added per row of the chosen size; below 0 counts as 0 */
    double sampler_ms; /* added once; does not depend on the rows */
    bool any_size;     /* steps of any number of rows are run, and cost what lies between the points around it; false: a step of n
                        * rows runs, and costs, the first size that is >= n */
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
    double row_ms;   /* any_size: of one row more or less at the plan; else 0: rows up to the size are free */
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
 * request), which were checked; drafts of a survival below `least` get none. Returns how many rows that are. Whether a draft gets a row
 * depends on the drafts in front of it and not on itself, as rejection needs. */
int32_t by_draft_plan_split(int32_t *rows, int32_t total_rows, double least, const by_draft_request *requests, int32_t n,
                            int32_t n_drafts, by_draft_heap_entry *heap);

/* How much faster drafting is than not drafting, smoothed over plans. Zero-initialise. */
typedef struct by_draft_pace {
    double gain;
    int32_t n; /* plans that went in */
} by_draft_pace;

/* Takes in a plan of n requests, whose step without drafts would take plain_ms. */
void by_draft_pace_note(by_draft_pace *pace, const by_draft_plan *plan, int32_t n, double plain_ms);

/* Tokens that the time of one row is worth: a draft of a lower survival had better not be verified. The time is worth what the machine
 * makes of it on the whole (the pace), not what this plan would: a step of good drafts is no reason to take worse ones or fewer. */
double by_draft_price(const by_draft_pace *pace, const by_draft_plan *plan, int32_t n, double plain_ms);

/* Milliseconds of a step of `rows` rows without sampler_ms; infinite beyond the curve. */
double by_draft_cost_ms(const by_draft_cost *cost, int32_t rows);

#endif
