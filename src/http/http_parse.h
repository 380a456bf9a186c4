/* http_parse.h - HTTP/1.1 requests out of a byte stream: a strict, incremental parser without sockets or clocks.
 *
 * What two programs may read differently is refused, because that is how requests are smuggled past a proxy: line ends other
 * than CRLF, folded headers, blanks before a colon, control characters, more than one Content-Length or Host, a length
 * together with Transfer-Encoding, any transfer coding but "chunked", signs and blanks in numbers, framing fields in trailers.
 * Sizes are bounded by by_http_limits. After a refusal the connection cannot go on, since nobody knows where the next request begins.
 *
 *     while ((ev = by_http_parse(&p, unread, &used, &piece)) != BY_HTTP_MORE) { drop `used` bytes; ... }
 *
 * Source: RFC 9110, RFC 9112; tests: test_http_parse, fuzz_http_parse, tests/integration/http_protocol.py,
 * and beside another parser http_h11.py, which lists what is stricter here.
 * One thread per parser. */
#ifndef BY_HTTP_PARSE_H
#define BY_HTTP_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

typedef struct by_http_limits {
    uint32_t line_bytes;   /* of the request line */
    uint32_t head_bytes;   /* of request line and headers, and of trailers */
    uint32_t n_headers;
    uint64_t body_bytes;
} by_http_limits;

/* 8 KiB, 64 KiB, 128, BY_LIMIT_REQUEST_BYTES. */
by_http_limits by_http_limits_default(void);

typedef struct by_http_header {
    by_str name, value; /* name in lower case; value without blanks around it, bytes as they came */
} by_http_header;

typedef enum by_http_event {
    BY_HTTP_MORE, /* more bytes are needed; some may have been used */
    BY_HTTP_HEAD, /* p->head is complete */
    BY_HTTP_BODY, /* *piece is a part of the body, inside the input */
    BY_HTTP_DONE, /* the request is complete; the next call begins another one */
    BY_HTTP_BAD   /* refused: p->bad_status and p->bad_reason; the parser stays in this state */
} by_http_event;

/* What was read of a request; texts are valid until the head of the next request is begun. */
typedef struct by_http_head {
    by_str method, target; /* target begins with "/", is "*", or is "http://..." or "https://..." */
    bool http10;           /* version 1.0; else 1.1 */
    bool keep_alive;       /* by version and Connection header */
    bool expect_continue;  /* the client waits for 100 before it sends the body */
    bool has_length, chunked;
    uint64_t length;
    uint32_t n_headers;
    const by_http_header *headers; /* in order */
} by_http_head;

typedef enum by_http_state {
    BY_HTTP_AT_HEAD, BY_HTTP_AT_BODY, BY_HTTP_AT_CHUNK_SIZE, BY_HTTP_AT_CHUNK_DATA, BY_HTTP_AT_CHUNK_END, BY_HTTP_AT_TRAILERS,
    BY_HTTP_AT_END, BY_HTTP_AT_BAD
} by_http_state;

typedef struct by_http_parser {
    by_http_limits limits;
    by_http_state state;
    size_t seen;         /* bytes of an unfinished head or line that were looked at already */
    uint64_t left;       /* of the body or chunk */
    uint64_t body_bytes; /* so far */
    uint32_t extra_bytes; /* of chunk extensions, trailers and empty lines in front, so far */
    by_http_head head;
    by_buf text;         /* what head points into */
    by_http_header *headers;
    uint32_t cap_headers;
    int bad_status;      /* 400, 413, 414, 417, 431, 501, 505; 503 when memory is out */
    const char *bad_reason; /* static, for people */
} by_http_parser;

void by_http_parser_init(by_http_parser *p, const by_http_limits *limits);
void by_http_parser_deinit(by_http_parser *p);

/* Frees what the last head was kept in; for connections that wait for their next request. */
void by_http_parser_shrink(by_http_parser *p);

/* Reads on in `in`, the bytes not used so far. *used of them are done with after the call. */
by_http_event by_http_parse(by_http_parser *p, by_str in, size_t *used, by_str *piece);

/* Has anything of a request come that is not complete yet? */
static inline bool by_http_parser_inside(const by_http_parser *p) {
    return p->state != BY_HTTP_AT_HEAD || p->seen > 0;
}

/* Value of the first header of that name (lower case), or NULL. */
const by_str *by_http_header_get(const by_http_head *h, const char *name);

/* Is `word` (lower case) among the comma-separated words of a header's value, in any case? */
bool by_http_has_word(by_str value, const char *word);

#endif
