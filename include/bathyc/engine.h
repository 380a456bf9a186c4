/* bathyc/engine.h - the engine as a library: submit requests, read their tokens, cancel them.
 *
 *   bathyc_engine *e = bathyc_open(&config, &error);
 *   bathyc_submit(e, &request, &id, &error);
 *   while (bathyc_step(e, outputs, 16, &n, 1000, &error) == BATHYC_OK)
 *       for each output: id, choice, token, text, finish
 *   bathyc_close(e);
 *
 * Requests run on the engine's own threads, many at once. Results of a request depend on nothing but the request, its seed
 * included: not on what else runs. Any thread may call any function at any time, but bathyc_step one
 * thread at a time and bathyc_close as the last. Structs are filled by their _default function first, so that later
 * fields get their defaults. Names begin with bathyc_ because by_ names are the program's own and may change.
 *
 * Every int result is BATHYC_OK or one of the codes of bathyc/error.h; `error` may be NULL. */
#ifndef BY_BATHYC_ENGINE_H
#define BY_BATHYC_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "bathyc/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bathyc_engine bathyc_engine;

typedef struct bathyc_config {
    const char *model_dir;   /* folder of the checkpoint */
    const char *backend;     /* "ref", "cpu", "cuda"; NULL = cpu */
    int32_t threads;         /* CPU threads; 0 = physical cores */
    int32_t max_num_seqs;    /* sequences that run at once */
    int32_t max_batch_rows;  /* rows of one step, at least max_num_seqs */
    int32_t max_queue;       /* requests that wait */
    int64_t max_model_len;   /* tokens of one sequence; 0 = what model and memory allow; above the model's limit: an error */
    int64_t cache_bytes;     /* host memory for caches; 0 = a quarter of what is free */
    int32_t kv_blocks;       /* blocks of 128 tokens; 0 = from cache_bytes */
    int32_t async;           /* not 0: a step is prepared while the one before runs */
    int32_t prefix_cache;    /* not 0: prompts share what they have in common */
    int32_t check_weights;   /* not 0: refuse NaN and infinite weights */
} bathyc_config;

typedef enum bathyc_finish {
    BATHYC_RUNNING,
    BATHYC_STOP,      /* end token, or one of stop_ids */
    BATHYC_LENGTH,    /* max_tokens, or the context */
    BATHYC_CANCELLED, /* bathyc_abort, deadline */
    BATHYC_ERROR      /* see bathyc_output.error */
} bathyc_finish;

/* Pointers are read during the call that gets the struct, and not later. */
typedef struct bathyc_request {
    const int32_t *tokens; /* the prompt as token ids, or */
    size_t n_tokens;
    const char *text;      /* as text (NUL-terminated UTF-8), behind the begin token; used when tokens is NULL */
    int32_t max_tokens;    /* >= 1 */
    float temperature;     /* 0 = the most likely token */
    float top_p, min_p;    /* 1, 0 = off */
    int32_t top_k;         /* -1 = off */
    float repetition_penalty, frequency_penalty, presence_penalty; /* 1, 0, 0 = off */
    uint64_t seed;         /* of choice 0; choice i has seed + i */
    int32_t has_seed;      /* 0 = a random one */
    int32_t ignore_eos;
    int32_t min_tokens;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    int32_t n, best_of;    /* choices; the n most likely ones of best_of, in 1..64 */
    int32_t top_logprobs;  /* alternatives per token, 0..20 */
    int64_t deadline_ms;   /* 0 = none */
    int32_t priority;      /* higher goes first */
    /* The output is limited: json_schema, json_object, regex, ebnf, lark, choice (JSON list of texts) or structural_tag; NULL = no
     * limit. The request waits until the grammar is compiled; one that is refused ends with BATHYC_ERROR and the place. */
    const char *grammar_kind;
    const char *grammar;         /* the schema, pattern or grammar; not used by json_object */
    const char *grammar_options; /* JSON object: whitespace, any_order, strict, lenient...; NULL = defaults */
    int32_t close_by_budget;     /* not 0: max_tokens leaves room to complete the text */
} bathyc_request;

typedef struct bathyc_alternative {
    int32_t token;
    float logprob;
} bathyc_alternative;

/* One token of one choice, or its end. */
typedef struct bathyc_output {
    uint64_t id;          /* of the request */
    int32_t choice;
    int32_t token;        /* -1: an end without a token */
    float logprob;
    const char *text;     /* what the token adds to the text, maybe nothing; whole characters; NUL-terminated. The end token adds
                           * nothing. Valid until the next bathyc_step */
    size_t text_bytes;
    const bathyc_alternative *top; /* [n_top], same lifetime */
    int32_t n_top;
    bathyc_finish finish;
    int32_t finished;     /* the request is over: this is its last output */
    int32_t n_prompt, n_cached, n_output; /* tokens of the prompt, of it found in the cache, of this choice so far */
    const char *error;    /* BATHYC_ERROR: the reason; else NULL */
} bathyc_output;

typedef struct bathyc_stats {
    uint64_t steps, rows, prompt_rows, output_tokens, finished, failed, cancelled, hit_tokens;
    int32_t running, waiting, swapped;
    int32_t blocks_total, blocks_used, slots_total, slots_used;
} bathyc_stats;

/* A finished request of bathyc_generate. */
typedef struct bathyc_result {
    int32_t *tokens; /* [n_tokens] of choice 0, the end token included */
    float *logprobs; /* [n_tokens] */
    size_t n_tokens;
    char *text;      /* NUL-terminated */
    size_t text_bytes;
    bathyc_finish finish;
    int32_t n_prompt, n_cached;
    int code;        /* BATHYC_OK, or why there is no result */
} bathyc_result;

/* Defaults: 256 sequences, 4096 rows, asynchronous, prefix cache, weights checked; model_dir is left to the caller. */
bathyc_config bathyc_config_default(void);
/* Defaults: 16 tokens, temperature 1, no cuts, one choice, random seed; the prompt is left to the caller. */
bathyc_request bathyc_request_default(void);

/* Opens a checkpoint; NULL and *error on failure. */
bathyc_engine *bathyc_open(const bathyc_config *config, bathyc_error *error);
/* Cancels what runs and frees the engine. No other call may be inside. NULL is allowed. */
void bathyc_close(bathyc_engine *e);

/* Hands a request over and gives it an id, from 1. */
int bathyc_submit(bathyc_engine *e, const bathyc_request *r, uint64_t *id, bathyc_error *error);
/* Ends a request; its last output says BATHYC_CANCELLED. An id that has ended already: BATHYC_OK, nothing happens. */
int bathyc_abort(bathyc_engine *e, uint64_t id);
/* Ends one choice as if it had said its end token (the caller has found a stop string). */
int bathyc_stop(bathyc_engine *e, uint64_t id, int32_t choice);

/* The next outputs of all requests, at most cap (>= 1); waits at most timeout_ms for the first (0 = not at all, -1 = for ever).
 * BATHYC_OK: *n >= 1. BATHYC_AGAIN, BATHYC_IDLE: *n is 0. Requests of bathyc_generate do not show here. */
int bathyc_step(bathyc_engine *e, bathyc_output *out, size_t cap, size_t *n, int64_t timeout_ms, bathyc_error *error);

/* Runs n requests to their ends, as many at once as fit; results [n] in the order of the requests, to be released with
 * bathyc_result_free. A request that is refused or fails says so in its result's code; the others go on. */
int bathyc_generate(bathyc_engine *e, const bathyc_request *requests, size_t n, bathyc_result *results, bathyc_error *error);
void bathyc_result_free(bathyc_result *r);

/* Token ids of a text, without a begin token; *ids is released with bathyc_free. */
int bathyc_tokenize(bathyc_engine *e, const char *text, size_t text_bytes, int32_t **ids, size_t *n, bathyc_error *error);
/* Text of token ids; *text is NUL-terminated and released with bathyc_free. */
int bathyc_detokenize(bathyc_engine *e, const int32_t *ids, size_t n, char **text, size_t *text_bytes, bathyc_error *error);
void bathyc_free(void *p);

int64_t bathyc_max_context(const bathyc_engine *e);
int32_t bathyc_vocab_size(const bathyc_engine *e);
bathyc_stats bathyc_stats_get(bathyc_engine *e);

#ifdef __cplusplus
}
#endif
#endif
