/* pool.c - see pool.h.
 *
 * gate        epoch << 32 | OPEN | threads inside. A worker enters by adding one while the gate is open; the caller closes it
 *             when its own pass through the region is over and waits for the count to fall to 0. So a worker that wakes late
 *             finds the gate closed and was never waited for.
 * range[t]    phase << 20 | chunks drawn. Thread t's part of a phase. The first to draw from a part in a new phase moves the
 *             word to that phase, which is safe because a phase starts only after every chunk of the one before is done;
 *             a late thread sees a newer phase in the word and draws nothing.
 * done        chunks finished since the pool began. Each thread adds up the chunk counts of the phases it passes (target), so
 *             nothing is ever reset and a late thread passes finished phases without waiting.
 *
 * Sleeping: a thread announces itself in a counter of sleepers, then looks again at the condition, then waits on a bell; who
 * makes the condition true looks at the counter afterwards. Both sides are sequentially consistent, so one sees the other. */
#include "base/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"

enum {
    CACHE_LINE = 64,
    CHUNK_BITS = 20,             /* of a range word; 44 bits of phase last for centuries */
    SPIN_POLLS = 16,             /* polls between two looks at the clock */
    PREEMPTED_NS = 100 * 1000,   /* a gap between two looks that only the scheduler explains */
    CROWDED_EVENTS = 4,          /* that many gaps ... */
    CROWDED_WINDOW_NS = 100 * 1000 * 1000, /* ... in this time switch spinning off ... */
    CROWDED_NS = 500 * 1000 * 1000,        /* ... for this long */
    CROWDED_SPIN_NS = 1000,
    STEAL_PATIENCE_NS = 1500,    /* large pools wait this long before they look through all the other parts */
    FEW_THREADS = 8
};
#define GATE_OPEN (UINT64_C(1) << 31)
#define GATE_COUNT (GATE_OPEN - 1)

typedef struct {
    _Alignas(CACHE_LINE) _Atomic uint64_t word;
} range;

/* Sleepers on one condition. */
typedef struct {
    _Alignas(CACHE_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
} bed;

struct by_pool {
    int32_t n_threads;
    int32_t n_started;
    uint64_t phase, target; /* of the caller, carried from region to region */
    by_pool_region *region;
    void *arg;
    bool busy;
    uint64_t n_regions;
    _Alignas(CACHE_LINE) _Atomic uint64_t gate;
    _Atomic bool stop;
    _Alignas(CACHE_LINE) _Atomic uint64_t done;
    bed idle, phase_bed, leave;
    _Alignas(CACHE_LINE) _Atomic uint64_t sleeps;
    _Atomic uint64_t preempted;
    _Atomic int64_t window_start_ns, crowded_until_ns;
    _Atomic int32_t window_events;
    pthread_t *threads; /* [n_threads - 1] */
    range *ranges;      /* [n_threads] */
};

typedef struct {
    by_pool *pool;
    int32_t worker;
} start_arg;

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* A condition to wait for: word >= value for `done`, and so on; all are monotone while someone waits. */
typedef bool condition(const by_pool *pool, uint64_t value);

static bool phase_done(const by_pool *pool, uint64_t target) {
    return atomic_load(&pool->done) >= target;
}
static bool all_left(const by_pool *pool, uint64_t unused) {
    (void)unused;
    return (atomic_load(&pool->gate) & GATE_COUNT) == 0;
}
static bool new_epoch(const by_pool *pool, uint64_t seen) {
    return atomic_load(&pool->gate) >> 32 != seen || atomic_load(&pool->stop);
}

static void note_preemption(by_pool *pool, int64_t now) {
    atomic_fetch_add_explicit(&pool->preempted, 1, memory_order_relaxed); /* a statistic */
    if (now - atomic_load(&pool->window_start_ns) > CROWDED_WINDOW_NS) {
        atomic_store(&pool->window_start_ns, now);
        atomic_store(&pool->window_events, 0);
    }
    if (atomic_fetch_add(&pool->window_events, 1) + 1 >= CROWDED_EVENTS)
        atomic_store(&pool->crowded_until_ns, now + CROWDED_NS);
}

/* Polls for at most max_ns; true when the condition came true. */
static bool spin_for(by_pool *pool, condition *met, uint64_t value, int64_t max_ns) {
    if (met(pool, value)) return true;
    int64_t start = by_clock_ns(), last = start;
    if (start < atomic_load(&pool->crowded_until_ns) && max_ns > CROWDED_SPIN_NS) max_ns = CROWDED_SPIN_NS;
    for (;;) {
        for (int i = 0; i < SPIN_POLLS; i++) {
            if (met(pool, value)) return true;
            spin_pause();
        }
        int64_t now = by_clock_ns();
        if (now - last > PREEMPTED_NS) note_preemption(pool, now);
        if (now - start > max_ns) return met(pool, value);
        last = now;
    }
}

/* Spins, then sleeps in b until the condition is true. True when it slept. */
static bool wait_until(by_pool *pool, bed *b, condition *met, uint64_t value) {
    if (spin_for(pool, met, value, BY_POOL_SPIN_US * INT64_C(1000))) return false;
    atomic_fetch_add_explicit(&pool->sleeps, 1, memory_order_relaxed); /* a statistic */
    atomic_fetch_add(&b->sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&b->bell);
        if (met(pool, value)) break;
        futex_wait(&b->bell, seen);
    }
    atomic_fetch_sub(&b->sleepers, 1);
    return true;
}

/* After making a condition true: wakes at most n of those who sleep on it. */
static void ring(bed *b, int n) {
    if (atomic_load(&b->sleepers) == 0) return;
    atomic_fetch_add(&b->bell, 1);
    futex_wake(&b->bell, n);
}

/* ---- phases ------------------------------------------------------------------------------------------------------ */

/* Draws the next chunk of a part that has n_chunks of them in this phase. */
static bool draw(range *r, uint64_t phase, int64_t n_chunks, int64_t *chunk_idx) {
    uint64_t word = atomic_load_explicit(&r->word, memory_order_relaxed); /* the phase itself is ordered by `done` */
    for (;;) {
        uint64_t at = word >> CHUNK_BITS, drawn = word & ((UINT64_C(1) << CHUNK_BITS) - 1);
        if (at > phase) return false;
        if (at < phase) drawn = 0;
        if (drawn >= (uint64_t)n_chunks) return false;
        uint64_t next = phase << CHUNK_BITS | (drawn + 1);
        if (atomic_compare_exchange_weak_explicit(&r->word, &word, next, memory_order_relaxed, memory_order_relaxed)) {
            *chunk_idx = (int64_t)drawn;
            return true;
        }
    }
}

/* Adds n chunks to the finished ones; true when they were the last of the phase that ends at target. Not written as
 * `n ? atomic_fetch_add(&done, n) + n : 0`: gcc 12 at -O1 computes twice the old value from that, and nobody rings. */
static bool finish_chunks(by_pool *pool, uint64_t n, uint64_t target) {
    if (n == 0) return false;
    uint64_t before = atomic_fetch_add(&pool->done, n);
    return before == target - n;
}

static int64_t part_start(int64_t n_chunks, int32_t part, int32_t n_parts) {
    return (int64_t)((__int128)n_chunks * part / n_parts);
}

void by_team_for(by_team *team, int64_t n, int64_t chunk, by_pool_body *body, void *arg) {
    if (n <= 0) return;
    by_pool *pool = team->pool;
    int32_t n_parts = team->n_workers;
    if (n_parts == 1) {
        body(arg, 0, n, team->worker);
        return;
    }
    int64_t chunk_min = n / ((INT64_C(1) << CHUNK_BITS) - 1) + 1; /* so that a part's count fits its word */
    if (chunk <= 0) chunk = (n + n_parts - 1) / n_parts;
    if (chunk < chunk_min) chunk = chunk_min;
    int64_t n_chunks = (n - 1) / chunk + 1;
    uint64_t phase = ++team->phase, mine = 0;
    team->target += (uint64_t)n_chunks;
    for (int32_t i = 0; i < n_parts; i++) {
        int32_t part = team->worker + i < n_parts ? team->worker + i : team->worker + i - n_parts;
        int64_t first = part_start(n_chunks, part, n_parts), count = part_start(n_chunks, part + 1, n_parts) - first, c;
        while (draw(&pool->ranges[part], phase, count, &c)) {
            int64_t begin = (first + c) * chunk, end = n - begin < chunk ? n : begin + chunk;
            body(arg, begin, end, team->worker);
            mine++;
        }
        if (i > 0 || n_parts <= FEW_THREADS) continue;
        /* Usually all finish together, and looking through many parts costs more than a short wait. */
        bool last = finish_chunks(pool, mine, team->target);
        mine = 0;
        if (last) {
            ring(&pool->phase_bed, INT_MAX);
            return;
        }
        if (spin_for(pool, phase_done, team->target, STEAL_PATIENCE_NS)) return;
    }
    if (finish_chunks(pool, mine, team->target)) ring(&pool->phase_bed, INT_MAX);
    else wait_until(pool, &pool->phase_bed, phase_done, team->target);
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static void *worker_main(void *p) {
    start_arg start = *(start_arg *)p;
    by_free(p);
    by_pool *pool = start.pool;
    uint64_t seen = 0;
    for (;;) {
        /* Who slept wakes two more: 64 threads are up in six steps, and the caller pays for the first only. */
        if (wait_until(pool, &pool->idle, new_epoch, seen)) ring(&pool->idle, 2);
        if (atomic_load(&pool->stop)) return NULL;
        uint64_t gate = atomic_load(&pool->gate);
        seen = gate >> 32;
        bool inside = false;
        while ((gate & GATE_OPEN) && gate >> 32 == seen && !inside)
            inside = atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1);
        if (!inside) continue;
        by_team team = {pool, start.worker, pool->n_threads, pool->phase, pool->target};
        pool->region(pool->arg, &team);
        gate = atomic_fetch_sub(&pool->gate, 1) - 1;
        if (!(gate & (GATE_OPEN | GATE_COUNT))) ring(&pool->leave, 1);
    }
}

void by_pool_run(by_pool *pool, by_pool_region *region, void *arg) {
    by_team team = {pool, 0, pool ? pool->n_threads : 1, 0, 0};
    if (team.n_workers == 1) {
        region(arg, &team);
        return;
    }
    team.phase = pool->phase;
    team.target = pool->target;
    pool->region = region;
    pool->arg = arg;
    pool->n_regions++;
    uint64_t epoch = (atomic_load(&pool->gate) >> 32) + 1;
    atomic_store(&pool->gate, epoch << 32 | GATE_OPEN);
    ring(&pool->idle, 2);
    region(arg, &team);
    atomic_fetch_and(&pool->gate, ~GATE_OPEN);
    wait_until(pool, &pool->leave, all_left, 0);
    pool->phase = team.phase;
    pool->target = team.target;
}

typedef struct {
    int64_t n, chunk;
    by_pool_body *body;
    void *arg;
} one_phase;

static void run_one_phase(void *arg, by_team *team) {
    const one_phase *p = arg;
    by_team_for(team, p->n, p->chunk, p->body, p->arg);
}

void by_pool_for(by_pool *pool, int64_t n, int64_t chunk, by_pool_body *body, void *arg) {
    if (n <= 0) return;
    if (by_pool_threads(pool) == 1 || n == 1 || chunk >= n) {
        body(arg, 0, n, 0);
        return;
    }
    by_pool_run(pool, run_one_phase, &(one_phase){n, chunk, body, arg});
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static by_status start_workers(by_pool *pool, by_err *err) {
    sigset_t all, old;
    sigfillset(&all);
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL}; /* a blocked one would end the process past its handler */
    for (int i = 0; i < 4; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    by_status status = BY_OK;
    for (int32_t i = 1; i < pool->n_threads && status == BY_OK; i++) {
        start_arg *start = by_alloc(BY_MEM_MISC, sizeof *start);
        if (!start) {
            status = BY_FAIL(err, BY_ENOMEM, "thread pool of %d threads: out of memory", pool->n_threads);
            break;
        }
        *start = (start_arg){pool, i};
        int e = pthread_create(&pool->threads[i - 1], NULL, worker_main, start);
        if (e == 0) {
            pool->n_started++;
            continue;
        }
        by_free(start);
        status = BY_FAIL(err, BY_EIO, "thread pool: cannot start thread %d of %d: %s", i + 1, pool->n_threads, strerror(e));
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

by_status by_pool_create(by_pool **out, int32_t n_threads, by_err *err) {
    if (n_threads == 0) {
        by_cpu_share share;
        by_cpu_share_read(&share, "", NULL, 0);
        n_threads = share.threads < BY_LIMIT_THREADS ? share.threads : BY_LIMIT_THREADS;
    }
    if (n_threads < 1 || n_threads > BY_LIMIT_THREADS)
        return BY_FAIL(err, BY_EINVAL, "thread pool of %d threads: want 1..%d", n_threads, BY_LIMIT_THREADS);
    by_pool *pool = by_alloc_aligned(BY_MEM_MISC, CACHE_LINE, sizeof *pool);
    if (!pool) return BY_FAIL(err, BY_ENOMEM, "thread pool: out of memory");
    memset(pool, 0, sizeof *pool);
    pool->n_threads = n_threads;
    size_t n = (size_t)n_threads;
    pool->ranges = by_alloc_aligned(BY_MEM_MISC, CACHE_LINE, by_mul_size(n, sizeof(range)));
    pool->threads = by_alloc_zero(BY_MEM_MISC, by_mul_size(n, sizeof(pthread_t)));
    by_status status = BY_OK;
    if (!pool->ranges || !pool->threads) {
        status = BY_FAIL(err, BY_ENOMEM, "thread pool of %d threads: out of memory", n_threads);
    } else {
        memset(pool->ranges, 0, n * sizeof(range));
        status = start_workers(pool, err);
    }
    if (status != BY_OK) {
        by_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return BY_OK;
}

void by_pool_destroy(by_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    ring(&pool->idle, INT_MAX);
    for (int32_t i = 0; i < pool->n_started; i++) pthread_join(pool->threads[i], NULL);
    by_free(pool->threads);
    by_free(pool->ranges);
    by_free(pool);
}

int32_t by_pool_threads(const by_pool *pool) {
    return pool ? pool->n_threads : 1;
}

void by_pool_stats_read(const by_pool *pool, by_pool_stats *out) {
    *out = (by_pool_stats){0};
    if (!pool) return;
    out->regions = pool->n_regions;
    out->sleeps = atomic_load(&pool->sleeps);
    out->preempted = atomic_load(&pool->preempted);
    out->crowded = by_clock_ns() < atomic_load(&pool->crowded_until_ns);
}
