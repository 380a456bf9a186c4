/* json_number.h - one number of a JSON text, for the reader. */
#ifndef BY_JSON_NUMBER_H
#define BY_JSON_NUMBER_H

#include "base/arena.h"
#include "json/json.h"

/* Reads the number at *at (< end; a digit or a minus) into out: type, value and raw. *at moves behind it.
 * Returns NULL, or what was expected at *at; "" when memory is out. Long digits borrow room from arena. */
const char *by_json_scan_number(const char **at, const char *end, by_arena *arena, by_json *out);

#endif
