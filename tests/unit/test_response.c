/* The client's side of HTTP: every cut of a response gives the same, faults are told, lengths are held to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "http/response.h"

typedef struct {
    by_buf body, events;
    by_event_reader *reader;
} sink;

static by_status on_body(void *ctx, by_str piece, by_err *err) {
    sink *s = ctx;
    by_buf_push_str(&s->body, piece);
    return s->reader ? by_event_reader_feed(s->reader, piece, err) : BY_OK;
}

static by_status on_event(void *ctx, by_str name, by_str data, by_err *err) {
    (void)err;
    by_buf_printf(&((sink *)ctx)->events, "[%.*s|%.*s]", BY_STR_ARG(name), BY_STR_ARG(data));
    return BY_OK;
}

/* Feeds text in pieces of the given size; the status of the last feed, *rest bytes were not used. */
static by_status feed(by_response *r, const char *text, size_t piece, size_t *rest, by_err *err) {
    size_t n = strlen(text), at = 0;
    by_status status = BY_AGAIN;
    while (at < n && status == BY_AGAIN) {
        size_t used, now = n - at < piece ? n - at : piece;
        status = by_response_feed(r, text + at, now, &used, err);
        assert_true(used <= now && (used == now || status != BY_AGAIN));
        at += used;
    }
    *rest = n - at;
    return status;
}

typedef struct {
    const char *text, *body;
    by_status end; /* BY_END, or BY_AGAIN when it ends by closing */
    int status;
    bool keep_alive;
    size_t rest;
} row;

static const row good[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1", "hello", BY_END, 200, true, 8},
    {"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX: y\r\n\r\nmore",
     "hello world", BY_END, 200, true, 4},
    {"HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", "", BY_END, 404, true, 0},
    {"HTTP/1.0 200 OK\r\n\r\nall of it", "all of it", BY_AGAIN, 200, false, 0},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nConnection: close\r\nContent-Length: "
     "2\r\n\r\n{}",
     "{}", BY_END, 429, false, 0},
    {"HTTP/1.1 204\r\n\r\nHTTP", "", BY_END, 204, true, 4},
    {"HTTP/1.1 200 OK\nContent-Length:3\n\nabc", "abc", BY_END, 200, true, 0},
};

static void every_cut_gives_the_same_response(void **state) {
    (void)state;
    by_response r = {0};
    sink s = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        for (size_t piece = 1; piece < 70; piece++) {
            size_t rest;
            by_err err = {0};
            by_buf_clear(&s.body);
            by_response_begin(&r, on_body, &s);
            assert_int_equal(feed(&r, good[i].text, piece, &rest, &err), good[i].end);
            assert_string_equal(by_buf_z(&s.body), good[i].body);
            assert_int_equal(r.status, good[i].status);
            assert_int_equal(r.keep_alive, good[i].keep_alive);
            assert_int_equal(rest, good[i].rest);
            assert_int_equal(r.retry_after_s, good[i].status == 429 ? 7 : -1);
            assert_int_equal(by_response_closed(&r, &err), BY_END);
        }
    }
    by_response_deinit(&r);
    by_buf_deinit(&s.body);
}

static void faults_are_errors(void **state) {
    (void)state;
    static const char *const bad[] = {"SSH-2.0-OpenSSH_9.2\r\n",
                                      "HTTP/2 200\r\n",
                                      "HTTP/1.1 20 OK\r\n",
                                      "HTTP/1.1 2000 OK\r\n",
                                      "HTTP/1.1 0x8 OK\r\n",
                                      "\r\n",
                                      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
                                      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
                                      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
                                      "HTTP/1.1 200 OK\r\nnothing\r\n",
                                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
                                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
                                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        by_response r = {0};
        by_err err = {0};
        size_t rest;
        by_response_begin(&r, NULL, NULL);
        if (feed(&r, bad[i], 3, &rest, &err) != BY_EFORMAT) fail_msg("accepted: %s", bad[i]);
        assert_true(err.msg[0]);
        by_response_deinit(&r);
    }
}

static void a_response_cut_short_is_an_error(void **state) {
    (void)state;
    const char *text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    by_response r = {0};
    for (size_t n = 0; n < strlen(text); n++) {
        size_t used;
        by_err err = {0};
        by_response_begin(&r, NULL, NULL);
        assert_int_equal(by_response_feed(&r, text, n, &used, &err), BY_AGAIN);
        assert_int_equal(by_response_closed(&r, &err), BY_EIO);
    }
    by_response_deinit(&r);
}

static void heads_are_bounded(void **state) {
    (void)state;
    by_response r = {0};
    by_err err = {0};
    size_t used;
    by_status status = BY_AGAIN;
    by_response_begin(&r, NULL, NULL);
    for (int i = 0; i < 100000 && status == BY_AGAIN; i++) status = by_response_feed(&r, "xxxx", 4, &used, &err);
    assert_int_equal(status, BY_ELIMIT);
    by_response_begin(&r, NULL, NULL);
    status = by_response_feed(&r, "HTTP/1.1 200 OK\r\n", 17, &used, &err);
    for (int i = 0; i < 100000 && status == BY_AGAIN; i++) status = by_response_feed(&r, "a: b\r\n", 6, &used, &err);
    assert_int_equal(status, BY_ELIMIT);
    by_response_deinit(&r);
}

static void events_are_read_in_every_cut(void **state) {
    (void)state;
    const char *text =
        ": hello\n\ndata: one\n\nevent: note\r\ndata: two\r\ndata:three\r\n\r\nid: 7\nretry: 3\n\ndata\n\n"
        "event: lost\n\ndata: cr\r\rdata: {\"a\": 1}\n\ndata: not ended\n";
    const char *want = "[|one][note|two\nthree][|][|cr][|{\"a\": 1}]";
    sink s = {0};
    by_event_reader r = {0};
    for (size_t piece = 1; piece < strlen(text); piece++) {
        by_buf_clear(&s.events);
        by_event_reader_begin(&r, on_event, &s);
        for (size_t at = 0; at < strlen(text); at += piece)
            assert_int_equal(by_event_reader_feed(&r, by_str_take(by_str_z(text + at), piece), NULL), BY_OK);
        assert_string_equal(by_buf_z(&s.events), want);
        assert_int_equal(r.n_comments, 1);
    }
    by_event_reader_deinit(&r);
    by_buf_deinit(&s.events);
}

static by_status refuse(void *ctx, by_str name, by_str data, by_err *err) {
    (void)ctx, (void)name, (void)data;
    return BY_FAIL(err, BY_ECANCELLED, "enough");
}

static void events_are_bounded_and_the_callback_may_refuse(void **state) {
    (void)state;
    by_event_reader r = {0};
    by_err err = {0};
    static char many[1 << 16];
    memset(many, 'x', sizeof many);
    by_event_reader_begin(&r, on_event, NULL);
    by_status status = BY_OK;
    for (int i = 0; i < 1000 && status == BY_OK; i++)
        status = by_event_reader_feed(&r, by_str_of(many, sizeof many), &err);
    assert_int_equal(status, BY_ELIMIT);
    by_event_reader_begin(&r, refuse, NULL);
    assert_int_equal(by_event_reader_feed(&r, BY_STR("data: a\n\ndata: b\n\n"), &err), BY_ECANCELLED);
    by_event_reader_deinit(&r);
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    int64_t held = by_alloc_bytes_total();
    bool failed = false, done = false;
    for (int n = 1; !done; n++) {
        by_response r = {0};
        by_event_reader reader = {0};
        sink s = {.reader = &reader};
        by_err err = {0};
        size_t rest;
        by_alloc_fail_nth(n);
        by_response_begin(&r, on_body, &s);
        by_event_reader_begin(&reader, on_event, &s);
        by_status status =
            feed(&r, "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\nevent: x\ndata: hello\n\n", 5, &rest, &err);
        by_alloc_fail_nth(0);
        done = status == BY_END && !s.body.failed && !s.events.failed;
        failed = failed || status == BY_ENOMEM;
        if (status != BY_END) assert_int_equal(status, BY_ENOMEM);
        by_response_deinit(&r);
        by_event_reader_deinit(&reader);
        by_buf_deinit(&s.body);
        by_buf_deinit(&s.events);
        assert_int_equal(by_alloc_bytes_total(), held);
    }
    assert_true(failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same_response),
        cmocka_unit_test(faults_are_errors),
        cmocka_unit_test(a_response_cut_short_is_an_error),
        cmocka_unit_test(heads_are_bounded),
        cmocka_unit_test(events_are_read_in_every_cut),
        cmocka_unit_test(events_are_bounded_and_the_callback_may_refuse),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
