/* unicode_fold.c - see unicode_fold.h. */
#include "tok/unicode_fold.h"

#include <string.h>

#include "base/utf8.h"

/* Hangul syllables by the arithmetic of the Unicode standard, section 3.12: leading, vowel, perhaps trailing jamo. */
static size_t decompose_hangul(uint32_t cp, char *out) {
    enum { VOWELS = 21, TRAILS = 28 };
    uint32_t s = cp - 0xac00;
    size_t n = by_utf8_put(0x1100 + s / (VOWELS * TRAILS), out);
    n += by_utf8_put(0x1161 + s / TRAILS % VOWELS, out + n);
    if (s % TRAILS) n += by_utf8_put(0x11a7 + s % TRAILS, out + n);
    return n;
}

/* The last run that begins at or before cp, NULL when there is none. */
static const by_unicode_fold_run *find_run(uint32_t cp) {
    size_t lo = 0, hi = by_unicode_fold_n_runs;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (by_unicode_fold_runs[mid].first <= cp) lo = mid + 1;
        else hi = mid;
    }
    return lo ? &by_unicode_fold_runs[lo - 1] : NULL;
}

size_t by_unicode_fold(uint32_t cp, char out[BY_UNICODE_FOLD_MAX]) {
    if (cp >= 0xac00 && cp < 0xac00 + 11172) return decompose_hangul(cp, out);
    const by_unicode_fold_run *run = find_run(cp);
    if (!run) return by_utf8_put(cp, out);
    uint32_t kind = run->count_kind & 3, count = run->count_kind >> 2, at = cp - run->first;
    if (kind == BY_FOLD_SHIFT_2) {
        if (at % 2) return by_utf8_put(cp, out);
        at /= 2;
    }
    if (at >= count) return by_utf8_put(cp, out);
    if (kind == BY_FOLD_DELETE) return 0;
    if (kind == BY_FOLD_TEXT) {
        const uint8_t *text = by_unicode_fold_texts + run->value;
        memcpy(out, text + 1, text[0]);
        return text[0];
    }
    return by_utf8_put((uint32_t)((int32_t)cp + by_unicode_fold_shifts[run->value]), out);
}
