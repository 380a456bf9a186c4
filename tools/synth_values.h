/* synth_values.h - random weights in the formats of the checkpoint, as a stream of bytes for each tensor.
 *
 * Values have the spread of a network at its start (1/sqrt(columns) for matrices), so that the model computes sane
 * numbers. A quantised weight gets its codes and its scales from independent streams: codes are normal with one spread,
 * each scale is a common power of two times 1/2, 1 or 2, so that a scale used for the wrong tile shows. The bytes of a
 * tensor depend on the seed and its name only. One thread per by_synth. */
#ifndef BY_TOOLS_SYNTH_VALUES_H
#define BY_TOOLS_SYNTH_VALUES_H

#include "base/rng.h"
#include "model/tensor_table.h"

enum { BY_SYNTH_CODES = 65536, BY_SYNTH_TABLES = 8 };

typedef struct by_synth {
    uint64_t seed;
    double gain; /* factor on matrices that write into the residual streams */
    int hc_mult;
    float *quantiles; /* [BY_SYNTH_CODES] of the standard normal */
    struct {
        double spread;
        bool fp4;
        uint8_t *codes; /* [BY_SYNTH_CODES] */
    } tables[BY_SYNTH_TABLES];
    int n_tables, next_table;
    /* the tensor begun last */
    by_rng rng;
    const by_tensor_spec *spec;
    const uint8_t *codes;
    double mean, spread;
    int scale_byte; /* middle scale */
    int64_t at;     /* elements given */
} by_synth;

/* Errors: BY_ENOMEM. Release with deinit. */
by_status by_synth_init(by_synth *s, uint64_t seed, double gain, int hc_mult, by_err *err);
void by_synth_deinit(by_synth *s);

/* Starts a tensor; spec must outlive its bytes. Errors: BY_ENOMEM. */
by_status by_synth_begin(by_synth *s, const by_tensor_spec *spec, by_err *err);

/* The next n bytes, n a multiple of 8 except at the end of the tensor. */
void by_synth_fill(by_synth *s, void *out, size_t n);

#endif
