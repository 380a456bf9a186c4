/* http_server.h - the server: the APIs of src/api over HTTP/1.1, from opening the port to the end of the last answer.
 *
 *   by_http_open     opens the port; from now on clients are answered, with 503 as long as there is no model
 *   by_http_run      loads the model on a thread of its own, serves until SIGTERM or SIGINT, lets running answers end
 *   by_http_close
 *
 * One thread, the loop's, owns everything here. Engine threads only wake it (by_call_opts.notify), large request bodies are
 * converted on one helper thread, and the model is loaded on another. A client that leaves, reads slowly or sends nonsense
 * costs bounded memory and time, and touches no other client. docs/server.md describes what clients see. */
#ifndef BY_HTTP_SERVER_H
#define BY_HTTP_SERVER_H

#include "http/http_parse.h"
#include "service/service.h"

typedef struct by_http by_http;

typedef struct by_http_opts {
    const char *host;          /* a name or an address; default 127.0.0.1 */
    int port;                  /* 0 = any free one */
    const char *version;       /* of the program */
    const char *const *keys;   /* [n_keys] API keys, copied as digests; none: no key is needed */
    int n_keys;
    const char *const *origins; /* [n_origins] allowed by CORS; "*" = all */
    int n_origins;
    uint64_t body_bytes;       /* most of one request body */
    int32_t max_connections;
    int64_t idle_ms;           /* a connection without a request */
    int64_t request_ms;        /* from a request's first byte to its head's last */
    int64_t body_ms;           /* from the head to the body's last byte */
    int64_t write_ms;          /* a client that takes less than 1 KiB in so long, and has something to take, is left */
    int64_t ping_ms;           /* silence of a stream after which a comment is sent; 0 = never */
    int64_t answer_ms;         /* most time of one answer; 0 = any */
    int64_t drain_ms;          /* most time that running answers get after the first signal */
    size_t output_bytes;       /* unread output of one connection from which on its answer waits */
    size_t store_bytes;        /* most memory of stored responses, and of batch files; 0 = none are stored */
    bool each_token;           /* one event per token, where the text allows it */
    bool vllm_names;           /* /metrics: also under the names of vLLM */
    bool catch_signals;        /* SIGTERM and SIGINT begin the end; the second one makes it at once */
    /* Opens the model; on a thread of its own. The server closes what it gives. */
    by_status (*load)(void *arg, by_service **out, by_err *err);
    void *load_arg;
    /* Told on the loop: the first token is possible, and how long loading and it took; the end has begun; a sign of life, every
     * half second. May be NULL. */
    void (*on_ready)(void *arg, int64_t load_ns, int64_t first_ns);
    void (*on_stopping)(void *arg);
    void (*on_alive)(void *arg);
    void *hook_arg;
} by_http_opts;

/* 127.0.0.1:8000, 32 MiB bodies, 10,000 connections and the limits of docs/server.md. */
by_http_opts by_http_opts_default(void);

/* Opens the port. *out is set only on success; texts of opts must live as long as it. Errors: BY_EIO (the address cannot be
 * had), BY_EINVAL (no such host), BY_ENOMEM. */
by_status by_http_open(by_http **out, const by_http_opts *opts, by_err *err);
int by_http_port(const by_http *h);

/* Serves. Errors: those of opts.load; BY_EIO. BY_OK after an orderly end. */
by_status by_http_run(by_http *h, by_err *err);

/* What a signal does; from the loop's thread or a signal handler's hook. */
void by_http_stop(by_http *h);

/* NULL is allowed. */
void by_http_close(by_http *h);

#endif
