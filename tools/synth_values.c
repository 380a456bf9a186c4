/* synth_values.c - see synth_values.h. A normal value is one of 65,536 quantiles picked by 16 random bits: one 64-bit
 * draw makes four values, several hundred MB/s. */
#include "synth_values.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/formats.h"

/* Quantile of the standard normal for p in (0, 1): Newton steps on erfc from a logistic guess. */
static double quantile(double p) {
    double x = log(p / (1 - p)) / 1.702;
    for (int i = 0; i < 30; i++) {
        double f = 0.5 * erfc(-x / M_SQRT2) - p, density = exp(-0.5 * x * x) / sqrt(2 * M_PI);
        double step = f / density;
        x -= step > 0.5 ? 0.5 : step < -0.5 ? -0.5 : step;
        if (fabs(step) < 1e-12) break;
    }
    return x;
}

by_status by_synth_init(by_synth *s, uint64_t seed, double gain, int hc_mult, by_err *err) {
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->gain = gain;
    s->hc_mult = hc_mult;
    s->quantiles = by_alloc(BY_MEM_MISC, sizeof(float) * BY_SYNTH_CODES);
    if (!s->quantiles) return BY_FAIL(err, BY_ENOMEM, "out of memory for a table of quantiles");
    for (int i = 0; i < BY_SYNTH_CODES; i++)
        s->quantiles[i] = (float)quantile((i + 0.5) / BY_SYNTH_CODES);
    return BY_OK;
}

void by_synth_deinit(by_synth *s) {
    for (int i = 0; i < s->n_tables; i++)
        by_free(s->tables[i].codes);
    by_free(s->quantiles);
    memset(s, 0, sizeof *s);
}

/* Codes of spread * quantile; FP4 codes without negative zero. Tables of the last few spreads are kept. */
static by_status code_table(by_synth *s, double spread, bool fp4, by_err *err) {
    for (int i = 0; i < s->n_tables; i++) {
        if (s->tables[i].spread != spread || s->tables[i].fp4 != fp4) continue;
        s->codes = s->tables[i].codes;
        return BY_OK;
    }
    int slot = s->next_table;
    if (slot == s->n_tables) {
        uint8_t *fresh = by_alloc(BY_MEM_MISC, BY_SYNTH_CODES);
        if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for a table of codes");
        s->tables[s->n_tables++].codes = fresh;
    }
    s->next_table = (slot + 1) % BY_SYNTH_TABLES;
    s->tables[slot].spread = spread;
    s->tables[slot].fp4 = fp4;
    uint8_t *codes = s->tables[slot].codes;
    for (int i = 0; i < BY_SYNTH_CODES; i++) {
        float x = (float)spread * s->quantiles[i];
        codes[i] = fp4 ? by_e2m1_of_f32(x) : by_e4m3_of_f32(x);
        if (fp4 && codes[i] == 8) codes[i] = 0;
    }
    s->codes = codes;
    return BY_OK;
}

static void set_distribution(by_synth *s, const by_tensor_spec *spec) {
    double fan = 1 / sqrt((double)spec->cols);
    s->mean = 0;
    s->spread = fan;
    switch (spec->init) {
    case BY_INIT_LINEAR: break;
    case BY_INIT_OUTPUT: s->spread = fan * s->gain; break;
    case BY_INIT_UNIT: s->spread = 1; break;
    case BY_INIT_NORM: s->mean = 1, s->spread = 0.1; break;
    case BY_INIT_ENGRAM_MIX: s->mean = 1, s->spread = 0.2; break;
    case BY_INIT_BIAS:
    case BY_INIT_HC_BASE: s->spread = 0.5; break;
    case BY_INIT_HC_SCALE: s->mean = 0.5, s->spread = 0.1; break;
    case BY_INIT_SMALL: s->spread = 0.02; break;
    }
}

by_status by_synth_begin(by_synth *s, const by_tensor_spec *spec, by_err *err) {
    uint64_t h = s->seed;
    for (const char *p = spec->name; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    s->rng = (by_rng){h};
    by_rng_u64(&s->rng);
    s->spec = spec;
    s->at = 0;
    set_distribution(s, spec);
    if (spec->format < BY_FORMAT_FP8_TILE) return BY_OK;
    /* Scales 1/2, 1, 2 with equal chance multiply the variance by 1.75. The middle scale is the power of two that
     * brings the codes' spread near a quarter of the largest code (a third for FP4). */
    bool fp4 = spec->format == BY_FORMAT_FP4_ROW;
    double want = s->spread / sqrt(1.75), exponent = round(log2(want / (fp4 ? 2.0 : 112.0)));
    s->scale_byte = 127 + (int)exponent;
    return spec->is_scale ? BY_OK : code_table(s, want / exp2(exponent), fp4, err);
}

/* Starting values of the mixing: read stream (layer mod m), write all, keep the streams apart. */
static float hc_base(const by_synth *s, int64_t i) {
    int64_t m = s->hc_mult, layer = s->spec->layer > 0 ? s->spec->layer : 0;
    if (i < m) return i == layer % m ? 3 : -3;
    if (i < 2 * m) return 0;
    return (i - 2 * m) / m == (i - 2 * m) % m ? 3 : -3;
}

static void fill_f32(by_synth *s, float *out, size_t n) {
    for (size_t i = 0; i < n; i++, s->at++) {
        float base = s->spec->init == BY_INIT_HC_BASE ? hc_base(s, s->at) : (float)s->mean;
        out[i] = base + (float)s->spread * s->quantiles[by_rng_u64(&s->rng) >> 48];
    }
}

static void fill_bf16(by_synth *s, uint16_t *out, size_t n) {
    float mean = (float)s->mean, spread = (float)s->spread;
    for (size_t i = 0; i < n; i += 4) {
        uint64_t r = by_rng_u64(&s->rng);
        for (size_t k = i; k < n && k < i + 4; k++, r >>= 16)
            out[k] = by_bf16_of_f32(mean + spread * s->quantiles[r & 0xffff]);
    }
}

static void fill_codes(by_synth *s, uint8_t *out, size_t n) {
    bool fp4 = s->spec->format == BY_FORMAT_FP4_ROW;
    size_t step = fp4 ? 2 : 4; /* bytes of one draw */
    for (size_t i = 0; i < n; i += step) {
        uint64_t r = by_rng_u64(&s->rng);
        for (size_t k = i; k < n && k < i + step; k++) {
            out[k] = s->codes[r & 0xffff];
            r >>= 16;
            if (!fp4) continue;
            out[k] = (uint8_t)(out[k] | s->codes[r & 0xffff] << 4);
            r >>= 16;
        }
    }
}

static void fill_scales(by_synth *s, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) { /* four bits choose one of three */
        uint64_t r = by_rng_u64(&s->rng);
        for (size_t k = i; k < n && k < i + 16; k++, r >>= 4)
            out[k] = (uint8_t)(s->scale_byte - 1 + (int)((r & 15) % 3));
    }
}

void by_synth_fill(by_synth *s, void *out, size_t n) {
    if (s->spec->is_scale)
        fill_scales(s, out, n);
    else if (s->spec->dtype == BY_ST_F32)
        fill_f32(s, out, n / 4);
    else if (s->spec->dtype == BY_ST_BF16)
        fill_bf16(s, out, n / 2);
    else
        fill_codes(s, out, n);
}
