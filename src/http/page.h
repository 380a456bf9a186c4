/* page.h - files of web/, put into the program by cmake/embed.cmake. Constant; any thread. The page at / wants `Content-Type:
 * text/html; charset=utf-8` and carries its Content-Security-Policy itself; /openapi.json describes what the server answers. */
#ifndef BY_HTTP_PAGE_H
#define BY_HTTP_PAGE_H

#include <stddef.h>

extern const unsigned char by_page_html[];
extern const size_t by_page_html_len;
extern const unsigned char by_openapi_json[];
extern const size_t by_openapi_json_len;

#endif
