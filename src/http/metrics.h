/* metrics.h - what the server counts, and its text for Prometheus.
 *
 * One by_metrics belongs to one server. Recording is a handful of relaxed atomic additions on memory laid out once, so any
 * thread may record at any time and nothing waits; the text is made on request by one reader from single reads of the cells.
 * A histogram's +Inf bucket and its count come from the same reads, so a scrape in the middle of an observation is still a
 * valid histogram (its sum may be one observation ahead). Counters only rise.
 *
 * The tables below are the list of what exists: docs/server.md, the Grafana dashboard in deploy/ and the page are tested
 * against them. Counters of the engine are not kept here; they come from by_engine_stats at each scrape. */
#ifndef BY_HTTP_METRICS_H
#define BY_HTTP_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/engine.h"

/* Counters without labels: id, name (behind bathyc_), help. */
#define BY_METRICS_COUNTERS(X)                                                                                         \
    X(CONNECTIONS, "http_connections_total", "Connections accepted.")                                                  \
    X(RECEIVED_BYTES, "http_received_bytes_total", "Bytes of requests read from clients.")                             \
    X(SENT_BYTES, "http_sent_bytes_total", "Bytes of responses handed to the sockets.")                                \
    X(STREAM_EVENTS, "http_stream_events_total", "Server-sent events written.")                                        \
    X(DISCONNECTS, "http_client_disconnects_total", "Requests whose client left before the answer was complete.")      \
    X(SLOW_PAUSED, "http_slow_client_pauses_total", "Times a stream waited because its client did not read.")          \
    X(SLOW_CANCELLED, "http_slow_client_cancels_total", "Streams cancelled because their client did not read.")        \
    X(REFUSED_BUSY, "http_refused_busy_total", "Requests refused because the queue was full.")                         \
    X(REFUSED_NOT_READY, "http_refused_not_ready_total", "Requests refused while loading or shutting down.")           \
    X(REFUSED_KEY, "http_refused_key_total", "Requests refused for a missing or wrong API key.")                       \
    X(PROMPT_TOKENS, "prompt_tokens_total", "Prompt tokens of finished requests.")                                     \
    X(CACHED_TOKENS, "cached_prompt_tokens_total", "Prompt tokens of finished requests that the prefix cache held.")   \
    X(OUTPUT_TOKENS, "output_tokens_total", "Tokens sent out, of finished requests.")                                  \
    X(REASONING_TOKENS, "reasoning_tokens_total", "Output tokens inside reasoning, of finished requests.")

/* Gauges: id, name, help. */
#define BY_METRICS_GAUGES(X)                                                                                           \
    X(READY, "ready", "1 once the first token is possible, 0 while loading and shutting down.")                        \
    X(OPEN_CONNECTIONS, "http_open_connections", "Connections open now.")                                              \
    X(OPEN_REQUESTS, "http_open_requests", "Requests being read or answered now.")                                     \
    X(OPEN_STREAMS, "http_open_streams", "Streamed answers under way now.")                                            \
    X(OUTPUT_BUFFER_BYTES, "http_output_buffer_bytes", "Bytes that clients have not read yet, all connections.")       \
    X(STORED_RESPONSES, "stored_responses", "Answers of /v1/responses kept for later requests.")

/* Histograms: id, name, layout of buckets, help. Times are recorded in nanoseconds and shown in seconds. */
#define BY_METRICS_HISTOGRAMS(X)                                                                                       \
    X(FIRST_TOKEN, "time_to_first_token_seconds", SLOW, "From the request's last byte to its first token.")            \
    X(INTER_TOKEN, "inter_token_seconds", FAST, "Between two events of one choice that carry tokens.")                 \
    X(QUEUE, "queue_seconds", SLOW, "From submission to the first step of a request.")                                 \
    X(PREFILL, "prefill_seconds", SLOW, "From the first step of a request to its first token.")                        \
    X(DECODE, "decode_seconds", SLOW, "From the first token of a request to its end.")                                 \
    X(REQUEST, "request_seconds", SLOW, "From the request's last byte to the end of its answer.")                      \
    X(OUTPUT_TOKEN, "request_time_per_output_token_seconds", FAST, "Decode time of a request by tokens behind the first.") \
    X(N_PROMPT, "request_prompt_tokens", TOKENS, "Prompt tokens of a request.")                                        \
    X(N_OUTPUT, "request_output_tokens", TOKENS, "Output tokens of a request.")                                        \
    X(N_MAX, "request_max_tokens", TOKENS, "Most output tokens that a request allowed.")

/* Values of the label `endpoint`. Paths with an id in them are counted under the path before it. */
#define BY_METRICS_ENDPOINTS(X)                                                                                        \
    X(CHAT, "/v1/chat/completions")                                                                                    \
    X(COMPLETIONS, "/v1/completions")                                                                                  \
    X(RESPONSES, "/v1/responses")                                                                                      \
    X(MESSAGES, "/v1/messages")                                                                                        \
    X(COUNT_TOKENS, "/v1/messages/count_tokens")                                                                       \
    X(MODELS, "/v1/models")                                                                                            \
    X(FILES, "/v1/files")                                                                                              \
    X(BATCHES, "/v1/batches")                                                                                          \
    X(CONVERSATIONS, "/v1/conversations")                                                                              \
    X(TOKENIZE, "/tokenize")                                                                                           \
    X(DETOKENIZE, "/detokenize")                                                                                       \
    X(HEALTH, "/health")                                                                                               \
    X(READINESS, "/ready")                                                                                             \
    X(METRICS, "/metrics")                                                                                             \
    X(VERSION, "/version")                                                                                             \
    X(OPENAPI, "/openapi.json")                                                                                        \
    X(PAGE, "/")                                                                                                       \
    X(OTHER, "other")

/* Values of the label `code`; any other status is counted as "other". 0: the client left before a status was sent. */
#define BY_METRICS_CODES(X)                                                                                            \
    X(0) X(200) X(204) X(304) X(400) X(401) X(403) X(404) X(405) X(408) X(409) X(411) X(413) X(414) X(415) X(417) X(422) \
    X(429) X(431) X(499) X(500) X(501) X(503) X(504) X(505)

/* Values of the label `reason` of bathyc_requests_finished_total. */
#define BY_METRICS_FINISHES(X)                                                                                         \
    X(STOP, "stop")                                                                                                    \
    X(LENGTH, "length")                                                                                                \
    X(TOOL_CALLS, "tool_calls")                                                                                        \
    X(CANCELLED, "cancelled")                                                                                          \
    X(ERROR, "error")

typedef enum by_metrics_counter {
#define BY_METRICS_ID(id, ...) BY_COUNT_##id,
    BY_METRICS_COUNTERS(BY_METRICS_ID) BY_COUNT_N
#undef BY_METRICS_ID
} by_metrics_counter;

typedef enum by_metrics_gauge {
#define BY_METRICS_ID(id, ...) BY_GAUGE_##id,
    BY_METRICS_GAUGES(BY_METRICS_ID) BY_GAUGE_N
#undef BY_METRICS_ID
} by_metrics_gauge;

typedef enum by_metrics_histogram {
#define BY_METRICS_ID(id, ...) BY_HIST_##id,
    BY_METRICS_HISTOGRAMS(BY_METRICS_ID) BY_HIST_N
#undef BY_METRICS_ID
} by_metrics_histogram;

typedef enum by_metrics_endpoint {
#define BY_METRICS_ID(id, ...) BY_ENDPOINT_##id,
    BY_METRICS_ENDPOINTS(BY_METRICS_ID) BY_ENDPOINT_N
#undef BY_METRICS_ID
} by_metrics_endpoint;

typedef enum by_metrics_finish {
#define BY_METRICS_ID(id, ...) BY_FINISH_##id,
    BY_METRICS_FINISHES(BY_METRICS_ID) BY_FINISH_N
#undef BY_METRICS_ID
} by_metrics_finish;

typedef struct by_metrics by_metrics;

typedef struct by_metrics_opts {
    const char *model_name; /* label of bathyc_model_info and of every vLLM name; copied */
    int64_t max_context;    /* tokens */
    int32_t block_tokens;   /* tokens of one cache block: a label that gateways with prefix-aware routing read */
    bool vllm_names;        /* --metrics-compat vllm: the same figures once more under the names that vLLM uses */
} by_metrics_opts;

/* All cells zero. The caller destroys it when no thread records any more. Errors: BY_ENOMEM. */
by_status by_metrics_create(by_metrics **out, const by_metrics_opts *opts, by_err *err);
void by_metrics_destroy(by_metrics *m);

/* Known only once the model is loaded, while the port is open before: replaces the three figures of the options. Not while
 * another thread writes the text. model_name NULL keeps the old one. Errors: BY_ENOMEM (nothing changed). */
by_status by_metrics_set_model(by_metrics *m, const char *model_name, int64_t max_context, int32_t block_tokens, by_err *err);

/* Recording, from any thread. */
void by_metrics_add(by_metrics *m, by_metrics_counter counter, uint64_t n);
void by_metrics_gauge_set(by_metrics *m, by_metrics_gauge gauge, int64_t value);
void by_metrics_gauge_add(by_metrics *m, by_metrics_gauge gauge, int64_t delta);
/* value: nanoseconds or tokens, as the histogram's name says; below 0 counts as 0 (a clock read on two threads). */
void by_metrics_observe(by_metrics *m, by_metrics_histogram histogram, int64_t value);
/* One answered HTTP request. http_status 0: its client left before a status was sent. */
void by_metrics_count_response(by_metrics *m, by_metrics_endpoint endpoint, int http_status);

/* The endpoint of a request path without its query ("/v1/responses/resp_1/cancel" is BY_ENDPOINT_RESPONSES). */
by_metrics_endpoint by_metrics_endpoint_of(by_str path);

/* One finished generation request, as by_request_info and by_answer_usage describe it. Times are microseconds of one clock;
 * 0 = that point was not reached, and what would need it is not observed. */
typedef struct by_metrics_request {
    int64_t received_us; /* the last byte of the request was read */
    int64_t submit_us, start_us, first_us, end_us;
    int64_t n_prompt, n_cached, n_output, n_reasoning; /* summed over its choices */
    int64_t max_tokens;  /* 0 = the request gave none */
    by_metrics_finish finish; /* of its first choice */
} by_metrics_request;

/* Token counters, all histograms but INTER_TOKEN, and bathyc_requests_finished_total. Any thread. */
void by_metrics_count_request(by_metrics *m, const by_metrics_request *r);

#define BY_METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends the text (Prometheus text format 0.0.4, UTF-8). stats: by_engine_stats_get of this moment, NULL while no engine
 * is there (its families are left out then). Reads /proc/self for the process's own figures. One caller at a time; the text is
 * about 20 KB, 40 KB with vLLM's names. Errors: BY_ENOMEM. */
by_status by_metrics_write(by_metrics *m, by_buf *out, const by_engine_stats *stats, by_err *err);

#endif
