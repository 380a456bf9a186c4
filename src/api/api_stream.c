/* api_stream.c - the part of a stream that does not depend on the API: options, feeding, the kept answer. */
#include "api/api_stream_impl.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/limits.h"

/* ---- the kept answer ---- */

static void add_logprobs(by_buf *list, const by_answer_delta *d) {
    if (!d->has_logprobs || d->logprobs.len == 0) return;
    if (list->len) by_buf_push_byte(list, ',');
    by_buf_push_str(list, d->logprobs);
}

static void add_call(by_api_stream *s, const by_answer_delta *d) {
    by_api_whole *w = &s->whole;
    if (w->n_calls == w->cap_calls) {
        size_t cap = w->cap_calls ? 2 * w->cap_calls : 4;
        by_api_call *more = by_realloc(BY_MEM_REQUEST, w->calls, by_mul_size(cap, sizeof *more));
        if (!more) {
            s->failed = true;
            return;
        }
        w->calls = more;
        w->cap_calls = cap;
    }
    by_api_call *c = &w->calls[w->n_calls++];
    *c = (by_api_call){.id = by_arena_dup(&s->arena, d->call_id), .name = by_arena_dup(&s->arena, d->d.text)};
    if (!c->id.ptr || !c->name.ptr) s->failed = true;
}

static void keep(by_api_stream *s, const by_answer_delta *d) {
    by_api_whole *w = &s->whole;
    switch (d->d.kind) {
    case BY_DELTA_REASONING:
        by_buf_push_str(&w->reasoning, d->d.text);
        add_logprobs(&w->reasoning_logprobs, d);
        break;
    case BY_DELTA_CONTENT:
        by_buf_push_str(&w->content, d->d.text);
        add_logprobs(&w->content_logprobs, d);
        break;
    case BY_DELTA_CALL: add_call(s, d); break;
    case BY_DELTA_ARGS:
        if (w->n_calls) by_buf_push_str(&w->calls[w->n_calls - 1].args, d->d.text);
        break;
    }
}

/* A buffer that once could not grow says so for ever, so it is enough to ask after each step. */
static bool whole_failed(const by_api_whole *w) {
    bool failed = w->reasoning.failed || w->content.failed || w->reasoning_logprobs.failed || w->content_logprobs.failed;
    for (size_t i = 0; i < w->n_calls; i++) failed |= w->calls[i].args.failed;
    return failed;
}

static void whole_deinit(by_api_whole *w) {
    by_buf_deinit(&w->reasoning);
    by_buf_deinit(&w->content);
    by_buf_deinit(&w->reasoning_logprobs);
    by_buf_deinit(&w->content_logprobs);
    for (size_t i = 0; i < w->n_calls; i++) by_buf_deinit(&w->calls[i].args);
    by_free(w->calls);
}

/* ---- the sink ---- */

static void on_begin(void *ctx, const by_answer_begin *b) {
    by_api_stream *s = ctx;
    s->begun = true;
    s->begin = *b;
    if (b->has_fingerprint) {
        s->begin.fingerprint = by_arena_dup(&s->arena, b->fingerprint);
        if (!s->begin.fingerprint.ptr) s->failed = true;
    }
    s->writer->begin(s);
}

static void on_delta(void *ctx, const by_answer_delta *d) {
    by_api_stream *s = ctx;
    if (s->keep_whole) keep(s, d);
    s->writer->delta(s, d);
}

static void on_end(void *ctx, const by_answer_end *e) {
    by_api_stream *s = ctx;
    s->ended = true;
    s->end = *e;
    s->completed_at = s->now ? s->now() : (int64_t)time(NULL);
    s->writer->end(s);
}

void by_api_stream_emit(by_api_stream *s, const char *name) {
    by_buf_z(&s->out);
    if (s->out.failed) s->failed = true;
    else if (s->on_event) s->on_event(s->ctx, name, by_buf_str(&s->out));
    s->out.len = s->head_len;
}

/* ---- life ---- */

static const by_api_writer *writer_of(by_api_kind api) {
    switch (api) {
    case BY_API_CHAT: return &by_chat_writer;
    case BY_API_RESPONSES: return &by_responses_writer;
    case BY_API_MESSAGES: return &by_messages_writer;
    case BY_API_COMPLETIONS: return &by_completions_writer;
    }
    return NULL;
}

by_status by_api_stream_create(by_api_stream **out, const by_api_stream_opts *opts, by_err *err) {
    by_api_stream *s = by_alloc_zero(BY_MEM_REQUEST, sizeof *s);
    if (!s) return BY_FAIL(err, BY_ENOMEM, "out of memory for a response stream");
    by_arena_init(&s->arena, BY_MEM_REQUEST);
    s->writer = writer_of(opts->request->api);
    s->request = opts->request;
    s->id = by_arena_dup(&s->arena, opts->id);
    s->signature = by_arena_dup(&s->arena, opts->signature.len ? opts->signature : opts->id);
    s->created = opts->created;
    s->now = opts->now;
    s->usage_place = opts->usage_place;
    s->choice = opts->choice;
    s->on_event = opts->on_event;
    s->ctx = opts->ctx;
    s->keep_whole = opts->keep_whole;
    by_status status = s->id.ptr && s->signature.ptr ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a response id");
    if (status == BY_OK && s->writer->init) status = s->writer->init(s, err);
    if (status == BY_OK) {
        by_answer_opts a = opts->answer;
        a.thinking = opts->request->conversation.thinking;
        a.parser = opts->parser ? *opts->parser : opts->request->parsing;
        if (opts->request->api == BY_API_COMPLETIONS) a.parser.raw = true;
        by_answer_sink sink = {.begin = on_begin, .delta = on_delta, .end = on_end, .ctx = s};
        status = by_answer_create(&s->answer, &a, &sink, err);
    }
    if (status == BY_OK) *out = s;
    else by_api_stream_destroy(s);
    return status;
}

void by_api_stream_destroy(by_api_stream *s) {
    if (!s) return;
    by_answer_destroy(s->answer);
    whole_deinit(&s->whole);
    by_buf *const bufs[] = {&s->out, &s->item_id, &s->item_text, &s->item_logprobs, &s->done_items, &s->scratch,
                            &s->custom.pending};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++) by_buf_deinit(bufs[i]);
    by_arena_deinit(&s->arena);
    by_free(s);
}

static bool any_failed(const by_api_stream *s) {
    return s->failed || s->out.failed || s->item_id.failed || s->item_text.failed || s->item_logprobs.failed ||
           s->done_items.failed || s->scratch.failed || s->custom.pending.failed || whole_failed(&s->whole);
}

static by_status fed(by_api_stream *s, by_status status, by_err *err) {
    if (status != BY_OK || !any_failed(s)) return status;
    by_answer_close(s->answer);
    return BY_FAIL(err, BY_ENOMEM, "out of memory in a response stream");
}

by_status by_api_stream_ready(by_api_stream *s, uint64_t prompt_tokens, uint64_t cached_tokens,
                              const by_str *fingerprint, by_err *err) {
    return fed(s, by_answer_ready(s->answer, prompt_tokens, cached_tokens, fingerprint, err), err);
}
by_status by_api_stream_text(by_api_stream *s, by_str text, uint64_t n_tokens, by_err *err) {
    return fed(s, by_answer_text(s->answer, text, n_tokens, err), err);
}
by_status by_api_stream_tokens(by_api_stream *s, const int32_t *ids, size_t n, const by_logprob *logprobs,
                               size_t n_logprobs, by_err *err) {
    return fed(s, by_answer_tokens(s->answer, ids, n, logprobs, n_logprobs, err), err);
}
by_status by_api_stream_finish(by_api_stream *s, by_answer_reason reason, by_err *err) {
    return fed(s, by_answer_finish(s->answer, reason, err), err);
}
by_status by_api_stream_end_input(by_api_stream *s, by_err *err) {
    return fed(s, by_answer_end_input(s->answer, err), err);
}
void by_api_stream_close(by_api_stream *s) { by_answer_close(s->answer); }
bool by_api_stream_finished(const by_api_stream *s) { return by_answer_finished(s->answer); }
by_answer_usage by_api_stream_usage(const by_api_stream *s) { return by_answer_usage_now(s->answer); }

by_answer_end_kind by_api_stream_end_kind(const by_api_stream *s) { return s->ended ? s->end.kind : BY_END_STOP; }

/* ---- whole objects ---- */

by_status by_api_stream_write_choices(by_api_stream *const *streams, size_t n, by_buf *out, by_err *err) {
    streams[0]->writer->write_whole(streams, n, out);
    return by_buf_check(out, err);
}

by_status by_api_stream_write_whole(by_api_stream *s, by_buf *out, by_err *err) {
    return by_api_stream_write_choices(&s, 1, out, err);
}

bool by_api_write_arguments(by_buf *b, by_str args) {
    if (args.len == 0) {
        BY_API_LITERAL(b, "{}");
        return false;
    }
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json v;
    const by_json_opts opts = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .merge_keys = true};
    by_status status = by_json_parse(&v, &arena, args, &opts, NULL);
    if (status == BY_OK) by_json_write(b, &v, BY_JSON_COMPACT);
    else if (status == BY_ENOMEM) b->failed = true;
    else BY_API_LITERAL(b, "{}");
    by_arena_deinit(&arena);
    return status == BY_OK;
}

/* ---- server-sent events ---- */

const char *by_api_done_data(by_api_kind api) {
    return api == BY_API_CHAT || api == BY_API_COMPLETIONS ? "[DONE]" : NULL;
}

void by_api_write_sse(by_buf *out, const char *name, by_str json) {
    if (name) {
        BY_API_LITERAL(out, "event: ");
        by_buf_push_z(out, name);
        by_buf_push_byte(out, '\n');
    }
    BY_API_LITERAL(out, "data: ");
    by_buf_push_str(out, json);
    BY_API_LITERAL(out, "\n\n");
}
