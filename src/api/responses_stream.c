/* responses_stream.c - Responses: events and the whole object. Output is a row of items, one open at a time; an item is opened
 * by its first text and its JSON is kept when it is done, because the last event repeats the whole response. */
#include "api/api_stream_impl.h"
#include "api/custom_input.h"
#include "recipe/logprob_json.h"

/* ---- which calls are what: from the request's tools ---- */

static by_status find_tools(by_api_stream *s, by_err *err) {
    by_str tools = s->request->echo.tools;
    if (tools.len == 0) return BY_OK;
    by_json list;
    BY_TRY(by_json_parse(&list, &s->arena, tools, NULL, err));
    if (list.type != BY_JSON_ARRAY) return BY_OK;
    s->custom_tools = by_arena_alloc(&s->arena, by_mul_size(list.n, sizeof *s->custom_tools));
    if (!s->custom_tools) return BY_FAIL(err, BY_ENOMEM, "out of memory for a response stream");
    for (uint32_t i = 0; i < list.n; i++) {
        const by_json *type = by_json_get(&list.v.items[i], "type"), *name = by_json_get(&list.v.items[i], "name");
        if (!by_json_is(type, BY_JSON_STRING)) continue;
        if (by_str_eqz(type->v.s, "custom") && by_json_is(name, BY_JSON_STRING))
            s->custom_tools[s->n_custom_tools++] = name->v.s;
        const by_json *execution = by_json_get(&list.v.items[i], "execution");
        if (by_str_eqz(type->v.s, "tool_search") && by_json_is(execution, BY_JSON_STRING) &&
            by_str_eqz(execution->v.s, "client"))
            s->has_search_tool = true;
    }
    return BY_OK;
}

static by_item_kind kind_of_call(const by_api_stream *s, by_str name) {
    for (uint32_t i = 0; i < s->n_custom_tools; i++)
        if (by_str_eq(s->custom_tools[i], name)) return BY_ITEM_CUSTOM;
    return s->has_search_tool && by_str_eqz(name, "tool_search") ? BY_ITEM_SEARCH : BY_ITEM_CALL;
}

/* ---- items ---- */

static void put_words(by_buf *b, const char *key, const char *word) {
    BY_API_LITERAL(b, ",\"");
    by_buf_push_z(b, key);
    BY_API_LITERAL(b, "\":\"");
    by_buf_push_z(b, word);
    by_buf_push_byte(b, '"');
}

static void put_text(by_buf *b, const char *key, by_str text) {
    BY_API_LITERAL(b, ",\"");
    by_buf_push_z(b, key);
    BY_API_LITERAL(b, "\":");
    by_json_write_string(b, text);
}

/* {"type":"reasoning_text","text":...} or {"type":"output_text",...}; empty: as the part begins. */
static void put_part(by_api_stream *s, bool empty) {
    by_buf *b = &s->out;
    by_str text = empty ? BY_STR("") : by_buf_str(&s->item_text);
    if (s->item == BY_ITEM_REASONING) {
        BY_API_LITERAL(b, "{\"type\":\"reasoning_text\"");
    } else {
        BY_API_LITERAL(b, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
        if (!empty) by_buf_push_str(b, by_buf_str(&s->item_logprobs));
        by_buf_push_byte(b, ']');
    }
    put_text(b, "text", text);
    by_buf_push_byte(b, '}');
}

static bool is_completed(const char *status) { return status[0] == 'c'; }

/* The open item. status "in_progress" is the item as it begins, without its text. */
static void put_item(by_api_stream *s, const char *status, const char *phase, bool empty) {
    static const char *const types[] = {"reasoning", "message", "function_call", "custom_tool_call", "tool_search_call"};
    by_buf *b = &s->out;
    by_str text = empty ? BY_STR("") : by_buf_str(&s->item_text);
    BY_API_LITERAL(b, "{\"type\":\"");
    by_buf_push_z(b, types[s->item]);
    by_buf_push_byte(b, '"');
    put_text(b, "id", by_buf_str(&s->item_id));
    put_words(b, "status", status);
    switch (s->item) {
    case BY_ITEM_REASONING:
        BY_API_LITERAL(b, ",\"content\":[");
        if (!empty) put_part(s, false);
        BY_API_LITERAL(b, "],\"summary\":[],\"encrypted_content\":\"");
        by_json_write_escaped(b, s->id);
        by_buf_push_byte(b, '-');
        by_json_write_uint(b, s->n_items - 1);
        by_buf_push_byte(b, '"');
        break;
    case BY_ITEM_MESSAGE:
        BY_API_LITERAL(b, ",\"role\":\"assistant\"");
        put_words(b, "phase", phase);
        BY_API_LITERAL(b, ",\"content\":[");
        if (!empty) put_part(s, false);
        by_buf_push_byte(b, ']');
        break;
    case BY_ITEM_CALL:
    case BY_ITEM_CUSTOM:
        put_text(b, "call_id", s->call_id);
        put_text(b, "name", s->call_name);
        if (s->call_namespace.ptr) put_text(b, "namespace", s->call_namespace);
        put_text(b, s->item == BY_ITEM_CALL ? "arguments" : "input", text);
        break;
    case BY_ITEM_SEARCH:
        put_text(b, "call_id", s->call_id);
        BY_API_LITERAL(b, ",\"execution\":\"client\",\"arguments\":");
        if (is_completed(status)) by_api_write_arguments(b, text);
        else BY_API_LITERAL(b, "{}");
        break;
    }
    by_buf_push_byte(b, '}');
}

/* ---- events ---- */

static void begin_event(by_api_stream *s, const char *name) {
    BY_API_LITERAL(&s->out, "{\"type\":\"");
    by_buf_push_z(&s->out, name);
    by_buf_push_byte(&s->out, '"');
}

static void end_event(by_api_stream *s, const char *name) {
    BY_API_LITERAL(&s->out, ",\"sequence_number\":");
    by_json_write_uint(&s->out, s->sequence++);
    by_buf_push_byte(&s->out, '}');
    by_api_stream_emit(s, name);
}

static void put_index(by_api_stream *s) {
    BY_API_LITERAL(&s->out, ",\"output_index\":");
    by_json_write_uint(&s->out, s->n_items - 1);
}

static void put_id(by_api_stream *s) { put_text(&s->out, "item_id", by_buf_str(&s->item_id)); }

static void item_event(by_api_stream *s, const char *name, const char *status, const char *phase, bool empty) {
    begin_event(s, name);
    BY_API_LITERAL(&s->out, ",\"item\":");
    put_item(s, status, phase, empty);
    put_index(s);
    end_event(s, name);
}

static void part_event(by_api_stream *s, const char *name, bool empty) {
    begin_event(s, name);
    BY_API_LITERAL(&s->out, ",\"content_index\":0");
    put_id(s);
    put_index(s);
    BY_API_LITERAL(&s->out, ",\"part\":");
    put_part(s, empty);
    end_event(s, name);
}

static void put_logprobs(by_api_stream *s, by_str logprobs) {
    BY_API_LITERAL(&s->out, ",\"logprobs\":[");
    by_buf_push_str(&s->out, logprobs);
    by_buf_push_byte(&s->out, ']');
}

/* A piece of the open item's text. */
static void text_delta(by_api_stream *s, by_str text, by_str logprobs) {
    static const char *const names[] = {"response.reasoning_text.delta", "response.output_text.delta",
                                        "response.function_call_arguments.delta",
                                        "response.custom_tool_call_input.delta"};
    by_buf_push_str(&s->item_text, text);
    if (logprobs.len) {
        if (s->item_logprobs.len) by_buf_push_byte(&s->item_logprobs, ',');
        by_buf_push_str(&s->item_logprobs, logprobs);
    }
    if (s->item == BY_ITEM_SEARCH || (s->item == BY_ITEM_CUSTOM && text.len == 0)) return;
    begin_event(s, names[s->item]);
    if (s->item <= BY_ITEM_MESSAGE) BY_API_LITERAL(&s->out, ",\"content_index\":0");
    put_text(&s->out, "delta", text);
    put_id(s);
    if (s->item == BY_ITEM_MESSAGE) put_logprobs(s, logprobs);
    put_index(s);
    end_event(s, names[s->item]);
}

static void open_item(by_api_stream *s, by_item_kind kind) {
    static const char *const prefixes[] = {"rs_", "msg_", "fc_", "ctc_", "tsc_"};
    s->item = kind;
    s->item_open = true;
    by_buf_clear(&s->item_text);
    by_buf_clear(&s->item_logprobs);
    by_buf_clear(&s->item_id);
    by_buf_push_z(&s->item_id, prefixes[kind]);
    by_buf_push_str(&s->item_id, s->id);
    by_buf_push_byte(&s->item_id, '_');
    by_json_write_uint(&s->item_id, s->n_items++);
    item_event(s, "response.output_item.added", "in_progress", "final_answer", true);
    if (kind <= BY_ITEM_MESSAGE) part_event(s, "response.content_part.added", true);
}

static void text_done(by_api_stream *s) {
    static const char *const names[] = {"response.reasoning_text.done", "response.output_text.done",
                                        "response.function_call_arguments.done",
                                        "response.custom_tool_call_input.done"};
    const char *name = names[s->item];
    begin_event(s, name);
    switch (s->item) {
    case BY_ITEM_REASONING:
    case BY_ITEM_MESSAGE:
        BY_API_LITERAL(&s->out, ",\"content_index\":0");
        put_id(s);
        if (s->item == BY_ITEM_MESSAGE) put_logprobs(s, by_buf_str(&s->item_logprobs));
        put_index(s);
        break;
    default:
        put_text(&s->out, s->item == BY_ITEM_CALL ? "arguments" : "input", by_buf_str(&s->item_text));
        put_id(s);
        put_index(s);
        break;
    }
    /* These two have their text behind the sequence number. */
    if (s->item > BY_ITEM_MESSAGE) {
        end_event(s, name);
        return;
    }
    BY_API_LITERAL(&s->out, ",\"sequence_number\":");
    by_json_write_uint(&s->out, s->sequence++);
    put_text(&s->out, "text", by_buf_str(&s->item_text));
    by_buf_push_byte(&s->out, '}');
    by_api_stream_emit(s, name);
}

static void close_item(by_api_stream *s, const char *status, const char *phase) {
    if (!s->item_open) return;
    if (s->item == BY_ITEM_CUSTOM) {
        by_buf_clear(&s->scratch);
        by_custom_input_end(&s->custom, &s->scratch);
        text_delta(s, by_buf_str(&s->scratch), BY_STR(""));
    }
    if (s->item == BY_ITEM_SEARCH) {
        /* Its arguments are shown as an object, so they have to be one. */
        by_buf_clear(&s->scratch);
        if (!by_api_write_arguments(&s->scratch, by_buf_str(&s->item_text))) status = "incomplete";
    } else {
        text_done(s);
    }
    if (s->item <= BY_ITEM_MESSAGE) part_event(s, "response.content_part.done", false);
    /* The item's JSON is written once, into the list of done items, and the event takes it from there. */
    by_buf *done = &s->done_items;
    if (done->len) by_buf_push_byte(done, ',');
    size_t from = s->out.len;
    put_item(s, status, phase, false);
    by_str json = by_str_of(s->out.ptr + from, s->out.len - from);
    bool ok = !s->out.failed && by_buf_push_str(done, json);
    s->out.len = from;
    begin_event(s, "response.output_item.done");
    BY_API_LITERAL(&s->out, ",\"item\":");
    if (ok) by_buf_push_str(&s->out, by_str_skip(by_buf_str(done), done->len - json.len));
    put_index(s);
    end_event(s, "response.output_item.done");
    s->item_open = false;
}

static void open_call(by_api_stream *s, const by_answer_delta *d) {
    by_str name = d->d.text;
    s->call_namespace = (by_str){NULL, 0};
    for (uint32_t i = 0; i < s->request->n_namespaces; i++) {
        const by_api_namespace *n = &s->request->namespaces[i];
        if (!by_str_eq(n->mapped, d->d.text)) continue;
        name = n->local;
        s->call_namespace = n->ns;
    }
    s->call_id = by_arena_dup(&s->arena, d->call_id);
    s->call_name = by_arena_dup(&s->arena, name);
    if (!s->call_id.ptr || !s->call_name.ptr) s->failed = true;
    by_custom_input_begin(&s->custom);
    open_item(s, s->call_namespace.ptr ? BY_ITEM_CALL : kind_of_call(s, d->d.text));
}

static void delta(by_api_stream *s, const by_answer_delta *d) {
    by_item_kind kind = d->d.kind == BY_DELTA_REASONING ? BY_ITEM_REASONING : BY_ITEM_MESSAGE;
    switch (d->d.kind) {
    case BY_DELTA_REASONING:
    case BY_DELTA_CONTENT:
        if (!s->item_open || s->item != kind) {
            close_item(s, "completed", "final_answer");
            open_item(s, kind);
        }
        text_delta(s, d->d.text, kind == BY_ITEM_MESSAGE && d->has_logprobs ? d->logprobs : BY_STR(""));
        break;
    case BY_DELTA_CALL:
        close_item(s, "completed", "commentary");
        open_call(s, d);
        break;
    case BY_DELTA_ARGS:
        if (s->item != BY_ITEM_CUSTOM) {
            text_delta(s, d->d.text, BY_STR(""));
            break;
        }
        by_buf_clear(&s->scratch);
        by_custom_input_push(&s->custom, d->d.text, &s->scratch);
        text_delta(s, by_buf_str(&s->scratch), BY_STR(""));
        break;
    }
}

/* ---- the response object ---- */

static void put_raw(by_json_out *o, const char *key, by_str json, const char *otherwise) {
    by_json_out_key(o, key);
    by_json_out_raw(o, json.len ? json : by_str_z(otherwise));
}

static void put_null(by_json_out *o, const char *key) {
    by_json_out_key(o, key);
    by_json_out_null(o);
}

static void put_float(by_json_out *o, const char *key, float v) {
    by_json_out_key(o, key);
    by_float_write(o->buf, v);
    o->comma = true;
}

static void put_usage(by_json_out *o, const by_answer_usage *u) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "input_tokens");
    by_json_out_uint(o, u->prompt_tokens);
    by_json_out_key(o, "input_tokens_details");
    by_json_out_object_begin(o);
    by_json_out_key(o, "cached_tokens");
    by_json_out_uint(o, u->cached_tokens);
    by_json_out_object_end(o);
    by_json_out_key(o, "output_tokens");
    by_json_out_uint(o, u->completion_tokens);
    by_json_out_key(o, "output_tokens_details");
    by_json_out_object_begin(o);
    by_json_out_key(o, "reasoning_tokens");
    by_json_out_uint(o, u->counts_reasoning ? u->reasoning_tokens : 0);
    by_json_out_object_end(o);
    by_json_out_key(o, "total_tokens");
    by_json_out_uint(o, u->prompt_tokens + u->completion_tokens);
    by_json_out_object_end(o);
}

static bool is_incomplete(const by_api_stream *s) {
    return s->ended && (s->end.kind == BY_END_LENGTH || s->end.kind == BY_END_FILTER);
}

static const char *status_word(const by_api_stream *s) {
    return !s->ended ? "in_progress" : is_incomplete(s) ? "incomplete" : "completed";
}

static void put_own_id(by_json_out *o, const char *key, by_str id) {
    by_json_out_key(o, key);
    if (id.len) by_json_out_string(o, id);
    else by_json_out_null(o);
}

static void put_response_front(by_json_out *o, const by_api_stream *s) {
    const by_api_echo *e = &s->request->echo;
    by_json_out_key(o, "id");
    by_json_out_string(o, s->id);
    by_json_out_key(o, "object");
    by_json_out_z(o, "response");
    by_json_out_key(o, "created_at");
    by_json_out_int(o, s->created);
    by_json_out_key(o, "status");
    by_json_out_z(o, status_word(s));
    by_json_out_key(o, "background");
    by_json_out_bool(o, e->background);
    by_json_out_key(o, "completed_at");
    if (s->ended) by_json_out_int(o, s->completed_at);
    else by_json_out_null(o);
    put_null(o, "content_filters");
    put_null(o, "error");
    put_float(o, "frequency_penalty", 0);
    by_json_out_key(o, "incomplete_details");
    if (is_incomplete(s))
        by_json_out_raw(o, s->end.kind == BY_END_LENGTH ? BY_STR("{\"reason\":\"max_output_tokens\"}")
                                                        : BY_STR("{\"reason\":\"content_filter\"}"));
    else by_json_out_null(o);
    by_json_out_key(o, "instructions");
    if (e->has_instructions) by_json_out_string(o, e->instructions);
    else by_json_out_null(o);
    by_json_out_key(o, "max_output_tokens");
    if (e->has_max_output_tokens) by_json_out_uint(o, e->max_output_tokens);
    else by_json_out_null(o);
    put_null(o, "max_tool_calls");
    by_json_out_key(o, "model");
    by_json_out_string(o, s->request->model);
    put_null(o, "moderation");
}

static void put_response_back(by_json_out *o, const by_api_stream *s) {
    const by_api_echo *e = &s->request->echo;
    by_json_out_key(o, "parallel_tool_calls");
    by_json_out_bool(o, !e->one_call);
    put_float(o, "presence_penalty", 0);
    put_own_id(o, "previous_response_id", e->previous_response_id);
    put_null(o, "prompt_cache_key");
    put_null(o, "prompt_cache_retention");
    put_raw(o, "reasoning", e->reasoning, "{\"effort\":null,\"summary\":null}");
    put_null(o, "safety_identifier");
    by_json_out_key(o, "service_tier");
    by_json_out_z(o, "default");
    by_json_out_key(o, "store");
    by_json_out_bool(o, e->store);
    put_float(o, "temperature", e->temperature);
    put_raw(o, "text", e->text, "{\"format\":{\"type\":\"text\"},\"verbosity\":null}");
    put_raw(o, "tool_choice", e->tool_choice, "\"auto\"");
    put_raw(o, "tools", e->tools, "[]");
    by_json_out_key(o, "top_logprobs");
    by_json_out_uint(o, e->top_logprobs);
    put_float(o, "top_p", e->top_p);
    by_json_out_key(o, "truncation");
    by_json_out_z(o, "disabled");
    by_json_out_key(o, "usage");
    if (s->ended) put_usage(o, &s->end.usage);
    else by_json_out_null(o);
    by_json_out_key(o, "user");
    if (e->has_user) by_json_out_string(o, e->user);
    else by_json_out_null(o);
    put_raw(o, "metadata", e->metadata, "{}");
    if (!e->conversation_id.len) return;
    by_json_out_key(o, "conversation");
    by_json_out_object_begin(o);
    put_own_id(o, "id", e->conversation_id);
    by_json_out_object_end(o);
}

static void put_response(by_buf *b, const by_api_stream *s, by_str output) {
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    put_response_front(&o, s);
    by_json_out_key(&o, "output");
    by_json_out_array_begin(&o);
    if (output.len) by_json_out_raw(&o, output);
    by_json_out_array_end(&o);
    put_response_back(&o, s);
    by_json_out_object_end(&o);
}

static void response_event(by_api_stream *s, const char *name) {
    begin_event(s, name);
    BY_API_LITERAL(&s->out, ",\"response\":");
    put_response(&s->out, s, by_buf_str(&s->done_items));
    end_event(s, name);
}

static void begin(by_api_stream *s) {
    response_event(s, "response.created");
    response_event(s, "response.in_progress");
}

static void end(by_api_stream *s) {
    close_item(s, is_incomplete(s) ? "incomplete" : "completed", "final_answer");
    response_event(s, is_incomplete(s) ? "response.incomplete" : "response.completed");
}

static void write_whole(by_api_stream *const *streams, size_t n, by_buf *out) {
    (void)n;
    by_api_stream *s = streams[0];
    if (!s->item_open) {
        put_response(out, s, by_buf_str(&s->done_items));
        return;
    }
    /* Given up inside an item: it is shown as far as it came. */
    by_buf_clear(&s->scratch);
    by_buf_push_str(&s->scratch, by_buf_str(&s->done_items));
    if (s->scratch.len) by_buf_push_byte(&s->scratch, ',');
    size_t from = s->out.len;
    put_item(s, "in_progress", "final_answer", false);
    by_buf_push(&s->scratch, s->out.ptr + from, s->out.len - from);
    s->out.len = from;
    put_response(out, s, by_buf_str(&s->scratch));
    if (s->scratch.failed || s->out.failed) out->failed = true;
}

const by_api_writer by_responses_writer = {
    .init = find_tools, .begin = begin, .delta = delta, .end = end, .write_whole = write_whole};
