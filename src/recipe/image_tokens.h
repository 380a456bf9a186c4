/* image_tokens.h - how many tokens a picture takes in the prompt of V4.1. */
#ifndef BY_RECIPE_IMAGE_TOKENS_H
#define BY_RECIPE_IMAGE_TOKENS_H

#include <stdint.h>

#include "base/err.h"

/* Tokens of a picture of width x height pixels, its own placeholder included; 5..1024 or a little below. Small pictures
 * count as if enlarged to 295,936 pixels, large ones as if reduced until they fit.
 * Errors: BY_EINVAL (a side of 0). */
by_status by_recipe_image_tokens(uint32_t *out, uint32_t width, uint32_t height, by_err *err);

#endif
