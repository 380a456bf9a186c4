/* cpu_mm.c - choosing kernels, blocks of products, and the slow exact path; see cpu_mm.h. */
#include "ops/cpu/cpu_mm.h"

#include <assert.h>
#include <string.h>

#include "ops/formats.h"

const by_mm_kernels *by_mm_kernels_for(by_isa isa) {
    switch (isa) {
#if defined(BY_CPU_X86)
    case BY_ISA_AVX2: return &by_mm_avx2;
    case BY_ISA_AVX512: return &by_mm_avx512;
    case BY_ISA_AVX512BF16: return &by_mm_avx512bf16;
    case BY_ISA_AMX: return &by_mm_amx;
#elif defined(BY_CPU_ARM)
    case BY_ISA_NEON: return &by_mm_neon;
#endif
    default: return NULL;
    }
}

static bool exists(const by_mm_way *way) { return way->core || way->many; }

const by_mm_way *by_mm_choose(const by_mm_kernels *kernels, by_mm_type w, by_mm_type x) {
    assert(w <= BY_MM_F32 && (x == BY_MM_A8 || x == BY_MM_BF16 || x == BY_MM_F32));
    for (const by_mm_kernels *k = kernels;; k = k->base) {
        if (x == BY_MM_A8 && w <= BY_MM_FP8 && exists(&k->a8[w])) return &k->a8[w];
        if (x == BY_MM_BF16 && w == BY_MM_BF16 && exists(&k->bf16)) return &k->bf16;
        if (x == BY_MM_BF16 && w == BY_MM_F32 && exists(&k->f32)) return &k->f32;
        if (exists(&k->plain[w])) return &k->plain[w];
    }
}

/* ---- the exact path ---------------------------------------------------------------------------------------------- */

static double wide_weight(const by_mm_weight *w, int64_t n, int64_t k) {
    const uint8_t *p = w->w + n * w->stride;
    switch (w->type) {
    case BY_MM_FP4:
        return (double)by_e2m1_to_f32((uint8_t)(p[k / 2] >> (k % 2 * 4))) *
               (double)by_ue8m0_to_f32(w->scale[n * w->scale_stride + k / 32]);
    case BY_MM_FP8:
        return (double)by_e4m3_to_f32(p[k]) * (double)by_ue8m0_to_f32(w->scale[n / 32 * w->scale_stride + k / 32]);
    case BY_MM_BF16: {
        uint16_t b;
        memcpy(&b, p + 2 * k, 2);
        return (double)by_bf16_to_f32(b);
    }
    default: {
        float f;
        memcpy(&f, p + 4 * k, 4);
        return (double)f;
    }
    }
}

static double wide_value(const by_mm_src *x, int64_t k) {
    if (x->type == BY_MM_A8) return (double)by_e4m3_to_f32(x->data[k]) * (double)by_ue8m0_to_f32(x->scale[k / 32]);
    if (x->type == BY_MM_BF16) {
        uint16_t b;
        memcpy(&b, x->data + 2 * k, 2);
        return (double)by_bf16_to_f32(b);
    }
    float f;
    memcpy(&f, x->data + 4 * k, 4);
    return (double)f;
}

float by_mm_wide(const by_mm_weight *w, int64_t n, const by_mm_src *x) {
    double sum = 0;
    for (int64_t k = 0; k < w->k; k++) sum += wide_weight(w, n, k) * wide_value(x, k);
    return (float)sum;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static by_mm_src source_row(const by_mm_rows *x, int64_t i) {
    by_mm_src src = x->src;
    src.data += i * x->src_stride;
    if (src.scale) src.scale += i * x->src_stride;
    return src;
}

void by_mm_pack_rows(const by_mm_way *way, const by_mm_rows *x, int64_t i0, int64_t i1, int64_t k, int64_t g0, int64_t g1) {
    assert(i0 % way->block == 0 && (i1 % way->block == 0 || i1 == x->n || way->block == 1));
    for (int64_t i = i0; i < i1; i += way->block) {
        by_mm_src src[BY_MM_BLOCK];
        int32_t n = (int32_t)(i1 - i < way->block ? i1 - i : way->block);
        for (int32_t j = 0; j < n; j++) src[j] = source_row(x, way->block > 1 && x->list ? x->list[i + j] : i + j);
        uint32_t unsafe = way->pack(x->packed + i * x->stride, n, src, k, g0, g1);
        for (; unsafe; unsafe &= unsafe - 1) /* other threads may store the same one */
            __atomic_store_n(&x->unsafe[i + __builtin_ctz(unsafe)], 1, __ATOMIC_RELAXED);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static size_t fold_stride(int64_t k) { /* off the powers of two */
    return (size_t)((k + 63) / 64 * 64) * 2 + 64;
}

static size_t core_scratch(const by_mm_kernels *k) {
    size_t most = 0;
    for (; k; k = k->base) {
        for (int i = 0; i < 2; i++) most = k->a8[i].scratch_bytes > most ? k->a8[i].scratch_bytes : most;
        most = k->bf16.scratch_bytes > most ? k->bf16.scratch_bytes : most;
        most = k->f32.scratch_bytes > most ? k->f32.scratch_bytes : most;
    }
    return most;
}

/* Results, then what the core needs: folded rows or its own buffers, never both. */
enum { RESULTS = BY_MM_MT * BY_MM_ROWS, RESULT_BYTES = BY_MM_JOBS * RESULTS * (int)sizeof(float), FOLD_ROWS = 8 };
size_t by_mm_scratch_bytes(const by_mm_kernels *kernels, int64_t k) {
    size_t folded = FOLD_ROWS * fold_stride(k), own = core_scratch(kernels);
    return RESULT_BYTES + (folded > own ? folded : own);
}

static uint8_t *core_scratch_of(void *scratch) { return (uint8_t *)scratch + RESULT_BYTES; }

void by_mm_enter(const by_mm_kernels *kernels, void *scratch) {
    for (const by_mm_kernels *k = kernels; k; k = k->base)
        if (k->enter) k->enter(core_scratch_of(scratch));
}
void by_mm_leave(const by_mm_kernels *kernels, void *scratch) {
    for (const by_mm_kernels *k = kernels; k; k = k->base)
        if (k->leave) k->leave(core_scratch_of(scratch));
}

static bool all_between(const uint8_t *s, int64_t n, uint8_t lo, uint8_t hi) {
    uint8_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (uint8_t)(s[i] < lo) | (uint8_t)(s[i] > hi);
    return !bad;
}

/* f32 cores: rows with a scale byte beyond what they take. */
static uint32_t rows_beyond_scale(const by_mm_weight *w, int64_t n0, int64_t n1) {
    int64_t groups = by_mm_groups(w->k);
    if (w->type > BY_MM_FP8) return 0;
    if (w->type == BY_MM_FP8)
        return all_between(w->scale + n0 / BY_MM_ROWS * w->scale_stride, groups, 0, BY_MM_SCALE_MAX) ? 0 : UINT32_MAX;
    uint32_t bad = 0;
    for (int64_t n = n0; n < n1; n++)
        if (!all_between(w->scale + n * w->scale_stride, groups, 0, BY_MM_SCALE_MAX)) bad |= UINT32_C(1) << (n - n0);
    return bad;
}

static by_mm_tile tile_of(const by_mm_job *j, const by_mm_rows *x, uint8_t *work) {
    const by_mm_weight *w = j->w;
    assert(j->n0 < j->n1 && j->n0 / BY_MM_ROWS == (j->n1 - 1) / BY_MM_ROWS);
    int64_t scale_row = w->type == BY_MM_FP8 ? j->n0 / BY_MM_ROWS : j->n0;
    return (by_mm_tile){.w = w->w + j->n0 * w->stride, .scale = w->scale ? w->scale + scale_row * w->scale_stride : NULL,
                        .stride = w->stride, .scale_stride = w->scale_stride, .k = w->k, .n_rows = (int32_t)(j->n1 - j->n0),
                        .x_stride = x->stride, .y = j->y, .n0 = j->n0, .scratch = work};
}

static void put_one(const by_mm_out *out, int64_t n, int64_t m, float value) {
    uint8_t *to = out->y + (out->list ? out->list[m] : m) * out->stride;
    uint16_t b = by_bf16_of_f32(value);
    if (out->bf16) memcpy(to + n * 2, &b, 2);
    else memcpy(to + n * 4, &value, 4);
}

/* Computes again what the core could not, of m rows from m0 on; to out, or y where that is NULL. */
static void repair(const by_mm_way *way, const by_mm_job *j, uint32_t bad, const by_mm_rows *x, int64_t m0, int64_t m, const by_mm_out *out,
                   float *y) {
    uint32_t all = UINT32_MAX >> (BY_MM_ROWS - (j->n1 - j->n0));
    if (!bad && way->block > 1 && !memchr(x->unsafe + m0, 1, (size_t)m)) return; /* nearly always */
    for (int64_t i = 0; i < m; i++) {
        bool unsafe = x->unsafe[way->block == 1 && x->list ? x->list[m0 + i] : m0 + i];
        uint32_t rows = unsafe ? all : bad & all;
        by_mm_src src = source_row(x, x->list ? x->list[m0 + i] : m0 + i);
        for (; rows; rows &= rows - 1) {
            int r = __builtin_ctz(rows);
            float value = by_mm_wide(j->w, j->n0 + r, &src);
            if (out) put_one(out, j->n0 + r, i, value);
            else y[i * BY_MM_ROWS + r] = value;
        }
    }
}

/* Cores that take some rows of x at a time, wherever those lie. */
static void multiply_one(const by_mm_way *way, const by_mm_job *j, const by_mm_rows *x, int64_t m0, int64_t m1, uint8_t *work) {
    by_mm_tile t = tile_of(j, x, work);
    const by_mm_weight *w = j->w;
    bool fold = way->fold && all_between(t.scale, by_mm_groups(w->k), BY_MM_SAFE_LO, BY_MM_SAFE_HI);
    uint32_t bad = way->bf16 ? 0 : rows_beyond_scale(w, j->n0, j->n1);
    for (int64_t m = m0; m < m1; m += way->mt) {
        const uint8_t *rows[FOLD_ROWS];
        t.m = (int32_t)(m1 - m < way->mt ? m1 - m : way->mt);
        t.y = j->y + (m - m0) * BY_MM_ROWS;
        t.x = x->packed + m * x->stride;
        t.rows = rows;
        for (int32_t i = 0; i < t.m; i++) rows[i] = x->packed + (x->list ? x->list[m + i] : m + i) * x->stride;
        if (fold) {
            way->fold(work, (int64_t)fold_stride(w->k), rows, t.m, w->k, t.scale);
            for (int32_t i = 0; i < t.m; i++) rows[i] = work + (size_t)i * fold_stride(w->k);
        }
        t.folded = fold;
        bad |= way->core(&t);
        repair(way, j, bad, x, m, t.m, NULL, t.y);
    }
}

/* All jobs at once; to out, row 0 of which (of its list) is row m0, or to the jobs' y. */
static void multiply_many(const by_mm_way *way, const by_mm_job *jobs, int n_jobs, const by_mm_rows *x, int64_t m0, int64_t m1,
                          const by_mm_out *out, uint8_t *work) {
    by_mm_tile tiles[BY_MM_JOBS];
    uint32_t bad[BY_MM_JOBS];
    int n = 0;
    do {
        tiles[n] = tile_of(&jobs[n], x, work);
        tiles[n].m = (int32_t)(m1 - m0);
        tiles[n].x = x->packed + m0 * x->stride;
        tiles[n].out = out;
    } while (++n < n_jobs);
    way->many(tiles, n_jobs, bad);
    for (int i = 0; i < n_jobs; i++) repair(way, &jobs[i], bad[i], x, m0, m1 - m0, out, jobs[i].y);
}

void by_mm_blocks_f32(const by_mm_way *way, const by_mm_job *jobs, int n_jobs, const by_mm_rows *x, int64_t m0, int64_t m1, void *scratch) {
    assert(n_jobs >= 1 && n_jobs <= BY_MM_JOBS && m1 - m0 <= BY_MM_MT && m0 % way->block == 0);
    uint8_t *work = core_scratch_of(scratch);
    if (way->many) multiply_many(way, jobs, n_jobs, x, m0, m1, NULL, work);
    else
        for (int i = 0; i < n_jobs; i++) multiply_one(way, &jobs[i], x, m0, m1, work);
}

void by_mm_block_f32(const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1, const by_mm_rows *x, int64_t m0,
                     int64_t m1, float *y, void *scratch) {
    by_mm_blocks_f32(way, &(by_mm_job){w, n0, n1, y}, 1, x, m0, m1, scratch);
}

void by_mm_block(const by_mm_way *way, const by_mm_weight *w, int64_t n0, int64_t n1, const by_mm_rows *x, int64_t m0,
                 int64_t m1, const by_mm_out *out, void *scratch) {
    float *y = scratch;
    for (int64_t m = m0; m < m1; m += BY_MM_MT) {
        int64_t end = m1 - m < BY_MM_MT ? m1 : m + BY_MM_MT;
        by_mm_out rest = *out;
        if (rest.list) rest.list += m;
        else rest.y += m * rest.stride;
        for (int64_t n = n0; n < n1;) {
            by_mm_job jobs[BY_MM_JOBS];
            int count = 0;
            for (; n < n1 && count < BY_MM_JOBS; n = jobs[count++].n1) {
                int64_t tile_end = (n / BY_MM_ROWS + 1) * BY_MM_ROWS;
                jobs[count] = (by_mm_job){w, n, tile_end < n1 ? tile_end : n1, y + count * RESULTS};
            }
            if (way->many) {
                multiply_many(way, jobs, count, x, m, end, &rest, core_scratch_of(scratch));
                continue;
            }
            by_mm_blocks_f32(way, jobs, count, x, m, end, scratch);
            for (int i = 0; i < count; i++) way->put(&rest, jobs[i].n0, jobs[i].y, end - m, jobs[i].n1 - jobs[i].n0);
        }
    }
}
