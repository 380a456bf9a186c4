/* fuzz_safetensors.c - any bytes as a safetensors file: the reader answers, and a good entry lies inside the file with
 * the size its shape and dtype ask for. */
#include <stdint.h>
#include <stdlib.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    by_st_reader r;
    by_err err;
    by_status status = by_st_reader_init(&r, data, size, &err);
    while (status == BY_OK) {
        by_st_entry e;
        status = by_st_reader_next(&r, &e, &err);
        if (status == BY_OK) {
            if (e.begin > e.end || e.end > r.data_bytes || r.data_off + r.data_bytes != size) abort();
            if (e.n_dims < 0 || e.n_dims > BY_LIMIT_ST_DIMS) abort();
            uint64_t n = 1;
            for (int i = 0; i < e.n_dims; i++)
                n *= (uint64_t)e.shape[i];
            if (e.dtype != BY_ST_OTHER && n * (uint64_t)(by_st_dtype_bits(e.dtype) / 8) != e.end - e.begin) abort();
            volatile char sum = 0; /* the name's bytes must be readable */
            for (size_t i = 0; i < e.name.len; i++)
                sum = (char)(sum + e.name.ptr[i]);
        } else if (status == BY_ELIMIT) {
            status = BY_OK; /* this entry only */
        }
    }
    by_st_reader_deinit(&r);
    return 0;
}
