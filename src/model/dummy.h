/* dummy.h - made-up weights: the tensors that a configuration asks for, filled from a seed, for benchmarks of a model whose
 * checkpoint is not at hand. Values have the size of a trained model's, so that activations stay finite and routing spreads;
 * the text means nothing. Filling copies a few patterns around on the device and costs little. One thread. */
#ifndef BY_MODEL_DUMMY_H
#define BY_MODEL_DUMMY_H

#include "model/config.h"
#include "model/tensor_table.h"
#include "ops/ops.h"

typedef struct by_dummy by_dummy;

/* cfg and dev must outlive it. Errors: BY_ENOMEM, BY_ELIMIT. */
by_status by_dummy_create(by_dummy **out, const by_config *cfg, by_device *dev, uint64_t seed, by_err *err);
/* NULL is allowed. What by_dummy_make made stays. */
void by_dummy_destroy(by_dummy *d);

/* NULL when the configuration has no such tensor. */
const by_tensor_spec *by_dummy_find(const by_dummy *d, const char *name);
/* New memory of the device with the tensor's values; the caller frees it. Errors: BY_ENOMEM, those of the device. */
by_status by_dummy_make(by_mem **out, by_dummy *d, const by_tensor_spec *spec, by_err *err);

#endif
