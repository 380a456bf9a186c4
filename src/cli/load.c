/* load.c - many requests at once from one thread: sockets on one epoll, edge-triggered, with a timer for the next send.
 *
 *   plan      send times come from the rate, not from answers, so a slow server meets the same arrivals as a fast one;
 * only max_concurrency holds a request back, and then the report's "sent later than due" says so clock     a request
 * begins when its connection is looked for (a new one is opened inside its time), and a token has come when the read
 * that held its last byte returned reuse     a connection serves one request after the other; one that the server
 * closed in the meantime (nothing of the answer has come) is replaced once, without counting as a failure */
#include "cli/load.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "http/response.h"

enum { READ_BYTES = 256 << 10, EVENTS_AT_ONCE = 256, GAPS_MAX = 64 << 20, SCAN_US = 50000 };

typedef struct run run;

typedef struct {
    run *run;
    int fd; /* -1 = none */
    bool busy, connecting, reused, streamed, finished, done_mark, resent;
    int64_t record;   /* index, -1: the body is only collected */
    int64_t token_us; /* of the last event with text */
    by_buf out, body; /* request bytes; body of an answer that is not a stream */
    size_t out_at;
    by_response reply;
    by_event_reader events;
    char problem[400]; /* an error that the stream itself reported */
} conn;

struct run {
    const by_load_opts *opts;
    by_load_result *result;
    by_load_prompts prompts;
    struct addrinfo *address;
    int epoll_fd, timer_fd;
    conn *conns;
    int32_t n_conns, *idle, n_idle; /* idle: indexes of conns that are not busy, those with an open socket on top */
    int64_t n_busy, n_sent, n_done, n_failed, cap_records;
    int64_t start_ns, now_us, due_us, scanned_us, shown_us;
    by_rng rng;
    by_arena arena; /* of one event */
    char *read_buf;
};

static volatile sig_atomic_t interrupted;
static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static int64_t now_us(const run *r) { return (by_clock_ns() - r->start_ns) / 1000; }

static by_load_record *record_of(const conn *c) { return c->record < 0 ? NULL : &c->run->result->records[c->record]; }

/* ---- what an answer says ---- */

static bool has_text(const by_json *v) { return by_json_is(v, BY_JSON_STRING) && v->v.s.len; }

/* Does a choice of a chunk carry text: content, reasoning (two spellings), a call, or a completion's text? */
static bool carries_text(const by_json *choice) {
    const by_json *delta = by_json_get(choice, "delta"), *calls = by_json_get(delta, "tool_calls");
    return has_text(by_json_get(delta, "content")) || has_text(by_json_get(delta, "reasoning_content")) ||
           has_text(by_json_get(delta, "reasoning")) || has_text(by_json_get(choice, "text")) ||
           (by_json_is(calls, BY_JSON_ARRAY) && calls->n);
}

static void read_usage(by_load_record *record, const by_json *usage) {
    int64_t n;
    if (by_json_int_in(by_json_get(usage, "prompt_tokens"), 0, INT32_MAX, &n)) record->n_prompt = (int32_t)n;
    if (by_json_int_in(by_json_get(usage, "completion_tokens"), 0, INT32_MAX, &n)) record->n_output = (int32_t)n;
    if (by_json_int_in(by_json_get(by_json_get(usage, "prompt_tokens_details"), "cached_tokens"), 0, INT32_MAX, &n))
        record->n_cached = (int32_t)n;
}

/* Message of {"error": {"message": ...}} or {"error": "..."}; false when v holds no error. */
static bool read_problem(const by_json *v, char *out, size_t size) {
    const by_json *e = by_json_get(v, "error"), *text = by_json_is(e, BY_JSON_STRING) ? e : by_json_get(e, "message");
    if (!e || e->type == BY_JSON_NULL) return false;
    if (by_json_is(text, BY_JSON_STRING)) snprintf(out, size, "%.*s", BY_STR_ARG(text->v.s));
    else snprintf(out, size, "an error without a message");
    return true;
}

static void push_us(by_buf *list, int64_t us) {
    uint32_t v = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
    if (list->len < (size_t)GAPS_MAX * 4) by_buf_push(list, &v, 4);
}

static by_status read_answer(conn *c, by_str json, by_err *err) {
    by_load_record *record = record_of(c);
    by_json v;
    by_arena_reset(&c->run->arena);
    if (by_json_parse(&v, &c->run->arena, json, NULL, err) != BY_OK || v.type != BY_JSON_OBJECT)
        return BY_FAIL(err, BY_EFORMAT, "not a JSON object: %.*s", BY_STR_ARG(by_str_take(json, 80)));
    if (read_problem(&v, c->problem, sizeof c->problem)) return BY_OK;
    const by_json *usage = by_json_get(&v, "usage"), *choices = by_json_get(&v, "choices");
    if (usage) read_usage(record, usage);
    bool text = false;
    for (size_t i = 0; by_json_is(choices, BY_JSON_ARRAY) && i < choices->n; i++) {
        const by_json *choice = by_json_at(choices, i);
        text |= carries_text(choice);
        c->finished |= has_text(by_json_get(choice, "finish_reason"));
    }
    if (!text || !c->streamed) return BY_OK;
    by_load_result *result = c->run->result;
    double pace = c->run->opts->pace;
    if (pace > 0) push_us(&result->late, c->run->now_us - record->sent_us - (int64_t)(record->n_events * 1e6 / pace));
    record->n_events++;
    if (c->token_us) push_us(&result->gaps, c->run->now_us - c->token_us);
    else record->first_us = c->run->now_us;
    record->last_us = c->token_us = c->run->now_us;
    return BY_OK;
}

static by_status on_event(void *ctx, by_str name, by_str data, by_err *err) {
    conn *c = ctx;
    (void)name;
    if (!by_str_eqz(data, "[DONE]")) return read_answer(c, data, err);
    c->done_mark = true;
    return BY_OK;
}

static by_status on_body(void *ctx, by_str piece, by_err *err) {
    conn *c = ctx;
    if (c->record >= 0 && c->reply.status == 200 && c->reply.event_stream) {
        c->streamed = true;
        return by_event_reader_feed(&c->events, piece, err);
    }
    if (c->body.len + piece.len > BY_LIMIT_REQUEST_BYTES)
        return BY_FAIL(err, BY_ELIMIT, "an answer is over %u bytes", BY_LIMIT_REQUEST_BYTES);
    return by_buf_push_str(&c->body, piece) ? BY_OK : BY_FAIL(err, BY_ENOMEM, "answer: out of memory");
}

/* ---- connections ---- */

static void close_socket(conn *c) {
    if (c->fd >= 0) close(c->fd); /* also takes it out of the epoll */
    c->fd = -1;
    c->connecting = false;
}

static by_status open_socket(conn *c, by_err *err) {
    const struct addrinfo *a = c->run->address;
    c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return BY_FAIL(err, BY_EIO, "socket: %s", strerror(errno));
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a request is one write; nothing depends on it */
    if (connect(c->fd, a->ai_addr, a->ai_addrlen) < 0) {
        if (errno != EINPROGRESS) return BY_FAIL(err, BY_EIO, "connect: %s", strerror(errno));
        c->connecting = true;
    }
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    return epoll_ctl(c->run->epoll_fd, EPOLL_CTL_ADD, c->fd, &e) == 0
               ? BY_OK
               : BY_FAIL(err, BY_EIO, "epoll: %s", strerror(errno));
}

/* Ends a request: its record, its connection's place among the idle ones. */
static void end_request(conn *c, by_load_error error, const char *message) {
    run *r = c->run;
    by_load_record *record = record_of(c);
    if (record) {
        record->end_us = r->now_us;
        record->status = (uint16_t)c->reply.status;
        record->error = (uint8_t)error;
        if (!record->n_output) record->n_output = record->n_events;
        r->n_failed += error != BY_LOAD_NONE;
    }
    if (error != BY_LOAD_NONE && !r->result->first_error[0])
        snprintf(r->result->first_error, sizeof r->result->first_error, "%s", message);
    if (error == BY_LOAD_NONE || error == BY_LOAD_STATUS ? !c->reply.keep_alive : true) close_socket(c);
    c->busy = false;
    r->n_busy--;
    r->n_done++;
    int32_t at = (int32_t)(c - r->conns), place = c->fd >= 0 ? r->n_idle : 0;
    if (place < r->n_idle) r->idle[r->n_idle] = r->idle[place];
    r->idle[place] = at;
    r->n_idle++;
}

/* The whole response is there: what was it? */
static void end_response(conn *c) {
    by_load_record *record = record_of(c);
    by_err err = {0};
    char text[440];
    if (!record) {
        end_request(c, c->reply.status == 200 ? BY_LOAD_NONE : BY_LOAD_STATUS, "");
    } else if (c->reply.status != 200) {
        by_json v;
        char said[400] = "";
        by_arena_reset(&c->run->arena);
        if (by_json_parse(&v, &c->run->arena, by_buf_str(&c->body), NULL, NULL) == BY_OK)
            read_problem(&v, said, sizeof said);
        snprintf(text, sizeof text, "status %d: %s", c->reply.status, said);
        end_request(c, BY_LOAD_STATUS, text);
    } else if (!c->streamed && read_answer(c, by_buf_str(&c->body), &err) < 0) {
        end_request(c, BY_LOAD_PROTOCOL, err.msg);
    } else if (c->problem[0]) {
        end_request(c, BY_LOAD_REPORTED, c->problem);
    } else if (!c->finished) {
        end_request(c, BY_LOAD_INCOMPLETE, "an answer without a finish reason");
    } else {
        end_request(c, BY_LOAD_NONE, "");
    }
}

static void send_more(conn *c);

/* A connection failed. One that was kept from before is opened anew, once. */
static void lost(conn *c, by_load_error error, const char *message) {
    by_err err = {0};
    if (c->reused && !c->resent && !c->reply.status && !c->reply.line.len && error == BY_LOAD_CLOSED) {
        close_socket(c);
        c->resent = true;
        c->out_at = 0;
        if (open_socket(c, &err) < 0) end_request(c, BY_LOAD_CONNECT, err.msg);
        else if (!c->connecting) send_more(c);
        return;
    }
    end_request(c, error, message);
}

static void send_more(conn *c) {
    while (c->out_at < c->out.len) {
        ssize_t n = send(c->fd, c->out.ptr + c->out_at, c->out.len - c->out_at, MSG_NOSIGNAL);
        if (n >= 0) c->out_at += (size_t)n;
        else if (errno == EAGAIN) return;
        else if (errno != EINTR) {
            lost(c, BY_LOAD_CLOSED, strerror(errno));
            return;
        }
    }
}

/* closing: the event said that the peer has closed, so reading goes on to its end; otherwise what comes later gives a
 * new event. */
static void receive(conn *c, bool closing) {
    run *r = c->run;
    by_err err = {0};
    while (c->busy && c->fd >= 0) {
        ssize_t n = recv(c->fd, r->read_buf, READ_BYTES, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        r->now_us = now_us(r);
        if (n < 0) {
            lost(c, BY_LOAD_CLOSED, strerror(errno));
            return;
        }
        if (n == 0) {
            if (by_response_closed(&c->reply, &err) == BY_END) end_response(c);
            else lost(c, BY_LOAD_CLOSED, err.msg);
            return;
        }
        size_t used;
        by_status status = by_response_feed(&c->reply, r->read_buf, (size_t)n, &used, &err);
        if (status < 0) end_request(c, BY_LOAD_PROTOCOL, err.msg);
        else if (status == BY_END && used < (size_t)n)
            end_request(c, BY_LOAD_PROTOCOL, "bytes behind the end of a response");
        else if (status == BY_END) end_response(c);
        if (n < READ_BYTES && !closing) return;
    }
}

static void on_ready(conn *c, uint32_t events) {
    if (!c->busy) { /* an idle connection that the server closed */
        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) close_socket(c);
        return;
    }
    if (c->connecting) {
        int error = 0;
        socklen_t len = sizeof error;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (!error && !(events & (EPOLLOUT | EPOLLHUP))) return;
        c->connecting = false;
        if (error || (events & EPOLLHUP)) {
            end_request(c, BY_LOAD_CONNECT, strerror(error ? error : ECONNREFUSED));
            return;
        }
    }
    if (c->out_at < c->out.len) send_more(c);
    if (c->busy && !c->connecting) receive(c, events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
}

/* ---- sending ---- */

static by_status write_head(const by_load_opts *o, by_buf *out, const char *method, const char *path,
                            int64_t body_bytes, by_err *err) {
    by_buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s:%s\r\nUser-Agent: bathyc-bench\r\nAccept: */*\r\n", method, path,
                  o->host, o->port);
    if (o->api_key) by_buf_printf(out, "Authorization: Bearer %s\r\n", o->api_key);
    for (int i = 0; i < o->n_headers; i++) by_buf_printf(out, "%s\r\n", o->headers[i]);
    if (body_bytes >= 0)
        by_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %lld\r\n", (long long)body_bytes);
    by_buf_push_z(out, "\r\n");
    return by_buf_check(out, err);
}

static by_status add_record(run *r, by_err *err) {
    by_load_result *result = r->result;
    if (result->n_records == r->cap_records) {
        int64_t cap = r->cap_records ? r->cap_records * 2 : 1024;
        by_load_record *more = by_realloc(BY_MEM_MISC, result->records, by_mul_size((size_t)cap, sizeof *more));
        if (!more) return BY_FAIL(err, BY_ENOMEM, "records: out of memory");
        result->records = more;
        r->cap_records = cap;
    }
    result->records[result->n_records++] = (by_load_record){.due_us = r->due_us, .sent_us = r->now_us};
    return BY_OK;
}

/* Takes an idle connection and sends what is in its `out`. */
static void begin_request(conn *c, int64_t record) {
    by_err err = {0};
    c->busy = true;
    c->run->n_busy++;
    c->record = record;
    c->streamed = c->finished = c->done_mark = c->resent = false;
    c->token_us = 0;
    c->out_at = 0;
    c->problem[0] = 0;
    by_buf_clear(&c->body);
    by_response_begin(&c->reply, on_body, c);
    by_event_reader_begin(&c->events, on_event, c);
    c->reused = c->fd >= 0;
    if (!c->reused && open_socket(c, &err) < 0) end_request(c, BY_LOAD_CONNECT, err.msg);
    else if (!c->connecting) send_more(c);
}

static by_status send_request(run *r, by_err *err) {
    conn *c = &r->conns[r->idle[--r->n_idle]];
    by_buf_clear(&c->body);
    by_buf_clear(&c->out);
    BY_TRY(by_load_prompts_write(&r->prompts, r->n_sent, &c->body, err));
    BY_TRY(write_head(r->opts, &c->out, "POST", r->opts->path, (int64_t)c->body.len, err));
    if (!by_buf_push_str(&c->out, by_buf_str(&c->body))) return BY_FAIL(err, BY_ENOMEM, "request: out of memory");
    r->now_us = now_us(r);
    BY_TRY(add_record(r, err));
    r->n_sent++;
    begin_request(c, r->result->n_records - 1);
    return BY_OK;
}

/* Gamma with the given shape and mean 1 (Marsaglia and Tsang 2000): the gaps of arrivals in units of their mean. */
static double draw_gap(by_rng *rng, double shape) {
    double boost = shape < 1 ? pow(1 - by_rng_unit(rng), 1 / shape) : 1, d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3,
           c = 1 / sqrt(9 * d);
    for (;;) {
        double x = by_rng_normal(rng), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(1 - by_rng_unit(rng)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v * boost / shape;
    }
}

static bool sending_is_over(const run *r) {
    return interrupted || r->n_sent >= r->opts->n_requests ||
           (r->opts->duration_s > 0 && (double)r->now_us >= r->opts->duration_s * 1e6);
}

/* Sends all that is due and fits; the time of the next one goes into the timer. */
static by_status send_due(run *r, by_err *err) {
    const by_load_opts *o = r->opts;
    while (!sending_is_over(r) && r->n_idle > 0 && r->due_us <= r->now_us) {
        BY_TRY(send_request(r, err));
        if (o->rate > 0) r->due_us += (int64_t)(draw_gap(&r->rng, o->burstiness) * 1e6 / o->rate);
        else r->due_us = r->now_us; /* as soon as there is room */
    }
    int64_t wait = r->due_us - r->now_us;
    if (sending_is_over(r) || r->n_idle == 0 || wait < 1) wait = SCAN_US;
    if (wait > SCAN_US) wait = SCAN_US;
    struct itimerspec t = {.it_value = {wait / 1000000, wait % 1000000 * 1000}};
    return timerfd_settime(r->timer_fd, 0, &t, NULL) == 0 ? BY_OK : BY_FAIL(err, BY_EIO, "timer: %s", strerror(errno));
}

/* ---- the loop ---- */

/* Ends requests that are over their time, or all of them after an interrupt; shows progress. */
static void scan(run *r) {
    if (r->now_us - r->scanned_us < SCAN_US && !interrupted) return;
    r->scanned_us = r->now_us;
    for (int32_t i = 0; i < r->n_conns; i++) {
        conn *c = &r->conns[i];
        if (!c->busy) continue;
        int64_t sent_us = c->record < 0 ? 0 : record_of(c)->sent_us;
        if (interrupted) end_request(c, BY_LOAD_INTERRUPTED, "interrupted");
        else if ((double)(r->now_us - sent_us) > r->opts->timeout_s * 1e6)
            end_request(c, BY_LOAD_TIMEOUT, "no whole answer within the time limit");
    }
    if (!r->opts->progress || r->now_us - r->shown_us < 500000) return;
    r->shown_us = r->now_us;
    fprintf(stderr, "\r%lld done, %lld failed, %lld open, %.0f s ", (long long)r->n_done, (long long)r->n_failed,
            (long long)r->n_busy, (double)r->now_us * 1e-6);
}

static by_status loop(run *r, bool (*over)(const run *), by_err *err) {
    struct epoll_event events[EVENTS_AT_ONCE];
    for (;;) {
        r->now_us = now_us(r);
        if (r->opts->n_requests) BY_TRY(send_due(r, err));
        if (over(r)) return BY_OK;
        int n = epoll_wait(r->epoll_fd, events, EVENTS_AT_ONCE, SCAN_US / 1000);
        if (n < 0 && errno != EINTR) return BY_FAIL(err, BY_EIO, "epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            uint64_t ticks;
            r->now_us = now_us(r);
            if (events[i].data.ptr) on_ready(events[i].data.ptr, events[i].events);
            else if (read(r->timer_fd, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
                return BY_FAIL(err, BY_EIO, "timer: %s", strerror(errno));
        }
        r->now_us = now_us(r);
        scan(r);
        if (r->result->gaps.failed || r->result->late.failed) return BY_FAIL(err, BY_ENOMEM, "gaps: out of memory");
    }
}

static bool all_done(const run *r) { return r->n_busy == 0 && sending_is_over(r); }
static bool none_open(const run *r) { return r->n_busy == 0; }

static by_status open_run(run *r, const by_load_opts *opts, int64_t n_conns, by_err *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int code = getaddrinfo(opts->host, opts->port, &hints, &r->address);
    if (code) return BY_FAIL(err, BY_EINVAL, "%s:%s: %s", opts->host, opts->port, gai_strerror(code));
    by_arena_init(&r->arena, BY_MEM_MISC);
    r->n_conns = (int32_t)n_conns;
    r->conns = by_alloc_zero(BY_MEM_HTTP, (size_t)n_conns * sizeof *r->conns);
    r->idle = by_alloc(BY_MEM_HTTP, (size_t)n_conns * sizeof *r->idle);
    r->read_buf = by_alloc(BY_MEM_HTTP, READ_BYTES);
    if (!r->conns || !r->idle || !r->read_buf) return BY_FAIL(err, BY_ENOMEM, "connections: out of memory");
    for (int32_t i = 0; i < r->n_conns; i++) {
        r->conns[i].run = r;
        r->conns[i].fd = -1;
        r->idle[r->n_idle++] = r->n_conns - 1 - i;
    }
    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN};
    if (r->epoll_fd < 0 || r->timer_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->timer_fd, &e) < 0)
        return BY_FAIL(err, BY_EIO, "epoll: %s", strerror(errno));
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max; /* one descriptor per connection; a refusal shows when a socket is opened */
        setrlimit(RLIMIT_NOFILE, &files);
    }
    r->start_ns = by_clock_ns();
    return by_load_prompts_open(&r->prompts, opts, err);
}

static void close_run(run *r) {
    for (int32_t i = 0; r->conns && i < r->n_conns; i++) {
        conn *c = &r->conns[i];
        if (c->fd > 0) close(c->fd);
        by_buf_deinit(&c->out);
        by_buf_deinit(&c->body);
        by_response_deinit(&c->reply);
        by_event_reader_deinit(&c->events);
    }
    if (r->epoll_fd >= 0) close(r->epoll_fd);
    if (r->timer_fd >= 0) close(r->timer_fd);
    if (r->address) freeaddrinfo(r->address);
    by_load_prompts_close(&r->prompts);
    by_arena_deinit(&r->arena);
    by_free(r->conns);
    by_free(r->idle);
    by_free(r->read_buf);
}

by_status by_load_run(by_load_result *result, const by_load_opts *opts, by_err *err) {
    run r = {.opts = opts, .result = result, .rng = {opts->seed}, .epoll_fd = -1, .timer_fd = -1};
    *result = (by_load_result){0};
    int64_t n = opts->max_concurrency > 0 ? opts->max_concurrency : opts->n_requests;
    if (n > BY_LOAD_CONNECTIONS_MAX) n = BY_LOAD_CONNECTIONS_MAX;
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    sigaction(SIGINT, &action, &before);
    interrupted = 0;
    by_status status = open_run(&r, opts, n, err);
    if (status == BY_OK) status = loop(&r, all_done, err);
    if (opts->progress) fputc('\n', stderr);
    result->interrupted = interrupted;
    sigaction(SIGINT, &before, NULL);
    close_run(&r);
    int64_t first = INT64_MAX, last = 0;
    for (int64_t i = 0; i < result->n_records; i++) {
        const by_load_record *x = &result->records[i];
        if (x->sent_us < first) first = x->sent_us;
        if (x->end_us > last) last = x->end_us;
    }
    if (result->n_records) result->duration_s = (double)(last - first) * 1e-6;
    return status;
}

void by_load_result_deinit(by_load_result *r) {
    by_free(r->records);
    by_buf_deinit(&r->gaps);
    by_buf_deinit(&r->late);
}

by_status by_load_get(by_buf *body, const by_load_opts *opts, const char *path, by_err *err) {
    by_load_opts one = *opts;
    by_load_result result = {0};
    one.n_requests = 0;
    one.dataset = NULL;
    run r = {.opts = &one, .result = &result, .epoll_fd = -1, .timer_fd = -1};
    by_status status = open_run(&r, &one, 1, err);
    if (status == BY_OK) {
        conn *c = &r.conns[r.idle[--r.n_idle]];
        status = write_head(&one, &c->out, "GET", path, -1, err);
        if (status == BY_OK) {
            begin_request(c, -1);
            status = loop(&r, none_open, err);
        }
        if (status == BY_OK && c->reply.status != 200)
            status = c->reply.status
                         ? BY_FAIL(err, BY_EIO, "%s:%s%s: status %d", one.host, one.port, path, c->reply.status)
                         : BY_FAIL(err, BY_EIO, "%s:%s: %s", one.host, one.port, result.first_error);
        if (status == BY_OK && !by_buf_push_str(body, by_buf_str(&c->body)))
            status = BY_FAIL(err, BY_ENOMEM, "answer: out of memory");
    }
    close_run(&r);
    by_load_result_deinit(&result);
    return status;
}
