/* sample_kernels.c - see sample_kernels.h. The inner loops run over independent elements of fixed-size blocks, which is
 * what a compiler can turn into vectors without changing a single rounding. BY_SAMPLE_TABLE is the name of the table;
 * the files of isa/ set it and include this one. */
#include "sample/sample_kernels.h"

#include <float.h>

#include "sample/sample_math.h"

#define LANES BY_SAMPLE_LANES
#define BLOCK BY_SAMPLE_BLOCK

#ifndef BY_SAMPLE_TABLE
#define BY_SAMPLE_TABLE by_sample_kernels_base
#endif

/* Of the BLOCK running maxima the largest; *bad: one of them saw what is no number. */
static float joined_max(const float *m, const uint32_t *worst, bool *bad) {
    float max = m[0];
    uint32_t any = worst[0];
    for (size_t i = 1; i < BLOCK; i++) {
        max = m[i] > max ? m[i] : max;
        any |= worst[i];
    }
    *bad = any != 0;
    return max;
}

static float row_max(const float *row, size_t n, bool *bad) {
    float m[BLOCK];
    uint32_t worst[BLOCK] = {0};
    for (size_t i = 0; i < BLOCK; i++)
        m[i] = -INFINITY;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < len; i++) {
            float x = row[at + i];
            m[i] = x > m[i] ? x : m[i];
            worst[i] |= x <= FLT_MAX ? 0u : 1u;
        }
    }
    return joined_max(m, worst, bad);
}

#ifndef BY_SAMPLE_OWN_MASK /* else the file that includes this one has its own */
#define X4(i)  1u << (i), 1u << (i + 1), 1u << (i + 2), 1u << (i + 3)
#define X16(i) X4(i), X4(i + 4), X4(i + 8), X4(i + 12)
static const uint32_t bit_of[32] = {X16(0), X16(16)};

/* n <= 32 logits under one word of a mask; m and worst as in row_max. Read before they are written: to may be row. */
static inline void mask_some(float *to, const float *row, uint32_t allowed, size_t n, float *m, uint32_t *worst) {
    float x[32];
    for (size_t i = 0; i < n; i++) {
        worst[i] |= row[i] <= FLT_MAX ? 0u : 1u;
        x[i] = allowed & bit_of[i] ? row[i] : -INFINITY;
        m[i] = x[i] > m[i] ? x[i] : m[i];
    }
    for (size_t i = 0; i < n; i++)
        to[i] = x[i];
}

static float mask_row(float *to, const float *row, const uint32_t *mask, size_t n, bool *bad) {
    float m[BLOCK];
    uint32_t worst[BLOCK] = {0};
    for (size_t i = 0; i < BLOCK; i++)
        m[i] = -INFINITY;
    size_t at = 0;
    for (; at + 32 <= n; at += 32)
        mask_some(to + at, row + at, mask[at / 32], 32, m + at % BLOCK, worst + at % BLOCK);
    if (at < n) mask_some(to + at, row + at, mask[at / 32], n - at, m, worst);
    return joined_max(m, worst, bad);
}
#endif

static void exp_affine(float *out, const float *row, size_t n, float max, float inv_t, float log_s) {
    for (size_t i = 0; i < n; i++)
        out[i] = by_sample_exp((row[i] - max) * inv_t - log_s);
}

/* Sum of a block of numbers in 16 running sums and a balanced tree. */
static float sum_block(const float *x) {
    float acc[LANES] = {0};
    for (size_t i = 0; i < BLOCK; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            acc[j] += x[i + j];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            acc[j] += acc[j + half];
    return acc[0];
}

/* Is every weight of a block 0? */
static bool is_zero_block(const float *row, float max, float inv_t) {
    uint32_t any = 0;
    for (size_t i = 0; i < BLOCK; i++)
        any |= (row[i] - max) * inv_t >= BY_SAMPLE_EXP_LEAST ? 1u : 0u;
    return !any;
}

static double exp_sum(const float *row, size_t n, float max, float inv_t) {
    double total = 0;
    float e[BLOCK];
    size_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK) {
        if (inv_t >= BY_SAMPLE_SHARP && is_zero_block(row + at, max, inv_t)) continue; /* adds 0 */
        exp_affine(e, row + at, BLOCK, max, inv_t, 0);
        total += (double)sum_block(e);
    }
    if (at == n) return total;
    memset(e, 0, sizeof e);
    exp_affine(e, row + at, n - at, max, inv_t, 0);
    return total + (double)sum_block(e);
}

static size_t gather(int32_t *ids, float *x, const float *row, size_t n, float max, float inv_t, float floor_s) {
    enum { STEP = 64 };
    size_t count = 0;
    for (size_t at = 0; at < n; at += STEP) {
        size_t len = n - at < STEP ? n - at : STEP;
        uint32_t any = 0;
        for (size_t i = 0; i < len; i++)
            any |= (row[at + i] - max) * inv_t >= floor_s ? 1u : 0u;
        if (!any) continue; /* the usual case: a row has few likely tokens */
        for (size_t i = 0; i < len; i++) {
            ids[count] = (int32_t)(at + i); /* written always, kept when counted: no branch to guess */
            x[count] = row[at + i];
            count += (row[at + i] - max) * inv_t >= floor_s ? 1u : 0u;
        }
    }
    return count;
}

static void rank_values(float *x, uint32_t *key, uint32_t *mass, size_t n, float max, float inv_t, float log_s) {
    for (size_t i = 0; i < n; i++) {
        uint32_t u = by_sample_bits(x[i] + 0.0f);
        key[i] = u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
        float lp = (x[i] - max) * inv_t - log_s;
        mass[i] = by_sample_mass(by_sample_exp(lp));
        x[i] = lp;
    }
}

static void add_mass(uint32_t *lanes, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        lanes[i] += by_sample_mass(x[i]);
}

static uint64_t total(const uint32_t *lanes, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += lanes[i];
    return sum;
}

static float subtract_one(float x, float l, int32_t id, const by_sample_dist *q, float penalty) {
    float scaled = (l - q->max) * q->inv_t;
    bool kept = ((l > q->cut) | ((l == q->cut) & (id <= q->cut_id))) & (scaled >= q->floor_s);
    float p = by_sample_exp(scaled - q->log_s - q->log_kept - penalty), left = x - (kept ? p : 0.0f);
    return left > 0 ? left : 0;
}

static void subtract(float *x, const int32_t *ids, size_t n, const by_sample_dist *q, float penalty) {
    const by_sample_dist d = *q; /* a copy: the compiler then knows that writing x does not change it */
    if (ids)
        for (size_t i = 0; i < n; i++)
            x[i] = subtract_one(x[i], d.row[ids[i]], ids[i], &d, penalty);
    else
        for (size_t i = 0; i < n; i++)
            x[i] = subtract_one(x[i], d.row[i], (int32_t)i, &d, penalty);
}

const by_sample_kernels BY_SAMPLE_TABLE = {row_max, mask_row, exp_sum, exp_affine, gather, rank_values, add_mass, total, subtract};
