/* Unit tests of recipe/answer.h: token streams in the server profile (faults that users of other servers report), counts,
 * life cycle, memory. The parity profile is tested against the original's rows in golden_conform_answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "recipe/answer.h"
#include "support/golden.h"

static by_tok *tok;

typedef struct {
    by_buf reasoning, content, args, log; /* log: one letter per call of the sink */
    by_buf call_ids;
    by_answer_end end;
    by_answer_begin begin;
    int n_deltas;
} record;
static record rec;

static void on_begin(void *ctx, const by_answer_begin *b) {
    (void)ctx;
    rec.begin = *b;
    by_buf_push_byte(&rec.log, 'b');
}
static void on_delta(void *ctx, const by_answer_delta *d) {
    (void)ctx;
    static const char letters[] = "rckx";
    if (rec.log.len == 0 || rec.log.ptr[rec.log.len - 1] != letters[d->d.kind]) by_buf_push_byte(&rec.log, letters[d->d.kind]);
    rec.n_deltas++;
    switch (d->d.kind) {
    case BY_DELTA_REASONING: by_buf_push_str(&rec.reasoning, d->d.text); break;
    case BY_DELTA_CONTENT: by_buf_push_str(&rec.content, d->d.text); break;
    case BY_DELTA_CALL: by_buf_push_str(&rec.call_ids, d->call_id); break;
    case BY_DELTA_ARGS: by_buf_push_str(&rec.args, d->d.text); break;
    }
}
static void on_end(void *ctx, const by_answer_end *e) {
    (void)ctx;
    rec.end = *e;
    by_buf_push_byte(&rec.log, 'e');
}
static const by_answer_sink sink = {.begin = on_begin, .delta = on_delta, .end = on_end};

static void clear(void) {
    by_buf *bufs[] = {&rec.reasoning, &rec.content, &rec.args, &rec.log, &rec.call_ids};
    for (int i = 0; i < 5; i++) by_buf_deinit(bufs[i]);
    rec = (record){0};
}
static int setup(void **state) {
    (void)state;
    clear();
    return 0;
}
static int group_setup(void **state) {
    (void)state;
    return by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, NULL) == BY_OK ? 0 : -1;
}
static int group_teardown(void **state) {
    (void)state;
    clear();
    by_tok_destroy(tok);
    return 0;
}

static by_answer *open_answer(const by_answer_opts *opts) {
    by_answer *a = NULL;
    assert_int_equal(by_answer_create(&a, opts, &sink, NULL), BY_OK);
    return a;
}
static by_answer_opts server_opts(by_stage stage) {
    return (by_answer_opts){.tok = tok, .server = true, .parser = {.parse_calls = true, .stage = stage, .eager = true}};
}
static void push_text_ids(by_answer *a, const char *text) {
    by_tok_ids ids = {0};
    assert_int_equal(by_tok_encode(tok, NULL, by_str_z(text), BY_TOK_FULL, &ids, NULL), BY_OK);
    assert_int_equal(by_answer_tokens(a, ids.ids, ids.n, NULL, 0, NULL), BY_OK);
    by_tok_ids_deinit(&ids);
}
static void assert_buf(by_buf *b, const char *want) { assert_string_equal(by_buf_z(b), want); }
static int32_t added(const char *z) {
    int32_t id = by_tok_find_added(tok, by_str_z(z));
    assert_true(id >= 0);
    return id;
}

/* ---- O8, O20: what a draft may commit ---- */

static void control_tokens_are_not_shown(void **state) {
    (void)state;
    by_answer_opts opts = server_opts(BY_STAGE_NONE);
    by_answer *a = open_answer(&opts);
    push_text_ids(a, "The sky");
    push_text_ids(a, "<｜begin▁of▁sentence｜> is<｜User｜><think> blue<｜latest_reminder｜>.");
    assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
    assert_buf(&rec.content, "The sky is blue.");
    by_answer_destroy(a);

    /* Marks of places in a picture are content. */
    clear();
    a = open_answer(&opts);
    push_text_ids(a, "<｜ref｜>cat<｜/ref｜>");
    assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
    assert_buf(&rec.content, "<｜ref｜>cat<｜/ref｜>");
    by_answer_destroy(a);
}

/* With most_calls the answer ends where a further call would begin, however it comes; what is behind is neither shown nor counted. */
static void a_call_too_many_ends_the_answer(void **state) {
    (void)state;
    static const char first[] = "Two.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                                "<｜DSML｜ parameter name=\"a\" string=\"true\">v</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n";
    static const char rest[] = "name=\"g\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
    by_answer_opts opts = server_opts(BY_STAGE_NONE);
    opts.parser.most_calls = 1;
    for (int text = 0; text < 2; text++) {
        by_answer *a = open_answer(&opts);
        by_buf all = {0};
        by_buf_printf(&all, "%s<｜DSML｜ invoke %s", first, rest);
        if (text) assert_int_equal(by_answer_text(a, by_buf_str(&all), 40, NULL), BY_OK);
        else push_text_ids(a, by_buf_z(&all));
        assert_true(by_answer_finished(a));
        assert_int_equal(rec.end.kind, BY_END_CALLS);
        assert_buf(&rec.content, "Two.");
        assert_buf(&rec.args, "{\"a\": \"v\"}");
        assert_string_equal(by_buf_z(&rec.log), "bckxe");
        by_answer_destroy(a);
        by_buf_deinit(&all);
        clear();
    }
    by_answer *a = open_answer(&opts); /* one call is fine, and ends as ever */
    push_text_ids(a, first);
    assert_false(by_answer_finished(a));
    push_text_ids(a, "</｜DSML｜ calls>");
    assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
    assert_int_equal(rec.end.kind, BY_END_CALLS);
    by_answer_destroy(a);
}

static void an_end_token_cuts_what_follows(void **state) {
    (void)state;
    const int32_t eos = 1;
    by_answer_opts opts = server_opts(BY_STAGE_REASONING_START);
    opts.end_ids = &eos;
    opts.n_end_ids = 1;
    by_answer *a = open_answer(&opts);
    assert_int_equal(by_answer_ready(a, 10, 4, NULL, NULL), BY_OK);
    int32_t x = by_tok_find_bytes(tok, BY_STR("x")), end = added("</think>");
    const int32_t block[] = {x, end, x, eos, x, x}; /* accepted together */
    assert_int_equal(by_answer_tokens(a, block, 6, NULL, 0, NULL), BY_OK);
    assert_int_equal(by_answer_tokens(a, block, 6, NULL, 0, NULL), BY_OK);
    assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
    assert_buf(&rec.reasoning, "x");
    assert_buf(&rec.content, "x");
    assert_int_equal(rec.end.usage.completion_tokens, 4); /* to the end token, with it */
    assert_int_equal(rec.end.usage.reasoning_tokens, 1);
    assert_int_equal(rec.end.usage.prompt_tokens, 10);
    assert_int_equal(rec.end.usage.cached_tokens, 4);
    by_answer_destroy(a);
}

/* A block that ends the answer in the middle of thinking: reasoning never exceeds completion. */
static void reasoning_counts_stay_below_completion(void **state) {
    (void)state;
    const int32_t eos = 1;
    int32_t x = by_tok_find_bytes(tok, BY_STR("x"));
    const int32_t block[] = {x, eos, x, x, x};
    by_answer_opts opts = server_opts(BY_STAGE_REASONING_START);
    opts.end_ids = &eos;
    opts.n_end_ids = 1;
    by_answer *a = open_answer(&opts);
    assert_int_equal(by_answer_tokens(a, block, 5, NULL, 0, NULL), BY_OK);
    assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
    assert_int_equal(rec.end.usage.completion_tokens, 2);
    assert_true(rec.end.usage.reasoning_tokens <= rec.end.usage.completion_tokens);
    by_answer_destroy(a);
}

/* ---- O25: characters over token borders ---- */

static void bytes_of_a_character_over_tokens(void **state) {
    (void)state;
    const char *text = "🧑🏽‍🚀é漢";
    for (int broken = 0; broken < 2; broken++) {
        for (int together = 0; together < 2; together++) {
            clear();
            by_answer_opts opts = server_opts(BY_STAGE_NONE);
            by_answer *a = open_answer(&opts);
            int32_t ids[64];
            size_t n = 0;
            for (const char *c = text; *c; c++) ids[n++] = by_tok_find_bytes(tok, by_str_of(c, 1));
            if (broken) ids[n++] = by_tok_find_bytes(tok, BY_STR("\xe6"));
            for (size_t i = 0; i < n; i += together ? n : 1)
                assert_int_equal(by_answer_tokens(a, ids + i, together ? n : 1, NULL, 0, NULL), BY_OK);
            assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
            by_buf want = {0};
            by_buf_printf(&want, "%s%s", text, broken ? "\xef\xbf\xbd" : "");
            assert_buf(&rec.content, by_buf_z(&want));
            assert_int_equal(rec.end.usage.completion_tokens, n);
            by_buf_deinit(&want);
            by_answer_destroy(a);
        }
    }
}

static void one_delta_per_token_when_asked(void **state) {
    (void)state;
    by_answer_opts opts = server_opts(BY_STAGE_NONE);
    int32_t ids[8];
    for (int i = 0; i < 8; i++) ids[i] = by_tok_find_bytes(tok, BY_STR("x"));
    for (int each = 0; each < 2; each++) {
        clear();
        opts.each_token = each;
        by_answer *a = open_answer(&opts);
        assert_int_equal(by_answer_tokens(a, ids, 8, NULL, 0, NULL), BY_OK);
        assert_int_equal(rec.n_deltas, each ? 8 : 1);
        by_answer_destroy(a);
    }
}

/* Markup counts only as tokens of its own; the model may write about it. */
static void typed_markup_stays_text(void **state) {
    (void)state;
    by_answer_opts opts = server_opts(BY_STAGE_REASONING_START);
    by_answer *a = open_answer(&opts);
    by_tok_ids ids = {0};
    assert_int_equal(by_tok_encode(tok, NULL, BY_STR("write </think> here"), BY_TOK_PLAIN, &ids, NULL), BY_OK);
    assert_int_equal(by_answer_tokens(a, ids.ids, ids.n, NULL, 0, NULL), BY_OK);
    by_tok_ids_deinit(&ids);
    push_text_ids(a, "</think>\n\nok\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                     "<｜DSML｜ parameter name=\"a\" string=\"true\">v</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
    assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
    assert_buf(&rec.reasoning, "write </think> here");
    assert_buf(&rec.content, "ok");
    assert_buf(&rec.args, "{\"a\": \"v\"}");
    assert_int_equal(rec.end.kind, BY_END_CALLS);
    assert_buf(&rec.log, "brckxe");
    by_answer_destroy(a);
}

/* ---- life ---- */

static void calls_out_of_order_are_refused(void **state) {
    (void)state;
    by_err err;
    by_answer_opts opts = {.parser = {.stage = BY_STAGE_NONE}};
    by_answer *a = open_answer(&opts);
    assert_int_equal(by_answer_text(a, BY_STR("a"), 1, NULL), BY_OK);
    assert_int_equal(by_answer_finish(a, BY_REASON_LENGTH, NULL), BY_OK);
    assert_int_equal(rec.end.kind, BY_END_LENGTH);
    assert_true(by_answer_finished(a));
    assert_int_equal(by_answer_text(a, BY_STR("a"), 1, &err), BY_EINVAL);
    assert_string_equal(err.msg, "stream processor has finished");
    assert_int_equal(by_answer_end_input(a, NULL), BY_OK);
    by_answer_close(a);
    assert_int_equal(by_answer_end_input(a, &err), BY_EINVAL);
    assert_string_equal(err.msg, "stream processor is closed");
    by_answer_destroy(a);

    clear();
    a = open_answer(&opts);
    const int32_t id = 5;
    assert_int_equal(by_answer_tokens(a, &id, 1, NULL, 0, &err), BY_EINVAL);
    assert_string_equal(err.msg, "token chunk received without a tokenizer");
    assert_int_equal(by_answer_ready(a, 1, 0, NULL, NULL), BY_EINVAL);
    assert_int_equal(rec.log.len, 0);
    by_answer_destroy(a);
}

static void call_ids_are_a_function_of_the_seed(void **state) {
    (void)state;
    by_buf x = {0}, y = {0}, z = {0};
    uint64_t s = 7, t = 7, u = 8;
    by_answer_call_id(&x, 0, false, &s);
    by_answer_call_id(&y, 0, false, &t);
    by_answer_call_id(&z, 0, false, &u);
    assert_string_equal(by_buf_z(&x), by_buf_z(&y));
    assert_string_not_equal(by_buf_z(&x), by_buf_z(&z));
    assert_int_equal(x.len, strlen("call_00_") + 24);
    by_buf_clear(&y);
    by_answer_call_id(&y, 123, true, &t);
    assert_memory_equal(y.ptr, "call_123_ET_", 12);
    assert_int_not_equal(s, 7); /* the next id is another one */
    by_buf_deinit(&x);
    by_buf_deinit(&y);
    by_buf_deinit(&z);
}

/* ---- log probabilities ---- */

typedef struct {
    int deltas, with;
} logprob_count;

static void no_begin(void *c, const by_answer_begin *b) { (void)c, (void)b; }
static void count_logprobs(void *c, const by_answer_delta *d) {
    logprob_count *n = c;
    n->deltas++;
    n->with += d->has_logprobs;
}
static void no_end(void *c, const by_answer_end *e) { (void)c, (void)e; }

/* In JSON mode the opening bracket of `{"` becomes a delta of its own: two deltas of one token. */
static void a_token_shows_its_log_probability_once(void **state) {
    (void)state;
    for (int server = 0; server < 2; server++) {
        logprob_count n = {0};
        const by_answer_sink sink_of_n = {.ctx = &n, .begin = no_begin, .delta = count_logprobs, .end = no_end};
        by_parser_opts parser = {.json_output = true, .stage = BY_STAGE_NONE};
        by_answer_opts opts = {.tok = tok, .server = server, .parser = parser};
        by_answer *a = NULL;
        by_tok_ids ids = {0};
        by_logprob lp = {.logprob = -0.5f};
        assert_int_equal(by_tok_encode(tok, NULL, BY_STR("{\""), BY_TOK_FULL, &ids, NULL), BY_OK);
        assert_int_equal(ids.n, 1);
        assert_int_equal(by_answer_create(&a, &opts, &sink_of_n, NULL), BY_OK);
        assert_int_equal(by_answer_tokens(a, ids.ids, 1, &lp, 1, NULL), BY_OK);
        assert_int_equal(by_answer_finish(a, BY_REASON_STOP, NULL), BY_OK);
        assert_int_equal(n.deltas, 2);
        assert_int_equal(n.with, server ? 1 : 2);
        by_tok_ids_deinit(&ids);
        by_answer_destroy(a);
    }
}

/* ---- memory ---- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    const by_top_logprob top[] = {{5, -1.5f}, {6, -2.5f}};
    by_str stop = BY_STR("never");
    for (int server = 0; server < 2; server++) {
        for (int n = 1;; n++) {
            clear();
            by_parser_opts parser = {.parse_calls = true, .stops = &stop, .n_stops = 1, .stage = BY_STAGE_REASONING_START};
            by_answer_opts opts = {.tok = tok, .server = server, .parser = parser};
            by_tok_ids ids = {0};
            by_str text = BY_STR("so ne\n\n</think>\n\nanswer neve<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n");
            assert_int_equal(by_tok_encode(tok, NULL, text, BY_TOK_FULL, &ids, NULL), BY_OK);
            int64_t before = by_alloc_bytes_total();
            by_alloc_fail_nth(n);
            by_answer *a = NULL;
            by_status status = by_answer_create(&a, &opts, &sink, NULL);
            for (size_t i = 0; status == BY_OK && i < ids.n; i++) {
                by_logprob lp = {-0.5f, top, 2};
                status = by_answer_tokens(a, ids.ids + i, 1, &lp, 1, NULL);
            }
            if (status == BY_OK) status = by_answer_finish(a, BY_REASON_STOP, NULL);
            by_alloc_fail_nth(0);
            by_answer_destroy(a);
            bool sink_failed = rec.reasoning.failed || rec.content.failed || rec.args.failed || rec.log.failed ||
                               rec.call_ids.failed;
            clear();
            assert_true(by_alloc_bytes_total() <= before);
            by_tok_ids_deinit(&ids);
            if (status == BY_OK && !sink_failed) break;
            if (status != BY_OK) assert_int_equal(status, BY_ENOMEM);
        }
    }
}

static void ignore_begin(void *c, const by_answer_begin *b) { (void)c, (void)b; }
static void ignore_delta(void *c, const by_answer_delta *d) { (void)c, (void)d; }
static void ignore_end(void *c, const by_answer_end *e) { (void)c, (void)e; }

static void steady_state_allocates_nothing(void **state) {
    (void)state;
    const by_answer_sink none = {.begin = ignore_begin, .delta = ignore_delta, .end = ignore_end};
    by_answer_opts opts = server_opts(BY_STAGE_REASONING_START);
    by_answer *a = NULL;
    assert_int_equal(by_answer_create(&a, &opts, &none, NULL), BY_OK);
    by_tok_ids ids = {0};
    assert_int_equal(by_tok_encode(tok, NULL, BY_STR("Some words,\n\n🧑🏽‍🚀 < and </th more\n"), BY_TOK_FULL, &ids, NULL), BY_OK);
    const by_top_logprob top[] = {{5, -1.5f}};
    uint64_t calls = 0;
    for (int round = 0; round < 300; round++) {
        if (round == 20) calls = by_alloc_calls();
        for (size_t i = 0; i < ids.n; i++) {
            by_logprob lp = {-0.5f, top, 1};
            assert_int_equal(by_answer_tokens(a, ids.ids + i, 1, round % 2 ? &lp : NULL, (size_t)(round % 2), NULL), BY_OK);
        }
    }
    assert_int_equal(by_alloc_calls() - calls, 0);
    by_tok_ids_deinit(&ids);
    by_answer_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(control_tokens_are_not_shown, setup),
        cmocka_unit_test_setup(a_call_too_many_ends_the_answer, setup),
        cmocka_unit_test_setup(an_end_token_cuts_what_follows, setup),
        cmocka_unit_test_setup(reasoning_counts_stay_below_completion, setup),
        cmocka_unit_test_setup(bytes_of_a_character_over_tokens, setup),
        cmocka_unit_test_setup(one_delta_per_token_when_asked, setup),
        cmocka_unit_test_setup(typed_markup_stays_text, setup),
        cmocka_unit_test_setup(calls_out_of_order_are_refused, setup),
        cmocka_unit_test_setup(call_ids_are_a_function_of_the_seed, setup),
        cmocka_unit_test_setup(a_token_shows_its_log_probability_once, setup),
        cmocka_unit_test_setup(every_allocation_may_fail, setup),
        cmocka_unit_test_setup(steady_state_allocates_nothing, setup),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
