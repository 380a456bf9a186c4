/* convert.c - entry of the conversions, errors, building blocks and common rules. */
#include "api/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "json/json_write.h"

void by_api_options_init(by_api_options *o) {
    *o = (by_api_options){.default_thinking = true,
                          .reject_messages_web_search = true,
                          .thinking_max_tokens = 393216,
                          .plain_max_tokens = 393216};
}

/* ---- errors ---- */

by_status by_no_memory(by_convert *cv) { return BY_FAIL(cv->err, BY_ENOMEM, "out of memory while converting a request"); }

by_status by_join(by_convert *cv, const by_str *texts, uint32_t n, by_str separator, by_str *out) {
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++) len += texts[i].len + (i ? separator.len : 0);
    char *text = by_arena_alloc(cv->arena, len + 1), *to = text;
    if (!text) return by_no_memory(cv);
    for (uint32_t i = 0; i < n; i++) {
        if (i && separator.len) to = (char *)memcpy(to, separator.ptr, separator.len) + separator.len;
        if (texts[i].len) to = (char *)memcpy(to, texts[i].ptr, texts[i].len) + texts[i].len;
    }
    *to = '\0';
    *out = by_str_of(text, len);
    return BY_OK;
}

static by_status name_place(by_convert *cv, by_str *out) {
    by_buf text = {0};
    by_buf_push_z(&text, cv->at.head);
    if (cv->at.i >= 0) by_buf_printf(&text, "[%lld]", (long long)cv->at.i);
    if (cv->at.mid) by_buf_push_z(&text, cv->at.mid);
    if (cv->at.k >= 0) by_buf_printf(&text, "[%lld]", (long long)cv->at.k);
    if (cv->at.tail) by_buf_push_z(&text, cv->at.tail);
    *out = text.failed ? (by_str){0} : by_arena_dup(cv->arena, by_buf_str(&text));
    by_buf_deinit(&text);
    return out->ptr ? BY_OK : by_no_memory(cv);
}

by_status by_refuse_parts(by_convert *cv, const by_str *parts, uint32_t n) {
    bool placed = cv->server && cv->at.head;
    *cv->error = (by_api_error){
        .kind = BY_API_REFUSED, .http_status = 400, .code = placed ? "invalid_value" : "invalid_request_error"};
    if (placed) BY_TRY(name_place(cv, &cv->error->param));
    BY_TRY(by_join(cv, parts, n, by_str_of(NULL, 0), &cv->error->message));
    /* places of pictures begin with a dot in the original */
    if (cv->server && by_str_starts(cv->error->message, BY_STR("."))) cv->error->message = by_str_skip(cv->error->message, 1);
    return BY_EINVAL;
}

by_str by_number_text(by_convert *cv, uint64_t n) {
    char text[24];
    int len = snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return by_arena_dup(cv->arena, by_str_of(text, (size_t)len));
}

void by_api_error_write(by_buf *out, const by_api_error *e) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "error");
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "message");
    by_json_out_string(&o, e->message);
    by_json_out_key(&o, "type");
    by_json_out_z(&o, "invalid_request_error");
    by_json_out_key(&o, "param");
    if (e->param.len) by_json_out_string(&o, e->param);
    else by_json_out_null(&o);
    by_json_out_key(&o, "code");
    by_json_out_z(&o, e->code);
    by_json_out_object_end(&o);
    by_json_out_object_end(&o);
}

static by_status fail_body(by_convert *cv, by_api_error_kind kind, by_str prefix, by_str message) {
    *cv->error = (by_api_error){.kind = kind, .http_status = 400, .code = "invalid_request_error"};
    const by_str parts[] = {prefix, message};
    BY_TRY(by_join(cv, parts, 2, by_str_of(NULL, 0), &cv->error->message));
    return BY_EINVAL;
}

by_status by_check_body(by_convert *cv, by_json *body, const by_shape *shape) {
    by_buf message = {0}, param = {0};
    by_shape_job job = {
        .arena = cv->arena, .message = &message, .param = cv->server ? &param : NULL, .err = cv->err, .server = cv->server};
    by_status status = by_shape_check(&job, body, shape);
    if (status == BY_EINVAL)
        status = fail_body(cv, BY_API_BAD_BODY, BY_STR("invalid request body: "), by_buf_str(&message));
    if (status == BY_EINVAL && cv->server) {
        cv->error->code = job.code;
        cv->error->param = by_arena_dup(cv->arena, by_buf_str(&param));
        if (!cv->error->param.ptr) status = by_no_memory(cv);
    }
    by_buf_deinit(&message);
    by_buf_deinit(&param);
    return status;
}

/* ---- entry ---- */

static by_status read_body(by_convert *cv, by_str text, by_json *body) {
    static const by_json_opts opts = {
        .depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = BY_LIMIT_REQUEST_BYTES, .merge_keys = true};
    by_err why = {0};
    by_status status = by_json_parse(body, cv->arena, text, &opts, &why);
    if (status == BY_OK) return BY_OK;
    if (status == BY_ENOMEM) return by_no_memory(cv);
    return fail_body(cv, BY_API_BAD_JSON, BY_STR("invalid JSON request: "), by_str_z(why.msg));
}

by_status by_api_convert(by_api_converted *out, by_api_error *error, by_arena *arena, by_api_kind api, by_str body,
                         const by_api_options *options, by_err *err) {
    *out = (by_api_converted){.api = api};
    *error = (by_api_error){0};
    out->inference = (by_api_inference){
        .temperature = 1, .top_p = 1, .n = 1, .best_of = 1, .repetition_penalty = 1, .top_k = -1};
    by_convert cv = {.arena = arena, .opt = options, .out = out, .error = error, .err = err};
    cv.server = options->profile == BY_API_SERVER;
    by_json json;
    BY_TRY(read_body(&cv, body, &json));
    switch (api) {
    case BY_API_CHAT: return by_convert_chat(&cv, &json);
    case BY_API_RESPONSES: return by_convert_responses(&cv, &json);
    case BY_API_MESSAGES: return by_convert_messages(&cv, &json);
    case BY_API_COMPLETIONS: return by_convert_completions(&cv, &json);
    }
    return BY_FAIL(err, BY_EINTERNAL, "unknown API %d", (int)api);
}

/* ---- building ---- */

void *by_make(by_convert *cv, size_t n, size_t item) { return by_arena_zero(cv->arena, by_mul_size(n, item)); }

by_status by_add_message(by_convert *cv, by_recipe_role role, by_recipe_message **out) {
    if (cv->n_messages >= BY_LIMIT_MESSAGES)
        return BY_REFUSE(cv, BY_STR("Too many messages: the limit is "), by_number_text(cv, BY_LIMIT_MESSAGES));
    if (cv->n_messages == cv->cap_messages) {
        uint32_t cap = cv->cap_messages ? cv->cap_messages * 2 : 32;
        by_recipe_message *fresh = by_arena_alloc(cv->arena, cap * sizeof *fresh);
        if (!fresh) return by_no_memory(cv);
        if (cv->n_messages) memcpy(fresh, cv->messages, cv->n_messages * sizeof *fresh);
        cv->messages = fresh;
        cv->cap_messages = cap;
    }
    *out = &cv->messages[cv->n_messages++];
    **out = (by_recipe_message){.role = role};
    return BY_OK;
}

by_status by_content_begin(by_convert *cv, by_content *c, uint32_t n_parts) {
    *c = (by_content){.cap = n_parts ? 2 * n_parts - 1 : 0};
    c->pieces = BY_MAKE(cv, by_recipe_piece, c->cap);
    return c->pieces ? BY_OK : by_no_memory(cv);
}

void by_content_text(by_content *c, by_str text) {
    if (c->n) c->pieces[c->n++].text = BY_STR("\n\n");
    c->pieces[c->n++].text = text;
}

void by_content_image(by_convert *cv, by_content *c, const by_recipe_image *image) {
    if (cv->out->version == BY_RECIPE_V4) {
        by_content_text(c, BY_STR("[Unsupported Image]"));
        return;
    }
    by_content_text(c, by_str_of(NULL, 0));
    c->pieces[c->n - 1].image = image;
}

by_recipe_text by_content_end(const by_content *c) { return (by_recipe_text){c->pieces, c->n}; }

by_status by_content_of_string(by_convert *cv, by_str text, by_recipe_text *out) {
    by_content c;
    BY_TRY(by_content_begin(cv, &c, 1));
    by_content_text(&c, text);
    *out = by_content_end(&c);
    return BY_OK;
}

/* ---- model ---- */

static const by_api_model_name default_models[] = {
    {BY_STR("DeepSeek-V4-Pro"), BY_RECIPE_V4},
    {BY_STR("DeepSeek-V4.1-Flash"), BY_RECIPE_V41},
};

/* Accepted names in byte order, comma separated. */
static by_status refuse_model(by_convert *cv, by_str model, const by_api_model_name *models, uint32_t n) {
    by_str *names = BY_MAKE(cv, by_str, n);
    if (!names) return by_no_memory(cv);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && by_str_cmp(names[at - 1], models[i].name) > 0; at--) names[at] = names[at - 1];
        names[at] = models[i].name;
    }
    by_str list;
    BY_TRY(by_join(cv, names, n, BY_STR(", "), &list));
    by_at(cv, "model");
    by_status status =
        BY_REFUSE(cv, BY_STR("The supported API model names are "), list, BY_STR(", but you passed "), model, BY_STR("."));
    if (cv->opt->profile == BY_API_SERVER) { /* what the clients of OpenAI and Anthropic expect */
        cv->error->http_status = 404;
        cv->error->code = "model_not_found";
    }
    return status;
}

by_status by_check_model(by_convert *cv, by_str model) {
    const by_api_model_name *models = cv->opt->models ? cv->opt->models : default_models;
    uint32_t n = cv->opt->models ? cv->opt->n_models : BY_COUNT(default_models);
    cv->out->model = model;
    for (uint32_t i = 0; i < n; i++) {
        if (!by_str_eq(models[i].name, model)) continue;
        cv->out->version = models[i].version;
        return BY_OK;
    }
    return refuse_model(cv, model, models, n);
}

/* ---- thinking ---- */

static const char *const thinking_words[] = {"adaptive", "enabled", "disabled"};
static const by_shape thinking_type = BY_SHAPE_WORD_OF(thinking_words);
static const by_shape_field thinking_fields[] = {
    {"type", &thinking_type, BY_FIELD_REQUIRED},
    {"budget_tokens", &by_shape_u64, BY_FIELD_OPTIONAL},
};
const by_shape by_shape_thinking = BY_SHAPE_STRUCT_OF(thinking_fields);

static const char *const effort_words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"};
static const by_shape effort_word = BY_SHAPE_WORD_OF(effort_words);

static by_status check_effort(by_shape_job *job, by_json *v) {
    int64_t n;
    if (!job->server || !by_json_is_number(v)) return by_shape_check(job, v, &effort_word);
    if (!by_json_int_in(v, 1, 100, &n)) return by_shape_fail(job, "expected a word or an integer from 1 to 100", v);
    *v = (by_json){.type = BY_JSON_INT, .v.i = 100 + n};
    return BY_OK;
}
const by_shape by_shape_effort = {.kind = BY_SHAPE_CUSTOM, .check = check_effort};

void by_set_thinking(by_convert *cv, const by_json *thinking, const by_json *effort) {
    static const by_recipe_effort efforts[] = {
        [BY_WORD_NONE] = BY_EFFORT_HIGH,   [BY_WORD_MINIMAL] = BY_EFFORT_LOW,  [BY_WORD_LOW] = BY_EFFORT_LOW,
        [BY_WORD_MEDIUM] = BY_EFFORT_HIGH, [BY_WORD_HIGH] = BY_EFFORT_HIGH,    [BY_WORD_XHIGH] = BY_EFFORT_XHIGH,
        [BY_WORD_ULTRA] = BY_EFFORT_MAX,   [BY_WORD_MAX] = BY_EFFORT_MAX,
    };
    by_recipe_conversation *c = &cv->out->conversation;
    bool has_effort = by_given(effort);
    int64_t word = has_effort ? effort->v.i : BY_WORD_HIGH;
    if (by_given(thinking)) c->thinking = by_field(thinking, 0)->v.i != 2; /* not "disabled" */
    else if (has_effort) c->thinking = word != BY_WORD_NONE;
    else c->thinking = cv->opt->default_thinking;
    if (!c->thinking) return;
    if (word > 100) {
        c->effort = BY_EFFORT_NUMBER;
        c->effort_number = (int32_t)(word - 100);
    } else {
        c->effort = efforts[word];
    }
}

/* ---- sampling ---- */

by_status by_set_penalty(by_convert *cv, const by_json *v, const char *name, float *out) {
    if (!by_given(v)) return BY_OK;
    by_at(cv, name);
    if (!(v->v.d >= -2 && v->v.d <= 2))
        return BY_REFUSE(cv, BY_STR("Invalid "), by_str_z(name), BY_STR(" value, the valid range of "), by_str_z(name),
                         BY_STR(" is [-2, 2]"));
    if (cv->server) *out = (float)v->v.d;
    return BY_OK;
}

by_status by_set_seed(by_convert *cv, const by_json *v) {
    if (!by_given(v)) return BY_OK;
    by_at(cv, "seed");
    if (v->type == BY_JSON_UINT)
        return BY_REFUSE(cv, BY_STR("Invalid seed value, the valid range of seed is ["), cv->server ? BY_STR("-2^63") : BY_STR("0"),
                         BY_STR(", 2^63)"));
    cv->out->inference.has_seed = true;
    cv->out->inference.seed = (uint64_t)v->v.i;
    return BY_OK;
}

by_status by_set_temperature(by_convert *cv, const by_json *v) {
    if (!by_given(v)) return BY_OK;
    by_at(cv, "temperature");
    if (!(v->v.d >= 0 && v->v.d <= 2))
        return BY_REFUSE(cv, BY_STR("Invalid temperature value, the valid range of temperature is [0, 2]"));
    if (!cv->out->conversation.thinking || cv->honour)
        cv->out->inference.temperature = (float)v->v.d;
    return BY_OK;
}

by_status by_set_top_p(by_convert *cv, const by_json *v) {
    const by_recipe_conversation *c = &cv->out->conversation;
    float asked = by_given(v) ? (float)v->v.d : 1.0f;
    by_at(cv, "top_p");
    if (!(asked > 0 && asked <= 1))
        return BY_REFUSE(cv, BY_STR("Invalid top_p value, the valid range of top_p is (0, 1.0]"));
    float *top_p = &cv->out->inference.top_p;
    if (cv->honour) *top_p = asked;
    else if (cv->out->version == BY_RECIPE_V41) *top_p = c->thinking && asked > 0.95f ? asked : c->thinking ? 0.95f : 1.0f;
    else if (c->thinking) *top_p = c->n_tools ? 0.95f : 1.0f;
    else *top_p = asked;
    return BY_OK;
}

by_status by_set_max_tokens(by_convert *cv, const by_json *v, const char *name, bool lower) {
    if (!by_given(v)) return BY_OK;
    by_at(cv, name);
    uint32_t bound = cv->out->conversation.thinking ? cv->opt->thinking_max_tokens : cv->opt->plain_max_tokens;
    uint32_t n = (uint32_t)v->v.i;
    if (n == 0 || (n > bound && !lower))
        return BY_REFUSE(cv, BY_STR("Invalid max_tokens value, the valid range of max_tokens is [1, "),
                         by_number_text(cv, bound), BY_STR("]"));
    cv->out->inference.has_max_tokens = true;
    cv->out->inference.max_tokens = n < bound ? n : bound;
    return BY_OK;
}

static by_status refuse_empty_stop(by_convert *cv, by_str place) {
    return BY_REFUSE(cv, BY_STR("Invalid '"), place,
                     BY_STR("': empty string. Expected a string with minimum length 1, but got an empty string instead."));
}

by_status by_set_stop(by_convert *cv, const by_json *stop) {
    enum { STOPS_MAX = 16 };
    if (!by_given(stop)) return BY_OK;
    bool one = stop->type == BY_JSON_STRING;
    uint32_t n = one ? 1 : stop->n;
    by_at(cv, cv->out->api == BY_API_MESSAGES ? "stop_sequences" : "stop");
    if (n > STOPS_MAX)
        return BY_REFUSE_CODE(cv, "array_above_max_length", BY_STR("Stop string array too long: "), by_number_text(cv, n));
    by_str *stops = BY_MAKE(cv, by_str, n);
    if (!stops) return by_no_memory(cv);
    for (uint32_t i = 0; i < n; i++) {
        stops[i] = one ? stop->v.s : stop->v.items[i].v.s;
        if (stops[i].len) continue;
        by_str place = BY_STR("stop");
        const by_str parts[] = {BY_STR("stop["), by_number_text(cv, i), BY_STR("]")};
        if (!one) BY_TRY(by_join(cv, parts, 3, by_str_of(NULL, 0), &place));
        if (!one) cv->at.i = i;
        return refuse_empty_stop(cv, place);
    }
    cv->out->parsing.stops = stops;
    cv->out->parsing.n_stops = n;
    return BY_OK;
}

/* ---- messages ---- */

static bool has_word_json(by_str s) {
    for (size_t i = 0; i + 4 <= s.len; i++)
        if ((s.ptr[i] | 32) == 'j' && (s.ptr[i + 1] | 32) == 's' && (s.ptr[i + 2] | 32) == 'o' && (s.ptr[i + 3] | 32) == 'n')
            return true;
    return false;
}

bool by_mentions_json(const by_convert *cv) {
    for (uint32_t i = 0; i < cv->n_messages; i++) {
        by_recipe_text t = cv->messages[i].content;
        for (uint32_t k = 0; k < t.n; k++)
            if (!t.pieces[k].image && has_word_json(t.pieces[k].text)) return true;
    }
    return false;
}

by_status by_check_reasoning(by_convert *cv, by_str field) {
    const by_recipe_conversation *c = &cv->out->conversation;
    if (!cv->opt->reject_missing_reasoning || !c->thinking) return BY_OK;
    for (uint32_t i = cv->n_messages; i-- > 0;) {
        const by_recipe_message *m = &cv->messages[i];
        if (m->role == BY_ROLE_USER) break;
        if (m->role != BY_ROLE_ASSISTANT || m->has_reasoning || !(cv->n_tools || m->n_calls)) continue;
        by_at(cv, cv->out->api == BY_API_RESPONSES ? "input" : "messages");
        return BY_REFUSE(cv, BY_STR("The `"), field, BY_STR("` in the thinking mode must be passed back to the API."));
    }
    return BY_OK;
}

/* ---- the end ---- */

static by_status set_constraint(by_convert *cv) {
    const by_recipe_conversation *c = &cv->out->conversation;
    by_api_constraint *constraint = &cv->out->inference.constraint;
    if (c->n_tools && c->choice != BY_CHOICE_NONE) {
        constraint->kind = c->choice == BY_CHOICE_REQUIRED ? "tool_call_required" : "tool_call";
        return by_tools_constraint(cv, &constraint->text);
    }
    switch (c->format) {
    case BY_FORMAT_TEXT: break;
    case BY_FORMAT_JSON_OBJECT: constraint->kind = "json"; break;
    case BY_FORMAT_JSON_SCHEMA: constraint->kind = "json"; break; /* the text was set with the format */
    case BY_FORMAT_REGEX:
        constraint->kind = "regex";
        constraint->text = c->regex;
        break;
    }
    return BY_OK;
}

static by_stage first_stage(const by_recipe_conversation *c) {
    if (!c->thinking) return BY_STAGE_NONE;
    const by_recipe_message *last = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;
    if (!last || last->role != BY_ROLE_ASSISTANT || !last->prefix) return BY_STAGE_REASONING_START;
    if (!by_recipe_text_is_empty(last->content)) return BY_STAGE_CONTENT_CONTINUATION;
    return last->reasoning.len ? BY_STAGE_REASONING_CONTINUATION : BY_STAGE_REASONING_START;
}

/* In thinking mode every assistant message has reasoning, maybe empty; outside it none has. */
static void settle_reasoning(by_convert *cv) {
    bool thinking = cv->out->conversation.thinking;
    for (uint32_t i = 0; i < cv->n_messages; i++) {
        by_recipe_message *m = &cv->messages[i];
        if (m->role != BY_ROLE_ASSISTANT) continue;
        m->has_reasoning = thinking;
        if (!thinking) m->reasoning = by_str_of(NULL, 0);
    }
}

static int compare_call_ids(const void *a, const void *b) {
    const by_recipe_call *x = a, *y = b;
    return by_str_cmp(x->id, y->id);
}

/* The original keeps the calls of Responses requests in the order of their ids. */
static by_status order_calls(by_convert *cv) {
    for (uint32_t i = 0; i < cv->n_messages; i++) {
        by_recipe_message *m = &cv->messages[i];
        if (m->n_calls < 2) continue;
        by_recipe_call *ordered = BY_MAKE(cv, by_recipe_call, m->n_calls);
        if (!ordered) return by_no_memory(cv);
        memcpy(ordered, m->calls, m->n_calls * sizeof *ordered);
        qsort(ordered, m->n_calls, sizeof *ordered, compare_call_ids); /* ids are unique in a message */
        m->calls = ordered;
    }
    return BY_OK;
}

by_status by_finish_conversation(by_convert *cv) {
    by_recipe_conversation *c = &cv->out->conversation;
    settle_reasoning(cv);
    if (cv->out->api == BY_API_RESPONSES) BY_TRY(order_calls(cv));
    c->messages = cv->messages;
    c->n_messages = cv->n_messages;
    by_parser_opts *p = &cv->out->parsing;
    p->parse_calls = c->n_tools && c->choice != BY_CHOICE_NONE;
    p->starts_in_calls = p->parse_calls && c->choice == BY_CHOICE_REQUIRED;
    p->most_calls = cv->server && cv->one_call ? 1 : 0;
    p->json_output = c->format == BY_FORMAT_JSON_OBJECT;
    p->stage = first_stage(c);
    const by_recipe_specials *specials = cv->opt->specials;
    if (specials) {
        p->thinking_end = specials->text[BY_SPECIAL_THINKING_END];
        p->dsml = specials->text[BY_SPECIAL_DSML];
    }
    BY_TRY(set_constraint(cv));
    return cv->server ? by_set_grammar(cv) : BY_OK;
}
