/* conform_convert.c - kinds of vectors/recipe that start from a request: convert, encode_ids, resolve_max_tokens. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api_request.h"
#include "cli/conform_recipe.h"

/* ---- options of a row ---- */

static by_status read_version(const by_json *v, by_recipe_version *out, by_err *err) {
    bool v41 = by_json_is(v, BY_JSON_STRING) && by_str_eqz(v->v.s, "DeepseekV41Flash");
    bool v4 = by_json_is(v, BY_JSON_STRING) && by_str_eqz(v->v.s, "DeepseekV4Pro");
    if (!v41 && !v4) return BY_FAIL(err, BY_EFORMAT, "options: unknown model version");
    *out = v41 ? BY_RECIPE_V41 : BY_RECIPE_V4;
    return BY_OK;
}

/* A later entry of the same name replaces an earlier one. */
static by_status add_models(by_api_model_name *models, uint32_t *n, const by_json *table, by_err *err) {
    for (uint32_t i = 0; by_json_is(table, BY_JSON_OBJECT) && i < table->n; i++) {
        uint32_t at = 0;
        while (at < *n && !by_str_eq(models[at].name, table->v.members[i].key)) at++;
        models[at].name = table->v.members[i].key;
        BY_TRY(read_version(&table->v.members[i].value, &models[at].version, err));
        if (at == *n) ++*n;
    }
    return BY_OK;
}

static by_status read_models(by_arena *arena, const by_json *options, by_api_options *o, by_err *err) {
    const by_json *aliases = by_json_get(options, "aliases"), *table = by_json_get(options, "model_versions");
    if (!aliases && !table) return BY_OK;
    size_t most = 2 + (aliases ? aliases->n : 0) + (table ? table->n : 0);
    by_api_model_name *models = by_arena_zero(arena, most * sizeof *models);
    if (!models) return BY_FAIL(err, BY_ENOMEM, "out of memory for a row");
    if (table) { /* replaces everything that came before */
        BY_TRY(add_models(models, &o->n_models, table, err));
    } else {
        models[o->n_models++] = (by_api_model_name){BY_STR("DeepSeek-V4-Pro"), BY_RECIPE_V4};
        models[o->n_models++] = (by_api_model_name){BY_STR("DeepSeek-V4.1-Flash"), BY_RECIPE_V41};
        BY_TRY(add_models(models, &o->n_models, aliases, err));
    }
    o->models = models;
    return BY_OK;
}

static void read_bool(const by_json *options, const char *key, bool *out) {
    const by_json *v = by_json_get(options, key);
    if (by_json_is(v, BY_JSON_BOOL)) *out = v->v.b;
}

static void read_bound(const by_json *options, const char *key, uint32_t *out) {
    int64_t n;
    if (by_json_int_in(by_json_get(options, key), 0, UINT32_MAX, &n)) *out = (uint32_t)n;
}

/* *out is true when the member is "Reject". */
static void read_reject(const by_json *options, const char *key, bool *out) {
    const by_json *v = by_json_get(options, key);
    if (by_json_is(v, BY_JSON_STRING)) *out = by_str_eqz(v->v.s, "Reject");
}

by_status by_conform_options(by_arena *arena, const by_json *options, by_recipe_specials *specials, by_api_options *o,
                             by_err *err) {
    by_api_options_init(o);
    if (!by_json_is(options, BY_JSON_OBJECT)) return BY_OK;
    read_bool(options, "default_thinking_mode", &o->default_thinking);
    read_bound(options, "thinking_max_tokens_upper_bound", &o->thinking_max_tokens);
    read_bound(options, "non_thinking_max_tokens_upper_bound", &o->plain_max_tokens);
    read_reject(options, "reasoning_content_behavior", &o->reject_missing_reasoning);
    read_reject(options, "responses_web_search", &o->reject_responses_web_search);
    read_reject(options, "messages_web_search", &o->reject_messages_web_search);
    const by_json *overrides = by_json_get(options, "special_tokens");
    if (overrides) {
        BY_TRY(by_conform_specials(overrides, specials, err));
        o->specials = specials;
    }
    return read_models(arena, options, o, err);
}

/* ---- a converted row ---- */

typedef struct {
    by_arena arena;
    by_buf body;
    by_recipe_specials specials;
    by_api_options options;
    by_api_converted converted;
    by_api_error error;
    by_recipe_prompt prompt;
    bool refused; /* error holds the answer */
} request_row;

static void close_row(request_row *r) {
    by_recipe_prompt_deinit(&r->prompt);
    by_buf_deinit(&r->body);
    by_arena_deinit(&r->arena);
}

static by_status read_api(const by_json *input, by_api_kind *api, by_err *err) {
    static const char *const names[] = {"chat", "responses", "messages", "completions"};
    const by_json *v;
    BY_TRY(by_conform_field(input, "api", BY_JSON_STRING, &v, err));
    for (int i = 0; i < 4; i++)
        if (by_str_eqz(v->v.s, names[i])) return *api = (by_api_kind)i, BY_OK;
    return BY_FAIL(err, BY_EFORMAT, "input.api: unknown API '%.*s'", BY_STR_ARG(v->v.s));
}

static by_status convert_row(request_row *r, const by_json *input, by_err *err) {
    by_arena_init(&r->arena, BY_MEM_REQUEST);
    by_api_kind api = BY_API_CHAT;
    BY_TRY(read_api(input, &api, err));
    BY_TRY(by_conform_options(&r->arena, by_json_get(input, "options"), &r->specials, &r->options, err));
    const by_json *text = by_json_get(input, "body_text"), *body = by_json_get(input, "body");
    if (by_json_is(text, BY_JSON_STRING)) by_buf_push_str(&r->body, text->v.s);
    else if (body) by_json_write(&r->body, body, BY_JSON_PYTHON);
    else return BY_FAIL(err, BY_EFORMAT, "input: want body or body_text");
    BY_TRY(by_buf_check(&r->body, err));
    by_status status = by_api_convert(&r->converted, &r->error, &r->arena, api, by_buf_str(&r->body), &r->options, err);
    r->refused = status == BY_EINVAL;
    return r->refused ? BY_OK : status;
}

static by_status render_row(request_row *r, by_err *err) {
    return by_recipe_render(&r->prompt, &r->converted.conversation, r->converted.version, r->options.specials, err);
}

/* ---- writing ---- */

void by_conform_write_error(by_json_out *o, const by_api_error *e) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "ok");
    by_json_out_bool(o, false);
    by_json_out_key(o, "error");
    by_json_out_object_begin(o);
    by_json_out_key(o, "kind");
    by_json_out_z(o, e->kind == BY_API_BAD_JSON ? "invalid_json" : e->kind == BY_API_BAD_BODY ? "invalid_body" : "conversion");
    if (e->kind == BY_API_REFUSED) {
        by_buf body = {0};
        by_api_error_write(&body, e);
        by_json_out_key(o, "status");
        by_json_out_int(o, e->http_status);
        by_json_out_key(o, "body");
        by_json_out_raw(o, by_buf_str(&body));
        o->buf->failed |= body.failed;
        by_buf_deinit(&body);
    } else {
        by_json_out_key(o, "message");
        by_json_out_string(o, e->message);
    }
    by_json_out_object_end(o);
    by_json_out_object_end(o);
}

static void write_images(by_json_out *o, const by_recipe_prompt *p) {
    by_json_out_array_begin(o);
    for (size_t i = 0; i < p->n_images; i++) {
        const by_recipe_image *image = p->images[i];
        bool data = image->kind == BY_IMAGE_DATA_URL;
        by_json_out_object_begin(o);
        by_json_out_key(o, "kind");
        by_json_out_z(o, data ? "data_url" : "url");
        by_json_out_key(o, "detail");
        by_json_out_z(o, by_recipe_detail_name(image->detail));
        by_json_out_key(o, "path");
        by_json_out_string(o, image->path);
        by_json_out_key(o, data ? "data_url" : "url");
        by_json_out_string(o, image->url);
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
}

static void write_parsing(by_json_out *o, const by_parser_opts *p) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "parse_tool_calls");
    by_json_out_bool(o, p->parse_calls);
    by_json_out_key(o, "starts_in_tool_calls");
    by_json_out_bool(o, p->starts_in_calls);
    by_json_out_key(o, "parse_json_output");
    by_json_out_bool(o, p->json_output);
    by_json_out_key(o, "initial_stage");
    by_json_out_z(o, by_recipe_stage_name(p->stage));
    by_json_out_key(o, "stop");
    by_json_out_array_begin(o);
    for (size_t i = 0; i < p->n_stops; i++) by_json_out_string(o, p->stops[i]);
    by_json_out_array_end(o);
    by_json_out_object_end(o);
}

void by_conform_write_float(by_json_out *o, float v) {
    char text[32];
    for (int n = 6; n <= 9; n++) {
        snprintf(text, sizeof text, "%.*g", n, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    by_json_out_double(o, strtod(text, NULL));
}

static void write_optional(by_json_out *o, const char *key, bool given, uint64_t v) {
    by_json_out_key(o, key);
    if (given) by_json_out_uint(o, v);
    else by_json_out_null(o);
}

static void write_inference(by_json_out *o, const by_api_inference *inf) {
    by_json_out_object_begin(o);
    write_optional(o, "max_tokens", inf->has_max_tokens, inf->max_tokens);
    by_json_out_key(o, "temperature");
    by_conform_write_float(o, inf->temperature);
    by_json_out_key(o, "top_p");
    by_conform_write_float(o, inf->top_p);
    by_json_out_key(o, "logprobs");
    by_json_out_bool(o, inf->logprobs);
    write_optional(o, "top_logprobs", inf->has_top_logprobs, inf->top_logprobs);
    write_optional(o, "seed", inf->has_seed, inf->seed);
    by_json_out_key(o, "constraint");
    if (inf->constraint.kind) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "kind");
        by_json_out_z(o, inf->constraint.kind);
        by_json_out_key(o, "schema");
        by_json_out_string(o, inf->constraint.text);
        by_json_out_object_end(o);
    } else {
        by_json_out_null(o);
    }
    by_json_out_object_end(o);
}

static void write_namespaces(by_json_out *o, const by_api_converted *c) {
    by_json_out_key(o, "namespace_tool_map");
    by_json_out_object_begin(o);
    for (uint32_t i = 0; i < c->n_namespaces; i++) {
        by_json_out_key_str(o, c->namespaces[i].mapped);
        by_json_out_array_begin(o);
        by_json_out_string(o, c->namespaces[i].ns);
        by_json_out_string(o, c->namespaces[i].local);
        by_json_out_array_end(o);
    }
    by_json_out_object_end(o);
}

void by_conform_write_prompt(by_json_out *o, const by_recipe_prompt *p) {
    by_json_out_key(o, "prompt");
    by_json_out_string(o, by_buf_str(&p->text));
    by_json_out_key(o, "special_ranges");
    by_conform_write_ranges(o, p);
    by_json_out_key(o, "image_sources");
    write_images(o, p);
}

void by_conform_write_settings(by_json_out *o, const by_api_converted *c) {
    const by_recipe_conversation *cv = &c->conversation;
    by_json_out_key(o, "thinking_mode");
    by_json_out_bool(o, cv->thinking);
    by_json_out_key(o, "reasoning_effort");
    by_json_out_z(o, by_recipe_effort_name(cv->effort));
    by_json_out_key(o, "tool_choice");
    by_json_out_z(o, by_recipe_choice_name(cv->choice));
    by_json_out_key(o, "response_format");
    by_json_out_z(o, by_recipe_format_name(cv->format));
    by_json_out_key(o, "parsing");
    write_parsing(o, &c->parsing);
    by_json_out_key(o, "inference");
    write_inference(o, &c->inference);
    if (c->n_namespaces) write_namespaces(o, c);
}

static void write_converted(by_json_out *o, const by_api_converted *c, const by_recipe_prompt *p) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "ok");
    by_json_out_bool(o, true);
    by_json_out_key(o, "model_version");
    by_json_out_z(o, by_recipe_version_name(c->version));
    by_json_out_key(o, "stream");
    by_json_out_bool(o, c->stream);
    by_conform_write_prompt(o, p);
    by_conform_write_settings(o, c);
    by_json_out_object_end(o);
}

/* ---- kinds ---- */

static by_status run_convert(by_conform *c, const by_json *row, const by_json *input, by_json_out *result, by_err *err) {
    (void)c, (void)row;
    request_row r = {0};
    by_status status = convert_row(&r, input, err);
    if (status == BY_OK && !r.refused) status = render_row(&r, err);
    if (status == BY_OK && r.refused) by_conform_write_error(result, &r.error);
    else if (status == BY_OK) write_converted(result, &r.converted, &r.prompt);
    close_row(&r);
    return status;
}

static by_status encode_row(by_conform *c, request_row *r, by_tok_ids *ids, by_err *err) {
    const by_tok *tok;
    by_tok_scratch *scratch;
    BY_TRY(by_conform_tok(c, r->converted.version == BY_RECIPE_V41, &tok, &scratch, err));
    BY_TRY(render_row(r, err));
    return by_recipe_encode(ids, &r->prompt, tok, scratch, err);
}

static by_status run_encode_ids(by_conform *c, const by_json *row, const by_json *input, by_json_out *result, by_err *err) {
    (void)row;
    request_row r = {0};
    by_tok_ids ids = {0};
    by_status status = convert_row(&r, input, err);
    if (status == BY_OK && !r.refused) status = encode_row(c, &r, &ids, err);
    if (status == BY_OK && r.refused) {
        by_conform_write_error(result, &r.error);
    } else if (status == BY_OK) {
        by_json_out_object_begin(result);
        by_json_out_key(result, "ok");
        by_json_out_bool(result, true);
        by_json_out_key(result, "prompt");
        by_json_out_string(result, by_buf_str(&r.prompt.text));
        by_json_out_key(result, "ids");
        by_json_out_array_begin(result);
        for (size_t i = 0; i < ids.n; i++) by_json_out_int(result, ids.ids[i]);
        by_json_out_array_end(result);
        by_json_out_object_end(result);
    }
    by_tok_ids_deinit(&ids);
    close_row(&r);
    return status;
}

static by_status run_resolve(by_conform *c, const by_json *row, const by_json *input, by_json_out *result, by_err *err) {
    (void)c, (void)row;
    int64_t prompt, limit;
    if (!by_json_int_in(by_json_get(input, "prompt_tokens"), 0, INT64_MAX, &prompt) ||
        !by_json_int_in(by_json_get(input, "context_limit"), 0, INT64_MAX, &limit))
        return BY_FAIL(err, BY_EFORMAT, "input.prompt_tokens, input.context_limit: want integers");
    request_row r = {0};
    uint32_t n = 0;
    by_status status = convert_row(&r, input, err);
    if (status == BY_OK && !r.refused) {
        status = by_api_resolve_max_tokens(&n, &r.error, &r.arena, &r.converted, &r.options, (uint64_t)prompt,
                                           (uint64_t)limit, err);
        r.refused = status == BY_EINVAL;
        if (r.refused) status = BY_OK;
    }
    if (status == BY_OK && r.refused) {
        by_conform_write_error(result, &r.error);
    } else if (status == BY_OK) {
        by_json_out_object_begin(result);
        by_json_out_key(result, "ok");
        by_json_out_bool(result, true);
        by_json_out_key(result, "max_tokens");
        by_json_out_uint(result, n);
        by_json_out_object_end(result);
    }
    close_row(&r);
    return status;
}

const by_conform_kind by_conform_convert_kinds[] = {
    {"convert", run_convert},
    {"encode_ids", run_encode_ids},
    {"resolve_max_tokens", run_resolve},
    {NULL, NULL},
};
