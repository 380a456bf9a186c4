/* http_call.c - see http_call.h.
 *
 *   start (loop, or the worker for long bodies) -> started -> pump, pump, ... -> finish
 *
 * The engine's threads post the job; the loop pumps it: each event becomes a server-sent event in the connection's buffer.
 * When that buffer is longer than its limit the job does not pump, the engine's queue for this request fills, and the
 * request pauses, without any other noticing. */
#include "http/http_call.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { INLINE_BYTES_MAX = 16384 }; /* longer bodies are converted on the worker: about a millisecond of work */

struct by_job {
    by_post post, worked; /* from the engine; from the worker, which says nothing more afterwards */
    by_work work;
    by_job *prev, *next;
    by_http *http;
    by_exchange *ex;      /* NULL: nobody waits for it */
    by_call *call;
    by_buf body;          /* until the call has its copy */
    size_t counted_bytes; /* in by_http.n_body_bytes: of body, then of that copy */
    by_arena arena;
    by_str id, previous_response_id, conversation_id;
    bool store;
    by_api_kind api;
    by_job_hooks hooks;
    bool working; /* the worker has it; cleared on the loop's thread only, so that nobody frees what the worker still touches */
    bool started, dead, stream, background;
    atomic_bool cancelled; /* read by the worker */
    int64_t received_us, event_ns;
    uint64_t n_events;
    by_err err;
    by_status status;
};

static void resume(void *arg);
static void abandon(void *arg);
static const by_job_ops ops = {resume, abandon};

/* ---- life ---- */

static void free_when_silent(by_job *j) {
    if (!atomic_load(&j->post.queued) && !atomic_load(&j->worked.queued)) by_free(j);
}

/* No more news after this. The memory stays while a piece of news is on its way. */
static void destroy(by_job *j) {
    by_http *h = j->http;
    by_call_destroy(j->call);
    j->call = NULL;
    if (j->prev) j->prev->next = j->next;
    else h->jobs = j->next;
    if (j->next) j->next->prev = j->prev;
    h->n_jobs--;
    h->n_body_bytes -= j->counted_bytes;
    by_buf_deinit(&j->body);
    by_arena_deinit(&j->arena);
    j->dead = true;
    free_when_silent(j);
}

static by_metrics_finish finish_of(const by_job *j, const by_call_problem *p) {
    if (j->cancelled) return BY_FINISH_CANCELLED;
    if (p) return BY_FINISH_ERROR;
    switch (by_call_end(j->call)) {
    case BY_END_CALLS: return BY_FINISH_TOOL_CALLS;
    case BY_END_LENGTH: return BY_FINISH_LENGTH;
    default: return BY_FINISH_STOP;
    }
}

static void count(by_job *j, const by_call_problem *p) {
    if (!j->call) return;
    by_request_info t = by_call_times(j->call);
    if (!t.submit_us) return;
    by_answer_usage u = by_call_usage(j->call);
    const by_api_inference *inf = &by_call_request(j->call)->inference;
    by_metrics_request r = {.received_us = j->received_us, .submit_us = t.submit_us, .start_us = t.start_us, .first_us = t.first_us,
                            .end_us = by_clock_ns() / 1000, .n_prompt = (int64_t)u.prompt_tokens, .n_cached = (int64_t)u.cached_tokens,
                            .n_output = (int64_t)u.completion_tokens, .n_reasoning = (int64_t)u.reasoning_tokens,
                            .max_tokens = inf->has_max_tokens ? inf->max_tokens : 0, .finish = finish_of(j, p)};
    by_metrics_count_request(j->http->metrics, &r);
}

/* ---- the end ---- */

static void write_problem_event(by_job *j, const by_call_problem *p) {
    by_exchange *ex = j->ex;
    by_buf json = {0};
    by_str message = by_str_z(p->message);
    if (j->api == BY_API_RESPONSES) {
        by_json_out o = by_json_out_init(&json, BY_JSON_COMPACT);
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "type");
        by_json_out_z(&o, "error");
        by_json_out_key(&o, "code");
        by_json_out_z(&o, p->code);
        by_json_out_key(&o, "message");
        by_json_out_string(&o, message);
        by_json_out_key(&o, "param");
        by_json_out_z(&o, p->param[0] ? p->param : NULL);
        by_json_out_key(&o, "sequence_number");
        by_json_out_uint(&o, j->n_events);
        by_json_out_object_end(&o);
    } else {
        by_error_write(&json, ex->anthropic, p->http_status, p->type, p->code, p->param, message, by_str_z(ex->request_id));
    }
    bool named = ex->anthropic || j->api == BY_API_RESPONSES;
    by_api_write_sse(by_reply_out(ex), named ? "error" : NULL, by_buf_str(&json));
    by_buf_deinit(&json);
}

static void tell_problem(by_job *j, const by_call_problem *p) {
    by_exchange *ex = j->ex;
    if (p->http_status == 429) by_metrics_add(j->http->metrics, BY_COUNT_REFUSED_BUSY, 1);
    if (ex->streams) {
        write_problem_event(j, p);
        const char *done = by_api_done_data(j->api);
        if (done) by_api_write_sse(by_reply_out(ex), NULL, by_str_z(done));
        by_reply_end(ex);
        return;
    }
    by_buf json = {0};
    by_error_write(&json, ex->anthropic, p->http_status, p->type, p->code, p->param, by_str_z(p->message), by_str_z(ex->request_id));
    if (p->http_status == 429 || p->http_status == 503) by_reply_header(ex, "Retry-After", "1");
    by_reply_json(ex, p->http_status, by_buf_str(&json));
    by_buf_deinit(&json);
}

static void tell_answer(by_job *j, by_str whole) {
    by_exchange *ex = j->ex;
    if (!ex->streams) {
        by_reply_json(ex, 200, whole);
        return;
    }
    const char *done = by_api_done_data(j->api);
    if (done) by_api_write_sse(by_reply_out(ex), NULL, by_str_z(done));
    by_reply_end(ex);
}

static void finish(by_job *j, const by_call_problem *p) {
    by_buf whole = {0};
    by_call_problem own;
    count(j, p);
    if (!p && (j->hooks.whole || !j->stream)) {
        by_err err;
        if (by_call_write_whole(j->call, &whole, &err) < 0) {
            own = (by_call_problem){.http_status = 503, .type = "server_error", .code = "out_of_memory"};
            memcpy(own.message, "out of memory for the answer", sizeof "out of memory for the answer");
            p = &own;
        }
    }
    if (j->hooks.ended) j->hooks.ended(j->hooks.arg, j, p, p ? (by_str){0} : by_buf_str(&whole));
    by_exchange *ex = j->ex;
    if (ex) {
        if (p) tell_problem(j, p);
        else tell_answer(j, by_buf_str(&whole));
        ex->ops = NULL;
        ex->job = NULL;
    }
    by_buf_deinit(&whole);
    destroy(j);
    if (ex) by_conn_next(ex->conn);
}

static const by_call_problem no_memory = {.http_status = 503, .type = "server_error", .code = "out_of_memory",
                                          .message = "out of memory for a request"};
static const by_call_problem left = {.http_status = 499, .type = "server_error", .code = "cancelled", .message = "the client has left"};
static const by_call_problem cancelled = {.http_status = 409, .type = "server_error", .code = "cancelled",
                                          .message = "the response was cancelled"};

/* ---- news ---- */

static void on_event(void *ctx, const char *name, by_str json) {
    by_job *j = ctx;
    if (!j->ex) return;
    by_http *h = j->http;
    int64_t now = by_clock_ns();
    if (j->n_events++ > 0) by_metrics_observe(h->metrics, BY_HIST_INTER_TOKEN, now - j->event_ns);
    j->event_ns = now;
    by_metrics_add(h->metrics, BY_COUNT_STREAM_EVENTS, 1);
    by_api_write_sse(by_reply_out(j->ex), name, json);
}

static void pump(by_job *j) {
    by_exchange *ex = j->ex;
    if (ex && ex->conn->slow) return;
    if (by_call_pump(j->call, 0, &j->err) == BY_END) {
        finish(j, by_call_problem_get(j->call));
    } else if (ex && by_conn_unsent(ex->conn) > j->http->opts.output_bytes) {
        ex->conn->slow = true;
        by_metrics_add(j->http->metrics, BY_COUNT_SLOW_PAUSED, 1);
    }
}

/* by_call_start is done, on whatever thread. */
static void after_start(by_job *j) {
    j->started = true;
    j->http->n_body_bytes -= j->counted_bytes - j->body.len;
    j->counted_bytes = j->body.len;
    by_buf_deinit(&j->body);
    j->body = (by_buf){0};
    if (!j->call) {
        finish(j, &no_memory);
        return;
    }
    if (j->status < 0) {
        finish(j, by_call_problem_get(j->call) ? by_call_problem_get(j->call) : &no_memory);
        return;
    }
    j->stream = by_call_request(j->call)->stream;
    if (j->ex && j->stream) by_reply_begin(j->ex, "text/event-stream");
    pump(j);
}

static void on_post(void *arg) {
    by_job *j = arg;
    if (j->dead) {
        free_when_silent(j);
        return;
    }
    if (j->working) return; /* until on_worked */
    if (!j->started) {
        if (j->cancelled) finish(j, j->ex ? &cancelled : &left);
        else after_start(j);
        return;
    }
    pump(j);
}

static void on_worked(void *arg) {
    by_job *j = arg;
    j->working = false;
    on_post(j);
}

static void on_notify(void *arg) {
    by_job *j = arg;
    by_loop_post(j->http->loop, &j->post);
}

static void resume(void *arg) {
    by_job *j = arg;
    on_notify(j); /* soon, not from within the sending */
}

static void abandon(void *arg) {
    by_job *j = arg;
    j->ex = NULL;
    if (j->background) return;
    j->cancelled = true;
    if (!j->working) finish(j, &left); /* else when the worker is done with it */
}

void by_job_cancel(by_job *j) {
    j->cancelled = true;
    if (!j->working) finish(j, &cancelled);
}

/* ---- start ---- */

static void start_call(by_job *j, by_tok_scratch *scratch) {
    const by_http_opts *o = &j->http->opts;
    by_call_opts c = {.api = j->api, .body = by_buf_str(&j->body), .id = j->id, .scratch = scratch,
                      .as_requested = !j->background, .whole = j->background, .on_event = on_event, .ctx = j,
                      .usage_place = BY_API_USAGE_OWN_EVENT, .each_token = o->each_token, .store = j->store, .background = j->background,
                      .previous_response_id = j->previous_response_id, .conversation_id = j->conversation_id, .deadline_ms = o->answer_ms,
                      .notify = on_notify, .arg = j};
    if (j->background) c.on_event = NULL;
    j->status = by_call_start(&j->call, j->http->service, &c, &j->err);
}

static void on_worker(void *arg, by_tok_scratch *scratch) {
    by_job *j = arg;
    if (!j->cancelled) start_call(j, scratch);
    by_loop_post(j->http->loop, &j->worked);
}

/* Schemas and tools are compiled at the start, which may take long. */
static bool is_heavy(by_str body) {
    static const char *const words[] = {"\"response_format\"", "\"tools\"", "\"text\":{", "\"structured_outputs\"", "\"guided_"};
    if (body.len > INLINE_BYTES_MAX) return true;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (memmem(body.ptr, body.len, words[i], strlen(words[i]))) return true;
    return false;
}

void by_job_start(by_http *h, by_exchange *ex, const by_job_opts *opts, by_job **out) {
    if (out) *out = NULL;
    by_job *j = by_alloc_zero(BY_MEM_HTTP, sizeof *j);
    bool ok = j != NULL;
    if (j) {
        by_arena_init(&j->arena, BY_MEM_HTTP);
        j->id = by_arena_dup(&j->arena, opts->id);
        j->previous_response_id = by_arena_dup(&j->arena, opts->previous_response_id);
        j->conversation_id = by_arena_dup(&j->arena, opts->conversation_id);
        j->store = opts->store;
        j->body = *opts->body;
        *opts->body = (by_buf){0};
        if (!j->body.len) by_buf_z(&j->body); /* an empty body is no missing one */
        j->counted_bytes = j->body.cap;
        h->n_body_bytes += j->counted_bytes;
        ok = j->body.ptr && j->id.ptr && j->previous_response_id.ptr && j->conversation_id.ptr;
    }
    if (!ok) {
        if (j) {
            h->n_body_bytes -= j->counted_bytes;
            by_buf_deinit(&j->body);
            by_arena_deinit(&j->arena);
        }
        by_free(j);
        if (opts->hooks.ended) opts->hooks.ended(opts->hooks.arg, NULL, &no_memory, (by_str){0});
        if (ex) by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
        return;
    }
    j->post.fn = on_post;
    j->worked.fn = on_worked;
    j->post.arg = j->worked.arg = j;
    j->http = h;
    j->ex = ex;
    j->api = opts->api;
    j->background = opts->background;
    j->hooks = opts->hooks;
    j->received_us = ex ? ex->received_us : by_clock_ns() / 1000;
    j->next = h->jobs;
    if (h->jobs) h->jobs->prev = j;
    h->jobs = j;
    h->n_jobs++;
    if (ex) {
        ex->ops = &ops;
        ex->job = j;
    }
    if (out) *out = j;
    if (is_heavy(by_buf_str(&j->body)) || !ex) { /* without a client: not from within the caller */
        j->working = true;
        j->work = (by_work){.fn = on_worker, .arg = j};
        by_worker_add(h->worker, &j->work);
        return;
    }
    start_call(j, h->tok_scratch);
    after_start(j);
}

void by_jobs_abort(by_http *h) {
    for (by_job *j = h->jobs, *next; j; j = next) {
        next = j->next;
        if (j->ex) {
            j->ex->ops = NULL;
            j->ex->job = NULL;
        }
        destroy(j);
    }
}

void by_jobs_tick(by_http *h) {
    int64_t unsent = 0;
    for (by_job *j = h->jobs, *next; j; j = next) {
        next = j->next;
        if (j->ex) unsent += (int64_t)by_conn_unsent(j->ex->conn);
        if (j->started && j->call && by_call_waits(j->call)) on_notify(j); /* not now: the next request of a connection may end any job */
    }
    by_metrics_gauge_set(h->metrics, BY_GAUGE_OUTPUT_BUFFER_BYTES, unsent);
}

/* ---- handlers ---- */

static void handle(by_exchange *ex, by_api_kind api) {
    by_buf body = by_exchange_take_body(ex);
    by_job_opts o = {.api = api, .body = &body};
    by_job_start(ex->http, ex, &o, NULL);
    by_buf_deinit(&body);
}

void by_handle_chat(by_exchange *ex, by_str id) {
    (void)id;
    handle(ex, BY_API_CHAT);
}
void by_handle_completions(by_exchange *ex, by_str id) {
    (void)id;
    handle(ex, BY_API_COMPLETIONS);
}
void by_handle_messages(by_exchange *ex, by_str id) {
    (void)id;
    handle(ex, BY_API_MESSAGES);
}
