/* http_task.h - what a request's body asks for, worked out beside the loop when the body is long.
 *
 *   by_task_start -> work (worker, or at once for a short body) -> done (loop: answers, or starts a job)
 *
 * A task owns its body. Its work touches neither its exchange, whose client may leave, nor anything of by_http but the options and the
 * service. Everything else is the loop's thread. */
#ifndef BY_HTTP_TASK_H
#define BY_HTTP_TASK_H

#include <stdatomic.h>

#include "http/http_impl.h"

enum { BY_TASK_INLINE_BYTES = 16384 }; /* longer bodies are worked on beside the loop: about a millisecond */

typedef struct by_task by_task;

typedef struct by_task_kind {
    void (*work)(by_task *t, by_tok_scratch *scratch);
    void (*done)(by_task *t, by_exchange *ex); /* status is 200; NULL: `out` is the answer */
    void (*drop)(void *own);                   /* frees what own holds; NULL = nothing */
    size_t own_bytes;
} by_task_kind;

struct by_task {
    by_post post;
    by_work by_worker;
    by_task *prev, *next; /* of by_http.tasks */
    const by_task_kind *kind;
    by_http *http;
    by_exchange *ex;      /* NULL: nobody waits for it. Loop's thread */
    atomic_bool left;     /* the same for the worker, which then need not begin */
    by_str id;            /* of the path; lives as long as ex */
    void *own;            /* [own_bytes], zeroed, in the arena */
    by_arena arena;
    by_rng rng;           /* its own: the server's is the loop's */
    by_buf body;
    size_t counted_bytes; /* in by_http.n_body_bytes */
    by_buf out;           /* the answer's JSON, or the message of a refusal */
    int status;           /* 200 unless refused */
    const char *code;
    char field[128];      /* that is at fault; empty = none */
};

/* Takes the body over and answers ex now or later. id: of the path, in the exchange's arena. */
void by_task_start(by_exchange *ex, const by_task_kind *kind, by_str id);
/* From within work. code NULL: by status, or "invalid_value" where there is a field; field "": none. */
void by_task_refuse(by_task *t, int status, const char *code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void by_task_no_memory(by_task *t);
/* The body as an object, in the task's arena; false: refused. */
bool by_task_parse(by_task *t, by_json *out);

/* Answers with the number of prompt tokens of the Responses request that is the body of ex (http_tokens.c). */
void by_count_response_tokens(by_exchange *ex);

#endif
