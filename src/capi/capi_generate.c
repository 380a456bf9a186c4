/* capi_generate.c - bathyc_generate: a list of requests to their ends, results in order. */
#include <string.h>

#include "base/alloc.h"
#include "capi/capi_impl.h"

enum { QUEUE_MAX = 1 << 20 };

void bathyc_result_free(bathyc_result *r) {
    by_free(r->tokens);
    by_free(r->logprobs);
    by_free(r->text);
    *r = (bathyc_result){0};
}

/* Hands one over. Its queue holds all of its events, since results are read in order and a full queue would hold it up. */
static by_status submit(bathyc_engine *e, const bathyc_request *r, by_request **out, by_err *err) {
    by_capi_input in;
    by_request_opts q;
    *out = NULL;
    by_status status = by_capi_options(e, r, &in, &q, err);
    if (status == BY_OK) {
        int64_t most = ((int64_t)(q.max_tokens > 0 ? q.max_tokens : 0) + 4) * (q.n > 0 ? q.n : 1);
        if (most > by_engine_max_context(e->engine) * 64) most = by_engine_max_context(e->engine) * 64;
        q.queue_cap = most > QUEUE_MAX ? QUEUE_MAX : (int32_t)most;
        status = by_engine_submit(e->engine, &q, out, err);
    }
    by_capi_input_deinit(&in);
    return status;
}

typedef struct {
    bathyc_result *out;
    size_t cap;
} collector;

static by_status add_token(collector *c, const by_event *ev, by_err *err) {
    bathyc_result *r = c->out;
    if (r->n_tokens == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 32;
        int32_t *tokens = by_realloc(BY_MEM_REQUEST, r->tokens, cap * sizeof *tokens);
        if (tokens) r->tokens = tokens;
        float *logprobs = by_realloc(BY_MEM_REQUEST, r->logprobs, cap * sizeof *logprobs);
        if (logprobs) r->logprobs = logprobs;
        if (!tokens || !logprobs) return BY_FAIL(err, BY_ENOMEM, "out of memory for a result");
        c->cap = cap;
    }
    r->tokens[r->n_tokens] = ev->token;
    r->logprobs[r->n_tokens++] = ev->logprob;
    return BY_OK;
}

static by_status read_all(bathyc_engine *e, by_request *request, bathyc_result *r, by_err *err) {
    static const bathyc_finish finishes[] = {BATHYC_RUNNING, BATHYC_STOP, BATHYC_LENGTH, BATHYC_CANCELLED, BATHYC_ERROR};
    collector c = {.out = r};
    by_event ev;
    while (by_request_next(request, &ev, -1) == BY_OK) {
        if (ev.choice != 0) continue;
        if (ev.token >= 0) BY_TRY(add_token(&c, &ev, err));
        r->finish = finishes[ev.finish];
    }
    by_request_info info = by_request_info_get(request);
    r->n_prompt = info.n_prompt;
    r->n_cached = info.n_cached;
    if (r->finish == BATHYC_ERROR) {
        by_status status = by_request_error(request, err);
        return status < 0 ? status : BY_FAIL(err, BY_EINTERNAL, "the engine failed without a reason");
    }
    by_buf b = {0};
    by_status status = by_tok_decode(by_engine_model(e->engine)->tok, r->tokens, r->n_tokens, true, &b, err);
    r->text_bytes = b.len;
    by_buf_push_byte(&b, '\0');
    if (status == BY_OK) status = by_buf_check(&b, err);
    if (status == BY_OK) r->text = b.ptr;
    else by_buf_deinit(&b);
    return status;
}

int bathyc_generate(bathyc_engine *e, const bathyc_request *requests, size_t n, bathyc_result *results, bathyc_error *error) {
    by_request **handles = by_alloc_zero(BY_MEM_REQUEST, by_mul_size(n ? n : 1, sizeof *handles));
    if (!handles) return by_capi_fail(error, BY_ENOMEM, "out of memory for the requests");
    memset(results, 0, n * sizeof *results);
    int code = BATHYC_OK;
    size_t ahead = 0;
    for (size_t i = 0; i < n; i++) {
        by_err err;
        for (; ahead < n; ahead++) {
            by_status status = submit(e, &requests[ahead], &handles[ahead], &err);
            if (status == BY_EBUSY && ahead > i) break; /* the queue is full: read one first */
            if (status < 0) results[ahead].code = by_capi_fail(error, status, err.msg);
        }
        if (handles[i]) {
            by_status status = read_all(e, handles[i], &results[i], &err);
            if (status < 0) results[i].code = by_capi_fail(error, status, err.msg);
            by_request_release(handles[i]);
        }
        if (code == BATHYC_OK) code = results[i].code;
    }
    by_free(handles);
    return code;
}
