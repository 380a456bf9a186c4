/* chat_line.h - lines of a chat from a terminal (with editing and history, where libedit was found) or from a pipe. */
#ifndef BY_CLI_CHAT_LINE_H
#define BY_CLI_CHAT_LINE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct by_chat_line by_chat_line;

/* history_file: where entered lines are kept from one run to the next; NULL = nowhere. Editing needs that both standard
 * input and output are terminals. Errors: BY_ENOMEM. */
by_status by_chat_line_open(by_chat_line **out, const char *history_file, by_err *err);
void by_chat_line_close(by_chat_line *l); /* NULL is allowed; writes the history */

/* Whether a person sits at the other end. */
bool by_chat_line_is_terminal(const by_chat_line *l);

/* The next line without its end, in *out. BY_AGAIN when Ctrl-C interrupted the input, BY_END at its end.
 * Errors: BY_EIO, BY_ELIMIT (over BY_LIMIT_REQUEST_BYTES), BY_ENOMEM. */
by_status by_chat_line_read(by_chat_line *l, by_buf *out, by_err *err);

#endif
