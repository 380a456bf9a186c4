/* fuzz_grammar_alabel.c - hostile labels of host names; each of letters, digits and hyphens has an ending that makes it valid. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_idna.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[BY_GR_ALABEL_MAX + BY_GR_ENDING_MAX];
    by_str s = by_str_of((const char *)data, size);
    if (size > BY_GR_ALABEL_MAX && by_gr_alabel_valid(s)) abort();
    by_gr_alabel_valid(s);
    if (size > BY_GR_ALABEL_MAX - BY_GR_ENDING_MAX) return 0;
    for (size_t i = 0; i < size; i++)
        if (!memchr("abcdefghijklmnopqrstuvwxyz0123456789-", data[i], 37)) return 0;
    if (size) memcpy(text, data, size);
    unsigned n = by_gr_alabel_ending(s, text + size);
    if (!by_gr_alabel_valid(by_str_of(text, size + n))) abort();
    return 0;
}
