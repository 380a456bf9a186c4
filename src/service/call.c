/* call.c - one request body: conversion, prompts, engine requests, and the way of the tokens into the API's streams. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "json/json_write.h"
#include "recipe/logprob_json.h"
#include "recipe/prompt.h"
#include "service/service.h"
#include "service/service_grammar.h"
#include "service/service_impl.h"

enum {
    TOP_MAX = 20,             /* alternatives that the APIs allow */
    SCORED_TOKENS_MAX = 32768 /* of a prompt with echo and logprobs: each takes 2 KiB and more on its way into the answer */
};

/* One prompt of a call. */
typedef struct {
    by_api_converted *converted; /* the call's, or for further prompts a copy with another prompt */
    int32_t *ids;
    size_t n_ids;
    uint32_t max_tokens;
    by_request *request;    /* NULL: not submitted yet, or done */
    by_request_info info;   /* once it is done */
    by_api_stream **streams; /* [n], part of the call's */
    uint32_t n_open;        /* choices without an end */
    bool ready;             /* the counts were told */
} lane;

struct by_call {
    by_service *service;
    by_call_opts opts;
    by_arena arena;
    by_api_converted converted;
    by_sample_params sampling;
    lane *lanes;
    by_api_stream **streams; /* [n_lanes * n] */
    uint32_t n_lanes, n_submitted, n_done, n;
    by_request_grammar grammar; /* of every prompt; its strings live in the arena */
    bool has_grammar, has_problem;
    by_call_problem problem;
};

/* ---- problems ---- */

static by_status fail(by_call *c, by_status status, by_call_problem p, by_str param, by_str message) {
    if (c->has_problem) return status;
    c->has_problem = true;
    c->problem = p;
    snprintf(c->problem.param, sizeof c->problem.param, "%.*s", BY_STR_ARG(by_str_take(param, sizeof c->problem.param - 1)));
    by_err cut; /* cuts between characters */
    by_err_set(&cut, status, __FILE__, __LINE__, "%.*s", (int)(message.len < BY_ERR_MSG_MAX ? message.len : BY_ERR_MSG_MAX), message.ptr);
    memcpy(c->problem.message, cut.msg, sizeof cut.msg);
    return status;
}

static by_status fail_request(by_call *c, const by_api_error *e) {
    bool context = strcmp(e->code, "context_length_exceeded") == 0;
    by_call_problem p = {.http_status = e->http_status ? e->http_status : 400, .type = "invalid_request_error", .code = e->code};
    return fail(c, context ? BY_ECONTEXT : BY_EINVAL, p, e->param, e->message);
}

by_call_problem by_call_problem_of(by_status status, const by_err *err) {
    static const struct {
        by_status status;
        int http;
        const char *type, *code;
    } table[] = {
        {BY_EINVAL, 400, "invalid_request_error", "invalid_request_error"},
        {BY_EUNSUPPORTED, 400, "invalid_request_error", "unsupported"},
        {BY_EGRAMMAR, 400, "invalid_request_error", "grammar_error"},
        {BY_ECONTEXT, 400, "invalid_request_error", "context_length_exceeded"},
        {BY_EBUSY, 429, "rate_limit_error", "queue_full"},
        {BY_ETIMEOUT, 504, "server_error", "deadline_exceeded"},
        {BY_ECANCELLED, 503, "server_error", "cancelled"},
        {BY_ENOMEM, 503, "server_error", "out_of_memory"},
    };
    by_call_problem p = {.http_status = 500, .type = "server_error", .code = "engine_error"};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status) p = (by_call_problem){.http_status = table[i].http, .type = table[i].type, .code = table[i].code};
    if (status == BY_EINVAL && err->field) p.code = "invalid_value";
    if (err->field) snprintf(p.param, sizeof p.param, "%s", err->field);
    memcpy(p.message, err->msg, sizeof p.message);
    return p;
}

/* A failure below the API: the request's fault where the status says so. */
static by_status fail_status(by_call *c, by_status status, const by_err *err) {
    by_call_problem p = by_call_problem_of(status, err);
    static const char *const prompts[] = {"messages", "input", "messages", "prompt"}; /* by by_api_kind */
    const by_api_grammar *g = &c->converted.inference.grammar;
    if (status == BY_EGRAMMAR && g->kind) snprintf(p.param, sizeof p.param, "%s", g->param ? g->param : g->field);
    else if (status == BY_ECONTEXT) snprintf(p.param, sizeof p.param, "%s", prompts[c->opts.api]);
    return fail(c, status, p, by_str_z(p.param), by_str_z(p.message));
}

void by_call_problem_write(by_buf *out, const by_call_problem *p) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "error");
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "message");
    by_json_out_z(&o, p->message);
    by_json_out_key(&o, "type");
    by_json_out_z(&o, p->type);
    by_json_out_key(&o, "param");
    by_json_out_z(&o, p->param[0] ? p->param : NULL);
    by_json_out_key(&o, "code");
    by_json_out_z(&o, p->code);
    by_json_out_object_end(&o);
    by_json_out_object_end(&o);
}

static by_status no_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for a request"); }

/* ---- prompts ---- */

/* Text for the echo of a prompt that came as ids. */
static by_status text_of_ids(by_call *c, const lane *l, by_str *text, by_err *err) {
    by_buf b = {0};
    by_status status = by_tok_decode(by_service_tok(c->service), l->ids, l->n_ids, false, &b, err);
    *text = status == BY_OK ? by_arena_dup(&c->arena, by_buf_str(&b)) : (by_str){0};
    by_buf_deinit(&b);
    return status == BY_OK && !text->ptr ? no_memory(err) : status;
}

static by_status keep_ids(by_call *c, lane *l, const int32_t *ids, size_t n, by_err *err) {
    if (n > INT32_MAX) return BY_FAIL(err, BY_ECONTEXT, "the prompt has %zu tokens", n);
    l->ids = by_arena_alloc(&c->arena, by_mul_size(n, sizeof *ids));
    if (!l->ids) return no_memory(err);
    if (n) memcpy(l->ids, ids, n * sizeof *ids);
    l->n_ids = n;
    return BY_OK;
}

static by_status encode(by_call *c, lane *l, const by_recipe_prompt *p, by_err *err) {
    if (p->n_images)
        return BY_FAIL_AT(err, BY_EUNSUPPORTED, c->opts.api == BY_API_RESPONSES ? "input" : "messages", "this build has no image input");
    by_tok_ids ids = {0};
    by_status status = by_recipe_encode(&ids, p, by_service_tok(c->service), c->opts.scratch, err);
    if (status == BY_OK) status = keep_ids(c, l, ids.ids, ids.n, err);
    by_tok_ids_deinit(&ids);
    return status;
}

static by_status make_prompt(by_call *c, uint32_t i, by_recipe_prompt *scratch, by_err *err) {
    lane *l = &c->lanes[i];
    l->converted = &c->converted;
    if (c->converted.api != BY_API_COMPLETIONS) {
        BY_TRY(by_recipe_render(scratch, &c->converted.conversation, c->converted.version, NULL, err));
        return encode(c, l, scratch, err);
    }
    const by_api_prompt *p = &c->converted.prompts[i];
    if (i > 0) {
        l->converted = by_arena_alloc(&c->arena, sizeof *l->converted);
        if (!l->converted) return no_memory(err);
        *l->converted = c->converted;
        l->converted->prompt = p->text;
    }
    if (p->n_ids) { /* as they are: nothing is put in front. Ids are below 2^31 */
        BY_TRY(keep_ids(c, l, (const int32_t *)p->ids, p->n_ids, err));
        return l->converted->echo_prompt ? text_of_ids(c, l, &l->converted->prompt, err) : BY_OK;
    }
    BY_TRY(by_recipe_render_completion(scratch, p->text, c->converted.has_suffix ? &c->converted.suffix : NULL, NULL, err));
    return encode(c, l, scratch, err);
}

static bool scores_prompt(const by_call *c) { return c->converted.echo_prompt && c->converted.inference.logprobs; }

static by_status resolve(by_call *c, lane *l, by_err *err) {
    by_api_error error = {0};
    const by_api_inference *inf = &c->converted.inference;
    if (inf->has_prompt_logprobs && l->n_ids > SCORED_TOKENS_MAX)
        return BY_FAIL_AT(err, BY_EINVAL, "prompt_logprobs",
                          "prompt_logprobs: the prompt has %zu tokens; at most %d", l->n_ids, (int)SCORED_TOKENS_MAX);
    if (scores_prompt(c) && l->n_ids > SCORED_TOKENS_MAX)
        return BY_FAIL_AT(err, BY_EINVAL, "logprobs",
                          "echo with logprobs: the prompt has %zu tokens; at most %d", l->n_ids, (int)SCORED_TOKENS_MAX);
    by_status status = by_api_resolve_max_tokens(&l->max_tokens, &error, &c->arena, l->converted, &c->service->api, l->n_ids,
                                                 (uint64_t)by_service_max_context(c->service), err);
    return status == BY_EINVAL ? fail_request(c, &error) : status;
}

/* ---- settings ---- */

static by_status set_sampling(by_call *c, by_rng *rng, by_err *err) {
    const by_api_inference *inf = &c->converted.inference;
    by_sample_params *p = &c->sampling;
    *p = by_sample_params_default();
    p->law = (by_sample_law){.temperature = inf->temperature, .top_p = inf->top_p, .min_p = inf->min_p, .top_k = inf->top_k};
    p->seed = inf->has_seed ? inf->seed : by_rng_u64(rng);
    p->repetition_penalty = inf->repetition_penalty;
    p->frequency_penalty = inf->frequency_penalty;
    p->presence_penalty = inf->presence_penalty;
    p->eos_id = by_service_eos(c->service);
    p->min_tokens = (int32_t)inf->min_tokens;
    p->stop_ids = inf->stop_ids;
    p->n_stop_ids = (int32_t)inf->n_stop_ids;
    if (inf->n_logit_bias == 0) return BY_OK;
    by_sample_bias *bias = by_arena_alloc(&c->arena, inf->n_logit_bias * sizeof *bias);
    if (!bias) return no_memory(err);
    for (uint32_t i = 0; i < inf->n_logit_bias; i++)
        bias[i] = (by_sample_bias){.id = (int32_t)inf->logit_bias[i].token, .value = inf->logit_bias[i].value};
    p->bias = bias;
    p->n_bias = (int32_t)inf->n_logit_bias;
    return BY_OK;
}

static by_str make_id(by_call *c, by_rng *rng) {
    static const char *const prefixes[] = {"chatcmpl-", "resp_", "msg_", "cmpl-"};
    by_buf b = {0};
    by_buf_printf(&b, "%s%016llx%016llx", prefixes[c->converted.api], (unsigned long long)by_rng_u64(rng),
                  (unsigned long long)by_rng_u64(rng));
    by_str id = b.failed ? (by_str){0} : by_arena_dup(&c->arena, by_buf_str(&b));
    by_buf_deinit(&b);
    return id;
}

static by_status make_streams(by_call *c, by_rng *rng, by_err *err) {
    const by_api_inference *inf = &c->converted.inference;
    by_str id = c->opts.id.len ? by_arena_dup(&c->arena, c->opts.id) : make_id(c, rng);
    size_t n_ends = (inf->ignore_eos ? 0 : 1) + (size_t)inf->n_stop_ids;
    int32_t *ends = by_arena_alloc(&c->arena, n_ends * sizeof *ends);
    if (!id.ptr || !ends) return no_memory(err);
    for (uint32_t i = 0; i < inf->n_stop_ids; i++) ends[i] = inf->stop_ids[i];
    if (!inf->ignore_eos) ends[inf->n_stop_ids] = c->sampling.eos_id;
    by_api_stream_opts o = {.id = id,
                            .created = (int64_t)time(NULL),
                            .answer = {.tok = by_service_tok(c->service), .server = true, .each_token = c->opts.each_token,
                                       .end_ids = ends, .n_end_ids = n_ends},
                            .usage_place = c->opts.usage_place,
                            .on_event = c->opts.on_event,
                            .ctx = c->opts.ctx,
                            .keep_whole = c->opts.whole};
    by_parser_opts parser = c->converted.parsing;
    parser.eager = parser.stops_in_special = true;
    parser.include_stop = inf->include_stop;
    o.parser = &parser;
    for (uint32_t i = 0; i < c->n_lanes * c->n; i++) {
        o.request = c->lanes[i / c->n].converted;
        o.choice = i;
        o.answer.call_id_seed = by_rng_u64(rng);
        BY_TRY(by_api_stream_create(&c->streams[i], &o, err));
    }
    return BY_OK;
}

/* ---- submission ---- */

/* Alternatives of a prompt's tokens: for the echo, or for prompt_logprobs. */
static int32_t n_prompt_top(const by_call *c) {
    const by_api_inference *inf = &c->converted.inference;
    uint32_t echo = scores_prompt(c) && inf->has_top_logprobs ? inf->top_logprobs : 0;
    uint32_t own = inf->has_prompt_logprobs ? inf->prompt_logprobs : 0;
    return (int32_t)(echo > own ? echo : own);
}

static by_status submit(by_call *c, lane *l, by_err *err) {
    const by_api_inference *inf = &l->converted->inference;
    by_request_opts q = by_request_opts_default();
    q.tokens = l->ids;
    q.n_tokens = (int32_t)l->n_ids;
    q.max_tokens = l->max_tokens > INT32_MAX ? INT32_MAX : (int32_t)l->max_tokens;
    q.sampling = c->sampling;
    q.ignore_eos = inf->ignore_eos;
    q.n = (int32_t)inf->n;
    q.best_of = (int32_t)inf->best_of;
    q.n_top = inf->logprobs && inf->has_top_logprobs ? (int32_t)inf->top_logprobs : 0;
    q.prompt_logprobs = scores_prompt(c) || inf->has_prompt_logprobs;
    q.n_prompt_top = n_prompt_top(c);
    q.prompt_ranks = inf->has_prompt_logprobs;
    q.plain_logprobs = inf->logprobs || inf->has_prompt_logprobs || inf->best_of > inf->n;
    q.priority = c->opts.priority;
    q.deadline_ms = c->opts.deadline_ms;
    q.grammar = c->has_grammar ? &c->grammar : NULL;
    q.notify = c->opts.notify;
    q.arg = c->opts.arg;
    return by_source_submit(c->service, &q, &l->request, err);
}

/* Submits the prompts that are left; a full queue holds up only those behind the first. */
static by_status submit_more(by_call *c, by_err *err) {
    while (c->n_submitted < c->n_lanes) {
        by_status status = submit(c, &c->lanes[c->n_submitted], err);
        if (status == BY_EBUSY && c->n_submitted > 0) return BY_OK;
        BY_TRY(status);
        c->n_submitted++;
    }
    return BY_OK;
}

static by_status convert(by_call *c, by_err *err) {
    by_api_error error = {0};
    by_str body = by_arena_dup(&c->arena, c->opts.body);
    if (!body.ptr) return no_memory(err);
    by_status status = by_api_convert(&c->converted, &error, &c->arena, c->opts.api, body, &c->service->api, err);
    return status == BY_EINVAL ? fail_request(c, &error) : status;
}

static by_status set_echo(by_call *c, by_err *err) {
    by_api_echo *e = &c->converted.echo;
    e->store = c->opts.store;
    e->background = c->opts.background;
    e->previous_response_id = by_arena_dup(&c->arena, c->opts.previous_response_id);
    e->conversation_id = by_arena_dup(&c->arena, c->opts.conversation_id);
    return e->previous_response_id.ptr && e->conversation_id.ptr ? BY_OK : no_memory(err);
}

static by_status prepare(by_call *c, by_err *err) {
    BY_TRY(convert(c, err));
    if (c->opts.as_requested) {
        c->opts.whole = !c->converted.stream;
        if (!c->converted.stream) c->opts.on_event = NULL;
    }
    if (c->opts.usage_place == BY_API_USAGE_OWN_EVENT && c->converted.continuous_usage) c->opts.usage_place = BY_API_USAGE_CONTINUOUS;
    BY_TRY(set_echo(c, err));
    by_rng rng = by_service_rng(c->service);
    BY_TRY(set_sampling(c, &rng, err));
    BY_TRY(by_service_grammar(&c->grammar, &c->has_grammar, &c->arena, &c->converted, by_service_tok(c->service), err));
    c->n = c->converted.inference.n;
    c->n_lanes = c->converted.api == BY_API_COMPLETIONS ? c->converted.n_prompts : 1;
    c->lanes = by_arena_zero(&c->arena, c->n_lanes * sizeof *c->lanes);
    c->streams = by_arena_zero(&c->arena, by_mul_size((size_t)c->n_lanes * c->n, sizeof *c->streams));
    if (!c->lanes || !c->streams) return no_memory(err);
    by_recipe_prompt scratch = {0};
    by_status status = BY_OK;
    for (uint32_t i = 0; status == BY_OK && i < c->n_lanes; i++) {
        c->lanes[i].streams = c->streams + (size_t)i * c->n;
        c->lanes[i].n_open = c->n;
        status = make_prompt(c, i, &scratch, err);
        if (status == BY_OK && !c->opts.prompt_only) status = resolve(c, &c->lanes[i], err);
    }
    by_recipe_prompt_deinit(&scratch);
    BY_TRY(status);
    if (c->opts.prompt_only) return BY_OK;
    BY_TRY(make_streams(c, &rng, err));
    return submit_more(c, err);
}

by_status by_call_start(by_call **out, by_service *s, const by_call_opts *opts, by_err *err) {
    *out = NULL;
    by_call *c = by_alloc_zero(BY_MEM_REQUEST, sizeof *c);
    if (!c) return no_memory(err);
    by_err own;
    if (!err) err = &own;
    c->service = s;
    c->opts = *opts;
    by_arena_init(&c->arena, BY_MEM_REQUEST);
    *out = c;
    by_status status = prepare(c, err);
    if (status >= 0) return BY_OK;
    if (!c->has_problem) fail_status(c, status, err);
    else by_err_set(err, status, __FILE__, __LINE__, "%s", c->problem.message);
    return status;
}

/* ---- tokens ---- */

static void end_lane(by_call *c, lane *l) {
    l->info = by_source_info(c->service, l->request);
    by_source_release(c->service, l->request);
    l->request = NULL;
    c->n_done++;
}

static void give_up(by_call *c) {
    for (uint32_t i = 0; i < c->n_submitted; i++)
        if (c->lanes[i].request) end_lane(c, &c->lanes[i]);
    for (uint32_t i = 0; c->streams && i < c->n_lanes * c->n; i++)
        if (c->streams[i]) by_api_stream_close(c->streams[i]);
}

/* What JSON can say; a removed token has minus infinity. */
static float finite_logprob(float v) { return v < BY_SAMPLE_LOGPROB_FLOOR ? BY_SAMPLE_LOGPROB_FLOOR : v; }

/* Log-probabilities of the tokens that are echoed: those of the prompt, without a begin token that was put in front of a text.
 * As in OpenAI's API nothing is said of the first. */
static by_status score_prompt(by_call *c, lane *l, by_err *err) {
    const by_sample_top *tops;
    const float *lps = by_source_prompt_logprobs(c->service, l->request, &tops);
    const by_tok *tok = by_service_tok(c->service);
    size_t n_top = c->converted.inference.top_logprobs, n_row = (size_t)n_prompt_top(c);
    size_t first = c->converted.prompts[l - c->lanes].n_ids ? 0 : 1;
    by_buf b = {0};
    for (size_t i = first; i < l->n_ids; i++) {
        by_top_logprob top[TOP_MAX];
        by_logprob lp = {.logprob = NAN, .top = top};
        if (lps && i > first) {
            lp.logprob = finite_logprob(lps[i - 1]);
            for (lp.n_top = 0; tops && lp.n_top < n_top; lp.n_top++) {
                const by_sample_top *t = &tops[(i - 1) * n_row + lp.n_top];
                top[lp.n_top] = (by_top_logprob){.id = t->id, .logprob = finite_logprob(t->logprob)};
            }
        }
        if (i > first) by_buf_push_byte(&b, ',');
        by_logprob_write(&b, tok, l->ids[i], &lp);
    }
    l->converted->prompt_logprobs = b.failed ? (by_str){0} : by_arena_dup(&c->arena, by_buf_str(&b));
    by_buf_deinit(&b);
    return l->converted->prompt_logprobs.ptr ? BY_OK : no_memory(err);
}

/* vLLM's prompt_logprobs: null for the first token, which nothing stands in front of. */
static by_status write_prompt_logprobs(by_call *c, lane *l, by_err *err) {
    const by_sample_top *tops;
    const float *lps = by_source_prompt_logprobs(c->service, l->request, &tops);
    const int32_t *ranks = by_source_prompt_ranks(c->service, l->request);
    size_t n_row = (size_t)n_prompt_top(c), n_top = c->converted.inference.prompt_logprobs;
    by_buf b = {0};
    by_buf_push_z(&b, "[null");
    for (size_t i = 1; lps && ranks && i < l->n_ids; i++) {
        by_top_logprob top[TOP_MAX];
        by_logprob lp = {.logprob = finite_logprob(lps[i - 1]), .top = top, .n_top = n_top};
        for (size_t k = 0; k < n_top; k++) {
            const by_sample_top *t = &tops[(i - 1) * n_row + k];
            top[k] = (by_top_logprob){.id = t->id, .logprob = finite_logprob(t->logprob)};
        }
        by_buf_push_byte(&b, ',');
        by_prompt_logprob_write(&b, by_service_tok(c->service), l->ids[i], ranks[i - 1], &lp);
    }
    by_buf_push_byte(&b, ']');
    l->converted->prompt_scores = b.failed ? (by_str){0} : by_arena_dup(&c->arena, by_buf_str(&b));
    by_buf_deinit(&b);
    return l->converted->prompt_scores.ptr ? BY_OK : no_memory(err);
}

static by_status tell_ready(by_call *c, lane *l, by_err *err) {
    l->ready = true;
    if (c->converted.inference.has_prompt_logprobs) BY_TRY(write_prompt_logprobs(c, l, err));
    if (scores_prompt(c)) BY_TRY(score_prompt(c, l, err));
    by_request_info info = by_source_info(c->service, l->request);
    for (uint32_t k = 0; k < c->n; k++)
        BY_TRY(by_api_stream_ready(l->streams[k], (uint64_t)info.n_prompt, (uint64_t)info.n_cached, NULL, err));
    return BY_OK;
}

static by_status feed(by_call *c, lane *l, const by_event *ev, by_err *err) {
    by_api_stream *s = l->streams[ev->choice];
    by_top_logprob top[TOP_MAX];
    by_logprob lp = {.logprob = finite_logprob(ev->logprob), .top = top, .n_top = (size_t)(ev->n_top < TOP_MAX ? ev->n_top : TOP_MAX)};
    for (size_t i = 0; i < lp.n_top; i++)
        top[i] = (by_top_logprob){.id = ev->top[i].id, .logprob = finite_logprob(ev->top[i].logprob)};
    const by_api_inference *inf = &c->converted.inference;
    bool with = inf->logprobs, scored_only = inf->has_max_tokens && inf->max_tokens == 0;
    if (ev->token >= 0 && !scored_only) BY_TRY(by_api_stream_tokens(s, &ev->token, 1, with ? &lp : NULL, with, err));
    if (by_api_stream_finished(s)) { /* the parser has found a stop string */
        l->n_open--;
        if (ev->finish == BY_CHOICE_RUNNING) by_source_abort(c->service, l->request, ev->choice, true);
        return BY_OK;
    }
    switch (ev->finish) {
    case BY_CHOICE_RUNNING: return BY_OK;
    case BY_CHOICE_STOP:
    case BY_CHOICE_LENGTH:
        l->n_open--;
        return by_api_stream_finish(s, ev->finish == BY_CHOICE_STOP && !scored_only ? BY_REASON_STOP : BY_REASON_LENGTH, err);
    case BY_CHOICE_CANCELLED:
        if (c->opts.deadline_ms > 0)
            return BY_FAIL(err, BY_ETIMEOUT, "not finished within %lld ms", (long long)c->opts.deadline_ms);
        return BY_FAIL(err, BY_ECANCELLED, "cancelled: the engine is shutting down");
    case BY_CHOICE_ERROR: break;
    }
    by_status status = by_source_error(c->service, l->request, err);
    if (status == BY_EGRAMMAR) by_err_prefix(err, "%s: ", c->converted.inference.grammar.field);
    return status < 0 ? status : BY_FAIL(err, BY_EINTERNAL, "the engine failed without a reason");
}

/* Everything of one prompt that has come. */
static by_status pump_lane(by_call *c, lane *l, int64_t timeout_ms, by_err *err) {
    by_event ev;
    while (l->n_open > 0) {
        by_status status = by_source_next(c->service, l->request, &ev, timeout_ms);
        if (status == BY_AGAIN) return BY_OK;
        if (status != BY_OK) return BY_FAIL(err, BY_EINTERNAL, "the engine ended a request without its end");
        timeout_ms = 0;
        if (!l->ready) BY_TRY(tell_ready(c, l, err));
        if (!by_api_stream_finished(l->streams[ev.choice])) BY_TRY(feed(c, l, &ev, err));
    }
    end_lane(c, l);
    return BY_OK;
}

by_status by_call_pump(by_call *c, int64_t timeout_ms, by_err *err) {
    by_err own;
    if (!err) err = &own;
    if (c->has_problem) return BY_END;
    by_status status = submit_more(c, err);
    for (uint32_t i = 0; status >= 0 && i < c->n_submitted; i++) {
        if (!c->lanes[i].request) continue;
        status = pump_lane(c, &c->lanes[i], timeout_ms, err);
        timeout_ms = 0;
    }
    if (status < 0) {
        fail_status(c, status, err);
        give_up(c);
        return BY_END;
    }
    return c->n_done == c->n_lanes ? BY_END : BY_AGAIN;
}

const by_call_problem *by_call_problem_get(const by_call *c) { return c->has_problem ? &c->problem : NULL; }
const by_api_converted *by_call_request(const by_call *c) { return &c->converted; }

const int32_t *by_call_prompt(const by_call *c, uint32_t i, size_t *n) {
    *n = i < c->n_lanes ? c->lanes[i].n_ids : 0;
    return i < c->n_lanes ? c->lanes[i].ids : NULL;
}

by_request_info by_call_times(const by_call *c) {
    if (c->n_submitted == 0) return (by_request_info){0};
    return c->lanes[0].request ? by_source_info(c->service, c->lanes[0].request) : c->lanes[0].info;
}

by_answer_end_kind by_call_end(const by_call *c) {
    return c->streams && c->streams[0] ? by_api_stream_end_kind(c->streams[0]) : BY_END_STOP;
}

bool by_call_waits(const by_call *c) { return !c->has_problem && c->n_submitted < c->n_lanes && !c->opts.prompt_only; }

by_answer_usage by_call_usage(const by_call *c) {
    by_answer_usage sum = {0};
    for (uint32_t i = 0; c->streams && i < c->n_lanes * c->n; i++) {
        if (!c->streams[i]) continue;
        by_answer_usage u = by_api_stream_usage(c->streams[i]);
        if (i % c->n == 0) {
            sum.prompt_tokens += u.prompt_tokens;
            sum.cached_tokens += u.cached_tokens;
        }
        sum.completion_tokens += u.completion_tokens;
        sum.reasoning_tokens += u.reasoning_tokens;
        sum.counts_reasoning |= u.counts_reasoning;
    }
    return sum;
}

by_status by_call_write_whole(by_call *c, by_buf *out, by_err *err) {
    return by_api_stream_write_choices(c->streams, (size_t)c->n_lanes * c->n, out, err);
}

void by_call_destroy(by_call *c) {
    if (!c) return;
    give_up(c);
    for (uint32_t i = 0; c->streams && i < c->n_lanes * c->n; i++) by_api_stream_destroy(c->streams[i]);
    by_arena_deinit(&c->arena);
    by_free(c);
}
