/* host_experts.h - routed experts that the placement leaves to the host, as part of a step (docs/placement.md).
 *
 * One runner's buffers in memory that the device and the host share, and the host function that runs the host's experts of one
 * layer. begin hands a layer over, the device's by_op_moe joins. One layer at a time; the thread rule is the runner's. */
#ifndef BY_MODEL_HOST_EXPERTS_H
#define BY_MODEL_HOST_EXPERTS_H

#include "model/model.h"

typedef struct by_host_experts by_host_experts;

/* For calls of up to max_rows rows. *out is NULL when all experts are on the device; the other functions accept that. m must outlive it.
 * Errors: BY_ENOMEM, BY_EIO, BY_EDEVICE. */
by_status by_host_experts_create(by_host_experts **out, const by_model *m, int64_t max_rows, by_err *err);
/* Nothing runs beside the device any more. NULL is allowed. */
void by_host_experts_destroy(by_host_experts *h);

/* Makes the host's operator allocate what max_rows rows need. Errors: BY_ENOMEM. */
by_status by_host_experts_reserve(by_host_experts *h, by_err *err);

/* Where the products of a call of n_rows rows with k choices will lie: by_moe_args.part. */
by_tensor by_host_experts_part(const by_host_experts *h, int64_t n_rows, int32_t k);

/* Starts the host's part of a layer (drafts follow the trunk) behind what the device has been asked so far. x, idx and weight as by_op_moe
 * gets them. Errors: BY_EDEVICE. */
by_status by_host_experts_begin(by_host_experts *h, int32_t layer, by_tensor x, by_tensor idx, by_tensor weight, by_err *err);

/* The first failure of a host function since the last call, or BY_OK. Its rows were NaN. Not before they are joined on a device in host
 * memory, and their answers read on one that runs by itself. */
by_status by_host_experts_problem(by_host_experts *h, by_err *err);

#endif
