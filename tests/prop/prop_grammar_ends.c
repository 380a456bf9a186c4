/* prop_grammar_ends.c - every walk that masks allow ends in a member: lists of distinct items out of small sets, conditions on some
 * items, bounds. Such lists can be used up, and what is still to come may need a value that is gone.
 * BY_TEST_TIMEOUT=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/grammar.h"
#include "support/seed.h"
#include "support/vocab.h"

#define EOS 1u

static by_grammar_vocab *vocab;
static uint32_t n_words, *mask, *plain, *closing;
static by_rng rng;

static int below(int n) {
    return (int)by_rng_below(&rng, (uint64_t)n);
}

/* ---- schemas of few values ---- */

static void value_schema(by_buf *s, int depth);

static void scalar_schema(by_buf *s) {
    static const char *const some[] = {"{\"type\":\"boolean\"}",
                                       "{\"type\":\"null\"}",
                                       "{\"enum\":[1,2,\"a\"]}",
                                       "{\"const\":[1,{\"a\":true}]}",
                                       "{\"enum\":[{\"a\":1},{\"a\":1.0},{\"b\":[]},true]}",
                                       "{\"type\":\"integer\",\"minimum\":-1,\"maximum\":1}",
                                       "{\"type\":\"number\",\"multipleOf\":0.5,\"minimum\":0,\"maximum\":1}",
                                       "{\"type\":\"number\",\"minimum\":1,\"maximum\":1}",
                                       "{\"enum\":[1,1.0,10e-1,100]}",
                                       "{\"type\":\"string\",\"pattern\":\"^[ab]$\"}",
                                       "{\"type\":\"string\",\"maxLength\":0}",
                                       "{\"type\":\"string\"}",
                                       "{\"type\":\"integer\"}",
                                       "{\"type\":\"number\"}",
                                       "{\"type\":[\"boolean\",\"null\"],\"not\":{\"const\":true}}"};
    by_buf_push_z(s, some[below((int)(sizeof some / sizeof some[0]))]);
}

static void object_schema(by_buf *s, int depth) {
    int n = below(3);
    by_buf_push_z(s, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        by_buf_printf(s, "%s\"%c\":", i ? "," : "", "xy"[i]);
        value_schema(s, depth - 1);
    }
    by_buf_push_z(s, "}");
    if (n && below(2)) by_buf_printf(s, ",\"required\":[\"%c\"]", "xy"[below(n)]);
    if (below(5)) by_buf_push_z(s, ",\"additionalProperties\":false");
    if (below(4) == 0) by_buf_push_z(s, ",\"maxProperties\":1");
    by_buf_push_z(s, "}");
}

static void contains(by_buf *s, int depth) {
    int min = below(3), max = min + below(2);
    by_buf_push_z(s, ",\"contains\":");
    value_schema(s, depth - 1);
    if (below(2)) by_buf_printf(s, ",\"minContains\":%d", min);
    if (below(3) == 0) by_buf_printf(s, ",\"maxContains\":%d", max ? max : 1);
}

static void array_schema(by_buf *s, int depth, bool unique) {
    int n = below(3);
    by_buf_push_z(s, "{\"type\":\"array\"");
    if (unique) by_buf_push_z(s, ",\"uniqueItems\":true");
    if (n) by_buf_push_z(s, ",\"prefixItems\":[");
    for (int i = 0; i < n; i++) {
        if (i) by_buf_push_byte(s, ',');
        value_schema(s, depth - 1);
    }
    if (n) by_buf_push_z(s, "]");
    if (n == 0 || below(2)) {
        by_buf_push_z(s, ",\"items\":");
        if (n && below(2)) by_buf_push_z(s, "false");
        else value_schema(s, depth - 1);
    }
    if (below(3) == 0) contains(s, depth);
    if (below(2)) by_buf_printf(s, ",\"minItems\":%d", 1 + below(3));
    if (!unique || below(3) == 0) by_buf_printf(s, ",\"maxItems\":%d", 1 + below(3));
    if (unique && below(6) == 0) { /* another condition of the same kind beside it */
        by_buf_push_z(s, ",\"allOf\":[{\"contains\":");
        value_schema(s, 0);
        by_buf_push_z(s, "}]");
    }
    by_buf_push_z(s, "}");
}

static void value_schema(by_buf *s, int depth) {
    int k = depth > 0 ? below(9) : 0;
    if (k < 4) scalar_schema(s);
    else if (k < 6) object_schema(s, depth);
    else if (k == 6) array_schema(s, depth, below(2));
    else {
        static const char *const joins[] = {"anyOf", "oneOf", "allOf"};
        by_buf_printf(s, "{\"%s\":[", joins[k == 7 ? 0 : 1 + (below(4) == 0)]);
        value_schema(s, depth - 1);
        by_buf_push_byte(s, ',');
        value_schema(s, depth - 1);
        by_buf_push_z(s, "]}");
    }
}

static void whole_schema(by_buf *s) {
    by_buf_clear(s);
    int around = below(6);
    if (around == 0) by_buf_push_z(s, "{\"oneOf\":[{\"type\":\"boolean\"},");
    if (around == 1) by_buf_push_z(s, "{\"not\":{\"const\":[]},\"allOf\":[");
    if (around == 2) by_buf_push_z(s, "{\"type\":\"object\",\"required\":[\"l\"],\"properties\":{\"l\":");
    array_schema(s, 3, below(8) > 0);
    if (around <= 1) by_buf_push_z(s, "]}");
    if (around == 2) by_buf_push_z(s, "}}");
}

/* ---- walks ---- */

static bool allowed(uint32_t id) {
    return mask[id >> 5] >> (id & 31) & 1;
}

/* Tokens of bytes that JSON's own marks and the words of the schemas have; and of those, the ones that close something. */
static bool is_usual(uint32_t id, const char *first) {
    by_str text = by_grammar_vocab_bytes(vocab, id);
    bool usual = text.len && strchr(first, text.ptr[0]) && text.ptr[0];
    for (size_t i = 0; i < text.len && usual; i++)
        usual = strchr("{}[],:\"01.truefalsnxyab", text.ptr[i]) && text.ptr[i];
    return usual;
}

static int setup(void **state) {
    (void)state;
    vocab = by_test_vocab_tiny(EOS);
    n_words = vocab ? by_grammar_mask_words(vocab) : 0;
    mask = calloc(n_words ? n_words : 1, 4);
    plain = calloc(n_words ? n_words : 1, 4);
    closing = calloc(n_words ? n_words : 1, 4);
    rng = by_test_rng(20261130);
    if (!vocab || !mask || !plain || !closing) return -1;
    for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++) {
        plain[id >> 5] |= (uint32_t)(id == EOS || is_usual(id, "{}[],:\"01.truefalsnxyab")) << (id & 31);
        closing[id >> 5] |= (uint32_t)is_usual(id, "}]\"") << (id & 31);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    by_grammar_vocab_destroy(vocab);
    free(mask);
    free(plain);
    free(closing);
    return 0;
}

/* A token out of the mask, mostly a usual one. */
static uint32_t pick(bool hurry) {
    uint32_t found = UINT32_MAX, usual = UINT32_MAX, n_usual = 0, from = (uint32_t)below((int)n_words);
    if (hurry && allowed(EOS)) return EOS;
    bool any = below(10) == 0;
    for (uint32_t i = 0; i < n_words && (!any || found == UINT32_MAX); i++) {
        uint32_t w = (from + i) % n_words;
        for (uint32_t bits = mask[w]; bits; bits &= bits - 1) {
            uint32_t id = w * 32 + (uint32_t)__builtin_ctz(bits);
            found = id;
            if ((closing[w] >> (id & 31) & 1 && hurry) || (plain[w] >> (id & 31) & 1 && !(hurry && usual != UINT32_MAX)))
                if (below((int)++n_usual) == 0) usual = id;
        }
    }
    return usual != UINT32_MAX && !any ? usual : found;
}

static void mask_agrees(by_matcher *m, const char *schema, const by_buf *text) {
    for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++) {
        bool took = by_matcher_accept(m, id, NULL) == BY_OK;
        if (took) assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
        if (took != allowed(id))
            fail_msg("token %u (%.*s) behind %.*s: mask %d, accept %d\n%s", id, BY_STR_ARG(by_grammar_vocab_bytes(vocab, id)),
                     (int)text->len, text->ptr, allowed(id), took, schema);
    }
}

#define LONGEST 160u
/* Returns the number of tokens, the end token included; 0 = not ended. */
static uint32_t walk(by_grammar *g, const char *schema, bool budget, by_buf *text) {
    enum { ENOUGH = 40 };
    by_matcher *m;
    by_matcher_opts o = {.bound_id = -1, .close_by_budget = budget};
    uint32_t n = 0, need = 0, room = LONGEST;
    by_buf_clear(text);
    assert_int_equal(by_matcher_create(&m, g, &o, NULL), BY_OK);
    if (budget) {
        assert_int_equal(by_matcher_min_tokens(m, &need, NULL), BY_OK);
        room = need + 1 + (uint32_t)below(40);
        by_matcher_set_budget(m, room);
    }
    while (n < room && !by_matcher_is_ended(m)) {
        by_err err;
        if (by_matcher_fill_mask(m, mask, &err) != BY_OK) fail_msg("%s\nbehind %.*s\n%s", err.msg, (int)text->len, text->ptr, schema);
        if (!budget && below(40) == 0) mask_agrees(m, schema, text);
        uint32_t id = pick(n > ENOUGH);
        if (id == UINT32_MAX) fail_msg("nothing may follow %.*s (%u of %u tokens)\n%s", (int)text->len, text->ptr, n, room, schema);
        if (by_matcher_accept(m, id, NULL) != BY_OK)
            fail_msg("token %u (%.*s) behind %.*s is in the mask, but refused\n%s", id, BY_STR_ARG(by_grammar_vocab_bytes(vocab, id)),
                     (int)text->len, text->ptr, schema);
        if (id != EOS) by_buf_push_str(text, by_grammar_vocab_bytes(vocab, id));
        n++;
    }
    bool ended = by_matcher_is_ended(m);
    by_matcher_destroy(m);
    return ended ? n : 0;
}

static void walks_end_in_members(const char *schema, by_grammar_ws ws, bool any_order, int rounds) {
    by_grammar *g;
    by_err err;
    by_buf text = {0};
    by_grammar_opts o = {.whitespace = ws, .any_order = any_order};
    by_status status = by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_str_z(schema), &o, NULL, &err);
    if (status == BY_EINVAL || status == BY_EUNSUPPORTED) return; /* no value at all, or a limit of the documentation */
    if (status < 0) fail_msg("%s\n%s", err.msg, schema);
    for (int k = 0; k < rounds; k++) {
        bool ok, budget = k % 3 == 2;
        uint32_t n = walk(g, schema, budget, &text);
        if (n == 0) continue; /* a long text is no dead end */
        assert_int_equal(by_grammar_match(g, by_buf_str(&text), &ok, NULL, NULL), BY_OK);
        if (!ok) fail_msg("%.*s is no member of\n%s", (int)text.len, text.ptr, schema);
    }
    by_grammar_release(g);
    by_buf_deinit(&text);
}

static void lists_of_distinct_items_never_get_stuck(void **state) {
    (void)state;
#define UNIQUE(rest) "{\"type\":\"array\",\"uniqueItems\":true," rest "}"
    static const char *const schemas[] = {
        UNIQUE("\"items\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"boolean\"}},\"required\":[\"x\"],"
               "\"additionalProperties\":false}"),
        UNIQUE("\"items\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"boolean\"}}"),
        UNIQUE("\"items\":{\"type\":\"array\",\"maxItems\":1,\"items\":{\"type\":\"number\",\"minimum\":1,\"maximum\":1}}"),
        UNIQUE("\"items\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"x\":{\"type\":\"boolean\"}},"
               "\"required\":[\"s\",\"x\"],\"additionalProperties\":false},\"minItems\":3"),
        UNIQUE("\"prefixItems\":[{\"enum\":[1,2]},{\"enum\":[1]}],\"minItems\":2,\"items\":false"),
        UNIQUE("\"prefixItems\":[{\"enum\":[1,2,3]},{\"enum\":[1,2]},{\"const\":1}],\"minItems\":3"),
        UNIQUE("\"items\":{\"enum\":[1,2,3]},\"contains\":{\"const\":3},\"maxItems\":2"),
        UNIQUE("\"items\":{\"enum\":[1,2,3,\"a\"]},\"contains\":{\"type\":\"string\"},\"minItems\":3,\"maxContains\":1"),
        UNIQUE("\"items\":{\"enum\":[[1],[1.0],{\"a\":1},{\"a\":10e-1},{}]}"),
        UNIQUE("\"items\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"number\"}},\"required\":[\"n\"],"
               "\"additionalProperties\":false}")};
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++)
        for (int any_order = 0; any_order < 2; any_order++)
            walks_end_in_members(schemas[i], any_order ? BY_GRAMMAR_WS_COMPACT : BY_GRAMMAR_WS_BOUNDED, any_order, by_test_scaled(12));
}

static void random_schemas_never_get_stuck(void **state) {
    (void)state;
    by_buf schema = {0};
    for (int i = 0, n = by_test_scaled(70); i < n; i++) {
        whole_schema(&schema);
        walks_end_in_members(by_buf_z(&schema), below(3) ? BY_GRAMMAR_WS_COMPACT : BY_GRAMMAR_WS_BOUNDED, below(4) == 0, 6);
    }
    by_buf_deinit(&schema);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_of_distinct_items_never_get_stuck),
                                       cmocka_unit_test(random_schemas_never_get_stuck)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
