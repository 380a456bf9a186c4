/* checkpoint.h - a checkpoint directory: mapped shards, and where each tensor's bytes are.
 *
 * Opening reads the index and every shard header and compares them with the table of expected tensors; no weight is
 * touched. Tensors point into read-only mappings and live as long as the checkpoint. Names are looked up without a
 * leading "model.", which files may have. After opening, all functions but close may be called from several threads.
 *
 * If another process truncates a shard while it is mapped, touching the lost bytes raises SIGBUS: replace files by
 * renaming. */
#ifndef BY_MODEL_CHECKPOINT_H
#define BY_MODEL_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/config.h"
#include "model/problems.h"
#include "model/safetensors.h"

typedef struct by_checkpoint by_checkpoint;

typedef struct by_ckpt_tensor {
    by_str name; /* without "model."; NUL-terminated */
    by_st_dtype dtype;
    int shard; /* by_checkpoint_shard_name; -1: named by the index only (never returned by find) */
    int n_dims;
    int64_t shape[BY_LIMIT_ST_DIMS];
    const void *data; /* row-major, aligned to the element's size for every expected tensor; NULL when bytes is 0 */
    int64_t bytes;
    bool expected; /* in the table of tensors of the configuration */
} by_ckpt_tensor;

/* Opens DIR with model.safetensors.index.json and its shards, or a single model.safetensors.
 *
 * Every problem of the directory is added to `problems` (may be NULL): missing or unreadable shards, malformed headers,
 * ranges that overlap or leave the file, tensors that are missing, twice there, in another shard than the index says,
 * or of the wrong dtype or shape. Tensors the configuration does not know are no problem but a note. *out is set only
 * on BY_OK. Engram tables are marked for random access and never read here. Errors: BY_EMISSING (no such directory, no
 * index), BY_EFORMAT (any problem), BY_EIO, BY_ENOMEM. Cost: about 1 s for the 96,000 tensors of the published model;
 * see tests/integration/full_size_checkpoint.sh. */
by_status by_checkpoint_open(by_checkpoint **out, const char *dir, const by_config *config, by_problems *problems,
                             by_err *err);

/* NULL is allowed. */
void by_checkpoint_close(by_checkpoint *ck);

/* NULL when there is no such tensor. O(1). */
const by_ckpt_tensor *by_checkpoint_find(const by_checkpoint *ck, const char *name);

/* All tensors, in file order. i in [0, n). */
size_t by_checkpoint_n_tensors(const by_checkpoint *ck);
const by_ckpt_tensor *by_checkpoint_at(const by_checkpoint *ck, size_t i);

/* Shards in the order of the index. shard in [0, n). */
int by_checkpoint_n_shards(const by_checkpoint *ck);
const char *by_checkpoint_shard_name(const by_checkpoint *ck, int shard);
/* The whole mapping of a shard, page-aligned; *bytes is its size. Aligned copies of tensors lie outside of it. */
const void *by_checkpoint_shard_map(const by_checkpoint *ck, int shard, size_t *bytes);
int64_t by_checkpoint_file_bytes(const by_checkpoint *ck); /* sum of the shard files */

/* What is odd but harmless: tensors that are not used, or not in the index. */
const by_problems *by_checkpoint_notes(const by_checkpoint *ck);

/* ---- values ---- */

typedef enum by_check_level {
    BY_CHECK_NONE,
    BY_CHECK_AUTO, /* all but Engram tables up to BY_CHECK_AUTO_BYTES, else only tensors of at most BY_CHECK_SMALL_BYTES
                    */
    BY_CHECK_FULL  /* everything, Engram tables included: reads the whole checkpoint */
} by_check_level;

#define BY_CHECK_AUTO_BYTES  (INT64_C(2) << 30) /* about half a second */
#define BY_CHECK_SMALL_BYTES 65536              /* norms, biases, sinks, mixing: a few MB of the full model */

/* Refuses values that would poison every later one: E8M0 scale 255, NaN in E4M3, NaN or infinity in BF16, F16 and F32.
 * Adds a problem for each such tensor with the place of its first bad value; *bytes_checked (may be NULL) is what was
 * read. Errors: BY_ENUMERIC with the first tensors. A large model's pages are given back as it goes: resident memory
 * stays small. */
by_status by_checkpoint_check_values(const by_checkpoint *ck, by_check_level level, int64_t *bytes_checked,
                                     by_problems *problems, by_err *err);

#endif
