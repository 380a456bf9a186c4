/* cpu_mm.h - matrix products of the cpu backend: y[m, n] = sum_k x[m, k] W[n, k], weights as the checkpoint stores them.
 *
 * A weight is never copied or expanded in memory. A core multiplies up to 32 weight rows (one row of scale tiles) with up to
 * mt rows of x, expanding each weight in registers; one core exists per instruction set, weight type and kind of x:
 *
 *   f32 cores    x as fp32; expanded weight times its scale is exact in fp32; one fused multiply-add per product.
 *   bf16 cores   A8 rows as bf16, which fits exactly, and on AMX bf16 rows times bf16 weights and times fp32 weights, in
 *                three parts; products exact, fp32 sums (vdpbf16ps, tdpbf16ps).
 *
 * Rows of x are packed first: turned into the core's number type, in the column order in which the core's expansion of a
 * weight comes out of the registers, padded with zeros. Packing works in groups of 32 columns, so that several threads may
 * pack one row. Cores of the AMX tier read blocks of 16 rows, interleaved.
 *
 * Order of sums. Each output element is the sum of one accumulator with a fixed number of lanes over k ascending, then a
 * fixed tree over the lanes: a function of k, types and instruction set only. Neither M, nor its tiling, nor the split of N,
 * nor threads enter, so a row gives the same bits alone and among others.
 *
 * Range. The bf16 dot instructions flush denormals, and a weight times its scale can leave fp32. bf16 cores take x between
 * 2^-50 and 2^50; where a weight's scale is outside that range too, they apply it to sums instead of factors. f32 cores take
 * scales up to 2^113. Elements outside (no model comes near) and those with an FP8 NaN in an f32 core are computed in
 * double (by_mm_wide). Each choice depends on the operands of that element alone. Of bf16 rows as they are a denormal
 * factor or product counts as zero: 2^-126 beside sums that no norm leaves so small. fp32 weights as three bf16 parts (amx) lose digits
 * below 2^-102, where the lower parts become denormal. NaN comes through everywhere; an infinity gives what is not finite, on amx NaN
 * where the weight is fp32. */
#ifndef BY_OPS_CPU_MM_H
#define BY_OPS_CPU_MM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

typedef enum by_mm_type { BY_MM_FP4, BY_MM_FP8, BY_MM_BF16, BY_MM_F32, BY_MM_A8, BY_MM_TYPES } by_mm_type;

enum {
    BY_MM_ROWS = 32,  /* weight rows of one core call: a tile of FP8 scales */
    BY_MM_MT = 128,   /* most rows of x of one core call */
    BY_MM_GROUP = 32, /* columns that share a scale */
    BY_MM_JOBS = 4,   /* most tiles of one call of by_mm_blocks_f32 */
    BY_MM_BLOCK = 16, /* rows of x in a block of the AMX layouts */
    BY_MM_SAFE_LO = 77, BY_MM_SAFE_HI = 177, /* biased fp32 exponents of 2^-50 and 2^50 */
    BY_MM_SCALE_MAX = 240                    /* largest scale byte of f32 cores: 448 * 2^113 is still finite */
};

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

/* Where results go. */
typedef struct by_mm_out {
    uint8_t *y;
    int64_t stride;      /* bytes between rows */
    bool bf16;           /* else fp32 */
    const int32_t *list; /* row of y for each row of the product; NULL = same */
} by_mm_out;

/* Arguments of a core. */
typedef struct by_mm_tile {
    const uint8_t *w, *scale;     /* first row; FP8: the tiles' scale row; FP4: the first row's scales */
    int64_t stride, scale_stride; /* bytes */
    int64_t k;
    int32_t n_rows, m;            /* 1..32, 1..way.mt */
    bool folded;                  /* bf16 dot x FP8: x already carries the scales */
    const uint8_t *x;             /* values of the first packed row, x_stride bytes apart; rows[] when not NULL */
    int64_t x_stride;
    const uint8_t *const *rows;   /* [m] where the rows lie apart */
    float *y;                     /* [m][32] */
    const by_mm_out *out;         /* by_mm_many: NULL, or where results go instead, to column n0 on */
    int64_t n0;
    uint8_t *scratch;             /* by_mm_way.scratch_bytes, 64-byte aligned */
} by_mm_tile;

/* Fills y; bit r of the result: weight row r needs by_mm_wide (its y is undefined). */
typedef uint32_t by_mm_core(const by_mm_tile *t);
/* The same for n <= BY_MM_JOBS tiles that differ in w, scale, n_rows, y and n0 only, so that one can be prepared while another is
 * multiplied. bad [n] takes the results of a core. */
typedef void by_mm_many(const by_mm_tile *tiles, int n, uint32_t *bad);

/* Groups [g0, g1) of n_block rows with k columns (1 where rows are separate) into their block at `to`. Padding is zeroed with
 * the last group. Bit i of the result: row i has a value outside what the core takes and needs by_mm_wide. */
typedef uint32_t by_mm_pack(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1);

/* How one weight type is multiplied with one kind of x. */
typedef struct by_mm_way {
    by_mm_core *core; /* this or the next one; neither: there is no such way */
    by_mm_many *many;
    by_mm_pack *pack;
    int32_t mt;         /* rows of x per core call */
    int32_t block;      /* 1, or BY_MM_BLOCK: rows lie interleaved in blocks */
    int32_t elem_bytes; /* of a packed value */
    int32_t pad;        /* columns are padded to a multiple */
    bool bf16;          /* scales may be anything; else at most BY_MM_SCALE_MAX */
    /* bf16 dot x FP8: values of m packed rows times the tiles' scales, all within the safe range, out_stride bytes apart. */
    void (*fold)(uint8_t *out, int64_t out_stride, const uint8_t *const *rows, int32_t m, int64_t k, const uint8_t *scale);
    /* With core: stores m rows of n results, y[m][BY_MM_ROWS], as out says, from column n0 and row 0 of out (of its list) on. */
    void (*put)(const by_mm_out *out, int64_t n0, const float *y, int64_t m, int64_t n);
    size_t scratch_bytes; /* of the core, beside what by_mm_scratch_bytes counts itself */
} by_mm_way;

typedef struct by_mm_kernels {
    by_isa isa;
    const struct by_mm_kernels *base; /* ways this table lacks */
    by_mm_way plain[4];               /* by weight type FP4, FP8, BF16, F32: any x, as fp32 */
    by_mm_way a8[2];                  /* FP4, FP8: A8 rows as bf16; no core = none */
    by_mm_way bf16, f32;              /* BF16, F32: bf16 rows as they are; no core = none */
    /* by_mm_enter and by_mm_leave: what cores keep in their scratch between calls. NULL = nothing. */
    void (*enter)(void *core_scratch);
    void (*leave)(void *core_scratch);
    /* The limit of a benchmark: runs the multiply-add instruction of this table's cores, operands at hand, n rounds of it;
     * returns the operations done, two per multiply-add. One thread. */
    double (*peak)(int64_t n);
} by_mm_kernels;

extern const by_mm_kernels by_mm_avx2, by_mm_avx512, by_mm_avx512bf16, by_mm_amx, by_mm_neon;

/* Kernels for an instruction set; NULL for BY_ISA_REF and sets that this build lacks. */
const by_mm_kernels *by_mm_kernels_for(by_isa isa);

/* The way for a weight type and a type of x. */
const by_mm_way *by_mm_choose(const by_mm_kernels *kernels, by_mm_type w, by_mm_type x);

static inline int64_t by_mm_groups(int64_t k) { return (k + BY_MM_GROUP - 1) / BY_MM_GROUP; }
/* Bytes of a packed row. */
static inline int64_t by_mm_row_bytes(const by_mm_way *way, int64_t k) {
    return (k + way->pad - 1) / way->pad * way->pad * way->elem_bytes;
}

/* Rows of x of one product, packed for one way.
 * block 1: row i is the packed row list[i] (i when list is NULL). block 16: rows are packed in the product's order, blocks of
 * 16 one after another, the last one smaller; list names the rows of src only. */
typedef struct by_mm_rows {
    uint8_t *packed;
    int64_t stride;    /* bytes of a packed row; block 16: by_mm_row_bytes exactly */
    uint8_t *unsafe;   /* 1 = needs by_mm_wide; per packed row */
    by_mm_src src;     /* row 0 */
    int64_t src_stride;
    const int32_t *list;
    int64_t n;
} by_mm_rows;

/* Packs groups [g0, g1) of rows [i0, i1) (of the packed rows, for block 1; of the product, for block 16, whole blocks).
 * Sets unsafe[], which the caller zeroed; several threads may work on different groups of one row. */
void by_mm_pack_rows(const by_mm_way *way, const by_mm_rows *x, int64_t i0, int64_t i1, int64_t k, int64_t g0, int64_t g1);

/* One output element in double, rounded once. */
float by_mm_wide(const by_mm_weight *w, int64_t n, const by_mm_src *x);

/* Bytes of per-thread scratch that products with at most k columns need. */
size_t by_mm_scratch_bytes(const by_mm_kernels *kernels, int64_t k);

/* Around any number of the calls below with this scratch (64-byte aligned), on one thread, nothing else in it: settings of the
 * processor that calls have in common stay. */
void by_mm_enter(const by_mm_kernels *kernels, void *scratch);
void by_mm_leave(const by_mm_kernels *kernels, void *scratch);

/* Weight rows [n0, n1), inside one row of scale tiles (n0 / 32 == (n1 - 1) / 32), times rows [m0, m1) of x, at most BY_MM_MT;
 * m0 a multiple of way->block: y[m - m0][0 .. n1 - n0) fp32, 32 apart. */
void by_mm_block_f32(const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1, const by_mm_rows *x, int64_t m0,
                     int64_t m1, float *y, void *scratch);
/* n_jobs <= BY_MM_JOBS such products with the same rows of x, each with its y. The weights have one type, k and strides. */
typedef struct by_mm_job {
    const by_mm_weight *w;
    int64_t n0, n1;
    float *y;
} by_mm_job;
void by_mm_blocks_f32(const by_mm_way *way, const by_mm_job *jobs, int n_jobs, const by_mm_rows *x, int64_t m0, int64_t m1, void *scratch);
/* Any number of weight rows and rows of x, stored to column n0 of out. */
void by_mm_block(const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1, const by_mm_rows *x, int64_t m0,
                 int64_t m1, const by_mm_out *out, void *scratch);

#endif
