/* test_grammar_limit.c - a step that ends at its time limit leaves nothing wrong behind. The clock of this program is its own: it
 * jumps at the k-th reading, for every k at which a call can be cut short; what the grammar says afterwards is compared with what a
 * grammar says that was never interrupted.
 * BY_TEST_WRAP=clock_gettime BY_TEST_TIMEOUT=300 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "grammar/grammar.h"
#include "support/seed.h"
#include "support/vocab.h"

#define EOS       1u
#define IDS_MAX   256
#define TRIES     8             /* places where one call is cut short, spread over all */
#define NO_WARM   600000        /* ns for each reading: the masks in advance have 500 us */
#define SOME_WARM 5000
#define JUMP      10000000000LL /* beyond every limit */
#define GO_ON     LONG_MAX

static by_grammar_vocab *vocab;
static uint32_t words;

static int64_t now = 1000000000, per_reading;
static long readings, jump_at = GO_ON, compiling_at; /* the first reading of a compilation */

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    if (id == CLOCK_THREAD_CPUTIME_ID) now += per_reading; /* compiling goes by the other one */
    if (++readings && id != CLOCK_THREAD_CPUTIME_ID && !compiling_at) compiling_at = readings;
    int64_t at = readings >= jump_at ? now + JUMP : now;
    *t = (struct timespec){at / 1000000000, at % 1000000000};
    return 0;
}

/* The clock jumps at the k-th reading from now on. */
static void cut_at(long k) {
    readings = compiling_at = 0;
    jump_at = k;
}

/* Between two places of the sweep: `n` readings are divided into so many that the whole takes seconds. */
static long stride(long n) {
    long tries = by_test_scaled(TRIES);
    if (tries < 4) tries = 4;
    return n > tries ? n / tries : 1;
}

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

typedef struct {
    by_grammar_kind kind;
    const char *grammar, *text; /* a text that begins a member */
    uint32_t budget;            /* 0 = none */
} example;

static const example examples[] = {
    {BY_GRAMMAR_REGEX, "(?=.*[a-f].{5}[0-9]).{5,20}", "xyz", 0},
    {BY_GRAMMAR_REGEX, "(?=.*[a-f].{5}[0-9]).{5,20}", "xyz", 30},
    {BY_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"[a-f].{4}[0-9]$\"}", "\"", 0},
    {BY_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"allOf\":[{\"pattern\":\"a.{4}b\"},{\"pattern\":\"c.{3}d\"}]}},"
     "\"required\":[\"a\"],\"additionalProperties\":false}",
     "{\"a\": \"x", 0},
    {BY_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^(?=.*[a-f].{3}[0-9]).{5,9}$\"},\"minItems\":3,"
     "\"contains\":{\"pattern\":\"x\"},\"minContains\":2}",
     "[\"", 100},
};
#define N_EXAMPLES (sizeof examples / sizeof examples[0])

static by_status compile(const example *e, uint32_t states_max, by_grammar **g) {
    by_err err;
    by_grammar_opts o = {.states_max = states_max};
    by_status s = by_grammar_compile(g, vocab, e->kind, by_str_z(e->grammar), &o, NULL, &err);
    if (s < 0 && s != BY_ETIMEOUT) fail_msg("%s: %s", e->grammar, err.msg);
    return s;
}

/* Without masks made in advance. */
static by_grammar *make(const example *e, uint32_t states_max) {
    by_grammar *g;
    per_reading = NO_WARM;
    assert_int_equal(compile(e, states_max, &g), BY_OK);
    per_reading = 0;
    return g;
}

static by_matcher *start(by_grammar *g, const example *e) {
    by_matcher *m;
    by_matcher_opts o = {.bound_id = -1, .close_by_budget = e->budget > 0};
    assert_int_equal(by_matcher_create(&m, g, &o, NULL), BY_OK);
    if (e->budget) by_matcher_set_budget(m, e->budget);
    return m;
}

static int split(const char *text, uint32_t *ids) {
    int64_t n = by_grammar_vocab_split(vocab, by_str_z(text), ids, IDS_MAX);
    assert_true(n > 0);
    return (int)n;
}

static void feed(by_matcher *m, const char *text) {
    uint32_t ids[IDS_MAX];
    int n = split(text, ids);
    for (int i = 0; i < n; i++)
        assert_int_equal(by_matcher_accept(m, ids[i], NULL), BY_OK);
}

/* The same when a call may be cut short: it is made once more. Returns how often. */
static int feed_again(by_matcher *m, const char *text) {
    uint32_t ids[IDS_MAX];
    int n = split(text, ids), n_cut = 0;
    for (int i = 0; i < n; i++) {
        by_status s = by_matcher_accept(m, ids[i], NULL);
        n_cut += s == BY_ETIMEOUT;
        if (s == BY_ETIMEOUT) s = by_matcher_accept(m, ids[i], NULL);
        assert_int_equal(s, BY_OK);
    }
    return n_cut;
}

static uint32_t *mask_of(by_matcher *m) {
    uint32_t *mask = malloc(words * sizeof *mask);
    by_err err;
    assert_non_null(mask);
    if (by_matcher_fill_mask(m, mask, &err) < 0) fail_msg("%s", err.msg);
    return mask;
}

static void same_mask(by_matcher *m, const uint32_t *want, const char *what, long k) {
    uint32_t *mask = mask_of(m);
    for (uint32_t i = 0; i < words; i++)
        if (mask[i] != want[i]) fail_msg("%s, cut short at reading %ld: another mask from id %u on", what, k, i * 32);
    free(mask);
}

/* The mask behind the text, by a grammar that no limit has met. */
static uint32_t *undisturbed(const example *e, uint32_t *min) {
    by_grammar *g = make(e, 0);
    by_matcher *m = start(g, e);
    feed(m, e->text);
    assert_int_equal(by_matcher_min_tokens(m, min, NULL), BY_OK);
    uint32_t *mask = mask_of(m);
    by_matcher_destroy(m);
    by_grammar_release(g);
    return mask;
}

/* The masks that all the others are compared with say what accepting says. */
static void masks_say_what_is_accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        const example *e = &examples[i];
        if (e->budget) continue; /* which leaves tokens out that would be accepted */
        uint32_t min, n = by_grammar_vocab_size(vocab), *mask = undisturbed(e, &min);
        by_grammar *g = make(e, 0);
        by_matcher *m = start(g, e);
        feed(m, e->text);
        for (uint32_t id = 0; id < n; id++) {
            bool taken = by_matcher_accept(m, id, NULL) == BY_OK;
            if (taken != (mask[id >> 5] >> (id & 31) & 1)) fail_msg("%s: id %u", e->grammar, id);
            if (taken) assert_int_equal(by_matcher_rollback(m, 1, NULL), BY_OK);
        }
        by_matcher_destroy(m);
        by_grammar_release(g);
        free(mask);
    }
}

typedef by_status call(by_matcher *m, uint32_t *mask);

static by_status call_mask(by_matcher *m, uint32_t *mask) {
    return by_matcher_fill_mask(m, mask, NULL);
}

static by_status call_min(by_matcher *m, uint32_t *mask) {
    return by_matcher_min_tokens(m, mask, NULL);
}

/* One call is cut short at each of its readings; a second one, given time, answers as if nothing had been. Returns how often. */
static int sweep(const example *e, call *fn) {
    uint32_t min, again, *want = undisturbed(e, &min), *mask = malloc(words * sizeof *mask);
    int n_cut = 0;
    assert_non_null(mask);
    for (long k = 2, step = 1; k != GO_ON; k += step) { /* the first reading sets the limit */
        by_grammar *g = make(e, 0);
        by_matcher *m = start(g, e);
        feed(m, e->text);
        if (k == 2) { /* once without a limit: how many readings there are */
            by_grammar *other = make(e, 0);
            by_matcher *o = start(other, e);
            feed(o, e->text);
            cut_at(GO_ON);
            assert_int_equal(fn(o, mask), BY_OK);
            step = stride(readings);
            by_matcher_destroy(o);
            by_grammar_release(other);
        }
        cut_at(k);
        by_status s = fn(m, mask);
        cut_at(GO_ON);
        assert_true(s == BY_OK || s == BY_ETIMEOUT);
        n_cut += s == BY_ETIMEOUT;
        same_mask(m, want, e->grammar, k);
        assert_int_equal(by_matcher_min_tokens(m, &again, NULL), BY_OK);
        assert_int_equal(again, min);
        if (s == BY_OK) k = GO_ON - step;
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
    free(want);
    free(mask);
    return n_cut;
}

static void a_mask_cut_short_spoils_no_later_one(void **state) {
    (void)state;
    int n = 0;
    for (size_t i = 0; i < N_EXAMPLES; i++)
        n += sweep(&examples[i], call_mask);
    assert_true(n >= 8);
}

static void a_length_cut_short_spoils_no_later_one(void **state) {
    (void)state;
    int n = 0;
    for (size_t i = 0; i < N_EXAMPLES; i++)
        n += sweep(&examples[i], call_min);
    assert_true(n >= 4);
}

/* Masks made in advance may end at a limit; the grammar is good nevertheless. */
static void masks_in_advance_cut_short_spoil_nothing(void **state) {
    (void)state;
    int n_cut = 0;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        const example *e = &examples[i];
        uint32_t min, *want = undisturbed(e, &min);
        by_grammar *g;
        per_reading = SOME_WARM;
        cut_at(GO_ON);
        assert_int_equal(compile(e, 0, &g), BY_OK);
        by_grammar_release(g);
        long n = readings, step = stride(n);
        for (long k = 2; k <= n; k += step) {
            cut_at(k);
            by_status s = compile(e, 0, &g);
            cut_at(GO_ON);
            if (s < 0) continue; /* compilation itself was cut short */
            n_cut++;
            by_matcher *m = start(g, e);
            feed(m, e->text);
            same_mask(m, want, e->grammar, k);
            by_matcher_destroy(m);
            by_grammar_release(g);
        }
        free(want);
    }
    assert_true(n_cut >= 4);
}

/* States of a grammar of its own in which the mask behind a text was made. */
static uint32_t states_for(const example *e, const char *text) {
    by_grammar *g = make(e, 0);
    by_matcher *m = start(g, e);
    by_grammar_stats st;
    feed(m, text);
    free(mask_of(m));
    by_grammar_get_stats(g, &st);
    by_matcher_destroy(m);
    by_grammar_release(g);
    return (uint32_t)st.states;
}

static uint64_t rebuilds(by_grammar *g) {
    by_grammar_stats st;
    by_grammar_get_stats(g, &st);
    return st.rebuilds;
}

/* A grammar whose tables are full is made again and its matchers find their places again: any of that may be cut short. */
static void a_new_start_cut_short_is_made_up_for(void **state) {
    (void)state;
    enum { READINGS = 24 }; /* behind the first one of the new start */
    static const char *const texts[] = {"xyzxyzabg", "abgabgagb", "gagagabbgag", "aabbggaagga", "gabbagagabg", "gggabababgg", "bgbgbgagbbg"};
    enum { N = sizeof texts / sizeof texts[0] };
    const example *e = &examples[0];
    uint32_t limit = 0, *mask = malloc(words * sizeof *mask), *want = NULL;
    size_t at = N + 1;
    long first = 0;
    int n_cut = 0;
    assert_non_null(mask);
    for (size_t i = 0; i < N; i++) {
        uint32_t n = states_for(e, texts[i]);
        if (n > limit) limit = n;
    }
    for (long k = -1; k < READINGS; k++) { /* -1: not cut, to see where it happens */
        by_grammar *g = make(e, limit);
        by_matcher *m = start(g, e);
        for (size_t i = 0; i < at && i < N; i++) {
            assert_int_equal(by_matcher_rollback(m, by_matcher_count(m), NULL), BY_OK);
            assert_int_equal(rebuilds(g), 0);
            cut_at(k < 0 || i + 1 < at ? GO_ON : first + k);
            n_cut += feed_again(m, texts[i]);
            by_status s = by_matcher_fill_mask(m, mask, NULL);
            long compiled = compiling_at;
            cut_at(GO_ON);
            assert_true(s == BY_OK || s == BY_ETIMEOUT);
            n_cut += s == BY_ETIMEOUT;
            if (k < 0 && rebuilds(g)) at = i + 1, first = compiled;
        }
        if (at > N) fail_msg("the tables were never full");
        if (!want) {
            example here = *e;
            uint32_t min;
            here.text = texts[at - 1];
            want = undisturbed(&here, &min);
        }
        same_mask(m, want, "made again", k);
        same_mask(m, want, "made again, once more", k);
        assert_true(rebuilds(g) >= 1);
        by_matcher_destroy(m);
        by_grammar_release(g);
    }
    assert_true(n_cut >= 3);
    free(want);
    free(mask);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_say_what_is_accepted),
        cmocka_unit_test(a_mask_cut_short_spoils_no_later_one),
        cmocka_unit_test(a_length_cut_short_spoils_no_later_one),
        cmocka_unit_test(masks_in_advance_cut_short_spoil_nothing),
        cmocka_unit_test(a_new_start_cut_short_is_made_up_for),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
