/* golden_grammar.c - stored verdicts and masks of structured output, with the published tokenizer.
 * BY_TEST_TIMEOUT=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "grammar/grammar_options.h"
#include "grammar/grammar.h"
#include "support/golden.h"
#include "support/seed.h"
#include "support/tok_v4.h"

#define FIRST_TEXT 3u
#define LAST_TEXT  127999u

static by_grammar_vocab *vocab;
static uint32_t *mask;
static char exceptions[4096][64]; /* "case\tindex" */
static bool used[4096];
static int n_exceptions;

static int setup(void **state) {
    (void)state;
    by_tok *tok = by_test_tok_v4(NULL);
    by_err err;
    if (by_grammar_vocab_from_tok(&vocab, tok, 1, &err) < 0) return -1;
    by_tok_destroy(tok);
    mask = by_alloc(BY_MEM_MISC, by_grammar_mask_words(vocab) * 4u);
    by_lines *l = by_lines_open(by_golden_path("structured/exceptions.tsv"));
    by_str line;
    while (by_lines_next(l, &line)) {
        const char *a = memchr(line.ptr, '\t', line.len),
                   *b = a ? memchr(a + 1, '\t', (size_t)(line.ptr + line.len - a - 1)) : NULL;
        if (b) snprintf(exceptions[n_exceptions++], 64, "%.*s", (int)(b - line.ptr), line.ptr);
    }
    by_lines_close(l);
    return mask ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    by_free(mask);
    by_grammar_vocab_destroy(vocab);
    return 0;
}

static bool is_exception(by_str id, const char *what) {
    char key[64];
    snprintf(key, sizeof key, "%.*s\t%s", BY_STR_ARG(id), what);
    for (int i = 0; i < n_exceptions; i++)
        if (strcmp(exceptions[i], key) == 0) return used[i] = true;
    return false;
}

static by_status compile(by_grammar **g, const by_json *c, by_err *err) {
    by_grammar_opts opts = {.whitespace = BY_GRAMMAR_WS_ANY};
    by_grammar_kind kind;
    by_buf text = {0};
    const by_json *grammar = by_json_get(c, "grammar");
    assert_true(by_grammar_kind_parse(&kind, by_json_get(c, "kind")->v.s));
    assert_int_equal(by_grammar_options_read(&opts, by_json_get(c, "options"), err), BY_OK);
    if (grammar->type == BY_JSON_STRING)
        by_buf_push_str(&text, grammar->v.s);
    else
        by_grammar_write_json(&text, grammar);
    by_status s = by_grammar_compile(g, vocab, kind, by_buf_str(&text), &opts, NULL, err);
    by_buf_deinit(&text);
    return s;
}

static bool allowed(uint32_t id) {
    return mask[id >> 5] >> (id & 31) & 1;
}

/* Follows tokens by masks; at every fourth place takes two of the following ids and goes back. */
static bool follows(by_grammar *g, const by_json *tokens, by_str id) {
    by_matcher *m;
    by_err err = {0};
    bool ok = true;
    assert_int_equal(by_matcher_create(&m, g, NULL, &err), BY_OK);
    for (uint32_t k = 0; k <= tokens->n && ok; k++) {
        uint32_t t = k < tokens->n ? (uint32_t)tokens->v.items[k].v.i : 1;
        if (by_matcher_fill_mask(m, mask, &err) < 0) fail_msg("%.*s: %s", BY_STR_ARG(id), err.msg);
        ok = allowed(t);
        if (k % 4 == 0 && k + 1 < tokens->n) {
            size_t n_ok;
            uint32_t two[2] = {t, (uint32_t)tokens->v.items[k + 1].v.i};
            assert_int_equal(by_matcher_validate(m, two, 2, &n_ok, &err), BY_OK);
            assert_true((n_ok > 0) == ok);
        }
        if (ok && by_matcher_accept(m, t, &err) != BY_OK)
            fail_msg("%.*s: token %u is in the mask but was refused", BY_STR_ARG(id), t);
    }
    by_matcher_destroy(m);
    return ok;
}

static int run_case(const by_json *c) {
    by_str id = by_json_get(c, "id")->v.s;
    const by_json *tests = by_json_get(c, "tests");
    by_grammar *g = NULL;
    by_err err = {0};
    int bad = 0;
    if (compile(&g, c, &err) < 0) {
        if (is_exception(id, "*")) return 0;
        print_message("%.*s: %s\n", BY_STR_ARG(id), err.msg);
        return 1;
    }
    for (uint32_t i = 0; i < tests->n; i++) {
        char index[16];
        bool valid = by_json_get(&tests->v.items[i], "valid")->v.b,
             got = follows(g, by_json_get(&tests->v.items[i], "tokens"), id);
        by_str text = by_json_get(&tests->v.items[i], "text")->v.s;
        snprintf(index, sizeof index, "%u", i);
        bool by_bytes;
        assert_int_equal(by_grammar_match(g, text, &by_bytes, NULL, &err), BY_OK);
        if (by_bytes != got) bad++, print_message("%.*s %u: bytes and tokens differ\n", BY_STR_ARG(id), i);
        if (got == valid || is_exception(id, index)) continue;
        bad++;
        print_message("%.*s %u: wrongly %s: %.*s\n", BY_STR_ARG(id), i, got ? "accepted" : "refused", BY_STR_ARG(text));
    }
    by_grammar_release(g);
    return bad;
}

static void verdicts(const char *name) {
    char path[64];
    by_str line;
    int bad = 0, n = 0;
    snprintf(path, sizeof path, "structured/%s.jsonl", name);
    by_lines *l = by_lines_open(by_golden_path(path));
    while (by_lines_next(l, &line)) {
        by_arena a;
        by_json c;
        by_arena_init(&a, BY_MEM_MISC);
        assert_int_equal(by_json_parse(&c, &a, line, NULL, NULL), BY_OK);
        bad += run_case(&c);
        n++;
        by_arena_deinit(&a);
    }
    by_lines_close(l);
    assert_true(n > 0);
    assert_int_equal(bad, 0);
}

#define VERDICTS(name)                                                                                                 \
    static void name##_verdicts_hold(void **state) {                                                                   \
        (void)state;                                                                                                   \
        verdicts(#name);                                                                                               \
    }
VERDICTS(keywords)
VERDICTS(policy)
VERDICTS(random)
VERDICTS(regex)
VERDICTS(ebnf)
VERDICTS(lark)
VERDICTS(structural_tag)
VERDICTS(choice)
VERDICTS(jsts)
VERDICTS(schemastore)

static void every_exception_is_still_one(void **state) {
    (void)state;
    for (int i = 0; i < n_exceptions; i++)
        if (!used[i]) fail_msg("exceptions.tsv: %s is no difference any more", exceptions[i]);
}

/* ---- masks ---- */

static void hash_mask(char hex[17], uint32_t *n) {
    static const uint32_t left_out[] = {224, 21877, 88498};
    uint64_t h = 14695981039346656037u;
    for (uint32_t id = 0; id < by_grammar_vocab_size(vocab); id++)
        if (id < FIRST_TEXT || id > LAST_TEXT || id == left_out[0] || id == left_out[1] || id == left_out[2])
            mask[id >> 5] &= ~(1u << (id & 31));
    *n = 0;
    for (uint32_t i = 0; i < by_grammar_vocab_size(vocab) / 8; i++) {
        uint8_t x = (uint8_t)(mask[i >> 2] >> 8 * (i & 3));
        *n += (uint32_t)__builtin_popcount(x);
        h = (h ^ x) * 1099511628211u;
    }
    snprintf(hex, 17, "%016llx", (unsigned long long)h);
}

static by_json find_case(const char *file, by_str id, by_arena *a) {
    by_str line;
    by_json c = {0};
    by_lines *l = by_lines_open(by_golden_path(file));
    while (by_lines_next(l, &line)) {
        by_str copy = by_arena_dup(a, line);
        if (!memmem(line.ptr, line.len < 300 ? line.len : 300, id.ptr, id.len)) continue;
        assert_int_equal(by_json_parse(&c, a, copy, NULL, NULL), BY_OK);
        if (by_str_eq(by_json_get(&c, "id")->v.s, id)) break;
    }
    by_lines_close(l);
    assert_true(c.type == BY_JSON_OBJECT && by_str_eq(by_json_get(&c, "id")->v.s, id));
    return c;
}

static const char *file_of(by_str id) {
    static const char *const of[][2] = {{"kw-", "structured/keywords.jsonl"},   {"regex-", "structured/regex.jsonl"},
                                        {"ebnf-", "structured/ebnf.jsonl"},     {"lark-", "structured/lark.jsonl"},
                                        {"choice-", "structured/choice.jsonl"}, {"rand-", "structured/random.jsonl"}};
    for (unsigned i = 0; i < 6; i++)
        if (by_str_starts(id, by_str_z(of[i][0]))) return of[i][1];
    fail_msg("no file for %.*s", BY_STR_ARG(id));
    return NULL;
}

static int check_mask(by_grammar *g, const by_json *row) {
    by_matcher *m;
    const by_json *prefix = by_json_get(row, "prefix");
    char hex[17];
    uint32_t n, eos;
    assert_int_equal(by_matcher_create(&m, g, NULL, NULL), BY_OK);
    for (uint32_t i = 0; i < prefix->n; i++)
        if (by_matcher_accept(m, (uint32_t)prefix->v.items[i].v.i, NULL) != BY_OK) return by_matcher_destroy(m), 1;
    assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
    eos = mask[0] >> 1 & 1;
    hash_mask(hex, &n);
    bool same = by_str_eqz(by_json_get(row, "fnv")->v.s, hex) && by_json_get(row, "n")->v.i == n &&
                by_json_get(row, "eos")->v.i == eos;
    by_matcher_destroy(m);
    return !same;
}

static void masks_of(const char *file) {
    by_str line;
    by_arena a;
    char last[64] = "";
    by_grammar *g = NULL;
    int bad = 0, n = 0;
    by_arena_init(&a, BY_MEM_MISC);
    by_lines *l = by_lines_open(by_golden_path(file));
    assert_true(by_lines_next(l, &line)); /* the header */
    while (by_lines_next(l, &line)) {
        by_json row;
        by_err err = {0};
        assert_int_equal(by_json_parse(&row, &a, by_arena_dup(&a, line), NULL, NULL), BY_OK);
        by_str id = by_json_get(&row, "case")->v.s;
        if (!by_str_eqz(id, last)) {
            by_grammar_release(g);
            by_json c = find_case(file_of(id), id, &a);
            if (compile(&g, &c, &err) < 0) fail_msg("%.*s: %s", BY_STR_ARG(id), err.msg);
            snprintf(last, sizeof last, "%.*s", BY_STR_ARG(id));
        }
        n++;
        if (check_mask(g, &row)) bad++, print_message("%s: a mask differs\n", last);
    }
    by_lines_close(l);
    by_grammar_release(g);
    by_arena_deinit(&a);
    assert_true(n > 100);
    assert_int_equal(bad, 0);
}

static void masks_equal_both_oracles(void **state) {
    (void)state;
    masks_of("structured/masks.jsonl");
}
static void masks_of_random_schemas_equal_both_oracles(void **state) {
    (void)state;
    masks_of("structured/masks_random.jsonl");
}

/* ---- every id, by trying it ---- */

static by_rng rng;

/* Whatever is allowed leads to a place from which the text can end. */
static int dead_ends(by_matcher *m, by_str id) {
    enum { TRIES = 40, ENDLESS = 1 << 24 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t t = (uint32_t)by_rng_below(&rng, by_grammar_vocab_size(vocab)), n;
        for (uint32_t k = 0; k < 4096 && !(allowed(t) && t != 1); k++) t = (t + 1) % by_grammar_vocab_size(vocab);
        if (!allowed(t) || t == 1) continue;
        assert_int_equal(by_matcher_accept(m, t, NULL), BY_OK);
        assert_int_equal(by_matcher_min_tokens(m, &n, NULL), BY_OK);
        assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
        if (n < ENDLESS) continue;
        print_message("%.*s: token %u leads to a dead end\n", BY_STR_ARG(id), t);
        return 1;
    }
    return 0;
}

static int compare_all(by_grammar *g, const by_json *test, by_str id) {
    const by_json *tokens = by_json_get(test, "tokens");
    uint32_t at = (uint32_t)by_rng_below(&rng, tokens->n + 1), k = 0;
    by_matcher *m;
    int bad = 0;
    assert_int_equal(by_matcher_create(&m, g, NULL, NULL), BY_OK);
    while (k < at && by_matcher_accept(m, (uint32_t)tokens->v.items[k].v.i, NULL) == BY_OK) k++;
    assert_int_equal(by_matcher_fill_mask(m, mask, NULL), BY_OK);
    for (uint32_t t = 0; t < by_grammar_vocab_size(vocab); t++) {
        bool taken = by_matcher_accept(m, t, NULL) == BY_OK;
        if (taken) assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
        if (taken == allowed(t)) continue;
        if (bad++ < 3)
            print_message("%.*s behind %u tokens: token %u is %s\n", BY_STR_ARG(id), k, t,
                          taken ? "refused by the mask" : "wrongly in the mask");
    }
    bad += dead_ends(m, id);
    by_matcher_destroy(m);
    return bad;
}

/* Masks of random places in all kinds of grammars hold exactly the ids that can be accepted. */
static void masks_hold_what_is_accepted(void **state) {
    (void)state;
    static const char *const files[] = {"keywords", "regex", "jsts", "random", "ebnf", "schemastore", "lark", "structural_tag"};
    int bad = 0, n = 0, share = by_test_scaled(60); /* of a thousand cases */
    rng = by_test_rng(20261129);
    for (unsigned f = 0; f < sizeof files / sizeof files[0]; f++) {
        char path[64];
        by_str line;
        snprintf(path, sizeof path, "structured/%s.jsonl", files[f]);
        by_lines *l = by_lines_open(by_golden_path(path));
        while (by_lines_next(l, &line)) {
            by_arena a;
            by_json c;
            by_grammar *g;
            by_err err;
            if ((int)by_rng_below(&rng, 1000) >= share) continue;
            by_arena_init(&a, BY_MEM_MISC);
            assert_int_equal(by_json_parse(&c, &a, line, NULL, NULL), BY_OK);
            const by_json *tests = by_json_get(&c, "tests");
            if (tests->n && compile(&g, &c, &err) == BY_OK) {
                bad += compare_all(g, &tests->v.items[by_rng_below(&rng, tests->n)], by_json_get(&c, "id")->v.s);
                by_grammar_release(g);
                n++;
            }
            by_arena_deinit(&a);
        }
        by_lines_close(l);
    }
    assert_true(n > 0);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keywords_verdicts_hold),
                                       cmocka_unit_test(policy_verdicts_hold),
                                       cmocka_unit_test(random_verdicts_hold),
                                       cmocka_unit_test(regex_verdicts_hold),
                                       cmocka_unit_test(ebnf_verdicts_hold),
                                       cmocka_unit_test(lark_verdicts_hold),
                                       cmocka_unit_test(structural_tag_verdicts_hold),
                                       cmocka_unit_test(choice_verdicts_hold),
                                       cmocka_unit_test(jsts_verdicts_hold),
                                       cmocka_unit_test(schemastore_verdicts_hold),
                                       cmocka_unit_test(every_exception_is_still_one),
                                       cmocka_unit_test(masks_hold_what_is_accepted), cmocka_unit_test(masks_equal_both_oracles),
                                       cmocka_unit_test(masks_of_random_schemas_equal_both_oracles)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
