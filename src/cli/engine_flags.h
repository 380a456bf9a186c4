/* engine_flags.h - the flags of every command that runs the request engine, with all their aliases, and what they mean as
 * by_engine_opts. */
#ifndef BY_CLI_ENGINE_FLAGS_H
#define BY_CLI_ENGINE_FLAGS_H

#include "base/buf.h"
#include "cli/absent_flags.h"
#include "cli/model_flags.h"
#include "cli/step_log.h"
#include "engine/engine.h"

typedef struct by_engine_flags {
    by_model_flags model;
    int64_t max_seqs, max_rows, max_queue, kv_blocks, state_slots, bypass_limit, interval; /* 0 = default */
    int64_t any_interval, prefill_ctx, ttft_budget_ms, itl_budget_ms, mixed_rows;
    int64_t grammar_timeout_ms, grammar_threads; /* 0 = default */
    const char *grammar_cache;                   /* "1G" */
    double memory_share; /* of the device's memory, or of the free memory for caches; 0 = default */
    double expect_quantile, watermark, slots_ratio; /* slots_ratio: 0 = default */
    int64_t backtrack;                   /* 0 = default */
    int sampler;                         /* by_sample_rule */
    int64_t top_k;                       /* of every request; 0 = its own */
    by_flag_list ban;
    int32_t *banned; /* of ban, once parsed */
    const char *ram, *keep; /* "2G"; "exact" or rows */
    int policy, restore, trunc; /* in the order of their enums */
    int draft_mode, verify;     /* in the order of their enums */
    int64_t n_drafts;           /* 0 = off, -1 = as trained */
    by_flag_list draft_temperature;
    const char *cost_dir;
    int64_t cost_age_s;         /* 0 = default */
    bool async, prefix_cache, invariant;
    bool eager, graphs; /* the first one, or not the second: no steps from recordings */
    int64_t replay_rows;        /* 0 = default */
    bool tool_choice;           /* given; nothing reads it */
    bool varlen, has_varlen, has_mode; /* whether drafts are chosen by confidence; given; --draft-mode given */
    int64_t log_steps; /* 0 = quiet */
    by_step_log log;
    by_buf dir;          /* the model's folder, once resolved */
} by_engine_flags;

/* Everything as by_engine_opts_default has it. */
by_engine_flags by_engine_flags_default(void);

/* Rows for a command's table; f is a by_engine_flags variable. The first macro is the part about drafts. */
#define BY_DRAFT_FLAG_ROWS(f)                                                                                          \
    BY_FLAG_HEADING("drafts"),                                                                                         \
    {.names = "--draft-mode", .kind = BY_FLAG_CHOICE, .out = &(f).draft_mode, .seen = &(f).has_mode, \
     .choices = "auto|confidence|fixed|off",                                                                           \
     .help = "drafts: while they pay, as many as pay, all of them, none (default: auto)"},                             \
    {.names = "--draft-varlen,--no-draft-varlen", .kind = BY_FLAG_BOOL, .out = &(f).varlen, .seen = &(f).has_varlen,  \
     .help = "as many drafts as pay, or always all of them: --draft-mode confidence or fixed"},                        \
    {.names = "--draft-tokens,--spec-tokens,--speculative-num-draft-tokens", .kind = BY_FLAG_INT,                      \
     .out = &(f).n_drafts, .min = 0, .max = BY_ENGINE_DRAFTS_MAX,                                                      \
     .help = "tokens of a draft block, 0 = no drafts (default: as trained)"},                                          \
    {.names = "--spec-verify", .kind = BY_FLAG_CHOICE, .out = &(f).verify, .choices = "coupled|rejection",             \
     .help = "acceptance rule of drafts: the same tokens as without, or the same law (default: coupled)"},             \
    {.names = "--draft-conf-temp", .kind = BY_FLAG_LIST, .out = &(f).draft_temperature,                                \
     .help = "temperatures of the confidences by position, as 1.1,0.9 (see calibrate; default: 1)"},                   \
    {.names = "--perf-cache-dir", .kind = BY_FLAG_STRING, .out = &(f).cost_dir,                                        \
     .help = "folder, made when missing, that keeps measured step costs (default: measured at each start)"},                               \
    {.names = "--perf-cache-ttl", .kind = BY_FLAG_INT, .out = &(f).cost_age_s, .min = 1, .max = INT32_MAX,             \
     .help = "seconds that step costs kept there are used (default: 3600)"}

#define BY_ENGINE_FLAG_ROWS(f)                                                                                         \
    BY_CHECKPOINT_FLAG_ROWS((f).model), BY_CONTEXT_FLAG_ROW((f).model),                                                \
    BY_FLAG_HEADING("requests and memory"),                                                                            \
    {.names = "--max-num-seqs,--parallel,-np,--max-running-requests", .kind = BY_FLAG_INT, .out = &(f).max_seqs,       \
     .min = 1, .max = BY_LIMIT_SEQS, .help = "sequences that run at once (default: 256)"},                             \
    {.names = "--max-num-batched-tokens,--chunked-prefill-size,-b", .kind = BY_FLAG_INT, .out = &(f).max_rows,         \
     .min = 1, .max = BY_LIMIT_STEP_ROWS, .help = "rows of one step (default: 4096)"},                                 \
    {.names = "--max-queue", .kind = BY_FLAG_INT, .out = &(f).max_queue, .min = 1, .max = INT32_MAX,                   \
     .help = "most requests that wait (default: 4096)"},                                                               \
    {.names = "--ram", .kind = BY_FLAG_STRING, .out = &(f).ram,                                                        \
     .help = "most host memory for caches and swapped state, as 2G (default: a quarter of what is free)"},                       \
    {.names = "--gpu-memory-utilization,--mem-fraction-static", .kind = BY_FLAG_DOUBLE, .out = &(f).memory_share,      \
     .dmin = 0.001, .dmax = 1, .help = "share of the GPU's memory (default: 0.9); CPU: of what is free, for caches"},                       \
    {.names = "--bypass-limit", .kind = BY_FLAG_INT, .out = &(f).bypass_limit, .min = 0, .max = INT32_MAX,             \
     .help = "requests that may pass one that does not fit yet (default: 4)"},                                         \
    {.names = "--expect-quantile", .kind = BY_FLAG_DOUBLE, .out = &(f).expect_quantile, .dmin = 0.001, .dmax = 1,      \
     .help = "quantile of past output lengths that admission reserves for (default: 0.9)"},                            \
    {.names = "--prefill-watermark", .kind = BY_FLAG_DOUBLE, .out = &(f).watermark, .dmin = 0.001, .dmax = 1,          \
     .help = "share of the blocks in use above which no prompt is begun (default: 0.9)"},                              \
    {.names = "--kv-blocks,--num-gpu-blocks-override", .kind = BY_FLAG_INT, .out = &(f).kv_blocks, .min = 1,           \
     .max = INT32_MAX / 2, .help = "blocks of 128 tokens (default: from the memory)"},                                 \
    {.names = "--state-slots", .kind = BY_FLAG_INT, .out = &(f).state_slots, .min = 1, .max = BY_LIMIT_SEQS,           \
     .help = "state slots (default: 1.2 times --max-num-seqs)"},                                                       \
    {.names = "--state-slots-ratio", .kind = BY_FLAG_DOUBLE, .out = &(f).slots_ratio, .dmin = 0.01, .dmax = 100,       \
     .help = "state slots by running sequence, without --state-slots (default: 1.2)"},                                 \
    {.names = "--backtrack", .kind = BY_FLAG_INT, .out = &(f).backtrack, .min = 1, .max = BY_LIMIT_DRAFT_BLOCK,        \
     .help = "tokens that may be rolled back (default: 6, and what drafts need)"},                                     \
    BY_FLAG_HEADING("tokens"),                                                                                         \
    {.names = "--sampler", .kind = BY_FLAG_CHOICE, .out = &(f).sampler, .choices = "smooth|deepinfer",                 \
     .help = "how a random word becomes a token (default: smooth)"},                                                   \
    {.names = "--sampler-topk", .kind = BY_FLAG_INT, .out = &(f).top_k, .min = 1, .max = BY_LIMIT_VOCAB,               \
     .help = "top_k of every request, whatever it says (default: its own)"},                                           \
    {.names = "--ban-tokens", .kind = BY_FLAG_LIST, .out = &(f).ban,                                                   \
     .help = "token ids that are never produced, as 5,9 or 100-120; may repeat"},                                      \
    BY_FLAG_HEADING("prompts"),                                                                                        \
    {.names = "--prefix-cache,--no-prefix-cache,--enable-prefix-caching,--no-enable-prefix-caching,"                   \
              "--disable-radix-cache", .kind = BY_FLAG_BOOL, .out = &(f).prefix_cache,                                 \
     .help = "reuse what prompts have in common (default: on)"},                                                       \
    {.names = "--swa-restore", .kind = BY_FLAG_CHOICE, .out = &(f).restore,                                            \
     .choices = "auto|full-state|exact-replay|replay|load",                                                            \
     .help = "how a reused prefix gets its windows back; the last two are approximate (default: auto)"},               \
    {.names = "--decoder-trunc", .kind = BY_FLAG_CHOICE, .out = &(f).trunc, .choices = "off|mask|compact",             \
     .help = "leave out decoder rows of prompts that no result needs (default: compact)"},                             \
    {.names = "--decoder-keep", .kind = BY_FLAG_STRING, .out = &(f).keep,                                              \
     .help = "decoder rows kept by it: exact, or a number, then approximate (default: exact)"},                        \
    {.names = "--prefill-policy", .kind = BY_FLAG_CHOICE, .out = &(f).policy, .choices = "mixed|interval|deadline",    \
     .help = "how prompts share steps with running sequences (default: mixed)"},                                       \
    {.names = "--prefill-all-interval", .kind = BY_FLAG_INT, .out = &(f).interval, .min = 1, .max = INT32_MAX,         \
     .help = "interval policy: steps between prefills (default: 70)"},                                                 \
    {.names = "--prefill-any-interval", .kind = BY_FLAG_INT, .out = &(f).any_interval, .min = 1, .max = INT32_MAX,     \
     .help = "interval policy: prefills come at multiples of this, too (default: 100)"},                               \
    {.names = "--prefill-max-ctx-sum", .kind = BY_FLAG_INT, .out = &(f).prefill_ctx, .min = 1,                         \
     .max = INT64_MAX / 2, .help = "tokens of the prompts in one step, whole prompts together (default: any)"},        \
    {.names = "--ttft-budget-ms", .kind = BY_FLAG_INT, .out = &(f).ttft_budget_ms, .min = 1, .max = INT32_MAX,         \
     .help = "deadline policy: wait after which prompts get whole steps (default: 1000)"},                             \
    {.names = "--itl-budget-ms", .kind = BY_FLAG_INT, .out = &(f).itl_budget_ms, .min = 1, .max = INT32_MAX,           \
     .help = "longest step with prompts while something decodes, from measured costs (default: any)"},                 \
    {.names = "--mixed-prefill-rows", .kind = BY_FLAG_INT, .out = &(f).mixed_rows, .min = 1,                           \
     .max = BY_LIMIT_STEP_ROWS, .help = "most prompt rows of a step that also decodes (default: what is left)"},       \
    BY_FLAG_HEADING("grammars"),                                                                                       \
    {.names = "--grammar-timeout", .kind = BY_FLAG_INT, .out = &(f).grammar_timeout_ms, .min = 1, .max = 600000,       \
     .help = "longest compilation of one grammar or schema, in ms (default: 2000)"},                                   \
    {.names = "--grammar-threads", .kind = BY_FLAG_INT, .out = &(f).grammar_threads, .min = 1, .max = 64,              \
     .help = "threads that compile grammars (default: 2)"},                                                            \
    {.names = "--grammar-cache", .kind = BY_FLAG_STRING, .out = &(f).grammar_cache,                                    \
     .help = "most memory for compiled grammars (default: 1G)"},                                                       \
    BY_DRAFT_FLAG_ROWS(f),                                                                                             \
    BY_FLAG_HEADING("steps"),                                                                                          \
    {.names = "--batch-invariant", .kind = BY_FLAG_BOOL, .out = &(f).invariant,                                        \
     .help = "results do not depend on what else runs (always so on the CPU)"},                                        \
    {.names = "--log-steps", .kind = BY_FLAG_INT, .out = &(f).log_steps, .min = 0, .max = INT32_MAX,                   \
     .help = "a line of figures on standard error every so many steps (default: 0, none)"},                            \
    {.names = "--async,--no-async", .kind = BY_FLAG_BOOL, .out = &(f).async,                                           \
     .help = "prepare a step while the one before runs (default: on)"},                                                \
    {.names = "--enforce-eager", .kind = BY_FLAG_BOOL, .out = &(f).eager,                                              \
     .help = "queue every step on the GPU call by call, none as a recorded graph"},                                    \
    {.names = "--graphs,--no-graphs,--disable-cuda-graph", .kind = BY_FLAG_BOOL, .out = &(f).graphs,                   \
     .help = "record decode steps on a GPU as CUDA graphs (default: on; the others: as --enforce-eager)"},             \
    {.names = "--cuda-graph-max-bs,--max-cudagraph-capture-size", .kind = BY_FLAG_INT, .out = &(f).replay_rows,        \
     .min = 1, .max = BY_LIMIT_STEP_ROWS, .help = "most rows of a decode step that is recorded (default: 256)"},       \
    {.names = "--enable-auto-tool-choice", .kind = BY_FLAG_BOOL, .out = &(f).tool_choice}, /* as it always is */      \
    BY_ABSENT_FLAG_ROWS

/* The options. out->model_dir points into f, and so does what --log-steps needs: f stays until the engine is closed. Errors: BY_EINVAL (a
 * value, named), BY_EMISSING (no such folder), BY_ENOMEM. */
by_status by_engine_flags_opts(by_engine_opts *out, by_engine_flags *f, by_err *err);
void by_engine_flags_deinit(by_engine_flags *f);

/* Says on standard error what of the flags goes beyond the blocks that the model was trained to draft. */
void by_engine_flags_warn(const by_engine_flags *f, const by_model *m);

/* The values of --draft-conf-temp by position: "1.1,0.9" or the flag repeated; the last one goes on. All 0 without any.
 * Errors: BY_EINVAL. */
by_status by_engine_flags_temperatures(double out[BY_ENGINE_DRAFTS_MAX], const by_flag_list *list, by_err *err);

/* A size in bytes: digits with an optional fraction, then nothing, K, M, G or T (powers of 1024), with or without B or iB.
 * Errors: BY_EINVAL. */
by_status by_parse_size(int64_t *out, const char *text, by_err *err);

#endif
