/* sample_verify.c - see sample_verify.h. The factor exp(-5e-5) on q leaves a residual even where p equals q up to
 * rounding. Sources: src/sample/README.md; goldens: model/sampler (sample, verify). */
#include "sample/sample_verify.h"

#include "sample/sample_math.h"
#include "sample/sample_scratch.h"

#define DRAFT_LOGPROB_PENALTY 5e-5f

/* Greedy: the most likely token, and the law at temperature 1 for reports. */
static by_status greedy_row(by_sample_token *out, const float *row, int32_t V, by_sample_scratch *s, by_err *err) {
    const by_sample_law plain = {.temperature = 1, .top_p = 1, .top_k = -1};
    BY_TRY(by_sample_dist_make(&out->law, row, V, &plain, s, err));
    int32_t id = 0;
    while (row[id] != out->law.max)
        id++;
    out->id = id;
    out->logprob = by_sample_dist_logprob(&out->law, id);
    out->accepted = false;
    return BY_OK;
}

by_status by_sample_row(by_sample_token *out, const float *row, int32_t V, const by_sample_params *p, uint32_t position,
                        by_sample_draw draw, by_sample_scratch *s, by_err *err) {
    if (by_sample_is_greedy(p)) return greedy_row(out, row, V, s, err);
    BY_TRY(by_sample_dist_make(&out->law, row, V, &p->law, s, err));
    by_sample_stream stream = by_sample_stream_at(p->seed, position, draw);
    out->id = by_sample_dist_pick(&out->law, &stream, p->rule, s);
    if (out->id == BY_SAMPLE_NONE) BY_TRY(by_sample_argmax(&out->id, row, V, s, err)); /* V > 2^31 equal tokens */
    out->logprob = by_sample_dist_logprob(&out->law, out->id);
    out->accepted = false;
    return BY_OK;
}

/* Weights max(0, p - q exp(-5e-5)), in the scratch. */
static by_sample_weights residual(const by_sample_dist *p, const by_sample_dist *q, by_sample_scratch *s) {
    by_sample_weights w = by_sample_dist_weights(p, s);
    s->kernels->subtract(s->x, w.ids, (size_t)w.n, q, DRAFT_LOGPROB_PENALTY);
    return w;
}

static by_status judge_by_rejection(by_sample_token *out, float *accept_prob, const float *row, int32_t V,
                                    const by_sample_params *p, by_sample_draft d, uint32_t position,
                                    by_sample_scratch *s, by_err *err) {
    if (!d.q || d.q->V != V) return BY_FAIL(err, BY_EINVAL, "draft %d has no law over %d tokens", d.id, V);
    BY_TRY(by_sample_dist_make(&out->law, row, V, &p->law, s, err));
    out->accepted = false;
    if (d.id >= 0) {
        float lp = by_sample_dist_logprob(&out->law, d.id), lq = by_sample_dist_logprob(d.q, d.id), log_ratio = lp - lq;
        by_sample_stream stream = by_sample_stream_at(p->seed, position, BY_SAMPLE_DRAW_ACCEPT);
        float u = by_sample_uniform(by_sample_stream_word(&stream));
        /* -inf - -inf is NaN: a token that neither law has is rejected. */
        out->accepted = !isnan(log_ratio) && u < by_sample_exp(log_ratio < 0 ? log_ratio : 0);
    }
    if (out->accepted && !accept_prob) {
        out->id = d.id;
    } else {
        by_sample_weights w = residual(&out->law, d.q, s);
        if (accept_prob) {
            double left = (double)by_sample_mass_sum(&w) * 0x1p-31;
            *accept_prob = left < 1 ? (float)(1 - left) : 0;
        }
        by_sample_stream stream = by_sample_stream_at(p->seed, position, BY_SAMPLE_DRAW_RESIDUAL);
        out->id = out->accepted ? d.id : by_sample_pick(&w, &stream, p->rule, s);
        if (out->id == BY_SAMPLE_NONE) BY_TRY(by_sample_argmax(&out->id, row, V, s, err));
    }
    out->logprob = by_sample_dist_logprob(&out->law, out->id);
    return BY_OK;
}

by_status by_sample_judge(by_sample_token *out, float *accept_prob, const float *row, int32_t V,
                          const by_sample_params *p, by_sample_verify_rule rule, by_sample_draft d, uint32_t first,
                          uint32_t row_idx, by_sample_scratch *s, by_err *err) {
    if (d.id >= V) return BY_FAIL(err, BY_EINVAL, "draft token %d is not in [0, %d)", d.id, V);
    if (rule == BY_SAMPLE_REJECTION && !by_sample_is_greedy(p))
        return judge_by_rejection(out, accept_prob, row, V, p, d, by_sample_position(first, row_idx), s, err);
    BY_TRY(by_sample_row(out, row, V, p, first + row_idx, BY_SAMPLE_DRAW_FRESH, s, err));
    out->accepted = out->id == d.id;
    if (!accept_prob) return BY_OK;
    if (d.id < 0 || by_sample_is_greedy(p))
        *accept_prob = out->accepted ? 1 : 0;
    else
        *accept_prob = by_sample_exp(by_sample_dist_logprob(&out->law, d.id));
    return BY_OK;
}

by_status by_sample_verify(by_sample_token *tokens, int32_t *n_tokens, float *accept_prob, const by_sample_step *step,
                           const by_sample_params *p, by_sample_scratch *s, by_err *err) {
    bool done = false;
    *n_tokens = 0;
    for (int32_t r = 0; r < step->n_drafts; r++) {
        if (done && !accept_prob) return BY_OK;
        by_sample_token t;
        BY_TRY(by_sample_judge(&t, accept_prob ? &accept_prob[r] : NULL, step->rows[r], step->V, p, step->rule,
                               step->drafts[r], step->first, (uint32_t)r, s, err));
        if (done) continue;
        tokens[(*n_tokens)++] = t;
        done = !t.accepted;
    }
    if (done) return BY_OK;
    uint32_t r = (uint32_t)step->n_drafts;
    bool by_row = step->rule == BY_SAMPLE_REJECTION && !by_sample_is_greedy(p);
    uint32_t position = by_row ? by_sample_position(step->first, r) : step->first + r;
    BY_TRY(by_sample_row(&tokens[*n_tokens], step->rows[r], step->V, p, position, BY_SAMPLE_DRAW_FRESH, s, err));
    (*n_tokens)++;
    return BY_OK;
}
