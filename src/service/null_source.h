/* null_source.h - a stand-in for the engine that knows no model: fixed tokens at a set rate, to measure what everything around the
 * model costs (`serve --backend null`).
 *
 * Requests look and end as the engine's do; the handles are its own and go only to these functions. Any number of threads,
 * one at a time for each request. */
#ifndef BY_SERVICE_NULL_SOURCE_H
#define BY_SERVICE_NULL_SOURCE_H

#include "engine/engine.h"
#include "tok/tok.h"

typedef struct by_null by_null;
typedef struct by_null_request by_null_request;

typedef struct by_null_opts {
    double rate;           /* tokens per second and choice; 0 = all at once */
    double first_ms;       /* until the first token */
    int32_t max_requests;  /* at once; more are refused */
    int64_t max_context;
} by_null_opts;

/* tok must outlive it. Errors: BY_ENOMEM. */
by_status by_null_create(by_null **out, const by_tok *tok, const by_null_opts *opts, by_err *err);
/* All requests must have been released. NULL is allowed. */
void by_null_destroy(by_null *n);

/* As by_engine_submit, by_request_next, by_request_abort, by_request_release and
 * by_request_info_get. */
by_status by_null_submit(by_null *n, const by_request_opts *opts, by_null_request **out, by_err *err);
by_status by_null_next(by_null_request *r, by_event *ev, int64_t timeout_ms);
void by_null_abort(by_null_request *r, int32_t choice, bool stop);
void by_null_release(by_null_request *r);
by_request_info by_null_info(by_null_request *r);

#endif
