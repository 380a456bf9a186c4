/* safetensors.h - the header of one safetensors file, read entry by entry from a mapping.
 *
 * File: 8 bytes little-endian header length n, n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin,
 * end]}}, then the data; offsets count from the first data byte. This part checks each entry alone: sizes that agree
 * with shape and dtype, and ranges inside the file. Relations between entries (duplicates, overlaps) are
 * checkpoint.c's. Nothing is allocated but the decoded text of names with escapes. Source: the format description of
 * the safetensors library. */
#ifndef BY_MODEL_SAFETENSORS_H
#define BY_MODEL_SAFETENSORS_H

#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"
#include "json/json_walk.h"

/* enum, name in the file, bits of one element */
#define BY_ST_DTYPE_TABLE(X)                                                                                           \
    X(BY_ST_OTHER, "?", 0) /* a type this program does not know: its size is taken from the offsets */                 \
    X(BY_ST_F32, "F32", 32)                                                                                            \
    X(BY_ST_BF16, "BF16", 16)                                                                                          \
    X(BY_ST_F16, "F16", 16)                                                                                            \
    X(BY_ST_F64, "F64", 64)                                                                                            \
    X(BY_ST_F8_E4M3, "F8_E4M3", 8)                                                                                     \
    X(BY_ST_F8_E5M2, "F8_E5M2", 8)                                                                                     \
    X(BY_ST_F8_E8M0, "F8_E8M0", 8)                                                                                     \
    X(BY_ST_I8, "I8", 8)                                                                                               \
    X(BY_ST_U8, "U8", 8)                                                                                               \
    X(BY_ST_BOOL, "BOOL", 8)                                                                                           \
    X(BY_ST_I16, "I16", 16)                                                                                            \
    X(BY_ST_U16, "U16", 16)                                                                                            \
    X(BY_ST_I32, "I32", 32)                                                                                            \
    X(BY_ST_U32, "U32", 32)                                                                                            \
    X(BY_ST_I64, "I64", 64)                                                                                            \
    X(BY_ST_U64, "U64", 64)

typedef enum by_st_dtype {
#define BY_ST_DTYPE_ENUM(name, text, bits) name,
    BY_ST_DTYPE_TABLE(BY_ST_DTYPE_ENUM)
#undef BY_ST_DTYPE_ENUM
        BY_ST_DTYPE_N
} by_st_dtype;

const char *by_st_dtype_name(by_st_dtype t);
int by_st_dtype_bits(by_st_dtype t);

typedef struct by_st_entry {
    by_str name; /* valid until the next entry is read */
    by_st_dtype dtype;
    int n_dims;
    int64_t shape[BY_LIMIT_ST_DIMS];
    uint64_t begin, end; /* bytes of the data area */
} by_st_entry;

typedef struct by_st_reader {
    by_json_walk walk;
    uint64_t data_off;   /* of the data area in the file */
    uint64_t data_bytes; /* size of the data area */
} by_st_reader;

/* Checks the length field and the header's UTF-8. file is the whole file and must outlive the reader; release with
 * by_st_reader_deinit, also after an error. Errors: BY_EFORMAT with what is wrong (no path). */
by_status by_st_reader_init(by_st_reader *r, const unsigned char *file, size_t size, by_err *err);
void by_st_reader_deinit(by_st_reader *r);

/* Next tensor; __metadata__ is passed over. BY_END after the last one, when the header has ended cleanly.
 * BY_ELIMIT: the entry itself is wrong (size, range, dims; the text names the tensor) and *out holds what was read: the
 * caller may go on with the next. BY_EFORMAT: the header cannot be read further. BY_ENOMEM. */
by_status by_st_reader_next(by_st_reader *r, by_st_entry *out, by_err *err);

#endif
