/* test_flop_count.c - operations of the published model against the figures of its specification, and pairs against counting them one
 * by one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/flop_count.h"
#include "support/golden.h"
#include "support/seed.h"

static by_config flash, tiny;

static void read_config(by_config *out, const char *path) {
    by_buf text = {0};
    by_err err = {0};
    by_status status = by_file_read(&text, path, 1 << 20, &err);
    if (status == BY_OK) status = by_config_parse(out, by_buf_str(&text), NULL, &err);
    if (status != BY_OK) fail_msg("%s: %s", path, err.msg);
    by_buf_deinit(&text);
}

static int read_both(void **state) {
    (void)state;
    read_config(&flash, BATHYC_SOURCE_DIR "/tools/presets/flash.json");
    read_config(&tiny, BATHYC_SOURCE_DIR "/models/tiny/config.json");
    return 0;
}

/* The specification's figures are rounded or cut. */
static void near(double got, double want, double unit) {
    if (fabs(got - want) > unit) fail_msg("%g instead of %g", got, want);
}

/* Engine specification, sections 6 and 10: a row that decodes, and cold prompts with all rows and with 140 or 2547 behind layer 20. */
static void the_published_model_takes_what_its_specification_says(void **state) {
    (void)state;
    static const struct { int64_t at; double giga; } rows[] = {{1 << 10, 40.6}, {1 << 15, 41.1}, {1 << 17, 42.1}, {1 << 20, 51.5}};
    static const struct { int64_t len; double off, kept; int64_t keep; } prompts[] = {
        {1 << 10, 36.8, 20.9, 140}, {1 << 13, 309, 158, 140}, {1 << 15, 1252, 632, 140}, {1 << 17, 5085, 2565, 140},
        {1 << 15, 1252, 678, 2547}, {1 << 17, 5085, 2612, 2547}};
    by_flop_model m;
    by_flop_model_make(&m, &flash, 20);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        near(by_flop_count_rows(&m, rows[i].at - 1, rows[i].at, rows[i].at - 1, 1).all * 1e-9, rows[i].giga, 0.1);
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        double unit = prompts[i].len > 1024 ? 1 : 0.1;
        near(by_flop_count_rows(&m, 0, prompts[i].len, 0, 1).all * 1e-12, prompts[i].off, unit);
        near(by_flop_count_rows(&m, 0, prompts[i].len, prompts[i].len - prompts[i].keep, 1).all * 1e-12, prompts[i].kept, unit);
    }
}

static double least(double a, double b) { return a < b ? a : b; }

/* One query at a time, one layer at a time. */
static double count_slowly(const by_config *c, int boundary, int64_t first, int64_t end, int64_t kept) {
    double sum = 0, heads = 8.0 * c->n_heads * c->head_dim, score = (double)c->index_n_heads * c->index_head_dim;
    for (int l = 0; l < c->n_layers; l++) {
        const by_layer *y = &c->layers[l];
        for (int64_t p = boundary >= 0 && l >= boundary ? kept : first; p < end; p++) {
            sum += heads * least((double)p + 1, c->window);
            if (y->ratio == 0) continue;
            double seen = (double)((p + 1) / y->ratio), blocks = ceil(seen / c->candidate_block_size);
            sum += heads * least(seen, c->index_topk);
            if (y->is_index_source)
                sum += score * (y->uses_candidates ? c->candidate_block_size * least(blocks, c->candidate_topk_blocks) : seen);
        }
    }
    return sum;
}

static void pairs_equal_a_count_one_by_one(void **state) {
    (void)state;
    by_rng rng = by_test_rng(20261130);
    for (int i = 0; i < 400; i++) {
        by_config c = i % 2 ? tiny : flash;
        c.index_topk = 1 + (int)by_rng_below(&rng, 40);
        c.window = 1 + (int)by_rng_below(&rng, 60);
        c.candidate_block_size = 1 + (int)by_rng_below(&rng, 9);
        c.candidate_topk_blocks = 1 + (int)by_rng_below(&rng, 12);
        int boundary = by_rng_below(&rng, 3) ? c.last_kv_source : -1;
        int64_t first = (int64_t)by_rng_below(&rng, 200), end = first + 1 + (int64_t)by_rng_below(&rng, by_rng_below(&rng, 2) ? 3 : 150);
        int64_t kept = first + (int64_t)by_rng_below(&rng, (uint64_t)(end - first) + 1);
        by_flop_model m;
        by_flop_model_make(&m, &c, boundary);
        double got = by_flop_count_rows(&m, first, end, kept, 0).attention, want = count_slowly(&c, boundary, first, end, kept);
        if (fabs(got - want) > 1e-9 * want) fail_msg("[%d, %d) kept %d: %.17g instead of %.17g", (int)first, (int)end, (int)kept, got, want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_model_takes_what_its_specification_says),
        cmocka_unit_test(pairs_equal_a_count_one_by_one),
    };
    return cmocka_run_group_tests(tests, read_both, NULL);
}
