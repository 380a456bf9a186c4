/* npz.h - reads the NumPy files that goldens are stored in.
 *
 * .npz: a zip of stored members (method 0, no ZIP64, no data descriptors), one `<name>.npy` each. .npy: format 1.0,
 * little-endian, C order, types <f2 <f4 <f8 <i2 <i4 <i8 <u2 <u4 <u8 |i1 |u1 |b1. Anything else is refused with a line
 * on stderr: a golden that cannot be read must never look like one that passed. Memory comes from libc and not from
 * base/alloc.h, so that reading goldens does not move the counters a test looks at. For tests only. */
#ifndef BY_TEST_NPZ_H
#define BY_TEST_NPZ_H

#include <stddef.h>
#include <stdint.h>

#define BY_NPY_DIMS_MAX 8

typedef struct by_npy {
    char dtype[4]; /* "<f4", "<i4", "<i8", "<u4", "<u8", "|u1", ... */
    int ndim;      /* 0 for a scalar */
    size_t shape[BY_NPY_DIMS_MAX];
    const void *data; /* aligned to 64 */
    size_t n;         /* product of shape */
    size_t item_bytes;
} by_npy;

typedef struct by_npz by_npz;

/* Reads a whole .npz; NULL with a line on stderr when it is missing or not in the format above. */
by_npz *by_npz_open(const char *path);
void by_npz_close(by_npz *z); /* NULL is allowed; all arrays die with it */

/* Array by name without ".npy" ("<case>.<tensor>", or the bare id); NULL when absent. */
const by_npy *by_npz_get(const by_npz *z, const char *name);

/* The same with a formatted name and an expected dtype (NULL = any); a missing array or another type ends the program
 * with a line that names both. */
const by_npy *by_npz_need(const by_npz *z, const char *dtype, const char *name_fmt, ...)
    __attribute__((format(printf, 3, 4), returns_nonnull));

/* Number of arrays and the name of the i-th, in file order. */
int by_npz_count(const by_npz *z);
const char *by_npz_name(const by_npz *z, int i);

/* One .npy file. NULL with a line on stderr when it cannot be read. */
by_npy *by_npy_read(const char *path);
void by_npy_free(by_npy *a);

/* Typed views; the type is checked and a mismatch ends the program. */
const float *by_npy_f32(const by_npy *a);
const int32_t *by_npy_i32(const by_npy *a);
const int64_t *by_npy_i64(const by_npy *a);
const uint32_t *by_npy_u32(const by_npy *a);
const uint64_t *by_npy_u64(const by_npy *a);
const uint8_t *by_npy_u8(const by_npy *a);

#endif
