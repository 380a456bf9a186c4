/* conform_parse.c - rows of the output parser alone: text or ids in chunks -> the deltas of each chunk. */
#include "cli/conform_parse.h"

#include "base/alloc.h"
#include "recipe/conversation.h"

/* ---- settings ---- */

static bool flag(const by_json *o, const char *key, bool otherwise) {
    const by_json *v = by_json_get(o, key);
    return by_json_is(v, BY_JSON_BOOL) ? v->v.b : otherwise;
}

static by_status read_stops(by_parser_opts *p, const by_json *list, by_arena *arena, by_err *err) {
    if (!list) return BY_OK;
    if (list->type != BY_JSON_ARRAY) return BY_FAIL(err, BY_EFORMAT, "parsing.stop: want an array");
    by_str *stops = by_arena_alloc(arena, by_mul_size(list->n, sizeof *stops));
    if (!stops) return BY_FAIL(err, BY_ENOMEM, "out of memory for stop strings");
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->v.items[i].type != BY_JSON_STRING) return BY_FAIL(err, BY_EFORMAT, "parsing.stop[%u]: want a string", i);
        stops[i] = list->v.items[i].v.s;
    }
    p->stops = stops;
    p->n_stops = list->n;
    return BY_OK;
}

by_status by_conform_parsing(by_parser_opts *p, const by_json *parsing, by_arena *arena, by_err *err) {
    *p = (by_parser_opts){.parse_calls = flag(parsing, "parse_tool_calls", true),
                          .starts_in_calls = flag(parsing, "starts_in_tool_calls", false),
                          .json_output = flag(parsing, "parse_json_output", false)};
    const by_json *stage = by_json_get(parsing, "initial_stage"), *special = by_json_get(parsing, "special_tokens");
    if (by_json_is(stage, BY_JSON_STRING) && !by_recipe_stage_by_name(stage->v.s, &p->stage))
        return BY_FAIL(err, BY_EFORMAT, "parsing.initial_stage: unknown stage '%.*s'", BY_STR_ARG(stage->v.s));
    const by_json *end = by_json_get(special, "thinking_end"), *dsml = by_json_get(special, "dsml");
    if (by_json_is(end, BY_JSON_STRING)) p->thinking_end = end->v.s;
    if (by_json_is(dsml, BY_JSON_STRING)) p->dsml = dsml->v.s;
    return read_stops(p, by_json_get(parsing, "stop"), arena, err);
}

by_status by_conform_row_tok(by_conform *c, const by_json *input, by_answer_opts *a, by_err *err) {
    const by_json *name = by_json_get(input, "tokenizer");
    if (!by_json_is(name, BY_JSON_STRING)) return BY_OK;
    return by_conform_tok(c, by_str_eqz(name->v.s, "v41"), &a->tok, &a->scratch, err);
}

by_status by_conform_ids(int32_t **ids, const by_json *list, by_arena *arena, by_err *err) {
    *ids = by_arena_alloc(arena, by_mul_size(list->n, sizeof **ids));
    if (!*ids) return BY_FAIL(err, BY_ENOMEM, "out of memory for token ids");
    for (uint32_t i = 0; i < list->n; i++) {
        int64_t id;
        (*ids)[i] = by_json_int_in(&list->v.items[i], 0, INT32_MAX, &id) ? (int32_t)id : -1;
    }
    return BY_OK;
}

by_answer_reason by_conform_finish(by_str word) {
    if (by_str_eqz(word, "length")) return BY_REASON_LENGTH;
    return by_str_eqz(word, "content_filter") ? BY_REASON_FILTER : BY_REASON_STOP;
}

/* ---- the result ---- */

typedef struct parse_result {
    by_json_out *o; /* in the list of the chunk's deltas */
    by_buf reasoning, content;
    by_buf calls; /* JSON objects, the last one still open inside its arguments */
    by_answer_end_kind end;
} parse_result;

static const char *finish_word(by_answer_end_kind kind) {
    static const char *const words[] = {"stop", "tool_calls", "length", "content_filter", "stop"};
    return words[kind];
}

static void on_begin(void *ctx, const by_answer_begin *b) {
    (void)ctx;
    (void)b;
}

static void close_call(by_buf *calls) {
    if (calls->len) by_buf_push_z(calls, "\"}");
}

static void open_call(by_buf *calls, by_str name) {
    close_call(calls);
    if (calls->len) by_buf_push_z(calls, ", ");
    by_buf_push_z(calls, "{\"name\": ");
    by_json_write_string(calls, name);
    by_buf_push_z(calls, ", \"arguments\": \"");
}

static void on_delta(void *ctx, const by_answer_delta *a) {
    static const char *const keys[] = {"r", "c", "call", "args"};
    parse_result *r = ctx;
    const by_delta *d = &a->d;
    by_json_out_object_begin(r->o);
    by_json_out_key(r->o, keys[d->kind]);
    switch (d->kind) {
    case BY_DELTA_REASONING:
        by_buf_push_str(&r->reasoning, d->text);
        by_json_out_string(r->o, d->text);
        break;
    case BY_DELTA_CONTENT:
        by_buf_push_str(&r->content, d->text);
        by_json_out_string(r->o, d->text);
        break;
    case BY_DELTA_CALL:
        open_call(&r->calls, d->text);
        by_json_out_uint(r->o, d->call);
        by_json_out_key(r->o, "name");
        by_json_out_string(r->o, d->text);
        by_json_out_key(r->o, "et");
        by_json_out_bool(r->o, d->no_reasoning);
        break;
    case BY_DELTA_ARGS:
        by_json_write_escaped(&r->calls, d->text);
        by_json_out_string(r->o, d->text);
        by_json_out_key(r->o, "call");
        by_json_out_uint(r->o, d->call);
        break;
    }
    by_json_out_object_end(r->o);
}

static void on_end(void *ctx, const by_answer_end *e) {
    parse_result *r = ctx;
    r->end = e->kind;
    by_json_out_object_begin(r->o);
    by_json_out_key(r->o, "finish");
    by_json_out_z(r->o, finish_word(e->kind));
    by_json_out_object_end(r->o);
}

static by_status push_chunk(by_answer *a, const by_json *chunk, by_arena *arena, by_err *err) {
    if (chunk->type == BY_JSON_STRING) return by_answer_text(a, chunk->v.s, 1, err);
    if (chunk->type != BY_JSON_ARRAY) return BY_FAIL(err, BY_EFORMAT, "input.chunks: want strings or lists of ids");
    int32_t *ids;
    BY_TRY(by_conform_ids(&ids, chunk, arena, err));
    return by_answer_tokens(a, ids, chunk->n, NULL, 0, err);
}

/* Writes the list of lists; *ended_before is the chunk that a stop string kept out, or -1. */
static by_status write_deltas(by_answer *a, const by_json *chunks, const by_json *finish, by_json_out *o,
                              int64_t *ended_before, by_arena *arena, by_err *err) {
    *ended_before = -1;
    by_json_out_array_begin(o);
    for (uint32_t i = 0; i < chunks->n; i++) {
        if (by_answer_finished(a)) {
            *ended_before = i;
            break;
        }
        by_json_out_array_begin(o);
        BY_TRY(push_chunk(a, &chunks->v.items[i], arena, err));
        by_json_out_array_end(o);
    }
    if (!by_answer_finished(a)) {
        by_json_out_array_begin(o);
        if (by_json_is(finish, BY_JSON_STRING)) BY_TRY(by_answer_finish(a, by_conform_finish(finish->v.s), err));
        else BY_TRY(by_answer_end_input(a, err));
        by_json_out_array_end(o);
    }
    by_json_out_array_end(o);
    return BY_OK;
}

static void write_final(parse_result *r, bool thinking, by_json_out *o) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "reasoning");
    if (thinking) by_json_out_string(o, by_buf_str(&r->reasoning));
    else by_json_out_null(o);
    by_json_out_key(o, "content");
    by_json_out_string(o, by_buf_str(&r->content));
    by_json_out_key(o, "tool_calls");
    by_json_out_array_begin(o);
    close_call(&r->calls);
    if (r->calls.len) by_json_out_raw(o, by_buf_str(&r->calls));
    by_json_out_array_end(o);
    by_json_out_key(o, "finish_reason");
    by_json_out_z(o, finish_word(r->end));
    by_json_out_object_end(o);
}

/* {parsing, chunks, finish, tokenizer?} -> {deltas, finished_before_chunk, final} */
static by_status parse(by_conform *c, const by_json *row, const by_json *input, by_json_out *o, by_err *err) {
    (void)row;
    const by_json *chunks;
    BY_TRY(by_conform_field(input, "chunks", BY_JSON_ARRAY, &chunks, err));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_REQUEST);
    by_answer_opts opts = {.call_id_seed = 0};
    parse_result r = {.o = o};
    by_answer_sink sink = {.begin = on_begin, .delta = on_delta, .end = on_end, .ctx = &r};
    by_answer *a = NULL;
    int64_t ended_before = -1;
    by_status status = BY_OK;
    BY_TRY_OUT(by_conform_parsing(&opts.parser, by_json_get(input, "parsing"), &arena, err));
    BY_TRY_OUT(by_conform_row_tok(c, input, &opts, err));
    BY_TRY_OUT(by_answer_create(&a, &opts, &sink, err));
    by_json_out_object_begin(o);
    by_json_out_key(o, "deltas");
    BY_TRY_OUT(write_deltas(a, chunks, by_json_get(input, "finish"), o, &ended_before, &arena, err));
    by_json_out_key(o, "finished_before_chunk");
    if (ended_before >= 0) by_json_out_int(o, ended_before);
    else by_json_out_null(o);
    by_json_out_key(o, "final");
    write_final(&r, opts.parser.stage != BY_STAGE_NONE, o);
    by_json_out_object_end(o);
    if (r.reasoning.failed || r.content.failed || r.calls.failed) status = BY_FAIL(err, BY_ENOMEM, "out of memory");
out:
    by_answer_destroy(a);
    by_arena_deinit(&arena);
    by_buf_deinit(&r.reasoning);
    by_buf_deinit(&r.content);
    by_buf_deinit(&r.calls);
    return status;
}

const by_conform_kind by_conform_parse_kinds[] = {{"parse", parse}, {NULL, NULL}};
