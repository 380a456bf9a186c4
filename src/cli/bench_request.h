/* bench_request.h - the half of `bathyc bench recipe` that starts from request bodies. */
#ifndef BY_CLI_BENCH_REQUEST_H
#define BY_CLI_BENCH_REQUEST_H

#include <stdbool.h>

#include "base/err.h"
#include "tok/tok.h"

/* Prints a table (or JSON lines) of the best times of a built-in request: body to conversation, to prompt text, to ids. */
by_status by_bench_request_built_in(by_tok *tok, by_tok_scratch *scratch, double seconds, bool json, by_err *err);

/* Converts the Chat Completions bodies of a file, one a line; prints {"ids"} for each, and the sum of the times of all three
 * stages on stderr. Errors: BY_EINVAL (a body that is refused), those of the file. */
by_status by_bench_request_lines(by_tok *tok, by_tok_scratch *scratch, const char *path, by_err *err);

#endif
