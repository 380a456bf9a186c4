/* http_route.c - which handler a request goes to, and what is decided before its body is read: path, method, API key, CORS,
 * readiness. */
#include <stdio.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "http/http_impl.h"

static const by_route routes[] = {
    {"POST", "/v1/chat/completions", NULL, by_handle_chat, false, false},
    {"POST", "/v1/completions", NULL, by_handle_completions, false, false},
    {"POST", "/v1/responses", NULL, by_handle_responses, false, false},
    {"POST", "/v1/responses/input_tokens", NULL, by_handle_input_tokens, false, false},
    {"GET", "/v1/responses/", NULL, by_handle_response_get, false, false},
    {"DELETE", "/v1/responses/", NULL, by_handle_response_delete, false, false},
    {"POST", "/v1/responses/", "cancel", by_handle_response_cancel, false, false},
    {"GET", "/v1/responses/", "input_items", by_handle_response_items, false, false},
    {"POST", "/v1/conversations", NULL, by_handle_conversations, false, false},
    {"GET", "/v1/conversations/", NULL, by_handle_conversation_get, false, false},
    {"POST", "/v1/conversations/", NULL, by_handle_conversation_update, false, false},
    {"DELETE", "/v1/conversations/", NULL, by_handle_conversation_delete, false, false},
    {"POST", "/v1/conversations/", "items", by_handle_conversation_add, false, false},
    {"GET", "/v1/conversations/", "items/", by_handle_conversation_item, false, false},
    {"DELETE", "/v1/conversations/", "items/", by_handle_conversation_item_delete, false, false},
    {"GET", "/v1/conversations/", "items", by_handle_conversation_items, false, false},
    {"POST", "/v1/files", NULL, by_handle_upload, false, false},
    {"GET", "/v1/files", NULL, by_handle_files, false, false},
    {"GET", "/v1/files/", NULL, by_handle_file, false, false},
    {"DELETE", "/v1/files/", NULL, by_handle_file_delete, false, false},
    {"GET", "/v1/files/", "content", by_handle_file_content, false, false},
    {"POST", "/v1/batches", NULL, by_handle_batch_create, false, false},
    {"GET", "/v1/batches", NULL, by_handle_batches, false, false},
    {"GET", "/v1/batches/", NULL, by_handle_batch, false, false},
    {"POST", "/v1/batches/", "cancel", by_handle_batch_cancel, false, false},
    {"POST", "/v1/messages", NULL, by_handle_messages, false, false},
    {"POST", "/v1/messages/count_tokens", NULL, by_handle_count_tokens, false, false},
    {"POST", "/tokenize", NULL, by_handle_tokenize, false, false},
    {"POST", "/detokenize", NULL, by_handle_detokenize, false, false},
    {"GET", "/v1/models", NULL, by_handle_models, false, false},
    {"GET", "/v1/models/", NULL, by_handle_model, false, false},
    {"GET", "/health", NULL, by_handle_health, true, true},
    {"GET", "/ready", NULL, by_handle_ready, true, true},
    {"GET", "/version", NULL, by_handle_version, true, true},
    {"GET", "/metrics", NULL, by_handle_metrics, true, true},
    {"GET", "/openapi.json", NULL, by_handle_openapi, true, true},
    {"GET", "/", NULL, by_handle_page, true, true},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

const by_route *by_routes(int *n) {
    *n = N_ROUTES;
    return routes;
}

/* Paths that clients of other servers use, without "/v1". */
static const char *const short_paths[] = {"/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens",
                                          "/models"};

/* ---- paths ---- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Appends `raw` to to[*n...] with "%2F" and the like decoded; false for what is no code, or a zero byte. */
static bool decode(char *to, size_t *n, by_str raw, bool plus_is_blank) {
    for (size_t i = 0; i < raw.len; i++) {
        char c = raw.ptr[i];
        if (c == '%') {
            int hi = i + 2 < raw.len ? hex_value(raw.ptr[i + 1]) : -1, lo = i + 2 < raw.len ? hex_value(raw.ptr[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) return false;
            c = (char)(hi * 16 + lo);
            i += 2;
        } else if (c == '+' && plus_is_blank) {
            c = ' ';
        }
        to[(*n)++] = c;
    }
    return true;
}

static bool decode_path(by_exchange *ex, by_str raw) {
    char *to = by_arena_alloc(&ex->arena, raw.len + 4);
    if (!to) return false;
    size_t n = 0;
    if (by_str_starts(raw, BY_STR("/anthropic/v1/"))) raw = by_str_skip(raw, 10);
    for (size_t i = 0; i < sizeof short_paths / sizeof short_paths[0]; i++)
        if (by_str_eqz(raw, short_paths[i])) n = 3;
    memcpy(to, "/v1", n);
    if (!decode(to, &n, raw, false)) return false;
    ex->path = by_str_of(to, n);
    return by_utf8_valid(ex->path, NULL);
}

static bool split_target(by_exchange *ex) {
    by_str t = ex->head->target;
    if (t.ptr[0] == 'h') { /* a proxy's form: the host is ours whatever it says */
        const char *host = memmem(t.ptr, t.len, "://", 3);
        t = by_str_skip(t, (size_t)(host - t.ptr) + 3);
        const char *slash = memchr(t.ptr, '/', t.len);
        t = slash ? by_str_skip(t, (size_t)(slash - t.ptr)) : BY_STR("/");
    }
    const char *end = memchr(t.ptr, '?', t.len);
    size_t n = end ? (size_t)(end - t.ptr) : t.len;
    ex->query = end ? by_str_skip(t, n + 1) : (by_str){0};
    return decode_path(ex, by_str_take(t, n));
}

static by_str query_get(by_str query, const char *name) {
    size_t len = strlen(name);
    while (query.len) {
        const char *amp = memchr(query.ptr, '&', query.len);
        by_str part = by_str_take(query, amp ? (size_t)(amp - query.ptr) : query.len);
        if (part.len > len && memcmp(part.ptr, name, len) == 0 && part.ptr[len] == '=') return by_str_skip(part, len + 1);
        query = by_str_skip(query, amp ? part.len + 1 : part.len);
    }
    return (by_str){0};
}

bool by_query_text(by_exchange *ex, const char *name, by_str *out) {
    by_str raw = query_get(ex->query, name);
    size_t n = 0;
    char *to = by_arena_alloc(&ex->arena, raw.len);
    if (!to || !decode(to, &n, raw, true)) return false;
    *out = by_str_of(to, n);
    return by_utf8_valid(*out, NULL);
}

/* Cuts "ID/TAIL", or "ID/TAIL" and one more part, into its variable parts. */
static bool cut_tail(by_str *rest, by_str tail, by_str *sub) {
    bool more = by_str_ends(tail, BY_STR("/"));
    const char *slash = memchr(rest->ptr, '/', rest->len);
    if (!slash) return false;
    by_str behind = by_str_skip(*rest, (size_t)(slash - rest->ptr) + 1);
    if (!by_str_starts(behind, tail) || (more ? behind.len == tail.len : behind.len != tail.len)) return false;
    *sub = by_str_skip(behind, tail.len);
    rest->len = (size_t)(slash - rest->ptr);
    return rest->len > 0 && !memchr(sub->ptr, '/', sub->len);
}

/* Does the path fit? *id and *sub are its variable parts. */
static bool fits(const by_route *r, by_str path, by_str *id, by_str *sub) {
    by_str p = by_str_z(r->path);
    *id = *sub = (by_str){0};
    if (p.len == 1 || p.ptr[p.len - 1] != '/') return by_str_eq(path, p);
    if (!by_str_starts(path, p) || path.len == p.len) return false;
    by_str rest = by_str_skip(path, p.len);
    if (r->tail && !cut_tail(&rest, by_str_z(r->tail), sub)) return false;
    *id = rest;
    /* Names of models may hold slashes. */
    return r->handle == by_handle_model || !memchr(rest.ptr, '/', rest.len);
}

/* ---- keys ---- */

static bool is_key_of(by_http *h, by_str given) {
    uint8_t digest[32];
    unsigned found = 0;
    by_sha256(given.ptr, given.len, digest);
    for (int i = 0; i < h->opts.n_keys; i++) { /* all of them, all bytes: the time tells nothing */
        unsigned differ = 0;
        for (int b = 0; b < 32; b++) differ |= (unsigned)(digest[b] ^ h->keys[i][b]);
        found |= differ == 0;
    }
    return found != 0;
}

static bool has_key(by_exchange *ex) {
    by_http *h = ex->http;
    if (h->opts.n_keys == 0) return true;
    const by_str *a = by_http_header_get(ex->head, "authorization"), *x = by_http_header_get(ex->head, "x-api-key");
    if (!x) x = by_http_header_get(ex->head, "api-key");
    bool ok = x && is_key_of(h, *x);
    if (a && a->len > 7 && strncasecmp(a->ptr, "Bearer ", 7) == 0) ok |= is_key_of(h, by_str_skip(*a, 7));
    return ok;
}

bool by_keys_set(by_http *h, const by_http_opts *opts) {
    if (opts->n_keys == 0) return true;
    h->keys = by_alloc(BY_MEM_HTTP, (size_t)opts->n_keys * sizeof *h->keys);
    if (!h->keys) return false;
    for (int i = 0; i < opts->n_keys; i++) by_sha256(opts->keys[i], strlen(opts->keys[i]), h->keys[i]);
    return true;
}

/* ---- the head ---- */

static void __attribute__((format(printf, 4, 5))) refuse(by_exchange *ex, int status, const char *code, const char *fmt, ...) {
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    ex->early_status = status;
    by_error_write(&ex->early_body, ex->anthropic, status, NULL, code, NULL, by_str_z(message), by_str_z(ex->request_id));
    if (status == 429 || status == 503) by_reply_header(ex, "Retry-After", "1");
    if (status == 401) by_reply_header(ex, "WWW-Authenticate", "Bearer");
}

/* The client's own id, when it is short and plain, else one of ours. */
static void set_request_id(by_exchange *ex) {
    const by_str *given = by_http_header_get(ex->head, "x-request-id");
    bool ok = given && given->len > 0 && given->len < sizeof ex->request_id;
    for (size_t i = 0; ok && i < given->len; i++) ok = given->ptr[i] > 0x20 && given->ptr[i] < 0x7f;
    if (ok) memcpy(ex->request_id, given->ptr, given->len);
    else
        snprintf(ex->request_id, sizeof ex->request_id, "req_%016llx%08llx", (unsigned long long)by_rng_u64(&ex->http->rng),
                 (unsigned long long)(by_rng_u64(&ex->http->rng) >> 32));
}

/* The route, or NULL; allow: the methods of the path, empty when there is no such path. A path that stands in the table is no id of
 * another one. */
static const by_route *look_up(by_exchange *ex, char allow[64]) {
    const by_route *found = NULL;
    size_t n = 0;
    bool itself = false;
    allow[0] = '\0';
    for (int i = 0; i < N_ROUTES; i++) {
        const by_route *r = &routes[i];
        by_str id, sub;
        if ((itself && r->path[strlen(r->path) - 1] == '/') || !fits(r, ex->path, &id, &sub)) continue;
        itself |= by_str_eqz(ex->path, r->path);
        bool get = strcmp(r->method, "GET") == 0;
        if (by_str_eqz(ex->method, r->method) || (ex->head_only && get)) found = r;
        n += (size_t)snprintf(allow + n, 64 - n, "%s%s", n ? ", " : "", get ? "GET, HEAD" : r->method);
    }
    return found;
}

/* A browser asks whether it may call. */
static void answer_options(by_exchange *ex) {
    char allow[64];
    look_up(ex, allow);
    ex->early_status = 204;
    by_buf_printf(&ex->extra, "Allow: %s, OPTIONS\r\n", allow[0] ? allow : "GET, HEAD, POST, DELETE");
    if (ex->http->opts.n_origins == 0) return;
    by_reply_header(ex, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    by_reply_header(ex, "Access-Control-Max-Age", "600");
    const by_str *headers = by_http_header_get(ex->head, "access-control-request-headers");
    by_buf_push_z(&ex->extra, "Access-Control-Allow-Headers: ");
    if (headers && headers->len && headers->len < 2048) by_buf_push_str(&ex->extra, *headers);
    else by_buf_push_z(&ex->extra, "authorization, content-type, x-api-key");
    by_buf_push_z(&ex->extra, "\r\n");
}

/* Finds the route; tells which methods there are when it is only the method that does not fit. */
static void find_route(by_exchange *ex) {
    char allow[64];
    ex->route = look_up(ex, allow);
    if (ex->route) return;
    if (!allow[0]) {
        refuse(ex, 404, NULL, "there is nothing at %.*s", BY_STR_ARG(by_str_take(ex->path, 200)));
        return;
    }
    by_buf_printf(&ex->extra, "Allow: %s, OPTIONS\r\n", allow);
    refuse(ex, 405, NULL, "%.*s is not allowed here; allowed: %s, OPTIONS", BY_STR_ARG(ex->method), allow);
}

/* Is the body as it stands? A compressed one could grow to any size; nobody needs it here. */
static bool is_plain(const by_exchange *ex) {
    const by_http_head *head = ex->head;
    bool has_body = head->chunked || (head->has_length && head->length > 0);
    for (uint32_t i = 0; has_body && i < head->n_headers; i++) {
        by_str coding = head->headers[i].value;
        if (!by_str_eqz(head->headers[i].name, "content-encoding") || coding.len == 0) continue;
        if (coding.len != 8 || strncasecmp(coding.ptr, "identity", 8) != 0) return false;
    }
    return true;
}

void by_route_begin(by_exchange *ex) {
    by_http *h = ex->http;
    set_request_id(ex);
    if (!split_target(ex)) {
        refuse(ex, 400, NULL, "the path is malformed");
        return;
    }
    ex->anthropic = by_str_starts(ex->path, BY_STR("/v1/messages"));
    ex->endpoint = by_metrics_endpoint_of(ex->path);
    if (by_str_eqz(ex->method, "OPTIONS")) {
        answer_options(ex);
        return;
    }
    find_route(ex);
    const by_route *r = ex->route;
    if (!r) return;
    if (!r->open && !has_key(ex)) {
        by_metrics_add(h->metrics, BY_COUNT_REFUSED_KEY, 1);
        refuse(ex, 401, NULL, "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    } else if (!r->early && (h->draining || !h->service)) {
        by_metrics_add(h->metrics, BY_COUNT_REFUSED_NOT_READY, 1);
        refuse(ex, 503, NULL, h->draining ? "the server is shutting down" : "the model is being loaded");
    } else if (!is_plain(ex)) {
        by_reply_header(ex, "Accept-Encoding", "identity");
        refuse(ex, 415, NULL, "Content-Encoding: a body is taken only as it is, without compression");
    }
}

void by_route_run(by_exchange *ex) {
    by_str id;
    if (!fits(ex->route, ex->path, &id, &ex->sub)) id = (by_str){0};
    ex->route->handle(ex, id);
}
