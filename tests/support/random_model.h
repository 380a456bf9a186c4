/* random_model.h - checkpoints with random weights, made by tools/make_checkpoint beside the program under test. */
#ifndef BY_TEST_RANDOM_MODEL_H
#define BY_TEST_RANDOM_MODEL_H

#include <stdbool.h>

/* Writes a checkpoint into folder (made when missing): preset narrow with the tiny model's tokenizer, and the flags of `more`
 * (NULL-terminated, may be NULL; the last word of a flag counts). False when there is no tool, as in an emulated build: the
 * test is skipped then. A tool that fails ends the program. */
bool by_random_model(const char *folder, const char *const *more);

/* The model most tests of requests use: 6 layers, 4 experts, the tiny model's vocabulary, text only. */
bool by_random_model_small(const char *folder);

/* Writes NaN over the first element of a tensor's row in the only shard of a checkpoint. BF16 tensors, and the scales of quantised
 * ones (E8M0: 0xff). Ends the program when there is no such tensor. */
void by_random_model_poison(const char *folder, const char *tensor, long row);

#endif
