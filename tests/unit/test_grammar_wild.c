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
    int n = snprintf(text, sizeof text, "{\"allOf\":[");
    for (int i = 0; i < 12; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s{\"oneOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                      i ? "," : "", i, i);
    snprintf(text + n, sizeof text - (size_t)n, "]}");
    by_grammar *g;
    by_err err;
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_str_z(text), NULL, NULL, &err), BY_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "alternatives"));
}

/* Exactly one of branches that overlap in more ways than are told apart: some values are left out, none too many is offered. */
static void narrowed_branches_offer_nothing_wrong(void **state) {
    (void)state;
    static const char equal[] = "{\"oneOf\":[{\"type\":\"array\",\"uniqueItems\":true},{\"type\":\"array\",\"minItems\":3},"
                                "{\"type\":\"object\",\"required\":[\"a\"]}]}";
    SCHEMA(equal, LIST("[1,2]", "[]", "{\"a\":1}"), LIST("[1,1]", "[1,2,3]", "{}"));
    static const char negated[] = "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"oneOf\":[{\"uniqueItems\":true},"
                                  "{\"minItems\":3}]}},\"oneOf\":[{\"properties\":{\"v\":{\"oneOf\":[{\"uniqueItems\":true},"
                                  "{\"minItems\":3}]}},\"required\":[\"v\"]},{\"required\":[\"w\"]}]}";
    SCHEMA(negated, LIST("{\"v\":[1,2]}", "{\"w\":1}"), LIST("{\"v\":[1,1]}", "{\"v\":[1,2],\"w\":1}", "{\"v\":[1,2,2],\"w\":1}", "{}"));
}

static void branches_with_a_key_of_their_own_are_told_apart(void **state) {
    (void)state;
    char text[8192];
    int n = snprintf(text, sizeof text, "{\"type\":\"object\",\"oneOf\":[");
    for (int i = 0; i < 8; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"title\":\"%d\"},\"k%d\":{\"type\":\"string\"},"
                      "\"env\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},\"p%d\":{\"type\":\"integer\"},"
                      "\"q%d\":{\"type\":\"boolean\"}},\"required\":[\"name\",\"k%d\"]}",
                      i ? "," : "", i, i, i, i, i);
    snprintf(text + n, sizeof text - (size_t)n, "]}");
    SCHEMA(text, LIST("{\"name\":\"x\",\"k3\":\"y\"}", "{\"name\":\"x\",\"k0\":\"y\",\"env\":[\"a\"],\"p0\":1,\"zz\":null}"),
           LIST("{\"name\":\"x\"}", "{\"name\":\"x\",\"k3\":\"y\",\"k4\":\"y\"}", "{\"name\":\"x\",\"k3\":\"y\",\"env\":1}"));
}

static void places_with_an_id_of_their_own_refer_to_the_document(void **state) {
    (void)state;
    SCHEMA("{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$id\":\"http://x.org/a.json\",\"definitions\":{\"c\":{\"type\":"
           "\"boolean\"}},\"properties\":{\"n\":{\"$id\":\"/properties/n\",\"$ref\":\"#/definitions/c\"}},\"additionalProperties\":false}",
           LIST("{\"n\":true}"), LIST("{\"n\":1}"));
}

/* Two documents of one tag: their references are the same words. */
static void schemas_of_one_tag_keep_apart(void **state) {
    (void)state;
    expect(BY_GRAMMAR_TAG,
           "{\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":\"json_schema\",\"json_schema\":{\"$defs\":{\"a\":{\"type\":"
           "\"boolean\"}},\"$ref\":\"#/$defs/a\"}},{\"type\":\"const_string\",\"value\":\" \"},{\"type\":\"json_schema\",\"json_schema\":"
           "{\"$defs\":{\"a\":{\"type\":\"null\"}},\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a\"}}}]}}",
           LIST("true [null]", "false []"), LIST("true [true]", "null [null]"));
}

/* Masks and what is accepted agree, for each id, in front of and behind the last word of a list of different words. */
static void a_used_up_set_offers_no_comma(void **state) {
    (void)state;
    static const char *const grammars[] = {
        "{\"type\":\"array\",\"items\":{\"enum\":[\"modules\",\"contexts\"]},\"uniqueItems\":true}",
        "{\"type\":\"array\",\"items\":{\"enum\":[1,\"a\",null]},\"uniqueItems\":true}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]$\"},\"uniqueItems\":true}",
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":2},\"uniqueItems\":true}",
        "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"const\":\"x\"},\"uniqueItems\":true}"};
    static const char *const texts[] = {"[\"modules\", \"contexts\"", "[1, \"a\", null", "[\"a\", \"b\"", "[1, 2", "[\"y\",\"x\""};
    uint32_t ids[64], mask[4096 / 8];
    for (unsigned i = 0; i < 5; i++) {
        by_grammar *g;
        by_matcher *m;
        assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_str_z(grammars[i]), NULL, NULL, NULL), BY_OK);
        assert_int_equal(by_matcher_create(&m, g, NULL, NULL), BY_OK);
        int64_t n = by_grammar_vocab_split(vocab, by_str_z(texts[i]), ids, 64);
        for (int64_t k = 0; k <= n; k++) {
            assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
            for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++) {
                bool in = mask[id / 32] >> id % 32 & 1, ok = by_matcher_accept(m, id, NULL) == BY_OK;
                if (ok) assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
                if (in != ok) fail_msg("%s at %d: id %u, mask %d, accepted %d", texts[i], (int)k, id, in, ok);
            }
            if (k < n) assert_int_equal(by_matcher_accept(m, ids[k], NULL), BY_OK);
        }
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
}

#define TAG(...) expect(BY_GRAMMAR_TAG, __VA_ARGS__)
#define GTAG     "{\"type\":\"tag\",\"begin\":\"<g>\",\"content\":{\"type\":\"regex\",\"pattern\":\"[0-9]\"},\"end\":\"</g>\"}"

static void tags_refused(const char *text, const char *why) {
    by_grammar *g;
    by_err err;
    if (by_grammar_compile(&g, vocab, BY_GRAMMAR_TAG, by_str_z(text), NULL, NULL, &err) >= 0) fail_msg("accepted: %s", text);
    if (!strstr(err.msg, why)) fail_msg("%s: %s", text, err.msg);
}

static void tags_have_dispatch_and_other_syntaxes(void **state) {
    (void)state;
    TAG("{\"format\":{\"type\":\"dispatch\",\"rules\":[[\"<g>\",{\"type\":\"regex\",\"pattern\":\"[0-9]\"}]],"
        "\"loop\":false,\"excludes\":[\"no\"]}}",
        LIST("", "a <g>1", "x"), LIST("<g>a", "<g>1 more", "a no b"));
    TAG("{\"format\":{\"type\":\"dispatch\",\"rules\":[[\"<g>\",{\"type\":\"regex\",\"pattern\":\"[0-9]\"}]]}}",
        LIST("<g>1 a <g>2"), LIST("<g>1<g>"));
    TAG("{\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\",\"grammar\":\"start: \\\"x\\\"+\"}}", LIST("x", "xx"), LIST("", "y"));
    TAG("{\"format\":{\"type\":\"json_schema\",\"any_order\":true,\"json_schema\":{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\"],"
        "\"additionalProperties\":false,\"type\":\"object\"}}}",
        LIST("{\"b\":1,\"a\":2}", "{\"a\":2}"), LIST("{\"b\":1}", "{\"a\":1,\"a\":1}"));
    TAG("{\"structures\":[{\"begin\":\"<f>\",\"schema\":\"{\\\"type\\\":\\\"null\\\"}\",\"end\":\"</f>\"}],\"triggers\":[\"<f\"]}",
        LIST("a <f>null</f> b"), LIST("<f>1</f>"));
}

/* What a tag asks for is done or refused. */
static void tags_ignore_nothing(void **state) {
    (void)state;
    tags_refused("{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[" GTAG "]}}", "none of the triggers");
    tags_refused("{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<g\"],\"at_least_one\":1,\"tags\":[" GTAG "]}}", "at_least_one");
    tags_refused("{\"format\":{\"type\":\"tag\",\"begin\":\"a\",\"content\":{\"type\":\"any_text\"}}}", "end");
    tags_refused("{\"format\":{\"type\":\"any_text\",\"max_tokens\":\"9\"}}", "max_tokens");
    tags_refused("{\"format\":{\"type\":\"json_schema\",\"json_schema\":{},\"excludes\":[\"x\"]}}", "excludes");
    tags_refused("{\"format\":{\"type\":\"json_schema\",\"json_schema\":{},\"max_whitespace_cnt\":1}}", "max_whitespace_cnt");
    tags_refused("{\"format\":{\"type\":\"grammar\",\"syntax\":\"peg\",\"grammar\":\"x\"}}", "syntax");
    tags_refused("{\"structures\":[{\"begin\":\"<f>\",\"schema\":{},\"end\":\"\"}],\"triggers\":[\"<g\"]}", "none of the triggers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_exclude_each_other_by_what_stands_beside),
        cmocka_unit_test(too_many_alternatives_are_an_error),
        cmocka_unit_test(narrowed_branches_offer_nothing_wrong),
        cmocka_unit_test(branches_with_a_key_of_their_own_are_told_apart),
        cmocka_unit_test(schemas_of_one_tag_keep_apart),
        cmocka_unit_test(a_used_up_set_offers_no_comma),
        cmocka_unit_test(tags_have_dispatch_and_other_syntaxes),
        cmocka_unit_test(tags_ignore_nothing),
        cmocka_unit_test(places_with_an_id_of_their_own_refer_to_the_document),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
