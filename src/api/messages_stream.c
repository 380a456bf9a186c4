/* messages_stream.c - Messages: events and the whole object. Content is a row of blocks, one open at a time: thinking (opened
 * at once in thinking mode, even if nothing comes), text, one tool_use for each call. */
#include "api/api_stream_impl.h"

static bool thinks(const by_api_stream *s) { return s->request->conversation.thinking; }

static void write_usage(by_buf *b, const by_answer_usage *u, uint64_t output_tokens) {
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "input_tokens");
    by_json_out_uint(&o, u->prompt_tokens > u->cached_tokens ? u->prompt_tokens - u->cached_tokens : 0);
    by_json_out_key(&o, "cache_creation_input_tokens");
    by_json_out_uint(&o, 0);
    by_json_out_key(&o, "cache_read_input_tokens");
    by_json_out_uint(&o, u->cached_tokens);
    by_json_out_key(&o, "output_tokens");
    by_json_out_uint(&o, output_tokens);
    by_json_out_key(&o, "service_tier");
    by_json_out_z(&o, "standard");
    by_json_out_object_end(&o);
}

static const char *stop_word(by_answer_end_kind kind) {
    switch (kind) {
    case BY_END_CALLS: return "tool_use";
    case BY_END_LENGTH: return "max_tokens";
    case BY_END_FILTER: return "refusal";
    case BY_END_STOP_STRING: return "stop_sequence";
    case BY_END_STOP: break;
    }
    return "end_turn";
}

/* "stop_reason":...,"stop_sequence":... */
static void put_stop(by_buf *b, const by_api_stream *s) {
    BY_API_LITERAL(b, "\"stop_reason\":");
    if (s->ended) {
        by_buf_push_byte(b, '"');
        by_buf_push_z(b, stop_word(s->end.kind));
        by_buf_push_byte(b, '"');
    } else {
        BY_API_LITERAL(b, "null");
    }
    BY_API_LITERAL(b, ",\"stop_sequence\":");
    if (s->ended && s->end.kind == BY_END_STOP_STRING) by_json_write_string(b, s->end.stop);
    else BY_API_LITERAL(b, "null");
}

/* ---- events ---- */

/* {"type":"NAME","index":N, */
static void put_block_head(by_api_stream *s, const char *name) {
    BY_API_LITERAL(&s->out, "{\"type\":\"");
    by_buf_push_z(&s->out, name);
    BY_API_LITERAL(&s->out, "\",\"index\":");
    by_json_write_uint(&s->out, s->n_blocks - 1);
}

static void begin_start(by_api_stream *s, by_api_open kind) {
    s->open = kind;
    s->n_blocks++;
    put_block_head(s, "content_block_start");
    BY_API_LITERAL(&s->out, ",\"content_block\":{");
}

static void end_start(by_api_stream *s) {
    BY_API_LITERAL(&s->out, "}}");
    by_api_stream_emit(s, "content_block_start");
    if (s->pinged) return;
    s->pinged = true;
    BY_API_LITERAL(&s->out, "{\"type\":\"ping\"}");
    by_api_stream_emit(s, "ping");
}

/* One content_block_delta: {"type":KIND,KEY:text}. */
static void put_delta(by_api_stream *s, const char *kind_and_key, by_str text) {
    put_block_head(s, "content_block_delta");
    BY_API_LITERAL(&s->out, ",\"delta\":{\"type\":\"");
    by_buf_push_z(&s->out, kind_and_key);
    by_json_write_string(&s->out, text);
    BY_API_LITERAL(&s->out, "}}");
    by_api_stream_emit(s, "content_block_delta");
}

static void close_block(by_api_stream *s) {
    if (s->open == BY_OPEN_NONE) return;
    if (s->open == BY_OPEN_REASONING) {
        put_delta(s, "signature_delta\",\"signature\":", s->signature);
        s->signed_thinking = true;
    }
    put_block_head(s, "content_block_stop");
    by_buf_push_byte(&s->out, '}');
    by_api_stream_emit(s, "content_block_stop");
    s->open = BY_OPEN_NONE;
}

static void open_thinking(by_api_stream *s) {
    begin_start(s, BY_OPEN_REASONING);
    BY_API_LITERAL(&s->out, "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"");
    end_start(s);
}

static void begin(by_api_stream *s) {
    by_buf *b = &s->out;
    BY_API_LITERAL(b, "{\"type\":\"message_start\",\"message\":{\"id\":");
    by_json_write_string(b, s->id);
    BY_API_LITERAL(b, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    by_json_write_string(b, s->request->model);
    BY_API_LITERAL(b, ",\"content\":[],");
    put_stop(b, s);
    BY_API_LITERAL(b, ",\"usage\":");
    write_usage(b, &s->begin.usage, 0);
    BY_API_LITERAL(b, "}}");
    by_api_stream_emit(s, "message_start");
    if (thinks(s)) open_thinking(s);
}

static void delta(by_api_stream *s, const by_answer_delta *d) {
    by_buf *b = &s->out;
    switch (d->d.kind) {
    case BY_DELTA_REASONING:
        if (s->open != BY_OPEN_REASONING) {
            close_block(s);
            open_thinking(s);
        }
        put_delta(s, "thinking_delta\",\"thinking\":", d->d.text);
        break;
    case BY_DELTA_CONTENT:
        if (s->open != BY_OPEN_TEXT) {
            close_block(s);
            begin_start(s, BY_OPEN_TEXT);
            BY_API_LITERAL(b, "\"type\":\"text\",\"text\":\"\"");
            end_start(s);
        }
        put_delta(s, "text_delta\",\"text\":", d->d.text);
        break;
    case BY_DELTA_CALL:
        close_block(s);
        begin_start(s, BY_OPEN_CALL);
        BY_API_LITERAL(b, "\"type\":\"tool_use\",\"id\":");
        by_json_write_string(b, d->call_id);
        BY_API_LITERAL(b, ",\"name\":");
        by_json_write_string(b, d->d.text);
        BY_API_LITERAL(b, ",\"input\":{}");
        end_start(s);
        break;
    case BY_DELTA_ARGS: put_delta(s, "input_json_delta\",\"partial_json\":", d->d.text); break;
    }
}

static void end(by_api_stream *s) {
    by_buf *b = &s->out;
    close_block(s);
    BY_API_LITERAL(b, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(b, s);
    BY_API_LITERAL(b, "},\"usage\":");
    write_usage(b, &s->end.usage, s->end.usage.completion_tokens);
    by_buf_push_byte(b, '}');
    by_api_stream_emit(s, "message_delta");
    BY_API_LITERAL(b, "{\"type\":\"message_stop\"}");
    by_api_stream_emit(s, "message_stop");
}

/* ---- the whole object ---- */

static void write_blocks(by_json_out *o, const by_api_stream *s) {
    const by_api_whole *w = &s->whole;
    by_json_out_array_begin(o);
    if (w->reasoning.len || (s->begun && thinks(s))) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "type");
        by_json_out_z(o, "thinking");
        by_json_out_key(o, "thinking");
        by_json_out_string(o, by_buf_str(&w->reasoning));
        by_json_out_key(o, "signature");
        by_json_out_string(o, s->signed_thinking ? s->signature : BY_STR(""));
        by_json_out_object_end(o);
    }
    if (w->content.len) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "type");
        by_json_out_z(o, "text");
        by_json_out_key(o, "text");
        by_json_out_string(o, by_buf_str(&w->content));
        by_json_out_object_end(o);
    }
    for (size_t i = 0; i < w->n_calls; i++) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "type");
        by_json_out_z(o, "tool_use");
        by_json_out_key(o, "id");
        by_json_out_string(o, w->calls[i].id);
        by_json_out_key(o, "name");
        by_json_out_string(o, w->calls[i].name);
        by_json_out_key(o, "input");
        bool open = s->open == BY_OPEN_CALL && i + 1 == w->n_calls; /* given up inside it: its input is not known yet */
        by_api_write_arguments(o->buf, open ? BY_STR("{}") : by_buf_str(&w->calls[i].args));
        o->comma = true;
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
}

static void write_whole(by_api_stream *const *streams, size_t n, by_buf *out) {
    (void)n;
    const by_api_stream *s = streams[0];
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_string(&o, s->id);
    by_json_out_key(&o, "type");
    by_json_out_z(&o, "message");
    by_json_out_key(&o, "role");
    by_json_out_z(&o, "assistant");
    by_json_out_key(&o, "model");
    by_json_out_string(&o, s->request->model);
    by_json_out_key(&o, "content");
    write_blocks(&o, s);
    by_buf_push_byte(out, ',');
    put_stop(out, s);
    by_json_out_key(&o, "usage");
    by_answer_usage u = s->ended ? s->end.usage : s->begin.usage;
    write_usage(out, &u, s->ended ? u.completion_tokens : 0);
    by_json_out_object_end(&o);
}

const by_api_writer by_messages_writer = {.begin = begin, .delta = delta, .end = end, .write_whole = write_whole};
