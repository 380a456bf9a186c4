/* answer.h - what the model generates -> the steps of an answer: begin, deltas, end with finish reason and usage.
 *
 * An answer is fed with what a backend has: ready (prompt counts), text or token ids as they come, and a finish reason. It
 * decodes ids, runs the parser, counts, makes call ids, and calls a sink. The order the sink sees is always
 *
 *   begin, delta*, end          (end is missing when the answer is closed before)
 *
 * Two profiles. Parity is the original: ids of a chunk become one piece, split only at added tokens; text that ends in
 * U+FFFD waits and is lost, uncounted, if nothing follows; reasoning tokens are the re-encoded reasoning text, and only
 * counted when there is a tokenizer. The server profile: every id counts when it arrives and reasoning tokens are the
 * ids that arrived while reasoning; control tokens are not shown; an end token inside a chunk cuts what follows; only an
 * unfinished character waits, and it becomes one U+FFFD at the end.
 *
 * One thread per answer. Behaviour: deepseek-recipe 0.2.0, StreamProcessor; goldens: tests/golden/data/recipe/stream*. */
#ifndef BY_RECIPE_ANSWER_H
#define BY_RECIPE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "recipe/parser.h"
#include "tok/tok.h"

typedef struct by_answer_usage {
    uint64_t prompt_tokens, cached_tokens; /* cached <= prompt is the backend's promise */
    uint64_t completion_tokens, reasoning_tokens;
    bool counts_reasoning; /* reasoning_tokens means something */
} by_answer_usage;

/* Why the backend stopped. */
typedef enum by_answer_reason { BY_REASON_STOP, BY_REASON_LENGTH, BY_REASON_FILTER } by_answer_reason;

/* How the answer ended. CALLS is STOP after at least one call; input that ends without a finish is STOP, calls or not. */
typedef enum by_answer_end_kind {
    BY_END_STOP,
    BY_END_CALLS,
    BY_END_LENGTH,
    BY_END_FILTER,
    BY_END_STOP_STRING
} by_answer_end_kind;

typedef struct by_answer_end {
    by_answer_end_kind kind;
    by_str stop; /* STOP_STRING: which */
    by_answer_usage usage;
} by_answer_end;

typedef struct by_answer_begin {
    by_answer_usage usage; /* prompt counts; 0 when text came before ready */
    bool has_fingerprint;
    by_str fingerprint; /* lives during the call */
} by_answer_begin;

typedef struct by_answer_delta {
    by_delta d;
    by_str call_id;      /* CALL */
    bool has_logprobs;   /* REASONING, CONTENT: the piece came with log probabilities */
    by_str logprobs;     /* JSON: the tokens of the piece, elements of a list ({...},{...}) */
} by_answer_delta;

/* Texts live during the call. The functions must not call back into the answer. */
typedef struct by_answer_sink {
    void (*begin)(void *ctx, const by_answer_begin *b);
    void (*delta)(void *ctx, const by_answer_delta *d);
    void (*end)(void *ctx, const by_answer_end *e);
    void *ctx;
} by_answer_sink;

typedef struct by_answer_opts {
    by_parser_opts parser;
    const by_tok *tok;       /* NULL: token chunks are refused. Outlives the answer */
    by_tok_scratch *scratch; /* for tok, may be NULL; used by this answer's thread only */
    bool thinking;           /* the request's: call ids of an answer without reasoning are marked when it is on */
    uint64_t call_id_seed;   /* call ids are a function of it; a server draws it at random */
    bool server;             /* the server profile */
    bool each_token;         /* server: one piece per id instead of one per chunk */
    const int32_t *end_ids;  /* server: [n_end_ids] ids that end the answer, copied */
    size_t n_end_ids;
} by_answer_opts;

/* Log probability of one token and of its alternatives. */
typedef struct by_top_logprob {
    int32_t id;
    float logprob;
} by_top_logprob;

typedef struct by_logprob {
    float logprob;
    const by_top_logprob *top; /* [n_top] */
    size_t n_top;
} by_logprob;

typedef struct by_answer by_answer;

/* *out is set only on success; the caller destroys it. Errors: those of by_parser_create. */
by_status by_answer_create(by_answer **out, const by_answer_opts *opts, const by_answer_sink *sink, by_err *err);
void by_answer_destroy(by_answer *a); /* NULL is allowed */

/* The functions that feed fail with BY_EINVAL, in the original's words, after the end ("stream processor has finished")
 * and after by_answer_close or an error ("stream processor is closed"); with BY_ENOMEM when memory is out. An error closes
 * the answer. */

/* Prompt counts and fingerprint (NULL: none). Ready, text, ids that give text, and the end begin the answer; a later ready is
 * ignored. */
by_status by_answer_ready(by_answer *a, uint64_t prompt_tokens, uint64_t cached_tokens, const by_str *fingerprint,
                          by_err *err);

/* text: any bytes (see by_parser_push); it stands for n_tokens tokens. Markup and typed text are not told apart. */
by_status by_answer_text(by_answer *a, by_str text, uint64_t n_tokens, by_err *err);

/* ids [n]; logprobs NULL or [n_logprobs], which must equal n. */
by_status by_answer_tokens(by_answer *a, const int32_t *ids, size_t n, const by_logprob *logprobs, size_t n_logprobs,
                           by_err *err);

/* The backend's reason; the answer ends here. */
by_status by_answer_finish(by_answer *a, by_answer_reason reason, by_err *err);

/* The input ends; after a finish this does nothing. */
by_status by_answer_end_input(by_answer *a, by_err *err);

/* Gives up without an end. */
void by_answer_close(by_answer *a);

/* True after the end, until closed. */
bool by_answer_finished(const by_answer *a);

/* Counts so far. Reasoning tokens are final only at the end (parity). */
by_answer_usage by_answer_usage_now(const by_answer *a);

/* "call_00_ET_" + 20 letters and digits + 4 digits, from the generator's state; appended to out. */
void by_answer_call_id(by_buf *out, uint32_t index, bool no_reasoning, uint64_t *state);

#endif
