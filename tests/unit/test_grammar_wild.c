/* test_grammar_wild.c - schemas and tags in the shapes that people write them, on the tokenizer of the tiny model.
 * BY_TEST_TIMEOUT=120 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/grammar.h"
#include "support/vocab.h"

static by_grammar_vocab *vocab;

static int setup(void **state) {
    (void)state;
    vocab = by_test_vocab_tiny(1);
    return vocab ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    by_grammar_vocab_destroy(vocab);
    return 0;
}

static void expect(by_grammar_kind kind, const char *grammar, const char *const *yes, const char *const *no) {
    by_grammar *g;
    by_err err;
    bool ok;
    if (by_grammar_compile(&g, vocab, kind, by_str_z(grammar), NULL, NULL, &err) < 0)
        fail_msg("%s: %s", grammar, err.msg);
    for (; *yes; yes++)
        if (by_grammar_match(g, by_str_z(*yes), &ok, NULL, NULL) != BY_OK || !ok) fail_msg("%s must match %s", grammar, *yes);
    for (; *no; no++)
        if (by_grammar_match(g, by_str_z(*no), &ok, NULL, NULL) != BY_OK || ok) fail_msg("%s must not match %s", grammar, *no);
    by_grammar_release(g);
}
#define LIST(...)                                                                                                      \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
#define SCHEMA(...) expect(BY_GRAMMAR_JSON_SCHEMA, __VA_ARGS__)

/* Ten branches, in each the key that tells them apart is optional; only beside the keywords around them is it required. */
static void branches_exclude_each_other_by_what_stands_beside(void **state) {
    (void)state;
    char text[4096];
    for (int first = 0; first < 2; first++) { /* the keywords stand in front of the branches, or behind them */
        int n = snprintf(text, sizeof text, "{%s\"oneOf\":[", first ? "\"required\":[\"t\"],\"type\":\"object\"," : "");
        for (int i = 0; i < 10; i++)
            n += snprintf(text + n, sizeof text - (size_t)n,
                          "%s{\"required\":[\"k%d\"],\"properties\":{\"t\":{\"enum\":[\"v%d\"]},\"k%d\":{\"type\":\"integer\"},"
                          "\"x\":{\"type\":\"string\"},\"y\":{\"type\":\"array\"},\"z\":{\"type\":\"boolean\"}}}",
                          i ? "," : "", i, i, i);
        snprintf(text + n, sizeof text - (size_t)n, "]%s}", first ? "" : ",\"type\":\"object\",\"required\":[\"t\"]");
        SCHEMA(text, LIST("{\"t\":\"v3\",\"k3\":1}", "{\"t\":\"v9\",\"k9\":0,\"z\":true}"),
               LIST("{\"k3\":1}", "{\"t\":\"v3\",\"k4\":1}", "{\"t\":\"v3\"}", "{\"t\":\"v3\",\"k3\":\"\"}", "[]"));
    }
}

static void too_many_alternatives_are_an_error(void **state) {
    (void)state;
    char text[8192];
    int n = snprintf(text, sizeof text, "{\"oneOf\":[");
    for (int i = 0; i < 12; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"properties\":{\"a%d\":{\"type\":\"integer\"},\"b%d\":{\"type\":\"string\"},\"c%d\":{\"type\":\"null\"},"
                      "\"d%d\":{\"type\":\"boolean\"}},\"required\":[\"e%d\"]}",
                      i ? "," : "", i, i, i, i, i);
    snprintf(text + n, sizeof text - (size_t)n, "]}");
    by_grammar *g;
    by_err err;
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_str_z(text), NULL, NULL, &err), BY_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "alternatives"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_exclude_each_other_by_what_stands_beside),
        cmocka_unit_test(too_many_alternatives_are_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
