/* test_batch_users.c - what users of other servers complained about, asked through `bathyc batch`. Names in brackets are items of the
 * list of complaints. BY_TEST_TIMEOUT=600 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "json/json_write.h"
#include "support/golden.h"
#include "support/process.h"
#include "support/random_model.h"
#include "support/seed.h"
#include "support/temp.h"
#include "support/texts.h"
#include "tok/tok.h"

enum { LINES_MAX = 256, FLAGS_MAX = 24 };

static by_arena arena;
#define format(...) by_test_format(&arena, __VA_ARGS__)
static by_rng rng;
static const char *small; /* random weights */
static int n_runs;

/* ---- running ---- */

typedef struct {
    by_buf in;
    int n;
    const by_json *rows[LINES_MAX]; /* by line */
} sheet;

/* Adds a request; its number is its custom_id. */
static int ask(sheet *s, const char *url, const char *body) {
    by_buf_printf(&s->in, "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"%s\",\"body\":%s}\n", s->n, url, body);
    return s->n++;
}

static void run(sheet *s, const char *model, ...) __attribute__((sentinel));
static void run(sheet *s, const char *model, ...) {
    char name[32];
    snprintf(name, sizeof name, "out%d.jsonl", n_runs++);
    const char *out = by_arena_dup(&arena, by_str_z(by_temp_path(name))).ptr;
    const char *argv[FLAGS_MAX] = {BATHYC_PROGRAM, "batch", "-m", model, "--alias", "m", "-i", "-", "-o", out, "--honour-sampling",
                                   "--ram", "400M"};
    va_list ap;
    va_start(ap, model);
    for (int n = 13; n < FLAGS_MAX - 1 && (argv[n] = va_arg(ap, const char *)) != NULL; n++) {
    }
    va_end(ap);
    by_process_opts o = {.input = s->in.ptr, .input_bytes = s->in.len, .limit_s = 300};
    by_process_result r = by_process_run(argv, &o);
    if (r.exit_code != 0 && r.exit_code != 1) by_process_print(&r);
    assert_true(r.exit_code == 0 || r.exit_code == 1);
    by_process_free(&r);
    int n_rows = 0;
    by_str line;
    by_lines *l = by_lines_open(out);
    while (by_lines_next(l, &line)) {
        by_json *row = by_arena_alloc(&arena, sizeof *row);
        by_err err;
        assert_int_equal(by_json_parse(row, &arena, by_arena_dup(&arena, line), NULL, &err), BY_OK);
        int i = atoi(by_arena_dup(&arena, by_json_get(row, "custom_id")->v.s).ptr);
        assert_in_range(i, 0, s->n - 1);
        assert_null(s->rows[i]);
        s->rows[i] = row;
        n_rows++;
    }
    by_lines_close(l);
    assert_int_equal(n_rows, s->n);
    by_buf_deinit(&s->in);
}

static int status_of(const sheet *s, int i) { return (int)by_json_get(by_json_get(s->rows[i], "response"), "status_code")->v.i; }

static const by_json *body_of(const sheet *s, int i) {
    if (status_of(s, i) != 200) {
        by_buf b = {0};
        by_json_write(&b, s->rows[i], BY_JSON_COMPACT);
        fail_msg("%s", by_buf_z(&b));
    }
    return by_json_get(by_json_get(s->rows[i], "response"), "body");
}

static const char *choices(const sheet *s, int i) {
    by_buf b = {0};
    by_json_write(&b, by_json_get(body_of(s, i), "choices"), BY_JSON_COMPACT);
    return by_test_keep(&arena, &b);
}

static const by_json *choice(const sheet *s, int i) { return by_json_at(by_json_get(body_of(s, i), "choices"), 0); }
static by_str text_of(const sheet *s, int i) { return by_json_get(choice(s, i), "text")->v.s; }

static int64_t usage(const sheet *s, int i, const char *details, const char *field) {
    const by_json *u = by_json_get(body_of(s, i), "usage");
    const by_json *v = by_json_get(details ? by_json_get(u, details) : u, field);
    if (!v) fail_msg("usage has no %s", field);
    return v->v.i;
}

static const char *quoted(by_str s) {
    by_buf b = {0};
    by_json_write_string(&b, s);
    return by_test_keep(&arena, &b);
}

static const char *ids_body(const char *lead, int n, const char *more) {
    by_buf b = {0};
    by_buf_printf(&b, "{\"model\":\"m\",\"logprobs\":5%s,\"prompt\":[%s", more, lead);
    for (int i = 0; i < n; i++) by_buf_printf(&b, ",%d", 8 + (int)by_rng_below(&rng, 4000));
    by_buf_push_z(&b, "]}");
    return by_test_keep(&arena, &b);
}

static const char COMPLETIONS[] = "/v1/completions", CHAT[] = "/v1/chat/completions";

/* ---- counts [O23] ---- */

static void usage_says_the_same_in_every_form(void **state) {
    (void)state;
    sheet s = {0};
    const char *words = "nine stones by the river, and then nine more of them by the house; ";
    by_buf b = {0};
    for (int i = 0; i < 12; i++) by_buf_push_z(&b, words);
    const char *text = by_test_keep(&arena, &b);
    for (int i = 0; i < 2; i++) {
        ask(&s, CHAT, format("{\"model\":\"m\",\"max_tokens\":12,\"seed\":5,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text));
        ask(&s, "/v1/responses", format("{\"model\":\"m\",\"max_output_tokens\":12,\"seed\":5,\"input\":\"%s\"}", text));
        ask(&s, "/v1/messages",
            format("{\"model\":\"m\",\"max_tokens\":12,\"seed\":5,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text));
        ask(&s, COMPLETIONS, format("{\"model\":\"m\",\"max_tokens\":12,\"seed\":5,\"prompt\":\"%s\"}", text));
    }
    run(&s, small, "--max-num-seqs", "1", NULL);
    for (int i = 0; i < 8; i += 4) {
        assert_int_equal(usage(&s, i, NULL, "total_tokens"), usage(&s, i, NULL, "prompt_tokens") + usage(&s, i, NULL, "completion_tokens"));
        assert_int_equal(usage(&s, i, NULL, "completion_tokens"), 12);
        assert_in_range(usage(&s, i, "completion_tokens_details", "reasoning_tokens"), 1, 12);
        assert_int_equal(usage(&s, i, NULL, "prompt_tokens"), usage(&s, i + 1, NULL, "input_tokens"));
        assert_int_equal(usage(&s, i + 1, NULL, "output_tokens"), usage(&s, i + 2, NULL, "output_tokens"));
        assert_int_equal(usage(&s, i + 1, "output_tokens_details", "reasoning_tokens"),
                         usage(&s, i, "completion_tokens_details", "reasoning_tokens"));
    }
    assert_int_equal(usage(&s, 0, "prompt_tokens_details", "cached_tokens"), 0);
    assert_true(usage(&s, 4, "prompt_tokens_details", "cached_tokens") >= 128);
    assert_int_equal(usage(&s, 4, "prompt_tokens_details", "cached_tokens"), usage(&s, 5, "input_tokens_details", "cached_tokens"));
    assert_int_equal(usage(&s, 4, "prompt_tokens_details", "cached_tokens"), usage(&s, 6, NULL, "cache_read_input_tokens"));
}

/* ---- stop strings [O24, O26] ---- */

static void stop_strings_end_texts_at_any_place(void **state) {
    (void)state;
    sheet first = {0}, s = {0};
    const char *prompt = "\"model\":\"m\",\"prompt\":\"Once upon a time\",\"temperature\":0,\"max_tokens\":48";
    ask(&first, COMPLETIONS, format("{%s}", prompt));
    run(&first, by_source_path("models/tiny"), NULL);
    by_str text = text_of(&first, 0);
    const int cuts = by_test_scaled(100) >= 100 ? 12 : 4;
    by_str stops[12];
    size_t plain = 0; /* up to the first special token, whose text is one piece for stop strings */
    while (plain < text.len && text.ptr[plain] != '<') plain++;
    assert_true(plain > 60);
    for (int i = 0; i < cuts; i++) {
        size_t at = by_rng_below(&rng, plain - 20), n = 1 + by_rng_below(&rng, 19);
        stops[i] = by_str_of(text.ptr + at, n); /* the model writes ASCII */
        const char *include = i % 2 ? ",\"include_stop_str_in_output\":true" : "";
        ask(&s, COMPLETIONS, format("{%s%s,\"stop\":[\"no such words\",%s]}", prompt, include, quoted(stops[i])));
        ask(&s, COMPLETIONS, format("{%s,\"stop\":[%s]}", prompt, quoted(by_str_z(format("%.*s~never", (int)n, stops[i].ptr)))));
    }
    run(&s, by_source_path("models/tiny"), NULL);
    for (int i = 0; i < cuts; i++) {
        size_t at = (size_t)((const char *)memmem(text.ptr, text.len, stops[i].ptr, stops[i].len) - text.ptr);
        assert_true(by_str_eq(text_of(&s, 2 * i), by_str_take(text, at + (i % 2 ? stops[i].len : 0))));
        assert_true(by_str_eqz(by_json_get(choice(&s, 2 * i), "finish_reason")->v.s, "stop"));
        assert_true(by_str_eq(text_of(&s, 2 * i + 1), text)); /* what was held back comes after all */
    }
}

/* Stop strings are looked for in the answer and not in the reasoning (docs/answers.md). */
static void stop_strings_leave_reasoning_alone(void **state) {
    (void)state;
    sheet first = {0}, s = {0};
    const char *prompt = "\"model\":\"m\",\"temperature\":0,\"max_tokens\":200,"
                         "\"messages\":[{\"role\":\"user\",\"content\":\"What is 345 plus 67?\"}]";
    ask(&first, CHAT, format("{%s}", prompt));
    run(&first, by_source_path("models/tiny"), NULL);
    const by_json *m = by_json_get(choice(&first, 0), "message");
    by_str reasoning = by_json_get(m, "reasoning_content")->v.s, content = by_json_get(m, "content")->v.s;
    assert_true(reasoning.len > 8 && content.len > 2);
    ask(&s, CHAT, format("{%s,\"stop\":[%s]}", prompt, quoted(by_str_of(reasoning.ptr + 2, 5))));
    ask(&s, CHAT, format("{%s,\"stop\":[%s]}", prompt, quoted(by_str_of(content.ptr + 1, content.len - 1))));
    run(&s, by_source_path("models/tiny"), NULL);
    for (int i = 0; i < 2; i++) {
        m = by_json_get(choice(&s, i), "message");
        assert_true(by_str_eq(by_json_get(m, "reasoning_content")->v.s, reasoning));
    }
    const void *early = memmem(content.ptr, content.len, reasoning.ptr + 2, 5);
    size_t n = early ? (size_t)((const char *)early - content.ptr) : content.len;
    assert_true(by_str_eq(by_json_get(by_json_get(choice(&s, 0), "message"), "content")->v.s, by_str_take(content, n)));
    assert_true(by_str_eq(by_json_get(by_json_get(choice(&s, 1), "message"), "content")->v.s, by_str_take(content, 1)));
}

/* ---- bytes over token borders [O25] ---- */

/* logit_bias that leaves only the tokens of single bytes of `text`. */
static const char *only_bytes_of(const char *text) {
    by_tok *tok;
    by_err err;
    by_buf b = {0};
    bool seen[256] = {false};
    assert_int_equal(by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, &err), BY_OK);
    for (const char *p = text; *p; p++) seen[(unsigned char)*p] = true;
    for (int32_t id = 0; id < 4096; id++) {
        by_str bytes = by_tok_bytes(tok, id);
        if (bytes.len == 1 && seen[(unsigned char)bytes.ptr[0]]) by_buf_printf(&b, "%s\"%d\":100", b.len ? "," : "", id);
    }
    by_tok_destroy(tok);
    return by_test_keep(&arena, &b);
}

static void characters_are_never_cut_into_pieces(void **state) {
    (void)state;
    sheet s = {0};
    const char *bias = only_bytes_of("\xf0\x9f\xa7\x91\xf0\x9f\x8f\xbd\xe2\x80\x8d\xf0\x9f\x9a\x80\xc3\xa9\xe6\xbc\xa2");
    const int seeds = by_test_scaled(100) >= 100 ? 12 : 4;
    for (int i = 0; i < seeds; i++)
        ask(&s, CHAT, format("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":\"disabled\"},"
                             "\"seed\":%d,\"max_tokens\":80,\"logprobs\":true,\"ignore_eos\":true,\"logit_bias\":{%s}}", i, bias));
    run(&s, small, NULL);
    int n_whole = 0;
    for (int i = 0; i < seeds; i++) {
        by_buf bytes = {0}, want = {0};
        const by_json *list = by_json_get(by_json_get(choice(&s, i), "logprobs"), "content");
        for (uint32_t k = 0; k < list->n; k++) {
            const by_json *b = by_json_get(&list->v.items[k], "bytes");
            for (uint32_t j = 0; j < b->n; j++) by_buf_push_byte(&bytes, (char)b->v.items[j].v.i);
        }
        assert_int_equal(bytes.len, 80); /* one byte each */
        by_utf8_push_lossy(&want, by_buf_str(&bytes));
        by_str content = by_json_get(by_json_get(choice(&s, i), "message"), "content")->v.s;
        if (!by_str_eq(content, by_buf_str(&want))) fail_msg("seed %d: %.*s instead of %s", i, (int)content.len, content.ptr, by_buf_z(&want));
        for (size_t k = 0; k < content.len; k++) n_whole += (unsigned char)content.ptr[k] == 0xc3;
        by_buf_deinit(&bytes);
        by_buf_deinit(&want);
    }
    assert_true(n_whole > 0); /* some of what came was a character */
}

/* ---- prefix cache [O27, O28] ---- */

static void a_long_prompt_gives_the_same_cold_warm_and_in_company(void **state) {
    (void)state;
    const char *a = ids_body("1", 2899, ",\"max_tokens\":24,\"temperature\":0");
    sheet turns = {0}, together = {0};
    const int n_turns = by_test_scaled(100) >= 100 ? 4 : 2;
    for (int i = 0; i < n_turns; i++) ask(&turns, COMPLETIONS, a);
    run(&turns, small, "--max-num-seqs", "1", NULL);
    ask(&together, COMPLETIONS, ids_body("2", 500, ",\"max_tokens\":40"));
    ask(&together, COMPLETIONS, a);
    ask(&together, COMPLETIONS, ids_body("3", 900, ",\"max_tokens\":30,\"seed\":9"));
    run(&together, small, NULL);
    for (int i = 0; i < n_turns; i++) {
        assert_string_equal(choices(&turns, i), choices(&together, 1));
        assert_in_range(usage(&turns, i, "prompt_tokens_details", "cached_tokens"), i ? 2816 : 0, i ? 2899 : 0);
        assert_int_equal(usage(&turns, i, NULL, "completion_tokens"), 24);
    }
}

static void a_repeated_prompt_of_700_tokens_is_cached(void **state) {
    (void)state;
    sheet s = {0};
    const char *body = ids_body("4", 699, ",\"max_tokens\":2");
    for (int i = 0; i < 2; i++) ask(&s, COMPLETIONS, body);
    run(&s, small, "--max-num-seqs", "1", NULL);
    assert_int_equal(usage(&s, 0, "prompt_tokens_details", "cached_tokens"), 0);
    assert_true(usage(&s, 1, "prompt_tokens_details", "cached_tokens") >= 512);
}

/* ---- token ids in, token ids out ---- */

static int ask_ids(sheet *s, const char *fields) {
    by_buf_printf(&s->in, "{\"custom_id\":\"%d\",%s}\n", s->n, fields);
    return s->n++;
}

/* Completions join the tokens of a character that is cut into pieces; then there are fewer. */
static void same_numbers(const by_json *a, const by_json *b) {
    assert_true(by_json_is(a, BY_JSON_ARRAY) && by_json_is(b, BY_JSON_ARRAY));
    assert_true(a->n <= b->n);
    if (a->n < b->n) return;
    for (uint32_t i = 0; i < a->n; i++) {
        double x = by_json_number(by_json_at(a, i)), y = by_json_number(by_json_at(b, i));
        if (fabs(x - y) > 1e-6 * (1 + fabs(x))) fail_msg("%.9g is not %.9g", x, y);
    }
}

/* The same prompt as a request of Completions: the same draws, so the same log-probabilities and the same text. */
static void lines_of_ids_give_what_completions_give(void **state) {
    (void)state;
    static const char *const settings[] = {
        "\"max_tokens\":9,\"seed\":5", "\"max_tokens\":12,\"temperature\":0,\"ignore_eos\":true",
        "\"max_tokens\":14,\"seed\":3,\"top_p\":0.8,\"top_k\":40,\"min_p\":0.01,\"ignore_eos\":true",
        "\"max_tokens\":14,\"seed\":4,\"frequency_penalty\":1.5,\"presence_penalty\":0.5,\"repetition_penalty\":1.2",
        "\"max_tokens\":10,\"seed\":6,\"logit_bias\":{\"17\":90,\"18\":88}", "\"max_tokens\":6,\"seed\":7,\"n\":3"};
    enum { N = sizeof settings / sizeof settings[0] };
    sheet s = {0};
    by_tok *tok;
    by_err err;
    int n_numbers = 0;
    assert_int_equal(by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, &err), BY_OK);
    for (int i = 0; i < N; i++) {
        const char *ids = format("[%d,9,300,%d]", 10 + i, 40 + i);
        ask(&s, COMPLETIONS, format("{\"model\":\"m\",\"logprobs\":2,\"prompt\":%s,%s}", ids, settings[i]));
        ask_ids(&s, format("\"tokens\":%s,\"logprobs\":2,%s", ids, settings[i]));
    }
    run(&s, small, NULL);
    for (int i = 0; i < N; i++) {
        const by_json *texts = by_json_get(body_of(&s, 2 * i), "choices"), *ids = by_json_get(body_of(&s, 2 * i + 1), "choices");
        assert_int_equal(texts->n, ids->n);
        for (uint32_t k = 0; k < ids->n; k++) {
            const by_json *t = by_json_at(texts, k), *d = by_json_at(ids, k), *tokens = by_json_get(d, "tokens");
            same_numbers(by_json_get(by_json_get(t, "logprobs"), "token_logprobs"), by_json_get(d, "logprobs"));
            assert_int_equal(by_json_get(d, "top_logprobs")->n, tokens->n);
            assert_int_equal(by_json_at(by_json_get(d, "top_logprobs"), 0)->n, 2);
            assert_true(by_str_eq(by_json_get(t, "finish_reason")->v.s, by_json_get(d, "finish_reason")->v.s));
            int32_t list[32];
            for (uint32_t j = 0; j < tokens->n; j++) list[j] = (int32_t)by_json_at(tokens, j)->v.i;
            by_buf text = {0};
            uint32_t n = tokens->n - (list[tokens->n - 1] == 1); /* the end token has no text */
            assert_int_equal(by_tok_decode(tok, list, n, true, &text, &err), BY_OK); /* special tokens are not text */
            if (!by_str_eq(by_buf_str(&text), by_json_get(t, "text")->v.s))
                fail_msg("%s: %s instead of %.*s", settings[i], by_buf_z(&text), BY_STR_ARG(by_json_get(t, "text")->v.s));
            n_numbers += tokens->n == by_json_get(by_json_get(t, "logprobs"), "token_logprobs")->n;
            by_buf_deinit(&text);
        }
        assert_int_equal(usage(&s, 2 * i, NULL, "completion_tokens"), usage(&s, 2 * i + 1, NULL, "completion_tokens"));
    }
    assert_true(n_numbers > 0);
    by_tok_destroy(tok);
}

static void lines_of_ids_have_fields_of_their_own(void **state) {
    (void)state;
    sheet s = {0};
    static const char *const bad[] = {"\"tokens\":[]", "\"tokens\":[5376]", "\"tokens\":[1,\"x\"]", "\"tokens\":7",
                                      "\"tokens\":[9],\"max_token\":3", "\"tokens\":[9],\"temperature\":\"hot\"",
                                      "\"tokens\":[9],\"logit_bias\":{\"x\":1}", "\"tokens\":[9],\"best_of\":1,\"n\":2",
                                      "all tokens banned"};
    static const char *const named[] = {"prompt", "5376", "tokens[1]", "tokens", "max_token", "temperature", "logit_bias", "best_of",
                                        "no token is left"};
    enum { BAD = sizeof bad / sizeof bad[0] };
    by_buf all = {0};
    for (int id = 0; id < 5376; id++) by_buf_printf(&all, "%c%d", id ? ',' : '[', id);
    by_buf_push_byte(&all, ']');
    for (int i = 0; i < BAD; i++) ask_ids(&s, i + 1 < BAD ? bad[i] : format("\"tokens\":[9],\"banned_token_ids\":%s", by_buf_z(&all)));
    by_buf_deinit(&all);
    int late = ask_ids(&s, "\"tokens\":[9,10,11],\"max_tokens\":8000,\"ignore_eos\":true,\"deadline_ms\":1");
    int plain = ask_ids(&s, "\"tokens\":[9,10,11],\"max_tokens\":20,\"temperature\":0,\"ignore_eos\":true");
    int prompt = ask_ids(&s, "\"tokens\":[9,10,11],\"max_tokens\":1,\"temperature\":0,\"prompt_logprobs\":true");
    int best = ask_ids(&s, "\"tokens\":[9,10,11],\"max_tokens\":5,\"seed\":3,\"best_of\":4,\"n\":2");
    run(&s, small, NULL);
    for (int i = 0; i < BAD; i++) {
        const by_json *error = by_json_get(by_json_get(by_json_get(s.rows[i], "response"), "body"), "error");
        assert_int_equal(status_of(&s, i), 400);
        if (!strstr(by_arena_dup(&arena, by_json_get(error, "message")->v.s).ptr, named[i])) fail_msg("%s: not named", bad[i]);
    }
    assert_int_equal(status_of(&s, late), 504);
    assert_int_equal(by_json_get(body_of(&s, prompt), "prompt_logprobs")->n, 3);
    assert_int_equal(by_json_get(body_of(&s, best), "choices")->n, 2);
    const by_json *tokens = by_json_get(choice(&s, plain), "tokens");
    assert_int_equal(tokens->n, 20);
    sheet stops = {0};
    int cut = ask_ids(&stops, format("\"tokens\":[9,10,11],\"max_tokens\":20,\"temperature\":0,\"ignore_eos\":true,\"stop_token_ids\":[%d]",
                                     (int)by_json_at(tokens, 7)->v.i));
    int without = ask_ids(&stops, format("\"tokens\":[9,10,11],\"max_tokens\":20,\"temperature\":0,\"ignore_eos\":true,"
                                         "\"banned_token_ids\":[%d]", (int)by_json_at(tokens, 7)->v.i));
    run(&stops, small, NULL);
    assert_in_range(by_json_get(choice(&stops, cut), "tokens")->n, 1, 8);
    assert_true(by_str_eqz(by_json_get(choice(&stops, cut), "finish_reason")->v.s, "stop"));
    const by_json *others = by_json_get(choice(&stops, without), "tokens");
    for (uint32_t i = 0; i < others->n; i++) assert_true(by_json_at(others, i)->v.i != by_json_at(tokens, 7)->v.i);
}

/* With top_k 20 the 20 alternatives are all of the law, in falling order: what is not likelier than the token is what remains from its
 * place on. */
static void the_mass_that_is_not_likelier_is_reported(void **state) {
    (void)state;
    sheet s = {0}, without = {0};
    const char *fields = "\"tokens\":[9,10,11],\"max_tokens\":60,\"temperature\":1.6,"
                         "\"top_k\":20,\"seed\":4,\"ignore_eos\":true,\"logprobs\":20";
    ask_ids(&s, fields);
    ask_ids(&without, fields);
    run(&s, small, "--sum-smaller-probs", NULL);
    run(&without, small, NULL);
    assert_null(by_json_get(choice(&without, 0), "sum_smaller_probs"));
    const by_json *smaller = by_json_get(choice(&s, 0), "sum_smaller_probs"), *tops = by_json_get(choice(&s, 0), "top_logprobs");
    const by_json *tokens = by_json_get(choice(&s, 0), "tokens");
    assert_int_equal(smaller->n, 60);
    int n_second = 0;
    for (uint32_t i = 0; i < 60; i++) {
        const by_json *top = by_json_at(tops, i);
        double want = 0;
        bool found = false;
        for (uint32_t k = 0; k < top->n; k++) {
            found = found || by_json_get(by_json_at(top, k), "id")->v.i == by_json_at(tokens, i)->v.i;
            if (found) want += exp(by_json_number(by_json_get(by_json_at(top, k), "logprob")));
            else n_second += k == 0;
        }
        assert_true(found && fabs(by_json_number(by_json_at(smaller, i)) - want) < 1e-4 && by_json_number(by_json_at(smaller, i)) <= 1);
    }
    assert_true(n_second > 5); /* tokens that were not the likeliest */
}

/* ---- flags of the engine ---- */

static void flags_of_the_sampler_and_of_the_caches(void **state) {
    (void)state;
    sheet plain = {0}, roomy = {0}, banned = {0}, drawn = {0};
    by_buf lines = {0};
    const int N = by_test_scaled(100) >= 100 ? 6 : 2;
    for (int i = 0; i < N; i++) {
        const char *fields = format("\"tokens\":[9,10,%d],\"max_tokens\":30,\"ignore_eos\":true,\"seed\":%d", 11 + i, i);
        ask_ids(&plain, fields);
        ask_ids(&roomy, fields);
        ask_ids(&banned, fields);
        ask_ids(&drawn, fields);
        by_buf_printf(&lines, "{\"id\":\"%d\",%s}\n", i, fields);
    }
    run(&plain, small, NULL);
    run(&roomy, small, "--backtrack", "20", "--state-slots-ratio", "3", NULL);
    run(&banned, small, "--ban-tokens", "0-2000,3000", "--ban-tokens", "4000-4500", NULL);
    run(&drawn, small, "--sampler", "deepinfer", NULL);
    const char *argv[] = {BATHYC_PROGRAM, "generate", "-m", small, "-i", "-", NULL};
    by_process_result r = by_process_run(argv, &(by_process_opts){.input = lines.ptr, .input_bytes = lines.len, .limit_s = 100});
    assert_int_equal(r.exit_code, 0);
    const char *line = r.out;
    for (int i = 0; i < N; i++, line = strchr(line, '\n') + 1) {
        by_json want;
        by_err err;
        assert_string_equal(choices(&roomy, i), choices(&plain, i));
        const by_json *tokens = by_json_get(choice(&banned, i), "tokens");
        for (uint32_t k = 0; k < tokens->n; k++) {
            int64_t id = by_json_at(tokens, k)->v.i;
            assert_true(id > 2000 && id != 3000 && (id < 4000 || id > 4500));
        }
        assert_int_equal(by_json_parse(&want, &arena, by_str_of(line, strcspn(line, "\n")), NULL, &err), BY_OK);
        by_buf a = {0}, b = {0};
        by_json_write(&a, by_json_get(&want, "tokens"), BY_JSON_COMPACT);
        by_json_write(&b, by_json_get(choice(&drawn, i), "tokens"), BY_JSON_COMPACT);
        assert_string_equal(by_test_keep(&arena, &b), by_test_keep(&arena, &a));
    }
    by_process_free(&r);
    by_buf_deinit(&lines);
    static const char *const bad[] = {"x", "5-", "7-5", "1,,2", "99999", "-1"};
    for (int i = 0; i < 6; i++) {
        const char *wrong[] = {BATHYC_PROGRAM, "batch", "-m", small, "-i", "-", "-o", "-", "--ban-tokens", bad[i], NULL};
        r = by_process_run(wrong, NULL);
        assert_int_equal(r.exit_code, 2);
        by_process_free(&r);
    }
}

/* `run` takes the engine's flags too, and none of these changes an answer. */
static void run_takes_the_flags_of_the_engine(void **state) {
    (void)state;
    static const char *const more[][8] = {{NULL},
                                          {"--no-prefix-cache", "--decoder-trunc", "off", "--no-async"},
                                          {"--prefill-policy", "deadline", "--ram", "200M", "--max-num-seqs", "3"},
                                          {"--swa-restore", "exact-replay", "--chunk", "7", "--state-slots", "2"},
                                          {"-b", "9", "--kv-blocks", "4", "-c", "400", "--bypass-limit", "0"}};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        const char *argv[FLAGS_MAX] = {BATHYC_PROGRAM, "run", "-m", by_source_path("models/tiny"), "-p", "What is 12 plus 30?", "--temp", "0"};
        for (int k = 0; k < 8 && more[i][k]; k++) argv[8 + k] = more[i][k];
        by_process_result r = by_process_run(argv, &(by_process_opts){.limit_s = 60});
        if (r.exit_code != 0) by_process_print(&r);
        assert_int_equal(r.exit_code, 0);
        if (!first) first = by_arena_dup(&arena, by_str_z(r.out)).ptr;
        else assert_string_equal(r.out, first);
        by_process_free(&r);
    }
}

/* Requests that take turns: the second and third wait for the first. */
static void stats_say_where_the_time_went(void **state) {
    (void)state;
    sheet s = {0};
    for (int i = 0; i < 3; i++) ask_ids(&s, format("\"tokens\":[9,10,%d],\"max_tokens\":40,\"ignore_eos\":true,\"seed\":%d", 11 + i, i));
    const char *argv[] = {BATHYC_PROGRAM, "batch", "-m", small, "-i", "-", "-o", "-", "--stats", "--max-num-seqs", "1", NULL};
    by_process_result r = by_process_run(argv, &(by_process_opts){.input = s.in.ptr, .input_bytes = s.in.len, .limit_s = 100});
    static const char *const names[] = {"waiting", "prompt", "until the first token", "from there to the end", "each token"};
    double mean, median, most, longest, waited = 0, shortest = 0;
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.err, "3 requests in "));
    assert_non_null(strstr(r.err, " 9 prompt tokens ("));
    assert_non_null(strstr(r.err, " 120 output tokens ("));
    for (int i = 0; i < 5; i++) {
        const char *at = strstr(r.err, format("  %-22s mean ", names[i]));
        assert_non_null(at);
        assert_int_equal(sscanf(strstr(at, "mean"), "mean %lf  median %lf  90%% %lf", &mean, &median, &most), 3);
        assert_int_equal(sscanf(strstr(at, "longest"), "longest %lf", &longest), 1);
        assert_true(0 <= median && median <= most && most <= longest);
        if (i == 0) waited = longest;
        if (i == 3) shortest = 3 * mean - median - longest;
    }
    assert_true(waited >= shortest); /* the last has waited for two others */
    assert_non_null(strstr(r.err, "steps: "));
    by_process_free(&r);
    by_buf_deinit(&s.in);
}

/* ---- long context [O35] ---- */

enum { LONG_PROMPT = 24000, SLICE = 1000 };

/* The loss of every thousand tokens of a long text is that of the reference implementation, and what is generated behind it by way of
 * long chunks and truncated layers is the same as with all rows. Scaled down: the first slices only. */
static void a_long_text_is_understood_to_its_end(void **state) {
    (void)state;
    static const char *const flags[] = {"--layers", "4", "--experts", "4", "--without-drafts", "--without-vision", "--without-engram",
                                        "--set", "max_position_embeddings=32768", NULL};
    const char *model = by_arena_dup(&arena, by_str_z(by_temp_path("long"))).ptr;
    by_json golden;
    by_buf text = {0}, ids = {0};
    by_err err;
    sheet s = {0};
    int n = by_test_scaled(100) >= 100 ? LONG_PROMPT : 2 * SLICE;
    assert_true(by_random_model(model, flags));
    if (by_json_read_file(&golden, &arena, &text, by_golden_path("long_context/slices.json"), &err) < 0) fail_msg("%s", err.msg);
    uint32_t x = 12345;
    for (int i = 0; i <= n; i++) {
        x = x * 1664525u + 1013904223u;
        by_buf_printf(&ids, "%s%u", i ? "," : "", 8 + (x >> 8) % 5000);
    }
    const char *common = format("\"max_tokens\":4,\"temperature\":0,\"logprobs\":3,\"ignore_eos\":true");
    for (int all = 0; all < 2; all++) {
        by_buf line = {0};
        by_buf_printf(&line, "\"tokens\":[%s],%s,\"prompt_logprobs\":%s", by_buf_z(&ids), common, all ? "true" : "false");
        ask_ids(&s, by_test_keep(&arena, &line));
    }
    run(&s, model, "--numerics", "exact", "--ram", "400M", NULL);
    assert_string_equal(choices(&s, 0), choices(&s, 1));
    const by_json *lp = by_json_get(body_of(&s, 1), "prompt_logprobs"), *want = by_json_get(&golden, "slices");
    assert_int_equal(lp->n, n + 1);
    for (int k = 0; k < n / SLICE; k++) {
        double loss = 0;
        for (int i = 0; i < SLICE; i++) loss -= by_json_number(by_json_at(lp, (uint32_t)(k * SLICE + i + 1)));
        double diff = loss / SLICE - by_json_number(by_json_at(want, (uint32_t)k));
        if (!(fabs(diff) < 1e-3)) fail_msg("tokens %d..: the loss is off by %g", k * SLICE, diff);
    }
    by_buf_deinit(&ids);
    by_buf_deinit(&text);
}

/* ---- load [O33, O34] ---- */

static void load_and_tiny_caches_change_nothing(void **state) {
    (void)state;
    sheet one = {0}, many = {0}, poor = {0};
    int n = by_test_scaled(120);
    for (int i = 0; i < n; i++) {
        int family = (int)by_rng_below(&rng, 12), length = by_rng_below(&rng, 4) ? 20 : 200;
        by_rng was = rng;
        rng = (by_rng){(uint64_t)family + 77}; /* families share their beginnings */
        const char *more = format(",\"max_tokens\":%d,\"seed\":%d,\"temperature\":%d", 1 + i % 23, i, i % 2);
        const char *body = ids_body(format("%d", 10 + family), length, more);
        rng = was;
        ask(&one, COMPLETIONS, body);
        ask(&many, COMPLETIONS, body);
        ask(&poor, COMPLETIONS, body);
    }
    run(&one, small, "--max-num-seqs", "1", "--no-prefix-cache", "--ram", "300M", NULL);
    run(&many, small, "--max-num-seqs", "32", "--ram", "300M", NULL);
    run(&poor, small, "-c", "300", "--max-num-seqs", "16", "-b", "64", "--kv-blocks", "8", "--state-slots", "8", "--ram", "12M",
        "--expect-quantile", "0.01", NULL);
    for (int i = 0; i < n; i++) {
        assert_string_equal(choices(&many, i), choices(&one, i));
        assert_string_equal(choices(&poor, i), choices(&one, i));
    }
}

/* ---- bad numbers [O37] ---- */

static void a_nan_in_an_expert_fails_who_meets_it(void **state) {
    (void)state;
    static const char *const flags[] = {"--layers", "6", "--experts", "32", "--without-drafts", "--without-vision", "--without-engram", NULL};
    const char *good = by_arena_dup(&arena, by_str_z(by_temp_path("good"))).ptr, *bad = by_arena_dup(&arena, by_str_z(by_temp_path("bad"))).ptr;
    assert_true(by_random_model(good, flags) && by_random_model(bad, flags));
    by_random_model_poison(bad, "layers.3.ffn.experts.5.w1.scale", 0);
    enum { N = 48 };
    sheet healthy = {0}, s = {0};
    for (int i = 0; i < N; i++) {
        const char *body = ids_body(format("%d", 10 + i), 1, format(",\"max_tokens\":3,\"seed\":%d", i));
        ask(&healthy, COMPLETIONS, body);
        ask(&s, COMPLETIONS, body);
    }
    run(&healthy, good, NULL);
    run(&s, bad, "--no-check-weights", NULL);
    int n_failed = 0;
    for (int i = 0; i < N; i++) {
        if (status_of(&s, i) == 200) {
            assert_string_equal(choices(&s, i), choices(&healthy, i));
            continue;
        }
        assert_int_equal(status_of(&s, i), 500);
        const by_json *error = by_json_get(by_json_get(by_json_get(s.rows[i], "response"), "body"), "error");
        assert_true(by_str_eqz(by_json_get(error, "code")->v.s, "engine_error"));
        n_failed++;
    }
    assert_in_range(n_failed, 2, N - 2);
}

static int open_all(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_JSON);
    small = by_arena_dup(&arena, by_str_z(by_temp_path("small"))).ptr;
    if (!by_random_model_small(small)) exit(77);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    by_arena_deinit(&arena);
    return 0;
}

int main(void) {
    rng = by_test_rng(20261205);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_says_the_same_in_every_form),
        cmocka_unit_test(stop_strings_end_texts_at_any_place),
        cmocka_unit_test(stop_strings_leave_reasoning_alone),
        cmocka_unit_test(characters_are_never_cut_into_pieces),
        cmocka_unit_test(a_long_prompt_gives_the_same_cold_warm_and_in_company),
        cmocka_unit_test(a_repeated_prompt_of_700_tokens_is_cached),
        cmocka_unit_test(lines_of_ids_give_what_completions_give),
        cmocka_unit_test(lines_of_ids_have_fields_of_their_own),
        cmocka_unit_test(the_mass_that_is_not_likelier_is_reported),
        cmocka_unit_test(flags_of_the_sampler_and_of_the_caches),
        cmocka_unit_test(run_takes_the_flags_of_the_engine),
        cmocka_unit_test(stats_say_where_the_time_went),
        cmocka_unit_test(a_long_text_is_understood_to_its_end),
        cmocka_unit_test(load_and_tiny_caches_change_nothing),
        cmocka_unit_test(a_nan_in_an_expert_fails_who_meets_it),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
