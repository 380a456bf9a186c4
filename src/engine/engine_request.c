/* engine_request.c - requests: checking, copying, event queues, release. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine_impl.h"

enum { QUEUE_DEFAULT = 256, CHOICES_MAX = 64, PROMPT_TOP_MAX = 20 };

by_request_opts by_request_opts_default(void) {
    return (by_request_opts){.max_tokens = 16, .sampling = by_sample_params_default(), .n = 1, .best_of = 1};
}

/* ---- memory ---- */

static void free_seq(by_seq *s) {
    by_free(s->tokens);
    by_free(s->keys);
    by_sample_history_deinit(&s->history);
    by_spec_clear_drafts(&s->drafts);
}

static void free_request(by_request *r) {
    by_engine_grammar_leave(r);
    for (int32_t i = 0; r->seqs && i < r->opts.best_of; i++) free_seq(&r->seqs[i]);
    for (int32_t i = 0; r->held && i < r->opts.best_of; i++) {
        by_free(r->held[i].events);
        by_free(r->held[i].tops);
    }
    by_free(r->held);
    by_free(r->seqs);
    by_free(r->ring);
    by_free(r->tops);
    by_buf_deinit(&r->grammar_warnings);
    by_free(r->prompt_logprobs);
    by_free(r->prompt_tops);
    by_free(r->prompt_ranks);
    by_free((void *)(uintptr_t)r->opts.sampling.bias);
    by_free((void *)(uintptr_t)r->opts.sampling.banned);
    by_free((void *)(uintptr_t)r->opts.sampling.stop_ids);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->more);
    by_free(r);
}

static bool copy_list(const void **list, int32_t n, size_t size) {
    const void *from = *list;
    *list = NULL;
    if (n == 0) return true;
    void *to = by_alloc(BY_MEM_REQUEST, (size_t)n * size);
    if (!to) return false;
    memcpy(to, from, (size_t)n * size);
    *list = to;
    return true;
}

/* The engine's banned ids behind the request's own. */
static bool add_banned(const by_engine *e, by_sample_params *p) {
    int32_t n = e->opts.n_banned;
    if (n == 0) return true;
    int32_t *all = by_alloc(BY_MEM_REQUEST, by_mul_size((size_t)p->n_banned + (size_t)n, sizeof *all));
    if (!all) return false;
    if (p->n_banned) memcpy(all, p->banned, (size_t)p->n_banned * sizeof *all);
    memcpy(all + p->n_banned, e->banned, (size_t)n * sizeof *all);
    by_free((void *)(uintptr_t)p->banned);
    p->banned = all;
    p->n_banned += n;
    return true;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
/* A copy of the biases in which an id stands once: the last counts, as where a JSON object has a name twice. Backends add them in any
 * order. */
static bool copy_bias(const void **list, int32_t *n) {
    const by_sample_bias *from = *list;
    int32_t kept = 0;
    *list = NULL;
    if (*n == 0) return true;
    uint64_t *order = by_alloc(BY_MEM_REQUEST, (size_t)*n * sizeof *order);
    by_sample_bias *to = by_alloc(BY_MEM_REQUEST, (size_t)*n * sizeof *to);
    for (int32_t i = 0; order && i < *n; i++) order[i] = (uint64_t)(uint32_t)from[i].id << 32 | (uint32_t)i;
    if (order) qsort(order, (size_t)*n, sizeof *order, by_number);
    for (int32_t i = 0; order && to && i < *n; i++) {
        const by_sample_bias *b = &from[order[i] & UINT32_MAX];
        if (kept == 0 || to[kept - 1].id != b->id) kept++;
        to[kept - 1] = *b;
    }
    bool ok = order && to;
    by_free(order);
    *list = to;
    *n = kept;
    return ok;
}

static bool copy_lists(by_sample_params *p) {
    const void *bias = p->bias, *banned = p->banned, *stop = p->stop_ids;
    bool ok = copy_bias(&bias, &p->n_bias);
    ok = copy_list(&banned, ok ? p->n_banned : 0, sizeof *p->banned) && ok;
    ok = copy_list(&stop, ok ? p->n_stop_ids : 0, sizeof *p->stop_ids) && ok;
    p->bias = bias;
    p->banned = banned;
    p->stop_ids = stop;
    return ok;
}

static bool make_seq(by_request *r, int32_t i, const int32_t *tokens, int64_t n_max) {
    by_seq *s = &r->seqs[i];
    *s = (by_seq){.request = r, .choice = i, .n_prompt = r->opts.n_tokens, .edits = !by_sample_params_plain(&r->opts.sampling)};
    s->tokens = by_alloc(BY_MEM_REQUEST, (size_t)n_max * 4);
    s->keys = by_alloc(BY_MEM_REQUEST, (size_t)(n_max / BY_KV_BLOCK_TOKENS + 1) * sizeof *s->keys);
    if (!s->tokens || !s->keys) return false;
    memcpy(s->tokens, tokens, (size_t)s->n_prompt * 4);
    /* Room for all at once: rejected drafts keep their places, and a step allocates nothing. */
    int64_t most = n_max * (1 + r->engine->n_drafts);
    uint32_t distinct = most < BY_LIMIT_VOCAB ? (uint32_t)most : BY_LIMIT_VOCAB;
    if (s->edits && (by_sample_history_reserve(&s->history, distinct, NULL) < 0 ||
                     by_sample_history_add_prompt(&s->history, s->tokens, s->n_prompt, NULL) < 0))
        return false;
    const by_request_opts *o = &r->opts;
    s->n_known = s->n_prompt;
    s->law = (by_spec_law){.params = &o->sampling, .seed = o->sampling.seed + (uint64_t)i, .rule = r->engine->opts.verify,
                           .history = s->edits ? &s->history : NULL, .plain_logprobs = o->plain_logprobs, .n_top = o->n_top,
                           .sum_smaller = r->engine->opts.sum_smaller};
    s->parent = i > 0 ? &r->seqs[0] : NULL;
    s->sched = (by_sched_seq){.priority = r->opts.priority, .arrival_us = r->info.submit_us, .n_tokens = s->n_prompt, .n_max = n_max,
                              .wants_all = r->opts.prompt_logprobs};
    return true;
}

/* ---- submission ---- */

static by_status check(const by_engine *e, const by_request_opts *o, by_err *err) {
    const by_config *c = &e->model->cfg;
    const char *few = o->best_of == o->n ? "n" : "best_of";
    if (o->n_tokens < 1) return BY_FAIL(err, BY_EINVAL, "prompt: empty");
    if (o->n_tokens >= e->max_context)
        return BY_FAIL(err, BY_ECONTEXT, "the prompt has %d tokens and the context holds %lld%s, one of which must be left", o->n_tokens,
                       (long long)e->max_context, by_engine_context_reason(e));
    for (int32_t i = 0; i < o->n_tokens; i++)
        if (o->tokens[i] < 0 || o->tokens[i] >= c->vocab_size)
            return BY_FAIL_AT(err, BY_EINVAL, "prompt", "prompt[%d]: %d is not a token id in 0..%d", i, o->tokens[i], c->vocab_size - 1);
    if (o->max_tokens < 1) return BY_FAIL(err, BY_EINVAL, "max_tokens: %d is below 1", o->max_tokens);
    if (o->n < 1 || o->best_of < o->n || o->best_of > CHOICES_MAX)
        return BY_FAIL_AT(err, BY_EINVAL, few, "n %d, best_of %d: want 1 <= n <= best_of <= %d", o->n, o->best_of, CHOICES_MAX);
    if (o->best_of > by_kv_n_slots(e->kv) || o->best_of > e->max_seqs)
        return BY_FAIL_AT(err, BY_EINVAL, few, "best_of: %d is more than the engine runs at once", o->best_of);
    if (o->n_top < 0 || o->n_top > BY_SAMPLE_TOP_LOGPROBS_MAX || o->n_top > c->vocab_size)
        return BY_FAIL_AT(err, BY_EINVAL, "top_logprobs", "top_logprobs: %d is outside 0..%d", o->n_top, BY_SAMPLE_TOP_LOGPROBS_MAX);
    if (o->n_prompt_top < 0 || o->n_prompt_top > PROMPT_TOP_MAX || o->n_prompt_top > c->vocab_size ||
        (o->n_prompt_top && !o->prompt_logprobs))
        return BY_FAIL(err, BY_EINVAL, "n_prompt_top: %d is outside 0..%d, or without prompt_logprobs", o->n_prompt_top, PROMPT_TOP_MAX);
    if (o->prompt_ranks && !o->prompt_logprobs) return BY_FAIL(err, BY_EINVAL, "prompt_ranks: without prompt_logprobs");
    if (o->queue_cap < 0 || o->queue_cap > 1 << 20) return BY_FAIL(err, BY_EINVAL, "queue_cap: %d", o->queue_cap);
    BY_TRY(by_engine_grammar_check(e, o->grammar, err));
    return by_sample_params_check(&o->sampling, c->vocab_size, err);
}

/* Events that must fit when the scheduler looks: two steps may be on their way, and it plans a third. */
static int32_t room_needed(const by_engine *e, int32_t n_choices) { return 3 * n_choices * (1 + e->n_drafts); }

static by_status build(by_engine *e, by_request *r, const by_request_opts *o, by_err *err) {
    int64_t n_max = (int64_t)o->n_tokens + o->max_tokens;
    if (n_max > e->max_context) n_max = e->max_context;
    int32_t cap = o->queue_cap ? o->queue_cap : QUEUE_DEFAULT;
    int32_t least = room_needed(e, o->best_of) + o->best_of + 4;
    r->cap = cap < least ? least : cap;
    r->n_live = r->n_choices = o->best_of;
    r->n_open = o->n;
    r->info = (by_request_info){.n_prompt = o->n_tokens, .submit_us = by_clock_ns() / 1000};
    if (o->deadline_ms > 0) r->deadline_us = r->info.submit_us + o->deadline_ms * 1000;
    bool ok = copy_lists(&r->opts.sampling) && add_banned(e, &r->opts.sampling);
    if (e->opts.sampler != BY_SAMPLE_SMOOTH) r->opts.sampling.rule = e->opts.sampler;
    if (e->opts.top_k) r->opts.sampling.law.top_k = e->opts.top_k;
    r->ring = by_alloc_zero(BY_MEM_REQUEST, (size_t)r->cap * sizeof *r->ring);
    if (o->n_top) r->tops = by_alloc_zero(BY_MEM_REQUEST, (size_t)r->cap * (size_t)o->n_top * sizeof *r->tops);
    r->seqs = by_alloc_zero(BY_MEM_REQUEST, (size_t)o->best_of * sizeof *r->seqs);
    if (o->best_of > o->n) r->held = by_alloc_zero(BY_MEM_REQUEST, (size_t)o->best_of * sizeof *r->held);
    if (o->prompt_logprobs) r->prompt_logprobs = by_alloc_zero(BY_MEM_REQUEST, (size_t)o->n_tokens * 4);
    size_t n_tops = (size_t)o->n_tokens * (size_t)o->n_prompt_top;
    if (n_tops) r->prompt_tops = by_alloc_zero(BY_MEM_REQUEST, n_tops * sizeof *r->prompt_tops);
    if (o->prompt_ranks) r->prompt_ranks = by_alloc_zero(BY_MEM_REQUEST, (size_t)o->n_tokens * sizeof *r->prompt_ranks);
    ok = ok && (r->prompt_ranks || !o->prompt_ranks) &&
         (r->prompt_tops || !o->n_prompt_top) && r->ring && (r->tops || !o->n_top) && r->seqs && (r->held || o->best_of == o->n) &&
         (r->prompt_logprobs || !o->prompt_logprobs);
    for (int32_t i = 0; ok && i < o->best_of; i++) ok = make_seq(r, i, o->tokens, n_max);
    return ok ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a request of %d tokens", o->n_tokens);
}

by_status by_engine_submit(by_engine *e, const by_request_opts *opts, by_request **out, by_err *err) {
    *out = NULL;
    BY_TRY(check(e, opts, err));
    by_request *r = by_alloc_zero(BY_MEM_REQUEST, sizeof *r);
    if (!r) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    r->engine = e;
    r->opts = *opts;
    r->opts.tokens = NULL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->more, &attr);
    pthread_condattr_destroy(&attr);
    r->opts.grammar = NULL;
    by_status status = build(e, r, opts, err);
    if (status == BY_OK) status = by_engine_grammar_ask(e, r, opts->grammar, err);
    if (status == BY_OK) {
        pthread_mutex_lock(&e->lock);
        if (e->draining || e->stopping) {
            status = BY_FAIL(err, BY_EBUSY, "the engine is shutting down");
        } else if (e->n_queued >= e->opts.sched.max_waiting) {
            status = BY_FAIL(err, BY_EBUSY, "%d requests are waiting, which is the limit", e->n_queued);
        } else {
            r->inside = true;
            *(e->incoming_last ? &e->incoming_last->next_new : &e->incoming) = r;
            e->incoming_last = r;
            e->n_inside++;
            e->n_queued++;
            pthread_cond_signal(&e->wake);
        }
        pthread_mutex_unlock(&e->lock);
    }
    if (status < 0) {
        free_request(r);
        return status;
    }
    *out = r;
    return BY_OK;
}

/* ---- events ---- */

bool by_request_has_room(by_request *r) {
    int32_t n_events = atomic_load_explicit(&r->n_events, memory_order_relaxed); /* a hint: no order */
    return r->held || r->cap - n_events >= room_needed(r->engine, r->n_choices);
}

/* Larger queue, for cap events. Under the request's lock. */
static bool grow_ring(by_request *r, int32_t cap) {
    size_t n_top = (size_t)r->opts.n_top;
    by_event *ring = by_alloc_zero(BY_MEM_REQUEST, (size_t)cap * sizeof *ring);
    by_sample_top *tops = n_top ? by_alloc_zero(BY_MEM_REQUEST, (size_t)cap * n_top * sizeof *tops) : NULL;
    if (!ring || (n_top && !tops)) {
        by_free(ring);
        by_free(tops);
        return false;
    }
    for (int32_t i = 0; i < r->n_events; i++) {
        int32_t from = (r->head + i) % r->cap;
        ring[i] = r->ring[from];
        if (n_top) memcpy(tops + (size_t)i * n_top, r->tops + (size_t)from * n_top, n_top * sizeof *tops);
    }
    by_free(r->ring);
    by_free(r->tops);
    r->ring = ring;
    r->tops = tops;
    r->head = 0;
    r->tail = r->n_events;
    r->cap = cap;
    return true;
}

/* Events that come all at once (best_of) get their room before the first of them. */
bool by_request_reserve(by_request *r, int32_t n_events) {
    pthread_mutex_lock(&r->lock);
    bool ok = n_events <= r->cap - r->n_events || grow_ring(r, r->n_events + n_events);
    pthread_mutex_unlock(&r->lock);
    return ok;
}

bool by_request_emit(by_request *r, const by_event *ev) {
    pthread_mutex_lock(&r->lock);
    if (r->info.first_us == 0 && ev->token >= 0) r->info.first_us = by_clock_ns() / 1000;
    int32_t n = atomic_load_explicit(&r->n_events, memory_order_relaxed); /* the lock orders */
    if (n < r->cap || grow_ring(r, r->cap * 2)) {
        int32_t at = r->tail;
        r->tail = at + 1 < r->cap ? at + 1 : 0;
        atomic_store_explicit(&r->n_events, n + 1, memory_order_relaxed);
        r->ring[at] = *ev;
        if (ev->n_top) memcpy(r->tops + (size_t)at * (size_t)r->opts.n_top, ev->top, (size_t)ev->n_top * sizeof *ev->top);
    } else {
        by_err_set(&r->error, BY_ENOMEM, __FILE__, __LINE__, "out of memory for the events of a request");
    }
    if (ev->finish != BY_CHOICE_RUNNING) r->n_open--;
    if (r->n_open == 0) r->info.end_us = by_clock_ns() / 1000;
    bool room = by_request_has_room(r);
    if (r->opts.notify && !r->released) r->opts.notify(r->opts.arg); /* under the lock: never after the release */
    pthread_mutex_unlock(&r->lock);
    pthread_cond_signal(&r->more); /* behind it, or who wakes would wait for the lock; the scheduler is still to let go of r */
    return room;
}

static struct timespec deadline_after(int64_t timeout_ms) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += timeout_ms / 1000;
    ts.tv_nsec += timeout_ms % 1000 * 1000000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_sec++;
        ts.tv_nsec -= 1000000000;
    }
    return ts;
}

void by_engine_poke(by_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->poked = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

by_status by_request_next(by_request *r, by_event *out, int64_t timeout_ms) {
    struct timespec until = {0};
    if (timeout_ms > 0) until = deadline_after(timeout_ms);
    pthread_mutex_lock(&r->lock);
    while (r->n_events == 0 && r->n_open > 0 && timeout_ms != 0) {
        if (timeout_ms < 0) pthread_cond_wait(&r->more, &r->lock);
        else if (pthread_cond_timedwait(&r->more, &r->lock, &until) == ETIMEDOUT) break;
    }
    by_status status = r->n_events > 0 ? BY_OK : r->n_open > 0 ? BY_AGAIN : BY_END;
    bool was_full = false;
    if (status == BY_OK) {
        *out = r->ring[r->head];
        out->top = out->n_top ? r->tops + (size_t)r->head * (size_t)r->opts.n_top : NULL;
        r->head = (r->head + 1) % r->cap;
        r->n_events--;
        was_full = r->cap - r->n_events == room_needed(r->engine, r->opts.best_of); /* just room again: the scheduler may have paused it */
    }
    pthread_mutex_unlock(&r->lock);
    if (was_full) by_engine_poke(r->engine);
    return status;
}

void by_request_abort(by_request *r, int32_t choice, bool stop) {
    uint64_t mask = choice < 0 ? UINT64_MAX : UINT64_C(1) << (choice & 63);
    if (stop) atomic_fetch_or(&r->stop_mask, mask);
    atomic_fetch_or(&r->abort_mask, mask);
    by_engine_poke(r->engine);
}

/* The handle is freed by whoever lets go last. */
void by_request_release(by_request *r) {
    if (!r) return;
    by_engine *e = r->engine;
    pthread_mutex_lock(&e->lock); /* around both, so that the scheduler cannot free it in between */
    pthread_mutex_lock(&r->lock);
    r->released = true;
    pthread_mutex_unlock(&r->lock);
    bool inside = r->inside;
    if (inside) {
        atomic_fetch_or(&r->abort_mask, UINT64_MAX);
        e->poked = true;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    if (!inside) free_request(r);
}

/* Scheduler: nothing of the request is in the engine any more. */
void by_request_leave(by_request *r) {
    by_engine *e = r->engine;
    by_engine_grammar_leave(r); /* now: what the engine closes afterwards must not be in use */
    pthread_mutex_lock(&e->lock);
    r->inside = false;
    e->n_inside--;
    e->stale = true; /* share_stats wakes those who wait for the last one */
    pthread_mutex_lock(&r->lock);
    bool released = r->released;
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_unlock(&e->lock);
    if (released) free_request(r);
}

by_request_info by_request_info_get(by_request *r) {
    pthread_mutex_lock(&r->lock);
    by_request_info info = r->info;
    pthread_mutex_unlock(&r->lock);
    return info;
}

by_status by_request_error(by_request *r, by_err *out) {
    pthread_mutex_lock(&r->lock);
    *out = r->error;
    pthread_mutex_unlock(&r->lock);
    return out->code;
}

const char *by_request_grammar_warnings(by_request *r) {
    pthread_mutex_lock(&r->lock);
    const char *text = by_buf_z(&r->grammar_warnings);
    pthread_mutex_unlock(&r->lock);
    return text;
}

const float *by_request_prompt_logprobs(by_request *r, int32_t *n) {
    *n = r->prompt_logprobs ? r->opts.n_tokens - 1 : 0;
    return r->prompt_logprobs;
}

const int32_t *by_request_prompt_ranks(by_request *r) { return r->prompt_ranks; }
const by_sample_top *by_request_prompt_tops(by_request *r) { return r->prompt_tops; }
