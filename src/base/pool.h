/* pool.h - a thread pool for numeric kernels: regions of several phases, cheap to enter, never spinning while idle.
 *
 * by_pool_run enters a region: the caller and every worker that is free run one function, which calls by_team_for once per
 * phase. A phase is complete when its work is done, not when every thread has arrived: each thread owns an equal, fixed
 * part of the items and helps with the parts of others when its own is finished, so a thread that the scheduler keeps away
 * holds nothing up and a region never waits for one that has not joined. by_team_for returns when all items are done, which
 * makes it the barrier between phases.
 *
 *     region(arg, team):  by_team_for(team, n_rows, 1, quantise_rows, arg);     phase 1
 *                         by_team_for(team, n_chunks, 1, multiply, arg);        phase 2 sees all of phase 1
 *
 * Every thread must make the same calls with the same n and chunk. Code between the calls runs on every thread, perhaps late:
 * it may read what was fixed before the region, and must not write shared memory (work for one thread is a phase with
 * n = 1). Which thread runs which items is not fixed; results must not depend on it.
 *
 * Waiting spins for a bounded time (BY_POOL_SPIN_US), then sleeps in a futex; when the pool notices that its threads are being
 * preempted it stops spinning for a while. Entering a region allocates nothing. Thread rule: one by_pool_run at a time,
 * not from inside a region. A NULL pool is a pool of one thread. */
#ifndef BY_BASE_POOL_H
#define BY_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Longer than two futex round trips (18 us on the slower of our machines), shorter than anyone notices. */
#define BY_POOL_SPIN_US 40

typedef struct by_pool by_pool;

/* One thread's place in a region; valid only inside the region function. */
typedef struct by_team {
    by_pool *pool;
    int32_t worker;    /* [0, n_workers): the index of this thread, for scratch memory; 0 is the caller */
    int32_t n_workers; /* threads of the pool, whether they joined or not */
    uint64_t phase;    /* private: phases entered so far, over all regions */
    uint64_t target;   /* private: value of the pool's counter of finished chunks when this phase is complete */
} by_team;

typedef void by_pool_region(void *arg, by_team *team);
/* Items [begin, end), on thread `worker`. */
typedef void by_pool_body(void *arg, int64_t begin, int64_t end, int32_t worker);

/* n_threads in [1, BY_LIMIT_THREADS], or 0 for by_cpu_share_read's number. The caller is one of them. Blocks all signals but faults
 * in the workers. Errors: BY_EINVAL, BY_ENOMEM, BY_EIO (a thread cannot be started). */
by_status by_pool_create(by_pool **out, int32_t n_threads, by_err *err);

/* Joins the workers. NULL is allowed. Not while a region runs. */
void by_pool_destroy(by_pool *pool);

/* Number of threads that enter a region, the caller included. */
int32_t by_pool_threads(const by_pool *pool);

/* Returns when the region has returned on every thread that entered it. */
void by_pool_run(by_pool *pool, by_pool_region *region, void *arg);

/* One phase: calls body on disjoint pieces of [0, n) until all are done. chunk is the number of items drawn at once; 0 gives
 * each thread one piece. n <= 0 does nothing. Only inside a region. */
void by_team_for(by_team *team, int64_t n, int64_t chunk, by_pool_body *body, void *arg);

/* A region of one phase; stays on the caller when there is only one chunk. */
void by_pool_for(by_pool *pool, int64_t n, int64_t chunk, by_pool_body *body, void *arg);

typedef struct by_pool_stats {
    uint64_t regions;   /* regions that were offered to the workers */
    uint64_t sleeps;    /* waits that outlasted the spinning */
    uint64_t preempted; /* times a spinning thread found itself off its processor */
    bool crowded;       /* spinning is off at present */
} by_pool_stats;

/* From the thread that runs regions. */
void by_pool_stats_read(const by_pool *pool, by_pool_stats *out);

#endif
