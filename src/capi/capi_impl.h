/* capi_impl.h - what the files of the C API share. Not for other modules. */
#ifndef BY_CAPI_CAPI_IMPL_H
#define BY_CAPI_CAPI_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/rng.h"
#include "bathyc/engine.h"
#include "engine/engine.h"

typedef struct by_capi_choice {
    by_tok_stream text;
    int32_t n_output;
} by_capi_choice;

/* A request on its way to bathyc_step. */
typedef struct by_capi_job by_capi_job;
struct by_capi_job {
    bathyc_engine *engine;
    uint64_t id;
    by_request *request;
    by_capi_choice *choices; /* [n] */
    int32_t n, n_open;
    by_capi_job *next;       /* these four under the engine's lock */
    bool ready;              /* events may have come */
    int32_t users;           /* threads that use `request` outside of bathyc_step */
    uint64_t turn;           /* when it was drained last */
};

struct bathyc_engine {
    by_engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t news;
    by_capi_job *jobs;
    uint64_t n_ids, n_turns;
    _Atomic uint64_t seeds;
    by_buf texts;            /* of the outputs given last */
    bathyc_alternative *tops;
    size_t n_tops, cap_tops;
};

/* Fills *out (may be NULL) and returns the public code of a status. */
int by_capi_fail(bathyc_error *out, by_status status, const char *message);

/* What the engine's options of a request point to. */
typedef struct by_capi_input {
    by_tok_ids ids; /* of a prompt that came as text */
    by_request_grammar grammar;
    by_arena arena;
} by_capi_input;
/* The engine's options of a request. The caller deinits `in` when q has been submitted, also after an error. */
by_status by_capi_options(bathyc_engine *e, const bathyc_request *r, by_capi_input *in, by_request_opts *q, by_err *err);
void by_capi_input_deinit(by_capi_input *in);

#endif
