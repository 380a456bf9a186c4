/* npy_out.c - see npy_out.h. */
#include "cli/npy_out.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 128 };

static by_status io_fail(by_npy_out *o, by_err *err) { return BY_FAIL(err, BY_EIO, "%.300s: %s", o->path, strerror(errno)); }

by_status by_npy_out_open(by_npy_out *o, const char *dir, const char *name, const int64_t *shape, int n_dims, by_err *err) {
    *o = (by_npy_out){0};
    int n = snprintf(o->path, sizeof o->path, "%s/%s.npy", dir, name);
    if (n < 0 || (size_t)n >= sizeof o->path) return BY_FAIL(err, BY_EINVAL, "%.200s: path too long", dir);
    snprintf(o->tmp, sizeof o->tmp, "%s.tmp%ld", o->path, (long)getpid());
    char head[HEADER + 1], dims[100] = "";
    size_t at = 0;
    for (int i = 0; i < n_dims; i++)
        at += (size_t)snprintf(dims + at, sizeof dims - at, "%lld,%s", (long long)shape[i], i + 1 < n_dims ? " " : "");
    if (n_dims > 1) dims[at - 1] = '\0';
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    int k = snprintf(head + 10, HEADER - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", dims);
    head[10 + k] = ' ';
    head[HEADER - 1] = '\n';
    o->file = fopen(o->tmp, "wb");
    if (!o->file || fwrite(head, 1, HEADER, o->file) != HEADER) return io_fail(o, err);
    return BY_OK;
}

by_status by_npy_out_write(by_npy_out *o, const float *values, size_t n, by_err *err) {
    return fwrite(values, 4, n, o->file) == n ? BY_OK : io_fail(o, err);
}

by_status by_npy_out_seek(by_npy_out *o, int64_t value, by_err *err) {
    return fseeko(o->file, (off_t)(HEADER + 4 * value), SEEK_SET) == 0 ? BY_OK : io_fail(o, err);
}

by_status by_npy_out_close(by_npy_out *o, bool keep, by_err *err) {
    if (!o->file) return BY_OK;
    by_status status = fclose(o->file) == 0 ? BY_OK : io_fail(o, err);
    o->file = NULL;
    if (keep && status == BY_OK && rename(o->tmp, o->path) == 0) return BY_OK;
    if (keep && status == BY_OK) status = io_fail(o, err);
    unlink(o->tmp);
    return status;
}
