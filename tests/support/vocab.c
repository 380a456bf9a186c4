/* vocab.c - see vocab.h. */
#include "support/vocab.h"

#include "support/tok_v4.h"

by_grammar_vocab *by_test_vocab_tiny(uint32_t eos) {
    by_grammar_vocab *v = NULL;
    by_tok *tok = by_test_tok_tiny(NULL);
    by_status status = by_grammar_vocab_from_tok(&v, tok, eos, NULL);
    by_tok_destroy(tok);
    return status < 0 ? NULL : v;
}
