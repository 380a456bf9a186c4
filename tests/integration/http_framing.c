/* http_framing.c - what the server's parser makes of byte streams, for comparison with another parser (http_h11.py). A line of
 * standard input is a stream in hexadecimal; its answer is one line of JSON: the requests, and how the reading ended (status 0:
 * more bytes are wanted, or the client wants no further request). Texts are hexadecimal, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_parse.h"
#include "json/json_write.h"

static void put_hex(by_json_out *o, by_str s) {
    by_json_out_string_begin(o);
    for (size_t i = 0; i < s.len; i++) by_buf_printf(o->buf, "%02x", (unsigned)(unsigned char)s.ptr[i]);
    by_json_out_string_end(o);
}

static void put_head(by_json_out *o, const by_http_head *h) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "method");
    put_hex(o, h->method);
    by_json_out_key(o, "target");
    put_hex(o, h->target);
    by_json_out_key(o, "http10");
    by_json_out_bool(o, h->http10);
    by_json_out_key(o, "keep");
    by_json_out_bool(o, h->keep_alive);
    by_json_out_key(o, "headers");
    by_json_out_array_begin(o);
    for (uint32_t i = 0; i < h->n_headers; i++) {
        by_json_out_array_begin(o);
        put_hex(o, h->headers[i].name);
        put_hex(o, h->headers[i].value);
        by_json_out_array_end(o);
    }
    by_json_out_array_end(o);
}

static void put_body(by_json_out *o, by_buf *body, bool complete) {
    by_json_out_key(o, "body");
    put_hex(o, by_buf_str(body));
    by_json_out_key(o, "complete");
    by_json_out_bool(o, complete);
    by_json_out_object_end(o);
    by_buf_clear(body);
}

static void read_stream(by_str in, by_buf *out) {
    by_http_parser p;
    by_buf body = {0};
    bool inside = false, more = true;
    by_http_parser_init(&p, NULL);
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "requests");
    by_json_out_array_begin(&o);
    while (more) {
        by_str piece;
        size_t used;
        by_http_event ev = by_http_parse(&p, in, &used, &piece);
        in = by_str_skip(in, used);
        if (ev == BY_HTTP_HEAD) put_head(&o, &p.head);
        if (ev == BY_HTTP_BODY) by_buf_push_str(&body, piece);
        if (ev == BY_HTTP_DONE) put_body(&o, &body, true);
        inside = ev == BY_HTTP_HEAD || (inside && ev != BY_HTTP_DONE);
        more = ev != BY_HTTP_MORE && ev != BY_HTTP_BAD && !(ev == BY_HTTP_DONE && !p.head.keep_alive);
    }
    if (inside) put_body(&o, &body, false);
    by_json_out_array_end(&o);
    by_json_out_key(&o, "status");
    by_json_out_int(&o, p.bad_status);
    by_json_out_key(&o, "reason");
    by_json_out_z(&o, p.bad_reason);
    by_json_out_object_end(&o);
    by_http_parser_deinit(&p);
    by_buf_deinit(&body);
}

static int nibble(int c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

int main(void) {
    by_buf in = {0}, out = {0};
    int c, high = -1;
    while ((c = getchar()) != EOF) {
        if (c == '\n') {
            read_stream(by_buf_str(&in), &out);
            if (out.failed || in.failed) return 1;
            printf("%.*s\n", BY_STR_ARG(by_buf_str(&out)));
            by_buf_clear(&in);
            by_buf_clear(&out);
        } else if (nibble(c) < 0) {
            return 2;
        } else if (high < 0) {
            high = nibble(c);
        } else {
            by_buf_push_byte(&in, (char)(high * 16 + nibble(c)));
            high = -1;
        }
    }
    by_buf_deinit(&in);
    by_buf_deinit(&out);
    return 0;
}
