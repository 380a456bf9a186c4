/* npy_out.h - writes a NumPy file (format 1.0, <f4, C order) row by row; it appears under its name only when complete. */
#ifndef BY_CLI_NPY_OUT_H
#define BY_CLI_NPY_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

typedef struct by_npy_out {
    FILE *file;
    char path[4096], tmp[4128];
} by_npy_out;

/* DIR/NAME.npy of n_dims dimensions (1..4). Errors: BY_EIO with the path, BY_EINVAL (path too long). */
by_status by_npy_out_open(by_npy_out *o, const char *dir, const char *name, const int64_t *shape, int n_dims, by_err *err);
by_status by_npy_out_write(by_npy_out *o, const float *values, size_t n, by_err *err);
/* Position in values from the start of the data, for files that are not written in order. */
by_status by_npy_out_seek(by_npy_out *o, int64_t value, by_err *err);
/* Closes and, when keep is true, gives the file its name; otherwise removes it. */
by_status by_npy_out_close(by_npy_out *o, bool keep, by_err *err);

#endif
