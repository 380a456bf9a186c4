/* one_request.h - the engine for one request at a time: what `run` and `chat` have in common. Drafts, grammars and what the prefix cache
 * keeps between requests work as in the server. */
#ifndef BY_CLI_ONE_REQUEST_H
#define BY_CLI_ONE_REQUEST_H

#include "cli/engine_flags.h"

/* Rows for the table of such a command; f is a by_engine_flags variable. */
#define BY_ONE_REQUEST_FLAG_ROWS(f) BY_ENGINE_FLAG_ROWS(f), BY_CHUNK_FLAG_ROW((f).model)

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

/* Submits the request and hands its tokens over until it ends. interrupted (NULL = never) is asked at least every 50 ms. Errors: those of
 * by_engine_submit, of the request, and of take. */
by_status by_one_request_run(by_one_result *out, by_engine *e, const by_request_opts *opts, by_take_id *take, void *arg,
                             bool (*interrupted)(void), by_err *err);

#endif
