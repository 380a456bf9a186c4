/* completions_stream.c - Completions (raw prompt): chunks and the whole object in the OpenAI text completion shape. There is
 * no chat format here: text is passed on as it is, only stop strings act. */
#include "api/api_stream_impl.h"
#include "base/utf8.h"

/* ---- log probabilities: the chat form of a token list -> four parallel lists ---- */

/* The alternatives of a token; it is one of them even where it is not among the most likely. Nothing is said of the first. */
static void put_alternatives(by_json_out *o, const by_json *t) {
    const by_json *top = by_json_get(t, "top_logprobs"), *logprob = by_json_get(t, "logprob");
    by_str token = by_json_get(t, "token")->v.s;
    bool listed = false;
    if (logprob->type == BY_JSON_NULL) {
        by_json_out_null(o);
        return;
    }
    by_json_out_object_begin(o);
    for (uint32_t i = 0; i < top->n; i++) {
        by_str other = by_json_get(&top->v.items[i], "token")->v.s;
        listed |= by_str_eq(other, token);
        by_json_out_key_str(o, other);
        by_json_out_value(o, by_json_get(&top->v.items[i], "logprob"));
    }
    if (!listed) {
        by_json_out_key_str(o, token);
        by_json_out_value(o, logprob);
    }
    by_json_out_object_end(o);
}

/* Characters that begin in the bytes of a token. */
static size_t n_begun(const by_json *bytes) {
    size_t n = 0;
    for (uint32_t i = 0; i < bytes->n; i++) n += (bytes->v.items[i].v.i & 0xc0) != 0x80;
    return n;
}

/* list: what by_logprob_write wrote, without brackets. offset: of the first token, in characters of the text. A
 * token inside a character stands behind it, as one that began. */
static void put_logprobs(by_buf *b, by_str list, size_t offset) {
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_buf text = {0};
    by_json tokens = {.type = BY_JSON_NULL};
    by_buf_push_byte(&text, '[');
    by_buf_push_str(&text, list);
    by_buf_push_byte(&text, ']');
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    if (text.failed || by_json_parse(&tokens, &arena, by_buf_str(&text), NULL, NULL) != BY_OK) {
        b->failed = true;
    } else {
        static const char *const keys[] = {"text_offset", "token_logprobs", "tokens", "top_logprobs"};
        by_json_out_object_begin(&o);
        for (int k = 0; k < 4; k++) {
            size_t at = offset;
            by_json_out_key(&o, keys[k]);
            by_json_out_array_begin(&o);
            for (uint32_t i = 0; i < tokens.n; i++) {
                const by_json *t = &tokens.v.items[i];
                if (k == 0) by_json_out_uint(&o, at);
                else if (k == 1) by_json_out_value(&o, by_json_get(t, "logprob"));
                else if (k == 2) by_json_out_value(&o, by_json_get(t, "token"));
                else put_alternatives(&o, t);
                at += n_begun(by_json_get(t, "bytes"));
            }
            by_json_out_array_end(&o);
        }
        by_json_out_object_end(&o);
    }
    by_buf_deinit(&text);
    by_arena_deinit(&arena);
}

/* ---- chunks ---- */

static void put_front(by_buf *b, const by_api_stream *s) {
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_string(&o, s->id);
    by_json_out_key(&o, "object");
    by_json_out_z(&o, "text_completion");
    by_json_out_key(&o, "created");
    by_json_out_int(&o, s->created);
    by_json_out_key(&o, "model");
    by_json_out_string(&o, s->request->model);
    by_json_out_key(&o, "system_fingerprint");
    if (s->begin.has_fingerprint) by_json_out_string(&o, s->begin.fingerprint);
    else by_json_out_null(&o);
    BY_API_LITERAL(b, ",\"choices\":[");
}

static void put_choice(by_buf *b, const by_api_stream *s, by_str text, by_str logprobs, size_t offset, bool ended) {
    BY_API_LITERAL(b, "{\"index\":");
    by_json_write_uint(b, s->choice);
    BY_API_LITERAL(b, ",\"text\":");
    by_json_write_string(b, text);
    BY_API_LITERAL(b, ",\"logprobs\":");
    if (logprobs.len) put_logprobs(b, logprobs, offset);
    else BY_API_LITERAL(b, "null");
    BY_API_LITERAL(b, ",\"finish_reason\":");
    if (ended) {
        by_buf_push_byte(b, '"');
        by_buf_push_z(b, by_api_finish_word(s->end.kind));
        by_buf_push_byte(b, '"');
    } else {
        BY_API_LITERAL(b, "null");
    }
    by_buf_push_byte(b, '}');
}

static void end_chunk(by_api_stream *s, const by_answer_usage *usage) {
    by_answer_usage now;
    if (!usage && s->usage_place == BY_API_USAGE_CONTINUOUS && s->request->include_usage) {
        now = by_answer_usage_now(s->answer);
        usage = &now;
    }
    by_buf_push_byte(&s->out, ']');
    if (usage) {
        BY_API_LITERAL(&s->out, ",\"usage\":");
        by_api_write_chat_usage(&s->out, usage, false);
    } else if (s->request->include_usage) {
        BY_API_LITERAL(&s->out, ",\"usage\":null");
    }
    by_buf_push_byte(&s->out, '}');
    by_api_stream_emit(s, NULL);
}

static void begin(by_api_stream *s) {
    if (!s->on_event) return;
    put_front(&s->out, s);
    s->head_len = s->out.len;
    if (!s->request->echo_prompt || s->request->prompt.len == 0) return;
    put_choice(&s->out, s, s->request->prompt, s->request->prompt_logprobs, 0, false);
    s->text_chars = by_utf8_count(s->request->prompt);
    end_chunk(s, NULL);
}

static void delta(by_api_stream *s, const by_answer_delta *d) {
    if (!s->on_event || d->d.kind != BY_DELTA_CONTENT) return;
    put_choice(&s->out, s, d->d.text, d->has_logprobs ? d->logprobs : BY_STR(""), s->text_chars, false);
    s->text_chars += by_utf8_count(d->d.text);
    end_chunk(s, NULL);
}

static void end(by_api_stream *s) {
    if (!s->on_event) return;
    put_choice(&s->out, s, BY_STR(""), BY_STR(""), 0, true);
    end_chunk(s, s->usage_place == BY_API_USAGE_LAST ? &s->end.usage : NULL);
    if (s->usage_place == BY_API_USAGE_LAST || !s->request->include_usage) return;
    end_chunk(s, &s->end.usage);
}

/* The answer, behind the prompt where that is echoed. */
static void put_whole_choice(by_buf *out, by_api_stream *s) {
    by_str prompt = BY_STR(""), logprobs = by_buf_str(&s->whole.content_logprobs);
    by_buf both = {0};
    by_buf_clear(&s->scratch);
    if (s->request->echo_prompt) {
        prompt = s->request->prompt;
        by_buf_push_str(&both, s->request->prompt_logprobs);
        if (both.len && logprobs.len) by_buf_push_byte(&both, ',');
    }
    size_t offset = both.len ? 0 : by_utf8_count(prompt);
    by_buf_push_str(&both, logprobs);
    by_buf_push_str(&s->scratch, prompt);
    by_buf_push_str(&s->scratch, by_buf_str(&s->whole.content));
    put_choice(out, s, by_buf_str(&s->scratch), by_buf_str(&both), offset, s->ended);
    if (s->request->prompt_scores.len && !out->failed) {
        out->len--; /* the choice goes on */
        BY_API_LITERAL(out, ",\"prompt_logprobs\":");
        by_buf_push_str(out, s->request->prompt_scores);
        by_buf_push_byte(out, '}');
    }
    if (s->scratch.failed || both.failed) out->failed = true;
    by_buf_deinit(&both);
}

static void write_whole(by_api_stream *const *streams, size_t n, by_buf *out) {
    by_answer_usage sum = streams[0]->end.usage;
    bool ended = streams[0]->ended;
    put_front(out, streams[0]);
    for (size_t i = 0; i < n; i++) {
        by_api_stream *s = streams[i];
        if (i) by_buf_push_byte(out, ',');
        put_whole_choice(out, s);
        if (i == 0) continue;
        sum.completion_tokens += s->end.usage.completion_tokens;
        if (s->request != streams[i - 1]->request) { /* another prompt */
            sum.prompt_tokens += s->end.usage.prompt_tokens;
            sum.cached_tokens += s->end.usage.cached_tokens;
        }
        ended |= s->ended;
    }
    by_buf_push_byte(out, ']');
    if (ended) {
        BY_API_LITERAL(out, ",\"usage\":");
        by_api_write_chat_usage(out, &sum, false);
    }
    by_buf_push_byte(out, '}');
}

const by_api_writer by_completions_writer = {.begin = begin, .delta = delta, .end = end, .write_whole = write_whole};
