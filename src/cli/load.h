/* load.h - the parts of `bathyc bench serve`: what to ask (load_prompts.c), asking many at once (load.c), figures
 * (load_report.c). One thread. Times are microseconds from the start of the run. */
#ifndef BY_CLI_LOAD_H
#define BY_CLI_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "json/json.h"

/* Why a request failed: id, name in the report. */
#define BY_LOAD_ERRORS(X)                                                                                              \
    X(NONE, "")                                                                                                        \
    X(CONNECT, "connect") /* no connection */                                                                          \
    X(CLOSED, "closed")   /* the connection ended inside a response, or was reset */                                   \
    X(TIMEOUT, "timeout")                                                                                              \
    X(PROTOCOL, "protocol")     /* not HTTP, not JSON, or not of the API's shape */                                    \
    X(REPORTED, "reported")     /* an error inside a stream that had begun */                                          \
    X(INCOMPLETE, "incomplete") /* a stream without a finish reason */                                                 \
    X(STATUS, "status")         /* counted under its status: "status_429" */                                           \
    X(INTERRUPTED, "interrupted")

typedef enum by_load_error {
#define BY_LOAD_ID(id, name) BY_LOAD_##id,
    BY_LOAD_ERRORS(BY_LOAD_ID) BY_LOAD_ERROR_N
#undef BY_LOAD_ID
} by_load_error;

typedef struct by_load_record {
    int64_t due_us, sent_us;   /* when the plan wanted it sent, and when it was */
    int64_t first_us, last_us; /* first and last token's event; 0 = none (or not streamed) */
    int64_t end_us;
    int32_t n_prompt, n_cached, n_output; /* as the server counts; without its counts n_output = events with text */
    int32_t n_events;                     /* that carried text */
    uint16_t status;                      /* HTTP */
    uint8_t error;                        /* by_load_error */
} by_load_record;

typedef struct by_load_opts {
    /* where */
    const char *host, *port, *path; /* path: of the endpoint */
    const char *api_key;            /* NULL = none */
    const char *const *headers;     /* [n_headers] "Name: value" */
    int n_headers;
    /* what */
    bool chat, stream, ignore_eos; /* chat: messages, else prompt */
    const char *model;
    const char *extra;                                     /* members to add to each body, '"a":1,"b":2', or NULL */
    const char *dataset;                                   /* JSON lines, or NULL = random words */
    int64_t input_len, output_len, prefix_len, n_prefixes; /* words, tokens, words */
    double range_ratio, temperature; /* lengths vary by +- ratio; temperature < 0 = the server's */
    uint64_t seed;
    /* when */
    int64_t n_requests;      /* most requests */
    double duration_s;       /* no new request after that; 0 = no limit */
    double rate, burstiness; /* a second; 0 = all at once. Burstiness 1 = Poisson, below more bursty, above more even */
    int64_t max_concurrency; /* 0 = no limit */
    double timeout_s;
    double pace; /* tokens a second of each answer, one event each, that the server makes by plan; 0 = no plan known */
    bool progress; /* a line on stderr */
} by_load_opts;

typedef struct by_load_result {
    by_load_record *records;
    int64_t n_records;
    by_buf gaps;       /* uint32_t us between two events of an answer that carried text */
    by_buf late;       /* with opts.pace: uint32_t us by which an event with text came after its plan */
    double duration_s; /* from the first send to the last end */
    bool interrupted;
    char first_error[BY_ERR_MSG_MAX]; /* message of the first failure */
} by_load_result;

enum { BY_LOAD_CONNECTIONS_MAX = 16384, BY_LOAD_REQUESTS_MAX = 100000000 };

/* Runs the load. SIGINT ends it early (result->interrupted). Errors: BY_EINVAL (address), BY_EIO (the dataset, system
 * calls), BY_EFORMAT (a dataset line), BY_ENOMEM. The caller deinits the result in any case. */
by_status by_load_run(by_load_result *result, const by_load_opts *opts, by_err *err);
void by_load_result_deinit(by_load_result *r);

/* One GET; appends the body. Errors: as by_load_run, BY_EIO with the HTTP status. */
by_status by_load_get(by_buf *body, const by_load_opts *opts, const char *path, by_err *err);

/* ---- what to ask ---- */

typedef struct by_load_prompts {
    const by_load_opts *opts;
    by_buf file;   /* of the dataset */
    by_str *lines; /* its lines, in file */
    size_t n_lines;
} by_load_prompts;

/* Reads the dataset, if there is one. opts outlives it. Errors: those of by_file_read, BY_EFORMAT, BY_ENOMEM. */
by_status by_load_prompts_open(by_load_prompts *p, const by_load_opts *opts, by_err *err);
void by_load_prompts_close(by_load_prompts *p);
/* Appends the JSON body of request i; the same i gives the same body. Errors: BY_EFORMAT (its dataset line), BY_ENOMEM.
 */
by_status by_load_prompts_write(by_load_prompts *p, int64_t i, by_buf *out, by_err *err);

/* ---- figures ---- */

typedef struct by_load_goal {
    double ttft_ms, tpot_ms, e2el_ms; /* 0 = no such goal */
} by_load_goal;

typedef struct by_load_report_opts {
    const double *percentiles; /* [n_percentiles] 0..100 */
    int n_percentiles;
    by_load_goal goal;
    bool detailed; /* one entry per request */
} by_load_report_opts;

/* Reads "ttft:200,tpot:50,e2el:1000". Errors: BY_EINVAL. */
by_status by_load_goal_parse(by_load_goal *goal, const char *text, by_err *err);

/* The report as a JSON object, and as lines for people. Errors: BY_ENOMEM. */
by_status by_load_report_json(by_buf *out, by_load_result *r, const by_load_opts *load, const by_load_report_opts *opts,
                              by_err *err);
by_status by_load_report_text(by_buf *out, by_load_result *r, const by_load_opts *load, const by_load_report_opts *opts,
                              by_err *err);

#endif
