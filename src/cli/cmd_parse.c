/* cmd_parse.c - `bathyc parse`: what a model wrote -> reasoning, content and tool calls, for people or as an API shows it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/api_stream.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "json/json_write.h"

typedef struct {
    const char *input, *model, *tokenizer;
    int api; /* index into APIS, 0 = none */
    int stage, finish, profile;
    int64_t piece;
    by_flag_list stops;
    bool calls, calls_open, json_output, ids, events, json;
} options;

#define APIS "none|chat|responses|messages|completions"

/* ---- input ---- */

/* Token ids: digits, with blanks, line ends, commas and brackets between them. */
static by_status read_ids(by_tok_ids *ids, by_str text, by_err *err) {
    size_t cap = 0;
    for (size_t i = 0; i < text.len;) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') {
            if (!text.ptr[i] || !strchr(" \t\r\n,[]", text.ptr[i]))
                return BY_FAIL(err, BY_EINVAL, "--ids: byte %zu of the input is neither a digit nor a separator", i + 1);
            i++;
            continue;
        }
        int64_t id = 0;
        for (; i < text.len && text.ptr[i] >= '0' && text.ptr[i] <= '9'; i++)
            if (id <= INT32_MAX) id = id * 10 + (text.ptr[i] - '0');
        if (id > INT32_MAX) return BY_FAIL(err, BY_EINVAL, "a token id is above %d", INT32_MAX);
        if (ids->n == cap) {
            cap = cap ? 2 * cap : 256;
            int32_t *more = by_realloc(BY_MEM_TOK, ids->ids, by_mul_size(cap, sizeof *more));
            if (!more) return BY_FAIL(err, BY_ENOMEM, "out of memory for token ids");
            ids->ids = more;
        }
        ids->ids[ids->n++] = (int32_t)id;
    }
    return BY_OK;
}

static by_status check_ids(const by_tok *tok, const by_tok_ids *ids, by_err *err) {
    for (size_t i = 0; i < ids->n; i++)
        if (!by_tok_bytes(tok, ids->ids[i]).ptr)
            return BY_FAIL(err, BY_EINVAL, "--ids: %d (number %zu of the input) is no token of this tokenizer", ids->ids[i], i + 1);
    return BY_OK;
}

static by_status feed(by_api_stream *s, const options *o, by_str text, const by_tok_ids *ids, by_err *err) {
    size_t n = o->ids ? ids->n : text.len, piece = o->piece ? (size_t)o->piece : n;
    BY_TRY(by_api_stream_ready(s, 0, 0, NULL, err));
    for (size_t at = 0; at < n && !by_api_stream_finished(s); at += piece) {
        size_t m = n - at < piece ? n - at : piece;
        if (o->ids) BY_TRY(by_api_stream_tokens(s, ids->ids + at, m, NULL, 0, err));
        else BY_TRY(by_api_stream_text(s, by_str_of(text.ptr + at, m), 0, err));
    }
    return by_api_stream_finished(s) ? BY_OK : by_api_stream_finish(s, (by_answer_reason)o->finish, err);
}

/* ---- output ---- */

static void print_event(void *ctx, const char *name, by_str json) {
    by_buf *b = ctx;
    by_buf_clear(b);
    by_api_write_sse(b, name, json);
    fwrite(b->ptr, 1, b->len, stdout);
}

/* A part under its heading, indented by two. */
static void print_part(const char *heading, by_str text) {
    printf("%s\n", heading);
    for (size_t i = 0, start = 0; i <= text.len; i++) {
        if (i < text.len && text.ptr[i] != '\n') continue;
        printf("  ");
        fwrite(text.ptr + start, 1, i - start, stdout);
        putchar('\n');
        start = i + 1;
    }
}

/* For people: read back from the Chat Completions object, which has everything. */
static by_status print_plain(by_str object, by_err *err) {
    by_arena arena;
    by_json v;
    by_arena_init(&arena, BY_MEM_JSON);
    by_status status = by_json_parse(&v, &arena, object, NULL, err);
    if (status == BY_OK) {
        const by_json *choice = by_json_at(by_json_get(&v, "choices"), 0), *m = by_json_get(choice, "message");
        const by_json *reasoning = by_json_get(m, "reasoning_content"), *content = by_json_get(m, "content");
        const by_json *calls = by_json_get(m, "tool_calls");
        if (by_json_is(reasoning, BY_JSON_STRING) && reasoning->v.s.len) print_part("reasoning", reasoning->v.s);
        if (by_json_is(content, BY_JSON_STRING) && content->v.s.len) print_part("content", content->v.s);
        for (uint32_t i = 0; calls && i < calls->n; i++) {
            const by_json *f = by_json_get(&calls->v.items[i], "function");
            by_str name = by_json_get(f, "name")->v.s;
            printf("call %u ", i);
            fwrite(name.ptr, 1, name.len, stdout);
            print_part("", by_json_get(f, "arguments")->v.s);
        }
        by_str reason = by_json_get(choice, "finish_reason")->v.s;
        printf("finish %.*s\n", BY_STR_ARG(reason));
    }
    by_arena_deinit(&arena);
    return status;
}

static by_status print_whole(by_api_stream *s, const options *o, by_err *err) {
    by_buf out = {0};
    by_status status = by_api_stream_write_whole(s, &out, err);
    if (status == BY_OK && (o->api || o->json)) printf("%s\n", by_buf_z(&out));
    else if (status == BY_OK) status = print_plain(by_buf_str(&out), err);
    by_buf_deinit(&out);
    return status;
}

/* ---- the command ---- */

static void set_request(by_api_converted *r, const options *o, by_str *stops) {
    *r = (by_api_converted){.api = o->api ? (by_api_kind)(o->api - 1) : BY_API_CHAT, .stream = o->events,
                            .model = BY_STR("DeepSeek-V4.1-Flash")};
    r->conversation.thinking = o->stage != BY_STAGE_NONE;
    r->echo.temperature = r->echo.top_p = 1;
    for (int i = 0; i < o->stops.n; i++) stops[i] = by_str_z(o->stops.items[i]);
    r->parsing = (by_parser_opts){.parse_calls = o->calls,
                                  .starts_in_calls = o->calls_open,
                                  .json_output = o->json_output,
                                  .eager = o->profile == BY_API_SERVER,
                                  .stage = (by_stage)o->stage,
                                  .stops = stops,
                                  .n_stops = (size_t)o->stops.n};
}

static by_status run(const options *o, by_arena *arena, by_err *err) {
    by_buf text = {0}, event = {0};
    by_tok_ids ids = {0};
    by_tok *tok = NULL;
    by_api_stream *s = NULL;
    by_api_converted request;
    by_str *stops = by_arena_alloc(arena, by_mul_size((size_t)o->stops.n, sizeof *stops));
    by_status status = stops ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for stop strings");
    if (status == BY_OK) set_request(&request, o, stops);
    if (status == BY_OK) status = by_file_read(&text, o->input, BY_LIMIT_REQUEST_BYTES, err);
    if (status == BY_OK && o->ids) {
        status = read_ids(&ids, by_buf_str(&text), err);
        if (status == BY_OK) status = by_command_tokenizer_open(&tok, o->tokenizer, o->model, err);
        if (status == BY_OK) status = check_ids(tok, &ids, err);
    }
    by_api_stream_opts opts = {.request = &request,
                               .id = BY_STR("answer"),
                               .created = (int64_t)time(NULL),
                               .answer = {.tok = tok, .server = o->profile == BY_API_SERVER},
                               .on_event = o->events ? print_event : NULL,
                               .ctx = &event,
                               .keep_whole = true};
    if (status == BY_OK) status = by_api_stream_create(&s, &opts, err);
    if (status == BY_OK) status = feed(s, o, by_buf_str(&text), &ids, err);
    if (status == BY_OK && !o->events) status = print_whole(s, o, err);
    if (status == BY_OK && o->events && by_api_done_data(request.api)) printf("data: %s\n\n", by_api_done_data(request.api));
    by_api_stream_destroy(s);
    by_tok_destroy(tok);
    by_tok_ids_deinit(&ids);
    by_buf_deinit(&text);
    by_buf_deinit(&event);
    return status;
}

int by_cmd_parse(int argc, char **argv) {
    const by_usage usage = {"parse", "[flags] [FILE]",
                            "Splits a model's output (FILE or standard input) into reasoning, content and tool calls.\n"};
    options o = {.input = "-", .calls = true, .stage = BY_STAGE_REASONING_START, .profile = BY_API_SERVER};
    const by_flag flags[] = {
        {"--api", BY_FLAG_CHOICE, &o.api, .help = "print the object of this API instead of plain text", .choices = APIS},
        {"--events", BY_FLAG_BOOL, &o.events, .help = "print the API's server-sent events (chat without --api)"},
        {"--json", BY_FLAG_BOOL, &o.json, .help = "print the Chat Completions object"},
        {"--stage", BY_FLAG_CHOICE, &o.stage, .help = "where the prompt left off: none = thinking is off (default: reasoning_start)",
         .choices = "none|reasoning_start|reasoning_continuation|content_continuation"},
        {"--stop", BY_FLAG_LIST, &o.stops, .help = "stop string; may repeat"},
        {"--no-calls", BY_FLAG_BOOL, &o.calls, .help = "tool call markup is text"},
        {"--calls-open", BY_FLAG_BOOL, &o.calls_open, .help = "the prompt has opened the block of calls"},
        {"--json-output", BY_FLAG_BOOL, &o.json_output, .help = "JSON mode: keep only fenced or bare JSON"},
        {"--finish", BY_FLAG_CHOICE, &o.finish, .help = "why the model stopped (default: stop)",
         .choices = "stop|length|content_filter"},
        {"--piece", BY_FLAG_INT, &o.piece, .help = "feed N bytes (or ids) at a time; all at once without it", .min = 1,
         .max = 1 << 30},
        {"--profile", BY_FLAG_CHOICE, &o.profile, .help = "parity = as the original, piece by piece (default: server)",
         .choices = "parity|server"},
        {"--ids", BY_FLAG_BOOL, &o.ids, .help = "the input is token ids"},
        BY_TOKENIZER_FLAG_ROWS(o.model, o.tokenizer),
    };
    int code, n = 0;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, &o.input, 1, &n, &code)) return code;
    by_err err;
    by_arena arena;
    by_arena_init(&arena, BY_MEM_MISC);
    by_status status = run(&o, &arena, &err);
    by_arena_deinit(&arena);
    by_args_free(flags, sizeof flags / sizeof flags[0]);
    return status == BY_OK ? 0 : by_command_fail(&usage, &err);
}
