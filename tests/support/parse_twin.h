/* parse_twin.h - the slow twin of recipe/parser.c: reads the whole text at once and compares every marker at every place.
 * It shares no code with the parser and follows the table of the specification. For tests only. */
#ifndef BY_TEST_PARSE_TWIN_H
#define BY_TEST_PARSE_TWIN_H

#include "support/parse_rows.h"

/* text is valid UTF-8. Fills r (its deltas are not cut as the parser's are). */
void by_parse_twin(by_parse_record *r, const by_parser_opts *opts, by_str text);

#endif
