/* tally.c - see tally.h. */
#include "engine/tally.h"

#include <math.h>

int64_t by_tally_bound(int i) {
    static const int64_t digit[] = {1, 2, 5};
    int64_t power = 1;
    for (int k = i / 3; k > 0; k--) power *= 10;
    return digit[i % 3] * power;
}

void by_tally_add(by_tally *t, int64_t v) {
    int i = 0;
    while (i < BY_TALLY_BOUNDS && v > by_tally_bound(i)) i++;
    t->n[i]++;
    t->sum += (uint64_t)v;
}

uint64_t by_tally_count(const by_tally *t) {
    uint64_t n = 0;
    for (int i = 0; i <= BY_TALLY_BOUNDS; i++) n += t->n[i];
    return n;
}

double by_tally_quantile(const by_tally *t, double share) {
    uint64_t seen = 0, all = by_tally_count(t);
    if (all == 0) return 0;
    for (int i = 0; i < BY_TALLY_BOUNDS; i++) {
        seen += t->n[i];
        if (seen > 0 && (double)seen >= share * (double)all) return (double)by_tally_bound(i);
    }
    return INFINITY;
}
