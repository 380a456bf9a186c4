/* dummy.c - see dummy.h. A tensor is a run of one of a few patterns of PATTERN bytes, from an offset of its own; a pattern is
 * what tensors of the same dtype, kind of initialisation and width share. */
#include "model/dummy.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/name_map.h"

enum { PATTERN = 1 << 20, PATTERNS_MAX = 256, STEP = 256 /* offsets are multiples of it */ };

typedef struct {
    by_st_dtype dtype;
    by_format format;
    by_init init;
    int64_t cols;
    by_mem *mem;
} pattern;

struct by_dummy {
    by_device *dev;
    uint64_t seed;
    by_name_map names; /* number = position in specs */
    by_tensor_spec *specs;
    size_t n, cap;
    pattern patterns[PATTERNS_MAX];
    int n_patterns;
};

static by_status add(void *ctx, const by_tensor_spec *spec, by_err *err) {
    by_dummy *d = ctx;
    uint32_t number;
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 256;
        by_tensor_spec *fresh = by_realloc(BY_MEM_MODEL, d->specs, by_mul_size(cap, sizeof *fresh));
        if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for %zu tensors", cap);
        d->specs = fresh;
        d->cap = cap;
    }
    BY_TRY(by_name_map_add(&d->names, by_str_z(spec->name), &number, err));
    d->specs[d->n++] = *spec;
    return BY_OK;
}

by_status by_dummy_create(by_dummy **out, const by_config *cfg, by_device *dev, uint64_t seed, by_err *err) {
    *out = NULL;
    by_dummy *d = by_alloc_zero(BY_MEM_MODEL, sizeof *d);
    if (!d) return BY_FAIL(err, BY_ENOMEM, "out of memory for made-up weights");
    d->dev = dev;
    d->seed = seed;
    by_name_map_init(&d->names);
    by_status status = by_tensor_table_walk(cfg, add, d, err);
    if (status < 0) {
        by_dummy_destroy(d);
        return status;
    }
    *out = d;
    return BY_OK;
}

void by_dummy_destroy(by_dummy *d) {
    if (!d) return;
    for (int i = 0; i < d->n_patterns; i++) by_mem_free(d->patterns[i].mem);
    by_name_map_deinit(&d->names);
    by_free(d->specs);
    by_free(d);
}

const by_tensor_spec *by_dummy_find(const by_dummy *d, const char *name) {
    int64_t i = by_name_map_find(&d->names, by_str_z(name));
    return i >= 0 ? &d->specs[i] : NULL;
}

static double plain_value(by_init init, int64_t cols, by_rng *rng) {
    double r = by_rng_normal(rng);
    switch (init) {
    case BY_INIT_LINEAR:
    case BY_INIT_OUTPUT: return r / sqrt((double)cols);
    case BY_INIT_UNIT: return r;
    case BY_INIT_NORM: return 1 + 0.1 * r;
    case BY_INIT_ENGRAM_MIX: return 1 + 0.2 * r;
    case BY_INIT_BIAS: return 0.05 * r; /* small: experts are to be chosen evenly */
    case BY_INIT_HC_SCALE: return 0.5 + 0.1 * r;
    case BY_INIT_HC_BASE: return 0.5 * r;
    case BY_INIT_SMALL: return 0.02 * r;
    }
    return r;
}

/* Scale byte with which codes of root mean square `rms` become values of 1 / sqrt(cols), or of 1. */
static unsigned char scale_byte(const pattern *p, double rms) {
    double want = p->init == BY_INIT_LINEAR || p->init == BY_INIT_OUTPUT ? 1 / sqrt((double)p->cols) : 1;
    return (unsigned char)(127 + lrint(log2(want / rms)));
}

static void fill(unsigned char *to, const pattern *p, by_rng *rng) {
    const double fp4_rms = 2.93, fp8_rms = 0.93; /* of all E2M1 codes; of E4M3 codes 0x28 to 0x3f */
    for (size_t i = 0; i < PATTERN;) {
        uint64_t word = by_rng_u64(rng);
        if (p->dtype == BY_ST_F32) {
            float f = (float)plain_value(p->init, p->cols, rng);
            memcpy(to + i, &f, 4);
            i += 4;
        } else if (p->dtype == BY_ST_BF16) {
            float f = (float)plain_value(p->init, p->cols, rng);
            uint32_t u;
            memcpy(&u, &f, 4);
            to[i++] = (unsigned char)(u >> 16);
            to[i++] = (unsigned char)(u >> 24);
        } else if (p->dtype == BY_ST_F8_E8M0) {
            to[i++] = scale_byte(p, p->format == BY_FORMAT_FP4_ROW ? fp4_rms : fp8_rms);
        } else if (p->dtype == BY_ST_F8_E4M3) {
            to[i++] = (unsigned char)((word & 0x80) | (0x28 + (word >> 8) % 24));
        } else {
            memcpy(to + i, &word, 8);
            i += 8;
        }
    }
}

static by_status pattern_of(by_dummy *d, const by_tensor_spec *spec, const pattern **out, by_err *err) {
    pattern want = {.dtype = spec->dtype, .format = spec->format, .init = spec->init, .cols = spec->cols};
    for (int i = 0; i < d->n_patterns; i++) {
        pattern *p = &d->patterns[i];
        *out = p;
        if (p->dtype == want.dtype && p->format == want.format && p->init == want.init && p->cols == want.cols) return BY_OK;
    }
    if (d->n_patterns == PATTERNS_MAX)
        return BY_FAIL(err, BY_ELIMIT, "tensor %s: more than %d kinds of made-up values", spec->name, PATTERNS_MAX);
    unsigned char *host = by_alloc(BY_MEM_MODEL, PATTERN);
    if (!host) return BY_FAIL(err, BY_ENOMEM, "out of memory for made-up weights");
    by_rng rng = {d->seed + (uint64_t)d->n_patterns};
    fill(host, &want, &rng);
    by_status status = by_mem_alloc(&want.mem, d->dev, PATTERN, err);
    if (status == BY_OK) {
        status = by_mem_write(want.mem, 0, host, PATTERN, err);
        d->patterns[d->n_patterns] = want;
        *out = &d->patterns[d->n_patterns++];
    }
    by_free(host);
    return status;
}

by_status by_dummy_make(by_mem **out, by_dummy *d, const by_tensor_spec *spec, by_err *err) {
    const pattern *p = NULL;
    BY_TRY(pattern_of(d, spec, &p, err));
    size_t bytes = (size_t)by_tensor_spec_bytes(spec);
    BY_TRY(by_mem_alloc(out, d->dev, bytes, err));
    by_rng rng = {d->seed};
    for (const char *c = spec->name; *c; c++) rng.state = by_rng_u64(&rng) ^ (unsigned char)*c;
    size_t at = (size_t)by_rng_below(&rng, PATTERN / STEP) * STEP;
    for (size_t done = 0; done < bytes; at = 0) {
        size_t n = bytes - done < PATTERN - at ? bytes - done : PATTERN - at;
        by_status status = by_mem_copy(*out, done, p->mem, at, n, err);
        if (status < 0) {
            by_mem_free(*out);
            *out = NULL;
            return status;
        }
        done += n;
    }
    return BY_OK;
}
