/* cmd_simulate.c - `bathyc simulate dspark`: what drafting would bring on another machine: recorded drafts (`bathyc calibrate --record`)
 * replayed with the engine's planner and a given cost curve. A replay is exact for greedy and for coupled decoding, since what a draft
 * block proposes depends on the text in front of it only. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/draft_trace.h"
#include "cli/engine_flags.h"
#include "engine/draft_cost.h"
#include "engine/spec.h"
#include "json/json_write.h"

enum { MAX_COUNTS = 16, MAX_THRESHOLDS = 16 };

/* off, fixed, confidence, and a mode for each threshold. */
typedef enum { OFF, FIXED, CONFIDENCE, THRESHOLD } mode;

typedef struct {
    const char *traces_in, *curve;
    by_flag_list counts, temperatures, thresholds;
    double sample_ms, draft_ms, draft_row_ms;
    double temperature[BY_ENGINE_DRAFTS_MAX], threshold[MAX_THRESHOLDS]; /* of the confidences, by position; of survivals */
    int n_thresholds;
    int64_t n_steps;
    bool padded, json;
    by_draft_traces traces;
    by_draft_cost_model cost;
} job;

/* One running sequence: where it stands in its answer, and how confident the block before was. */
typedef struct {
    int64_t answer, at;
    double newest[BY_SPEC_DRAFTS_MAX], older[BY_SPEC_DRAFTS_MAX];
    bool has_older;
} runner;

typedef struct {
    double ms;
    int64_t n_steps, n_tokens, n_verified;
} result;

static const by_draft_outcome *outcome(const job *j, const runner *r) {
    return &j->traces.positions[j->traces.first[r->answer] + r->at];
}

/* Drafts behind a drafted end token are void. */
static void look(const job *j, runner *r) {
    const by_draft_outcome *o = outcome(j, r);
    for (int32_t k = 0; k < j->traces.n_drafts; k++) r->newest[k] = k < o->n ? by_spec_confidence(o->raw[k], j->temperature[k]) : 0;
}

static void next_answer(const job *j, runner *r, int64_t *answer) {
    *r = (runner){.answer = (*answer)++ % j->traces.n_answers};
    look(j, r);
}

static by_draft_cost cost_of(const job *j, mode m, int32_t n) {
    return (by_draft_cost){.curve = j->cost.curve, .n_curve = j->cost.n_curve, .any_size = !j->padded,
                           .sampler_ms = j->sample_ms + (m == OFF ? 0 : j->draft_ms + j->draft_row_ms * n)};
}

/* Rows of each sequence as the engine gives them; total in *total. False: the curve does not reach that far. */
static bool plan(const job *j, mode m, double threshold, const runner *r, int32_t n, by_draft_pace *pace, int32_t *rows,
                 by_draft_request *req, by_draft_heap_entry *heap, int32_t *total) {
    int32_t K = j->traces.n_drafts, n_known = 0;
    by_draft_cost cost = cost_of(j, m, n);
    *total = 0;
    if (m == OFF || m == FIXED) {
        for (int32_t i = 0; i < n; i++) *total += rows[i] = m == OFF ? 1 : 1 + K;
        return true;
    }
    for (int32_t i = 0; i < n; i++) {
        n_known += r[i].has_older;
        req[i] = (by_draft_request){.budget = r[i].has_older ? r[i].older : NULL, .split = r[i].newest, .has_drafts = true};
    }
    by_draft_plan p = {.total_rows = n * (1 + K)};
    double least = threshold;
    if (m == CONFIDENCE) {
        by_draft_cost plain = cost_of(j, OFF, n);
        double plain_ms = by_draft_cost_ms(&plain, n) + plain.sampler_ms;
        if (by_draft_plan_make(&p, rows, req, n, K, &cost, heap, NULL) < 0) return false;
        if (2 * n_known >= n) by_draft_pace_note(pace, &p, n, plain_ms);
        least = by_draft_price(pace, &p, n, plain_ms);
    }
    *total = by_draft_plan_split(rows, j->padded ? p.total_rows : n * (1 + K), least, req, n, K, heap);
    return true;
}

/* Brings sequence i forward by what v verified drafts give. */
static void advance(const job *j, runner *r, int32_t v, int64_t *answer, result *out) {
    const by_draft_outcome *o = outcome(j, r);
    int64_t got = 1 + (o->accepted < v ? o->accepted : v), left = j->traces.first[r->answer + 1] - j->traces.first[r->answer] - r->at;
    if (got > left) got = left; /* the last accepted draft was the end token */
    out->n_tokens += got;
    out->n_verified += v;
    memcpy(r->older, r->newest, sizeof r->older);
    r->has_older = true;
    r->at += got;
    if (got == left) next_answer(j, r, answer);
    else look(j, r);
}

/* Runs n sequences for n_steps steps. */
static by_status replay(const job *j, mode m, double threshold, int32_t n, result *out, by_err *err) {
    *out = (result){0};
    runner *r = by_alloc_zero(BY_MEM_MISC, (size_t)n * sizeof *r);
    int32_t *rows = by_alloc(BY_MEM_MISC, (size_t)n * sizeof *rows);
    by_draft_request *req = by_alloc(BY_MEM_MISC, (size_t)n * sizeof *req);
    by_draft_heap_entry *heap = by_alloc(BY_MEM_MISC, (size_t)n * sizeof *heap);
    by_status status = r && rows && req && heap ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a simulation");
    by_draft_cost cost = cost_of(j, m, n);
    by_draft_pace pace = {0};
    int64_t answer = 0;
    for (int32_t i = 0; i < n && status == BY_OK; i++) next_answer(j, &r[i], &answer);
    for (int64_t s = 0; s < j->n_steps && status == BY_OK; s++) {
        int32_t total;
        double ms = plan(j, m, threshold, r, n, &pace, rows, req, heap, &total) ? by_draft_cost_ms(&cost, total) : (double)INFINITY;
        if (!(ms < 1e300)) {
            status = BY_FAIL(err, BY_EINVAL, "%s: the curve ends below the rows of %d sequences", j->curve, n);
            break;
        }
        out->ms += ms + cost.sampler_ms;
        out->n_steps++;
        for (int32_t i = 0; i < n; i++) advance(j, &r[i], rows[i] - 1, &answer, out);
    }
    by_free(r);
    by_free(rows);
    by_free(req);
    by_free(heap);
    return status;
}

static void print_json_row(by_json_out *o, int32_t n, const char *name, const result *r) {
    double steps = (double)r->n_steps * n;
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "sequences", n);
    by_json_out_member_z(o, "mode", name);
    const struct { const char *key; double v; } fields[] = {{"tokens_per_s", (double)r->n_tokens / r->ms * 1e3},
        {"tokens_per_step", (double)r->n_tokens / steps}, {"verified_per_step", (double)r->n_verified / steps}};
    for (int i = 0; i < 3; i++) by_json_out_member_double(o, fields[i].key, fields[i].v);
    by_json_out_object_end(o);
}

static by_status run_count(const job *j, int32_t n, by_json_out *o, by_err *err) {
    static const char *const names[] = {"off", "fixed", "confidence"};
    double off = 0;
    for (int k = 0; k < THRESHOLD + j->n_thresholds; k++) {
        result r;
        char name[32];
        mode m = k < THRESHOLD ? (mode)k : THRESHOLD;
        double threshold = m == THRESHOLD ? j->threshold[k - THRESHOLD] : 0;
        BY_TRY(replay(j, m, threshold, n, &r, err));
        double rate = (double)r.n_tokens / r.ms * 1e3, steps = (double)r.n_steps * n;
        if (m == OFF) off = rate;
        if (m == THRESHOLD) snprintf(name, sizeof name, "> %.4g", threshold);
        else snprintf(name, sizeof name, "%s", names[m]);
        if (j->json) print_json_row(o, n, name, &r);
        else printf("%9d %-10s %12.0f %9.3f %10.3f %10.3f\n", n, name, rate, rate / off, (double)r.n_tokens / steps,
                    (double)r.n_verified / steps);
    }
    return BY_OK;
}

/* Everything that is given, read and checked against each other before the first replay. */
static by_status read_all(job *j, int64_t *counts, int *n, by_err *err) {
    *n = by_bench_numbers(&j->counts, "1,16,60", counts, MAX_COUNTS, err);
    if (*n < 0) return BY_EINVAL;
    int64_t most = 1;
    for (int i = 0; i < *n; i++) {
        if (counts[i] < 1 || counts[i] > BY_LIMIT_SEQS)
            return BY_FAIL(err, BY_EINVAL, "--sequences: %lld is outside 1..%d", (long long)counts[i], BY_LIMIT_SEQS);
        if (counts[i] > most) most = counts[i];
    }
    BY_TRY(by_engine_flags_temperatures(j->temperature, &j->temperatures, err));
    for (int k = 0; k < BY_ENGINE_DRAFTS_MAX; k++)
        if (j->temperature[k] == 0) j->temperature[k] = 1;
    BY_TRY(by_args_numbers(j->threshold, &j->n_thresholds, MAX_THRESHOLDS, 0, "--threshold", &j->thresholds, err));
    BY_TRY(by_cost_read(&j->cost, j->curve, err));
    BY_TRY(by_draft_traces_read(&j->traces, j->traces_in, err));
    int32_t K = j->traces.n_drafts, reach = j->cost.curve[j->cost.n_curve - 1].rows;
    if (K > BY_SPEC_DRAFTS_MAX) return BY_FAIL(err, BY_EFORMAT, "%s: blocks of %d drafts, at most %d", j->traces_in, K, BY_SPEC_DRAFTS_MAX);
    if (most * (1 + K) > reach)
        return BY_FAIL(err, BY_EFORMAT, "%s: the curve ends at %d rows; %lld sequences with %d drafts each need %lld", j->curve, reach,
                       (long long)most, K, (long long)most * (1 + K));
    return BY_OK;
}

static by_status run(job *j, by_err *err) {
    int64_t counts[MAX_COUNTS];
    int n;
    BY_TRY(read_all(j, counts, &n, err));
    by_buf text = {0};
    by_json_out o = by_json_out_init(&text, BY_JSON_COMPACT);
    by_json_out_array_begin(&o);
    if (!j->json) printf("%9s %-10s %12s %9s %10s %10s\n", "sequences", "mode", "tokens/s", "of off", "tok/step", "verified");
    by_status status = BY_OK;
    for (int i = 0; i < n && status == BY_OK; i++) status = run_count(j, (int32_t)counts[i], &o, err);
    by_json_out_array_end(&o);
    if (j->json && status == BY_OK) printf("%s\n", by_buf_z(&text));
    by_buf_deinit(&text);
    return status;
}

int by_cmd_simulate(int argc, char **argv) {
    job j = {.n_steps = 2000};
    const by_flag flags[] = {
        {.names = "--traces,-i", .kind = BY_FLAG_STRING, .out = &j.traces_in, .help = "recorded drafts, see `bathyc calibrate --record`"},
        {.names = "--curve", .kind = BY_FLAG_STRING, .out = &j.curve, .help = "costs of steps, a file {\"curve\": [[rows, ms], ...]}"},
        {.names = "--sequences,-s", .kind = BY_FLAG_LIST, .out = &j.counts, .help = "sequences at once (default: 1,16,60)"},
        {.names = "--sample-ms", .kind = BY_FLAG_DOUBLE, .out = &j.sample_ms, .dmin = 0, .dmax = 1e6,
         .help = "of a step, for sampling (default: 0)"},
        {.names = "--draft-ms", .kind = BY_FLAG_DOUBLE, .out = &j.draft_ms, .dmin = 0, .dmax = 1e6,
         .help = "of a step, for proposing (default: 0)"},
        {.names = "--draft-row-ms", .kind = BY_FLAG_DOUBLE, .out = &j.draft_row_ms, .dmin = 0, .dmax = 1e6,
         .help = "for proposing, of each sequence (default: 0)"},
        {.names = "--draft-conf-temp", .kind = BY_FLAG_LIST, .out = &j.temperatures,
         .help = "temperatures of the confidences by position, as 1.1,0.9 (see calibrate; default: 1)"},
        {.names = "--threshold", .kind = BY_FLAG_LIST, .out = &j.thresholds,
         .help = "besides: verify every draft whose survival is at least this; a list"},
        {.names = "--padded", .kind = BY_FLAG_BOOL, .out = &j.padded,
         .help = "a step runs, and costs, the next size of the curve (default: what lies between the sizes)"},
        {.names = "--steps", .kind = BY_FLAG_INT, .out = &j.n_steps, .min = 1, .max = 1 << 24, .help = "steps of a replay (default: 2000)"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &j.json, .help = "a JSON list instead of a table"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"simulate dspark", "--traces FILE --curve FILE [flags]", "Replays recorded drafts on a modelled machine.\n"};
    int code;
    if (argc > 0 && strcmp(argv[0], "dspark") == 0) argc--, argv++;
    else if (argc == 0 || argv[0][0] != '-') return fprintf(stderr, "bathyc simulate: what? There is: dspark\n"), 2;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = j.traces_in && j.curve ? run(&j, &err) : BY_FAIL(&err, BY_EINVAL, "--traces and --curve are needed");
    if (status < 0) by_command_fail(&usage, &err);
    by_draft_traces_deinit(&j.traces);
    by_args_free(flags, n_flags);
    return status < 0 ? by_model_exit_code(status) : 0;
}
