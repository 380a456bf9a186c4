/* grammar_cache.c - see grammar_cache.h. Entries lie in a hash table by the digest of everything that decides the language.
 * One lock; compilations run without it. A failure is kept like a grammar, so that a text that is always refused costs its
 * compilation once, except for failures that may pass (time, memory). */
#include "grammar/grammar_cache.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sha256.h"

#define BYTES_DEFAULT      ((size_t)1 << 30)
#define TIMEOUT_DEFAULT_US 2000000
#define TEXT_MAX           ((size_t)4 << 20) /* the longest text that any kind takes */
enum { BUCKETS = 1024, THREADS_DEFAULT = 2, THREADS_MAX = 64, FAILED_BYTES = 1024 };

typedef enum { QUEUED, RUNNING, READY, FAILED } entry_state;

typedef struct entry {
    uint8_t key[32];
    struct entry *next;       /* in the bucket */
    struct entry *next_queued;
    by_buf text, ws_pattern, root;
    by_grammar_spec spec;     /* strings point into the buffers */
    entry_state state;
    bool keep;                /* stays in the table when the last ticket is closed */
    by_grammar *grammar;
    by_err err;
    by_grammar_ticket *tickets;
    uint64_t used;            /* tick of the last use */
    size_t bytes;
} entry;

struct by_grammar_ticket {
    by_grammar_cache *cache;
    entry *entry;
    by_grammar_ticket *prev, *next;
    void (*done)(void *arg); /* NULL once it was called */
    void *arg;
};

struct by_grammar_cache {
    pthread_mutex_t lock;
    pthread_cond_t work;
    const by_tok *tok;
    uint32_t eos;
    by_grammar_cache_opts opts;
    pthread_mutex_t vocab_lock;
    by_grammar_vocab *vocab;
    entry *buckets[BUCKETS];
    entry *first, *last; /* queue */
    pthread_t threads[THREADS_MAX];
    int32_t n_threads, n_idle;
    bool stop;
    uint64_t tick;
    by_grammar_cache_stats stats;
};

by_status by_grammar_compile_spec(by_grammar **out, const by_grammar_vocab *vocab, const by_grammar_spec *spec, by_err *err) {
    by_grammar_error where = {{0}};
    by_err why = {0};
    by_status status = by_grammar_compile(out, vocab, spec->kind, spec->text, &spec->opts, &where, &why);
    if (status >= 0) return status;
    if (status == BY_ENOMEM) return BY_FAIL(err, BY_ENOMEM, "%s", why.msg);
    const char *kind = by_grammar_kind_name(spec->kind);
    bool named = strncmp(why.msg, kind, strlen(kind)) == 0 || strncmp(why.msg, "grammar", 7) == 0;
    bool placed = !where.where[0] || strstr(why.msg, where.where);
    return BY_FAIL(err, BY_EGRAMMAR, "%s%s%s%s%s", named ? "" : kind, named ? "" : ": ", placed ? "" : where.where,
                   placed ? "" : ": ", why.msg);
}

/* ---- entries ---- */

static void free_entry(entry *e) {
    by_grammar_release(e->grammar);
    by_buf_deinit(&e->text);
    by_buf_deinit(&e->ws_pattern);
    by_buf_deinit(&e->root);
    by_free(e);
}

static entry **bucket_of(by_grammar_cache *c, const uint8_t key[32]) {
    uint32_t h;
    memcpy(&h, key, sizeof h);
    return &c->buckets[h % BUCKETS];
}

static void unlink_entry(by_grammar_cache *c, entry *e) {
    entry **at = bucket_of(c, e->key);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
}

static void unqueue(by_grammar_cache *c, entry *e) {
    entry *before = NULL;
    for (entry *at = c->first; at != e; at = at->next_queued) before = at;
    *(before ? &before->next_queued : &c->first) = e->next_queued;
    if (c->last == e) c->last = before;
}

/* Everything that decides the language and the limits, one behind the other with lengths. */
static by_status key_of(const by_grammar_spec *s, uint8_t key[32], by_err *err) {
    by_buf b = {0};
    const by_grammar_opts *o = &s->opts;
    by_buf_printf(&b, "%d %d %d%d%d%d%d%d %lld %zu %u %zu %zu|", (int)s->kind, (int)o->whitespace, o->any_order, o->strict, o->lenient,
                  o->one_of_any, o->integer_dot_zero, o->empty_ok, (long long)o->timeout_us, o->memory_max, o->states_max, o->ws_pattern.len,
                  o->root.len);
    by_buf_push_str(&b, o->ws_pattern);
    by_buf_push_str(&b, o->root);
    by_buf_push_str(&b, s->text);
    by_status status = by_buf_check(&b, err);
    if (status == BY_OK) by_sha256(b.ptr, b.len, key);
    by_buf_deinit(&b);
    return status;
}

static entry *make_entry(const by_grammar_spec *s, const uint8_t key[32], by_err *err) {
    entry *e = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *e);
    bool ok = e && by_buf_push_str(&e->text, s->text) && by_buf_push_str(&e->ws_pattern, s->opts.ws_pattern) &&
              by_buf_push_str(&e->root, s->opts.root);
    if (!ok) {
        if (e) free_entry(e);
        BY_FAIL(err, BY_ENOMEM, "out of memory for a grammar");
        return NULL;
    }
    memcpy(e->key, key, sizeof e->key);
    e->spec = *s;
    e->spec.text = by_buf_str(&e->text);
    e->spec.opts.ws_pattern = by_buf_str(&e->ws_pattern);
    e->spec.opts.root = by_buf_str(&e->root);
    return e;
}

/* Counts what finished entries hold and drops the least recently used ones above the limit. */
static void evict(by_grammar_cache *c) {
    c->stats.bytes = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (entry *e = c->buckets[i]; e; e = e->next) {
            by_grammar_stats st = {.bytes = FAILED_BYTES};
            if (e->state == READY) by_grammar_get_stats(e->grammar, &st);
            e->bytes = (size_t)st.bytes + e->text.cap;
            c->stats.bytes += e->bytes;
        }
    while (c->stats.bytes > c->opts.bytes_max) {
        entry *oldest = NULL;
        for (int i = 0; i < BUCKETS; i++)
            for (entry *e = c->buckets[i]; e; e = e->next)
                if (e->state >= READY && !e->tickets && (!oldest || e->used < oldest->used)) oldest = e;
        if (!oldest) break;
        c->stats.bytes -= oldest->bytes;
        c->stats.n_evicted++;
        unlink_entry(c, oldest);
        free_entry(oldest);
    }
}

/* ---- the threads ---- */

static by_status compile(by_grammar_cache *c, entry *e, by_grammar **out, by_err *err) {
    by_status status = BY_OK;
    pthread_mutex_lock(&c->vocab_lock);
    if (!c->vocab) status = by_grammar_vocab_from_tok(&c->vocab, c->tok, c->eos, err);
    pthread_mutex_unlock(&c->vocab_lock);
    return status < 0 ? status : by_grammar_compile_spec(out, c->vocab, &e->spec, err);
}

static void finish(by_grammar_cache *c, entry *e, by_grammar *g, by_status status, const by_err *err, double spent) {
    e->grammar = g;
    e->state = status < 0 ? FAILED : READY;
    if (status < 0) e->err = *err;
    e->keep = status == BY_OK || (status == BY_EGRAMMAR && !strstr(err->msg, "time limit"));
    e->used = ++c->tick;
    c->stats.compile_s += spent;
    if (status < 0) c->stats.n_failed++;
    else c->stats.n_compiled++;
    for (by_grammar_ticket *t = e->tickets; t; t = t->next) {
        if (t->done) t->done(t->arg);
        t->done = NULL;
    }
    if (!e->tickets && !e->keep) {
        unlink_entry(c, e);
        free_entry(e);
    }
    evict(c);
}

static void *thread_main(void *arg) {
    by_grammar_cache *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        c->n_idle++;
        while (!c->first && !c->stop) pthread_cond_wait(&c->work, &c->lock);
        c->n_idle--;
        if (c->stop) break;
        entry *e = c->first;
        c->first = e->next_queued;
        if (!c->first) c->last = NULL;
        e->state = RUNNING;
        pthread_mutex_unlock(&c->lock);
        by_grammar *g = NULL;
        by_err err = {0};
        int64_t t0 = by_clock_ns();
        by_status status = compile(c, e, &g, &err);
        double spent = (double)(by_clock_ns() - t0) * 1e-9;
        pthread_mutex_lock(&c->lock);
        finish(c, e, g, status, &err, spent);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static by_status enqueue(by_grammar_cache *c, entry *e, by_err *err) {
    if (c->n_idle == 0 && c->n_threads < c->opts.n_threads) {
        if (pthread_create(&c->threads[c->n_threads], NULL, thread_main, c) == 0) c->n_threads++;
        else if (c->n_threads == 0) return BY_FAIL(err, BY_EIO, "cannot start a thread that compiles grammars");
    }
    entry **bucket = bucket_of(c, e->key);
    e->next = *bucket;
    *bucket = e;
    if (c->last) c->last->next_queued = e;
    else c->first = e;
    c->last = e;
    pthread_cond_signal(&c->work);
    return BY_OK;
}

/* ---- the interface ---- */

by_status by_grammar_cache_create(by_grammar_cache **out, const by_tok *tok, uint32_t eos, const by_grammar_cache_opts *opts,
                                  by_err *err) {
    *out = NULL;
    by_grammar_cache_opts o = opts ? *opts : (by_grammar_cache_opts){0};
    if (o.n_threads == 0) o.n_threads = THREADS_DEFAULT;
    if (o.bytes_max == 0) o.bytes_max = BYTES_DEFAULT;
    if (o.timeout_us == 0) o.timeout_us = TIMEOUT_DEFAULT_US;
    if (o.n_threads < 1 || o.n_threads > THREADS_MAX)
        return BY_FAIL(err, BY_EINVAL, "grammar threads: %d is outside 1..%d", o.n_threads, THREADS_MAX);
    if (o.timeout_us < 0) return BY_FAIL(err, BY_EINVAL, "grammar timeout: below 0");
    by_grammar_cache *c = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *c);
    if (!c) return BY_FAIL(err, BY_ENOMEM, "out of memory for a cache of grammars");
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->vocab_lock, NULL);
    pthread_cond_init(&c->work, NULL);
    c->tok = tok;
    c->eos = eos;
    c->opts = o;
    *out = c;
    return BY_OK;
}

void by_grammar_cache_destroy(by_grammar_cache *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (int32_t i = 0; i < c->n_threads; i++) pthread_join(c->threads[i], NULL);
    for (int i = 0; i < BUCKETS; i++)
        for (entry *e = c->buckets[i], *next; e; e = next) {
            next = e->next;
            free_entry(e);
        }
    by_grammar_vocab_destroy(c->vocab);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->vocab_lock);
    pthread_cond_destroy(&c->work);
    by_free(c);
}

by_status by_grammar_cache_ask(by_grammar_cache *c, const by_grammar_spec *spec, void (*done)(void *arg), void *arg,
                               by_grammar_ticket **out, by_err *err) {
    *out = NULL;
    by_grammar_spec s = *spec;
    if (s.opts.timeout_us <= 0 || s.opts.timeout_us > c->opts.timeout_us) s.opts.timeout_us = c->opts.timeout_us;
    if (s.text.len > TEXT_MAX)
        return BY_FAIL(err, BY_EGRAMMAR, "%s: a text of %zu bytes is longer than %zu", by_grammar_kind_name(s.kind), s.text.len, TEXT_MAX);
    uint8_t key[32];
    BY_TRY(key_of(&s, key, err));
    by_grammar_ticket *t = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *t);
    if (!t) return BY_FAIL(err, BY_ENOMEM, "out of memory for a grammar");
    by_status status = BY_OK;
    pthread_mutex_lock(&c->lock);
    entry *e = *bucket_of(c, key);
    while (e && memcmp(e->key, key, sizeof key) != 0) e = e->next;
    c->stats.n_asked++;
    if (e) {
        if (e->state >= READY) c->stats.n_hits++;
        else c->stats.n_joined++;
    } else {
        e = make_entry(&s, key, err);
        status = e ? enqueue(c, e, err) : BY_ENOMEM;
        if (e && status < 0) free_entry(e);
    }
    if (status == BY_OK) {
        e->used = ++c->tick;
        *t = (by_grammar_ticket){.cache = c, .entry = e, .next = e->tickets, .done = e->state >= READY ? NULL : done, .arg = arg};
        if (e->tickets) e->tickets->prev = t;
        e->tickets = t;
        *out = t;
    }
    pthread_mutex_unlock(&c->lock);
    if (status < 0) by_free(t);
    return status;
}

by_status by_grammar_ticket_take(by_grammar_ticket *t, by_grammar **out, by_err *err) {
    by_grammar_cache *c = t->cache;
    *out = NULL;
    by_status status = BY_OK;
    pthread_mutex_lock(&c->lock);
    switch (t->entry->state) {
    case QUEUED:
    case RUNNING: status = BY_AGAIN; break;
    case READY: *out = by_grammar_acquire(t->entry->grammar); break;
    case FAILED:
        status = t->entry->err.code;
        if (err) *err = t->entry->err;
        break;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

void by_grammar_ticket_close(by_grammar_ticket *t) {
    if (!t) return;
    by_grammar_cache *c = t->cache;
    entry *e = t->entry;
    pthread_mutex_lock(&c->lock);
    if (t->next) t->next->prev = t->prev;
    *(t->prev ? &t->prev->next : &e->tickets) = t->next;
    bool unwanted = e->state == QUEUED || (e->state == FAILED && !e->keep);
    if (!e->tickets && unwanted) { /* nobody asks for it any more: it would only hold up the others behind it */
        if (e->state == QUEUED) unqueue(c, e);
        unlink_entry(c, e);
        free_entry(e);
    }
    pthread_mutex_unlock(&c->lock);
    by_free(t);
}

by_grammar_cache_stats by_grammar_cache_stats_get(by_grammar_cache *c) {
    pthread_mutex_lock(&c->lock);
    by_grammar_cache_stats s = c->stats;
    pthread_mutex_unlock(&c->lock);
    return s;
}
