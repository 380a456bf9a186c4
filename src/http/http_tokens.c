/* http_tokens.c - texts to token ids and back: /tokenize, /detokenize, /v1/messages/count_tokens. A body may hold 32 MiB of text, which
 * takes seconds: they are tasks. */
#include <string.h>

#include "base/utf8.h"
#include "http/http_task.h"

/* ---- what tasks do ---- */

/* Ids of a request's prompt, or a refusal and NULL. The caller destroys *call. */
static const int32_t *prompt_ids(by_task *t, by_tok_scratch *scratch, by_api_kind api, by_str body, by_call **call, size_t *n) {
    by_err err;
    by_call_opts o = {.api = api, .body = body, .scratch = scratch, .prompt_only = true};
    by_status status = by_call_start(call, t->http->service, &o, &err);
    if (status >= 0) return by_call_prompt(*call, 0, n);
    const by_call_problem *p = *call ? by_call_problem_get(*call) : NULL;
    if (p) by_task_refuse(t, p->http_status, p->code, p->param, "%s", p->message);
    else by_task_no_memory(t);
    return NULL;
}

static void count_tokens(by_task *t, by_tok_scratch *scratch) {
    by_call *call = NULL;
    size_t n = 0;
    if (prompt_ids(t, scratch, BY_API_MESSAGES, by_buf_str(&t->body), &call, &n)) by_buf_printf(&t->out, "{\"input_tokens\":%zu}", n);
    by_call_destroy(call);
}

static void write_tokens(by_task *t, const int32_t *ids, size_t n) {
    by_buf *b = &t->out;
    by_buf_printf(b, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", n, (long long)by_service_max_context(t->http->service));
    for (size_t i = 0; i < n; i++) {
        if (i) by_buf_push_byte(b, ',');
        by_json_write_int(b, ids[i]);
    }
    by_buf_push_z(b, "]}");
}

/* Is the model one of ours, or not named? */
static bool check_model(by_task *t, const by_json *model) {
    uint32_t n;
    const by_api_model_name *names = by_service_names(t->http->service, &n);
    if (!model || model->type == BY_JSON_NULL) return true;
    for (uint32_t i = 0; i < n && model->type == BY_JSON_STRING; i++)
        if (by_str_eq(names[i].name, model->v.s)) return true;
    bool unknown = model->type == BY_JSON_STRING;
    by_task_refuse(t, unknown ? 404 : 400, unknown ? "model_not_found" : NULL, "model", "model: want a name of /v1/models");
    return false;
}

static void tokenize_text(by_task *t, by_tok_scratch *scratch, by_str text) {
    by_tok_ids ids = {0};
    by_err err;
    by_status status = by_tok_encode(by_service_tok(t->http->service), scratch, text, BY_TOK_PLAIN, &ids, &err);
    if (status == BY_ENOMEM) by_task_no_memory(t);
    else if (status < 0) by_task_refuse(t, 400, NULL, "prompt", "prompt: %s", err.msg);
    else write_tokens(t, ids.ids, ids.n);
    by_tok_ids_deinit(&ids);
}

/* The body with the model's name, where it has none. */
static by_str with_model(by_task *t, const by_json *body, by_buf *out) {
    const by_json *model = by_json_get(body, "model");
    if (model && model->type != BY_JSON_NULL) return by_buf_str(&t->body);
    uint32_t n;
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "model");
    by_json_out_string(&o, by_service_names(t->http->service, &n)[0].name);
    for (uint32_t i = 0; i < body->n; i++) {
        if (by_str_eqz(body->v.members[i].key, "model")) continue;
        by_json_out_key_str(&o, body->v.members[i].key);
        by_json_out_value(&o, &body->v.members[i].value);
    }
    by_json_out_object_end(&o);
    return by_buf_str(out);
}

static void tokenize(by_task *t, by_tok_scratch *scratch) {
    by_json body;
    if (!by_task_parse(t, &body)) return;
    const by_json *prompt = by_json_get(&body, "prompt"), *messages = by_json_get(&body, "messages");
    const by_json *special = by_json_get(&body, "add_special_tokens");
    if (!prompt == !messages) {
        by_task_refuse(t, 400, "missing_required_parameter", "prompt", "one of prompt and messages is needed");
    } else if (prompt && prompt->type != BY_JSON_STRING) {
        by_task_refuse(t, 400, NULL, "prompt", "prompt: want a text");
    } else if (special && special->type != BY_JSON_BOOL && special->type != BY_JSON_NULL) {
        by_task_refuse(t, 400, NULL, "add_special_tokens", "add_special_tokens: want true or false");
    } else if (prompt && by_json_is(special, BY_JSON_BOOL) && !special->v.b) {
        if (check_model(t, by_json_get(&body, "model"))) tokenize_text(t, scratch, prompt->v.s);
    } else {
        by_call *call = NULL;
        by_buf changed = {0};
        size_t n = 0;
        by_str text = with_model(t, &body, &changed);
        const int32_t *ids = changed.failed ? NULL : prompt_ids(t, scratch, prompt ? BY_API_COMPLETIONS : BY_API_CHAT, text, &call, &n);
        if (ids) write_tokens(t, ids, n);
        else if (changed.failed) by_task_no_memory(t);
        by_call_destroy(call);
        by_buf_deinit(&changed);
    }
}

static void count_response(by_task *t, by_tok_scratch *scratch) {
    by_json body;
    by_buf changed = {0};
    by_call *call = NULL;
    size_t n = 0;
    if (!by_task_parse(t, &body)) return;
    by_str text = with_model(t, &body, &changed);
    if (changed.failed) by_task_no_memory(t);
    else if (prompt_ids(t, scratch, BY_API_RESPONSES, text, &call, &n))
        by_buf_printf(&t->out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
    by_call_destroy(call);
    by_buf_deinit(&changed);
}

static void detokenize(by_task *t, by_tok_scratch *scratch) {
    by_json body;
    (void)scratch;
    if (!by_task_parse(t, &body) || !check_model(t, by_json_get(&body, "model"))) return;
    const by_json *tokens = by_json_get(&body, "tokens");
    if (!by_json_is(tokens, BY_JSON_ARRAY)) {
        by_task_refuse(t, 400, NULL, "tokens", "tokens: want a list of ids");
        return;
    }
    int32_t *ids = by_arena_alloc(&t->arena, by_mul_size(tokens->n, sizeof *ids));
    for (uint32_t i = 0; ids && i < tokens->n; i++) {
        int64_t v;
        if (!by_json_int_in(&tokens->v.items[i], 0, INT32_MAX, &v)) {
            by_task_refuse(t, 400, NULL, "tokens", "tokens[%u]: want an id", i);
            return;
        }
        if (!by_tok_bytes(by_service_tok(t->http->service), (int32_t)v).ptr) {
            by_task_refuse(t, 400, NULL, "tokens", "tokens[%u]: %lld is no token of this model", i, (long long)v);
            return;
        }
        ids[i] = (int32_t)v;
    }
    by_buf text = {0}, clean = {0};
    by_err err;
    by_status status = ids ? by_tok_decode(by_service_tok(t->http->service), ids, tokens->n, false, &text, &err) : BY_ENOMEM;
    if (status == BY_OK && !by_utf8_push_lossy(&clean, by_buf_str(&text))) status = BY_ENOMEM;
    if (status == BY_ENOMEM) by_task_no_memory(t);
    else if (status < 0) by_task_refuse(t, 400, NULL, "tokens", "tokens: %s", err.msg);
    else {
        by_json_out o = by_json_out_init(&t->out, BY_JSON_COMPACT);
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "prompt");
        by_json_out_string(&o, by_buf_str(&clean));
        by_json_out_object_end(&o);
    }
    by_buf_deinit(&text);
    by_buf_deinit(&clean);
}

/* ---- handlers ---- */

void by_count_response_tokens(by_exchange *ex) {
    static const by_task_kind kind = {.work = count_response};
    by_task_start(ex, &kind, (by_str){0});
}

void by_handle_count_tokens(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = count_tokens};
    by_task_start(ex, &kind, id);
}
void by_handle_tokenize(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = tokenize};
    by_task_start(ex, &kind, id);
}
void by_handle_detokenize(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = detokenize};
    by_task_start(ex, &kind, id);
}
