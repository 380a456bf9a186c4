/* prop_sched.c - the scheduler over a pool of two counters: random arrivals, lengths, priorities, pauses, cancels, forks, failing
 * allocations and tiny pools, for 100,000 steps. BY_TEST_TIMEOUT=300
 *
 * Checked at every step: rows and sequences within the budgets, no sequence twice, rows continue where the last ones ended,
 * blocks held equal what the lengths ask for, the pool never negative, decode rows before prompts, the bypass bound. At the
 * end everything that was not cancelled has finished with exactly its tokens, nothing is held, and the scheduler's counters are
 * those of the pool. The same world a second time gives the same plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "sched/sched.h"
#include "support/seed.h"

enum { BLOCK = 16, SEQS_MAX = 400 };

typedef struct {
    by_sched_seq s; /* first: the pool gets a pointer to it */
    int64_t n_prompt, n_out_want, n_out; /* output tokens asked for (may end earlier), and seen */
    int64_t blocks, hit;                  /* held; tokens that the cache has */
    int64_t computed;                     /* rows seen */
    bool slot, swapped, live, ended, forked;
    int32_t in_flight;
} fake;

typedef struct {
    int64_t blocks_free, slots_free, swap_free;
    int64_t n_blocks, n_slots, n_swap;
    int32_t n_extra;
    uint64_t n_admitted, n_out, n_out_paused, n_in, n_forks; /* what was granted */
    uint64_t fail;                             /* one allocation of so many fails; 0 = none */
    const by_sched *sched; /* with it, admissions are compared with the watermark */
    double watermark;
} pool;

static by_rng rng;
static fake seqs[SEQS_MAX];
static uint64_t n_all_forks, n_all_swaps, n_all_bypassed; /* over all worlds: none may stay zero */

static int64_t blocks_for(void *ctx, int64_t n) { (void)ctx; return (n + BLOCK - 1) / BLOCK; }
static int64_t blocks_free(void *ctx) { return ((pool *)ctx)->blocks_free; }
static int64_t blocks_total(void *ctx) { return ((pool *)ctx)->n_blocks; }
static int64_t blocks_held(void *ctx, const by_sched_seq *s) { (void)ctx; return ((const fake *)(const void *)s)->blocks; }

static bool fails(const pool *p) { return p->fail && by_rng_below(&rng, p->fail) == 0; }

static bool grow(void *ctx, by_sched_seq *s, int64_t n) {
    pool *p = ctx;
    fake *f = (fake *)(void *)s;
    int64_t more = blocks_for(NULL, n) - f->blocks;
    if (more <= 0) return true;
    if (more > p->blocks_free || fails(p)) return false;
    p->blocks_free -= more;
    f->blocks += more;
    return true;
}

static bool admit(void *ctx, by_sched_seq *s) {
    pool *p = ctx;
    fake *f = (fake *)(void *)s;
    bool alone = !p->sched || by_sched_stats_get(p->sched).n_running == 0;
    assert_true(alone || (double)(p->n_blocks - p->blocks_free) <= p->watermark * (double)p->n_blocks);
    if (p->slots_free == 0 || fails(p)) return false;
    assert_false(f->slot);
    p->n_admitted++;
    p->slots_free--;
    f->slot = true;
    int64_t hit = f->hit / BLOCK; /* shared blocks cost as much as own ones here */
    if (hit > p->blocks_free) hit = 0;
    p->blocks_free -= hit;
    f->blocks = hit;
    s->n_done = f->computed = hit * BLOCK;
    return true;
}

static bool swap_out(void *ctx, by_sched_seq *s) {
    pool *p = ctx;
    fake *f = (fake *)(void *)s;
    if (f->blocks > p->swap_free || fails(p)) return false;
    p->n_out++;
    p->n_out_paused += s->paused;
    p->swap_free -= f->blocks;
    p->blocks_free += f->blocks;
    p->slots_free++;
    f->slot = false;
    f->swapped = true;
    return true;
}

static bool swap_in(void *ctx, by_sched_seq *s) {
    pool *p = ctx;
    fake *f = (fake *)(void *)s;
    if (p->slots_free == 0 || f->blocks > p->blocks_free || fails(p)) return false;
    p->n_in++;
    p->slots_free--;
    p->blocks_free -= f->blocks;
    p->swap_free += f->blocks;
    f->slot = true;
    f->swapped = false;
    return true;
}

/* Any number of rows that fits. */
static int32_t draft_rows(void *ctx, const struct by_plan *plan, int32_t most) {
    (void)ctx;
    int32_t all = 0;
    for (int32_t i = 0; i < plan->n_decode; i++) all += plan->rows[i].n_extra;
    if (all < most) most = all;
    return (int32_t)by_rng_below(&rng, (uint64_t)most + 1);
}

static void release(pool *p, fake *f) {
    if (f->swapped) p->swap_free += f->blocks;
    else p->blocks_free += f->blocks;
    p->slots_free += f->slot;
    f->blocks = 0;
    f->slot = f->swapped = f->live = false;
}

/* What a step in flight will answer. */
typedef struct {
    struct { fake *f; bool samples; int32_t extra; } row[128];
    int n;
} flight;

static void check_plan(const by_plan *plan, const by_sched_opts *o, const pool *p) {
    int32_t rows = 0;
    int64_t ctx = 0;
    if (o->policy == BY_PREFILL_INTERVAL) assert_true(plan->n_decode == 0 || plan->n_decode == plan->n_seqs);
    assert_true(plan->n_seqs <= o->max_seqs && plan->n_rows <= o->max_rows && plan->n_decode <= plan->n_seqs);
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        const by_plan_row *r = &plan->rows[i];
        fake *f = (fake *)(void *)r->seq;
        rows += r->n_rows;
        assert_true(r->n_rows > 0 && f->live && f->slot && !f->swapped && !r->seq->paused);
        assert_int_equal(r->first, f->computed);
        f->computed += r->n_rows + r->n_extra;
        if (i >= plan->n_decode) assert_int_equal(r->n_extra, 0);
        assert_true(r->n_extra >= 0 && r->n_extra <= r->seq->n_extra);
        assert_int_equal(f->computed, r->seq->n_done);
        assert_true(f->blocks >= blocks_for(NULL, f->computed < r->seq->n_max ? f->computed : r->seq->n_max));
        assert_true(r->seq->n_tokens - r->seq->n_open <= r->seq->n_max);
        if (i < plan->n_decode) assert_true(r->n_rows == 1 && r->samples);
        else ctx += r->seq->n_tokens - r->samples;
        for (int32_t k = 0; k < i; k++) assert_ptr_not_equal(plan->rows[k].seq, r->seq);
    }
    if (o->prefill_ctx && plan->n_seqs > plan->n_decode + 1) assert_true(ctx <= o->prefill_ctx);
    assert_true(plan->n_drafts >= 0);
    assert_int_equal(rows + plan->n_drafts, plan->n_rows);
    assert_true(p->blocks_free >= 0 && p->slots_free >= 0 && p->swap_free >= 0);
}

static void finish(by_sched *s, pool *p, fake *f) {
    by_sched_remove(s, &f->s);
    release(p, f);
    f->ended = true;
}

/* The results of a step: a sequence ends at its own length or, unforeseen, a little earlier. */
static void commit(by_sched *s, pool *p, flight *fl, int64_t *n_done) {
    for (int i = 0; i < fl->n; i++) {
        fake *f = fl->row[i].f;
        f->in_flight--;
        if (f->ended) continue;
        if (fl->row[i].samples && f->live) f->n_out++;
        if (fl->row[i].extra > 0 && f->live) { /* as many drafts as it happens were right, and not beyond the end */
            int32_t extra = fl->row[i].extra, got = (int32_t)by_rng_below(&rng, (uint64_t)extra + 1);
            by_sched_settle(&f->s, extra, got);
            f->computed -= extra - got;
            f->n_out += got;
        }
        if (!f->live || f->n_out < f->n_out_want) continue;
        by_sched_remove(s, &f->s); /* no further rows; what it holds waits for the rows in flight */
        f->live = false;
    }
    for (int i = 0; i < fl->n; i++) {
        fake *f = fl->row[i].f;
        if (f->live || f->ended || f->in_flight > 0) continue;
        release(p, f);
        f->ended = true;
        (*n_done)++;
    }
    fl->n = 0;
}

static fake *idle_fake(void) {
    for (int i = 0; i < SEQS_MAX; i++) {
        fake *f = &seqs[i];
        if (!f->live && f->in_flight == 0 && (f->s.state == BY_SCHED_NEW || f->s.state == BY_SCHED_DONE)) return f;
    }
    return NULL;
}

static void arrive(by_sched *s, const pool *p, int64_t now, int64_t *n_in) {
    fake *f = idle_fake();
    if (f) {
        int64_t most = p->n_blocks * BLOCK;
        *f = (fake){.n_prompt = 1 + (int64_t)by_rng_below(&rng, 120), .n_out_want = 1 + (int64_t)by_rng_below(&rng, 40)};
        if (f->n_prompt > most - 2) f->n_prompt = most - 2;
        int64_t n_max = f->n_prompt + f->n_out_want + (int64_t)by_rng_below(&rng, 10);
        if (n_max > most) n_max = most;
        if (f->n_prompt + f->n_out_want > n_max) f->n_out_want = n_max - f->n_prompt;
        f->hit = by_rng_below(&rng, 4) == 0 ? (f->n_prompt - 1) / BLOCK * BLOCK : 0;
        f->s = (by_sched_seq){.n_extra = p->n_extra, .priority = (int32_t)by_rng_below(&rng, 8) == 0, .arrival_us = now, .n_tokens = f->n_prompt,
                              .n_expected = f->n_prompt + (n_max - f->n_prompt) / 2, .n_max = n_max};
        if (by_sched_add(s, &f->s, NULL) != BY_OK) return;
        f->live = true;
        (*n_in)++;
    }
}

/* A sequence whose prompt ends in this step gets a sister that samples from the same row and goes on from a copy of its state. */
static fake *fork_of(by_sched *s, pool *p, const fake *f) {
    fake *c = p->slots_free > 0 && f->blocks <= p->blocks_free && !fails(p) ? idle_fake() : NULL;
    if (!c) return NULL;
    *c = (fake){.n_prompt = f->n_prompt, .n_out_want = 1 + (int64_t)by_rng_below(&rng, (uint64_t)f->n_out_want), .blocks = f->blocks,
                .computed = f->computed, .slot = true, .live = true, .forked = true};
    c->s = (by_sched_seq){.n_extra = f->s.n_extra, .priority = f->s.priority, .arrival_us = f->s.arrival_us, .n_tokens = f->s.n_tokens,
                          .n_expected = f->s.n_expected, .n_max = f->s.n_max, .n_done = f->s.n_done};
    p->slots_free--;
    p->blocks_free -= c->blocks;
    p->n_forks++;
    by_sched_add_running(s, &c->s);
    return c;
}

static void disturb(by_sched *s, pool *p, int64_t *n_cancelled) {
    fake *f = &seqs[by_rng_below(&rng, SEQS_MAX)];
    if (!f->live) return;
    if (by_rng_below(&rng, 3)) {
        f->s.paused = by_rng_below(&rng, 3) == 0;
    } else if (f->in_flight == 0) {
        finish(s, p, f);
        (*n_cancelled)++;
    }
}

static void check_bypass(const by_sched *s, const by_sched_opts *o) {
    for (const by_sched_seq *w = by_sched_first_waiting(s); w; w = w->next) assert_true(w->n_passed <= o->bypass_limit);
}

static void put_in_flight(flight *fl, fake *f, bool samples, int32_t extra) {
    assert_true(fl->n < (int)(sizeof fl->row / sizeof fl->row[0]));
    f->in_flight++;
    fl->row[fl->n].f = f;
    fl->row[fl->n].extra = extra;
    fl->row[fl->n++].samples = samples;
}

/* The plan's rows into a step in flight, with forks; returns how many there were. */
static int launch(by_sched *s, pool *p, const by_plan *plan, flight *fl) {
    int n_forks = 0;
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        const by_plan_row *r = &plan->rows[i];
        fake *f = (fake *)(void *)r->seq;
        put_in_flight(fl, f, r->samples, r->n_extra);
        bool ends = r->samples && i >= plan->n_decode && !f->forked && f->n_out == 0 && r->first + r->n_rows == f->n_prompt;
        for (int k = 0; ends && k < 2 && by_rng_below(&rng, 6) == 0; k++) {
            fake *c = fork_of(s, p, f);
            if (!c) break;
            put_in_flight(fl, c, true, 0);
            n_forks++;
        }
    }
    return n_forks;
}

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) + (h >> 29); }

/* Returns a hash of all plans. */
static uint64_t run_world(int steps, bool async) {
    uint64_t trace = 0;
    by_sched_opts o = by_sched_opts_default();
    o.max_seqs = 2 + (int32_t)by_rng_below(&rng, 30);
    o.max_rows = o.max_seqs + (int32_t)by_rng_below(&rng, 80);
    o.max_waiting = 50;
    o.interval = 1 + (int32_t)by_rng_below(&rng, 8);
    o.any_interval = 1 + (int32_t)by_rng_below(&rng, 12);
    o.policy = (by_prefill_policy)by_rng_below(&rng, 3);
    o.prefill_ctx = by_rng_below(&rng, 2) ? 1 + (int64_t)by_rng_below(&rng, 300) : 0;
    o.ttft_budget_us = 500;
    o.bypass_limit = (int32_t)by_rng_below(&rng, 5);
    o.watermark = (1 + (double)by_rng_below(&rng, 10)) / 10;
    pool p = {.n_blocks = 6 + (int64_t)by_rng_below(&rng, 80), .n_slots = 1 + (int64_t)by_rng_below(&rng, 32), .n_swap = 4000,
              .n_extra = (int32_t)by_rng_below(&rng, 4) * 2};
    p.blocks_free = p.n_blocks;
    p.slots_free = p.n_slots;
    p.swap_free = p.n_swap;
    p.fail = by_rng_below(&rng, 2) ? 30 : 0;
    by_sched_pool vt = {&p, blocks_free, blocks_for, blocks_held, admit, grow, swap_out, swap_in, draft_rows, blocks_total};
    by_sched *s;
    by_plan plan;
    assert_int_equal(by_sched_create(&s, &o, &vt, NULL), BY_OK);
    assert_int_equal(by_plan_init(&plan, s, NULL), BY_OK);
    p.sched = s;
    p.watermark = o.watermark;
    memset(seqs, 0, sizeof seqs);
    flight fl[2] = {0};
    int64_t n_in = 0, n_done = 0, n_cancelled = 0;
    int idle = 0;
    for (int t = 0; t < steps || n_done + n_cancelled < n_in; t++) {
        assert_true(t < steps + 200000); /* no starvation: everything ends once arrivals stop */
        bool open = t < steps;
        for (uint64_t k = by_rng_below(&rng, 3); open && k > 0; k--) arrive(s, &p, t, &n_in);
        if (open && by_rng_below(&rng, 4) == 0) disturb(s, &p, &n_cancelled);
        for (int i = 0; !open && i < SEQS_MAX; i++) seqs[i].s.paused = false;
        by_sched_plan(s, &plan, t);
        check_plan(&plan, &o, &p);
        check_bypass(s, &o);
        flight *now = &fl[t % 2], *last = &fl[(t + 1) % 2];
        for (int32_t i = 0; i < plan.n_seqs; i++)
            trace = mix(mix(trace, (uint64_t)((fake *)(void *)plan.rows[i].seq - seqs)),
                        (uint64_t)(plan.rows[i].first * 256 + plan.rows[i].n_rows));
        n_in += launch(s, &p, &plan, now);
        commit(s, &p, last, &n_done);
        if (!async) commit(s, &p, now, &n_done);
        idle = plan.n_seqs ? 0 : idle + 1;
        if (!open && idle > 3) assert_true(n_done + n_cancelled == n_in || idle < 100);
    }
    commit(s, &p, &fl[0], &n_done);
    commit(s, &p, &fl[1], &n_done);
    assert_int_equal(n_done + n_cancelled, n_in);
    assert_int_equal(p.blocks_free, p.n_blocks);
    assert_int_equal(p.slots_free, p.n_slots);
    assert_int_equal(p.swap_free, p.n_swap);
    by_sched_stats st = by_sched_stats_get(s);
    assert_int_equal(st.n_waiting + st.n_running + st.n_swapped, 0);
    assert_int_equal(st.n_admitted, p.n_admitted + p.n_forks);
    assert_int_equal(st.n_preempted, p.n_out);
    assert_int_equal(st.n_preempted_paused, p.n_out_paused);
    assert_int_equal(st.n_resumed, p.n_in);
    assert_true(st.n_bypassed <= st.n_admitted && st.n_resumed <= st.n_preempted);
    n_all_forks += p.n_forks;
    n_all_swaps += p.n_in;
    n_all_bypassed += st.n_bypassed;
    by_plan_deinit(&plan);
    by_sched_destroy(s);
    return trace;
}

static void no_leak_no_starvation_no_double_booking(void **state) {
    (void)state;
    int worlds = by_test_scaled(100);
    for (int w = 0; w < worlds; w++) {
        by_rng start = rng;
        uint64_t trace = run_world(1000, w % 2);
        if (w % 10) continue;
        by_rng next = rng;
        rng = start;
        assert_true(run_world(1000, w % 2) == trace);
        rng = next;
    }
    print_message("%d forks, %d sequences came back from a swap, %d requests passed another\n", (int)n_all_forks, (int)n_all_swaps,
                  (int)n_all_bypassed);
    assert_true(worlds < 10 || (n_all_forks > 0 && n_all_swaps > 0 && n_all_bypassed > 0));
}

/* ---- when prompts come, and which ---- */

/* A scheduler with room for everything, n of `seqs` in its queue with these lengths. */
typedef struct {
    pool p;
    by_sched *s;
    by_plan plan;
} ample;

static void ample_open(ample *a, const by_sched_opts *o) {
    a->p = (pool){.n_blocks = 10000, .blocks_free = 10000, .n_slots = 100, .slots_free = 100};
    by_sched_pool vt = {&a->p, blocks_free, blocks_for, blocks_held, admit, grow, swap_out, swap_in, NULL, blocks_total};
    assert_int_equal(by_sched_create(&a->s, o, &vt, NULL), BY_OK);
    assert_int_equal(by_plan_init(&a->plan, a->s, NULL), BY_OK);
    memset(seqs, 0, sizeof seqs);
}

static void ample_add(ample *a, int i, int64_t n_tokens) {
    seqs[i] = (fake){.live = true, .s = {.arrival_us = i, .n_tokens = n_tokens, .n_expected = n_tokens + 10, .n_max = n_tokens + 5000}};
    assert_int_equal(by_sched_add(a->s, &seqs[i].s, NULL), BY_OK);
}

static void ample_close(ample *a, int n) {
    for (int i = 0; i < n; i++) by_sched_remove(a->s, &seqs[i].s);
    by_plan_deinit(&a->plan);
    by_sched_destroy(a->s);
}

static void prompts_come_at_multiples_of_either_interval(void **state) {
    (void)state;
    by_sched_opts o = by_sched_opts_default();
    o.policy = BY_PREFILL_INTERVAL;
    o.interval = 7;
    o.any_interval = 5;
    for (int since = 0; since < 40; since++) {
        ample a;
        ample_open(&a, &o);
        ample_add(&a, 0, 20);
        by_sched_plan(a.s, &a.plan, 0); /* nothing decodes: at once */
        assert_int_equal(a.plan.n_rows, 20);
        for (int t = 0; t < since; t++) {
            by_sched_plan(a.s, &a.plan, 0);
            assert_int_equal(a.plan.n_decode, 1);
        }
        ample_add(&a, 1, 20);
        ample_add(&a, 2, o.max_rows); /* behind the first there is no room for it whole: another step, at once */
        int t = since;
        for (; t % 7 && t % 5; t++) {
            by_sched_plan(a.s, &a.plan, 0);
            assert_true(a.plan.n_decode == 1 && a.plan.n_seqs == 1);
        }
        by_sched_plan(a.s, &a.plan, 0);
        assert_true(a.plan.n_decode == 0 && a.plan.n_seqs == 2 && a.plan.n_rows == o.max_rows);
        by_sched_plan(a.s, &a.plan, 0);
        assert_true(a.plan.n_decode == 0 && a.plan.n_seqs == 1 && a.plan.n_rows == 20);
        by_sched_plan(a.s, &a.plan, 0);
        assert_int_equal(a.plan.n_decode, 3);
        ample_close(&a, 3);
    }
}

static void prompts_of_a_step_have_so_much_context_together(void **state) {
    (void)state;
    by_sched_opts o = by_sched_opts_default();
    o.prefill_ctx = 250;
    ample a;
    ample_open(&a, &o);
    const int64_t lengths[] = {100, 150, 400, 10, 240, 1};
    const int32_t rows[] = {250, 400, 250, 1}; /* the 400 alone, and what is behind it does not pass it */
    for (int i = 0; i < 6; i++) ample_add(&a, i, lengths[i]);
    for (int t = 0; t < 4; t++) {
        by_sched_plan(a.s, &a.plan, 0);
        assert_int_equal(a.plan.n_rows - a.plan.n_decode, rows[t]);
    }
    by_sched_plan(a.s, &a.plan, 0);
    assert_true(a.plan.n_decode == 6 && a.plan.n_seqs == 6); /* decode rows are not prompts */
    ample_close(&a, 6);
    o.max_rows = o.max_seqs; /* chunks of 256: a prompt counts whole in each */
    ample_open(&a, &o);
    ample_add(&a, 0, 300);
    ample_add(&a, 1, 100);
    const int32_t chunks[] = {256, 44, 100};
    for (int t = 0; t < 3; t++) {
        by_sched_plan(a.s, &a.plan, 0);
        assert_int_equal(a.plan.n_rows - a.plan.n_decode, chunks[t]);
    }
    ample_close(&a, 2);
}

/* Microseconds of processor time of a plan, the least of many: the machine is shared. */
static double cost_of_a_plan(by_sched *s, by_plan *plan) {
    double best = 1e9;
    uint64_t calls = by_alloc_calls();
    for (int round = 0; round < 20; round++) {
        struct timespec t0, t1;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
        for (int t = 0; t < 20; t++) by_sched_plan(s, plan, t);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
        double us = ((double)(t1.tv_sec - t0.tv_sec) * 1e6 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-3) / 20;
        if (us < best) best = us;
    }
    assert_int_equal(by_alloc_calls(), calls);
    return best;
}

/* The same with n sequences that decode and n_waiting that do not fit beside them. */
static double cost_of_many(int n, int n_waiting) {
    by_sched_opts o = by_sched_opts_default();
    o.max_seqs = n_waiting ? n + 1 : n; /* else the queue is not looked at */
    pool p = {.n_blocks = 1000000, .blocks_free = 1000000, .n_slots = n + 1, .slots_free = n + 1};
    by_sched_pool vt = {&p, blocks_free, blocks_for, blocks_held, admit, grow, swap_out, swap_in, NULL, blocks_total};
    by_sched *s;
    by_plan plan;
    fake *all = calloc((size_t)(n + n_waiting), sizeof *all);
    assert_non_null(all);
    assert_int_equal(by_sched_create(&s, &o, &vt, NULL), BY_OK);
    assert_int_equal(by_plan_init(&plan, s, NULL), BY_OK);
    for (int i = 0; i < n + n_waiting; i++) {
        all[i].live = true;
        all[i].s = (by_sched_seq){.arrival_us = i, .n_tokens = 2, .n_expected = i < n ? 4000 : BLOCK * 1000000, .n_max = BLOCK * 1000000};
        assert_int_equal(by_sched_add(s, &all[i].s, NULL), BY_OK);
        if (i + 1 < n) continue;
        for (int t = 0; i + 1 == n && t < 4; t++) by_sched_plan(s, &plan, 0);
    }
    double us = cost_of_a_plan(s, &plan);
    assert_int_equal(plan.n_decode, n);
    assert_int_equal(by_sched_stats_get(s).n_waiting, n_waiting);
    for (int i = 0; i < n + n_waiting; i++) by_sched_remove(s, &all[i].s);
    by_plan_deinit(&plan);
    by_sched_destroy(s);
    free(all);
    return us;
}

static void planning_is_cheap_and_allocates_nothing(void **state) {
    (void)state;
    double few = cost_of_many(256, 0), many = cost_of_many(2048, 0), each = (many - few) / (2048 - 256), queue = cost_of_many(256, 4000);
    print_message("a plan for 256 running sequences takes %.1f us, each one more %.3f us; with 4000 that do not fit %.1f us\n", few, each,
                  queue);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(few < 50 && each < 0.5 && queue < 50); /* half of what a step of the engine may take; the rest is making and committing jobs */
#endif
}

int main(void) {
    rng = by_test_rng(20261129);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_leak_no_starvation_no_double_booking),
        cmocka_unit_test(prompts_come_at_multiples_of_either_interval),
        cmocka_unit_test(prompts_of_a_step_have_so_much_context_together),
        cmocka_unit_test(planning_is_cheap_and_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
