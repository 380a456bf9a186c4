/* responses.c - Responses requests. Order of the checks: model, tools, input, choice of tools, text format, sampling,
 * max_output_tokens. */
#include "api/responses.h"

#include "json/json_write.h"

static by_status convert_tools(by_convert *cv, const by_json *list, by_responses_tools *t) {
    if (!by_given(list)) return BY_OK;
    BY_TRY(by_responses_check_names(cv, list, BY_STR("tools")));
    by_at(cv, "tools");
    return by_responses_add_tools(cv, t, list, BY_STR("tools"));
}

static by_status convert_input(by_convert *cv, const by_json *body, by_responses_tools *t) {
    const by_json *input = by_field(body, RB_INPUT), *instructions = by_field(body, RB_INSTRUCTIONS);
    bool instructed = by_given(instructions) && instructions->v.s.len;
    by_at(cv, "input");
    if (!by_given(input) && !instructed) return BY_REFUSE_CODE(cv, "missing_required_parameter",
                                                               BY_STR("Either input or instructions must be provided"));
    by_at(cv, "input");
    if (cv->server && input->type == BY_JSON_STRING && input->v.s.len == 0 && !instructed)
        return BY_REFUSE(cv, BY_STR("input: must not be empty"));
    if (instructed) {
        by_recipe_message *m;
        BY_TRY(by_add_message(cv, BY_ROLE_SYSTEM, &m));
        BY_TRY(by_content_of_string(cv, instructions->v.s, &m->content));
    }
    return by_given(input) ? by_responses_convert_input(cv, input, t) : BY_OK;
}

static by_status convert_choice(by_convert *cv, const by_json *v) {
    by_choice c = {BY_CHOICE_AUTO, {NULL, 0}};
    if (v->type == BY_JSON_OBJECT) {
        bool web = by_variant(v) == RC_WEB_SEARCH || by_variant(v) == RC_WEB_SEARCH_2025;
        by_at(cv, "tool_choice");
        if (web && cv->opt->reject_responses_web_search) return BY_REFUSE(cv, BY_STR("Server tools are not supported"));
        if (!web) c.name = by_field(v, 1)->v.s;
    } else if (by_given(v)) {
        c.word = (by_recipe_choice)v->v.i;
    }
    return by_apply_choice(cv, c);
}

static by_status convert_format(by_convert *cv, const by_json *text) {
    by_recipe_conversation *c = &cv->out->conversation;
    const by_json *f = by_given(text) ? by_field(text, RX_FORMAT) : text;
    if (by_given(f)) c->format = (by_recipe_format)by_variant(f);
    by_at(cv, "input");
    if (c->format == BY_FORMAT_JSON_OBJECT && !by_mentions_json(cv))
        return BY_REFUSE(cv, BY_STR("Response input messages must contain the word 'json' in some form to use 'text.format' of "
                                    "type 'json_object'."));
    if (c->format == BY_FORMAT_JSON_SCHEMA) {
        const by_json *strict = by_field(f, RF_STRICT);
        BY_TRY(by_set_schema_format(cv, by_field(f, RF_SCHEMA), by_given(strict) && strict->v.b));
    }
    return by_check_all_strict(cv, c->format != BY_FORMAT_TEXT);
}

static by_status convert_sampling(by_convert *cv, const by_json *body) {
    const by_json *top = by_field(body, RB_TOP_LOGPROBS), *stream = by_field(body, RB_STREAM);
    by_api_inference *inf = &cv->out->inference;
    cv->out->stream = by_given(stream) && stream->v.b;
    BY_TRY(by_set_temperature(cv, by_field(body, RB_TEMPERATURE)));
    BY_TRY(by_set_top_p(cv, by_field(body, RB_TOP_P)));
    if (by_given(top)) {
        by_at(cv, "top_logprobs");
        if (top->v.i > 20)
            return BY_REFUSE(cv, BY_STR("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]."));
        inf->logprobs = true;
        inf->has_top_logprobs = true;
        inf->top_logprobs = (uint32_t)top->v.i;
    }
    return by_set_max_tokens(cv, by_field(body, RB_MAX_OUTPUT_TOKENS), "max_output_tokens", false);
}

/* ---- echo ---- */

static void put_word(by_json_out *o, const char *key, const by_json *v, const char *const *words) {
    by_json_out_key(o, key);
    by_json_out_z(o, by_given(v) ? words[v->v.i] : NULL);
}

static void put_reasoning(by_json_out *o, const by_json *v) {
    static const by_json none = {.type = BY_JSON_NULL};
    const by_json *effort = by_given(v) ? by_field(v, RS_EFFORT) : &none, *summary = by_given(v) ? by_field(v, RS_SUMMARY) : &none;
    if (by_given(v) && !by_given(summary)) summary = by_field(v, RS_GENERATE_SUMMARY);
    by_json_out_object_begin(o);
    if (by_given(effort) && effort->v.i > 100) {
        by_json_out_key(o, "effort");
        by_json_out_int(o, effort->v.i - 100);
    } else {
        put_word(o, "effort", effort, by_responses_effort_words);
    }
    put_word(o, "summary", summary, by_responses_summary_words);
    by_json_out_object_end(o);
}

static void put_text(by_json_out *o, const by_json *v) {
    static const by_json none = {.type = BY_JSON_NULL};
    const by_json *f = by_given(v) ? by_field(v, RX_FORMAT) : &none;
    by_recipe_format format = by_given(f) ? (by_recipe_format)by_variant(f) : BY_FORMAT_TEXT;
    by_json_out_object_begin(o);
    by_json_out_key(o, "format");
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, by_recipe_format_name(format));
    if (format == BY_FORMAT_JSON_SCHEMA) {
        static const char *const keys[] = {"name", "schema", "description", "strict"};
        for (uint32_t i = 0; i < BY_COUNT(keys); i++) {
            by_json_out_key(o, keys[i]);
            by_json_out_value(o, by_field(f, i + 1));
        }
    }
    by_json_out_object_end(o);
    put_word(o, "verbosity", by_given(v) ? by_field(v, RX_VERBOSITY) : &none, by_responses_level_words);
    by_json_out_object_end(o);
}

static void put_choice(by_json_out *o, const by_json *v) {
    static const char *const types[] = {"function", "web_search", "web_search_2025_08_26", "custom"};
    if (v->type != BY_JSON_OBJECT) {
        by_json_out_z(o, by_recipe_choice_name(by_given(v) ? (by_recipe_choice)v->v.i : BY_CHOICE_AUTO));
        return;
    }
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, types[by_variant(v)]);
    if (v->n > 1) {
        by_json_out_key(o, "name");
        by_json_out_value(o, by_field(v, 1));
    }
    by_json_out_object_end(o);
}

static by_status write_piece(by_convert *cv, void (*put)(by_json_out *, const by_json *), const by_json *v, by_str *out) {
    by_buf text = {0};
    by_json_out o = by_json_out_init(&text, BY_JSON_COMPACT);
    put(&o, v);
    *out = text.failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(&text));
    by_buf_deinit(&text);
    return out->ptr ? BY_OK : by_no_memory(cv);
}

by_status by_responses_set_echo(by_convert *cv, const by_json *body) {
    by_api_echo *e = &cv->out->echo;
    const by_json *tools = by_field(body, RB_TOOLS), *user = by_field(body, RB_USER), *top = by_field(body, RB_TOP_LOGPROBS);
    const by_json *instructions = by_field(body, RB_INSTRUCTIONS), *most = by_field(body, RB_MAX_OUTPUT_TOKENS);
    const by_json *temperature = by_field(body, RB_TEMPERATURE), *top_p = by_field(body, RB_TOP_P);
    e->has_instructions = by_given(instructions);
    if (e->has_instructions) e->instructions = instructions->v.s;
    e->has_user = by_given(user);
    if (e->has_user) e->user = user->v.s;
    e->has_max_output_tokens = by_given(most);
    if (e->has_max_output_tokens) e->max_output_tokens = (uint32_t)most->v.i;
    e->top_logprobs = by_given(top) ? (uint32_t)top->v.i : 0;
    e->temperature = by_given(temperature) ? (float)temperature->v.d : 1.0f;
    e->top_p = by_given(top_p) ? (float)top_p->v.d : 1.0f;
    BY_TRY(write_piece(cv, put_reasoning, by_field(body, RB_REASONING), &e->reasoning));
    BY_TRY(write_piece(cv, put_text, by_field(body, RB_TEXT), &e->text));
    BY_TRY(write_piece(cv, put_choice, by_field(body, RB_CHOICE), &e->tool_choice));
    e->tools = BY_STR("[]");
    return by_given(tools) ? by_responses_write_tools(cv, tools, false, by_str_of(NULL, 0), &e->tools) : BY_OK;
}

static void put_any(by_json_out *o, const by_json *v) { by_json_out_value(o, v); }

/* Fields that the original ignores, whatever they hold. */
static by_status convert_server_fields(by_convert *cv, by_json body) {
    static const by_shape_field fields[] = {{"parallel_tool_calls", &by_shape_bool, BY_FIELD_OPTIONAL},
                                            {"metadata", &by_shape_map, BY_FIELD_OPTIONAL}};
    static const by_shape shape = BY_SHAPE_STRUCT_OF(fields);
    enum { METADATA_MAX = 16 }; /* as OpenAI's */
    if (!cv->server) return BY_OK;
    BY_TRY(by_check_body(cv, &body, &shape));
    cv->one_call = by_given(by_field(&body, 0)) && !by_field(&body, 0)->v.b;
    cv->out->echo.one_call = cv->one_call;
    const by_json *metadata = by_field(&body, 1);
    if (!by_given(metadata)) return BY_OK;
    by_at(cv, "metadata");
    if (metadata->n > METADATA_MAX) return BY_REFUSE(cv, BY_STR("metadata: at most 16 entries"));
    return write_piece(cv, put_any, metadata, &cv->out->echo.metadata);
}

by_status by_convert_responses(by_convert *cv, by_json *body) {
    static const by_json none = {.type = BY_JSON_NULL};
    by_json whole = *body;
    by_responses_tools t = {0};
    BY_TRY(by_check_body(cv, body, &by_responses_body));
    BY_TRY(by_check_model(cv, by_field(body, RB_MODEL)->v.s));
    const by_json *reasoning = by_field(body, RB_REASONING), *effort = by_given(reasoning) ? by_field(reasoning, RS_EFFORT) : &none;
    by_set_thinking(cv, &none, effort);
    BY_TRY(by_begin_server_fields(cv, &whole, &none, effort));
    BY_TRY(convert_tools(cv, by_field(body, RB_TOOLS), &t));
    cv->out->namespaces = t.namespaces;
    cv->out->n_namespaces = t.n_namespaces;
    BY_TRY(convert_input(cv, body, &t));
    cv->tools = t.tools;
    cv->n_tools = t.n;
    cv->tool_places = t.places;
    BY_TRY(by_check_reasoning(cv, BY_STR("reasoning_text")));
    BY_TRY(convert_server_fields(cv, whole));
    BY_TRY(convert_choice(cv, by_field(body, RB_CHOICE)));
    BY_TRY(by_drop_unchosen_tools(cv));
    BY_TRY(convert_format(cv, by_field(body, RB_TEXT)));
    BY_TRY(convert_sampling(cv, body));
    BY_TRY(by_responses_set_echo(cv, body));
    BY_TRY(by_end_server_fields(cv, &whole));
    return by_finish_conversation(cv);
}
