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

/* Passes the bytes of a token, through the decoder that makes the text: what is broken is a character there, too. */
static void pass(by_api_offset *at, const by_json *bytes) {
    for (uint32_t i = 0; i < bytes->n; i++) {
        at->tail[at->n_tail++] = (char)bytes->v.items[i].v.i;
        while (at->n_tail) {
            by_utf8_step step = by_utf8_next(at->tail, at->n_tail);
            if (step.kind == BY_UTF8_CUT) break;
            at->n_chars++;
            at->n_tail -= step.n;
            memmove(at->tail, at->tail + step.n, at->n_tail);
        }
    }
}

static void parse_list(by_arena *arena, by_str list, by_json *out, bool *failed) {
    by_buf text = {0};
    by_buf_push_byte(&text, '[');
    by_buf_push_str(&text, list);
    by_buf_push_byte(&text, ']');
    by_str kept = text.failed ? (by_str){0} : by_arena_dup(arena, by_buf_str(&text)); /* values point into it */
    by_buf_deinit(&text);
    *out = (by_json){.type = BY_JSON_NULL};
    if (!kept.ptr || by_json_parse(out, arena, kept, NULL, NULL) != BY_OK) *failed = true;
}

/* A token inside a character stands behind it, as one that began. */
static by_api_offset put_offsets(by_json_out *o, const by_json *tokens, by_api_offset at) {
    for (uint32_t i = 0; i < tokens->n; i++) {
        by_json_out_uint(o, at.n_chars + (at.n_tail > 0));
        pass(&at, by_json_get(&tokens->v.items[i], "bytes"));
    }
    return at;
}

/* lists: what by_logprob_write wrote, without brackets, of the echo and of the answer (each may be empty). *at: where the answer's
 * list begins in the text; then where it ends. The echo's begins at 0. */
static void put_logprobs(by_buf *b, const by_str lists[2], by_api_offset *at) {
    static const char *const keys[] = {"text_offset", "token_logprobs", "tokens", "top_logprobs"};
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json tokens[2];
    bool failed = false;
    for (int i = 0; i < 2; i++) parse_list(&arena, lists[i], &tokens[i], &failed);
    by_json_out o = by_json_out_init(b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    for (int k = 0; k < 4 && !failed; k++) {
        by_json_out_key(&o, keys[k]);
        by_json_out_array_begin(&o);
        if (k == 0) {
            put_offsets(&o, &tokens[0], (by_api_offset){0});
            *at = put_offsets(&o, &tokens[1], *at);
        }
        for (int j = 0; j < 2 && k > 0; j++) {
            for (uint32_t i = 0; i < tokens[j].n; i++) {
                const by_json *t = &tokens[j].v.items[i];
                if (k == 1) by_json_out_value(&o, by_json_get(t, "logprob"));
                else if (k == 2) by_json_out_value(&o, by_json_get(t, "token"));
                else put_alternatives(&o, t);
            }
        }
        by_json_out_array_end(&o);
    }
    by_json_out_object_end(&o);
    if (failed) b->failed = true;
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

/* logprobs, at: see put_logprobs. */
static void put_choice(by_buf *b, const by_api_stream *s, by_str text, const by_str logprobs[2], by_api_offset *at, bool ended) {
    BY_API_LITERAL(b, "{\"index\":");
    by_json_write_uint(b, s->choice);
    BY_API_LITERAL(b, ",\"text\":");
    by_json_write_string(b, text);
    BY_API_LITERAL(b, ",\"logprobs\":");
    if (logprobs && logprobs[0].len + logprobs[1].len) put_logprobs(b, logprobs, at);
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
    const by_str logprobs[2] = {s->request->prompt_logprobs, BY_STR("")};
    put_choice(&s->out, s, s->request->prompt, logprobs, &s->offset, false);
    s->offset.n_chars = by_utf8_count(s->request->prompt);
    end_chunk(s, NULL);
}

static void delta(by_api_stream *s, const by_answer_delta *d) {
    if (!s->on_event || d->d.kind != BY_DELTA_CONTENT) return;
    const by_str logprobs[2] = {BY_STR(""), d->has_logprobs ? d->logprobs : BY_STR("")};
    put_choice(&s->out, s, d->d.text, logprobs, &s->offset, false);
    end_chunk(s, NULL);
}

static void end(by_api_stream *s) {
    if (!s->on_event) return;
    put_choice(&s->out, s, BY_STR(""), NULL, NULL, true);
    end_chunk(s, s->usage_place == BY_API_USAGE_LAST ? &s->end.usage : NULL);
    if (s->usage_place == BY_API_USAGE_LAST || !s->request->include_usage) return;
    end_chunk(s, &s->end.usage);
}

/* The answer, behind the prompt where that is echoed. */
static void put_whole_choice(by_buf *out, by_api_stream *s) {
    by_str prompt = BY_STR(""), logprobs[2] = {BY_STR(""), by_buf_str(&s->whole.content_logprobs)};
    by_buf_clear(&s->scratch);
    if (s->request->echo_prompt) prompt = s->request->prompt, logprobs[0] = s->request->prompt_logprobs;
    by_api_offset at = {.n_chars = by_utf8_count(prompt)};
    by_buf_push_str(&s->scratch, prompt);
    by_buf_push_str(&s->scratch, by_buf_str(&s->whole.content));
    put_choice(out, s, by_buf_str(&s->scratch), logprobs, &at, s->ended);
    if (s->request->prompt_scores.len && !out->failed) {
        out->len--; /* the choice goes on */
        BY_API_LITERAL(out, ",\"prompt_logprobs\":");
        by_buf_push_str(out, s->request->prompt_scores);
        by_buf_push_byte(out, '}');
    }
    if (s->scratch.failed) out->failed = true;
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
