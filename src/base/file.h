/* file.h - reading whole files and mapping them. */
#ifndef BY_BASE_FILE_H
#define BY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A read-only private mapping of a whole file. An empty file has ptr NULL and size 0. */
typedef struct by_file_map {
    const unsigned char *ptr;
    size_t size;
} by_file_map;

/* Errors: BY_EMISSING (no such file), BY_EIO (anything else), both with the path. The file may be closed, renamed or
 * removed while mapped; if it is truncated by someone, touching the lost pages raises SIGBUS, which the program
 * turns into an error that names the file (cli/lost_pages.h). */
by_status by_file_map_open(by_file_map *out, const char *path, by_err *err);
void by_file_map_close(by_file_map *m);

/* Appends the file (or standard input for "-") to out; BY_ELIMIT when it has more than max_bytes. Handles EINTR and
 * short reads. */
by_status by_file_read(by_buf *out, const char *path, size_t max_bytes, by_err *err);

/* Writes all n bytes to path, through a temporary file and rename, so that a reader never sees half of it. */
by_status by_file_write(const char *path, const void *data, size_t n, by_err *err);

/* write(2) until done; BY_EIO with errno's text (EPIPE included). */
by_status by_fd_write_all(int fd, const void *data, size_t n, by_err *err);

/* Is there a regular file, or a directory, that this process can reach under that name? */
bool by_file_exists(const char *path);
bool by_dir_exists(const char *path);

#endif
