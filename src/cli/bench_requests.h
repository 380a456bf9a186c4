/* bench_requests.h - what the benchmarks of the engine share: running requests of random ids to their ends, lists of numbers,
 * medians. */
#ifndef BY_CLI_BENCH_REQUESTS_H
#define BY_CLI_BENCH_REQUESTS_H

#include "base/rng.h"
#include "cli/engine_flags.h"
#include "engine/engine.h"

typedef struct by_bench_run {
    by_engine *engine;
    int64_t n_requests, n_prompt, n_gen; /* n_gen tokens each, greedy, the end token ignored */
    by_rng *rng;           /* ids of the prompts; NULL: every prompt is `tokens` */
    const int32_t *tokens; /* [n_prompt] */
    const by_request_grammar *grammars; /* [n_grammars]: the requests have them in turns */
    int64_t n_grammars;                 /* 0: nothing limits the texts */
    /* out */
    double prefill_s; /* from the first submission to the last first token */
    double decode_s;  /* from there to the end of the last request */
    int32_t n_cached, n_replayed; /* of the last request */
} by_bench_run;

/* Submits all requests, reads them to their ends. Errors: those of by_engine_submit and of the requests. */
by_status by_bench_requests_run(by_bench_run *r, by_err *err);

/* "512,1024" and repeated flags; at most max numbers in 0..BY_LIMIT_CONTEXT. -1 with err on anything else. */
int by_bench_numbers(const by_flag_list *list, const char *fallback, int64_t *out, int max, by_err *err);

/* Sorts v [n], n >= 1. */
double by_bench_median(double *v, int n);

#endif
