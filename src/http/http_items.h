/* http_items.h - lists of items of /v1/responses as they are stored: JSON objects with commas between them and without brackets.
 * Every item has an `id` (the client's own, or one of ours) and a `type`; the content of a message is a list of parts, as
 * OpenAI's API shows it. Loop's thread. */
#ifndef BY_HTTP_ITEMS_H
#define BY_HTTP_ITEMS_H

#include "http/http_impl.h"

/* Appends a list to another. A failed growth shows in *list. */
void by_items_push(by_buf *list, by_str items);
/* The first of an array that is no item (an object with a text as its type, or its role), or -1. */
int64_t by_items_find_odd(const by_json *input);
/* Appends the items of a request's `input`, or of a response's `output`: a text is one message of the user. All of them are items. */
void by_items_push_input(by_buf *list, by_http *h, const by_json *input);
/* Finds the first item of that id; *item lives in arena and points into items. False: there is none, or memory is out. */
bool by_items_find(by_str items, by_str id, by_arena *arena, by_json *item);
/* Takes the first item of that id out of a list; true when there was one and memory was enough. */
bool by_items_remove(by_buf *list, by_str id, by_arena *arena);
/* Answers with a page of a list. */
void by_items_reply(by_exchange *ex, by_str items);

#endif
