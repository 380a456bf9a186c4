/* server_fields.c - the fields of the server profile that the original does not know. docs/recipe.md has them in one table.
 *
 * They are optional everywhere, and null counts as absent. In the parity profile they are ignored, whatever they hold, as
 * the original ignores them. */
#include "api/convert.h"

/* ---- shapes ---- */

static const by_shape_field kwargs_fields[] = {
    {"thinking", &by_shape_bool, BY_FIELD_OPTIONAL},
    {"enable_thinking", &by_shape_bool, BY_FIELD_OPTIONAL},
};
static const by_shape kwargs = BY_SHAPE_STRUCT_OF(kwargs_fields);

enum { B_KWARGS, B_ENABLE_THINKING, B_HONOUR };
static const by_shape_field begin_fields[] = {
    [B_KWARGS] = {"chat_template_kwargs", &kwargs, BY_FIELD_OPTIONAL},
    [B_ENABLE_THINKING] = {"enable_thinking", &by_shape_bool, BY_FIELD_OPTIONAL},
    [B_HONOUR] = {"honour_sampling", &by_shape_bool, BY_FIELD_OPTIONAL},
};
static const by_shape begin_shape = BY_SHAPE_STRUCT_OF(begin_fields);

enum {
    E_TOP_K, E_MIN_P, E_REPETITION, E_PRESENCE, E_FREQUENCY, E_LOGIT_BIAS, E_SEED, E_MAX_TOKENS, E_MAX_COMPLETION_TOKENS,
    E_BEST_OF, E_IGNORE_EOS, E_MIN_TOKENS, E_STOP_IDS, E_INCLUDE_STOP, E_PROMPT_LOGPROBS
};
static const by_shape stop_ids = BY_SHAPE_LIST_OF(&by_shape_id);
static const by_shape_field end_fields[] = {
    [E_TOP_K] = {"top_k", &by_shape_any, BY_FIELD_OPTIONAL},
    [E_MIN_P] = {"min_p", &by_shape_f32, BY_FIELD_OPTIONAL},
    [E_REPETITION] = {"repetition_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [E_PRESENCE] = {"presence_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [E_FREQUENCY] = {"frequency_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [E_LOGIT_BIAS] = {"logit_bias", &by_shape_map, BY_FIELD_OPTIONAL},
    [E_SEED] = {"seed", &by_shape_seed, BY_FIELD_OPTIONAL},
    [E_MAX_TOKENS] = {"max_tokens", &by_shape_count, BY_FIELD_OPTIONAL},
    [E_MAX_COMPLETION_TOKENS] = {"max_completion_tokens", &by_shape_count, BY_FIELD_OPTIONAL},
    [E_BEST_OF] = {"best_of", &by_shape_n, BY_FIELD_OPTIONAL},
    [E_IGNORE_EOS] = {"ignore_eos", &by_shape_bool, BY_FIELD_OPTIONAL},
    [E_MIN_TOKENS] = {"min_tokens", &by_shape_id, BY_FIELD_OPTIONAL},
    [E_STOP_IDS] = {"stop_token_ids", &stop_ids, BY_FIELD_OPTIONAL},
    [E_INCLUDE_STOP] = {"include_stop_str_in_output", &by_shape_bool, BY_FIELD_OPTIONAL},
    [E_PROMPT_LOGPROBS] = {"prompt_logprobs", &by_shape_top, BY_FIELD_OPTIONAL},
};
static const by_shape end_shape = BY_SHAPE_STRUCT_OF(end_fields);

/* ---- thinking ---- */

typedef struct {
    const char *name; /* NULL = nobody has said anything */
    bool on;
} claim;

/* Joins what another field says to what was said before. */
static by_status join(by_convert *cv, claim *before, const char *name, const by_json *v) {
    if (!by_given(v)) return BY_OK;
    by_at(cv, name);
    if (before->name && before->on != v->v.b)
        return BY_REFUSE(cv, by_str_z(before->name), BY_STR(" and "), by_str_z(name), BY_STR(" contradict each other"));
    if (!before->name) *before = (claim){name, v->v.b};
    return BY_OK;
}

by_status by_begin_server_fields(by_convert *cv, const by_json *body, const by_json *thinking, const by_json *effort) {
    if (!cv->server) return BY_OK;
    static const by_json none = {.type = BY_JSON_NULL};
    by_json extra = *body;
    by_recipe_conversation *c = &cv->out->conversation;
    BY_TRY(by_check_body(cv, &extra, &begin_shape));
    /* thinking and effort together are one claim, settled by the original's rule */
    claim said = {NULL, c->thinking};
    if (by_given(thinking)) said.name = "thinking";
    else if (by_given(effort)) said.name = cv->out->api == BY_API_CHAT ? "reasoning_effort" : "effort";
    const by_json *k = by_field(&extra, B_KWARGS);
    BY_TRY(join(cv, &said, "chat_template_kwargs.thinking", by_given(k) ? by_field(k, 0) : &none));
    BY_TRY(join(cv, &said, "chat_template_kwargs.enable_thinking", by_given(k) ? by_field(k, 1) : &none));
    BY_TRY(join(cv, &said, "enable_thinking", by_field(&extra, B_ENABLE_THINKING)));
    if (said.name && said.on != c->thinking) {
        c->thinking = said.on;
        c->effort = said.on ? BY_EFFORT_HIGH : BY_EFFORT_UNSET;
    }
    const by_json *honour = by_field(&extra, B_HONOUR);
    cv->honour = by_given(honour) ? honour->v.b : cv->opt->honour_sampling;
    return BY_OK;
}

/* ---- sampling ---- */

static by_status refuse_range(by_convert *cv, const char *name, const char *range) {
    by_at(cv, name);
    return BY_REFUSE(cv, BY_STR("Invalid "), by_str_z(name), BY_STR(" value, the valid range of "), by_str_z(name),
                     BY_STR(" is "), by_str_z(range));
}

by_status by_set_n(by_convert *cv, const by_json *v) {
    enum { CHOICES_MAX = 128 };
    if (v->v.i < 1 || v->v.i > CHOICES_MAX) return refuse_range(cv, "n", "[1, 128]");
    cv->out->inference.n = (uint32_t)v->v.i;
    return BY_OK;
}

static by_status set_top_k(by_convert *cv, const by_json *v) {
    int64_t k;
    if (!by_given(v)) return BY_OK;
    if (!by_json_int_in(v, -1, INT32_MAX, &k)) return refuse_range(cv, "top_k", "[1, 2147483647], or 0 or -1 for off");
    cv->out->inference.top_k = k > 0 ? (int32_t)k : -1;
    return BY_OK;
}

static by_status set_min_p(by_convert *cv, const by_json *v) {
    if (!by_given(v)) return BY_OK;
    if (!(v->v.d >= 0 && v->v.d <= 1)) return refuse_range(cv, "min_p", "[0, 1]");
    cv->out->inference.min_p = (float)v->v.d;
    return BY_OK;
}

static by_status set_repetition(by_convert *cv, const by_json *v) {
    if (!by_given(v)) return BY_OK;
    if (!(v->v.d > 0 && v->v.d <= 2)) return refuse_range(cv, "repetition_penalty", "(0, 2]");
    cv->out->inference.repetition_penalty = (float)v->v.d;
    return BY_OK;
}

static bool read_token(by_str key, uint32_t *out) {
    uint64_t n = 0;
    if (key.len == 0 || key.len > 9) return false;
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < '0' || key.ptr[i] > '9') return false;
        n = n * 10 + (uint64_t)(key.ptr[i] - '0');
    }
    *out = (uint32_t)n;
    return true;
}

static by_status set_logit_bias(by_convert *cv, const by_json *map) {
    enum { BIASES_MAX = 1024 };
    if (!by_given(map) || map->n == 0) return BY_OK;
    by_at(cv, "logit_bias");
    if (map->n > BIASES_MAX) return BY_REFUSE(cv, BY_STR("logit_bias: at most 1024 entries"));
    by_api_bias *out = BY_MAKE(cv, by_api_bias, map->n);
    if (!out) return by_no_memory(cv);
    for (uint32_t i = 0; i < map->n; i++) {
        const by_json_member *m = &map->v.members[i];
        double v = by_json_number(&m->value);
        if (!read_token(m->key, &out[i].token)) return BY_REFUSE(cv, BY_STR("logit_bias: '"), m->key, BY_STR("' is no token id"));
        if (!by_json_is_number(&m->value) || !(v >= -100 && v <= 100))
            return BY_REFUSE(cv, BY_STR("logit_bias: the value of '"), m->key, BY_STR("' must be a number in [-100, 100]"));
        out[i].value = (float)v;
    }
    cv->out->inference.logit_bias = out;
    cv->out->inference.n_logit_bias = map->n;
    return BY_OK;
}

/* Chat's newer name of max_tokens. */
static by_status set_max_completion_tokens(by_convert *cv, const by_json *v, const by_json *older) {
    if (!by_given(v) || cv->out->api != BY_API_CHAT) return BY_OK;
    by_at(cv, "max_completion_tokens");
    if (by_given(older) && older->v.i != v->v.i)
        return BY_REFUSE(cv, BY_STR("max_tokens and max_completion_tokens contradict each other"));
    return by_set_max_tokens(cv, v, "max_completion_tokens", false);
}

static by_status set_best_of(by_convert *cv, const by_json *v) {
    enum { CHOICES_MAX = 128 };
    by_api_inference *inf = &cv->out->inference;
    inf->best_of = inf->n;
    if (!by_given(v)) return BY_OK;
    if (v->v.i < inf->n || v->v.i > CHOICES_MAX) return refuse_range(cv, "best_of", "[n, 128]");
    by_at(cv, "best_of");
    if (v->v.i > inf->n && cv->out->stream && cv->out->api == BY_API_COMPLETIONS)
        return BY_REFUSE(cv, BY_STR("best_of: must be n with stream, as all have to end before the best ones are known"));
    inf->best_of = (uint32_t)v->v.i;
    return BY_OK;
}

static by_status set_end_rules(by_convert *cv, const by_json *ignore_eos, const by_json *min_tokens, const by_json *ids) {
    enum { STOP_IDS_MAX = 256 };
    by_api_inference *inf = &cv->out->inference;
    inf->ignore_eos = by_given(ignore_eos) && ignore_eos->v.b;
    if (by_given(min_tokens)) {
        if (min_tokens->v.i > INT32_MAX) return refuse_range(cv, "min_tokens", "[0, 2147483647]");
        inf->min_tokens = (uint32_t)min_tokens->v.i;
    }
    if (!by_given(ids) || ids->n == 0) return BY_OK;
    by_at(cv, "stop_token_ids");
    if (ids->n > STOP_IDS_MAX) return BY_REFUSE(cv, BY_STR("stop_token_ids: at most 256 ids"));
    int32_t *out = BY_MAKE(cv, int32_t, ids->n);
    if (!out) return by_no_memory(cv);
    for (uint32_t i = 0; i < ids->n; i++) {
        if (ids->v.items[i].v.i > INT32_MAX) return BY_REFUSE(cv, BY_STR("stop_token_ids: an id is too large"));
        out[i] = (int32_t)ids->v.items[i].v.i;
    }
    inf->stop_ids = out;
    inf->n_stop_ids = ids->n;
    return BY_OK;
}

static by_status set_prompt_logprobs(by_convert *cv, const by_json *v) {
    by_api_converted *out = cv->out;
    if (!by_given(v)) return BY_OK;
    by_at(cv, "prompt_logprobs");
    if (out->api != BY_API_CHAT && out->api != BY_API_COMPLETIONS)
        return BY_REFUSE(cv, BY_STR("prompt_logprobs: for Chat Completions and Completions only"));
    if (out->stream) return BY_REFUSE(cv, BY_STR("prompt_logprobs: not together with stream: true"));
    if (v->v.i > 20) return refuse_range(cv, "prompt_logprobs", "[0, 20]");
    out->inference.has_prompt_logprobs = true;
    out->inference.prompt_logprobs = (uint32_t)v->v.i;
    return BY_OK;
}

by_status by_end_server_fields(by_convert *cv, const by_json *body) {
    if (!cv->server) return BY_OK;
    by_json extra = *body;
    by_api_inference *inf = &cv->out->inference;
    BY_TRY(by_check_body(cv, &extra, &end_shape));
    BY_TRY(set_prompt_logprobs(cv, by_field(&extra, E_PROMPT_LOGPROBS)));
    BY_TRY(set_top_k(cv, by_field(&extra, E_TOP_K)));
    BY_TRY(set_min_p(cv, by_field(&extra, E_MIN_P)));
    BY_TRY(set_repetition(cv, by_field(&extra, E_REPETITION)));
    BY_TRY(by_set_penalty(cv, by_field(&extra, E_PRESENCE), "presence_penalty", &inf->presence_penalty));
    BY_TRY(by_set_penalty(cv, by_field(&extra, E_FREQUENCY), "frequency_penalty", &inf->frequency_penalty));
    BY_TRY(set_logit_bias(cv, by_field(&extra, E_LOGIT_BIAS)));
    BY_TRY(by_set_seed(cv, by_field(&extra, E_SEED)));
    BY_TRY(set_best_of(cv, by_field(&extra, E_BEST_OF)));
    BY_TRY(by_read_grammar_fields(cv, body));
    inf->include_stop = by_given(by_field(&extra, E_INCLUDE_STOP)) && by_field(&extra, E_INCLUDE_STOP)->v.b;
    BY_TRY(set_end_rules(cv, by_field(&extra, E_IGNORE_EOS), by_field(&extra, E_MIN_TOKENS), by_field(&extra, E_STOP_IDS)));
    return set_max_completion_tokens(cv, by_field(&extra, E_MAX_COMPLETION_TOKENS), by_field(&extra, E_MAX_TOKENS));
}
