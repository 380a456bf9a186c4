/* http_batch.c - batches: the lines of an uploaded file, answered a few at a time beside everything else; results become files. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "http/http_files.h"
#include "http/http_list.h"
#include "http/http_task.h"

enum { AT_ONCE = 16, LINES_MAX = 50000, BATCHES_MAX = 256, METADATA_BYTES_MAX = 16384 };

typedef struct by_batch_run by_batch_run;

typedef struct {
    by_batch_run *batch; /* NULL = free */
    by_buf custom_id;
    by_job *job;
    size_t at, len; /* of the line in the input */
    bool again;     /* the engine's queue was full: to be started again */
    by_work reading; /* of a long line, beside the loop */
    by_post read;
    by_buf body;    /* of the request, once the line is read; or what is wrong with the line */
    bool wrong;
} slot;

struct by_batch_run {
    by_batch_run *next;
    by_http *http;
    char id[48], input_id[48], output_id[48], error_id[48];
    const char *endpoint, *status;
    by_api_kind api;
    by_buf input, output, errors, metadata; /* input: a copy, since its file may be deleted */
    size_t at;                              /* of the next line */
    int32_t n_running, n_total, n_done, n_failed;
    int64_t created, ended;
    bool cancelled, pumping, failed;
    size_t bytes;                           /* counted in by_files.bytes */
    slot slots[AT_ONCE];
};

static const char *const endpoints[] = {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"};

static void batch_free(by_batch_run *b) {
    for (int i = 0; i < AT_ONCE; i++) {
        by_buf_deinit(&b->slots[i].custom_id);
        by_buf_deinit(&b->slots[i].body);
    }
    by_buf_deinit(&b->input);
    by_buf_deinit(&b->output);
    by_buf_deinit(&b->errors);
    by_buf_deinit(&b->metadata);
    by_free(b);
}

void by_batches_free(by_files *f) {
    for (by_batch_run *b = f->batches, *next; b; b = next) {
        next = b->next;
        batch_free(b);
    }
    f->batches = NULL;
}

static size_t weight(const by_batch_run *b) {
    size_t bytes = sizeof *b + b->input.cap + b->output.cap + b->errors.cap + b->metadata.cap;
    for (int i = 0; i < AT_ONCE; i++) bytes += b->slots[i].custom_id.cap;
    return bytes;
}

/* Counts again what a batch holds. */
static void weigh(by_batch_run *b) {
    size_t bytes = weight(b);
    b->http->files->bytes += bytes - b->bytes;
    b->bytes = bytes;
}

/* Room for one more of the batches that are kept: the oldest that has ended goes. False: all of them run. */
static bool drop_oldest(by_files *f) {
    by_batch_run **oldest = NULL;
    int n = 0;
    for (by_batch_run **p = &f->batches; *p; p = &(*p)->next, n++)
        if ((*p)->ended) oldest = p; /* the newest is first */
    if (n < BATCHES_MAX) return true;
    if (!oldest) return false;
    by_batch_run *b = *oldest;
    *oldest = b->next;
    f->bytes -= b->bytes;
    batch_free(b);
    return true;
}

/* ---- result lines ---- */

/* body: the answer or the error object; code: of a line that is no request, then there is no response. */
static void add_row(by_batch_run *b, by_str custom_id, int status, by_str body, const char *code, const char *message) {
    by_buf *to = status == 200 ? &b->output : &b->errors;
    char id[48], request_id[48];
    snprintf(id, sizeof id, "batch_req_%016llx", (unsigned long long)by_rng_u64(&b->http->rng));
    snprintf(request_id, sizeof request_id, "req_%016llx", (unsigned long long)by_rng_u64(&b->http->rng));
    by_json_out o = by_json_out_init(to, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_z(&o, id);
    by_json_out_key(&o, "custom_id");
    if (custom_id.len) by_json_out_string(&o, custom_id);
    else by_json_out_null(&o);
    by_json_out_key(&o, "response");
    if (code) {
        by_json_out_null(&o);
    } else {
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "status_code");
        by_json_out_int(&o, status);
        by_json_out_key(&o, "request_id");
        by_json_out_z(&o, request_id);
        by_json_out_key(&o, "body");
        by_json_out_raw(&o, body);
        by_json_out_object_end(&o);
    }
    by_json_out_key(&o, "error");
    if (code) {
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "code");
        by_json_out_z(&o, code);
        by_json_out_key(&o, "message");
        by_json_out_z(&o, message);
        by_json_out_object_end(&o);
    } else {
        by_json_out_null(&o);
    }
    by_json_out_object_end(&o);
    by_buf_push_byte(to, '\n');
    if (status == 200) b->n_done++;
    else b->n_failed++;
    weigh(b);
    if (b->http->files->bytes > b->http->opts.store_bytes) b->failed = true;
}

static bool may_start(const by_batch_run *b) { return !b->cancelled && !b->failed && !b->http->draining; }

static void free_slot(slot *s) {
    s->batch->n_running--;
    s->batch = NULL;
    s->job = NULL;
    s->again = false;
}

static void pump(by_batch_run *b);

static void on_ended(void *arg, by_job *job, const by_call_problem *problem, by_str body) {
    slot *s = arg;
    by_batch_run *b = s->batch;
    by_buf error = {0};
    (void)job;
    if (problem && problem->http_status == 429 && may_start(b)) {
        s->job = NULL;
        s->again = true;
        return;
    }
    if (b->failed) { /* no room for its result */
        b->n_failed++;
        free_slot(s);
        pump(b);
        return;
    }
    if (problem) by_call_problem_write(&error, problem);
    add_row(b, by_buf_str(&s->custom_id), problem ? problem->http_status : 200, problem ? by_buf_str(&error) : body, NULL, NULL);
    by_buf_deinit(&error);
    free_slot(s);
    pump(b);
}

/* ---- lines ---- */

/* Touches nothing but the slot and the batch's input. */
static void read_line(slot *s) {
    const by_batch_run *b = s->batch;
    by_arena arena;
    by_json row;
    by_err err;
    const by_json_opts json = {.depth_max = BY_LIMIT_REQUEST_DEPTH + 1, .bytes_max = BY_LIMIT_REQUEST_BYTES};
    by_arena_init(&arena, BY_MEM_HTTP);
    bool ok = by_json_parse(&row, &arena, by_str_of(b->input.ptr + s->at, s->len), &json, &err) == BY_OK;
    const by_json *id = ok ? by_json_get(&row, "custom_id") : NULL, *method = ok ? by_json_get(&row, "method") : NULL;
    const by_json *url = ok ? by_json_get(&row, "url") : NULL, *v = ok ? by_json_get(&row, "body") : NULL;
    by_str custom_id = by_json_is(id, BY_JSON_STRING) ? id->v.s : (by_str){0};
    const char *wrong = !ok ? err.msg : !custom_id.len ? "custom_id: want a text that is not empty"
                        : !by_json_is(method, BY_JSON_STRING) || !by_str_eqz(method->v.s, "POST") ? "method: want \"POST\""
                        : !by_json_is(url, BY_JSON_STRING) || !by_str_eqz(url->v.s, b->endpoint) ? "url: want the batch's endpoint"
                        : !by_json_is(v, BY_JSON_OBJECT) ? "body: want an object" : "";
    by_buf_push_str(&s->custom_id, custom_id);
    if (!*wrong) by_json_write(&s->body, v, BY_JSON_COMPACT);
    else by_buf_push_z(&s->body, wrong);
    s->wrong = *wrong || s->custom_id.failed || s->body.failed;
    by_arena_deinit(&arena);
}

/* The line of a slot is read: starts its request. */
static void start_read(slot *s) {
    by_batch_run *b = s->batch;
    if (s->wrong || !may_start(b)) {
        const char *why = s->body.failed || s->custom_id.failed ? "out of memory for a request" : by_buf_z(&s->body);
        if (s->wrong) add_row(b, by_buf_str(&s->custom_id), 400, (by_str){0}, "invalid_line", why);
        free_slot(s);
        return;
    }
    by_job_opts o = {.api = b->api, .body = &s->body, .background = true, .hooks = {.ended = on_ended, .arg = s, .whole = true}};
    by_job_start(b->http, NULL, &o, &s->job);
}

static void on_reading(void *arg, by_tok_scratch *scratch) {
    slot *s = arg;
    (void)scratch;
    read_line(s);
    by_loop_post(s->batch->http->loop, &s->read);
}

static void on_read(void *arg) {
    slot *s = arg;
    by_batch_run *b = s->batch;
    if (!b->http->worker) return; /* the end of the server */
    start_read(s);
    pump(b);
}

static void start_line(by_batch_run *b, by_str line) {
    slot *s = b->slots;
    while (s->batch) s++;
    s->batch = b;
    s->at = (size_t)(line.ptr - b->input.ptr);
    s->len = line.len;
    s->reading = (by_work){.fn = on_reading, .arg = s};
    s->read.fn = on_read;
    s->read.arg = s;
    by_buf_deinit(&s->custom_id);
    by_buf_deinit(&s->body);
    s->custom_id = s->body = (by_buf){0};
    b->n_running++;
    if (line.len > BY_TASK_INLINE_BYTES) {
        by_worker_add(b->http->worker, &s->reading);
        return;
    }
    read_line(s);
    start_read(s);
}

static void keep_result(by_batch_run *b, by_buf *data, const char *name, char id[48]) {
    if (!data->len) return;
    by_file *f = by_files_add(b->http->files, "batch_output", by_str_z(name), data);
    if (f) snprintf(id, 48, "%s", f->id);
}

static void finish(by_batch_run *b) {
    b->failed |= b->output.failed || b->errors.failed;
    keep_result(b, &b->output, "output.jsonl", b->output_id);
    keep_result(b, &b->errors, "errors.jsonl", b->error_id);
    by_buf_deinit(&b->input);
    b->input = (by_buf){0};
    weigh(b);
    b->ended = (int64_t)time(NULL);
    b->status = b->failed ? "failed" : b->cancelled ? "cancelled" : "completed";
}

static by_str next_line(by_batch_run *b) {
    while (b->at < b->input.len) {
        by_str rest = by_str_skip(by_buf_str(&b->input), b->at);
        const char *eol = memchr(rest.ptr, '\n', rest.len);
        by_str line = by_str_take(rest, eol ? (size_t)(eol - rest.ptr) : rest.len);
        b->at += line.len + (eol != NULL);
        while (line.len && strchr(" \t\r", line.ptr[line.len - 1])) line.len--;
        if (line.len) return line;
    }
    return (by_str){0};
}

/* Starts lines as long as there is room; ends the batch behind the last one. */
static void pump(by_batch_run *b) {
    if (b->pumping || b->ended) return;
    b->pumping = true;
    bool more = true;
    while (more && may_start(b) && b->n_running < AT_ONCE) {
        by_str line = next_line(b);
        more = line.len > 0;
        if (more) start_line(b, line);
    }
    b->pumping = false;
    if (b->n_running == 0) finish(b);
}

/* Starts again what the engine had no room for, or gives it up. */
static void start_again(by_batch_run *b) {
    b->pumping = true;
    for (int i = 0; i < AT_ONCE; i++) {
        slot *s = &b->slots[i];
        if (!s->again) continue;
        by_str line = by_str_of(b->input.ptr + s->at, s->len);
        free_slot(s);
        if (may_start(b)) start_line(b, line);
    }
    b->pumping = false;
    pump(b);
}

void by_batches_tick(by_files *f) {
    for (by_batch_run *b = f->batches; b; b = b->next) {
        bool any = false;
        for (int i = 0; i < AT_ONCE && !b->ended; i++) any |= b->slots[i].again;
        if (any) start_again(b);
    }
}

/* ---- answers ---- */

static void put_time(by_json_out *o, const char *key, int64_t t) {
    by_json_out_key(o, key);
    if (t) by_json_out_int(o, t);
    else by_json_out_null(o);
}

static void put_id(by_json_out *o, const char *key, const char *id) {
    by_json_out_key(o, key);
    by_json_out_z(o, id[0] ? id : NULL);
}

static void write_batch(by_json_out *o, const by_batch_run *b) {
    by_json_out_object_begin(o);
    put_id(o, "id", b->id);
    put_id(o, "object", "batch");
    put_id(o, "endpoint", b->endpoint);
    put_id(o, "errors", "");
    put_id(o, "input_file_id", b->input_id);
    put_id(o, "completion_window", "24h");
    put_id(o, "status", b->ended ? b->status : b->cancelled ? "cancelling" : "in_progress");
    put_id(o, "output_file_id", b->output_id);
    put_id(o, "error_file_id", b->error_id);
    put_time(o, "created_at", b->created);
    put_time(o, "in_progress_at", b->created);
    put_time(o, "expires_at", 0);
    put_time(o, "finalizing_at", b->ended);
    put_time(o, "completed_at", b->cancelled || b->failed ? 0 : b->ended);
    put_time(o, "failed_at", b->failed ? b->ended : 0);
    put_time(o, "cancelled_at", b->cancelled && !b->failed ? b->ended : 0);
    by_json_out_key(o, "request_counts");
    by_json_out_object_begin(o);
    by_json_out_key(o, "total");
    by_json_out_int(o, b->n_total);
    by_json_out_key(o, "completed");
    by_json_out_int(o, b->n_done);
    by_json_out_key(o, "failed");
    by_json_out_int(o, b->n_failed);
    by_json_out_object_end(o);
    by_json_out_key(o, "metadata");
    if (b->metadata.len) by_json_out_raw(o, by_buf_str(&b->metadata));
    else by_json_out_null(o);
    by_json_out_object_end(o);
}

static void reply_batch(by_exchange *ex, const by_batch_run *b) {
    by_buf out = {0};
    by_json_out o = by_json_out_init(&out, BY_JSON_COMPACT);
    write_batch(&o, b);
    by_reply_json(ex, 200, by_buf_str(&out));
    by_buf_deinit(&out);
}

static by_batch_run *find_or_404(by_exchange *ex, by_str id) {
    for (by_batch_run *b = ex->http->files->batches; b; b = b->next)
        if (by_str_eqz(id, b->id)) return b;
    by_reply_error(ex, 404, "batch_not_found", "batch '%.*s' does not exist", BY_STR_ARG(by_str_take(id, 100)));
    return NULL;
}

void by_handle_batch(by_exchange *ex, by_str id) {
    by_batch_run *b = find_or_404(ex, id);
    if (b) reply_batch(ex, b);
}

void by_handle_batch_cancel(by_exchange *ex, by_str id) {
    by_batch_run *b = find_or_404(ex, id);
    if (!b) return;
    if (!b->ended) {
        b->cancelled = true;
        for (int i = 0; i < AT_ONCE; i++)
            if (b->slots[i].batch && b->slots[i].job) by_job_cancel(b->slots[i].job);
        if (!b->ended) start_again(b);
    }
    reply_batch(ex, b);
}

void by_handle_batches(by_exchange *ex, by_str id) {
    enum { PAGE = 20, PAGE_MAX = 100 };
    by_list_page page;
    (void)id;
    if (!by_list_begin(&page, ex, PAGE, PAGE_MAX)) return;
    size_t n = 0, i = 0;
    for (const by_batch_run *b = ex->http->files->batches; b; b = b->next) n++;
    const by_batch_run **all = by_arena_alloc(&ex->arena, by_mul_size(n, sizeof *all)); /* the list has no way back */
    for (const by_batch_run *b = ex->http->files->batches; all && b; b = b->next) all[i++] = b;
    for (size_t k = 0; k < i; k++) {
        const by_batch_run *b = all[page.ascending ? i - 1 - k : k];
        if (by_list_takes(&page, by_str_z(b->id))) write_batch(&page.json, b);
    }
    if (!all) page.out.failed = page.found = true;
    by_list_end(&page, ex);
}

static int32_t count_lines(by_str s) {
    int32_t n = 0;
    bool text = false;
    for (size_t i = 0; i < s.len && n <= LINES_MAX; i++) {
        if (s.ptr[i] == '\n') text = false;
        else if (!text && !strchr(" \t\r", s.ptr[i])) text = true, n++;
    }
    return n;
}

static void no_room(by_exchange *ex) {
    by_reply_error(ex, 413, "storage_full", "no room for the batch; delete files (--response-store sets the bound)");
}

typedef struct {
    by_str file_id;
    int api; /* 4: none */
    by_buf metadata;
} create_body;

static void drop_create(void *own) { by_buf_deinit(&((create_body *)own)->metadata); }

static void read_create(by_task *t, by_tok_scratch *scratch) {
    create_body *c = t->own;
    by_json body;
    (void)scratch;
    if (!by_task_parse(t, &body)) return;
    const by_json *file = by_json_get(&body, "input_file_id"), *endpoint = by_json_get(&body, "endpoint");
    const by_json *metadata = by_json_get(&body, "metadata");
    if (by_json_is(file, BY_JSON_STRING)) c->file_id = file->v.s;
    while (c->api < 4 && !(by_json_is(endpoint, BY_JSON_STRING) && by_str_eqz(endpoint->v.s, endpoints[c->api]))) c->api++;
    if (by_json_is(metadata, BY_JSON_OBJECT)) by_json_write(&c->metadata, metadata, BY_JSON_COMPACT);
    if (c->metadata.failed) by_task_no_memory(t);
    else if (c->metadata.len > METADATA_BYTES_MAX)
        by_task_refuse(t, 400, NULL, "metadata", "metadata: more than %d bytes", METADATA_BYTES_MAX);
}

static void create_batch(by_task *t, by_exchange *ex) {
    by_http *h = ex->http;
    create_body *c = t->own;
    by_file *f = c->file_id.len ? by_files_find(h->files, c->file_id) : NULL;
    int32_t n = f ? count_lines(by_buf_str(&f->data)) : 0;
    if (!f) by_reply_refusal(ex, 400, "file_not_found", "input_file_id", "input_file_id: no such file");
    else if (c->api == 4) by_reply_refusal(ex, 400, NULL, "endpoint",
                                           "endpoint: want /v1/chat/completions, /v1/responses, /v1/messages or /v1/completions");
    else if (n == 0 || n > LINES_MAX) by_reply_refusal(ex, 400, NULL, "input_file_id",
                                                       "input_file_id: the file has %s lines", n ? "too many" : "no");
    else if (h->files->bytes + f->data.len > h->opts.store_bytes) no_room(ex);
    else if (!drop_oldest(h->files)) by_reply_error(ex, 429, "too_many_batches", "%d batches run, which is the limit", BATCHES_MAX);
    if (ex->done) return;
    by_batch_run *b = by_alloc_zero(BY_MEM_HTTP, sizeof *b);
    if (b) {
        b->metadata = c->metadata;
        c->metadata = (by_buf){0};
    }
    if (!b || !by_buf_push_str(&b->input, by_buf_str(&f->data))) by_reply_error(ex, 503, "out_of_memory", "out of memory for a batch");
    else if (h->files->bytes + weight(b) > h->opts.store_bytes) no_room(ex);
    if (ex->done) {
        if (b) batch_free(b);
        return;
    }
    b->http = h;
    b->api = (by_api_kind)c->api;
    b->endpoint = endpoints[c->api];
    b->n_total = n;
    b->created = (int64_t)time(NULL);
    snprintf(b->id, sizeof b->id, "batch_%016llx%08llx", (unsigned long long)by_rng_u64(&h->rng),
             (unsigned long long)(by_rng_u64(&h->rng) >> 32));
    snprintf(b->input_id, sizeof b->input_id, "%s", f->id);
    weigh(b);
    b->next = h->files->batches;
    h->files->batches = b;
    pump(b);
    reply_batch(ex, b);
}

void by_handle_batch_create(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = read_create, .done = create_batch, .drop = drop_create, .own_bytes = sizeof(create_body)};
    by_task_start(ex, &kind, id);
}
