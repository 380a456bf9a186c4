/* checkpoint_values.c - looks for numbers that no weight may have. A tensor is read in pieces: an OR over a fixed count
 * of elements, which compilers turn into vector code, says whether a piece is clean; only a dirty piece is searched for
 * its place. Checking a large model gives its pages back as it goes, so that resident memory stays small. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "model/checkpoint_impl.h"

enum { PIECE = 4096, RELEASE_BYTES = 64 << 20 };

/* One function per element: is value i of p bad? */
#define IS_E8M0_NAN(v) ((v) == 0xff)
#define IS_E4M3_NAN(v) (((v)&0x7f) == 0x7f)
#define IS_E5M2_BAD(v) (((v)&0x7c) == 0x7c)
#define IS_BF16_BAD(v) (((v)&0x7f80) == 0x7f80)
#define IS_F16_BAD(v)  (((v)&0x7c00) == 0x7c00)
#define IS_F32_BAD(v)  (((v)&0x7f800000u) == 0x7f800000u)

/* First bad element of p[0..n), n when there is none. */
#define DEFINE_FIRST_BAD(name, type, is_bad)                                                                           \
    static size_t name(const type *p, size_t n) {                                                                      \
        size_t i = 0;                                                                                                  \
        for (; i + PIECE <= n; i += PIECE) {                                                                           \
            type any = 0;                                                                                              \
            for (size_t k = 0; k < PIECE; k++)                                                                         \
                any |= (type)(is_bad(p[i + k]) ? 1 : 0);                                                               \
            if (any) break;                                                                                            \
        }                                                                                                              \
        for (; i < n; i++)                                                                                             \
            if (is_bad(p[i])) return i;                                                                                \
        return n;                                                                                                      \
    }

DEFINE_FIRST_BAD(first_bad_e8m0, uint8_t, IS_E8M0_NAN)
DEFINE_FIRST_BAD(first_bad_e4m3, uint8_t, IS_E4M3_NAN)
DEFINE_FIRST_BAD(first_bad_e5m2, uint8_t, IS_E5M2_BAD)
DEFINE_FIRST_BAD(first_bad_bf16, uint16_t, IS_BF16_BAD)
DEFINE_FIRST_BAD(first_bad_f16, uint16_t, IS_F16_BAD)
DEFINE_FIRST_BAD(first_bad_f32, uint32_t, IS_F32_BAD)

static size_t first_bad(by_st_dtype dtype, const void *p, size_t n) {
    switch (dtype) {
    case BY_ST_F8_E8M0: return first_bad_e8m0(p, n);
    case BY_ST_F8_E4M3: return first_bad_e4m3(p, n);
    case BY_ST_F8_E5M2: return first_bad_e5m2(p, n);
    case BY_ST_BF16: return first_bad_bf16(p, n);
    case BY_ST_F16: return first_bad_f16(p, n);
    case BY_ST_F32: return first_bad_f32(p, n);
    default: return n;
    }
}

static bool has_bad_codes(by_st_dtype dtype) {
    return dtype == BY_ST_F8_E8M0 || dtype == BY_ST_F8_E4M3 || dtype == BY_ST_F8_E5M2 || dtype == BY_ST_BF16 ||
           dtype == BY_ST_F16 || dtype == BY_ST_F32;
}

/* The whole pages that hold [from, from + n). */
static void advise(const char *from, size_t n, int advice) {
    uintptr_t a = (uintptr_t)from & ~(uintptr_t)4095, b = ((uintptr_t)from + n + 4095) & ~(uintptr_t)4095;
    madvise((void *)a, b - a, advice);
}

/* A clean file mapping: the bytes stay in the page cache. */
static void release(const char *from, size_t n) {
    advise(from, n, MADV_DONTNEED);
}

static void describe(const by_ckpt_tensor *t, size_t at, by_problems *problems) {
    const char *what = t->dtype == BY_ST_F8_E8M0   ? "scale byte 255 (not a number)"
                       : t->dtype == BY_ST_F8_E4M3 ? "not a number"
                                                   : "not a number or infinite";
    char place[64];
    int64_t cols = t->n_dims > 1 ? t->shape[t->n_dims - 1] : 0;
    if (t->n_dims == 2)
        snprintf(place, sizeof place, "[%" PRId64 ", %" PRId64 "]", (int64_t)at / cols, (int64_t)at % cols);
    else
        snprintf(place, sizeof place, "[%zu]", at);
    by_problems_add(problems, "tensor %s: %s at %s", t->name.ptr, what, place);
}

static void check_tensor(const by_ckpt_tensor *t, bool give_back, by_problems *problems) {
    size_t element = (size_t)by_st_dtype_bits(t->dtype) / 8, n = (size_t)t->bytes / element;
    size_t step = RELEASE_BYTES / element;
    const char *data = t->data;
    for (size_t i = 0; i < n; i += step) {
        size_t m = n - i < step ? n - i : step, bad = first_bad(t->dtype, data + i * element, m);
        if (give_back && m == step) release(data + i * element, m * element);
        if (bad == m) continue;
        describe(t, i + bad, problems);
        return;
    }
}

static bool wanted(const by_ckpt_record *r, by_check_level level, bool small_only) {
    if (!r->t.expected || r->t.bytes == 0 || !has_bad_codes(r->t.dtype)) return false;
    if (level == BY_CHECK_FULL) return true;
    return !r->engram && (!small_only || r->t.bytes <= BY_CHECK_SMALL_BYTES);
}

by_status by_checkpoint_check_values(const by_checkpoint *ck, by_check_level level, int64_t *bytes_checked,
                                     by_problems *problems, by_err *err) {
    if (bytes_checked) *bytes_checked = 0;
    if (level == BY_CHECK_NONE) return BY_OK;
    int64_t total = 0, seen = 0, since_release = 0;
    for (uint32_t i = 0; i < ck->names.n; i++)
        if (wanted(&ck->records[i], level, false)) total += ck->records[i].t.bytes;
    bool large = total > BY_CHECK_AUTO_BYTES, small_only = level == BY_CHECK_AUTO && large;
    by_problems own = {0};
    for (uint32_t i = 0; i < ck->names.n; i++) {
        const by_ckpt_record *r = &ck->records[i];
        if (!wanted(r, level, small_only)) continue;
        const by_ckpt_shard *shard = &ck->shards[r->t.shard];
        const unsigned char *data = r->t.data;
        bool give_back = large && data >= shard->map.ptr && data < shard->map.ptr + shard->map.size;
        /* scattered small tensors: reading ahead would fetch the experts around them */
        if (give_back && small_only) advise(r->t.data, (size_t)r->t.bytes, MADV_RANDOM);
        check_tensor(&r->t, give_back, &own);
        if (give_back && small_only) advise(r->t.data, (size_t)r->t.bytes, MADV_NORMAL);
        seen += r->t.bytes;
        since_release += r->t.bytes;
        if (give_back && since_release >= RELEASE_BYTES) { /* many small tensors add up as well */
            release((const char *)shard->map.ptr, (size_t)(data - shard->map.ptr));
            since_release = 0;
        }
    }
    if (bytes_checked) *bytes_checked = seen;
    by_status status = by_problems_check(&own, BY_ENUMERIC, err);
    by_problems_append(problems, &own, "");
    by_problems_deinit(&own);
    return status;
}
