/* grammar_options.h - options of grammars as JSON: commands, the bench protocol and requests share the names, and
 * re-written JSON. */
#ifndef BY_GRAMMAR_OPTIONS_H
#define BY_GRAMMAR_OPTIONS_H

#include "base/arena.h"
#include "base/buf.h"
#include "grammar/grammar.h"
#include "json/json.h"

/* Reads {"whitespace", "any_order", "strict", "lenient", "one_of", "root", "integer_dot_zero"}; strings borrow from v.
 * An unknown name is BY_EINVAL. */
by_status by_grammar_options_read(by_grammar_opts *out, const by_json *v, by_err *err);

/* The same from text; empty = no options. The strings live in arena. */
by_status by_grammar_options_parse(by_grammar_opts *out, by_arena *arena, by_str text, by_err *err);

/* Text of a value with numbers as they were written (bounds are decimals, not doubles). Depth as parsed. */
void by_grammar_write_json(by_buf *out, const by_json *v);

#endif
