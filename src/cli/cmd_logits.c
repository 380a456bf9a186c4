/* cmd_logits.c - `bathyc logits`: whole-model numeric checks. One .npy a line, [tokens, vocab]; with --dump-layers also the
 * residual streams [layers + 1, tokens, m, D]. A bad line is told on stderr, the others go on. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/npy_out.h"
#include "cli/token_lines.h"
#include "ops/formats.h"

typedef struct {
    by_solo solo;
    by_npy_out logits, layers;
    bool dump;
    int64_t n_tokens; /* of the line */
    by_buf raw, values;
} job;

static by_status write_row(void *arg, int64_t position, const float *logits, by_err *err) {
    (void)position;
    job *j = arg;
    return by_npy_out_write(&j->logits, logits, (size_t)j->solo.model->cfg.vocab_size, err);
}

/* Streams of the step's rows into their place of the layers file. */
static by_status write_streams(void *arg, int32_t layer, by_tensor h, by_err *err) {
    job *j = arg;
    by_buf_clear(&j->raw);
    by_buf_clear(&j->values);
    size_t n = (size_t)(h.rows * h.cols);
    char *raw = by_buf_reserve(&j->raw, (size_t)(h.rows * h.stride));
    float *values = (float *)(void *)by_buf_reserve(&j->values, n * 4);
    if (!raw || !values) return BY_FAIL(err, BY_ENOMEM, "out of memory for the streams of a step");
    BY_TRY(by_mem_read(raw, h.mem, (size_t)h.off, (size_t)(h.rows * h.stride), err));
    if (h.dtype == BY_F32) {
        memcpy(values, raw, n * 4);
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t b;
            memcpy(&b, raw + 2 * i, 2);
            values[i] = by_bf16_to_f32(b);
        }
    }
    BY_TRY(by_npy_out_seek(&j->layers, (layer * j->n_tokens + j->solo.seq.n_tokens) * h.cols, err));
    return by_npy_out_write(&j->layers, values, n, err);
}

static by_status run_line(job *j, const char *out_dir, const by_token_line *l, int64_t decode_from, by_err *err) {
    const by_config *c = &j->solo.model->cfg;
    char name[256];
    snprintf(name, sizeof name, "%.*s", BY_STR_ARG(l->id));
    j->n_tokens = l->n_tokens;
    by_status status = by_npy_out_open(&j->logits, out_dir, name, (int64_t[]){l->n_tokens, c->vocab_size}, 2, err);
    if (status == BY_OK && j->dump) {
        snprintf(name, sizeof name, "%.*s.layers", BY_STR_ARG(l->id));
        status = by_npy_out_open(&j->layers, out_dir, name,
                                 (int64_t[]){c->n_layers + 1, l->n_tokens, c->hc_mult, c->hidden_size}, 4, err);
    }
    by_runner_set_tap(j->solo.runner, j->dump ? write_streams : NULL, j);
    by_solo_reset(&j->solo);
    int64_t prefill = decode_from >= 0 && decode_from < l->n_tokens ? decode_from : l->n_tokens;
    if (status == BY_OK && prefill > 0) status = by_solo_feed_all(&j->solo, l->tokens, prefill, write_row, j, err);
    for (int64_t t = prefill; status == BY_OK && t < l->n_tokens; t++)
        status = by_solo_feed_all(&j->solo, l->tokens, t + 1, write_row, j, err);
    bool good = status == BY_OK;
    by_status closed = by_npy_out_close(&j->logits, good, good ? err : NULL);
    if (good) status = closed;
    closed = by_npy_out_close(&j->layers, good && status == BY_OK, status == BY_OK ? err : NULL);
    return status == BY_OK ? closed : status;
}

static void check_line(by_token_lines *t, by_token_line *l, const by_config *c) {
    const by_json *images = by_json_get(&l->row, "images");
    if (images && !(by_json_is(images, BY_JSON_ARRAY) && images->n == 0) && images->type != BY_JSON_NULL)
        by_token_line_refuse(t, l, "images: this build has no image input");
    if (l->n_tokens > c->max_positions)
        by_token_line_refuse(t, l, "%lld tokens exceed the model's context of %lld", (long long)l->n_tokens,
                             (long long)c->max_positions);
}

static int run_all(job *j, by_token_lines *t, const char *out_dir, int64_t decode_from, int64_t chunk, by_err *err) {
    int64_t longest = 1;
    for (size_t i = 0; i < t->n; i++) {
        check_line(t, &t->lines[i], &j->solo.model->cfg);
        if (!t->lines[i].problem && t->lines[i].n_tokens > longest) longest = t->lines[i].n_tokens;
    }
    if (by_solo_reserve(&j->solo, longest, (int32_t)chunk, err) < 0) return -1;
    int bad = 0;
    for (size_t i = 0; i < t->n; i++) {
        by_token_line *l = &t->lines[i];
        by_err line_err = {0};
        if (!l->problem && run_line(j, out_dir, l, decode_from, &line_err) < 0) by_token_line_refuse(t, l, "%s", line_err.msg);
        if (!l->problem) continue;
        bad = 1;
        if (l->id.len) fprintf(stderr, "%.*s: %s\n", BY_STR_ARG(l->id), l->problem);
        else fprintf(stderr, "line %zu: %s\n", l->number, l->problem);
    }
    return bad;
}

int by_cmd_logits(int argc, char **argv) {
    by_model_flags f = by_model_flags_default();
    const char *input = NULL, *output = NULL;
    int64_t decode_from = -1;
    job j = {0};
    const by_flag flags[] = {
        BY_MODEL_FLAG_ROWS(f),
        {.names = "--input,-i", .kind = BY_FLAG_STRING, .out = &input, .help = "lines {\"id\", \"tokens\"} (- = standard input)"},
        {.names = "--output,-o", .kind = BY_FLAG_STRING, .out = &output, .help = "folder for the .npy files"},
        {.names = "--decode-from", .kind = BY_FLAG_INT, .out = &decode_from, .min = 0, .max = BY_LIMIT_CONTEXT,
         .help = "feed tokens from this position on one by one"},
        {.names = "--dump-layers", .kind = BY_FLAG_BOOL, .out = &j.dump, .help = "also write the residual streams"},
    };
    const by_usage usage = {"logits", "-i FILE -o FOLDER [flags]", "Computes the logits after every token of each input line.\n"};
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, NULL, 0, NULL, &code)) return code;
    if (!input || !output) return fprintf(stderr, "bathyc logits: %s is needed\n", input ? "--output" : "--input"), 2;
    by_err err = {0};
    by_token_lines lines = {0};
    by_status status = by_model_flags_open(&j.solo, &f, &err);
    if (status < 0) return fprintf(stderr, "bathyc logits: %s\n", err.msg), by_model_exit_code(status);
    status = by_token_lines_read(&lines, input, j.solo.model->cfg.vocab_size, &err);
    if (status == BY_OK && mkdir(output, 0777) != 0 && errno != EEXIST)
        status = BY_FAIL(&err, BY_EIO, "%s: %s", output, strerror(errno));
    code = status < 0 ? -1 : run_all(&j, &lines, output, decode_from, f.chunk, &err);
    if (code < 0) code = by_command_fail(&usage, &err);
    by_token_lines_deinit(&lines);
    by_buf_deinit(&j.raw);
    by_buf_deinit(&j.values);
    by_solo_close(&j.solo);
    return code;
}
