/* tok.h - the tokenizer: a byte-level BPE read from a Hugging Face tokenizer.json, text to ids and ids to text.
 *
 * A by_tok is read-only after it is made: any number of threads may use one at the same time. What encoding writes to is a
 * by_tok_scratch; each thread brings its own and keeps it, because it holds a cache of pieces and the working arrays (no
 * allocation once they have grown). Text is valid UTF-8, NUL allowed; ids are int32, -1 means "no such id".
 *
 * Words used here:
 *   vocabulary   the BPE entries of the file (model.vocab)
 *   added token  an entry of added_tokens: found in the text as a whole, never made by merges
 *   special      an added token with "special": true; by_tok_decode can leave it out
 *   piece        what the pre-tokenizer cuts the text into; merges stay inside one piece
 *
 * Only the DeepSeek V3/V4 family is implemented: no normaliser, the three splits of that family, byte-level pieces. A file
 * that asks for anything else can still be loaded for its ids and texts, but every encoding call fails with the reason
 * (by_tok_check_encode asks for it early). Source: tokenizer.json and the behaviour of Hugging Face
 * `tokenizers`; golden: tests/golden/golden_tok.c. */
#ifndef BY_TOK_TOK_H
#define BY_TOK_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

typedef struct by_tok by_tok;
typedef struct by_tok_scratch by_tok_scratch;

/* ---- loading ---- */

/* Gives the added token `id` another content, as V4.1 does with ids that are placeholders in V4's file. */
typedef struct by_tok_override {
    int32_t id;
    const char *content; /* valid UTF-8, not empty; copied */
} by_tok_override;

typedef struct by_tok_opts {
    const by_tok_override *overrides;
    size_t n_overrides;
    bool plain_merges; /* never use the linear-time encoder: for tests, which compare both */
} by_tok_opts;

/* Reads a tokenizer.json; *out is set only on success. opts may be NULL. About 0.1 s for the published file.
 * Errors: BY_EMISSING, BY_EIO (the file), BY_EFORMAT (not JSON, or entries that contradict each other: a merge without
 * its result, an id used twice, a byte without a symbol), BY_EUNSUPPORTED (not a BPE), BY_ELIMIT (BY_LIMIT_VOCAB,
 * BY_LIMIT_TOKEN_BYTES), BY_EINVAL (an override of an id that is not an added token), BY_ENOMEM; each with path and
 * field. */
by_status by_tok_open(by_tok **out, const char *path, const by_tok_opts *opts, by_err *err);

/* The same from the file's text, which is not needed afterwards. */
by_status by_tok_parse(by_tok **out, by_str json, const by_tok_opts *opts, by_err *err);

/* BY_OK when text can be encoded, else BY_EUNSUPPORTED with the field of the file that stands against it. */
by_status by_tok_check_encode(const by_tok *tok, by_err *err);

/* NULL is allowed. */
void by_tok_destroy(by_tok *tok);

/* ---- scratch ---- */

/* For one by_tok, which must outlive it; one thread at a time. Errors: BY_ENOMEM. */
by_status by_tok_scratch_create(by_tok_scratch **out, const by_tok *tok, by_err *err);
void by_tok_scratch_destroy(by_tok_scratch *s); /* NULL is allowed */

/* ---- encoding ---- */

/* A growable list of ids, zero-initialised by the caller; encoding appends. Clear it with n = 0 to keep the memory. */
typedef struct by_tok_ids {
    int32_t *ids;
    size_t n, cap;
} by_tok_ids;

void by_tok_ids_deinit(by_tok_ids *ids);

/* Makes room for n more ids behind ids->n. Errors: BY_ENOMEM. */
by_status by_tok_ids_reserve(by_tok_ids *ids, size_t n, by_err *err);

/* Appends one id. Errors: BY_ENOMEM. */
by_status by_tok_ids_push(by_tok_ids *ids, int32_t id, by_err *err);

typedef enum by_tok_mode {
    BY_TOK_PLAIN, /* added tokens in the text are ordinary text: what users type */
    BY_TOK_FULL   /* every added token found in the text becomes its id (leftmost, then longest) */
} by_tok_mode;

/* Appends the ids of text. scratch may be NULL: then working memory is allocated for this call and there is no cache.
 * Nothing is added at the front or the end. Time O(n log n) for any text. On an error out->n is as before.
 * Errors: BY_EFORMAT (not UTF-8; the message names the offset), BY_EUNSUPPORTED (see above), BY_EINVAL (scratch is for
 * another by_tok), BY_ENOMEM. */
by_status by_tok_encode(const by_tok *tok, by_tok_scratch *scratch, by_str text, by_tok_mode mode, by_tok_ids *out,
                        by_err *err);

/* A part of a prompt, in bytes: [begin, end). */
typedef struct by_tok_range {
    size_t begin, end;
} by_tok_range;

/* Appends the ids of a prompt in which the given ranges, ascending and not overlapping, each spell one added token; every
 * gap is encoded on its own in plain mode, so that nothing a user typed can become a control token and no merge crosses
 * a range. scratch and errors as above, and BY_EINVAL (ranges out of order or cutting a character), BY_EMISSING (a range
 * spells no added token; the message has the spelling). */
by_status by_tok_encode_ranges(const by_tok *tok, by_tok_scratch *scratch, by_str text, const by_tok_range *ranges,
                               size_t n_ranges, by_tok_ids *out, by_err *err);

/* The pre-tokenizer alone: end of the piece that begins at offset `at`, for at < text.len, on a piece's beginning. text
 * must be valid UTF-8. `while (at < text.len) at = by_tok_next_piece(text, at);` walks the pieces of plain mode. */
size_t by_tok_next_piece(by_str text, size_t at);

/* ---- decoding ---- */

/* Appends the text of n ids: bytes of vocabulary entries, contents of added tokens, nothing for ids that do not exist; each
 * maximal invalid part becomes one U+FFFD. skip_special leaves special tokens out. Errors: BY_ENOMEM. */
by_status by_tok_decode(const by_tok *tok, const int32_t *ids, size_t n, bool skip_special, by_buf *out, by_err *err);

/* Decoding id by id. Zero-initialise through by_tok_stream_init, release with deinit; one owner. */
typedef enum by_tok_stream_mode {
    /* The reference's stream: text comes out when it ends in a good character; as long as the pending text ends in U+FFFD
     * (an unfinished sequence, an error, or a genuine U+FFFD) it waits, and what waits at the end is lost. */
    BY_TOK_STREAM_REFERENCE,
    /* Text comes out as soon as it is decided: only an unfinished sequence waits, and becomes one U+FFFD at the end. All
     * pieces joined are exactly what by_tok_decode gives for all ids. */
    BY_TOK_STREAM_LOSSLESS
} by_tok_stream_mode;

typedef struct by_tok_stream {
    const by_tok *tok;
    by_tok_stream_mode mode;
    bool skip_special;
    by_buf pending; /* bytes that wait */
    size_t settled; /* bytes of pending that further input cannot change; the rest is an unfinished sequence */
} by_tok_stream;

void by_tok_stream_init(by_tok_stream *s, const by_tok *tok, by_tok_stream_mode mode, bool skip_special);
void by_tok_stream_deinit(by_tok_stream *s);

/* Feeds one id; appends what became text (perhaps nothing) to out. Errors: BY_ENOMEM. */
by_status by_tok_stream_push(by_tok_stream *s, int32_t id, by_buf *out, by_err *err);

/* End of input: appends the rest as the mode says, and makes the stream ready for another text. Errors: BY_ENOMEM. */
by_status by_tok_stream_finish(by_tok_stream *s, by_buf *out, by_err *err);

/* ---- the tables ---- */

/* One above the highest id of the file; ids below it may be missing. A model's vocab_size may be larger. */
int32_t by_tok_n_ids(const by_tok *tok);

/* Bytes of a vocabulary entry or the content of an added token; ptr is NULL when there is no such id. Any int32 may be
 * asked for. The bytes live as long as tok and need not be valid UTF-8 on their own. */
by_str by_tok_bytes(const by_tok *tok, int32_t id);

/* Is the id in added_tokens; is it marked special there? False for unknown ids. */
bool by_tok_is_added(const by_tok *tok, int32_t id);
bool by_tok_is_special(const by_tok *tok, int32_t id);

typedef struct by_tok_added {
    int32_t id;
    bool special;
    by_str content;
} by_tok_added;

/* Added tokens in the order of their ids, i < by_tok_n_added. */
size_t by_tok_n_added(const by_tok *tok);
by_tok_added by_tok_added_at(const by_tok *tok, size_t i);

/* Id of the added token with exactly this content, or -1. */
int32_t by_tok_find_added(const by_tok *tok, by_str content);

/* Id of the vocabulary entry that encodes exactly these bytes in one piece, or -1. Entries that no text produces are not
 * found. */
int32_t by_tok_find_bytes(const by_tok *tok, by_str bytes);

/* Spelling of an id in the file: the byte symbols of a vocabulary entry, the content of an added token. Appended to out;
 * false when there is no such id. Memory failure is left in out->failed. */
bool by_tok_spelling(const by_tok *tok, int32_t id, by_buf *out);

#endif
