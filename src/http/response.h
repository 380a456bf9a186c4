/* response.h - the client's side of HTTP/1.1, pure: a response out of a byte stream, and server-sent events out of a body.
 *
 * No sockets: the caller feeds what it read, in any pieces, and gets the body in pieces. Used by `bathyc bench serve`
 * against any server, so it is strict where a guess would hide a fault (lengths, chunk sizes) and lenient where servers
 * differ (bare LF, header case). One thread per object. Source: RFC 9112 sections 4 to 7; the WHATWG description of
 * text/event-stream. */
#ifndef BY_HTTP_RESPONSE_H
#define BY_HTTP_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum {
    BY_RESPONSE_LINE_MAX = 16384,   /* a status or header line */
    BY_RESPONSE_LINES_MAX = 200,    /* header lines */
    BY_RESPONSE_EVENT_MAX = 8 << 20 /* one event's data: a whole answer with log-probabilities in one event */
};

typedef struct by_response by_response;

/* A piece of the body, valid during the call; a negative result ends the reply with that status. */
typedef by_status by_response_body_fn(void *ctx, by_str piece, by_err *err);

typedef enum by_response_state {
    BY_RESPONSE_STATUS_LINE,
    BY_RESPONSE_HEADERS,
    BY_RESPONSE_LENGTH, /* body with Content-Length */
    BY_RESPONSE_CHUNK_SIZE,
    BY_RESPONSE_CHUNK_DATA,
    BY_RESPONSE_CHUNK_END,
    BY_RESPONSE_TRAILERS,
    BY_RESPONSE_TO_CLOSE, /* body until the peer closes */
    BY_RESPONSE_DONE
} by_response_state;

struct by_response {
    by_response_state state;
    int status;                             /* 200; 0 before the status line */
    bool keep_alive;                        /* another request may follow on this connection */
    bool chunked, has_length, event_stream; /* event_stream: Content-Type text/event-stream */
    int64_t left;                           /* bytes of the body or the chunk still to come */
    int64_t retry_after_s;                  /* -1 = none */
    int n_lines;
    by_buf line; /* of head or chunk size, incomplete */
    by_response_body_fn *on_body;
    void *ctx;
};

/* Ready for the next response; keeps its memory. The first call needs a zeroed object. */
void by_response_begin(by_response *r, by_response_body_fn *on_body, void *ctx);
void by_response_deinit(by_response *r);

/* Takes n bytes; *used of them belonged to this response (fewer than n only at its end). BY_AGAIN: more is to come.
 * BY_END: it is complete. Errors: BY_EFORMAT (not HTTP/1.x; a bad length or chunk size), BY_ELIMIT (head too long),
 * BY_ENOMEM, those of on_body. */
by_status by_response_feed(by_response *r, const char *data, size_t n, size_t *used, by_err *err);

/* The peer has closed. BY_END: the response was complete (it ended by closing); else BY_EIO. */
by_status by_response_closed(by_response *r, by_err *err);

/* ---- server-sent events ---- */

/* One event; name is empty where none was given. A negative result ends the reading with that status. */
typedef by_status by_event_fn(void *ctx, by_str name, by_str data, by_err *err);

typedef struct by_event_reader {
    by_buf line, data, name;
    bool after_cr, has_data;
    uint64_t n_comments;
    by_event_fn *on_event;
    void *ctx;
} by_event_reader;

/* Ready for the next stream; keeps its memory. The first call needs a zeroed object. */
void by_event_reader_begin(by_event_reader *r, by_event_fn *on_event, void *ctx);
void by_event_reader_deinit(by_event_reader *r);
/* Takes the next piece of the body. Errors: BY_ELIMIT (event too long), BY_ENOMEM, those of on_event. */
by_status by_event_reader_feed(by_event_reader *r, by_str piece, by_err *err);

#endif
