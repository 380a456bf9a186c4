/* engine_impl.h - private to engine*.c.
 *
 * Who owns what. The scheduler thread owns sequences, the block pool and the plan. The device thread owns the runner, the
 * sampler's scratch and each sequence's sampling history. They share jobs: a job is written by the scheduler, then handed
 * over under the engine's lock, run by the device, and handed back. Two jobs exist, one running and one being made.
 * tokens[] of a sequence is written by the device at the place of a sampled token, and read by the scheduler behind
 * that job's end. Requests' event queues have a lock of their own.
 *
 * Drafts. What a step brings is known to the device when the step has run, and to the scheduler one job later. So the scheduler
 * plans decode rows as if every draft of the jobs on their way were right, decides how many rows drafts get together, and
 * reserves blocks; the device, which runs jobs in order, knows each sequence's real length, its drafts and their confidences
 * when it starts the job, and places the rows then. A rejected draft is undone by counting: its rows are written again. */
#ifndef BY_ENGINE_ENGINE_IMPL_H
#define BY_ENGINE_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/draft_cost.h"
#include "engine/row_cost.h"
#include "engine/solo.h"
#include "engine/spec.h"
#include "model/flop_count.h"
#include "sample/draft_plan.h"
#include "sample/sample_edit.h"

typedef struct by_seq by_seq;

/* Bytes of a sequence in host memory: a swapped one's blocks and slot, or a snapshot's slot. */
typedef struct by_saved {
    unsigned char *bytes;
    int32_t *blocks; /* where they came from (swap out) */
    int32_t n_blocks, slot;
    size_t n_bytes;
} by_saved;

struct by_seq {
    by_sched_seq sched; /* first */
    by_request *request;
    int32_t choice;
    by_kv_seq kv;       /* the scheduler's view: blocks in hand */
    int32_t *tokens;    /* prompt, then output; room for n_max */
    int32_t n_prompt, n_out; /* n_out: committed */
    int32_t in_flight;  /* jobs that hold it */
    bool ended, holds;  /* no more rows; holds a slot */
    by_kv_key *keys;    /* of the full blocks of the prompt and output so far */
    int32_t n_keys, n_published;
    int64_t store_from, valid_from, keep_from;
    double logprob_sum;
    bool edits;
    /* device thread */
    by_sample_history history;
    by_spec_law law;
    by_spec_drafts drafts; /* behind the newest token */
    int64_t n_known;       /* tokens chosen so far, prompt included */
    by_matcher *matcher;   /* once it runs; NULL = no grammar */
    uint32_t *masks;       /* with a matcher: [1 + drafts, words], rows of the step that runs (device and mask threads) */
    bool at_end;           /* the newest token was its last */
    bool lost;             /* what its slot and blocks hold is not its state: a copy or a step has failed, or rows were not finite */
    /* scheduler: confidences of the newest committed job and of the one before; n_rates of them are there */
    double rates[2][BY_SPEC_DRAFTS_MAX];
    int32_t n_rates;
    bool has_drafts;       /* its newest job proposes drafts */
    int64_t n_steps, n_verified, n_accepted;
    by_saved swap;      /* when swapped out */
    by_seq *parent;     /* a choice that starts with its parent's state; NULL once it runs */
};

/* A choice's events wait here when best_of has to be decided first. */
typedef struct by_held {
    by_event *events;
    by_sample_top *tops;
    int32_t n, cap;
    bool lost; /* there was no memory for one: the request fails */
} by_held;

/* What the scheduler looks at in every step comes first, close together: with hundreds of requests it is memory that it waits for. */
struct by_request {
    by_request *all_prev, *all_next; /* inside the engine (scheduler) */
    int32_t n_live;       /* choices that have not ended (scheduler) */
    bool paused;          /* its queue was full (scheduler) */
    bool some_ended;      /* a choice has ended: it is in the engine's list of such requests (scheduler) */
    _Atomic uint64_t abort_mask, stop_mask; /* choices 0..63 that shall end */
    int64_t deadline_us;
    by_held *held;        /* [best_of], best_of > n only */
    by_seq *seqs;         /* [best_of] */
    _Atomic int32_t n_events; /* written under the lock */
    int32_t cap, head;    /* of the ring; head: the oldest event (reader) */
    int32_t tail;         /* where the next one goes (scheduler) */
    int32_t n_choices;    /* opts.best_of */
    int32_t n_open;       /* choices whose finish event has not been queued */
    by_event *ring;       /* [cap] */
    by_sample_top *tops;  /* [cap, n_top] */
    pthread_mutex_t lock; /* of the queue, info and error */
    pthread_cond_t more;
    by_request_info info;

    by_engine *engine;
    by_request_opts opts; /* lists point into own memory */
    float *prompt_logprobs;
    int32_t *prompt_ranks;      /* [n_prompt] */
    by_sample_top *prompt_tops; /* [n_prompt, n_prompt_top] */
    by_request_grammar grammar; /* its strings are not kept */
    by_buf grammar_warnings;    /* of its compilation (lock) */
    by_grammar_ticket *ticket;  /* the grammar is being compiled (scheduler) */
    by_request *ended_next; /* the next of that list */
    by_request *next_new; /* submitted, not seen by the scheduler yet */
    by_err error;
    bool released;        /* the caller has let go; freed when it has left the engine */
    bool inside;          /* the engine still has it */
};

/* A token that a job has brought. */
typedef struct by_out {
    int32_t token;
    float logprob, smaller;
    by_choice_finish finish;
    by_sample_top *top; /* [n_top] in the job's memory, NULL without */
} by_out;

/* A sequence that gets tokens from a row of the job's sequences: its own, or a choice's that starts from its sister's. */
typedef struct by_sample_job {
    by_seq *seq;
    int32_t row;  /* of the job's sequences */
    int32_t slot; /* where the state behind that row lies when the job has run */
    bool sister;  /* not among the job's sequences itself */
    int32_t first_out, most_outs, n_outs; /* in job.outs */
    by_status status;
    uint32_t *masks;    /* the sequence's, NULL = all allowed (device and mask threads) */
    int32_t n_masked;   /* rows that have theirs; what lies behind them is not judged */
    int32_t first_draw; /* of its rows among what the device drew, -1 = the host draws (device) */
    /* what became of the drafts, and the new ones */
    int32_t n_verified, n_accepted, n_proposed;
    double verified_conf[BY_SPEC_DRAFTS_MAX]; /* of the verified drafts */
    double conf[BY_SPEC_DRAFTS_MAX];          /* of the new drafts */
} by_sample_job;

/* A sequence's rows of a job. The device fills in what it alone knows. */
typedef struct by_job_row {
    by_seq *seq;
    by_kv_seq kv;       /* blocks and slot as they were when the job was made */
    int64_t first;      /* position of its first row; decode rows: set by the device */
    int32_t n_rows;     /* prompt rows; decode rows: set by the device */
    int32_t n_extra;    /* decode: most drafts */
    bool decodes, samples, all;
    int64_t store_from, valid_from, keep_from;
    /* device */
    bool skipped;       /* it had ended, or its state was lost */
    int32_t n_drafts;   /* rows behind the first */
    int32_t logits;     /* first row of logits, n_logits of them */
    int32_t n_logits;
    int64_t n_computed; /* tokens whose state is right when the job has run */
    int64_t bad_at;     /* position of its first row that is not finite, -1 = none */
} by_job_row;

/* A copy between device and host (or on the device), before or after the forward. */
typedef struct by_move {
    by_copy kind;
    by_saved saved;
    int32_t from_slot, to_slot, from_block, to_block;
    by_seq *seq;      /* whose state it is; counted as in flight */
    by_status status; /* device: of the copy. But for a snapshot, the sequence is lost when it has failed */
    int64_t n_tokens; /* snapshot: tokens in front of it; its key is known when the job is committed */
    int32_t row;      /* snapshot: the job's sequence, which may turn out not to come that far */
    bool missed;      /* snapshot: it did not, and nothing was copied */
    bool was_ready;   /* snapshot: what its place held before, which a miss leaves there */
    uint64_t was_used;
} by_move;

typedef struct by_moves {
    by_move *items;
    int32_t n, cap;
} by_moves;

typedef struct by_job {
    by_job_row *rows;   /* [max_seqs] */
    int32_t n_seqs;
    int32_t n_rows, n_prompt_rows; /* planned */
    int32_t n_drafts;   /* most rows for drafts, together */
    double draft_price; /* a draft of a lower survival gets no row */
    int32_t n_decode;   /* of n_seqs, the first ones */
    bool drafts;        /* propose at the end */
    by_sample_job *samples; /* [cap_samples] */
    by_out *outs;           /* of all samples */
    by_sample_top *tops;    /* of all outs */
    int32_t n_samples, cap_samples, n_outs, cap_outs, n_tops, cap_tops;
    by_moves before, after;
    by_status status;
    by_err err;
    double forward_ms, sample_ms, draft_ms; /* by the clock of costs (device) */
    double draft_s;                         /* of the device's time (device) */
    double spent_s;                         /* the device's time (device) */
    uint64_t copied_bytes[BY_COPY_N];       /* (device) */
    int32_t n_run_rows;                     /* rows that ran (device) */
    enum { BY_JOB_FREE, BY_JOB_QUEUED, BY_JOB_DONE } state; /* under the engine's lock */
    uint64_t number;
    bool first; /* nothing was to be done when it was made */
} by_job;

/* Rows of the step that runs, filled beside it. */
typedef struct by_masks {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    bool ready, started, stop;
    by_job *job;     /* whose rows are to be filled */
    int32_t next, n_busy; /* next sample of the job; threads that fill a row */
    size_t words;    /* of a row */
} by_masks;

/* Snapshots of state slots in host memory by the key of the prefix they stand behind; least recently used goes first. */
typedef struct by_snapshot {
    by_kv_key key;
    unsigned char *bytes;
    uint64_t used; /* tick of the last use, 0 = empty */
    bool ready;    /* key and bytes are there */
    int32_t busy;  /* jobs that save or restore it */
} by_snapshot;

/* How drafting goes with about so many sequences: whether it pays depends on little as much as on their number. */
typedef struct by_drafting {
    by_draft_pace pace;    /* since drafting began, or began again */
    int32_t pause, longer; /* auto: steps to go without drafts; how many the next pause has, 0 = the first */
} by_drafting;

struct by_engine {
    by_engine_opts opts;
    _Atomic bool async; /* opts.async, unless changed */
    by_device *dev;
    by_model *model;
    by_kv *kv;
    by_runner *runner;
    by_sched *sched;
    by_plan plan;
    int64_t max_context;
    int32_t max_seqs, keep_exact, encoder_reach; /* rows that exactness needs, engine.md section 5 */
    by_kv_key root;
    int32_t *banned; /* [opts.n_banned] */
    by_grammar_cache *grammars; /* NULL without a tokenizer */
    by_masks masks;
    by_spec spec;           /* (device) */
    by_step_seq *steps;     /* [max_seqs] of the running job (device) */
    int32_t *step_rows;     /* [max_seqs]: which row of the job a step is (device) */
    int32_t *marks;         /* [2 * max_rows] of the running job (device) */
    by_spec_target *targets; /* [max_seqs + choices] (device) */
    int32_t cap_targets;

    int32_t n_drafts;       /* longest block; 0 = drafting is off */
    by_draft_cost_model cost; /* (scheduler) */
    by_draft_request *draft_requests[2]; /* [max_seqs]: scheduler's, device's */
    by_draft_heap_entry *draft_heap[2];  /* [max_seqs] */
    int32_t *draft_split[2];             /* [max_seqs] */
    double *draft_rates[2];              /* [max_seqs, BY_SPEC_DRAFTS_MAX] */
    by_drafting drafting[32];            /* by floor(log2(sequences that decode)) (scheduler) */
    bool paused;                         /* auto: the newest plan is one without drafts (scheduler) */

    by_snapshot *snapshots;
    int32_t n_snapshots;
    uint64_t tick;
    int64_t host_bytes, host_bytes_max;
    int64_t next_deadline_us; /* of the requests inside (scheduler) */
    bool must_swap; /* nothing can run unless somebody is swapped out, host_bytes_max or not (scheduler) */

    by_flop_model flops;
    by_row_cost row_cost;                 /* (scheduler) */

    int32_t outputs[512]; /* lengths of the last finished outputs */
    int32_t n_outputs, expected_output;

    pthread_t scheduler, device;
    bool threads_started;
    pthread_mutex_t lock;
    pthread_cond_t wake, job_ready, job_done, idle;
    by_request *incoming, *incoming_last; /* under lock */
    by_request *inside;                   /* scheduler */
    int32_t n_compiling;                  /* of them: their grammar is not there yet */
    int32_t n_inside, n_queued;           /* under lock; n_queued: submitted and not started */
    by_request *ended;                    /* of them: some choice has ended (scheduler) */
    bool draining, stopping, poked;       /* under lock */
    bool stale;                           /* a request has left that shared_stats do not know of (under lock) */
    by_job jobs[2];
    by_job *making;                       /* scheduler: the job that moves are queued on */
    uint64_t n_jobs;
    uint64_t n_logged; /* steps when on_steps was called last (scheduler) */
    bool device_stop; /* under lock */
    by_engine_stats stats;        /* scheduler */
    by_engine_stats shared_stats; /* under lock */
    double device_s;              /* under lock */
    double decode_cpu_s;          /* under lock */
    by_replay_counts replays;     /* under lock */
    by_device_pace pace;          /* under lock */
    by_device_counts counts;      /* under lock */
    uint64_t n_decode_steps;      /* under lock */
};

/* engine_cache.c: what admission, preemption and prefix reuse do with blocks and slots (scheduler thread). */
by_sched_pool by_engine_pool(by_engine *e);
void by_engine_release_seq(by_engine *e, by_seq *s);
void by_engine_publish(by_engine *e, by_seq *s, int64_t n_tokens);
bool by_engine_fork(by_engine *e, by_seq *child, by_job *job);
void by_engine_want_snapshot(by_engine *e, by_seq *s, int64_t n_tokens, by_job *job, int32_t row);
void by_engine_moves_done(by_engine *e, by_job *job);
by_move *by_moves_add(by_moves *m);

/* engine_grammar.c. Submission: checks, asks for the compilation. Scheduler: begin makes the matchers (BY_AGAIN: not compiled
 * yet), leave frees everything (also for a request that was never inside). */
by_status by_engine_grammar_check(const by_engine *e, const by_request_grammar *g, by_err *err);
by_status by_engine_grammar_ask(by_engine *e, by_request *r, const by_request_grammar *g, by_err *err);
by_status by_engine_grammar_begin(by_request *r, by_err *err);
void by_engine_grammar_leave(by_request *r);
by_status by_engine_masks_init(by_engine *e, by_err *err);
void by_engine_masks_deinit(by_engine *e);

/* Device thread, around the forward: rows of all samples of a job. Behind end every limited sample has its mask, or has failed. */
void by_engine_masks_begin(by_engine *e, by_job *job);
void by_engine_masks_end(by_engine *e);

/* Does a mask apply to the next token? */
bool by_seq_is_limited(const by_seq *s);
/* Masks of a limited sequence for the token at `position` and behind each of the drafts: rows[i * stride] is the one after i drafts,
 * for i = 0..*n_ok; the grammar refuses draft *n_ok when that is below n_drafts. Rows have by_masks.words words, of which those of
 * the vocabulary are written. The sequence does not move. Works across a trigger inside the drafts (there the row is all ones). */
by_status by_seq_masks(by_seq *s, int64_t position, const int32_t *drafts, int32_t n_drafts, uint32_t *rows, size_t stride,
                       int32_t *n_ok, by_err *err);
/* Moves by a token that was chosen (with drafts: by each accepted one in order). Does nothing without a grammar. *complete: the
 * text is complete and can only end. Errors: BY_EGRAMMAR (refused), those of by_matcher_accept. */
by_status by_seq_advance(by_seq *s, int32_t token, bool *complete, by_err *err);
/* engine_draft.c: how many rows drafts get (scheduler), which sequences they go to (device), what came of them (scheduler). */
int32_t by_engine_draft_rows(void *ctx, const struct by_plan *plan, int32_t most);
bool by_engine_plan_proposals(by_engine *e); /* whether the job being made proposes */
void by_engine_place_drafts(by_engine *e, by_job *job);
void by_engine_propose(by_engine *e, by_job *job);
void by_engine_note_drafts(by_engine *e, const by_job *job);
/* engine_memory.c. reserve: adds what caches and buffers are to take of a device with a limit, before the weights have their places. size:
 * the caches, when they have. Errors: BY_ENOMEM. */
by_status by_engine_reserve_memory(by_engine *e, int64_t *bytes, by_err *err);
by_status by_engine_size_caches(by_engine *e, by_kv_layout *layout, by_kv_opts *pool, by_err *err);
/* Those, as sized: e->kv. Errors: BY_ENOMEM (what was asked for and what is free). */
by_status by_engine_create_caches(by_engine *e, const by_kv_layout *layout, const by_kv_opts *pool, by_err *err);
by_runner_opts by_engine_runner_opts(const by_engine *e);
/* Room on the device for the draws of the largest step, where it draws. Errors: BY_ENOMEM. */
by_status by_engine_reserve_draws(by_engine *e, by_err *err);

/* init: n_drafts and memory, before the caches are laid out. measure: the cost curve, before anybody uses runner and caches. */
by_status by_engine_drafts_init(by_engine *e, by_err *err);
by_status by_engine_drafts_measure(by_engine *e, by_err *err);
void by_engine_drafts_close(by_engine *e);

/* engine_job.c: the device's side of a step. */
void by_engine_run_job(by_engine *e, by_job *job);

/* engine_step.c: the scheduler thread. */
void *by_engine_scheduler_main(void *arg);
void *by_engine_device_main(void *arg);

/* engine_request.c: queues. Called by the scheduler: */
bool by_request_has_room(by_request *r);
void by_engine_poke(by_engine *e); /* wakes the scheduler; from any thread */
bool by_request_reserve(by_request *r, int32_t n_events);
bool by_request_emit(by_request *r, const by_event *ev); /* false: the queue is nearly full */
void by_request_leave(by_request *r); /* the engine is done with it */

#endif
