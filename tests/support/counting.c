/* counting.c - see counting.h. */
#include "support/counting.h"

#include <inttypes.h>
#include <stdio.h>

by_alloc_mark by_alloc_mark_now(void) {
    by_alloc_mark m = {.calls = by_alloc_calls()};
    for (int t = 0; t < BY_MEM_N; t++)
        m.bytes[t] = by_alloc_bytes((by_mem_tag)t);
    return m;
}

bool by_alloc_none_since(const by_alloc_mark *m, const char *what) {
    uint64_t n = by_alloc_calls() - m->calls;
    if (n > 0) fprintf(stderr, "%s: %" PRIu64 " allocations\n", what, n);
    return n == 0;
}

bool by_alloc_balanced_since(const by_alloc_mark *m, const char *what) {
    bool ok = true;
    for (int t = 0; t < BY_MEM_N; t++) {
        int64_t more = by_alloc_bytes((by_mem_tag)t) - m->bytes[t];
        if (more == 0) continue;
        fprintf(stderr, "%s: %+" PRId64 " bytes under %s\n", what, more, by_mem_tag_name((by_mem_tag)t));
        ok = false;
    }
    return ok;
}

int by_alloc_fail_each(by_alloc_body body, void *arg, int n_max) {
    for (int n = 1; n <= n_max; n++) {
        by_alloc_mark before = by_alloc_mark_now();
        by_alloc_fail_nth(n);
        by_status status = body(arg);
        uint64_t calls = by_alloc_calls() - before.calls;
        by_alloc_fail_nth(0);
        if (!by_alloc_balanced_since(&before, "after a failed allocation")) return 0;
        if (status >= 0 && calls < (uint64_t)n) return n - 1;
        if (status == BY_ENOMEM) continue;
        fprintf(stderr, "allocation %d failed, but the status is %s\n", n, by_status_name(status));
        return 0;
    }
    fprintf(stderr, "more than %d allocations\n", n_max);
    return 0;
}

uint64_t by_bits_hash(uint64_t seed, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        seed = (seed ^ p[i]) * 0x100000001b3u;
    return seed;
}
