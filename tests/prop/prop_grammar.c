/* prop_grammar.c - random schemas with instances made beside them, random tokenisations, random walks.
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
#include "json/json.h"
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
    rng = by_test_rng(20261129);
    return vocab ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    by_grammar_vocab_destroy(vocab);
    return 0;
}

static int below(int n) {
    return (int)by_rng_below(&rng, (uint64_t)n);
}

/* ---- a schema and one instance of it, written side by side; knows nothing of the engine ---- */

static void pair(by_buf *s, by_buf *v, int depth);

static void string_pair(by_buf *s, by_buf *v) {
    static const char *const chars[] = {
        "a", "Z", "0", " ", "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "\\n", "\\\"", "\\\\", "\\u0041", "{", ","};
    int n = below(12), min = below(n + 1), max = n + below(30);
    static const char *const pats[][2] = {
        {"^[a-z]+$", "abc"},           {"o", "foo"},           {"^x", "xyz"}, {"ing$", "going"},
        {"^(?!no)[a-z]{2,4}$", "yes"}, {"^\\\\d{2,5}$", "123"}};
    if (below(3) == 0) {
        int k = below(6);
        by_buf_printf(s, "{\"type\":\"string\",\"pattern\":\"%s\"}", pats[k][0]);
        by_buf_printf(v, "\"%s\"", pats[k][1]);
        return;
    }
    by_buf_printf(s, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", min, max);
    by_buf_push_byte(v, '"');
    for (int i = 0; i < n; i++)
        by_buf_push_z(v, chars[below(13)]);
    by_buf_push_byte(v, '"');
}

static void number_pair(by_buf *s, by_buf *v) {
    int x = below(2000) - 1000, lo = x - below(50), hi = x + below(50), m = below(9) + 1;
    switch (below(4)) {
    case 0: by_buf_printf(s, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", lo, hi); break;
    case 1: by_buf_printf(s, "{\"type\":\"integer\",\"multipleOf\":%d}", m), x *= m; break;
    case 2:
        by_buf_printf(s, "{\"type\":\"number\",\"exclusiveMinimum\":%d,\"maximum\":%d.75}", lo - 1,
                      hi < 0 ? hi + 1 : hi);
        break;
    default:
        by_buf_push_z(s, "{\"not\":{\"type\":[\"string\",\"array\"]}}");
        by_buf_printf(v, "%d.%de%d", x, below(99), below(9));
        return;
    }
    by_buf_printf(v, "%d", x);
}

static void array_pair(by_buf *s, by_buf *v, int depth) {
    by_buf item = {0}, value = {0};
    int n = below(4);
    pair(&item, &value, depth - 1);
    by_buf_printf(s, "{\"type\":\"array\",\"minItems\":%d,\"maxItems\":%d,\"items\":", below(n + 1), n + below(3));
    by_buf_push_str(s, by_buf_str(&item));
    by_buf_push_z(s, "}");
    by_buf_push_byte(v, '[');
    for (int i = 0; i < n; i++) {
        if (i) by_buf_push_z(v, below(2) ? "," : ", ");
        by_buf_push_str(v, by_buf_str(&value));
    }
    by_buf_push_byte(v, ']');
    by_buf_deinit(&item);
    by_buf_deinit(&value);
}

static void object_pair(by_buf *s, by_buf *v, int depth) {
    by_buf req = {0};
    int n = below(5), written = 0;
    by_buf_push_z(s, "{\"type\":\"object\",\"properties\":{");
    by_buf_push_byte(v, '{');
    for (int i = 0; i < n; i++) {
        by_buf one = {0};
        by_buf_printf(s, "%s\"k%d\":", i ? "," : "", i);
        pair(s, &one, depth - 1);
        if (below(2)) {
            by_buf_printf(v, "%s\"k%d\":%s", written++ ? "," : "", i, below(2) ? " " : "");
            by_buf_push_str(v, by_buf_str(&one));
            if (below(2)) by_buf_printf(&req, "%s\"k%d\"", req.len ? "," : "", i);
        }
        by_buf_deinit(&one);
    }
    int more = below(3);
    by_buf_printf(s, "},\"required\":[%.*s]%s}", (int)req.len, req.ptr ? req.ptr : "",
                  more == 0   ? ""
                  : more == 1 ? ",\"additionalProperties\":{\"type\":\"null\"}"
                              : ",\"additionalProperties\":false");
    if (more < 2 && below(2)) by_buf_printf(v, "%s\"other\":null", written ? "," : "");
    by_buf_push_byte(v, '}');
    by_buf_deinit(&req);
}

static void pair(by_buf *s, by_buf *v, int depth) {
    by_buf other = {0}, ignored = {0};
    switch (below(depth > 0 ? 7 : 3)) {
    case 0: string_pair(s, v); break;
    case 1: number_pair(s, v); break;
    case 2:
        by_buf_push_z(s, "{\"enum\":[\"red\",\"re\",12,null,[1,{\"a\":true}]]}");
        by_buf_push_z(v, (const char *[]){"\"red\"", "\"re\"", "12", "null", "[1,{\"a\":true}]"}[below(5)]);
        break;
    case 3: array_pair(s, v, depth); break;
    case 4:
    case 5: object_pair(s, v, depth); break;
    default: /* the instance satisfies one branch; the other is anything */
        pair(&other, &ignored, depth - 1);
        by_buf_push_z(s, "{\"anyOf\":[");
        if (below(2))
            by_buf_push_str(s, by_buf_str(&other)), by_buf_push_byte(s, ','), pair(s, v, depth - 1);
        else
            pair(s, v, depth - 1), by_buf_push_byte(s, ','), by_buf_push_str(s, by_buf_str(&other));
        by_buf_push_z(s, "]}");
        break;
    }
    by_buf_deinit(&other);
    by_buf_deinit(&ignored);
}

static by_grammar *random_grammar(by_buf *schema, by_buf *value) {
    by_grammar *g;
    by_err err;
    by_buf_clear(schema);
    by_buf_clear(value);
    pair(schema, value, 3);
    by_grammar_opts o = {.whitespace = (by_grammar_ws)below(2)};
    if (by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_buf_str(schema), &o, NULL, &err) < 0)
        fail_msg("%s\n%s", err.msg, by_buf_z(schema));
    return g;
}

static bool allowed(const uint32_t *mask, uint32_t id) {
    return mask[id >> 5] >> (id & 31) & 1;
}

/* A random token that text[at..] begins with. */
static uint32_t random_token(by_str text, size_t at, uint32_t *ids) {
    uint32_t n = 0;
    for (size_t len = 1; len <= 12 && at + len <= text.len; len++) {
        uint32_t one[16];
        int64_t k = by_grammar_vocab_split(vocab, by_str_of(text.ptr + at, len), one, 16);
        if (k == 1) ids[n++] = one[0];
    }
    assert_true(n > 0);
    return ids[below((int)n)];
}

static void instances_are_accepted_under_any_tokenisation(void **state) {
    (void)state;
    by_buf schema = {0}, value = {0};
    uint32_t *mask = calloc(n_words, 4), ids[16];
    for (int i = 0, n = by_test_scaled(400); i < n; i++) {
        by_grammar *g = random_grammar(&schema, &value);
        for (int round = 0; round < 3; round++) {
            by_matcher *m;
            assert_int_equal(by_matcher_create(&m, g, NULL, NULL), BY_OK);
            for (size_t at = 0; at < value.len;) {
                uint32_t id = random_token(by_buf_str(&value), at, ids);
                assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
                if (!allowed(mask, id) || by_matcher_accept(m, id, NULL) != BY_OK)
                    fail_msg("byte %zu of %s\nrefused by %s", at, by_buf_z(&value), by_buf_z(&schema));
                at += by_grammar_vocab_bytes(vocab, id).len;
            }
            assert_true(by_matcher_is_final(m));
            by_matcher_destroy(m);
        }
        by_grammar_release(g);
    }
    by_buf_deinit(&schema);
    by_buf_deinit(&value);
    free(mask);
}

static uint32_t random_allowed(const uint32_t *mask) {
    uint32_t n = by_grammar_vocab_size(vocab), from = (uint32_t)below((int)n);
    for (uint32_t i = 0; i < n; i++)
        if (allowed(mask, (from + i) % n)) return (from + i) % n;
    return UINT32_MAX;
}

/* At random places of random walks: the bit of every id tells whether accept takes it; masks come back after going
 * back; no state is without a way on. */
static void masks_and_accept_agree(void **state) {
    (void)state;
    by_buf schema = {0}, value = {0};
    uint32_t *mask = calloc(n_words, 4), *again = calloc(n_words, 4);
    static const struct {
        by_grammar_kind kind;
        const char *text;
    } fixed[] = {{BY_GRAMMAR_JSON_SCHEMA, "{\"uniqueItems\":true,\"type\":\"array\"}"},
                 {BY_GRAMMAR_JSON_SCHEMA, "{\"uniqueItems\":true,\"type\":\"array\",\"items\":{\"type\":[\"integer\","
                                          "\"boolean\",\"null\"]},\"contains\":{\"const\":3}}"},
                 {BY_GRAMMAR_JSON_SCHEMA, "{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],"
                                          "\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}}"},
                 {BY_GRAMMAR_JSON_SCHEMA, "{\"format\":\"date-time\"}"},
                 {BY_GRAMMAR_EBNF, "root ::= root root | \"a\" | [^b]{2,3} | \"\""},
                 {BY_GRAMMAR_REGEX, "(?!.*foo)\\w+( \\w+)*\\b"},
                 {BY_GRAMMAR_REGEX, "(?m)(^(?<!the )\\w+(\\b.?\\b\\w+)*$\\n?)+"}};
    for (int i = 0, n = by_test_scaled(60); i < n; i++) {
        by_grammar *g;
        if (i % 2)
            g = random_grammar(&schema, &value);
        else
            assert_int_equal(
                by_grammar_compile(&g, vocab, fixed[i / 2 % 7].kind, by_str_z(fixed[i / 2 % 7].text), NULL, NULL, NULL),
                BY_OK);
        by_matcher *m;
        assert_int_equal(by_matcher_create(&m, g, NULL, NULL), BY_OK);
        for (int step = 0; step < 25 && !by_matcher_is_ended(m); step++) {
            assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
            int many = step % 8 == 0 ? (int)by_grammar_vocab_size(vocab) : 200;
            for (int k = 0; k < many; k++) {
                uint32_t id = many > 200 ? (uint32_t)k : (uint32_t)below((int)by_grammar_vocab_size(vocab));
                bool took = by_matcher_accept(m, id, NULL) == BY_OK;
                if (took) assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
                if (took != allowed(mask, id))
                    fail_msg("id %u (%.*s): mask %d, accept %d (grammar %d, step %d: %s)", id,
                             BY_STR_ARG(by_grammar_vocab_bytes(vocab, id)), allowed(mask, id), took, i, step,
                             i % 2 ? by_buf_z(&schema) : fixed[i / 2 % 7].text);
            }
            assert_int_equal(by_matcher_fill_mask(m, again, NULL), BY_OK);
            assert_memory_equal(mask, again, n_words * 4);
            uint32_t id = random_allowed(mask);
            if (id == UINT32_MAX)
                fail_msg("a state without a way on: %s", i % 2 ? by_buf_z(&schema) : fixed[i / 2 % 7].text);
            assert_int_equal(by_matcher_accept(m, id, NULL), BY_OK);
        }
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
    by_buf_deinit(&schema);
    by_buf_deinit(&value);
    free(mask);
    free(again);
}

/* Random choices under a budget always end, in time, in a member. */
static void budgets_close_every_text(void **state) {
    (void)state;
    by_buf schema = {0}, value = {0}, text = {0};
    uint32_t *mask = calloc(n_words, 4);
    for (int i = 0, n = by_test_scaled(60); i < n; i++) {
        by_grammar *g = random_grammar(&schema, &value);
        by_matcher *m;
        by_matcher_opts o = {.bound_id = -1, .close_by_budget = true};
        by_grammar_opts spaced = {.whitespace = BY_GRAMMAR_WS_SPACED};
        if (i % 3 == 0) {
            by_grammar_release(g);
            assert_int_equal(by_grammar_compile(&g, vocab, BY_GRAMMAR_JSON_SCHEMA, by_buf_str(&schema), &spaced, NULL, NULL), BY_OK);
        }
        uint32_t need;
        assert_int_equal(by_matcher_create(&m, g, &o, NULL), BY_OK);
        assert_int_equal(by_matcher_min_tokens(m, &need, NULL), BY_OK);
        uint32_t budget = need + 1 + (uint32_t)below(30);
        by_matcher_set_budget(m, budget);
        by_buf_clear(&text);
        for (uint32_t k = 0; k < budget && !by_matcher_is_ended(m); k++) {
            assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
            uint32_t id = random_allowed(mask);
            if (id == UINT32_MAX)
                fail_msg("stuck after %u of %u tokens: %.*s\n%s", k, budget, (int)text.len, text.ptr,
                         by_buf_z(&schema));
            assert_int_equal(by_matcher_accept(m, id, NULL), BY_OK);
            if (id != EOS) by_buf_push_str(&text, by_grammar_vocab_bytes(vocab, id));
        }
        bool ok;
        if (!by_matcher_is_ended(m))
            fail_msg("not closed after %u tokens: %.*s\n%s", budget, (int)text.len, text.ptr, by_buf_z(&schema));
        assert_int_equal(by_grammar_match(g, by_buf_str(&text), &ok, NULL, NULL), BY_OK);
        assert_true(ok);
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
    by_buf_deinit(&schema);
    by_buf_deinit(&value);
    by_buf_deinit(&text);
    free(mask);
}

static void samples_are_members_and_json(void **state) {
    (void)state;
    by_buf schema = {0}, value = {0}, text = {0};
    for (int i = 0, n = by_test_scaled(150); i < n; i++) {
        by_grammar *g = random_grammar(&schema, &value);
        by_arena a;
        by_json v;
        bool ok;
        by_arena_init(&a, BY_MEM_MISC);
        by_buf_clear(&text);
        assert_int_equal(by_grammar_sample(g, by_rng_u64(&rng), 400, &text, NULL), BY_OK);
        assert_int_equal(by_grammar_match(g, by_buf_str(&text), &ok, NULL, NULL), BY_OK);
        /* the reader refuses numbers beyond a double, which JSON itself allows */
        bool huge = text.len && (memchr(text.ptr, 'e', text.len) || memchr(text.ptr, 'E', text.len));
        if (!ok || (by_json_parse(&v, &a, by_buf_str(&text), NULL, NULL) < 0 && !huge))
            fail_msg("%s\nof %s", by_buf_z(&text), by_buf_z(&schema));
        by_arena_deinit(&a);
        by_grammar_release(g);
    }
    by_buf_deinit(&schema);
    by_buf_deinit(&value);
    by_buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_are_accepted_under_any_tokenisation), cmocka_unit_test(masks_and_accept_agree),
        cmocka_unit_test(budgets_close_every_text), cmocka_unit_test(samples_are_members_and_json)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
