/* http_call.h - one answer of the model on its way to a client: from the request's body to the last byte.
 *
 * A job belongs to an exchange as long as the client is there; then it is cancelled, unless it runs in the background (Responses).
 * Loop's thread. */
#ifndef BY_HTTP_CALL_H
#define BY_HTTP_CALL_H

#include "http/http_impl.h"

typedef struct by_job by_job;

/* What somebody else wants to know of a job. NULL functions are not called. */
typedef struct by_job_hooks {
    /* The answer is complete (problem NULL, body the whole answer) or has failed; before the client is told the end. The job is
     * gone afterwards, and NULL when it could not even begin. body is only made when `whole` was asked for. */
    void (*ended)(void *arg, by_job *job, const by_call_problem *problem, by_str body);
    void *arg;
    bool whole; /* ended wants the body */
} by_job_hooks;

typedef struct by_job_opts {
    by_api_kind api;
    by_buf *body;     /* taken over: empty afterwards, unless even the job cannot be had */
    by_str id;        /* of the response; empty = made. Copied */
    bool background;  /* without a client: ex is NULL and nothing is streamed */
    bool store;       /* these three as in by_call_opts; copied */
    by_str previous_response_id, conversation_id;
    by_job_hooks hooks;
} by_job_opts;

/* Starts an answer for an exchange (or none). Failures are told the client, or the hooks. *out may be NULL. */
void by_job_start(by_http *h, by_exchange *ex, const by_job_opts *opts, by_job **out);
/* Stops it; hooks are told (problem: cancelled) and a client that is there is, too. */
void by_job_cancel(by_job *job);
/* Destroys every job, without telling anybody; for the end. */
void by_jobs_abort(by_http *h);
/* Once per tick. */
void by_jobs_tick(by_http *h);

#endif
