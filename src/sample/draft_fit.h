/* draft_fit.h - temperatures for the confidences of drafts, fitted to what became of drafts.
 *
 * Sequential temperature scaling: position by position, left to right, the temperature out of 41 log-spaced ones in [0.1, 10] with
 * the smallest calibration error of the running product (the quantity the planner uses), then frozen. Errors of early positions
 * are so made up for by later ones. Source: dspark.md section 5; oracle: tests/unit/test_draft_fit.c has a slow twin. */
#ifndef BY_SAMPLE_DRAFT_FIT_H
#define BY_SAMPLE_DRAFT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* One block of drafts that were all verified. */
typedef struct by_draft_outcome {
    const float *raw;  /* [n_drafts] values of the confidence head */
    int32_t accepted;  /* leading drafts that were right */
    int32_t n;         /* leading drafts that could be: nothing follows a drafted end token. accepted <= n <= n_drafts */
} by_draft_outcome;

/* temperature [n_drafts], n_drafts in 1..64, from n >= 1 outcomes; a position that no outcome has gets 1. error_before, error_after (may
 * be NULL): mean over positions of the calibration error at temperature 1 and at the fitted ones. Errors: BY_EINVAL, BY_ENOMEM. */
by_status by_draft_fit_temperatures(double *temperature, double *error_before, double *error_after, const by_draft_outcome *outcomes,
                                    int64_t n, int32_t n_drafts, by_err *err);

/* Mean over n estimates of |estimate - frequency of hits|, by 15 bins of equal width. */
double by_draft_calibration(const double *estimate, const uint8_t *hit, int64_t n);

#endif
