/* capi_recipe.c - include/bathyc/recipe.h: errors, tokenizers, the parser alone. Requests and streams have files of their own. */
#include "bathyc/recipe.h"

#include <string.h>

#include "base/alloc.h"
#include "capi_recipe/capi_recipe_impl.h"
#include "recipe/image_tokens.h"
#include "recipe/recipe_tok.h"

/* ---- errors ---- */

int by_capi_recipe_result(bathyc_error *out, by_status status, const by_err *err) {
    static const struct {
        by_status status;
        int code;
    } table[] = {{BY_EINVAL, BATHYC_INVALID}, {BY_ENOMEM, BATHYC_NO_MEMORY}, {BY_ECONTEXT, BATHYC_CONTEXT}};
    if (status >= 0) return BATHYC_OK;
    int code = BATHYC_FAILED;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status) code = table[i].code;
    if (out) {
        _Static_assert(sizeof out->message >= BY_ERR_MSG_MAX, "messages fit");
        memcpy(out->message, err->msg, BY_ERR_MSG_MAX);
        out->code = code;
    }
    return code;
}

void bathyc_recipe_free(void *p) { by_free(p); }

/* ---- tokenizers ---- */

int bathyc_recipe_tok_open(bathyc_recipe_tok **out, const char *path, bathyc_error *error) {
    by_tok *tok = NULL;
    by_err err;
    by_status status = by_recipe_tok_open(&tok, path, &err);
    if (status == BY_OK) *out = (bathyc_recipe_tok *)tok;
    return by_capi_recipe_result(error, status, &err);
}

void bathyc_recipe_tok_close(bathyc_recipe_tok *tok) { by_tok_destroy((by_tok *)tok); }

int bathyc_recipe_scratch_create(bathyc_recipe_scratch **out, const bathyc_recipe_tok *tok, bathyc_error *error) {
    by_tok_scratch *scratch = NULL;
    by_err err;
    by_status status = by_tok_scratch_create(&scratch, by_capi_recipe_tok(tok), &err);
    if (status == BY_OK) *out = (bathyc_recipe_scratch *)scratch;
    return by_capi_recipe_result(error, status, &err);
}

void bathyc_recipe_scratch_destroy(bathyc_recipe_scratch *s) { by_tok_scratch_destroy(by_capi_recipe_scratch(s)); }

int bathyc_recipe_image_tokens(uint32_t width, uint32_t height, uint32_t *out, bathyc_error *error) {
    by_err err;
    return by_capi_recipe_result(error, by_recipe_image_tokens(out, width, height, &err), &err);
}

/* ---- the parser alone ---- */

struct bathyc_recipe_parser {
    by_parser *parser;
    bathyc_delta_fn *on_delta;
    void *ctx;
};

static void on_delta(void *ctx, const by_delta *d) {
    static const bathyc_delta_kind kinds[] = {[BY_DELTA_REASONING] = BATHYC_DELTA_REASONING,
                                              [BY_DELTA_CONTENT] = BATHYC_DELTA_CONTENT,
                                              [BY_DELTA_CALL] = BATHYC_DELTA_CALL,
                                              [BY_DELTA_ARGS] = BATHYC_DELTA_ARGUMENTS};
    const bathyc_recipe_parser *p = ctx;
    p->on_delta(p->ctx, kinds[d->kind], d->call, d->text.len ? d->text.ptr : "", d->text.len);
}

bathyc_recipe_parser_options bathyc_recipe_parser_options_default(void) {
    return (bathyc_recipe_parser_options){.stage = BATHYC_STAGE_REASONING_START, .parse_calls = 1, .eager = 1};
}

static by_status create_parser(bathyc_recipe_parser *p, const bathyc_recipe_parser_options *o, by_err *err) {
    if (o->stage < BATHYC_STAGE_NONE || o->stage > BATHYC_STAGE_CONTENT_CONTINUATION)
        return BY_FAIL(err, BY_EINVAL, "stage: %d is none of them", (int)o->stage);
    by_str *stops = o->n_stops ? by_alloc(BY_MEM_MISC, by_mul_size(o->n_stops, sizeof *stops)) : NULL;
    if (o->n_stops && !stops) return BY_FAIL(err, BY_ENOMEM, "out of memory for stop strings");
    for (size_t i = 0; i < o->n_stops; i++) stops[i] = by_str_of(o->stops[i].ptr, o->stops[i].bytes);
    by_parser_opts opts = {.parse_calls = o->parse_calls, .eager = o->eager, .stage = (by_stage)o->stage, .stops = stops,
                           .n_stops = o->n_stops};
    by_status status = by_parser_create(&p->parser, &opts, on_delta, p, err);
    by_free(stops);
    return status;
}

int bathyc_recipe_parser_create(bathyc_recipe_parser **out, const bathyc_recipe_parser_options *options, bathyc_delta_fn *delta,
                                void *ctx, bathyc_error *error) {
    by_err err;
    bathyc_recipe_parser *p = by_alloc_zero(BY_MEM_REQUEST, sizeof *p);
    by_status status = p ? BY_OK : BY_FAIL(&err, BY_ENOMEM, "out of memory for a parser");
    if (status == BY_OK) {
        p->on_delta = delta;
        p->ctx = ctx;
        status = create_parser(p, options, &err);
    }
    if (status == BY_OK) *out = p;
    else by_free(p);
    return by_capi_recipe_result(error, status, &err);
}

void bathyc_recipe_parser_destroy(bathyc_recipe_parser *p) {
    if (!p) return;
    by_parser_destroy(p->parser);
    by_free(p);
}

int bathyc_recipe_parser_push(bathyc_recipe_parser *p, const char *text, size_t bytes, bathyc_error *error) {
    by_err err;
    return by_capi_recipe_result(error, by_parser_push(p->parser, by_str_of(text, bytes), &err), &err);
}

int bathyc_recipe_parser_finish(bathyc_recipe_parser *p, bathyc_error *error) {
    by_err err;
    return by_capi_recipe_result(error, by_parser_finish(p->parser, &err), &err);
}

int64_t bathyc_recipe_parser_stop_index(const bathyc_recipe_parser *p) { return by_parser_stop_index(p->parser); }
