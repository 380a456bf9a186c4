/* batch_results.c - see batch_results.h. */
#include "cli/batch_results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/command.h"
#include "json/json.h"
#include "json/json_write.h"

void by_batch_row_id(char out[32], size_t line) { snprintf(out, 32, "batch_req_%zu", line); }

/* ---- what is there ---- */

/* Offset behind the last end of line; what follows is a cut row. */
static by_status find_whole_rows(by_batch_results *r, int64_t *whole, by_err *err) {
    struct stat st;
    if (fstat(r->fd, &st) != 0) return BY_FAIL(err, BY_EIO, "%s: %s", r->path, strerror(errno));
    char piece[65536];
    *whole = 0;
    for (int64_t at = st.st_size; at > 0 && *whole == 0;) {
        size_t n = at < (int64_t)sizeof piece ? (size_t)at : sizeof piece;
        at -= (int64_t)n;
        if (pread(r->fd, piece, n, at) != (ssize_t)n) return BY_FAIL(err, BY_EIO, "%s: reading failed: %s", r->path, strerror(errno));
        const char *nl = memrchr(piece, '\n', n);
        if (nl) *whole = at + (nl - piece) + 1;
        else if (at == 0 && piece[0] != '{') /* the only line, cut: it must at least begin as a row does */
            return BY_FAIL(err, BY_EFORMAT, "%s: line 1 is not a result row; nothing was changed", r->path);
    }
    r->n_cut_bytes = (size_t)(st.st_size - *whole);
    return BY_OK;
}

static bool is_row(const by_json *row) {
    const by_json *id = by_json_get(row, "id"), *custom = by_json_get(row, "custom_id");
    bool has_custom = by_json_is(custom, BY_JSON_STRING) || by_json_is(custom, BY_JSON_NULL);
    return by_json_is(id, BY_JSON_STRING) && has_custom && by_json_get(row, "response") && by_json_get(row, "error");
}

static by_status note_row(by_batch_results *r, const by_json *row, by_err *err) {
    const by_json *custom = by_json_get(row, "custom_id"), *error = by_json_get(row, "error");
    const by_json *code = by_json_get(error, "code"), *status = by_json_get(by_json_get(row, "response"), "status_code");
    bool duplicate = by_json_is(code, BY_JSON_STRING) && by_str_eqz(code->v.s, BY_BATCH_DUPLICATE);
    bool by_custom = by_json_is(custom, BY_JSON_STRING) && !duplicate;
    uint8_t *marks = by_custom ? by_id_set_marks(&r->custom_ids, custom->v.s)
                               : by_id_set_marks(&r->line_ids, by_json_get(row, "id")->v.s);
    if (!marks) return BY_FAIL(err, BY_ENOMEM, "out of memory for the ids of %s", r->path);
    bool failed = error->type != BY_JSON_NULL || !by_json_is(status, BY_JSON_INT) || status->v.i != 200;
    *marks = BY_BATCH_DONE | (failed ? BY_BATCH_FAILED : 0);
    return BY_OK;
}

static by_status read_rows(by_batch_results *r, int64_t whole, by_err *err) {
    by_line_reader in = {0};
    by_str line;
    by_arena arena;
    BY_TRY(by_line_reader_open(&in, r->path, err));
    by_arena_init(&arena, BY_MEM_JSON);
    by_status status = BY_OK;
    in.bytes_max = SIZE_MAX; /* an answer may be longer than a request */
    while (whole > 0 && (status = by_line_reader_next(&in, &line, err)) == BY_OK) {
        by_json row;
        whole -= (int64_t)line.len + 1;
        if (line.len == 0) continue;
        by_arena_reset(&arena);
        status = by_json_parse(&row, &arena, line, NULL, err);
        if (status == BY_ENOMEM) break;
        if (status < 0 || !is_row(&row)) {
            status = BY_FAIL(err, BY_EFORMAT, "%s: line %zu is not a result row; nothing was changed", r->path, in.n_lines);
            break;
        }
        status = note_row(r, &row, err);
        if (status < 0) break;
    }
    by_arena_deinit(&arena);
    by_line_reader_close(&in);
    return status == BY_END ? BY_OK : status;
}

by_status by_batch_results_open(by_batch_results *r, const char *path, by_err *err) {
    *r = (by_batch_results){.path = path, .fd = STDOUT_FILENO};
    by_id_set_init(&r->custom_ids);
    by_id_set_init(&r->line_ids);
    if (strcmp(path, "-") == 0) return BY_OK;
    r->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (r->fd < 0) return BY_FAIL(err, BY_EIO, "%s: cannot be written: %s", path, strerror(errno));
    if (flock(r->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return BY_FAIL(err, BY_EBUSY, "%s: another process is writing it", path);
    struct stat st;
    if (fstat(r->fd, &st) == 0 && !S_ISREG(st.st_mode)) return BY_OK;
    int64_t whole;
    BY_TRY(find_whole_rows(r, &whole, err));
    BY_TRY(read_rows(r, whole, err));
    if (r->n_cut_bytes && ftruncate(r->fd, whole) != 0) return BY_FAIL(err, BY_EIO, "%s: cannot be cut: %s", path, strerror(errno));
    return BY_OK;
}

void by_batch_results_close(by_batch_results *r) {
    if (r->fd > STDERR_FILENO) close(r->fd);
    r->fd = -1;
    by_id_set_deinit(&r->custom_ids);
    by_id_set_deinit(&r->line_ids);
    by_buf_deinit(&r->row);
}

/* ---- one more ---- */

static void write_response(by_json_out *o, const by_batch_row *row) {
    by_json_out_key(o, "response");
    if (row->status == 0) {
        by_json_out_null(o);
        return;
    }
    by_json_out_object_begin(o);
    by_json_out_key(o, "status_code");
    by_json_out_int(o, row->status);
    by_json_out_key(o, "request_id");
    by_json_out_string(o, row->request_id);
    by_json_out_key(o, "body");
    by_json_out_raw(o, row->body);
    by_json_out_object_end(o);
}

by_status by_batch_results_add(by_batch_results *r, const by_batch_row *row, by_err *err) {
    char id[32];
    by_batch_row_id(id, row->line);
    by_buf_clear(&r->row);
    by_json_out o = by_json_out_init(&r->row, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_z(&o, id);
    by_json_out_key(&o, "custom_id");
    if (row->has_custom_id) by_json_out_string(&o, row->custom_id);
    else by_json_out_null(&o);
    write_response(&o, row);
    by_json_out_key(&o, "error");
    if (row->code) {
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "code");
        by_json_out_z(&o, row->code);
        by_json_out_key(&o, "message");
        by_json_out_z(&o, row->message);
        by_json_out_object_end(&o);
    } else {
        by_json_out_null(&o);
    }
    by_json_out_object_end(&o);
    by_buf_push_byte(&r->row, '\n');
    BY_TRY(by_buf_check(&r->row, err));
    if (by_fd_write_all(r->fd, r->row.ptr, r->row.len, err) < 0) return by_err_prefix(err, "%s: ", r->path);
    return BY_OK;
}
