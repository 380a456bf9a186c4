/* solo_gen.h - generation on a by_solo: prefill, then step after step, tokens handed to a callback as they come. The
 * simplest loops there are, with and without drafts, and the twins that the request engine is compared with. One thread. */
#ifndef BY_ENGINE_SOLO_GEN_H
#define BY_ENGINE_SOLO_GEN_H

#include "engine/solo.h"
#include "engine/spec.h"
#include "grammar/grammar.h"
#include "sample/sample_params.h"
#include "sample/sample_verify.h"

typedef enum by_solo_finish { BY_SOLO_STOP, BY_SOLO_LENGTH, BY_SOLO_CALLER } by_solo_finish;

typedef struct by_solo_gen_opts {
    by_sample_params sampling; /* eos_id is used as the end token unless ignore_eos */
    int32_t max_tokens;        /* >= 1 */
    bool ignore_eos;
    bool draft; /* propose and verify solo->n_drafts tokens in every step; nothing when that is 0 */
    by_sample_verify_rule verify;
    /* What would be proposed, in every step, with or without `draft`: drafts of the tokens at position and on; NULL = nobody asks. */
    by_status (*probe)(void *arg, int64_t position, const by_spec_drafts *drafts, by_err *err);
    void *probe_arg;
    by_matcher *matcher; /* the caller's, at its beginning: limits the output; NULL = none. Its vocabulary is the model's tokenizer.
                          * The generation ends (BY_SOLO_STOP) where the text is complete and can only end */
} by_solo_gen_opts;

typedef struct by_solo_gen_result {
    by_solo_finish finish;
    int32_t n_prompt, n_output;
    int64_t n_steps;           /* trunk forwards after prefill */
    int64_t n_drafted, n_accepted; /* drafts verified; those that were the target's tokens, also behind an end token */
    double prefill_s, decode_s;
} by_solo_gen_result;

/* Called for every token, a final end token included; BY_END stops the generation (BY_SOLO_CALLER). */
typedef by_status by_solo_token(void *arg, int32_t token, float logprob, by_err *err);

/* Generates behind tokens[0, n_prompt); tokens has room for n_prompt + max_tokens ids and receives them. The caches must be
 * reserved for that many tokens; the sequence is started anew, except for the part of the prompt that the caches hold
 * already (seq.n_tokens tokens that the caller knows to be equal). Errors: BY_ECONTEXT, BY_ENUMERIC (a row of logits with
 * NaN), BY_EGRAMMAR (no token is allowed), BY_ENOMEM, those of the operators and of `token`. */
by_status by_solo_generate(by_solo *s, int32_t *tokens, int32_t n_prompt, const by_solo_gen_opts *opts, by_solo_token *token,
                           void *arg, by_solo_gen_result *out, by_err *err);

#endif
