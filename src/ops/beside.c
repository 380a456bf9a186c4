/* beside.c - host functions beside a device in host memory: one thread, one function at a time.
 *
 * busy goes up under the lock when work is handed over and down when it is done, so joining is waiting for it to fall. What the
 * function reads and writes is ordered by the same lock. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/host.h"

struct by_helper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool busy, stop;
    by_beside work;
};

static void *helper_main(void *arg) {
    struct by_helper *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->busy && !h->stop) pthread_cond_wait(&h->changed, &h->lock);
        if (!h->busy) break;
        by_beside w = h->work;
        pthread_mutex_unlock(&h->lock);
        w.run(w.arg, w.which, w.n);
        pthread_mutex_lock(&h->lock);
        h->busy = false;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* Signals are the program's other threads' business; a blocked fault would end the process past its handler. */
static int start_quiet(pthread_t *thread, void *arg) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t all, old;
    sigfillset(&all);
    for (int i = 0; i < 4; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, helper_main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

by_status by_device_beside_init(by_device *dev, by_err *err) {
    if (dev->vt) return dev->vt->beside_init(dev, err);
    if (dev->helper) return BY_OK;
    struct by_helper *h = by_alloc_zero(BY_MEM_MISC, sizeof *h);
    if (!h) return BY_FAIL(err, BY_ENOMEM, "out of memory for work beside the device");
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    int rc = start_quiet(&h->thread, h);
    if (rc != 0) {
        pthread_mutex_destroy(&h->lock);
        pthread_cond_destroy(&h->changed);
        by_free(h);
        return BY_FAIL(err, BY_EIO, "cannot start the thread beside the device: %s", strerror(rc));
    }
    dev->helper = h;
    return BY_OK;
}

void by_helper_stop(struct by_helper *h) {
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    by_free(h);
}

static size_t bytes_of(const by_tensor *t) {
    assert(t->stride == by_dtype_row_bytes(t->dtype, t->cols));
    return (size_t)(t->rows * t->stride);
}

by_status by_device_beside(by_device *dev, const by_beside *what, by_err *err) {
    for (int32_t i = 0; i < what->n_copies; i++) assert(what->copy[i].to->shared && bytes_of(&what->copy[i].from) <= what->copy[i].to->bytes);
    if (dev->vt) return dev->vt->beside(dev, what, err);
    struct by_helper *h = dev->helper;
    assert(h && "by_device_beside_init was not called");
    for (int32_t i = 0; i < what->n_copies; i++) {
        const by_tensor *from = &what->copy[i].from;
        BY_TRY(by_mem_copy(what->copy[i].to, 0, from->mem, (size_t)from->off, bytes_of(from), err));
    }
    pthread_mutex_lock(&h->lock);
    assert(!h->busy);
    h->work = *what;
    h->busy = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return BY_OK;
}

by_status by_device_join(by_device *dev, by_err *err) {
    if (dev->vt) return dev->vt->join(dev, err);
    struct by_helper *h = dev->helper;
    if (!h) return BY_OK;
    pthread_mutex_lock(&h->lock);
    while (h->busy) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
    return BY_OK;
}
