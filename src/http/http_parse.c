/* http_parse.c - see http_parse.h. A head is searched for its end first and read as a whole then, so the rules are plain loops
 * over slices; bodies pass through in place. */
#include "http/http_parse.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/limits.h"

enum {
    METHOD_BYTES_MAX = 32,
    CHUNK_LINE_BYTES_MAX = 512, /* size and extensions; nobody sends extensions */
    EXTRA_BYTES_MAX = 16384,    /* extensions, trailers and empty lines of one request */
    EMPTY_LINES_MAX = 2         /* before a request line; some old clients send one behind a body */
};

by_http_limits by_http_limits_default(void) {
    return (by_http_limits){.line_bytes = 8192, .head_bytes = 65536, .n_headers = 128, .body_bytes = BY_LIMIT_REQUEST_BYTES};
}

void by_http_parser_init(by_http_parser *p, const by_http_limits *limits) {
    *p = (by_http_parser){.limits = limits ? *limits : by_http_limits_default()};
}

void by_http_parser_shrink(by_http_parser *p) {
    by_buf_deinit(&p->text);
    p->text = (by_buf){0};
    by_free(p->headers);
    p->headers = NULL;
    p->cap_headers = 0;
    p->head = (by_http_head){0};
}

void by_http_parser_deinit(by_http_parser *p) { by_http_parser_shrink(p); }

static by_http_event refuse(by_http_parser *p, int status, const char *reason) {
    p->state = BY_HTTP_AT_BAD;
    p->bad_status = status;
    p->bad_reason = reason;
    return BY_HTTP_BAD;
}

/* ---- characters ---- */

static bool is_token_char(unsigned char c) {
    if (c >= '0' && c <= '9') return true;
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}
static bool is_value_char(unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); }
static bool is_target_char(unsigned char c) { return c > 0x20 && c < 0x7f; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

static bool all(by_str s, bool (*ok)(unsigned char)) {
    for (size_t i = 0; i < s.len; i++)
        if (!ok((unsigned char)s.ptr[i])) return false;
    return true;
}

static by_str trim(by_str s) {
    while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) s = by_str_skip(s, 1);
    while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) s.len--;
    return s;
}

static bool same_word(by_str s, const char *word) { return s.len == strlen(word) && strncasecmp(s.ptr, word, s.len) == 0; }

const by_str *by_http_header_get(const by_http_head *h, const char *name) {
    for (uint32_t i = 0; i < h->n_headers; i++)
        if (by_str_eqz(h->headers[i].name, name)) return &h->headers[i].value;
    return NULL;
}

bool by_http_has_word(by_str value, const char *word) {
    while (value.len) {
        const char *comma = memchr(value.ptr, ',', value.len);
        size_t n = comma ? (size_t)(comma - value.ptr) : value.len;
        if (same_word(trim(by_str_take(value, n)), word)) return true;
        value = by_str_skip(value, comma ? n + 1 : n);
    }
    return false;
}

/* ---- the head ---- */

/* Digits only, at most 18 of them, so that nothing overflows. */
static bool read_length(by_str s, uint64_t *out) {
    if (s.len == 0 || s.len > 18) return false;
    *out = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
        *out = *out * 10 + (uint64_t)(s.ptr[i] - '0');
    }
    return true;
}

static by_http_event read_request_line(by_http_parser *p, by_str line) {
    if (line.len > p->limits.line_bytes) return refuse(p, 414, "the request line is too long");
    const char *a = memchr(line.ptr, ' ', line.len);
    if (!a) return refuse(p, 400, "the request line has no target");
    by_str rest = by_str_skip(line, (size_t)(a - line.ptr) + 1);
    const char *b = memchr(rest.ptr, ' ', rest.len);
    by_http_head *h = &p->head;
    h->method = by_str_of(line.ptr, (size_t)(a - line.ptr));
    if (h->method.len == 0 || h->method.len > METHOD_BYTES_MAX || !all(h->method, is_token_char))
        return refuse(p, 400, "the method is no word");
    if (!b) return refuse(p, 400, "the request line has no version");
    h->target = by_str_of(rest.ptr, (size_t)(b - rest.ptr));
    by_str version = by_str_skip(rest, h->target.len + 1);
    if (version.len != 8 || memcmp(version.ptr, "HTTP/", 5) != 0 || version.ptr[6] != '.' || version.ptr[5] < '0' ||
        version.ptr[5] > '9' || version.ptr[7] < '0' || version.ptr[7] > '9')
        return refuse(p, 400, "the version is malformed");
    if (version.ptr[5] != '1' || version.ptr[7] > '1') return refuse(p, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    h->http10 = version.ptr[7] == '0';
    bool form = by_str_starts(h->target, BY_STR("/")) || by_str_eqz(h->target, "*") ||
                by_str_starts(h->target, BY_STR("http://")) || by_str_starts(h->target, BY_STR("https://"));
    if (!form || !all(h->target, is_target_char)) return refuse(p, 400, "the target is malformed");
    return BY_HTTP_MORE;
}

/* One header line, split and checked; the name becomes lower case in place. */
static by_http_event read_header(by_http_parser *p, char *line, size_t len, by_http_header *out) {
    if (line[0] == ' ' || line[0] == '\t') return refuse(p, 400, "folded headers are not accepted");
    const char *colon = memchr(line, ':', len);
    if (!colon) return refuse(p, 400, "a header has no colon");
    by_str name = by_str_of(line, (size_t)(colon - line));
    if (name.len == 0 || !all(name, is_token_char)) return refuse(p, 400, "a header's name is malformed");
    for (size_t i = 0; i < name.len; i++) line[i] = lower(line[i]);
    by_str value = trim(by_str_of(colon + 1, len - name.len - 1));
    if (!all(value, is_value_char)) return refuse(p, 400, "a header's value holds a control character");
    *out = (by_http_header){name, value};
    return BY_HTTP_MORE;
}

static by_http_event check_host(by_http_parser *p, uint32_t n_hosts, by_str host) {
    if (n_hosts > 1) return refuse(p, 400, "more than one Host header");
    if (n_hosts == 0 && !p->head.http10) return refuse(p, 400, "no Host header");
    for (size_t i = 0; i < host.len; i++)
        if (!is_target_char((unsigned char)host.ptr[i]) || strchr("/@?#\\,", host.ptr[i]))
            return refuse(p, 400, "the Host header is malformed");
    return BY_HTTP_MORE;
}

/* The headers that decide where the request ends and what happens to the connection. */
static by_http_event read_framing(by_http_parser *p) {
    by_http_head *h = &p->head;
    uint32_t n_lengths = 0, n_codings = 0, n_hosts = 0;
    by_str host = {0};
    bool close = false, keep = false;
    for (uint32_t i = 0; i < h->n_headers; i++) {
        by_str name = p->headers[i].name, value = p->headers[i].value;
        if (by_str_eqz(name, "content-length")) {
            n_lengths++;
            if (!read_length(value, &h->length)) return refuse(p, 400, "Content-Length is not a number");
        } else if (by_str_eqz(name, "transfer-encoding")) {
            n_codings++;
            if (!same_word(value, "chunked")) return refuse(p, 501, "the only transfer coding is chunked");
        } else if (by_str_eqz(name, "host")) {
            n_hosts++;
            host = value;
        } else if (by_str_eqz(name, "expect")) {
            if (!same_word(value, "100-continue")) return refuse(p, 417, "the only expectation is 100-continue");
            h->expect_continue = !h->http10;
        } else if (by_str_eqz(name, "connection")) {
            close |= by_http_has_word(value, "close");
            keep |= by_http_has_word(value, "keep-alive");
        }
    }
    if (n_lengths > 1) return refuse(p, 400, "more than one Content-Length");
    if (n_codings > 1) return refuse(p, 400, "more than one Transfer-Encoding");
    if (n_lengths && n_codings) return refuse(p, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (n_codings && h->http10) return refuse(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (check_host(p, n_hosts, host) == BY_HTTP_BAD) return BY_HTTP_BAD;
    h->has_length = n_lengths == 1;
    h->chunked = n_codings == 1;
    h->keep_alive = !close && (!h->http10 || keep);
    if (h->length > p->limits.body_bytes) return refuse(p, 413, "the body is too large");
    return BY_HTTP_MORE;
}

static by_http_event read_head(by_http_parser *p) {
    char *at = p->text.ptr, *end = p->text.ptr + p->text.len;
    p->head = (by_http_head){0};
    for (bool first = true;; first = false) {
        char *cr = memchr(at, '\r', (size_t)(end - at)); /* find_head has seen the last one */
        if (cr[1] != '\n') return refuse(p, 400, "a carriage return stands alone");
        if (cr == at && !first) break;
        if (memchr(at, '\n', (size_t)(cr - at))) return refuse(p, 400, "lines must end with CRLF");
        if (first) {
            if (read_request_line(p, by_str_of(at, (size_t)(cr - at))) == BY_HTTP_BAD) return BY_HTTP_BAD;
        } else {
            if (p->head.n_headers == p->limits.n_headers) return refuse(p, 431, "too many headers");
            if (p->head.n_headers == p->cap_headers) {
                uint32_t cap = p->cap_headers ? p->cap_headers * 2 : 16;
                by_http_header *more = by_realloc(BY_MEM_HTTP, p->headers, cap * sizeof *more);
                if (!more) return refuse(p, 503, "out of memory");
                p->headers = more;
                p->cap_headers = cap;
            }
            if (read_header(p, at, (size_t)(cr - at), &p->headers[p->head.n_headers]) == BY_HTTP_BAD) return BY_HTTP_BAD;
            p->head.n_headers++;
        }
        at = cr + 2;
    }
    p->head.headers = p->headers;
    if (read_framing(p) == BY_HTTP_BAD) return BY_HTTP_BAD;
    p->body_bytes = 0;
    p->left = p->head.length;
    p->state = p->head.chunked ? BY_HTTP_AT_CHUNK_SIZE : p->left ? BY_HTTP_AT_BODY : BY_HTTP_AT_END;
    return BY_HTTP_HEAD;
}

/* A line feed whose line does not end with CRLF, in bytes that have come so far: refused before the head is complete, since it
 * may never be. */
static bool has_bare_lf(by_str in, size_t from) {
    while (from < in.len) {
        const char *lf = memchr(in.ptr + from, '\n', in.len - from);
        if (!lf) return false;
        if (lf == in.ptr || lf[-1] != '\r') return true;
        from = (size_t)(lf - in.ptr) + 1;
    }
    return false;
}

static by_http_event find_head(by_http_parser *p, by_str in, size_t *used) {
    while (in.len && in.ptr[0] == '\r' && p->seen == 0) {
        if (in.len == 1) return BY_HTTP_MORE;
        p->extra_bytes += 2;
        if (in.ptr[1] != '\n' || p->extra_bytes > 2 * EMPTY_LINES_MAX) return refuse(p, 400, "no request line");
        in = by_str_skip(in, 2);
        *used += 2;
    }
    if (in.len == 0) return BY_HTTP_MORE;
    if (!is_token_char((unsigned char)in.ptr[0])) return refuse(p, 400, "this is no HTTP request"); /* a TLS hello, for example */
    size_t from = p->seen > 3 ? p->seen - 3 : 0;
    const char *end = memmem(in.ptr + from, in.len - from, "\r\n\r\n", 4);
    size_t len = end ? (size_t)(end - in.ptr) + 4 : in.len;
    if (has_bare_lf(by_str_take(in, len), p->seen)) return refuse(p, 400, "lines must end with CRLF");
    size_t most = p->limits.line_bytes + 1u;
    if (in.len >= most && !memchr(in.ptr, '\r', most)) return refuse(p, 414, "the request line is too long");
    if (len > p->limits.head_bytes) return refuse(p, 431, "the headers are too large");
    p->seen = len;
    if (!end) return BY_HTTP_MORE;
    by_buf_clear(&p->text);
    if (!by_buf_push(&p->text, in.ptr, len)) return refuse(p, 503, "out of memory");
    *used += len;
    p->seen = 0;
    p->extra_bytes = 0;
    return read_head(p);
}

/* ---- the body ---- */

static by_http_event take_body(by_http_parser *p, by_str in, size_t *used, by_str *piece) {
    if (in.len == 0) return BY_HTTP_MORE;
    size_t n = p->left < in.len ? (size_t)p->left : in.len;
    *piece = by_str_take(in, n);
    *used += n;
    p->left -= n;
    p->body_bytes += n;
    if (p->left == 0) p->state = p->state == BY_HTTP_AT_BODY ? BY_HTTP_AT_END : BY_HTTP_AT_CHUNK_END;
    return BY_HTTP_BODY;
}

/* A line that must end with CRLF within `most` bytes; BY_HTTP_DONE when it is there. */
static by_http_event find_line(by_http_parser *p, by_str in, size_t most, by_str *line) {
    const char *lf = in.len ? memchr(in.ptr, '\n', in.len < most ? in.len : most) : NULL;
    if (!lf) return in.len >= most ? refuse(p, 400, "a line of the body's framing is too long") : BY_HTTP_MORE;
    size_t n = (size_t)(lf - in.ptr);
    if (n == 0 || lf[-1] != '\r') return refuse(p, 400, "lines must end with CRLF");
    *line = by_str_take(in, n - 1);
    return all(*line, is_value_char) ? BY_HTTP_DONE : refuse(p, 400, "a line of the body's framing holds a control character");
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static by_http_event take_chunk_size(by_http_parser *p, by_str in, size_t *used) {
    by_str line;
    by_http_event ev = find_line(p, in, CHUNK_LINE_BYTES_MAX, &line);
    if (ev != BY_HTTP_DONE) return ev;
    size_t n = 0;
    uint64_t size = 0;
    while (n < line.len && hex_value(line.ptr[n]) >= 0) {
        if (n == 15) return refuse(p, 413, "a chunk is too large");
        size = size * 16 + (uint64_t)hex_value(line.ptr[n++]);
    }
    if (n == 0) return refuse(p, 400, "a chunk has no size");
    if (n < line.len && line.ptr[n] != ';') return refuse(p, 400, "a chunk's size is malformed");
    p->extra_bytes += (uint32_t)(line.len - n);
    if (p->extra_bytes > EXTRA_BYTES_MAX) return refuse(p, 400, "too many chunk extensions");
    if (size > p->limits.body_bytes - p->body_bytes) return refuse(p, 413, "the body is too large");
    *used += line.len + 2;
    p->left = size;
    p->state = size ? BY_HTTP_AT_CHUNK_DATA : BY_HTTP_AT_TRAILERS;
    return BY_HTTP_DONE;
}

static by_http_event take_chunk_end(by_http_parser *p, by_str in, size_t *used) {
    if (in.len && in.ptr[0] != '\r') return refuse(p, 400, "a chunk is longer than its size");
    if (in.len < 2) return BY_HTTP_MORE;
    if (in.ptr[1] != '\n') return refuse(p, 400, "a chunk is longer than its size");
    *used += 2;
    p->state = BY_HTTP_AT_CHUNK_SIZE;
    return BY_HTTP_DONE;
}

/* Fields that say where a request ends or where it goes: in a trailer they are a trap for programs that merge it into the head. */
static bool is_framing(by_str name) {
    return same_word(name, "content-length") || same_word(name, "transfer-encoding") || same_word(name, "host") || same_word(name, "trailer");
}

/* Trailers are checked and dropped: nothing here wants them. */
static by_http_event take_trailer(by_http_parser *p, by_str in, size_t *used) {
    by_str line;
    by_http_event ev = find_line(p, in, p->limits.line_bytes, &line);
    if (ev != BY_HTTP_DONE) return ev;
    *used += line.len + 2;
    if (line.len == 0) {
        p->state = BY_HTTP_AT_END;
        return BY_HTTP_DONE;
    }
    p->extra_bytes += (uint32_t)line.len;
    if (p->extra_bytes > EXTRA_BYTES_MAX) return refuse(p, 431, "the trailers are too large");
    const char *colon = memchr(line.ptr, ':', line.len);
    if (!colon || colon == line.ptr || !all(by_str_take(line, (size_t)(colon - line.ptr)), is_token_char))
        return refuse(p, 400, "a trailer is malformed");
    if (is_framing(by_str_take(line, (size_t)(colon - line.ptr)))) return refuse(p, 400, "a trailer speaks of the framing");
    return BY_HTTP_DONE;
}

by_http_event by_http_parse(by_http_parser *p, by_str in, size_t *used, by_str *piece) {
    *used = 0;
    *piece = (by_str){0};
    for (;;) {
        by_str rest = by_str_skip(in, *used);
        by_http_event ev = BY_HTTP_BAD;
        switch (p->state) {
        case BY_HTTP_AT_HEAD: return find_head(p, rest, used);
        case BY_HTTP_AT_BODY:
        case BY_HTTP_AT_CHUNK_DATA: return take_body(p, rest, used, piece);
        case BY_HTTP_AT_CHUNK_SIZE: ev = take_chunk_size(p, rest, used); break;
        case BY_HTTP_AT_CHUNK_END: ev = take_chunk_end(p, rest, used); break;
        case BY_HTTP_AT_TRAILERS: ev = take_trailer(p, rest, used); break;
        case BY_HTTP_AT_END:
            p->state = BY_HTTP_AT_HEAD;
            p->extra_bytes = 0;
            return BY_HTTP_DONE;
        case BY_HTTP_AT_BAD: return BY_HTTP_BAD;
        }
        if (ev != BY_HTTP_DONE) return ev;
    }
}
