/* test_grammar_cache.c - compilation beside everything else: what nobody asks for any more is not compiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "grammar/grammar_cache.h"
#include "support/tok_v4.h"

enum { ASKED = 40 };

static by_grammar *wait_for(by_grammar_ticket *t) {
    by_grammar *g = NULL;
    by_err err = {0};
    by_status status = BY_AGAIN;
    for (int i = 0; i < 30000 && status == BY_AGAIN; i++) {
        status = by_grammar_ticket_take(t, &g, &err);
        if (status == BY_AGAIN) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (status != BY_OK) fail_msg("%s: %s", by_status_name(status), err.msg);
    return g;
}

/* Clients that send a grammar and leave must not make the others wait. One thread compiles; while it builds the vocabulary and the
 * first grammar, the others are asked for and given up. */
static void what_was_given_up_is_not_compiled(void **state) {
    (void)state;
    by_tok *tok = by_test_tok_tiny(NULL);
    by_grammar_cache *c = NULL;
    by_grammar_ticket *first, *last;
    by_err err = {0};
    const by_grammar_cache_opts opts = {.n_threads = 1};
    assert_int_equal(by_grammar_cache_create(&c, tok, 1, &opts, &err), BY_OK);
    by_grammar_spec spec = {.kind = BY_GRAMMAR_REGEX, .text = BY_STR("first")};
    assert_int_equal(by_grammar_cache_ask(c, &spec, NULL, NULL, &first, &err), BY_OK);
    for (int i = 0; i < ASKED; i++) {
        char text[32];
        by_grammar_ticket *t;
        snprintf(text, sizeof text, "x{%d}", i + 1);
        spec.text = by_str_z(text);
        assert_int_equal(by_grammar_cache_ask(c, &spec, NULL, NULL, &t, &err), BY_OK);
        by_grammar_ticket_close(t);
    }
    spec.text = BY_STR("last");
    assert_int_equal(by_grammar_cache_ask(c, &spec, NULL, NULL, &last, &err), BY_OK);
    by_grammar_release(wait_for(first));
    by_grammar_release(wait_for(last));
    by_grammar_cache_stats s = by_grammar_cache_stats_get(c);
    assert_int_equal(s.n_asked, ASKED + 2);
    assert_true(s.n_compiled >= 2);
    assert_true(s.n_compiled < ASKED + 2);
    by_grammar_ticket_close(first);
    by_grammar_ticket_close(last);
    by_grammar_cache_destroy(c);
    by_tok_destroy(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_given_up_is_not_compiled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
