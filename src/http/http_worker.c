/* http_worker.c - one thread for request bodies whose conversion would hold up the loop: long prompts, schemas. */
#include "base/alloc.h"
#include "http/http_impl.h"

struct by_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    by_work *first, **last;
    bool ending;
    by_tok_scratch *scratch;
};

static void *worker_main(void *arg) {
    by_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->ending) pthread_cond_wait(&w->more, &w->lock);
        by_work *work = w->first;
        if (!work) break;
        w->first = work->next;
        if (!w->first) w->last = &w->first;
        pthread_mutex_unlock(&w->lock);
        work->fn(work->arg, w->scratch);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

by_status by_worker_create(by_worker **out, const by_tok *tok, by_err *err) {
    *out = NULL;
    by_worker *w = by_alloc_zero(BY_MEM_HTTP, sizeof *w);
    if (!w) return BY_FAIL(err, BY_ENOMEM, "out of memory for a thread");
    w->last = &w->first;
    by_status status = by_tok_scratch_create(&w->scratch, tok, err);
    if (status < 0) {
        by_free(w);
        return status;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
        pthread_cond_destroy(&w->more);
        pthread_mutex_destroy(&w->lock);
        by_tok_scratch_destroy(w->scratch);
        by_free(w);
        return BY_FAIL(err, BY_ENOMEM, "a thread cannot be started");
    }
    *out = w;
    return BY_OK;
}

void by_worker_destroy(by_worker *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    w->first = NULL;
    w->last = &w->first;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    by_tok_scratch_destroy(w->scratch);
    by_free(w);
}

void by_worker_add(by_worker *w, by_work *work) {
    work->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = work;
    w->last = &work->next;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}
