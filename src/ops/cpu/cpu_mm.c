/* cpu_mm.c - choosing kernels, blocks of products, and the slow exact path; see cpu_mm.h. */
#include "ops/cpu/cpu_mm.h"

#include <assert.h>
#include <string.h>

#include "ops/formats.h"

const by_mm_kernels *by_mm_kernels_for(by_isa isa) {
    switch (isa) {
#if defined(BY_CPU_X86)
    case BY_ISA_AVX2: return &by_mm_avx2;
    case BY_ISA_AVX512: return &by_mm_avx512;
    case BY_ISA_AVX512BF16:
    case BY_ISA_AMX: return &by_mm_avx512bf16;
#elif defined(BY_CPU_ARM)
    case BY_ISA_NEON: return &by_mm_neon;
#endif
    default: return NULL;
    }
}

by_mm_way by_mm_choose(const by_mm_kernels *kernels, by_mm_type w, by_mm_type x) {
    assert(w <= BY_MM_F32 && (x == BY_MM_A8 || x == BY_MM_BF16 || x == BY_MM_F32));
    if (x == BY_MM_A8 && w <= BY_MM_FP8 && kernels->bf16[w])
        return (by_mm_way){w == BY_MM_FP4 ? BY_MM_PACK_BF16_FP4 : BY_MM_PACK_BF16_FP8, kernels->bf16[w], true};
    bool split = w == BY_MM_FP4 || w == BY_MM_BF16;
    by_mm_core *core = kernels->f32[w] ? kernels->f32[w] : kernels->base->f32[w];
    return (by_mm_way){split ? BY_MM_PACK_F32_SPLIT : BY_MM_PACK_F32, core, false};
}

/* ---- the exact path ---------------------------------------------------------------------------------------------- */

static double wide_weight(const by_mm_weight *w, int64_t n, int64_t k) {
    const uint8_t *p = w->w + n * w->stride;
    switch (w->type) {
    case BY_MM_FP4:
        return (double)by_e2m1_to_f32((uint8_t)(p[k / 2] >> (k % 2 * 4))) *
               (double)by_ue8m0_to_f32(w->scale[n * w->scale_stride + k / 32]);
    case BY_MM_FP8:
        return (double)by_e4m3_to_f32(p[k]) * (double)by_ue8m0_to_f32(w->scale[n / 32 * w->scale_stride + k / 32]);
    case BY_MM_BF16: {
        uint16_t b;
        memcpy(&b, p + 2 * k, 2);
        return (double)by_bf16_to_f32(b);
    }
    default: {
        float f;
        memcpy(&f, p + 4 * k, 4);
        return (double)f;
    }
    }
}

static double wide_value(const by_mm_src *x, int64_t k) {
    if (x->type == BY_MM_A8) return (double)by_e4m3_to_f32(x->data[k]) * (double)by_ue8m0_to_f32(x->scale[k / 32]);
    if (x->type == BY_MM_BF16) {
        uint16_t b;
        memcpy(&b, x->data + 2 * k, 2);
        return (double)by_bf16_to_f32(b);
    }
    float f;
    memcpy(&f, x->data + 4 * k, 4);
    return (double)f;
}

float by_mm_wide(const by_mm_weight *w, int64_t n, const by_mm_src *x) {
    double sum = 0;
    for (int64_t k = 0; k < w->k; k++) sum += wide_weight(w, n, k) * wide_value(x, k);
    return (float)sum;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

size_t by_mm_scratch_bytes(int64_t k) {
    size_t folded = (size_t)by_mm_pack_groups(BY_MM_PACK_BF16_FP8, k) * BY_MM_GROUP * 2;
    return BY_MM_MT * (folded + 64) + BY_MM_MT * BY_MM_ROWS * sizeof(float) + 64;
}

static const uint8_t *packed_row(const by_mm_rows *x, int64_t m) {
    return x->packed + (x->list ? x->list[m] : m) * x->packed_stride;
}

static void compute_wide(const by_mm_weight *w, int64_t n0, uint32_t rows, const by_mm_rows *x, int64_t m, float *y) {
    by_mm_src src = x->src;
    int64_t off = (x->list ? x->list[m] : m) * x->src_stride;
    src.data += off;
    if (src.scale) src.scale += off;
    for (; rows; rows &= rows - 1) {
        int r = __builtin_ctz(rows);
        y[r] = by_mm_wide(w, n0 + r, &src);
    }
}

static bool all_between(const uint8_t *s, int64_t n, uint8_t lo, uint8_t hi) {
    uint8_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (uint8_t)(s[i] < lo) | (uint8_t)(s[i] > hi);
    return !bad;
}

/* f32 cores: rows with a scale byte beyond what they take. */
static uint32_t rows_beyond_scale(const by_mm_weight *w, int64_t n0, int64_t n1) {
    int64_t groups = by_mm_groups(w->k);
    if (w->type > BY_MM_FP8) return 0;
    if (w->type == BY_MM_FP8)
        return all_between(w->scale + n0 / BY_MM_ROWS * w->scale_stride, groups, 0, BY_MM_SCALE_MAX) ? 0 : UINT32_MAX;
    uint32_t bad = 0;
    for (int64_t n = n0; n < n1; n++)
        if (!all_between(w->scale + n * w->scale_stride, groups, 0, BY_MM_SCALE_MAX)) bad |= UINT32_C(1) << (n - n0);
    return bad;
}

/* Bits of the rows [n0, n1). */
static uint32_t row_bits(int64_t n0, int64_t n1) { return UINT32_MAX >> (BY_MM_ROWS - (n1 - n0)); }

void by_mm_block_f32(const by_mm_kernels *kernels, const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1,
                     const by_mm_rows *x, int64_t m0, int64_t m1, float *y, void *scratch) {
    enum { A8_LO = BY_MM_SAFE_LO + 9, A8_HI = BY_MM_SAFE_HI - 8 }; /* E4M3 lies between 2^-9 and 2^9 */
    assert(n0 < n1 && n0 / BY_MM_ROWS == (n1 - 1) / BY_MM_ROWS && m1 - m0 <= BY_MM_MT);
    int64_t head = by_mm_pack_head(way->pack, w->k), groups = by_mm_groups(w->k);
    int64_t fold_stride = by_mm_pack_groups(way->pack, w->k) * BY_MM_GROUP + 32; /* off the powers of two */
    int64_t scale_row = w->type == BY_MM_FP8 ? n0 / BY_MM_ROWS : n0;
    by_mm_tile t = {.w = w->w + n0 * w->stride, .scale = w->scale ? w->scale + scale_row * w->scale_stride : NULL,
                    .stride = w->stride, .scale_stride = w->scale_stride, .k = w->k, .n_rows = (int32_t)(n1 - n0)};
    t.folded = way->bf16 && w->type == BY_MM_FP8 && all_between(t.scale, groups, BY_MM_SAFE_LO, BY_MM_SAFE_HI);
    uint32_t bad = way->bf16 ? 0 : rows_beyond_scale(w, n0, n1);
    for (int64_t m = m0; m < m1; m += kernels->mt) {
        const uint8_t *rows[BY_MM_MT];
        t.m = (int32_t)(m1 - m < kernels->mt ? m1 - m : kernels->mt);
        t.y = y + (m - m0) * BY_MM_ROWS;
        for (int32_t i = 0; i < t.m; i++) {
            rows[i] = packed_row(x, m + i);
            t.x[i] = t.folded ? (const void *)((uint16_t *)scratch + i * fold_stride) : rows[i] + head;
        }
        if (t.folded) kernels->fold(scratch, fold_stride, rows, t.m, w->k, t.scale);
        bad |= way->core(&t);
        for (int32_t i = 0; i < t.m; i++) {
            bool unsafe = !all_between(rows[i], groups, way->bf16 ? A8_LO : 0, way->bf16 ? A8_HI : BY_MM_SCALE_MAX);
            if (bad || unsafe) compute_wide(w, n0, (unsafe ? UINT32_MAX : bad) & row_bits(n0, n1), x, m + i, t.y + i * BY_MM_ROWS);
        }
    }
}

void by_mm_block(const by_mm_kernels *kernels, const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1,
                 const by_mm_rows *x, int64_t m0, int64_t m1, const by_mm_out *out, void *scratch) {
    float *y = (float *)((uint8_t *)scratch + by_mm_scratch_bytes(w->k) - BY_MM_MT * BY_MM_ROWS * sizeof(float) - 64);
    size_t n = (size_t)(n1 - n0);
    for (int64_t m = m0; m < m1; m += BY_MM_MT) {
        int64_t end = m1 - m < BY_MM_MT ? m1 : m + BY_MM_MT;
        by_mm_block_f32(kernels, way, w, n0, n1, x, m, end, y, scratch);
        for (int64_t i = m; i < end; i++) {
            uint8_t *to = out->y + (out->list ? out->list[i] : i) * out->stride;
            const float *from = y + (i - m) * BY_MM_ROWS;
            if (!out->bf16) {
                memcpy(to + n0 * 4, from, n * 4);
                continue;
            }
            uint16_t *b = (uint16_t *)(void *)to + n0;
            for (size_t r = 0; r < n; r++) b[r] = by_bf16_of_f32(from[r]);
        }
    }
}
