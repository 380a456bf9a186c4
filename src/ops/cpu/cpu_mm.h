/* cpu_mm.h - matrix products of the cpu backend: y[m, n] = sum_k x[m, k] W[n, k], weights as the checkpoint stores them.
 *
 * A weight is never copied or expanded in memory. A core multiplies up to 32 weight rows (one row of scale tiles) with up to
 * mt rows of x, expanding each weight in registers; one core exists per instruction set, weight type and kind of x:
 *
 *   f32 cores    x as fp32; expanded weight times its scale is exact in fp32; one fused multiply-add per product.
 *   bf16 cores   A8 rows as bf16, which fits exactly; products exact, fp32 sums (vdpbf16ps, tdpbf16ps).
 *
 * Rows of x are packed first: turned into the core's number type, in the column order in which the core's expansion of a
 * weight comes out of the registers, padded with zeros. Packing works in groups of 32 columns.
 *
 * Order of sums. Each output element is the sum of one accumulator with a fixed number of lanes over k ascending, then a
 * fixed tree over the lanes: a function of k, types and instruction set only. Neither M, nor its tiling, nor the split of N,
 * nor threads enter, so a row gives the same bits alone and among others.
 *
 * Range. The bf16 dot instructions flush denormals, and a weight times its scale can leave fp32. bf16 cores take x between
 * 2^-50 and 2^50; where a weight's scale is outside that range too, they apply it to sums instead of factors. f32 cores take
 * scales up to 2^113. Elements outside (no model comes near) and those with an FP8 NaN in an f32 core are computed in
 * double (by_mm_wide). Each choice depends on the operands of that element alone. */
#ifndef BY_OPS_CPU_MM_H
#define BY_OPS_CPU_MM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

typedef enum by_mm_type { BY_MM_FP4, BY_MM_FP8, BY_MM_BF16, BY_MM_F32, BY_MM_A8, BY_MM_TYPES } by_mm_type;

enum {
    BY_MM_ROWS = 32,  /* weight rows of one core call: a tile of FP8 scales */
    BY_MM_MT = 8,     /* most rows of x of one core call */
    BY_MM_GROUP = 32, /* columns that share a scale */
    BY_MM_SAFE_LO = 77, BY_MM_SAFE_HI = 177, /* biased fp32 exponents of 2^-50 and 2^50 */
    BY_MM_SCALE_MAX = 240                    /* largest scale byte of f32 cores: 448 * 2^113 is still finite */
};

/* Layouts of packed x: the order in which a core's expansion of a weight comes out of the registers. */
typedef enum by_mm_pack {
    BY_MM_PACK_F32,       /* fp32, natural order */
    BY_MM_PACK_F32_SPLIT, /* fp32, each 32 columns as 16 even ones, then 16 odd ones */
    BY_MM_PACK_BF16_FP8,  /* bf16, each 64 columns as those of the even runs of 8, then those of the odd runs */
    BY_MM_PACK_BF16_FP4,  /* bf16, each 32 columns as 0, 4, 8, ..., then 1, 5, 9, ..., and so on */
    BY_MM_PACKS
} by_mm_pack;

/* A weight matrix in place. FP8: scale row n / 32; FP4: scale row n; BF16, F32: no scale. */
typedef struct by_mm_weight {
    by_mm_type type;
    int64_t n, k;
    const uint8_t *w, *scale;
    int64_t stride, scale_stride; /* bytes */
} by_mm_weight;

/* One row of x as it came. A8: 32 columns share scale[column / 32]. */
typedef struct by_mm_src {
    by_mm_type type; /* BY_MM_A8, BY_MM_BF16, BY_MM_F32 */
    const uint8_t *data, *scale;
} by_mm_src;

/* A packed row starts with one byte per group, from which range checks are made: the scale of an A8 group, 255 when it holds
 * a NaN, 127 when it is all zero or the row is not A8. The values follow, 64-byte aligned. */
static inline int64_t by_mm_groups(int64_t k) { return (k + BY_MM_GROUP - 1) / BY_MM_GROUP; }
static inline int64_t by_mm_pack_groups(by_mm_pack p, int64_t k) { /* groups with padding */
    int64_t g = by_mm_groups(k);
    return p == BY_MM_PACK_BF16_FP8 ? (g + 1) / 2 * 2 : g;
}
static inline int64_t by_mm_pack_head(by_mm_pack p, int64_t k) { /* bytes in front of the values */
    return (by_mm_pack_groups(p, k) + 63) / 64 * 64;
}
static inline int64_t by_mm_pack_bytes(by_mm_pack p, int64_t k) {
    return by_mm_pack_head(p, k) + by_mm_pack_groups(p, k) * BY_MM_GROUP * (p < BY_MM_PACK_BF16_FP8 ? 4 : 2);
}

/* Arguments of a core. */
typedef struct by_mm_tile {
    const uint8_t *w, *scale;     /* first row; FP8: the tiles' scale row; FP4: the first row's scales */
    int64_t stride, scale_stride; /* bytes */
    int64_t k;
    int32_t n_rows, m;            /* 1..32, 1..mt */
    bool folded;                  /* bf16 x FP8: x already carries the scales */
    const void *x[BY_MM_MT];      /* values of packed rows */
    float *y;                     /* [m][32] */
} by_mm_tile;

/* Fills y; bit r of the result: weight row r needs by_mm_wide (its y is undefined). */
typedef uint32_t by_mm_core(const by_mm_tile *t);

typedef struct by_mm_kernels {
    by_isa isa;
    int32_t mt; /* rows of x per core call, at most BY_MM_MT */
    const struct by_mm_kernels *base; /* where f32 cores come from when this table has none */
    by_mm_core *f32[4];  /* by weight type: FP4, FP8, BF16, F32 */
    by_mm_core *bf16[2]; /* FP4, FP8, for A8 rows; NULL where the instruction set has none: the f32 core serves */
    /* Packs groups [g0, g1) of a row with k columns into row (a whole packed row). Padding is zeroed with the last group. */
    void (*pack)(uint8_t *row, by_mm_pack p, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1);
    /* bf16 x FP8: values of m packed rows times the tiles' scales (all within the safe range) into out, out_stride values
     * apart. */
    void (*fold)(uint16_t *out, int64_t out_stride, const uint8_t *const *rows, int32_t m, int64_t k, const uint8_t *scale);
} by_mm_kernels;

extern const by_mm_kernels by_mm_avx2, by_mm_avx512, by_mm_avx512bf16, by_mm_neon;

/* Kernels for an instruction set; NULL for BY_ISA_REF and sets that this build lacks. */
const by_mm_kernels *by_mm_kernels_for(by_isa isa);

/* The core and layout that serve a weight type and a type of x. */
typedef struct by_mm_way {
    by_mm_pack pack;
    by_mm_core *core;
    bool bf16;
} by_mm_way;
by_mm_way by_mm_choose(const by_mm_kernels *kernels, by_mm_type w, by_mm_type x);

/* One output element in double, rounded once. */
float by_mm_wide(const by_mm_weight *w, int64_t n, const by_mm_src *x);

/* Rows of x of one product. Row i of the product is row list[i] of the packed rows (i when list is NULL). */
typedef struct by_mm_rows {
    const uint8_t *packed;
    int64_t packed_stride;
    by_mm_src src; /* of row 0, for by_mm_wide */
    int64_t src_stride;
    const int32_t *list;
    int64_t n;
} by_mm_rows;

typedef struct by_mm_out {
    uint8_t *y;
    int64_t stride;      /* bytes between rows */
    bool bf16;           /* else fp32 */
    const int32_t *list; /* row of y for each row of the product; NULL = same */
} by_mm_out;

/* Bytes of per-thread scratch that by_mm_block needs for products with at most k columns. */
size_t by_mm_scratch_bytes(int64_t k);

/* Weight rows [n0, n1), inside one row of scale tiles (n0 / 32 == (n1 - 1) / 32), times rows [m0, m1) of x, at most BY_MM_MT
 * of them: y[m - m0][0 .. n1 - n0) fp32, 32 apart. */
void by_mm_block_f32(const by_mm_kernels *kernels, const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1,
                     const by_mm_rows *x, int64_t m0, int64_t m1, float *y, void *scratch);
/* The same for any number of rows, stored to y. */
void by_mm_block(const by_mm_kernels *kernels, const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1,
                 const by_mm_rows *x, int64_t m0, int64_t m1, const by_mm_out *y, void *scratch);

#endif
