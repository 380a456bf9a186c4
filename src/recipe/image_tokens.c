/* image_tokens.c - see image_tokens.h. A patch is 14 pixels wide and 3 x 3 patches make one cell; each row of cells ends in
 * one more token, and two tokens frame the picture. Sizes are recomputed until they no longer change, because rounding up
 * to whole patches may cross the limit again. */
#include "recipe/image_tokens.h"

#include <math.h>
#include <stdbool.h>

enum { PATCH = 14, CELL = 3 * PATCH, TOKENS_MAX = 1024, PIXELS_MIN = 544 * 544, ROUNDS_MAX = 64 };

typedef struct {
    double w, h;
} size2;

static double cells(double side) { return ceil(side / PATCH / 3); }
static double round_to_patch(double side) { return ceil(side / PATCH) * PATCH; }
static double tokens_of(size2 s) { return cells(s.h) * (cells(s.w) + 1) + 2; }

/* The largest size of about the shape of s (not yet rounded to patches) whose grid of gh x gw cells keeps gh * (gw + 1) + 2 <= TOKENS_MAX. */
static size2 reduce(size2 s) {
    double ratio = s.h / s.w;
    double wide = sqrt((TOKENS_MAX - 2) / ratio + 0.25) - 0.5, high = wide * ratio;
    if (wide < 1) return (size2){CELL, (TOKENS_MAX - 2) / 2 * CELL};
    if (high < 1) return (size2){(TOKENS_MAX - 3) * CELL, CELL};
    double by_width = floor(wide) * CELL / s.w, by_height = floor(high) * CELL / s.h;
    double scale = by_width < by_height ? by_width : by_height;
    return (size2){floor(s.w * scale / PATCH) * PATCH, floor(s.h * scale / PATCH) * PATCH};
}

static size2 fit(size2 s) {
    if (s.w * s.h < PIXELS_MIN) {
        double scale = sqrt(PIXELS_MIN / (s.w * s.h));
        s = (size2){floor(s.w * scale), floor(s.h * scale)};
    }
    size2 whole = {round_to_patch(s.w), round_to_patch(s.h)};
    return tokens_of(whole) > TOKENS_MAX ? reduce(s) : whole;
}

by_status by_recipe_image_tokens(uint32_t *out, uint32_t width, uint32_t height, by_err *err) {
    if (width == 0 || height == 0) return BY_FAIL(err, BY_EINVAL, "image of %u x %u pixels", width, height);
    size2 s = {width, height};
    for (int round = 0; round < ROUNDS_MAX; round++) {
        size2 next = fit(s);
        bool settled = next.w == s.w && next.h == s.h;
        s = next;
        if (settled) {
            *out = (uint32_t)tokens_of(s);
            return BY_OK;
        }
    }
    return BY_FAIL(err, BY_EINVAL, "the size of an image of %u x %u pixels does not settle", width, height);
}
