/* weights.h - the tensors of a checkpoint as operators want them: one struct of views per layer, bytes as stored.
 *
 * Binding copies nothing on devices that work in host memory: a view points into the mapped shard. A tensor that lies
 * unaligned in its file (fp32 or bf16 at an odd offset) is the exception and gets a small copy. A device with memory of
 * its own receives every tensor except the Engram tables, which it reads from the host, and routed experts that the placement leaves
 * to the host's own device. Thread rule: read-only after by_weights_bind. */
#ifndef BY_MODEL_WEIGHTS_H
#define BY_MODEL_WEIGHTS_H

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/placement.h"
#include "ops/ops.h"

typedef struct by_hc_weights {
    by_tensor fn, base, scale; /* [m (m + 2), m D], [m (m + 2)], [3] */
} by_hc_weights;

typedef struct by_layer_weights {
    by_tensor attn_norm, ffn_norm;
    by_hc_weights hc_attn, hc_ffn;
    by_weight wq_a, wq_b, wkv, wo_a, wo_b;
    by_tensor q_norm, kv_norm, sink;
    by_weight comp_wkv, comp_wgate, index_wk; /* KV sources; comp_wgate with ratio 2 */
    by_tensor comp_norm, index_k_norm;
    by_weight index_wq_b, index_weights; /* index sources */
    by_tensor gate, bias, bias_vl;
    by_expert *experts;      /* [n_experts]; those of the host are all zero */
    by_expert *host_experts; /* [n_experts]; those of the device are all zero. NULL: all are on the device */
    by_expert shared;
    by_weight engram_table, engram_wkv; /* Engram layers */
    by_tensor engram_q, engram_k;
} by_layer_weights;

/* What the draft layers have besides their layers (DSpark); the embedding and the head are the trunk's. */
typedef struct by_draft_weights {
    by_layer_weights *layers; /* [draft.n_layers] */
    by_expert *experts, *host_experts;
    by_weight main_proj; /* [D, n_targets * D] */
    by_tensor main_norm, norm;
    by_tensor markov_embed;  /* [vocab, rank] BF16 */
    by_weight markov_head;   /* [vocab, rank] */
    by_weight conf_u, conf_e; /* the confidence head's columns for the hidden [1, D] and for the Markov embedding [1, rank] */
} by_draft_weights;

typedef struct by_weights {
    by_tensor embed, norm;
    by_weight head;
    by_layer_weights *layers; /* [n_layers] */
    by_expert *experts;       /* all layers' experts, one array */
    by_expert *host_experts;  /* the same for those on the host; NULL without any */
    by_draft_weights draft;   /* empty without draft layers */
    by_mem **mems;            /* shards, then copies */
    int32_t n_mems, cap_mems;
} by_weights;

/* Where weights go. host: a device in host memory for the experts that place leaves there; NULL when it leaves none. */
typedef struct by_weights_to {
    by_device *dev, *host;
    const by_placement *place;
} by_weights_to;

/* cfg and ck must outlive the weights, ck's mapping too. Errors: BY_EMISSING (a tensor that the config asks for, named),
 * BY_ENOMEM, those of the device. */
by_status by_weights_bind(by_weights *out, const by_config *cfg, const by_checkpoint *ck, const by_weights_to *to, by_err *err);
/* Made-up values (dummy.h) in memory of the devices. */
by_status by_weights_make(by_weights *out, const by_config *cfg, const by_weights_to *to, uint64_t seed, by_err *err);
void by_weights_release(by_weights *w);

/* Expert e of a layer, wherever it lies. */
static inline const by_expert *by_weights_expert(const by_layer_weights *w, int32_t e) {
    return w->experts[e].w1.w.mem || !w->host_experts ? &w->experts[e] : &w->host_experts[e];
}

#endif
