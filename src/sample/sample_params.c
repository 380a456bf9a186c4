/* sample_params.c - see sample_params.h. */
#include "sample/sample_params.h"

#include <math.h>

by_sample_params by_sample_params_default(void) {
    return (by_sample_params){
        .law = {.temperature = 1, .top_p = 1, .top_k = -1}, .repetition_penalty = 1, .eos_id = -1};
}

bool by_sample_params_plain(const by_sample_params *p) {
    return p->n_bias == 0 && p->n_banned == 0 && p->min_tokens == 0 && !p->first_no_eos && p->repetition_penalty == 1 &&
           p->frequency_penalty == 0 && p->presence_penalty == 0;
}

static by_status check_range(const char *name, float x, float min, float max, by_err *err) {
    if (x >= min && x <= max) return BY_OK; /* false for NaN */
    return BY_FAIL_AT(err, BY_EINVAL, name, "%s: %g is not in [%g, %g]", name, (double)x, (double)min, (double)max);
}

static by_status check_ids(const char *name, const int32_t *ids, int32_t n, int32_t V, by_err *err) {
    if (n < 0 || (n > 0 && !ids)) return BY_FAIL(err, BY_EINVAL, "%s: count %d without a list", name, n);
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= V)
            return BY_FAIL_AT(err, BY_EINVAL, name, "%s: token id %d is not in [0, %d)", name, ids[i], V);
    return BY_OK;
}

static by_status check_bias(const by_sample_params *p, int32_t V, by_err *err) {
    if (p->n_bias < 0 || (p->n_bias > 0 && !p->bias))
        return BY_FAIL(err, BY_EINVAL, "logit_bias: count %d without a list", p->n_bias);
    for (int32_t i = 0; i < p->n_bias; i++) {
        BY_TRY(check_ids("logit_bias", &p->bias[i].id, 1, V, err));
        BY_TRY(check_range("logit_bias", p->bias[i].value, -100, 100, err));
    }
    return BY_OK;
}

by_status by_sample_params_check(const by_sample_params *p, int32_t V, by_err *err) {
    const by_sample_law *law = &p->law;
    BY_TRY(check_range("temperature", law->temperature, 0, 1e30f, err));
    if (!(law->top_p > 0 && law->top_p <= 1))
        return BY_FAIL_AT(err, BY_EINVAL, "top_p", "top_p: %g is not in (0, 1]", (double)law->top_p);
    BY_TRY(check_range("min_p", law->min_p, 0, 1, err));
    if (law->top_k != -1 && law->top_k < 1)
        return BY_FAIL_AT(err, BY_EINVAL, "top_k", "top_k: %d is neither -1 nor at least 1", law->top_k);
    if (!(p->repetition_penalty > 0 && p->repetition_penalty <= 100))
        return BY_FAIL_AT(err, BY_EINVAL, "repetition_penalty", "repetition_penalty: %g is not in (0, 100]", (double)p->repetition_penalty);
    BY_TRY(check_range("frequency_penalty", p->frequency_penalty, -2, 2, err));
    BY_TRY(check_range("presence_penalty", p->presence_penalty, -2, 2, err));
    BY_TRY(check_bias(p, V, err));
    BY_TRY(check_ids("banned tokens", p->banned, p->n_banned, V, err));
    BY_TRY(check_ids("stop_token_ids", p->stop_ids, p->n_stop_ids, V, err));
    if (p->eos_id < -1 || p->eos_id >= V) return BY_FAIL(err, BY_EINVAL, "eos_id: %d is not in [-1, %d)", p->eos_id, V);
    if (p->min_tokens < 0) return BY_FAIL_AT(err, BY_EINVAL, "min_tokens", "min_tokens: %d is negative", p->min_tokens);
    if (p->rule != BY_SAMPLE_SMOOTH && p->rule != BY_SAMPLE_DEEPINFER)
        return BY_FAIL(err, BY_EINVAL, "selection rule %d", (int)p->rule);
    return BY_OK;
}
