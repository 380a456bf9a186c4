/* test_service.c - API requests on the engine, on a small random model: what users complained about elsewhere. Names in
 * brackets are items of the list of complaints. BY_TEST_TIMEOUT=600 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "json/json_write.h"
#include "service/service.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/seed.h"
#include "support/temp.h"
#include "support/texts.h"

enum { MANY = 256, VOCAB = 5376, BAD_TOKEN = 7 };

static by_service *service;
static by_arena arena;
#define format(...) by_test_format(&arena, __VA_ARGS__)
static by_rng rng;
static by_err err;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

/* ---- the model ---- */

static by_service *open_service(const char *folder, bool check_weights) {
    static const char *const names[] = {"m"};
    by_service_opts o = {.engine = by_engine_opts_default(), .names = names, .n_names = 1};
    by_api_options_init(&o.api);
    o.engine.model_dir = folder;
    o.engine.model.check_weights = check_weights;
    o.engine.device.n_threads = 1;
    o.engine.max_context = 3200;
    o.engine.sched.max_rows = 512;
    o.engine.ram_bytes = 512 << 20;
    by_service *s;
    check(by_service_open(&s, &o, &err));
    return s;
}

/* ---- calls ---- */

typedef struct {
    by_call *call;
    by_buf events, body;
    by_answer_usage usage;
    const by_json *whole; /* NULL: there was a problem */
    by_call_problem problem;
} answer;

static void on_event(void *ctx, const char *name, by_str json) {
    answer *a = ctx;
    (void)name;
    by_buf_clear(&a->events); /* the last one is enough */
    by_buf_push_str(&a->events, json);
}

static const by_json *parse(by_str text) {
    by_json *v = by_arena_alloc(&arena, sizeof *v);
    check(by_json_parse(v, &arena, by_arena_dup(&arena, text), NULL, &err));
    return v;
}

static void start(by_service *s, answer *a, by_api_kind api, const char *body, bool stream) {
    *a = (answer){0};
    by_call_opts o = {.api = api, .body = by_str_z(body), .whole = !stream, .usage_place = BY_API_USAGE_OWN_EVENT};
    if (stream) {
        o.on_event = on_event;
        o.ctx = a;
    }
    by_call_start(&a->call, s, &o, &err);
    assert_non_null(a->call);
}

static void end(answer *a, bool stream) {
    by_status status;
    while ((status = by_call_pump(a->call, 60000, &err)) == BY_AGAIN) {
    }
    assert_int_equal(status, BY_END);
    a->usage = by_call_usage(a->call);
    const by_call_problem *p = by_call_problem_get(a->call);
    if (p) {
        a->problem = *p;
    } else if (stream) {
        a->whole = parse(by_buf_str(&a->events));
    } else {
        check(by_call_write_whole(a->call, &a->body, &err));
        a->whole = parse(by_buf_str(&a->body));
    }
    by_call_destroy(a->call);
    by_buf_deinit(&a->events);
    by_buf_deinit(&a->body);
}

static answer run(by_service *s, by_api_kind api, const char *body, bool stream) {
    answer a;
    start(s, &a, api, body, stream);
    end(&a, stream);
    return a;
}

static const char *text_of(const by_json *v) {
    by_buf b = {0};
    if (v) by_json_write(&b, v, BY_JSON_COMPACT);
    return by_test_keep(&arena, &b);
}

/* Choices with texts and log-probabilities: equal texts mean equal ids and equal bits as far as decimals show. */
static const char *choices_of(const answer *a) {
    if (!a->whole) fail_msg("no answer: %s", a->problem.message);
    return text_of(by_json_get(a->whole, "choices"));
}

/* A Completions body with n random ids behind `lead`; more: further members. */
static const char *ids_body(const char *lead, int n, const char *more) {
    by_buf b = {0};
    by_buf_printf(&b, "{\"model\":\"m\",\"logprobs\":3%s,\"prompt\":[%s", more, lead);
    for (int i = 0; i < n; i++) by_buf_printf(&b, "%s%d", i || lead[0] ? "," : "", 8 + (int)by_rng_below(&rng, 4000));
    by_buf_push_z(&b, "]}");
    return by_test_keep(&arena, &b);
}

static const char *words(int n) {
    static const char *const list[] = {"river", "nine", "the", "of", "stone", "and", "house", "light", "was", "green"};
    by_buf b = {0};
    for (int i = 0; i < n; i++) by_buf_printf(&b, "%s ", list[by_rng_below(&rng, 10)]);
    return by_test_keep(&arena, &b);
}

/* ---- usage [O23] ---- */

static void streams_and_whole_answers_count_alike(void **state) {
    (void)state;
    const char *text = words(300);
    static const by_api_kind apis[] = {BY_API_CHAT, BY_API_CHAT, BY_API_RESPONSES, BY_API_MESSAGES, BY_API_COMPLETIONS};
    static const char *const bodies[] = {
        "{\"model\":\"m\",\"seed\":5,\"max_tokens\":12,%s\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
        ("{\"model\":\"m\",\"seed\":5,\"max_tokens\":12,\"n\":3,\"thinking\":{\"type\":\"disabled\"},%s"
         "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}"),
        "{\"model\":\"m\",\"seed\":5,\"max_output_tokens\":12,%s\"input\":\"%s\"}",
        "{\"model\":\"m\",\"seed\":5,\"max_tokens\":12,%s\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
        "{\"model\":\"m\",\"seed\":5,\"max_tokens\":12,%s\"prompt\":\"%s\"}"};
    for (int i = 0; i < 5; i++) {
        bool choices = apis[i] == BY_API_CHAT || apis[i] == BY_API_COMPLETIONS;
        const char *stream = choices ? "\"stream\":true,\"stream_options\":{\"include_usage\":true}," : "\"stream\":true,";
        answer cold = run(service, apis[i], format(bodies[i], "", text), false);
        answer whole = run(service, apis[i], format(bodies[i], "", text), false);
        answer streamed = run(service, apis[i], format(bodies[i], stream, text), true);
        assert_non_null(whole.whole);
        assert_true(cold.usage.prompt_tokens == whole.usage.prompt_tokens && whole.usage.cached_tokens >= 256);
        assert_memory_equal(&whole.usage, &streamed.usage, sizeof whole.usage);
        assert_int_equal(whole.usage.completion_tokens, i == 1 ? 36 : 12);
        assert_true(whole.usage.reasoning_tokens <= whole.usage.completion_tokens);
        if (i == 0) assert_true(whole.usage.reasoning_tokens > 0);
        if (choices && i != 1) { /* with several choices each has its own counts at the end */
            assert_string_equal(text_of(by_json_get(whole.whole, "usage")), text_of(by_json_get(streamed.whole, "usage")));
            assert_int_equal(by_json_get(streamed.whole, "choices")->n, 0);
        }
    }
}

/* ---- prefix cache [O27, O28] ---- */

static void a_long_prompt_gives_the_same_cold_warm_and_in_company(void **state) {
    (void)state;
    const char *a = ids_body("1", 2899, ",\"max_tokens\":24,\"temperature\":0");
    const char *b = ids_body("2", 500, ",\"max_tokens\":40"), *c = ids_body("3", 900, ",\"max_tokens\":30,\"seed\":9");
    answer cold = run(service, BY_API_COMPLETIONS, a, false);
    const char *want = choices_of(&cold);
    assert_int_equal(cold.usage.cached_tokens, 0);
    assert_int_equal(cold.usage.completion_tokens, 24);
    for (int i = 0; i < 3; i++) {
        answer warm = run(service, BY_API_COMPLETIONS, a, false);
        assert_true(warm.usage.cached_tokens >= 2816 && warm.usage.cached_tokens < 2900);
        assert_string_equal(choices_of(&warm), want);
    }
    answer others[3];
    start(service, &others[0], BY_API_COMPLETIONS, b, false);
    start(service, &others[1], BY_API_COMPLETIONS, a, false);
    start(service, &others[2], BY_API_COMPLETIONS, c, false);
    for (int i = 0; i < 3; i++) end(&others[i], false);
    assert_string_equal(choices_of(&others[1]), want);
}

static void a_repeated_prompt_of_700_tokens_is_cached(void **state) {
    (void)state;
    const char *body = ids_body("4", 699, ",\"max_tokens\":2");
    answer first = run(service, BY_API_COMPLETIONS, body, false), second = run(service, BY_API_COMPLETIONS, body, false);
    assert_int_equal(first.usage.cached_tokens, 0);
    assert_true(second.usage.cached_tokens >= 512);
    const by_json *details = by_json_get(by_json_get(second.whole, "usage"), "prompt_tokens_details");
    assert_int_equal(by_json_get(details, "cached_tokens")->v.i, second.usage.cached_tokens);
}

/* ---- company [O34] ---- */

static void strangers_change_nothing(void **state) {
    (void)state;
    static const int counts[] = {1, 7, 31, 255};
    const char *mine[] = {ids_body("5", 60, ",\"max_tokens\":20,\"temperature\":0"), ids_body("6", 33, ",\"max_tokens\":20,\"seed\":77")};
    static answer others[MANY];
    for (int k = 0; k < 2; k++) {
        answer alone = run(service, BY_API_COMPLETIONS, mine[k], false);
        const char *want = choices_of(&alone);
        for (int i = 0; i < 4; i++) {
            int at = (int)by_rng_below(&rng, (uint64_t)counts[i]);
            answer me;
            for (int j = 0; j < counts[i]; j++) {
                if (j == at) start(service, &me, BY_API_COMPLETIONS, mine[k], false);
                const char *body = ids_body("", 2 + (int)by_rng_below(&rng, 12), format(",\"max_tokens\":%d", 1 + (int)by_rng_below(&rng, 9)));
                start(service, &others[j], BY_API_COMPLETIONS, body, false);
            }
            end(&me, false);
            for (int j = 0; j < counts[i]; j++) end(&others[j], false);
            assert_string_equal(choices_of(&me), want);
        }
    }
}

/* ---- choices, log-probabilities, stop strings ---- */

static double mean_logprob(const by_json *choice) {
    const by_json *list = by_json_get(by_json_get(choice, "logprobs"), "token_logprobs");
    double sum = 0;
    for (uint32_t i = 0; i < list->n; i++) sum += by_json_number(&list->v.items[i]);
    return sum / list->n;
}

static void choices_have_seeds_of_their_own(void **state) {
    (void)state;
    answer all = run(service, BY_API_COMPLETIONS,
                     "{\"model\":\"m\",\"prompt\":\"river\",\"seed\":40,\"n\":4,\"max_tokens\":9,\"logprobs\":0}", false);
    const by_json *choices = by_json_get(all.whole, "choices");
    assert_int_equal(choices->n, 4);
    int best = 0;
    for (int i = 0; i < 4; i++) {
        const by_json *c = by_json_at(choices, (size_t)i);
        answer one = run(service, BY_API_COMPLETIONS,
                         format("{\"model\":\"m\",\"prompt\":\"river\",\"seed\":%d,\"max_tokens\":9,\"logprobs\":0}", 40 + i), false);
        const by_json *o = by_json_at(by_json_get(one.whole, "choices"), 0);
        assert_int_equal(by_json_get(c, "index")->v.i, i);
        assert_string_equal(text_of(by_json_get(c, "text")), text_of(by_json_get(o, "text")));
        assert_string_equal(text_of(by_json_get(c, "logprobs")), text_of(by_json_get(o, "logprobs")));
        if (mean_logprob(c) > mean_logprob(by_json_at(choices, (size_t)best))) best = i;
    }
    answer top = run(service, BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"river\",\"seed\":40,\"best_of\":4,\"max_tokens\":9}", false);
    assert_int_equal(by_json_get(top.whole, "choices")->n, 1);
    assert_string_equal(text_of(by_json_get(by_json_at(by_json_get(top.whole, "choices"), 0), "text")),
                        text_of(by_json_get(by_json_at(choices, (size_t)best), "text")));
}

/* At temperature 0 too: none is exactly 0, and the best alternatives are probabilities. */
static void log_probabilities_are_those_of_a_distribution(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        answer a = run(service, BY_API_CHAT,
                       format("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"stone\"}],\"thinking\":{\"type\":\"disabled\"},"
                              "\"temperature\":%d,\"seed\":3,\"max_tokens\":20,\"logprobs\":true,\"top_logprobs\":20}", t), false);
        assert_non_null(a.whole);
        const by_json *list = by_json_get(by_json_get(by_json_at(by_json_get(a.whole, "choices"), 0), "logprobs"), "content");
        assert_true(list->n >= 10);
        for (uint32_t i = 0; i < list->n; i++) {
            const by_json *top = by_json_get(&list->v.items[i], "top_logprobs");
            double own = by_json_number(by_json_get(&list->v.items[i], "logprob")), sum = 0, last = 0;
            assert_int_equal(top->n, 20);
            assert_true(own < 0 && own > -50);
            for (uint32_t k = 0; k < top->n; k++) {
                double lp = by_json_number(by_json_get(&top->v.items[k], "logprob"));
                assert_true(lp <= last);
                last = lp;
                sum += exp(lp);
            }
            assert_true(sum > 0 && sum < 1.00001);
            if (t == 0) assert_true(own == by_json_number(by_json_get(&top->v.items[0], "logprob")));
        }
    }
}

/* lists: of a choice's logprobs, all as long as its tokens. */
static const by_json *lists_of(const answer *a, const char *key) {
    if (!a->whole) fail_msg("no answer: %s", a->problem.message);
    return by_json_get(by_json_get(by_json_at(by_json_get(a->whole, "choices"), 0), "logprobs"), key);
}

/* The echo of a prompt has its tokens' log-probabilities: what the model says of them when it is asked to go on from in front
 * of each, which a second way tells. */
static void an_echoed_prompt_is_scored(void **state) {
    (void)state;
    static const int ids[] = {5, 40, 900, 41, 77};
    answer a = run(service, BY_API_COMPLETIONS,
                   "{\"model\":\"m\",\"prompt\":[5,40,900,41,77],\"echo\":true,\"logprobs\":2,\"temperature\":0,\"max_tokens\":0}", false);
    const by_json *tokens = lists_of(&a, "tokens"), *lps = lists_of(&a, "token_logprobs"), *tops = lists_of(&a, "top_logprobs");
    const by_json *offsets = lists_of(&a, "text_offset");
    assert_int_equal(tokens->n, 5);
    assert_int_equal(lps->v.items[0].type, BY_JSON_NULL);
    assert_int_equal(tops->v.items[0].type, BY_JSON_NULL);
    assert_int_equal(a.usage.completion_tokens, 0);
    assert_string_equal(text_of(by_json_get(by_json_at(by_json_get(a.whole, "choices"), 0), "finish_reason")), "\"length\"");
    int64_t at = 0;
    uint32_t n_compared = 0;
    by_buf so_far = {0}, shown = {0};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(offsets->v.items[i].v.i, at);
        by_str bytes = by_tok_bytes(by_service_tok(service), ids[i]);
        by_buf_push_str(&so_far, bytes);
        by_buf_clear(&shown);
        by_utf8_push_lossy(&shown, by_buf_str(&so_far));
        at = (int64_t)by_utf8_count(by_buf_str(&shown));
        if (i == 0) continue;
        const by_json *mine = &tops->v.items[i], *own = NULL;
        for (uint32_t k = 0; k < mine->n; k++)
            if (by_str_eq(mine->v.members[k].key, tokens->v.items[i].v.s)) own = &mine->v.members[k].value;
        assert_non_null(own);
        assert_true(by_json_number(own) == by_json_number(&lps->v.items[i]));
        if (memmem(mine->v.members[0].key.ptr, mine->v.members[0].key.len, "｜", 3)) continue; /* the answer drops it, and its entry */
        n_compared++;
        by_buf b = {0};
        by_buf_push_z(&b, "{\"model\":\"m\",\"max_tokens\":6,\"logprobs\":2,\"temperature\":0,\"prompt\":[");
        for (uint32_t k = 0; k < i; k++) by_buf_printf(&b, "%s%d", k ? "," : "", ids[k]);
        by_buf_push_z(&b, "]}");
        answer next = run(service, BY_API_COMPLETIONS, by_test_keep(&arena, &b), false);
        const by_json *best = by_json_at(lists_of(&next, "top_logprobs"), 0);
        for (uint32_t k = 0; k < 2; k++) {
            assert_true(by_str_eq(best->v.members[k].key, mine->v.members[k].key));
            double d = by_json_number(&best->v.members[k].value) - by_json_number(&mine->v.members[k].value);
            assert_true(fabs(d) < 1e-3);
        }
    }
    by_buf_deinit(&so_far);
    by_buf_deinit(&shown);
    assert_true(n_compared > 1);
}

/* A text: its begin token is not echoed. Streamed chunks say the same as the whole, and offsets go on behind the prompt. */
static void offsets_count_the_echo(void **state) {
    (void)state;
    const char *body = "{\"model\":\"m\",\"prompt\":\"river stone\",\"echo\":true,\"logprobs\":1,\"max_tokens\":3,\"min_tokens\":3,"
                       "\"temperature\":0}";
    answer a = run(service, BY_API_COMPLETIONS, body, false);
    const by_json *tokens = lists_of(&a, "tokens"), *offsets = lists_of(&a, "text_offset"), *lps = lists_of(&a, "token_logprobs");
    assert_int_equal(tokens->n, offsets->n);
    assert_int_equal(offsets->v.items[0].v.i, 0);
    by_tok_ids ids = {0};
    check(by_tok_encode(by_service_tok(service), NULL, BY_STR("river stone"), BY_TOK_PLAIN, &ids, &err));
    assert_true(tokens->n > ids.n);
    assert_int_equal(offsets->v.items[ids.n].v.i, 11);
    by_tok_ids_deinit(&ids);
    for (uint32_t i = 1; i < lps->n; i++) assert_true(by_json_number(&lps->v.items[i]) < 0);
    a = run(service, BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":0}", false);
    assert_non_null(strstr(a.problem.message, "max_tokens: 0"));
    a = run(service, BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true,\"logprobs\":1}", false);
    assert_non_null(strstr(a.problem.message, "echo with logprobs"));
}

/* vLLM's prompt_logprobs says what the echo of the same prompt says, with ranks: those of the alternatives are 1, 2, 3, and the token's
 * own is theirs where it is among them and higher where it is not. */
static void prompt_logprobs_equal_the_echo(void **state) {
    (void)state;
    const char *ask = "{\"model\":\"m\",\"prompt\":[7,100,200,300,5],\"max_tokens\":1,\"temperature\":0,%s}";
    char body[200];
    snprintf(body, sizeof body, ask, "\"echo\":true,\"logprobs\":0");
    answer a = run(service, BY_API_COMPLETIONS, body, false);
    const by_json *want = lists_of(&a, "token_logprobs");
    snprintf(body, sizeof body, ask, "\"prompt_logprobs\":3");
    answer b = run(service, BY_API_COMPLETIONS, body, false);
    const by_json *got = by_json_get(by_json_at(by_json_get(b.whole, "choices"), 0), "prompt_logprobs");
    static const char *const ids[] = {"7", "100", "200", "300", "5"};
    assert_int_equal(got->n, 5);
    assert_int_equal(got->v.items[0].type, BY_JSON_NULL);
    for (uint32_t i = 1; i < 5; i++) {
        const by_json *row = &got->v.items[i], *own = by_json_get(row, ids[i]);
        assert_true(by_json_number(by_json_get(own, "logprob")) == by_json_number(&want->v.items[i]));
        int64_t rank = by_json_get(own, "rank")->v.i;
        assert_int_equal(row->n, rank > 3 ? 4 : 3);
        double sum = 0;
        for (uint32_t k = 0; k < row->n; k++) {
            const by_json *other = &row->v.members[k].value;
            int64_t r = by_json_get(other, "rank")->v.i;
            assert_true(by_json_get(other, "decoded_token") && (r <= 3 || other == own));
            sum += (double)(r <= 3 ? r : 0);
        }
        assert_true(sum == 6);
    }
    a = run(service, BY_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
                               "\"prompt_logprobs\":0}", false);
    int64_t n = by_json_get(by_json_get(a.whole, "usage"), "prompt_tokens")->v.i;
    assert_int_equal(by_json_get(a.whole, "prompt_logprobs")->n, n);
    a = run(service, BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"prompt_logprobs\":1,\"stream\":true}", true);
    assert_non_null(strstr(a.problem.message, "prompt_logprobs: not together with stream"));
}

/* OpenAI: up to k + 1 entries. */
static void a_sampled_token_is_among_its_alternatives(void **state) {
    (void)state;
    answer a = run(service, BY_API_COMPLETIONS,
                   "{\"model\":\"m\",\"prompt\":\"river\",\"logprobs\":1,\"temperature\":2,\"seed\":5,\"max_tokens\":20,\"ignore_eos\":true}",
                   false);
    const by_json *tokens = lists_of(&a, "tokens"), *tops = lists_of(&a, "top_logprobs");
    uint32_t n_two = 0;
    for (uint32_t i = 0; i < tokens->n; i++) {
        const by_json *t = &tops->v.items[i];
        assert_true(t->n == 1 || t->n == 2);
        n_two += t->n == 2;
        bool found = false;
        for (uint32_t k = 0; k < t->n; k++) found |= by_str_eq(t->v.members[k].key, tokens->v.items[i].v.s);
        assert_true(found);
    }
    assert_true(n_two > 0);
}

static void a_stop_string_ends_the_text_in_front_of_it(void **state) {
    (void)state;
    answer a = run(service, BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"river\",\"temperature\":0,\"max_tokens\":40}", false);
    by_str text = by_json_get(by_json_at(by_json_get(a.whole, "choices"), 0), "text")->v.s;
    size_t at = text.len / 2;
    while (at > 0 && (text.ptr[at] & 0xc0) == 0x80) at--;
    size_t to = at + 5;
    while (to < text.len && (text.ptr[to] & 0xc0) == 0x80) to++;
    by_str stop = by_str_of(text.ptr + at, to - at);
    by_buf q = {0};
    by_json_write_string(&q, stop);
    answer b = run(service, BY_API_COMPLETIONS,
                   format("{\"model\":\"m\",\"prompt\":\"river\",\"temperature\":0,\"max_tokens\":40,\"stop\":[%s]}", by_buf_z(&q)), false);
    const by_json *choice = by_json_at(by_json_get(b.whole, "choices"), 0);
    size_t first = (size_t)((const char *)memmem(text.ptr, text.len, stop.ptr, stop.len) - text.ptr);
    assert_true(by_str_eq(by_json_get(choice, "text")->v.s, by_str_take(text, first)));
    assert_true(by_str_eqz(by_json_get(choice, "finish_reason")->v.s, "stop"));
    assert_true(b.usage.completion_tokens < 40);
    by_buf_deinit(&q);
}

static void end_rules_of_a_request(void **state) {
    (void)state;
    answer a = run(service, BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"logit_bias\":{\"1\":100},\"max_tokens\":9}", false);
    assert_int_equal(a.usage.completion_tokens, 1); /* the end token at once */
    a = run(service, BY_API_COMPLETIONS,
            "{\"model\":\"m\",\"prompt\":\"a\",\"logit_bias\":{\"1\":100},\"max_tokens\":9,\"ignore_eos\":true}", false);
    assert_int_equal(a.usage.completion_tokens, 9);
    a = run(service, BY_API_COMPLETIONS,
            "{\"model\":\"m\",\"prompt\":\"a\",\"logit_bias\":{\"1\":100},\"max_tokens\":9,\"min_tokens\":4}", false);
    assert_int_equal(a.usage.completion_tokens, 5);
    a = run(service, BY_API_COMPLETIONS,
            "{\"model\":\"m\",\"prompt\":\"a\",\"logit_bias\":{\"300\":100},\"max_tokens\":9,\"stop_token_ids\":[300]}", false);
    assert_int_equal(a.usage.completion_tokens, 1);
    assert_string_equal(text_of(by_json_get(by_json_at(by_json_get(a.whole, "choices"), 0), "text")), "\"\"");
}

/* ---- refusals ---- */

static void refusals_name_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        by_api_kind api;
        const char *body, *code, *words, *param;
    } rows[] = {
        {BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":3200}", "context_length_exceeded", "3200", "prompt"},
        {BY_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":3200}",
         "context_length_exceeded", "3200", "messages"},
        {BY_API_RESPONSES, "{\"model\":\"m\",\"input\":\"a\",\"max_output_tokens\":3200}", "context_length_exceeded", "3200", "input"},
        {BY_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":"
                      "\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}}}}",
         "grammar_error", "response_format: ", "response_format.json_schema.schema"},
        {BY_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"guided_regex\":\"(\"}",
         "grammar_error", "guided_regex: ", "guided_regex"},
        {BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[5376]}", "invalid_value", "prompt[0]: 5376", "prompt"},
        {BY_API_COMPLETIONS, "{\"model\":\"x\",\"prompt\":\"a\"}", "model_not_found", "names are m, but you passed x.", "model"},
        {BY_API_CHAT, "{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "model_not_found", "you passed x.", "model"},
        {BY_API_RESPONSES, "{\"model\":\"x\",\"input\":\"a\"}", "model_not_found", "you passed x.", "model"},
        {BY_API_MESSAGES, "{\"model\":\"x\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
         "model_not_found", "you passed x.", "model"},
        {BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"n\":100}", "invalid_value", "best_of", "n"},
        {BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"n\":3,\"best_of\":2}", "invalid_value", "best_of", "best_of"},
        {BY_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"stop_token_ids\":[5376]}", "invalid_value", "stop_token_ids",
         "stop_token_ids"},
        {BY_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
                      "{\"url\":\"https://a.b/c.png\"}}]}]}", "unsupported", "image", "messages"},
        {BY_API_CHAT, "{\"model\":", "invalid_request_error", "", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        answer a = run(service, rows[i].api, rows[i].body, false);
        if (a.whole) fail_msg("row %zu has an answer", i);
        int status = strcmp(rows[i].code, "model_not_found") == 0 ? 404 : 400;
        if (a.problem.http_status != status || strcmp(a.problem.code, rows[i].code) != 0 || !strstr(a.problem.message, rows[i].words) ||
            strcmp(a.problem.param, rows[i].param) != 0)
            fail_msg("row %zu: %d, %s, %s, %s", i, a.problem.http_status, a.problem.code, a.problem.param, a.problem.message);
    }
}

static void no_failed_allocation_reaches_beyond_its_call(void **state) {
    (void)state;
    const char *body = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"stone\"}],\"n\":2,\"max_tokens\":4,\"seed\":1,"
                       "\"logprobs\":true,\"top_logprobs\":2}";
    answer good = run(service, BY_API_CHAT, body, false);
    const char *want = choices_of(&good);
    int n_failed = 0, step = by_test_scaled(100) >= 100 ? 1 : 7;
    for (int n = 1; n < 160; n += step) {
        by_call *call = NULL;
        by_buf out = {0};
        by_call_opts o = {.api = BY_API_CHAT, .body = by_str_z(body), .whole = true};
        by_alloc_fail_nth(n);
        by_status status = by_call_start(&call, service, &o, &err);
        while (status >= 0 && (status = by_call_pump(call, 60000, &err)) == BY_AGAIN) {
        }
        bool failed = !call || by_call_problem_get(call);
        if (!failed) failed = by_call_write_whole(call, &out, &err) < 0;
        by_alloc_fail_nth(0);
        n_failed += failed;
        if (call && by_call_problem_get(call)) assert_true(by_call_problem_get(call)->http_status >= 500);
        by_call_destroy(call);
        by_buf_deinit(&out);
    }
    assert_true(n_failed > 20 / step);
    answer again = run(service, BY_API_CHAT, body, false);
    assert_string_equal(choices_of(&again), want);
}

/* ---- bad numbers [O37] ---- */

static void a_nan_fails_its_own_request_only(void **state) {
    (void)state;
    const char *folder = by_arena_dup(&arena, by_str_z(by_temp_path("poisoned"))).ptr;
    assert_true(by_random_model_small(folder));
    by_random_model_poison(folder, "embed.weight", BAD_TOKEN); /* who uses the token fails */
    by_service *s = open_service(folder, false);
    const char *good[2] = {ids_body("8", 30, ",\"max_tokens\":12,\"seed\":2"), ids_body("9", 200, ",\"max_tokens\":12,\"seed\":3")};
    const char *bad[2] = {ids_body("8,7", 20, ",\"max_tokens\":12"), ids_body("9,7", 180, ",\"max_tokens\":12")};
    answer healthy[2] = {run(service, BY_API_COMPLETIONS, good[0], false), run(service, BY_API_COMPLETIONS, good[1], false)};
    for (int round = 0; round < 3; round++) { /* later rounds use the blocks and slots of the failed ones again */
        answer a[4];
        for (int i = 0; i < 4; i++) start(s, &a[i], BY_API_COMPLETIONS, i % 2 ? good[i / 2] : bad[i / 2], false);
        for (int i = 0; i < 4; i++) end(&a[i], false);
        for (int i = 0; i < 2; i++) {
            assert_null(a[2 * i].whole);
            assert_int_equal(a[2 * i].problem.http_status, 500);
            assert_string_equal(a[2 * i].problem.code, "engine_error");
            assert_string_equal(choices_of(&a[2 * i + 1]), choices_of(&healthy[i]));
        }
        assert_true(by_engine_wait_idle(by_service_engine(s), 60000));
    }
    by_engine_stats st = by_engine_stats_get(by_service_engine(s));
    for (int i = 0; i < 12000 && st.n_failed + st.n_finished < 12; i++) { /* the last figures come a moment after the last event */
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        st = by_engine_stats_get(by_service_engine(s));
    }
    assert_int_equal(st.n_failed, 6);
    assert_int_equal(st.n_finished, 6);
    by_service_close(s);
}

static int open_all(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_JSON);
    const char *folder = by_arena_dup(&arena, by_str_z(by_temp_path("model"))).ptr;
    if (!by_random_model_small(folder)) exit(77); /* an emulated build has no tools */
    service = open_service(folder, true);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    by_service_close(service);
    by_arena_deinit(&arena);
    return 0;
}

int main(void) {
    rng = by_test_rng(20261130);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_whole_answers_count_alike),
        cmocka_unit_test(a_long_prompt_gives_the_same_cold_warm_and_in_company),
        cmocka_unit_test(a_repeated_prompt_of_700_tokens_is_cached),
        cmocka_unit_test(strangers_change_nothing),
        cmocka_unit_test(choices_have_seeds_of_their_own),
        cmocka_unit_test(log_probabilities_are_those_of_a_distribution),
        cmocka_unit_test(an_echoed_prompt_is_scored),
        cmocka_unit_test(offsets_count_the_echo),
        cmocka_unit_test(prompt_logprobs_equal_the_echo),
        cmocka_unit_test(a_sampled_token_is_among_its_alternatives),
        cmocka_unit_test(a_stop_string_ends_the_text_in_front_of_it),
        cmocka_unit_test(end_rules_of_a_request),
        cmocka_unit_test(refusals_name_what_is_wrong),
        cmocka_unit_test(no_failed_allocation_reaches_beyond_its_call),
        cmocka_unit_test(a_nan_fails_its_own_request_only),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
