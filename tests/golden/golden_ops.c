/* golden_ops.c - single operators against tests/golden/data/model/ops in exact numerics, on every backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/formats.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/npz.h"

static by_device *dev;
static by_npz *z;
static double tol_abs, tol_rel;

static const float *f32(const char *c, const char *t) { return by_npy_f32(by_npz_need(z, "<f4", "%s.%s", c, t)); }
static const int32_t *i32(const char *c, const char *t) { return by_npy_i32(by_npz_need(z, "<i4", "%s.%s", c, t)); }
static const uint8_t *u8(const char *c, const char *t) { return by_npy_u8(by_npz_need(z, "|u1", "%s.%s", c, t)); }
static int64_t dim(const char *c, const char *t, int i) {
    return (int64_t)by_npz_need(z, NULL, "%s.%s", c, t)->shape[i];
}
/* A stored fp32 array as a tensor of `rows` rows. */
static by_tensor up(const char *c, const char *t, int64_t rows) {
    const by_npy *a = by_npz_need(z, "<f4", "%s.%s", c, t);
    return by_test_tensor(dev, BY_F32, rows, rows ? (int64_t)a->n / rows : 0, a->data);
}
static by_tensor empty(int64_t rows, int64_t cols) { return by_test_tensor(dev, BY_F32, rows, cols, NULL); }
static by_weight weight(const char *c, const char *t) { return (by_weight){.w = up(c, t, dim(c, t, 0))}; }
static void close_to(const char *c, const char *t, by_tensor got) {
    float *v = by_test_values(got);
    char what[128];
    snprintf(what, sizeof what, "%s.%s on %s", c, t, by_device_name(dev));
    const by_npy *want = by_npz_need(z, "<f4", "%s.%s", c, t);
    assert_int_equal(want->n, got.rows * got.cols);
    assert_true(by_golden_close_f32(what, v, want->data, want->n, tol_abs, tol_rel));
    free(v);
}
#define RUN(op, ...) assert_int_equal(by_op_##op(dev, &(by_##op##_args){__VA_ARGS__}, NULL), BY_OK)

/* One sequence in one step: rows at positions p0.., rows_before of them given a block table of one huge block. */
static by_batch one_sequence(int32_t p0, int32_t n, const uint8_t *image) {
    int32_t *pos = calloc((size_t)n * 3 + 8, 4), *seq = pos + n, *img = seq + n;
    assert_non_null(pos);
    for (int32_t i = 0; i < n; i++) {
        pos[i] = p0 + i;
        img[i] = image ? image[i] : 0;
    }
    int32_t row0[2] = {0, n}, zero = 0;
    by_batch b = {.n_rows = n, .n_seqs = 1, .row_pos = by_test_i32(dev, n, 1, pos), .row_seq = by_test_i32(dev, n, 1, seq),
                  .row_image = by_test_i32(dev, n, 1, img), .seq_row0 = by_test_i32(dev, 2, 1, row0),
                  .seq_pos0 = by_test_i32(dev, 1, 1, &p0), .seq_slot = by_test_i32(dev, 1, 1, &zero),
                  .seq_blocks = by_test_i32(dev, 1, 1, &zero)};
    free(pos);
    return b;
}

static by_tensor rope_table(by_batch *b, by_tensor freq) {
    by_tensor cs = empty(b->n_rows, freq.cols * 2);
    RUN(rope_table, .pos = b->row_pos, .scale = 1, .freq = freq, .cs = cs);
    return cs;
}

/* ---- cases ---------------------------------------------------------------------------------------------------- */

static void rmsnorm_cases(void) {
    const char *cases[] = {"eps_1e-20", "eps_1e-06"};
    for (int i = 0; i < 2; i++) {
        by_tensor y = empty(7, 96);
        float w[96];
        memcpy(w, f32(cases[i], "weight"), sizeof w);
        RUN(rmsnorm, .x = up(cases[i], "x", 7), .norm = by_test_tensor(dev, BY_F32, 1, 96, w), .y = y, .eps = i ? 1e-6f : 1e-20f);
        close_to(cases[i], "y", y);
        float *got = by_test_values(y);
        const float *want = f32(cases[i], "y");
        for (int k = 0; k < 7 * 96; k++) /* tiny rows relatively */
            assert_true(fabsf(got[k] - want[k]) <= 2e-6f * fabsf(want[k]) || fabsf(want[k]) > 1e-30f);
        free(got);
    }
}

static void rope_cases(void) {
    const char *cases[] = {"real_plain", "real_yarn", "tiny_plain", "tiny_yarn"};
    for (int i = 0; i < 4; i++) {
        const char *c = cases[i];
        int32_t n = (int32_t)dim(c, "pos", 0), d = (int32_t)dim(c, "x", 2);
        by_tensor pos = by_test_i32(dev, n, 1, i32(c, "pos")), freq = up(c, "freq", 1), cs = empty(n, 2 * freq.cols);
        RUN(rope_table, .pos = pos, .scale = 1, .freq = freq, .cs = cs);
        float *got = by_test_values(cs);
        for (int64_t k = 0; k < n * freq.cols; k++) {
            assert_true(fabsf(got[2 * k] - f32(c, "cos")[k]) <= 1e-6f);
            assert_true(fabsf(got[2 * k + 1] - f32(c, "sin")[k]) <= 1e-6f);
        }
        free(got);
        by_tensor x = up(c, "x", n);
        RUN(rope, .x = x, .cs = cs, .heads = 2, .d = d);
        close_to(c, "y", x);
    }
}

static void hyper_connection_cases(void) {
    const char *cases[] = {"usual", "steep", "few_iterations", "one_iteration"};
    const int iters[] = {20, 20, 3, 1};
    for (int i = 0; i < 4; i++) {
        const char *c = cases[i];
        float ones[64];
        for (int k = 0; k < 64; k++) ones[k] = 1;
        by_tensor h = up(c, "h", 6), pre = up(c, "pre_in", 6), post = empty(6, 4), comb = empty(6, 16), y = empty(6, 64);
        RUN(hc_mix, .h = h, .pre = pre, .fn = up(c, "fn", 24), .base = up(c, "base", 1), .scale = up(c, "scale", 1),
            .norm = by_test_tensor(dev, BY_F32, 1, 64, ones), .y = y, .next_pre = pre, .post = post, .comb = comb, .m = 4,
            .iters = iters[i], .norm_eps = 1e-20f, .hc_eps = 1e-6f);
        close_to(c, "pre", pre);
        close_to(c, "post", post);
        close_to(c, "comb", comb);
        /* y is the norm of u with weight one */
        float *got = by_test_values(y);
        for (int t = 0; t < 6; t++) {
            const float *u = f32(c, "u") + t * 64;
            double ss = 0;
            for (int k = 0; k < 64; k++) ss += (double)u[k] * (double)u[k];
            for (int k = 0; k < 64; k++)
                assert_true(fabs((double)got[t * 64 + k] - (double)u[k] / sqrt(ss / 64 + 1e-20)) < 1e-5);
        }
        free(got);
        RUN(hc_post, .h = h, .out = up(c, "sublayer_out", 6), .post = up(c, "post", 6), .comb = up(c, "comb", 6), .m = 4);
        close_to(c, "h_new", h);
    }
}

/* The case "ties" has experts with equal rows (2, 5, 8 and 1, 4, 9). The oracle's own product gives expert 8 a score one
 * ulp above its twins in row 0, so its list is not the rule's; here twins count as one expert, and the rule (the lower
 * expert first) is checked on our list. */
static int32_t twin(const char *c, int32_t e) {
    if (strcmp(c, "ties") != 0) return e;
    return e == 5 || e == 8 ? 2 : e == 4 || e == 9 ? 1 : e;
}

static void check_twins(const int32_t *idx) {
    static const int32_t groups[2][3] = {{2, 5, 8}, {1, 4, 9}};
    for (int g = 0; g < 2; g++) {
        bool in[3] = {false};
        for (int j = 0; j < 2; j++)
            for (int e = 0; e < 3; e++) in[e] |= idx[j] == groups[g][e];
        assert_true((!in[1] || in[0]) && (!in[2] || in[1]));
    }
}

static void check_routes(const char *c, by_tensor idx, by_tensor w, const char *iname, const char *wname) {
    int32_t *gi = (int32_t *)(void *)by_test_bytes(idx);
    float *gw = by_test_values(w);
    const int32_t *wi = i32(c, iname);
    const float *ww = f32(c, wname);
    int64_t k = idx.cols;
    for (int64_t t = 0; t < idx.rows; t++) {
        if (strcmp(c, "ties") == 0) check_twins(gi + t * k);
        for (int64_t j = 0; j < k; j++) {
            int64_t at = 0;
            while (at < k && twin(c, gi[t * k + at]) != twin(c, wi[t * k + j])) at++;
            if (at == k) fail_msg("%s row %d: expert %d not chosen", c, (int)t, wi[t * k + j]);
            float got = gw[t * k + at], want = ww[t * k + j];
            assert_true(fabsf(got - want) <= 2e-6f + 5e-6f * fabsf(want));
        }
    }
    free(gi);
    free(gw);
}

static void router_cases(void) {
    const char *cases[] = {"text", "text_and_image", "ties", "extreme", "all_experts"};
    const float scale[] = {1.5f, 1.5f, 1.5f, 2.5f, 1.0f};
    for (int i = 0; i < 5; i++) {
        const char *c = cases[i];
        int32_t T = (int32_t)dim(c, "x", 0), k = (int32_t)dim(c, "idx", 1);
        by_batch b = one_sequence(0, T, u8(c, "image"));
        by_tensor idx = by_test_i32(dev, T, k, NULL), w = empty(T, k);
        RUN(router, .x = up(c, "x", T), .gate = up(c, "weight", dim(c, "weight", 0)), .bias = up(c, "bias", 1),
            .bias_vl = up(c, "bias_vl", 1), .row_image = b.row_image, .idx = idx, .weight = w, .k = k, .norm_topk = true,
            .routed_scale = scale[i]);
        check_routes(c, idx, w, "idx", "route_weight");
    }
}

static void moe_cases(void) {
    const char *cases[] = {"moe_exact", "moe_quantised"};
    for (int i = 0; i < 2; i++) {
        const char *c = cases[i];
        by_batch b = one_sequence(0, 9, u8(c, "image"));
        by_tensor idx = by_test_i32(dev, 9, 2, NULL), w = empty(9, 2), x = up(c, "x", 9), y = empty(9, 64);
        RUN(router, .x = x, .gate = up(c, "gate", 6), .bias = up(c, "bias", 1), .bias_vl = up(c, "bias_vl", 1),
            .row_image = b.row_image, .idx = idx, .weight = w, .k = 2, .norm_topk = true, .routed_scale = 1.5f);
        check_routes(c, idx, w, "idx", "route_weight");
        by_tensor w1 = up(c, "w1", 6 * 32), w3 = up(c, "w3", 6 * 32), w2 = up(c, "w2", 6 * 64);
        by_expert e[6], shared = {weight(c, "shared_w1"), weight(c, "shared_w3"), weight(c, "shared_w2")};
        for (int k = 0; k < 6; k++)
            e[k] = (by_expert){{.w = by_tensor_rows(w1, k * 32, 32)}, {.w = by_tensor_rows(w3, k * 32, 32)},
                               {.w = by_tensor_rows(w2, k * 64, 64)}};
        if (i) {
            by_tensor q = by_test_tensor(dev, BY_A8, 9, 64, NULL);
            RUN(act8, .x = x, .y = q);
            x = q;
        }
        RUN(moe, .x = x, .idx = idx, .weight = w, .experts = e, .n_experts = 6, .shared = &shared, .y = y, .inner = 32,
            .limit = 10, .quant = i == 1);
        float *got = by_test_values(y);
        assert_true(by_golden_mostly_close_f32(c, got, f32(c, "y"), 9 * 64, tol_abs, tol_rel, i ? 0.01 : 0));
        free(got);
    }
}

/* Compressor over the chunks of `cuts`, entries stored in one page; compares latents, entries and index keys. */
static void compressor_case(const char *c, int32_t ratio, const int32_t *cuts, int n_cuts) {
    int32_t d = 64, ix = 32, T = 15, n_ent = T / ratio;
    by_tensor x = up(c, "x", T), freq = up(c, "freq", 1), norm = up(c, "norm", 1), k_norm = up(c, "k_norm", 1);
    by_tensor v = empty(T, d), s = empty(T, d);
    RUN(matmul, .x = x, .n_parts = 1, .groups = 1, .part = {{weight(c, "wkv"), v}});
    if (ratio == 2) RUN(matmul, .x = x, .n_parts = 1, .groups = 1, .part = {{weight(c, "wgate"), s}});
    by_tensor page = by_test_tensor(dev, BY_U8, 1, 16 * (d + ix) * 4, NULL), tail = empty(7, 2 * d);
    by_pages main = {page.mem, 0, 0, 16, BY_REC_F32}, index = {page.mem, 16 * d * 4, 0, 16, BY_REC_F32};
    by_tensor all = empty(n_ent, d);
    for (int i = 0, at = 0, e0 = 0; i < n_cuts; at += cuts[i++]) {
        by_batch b = one_sequence(at, cuts[i], NULL);
        int32_t n = (at + cuts[i]) / ratio - e0, seq[16] = {0}, idx[16], row[16];
        for (int32_t e = 0; e < n; e++) {
            idx[e] = e0 + e;
            row[e] = (e0 + e + 1) * ratio - 1 - at;
        }
        by_entries ent = {n, by_test_i32(dev, n, 1, seq), by_test_i32(dev, n, 1, idx), by_test_i32(dev, n, 1, row)};
        by_tensor latent = by_tensor_rows(all, e0, n), ik = empty(n, ix), cs = empty(n, 2 * freq.cols);
        RUN(compress, .batch = b, .entries = ent, .v = by_tensor_rows(v, at, cuts[i]),
            .s = ratio == 2 ? by_tensor_rows(s, at, cuts[i]) : (by_tensor){0}, .norm = norm, .latent = latent,
            .tail = tail.mem, .tail_len = 7, .ratio = ratio, .eps = 1e-20f);
        RUN(matmul, .x = latent, .n_parts = 1, .groups = 1, .part = {{weight(c, "wk"), ik}});
        RUN(rope_table, .pos = ent.idx, .scale = ratio, .freq = freq, .cs = cs);
        RUN(entry_store, .batch = b, .entries = ent, .latent = latent, .ik = ik, .k_norm = k_norm, .cs = cs, .main = main,
            .index = index, .eps = 1e-20f);
        e0 += n;
    }
    close_to(c, "latent", all);
    close_to(c, "ckv", by_tensor_make(page.mem, 0, BY_F32, n_ent, d));
    close_to(c, "index_key", by_tensor_make(page.mem, 16 * d * 4, BY_F32, n_ent, ix));
}

static void compressor_cases(void) {
    const int32_t whole[] = {15}, cuts[] = {3, 1, 1, 4, 5, 1}, ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int32_t ratio = 1; ratio <= 2; ratio++) {
        const char *c = ratio == 1 ? "ratio1" : "ratio2";
        compressor_case(c, ratio, whole, 1);
        compressor_case(c, ratio, cuts, 6);
        compressor_case(c, ratio, ones, 15);
    }
}

/* sel rows as 0/1 masks over C entries. */
static void check_selection(const char *c, const char *t, by_tensor sel, const int32_t *visible, int64_t C) {
    int32_t *got = (int32_t *)(void *)by_test_bytes(sel);
    const uint8_t *want = u8(c, t);
    for (int64_t r = 0; r < sel.rows; r++) {
        uint8_t mask[128] = {0};
        const int32_t *row = got + r * sel.cols;
        int32_t n = row[0] < 0 ? visible[r] : row[0];
        for (int32_t i = 0; i < n; i++) {
            if (row[0] >= 0 && i > 0) assert_true(row[1 + i] > row[i]); /* ascending */
            mask[row[0] < 0 ? i : row[1 + i]] = 1;
        }
        for (int64_t e = 0; e < C; e++) assert_int_equal(mask[e], want[r * C + e] && e < visible[r]);
    }
    free(got);
}

static void indexer_scores(const char *c, bool ix4) {
    int32_t T = 6, heads = 4, d = 32, C = 40;
    by_batch b = one_sequence(70, T, NULL);
    by_tensor qr = up(c, "qr", T), q = empty(T, heads * d), w = empty(T, heads), cs = rope_table(&b, up(c, "freq", 1));
    RUN(matmul, .x = qr, .n_parts = 1, .groups = 1, .part = {{weight(c, "wq_b"), q}});
    RUN(matmul, .x = up(c, "x", T), .n_parts = 1, .groups = 1, .part = {{weight(c, "weights_proj"), w}});
    by_tensor out = empty(T, heads * d);
    RUN(index_query, .q = q, .cs = cs, .out = out, .heads = heads, .d = d);
    close_to(c, "iq", out);
    by_tensor keys = up(c, "index_key", C);
    by_pages pages = {keys.mem, 0, 0, C, BY_REC_F32};
    if (ix4) { /* the key values lie on the ix4 grid: packing them again gives the same scores */
        out = by_test_tensor(dev, BY_IX4, T * heads, d, NULL);
        RUN(index_query, .q = q, .cs = cs, .out = out, .heads = heads, .d = d);
        unsigned char *packed = malloc((size_t)C * 17);
        assert_non_null(packed);
        for (int e = 0; e < C; e++) by_quant_ix4(f32(c, "index_key") + e * d, d, packed + e * 16, packed + C * 16 + e);
        keys = by_test_tensor(dev, BY_U8, 1, C * 17, packed);
        free(packed);
        pages = (by_pages){keys.mem, 0, 0, C, BY_REC_IX4};
    }
    by_tensor sel = by_test_i32(dev, T, 17, NULL), scores = empty(T, C);
    RUN(index_select, .batch = b, .q = out, .weights = w, .scale = powf(128, -0.5f), .keys = pages, .sel = sel,
        .mode = BY_CAND_NONE, .heads = heads, .d = d, .ratio = 2, .topk = 16, .n_entries_max = C, .scores = scores);
    float *got = by_test_values(scores);
    const int32_t *visible = i32(c, "visible");
    for (int32_t t = 0; t < T; t++)
        assert_true(by_golden_close_f32(c, got + t * C, f32(c, "score") + t * C, (size_t)visible[t], tol_abs, tol_rel));
    free(got);
    check_selection(c, "select", sel, visible, C);
}

/* Selection from given scores: one head of width 32 whose first channel carries the score through relu and weight. */
static void select_from_scores(const char *c, int32_t T, int32_t C, const int32_t *visible, by_candidates mode,
                               int32_t topk, int32_t blocks, int32_t size, by_tensor cand, by_tensor sel) {
    for (int32_t t = 0; t < T; t++) {
        const float *score = f32(c, "score") + t * C;
        float *keys = calloc((size_t)C * 32, 4), q[64] = {0}, w[2] = {1, -1};
        assert_non_null(keys);
        for (int32_t e = 0; e < C; e++) { /* positive part by head 0, negative part by head 1 */
            keys[e * 32] = score[e] > 0 ? score[e] : 0;
            keys[e * 32 + 1] = score[e] < 0 ? -score[e] : 0;
        }
        q[0] = 1;
        q[33] = 1;
        by_batch b = one_sequence(visible[t] - 1, 1, NULL);
        by_tensor k = by_test_tensor(dev, BY_F32, C, 32, keys);
        free(keys);
        RUN(index_select, .batch = b, .q = by_test_tensor(dev, BY_F32, 1, 64, q), .weights = by_test_tensor(dev, BY_F32, 1, 2, w),
            .scale = 1, .keys = {k.mem, 0, 0, C, BY_REC_F32}, .sel = by_tensor_rows(sel, t, 1),
            .cand = cand.mem ? by_tensor_rows(cand, t, 1) : cand, .mode = mode, .heads = 2, .d = 32, .ratio = 1, .topk = topk,
            .cand_blocks = blocks, .cand_block_size = size, .n_entries_max = C);
    }
}

static void indexer_cases(void) {
    indexer_scores("scores", false);
    indexer_scores("scores_ix4", true);
    const char *c = "topk_ties";
    int32_t visible[8];
    for (int t = 0; t < 8; t++) {
        visible[t] = 0;
        while (visible[t] < 50 && f32(c, "score")[t * 50 + visible[t]] > -1e38f) visible[t]++;
    }
    by_tensor sel = by_test_i32(dev, 8, 13, NULL);
    select_from_scores(c, 8, 50, visible, BY_CAND_NONE, 12, 0, 1, (by_tensor){0}, sel);
    check_selection(c, "select", sel, visible, 50);
    const struct { const char *name; int32_t blocks, size, C; } cand_cases[] = {{"candidates", 4, 8, 77}, {"candidates_16", 3, 16, 80}};
    for (int i = 0; i < 2; i++) {
        int32_t C = cand_cases[i].C, blocks = cand_cases[i].blocks, size = cand_cases[i].size;
        c = cand_cases[i].name;
        by_tensor cand = by_test_i32(dev, 8, 1 + blocks, NULL);
        sel = by_test_i32(dev, 8, 7, NULL);
        select_from_scores(c, 8, C, i32(c, "visible"), BY_CAND_SOURCE, 6, blocks, size, cand, sel);
        int32_t *got = (int32_t *)(void *)by_test_bytes(cand);
        for (int t = 0; t < 8; t++) {
            const int32_t *row = got + t * (1 + blocks);
            for (int32_t e = 0; e < i32(c, "visible")[t]; e++) {
                bool in = row[0] < 0;
                for (int32_t k = 0; k < row[0]; k++) in |= row[1 + k] == e / size;
                assert_int_equal(in, u8(c, "candidate")[t * C + e]);
            }
        }
        free(got);
        select_from_scores(c, 8, C, i32(c, "visible"), BY_CAND_INSIDE, 6, blocks, size, cand, sel);
        check_selection(c, "select_inside", sel, i32(c, "visible"), C);
    }
}

static void attention_core(const char *c, bool compressed) {
    int32_t T = 5, H = 4, d = 64, W = 16, p0 = 30, C = 12;
    by_batch b = one_sequence(p0, T, NULL);
    by_tensor cs = rope_table(&b, up(c, "freq", 1)), o = empty(T, H * d), keys = up(c, "window_keys", 20);
    by_tensor ring = empty(W, d), kv = by_tensor_rows(keys, 15, T);
    for (int32_t i = 0; i < 15; i++) /* older keys by position mod W */
        by_mem_copy(ring.mem, (size_t)(i32(c, "window_positions")[i] % W * d * 4), keys.mem, (size_t)(i * d * 4), (size_t)d * 4, NULL);
    int32_t sel[5 * 13] = {0};
    for (int t = 0; t < T; t++)
        for (int e = 0; e < C; e++)
            if (u8(c, "select")[t * C + e]) sel[t * 13 + 1 + sel[t * 13]++] = e;
    by_tensor main = up(c, "compressed", C);
    RUN(attention, .batch = b, .q = up(c, "q", T), .cs = cs, .kv = kv, .ring = {ring.mem, 0, 0, W, BY_REC_F32},
        .main = compressed ? (by_pages){main.mem, 0, 0, C, BY_REC_F32} : (by_pages){0}, .sel = by_test_i32(dev, T, 13, sel),
        .sink = up(c, "attn_sink", 1), .o = o, .heads = H, .d = d, .window = W, .ratio = 2, .scale = 0.125f);
    close_to(c, "o_unrotated", o);
    by_tensor grouped = empty(T, 64), y = empty(T, 64);
    RUN(matmul, .x = o, .n_parts = 1, .groups = 2, .part = {{weight("window_and_compressed", "wo_a"), grouped}});
    close_to(c, "grouped", grouped);
    RUN(matmul, .x = grouped, .n_parts = 1, .groups = 1, .part = {{weight("window_and_compressed", "wo_b"), y}});
    close_to(c, "y", y);
}

static void attention_cases(void) {
    attention_core("window_and_compressed", true);
    attention_core("window_only", false);
    attention_core("big_sinks", true);
    attention_core("no_sinks", true);
}

static void engram_hash(const char *c) {
    const int32_t *ids = i32(c, "ids");
    int64_t T = dim(c, "rows", 0), L = dim(c, "rows", 1), cols = dim(c, "rows", 2), n = dim(c, "multipliers", 1), heads = cols / (n - 1);
    const int64_t *mult = by_npy_i64(by_npz_need(z, "<i8", "%s.multipliers", c));
    int32_t pad = 2;
    int32_t *grams = calloc((size_t)(T * n), 4);
    assert_non_null(grams);
    for (int64_t t = 0; t < T; t++) {
        bool blocked = false;
        for (int64_t k = 0; k < n; k++) {
            blocked |= t - k < 0 || ids[t - k] < 0;
            grams[t * n + k] = blocked ? pad : ids[t - k];
        }
    }
    for (int64_t l = 0; l < L; l++) {
        int64_t prime[64], base[64];
        for (int64_t k = 0; k < cols; k++) {
            prime[k] = i32(c, "primes")[l * cols + k];
            base[k] = i32(c, "offsets")[l * cols + k];
        }
        /* A table of rows would need the full total; the hash alone is checked through row_idx with a one-row stride. */
        by_tensor tw = by_test_tensor(dev, BY_FP8_ROW, 1, 32, NULL), ts = by_test_tensor(dev, BY_U8, 1, 1, NULL);
        tw.stride = ts.stride = 0;
        tw.rows = ts.rows = INT64_MAX;
        by_tensor idx = by_test_tensor(dev, BY_I64, T, cols, NULL), e = empty(T, cols * 32);
        RUN(engram, .grams = by_test_i32(dev, T, n, grams), .mult = by_test_tensor(dev, BY_I64, 1, n, mult + l * n),
            .prime = by_test_tensor(dev, BY_I64, n - 1, heads, prime), .base = by_test_tensor(dev, BY_I64, n - 1, heads, base),
            .table = {tw, ts}, .e = e, .row_idx = idx);
        int64_t *got = (int64_t *)(void *)by_test_bytes(idx);
        for (int64_t t = 0; t < T; t++)
            for (int64_t k = 0; k < cols; k++) assert_int_equal(got[t * cols + k], i32(c, "rows")[(t * L + l) * cols + k]);
        free(got);
    }
    free(grams);
}

static void engram_cases(void) {
    engram_hash("hash_real");
    engram_hash("hash_tiny");
    const char *c = "gate";
    by_batch b = one_sequence(0, 7, u8(c, "image"));
    by_tensor kv = empty(7, 320), h = up(c, "h", 7);
    RUN(matmul, .x = up(c, "e", 7), .n_parts = 1, .groups = 1, .part = {{weight(c, "wkv"), kv}});
    RUN(engram_gate, .h = h, .kv = kv, .q_weight = up(c, "q_weight", 4), .k_weight = up(c, "k_weight", 4),
        .row_image = b.row_image, .m = 4, .eps = 1e-20f);
    close_to(c, "h_new", h);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static void on_every_backend(const char *file, double abs_tol, double rel_tol, void (*cases)(void)) {
    const by_test_backend *all;
    int n = by_test_all_backends(&all);
    z = by_npz_open(by_golden_path(file));
    assert_non_null(z);
    tol_abs = abs_tol;
    tol_rel = rel_tol;
    for (int i = 0; i < n; i++) {
        dev = by_test_device(&all[i], 2);
        cases();
        by_test_free_all();
        by_device_close(dev);
    }
    by_npz_close(z);
}

#define TEST(name, file, a, r)                                                                                         \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        on_every_backend("model/ops/" file, a, r, name##_cases);                                                       \
    }
TEST(rmsnorm, "rmsnorm.npz", 2e-6, 2e-6)
TEST(rope, "rope.npz", 3e-6, 0)
TEST(hyper_connection, "hyper_connections.npz", 3e-6, 3e-6)
TEST(router, "router.npz", 2e-6, 5e-6)
TEST(moe, "moe.npz", 5e-6, 5e-6)
TEST(compressor, "compressor.npz", 5e-6, 5e-6)
TEST(indexer, "indexer.npz", 5e-6, 5e-6)
TEST(attention, "attention.npz", 5e-6, 5e-6)
TEST(engram, "engram.npz", 5e-6, 5e-6)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm),   cmocka_unit_test(rope),    cmocka_unit_test(hyper_connection),
        cmocka_unit_test(router),    cmocka_unit_test(moe),     cmocka_unit_test(compressor),
        cmocka_unit_test(indexer),   cmocka_unit_test(attention), cmocka_unit_test(engram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
