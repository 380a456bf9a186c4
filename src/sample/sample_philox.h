/* sample_philox.h - counter-based random numbers: Philox4x32 with 10 rounds, as in cuRAND with offset 0.
 *
 * A stream is named by (seed, sequence) and its words by their index, so every draw is a pure function of the request's
 * seed and the token's position: no state survives a token, and no other request can move a draw. The three streams of
 * a position and the shifted seed of drafts keep fresh, residual, acceptance and proposal words apart. */
#ifndef BY_SAMPLE_PHILOX_H
#define BY_SAMPLE_PHILOX_H

#include <stdint.h>

typedef enum by_sample_draw {
    BY_SAMPLE_DRAW_FRESH = 0,    /* token from p */
    BY_SAMPLE_DRAW_RESIDUAL = 1, /* token from max(0, p - q) after a rejection */
    BY_SAMPLE_DRAW_ACCEPT = 2,   /* acceptance uniform */
    BY_SAMPLE_DRAW_DRAFT = 3     /* draft proposal: the fresh stream of seed + 1000000007 */
} by_sample_draw;

typedef struct by_sample_stream {
    uint32_t key[2], sequence[2];
    uint64_t block; /* index of the block in words */
    uint32_t words[4];
    uint32_t n_used; /* of words; 4 = none left */
} by_sample_stream;

/* One block: out = the four words of counter (low word first) under key. */
void by_sample_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* The stream of a draw at position key P (32 bits, see by_sample_position). */
by_sample_stream by_sample_stream_at(uint64_t seed, uint32_t position, by_sample_draw draw);

/* The next word of the stream. */
uint32_t by_sample_stream_word(by_sample_stream *s);

/* fp32 in (0, 1]: word * 2^-32 + 2^-33, each step rounded to nearest even. */
static inline float by_sample_uniform(uint32_t word) {
    return (float)word * 0x1p-32f + 0x1p-33f;
}

/* Position key of row `row` of a step whose row 0 produces the token at sequence position `first`. */
#define BY_SAMPLE_ROW_STRIDE 10000019u
static inline uint32_t by_sample_position(uint32_t first, uint32_t row) {
    return first + row * BY_SAMPLE_ROW_STRIDE;
}

#endif
