/* bench_recipe.c - `bathyc bench recipe`: cost of a request's way to token ids (bench_request.c) and of an answer's way from text
 * or ids to the events of an API, one thread.
 *
 * With --lines the answers come from outside, {"chunks": ["...", ...]} or {"ids": [...]} a line, with --requests the requests; one
 * result line each and the time of all on stderr, so that other programs can be timed beside this one (bench/recipe_*.py). */
#include <stdio.h>
#include <string.h>

#include "api/api_stream.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "cli/bench_request.h"
#include "cli/command.h"
#include "recipe/recipe_tok.h"
#include "json/json_write.h"

typedef struct {
    by_str *chunks; /* pieces of text, or */
    int32_t *ids;   /* ids, one chunk each */
    size_t n;
} answer_input;

typedef struct {
    by_api_converted request;
    by_tok *tok;
    by_tok_scratch *scratch;
    uint64_t n_events, n_bytes;
} bench;

static void count_event(void *ctx, const char *name, by_str json) {
    bench *b = ctx;
    (void)name;
    b->n_events++;
    b->n_bytes += json.len;
}

static void no_begin(void *ctx, const by_answer_begin *x) { (void)ctx, (void)x; }
static void no_end(void *ctx, const by_answer_end *x) { (void)ctx, (void)x; }
static void count_delta(void *ctx, const by_answer_delta *d) {
    bench *b = ctx;
    b->n_events++;
    b->n_bytes += d->d.text.len;
}

/* One answer as events of the request's API. */
static by_status run_events(bench *b, const answer_input *in, by_err *err) {
    by_api_stream_opts opts = {.request = &b->request, .id = BY_STR("id-1"), .on_event = count_event, .ctx = b};
    if (in->ids) {
        opts.answer.tok = b->tok;
        opts.answer.scratch = b->scratch;
    }
    by_api_stream *s = NULL;
    BY_TRY(by_api_stream_create(&s, &opts, err));
    by_status status = by_api_stream_ready(s, 10, 0, NULL, err);
    for (size_t i = 0; i < in->n && status == BY_OK && !by_api_stream_finished(s); i++)
        status = in->ids ? by_api_stream_tokens(s, in->ids + i, 1, NULL, 0, err)
                         : by_api_stream_text(s, in->chunks[i], 1, err);
    if (status == BY_OK && !by_api_stream_finished(s)) status = by_api_stream_finish(s, BY_REASON_STOP, err);
    by_api_stream_destroy(s);
    return status;
}

/* The same without any JSON. */
static by_status run_deltas(bench *b, const answer_input *in, by_err *err) {
    by_answer_opts opts = {.parser = b->request.parsing, .tok = in->ids ? b->tok : NULL, .scratch = b->scratch};
    const by_answer_sink sink = {.begin = no_begin, .delta = count_delta, .end = no_end, .ctx = b};
    by_answer *a = NULL;
    BY_TRY(by_answer_create(&a, &opts, &sink, err));
    by_status status = BY_OK;
    for (size_t i = 0; i < in->n && status == BY_OK && !by_answer_finished(a); i++)
        status = in->ids ? by_answer_tokens(a, in->ids + i, 1, NULL, 0, err) : by_answer_text(a, in->chunks[i], 1, err);
    if (status == BY_OK && !by_answer_finished(a)) status = by_answer_finish(a, BY_REASON_STOP, err);
    by_answer_destroy(a);
    return status;
}

static void set_request(bench *b, by_api_kind api) {
    b->request = (by_api_converted){.api = api, .model = BY_STR("DeepSeek-V4.1-Flash"), .stream = true};
    b->request.conversation.thinking = true;
    b->request.parsing = (by_parser_opts){.parse_calls = true, .stage = BY_STAGE_REASONING_START};
}

/* ---- the built-in answer: reasoning, text, two calls ---- */

static void write_answer(by_buf *out) {
    static const char prose[] = "The gardens are open from nine until the sun goes down, and the path along the river is the one "
                                "to take if you have an hour; \"bring water\", says the keeper, since the shop closes early.\n";
    for (int i = 0; i < 20; i++) by_buf_push_z(out, prose);
    by_buf_push_z(out, "</think>\n\n");
    for (int i = 0; i < 8; i++) by_buf_push_z(out, prose);
    by_buf_push_z(out, "\n\n<｜DSML｜ calls>\n");
    for (int i = 0; i < 2; i++)
        by_buf_printf(out,
                      "<｜DSML｜ invoke name=\"tool_%d\">\n<｜DSML｜ parameter name=\"arg0\" string=\"true\">%s</｜DSML｜ parameter>\n"
                      "<｜DSML｜ parameter name=\"arg1\" string=\"false\">%d</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n",
                      i, prose, i);
    by_buf_push_z(out, "</｜DSML｜ calls>");
}

/* Ids of the text, and the text cut where the tokens end (never inside a character). */
static by_status cut_answer(bench *b, by_str text, answer_input *by_ids, answer_input *by_text, by_arena *arena, by_err *err) {
    by_tok_ids ids = {0};
    by_status status = by_tok_encode(b->tok, b->scratch, text, BY_TOK_FULL, &ids, err);
    int32_t *copy = by_arena_alloc(arena, by_mul_size(ids.n, sizeof *copy));
    by_str *chunks = by_arena_alloc(arena, by_mul_size(ids.n, sizeof *chunks));
    if (status == BY_OK && (!copy || !chunks)) status = BY_FAIL(err, BY_ENOMEM, "out of memory for the answer");
    if (status == BY_OK) {
        memcpy(copy, ids.ids, ids.n * sizeof *copy);
        *by_ids = (answer_input){.ids = copy, .n = ids.n};
        *by_text = (answer_input){.chunks = chunks};
        size_t at = 0, from = 0;
        for (size_t i = 0; i < ids.n; i++) {
            at += by_tok_bytes(b->tok, ids.ids[i]).len;
            if (at < text.len && ((unsigned char)text.ptr[at] & 0xc0u) == 0x80u) continue;
            chunks[by_text->n++] = by_str_of(text.ptr + from, at - from);
            from = at;
        }
    }
    by_tok_ids_deinit(&ids);
    return status;
}

typedef by_status run_fn(bench *b, const answer_input *in, by_err *err);

/* Best microseconds a chunk over runs that fill the time. */
static by_status measure(bench *b, run_fn *run, const answer_input *in, double seconds, double *us, by_err *err) {
    double best = 0, until = by_clock_s() + seconds;
    for (int i = 0; i < 3 || by_clock_s() < until; i++) {
        b->n_events = b->n_bytes = 0;
        double t = by_clock_s();
        BY_TRY(run(b, in, err));
        t = by_clock_s() - t;
        if (i == 0 || t < best) best = t;
    }
    *us = best * 1e6 / (double)in->n;
    return BY_OK;
}

static by_status run_built_in(bench *b, double seconds, bool json, by_err *err) {
    static const struct {
        const char *name;
        by_api_kind api;
        bool ids, deltas;
    } jobs[] = {{"chat events, text", BY_API_CHAT, false, false},
                {"chat events, ids", BY_API_CHAT, true, false},
                {"messages events, text", BY_API_MESSAGES, false, false},
                {"responses events, text", BY_API_RESPONSES, false, false},
                {"deltas, text", BY_API_CHAT, false, true},
                {"deltas, ids", BY_API_CHAT, true, true}};
    by_arena arena;
    by_buf text = {0};
    answer_input inputs[2] = {0};
    by_arena_init(&arena, BY_MEM_MISC);
    write_answer(&text);
    by_status status = by_buf_check(&text, err);
    if (status == BY_OK) status = cut_answer(b, by_buf_str(&text), &inputs[1], &inputs[0], &arena, err);
    if (status == BY_OK && !json)
        printf("one answer of %zu bytes, %zu tokens\n\n%-26s %10s %12s %10s %12s\n", text.len, inputs[1].n, "way", "us/token",
               "tokens/s", "events", "JSON bytes");
    for (size_t i = 0; status == BY_OK && i < sizeof jobs / sizeof jobs[0]; i++) {
        double us = 0;
        set_request(b, jobs[i].api);
        status = measure(b, jobs[i].deltas ? run_deltas : run_events, &inputs[jobs[i].ids], seconds, &us, err);
        if (status != BY_OK) break;
        printf(json ? "{\"way\":\"%s\",\"us_per_token\":%.4f,\"tokens_per_s\":%.0f,\"events\":%llu,\"bytes\":%llu}\n"
                    : "%-26s %10.4f %12.0f %10llu %12llu\n",
               jobs[i].name, us, 1e6 / us, (unsigned long long)b->n_events, (unsigned long long)b->n_bytes);
    }
    by_buf_deinit(&text);
    by_arena_deinit(&arena);
    return status;
}

/* ---- answers from outside ---- */

static by_status read_line(answer_input *in, by_str line, by_arena *arena, by_err *err) {
    by_json v;
    BY_TRY(by_json_parse(&v, arena, line, NULL, err));
    const by_json *list = by_json_get(&v, "chunks"), *ids = by_json_get(&v, "ids");
    const by_json *given = by_json_is(ids, BY_JSON_ARRAY) ? ids : list;
    if (!by_json_is(given, BY_JSON_ARRAY)) return BY_FAIL(err, BY_EFORMAT, "want {\"chunks\": [...]} or {\"ids\": [...]}");
    *in = (answer_input){.n = given->n};
    if (given == ids) in->ids = by_arena_zero(arena, by_mul_size(given->n, sizeof *in->ids));
    else in->chunks = by_arena_zero(arena, by_mul_size(given->n, sizeof *in->chunks));
    if (!in->ids && !in->chunks) return BY_FAIL(err, BY_ENOMEM, "out of memory for a line");
    for (uint32_t i = 0; i < given->n; i++) {
        int64_t id = 0;
        if (in->chunks && given->v.items[i].type == BY_JSON_STRING) in->chunks[i] = given->v.items[i].v.s;
        else if (in->ids && by_json_int_in(&given->v.items[i], 0, INT32_MAX, &id)) in->ids[i] = (int32_t)id;
        else return BY_FAIL(err, BY_EFORMAT, "item %u is of the wrong type", i);
    }
    return BY_OK;
}

static by_status run_lines(bench *b, const char *path, by_err *err) {
    by_line_reader r = {.fd = -1};
    BY_TRY(by_line_reader_open(&r, path, err));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_MISC);
    by_str line;
    by_status status;
    double seconds = 0;
    while ((status = by_line_reader_next(&r, &line, err)) == BY_OK) {
        answer_input in;
        by_arena_reset(&arena);
        b->n_events = b->n_bytes = 0;
        status = read_line(&in, line, &arena, err);
        double t = by_clock_s();
        if (status == BY_OK) status = run_events(b, &in, err);
        seconds += by_clock_s() - t;
        if (status != BY_OK) {
            if (err) by_err_prefix(err, "line %zu: ", r.n_lines);
            break;
        }
        printf("{\"events\":%llu,\"bytes\":%llu}\n", (unsigned long long)b->n_events, (unsigned long long)b->n_bytes);
    }
    fprintf(stderr, "{\"seconds\": %.9f}\n", seconds);
    by_arena_deinit(&arena);
    by_line_reader_close(&r);
    return status == BY_END ? BY_OK : status;
}

int by_bench_recipe(int argc, char **argv) {
    const by_usage usage = {"bench recipe", "[flags]",
                            "Microseconds from a request to its token ids, and a token from an answer to the events of an API; one thread.\n"};
    const char *model = NULL, *tokenizer = NULL, *lines = NULL, *requests = NULL;
    double seconds = 1;
    int api = 0;
    bool json = false;
    const by_flag flags[] = {
        BY_TOKENIZER_FLAG_ROWS(model, tokenizer),
        {"--seconds", BY_FLAG_DOUBLE, &seconds, .help = "time for each way, 1", .dmin = 0.01, .dmax = 600},
        {"--json", BY_FLAG_BOOL, &json, .help = "one JSON object a line"},
        {"--lines", BY_FLAG_STRING, &lines, .help = "time the answers of a file ({\"chunks\"} or {\"ids\"} a line), - for standard input"},
        {"--requests", BY_FLAG_STRING, &requests, .help = "time the Chat requests of a file (a body a line), - for standard input"},
        {"--api", BY_FLAG_CHOICE, &api, .help = "events of --lines", .choices = "chat|responses|messages"},
    };
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err;
    by_buf path = {0};
    bench b = {.n_events = 0};
    by_status status = by_command_tokenizer_file(&path, tokenizer, model, &err);
    if (status == BY_OK) status = by_recipe_tok_open(&b.tok, by_buf_z(&path), &err);
    if (status == BY_OK) status = by_tok_scratch_create(&b.scratch, b.tok, &err);
    set_request(&b, (by_api_kind)api);
    if (status == BY_OK && requests) status = by_bench_request_lines(b.tok, b.scratch, requests, &err);
    else if (status == BY_OK && lines) status = run_lines(&b, lines, &err);
    else if (status == BY_OK) status = by_bench_request_built_in(b.tok, b.scratch, seconds, json, &err);
    if (status == BY_OK && !requests && !lines) status = run_built_in(&b, seconds, json, &err);
    by_tok_scratch_destroy(b.scratch);
    by_tok_destroy(b.tok);
    by_buf_deinit(&path);
    return status == BY_OK ? 0 : by_command_fail(&usage, &err);
}
