/* null_source.c - see null_source.h. What a request has to give is a function of the clock; a thread wakes the readers when
 * their next token is due. Requests wait in a binary heap, the one whose token is due first on top. */
#include "service/null_source.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    TICK_US = 50,       /* the thread wakes at most this often: what is due in between is told together */
    AT_ONCE = 256,      /* events without a pause, like the engine's queue of a request */
    CHOICES_MAX = 64
};

struct by_null {
    by_null_opts opts;
    by_tok_ids text; /* what every answer says, again and again */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    by_null_request **heap; /* [max_requests] under lock: requests with something to come */
    int32_t n_heap, n_requests;
    bool ending, has_thread;
};

struct by_null_request {
    by_null *null;
    int32_t place;      /* in the heap, -1 = not there */
    int64_t wake_us;    /* when its next token is due */
    by_request_opts opts;
    by_request_info info;
    int64_t n_told;     /* tokens per choice whose coming was notified */
    int32_t n_open, n_burst;
    struct {
        int32_t n_given;
        bool ended, aborted, stop;
    } choices[];
};

static int64_t now_us(void) { return by_clock_ns() / 1000; }

/* When token i of a request is there. */
static int64_t due_us(const by_null_request *r, int64_t i) {
    const by_null_opts *o = &r->null->opts;
    double wait = o->first_ms * 1e3 + (o->rate > 0 ? (double)i * 1e6 / o->rate : 0);
    return r->info.submit_us + (int64_t)wait;
}

/* ---- the thread ---- */

/* Puts r where it belongs, starting from `at`, a place that is free. */
static void settle(by_null *n, int32_t at, by_null_request *r) {
    for (int32_t up = (at - 1) / 2; at > 0 && n->heap[up]->wake_us > r->wake_us; at = up, up = (at - 1) / 2) {
        n->heap[at] = n->heap[up];
        n->heap[at]->place = at;
    }
    for (int32_t down; (down = 2 * at + 1) < n->n_heap; at = down) {
        if (down + 1 < n->n_heap && n->heap[down + 1]->wake_us < n->heap[down]->wake_us) down++;
        if (n->heap[down]->wake_us >= r->wake_us) break;
        n->heap[at] = n->heap[down];
        n->heap[at]->place = at;
    }
    n->heap[at] = r;
    r->place = at;
}

static void unlist(by_null_request *r) {
    by_null *n = r->null;
    if (r->place < 0) return;
    by_null_request *last = n->heap[--n->n_heap];
    if (last != r) settle(n, r->place, last);
    r->place = -1;
}

static void wake_readers(by_null *n, int64_t now) {
    while (n->n_heap > 0 && n->heap[0]->wake_us <= now) {
        by_null_request *r = n->heap[0];
        while (r->n_told < r->opts.max_tokens && now >= due_us(r, r->n_told)) r->n_told++;
        r->wake_us = due_us(r, r->n_told);
        if (r->n_told == r->opts.max_tokens) unlist(r);
        else settle(n, 0, r);
        r->opts.notify(r->opts.arg);
    }
}

static void *null_main(void *arg) {
    by_null *n = arg;
    pthread_mutex_lock(&n->lock);
    while (!n->ending) {
        int64_t now = now_us();
        wake_readers(n, now);
        if (n->n_heap == 0) {
            pthread_cond_wait(&n->more, &n->lock);
            continue;
        }
        int64_t until = n->heap[0]->wake_us; /* a request that comes meanwhile can be due before: then `more` rings */
        if (until < now + TICK_US) until = now + TICK_US;
        struct timespec ts = {.tv_sec = until / 1000000, .tv_nsec = until % 1000000 * 1000};
        pthread_cond_timedwait(&n->more, &n->lock, &ts);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* ---- life ---- */

by_status by_null_create(by_null **out, const by_tok *tok, const by_null_opts *opts, by_err *err) {
    *out = NULL;
    by_null *n = by_alloc_zero(BY_MEM_REQUEST, sizeof *n);
    if (!n) return BY_FAIL(err, BY_ENOMEM, "out of memory for the null backend");
    n->opts = *opts;
    pthread_mutex_init(&n->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&n->more, &clock);
    pthread_condattr_destroy(&clock);
    n->heap = by_alloc(BY_MEM_REQUEST, by_mul_size((size_t)opts->max_requests, sizeof(by_null_request *)));
    by_status status = n->heap ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for the null backend");
    if (status == BY_OK) status = by_tok_encode(tok, NULL, BY_STR("The quick brown fox jumps over the lazy dog. "), BY_TOK_PLAIN, &n->text, err);
    if (status == BY_OK && pthread_create(&n->thread, NULL, null_main, n) != 0)
        status = BY_FAIL(err, BY_ENOMEM, "a thread cannot be started");
    n->has_thread = status == BY_OK;
    if (status == BY_OK) *out = n;
    else by_null_destroy(n);
    return status;
}

void by_null_destroy(by_null *n) {
    if (!n) return;
    if (n->has_thread) {
        pthread_mutex_lock(&n->lock);
        n->ending = true;
        pthread_cond_signal(&n->more);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->thread, NULL);
    }
    pthread_cond_destroy(&n->more);
    pthread_mutex_destroy(&n->lock);
    by_tok_ids_deinit(&n->text);
    by_free(n->heap);
    by_free(n);
}

/* ---- requests ---- */

by_status by_null_submit(by_null *n, const by_request_opts *opts, by_null_request **out, by_err *err) {
    *out = NULL;
    if (opts->n_tokens >= n->opts.max_context)
        return BY_FAIL(err, BY_ECONTEXT, "the prompt has %d tokens and the context holds %lld, one of which must be left", opts->n_tokens,
                       (long long)n->opts.max_context);
    if (opts->n < 1 || opts->n > CHOICES_MAX) return BY_FAIL_AT(err, BY_EINVAL, "n", "n: %d is outside 1..%d", opts->n, CHOICES_MAX);
    by_null_request *r = by_alloc_zero(BY_MEM_REQUEST, sizeof *r + (size_t)opts->n * sizeof r->choices[0]);
    if (!r) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    r->null = n;
    r->opts = *opts;
    r->n_open = opts->n;
    r->place = -1;
    r->info = (by_request_info){.n_prompt = opts->n_tokens, .submit_us = now_us(), .start_us = now_us()};
    r->wake_us = due_us(r, 0);
    pthread_mutex_lock(&n->lock);
    bool full = n->n_requests >= n->opts.max_requests;
    if (!full) {
        n->n_requests++;
        if (opts->notify && due_us(r, opts->max_tokens - 1) > r->info.submit_us) { /* else all is there at once */
            settle(n, n->n_heap++, r);
            if (r->place == 0) pthread_cond_signal(&n->more);
        }
    }
    pthread_mutex_unlock(&n->lock);
    if (full) {
        by_free(r);
        return BY_FAIL(err, BY_EBUSY, "%d requests are inside, which is the limit", n->opts.max_requests);
    }
    *out = r;
    return BY_OK;
}

/* An event of choice k that is there at `now`, or false. */
static bool give(by_null_request *r, int32_t k, int64_t now, by_event *ev) {
    if (r->choices[k].ended) return false;
    int32_t i = r->choices[k].n_given;
    bool aborted = r->choices[k].aborted;
    if (!aborted && now < due_us(r, i)) return false;
    *ev = (by_event){.choice = k, .token = -1, .logprob = -1.0f};
    if (aborted) {
        ev->finish = r->choices[k].stop ? BY_CHOICE_STOP : BY_CHOICE_CANCELLED;
    } else {
        ev->token = r->null->text.ids[(size_t)i % r->null->text.n];
        r->choices[k].n_given++;
        if (i + 1 == r->opts.max_tokens) ev->finish = BY_CHOICE_LENGTH;
        if (!r->info.first_us) r->info.first_us = now;
    }
    if (ev->finish != BY_CHOICE_RUNNING) {
        r->choices[k].ended = true;
        if (--r->n_open == 0) r->info.end_us = now;
    }
    return true;
}

by_status by_null_next(by_null_request *r, by_event *ev, int64_t timeout_ms) {
    int64_t begin = now_us();
    for (;;) {
        if (r->n_open == 0) return BY_END;
        if (r->n_burst >= AT_ONCE && timeout_ms == 0 && r->opts.notify) { /* the reader looks after itself, then comes again */
            r->n_burst = 0;
            r->opts.notify(r->opts.arg);
            return BY_AGAIN;
        }
        int64_t now = now_us(), next = INT64_MAX;
        for (int32_t k = 0; k < r->opts.n; k++) {
            if (give(r, k, now, ev)) return r->n_burst++, BY_OK;
            int64_t due = r->choices[k].ended ? INT64_MAX : due_us(r, r->choices[k].n_given);
            if (due < next) next = due;
        }
        if (timeout_ms >= 0 && next - begin > timeout_ms * 1000) return r->n_burst = 0, BY_AGAIN;
        struct timespec ts = {.tv_sec = (next - now) / 1000000, .tv_nsec = (next - now) % 1000000 * 1000};
        nanosleep(&ts, NULL);
    }
}

void by_null_abort(by_null_request *r, int32_t choice, bool stop) {
    for (int32_t k = 0; k < r->opts.n; k++) {
        if (choice >= 0 && k != choice) continue;
        r->choices[k].aborted = true;
        r->choices[k].stop = stop;
    }
}

void by_null_release(by_null_request *r) {
    if (!r) return;
    by_null *n = r->null;
    pthread_mutex_lock(&n->lock);
    unlist(r);
    n->n_requests--;
    pthread_mutex_unlock(&n->lock);
    by_free(r);
}

by_request_info by_null_info(by_null_request *r) { return r->info; }
