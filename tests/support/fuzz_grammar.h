/* fuzz_grammar.h - one body for the fuzz entries of the grammar front ends. For tests only.
 *
 * The input is compiled with small limits over a vocabulary of single bytes and a few words. What compiles must give a
 * first mask that agrees with accept, and samples that are members. */
#ifndef BY_TEST_FUZZ_GRAMMAR_H
#define BY_TEST_FUZZ_GRAMMAR_H

#include <stdint.h>
#include <stdlib.h>

#include "grammar/grammar.h"

static inline by_grammar_vocab *by_fuzz_vocab(void) {
    static by_grammar_vocab *vocab;
    static char bytes[256];
    by_str t[300];
    uint8_t control[300] = {0};
    static const char *const more[] = {"<eos>",        "\",",      "\":",   "{\"", "}}", " \"", "\xc3\xa9",
                                       "\xe4\xb8\xad", "\xe4\xb8", "\\u00", "12",  "ab", "<c>"};
    if (vocab) return vocab;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i, t[i] = by_str_of(&bytes[i], 1);
    for (int i = 0; i < 13; i++)
        t[256 + i] = by_str_z(more[i]);
    control[256] = control[268] = 1;
    by_grammar_vocab_in in = {.n_tokens = 269, .bytes = t, .control = control, .eos = 256};
    if (by_grammar_vocab_create(&vocab, &in, NULL) < 0) abort();
    return vocab;
}

static inline int by_fuzz_grammar(by_grammar_kind kind, const uint8_t *data, size_t size) {
    by_grammar_vocab *v = by_fuzz_vocab();
    by_grammar *g;
    by_matcher *m;
    by_grammar_error where;
    by_err err;
    uint32_t mask[16];
    by_grammar_opts o = {.states_max = 20000, .memory_max = 32u << 20, .timeout_us = 300000};
    if (size && data[size - 1] & 1) o.lenient = true;
    if (by_grammar_compile(&g, v, kind, by_str_of((const char *)data, size), &o, &where, &err) < 0) return 0;
    if (by_matcher_create(&m, g, NULL, &err) < 0) abort();
    for (int step = 0; step < 6; step++) {
        if (by_matcher_fill_mask(m, mask, &err) < 0) break;
        uint32_t last = UINT32_MAX;
        for (uint32_t id = 0; id < 269; id++) {
            by_status s = by_matcher_accept(m, id, &err);
            if (s < 0) break;
            if ((s == BY_OK) != (mask[id >> 5] >> (id & 31) & 1)) abort();
            if (s == BY_OK && by_matcher_rollback(m, 1, &err) < 0) abort();
            if (s == BY_OK && id != 256) last = id;
        }
        if (last == UINT32_MAX || by_matcher_accept(m, last, &err) != BY_OK) break;
    }
    by_matcher_destroy(m);
    by_buf text = {0};
    bool ok = true;
    if (by_grammar_sample(g, size, 200, &text, &err) >= 0 && kind != BY_GRAMMAR_TAG && kind != BY_GRAMMAR_EBNF &&
        kind != BY_GRAMMAR_LARK && by_grammar_match(g, by_buf_str(&text), &ok, NULL, &err) >= 0 && !ok)
        abort();
    by_buf_deinit(&text);
    by_grammar_release(g);
    return 0;
}

#endif
