// cuda_draw.cu - draws tokens from rows of logits where they lie, and judges drafts by rejection: the same numbers in the same order as
// sample/sample_edit.c, sample_dist.c, sample_kernels.c, sample_pick.c and sample_verify.c, so that the token is the host's, bit for bit.
// One block a draw.
//
// Only integer sums and sums in a fixed order decide: blocks of 256 exponentials are added by 16 lanes and a tree, the blocks in
// order in double; masses are integers. No product is contracted with a sum. Edits happen in a copy of the row. The border of top-p and
// top-k is found as on the host, by the logits' bits, 11 at a time; the kept tokens' probabilities are listed before they are added,
// since the host adds its list in blocks.
#include <float.h>

#include "ops/cuda/cuda.cuh"

enum { DRAW_THREADS = 1024, DRAW_BLOCK = 256, DRAW_LANES = 8192, DRAW_EACH = DRAW_LANES / DRAW_THREADS };

/* by_sample_exp */
__device__ static inline float draw_exp(float x) {
    const float magic = 12582912.0f;
    float xc = x < -87.0f ? -87.0f : x, shifted = __fadd_rn(__fmul_rn(xc, 1.44269504088896341f), magic);
    uint32_t n = __float_as_uint(shifted) - __float_as_uint(magic);
    float nf = __fsub_rn(shifted, magic), r = __fsub_rn(xc, __fmul_rn(nf, 0.693359375f));
    r = __fsub_rn(r, __fmul_rn(nf, -2.12194440e-4f));
    float y = 1.9875691500e-4f;
    y = __fadd_rn(__fmul_rn(y, r), 1.3981999507e-3f);
    y = __fadd_rn(__fmul_rn(y, r), 8.3334519073e-3f);
    y = __fadd_rn(__fmul_rn(y, r), 4.1665795894e-2f);
    y = __fadd_rn(__fmul_rn(y, r), 1.6666665459e-1f);
    y = __fadd_rn(__fmul_rn(y, r), 5.0000001201e-1f);
    y = __fadd_rn(__fadd_rn(__fmul_rn(y, __fmul_rn(r, r)), r), 1.0f);
    float scaled = __fmul_rn(y, __uint_as_float((n + 127u) << 23));
    return x < -87.0f ? 0.0f : scaled;
}
/* by_sample_log of a positive normal number */
__device__ static double draw_log(double x) {
    uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x));
    int e = static_cast<int>(bits >> 52) - 1022;
    double m = __longlong_as_double(static_cast<long long>((bits & 0xfffffffffffffull) | 1022ull << 52));
    if (m < 0.70710678118654752) {
        m = __dmul_rn(m, 2);
        e--;
    }
    double s = __ddiv_rn(__dadd_rn(m, -1), __dadd_rn(m, 1)), s2 = __dmul_rn(s, s), sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = __dadd_rn(__dmul_rn(sum, s2), __ddiv_rn(1.0, k));
    return __dadd_rn(__dmul_rn(__dmul_rn(2, s), sum), __dmul_rn(e, 0.69314718055994531));
}
/* What a draw is given; the pointers are the device's. */
struct draw_job {
    by_draw d;
    float *own;  /* [V] room for the edited row, NULL: it is not edited */
    float *q;    /* [V] room for the draft's edited row, NULL: it is not edited, or there is none */
    float *list; /* [V] room for what is kept, NULL: all are */
    const by_draw_edit *edits;
    const uint32_t *mask;
};
/* The distribution: by_sample_dist. cut_id V: all that equal the cut are kept. */
struct draw_law {
    float max, inv_t, log_s, log_kept, floor_s, cut;
    int32_t cut_id;
    bool cuts;
};
__device__ static inline float scaled_logit(float l, float max, float inv_t) { return __fmul_rn(__fsub_rn(l, max), inv_t); }
__device__ static inline bool is_kept(const draw_law &q, float l, int32_t id) {
    if (!q.cuts) return true;
    return (l > q.cut || (l == q.cut && id <= q.cut_id)) && scaled_logit(l, q.max, q.inv_t) >= q.floor_s;
}
__device__ static inline float log_prob(const draw_law &q, float l, int32_t id) {
    return is_kept(q, l, id) ? __fsub_rn(__fsub_rn(scaled_logit(l, q.max, q.inv_t), q.log_s), q.log_kept) : -INFINITY;
}
/* by_sample_mass */
__device__ static inline uint32_t mass_of(float x) {
    x = __fmul_rn(x, 0x1p31f);
    uint32_t high = x >= 0x1p31f ? 0x80000000u : 0;
    return static_cast<uint32_t>(static_cast<int32_t>(__fsub_rn(x, high ? 0x1p31f : 0.0f))) + high;
}
/* Probability times exp(-penalty). */
__device__ static inline float draw_prob(const draw_law &q, float l, int32_t id, float penalty) {
    float x = __fsub_rn(__fsub_rn(scaled_logit(l, q.max, q.inv_t), q.log_s), q.log_kept);
    return is_kept(q, l, id) ? draw_exp(penalty > 0 ? __fsub_rn(x, penalty) : x) : 0;
}

struct draw_shared {
    float part[32];
    int32_t part_id[32];
    double total[2]; /* of the draw's temperature, of the report's; then of the list */
    uint64_t warp_sum[32];
    union {
        uint32_t lanes[DRAW_LANES];
        unsigned long long bins[2048];
    };
    uint32_t warp_n[32];
    int32_t at, lane, bin;
    uint64_t rest;
};

/* Sums of exp((x - max) * inv_t) over blocks of 256, to sum [blocks]: half a warp a block. */
__device__ static void sum_blocks(const float *row, int V, float max, float inv_t, float *sum) {
    int j = threadIdx.x & 15;
    for (int b = threadIdx.x / 16; b < (V + DRAW_BLOCK - 1) / DRAW_BLOCK; b += DRAW_THREADS / 16) {
        float acc = 0;
#pragma unroll
        for (int i = 0; i < DRAW_BLOCK / 16; i++) {
            int c = b * DRAW_BLOCK + i * 16 + j;
            float x = c < V ? __fmul_rn(__fsub_rn(row[c], max), inv_t) : -INFINITY;
            if (x >= -87.0f) acc = __fadd_rn(acc, draw_exp(x)); /* below, the exponential is 0 */
        }
        uint32_t half = 0xffffu << (threadIdx.x & 16);
        for (int m = 8; m; m >>= 1) acc = __fadd_rn(acc, __shfl_down_sync(half, acc, m, 16));
        if (j == 0) sum[b] = acc;
    }
}
/* One thread: the blocks in order, and the logarithm. */
__device__ static double log_of_sums(const float *sum, int blocks) {
    double total = 0;
#pragma unroll 16
    for (int b = 0; b < blocks; b++) total = __dadd_rn(total, static_cast<double>(sum[b]));
    return draw_log(total);
}

/* by_sample_edit and the mask, into own [V]; all threads. False when a token that is not allowed has a logit that is no number. */
__device__ static bool edit_row(const by_draw &d, const by_draw_edit *e, const uint32_t *mask, float *own, const float *row, int V) {
    int tid = threadIdx.x, bad = 0;
    for (int i = tid; i < V; i += DRAW_THREADS) own[i] = row[i];
    __syncthreads();
    for (int i = tid; i < d.n_added; i += DRAW_THREADS) own[e[i].id] = __fadd_rn(own[e[i].id], e[i].value);
    __syncthreads();
    e += d.n_added;
    for (int i = tid; i < d.n_seen; i += DRAW_THREADS) {
        float l = own[e[i].id], n = e[i].value;
        l = l > 0 ? __fdiv_rn(l, d.repetition) : __fmul_rn(l, d.repetition);
        l = __fsub_rn(l, __fmul_rn(d.frequency, n));
        own[e[i].id] = n > 0 ? __fsub_rn(l, d.presence) : l;
    }
    __syncthreads();
    e += d.n_seen;
    for (int i = tid; i < d.n_banned; i += DRAW_THREADS) { /* one may stand there twice */
        bad |= !(own[e[i].id] <= FLT_MAX);
        own[e[i].id] = -INFINITY;
    }
    __syncthreads();
    for (int i = tid; mask && i < V; i += DRAW_THREADS) {
        if (mask[i / 32] >> (i % 32) & 1) continue;
        bad |= !(own[i] <= FLT_MAX);
        own[i] = -INFINITY;
    }
    return !__syncthreads_or(bad);
}

/* Largest logit, the same in all threads; NaN when one is no number or +infinity. */
__device__ static float row_top(const float *row, int V, draw_shared &s) {
    float m = -INFINITY;
    int bad = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < V; i += DRAW_THREADS) {
        float x = row[i];
        m = fmaxf(m, x);
        bad |= !(x <= FLT_MAX);
    }
    m = warp_max(m);
    if ((threadIdx.x & 31) == 0) s.part[threadIdx.x >> 5] = m;
    if (__syncthreads_or(bad)) return NAN;
    return warp_max(s.part[threadIdx.x & 31]);
}

/* ---- cuts ------------------------------------------------------------------------------------------------------- */

/* A bin counts tokens in its upper 24 bits and their mass in the lower 40, as on the host. */
__device__ static inline uint64_t bin_n(uint64_t bin) { return bin >> 40; }
__device__ static inline uint64_t bin_mass(uint64_t bin) { return bin & ((1ull << 40) - 1); }
/* Logits as integers that order alike; +0 and -0 are one. */
__device__ static inline uint32_t draw_key(float x) {
    uint32_t u = __float_as_uint(__fadd_rn(x, 0.0f));
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}
/* Whether tokens behind these are removed: the first bin with which that is so holds the border. */
__device__ static inline bool crosses(const by_draw &d, uint64_t before) {
    return bin_mass(before) > d.mass_most || bin_n(before) >= static_cast<uint64_t>(d.n_most);
}

/* One digit of the search among the tokens whose key agrees with `prefix` under `mask`: the bin with the last kept token, -1 if all are
 * kept; `before` moves to its start. All threads; the bins stay until the next call. */
__device__ static int border_bin(const by_draw &d, const draw_law &q, const float *row, int V, uint32_t prefix, uint32_t mask,
                                 int shift, int n_bins, uint64_t &before, draw_shared &s) {
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    __syncthreads();
    for (int i = tid; i < n_bins; i += DRAW_THREADS) s.bins[i] = 0;
    if (tid == 0) s.bin = -1;
    __syncthreads();
    for (int c = tid; c < V; c += DRAW_THREADS) {
        float l = row[c], x = scaled_logit(l, q.max, q.inv_t);
        uint32_t key = draw_key(l);
        if (!(x >= q.floor_s) || (key & mask) != prefix) continue;
        atomicAdd(&s.bins[key >> shift & static_cast<uint32_t>(n_bins - 1)], (1ull << 40) + mass_of(draw_exp(__fsub_rn(x, q.log_s))));
    }
    __syncthreads();
    int first = n_bins - 1 - 2 * tid; /* this thread's bins: this one, and the one below */
    uint64_t high = first >= 0 ? s.bins[first] : 0, low = first >= 1 ? s.bins[first - 1] : 0, run = high + low;
    for (int m = 1; m < 32; m *= 2) {
        uint64_t v = __shfl_up_sync(~0u, run, m);
        if (lane >= m) run += v;
    }
    if (lane == 31) s.warp_sum[warp] = run;
    __syncthreads();
    uint64_t at = before + run - high - low;
    for (int i = 0; i < warp; i++) at += s.warp_sum[i];
    if (!crosses(d, at)) {
        if (crosses(d, at + high)) s.bin = first, s.rest = at;
        else if (crosses(d, at + high + low)) s.bin = first - 1, s.rest = at + high;
    }
    __syncthreads();
    if (s.bin >= 0) before = s.rest;
    return s.bin;
}

/* Tokens that f(id) counts: each warp has a run of them, in order. Returns how many are in front of this warp's; all: of the row. */
__device__ static inline int run_first(int V, int warp) { return min((V + 1023) / 1024 * 32 * warp, V); }
template <class F> __device__ static uint32_t count_runs(int V, draw_shared &s, uint32_t &all, F f) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t n = 0, before = 0;
    for (int c = run_first(V, warp) + lane; c < run_first(V, warp + 1); c += 32) n += f(c);
    for (int m = 16; m; m >>= 1) n += __shfl_xor_sync(~0u, n, m);
    __syncthreads();
    if (lane == 0) s.warp_n[warp] = n;
    __syncthreads();
    all = 0;
    for (int i = 0; i < 32; i++) {
        if (i < warp) before += s.warp_n[i];
        all += s.warp_n[i];
    }
    return before;
}
/* Calls put(place, id) for them. */
template <class F, class PUT> __device__ static void visit_runs(int V, uint32_t before, F f, PUT put) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int base = run_first(V, warp); base < run_first(V, warp + 1); base += 32) {
        bool in = base + lane < run_first(V, warp + 1) && f(base + lane);
        uint32_t all = __ballot_sync(~0u, in);
        if (in) put(before + static_cast<uint32_t>(__popc(all & ((1u << lane) - 1))), base + lane);
        before += static_cast<uint32_t>(__popc(all));
    }
}

/* find_cut of sample_dist.c: sets the law's cut. All threads. */
__device__ static void find_border(const by_draw &d, draw_law &q, const float *row, int V, draw_shared &s) {
    uint64_t before = 0;
    uint32_t prefix = 0, mask = 0;
    for (int i = 0; i < 3; i++) {
        int shift = i == 0 ? 21 : i == 1 ? 10 : 0, n_bins = i < 2 ? 2048 : 1024;
        int bin = border_bin(d, q, row, V, prefix, mask, shift, n_bins, before, s);
        if (bin < 0) return;
        prefix |= static_cast<uint32_t>(bin) << shift;
        mask |= static_cast<uint32_t>(n_bins - 1) << shift;
    }
    uint64_t last = s.bins[prefix & 1023], n = bin_n(last), each = bin_mass(last) / n, ties = n; /* equal logits, equal masses */
    uint64_t room = static_cast<uint64_t>(d.n_most) - bin_n(before);
    if (ties > room) ties = room;
    if (each > 0 && ties > (d.mass_most - bin_mass(before)) / each + 1) ties = (d.mass_most - bin_mass(before)) / each + 1;
    q.cut = __uint_as_float(prefix & 0x80000000u ? prefix ^ 0x80000000u : ~prefix);
    if (ties == n) return;
    uint32_t all;
    auto tied = [&](int c) { return row[c] == q.cut; };
    uint32_t front = count_runs(V, s, all, tied);
    visit_runs(V, front, tied, [&](uint32_t place, int c) {
        if (place == ties - 1) s.at = c;
    });
    __syncthreads();
    q.cut_id = s.at;
    __syncthreads();
}

/* The cut, and the logarithm of what is kept: the list of kept tokens is added in blocks. All threads. */
__device__ static void cut_row(const draw_job &j, draw_law &q, const float *row, int V, float *sums, draw_shared &s) {
    const by_draw &d = j.d;
    q.cuts = true;
    q.floor_s = d.floor_s;
    q.cut = -INFINITY;
    q.cut_id = V;
    if (d.mass_most != UINT64_MAX || d.n_most != INT32_MAX) find_border(d, q, row, V, s);
    uint32_t n;
    auto kept = [&](int c) { return is_kept(q, row[c], c); };
    uint32_t before = count_runs(V, s, n, kept);
    visit_runs(V, before, kept, [&](uint32_t place, int c) { j.list[place] = __fsub_rn(scaled_logit(row[c], q.max, q.inv_t), q.log_s); });
    __syncthreads();
    sum_blocks(j.list, static_cast<int>(n), 0, 1, sums);
    __syncthreads();
    if (threadIdx.x == 0) s.total[0] = log_of_sums(sums, (static_cast<int>(n) + DRAW_BLOCK - 1) / DRAW_BLOCK);
    __syncthreads();
    q.log_kept = __double2float_rn(s.total[0]);
}

/* ---- reports ---------------------------------------------------------------------------------------------------- */

__device__ static inline bool ranks_before(float a, int32_t a_id, float b, int32_t b_id) { return a > b || (a == b && a_id < b_id); }

/* by_sample_dist_top, n <= V: in each round the best of the threads' best; who had it looks for its next. All threads. */
__device__ static void report_top(by_drawn_top *out, int n, const draw_law &q, const float *row, int V, draw_shared &s) {
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    float best = INFINITY;
    int32_t id = -1;
    auto next = [&](float after, int32_t after_id) {
        best = -INFINITY, id = INT32_MAX;
        for (int c = tid; c < V; c += DRAW_THREADS) {
            float lp = log_prob(q, row[c], c);
            if (ranks_before(after, after_id, lp, c) && ranks_before(lp, c, best, id)) best = lp, id = c;
        }
    };
    next(best, id);
    for (int r = 0; r < n; r++) {
        float top = best;
        int32_t top_id = id;
        for (int pass = 0; pass < 2; pass++) {
            for (int m = 16; m; m >>= 1) {
                float other = __shfl_xor_sync(~0u, top, m);
                int32_t other_id = __shfl_xor_sync(~0u, top_id, m);
                if (ranks_before(other, other_id, top, top_id)) top = other, top_id = other_id;
            }
            if (pass) break;
            __syncthreads();
            if (lane == 0) s.part[warp] = top, s.part_id[warp] = top_id;
            __syncthreads();
            top = s.part[lane], top_id = s.part_id[lane];
        }
        if (tid == 0) out[r] = {top_id, top};
        if (top_id == id) next(top, top_id);
    }
}

/* ---- draws ------------------------------------------------------------------------------------------------------ */

__device__ static uint32_t lane_count(int V) {
    uint32_t n = 1;
    while (n < static_cast<uint32_t>(V)) n *= 2;
    return V >= 8192 ? 2048 : n;
}
/* A number below total; false when no word would do. */
__device__ static bool draw_below(const by_draw &d, uint64_t total, uint64_t &r) {
    if (d.kind == BY_DRAW_SMOOTH) {
        r = static_cast<uint64_t>(static_cast<unsigned __int128>(d.words[0]) * total >> 32);
        return true;
    }
    uint64_t limit = 0xffffffffull / total * total;
    for (int i = 0; i < BY_DRAW_WORDS; i++) {
        if (limit != 0 && d.words[i] >= limit) continue;
        r = limit == 0 ? d.words[i] : d.words[i] % total;
        return true;
    }
    return false;
}

/* The token whose mass crosses the drawn number: masses by lane (column modulo the number of lanes), then within the lane. -1: no word
 * would do; NO_MASS: all are 0. */
enum { NO_MASS = -2 };
template <class M> __device__ static int32_t pick(const by_draw &d, int V, draw_shared &s, M mass_at) {
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    uint32_t n = lane_count(V);
    for (uint32_t k = static_cast<uint32_t>(tid); k < n; k += DRAW_THREADS) {
        uint32_t sum = 0;
#pragma unroll 8
        for (int c = static_cast<int>(k); c < V; c += static_cast<int>(n)) sum += mass_at(c);
        s.lanes[k] = sum;
    }
    __syncthreads();
    uint64_t mine = 0; /* a thread goes on with neighbouring lanes */
    uint32_t first = static_cast<uint32_t>(tid) * DRAW_EACH;
    for (uint32_t k = first; k < first + DRAW_EACH && k < n; k++) mine += s.lanes[k];
    uint64_t run = mine;
    for (int m = 1; m < 32; m *= 2) {
        uint64_t v = __shfl_up_sync(~0u, run, m);
        if (lane >= m) run += v;
    }
    if (lane == 31) s.warp_sum[warp] = run;
    if (tid == 0) s.lane = -1;
    __syncthreads();
    uint64_t total = 0, before = run - mine, r = 0;
    for (int i = 0; i < 32; i++) {
        if (i < warp) before += s.warp_sum[i];
        total += s.warp_sum[i];
    }
    if (total == 0) return NO_MASS;
    if (!draw_below(d, total, r)) return -1;
    if (r >= before && r < before + mine) {
        uint32_t k = first;
        for (r -= before; r >= s.lanes[k]; k++) r -= s.lanes[k];
        s.lane = static_cast<int32_t>(k);
        s.rest = r;
    }
    __syncthreads();
    if (s.lane < 0) return -1;
    if (warp == 0) { /* the lane's columns, 32 at a time */
        uint64_t rest = s.rest;
        int32_t found = -1;
        for (int base = s.lane; base < V && found < 0; base += 32 * static_cast<int>(n)) {
            int c = base + lane * static_cast<int>(n);
            uint64_t mass = c < V ? mass_at(c) : 0, sum = mass;
            for (int m = 1; m < 32; m *= 2) {
                uint64_t v = __shfl_up_sync(~0u, sum, m);
                if (lane >= m) sum += v;
            }
            uint32_t crossed = __ballot_sync(~0u, rest < sum);
            if (crossed) found = base + (__ffs(static_cast<int>(crossed)) - 1) * static_cast<int>(n);
            rest -= __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) s.at = found;
    }
    __syncthreads();
    return s.at;
}

/* The lowest of the most likely tokens. All threads. */
__device__ static int32_t lowest_top(const float *row, int V, float max, draw_shared &s) {
    if (threadIdx.x == 0) s.at = V;
    __syncthreads();
    for (int i = threadIdx.x; i < V; i += DRAW_THREADS)
        if (row[i] == max) {
            atomicMin(&s.at, i);
            break;
        }
    __syncthreads();
    return s.at;
}

/* The law of a row with that largest logit; returns the logarithm of the sum at the report's temperature. All threads. */
__device__ static float make_law(const draw_job &j, draw_law &law, const float *row, int V, float max, float report_inv_t, float *sums,
                                 draw_shared &s) {
    const by_draw &d = j.d;
    int blocks = (V + DRAW_BLOCK - 1) / DRAW_BLOCK, tid = threadIdx.x;
    bool two = d.inv_t != report_inv_t;
    law = {max, d.inv_t, 0, 0, 0, 0, 0, false};
    sum_blocks(row, V, max, d.inv_t, sums);
    if (two) sum_blocks(row, V, max, report_inv_t, sums + blocks);
    __syncthreads();
    if (tid == 0 || (tid == 32 && two)) s.total[tid / 32] = log_of_sums(sums + tid / 32 * blocks, blocks);
    __syncthreads();
    law.log_s = __double2float_rn(s.total[0]);
    float log_sum = __double2float_rn(s.total[two]);
    __syncthreads(); /* the sums are used again */
    if (d.cuts) cut_row(j, law, row, V, sums, s);
    return log_sum;
}

/* by_sample_judge: whether the draft stays, else a token from what p has more than q. -1: the caller looks at it. All threads. */
__device__ static int32_t judge(const draw_job &j, const draw_law &p, const float *row, const float *q_row, int V, float *sums,
                                draw_shared &s, int32_t &accepted) {
    const float penalty = 5e-5f; /* of sample_verify.c */
    const by_draw &d = j.d;
    if (j.q) {
        if (!edit_row(d, j.edits, nullptr, j.q, q_row, V)) return -1;
        q_row = j.q;
    }
    float max = row_top(q_row, V, s);
    if (!(max > -INFINITY)) return -1;
    draw_law q;
    __syncthreads();
    make_law(j, q, q_row, V, max, d.inv_t, sums, s);
    float ratio = __fsub_rn(log_prob(p, row[d.draft], d.draft), log_prob(q, q_row[d.draft], d.draft));
    accepted = ratio == ratio && d.accept < draw_exp(ratio < 0 ? ratio : 0.0f); /* a token that neither has is rejected */
    if (accepted) return d.draft;
    int32_t id = pick(d, V, s, [&](int c) {
        float left = __fsub_rn(draw_prob(p, row[c], c, 0), draw_prob(q, q_row[c], c, penalty));
        return left > 0 ? mass_of(left) : 0;
    });
    return id == NO_MASS ? lowest_top(row, V, p.max, s) : id;
}

/* ids, unless NULL: a token that others may look up, and what was drawn. */
__device__ static void put_drawn(by_drawn *out, const by_drawn &q, int32_t *ids, int n_ids) {
    *out = q;
    if (!ids) return;
    ids[blockIdx.x] = max(q.id, 0);
    ids[n_ids + blockIdx.x] = q.id;
}

__global__ void __launch_bounds__(DRAW_THREADS) draw_kernel(view logits, view proposed, const draw_job *jobs, by_drawn *out,
                                                            by_drawn_top *tops, int top_stride, int32_t *ids, int n_ids) {
    BY_CUDA_DYNAMIC(float, sums); /* [2][blocks] */
    __shared__ draw_shared s;
    const draw_job &j = jobs[blockIdx.x];
    const by_draw &d = j.d;
    const float *row = logits.f32(d.row);
    int V = logits.cols, tid = threadIdx.x;
    bool fine = true;
    if (j.own) {
        fine = edit_row(d, j.edits, j.mask, j.own, row, V);
        row = j.own;
    }
    float max = fine ? row_top(row, V, s) : NAN;
    by_drawn q = {-1, 0, max, 0, 0, 0};
    if (!(max > -INFINITY)) { /* also NaN */
        if (tid == 0) put_drawn(out + blockIdx.x, q, ids, n_ids);
        return;
    }
    draw_law law = {max, d.inv_t, 0, 0, 0, 0, 0, false};
    if (d.kind == BY_DRAW_ARGMAX) {
        q.id = lowest_top(row, V, max, s);
    } else {
        q.log_sum = make_law(j, law, row, V, max, d.report_inv_t, sums, s);
        q.log_kept = law.log_kept;
        if (d.judges) q.id = judge(j, law, row, proposed.f32(d.q_row), V, sums, s, q.accepted);
        else q.id = pick(d, V, s, [&](int c) { return mass_of(draw_prob(law, row[c], c, 0)); });
    }
    if (q.id >= 0) q.logit = row[q.id];
    else q.id = -1;
    if (tid == 0) put_drawn(out + blockIdx.x, q, ids, n_ids);
    if (d.n_top == 0 || q.id < 0) return;
    law.inv_t = d.report_inv_t;
    law.log_s = q.log_sum;
    report_top(tops + static_cast<int64_t>(blockIdx.x) * top_stride, d.n_top, law, row, V, s);
}

/* ---- host ------------------------------------------------------------------------------------------------------- */

static bool has_edits(const by_draw &d) { return d.n_added || d.n_seen || d.n_banned; }
static size_t rows_of(const by_draw &d) {
    return static_cast<size_t>(d.mask || has_edits(d)) + static_cast<size_t>(d.judges && has_edits(d)) + static_cast<size_t>(d.cuts);
}

/* Masks that lie behind one another move in one piece. */
static by_status upload_masks(by_cuda *c, unsigned char *to, const by_draws *w, size_t bytes, by_err *err) {
    for (int32_t i = 0; i < w->n;) {
        const uint32_t *first = w->draws[i].mask;
        if (!first) {
            i++;
            continue;
        }
        size_t n = 1;
        while (i + static_cast<int32_t>(n) < w->n && w->draws[i + static_cast<int32_t>(n)].mask == first + n * (bytes / 4)) n++;
        BY_TRY(by_cuda_upload(c, to, first, n * bytes, err));
        to += n * bytes;
        i += static_cast<int32_t>(n);
    }
    return BY_OK;
}
/* Jobs, a few at a time. Those of a slice have rows of their own in `rows`, which the next slice uses again. */
static by_status upload_jobs(by_cuda *c, unsigned char *to, const by_draws *w, const by_draw_edit *edits, const uint32_t *masks, float *rows,
                             int32_t slice, int64_t V, by_err *err) {
    enum { EACH = 16 };
    draw_job some[EACH];
    int64_t words = (V + 31) / 32, row = (V + 63) / 64 * 64;
    float *first = rows;
    for (int32_t i = 0; i < w->n; i += EACH) {
        int32_t n = w->n - i < EACH ? w->n - i : static_cast<int32_t>(EACH);
        for (int32_t k = 0; k < n; k++) {
            const by_draw &d = w->draws[i + k];
            if ((i + k) % slice == 0) rows = first;
            some[k] = {d, nullptr, nullptr, nullptr, edits + d.edit0, nullptr};
            some[k].d.mask = nullptr;
            if (d.mask) some[k].mask = masks, masks += words;
            if (d.mask || has_edits(d)) some[k].own = rows, rows += row;
            if (d.judges && has_edits(d)) some[k].q = rows, rows += row;
            if (d.cuts) some[k].list = rows, rows += row;
        }
        BY_TRY(by_cuda_upload(c, to + static_cast<size_t>(i) * sizeof *some, some, static_cast<size_t>(n) * sizeof *some, err));
    }
    return BY_OK;
}

by_status by_cuda_draw(by_device *dev, const by_tensor *logits, const by_draws *w, by_err *err) {
    by_cuda *c = by_cuda_of(dev);
    size_t n = static_cast<size_t>(w->n), V = static_cast<size_t>(logits->cols), mask = (V + 31) / 32 * 4, n_masks = 0, n_rows = 0;
    const int32_t slice = static_cast<int32_t>(by_scratch_draw_slice(w->n, logits->cols));
    for (int32_t i = 0, here = 0; i < w->n; i++) {
        here = (i % slice ? here : 0) + static_cast<int32_t>(rows_of(w->draws[i]));
        n_masks += w->draws[i].mask != nullptr;
        n_rows = n_rows > static_cast<size_t>(here) ? n_rows : static_cast<size_t>(here);
    }
    size_t edits = static_cast<size_t>(w->n_edits) * sizeof *w->edits, tops = n * static_cast<size_t>(w->top_stride), row = (V + 63) / 64 * 64;
    size_t back = by_cuda_pad(n * sizeof(by_drawn)) + tops * sizeof(by_drawn_top);
    size_t bytes = by_cuda_pad(n * sizeof(draw_job)) + by_cuda_pad(edits) + by_cuda_pad(n_masks * mask) + by_cuda_pad(n_rows * row * 4);
    static_assert(sizeof(draw_job) <= BY_SCRATCH_DRAW_JOB, "as scratch.h counts");
    BY_TRY(by_cuda_scratch(c, bytes + by_cuda_pad(back), err));
    unsigned char *jobs = by_cuda_take<unsigned char>(c, n * sizeof(draw_job)), *list = by_cuda_take<unsigned char>(c, edits);
    unsigned char *masks = by_cuda_take<unsigned char>(c, n_masks * mask);
    float *rows = by_cuda_take<float>(c, n_rows * row);
    unsigned char *drawn = by_cuda_take<unsigned char>(c, back), *top = drawn + by_cuda_pad(n * sizeof(by_drawn));
    BY_TRY(by_cuda_upload(c, list, w->edits, edits, err));
    BY_TRY(upload_masks(c, masks, w, mask, err));
    BY_TRY(upload_jobs(c, jobs, w, reinterpret_cast<const by_draw_edit *>(list), reinterpret_cast<const uint32_t *>(masks), rows, slice,
                       logits->cols, err));
    size_t smem = (V + DRAW_BLOCK - 1) / DRAW_BLOCK * 8;
    BY_TRY(by_cuda_smem(draw_kernel, smem, err));
    int32_t *ids = w->ids.mem ? reinterpret_cast<int32_t *>(w->ids.mem->ptr + w->ids.off) : nullptr;
    for (int32_t i = 0; i < w->n; i += slice)
        BY_CUDA_TRY(err, by_cuda_launch(c, draw_kernel, dim3(static_cast<unsigned>(w->n - i < slice ? w->n - i : slice)), DRAW_THREADS, smem,
                                        view_of(*logits), view_of(w->proposed), reinterpret_cast<const draw_job *>(jobs) + i,
                                        reinterpret_cast<by_drawn *>(drawn) + i,
                                        reinterpret_cast<by_drawn_top *>(top) + static_cast<int64_t>(i) * w->top_stride, w->top_stride,
                                        ids ? ids + i : ids, w->n));
    BY_CUDA_LAUNCHED(err, "draw");
    if (ids) return BY_OK;
    by_cuda_piece pieces[3] = {{w->out, drawn, n * sizeof(by_drawn)}, {w->tops, top, tops * sizeof(by_drawn_top)}, {w->also_to, nullptr, 0}};
    if (w->also.mem) pieces[2].from = w->also.mem->ptr + w->also.off, pieces[2].n = static_cast<size_t>(w->also.rows * w->also.stride);
    return by_cuda_download(c, pieces, 3, err);
}

/* The most that the call above asks for with so many draws, whatever they are. */
by_status by_cuda_draw_room(by_device *dev, int32_t n, int64_t V, int32_t n_edits, int32_t n_top, by_err *err) {
    return by_cuda_grow_scratch(by_cuda_of(dev), static_cast<size_t>(by_scratch_draws(n, V, n_edits, n_top)), err);
}
