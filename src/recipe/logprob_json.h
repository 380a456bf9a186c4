/* logprob_json.h - log probabilities of a token as the APIs show them. Used by answer.c. */
#ifndef BY_RECIPE_LOGPROB_JSON_H
#define BY_RECIPE_LOGPROB_JSON_H

#include "base/buf.h"
#include "recipe/answer.h"

/* Appends {"token":...,"logprob":...,"bytes":[...],"top_logprobs":[{...}]}. A token whose bytes are not UTF-8 on their own
 * is shown as \xf0\x9f; an id that does not exist as an empty text. Memory failure is left in out->failed. */
void by_logprob_write(by_buf *out, const by_tok *tok, int32_t id, const by_logprob *lp);

/* vLLM's form of a token of a prompt: {"<id>":{"logprob":...,"rank":...,"decoded_token":...},...}, the token itself (of that rank) and
 * its alternatives in falling order, each id once. Otherwise as above. */
void by_prompt_logprob_write(by_buf *out, const by_tok *tok, int32_t id, int32_t rank, const by_logprob *lp);

/* A float with the fewest digits that read back, in compact JSON; infinities and NaN as null. */
void by_float_write(by_buf *out, float v);

#endif
