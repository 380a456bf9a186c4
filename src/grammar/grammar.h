/* grammar.h - constrained decoding: which tokens may come next.
 *
 * Nouns: a by_grammar_vocab is a tokenizer seen as byte strings (made once per process, immutable); a by_grammar is a
 * compiled language over it (shared by any number of sequences; its tables grow lazily under an inner lock, bounded by
 * opts.memory_max); a by_matcher is one sequence's place in it (small, forks and rolls back).
 *
 * A mask has one bit per token id: bit `id & 31` of 32-bit word `id >> 5`; 1 = allowed. A bit is set exactly when
 * by_matcher_accept succeeds for that id. Source of the dialects: docs/grammar.md. */
#ifndef BY_GRAMMAR_GRAMMAR_H
#define BY_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "tok/tok.h"

typedef struct by_grammar_vocab by_grammar_vocab;
typedef struct by_grammar by_grammar;
typedef struct by_matcher by_matcher;

/* Tokens as byte strings. bytes[id].len == 0 means that the id is never allowed. Control tokens (added tokens) are
 * never matched as text: only a grammar that names them by id, or a tag literal that spells them, allows them. */
typedef struct by_grammar_vocab_in {
    uint32_t n_tokens;      /* 1..BY_LIMIT_VOCAB */
    const by_str *bytes;    /* [n_tokens], each at most 255 bytes; longer ones are never allowed. Copied. */
    const uint8_t *control; /* [n_tokens] 1 = control token; may be NULL */
    uint32_t eos;           /* id of end of text */
} by_grammar_vocab_in;

/* Builds the byte trie and the tables of characters and JSON strings (about 0.1 s and 21 MB for 129,280 tokens).
 * Errors: BY_EINVAL (sizes), BY_ENOMEM. */
by_status by_grammar_vocab_create(by_grammar_vocab **out, const by_grammar_vocab_in *in, by_err *err);
/* The same from a loaded tokenizer (its added tokens are the control tokens), or from its file. Errors: as above, and
 * those of by_tok_open. */
by_status by_grammar_vocab_from_tok(by_grammar_vocab **out, const by_tok *tok, uint32_t eos, by_err *err);
by_status by_grammar_vocab_open(by_grammar_vocab **out, const char *tokenizer_json, uint32_t eos, by_err *err);
void by_grammar_vocab_destroy(by_grammar_vocab *v);
uint32_t by_grammar_vocab_size(const by_grammar_vocab *v);
uint32_t by_grammar_vocab_eos(const by_grammar_vocab *v);
by_str by_grammar_vocab_bytes(const by_grammar_vocab *v, uint32_t id);
bool by_grammar_vocab_is_control(const by_grammar_vocab *v, uint32_t id);
/* 32-bit words of a mask. */
uint32_t by_grammar_mask_words(const by_grammar_vocab *v);
/* Greedy longest-match tokenisation of bytes, for tests and tools. Returns the number of ids (at most max), or -1. */
int64_t by_grammar_vocab_split(const by_grammar_vocab *v, by_str text, uint32_t *ids, size_t max);

typedef enum by_grammar_kind {
    BY_GRAMMAR_JSON_SCHEMA, /* text: the schema */
    BY_GRAMMAR_JSON_OBJECT, /* text: not used */
    BY_GRAMMAR_REGEX,       /* the whole output matches */
    BY_GRAMMAR_EBNF,
    BY_GRAMMAR_LARK,
    BY_GRAMMAR_CHOICE, /* text: JSON list of strings */
    BY_GRAMMAR_TAG,    /* text: JSON structural tag */
    BY_GRAMMAR_N
} by_grammar_kind;
/* "json_schema", "json_object", ... */
const char *by_grammar_kind_name(by_grammar_kind k);
bool by_grammar_kind_parse(by_grammar_kind *out, by_str name);

typedef enum by_grammar_ws {
    BY_GRAMMAR_WS_BOUNDED, /* at most 20 characters a gap, 2 of them newlines */
    BY_GRAMMAR_WS_ANY,
    BY_GRAMMAR_WS_COMPACT,
    BY_GRAMMAR_WS_SPACED, /* one blank behind commas and colons, none elsewhere: as Python's json.dumps writes */
    BY_GRAMMAR_WS_PATTERN /* ws_pattern */
} by_grammar_ws;

typedef struct by_grammar_opts {
    by_grammar_ws whitespace;
    by_str ws_pattern;
    bool any_order;        /* object members in any order */
    bool strict;           /* additionalProperties is false where a schema with properties does not say */
    bool lenient;          /* unsupported keywords become warnings */
    bool one_of_any;       /* oneOf as anyOf */
    bool integer_dot_zero; /* integers may be written 1.0 */
    bool empty_ok;         /* a JSON schema that no value satisfies compiles, too: its first mask is empty. For verdicts only */
    by_str root;           /* EBNF root rule; empty = "root" */
    int64_t timeout_us;    /* of compilation; 0 = 2 s */
    size_t memory_max;     /* bytes a grammar may hold; 0 = 256 MiB */
    uint32_t states_max;   /* 0 = 1,000,000 */
} by_grammar_opts;

/* Where and why a compilation failed. */
typedef struct by_grammar_error {
    char where[256]; /* JSON pointer, or "line 3, column 7", or "offset 12" */
} by_grammar_error;

/* Compiles text. opts may be NULL (all zero); the vocabulary must outlive the grammar; text is copied. where may be
 * NULL. The grammar starts with one reference. Errors: BY_EFORMAT (syntax), BY_EUNSUPPORTED, BY_EINVAL (nothing
 * matches), BY_ELIMIT (size, states, nesting), BY_ETIMEOUT, BY_ENOMEM. Thread-safe. */
by_status by_grammar_compile(by_grammar **out, const by_grammar_vocab *vocab, by_grammar_kind kind, by_str text,
                             const by_grammar_opts *opts, by_grammar_error *where, by_err *err);
by_grammar *by_grammar_acquire(by_grammar *g);
void by_grammar_release(by_grammar *g); /* NULL is allowed */
/* Warnings of a lenient compilation, one a line; "" when none. Owned by the grammar. */
const char *by_grammar_warnings(const by_grammar *g);
typedef struct by_grammar_stats {
    uint64_t states, masks, bytes, rebuilds;
} by_grammar_stats;
void by_grammar_get_stats(by_grammar *g, by_grammar_stats *out);

typedef struct by_grammar_dsml_opts {
    by_str name;   /* only this tool, or empty */
    bool required; /* the text starts inside the block and holds at least one call */
    bool one_call; /* a block holds one call, not more */
    bool forced;   /* the text is a whole block of calls and nothing else */
    by_str text;   /* what a text without calls is: a format of structural tags, JSON. With none of the three: free text with an
                      optional block */
} by_grammar_dsml_opts;
/* DeepSeek V4.1 tool calls as a structural tag. tools: list of {"name", "parameters", "strict"} or of OpenAI tool objects. The
 * parameters of a strict tool are enforced with nothing undeclared, those of others with unsupported keywords left out. Appends the
 * tag's JSON to out. Errors: BY_EINVAL. */
by_status by_grammar_dsml_tag(by_buf *out, by_str tools_json, const by_grammar_dsml_opts *opts, by_err *err);

/* ---- matching ---- */

typedef struct by_matcher_opts {
    const uint32_t
        *trigger_ids;     /* [n_trigger]: the grammar starts behind this sequence; before it all is free. Copied. */
    uint32_t n_trigger;   /* 0 = the grammar starts at once; at most 256 */
    int64_t bound_id;     /* >= 0: once this id has come, the trigger is forced; -1 = none; needs a trigger */
    bool close_by_budget; /* keep enough room to close the text (by_matcher_set_budget) */
    bool must_begin;      /* needs a trigger: unless the text may be empty, no end token comes before it, and with close_by_budget the
                           * trigger is forced as long as the shortest text still fits behind it */
} by_matcher_opts;

/* The matcher holds a reference to the grammar. opts may be NULL. Errors: BY_EINVAL, BY_ENOMEM.
 * Thread rule for everything below: one thread at a time per matcher; matchers of one grammar may run in parallel. */
by_status by_matcher_create(by_matcher **out, by_grammar *g, const by_matcher_opts *opts, by_err *err);
void by_matcher_destroy(by_matcher *m);
/* An independent copy at the same place. */
by_status by_matcher_fork(by_matcher **out, const by_matcher *m, by_err *err);

/* Writes the mask of the present state to words [by_grammar_mask_words]. After the end of text only eos is allowed.
 * Errors: BY_ETIMEOUT (the step took longer than its time limit; a later call goes on from what was made), BY_ELIMIT (the
 * grammar's memory is used up), BY_ENOMEM; the mask is then all zero. */
by_status by_matcher_fill_mask(by_matcher *m, uint32_t *words, by_err *err);
/* Moves by one token. BY_NOT_FOUND when the grammar refuses it (nothing changes). Errors as above. */
by_status by_matcher_accept(by_matcher *m, uint32_t id, by_err *err);
/* Takes back the last n tokens (n <= by_matcher_count). */
by_status by_matcher_rollback(by_matcher *m, size_t n, by_err *err);
/* How many of ids would be accepted one after the other; the matcher does not move. */
by_status by_matcher_validate(by_matcher *m, const uint32_t *ids, size_t n, size_t *n_ok, by_err *err);
/* Masks for speculative decoding: rows[i] (stride words apart) is the mask after i of the drafts, for i = 0..*n_ok,
 * where *n_ok <= n is the number of drafts the grammar takes. The matcher does not move. */
by_status by_matcher_draft_masks(by_matcher *m, const uint32_t *drafts, size_t n, uint32_t *rows, size_t stride,
                                 size_t *n_ok, by_err *err);
/* Number of accepted tokens. */
size_t by_matcher_count(const by_matcher *m);
/* May the text end here? And: did the end token come? */
bool by_matcher_is_final(by_matcher *m);
bool by_matcher_is_ended(const by_matcher *m);
/* Nothing is limited yet: the trigger has not come, need not come and is not forced either. */
bool by_matcher_is_free(const by_matcher *m);
/* Is any token but eos allowed? false = the text is complete or stuck. */
by_status by_matcher_can_go_on(by_matcher *m, bool *out, by_err *err);
/* Appends the bytes that must come next: as long as exactly one byte is possible and the text may not end. At most
 * max. */
by_status by_matcher_forced_bytes(by_matcher *m, by_buf *out, size_t max, by_err *err);
/* Tokens that must come next: the forced bytes as `encode` cuts them, less those at the end that a longer token could
 * replace. encode writes at most max ids and returns their number. */
typedef int64_t by_matcher_encode(void *user, by_str text, uint32_t *ids, size_t max);
by_status by_matcher_forced_tokens(by_matcher *m, by_matcher_encode *encode, void *user, uint32_t *ids, size_t max,
                                   size_t *n, by_err *err);
/* Tokens that may still be produced, the end token included. With close_by_budget masks are limited to tokens behind
 * which the shortest completion still fits. Needs budget > by_matcher_min_tokens. */
void by_matcher_set_budget(by_matcher *m, uint32_t tokens_left);
/* Upper bound of the tokens needed to end the text from here, the end token included. */
by_status by_matcher_min_tokens(by_matcher *m, uint32_t *out, by_err *err);

/* Appends a random member's text (seeded); at most max_bytes long, shorter choices are taken when it grows. */
by_status by_grammar_sample(by_grammar *g, uint64_t seed, size_t max_bytes, by_buf *out, by_err *err);
/* Is text a member? *bad_at (may be NULL) is the offset of the first refused byte, or the length when only the end is
 * missing. Works on bytes: control tokens cannot occur. Each byte has the time limit of a step, the text has none. */
by_status by_grammar_match(by_grammar *g, by_str text, bool *ok, size_t *bad_at, by_err *err);

#endif
