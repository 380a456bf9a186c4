/* cmd_serve.c - `bathyc serve`: the flags of the server, and its life under a terminal or systemd. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/sd_notify.h"
#include "http/http_server.h"

#ifdef BATHYC_HAVE_LIBEVENT

enum { KEY_FILE_BYTES_MAX = 1 << 20, KEYS_MAX = 1024 };

typedef struct {
    by_http *http;
    by_service_opts service;
    const by_engine_flags *engine_flags;
    int64_t start_ns, alive_ns, watchdog_ms;
    const char *unsaid; /* what systemd must hear and had no room for yet; the end takes the place of the beginning */
    const char *host;
} server;

/* ---- keys ---- */

/* One key a line; empty lines and lines that begin with # are passed over. text holds them. */
static by_status read_keys(const char *path, by_buf *text, const char **keys, int *n, by_err *err) {
    BY_TRY(by_file_read(text, path, KEY_FILE_BYTES_MAX, err));
    by_buf_z(text);
    BY_TRY(by_buf_check(text, err));
    int before = *n;
    for (char *at = text->ptr, *end = text->ptr + text->len; at < end;) {
        char *eol = memchr(at, '\n', (size_t)(end - at));
        char *next = eol ? eol + 1 : end, *last = eol ? eol : end;
        while (last > at && strchr(" \t\r", last[-1])) last--;
        while (at < last && (*at == ' ' || *at == '\t')) at++;
        *last = '\0';
        if (last > at && *at != '#') {
            if (*n == KEYS_MAX) return BY_FAIL(err, BY_ELIMIT, "%s: more than %d keys", path, KEYS_MAX);
            keys[(*n)++] = at;
        }
        at = next;
    }
    return *n > before ? BY_OK : BY_FAIL(err, BY_EINVAL, "--api-key-file: %s: no key in it", path);
}

static by_status collect_keys(const by_flag_list *given, const char *file, by_buf *text, const char **keys, int *n, by_err *err) {
    *n = 0;
    for (int i = 0; i < given->n; i++) {
        if (!given->items[i][0]) return BY_FAIL(err, BY_EINVAL, "--api-key: empty");
        if (*n == KEYS_MAX) return BY_FAIL(err, BY_EINVAL, "--api-key: more than %d keys", KEYS_MAX);
        keys[(*n)++] = given->items[i];
    }
    return file ? read_keys(file, text, keys, n, err) : BY_OK;
}

/* ---- the server's hooks ---- */

/* What lies where, when that was a question. */
static void print_placement(const by_model *m) {
    by_buf text = {0};
    if (m->place.limit == 0 && m->place.n_experts[1] == 0) return;
    by_placement_text(&m->place, &text);
    fprintf(stderr, "bathyc serve: %s\n", by_buf_z(&text));
    by_buf_deinit(&text);
}

static by_status load(void *arg, by_service **out, by_err *err) {
    server *s = arg;
    BY_TRY(by_service_open(out, &s->service, err));
    if (s->service.null_backend) return BY_OK;
    print_placement(by_engine_model(by_service_engine(*out)));
    by_engine_flags_warn(s->engine_flags, by_engine_model(by_service_engine(*out)));
    return BY_OK;
}

static void tell_systemd(server *s, const char *state) { s->unsaid = by_sd_notify(state) == BY_AGAIN ? state : NULL; }

static void on_ready(void *arg, int64_t load_ns, int64_t first_ns) {
    server *s = arg;
    fprintf(stderr, "bathyc serve: ready after %.1f s (loading %.1f s, first token %.1f s)\n", (double)(by_clock_ns() - s->start_ns) * 1e-9,
            (double)load_ns * 1e-9, (double)first_ns * 1e-9);
    tell_systemd(s, "READY=1\nSTATUS=ready");
}

static void on_stopping(void *arg) {
    fprintf(stderr, "bathyc serve: stopping; answers that run may end, a second signal ends them\n");
    tell_systemd(arg, "STOPPING=1\nSTATUS=answers that run may end");
}

static void on_alive(void *arg) {
    server *s = arg;
    int64_t now = by_clock_ns();
    if (s->unsaid) tell_systemd(s, s->unsaid);
    if (s->watchdog_ms <= 0 || now - s->alive_ns < s->watchdog_ms * 500000) return; /* half the time */
    if (by_sd_notify("WATCHDOG=1") != BY_AGAIN) s->alive_ns = now;
}

/* Seconds, with a fraction, to milliseconds. */
static int64_t ms_of(double s) { return (int64_t)(s * 1000); }

typedef struct {
    by_engine_flags engine;
    const char *host, *key_file, *max_body, *store;
    int64_t port, max_connections, output_kib;
    double idle_s, head_s, body_s, write_s, ping_s, answer_s, drain_s, null_rate, null_first_ms;
    by_flag_list names, keys, origins;
    int compat;
    bool honour, each_token, null_backend;
} serve_flags;

/* No port, or one as a browser writes it: a number that the scheme does not imply. */
static bool is_port_sent(const char *origin, const char *host) {
    const char *port = strrchr(host, ':');
    if (!port || strchr(port, ']')) return true;
    size_t n = strlen(++port);
    if (strcmp(port, strncmp(origin, "https:", 6) == 0 ? "443" : "80") == 0) return false;
    return n > 0 && n <= 5 && port[0] != '0' && strspn(port, "0123456789") == n;
}

/* What a browser sends as Origin: scheme://host[:port] and nothing behind it; anything else would never be equal to one. */
static by_status check_origins(const by_flag_list *origins, by_err *err) {
    for (int i = 0; i < origins->n; i++) {
        const char *o = origins->items[i], *host = strstr(o, "://");
        if (strcmp(o, "*") == 0 || strcmp(o, "null") == 0) continue;
        if (!host || host == o || !host[3] || strpbrk(host + 3, "/?#@ ,"))
            return BY_FAIL(err, BY_EINVAL, "--cors-origin: '%s' is neither an origin (scheme://host or scheme://host:port) nor *", o);
        for (const char *c = o; *c; c++)
            if ((*c >= 'A' && *c <= 'Z') || *c & 0x80)
                return BY_FAIL(err, BY_EINVAL, "--cors-origin: '%s' has other than small letters, which no browser sends", o);
        if (!is_port_sent(o, host + 3))
            return BY_FAIL(err, BY_EINVAL, "--cors-origin: '%s' has a port that no browser sends: leave out that of the scheme", o);
    }
    return BY_OK;
}

static by_status set_http(by_http_opts *o, const serve_flags *f, by_err *err) {
    int64_t bytes;
    *o = by_http_opts_default();
    o->host = f->host;
    o->port = (int)f->port;
    o->version = BATHYC_VERSION;
    BY_TRY(check_origins(&f->origins, err));
    o->origins = f->origins.items;
    o->n_origins = f->origins.n;
    o->max_connections = (int32_t)f->max_connections;
    o->idle_ms = ms_of(f->idle_s);
    o->request_ms = ms_of(f->head_s);
    o->body_ms = ms_of(f->body_s);
    o->write_ms = ms_of(f->write_s);
    o->ping_ms = ms_of(f->ping_s);
    o->answer_ms = ms_of(f->answer_s);
    o->drain_ms = ms_of(f->drain_s);
    o->output_bytes = (size_t)f->output_kib << 10;
    o->each_token = f->each_token;
    o->vllm_names = f->compat == 1;
    if (f->max_body) {
        if (by_parse_size(&bytes, f->max_body, err) < 0) return by_err_prefix(err, "--max-body: ");
        if (bytes > BY_LIMIT_REQUEST_BYTES) return BY_FAIL(err, BY_EINVAL, "--max-body: at most %u bytes", BY_LIMIT_REQUEST_BYTES);
        o->body_bytes = (uint64_t)bytes;
    }
    if (f->store && strcmp(f->store, "0") == 0) {
        o->store_bytes = 0;
    } else if (f->store) {
        if (by_parse_size(&bytes, f->store, err) < 0) return by_err_prefix(err, "--response-store: ");
        o->store_bytes = (size_t)bytes;
    }
    return BY_OK;
}

static by_status serve(server *s, serve_flags *f, const char **keys, int n_keys, by_err *err) {
    by_http_opts o;
    BY_TRY(set_http(&o, f, err));
    s->service.null_backend = f->null_backend;
    s->service.null_rate = f->null_rate;
    s->service.null_first_ms = f->null_first_ms;
    BY_TRY(by_engine_flags_opts(&s->service.engine, &f->engine, err));
    s->engine_flags = &f->engine;
    s->service.names = f->names.items;
    s->service.n_names = f->names.n;
    by_api_options_init(&s->service.api);
    s->service.api.honour_sampling = f->honour;
    o.keys = keys;
    o.n_keys = n_keys;
    o.load = load;
    o.load_arg = s;
    o.on_ready = on_ready;
    o.on_stopping = on_stopping;
    o.on_alive = on_alive;
    o.hook_arg = s;
    s->start_ns = by_clock_ns();
    s->watchdog_ms = by_sd_watchdog_ms();
    BY_TRY(by_http_open(&s->http, &o, err));
    bool v6 = strchr(f->host, ':') != NULL;
    fprintf(stderr, "bathyc serve: listening on http://%s%s%s:%d, loading %s\n", v6 ? "[" : "", f->host, v6 ? "]" : "",
            by_http_port(s->http), s->service.engine.model_dir);
    return by_http_run(s->http, err);
}

#define SECONDS_FLAG(name, var, least, text)                                                                           \
    {.names = (name), .kind = BY_FLAG_DOUBLE, .out = &(var), .dmin = (least), .dmax = 1e6, .help = (text)}

#define SERVE_FLAG_ROWS(f)                                                                                             \
    BY_FLAG_HEADING("server"),                                                                                         \
    {.names = "--host", .kind = BY_FLAG_STRING, .out = &(f).host, .help = "address to listen at (default: 127.0.0.1)"}, \
    {.names = "--port", .kind = BY_FLAG_INT, .out = &(f).port, .min = 0, .max = 65535,                                  \
     .help = "port (default: 8000; 0 = any free one)"},                                                                \
    {.names = "--served-model-name,--alias", .kind = BY_FLAG_LIST, .out = &(f).names,                                  \
     .help = "accepted as \"model\"; may repeat (default: DeepSeek-V4.1-Flash and the folder's name)"},                \
    {.names = "--api-key", .kind = BY_FLAG_LIST, .out = &(f).keys, .help = "a key that requests must have; may repeat"}, \
    {.names = "--api-key-file", .kind = BY_FLAG_STRING, .out = &(f).key_file, .help = "file with one key a line"},      \
    {.names = "--cors-origin,--allowed-origins", .kind = BY_FLAG_LIST, .out = &(f).origins,                            \
     .help = "origin whose pages may call, or *; may repeat (default: none)"},                                         \
    {.names = "--max-body", .kind = BY_FLAG_STRING, .out = &(f).max_body, .help = "most of a request body (default: 32M)"}, \
    {.names = "--max-connections", .kind = BY_FLAG_INT, .out = &(f).max_connections, .min = 1, .max = 1 << 20,          \
     .help = "connections at once; more wait (default: 16384)"},                                                       \
    {.names = "--output-buffer-kib", .kind = BY_FLAG_INT, .out = &(f).output_kib, .min = 4, .max = 1 << 20,             \
     .help = "unread output of a client from which on its answer waits (default: 256)"},                               \
    SECONDS_FLAG("--idle-timeout", (f).idle_s, 0.1, "seconds a connection may wait for its next request (default: 75)"), \
    SECONDS_FLAG("--header-timeout", (f).head_s, 0.1, "seconds from a request's first byte to its last header (default: 20)"), \
    SECONDS_FLAG("--read-timeout", (f).body_s, 0.1, "seconds for a request's body (default: 120)"),                    \
    SECONDS_FLAG("--write-timeout", (f).write_s, 0.1, "seconds in which a client must take something (default: 30)"),  \
    {.names = "--null-rate", .kind = BY_FLAG_DOUBLE, .out = &(f).null_rate, .dmin = 0, .dmax = 1e6,                     \
     .help = "with --backend null: tokens per second of a stream (default: 100; 0 = all at once)"},                    \
    {.names = "--null-first-ms", .kind = BY_FLAG_DOUBLE, .out = &(f).null_first_ms, .dmin = 0, .dmax = 1e6,             \
     .help = "with --backend null: time to the first token (default: 0)"},                                             \
    SECONDS_FLAG("--ping-interval", (f).ping_s, 0, "silence of a stream after which a comment is sent (default: 5; 0 = never)"), \
    SECONDS_FLAG("--answer-timeout", (f).answer_s, 0, "seconds for one answer (default: 0, any)"),                     \
    SECONDS_FLAG("--drain-timeout", (f).drain_s, 0, "seconds for running answers after the first signal (default: 60)"), \
    {.names = "--response-store", .kind = BY_FLAG_STRING, .out = &(f).store,                                           \
     .help = "memory for stored responses, and again for batch files (default: 256M; 0 = none)"},                                      \
    {.names = "--honour-sampling", .kind = BY_FLAG_BOOL, .out = &(f).honour,                                           \
     .help = "keep temperature and top_p as requests have them, also where the vendor's service does not"},            \
    {.names = "--each-token", .kind = BY_FLAG_BOOL, .out = &(f).each_token, .help = "streams have one event per token"}, \
    {.names = "--metrics-compat", .kind = BY_FLAG_CHOICE, .out = &(f).compat, .choices = "none|vllm",                  \
     .help = "emit metrics under the names of another server, too"}

int by_cmd_serve(int argc, char **argv) {
    const by_usage usage = {"serve", "[MODEL] [flags]",
                            "Serves Chat Completions, Completions, Responses and Messages over HTTP; docs/server.md has all paths.\n"
                            "The port is open while the model loads and answers 503 until the first token is possible. SIGTERM and\n"
                            "SIGINT let running answers end; a second one stops at once.\n"};
    serve_flags f = {.engine = by_engine_flags_default(), .host = "127.0.0.1", .port = 8000, .max_connections = 16384, .output_kib = 256,
                     .idle_s = 75, .head_s = 20, .body_s = 120, .write_s = 30, .ping_s = 5, .drain_s = 60, .null_rate = 100};
    by_flag flags[] = {SERVE_FLAG_ROWS(f), BY_ENGINE_FLAG_ROWS(f.engine)};
    const int n_flags = sizeof flags / sizeof flags[0];
    for (int i = 0; i < n_flags; i++)
        if (flags[i].out == &f.engine.model.backend) flags[i].choices = "null|" BY_BACKEND_CHOICES;
    const char *model = NULL, *keys[KEYS_MAX];
    int code, n_pos = 0, n_keys = 0;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, &model, 1, &n_pos, &code)) return code;
    if (f.engine.model.backend == 0) f.null_backend = true;
    if (f.engine.model.backend >= 0) f.engine.model.backend--; /* null stands in front of the other commands' choices */
    by_err err = {0};
    by_buf key_text = {0};
    server s = {.host = f.host};
    by_status status = BY_OK;
    if (n_pos && f.engine.model.model) status = BY_FAIL(&err, BY_EINVAL, "the model is given twice");
    else if (n_pos) f.engine.model.model = model;
    if (status == BY_OK) status = collect_keys(&f.keys, f.key_file, &key_text, keys, &n_keys, &err);
    if (status == BY_OK) status = serve(&s, &f, keys, n_keys, &err);
    if (status < 0) by_command_fail(&usage, &err);
    by_http_close(s.http);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&f.engine);
    by_buf_deinit(&key_text);
    return status < 0 ? by_model_exit_code(status) : 0;
}

#else

int by_cmd_serve(int argc, char **argv) {
    (void)argc;
    (void)argv;
    fprintf(stderr, "bathyc serve: this build has no server: libevent was not there\n");
    return 2;
}

#endif
