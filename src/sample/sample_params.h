/* sample_params.h - what a request asks of the sampler.
 *
 * A plain value: zero pointers where a list is absent. The lists belong to the request and must outlive every call that
 * gets the parameters. by_sample_params_default fills the defaults of the public interface. */
#ifndef BY_SAMPLE_PARAMS_H
#define BY_SAMPLE_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define BY_SAMPLE_GREEDY_BELOW     1e-5f /* a temperature below this means: the most likely token */
#define BY_SAMPLE_TOP_LOGPROBS_MAX 1000
#define BY_SAMPLE_LOGPROB_FLOOR    -9999.0f /* what reports print for a removed token */

/* How a random word becomes a token of the integer distribution with total mass T (src/sample/README.md). */
typedef enum by_sample_rule {
    BY_SAMPLE_SMOOTH,   /* r = word * T >> 32 */
    BY_SAMPLE_DEEPINFER /* words below floor((2^32-1) / T) * T, r = word mod T: the stream of the original program */
} by_sample_rule;

/* The law of a row: which tokens remain and with what probability. */
typedef struct by_sample_law {
    float temperature; /* >= 0, finite; below BY_SAMPLE_GREEDY_BELOW: 1e-5 without any cut */
    float top_p;       /* (0, 1]; 1 = off */
    float min_p;       /* [0, 1]; 0 = off: keep p >= min_p * p_max, after top_p and top_k */
    int32_t top_k;     /* -1 = off, or >= 1; values >= V are off */
} by_sample_law;

typedef struct by_sample_bias {
    int32_t id;
    float value; /* [-100, 100], added to the logit */
} by_sample_bias;

typedef struct by_sample_params {
    by_sample_law law;
    uint64_t seed;
    by_sample_rule rule;
    float
        repetition_penalty; /* (0, 100]; 1 = off: positive logits of seen tokens are divided by it, others multiplied */
    float frequency_penalty;    /* [-2, 2]: times the count in the output */
    float presence_penalty;     /* [-2, 2]: once for a token of the output */
    const by_sample_bias *bias; /* ids distinct */
    int32_t n_bias;
    const int32_t *banned; /* never produced */
    int32_t n_banned;
    const int32_t *stop_ids; /* with eos_id, not produced before min_tokens */
    int32_t n_stop_ids;
    int32_t eos_id;     /* -1 = none */
    int32_t min_tokens; /* >= 0 */
    bool first_no_eos;  /* the first output token is not eos_id */
} by_sample_params;

/* Temperature 1, no cuts, no edits, seed 0. */
by_sample_params by_sample_params_default(void);

static inline bool by_sample_is_greedy(const by_sample_params *p) {
    return p->law.temperature < BY_SAMPLE_GREEDY_BELOW;
}

/* True when the edits of sample_edit.h would change nothing for any row (the grammar mask apart). */
bool by_sample_params_plain(const by_sample_params *p);

/* Checks every range above for a vocabulary of V tokens. Errors: BY_EINVAL naming the field and the value. */
by_status by_sample_params_check(const by_sample_params *p, int32_t V, by_err *err);

#endif
