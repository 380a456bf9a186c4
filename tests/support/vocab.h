/* vocab.h - the grammars' vocabulary of the bundled model. For tests only. */
#ifndef BY_TEST_VOCAB_H
#define BY_TEST_VOCAB_H

#include "grammar/grammar.h"

/* Made anew, with the given end token; the caller destroys it. NULL: out of memory. */
by_grammar_vocab *by_test_vocab_tiny(uint32_t eos);

#endif
