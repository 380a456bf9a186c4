/* sample_philox.c - see sample_philox.h. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011;
 * the known answers are in tests/golden/data/model/sampler. */
#include "sample/sample_philox.h"

#define ROUNDS            10
#define DRAFT_SEED_OFFSET 1000000007u

void by_sample_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p = (uint64_t)0xD2511F53u * c0, r = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(r >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)r;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

by_sample_stream by_sample_stream_at(uint64_t seed, uint32_t position, by_sample_draw draw) {
    if (draw == BY_SAMPLE_DRAW_DRAFT) {
        seed += DRAFT_SEED_OFFSET;
        draw = BY_SAMPLE_DRAW_FRESH;
    }
    uint64_t sequence = (uint64_t)position * 3 + (uint64_t)draw;
    return (by_sample_stream){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                              .sequence = {(uint32_t)sequence, (uint32_t)(sequence >> 32)},
                              .n_used = 4};
}

uint32_t by_sample_stream_word(by_sample_stream *s) {
    if (s->n_used == 4) {
        const uint32_t counter[4] = {(uint32_t)s->block, (uint32_t)(s->block >> 32), s->sequence[0], s->sequence[1]};
        by_sample_philox(s->words, counter, s->key);
        s->block++;
        s->n_used = 0;
    }
    return s->words[s->n_used++];
}
