/* scratch.h - the memory that operators of the cuda backend take beside their arguments, as arithmetic over shapes. The operators ask
 * for it with these functions, and memory is planned with them where no device is at hand. Nothing shrinks when rows or entries grow, so
 * that what the largest step takes is enough for every other. */
#ifndef BY_OPS_SCRATCH_H
#define BY_OPS_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/ops.h"

/* What of a model and of its largest step decides about scratch memory. */
typedef struct by_step_shape {
    int64_t rows;    /* most rows of a step or of a draft call */
    int64_t entries; /* most visible entries of a row; 0 = the model selects none */
    int64_t key_bytes; /* of a score: 2 when they are rounded to bf16, else 4 */
    int64_t hidden, streams;
    int64_t widest;  /* most values of a row that a product reads */
    int64_t weights; /* bf16 image of the largest weights of a product, by_scratch_weights */
    int64_t n_experts, n_chosen, inner, shared_inner; /* shared_inner 0 = no shared expert */
    int64_t cand_block; /* entries of a candidate block; 0 = none */
} by_step_shape;

enum {
    BY_SCRATCH_WEIGHTS_MAX = 128 << 20, /* image of weights; the widest product of a layer needs 84 MB, the output head would need 1.3 GB */
    BY_SCRATCH_WEIGHTS_FROM = 512,      /* rows below which no weights are expanded */
    BY_SCRATCH_SELECT_MAX = 256 << 20,  /* scores of index selection: more rows go in slices */
    BY_SCRATCH_DRAW_MAX = 256 << 20,    /* edited and sorted rows of draws: more draws go in slices */
    BY_SCRATCH_DRAW_ROWS = 3,
    BY_SCRATCH_DRAW_JOB = 192, /* bytes of a draw's description, or a few more */
    BY_SCRATCH_MOE_TILE = 12,  /* bytes of a tile of an expert's tokens */
    BY_SCRATCH_HC_CHUNK = 512, BY_SCRATCH_HC_VALUES = 32
};

static inline int64_t by_scratch_pad(int64_t n) { return (n + 255) / 256 * 256; }
/* bf16 rows in the order of the matrix instruction, with room behind for the tokens that the last tile of a block of k reads in vain. */
static inline int64_t by_scratch_image(int64_t rows, int64_t k) { return rows * k * 2 + (32 << 10); }
static inline int64_t by_scratch_rows256(int64_t rows) { return (rows + 255) / 256 * 256; }

/* At most, of n rows of k in up to 6 parts: each fills pairs of tiles of 128 rows. */
static inline int64_t by_scratch_weights(int64_t n, int64_t k) { return by_scratch_image(n + 6 * 256, k); }

static inline int64_t by_scratch_matmul(int64_t rows, int64_t k, int64_t weights) {
    return by_scratch_pad(by_scratch_image(by_scratch_rows256(rows), k)) + by_scratch_pad(weights);
}

static inline int64_t by_scratch_hc(int64_t rows, int64_t width) {
    int64_t chunks = (width + BY_SCRATCH_HC_CHUNK - 1) / BY_SCRATCH_HC_CHUNK;
    return by_scratch_pad(rows * chunks * BY_SCRATCH_HC_VALUES * 4);
}

/* Experts of which one is used at least. rows: padded to whole groups of 8 for each; tiles: as many as there may be with the smallest. */
static inline int64_t by_scratch_moe_used(int64_t n_experts, int64_t choices) { return n_experts < choices ? n_experts : choices; }
static inline int64_t by_scratch_moe_rows(int64_t n_experts, int64_t choices) {
    return (choices + 7 * by_scratch_moe_used(n_experts, choices) + 7) / 8 * 8 + 128;
}
static inline int64_t by_scratch_moe_tiles(int64_t n_experts, int64_t choices) {
    return by_scratch_moe_used(n_experts, choices) + choices / 8;
}
static inline int64_t by_scratch_moe(const by_step_shape *s, int64_t weights) {
    int64_t T = s->rows, n = T * s->n_chosen, rows = by_scratch_moe_rows(s->n_experts, n), all = by_scratch_rows256(T), D = s->hidden;
    return by_scratch_pad(64) + by_scratch_pad(n * 4) + 2 * by_scratch_pad(rows * 4) +
           by_scratch_pad(by_scratch_moe_tiles(s->n_experts, n) * BY_SCRATCH_MOE_TILE) +
           by_scratch_pad(by_scratch_image(rows, D)) + by_scratch_pad(by_scratch_image(rows, s->inner)) + by_scratch_pad(rows * D * 2) +
           by_scratch_pad(by_scratch_image(all, D)) + by_scratch_pad(by_scratch_image(all, s->shared_inner)) + by_scratch_pad(T * D * 2) +
           2 * by_scratch_pad(T * s->shared_inner * 2) + by_scratch_pad(weights);
}
static inline int64_t by_scratch_moe_plain(const by_step_shape *s) {
    int64_t inner = s->shared_inner > s->inner ? s->shared_inner : s->inner;
    return by_scratch_pad(s->rows * (s->n_chosen + (s->shared_inner > 0)) * inner * 4);
}

/* Keys of `bytes` each for the entries of a row and for its candidate blocks; rows start at multiples of 32 keys. */
static inline int64_t by_scratch_select_row(int64_t entries, int64_t blocks, int64_t bytes) {
    return ((entries + 31) / 32 + (blocks + 31) / 32) * 32 * bytes;
}
/* Rows of a slice, 1 at least. */
static inline int64_t by_scratch_select_rows(int64_t rows, int64_t row_bytes) {
    int64_t most = BY_SCRATCH_SELECT_MAX / row_bytes;
    return rows < most ? rows : most > 1 ? most : 1;
}

/* Draws whose rows lie in scratch at once, 1 at least: each may have an edited row, one of the proposal and one for its cuts. */
static inline int64_t by_scratch_draw_slice(int64_t n, int64_t V) {
    int64_t most = BY_SCRATCH_DRAW_MAX / (BY_SCRATCH_DRAW_ROWS * 4 * ((V + 63) / 64 * 64));
    return n < most ? n : most > 1 ? most : 1;
}
static inline int64_t by_scratch_draws(int64_t n, int64_t V, int64_t n_edits, int64_t n_top) {
    int64_t rows = by_scratch_draw_slice(n, V) * BY_SCRATCH_DRAW_ROWS;
    return by_scratch_pad(n * BY_SCRATCH_DRAW_JOB) + by_scratch_pad(n_edits * (int64_t)sizeof(by_draw_edit)) +
           by_scratch_pad(n * ((V + 31) / 32 * 4)) + by_scratch_pad(rows * ((V + 63) / 64 * 64) * 4) +
           by_scratch_pad(n * (int64_t)sizeof(by_drawn)) + by_scratch_pad(n * n_top * (int64_t)sizeof(by_drawn_top));
}

/* Enough for every operator of the largest step. */
static inline int64_t by_scratch_step(const by_step_shape *s) {
    int64_t weights = s->rows < BY_SCRATCH_WEIGHTS_FROM ? 0 : s->weights < BY_SCRATCH_WEIGHTS_MAX ? s->weights : BY_SCRATCH_WEIGHTS_MAX;
    int64_t row = by_scratch_select_row(s->entries, s->cand_block ? s->entries / s->cand_block + 1 : 1, s->key_bytes);
    int64_t all[] = {by_scratch_matmul(s->rows, s->widest, weights), by_scratch_hc(s->rows, s->hidden * s->streams),
                     s->n_experts ? by_scratch_moe(s, weights) : 0, s->n_experts ? by_scratch_moe_plain(s) : 0,
                     s->entries ? by_scratch_select_rows(s->rows, row) * row + 512 : 0};
    int64_t most = 0;
    for (int i = 0; i < 5; i++) most = all[i] > most ? all[i] : most;
    return most;
}

#endif
