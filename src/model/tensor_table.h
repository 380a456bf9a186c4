/* tensor_table.h - every tensor a checkpoint of one configuration must hold: name, format, shape, and what it is for.
 *
 * One table generates the names for reading, for `inspect`'s sums and for tools/make_checkpoint, so that the three
 * cannot disagree. A quantised weight X is two tensors, X.weight and X.scale. Source: the published checkpoint layout
 * of DeepSeek-V4.1 (trunk, draft layers mtp.*, image tower vision.* and aligner.*). */
#ifndef BY_MODEL_TENSOR_TABLE_H
#define BY_MODEL_TENSOR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/config.h"
#include "model/safetensors.h"

/* What a tensor belongs to, for sums. enum, key in reports, text */
#define BY_PART_TABLE(X)                                                                                               \
    X(BY_PART_EMBEDDING, "embedding", "token embedding")                                                               \
    X(BY_PART_HEAD, "head", "output head")                                                                             \
    X(BY_PART_ATTENTION, "attention", "attention projections")                                                         \
    X(BY_PART_COMPRESSOR, "compressor", "KV compressors and index keys")                                               \
    X(BY_PART_INDEXER, "indexer", "indexers")                                                                          \
    X(BY_PART_ROUTER, "router", "expert routers")                                                                      \
    X(BY_PART_SHARED_EXPERT, "shared_expert", "shared experts")                                                        \
    X(BY_PART_EXPERTS, "experts", "routed experts")                                                                    \
    X(BY_PART_HYPER, "hyper_connections", "hyper-connections")                                                         \
    X(BY_PART_ENGRAM_PROJECTION, "engram_projection", "Engram projections")                                            \
    X(BY_PART_ENGRAM_TABLE, "engram_tables", "Engram tables")                                                          \
    X(BY_PART_NORMS, "norms", "norms and sinks")                                                                       \
    X(BY_PART_DRAFT, "draft", "draft layers without experts")                                                          \
    X(BY_PART_DRAFT_EXPERTS, "draft_experts", "draft experts")                                                         \
    X(BY_PART_VISION, "vision", "image tower and aligner")

typedef enum by_part {
#define BY_PART_ENUM(name, key, text) name,
    BY_PART_TABLE(BY_PART_ENUM)
#undef BY_PART_ENUM
        BY_PART_N
} by_part;

/* Key of a part in JSON reports, and its name for people. */
const char *by_part_key(by_part p);
const char *by_part_text(by_part p);

/* How random values of a synthetic checkpoint are drawn; r is standard normal. */
typedef enum by_init {
    BY_INIT_LINEAR,     /* r / sqrt(columns) */
    BY_INIT_OUTPUT,     /* the same, times the gain: matrices that write into the residual streams */
    BY_INIT_UNIT,       /* r */
    BY_INIT_NORM,       /* 1 + 0.1 r */
    BY_INIT_ENGRAM_MIX, /* 1 + 0.2 r */
    BY_INIT_BIAS,       /* 0.5 r */
    BY_INIT_HC_SCALE,   /* 0.5 + 0.1 r */
    BY_INIT_HC_BASE,    /* 0.5 r around a mixing that reads one stream and keeps the streams apart */
    BY_INIT_SMALL       /* 0.02 r */
} by_init;

typedef enum by_format {
    BY_FORMAT_BF16,
    BY_FORMAT_F32,
    BY_FORMAT_F32_OR_BF16, /* F32 in published files; BF16 is accepted */
    BY_FORMAT_FP8_TILE,    /* E4M3 [rows, cols], scale E8M0 [ceil(rows/32), ceil(cols/32)] */
    BY_FORMAT_FP8_ROW,     /* E4M3 [rows, cols], scale E8M0 [rows, cols/32] */
    BY_FORMAT_FP4_ROW      /* E2M1 pairs I8 [rows, cols/2], scale E8M0 [rows, cols/32] */
} by_format;

#define BY_TENSOR_NAME_MAX 96

typedef struct by_tensor_spec {
    char name[BY_TENSOR_NAME_MAX]; /* without a leading "model." */
    by_format format;
    bool is_scale;      /* this is the scale of a quantised weight */
    by_st_dtype dtype;  /* as stored */
    by_st_dtype dtype2; /* also accepted; equal to dtype when nothing else is */
    int n_dims;         /* 1 or 2 */
    int64_t shape[2];   /* as stored; shape[1] = 1 for n_dims 1 */
    int64_t rows, cols; /* of the weight in values; a vector is [1, n] */
    by_part part;
    by_init init;
    int layer;  /* trunk or draft layer, image block; -1 outside layers */
    int expert; /* -1 */
} by_tensor_spec;

/* Bytes as stored (with dtype, not dtype2). */
int64_t by_tensor_spec_bytes(const by_tensor_spec *spec);

/* Calls visit for every tensor in a fixed order: embedding, trunk layers ascending, final norm and head, drafts,
 * images; a scale follows its weight. Stops at the first negative status and returns it. */
typedef by_status (*by_tensor_visit)(void *ctx, const by_tensor_spec *spec, by_err *err);
by_status by_tensor_table_walk(const by_config *c, by_tensor_visit visit, void *ctx, by_err *err);

/* Stored bytes and tensors of each part. */
typedef struct by_part_sums {
    int64_t bytes[BY_PART_N];
    int64_t n_tensors[BY_PART_N];
    int64_t params[BY_PART_N]; /* values of weights, scales not counted */
    int64_t bytes_total, n_total, params_total;
} by_part_sums;
void by_tensor_table_sum(const by_config *c, by_part_sums *out);

#endif
