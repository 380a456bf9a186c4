/* resolve.c - how many tokens may be generated. */
#include "api/convert.h"

static by_status refuse_length(by_convert *cv, uint64_t limit, uint64_t prompt, uint64_t asked, by_api_kind of) {
    by_at(cv, of == BY_API_RESPONSES ? "input" : of == BY_API_COMPLETIONS ? "prompt" : "messages");
    by_status status = BY_REFUSE(
        cv, BY_STR("This model's maximum context length is "), by_number_text(cv, limit),
        BY_STR(" tokens. However, you requested "), by_number_text(cv, prompt + asked), BY_STR(" tokens ("),
        by_number_text(cv, prompt), BY_STR(" in the messages, "), by_number_text(cv, asked),
        BY_STR(" in the completion). Please reduce the length of the messages or completion."));
    if (cv->server) cv->error->code = "context_length_exceeded";
    return status;
}

by_status by_api_resolve_max_tokens(uint32_t *out, by_api_error *error, by_arena *arena, const by_api_converted *c,
                                    const by_api_options *options, uint64_t prompt_tokens, uint64_t context_limit,
                                    by_err *err) {
    by_convert cv = {.arena = arena, .opt = options, .error = error, .err = err};
    cv.server = options->profile == BY_API_SERVER;
    bool asked = c->inference.has_max_tokens && !c->inference.default_max_tokens;
    uint64_t n = c->inference.has_max_tokens              ? c->inference.max_tokens
                 : !c->conversation.thinking              ? 8192
                 : c->conversation.effort == BY_EFFORT_MAX ? 131072
                                                          : 65536;
    if (prompt_tokens > context_limit || (asked && n > context_limit - prompt_tokens))
        return refuse_length(&cv, context_limit, prompt_tokens, asked ? n : 0, c->api);
    uint64_t left = context_limit - prompt_tokens;
    if (n > left) n = left;
    *out = n ? (uint32_t)n : 1;
    return BY_OK;
}
