/* prop_grammar_host.c - host names with A-labels: what stands there can always be ended, and masks say what is accepted.
 * BY_TEST_TIMEOUT=200 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/grammar.h"
#include "grammar/grammar_idna.h"
#include "support/seed.h"
#include "support/vocab.h"

#define EOS 1u

static by_grammar_vocab *vocab;
static uint32_t n_words;
static by_rng rng;

static int setup(void **state) {
    (void)state;
    vocab = by_test_vocab_tiny(EOS);
    n_words = vocab ? by_grammar_mask_words(vocab) : 0;
    rng = by_test_rng(20261130);
    return vocab ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    by_grammar_vocab_destroy(vocab);
    return 0;
}

static int below(int n) { return (int)by_rng_below(&rng, (uint64_t)n); }

static by_str random_label(char *text, int max) {
    static const char bytes[] = "abcdefghijklmnopqrstuvwxyz0123456789--------";
    int n = below(max + 1), kinds = below(3) ? (int)sizeof bytes - 1 : 38 + below(3);
    for (int i = 0; i < n; i++)
        text[i] = below(4) ? bytes[below(kinds)] : '-';
    return by_str_of(text, (size_t)n);
}

/* Every text has an ending that makes it valid, and its bytes lead there one by one. */
static void every_text_can_be_ended(void **state) {
    (void)state;
    char text[BY_GR_ALABEL_MAX], ending[BY_GR_ENDING_MAX], again[BY_GR_ENDING_MAX];
    for (int i = 0, n = by_test_scaled(20000); i < n; i++) {
        by_str s = random_label(text, BY_GR_ALABEL_MAX - (int)BY_GR_ENDING_MAX);
        unsigned left = by_gr_alabel_ending(s, ending);
        assert_true(left <= BY_GR_ENDING_MAX);
        for (unsigned k = 0; k < left; k++) {
            text[s.len] = ending[k];
            s = by_str_of(text, s.len + 1);
            assert_int_equal(by_gr_alabel_ending(s, again), left - k - 1);
            assert_memory_equal(again, ending + k + 1, left - k - 1);
        }
        if (!by_gr_alabel_valid(s)) fail_msg("xn--%.*s is not valid", BY_STR_ARG(s));
    }
}

static bool allowed(const uint32_t *mask, uint32_t id) { return mask[id >> 5] >> (id & 31) & 1; }

static uint32_t random_allowed(const uint32_t *mask) {
    uint32_t n = by_grammar_vocab_size(vocab), from = (uint32_t)below((int)n);
    for (uint32_t i = 0; i < n; i++)
        if (allowed(mask, (from + i) % n)) return (from + i) % n;
    return UINT32_MAX;
}

/* The labels of a host name inside quotes, judged by what is known without the engine. */
static void check_name(const char *schema, by_str text) {
    by_str s = by_str_of(text.ptr + 1, text.len - 2);
    assert_true(text.len > 2 && s.len <= 253);
    while (s.len) {
        const char *dot = memchr(s.ptr, '.', s.len);
        by_str label = by_str_take(s, dot ? (size_t)(dot - s.ptr) : s.len);
        bool ok = label.len >= 1 && label.len <= 63 && label.ptr[0] != '-' && label.ptr[label.len - 1] != '-';
        if (by_str_starts(label, BY_STR("xn--"))) ok = by_gr_alabel_valid(by_str_skip(label, 4));
        else if (label.len > 3 && label.ptr[2] == '-' && label.ptr[3] == '-') ok = false;
        if (!ok || (dot && label.len + 1 == s.len)) fail_msg("%s took %.*s", schema, BY_STR_ARG(text));
        s = by_str_skip(s, label.len + (dot != NULL));
    }
}

static by_matcher *start(by_grammar *g, by_str text, bool close) {
    by_matcher *m;
    by_matcher_opts o = {.bound_id = -1, .close_by_budget = close};
    uint32_t ids[256];
    assert_int_equal(by_matcher_create(&m, g, &o, NULL), BY_OK);
    int64_t n = by_grammar_vocab_split(vocab, text, ids, 256);
    for (int64_t i = 0; i < n; i++)
        if (by_matcher_accept(m, ids[i], NULL) != BY_OK) fail_msg("refused in %.*s", BY_STR_ARG(text));
    return m;
}

static void check_mask(by_matcher *m, const uint32_t *mask, by_str text) {
    for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++) {
        bool took = by_matcher_accept(m, id, NULL) == BY_OK;
        if (took) assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
        if (took != allowed(mask, id))
            fail_msg("behind %.*s: token %.*s: mask %d, accept %d", BY_STR_ARG(text), BY_STR_ARG(by_grammar_vocab_bytes(vocab, id)),
                     allowed(mask, id), took);
    }
}

static const char *const schemas[] = {
    "{\"type\":\"string\",\"format\":\"hostname\"}", "{\"type\":\"string\",\"format\":\"hostname\",\"maxLength\":40}",
    "{\"type\":\"string\",\"anyOf\":[{\"format\":\"hostname\"},{\"format\":\"hostname\",\"maxLength\":30}]}"};

/* Random walks that begin inside an A-label: masks are what is accepted, nobody gets stuck, and what ends is a host name. */
static void masks_in_labels_are_what_is_accepted(void **state) {
    (void)state;
    uint32_t *mask = calloc(n_words, 4);
    by_buf text = {0};
    char label[BY_GR_ALABEL_MAX];
    for (int i = 0, n = by_test_scaled(60); i < n; i++) {
        const char *schema = schemas[i % 3];
        by_grammar *g;
        assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_str_z(schema), NULL, NULL, NULL), BY_OK);
        by_buf_clear(&text);
        by_buf_printf(&text, "\"%sxn--", i % 2 ? "a.b." : "");
        by_buf_push_str(&text, random_label(label, i % 3 ? 10 : below(2) ? 51 : 8));
        by_matcher *m = start(g, by_buf_str(&text), false);
        for (int step = 0; step < 80 && !by_matcher_is_ended(m); step++) {
            assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
            if (step % 5 == 0) check_mask(m, mask, by_buf_str(&text));
            uint32_t id = random_allowed(mask);
            if (id == UINT32_MAX) fail_msg("stuck behind %.*s", BY_STR_ARG(by_buf_str(&text)));
            assert_int_equal(by_matcher_accept(m, id, NULL), BY_OK);
            if (id != EOS) by_buf_push_str(&text, by_grammar_vocab_bytes(vocab, id));
        }
        if (by_matcher_is_ended(m)) check_name(schema, by_buf_str(&text));
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
    by_buf_deinit(&text);
    free(mask);
}

/* With little room left every text is closed in time. */
static void budgets_close_labels(void **state) {
    (void)state;
    uint32_t *mask = calloc(n_words, 4), need;
    by_buf text = {0};
    char label[BY_GR_ALABEL_MAX];
    for (int i = 0, n = by_test_scaled(150); i < n; i++) {
        const char *schema = schemas[i % 3];
        by_grammar *g;
        assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_str_z(schema), NULL, NULL, NULL), BY_OK);
        by_buf_clear(&text);
        by_buf_printf(&text, "\"xn--");
        by_buf_push_str(&text, random_label(label, i % 3 ? 10 : 51));
        by_matcher *m = start(g, by_buf_str(&text), true);
        by_err err;
        if (by_matcher_min_tokens(m, &need, &err) < 0) fail_msg("%s: %s behind %.*s", schema, err.msg, BY_STR_ARG(by_buf_str(&text)));
        uint32_t budget = need + 1 + (uint32_t)below(12);
        by_matcher_set_budget(m, budget);
        for (uint32_t k = 0; k < budget && !by_matcher_is_ended(m); k++) {
            assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
            uint32_t id = random_allowed(mask);
            if (id == UINT32_MAX) fail_msg("stuck behind %.*s", BY_STR_ARG(by_buf_str(&text)));
            assert_int_equal(by_matcher_accept(m, id, NULL), BY_OK);
            if (id != EOS) by_buf_push_str(&text, by_grammar_vocab_bytes(vocab, id));
        }
        if (!by_matcher_is_ended(m)) fail_msg("not closed after %u tokens: %.*s", budget, BY_STR_ARG(by_buf_str(&text)));
        check_name(schema, by_buf_str(&text));
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
    by_buf_deinit(&text);
    free(mask);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_text_can_be_ended), cmocka_unit_test(masks_in_labels_are_what_is_accepted),
                                       cmocka_unit_test(budgets_close_labels)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
