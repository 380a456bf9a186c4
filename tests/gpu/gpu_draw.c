/* gpu_draw.c - draws of the cuda backend against the host's sampler: the same token and the same bits of the log-probability, over
 * vocabularies, temperatures, rules, and rows with ties, removed tokens and values that are no numbers. Then times of a draw from the
 * true vocabulary. Exit code 1 when something differs, 77 when the machine has no device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "gpu_support.h"
#include "ops/ops.h"
#include "sample/sample_dist.h"
#include "sample/sample_pick.h"
#include "sample/sample_scratch.h"

enum { ROWS = 24, V_TRUE = 129280 };

/* Kinds of rows: scattered, one that leads, ties, a few tokens left, all equal, a NaN, an infinity, nothing left. */
static void fill(float *row, int32_t V, int kind) {
    for (int32_t i = 0; i < V; i++) {
        float x = normal() * 4;
        if (kind == 2) x = floorf(x);
        if (kind == 3 && rnd() % 64) x = -INFINITY;
        if (kind == 4) x = 1.25f;
        if (kind == 7) x = -INFINITY;
        row[i] = x;
    }
    int32_t at = (int32_t)(rnd() % (uint32_t)V);
    if (kind == 1) row[at] = 40;
    if (kind == 3) row[at] = 1;
    if (kind == 5) row[at] = NAN;
    if (kind == 6) row[at] = INFINITY;
}

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

/* The host's token and log-probability; false when it refuses the row. */
static bool host_draw(const float *row, int32_t V, float t, bool plain, by_sample_rule rule, by_sample_stream stream, by_sample_scratch *s,
                      int32_t *id, float *logprob) {
    by_sample_law law = {.temperature = t, .top_p = 1, .top_k = -1}, one = {.temperature = 1, .top_p = 1, .top_k = -1};
    by_sample_dist d;
    by_err refused = {0};
    if (by_sample_dist_make(&d, row, V, &law, s, &refused) < 0) return false;
    *id = by_sample_dist_pick(&d, &stream, rule, s);
    if (*id < 0) return false;
    if (plain) MUST(by_sample_dist_make(&d, row, V, &one, s, err));
    *logprob = by_sample_dist_logprob(&d, *id);
    return true;
}

static int compare(by_device *dev, int32_t V, float t, bool plain, by_sample_rule rule) {
    float *rows = malloc((size_t)V * ROWS * 4);
    by_mem *m = NULL;
    by_sample_scratch *s = NULL;
    by_cpu cpu;
    by_cpu_detect(&cpu);
    MUST(by_sample_scratch_create(&s, V, cpu.isa, err));
    for (int r = 0; r < ROWS; r++) fill(rows + (size_t)r * (size_t)V, V, r % 8);
    MUST(by_mem_alloc(&m, dev, (size_t)V * ROWS * 4, err));
    MUST(by_mem_write(m, 0, rows, (size_t)V * ROWS * 4, err));
    by_draw draws[2 * ROWS];
    by_drawn drawn[2 * ROWS];
    by_sample_stream streams[ROWS];
    float inv_t = 1.0f / (t < BY_SAMPLE_GREEDY_BELOW ? BY_SAMPLE_GREEDY_BELOW : t);
    for (int r = 0; r < ROWS; r++) {
        by_sample_stream stream = streams[r] = by_sample_stream_at(rnd(), rnd(), BY_SAMPLE_DRAW_FRESH);
        draws[r] = (by_draw){.row = r, .inv_t = inv_t, .report_inv_t = plain ? 1 : inv_t,
                             .kind = rule == BY_SAMPLE_SMOOTH ? BY_DRAW_SMOOTH : BY_DRAW_MODULO};
        for (int i = 0; i < BY_DRAW_WORDS; i++) draws[r].words[i] = by_sample_stream_word(&stream);
        draws[ROWS + r] = (by_draw){.row = r, .kind = BY_DRAW_ARGMAX};
    }
    MUST(by_device_draw(dev, by_tensor_make(m, 0, BY_F32, ROWS, V), draws, 2 * ROWS, drawn, err));
    int bad = 0, n_drawn = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *row = rows + (size_t)r * (size_t)V;
        int32_t id = -1, top = -1;
        float logprob = 0, own = (drawn[r].logit - drawn[r].max) * (plain ? 1 : inv_t) - drawn[r].log_sum;
        by_err refused = {0};
        bool ok = host_draw(row, V, t, plain, rule, streams[r], s, &id, &logprob), has = by_sample_argmax(&top, row, V, s, &refused) == BY_OK;
        n_drawn += drawn[r].id >= 0;
        /* eight words that are all refused are for the host: seldom, and only by the modulo rule */
        bool given_up = ok && drawn[r].id < 0 && rule == BY_SAMPLE_DEEPINFER;
        bool same = given_up || (ok ? drawn[r].id == id && bits(own) == bits(logprob) : drawn[r].id < 0);
        same = same && drawn[ROWS + r].id == (has ? top : -1);
        if (!same)
            printf("    row %d kind %d: host %d %.9g top %d, device %d %.9g top %d\n", r, r % 8, id, (double)logprob, top, drawn[r].id,
                   (double)own, drawn[ROWS + r].id);
        bad += !same;
    }
    printf("V %6d temperature %-5g %s %s: %d of %d rows drawn, %d differ %s\n", V, (double)t, rule == BY_SAMPLE_SMOOTH ? "smooth" : "modulo",
           plain ? "plain" : "", n_drawn, ROWS, bad, bad || n_drawn < ROWS / 2 ? "FAILED" : "ok");
    by_mem_free(m);
    by_sample_scratch_destroy(s);
    free(rows);
    return bad > 0 || n_drawn < ROWS / 2;
}

static void times(by_device *dev) {
    by_mem *m = NULL;
    float *rows = malloc((size_t)V_TRUE * 64 * 4);
    for (int64_t i = 0; i < (int64_t)V_TRUE * 64; i++) rows[i] = normal() * 4;
    MUST(by_mem_alloc(&m, dev, (size_t)V_TRUE * 64 * 4, err));
    MUST(by_mem_write(m, 0, rows, (size_t)V_TRUE * 64 * 4, err));
    by_tensor l = by_tensor_make(m, 0, BY_F32, 64, V_TRUE);
    by_draw draws[64] = {0};
    by_drawn drawn[64];
    for (int i = 0; i < 64; i++) draws[i] = (by_draw){.row = i, .inv_t = 1e5f, .report_inv_t = 1, .words = {rnd(), rnd()}};
    for (int32_t n = 1; n <= 64; n *= 64) {
        double best[2] = {1e9, 1e9};
        for (int k = 0; k < 20; k++)
            for (int way = 0; way < 2; way++) {
                struct timespec a, b;
                clock_gettime(CLOCK_MONOTONIC, &a);
                const void *view;
                if (way == 0) MUST(by_device_draw(dev, l, draws, n, drawn, err));
                else MUST(by_mem_view(&view, m, 0, (size_t)n * V_TRUE * 4, err));
                if (way == 1) by_mem_unview(m);
                clock_gettime(CLOCK_MONOTONIC, &b);
                double us = (double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) * 1e-3;
                best[way] = us < best[way] ? us : best[way];
            }
        printf("%2d rows of %d logits: draw on the device %.0f us, copy to the host alone %.0f us\n", n, V_TRUE, best[0], best[1]);
    }
    free(rows);
    by_mem_free(m);
}

/* usage: gpu_draw [quick], which leaves out the true vocabulary and the times. */
int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    by_device *dev = NULL;
    by_err why = {0};
    by_device_opts opts = {.backend = BY_BACKEND_CUDA};
    by_status status = by_device_open(&dev, &opts, &why);
    if (status == BY_EUNSUPPORTED) {
        printf("skipped: %s\n", why.msg);
        return 77;
    }
    if (status < 0) {
        fprintf(stderr, "gpu_draw: %s\n", why.msg);
        return 1;
    }
    rnd_state = 7;
    int failed = 0;
    static const int32_t sizes[] = {5, 300, 5000, 8192, 20000, V_TRUE};
    static const float temperatures[] = {0, 0.3f, 1, 1.7f};
    for (size_t v = 0; v < sizeof sizes / sizeof *sizes - quick; v++)
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++)
            for (int rule = 0; rule < 2; rule++) failed += compare(dev, sizes[v], temperatures[t], t == 0, (by_sample_rule)rule);
    if (!quick) times(dev);
    by_device_close(dev);
    printf("%d of the cases failed\n", failed);
    return failed != 0;
}
