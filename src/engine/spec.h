/* spec.h - the sampler's side of drafting: proposing tokens for sequences, and judging a sequence's rows. Solo generation and
 * the engine share it. One thread: the one that owns the runner.
 *
 * Sampling a token without drafts is judging a row without a draft, so log-probabilities, penalties and bans are the same
 * code with and without drafting, and under the coupled rule the tokens are too. */
#ifndef BY_ENGINE_SPEC_H
#define BY_ENGINE_SPEC_H

#include "model/runner.h"
#include "sample/sample_edit.h"
#include "sample/sample_verify.h"

#define BY_SPEC_DRAFTS_MAX 8
#define BY_SPEC_TOP_FAR 20        /* the public interfaces' most; each is a round over the row */
#define BY_SPEC_EDITS_FAR (1 << 14) /* of a draw: 128 KB to move */

/* A sequence's proposals. Zero-initialise; by_spec_clear_drafts frees. */
typedef struct by_spec_drafts {
    int32_t n; /* 0 = none */
    int32_t n_useful; /* up to the first that would be the sequence's last: those behind it cannot be emitted. The proposer's caller sets it */
    int32_t ids[BY_SPEC_DRAFTS_MAX];
    float conf[BY_SPEC_DRAFTS_MAX]; /* raw values of the confidence head */
    float *q;                       /* rejection: [n_max, vocab] edited rows that the ids were drawn from; else NULL */
    /* Where the device draws, these rows stay there, unedited: row + j * stride of by_spec.proposed, until the next proposals. */
    uint64_t call;
    int32_t row, stride;
} by_spec_drafts;
void by_spec_clear_drafts(by_spec_drafts *d);

/* How a sequence samples. Everything is borrowed. */
typedef struct by_spec_law {
    const by_sample_params *params;
    uint64_t seed; /* in place of params->seed: choices of one request differ */
    by_sample_verify_rule rule;
    by_sample_history *history; /* NULL when nothing edits logits */
    bool plain_logprobs; /* temperature 0: report at temperature 1, not of the law that leaves one token */
    int32_t n_top;
    bool sum_smaller;    /* by_spec_token.smaller is wanted */
} by_spec_law;

/* Work memory of one thread. */
typedef struct by_spec {
    int32_t vocab;
    by_sample_scratch *scratch;
    float *row, *q_row; /* [vocab]: logits that are edited; a draft's */
    by_draft_seq *seqs; /* [cap] of a draft call */
    float *conf;        /* [cap, BY_SPEC_DRAFTS_MAX] */
    int32_t *queued;    /* [BY_SPEC_DRAFTS_MAX, cap]: what was drawn behind one another */
    int32_t cap;
    by_device *dev;     /* of the logits, when it draws by itself (by_device_draws); set by the owner, NULL: the host draws */
    by_draw *draws;     /* [cap_draws]: what the device is asked, and what it said */
    by_drawn *drawn;
    by_drawn_top *tops; /* [cap_draws * BY_SPEC_TOP_FAR] */
    int32_t cap_draws;
    by_draw_edit *edits; /* [cap_edits]: of the draws since the last by_spec_reserve */
    int32_t n_edits, cap_edits;
    by_tensor proposed; /* with dev: what the drafts of the newest call were drawn from */
    uint64_t n_calls;   /* of draft calls */
} by_spec;
by_status by_spec_init(by_spec *s, int32_t vocab, by_err *err);
void by_spec_deinit(by_spec *s);

/* One row to sample from. */
typedef struct by_spec_row {
    const float *logits;  /* [vocab] of the trunk */
    const uint32_t *mask; /* grammar: allowed tokens behind the drafts in front of this row; NULL = all */
    int64_t first;        /* sequence position of the token that row 0 of the step gives */
    int32_t index;        /* of this row in the step; its token is at first + index */
    int32_t n_out;        /* output tokens in front of that */
    const by_drawn *drawn; /* what the device drew from the row, NULL or id < 0: nothing; then the logits are looked at */
    const by_drawn_top *drawn_top; /* and its likeliest tokens, as many as were asked for */
} by_spec_row;

typedef struct by_spec_token {
    int32_t id;
    float logprob, smaller; /* smaller: by_sample_dist_smaller of the law of logprob, 0 unless wanted */
    bool accepted; /* it is the draft */
} by_spec_token;

/* The token of a row. draft < 0: nothing was proposed there. Pushes it into the history. top [law->n_top] may be NULL.
 * Errors: BY_ENUMERIC for a row that is no distribution. Source: dspark.md 8, sampling.md. */
by_status by_spec_sample(by_spec *s, const by_spec_law *law, const by_spec_row *row, const by_spec_drafts *drafts, int32_t draft,
                         by_spec_token *out, by_sample_top *top, by_err *err);

/* Whether drafts can be judged: what they were drawn from is still there. Under rejection, where the device draws, the next proposals
 * for anybody end that. */
bool by_spec_can_judge(const by_spec *s, const by_spec_law *law, const by_spec_drafts *drafts);
/* What to ask the device for the token of a row: any law, edits by what its history holds, its mask, a draft by either rule. Its place
 * among the logits is the caller's to set. drafts: what `draft` is of, may be NULL without one. n_top: likeliest tokens to report. False:
 * the host draws, since more than BY_SPEC_TOP_FAR tokens or the mass of smaller ones are wanted, more than BY_SPEC_EDITS_FAR logits
 * change, or memory is out. */
bool by_spec_ask(by_spec *s, const by_spec_law *law, const by_spec_row *row, const by_spec_drafts *drafts, int32_t draft, int32_t n_top,
                 by_draw *out);
/* Room for n draws; those asked before are forgotten. Errors: BY_ENOMEM. */
by_status by_spec_reserve(by_spec *s, int32_t n, by_err *err);
/* Draws s->draws[0..n), as asked; reads `also`, which may be absent, in the same wait. Errors: those of by_device_draw. */
by_status by_spec_draw(by_spec *s, by_tensor logits, int32_t n, by_tensor also, void *also_to, by_err *err);

/* A sequence to propose for. */
typedef struct by_spec_target {
    by_draft_seq seq;
    const by_spec_law *law;
    int32_t n_out; /* output tokens, the newest included */
    by_spec_drafts *drafts;
} by_spec_target;

/* Proposes n_drafts tokens for every target, in as many draft calls as the runner needs. A target whose draft logits are no numbers
 * gets fewer, one that there is no memory for none. Errors: those of by_runner_draft; then no target has drafts. */
by_status by_spec_propose(by_spec *s, by_runner *r, by_spec_target *targets, int32_t n, int32_t n_drafts, by_err *err);

/* Estimated chance that a draft is accepted, from the head's raw value. Source: dspark.md 4.5. */
double by_spec_confidence(float raw, double temperature);

#endif
