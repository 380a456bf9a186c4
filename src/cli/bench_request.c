/* bench_request.c - the half of `bathyc bench recipe` from a request body to the prompt's token ids, one thread. */
#include <stdio.h>
#include <string.h>

#include "api/api_request.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench_request.h"
#include "cli/command.h"
#include "json/json_write.h"
#include "recipe/prompt.h"

enum { CONVERTED, RENDERED, ENCODED, N_STAGES };

/* What one thread of a server keeps from request to request. */
typedef struct {
    by_tok *tok;
    by_tok_scratch *scratch;
    by_arena arena;
    by_recipe_prompt prompt;
    by_tok_ids ids;
    double seconds[N_STAGES]; /* since the body was there */
} worker;

static by_status run_one(worker *w, by_str body, by_err *err) {
    by_api_options options;
    by_api_converted c;
    by_api_error error;
    by_api_options_init(&options);
    by_arena_reset(&w->arena);
    w->ids.n = 0;
    double start = by_clock_s();
    by_status status = by_api_convert(&c, &error, &w->arena, BY_API_CHAT, body, &options, err);
    w->seconds[CONVERTED] = by_clock_s() - start;
    if (status == BY_EINVAL) return BY_FAIL(err, BY_EINVAL, "%.*s", BY_STR_ARG(error.message));
    if (status == BY_OK) status = by_recipe_render(&w->prompt, &c.conversation, c.version, NULL, err);
    w->seconds[RENDERED] = by_clock_s() - start;
    if (status == BY_OK) status = by_recipe_encode(&w->ids, &w->prompt, w->tok, w->scratch, err);
    w->seconds[ENCODED] = by_clock_s() - start;
    return status;
}

static void close_worker(worker *w) {
    by_recipe_prompt_deinit(&w->prompt);
    by_tok_ids_deinit(&w->ids);
    by_arena_deinit(&w->arena);
}

/* ---- the built-in request: 20 messages, 10 tools ---- */

static void push_words(by_buf *out, by_rng *rng, int n) {
    static const char *const words[] = {
        "the",     "of",       "and",      "to",       "a",        "in",      "that",     "is",       "with",      "for",
        "license", "covered",  "work",     "source",   "code",     "you",     "may",      "convey",   "program",   "under",
        "terms",   "section",  "any",      "software", "version",  "must",    "recipients", "rights", "copyright", "patent",
        "general", "public",   "free",     "users",    "change",   "copies",  "provided", "notices",  "object",    "form",
        "system",  "library",  "(including", "those)", "\\\"keep", "intact\\\"", "network,", "which",  "require",  "permission.",
        "However,", "nothing", "otherwise", "applies", "party",    "within",  "reasonable", "period", "30",        "days;"};
    for (int i = 0; i < n; i++)
        by_buf_printf(out, "%s%s", i ? " " : "", words[by_rng_below(rng, sizeof words / sizeof words[0])]);
}

static void write_body(by_buf *b, by_rng *rng) {
    static const char *const types[] = {"string", "integer", "boolean", "number"};
    by_buf_push_z(b, "{\"model\": \"DeepSeek-V4.1-Flash\", \"messages\": [{\"role\": \"system\", \"content\": \"");
    push_words(b, rng, 150);
    for (int n = 1, k = 0; n < 20; n++) {
        by_buf_push_z(b, "\"}, {\"role\": \"user\", \"content\": \"");
        push_words(b, rng, 120);
        if (n >= 17) continue;
        by_buf_push_z(b, "\"}, {\"role\": \"assistant\", \"content\": \"");
        push_words(b, rng, 20);
        by_buf_push_z(b, "\", \"reasoning_content\": \"");
        push_words(b, rng, 80);
        by_buf_printf(b, "\", \"tool_calls\": [{\"id\": \"c%d\", \"type\": \"function\", \"function\": {\"name\": \"tool_%d\", "
                         "\"arguments\": \"{\\\"arg0\\\": \\\"where to go\\\", \\\"arg1\\\": %d, \\\"arg2\\\": true}\"}}]}, "
                         "{\"role\": \"tool\", \"tool_call_id\": \"c%d\", \"content\": \"", k, k % 10, k, k);
        push_words(b, rng, 100);
        k++;
        n += 2;
    }
    by_buf_push_z(b, "\"}], \"tools\": [");
    for (int i = 0; i < 10; i++) {
        by_buf_printf(b, "%s{\"type\": \"function\", \"function\": {\"name\": \"tool_%d\", \"description\": \"", i ? ", " : "", i);
        push_words(b, rng, 30);
        by_buf_push_z(b, "\", \"parameters\": {\"type\": \"object\", \"properties\": {");
        for (int k = 0; k < 5; k++) {
            by_buf_printf(b, "%s\"arg%d\": {\"type\": \"%s\", \"description\": \"", k ? ", " : "", k, types[k % 4]);
            push_words(b, rng, 12);
            by_buf_push_z(b, "\"}");
        }
        by_buf_push_z(b, "}, \"required\": [\"arg0\", \"arg1\"]}}}");
    }
    by_buf_push_z(b, "], \"stream\": true, \"temperature\": 0.7}");
}

/* Best time of each stage over runs that fill the time. */
static by_status measure(worker *w, by_str body, double seconds, double best[N_STAGES], by_err *err) {
    double until = by_clock_s() + seconds;
    for (int i = 0; i < 3 || by_clock_s() < until; i++) {
        BY_TRY(run_one(w, body, err));
        for (int k = 0; k < N_STAGES; k++)
            if (i == 0 || w->seconds[k] < best[k]) best[k] = w->seconds[k];
    }
    return BY_OK;
}

by_status by_bench_request_built_in(by_tok *tok, by_tok_scratch *scratch, double seconds, bool json, by_err *err) {
    static const char *const names[N_STAGES] = {"request to conversation", "request to prompt text", "request to prompt ids"};
    worker w = {.tok = tok, .scratch = scratch};
    by_buf body = {0};
    by_rng rng = {1};
    double best[N_STAGES];
    by_arena_init(&w.arena, BY_MEM_REQUEST);
    write_body(&body, &rng);
    by_status status = by_buf_check(&body, err);
    if (status == BY_OK) status = measure(&w, by_buf_str(&body), seconds, best, err);
    if (status == BY_OK && !json)
        printf("one request of %zu bytes (20 messages, 10 tools), prompt of %zu bytes, %zu tokens\n\n%-26s %10s %12s\n", body.len,
               w.prompt.text.len, w.ids.n, "way", "us", "requests/s");
    for (int k = 0; status == BY_OK && k < N_STAGES; k++)
        printf(json ? "{\"way\":\"%s\",\"us\":%.3f,\"requests_per_s\":%.0f}\n" : "%-26s %10.1f %12.0f\n", names[k], best[k] * 1e6,
               1 / best[k]);
    if (status == BY_OK && !json) putchar('\n');
    by_buf_deinit(&body);
    close_worker(&w);
    return status;
}

/* ---- requests from outside ---- */

static void print_ids(const by_tok_ids *ids) {
    fputs("{\"ids\":[", stdout);
    for (size_t i = 0; i < ids->n; i++) printf("%s%d", i ? "," : "", ids->ids[i]);
    fputs("]}\n", stdout);
}

by_status by_bench_request_lines(by_tok *tok, by_tok_scratch *scratch, const char *path, by_err *err) {
    worker w = {.tok = tok, .scratch = scratch};
    by_line_reader r = {.fd = -1};
    by_str line;
    double sum[N_STAGES] = {0};
    BY_TRY(by_line_reader_open(&r, path, err));
    by_arena_init(&w.arena, BY_MEM_REQUEST);
    by_status status;
    while ((status = by_line_reader_next(&r, &line, err)) == BY_OK) {
        status = run_one(&w, line, err);
        if (status != BY_OK) {
            if (err) by_err_prefix(err, "line %zu: ", r.n_lines);
            break;
        }
        for (int k = 0; k < N_STAGES; k++) sum[k] += w.seconds[k];
        print_ids(&w.ids);
    }
    fprintf(stderr, "{\"conversation\": %.9f, \"text\": %.9f, \"seconds\": %.9f}\n", sum[CONVERTED], sum[RENDERED], sum[ENCODED]);
    close_worker(&w);
    by_line_reader_close(&r);
    return status == BY_END ? BY_OK : status;
}
