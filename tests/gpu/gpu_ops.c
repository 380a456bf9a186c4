/* gpu_ops.c - every operator of the cuda backend against the ref backend, on random data over many shapes; then batch
 * invariance: a row's bits must not depend on the rows beside it. Prints one line a case and a summary; exit code 1 when
 * a case fails, 77 when the machine has no device. Outputs are poisoned before each run.
 *
 * Measures: `diff` = 1 - 2<x,y> / (|x|^2 + |y|^2), and the largest error relative to the largest value. Quantised outputs
 * are compared as values; where a sum lies next to a rounding boundary a code may fall to the other side, so they have
 * the wider limits of one step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_compare.h"

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static pair positions(int64_t n, int32_t step, int32_t from) {
    int32_t *v = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) v[i] = from + (int32_t)i * step;
    pair p = i32s(n, 1, v);
    free(v);
    return p;
}
static pair rotation(int64_t n, int r) {
    pair pos = positions(n, 977, 5), freq, cs = make(BY_F32, n, r, NULL);
    float f[64];
    for (int j = 0; j < r / 2; j++) f[j] = 1.0f / (float)pow(10000, 2.0 * j / r);
    freq = make(BY_F32, 1, r / 2, f);
    BOTH {
        by_rope_table_args a = {.pos = pos.t[i], .scale = 1, .freq = freq.t[i], .cs = cs.t[i]};
        MUST(by_op_rope_table(dev[i], &a, err));
    }
    return cs;
}
static void test_rope_table(void) {
    pair cs = rotation(513, 64);
    compare("rope_table 513 x 64", cs, 1e-12, 1e-6);
    free_all();
}
static void test_embed(by_dtype act, int D) {
    int32_t ids[5] = {3, 0, 6, -1, 2};
    pair id = i32s(5, 1, ids), table = acts(BY_BF16, 7, D, 1), image = acts(act, 1, D, 1), h = make(act, 5, 4 * D, NULL);
    pair pre = make(BY_F32, 5, 4, NULL);
    BOTH {
        by_embed_args a = {id.t[i], table.t[i], image.t[i], h.t[i], pre.t[i], 4};
        MUST(by_op_embed(dev[i], &a, err));
    }
    NAME("embed D %d %s", D, by_dtype_name(act));
    same_bytes(name, h, 0);
    same_bytes("embed: reading weights", pre, 0);
    free_all();
}
static void test_hc(int64_t T, int D, by_dtype act, by_dtype fnt) {
    int m = 4;
    pair h = acts(act, T, m * D, 1), pre = acts(BY_F32, T, m, 0.5f), fn = acts(fnt, m * (m + 2), m * D, 0.02f);
    pair base = acts(BY_F32, 1, m * (m + 2), 0.3f), scale = acts(BY_F32, 1, 3, 1), norm = acts(BY_BF16, 1, D, 1);
    pair y = make(act, T, D, NULL), a8 = make(BY_A8, T, D, NULL), next = make(BY_F32, T, m, NULL);
    pair post = make(BY_F32, T, m, NULL), comb = make(BY_F32, T, m * m, NULL), out = acts(act, T, D, 1);
    BOTH {
        by_hc_mix_args a = {h.t[i], {0}, pre.t[i], fn.t[i], base.t[i], scale.t[i], norm.t[i], y.t[i], a8.t[i], next.t[i], post.t[i],
                            comb.t[i], m, 20, 1e-20f, 1e-6f};
        MUST(by_op_hc_mix(dev[i], &a, err));
    }
    pair alone = make(act, T, D, NULL), next1 = make(BY_F32, T, m, NULL), post1 = make(BY_F32, T, m, NULL), comb1 = make(BY_F32, T, m * m, NULL);
    for (int64_t t = 0; t < T; t++) { /* a row alone gets the same bits */
        by_hc_mix_args a = {.h = h.t[GPU], .pre = pre.t[GPU], .fn = fn.t[GPU], .base = base.t[GPU], .scale = scale.t[GPU], .norm = norm.t[GPU],
                            .y = alone.t[GPU], .next_pre = next1.t[GPU], .post = post1.t[GPU], .comb = comb1.t[GPU], .m = m, .iters = 20,
                            .norm_eps = 1e-20f, .hc_eps = 1e-6f};
        by_tensor *row[] = {&a.h, &a.pre, &a.y, &a.next_pre, &a.post, &a.comb};
        for (size_t k = 0; k < sizeof row / sizeof *row; k++) *row[k] = by_tensor_rows(*row[k], t, 1);
        MUST(by_op_hc_mix(dev[GPU], &a, err));
    }
    NAME("hc_mix T %d D %d %s, fn %s: y", (int)T, D, by_dtype_name(act), by_dtype_name(fnt));
    same_on_device("  rows alone: y", y.t[GPU], alone.t[GPU]);
    same_on_device("  rows alone: comb", comb.t[GPU], comb1.t[GPU]);
    check(name, y);
    check("  y_a8", a8);
    compare("  next_pre", next, 1e-10, 1e-4);
    compare("  post", post, 1e-10, 1e-4);
    compare("  comb", comb, 1e-10, 1e-4);
    int32_t pick[3] = {(int32_t)T - 1, 0, (int32_t)T / 2};
    pair rows = i32s(3, 1, pick), closed = make(act, 3, D, NULL);
    BOTH {
        by_hc_close_args c = {h.t[i], pre.t[i], norm.t[i], rows.t[i], closed.t[i], m, 1e-20f};
        MUST(by_op_hc_close(dev[i], &c, err));
        by_hc_post_args p = {h.t[i], out.t[i], post.t[REF], comb.t[REF], m};
        p.post = i ? post.t[GPU] : post.t[REF];
        p.comb = i ? comb.t[GPU] : comb.t[REF];
        MUST(by_op_hc_post(dev[i], &p, err));
    }
    check("  hc_close", closed);
    check("  hc_post", h);
    free_all();
}
/* A sublayer's output written back and the streams read in one call, as ref does it; and rows of one call against the same rows in calls
 * of other sizes, bit for bit. */
static void test_hc_turn(int64_t T, int D, by_dtype act) {
    static const int sizes[] = {1, 2, 8, 9, 16, 17, 33, 96, 97, 130, 300};
    enum { N_SIZES = sizeof sizes / sizeof *sizes, m = 4 };
    pair h = acts(act, T, m * D, 1), fn = acts(BY_F32, m * (m + 2), m * D, 0.02f), out = acts(act, T, D, 1);
    pair norm = acts(BY_BF16, 1, D, 1);
    pair base = acts(BY_F32, 1, m * (m + 2), 0.3f), scale = acts(BY_F32, 1, 3, 1), y = make(act, T, D, NULL), a8 = make(BY_A8, T, D, NULL);
    pair pre = acts(BY_F32, T, m, 0.5f), post = acts(BY_F32, T, m, 1), comb = acts(BY_F32, T, m * m, 0.3f);
    pair h2 = copy_of(h, GPU), pre2 = copy_of(pre, GPU), post2 = copy_of(post, GPU), comb2 = copy_of(comb, GPU);
    pair y2 = make(act, T, D, NULL);
    BOTH {
        by_hc_mix_args a = {h.t[i],  out.t[i], pre.t[i], fn.t[i],   base.t[i], scale.t[i], norm.t[i], y.t[i],
                            a8.t[i], pre.t[i], post.t[i], comb.t[i], m,         20,         1e-20f,    1e-6f};
        MUST(by_op_hc_mix(dev[i], &a, err));
    }
    int64_t r = 0;
    for (int i = 0; i < N_SIZES && r < T; i++) {
        int64_t n = sizes[i] < T - r ? sizes[i] : T - r;
        by_hc_mix_args a = {.h = h2.t[GPU], .out = out.t[GPU], .pre = pre2.t[GPU], .fn = fn.t[GPU], .base = base.t[GPU], .scale = scale.t[GPU],
                            .norm = norm.t[GPU], .y = y2.t[GPU], .next_pre = pre2.t[GPU], .post = post2.t[GPU], .comb = comb2.t[GPU], .m = m,
                            .iters = 20, .norm_eps = 1e-20f, .hc_eps = 1e-6f};
        by_tensor *rows[] = {&a.h, &a.out, &a.pre, &a.y, &a.next_pre, &a.post, &a.comb};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) *rows[k] = by_tensor_rows(*rows[k], r, n);
        MUST(by_op_hc_mix(dev[GPU], &a, err));
        r += n;
    }
    NAME("hc_mix behind an output, T %d D %d %s: h", (int)T, D, by_dtype_name(act));
    check(name, h);
    check("  y", y);
    check("  y_a8", a8);
    compare("  next_pre", pre, 1e-10, 1e-4);
    compare("  post", post, 1e-10, 1e-4);
    compare("  comb", comb, 1e-10, 1e-4);
    by_tensor one[] = {h.t[GPU], y.t[GPU], pre.t[GPU], post.t[GPU], comb.t[GPU]};
    by_tensor other[] = {h2.t[GPU], y2.t[GPU], pre2.t[GPU], post2.t[GPU], comb2.t[GPU]};
    for (int i = 0; i < 5; i++) same_on_device("  rows in calls of other sizes", by_tensor_rows(one[i], 0, r), by_tensor_rows(other[i], 0, r));
    free_all();
}
/* Into columns of a wider buffer, all rows with the same weights, and chosen rows with their own; then the sum of fp32 rows. */
static void test_hc_read(int64_t T, int D, by_dtype act) {
    int m = 4;
    int32_t pick[3] = {(int32_t)T - 1, 0, (int32_t)T / 2};
    pair h = acts(act, T, m * D, 1), pre = acts(BY_F32, T, m, 0.5f), mean = acts(BY_F32, 1, m, 0.5f), rows = i32s(3, 1, pick);
    pair wide = acts(act, T, 3 * D, 1), y = make(act, 3, D, NULL), sum = acts(BY_F32, 3, D, 1), x = acts(BY_F32, 3, D, 1);
    BOTH {
        by_tensor part = wide.t[i], same = mean.t[i];
        part.off = by_dtype_row_bytes(act, D), part.cols = D;
        same.stride = 0, same.rows = T;
        by_hc_read_args a = {.h = h.t[i], .pre = same, .y = part, .m = m};
        MUST(by_op_hc_read(dev[i], &a, err));
        by_hc_read_args b = {.h = h.t[i], .pre = pre.t[i], .rows = rows.t[i], .y = y.t[i], .m = m};
        MUST(by_op_hc_read(dev[i], &b, err));
        by_add_args s = {x.t[i], sum.t[i]};
        MUST(by_op_add(dev[i], &s, err));
    }
    NAME("hc_read T %d D %d %s", (int)T, D, by_dtype_name(act));
    check(name, wide);
    check("  chosen rows", y);
    same_bytes("  add", sum, 0);
    free_all();
}
static void test_check_rows(int64_t T, int K, by_dtype act) {
    pair x = acts(act, T, K, 1), bad = make(BY_I32, T, 1, NULL);
    static const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x7f7f0000};
    BOTH for (int r = 0; r < 4; r++) {
        size_t size = act == BY_F32 ? 4 : 2;
        uint16_t half = (uint16_t)(odd[r] >> 16);
        size_t at = (size_t)((r + 1) * K - (r == 1 ? K : 1)) * size;
        MUST(by_mem_write(x.t[i].mem, at, act == BY_F32 ? (const void *)&odd[r] : &half, size, err));
    }
    BOTH {
        by_check_rows_args a = {x.t[i], bad.t[i]};
        MUST(by_op_check_rows(dev[i], &a, err));
    }
    NAME("check_rows %s", by_dtype_name(act));
    same_bytes(name, bad, 0);
    int32_t marks[4];
    MUST(by_mem_read(marks, bad.t[GPU].mem, 0, 16, err));
    verdict("  marks", marks[0] == 1 && marks[1] == 1 && marks[2] == 1 && marks[3] == 0, 0, 0);
    free_all();
}
static void test_rows(int64_t T, int K, by_dtype act) {
    pair x = acts(act, T, K, 1), norm = acts(BY_BF16, 1, K, 1), y = make(act, T, K, NULL), a8 = make(BY_A8, T, K, NULL);
    pair q = make(BY_A8, T, K, NULL);
    BOTH {
        by_act8_args e = {x.t[i], q.t[i]};
        MUST(by_op_act8(dev[i], &e, err));
        by_rmsnorm_args a = {x.t[i], norm.t[i], y.t[i], a8.t[i], 1e-20f};
        MUST(by_op_rmsnorm(dev[i], &a, err));
    }
    NAME("act8 T %d K %d %s", (int)T, K, by_dtype_name(act));
    same_bytes(name, q, 0);
    check("  rmsnorm", y);
    check("  rmsnorm a8", a8);
    free_all();
}
static void test_gather(void) {
    int32_t pick[4] = {5, 0, 0, 6};
    pair rows = i32s(4, 1, pick), x = acts(BY_A8, 7, 96, 1), y = make(BY_A8, 4, 96, NULL), p = acts(BY_F32, 7, 4, 1);
    pair q = make(BY_F32, 4, 4, NULL);
    BOTH MUST(by_op_gather_rows(dev[i], &(by_gather_rows_args){rows.t[i], 2, {{x.t[i], y.t[i]}, {p.t[i], q.t[i]}}}, err));
    same_bytes("gather_rows a8", y, 0);
    same_bytes("  f32", q, 0);
    free_all();
}
static void test_rope(int64_t T, int heads, int d, int r, by_dtype act) {
    pair x = acts(act, T, heads * d, 1), cs = rotation(T, r);
    BOTH MUST(by_op_rope(dev[i], &(by_rope_args){x.t[i], cs.t[i], heads, d}, err));
    NAME("rope T %d heads %d d %d %s", (int)T, heads, d, by_dtype_name(act));
    check(name, x);
    free_all();
}

/* ---- matmul --------------------------------------------------------------------------------------------------- */

static void test_matmul(int64_t T, int64_t N, int64_t K, int groups, by_dtype xt, by_dtype wt, by_dtype yt, bool two) {
    pair x = acts(xt, T, K * groups, 1), y = make(yt, T, N, NULL), z = make(yt, T, 96, NULL);
    wpair w = weight(wt, N, K), v = weight(wt, 96, K);
    BOTH {
        by_matmul_args a = {.x = x.t[i], .n_parts = two ? 2 : 1, .groups = groups};
        a.part[0].w = w.w[i], a.part[0].y = y.t[i];
        a.part[1].w = v.w[i], a.part[1].y = z.t[i];
        MUST(by_op_matmul(dev[i], &a, err));
    }
    NAME("matmul T %d N %d K %d G %d %s x %s -> %s", (int)T, (int)N, (int)K, groups, by_dtype_name(xt), by_dtype_name(wt),
         by_dtype_name(yt));
    compare(name, y, yt == BY_F32 ? 1e-10 : 1e-5, yt == BY_F32 ? 1e-5 : 5e-3);
    if (two) compare("  second part", z, yt == BY_F32 ? 1e-10 : 1e-5, yt == BY_F32 ? 1e-5 : 5e-3);
    free_all();
}
/* Rows of one call against the same rows in calls of other sizes, on the device alone: bit for bit, though kernels and tiles
 * differ. */
static void invariance(int64_t N, int64_t K, int groups, by_dtype xt, by_dtype wt) {
    static const int sizes[] = {1, 2, 3, 8, 9, 16, 24, 33, 64, 65, 100, 128, 256, 257, 300, 600};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    int64_t T = 0, r = 0;
    for (int i = 0; i < N_SIZES; i++) T += sizes[i];
    pair x = acts(xt, T, K * groups, 1), y = make(BY_F32, T, N, NULL), z = make(BY_F32, T, N, NULL);
    wpair w = weight(wt, N, K);
    by_matmul_args a = {.x = x.t[GPU], .n_parts = 1, .groups = groups};
    a.part[0].w = w.w[GPU], a.part[0].y = y.t[GPU];
    MUST(by_op_matmul(dev[GPU], &a, err));
    for (int i = 0; i < N_SIZES; i++) {
        a.x = by_tensor_rows(x.t[GPU], r, sizes[i]);
        a.part[0].y = by_tensor_rows(z.t[GPU], r, sizes[i]);
        MUST(by_op_matmul(dev[GPU], &a, err));
        r += sizes[i];
    }
    unsigned char *p = download(y.t[GPU]), *q = download(z.t[GPU]);
    int64_t bad = 0, at = 0;
    for (int s = 0; s < N_SIZES; s++) {
        int64_t here = 0;
        for (int64_t i = 0; i < sizes[s] * N; i++) here += memcmp(p + 4 * (at * N + i), q + 4 * (at * N + i), 4) != 0;
        if (here) printf("    size %d: %lld of %lld differ\n", sizes[s], (long long)here, (long long)(sizes[s] * N));
        bad += here;
        at += sizes[s];
    }
    NAME("invariance matmul N %d K %d G %d %s x %s", (int)N, (int)K, groups, by_dtype_name(xt), by_dtype_name(wt));
    verdict(name, bad == 0, (double)bad, 0);
    free(p);
    free(q);
    free_all();
}

/* ---- caches --------------------------------------------------------------------------------------------------- */

enum { ROWS_MAX = 1 << 17, MANY = 65540 /* more rows than a grid's second dimension has */ };
/* A step of `n` sequences: sequence s has rows[s] rows from position pos0[s]. */
typedef struct {
    by_batch b[2];
    int32_t T, n;
    int32_t row0[9], pos0[9];
} step;
static step make_step(int n, const int32_t *rows, const int32_t *pos0, int blocks) {
    step s = {.n = n};
    static int32_t pos[ROWS_MAX], seq[ROWS_MAX], image[ROWS_MAX], table[8 * 4096];
    int32_t slot[8];
    for (int i = 0; i < n; i++) {
        s.row0[i] = s.T;
        s.pos0[i] = pos0[i];
        slot[i] = (i * 5 + 2) % 8;
        for (int32_t r = 0; r < rows[i]; r++, s.T++) pos[s.T] = pos0[i] + r, seq[s.T] = i, image[s.T] = (int32_t)(rnd() % 4 == 0);
        for (int k = 0; k < blocks; k++) table[i * blocks + k] = 1 + (k * n + (n - 1 - i));
    }
    s.row0[n] = s.T;
    pair p = i32s(s.T, 1, pos), q = i32s(s.T, 1, seq), im = i32s(s.T, 1, image), r0 = i32s(n + 1, 1, s.row0);
    pair p0 = i32s(n, 1, pos0), sl = i32s(n, 1, slot), tb = i32s(n, blocks, table);
    BOTH s.b[i] = (by_batch){s.T, n, p.t[i], q.t[i], im.t[i], r0.t[i], p0.t[i], sl.t[i], tb.t[i]};
    return s;
}

static void test_window_and_ring(int d, by_rec rec, by_dtype act) {
    int32_t rows[3] = {1, 40, 5}, pos0[3] = {1000, 0, 30};
    step s = make_step(3, rows, pos0, 1);
    int64_t bytes = by_rec_bytes(rec, d), slot = bytes * 20 + 64;
    pair x = acts(act, s.T, d, 1), norm = acts(BY_BF16, 1, d, 1), cs = rotation(s.T, d / 2 < 64 ? d / 2 : 64);
    pair kv = make(BY_U8, s.T, bytes, NULL), ring = bytes_of(BY_U8, 1, 64 + 8 * slot, 7, 7, false);
    BOTH {
        by_window_kv_args a = {.x = x.t[i], .norm = norm.t[i], .cs = cs.t[i], .kv = kv.t[i], .rec = rec, .eps = 1e-20f};
        MUST(by_op_window_kv(dev[i], &a, err));
    }
    NAME("window_kv d %d rec %d %s", d, (int)rec, by_dtype_name(act));
    if (rec == BY_REC_F32) {
        pair v = kv;
        BOTH v.t[i].dtype = BY_F32, v.t[i].cols = d;
        compare(name, v, 1e-10, 2e-5);
    } else {
        same_bytes(name, kv, 0.02);
    }
    int32_t lowest[3] = {0, 33, 31};
    pair from = i32s(3, 1, lowest);
    unsigned char *same = download(kv.t[REF]);
    MUST(by_mem_write(kv.t[GPU].mem, 0, same, (size_t)(s.T * bytes), err));
    free(same);
    BOTH {
        by_ring_store_args a = {.batch = s.b[i], .kv = kv.t[i], .ring = {ring.t[i].mem, 64, slot, 20, rec}};
        if (rec == BY_REC_FP8) a.from = from.t[i];
        MUST(by_op_ring_store(dev[i], &a, err));
    }
    same_bytes("  ring_store", ring, 0);
    free_all();
}
/* The same with queries and the ring in one call: as apart, bit for bit. */
static void test_window_with_all(int d, int heads, by_rec rec, by_dtype act) {
    int32_t rows[3] = {1, 40, 5}, pos0[3] = {1000, 0, 30}, lowest[3] = {0, 33, 31};
    step s = make_step(3, rows, pos0, 1);
    int64_t bytes = by_rec_bytes(rec, d), slot = bytes * 20 + 64;
    pair x = acts(act, s.T, d, 1), norm = acts(BY_BF16, 1, d, 1), cs = rotation(s.T, d / 2 < 64 ? d / 2 : 64), q = acts(act, s.T, heads * d, 1);
    pair kv = make(BY_U8, s.T, bytes, NULL), ring = bytes_of(BY_U8, 1, 64 + 8 * slot, 7, 7, false), from = i32s(3, 1, lowest);
    pair kv2 = make(BY_U8, s.T, bytes, NULL), ring2 = copy_of(ring, GPU), q2 = copy_of(q, GPU);
    BOTH {
        by_window_kv_args a = {.x = x.t[i], .norm = norm.t[i], .cs = cs.t[i], .kv = kv.t[i], .rec = rec, .eps = 1e-20f, .q = q.t[i],
                               .heads = heads, .ring = {ring.t[i].mem, 64, slot, 20, rec}, .batch = s.b[i], .from = from.t[i]};
        MUST(by_op_window_kv(dev[i], &a, err));
    }
    by_window_kv_args k = {.x = x.t[GPU], .norm = norm.t[GPU], .cs = cs.t[GPU], .kv = kv2.t[GPU], .rec = rec, .eps = 1e-20f};
    MUST(by_op_window_kv(dev[GPU], &k, err));
    MUST(by_op_rope(dev[GPU], &(by_rope_args){q2.t[GPU], cs.t[GPU], heads, d}, err));
    by_ring_store_args r = {.batch = s.b[GPU], .kv = kv2.t[GPU], .from = from.t[GPU], .ring = {ring2.t[GPU].mem, 64, slot, 20, rec}};
    MUST(by_op_ring_store(dev[GPU], &r, err));
    NAME("window_kv with queries and ring d %d rec %d %s", d, (int)rec, by_dtype_name(act));
    check(name, q);
    if (rec != BY_REC_F32) same_bytes("  records", kv, 0.02), same_bytes("  ring", ring, 0.02);
    same_on_device("  queries as apart", q.t[GPU], q2.t[GPU]);
    same_on_device("  records as apart", kv.t[GPU], kv2.t[GPU]);
    same_on_device("  ring as apart", ring.t[GPU], ring2.t[GPU]);
    free_all();
}
static void test_compress(int d, int ratio, by_dtype act) {
    int32_t rows[4] = {1, 9, 4, 1}, pos0[4] = {7, 0, 5, 4};
    step s = make_step(4, rows, pos0, 1);
    int32_t seq[16], idx[16], row[16], n = 0;
    for (int q = 0; q < 4; q++)
        for (int32_t r = 0; r < rows[q]; r++)
            if ((pos0[q] + r + 1) % ratio == 0) seq[n] = q, idx[n] = (pos0[q] + r) / ratio, row[n++] = s.row0[q] + r;
    pair es = i32s(n, 1, seq), ei = i32s(n, 1, idx), er = i32s(n, 1, row), norm = acts(BY_BF16, 1, d, 1);
    pair v = acts(ratio == 1 ? act : BY_F32, s.T, d, 1), g = acts(BY_F32, s.T, d, 1), latent = make(act, n, d, NULL);
    int64_t stride = 7 * 8 * d;
    pair tail = acts(BY_F32, 1, 8 * stride / 4, 1);
    BOTH {
        by_compress_args a = {.batch = s.b[i], .entries = {n, es.t[i], ei.t[i], er.t[i]}, .v = v.t[i], .s = g.t[i],
                              .norm = norm.t[i], .latent = latent.t[i], .tail = tail.t[i].mem, .tail_off = 0,
                              .tail_stride = stride, .tail_len = 7, .ratio = ratio, .eps = 1e-20f};
        MUST(by_op_compress(dev[i], &a, err));
    }
    NAME("compress d %d ratio %d %s", d, ratio, by_dtype_name(act));
    check(name, latent);
    same_bytes("  tail", tail, 0);
    free_all();
}
static void test_entry_store(int d, int ix, by_rec main, by_rec index, by_dtype act) {
    int32_t rows[2] = {3, 2}, pos0[2] = {20, 8};
    step s = make_step(2, rows, pos0, 8);
    int32_t seq[5] = {0, 0, 0, 1, 1}, idx[5] = {20, 21, 22, 8, 9}, row[5] = {0, 1, 2, 3, 4};
    pair es = i32s(5, 1, seq), ei = i32s(5, 1, idx), er = i32s(5, 1, row), k_norm = acts(BY_BF16, 1, ix, 1);
    pair latent = acts(act, 5, d, 1), ik = acts(act, 5, ix, 1), cs = rotation(5, ix / 2 < 64 ? ix / 2 : 64);
    int64_t mb = by_rec_bytes(main, d) * 4, ib = by_rec_bytes(index, ix) * 4, block = (mb + ib + 63) / 64 * 64;
    pair pool = bytes_of(BY_U8, 1, block * 20, 9, 9, false);
    BOTH {
        by_entry_store_args a = {s.b[i], {5, es.t[i], ei.t[i], er.t[i]}, latent.t[i], ik.t[i], k_norm.t[i], cs.t[i],
                                 {pool.t[i].mem, ib, block, 4, main}, {pool.t[i].mem, 0, block, 4, index}, 1e-20f};
        MUST(by_op_entry_store(dev[i], &a, err));
    }
    NAME("entry_store d %d ix %d rec %d/%d %s", d, ix, (int)main, (int)index, by_dtype_name(act));
    same_bytes(name, pool, main == BY_REC_F32 ? 0.05 : 0.01);
    free_all();
}

/* ---- index and attention -------------------------------------------------------------------------------------- */

/* A pool whose index part holds random keys: 4-bit with sane scales, or fp32. */
static pair key_pool(by_rec rec, int64_t d, int per_block, int64_t block, int n_blocks, int64_t off) {
    unsigned char *b = calloc(1, (size_t)(block * n_blocks));
    for (int k = 0; k < n_blocks; k++) {
        unsigned char *p = b + k * block + off;
        for (int e = 0; e < per_block; e++) {
            float x[512];
            for (int64_t i = 0; i < d; i++) x[i] = normal() * (rnd() % 8 == 0 ? 4 : 1);
            if (rec == BY_REC_IX4) by_quant_ix4(x, d, p + e * (d / 2), p + per_block * (d / 2) + e * (d / 32));
            else if (rec == BY_REC_FP4) by_quant_kv4(x, d, p + e * by_rec_bytes(rec, d), p + e * by_rec_bytes(rec, d) + d / 2);
            else if (rec == BY_REC_FP8) by_quant_act8(x, d, p + e * by_rec_bytes(rec, d), p + e * by_rec_bytes(rec, d) + d);
            else memcpy(p + e * 4 * d, x, (size_t)d * 4);
        }
    }
    pair t = make(BY_U8, 1, block * n_blocks, b);
    free(b);
    return t;
}
/* The device's own scores must lead to its own selection. */
static bool selection_holds(const float *score, int n, const int32_t *sel, int topk, const int32_t *cand, int size) {
    if (n <= topk) return sel[0] == -1;
    char *in = calloc(1, (size_t)n + 1);
    int allowed = 0, count = sel[0];
    bool ok = true;
    for (int i = 0; i < n; i++) {
        bool inside = !cand || cand[0] < 0;
        for (int k = 0; !inside && k < cand[0]; k++) inside = i / size == cand[1 + k];
        in[i] = inside;
        allowed += inside;
    }
    ok = count == (allowed < topk ? allowed : topk);
    for (int i = 0; ok && i < count; i++) {
        ok = sel[1 + i] >= 0 && sel[1 + i] < n && in[sel[1 + i]] == 1 && (i == 0 || sel[1 + i] > sel[i]);
        if (ok) in[sel[1 + i]] = 2;
    }
    float least = INFINITY;
    int least_at = -1;
    for (int i = 0; i < n; i++)
        if (in[i] == 2 && score[i] <= least) least = score[i], least_at = i;
    for (int i = 0; ok && i < n; i++)
        if (in[i] == 1 && (score[i] > least || (score[i] == least && i < least_at))) ok = false;
    free(in);
    return ok;
}
/* Of each row the count and as many numbers, or -1 alone. */
static void same_chosen(const char *name, by_tensor p, by_tensor q) {
    int32_t *x = (int32_t *)(void *)download(p), *y = (int32_t *)(void *)download(q);
    int64_t bad = 0;
    for (int64_t t = 0; t < p.rows; t++)
        for (int64_t i = 0; i <= (x[t * p.cols] > 0 ? x[t * p.cols] : 0); i++) bad += x[t * p.cols + i] != y[t * p.cols + i];
    verdict(name, bad == 0, (double)bad, 0);
    free(x);
    free(y);
}
/* With so many entries to plan for, two rows fill the scratch: the rest goes in slices. a: as it has run. */
static void select_in_slices(by_index_select_args a) {
    by_tensor all = a.sel;
    a.sel = make(BY_I32, all.rows, all.cols, NULL).t[GPU];
    a.n_entries_max = a.round_bf16 ? 60 << 20 : 30 << 20;
    MUST(by_op_index_select(dev[GPU], &a, err));
    same_chosen("  rows in slices", all, a.sel);
}
static void test_select(int heads, int d, by_rec rec, by_dtype act, int base, int topk, int cand_blocks, bool round, bool flat) {
    int32_t rows[3] = {2, 1, 3}, pos0[3] = {base, 5, base / 3};
    int per = 64, n_blocks = (base + 8) / per + 2, size = 8;
    step s = make_step(3, rows, pos0, n_blocks);
    int64_t block = by_rec_bytes(rec, d) * per + 128;
    block = (block + 63) / 64 * 64;
    pair pool = key_pool(rec, d, per, block, 3 * n_blocks + 1, 0), cs = rotation(s.T, 64 < d / 2 ? 64 : d / 2);
    by_dtype qt = rec == BY_REC_IX4 ? BY_IX4 : BY_F32;
    pair q = acts(act, s.T, heads * d, 1), out = qt == BY_IX4 ? make(qt, s.T * heads, d, NULL) : make(qt, s.T, heads * d, NULL);
    BOTH {
        by_index_query_args a = {q.t[i], cs.t[i], out.t[i], heads, d};
        MUST(by_op_index_query(dev[i], &a, err));
    }
    NAME("index_query heads %d d %d %s", heads, d, by_dtype_name(act));
    if (qt == BY_IX4) same_bytes(name, out, 0.01);
    else compare(name, out, 1e-10, 1e-5);
    unsigned char *same = download(out.t[REF]);
    MUST(by_mem_write(out.t[GPU].mem, 0, same, (size_t)(out.t[GPU].rows * out.t[GPU].stride), err));
    free(same);
    int n_max = base + 3;
    pair w = acts(act, s.T, heads, flat ? 0 : 1), sel = make(BY_I32, s.T, 1 + topk, NULL), cand = make(BY_I32, s.T, 1 + cand_blocks, NULL);
    pair scores = make(BY_F32, s.T, n_max, NULL);
    for (int mode = BY_CAND_NONE; mode <= BY_CAND_INSIDE; mode++) {
        BOTH {
            by_index_select_args a = {.batch = s.b[i], .q = out.t[i], .weights = w.t[i], .scale = 0x1p-6f,
                                      .keys = {pool.t[i].mem, 0, block, per, rec}, .sel = sel.t[i], .cand = cand.t[i],
                                      .mode = (by_candidates)mode, .heads = heads, .d = d, .ratio = 1, .topk = topk,
                                      .cand_blocks = cand_blocks, .cand_block_size = size, .round_bf16 = round,
                                      .n_entries_max = n_max, .scores = scores.t[i]};
            if (i == GPU || base < 5000) MUST(by_op_index_select(dev[i], &a, err));
        }
        if (mode == BY_CAND_NONE && heads == 32 && base < 1000)
            select_in_slices((by_index_select_args){.batch = s.b[GPU], .q = out.t[GPU], .weights = w.t[GPU], .scale = 0x1p-6f,
                                                    .keys = {pool.t[GPU].mem, 0, block, per, rec}, .sel = sel.t[GPU], .heads = heads, .d = d,
                                                    .ratio = 1, .topk = topk, .cand_block_size = size, .round_bf16 = round});
        unsigned char *sc[2] = {download(scores.t[REF]), download(scores.t[GPU])};
        int32_t *sl = (int32_t *)(void *)download(sel.t[GPU]), *cd = (int32_t *)(void *)download(cand.t[GPU]);
        int32_t *cr = (int32_t *)(void *)download(cand.t[REF]);
        double worst = 0, top = 1e-9;
        bool holds = true;
        for (int t = 0; t < s.T; t++) {
            int seq = t < 2 ? 0 : t < 3 ? 1 : 2, n = pos0[seq] + (t - s.row0[seq]) + 1;
            const float *x = (const float *)(void *)sc[REF] + (int64_t)t * n_max;
            const float *y = (const float *)(void *)sc[GPU] + (int64_t)t * n_max;
            for (int i = 0; i < n && base < 5000; i++) {
                if (isinf(x[i]) && x[i] == y[i]) continue;
                worst = fmax(worst, fabs((double)x[i] - (double)y[i])), top = fmax(top, fabs((double)x[i]));
            }
            const int32_t *cand_row = mode == BY_CAND_INSIDE ? cd + t * (1 + cand_blocks) : NULL;
            holds = holds && selection_holds(y, n, sl + t * (1 + topk), topk, cand_row, size);
            if (mode == BY_CAND_SOURCE && (n + size - 1) / size <= cand_blocks) holds = holds && cd[t * (1 + cand_blocks)] == -1;
        }
        snprintf(name, sizeof name, "  index_select n %d topk %d mode %d%s: scores, selection", n_max, topk, mode, flat ? ", all equal" : "");
        verdict(name, holds && worst / top < (round ? 5e-3 : 2e-6), holds ? 0 : 1, worst / top);
        if (mode == BY_CAND_SOURCE && base < 5000) {
            /* candidate blocks agree with ref but for near ties; then both go on with ref's */
            int bad = 0, all = 0;
            for (int t = 0; t < s.T; t++) {
                int32_t *x = cr + t * (1 + cand_blocks), *y = cd + t * (1 + cand_blocks);
                bad += x[0] != y[0];
                for (int k = 0; k < x[0]; k++, all++) bad += x[1 + k] != y[1 + k];
            }
            verdict("  candidate blocks", bad <= all / 10, bad, all);
            MUST(by_mem_write(cand.t[GPU].mem, 0, cr, (size_t)(s.T * (1 + cand_blocks)) * 4, err));
        }
        free(sc[0]), free(sc[1]), free(sl), free(cd), free(cr);
    }
    free_all();
}
/* A row alone gets the bits that it gets among others. */
static void attention_invariance(by_attention_args a, pair o) {
    by_tensor alone = make(o.t[GPU].dtype, o.t[GPU].rows, o.t[GPU].cols, NULL).t[GPU];
    int64_t n = a.q.rows, bad = 0;
    by_attention_args one = a;
    for (int64_t t = 0; t < n; t++) {
        one.batch.row_pos = by_tensor_rows(a.batch.row_pos, t, 1), one.batch.row_seq = by_tensor_rows(a.batch.row_seq, t, 1);
        one.q = by_tensor_rows(a.q, t, 1), one.cs = by_tensor_rows(a.cs, t, 1), one.o = by_tensor_rows(alone, t, 1);
        if (a.sel.mem) one.sel = by_tensor_rows(a.sel, t, 1);
        MUST(by_op_attention(dev[GPU], &one, err));
    }
    unsigned char *p = download(o.t[GPU]), *q = download(alone);
    for (int64_t i = 0; i < n * alone.stride; i++) bad += p[i] != q[i];
    verdict("  rows alone: bytes that differ", bad == 0, (double)bad, 0);
    free(p);
    free(q);
}
static void test_attention(int heads, int d, by_dtype act, by_rec win, by_rec main, int base, int topk,
                           bool entries, bool lowest_set, bool block) {
    int32_t rows[3] = {1, 5, 2}, pos0[3] = {base, 0, base / 2 + 61};
    int per = 32, n_blocks = (base + 70) / per + 2, window = 128;
    step s = make_step(3, rows, pos0, n_blocks);
    int64_t wb = by_rec_bytes(win, d), mb = by_rec_bytes(main, d), slot = wb * 134, page = (mb * per + 127) / 128 * 128;
    by_attention_args last = {0};
    pair ring = key_pool(win, d, 134, slot, 8, 0), pool = key_pool(main, d, per, page, 3 * n_blocks + 1, 0);
    pair kv = key_pool(win, d, s.T, wb * s.T, 1, 0), q = acts(act, s.T, heads * d, 0.5f), cs = rotation(s.T, 64 < d / 2 ? 64 : d / 2);
    BOTH kv.t[i].rows = s.T, kv.t[i].cols = wb, kv.t[i].stride = wb;
    int32_t *sel = malloc((size_t)(s.T * (1 + topk)) * 4);
    for (int t = 0; t < s.T; t++) {
        int seq = t < 1 ? 0 : t < 6 ? 1 : 2, n = pos0[seq] + (t - s.row0[seq]) + 1;
        int32_t *to = sel + t * (1 + topk), k = 0;
        for (int i = 0; i < n && k < topk; i++)
            if (n - i <= topk - k || rnd() % (uint32_t)n < (uint32_t)topk) to[++k] = i;
        to[0] = n <= topk ? -1 : k;
    }
    pair sl = i32s(s.T, 1 + topk, sel), sink = acts(BY_F32, 1, heads, 1), o = make(act == BY_F32 ? BY_F32 : BY_A8, s.T, heads * d, NULL);
    free(sel);
    int32_t lowest[3] = {base - 20, 0, base};
    pair from = i32s(3, 1, lowest);
    BOTH {
        by_attention_args a = {.batch = s.b[i], .q = q.t[i], .cs = cs.t[i], .kv = kv.t[i],
                               .ring = {ring.t[i].mem, 0, slot, 134, win}, .sel = sl.t[i], .sink = sink.t[i], .o = o.t[i],
                               .heads = heads, .d = d, .window = window, .ratio = 1, .scale = 1.0f / sqrtf((float)d), .block = block ? 5 : 0};
        if (lowest_set) a.from = from.t[i];
        if (entries) a.main = (by_pages){pool.t[i].mem, 0, page, per, main};
        MUST(by_op_attention(dev[i], &a, err));
        last = a;
    }
    NAME("attention heads %d d %d %s rec %d/%d base %d topk %d%s", heads, d, by_dtype_name(act), (int)win, (int)main, base, topk,
         block ? " draft block" : entries ? "" : " window only");
    compare(name, o, act == BY_F32 ? 1e-10 : 1e-3, act == BY_F32 ? 2e-5 : 0.1);
    attention_invariance(last, o);
    free_all();
}

/* ---- experts -------------------------------------------------------------------------------------------------- */

/* What decides about an expert, in double: its score and its bias. */
static double router_rank(const by_tensor *x, const unsigned char *xs, const by_tensor *gate, const unsigned char *gates,
                          const by_tensor *bias, const unsigned char *biases, int64_t t, int32_t e) {
    double z = 0;
    for (int64_t i = 0; i < x->cols; i++) z += (double)value(x, xs, t, i) * (double)value(gate, gates, e, i);
    return sqrt(log1p(exp(z))) + (double)value(bias, biases, 0, e);
}
/* Rows in which the two chose otherwise chose between experts as good as each other; their weights are those of other experts and are
 * not compared: the device's become ref's. */
static void router_ties(pair idx, pair w, pair x, pair gate, pair bias, pair vl, const int32_t *image) {
    unsigned char *ids[2], *xs = download(x.t[REF]), *gates = download(gate.t[REF]), *ws = download(w.t[REF]);
    unsigned char *biases[] = {download(bias.t[REF]), download(vl.t[REF])};
    int64_t T = idx.t[REF].rows, k = idx.t[REF].cols;
    double worst = 0;
    BOTH ids[i] = download(idx.t[i]);
    for (int64_t t = 0; t < T; t++) {
        const int32_t *a = (const int32_t *)ids[REF] + t * k, *b = (const int32_t *)ids[GPU] + t * k;
        if (!memcmp(a, b, (size_t)k * 4)) continue;
        for (int64_t j = 0; j < k; j++) {
            double one = router_rank(&x.t[REF], xs, &gate.t[REF], gates, &bias.t[REF], biases[image[t]], t, a[j]);
            double two = router_rank(&x.t[REF], xs, &gate.t[REF], gates, &bias.t[REF], biases[image[t]], t, b[j]);
            worst = fmax(worst, fabs(one - two));
        }
        MUST(by_mem_write(w.t[GPU].mem, (size_t)(w.t[GPU].off + t * w.t[GPU].stride), ws + t * k * 4, (size_t)k * 4, err));
    }
    if (worst > 0) verdict("  ties", worst < 1e-5, worst, worst);
    BOTH free(ids[i]), free(biases[i]);
    free(xs), free(gates), free(ws);
}
static void test_router(int64_t T, int E, int k, int D, by_dtype act, by_dtype gt) {
    pair x = acts(act, T, D, 1), gate = acts(gt, E, D, 0.05f), bias = acts(BY_F32, 1, E, 0.2f), vl = acts(BY_F32, 1, E, 0.2f);
    int32_t *im = malloc((size_t)T * 4);
    for (int t = 0; t < T; t++) im[t] = t % 3 == 1;
    pair image = i32s(T, 1, im), idx = make(BY_I32, T, k, NULL), w = make(BY_F32, T, k, NULL);
    BOTH {
        by_router_args a = {x.t[i], gate.t[i], bias.t[i], vl.t[i], image.t[i], idx.t[i], w.t[i], k, true, 1.5f};
        MUST(by_op_router(dev[i], &a, err));
    }
    NAME("router T %d E %d k %d D %d %s x %s", (int)T, E, k, D, by_dtype_name(act), by_dtype_name(gt));
    same_bytes(name, idx, 0.002);
    router_ties(idx, w, x, gate, bias, vl, im);
    compare("  weights", w, 1e-6, 1e-2);
    free_all();
    free(im);
}
/* Experts that are absent on the device and computed by ref beside it: every second one, then all. y of ref has the sums. */
static void run_parts(void *arg, int32_t which, int32_t n) {
    (void)which, (void)n;
    by_err why = {0};
    if (by_op_moe_part(dev[REF], arg, &why) < 0) printf("moe_part: %s\n", why.msg);
}
static void test_apart(const by_moe_args *full, const by_expert *ref, pair x, pair ids, pair w, pair y, double diff_max, double worst_max) {
    const by_tensor *from[] = {&x.t[GPU], &ids.t[GPU], &w.t[GPU], &y.t[GPU]};
    int64_t T = full->x.rows, k = full->idx.cols;
    size_t each = (size_t)full->n_experts * sizeof(by_expert);
    MUST(by_device_beside_init(dev[GPU], err));
    for (int all = 0; all < 2; all++) {
        by_expert *here = malloc(each), *there = malloc(each);
        memcpy(here, full->experts, each), memcpy(there, ref, each);
        for (int n = 0; n < full->n_experts; n++) memset(all || n % 2 ? &here[n] : &there[n], 0, sizeof *here);
        by_mem *shared[4], *mine[4];
        by_tensor t[4];
        for (int i = 0; i < 4; i++) {
            int64_t rows = i == 3 ? T * k : from[i]->rows;
            size_t n = (size_t)(rows * from[i]->stride);
            MUST(by_mem_share(&shared[i], dev[GPU], n, err));
            MUST(by_mem_import(&mine[i], dev[REF], by_mem_host(shared[i]), n, true, err));
            t[i] = by_tensor_make(mine[i], 0, from[i]->dtype, rows, from[i]->cols);
        }
        by_moe_part_args part = {t[0], t[1], t[2], there, full->n_experts, full->inner, t[3], full->limit, full->quant};
        by_beside b = {3, {{x.t[GPU], shared[0]}, {ids.t[GPU], shared[1]}, {w.t[GPU], shared[2]}}, run_parts, &part, 0, 0};
        by_moe_args a = *full;
        a.experts = here;
        a.part = by_tensor_make(shared[3], 0, y.t[GPU].dtype, T * k, y.t[GPU].cols);
        MUST(by_mem_zero(y.t[GPU].mem, 0, (size_t)(T * y.t[GPU].stride), err));
        size_t bytes = (size_t)(T * x.t[GPU].stride); /* the rows arrive on the device just in front of the call */
        unsigned char *rows = download(x.t[GPU]);
        by_mem *apart = NULL;
        MUST(by_mem_alloc(&apart, dev[GPU], bytes, err));
        MUST(by_mem_write(apart, 0, rows, bytes, err));
        MUST(by_mem_zero(x.t[GPU].mem, 0, bytes, err));
        free(rows), free(download(x.t[GPU]));
        MUST(by_mem_copy(x.t[GPU].mem, 0, apart, 0, bytes, err));
        MUST(by_device_beside(dev[GPU], &b, err));
        MUST(by_op_moe(dev[GPU], &a, err));
        compare(all ? "  all experts on the host" : "  every second expert on the host", y, diff_max, worst_max);
        for (int i = 0; i < 4; i++) by_mem_free(mine[i]), by_mem_free(shared[i]);
        by_mem_free(apart);
        free(here), free(there);
    }
}
static void test_moe(int64_t T, int D, int I, int E, int k, by_dtype xt, by_dtype wt, bool shared, bool quant) {
    by_dtype yt = xt == BY_A8 ? BY_BF16 : BY_F32;
    pair x = acts(xt, T, D, 1), y = make(yt, T, D, NULL), w = acts(BY_F32, T, k, 0.3f);
    int32_t *idx = malloc((size_t)(T * k) * 4);
    for (int64_t t = 0; t < T; t++)
        for (int j = 0; j < k; j++) {
            bool again = true;
            while (again) {
                idx[t * k + j] = (int32_t)(rnd() % (uint32_t)(rnd() % 3 ? E : (E + 2) / 3));
                again = false;
                for (int q = 0; q < j; q++) again |= idx[t * k + q] == idx[t * k + j];
            }
        }
    pair ids = i32s(T, k, idx);
    by_expert *e[2] = {calloc((size_t)E + 1, sizeof(by_expert)), calloc((size_t)E + 1, sizeof(by_expert))};
    for (int n = 0; n <= E; n++) {
        by_dtype t = n < E ? wt : wt == BY_FP4_ROW ? BY_FP8_TILE : wt;
        wpair w1 = weight(t, I, D), w3 = weight(t, I, D), w2 = weight(t, D, I);
        BOTH e[i][n] = (by_expert){w1.w[i], w3.w[i], w2.w[i]};
    }
    by_moe_args a;
    BOTH {
        a = (by_moe_args){x.t[i], ids.t[i], w.t[i], e[i], E, shared ? &e[i][E] : NULL, y.t[i], I, 10, quant, {0}};
        MUST(by_op_moe(dev[i], &a, err));
    }
    NAME("moe T %d D %d I %d E %d k %d %s x %s%s%s", (int)T, D, I, E, k, by_dtype_name(xt), by_dtype_name(wt),
         shared ? " shared" : "", quant ? " quant" : "");
    /* a code of the inner quantiser that falls to the other side moves an output by up to 2^-4 of one term */
    compare(name, y, quant ? 2e-5 : 1e-9, quant ? 2e-2 : 1e-4);
    if (T <= 64) test_apart(&a, e[REF], x, ids, w, y, quant ? 2e-5 : 1e-9, quant ? 2e-2 : 1e-4);
    free(idx);
    free_all();
    free(e[0]);
    free(e[1]);
}
/* A weight that is not a number spoils its own row and no other. */
static void moe_nan(int64_t T, int D, int I, by_dtype xt, by_dtype wt) {
    enum { E = 8, K = 3 };
    by_dtype yt = xt == BY_A8 ? BY_BF16 : BY_F32;
    pair x = acts(xt, T, D, 1), y = make(yt, T, D, NULL), z = make(yt, T, D, NULL), w = acts(BY_F32, T, K, 0.3f);
    int32_t *idx = malloc((size_t)(T * K) * 4);
    for (int64_t i = 0; i < T * K; i++) idx[i] = (int32_t)((i / K + i % K * 3) % E);
    pair ids = i32s(T, K, idx);
    by_expert e[E];
    for (int n = 0; n < E; n++) {
        wpair w1 = weight(wt, I, D), w3 = weight(wt, I, D), w2 = weight(wt, D, I);
        e[n] = (by_expert){w1.w[GPU], w3.w[GPU], w2.w[GPU]};
    }
    by_moe_args a = {x.t[GPU], ids.t[GPU], w.t[GPU], e, E, NULL, y.t[GPU], I, 10, true, {0}};
    MUST(by_op_moe(dev[GPU], &a, err));
    float nan = NAN;
    MUST(by_mem_write(w.t[GPU].mem, (size_t)(T / 2 * K + 1) * 4, &nan, 4, err));
    a.y = z.t[GPU];
    MUST(by_op_moe(dev[GPU], &a, err));
    unsigned char *p = download(y.t[GPU]), *q = download(z.t[GPU]);
    int64_t bad = 0, stride = y.t[GPU].stride;
    for (int64_t t = 0; t < T; t++)
        for (int i = 0; i < D; i++) {
            float v = value(&z.t[GPU], q, t, i);
            bad += t == T / 2 ? !isnan(v) : memcmp(p + t * stride, q + t * stride, (size_t)stride) != 0 || isnan(v);
        }
    NAME("moe T %d %s x %s: a weight that is NaN", (int)T, by_dtype_name(xt), by_dtype_name(wt));
    verdict(name, bad == 0, (double)bad, 0);
    free(p), free(q), free(idx);
    free_all();
}
/* Experts: rows of one call against the same rows in calls of other sizes, bit for bit. */
static void moe_invariance(int D, int I, int T, int E) {
    static const int sizes[] = {1, 2, 5, 8, 16, 17, 40, 64, 100, 170, 257};
    enum { MOST = 120, K = 3, N_SIZES = sizeof sizes / sizeof *sizes };
    pair x = acts(BY_A8, T, D, 1), y = make(BY_BF16, T, D, NULL), z = make(BY_BF16, T, D, NULL), w = acts(BY_F32, T, K, 0.3f);
    int32_t *idx = malloc((size_t)(T * K) * 4);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < K; j++) idx[t * K + j] = (int32_t)((rnd() % (uint32_t)(E / K)) * K + (uint32_t)j);
    pair ids = i32s(T, K, idx);
    by_expert e[MOST + 1];
    for (int n = 0; n <= E; n++) {
        by_dtype t = n < E ? BY_FP4_ROW : BY_FP8_TILE;
        wpair w1 = weight(t, I, D), w3 = weight(t, I, D), w2 = weight(t, D, I);
        e[n] = (by_expert){w1.w[GPU], w3.w[GPU], w2.w[GPU]};
    }
    by_moe_args a = {x.t[GPU], ids.t[GPU], w.t[GPU], e, E, &e[E], y.t[GPU], I, 10, true, {0}};
    MUST(by_op_moe(dev[GPU], &a, err));
    int64_t r = 0, bad = 0;
    for (int i = 0; i < N_SIZES && r < T; i++) {
        int64_t n = sizes[i] < T - r ? sizes[i] : T - r;
        a.x = by_tensor_rows(x.t[GPU], r, n), a.y = by_tensor_rows(z.t[GPU], r, n);
        a.idx = by_tensor_rows(ids.t[GPU], r, n), a.weight = by_tensor_rows(w.t[GPU], r, n);
        MUST(by_op_moe(dev[GPU], &a, err));
        r += n;
    }
    unsigned char *p = download(y.t[GPU]), *q = download(z.t[GPU]);
    for (int64_t i = 0; i < r * D; i++) bad += memcmp(p + 2 * i, q + 2 * i, 2) != 0;
    verdict("invariance moe, shared", bad == 0, (double)bad, 0);
    free(p), free(q), free(idx);
    free_all();
}
static void test_engram(int64_t T, by_dtype et) {
    int64_t mult[4] = {76632096046245, 4839876093313, 35959672319349, 73987337458391}, prime[24], base[24], rows = 0;
    for (int i = 0; i < 24; i++) prime[i] = 97 + 2 * i, base[i] = rows, rows += prime[i];
    int32_t *g = malloc((size_t)T * 16);
    for (int64_t i = 0; i < T * 4; i++) g[i] = (int32_t)(rnd() % 99092);
    pair grams = i32s(T, 4, g), m = make(BY_I64, 1, 4, mult), p = make(BY_I64, 3, 8, prime), b = make(BY_I64, 3, 8, base);
    pair w = bytes_of(BY_FP8_ROW, rows, 256, 0, 255, true), s = bytes_of(BY_U8, rows, 8, 112, 118, false);
    pair e = make(et, T, 24 * 256, NULL), r = make(BY_I64, T, 24, NULL);
    BOTH {
        by_engram_args a = {grams.t[i], m.t[i], p.t[i], b.t[i], {w.t[i], s.t[i]}, e.t[i], r.t[i]};
        MUST(by_op_engram(dev[i], &a, err));
    }
    NAME("engram T %d %s", (int)T, by_dtype_name(et));
    same_bytes(name, e, 0);
    same_bytes("  rows", r, 0);
    free(g);
    free_all();
}
static void test_engram_gate(int64_t T, int D, by_dtype act) {
    pair h = acts(act, T, 4 * D, 1), kv = acts(BY_F32, T, 5 * D, 1), q = acts(BY_BF16, 4, D, 1), k = acts(BY_BF16, 4, D, 1);
    int32_t im[64];
    for (int t = 0; t < T; t++) im[t] = t % 4 == 3;
    pair image = i32s(T, 1, im);
    BOTH {
        by_engram_gate_args a = {h.t[i], kv.t[i], q.t[i], k.t[i], image.t[i], 4, 1e-20f};
        MUST(by_op_engram_gate(dev[i], &a, err));
    }
    NAME("engram_gate T %d D %d %s", (int)T, D, by_dtype_name(act));
    check(name, h);
    free_all();
}

static void all_matmuls(void) {
    static const int sizes[] = {1, 7, 8, 9, 16, 31, 33, 64, 65, 129, 300, 600};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        test_matmul(sizes[i], 192, 256, 1, BY_A8, BY_FP8_TILE, BY_BF16, true);
        test_matmul(sizes[i], 200, 320, 1, BY_BF16, BY_BF16, BY_F32, true);
    }
    test_matmul(5, 1792, 5120, 1, BY_A8, BY_FP8_TILE, BY_BF16, false);
    test_matmul(70, 512, 1280, 1, BY_A8, BY_FP8_TILE, BY_F32, false);
    test_matmul(400, 20000, 128, 1, BY_A8, BY_FP8_TILE, BY_BF16, false);
    test_matmul(33, 1024, 512, 8, BY_A8, BY_FP8_TILE, BY_BF16, false);
    test_matmul(700, 1024, 256, 4, BY_A8, BY_FP8_TILE, BY_F32, false);
    test_matmul(40, 384, 1024, 1, BY_BF16, BY_BF16, BY_F32, true);
    test_matmul(9, 96, 96, 1, BY_F32, BY_FP8_TILE, BY_F32, true);
    test_matmul(9, 96, 64, 2, BY_F32, BY_BF16, BY_F32, false);
    test_matmul(3, 64, 96, 1, BY_A8, BY_FP4_ROW, BY_BF16, false);
    test_matmul(3, 50, 33, 1, BY_F32, BY_F32, BY_F32, false);
    invariance(1792, 5120, 1, BY_A8, BY_FP8_TILE);
    invariance(8192, 256, 1, BY_A8, BY_FP8_TILE);
    invariance(20000, 256, 1, BY_A8, BY_FP8_TILE);
    invariance(5120, 2304, 1, BY_A8, BY_FP8_TILE);
    invariance(2048, 512, 4, BY_A8, BY_FP8_TILE);
    invariance(640, 1024, 1, BY_BF16, BY_BF16);
    invariance(384, 5120, 1, BY_BF16, BY_BF16);
}

/* Small shapes of everything; enough for runs under a memory checker. */
static void small_cases(void) {
    test_rope_table();
    test_gather();
    for (int i = 0; i < 2; i++) {
        by_dtype act = i ? BY_F32 : BY_BF16;
        test_embed(act, 160), test_embed(act, 36);
        test_hc(1, 128, act, BY_F32), test_hc(19, 192, act, BY_BF16), test_hc(70, 160, act, BY_F32);
        test_hc_turn(3, 512, act), test_hc_turn(20, 96, act);
        test_rows(7, 5120, act), test_rows(33, 96, act);
        test_rope(5, 3, 96, 32, act), test_rope(2, 64, 512, 64, act);
        test_window_and_ring(512, BY_REC_FP8, act), test_window_and_ring(64, BY_REC_F32, act);
        test_window_with_all(512, 5, BY_REC_FP8, act), test_window_with_all(64, 3, BY_REC_F32, act), test_rope(3, 2, 20, 12, act);
        test_compress(512, 1, act), test_compress(512, 2, act), test_compress(64, 2, act);
        test_entry_store(512, 128, BY_REC_FP4, BY_REC_IX4, act), test_entry_store(64, 32, BY_REC_F32, BY_REC_F32, act);
        test_entry_store(512, 128, BY_REC_FP8, BY_REC_IX4, act);
        test_select(4, 32, BY_REC_F32, act, 300, 16, 8, false, false), test_select(4, 64, BY_REC_IX4, act, 700, 32, 40, true, false);
        test_attention(4, 64, act, BY_REC_FP8, BY_REC_FP4, 300, 40, true, false, false);
        test_attention(2, 96, act, BY_REC_F32, BY_REC_F32, 200, 64, true, true, false);
        test_attention(4, 64, act, BY_REC_FP8, BY_REC_FP4, 300, 40, false, true, true);
        test_hc_read(9, 160, act), test_hc_read(3, 5120, act), test_check_rows(7, 300, act);
        test_engram_gate(5, 320, act), test_engram_gate(6, 512, act);
    }
    test_matmul(9, 96, 96, 1, BY_F32, BY_FP8_TILE, BY_F32, true), test_matmul(9, 96, 64, 2, BY_F32, BY_BF16, BY_F32, false);
    test_matmul(3, 64, 96, 1, BY_A8, BY_FP4_ROW, BY_BF16, false), test_matmul(3, 50, 33, 1, BY_F32, BY_F32, BY_F32, false);
    test_router(5, 384, 6, 64, BY_BF16, BY_BF16), test_router(5, 600, 8, 96, BY_BF16, BY_F32);
}
static void quick_cases(void) {
    small_cases();
    test_matmul(9, 192, 256, 1, BY_A8, BY_FP8_TILE, BY_BF16, true), test_matmul(70, 192, 256, 1, BY_A8, BY_FP8_TILE, BY_BF16, true);
    test_hc(3, 1024, BY_BF16, BY_F32), test_hc_turn(150, 256, BY_BF16), test_hc_turn(270, 256, BY_BF16);
    test_matmul(300, 192, 320, 1, BY_BF16, BY_BF16, BY_F32, false);
    test_moe(20, 256, 256, 8, 3, BY_A8, BY_FP4_ROW, true, true), test_moe(150, 256, 256, 8, 3, BY_A8, BY_FP4_ROW, true, true);
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP4, 77, 512, true, true, false);
    test_select(32, 128, BY_REC_IX4, BY_BF16, 700, 512, 40, true, false), test_engram(3, BY_A8), test_engram(2, BY_F32);
    test_router(9, 8, 2, 64, BY_F32, BY_F32), test_router(5, 70, 6, 256, BY_BF16, BY_BF16), moe_nan(5, 64, 64, BY_F32, BY_FP4_ROW);
    test_matmul(520, 256, 256, 1, BY_A8, BY_FP8_TILE, BY_BF16, false), test_matmul(40, 2048, 128, 8, BY_A8, BY_FP8_TILE, BY_F32, false);
    test_matmul(5, 208, 640, 1, BY_A8, BY_FP8_TILE, BY_BF16, true), test_matmul(5, 208, 768, 1, BY_A8, BY_FP8_TILE, BY_BF16, true);
    test_matmul(20, 192, 256, 1, BY_BF16, BY_BF16, BY_F32, true);
    invariance(48, 512, 1, BY_A8, BY_FP8_TILE), invariance(72, 320, 1, BY_BF16, BY_BF16);
    moe_invariance(256, 256, 66, 12), moe_invariance(512, 256, 120, 120);
    moe_nan(1, 256, 256, BY_A8, BY_FP4_ROW), moe_nan(40, 256, 256, BY_A8, BY_FP4_ROW);
}
static void row_cases(void) {
    small_cases();
    test_hc_turn(700, 5120, BY_BF16), test_hc_turn(40, 1024, BY_F32);
    test_hc(3, 5120, BY_BF16, BY_F32), test_hc(130, 1024, BY_BF16, BY_F32), test_hc(5, 1024, BY_F32, BY_F32);
    test_router(4200, 1024, 3, 128, BY_BF16, BY_BF16); /* more than one slice */
    test_router(9, 8, 2, 64, BY_F32, BY_F32), test_router(50, 384, 6, 5120, BY_BF16, BY_BF16), test_router(5, 600, 8, 96, BY_BF16, BY_F32);
    test_engram(6, BY_A8), test_engram(3, BY_F32);
}
/* Operators that a grid over rows could refuse. */
static void many_hc(int64_t T, int D) {
    pair h = acts(BY_F32, T, 4 * D, 1), out = acts(BY_F32, T, D, 1), post = acts(BY_F32, T, 4, 1), comb = acts(BY_F32, T, 16, 0.3f);
    pair x = acts(BY_F32, T, D, 1);
    BOTH {
        MUST(by_op_hc_post(dev[i], &(by_hc_post_args){h.t[i], out.t[i], post.t[i], comb.t[i], 4}, err));
        MUST(by_op_add(dev[i], &(by_add_args){out.t[i], x.t[i]}, err));
    }
    NAME("many rows: hc_post D %d", D);
    check(name, h);
    same_bytes("  add", x, 0);
    free_all();
}
/* One sequence, an entry for 16,384 positions: the rows from 65,535 on have more than the three that need no choice. */
static void many_select(int heads, int d, by_rec rec, bool wants_scores) {
    int32_t rows = MANY, pos0 = 0;
    step s = make_step(1, &rows, &pos0, 2);
    int64_t block = (by_rec_bytes(rec, d) * 64 + 63) / 64 * 64;
    pair pool = key_pool(rec, d, 64, block, 3, 0);
    pair q = rec == BY_REC_IX4 ? make(BY_IX4, (int64_t)MANY * heads, d, NULL) : acts(BY_F32, MANY, heads * d, 1);
    if (rec == BY_REC_IX4) {
        pair x = acts(BY_BF16, MANY, heads * d, 1), cs = rotation(MANY, 64);
        BOTH MUST(by_op_index_query(dev[i], &(by_index_query_args){x.t[i], cs.t[i], q.t[i], heads, d}, err));
    }
    pair w = acts(BY_BF16, MANY, heads, 1), sel = make(BY_I32, MANY, 4, NULL), scores = make(BY_F32, MANY, 4, NULL);
    BOTH {
        by_index_select_args a = {.batch = s.b[i], .q = q.t[i], .weights = w.t[i], .scale = 0x1p-6f, .keys = {pool.t[i].mem, 0, block, 64, rec},
                                  .sel = sel.t[i], .mode = BY_CAND_NONE, .heads = heads, .d = d, .ratio = 16384, .topk = 3,
                                  .cand_block_size = 8, .round_bf16 = true, .n_entries_max = 4};
        if (wants_scores) a.scores = scores.t[i];
        MUST(by_op_index_select(dev[i], &a, err));
    }
    int32_t *ours = (int32_t *)(void *)download(sel.t[GPU]), *ref = (int32_t *)(void *)download(sel.t[REF]);
    int64_t bad = 0;
    for (int64_t t = 0; t < MANY; t++) bad += ref[4 * t] >= 0 ? memcmp(ours + 4 * t, ref + 4 * t, 16) != 0 : ours[4 * t] != ref[4 * t];
    NAME("many rows: index_select heads %d%s", heads, wants_scores ? " and scores" : "");
    verdict(name, bad == 0 && ref[4 * (MANY - 1)] == 3, (double)bad, 0);
    free(ours), free(ref);
    free_all();
}
static void many_cases(void) {
    test_rows(MANY, 32, BY_F32), many_hc(MANY, 32), many_hc(MANY, 256), test_hc_read(MANY, 32, BY_BF16);
    test_matmul(MANY, 8, 32, 1, BY_F32, BY_BF16, BY_F32, false), test_matmul(MANY, 64, 128, 1, BY_A8, BY_FP8_TILE, BY_BF16, false);
    test_router(MANY, 64, 2, 64, BY_BF16, BY_BF16), test_router(MANY, 64, 2, 32, BY_F32, BY_F32);
    test_moe(MANY, 32, 32, 2, 1, BY_F32, BY_FP4_ROW, false, false);
    many_select(32, 128, BY_REC_IX4, false), many_select(2, 32, BY_REC_F32, false), many_select(2, 32, BY_REC_F32, true);
}
static void select_cases(void) {
    test_select(32, 128, BY_REC_IX4, BY_BF16, 2500, 512, 100, true, false);
    test_select(32, 128, BY_REC_IX4, BY_BF16, 2500, 512, 100, false, false);
    test_select(32, 128, BY_REC_IX4, BY_BF16, 30000, 512, 2048, true, false);
    test_select(32, 128, BY_REC_IX4, BY_BF16, 70000, 512, 2048, true, false);
    test_select(32, 128, BY_REC_IX4, BY_BF16, 70001, 512, 2048, false, false);
    test_select(32, 128, BY_REC_IX4, BY_BF16, 40000, 512, 2048, true, true);
}
static void attention_cases(void) {
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP4, 1000, 512, true, false, false);
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP4, 77, 512, true, true, false);
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP8, 700, 100, true, false, false);
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP4, 300, 512, false, false, false);
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP4, 300, 512, false, false, true);
    test_attention(64, 512, BY_BF16, BY_REC_FP8, BY_REC_FP4, 131, 512, false, true, true);
}
static void expert_cases(void) {
    test_moe(5, 64, 32, 4, 2, BY_F32, BY_FP4_ROW, true, false), test_moe(5, 64, 64, 4, 2, BY_F32, BY_FP4_ROW, true, true);
    test_moe(9, 96, 64, 6, 2, BY_A8, BY_FP4_ROW, true, true);
    test_moe(1, 256, 512, 8, 3, BY_A8, BY_FP4_ROW, true, true), test_moe(20, 256, 256, 8, 3, BY_A8, BY_FP4_ROW, true, true);
    test_moe(30, 512, 256, 16, 3, BY_A8, BY_FP4_ROW, false, true), test_moe(60, 256, 256, 8, 3, BY_A8, BY_FP4_ROW, true, true);
    test_moe(150, 256, 256, 8, 3, BY_A8, BY_FP4_ROW, true, true), test_moe(40, 768, 1280, 4, 2, BY_A8, BY_FP4_ROW, true, true);
    moe_invariance(512, 256, 700, 12), moe_invariance(512, 768, 700, 120);
    moe_nan(1, 256, 256, BY_A8, BY_FP4_ROW), moe_nan(40, 256, 256, BY_A8, BY_FP4_ROW), moe_nan(700, 256, 256, BY_A8, BY_FP4_ROW);
    moe_nan(5, 64, 64, BY_F32, BY_FP4_ROW);
    test_moe(500, 256, 256, 8, 3, BY_A8, BY_FP4_ROW, true, true), test_moe(3, 5120, 2304, 8, 6, BY_A8, BY_FP4_ROW, true, true);
}

/* usage: gpu_ops [group ...], default: all but `small` and `quick`, which have small shapes only, for runs under a memory checker and on a
 * host that plays the device. */
int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } groups[] = {{"small", small_cases},         {"quick", quick_cases},  {"rows", row_cases},    {"select", select_cases},
                  {"attention", attention_cases}, {"matmul", all_matmuls}, {"moe", expert_cases}, {"many", many_cases}};
    by_err why = {0};
    by_device_opts opts = {.backend = BY_BACKEND_CUDA};
    by_status status = by_device_open(&dev[GPU], &opts, &why);
    if (status == BY_EUNSUPPORTED) {
        printf("skipped: %s\n", why.msg);
        return 77;
    }
    if (status < 0) {
        fprintf(stderr, "gpu_ops: %s\n", why.msg);
        return 1;
    }
    opts.backend = BY_BACKEND_REF;
    MUST(by_device_open(&dev[REF], &opts, err));
    printf("%s against %s\n%-58s %10s %10s\n", by_device_name(dev[GPU]), by_device_name(dev[REF]), "case", "diff", "worst");
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        bool wanted = argc < 2 && g > 1;
        for (int i = 1; i < argc; i++) wanted |= strcmp(argv[i], groups[g].name) == 0;
        if (wanted) groups[g].run();
    }
    printf("%d cases, %d failed\n", n_cases, n_failed);
    by_device_close(dev[REF]);
    by_device_close(dev[GPU]);
    return n_failed || n_cases == 0 ? 1 : 0;
}
