/* cmd_tokenize.c - `bathyc tokenize`: text to token ids, whole or line by line. */
#include <stdio.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/json_lines.h"
#include "tok/tok.h"

enum { FORM_IDS, FORM_JSON, FORM_COUNT, FORM_PIECES };

typedef struct {
    const char *model, *tokenizer, *input, *output, *text;
    bool jsonl, added;
    int form;
} options;

typedef struct {
    const options *o;
    by_tok *tok;
    by_tok_scratch *scratch;
    by_tok_ids ids;
    by_buf out;
    by_output to;
} job;

static by_status encode(job *j, by_str text, by_err *err) {
    j->ids.n = 0;
    return by_tok_encode(j->tok, j->scratch, text, j->o->added ? BY_TOK_FULL : BY_TOK_PLAIN, &j->ids, err);
}

/* ---- output ---- */

static void write_tokens(by_json_out *o, const by_tok_ids *ids) {
    by_json_out_key(o, "tokens");
    by_json_out_array_begin(o);
    for (size_t i = 0; i < ids->n; i++) by_json_out_int(o, ids->ids[i]);
    by_json_out_array_end(o);
}

/* One line per id: the id, a tab, its text as a JSON string (U+FFFD for parts of characters). */
static void write_pieces(job *j) {
    by_buf text = {0};
    for (size_t i = 0; i < j->ids.n; i++) {
        by_buf_clear(&text);
        by_utf8_push_lossy(&text, by_tok_bytes(j->tok, j->ids.ids[i]));
        by_buf_printf(&j->out, "%d\t", j->ids.ids[i]);
        by_json_write_string(&j->out, by_buf_str(&text));
        by_buf_push_byte(&j->out, '\n');
    }
    if (text.failed) j->out.failed = true;
    by_buf_deinit(&text);
}

static by_status write_ids(job *j, by_err *err) {
    by_json_out o = by_json_out_init(&j->out, BY_JSON_PYTHON);
    by_buf_clear(&j->out);
    switch (j->o->form) {
    case FORM_COUNT: by_buf_printf(&j->out, "%zu\n", j->ids.n); break;
    case FORM_PIECES: write_pieces(j); break;
    case FORM_JSON:
        by_json_out_object_begin(&o);
        write_tokens(&o, &j->ids);
        by_json_out_key(&o, "count");
        by_json_out_uint(&o, j->ids.n);
        by_json_out_object_end(&o);
        by_buf_push_byte(&j->out, '\n');
        break;
    default:
        for (size_t i = 0; i < j->ids.n; i++) by_buf_printf(&j->out, "%s%d", i ? " " : "", j->ids.ids[i]);
        by_buf_push_byte(&j->out, '\n');
    }
    return by_output_write(&j->to, &j->out, err);
}

/* {"id", "text"} -> {"id", "tokens"}, which is a line of `generate`. */
static by_status encode_line(void *context, const by_json *row, by_json_out *answer, by_err *err) {
    job *j = context;
    const by_json *text = by_json_get(row, "text");
    if (!by_json_is(text, BY_JSON_STRING)) return BY_FAIL(err, BY_EFORMAT, "text: want a string");
    BY_TRY(encode(j, text->v.s, err));
    write_tokens(answer, &j->ids);
    return BY_OK;
}

/* ---- the command ---- */

static by_status run_whole(job *j, by_err *err) {
    by_buf text = {0};
    by_status status = BY_OK;
    if (j->o->text) by_buf_push_z(&text, j->o->text);
    else status = by_file_read(&text, j->o->input, BY_LIMIT_JSON_FILE_BYTES, err);
    if (status == BY_OK) status = by_buf_check(&text, err);
    if (status == BY_OK) status = encode(j, by_buf_str(&text), err);
    if (status == BY_OK) status = write_ids(j, err);
    by_buf_deinit(&text);
    return status;
}

static by_status run(const options *o, by_err *err) {
    job j = {.o = o};
    by_status status = by_output_open(&j.to, o->output, err);
    if (status == BY_OK) status = by_command_tokenizer_open(&j.tok, o->tokenizer, o->model, err);
    if (status == BY_OK) status = by_tok_scratch_create(&j.scratch, j.tok, err);
    if (status == BY_OK) status = o->jsonl ? by_json_lines_run(o->input, &j.to, encode_line, &j, err) : run_whole(&j, err);
    by_tok_ids_deinit(&j.ids);
    by_tok_scratch_destroy(j.scratch);
    by_tok_destroy(j.tok);
    by_buf_deinit(&j.out);
    return by_output_close(&j.to, status, err);
}

int by_cmd_tokenize(int argc, char **argv) {
    const by_usage usage = {"tokenize", "[flags] [TEXT]",
                            "Writes the token ids of TEXT, or of a file, or of {\"id\", \"text\"} lines.\n"};
    options o = {.input = "-", .output = "-", .added = true};
    bool json = false, count = false, pieces = false;
    const by_flag flags[] = {
        BY_TOKENIZER_FLAG_ROWS(o.model, o.tokenizer),
        {"--input,-i", BY_FLAG_STRING, &o.input, .help = "text file, - for standard input (default)"},
        {"--output,-o", BY_FLAG_STRING, &o.output, .help = "where the ids go, - for standard output (default)"},
        {"--jsonl", BY_FLAG_BOOL, &o.jsonl, .help = "lines {\"id\", \"text\"} in, {\"id\", \"tokens\"} out"},
        {"--no-added-tokens", BY_FLAG_BOOL, &o.added, .help = "spellings of added tokens are ordinary text"},
        {"--json", BY_FLAG_BOOL, &json, .help = "one object {\"tokens\", \"count\"}"},
        {"--count", BY_FLAG_BOOL, &count, .help = "only the number of ids"},
        {"--pieces", BY_FLAG_BOOL, &pieces, .help = "a line for each id: id, tab, its text"},
    };
    int code, n_pos = 0;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, &o.text, 1, &n_pos, &code)) return code;
    if (json + count + pieces + o.jsonl > 1)
        return fprintf(stderr, "bathyc tokenize: --json, --count, --pieces and --jsonl exclude each other\n"), 2;
    if (o.text && o.jsonl) return fprintf(stderr, "bathyc tokenize: --jsonl reads a file, not TEXT\n"), 2;
    o.form = json ? FORM_JSON : count ? FORM_COUNT : pieces ? FORM_PIECES : FORM_IDS;
    by_err err;
    return run(&o, &err) == BY_OK ? 0 : by_command_fail(&usage, &err);
}
