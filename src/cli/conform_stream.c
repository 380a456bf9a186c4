/* conform_stream.c - rows of whole streams: a request and what the backend does -> the API's events of each step and the
 * whole object at the end. Times are 0 and the random part of call ids is {ID}, as in the rows. */
#include "cli/conform_parse.h"

#include <string.h>

#include "api/api_stream.h"
#include "cli/conform_recipe.h"

/* ---- call_00_ + 24 letters and digits -> call_00_{ID}, in the text of the result from `from` on ---- */

static bool is_alnum(const by_buf *b, size_t i) {
    if (i >= b->len) return false;
    char c = b->ptr[i];
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(const by_buf *b, size_t i) { return i < b->len && b->ptr[i] >= '0' && b->ptr[i] <= '9'; }

/* Where the random part of a call id that begins at i begins, 0 when none begins there. */
static size_t random_part(const by_buf *b, size_t i) {
    by_str rest = by_str_skip(by_buf_str(b), i);
    if (!by_str_starts(rest, BY_STR("call_"))) return 0;
    i += 5;
    size_t digits = i;
    while (is_digit(b, i)) i++;
    if (i - digits < 2 || i >= b->len || b->ptr[i] != '_') return 0;
    i++;
    if (by_str_starts(by_str_skip(by_buf_str(b), i), BY_STR("ET_"))) i += 3;
    for (size_t k = 0; k < 24; k++)
        if (!is_alnum(b, i + k)) return 0;
    return is_alnum(b, i + 24) ? 0 : i;
}

static void hide_call_ids(by_buf *b, size_t from) {
    size_t to = from;
    for (size_t i = from; i < b->len;) {
        size_t random = b->ptr[i] == 'c' ? random_part(b, i) : 0;
        size_t n = random ? random - i : 1;
        memmove(b->ptr + to, b->ptr + i, n);
        to += n;
        i += n;
        if (!random) continue;
        memcpy(b->ptr + to, "{ID}", 4);
        to += 4;
        i += 24;
    }
    b->len = to;
}

/* ---- steps ---- */

static int64_t no_time(void) { return 0; }

typedef struct step_writer {
    by_json_out *o;
    size_t n_events;
} step_writer;

static void on_event(void *ctx, const char *name, by_str json) {
    step_writer *w = ctx;
    by_json_out *o = w->o;
    w->n_events++;
    by_json_out_object_begin(o);
    by_json_out_key(o, "sse");
    by_json_out_z(o, name);
    by_json_out_key(o, "data");
    by_json_out_raw(o, json);
    by_json_out_object_end(o);
}

static uint64_t count_of(const by_json *op, const char *key) {
    int64_t n;
    return by_json_int_in(by_json_get(op, key), 0, INT64_MAX, &n) ? (uint64_t)n : 0;
}

/* [[logprob, [[id, logprob], ...]], ...] */
static by_status read_logprobs(by_logprob **out, const by_json *list, by_arena *arena, by_err *err) {
    *out = by_arena_zero(arena, by_mul_size(list->n + 1, sizeof **out));
    if (!*out) return BY_FAIL(err, BY_ENOMEM, "out of memory for log probabilities");
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *entry = &list->v.items[i], *top = by_json_at(entry, 1);
        (*out)[i].logprob = (float)by_json_number(by_json_at(entry, 0));
        if (!by_json_is(top, BY_JSON_ARRAY)) continue;
        by_top_logprob *t = by_arena_alloc(arena, by_mul_size(top->n, sizeof *t));
        if (!t) return BY_FAIL(err, BY_ENOMEM, "out of memory for log probabilities");
        for (uint32_t k = 0; k < top->n; k++) {
            int64_t id;
            bool ok = by_json_int_in(by_json_at(&top->v.items[k], 0), 0, INT32_MAX, &id);
            t[k] = (by_top_logprob){ok ? (int32_t)id : -1, (float)by_json_number(by_json_at(&top->v.items[k], 1))};
        }
        (*out)[i].top = t;
        (*out)[i].n_top = top->n;
    }
    return BY_OK;
}

static by_status push_tokens(by_api_stream *s, const by_json *op, by_arena *arena, by_err *err) {
    const by_json *list, *lps = by_json_get(op, "logprobs");
    int32_t *ids;
    by_logprob *logprobs = NULL;
    BY_TRY(by_conform_field(op, "ids", BY_JSON_ARRAY, &list, err));
    BY_TRY(by_conform_ids(&ids, list, arena, err));
    bool has = by_json_is(lps, BY_JSON_ARRAY);
    if (has) BY_TRY(read_logprobs(&logprobs, lps, arena, err));
    return by_api_stream_tokens(s, ids, list->n, logprobs, has ? lps->n : 0, err);
}

static by_status run_op(by_api_stream *s, const by_json *op, by_arena *arena, by_err *err) {
    const by_json *name, *text;
    BY_TRY(by_conform_field(op, "op", BY_JSON_STRING, &name, err));
    if (by_str_eqz(name->v.s, "ready")) {
        const by_json *fp = by_json_get(op, "fingerprint");
        return by_api_stream_ready(s, count_of(op, "prompt_tokens"), count_of(op, "cache_hit"),
                                   by_json_is(fp, BY_JSON_STRING) ? &fp->v.s : NULL, err);
    }
    if (by_str_eqz(name->v.s, "text")) {
        BY_TRY(by_conform_field(op, "text", BY_JSON_STRING, &text, err));
        return by_api_stream_text(s, text->v.s, count_of(op, "count"), err);
    }
    if (by_str_eqz(name->v.s, "tokens")) return push_tokens(s, op, arena, err);
    if (by_str_eqz(name->v.s, "finish")) {
        BY_TRY(by_conform_field(op, "reason", BY_JSON_STRING, &text, err));
        return by_api_stream_finish(s, by_conform_finish(text->v.s), err);
    }
    if (by_str_eqz(name->v.s, "end")) return by_api_stream_end_input(s, err);
    if (!by_str_eqz(name->v.s, "close"))
        return BY_FAIL(err, BY_EFORMAT, "input.ops: unknown op '%.*s'", BY_STR_ARG(name->v.s));
    by_api_stream_close(s);
    return BY_OK;
}

/* One step per op. An op that the stream refuses is a step with an error and without events. */
static by_status write_steps(by_api_stream *s, const by_json *ops, by_json_out *o, by_arena *arena, by_err *err) {
    by_json_out_array_begin(o);
    for (uint32_t i = 0; i < ops->n; i++) {
        size_t before = o->buf->len;
        bool comma = o->comma;
        by_json_out_object_begin(o);
        by_json_out_key(o, "events");
        by_json_out_array_begin(o);
        by_err refused;
        by_status status = run_op(s, &ops->v.items[i], arena, &refused);
        by_json_out_array_end(o);
        by_json_out_object_end(o);
        if (status == BY_OK) continue;
        if (status != BY_EINVAL) {
            if (err) *err = refused;
            return status;
        }
        o->buf->len = before;
        o->comma = comma;
        by_json_out_object_begin(o);
        by_json_out_key(o, "error");
        by_json_out_z(o, refused.msg);
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
    return BY_OK;
}

/* The original collects events in an object that knows the counts of the first ready, even if that was refused, and nothing
 * of the request's settings: this is what is left when there was no event at all. */
static by_status write_untouched(const by_json *ops, const by_api_stream_opts *opts, by_buf *out, by_err *err) {
    by_api_converted bare = {.api = opts->request->api, .model = opts->request->model};
    bare.echo.temperature = bare.echo.top_p = 1;
    by_api_stream_opts o = {.request = &bare, .id = opts->id, .now = no_time, .keep_whole = true};
    by_api_stream *s = NULL;
    BY_TRY(by_api_stream_create(&s, &o, err));
    by_status status = BY_OK;
    for (uint32_t i = 0; bare.api == BY_API_MESSAGES && i < ops->n && status == BY_OK; i++) {
        const by_json *name = by_json_get(&ops->v.items[i], "op");
        if (!by_json_is(name, BY_JSON_STRING) || !by_str_eqz(name->v.s, "ready")) continue;
        const by_json *op = &ops->v.items[i];
        status = by_api_stream_ready(s, count_of(op, "prompt_tokens"), count_of(op, "cache_hit"), NULL, err);
    }
    if (status == BY_OK) status = by_api_stream_write_whole(s, out, err);
    by_api_stream_destroy(s);
    return status;
}

static by_status write_stream(by_conform *c, const by_json *input, const by_api_converted *request, by_json_out *o,
                              by_arena *arena, by_err *err) {
    const by_json *ops, *id = by_json_get(input, "id"), *signature = by_json_get(input, "signature");
    const by_json *parsing = by_json_get(input, "parsing");
    BY_TRY(by_conform_field(input, "ops", BY_JSON_ARRAY, &ops, err));
    by_parser_opts parser;
    if (parsing) BY_TRY(by_conform_parsing(&parser, parsing, arena, err));
    step_writer steps = {.o = o};
    by_api_stream_opts opts = {.request = request,
                               .id = by_json_is(id, BY_JSON_STRING) ? id->v.s : BY_STR("id-1"),
                               .now = no_time,
                               .parser = parsing ? &parser : NULL,
                               .on_event = on_event,
                               .ctx = &steps,
                               .keep_whole = true};
    if (by_json_is(signature, BY_JSON_STRING)) opts.signature = signature->v.s;
    BY_TRY(by_conform_row_tok(c, input, &opts.answer, err));
    by_api_stream *s = NULL;
    BY_TRY(by_api_stream_create(&s, &opts, err));
    size_t from = o->buf->len;
    by_json_out_object_begin(o);
    by_json_out_key(o, "ok");
    by_json_out_bool(o, true);
    by_json_out_key(o, "steps");
    by_status status = write_steps(s, ops, o, arena, err);
    if (status == BY_OK) {
        by_json_out_key(o, "finished");
        by_json_out_bool(o, by_api_stream_finished(s));
        by_json_out_key(o, "final");
        status = steps.n_events ? by_api_stream_write_whole(s, o->buf, err) : write_untouched(ops, &opts, o->buf, err);
        o->comma = true;
        by_json_out_object_end(o);
        hide_call_ids(o->buf, from);
    }
    by_api_stream_destroy(s);
    return status;
}

/* ---- the request ---- */

typedef struct request_row {
    by_buf body;
    by_recipe_specials specials;
    by_api_options options;
    by_api_converted converted;
    by_api_error error;
} request_row;

/* BY_EINVAL: the request is refused, r->error says how. */
static by_status convert(request_row *r, const by_json *input, by_arena *arena, by_err *err) {
    static const char *const names[] = {"chat", "responses", "messages", "completions"};
    const by_json *api, *text = by_json_get(input, "body_text"), *body = by_json_get(input, "body");
    BY_TRY(by_conform_field(input, "api", BY_JSON_STRING, &api, err));
    int kind = 0;
    while (kind < 4 && !by_str_eqz(api->v.s, names[kind])) kind++;
    if (kind == 4) return BY_FAIL(err, BY_EFORMAT, "input.api: unknown API '%.*s'", BY_STR_ARG(api->v.s));
    if (by_json_is(text, BY_JSON_STRING)) by_buf_push_str(&r->body, text->v.s);
    else if (body) by_json_write(&r->body, body, BY_JSON_PYTHON);
    else return BY_FAIL(err, BY_EFORMAT, "input: want body or body_text");
    BY_TRY(by_buf_check(&r->body, err));
    BY_TRY(by_conform_options(arena, by_json_get(input, "options"), &r->specials, &r->options, err));
    return by_api_convert(&r->converted, &r->error, arena, (by_api_kind)kind, by_buf_str(&r->body), &r->options, err);
}

/* {api, body or body_text, ops, options?, parsing?, tokenizer?, id?, signature?} -> {ok, steps, finished, final} or
 * {ok: false, error} */
static by_status stream(by_conform *c, const by_json *row, const by_json *input, by_json_out *o, by_err *err) {
    (void)row;
    by_arena arena;
    request_row r = {.body = {0}};
    by_arena_init(&arena, BY_MEM_REQUEST);
    by_status status = convert(&r, input, &arena, err);
    if (status == BY_OK) {
        status = write_stream(c, input, &r.converted, o, &arena, err);
    } else if (status == BY_EINVAL) {
        by_conform_write_error(o, &r.error);
        status = BY_OK;
    }
    by_buf_deinit(&r.body);
    by_arena_deinit(&arena);
    return status;
}

const by_conform_kind by_conform_stream_kinds[] = {{"stream", stream}, {NULL, NULL}};
