/* http_server.c - the server's life: port, connections, ticks, the orderly end. */
#include "http/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "http/http_files.h"

enum {
    BACKLOG = 1024,
    ACCEPTS_AT_ONCE = 64,
    ACCEPT_AGAIN_MS = 100, /* out of descriptors: some will be given back */
    SPARE_FDS = 64,        /* for the model's files and other things */
    SCRATCH_BYTES = 65536
};

by_http_opts by_http_opts_default(void) {
    return (by_http_opts){.host = "127.0.0.1", .port = 8000, .version = "", .body_bytes = BY_LIMIT_REQUEST_BYTES, .max_connections = 10000,
                          .idle_ms = 75000, .request_ms = 20000, .body_ms = 120000, .write_ms = 30000, .ping_ms = 5000,
                          .drain_ms = 60000, .output_bytes = 256 << 10, .store_bytes = 256u << 20, .catch_signals = true};
}

int by_http_port(const by_http *h) { return h->port; }

/* ---- connections ---- */

static void on_accept(void *arg, int events) {
    by_http *h = arg;
    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        if (h->n_conns >= h->opts.max_connections) {
            by_watch_set(h->listen_watch, 0);
            by_timer_set(h->accept_again, ACCEPT_AGAIN_MS);
            return;
        }
        int fd = accept4(h->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) { /* out of descriptors or memory: not again at once */
            by_watch_set(h->listen_watch, 0);
            by_timer_set(h->accept_again, ACCEPT_AGAIN_MS);
        }
        if (fd < 0) return;
        by_conn_open(h, fd);
    }
}

static void on_accept_again(void *arg) {
    by_http *h = arg;
    if (h->listen_watch) by_watch_set(h->listen_watch, BY_LOOP_READ);
}

static void stop_listening(by_http *h) {
    by_watch_destroy(h->listen_watch);
    h->listen_watch = NULL;
    if (h->listen_fd >= 0) close(h->listen_fd);
    h->listen_fd = -1;
}

/* ---- time ---- */

static bool has_exchanges(const by_http *h) {
    for (const by_conn *c = h->conns; c; c = c->next)
        if (c->ex || by_conn_unsent(c)) return true;
    return false;
}

static void on_tick(void *arg) {
    by_http *h = arg;
    int64_t now = by_loop_now_ms(h->loop);
    by_timer_set(h->tick, BY_HTTP_TICK_MS);
    by_jobs_tick(h);
    by_batches_tick(h->files);
    for (by_conn *c = h->conns, *next; c; c = next) {
        next = c->next;
        by_conn_tick(c, now);
    }
    if (h->opts.on_alive) h->opts.on_alive(h->opts.hook_arg);
    if (h->draining && ((h->n_jobs == 0 && !has_exchanges(h)) || now >= h->drain_until_ms)) by_loop_stop(h->loop);
}

void by_http_stop(by_http *h) {
    if (h->draining) {
        by_loop_stop(h->loop);
        return;
    }
    h->draining = true;
    h->drain_until_ms = by_loop_now_ms(h->loop) + h->opts.drain_ms;
    by_metrics_gauge_set(h->metrics, BY_GAUGE_READY, 0);
    stop_listening(h);
    if (h->opts.on_stopping) h->opts.on_stopping(h->opts.hook_arg);
    by_timer_set(h->tick, 0);
}

static void on_signal(void *arg) { by_http_stop(arg); }

/* ---- life ---- */

/* Lets the kernel's table of descriptors grow now. It doubles whenever it is full and waits for all processors meanwhile if
 * the process has threads: 15 to 30 ms in which no stream goes on (measured at 256, 512 and 1,024 connections). */
static void widen_fd_table(rlim_t n) {
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)n - 1);
    if (fd >= 0) close(fd);
}

/* As many descriptors as the system gives us, and no more connections than that. */
static void raise_fd_limit(by_http *h) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return;
    rlim_t want = (rlim_t)h->opts.max_connections + SPARE_FDS;
    if (r.rlim_cur < want) {
        r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
        setrlimit(RLIMIT_NOFILE, &r);
        getrlimit(RLIMIT_NOFILE, &r);
    }
    if (r.rlim_cur < want) h->opts.max_connections = r.rlim_cur > 2 * SPARE_FDS ? (int32_t)(r.rlim_cur - SPARE_FDS) : SPARE_FDS;
    widen_fd_table(r.rlim_cur < want ? r.rlim_cur : want);
}

static by_status bind_port(by_http *h, by_err *err) {
    char port[16];
    snprintf(port, sizeof port, "%d", h->opts.port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list, *a;
    int bad = getaddrinfo(h->opts.host, port, &hints, &list);
    if (bad) return BY_FAIL(err, BY_EINVAL, "--host: %s: %s", h->opts.host, gai_strerror(bad));
    int why = 0;
    for (a = list; a; a = a->ai_next) {
        int one = 1;
        h->listen_fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        if (h->listen_fd < 0) {
            why = errno;
            continue;
        }
        setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(h->listen_fd, a->ai_addr, a->ai_addrlen) == 0 && listen(h->listen_fd, BACKLOG) == 0) break;
        why = errno;
        close(h->listen_fd);
        h->listen_fd = -1;
    }
    freeaddrinfo(list);
    if (h->listen_fd < 0) return BY_FAIL(err, BY_EIO, "%s port %d: %s", h->opts.host, h->opts.port, strerror(why));
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    if (getsockname(h->listen_fd, (struct sockaddr *)&own, &len) != 0) return BY_FAIL(err, BY_EIO, "getsockname: %s", strerror(errno));
    h->port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port : ((struct sockaddr_in *)&own)->sin_port);
    return BY_OK;
}

static void after_round(void *arg) { by_conns_flush(arg); }

static by_status open_all(by_http *h, by_err *err) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)by_clock_ns();
    h->rng.state = seed;
    h->scratch = by_alloc(BY_MEM_HTTP, SCRATCH_BYTES);
    if (!h->scratch || !by_keys_set(h, &h->opts)) return BY_FAIL(err, BY_ENOMEM, "out of memory for the server");
    const by_metrics_opts m = {.model_name = "", .block_tokens = 128, .vllm_names = h->opts.vllm_names};
    BY_TRY(by_metrics_create(&h->metrics, &m, err));
    BY_TRY(by_stored_create(&h->stored, h, err));
    BY_TRY(by_files_create(&h->files, h, err));
    BY_TRY(by_loop_create(&h->loop, err));
    by_loop_set_after(h->loop, after_round, h);
    BY_TRY(by_timer_create(&h->tick, h->loop, on_tick, h, err));
    BY_TRY(by_timer_create(&h->accept_again, h->loop, on_accept_again, h, err));
    if (h->opts.catch_signals) {
        BY_TRY(by_loop_on_signal(h->loop, SIGTERM, on_signal, h, err));
        BY_TRY(by_loop_on_signal(h->loop, SIGINT, on_signal, h, err));
    }
    BY_TRY(bind_port(h, err));
    BY_TRY(by_watch_create(&h->listen_watch, h->loop, h->listen_fd, on_accept, h, err));
    return by_watch_set(h->listen_watch, BY_LOOP_READ);
}

by_status by_http_open(by_http **out, const by_http_opts *opts, by_err *err) {
    *out = NULL;
    by_http *h = by_alloc_zero(BY_MEM_HTTP, sizeof *h);
    if (!h) return BY_FAIL(err, BY_ENOMEM, "out of memory for the server");
    h->opts = *opts;
    h->listen_fd = -1;
    h->started_s = (int64_t)time(NULL);
    raise_fd_limit(h);
    by_status status = open_all(h, err);
    if (status == BY_OK) *out = h;
    else by_http_close(h);
    return status;
}

by_status by_http_run(by_http *h, by_err *err) {
    by_timer_set(h->tick, BY_HTTP_TICK_MS);
    BY_TRY(by_load_start(h, err));
    by_status status = by_loop_run(h->loop, err);
    if (h->opts.catch_signals) { /* loading cannot be broken off: another signal ends the process */
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
    }
    by_load_join(h);
    if (status == BY_OK && h->load_failed) {
        *err = h->load_err;
        return h->load_status;
    }
    return status;
}

void by_http_close(by_http *h) {
    if (!h) return;
    by_load_join(h);
    stop_listening(h);
    by_worker_destroy(h->worker);
    h->worker = NULL;
    by_jobs_abort(h);
    by_tasks_abort(h);
    while (h->conns) by_conn_close(h->conns);
    by_conns_flush(h);
    by_timer_destroy(h->tick);
    by_timer_destroy(h->accept_again);
    by_loop_destroy(h->loop);
    by_stored_destroy(h->stored);
    by_files_destroy(h->files);
    by_tok_scratch_destroy(h->tok_scratch);
    by_service_close(h->service);
    by_metrics_destroy(h->metrics);
    by_free(h->scratch);
    by_free(h->keys);
    by_free(h);
}
