/* conform_parse.h - settings of rows that parse and stream share. */
#ifndef BY_CLI_CONFORM_PARSE_H
#define BY_CLI_CONFORM_PARSE_H

#include "base/arena.h"
#include "cli/conform.h"
#include "recipe/answer.h"

/* A row's "parsing" as parser options; strings stay in the row, the list of stop strings in arena.
 * Errors: BY_EFORMAT (names the field), BY_ENOMEM. */
by_status by_conform_parsing(by_parser_opts *p, const by_json *parsing, by_arena *arena, by_err *err);

/* Sets the tokenizer that the row names ("v4", "v41"), if any. */
by_status by_conform_row_tok(by_conform *c, const by_json *input, by_answer_opts *a, by_err *err);

/* Ids of a row, in arena; what is no id of 32 bits becomes an id that does not exist. */
by_status by_conform_ids(int32_t **ids, const by_json *list, by_arena *arena, by_err *err);

/* "stop", "length", "content_filter". */
by_answer_reason by_conform_finish(by_str word);

#endif
