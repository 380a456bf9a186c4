/* http_items.h - lists of items of /v1/responses as they are stored: JSON objects with commas between them and without brackets,
 * and where in that text each item and its id are, so that a page of a long list needs no parsing.
 * Every item has an `id` (the client's own, or one of ours) and a `type`; the content of a message is a list of parts, as
 * OpenAI's API shows it. One thread for each list. */
#ifndef BY_HTTP_ITEMS_H
#define BY_HTTP_ITEMS_H

#include "http/http_impl.h"

/* Zero-initialise. */
typedef struct by_items {
    by_buf text; /* of all items */
    by_buf ids;  /* one after the other, decoded */
    by_buf marks; /* array, one for each item */
} by_items;

void by_items_deinit(by_items *l);
/* Bytes held. */
size_t by_items_bytes(const by_items *l);
/* Bytes that a list will hold at most when `more` is appended. */
size_t by_items_bytes_with(const by_items *l, const by_items *more);
/* Appends a list to another. False: out of memory, and the list is as it was. */
bool by_items_push(by_items *l, const by_items *more);
/* The first of an array that is no item (an object with a text as its type, or its role), or -1. */
int64_t by_items_find_odd(const by_json *input);
/* Appends the items of a request's `input`, or of a response's `output`: a text is one message of the user. All of them are items.
 * rng is for the ids of those without one. False: out of memory, and some may be missing. */
bool by_items_push_input(by_items *l, by_rng *rng, const by_json *input);
/* The text of the first item of that id, until the list changes; ptr NULL: there is none. */
by_str by_items_find(const by_items *l, by_str id);
/* Takes the first item of that id out of a list; false: there is none. */
bool by_items_remove(by_items *l, by_str id);
/* Answers with a page of a list. */
void by_items_reply(by_exchange *ex, const by_items *l);

#endif
