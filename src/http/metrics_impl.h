/* metrics_impl.h - cells of the registry, shared by metrics.c (recording) and metrics_text.c, metrics_vllm.c (text). */
#ifndef BY_HTTP_METRICS_IMPL_H
#define BY_HTTP_METRICS_IMPL_H

#include <stdatomic.h>

#include "http/metrics.h"

enum {
    BY_METRICS_BUCKETS_MAX = 24,
#define ONE(code) +1
    BY_METRICS_N_CODES = 1 BY_METRICS_CODES(ONE) /* and "other" */
#undef ONE
};

/* Upper bounds (inclusive) of a histogram's buckets in its recorded unit, ascending; +Inf is not listed. */
typedef struct by_metrics_layout {
    int n;
    double divisor; /* shown value = recorded value / divisor */
    int64_t bound[BY_METRICS_BUCKETS_MAX];
} by_metrics_layout;

typedef struct by_metrics_cells {
    _Atomic uint64_t bucket[BY_METRICS_BUCKETS_MAX + 1]; /* not cumulative; the last one is +Inf */
    _Atomic uint64_t sum;                                /* recorded unit: 584 years of nanoseconds fit */
} by_metrics_cells;

struct by_metrics {
    _Atomic uint64_t counter[BY_COUNT_N];
    _Atomic int64_t gauge[BY_GAUGE_N];
    by_metrics_cells histogram[BY_HIST_N];
    _Atomic uint64_t response[BY_ENDPOINT_N][BY_METRICS_N_CODES];
    _Atomic uint64_t finished[BY_FINISH_N];
    char *model_name;
    int64_t max_context, start_s; /* start_s: wall clock */
    int32_t block_tokens;
    bool vllm_names;
};

/* The buckets of a histogram; static. */
const by_metrics_layout *by_metrics_layout_of(by_metrics_histogram h);
extern const char *const by_metrics_finish_names[BY_FINISH_N];

/* The pieces of the text; `full` is the whole name. labels: 'a="b",c="d"' or "" (escaped already). */
void by_metrics_put_head(by_buf *out, const char *full, const char *type, const char *help);
void by_metrics_put_uint(by_buf *out, const char *full, const char *labels, uint64_t v);
void by_metrics_put_double(by_buf *out, const char *full, const char *labels, double v);
void by_metrics_put_histogram(by_buf *out, const char *full, const char *labels, const by_metrics *m,
                              by_metrics_histogram h);
/* Appends s as the inside of a label value. */
void by_metrics_put_escaped(by_buf *out, const char *s);

/* The families under vLLM's names. */
void by_metrics_write_vllm(by_metrics *m, by_buf *out, const by_engine_stats *stats);

#endif
