/* capi_recipe_stream.c - include/bathyc/recipe.h: the answer to a request as events and as the whole object. */
#include <string.h>

#include "api/api_stream.h"
#include "base/alloc.h"
#include "capi_recipe/capi_recipe_impl.h"

enum { TOP_MAX = 20 }; /* what the APIs allow */

struct bathyc_recipe_stream {
    by_api_stream *stream;
    by_api_converted converted; /* the request's, with the prompt of this answer */
    bathyc_event_fn *on_event;
    void *ctx;
};

bathyc_recipe_stream_options bathyc_recipe_stream_options_default(void) {
    return (bathyc_recipe_stream_options){.id = "response", .keep_whole = 1};
}

static void on_event(void *ctx, const char *name, by_str json) {
    const bathyc_recipe_stream *s = ctx;
    s->on_event(s->ctx, name, json.ptr, json.len);
}

static by_status check(const bathyc_recipe_request *r, const bathyc_recipe_stream_options *o, by_err *err) {
    if (!o->id) return BY_FAIL(err, BY_EINVAL, "id: missing");
    if (o->usage_place < BATHYC_USAGE_LAST || o->usage_place > BATHYC_USAGE_CONTINUOUS)
        return BY_FAIL(err, BY_EINVAL, "usage_place: %d is none of them", (int)o->usage_place);
    if (o->prompt >= r->info.n_prompts) return BY_FAIL(err, BY_EINVAL, "prompt %zu: the request has %zu", o->prompt, r->info.n_prompts);
    return BY_OK;
}

static by_status create(bathyc_recipe_stream *s, const bathyc_recipe_request *r, const bathyc_recipe_stream_options *o, by_err *err) {
    BY_TRY(check(r, o, err));
    bool completions = r->converted.api == BY_API_COMPLETIONS;
    bool server = completions || r->options.profile == BY_API_SERVER; /* no original has raw completions */
    s->converted = r->converted;
    s->on_event = o->on_event;
    s->ctx = o->ctx;
    if (completions) s->converted.prompt = r->converted.prompts[o->prompt].text;
    by_parser_opts parser = r->converted.parsing;
    parser.eager = server;
    by_api_stream_opts opts = {.request = &s->converted,
                               .id = by_str_z(o->id),
                               .created = o->created,
                               .parser = &parser,
                               .answer = {.tok = by_capi_recipe_tok(o->tok), .scratch = by_capi_recipe_scratch(o->scratch),
                                          .call_id_seed = o->call_id_seed, .server = server, .end_ids = o->end_ids,
                                          .n_end_ids = server ? o->n_end_ids : 0},
                               .usage_place = (by_api_usage_place)o->usage_place,
                               .choice = o->choice,
                               .on_event = o->on_event ? on_event : NULL,
                               .ctx = s,
                               .keep_whole = o->keep_whole};
    return by_api_stream_create(&s->stream, &opts, err);
}

int bathyc_recipe_stream_create(bathyc_recipe_stream **out, const bathyc_recipe_request *r,
                                const bathyc_recipe_stream_options *options, bathyc_error *error) {
    by_err err = {0};
    bathyc_recipe_stream *s = by_alloc_zero(BY_MEM_REQUEST, sizeof *s);
    by_status status = s ? create(s, r, options, &err) : BY_FAIL(&err, BY_ENOMEM, "out of memory for an answer");
    if (status == BY_OK) *out = s;
    else by_free(s);
    return by_capi_recipe_result(error, status, &err);
}

void bathyc_recipe_stream_destroy(bathyc_recipe_stream *s) {
    if (!s) return;
    by_api_stream_destroy(s->stream);
    by_free(s);
}

/* ---- feeding ---- */

int bathyc_recipe_stream_ready(bathyc_recipe_stream *s, uint64_t prompt_tokens, uint64_t cached_tokens, bathyc_error *error) {
    by_err err = {0};
    by_status status = cached_tokens > prompt_tokens ? BY_FAIL(&err, BY_EINVAL, "cached_tokens: more than prompt_tokens")
                                                     : by_api_stream_ready(s->stream, prompt_tokens, cached_tokens, NULL, &err);
    return by_capi_recipe_result(error, status, &err);
}

int bathyc_recipe_stream_text(bathyc_recipe_stream *s, const char *text, size_t bytes, uint64_t n_tokens, bathyc_error *error) {
    by_err err = {0};
    return by_capi_recipe_result(error, by_api_stream_text(s->stream, by_str_of(text, bytes), n_tokens, &err), &err);
}

/* The log probabilities in the library's own structs; top [n * TOP_MAX]. */
static by_status copy_logprobs(by_logprob *to, by_top_logprob *top, const bathyc_logprob *from, size_t n, by_err *err) {
    for (size_t i = 0; i < n; i++, top += TOP_MAX) {
        if (from[i].n_top > TOP_MAX) return BY_FAIL(err, BY_EINVAL, "n_top: %zu, at most %d", from[i].n_top, TOP_MAX);
        for (size_t k = 0; k < from[i].n_top; k++) top[k] = (by_top_logprob){from[i].top[k].token, from[i].top[k].logprob};
        to[i] = (by_logprob){.logprob = from[i].logprob, .top = top, .n_top = from[i].n_top};
    }
    return BY_OK;
}

/* In one piece, since the parity profile makes one of a chunk; one id, the usual case, needs no memory. */
static by_status feed(bathyc_recipe_stream *s, const int32_t *ids, size_t n, const bathyc_logprob *logprobs, size_t n_logprobs,
                      by_err *err) {
    if (!logprobs || n_logprobs == 0) return by_api_stream_tokens(s->stream, ids, n, NULL, 0, err);
    if (n_logprobs != n) return BY_FAIL(err, BY_EINVAL, "n_logprobs: %zu for %zu ids", n_logprobs, n);
    by_top_logprob one_top[TOP_MAX], *top = n == 1 ? one_top : by_alloc(BY_MEM_REQUEST, by_mul_size(n, sizeof one_top));
    by_logprob one, *to = n == 1 ? &one : by_alloc(BY_MEM_REQUEST, by_mul_size(n, sizeof one));
    by_status status = top && to ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for log probabilities");
    if (status == BY_OK) status = copy_logprobs(to, top, logprobs, n, err);
    if (status == BY_OK) status = by_api_stream_tokens(s->stream, ids, n, to, n, err);
    if (n != 1) {
        by_free(top);
        by_free(to);
    }
    return status;
}

int bathyc_recipe_stream_tokens(bathyc_recipe_stream *s, const int32_t *ids, size_t n, const bathyc_logprob *logprobs,
                                size_t n_logprobs, bathyc_error *error) {
    by_err err = {0};
    return by_capi_recipe_result(error, feed(s, ids, n, logprobs, n_logprobs, &err), &err);
}

int bathyc_recipe_stream_finish(bathyc_recipe_stream *s, bathyc_reason reason, bathyc_error *error) {
    by_err err = {0};
    bool known = reason >= BATHYC_REASON_STOP && reason <= BATHYC_REASON_FILTER;
    by_status status = known ? by_api_stream_finish(s->stream, (by_answer_reason)reason, &err)
                             : BY_FAIL(&err, BY_EINVAL, "reason: %d is none of them", (int)reason);
    return by_capi_recipe_result(error, status, &err);
}

/* ---- results ---- */

int bathyc_recipe_stream_finished(const bathyc_recipe_stream *s) { return by_api_stream_finished(s->stream); }

int bathyc_recipe_stream_whole(bathyc_recipe_stream *s, char **json, size_t *json_bytes, bathyc_error *error) {
    by_err err = {0};
    by_buf out = {0};
    by_status status = by_api_stream_write_whole(s->stream, &out, &err);
    by_buf_z(&out);
    if (status == BY_OK) status = by_buf_check(&out, &err);
    if (status == BY_OK) {
        *json = out.ptr;
        *json_bytes = out.len;
    } else {
        by_buf_deinit(&out);
    }
    return by_capi_recipe_result(error, status, &err);
}

bathyc_recipe_usage bathyc_recipe_stream_usage(const bathyc_recipe_stream *s) {
    by_answer_usage u = by_api_stream_usage(s->stream);
    return (bathyc_recipe_usage){.prompt_tokens = u.prompt_tokens, .cached_tokens = u.cached_tokens,
                                 .completion_tokens = u.completion_tokens, .reasoning_tokens = u.reasoning_tokens};
}

const char *bathyc_recipe_done_data(bathyc_api api) { return by_api_done_data((by_api_kind)api); }
