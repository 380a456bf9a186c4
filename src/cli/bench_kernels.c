/* bench_kernels.c - `bathyc bench kernels`: every operator at the true dimensions of the model, its rate beside the limits of
 * this machine that the same threads reach in the same run: bytes over the read bandwidth or operations over the peak of
 * the instruction that the kernel uses, whichever takes longer. */
#include "cli/bench_kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/membench.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "json/json_write.h"
#include "ops/cpu/cpu_peak.h"

enum { MAX_ROWS = 8, MOST_ROWS = 1 << 14, MAX_RESULTS = 256, PIECE = 1 << 20, MIN_MB = 16, READ_BYTES = 512 << 20, TURN_WINDOWS = 16 };

typedef struct {
    const char *op, *name;
    int64_t rows, calls;
    double best_s, bytes, flops, weight_bytes;
    bool bf16_dot;
} result;

typedef struct {
    int backend;
    const char *isa, *only;
    int64_t threads, weights_mb;
    double seconds;
    by_flag_list rows;
    bool json, limits;
    by_kernel_ctx ctx;
    by_membench *read;
    double read_bytes_s; /* best window so far */
    by_cpu_peak peaks[BY_ISA_N];
    int n_peaks;
    result results[MAX_RESULTS];
    int n_results;
} bench;

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static by_status measure_limits(bench *b, by_err *err) {
    by_device *dev = b->ctx.dev;
    by_cpu cpu;
    by_cpu_detect(&cpu);
    if (b->isa) BY_TRY(by_cpu_limit(&cpu, b->isa, err));
    BY_TRY(by_membench_create(&b->read, by_device_threads(dev), READ_BYTES, err));
    b->read_bytes_s = by_membench_step(b->read, 3 * TURN_WINDOWS);
    return by_cpu_peak_measure(b->peaks, &b->n_peaks, BY_ISA_N, cpu.isa, by_device_threads(dev), err);
}

/* The peak of the instruction that a product uses: the first is the best one for quantised values, the last plain fp32. */
static double peak_of(const bench *b, bool bf16_dot) {
    return b->n_peaks == 0 ? 0 : b->peaks[bf16_dot ? 0 : b->n_peaks - 1].flop_s;
}

/* Seconds that no implementation can beat; 0: no limits measured. */
static double floor_of(const bench *b, const result *r) {
    double peak = peak_of(b, r->bf16_dot);
    if (peak <= 0) return 0;
    double by_bytes = r->bytes / b->read_bytes_s, by_flops = r->flops / peak;
    return by_bytes > by_flops ? by_bytes : by_flops;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* One block for all weights. Its bytes are numbers as FP4, FP8, bf16 and fp32, none of them tiny: the second of each pair is
 * a sign and 0x3c to 0x3f. */
static by_status make_weights(bench *b, by_err *err) {
    by_kernel_ctx *c = &b->ctx;
    int64_t most = 0;
    for (int i = 0; i < by_kernel_count(); i++) {
        const char *op, *name = by_kernel_name(i, &op);
        if (b->only && !strstr(name, b->only) && !strstr(op, b->only)) continue;
        most = by_kernel_weight_bytes(i) > most ? by_kernel_weight_bytes(i) : most;
    }
    c->weight_bytes = b->weights_mb << 20;
    if (c->weight_bytes < most + PIECE) c->weight_bytes = (most / PIECE + 2) * PIECE;
    BY_TRY(by_mem_alloc(&c->weights, c->dev, (size_t)c->weight_bytes, err));
    BY_TRY(by_mem_alloc(&c->scales, c->dev, (size_t)(c->weight_bytes / 16 + PIECE), err));
    uint8_t *piece = by_alloc(BY_MEM_MISC, PIECE);
    if (!piece) return BY_FAIL(err, BY_ENOMEM, "out of memory for random weights");
    by_rng rng = {42};
    for (int i = 0; i < PIECE; i++) {
        uint8_t r = (uint8_t)by_rng_u64(&rng);
        piece[i] = i % 2 ? (uint8_t)((r & 0x83) | 0x3c) : (uint8_t)(r & 0xf7);
    }
    by_status status = BY_OK;
    for (int64_t at = 0; status == BY_OK && at < c->weight_bytes; at += PIECE)
        status = by_mem_write(c->weights, (size_t)at, piece, PIECE, err);
    for (int i = 0; i < PIECE; i++) piece[i] = (uint8_t)(118 + by_rng_below(&rng, 8));
    for (int64_t at = 0; status == BY_OK && at < c->weight_bytes / 16; at += PIECE)
        status = by_mem_write(c->scales, (size_t)at, piece, PIECE, err);
    by_free(piece);
    return status;
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

/* Waits for the device. */
static by_status settle(by_kernel_ctx *c, by_err *err) {
    uint8_t byte;
    return by_mem_read(&byte, c->scales, 0, 1, err);
}

/* Best of many windows, short ones: other programs disturb some of them. */


static by_status time_kernel(bench *b, by_kernel *k, result *r, by_err *err) {
    by_kernel_ctx *c = &b->ctx;
    BY_TRY(k->call(c, k, err));
    BY_TRY(settle(c, err));
    int64_t begin = by_clock_ns(), calls = 1;
    do {
        int64_t t0 = by_clock_ns();
        for (int64_t i = 0; i < calls; i++) BY_TRY(k->call(c, k, err));
        BY_TRY(settle(c, err));
        double s = (double)(by_clock_ns() - t0) * 1e-9;
        if (r->calls == 0 || s / (double)calls < r->best_s) r->best_s = s / (double)calls;
        r->calls += calls;
        if (s < 0.002) calls *= 2;
    } while ((double)(by_clock_ns() - begin) * 1e-9 < b->seconds);
    return BY_OK;
}

static by_status run_kernel(bench *b, int i, int64_t rows, by_err *err) {
    by_kernel k;
    by_status status = by_kernel_make(&k, &b->ctx, i, rows, err);
    if (status == BY_OK && b->n_results < MAX_RESULTS) {
        result *r = &b->results[b->n_results++];
        *r = (result){.op = k.op, .name = k.name, .rows = rows, .bytes = k.bytes, .flops = k.flops,
                      .weight_bytes = (double)k.weight_bytes, .bf16_dot = k.bf16_dot};
        status = time_kernel(b, &k, r, err);
        if (b->read) b->read_bytes_s = by_membench_step(b->read, TURN_WINDOWS);
    }
    by_kernel_drop(&k, &b->ctx);
    return status;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_table(const bench *b) {
    const by_device *dev = b->ctx.dev;
    printf("backend %s, %d thread%s", by_device_name(dev), by_device_threads(dev), by_device_threads(dev) == 1 ? "" : "s");
    if (b->read_bytes_s > 0) printf("; these threads read %.1f GB/s", b->read_bytes_s * 1e-9);
    for (int i = 0; i < b->n_peaks; i++)
        printf("%s %s %.0f GFLOP/s", i ? "," : "; peaks:", by_isa_name(b->peaks[i].isa), b->peaks[i].flop_s * 1e-9);
    printf("\n\n%-12s %-36s %5s %10s %9s %9s %8s %10s %9s\n", "operator", "shape", "rows", "us", "MB", "GB/s", "of read",
           "GFLOP/s", "of floor");
    for (int i = 0; i < b->n_results; i++) {
        const result *r = &b->results[i];
        char read[16] = "-", floor_share[16] = "-";
        if (b->read_bytes_s > 0) snprintf(read, sizeof read, "%.0f %%", 100 * r->bytes / r->best_s / b->read_bytes_s);
        double floor_s = floor_of(b, r);
        if (floor_s > 0) snprintf(floor_share, sizeof floor_share, "%.0f %%", 100 * floor_s / r->best_s);
        printf("%-12s %-36s %5lld %10.1f %9.3f %9.2f %8s %10.1f %9s\n", r->op, r->name, (long long)r->rows,
               r->best_s * 1e6, r->bytes * 1e-6, r->bytes / r->best_s * 1e-9, read, r->flops / r->best_s * 1e-9, floor_share);
    }
}

static void put_result(by_json_out *o, const result *r, double floor_s) {
    by_json_out_object_begin(o);
    by_json_out_member_z(o, "op", r->op);
    by_json_out_member_z(o, "shape", r->name);
    by_json_out_member_int(o, "rows", r->rows);
    by_json_out_member_int(o, "calls", r->calls);
    by_json_out_member_double(o, "best_s", r->best_s);
    by_json_out_member_double(o, "weight_bytes", r->weight_bytes);
    by_json_out_member_double(o, "bytes", r->bytes);
    by_json_out_member_double(o, "flop", r->flops);
    by_json_out_member_double(o, "gb_s", r->bytes / r->best_s * 1e-9);
    by_json_out_member_double(o, "gflop_s", r->flops / r->best_s * 1e-9);
    by_json_out_member_z(o, "limit", r->bf16_dot ? "bf16_dot" : "fp32");
    by_json_out_key(o, "floor_s");
    if (floor_s > 0) by_json_out_double(o, floor_s);
    else by_json_out_null(o);
    by_json_out_object_end(o);
}

static void print_json(const bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "kernels");
    by_json_out_member_int(&o, "format", 1);
    by_json_out_member_z(&o, "backend", by_device_name(b->ctx.dev));
    by_json_out_member_int(&o, "threads", by_device_threads(b->ctx.dev));
    by_json_out_member_double(&o, "read_gb_s", b->read_bytes_s * 1e-9);
    by_json_out_key(&o, "peaks");
    by_json_out_array_begin(&o);
    for (int i = 0; i < b->n_peaks; i++) {
        by_json_out_object_begin(&o);
        by_json_out_member_z(&o, "isa", by_isa_name(b->peaks[i].isa));
        by_json_out_member_double(&o, "gflop_s", b->peaks[i].flop_s * 1e-9);
        by_json_out_object_end(&o);
    }
    by_json_out_array_end(&o);
    by_json_out_key(&o, "results");
    by_json_out_array_begin(&o);
    for (int i = 0; i < b->n_results; i++) put_result(&o, &b->results[i], floor_of(b, &b->results[i]));
    by_json_out_array_end(&o);
    by_bench_json_end(&o, &out);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static by_status run_all(bench *b, by_err *err) {
    int64_t rows[MAX_ROWS];
    int n_rows = by_bench_numbers(&b->rows, "1,32,512", rows, MAX_ROWS, err);
    if (n_rows < 0) return BY_EINVAL;
    for (int r = 0; r < n_rows; r++)
        if (rows[r] < 1 || rows[r] > MOST_ROWS)
            return BY_FAIL(err, BY_EINVAL, "--rows: %lld is outside 1..%d", (long long)rows[r], MOST_ROWS);
    by_device_opts opts = {.backend = (by_backend)b->backend, .n_threads = (int32_t)b->threads, .isa = b->isa};
    BY_TRY(by_device_open(&b->ctx.dev, &opts, err));
    if (b->limits && b->backend != BY_BACKEND_CUDA) BY_TRY(measure_limits(b, err));
    BY_TRY(make_weights(b, err));
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < by_kernel_count(); i++) {
            const char *op, *name = by_kernel_name(i, &op);
            if (b->only && !strstr(name, b->only) && !strstr(op, b->only)) continue;
            BY_TRY(run_kernel(b, i, rows[r], err));
        }
    }
    if (b->n_results) return BY_OK;
    return BY_FAIL(err, BY_EINVAL, "--only %s: no operator or shape has this in its name", b->only ? b->only : "");
}

int by_bench_kernels(int argc, char **argv) {
    static bench b;
    b = (bench){.backend = BY_BACKEND_CPU, .weights_mb = 768, .seconds = 0.3, .limits = true};
    const by_flag flags[] = {
        {.names = "--backend,--device", .kind = BY_FLAG_CHOICE, .out = &b.backend, .choices = BY_BACKEND_CHOICES,
         .help = "where to compute (default: cpu)"},
        {.names = "--threads,-t", .kind = BY_FLAG_INT, .out = &b.threads, .min = 1, .max = BY_LIMIT_THREADS,
         .help = "CPU threads (default: physical cores that may be used)"},
        {.names = "--cpu-isa", .kind = BY_FLAG_STRING, .out = &b.isa, .help = "highest CPU instruction set to use"},
        {.names = "--rows,-r", .kind = BY_FLAG_LIST, .out = &b.rows, .help = "rows of a step, e.g. 1,8 (default 1,32,512)"},
        {.names = "--only", .kind = BY_FLAG_STRING, .out = &b.only, .help = "operators and shapes with this in their name"},
        {.names = "--seconds", .kind = BY_FLAG_DOUBLE, .out = &b.seconds, .dmin = 0.001, .dmax = 60,
         .help = "time for each (default 0.3)"},
        {.names = "--weights-mb", .kind = BY_FLAG_INT, .out = &b.weights_mb, .min = MIN_MB, .max = 65536,
         .help = "weights that successive calls go through; more than the caches hold (default 768)"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &b.json, .help = "one JSON object instead of a table"},
        {.names = "--no-limits", .kind = BY_FLAG_BOOL, .out = &b.limits, .help = "do not measure the machine beside"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench kernels", "[flags]", "Times each operator at the true dimensions of the model.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK) print_table(&b);
    by_args_free(flags, n_flags);
    by_membench_destroy(b.read);
    by_mem_free(b.ctx.weights);
    by_mem_free(b.ctx.scales);
    by_device_close(b.ctx.dev);
    return by_bench_exit(status, &err);
}
