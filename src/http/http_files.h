/* http_files.h - files and batches of /v1/files and /v1/batches: lines of requests that are answered in the background. Everything
 * lies in memory, bounded by by_http_opts.store_bytes, and goes with the process; `bathyc batch` is the resumable way. Loop's
 * thread. */
#ifndef BY_HTTP_FILES_H
#define BY_HTTP_FILES_H

#include "http/http_call.h"

typedef struct by_file {
    struct by_file *next;
    char id[48], purpose[32];
    by_buf name, data;
    int64_t created;
} by_file;

struct by_files {
    by_http *http;
    by_file *first; /* newest first */
    struct by_batch_run *batches;
    size_t bytes; /* of all files and batches */
};

/* Errors: BY_ENOMEM. */
by_status by_files_create(by_files **out, by_http *h, by_err *err);
void by_files_destroy(by_files *f); /* jobs have ended; NULL is allowed */

by_file *by_files_find(by_files *f, by_str id); /* NULL when there is none */

/* A new file that takes over the bytes of data (which is empty afterwards). NULL when memory is out. */
by_file *by_files_add(by_files *f, const char *purpose, by_str name, by_buf *data);

/* Frees every batch. */
void by_batches_free(by_files *f);
/* Once per tick. */
void by_batches_tick(by_files *f);

#endif
