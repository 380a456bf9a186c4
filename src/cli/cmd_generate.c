/* cmd_generate.c - `bathyc generate`: token-level checks. One JSON line per input line, in input order; a bad line gives
 * {"id", "error"} and exit code 1. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/json_fields.h"
#include "cli/model_flags.h"
#include "cli/token_lines.h"
#include "engine/solo_gen.h"
#include "json/json_write.h"

/* A line's own fields, checked. */
typedef struct {
    int64_t max_tokens;
    double temperature, top_p;
    int64_t top_k;
    uint64_t seed;
    bool ignore_eos, draft;
    bool has_seed;
} request;

static by_status read_fields(request *q, const by_json *row, by_err *err) {
    BY_TRY(by_json_field_int(&q->max_tokens, row, "max_tokens", 1, INT32_MAX, err));
    BY_TRY(by_json_field_double(&q->temperature, row, "temperature", 0, 1e6, err));
    BY_TRY(by_json_field_double(&q->top_p, row, "top_p", 0, 1, err));
    if (q->top_p <= 0) return BY_FAIL(err, BY_EINVAL, "top_p: %g is not above 0", q->top_p);
    BY_TRY(by_json_field_int(&q->top_k, row, "top_k", -1, INT32_MAX, err));
    if (q->top_k == 0) return BY_FAIL(err, BY_EINVAL, "top_k: 0 is neither -1 nor at least 1");
    BY_TRY(by_json_field_seed(&q->seed, &q->has_seed, row, err));
    BY_TRY(by_json_field_bool(&q->ignore_eos, row, "ignore_eos", err));
    return by_json_field_bool(&q->draft, row, "draft", err);
}

static request read_request(by_token_lines *t, by_token_line *l, const by_solo *s) {
    const by_config *c = &s->model->cfg;
    request q = {.max_tokens = 16, .temperature = 1, .top_p = 1, .top_k = -1, .draft = s->n_drafts > 0};
    if (l->problem) return q;
    by_err err = {0};
    if (read_fields(&q, &l->row, &err) < 0) by_token_line_refuse(t, l, "%s", err.msg);
    if (q.draft && c->draft.n_layers == 0) by_token_line_refuse(t, l, "draft: the model has no draft layers");
    const by_json *images = by_json_get(&l->row, "images");
    if (images && !(by_json_is(images, BY_JSON_ARRAY) && images->n == 0) && images->type != BY_JSON_NULL)
        by_token_line_refuse(t, l, "images: this build has no image input");
    if (l->n_tokens >= c->max_positions)
        by_token_line_refuse(t, l, "%lld tokens leave no room in the model's context of %lld", (long long)l->n_tokens,
                             (long long)c->max_positions);
    return q;
}

static by_status take_token(void *arg, int32_t token, float logprob, by_err *err) {
    (void)arg, (void)token, (void)logprob, (void)err;
    return BY_OK;
}

typedef struct {
    by_solo solo;
    int sampler; /* by_sample_rule */
    int verify;  /* by_sample_verify_rule; -1 = coupled where a seed or temperature 0 is given, else rejection */
    by_buf out;
} job;

static int64_t total_tokens(const by_token_line *l, const request *q, const by_config *c) {
    int64_t n = l->n_tokens + q->max_tokens;
    return n > c->max_positions ? c->max_positions : n;
}

static void write_result(job *j, const by_token_line *l, const int32_t *tokens, const by_solo_gen_result *r) {
    by_json_out o = by_json_out_init(&j->out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_string(&o, l->id);
    by_json_out_key(&o, "tokens");
    by_json_out_array_begin(&o);
    for (int32_t i = 0; i < r->n_output; i++) by_json_out_int(&o, tokens[r->n_prompt + i]);
    by_json_out_array_end(&o);
    by_json_out_key(&o, "finish_reason");
    by_json_out_z(&o, r->finish == BY_SOLO_STOP ? "stop" : "length");
    const struct { const char *key; int64_t value; } counts[] = {
        {"n_prompt", r->n_prompt}, {"n_steps", r->n_steps}, {"n_drafted", r->n_drafted},
        {"n_accepted", r->n_accepted}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        by_json_out_key(&o, counts[i].key);
        by_json_out_int(&o, counts[i].value);
    }
    by_json_out_object_end(&o);
    by_buf_push_byte(&j->out, '\n');
}

static void write_problem(job *j, const by_token_line *l) {
    by_json_out o = by_json_out_init(&j->out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    if (l->id.len) by_json_out_string(&o, l->id);
    else by_json_out_null(&o);
    by_json_out_key(&o, "error");
    by_json_out_z(&o, l->problem);
    by_json_out_object_end(&o);
    by_buf_push_byte(&j->out, '\n');
}

static void run_line(job *j, by_token_lines *t, by_token_line *l, const request *q) {
    const by_config *c = &j->solo.model->cfg;
    int64_t total = total_tokens(l, q, c);
    int32_t *tokens = by_alloc(BY_MEM_REQUEST, (size_t)total * 4);
    if (!tokens) {
        by_token_line_refuse(t, l, "out of memory");
        return;
    }
    memcpy(tokens, l->tokens, (size_t)l->n_tokens * 4);
    by_solo_gen_opts o = {.sampling = by_sample_params_default(), .max_tokens = (int32_t)(total - l->n_tokens),
                          .ignore_eos = q->ignore_eos, .draft = q->draft};
    bool fixed = q->has_seed || q->temperature == 0;
    o.verify = j->verify >= 0 ? (by_sample_verify_rule)j->verify : fixed ? BY_SAMPLE_COUPLED : BY_SAMPLE_REJECTION;
    o.sampling.law.temperature = (float)q->temperature;
    o.sampling.law.top_p = (float)q->top_p;
    o.sampling.law.top_k = (int32_t)q->top_k;
    o.sampling.seed = q->seed;
    o.sampling.rule = (by_sample_rule)j->sampler;
    o.sampling.eos_id = c->eos_id;
    by_solo_gen_result r;
    by_err err = {0};
    by_solo_reset(&j->solo);
    if (by_solo_generate(&j->solo, tokens, (int32_t)l->n_tokens, &o, take_token, NULL, &r, &err) < 0)
        by_token_line_refuse(t, l, "%s", err.msg);
    else write_result(j, l, tokens, &r);
    by_free(tokens);
}

static int run_all(job *j, by_token_lines *t, int fd, int64_t chunk, by_err *err) {
    request *requests = by_alloc_zero(BY_MEM_REQUEST, by_mul_size(t->n ? t->n : 1, sizeof *requests));
    if (!requests) return BY_FAIL(err, BY_ENOMEM, "out of memory for the requests"), -1;
    int64_t longest = 1;
    for (size_t i = 0; i < t->n; i++) {
        requests[i] = read_request(t, &t->lines[i], &j->solo);
        int64_t n = total_tokens(&t->lines[i], &requests[i], &j->solo.model->cfg);
        if (!t->lines[i].problem && n > longest) longest = n;
    }
    by_status status = by_solo_reserve(&j->solo, longest, (int32_t)chunk, err);
    int bad = 0;
    for (size_t i = 0; status == BY_OK && i < t->n; i++) {
        by_token_line *l = &t->lines[i];
        if (!l->problem) run_line(j, t, l, &requests[i]);
        if (l->problem) {
            bad = 1;
            write_problem(j, l);
        }
        status = by_buf_check(&j->out, err);
        if (status == BY_OK) status = by_fd_write_all(fd, j->out.ptr, j->out.len, err);
        by_buf_clear(&j->out);
    }
    by_free(requests);
    return status < 0 ? -1 : bad;
}

int by_cmd_generate(int argc, char **argv) {
    by_model_flags f = by_model_flags_default();
    const char *input = NULL, *output = "-";
    job j = {.sampler = BY_SAMPLE_DEEPINFER, .verify = -1};
    const by_flag flags[] = {
        BY_MODEL_FLAG_ROWS(f),
        {.names = "--input,-i", .kind = BY_FLAG_STRING, .out = &input, .help = "lines {\"id\", \"tokens\", ...} (- = standard input)"},
        {.names = "--output,-o", .kind = BY_FLAG_STRING, .out = &output, .help = "result lines (default: standard output)"},
        {.names = "--sampler", .kind = BY_FLAG_CHOICE, .out = &j.sampler, .choices = "smooth|deepinfer",
         .help = "how a random word becomes a token (default here: deepinfer)"},
        {.names = "--spec-verify", .kind = BY_FLAG_CHOICE, .out = &j.verify, .choices = "coupled|rejection",
         .help = "acceptance rule of drafts (default: coupled with a seed or temperature 0, else rejection)"},
    };
    const by_usage usage = {"generate", "-i FILE [-o FILE] [flags]",
                            "Generates tokens for each input line {\"id\", \"tokens\"} and, where wanted, \"max_tokens\" (default 16),\n"
                            "\"temperature\", \"top_p\", \"top_k\", \"seed\", \"draft\" (default true where the model drafts),\n"
                            "\"ignore_eos\".\n"};
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, NULL, 0, NULL, &code)) return code;
    if (!input) return fprintf(stderr, "bathyc generate: --input is needed\n"), 2;
    by_err err = {0};
    by_token_lines lines = {0};
    f.draft = true;
    by_status status = by_model_flags_open(&j.solo, &f, &err);
    if (status < 0) return fprintf(stderr, "bathyc generate: %s\n", err.msg), by_model_exit_code(status);
    status = by_token_lines_read(&lines, input, j.solo.model->cfg.vocab_size, &err);
    int fd = strcmp(output, "-") == 0 ? 1 : -1;
    if (status == BY_OK && fd < 0) {
        fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) status = BY_FAIL(&err, BY_EIO, "%s: cannot be written", output);
    }
    code = status < 0 ? -1 : run_all(&j, &lines, fd, f.chunk, &err);
    if (fd > 2) close(fd);
    if (code < 0) code = by_command_fail(&usage, &err);
    by_token_lines_deinit(&lines);
    by_buf_deinit(&j.out);
    by_solo_close(&j.solo);
    return code;
}
