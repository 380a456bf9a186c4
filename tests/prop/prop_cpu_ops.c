/* Operators of the cpu backend, every instruction set, against ref on random shapes and the deployed formats; and bit for bit
 * against themselves with other thread counts and with each row alone.
 * BY_TEST_TIMEOUT=300 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "ops/formats.h"
#include "support/device.h"
#include "support/seed.h"

static by_rng rng;

/* The devices that take part: ref, then cpu with several threads, then cpu with one. */
enum { REF, MANY, ONE, DEVICES };
static by_device *devs[DEVICES];
static const char *isa_name;

/* One tensor on every device, from the same bytes. */
typedef struct {
    by_tensor on[DEVICES];
} three;

static three up(by_dtype dtype, int64_t rows, int64_t cols, const void *src) {
    three t;
    for (int i = 0; i < DEVICES; i++) t.on[i] = by_test_tensor(devs[i], dtype, rows, cols, src);
    return t;
}
static three empty(by_dtype dtype, int64_t rows, int64_t cols) { return up(dtype, rows, cols, NULL); }
static three normal(by_dtype dtype, int64_t rows, int64_t cols, double size) {
    float *x = malloc((size_t)(rows * cols) * 4 + 4);
    assert_non_null(x);
    for (int64_t i = 0; i < rows * cols; i++) x[i] = (float)(size * by_rng_normal(&rng));
    three t = up(dtype, rows, cols, x);
    free(x);
    return t;
}
static three positive(int64_t rows, int64_t cols) {
    float *x = malloc((size_t)(rows * cols) * 4 + 4);
    assert_non_null(x);
    for (int64_t i = 0; i < rows * cols; i++) x[i] = (float)(0.05 + by_rng_unit(&rng));
    three t = up(BY_F32, rows, cols, x);
    free(x);
    return t;
}
static three codes(by_dtype dtype, int64_t rows, int64_t cols, int lo, int hi) {
    int64_t n = rows * by_dtype_row_bytes(dtype, cols);
    uint8_t *x = malloc((size_t)n + 1);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        do x[i] = (uint8_t)(lo + (int)by_rng_below(&rng, (uint64_t)(hi - lo)));
        while (dtype == BY_FP8_TILE && (x[i] & 0x7f) == 0x7f);
    }
    three t = up(dtype, rows, cols, x);
    free(x);
    return t;
}
typedef struct {
    by_weight on[DEVICES];
} weights;
static weights make_weight(by_dtype dtype, int64_t n, int64_t k) {
    weights w;
    memset(&w, 0, sizeof w);
    bool tile = dtype == BY_FP8_TILE, row = dtype == BY_FP4_ROW;
    three v = tile || row ? codes(dtype, n, k, 0, 256) : normal(dtype, n, k, 0.05), s = {0};
    if (tile) s = codes(BY_U8, (n + 31) / 32, k / 32, 114, 119);
    if (row) s = codes(BY_U8, n, k / 32, 118, 123);
    for (int i = 0; i < DEVICES; i++) w.on[i] = (by_weight){.w = v.on[i], .scale = s.on[i]};
    return w;
}

/* y of cpu close to ref's: `flips` of the values may differ by a code (roundings of nearly equal sums), the others by tol of
 * the largest value. Both cpu devices agree bit for bit. */
static void compare(const char *what, three y, double tol, double flips) {
    unsigned char *many = by_test_bytes(y.on[MANY]), *one = by_test_bytes(y.on[ONE]);
    int64_t bytes = y.on[ONE].rows * by_dtype_row_bytes(y.on[ONE].dtype, y.on[ONE].cols);
    if (memcmp(many, one, (size_t)bytes) != 0) fail_msg("%s: %s: threads change bits", isa_name, what);
    free(many);
    free(one);
    float *want = by_test_values(y.on[REF]), *got = by_test_values(y.on[ONE]);
    int64_t n = y.on[ONE].rows * y.on[ONE].cols, off = 0;
    double top = 0;
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        if (d <= tol * top) continue;
        off++;
        if (!(d <= 0.07 * fabs((double)want[i]) + 0.02 * top))
            fail_msg("%s: %s[%d]: %g, want %g", isa_name, what, (int)i, (double)got[i], (double)want[i]);
    }
    if ((double)off > flips * (double)n + (flips > 0 ? 2 : 0)) fail_msg("%s: %s: %d of %d values differ", isa_name, what, (int)off, (int)n);
    free(want);
    free(got);
}

#define EVERY(i) for (int i = 0; i < DEVICES; i++)
#define RUN(op, i, ...) assert_int_equal(by_op_##op(devs[i], &(by_##op##_args){__VA_ARGS__}, NULL), BY_OK)

static by_tensor one_row(by_tensor t, int64_t r) { return by_tensor_rows(t, r, 1); }

/* Row r of y, as cpu computed it among others, equals `alone`. */
static void same_row(const char *what, by_tensor y, int64_t r, by_tensor alone) {
    unsigned char *a = by_test_bytes(one_row(y, r)), *b = by_test_bytes(alone);
    if (memcmp(a, b, (size_t)by_dtype_row_bytes(y.dtype, y.cols)) != 0) fail_msg("%s: %s: row %d differs alone", isa_name, what, (int)r);
    free(a);
    free(b);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void matmul_case(int64_t T, int64_t k, int32_t groups, by_dtype x_type, const by_dtype *w_types, const int64_t *ns, int parts,
                        by_dtype y_type) {
    three x = normal(x_type, T, k * groups, 1);
    weights w[3];
    three y[3];
    for (int p = 0; p < parts; p++) {
        w[p] = make_weight(w_types[p], ns[p], k);
        y[p] = empty(y_type, T, ns[p]);
    }
    by_matmul_args a[DEVICES];
    EVERY(i) {
        a[i] = (by_matmul_args){.x = x.on[i], .n_parts = parts, .groups = groups};
        for (int p = 0; p < parts; p++) {
            a[i].part[p].w = w[p].on[i];
            a[i].part[p].y = y[p].on[i];
        }
        assert_int_equal(by_op_matmul(devs[i], &a[i], NULL), BY_OK);
    }
    for (int p = 0; p < parts; p++) compare("matmul", y[p], y_type == BY_BF16 ? 4e-3 : 2e-6, 0);
    if (T == 0) return;
    int64_t r = (int64_t)by_rng_below(&rng, (uint64_t)T);
    by_matmul_args alone = a[MANY];
    alone.x = one_row(alone.x, r);
    for (int p = 0; p < parts; p++) alone.part[p].y = by_test_tensor(devs[MANY], y_type, 1, ns[p], NULL);
    assert_int_equal(by_op_matmul(devs[MANY], &alone, NULL), BY_OK);
    for (int p = 0; p < parts; p++) same_row("matmul", y[p].on[MANY], r, alone.part[p].y);
}

static void matmul_cases(void) {
    const by_dtype fp8[3] = {BY_FP8_TILE, BY_FP8_TILE, BY_FP8_TILE}, mixed[3] = {BY_FP4_ROW, BY_FP8_TILE, BY_BF16};
    const by_dtype plain[3] = {BY_BF16, BY_F32, BY_BF16};
    static const int64_t rows[] = {0, 1, 2, 7, 16, 40, 200};
    for (int i = 0; i < 7; i++) {
        matmul_case(rows[i], 256, 1, BY_A8, fp8, (int64_t[]){160, 72, 0}, 2, BY_BF16);
        matmul_case(rows[i], 96, 4, BY_A8, fp8, (int64_t[]){4 * 50}, 1, BY_F32); /* groups end inside scale tiles */
        matmul_case(rows[i], 64, 2, BY_A8, fp8, (int64_t[]){128}, 1, BY_F32);
        matmul_case(rows[i], 160, 1, BY_A8, mixed, (int64_t[]){96, 33, 5}, 3, BY_F32);
        matmul_case(rows[i], 224, 1, BY_F32, mixed, (int64_t[]){40, 96, 7}, 3, BY_F32);
        matmul_case(rows[i], 100, 1, BY_BF16, plain, (int64_t[]){9, 130, 32}, 3, BY_BF16);
    }
    matmul_case(3, 1024, 1, BY_A8, fp8, (int64_t[]){2000}, 1, BY_BF16);
}

static void moe_case(int64_t T, bool deployed, bool with_shared) {
    enum { E = 11, K = 3, D = 192, I = 96 };
    by_dtype act = deployed ? BY_BF16 : BY_F32, w4 = deployed ? BY_FP4_ROW : BY_F32, w8 = deployed ? BY_FP8_TILE : BY_F32;
    three x = normal(deployed ? BY_A8 : BY_F32, T, D, 1), y = empty(act, T, D), weight = positive(T, K);
    int32_t idx[256 * K];
    for (int64_t t = 0; t < T; t++) { /* distinct experts, some popular, some never */
        for (int k = 0; k < K; k++) {
            bool taken;
            do {
                idx[t * K + k] = (int32_t)by_rng_below(&rng, by_rng_below(&rng, 2) ? 4 : E - 1);
                taken = false;
                for (int j = 0; j < k; j++) taken |= idx[t * K + j] == idx[t * K + k];
            } while (taken);
        }
    }
    three ids;
    EVERY(i) ids.on[i] = by_test_i32(devs[i], T, K, idx);
    by_expert e[DEVICES][E], shared[DEVICES];
    for (int j = 0; j <= E; j++) {
        weights w1 = make_weight(j == E ? w8 : w4, I, D), w3 = make_weight(j == E ? w8 : w4, I, D), w2 = make_weight(j == E ? w8 : w4, D, I);
        EVERY(i) *(j == E ? &shared[i] : &e[i][j]) = (by_expert){w1.on[i], w3.on[i], w2.on[i]};
    }
    EVERY(i)
        RUN(moe, i, .x = x.on[i], .idx = ids.on[i], .weight = weight.on[i], .experts = e[i], .n_experts = E,
            .shared = with_shared ? &shared[i] : NULL, .y = y.on[i], .inner = I, .limit = 10, .quant = deployed);
    compare("moe", y, deployed ? 6e-3 : 3e-6, deployed ? 0.02 : 0);
    if (T == 0) return;
    int64_t r = (int64_t)by_rng_below(&rng, (uint64_t)T);
    by_tensor alone = by_test_tensor(devs[MANY], act, 1, D, NULL);
    RUN(moe, MANY, .x = one_row(x.on[MANY], r), .idx = one_row(ids.on[MANY], r), .weight = one_row(weight.on[MANY], r),
        .experts = e[MANY], .n_experts = E, .shared = with_shared ? &shared[MANY] : NULL, .y = alone, .inner = I, .limit = 10,
        .quant = deployed);
    same_row("moe", y.on[MANY], r, alone);
}

static void moe_cases(void) {
    static const int64_t rows[] = {0, 1, 2, 5, 17, 60, 150};
    for (int i = 0; i < 7; i++)
        for (int c = 0; c < 4; c++) moe_case(rows[i], c & 1, c & 2);
}

static void router_cases(void) {
    for (int64_t T = 1; T <= 33; T += 8) {
        three x = normal(BY_BF16, T, 160, 1), gate = normal(BY_BF16, 70, 160, 0.1), bias = normal(BY_F32, 1, 70, 0.1);
        three w = empty(BY_F32, T, 6), idx;
        EVERY(i) idx.on[i] = by_test_i32(devs[i], T, 6, NULL);
        EVERY(i)
            RUN(router, i, .x = x.on[i], .gate = gate.on[i], .bias = bias.on[i], .idx = idx.on[i], .weight = w.on[i], .k = 6,
                .norm_topk = true, .routed_scale = 1.5f);
        unsigned char *a = by_test_bytes(idx.on[REF]), *b = by_test_bytes(idx.on[ONE]);
        assert_memory_equal(a, b, (size_t)T * 24);
        free(a);
        free(b);
        compare("router", w, 3e-6, 0);
    }
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void stream_case(int64_t T, by_dtype act, int32_t m, int64_t D, by_dtype fn_type, double size) {
    bool quant = act == BY_BF16;
    three h = normal(act, T, m * D, size), pre = positive(T, m), fn = normal(fn_type, m * (m + 2), m * D, 0.05);
    three base = normal(BY_F32, 1, m * (m + 2), 0.5), scale = normal(BY_F32, 1, 3, 1), norm = normal(BY_BF16, 1, D, 1);
    three y = empty(act, T, D), y_q = empty(BY_A8, T, D), next = empty(BY_F32, T, m), post = empty(BY_F32, T, m), comb = empty(BY_F32, T, m * m);
    EVERY(i)
        RUN(hc_mix, i, .h = h.on[i], .pre = pre.on[i], .fn = fn.on[i], .base = base.on[i], .scale = scale.on[i], .norm = norm.on[i],
            .y = y.on[i], .y_a8 = quant ? y_q.on[i] : (by_tensor){0}, .next_pre = next.on[i], .post = post.on[i],
            .comb = comb.on[i], .m = m, .iters = 20, .norm_eps = 1e-20f, .hc_eps = 1e-6f);
    double tol = quant ? 4e-3 : 2e-6;
    compare("hc_mix y", y, tol, 0);
    if (quant) compare("hc_mix y_a8", y_q, 4e-3, 0.01);
    compare("hc_mix pre", next, 5e-6, 0);
    compare("hc_mix post", post, 5e-6, 0);
    compare("hc_mix comb", comb, 5e-6, 0);
    three rows;
    int32_t some[2] = {(int32_t)(T - 1), 0};
    EVERY(i) rows.on[i] = by_test_i32(devs[i], 2, 1, some);
    three closed = empty(act, 2, D), out = normal(act, T, D, 1);
    EVERY(i)
        RUN(hc_close, i, .h = h.on[i], .pre = pre.on[i], .norm = norm.on[i], .rows = rows.on[i], .y = closed.on[i], .m = m, .eps = 1e-20f);
    compare("hc_close", closed, tol, 0);
    three read = empty(act, 2, D), wide = empty(act, T, 2 * D);
    EVERY(i) {
        RUN(hc_read, i, .h = h.on[i], .pre = pre.on[i], .rows = rows.on[i], .y = read.on[i], .m = m);
        by_tensor right = wide.on[i], same = pre.on[i]; /* columns of a wider buffer, one row of weights for all */
        right.off += by_dtype_row_bytes(act, D);
        right.cols = D;
        same.stride = 0;
        RUN(hc_read, i, .h = h.on[i], .pre = same, .y = right, .m = m);
    }
    compare("hc_read", read, quant ? 4e-3 : 1e-6, 0);
    compare("hc_read of all rows", wide, quant ? 4e-3 : 1e-6, 0);
    three sum = normal(BY_F32, T, D, 1), more = normal(BY_F32, T, D, 1);
    EVERY(i) RUN(add, i, .x = more.on[i], .y = sum.on[i]);
    compare("add", sum, 0, 0);
    three post_in = positive(T, m), comb_in = positive(T, m * m); /* the same on every device */
    EVERY(i) RUN(hc_post, i, .h = h.on[i], .out = out.on[i], .post = post_in.on[i], .comb = comb_in.on[i], .m = m);
    compare("hc_post", h, 0, 0);
    three kv = normal(BY_F32, T, (m + 1) * D, 1), qw = normal(BY_BF16, m, D, 1), kw = normal(BY_BF16, m, D, 1);
    EVERY(i)
        RUN(engram_gate, i, .h = h.on[i], .kv = kv.on[i], .q_weight = qw.on[i], .k_weight = kw.on[i], .m = m, .eps = 1e-20f);
    compare("engram_gate", h, tol, 0);
}

static void stream_cases(void) {
    static const int64_t rows[] = {1, 2, 9, 70};
    for (int i = 0; i < 4; i++) {
        stream_case(rows[i], BY_BF16, 4, 96, BY_F32, 1);
        stream_case(rows[i], BY_F32, 4, 64, BY_F32, 1);
        stream_case(rows[i], BY_F32, 4, 64, BY_F32, 1e20); /* squares beyond fp32 */
        stream_case(rows[i], BY_BF16, 2, 1056, BY_BF16, 1);
    }
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

typedef struct {
    three pos, seq, row0, pos0, slot, blocks;
    int32_t n_rows, n_seqs, most; /* most: last position + 1 */
} steps;

/* Sequences with old entries and some rows each. */
static steps make_steps(int32_t n_seqs, int32_t rows_each, int32_t old) {
    int32_t pos[256], seq[256], row0[9], pos0[8], slot[8], blocks[8 * 16], n = 0, most = 0;
    for (int32_t q = 0; q < n_seqs; q++) {
        row0[q] = n;
        slot[q] = n_seqs - 1 - q;
        pos0[q] = old > 0 ? (int32_t)by_rng_below(&rng, (uint64_t)old) : 0;
        for (int32_t r = 0; r < rows_each; r++, n++) {
            pos[n] = pos0[q] + r;
            seq[n] = q;
        }
        if (pos0[q] + rows_each > most) most = pos0[q] + rows_each;
        for (int b = 0; b < 16; b++) blocks[q * 16 + b] = (q * 16 + (b * 5 + 3) % 16);
    }
    row0[n_seqs] = n;
    steps s = {.n_rows = n, .n_seqs = n_seqs, .most = most};
    EVERY(i) {
        s.pos.on[i] = by_test_i32(devs[i], n, 1, pos);
        s.seq.on[i] = by_test_i32(devs[i], n, 1, seq);
        s.row0.on[i] = by_test_i32(devs[i], n_seqs + 1, 1, row0);
        s.pos0.on[i] = by_test_i32(devs[i], n_seqs, 1, pos0);
        s.slot.on[i] = by_test_i32(devs[i], n_seqs, 1, slot);
        s.blocks.on[i] = by_test_i32(devs[i], n_seqs, 16, blocks);
    }
    return s;
}
static by_batch batch_of(const steps *s, int i) {
    return (by_batch){.n_rows = s->n_rows, .n_seqs = s->n_seqs, .row_pos = s->pos.on[i], .row_seq = s->seq.on[i], .seq_row0 = s->row0.on[i],
                      .seq_pos0 = s->pos0.on[i], .seq_slot = s->slot.on[i], .seq_blocks = s->blocks.on[i]};
}

/* Records of random vectors. */
static three records(by_rec rec, int64_t n, int64_t d) {
    int64_t bytes = by_rec_bytes(rec, d);
    uint8_t *p = malloc((size_t)(n * bytes) + 1);
    float *x = malloc((size_t)d * 4);
    assert_true(p && x);
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < d; i++) x[i] = (float)by_rng_normal(&rng);
        uint8_t *at = p + r * bytes;
        if (rec == BY_REC_F32) memcpy(at, x, (size_t)bytes);
        else if (rec == BY_REC_FP8) by_quant_act8(x, d, at, at + d);
        else by_quant_kv4(x, d, at, at + d / 2);
    }
    three t = up(BY_U8, n, bytes, p);
    free(p);
    free(x);
    return t;
}

static void attention_case(int32_t n_seqs, int32_t rows_each, int32_t heads, bool deployed, bool entries, bool draft_block) {
    enum { D = 96, R = 32, W = 24, PER_BLOCK = 8, TOPK = 20 };
    steps s = make_steps(n_seqs, rows_each, 100);
    by_dtype act = deployed ? BY_BF16 : BY_F32;
    by_rec ring_rec = deployed ? BY_REC_FP8 : BY_REC_F32, main_rec = deployed ? BY_REC_FP4 : BY_REC_F32;
    three q = normal(act, s.n_rows, heads * D, 0.5), kv = records(ring_rec, s.n_rows, D), ring = records(ring_rec, n_seqs * W, D);
    three main = records(main_rec, n_seqs * 16 * PER_BLOCK, D), cs = normal(BY_F32, s.n_rows, R, 1), sink = normal(BY_F32, 1, heads, 1);
    three o = empty(deployed ? BY_A8 : BY_F32, s.n_rows, heads * D);
    int32_t *sel = calloc((size_t)s.n_rows * (TOPK + 1), 4);
    assert_non_null(sel);
    for (int32_t r = 0; r < s.n_rows; r++) {
        int32_t n = (int32_t)by_rng_below(&rng, TOPK + 1);
        sel[r * (TOPK + 1)] = n;
        for (int32_t i = 0; i < n; i++) sel[r * (TOPK + 1) + 1 + i] = i * 2 + (int32_t)by_rng_below(&rng, 2);
    }
    three chosen;
    EVERY(i) chosen.on[i] = by_test_i32(devs[i], s.n_rows, TOPK + 1, sel);
    free(sel);
    int64_t rec = by_rec_bytes(ring_rec, D), block = PER_BLOCK * by_rec_bytes(main_rec, D);
    EVERY(i)
        RUN(attention, i, .batch = batch_of(&s, i), .q = q.on[i], .cs = cs.on[i], .kv = kv.on[i],
            .ring = {ring.on[i].mem, 0, W * rec, W, ring_rec},
            .main = entries ? (by_pages){main.on[i].mem, 0, block, PER_BLOCK, main_rec} : (by_pages){0}, .sel = chosen.on[i],
            .sink = sink.on[i], .o = o.on[i], .heads = heads, .d = D, .window = W, .ratio = 2, .scale = 0.1f,
            .block = draft_block ? rows_each : 0);
    compare("attention", o, deployed ? 1e-3 : 3e-6, deployed ? 0.01 : 0);
}

static void attention_cases(void) {
    attention_case(1, 1, 5, true, true, false);
    attention_case(1, 1, 32, true, false, false);
    attention_case(3, 1, 20, true, true, false);
    attention_case(2, 40, 17, true, true, false);
    attention_case(1, 9, 4, false, true, false);
    attention_case(4, 2, 33, false, false, false);
    attention_case(1, 5, 8, true, false, true);
    attention_case(6, 5, 8, true, false, true);
    attention_case(8, 8, 33, false, false, true);
    attention_case(1, 1, 4, false, false, true);
}

static void index_case(int32_t n_seqs, int32_t rows_each, int32_t old, bool deployed, by_candidates mode) {
    enum { D = 64, H = 6, PER_BLOCK = 64, TOPK = 24, BLOCKS = 5, SIZE = 8 };
    steps s = make_steps(n_seqs, rows_each, old);
    three q = empty(deployed ? BY_IX4 : BY_F32, deployed ? s.n_rows * H : s.n_rows, deployed ? D : H * D);
    three raw = normal(deployed ? BY_BF16 : BY_F32, s.n_rows, H * D, 1), cs = normal(BY_F32, s.n_rows, 16, 1);
    EVERY(i) RUN(index_query, i, .q = raw.on[i], .cs = cs.on[i], .out = q.on[i], .heads = H, .d = D);
    three again;
    unsigned char *bytes = by_test_bytes(q.on[REF]); /* every device selects with the same queries */
    EVERY(i) again.on[i] = by_test_tensor(devs[i], BY_U8, 1, q.on[i].rows * by_dtype_row_bytes(q.on[i].dtype, q.on[i].cols), bytes);
    free(bytes);
    EVERY(i) q.on[i].mem = again.on[i].mem;
    three w = normal(deployed ? BY_BF16 : BY_F32, s.n_rows, H, 1), keys;
    if (deployed) {
        float x[D];
        uint8_t *p = malloc((size_t)n_seqs * 16 * PER_BLOCK * (D / 2 + D / 32));
        assert_non_null(p);
        for (int b = 0; b < n_seqs * 16; b++) {
            uint8_t *at = p + b * PER_BLOCK * (D / 2 + D / 32);
            for (int e = 0; e < PER_BLOCK; e++) {
                for (int c = 0; c < D; c++) x[c] = (float)by_rng_normal(&rng);
                by_quant_ix4(x, D, at + e * (D / 2), at + PER_BLOCK * (D / 2) + e * (D / 32));
            }
        }
        keys = up(BY_U8, n_seqs * 16, PER_BLOCK * (D / 2 + D / 32), p);
        free(p);
    } else {
        keys = records(BY_REC_F32, n_seqs * 16 * PER_BLOCK, D);
    }
    three sel, cand;
    int32_t blocks[256 * (BLOCKS + 1)] = {0};
    for (int32_t r = 0; r < s.n_rows; r++) {
        blocks[r * (BLOCKS + 1)] = mode == BY_CAND_INSIDE ? 4 : 0;
        for (int b = 0; b < 4; b++) blocks[r * (BLOCKS + 1) + 1 + b] = b * 2;
    }
    EVERY(i) {
        sel.on[i] = by_test_i32(devs[i], s.n_rows, TOPK + 1, NULL);
        cand.on[i] = by_test_i32(devs[i], s.n_rows, BLOCKS + 1, blocks);
    }
    int64_t block = PER_BLOCK * (deployed ? D / 2 + D / 32 : D * 4);
    int32_t most = s.most / 2 + 1;
    EVERY(i)
        RUN(index_select, i, .batch = batch_of(&s, i), .q = q.on[i], .weights = w.on[i], .scale = 0.05f,
            .keys = {keys.on[i].mem, 0, block, PER_BLOCK, deployed ? BY_REC_IX4 : BY_REC_F32}, .sel = sel.on[i], .cand = cand.on[i],
            .mode = mode, .heads = H, .d = D, .ratio = 2, .topk = TOPK, .cand_blocks = BLOCKS, .cand_block_size = SIZE,
            .round_bf16 = deployed, .n_entries_max = most);
    three both[2] = {sel, cand};
    for (int k = 0; k < 2; k++) {
        int32_t *want = (int32_t *)(void *)by_test_bytes(both[k].on[REF]), *many = (int32_t *)(void *)by_test_bytes(both[k].on[MANY]);
        int32_t *one = (int32_t *)(void *)by_test_bytes(both[k].on[ONE]);
        int64_t cols = both[k].on[ONE].cols, off = 0;
        for (int32_t r = 0; r < s.n_rows; r++) { /* beyond the count, anything */
            int32_t n = want[r * cols] < 0 ? 0 : want[r * cols];
            assert_int_equal(want[r * cols], one[r * cols]);
            for (int32_t j = 0; j <= n; j++) {
                off += want[r * cols + j] != one[r * cols + j];
                assert_int_equal(many[r * cols + j], one[r * cols + j]);
            }
        }
        assert_true(off <= s.n_rows * cols / 50 + (deployed ? 4 : 0)); /* a score on the edge of a rounding */
        free(want);
        free(many);
        free(one);
    }
}

static void index_cases(void) {
    for (int deployed = 0; deployed < 2; deployed++) {
        index_case(1, 1, 0, deployed, BY_CAND_NONE);
        index_case(3, 2, 900, deployed, BY_CAND_NONE);
        index_case(2, 30, 1500, deployed, BY_CAND_SOURCE);
        index_case(2, 5, 800, deployed, BY_CAND_INSIDE);
    }
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

static void row_cases(void) {
    static const int64_t rows[] = {1, 3, 50};
    for (int c = 0; c < 6; c++) {
        int64_t T = rows[c % 3], d = 128, R = 32;
        by_dtype act = c < 3 ? BY_BF16 : BY_F32;
        three x = normal(act, T, d, 2), norm = normal(BY_BF16, 1, d, 1), y = empty(act, T, d), y_q = empty(BY_A8, T, d);
        three cs = normal(BY_F32, T, R, 1), kv = empty(BY_U8, T, by_rec_bytes(BY_REC_FP8, d)), q = normal(act, T, 4 * d, 1);
        EVERY(i) RUN(rmsnorm, i, .x = x.on[i], .norm = norm.on[i], .y = y.on[i], .y_a8 = y_q.on[i], .eps = 1e-6f);
        compare("rmsnorm", y, act == BY_BF16 ? 4e-3 : 1e-6, 0);
        compare("rmsnorm a8", y_q, 1e-6, 0.01);
        EVERY(i) RUN(act8, i, .x = x.on[i], .y = y_q.on[i]);
        compare("act8", y_q, 0, 0);
        EVERY(i) RUN(rope, i, .x = q.on[i], .cs = cs.on[i], .heads = 4, .d = (int32_t)d);
        compare("rope", q, 0, 0);
        EVERY(i) RUN(window_kv, i, .x = x.on[i], .norm = norm.on[i], .cs = cs.on[i], .kv = kv.on[i], .rec = BY_REC_FP8, .eps = 1e-6f);
        unsigned char *a = by_test_bytes(kv.on[REF]), *b = by_test_bytes(kv.on[ONE]);
        int64_t off = 0;
        for (int64_t i = 0; i < T * kv.on[ONE].cols; i++) off += a[i] != b[i];
        assert_true(off <= T * kv.on[ONE].cols / 100 + 2);
        free(a);
        free(b);
        three table = normal(BY_BF16, 9, d, 1), h = empty(act, T, 3 * d), pre = empty(BY_F32, T, 3), ids;
        int32_t id[50];
        for (int i = 0; i < 50; i++) id[i] = (int32_t)by_rng_below(&rng, 9);
        EVERY(i) ids.on[i] = by_test_i32(devs[i], T, 1, id);
        EVERY(i) RUN(embed, i, .ids = ids.on[i], .table = table.on[i], .h = h.on[i], .pre = pre.on[i], .m = 3);
        compare("embed", h, 0, 0);
        compare("embed pre", pre, 0, 0);
    }
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

static void on_every_isa(void (*cases)(void)) {
    by_cpu cpu;
    by_cpu_detect(&cpu);
    for (int isa = BY_ISA_REF + 1; isa < BY_ISA_N; isa++) {
        if (!by_isa_includes(cpu.isa, (by_isa)isa)) continue;
        isa_name = by_isa_name((by_isa)isa);
        by_test_backend ref = {BY_BACKEND_REF, NULL, "ref"}, fast = {BY_BACKEND_CPU, isa_name, "cpu"};
        devs[REF] = by_test_device(&ref, 1);
        devs[MANY] = by_test_device(&fast, 3);
        devs[ONE] = by_test_device(&fast, 1);
        cases();
        by_test_free_all();
        EVERY(i) by_device_close(devs[i]);
    }
}

#define CASE(name, run)                                                                                                \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        on_every_isa(run);                                                                                             \
    }
CASE(products, matmul_cases)
CASE(experts, moe_cases)
CASE(routes, router_cases)
CASE(streams, stream_cases)
CASE(attention, attention_cases)
CASE(selection, index_cases)
CASE(rows, row_cases)

int main(void) {
    rng = by_test_rng(20263);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),  cmocka_unit_test(experts),   cmocka_unit_test(routes), cmocka_unit_test(streams),
        cmocka_unit_test(attention), cmocka_unit_test(selection), cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
