/* service_grammar.c - from what a request says to what the engine enforces: kinds, options, tool calls, the end of the reasoning. */
#include "service/service_grammar.h"

#include <string.h>

#include "grammar/grammar_options.h"
#include "recipe/specials.h"

static by_status keep(by_arena *arena, by_buf *b, by_str *out, by_err *err) {
    by_status status = by_buf_check(b, err);
    if (status == BY_OK) *out = by_arena_dup(arena, by_buf_str(b));
    by_buf_deinit(b);
    return status == BY_OK && !out->ptr ? BY_FAIL(err, BY_ENOMEM, "out of memory for a grammar") : status;
}

/* Tool calls are a structural tag; in it each schema has the strictness of its tool. */
static by_status set_tools(by_request_grammar *out, by_arena *arena, const by_api_grammar *g, by_err *err) {
    by_buf b = {0};
    by_grammar_dsml_opts o = {.required = g->required, .one_call = g->one_call, .forced = g->forced, .text = g->without_calls};
    by_status status = by_grammar_dsml_tag(&b, g->text, &o, err);
    out->spec.kind = BY_GRAMMAR_TAG;
    if (status == BY_OK) return keep(arena, &b, &out->spec.text, err);
    by_buf_deinit(&b);
    return status;
}

/* While the model thinks nothing is limited but its end: the grammar begins behind the token that ends the reasoning, in time for the
 * shortest answer. */
static by_status set_begin(by_request_grammar *out, by_arena *arena, const by_api_converted *c, const by_tok *tok, by_err *err) {
    const by_api_grammar *g = &c->inference.grammar;
    by_stage stage = c->parsing.stage;
    out->trigger = g->trigger;
    out->n_trigger = (int32_t)g->n_trigger;
    out->bound_id = g->bound_id;
    bool thinks = stage == BY_STAGE_REASONING_START || stage == BY_STAGE_REASONING_CONTINUATION;
    if (g->n_trigger || !thinks || c->parsing.starts_in_calls) return BY_OK;
    by_str text = c->parsing.thinking_end.len ? c->parsing.thinking_end : by_recipe_specials_default()->text[BY_SPECIAL_THINKING_END];
    int32_t *id = by_arena_alloc(arena, sizeof *id);
    if (!id) return BY_FAIL(err, BY_ENOMEM, "out of memory for a grammar");
    *id = by_tok_find_added(tok, text);
    if (*id < 0) return BY_FAIL(err, BY_EMISSING, "the tokenizer has no token '%.*s'", BY_STR_ARG(text));
    out->trigger = id;
    out->n_trigger = 1;
    out->must_begin = true;
    if (g->close == BY_API_CLOSE_UNSAID) out->close_by_budget = true; /* reasoning may take all there is, and often does */
    return BY_OK;
}

by_status by_service_grammar(by_request_grammar *out, bool *has, by_arena *arena, const by_api_converted *c, const by_tok *tok,
                             by_err *err) {
    const by_api_grammar *g = &c->inference.grammar;
    *out = (by_request_grammar){.bound_id = -1, .close_by_budget = g->close == BY_API_CLOSE_YES};
    *has = g->kind != NULL;
    if (!*has) return BY_OK;
    by_status status = by_grammar_options_parse(&out->spec.opts, arena, g->options, err);
    if (status < 0) {
        by_err_prefix(err, "%s: ", g->field);
        by_err_at(err, g->param ? g->param : g->field, status);
        return status == BY_ENOMEM ? status : BY_EINVAL;
    }
    out->spec.text = g->text;
    if (strcmp(g->kind, "tools") == 0) BY_TRY(set_tools(out, arena, g, err));
    else if (!by_grammar_kind_parse(&out->spec.kind, by_str_z(g->kind)))
        return BY_FAIL(err, BY_EINTERNAL, "grammar: unknown kind %s", g->kind);
    return set_begin(out, arena, c, tok, err);
}
