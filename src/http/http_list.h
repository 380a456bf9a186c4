/* http_list.h - pages of lists, as OpenAI's APIs ask for them: `after` (an id), `limit`, `order`. Loop's thread.
 *
 *   by_list_page page;
 *   if (!by_list_begin(&page, ex, 20, 100)) return;                  answered with 400
 *   for (everything in the order that page.ascending says)
 *       if (by_list_takes(&page, id)) write the element into page.json;
 *   by_list_end(&page, ex);                                           answers
 */
#ifndef BY_HTTP_LIST_H
#define BY_HTTP_LIST_H

#include "http/http_impl.h"

typedef struct by_list_page {
    bool ascending;      /* default: false, the newest first */
    by_json_out json;    /* inside the array `data` */
    by_buf out;
    by_str after, first, last; /* after: empty = from the begin. The ids live as long as what they name */
    int64_t left;        /* elements that still fit */
    bool found, more;
} by_list_page;

/* Reads the query: limit in [1, limit_max]. False: it is malformed, and answered. */
bool by_list_begin(by_list_page *page, by_exchange *ex, int64_t limit_default, int64_t limit_max);
/* Told of every element in order: is it on the page? */
bool by_list_takes(by_list_page *page, by_str id);
/* Answers with the page, or with 400 when nothing is called `after`. */
void by_list_end(by_list_page *page, by_exchange *ex);

#endif
