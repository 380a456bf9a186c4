/* sample_pick.c - see sample_pick.h. Only integer sums decide, so the result depends on the weights alone. */
#include "sample/sample_pick.h"

#include <string.h>

#include "sample/sample_math.h"
#include "sample/sample_scratch.h"

static uint32_t lane_count(int32_t V) {
    if (V >= 8192) return 2048;
    uint32_t n = 1;
    while (n < (uint32_t)V)
        n *= 2;
    return n;
}

/* A number in [0, total) from the stream. */
static uint64_t draw_below(uint64_t total, by_sample_stream *stream, by_sample_rule rule) {
    if (rule == BY_SAMPLE_SMOOTH) return (uint64_t)((unsigned __int128)by_sample_stream_word(stream) * total >> 32);
    uint64_t limit = 0xffffffffu / total * total, word;
    if (limit == 0) return by_sample_stream_word(stream); /* a total of 2^32 or more needs weights with a sum of 2 */
    do
        word = by_sample_stream_word(stream);
    while (word >= limit);
    return word % total;
}

/* Last step: the column of lane k whose masses cross r. */
static int32_t column_of_lane(const by_sample_weights *w, uint32_t k, uint32_t n_lanes, uint64_t r) {
    if (w->ids) {
        for (int32_t i = 0; i < w->n; i++) {
            if (((uint32_t)w->ids[i] & (n_lanes - 1)) != k) continue;
            uint32_t mass = by_sample_mass(w->x[i]);
            if (r < mass) return w->ids[i];
            r -= mass;
        }
    } else {
        for (uint32_t c = k; c < (uint32_t)w->V; c += n_lanes) {
            uint32_t mass = by_sample_mass(w->x[c]);
            if (r < mass) return (int32_t)c;
            r -= mass;
        }
    }
    return -1; /* not reached: the lane's masses sum to more than r */
}

enum { FEW = 16, LANE_BLOCK = 256 };

/* Few listed columns: put in the order of lanes and columns, they need no lanes. */
static int32_t pick_of_few(const by_sample_weights *w, uint32_t n_lanes, by_sample_stream *stream, by_sample_rule rule) {
    int32_t id[FEW];
    uint32_t mass[FEW];
    uint64_t total = 0;
    for (int32_t i = 0; i < w->n; i++) {
        uint32_t m = by_sample_mass(w->x[i]), lane = (uint32_t)w->ids[i] & (n_lanes - 1);
        int32_t at = i;
        for (; at > 0 && ((uint32_t)id[at - 1] & (n_lanes - 1)) > lane; at--) {
            id[at] = id[at - 1];
            mass[at] = mass[at - 1];
        }
        id[at] = w->ids[i];
        mass[at] = m;
        total += m;
    }
    if (total == 0) return -1;
    uint64_t r = draw_below(total, stream, rule);
    int32_t i = 0;
    for (; i + 1 < w->n && r >= mass[i]; i++) r -= mass[i];
    return id[i];
}

/* The lane that r falls into, with what is left of r; sums of blocks first. */
static uint32_t find_lane(const by_sample_scratch *s, uint32_t n_lanes, uint64_t *r) {
    uint32_t k = 0;
    for (; k + LANE_BLOCK < n_lanes; k += LANE_BLOCK) {
        uint64_t sum = s->kernels->total(s->lanes + k, LANE_BLOCK);
        if (*r < sum) break;
        *r -= sum;
    }
    for (; k + 1 < n_lanes && *r >= s->lanes[k]; k++) *r -= s->lanes[k];
    return k;
}

int32_t by_sample_pick(const by_sample_weights *w, by_sample_stream *stream, by_sample_rule rule,
                       by_sample_scratch *s) {
    uint32_t *lanes = s->lanes;
    uint32_t n_lanes = lane_count(w->V);
    if (w->ids && w->n <= FEW) return pick_of_few(w, n_lanes, stream, rule);
    memset(lanes, 0, n_lanes * sizeof lanes[0]);
    if (w->ids) {
        for (int32_t i = 0; i < w->n; i++)
            lanes[(uint32_t)w->ids[i] & (n_lanes - 1)] += by_sample_mass(w->x[i]);
    } else {
        for (uint32_t at = 0; at < (uint32_t)w->V; at += n_lanes) {
            uint32_t len = (uint32_t)w->V - at < n_lanes ? (uint32_t)w->V - at : n_lanes;
            s->kernels->add_mass(lanes, w->x + at, len);
        }
    }
    uint64_t total = s->kernels->total(lanes, n_lanes);
    if (total == 0) return -1;
    uint64_t r = draw_below(total, stream, rule);
    uint32_t lane = find_lane(s, n_lanes, &r);
    return column_of_lane(w, lane, n_lanes, r);
}

uint64_t by_sample_mass_sum(const by_sample_weights *w) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < w->n; i++)
        sum += by_sample_mass(w->x[i]);
    return sum;
}
