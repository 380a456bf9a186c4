/* sample_dist.c - see sample_dist.h. Slow twin: tests/prop/prop_sample.c (a full sort). */
#include "sample/sample_dist.h"

#include <float.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "sample/sample_math.h"
#include "sample/sample_scratch.h"

/* ---- work memory ---- */

const by_sample_kernels *by_sample_kernels_for(by_isa isa) {
#ifdef BY_SAMPLE_X86 /* set by module.cmake together with the files */
    if (by_isa_includes(isa, BY_ISA_AVX512)) return &by_sample_kernels_avx512;
    if (by_isa_includes(isa, BY_ISA_AVX2)) return &by_sample_kernels_avx2;
#endif
    (void)isa;
    return &by_sample_kernels_base;
}

by_status by_sample_scratch_create(by_sample_scratch **out, int32_t V_max, by_isa isa, by_err *err) {
    if (V_max < 1 || V_max > BY_LIMIT_VOCAB)
        return BY_FAIL(err, BY_EINVAL, "vocabulary of %d tokens is not in [1, %d]", V_max, BY_LIMIT_VOCAB);
    size_t n = (size_t)V_max;
    by_sample_scratch *s = by_alloc_zero(BY_MEM_REQUEST, sizeof *s);
    if (s) {
        s->V_max = V_max;
        s->kernels = by_sample_kernels_for(isa);
        s->ids = by_alloc(BY_MEM_REQUEST, n * sizeof *s->ids);
        s->x = by_alloc(BY_MEM_REQUEST, n * sizeof *s->x);
        s->key = by_alloc(BY_MEM_REQUEST, n * sizeof *s->key);
        s->mass = by_alloc(BY_MEM_REQUEST, n * sizeof *s->mass);
        s->few_ids = by_alloc(BY_MEM_REQUEST, (n / BY_SAMPLE_FEW_SHARE + 1) * sizeof *s->few_ids);
        s->few_x = by_alloc(BY_MEM_REQUEST, (n / BY_SAMPLE_FEW_SHARE + 1) * sizeof *s->few_x);
    }
    if (!s || !s->ids || !s->x || !s->key || !s->mass || !s->few_ids || !s->few_x) {
        by_sample_scratch_destroy(s);
        return BY_FAIL(err, BY_ENOMEM, "no memory to sample from %d tokens", V_max);
    }
    *out = s;
    return BY_OK;
}

void by_sample_scratch_destroy(by_sample_scratch *s) {
    if (!s) return;
    by_free(s->ids);
    by_free(s->x);
    by_free(s->key);
    by_free(s->mass);
    by_free(s->few_ids);
    by_free(s->few_x);
    by_free(s);
}

/* ---- the threshold of top-p and top-k ---- */

typedef struct cut_limits {
    uint64_t mass; /* a token is kept when the mass before it is at most this */
    uint64_t n;    /* ... and when fewer than n tokens are before it */
} cut_limits;

typedef struct cut_point {
    bool found;      /* false: all are kept */
    uint32_t key;    /* tokens above are kept */
    uint64_t n_ties; /* and the first n_ties of those equal to it */
} cut_point;

/* A bin counts tokens in its upper 24 bits and their mass in the lower 40: a vocabulary has fewer than 2^21 tokens and
 * the masses sum to about 2^31. One addition per token is what the search spends its time on. */
#define BIN_ONE       (1ull << 40)
#define BIN_N(bin)    ((bin) >> 40)
#define BIN_MASS(bin) ((bin) & (BIN_ONE - 1))
_Static_assert(BY_LIMIT_VOCAB < 1 << 24, "a bin counts every token of a vocabulary");

/* One digit of the search: the tokens whose key agrees with `prefix` under `mask` are counted into bins by the digit;
 * `before` holds mass and number of the tokens above them all. Returns the bin with the last kept token, -1 if
 * everything is kept, and moves `before` to the start of that bin. */
static int find_bin(by_sample_scratch *s, size_t n, uint32_t prefix, uint32_t mask, uint32_t shift, uint32_t n_bins,
                    cut_limits limits, cut_limits *before) {
    memset(s->bins, 0, n_bins * sizeof s->bins[0]);
    for (size_t i = 0; i < n; i++) {
        if ((s->key[i] & mask) != prefix) continue;
        s->bins[s->key[i] >> shift & (n_bins - 1)] += BIN_ONE + s->mass[i];
    }
    for (uint32_t at = n_bins; at-- > 0;) {
        uint64_t bin = s->bins[at];
        if (bin == 0) continue;
        /* Everything behind this bin is removed, and its first token is kept: the border is here. */
        if (before->mass + BIN_MASS(bin) > limits.mass || before->n + BIN_N(bin) >= limits.n) return (int)at;
        before->mass += BIN_MASS(bin);
        before->n += BIN_N(bin);
    }
    return -1;
}

/* Finds the border among the n tokens of s->key and s->mass, which hold every token that could be kept. */
static cut_point find_cut(by_sample_scratch *s, size_t n, cut_limits limits) {
    static const struct { uint32_t shift, bits; } digits[3] = {{21, 11}, {10, 11}, {0, 10}};
    cut_limits before = {0};
    uint32_t prefix = 0, mask = 0;
    for (int i = 0; i < 3; i++) {
        int bin = find_bin(s, n, prefix, mask, digits[i].shift, 1u << digits[i].bits, limits, &before);
        if (bin < 0) return (cut_point){0};
        prefix |= (uint32_t)bin << digits[i].shift;
        mask |= ((1u << digits[i].bits) - 1) << digits[i].shift;
    }
    uint32_t last = prefix & ((1u << digits[2].bits) - 1);
    uint64_t n_ties = BIN_N(s->bins[last]), each = BIN_MASS(s->bins[last]) / n_ties; /* equal logits, equal masses */
    if (n_ties > limits.n - before.n) n_ties = limits.n - before.n;
    if (each > 0 && n_ties > (limits.mass - before.mass) / each + 1) n_ties = (limits.mass - before.mass) / each + 1;
    return (cut_point){.found = true, .key = prefix, .n_ties = n_ties};
}

/* ---- the distribution ---- */

/* The kernels' gather and exp_sum of the row of d; the latter adds what a list has in the order in which it would add the row. */
static size_t gather(const by_sample_dist *d, by_sample_scratch *s, float floor_s) {
    if (!d->few) return s->kernels->gather(s->ids, s->x, d->row, (size_t)d->V, d->max, d->inv_t, floor_s);
    size_t n = 0;
    for (size_t i = 0; i < s->n_few; i++) {
        s->ids[n] = s->few_ids[i];
        s->x[n] = s->few_x[i];
        n += (s->few_x[i] - d->max) * d->inv_t >= floor_s ? 1u : 0u;
    }
    return n;
}

static double exp_sum(const by_sample_dist *d, by_sample_scratch *s) {
    if (!d->few) return s->kernels->exp_sum(d->row, (size_t)d->V, d->max, d->inv_t);
    double total = 0;
    s->kernels->exp(s->x, s->few_x, s->n_few, d->max, d->inv_t, 0);
    for (size_t i = 0; i < s->n_few;) {
        float acc[BY_SAMPLE_LANES] = {0};
        for (int32_t block = s->few_ids[i] / BY_SAMPLE_BLOCK; i < s->n_few && s->few_ids[i] / BY_SAMPLE_BLOCK == block; i++)
            acc[s->few_ids[i] % BY_SAMPLE_LANES] += s->x[i];
        for (size_t half = BY_SAMPLE_LANES / 2; half > 0; half /= 2)
            for (size_t j = 0; j < half; j++)
                acc[j] += acc[j + half];
        total += (double)acc[0];
    }
    return total;
}

/* Lists every token that may be kept: first only likely ones, then more, until the border lies among them. Fills ids, x
 * (lp0), key and mass; returns their number. */
static size_t list_candidates(const by_sample_dist *d, by_sample_scratch *s, cut_limits limits) {
    static const float floors[] = {-6, -14, -INFINITY};
    for (int level = 0;; level++) {
        bool last = floors[level] <= d->floor_s;
        float floor_s = last ? d->floor_s : floors[level];
        size_t n = gather(d, s, floor_s);
        s->kernels->rank(s->x, s->key, s->mass, n, d->max, d->inv_t, d->log_s);
        if (last || n >= limits.n) return n;
        uint64_t mass = 0;
        for (size_t i = 0; i < n; i++)
            mass += s->mass[i];
        if (mass > limits.mass) return n;
    }
}

/* Drops the listed tokens behind the cut; the rest moves together. */
static size_t keep_before_cut(by_sample_dist *d, by_sample_scratch *s, size_t n, cut_point cut) {
    if (!cut.found) return n;
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->key[i] < cut.key) continue;
        if (s->key[i] == cut.key) {
            if (cut.n_ties == 0) continue;
            cut.n_ties--;
            d->cut = d->row[s->ids[i]];
            d->cut_id = s->ids[i];
        }
        s->ids[n_kept] = s->ids[i];
        s->x[n_kept++] = s->x[i];
    }
    return n_kept;
}

static by_status fail_bad(const float *row, int32_t V, by_err *err) {
    int32_t i = 0;
    while (i < V && row[i] < INFINITY)
        i++;
    if (i == V) return BY_FAIL(err, BY_ENUMERIC, "the logit of a masked token is not a number or infinite"); /* it was masked in place */
    return BY_FAIL(err, BY_ENUMERIC, "logit of token %d is %s", i, isnan(row[i]) ? "not a number" : "infinite");
}

static by_status row_max(float *max, const float *row, int32_t V, const by_sample_scratch *s, by_err *err) {
    bool bad;
    *max = s->kernels->max(row, (size_t)V, &bad);
    if (bad) return fail_bad(row, V, err);
    if (*max == -INFINITY) return BY_FAIL(err, BY_ENUMERIC, "all %d logits are -inf: no token is allowed", V);
    return BY_OK;
}

float by_sample_floor(float min_p) { return (float)by_sample_log((double)min_p); }

void by_sample_dist_change_law(by_sample_dist *d, const by_sample_law *law, by_sample_scratch *s) {
    by_sample_law l = *law;
    if (l.temperature < BY_SAMPLE_GREEDY_BELOW) l = (by_sample_law){BY_SAMPLE_GREEDY_BELOW, 1, 0, -1};
    *d = (by_sample_dist){.row = d->row,
                          .V = d->V,
                          .max = d->max,
                          .few = d->few,
                          .inv_t = 1.0f / l.temperature,
                          .floor_s = -FLT_MAX,
                          .cut = -INFINITY,
                          .cut_id = d->V,
                          .n_kept = d->V};
    d->log_s = (float)by_sample_log(exp_sum(d, s));
    bool top_p = l.top_p < 1, top_k = l.top_k >= 1 && l.top_k < d->V, min_p = l.min_p > 0;
    if (!top_p && !top_k && !min_p) return;

    cut_limits limits = {.mass = top_p ? (uint64_t)((double)l.top_p * 0x1p31) : UINT64_MAX,
                         .n = top_k ? (uint64_t)l.top_k : UINT64_MAX};
    if (min_p) d->floor_s = by_sample_floor(l.min_p);
    size_t n = list_candidates(d, s, limits);
    if (top_p || top_k) n = keep_before_cut(d, s, n, find_cut(s, n, limits));
    d->listed = true;
    d->n_kept = (int32_t)n;
    d->log_kept = (float)by_sample_log(s->kernels->exp_sum(s->x, n, 0, 1));
}

by_status by_sample_dist_make(by_sample_dist *d, const float *row, int32_t V, const by_sample_law *law,
                              by_sample_scratch *s, by_err *err) {
    *d = (by_sample_dist){.row = row, .V = V};
    BY_TRY(row_max(&d->max, row, V, s, err));
    by_sample_dist_change_law(d, law, s);
    return BY_OK;
}

/* ---- masks ---- */

static by_status mask_row(float *max, float *to, const float *from, int32_t V, const uint32_t *mask, by_sample_scratch *s,
                          by_err *err) {
    bool bad;
    *max = s->kernels->mask(to, from, mask, (size_t)V, &bad);
    if (bad) return fail_bad(from, V, err);
    if (*max > -INFINITY) return BY_OK;
    return BY_FAIL(err, BY_EGRAMMAR, "grammar_dead_end: no token is allowed by the grammar and by the other settings");
}

by_status by_sample_mask_row(float *to, const float *from, int32_t V, const uint32_t *mask, by_sample_scratch *s, by_err *err) {
    float max;
    return mask_row(&max, to, from, V, mask, s, err);
}

/* Lists the tokens of a mask that are above -inf; false: there are too many. */
static bool list_few(by_sample_scratch *s, const float *row, int32_t V, const uint32_t *mask) {
    size_t most = (size_t)V / BY_SAMPLE_FEW_SHARE, n = 0;
    for (int32_t at = 0; at < V && n <= most; at += 32)
        n += (size_t)__builtin_popcount(mask[at / 32]);
    if (n > most) return false;
    s->n_few = 0;
    for (int32_t at = 0; at < V; at += 32)
        for (uint32_t bits = mask[at / 32]; bits; bits &= bits - 1) {
            int32_t id = at + __builtin_ctz(bits);
            if (id >= V || !(row[id] > -INFINITY)) continue;
            s->few_ids[s->n_few] = id;
            s->few_x[s->n_few++] = row[id];
        }
    return true;
}

by_status by_sample_dist_make_masked(by_sample_dist *d, float *to, const float *from, int32_t V, const uint32_t *mask,
                                     const by_sample_law *law, by_sample_scratch *s, by_err *err) {
    *d = (by_sample_dist){.row = to, .V = V};
    BY_TRY(mask_row(&d->max, to, from, V, mask, s, err));
    d->few = list_few(s, to, V, mask);
    by_sample_dist_change_law(d, law, s);
    return BY_OK;
}

/* ---- what a distribution says ---- */

float by_sample_dist_logprob(const by_sample_dist *d, int32_t id) {
    float l = d->row[id], scaled = (l - d->max) * d->inv_t;
    bool kept = (l > d->cut || (l == d->cut && id <= d->cut_id)) && scaled >= d->floor_s;
    return kept ? scaled - d->log_s - d->log_kept : -INFINITY;
}

by_sample_weights by_sample_dist_weights(const by_sample_dist *d, by_sample_scratch *s) {
    if (!d->listed && d->inv_t >= BY_SAMPLE_SHARP) { /* the weights that are not 0: log_s is not negative */
        size_t n = gather(d, s, BY_SAMPLE_EXP_LEAST);
        s->kernels->exp(s->x, s->x, n, d->max, d->inv_t, d->log_s);
        return (by_sample_weights){.x = s->x, .ids = s->ids, .n = (int32_t)n, .V = d->V};
    }
    if (!d->listed && d->few) {
        s->kernels->exp(s->x, s->few_x, s->n_few, d->max, d->inv_t, d->log_s);
        return (by_sample_weights){.x = s->x, .ids = s->few_ids, .n = (int32_t)s->n_few, .V = d->V};
    }
    if (d->listed)
        for (int32_t i = 0; i < d->n_kept; i++)
            s->x[i] = by_sample_exp((d->row[s->ids[i]] - d->max) * d->inv_t - d->log_s - d->log_kept);
    else
        s->kernels->exp(s->x, d->row, (size_t)d->V, d->max, d->inv_t, d->log_s);
    return (by_sample_weights){.x = s->x, .ids = d->listed ? s->ids : NULL, .n = d->n_kept, .V = d->V};
}

int32_t by_sample_dist_pick(const by_sample_dist *d, by_sample_stream *stream, by_sample_rule rule,
                            by_sample_scratch *s) {
    by_sample_weights w = by_sample_dist_weights(d, s);
    return by_sample_pick(&w, stream, rule, s);
}

by_status by_sample_argmax(int32_t *id, const float *row, int32_t V, by_sample_scratch *s, by_err *err) {
    float max;
    BY_TRY(row_max(&max, row, V, s, err));
    int32_t i = 0;
    while (row[i] != max)
        i++;
    *id = i;
    return BY_OK;
}

/* ---- reports ---- */

/* Is a reported before b? */
static bool ranks_before(by_sample_top a, by_sample_top b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.id < b.id);
}

/* Restores the heap whose root is its last-ranked entry. */
static void sift_down(by_sample_top *heap, int32_t n, int32_t at) {
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && ranks_before(heap[child], heap[child + 1])) child++;
        if (!ranks_before(heap[at], heap[child])) return;
        by_sample_top t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

void by_sample_dist_top(by_sample_top *out, int32_t n, const by_sample_dist *d) {
    if (n <= 0) return;
    for (int32_t id = 0; id < n; id++)
        out[id] = (by_sample_top){id, by_sample_dist_logprob(d, id)};
    for (int32_t at = n / 2; at-- > 0;)
        sift_down(out, n, at);
    float worst = d->row[out[0].id];
    for (int32_t id = n; id < d->V; id++) {
        /* A smaller logit gives no larger log-probability, and among equals the later id loses. */
        if (d->row[id] < worst) continue;
        by_sample_top t = {id, by_sample_dist_logprob(d, id)};
        if (!ranks_before(t, out[0])) continue;
        out[0] = t;
        sift_down(out, n, 0);
        worst = d->row[out[0].id];
    }
    for (int32_t left = n; left > 1;) {
        by_sample_top t = out[--left];
        out[left] = out[0];
        out[0] = t;
        sift_down(out, left, 0);
    }
}

double by_sample_dist_smaller(const by_sample_dist *d, int32_t id) {
    if (id < 0) return 0;
    by_sample_top self = {id, by_sample_dist_logprob(d, id)};
    double sum = 0;
    for (int32_t i = 0; i < d->V; i++) {
        float lp = by_sample_dist_logprob(d, i);
        if (lp < self.logprob || (lp == self.logprob && i <= id)) sum += (double)by_sample_exp(lp);
    }
    return sum < 1 ? sum : 1; /* each term is rounded */
}
