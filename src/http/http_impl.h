/* http_impl.h - what the files of the server share. Not for other modules.
 *
 *   by_conn      a connection: bytes in, requests one after the other, bytes out
 *   by_exchange  one request and its answer; lives until the answer is complete or the client has left
 *   job          what a handler leaves behind in an exchange when it cannot answer at once: an answer of the model (http_call.c),
 *                or work on a long text (http_tokens.c)
 *
 * All on the loop's thread. A dead connection stays readable until the end of the round (by_conn.dead). */
#ifndef BY_HTTP_IMPL_H
#define BY_HTTP_IMPL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/rng.h"
#include "http/http_parse.h"
#include "http/http_server.h"
#include "http/loop.h"
#include "http/metrics.h"
#include "json/json.h"
#include "json/json_write.h"

typedef struct by_conn by_conn;
typedef struct by_exchange by_exchange;
typedef struct by_route by_route;
typedef struct by_stored by_stored;
typedef struct by_files by_files;
typedef struct by_worker by_worker;

/* What an unfinished answer must be told. job is by_exchange.job. */
typedef struct by_job_ops {
    void (*resume)(void *job);              /* the client has read on: more may be written. NULL = nothing waits */
    void (*abandon)(void *job);             /* the client is gone: forget the exchange */
} by_job_ops;

struct by_exchange {
    by_http *http;
    by_conn *conn;
    by_arena arena;
    by_str method, path, query; /* path is decoded; query is not */
    by_str sub;                 /* the second variable part of the path */
    const by_http_head *head;
    const by_route *route;      /* NULL = refused before */
    by_buf body;
    char request_id[132];
    int64_t received_us;        /* the last byte of the request was read */
    by_metrics_endpoint endpoint;
    bool head_only, http10, keep_alive, anthropic;
    int early_status;           /* refused when the head came; the body is read and dropped first */
    by_buf early_body;
    by_buf extra;               /* header lines for the answer, each with its CRLF */
    int status;                 /* sent; 0 = none yet */
    bool streams, chunked, done;
    const by_job_ops *ops;      /* NULL = no job */
    void *job;
};

struct by_conn {
    by_http *http;
    by_conn *prev, *next;       /* of by_http.conns */
    by_conn *next_listed;       /* of by_http.dirty or by_http.dead */
    by_watch *watch;
    int fd;
    by_buf in;                  /* read, not parsed yet */
    size_t in_at;
    by_buf out;
    size_t out_at;
    size_t chunk_at;            /* of the open chunk's size in out; SIZE_MAX = none is open */
    by_http_parser parser;
    by_exchange *ex;
    int64_t since_ms;           /* begin of the present wait for the client's bytes */
    int64_t window_ms;          /* begin of the time in which it must take window_left bytes */
    int64_t spoke_ms;           /* something was written */
    int64_t window_left;
    bool eof;        /* the client has closed its side */
    bool closing;    /* no further request: end when the output is sent */
    bool stalled;    /* requests wait in `in` until output has gone */
    bool lingering;  /* our side is closed; reading until the client's is, so that it gets the last bytes */
    bool dead, dirty, slow, in_request, looping;
};

struct by_http {
    by_http_opts opts;
    by_loop *loop;
    int listen_fd, port;
    by_watch *listen_watch;
    by_timer *tick, *accept_again;
    by_conn *conns, *dirty, *dead;
    int32_t n_conns;
    struct by_job *jobs;
    struct by_task *tasks;
    by_tok_scratch *tok_scratch; /* of the loop's thread */
    int32_t n_jobs;             /* answers of the model under way, with or without a client */
    uint64_t n_body_bytes;      /* of all request bodies held now: read, being converted, in calls */
    by_metrics *metrics;
    uint8_t (*keys)[32];
    by_rng rng;
    char *scratch;              /* what one read takes */
    char date[40];
    int64_t date_s, drain_until_ms, started_s;
    by_service *service;        /* NULL until ready */
    by_worker *worker;
    by_stored *stored;
    by_files *files;
    pthread_t loader;
    bool loading, load_failed, draining, stop_now;
    by_post loaded;
    by_service *loaded_service;
    int64_t load_ns, first_ns;
    by_status load_status;
    by_err load_err;
};

enum { BY_HTTP_TICK_MS = 250 };

/* ---- http_conn.c ---- */

/* Takes over an accepted, non-blocking descriptor. */
void by_conn_open(by_http *h, int fd);
/* Ends a connection now; its exchange is abandoned. It is freed at the end of the round. */
void by_conn_close(by_conn *c);
/* Limits of time; once per tick. */
void by_conn_tick(by_conn *c, int64_t now_ms);
/* Hands the body over; it counts as held no longer. */
by_buf by_exchange_take_body(by_exchange *ex);
/* Sends what can be sent at the end of the round. */
void by_conn_mark(by_conn *c);
/* The exchange of c is done: the next request, or the end. For answers that did not come from within the handler. */
void by_conn_next(by_conn *c);
/* End of a round: sends, frees. */
void by_conns_flush(by_http *h);
static inline size_t by_conn_unsent(const by_conn *c) { return c->out.len - c->out_at; }

/* ---- http_reply.c ---- */

/* The whole answer. type NULL = no body. */
void by_reply(by_exchange *ex, int status, const char *type, by_str body);
void by_reply_json(by_exchange *ex, int status, by_str body);
/* An answer in pieces: begin, any number of appends to by_reply_out, end. */
void by_reply_begin(by_exchange *ex, const char *type);
by_buf *by_reply_out(by_exchange *ex);
void by_reply_end(by_exchange *ex);
/* Adds "name: value" to the answer that will come. */
void by_reply_header(by_exchange *ex, const char *name, const char *value);
/* An error in the words of the API that was called. code NULL = by status. */
void by_reply_error(by_exchange *ex, int status, const char *code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same about a field of the body or the query ("limit"); code NULL: invalid_value. */
void by_reply_refusal(by_exchange *ex, int status, const char *code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same error's JSON, for streams. */
void by_error_write(by_buf *out, bool anthropic, int status, const char *type, const char *code, const char *param, by_str message,
                    by_str request_id);
/* Gives the open chunk its size. */
void by_conn_end_chunk(by_conn *c);

/* ---- http_route.c ---- */

struct by_route {
    const char *method, *path; /* a path that ends with "/" takes one more part, "ID"; more behind it stands in `tail` */
    const char *tail;          /* with a "/" at its end: one more part, by_exchange.sub */
    void (*handle)(by_exchange *ex, by_str id);
    bool open;                 /* needs no key */
    bool early;                /* answers before the model is ready */
};

/* Looks at the head: route, key, limits. The exchange is refused when early_status is set afterwards. */
void by_route_begin(by_exchange *ex);
/* Calls the handler: the request is complete. */
void by_route_run(by_exchange *ex);
bool by_keys_set(by_http *h, const by_http_opts *opts);

/* The table of routes, [*n]; constant. */
const by_route *by_routes(int *n);

/* Value of a query field, in the exchange's arena; empty when it is not there. False: malformed, or out of memory. */
bool by_query_text(by_exchange *ex, const char *name, by_str *out);

/* ---- handlers ---- */

/* Each answers ex at once or leaves a job in it; id is the variable part of the path. */
void by_handle_chat(by_exchange *ex, by_str id);
void by_handle_completions(by_exchange *ex, by_str id);
void by_handle_responses(by_exchange *ex, by_str id);
void by_handle_input_tokens(by_exchange *ex, by_str id);
void by_handle_response_get(by_exchange *ex, by_str id);
void by_handle_response_delete(by_exchange *ex, by_str id);
void by_handle_response_cancel(by_exchange *ex, by_str id);
void by_handle_response_items(by_exchange *ex, by_str id);
void by_handle_conversations(by_exchange *ex, by_str id);
void by_handle_conversation_get(by_exchange *ex, by_str id);
void by_handle_conversation_delete(by_exchange *ex, by_str id);
void by_handle_conversation_items(by_exchange *ex, by_str id);
void by_handle_conversation_update(by_exchange *ex, by_str id);
void by_handle_conversation_add(by_exchange *ex, by_str id);
void by_handle_conversation_item(by_exchange *ex, by_str id);
void by_handle_conversation_item_delete(by_exchange *ex, by_str id);
void by_handle_upload(by_exchange *ex, by_str id);
void by_handle_files(by_exchange *ex, by_str id);
void by_handle_file(by_exchange *ex, by_str id);
void by_handle_file_content(by_exchange *ex, by_str id);
void by_handle_file_delete(by_exchange *ex, by_str id);
void by_handle_batch_create(by_exchange *ex, by_str id);
void by_handle_batches(by_exchange *ex, by_str id);
void by_handle_batch(by_exchange *ex, by_str id);
void by_handle_batch_cancel(by_exchange *ex, by_str id);
void by_handle_messages(by_exchange *ex, by_str id);
void by_handle_count_tokens(by_exchange *ex, by_str id);
void by_handle_tokenize(by_exchange *ex, by_str id);
void by_handle_detokenize(by_exchange *ex, by_str id);
void by_handle_models(by_exchange *ex, by_str id);
void by_handle_model(by_exchange *ex, by_str id);
void by_handle_health(by_exchange *ex, by_str id);
void by_handle_ready(by_exchange *ex, by_str id);
void by_handle_version(by_exchange *ex, by_str id);
void by_handle_metrics(by_exchange *ex, by_str id);
void by_handle_openapi(by_exchange *ex, by_str id);
void by_handle_page(by_exchange *ex, by_str id);

/* ---- http_worker.c ---- */

/* One thread for work that would hold up the loop. */
typedef struct by_work {
    struct by_work *next;
    void (*fn)(void *arg, by_tok_scratch *scratch);
    void *arg;
} by_work;

/* The service must outlive the worker. Errors: BY_ENOMEM. */
by_status by_worker_create(by_worker **out, const by_tok *tok, by_err *err);
/* Waits for what runs; what is queued is not begun, and is its owners' to free. NULL is allowed. */
void by_worker_destroy(by_worker *w);
void by_worker_add(by_worker *w, by_work *work);

/* ---- http_task.c ---- */

/* Tells the tasks that nobody waits for them any more; the worker is gone. */
void by_tasks_abort(by_http *h);

/* ---- http_stored.c ---- */

/* Stored responses and conversations. Errors: BY_ENOMEM. */
by_status by_stored_create(by_stored **out, by_http *h, by_err *err);
void by_stored_destroy(by_stored *s); /* jobs have ended; NULL is allowed */

/* ---- http_load.c ---- */

/* Starts loading; news come through h->loaded. */
by_status by_load_start(by_http *h, by_err *err);
void by_load_join(by_http *h);

#endif
