/* batch_results.h - the results file of `bathyc batch`: what it holds already, and one more row at a time.
 *
 * A row is one line {"id", "custom_id", "response": {"status_code", "request_id", "body"} or null, "error": {"code",
 * "message"} or null}, written with one write(2), so that a kill leaves whole rows and at most one cut one at the end, which
 * is removed when the file is opened again. Rows of lines that cannot be told apart by a custom_id of their own (there is
 * none, or an earlier line has it) are told apart by their id, which has the line's number. One thread. */
#ifndef BY_CLI_BATCH_RESULTS_H
#define BY_CLI_BATCH_RESULTS_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/id_set.h"

#define BY_BATCH_DUPLICATE "duplicate_custom_id"

typedef struct by_batch_results {
    const char *path;
    int fd;
    by_id_set custom_ids, line_ids; /* marks: BY_BATCH_DONE, _FAILED of the last row; BY_BATCH_SEEN for the reader of the requests */
    size_t n_cut_bytes;             /* of a cut row, removed */
    by_buf row;
} by_batch_results;

enum { BY_BATCH_DONE = 1, BY_BATCH_SEEN = 2, BY_BATCH_FAILED = 4 };

/* One row to be written. Texts are valid UTF-8. */
typedef struct by_batch_row {
    size_t line;         /* number of the request's line, from 1 */
    bool has_custom_id;
    by_str custom_id;
    int status;          /* HTTP status; 0 = no response, but an error */
    by_str request_id;
    by_str body;         /* JSON */
    const char *code;    /* of the error */
    const char *message;
} by_batch_row;

/* Opens path for appending ("-" = standard output, which holds nothing) and reads what is there. Errors: BY_EIO, BY_EFORMAT (a
 * whole line that is not a row: this is no results file), BY_EBUSY (another process writes it), BY_ENOMEM. */
by_status by_batch_results_open(by_batch_results *r, const char *path, by_err *err);
void by_batch_results_close(by_batch_results *r);

/* Appends a row. Errors: BY_EIO, BY_ENOMEM. */
by_status by_batch_results_add(by_batch_results *r, const by_batch_row *row, by_err *err);

/* "batch_req_7": the id of the row of line 7. */
void by_batch_row_id(char out[32], size_t line);

#endif
