/* ref.h - the operators of the ref backend: plain C, one thread, sums in double, written to be read next to model.md. They
 * are never optimised beyond reusing a dequantised row, and never deleted. */
#ifndef BY_OPS_REF_REF_H
#define BY_OPS_REF_REF_H

#include "ops/host.h"

#define BY_REF_DECL(name) by_status by_ref_##name(by_device *dev, const by_##name##_args *args, by_err *err);
BY_OP_TABLE(BY_REF_DECL)
#undef BY_REF_DECL

/* Sum of x[i] * y[i] in double. */
double by_ref_dot(const float *x, const float *y, int64_t n);
/* y = x * rsqrt(mean(x^2) + eps) * w. y may be x. */
void by_ref_norm(float *y, const float *x, const float *w, int64_t n, float eps);
/* Rotates the last r channels of x [d] by the (cos, sin) pairs cs [r]; sign -1 turns back. */
void by_ref_rotate(float *x, int64_t d, const float *cs, int64_t r, float sign);

#endif
