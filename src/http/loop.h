/* loop.h - the server's event loop: descriptors, timers, signals, and work posted by other threads. The only file that knows
 * libevent is loop.c.
 *
 * Everything is called on the thread that runs the loop, except by_loop_post. A callback may destroy what it was called for. */
#ifndef BY_HTTP_LOOP_H
#define BY_HTTP_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct by_loop by_loop;

/* *out is set only on success. Errors: BY_ENOMEM, BY_EIO (no descriptors). */
by_status by_loop_create(by_loop **out, by_err *err);
/* Calls what is still posted, then frees. Every watch and timer must have been destroyed. NULL is allowed. */
void by_loop_destroy(by_loop *l);

/* Runs until by_loop_stop. Errors: BY_EIO. */
by_status by_loop_run(by_loop *l, by_err *err);
void by_loop_stop(by_loop *l);

/* Monotonic time in milliseconds when the loop last woke: cheap, good enough for limits of seconds. */
int64_t by_loop_now_ms(const by_loop *l);

/* Called at the end of a callback, or of a list of posts, in which by_loop_want_after was called: for writes that are worth
 * collecting. */
void by_loop_set_after(by_loop *l, void (*fn)(void *arg), void *arg);
void by_loop_want_after(by_loop *l);

/* ---- descriptors ---- */

enum { BY_LOOP_READ = 1, BY_LOOP_WRITE = 2, BY_LOOP_CLOSED = 4 }; /* CLOSED: the other side has closed its writing end */

typedef struct by_watch by_watch;
typedef void by_watch_fn(void *arg, int events);

/* Watches fd (not owned, non-blocking) for nothing yet. Errors: BY_ENOMEM. */
by_status by_watch_create(by_watch **out, by_loop *l, int fd, by_watch_fn *fn, void *arg, by_err *err);
/* Which events are wanted from now on, level-triggered; 0 = none. Errors: BY_EIO. */
by_status by_watch_set(by_watch *w, int events);
void by_watch_destroy(by_watch *w); /* before the descriptor is closed; NULL is allowed */

/* ---- timers and signals ---- */

typedef struct by_timer by_timer;

/* A timer that is not running. Errors: BY_ENOMEM. */
by_status by_timer_create(by_timer **out, by_loop *l, void (*fn)(void *arg), void *arg, by_err *err);
/* Fires once after ms milliseconds (>= 0), or never when ms is negative. */
void by_timer_set(by_timer *t, int64_t ms);
void by_timer_destroy(by_timer *t); /* NULL is allowed */

/* Calls fn on the loop whenever the signal has come. At most 4. Errors: BY_ENOMEM, BY_EIO. */
by_status by_loop_on_signal(by_loop *l, int number, void (*fn)(void *arg), void *arg, by_err *err);

/* ---- other threads ---- */

/* A piece of news, part of the caller's own struct; zero-initialised, then fn and arg set. */
typedef struct by_post {
    struct by_post *next;
    void (*fn)(void *arg);
    void *arg;
    _Atomic bool queued;
} by_post;

/* Lets the loop call p->fn(p->arg) soon; once, however often it is posted before that. Any thread. The memory must stay until
 * fn has been called: a struct that dies while p->queued is true is freed by its fn. */
void by_loop_post(by_loop *l, by_post *p);

#endif
