/* event_reader.c - server-sent events out of a body in pieces: lines end with CR, LF or CRLF; `data` lines of an event
 * are joined by line feeds; a line that begins with a colon is a comment (keep-alive); `id` and `retry` are of no use
 * here. */
#include "http/response.h"

void by_event_reader_begin(by_event_reader *r, by_event_fn *on_event, void *ctx) {
    by_buf_clear(&r->line);
    by_buf_clear(&r->data);
    by_buf_clear(&r->name);
    r->after_cr = r->has_data = false;
    r->n_comments = 0;
    r->on_event = on_event;
    r->ctx = ctx;
}

void by_event_reader_deinit(by_event_reader *r) {
    by_buf_deinit(&r->line);
    by_buf_deinit(&r->data);
    by_buf_deinit(&r->name);
}

static by_status end_event(by_event_reader *r, by_err *err) {
    by_status status = r->has_data ? r->on_event(r->ctx, by_buf_str(&r->name), by_buf_str(&r->data), err) : BY_OK;
    by_buf_clear(&r->data);
    by_buf_clear(&r->name);
    r->has_data = false;
    return status < 0 ? status : BY_OK;
}

static by_status read_line(by_event_reader *r, by_str line, by_err *err) {
    if (!line.len) return end_event(r, err);
    if (line.ptr[0] == ':') {
        r->n_comments++;
        return BY_OK;
    }
    const char *colon = memchr(line.ptr, ':', line.len);
    by_str field = {line.ptr, colon ? (size_t)(colon - line.ptr) : line.len};
    by_str value = by_str_skip(line, colon ? field.len + 1 : line.len);
    if (value.len && value.ptr[0] == ' ') value = by_str_skip(value, 1);
    if (by_str_eqz(field, "data")) {
        if (r->data.len + value.len > BY_RESPONSE_EVENT_MAX)
            return BY_FAIL(err, BY_ELIMIT, "an event is over %d bytes", BY_RESPONSE_EVENT_MAX);
        if (r->has_data) by_buf_push_byte(&r->data, '\n');
        r->has_data = true;
        by_buf_push_str(&r->data, value);
        return by_buf_check(&r->data, err);
    }
    if (by_str_eqz(field, "event")) {
        by_buf_clear(&r->name);
        by_buf_push_str(&r->name, value);
        return by_buf_check(&r->name, err);
    }
    return BY_OK;
}

by_status by_event_reader_feed(by_event_reader *r, by_str piece, by_err *err) {
    while (piece.len) {
        if (r->after_cr && piece.ptr[0] == '\n') piece = by_str_skip(piece, 1);
        r->after_cr = false;
        if (!piece.len) break;
        const char *lf = memchr(piece.ptr, '\n', piece.len),
                   *cr = memchr(piece.ptr, '\r', lf ? (size_t)(lf - piece.ptr) : piece.len);
        const char *end = cr ? cr : lf;
        size_t len = end ? (size_t)(end - piece.ptr) : piece.len;
        by_str line = {piece.ptr, len};
        if (r->line.len || !end) { /* a line in pieces, or its first piece */
            if (r->line.len + len > BY_RESPONSE_EVENT_MAX)
                return BY_FAIL(err, BY_ELIMIT, "a line is over %d bytes", BY_RESPONSE_EVENT_MAX);
            if (!by_buf_push(&r->line, piece.ptr, len)) return BY_FAIL(err, BY_ENOMEM, "events: out of memory");
            line = by_buf_str(&r->line);
        }
        if (!end) break;
        r->after_cr = end == cr;
        piece = by_str_skip(piece, len + 1);
        by_status status = read_line(r, line, err);
        by_buf_clear(&r->line);
        BY_TRY(status);
    }
    return BY_OK;
}
