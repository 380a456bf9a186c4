/* cpu_index.c - index scores and selection. Source: model.md section 7.
 *
 *   phase 1  scores of the entries a row must rank, piece by piece
 *   phase 2  for each row: the best entries, the candidate blocks
 *
 * Scores become unsigned keys in the same order; the k-th largest key is found by histograms over 11, 11 and 10 bits, and of
 * the entries equal to it the lowest stay: linear in the number of entries, and the order asked for comes for free. */
#include <string.h>

#include "ops/cpu/cpu_ops.h"

enum { PIECE = 256, BUCKETS = 2048 };
#define SCORES_MAX (INT64_C(1) << 24) /* 64 MiB of scores at a time */

typedef struct {
    const by_index_select_args *a;
    const by_vec *vec;
    int64_t n_max, pieces;
    float *score;    /* [rows][n_max] */
    float *queries;  /* [rows][heads * d] */
    float *scratch;  /* [threads][per_thread] */
    int64_t per_thread;
    int64_t row0, n_rows; /* the rows at hand */
} selection;

/* ---- what a row has to do ---------------------------------------------------------------------------------------- */

typedef struct {
    int32_t n;        /* visible entries */
    bool score_all, cut_blocks, inside;
    const int32_t *cand;
} task;

static task task_of(const by_index_select_args *a, int64_t t) {
    task k = {.n = (*by_tensor_i32(&a->batch.row_pos, t) + 1) / a->ratio};
    const int32_t *cand = by_tensor_is(&a->cand) ? by_tensor_i32(&a->cand, t) : NULL;
    k.cut_blocks = a->mode == BY_CAND_SOURCE && (k.n + a->cand_block_size - 1) / a->cand_block_size > a->cand_blocks;
    bool rank = k.n > a->topk || k.cut_blocks || by_tensor_is(&a->scores);
    k.inside = rank && a->mode == BY_CAND_INSIDE && cand[0] >= 0;
    k.cand = cand;
    k.score_all = rank && !k.inside;
    return k;
}

/* Number of entries to score: all, or those of the candidate blocks, in order. */
static int64_t n_to_score(const by_index_select_args *a, const task *k) {
    if (!k->inside) return k->score_all ? k->n : 0;
    int64_t n = 0;
    for (int32_t i = 0; i < k->cand[0]; i++) {
        int64_t first = (int64_t)k->cand[1 + i] * a->cand_block_size, left = k->n - first;
        n += left < a->cand_block_size ? (left > 0 ? left : 0) : a->cand_block_size;
    }
    return n;
}

/* The i-th of them. */
static int32_t entry_at(const by_index_select_args *a, const task *k, int64_t i) {
    return k->inside ? k->cand[1 + i / a->cand_block_size] * a->cand_block_size + (int32_t)(i % a->cand_block_size) : (int32_t)i;
}

/* ---- phase 1 ----------------------------------------------------------------------------------------------------- */

static void load_query(const selection *p, int64_t t, float *q) {
    const by_index_select_args *a = p->a;
    if (a->q.dtype == BY_F32) {
        memcpy(q, by_tensor_row(&a->q, t), (size_t)a->heads * (size_t)a->d * 4);
        return;
    }
    for (int32_t h = 0; h < a->heads; h++) {
        const unsigned char *at = by_tensor_row(&a->q, t * a->heads + h);
        p->vec->rec_load(q + (int64_t)h * a->d, BY_REC_IX4, at, at + a->d / 2, a->d);
    }
}

static void query_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const selection *p = arg;
    int64_t hd = (int64_t)p->a->heads * p->a->d;
    for (int64_t i = begin; i < end; i++) load_query(p, p->row0 + i, p->queries + i * hd);
}

/* Items are (row, piece of its entries). */
static void score_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const selection *p = arg;
    const by_index_select_args *a = p->a;
    int64_t d = a->d;
    float *keys = p->scratch + worker * p->per_thread, *s = keys + PIECE * d, *w = s + a->heads * PIECE;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = i / p->pieces, t = p->row0 + r, first = i % p->pieces * PIECE;
        task k = task_of(a, t);
        int64_t total = n_to_score(a, &k), n = total - first < PIECE ? total - first : PIECE;
        if (n <= 0) continue;
        int32_t seq = *by_tensor_i32(&a->batch.row_seq, t);
        for (int64_t j = 0; j < n; j++) {
            unsigned char *scales = NULL, *at = by_page_entry(&a->keys, &a->batch, seq, entry_at(a, &k, first + j), d, &scales);
            if (a->keys.rec != BY_REC_IX4) scales = a->keys.rec == BY_REC_FP8 ? at + d : at + d / 2;
            p->vec->rec_load(keys + j * d, a->keys.rec, at, scales, d);
        }
        p->vec->load(w, a->weights.dtype, by_tensor_row(&a->weights, t), a->heads);
        p->vec->scores(s, PIECE, p->queries + r * a->heads * d, d, a->heads, keys, n, d, 1);
        float *score = p->score + r * p->n_max + first;
        p->vec->head_sum(score, s, PIECE, w, a->heads, n, a->scale);
        if (a->round_bf16) p->vec->round(score, BY_BF16, n);
        for (int64_t j = 0; j < n; j++) score[j] += 0.0f; /* -0 becomes +0: they rank equal */
    }
}

/* ---- phase 2 ----------------------------------------------------------------------------------------------------- */

/* Larger floats, larger keys. */
static uint32_t key_of(float x) {
    uint32_t u = by_f32_bits(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The k-th largest of n > k > 0 keys; *above gets the number of larger ones. */
static uint32_t kth_largest(const float *score, int64_t n, int64_t k, int32_t *histogram, int64_t *above) {
    static const int shifts[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
    uint32_t prefix = 0, mask = 0;
    int64_t more = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t buckets = UINT32_C(1) << bits[pass];
        memset(histogram, 0, buckets * sizeof *histogram);
        for (int64_t i = 0; i < n; i++) {
            uint32_t u = key_of(score[i]);
            if ((u & mask) == prefix) histogram[u >> shifts[pass] & (buckets - 1)]++;
        }
        uint32_t b = buckets - 1;
        while (more + histogram[b] < k) more += histogram[b--];
        prefix |= b << shifts[pass];
        mask |= (buckets - 1) << shifts[pass];
    }
    *above = more;
    return prefix;
}

/* The k best of n scores into out: count, then their places ascending. */
static void keep_top(const float *score, int64_t n, int32_t k, int32_t *histogram, int32_t *out) {
    if (n <= k) {
        out[0] = (int32_t)n;
        for (int64_t i = 0; i < n; i++) out[1 + i] = (int32_t)i;
        return;
    }
    int64_t above;
    uint32_t limit = kth_largest(score, n, k, histogram, &above);
    int32_t equal = k - (int32_t)above, at = 1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = key_of(score[i]);
        if (u > limit || (u == limit && equal-- > 0)) out[at++] = (int32_t)i;
    }
    out[0] = at - 1;
}

/* Candidate blocks of a row from its n scores; the last visible block always stays. */
static void choose_blocks(const by_index_select_args *a, int32_t n, float *score, int32_t *histogram, int32_t *out) {
    int32_t size = a->cand_block_size, blocks = (n + size - 1) / size;
    for (int32_t b = 0; b < blocks; b++) { /* in place: block b's best goes where no later block begins */
        float best = score[b * size];
        for (int32_t c = b * size + 1; c < (b + 1) * size && c < n; c++) best = score[c] > best ? score[c] : best;
        score[b] = best;
    }
    score[blocks - 1] = by_f32_of_bits(0x7f800000u);
    keep_top(score, blocks, a->cand_blocks, histogram, out);
}

static void select_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const selection *p = arg;
    const by_index_select_args *a = p->a;
    int32_t *histogram = (int32_t *)(void *)(p->scratch + worker * p->per_thread);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = p->row0 + i;
        task k = task_of(a, t);
        int32_t *sel = by_tensor_i32_mut(&a->sel, t);
        if (a->mode == BY_CAND_SOURCE && !k.cut_blocks) by_tensor_i32_mut(&a->cand, t)[0] = -1;
        sel[0] = -1;
        if (!k.score_all && !k.inside) continue;
        float *score = p->score + i * p->n_max;
        int64_t n = n_to_score(a, &k);
        if (by_tensor_is(&a->scores)) {
            float *to = by_tensor_f32(&a->scores, t);
            for (int32_t c = 0; c < k.n; c++) to[c] = by_f32_of_bits(0xff800000u);
            for (int64_t j = 0; j < n; j++) to[entry_at(a, &k, j)] = score[j];
        }
        if (k.n > a->topk) {
            keep_top(score, n, a->topk, histogram, sel);
            for (int32_t j = 0; k.inside && j < sel[0]; j++) sel[1 + j] = entry_at(a, &k, sel[1 + j]);
        }
        if (k.cut_blocks) choose_blocks(a, k.n, score, histogram, by_tensor_i32_mut(&a->cand, t));
    }
}

/* ---- the operator ------------------------------------------------------------------------------------------------ */

static void region(void *arg, by_team *team) {
    const selection *p = arg;
    selection own = *p;
    int64_t T = p->a->batch.n_rows;
    for (own.row0 = 0; own.row0 < T; own.row0 += p->n_rows) {
        int64_t rows = T - own.row0 < p->n_rows ? T - own.row0 : p->n_rows;
        by_team_for(team, rows, 1, query_items, &own);
        by_team_for(team, rows * p->pieces, 1, score_items, &own);
        by_team_for(team, rows, 1, select_items, &own);
    }
}

by_status by_cpu_index_select(by_device *dev, const by_index_select_args *a, by_err *err) {
    int64_t T = a->batch.n_rows, d = a->d, hd = (int64_t)a->heads * d;
    if (d % 32 != 0) return by_ops_ref.index_select(dev, a, err);
    if (T == 0) return BY_OK;
    selection p = {.a = a, .vec = by_cpu_of(dev)->vec, .n_max = a->n_entries_max > 0 ? a->n_entries_max : 1};
    p.pieces = (p.n_max + PIECE - 1) / PIECE;
    p.n_rows = SCORES_MAX / p.n_max;
    p.n_rows = p.n_rows < 1 ? 1 : p.n_rows > T ? T : p.n_rows;
    p.per_thread = PIECE * d + a->heads * PIECE + a->heads + 16;
    if (p.per_thread < BUCKETS) p.per_thread = BUCKETS;
    bool idle = true; /* nothing to rank: counts only */
    for (int64_t t = 0; t < T && idle; t++) {
        task k = task_of(a, t);
        idle = !k.score_all && !k.inside;
    }
    by_pool *pool = idle ? NULL : by_cpu_pool(dev, (double)T * (double)p.n_max * (double)hd);
    size_t threads = (size_t)by_pool_threads(pool);
    by_cpu_scratch s = {0};
    if (!idle) { /* bounds that never fall when rows or entries become more: see by_device_scratch */
        int64_t most = p.n_max > SCORES_MAX ? p.n_max : SCORES_MAX;
        by_cpu_want(&s, by_mul_size((size_t)(T * p.n_max < most ? T * p.n_max : most), 4));
        by_cpu_want(&s, by_mul_size((size_t)(T * hd), 4));
    }
    by_cpu_want(&s, by_mul_size(threads, (size_t)p.per_thread * 4));
    BY_TRY(by_cpu_begin(&s, dev, err));
    if (!idle) {
        p.score = by_cpu_take(&s, (size_t)(p.n_rows * p.n_max) * 4);
        p.queries = by_cpu_take(&s, (size_t)(p.n_rows * hd) * 4);
    }
    p.scratch = by_cpu_take(&s, threads * (size_t)p.per_thread * 4);
    if (idle) select_items(&(selection){.a = a, .vec = p.vec, .n_max = p.n_max, .scratch = p.scratch, .per_thread = p.per_thread}, 0, T, 0);
    else by_pool_run(pool, region, &p);
    return BY_OK;
}
