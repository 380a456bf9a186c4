/* completions.c - raw completions: a prompt that is continued as it stands, and fill-in-the-middle with a suffix. The
 * original has no such API; the shape is that of OpenAI's legacy completions as vLLM serves them. */
#include "api/convert.h"

enum { PROMPTS_MAX = 1024, DEFAULT_MAX_TOKENS = 16 };

static const by_shape max_tokens = {.kind = BY_SHAPE_U32, .range = "from 0"};
static const by_shape stop = BY_SHAPE_STRING_OR_LIST_OF(&by_shape_string);
static const by_shape_field stream_options_fields[] = {{"include_usage", &by_shape_bool, BY_FIELD_OPTIONAL},
                                                      {"continuous_usage_stats", &by_shape_any, BY_FIELD_OPTIONAL}};
static const by_shape stream_options = BY_SHAPE_STRUCT_OF(stream_options_fields);

enum {
    F_MODEL, F_PROMPT, F_SUFFIX, F_MAX_TOKENS, F_TEMPERATURE, F_TOP_P, F_N, F_STREAM, F_STREAM_OPTIONS, F_LOGPROBS, F_ECHO,
    F_STOP, F_PRESENCE, F_FREQUENCY, F_SEED
};
static const by_shape_field body_fields[] = {
    [F_MODEL] = {"model", &by_shape_string, BY_FIELD_REQUIRED},
    [F_PROMPT] = {"prompt", &by_shape_any, BY_FIELD_REQUIRED},
    [F_SUFFIX] = {"suffix", &by_shape_string, BY_FIELD_OPTIONAL},
    [F_MAX_TOKENS] = {"max_tokens", &max_tokens, BY_FIELD_OPTIONAL},
    [F_TEMPERATURE] = {"temperature", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_TOP_P] = {"top_p", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_N] = {"n", &by_shape_n, BY_FIELD_OPTIONAL},
    [F_STREAM] = {"stream", &by_shape_bool, BY_FIELD_OPTIONAL},
    [F_STREAM_OPTIONS] = {"stream_options", &stream_options, BY_FIELD_OPTIONAL},
    [F_LOGPROBS] = {"logprobs", &by_shape_top, BY_FIELD_OPTIONAL},
    [F_ECHO] = {"echo", &by_shape_bool, BY_FIELD_OPTIONAL},
    [F_STOP] = {"stop", &stop, BY_FIELD_OPTIONAL},
    [F_PRESENCE] = {"presence_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_FREQUENCY] = {"frequency_penalty", &by_shape_f32, BY_FIELD_OPTIONAL},
    [F_SEED] = {"seed", &by_shape_seed, BY_FIELD_OPTIONAL},
};
static const by_shape body_shape = BY_SHAPE_STRUCT_OF(body_fields);

/* ---- prompts ---- */

static by_status refuse_prompt(by_convert *cv, const char *what) {
    by_at(cv, "prompt");
    return BY_REFUSE(cv, BY_STR("prompt: "), by_str_z(what));
}

static by_status convert_ids(by_convert *cv, const by_json *list, by_api_prompt *out) {
    uint32_t *ids = BY_MAKE(cv, uint32_t, list->n);
    int64_t id;
    if (!ids) return by_no_memory(cv);
    for (uint32_t i = 0; i < list->n; i++) {
        if (!by_json_int_in(&list->v.items[i], 0, INT32_MAX, &id)) return refuse_prompt(cv, "token ids must be integers from 0");
        ids[i] = (uint32_t)id;
    }
    *out = (by_api_prompt){.ids = ids, .n_ids = list->n};
    return BY_OK;
}

/* One prompt: a text that is not empty, or a list of ids that is not. */
static by_status convert_one(by_convert *cv, const by_json *v, by_api_prompt *out) {
    if (v->type == BY_JSON_STRING) {
        if (v->v.s.len == 0) return refuse_prompt(cv, "must not be empty");
        *out = (by_api_prompt){.text = v->v.s};
        return BY_OK;
    }
    if (v->type != BY_JSON_ARRAY) return refuse_prompt(cv, "expected a text, a list of token ids, or a list of those");
    if (v->n == 0) return refuse_prompt(cv, "must not be empty");
    return convert_ids(cv, v, out);
}

static by_status convert_prompts(by_convert *cv, const by_json *v) {
    bool several = v->type == BY_JSON_ARRAY && v->n && !by_json_is_number(&v->v.items[0]);
    uint32_t n = several ? v->n : 1;
    if (n > PROMPTS_MAX) return refuse_prompt(cv, "at most 1024 prompts");
    by_api_prompt *prompts = BY_MAKE(cv, by_api_prompt, n);
    if (!prompts) return by_no_memory(cv);
    for (uint32_t i = 0; i < n; i++) BY_TRY(convert_one(cv, several ? &v->v.items[i] : v, &prompts[i]));
    cv->out->prompts = prompts;
    cv->out->n_prompts = n;
    cv->out->prompt = prompts[0].text;
    return BY_OK;
}

static by_status convert_suffix(by_convert *cv, const by_json *v) {
    if (!by_given(v)) return BY_OK;
    by_at(cv, "suffix");
    if (cv->out->n_prompts != 1 || cv->out->prompts[0].n_ids)
        return BY_REFUSE(cv, BY_STR("suffix: needs one prompt, and that as text"));
    cv->out->has_suffix = true;
    cv->out->suffix = v->v.s;
    return BY_OK;
}

/* ---- settings ---- */

static by_status convert_stream(by_convert *cv, const by_json *stream, const by_json *options) {
    cv->out->stream = by_given(stream) && stream->v.b;
    if (!by_given(options)) return BY_OK;
    by_at(cv, "stream_options");
    if (!cv->out->stream) return BY_REFUSE(cv, BY_STR("stream_options should be set along with stream = true"));
    cv->out->include_usage = by_given(by_field(options, 0)) && by_field(options, 0)->v.b;
    const by_json *each = by_field(options, 1); /* vLLM's; the original ignores it whatever it holds */
    cv->out->continuous_usage = cv->server && cv->out->include_usage && by_json_is(each, BY_JSON_BOOL) && each->v.b;
    return BY_OK;
}

static by_status convert_logprobs(by_convert *cv, const by_json *v) {
    by_api_inference *inf = &cv->out->inference;
    if (!by_given(v)) return BY_OK;
    by_at(cv, "logprobs");
    if (v->v.i > 20) return BY_REFUSE(cv, BY_STR("Invalid logprobs value, the valid range of logprobs is [0, 20]"));
    inf->logprobs = inf->has_top_logprobs = true;
    inf->top_logprobs = (uint32_t)v->v.i;
    return BY_OK;
}

static by_status convert_echo(by_convert *cv, const by_json *v) {
    cv->out->echo_prompt = by_given(v) && v->v.b;
    by_at(cv, "echo");
    if (cv->out->echo_prompt && cv->out->inference.logprobs && cv->out->has_suffix)
        return BY_REFUSE(cv, BY_STR("echo with logprobs: not for a prompt with a suffix"));
    return BY_OK;
}

/* 0 scores a prompt: echo and logprobs of it alone. */
static by_status convert_max_tokens(by_convert *cv, const by_json *v) {
    by_api_inference *inf = &cv->out->inference;
    by_at(cv, "max_tokens");
    if (by_given(v) && v->v.i == 0) {
        if (!cv->out->echo_prompt) return BY_REFUSE(cv, BY_STR("max_tokens: 0 is only possible with echo: true"));
        inf->max_tokens = 0;
        inf->has_max_tokens = true;
        return BY_OK;
    }
    BY_TRY(by_set_max_tokens(cv, v, "max_tokens", false));
    if (inf->has_max_tokens) return BY_OK;
    inf->has_max_tokens = inf->default_max_tokens = true;
    inf->max_tokens = DEFAULT_MAX_TOKENS;
    return BY_OK;
}

by_status by_convert_completions(by_convert *cv, by_json *body) {
    by_json whole = *body;
    by_api_inference *inf = &cv->out->inference;
    cv->server = cv->honour = true; /* nothing to be equal to */
    BY_TRY(by_check_body(cv, body, &body_shape));
    BY_TRY(by_check_model(cv, by_field(body, F_MODEL)->v.s));
    BY_TRY(convert_prompts(cv, by_field(body, F_PROMPT)));
    BY_TRY(convert_suffix(cv, by_field(body, F_SUFFIX)));
    BY_TRY(by_set_stop(cv, by_field(body, F_STOP)));
    BY_TRY(convert_stream(cv, by_field(body, F_STREAM), by_field(body, F_STREAM_OPTIONS)));
    if (by_given(by_field(body, F_N))) BY_TRY(by_set_n(cv, by_field(body, F_N)));
    BY_TRY(by_set_penalty(cv, by_field(body, F_PRESENCE), "presence_penalty", &inf->presence_penalty));
    BY_TRY(by_set_penalty(cv, by_field(body, F_FREQUENCY), "frequency_penalty", &inf->frequency_penalty));
    BY_TRY(by_set_temperature(cv, by_field(body, F_TEMPERATURE)));
    BY_TRY(by_set_top_p(cv, by_field(body, F_TOP_P)));
    BY_TRY(convert_logprobs(cv, by_field(body, F_LOGPROBS)));
    BY_TRY(convert_echo(cv, by_field(body, F_ECHO)));
    BY_TRY(convert_max_tokens(cv, by_field(body, F_MAX_TOKENS)));
    BY_TRY(by_set_seed(cv, by_field(body, F_SEED)));
    return by_end_server_fields(cv, &whole);
}
