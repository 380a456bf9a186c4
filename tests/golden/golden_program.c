/* golden_program.c - `bathyc logits` and `bathyc generate` on the three golden checkpoints: values within the tolerance
 * on every backend, and the same bits for every cut into chunks, every thread count, and alone or among other lines.
 * BY_TEST_TIMEOUT=600
 *
 * A line with pictures must fail alone as long as the program has no image input, and give its values once it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "json/json.h"
#include "support/counting.h"
#include "support/golden.h"
#include "support/npz.h"
#include "support/process.h"
#include "support/temp.h"

#define TOL_EXACT 2e-4 /* logits with a standard deviation of 1; another order of summation gives about 5e-6 */

static const char *const checkpoints[] = {"first_light", "tiny_a", "tiny_b"};

static const char *data(const char *checkpoint, const char *file) {
    char rel[256];
    snprintf(rel, sizeof rel, "model/%s/%s", checkpoint, file);
    return by_golden_path(rel);
}

typedef struct row_result {
    char id[64];
    bool pictures, there;
    uint64_t bits; /* of the values */
} row_result;

typedef struct run_result {
    row_result rows[32];
    int n;
} run_result;

/* One run of `logits` over in.jsonl into a fresh folder; flags: numerics, then a flag and its value or two NULL. */
static run_result run_logits(const char *checkpoint, const char *const flags[3], const by_npz *want) {
    static int n_runs;
    char folder[32], name[128];
    snprintf(folder, sizeof folder, "run%d", n_runs++);
    const char *out = by_temp_path(folder);
    by_process_opts opts = {.limit_s = 600};
    by_process_result r =
        by_bathyc(&opts, "logits", "-m", data(checkpoint, "checkpoint"), "-i", data(checkpoint, "in.jsonl"), "-o", out,
                  "--numerics", flags[0], flags[1], flags[2], NULL);
    run_result result = {0};
    bool all = true;
    by_lines *lines = by_lines_open(data(checkpoint, "in.jsonl"));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_str line;
    while (by_lines_next(lines, &line)) {
        row_result *row = &result.rows[result.n++];
        by_json v;
        assert_int_equal(by_json_parse(&v, &arena, line, NULL, NULL), BY_OK);
        snprintf(row->id, sizeof row->id, "%.*s", BY_STR_ARG(by_json_get(&v, "id")->v.s));
        row->pictures = by_json_get(&v, "images") != NULL;
        snprintf(name, sizeof name, "%s/%s.npy", folder, row->id);
        row->there = access(by_temp_path(name), F_OK) == 0;
        all = all && row->there;
        if (!row->there) {
            snprintf(name, sizeof name, "%s: ", row->id);
            if (!row->pictures || !strstr(r.err, name)) {
                by_process_print(&r);
                fail_msg("%s: line %s gave no file", checkpoint, row->id);
            }
            continue;
        }
        by_npy *got = by_npy_read(by_temp_path(name));
        assert_non_null(got);
        row->bits = by_bits_hash(BY_BITS_SEED, by_npy_f32(got), got->n * 4);
        if (want) {
            const by_npy *w = by_npz_need(want, "<f4", "%s", row->id);
            assert_true(got->ndim == 2 && got->n == w->n && got->shape[1] == w->shape[1]);
            assert_true(by_golden_close_f32(row->id, by_npy_f32(got), by_npy_f32(w), w->n, TOL_EXACT, 0));
        }
        by_npy_free(got);
    }
    assert_int_equal(r.exit_code, all ? 0 : 1);
    by_lines_close(lines);
    by_arena_deinit(&arena);
    by_process_free(&r);
    return result;
}

static void exact_logits_on_every_backend(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "guard", "cpu"};
    for (size_t c = 0; c < 3; c++) {
        by_npz *want = by_npz_open(data(checkpoints[c], "logits_exact.npz"));
        assert_non_null(want);
        for (size_t b = 0; b < 3; b++)
            run_logits(checkpoints[c], (const char *const[3]){"exact", "--backend", backends[b]}, want);
        by_npz_close(want);
    }
}

static void bits_do_not_depend_on_chunks_threads_or_decoding(void **state) {
    (void)state;
    static const char *const variants[][2] = {{"--chunk", "1"},       {"--chunk", "7"},       {"--threads", "1"},
                                              {"--threads", "3"},     {"--decode-from", "0"}, {"--decode-from", "9"},
                                              {"--decode-from", "99"}};
    static const char *const numerics[] = {"deployed", "exact"};
    for (size_t c = 0; c < 3; c++)
        for (size_t m = 0; m < 2; m++) {
            run_result plain = run_logits(checkpoints[c], (const char *const[3]){numerics[m], NULL, NULL}, NULL);
            for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
                run_result other = run_logits(
                    checkpoints[c], (const char *const[3]){numerics[m], variants[v][0], variants[v][1]}, NULL);
                for (int i = 0; i < plain.n; i++)
                    if (plain.rows[i].bits != other.rows[i].bits)
                        fail_msg("%s, %s, %s: other bits with %s %s", checkpoints[c], numerics[m], plain.rows[i].id,
                                 variants[v][0], variants[v][1]);
            }
        }
}

/* Compares `tokens` and `finish_reason` of each answer with the row's `expect`. */
static void check_generated(const char *checkpoint, const char *file, const char *const extra[2]) {
    by_process_opts opts = {.limit_s = 600};
    by_process_result r = by_bathyc(&opts, "generate", "-m", data(checkpoint, "checkpoint"), "-i",
                                    data(checkpoint, file), "--numerics", "exact", extra[0], extra[1], NULL);
    by_lines *lines = by_lines_open(data(checkpoint, file));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_str line;
    bool all = true;
    char *rest = r.out;
    while (by_lines_next(lines, &line)) {
        by_json want, got;
        by_str text = by_arena_dup(&arena, line);
        char *answer = strsep(&rest, "\n");
        assert_int_equal(by_json_parse(&want, &arena, text, NULL, NULL), BY_OK);
        if (!answer || by_json_parse(&got, &arena, by_str_z(answer), NULL, NULL) != BY_OK) {
            by_process_print(&r);
            fail_msg("%s %s: no answer to line %zu", checkpoint, file, by_lines_number(lines));
        }
        assert_true(by_str_eq(by_json_get(&want, "id")->v.s, by_json_get(&got, "id")->v.s));
        if (by_json_get(&got, "error")) {
            assert_non_null(by_json_get(&want, "images"));
            all = false;
            continue;
        }
        const by_json *a = by_json_get(&got, "tokens"), *b = by_json_get(&want, "expect");
        bool same = a->n == b->n;
        for (uint32_t i = 0; same && i < b->n; i++)
            same = by_json_at(a, i)->v.i == by_json_at(b, i)->v.i;
        if (!same) fail_msg("%s %s, line %zu: other tokens: %s", checkpoint, file, by_lines_number(lines), answer);
        assert_true(by_str_eq(by_json_get(&got, "finish_reason")->v.s, by_json_get(&want, "finish_reason")->v.s));
    }
    assert_int_equal(r.exit_code, all ? 0 : 1);
    by_lines_close(lines);
    by_arena_deinit(&arena);
    by_process_free(&r);
}

static void greedy_and_sampled_tokens(void **state) {
    (void)state;
    static const char *const extras[][2] = {{NULL, NULL}, {"--backend", "ref"}, {"--chunk", "3"}};
    for (size_t c = 0; c < 3; c++)
        for (size_t e = 0; e < 3; e++) {
            check_generated(checkpoints[c], "greedy.jsonl", extras[e]);
            check_generated(checkpoints[c], "sampled.jsonl", extras[e]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_logits_on_every_backend),
        cmocka_unit_test(bits_do_not_depend_on_chunks_threads_or_decoding),
        cmocka_unit_test(greedy_and_sampled_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
