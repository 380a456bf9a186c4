/* parse_rows.h - rows of tests/golden/data/recipe/parse*.jsonl.gz as parser options, and a recorder of deltas.
 * For tests only; anything unexpected in a row ends the program. */
#ifndef BY_TEST_PARSE_ROWS_H
#define BY_TEST_PARSE_ROWS_H

#include "json/json.h"
#include "recipe/parser.h"

enum { BY_PARSE_ROW_STOPS = 64 };

typedef struct by_parse_row {
    by_parser_opts opts; /* opts.stops points into stops: do not copy the struct */
    by_str stops[BY_PARSE_ROW_STOPS];
    const by_json *chunks; /* strings */
    const by_json *finish; /* string or null */
} by_parse_row;

/* input is the row's "input". Strings stay in the JSON's memory. */
void by_parse_row_read(by_parse_row *row, const by_json *input);

/* All of a parse joined: what must not depend on how the text was cut. Each call is a name, NUL, its arguments, NUL. */
typedef struct by_parse_record {
    by_buf deltas; /* the vectors' form, {"r":"..."},{"c":"..."}: compact JSON, members of a list */
    by_buf reasoning, content, calls;
    uint32_t n_calls;
    bool broken; /* args of a call that is not the newest, an empty or invalid text, ... */
} by_parse_record;

by_delta_fn by_parse_record_delta; /* ctx: by_parse_record */
void by_parse_record_clear(by_parse_record *r);
void by_parse_record_deinit(by_parse_record *r);

/* Everything but `deltas` equal; with json_output blanks around the JSON are not compared (their number depends on the
 * pieces). */
bool by_parse_record_same(const by_parse_record *a, const by_parse_record *b, bool json_output);

/* Runs a whole text through the parser, cut into pieces that end at the given offsets (ascending; the rest is the last
 * piece). Ends the program when the parser fails. */
void by_parse_in_pieces(by_parse_record *r, const by_parser_opts *opts, by_str text, const size_t *cuts, size_t n_cuts);

#endif
