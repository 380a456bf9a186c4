/* parser.h - model output text -> reasoning, content and tool calls, as deltas.
 *
 * A state machine over bytes. Text is pushed in pieces of any size; every piece gives at most one delta per stretch of
 * text, markup gives its own deltas at once, and a delta is never taken back. Text that may still turn out to be markup
 * (the front of a tag or of a stop string, newlines before a tag) waits. Both the V4.1 tags (`<DSML calls>`) and the V4
 * tags (`<DSMLtool_calls>`) are understood, because only the parts they share are looked at. Malformed calls
 * are passed on as far as they came: nothing is closed or repaired.
 *
 *   by_parser_push(p, "Hm.</think>Hi<")   -> reasoning "Hm."          ("Hi<" waits)
 *   by_parser_push(p, "b>")               -> content "Hi<", content "b>"
 *
 * The joined deltas do not depend on how the text was cut, with one exception that the original has too: in JSON mode
 * each piece outside the JSON becomes one blank.
 *
 * After the first pushes have grown its buffers a parser allocates nothing. One thread per parser.
 * Behaviour: deepseek-recipe 0.2.0; goldens: tests/golden/data/recipe/parse*.jsonl.gz; slow twin: tests/support/parse_twin.c. */
#ifndef BY_RECIPE_PARSER_H
#define BY_RECIPE_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "recipe/marker.h"

/* Where the generation prompt left off. */
typedef enum by_stage {
    BY_STAGE_NONE,                   /* thinking is off */
    BY_STAGE_REASONING_START,        /* behind the thinking start token; leading newlines are dropped */
    BY_STAGE_REASONING_CONTINUATION, /* inside reasoning that a prefix message began */
    BY_STAGE_CONTENT_CONTINUATION    /* inside content that a prefix message began */
} by_stage;

typedef struct by_parser_opts {
    bool parse_calls;
    bool starts_in_calls; /* the prompt has opened the block of calls; wins over stage and parse_calls */
    bool raw;             /* no chat format: everything is content, only stop strings act; wins over all others */
    bool json_output;     /* blanks instead of the text around fenced or bare JSON */
    bool eager;           /* when the end of a piece has to wait, its front does not (the original keeps pieces whole) */
    by_stage stage;
    uint32_t most_calls;  /* the text ends where a further call would begin; 0 = any number */
    const by_str *stops; /* [n_stops], valid UTF-8, copied; empty ones are ignored. They act on content only */
    size_t n_stops;
    bool stops_in_special; /* they are also found in the text of special tokens and across its borders (the original: in plain text only) */
    bool include_stop;     /* the stop string that ends the text is part of it */
    by_str thinking_end, dsml; /* spellings, copied; empty = those of specials.h */
} by_parser_opts;

typedef enum by_delta_kind {
    BY_DELTA_REASONING,
    BY_DELTA_CONTENT,
    BY_DELTA_CALL, /* a new call; text is the function's name */
    BY_DELTA_ARGS  /* a piece of the arguments' JSON text of call `call` */
} by_delta_kind;

typedef struct by_delta {
    by_delta_kind kind;
    uint32_t call;     /* CALL, ARGS: index from 0 */
    bool no_reasoning; /* CALL: a stage is set and no reasoning came before */
    by_str text;       /* valid UTF-8; lives during the callback. Empty: a nameless CALL, and what empty pieces give (not
                        * when eager) */
    uint64_t tag;      /* tag of the piece the text came from; 0 for markup's own deltas */
} by_delta;

/* Called from within push and finish; must not call back into the parser. */
typedef void by_delta_fn(void *ctx, const by_delta *delta);

typedef struct by_parser by_parser;

/* Creates a parser; *out is set only on success; the caller destroys it. Errors: BY_ENOMEM, BY_ELIMIT (a stop string of
 * 4 GiB). */
by_status by_parser_create(by_parser **out, const by_parser_opts *opts, by_delta_fn *on_delta, void *ctx, by_err *err);
void by_parser_destroy(by_parser *p); /* NULL is allowed */

/* Pushes bytes, perhaps none. A character cut at the end waits for its rest; bytes that are not UTF-8 become U+FFFD.
 * Ignored once the parser has ended. Errors: BY_ENOMEM; the parser is then of no further use. */
by_status by_parser_push(by_parser *p, by_str bytes, by_err *err);

/* The same for text that is valid UTF-8, with its class and a tag (see by_delta). Do not mix with a cut character. */
by_status by_parser_push_text(by_parser *p, by_str text, by_text_class text_class, uint64_t tag, by_err *err);

/* End of the input: everything that waits comes out as it is, a cut character as one U+FFFD. Further calls do nothing. */
by_status by_parser_finish(by_parser *p, by_err *err);

/* True after a stop string, before one call too many, and after by_parser_finish. */
bool by_parser_ended(const by_parser *p);

/* Index into opts.stops of the stop string that ended the text, -1 when none did. */
int64_t by_parser_stop_index(const by_parser *p);

/* Calls announced so far; whether the next text would be reasoning. */
uint32_t by_parser_calls(const by_parser *p);
bool by_parser_in_reasoning(const by_parser *p);

/* Some text (or a delta of a marker) waits for what comes next. */
bool by_parser_waits(const by_parser *p);

#endif
