/* sched.c - see sched.h. Lists are kept sorted by insertion from the end: arrivals come in order, so that costs O(1) unless a
 * higher priority jumps the queue. */
#include "sched/sched.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/limits.h"

typedef struct {
    by_sched_seq *first, *last;
    int32_t n;
} list;

struct by_sched {
    by_sched_opts opts;
    by_sched_pool pool;
    list waiting, running, swapped;
    uint64_t n_added;
    uint64_t n_plans;
    int32_t prefill_limit; /* of steps that also decode; 0 = none */
    int64_t since_prefill; /* steps since the last one with prompt rows */
    by_sched_stats stats;
};

/* ---- lists ---- */

static bool before(const by_sched_seq *a, const by_sched_seq *b) {
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->arrival_us != b->arrival_us) return a->arrival_us < b->arrival_us;
    return a->order < b->order;
}

static void list_insert(list *l, by_sched_seq *s) {
    by_sched_seq *after = l->last;
    while (after && before(s, after)) after = after->prev;
    s->prev = after;
    s->next = after ? after->next : l->first;
    *(s->prev ? &s->prev->next : &l->first) = s;
    *(s->next ? &s->next->prev : &l->last) = s;
    l->n++;
}

static void list_remove(list *l, by_sched_seq *s) {
    *(s->prev ? &s->prev->next : &l->first) = s->next;
    *(s->next ? &s->next->prev : &l->last) = s->prev;
    s->prev = s->next = NULL;
    l->n--;
}

static list *list_of(by_sched *s, by_sched_state state) {
    switch (state) {
    case BY_SCHED_WAITING: return &s->waiting;
    case BY_SCHED_RUNNING: return &s->running;
    case BY_SCHED_SWAPPED: return &s->swapped;
    case BY_SCHED_NEW: case BY_SCHED_DONE: break;
    }
    return NULL;
}

static void move(by_sched *s, by_sched_seq *seq, by_sched_state to) {
    list *from = list_of(s, seq->state), *into = list_of(s, to);
    if (from) list_remove(from, seq);
    seq->state = to;
    if (into) list_insert(into, seq);
}

/* ---- life ---- */

by_sched_opts by_sched_opts_default(void) {
    return (by_sched_opts){.max_rows = 4096, .max_seqs = 256, .max_waiting = 4096, .bypass_limit = 4, .interval = 70,
                           .any_interval = 100, .ttft_budget_us = 1000000, .all_rows = 64, .watermark = 0.9};
}

static by_status check(const by_sched_opts *o, by_err *err) {
    if (o->max_seqs < 1 || o->max_seqs > BY_LIMIT_SEQS)
        return BY_FAIL(err, BY_EINVAL, "max-num-seqs: %d is outside 1..%d", o->max_seqs, BY_LIMIT_SEQS);
    if (o->max_rows < o->max_seqs || o->max_rows > BY_LIMIT_STEP_ROWS)
        return BY_FAIL(err, BY_EINVAL, "max-num-batched-tokens: %d is outside %d..%d (max-num-seqs is the least)", o->max_rows,
                       o->max_seqs, BY_LIMIT_STEP_ROWS);
    if (o->max_waiting < 1) return BY_FAIL(err, BY_EINVAL, "max-queue: %d is below 1", o->max_waiting);
    if (o->bypass_limit < 0) return BY_FAIL(err, BY_EINVAL, "bypass-limit: %d is below 0", o->bypass_limit);
    if (o->interval < 1 || o->any_interval < 1)
        return BY_FAIL(err, BY_EINVAL, "prefill interval: %d is below 1", o->interval < 1 ? o->interval : o->any_interval);
    if (o->prefill_ctx < 0)
        return BY_FAIL(err, BY_EINVAL, "prefill-max-ctx-sum: %lld is below 0", (long long)o->prefill_ctx);
    if (o->all_rows < 1) return BY_FAIL(err, BY_EINVAL, "prompt rows with logits: %d is below 1", o->all_rows);
    if (!(o->watermark > 0 && o->watermark <= 1))
        return BY_FAIL(err, BY_EINVAL, "prefill-watermark: %g is outside (0, 1]", o->watermark);
    if (o->prefill_rows < 0) return BY_FAIL(err, BY_EINVAL, "prefill rows of a step: %d is below 0", o->prefill_rows);
    return BY_OK;
}

by_status by_sched_create(by_sched **out, const by_sched_opts *opts, const by_sched_pool *pool, by_err *err) {
    *out = NULL;
    BY_TRY(check(opts, err));
    by_sched *s = by_alloc_zero(BY_MEM_REQUEST, sizeof *s);
    if (!s) return BY_FAIL(err, BY_ENOMEM, "out of memory for the scheduler");
    s->opts = *opts;
    s->pool = *pool;
    *out = s;
    return BY_OK;
}

void by_sched_destroy(by_sched *s) {
    if (!s) return;
    assert(s->waiting.n == 0 && s->running.n == 0 && s->swapped.n == 0);
    by_free(s);
}

by_status by_plan_init(by_plan *plan, const by_sched *s, by_err *err) {
    *plan = (by_plan){.rows = by_alloc(BY_MEM_REQUEST, (size_t)s->opts.max_seqs * sizeof *plan->rows)};
    return plan->rows ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a plan");
}

void by_plan_deinit(by_plan *plan) {
    by_free(plan->rows);
    *plan = (by_plan){0};
}

by_status by_sched_add(by_sched *s, by_sched_seq *seq, by_err *err) {
    if (s->waiting.n >= s->opts.max_waiting && !seq->accepted)
        return BY_FAIL(err, BY_EBUSY, "%d requests are waiting, which is the limit", s->waiting.n);
    seq->n_done = seq->n_open = 0;
    seq->n_passed = 0;
    seq->order = s->n_added++;
    seq->state = BY_SCHED_NEW;
    move(s, seq, BY_SCHED_WAITING);
    return BY_OK;
}

void by_sched_add_running(by_sched *s, by_sched_seq *seq) {
    seq->n_passed = 0;
    seq->order = s->n_added++;
    seq->state = BY_SCHED_NEW;
    move(s, seq, BY_SCHED_RUNNING);
    s->stats.n_admitted++;
}

void by_sched_remove(by_sched *s, by_sched_seq *seq) { move(s, seq, BY_SCHED_DONE); }

by_sched_seq *by_sched_first_waiting(const by_sched *s) { return s->waiting.first; }

by_sched_stats by_sched_stats_get(const by_sched *s) {
    by_sched_stats st = s->stats;
    st.n_waiting = s->waiting.n;
    st.n_running = s->running.n;
    st.n_swapped = s->swapped.n;
    return st;
}

/* ---- planning ---- */

static int64_t still_to_grow(const by_sched *s, const by_sched_seq *seq) {
    int64_t known = seq->n_tokens < seq->n_max ? seq->n_tokens : seq->n_max;
    int64_t want = s->pool.blocks_for(s->pool.ctx, seq->n_expected > known ? seq->n_expected : known);
    int64_t held = s->pool.blocks_held(s->pool.ctx, seq);
    return want > held ? want - held : 0;
}

/* Who gives way: a paused sequence, which gains nothing from what it holds, else the last in order that is not planned. */
static by_sched_seq *victim(const by_sched *s, const by_sched_seq *keep) {
    by_sched_seq *last = NULL;
    for (by_sched_seq *v = s->running.last; v; v = v->prev) {
        if (v == keep || v->planned == s->n_plans) continue;
        if (v->paused) return v;
        if (!last) last = v;
    }
    return last;
}

static bool evict(by_sched *s, by_sched_seq *v) {
    if (!s->pool.swap_out(s->pool.ctx, v)) {
        s->stats.n_stuck++;
        return false;
    }
    move(s, v, BY_SCHED_SWAPPED);
    s->stats.n_preempted++;
    s->stats.n_preempted_paused += v->paused;
    return true;
}

/* Blocks for n_tokens tokens of seq, swapping others out if it must be. False: seq has to wait. Only paused sequences and those
 * behind seq in order give way. */
static bool make_room(by_sched *s, by_sched_seq *seq, int64_t n_tokens) {
    while (!s->pool.grow(s->pool.ctx, seq, n_tokens)) {
        by_sched_seq *v = victim(s, seq);
        if (!v || (!v->paused && before(v, seq)) || !evict(s, v)) return false;
    }
    return true;
}

/* Tokens that a sequence certainly has. */
static int64_t least_tokens(const by_sched_seq *seq) { return seq->n_tokens - seq->n_open; }

/* Drafts that may help: with the token that follows them they do not go beyond n_max. */
static int32_t useful_extra(const by_sched_seq *seq) {
    int64_t left = seq->n_max - least_tokens(seq) - 1;
    return left < 0 ? 0 : left < seq->n_extra ? (int32_t)left : seq->n_extra;
}

static void take(const by_sched *s, by_plan *plan, by_sched_seq *seq, int32_t n_rows, int32_t n_extra) {
    bool samples = seq->n_done + n_rows == seq->n_tokens;
    plan->rows[plan->n_seqs++] =
        (by_plan_row){.seq = seq, .first = seq->n_done, .n_rows = n_rows, .n_extra = n_extra, .samples = samples};
    plan->n_rows += n_rows;
    if (seq->wants_all) plan->n_all += n_rows;
    seq->planned = s->n_plans;
    seq->n_done += n_rows + n_extra;
    seq->n_tokens += samples + n_extra;
    seq->n_open += n_extra;
}

void by_sched_settle(by_sched_seq *seq, int32_t n_extra, int32_t n_got) {
    assert(n_got >= 0 && n_got <= n_extra && n_extra <= seq->n_open);
    seq->n_open -= n_extra;
    seq->n_done -= n_extra - n_got;
    seq->n_tokens -= n_extra - n_got;
}

/* A sequence decodes when only its newest token has no row yet. */
static bool decodes(const by_sched_seq *seq) { return seq->n_done + 1 == seq->n_tokens && seq->n_done > 0; }
/* One that has reached n_max waits for its last results. */
static bool can_run(const by_sched_seq *seq) {
    return !seq->paused && seq->n_done < seq->n_tokens && least_tokens(seq) <= seq->n_max;
}
static int64_t at_most(int64_t n, int64_t limit) { return n < limit ? n : limit; }

/* Begins to load a sequence with what the engine keeps behind it. A step of the model has pushed all of it out of the caches, and
 * then waiting for memory is what a plan takes most of its time for. The list tells only who is next; who comes some places later
 * is in the plan before, at the place in `rows` that has not been written yet (it may be gone, which a prefetch does not mind). */
static void fetch_ahead(const by_plan *plan) {
    enum { AHEAD = 4, LINES = 6 };
    int32_t at = plan->n_seqs + AHEAD;
    if (at >= plan->n_last) return;
    for (int i = 0; i < LINES; i++) __builtin_prefetch((const char *)plan->rows[at].seq + 64 * i, 1);
}

static void plan_decode(by_sched *s, by_plan *plan) {
    by_sched_seq *next;
    for (by_sched_seq *seq = s->running.first; seq; seq = next) {
        next = seq->next;
        fetch_ahead(plan);
        if (!decodes(seq) || !can_run(seq) || least_tokens(seq) >= seq->n_max) continue;
        if (plan->n_seqs == s->opts.max_seqs) break;
        int32_t extra = useful_extra(seq);
        bool fits = make_room(s, seq, at_most(seq->n_tokens + extra, seq->n_max));
        next = seq->next; /* room may have been made by those behind */
        if (fits) take(s, plan, seq, 1, extra);
    }
    plan->n_decode = plan->n_seqs;
    int32_t left = s->opts.max_rows - plan->n_rows;
    if (plan->n_decode == 0 || !s->pool.draft_rows || left <= 0) return;
    plan->n_drafts = s->pool.draft_rows(s->pool.ctx, plan, left);
    assert(plan->n_drafts >= 0 && plan->n_drafts <= left);
    plan->n_rows += plan->n_drafts;
}

static by_sched_seq *first_to_resume(const by_sched *s) {
    by_sched_seq *seq = s->swapped.first;
    while (seq && seq->paused) seq = seq->next;
    return seq;
}

/* Swapped sequences come back as far as there is room for them and one more block for each running one, so that they do not
 * leave again at once; paused sequences make that room. */
static void resume(by_sched *s) {
    by_sched_seq *seq;
    while ((seq = first_to_resume(s)) != NULL) {
        int64_t need = s->pool.blocks_for(s->pool.ctx, seq->n_tokens + 1); /* n_open of them may not be needed */
        bool fits = s->running.n == 0 || (s->running.n < s->opts.max_seqs &&
                                          s->pool.blocks_free(s->pool.ctx) >= need + s->running.n);
        if (fits && s->pool.swap_in(s->pool.ctx, seq)) {
            move(s, seq, BY_SCHED_RUNNING);
            s->stats.n_resumed++;
            continue;
        }
        by_sched_seq *v = victim(s, NULL);
        if (!v || !v->paused || !evict(s, v)) return;
    }
}

/* What a step has left for prompts. */
typedef struct room {
    int32_t rows, n_prompts; /* n_prompts: those it has */
    int64_t ctx;             /* prefill_ctx: tokens of further prompts */
} room;

/* The first always does: no other step would take it either. */
static bool has_ctx(const by_sched *s, const room *left, const by_sched_seq *seq) {
    return s->opts.prefill_ctx == 0 || left->n_prompts == 0 || seq->n_tokens <= left->ctx;
}

static void take_prompt(const by_sched *s, by_plan *plan, by_sched_seq *seq, int32_t n_rows, room *left) {
    left->rows -= n_rows;
    left->ctx -= seq->n_tokens;
    left->n_prompts++;
    take(s, plan, seq, n_rows, 0);
}

static int32_t chunk_rows(const by_sched *s, const by_plan *plan, int32_t budget, const by_sched_seq *seq) {
    int64_t want = seq->n_tokens - seq->n_done, left = s->opts.max_rows - plan->n_rows;
    if (seq->cut > seq->n_done && seq->n_done + want > seq->cut) want = seq->cut - seq->n_done;
    if (budget < left) left = budget;
    if (seq->wants_all && left > s->opts.all_rows - plan->n_all) left = s->opts.all_rows - plan->n_all;
    return (int32_t)(want < left ? want : left);
}

/* Rows for prompts that are on their way already. */
static void plan_started(by_sched *s, by_plan *plan, room *left) {
    by_sched_seq *next;
    for (by_sched_seq *seq = s->running.first; seq; seq = next) {
        next = seq->next;
        if (decodes(seq) || !can_run(seq)) continue;
        if (plan->n_seqs == s->opts.max_seqs || left->rows == 0 || !has_ctx(s, left, seq)) return;
        int32_t n = chunk_rows(s, plan, left->rows, seq);
        bool fits = n > 0 && make_room(s, seq, seq->n_done + n);
        next = seq->next; /* room may have been made by those behind */
        if (fits) take_prompt(s, plan, seq, n, left);
    }
}

static int64_t promised(const by_sched *s) {
    int64_t sum = 0;
    for (const by_sched_seq *r = s->running.first; r; r = r->next) sum += still_to_grow(s, r);
    return sum;
}

/* Whether the pool is too full for new prompts: what runs shall find its next blocks without swapping. */
static bool above_watermark(const by_sched *s) {
    int64_t total = s->pool.blocks_total(s->pool.ctx), used = total - s->pool.blocks_free(s->pool.ctx);
    return (double)used > s->opts.watermark * (double)total;
}

/* What admission knows while it goes through the queue. */
typedef struct queue_look {
    int64_t promise;  /* blocks that the admitted ones may still take */
    bool none_paused; /* nobody is left who would make room */
} queue_look;

/* Tries to admit seq; paused sequences make room for it. */
static bool admit(by_sched *s, by_sched_seq *seq, queue_look *look) {
    int64_t need = s->pool.blocks_for(s->pool.ctx, seq->n_expected);
    for (;;) {
        bool fits = s->running.n == 0 ||
                    (s->pool.blocks_free(s->pool.ctx) >= look->promise + need && !above_watermark(s));
        if (fits && s->running.n < s->opts.max_seqs && s->pool.admit(s->pool.ctx, seq)) return true;
        by_sched_seq *v = look->none_paused ? NULL : victim(s, NULL);
        look->none_paused = !v || !v->paused;
        if (look->none_paused || !evict(s, v)) return false;
    }
}

/* Admits from the queue while rows, slots and expected blocks last. */
static void plan_waiting(by_sched *s, by_plan *plan, room *left) {
    if (s->waiting.n == 0) return;
    queue_look look = {.promise = promised(s)};
    bool head_waits = false;
    int32_t n_looks = 0;
    by_sched_seq *next;
    for (by_sched_seq *seq = s->waiting.first; seq; seq = next) {
        next = seq->next;
        if (plan->n_seqs == s->opts.max_seqs || left->rows == 0) return;
        if (first_to_resume(s)) return; /* they come first */
        if (seq->paused) continue;
        if (!has_ctx(s, left, seq)) return;
        by_sched_seq *head = s->waiting.first;
        if (head_waits && (head->n_passed >= s->opts.bypass_limit || ++n_looks > BY_SCHED_LOOKS)) return;
        if (!admit(s, seq, &look)) {
            if (s->running.n >= s->opts.max_seqs) return;
            head_waits = true;
            continue;
        }
        move(s, seq, BY_SCHED_RUNNING);
        s->stats.n_admitted++;
        if (head_waits) {
            head->n_passed++;
            s->stats.n_bypassed++;
        }
        int32_t n = chunk_rows(s, plan, left->rows, seq);
        if (n > 0 && s->pool.grow(s->pool.ctx, seq, seq->n_done + n)) take_prompt(s, plan, seq, n, left);
        look.promise += still_to_grow(s, seq);
    }
}

void by_sched_limit_prefill(by_sched *s, int32_t n_rows) { s->prefill_limit = n_rows; }

/* What decode rows leave for prompts, the step's size apart. */
static int32_t beside_decode(const by_sched *s, int32_t left) {
    if (s->opts.policy == BY_PREFILL_INTERVAL) return 0;
    if (s->opts.prefill_rows > 0 && s->opts.prefill_rows < left) left = s->opts.prefill_rows;
    return s->prefill_limit > 0 && s->prefill_limit < left ? s->prefill_limit : left;
}

static bool late(const by_sched *s, int64_t now_us) {
    return s->waiting.first && now_us - s->waiting.first->arrival_us > s->opts.ttft_budget_us;
}

/* Whether this step is for prompts only, without decode rows. */
static bool prompts_only(const by_sched *s, int64_t now_us) {
    bool has_prompts = s->waiting.n > 0;
    if (s->opts.policy == BY_PREFILL_MIXED) return false;
    for (const by_sched_seq *r = s->running.first; r && !has_prompts; r = r->next) has_prompts = !decodes(r) && can_run(r);
    if (!has_prompts) return false;
    if (s->opts.policy == BY_PREFILL_INTERVAL)
        return s->since_prefill % s->opts.interval == 0 || s->since_prefill % s->opts.any_interval == 0;
    return s->opts.policy == BY_PREFILL_DEADLINE && late(s, now_us);
}

void by_sched_plan(by_sched *s, by_plan *plan, int64_t now_us) {
    plan->n_last = plan->n_seqs;
    plan->n_seqs = plan->n_rows = plan->n_decode = plan->n_drafts = plan->n_all = 0;
    s->n_plans++;
    resume(s);
    bool only = prompts_only(s, now_us);
    if (!only) plan_decode(s, plan);
    room left = {.rows = s->opts.max_rows - plan->n_rows, .ctx = s->opts.prefill_ctx};
    if (plan->n_decode > 0) left.rows = beside_decode(s, left.rows);
    plan_started(s, plan, &left);
    plan_waiting(s, plan, &left);
    if (only && plan->n_seqs == 0) plan_decode(s, plan); /* nothing could be placed: do not lose the step */
    if (plan->n_seqs > plan->n_decode) s->since_prefill = 0;
    else if (plan->n_seqs > 0) s->since_prefill++;
}
