/* device.h - devices and tensors for tests: upload an array, download a tensor, loop over the backends. */
#ifndef BY_TEST_DEVICE_H
#define BY_TEST_DEVICE_H

#include "ops/ops.h"

/* Backends that tests run on. */
typedef struct by_test_backend {
    by_backend backend;
    const char *isa; /* NULL = best */
    const char *name;
} by_test_backend;
/* ref, guard and cpu with its best instruction set. */
int by_test_backends(const by_test_backend **out);
/* These, and cpu with each lower instruction set of this machine. */
int by_test_all_backends(const by_test_backend **out);

/* Opens or ends the program. */
by_device *by_test_device(const by_test_backend *b, int32_t n_threads);

/* A fresh buffer with rows x cols of that dtype; src fp32 values (NULL = zeros) are rounded or quantised, I32 sources are
 * int32, I64 int64, U8 bytes. Ends the program on failure. Freed with by_test_free_all, which frees every buffer made
 * here for that device. */
by_tensor by_test_tensor(by_device *dev, by_dtype dtype, int64_t rows, int64_t cols, const void *src);
by_tensor by_test_i32(by_device *dev, int64_t rows, int64_t cols, const int32_t *src);

/* The tensor's values as fp32 (F32, BF16, A8), rows * cols of them; malloc'ed. */
float *by_test_values(by_tensor t);
/* Raw bytes of all rows; malloc'ed. */
unsigned char *by_test_bytes(by_tensor t);
void by_test_free_all(void);

#endif
