/* http_reply.c - answers: heads, whole bodies, streams, and errors in the words of each API. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "http/http_impl.h"

static const char *reason_of(int status) {
    static const struct {
        int status;
        const char *reason;
    } table[] = {
        {200, "OK"}, {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"},
        {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"}, {413, "Content Too Large"},
        {414, "URI Too Long"}, {415, "Unsupported Media Type"}, {417, "Expectation Failed"}, {422, "Unprocessable Content"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
        {501, "Not Implemented"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status) return table[i].reason;
    return "Unknown";
}

/* The date changes once a second and is written once a second. */
static const char *date_now(by_http *h) {
    int64_t now = (int64_t)time(NULL);
    if (now != h->date_s) {
        time_t t = (time_t)now;
        struct tm tm;
        gmtime_r(&t, &tm);
        strftime(h->date, sizeof h->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        h->date_s = now;
    }
    return h->date;
}

void by_reply_header(by_exchange *ex, const char *name, const char *value) { by_buf_printf(&ex->extra, "%s: %s\r\n", name, value); }

static void push_cors(by_exchange *ex, by_buf *out) {
    const by_http_opts *o = &ex->http->opts;
    if (o->n_origins == 0 || !ex->head) return;
    const by_str *origin = by_http_header_get(ex->head, "origin");
    if (!origin) return;
    for (int i = 0; i < o->n_origins; i++) {
        bool any = strcmp(o->origins[i], "*") == 0;
        if (!any && !by_str_eqz(*origin, o->origins[i])) continue;
        by_buf_push_z(out, "Access-Control-Allow-Origin: ");
        if (any) by_buf_push_byte(out, '*');
        else by_buf_push_str(out, *origin);
        by_buf_push_z(out, "\r\nAccess-Control-Expose-Headers: x-request-id, request-id, retry-after\r\n");
        if (!any) by_buf_push_z(out, "Vary: Origin\r\n");
        return;
    }
}

static void push_head(by_exchange *ex, int status, const char *type) {
    by_conn *c = ex->conn;
    by_buf *b = &c->out;
    ex->status = status;
    by_buf_printf(b, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: bathyc\r\n", status, reason_of(status), date_now(ex->http));
    if (type) by_buf_printf(b, "Content-Type: %s\r\n", type);
    if (ex->request_id[0]) {
        by_buf_printf(b, "X-Request-Id: %s\r\n", ex->request_id);
        if (ex->anthropic) by_buf_printf(b, "Request-Id: %s\r\n", ex->request_id);
    }
    if (!ex->keep_alive) by_buf_push_z(b, "Connection: close\r\n");
    else if (ex->http10) by_buf_push_z(b, "Connection: keep-alive\r\n");
    push_cors(ex, b);
    by_buf_push_str(b, by_buf_str(&ex->extra));
    by_buf_clear(&ex->extra);
}

void by_reply(by_exchange *ex, int status, const char *type, by_str body) {
    by_conn *c = ex->conn;
    if (ex->http->draining) ex->keep_alive = false;
    push_head(ex, status, type);
    if (status != 204) by_buf_printf(&c->out, "Content-Length: %zu\r\n", body.len);
    by_buf_push_z(&c->out, "\r\n");
    if (!ex->head_only && status != 204) by_buf_push_str(&c->out, body);
    ex->done = true;
    by_conn_mark(c);
}

void by_reply_json(by_exchange *ex, int status, by_str body) { by_reply(ex, status, "application/json", body); }

/* ---- streams ---- */

enum { CHUNK_DIGITS = 8 }; /* leading zeros are allowed, so a chunk's size has its place before it is known */

void by_reply_begin(by_exchange *ex, const char *type) {
    by_conn *c = ex->conn;
    ex->streams = true;
    ex->chunked = !ex->http10;
    if (ex->http10 || ex->http->draining) ex->keep_alive = false;
    push_head(ex, 200, type);
    by_buf_push_z(&c->out, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    by_buf_push_z(&c->out, ex->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    by_metrics_gauge_add(ex->http->metrics, BY_GAUGE_OPEN_STREAMS, 1);
    by_conn_mark(c);
}

by_buf *by_reply_out(by_exchange *ex) {
    by_conn *c = ex->conn;
    if (ex->chunked && c->chunk_at == SIZE_MAX) {
        c->chunk_at = c->out.len;
        by_buf_push(&c->out, "00000000\r\n", CHUNK_DIGITS + 2);
    }
    by_conn_mark(c);
    return &c->out;
}

void by_conn_end_chunk(by_conn *c) {
    if (c->chunk_at == SIZE_MAX) return;
    size_t from = c->chunk_at + CHUNK_DIGITS + 2;
    if (c->out.failed || c->out.len < from) return; /* the connection is closed for it */
    size_t n = c->out.len - from;
    if (n == 0) { /* nothing was written: an empty chunk would end the answer */
        c->out.len = c->chunk_at;
    } else {
        for (int i = CHUNK_DIGITS - 1; i >= 0; i--, n >>= 4) c->out.ptr[c->chunk_at + (size_t)i] = "0123456789abcdef"[n & 15];
        by_buf_push(&c->out, "\r\n", 2);
    }
    c->chunk_at = SIZE_MAX;
}

void by_reply_end(by_exchange *ex) {
    by_conn *c = ex->conn;
    by_conn_end_chunk(c);
    if (ex->chunked) by_buf_push_z(&c->out, "0\r\n\r\n");
    by_metrics_gauge_add(ex->http->metrics, BY_GAUGE_OPEN_STREAMS, -1);
    ex->done = true;
    by_conn_mark(c);
}

/* ---- errors ---- */

static const char *openai_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static const char *anthropic_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 504: return "timeout_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

static const char *code_of(int status) {
    switch (status) {
    case 401: return "invalid_api_key";
    case 404: return "not_found";
    case 405: return "method_not_allowed";
    case 408: return "request_timeout";
    case 413: return "request_too_large";
    case 429: return "queue_full";
    case 503: return "not_ready";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void by_error_write(by_buf *out, bool anthropic, int status, const char *type, const char *code, const char *param, by_str message,
                    by_str request_id) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    if (anthropic) {
        by_json_out_key(&o, "type");
        by_json_out_z(&o, "error");
    }
    by_json_out_key(&o, "error");
    by_json_out_object_begin(&o);
    if (!anthropic) {
        by_json_out_key(&o, "message");
        by_json_out_string(&o, message);
    }
    by_json_out_key(&o, "type");
    by_json_out_z(&o, anthropic ? anthropic_type(status) : type ? type : openai_type(status));
    if (anthropic) {
        by_json_out_key(&o, "message");
        by_json_out_string(&o, message);
    } else {
        by_json_out_key(&o, "param");
        by_json_out_z(&o, param && *param ? param : NULL);
        by_json_out_key(&o, "code");
        by_json_out_z(&o, code ? code : code_of(status));
    }
    by_json_out_object_end(&o);
    if (anthropic) {
        by_json_out_key(&o, "request_id");
        by_json_out_string(&o, request_id);
    }
    by_json_out_object_end(&o);
}

static void __attribute__((format(printf, 5, 0)))
reply_error(by_exchange *ex, int status, const char *code, const char *field, const char *fmt, va_list ap) {
    char message[1024];
    int n = vsnprintf(message, sizeof message, fmt, ap);
    by_str text = by_str_of(message, n < 0 ? 0 : (size_t)n < sizeof message ? (size_t)n : sizeof message - 1);
    by_buf body = {0}, clean = {0};
    by_utf8_push_lossy(&clean, text);
    by_error_write(&body, ex->anthropic, status, NULL, code, field, by_buf_str(&clean), by_str_z(ex->request_id));
    if ((status == 429 || status == 503) && !memmem(ex->extra.ptr ? ex->extra.ptr : "", ex->extra.len, "Retry-After", 11))
        by_reply_header(ex, "Retry-After", "1");
    if (status == 401) by_reply_header(ex, "WWW-Authenticate", "Bearer");
    by_reply_json(ex, status, by_buf_str(&body));
    by_buf_deinit(&clean);
    by_buf_deinit(&body);
}

void by_reply_error(by_exchange *ex, int status, const char *code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    reply_error(ex, status, code, NULL, fmt, ap);
    va_end(ap);
}

void by_reply_refusal(by_exchange *ex, int status, const char *code, const char *field, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    reply_error(ex, status, code ? code : "invalid_value", field, fmt, ap);
    va_end(ap);
}
