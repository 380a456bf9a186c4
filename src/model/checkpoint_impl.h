/* checkpoint_impl.h - private to checkpoint*.c. */
#ifndef BY_MODEL_CHECKPOINT_IMPL_H
#define BY_MODEL_CHECKPOINT_IMPL_H

#include "base/file.h"
#include "model/checkpoint.h"
#include "model/name_map.h"

typedef struct by_ckpt_shard {
    const char *name; /* file name inside the directory */
    by_file_map map;
    uint64_t data_off;
    long n_index; /* tensors the index places here */
    bool failed;  /* not there or unreadable: its tensors are not reported one by one */
} by_ckpt_shard;

typedef struct by_ckpt_record {
    by_ckpt_tensor t;
    int index_shard; /* where the index says it is; -1 = not in the index */
    bool broken;     /* its header entry was refused already */
    bool engram;     /* part of an Engram table: mapped, not read */
} by_ckpt_record;

struct by_checkpoint {
    by_name_map names;       /* number = position in records */
    by_ckpt_record *records; /* [names.n] */
    uint32_t cap_records;
    by_name_map shard_names; /* number = position in shards */
    by_ckpt_shard *shards;
    uint32_t cap_shards;
    bool has_index;
    by_problems notes;
    void **copies; /* tensors moved to aligned memory */
    int n_copies, cap_copies;
};

#endif
