/* service_impl.h - what the files of the service share. Not for other modules. */
#ifndef BY_SERVICE_SERVICE_IMPL_H
#define BY_SERVICE_SERVICE_IMPL_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/rng.h"
#include "service/null_source.h"
#include "service/service.h"

struct by_service {
    by_engine *engine; /* NULL with the null backend, which has these three instead: */
    by_null *null;
    by_tok *null_tok;
    int64_t null_context;
    by_api_options api;
    by_api_model_name *models;
    by_arena arena;
    _Atomic uint64_t draws;
};

/* A generator of its own for one call. */
by_rng by_service_rng(by_service *s);

/* ---- where tokens come from: the engine, or the null backend ---- */

static inline by_status by_source_submit(by_service *s, const by_request_opts *o, by_request **out, by_err *err) {
    if (!s->null) return by_engine_submit(s->engine, o, out, err);
    by_null_request *r;
    by_status status = by_null_submit(s->null, o, &r, err);
    *out = (by_request *)r;
    return status;
}
static inline by_status by_source_next(by_service *s, by_request *r, by_event *ev, int64_t timeout_ms) {
    return s->null ? by_null_next((by_null_request *)r, ev, timeout_ms) : by_request_next(r, ev, timeout_ms);
}
static inline void by_source_abort(by_service *s, by_request *r, int32_t choice, bool stop) {
    if (s->null) by_null_abort((by_null_request *)r, choice, stop);
    else by_request_abort(r, choice, stop);
}
static inline void by_source_release(by_service *s, by_request *r) {
    if (s->null) by_null_release((by_null_request *)r);
    else by_request_release(r);
}
static inline by_request_info by_source_info(by_service *s, by_request *r) {
    return s->null ? by_null_info((by_null_request *)r) : by_request_info_get(r);
}
static inline by_status by_source_error(by_service *s, by_request *r, by_err *err) {
    return s->null ? BY_FAIL(err, BY_EINTERNAL, "the null backend does not fail") : by_request_error(r, err);
}
/* The null backend knows none: NULL. */
static inline const float *by_source_prompt_logprobs(by_service *s, by_request *r, const by_sample_top **tops) {
    int32_t n;
    *tops = s->null ? NULL : by_request_prompt_tops(r);
    return s->null ? NULL : by_request_prompt_logprobs(r, &n);
}
static inline const int32_t *by_source_prompt_ranks(by_service *s, by_request *r) { return s->null ? NULL : by_request_prompt_ranks(r); }
/* The id that ends an answer. */
int32_t by_service_eos(const by_service *s);

#endif
