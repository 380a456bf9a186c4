/* draft_fit.c - see draft_fit.h. */
#include "sample/draft_fit.h"

#include <math.h>

#include "base/alloc.h"

enum { BINS = 15, GRID = 41, DRAFTS_MAX = 64 };

double by_draft_calibration(const double *estimate, const uint8_t *hit, int64_t n) {
    double sum[BINS] = {0}, hits[BINS] = {0}, error = 0;
    for (int64_t i = 0; i < n; i++) {
        double p = estimate[i] < 1e-8 ? 1e-8 : estimate[i] > 1 - 1e-8 ? 1 - 1e-8 : estimate[i];
        int bin = (int)(p * BINS);
        bin = bin > BINS - 1 ? BINS - 1 : bin;
        sum[bin] += p;
        hits[bin] += hit[i];
    }
    for (int b = 0; b < BINS; b++) error += fabs(sum[b] - hits[b]);
    return n > 0 ? error / (double)n : 0;
}

typedef struct {
    const by_draft_outcome *outcomes;
    int64_t n;
    double *survival, *trial, *estimate; /* [n]: of the positions before; with one more; those of trial that count */
    uint8_t *hit;                        /* [n]: of estimate */
    int64_t n_counted;
} fit;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Calibration error with temperature t at position j; leaves the products in trial. */
static double error_with(fit *f, int32_t j, double t) {
    f->n_counted = 0;
    for (int64_t i = 0; i < f->n; i++) {
        f->trial[i] = f->survival[i] * sigmoid((double)f->outcomes[i].raw[j] / t);
        if (f->outcomes[i].n <= j) continue;
        f->estimate[f->n_counted] = f->trial[i];
        f->hit[f->n_counted++] = f->outcomes[i].accepted > j;
    }
    return by_draft_calibration(f->estimate, f->hit, f->n_counted);
}

static void keep_trial(fit *f) {
    double *t = f->survival;
    f->survival = f->trial;
    f->trial = t;
}

/* Goes through the positions with given temperatures, or fits them; mean error. */
static double walk(fit *f, int32_t n_drafts, double *temperature, bool fits) {
    double total = 0;
    for (int64_t i = 0; i < f->n; i++) f->survival[i] = 1;
    for (int32_t j = 0; j < n_drafts; j++) {
        double best = (double)INFINITY;
        for (int g = 0; fits && g < GRID; g++) {
            double t = pow(10, -1 + 2.0 * g / (GRID - 1)), e = error_with(f, j, t);
            if (e < best) best = e, temperature[j] = t;
        }
        if (fits && f->n_counted == 0) temperature[j] = 1;
        total += error_with(f, j, temperature[j]);
        keep_trial(f);
    }
    return total / n_drafts;
}

by_status by_draft_fit_temperatures(double *temperature, double *error_before, double *error_after, const by_draft_outcome *outcomes,
                                    int64_t n, int32_t n_drafts, by_err *err) {
    if (n < 1 || n_drafts < 1 || n_drafts > DRAFTS_MAX)
        return BY_FAIL(err, BY_EINVAL, "a fit of %d positions to %lld blocks of drafts", n_drafts, (long long)n);
    fit f = {.outcomes = outcomes, .n = n};
    double *all = by_alloc(BY_MEM_MISC, by_mul_size(by_mul_size((size_t)n, 3), sizeof *all));
    f.hit = by_alloc(BY_MEM_MISC, (size_t)n);
    by_status status = all && f.hit ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a fit");
    if (status == BY_OK) {
        f.survival = all;
        f.trial = all + n;
        f.estimate = all + 2 * n;
        double plain[DRAFTS_MAX];
        for (int32_t j = 0; j < n_drafts; j++) plain[j] = 1;
        double before = walk(&f, n_drafts, plain, false), after = walk(&f, n_drafts, temperature, true);
        if (error_before) *error_before = before;
        if (error_after) *error_after = after;
    }
    by_free(all);
    by_free(f.hit);
    return status;
}
