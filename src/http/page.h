/* page.h - the page at /: the bytes of web/index.html, put into the program by cmake/embed.cmake. Constant; any thread.
 * It wants `Content-Type: text/html; charset=utf-8` and carries its Content-Security-Policy itself. */
#ifndef BY_HTTP_PAGE_H
#define BY_HTTP_PAGE_H

#include <stddef.h>

extern const unsigned char by_page_html[];
extern const size_t by_page_html_len;

#endif
