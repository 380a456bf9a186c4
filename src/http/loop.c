/* loop.c - see loop.h. The only file that knows libevent: its base (epoll), timers and signals. Its HTTP server and its
 * buffers are not used: evhttp takes line ends and lengths that proxies read differently, stops the process when a second
 * request comes while the first one waits, and does not see that the client of a waiting request has left. */
#include "http/loop.h"

#include <event2/event.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { SIGNALS_MAX = 4 };

typedef struct {
    void (*fn)(void *arg);
    void *arg;
    struct event *ev;
} signal_hook;

struct by_loop {
    struct event_base *base;
    struct event *wake;
    int wake_fd;
    _Atomic(by_post *) posts; /* newest first */
    _Atomic bool awake;       /* somebody has written to wake_fd, or the loop is about to look */
    signal_hook signals[SIGNALS_MAX];
    int n_signals;
    void (*after)(void *arg);
    void *after_arg;
    bool after_wanted;
    int64_t now_ms;
};

struct by_watch {
    by_loop *loop;
    struct event *ev;
    int fd, events;
    by_watch_fn *fn;
    void *arg;
};

struct by_timer {
    by_loop *loop;
    struct event *ev;
    void (*fn)(void *arg);
    void *arg;
};

static void see_time(by_loop *l) { l->now_ms = by_clock_ns() / 1000000; }
int64_t by_loop_now_ms(const by_loop *l) { return l->now_ms; }

/* ---- after a round ---- */

static void end_round(by_loop *l) {
    if (!l->after_wanted) return;
    l->after_wanted = false;
    l->after(l->after_arg);
}

void by_loop_set_after(by_loop *l, void (*fn)(void *arg), void *arg) {
    l->after = fn;
    l->after_arg = arg;
}

void by_loop_want_after(by_loop *l) { l->after_wanted = true; }

/* ---- other threads ---- */

void by_loop_post(by_loop *l, by_post *p) {
    if (atomic_exchange(&p->queued, true)) return;
    by_post *head = atomic_load_explicit(&l->posts, memory_order_relaxed);
    do p->next = head;
    while (!atomic_compare_exchange_weak(&l->posts, &head, p));
    if (atomic_exchange(&l->awake, true)) return;
    uint64_t one = 1;
    ssize_t n = write(l->wake_fd, &one, sizeof one); /* fails only when the count is full, and then nobody sleeps */
    (void)n;
}

static void run_posts(by_loop *l) {
    atomic_store(&l->awake, false); /* before the list is taken: what is posted from now on wakes again */
    by_post *newest = atomic_exchange(&l->posts, NULL), *first = NULL;
    while (newest) { /* oldest first */
        by_post *next = newest->next;
        newest->next = first;
        first = newest;
        newest = next;
    }
    while (first) {
        by_post *next = first->next;
        void (*fn)(void *) = first->fn;
        void *fn_arg = first->arg;
        atomic_store(&first->queued, false);
        fn(fn_arg); /* may free what `first` is part of */
        first = next;
    }
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    by_loop *l = arg;
    (void)what;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n;
    see_time(l);
    run_posts(l);
    end_round(l);
}

/* ---- life ---- */

by_status by_loop_create(by_loop **out, by_err *err) {
    *out = NULL;
    by_loop *l = by_alloc_zero(BY_MEM_HTTP, sizeof *l);
    if (!l) return BY_FAIL(err, BY_ENOMEM, "out of memory for the event loop");
    see_time(l);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->base = l->wake_fd >= 0 ? event_base_new() : NULL;
    if (l->base) l->wake = event_new(l->base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l);
    if (!l->wake || event_add(l->wake, NULL) != 0) {
        by_loop_destroy(l);
        return BY_FAIL(err, BY_EIO, "the event loop cannot be made: no descriptors or no memory");
    }
    *out = l;
    return BY_OK;
}

void by_loop_destroy(by_loop *l) {
    if (!l) return;
    run_posts(l); /* what is on its way may have to be freed by its function */
    for (int i = 0; i < l->n_signals; i++) event_free(l->signals[i].ev);
    if (l->wake) event_free(l->wake);
    if (l->base) event_base_free(l->base);
    if (l->wake_fd >= 0) close(l->wake_fd);
    by_free(l);
}

by_status by_loop_run(by_loop *l, by_err *err) {
    return event_base_dispatch(l->base) < 0 ? BY_FAIL(err, BY_EIO, "the event loop has failed") : BY_OK;
}

void by_loop_stop(by_loop *l) { event_base_loopbreak(l->base); }

/* ---- descriptors ---- */

static void on_watch(evutil_socket_t fd, short what, void *arg) {
    by_watch *w = arg;
    by_loop *l = w->loop; /* the callback may destroy the watch */
    (void)fd;
    see_time(l);
    int events = (what & EV_READ ? BY_LOOP_READ : 0) | (what & EV_WRITE ? BY_LOOP_WRITE : 0) | (what & EV_CLOSED ? BY_LOOP_CLOSED : 0);
    w->fn(w->arg, events);
    end_round(l);
}

by_status by_watch_create(by_watch **out, by_loop *l, int fd, by_watch_fn *fn, void *arg, by_err *err) {
    *out = NULL;
    by_watch *w = by_alloc_zero(BY_MEM_HTTP, sizeof *w);
    if (!w) return BY_FAIL(err, BY_ENOMEM, "out of memory for a connection");
    *w = (by_watch){.loop = l, .fd = fd, .fn = fn, .arg = arg};
    w->ev = event_new(l->base, fd, EV_PERSIST, on_watch, w);
    if (!w->ev) {
        by_free(w);
        return BY_FAIL(err, BY_ENOMEM, "out of memory for a connection");
    }
    *out = w;
    return BY_OK;
}

by_status by_watch_set(by_watch *w, int events) {
    if (events == w->events) return BY_OK;
    if (w->events) event_del(w->ev);
    w->events = 0;
    if (!events) return BY_OK;
    short what = (short)((events & BY_LOOP_READ ? EV_READ : 0) | (events & BY_LOOP_WRITE ? EV_WRITE : 0) |
                         (events & BY_LOOP_CLOSED ? EV_CLOSED : 0) | EV_PERSIST);
    if (event_assign(w->ev, w->loop->base, w->fd, what, on_watch, w) != 0) return BY_EIO;
    if (event_add(w->ev, NULL) != 0) return BY_EIO;
    w->events = events;
    return BY_OK;
}

void by_watch_destroy(by_watch *w) {
    if (!w) return;
    event_free(w->ev);
    by_free(w);
}

/* ---- timers and signals ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    by_timer *t = arg;
    by_loop *l = t->loop;
    (void)fd;
    (void)what;
    see_time(l);
    t->fn(t->arg);
    end_round(l);
}

by_status by_timer_create(by_timer **out, by_loop *l, void (*fn)(void *arg), void *arg, by_err *err) {
    *out = NULL;
    by_timer *t = by_alloc_zero(BY_MEM_HTTP, sizeof *t);
    if (t) {
        *t = (by_timer){.loop = l, .fn = fn, .arg = arg};
        t->ev = event_new(l->base, -1, 0, on_timer, t);
    }
    if (!t || !t->ev) {
        by_free(t);
        return BY_FAIL(err, BY_ENOMEM, "out of memory for a timer");
    }
    *out = t;
    return BY_OK;
}

void by_timer_set(by_timer *t, int64_t ms) {
    event_del(t->ev);
    if (ms < 0) return;
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(t->ev, &tv);
}

void by_timer_destroy(by_timer *t) {
    if (!t) return;
    event_free(t->ev);
    by_free(t);
}

static void on_signal(evutil_socket_t fd, short what, void *arg) {
    signal_hook *s = arg;
    (void)fd;
    (void)what;
    s->fn(s->arg);
}

by_status by_loop_on_signal(by_loop *l, int number, void (*fn)(void *arg), void *arg, by_err *err) {
    if (l->n_signals == SIGNALS_MAX) return BY_FAIL(err, BY_EIO, "more than %d signals", SIGNALS_MAX);
    signal_hook *s = &l->signals[l->n_signals];
    *s = (signal_hook){.fn = fn, .arg = arg, .ev = event_new(l->base, number, EV_SIGNAL | EV_PERSIST, on_signal, s)};
    if (!s->ev) return BY_FAIL(err, BY_ENOMEM, "out of memory for a signal");
    l->n_signals++;
    return event_add(s->ev, NULL) == 0 ? BY_OK : BY_FAIL(err, BY_EIO, "signal %d cannot be caught", number);
}
