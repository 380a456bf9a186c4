/* response.c - the client's side of HTTP/1.1: a state per kind of line, body bytes handed on without a copy. */
#include "http/response.h"

#include <string.h>
#include <strings.h>

void by_response_begin(by_response *r, by_response_body_fn *on_body, void *ctx) {
    by_buf line = r->line;
    by_buf_clear(&line);
    *r = (by_response){.line = line, .retry_after_s = -1, .on_body = on_body, .ctx = ctx};
}

void by_response_deinit(by_response *r) { by_buf_deinit(&r->line); }

static by_str trim(by_str s) {
    while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) s = by_str_skip(s, 1);
    while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) s.len--;
    return s;
}

static bool is_word(by_str s, const char *word) {
    return s.len == strlen(word) && strncasecmp(s.ptr, word, s.len) == 0;
}

/* Digits only, at most 2^62. */
static bool read_number(by_str s, unsigned base, int64_t *out) {
    int64_t v = 0;
    if (!s.len) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        unsigned d = c >= '0' && c <= '9'                 ? (unsigned)(c - '0')
                     : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a') + 10
                                                          : 99;
        if (d >= base || v > (INT64_MAX >> 1) / base) return false;
        v = v * base + d;
    }
    *out = v;
    return true;
}

static by_status read_status_line(by_response *r, by_str line, by_err *err) {
    if (line.len < 12 || memcmp(line.ptr, "HTTP/1.", 7) != 0 || line.ptr[8] != ' ' ||
        (line.len > 12 && line.ptr[12] != ' '))
        return BY_FAIL(err, BY_EFORMAT, "not an HTTP/1.x response: %.*s", BY_STR_ARG(by_str_take(line, 60)));
    int64_t status;
    if (!read_number((by_str){line.ptr + 9, 3}, 10, &status) || status < 100)
        return BY_FAIL(err, BY_EFORMAT, "bad status: %.*s", BY_STR_ARG(by_str_take(line, 60)));
    r->status = (int)status;
    r->keep_alive = line.ptr[7] != '0';
    r->state = BY_RESPONSE_HEADERS;
    return BY_OK;
}

static by_status read_header(by_response *r, by_str line, by_err *err) {
    const char *colon = memchr(line.ptr, ':', line.len);
    if (!colon) return BY_FAIL(err, BY_EFORMAT, "header without a colon: %.*s", BY_STR_ARG(by_str_take(line, 60)));
    by_str name = {line.ptr, (size_t)(colon - line.ptr)}, value = trim(by_str_skip(line, name.len + 1));
    int64_t n;
    if (is_word(name, "content-length")) {
        if (!read_number(value, 10, &n) || (r->has_length && n != r->left))
            return BY_FAIL(err, BY_EFORMAT, "bad Content-Length: %.*s", BY_STR_ARG(by_str_take(value, 60)));
        r->has_length = true;
        r->left = n;
    } else if (is_word(name, "transfer-encoding")) {
        if (!is_word(value, "chunked"))
            return BY_FAIL(err, BY_EFORMAT, "unknown Transfer-Encoding: %.*s", BY_STR_ARG(by_str_take(value, 60)));
        r->chunked = true;
    } else if (is_word(name, "connection")) {
        if (is_word(value, "close")) r->keep_alive = false;
        if (is_word(value, "keep-alive")) r->keep_alive = true;
    } else if (is_word(name, "content-type")) {
        r->event_stream = value.len >= 17 && strncasecmp(value.ptr, "text/event-stream", 17) == 0;
    } else if (is_word(name, "retry-after") && read_number(value, 10, &n)) {
        r->retry_after_s = n;
    }
    return BY_OK;
}

/* The empty line behind the headers: what kind of body follows. */
static void end_headers(by_response *r) {
    if (r->status < 200 && r->status != 101) { /* an interim response: the real one follows */
        by_response_begin(r, r->on_body, r->ctx);
        return;
    }
    if (r->chunked) {
        r->state = BY_RESPONSE_CHUNK_SIZE;
    } else if (r->status == 204 || r->status == 304 || (r->has_length && r->left == 0)) {
        r->state = BY_RESPONSE_DONE;
    } else if (r->has_length) {
        r->state = BY_RESPONSE_LENGTH;
    } else {
        r->state = BY_RESPONSE_TO_CLOSE;
        r->keep_alive = false;
    }
}

static by_status read_line(by_response *r, by_str line, by_err *err) {
    switch (r->state) {
    case BY_RESPONSE_STATUS_LINE:
        return read_status_line(r, line, err);
    case BY_RESPONSE_HEADERS:
    case BY_RESPONSE_TRAILERS:
        if (++r->n_lines > BY_RESPONSE_LINES_MAX)
            return BY_FAIL(err, BY_ELIMIT, "more than %d header lines", BY_RESPONSE_LINES_MAX);
        if (!line.len) {
            if (r->state == BY_RESPONSE_TRAILERS) r->state = BY_RESPONSE_DONE;
            else end_headers(r);
            return BY_OK;
        }
        return r->state == BY_RESPONSE_TRAILERS ? BY_OK : read_header(r, line, err);
    case BY_RESPONSE_CHUNK_SIZE: {
        const char *extension = memchr(line.ptr, ';', line.len);
        by_str size = trim((by_str){line.ptr, extension ? (size_t)(extension - line.ptr) : line.len});
        if (!read_number(size, 16, &r->left))
            return BY_FAIL(err, BY_EFORMAT, "bad chunk size: %.*s", BY_STR_ARG(by_str_take(line, 60)));
        r->state = r->left ? BY_RESPONSE_CHUNK_DATA : BY_RESPONSE_TRAILERS;
        return BY_OK;
    }
    default: /* BY_RESPONSE_CHUNK_END */
        if (line.len) return BY_FAIL(err, BY_EFORMAT, "a chunk is longer than it said");
        r->state = BY_RESPONSE_CHUNK_SIZE;
        return BY_OK;
    }
}

/* Collects a line that ends with LF or CRLF. */
static by_status feed_line(by_response *r, const char *data, size_t n, size_t *used, by_err *err) {
    const char *end = memchr(data, '\n', n);
    size_t len = end ? (size_t)(end - data) : n;
    *used = end ? len + 1 : n;
    if (r->line.len + len > BY_RESPONSE_LINE_MAX)
        return BY_FAIL(err, BY_ELIMIT, "a line of the head is over %d bytes", BY_RESPONSE_LINE_MAX);
    by_str line = {data, len};
    if (r->line.len || !end) {
        if (!by_buf_push(&r->line, data, len)) return BY_FAIL(err, BY_ENOMEM, "response: out of memory");
        line = by_buf_str(&r->line);
    }
    if (!end) return BY_OK;
    if (line.len && line.ptr[line.len - 1] == '\r') line.len--;
    if (!line.len) line.ptr = "";
    by_status status = read_line(r, line, err);
    by_buf_clear(&r->line);
    return status;
}

static by_status feed_body(by_response *r, const char *data, size_t n, size_t *used, by_err *err) {
    if (r->state != BY_RESPONSE_TO_CLOSE) {
        if ((uint64_t)n > (uint64_t)r->left) n = (size_t)r->left;
        r->left -= (int64_t)n;
        if (!r->left) r->state = r->state == BY_RESPONSE_LENGTH ? BY_RESPONSE_DONE : BY_RESPONSE_CHUNK_END;
    }
    *used = n;
    return r->on_body ? r->on_body(r->ctx, (by_str){data, n}, err) : BY_OK;
}

by_status by_response_feed(by_response *r, const char *data, size_t n, size_t *used, by_err *err) {
    *used = 0;
    while (r->state != BY_RESPONSE_DONE && *used < n) {
        size_t took = 0;
        bool body = r->state == BY_RESPONSE_LENGTH || r->state == BY_RESPONSE_CHUNK_DATA || r->state == BY_RESPONSE_TO_CLOSE;
        by_status status = body ? feed_body(r, data + *used, n - *used, &took, err)
                                : feed_line(r, data + *used, n - *used, &took, err);
        *used += took;
        BY_TRY(status);
    }
    return r->state == BY_RESPONSE_DONE ? BY_END : BY_AGAIN;
}

by_status by_response_closed(by_response *r, by_err *err) {
    if (r->state == BY_RESPONSE_DONE || r->state == BY_RESPONSE_TO_CLOSE) return BY_END;
    return BY_FAIL(err, BY_EIO, "the connection ended %s", r->status ? "inside a response" : "before a response");
}
