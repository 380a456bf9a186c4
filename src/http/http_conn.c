/* http_conn.c - one connection: reads, cuts requests out of the bytes, hands them on one after the other, sends what the
 * answers have left in the output buffer, and ends when one side is too slow or gone.
 *
 * Reading goes on while an answer is being made, up to a bound, because that is how a client that leaves is noticed. Requests
 * that come meanwhile (pipelining) wait in `in`, and also while a client does not take the answers of earlier ones. Output is
 * collected and sent once per round of the loop. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "http/http_impl.h"

enum {
    READ_BYTES = 65536,          /* by_http.scratch */
    AHEAD_BYTES_MAX = 65536,     /* kept of further requests while one is answered */
    DROP_BYTES_MAX = 1 << 20,    /* body of a refused request that is read so that the connection can go on */
    LINGER_MS = 2000,
    SHRINK_MS = 1000,            /* an idle connection gives its buffers back */
    WINDOW_BYTES = 1024,         /* the least that a client takes in opts.write_ms */
    BODIES_MAX = 32              /* full-sized bodies that may be held at once, over all connections */
};

/* ---- life ---- */

static void on_watch(void *arg, int events);

void by_conn_open(by_http *h, int fd) {
    by_conn *c = by_alloc_zero(BY_MEM_HTTP, sizeof *c);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails on other sockets: no harm */
    if (!c || by_watch_create(&c->watch, h->loop, fd, on_watch, c, NULL) < 0 || by_watch_set(c->watch, BY_LOOP_READ) < 0) {
        if (c) by_watch_destroy(c->watch);
        by_free(c);
        close(fd);
        return;
    }
    c->http = h;
    c->fd = fd;
    c->chunk_at = SIZE_MAX;
    by_http_limits limits = by_http_limits_default();
    limits.body_bytes = h->opts.body_bytes;
    by_http_parser_init(&c->parser, &limits);
    c->since_ms = c->spoke_ms = by_loop_now_ms(h->loop);
    c->next = h->conns;
    if (h->conns) h->conns->prev = c;
    h->conns = c;
    h->n_conns++;
    by_metrics_add(h->metrics, BY_COUNT_CONNECTIONS, 1);
    by_metrics_gauge_add(h->metrics, BY_GAUGE_OPEN_CONNECTIONS, 1);
}

static void free_exchange(by_exchange *ex) {
    by_http *h = ex->http;
    h->n_body_bytes -= ex->body.cap;
    by_metrics_gauge_add(h->metrics, BY_GAUGE_OPEN_REQUESTS, -1);
    by_metrics_count_response(h->metrics, ex->endpoint, ex->status);
    by_buf_deinit(&ex->body);
    by_buf_deinit(&ex->early_body);
    by_buf_deinit(&ex->extra);
    by_arena_deinit(&ex->arena);
    by_free(ex);
}

by_buf by_exchange_take_body(by_exchange *ex) {
    by_buf body = ex->body;
    ex->http->n_body_bytes -= body.cap;
    ex->body = (by_buf){0};
    return body;
}

/* The client is gone, or is left. */
static void abandon(by_conn *c) {
    by_exchange *ex = c->ex;
    if (!ex) return;
    if (ex->ops) {
        by_metrics_add(c->http->metrics, BY_COUNT_DISCONNECTS, 1);
        ex->ops->abandon(ex->job);
    }
    if (ex->streams && !ex->done) by_metrics_gauge_add(c->http->metrics, BY_GAUGE_OPEN_STREAMS, -1);
    c->ex = NULL;
    free_exchange(ex);
}

void by_conn_close(by_conn *c) {
    by_http *h = c->http;
    if (c->dead) return;
    c->dead = true;
    abandon(c);
    by_watch_destroy(c->watch);
    c->watch = NULL;
    close(c->fd);
    if (c->prev) c->prev->next = c->next;
    else h->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    h->n_conns--;
    by_metrics_gauge_add(h->metrics, BY_GAUGE_OPEN_CONNECTIONS, -1);
    if (!c->dirty) { /* else it is on its way there */
        c->next_listed = h->dead;
        h->dead = c;
    }
    by_loop_want_after(h->loop);
}

static void conn_free(by_conn *c) {
    by_buf_deinit(&c->in);
    by_buf_deinit(&c->out);
    by_http_parser_deinit(&c->parser);
    by_free(c);
}

/* ---- sending ---- */

void by_conn_mark(by_conn *c) {
    if (c->dirty || c->dead) return;
    c->dirty = true;
    c->next_listed = c->http->dirty;
    c->http->dirty = c;
    by_loop_want_after(c->http->loop);
}

static bool may_parse(const by_conn *c) {
    return !c->dead && !c->closing && !(c->ex && c->ex->received_us) && by_conn_unsent(c) <= c->http->opts.output_bytes;
}

static bool may_read(const by_conn *c) { return c->in.len - c->in_at < AHEAD_BYTES_MAX || may_parse(c); }

static void want_events(by_conn *c) {
    int events = by_conn_unsent(c) ? BY_LOOP_WRITE : 0;
    if (!c->eof) events |= may_read(c) ? BY_LOOP_READ : BY_LOOP_CLOSED;
    if (by_watch_set(c->watch, events) < 0) by_conn_close(c);
}

/* Everything is sent and nothing will follow. The client may still be sending: closing at once would make its system throw
 * away what it has not read yet. */
static void end_output(by_conn *c) {
    if (c->eof || shutdown(c->fd, SHUT_WR) != 0) {
        by_conn_close(c);
        return;
    }
    c->lingering = true;
    c->since_ms = by_loop_now_ms(c->http->loop);
    by_buf_deinit(&c->in);
    c->in = (by_buf){0};
    c->in_at = 0;
    want_events(c);
}

static void note_progress(by_conn *c, size_t sent) {
    int64_t now = by_loop_now_ms(c->http->loop);
    by_metrics_add(c->http->metrics, BY_COUNT_SENT_BYTES, sent);
    if (sent) c->spoke_ms = now;
    c->window_left -= (int64_t)sent;
    if (by_conn_unsent(c) == 0) c->window_ms = 0;
    else if (c->window_ms == 0 || c->window_left <= 0) {
        c->window_ms = now;
        c->window_left = WINDOW_BYTES;
    }
}

static void parse_input(by_conn *c);

static void send_out(by_conn *c) {
    size_t before = c->out_at;
    by_conn_end_chunk(c);
    if (c->out.failed) { /* a gap in a stream must not look like an answer */
        by_conn_close(c);
        return;
    }
    while (by_conn_unsent(c)) {
        ssize_t n = send(c->fd, c->out.ptr + c->out_at, by_conn_unsent(c), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n < 0) {
            by_conn_close(c);
            return;
        }
        c->out_at += (size_t)n;
    }
    note_progress(c, c->out_at - before);
    if (by_conn_unsent(c) == 0) {
        by_buf_clear(&c->out);
        c->out_at = 0;
        if (c->out.cap > READ_BYTES) {
            by_buf_deinit(&c->out);
            c->out = (by_buf){0};
        }
    } else if (c->out_at > READ_BYTES && c->out_at > c->out.len / 2) {
        c->out.len -= c->out_at;
        memmove(c->out.ptr, c->out.ptr + c->out_at, c->out.len);
        c->out_at = 0;
    }
    if (c->slow && c->ex && by_conn_unsent(c) <= c->http->opts.output_bytes / 4) {
        c->slow = false;
        if (c->ex->ops && c->ex->ops->resume) c->ex->ops->resume(c->ex->job);
        if (c->dead) return;
    }
    if (c->stalled && may_parse(c)) {
        parse_input(c);
        if (c->dead) return;
    }
    if (c->closing && !c->lingering && by_conn_unsent(c) == 0) end_output(c);
    else want_events(c);
}

void by_conns_flush(by_http *h) {
    while (h->dirty) {
        by_conn *c = h->dirty;
        h->dirty = c->next_listed;
        c->dirty = false;
        if (c->dead) {
            c->next_listed = h->dead;
            h->dead = c;
        } else {
            send_out(c);
        }
    }
    while (h->dead) {
        by_conn *c = h->dead;
        h->dead = c->next_listed;
        conn_free(c);
    }
}

/* ---- requests ---- */

static by_exchange *begin_exchange(by_conn *c, bool has_head) {
    by_http *h = c->http;
    by_exchange *ex = by_alloc_zero(BY_MEM_HTTP, sizeof *ex);
    if (!ex) {
        by_conn_close(c);
        return NULL;
    }
    by_arena_init(&ex->arena, BY_MEM_HTTP);
    ex->http = h;
    ex->conn = c;
    ex->endpoint = BY_ENDPOINT_OTHER;
    c->ex = ex;
    by_metrics_gauge_add(h->metrics, BY_GAUGE_OPEN_REQUESTS, 1);
    if (!has_head) return ex;
    ex->head = &c->parser.head;
    ex->method = ex->head->method;
    ex->http10 = ex->head->http10;
    ex->keep_alive = ex->head->keep_alive && !h->draining;
    ex->head_only = by_str_eqz(ex->method, "HEAD");
    by_route_begin(ex);
    return ex;
}

/* The exchange is answered. */
static void end_exchange(by_conn *c) {
    by_exchange *ex = c->ex;
    bool keep = ex->keep_alive;
    c->ex = NULL;
    c->slow = false;
    c->in_request = false;
    c->since_ms = by_loop_now_ms(c->http->loop);
    free_exchange(ex);
    if (!keep) c->closing = true;
    by_conn_mark(c);
}

/* Answers a request that cannot be understood, and ends the connection. */
static void refuse(by_conn *c, int status, const char *reason) {
    by_exchange *ex = c->ex ? c->ex : begin_exchange(c, false);
    if (!ex) return;
    ex->keep_alive = false;
    by_reply_error(ex, status, NULL, "%s", reason);
    end_exchange(c);
}

static void answer_early(by_exchange *ex) {
    if (!ex->early_body.len) by_reply(ex, ex->early_status, NULL, (by_str){0});
    else by_reply_json(ex, ex->early_status, by_buf_str(&ex->early_body));
}

static void take_head(by_conn *c) {
    const by_http_head *head = &c->parser.head;
    by_exchange *ex = begin_exchange(c, true);
    if (!ex) return;
    c->since_ms = by_loop_now_ms(c->http->loop);
    bool body = head->chunked || head->length > 0;
    if (ex->early_status && body && (head->expect_continue || head->chunked || head->length > DROP_BYTES_MAX)) {
        ex->keep_alive = false;
        answer_early(ex);
        end_exchange(c);
        c->closing = true;
    } else if (!ex->early_status && body && head->expect_continue) {
        by_buf_push_z(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        by_conn_mark(c);
    }
}

static void take_body(by_conn *c, by_str piece) {
    by_exchange *ex = c->ex;
    by_http *h = c->http;
    if (ex->early_status) return;
    size_t before = ex->body.cap;
    if (h->n_body_bytes + piece.len > BODIES_MAX * h->opts.body_bytes) {
        refuse(c, 503, "too many large requests at once");
        return;
    }
    bool ok = by_buf_push_str(&ex->body, piece);
    h->n_body_bytes += ex->body.cap - before;
    if (!ok) refuse(c, 503, "out of memory");
}

static void take_end(by_conn *c) {
    by_exchange *ex = c->ex;
    ex->received_us = by_clock_ns() / 1000;
    if (ex->early_status) answer_early(ex);
    else by_route_run(ex);
    if (!c->dead && c->ex && c->ex->done) end_exchange(c);
}

static void parse_input(by_conn *c) {
    if (c->looping) return; /* an answer that came at once: the loop below goes on by itself */
    c->looping = true;
    bool more = false;
    while (may_parse(c) && !more) {
        by_str piece, in = by_str_of(c->in.ptr + c->in_at, c->in.len - c->in_at);
        size_t used;
        by_http_event ev = by_http_parse(&c->parser, in, &used, &piece);
        switch (ev) {
        case BY_HTTP_MORE: more = true; break;
        case BY_HTTP_HEAD: take_head(c); break;
        case BY_HTTP_BODY: take_body(c, piece); break;
        case BY_HTTP_DONE: take_end(c); break;
        case BY_HTTP_BAD: refuse(c, c->parser.bad_status, c->parser.bad_reason); break;
        }
        c->in_at += used;
        if (!c->in_request && by_http_parser_inside(&c->parser)) {
            c->in_request = true;
            c->since_ms = by_loop_now_ms(c->http->loop);
        }
    }
    c->looping = false;
    if (c->dead) return;
    c->stalled = !more && !c->closing && !(c->ex && c->ex->received_us) && c->in_at < c->in.len;
    if (c->in_at == c->in.len) {
        by_buf_clear(&c->in);
        c->in_at = 0;
    } else if (c->in_at > READ_BYTES / 2) {
        c->in.len -= c->in_at;
        memmove(c->in.ptr, c->in.ptr + c->in_at, c->in.len);
        c->in_at = 0;
    }
    if (c->eof && !c->stalled) { /* nothing more will come: what waits for it is lost */
        if (c->ex && (c->ex->ops || !c->ex->received_us)) by_conn_close(c);
        else c->closing = true;
        by_conn_mark(c);
    }
}

void by_conn_next(by_conn *c) {
    if (c->dead || c->looping) return; /* parse_input sees that the exchange is done */
    if (c->ex && c->ex->done) end_exchange(c);
    parse_input(c);
}

/* ---- reading ---- */

static void read_in(by_conn *c) {
    by_http *h = c->http;
    ssize_t n = recv(c->fd, h->scratch, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n < 0) {
        by_conn_close(c);
        return;
    }
    if (n == 0) c->eof = true;
    if (c->lingering) {
        if (c->eof) by_conn_close(c);
        return;
    }
    by_metrics_add(h->metrics, BY_COUNT_RECEIVED_BYTES, (uint64_t)n);
    if (c->closing) { /* nothing more is wanted of it */
        by_conn_mark(c);
        return;
    }
    if (!by_buf_push(&c->in, h->scratch, (size_t)n)) {
        by_conn_close(c);
        return;
    }
    parse_input(c);
    if (!c->dead && !c->dirty) want_events(c);
}

static void on_watch(void *arg, int events) {
    by_conn *c = arg;
    if (events & BY_LOOP_READ) read_in(c);
    if (!c->dead && events & BY_LOOP_CLOSED && !c->eof) {
        c->eof = true;
        if (c->lingering) by_conn_close(c);
        else parse_input(c);
        if (!c->dead && !c->dirty) want_events(c);
    }
    if (!c->dead && events & BY_LOOP_WRITE) by_conn_mark(c);
}

/* ---- time ---- */

static void shrink(by_conn *c) {
    by_buf_deinit(&c->in);
    by_buf_deinit(&c->out);
    c->in = c->out = (by_buf){0};
    c->in_at = c->out_at = 0;
    by_http_parser_shrink(&c->parser);
}

/* Waits for a request, or for the rest of one. */
static void tick_reading(by_conn *c, int64_t waited) {
    const by_http_opts *o = &c->http->opts;
    if (c->ex) {
        if (waited > o->body_ms) refuse(c, 408, "the body did not come in time");
    } else if (c->in_request) {
        if (waited > o->request_ms) refuse(c, 408, "the headers did not come in time");
    } else if (waited > o->idle_ms || (c->http->draining && by_conn_unsent(c) == 0)) {
        by_conn_close(c);
    } else if (waited > SHRINK_MS && c->in.len == 0 && by_conn_unsent(c) == 0 && (c->in.cap || c->out.cap)) {
        shrink(c);
    }
}

/* libevent tells nothing of an error when only the client's end is waited for, and would come back at once again and again. */
static bool has_error(const by_conn *c) {
    if (c->eof || may_read(c)) return false;
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
}

void by_conn_tick(by_conn *c, int64_t now_ms) {
    const by_http_opts *o = &c->http->opts;
    if (c->window_ms && now_ms - c->window_ms > o->write_ms) {
        by_metrics_add(c->http->metrics, BY_COUNT_SLOW_CANCELLED, 1);
        by_conn_close(c);
    } else if (has_error(c)) {
        by_conn_close(c);
    } else if (c->lingering) {
        if (now_ms - c->since_ms > LINGER_MS) by_conn_close(c);
    } else if (c->closing) {
        return;
    } else if (c->stalled) {
        c->since_ms = now_ms; /* it is not the request that is slow */
    } else if (!c->ex || !c->ex->received_us) {
        tick_reading(c, now_ms - c->since_ms);
    } else if (c->ex->streams && !c->ex->done && o->ping_ms > 0 && now_ms - c->spoke_ms > o->ping_ms && by_conn_unsent(c) == 0) {
        by_buf_push_z(by_reply_out(c->ex), ": still working\n\n");
        c->spoke_ms = now_ms;
    }
}
