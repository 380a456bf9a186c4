/* golden_batch.c - `bathyc batch` on the bundled model: the prompts and conversations of tests/golden/data/tiny as requests of
 * Chat Completions, all at once. What comes back must be the answer that the expected tokens make. BY_TEST_TIMEOUT=900 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api_stream.h"
#include "json/json_write.h"
#include "support/golden.h"
#include "support/process.h"
#include "support/seed.h"
#include "support/temp.h"

enum { CASES_MAX = 128, SHORTEST = 14 };

typedef struct {
    char id[64];
    const by_json *row; /* request, tokens, max_tokens, expect, finish_reason, firm */
    bool answered;
} text_case;

static by_arena arena;
static by_tok *tok;
static text_case cases[CASES_MAX];
static int n_cases;

static void check(by_status s, const by_err *err) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err->msg);
}

static const by_json *member(const by_json *obj, const char *key) {
    const by_json *v = by_json_get(obj, key);
    if (!v) fail_msg("no %s", key);
    return v;
}

static const by_json *parse(by_str line) {
    by_err err = {0};
    by_json *v = by_arena_alloc(&arena, sizeof *v);
    check(by_json_parse(v, &arena, by_arena_dup(&arena, line), NULL, &err), &err);
    return v;
}

/* Long prompts only at a larger BY_TEST_SCALE: they cost minutes and are read by golden_tiny as well. The shortest has 12 tokens, and
 * some are there at any scale. */
static void add_case(const by_json *row, const char *prefix, by_str id, uint32_t turn) {
    int longest = by_test_scaled(200);
    if ((int)member(row, "tokens")->n > (longest > SHORTEST ? longest : SHORTEST)) return;
    text_case *c = &cases[n_cases++];
    c->row = row;
    snprintf(c->id, sizeof c->id, "%s%.*s.%u", prefix, BY_STR_ARG(id), turn);
}

static int read_goldens(void **state) {
    (void)state;
    by_err err = {0};
    by_arena_init(&arena, BY_MEM_JSON);
    check(by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, &err), &err);
    by_str line;
    by_lines *l = by_lines_open(by_golden_path("tiny/greedy.jsonl"));
    while (by_lines_next(l, &line)) {
        const by_json *row = parse(line);
        add_case(row, "g-", member(row, "id")->v.s, 0);
    }
    by_lines_close(l);
    l = by_lines_open(by_golden_path("tiny/chats.jsonl"));
    while (by_lines_next(l, &line)) {
        const by_json *row = parse(line), *turns = member(row, "turns");
        for (uint32_t i = 0; i < turns->n; i++) add_case(by_json_at(turns, i), "c-", member(row, "id")->v.s, i);
    }
    by_lines_close(l);
    return n_cases > 0 ? 0 : -1;
}

static int free_goldens(void **state) {
    (void)state;
    by_tok_destroy(tok);
    by_arena_deinit(&arena);
    return 0;
}

/* The golden's request with the fields that it leaves to the caller. */
static by_str body_of(const text_case *c) {
    by_buf b = {0};
    by_json_write(&b, member(c->row, "request"), BY_JSON_COMPACT);
    b.len--;
    by_buf_printf(&b, ",\"model\":\"DeepSeek-V4.1-Flash\",\"temperature\":0,\"max_tokens\":%d}", (int)member(c->row, "max_tokens")->v.i);
    by_str s = by_arena_dup(&arena, by_buf_str(&b));
    by_buf_deinit(&b);
    return s;
}

/* The whole object that the expected tokens make. */
static const by_json *expected_answer(const text_case *c) {
    static int32_t ids[4096];
    by_err err = {0};
    by_api_options options;
    by_api_converted r;
    by_api_error error;
    by_api_options_init(&options);
    options.profile = BY_API_SERVER;
    check(by_api_convert(&r, &error, &arena, BY_API_CHAT, body_of(c), &options, &err), &err);
    const by_json *expect = member(c->row, "expect"), *finish = member(c->row, "finish_reason");
    for (uint32_t i = 0; i < expect->n; i++) ids[i] = (int32_t)expect->v.items[i].v.i;
    const int32_t eos = 1;
    /* The goldens were made without constraints. A complete constrained text ends by itself: the end token is not sampled. */
    uint32_t n_ids = expect->n;
    if (r.inference.grammar.kind && n_ids && ids[n_ids - 1] == eos) n_ids--;
    by_api_stream_opts o = {.request = &r, .id = BY_STR("x"), .keep_whole = true,
                            .answer = {.tok = tok, .server = true, .end_ids = &eos, .n_end_ids = 1}};
    by_api_stream *s;
    by_buf b = {0};
    check(by_api_stream_create(&s, &o, &err), &err);
    check(by_api_stream_ready(s, member(c->row, "tokens")->n, 0, NULL, &err), &err);
    check(by_api_stream_tokens(s, ids, n_ids, NULL, 0, &err), &err);
    check(by_api_stream_finish(s, by_str_eqz(finish->v.s, "length") ? BY_REASON_LENGTH : BY_REASON_STOP, &err), &err);
    check(by_api_stream_write_whole(s, &b, &err), &err);
    const by_json *v = parse(by_buf_str(&b));
    by_api_stream_destroy(s);
    by_buf_deinit(&b);
    return v;
}

/* Equal values; ids of calls are random, and what the cache held is not the answer's business. */
static bool same(const by_json *a, const by_json *b) {
    if (a->type != b->type || ((a->type == BY_JSON_ARRAY || a->type == BY_JSON_OBJECT) && a->n != b->n)) return false;
    switch (a->type) {
    case BY_JSON_STRING: return by_str_eq(a->v.s, b->v.s);
    case BY_JSON_INT: return a->v.i == b->v.i;
    case BY_JSON_BOOL: return a->v.b == b->v.b;
    case BY_JSON_NULL: return true;
    case BY_JSON_ARRAY:
        for (uint32_t i = 0; i < a->n; i++)
            if (!same(&a->v.items[i], &b->v.items[i])) return false;
        return true;
    case BY_JSON_OBJECT:
        for (uint32_t i = 0; i < a->n; i++) {
            const by_json_member *x = &a->v.members[i], *y = &b->v.members[i];
            if (!by_str_eq(x->key, y->key)) return false;
            if (!by_str_eqz(x->key, "id") && !same(&x->value, &y->value)) return false;
        }
        return true;
    case BY_JSON_UINT: case BY_JSON_DOUBLE: break;
    }
    return false;
}

/* In exact numerics every text is certain (the smallest lead of a winner is 0.086). In deployed numerics the texts that the
 * reference calls firm are not: AVX-512 sums turn one of 24, AVX2 sums turn none; docs/numerics.md, "How far rounding
 * carries", shows why that is rounding. */
static void compare(const text_case *c, const by_json *row, int *n_bad) {
    const by_json *response = member(row, "response"), *body = member(response, "body");
    if (member(response, "status_code")->v.i != 200) fail_msg("%s: status %d", c->id, (int)member(response, "status_code")->v.i);
    const by_json *want = expected_answer(c), *usage = member(body, "usage"), *want_usage = member(want, "usage");
    bool good = same(member(body, "choices"), member(want, "choices"));
    good = good && same(member(usage, "completion_tokens"), member(want_usage, "completion_tokens"));
    if (!same(member(usage, "prompt_tokens"), member(want_usage, "prompt_tokens"))) fail_msg("%s: another prompt", c->id);
    if (good) return;
    by_buf b = {0};
    by_json_write(&b, member(body, "choices"), BY_JSON_COMPACT);
    print_error("%s: another answer: %s\n", c->id, by_buf_z(&b));
    by_buf_deinit(&b);
    ++*n_bad;
}

static void answers_are_those_of_the_reference(void **state) {
    (void)state;
    by_buf in = {0};
    for (int i = 0; i < n_cases; i++)
        by_buf_printf(&in, "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":%.*s}\n", cases[i].id,
                      (int)body_of(&cases[i]).len, body_of(&cases[i]).ptr);
    const char *out = by_temp_path("results.jsonl");
    by_process_opts opts = {.input = in.ptr, .input_bytes = in.len, .limit_s = 3600};
    by_process_result r = by_bathyc(&opts, "batch", "-i", "-", "-o", out, "--honour-sampling", "--numerics", "exact", "--ram", "400M", NULL);
    if (r.exit_code != 0) {
        by_process_print(&r);
        fail();
    }
    assert_int_equal(r.out_bytes, 0);
    int n_bad = 0, n_rows = 0;
    by_lines *l = by_lines_open(out);
    by_str line;
    while (by_lines_next(l, &line)) {
        const by_json *row = parse(line);
        text_case *c = NULL;
        for (int i = 0; i < n_cases; i++)
            if (by_str_eqz(member(row, "custom_id")->v.s, cases[i].id)) c = &cases[i];
        if (!c || c->answered) fail_msg("a row too many: %.*s", BY_STR_ARG(line));
        c->answered = true;
        n_rows++;
        compare(c, row, &n_bad);
    }
    by_lines_close(l);
    assert_int_equal(n_rows, n_cases);
    assert_int_equal(n_bad, 0);
    by_process_free(&r);
    by_buf_deinit(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_the_reference),
    };
    return cmocka_run_group_tests(tests, read_goldens, free_goldens);
}
