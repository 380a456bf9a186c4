/* cmd_calibrate.c - `bathyc calibrate`: temperatures for the confidences of drafts, fitted to traffic: prompts that are answered here with
 * a draft block at every position, or positions recorded before. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/draft_trace.h"
#include "cli/model_flags.h"
#include "cli/token_lines.h"
#include "engine/solo_gen.h"
#include "json/json_write.h"

typedef struct {
    by_model_flags model;
    const char *input, *traces_in, *record;
    int64_t max_tokens, seed;
    double temperature;
    bool json;
    by_draft_traces traces;
    by_buf out;
} job;

/* What was proposed behind each position of one answer. */
typedef struct {
    float *raw;   /* [n][K] */
    int32_t *ids; /* [n][K] */
    int64_t n, first; /* first: position of the token that the first block's first draft is for */
    int32_t K;
} recording;

static by_status take_token(void *arg, int32_t token, float logprob, by_err *err) {
    (void)arg, (void)token, (void)logprob, (void)err;
    return BY_OK;
}

static by_status take_drafts(void *arg, int64_t position, const by_spec_drafts *d, by_err *err) {
    (void)err;
    recording *r = arg;
    if (r->n == 0) r->first = position;
    memcpy(r->raw + r->n * r->K, d->conf, (size_t)r->K * 4);
    memcpy(r->ids + r->n * r->K, d->ids, (size_t)r->K * 4);
    r->n++;
    return BY_OK;
}

/* Drafts of a block up to the first end token: nothing follows that one. */
static int32_t up_to_end(const int32_t *ids, int32_t K, int32_t eos) {
    for (int32_t j = 0; j < K; j++)
        if (ids[j] == eos) return j + 1;
    return K;
}

/* What became of each block: how many of its drafts the answer went on with. Blocks that the limit of tokens cuts tell nothing about what
 * is behind it and are left out; behind an end token nothing is. */
static by_status add_recording(job *j, const recording *r, const int32_t *tokens, int64_t n_tokens, bool ended, int32_t eos, by_err *err) {
    int64_t n = 0;
    by_draft_outcome *o = by_alloc(BY_MEM_MISC, (size_t)(r->n ? r->n : 1) * sizeof *o);
    if (!o) return BY_FAIL(err, BY_ENOMEM, "out of memory for traces");
    for (; n < r->n && (ended || r->first + n + r->K <= n_tokens); n++) {
        const int32_t *ids = r->ids + n * r->K, *text = tokens + r->first + n;
        int64_t left = n_tokens - r->first - n;
        int32_t k = 0;
        while (k < r->K && k < left && ids[k] == text[k]) k++;
        o[n] = (by_draft_outcome){.raw = r->raw + n * r->K, .accepted = k, .n = up_to_end(ids, r->K, eos)};
    }
    by_status status = n ? by_draft_traces_add(&j->traces, o, n, r->K, err) : BY_OK;
    by_free(o);
    return status;
}

static by_status answer(job *j, by_solo *s, const by_token_line *l, int64_t i, by_err *err) {
    int64_t total = l->n_tokens + j->max_tokens;
    if (total > s->model->cfg.max_positions) total = s->model->cfg.max_positions;
    if (total <= l->n_tokens) return BY_FAIL(err, BY_ECONTEXT, "%.*s: no room for an answer", BY_STR_ARG(l->id));
    int32_t *tokens = by_alloc(BY_MEM_MISC, (size_t)total * 4);
    recording r = {.K = s->n_drafts};
    r.raw = by_alloc(BY_MEM_MISC, by_mul_size((size_t)j->max_tokens, (size_t)r.K * 4));
    r.ids = by_alloc(BY_MEM_MISC, by_mul_size((size_t)j->max_tokens, (size_t)r.K * 4));
    by_status status = tokens && r.raw && r.ids ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for an answer");
    if (status == BY_OK) {
        memcpy(tokens, l->tokens, (size_t)l->n_tokens * 4);
        by_solo_gen_opts o = {.sampling = by_sample_params_default(), .max_tokens = (int32_t)(total - l->n_tokens), .probe = take_drafts,
                              .probe_arg = &r};
        o.sampling.law.temperature = (float)j->temperature;
        o.sampling.seed = (uint64_t)(j->seed + i);
        o.sampling.eos_id = s->model->cfg.eos_id;
        by_solo_gen_result res;
        by_solo_reset(s);
        status = by_solo_generate(s, tokens, (int32_t)l->n_tokens, &o, take_token, NULL, &res, err);
        int64_t before = j->traces.n_answers;
        if (status == BY_OK)
            status = add_recording(j, &r, tokens, res.n_prompt + res.n_output, res.finish == BY_SOLO_STOP, o.sampling.eos_id, err);
        if (status == BY_OK && j->record && j->traces.n_answers > before) by_draft_traces_write(&j->traces, before, l->id, &j->out);
    }
    by_free(tokens);
    by_free(r.raw);
    by_free(r.ids);
    return status;
}

static by_status answer_all(job *j, by_err *err) {
    by_solo s;
    by_token_lines lines = {0};
    j->model.draft = true;
    BY_TRY(by_model_flags_open(&s, &j->model, err));
    by_status status = BY_OK;
    if (s.n_drafts == 0) status = BY_FAIL(err, BY_EUNSUPPORTED, "the model has no draft layers, or the backend no drafts");
    if (status == BY_OK) status = by_token_lines_read(&lines, j->input, s.model->cfg.vocab_size, err);
    int64_t longest = 1;
    for (size_t i = 0; i < lines.n && status == BY_OK; i++) {
        if (lines.lines[i].problem) status = BY_FAIL(err, BY_EFORMAT, "line %zu: %s", lines.lines[i].number, lines.lines[i].problem);
        if (lines.lines[i].n_tokens > longest) longest = lines.lines[i].n_tokens;
    }
    if (status == BY_OK) status = by_solo_reserve(&s, longest + j->max_tokens, (int32_t)j->model.chunk, err);
    for (size_t i = 0; i < lines.n && status == BY_OK; i++) status = answer(j, &s, &lines.lines[i], (int64_t)i, err);
    by_token_lines_deinit(&lines);
    by_solo_close(&s);
    if (status == BY_OK && j->traces.n_positions == 0) return BY_FAIL(err, BY_EFORMAT, "no answer is longer than a draft block");
    return status;
}

static void print_fit(const job *j, const double *t, double before, double after) {
    const by_draft_traces *tr = &j->traces;
    double accepted = 0;
    for (int64_t i = 0; i < tr->n_positions; i++) accepted += tr->positions[i].accepted;
    accepted /= (double)tr->n_positions;
    if (j->json) {
        by_buf out = {0};
        by_json_out o = by_json_out_init(&out, BY_JSON_COMPACT);
        by_json_out_object_begin(&o);
        by_json_out_member_int(&o, "positions", tr->n_positions);
        const struct { const char *key; double v; } fields[] = {{"accepted_mean", accepted}, {"error_before", before}, {"error_after", after}};
        for (int i = 0; i < 3; i++) {
            by_json_out_member_double(&o, fields[i].key, fields[i].v);
        }
        by_json_out_key(&o, "temperatures");
        by_json_out_array_begin(&o);
        for (int32_t k = 0; k < tr->n_drafts; k++) by_json_out_double(&o, t[k]);
        by_json_out_array_end(&o);
        by_json_out_object_end(&o);
        printf("%s\n", by_buf_z(&out));
        by_buf_deinit(&out);
        return;
    }
    printf("%lld positions, %.3f of %d drafts right on average; calibration error %.4f, with these temperatures %.4f\n--draft-conf-temp ",
           (long long)tr->n_positions, accepted, tr->n_drafts, before, after);
    for (int32_t k = 0; k < tr->n_drafts; k++) printf("%s%.4g", k ? "," : "", t[k]);
    printf("\n");
}

static by_status run(job *j, by_err *err) {
    if (j->traces_in) BY_TRY(by_draft_traces_read(&j->traces, j->traces_in, err));
    else BY_TRY(answer_all(j, err));
    BY_TRY(by_buf_check(&j->out, err));
    if (j->record) BY_TRY(by_file_write(j->record, j->out.ptr, j->out.len, err));
    double t[64], before = 0, after = 0;
    BY_TRY(by_draft_fit_temperatures(t, &before, &after, j->traces.positions, j->traces.n_positions, j->traces.n_drafts, err));
    print_fit(j, t, before, after);
    return BY_OK;
}

int by_cmd_calibrate(int argc, char **argv) {
    job j = {.model = by_model_flags_default(), .max_tokens = 256, .seed = 1, .temperature = 1};
    const by_flag flags[] = {
        BY_MODEL_FLAG_ROWS(j.model),
        {.names = "--input,-i", .kind = BY_FLAG_STRING, .out = &j.input,
         .help = "prompts to answer, lines {\"id\", \"tokens\"} (- = standard input)"},
        {.names = "--traces", .kind = BY_FLAG_STRING, .out = &j.traces_in, .help = "positions recorded before, instead of prompts"},
        {.names = "--record", .kind = BY_FLAG_STRING, .out = &j.record, .help = "file for the positions of these answers"},
        {.names = "--max-tokens,-n", .kind = BY_FLAG_INT, .out = &j.max_tokens, .min = 2, .max = BY_LIMIT_CONTEXT,
         .help = "most tokens of an answer (default: 256)"},
        {.names = "--temperature,--temp", .kind = BY_FLAG_DOUBLE, .out = &j.temperature, .dmin = 0, .dmax = 100, .help = "default: 1"},
        {.names = "--seed", .kind = BY_FLAG_INT, .out = &j.seed, .min = 0, .max = INT32_MAX, .help = "default: 1"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &j.json, .help = "one JSON object instead of text"},
    };
    const by_usage usage = {"calibrate", "(-i FILE | --traces FILE) [flags]",
                            "Fits the temperatures of the draft confidences, for --draft-conf-temp.\n"};
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, NULL, 0, NULL, &code)) return code;
    if (!j.input == !j.traces_in) return fprintf(stderr, "bathyc calibrate: one of --input and --traces is needed\n"), 2;
    by_err err = {0};
    by_status status = run(&j, &err);
    code = 0;
    if (status < 0) {
        fprintf(stderr, "bathyc calibrate: %s\n", err.msg);
        code = by_model_exit_code(status);
    }
    by_draft_traces_deinit(&j.traces);
    by_buf_deinit(&j.out);
    return code;
}
