/* conform.h - rows of test vectors: `bathyc conform` reads {"kind", "input"} lines and answers each with
 * {"kind", "result"}. The kinds of an area are a table in that area's file, conform_<area>.c. */
#ifndef BY_CLI_CONFORM_H
#define BY_CLI_CONFORM_H

#include "base/err.h"
#include "json/json.h"
#include "json/json_write.h"
#include "tok/tok.h"

/* What rows share: the tokenizers, loaded when a row asks for one. */
typedef struct by_conform by_conform;

/* The tokenizer as the file has it, or (v41) as V4.1 uses it: where the file has no `<｜System｜>`, the content of id 128799
 * is replaced by it. *scratch is for that tokenizer. Both belong to c. Errors: those of by_tok_open. */
by_status by_conform_tok(by_conform *c, bool v41, const by_tok **tok, by_tok_scratch **scratch, by_err *err);

typedef struct by_conform_kind {
    const char *kind; /* NULL ends a table */

    /* Writes exactly one value, the row's result. `input` is the row's member, never NULL; `row` the whole row. On an error
     * what was written is dropped and the answer is {"kind", "error": message}. */
    by_status (*run)(by_conform *c, const by_json *row, const by_json *input, by_json_out *result, by_err *err);
} by_conform_kind;

extern const by_conform_kind by_conform_tok_kinds[], by_conform_parse_kinds[], by_conform_recipe_kinds[],
    by_conform_convert_kinds[], by_conform_stream_kinds[];

/* Member of input that must have a type; errors: BY_EFORMAT, naming the field. */
by_status by_conform_field(const by_json *input, const char *key, by_json_type type, const by_json **out, by_err *err);

#endif
