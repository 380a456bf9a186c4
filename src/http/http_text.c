/* http_text.c - the small endpoints: models, health, version, metrics, the page, and tokens of texts. */
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "http/http_impl.h"
#include "http/page.h"

/* ---- state ---- */

void by_handle_health(by_exchange *ex, by_str id) {
    by_http *h = ex->http;
    (void)id;
    if (h->draining) by_reply_error(ex, 503, NULL, "the server is shutting down");
    else if (!h->service) by_reply_error(ex, 503, NULL, "the model is being loaded");
    else by_reply_json(ex, 200, BY_STR("{\"status\":\"ok\"}"));
}

void by_handle_ready(by_exchange *ex, by_str id) { by_handle_health(ex, id); }

void by_handle_version(by_exchange *ex, by_str id) {
    by_buf b = {0};
    (void)id;
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "version");
    by_json_out_z(&o, ex->http->opts.version);
    by_json_out_key(&o, "name");
    by_json_out_z(&o, "bathyc");
    by_json_out_object_end(&o);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_metrics(by_exchange *ex, by_str id) {
    by_http *h = ex->http;
    by_buf b = {0};
    by_engine_stats stats;
    (void)id;
    by_engine *engine = h->service ? by_service_engine(h->service) : NULL;
    if (engine) stats = by_engine_stats_get(engine);
    if (by_metrics_write(h->metrics, &b, engine ? &stats : NULL, NULL) < 0) by_reply_error(ex, 503, "out_of_memory", "out of memory");
    else by_reply(ex, 200, BY_METRICS_CONTENT_TYPE, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_page(by_exchange *ex, by_str id) {
    (void)id;
    by_reply_header(ex, "Cache-Control", "no-cache"); /* a newer program has a newer page */
    by_reply_header(ex, "X-Content-Type-Options", "nosniff");
    by_reply(ex, 200, "text/html; charset=utf-8", by_str_of((const char *)by_page_html, by_page_html_len));
}

void by_handle_openapi(by_exchange *ex, by_str id) {
    (void)id;
    by_reply_header(ex, "Cache-Control", "no-cache");
    by_reply_json(ex, 200, by_str_of((const char *)by_openapi_json, by_openapi_json_len));
}

/* ---- models ---- */

static void write_model(by_json_out *o, by_http *h, by_str name) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "id");
    by_json_out_string(o, name);
    by_json_out_key(o, "object");
    by_json_out_z(o, "model");
    by_json_out_key(o, "created");
    by_json_out_int(o, h->started_s);
    by_json_out_key(o, "owned_by");
    by_json_out_z(o, "bathyc");
    by_json_out_key(o, "max_model_len");
    by_json_out_int(o, by_service_max_context(h->service));
    by_json_out_object_end(o);
}

void by_handle_models(by_exchange *ex, by_str id) {
    by_buf b = {0};
    uint32_t n;
    (void)id;
    const by_api_model_name *names = by_service_names(ex->http->service, &n);
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "object");
    by_json_out_z(&o, "list");
    by_json_out_key(&o, "data");
    by_json_out_array_begin(&o);
    for (uint32_t i = 0; i < n; i++) write_model(&o, ex->http, names[i].name);
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_model(by_exchange *ex, by_str id) {
    uint32_t n;
    const by_api_model_name *names = by_service_names(ex->http->service, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (!by_str_eq(names[i].name, id)) continue;
        by_buf b = {0};
        by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
        write_model(&o, ex->http, id);
        by_reply_json(ex, 200, by_buf_str(&b));
        by_buf_deinit(&b);
        return;
    }
    by_reply_error(ex, 404, "model_not_found", "the model '%.*s' does not exist", BY_STR_ARG(by_str_take(id, 200)));
}

/* ---- tokens ---- */

/* The body as an object, or an answer of 400 and false. */
static bool parse_body(by_exchange *ex, by_json *out) {
    by_err err;
    const by_json_opts o = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = ex->http->opts.body_bytes};
    by_status status = by_json_parse(out, &ex->arena, by_buf_str(&ex->body), &o, &err);
    if (status == BY_ENOMEM) by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
    else if (status < 0) by_reply_error(ex, 400, NULL, "the body is no JSON: %s", err.msg);
    else if (out->type != BY_JSON_OBJECT) by_reply_error(ex, 400, NULL, "the body must be an object");
    else return true;
    return false;
}

/* Ids of a request's prompt; the problem is answered. The caller destroys *call. */
static const int32_t *prompt_ids(by_exchange *ex, by_api_kind api, by_str body, by_call **call, size_t *n) {
    by_err err;
    by_call_opts o = {.api = api, .body = body, .scratch = ex->http->tok_scratch, .prompt_only = true};
    by_status status = by_call_start(call, ex->http->service, &o, &err);
    if (status >= 0) return by_call_prompt(*call, 0, n);
    const by_call_problem *p = *call ? by_call_problem_get(*call) : NULL;
    if (p) by_reply_error(ex, p->http_status, p->code, "%s", p->message);
    else by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
    return NULL;
}

void by_handle_count_tokens(by_exchange *ex, by_str id) {
    by_call *call = NULL;
    size_t n = 0;
    (void)id;
    if (prompt_ids(ex, BY_API_MESSAGES, by_buf_str(&ex->body), &call, &n)) {
        by_buf b = {0};
        by_buf_printf(&b, "{\"input_tokens\":%zu}", n);
        by_reply_json(ex, 200, by_buf_str(&b));
        by_buf_deinit(&b);
    }
    by_call_destroy(call);
}

static void reply_tokens(by_exchange *ex, const int32_t *ids, size_t n) {
    by_buf b = {0};
    by_buf_printf(&b, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", n, (long long)by_service_max_context(ex->http->service));
    for (size_t i = 0; i < n; i++) {
        if (i) by_buf_push_byte(&b, ',');
        by_json_write_int(&b, ids[i]);
    }
    by_buf_push_z(&b, "]}");
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

/* Is the model one of ours, or not named? False: answered. */
static bool check_model(by_exchange *ex, const by_json *model) {
    uint32_t n;
    const by_api_model_name *names = by_service_names(ex->http->service, &n);
    if (!model || model->type == BY_JSON_NULL) return true;
    for (uint32_t i = 0; i < n && model->type == BY_JSON_STRING; i++)
        if (by_str_eq(names[i].name, model->v.s)) return true;
    by_reply_error(ex, 400, NULL, "model: want a name of /v1/models");
    return false;
}

static void tokenize_text(by_exchange *ex, by_str text) {
    by_tok_ids ids = {0};
    by_err err;
    if (by_tok_encode(by_service_tok(ex->http->service), ex->http->tok_scratch, text, BY_TOK_PLAIN, &ids, &err) < 0)
        by_reply_error(ex, 400, NULL, "prompt: %s", err.msg);
    else
        reply_tokens(ex, ids.ids, ids.n);
    by_tok_ids_deinit(&ids);
}

/* The body with the model's name, where it has none. */
static by_str with_model(by_exchange *ex, const by_json *body, by_buf *out) {
    const by_json *model = by_json_get(body, "model");
    if (model && model->type != BY_JSON_NULL) return by_buf_str(&ex->body);
    uint32_t n;
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "model");
    by_json_out_string(&o, by_service_names(ex->http->service, &n)[0].name);
    for (uint32_t i = 0; i < body->n; i++) {
        if (by_str_eqz(body->v.members[i].key, "model")) continue;
        by_json_out_key_str(&o, body->v.members[i].key);
        by_json_out_value(&o, &body->v.members[i].value);
    }
    by_json_out_object_end(&o);
    return by_buf_str(out);
}

void by_handle_tokenize(by_exchange *ex, by_str id) {
    by_json body;
    (void)id;
    if (!parse_body(ex, &body)) return;
    const by_json *prompt = by_json_get(&body, "prompt"), *messages = by_json_get(&body, "messages");
    const by_json *special = by_json_get(&body, "add_special_tokens");
    if (!prompt == !messages) {
        by_reply_error(ex, 400, NULL, "one of prompt and messages is needed");
        return;
    }
    if (prompt && prompt->type != BY_JSON_STRING) {
        by_reply_error(ex, 400, NULL, "prompt: want a text");
        return;
    }
    if (prompt && (by_json_is(special, BY_JSON_BOOL) && !special->v.b)) {
        if (check_model(ex, by_json_get(&body, "model"))) tokenize_text(ex, prompt->v.s);
        return;
    }
    by_call *call = NULL;
    by_buf changed = {0};
    size_t n = 0;
    by_str text = with_model(ex, &body, &changed);
    const int32_t *ids = prompt_ids(ex, prompt ? BY_API_COMPLETIONS : BY_API_CHAT, text, &call, &n);
    if (ids) reply_tokens(ex, ids, n);
    by_call_destroy(call);
    by_buf_deinit(&changed);
}

void by_handle_detokenize(by_exchange *ex, by_str id) {
    by_json body;
    (void)id;
    if (!parse_body(ex, &body)) return;
    const by_json *tokens = by_json_get(&body, "tokens");
    if (!by_json_is(tokens, BY_JSON_ARRAY)) {
        by_reply_error(ex, 400, NULL, "tokens: want a list of ids");
        return;
    }
    int32_t *ids = by_arena_alloc(&ex->arena, by_mul_size(tokens->n, sizeof *ids));
    for (uint32_t i = 0; ids && i < tokens->n; i++) {
        int64_t v;
        if (!by_json_int_in(&tokens->v.items[i], 0, INT32_MAX, &v)) {
            by_reply_error(ex, 400, NULL, "tokens[%u]: want an id", i);
            return;
        }
        ids[i] = (int32_t)v;
    }
    by_buf text = {0}, clean = {0}, out = {0};
    by_err err;
    by_status status = ids ? by_tok_decode(by_service_tok(ex->http->service), ids, tokens->n, false, &text, &err) : BY_ENOMEM;
    if (status == BY_ENOMEM) by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
    else if (status < 0) by_reply_error(ex, 400, NULL, "tokens: %s", err.msg);
    else {
        by_utf8_push_lossy(&clean, by_buf_str(&text));
        by_json_out o = by_json_out_init(&out, BY_JSON_COMPACT);
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "prompt");
        by_json_out_string(&o, by_buf_str(&clean));
        by_json_out_object_end(&o);
        by_reply_json(ex, 200, by_buf_str(&out));
    }
    by_buf_deinit(&text);
    by_buf_deinit(&clean);
    by_buf_deinit(&out);
}
