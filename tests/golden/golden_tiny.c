/* golden_tiny.c - the texts of the trained tiny model through the program: `bathyc generate` on prompts and
 * conversations, `bathyc logits` for log-probabilities. Which cases must agree in which numerics:
 * tests/golden/data/tiny/ORIGIN.md. BY_TEST_TIMEOUT=900 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json/json.h"
#include "support/golden.h"
#include "support/npz.h"
#include "support/process.h"
#include "support/seed.h"
#include "support/temp.h"

#define CASES_MAX 128

typedef struct text_case {
    char id[64];
    const by_json *row; /* holds tokens, max_tokens, expect, finish_reason, firm */
} text_case;

static by_arena arena;
static text_case greedy[CASES_MAX], chats[CASES_MAX];
static int n_greedy, n_chats;

static const by_json *member(const by_json *obj, const char *key) {
    const by_json *v = by_json_get(obj, key);
    if (!v) fail_msg("a golden lacks %s", key);
    return v;
}

static void read_rows(by_lines *lines, void (*row)(const by_json *)) {
    by_str line;
    while (by_lines_next(lines, &line)) {
        by_str copy = by_arena_dup(&arena, line);
        by_json *v = by_arena_alloc(&arena, sizeof *v);
        by_err err = {0};
        if (!v || by_json_parse(v, &arena, copy, NULL, &err) != BY_OK) fail_msg("golden: %s", err.msg);
        row(v);
    }
    by_lines_close(lines);
}

static void add_greedy(const by_json *row) {
    text_case *c = &greedy[n_greedy++];
    c->row = row;
    by_str id = member(row, "id")->v.s;
    snprintf(c->id, sizeof c->id, "%.*s", BY_STR_ARG(id));
}

static void add_chat(const by_json *row) {
    const by_json *turns = member(row, "turns");
    for (uint32_t i = 0; i < turns->n; i++) {
        text_case *c = &chats[n_chats++];
        c->row = by_json_at(turns, i);
        by_str id = member(row, "id")->v.s;
        snprintf(c->id, sizeof c->id, "%.*s.turn%u", BY_STR_ARG(id), i);
    }
}

static int read_goldens(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_JSON);
    read_rows(by_lines_open(by_golden_path("tiny/greedy.jsonl")), add_greedy);
    read_rows(by_lines_open(by_golden_path("tiny/chats.jsonl")), add_chat);
    return n_greedy == 60 && n_chats == 28 ? 0 : -1;
}

static int free_goldens(void **state) {
    (void)state;
    by_arena_deinit(&arena);
    return 0;
}

static void push_tokens(by_buf *out, const by_json *tokens) {
    for (uint32_t i = 0; i < tokens->n; i++)
        by_buf_printf(out, "%s%d", i ? "," : "", (int)by_json_at(tokens, i)->v.i);
}

static bool is_firm(const text_case *c, const char *numerics) {
    const by_json *firm = member(c->row, "firm");
    for (uint32_t i = 0; i < firm->n; i++)
        if (by_str_eqz(by_json_at(firm, i)->v.s, numerics)) return true;
    return false;
}

static bool same_text(const text_case *c, const by_json *answer) {
    const by_json *got = by_json_get(answer, "tokens"), *want = member(c->row, "expect");
    if (!got || got->n != want->n) return false;
    for (uint32_t i = 0; i < want->n; i++)
        if (by_json_at(got, i)->v.i != by_json_at(want, i)->v.i) return false;
    bool by_length = by_str_eqz(member(c->row, "finish_reason")->v.s, "length");
    return by_str_eqz(member(answer, "finish_reason")->v.s, by_length ? "length" : "stop");
}

/* Generates the cases at a stride from `first` and compares the texts. */
static void check_texts(const text_case *cases, int n, const char *numerics, int first, int stride) {
    by_buf in = {0};
    for (int i = first; i < n; i += stride) {
        by_buf_printf(&in, "{\"id\":\"%s\",\"tokens\":[", cases[i].id);
        push_tokens(&in, member(cases[i].row, "tokens"));
        by_buf_printf(&in, "],\"max_tokens\":%d,\"temperature\":0}\n", (int)member(cases[i].row, "max_tokens")->v.i);
    }
    by_process_opts opts = {.input = in.ptr, .input_bytes = in.len, .limit_s = 3600};
    by_process_result r = by_bathyc(&opts, "generate", "-i", "-", "--numerics", numerics, NULL);
    if (r.exit_code != 0) {
        by_process_print(&r);
        fail();
    }
    int n_bad = 0;
    char *rest = r.out;
    for (int i = first; i < n; i += stride) {
        char *line = strsep(&rest, "\n");
        by_json answer;
        by_err err = {0};
        if (!line || by_json_parse(&answer, &arena, by_str_z(line), NULL, &err) != BY_OK)
            fail_msg("%s: no answer line (%s)", cases[i].id, err.msg);
        assert_true(by_str_eqz(member(&answer, "id")->v.s, cases[i].id));
        if (same_text(&cases[i], &answer)) continue;
        bool firm = is_firm(&cases[i], numerics);
        print_error("%s, %s: another text%s\n", cases[i].id, numerics, firm ? "" : " (allowed: a near tie)");
        n_bad += firm ? 1 : 0;
    }
    assert_int_equal(n_bad, 0);
    by_process_free(&r);
    by_buf_deinit(&in);
}

/* Each so many-th case: `usual` at BY_TEST_SCALE=100, all of them at usual * 100. */
static int stride(int usual) {
    int n = by_test_scaled(1000);
    int s = usual * 1000 / n;
    return s < 1 ? 1 : s;
}

static void prompts_in_exact_numerics(void **state) {
    (void)state;
    check_texts(greedy, n_greedy, "exact", 0, stride(2));
}

static void prompts_in_deployed_numerics(void **state) {
    (void)state;
    check_texts(greedy, n_greedy, "deployed", 1, stride(3));
}

static void prompts_in_quantised_numerics(void **state) {
    (void)state;
    check_texts(greedy, n_greedy, "quantised", 2, stride(6));
}

static void conversations_in_exact_and_deployed_numerics(void **state) {
    (void)state;
    check_texts(chats, n_chats, "exact", 0, stride(2));
    check_texts(chats, n_chats, "deployed", 1, stride(2));
}

/* ---- speculation ---- */

static by_buf trace_input;
static const by_json *traces[CASES_MAX];
static int n_traces;

static void add_trace(const by_json *row) {
    by_str id = member(row, "id")->v.s;
    by_buf_printf(&trace_input, "{\"id\":\"%.*s\",\"tokens\":[", BY_STR_ARG(id));
    push_tokens(&trace_input, member(row, "tokens"));
    by_buf_printf(&trace_input, "],\"max_tokens\":%d,\"temperature\":0,\"draft\":true}\n", (int)member(row, "max_tokens")->v.i);
    traces[n_traces++] = row;
}

/* The same steps as the reference: their number, what was drafted, what was accepted, and the text (which the trace's
 * `expect` goes beyond by what the last step gave more). */
static void check_trace(const by_json *row, const by_json *answer) {
    const by_json *steps = member(row, "steps"), *got = by_json_get(answer, "tokens"), *want = member(row, "expect");
    by_str id = member(row, "id")->v.s;
    if (!got) fail_msg("%.*s: %.*s", BY_STR_ARG(id), BY_STR_ARG(member(answer, "error")->v.s));
    int64_t n_drafted = 0, n_accepted = 0;
    for (uint32_t i = 0; i < steps->n; i++) {
        n_drafted += member(by_json_at(steps, i), "drafts")->n;
        n_accepted += member(by_json_at(steps, i), "accepted")->v.i;
    }
    assert_int_equal(member(answer, "n_steps")->v.i, steps->n);
    assert_int_equal(member(answer, "n_drafted")->v.i, n_drafted);
    assert_int_equal(member(answer, "n_accepted")->v.i, n_accepted);
    assert_true(got->n > 0 && got->n <= want->n && (int64_t)got->n <= member(row, "max_tokens")->v.i);
    for (uint32_t i = 0; i < got->n; i++) assert_int_equal(by_json_at(got, i)->v.i, by_json_at(want, i)->v.i);
}

static void speculation_takes_the_steps_of_the_reference(void **state) {
    (void)state;
    read_rows(by_lines_open(by_golden_path("tiny/speculation.jsonl")), add_trace);
    assert_int_equal(n_traces, 10);
    by_process_opts opts = {.input = trace_input.ptr, .input_bytes = trace_input.len, .limit_s = 3600};
    by_process_result r = by_bathyc(&opts, "generate", "-i", "-", "--numerics", "exact", NULL);
    if (r.exit_code != 0) {
        by_process_print(&r);
        fail();
    }
    char *rest = r.out;
    for (int i = 0; i < n_traces; i++) {
        char *line = strsep(&rest, "\n");
        by_json answer;
        if (!line || by_json_parse(&answer, &arena, by_str_z(line), NULL, NULL) != BY_OK) fail_msg("trace %d: no answer line", i);
        check_trace(traces[i], &answer);
    }
    by_process_free(&r);
    by_buf_deinit(&trace_input);
}

/* ---- log-probabilities ---- */

static const text_case *greedy_by_id(by_str id) {
    for (int i = 0; i < n_greedy; i++)
        if (by_str_eqz(id, greedy[i].id)) return &greedy[i];
    fail_msg("no prompt %.*s", BY_STR_ARG(id));
    return NULL;
}

/* Compares the stored best tokens of step `step` with a row of logits. */
static void check_top(const char *id, int step, const by_json *top, const float *row, size_t V) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < V; i++)
        max = (double)row[i] > max ? (double)row[i] : max;
    for (size_t i = 0; i < V; i++)
        sum += exp((double)row[i] - max);
    for (uint32_t k = 0; k < top->n; k++) {
        int64_t token = by_json_at(by_json_at(top, k), 0)->v.i;
        double want = by_json_number(by_json_at(by_json_at(top, k), 1)), got = (double)row[token] - max - log(sum);
        if (fabs(got - want) > 1e-3) fail_msg("%s, step %d, token %d: %g, want %g", id, step, (int)token, got, want);
    }
}

static int every = 1, at_row;

static void check_logprobs_row(const by_json *row) {
    if (at_row++ % every) return;
    const text_case *c = greedy_by_id(member(row, "id")->v.s);
    const by_json *tokens = member(c->row, "tokens"), *expect = member(c->row, "expect"), *tops = member(row, "exact");
    assert_int_equal(tops->n, expect->n);
    by_buf in = {0};
    by_buf_printf(&in, "{\"id\":\"%s\",\"tokens\":[", c->id);
    push_tokens(&in, tokens);
    by_buf_push_byte(&in, ',');
    push_tokens(&in, expect);
    by_buf_push_z(&in, "]}\n");
    by_process_opts opts = {.input = in.ptr, .input_bytes = in.len, .limit_s = 3600};
    const char *out = by_temp_path("logits");
    by_process_result r = by_bathyc(&opts, "logits", "-i", "-", "-o", out, "--numerics", "exact", NULL);
    if (r.exit_code != 0) {
        by_process_print(&r);
        fail();
    }
    char name[128];
    snprintf(name, sizeof name, "logits/%s.npy", c->id);
    by_npy *a = by_npy_read(by_temp_path(name));
    assert_non_null(a);
    assert_true(a->ndim == 2 && a->shape[0] == tokens->n + expect->n);
    for (uint32_t i = 0; i < tops->n; i++)
        check_top(c->id, (int)i, by_json_at(tops, i), by_npy_f32(a) + (tokens->n - 1 + i) * a->shape[1], a->shape[1]);
    by_npy_free(a);
    remove(by_temp_path(name));
    by_process_free(&r);
    by_buf_deinit(&in);
}

static void log_probabilities_in_exact_numerics(void **state) {
    (void)state;
    every = stride(2);
    read_rows(by_lines_open(by_golden_path("tiny/logprobs.jsonl")), check_logprobs_row);
    assert_int_equal(at_row, 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_in_exact_numerics),
        cmocka_unit_test(prompts_in_deployed_numerics),
        cmocka_unit_test(prompts_in_quantised_numerics),
        cmocka_unit_test(conversations_in_exact_and_deployed_numerics),
        cmocka_unit_test(speculation_takes_the_steps_of_the_reference),
        cmocka_unit_test(log_probabilities_in_exact_numerics),
    };
    return cmocka_run_group_tests(tests, read_goldens, free_goldens);
}
