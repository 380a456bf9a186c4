/* batch_stats.h - what `bathyc batch --stats` says at the end: where requests spent their time, and the engine's own figures. */
#ifndef BY_CLI_BATCH_STATS_H
#define BY_CLI_BATCH_STATS_H

#include "base/buf.h"
#include "engine/engine.h"

enum { BY_SPREAD_BUCKETS = 320 };

/* Times in buckets that are 9 % wide each, from 1 us on. Zero-initialise. */
typedef struct by_spread {
    uint64_t n, bucket[BY_SPREAD_BUCKETS];
    double sum_us, max_us;
} by_spread;

/* Counts a time in microseconds, >= 0. */
void by_spread_add(by_spread *s, double us);
/* The time that a share of all (0..1) did not exceed, as the upper end of its bucket and never above the longest; 0 without any. */
double by_spread_quantile(const by_spread *s, double share);

typedef struct by_batch_stats {
    by_spread queue, prefill, first, decode, token; /* until the first step; from it to the first token; both; from there to the end; by token */
    int64_t n_prompt, n_cached, n_replayed, n_output;
} by_batch_stats;

/* One request that has ended well. */
void by_batch_stats_note(by_batch_stats *s, const by_request_info *info, int64_t n_output);

/* Appends the report, lines of text. seconds: from the first request on. */
void by_batch_stats_write(by_buf *out, const by_batch_stats *s, const by_engine_stats *e, double seconds);

#endif
