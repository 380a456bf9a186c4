/* cmd_detokenize.c - `bathyc detokenize`: token ids to text, whole or line by line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/json_lines.h"
#include "tok/tok.h"

enum { IDS_MAX = 4096 }; /* as arguments; a file may hold more */

typedef struct {
    const char *model, *tokenizer, *input, *output;
    const char *words[IDS_MAX];
    int n_words;
    bool jsonl, json, skip_special;
} options;

typedef struct {
    const options *o;
    by_tok *tok;
    by_tok_ids ids;
    by_buf text, out;
    by_output to;
    size_t n_unknown; /* ids that the tokenizer does not have; they have no text */
    int64_t unknown;  /* the first of them */
} job;

static by_status push(job *j, int64_t id, by_err *err) {
    int32_t small = id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
    if (!by_tok_bytes(j->tok, small).ptr && j->n_unknown++ == 0) j->unknown = id;
    return by_tok_ids_push(&j->ids, small, err);
}

/* Ids between blanks, line ends, commas and brackets: what tokenize writes, and JSON arrays. */
static by_status push_words(job *j, by_str text, by_err *err) {
    static const char between[] = " \t\r\n,[]";
    for (size_t i = 0; i < text.len;) {
        if (memchr(between, text.ptr[i], sizeof between - 1)) {
            i++;
            continue;
        }
        size_t end = i;
        while (end < text.len && !memchr(between, text.ptr[end], sizeof between - 1)) end++;
        char word[24], *stop;
        int len = end - i < sizeof word ? (int)(end - i) : (int)sizeof word - 1;
        snprintf(word, sizeof word, "%.*s", len, text.ptr + i);
        errno = 0;
        long long id = strtoll(word, &stop, 10);
        if (*stop || errno || end - i >= sizeof word || id < 0)
            return BY_FAIL(err, BY_EFORMAT, "'%s' is not a token id", word);
        BY_TRY(push(j, id, err));
        i = end;
    }
    return BY_OK;
}

static by_status decode(job *j, by_err *err) {
    by_buf_clear(&j->text);
    return by_tok_decode(j->tok, j->ids.ids, j->ids.n, j->o->skip_special, &j->text, err);
}

/* {"id", "tokens"} -> {"id", "text"} */
static by_status decode_line(void *context, const by_json *row, by_json_out *answer, by_err *err) {
    job *j = context;
    const by_json *list = by_json_get(row, "tokens");
    if (!by_json_is(list, BY_JSON_ARRAY)) return BY_FAIL(err, BY_EFORMAT, "tokens: want an array of ids");
    j->ids.n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        int64_t token;
        if (!by_json_int_in(by_json_at(list, i), 0, INT32_MAX, &token))
            return BY_FAIL(err, BY_EFORMAT, "tokens[%u] is not a token id", i);
        BY_TRY(push(j, token, err));
    }
    BY_TRY(decode(j, err));
    by_json_out_key(answer, "text");
    by_json_out_string(answer, by_buf_str(&j->text));
    return BY_OK;
}

/* ---- the command ---- */

static by_status run_whole(job *j, by_err *err) {
    by_buf words = {0};
    by_status status = BY_OK;
    for (int i = 0; i < j->o->n_words && status == BY_OK; i++) status = push_words(j, by_str_z(j->o->words[i]), err);
    if (j->o->n_words == 0) status = by_file_read(&words, j->o->input, BY_LIMIT_JSON_FILE_BYTES, err);
    if (status == BY_OK) status = push_words(j, by_buf_str(&words), err);
    if (status == BY_OK) status = decode(j, err);
    if (status == BY_OK && j->o->json) {
        by_json_out o = by_json_out_init(&j->out, BY_JSON_PYTHON);
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "text");
        by_json_out_string(&o, by_buf_str(&j->text));
        by_json_out_object_end(&o);
        by_buf_push_byte(&j->out, '\n');
    }
    if (status == BY_OK) status = by_output_write(&j->to, j->o->json ? &j->out : &j->text, err);
    by_buf_deinit(&words);
    return status;
}

static by_status run(const options *o, by_err *err) {
    job j = {.o = o};
    by_status status = by_output_open(&j.to, o->output, err);
    if (status == BY_OK) status = by_command_tokenizer_open(&j.tok, o->tokenizer, o->model, err);
    if (status == BY_OK) status = o->jsonl ? by_json_lines_run(o->input, &j.to, decode_line, &j, err) : run_whole(&j, err);
    if (status == BY_OK && j.n_unknown) { /* after the text of the others */
        status = BY_FAIL(err, BY_EFORMAT, "id %lld is not in the tokenizer and has no text", (long long)j.unknown);
        if (j.n_unknown > 1) by_err_prefix(err, "%zu ids have no text: ", j.n_unknown);
    }
    by_tok_ids_deinit(&j.ids);
    by_tok_destroy(j.tok);
    by_buf_deinit(&j.text);
    by_buf_deinit(&j.out);
    return by_output_close(&j.to, status, err);
}

int by_cmd_detokenize(int argc, char **argv) {
    const by_usage usage = {"detokenize", "[flags] [ID...]",
                            "Writes the text of token ids: arguments, a file of numbers or a JSON array, or {\"id\", \"tokens\"} lines.\n"
                            "The text is written as it is, without a line end behind it.\n"};
    options o = {.input = "-", .output = "-"};
    const by_flag flags[] = {
        BY_TOKENIZER_FLAG_ROWS(o.model, o.tokenizer),
        {"--input,-i", BY_FLAG_STRING, &o.input, .help = "file of ids, - for standard input (default)"},
        {"--output,-o", BY_FLAG_STRING, &o.output, .help = "where the text goes, - for standard output (default)"},
        {"--jsonl", BY_FLAG_BOOL, &o.jsonl, .help = "lines {\"id\", \"tokens\"} in, {\"id\", \"text\"} out"},
        {"--json", BY_FLAG_BOOL, &o.json, .help = "one object {\"text\"}"},
        {"--skip-special", BY_FLAG_BOOL, &o.skip_special, .help = "leave special tokens out"},
    };
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, o.words, IDS_MAX, &o.n_words, &code))
        return code;
    if (o.jsonl && (o.json || o.n_words))
        return fprintf(stderr, "bathyc detokenize: --jsonl reads a file and has an output of its own\n"), 2;
    by_err err;
    return run(&o, &err) == BY_OK ? 0 : by_command_fail(&usage, &err);
}
