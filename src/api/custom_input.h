/* custom_input.h - the text of a custom tool out of its call's arguments, while they stream.
 *
 * The model calls a custom tool like a function with one string parameter, {"input": "..."}; the API shows the string
 * alone. As soon as the arguments cannot be of that form any more, they are shown as they are; once the string has begun it
 * is decoded, and what follows its end is dropped. Escapes that are no escapes are shown as they are. */
#ifndef BY_API_CUSTOM_INPUT_H
#define BY_API_CUSTOM_INPUT_H

#include "api/api_stream_impl.h"

/* Starts with the next call; memory is kept. */
void by_custom_input_begin(by_custom_input *c);

/* Appends to out what becomes visible with this piece of the arguments. */
void by_custom_input_push(by_custom_input *c, by_str args, by_buf *out);

/* Appends what was held back when the arguments end here. */
void by_custom_input_end(by_custom_input *c, by_buf *out);

#endif
