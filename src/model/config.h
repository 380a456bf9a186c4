/* config.h - the architecture of one model: config.json, checked, and what follows from it for every layer.
 *
 * Invariant: a by_config that by_config_parse has accepted satisfies every relation written here, so that the graph,
 * the caches and the kernels may rely on it without looking again. It is plain data without pointers: copy it freely,
 * share it read-only between threads. Sizes are counts, ids are positions in the layer list or in the vocabulary. */
#ifndef BY_MODEL_CONFIG_H
#define BY_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"
#include "model/problems.h"

#define BY_LIMIT_CONFIG_BYTES  (4u << 20) /* the published config.json has 3 kB */
#define BY_LIMIT_ENGRAM_HEADS  64
#define BY_LIMIT_VISION_LAYERS 256
#define BY_LIMIT_SOURCES       256 /* KV and index sources */
#define BY_QUANT_TILE          32  /* side of an FP8 weight tile, length of an FP4 or activation group */

typedef enum by_layer_kind {
    BY_LAYER_WINDOW,  /* sliding window only */
    BY_LAYER_FULL,    /* compresses its input into new shared KV and index keys, runs an indexer */
    BY_LAYER_REINDEX, /* runs an indexer on the keys of its KV source */
    BY_LAYER_REUSE    /* uses the KV of kv_source and the selection of index_source */
} by_layer_kind;

typedef struct by_layer {
    by_layer_kind kind;
    int ratio;             /* 0 = window only; 1 or 2 tokens per compressed entry */
    int kv_source;         /* layer whose compressed KV is read, itself for BY_LAYER_FULL; -1 for window layers */
    int index_source;      /* layer whose selection is used, itself for FULL and REINDEX; -1 for window layers */
    int engram;            /* index into the engram_* arrays, -1 = no Engram */
    bool is_kv_source;     /* owns compressor, compressed KV and index keys */
    bool is_index_source;  /* owns an indexer */
    bool picks_candidates; /* the candidate source: also chooses the candidate blocks */
    bool uses_candidates;  /* picks its entries only inside the candidate blocks */
    bool is_draft_target;  /* the drafts read the streams at this layer's attention input */
} by_layer;

/* Engram: hashed n-gram tables. primes[e][b][h] is the table size for Engram layer e, n-gram size b + 2 and head h; the
 * rows of one layer are the columns (b, h) in that order, one behind the other. */
typedef struct by_engram_config {
    int n_layers;                           /* 0 = none */
    int layer_ids[BY_LIMIT_ENGRAM_LAYERS];  /* ascending */
    int64_t n_rows[BY_LIMIT_ENGRAM_LAYERS]; /* rows of the table = sum of the layer's primes */
    int max_ngram;                          /* 2.. : n-gram sizes 2..max_ngram */
    int n_heads, head_dim;                  /* head_dim a multiple of 32 */
    int vocab_size;                         /* hash tables start at this size */
    int pad_token_id;
    int compressed_vocab_size; /* 0 = token ids are used as they are */
    uint32_t primes[BY_LIMIT_ENGRAM_LAYERS][BY_LIMIT_NGRAM - 1][BY_LIMIT_ENGRAM_HEADS];
} by_engram_config;

/* Draft layers (DSpark). */
typedef struct by_draft_config {
    int n_layers;   /* 0 = no drafts, nothing else is set then */
    int block_size; /* positions of a draft block, 1.. */
    int noise_token_id;
    int n_targets;                         /* trunk layers read, 1.. */
    int target_ids[BY_LIMIT_DRAFT_LAYERS]; /* in concatenation order, distinct */
    int markov_rank;
    int n_experts, n_experts_per_token;
} by_draft_config;

/* Image tower. */
typedef struct by_vision_config {
    int n_layers;                                /* 0 = no image input, nothing else is set then */
    int hidden_size, n_heads, intermediate_size; /* hidden_size / n_heads is a multiple of 4 */
    int patch_size, downsample_ratio, max_image_tokens;
    int64_t min_pixels;
    double rope_theta;
    double max_wh_ratio; /* 0 = none */
} by_vision_config;

typedef struct by_rope_scaling {
    bool yarn; /* false: plain rotary embedding everywhere, nothing else is set */
    double factor, beta_fast, beta_slow;
    int original_max_positions;
} by_rope_scaling;

typedef struct by_config {
    int vocab_size, hidden_size, n_layers;
    int n_heads;  /* a multiple of o_groups */
    int head_dim; /* a multiple of 32; key and value width of the one shared KV head */
    int rope_dim; /* even; the LAST rope_dim channels of head_dim and of index_head_dim are rotated */
    int q_lora_rank, o_lora_rank, o_groups;
    int64_t max_positions;
    double rms_norm_eps, routed_scaling;
    double swiglu_limit; /* 0 = none */
    double rope_theta;          /* layers with ratio 0 and draft layers */
    double compress_rope_theta; /* layers with ratio 1 or 2, with rope_scaling */
    by_rope_scaling rope_scaling;
    int window; /* positions a query sees through the window, its own included */

    int index_n_heads, index_head_dim, index_topk; /* 0 when no layer compresses */
    int candidate_source;                          /* layer, -1 = selections are not restricted */
    int candidate_topk_blocks, candidate_block_size;
    bool fp4_sparse_kv; /* compressed KV cache in FP4, else FP8 */
    int last_kv_source; /* after it no layer owns long-range state; -1 when no layer compresses */

    int n_experts, n_experts_per_token, moe_width; /* routed; moe_width is the width of one expert */
    int n_shared_experts, shared_width;            /* shared_width = n_shared_experts * moe_width */

    int hc_mult, hc_iters; /* residual streams; Sinkhorn iterations */
    double hc_eps;

    int bos_id, eos_id, pad_id, image_id; /* image_id -1 = none */

    by_engram_config engram;
    by_draft_config draft;
    by_vision_config vision;
    by_layer layers[BY_LIMIT_LAYERS]; /* [n_layers]; draft layers are window layers and not listed */
} by_config;

/* Parses the text of a config.json, nested (text_config, vision_config) or flat, and checks every value alone and all
 * of them together. Problems are added to `problems` (may be NULL), each naming the key and the value; *out is complete
 * only on BY_OK. Keys that are not known are ignored, as the published format asks. Errors: BY_EFORMAT (not JSON, or
 * any problem; err holds the first ones), BY_ENOMEM. Source: the checkpoint format of DeepSeek-V4.1;
 * tests/unit/test_config.c has one case per check. */
by_status by_config_parse(by_config *out, by_str text, by_problems *problems, by_err *err);

/* Reads DIR/config.json. Errors as above, and BY_EMISSING or BY_EIO with the path. */
by_status by_config_load(by_config *out, const char *dir, by_problems *problems, by_err *err);

/* "window", "full", "reindex", "reuse". */
const char *by_layer_kind_name(by_layer_kind kind);

/* Rows of the hyper-connection matrices: hc_mult * (hc_mult + 2). */
static inline int by_config_hc_rows(const by_config *c) {
    return c->hc_mult * (c->hc_mult + 2);
}

#endif
