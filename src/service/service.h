/* service.h - requests of the APIs on an engine: what `batch` and the server share.
 *
 *   body -> by_api_convert -> prompt ids -> engine requests -> tokens -> by_api_stream -> events, whole answer
 *
 * A by_service owns the engine. A by_call is one request body: it may become several engine requests (Completions with several
 * prompts) with several choices each. by_call_start never waits for the model; by_call_pump hands on what has come.
 *
 *   by_call_start(&call, service, &opts, err);
 *   while (by_call_pump(call, timeout_ms, err) == BY_AGAIN) ...
 *   by_call_problem_get(call) ? answer with the problem : by_call_write_whole(call, &body, err);
 *   by_call_destroy(call);
 *
 * A call never fails another one. Thread rule: any number of calls on any threads, one thread at a time for each call; the
 * service's own functions from any thread. */
#ifndef BY_SERVICE_SERVICE_H
#define BY_SERVICE_SERVICE_H

#include "api/api_request.h"
#include "api/api_stream.h"
#include "engine/engine.h"

typedef struct by_service by_service;
typedef struct by_call by_call;

typedef struct by_service_opts {
    by_engine_opts engine;
    by_api_options api;       /* models and specials are replaced: see names */
    const char *const *names; /* [n_names] accepted as "model", copied; none: DeepSeek-V4.1-Flash and the folder's own name */
    int n_names;
    bool null_backend;        /* no model: fixed tokens at a set rate, for measuring; of the engine's options only model_dir (its
                               * tokenizer), max_context and sched.max_waiting count, and by_service_engine is NULL */
    double null_rate;         /* tokens per second and choice; 0 = all at once */
    double null_first_ms;     /* until the first token */
} by_service_opts;

/* Opens engine and tokenizer. *out is set only on success. Errors: those of by_engine_open, BY_EMISSING (no tokenizer.json). */
by_status by_service_open(by_service **out, const by_service_opts *opts, by_err *err);
/* Every call must have been destroyed. NULL is allowed. */
void by_service_close(by_service *s);
by_engine *by_service_engine(by_service *s);
const by_tok *by_service_tok(const by_service *s);
/* Accepted names of the model, [*n]; the first is the public one. */
const by_api_model_name *by_service_names(const by_service *s, uint32_t *n);
/* Most tokens of one sequence. */
int64_t by_service_max_context(const by_service *s);

typedef struct by_call_opts {
    by_api_kind api;
    by_str body;               /* copied */
    by_tok_scratch *scratch;   /* for this thread, or NULL; used only during by_call_start */
    by_str id;                 /* of the response, copied; empty = one is made */
    bool store, background;    /* Responses: what the answer says of itself; the ids are copied, empty = null */
    by_str previous_response_id, conversation_id;
    bool whole;                /* by_call_write_whole will be called */
    bool as_requested;         /* instead: events when the request wants a stream, the whole when it does not */
    bool prompt_only;          /* convert and encode, for by_call_prompt; nothing is generated */
    by_api_event_fn *on_event; /* events of the stream, from within by_call_pump; NULL = none */
    void *ctx;
    by_api_usage_place usage_place;
    bool each_token;           /* one event per token, where the text allows it */
    int64_t deadline_ms;       /* 0 = none */
    int32_t priority;
    void (*notify)(void *arg); /* on an engine thread when by_call_pump has something to do; must not block; NULL = none */
    void *arg;
} by_call_opts;

/* Why a call has no answer: what to tell the client. */
typedef struct by_call_problem {
    int http_status;
    const char *type, *code; /* "invalid_request_error", "context_length_exceeded"; static */
    char param[128];         /* the request's field that is at fault, "messages[1].role"; empty = none */
    char message[BY_ERR_MSG_MAX];
} by_call_problem;

/* What a failure below the API means to the client: its own fault where the status says so, else the engine's. */
by_call_problem by_call_problem_of(by_status status, const by_err *err);

/* {"error":{"message":...,"type":...,"param":...,"code":...}} */
void by_call_problem_write(by_buf *out, const by_call_problem *p);

/* Starts a call. BY_OK: it runs. BY_EINVAL, BY_ECONTEXT, BY_EUNSUPPORTED (the request's fault), BY_EBUSY (the queue is full or
 * the engine drains): *out is a call with a problem. BY_ENOMEM: *out may be NULL. The caller destroys *out in any case. */
by_status by_call_start(by_call **out, by_service *s, const by_call_opts *opts, by_err *err);

/* Hands on everything that has come; waits at most timeout_ms (0 = not at all, -1 = for ever) for the first of it.
 * BY_AGAIN: there will be more. BY_END: all is answered, or the call has got a problem. */
by_status by_call_pump(by_call *c, int64_t timeout_ms, by_err *err);

/* NULL while there is none. */
const by_call_problem *by_call_problem_get(const by_call *c);

/* The converted request; valid when by_call_start gave BY_OK. */
const by_api_converted *by_call_request(const by_call *c);

/* Ids of prompt i (0 <= i < the number of prompts), as they go to the engine; NULL behind the last. Live as long as the call. */
const int32_t *by_call_prompt(const by_call *c, uint32_t i, size_t *n);

/* Times of the first prompt's request: while it runs, and after it has ended. All zero when nothing was submitted. */
by_request_info by_call_times(const by_call *c);

/* How the first choice has ended; BY_END_STOP while it has not. */
by_answer_end_kind by_call_end(const by_call *c);

/* Do prompts of the call wait for room in the engine's queue? Then pump it now and then: nobody will be notified of room. */
bool by_call_waits(const by_call *c);

/* Counts so far, over all choices. */
by_answer_usage by_call_usage(const by_call *c);

/* Appends the whole answer; needs opts.whole and BY_END without a problem. Errors: BY_ENOMEM. */
by_status by_call_write_whole(by_call *c, by_buf *out, by_err *err);

/* Aborts what still runs and frees the call. NULL is allowed. */
void by_call_destroy(by_call *c);

#endif
