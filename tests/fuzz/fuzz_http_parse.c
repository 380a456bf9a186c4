/* Fuzzes the HTTP request parser: it must end, use no more than it was given, refuse for ever once it has refused, and read the
 * same whatever the cut. The first byte places the cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    by_http_parser p;
    by_buf seen; /* heads and bodies */
    bool bad;
} reader;

static void note(reader *r, by_http_event ev, by_str piece) {
    const by_http_head *h = &r->p.head;
    if (ev == BY_HTTP_BODY) by_buf_push_str(&r->seen, piece);
    if (ev == BY_HTTP_DONE) by_buf_push_byte(&r->seen, '\1');
    if (ev != BY_HTTP_HEAD) return;
    by_buf_push_str(&r->seen, h->method);
    by_buf_push_str(&r->seen, h->target);
    if (h->chunked && h->has_length) abort();
    for (uint32_t i = 0; i < h->n_headers; i++) {
        by_buf_push_str(&r->seen, h->headers[i].name);
        by_buf_push_str(&r->seen, h->headers[i].value);
        if (memchr(h->headers[i].value.ptr, '\n', h->headers[i].value.len)) abort();
    }
}

/* Feeds in[at, end) and returns what was not used. */
static size_t feed(reader *r, by_str in, size_t at, size_t end) {
    for (;;) {
        by_str piece;
        size_t used;
        by_http_event ev = by_http_parse(&r->p, by_str_of(in.ptr + at, end - at), &used, &piece);
        if (used > end - at) abort();
        if (ev == BY_HTTP_BODY && (piece.len == 0 || piece.len > used)) abort();
        at += used;
        note(r, ev, piece);
        if (ev == BY_HTTP_BAD) {
            if (r->p.bad_status < 400 || by_http_parse(&r->p, in, &used, &piece) != BY_HTTP_BAD) abort();
            r->bad = true;
            return end;
        }
        if (ev == BY_HTTP_MORE) return at;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const by_http_limits limits = {.line_bytes = 200, .head_bytes = 1000, .n_headers = 12, .body_bytes = 500};
    by_str in = by_str_of((const char *)data + 1, size - 1);
    reader whole = {0}, cut = {0};
    by_http_parser_init(&whole.p, &limits);
    by_http_parser_init(&cut.p, &limits);
    feed(&whole, in, 0, in.len);
    size_t at = feed(&cut, in, 0, in.len * data[0] / 256);
    if (!cut.bad) feed(&cut, in, at, in.len);
    if (whole.bad != cut.bad || !by_str_eq(by_buf_str(&whole.seen), by_buf_str(&cut.seen))) abort();
    by_http_parser_deinit(&whole.p);
    by_http_parser_deinit(&cut.p);
    by_buf_deinit(&whole.seen);
    by_buf_deinit(&cut.seen);
    return 0;
}
