/* pattern_syntax.h - is a text a regular expression that a schema validator would accept? */
#ifndef BY_API_PATTERN_SYNTAX_H
#define BY_API_PATTERN_SYNTAX_H

#include <stdbool.h>

#include "base/str.h"

/* ECMA-262 as the original's engine reads it: groups, look-around, classes, escapes, back references, quantifiers. Only
 * the syntax is checked. */
bool by_pattern_is_valid(by_str pattern);

#endif
