/* bench_serve.c - `bathyc bench serve`: load on this or any other OpenAI-compatible server over plain HTTP. Flags
 * follow vLLM's `bench serve` where both have a thing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/load.h"

enum { PERCENTILES_MAX = 16, PATH_MAX_BYTES = 1024 };

static const by_usage usage = {
    "bench serve", "[flags]",
    "Sends requests to a server and measures its answers. Without --request-rate all are sent as fast as "
    "--max-concurrency allows;\n"
    "with it they arrive at random times, whatever the server does. Random prompts have about one token a word; the "
    "report shows\n"
    "what the server counted. Measured from the send (a new connection included).\n\n"
    "  bathyc bench serve --num-prompts 200 --max-concurrency 16 --input-len 512 --output-len 64 --ignore-eos\n"
    "  bathyc bench serve --base-url http://10.0.0.7:8000 --request-rate 4 --goodput ttft:500,tpot:50 --json\n"};

typedef struct {
    const char *base_url, *endpoint, *host, *rate, *percentiles, *goodput, *output, *extra;
    int64_t port, n_warmup;
    int dataset;
    bool json, detailed;
    by_flag_list headers;
    by_load_opts load;
    char url_host[256], url_port[16], path[PATH_MAX_BYTES], prefix[PATH_MAX_BYTES / 2];
} settings;

/* http://HOST[:PORT][/PREFIX]; HOST may be [v6]. */
static by_status read_url(settings *s, by_err *err) {
    by_str rest = by_str_z(s->base_url);
    if (!by_str_starts(rest, BY_STR("http://")))
        return BY_FAIL(err, BY_EINVAL, "--base-url %s: only http:// is spoken", s->base_url);
    rest = by_str_skip(rest, 7);
    size_t slash = 0;
    while (slash < rest.len && rest.ptr[slash] != '/') slash++;
    by_str place = by_str_take(rest, slash), prefix = by_str_skip(rest, slash), port = BY_STR("80");
    while (prefix.len && prefix.ptr[prefix.len - 1] == '/') prefix.len--;
    const char *bracket = memchr(place.ptr, ']', place.len), *colon = memrchr(place.ptr, ':', place.len);
    if (colon && (!bracket || colon > bracket)) {
        port = by_str_skip(place, (size_t)(colon - place.ptr) + 1);
        place.len = (size_t)(colon - place.ptr);
    }
    if (place.len > 2 && place.ptr[0] == '[' && bracket) place = (by_str){place.ptr + 1, place.len - 2};
    if (!place.len || place.len >= sizeof s->url_host || !port.len || port.len >= 6 || prefix.len >= sizeof s->prefix)
        return BY_FAIL(err, BY_EINVAL, "--base-url %s: want http://HOST[:PORT][/PATH]", s->base_url);
    snprintf(s->url_host, sizeof s->url_host, "%.*s", BY_STR_ARG(place));
    snprintf(s->url_port, sizeof s->url_port, "%.*s", BY_STR_ARG(port));
    snprintf(s->prefix, sizeof s->prefix, "%.*s", BY_STR_ARG(prefix));
    return BY_OK;
}

static by_status read_percentiles(double *out, int *n, const char *text, by_err *err) {
    *n = 0;
    while (*text) {
        char *end;
        double p = strtod(text, &end);
        if (end == text || (*end && *end != ',') || !(p >= 0 && p <= 100) || *n == PERCENTILES_MAX)
            return BY_FAIL(err, BY_EINVAL, "--percentiles: want at most %d numbers from 0 to 100, as in 50,90,99",
                           PERCENTILES_MAX);
        out[(*n)++] = p;
        text = *end ? end + 1 : end;
    }
    return BY_OK;
}

/* Checks what the table of flags cannot. */
static by_status finish_settings(settings *s, by_load_report_opts *report, double *percentiles, by_err *err) {
    by_load_opts *o = &s->load;
    snprintf(s->url_host, sizeof s->url_host, "%s", s->host);
    snprintf(s->url_port, sizeof s->url_port, "%lld", (long long)s->port);
    if (s->base_url) BY_TRY(read_url(s, err));
    o->host = s->url_host;
    o->port = s->url_port;
    if (s->endpoint[0] != '/' || strlen(s->endpoint) >= PATH_MAX_BYTES / 2 || strpbrk(s->endpoint, " \r\n"))
        return BY_FAIL(err, BY_EINVAL, "--endpoint %s: want a path such as /v1/completions", s->endpoint);
    snprintf(s->path, sizeof s->path, "%s%s", s->prefix, s->endpoint);
    o->path = s->path;
    o->chat = strstr(s->endpoint, "chat/") != NULL;
    if (strcmp(s->rate, "inf") != 0) {
        char *end;
        o->rate = strtod(s->rate, &end);
        if (*end || !(o->rate > 0 && o->rate <= 1e6))
            return BY_FAIL(err, BY_EINVAL, "--request-rate %s: want inf, or requests a second up to 1e6", s->rate);
    }
    if (o->api_key && strpbrk(o->api_key, "\r\n")) return BY_FAIL(err, BY_EINVAL, "--api-key: has a line break");
    for (int i = 0; i < s->headers.n; i++)
        if (!strchr(s->headers.items[i], ':') || strpbrk(s->headers.items[i], "\r\n"))
            return BY_FAIL(err, BY_EINVAL, "--header '%s': want 'Name: value'", s->headers.items[i]);
    o->headers = s->headers.items;
    o->n_headers = s->headers.n;
    if (s->dataset == 1 && !o->dataset)
        return BY_FAIL(err, BY_EINVAL, "--dataset-name custom needs --dataset-path FILE");
    if (s->dataset == 0 && o->dataset) return BY_FAIL(err, BY_EINVAL, "--dataset-path needs --dataset-name custom");
    if (s->goodput) BY_TRY(by_load_goal_parse(&report->goal, s->goodput, err));
    report->percentiles = percentiles;
    report->detailed = s->detailed;
    return read_percentiles(percentiles, &report->n_percentiles, s->percentiles, err);
}

/* --extra-body's members without its braces. */
static by_status read_extra(by_buf *out, by_load_opts *o, const char *text, by_err *err) {
    by_arena arena;
    by_json v;
    by_arena_init(&arena, BY_MEM_MISC);
    by_status status = by_json_parse(&v, &arena, by_str_z(text), NULL, err);
    if (status == BY_OK && v.type != BY_JSON_OBJECT) status = BY_FAIL(err, BY_EINVAL, "want a JSON object");
    if (status < 0) by_err_prefix(err, "--extra-body: ");
    by_arena_deinit(&arena);
    BY_TRY(status);
    by_str body = by_str_z(text);
    const char *open = memchr(body.ptr, '{', body.len), *close = memrchr(body.ptr, '}', body.len);
    by_buf_push(out, open + 1, (size_t)(close - open - 1));
    o->extra = v.n ? by_buf_z(out) : NULL;
    return by_buf_check(out, err);
}

/* The first model that the server lists. */
static by_status ask_model(const settings *s, by_buf *name, by_err *err) {
    by_buf body = {0};
    by_arena arena;
    by_json v;
    char path[PATH_MAX_BYTES];
    by_arena_init(&arena, BY_MEM_MISC);
    snprintf(path, sizeof path, "%s/v1/models", s->prefix);
    by_status status = by_load_get(&body, &s->load, path, err);
    if (status == BY_OK) status = by_json_parse(&v, &arena, by_buf_str(&body), NULL, err);
    if (status == BY_OK) {
        const by_json *id = by_json_get(by_json_at(by_json_get(&v, "data"), 0), "id");
        if (!by_json_is(id, BY_JSON_STRING))
            status = BY_FAIL(err, BY_EFORMAT, "%s lists no model; name one with --model", path);
        else by_buf_push_str(name, id->v.s);
    }
    if (status == BY_OK) status = by_buf_check(name, err);
    by_arena_deinit(&arena);
    by_buf_deinit(&body);
    return status;
}

/* Warms up, runs, reports. */
static by_status measure(const settings *s, const by_load_report_opts *report, int64_t n_warmup, by_err *err) {
    by_load_result result = {0};
    by_buf out = {0};
    by_status status = BY_OK;
    if (n_warmup > 0) {
        by_load_opts warm = s->load;
        warm.n_requests = n_warmup;
        warm.rate = 0;
        warm.seed = ~warm.seed; /* other prompts: the cache shall not know those that are measured */
        status = by_load_run(&result, &warm, err);
        if (status == BY_OK && result.interrupted) status = BY_FAIL(err, BY_ECANCELLED, "interrupted");
        by_load_result_deinit(&result);
        result = (by_load_result){0};
    }
    if (status == BY_OK) status = by_load_run(&result, &s->load, err);
    if (status == BY_OK && s->output) {
        status = by_load_report_json(&out, &result, &s->load, report, err);
        if (status == BY_OK) status = by_file_write(s->output, out.ptr, out.len, err);
        by_buf_clear(&out);
    }
    if (status == BY_OK)
        status = s->json ? by_load_report_json(&out, &result, &s->load, report, err)
                         : by_load_report_text(&out, &result, &s->load, report, err);
    if (status == BY_OK) status = by_fd_write_all(STDOUT_FILENO, out.ptr, out.len, err);
    int64_t n_ok = 0;
    for (int64_t i = 0; i < result.n_records; i++) n_ok += result.records[i].error == BY_LOAD_NONE;
    if (status == BY_OK && n_ok == 0)
        status =
            BY_FAIL(err, BY_EIO, "no request was answered%s%s", result.first_error[0] ? ": " : "", result.first_error);
    by_buf_deinit(&out);
    by_load_result_deinit(&result);
    return status;
}

/* What follows the flags. The result is the exit code. */
static int run(settings *s, by_err *err) {
    by_buf model = {0}, extra = {0};
    double percentiles[PERCENTILES_MAX];
    by_load_report_opts report = {0};
    by_status status = finish_settings(s, &report, percentiles, err);
    if (status == BY_OK && s->extra) status = read_extra(&extra, &s->load, s->extra, err);
    int exit_code = status < 0 ? 2 : 0;
    s->load.progress = isatty(STDERR_FILENO);
    if (status == BY_OK && !s->load.model) {
        status = ask_model(s, &model, err);
        s->load.model = by_buf_z(&model);
    }
    if (status == BY_OK) status = measure(s, &report, s->n_warmup, err);
    if (status < 0) {
        by_command_fail(&usage, err);
        if (!exit_code) exit_code = 1;
    }
    by_buf_deinit(&model);
    by_buf_deinit(&extra);
    return exit_code;
}

/* Rows of the table below. */
#define TEXT(names, out, help) {names, BY_FLAG_STRING, out, help, NULL, 0, 0, 0, 0, NULL}
#define LIST(names, out, help) {names, BY_FLAG_LIST, out, help, NULL, 0, 0, 0, 0, NULL}
#define BOOL(names, out, help) {names, BY_FLAG_BOOL, out, help, NULL, 0, 0, 0, 0, NULL}
#define WHOLE(names, out, low, high, help) {names, BY_FLAG_INT, out, help, NULL, low, high, 0, 0, NULL}
#define REAL(names, out, low, high, help) {names, BY_FLAG_DOUBLE, out, help, NULL, 0, 0, low, high, NULL}

int by_bench_serve(int argc, char **argv) {
    enum { LEN_MAX = 1 << 20 }; /* tokens or words: as long as the published context */
    settings s = {.endpoint = "/v1/chat/completions", .host = "127.0.0.1", .port = 8000, .rate = "inf"};
    s.percentiles = "50,90,95,99";
    s.load = (by_load_opts){.stream = true, .input_len = 256, .output_len = 64, .n_prefixes = 1, .n_requests = 100};
    s.load.temperature = -1;
    s.load.burstiness = 1;
    s.load.timeout_s = 600;
    by_load_opts *o = &s.load;
    const by_flag flags[] = {
        TEXT("--base-url", &s.base_url, "http://HOST:PORT of the server, instead of --host and --port"),
        TEXT("--host", &s.host, "server's address (127.0.0.1)"),
        WHOLE("--port", &s.port, 1, 65535, "its port (8000)"),
        TEXT("--endpoint", &s.endpoint, "path; with chat/ in it messages are sent, else a prompt (/v1/chat/completions)"),
        TEXT("--model,-m,--served-model-name", &o->model, "model to ask for (the first one that the server lists)"),
        TEXT("--api-key", &o->api_key, "sent as bearer token"),
        LIST("--header", &s.headers, "'Name: value' to send; may repeat"),
        WHOLE("--num-prompts,-n", &o->n_requests, 1, BY_LOAD_REQUESTS_MAX, "most requests (100)"),
        REAL("--duration", &o->duration_s, 0, 1e6, "no new request after this many seconds (no limit)"),
        TEXT("--request-rate,-r", &s.rate, "requests a second, arriving at random; inf = all at once (inf)"),
        REAL("--burstiness", &o->burstiness, 0.01, 1e6, "1 = Poisson arrivals, below more bursty, above more even (1)"),
        WHOLE("--max-concurrency,-c", &o->max_concurrency, 0, BY_LOAD_CONNECTIONS_MAX,
              "most requests at once; 0 = no limit but 16384 (0)"),
        {"--dataset-name", BY_FLAG_CHOICE, &s.dataset, "random words, or custom: a file", "random|custom", 0, 0, 0, 0, NULL},
        TEXT("--dataset-path", &o->dataset, "JSON lines {\"prompt\"} or {\"messages\"}, and \"output_len\""),
        WHOLE("--input-len,--random-input-len", &o->input_len, 1, LEN_MAX, "words of a random prompt (256)"),
        WHOLE("--output-len,--random-output-len", &o->output_len, 1, LEN_MAX, "max_tokens (64)"),
        REAL("--range-ratio,--random-range-ratio", &o->range_ratio, 0, 1, "lengths vary by this part of them (0)"),
        WHOLE("--prefix-len,--random-prefix-len", &o->prefix_len, 0, LEN_MAX, "words in front that prompts share (0)"),
        WHOLE("--num-prefixes", &o->n_prefixes, 1, LEN_MAX, "different shared beginnings, taken in turn (1)"),
        BOOL("--ignore-eos", &o->ignore_eos, "answers go on to max_tokens (a field of vLLM's, known here)"),
        REAL("--temperature", &o->temperature, 0, 100, "sent when given"),
        TEXT("--extra-body", &s.extra, "JSON object whose members each request gets"),
        BOOL("--stream,--no-stream", &o->stream, "whole answers instead of streams: only the whole time is measured"),
        WHOLE("--num-warmups", &s.n_warmup, 0, LEN_MAX, "requests before that are not counted (0)"),
        REAL("--timeout", &o->timeout_s, 0.001, 1e6, "seconds until a request counts as failed (600)"),
        REAL("--pace", &o->pace, 0, 1e6, "tokens a second that the server's plan gives (--null-rate): report how late events are"),
        {"--seed", BY_FLAG_UINT64, &o->seed, "of prompts and arrivals (0)", NULL, 0, 0, 0, 0, NULL},
        TEXT("--percentiles,--metric-percentiles", &s.percentiles, "which (50,90,95,99)"),
        TEXT("--goodput", &s.goodput, "count requests within ttft:MS,tpot:MS,e2el:MS"),
        BOOL("--json", &s.json, "the report as JSON"),
        TEXT("--output,-o,--result-filename", &s.output, "write the JSON report there as well"),
        BOOL("--save-detailed", &s.detailed, "one entry per request in the JSON report"),
    };
    const int n_flags = sizeof flags / sizeof *flags;
    int exit_code = 0;
    by_err err = {0};
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &exit_code)) return exit_code;
    exit_code = run(&s, &err);
    by_args_free(flags, n_flags);
    return exit_code;
}
