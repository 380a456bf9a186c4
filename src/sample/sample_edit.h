/* sample_edit.h - what a request does to its logits before temperature: bias, penalties, bans, minimum length.
 *
 * The order is fixed: logit_bias, repetition, frequency and presence, banned ids, minimum length (end and stop tokens);
 * a grammar's mask comes behind them (by_sample_mask_row). Everything is a function of the committed tokens plus the drafts
 * before the row, else verification of drafts would not be exact: push the drafts before each row, pop them after the step. */
#ifndef BY_SAMPLE_EDIT_H
#define BY_SAMPLE_EDIT_H

#include <stdint.h>

#include "base/err.h"
#include "sample/sample_params.h"

/* Which tokens a sequence has seen: in its prompt, and how often in its output. A hash table, because a
 * vocabulary-sized array for each of hundreds of sequences would be large, and few tokens are distinct. One owner. */
typedef struct by_sample_seen {
    int32_t id; /* -1 = free */
    int32_t n_output;
    bool in_prompt;
} by_sample_seen;

typedef struct by_sample_history {
    by_sample_seen *slots;
    uint32_t n_slots; /* power of two or 0 */
    uint32_t n_used;
    int32_t n_output; /* output tokens, pushed drafts included */
} by_sample_history;

/* Zero-initialise, or init. Reserves room for n_distinct tokens, so that pushing up to that many allocates nothing.
 * Errors: BY_ENOMEM. */
by_status by_sample_history_reserve(by_sample_history *h, uint32_t n_distinct, by_err *err);
void by_sample_history_deinit(by_sample_history *h);

/* Ids are >= 0. Errors: BY_ENOMEM, only when more distinct tokens come than were reserved. */
by_status by_sample_history_add_prompt(by_sample_history *h, const int32_t *tokens, int32_t n, by_err *err);
by_status by_sample_history_push(by_sample_history *h, int32_t token, by_err *err);

/* Takes back a pushed token (a draft that was not committed). */
void by_sample_history_pop(by_sample_history *h, int32_t token);

/* Entry of a token, NULL when it was never seen. */
const by_sample_seen *by_sample_history_get(const by_sample_history *h, int32_t token);

/* Edits row[V] in place. h may be NULL when no penalty is on; n_output is the number of output tokens before this row. The mask
 * is not among the edits: by_sample_mask_row behind them.
 * Errors: BY_ENUMERIC when an edited logit is NaN or +inf: a ban must not hide a broken row. */
by_status by_sample_edit(float *row, int32_t V, const by_sample_params *p, const by_sample_history *h, int32_t n_output,
                         by_err *err);

#endif
