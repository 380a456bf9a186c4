/* bench_model.c - `bathyc bench [model]`: tokens per second of prefill and decode, as a table or JSON, with the weight bytes
 * and operations of a step beside the machine's own read bandwidth measured on the same threads in the same run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "json/json_write.h"
#include "model/traffic.h"

typedef struct {
    const char *test; /* "prefill" or "decode" */
    int64_t n_prompt, n_gen;
    double tok_s, tok_s_dev; /* mean and standard deviation over the repetitions */
    double best_s;           /* shortest run */
    double weight_gb_s, gflop_s;
} result;

enum { MAX_RESULTS = 64 };

typedef struct {
    by_model_flags model;
    by_flag_list prompts, gens, depths;
    int64_t repeat;
    bool json, limits;
    by_solo solo;
    int32_t *tokens;
    result results[MAX_RESULTS];
    int n_results;
    double read_bytes_s;
} bench;

static void add(bench *b, const char *test, int64_t n_prompt, int64_t n_gen, const double *seconds, int n, int64_t n_tokens,
                by_traffic per_run) {
    result r = {.test = test, .n_prompt = n_prompt, .n_gen = n_gen, .best_s = seconds[0]};
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) {
        double rate = (double)n_tokens / seconds[i];
        sum += rate;
        square += rate * rate;
        if (seconds[i] < r.best_s) r.best_s = seconds[i];
    }
    r.tok_s = sum / n;
    r.tok_s_dev = n > 1 ? sqrt(fmax(0, (square - sum * sum / n) / (n - 1))) : 0;
    r.weight_gb_s = per_run.weight_bytes / r.best_s * 1e-9;
    r.gflop_s = per_run.flops / r.best_s * 1e-9;
    if (b->n_results < MAX_RESULTS) b->results[b->n_results++] = r;
}

/* Waits for a device that runs by itself. */
static by_status drain(const bench *b, by_err *err) {
    float first;
    by_tensor l = by_runner_logits(b->solo.runner);
    return by_mem_read(&first, l.mem, (size_t)l.off, sizeof first, err);
}

static by_status run_prefill(bench *b, int64_t n, by_err *err) {
    double seconds[64];
    for (int64_t i = -1; i < b->repeat; i++) { /* the first run warms up */
        by_solo_reset(&b->solo);
        int64_t t0 = by_clock_ns();
        BY_TRY(by_solo_feed(&b->solo, b->tokens, n, err));
        BY_TRY(drain(b, err));
        if (i >= 0) seconds[i] = (double)(by_clock_ns() - t0) * 1e-9;
    }
    by_traffic total = {0};
    for (int64_t at = 0; at < n; at += b->solo.chunk) {
        int64_t rows = n - at < b->solo.chunk ? n - at : b->solo.chunk;
        by_traffic t = by_model_traffic(b->solo.model, rows, at + rows == n);
        total.weight_bytes += t.weight_bytes;
        total.flops += t.flops;
    }
    add(b, "prefill", n, 0, seconds, (int)b->repeat, n, total);
    return BY_OK;
}

static by_status run_decode(bench *b, int64_t depth, int64_t n, by_err *err) {
    double seconds[64];
    if (depth < 1) depth = 1;
    for (int64_t i = -1; i < b->repeat; i++) {
        by_solo_reset(&b->solo);
        BY_TRY(by_solo_feed(&b->solo, b->tokens, depth, err));
        BY_TRY(drain(b, err));
        int64_t t0 = by_clock_ns();
        for (int64_t k = 1; k <= n; k++) BY_TRY(by_solo_feed(&b->solo, b->tokens, depth + k, err));
        BY_TRY(drain(b, err));
        if (i >= 0) seconds[i] = (double)(by_clock_ns() - t0) * 1e-9;
    }
    by_traffic t = by_model_traffic(b->solo.model, 1, 1);
    t.weight_bytes *= (double)n;
    t.flops *= (double)n;
    add(b, "decode", depth, n, seconds, (int)b->repeat, n, t);
    return BY_OK;
}

static void print_table(const bench *b) {
    const by_solo *s = &b->solo;
    printf("backend %s, %d thread%s, numerics %s, chunks of %d rows", by_device_name(s->dev), by_device_threads(s->dev),
           by_device_threads(s->dev) == 1 ? "" : "s", by_numerics_name(s->model->numerics), s->chunk);
    if (b->read_bytes_s > 0) printf("; these threads read %.1f GB/s", b->read_bytes_s * 1e-9);
    printf("\n\n%-8s %8s %8s %14s %16s %8s %12s\n", "test", "prompt", "tokens", "tokens/s", "weights GB/s", "of read", "GFLOP/s");
    for (int i = 0; i < b->n_results; i++) {
        const result *r = &b->results[i];
        char share[16] = "-";
        if (b->read_bytes_s > 0) snprintf(share, sizeof share, "%.0f %%", 100 * r->weight_gb_s * 1e9 / b->read_bytes_s);
        printf("%-8s %8lld %8lld %8.1f +-%4.1f %16.2f %8s %12.1f\n", r->test, (long long)r->n_prompt,
               (long long)(r->n_gen ? r->n_gen : r->n_prompt), r->tok_s, r->tok_s_dev, r->weight_gb_s, share, r->gflop_s);
    }
}

static void print_json(const bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "model");
    const by_solo *s = &b->solo;
    by_json_out_member_int(&o, "format", 1);
    by_json_out_member_z(&o, "backend", by_device_name(s->dev));
    by_json_out_member_int(&o, "threads", by_device_threads(s->dev));
    by_json_out_member_z(&o, "numerics", by_numerics_name(s->model->numerics));
    by_json_out_member_int(&o, "chunk", s->chunk);
    by_json_out_member_double(&o, "read_gb_s", b->read_bytes_s * 1e-9);
    by_json_out_key(&o, "results");
    by_json_out_array_begin(&o);
    for (int i = 0; i < b->n_results; i++) {
        const result *r = &b->results[i];
        by_json_out_object_begin(&o);
        by_json_out_member_z(&o, "test", r->test);
        by_json_out_member_int(&o, "n_prompt", r->n_prompt);
        by_json_out_member_int(&o, "n_gen", r->n_gen);
        by_json_out_member_double(&o, "tokens_per_s", r->tok_s);
        by_json_out_member_double(&o, "tokens_per_s_stddev", r->tok_s_dev);
        by_json_out_member_double(&o, "best_s", r->best_s);
        by_json_out_member_double(&o, "weight_gb_s", r->weight_gb_s);
        by_json_out_key(&o, "read_share");
        if (b->read_bytes_s > 0) by_json_out_double(&o, r->weight_gb_s * 1e9 / b->read_bytes_s);
        else by_json_out_null(&o);
        by_json_out_member_double(&o, "gflop_s", r->gflop_s);
        by_json_out_object_end(&o);
    }
    by_json_out_array_end(&o);
    by_bench_json_end(&o, &out);
}

static by_status run_all(bench *b, by_err *err) {
    int64_t prompts[16], gens[16], depths[16], longest = 1;
    int n_prompts = by_bench_numbers(&b->prompts, "512", prompts, 16, err), n_gens = by_bench_numbers(&b->gens, "64", gens, 16, err);
    int n_depths = by_bench_numbers(&b->depths, "1", depths, 16, err);
    if (n_prompts < 0 || n_gens < 0 || n_depths < 0) return BY_EINVAL;
    for (int i = 0; i < n_prompts; i++) longest = prompts[i] > longest ? prompts[i] : longest;
    for (int i = 0; i < n_gens; i++)
        for (int d = 0; d < n_depths; d++)
            longest = gens[i] + depths[d] + 1 > longest ? gens[i] + depths[d] + 1 : longest;
    if (longest > b->solo.model->cfg.max_positions)
        return BY_FAIL(err, BY_EINVAL, "%lld tokens exceed the model's context of %lld", (long long)longest,
                       (long long)b->solo.model->cfg.max_positions);
    BY_TRY(by_solo_reserve(&b->solo, longest, (int32_t)b->model.chunk, err));
    b->tokens = by_alloc(BY_MEM_MISC, (size_t)longest * 4);
    if (!b->tokens) return BY_FAIL(err, BY_ENOMEM, "out of memory for %lld tokens", (long long)longest);
    by_rng rng = {42};
    for (int64_t i = 0; i < longest; i++)
        b->tokens[i] = (int32_t)by_rng_below(&rng, (uint64_t)b->solo.model->cfg.vocab_size);
    if (b->limits)
        BY_TRY(by_device_read_rate(b->solo.dev, &b->read_bytes_s, err));
    for (int i = 0; i < n_prompts; i++)
        if (prompts[i]) BY_TRY(run_prefill(b, prompts[i], err));
    for (int d = 0; d < n_depths; d++)
        for (int i = 0; i < n_gens; i++)
            if (gens[i]) BY_TRY(run_decode(b, depths[d], gens[i], err));
    return BY_OK;
}

int by_bench_model(int argc, char **argv) {
    bench b = {.model = by_model_flags_default(), .repeat = 3, .limits = true};
    const by_flag flags[] = {
        BY_MODEL_FLAG_ROWS(b.model),
        {.names = "--n-prompt,-p", .kind = BY_FLAG_LIST, .out = &b.prompts, .help = "prompt lengths, e.g. 128,512 (0 = none; default 512)"},
        {.names = "--n-gen,-n", .kind = BY_FLAG_LIST, .out = &b.gens, .help = "tokens to decode, one at a time (0 = none; default 64)"},
        {.names = "--n-depth,-d", .kind = BY_FLAG_LIST, .out = &b.depths, .help = "tokens in the caches before decoding (default 1)"},
        {.names = "--repetitions,-r", .kind = BY_FLAG_INT, .out = &b.repeat, .min = 1, .max = 64, .help = "timed runs of each test (default 3)"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &b.json, .help = "one JSON object instead of a table"},
        {.names = "--no-limits", .kind = BY_FLAG_BOOL, .out = &b.limits, .help = "do not measure the memory bandwidth beside"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench model", "[flags]", "Times prefill and decode with random token ids.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = by_model_flags_open(&b.solo, &b.model, &err);
    if (status == BY_OK) status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK) print_table(&b);
    by_free(b.tokens);
    by_args_free(flags, n_flags);
    by_solo_close(&b.solo);
    return by_bench_exit(status, &err);
}
