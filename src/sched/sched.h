/* sched.h - who runs in the next step: pure decisions over counts, no device calls, no clock of its own.
 *
 * A by_sched holds sequences in four lists (waiting, running, swapped, and those being prefilled, which are running ones with
 * prompt left) and makes one by_plan per step. What a decision costs in blocks and slots it asks a by_sched_pool, which the
 * engine implements over its caches and the tests over two counters.
 *
 * Rules
 *   decode first       every running sequence gets its rows before any prompt gets rows
 *   order              higher priority first, then earlier arrival
 *   admission          a prompt is admitted when its expected length fits beside what the admitted ones may still grow to, and
 *                      while no more than `watermark` of the blocks is in use; where nothing runs, always
 *   bypass             while the head of the queue does not fit, at most `bypass_limit` later requests may pass it; then
 *                      nothing is admitted before it. That bounds its wait. A plan looks at BY_SCHED_LOOKS of them.
 *   preemption         when blocks run out a paused sequence, else the last in order, is swapped out; swapped sequences come
 *                      back in order, and before anything new is admitted; a paused one comes back when it goes on
 *   policy             mixed: prompts share steps with decode rows. interval: while something decodes, steps with prompts come
 *                      behind one another and when the steps since the last are a multiple of `interval` or `any_interval`, and
 *                      then without decode rows (the original's way; its two votes, of every rank and of any, are one here).
 *                      deadline: as mixed, but while the oldest waiter is over `ttft_budget_us` prompts get the whole step.
 *
 *   prompts of a step  their whole lengths together are at most `prefill_ctx`, or there is one; the next in order waits, and what is
 *                      behind it, so that a long one is not passed for ever
 *
 * One thread. Source: engine.md section 3. */
#ifndef BY_SCHED_SCHED_H
#define BY_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum by_sched_state {
    BY_SCHED_NEW,     /* not added */
    BY_SCHED_WAITING, /* no slot, no blocks */
    BY_SCHED_RUNNING, /* admitted */
    BY_SCHED_SWAPPED, /* its state lies in host memory */
    BY_SCHED_DONE     /* taken out */
} by_sched_state;

/* The scheduler's part of a sequence, embedded in the engine's. The caller sets the first block before by_sched_add. */
typedef struct by_sched_seq {
    int32_t priority;    /* higher goes first */
    int64_t arrival_us;
    int64_t n_tokens;    /* tokens known: prompt and output, those of a step in flight included, as if every draft were right */
    int32_t n_extra;     /* most tokens its next decode step may bring beyond one (drafts it may verify) */
    int64_t n_expected;  /* tokens it will probably end with, >= n_tokens */
    int64_t n_max;       /* tokens it can end with: no row is planned beyond */
    int64_t cut;         /* a prefill chunk ends here; 0 = anywhere. May be set by the pool's admit */
    bool wants_all;      /* prompt rows want logits: they share opts.all_rows of a step */
    bool accepted;       /* its request was taken in before: the limit of the queue does not concern it */
    bool paused;         /* its reader is slow: keeps what it holds, gets no rows */

    by_sched_state state;
    int64_t n_done;      /* tokens whose rows were planned (computed once their step has run) */
    int64_t n_open;      /* of n_tokens and n_done: what may turn out not to be there, until by_sched_settle */
    int32_t n_passed;    /* requests that were admitted past it */
    uint64_t order;      /* tie break: order of adding */
    uint64_t planned;    /* number of the last plan that has rows of it */
    struct by_sched_seq *prev, *next;
} by_sched_seq;

struct by_plan;

/* What the engine answers. `seq` is the scheduler's part of its sequence. */
typedef struct by_sched_pool {
    void *ctx;
    int64_t (*blocks_free)(void *ctx);
    int64_t (*blocks_for)(void *ctx, int64_t n_tokens);
    int64_t (*blocks_held)(void *ctx, const by_sched_seq *seq);
    /* Takes a slot and finds what the caches hold of the prompt: sets n_done. False when no slot is free. */
    bool (*admit)(void *ctx, by_sched_seq *seq);
    /* Blocks for n_tokens tokens. False when there are too few; then nothing was taken. */
    bool (*grow)(void *ctx, by_sched_seq *seq, int64_t n_tokens);
    /* Moves state and blocks to host memory, or back. False: no memory there, or no slot or blocks here. */
    bool (*swap_out)(void *ctx, by_sched_seq *seq);
    bool (*swap_in)(void *ctx, by_sched_seq *seq);
    /* Rows for drafts in a step with these decode rows, at most `most`. May be NULL: none. */
    int32_t (*draft_rows)(void *ctx, const struct by_plan *plan, int32_t most);
    /* Blocks there are, free or not. */
    int64_t (*blocks_total)(void *ctx);
} by_sched_pool;

/* Requests behind one that does not fit that a plan looks at: with thousands the look would take longer than the step. */
enum { BY_SCHED_LOOKS = 64 };

typedef enum by_prefill_policy { BY_PREFILL_MIXED, BY_PREFILL_INTERVAL, BY_PREFILL_DEADLINE } by_prefill_policy;

typedef struct by_sched_opts {
    int32_t max_rows;       /* rows of a step, >= max_seqs */
    int32_t max_seqs;       /* sequences of a step, and admitted at once */
    int32_t max_waiting;    /* more are refused */
    int32_t bypass_limit;   /* default 4 */
    int32_t interval, any_interval; /* interval policy: steps between prefills, default 70 and 100 */
    int64_t prefill_ctx;    /* most tokens of the prompts in a step, done and to do; 0 = any number */
    int64_t ttft_budget_us; /* deadline policy */
    int32_t prefill_rows;   /* most prompt rows of a mixed step that also decodes; 0 = what is left of max_rows */
    int32_t all_rows;       /* prompt rows with logits in one step, >= 1 */
    double watermark;       /* share of the blocks in use above which nothing is admitted, (0, 1], default 0.9 */
    by_prefill_policy policy;
} by_sched_opts;

/* The documented defaults: 4096 rows, 256 sequences, bypass 4, mixed, watermark 0.9. */
by_sched_opts by_sched_opts_default(void);

/* One sequence's share of a step. */
typedef struct by_plan_row {
    by_sched_seq *seq;
    int64_t first;   /* position of its first row; of a decode row: the highest it can be, n_open of the sequence below at least */
    int32_t n_rows;
    int32_t n_extra; /* decode: drafts it may verify besides; blocks are reserved for them, rows come out of plan.n_drafts */
    bool samples;    /* its last row is the newest token's: a token comes out */
} by_plan_row;

typedef struct by_plan {
    by_plan_row *rows; /* [max_seqs]: decode rows in order, then prompts */
    int32_t n_seqs, n_rows; /* n_rows: with n_drafts */
    int32_t n_decode;  /* of n_seqs */
    int32_t n_drafts;  /* rows for drafts of the decoding sequences, together */
    int32_t n_all;     /* rows of sequences with wants_all */
    int32_t n_last;    /* entries of `rows` that the plan before has left */
} by_plan;

typedef struct by_sched by_sched;

/* Errors: BY_EINVAL (an option out of range, named), BY_ENOMEM. */
by_status by_sched_create(by_sched **out, const by_sched_opts *opts, const by_sched_pool *pool, by_err *err);
/* All sequences must have been removed (asserted). */
void by_sched_destroy(by_sched *s);

/* Puts a sequence in the queue. BY_EBUSY when max_waiting are there, unless it is accepted. */
by_status by_sched_add(by_sched *s, by_sched_seq *seq, by_err *err);
/* A child that shares its parent's state and runs at once (n > 1). Takes no slot: the caller has done so. */
void by_sched_add_running(by_sched *s, by_sched_seq *seq);
/* Takes it out, whatever its state; the caller releases what it holds. */
void by_sched_remove(by_sched *s, by_sched_seq *seq);

/* Plans the next step at time now_us into plan (arrays allocated by by_plan_init). Planned rows count as done, and a row that
 * samples as one more known token. An empty plan (n_seqs 0) means there is nothing that can run. Allocates nothing. */
void by_sched_plan(by_sched *s, by_plan *plan, int64_t now_us);

/* From now on prompts get at most n_rows rows of a step that also decodes, whatever opts.prefill_rows allows; 0 = no such limit. */
void by_sched_limit_prefill(by_sched *s, int32_t n_rows);

/* A planned decode row with n_extra drafts brought 1 + n_got tokens: 0 <= n_got <= n_extra. */
void by_sched_settle(by_sched_seq *seq, int32_t n_extra, int32_t n_got);

/* Memory for the plans of s. */
by_status by_plan_init(by_plan *plan, const by_sched *s, by_err *err);
void by_plan_deinit(by_plan *plan);

typedef struct by_sched_stats {
    int32_t n_waiting, n_running, n_swapped;
    uint64_t n_admitted, n_bypassed, n_preempted, n_resumed, n_stuck; /* n_stuck: plans that could not even swap */
    uint64_t n_preempted_paused; /* of n_preempted: sequences that were paused */
} by_sched_stats;
by_sched_stats by_sched_stats_get(const by_sched *s);

/* First waiting sequence in order, and the one behind (NULL at the end): for cancelling and draining. */
by_sched_seq *by_sched_first_waiting(const by_sched *s);

#endif
