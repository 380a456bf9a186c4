/* BY_TEST_TIMEOUT=300
 * The output parser against itself and its slow twin: however a text is cut, the joined result is the same, with and
 * without holding pieces whole. Texts are those of the goldens and random mixtures of markup and prose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "json/json_write.h"
#include "base/utf8.h"
#include "support/golden.h"
#include "support/parse_twin.h"
#include "support/seed.h"

static by_parse_record whole, cut, twin;

static void fail_text(const char *what, const by_parser_opts *opts, by_str text, size_t at) {
    by_buf b = {0};
    by_json_write_string(&b, text);
    fprintf(stderr, "%s at %zu: stage %d calls %d json %d eager %d: %s\n", what, at, opts->stage, opts->parse_calls,
            opts->json_output, opts->eager, by_buf_z(&b));
    fprintf(stderr, " whole r=<%s>", by_buf_z(&whole.reasoning));
    fprintf(stderr, " c=<%s>\n", by_buf_z(&whole.content));
    fprintf(stderr, " cut   r=<%s>", by_buf_z(&cut.reasoning));
    fprintf(stderr, " c=<%s>\n", by_buf_z(&cut.content));
    by_buf_deinit(&b);
    fail();
}

static void compare_cut(const by_parser_opts *opts, by_str text, const size_t *cuts, size_t n) {
    by_parse_record_clear(&cut);
    by_parse_in_pieces(&cut, opts, text, cuts, n);
    if (!by_parse_record_same(&whole, &cut, opts->json_output)) fail_text("cut", opts, text, n ? cuts[0] : 0);
}

/* Byte by byte, at every place (or at most `places` of them), and in random pieces. */
static void compare_all(by_parser_opts opts, by_str text, size_t places, by_rng *rng) {
    size_t *cuts = malloc((text.len + 1) * sizeof *cuts);
    assert_non_null(cuts);
    by_parse_record_clear(&twin);
    by_parse_twin(&twin, &opts, text);
    for (int eager = 0; eager < 2; eager++) {
        opts.eager = eager;
        by_parse_record_clear(&whole);
        by_parse_in_pieces(&whole, &opts, text, NULL, 0);
        if (!by_parse_record_same(&whole, &twin, opts.json_output)) fail_text("twin", &opts, text, 0);
        for (size_t i = 0; i < text.len; i++) cuts[i] = i + 1;
        compare_cut(&opts, text, cuts, text.len);
        size_t step = text.len / places + 1;
        for (size_t i = by_rng_below(rng, step); i <= text.len; i += step) compare_cut(&opts, text, &i, 1);
        for (int round = 0; round < 3; round++) {
            size_t n = 0, most = 1 + by_rng_below(rng, 24);
            for (size_t at = 0; at < text.len && n < text.len; cuts[n++] = at) { /* empty pieces too */
                at += by_rng_below(rng, most + 1);
                if (at > text.len) at = text.len;
            }
            compare_cut(&opts, text, cuts, n);
        }
    }
    free(cuts);
}

/* ---- the goldens ---- */

static void expect_final(const by_parse_record *r, const by_json *final, bool json_output) {
    const by_json *reasoning = by_json_get(final, "reasoning"), *calls = by_json_get(final, "tool_calls");
    by_parse_record want = {0};
    if (by_json_is(reasoning, BY_JSON_STRING)) by_buf_push_str(&want.reasoning, reasoning->v.s);
    by_buf_push_str(&want.content, by_json_get(final, "content")->v.s);
    for (uint32_t i = 0; i < calls->n; i++) {
        if (want.n_calls++) by_buf_push_byte(&want.calls, '\0');
        by_buf_push_str(&want.calls, by_json_get(&calls->v.items[i], "name")->v.s);
        by_buf_push_byte(&want.calls, '\0');
        by_buf_push_str(&want.calls, by_json_get(&calls->v.items[i], "arguments")->v.s);
    }
    assert_true(by_parse_record_same(r, &want, json_output));
    by_parse_record_deinit(&want);
}

static void rows_of(const char *name, by_rng *rng) {
    by_lines *lines = by_lines_open(by_golden_path(name));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_buf text = {0};
    by_str line;
    while (by_lines_next(lines, &line)) {
        by_json row;
        by_arena_reset(&arena);
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        by_parse_row pr;
        by_parse_row_read(&pr, by_json_get(&row, "input"));
        by_buf_clear(&text);
        for (uint32_t i = 0; i < pr.chunks->n; i++) by_buf_push_str(&text, pr.chunks->v.items[i].v.s);
        compare_all(pr.opts, by_buf_str(&text), SIZE_MAX, rng);
        expect_final(&whole, by_json_get(by_json_get(&row, "expected"), "final"), pr.opts.json_output);
    }
    by_lines_close(lines);
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
}

static uint64_t seed(void) {
    const char *z = getenv("BY_SEED");
    uint64_t s = z ? strtoull(z, NULL, 0) : 20260;
    printf("BY_SEED=%" PRIu64 "\n", s);
    return s;
}

static void golden_texts_do_not_depend_on_their_cuts(void **state) {
    (void)state;
    by_rng rng = {seed()};
    rows_of("recipe/parse.jsonl", &rng);
    rows_of("recipe/parse_random.jsonl", &rng);
    rows_of("recipe/parse_quirks.jsonl", &rng);
}

/* ---- random texts ---- */

static const char *const fragments[] = {
    "a", "b", " ", "\n", "\n\n", "<", "</", "</think>", "</thi", "｜DSML｜", "｜", "<｜DSML｜", "</｜DSML｜", " calls>",
    "tool_calls>", " invoke name=\"", "\"", "f", ">", " parameter name=", "\"k\"", " string=\"true\">",
    " string=\"false\">", "true\">", "false\">", "{", "}", "[1, 2]", "```", "json\n", "```\n", "é", "漢", "🧑🏽‍🚀", "\\", "\t",
    "STOP", "ST", "aa", "\x01", "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">",
    "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
};
static const char *const stops[] = {"STOP", "aab", "\n", "é漢", "\n\n", "</think>", "<<", "`"};

static void random_mixtures(void **state) {
    (void)state;
    by_rng rng = {seed() ^ 77};
    by_buf text = {0};
    for (int round = 0; round < by_test_scaled(4000); round++) {
        by_str list[3];
        by_parser_opts opts = {.parse_calls = by_rng_below(&rng, 4) > 0,
                               .starts_in_calls = by_rng_below(&rng, 8) == 0,
                               .json_output = by_rng_below(&rng, 5) == 0,
                               .stage = (by_stage)by_rng_below(&rng, 4),
                               .stops = list,
                               .n_stops = by_rng_below(&rng, 4)};
        if (by_rng_below(&rng, 6) == 0) opts.dsml = BY_STR("#D#");
        if (by_rng_below(&rng, 6) == 0) opts.thinking_end = BY_STR("aa");
        for (size_t i = 0; i < opts.n_stops; i++) list[i] = by_str_z(stops[by_rng_below(&rng, sizeof stops / sizeof *stops)]);
        by_buf_clear(&text);
        for (size_t n = by_rng_below(&rng, 40); n > 0; n--)
            by_buf_push_z(&text, fragments[by_rng_below(&rng, sizeof fragments / sizeof *fragments)]);
        compare_all(opts, by_buf_str(&text), 40, &rng);
    }
    by_buf_deinit(&text);
}

/* Bytes that are no UTF-8 become U+FFFD, the same ones however they are cut. */
static void broken_bytes(void **state) {
    (void)state;
    by_rng rng = {seed() ^ 5};
    by_buf raw = {0}, text = {0};
    static const char *const bits[] = {"a", "\xf0\x9f", "\x98\x80", "\xe6", "\xbc\xa2", "\xff", "\xc0\x80", "\xed\xa0\x80", "<", "</think>"};
    for (int round = 0; round < by_test_scaled(3000); round++) {
        by_buf_clear(&raw);
        by_buf_clear(&text);
        for (size_t n = by_rng_below(&rng, 12); n > 0; n--) by_buf_push_z(&raw, bits[by_rng_below(&rng, 10)]);
        by_utf8_push_lossy(&text, by_buf_str(&raw));
        by_parser_opts opts = {.stage = BY_STAGE_REASONING_START};
        by_parse_record_clear(&whole);
        by_parse_twin(&whole, &opts, by_buf_str(&text));
        for (size_t i = 0; i <= raw.len; i++) compare_cut(&opts, by_buf_str(&raw), &i, 1);
        size_t cuts[128];
        for (size_t i = 0; i < raw.len; i++) cuts[i] = i + 1;
        compare_cut(&opts, by_buf_str(&raw), cuts, raw.len);
    }
    by_buf_deinit(&raw);
    by_buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_texts_do_not_depend_on_their_cuts),
        cmocka_unit_test(random_mixtures),
        cmocka_unit_test(broken_bytes),
    };
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    by_parse_record_deinit(&whole);
    by_parse_record_deinit(&cut);
    by_parse_record_deinit(&twin);
    return bad;
}
