/* engram_hash.c - see engram_hash.h. */
#include "model/engram_hash.h"

typedef unsigned __int128 u128;

/* SeedSequence's pool of four words, and eight words drawn from it. The constants are the published ones. */
static uint32_t hash_word(uint32_t v, uint32_t *h, uint32_t step) {
    v ^= *h;
    *h *= step;
    v *= *h;
    return v ^ v >> 16;
}

static void seed_words(uint32_t seed, uint32_t out[8]) {
    uint32_t pool[4], h = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++) pool[i] = hash_word(i == 0 ? seed : 0, &h, 0x931e8875u);
    for (int s = 0; s < 4; s++) {
        for (int d = 0; d < 4; d++) {
            if (s == d) continue;
            uint32_t x = pool[d] * 0xca01f9ddu - hash_word(pool[s], &h, 0x931e8875u) * 0x4973f715u;
            pool[d] = x ^ x >> 16;
        }
    }
    uint32_t hb = 0x8b51f9ddu;
    for (int i = 0; i < 8; i++) out[i] = hash_word(pool[i % 4], &hb, 0x58f38dedu);
}

static uint64_t pcg_next(u128 *state, u128 inc) {
    const u128 mult = (u128)0x2360ed051fc65da4u << 64 | 0x4385df649fccf645u;
    *state = *state * mult + inc;
    uint64_t x = (uint64_t)(*state >> 64) ^ (uint64_t)*state;
    unsigned r = (unsigned)(*state >> 122);
    return x >> r | x << (-r & 63);
}

void by_engram_multipliers(int64_t *out, int layer_id, int n, int64_t vocab) {
    uint32_t w[8];
    seed_words((uint32_t)(10007 * layer_id), w);
    uint64_t q[4];
    for (int i = 0; i < 4; i++) q[i] = (uint64_t)w[2 * i + 1] << 32 | w[2 * i];
    u128 inc = ((u128)q[2] << 64 | q[3]) << 1 | 1, state = 0;
    const u128 start = (u128)q[0] << 64 | q[1];
    pcg_next(&state, inc);
    state += start;
    pcg_next(&state, inc);
    uint64_t bound = (uint64_t)(INT64_MAX / vocab / 2);
    if (bound < 1) bound = 1;
    for (int i = 0; i < n; i++) {
        u128 m = (u128)pcg_next(&state, inc) * bound;
        while ((uint64_t)m < (0 - bound) % bound) m = (u128)pcg_next(&state, inc) * bound;
        out[i] = (int64_t)(2 * (uint64_t)(m >> 64) + 1);
    }
}

void by_engram_grams(int32_t *grams, const int32_t *ids, int64_t first, int64_t n_rows, int n, int32_t pad) {
    for (int64_t i = 0; i < n_rows; i++) {
        int blocked = 0;
        for (int b = 0; b < n; b++) {
            int64_t p = first + i - b;
            blocked |= p < 0 || ids[p] == BY_ENGRAM_DEAD;
            grams[i * n + b] = blocked ? pad : ids[p];
        }
    }
}
