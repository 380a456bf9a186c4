/* command.c - see command.h. */
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"

static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

bool by_command_begin(const by_usage *usage, const by_flag *flags, int n_flags, int argc, char **argv, const char **pos,
                      int pos_max, int *n_pos, int *exit_code) {
    if (asks_for_help(argc, argv)) {
        printf("usage: bathyc %s %s\n", usage->name, usage->args);
        if (usage->about) printf("\n%s", usage->about);
        printf("\n");
        by_args_print_help(flags, n_flags);
        *exit_code = 0;
        return false;
    }
    by_err err;
    if (by_args_parse(flags, n_flags, argc, argv, pos, pos_max, n_pos, &err) < 0) {
        fprintf(stderr, "bathyc %s: %s\n", usage->name, err.msg);
        *exit_code = 2;
        return false;
    }
    return true;
}

int by_command_fail(const by_usage *usage, const by_err *err) {
    fprintf(stderr, "bathyc %s: %s\n", usage->name, err->msg);
    return 1;
}

/* ---- model ---- */

/* <folder of the program>/../share/bathyc/models/tiny */
static bool installed_model(by_buf *out) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    by_buf_clear(out);
    by_buf_push(out, path, (size_t)(slash - path));
    by_buf_push_z(out, "/../share/bathyc/models/tiny");
    return by_dir_exists(by_buf_z(out));
}

by_status by_command_model_dir(by_buf *out, const char *given, by_err *err) {
    const char *from = "";
    if (!given) {
        given = getenv("BATHYC_MODEL");
        from = "BATHYC_MODEL: ";
    }
    if (given) {
        by_buf_push_z(out, given);
        if (!by_dir_exists(by_buf_z(out)))
            return BY_FAIL(err, BY_EMISSING, "%s%s: %s", from, given, access(given, F_OK) == 0 ? "is not a folder" : "no such folder");
    } else {
        by_buf_push_z(out, BATHYC_SOURCE_DIR "/models/tiny");
        if (!by_dir_exists(by_buf_z(out)) && !installed_model(out))
            return BY_FAIL(err, BY_EMISSING, "no model: give one with --model or BATHYC_MODEL");
    }
    return by_buf_check(out, err);
}

by_status by_command_tokenizer_file(by_buf *out, const char *tokenizer, const char *model, by_err *err) {
    if (tokenizer) {
        by_buf_push_z(out, tokenizer);
    } else {
        BY_TRY(by_command_model_dir(out, model, err));
        by_buf_push_z(out, "/tokenizer.json");
    }
    by_buf_z(out);
    return by_buf_check(out, err);
}

by_status by_command_tokenizer_open(by_tok **out, const char *tokenizer, const char *model, by_err *err) {
    by_buf path = {0};
    by_status status = by_command_tokenizer_file(&path, tokenizer, model, err);
    if (status == BY_OK) status = by_tok_open(out, by_buf_z(&path), NULL, err);
    by_buf_deinit(&path);
    return status;
}

/* ---- output ---- */

static by_status write_failed(const by_output *o, by_err *err) {
    return BY_FAIL(err, BY_EIO, "%s: writing failed: %s", o->file == stdout ? "standard output" : o->path, strerror(errno));
}

by_status by_output_open(by_output *o, const char *path, by_err *err) {
    *o = (by_output){.path = path, .file = strcmp(path, "-") == 0 ? stdout : fopen(path, "wbe")};
    return o->file ? BY_OK : BY_FAIL(err, BY_EIO, "%s: cannot be written: %s", path, strerror(errno));
}

by_status by_output_write(by_output *o, const by_buf *b, by_err *err) {
    BY_TRY(by_buf_check(b, err));
    if (b->len && fwrite(b->ptr, 1, b->len, o->file) != b->len) return write_failed(o, err);
    return fflush(o->file) == 0 ? BY_OK : write_failed(o, err);
}

by_status by_output_close(by_output *o, by_status status, by_err *err) {
    if (o->file && o->file != stdout && fclose(o->file) != 0 && status == BY_OK) status = write_failed(o, err);
    o->file = NULL;
    return status;
}

/* ---- lines ---- */

by_status by_line_reader_open(by_line_reader *r, const char *path, by_err *err) {
    *r = (by_line_reader){.fd = STDIN_FILENO, .bytes_max = BY_LIMIT_REQUEST_BYTES};
    if (strcmp(path, "-") == 0) return BY_OK;
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0) return BY_FAIL(err, errno == ENOENT ? BY_EMISSING : BY_EIO, "%s: %s", path, strerror(errno));
    return BY_OK;
}

void by_line_reader_close(by_line_reader *r) {
    if (r->fd > STDIN_FILENO) close(r->fd);
    by_buf_deinit(&r->buf);
    r->fd = -1;
}

static by_status read_more(by_line_reader *r, by_err *err) {
    if (r->at > 0) { /* the lines handed out before make room */
        r->buf.len -= r->at;
        memmove(r->buf.ptr, r->buf.ptr + r->at, r->buf.len);
        r->at = 0;
    }
    if (r->skips) by_buf_clear(&r->buf);
    size_t room = r->buf.cap - r->buf.len > 65536 ? r->buf.cap - r->buf.len : 65536;
    char *to = by_buf_reserve(&r->buf, room);
    if (!to) return BY_FAIL(err, BY_ENOMEM, "out of memory for line %zu", r->n_lines + 1);
    ssize_t n;
    do n = read(r->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n < 0) return BY_FAIL(err, BY_EIO, "reading line %zu: %s", r->n_lines + 1, strerror(errno));
    r->buf.len += (size_t)n;
    r->ended = n == 0;
    return BY_OK;
}

bool by_line_reader_ready(const by_line_reader *r) {
    if (r->ended || (r->buf.len > r->at && memchr(r->buf.ptr + r->at, '\n', r->buf.len - r->at))) return true;
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0; /* an error shows when reading */
}

by_status by_line_reader_next(by_line_reader *r, by_str *line, by_err *err) {
    size_t seen = 0;
    for (;;) {
        size_t len = r->buf.len - r->at;
        const char *from = len ? r->buf.ptr + r->at : NULL;
        const char *end = len > seen ? memchr(from + seen, '\n', len - seen) : NULL;
        if (end || (r->ended && (len > 0 || r->skips))) {
            *line = by_str_of(from, end ? (size_t)(end - from) : len);
            r->at += line->len + (end != NULL);
            r->n_lines++;
            bool longer = r->skips || line->len > r->bytes_max;
            r->skips = false;
            return longer ? BY_FAIL(err, BY_ELIMIT, "line %zu is longer than %zu bytes", r->n_lines, r->bytes_max) : BY_OK;
        }
        if (r->ended) return BY_END;
        r->skips = r->skips || len > r->bytes_max;
        seen = r->skips ? 0 : len;
        BY_TRY(read_more(r, err));
    }
}

by_str by_line_trim(by_str line, size_t number) {
    static const char space[] = " \t\r\n";
    if (number == 1 && line.len >= 3 && memcmp(line.ptr, "\xef\xbb\xbf", 3) == 0) line = by_str_skip(line, 3);
    while (line.len && memchr(space, line.ptr[0], sizeof space - 1)) line = by_str_skip(line, 1);
    while (line.len && memchr(space, line.ptr[line.len - 1], sizeof space - 1)) line.len--;
    return line;
}
