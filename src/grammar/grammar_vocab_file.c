/* grammar_vocab_file.c - a vocabulary out of a tokenizer. Added tokens are control tokens, whether or not the file
 * calls them special: their text inside a document is ordinary bytes, never the token. */
#include "base/alloc.h"
#include "grammar/grammar.h"

by_status by_grammar_vocab_from_tok(by_grammar_vocab **out, const by_tok *tok, uint32_t eos, by_err *err) {
    int32_t n = by_tok_n_ids(tok);
    *out = NULL;
    by_str *bytes = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size((size_t)(n > 0 ? n : 1), sizeof *bytes));
    uint8_t *control = by_alloc_zero(BY_MEM_GRAMMAR, (size_t)(n > 0 ? n : 1));
    by_status status = BY_OK;
    if (!bytes || !control) status = BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
    for (int32_t id = 0; status >= 0 && id < n; id++) {
        bytes[id] = by_tok_bytes(tok, id);
        control[id] = by_tok_is_added(tok, id);
    }
    by_grammar_vocab_in in = {.n_tokens = (uint32_t)(n > 0 ? n : 0), .bytes = bytes, .control = control, .eos = eos};
    if (status >= 0) status = by_grammar_vocab_create(out, &in, err);
    by_free(bytes);
    by_free(control);
    return status;
}

by_status by_grammar_vocab_open(by_grammar_vocab **out, const char *path, uint32_t eos, by_err *err) {
    by_tok *tok = NULL;
    *out = NULL;
    by_status status = by_tok_open(&tok, path, NULL, err);
    if (status >= 0) status = by_grammar_vocab_from_tok(out, tok, eos, err);
    by_tok_destroy(tok);
    return status;
}
