/* engine_runs.h - requests on an engine and all that comes out of them, for comparing bit by bit. For tests only. */
#ifndef BY_TEST_ENGINE_RUNS_H
#define BY_TEST_ENGINE_RUNS_H

#include "base/rng.h"
#include "engine/engine.h"

enum { BY_RUN_TOKENS = 512, BY_RUN_CHOICES = 4, BY_RUN_TOP = 20 };

/* What one request gave. */
typedef struct by_run_result {
    int32_t n[BY_RUN_CHOICES];
    int32_t tokens[BY_RUN_CHOICES][BY_RUN_TOKENS];
    float logprobs[BY_RUN_CHOICES][BY_RUN_TOKENS];
    by_sample_top top[BY_RUN_CHOICES][BY_RUN_TOKENS][BY_RUN_TOP]; /* zero where not asked for */
    by_choice_finish finish[BY_RUN_CHOICES];
    by_request_info info;
    by_err err;     /* of a choice that ended with an error */
    bool stuck;     /* nothing came for a minute */
} by_run_result;

/* Options for the second of the stored checkpoints (model/tiny_a), with a gibibyte for caches. */
by_engine_opts by_run_engine_opts(int32_t n_threads, int64_t context, int32_t n_blocks, int32_t n_seqs, int32_t n_rows);

/* An engine, a request on it; a failure fails the test. */
by_engine *by_run_open(const by_engine_opts *o);
by_request *by_run_submit(by_engine *e, const by_request_opts *o);

/* Any ids of e's vocabulary. */
void by_run_random_tokens(by_rng *rng, int32_t *tokens, int32_t n, const by_engine *e);

/* Greedy or, with a seed that is not 0, at temperature 1; the end token is ignored; the BY_RUN_TOP best alternatives are asked for. */
by_request_opts by_run_request(const int32_t *tokens, int32_t n_tokens, int32_t max_tokens, uint64_t seed);

/* Reads r to its end into *out (cleared first), and releases it. */
void by_run_read(by_run_result *out, by_request *r);

/* Equal tokens, endings, and bits of log-probabilities and alternatives; prints the first difference. */
bool by_run_same(const char *what, const by_run_result *a, const by_run_result *b);

/* Figures once nothing is held any more (they come a moment after the last event), at most ten seconds later. */
by_engine_stats by_run_stats_at_rest(by_engine *e);

#endif
