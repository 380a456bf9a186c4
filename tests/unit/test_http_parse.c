/* test_http_parse.c - the request parser: what it reads, what it refuses with which status, and that cuts do not matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "http/http_parse.h"
#include "support/seed.h"

/* Everything that a stream of bytes gave, as text: one line per request, then the status of a refusal. */
typedef struct {
    by_buf text, body;
    int status; /* of the refusal; 0 = none */
    int n_requests;
} reading;

static void show_head(by_buf *b, const by_http_head *h) {
    by_buf_printf(b, "%.*s %.*s %s %s%s%s|", BY_STR_ARG(h->method), BY_STR_ARG(h->target), h->http10 ? "1.0" : "1.1",
                  h->keep_alive ? "keep" : "close", h->expect_continue ? " expect" : "", h->chunked ? " chunked" : "");
    for (uint32_t i = 0; i < h->n_headers; i++)
        by_buf_printf(b, "%.*s=%.*s|", BY_STR_ARG(h->headers[i].name), BY_STR_ARG(h->headers[i].value));
}

/* Feeds `in` in pieces that end at the given offsets of `cuts` (ascending), and shows what came out. */
static reading read_cut(by_str in, const size_t *cuts, size_t n_cuts, const by_http_limits *limits) {
    by_http_parser p;
    by_http_parser_init(&p, limits);
    reading r = {0};
    size_t at = 0;
    for (size_t i = 0; i <= n_cuts && r.status == 0; i++) {
        size_t end = i < n_cuts ? cuts[i] : in.len;
        for (;;) {
            by_str piece;
            size_t used;
            by_http_event ev = by_http_parse(&p, by_str_of(in.ptr + at, end - at), &used, &piece);
            assert_true(used <= end - at);
            at += used;
            if (ev == BY_HTTP_MORE) break;
            if (ev == BY_HTTP_HEAD) show_head(&r.text, &p.head);
            if (ev == BY_HTTP_BODY) {
                assert_true(piece.len > 0);
                by_buf_push_str(&r.body, piece);
            }
            if (ev == BY_HTTP_DONE) {
                by_buf_printf(&r.text, "[%.*s]\n", BY_STR_ARG(by_buf_str(&r.body)));
                by_buf_clear(&r.body);
                r.n_requests++;
            }
            if (ev == BY_HTTP_BAD) {
                assert_non_null(p.bad_reason);
                r.status = p.bad_status;
                break;
            }
        }
    }
    by_buf_z(&r.text);
    by_http_parser_deinit(&p);
    return r;
}

static void reading_free(reading *r) {
    by_buf_deinit(&r->text);
    by_buf_deinit(&r->body);
}

typedef struct {
    const char *in, *text; /* text NULL: not compared */
    int status;
} row;

#define HOST "Host: a\r\n"

static const row rows[] = {
    {"GET / HTTP/1.1\r\n" HOST "\r\n", "GET / 1.1 keep|host=a|[]\n", 0},
    {"GET / HTTP/1.0\r\n\r\n", "GET / 1.0 close|[]\n", 0},
    {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / 1.0 keep|connection=Keep-Alive|[]\n", 0},
    {"GET / HTTP/1.1\r\n" HOST "Connection: x, CLOSE\r\n\r\n", "GET / 1.1 close|host=a|connection=x, CLOSE|[]\n", 0},
    {"POST /a?b HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n" HOST "\r\n",
     "POST /a?b 1.1 keep|host=a|content-length=3|[abc]\nGET / 1.1 keep|host=a|[]\n", 0},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
     "POST / 1.1 keep chunked|host=a|transfer-encoding=Chunked|[abc0123456789]\n", 0},
    {"POST / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 0\r\n\r\n",
     "POST / 1.1 keep expect|host=a|expect=100-Continue|content-length=0|[]\n", 0},
    {"GET http://h/x HTTP/1.1\r\n" HOST "\r\n", "GET http://h/x 1.1 keep|host=a|[]\n", 0},
    {"OPTIONS * HTTP/1.1\r\nhOST:a\r\nX:  \t b c \t\r\nE:\r\n\r\n", "OPTIONS * 1.1 keep|host=a|x=b c|e=|[]\n", 0},
    {"\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET / 1.1 keep|host=a|[]\n", 0},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa4\r\n\r\n", "GET / 1.1 keep|host=a|x=\xc3\xa4|[]\n", 0},
    /* the request line */
    {"\r\n\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", NULL, 400},
    {"GET / HTTP/1.2\r\n" HOST "\r\n", NULL, 505},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NULL, 505},
    {"GET / http/1.1\r\n" HOST "\r\n", NULL, 400},
    {"GET /\r\n\r\n", NULL, 400},
    {"GET  / HTTP/1.1\r\n" HOST "\r\n", NULL, 400},
    {"GET / HTTP/1.1 \r\n" HOST "\r\n", NULL, 400},
    {"GET /\x01 HTTP/1.1\r\n" HOST "\r\n", NULL, 400},
    {"GET x HTTP/1.1\r\n" HOST "\r\n", NULL, 400},
    {"G(T / HTTP/1.1\r\n" HOST "\r\n", NULL, 400},
    {" GET / HTTP/1.1\r\n" HOST "\r\n", NULL, 400},
    {"\x16\x03\x01\x02", NULL, 400},
    /* line ends */
    {"GET / HTTP/1.1\n" HOST "\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", NULL, 400},
    /* headers */
    {"GET / HTTP/1.1\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \x07\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX\xc3\xa4: b\r\n\r\n", NULL, 400},
    {"GET / HTTP/1.1\r\n" HOST "Expect: tea\r\n\r\n", NULL, 417},
    /* where a request ends: what proxies read differently */
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3, 3\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: +3\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0x3\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3 3\r\n\r\nabc", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 999999999999\r\n\r\n", NULL, 413},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", NULL, 501},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", NULL, 501},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \x0b" "chunked\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", NULL, 400},
    /* chunks */
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", NULL, 413},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", NULL, 413},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nT: v\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-length: 3\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n", NULL, 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\ntransfer-Encoding: identity\r\n\r\n", NULL, 400},
};

static void rows_are_read_or_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reading r = read_cut(by_str_z(rows[i].in), NULL, 0, NULL);
        if (r.status != rows[i].status || (rows[i].text && strcmp(r.text.ptr, rows[i].text) != 0))
            fail_msg("row %zu: status %d, want %d; got\n%s", i, r.status, rows[i].status, r.text.ptr);
        reading_free(&r);
    }
}

/* Byte by byte, and at every single cut: the same requests and the same decision. */
static void cuts_do_not_matter(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        by_str in = by_str_z(rows[i].in);
        reading whole = read_cut(in, NULL, 0, NULL);
        size_t each[512];
        assert_true(in.len < 512);
        for (size_t k = 0; k < in.len; k++) each[k] = k;
        reading bytes = read_cut(in, each, in.len, NULL);
        assert_string_equal(bytes.text.ptr, whole.text.ptr);
        assert_int_equal(bytes.status != 0, whole.status != 0);
        reading_free(&bytes);
        for (size_t cut = 0; cut <= in.len; cut++) {
            reading r = read_cut(in, &cut, 1, NULL);
            if (strcmp(r.text.ptr, whole.text.ptr) != 0 || (r.status != 0) != (whole.status != 0))
                fail_msg("row %zu cut at %zu: status %d, whole %d", i, cut, r.status, whole.status);
            reading_free(&r);
        }
        reading_free(&whole);
    }
}

static int status_of(by_buf *b, const by_http_limits *limits) {
    reading r = read_cut(by_buf_str(b), NULL, 0, limits);
    int status = r.status;
    reading_free(&r);
    by_buf_deinit(b);
    return status;
}

static void sizes_are_bounded(void **state) {
    (void)state;
    const by_http_limits limits = {.line_bytes = 100, .head_bytes = 1000, .n_headers = 10, .body_bytes = 50};
    by_buf b = {0};
    by_buf_printf(&b, "GET /%0200d", 0); /* no end in sight: refused all the same */
    assert_int_equal(status_of(&b, &limits), 414);
    b = (by_buf){0};
    by_buf_printf(&b, "GET /%0200d HTTP/1.1\r\n" HOST "\r\n", 0);
    assert_int_equal(status_of(&b, &limits), 414);
    b = (by_buf){0};
    by_buf_printf(&b, "GET / HTTP/1.1\r\n" HOST "X: %01000d", 0);
    assert_int_equal(status_of(&b, &limits), 431);
    b = (by_buf){0};
    by_buf_push_z(&b, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 9; i++) by_buf_push_z(&b, "X: y\r\n");
    by_buf_push_z(&b, "\r\n");
    assert_int_equal(status_of(&b, &limits), 0);
    b = (by_buf){0};
    by_buf_push_z(&b, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 10; i++) by_buf_push_z(&b, "X: y\r\n");
    by_buf_push_z(&b, "\r\n");
    assert_int_equal(status_of(&b, &limits), 431);
    b = (by_buf){0};
    by_buf_printf(&b, "POST / HTTP/1.1\r\n" HOST "Content-Length: 51\r\n\r\n");
    assert_int_equal(status_of(&b, &limits), 413);
    b = (by_buf){0};
    by_buf_push_z(&b, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n20\r\n01234567890123456789012345678901\r\n13\r\n");
    assert_int_equal(status_of(&b, &limits), 413);
    b = (by_buf){0};
    by_buf_push_z(&b, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 40; i++) by_buf_printf(&b, "1;%0480d\r\nx\r\n", 0); /* much framing, little body */
    assert_int_equal(status_of(&b, &limits), 400);
    b = (by_buf){0};
    by_buf_push_z(&b, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n");
    for (int i = 0; i < 400; i++) by_buf_printf(&b, "T: %080d\r\n", 0);
    assert_int_equal(status_of(&b, &limits), 431);
}

/* Random heads out of pieces that matter, cut at random places. */
static void random_cuts_do_not_matter(void **state) {
    (void)state;
    static const char *const pieces[] = {"GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "Host: a\r\n", "\r\n", "Content-Length: 4\r\n", "abcd",
                                         "Transfer-Encoding: chunked\r\n", "4\r\nabcd\r\n", "0\r\n\r\n", "X: y\r\n", "\n", "\r", " ", ":", "0"};
    by_rng rng = by_test_rng(1);
    int n = by_test_scaled(20000);
    int accepted = 0;
    for (int round = 0; round < n; round++) {
        by_buf b = {0};
        if (by_rng_below(&rng, 4)) by_buf_push_z(&b, by_rng_below(&rng, 2) ? "GET / HTTP/1.1\r\nHost: a\r\n" : "POST / HTTP/1.1\r\nHost: b\r\n");
        for (uint64_t k = 1 + by_rng_below(&rng, 8); k > 0; k--)
            by_buf_push_z(&b, pieces[by_rng_below(&rng, sizeof pieces / sizeof pieces[0])]);
        size_t cuts[3], at = 0;
        for (int i = 0; i < 3; i++) cuts[i] = at += by_rng_below(&rng, b.len - at + 1);
        reading whole = read_cut(by_buf_str(&b), NULL, 0, NULL), cut = read_cut(by_buf_str(&b), cuts, 3, NULL);
        if (strcmp(whole.text.ptr, cut.text.ptr) != 0 || (whole.status != 0) != (cut.status != 0))
            fail_msg("cuts %zu %zu %zu of %.*s: %d and %d", cuts[0], cuts[1], cuts[2], (int)b.len, b.ptr, whole.status, cut.status);
        accepted += whole.n_requests;
        reading_free(&whole);
        reading_free(&cut);
        by_buf_deinit(&b);
    }
    assert_true(accepted > n / 50);
}

static void lost_memory_is_refused(void **state) {
    (void)state;
    for (int64_t nth = 1; nth <= 3; nth++) {
        by_http_parser p;
        by_http_parser_init(&p, NULL);
        by_str in = BY_STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), piece;
        size_t used;
        by_alloc_fail_nth(nth);
        by_http_event ev = by_http_parse(&p, in, &used, &piece);
        by_alloc_fail_nth(0);
        if (nth <= 2) {
            assert_int_equal(ev, BY_HTTP_BAD);
            assert_int_equal(p.bad_status, 503);
        } else {
            assert_int_equal(ev, BY_HTTP_HEAD);
        }
        by_http_parser_deinit(&p);
    }
    assert_int_equal(by_alloc_bytes(BY_MEM_HTTP), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_or_refused), cmocka_unit_test(cuts_do_not_matter), cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(random_cuts_do_not_matter), cmocka_unit_test(lost_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
