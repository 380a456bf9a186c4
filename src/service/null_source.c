/* null_source.c - see null_source.h. What a request has to give is a function of the clock; a thread wakes the readers when
 * their next token is due. */
#include "service/null_source.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    TICK_US_MIN = 100,  /* the thread looks at its requests this often, or eight times per token */
    TICK_US_MAX = 5000,
    AT_ONCE = 256,      /* events without a pause, like the engine's queue of a request */
    CHOICES_MAX = 64
};

struct by_null {
    by_null_opts opts;
    by_tok_ids text; /* what every answer says, again and again */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    by_null_request *first; /* under lock: requests with something to come */
    int32_t n_requests;
    bool ending, has_thread;
};

struct by_null_request {
    by_null *null;
    by_null_request *prev, *next;
    bool listed;
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

static void unlist(by_null_request *r) {
    if (!r->listed) return;
    r->listed = false;
    if (r->prev) r->prev->next = r->next;
    else r->null->first = r->next;
    if (r->next) r->next->prev = r->prev;
}

static void wake_readers(by_null *n) {
    int64_t now = now_us();
    for (by_null_request *r = n->first, *next; r; r = next) {
        next = r->next;
        if (now < due_us(r, r->n_told)) continue;
        while (r->n_told < r->opts.max_tokens && now >= due_us(r, r->n_told)) r->n_told++;
        if (r->n_told == r->opts.max_tokens) unlist(r);
        r->opts.notify(r->opts.arg);
    }
}

static void *null_main(void *arg) {
    by_null *n = arg;
    double us = n->opts.rate > 0 ? 1e6 / n->opts.rate / 8 : TICK_US_MIN;
    long tick = us < TICK_US_MIN ? TICK_US_MIN : us > TICK_US_MAX ? TICK_US_MAX : (long)us;
    pthread_mutex_lock(&n->lock);
    while (!n->ending) {
        if (!n->first) {
            pthread_cond_wait(&n->more, &n->lock);
            continue;
        }
        pthread_mutex_unlock(&n->lock);
        struct timespec ts = {.tv_nsec = tick * 1000};
        nanosleep(&ts, NULL);
        pthread_mutex_lock(&n->lock);
        wake_readers(n);
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
    pthread_cond_init(&n->more, NULL);
    by_status status = by_tok_encode(tok, NULL, BY_STR("The quick brown fox jumps over the lazy dog. "), BY_TOK_PLAIN, &n->text, err);
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
    by_free(n);
}

/* ---- requests ---- */

by_status by_null_submit(by_null *n, const by_request_opts *opts, by_null_request **out, by_err *err) {
    *out = NULL;
    if (opts->n_tokens >= n->opts.max_context)
        return BY_FAIL(err, BY_ECONTEXT, "the prompt has %d tokens and the context holds %lld, one of which must be left", opts->n_tokens,
                       (long long)n->opts.max_context);
    if (opts->n < 1 || opts->n > CHOICES_MAX) return BY_FAIL(err, BY_EINVAL, "n: %d is outside 1..%d", opts->n, CHOICES_MAX);
    by_null_request *r = by_alloc_zero(BY_MEM_REQUEST, sizeof *r + (size_t)opts->n * sizeof r->choices[0]);
    if (!r) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    r->null = n;
    r->opts = *opts;
    r->n_open = opts->n;
    r->info = (by_request_info){.n_prompt = opts->n_tokens, .submit_us = now_us(), .start_us = now_us()};
    pthread_mutex_lock(&n->lock);
    bool full = n->n_requests >= n->opts.max_requests;
    if (!full) {
        n->n_requests++;
        if (opts->notify && due_us(r, opts->max_tokens - 1) > r->info.submit_us) { /* else all is there at once */
            r->listed = true;
            r->next = n->first;
            if (n->first) n->first->prev = r;
            else pthread_cond_signal(&n->more);
            n->first = r;
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
