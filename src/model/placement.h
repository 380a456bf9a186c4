/* placement.h - which weights lie in the device's memory and which stay on the host, decided before any is read.
 *
 * Only routed experts may stay behind: by_op_moe_part of the host computes them (docs/placement.md). Engram tables always stay, but for
 * made-up ones, which are in no file (tables_on_device); what else there is must fit. Plain arithmetic over the table of tensors; bytes
 * are those of the checkpoint. */
#ifndef BY_MODEL_PLACEMENT_H
#define BY_MODEL_PLACEMENT_H

#include "base/buf.h"
#include "model/config.h"

typedef struct by_place_opts {
    int64_t reserve;      /* bytes of the device kept for caches and buffers; >= 0 */
    int32_t host_layers;  /* the first so many layers of the trunk keep all their routed experts on the host */
    bool host_experts;    /* every layer does, the drafts' too */
    bool tables_on_device; /* made-up weights: the Engram tables are not in a file */
} by_place_opts;

typedef struct by_placement {
    int64_t limit;   /* of the device's memory; 0 = none */
    int64_t reserve; /* as asked for, and a little for what is small */
    int64_t fixed_bytes, table_bytes; /* weights that are always on the device; Engram tables */
    int64_t expert_bytes[2], n_experts[2]; /* routed experts of all layers: on the device, on the host */
    int32_t n_layers;                      /* trunk, then drafts */
    int32_t on_device[BY_LIMIT_LAYERS + BY_LIMIT_DRAFT_LAYERS]; /* experts of each layer, those with the lowest numbers */
} by_placement;

/* limit: bytes of the device for everything, 0 = no limit. Errors: BY_EINVAL (host_layers), BY_ENOMEM: what must lie on the device does not
 * fit; the text has both numbers. */
by_status by_placement_plan(by_placement *out, const by_config *c, int64_t limit, const by_place_opts *opts, by_err *err);

/* One line for people: "device: weights 1.4 MB and routed experts 3.1 MB (120, 12 to 12 a layer) of at most 20 MB, 5 MB kept for caches
 * and buffers; host: routed experts 1.0 MB (40), Engram tables 2 MB". Without a limit the part from "of at most" on is missing, without
 * tables the last. */
void by_placement_text(const by_placement *p, by_buf *out);

#endif
