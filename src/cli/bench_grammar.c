/* bench_grammar.c - `bathyc bench grammar`: what it costs many sequences at once to be limited by a grammar, or by several. The same
 * number of tokens is decoded with and without, in turns, timed by the clock and by the processor time of the whole process, and step
 * by step: the tenth percentile of the steps says most on a machine that does other work, too. The language of the grammar has no
 * short texts, so that no sequence ends early. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/bench.h"
#include "cli/bench_requests.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "json/json_write.h"

enum { SCHEMAS_MAX = 256 };

/* Between the two is a number that makes many schemas of one. */
static const char endless_before[] =
    "{\"type\":\"array\",\"minItems\":100000,\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":";
static const char endless_behind[] =
    "},\"kind\":{\"enum\":[\"one\",\"two\",\"three\"]},\"tags\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\",\"maxLength\":12}},\"score\":{\"type\":\"number\"}},\"required\":[\"name\",\"age\",\"kind\"],"
    "\"additionalProperties\":false}}";

/* Steps of one kind of runs that decode and nothing else. */
typedef struct {
    double *ms, *cpu_ms; /* [cap] by the clock; processor time of the device's thread */
    int64_t n, cap;
} step_list;

typedef struct {
    by_engine_flags flags;
    const char *file;
    int64_t n_seqs, n_prompt, n_gen, repeat, n_schemas;
    bool json;
    by_engine *engine;
    by_request_grammar grammars[SCHEMAS_MAX];
    by_buf texts[SCHEMAS_MAX];
    by_rng rng;
    pthread_mutex_t lock; /* of the next four, which the scheduler's thread writes */
    step_list *noting;    /* NULL: the steps are not counted */
    int64_t then_ns;
    by_engine_stats then;
    step_list steps[2];
    double tok_s[2], cpu_us[2]; /* medians; [0] free, [1] limited; processor time of a token */
    double step_ms[2], step_cpu_ms[2]; /* tenth percentiles */
    double time_ratio, cpu_ratio; /* medians of limited over free, of neighbouring runs */
} bench;

static double process_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* by_engine_opts.on_steps */
static void note_step(void *arg, const by_engine_stats *now) {
    bench *b = arg;
    int64_t now_ns = by_clock_ns();
    pthread_mutex_lock(&b->lock);
    step_list *l = b->noting;
    if (l && l->n < l->cap && b->then_ns && now->n_steps == b->then.n_steps + 1 && now->n_decode_steps == b->then.n_decode_steps + 1) {
        l->ms[l->n] = (double)(now_ns - b->then_ns) * 1e-6;
        l->cpu_ms[l->n++] = (now->decode_cpu_s - b->then.decode_cpu_s) * 1e3;
    }
    b->then = *now;
    b->then_ns = now_ns;
    pthread_mutex_unlock(&b->lock);
}

/* list: where the next steps go, NULL = nowhere. */
static void note_into(bench *b, step_list *list) {
    pthread_mutex_lock(&b->lock);
    b->noting = list;
    b->then_ns = 0;
    pthread_mutex_unlock(&b->lock);
}

static by_status one_run(bench *b, bool limited, bool timed, double *seconds, double *cpu_s, by_err *err) {
    by_bench_run r = {.engine = b->engine, .n_requests = b->n_seqs, .n_prompt = b->n_prompt, .n_gen = b->n_gen, .rng = &b->rng,
                      .grammars = b->grammars, .n_grammars = limited ? b->n_schemas : 0};
    double from = process_s();
    note_into(b, timed ? &b->steps[limited] : NULL);
    BY_TRY(by_bench_requests_run(&r, err));
    note_into(b, NULL);
    *cpu_s = process_s() - from;
    *seconds = r.decode_s;
    return BY_OK;
}

/* Sorts. 0 without steps: with drafts one step may have been all. */
static double tenth_percentile(double *v, int64_t n) {
    if (n == 0) return 0;
    by_bench_median(v, (int)n);
    return v[n / 10];
}

static by_status measure(bench *b, by_err *err) {
    double s[2][BY_BENCH_REPEAT_MAX], cpu[2][BY_BENCH_REPEAT_MAX], ratio[BY_BENCH_REPEAT_MAX], cpu_ratio[BY_BENCH_REPEAT_MAX], drop;
    for (int k = 0; k < 2; k++) BY_TRY(one_run(b, k, false, &drop, &drop, err)); /* warms up */
    for (int i = 0; i < b->repeat; i++) {
        for (int j = 0; j < 2; j++) {
            int k = (j + i) % 2;
            BY_TRY(one_run(b, k, true, &s[k][i], &cpu[k][i], err));
        }
        ratio[i] = s[1][i] / s[0][i];
        cpu_ratio[i] = cpu[1][i] / cpu[0][i];
    }
    double n = (double)(b->n_seqs * (b->n_gen - 1));
    for (int k = 0; k < 2; k++) {
        b->tok_s[k] = n / by_bench_median(s[k], (int)b->repeat);
        b->cpu_us[k] = by_bench_median(cpu[k], (int)b->repeat) / (double)(b->n_seqs * b->n_gen) * 1e6;
        b->step_ms[k] = tenth_percentile(b->steps[k].ms, b->steps[k].n);
        b->step_cpu_ms[k] = tenth_percentile(b->steps[k].cpu_ms, b->steps[k].n);
    }
    b->time_ratio = by_bench_median(ratio, (int)b->repeat);
    b->cpu_ratio = by_bench_median(cpu_ratio, (int)b->repeat);
    return BY_OK;
}

static by_status make_schemas(bench *b, by_err *err) {
    if (b->file && b->n_schemas > 1) return BY_FAIL(err, BY_EINVAL, "--schemas: makes many of the one that is built in, not of a file");
    for (int64_t i = 0; i < b->n_schemas; i++) {
        by_buf *t = &b->texts[i];
        if (b->file) BY_TRY(by_file_read(t, b->file, (size_t)4 << 20, err));
        else if (!by_buf_printf(t, "%s%lld%s", endless_before, 150 + (long long)i, endless_behind))
            return BY_FAIL(err, BY_ENOMEM, "out of memory for a schema");
        b->grammars[i] = (by_request_grammar){.spec = {.kind = BY_GRAMMAR_JSON_SCHEMA, .text = by_buf_str(t)}, .bound_id = -1};
    }
    return BY_OK;
}

static by_status run_all(bench *b, by_err *err) {
    by_engine_opts o;
    if (b->flags.log_steps) return BY_FAIL(err, BY_EINVAL, "--log-steps: this command looks at the steps itself");
    BY_TRY(make_schemas(b, err));
    for (int k = 0; k < 2; k++) {
        step_list *l = &b->steps[k];
        size_t cap = by_mul_size((size_t)b->n_gen, (size_t)b->repeat);
        l->ms = by_alloc(BY_MEM_MISC, by_mul_size(cap, sizeof *l->ms));
        l->cpu_ms = by_alloc(BY_MEM_MISC, by_mul_size(cap, sizeof *l->cpu_ms));
        if (!l->ms || !l->cpu_ms) return BY_FAIL(err, BY_ENOMEM, "out of memory for the times of steps");
        l->cap = (int64_t)cap;
    }
    if (!b->flags.max_seqs) b->flags.max_seqs = b->n_seqs;
    if (!b->flags.model.context) b->flags.model.context = b->n_prompt + b->n_gen + 1;
    BY_TRY(by_engine_flags_opts(&o, &b->flags, err));
    o.log_steps = 1;
    o.on_steps = note_step;
    o.on_steps_arg = b;
    BY_TRY(by_engine_open(&b->engine, &o, err));
    return measure(b, err);
}

static void print_table(const bench *b) {
    printf("%lld sequences, prompts of %lld tokens, %lld tokens each, %lld schema%s\n\n%10s %10s %14s %10s %12s\n", (long long)b->n_seqs,
           (long long)b->n_prompt, (long long)b->n_gen, (long long)b->n_schemas, b->n_schemas == 1 ? "" : "s", "", "tokens/s",
           "cpu us/token", "step ms", "step cpu ms");
    for (int k = 0; k < 2; k++)
        printf("%10s %10.0f %14.2f %10.3f %12.3f\n", k ? "limited" : "free", b->tok_s[k], b->cpu_us[k], b->step_ms[k], b->step_cpu_ms[k]);
    printf("\nlimited over free: time %.3f, processor time %.3f", b->time_ratio, b->cpu_ratio);
    if (b->step_ms[0] > 0) printf("; a step %.3f, of its thread %.3f", b->step_ms[1] / b->step_ms[0], b->step_cpu_ms[1] / b->step_cpu_ms[0]);
    printf("\n");
}

static void print_json(const bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "grammar");
    by_json_out_member_int(&o, "sequences", b->n_seqs);
    by_json_out_member_int(&o, "n_prompt", b->n_prompt);
    by_json_out_member_int(&o, "n_gen", b->n_gen);
    by_json_out_member_int(&o, "schemas", b->n_schemas);
    by_json_out_member_int(&o, "repetitions", b->repeat);
    by_json_out_member_double(&o, "tokens_per_s_free", b->tok_s[0]);
    by_json_out_member_double(&o, "tokens_per_s_limited", b->tok_s[1]);
    by_json_out_member_double(&o, "cpu_us_per_token_free", b->cpu_us[0]);
    by_json_out_member_double(&o, "cpu_us_per_token_limited", b->cpu_us[1]);
    by_json_out_member_double(&o, "step_ms_free", b->step_ms[0]);
    by_json_out_member_double(&o, "step_ms_limited", b->step_ms[1]);
    by_json_out_member_double(&o, "step_cpu_ms_free", b->step_cpu_ms[0]);
    by_json_out_member_double(&o, "step_cpu_ms_limited", b->step_cpu_ms[1]);
    by_json_out_member_double(&o, "time_limited_over_free", b->time_ratio);
    by_json_out_member_double(&o, "cpu_limited_over_free", b->cpu_ratio);
    by_bench_json_end(&o, &out);
}

static void deinit(bench *b) {
    by_engine_close(b->engine);
    by_engine_flags_deinit(&b->flags);
    for (int i = 0; i < SCHEMAS_MAX; i++) by_buf_deinit(&b->texts[i]);
    for (int k = 0; k < 2; k++) {
        by_free(b->steps[k].ms);
        by_free(b->steps[k].cpu_ms);
    }
    pthread_mutex_destroy(&b->lock);
}

int by_bench_grammar(int argc, char **argv) {
    bench b = {.flags = by_engine_flags_default(), .n_seqs = 256, .n_prompt = 16, .n_gen = 65, .repeat = 5, .n_schemas = 1, .rng = {42}};
    b.flags.draft_mode = BY_DRAFT_OFF;
    const by_flag flags[] = {
        BY_ENGINE_FLAG_ROWS(b.flags),
        {.names = "--sequences,-s", .kind = BY_FLAG_INT, .out = &b.n_seqs, .min = 1, .max = BY_LIMIT_SEQS,
         .help = "sequences at once (default: 256)"},
        {.names = "--schema", .kind = BY_FLAG_STRING, .out = &b.file, .help = "file of a JSON schema (default: an endless list of records)"},
        {.names = "--schemas", .kind = BY_FLAG_INT, .out = &b.n_schemas, .min = 1, .max = SCHEMAS_MAX,
         .help = "different schemas that the sequences have in turns (default: 1)"},
        BY_BENCH_DECODE_ROWS(b, "65"),
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench grammar", "[flags]",
                            "Times decoding of many sequences at once, greedy, with random prompts; limited and free ones run in turns.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    pthread_mutex_init(&b.lock, NULL);
    by_status status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK) print_table(&b);
    by_args_free(flags, n_flags);
    deinit(&b);
    return by_bench_exit(status, &err);
}
