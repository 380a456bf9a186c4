/* bench_grammar.c - `bathyc bench grammar`: what it costs many sequences at once to be limited by a grammar. The same number of tokens
 * is decoded with and without one, in turns, timed by the clock and by the processor time of the whole process. The language of the
 * grammar has no short texts, so that no sequence ends early. */
#include <stdio.h>
#include <time.h>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/bench_requests.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "json/json_write.h"

static const char endless[] =
    "{\"type\":\"array\",\"minItems\":100000,\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"kind\":{\"enum\":[\"one\",\"two\",\"three\"]},\"tags\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\",\"maxLength\":12}},\"score\":{\"type\":\"number\"}},\"required\":[\"name\",\"age\",\"kind\"],"
    "\"additionalProperties\":false}}";

typedef struct {
    by_engine_flags flags;
    const char *file;
    int64_t n_seqs, n_prompt, n_gen, repeat;
    bool json;
    by_engine *engine;
    by_request_grammar grammar;
    by_buf text;
    by_rng rng;
    double tok_s[2], cpu_us[2]; /* medians; [0] free, [1] limited; processor time of a token */
    double time_ratio, cpu_ratio; /* medians of limited over free, of neighbouring runs */
} bench;

static double process_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static by_status one_run(bench *b, bool limited, double *seconds, double *cpu_s, by_err *err) {
    by_bench_run r = {.engine = b->engine, .n_requests = b->n_seqs, .n_prompt = b->n_prompt, .n_gen = b->n_gen, .rng = &b->rng,
                      .grammar = limited ? &b->grammar : NULL};
    double from = process_s();
    BY_TRY(by_bench_requests_run(&r, err));
    *cpu_s = process_s() - from;
    *seconds = r.decode_s;
    return BY_OK;
}

static by_status measure(bench *b, by_err *err) {
    double s[2][BY_BENCH_REPEAT_MAX], cpu[2][BY_BENCH_REPEAT_MAX], ratio[BY_BENCH_REPEAT_MAX], cpu_ratio[BY_BENCH_REPEAT_MAX], drop;
    for (int k = 0; k < 2; k++) BY_TRY(one_run(b, k, &drop, &drop, err)); /* warms up */
    for (int i = 0; i < b->repeat; i++) {
        for (int k = 0; k < 2; k++) BY_TRY(one_run(b, (k + i) % 2, &s[(k + i) % 2][i], &cpu[(k + i) % 2][i], err));
        ratio[i] = s[1][i] / s[0][i];
        cpu_ratio[i] = cpu[1][i] / cpu[0][i];
    }
    double n = (double)(b->n_seqs * (b->n_gen - 1));
    for (int k = 0; k < 2; k++) {
        b->tok_s[k] = n / by_bench_median(s[k], (int)b->repeat);
        b->cpu_us[k] = by_bench_median(cpu[k], (int)b->repeat) / (double)(b->n_seqs * b->n_gen) * 1e6;
    }
    b->time_ratio = by_bench_median(ratio, (int)b->repeat);
    b->cpu_ratio = by_bench_median(cpu_ratio, (int)b->repeat);
    return BY_OK;
}

static by_status run_all(bench *b, by_err *err) {
    by_engine_opts o;
    if (b->file) BY_TRY(by_file_read(&b->text, b->file, (size_t)4 << 20, err));
    b->grammar = (by_request_grammar){.spec = {.kind = BY_GRAMMAR_JSON_SCHEMA}, .bound_id = -1};
    b->grammar.spec.text = b->file ? by_buf_str(&b->text) : BY_STR(endless);
    if (!b->flags.max_seqs) b->flags.max_seqs = b->n_seqs;
    if (!b->flags.model.context) b->flags.model.context = b->n_prompt + b->n_gen + 1;
    BY_TRY(by_engine_flags_opts(&o, &b->flags, err));
    BY_TRY(by_engine_open(&b->engine, &o, err));
    return measure(b, err);
}

static void print_table(const bench *b) {
    printf("%lld sequences, prompts of %lld tokens, %lld tokens each\n\n%10s %10s %14s\n", (long long)b->n_seqs, (long long)b->n_prompt,
           (long long)b->n_gen, "", "tokens/s", "cpu us/token");
    printf("%10s %10.0f %14.2f\n%10s %10.0f %14.2f\n\n", "free", b->tok_s[0], b->cpu_us[0], "limited", b->tok_s[1], b->cpu_us[1]);
    printf("limited over free: time %.3f, processor time %.3f\n", b->time_ratio, b->cpu_ratio);
}

static void print_json(const bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "grammar");
    by_json_out_member_int(&o, "sequences", b->n_seqs);
    by_json_out_member_int(&o, "n_prompt", b->n_prompt);
    by_json_out_member_int(&o, "n_gen", b->n_gen);
    by_json_out_member_int(&o, "repetitions", b->repeat);
    by_json_out_member_double(&o, "tokens_per_s_free", b->tok_s[0]);
    by_json_out_member_double(&o, "tokens_per_s_limited", b->tok_s[1]);
    by_json_out_member_double(&o, "cpu_us_per_token_free", b->cpu_us[0]);
    by_json_out_member_double(&o, "cpu_us_per_token_limited", b->cpu_us[1]);
    by_json_out_member_double(&o, "time_limited_over_free", b->time_ratio);
    by_json_out_member_double(&o, "cpu_limited_over_free", b->cpu_ratio);
    by_bench_json_end(&o, &out);
}

int by_bench_grammar(int argc, char **argv) {
    bench b = {.flags = by_engine_flags_default(), .n_seqs = 256, .n_prompt = 16, .n_gen = 65, .repeat = 5, .rng = {42}};
    b.flags.draft_mode = BY_DRAFT_OFF;
    const by_flag flags[] = {
        BY_ENGINE_FLAG_ROWS(b.flags),
        {.names = "--sequences,-s", .kind = BY_FLAG_INT, .out = &b.n_seqs, .min = 1, .max = BY_LIMIT_SEQS,
         .help = "sequences at once (default: 256)"},
        {.names = "--schema", .kind = BY_FLAG_STRING, .out = &b.file, .help = "file of a JSON schema (default: an endless list of records)"},
        BY_BENCH_DECODE_ROWS(b, "65"),
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench grammar", "[flags]",
                            "Times decoding of many sequences at once, greedy, with random prompts; limited and free ones run in turns.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK) print_table(&b);
    by_engine_close(b.engine);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&b.flags);
    by_buf_deinit(&b.text);
    return by_bench_exit(status, &err);
}
