/* rope_freq.c - see rope_freq.h. */
#include "model/rope_freq.h"

#include <math.h>

static double dim_of(const by_config *c, double rotations, double base) {
    double two_pi = 6.283185307179586476925286766559;
    return c->rope_dim * log(c->rope_scaling.original_max_positions / (rotations * two_pi)) / (2 * log(base));
}

void by_rope_freq(float *freq, const by_config *c, bool compressed) {
    double base = compressed ? c->compress_rope_theta : c->rope_theta;
    int n = c->rope_dim / 2;
    for (int i = 0; i < n; i++) {
        float exponent = (float)(2 * i) / (float)c->rope_dim;
        freq[i] = 1.0f / (float)pow(base, (double)exponent);
    }
    if (!compressed || !c->rope_scaling.yarn) return;
    const by_rope_scaling *s = &c->rope_scaling;
    double low = floor(dim_of(c, s->beta_fast, base)), high = ceil(dim_of(c, s->beta_slow, base));
    if (low < 0) low = 0;
    if (high > c->rope_dim - 1) high = c->rope_dim - 1;
    float span = (float)(high - low == 0 ? 0.001 : high - low);
    for (int i = 0; i < n; i++) {
        float ramp = ((float)i - (float)low) / span;
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        freq[i] = freq[i] / (float)s->factor * ramp + freq[i] * (1 - ramp);
    }
}
