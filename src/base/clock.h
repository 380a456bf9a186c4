/* clock.h - monotonic time. */
#ifndef BY_BASE_CLOCK_H
#define BY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t by_clock_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
static inline double by_clock_s(void) { return (double)by_clock_ns() * 1e-9; }

/* Processor time of this thread, which a busy machine does not lengthen. A system call: not for every step of a loop. */
static inline int64_t by_thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
