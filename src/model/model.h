/* model.h - a checkpoint opened on a device: configuration, weights, and the constants derived from them.
 *
 * Numerics (cli.md): exact keeps activations and caches in fp32; quantised adds the four quantisers with fp32 between them;
 * deployed also rounds to bf16 where the deployed model does. Read-only after opening; any number of runners may use one
 * model, one thread at a time. */
#ifndef BY_MODEL_MODEL_H
#define BY_MODEL_MODEL_H

#include "kv/kv.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/placement.h"
#include "model/weights.h"
#include "tok/tok.h"

typedef enum by_numerics { BY_NUMERICS_EXACT, BY_NUMERICS_QUANTISED, BY_NUMERICS_DEPLOYED } by_numerics;
const char *by_numerics_name(by_numerics n);

typedef struct by_model {
    by_config cfg;
    by_checkpoint *ck;
    by_device *dev;
    by_numerics numerics;
    by_dtype act;   /* dtype of activations between operators */
    bool quant;     /* act8 in front of FP8 and FP4 weights */
    by_placement place; /* what lies where */
    by_device *host;    /* computes the experts that are not on dev; NULL without any */
    by_weights w;
    by_tok *tok;    /* NULL when the directory has no tokenizer.json */
    int32_t *compressed; /* [vocab] compressed token ids for Engram; NULL without Engram */
    int32_t engram_pad;
    int32_t boundary; /* the last KV source: layers behind it own nothing but rings; -1 = rows cannot be truncated */
    by_mem *tables; /* rotary frequencies, stream weights, Engram multipliers, primes and column bases */
    by_tensor freq_window, freq_compressed;
    by_tensor stream_mean; /* [1, m]: 1 / m each */
    by_tensor engram_mult[BY_LIMIT_ENGRAM_LAYERS], engram_prime[BY_LIMIT_ENGRAM_LAYERS];
    by_tensor engram_base[BY_LIMIT_ENGRAM_LAYERS];
} by_model;

typedef struct by_model_opts {
    by_numerics numerics;
    bool check_weights; /* look for NaN and infinite weights and refused scale bytes */
    bool dummy;         /* config.json is enough: weights are made up on the device. A tokenizer is opened where there is one */
    uint64_t seed;      /* of the made-up weights */
    int64_t context;    /* most positions that will be used, checked against the model's limit; 0 = not said */
    by_place_opts place; /* beside the device's own limit */
    /* Adds to *bytes what else the device is to hold. m has its configuration and numerics, and no weights yet. NULL: nothing */
    by_status (*reserve)(void *arg, struct by_model *m, int64_t *bytes, by_err *err);
    void *reserve_arg;
    int32_t host_threads; /* of experts on the host; 0 = by_pool's default */
    const char *host_isa; /* by_device_opts.isa */
    bool host_ref;        /* tests: by the ref operators */
} by_model_opts;

/* Opens the checkpoint directory on dev, which must outlive the model. Errors: every problem of the directory together
 * (BY_EFORMAT), BY_EMISSING, BY_ENOMEM, BY_EUNSUPPORTED (numerics that this backend does not have), BY_EINVAL (opts->context is beyond
 * the model's limit; said before the weights are looked at), those of by_placement_plan. */
by_status by_model_open(by_model **out, const char *dir, by_device *dev, const by_model_opts *opts, by_err *err);
void by_model_close(by_model *m);

/* The cache layout this model needs; backtrack = tokens that may be rolled back. */
by_status by_model_kv_layout(by_kv_layout *out, const by_model *m, int32_t backtrack, by_err *err);

/* Index of a KV source layer among the sources. */
int32_t by_model_source_index(const by_model *m, int32_t layer);

#endif
