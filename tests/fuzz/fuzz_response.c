/* Fuzzes the reading of responses and events: whatever comes, and however it is cut, status, body and events are the
 * same. The first byte gives the size of the pieces. */
#include <stdint.h>
#include <stdlib.h>

#include "http/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    by_buf events;
    by_event_reader reader;
    by_response reply;
    by_status status;
    size_t used;
} reading;

static by_status on_event(void *ctx, by_str name, by_str data, by_err *err) {
    (void)err;
    by_buf_push_str(ctx, name);
    by_buf_push_byte(ctx, '|');
    by_buf_push_str(ctx, data);
    by_buf_push_byte(ctx, '\n');
    return BY_OK;
}

static by_status on_body(void *ctx, by_str piece, by_err *err) {
    return by_event_reader_feed(&((reading *)ctx)->reader, piece, err);
}

static void read_all(reading *r, const char *data, size_t size, size_t piece) {
    by_event_reader_begin(&r->reader, on_event, &r->events);
    by_response_begin(&r->reply, on_body, r);
    r->status = BY_AGAIN;
    while (r->used < size && r->status == BY_AGAIN) {
        size_t used, n = size - r->used < piece ? size - r->used : piece;
        r->status = by_response_feed(&r->reply, data + r->used, n, &used, NULL);
        if (used > n || (r->status == BY_AGAIN && used < n)) abort();
        r->used += used;
    }
    if (r->status == BY_AGAIN) r->status = by_response_closed(&r->reply, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    reading whole = {0}, cut = {0};
    const char *text = (const char *)data + 1;
    read_all(&whole, text, size - 1, size);
    read_all(&cut, text, size - 1, 1 + data[0] % 40u);
    /* A head beyond its limit is noticed at another byte when it comes in other pieces. */
    if (whole.status != cut.status) abort();
    if (whole.status >= 0 && (whole.used != cut.used || whole.reply.status != cut.reply.status ||
                              whole.reply.keep_alive != cut.reply.keep_alive))
        abort();
    if (whole.status >= 0 && !by_str_eq(by_buf_str(&whole.events), by_buf_str(&cut.events))) abort();
    by_buf_deinit(&whole.events), by_buf_deinit(&cut.events);
    by_event_reader_deinit(&whole.reader), by_event_reader_deinit(&cut.reader);
    by_response_deinit(&whole.reply), by_response_deinit(&cut.reply);
    return 0;
}
