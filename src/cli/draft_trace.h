/* draft_trace.h - recorded drafts: what would have been proposed at every position of an answer, and how much of it was right. `bathyc
 * calibrate` writes such files and fits temperatures to them; `bathyc simulate dspark` replays them.
 *
 * One JSON object a line: {"id": ..., "positions": [{"raw": [x, ...], "accepted": k, "n": m}, ...]}, raw values of the confidence head; n
 * where a drafted end token makes the drafts behind it void. */
#ifndef BY_CLI_DRAFT_TRACE_H
#define BY_CLI_DRAFT_TRACE_H

#include "base/buf.h"
#include "sample/draft_fit.h"

typedef struct by_draft_traces {
    by_draft_outcome *positions; /* of all answers, one behind another; raw points into values */
    float *values;
    int64_t *first; /* [n_answers + 1]: first position of each answer */
    int64_t n_positions, cap_positions, n_answers, cap_answers;
    int32_t n_drafts;
} by_draft_traces;

/* Adds an answer of n positions; raw values are copied. Errors: BY_EFORMAT (another n_drafts than before), BY_ENOMEM. */
by_status by_draft_traces_add(by_draft_traces *t, const by_draft_outcome *outcomes, int64_t n, int32_t n_drafts, by_err *err);
/* Adds the answers of a file ("-" = standard input). Errors: those of the file, BY_EFORMAT naming the line. */
by_status by_draft_traces_read(by_draft_traces *t, const char *path, by_err *err);
/* Appends the line of answer i to out. */
void by_draft_traces_write(const by_draft_traces *t, int64_t i, by_str id, by_buf *out);
void by_draft_traces_deinit(by_draft_traces *t);

#endif
