/* engine.h - many requests on one model: continuous batching, prefix reuse, preemption, asynchronous steps.
 *
 *   caller threads      submit, read events, abort                        (any number)
 *   scheduler thread    plans step t + 1 while step t runs, commits results one step late
 *   device thread       runs steps in order: restores, forward, sampling, saves
 *
 * A request has n choices; each choice gives one token event after another and ends with a finish reason. Events lie in a
 * bounded queue per request: a reader that is slow pauses its own request and no other. A request ends by itself, by
 * by_request_abort, or by an error of its own (for example NaN in its logits); others are not touched.
 *
 * Same prompt, parameters and seed give the same tokens and the same bits of log-probabilities whatever else runs, except
 * with the approximate modes BY_RESTORE_LOAD and BY_RESTORE_REPLAY, a keep below the exact one, or rejection as the rule for
 * drafts (the same law, other tokens: they depend on how many drafts a step verifies). Source: engine.md. */
#ifndef BY_ENGINE_ENGINE_H
#define BY_ENGINE_ENGINE_H

#include "engine/tally.h"
#include "grammar/grammar_cache.h"
#include "model/runner.h"
#include "sample/sample_dist.h"
#include "sample/draft_plan.h"
#include "sample/sample_verify.h"
#include "sched/sched.h"

#define BY_ENGINE_DRAFTS_MAX 8

struct by_engine_stats;

/* How a prefix hit gets its window rings back. Source: engine.md section 5. */
typedef enum by_restore {
    BY_RESTORE_AUTO,         /* a full snapshot where there is one, else exact-replay */
    BY_RESTORE_FULL,         /* full snapshots only */
    BY_RESTORE_EXACT_REPLAY, /* recompute as far back as exactness asks */
    BY_RESTORE_REPLAY,       /* recompute one window: approximate */
    BY_RESTORE_LOAD          /* encoder rings from a snapshot, decoder rings from the kept rows: approximate */
} by_restore;

/* When drafts are proposed and verified (models with draft layers). */
typedef enum by_draft_mode {
    BY_DRAFT_AUTO,       /* as confidence, and not at all while it does not pay */
    BY_DRAFT_CONFIDENCE, /* as many as the measured cost of a step makes worth while */
    BY_DRAFT_FIXED,      /* all of them */
    BY_DRAFT_OFF
} by_draft_mode;

typedef struct by_engine_opts {
    const char *model_dir;
    by_device_opts device;
    by_model_opts model;
    int64_t max_context;  /* 0 = the smaller of the model's limit and what the caches hold; above the model's limit: BY_EINVAL */
    int32_t kv_blocks;    /* 0 = from ram_bytes */
    int32_t state_slots;  /* 0 = slots_ratio x max_seqs + 1 */
    double slots_ratio;   /* 0 = 1.2 */
    int32_t backtrack;    /* tokens that can be rolled back, beyond what drafts need; 0 = 6 */
    by_sample_rule sampler; /* BY_SAMPLE_DEEPINFER: of all requests, whatever they say */
    const int32_t *banned;  /* [n_banned] ids that no request produces; copied */
    int32_t n_banned;
    bool sum_smaller;       /* events tell by_event.smaller */
    int32_t top_k;          /* of all requests, whatever they say; 0 = their own */
    int64_t ram_bytes;    /* most host memory for swapped state, snapshots and, unless the device has a limit of its own, caches;
                           * 0 = a quarter of what is free */
    by_sched_opts sched;
    double itl_budget_s;    /* so long may a step with prompts hold up what decodes, as far as can be told before; 0 = any time */
    double expect_quantile; /* of past output lengths, for admission; default 0.9 */
    bool async;           /* default true */
    bool eager;           /* no step is recorded on a device that could */
    int32_t replay_rows;  /* steps of up to so many rows are; 0 = 256 */
    bool prefix_cache;    /* default true */
    by_restore restore;
    by_truncation trunc;  /* default compact */
    int32_t keep;         /* decoder rows that truncation keeps; 0 = exact (default) */
    by_grammar_cache_opts grammar; /* compilation of grammars; all 0 = defaults */
    by_draft_mode draft_mode;
    int32_t n_drafts;     /* tokens of a draft block, 1..BY_ENGINE_DRAFTS_MAX; 0 = as trained */
    by_sample_verify_rule verify; /* coupled (default): the same tokens as without drafts; rejection: the same law */
    const char *cost_dir; /* step costs are kept here between runs; NULL = measured anew */
    int64_t cost_age_s;   /* and used until they are so old; 0 = an hour */
    const by_draft_cost_point *cost; /* step costs given: no step is measured; the list is copied */
    int32_t n_cost;
    double draft_temperature[BY_ENGINE_DRAFTS_MAX]; /* of the confidences, by position; 0 = 1. See `bathyc calibrate` */
    int32_t log_steps;    /* on_steps is called behind every so many steps; 0 = never */
    void (*on_steps)(void *arg, const struct by_engine_stats *now); /* on the scheduler thread: calls nothing of the engine */
    void *on_steps_arg;
} by_engine_opts;

/* CPU, deployed numerics, asynchronous, prefix cache with exact restores, compact truncation at the exact keep. */
by_engine_opts by_engine_opts_default(void);

typedef struct by_engine by_engine;
typedef struct by_request by_request;

/* Errors: those of by_model_open, by_kv_create and by_sched_create; BY_ENOMEM when one sequence of max_context tokens does not
 * fit. */
by_status by_engine_open(by_engine **out, const by_engine_opts *opts, by_err *err);
/* Ends every request with BY_CHOICE_CANCELLED and waits for the threads. All requests must have been released
 * before: a handle is of no use afterwards. NULL is allowed. */
void by_engine_close(by_engine *e);

/* The model (read-only), and the most tokens one sequence may have. */
const by_model *by_engine_model(const by_engine *e);
int64_t by_engine_max_context(const by_engine *e);
/* Why it is less than the model could have, as a part of a sentence; "" when it is not, or was asked for. */
const char *by_engine_context_reason(const by_engine *e);

/* No new requests from now on (BY_EBUSY); those inside go on. Returns at once. */
void by_engine_drain(by_engine *e);
/* Waits until no request is inside and the statistics know of all, at most timeout_ms (-1 = for ever). False after a timeout. */
bool by_engine_wait_idle(by_engine *e, int64_t timeout_ms);

typedef enum by_choice_finish {
    BY_CHOICE_RUNNING,
    BY_CHOICE_STOP,      /* end token or stop id */
    BY_CHOICE_LENGTH,    /* max_tokens or the context */
    BY_CHOICE_CANCELLED, /* aborted, deadline, shutdown */
    BY_CHOICE_ERROR      /* see by_request_error */
} by_choice_finish;

enum { BY_GRAMMAR_TRIGGER_MAX = 256 };

/* What limits the tokens of a request. The request waits outside the batch until the grammar is compiled; when that fails every
 * choice ends with BY_CHOICE_ERROR and by_request_error is BY_EGRAMMAR with kind and place. Masks are applied last, behind all other
 * edits of logits, and log-probabilities are of what is left. A choice whose text can only end ends with BY_CHOICE_STOP without
 * an end token. With a trigger all is free before it: {id of "</think>"} makes the grammar begin behind the reasoning. */
typedef struct by_request_grammar {
    by_grammar_spec spec;
    const int32_t *trigger; /* [n_trigger] token ids behind which the grammar begins; 0 = at once */
    int32_t n_trigger;      /* at most BY_GRAMMAR_TRIGGER_MAX */
    int32_t bound_id;       /* >= 0: behind this id the trigger is forced; needs a trigger; -1 = none */
    bool close_by_budget;   /* max_tokens leaves room to complete the text */
    bool must_begin;        /* the trigger ends a reasoning: unless the text may be empty no end token comes before it, and with
                             * close_by_budget max_tokens leaves room for the text behind it; needs a trigger */
    bool end_token;         /* produce the end token also where nothing else is allowed */
} by_request_grammar;

typedef struct by_request_opts {
    const int32_t *tokens; /* copied */
    int32_t n_tokens;      /* >= 1 */
    int32_t max_tokens;    /* >= 1; cut at the context */
    by_sample_params sampling; /* lists are copied, of biases of one id the last counts; choice i uses seed + i */
    bool ignore_eos;
    int32_t n, best_of;    /* best_of >= n >= 1: the n with the highest mean log-probability; events come at the end then */
    int32_t n_top;         /* alternatives per token, 0..BY_SAMPLE_TOP_LOGPROBS_MAX */
    bool plain_logprobs;   /* temperature 0: log-probabilities at temperature 1, not of the law that leaves one token */
    bool prompt_logprobs;  /* no prefix reuse and no truncation for this request */
    int32_t n_prompt_top;  /* alternatives per token of the prompt, 0..20; only with prompt_logprobs */
    bool prompt_ranks;     /* its place among all, too; only with prompt_logprobs */
    int32_t priority;
    int64_t deadline_ms;   /* from submission; 0 = none */
    const by_request_grammar *grammar; /* copied; NULL = none */
    int32_t queue_cap;     /* events held for the reader; 0 = 256 */
    void (*notify)(void *arg); /* called on the scheduler thread when events have come, never after the release; must neither
                                * block nor call anything of the engine; NULL = none */
    void *arg;
} by_request_opts;

/* 16 tokens, temperature 1, one choice. */
by_request_opts by_request_opts_default(void);

/* Hands a request over; *out is released with by_request_release, also after its end. Errors: BY_EINVAL (a field, named),
 * BY_ECONTEXT (prompt longer than the context; both numbers), BY_EBUSY (queue full or draining), BY_EUNSUPPORTED (a grammar
 * without a tokenizer), BY_EGRAMMAR (its text is too long), BY_ENOMEM. */
by_status by_engine_submit(by_engine *e, const by_request_opts *opts, by_request **out, by_err *err);

typedef struct by_event {
    int32_t choice;
    int32_t token;       /* -1: no token, only the finish */
    float logprob;
    float smaller;       /* probability of all tokens that are not likelier, itself included (among equals those up to its id), under the
                          * law of logprob; 0 without opts.sum_smaller */
    by_choice_finish finish; /* RUNNING, or the end of this choice with this event */
    int32_t n_top;
    const by_sample_top *top; /* valid until the next call for this request */
} by_event;

/* The next event. Waits at most timeout_ms (0 = not at all, -1 = for ever). BY_OK, BY_AGAIN (none yet), BY_END (every choice
 * has ended and every event was read). One reader per request. */
by_status by_request_next(by_request *r, by_event *out, int64_t timeout_ms);

/* Asks for the end of a request, or of one choice (choice >= 0): it ends with BY_CHOICE_CANCELLED, or with STOP when `stop` is
 * true (a stop string that the caller has found). Any thread, any time. */
void by_request_abort(by_request *r, int32_t choice, bool stop);
/* Aborts what still runs and frees the handle. NULL is allowed. */
void by_request_release(by_request *r);

typedef struct by_request_info {
    int32_t n_prompt, n_cached, n_replayed; /* cached: matched prefix; replayed: rows of it computed again for the rings */
    int64_t submit_us, start_us, first_us;  /* clock of by_clock_ns / 1000; 0 = not yet */
    int64_t end_us;
    int64_t n_steps, n_verified, n_accepted; /* decode steps of the choices that have ended, and their drafts */
} by_request_info;
by_request_info by_request_info_get(by_request *r);

/* Warnings of the compilation of its grammar, one a line; "" when there are none. Once an event has come, until the release. */
const char *by_request_grammar_warnings(by_request *r);

/* Text of the error of a choice that ended with BY_CHOICE_ERROR. */
by_status by_request_error(by_request *r, by_err *out);

/* log P(prompt[t + 1]) for t = 0 .. n_prompt - 2, after the request's transform; NULL unless asked for, valid once the first
 * event has come, until the release. */
const float *by_request_prompt_logprobs(by_request *r, int32_t *n);
/* [n_prompt - 1]: place of prompt[t + 1] among all tokens by its logit, from 1 on; NULL unless asked for. Valid like those. */
const int32_t *by_request_prompt_ranks(by_request *r);
/* [n_prompt - 1, n_prompt_top], rows as above, each in falling order; NULL unless asked for. Valid like those. */
const by_sample_top *by_request_prompt_tops(by_request *r);

/* Copies of state, by what for. Swaps, snapshots and restores go between device and host memory, forks stay on the device. */
typedef enum by_copy { BY_COPY_SWAP_OUT, BY_COPY_SWAP_IN, BY_COPY_RESTORE, BY_COPY_SNAPSHOT, BY_COPY_FORK, BY_COPY_N } by_copy;
const char *by_copy_name(by_copy what); /* "swap_out" */

/* What became of drafts. Confidences as multiplied up: the estimated chance that a draft is emitted. */
typedef struct by_draft_stats {
    uint64_t n_steps;    /* decode steps of one sequence, with or without drafts */
    uint64_t n_tokens;   /* that those brought; an accepted end token has none behind it */
    uint64_t n_proposed, n_verified, n_accepted;
    uint64_t verified[BY_ENGINE_DRAFTS_MAX], accepted[BY_ENGINE_DRAFTS_MAX]; /* by position in the block */
    uint64_t bin_n[15], bin_hits[15]; /* verified drafts by estimate, and those accepted */
    double bin_sum[15];               /* sum of the estimates */
    double draft_s;                   /* proposing, part of device_s */
} by_draft_stats;
/* Mean tokens of a step; mean over verified drafts of |estimate - frequency| by bins. 0 without any. */
double by_draft_mean_length(const by_draft_stats *s);
/* Mean drafts that a step of one sequence verified. */
double by_draft_mean_verified(const by_draft_stats *s);
double by_draft_calibration_error(const by_draft_stats *s);
/* What came between two looks. */
by_draft_stats by_draft_stats_minus(const by_draft_stats *now, const by_draft_stats *then);

typedef struct by_engine_stats {
    int64_t open_ns;  /* by_clock_ns when the engine was open */
    int32_t max_rows; /* of a step: opts.sched */
    by_draft_stats draft;
    by_sched_stats sched;
    uint64_t n_steps, n_rows, n_prompt_rows, n_output_tokens, n_finished, n_failed, n_cancelled;
    uint64_t n_prompt_tokens; /* of the prompts admitted; n_hit_tokens are a part */
    uint64_t n_hit_tokens, n_replayed_rows, n_wasted_rows; /* wasted: rows of choices that had ended */
    uint64_t n_replayed;       /* steps that were queued from a recording */
    int32_t n_recordings;      /* that are kept */
    double busy_s, idle_s;     /* a device with its own memory, by its clock: at work; without any while there was something to do */
    uint64_t n_allocs, n_waits; /* of such a device: by_device_counts */
    uint64_t n_snapshots, n_snapshot_hits, n_snapshot_hit_tokens; /* hit tokens whose rings came from a snapshot in host memory */
    uint64_t copied_bytes[BY_COPY_N];
    uint64_t n_finished_in, n_finished_out; /* tokens of the prompts and outputs of finished choices */
    double ops, attention_ops; /* of all rows, in FP8 operations: model/flop_count.h */
    double query_keys;         /* sum over steps and sequences of rows x length behind them */
    int64_t k_least, k_most;   /* shortest and longest of those lengths in the newest step */
    uint64_t n_blocks_forgotten; /* findable blocks that were handed out again */
    uint64_t n_snapshots_replaced, n_snapshots_dropped; /* lost to a newer one, and to make room for a swapped sequence */
    by_tally step_us, step_rows, prefill_rows; /* by step: device time, rows, prompt rows where there were some */
    int32_t blocks_total, blocks_used, blocks_keyed, slots_total, slots_used;
    int64_t host_bytes;           /* swapped state and snapshots */
    by_grammar_cache_stats grammar;
    double plan_s, device_s, wait_s; /* processor time of the scheduler thread; time of the device in steps; the scheduler idle */
    double prefill_s, decode_s;   /* of device_s: steps with prompt rows, and without */
    uint64_t n_first;             /* requests whose first token has come; the sum of their times from submission until then, and */
    double first_s, first_max_s;  /* the longest since on_steps was called last, or at all */
    int32_t n_chunked;            /* prompts that the newest plan has rows of and does not complete */
    uint64_t n_decode_steps; /* steps without prompt rows, and the processor time that the device's thread took for them: what the */
    double decode_cpu_s;     /* clock shows on a busy machine is mostly waiting. Its helpers are not in it (`--threads`) */
} by_engine_stats;
by_engine_stats by_engine_stats_get(by_engine *e);

/* Whether steps from the next one on are prepared while the one before runs. Any thread; results are the same. */
void by_engine_set_async(by_engine *e, bool async);

#endif
