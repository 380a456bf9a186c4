/* one_request.h - the engine for one request at a time: what `run` and `chat` have in common. Drafts, grammars and what the prefix cache
 * keeps between requests work as in the server. */
#ifndef BY_CLI_ONE_REQUEST_H
#define BY_CLI_ONE_REQUEST_H

#include "cli/engine_flags.h"

/* How an answer is drawn, as the flags have it. */
typedef struct by_draw_flags {
    int64_t max_tokens, top_k;
    double temperature, top_p, min_p;
    uint64_t seed;
    bool has_seed;
} by_draw_flags;

/* Off and 1, and at most this many tokens. */
static inline by_draw_flags by_draw_flags_default(int64_t max_tokens) {
    return (by_draw_flags){.max_tokens = max_tokens, .top_k = -1, .temperature = 1, .top_p = 1};
}

/* Rows for the table of such a command; f is a by_engine_flags variable, d a by_draw_flags variable. */
#define BY_ONE_REQUEST_FLAG_ROWS(f) BY_ENGINE_FLAG_ROWS(f), BY_CHUNK_FLAG_ROW((f).model)
#define BY_DRAW_FLAG_ROWS(d, max_default)                                                                              \
    {.names = "--max-tokens,-n,--n-predict", .kind = BY_FLAG_INT, .out = &(d).max_tokens, .min = 1, .max = INT32_MAX,  \
     .help = "most tokens to generate, cut at the context (default: " max_default ")"},                                \
    {.names = "--temp,--temperature", .kind = BY_FLAG_DOUBLE, .out = &(d).temperature, .dmin = 0, .dmax = 1e6,         \
     .help = "0 = always the most likely token (default: 1)"},                                                         \
    {.names = "--top-p", .kind = BY_FLAG_DOUBLE, .out = &(d).top_p, .dmin = 1e-9, .dmax = 1,                           \
     .help = "nucleus (default: 1, off)"},                                                                             \
    {.names = "--top-k", .kind = BY_FLAG_INT, .out = &(d).top_k, .min = -1, .max = INT32_MAX,                          \
     .help = "most tokens to choose from (default: -1; 0 or -1 = off)"},                                                         \
    {.names = "--min-p", .kind = BY_FLAG_DOUBLE, .out = &(d).min_p, .dmin = 0, .dmax = 1,                              \
     .help = "least probability, as a share of the most likely token's (default: 0, off)"},                            \
    {.names = "--seed,-s", .kind = BY_FLAG_UINT64, .out = &(d).seed, .seen = &(d).has_seed,                            \
     .help = "same seed, same text (default: random)"}

/* Puts them into o; without a seed one is drawn, and kept in d only when keep_seed is set. Errors: BY_EIO (no
 * random number). */
by_status by_draw_flags_set(by_sample_params *o, by_draw_flags *d, bool keep_seed, by_err *err);

/* Opens an engine for one sequence, unless the flags want more; --chunk or --max-num-batched-tokens sets the rows of a step. Errors: those
 * of by_engine_flags_opts and by_engine_open. */
by_status by_one_request_open(by_engine **out, by_engine_flags *f, by_err *err);

/* Called for every generated id, a final end token included; BY_END ends the request. */
typedef by_status by_take_id(void *arg, int32_t id, by_err *err);

typedef struct by_one_result {
    by_choice_finish finish; /* STOP also when take has ended it; CANCELLED when it was interrupted */
    int64_t n_output;
    by_request_info info; /* end_us: when the last event came */
} by_one_result;

/* Submits the request and hands its tokens over until it ends; warnings of its grammar go to
 * standard error then. interrupted (NULL = never) is asked at least every 50 ms. Errors: those of
 * by_engine_submit, of the request, and of take. */
by_status by_one_request_run(by_one_result *out, by_engine *e, const by_request_opts *opts, by_take_id *take, void *arg,
                             bool (*interrupted)(void), by_err *err);

#endif
