/* test_grammar.c - matchers, errors, limits and tool grammars, on the tokenizer of the tiny model.
 * BY_TEST_TIMEOUT=300 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/grammar_options.h"
#include "grammar/grammar_internal.h"
#include "json/json.h"
#include "support/counting.h"
#include "support/seed.h"
#include "support/vocab.h"

#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"
#define EOS 1u

static by_grammar_vocab *vocab;
static uint32_t words;

static int setup(void **state) {
    (void)state;
    vocab = by_test_vocab_tiny(EOS);
    words = vocab ? by_grammar_mask_words(vocab) : 0;
    return vocab ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    by_grammar_vocab_destroy(vocab);
    return 0;
}

static by_grammar *make(by_grammar_kind kind, const char *text) {
    by_grammar *g;
    by_err err;
    if (by_grammar_compile(&g, vocab, kind, by_str_z(text), NULL, NULL, &err) < 0) fail_msg("%s", err.msg);
    return g;
}

static by_matcher *start(by_grammar *g) {
    by_matcher *m;
    assert_int_equal(by_matcher_create(&m, g, NULL, NULL), BY_OK);
    return m;
}

static void feed(by_matcher *m, const char *text) {
    uint32_t ids[4096];
    int64_t n = by_grammar_vocab_split(vocab, by_str_z(text), ids, 4096);
    assert_true(n >= 0);
    for (int64_t i = 0; i < n; i++)
        if (by_matcher_accept(m, ids[i], NULL) != BY_OK) fail_msg("refused inside: %s", text);
}

static bool matches(by_grammar *g, const char *text) {
    bool ok;
    assert_int_equal(by_grammar_match(g, by_str_z(text), &ok, NULL, NULL), BY_OK);
    return ok;
}

static void expect(by_grammar_kind kind, const char *grammar, const char *const *yes, const char *const *no) {
    by_grammar *g = make(kind, grammar);
    for (; *yes; yes++)
        if (!matches(g, *yes)) fail_msg("%s must match %s", grammar, *yes);
    for (; *no; no++)
        if (matches(g, *no)) fail_msg("%s must not match %s", grammar, *no);
    by_grammar_release(g);
}
#define LIST(...)                                                                                                      \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }

#define SCHEMA(...) expect(BY_GRAMMAR_JSON_SCHEMA, __VA_ARGS__)

/* ---- languages that the stored vectors do not hold ---- */

static void regular_expressions_beyond_the_vectors(void **state) {
    (void)state;
    expect(BY_GRAMMAR_REGEX,
           "(?i)stra\xc3\x9f"
           "e|\xc3\x84pfel",
           LIST("STRa\xc3\x9f"
                "E",
                "\xc3\xa4pfel"),
           LIST("x"));
    expect(BY_GRAMMAR_REGEX, "(?=.*[0-9])(?=.*[a-z])[a-z0-9]{3,5}", LIST("a1b", "00z"),
           LIST("abc", "123", "a1", "a1b2c3"));
    expect(BY_GRAMMAR_REGEX, "\\bfoo\\b( bar)?", LIST("foo", "foo bar"), LIST("foobar"));
    expect(BY_GRAMMAR_REGEX, "a(^b|c)$", LIST("ac"), LIST("ab"));
    expect(BY_GRAMMAR_REGEX, "\\p{Lu}\\p{Han}+", LIST("A\xe4\xb8\xad"), LIST("a\xe4\xb8\xad", "A"));
    expect(BY_GRAMMAR_REGEX, "[^]a]b", LIST("xb"), LIST("ab", "]b"));
    expect(BY_GRAMMAR_REGEX, "x*^a|[.]?(?:^|y)b", LIST("a", "b", ".yb", "yb"), LIST("xa", ".b"));
    expect(BY_GRAMMAR_REGEX, "foo(?: bar)?\\b.*", LIST("foo", "foo bar", "foo baz", "foo, bar"), LIST("foob"));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"x*^a\"}", LIST("\"ab\""), LIST("\"xa\"", "\"ba\""));
    expect(BY_GRAMMAR_REGEX, "(?<=^|,)x(?<!y)|[a-z ]+(?<! no)", LIST("x", "a b"), LIST(",x", "say no"));
    expect(BY_GRAMMAR_REGEX, "(?m)(^- \\w+$\n?)+", LIST("- a\n- bc", "- a\n"), LIST("- a- b", "a"));
    expect(BY_GRAMMAR_REGEX, "(?:\\bno?\\b ?)*", LIST("no n no", ""), LIST("nono", "no  no"));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"(?<![a-z])cat(?![a-z])\"}", LIST("\"a cat!\"", "\"cat\""), LIST("\"concat\"", "\"cats\""));
    SCHEMA("{\"type\":\"string\",\"not\":{\"pattern\":\"(?<=a)b\"}}", LIST("\"ba\""), LIST("\"ab\""));
    expect(BY_GRAMMAR_REGEX, "x{0,100000}", LIST("", "xxx"), LIST("y"));
}

static void blanks_stand_where_the_option_says(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool ok;
    } texts[] = {{"{\"a\": [1, 2], \"b\": {\"x\": [3]}}", true}, {"{\"a\": [], \"b\": {\"x\": [3]}}", true},
                 {"{\"a\":[1, 2], \"b\": {\"x\": [3]}}", false}, {"{\"a\": [1,2], \"b\": {\"x\": [3]}}", false},
                 {"{\"a\": [1, 2],  \"b\": {\"x\": [3]}}", false}, {"{\"a\": [1 , 2], \"b\": {\"x\": [3]}}", false},
                 {"{ \"a\": [1, 2], \"b\": {\"x\": [3]}}", false}, {"{\"a\" : [1, 2], \"b\": {\"x\": [3]}}", false}};
    by_arena a;
    by_grammar_opts o = {0};
    by_grammar *g;
    by_arena_init(&a, BY_MEM_MISC);
    assert_int_equal(by_grammar_options_parse(&o, &a, BY_STR("{\"whitespace\":\"spaced\"}"), NULL), BY_OK);
    by_str schema = BY_STR("{\"properties\":{\"a\":{\"items\":{\"type\":\"integer\"},\"type\":\"array\"},\"b\":{\"const\":{\"x\":[3]}}},"
                           "\"required\":[\"a\",\"b\"],\"type\":\"object\",\"additionalProperties\":false}");
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, schema, &o, NULL, NULL), BY_OK);
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (matches(g, texts[i].text) != texts[i].ok) fail_msg("%s", texts[i].text);
    by_grammar_release(g);
    by_arena_deinit(&a);
}

static void left_recursion_of_every_kind(void **state) {
    (void)state;
    expect(BY_GRAMMAR_EBNF, "root ::= a\na ::= b \"x\" | \"1\"\nb ::= a \"y\" | c\nc ::= b \"z\" | \"2\"",
           LIST("1", "1yx", "2x", "2zzx", "1yzxyx"), LIST("", "2", "1x", "1y", "2zz"));
    expect(BY_GRAMMAR_EBNF, "root ::= root root | \"a\" | \"\"", LIST("", "a", "aaaa"), LIST("b"));
    expect(BY_GRAMMAR_EBNF, "root ::= (root \"+\")* \"n\"", LIST("n", "n+n", "n+n+n"), LIST("", "n+", "+n", "nn"));
    expect(BY_GRAMMAR_EBNF, "root ::= (root | \"a\")+ | (e){2,} \"b\"\ne ::= (e \"x\"?)+ | \"c\"", LIST("a", "aa", "ccb", "cxccxb"),
           LIST("", "cb", "b"));
    expect(BY_GRAMMAR_EBNF, "root ::= x root | root \"b\" | \"c\"\nx ::= \"\" | \"a\" x", LIST("c", "acb", "aacbb"),
           LIST("", "ab", "b"));
}

static void tokens_named_by_id(void **state) {
    (void)state;
    uint32_t mask[4096 / 8];
    by_grammar *g = make(BY_GRAMMAR_EBNF, "root ::= \"a\" <[4]> | Token(5, 6) \"b\"");
    by_matcher *m = start(g);
    assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
    assert_true(mask[0] >> 5 & 1 && mask[0] >> 6 & 1 && !(mask[0] >> 4 & 1));
    assert_int_equal(by_matcher_accept(m, 5, NULL), BY_OK);
    assert_int_equal(by_matcher_accept(m, 4, NULL), BY_NOT_FOUND);
    feed(m, "b");
    assert_true(by_matcher_is_final(m));
    by_matcher_destroy(m);
    by_grammar_release(g);
}

/* An enum behind a reference, an item list that gets used up, members that must differ. */
static void schemas_beyond_the_vectors(void **state) {
    (void)state;
    expect(BY_GRAMMAR_JSON_SCHEMA,
           "{\"$ref\":\"#/$defs/"
           "Row\",\"$defs\":{\"Row\":{\"type\":\"object\",\"required\":[\"c\xc3\xb4t\xc3\xa9\"],\"properties\":"
           "{\"c\xc3\xb4t\xc3\xa9\":{\"$ref\":\"#/$defs/"
           "E\"}},\"additionalProperties\":false},\"E\":{\"enum\":[\"\xd0\xbb\",null]}}}",
           LIST("{\"c\xc3\xb4t\xc3\xa9\": null}", "{\"c\xc3\xb4t\xc3\xa9\":\"\xd0\xbb\"}"),
           LIST("{}", "{\"c\xc3\xb4t\xc3\xa9\":\"x\"}"));
    const char *unique = "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"b\",1]}}";
    expect(BY_GRAMMAR_JSON_SCHEMA, unique, LIST("[\"a\",1,\"b\"]", "[]"), LIST("[\"a\",\"a\"]", "[\"a\",\"b\",1,"));
    expect(BY_GRAMMAR_JSON_SCHEMA, "{\"uniqueItems\":true}", LIST("[{\"a\":1},{\"a\":2}]", "[[1],[2],1,\"1\"]"),
           LIST("[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1.0}]", "[1,1e0]", "[[1],[1]]", "[\"a\",\"\\u0061\"]"));
    expect(BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"not\":{\"minimum\":5}}", LIST("4.9", "-3"),
           LIST("5", "5.0", "6", "1e9"));
    expect(BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"integer\"}}}",
           LIST("{\"a\":\"x\"}", "{\"a\":1,\"b\":null}"), LIST("{}", "{\"a\":1}"));
}

static void schemas_that_say_nothing_are_whole(void **state) {
    (void)state;
    SCHEMA("{\"propertyNames\":true}", LIST("{\"foo\":1}", "{}", "[1]"), LIST("{1"));
    SCHEMA("{\"not\":{\"not\":{}},\"minProperties\":1}", LIST("{\"a\":[{}]}"), LIST("{}"));
    SCHEMA("{\"allOf\":[{},{\"items\":{}}]}", LIST("[[],1]", "{\"a\":{}}"), LIST("["));
}

/* What one member can do for two conditions, and where a keyword speaks of objects alone. */
static void conditions_on_members_add_up(void **state) {
    (void)state;
    SCHEMA("{\"not\":{\"anyOf\":[true,{\"properties\":{\"foo\":true}}],\"unevaluatedProperties\":false}}",
           LIST("{\"bar\":1}", "{\"foo\":1,\"bar\":2}"), LIST("{\"foo\":1}", "{}", "1"));
    SCHEMA("{\"not\":{\"anyOf\":[{\"additionalProperties\":{\"type\":\"integer\"}},"
           "{\"additionalProperties\":{\"type\":\"string\"}}]}}",
           LIST("{\"a\":null}", "{\"a\":1,\"b\":\"x\"}"), LIST("{}", "{\"a\":1}", "{\"a\":\"x\"}"));
    SCHEMA("{\"dependentSchemas\":{\"x\":{\"items\":{\"type\":\"string\"}}},\"unevaluatedItems\":false}", LIST("[]", "{\"x\":1}"),
           LIST("[\"b\"]"));
}

/* Keys of which only a condition speaks have no place in the order. */
static void keys_of_conditions_stand_anywhere(void **state) {
    (void)state;
    SCHEMA("{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}",
           LIST("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", "{\"z\":3,\"a\":1,\"y\":4,\"b\":2}", "{\"b\":1}"),
           LIST("{\"a\":1}", "{\"a\":1,\"a\":2,\"b\":1}"));
    SCHEMA("{\"if\":{\"properties\":{\"kind\":{\"const\":\"n\"}},\"required\":[\"kind\"]},"
           "\"then\":{\"properties\":{\"v\":{\"type\":\"integer\"}},\"required\":[\"v\"]},\"type\":\"object\"}",
           LIST("{\"kind\":\"n\",\"v\":1}", "{\"v\":1,\"kind\":\"n\"}", "{\"kind\":\"m\",\"v\":\"x\"}"),
           LIST("{\"kind\":\"n\",\"v\":\"x\"}", "{\"v\":\"x\",\"kind\":\"n\"}", "{\"kind\":\"n\"}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\",\"b\"]}", LIST("{\"a\":1,\"b\":2}"),
           LIST("{\"b\":1,\"a\":2}"));
    SCHEMA("{\"properties\":{\"f\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/b\","
           "\"$defs\":{\"b\":{\"properties\":{\"g\":{\"type\":\"string\"}}}},\"unevaluatedProperties\":false}",
           LIST("{\"g\":\"1\",\"f\":\"2\"}"), LIST("{\"g\":1}", "{\"g\":\"1\",\"f\":\"2\",\"h\":3}"));
}

static void dynamic_references_follow_the_way_there(void **state) {
    (void)state;
    SCHEMA("{\"if\":{\"properties\":{\"k\":{\"const\":\"n\"}},\"required\":[\"k\"]},\"then\":{\"$ref\":\"num\"},"
           "\"else\":{\"$ref\":\"str\"},\"$id\":\"http://a.b/main\",\"$defs\":{"
           "\"any\":{\"$id\":\"any\",\"properties\":{\"l\":{\"items\":{\"$dynamicRef\":\"#t\"}}},"
           "\"$defs\":{\"d\":{\"$dynamicAnchor\":\"t\"}}},"
           "\"num\":{\"$id\":\"num\",\"$defs\":{\"t\":{\"$dynamicAnchor\":\"t\",\"type\":\"number\"}},\"$ref\":\"any\"},"
           "\"str\":{\"$id\":\"str\",\"$defs\":{\"t\":{\"$dynamicAnchor\":\"t\",\"type\":\"string\"}},\"$ref\":\"any\"}}}",
           LIST("{\"k\":\"n\",\"l\":[1.1]}", "{\"k\":\"s\",\"l\":[\"x\"]}"),
           LIST("{\"k\":\"n\",\"l\":[\"x\"]}", "{\"k\":\"s\",\"l\":[1]}"));
}

/* The ways through resources that refer to each other are many; what their references mean is one of ten things. */
static void dynamic_references_of_many_resources(void **state) {
    (void)state;
    enum { N = 10 };
    by_buf b = {0};
    by_buf_push_z(&b, "{\"$id\":\"http://a.b/main\",\"$ref\":\"r0\",\"$defs\":{");
    for (int i = 0; i < N; i++) {
        by_buf_printf(&b, "%s\"r%d\":{\"$id\":\"r%d\",\"$dynamicAnchor\":\"t\",\"type\":\"object\",\"additionalProperties\":false,"
                      "\"properties\":{\"x\":{\"$dynamicRef\":\"#t\"},\"o%d\":{}", i ? "," : "", i, i, i);
        for (int k = 0; k < N; k++)
            if (k != i) by_buf_printf(&b, ",\"p%d\":{\"$ref\":\"r%d\"}", k, k);
        by_buf_push_z(&b, "}}");
    }
    by_buf_push_z(&b, "}}");
    SCHEMA(by_buf_z(&b), LIST("{\"p1\":{\"p2\":{\"x\":{\"o0\":1}}}}"),
           LIST("{\"p1\":{\"p2\":{\"x\":{\"o2\":1}}}}", "{\"p1\":{\"x\":{\"o1\":1}}}"));
    by_buf_deinit(&b);
}

static void multiples_of_large_and_small_numbers(void **state) {
    (void)state;
    SCHEMA("{\"type\":\"integer\",\"multipleOf\":0.123456789}", LIST("0", "-123456789", "246913578"),
           LIST("1", "123456788", "123456789.0"));
    SCHEMA("{\"type\":\"integer\",\"multipleOf\":1.5}", LIST("0", "-3", "6"), LIST("1", "4", "1.5"));
    SCHEMA("{\"not\":{\"type\":\"integer\",\"multipleOf\":1.5}}", LIST("1", "4.5"), LIST("3", "3.0", "-6"));
}

static void formats_beyond_the_vectors(void **state) {
    (void)state;
    SCHEMA("{\"format\":\"idn-email\"}", LIST("\"a\xc3\xa9@a.b\"", "\"-@a.b\"", "\"\xe5\xae\x9e@\xe5\xae\x9e\""),
           LIST("\"a\"", "\"@\xc3\xa9\""));
    SCHEMA("{\"format\":\"hostname\"}", LIST("\"xn--zca\"", "\"a.xn--4dbc5h.b-c\"", "\"XN-a\""),
           LIST("\"xn--a\"", "\"xn--zca.\"", "\"XN--zca\"", "\"xn--zca-\"", "\"ab--c\"", "\"xn--\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"hostname\",\"maxLength\":8}", LIST("\"xn--zca\"", "\"a.b\""), LIST("\"a.xn--zca\""));
    SCHEMA("{\"type\":\"string\",\"not\":{\"format\":\"hostname\"}}", LIST("\"a-\"", "\"ab--c\""), LIST("\"xn--zca\"", "\"a\""));
    SCHEMA("{\"anyOf\":[{\"format\":\"hostname\"},{\"pattern\":\"^[a-z-]*!$\"}],\"type\":\"string\"}", LIST("\"xn--zca\"", "\"xn--zca!\""),
           LIST("\"xn--a\""));
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"format\":\"hostname\"}}", LIST("{\"b.xn--zca.de\":1}"), LIST("{\"xn--a\":1}"));
    SCHEMA("{\"items\":{\"format\":\"hostname\"},\"type\":\"array\",\"uniqueItems\":true}", LIST("[\"xn--zca\",1,\"a\"]"),
           LIST("[\"xn--zca\",\"xn--zca\"]"));
    SCHEMA("{\"format\":\"regex\"}",
           LIST("\"a(b|c)*[^x\\\\d-]{2,}?$\"", "\"(?<y>a)\\\\k<y>\"", "\"\"", "\"\\\\p{Letter}(?!b)\"", "\"[[(]|]\""),
           LIST("\"^(abc]\"", "\"\\\\a\"", "\"a**\"", "\"[\"", "\")\""));
    SCHEMA("{\"format\":\"regex\",\"maxLength\":3}", LIST("\"(a)\""), LIST("\"((a", "\"(ab"));
    SCHEMA("{\"format\":\"regex\",\"maxLength\":40}", LIST("\"((?:a(?=b(?<n>c)*)|d)?)\""), LIST("\"(((((a", "\"(?=a)*", "\"(a))"));
    SCHEMA("{\"type\":\"string\",\"format\":\"regex\",\"not\":{\"pattern\":\"x\"}}", LIST("\"(a|b)+\""), LIST("\"(x)\"", "\"(a\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"regex\",\"pattern\":\"^x\"}", LIST("\"x(a)\""), LIST("\"(x)\"", "\"x)"));
    SCHEMA("{\"type\":\"string\",\"not\":{\"format\":\"regex\"}}", LIST("\"(a\"", "\"a**\""), LIST("\"(a)\""));
}

/* For verdicts a schema without values compiles, with a first mask of nothing; else it is an error. */
/* The time limit is a step's: what earlier texts took, or the bytes before, is nobody's fault. */
static void whole_texts_have_no_time_limit(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_JSON_SCHEMA, "{\"format\":\"regex\"}");
    assert_true(matches(g, "\"(a(b)c)[x]\"")); /* its work starts the clock */
    for (int64_t from = by_thread_ns(); by_thread_ns() - from < BY_GR_STEP_NS + 10000000;) {
    }
    assert_true(matches(g, "\"(?<y>a)\\\\k<y>(?=[^x\\\\d-]{2,}?)\\\\p{Letter}(?!b)$|(((a))|b){3}\""));
    by_buf b = {0};
    for (uint64_t seed = 1; seed < 4; seed++) {
        assert_int_equal(by_grammar_sample(g, seed, 100, &b, NULL), BY_OK);
        b.len = 0;
    }
    by_buf_deinit(&b);
    by_grammar_release(g);
}

static void a_schema_without_values_has_an_empty_mask(void **state) {
    (void)state;
    by_grammar_opts opts = {.empty_ok = true};
    by_grammar *g;
    bool ok;
    by_err err;
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, BY_STR("{\"allOf\":[false]}"), NULL, NULL, &err),
                     BY_EINVAL);
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, BY_STR("{\"allOf\":[false]}"), &opts, NULL, &err),
                     BY_OK);
    assert_int_equal(by_grammar_match(g, BY_STR("1"), &ok, NULL, NULL), BY_OK);
    assert_false(ok);
    uint32_t mask[4096 / 8];
    by_matcher *m = start(g);
    assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
    for (uint32_t i = 0; i < words; i++)
        assert_int_equal(mask[i], 0);
    by_matcher_destroy(m);
    by_grammar_release(g);
}

static void a_used_up_list_offers_no_comma(void **state) {
    (void)state;
    by_grammar *g =
        make(BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"boolean\"}}");
    bool ok;
    size_t at;
    assert_int_equal(by_grammar_match(g, BY_STR("[true,false,"), &ok, &at, NULL), BY_OK);
    assert_int_equal(at, 11);
    assert_int_equal(by_grammar_match(g, BY_STR("[true,t"), &ok, &at, NULL), BY_OK);
    assert_int_equal(at, 6);
    by_grammar_release(g);
}

/* ---- matchers ---- */

static const char person[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":30},"
                             "\"age\":{\"type\":\"integer\"}},"
                             "\"required\":[\"name\",\"age\"],\"additionalProperties\":false}";

static void rollback_and_fork_keep_masks(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_JSON_SCHEMA, person);
    by_matcher *m = start(g), *f;
    uint32_t *a = calloc(words, 4), *b = calloc(words, 4);
    feed(m, "{\"name\": \"Ann");
    size_t n = by_matcher_count(m);
    assert_int_equal(by_matcher_fill_mask(m, a, NULL), BY_OK);
    assert_int_equal(by_matcher_fork(&f, m, NULL), BY_OK);
    feed(m, "e\", \"age\": 41}");
    assert_int_equal(by_matcher_accept(m, EOS, NULL), BY_OK);
    assert_true(by_matcher_is_ended(m));
    assert_int_equal(by_matcher_accept(m, 5, NULL), BY_NOT_FOUND);
    assert_int_equal(by_matcher_rollback(m, by_matcher_count(m) - n, NULL), BY_OK);
    assert_false(by_matcher_is_ended(m));
    assert_int_equal(by_matcher_fill_mask(m, b, NULL), BY_OK);
    assert_memory_equal(a, b, words * 4);
    assert_int_equal(by_matcher_fill_mask(f, b, NULL), BY_OK);
    assert_memory_equal(a, b, words * 4);
    assert_int_equal(by_matcher_rollback(m, n + 1, NULL), BY_EINVAL);
    by_matcher_destroy(m);
    feed(f, "\",\"age\":1}");
    assert_true(by_matcher_is_final(f));
    by_matcher_destroy(f);
    by_grammar_release(g);
    free(a);
    free(b);
}

static void drafts_get_masks_up_to_the_first_refusal(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_REGEX, "abcd|abX");
    by_matcher *m = start(g);
    uint32_t ids[4], *rows = calloc(5 * words, 4), *one = calloc(words, 4);
    size_t n_ok;
    for (int i = 0; i < 4; i++)
        by_grammar_vocab_split(vocab, by_str_of(&"abQd"[i], 1), &ids[i], 1);
    assert_int_equal(by_matcher_draft_masks(m, ids, 4, rows, words, &n_ok, NULL), BY_OK);
    assert_int_equal(n_ok, 2);
    assert_int_equal(by_matcher_count(m), 0);
    for (size_t i = 0; i <= n_ok; i++) {
        assert_int_equal(by_matcher_fill_mask(m, one, NULL), BY_OK);
        assert_memory_equal(one, rows + i * words, words * 4);
        if (i < n_ok) assert_int_equal(by_matcher_accept(m, ids[i], NULL), BY_OK);
    }
    by_matcher_destroy(m);
    by_grammar_release(g);
    free(rows);
    free(one);
}

/* A request that ignores the end of text, or drafts behind it, goes on after the end: the mask and accept agree there too. */
static void behind_the_end_only_the_end_may_follow(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_REGEX, "a");
    by_matcher *m = start(g);
    uint32_t drafts[3] = {EOS, EOS, 5}, *rows = calloc(4 * words, 4), *one = calloc(words, 4);
    size_t n_ok;
    feed(m, "a");
    assert_int_equal(by_matcher_draft_masks(m, drafts, 3, rows, words, &n_ok, NULL), BY_OK);
    assert_int_equal(n_ok, 2);
    for (int i = 0; i <= 2; i++) {
        for (uint32_t w = 0; w < words; w++) assert_int_equal(rows[(uint32_t)i * words + w], w == EOS / 32 ? 1u << EOS % 32 : 0);
        assert_int_equal(by_matcher_fill_mask(m, one, NULL), BY_OK);
        assert_memory_equal(one, rows, words * 4);
        assert_int_equal(by_matcher_accept(m, 5, NULL), BY_NOT_FOUND);
        assert_int_equal(by_matcher_accept(m, EOS, NULL), BY_OK);
        assert_true(by_matcher_is_ended(m));
    }
    assert_int_equal(by_matcher_rollback(m, 2, NULL), BY_OK);
    assert_true(by_matcher_is_ended(m));
    assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
    assert_false(by_matcher_is_ended(m));
    by_matcher_destroy(m);
    by_grammar_release(g);
    free(rows);
    free(one);
}

static void triggers_start_the_grammar_and_bounds_force_them(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_REGEX, "z+");
    by_matcher *m;
    uint32_t trigger[] = {7, 7, 8}, z, *mask = calloc(words, 4);
    by_grammar_vocab_split(vocab, BY_STR("z"), &z, 1);
    by_matcher_opts o = {.trigger_ids = trigger, .n_trigger = 3, .bound_id = 9};
    assert_int_equal(by_matcher_create(&m, g, &o, NULL), BY_OK);
    const uint32_t overlap[] = {7, 7, 7, 8};
    for (int i = 0; i < 4; i++)
        assert_int_equal(by_matcher_accept(m, overlap[i], NULL), BY_OK);
    assert_int_equal(by_matcher_accept(m, 7, NULL), BY_NOT_FOUND); /* the grammar rules now */
    assert_int_equal(by_matcher_accept(m, z, NULL), BY_OK);
    assert_int_equal(by_matcher_rollback(m, 5, NULL), BY_OK);
    assert_int_equal(by_matcher_accept(m, 9, NULL), BY_OK); /* the bound: the trigger is forced */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
        for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++)
            assert_int_equal(mask[id >> 5] >> (id & 31) & 1, id == trigger[i]);
        assert_int_equal(by_matcher_accept(m, trigger[i], NULL), BY_OK);
    }
    assert_int_equal(by_matcher_accept(m, z, NULL), BY_OK);
    by_matcher_destroy(m);
    o.n_trigger = 0;
    assert_int_equal(by_matcher_create(&m, g, &o, NULL), BY_EINVAL);
    by_grammar_release(g);
    free(mask);
}

static int64_t encode(void *user, by_str text, uint32_t *ids, size_t max) {
    (void)user;
    return by_grammar_vocab_split(vocab, text, ids, max);
}

static void forced_text_is_told(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_REGEX, "hello world(A|B)");
    by_matcher *m = start(g);
    by_buf b = {0};
    uint32_t ids[32];
    size_t n;
    assert_int_equal(by_matcher_forced_bytes(m, &b, 100, NULL), BY_OK);
    assert_true(by_str_eqz(by_buf_str(&b), "hello world"));
    assert_int_equal(by_matcher_forced_tokens(m, encode, NULL, ids, 32, &n, NULL), BY_OK);
    size_t ok;
    assert_int_equal(by_matcher_validate(m, ids, n, &ok, NULL), BY_OK);
    assert_int_equal(ok, n);
    by_buf_deinit(&b);
    by_matcher_destroy(m);
    by_grammar_release(g);
}

/* ---- errors and limits ---- */

/* A message quotes the pattern, and never half a character of it. */
static void quoted_patterns_are_whole_characters(void **state) {
    (void)state;
    for (int lead = 0; lead < 3; lead++) {
        char text[300];
        int n = snprintf(text, sizeof text, "%.*s", lead, "ab");
        while (n < 200)
            n += snprintf(text + n, sizeof text - (size_t)n, "\xe4\xb8\xad");
        snprintf(text + n, sizeof text - (size_t)n, "(");
        by_grammar *g;
        by_err err;
        assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_REGEX, by_str_z(text), NULL, NULL, &err), BY_EFORMAT);
        assert_true(by_utf8_valid(by_str_z(err.msg), NULL));
    }
}

static void errors_name_their_place(void **state) {
    (void)state;
    static const struct {
        by_grammar_kind kind;
        const char *text;
        by_status status;
        const char *where;
    } bad[] = {
        {BY_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a/b\":{\"$ref\":\"http://x/y\"}}}", BY_EUNSUPPORTED,
         "/properties/a~1b/$ref"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"items\":{\"pattern\":\"(\"}}", BY_EFORMAT, "/items/pattern"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"items\":{\"pattern\":\"(a)\\\\1\"}}", BY_EUNSUPPORTED, "/items/pattern"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"minLength\":-1}", BY_EINVAL, "/minLength"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"strin\"}", BY_EINVAL, "/type"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"allOf\":[{\"$ref\":\"#\"}]}", BY_EINVAL, "/"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"$ref\":\"#\"}}}",
         BY_EINVAL, "/"},
        {BY_GRAMMAR_EBNF, "root ::= \"a\"\nb ::= (\"c\"", BY_EFORMAT, "line 2, column 7"},
        {BY_GRAMMAR_EBNF, "root ::= a", BY_EFORMAT, "line 1, column 10"},
        {BY_GRAMMAR_EBNF, "root ::= root \"a\"", BY_EINVAL, "line 1, column 1"},
        {BY_GRAMMAR_LARK, "start: A\nA: \"x\" A", BY_EFORMAT, "line 2, column 1"},
        {BY_GRAMMAR_REGEX, "(?=(?<=b)c)", BY_EUNSUPPORTED, "offset 3"},
        {BY_GRAMMAR_CHOICE, "[]", BY_EINVAL, ""},
        {BY_GRAMMAR_TAG, "{\"format\":{\"type\":\"what\"}}", BY_EUNSUPPORTED, ""},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        by_grammar *g;
        by_grammar_error where;
        by_err err = {0};
        by_status s = by_grammar_compile(&g, vocab, bad[i].kind, by_str_z(bad[i].text), NULL, &where, &err);
        assert_null(g);
        if (s != bad[i].status || !strstr(where.where, bad[i].where))
            fail_msg("%s: %s at '%s', want %s at '%s' (%s)", bad[i].text, by_status_name(s), where.where,
                     by_status_name(bad[i].status), bad[i].where, err.msg);
    }
}

static void lenient_turns_refusals_into_warnings(void **state) {
    (void)state;
    by_grammar *g;
    by_grammar_opts o = {.lenient = true};
    by_str text = BY_STR("{\"type\":\"string\",\"pattern\":\"(a)\\\\1\",\"format\":\"odd\"}");
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, text, &o, NULL, NULL), BY_OK);
    assert_non_null(strstr(by_grammar_warnings(g), "/pattern"));
    assert_non_null(strstr(by_grammar_warnings(g), "odd"));
    by_grammar_release(g);
}

/* oneOf of two branches, 22 deep: ready or refused within the compile limit. */
static void a_compile_bomb_ends_in_time(void **state) {
    (void)state;
    by_buf b = {0};
    by_buf_push_z(&b, "{\"$ref\":\"#/$defs/d22\",\"$defs\":{\"d0\":{\"type\":\"object\"}");
    for (int i = 1; i <= 22; i++)
        by_buf_printf(
            &b,
            ",\"d%d\":{\"oneOf\":[{\"properties\":{\"a%d\":{\"$ref\":\"#/$defs/d%d\"}},\"$ref\":\"#/$defs/d%d\"},"
            "{\"required\":[\"b%d\"],\"$ref\":\"#/$defs/d%d\"}]}",
            i, i, i - 1, i - 1, i, i - 1);
    by_buf_push_z(&b, "}}");
    by_grammar *g;
    int64_t from = by_clock_ns();
    by_status s = by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_buf_str(&b), NULL, NULL, NULL);
    assert_true(s == BY_OK || s == BY_EUNSUPPORTED || s == BY_ETIMEOUT || s == BY_ELIMIT);
    int64_t most_s = by_test_scaled(100) >= 100 ? 10 : 60; /* the limit is 2 s; a busy machine under a sanitizer is slow */
    assert_true(by_clock_ns() - from < most_s * 1000000000);
    by_grammar_release(g);
    by_buf_deinit(&b);
}

static void deep_nesting_is_an_error(void **state) {
    (void)state;
    static const struct {
        by_grammar_kind kind;
        const char *open, *mid, *close;
    } deep[] = {{BY_GRAMMAR_REGEX, "(", "a", ")"},
                {BY_GRAMMAR_EBNF, "(", "\"a\"", ")"},
                {BY_GRAMMAR_LARK, "(", "\"a\"", ")"},
                {BY_GRAMMAR_JSON_SCHEMA, "{\"items\":", "true", "}"},
                {BY_GRAMMAR_TAG, "{\"type\":\"star\",\"content\":", "1", "}"}};
    for (unsigned i = 0; i < 5; i++) {
        by_buf b = {0};
        by_grammar *g;
        if (deep[i].kind == BY_GRAMMAR_EBNF) by_buf_push_z(&b, "root ::= ");
        if (deep[i].kind == BY_GRAMMAR_LARK) by_buf_push_z(&b, "start: ");
        for (int k = 0; k < 50000; k++)
            by_buf_push_z(&b, deep[i].open);
        by_buf_push_z(&b, deep[i].mid);
        for (int k = 0; k < 50000; k++)
            by_buf_push_z(&b, deep[i].close);
        by_status s = by_grammar_compile(&g, vocab, deep[i].kind, by_buf_str(&b), NULL, NULL, NULL);
        assert_true(s < 0);
        by_buf_deinit(&b);
    }
}

/* A grammar at its limit is made again; matchers find their places. Distinct items are remembered in states, so every
 * text adds some. */
static void full_tables_are_rebuilt(void **state) {
    (void)state;
    by_grammar *g;
    by_grammar_opts o = {.states_max = 5000};
    by_str text = BY_STR("{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}");
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, text, &o, NULL, NULL), BY_OK);
    by_matcher *b = start(g);
    uint32_t *x = calloc(words, 4), *y = calloc(words, 4);
    feed(b, "[\"kept\", \"k");
    assert_int_equal(by_matcher_fill_mask(b, x, NULL), BY_OK);
    for (int i = 0; i < 150; i++) {
        char item[64];
        by_matcher *a = start(g);
        snprintf(item, sizeof item, "[\"%d\",\"item number %d\"]", i * 7919, i);
        feed(a, item);
        assert_true(by_matcher_is_final(a));
        by_matcher_destroy(a);
    }
    by_grammar_stats st;
    by_grammar_get_stats(g, &st);
    assert_true(st.rebuilds > 0);
    assert_int_equal(by_matcher_fill_mask(b, y, NULL), BY_OK);
    assert_memory_equal(x, y, words * 4);
    feed(b, "ept2\"]");
    assert_true(by_matcher_is_final(b));
    by_matcher_destroy(b);
    by_grammar_release(g);
    free(x);
    free(y);
}

/* ---- tool calls ---- */

static const char tools[] =
    "[{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"
    "\"n\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":3}]}},\"required\":[\"city\"],"
    "\"additionalProperties\":false}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\",\"parameters\":{}}}]";

static by_grammar *tool_grammar_of(const char *list, const by_grammar_dsml_opts *o) {
    by_buf tag = {0};
    by_err err;
    if (by_grammar_dsml_tag(&tag, by_str_z(list), o, &err) < 0) fail_msg("%s", err.msg);
    by_grammar *g = make(BY_GRAMMAR_TAG, by_buf_z(&tag));
    by_buf_deinit(&tag);
    return g;
}

static by_grammar *tool_grammar(const char *name, bool required) {
    return tool_grammar_of(tools, &(by_grammar_dsml_opts){.name = by_str_z(name), .required = required});
}

static uint32_t control_id(const char *text) {
    for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++)
        if (by_grammar_vocab_is_control(vocab, id) && by_str_eqz(by_grammar_vocab_bytes(vocab, id), text)) return id;
    fail_msg("no control token %s", text);
    return 0;
}

/* Feeds text in which the DSML token is one id. */
static bool feed_dsml(by_matcher *m, const char *text) {
    uint32_t dsml = control_id(DSML), ids[512];
    while (*text) {
        const char *at = strstr(text, DSML);
        size_t n = at ? (size_t)(at - text) : strlen(text);
        int64_t k = by_grammar_vocab_split(vocab, by_str_of(text, n), ids, 512);
        for (int64_t i = 0; i < k; i++)
            if (by_matcher_accept(m, ids[i], NULL) != BY_OK) return false;
        if (!at) break;
        if (by_matcher_accept(m, dsml, NULL) != BY_OK) return false;
        text = at + strlen(DSML);
    }
    return true;
}

#define INVOKE(name, body) "<" DSML " invoke name=\"" name "\">\n" body "\n</" DSML " invoke>\n"
#define PARAM(key, string, value)                                                                                      \
    "<" DSML " parameter name=\"" key "\" string=\"" string "\">" value "</" DSML " parameter>"

/* Releases g. */
static bool takes_calls(by_grammar *g, const char *text) {
    by_matcher *m = start(g);
    bool ok = feed_dsml(m, text) && by_matcher_is_final(m);
    by_matcher_destroy(m);
    by_grammar_release(g);
    return ok;
}

static bool tool_text(bool required, const char *name, const char *text) { return takes_calls(tool_grammar(name, required), text); }

static void tool_calls_follow_the_markup(void **state) {
    (void)state;
    assert_true(tool_text(true, "", INVOKE("get", PARAM("city", "true", "Z\xc3\xbcrich \"x\"")) "</" DSML " calls>"));
    assert_true(tool_text(true, "",
                          INVOKE("get", PARAM("city", "true", "a") "\n" PARAM("n", "false", "12"))
                              INVOKE("now", "") "</" DSML " calls>"));
    assert_true(tool_text(
        true, "", INVOKE("get", PARAM("city", "true", "a") "\n" PARAM("n", "true", "abc")) "</" DSML " calls>"));
    assert_true(tool_text(true, "now", INVOKE("now", PARAM("any", "false", "{\"a\":[1]}")) "</" DSML " calls>"));
    assert_false(tool_text(true, "", "</" DSML " calls>"));
    assert_false(tool_text(true, "now", INVOKE("get", PARAM("city", "true", "a")) "</" DSML " calls>"));
    assert_false(tool_text(true, "", INVOKE("get", PARAM("n", "false", "12")) "</" DSML " calls>"));
    assert_false(
        tool_text(true, "", INVOKE("get", PARAM("city", "false", "Paris")) "</" DSML " calls>")); /* a bare word */
    assert_false(tool_text(
        true, "", INVOKE("get", PARAM("city", "false", "\"Paris\"")) "</" DSML " calls>")); /* strings are raw */
    assert_false(tool_text(
        true, "", INVOKE("get", PARAM("city", "true", "a") "\n" PARAM("n", "true", "abcd")) "</" DSML " calls>"));
    assert_true(tool_text(false, "", "Let me look.\n\n<" DSML " calls>\n" INVOKE("now", "") "</" DSML " calls>"));
    assert_true(tool_text(false, "", "No tool: a < b."));
    assert_false(tool_text(false, "", "<" DSML " calls>\n</" DSML " calls>"));
}

/* A whole block of calls, alone or instead of a text with a format. */
static void calls_are_forced_or_stand_for_a_format(void **state) {
    (void)state;
    const by_grammar_dsml_opts forced = {.forced = true};
    const by_grammar_dsml_opts either = {.text = BY_STR("{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"boolean\"}}")};
    const char *const call = "\n\n<" DSML " calls>\n" INVOKE("now", "") "</" DSML " calls>";
    assert_true(takes_calls(tool_grammar_of(tools, &forced), call));
    assert_false(takes_calls(tool_grammar_of(tools, &forced), "true"));
    assert_true(takes_calls(tool_grammar_of(tools, &either), call));
    assert_true(takes_calls(tool_grammar_of(tools, &either), "true"));
    assert_false(takes_calls(tool_grammar_of(tools, &either), "maybe"));
    assert_false(takes_calls(tool_grammar_of(tools, &either), "true\n\n<" DSML " calls>\n" INVOKE("now", "") "</" DSML " calls>"));
}

/* Each tool has its own strictness: undeclared parameters, and keywords that cannot be enforced. */
static void a_tool_is_as_strict_as_it_says(void **state) {
    (void)state;
    static const char list[] =
        "[{\"name\":\"s\",\"strict\":true,\"parameters\":{\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":"
        "\"integer\"}}}}}},{\"name\":\"l\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":"
        "\"integer\"}}},\"b\":{\"not\":{\"uniqueItems\":true}}}}}]";
    const by_grammar_dsml_opts o = {.required = true};
    assert_true(takes_calls(tool_grammar_of(list, &o), INVOKE("s", PARAM("a", "false", "{\"k\":1}")) "</" DSML " calls>"));
    assert_false(takes_calls(tool_grammar_of(list, &o), INVOKE("s", PARAM("a", "false", "{\"x\":1}")) "</" DSML " calls>"));
    assert_true(takes_calls(tool_grammar_of(list, &o), INVOKE("l", PARAM("a", "false", "{\"x\":1}")) "</" DSML " calls>"));
    by_buf tag = {0};
    by_grammar *g;
    static const char strict[] = "[{\"name\":\"l\",\"strict\":true,\"parameters\":{\"properties\":{\"b\":{\"not\":{\"uniqueItems\":true}}}}}]";
    assert_int_equal(by_grammar_dsml_tag(&tag, BY_STR(strict), &o, NULL), BY_OK);
    assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_TAG, by_buf_str(&tag), NULL, NULL, NULL), BY_EUNSUPPORTED);
    by_buf_deinit(&tag);
}

/* Random tool calls: every body of string="false" is JSON. */
static void random_tool_calls_have_json_where_they_say_so(void **state) {
    (void)state;
    by_grammar *g = tool_grammar("", true);
    for (uint64_t seed = 0; seed < 100; seed++) {
        by_buf b = {0};
        assert_int_equal(by_grammar_sample(g, seed, 600, &b, NULL), BY_OK);
        const char *at = by_buf_z(&b);
        while ((at = strstr(at, "string=\"false\">"))) {
            at += strlen("string=\"false\">");
            const char *end = strstr(at, "</" DSML);
            by_arena a;
            by_json v;
            by_arena_init(&a, BY_MEM_MISC);
            assert_non_null(end);
            assert_int_equal(by_json_parse(&v, &a, by_str_of(at, (size_t)(end - at)), NULL, NULL), BY_OK);
            assert_int_not_equal(v.type, BY_JSON_STRING);
            by_arena_deinit(&a);
        }
        by_buf_deinit(&b);
    }
    by_grammar_release(g);
}

static void control_tokens_are_never_text(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\"}");
    by_matcher *m = start(g);
    uint32_t *mask = calloc(words, 4);
    feed(m, "\"");
    assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
    for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++)
        if (by_grammar_vocab_is_control(vocab, id)) assert_false(mask[id >> 5] >> (id & 31) & 1);
    feed(m, "</think>\"");
    assert_true(by_matcher_is_final(m));
    by_matcher_destroy(m);
    by_grammar_release(g);
    free(mask);
}

/* ---- threads, memory ---- */

static void *worker(void *arg) {
    by_grammar *g = arg;
    uint32_t *mask = calloc(words, 4);
    for (int i = 0; i < 20; i++) {
        by_matcher *m = start(g);
        feed(m, "{\"name\":\"");
        for (int k = 0; k < 10; k++)
            by_matcher_fill_mask(m, mask, NULL), feed(m, "ab");
        feed(m, "\", \"age\": 7}");
        if (!by_matcher_is_final(m)) abort();
        by_matcher_destroy(m);
    }
    free(mask);
    return NULL;
}

static void matchers_of_one_grammar_run_in_parallel(void **state) {
    (void)state;
    by_grammar *g = make(BY_GRAMMAR_JSON_SCHEMA, person);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, worker, g), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    by_grammar_release(g);
}

/* Many alternatives, the first of which needs the general way. */
static void an_odd_alternative_among_many_is_no_fault(void **state) {
    (void)state;
    by_buf b = {0};
    by_buf_push_z(&b, "x(?=y).");
    for (int i = 0; i < 3000; i++)
        by_buf_printf(&b, "|");
    by_grammar *g = make(BY_GRAMMAR_REGEX, by_buf_z(&b));
    bool ok;
    assert_int_equal(by_grammar_match(g, BY_STR("xy"), &ok, NULL, NULL), BY_OK);
    assert_true(ok);
    assert_int_equal(by_grammar_match(g, BY_STR("xz"), &ok, NULL, NULL), BY_OK);
    assert_false(ok);
    by_grammar_release(g);
    by_buf_deinit(&b);
}

static void broken_escapes_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"\\u{", "\\u{zz}", "\\u{4e00", "\\u{110000}", "\\U00110000", "[\\u{q}]", "\\x4", "\\u12"};
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        by_grammar *g;
        by_grammar_error where;
        by_status s = by_grammar_compile(&g, vocab, BY_GRAMMAR_REGEX, by_str_z(texts[i]), NULL, &where, NULL);
        if (s != BY_EFORMAT) fail_msg("%s: %s", texts[i], by_status_name(s));
        assert_true(where.where[0]);
    }
}

typedef struct {
    by_grammar_kind kind;
    const char *text, *member;
} memory_case;

static by_status whole_life(void *arg) {
    const memory_case *c = arg;
    by_grammar *g;
    by_matcher *m, *f = NULL;
    by_err err;
    uint32_t ids[64], mask[4096 / 8];
    by_status s = by_grammar_compile(&g, vocab, c->kind, by_str_z(c->text), NULL, NULL, &err);
    if (s < 0) return s;
    s = by_matcher_create(&m, g, NULL, &err);
    int64_t n = by_grammar_vocab_split(vocab, by_str_z(c->member), ids, 64);
    for (int64_t i = 0; i < n && s >= 0; i++) {
        s = by_matcher_fill_mask(m, mask, &err);
        if (s >= 0) s = by_matcher_accept(m, ids[i], &err);
    }
    if (s >= 0) s = by_matcher_fork(&f, m, &err);
    by_matcher_destroy(f);
    by_matcher_destroy(m);
    by_grammar_release(g);
    return s;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const memory_case cases[] = {
        {BY_GRAMMAR_JSON_SCHEMA,
         "{\"properties\":{\"a\":{\"enum\":[1,\"x\"]}},\"patternProperties\":{\"^p\":{\"not\":{\"type\":\"string\"}}}}",
         "{\"p\":1}"},
        {BY_GRAMMAR_JSON_SCHEMA, "{\"uniqueItems\":true,\"items\":{\"type\":[\"integer\",\"string\"]}}", "[1,\"a\"]"},
        {BY_GRAMMAR_EBNF, "root ::= root \"a\" | [b-d]+", "bca"},
        {BY_GRAMMAR_LARK, "start: A+\nA: /x(?=y)./\n%ignore \" \"", "xy xy"},
        {BY_GRAMMAR_TAG,
         "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<a\"],\"tags\":[{\"begin\":\"<a>\",\"content\":{"
         "\"type\":\"any_text\"},\"end\":\"</a>\"}]}}",
         "t<a>x</a>"},
        {BY_GRAMMAR_CHOICE, "[\"ab\",\"ac\"]", "ac"}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* The vocabulary keeps some sets that a first mask asks for: they are no leak of the run that fails. */
        assert_int_equal(whole_life((void *)(uintptr_t)&cases[i]), BY_OK);
        if (by_alloc_fail_each(whole_life, (void *)(uintptr_t)&cases[i], 20000) == 0) fail_msg("case %u", i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(regular_expressions_beyond_the_vectors),
                                       cmocka_unit_test(blanks_stand_where_the_option_says),
        cmocka_unit_test(left_recursion_of_every_kind),
                                       cmocka_unit_test(tokens_named_by_id),
                                       cmocka_unit_test(schemas_beyond_the_vectors),
        cmocka_unit_test(schemas_that_say_nothing_are_whole),
        cmocka_unit_test(conditions_on_members_add_up),
        cmocka_unit_test(keys_of_conditions_stand_anywhere),
        cmocka_unit_test(dynamic_references_follow_the_way_there), cmocka_unit_test(dynamic_references_of_many_resources),
        cmocka_unit_test(multiples_of_large_and_small_numbers),
        cmocka_unit_test(whole_texts_have_no_time_limit),
        cmocka_unit_test(formats_beyond_the_vectors),
        cmocka_unit_test(a_schema_without_values_has_an_empty_mask),
                                       cmocka_unit_test(a_used_up_list_offers_no_comma),
                                       cmocka_unit_test(rollback_and_fork_keep_masks),
                                       cmocka_unit_test(drafts_get_masks_up_to_the_first_refusal),
                                       cmocka_unit_test(behind_the_end_only_the_end_may_follow),
        cmocka_unit_test(triggers_start_the_grammar_and_bounds_force_them),
                                       cmocka_unit_test(forced_text_is_told),
        cmocka_unit_test(quoted_patterns_are_whole_characters),
                                       cmocka_unit_test(errors_name_their_place),
                                       cmocka_unit_test(lenient_turns_refusals_into_warnings),
                                       cmocka_unit_test(a_compile_bomb_ends_in_time),
                                       cmocka_unit_test(deep_nesting_is_an_error),
                                       cmocka_unit_test(full_tables_are_rebuilt),
                                       cmocka_unit_test(tool_calls_follow_the_markup),
        cmocka_unit_test(calls_are_forced_or_stand_for_a_format),
        cmocka_unit_test(a_tool_is_as_strict_as_it_says),
                                       cmocka_unit_test(random_tool_calls_have_json_where_they_say_so),
                                       cmocka_unit_test(control_tokens_are_never_text),
                                       cmocka_unit_test(matchers_of_one_grammar_run_in_parallel),
                                       cmocka_unit_test(broken_escapes_are_refused),
        cmocka_unit_test(an_odd_alternative_among_many_is_no_fault),
        cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
