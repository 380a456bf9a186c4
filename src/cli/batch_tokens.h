/* batch_tokens.h - lines of `bathyc batch` that hold token ids instead of a request of an API:
 *
 *   {"custom_id", "tokens": [...], "max_tokens"?, ...}  ->  {"choices": [{"index", "tokens", "logprobs"?, "top_logprobs"?,
 *   "finish_reason"}], "prompt_logprobs"?, "usage"}
 *
 * The ids go to the engine as they are, and ids come out; no text is made. Fields have vLLM's names: max_tokens (16), temperature (1),
 * top_p, top_k, min_p, seed (random), repetition_penalty, frequency_penalty, presence_penalty, logit_bias, banned_token_ids,
 * stop_token_ids, min_tokens, ignore_eos, n (1), best_of (n), logprobs (number of alternatives), prompt_logprobs, priority,
 * deadline_ms (none). Another field is an error, as a misspelt one would go unseen. One thread for each request;
 * notify comes from the engine's. */
#ifndef BY_CLI_BATCH_TOKENS_H
#define BY_CLI_BATCH_TOKENS_H

#include "base/arena.h"
#include "base/buf.h"
#include "engine/engine.h"
#include "json/json.h"

typedef struct by_batch_tokens by_batch_tokens;

/* Is it such a line? */
bool by_batch_tokens_is(const by_json *row);

/* Hands the request to the engine; the caller destroys *out, which is NULL unless BY_OK. Lists live in arena only during the call.
 * smaller: where logprobs are asked for, the answer has "sum_smaller_probs" beside them (by_event.smaller).
 * Errors: BY_EINVAL (a field, named), those of by_engine_submit. */
by_status by_batch_tokens_start(by_batch_tokens **out, by_engine *e, const by_json *row, by_arena *arena, bool smaller,
                                void (*notify)(void *), void *arg, by_err *err);

/* Takes what has come. BY_AGAIN: there will be more. BY_END: all has come. Errors: those of the request. */
by_status by_batch_tokens_pump(by_batch_tokens *q, by_err *err);

/* Appends the answer's body; after BY_END. Errors: BY_ENOMEM. */
by_status by_batch_tokens_write(by_batch_tokens *q, by_buf *body, by_err *err);

/* Tokens of all choices so far; the times of the request so far. */
int64_t by_batch_tokens_n_output(const by_batch_tokens *q);
by_request_info by_batch_tokens_times(const by_batch_tokens *q);

/* Aborts what still runs. NULL is allowed. */
void by_batch_tokens_destroy(by_batch_tokens *q);

#endif
