/* bench_draft.c - `bathyc bench draft`: the engine with drafts off, fixed, by confidence and auto, side by side: tokens per second, and
 * what became of the drafts, by position and by kind of prompt. Modes run in turns, so that a machine that slows down slows all. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "cli/token_lines.h"
#include "json/json_write.h"

enum { MAX_COUNTS = 8, REPEAT_MAX = 32, N_MODES = 4, KINDS_MAX = 64 };
static const by_draft_mode modes[N_MODES] = {BY_DRAFT_OFF, BY_DRAFT_FIXED, BY_DRAFT_CONFIDENCE, BY_DRAFT_AUTO};
static const char *const mode_names[N_MODES] = {"off", "fixed", "confidence", "auto"};

typedef struct {
    by_str name;
    struct {
        int64_t n_steps, n_tokens, n_verified, n_accepted;
    } mode[N_MODES];
} kind;

typedef struct {
    int64_t n_seqs;
    double tok_s[N_MODES], of_off[N_MODES]; /* medians; of_off: of the ratio to the run without drafts beside it */
    double cpu_ms[N_MODES], cpu_of_off[N_MODES]; /* the same of processor time, which a busy machine lengthens less; per token */
    double propose_share[N_MODES];           /* of the device's time */
    by_draft_stats draft[N_MODES];
    uint64_t n_tokens[N_MODES];
} row;

typedef struct {
    by_engine_flags flags;
    by_flag_list counts;
    const char *input;
    int64_t n_requests, n_gen, repeat, seed;
    double temperature;
    bool json;
    by_token_lines lines;
    row rows[MAX_COUNTS];
    kind kinds[KINDS_MAX]; /* all counts together */
    int n_rows, n_kinds;
} bench;

/* "open-03-add-think" is of the kind "add-think": what follows the last number. */
static kind *kind_of(bench *b, by_str id) {
    size_t at = 0;
    for (size_t i = 0; i + 1 < id.len; i++)
        if (id.ptr[i] >= '0' && id.ptr[i] <= '9' && id.ptr[i + 1] == '-') at = i + 2;
    by_str name = {id.ptr + at, id.len - at};
    for (int i = 0; i < b->n_kinds; i++)
        if (by_str_eq(b->kinds[i].name, name)) return &b->kinds[i];
    if (b->n_kinds == KINDS_MAX) return &b->kinds[KINDS_MAX - 1];
    b->kinds[b->n_kinds] = (kind){.name = name};
    return &b->kinds[b->n_kinds++];
}

static by_status submit(const bench *b, by_engine *e, int64_t i, by_request **out, by_err *err) {
    const by_token_line *l = &b->lines.lines[(size_t)i % b->lines.n];
    by_request_opts o = by_request_opts_default();
    o.tokens = l->tokens;
    o.n_tokens = (int32_t)l->n_tokens;
    o.max_tokens = (int32_t)b->n_gen;
    o.sampling.law.temperature = (float)b->temperature;
    o.sampling.seed = (uint64_t)(b->seed + i);
    o.sampling.eos_id = by_engine_model(e)->cfg.eos_id;
    o.queue_cap = (int32_t)b->n_gen + 64; /* whoever waits for another request slows nobody */
    return by_engine_submit(e, &o, out, err);
}

static by_status read_to_end(bench *b, by_request *q, const by_token_line *l, int note, by_err *err) {
    by_event ev;
    by_status status;
    int64_t n = 0;
    while ((status = by_request_next(q, &ev, -1)) == BY_OK) {
        n += ev.token >= 0;
        if (ev.finish != BY_CHOICE_ERROR) continue;
        status = by_request_error(q, err);
        return status < 0 ? status : BY_FAIL(err, BY_EINTERNAL, "a request failed without a reason");
    }
    if (note < 0) return BY_OK;
    by_request_info info = by_request_info_get(q);
    kind *k = kind_of(b, l->id);
    k->mode[note].n_steps += info.n_steps;
    k->mode[note].n_tokens += n - 1; /* the first comes with the prompt */
    k->mode[note].n_verified += info.n_verified;
    k->mode[note].n_accepted += info.n_accepted;
    return BY_OK;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All requests through one engine: seconds from the first submission to the last end, and of processors. note: the mode to count the
 * requests' steps under, -1 = none. */
static by_status one_run(bench *b, by_engine *e, int note, double *seconds, double *cpu, by_err *err) {
    int64_t n = b->n_requests;
    by_request **q = by_alloc_zero(BY_MEM_MISC, (size_t)n * sizeof *q);
    by_status status = q ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for %lld requests", (long long)n);
    int64_t t0 = by_clock_ns();
    double cpu0 = cpu_seconds();
    for (int64_t i = 0; status == BY_OK && i < n; i++) status = submit(b, e, i, &q[i], err);
    for (int64_t i = 0; status == BY_OK && i < n; i++)
        status = read_to_end(b, q[i], &b->lines.lines[(size_t)i % b->lines.n], note, err);
    *seconds = (double)(by_clock_ns() - t0) * 1e-9;
    *cpu = cpu_seconds() - cpu0;
    for (int64_t i = 0; q && i < n; i++) by_request_release(q[i]);
    by_free(q);
    if (status == BY_OK && !by_engine_wait_idle(e, 60000)) return BY_FAIL(err, BY_ETIMEOUT, "the engine does not come to rest");
    return status;
}

static by_status run_modes(bench *b, by_engine **engines, row *r, by_err *err) {
    double s[N_MODES][REPEAT_MAX], cpu[N_MODES][REPEAT_MAX], ratio[N_MODES][REPEAT_MAX], cpu_ratio[N_MODES][REPEAT_MAX], drop[2];
    for (int m = 0; m < N_MODES; m++) BY_TRY(one_run(b, engines[m], -1, &drop[0], &drop[1], err)); /* warms up */
    by_engine_stats before[N_MODES];
    for (int m = 0; m < N_MODES; m++) before[m] = by_engine_stats_get(engines[m]);
    for (int i = 0; i < b->repeat; i++) {
        for (int m = 0; m < N_MODES; m++) {
            int k = (m + i) % N_MODES;
            BY_TRY(one_run(b, engines[k], i == 0 ? k : -1, &s[k][i], &cpu[k][i], err));
        }
        for (int m = 0; m < N_MODES; m++) ratio[m][i] = s[0][i] / s[m][i];
        for (int m = 0; m < N_MODES; m++) cpu_ratio[m][i] = cpu[0][i] / cpu[m][i];
    }
    for (int m = 0; m < N_MODES; m++) {
        by_engine_stats after = by_engine_stats_get(engines[m]);
        r->n_tokens[m] = after.n_output_tokens - before[m].n_output_tokens;
        r->draft[m] = by_draft_stats_minus(&after.draft, &before[m].draft);
        double tokens = (double)r->n_tokens[m] / (double)b->repeat;
        r->tok_s[m] = tokens / by_bench_median(s[m], (int)b->repeat);
        r->of_off[m] = by_bench_median(ratio[m], (int)b->repeat);
        r->cpu_ms[m] = by_bench_median(cpu[m], (int)b->repeat) * 1e3 / tokens;
        r->cpu_of_off[m] = by_bench_median(cpu_ratio[m], (int)b->repeat);
        r->propose_share[m] = r->draft[m].draft_s / (after.device_s - before[m].device_s);
    }
    return BY_OK;
}

static by_status measure(bench *b, int64_t n, by_err *err) {
    by_engine *engines[N_MODES] = {0};
    by_status status = BY_OK;
    int64_t requests = b->n_requests;
    if (!b->n_requests) b->n_requests = n * 2 > (int64_t)b->lines.n ? n * 2 : (int64_t)b->lines.n;
    for (int m = 0; m < N_MODES && status == BY_OK; m++) {
        by_engine_opts o;
        b->flags.max_seqs = n;
        b->flags.draft_mode = (int)modes[m];
        status = by_engine_flags_opts(&o, &b->flags, err);
        o.prefix_cache = false; /* the second run of a prompt is to cost what the first did */
        if (status == BY_OK) status = by_engine_open(&engines[m], &o, err);
    }
    row *r = &b->rows[b->n_rows++];
    *r = (row){.n_seqs = n};
    if (status == BY_OK) status = run_modes(b, engines, r, err);
    for (int m = 0; m < N_MODES; m++) by_engine_close(engines[m]);
    b->n_requests = requests;
    return status;
}

static by_status run_all(bench *b, by_err *err) {
    int64_t counts[MAX_COUNTS];
    int n = by_bench_numbers(&b->counts, "1,16,60", counts, MAX_COUNTS, err);
    if (n < 0) return BY_EINVAL;
    by_config c;
    by_engine_opts o;
    BY_TRY(by_engine_flags_opts(&o, &b->flags, err));
    BY_TRY(by_config_load(&c, o.model_dir, NULL, err));
    if (c.draft.n_layers == 0) return BY_FAIL(err, BY_EUNSUPPORTED, "the model has no draft layers");
    BY_TRY(by_token_lines_read(&b->lines, b->input, c.vocab_size, err));
    for (size_t i = 0; i < b->lines.n; i++)
        if (b->lines.lines[i].problem) return BY_FAIL(err, BY_EFORMAT, "line %zu: %s", b->lines.lines[i].number, b->lines.lines[i].problem);
    if (b->lines.n == 0) return BY_FAIL(err, BY_EFORMAT, "%s: no lines", b->input);
    for (int i = 0; i < n; i++) {
        if (counts[i] < 1 || counts[i] > BY_LIMIT_SEQS)
            return BY_FAIL(err, BY_EINVAL, "--sequences: %lld is outside 1..%d", (long long)counts[i], BY_LIMIT_SEQS);
        BY_TRY(measure(b, counts[i], err));
    }
    return BY_OK;
}

/* Rows of drafts per step of a sequence. */
static double per_step(uint64_t n, const by_draft_stats *d) { return d->n_steps ? (double)n / (double)d->n_steps : 0; }

static void print_row(const row *r, int m) {
    const by_draft_stats *d = &r->draft[m];
    printf("%9lld %-10s %9.0f %7.3f %7.3f %7.3f %8.3f %9.3f %9.3f %9.3f %7.3f %7.3f %7.4f ", (long long)r->n_seqs, mode_names[m], r->tok_s[m],
           r->of_off[m], r->cpu_ms[m], r->cpu_of_off[m], r->propose_share[m], m == 0 ? 1 : by_draft_mean_length(d),
           per_step(d->n_verified, d), per_step(d->n_accepted, d),
           per_step(d->n_proposed > d->n_verified ? d->n_proposed - d->n_verified : 0, d), per_step(d->n_verified - d->n_accepted, d),
           by_draft_calibration_error(d));
    for (int j = 0; j < BY_ENGINE_DRAFTS_MAX && d->verified[j]; j++) printf(" %.3f", (double)d->accepted[j] / (double)d->verified[j]);
    printf("\n");
}

static double ratio(int64_t a, int64_t b) { return b ? (double)a / (double)b : 0; }

static void print_table(const bench *b) {
    printf("%9s %-10s %9s %7s %7s %7s %8s %9s %9s %9s %7s %7s %7s  %s\n", "sequences", "mode", "tokens/s", "of off", "cpu ms", "of off",
           "propose", "tok/step", "verified", "accepted", "saved", "wasted", "calerr", "accepted by position, of verified");
    for (int i = 0; i < b->n_rows; i++)
        for (int m = 0; m < N_MODES; m++) print_row(&b->rows[i], m);
    printf("\n%-20s", "kind of prompt");
    for (int m = 1; m < N_MODES; m++) printf(" | %-10s tok/step verified   wasted", mode_names[m]);
    printf("\n");
    for (int i = 0; i < b->n_kinds; i++) {
        const kind *k = &b->kinds[i];
        printf("%-20.*s", BY_STR_ARG(k->name));
        for (int m = 1; m < N_MODES; m++)
            printf(" | %10lld %8.3f %8.3f %8.3f", (long long)k->mode[m].n_steps, ratio(k->mode[m].n_tokens, k->mode[m].n_steps),
                   ratio(k->mode[m].n_verified, k->mode[m].n_steps), ratio(k->mode[m].n_verified - k->mode[m].n_accepted, k->mode[m].n_steps));
        printf("\n");
    }
}

static void json_mode(by_json_out *o, const row *r, int m) {
    const by_draft_stats *d = &r->draft[m];
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "sequences", r->n_seqs);
    by_json_out_member_z(o, "mode", mode_names[m]);
    by_json_out_member_double(o, "tokens_per_s", r->tok_s[m]);
    by_json_out_member_double(o, "of_off", r->of_off[m]);
    by_json_out_member_double(o, "cpu_ms_per_token", r->cpu_ms[m]);
    by_json_out_member_double(o, "cpu_of_off", r->cpu_of_off[m]);
    by_json_out_member_double(o, "propose_share", r->propose_share[m]);
    by_json_out_member_double(o, "tokens_per_step", m == 0 ? 1 : by_draft_mean_length(d));
    by_json_out_member_double(o, "verified_per_step", per_step(d->n_verified, d));
    by_json_out_member_double(o, "accepted_per_step", per_step(d->n_accepted, d));
    by_json_out_member_double(o, "calibration_error", by_draft_calibration_error(d));
    by_json_out_key(o, "accepted_by_position");
    by_json_out_array_begin(o);
    for (int j = 0; j < BY_ENGINE_DRAFTS_MAX && d->verified[j]; j++) by_json_out_double(o, (double)d->accepted[j] / (double)d->verified[j]);
    by_json_out_array_end(o);
    by_json_out_object_end(o);
}

static void json_kind(by_json_out *o, const kind *k) {
    for (int m = 1; m < N_MODES; m++) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "kind");
        by_json_out_string(o, k->name);
        by_json_out_member_z(o, "mode", mode_names[m]);
        by_json_out_member_int(o, "steps", k->mode[m].n_steps);
        by_json_out_member_int(o, "tokens", k->mode[m].n_tokens);
        by_json_out_member_int(o, "verified", k->mode[m].n_verified);
        by_json_out_member_int(o, "accepted", k->mode[m].n_accepted);
        by_json_out_object_end(o);
    }
}

static void print_json(const bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "draft");
    by_json_out_member_double(&o, "temperature", b->temperature);
    by_json_out_key(&o, "results");
    by_json_out_array_begin(&o);
    for (int i = 0; i < b->n_rows; i++)
        for (int m = 0; m < N_MODES; m++) json_mode(&o, &b->rows[i], m);
    by_json_out_array_end(&o);
    by_json_out_key(&o, "kinds");
    by_json_out_array_begin(&o);
    for (int i = 0; i < b->n_kinds; i++) json_kind(&o, &b->kinds[i]);
    by_json_out_array_end(&o);
    by_bench_json_end(&o, &out);
}

int by_bench_draft(int argc, char **argv) {
    bench b = {.flags = by_engine_flags_default(), .n_gen = 160, .repeat = 3, .seed = 1};
    const by_flag flags[] = {
        BY_ENGINE_FLAG_ROWS(b.flags),
        {.names = "--input,-i", .kind = BY_FLAG_STRING, .out = &b.input, .help = "prompts, lines {\"id\", \"tokens\"} (- = standard input)"},
        {.names = "--sequences,-s", .kind = BY_FLAG_LIST, .out = &b.counts, .help = "sequences at once (default: 1,16,60)"},
        {.names = "--requests", .kind = BY_FLAG_INT, .out = &b.n_requests, .min = 1, .max = 1 << 20,
         .help = "requests of a run, prompts in turn (default: every prompt once, at least twice the sequences)"},
        {.names = "--n-gen,-n", .kind = BY_FLAG_INT, .out = &b.n_gen, .min = 2, .max = BY_LIMIT_CONTEXT / 2,
         .help = "most tokens of an answer (default: 160)"},
        {.names = "--temperature,--temp", .kind = BY_FLAG_DOUBLE, .out = &b.temperature, .dmin = 0, .dmax = 100, .help = "default: 0"},
        {.names = "--seed", .kind = BY_FLAG_INT, .out = &b.seed, .min = 0, .max = INT32_MAX, .help = "default: 1"},
        {.names = "--repetitions,-r", .kind = BY_FLAG_INT, .out = &b.repeat, .min = 1, .max = REPEAT_MAX,
         .help = "timed runs of each mode (default: 3)"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &b.json, .help = "one JSON object instead of a table"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench draft", "-i FILE [flags]", "Times answers with drafts off, fixed, by confidence and auto, in turns.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    if (!b.input) {
        by_args_free(flags, n_flags);
        return fprintf(stderr, "bathyc bench draft: --input is needed\n"), 2;
    }
    by_err err = {0};
    by_status status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK) print_table(&b);
    by_token_lines_deinit(&b.lines);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&b.flags);
    return by_bench_exit(status, &err);
}
