/* json_lines.h - commands that turn one JSON object a line into another: {"id", ...} -> {"id", ...}. */
#ifndef BY_CLI_JSON_LINES_H
#define BY_CLI_JSON_LINES_H

#include "cli/command.h"
#include "json/json.h"
#include "json/json_write.h"

/* Writes the members of the answer to `row`, behind its id, into an open object. On an error they are dropped, and the
 * message is the answer. */
typedef by_status by_json_line_fn(void *context, const by_json *row, by_json_out *answer, by_err *err);

/* Answers every line of a file ("-" = standard input) in order, each as soon as it is read; blank lines are skipped. A bad
 * line gives {"id", "error"} and the others go on; then the result is BY_EFORMAT with their number.
 * Other errors: those of the files, BY_ENOMEM. */
by_status by_json_lines_run(const char *input, by_output *to, by_json_line_fn *fn, void *context, by_err *err);

#endif
