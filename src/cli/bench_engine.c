/* bench_engine.c - `bathyc bench engine`: output tokens per second of the request engine with 1, 16, 64... sequences at once, with
 * asynchronous steps and without in turns, beside the floor of a step (operations over the measured bf16 rate or weight bytes
 * over the measured bandwidth, the larger) and the processor time that device and scheduler thread take of a step. The limits of
 * the machine are the best of several windows, so the figures beside them are those of the best run; ratios are medians over
 * neighbouring runs.
 *
 * With a device that has its own memory: how long it had nothing to do between steps, by its own clock, what was allocated and waited
 * for, and how many steps came from recordings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flopbench.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "json/json_write.h"
#include "model/traffic.h"

enum { MAX_COUNTS = 16 };

typedef struct {
    int64_t n_seqs;
    /* The best of the repetitions; [0] waiting for each step, [1] asynchronous. */
    double tok_s[2], step_ms[2];
    double cpu_ms[2];   /* processor time of the device's thread, of a step */
    double sched_us[2]; /* of the scheduler thread; median */
    double median_ms[2];
    double async_ratio, async_cpu_ratio; /* medians of the ratios of neighbouring runs: with, over without */
    double floor_ms;
    double idle, allocs, waits, replayed; /* asynchronous, on a device with its own memory: idle time over all; of a step; share of the steps */
} row;

/* Decoding n sequences. */
typedef struct {
    double seconds;          /* from the last first token to the end */
    double sched_us, cpu_ms; /* of a step */
    double idle, allocs, waits, replayed;
} timing;

typedef struct {
    by_engine_flags flags;
    by_flag_list counts;
    int64_t n_prompt, n_gen, repeat;
    bool json;
    by_engine *engine;
    timing times[2][BY_BENCH_REPEAT_MAX];
    bool far; /* the device has its own memory */
    by_rng rng;
    double read_bytes_s, flop_s;
    const char *unit;
    row rows[MAX_COUNTS];
    int n_rows;
} bench;

static by_status one_run(bench *b, int which, int64_t n, timing *out, by_err *err) {
    by_engine_wait_idle(b->engine, -1);
    by_engine_set_async(b->engine, which == 1);
    by_engine_stats before = by_engine_stats_get(b->engine), after;
    by_bench_run r = {.engine = b->engine, .n_requests = n, .n_prompt = b->n_prompt, .n_gen = b->n_gen, .rng = &b->rng};
    BY_TRY(by_bench_requests_run(&r, err));
    after = by_engine_stats_get(b->engine);
    uint64_t steps = after.n_steps - before.n_steps, decodes = after.n_decode_steps - before.n_decode_steps;
    *out = (timing){.seconds = r.decode_s, .sched_us = steps ? (after.plan_s - before.plan_s) / (double)steps * 1e6 : 0,
                    .cpu_ms = decodes ? (after.decode_cpu_s - before.decode_cpu_s) / (double)decodes * 1e3 : 0};
    double busy = after.busy_s - before.busy_s, idle = after.idle_s - before.idle_s;
    if (busy <= 0) return BY_OK;
    out->idle = idle / (busy + idle);
    out->allocs = (double)(after.n_allocs - before.n_allocs) / (double)steps;
    out->waits = (double)(after.n_waits - before.n_waits) / (double)steps;
    out->replayed = (double)(after.n_replayed - before.n_replayed) / (double)steps;
    return BY_OK;
}

static double least(const double *v, int64_t n) {
    double best = v[0];
    for (int64_t i = 1; i < n; i++) best = v[i] < best ? v[i] : best;
    return best;
}

static void finish(const bench *b, row *r, int64_t n) {
    enum { MOST = BY_BENCH_REPEAT_MAX };
    double s[2][MOST], us[2][MOST], cpu[2][MOST], ratio[MOST], cpu_ratio[MOST], idle[MOST];
    int repeat = (int)b->repeat;
    for (int i = 0; i < repeat; i++) {
        for (int k = 0; k < 2; k++) {
            const timing *t = &b->times[k][i];
            s[k][i] = t->seconds;
            us[k][i] = t->sched_us;
            cpu[k][i] = t->cpu_ms;
        }
        ratio[i] = s[1][i] / s[0][i];
        cpu_ratio[i] = cpu[1][i] / cpu[0][i];
        idle[i] = b->times[1][i].idle;
    }
    const timing *last = &b->times[1][repeat - 1];
    *r = (row){.n_seqs = n, .async_ratio = by_bench_median(ratio, repeat), .async_cpu_ratio = by_bench_median(cpu_ratio, repeat),
               .idle = by_bench_median(idle, repeat), .allocs = last->allocs, .waits = last->waits, .replayed = last->replayed};
    for (int k = 0; k < 2; k++) {
        double best = least(s[k], repeat), steps = (double)(b->n_gen - 1);
        r->step_ms[k] = best / steps * 1e3;
        r->tok_s[k] = (double)n * steps / best;
        r->cpu_ms[k] = least(cpu[k], repeat);
        r->median_ms[k] = by_bench_median(s[k], repeat) / steps * 1e3;
        r->sched_us[k] = by_bench_median(us[k], repeat);
    }
}

static by_status measure(bench *b, int64_t n, by_err *err) {
    timing t;
    for (int k = 0; k < 2; k++) BY_TRY(one_run(b, k, n, &t, err)); /* warms up */
    for (int i = 0; i < b->repeat; i++)
        for (int j = 0; j < 2; j++) BY_TRY(one_run(b, (j + i) % 2, n, &b->times[(j + i) % 2][i], err));
    row *r = &b->rows[b->n_rows++];
    finish(b, r, n);
    by_traffic w = by_model_traffic(by_engine_model(b->engine), n, n);
    double flops = b->flop_s > 0 ? w.flops / b->flop_s : 0, bytes = w.weight_bytes / b->read_bytes_s;
    r->floor_ms = (flops > bytes ? flops : bytes) * 1e3;
    return BY_OK;
}

static by_status open_engine(bench *b, int64_t most, by_err *err) {
    by_engine_opts o;
    if (!b->flags.max_seqs) b->flags.max_seqs = most;
    if (!b->flags.model.context) b->flags.model.context = b->n_prompt + b->n_gen + 1;
    BY_TRY(by_engine_flags_opts(&o, &b->flags, err));
    b->far = o.device.backend == BY_BACKEND_CUDA;
    return by_engine_open(&b->engine, &o, err);
}

static by_status run_all(bench *b, by_err *err) {
    int64_t counts[MAX_COUNTS], most = 1;
    int n = by_bench_numbers(&b->counts, "1,16,64", counts, MAX_COUNTS, err);
    if (n < 0) return BY_EINVAL;
    for (int i = 0; i < n; i++) {
        if (counts[i] < 1 || counts[i] > BY_LIMIT_SEQS)
            return BY_FAIL(err, BY_EINVAL, "--sequences: %lld is outside 1..%d", (long long)counts[i], BY_LIMIT_SEQS);
        most = counts[i] > most ? counts[i] : most;
    }
    BY_TRY(open_engine(b, most, err));
    by_device *dev = by_engine_model(b->engine)->dev;
    BY_TRY(by_device_read_rate(dev, &b->read_bytes_s, err));
    if (!b->far) BY_TRY(by_flopbench_bf16(&b->flop_s, &b->unit, by_device_threads(dev), 5, err));
    for (int i = 0; i < n; i++) BY_TRY(measure(b, counts[i], err));
    return BY_OK;
}

/* Where the device computes by itself. */
static void print_device(const bench *b) {
    const by_device *dev = by_engine_model(b->engine)->dev;
    printf("%s, prompts of %lld tokens, %lld tokens each; the device reads %.0f GB/s\n\n", by_device_name(dev), (long long)b->n_prompt,
           (long long)b->n_gen, b->read_bytes_s * 1e-9);
    printf("%9s %9s %9s %8s %8s %8s %8s %7s %9s %8s %7s %7s %7s %7s\n", "sequences", "tokens/s", "not async", "step ms", "median", "cpu ms",
           "floor ms", "x floor", "async/not", "sched us", "idle %", "allocs", "waits", "replays");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        printf("%9lld %9.0f %9.0f %8.3f %8.3f %8.3f %8.3f %7.2f %9.3f %8.1f %7.2f %7.2f %7.2f %7.2f\n", (long long)r->n_seqs, r->tok_s[1],
               r->tok_s[0], r->step_ms[1], r->median_ms[1], r->cpu_ms[1], r->floor_ms, r->step_ms[1] / r->floor_ms, r->async_ratio,
               r->sched_us[1], 100 * r->idle, r->allocs, r->waits, r->replayed);
    }
}

static void print_table(const bench *b) {
    int32_t threads = by_device_threads(by_engine_model(b->engine)->dev);
    printf("%d thread%s, prompts of %lld tokens, %lld tokens each; these threads read %.1f GB/s and do %.0f GFLOP/s (%s)\n\n",
           threads, threads == 1 ? "" : "s", (long long)b->n_prompt, (long long)b->n_gen, b->read_bytes_s * 1e-9, b->flop_s * 1e-9, b->unit);
    printf("%9s %9s %9s %7s %8s %8s %8s %8s %7s %9s %9s %8s\n", "sequences", "tokens/s", "not async", "of one", "step ms", "median", "cpu ms",
           "floor ms", "x floor", "async/not", "of cpu", "sched us");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        printf("%9lld %9.0f %9.0f %7.2f %8.3f %8.3f %8.3f %8.3f %7.2f %9.3f %9.3f %8.1f\n", (long long)r->n_seqs, r->tok_s[1], r->tok_s[0],
               r->tok_s[1] / b->rows[0].tok_s[1], r->step_ms[1], r->median_ms[1], r->cpu_ms[1], r->floor_ms, r->step_ms[1] / r->floor_ms,
               r->async_ratio, r->async_cpu_ratio, r->sched_us[1]);
    }
}

static void print_json(const bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "engine");
    by_json_out_member_int(&o, "threads", by_device_threads(by_engine_model(b->engine)->dev));
    by_json_out_member_int(&o, "n_prompt", b->n_prompt);
    by_json_out_member_int(&o, "n_gen", b->n_gen);
    by_json_out_member_int(&o, "repetitions", b->repeat);
    by_json_out_member_double(&o, "read_gb_s", b->read_bytes_s * 1e-9);
    if (!b->far) by_json_out_member_double(&o, "gflop_s", b->flop_s * 1e-9);
    if (!b->far) by_json_out_member_z(&o, "unit", b->unit);
    by_json_out_key(&o, "results");
    by_json_out_array_begin(&o);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        by_json_out_object_begin(&o);
        by_json_out_member_int(&o, "sequences", r->n_seqs);
        by_json_out_member_double(&o, "tokens_per_s", r->tok_s[1]);
        by_json_out_member_double(&o, "tokens_per_s_not_async", r->tok_s[0]);
        by_json_out_member_double(&o, "step_ms", r->step_ms[1]);
        by_json_out_member_double(&o, "step_ms_not_async", r->step_ms[0]);
        by_json_out_member_double(&o, "step_ms_median", r->median_ms[1]);
        by_json_out_member_double(&o, "cpu_ms", r->cpu_ms[1]);
        by_json_out_member_double(&o, "cpu_ms_not_async", r->cpu_ms[0]);
        by_json_out_member_double(&o, "floor_ms", r->floor_ms);
        by_json_out_member_double(&o, "async_time_over_not", r->async_ratio);
        by_json_out_member_double(&o, "async_cpu_over_not", r->async_cpu_ratio);
        by_json_out_member_double(&o, "scheduler_us", r->sched_us[1]);
        by_json_out_member_double(&o, "scheduler_us_not_async", r->sched_us[0]);
        if (b->far) {
            by_json_out_member_double(&o, "idle_share", r->idle);
            by_json_out_member_double(&o, "allocations_per_step", r->allocs);
            by_json_out_member_double(&o, "waits_per_step", r->waits);
            by_json_out_member_double(&o, "replayed_share", r->replayed);
        }
        by_json_out_object_end(&o);
    }
    by_json_out_array_end(&o);
    by_bench_json_end(&o, &out);
}

int by_bench_engine(int argc, char **argv) {
    bench b = {.flags = by_engine_flags_default(), .n_prompt = 16, .n_gen = 33, .repeat = 5, .rng = {42}};
    b.flags.draft_mode = BY_DRAFT_OFF; /* unless asked for: `bench draft` is about drafts */
    const by_flag flags[] = {
        BY_ENGINE_FLAG_ROWS(b.flags),
        {.names = "--sequences,-s", .kind = BY_FLAG_LIST, .out = &b.counts,
         .help = "sequences at once (default: 1,16,64)"},
        BY_BENCH_DECODE_ROWS(b, "33"),
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench engine", "[flags]",
                            "Times decoding of many sequences at once, greedy, with random prompts; --async and --no-async run in turns.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK && b.far) print_device(&b);
    else if (status == BY_OK) print_table(&b);
    by_engine_close(b.engine);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&b.flags);
    return by_bench_exit(status, &err);
}
