/* chat_stream.c - Chat Completions: chunks and the whole object. The front of a chunk is the same for all of them and stays
 * in the buffer; a delta writes only what is its own. */
#include "api/api_stream_impl.h"

const char *by_api_finish_word(by_answer_end_kind kind) {
    switch (kind) {
    case BY_END_CALLS: return "tool_calls";
    case BY_END_LENGTH: return "length";
    case BY_END_FILTER: return "content_filter";
    case BY_END_STOP:
    case BY_END_STOP_STRING: break;
    }
    return "stop";
}

void by_api_write_chat_usage(by_buf *b, const by_answer_usage *u, bool reasoning) {
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "prompt_tokens");
    by_json_out_uint(&o, u->prompt_tokens);
    by_json_out_key(&o, "completion_tokens");
    by_json_out_uint(&o, u->completion_tokens);
    by_json_out_key(&o, "total_tokens");
    by_json_out_uint(&o, u->prompt_tokens + u->completion_tokens);
    by_json_out_key(&o, "prompt_tokens_details");
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "cached_tokens");
    by_json_out_uint(&o, u->cached_tokens);
    by_json_out_object_end(&o);
    if (reasoning) {
        by_json_out_key(&o, "completion_tokens_details");
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "reasoning_tokens");
        by_json_out_uint(&o, u->reasoning_tokens);
        by_json_out_object_end(&o);
    }
    by_json_out_key(&o, "prompt_cache_hit_tokens");
    by_json_out_uint(&o, u->cached_tokens);
    by_json_out_key(&o, "prompt_cache_miss_tokens");
    by_json_out_uint(&o, u->prompt_tokens > u->cached_tokens ? u->prompt_tokens - u->cached_tokens : 0);
    by_json_out_object_end(&o);
}

static bool thinks(const by_api_stream *s) { return s->request->conversation.thinking; }

/* ---- chunks ---- */

static void put_fingerprint(by_buf *b, const by_api_stream *s) {
    if (s->begin.has_fingerprint) by_json_write_string(b, s->begin.fingerprint);
    else BY_API_LITERAL(b, "null");
}

/* {"id":...,"object":"chat.completion.chunk",...,"choices":[ */
static void write_head(by_api_stream *s) {
    by_buf *b = &s->out;
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_string(&o, s->id);
    by_json_out_key(&o, "object");
    by_json_out_z(&o, "chat.completion.chunk");
    by_json_out_key(&o, "created");
    by_json_out_int(&o, s->created);
    by_json_out_key(&o, "model");
    by_json_out_string(&o, s->request->model);
    BY_API_LITERAL(b, ",\"system_fingerprint\":");
    put_fingerprint(b, s);
    BY_API_LITERAL(b, ",\"choices\":[");
    s->head_len = b->len;
}

static void begin_delta(by_api_stream *s) {
    BY_API_LITERAL(&s->out, "{\"index\":");
    by_json_write_uint(&s->out, s->choice);
    BY_API_LITERAL(&s->out, ",\"delta\":{");
}

static void end_chunk(by_api_stream *s, const by_answer_usage *usage) {
    by_buf *b = &s->out;
    /* The original writes "usage":null where the client has not said that it wants a stream without it. */
    bool wanted = s->request->include_usage || !s->request->stream;
    by_answer_usage now;
    if (!usage && s->usage_place == BY_API_USAGE_CONTINUOUS && s->request->include_usage) {
        now = by_answer_usage_now(s->answer);
        usage = &now;
    }
    if (usage) {
        BY_API_LITERAL(b, ",\"usage\":");
        by_api_write_chat_usage(b, usage, usage->counts_reasoning && thinks(s));
    } else if (wanted) {
        BY_API_LITERAL(b, ",\"usage\":null");
    }
    by_buf_push_byte(b, '}');
    by_api_stream_emit(s, NULL);
}

static void end_delta(by_api_stream *s, const by_answer_delta *d, const char *list) {
    by_buf *b = &s->out;
    if (d && d->has_logprobs) {
        BY_API_LITERAL(b, "},\"logprobs\":{\"");
        by_buf_push_z(b, list);
        BY_API_LITERAL(b, "\":[");
        by_buf_push_str(b, d->logprobs);
        BY_API_LITERAL(b, "]},\"finish_reason\":null}]");
    } else {
        BY_API_LITERAL(b, "},\"logprobs\":null,\"finish_reason\":null}]");
    }
    end_chunk(s, NULL);
}

static void begin(by_api_stream *s) {
    if (!s->on_event) return;
    write_head(s);
    begin_delta(s);
    if (thinks(s)) BY_API_LITERAL(&s->out, "\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"\"");
    else BY_API_LITERAL(&s->out, "\"role\":\"assistant\",\"content\":\"\"");
    end_delta(s, NULL, NULL);
}

static void delta(by_api_stream *s, const by_answer_delta *d) {
    if (!s->on_event) return;
    by_buf *b = &s->out;
    const char *list = "content";
    begin_delta(s);
    switch (d->d.kind) {
    case BY_DELTA_CONTENT:
        BY_API_LITERAL(b, "\"content\":");
        by_json_write_string(b, d->d.text);
        if (thinks(s)) BY_API_LITERAL(b, ",\"reasoning_content\":null");
        break;
    case BY_DELTA_REASONING:
        list = "reasoning_content";
        BY_API_LITERAL(b, "\"content\":null,\"reasoning_content\":");
        by_json_write_string(b, d->d.text);
        break;
    case BY_DELTA_CALL:
        BY_API_LITERAL(b, "\"tool_calls\":[{\"index\":");
        by_json_write_uint(b, d->d.call);
        BY_API_LITERAL(b, ",\"id\":");
        by_json_write_string(b, d->call_id);
        BY_API_LITERAL(b, ",\"type\":\"function\",\"function\":{\"name\":");
        by_json_write_string(b, d->d.text);
        BY_API_LITERAL(b, ",\"arguments\":\"\"}}]");
        break;
    case BY_DELTA_ARGS:
        BY_API_LITERAL(b, "\"tool_calls\":[{\"index\":");
        by_json_write_uint(b, d->d.call);
        BY_API_LITERAL(b, ",\"function\":{\"arguments\":");
        by_json_write_string(b, d->d.text);
        BY_API_LITERAL(b, "}}]");
        break;
    }
    end_delta(s, d, list);
}

static void end(by_api_stream *s) {
    if (!s->on_event) return;
    by_buf *b = &s->out;
    begin_delta(s);
    BY_API_LITERAL(b, "\"content\":\"\"");
    if (thinks(s)) BY_API_LITERAL(b, ",\"reasoning_content\":null");
    BY_API_LITERAL(b, "},\"logprobs\":null,\"finish_reason\":\"");
    by_buf_push_z(b, by_api_finish_word(s->end.kind));
    BY_API_LITERAL(b, "\"}]");
    end_chunk(s, s->usage_place == BY_API_USAGE_LAST ? &s->end.usage : NULL);
    if (s->usage_place == BY_API_USAGE_LAST || !s->request->include_usage) return;
    by_buf_push_byte(b, ']');
    end_chunk(s, &s->end.usage);
}

/* ---- the whole object ---- */

static void write_calls(by_json_out *o, const by_api_whole *w) {
    by_json_out_key(o, "tool_calls");
    by_json_out_array_begin(o);
    for (size_t i = 0; i < w->n_calls; i++) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "index");
        by_json_out_uint(o, i);
        by_json_out_key(o, "id");
        by_json_out_string(o, w->calls[i].id);
        by_json_out_key(o, "type");
        by_json_out_z(o, "function");
        by_json_out_key(o, "function");
        by_json_out_object_begin(o);
        by_json_out_key(o, "name");
        by_json_out_string(o, w->calls[i].name);
        by_json_out_key(o, "arguments");
        by_json_out_string(o, by_buf_str(&w->calls[i].args));
        by_json_out_object_end(o);
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
}

static void write_message(by_json_out *o, const by_api_stream *s) {
    const by_api_whole *w = &s->whole;
    by_json_out_object_begin(o);
    by_json_out_key(o, "role");
    by_json_out_z(o, "assistant");
    by_json_out_key(o, "content");
    /* With thinking the first chunk says null, and an answer that was given up before its content keeps that. */
    bool has_content = w->content.len || s->ended || (s->begun && !thinks(s));
    if (has_content) by_json_out_string(o, by_buf_str(&w->content));
    else by_json_out_null(o);
    if (w->reasoning.len || (s->begun && thinks(s))) {
        by_json_out_key(o, "reasoning_content");
        by_json_out_string(o, by_buf_str(&w->reasoning));
    }
    if (w->n_calls) write_calls(o, w);
    by_json_out_object_end(o);
}

static void write_logprobs(by_json_out *o, const by_api_whole *w) {
    if (!w->content_logprobs.len && !w->reasoning_logprobs.len) {
        by_json_out_null(o);
        return;
    }
    by_json_out_object_begin(o);
    if (w->content_logprobs.len) {
        by_json_out_key(o, "content");
        by_json_out_array_begin(o);
        by_json_out_raw(o, by_buf_str(&w->content_logprobs));
        by_json_out_array_end(o);
    }
    if (w->reasoning_logprobs.len) {
        by_json_out_key(o, "reasoning_content");
        by_json_out_array_begin(o);
        by_json_out_raw(o, by_buf_str(&w->reasoning_logprobs));
        by_json_out_array_end(o);
    }
    by_json_out_object_end(o);
}

static void write_whole(by_api_stream *const *streams, size_t n, by_buf *out) {
    const by_api_stream *s = streams[0];
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_answer_usage sum = s->end.usage;
    bool ended = s->ended;
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_string(&o, s->id);
    by_json_out_key(&o, "object");
    by_json_out_z(&o, "chat.completion");
    by_json_out_key(&o, "created");
    by_json_out_int(&o, s->created);
    by_json_out_key(&o, "model");
    by_json_out_string(&o, s->request->model);
    by_json_out_key(&o, "choices");
    by_json_out_array_begin(&o);
    for (size_t i = 0; i < n; i++) {
        const by_api_stream *c = streams[i];
        if (!c->begun) continue;
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "index");
        by_json_out_uint(&o, c->choice);
        by_json_out_key(&o, "message");
        write_message(&o, c);
        by_json_out_key(&o, "logprobs");
        write_logprobs(&o, &c->whole);
        by_json_out_key(&o, "finish_reason");
        by_json_out_z(&o, c->ended ? by_api_finish_word(c->end.kind) : NULL);
        by_json_out_object_end(&o);
        if (i == 0) continue;
        sum.completion_tokens += c->end.usage.completion_tokens;
        sum.reasoning_tokens += c->end.usage.reasoning_tokens;
        ended |= c->ended;
    }
    by_json_out_array_end(&o);
    if (ended) {
        by_json_out_key(&o, "usage");
        by_api_write_chat_usage(out, &sum, sum.counts_reasoning && thinks(s));
        o.comma = true;
    }
    if (s->request->prompt_scores.len) {
        by_json_out_key(&o, "prompt_logprobs");
        by_json_out_raw(&o, s->request->prompt_scores);
    }
    by_json_out_key(&o, "system_fingerprint");
    if (s->begin.has_fingerprint) by_json_out_string(&o, s->begin.fingerprint);
    else by_json_out_null(&o);
    by_json_out_object_end(&o);
}

const by_api_writer by_chat_writer = {.begin = begin, .delta = delta, .end = end, .write_whole = write_whole};
