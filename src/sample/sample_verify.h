/* sample_verify.h - one token from a row, and the judgement of drafts.
 *
 * Two rules. REJECTION is the original's: a draft d proposed with probability q is accepted when a uniform is below
 * min(1, p / q), else the token comes from the weights max(0, p - q exp(-5e-5)); the law of the output is p whatever q
 * is. COUPLED draws the row's token as if there were no draft, with the words of its sequence position, and accepts the
 * draft when it is that token: the output is the same text as without drafting, for any number of drafts. Greedy
 * requests compare with the most likely token under both rules and need no q. */
#ifndef BY_SAMPLE_VERIFY_H
#define BY_SAMPLE_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sample/sample_dist.h"
#include "sample/sample_params.h"

typedef enum by_sample_verify_rule { BY_SAMPLE_COUPLED, BY_SAMPLE_REJECTION } by_sample_verify_rule;

typedef struct by_sample_token {
    int32_t id;
    float logprob;      /* under the row's law; greedy requests report at temperature 1 without cuts */
    bool accepted;      /* it is the draft */
    by_sample_dist law; /* for by_sample_dist_top and by_sample_dist_logprob; borrows the row, not listed for greedy */
} by_sample_token;

/* The token at `position` (its position in the sequence: the prompt's length for the first one) from row[V], which has
 * been edited already. draw is FRESH, or DRAFT for a proposal.
 * Errors: BY_ENUMERIC for rows that are no distribution. Allocates nothing. */
by_status by_sample_row(by_sample_token *out, const float *row, int32_t V, const by_sample_params *p, uint32_t position,
                        by_sample_draw draw, by_sample_scratch *s, by_err *err);

typedef struct by_sample_draft {
    int32_t id; /* the proposed token; -1 (nothing was proposed) is always rejected */
    const by_sample_dist
        *q; /* the law it was drawn from, needed by REJECTION with a temperature; its row must be alive */
} by_sample_draft;

/* Judges draft d against row `row_idx` of a step; first = sequence position of the token of row 0.
 * *accept_prob (may be NULL) gets the analytic probability of acceptance, sum min(p, q): for watching the confidences.
 */
by_status by_sample_judge(by_sample_token *out, float *accept_prob, const float *row, int32_t V,
                          const by_sample_params *p, by_sample_verify_rule rule, by_sample_draft d, uint32_t first,
                          uint32_t row_idx, by_sample_scratch *s, by_err *err);

typedef struct by_sample_step {
    const float *const *rows; /* [n_drafts + 1] pointers to edited rows [V] */
    const by_sample_draft *drafts;
    int32_t n_drafts, V;
    uint32_t first; /* sequence position of row 0's token */
    by_sample_verify_rule rule;
} by_sample_step;

/* Runs the rows in order up to the first that is not an accepted draft; tokens[n_drafts + 1] gets *n_tokens entries:
 * accepted drafts and one more. accept_prob [n_drafts] may be NULL; with it the rows behind the last are judged too. */
by_status by_sample_verify(by_sample_token *tokens, int32_t *n_tokens, float *accept_prob, const by_sample_step *step,
                           const by_sample_params *p, by_sample_scratch *s, by_err *err);

#endif
