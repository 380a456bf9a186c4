/* The thread pool: every item once, phases in order, no allocation, no spinning while idle, failure at every allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"
#include "base/rng.h"

enum { N_MAX = 5000 };
static _Atomic int hits[N_MAX];
static int32_t n_workers_now;

static void count_hits(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)arg;
    assert_true(begin < end);
    assert_in_range(worker, 0, n_workers_now - 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&hits[i], 1);
}

static void every_item_is_run_exactly_once(void **state) {
    (void)state;
    for (int32_t threads = 1; threads <= 12; threads += threads < 4 ? 1 : 4) {
        by_pool *pool = NULL;
        assert_int_equal(by_pool_create(&pool, threads, NULL), BY_OK);
        assert_int_equal(by_pool_threads(pool), threads);
        n_workers_now = threads;
        static const int64_t sizes[] = {0, 1, 2, 3, 7, 64, 65, 1000, N_MAX}, chunks[] = {0, 1, 3, 64, 100000};
        for (size_t a = 0; a < sizeof sizes / sizeof *sizes; a++) {
            for (size_t b = 0; b < sizeof chunks / sizeof *chunks; b++) {
                memset((void *)hits, 0, sizeof hits);
                by_pool_for(pool, sizes[a], chunks[b], count_hits, NULL);
                for (int64_t i = 0; i < N_MAX; i++) assert_int_equal(hits[i], i < sizes[a]);
            }
        }
        by_pool_destroy(pool);
    }
}

static void null_pool_runs_on_the_caller(void **state) {
    (void)state;
    n_workers_now = 1;
    memset((void *)hits, 0, sizeof hits);
    by_pool_for(NULL, 10, 3, count_hits, NULL);
    for (int i = 0; i < 10; i++) assert_int_equal(hits[i], 1);
    assert_int_equal(by_pool_threads(NULL), 1);
    by_pool_destroy(NULL);
}

/* Phase p sets a[i] from the values of phase p - 1 at i and at a far place, so a missing barrier shows. */
typedef struct {
    int64_t n;
    int phases;
    uint64_t a[2][1024];
} relay;
typedef struct {
    relay *r;
    int phase;
} relay_step;

static void relay_body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    relay_step *s = arg;
    const uint64_t *in = s->r->a[s->phase & 1];
    uint64_t *out = s->r->a[~s->phase & 1];
    for (int64_t i = begin; i < end; i++)
        out[i] = in[i] * 3 + in[(i * 7 + 5) % s->r->n] + (uint64_t)s->phase;
}
static void relay_region(void *arg, by_team *team) {
    relay *r = arg;
    for (int p = 0; p < r->phases; p++) {
        relay_step s = {r, p};
        by_team_for(team, r->n, 1 + p % 5, relay_body, &s);
    }
}

static void run_relay(relay *r, by_pool *pool, int64_t n, int phases) {
    r->n = n;
    r->phases = phases;
    for (int64_t i = 0; i < n; i++) r->a[0][i] = r->a[1][i] = (uint64_t)i;
    by_pool_run(pool, relay_region, r);
}

static void each_phase_sees_all_of_the_one_before(void **state) {
    (void)state;
    static relay want, got;
    for (int32_t threads = 2; threads <= 11; threads += 3) {
        by_pool *pool = NULL;
        assert_int_equal(by_pool_create(&pool, threads, NULL), BY_OK);
        by_rng rng = {(uint64_t)threads};
        for (int round = 0; round < 200; round++) {
            int64_t n = 1 + (int64_t)by_rng_below(&rng, round % 2 ? 20 : 1000);
            int phases = (int)by_rng_below(&rng, 12);
            run_relay(&want, NULL, n, phases);
            run_relay(&got, pool, n, phases);
            assert_memory_equal(want.a[phases & 1], got.a[phases & 1], (size_t)n * 8);
        }
        by_pool_destroy(pool);
    }
}

static void regions_allocate_nothing(void **state) {
    (void)state;
    static relay r;
    by_pool *pool = NULL;
    assert_int_equal(by_pool_create(&pool, 3, NULL), BY_OK);
    uint64_t before = by_alloc_calls();
    for (int i = 0; i < 100; i++) run_relay(&r, pool, 100, 4);
    assert_int_equal(by_alloc_calls(), before);
    by_pool_destroy(pool);
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void idle_pool_uses_no_processor(void **state) {
    (void)state;
    static relay r;
    by_pool *pool = NULL;
    assert_int_equal(by_pool_create(&pool, 4, NULL), BY_OK);
    run_relay(&r, pool, 100, 4);
    nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    double before = cpu_seconds();
    nanosleep(&(struct timespec){0, 300 * 1000 * 1000}, NULL);
    assert_true(cpu_seconds() - before < 0.1); /* one spinning worker alone would use 0.3 */
    run_relay(&r, pool, 100, 4);               /* and it wakes again */
    by_pool_destroy(pool);
}

/* A region must not wait for workers that never come: with 64 threads on a few processors most are late. */
static void far_too_many_threads_still_finish(void **state) {
    (void)state;
    static relay want, got;
    by_pool *pool = NULL;
    assert_int_equal(by_pool_create(&pool, 64, NULL), BY_OK);
    run_relay(&want, NULL, 700, 9);
    for (int i = 0; i < 50; i++) {
        run_relay(&got, pool, 700, 9);
        assert_memory_equal(want.a[1], got.a[1], 700 * 8);
    }
    by_pool_stats stats;
    by_pool_stats_read(pool, &stats);
    assert_int_equal(stats.regions, 50);
    by_pool_destroy(pool);
}

static void creation_fails_cleanly_at_every_allocation(void **state) {
    (void)state;
    int64_t held = by_alloc_bytes_total();
    for (int n = 1;; n++) {
        by_pool *pool = NULL;
        by_err err = {0};
        by_alloc_fail_nth(n);
        by_status status = by_pool_create(&pool, 4, &err);
        by_alloc_fail_nth(0);
        if (status == BY_OK) {
            assert_true(n > 3);
            by_pool_destroy(pool);
            break;
        }
        assert_int_equal(status, BY_ENOMEM);
        assert_null(pool);
        assert_int_equal(by_alloc_bytes_total(), held);
    }
    assert_int_equal(by_alloc_bytes_total(), held);
}

static void bad_thread_counts_are_refused(void **state) {
    (void)state;
    by_pool *pool = NULL;
    by_err err = {0};
    assert_int_equal(by_pool_create(&pool, -1, &err), BY_EINVAL);
    assert_int_equal(by_pool_create(&pool, 1 << 20, &err), BY_EINVAL);
    assert_non_null(strstr(err.msg, "1048576"));
    assert_null(pool);
    assert_int_equal(by_pool_create(&pool, 0, &err), BY_OK);
    assert_true(by_pool_threads(pool) >= 1);
    by_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_run_exactly_once),
        cmocka_unit_test(null_pool_runs_on_the_caller),
        cmocka_unit_test(each_phase_sees_all_of_the_one_before),
        cmocka_unit_test(regions_allocate_nothing),
        cmocka_unit_test(idle_pool_uses_no_processor),
        cmocka_unit_test(far_too_many_threads_still_finish),
        cmocka_unit_test(creation_fails_cleanly_at_every_allocation),
        cmocka_unit_test(bad_thread_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
