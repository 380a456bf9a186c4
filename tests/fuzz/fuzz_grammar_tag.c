/* fuzz_grammar_tag.c - hostile input to a grammar front end. */
#include "support/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return by_fuzz_grammar(BY_GRAMMAR_TAG, data, size);
}
