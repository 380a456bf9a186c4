/* api_stream.h - an answer as one of the APIs gives it: a stream of events, a whole object, or both.
 *
 * The stream is made from a converted request, fed by the backend, and calls back with each event's JSON. The whole object
 * is written from the same state, so that both ways agree. Chat Completions, Responses and Messages equal deepseek-recipe
 * 0.2.0 event by event; Completions follows the OpenAI text completion shape.
 *
 *   by_api_stream_create(&s, &opts, err);
 *   by_api_stream_ready(s, n_prompt, n_cached, NULL, err);
 *   by_api_stream_tokens(s, ids, n, NULL, 0, err);          -> opts.on_event(...)*
 *   by_api_stream_finish(s, BY_REASON_STOP, err);
 *   by_api_stream_write_whole(s, &body, err);
 *
 * A streamed delta allocates nothing once the buffers have grown, unless the whole object is kept as well. One thread per
 * stream. Errors of the feeding functions: those of recipe/answer.h; after BY_ENOMEM the last event may be missing. */
#ifndef BY_API_STREAM_H
#define BY_API_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "api/api_request.h"
#include "base/buf.h"
#include "base/err.h"
#include "recipe/answer.h"

/* One event. name is the SSE event name, NULL where the API has none; json is compact, a NUL
 * follows it, and it lives during the call. */
typedef void by_api_event_fn(void *ctx, const char *name, by_str json);

typedef enum by_api_usage_place {
    BY_API_USAGE_LAST,       /* in the event with the finish reason, always (the original) */
    BY_API_USAGE_OWN_EVENT,  /* if the request includes usage: in an event of its own without choices */
    BY_API_USAGE_CONTINUOUS  /* OWN_EVENT, and the counts so far in every event */
} by_api_usage_place;

typedef struct by_api_stream_opts {
    const by_api_converted *request; /* outlives the stream */
    by_str id;                       /* of the response; copied */
    int64_t created;                 /* Unix time in seconds */
    int64_t (*now)(void);            /* for the time of completion; NULL: time(2) */
    by_str signature;                /* Messages: of a thinking block; empty = the id; copied */
    const by_parser_opts *parser;    /* instead of the request's; NULL = the request's */
    by_answer_opts answer;           /* tok, scratch, call_id_seed, server profile; .parser is not looked at */
    by_api_usage_place usage_place;  /* Chat Completions and Completions */
    uint32_t choice;                 /* their choice index, for requests with n > 1 */
    by_api_event_fn *on_event;       /* NULL: only the whole object is wanted */
    void *ctx;
    bool keep_whole;                 /* by_api_stream_write_whole will be called (Responses keeps it anyway) */
} by_api_stream_opts;

typedef struct by_api_stream by_api_stream;

/* *out is set only on success; the caller destroys it. Errors: BY_ENOMEM, those of by_answer_create. */
by_status by_api_stream_create(by_api_stream **out, const by_api_stream_opts *opts, by_err *err);
void by_api_stream_destroy(by_api_stream *s); /* NULL is allowed */

/* Feeding, as in recipe/answer.h; events come from within these calls. */
by_status by_api_stream_ready(by_api_stream *s, uint64_t prompt_tokens, uint64_t cached_tokens,
                              const by_str *fingerprint, by_err *err);
by_status by_api_stream_text(by_api_stream *s, by_str text, uint64_t n_tokens, by_err *err);
by_status by_api_stream_tokens(by_api_stream *s, const int32_t *ids, size_t n, const by_logprob *logprobs,
                               size_t n_logprobs, by_err *err);
by_status by_api_stream_finish(by_api_stream *s, by_answer_reason reason, by_err *err);
by_status by_api_stream_end_input(by_api_stream *s, by_err *err);
void by_api_stream_close(by_api_stream *s);
bool by_api_stream_finished(const by_api_stream *s);
by_answer_usage by_api_stream_usage(const by_api_stream *s);
by_answer_end_kind by_api_stream_end_kind(const by_api_stream *s); /* BY_END_STOP before the end */

/* Appends the whole object of what has come so far; needs keep_whole (Responses does not). Errors: BY_ENOMEM. */
by_status by_api_stream_write_whole(by_api_stream *s, by_buf *out, by_err *err);

/* Several choices of one Chat Completions or Completions request as one object, with the counts added up. All streams are
 * of the same request and n >= 1; with several prompts (Completions) the choices of a prompt stand together and share a
 * by_api_converted, another prompt's have another, so that each prompt counts once. Errors: BY_ENOMEM. */
by_status by_api_stream_write_choices(by_api_stream *const *streams, size_t n, by_buf *out, by_err *err);

/* Data of the last server-sent event, "[DONE]", or NULL where the API has none. */
const char *by_api_done_data(by_api_kind api);

/* Appends one server-sent event: "event: NAME\n" when there is a name, "data: JSON\n\n". json has no line break. */
void by_api_write_sse(by_buf *out, const char *name, by_str json);

#endif
