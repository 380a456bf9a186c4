/* rope_freq.h - rotary frequencies of the two kinds of layers. Source: model.md section 4 (the power is rounded to fp32
 * first, then divided in fp32; the YaRN blend is fp32 in the order written); golden ops/rope. */
#ifndef BY_MODEL_ROPE_FREQ_H
#define BY_MODEL_ROPE_FREQ_H

#include "model/config.h"

/* freq [rope_dim / 2]. compressed: layers with ratio 1 or 2, else window-only layers. */
void by_rope_freq(float *freq, const by_config *cfg, bool compressed);

#endif
