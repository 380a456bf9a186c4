/* capi_recipe_request.c - include/bathyc/recipe.h: request bodies, what they ask for, their prompts. */
#include <string.h>

#include "base/alloc.h"
#include "capi_recipe/capi_recipe_impl.h"

static bathyc_text text_of(by_str s) { return (bathyc_text){s.ptr, s.len}; }

/* ---- options ---- */

bathyc_recipe_options bathyc_recipe_options_default(void) {
    by_api_options o;
    by_api_options_init(&o);
    return (bathyc_recipe_options){.profile = BATHYC_PROFILE_PARITY,
                                   .default_thinking = o.default_thinking,
                                   .reject_missing_reasoning = o.reject_missing_reasoning,
                                   .reject_responses_web_search = o.reject_responses_web_search,
                                   .reject_messages_web_search = o.reject_messages_web_search,
                                   .thinking_max_tokens = o.thinking_max_tokens,
                                   .plain_max_tokens = o.plain_max_tokens};
}

static by_status no_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for a request"); }

static by_status set_models(bathyc_recipe_request *r, const bathyc_recipe_options *o, by_err *err) {
    enum { MODELS_MAX = 4096 };
    if (!o->models) return BY_OK;
    if (o->n_models > MODELS_MAX) return BY_FAIL(err, BY_EINVAL, "n_models: at most %d", MODELS_MAX);
    by_api_model_name *models = by_arena_zero(&r->arena, by_mul_size(o->n_models, sizeof *models));
    if (!models) return no_memory(err);
    for (size_t i = 0; i < o->n_models; i++) {
        models[i].name = by_arena_dup(&r->arena, by_str_z(o->models[i].name));
        models[i].version = o->models[i].version == BATHYC_V4_PRO ? BY_RECIPE_V4 : BY_RECIPE_V41;
        if (!models[i].name.ptr) return no_memory(err);
    }
    r->options.models = models;
    r->options.n_models = (uint32_t)o->n_models;
    return BY_OK;
}

static by_status set_options(bathyc_recipe_request *r, const bathyc_recipe_options *o, by_err *err) {
    by_api_options_init(&r->options);
    if (o->profile != BATHYC_PROFILE_PARITY && o->profile != BATHYC_PROFILE_SERVER)
        return BY_FAIL(err, BY_EINVAL, "profile: %d is none of them", (int)o->profile);
    r->options.profile = o->profile == BATHYC_PROFILE_SERVER ? BY_API_SERVER : BY_API_PARITY;
    r->options.default_thinking = o->default_thinking;
    r->options.reject_missing_reasoning = o->reject_missing_reasoning;
    r->options.reject_responses_web_search = o->reject_responses_web_search;
    r->options.reject_messages_web_search = o->reject_messages_web_search;
    r->options.honour_sampling = o->honour_sampling;
    r->options.thinking_max_tokens = o->thinking_max_tokens;
    r->options.plain_max_tokens = o->plain_max_tokens;
    return set_models(r, o, err);
}

/* ---- what it asks for ---- */

static by_status set_lists(bathyc_recipe_request *r, by_err *err) {
    bathyc_recipe_info *i = &r->info;
    const by_api_inference *inf = &r->converted.inference;
    i->n_stops = r->converted.parsing.n_stops;
    i->n_logit_bias = inf->n_logit_bias;
    bathyc_text *stops = by_arena_alloc(&r->arena, by_mul_size(i->n_stops, sizeof *stops));
    bathyc_bias *bias = by_arena_alloc(&r->arena, by_mul_size(i->n_logit_bias, sizeof *bias));
    if (!stops || !bias) return no_memory(err);
    for (size_t k = 0; k < i->n_stops; k++) stops[k] = text_of(r->converted.parsing.stops[k]);
    for (size_t k = 0; k < i->n_logit_bias; k++) bias[k] = (bathyc_bias){inf->logit_bias[k].token, inf->logit_bias[k].value};
    i->stops = stops;
    i->logit_bias = bias;
    return BY_OK;
}

static by_status set_info(bathyc_recipe_request *r, by_err *err) {
    const by_api_converted *c = &r->converted;
    const by_recipe_conversation *v = &c->conversation;
    const by_api_inference *inf = &c->inference;
    r->info = (bathyc_recipe_info){.model = text_of(c->model),
                                   .version = c->version == BY_RECIPE_V4 ? BATHYC_V4_PRO : BATHYC_V41_FLASH,
                                   .stream = c->stream,
                                   .include_usage = c->include_usage,
                                   .thinking = v->thinking,
                                   .effort = by_recipe_effort_name(v->effort),
                                   .effort_number = v->effort_number,
                                   .tool_choice = by_recipe_choice_name(v->choice),
                                   .response_format = by_recipe_format_name(v->format),
                                   .constraint = inf->constraint.kind,
                                   .constraint_text = text_of(inf->constraint.text),
                                   .n_prompts = c->api == BY_API_COMPLETIONS ? c->n_prompts : 1,
                                   .has_max_tokens = inf->has_max_tokens,
                                   .has_seed = inf->has_seed,
                                   .logprobs = inf->logprobs,
                                   .max_tokens = inf->max_tokens,
                                   .top_logprobs = inf->top_logprobs,
                                   .seed = inf->seed,
                                   .temperature = inf->temperature,
                                   .top_p = inf->top_p,
                                   .n = inf->n,
                                   .best_of = inf->best_of,
                                   .presence_penalty = inf->presence_penalty,
                                   .frequency_penalty = inf->frequency_penalty,
                                   .repetition_penalty = inf->repetition_penalty,
                                   .min_p = inf->min_p,
                                   .top_k = inf->top_k,
                                   .ignore_eos = inf->ignore_eos,
                                   .min_tokens = inf->min_tokens,
                                   .stop_token_ids = inf->stop_ids,
                                   .n_stop_token_ids = inf->n_stop_ids};
    return set_lists(r, err);
}

const bathyc_recipe_info *bathyc_recipe_request_info(const bathyc_recipe_request *r) { return &r->info; }

/* ---- refusals ---- */

/* Passes the API's error on; the message of err becomes the refusal's. */
static by_status refuse(bathyc_refusal *out, const by_api_error *e, by_err *err) {
    by_err_set(err, BY_EINVAL, __FILE__, __LINE__, "%.*s",
               (int)(e->message.len < BY_ERR_MSG_MAX ? e->message.len : BY_ERR_MSG_MAX), e->message.ptr);
    if (!out) return BY_EINVAL;
    by_buf json = {0};
    by_api_error_write(&json, e);
    by_buf_z(&json);
    if (json.failed) {
        by_buf_deinit(&json);
        return no_memory(err);
    }
    *out = (bathyc_refusal){.http_status = e->http_status, .bad_json = e->kind == BY_API_BAD_JSON,
                            .bad_body = e->kind == BY_API_BAD_BODY, .json = json.ptr, .json_bytes = json.len};
    return BY_EINVAL;
}

/* ---- life ---- */

static by_status read_request(bathyc_recipe_request *r, bathyc_api api, by_str body, const bathyc_recipe_options *options,
                              bathyc_refusal *refusal, by_err *err) {
    by_api_error error = {0};
    if (api < BATHYC_API_CHAT || api > BATHYC_API_COMPLETIONS) return BY_FAIL(err, BY_EINVAL, "api: %d is none of them", (int)api);
    BY_TRY(set_options(r, options, err));
    by_str kept = by_arena_dup(&r->arena, body); /* the conversion points into it */
    if (!kept.ptr) return no_memory(err);
    by_status status = by_api_convert(&r->converted, &error, &r->arena, (by_api_kind)api, kept, &r->options, err);
    if (status == BY_EINVAL) return refuse(refusal, &error, err);
    return status == BY_OK ? set_info(r, err) : status;
}

int bathyc_recipe_request_create(bathyc_recipe_request **out, bathyc_api api, const char *body, size_t body_bytes,
                                 const bathyc_recipe_options *options, bathyc_refusal *refusal, bathyc_error *error) {
    by_err err = {0};
    if (refusal) *refusal = (bathyc_refusal){0};
    bathyc_recipe_request *r = by_alloc_zero(BY_MEM_REQUEST, sizeof *r);
    by_status status = r ? BY_OK : no_memory(&err);
    if (status == BY_OK) {
        by_arena_init(&r->arena, BY_MEM_REQUEST);
        status = read_request(r, api, by_str_of(body, body_bytes), options, refusal, &err);
    }
    if (status == BY_OK) *out = r;
    else bathyc_recipe_request_destroy(r);
    return by_capi_recipe_result(error, status, &err);
}

void bathyc_recipe_request_destroy(bathyc_recipe_request *r) {
    if (!r) return;
    by_recipe_prompt_deinit(&r->prompt);
    by_tok_ids_deinit(&r->ids);
    by_free(r->public_ranges);
    by_free(r->images);
    by_arena_deinit(&r->arena);
    by_free(r);
}

int bathyc_recipe_max_tokens(bathyc_recipe_request *r, uint64_t n_prompt, uint64_t n_context, uint32_t *out,
                             bathyc_refusal *refusal, bathyc_error *error) {
    by_err err = {0};
    by_api_error why = {0};
    if (refusal) *refusal = (bathyc_refusal){0};
    by_status status = by_api_resolve_max_tokens(out, &why, &r->arena, &r->converted, &r->options, n_prompt, n_context, &err);
    if (status == BY_EINVAL) status = refuse(refusal, &why, &err);
    return by_capi_recipe_result(error, status, &err);
}

/* ---- prompts ---- */

static by_status render(bathyc_recipe_request *r, size_t i, by_err *err) {
    const by_api_converted *c = &r->converted;
    if (i >= r->info.n_prompts) return BY_FAIL(err, BY_EINVAL, "prompt %zu: the request has %zu", i, r->info.n_prompts);
    if (c->api != BY_API_COMPLETIONS) return by_recipe_render(&r->prompt, &c->conversation, c->version, NULL, err);
    if (c->prompts[i].n_ids == 0)
        return by_recipe_render_completion(&r->prompt, c->prompts[i].text, c->has_suffix ? &c->suffix : NULL, NULL, err);
    by_buf_clear(&r->prompt.text);
    r->prompt.n_ranges = r->prompt.n_images = 0;
    return BY_OK;
}

/* Ranges and images in the public structs. */
static by_status publish(bathyc_recipe_request *r, by_err *err) {
    const by_recipe_prompt *p = &r->prompt;
    bathyc_range *ranges = by_realloc(BY_MEM_REQUEST, r->public_ranges, by_mul_size(p->n_ranges + 1, sizeof *ranges));
    if (!ranges) return no_memory(err);
    r->public_ranges = ranges;
    bathyc_image *images = by_realloc(BY_MEM_REQUEST, r->images, by_mul_size(p->n_images + 1, sizeof *images));
    if (!images) return no_memory(err);
    r->images = images;
    for (size_t i = 0; i < p->n_ranges; i++) ranges[i] = (bathyc_range){p->ranges[i].begin, p->ranges[i].end};
    for (size_t i = 0; i < p->n_images; i++)
        images[i] = (bathyc_image){.is_data_url = p->images[i]->kind == BY_IMAGE_DATA_URL,
                                   .detail = by_recipe_detail_name(p->images[i]->detail),
                                   .url = text_of(p->images[i]->url)};
    return BY_OK;
}

int bathyc_recipe_render(bathyc_recipe_request *r, size_t i, bathyc_recipe_prompt *out, bathyc_error *error) {
    by_err err = {0};
    by_status status = render(r, i, &err);
    if (status == BY_OK) status = publish(r, &err);
    if (status == BY_OK) {
        const by_api_prompt *raw = r->converted.api == BY_API_COMPLETIONS ? &r->converted.prompts[i] : NULL;
        *out = (bathyc_recipe_prompt){.text = text_of(by_buf_str(&r->prompt.text)),
                                      .specials = r->public_ranges,
                                      .n_specials = r->prompt.n_ranges,
                                      .images = r->images,
                                      .n_images = r->prompt.n_images};
        if (raw && raw->n_ids) {
            out->ids = raw->ids;
            out->n_ids = raw->n_ids;
        }
    }
    return by_capi_recipe_result(error, status, &err);
}

static by_status encode(bathyc_recipe_request *r, size_t i, const by_tok *tok, by_tok_scratch *scratch, by_err *err) {
    BY_TRY(render(r, i, err));
    r->ids.n = 0;
    const by_api_prompt *raw = r->converted.api == BY_API_COMPLETIONS ? &r->converted.prompts[i] : NULL;
    if (!raw || raw->n_ids == 0) return by_recipe_encode(&r->ids, &r->prompt, tok, scratch, err);
    for (uint32_t k = 0; k < raw->n_ids; k++) BY_TRY(by_tok_ids_push(&r->ids, (int32_t)raw->ids[k], err)); /* below 2^31 */
    return BY_OK;
}

int bathyc_recipe_encode(bathyc_recipe_request *r, size_t i, const bathyc_recipe_tok *tok, bathyc_recipe_scratch *scratch,
                         const int32_t **ids, size_t *n_ids, bathyc_error *error) {
    by_err err = {0};
    by_status status = encode(r, i, by_capi_recipe_tok(tok), by_capi_recipe_scratch(scratch), &err);
    if (status == BY_OK) {
        *ids = r->ids.ids;
        *n_ids = r->ids.n;
    }
    return by_capi_recipe_result(error, status, &err);
}
