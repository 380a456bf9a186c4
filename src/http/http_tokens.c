/* http_tokens.c - texts to token ids and back: /tokenize, /detokenize, /v1/messages/count_tokens.
 *
 * A body may hold 32 MiB of text, which takes seconds. Short ones are answered at once; a long one is a task for the worker, and
 * its answer comes back to the loop as a post. A task owns its body; it does not touch its exchange, whose client may leave. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "http/http_impl.h"

enum { INLINE_BYTES_MAX = 16384 }; /* as in http_call.c */

typedef struct by_task by_task;
struct by_task {
    by_post post;
    by_work work;
    by_task *prev, *next; /* of by_http.tasks */
    by_http *http;
    by_exchange *ex;      /* NULL: nobody waits for it. Loop's thread */
    atomic_bool left;     /* the same for the worker, which then need not begin */
    void (*fn)(by_task *t, by_tok_scratch *scratch);
    by_arena arena;
    by_buf body;
    size_t counted_bytes; /* in by_http.n_body_bytes */
    by_buf out;           /* the answer's JSON, or the message of a refusal */
    int status;
    const char *code;     /* of a refusal; NULL = by status; static */
    char field[128];      /* that is at fault; empty = none */
};

static void __attribute__((format(printf, 5, 6)))
refuse(by_task *t, int status, const char *code, const char *field, const char *fmt, ...) {
    char text[BY_ERR_MSG_MAX + 64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    by_buf_clear(&t->out);
    by_buf_push_z(&t->out, text);
    t->status = status;
    t->code = code ? code : *field ? "invalid_value" : NULL;
    snprintf(t->field, sizeof t->field, "%s", field);
}

static void no_memory(by_task *t) { refuse(t, 503, "out_of_memory", "", "out of memory for a request"); }

/* ---- what tasks do ---- */

/* The body as an object, or a refusal and false. */
static bool parse_body(by_task *t, by_json *out) {
    by_err err;
    const by_json_opts o = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = t->http->opts.body_bytes};
    by_status status = by_json_parse(out, &t->arena, by_buf_str(&t->body), &o, &err);
    if (status == BY_ENOMEM) no_memory(t);
    else if (status < 0) refuse(t, 400, NULL, "", "the body is no JSON: %s", err.msg);
    else if (out->type != BY_JSON_OBJECT) refuse(t, 400, NULL, "", "the body must be an object");
    else return true;
    return false;
}

/* Ids of a request's prompt, or a refusal and NULL. The caller destroys *call. */
static const int32_t *prompt_ids(by_task *t, by_tok_scratch *scratch, by_api_kind api, by_str body, by_call **call, size_t *n) {
    by_err err;
    by_call_opts o = {.api = api, .body = body, .scratch = scratch, .prompt_only = true};
    by_status status = by_call_start(call, t->http->service, &o, &err);
    if (status >= 0) return by_call_prompt(*call, 0, n);
    const by_call_problem *p = *call ? by_call_problem_get(*call) : NULL;
    if (p) refuse(t, p->http_status, p->code, p->param, "%s", p->message);
    else no_memory(t);
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
    refuse(t, unknown ? 404 : 400, unknown ? "model_not_found" : NULL, "model", "model: want a name of /v1/models");
    return false;
}

static void tokenize_text(by_task *t, by_tok_scratch *scratch, by_str text) {
    by_tok_ids ids = {0};
    by_err err;
    by_status status = by_tok_encode(by_service_tok(t->http->service), scratch, text, BY_TOK_PLAIN, &ids, &err);
    if (status == BY_ENOMEM) no_memory(t);
    else if (status < 0) refuse(t, 400, NULL, "prompt", "prompt: %s", err.msg);
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
    if (!parse_body(t, &body)) return;
    const by_json *prompt = by_json_get(&body, "prompt"), *messages = by_json_get(&body, "messages");
    const by_json *special = by_json_get(&body, "add_special_tokens");
    if (!prompt == !messages) {
        refuse(t, 400, "missing_required_parameter", "prompt", "one of prompt and messages is needed");
    } else if (prompt && prompt->type != BY_JSON_STRING) {
        refuse(t, 400, NULL, "prompt", "prompt: want a text");
    } else if (special && special->type != BY_JSON_BOOL && special->type != BY_JSON_NULL) {
        refuse(t, 400, NULL, "add_special_tokens", "add_special_tokens: want true or false");
    } else if (prompt && by_json_is(special, BY_JSON_BOOL) && !special->v.b) {
        if (check_model(t, by_json_get(&body, "model"))) tokenize_text(t, scratch, prompt->v.s);
    } else {
        by_call *call = NULL;
        by_buf changed = {0};
        size_t n = 0;
        by_str text = with_model(t, &body, &changed);
        const int32_t *ids = changed.failed ? NULL : prompt_ids(t, scratch, prompt ? BY_API_COMPLETIONS : BY_API_CHAT, text, &call, &n);
        if (ids) write_tokens(t, ids, n);
        else if (changed.failed) no_memory(t);
        by_call_destroy(call);
        by_buf_deinit(&changed);
    }
}

static void detokenize(by_task *t, by_tok_scratch *scratch) {
    by_json body;
    (void)scratch;
    if (!parse_body(t, &body) || !check_model(t, by_json_get(&body, "model"))) return;
    const by_json *tokens = by_json_get(&body, "tokens");
    if (!by_json_is(tokens, BY_JSON_ARRAY)) {
        refuse(t, 400, NULL, "tokens", "tokens: want a list of ids");
        return;
    }
    int32_t *ids = by_arena_alloc(&t->arena, by_mul_size(tokens->n, sizeof *ids));
    for (uint32_t i = 0; ids && i < tokens->n; i++) {
        int64_t v;
        if (!by_json_int_in(&tokens->v.items[i], 0, INT32_MAX, &v)) {
            refuse(t, 400, NULL, "tokens", "tokens[%u]: want an id", i);
            return;
        }
        if (!by_tok_bytes(by_service_tok(t->http->service), (int32_t)v).ptr) {
            refuse(t, 400, NULL, "tokens", "tokens[%u]: %lld is no token of this model", i, (long long)v);
            return;
        }
        ids[i] = (int32_t)v;
    }
    by_buf text = {0}, clean = {0};
    by_err err;
    by_status status = ids ? by_tok_decode(by_service_tok(t->http->service), ids, tokens->n, false, &text, &err) : BY_ENOMEM;
    if (status == BY_OK && !by_utf8_push_lossy(&clean, by_buf_str(&text))) status = BY_ENOMEM;
    if (status == BY_ENOMEM) no_memory(t);
    else if (status < 0) refuse(t, 400, NULL, "tokens", "tokens: %s", err.msg);
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

/* ---- their life ---- */

static void task_free(by_task *t) {
    by_http *h = t->http;
    if (t->prev) t->prev->next = t->next;
    else h->tasks = t->next;
    if (t->next) t->next->prev = t->prev;
    h->n_body_bytes -= t->counted_bytes;
    by_buf_deinit(&t->body);
    by_buf_deinit(&t->out);
    by_arena_deinit(&t->arena);
    by_free(t);
}

static void answer(by_task *t) {
    by_exchange *ex = t->ex;
    if (t->status != 200 && t->field[0]) by_reply_refusal(ex, t->status, t->code, t->field, "%.*s", BY_STR_ARG(by_buf_str(&t->out)));
    else if (t->status != 200) by_reply_error(ex, t->status, t->code, "%.*s", BY_STR_ARG(by_buf_str(&t->out)));
    else if (t->out.failed) by_reply_error(ex, 503, "out_of_memory", "out of memory for an answer");
    else by_reply_json(ex, 200, by_buf_str(&t->out));
}

static void on_worker(void *arg, by_tok_scratch *scratch) {
    by_task *t = arg;
    if (!atomic_load(&t->left)) t->fn(t, scratch);
    by_loop_post(t->http->loop, &t->post);
}

static void on_done(void *arg) {
    by_task *t = arg;
    by_exchange *ex = t->ex;
    if (ex) {
        answer(t);
        ex->ops = NULL;
        ex->job = NULL;
    }
    task_free(t);
    if (ex) by_conn_next(ex->conn);
}

/* Freed when the worker is done with it, or has passed it by. */
static void abandon(void *arg) {
    by_task *t = arg;
    t->ex = NULL;
    atomic_store(&t->left, true);
}
static const by_job_ops ops = {.abandon = abandon};

static void start(by_exchange *ex, void (*fn)(by_task *, by_tok_scratch *)) {
    by_http *h = ex->http;
    by_task *t = by_alloc_zero(BY_MEM_HTTP, sizeof *t);
    if (!t) {
        by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
        return;
    }
    *t = (by_task){.post = {.fn = on_done, .arg = t}, .work = {.fn = on_worker, .arg = t}, .http = h, .ex = ex, .fn = fn, .status = 200};
    by_arena_init(&t->arena, BY_MEM_HTTP);
    t->body = by_exchange_take_body(ex);
    t->counted_bytes = t->body.cap;
    h->n_body_bytes += t->counted_bytes;
    t->next = h->tasks;
    if (h->tasks) h->tasks->prev = t;
    h->tasks = t;
    if (t->body.len <= INLINE_BYTES_MAX) {
        fn(t, h->tok_scratch);
        answer(t);
        task_free(t);
        return;
    }
    ex->ops = &ops;
    ex->job = t;
    by_worker_add(h->worker, &t->work);
}

void by_tasks_abort(by_http *h) {
    for (by_task *t = h->tasks, *next; t; t = next) {
        next = t->next;
        if (t->ex) {
            t->ex->ops = NULL;
            t->ex->job = NULL;
            t->ex = NULL;
        }
        if (!atomic_load(&t->post.queued)) task_free(t); /* else on_done frees it: the loop runs its posts when it is destroyed */
    }
}

/* ---- handlers ---- */

void by_handle_count_tokens(by_exchange *ex, by_str id) {
    (void)id;
    start(ex, count_tokens);
}
void by_handle_tokenize(by_exchange *ex, by_str id) {
    (void)id;
    start(ex, tokenize);
}
void by_handle_detokenize(by_exchange *ex, by_str id) {
    (void)id;
    start(ex, detokenize);
}
