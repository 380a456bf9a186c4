/* value_text.h - values as the original's error messages show them. */
#ifndef BY_API_VALUE_TEXT_H
#define BY_API_VALUE_TEXT_H

#include "base/buf.h"
#include "json/json.h"

/* A string in double quotes with \" \\ \n \r \t \0 and \u{...} for characters that do not print (controls, separators,
 * unassigned, private use, marks that combine). */
void by_text_put_quoted(by_buf *out, by_str s);

/* integer `5`, floating point `1.5`, boolean `true`, string "x", null, sequence, map */
void by_text_put_value(by_buf *out, const by_json *v);

#endif
