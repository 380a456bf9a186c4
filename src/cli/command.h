/* command.h - what every command begins with: flags, `--help`, the model's folder, reading lines. One thread. */
#ifndef BY_CLI_COMMAND_H
#define BY_CLI_COMMAND_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/args.h"
#include "tok/tok.h"

/* How a command is called, for its help. */
typedef struct by_usage {
    const char *name;  /* "tokenize" */
    const char *args;  /* behind the name in the usage line: "[flags] [TEXT]" */
    const char *about; /* a paragraph, lines ending in \n; may be NULL */
} by_usage;

/* Reads the flags. True when the command shall run; otherwise *exit_code is set: 0 after `--help` or `-h` (printed to
 * stdout), 2 after wrong usage (told on stderr). pos, pos_max, n_pos as in by_args_parse. */
bool by_command_begin(const by_usage *usage, const by_flag *flags, int n_flags, int argc, char **argv, const char **pos,
                      int pos_max, int *n_pos, int *exit_code);

/* Prints "bathyc NAME: message" to stderr and returns 1. */
int by_command_fail(const by_usage *usage, const by_err *err);

/* The model's folder: `given` (a flag's value) if not NULL, else the environment's BATHYC_MODEL, else the tiny model of
 * the source tree, else the one of the installation. Appended to out with a closing NUL that is not counted.
 * Errors: BY_EMISSING (there is none, or the folder does not exist), BY_ENOMEM. */
by_status by_command_model_dir(by_buf *out, const char *given, by_err *err);

/* Flags of the commands that need a tokenizer and no weights; both are const char *. */
#define BY_TOKENIZER_FLAG_ROWS(model_, tokenizer_)                                                                     \
    {.names = "--model,-m,--model-path", .kind = BY_FLAG_STRING, .out = &(model_),                                     \
     .help = "model folder whose tokenizer.json is used"},                                                             \
    {.names = "--tokenizer", .kind = BY_FLAG_STRING, .out = &(tokenizer_), .help = "tokenizer file, instead of the model's"}

/* The tokenizer's file: `tokenizer` if not NULL, else tokenizer.json in the model's folder. The second form opens it.
 * Errors: those of by_command_model_dir, and of by_tok_open. */
by_status by_command_tokenizer_file(by_buf *out, const char *tokenizer, const char *model, by_err *err);
by_status by_command_tokenizer_open(by_tok **out, const char *tokenizer, const char *model, by_err *err);

/* ---- output ---- */

/* A file being written, or standard output ("-"). */
typedef struct by_output {
    const char *path;
    void *file; /* FILE * */
} by_output;

/* Errors: BY_EIO with the path. */
by_status by_output_open(by_output *o, const char *path, by_err *err);

/* Writes b and hands it to the reader at once. Errors: BY_EIO, BY_ENOMEM (b has failed to grow). */
by_status by_output_write(by_output *o, const by_buf *b, by_err *err);

/* Closes what was opened; a late write error becomes the status where it was BY_OK. */
by_status by_output_close(by_output *o, by_status status, by_err *err);

/* ---- lines ---- */

/* Lines of a file or of standard input ("-"), read as they come: a line is handed out as soon as its end has arrived. */
typedef struct by_line_reader {
    int fd;
    size_t at; /* of the next line in buf */
    size_t n_lines; /* handed out so far: the number of the last line, from 1 */
    bool ended, skips; /* skips: the rest of a line that is too long is not wanted */
    size_t bytes_max; /* of a line; set to BY_LIMIT_REQUEST_BYTES by by_line_reader_open */
    by_buf buf;
} by_line_reader;

/* Errors: BY_EMISSING, BY_EIO, with the path. */
by_status by_line_reader_open(by_line_reader *r, const char *path, by_err *err);
void by_line_reader_close(by_line_reader *r);

/* The next line without \n, valid until the next call; BY_END behind the last one.
 * Errors: BY_EIO, BY_ELIMIT (a line over bytes_max, which counts as handed out: the next call goes on behind it), BY_ENOMEM. */
by_status by_line_reader_next(by_line_reader *r, by_str *line, by_err *err);

/* A line of JSON (`number` from 1) without the white space around it, and the first one without a byte order mark, as editors and
 * spreadsheets leave them. Empty: there is nothing on the line. */
by_str by_line_trim(by_str line, size_t number);

/* Would by_line_reader_next go on without waiting for more input? A line that has only begun to arrive counts as there. */
bool by_line_reader_ready(const by_line_reader *r);

#endif
