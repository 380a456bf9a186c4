// cuda_topk.cuh - the k best of a row of keys, in ascending order of their places; equal keys: the lower place wins.
//
// Keys are unsigned numbers that order like the scores: 16 bits of a bf16 score, 32 of an fp32 one. One block a row. Two
// readings of the row usually suffice: the first finds each thread's best key; k of those lie at or above the k-th of them,
// which bounds the k-th key of the row from below. The second collects what is not below the bound, some 0.7 of the number
// of threads for scattered keys, and the rest happens in shared memory: radix select with histograms, then each warp
// writes its part of the row. Where too many keys are collected (equal ones, say), the row itself is read again instead.
#ifndef BY_OPS_CUDA_TOPK_CUH
#define BY_OPS_CUDA_TOPK_CUH

#include "ops/cuda/cuda.cuh"

enum { TOPK_THREADS = 1024, TOPK_WARPS = TOPK_THREADS / 32, TOPK_BINS = 2048, TOPK_LIST = 256 /* collected keys of a warp */ };

template <class KEY> __device__ static inline KEY topk_key(float x);
template <> __device__ inline uint32_t topk_key<uint32_t>(float x) {
    uint32_t u = __float_as_uint(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
template <> __device__ inline uint16_t topk_key<uint16_t>(float x) { return static_cast<uint16_t>(topk_key<uint32_t>(x) >> 16); }

/* Eight keys in a row, p aligned to them. */
struct topk_eight {
    uint32_t v[8];
};
__device__ static inline topk_eight topk_load(const uint16_t *p) {
    uint4 q = *reinterpret_cast<const uint4 *>(p);
    return {{q.x & 0xffff, q.x >> 16, q.y & 0xffff, q.y >> 16, q.z & 0xffff, q.z >> 16, q.w & 0xffff, q.w >> 16}};
}
__device__ static inline topk_eight topk_load(const uint32_t *p) {
    uint4 a = reinterpret_cast<const uint4 *>(p)[0], b = reinterpret_cast<const uint4 *>(p)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

struct topk_shared {
    uint32_t bins[TOPK_BINS], warp_count[TOPK_WARPS], found[2];
    uint32_t list_key[TOPK_WARPS][TOPK_LIST], list_place[TOPK_WARPS][TOPK_LIST], list_n[TOPK_WARPS];
};

/* Radix passes over keys of KEY's width: shift and width of pass p. */
template <class KEY> __device__ static inline int topk_passes() { return sizeof(KEY) == 2 ? 2 : 3; }
template <class KEY> __device__ static inline int topk_shift(int p) {
    return sizeof(KEY) == 2 ? (p == 0 ? 5 : 0) : p == 0 ? 21 : p == 1 ? 10 : 0;
}
template <class KEY> __device__ static inline uint32_t topk_mask(int p) {
    return sizeof(KEY) == 2 ? (p == 0 ? 2047 : 31) : p == 2 ? 1023 : 2047;
}

/* The bin that holds the `left`-th best key, and how many of it are wanted. All threads; the bins are complete behind it. */
__device__ static inline uint32_t topk_bin(topk_shared &m, uint32_t &left) {
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    __syncthreads();
    uint32_t hi = m.bins[TOPK_BINS - 1 - 2 * tid], lo = m.bins[TOPK_BINS - 2 - 2 * tid], run = hi + lo;
    for (int d = 1; d < 32; d *= 2) {
        uint32_t v = __shfl_up_sync(~0u, run, d);
        if (lane >= d) run += v;
    }
    if (lane == 31) m.warp_count[warp] = run;
    __syncthreads();
    uint32_t before = run - hi - lo, others = lane < warp ? m.warp_count[lane] : 0;
    for (int d = 16; d; d >>= 1) others += __shfl_xor_sync(~0u, others, d);
    before += others;
    if (before < left && before + hi + lo >= left) {
        bool first = before + hi >= left;
        m.found[0] = static_cast<uint32_t>(TOPK_BINS - 1 - 2 * tid) - !first;
        m.found[1] = left - before - (first ? 0 : hi);
    }
    __syncthreads();
    left = m.found[1];
    return m.found[0];
}
/* The `left`-th best of the keys that visit(f) passes to f, visit(f) being called by all threads; left becomes how many of
 * the keys equal to it are among the `left` best. */
template <class KEY, class VISIT> __device__ static uint32_t topk_nth(topk_shared &m, uint32_t &left, VISIT visit) {
    uint32_t prefix = 0, mask = 0;
    for (int p = 0; p < topk_passes<KEY>(); p++) {
        __syncthreads();
        for (int i = threadIdx.x; i < TOPK_BINS; i += TOPK_THREADS) m.bins[i] = 0;
        __syncthreads();
        visit([&](uint32_t key) {
            if ((key & mask) == prefix) atomicAdd(&m.bins[key >> topk_shift<KEY>(p) & topk_mask<KEY>(p)], 1u);
        });
        prefix |= topk_bin(m, left) << topk_shift<KEY>(p);
        mask |= topk_mask<KEY>(p) << topk_shift<KEY>(p);
    }
    return prefix;
}

/* Selects among the keys of each warp's own range: at(i, key, place) for i in [first, end), ascending over warps and i. */
template <class KEY, class AT, class PUT> __device__ static void topk_finish(topk_shared &m, int k, int first, int end, AT at, PUT put) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t left = static_cast<uint32_t>(k);
    uint32_t least = topk_nth<KEY>(m, left, [&](auto f) {
        for (int i = first + lane; i < end; i += 32) {
            uint32_t key, place;
            at(i, key, place);
            f(key);
        }
    });
    uint32_t up = 0, same = 0;
    for (int i = first + lane; i < end; i += 32) {
        uint32_t key, place;
        at(i, key, place);
        up += key > least, same += key == least;
    }
    for (int d = 16; d; d >>= 1) up += __shfl_xor_sync(~0u, up, d), same += __shfl_xor_sync(~0u, same, d);
    if (lane == 0) m.bins[warp] = up, m.bins[TOPK_WARPS + warp] = same;
    __syncthreads();
    uint32_t n_up = lane < warp ? m.bins[lane] : 0, n_same = lane < warp ? m.bins[TOPK_WARPS + lane] : 0;
    for (int d = 16; d; d >>= 1) n_up += __shfl_xor_sync(~0u, n_up, d), n_same += __shfl_xor_sync(~0u, n_same, d);
    for (int i = first; i < end; i += 32) {
        uint32_t key = 0, place = 0, below = (1u << lane) - 1;
        bool in = i + lane < end;
        if (in) at(i + lane, key, place);
        uint32_t ups = __ballot_sync(~0u, in && key > least), sames = __ballot_sync(~0u, in && key == least);
        uint32_t my_up = n_up + static_cast<uint32_t>(__popc(ups & below)), my_same = n_same + static_cast<uint32_t>(__popc(sames & below));
        if (in && (key > least || (key == least && my_same < left))) put(static_cast<int>(my_up + min(my_same, left)), static_cast<int>(place));
        n_up += static_cast<uint32_t>(__popc(ups));
        n_same += static_cast<uint32_t>(__popc(sames));
    }
}

/* A lower bound of the k-th best of s [first, end), which every thread has keys of: the k-th of the threads' best. */
template <class KEY> __device__ static uint32_t topk_bound(topk_shared &m, const KEY *s, int first, int end, int k) {
    constexpr int DEEP = sizeof(KEY) == 2 ? 4 : 2;
    uint32_t best = 0, wanted = static_cast<uint32_t>(k);
    for (int base = first + static_cast<int>(threadIdx.x) * 8; base < end; base += TOPK_THREADS * 8 * DEEP) {
        topk_eight e[DEEP];
#pragma unroll
        for (int j = 0; j < DEEP; j++) e[j] = topk_load(s + min(base + j * TOPK_THREADS * 8, (end - 1) / 8 * 8));
#pragma unroll
        for (int j = 0; j < DEEP; j++)
#pragma unroll
            for (int v = 0; v < 8; v++)
                if (base + j * TOPK_THREADS * 8 + v < end) best = max(best, e[j].v[v]);
    }
    return topk_nth<KEY>(m, wanted, [&](auto f) { f(best); });
}
/* Of a thread's eight keys from place i on, those in front of w1 and not below the bound: to the list of its warp. */
__device__ static inline void topk_keep(topk_shared &m, const topk_eight &e, int i, int w1, uint32_t bound, uint32_t &count) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t bits = 0;
#pragma unroll
    for (int v = 0; v < 8; v++) bits |= static_cast<uint32_t>(i + v < w1 && e.v[v] >= bound) << v;
    if (__ballot_sync(~0u, bits != 0) == 0) return;
    uint32_t run = static_cast<uint32_t>(__popc(bits)), at = run;
    for (int d = 1; d < 32; d *= 2) {
        uint32_t v = __shfl_up_sync(~0u, at, d);
        if (lane >= d) at += v;
    }
    uint32_t to = count + at - run;
#pragma unroll
    for (int v = 0; v < 8; v++) {
        if (!(bits >> v & 1)) continue;
        if (to < TOPK_LIST) m.list_key[warp][to] = e.v[v], m.list_place[warp][to] = static_cast<uint32_t>(i + v);
        to++;
    }
    count += __shfl_sync(~0u, at, 31);
}
/* Keys of s [w0, w1), this warp's part, that are not below the bound, into the warp's list. Their number; above TOPK_LIST: some
 * did not fit. Reads up to a multiple of 8 keys behind `n`. */
template <class KEY> __device__ static uint32_t topk_collect(topk_shared &m, const KEY *s, int w0, int w1, int n, uint32_t bound) {
    constexpr int DEEP = sizeof(KEY) == 2 ? 4 : 2;
    int lane = threadIdx.x & 31;
    uint32_t count = 0;
    for (int base = w0; base < w1 && count <= TOPK_LIST; base += 256 * DEEP) {
        topk_eight e[DEEP];
#pragma unroll
        for (int j = 0; j < DEEP; j++) e[j] = topk_load(s + min(base + j * 256 + lane * 8, (n - 1) / 8 * 8));
#pragma unroll
        for (int j = 0; j < DEEP; j++) topk_keep(m, e[j], base + j * 256 + lane * 8, w1, bound, count);
    }
    return count;
}
/* Bound and list of a warp's part of 16-bit keys in one reading: up to 8 times 256 keys stay in registers in between. */
enum { TOPK_HELD = 8 };
__device__ static inline topk_eight topk_unpack(const uint4 &q) {
    return {{q.x & 0xffff, q.x >> 16, q.y & 0xffff, q.y >> 16, q.z & 0xffff, q.z >> 16, q.w & 0xffff, q.w >> 16}};
}
__device__ static uint32_t topk_collect_held(topk_shared &m, const uint16_t *s, int w0, int w1, int k) {
    int lane = threadIdx.x & 31;
    uint4 held[TOPK_HELD];
    uint32_t best = 0, wanted = static_cast<uint32_t>(k), count = 0;
#pragma unroll
    for (int j = 0; j < TOPK_HELD; j++) {
        int i = w0 + j * 256 + lane * 8;
        held[j] = i < w1 ? *reinterpret_cast<const uint4 *>(s + i) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < TOPK_HELD; j++) {
        int i = w0 + j * 256 + lane * 8;
        topk_eight e = topk_unpack(held[j]);
#pragma unroll
        for (int v = 0; v < 8; v++)
            if (i + v < w1) best = max(best, e.v[v]);
    }
    uint32_t bound = topk_nth<uint16_t>(m, wanted, [&](auto f) { f(best); });
#pragma unroll
    for (int j = 0; j < TOPK_HELD; j++)
        if (count <= TOPK_LIST) topk_keep(m, topk_unpack(held[j]), w0 + j * 256 + lane * 8, w1, bound, count);
    return count;
}

/* The k best of s [n], k < n, s aligned to 32 bytes and readable up to a multiple of 8 keys. All threads of a block; put(rank,
 * place). m: free shared memory. */
template <class KEY, class PUT> __device__ static void topk_select(topk_shared &m, const KEY *s, int n, int k, PUT put) {
    int warp = threadIdx.x >> 5, part = (n + TOPK_WARPS * 256 - 1) / (TOPK_WARPS * 256) * 256;
    int w0 = min(warp * part, n), w1 = min(w0 + part, n);
    uint32_t bound = n >= TOPK_THREADS * 8 && k <= TOPK_THREADS ? topk_bound(m, s, 0, n, k) : 0;
    uint32_t count = topk_collect(m, s, w0, w1, n, bound);
    if (__syncthreads_or(count > TOPK_LIST)) {
        topk_finish<KEY>(m, k, w0, w1, [&](int i, uint32_t &key, uint32_t &place) { key = s[i], place = static_cast<uint32_t>(i); }, put);
    } else {
        topk_finish<KEY>(m, k, 0, static_cast<int>(count), [&](int i, uint32_t &key, uint32_t &place) {
            key = m.list_key[warp][i], place = m.list_place[warp][i];
        }, put);
    }
    __syncthreads(); /* m may be used again */
}

/* The same by the PEERS blocks of a cluster, n at least topk_shared_least(PEERS): each bounds and collects in its part of the row; then
 * each finds the k-th key among all that were collected, and puts what it has collected itself. All threads of all blocks. */
__host__ __device__ static inline constexpr int topk_shared_least(int peers) { return peers * TOPK_THREADS * 8; }
/* Blocks of a cluster for so many rows: more of four than half the device would not run at once. */
static inline int topk_peers(int64_t rows, int sms) { return rows * 8 <= sms ? 4 : rows * 2 <= sms ? 2 : 1; }
template <int PEERS, class KEY, class PUT> __device__ static void topk_select_shared(topk_shared &m, const KEY *s, int n, int k, PUT put) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rank = static_cast<int>(cluster_rank());
    int share = n / PEERS / 8 * 8, first = rank * share, end = rank == PEERS - 1 ? n : first + share;
    int part = (end - first + TOPK_WARPS * 256 - 1) / (TOPK_WARPS * 256) * 256;
    int w0 = min(first + warp * part, end), w1 = min(w0 + part, end);
    uint32_t count = 0;
    bool held = false;
    if constexpr (sizeof(KEY) == 2) { /* and few threads without keys, or the bound is low */
        held = part <= 256 * TOPK_HELD && part > 256 * TOPK_HELD / 2; /* shorter ones gain nothing */
        if (held) count = topk_collect_held(m, s, w0, w1, k);
    }
    if (!held) count = topk_collect(m, s, w0, w1, n, topk_bound(m, s, first, end, k));
    if (lane == 0) m.list_n[warp] = count;
    cluster_sync();
    uint32_t n_of[PEERS], keys_of[PEERS], full = 0;
#pragma unroll
    for (int r = 0; r < PEERS; r++) {
        n_of[r] = remote_u32(remote(smem_addr(&m.list_n[warp]), r));
        keys_of[r] = remote(smem_addr(&m.list_key[warp][0]), r);
        full |= n_of[r] > TOPK_LIST;
    }
    if (__syncthreads_or(full != 0)) { /* too many equal keys: every block sees it, one goes over the row */
        cluster_sync();
        if (rank == 0) topk_select(m, s, n, k, put);
        return;
    }
    uint32_t left = static_cast<uint32_t>(k);
    uint32_t least = topk_nth<KEY>(m, left, [&](auto f) {
#pragma unroll
        for (int r = 0; r < PEERS; r++)
            for (uint32_t i = lane; i < n_of[r]; i += 32) f(remote_u32(keys_of[r] + i * 4));
    });
    /* how many better and equal keys stand in front of this warp's list: in the blocks before, and in its own block */
    uint32_t up = 0, same = 0;
    for (int r = 0; r <= rank; r++) {
        uint32_t u = 0, q = 0;
        for (uint32_t i = lane; i < n_of[r]; i += 32) {
            uint32_t key = remote_u32(keys_of[r] + i * 4);
            u += key > least, q += key == least;
        }
        for (int d = 16; d; d >>= 1) u += __shfl_xor_sync(~0u, u, d), q += __shfl_xor_sync(~0u, q, d);
        if (r == rank && lane == 0) m.bins[warp] = u, m.bins[TOPK_WARPS + warp] = q;
        if (r < rank) up += u, same += q;
    }
    if (lane == 0) m.bins[2 * TOPK_WARPS + warp] = up, m.bins[3 * TOPK_WARPS + warp] = same;
    __syncthreads();
    up = m.bins[2 * TOPK_WARPS + lane] + (lane < warp ? m.bins[lane] : 0);
    same = m.bins[3 * TOPK_WARPS + lane] + (lane < warp ? m.bins[TOPK_WARPS + lane] : 0);
    for (int d = 16; d; d >>= 1) up += __shfl_xor_sync(~0u, up, d), same += __shfl_xor_sync(~0u, same, d);
    for (uint32_t i = 0; i < count; i += 32) {
        bool in = i + lane < count;
        uint32_t key = in ? m.list_key[warp][i + lane] : 0, below = (1u << lane) - 1;
        uint32_t ups = __ballot_sync(~0u, in && key > least), sames = __ballot_sync(~0u, in && key == least);
        uint32_t my_up = up + static_cast<uint32_t>(__popc(ups & below)), my_same = same + static_cast<uint32_t>(__popc(sames & below));
        if (in && (key > least || (key == least && my_same < left)))
            put(static_cast<int>(my_up + min(my_same, left)), static_cast<int>(m.list_place[warp][i + lane]));
        up += static_cast<uint32_t>(__popc(ups));
        same += static_cast<uint32_t>(__popc(sames));
    }
    cluster_sync(); /* others may still read this block's lists */
}

#endif
