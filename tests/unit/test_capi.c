/* test_capi.c - include/bathyc/engine.h: outputs of many requests, cancelling, stopping, lists, errors. BY_TEST_TIMEOUT=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "bathyc/engine.h"
#include "support/golden.h"

enum { MANY = 12, TOKENS = 10 };

static bathyc_engine *engine;
static bathyc_error error;

static int open_engine(void **state) {
    (void)state;
    bathyc_config c = bathyc_config_default();
    c.model_dir = by_source_path("models/tiny");
    c.threads = 1;
    c.max_num_seqs = 8;
    c.max_batch_rows = 64;
    c.max_model_len = 512;
    engine = bathyc_open(&c, &error);
    if (!engine) print_error("%s\n", error.message);
    return engine ? 0 : -1;
}

static int close_engine(void **state) {
    (void)state;
    bathyc_close(engine);
    return 0;
}

static bathyc_request request(int i) {
    bathyc_request r = bathyc_request_default();
    static const char *const texts[] = {"The cat", "Once upon a time", "What is 2 + 3?", "A"};
    r.text = texts[i % 4];
    r.max_tokens = TOKENS;
    r.seed = (uint64_t)(100 + i);
    r.has_seed = 1;
    r.ignore_eos = 1;
    return r;
}

static void outputs_of_many_requests_equal_a_list_of_results(void **state) {
    (void)state;
    bathyc_request list[MANY];
    bathyc_result want[MANY];
    for (int i = 0; i < MANY; i++) list[i] = request(i);
    assert_int_equal(bathyc_generate(engine, list, MANY, want, &error), BATHYC_OK);

    uint64_t ids[MANY];
    int n_tokens[MANY] = {0}, n_finished = 0, code;
    char texts[MANY][512] = {{0}};
    for (int i = 0; i < MANY; i++) assert_int_equal(bathyc_submit(engine, &list[i], &ids[i], &error), BATHYC_OK);
    bathyc_output out[5];
    size_t n;
    while ((code = bathyc_step(engine, out, 5, &n, 30000, &error)) == BATHYC_OK) {
        for (size_t k = 0; k < n; k++) {
            int i = (int)(out[k].id - ids[0]);
            assert_int_equal(out[k].token, want[i].tokens[n_tokens[i]]);
            assert_memory_equal(&out[k].logprob, &want[i].logprobs[n_tokens[i]], sizeof(float));
            assert_int_equal(out[k].n_output, ++n_tokens[i]);
            assert_int_equal(strlen(out[k].text), out[k].text_bytes);
            strncat(texts[i], out[k].text, sizeof texts[i] - strlen(texts[i]) - 1);
            if (!out[k].finished) continue;
            n_finished++;
            assert_int_equal(out[k].finish, BATHYC_LENGTH);
            assert_int_equal(n_tokens[i], TOKENS);
            assert_string_equal(texts[i], want[i].text);
        }
    }
    assert_int_equal(code, BATHYC_IDLE);
    assert_int_equal(n_finished, MANY);
    for (int i = 0; i < MANY; i++) bathyc_result_free(&want[i]);
}

static void cancelled_and_stopped(void **state) {
    (void)state;
    bathyc_request r = request(0);
    r.max_tokens = 400;
    r.n = r.best_of = 2;
    uint64_t a, b;
    assert_int_equal(bathyc_submit(engine, &r, &a, &error), BATHYC_OK);
    assert_int_equal(bathyc_submit(engine, &r, &b, &error), BATHYC_OK);
    bathyc_output out[8];
    size_t n;
    int code, n_ends = 0;
    bool asked = false;
    while ((code = bathyc_step(engine, out, 8, &n, -1, &error)) == BATHYC_OK) {
        for (size_t k = 0; k < n; k++) {
            if (out[k].finish == BATHYC_RUNNING) continue;
            n_ends++;
            bool stopped = out[k].id == b && out[k].choice == 1;
            assert_int_equal(out[k].finish, stopped ? BATHYC_STOP : BATHYC_CANCELLED);
            assert_true(out[k].n_output < 400);
            if (stopped) assert_int_equal(bathyc_abort(engine, b), BATHYC_OK);
        }
        if (asked) continue;
        asked = true;
        assert_int_equal(bathyc_abort(engine, a), BATHYC_OK);
        assert_int_equal(bathyc_stop(engine, b, 1), BATHYC_OK);
        assert_int_equal(bathyc_stop(engine, b, 2), BATHYC_INVALID);
    }
    assert_int_equal(code, BATHYC_IDLE);
    assert_int_equal(n_ends, 4);
    assert_int_equal(bathyc_abort(engine, a), BATHYC_OK);
    assert_int_equal(bathyc_abort(engine, b + 1000), BATHYC_INVALID);
}

static void alternatives_and_texts(void **state) {
    (void)state;
    bathyc_request r = request(2);
    r.top_logprobs = 4;
    r.temperature = 0;
    uint64_t id;
    assert_int_equal(bathyc_submit(engine, &r, &id, &error), BATHYC_OK);
    bathyc_output out[3];
    size_t n, n_seen = 0;
    while (bathyc_step(engine, out, 3, &n, -1, &error) == BATHYC_OK) {
        for (size_t k = 0; k < n; k++, n_seen++) {
            assert_int_equal(out[k].n_top, 4);
            assert_int_equal(out[k].top[0].token, out[k].token);
            assert_true(out[k].top[0].logprob == out[k].logprob && out[k].top[3].logprob <= out[k].top[0].logprob);
        }
    }
    assert_int_equal(n_seen, TOKENS);
    int32_t *ids;
    char *text;
    size_t n_ids, n_bytes;
    assert_int_equal(bathyc_tokenize(engine, "Hello world", 11, &ids, &n_ids, &error), BATHYC_OK);
    assert_int_equal(bathyc_detokenize(engine, ids, n_ids, &text, &n_bytes, &error), BATHYC_OK);
    assert_string_equal(text, "Hello world");
    bathyc_free(ids);
    bathyc_free(text);
}

static void mistakes_are_named(void **state) {
    (void)state;
    bathyc_request r = bathyc_request_default();
    uint64_t id;
    assert_int_equal(bathyc_submit(engine, &r, &id, &error), BATHYC_INVALID);
    assert_non_null(strstr(error.message, "prompt"));
    int32_t tokens[600] = {5376};
    r.tokens = tokens;
    r.n_tokens = 1;
    assert_int_equal(bathyc_submit(engine, &r, &id, &error), BATHYC_INVALID);
    assert_non_null(strstr(error.message, "5376"));
    tokens[0] = 5;
    r.n_tokens = 600;
    assert_int_equal(bathyc_submit(engine, &r, &id, &error), BATHYC_CONTEXT);
    r.n_tokens = 0;
    assert_int_equal(bathyc_submit(engine, &r, &id, NULL), BATHYC_INVALID);
    bathyc_config c = bathyc_config_default();
    assert_null(bathyc_open(&c, &error));
    assert_non_null(strstr(error.message, "model_dir"));
    c.model_dir = "no/such/folder";
    assert_null(bathyc_open(&c, &error));
    c.backend = "abacus";
    assert_null(bathyc_open(&c, &error));
    assert_non_null(strstr(error.message, "abacus"));
    bathyc_request bad[2] = {request(0), request(1)};
    bathyc_result results[2];
    bad[0].max_tokens = 0;
    assert_int_equal(bathyc_generate(engine, bad, 2, results, &error), BATHYC_INVALID);
    assert_int_equal(results[0].code, BATHYC_INVALID);
    assert_true(results[1].code == BATHYC_OK && results[1].n_tokens == TOKENS);
    for (int i = 0; i < 2; i++) bathyc_result_free(&results[i]);
}

/* What one request with a grammar gives. */
static bathyc_result limited(const char *kind, const char *grammar, const char *options) {
    bathyc_request r = request(1);
    bathyc_result out;
    r.max_tokens = 60;
    r.ignore_eos = 0;
    r.grammar_kind = kind;
    r.grammar = grammar;
    r.grammar_options = options;
    r.close_by_budget = 1;
    bathyc_generate(engine, &r, 1, &out, &error);
    return out;
}

static void a_grammar_limits_the_output(void **state) {
    (void)state;
    static const struct {
        const char *kind, *grammar, *options, *first, *second; /* the two texts there are */
    } rows[] = {
        {"json_schema", "{\"enum\":[true,null]}", NULL, "true", "null"},
        {"json_schema", "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}",
         "{\"whitespace\":\"compact\",\"strict\":true}", "{\"a\":1}", "{\"a\":2}"},
        {"regex", "ab|cd", NULL, "ab", "cd"},
        {"ebnf", "root ::= \"ab\" | \"cd\"", NULL, "ab", "cd"},
        {"lark", "start: \"ab\" | \"cd\"", "{}", "ab", "cd"},
        {"choice", "[\"ab\",\"cd\"]", NULL, "ab", "cd"},
        {"structural_tag", "{\"type\":\"const_string\",\"value\":\"ab\"}", NULL, "ab", "ab"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bathyc_result r = limited(rows[i].kind, rows[i].grammar, rows[i].options);
        if (r.code != BATHYC_OK) fail_msg("row %zu: %s", i, error.message);
        if (strcmp(r.text, rows[i].first) != 0 && strcmp(r.text, rows[i].second) != 0) fail_msg("row %zu: '%s'", i, r.text);
        bathyc_result_free(&r);
    }
    bathyc_result r = limited("json_object", NULL, NULL);
    assert_int_equal(r.code, BATHYC_OK);
    assert_true(r.text[0] == '{' && r.text[strlen(r.text) - 1] == '}'); /* closed in time */
    bathyc_result_free(&r);
}

static void mistakes_in_a_grammar_are_named(void **state) {
    (void)state;
    static const struct {
        const char *kind, *grammar, *options, *part;
    } rows[] = {
        {"yaml", "a", NULL, "yaml"},
        {"regex", NULL, NULL, "missing"},
        {"regex", "a", "{\"colour\":1}", "colour"},
        {"regex", "a(b", NULL, "offset"},
        {"json_schema", "{\"properties\":{\"a\":{\"pattern\":\"(x\"}}}", NULL, "/properties/a/pattern"},
        {"json_schema", "{", NULL, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bathyc_result r = limited(rows[i].kind, rows[i].grammar, rows[i].options);
        if (r.code == BATHYC_OK) fail_msg("row %zu was taken", i);
        if (!strstr(error.message, rows[i].part)) fail_msg("row %zu: %s", i, error.message);
        bathyc_result_free(&r);
    }
}

static void failed_allocations_are_errors(void **state) {
    (void)state;
    bathyc_output out[4];
    size_t n;
    for (int k = 1; k < 60; k++) {
        bathyc_request r = request(k);
        r.max_tokens = 2;
        r.top_logprobs = 2;
        uint64_t id = 0;
        by_alloc_fail_nth(k);
        int code = bathyc_submit(engine, &r, &id, &error);
        while (code == BATHYC_OK) code = bathyc_step(engine, out, 4, &n, 30000, &error);
        by_alloc_fail_nth(0);
        while (code != BATHYC_IDLE) code = bathyc_step(engine, out, 4, &n, 30000, &error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_of_many_requests_equal_a_list_of_results),
        cmocka_unit_test(cancelled_and_stopped),
        cmocka_unit_test(alternatives_and_texts),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_grammar_limits_the_output),
        cmocka_unit_test(mistakes_in_a_grammar_are_named),
        cmocka_unit_test(failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
