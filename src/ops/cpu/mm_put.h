/* mm_put.h - storing the results of a core; compiled with the flags of each kernel file that includes it. */
#ifndef BY_OPS_CPU_MM_PUT_H
#define BY_OPS_CPU_MM_PUT_H

#include <string.h>

#include "ops/cpu/cpu_mm.h"
#include "ops/formats.h"

/* One row; inlined twice, so that whole rows have a loop of known length. */
static inline __attribute__((always_inline)) void put_row(uint8_t *to, bool bf16, const float *y, int64_t n) {
    uint16_t *b = (uint16_t *)(void *)to;
    if (bf16)
        for (int64_t i = 0; i < n; i++) b[i] = by_bf16_of_f32(y[i]);
    else memcpy(to, y, (size_t)n * 4);
}

/* by_mm_way.put. */
static void put_rows(const by_mm_out *out, int64_t n0, const float *y, int64_t m, int64_t n) {
    const by_mm_out o = *out; /* a copy: the compiler then knows that the stores do not change it */
    uint8_t *at = o.y + n0 * (o.bf16 ? 2 : 4);
    for (int64_t i = 0; i < m; i++, y += BY_MM_ROWS) {
        uint8_t *to = at + (o.list ? o.list[i] : i) * o.stride;
        if (n == BY_MM_ROWS) {
            if (o.bf16) put_row(to, true, y, BY_MM_ROWS);
            else put_row(to, false, y, BY_MM_ROWS);
        } else {
            put_row(to, o.bf16, y, n);
        }
    }
}

#endif
