/* http_task.c - see http_task.h. */
#include "http/http_task.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

void by_task_refuse(by_task *t, int status, const char *code, const char *field, const char *fmt, ...) {
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

void by_task_no_memory(by_task *t) { by_task_refuse(t, 503, "out_of_memory", "", "out of memory for a request"); }

bool by_task_parse(by_task *t, by_json *out) {
    by_err err;
    const by_json_opts o = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = t->http->opts.body_bytes};
    by_status status = by_json_parse(out, &t->arena, by_buf_str(&t->body), &o, &err);
    if (status == BY_ENOMEM) by_task_no_memory(t);
    else if (status < 0) by_task_refuse(t, 400, NULL, "", "the body is no JSON: %s", err.msg);
    else if (out->type != BY_JSON_OBJECT) by_task_refuse(t, 400, NULL, "", "the body must be a JSON object");
    else return true;
    return false;
}

/* ---- their life ---- */

static void task_free(by_task *t) {
    by_http *h = t->http;
    if (t->prev) t->prev->next = t->next;
    else h->tasks = t->next;
    if (t->next) t->next->prev = t->prev;
    h->n_body_bytes -= t->counted_bytes;
    if (t->kind->drop && t->own) t->kind->drop(t->own);
    by_buf_deinit(&t->body);
    by_buf_deinit(&t->out);
    by_arena_deinit(&t->arena);
    by_free(t);
}

static void answer(by_task *t, by_exchange *ex) {
    by_str text = by_buf_str(&t->out);
    if (t->status != 200 && t->field[0]) by_reply_refusal(ex, t->status, t->code, t->field, "%.*s", BY_STR_ARG(text));
    else if (t->status != 200) by_reply_error(ex, t->status, t->code, "%.*s", BY_STR_ARG(text));
    else if (t->kind->done) t->kind->done(t, ex);
    else if (t->out.failed) by_reply_error(ex, 503, "out_of_memory", "out of memory for an answer");
    else by_reply_json(ex, 200, text);
}

static void on_worker(void *arg, by_tok_scratch *scratch) {
    by_task *t = arg;
    if (!atomic_load(&t->left)) t->kind->work(t, scratch);
    by_loop_post(t->http->loop, &t->post);
}

static void on_done(void *arg) {
    by_task *t = arg;
    by_exchange *ex = t->ex;
    by_conn *c = ex ? ex->conn : NULL;
    if (ex) {
        ex->ops = NULL;
        ex->job = NULL;
        answer(t, ex);
    }
    task_free(t);
    if (c) by_conn_next(c); /* a connection is freed at the end of a round, not before */
}

/* Freed when the worker is done with it, or has passed it by. */
static void abandon(void *arg) {
    by_task *t = arg;
    t->ex = NULL;
    atomic_store(&t->left, true);
}
static const by_job_ops ops = {.abandon = abandon};

void by_task_start(by_exchange *ex, const by_task_kind *kind, by_str id) {
    by_http *h = ex->http;
    by_task *t = by_alloc_zero(BY_MEM_HTTP, sizeof *t);
    if (!t) {
        by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
        return;
    }
    *t = (by_task){.post = {.fn = on_done, .arg = t}, .by_worker = {.fn = on_worker, .arg = t}, .kind = kind, .http = h, .ex = ex,
                   .id = id, .status = 200, .rng = {by_rng_u64(&h->rng)}};
    by_arena_init(&t->arena, BY_MEM_HTTP);
    t->body = by_exchange_take_body(ex);
    t->counted_bytes = t->body.cap;
    h->n_body_bytes += t->counted_bytes;
    t->next = h->tasks;
    if (h->tasks) h->tasks->prev = t;
    h->tasks = t;
    if (kind->own_bytes) t->own = by_arena_zero(&t->arena, kind->own_bytes);
    if (kind->own_bytes && !t->own) by_task_no_memory(t);
    if (t->status != 200 || t->body.len <= BY_TASK_INLINE_BYTES) {
        if (t->status == 200) kind->work(t, h->tok_scratch);
        answer(t, ex);
        task_free(t);
        return;
    }
    ex->ops = &ops;
    ex->job = t;
    by_worker_add(h->worker, &t->by_worker);
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
