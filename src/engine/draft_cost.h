/* draft_cost.h - what a step costs: the curve the draft planner reads, measured at the start and corrected while running.
 *
 * curve     milliseconds of a forward by its rows; between two measured sizes on the line between them. Recorded steps (runner_replay.c)
 *           are filled up to 1, 2, 4 or a multiple of 8 rows, so a row that begins such a size costs more than this says
 * scale     median over sizes of the median of measured / curve over that size's last steps: longer contexts, and a machine that runs
 *           slower, make steps slower as a whole. (The source adds a slope per row in its place; then a slower machine would seem
 *           to have dear rows, and be given few, where only everything takes longer.)
 * sampling  median of time per row of the last steps
 * proposing median of the last times for that many sequences, else of the last times for any number
 *
 * One thread. Source: dspark.md section 6.1. */
#ifndef BY_ENGINE_DRAFT_COST_H
#define BY_ENGINE_DRAFT_COST_H

#include "model/runner.h"
#include "sample/draft_plan.h"

enum { BY_COST_POINTS = 64, BY_COST_STEPS = 32, BY_COST_TIMES = 9 };

/* The last values of something, and their median. */
typedef struct by_cost_ring {
    double values[BY_COST_STEPS];
    int32_t n, next;
} by_cost_ring;

typedef struct by_draft_cost_model {
    by_draft_cost_point curve[BY_COST_POINTS];  /* as measured or given */
    by_draft_cost_point scaled[BY_COST_POINTS]; /* as it is now */
    int32_t n_curve, max_seqs;
    bool given; /* the curve is the truth: steps scale nothing, and sampling is part of it */
    int64_t n_notes;
    by_cost_ring steps[BY_COST_POINTS];  /* measured / curve, by the size above */
    by_cost_ring sample, draft_any;
    by_cost_ring *draft;                 /* [max_seqs + 1] by number of sequences */
} by_draft_cost_model;

by_status by_cost_init(by_draft_cost_model *m, int32_t max_seqs, by_err *err);
void by_cost_deinit(by_draft_cost_model *m);

/* A curve from elsewhere. Errors: BY_EINVAL (no point, too many, rows not increasing, times not above 0). */
by_status by_cost_set(by_draft_cost_model *m, const by_draft_cost_point *curve, int32_t n, by_err *err);

/* The clock that costs are taken by. Where the calling thread computes itself, that is its processor time: other programs on the machine
 * make steps longer, long ones more than short ones, but that is no reason to give drafts fewer rows. Else the time. */
int64_t by_cost_clock_ns(const by_device *dev);

/* Measures forwards of 1, 2, 4, 8, 16, ... up to max_rows rows on runner and kv, whose caches nobody uses yet, in rounds, and keeps the
 * fastest of each: what disturbs a run only makes it slower, and hits all sizes of a round. Sizes that would take the whole longer than
 * budget_ms are extrapolated from those before. Errors: those of by_runner_step. */
by_status by_cost_measure(by_draft_cost_model *m, const by_device *dev, by_runner *runner, by_kv *kv, int32_t vocab, int32_t max_rows,
                          double budget_ms, by_err *err);

/* Reads a curve from a JSON file {"curve": [[rows, milliseconds], ...]}. Errors: BY_EMISSING, BY_EIO, BY_EFORMAT. */
by_status by_cost_read(by_draft_cost_model *m, const char *path, by_err *err);

/* Reads or writes the curve as DIR/NAME, such a file; reading gives false when there is none of at most max_age_s seconds or it
 * is not one. Writing replaces by renaming and never fails loudly: a curve that is not kept is measured again. */
bool by_cost_load(by_draft_cost_model *m, const char *dir, const char *name, int64_t max_age_s);
void by_cost_save(const by_draft_cost_model *m, const char *dir, const char *name);

/* What a step of n_seqs sequences took: its rows, the time of sampling and (0 = none) of proposing. */
void by_cost_note(by_draft_cost_model *m, int32_t rows, double forward_ms, int32_t n_seqs, double sample_ms, double draft_ms);

/* For the planner, with n_seqs sequences; `proposes`: the steps it is about propose drafts too, which is sampler_ms. The curve lies in m. */
by_draft_cost by_cost_for(const by_draft_cost_model *m, int32_t n_seqs, bool proposes);
bool by_cost_knows_drafts(const by_draft_cost_model *m); /* the time of proposing has been seen */

#endif
