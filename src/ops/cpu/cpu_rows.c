/* cpu_rows.c - operators that treat each row by itself: norms, rotations, streams, records, the compressor, Engram's gate.
 * They follow the ref operators step by step, with the loops of cpu_vec.h; rows are shared out among the threads. */
#include <math.h>
#include <string.h>

#include "ops/cpu/cpu_ops.h"

/* What the body of a row loop gets. */
typedef struct {
    const void *args;
    const by_vec *vec;
    float *shared;   /* read-only for the loop: norm weights */
    float *scratch;  /* [threads][per_thread] */
    int64_t per_thread;
} job;

static float *own(const job *j, int32_t worker) { return j->scratch + worker * j->per_thread; }

/* Row of x with alignment of nothing: bytes. */
static const void *row(const by_tensor *t, int64_t r) { return by_tensor_row(t, r); }

/* Runs body over n rows with `floats` of scratch per thread; `shared` holds the values of a vector tensor (may be absent).
 * work: multiply-adds of a row. */
static by_status run(by_device *dev, const void *args, const by_tensor *vector, int64_t n, int64_t floats, double work,
                     by_pool_body *body, by_err *err) {
    if (n == 0) return BY_OK;
    job j = {.args = args, .vec = by_cpu_of(dev)->vec, .per_thread = (floats + 15) / 16 * 16};
    by_pool *pool = n > 1 ? by_cpu_pool(dev, work * (double)n) : NULL;
    size_t threads = (size_t)by_pool_threads(pool);
    by_cpu_scratch s = {0};
    by_cpu_want(&s, by_mul_size(threads, (size_t)j.per_thread * 4));
    if (vector) by_cpu_want(&s, (size_t)vector->cols * 4);
    BY_TRY(by_cpu_begin(&s, dev, err));
    j.scratch = by_cpu_take(&s, threads * (size_t)j.per_thread * 4);
    if (vector) {
        j.shared = by_cpu_take(&s, (size_t)vector->cols * 4);
        j.vec->load(j.shared, vector->dtype, row(vector, 0), vector->cols);
    }
    int64_t chunk = n / (4 * (int64_t)threads);
    by_pool_for(pool, n, chunk > 16 ? 16 : chunk > 1 ? chunk : 1, body, &j);
    return BY_OK;
}

/* ---- norms and formats ------------------------------------------------------------------------------------------- */

static void rmsnorm_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_rmsnorm_args *a = j->args;
    float *x = own(j, worker);
    for (int64_t t = begin; t < end; t++) {
        j->vec->load(x, a->x.dtype, row(&a->x, t), a->x.cols);
        j->vec->norm(x, x, j->shared, a->x.cols, a->eps);
        j->vec->round(x, a->x.dtype, a->x.cols);
        if (by_tensor_is(&a->y)) j->vec->store(by_tensor_row(&a->y, t), a->y.dtype, x, a->x.cols);
        if (by_tensor_is(&a->y_a8)) j->vec->store(by_tensor_row(&a->y_a8, t), BY_A8, x, a->x.cols);
    }
}
by_status by_cpu_rmsnorm(by_device *dev, const by_rmsnorm_args *a, by_err *err) {
    return run(dev, a, &a->norm, a->x.rows, a->x.cols, 4 * (double)a->x.cols, rmsnorm_rows, err);
}

static void act8_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_act8_args *a = j->args;
    float *x = own(j, worker);
    for (int64_t t = begin; t < end; t++) {
        j->vec->load(x, a->x.dtype, row(&a->x, t), a->x.cols);
        j->vec->store(by_tensor_row(&a->y, t), BY_A8, x, a->x.cols);
    }
}
by_status by_cpu_act8(by_device *dev, const by_act8_args *a, by_err *err) {
    return run(dev, a, NULL, a->x.rows, a->x.cols, 4 * (double)a->x.cols, act8_rows, err);
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

static void rope_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_rope_args *a = j->args;
    float *x = own(j, worker);
    int64_t r = a->cs.cols, bytes = a->x.dtype == BY_BF16 ? 2 : 4;
    for (int64_t t = begin; t < end; t++) {
        for (int32_t h = 0; h < a->heads; h++) { /* the other channels stay as they are */
            unsigned char *p = by_tensor_row(&a->x, t) + ((int64_t)(h + 1) * a->d - r) * bytes;
            j->vec->load(x, a->x.dtype, p, r);
            j->vec->rotate(x, by_tensor_f32(&a->cs, t), r, 1);
            j->vec->store(p, a->x.dtype, x, r);
        }
    }
}
by_status by_cpu_rope(by_device *dev, const by_rope_args *a, by_err *err) {
    return run(dev, a, NULL, a->x.rows, a->cs.cols, 4.0 * a->heads * (double)a->cs.cols, rope_rows, err);
}

static void index_query_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_index_query_args *a = j->args;
    float *x = own(j, worker);
    int64_t d = a->d, r = a->cs.cols;
    for (int64_t t = begin; t < end; t++) {
        j->vec->load(x, a->q.dtype, row(&a->q, t), a->q.cols);
        for (int32_t h = 0; h < a->heads; h++) {
            float *v = x + h * d;
            j->vec->rotate(v + d - r, by_tensor_f32(&a->cs, t), r, 1);
            j->vec->round(v, a->q.dtype, d);
            if (a->out.dtype != BY_IX4) continue;
            unsigned char *at = by_tensor_row(&a->out, t * a->heads + h);
            j->vec->rec_store(at, at + d / 2, BY_REC_IX4, v, d);
        }
        if (a->out.dtype == BY_F32) j->vec->store(by_tensor_row(&a->out, t), BY_F32, x, a->q.cols);
    }
}
by_status by_cpu_index_query(by_device *dev, const by_index_query_args *a, by_err *err) {
    return run(dev, a, NULL, a->q.rows, a->q.cols, 8 * (double)a->q.cols, index_query_rows, err);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* Where a record's scales stand, for those that hold data and scales together. */
static unsigned char *scales_of(unsigned char *at, by_rec rec, int64_t d) {
    return rec == BY_REC_FP8 ? at + d : at + d / 2;
}

static void window_kv_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_window_kv_args *a = j->args;
    float *x = own(j, worker);
    int64_t d = a->x.cols, r = a->cs.cols;
    for (int64_t t = begin; t < end; t++) {
        j->vec->load(x, a->x.dtype, row(&a->x, t), d);
        j->vec->norm(x, x, j->shared, d, a->eps);
        j->vec->round(x, a->x.dtype, d);
        j->vec->rotate(x + d - r, by_tensor_f32(&a->cs, t), r, 1);
        j->vec->round(x, a->x.dtype, d);
        unsigned char *at = by_tensor_row(&a->kv, t);
        j->vec->rec_store(at, scales_of(at, a->rec, d), a->rec, x, d);
    }
}
by_status by_cpu_window_kv(by_device *dev, const by_window_kv_args *a, by_err *err) {
    BY_TRY(run(dev, a, &a->norm, a->x.rows, a->x.cols, 8 * (double)a->x.cols, window_kv_rows, err));
    by_rope_args rope = {.x = a->q, .cs = a->cs, .heads = a->heads, .d = (int32_t)a->x.cols};
    if (by_tensor_is(&a->q)) BY_TRY(by_cpu_rope(dev, &rope, err));
    by_ring_store_args ring = {.batch = a->batch, .kv = a->kv, .from = a->from, .ring = a->ring};
    return a->ring.mem ? by_op_ring_store(dev, &ring, err) : BY_OK;
}

/* Tokens of a pair: value and score of the one in front of `row`, from the step or from the tail ring. */
static void previous_token(const job *j, const by_compress_args *a, int32_t seq, int32_t r, float *v, float *s) {
    int64_t d = a->v.cols;
    if (r > *by_tensor_i32(&a->batch.seq_row0, seq)) {
        j->vec->load(v, a->v.dtype, row(&a->v, r - 1), d);
        j->vec->load(s, a->s.dtype, row(&a->s, r - 1), d);
        return;
    }
    int32_t pos = *by_tensor_i32(&a->batch.row_pos, r) - 1, slot = *by_tensor_i32(&a->batch.seq_slot, seq);
    const unsigned char *at = a->tail->ptr + a->tail_off + slot * a->tail_stride + pos % a->tail_len * 8 * d;
    memcpy(v, at, (size_t)d * 4);
    memcpy(s, at + 4 * d, (size_t)d * 4);
}

static void compress_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_compress_args *a = j->args;
    int64_t d = a->v.cols;
    float *v0 = own(j, worker), *s0 = v0 + d, *v1 = s0 + d, *s1 = v1 + d;
    for (int64_t e = begin; e < end; e++) {
        int32_t r = *by_tensor_i32(&a->entries.row, e), seq = *by_tensor_i32(&a->entries.seq, e);
        j->vec->load(v1, a->v.dtype, row(&a->v, r), d);
        if (a->ratio == 2) {
            j->vec->load(s1, a->s.dtype, row(&a->s, r), d);
            previous_token(j, a, seq, r, v0, s0);
            for (int64_t i = 0; i < d; i++) { /* a softmax of two: the first token's weight in double, as in ref */
                double p = 1.0 / (1.0 + exp((double)s1[i] - (double)s0[i]));
                v1[i] = (float)(p * (double)v0[i] + (1.0 - p) * (double)v1[i]);
            }
            j->vec->round(v1, a->latent.dtype, d);
        }
        j->vec->norm(v1, v1, j->shared, d, a->eps);
        j->vec->store(by_tensor_row(&a->latent, e), a->latent.dtype, v1, d);
    }
}

by_status by_cpu_compress(by_device *dev, const by_compress_args *a, by_err *err) {
    int64_t d = a->v.cols;
    BY_TRY(run(dev, a, &a->norm, a->entries.n, 4 * d, (a->ratio == 2 ? 60.0 : 8.0) * (double)d, compress_rows, err));
    if (a->ratio == 2) by_host_store_tail(a);
    return BY_OK;
}

static void entry_store_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_entry_store_args *a = j->args;
    int64_t d = a->latent.cols, ix = a->ik.cols, r = a->cs.cols;
    by_dtype act = a->latent.dtype;
    float *x = own(j, worker), *k = x + d;
    for (int64_t e = begin; e < end; e++) {
        int32_t seq = *by_tensor_i32(&a->entries.seq, e), idx = *by_tensor_i32(&a->entries.idx, e);
        const float *cs = by_tensor_f32(&a->cs, e);
        j->vec->load(x, act, row(&a->latent, e), d);
        j->vec->rotate(x + d - r, cs, r, 1);
        j->vec->round(x, act, d);
        unsigned char *at = by_page_entry(&a->main, &a->batch, seq, idx, d, NULL);
        j->vec->rec_store(at, scales_of(at, a->main.rec, d), a->main.rec, x, d);
        j->vec->load(k, a->ik.dtype, row(&a->ik, e), ix);
        j->vec->norm(k, k, j->shared, ix, a->eps);
        j->vec->round(k, act, ix);
        j->vec->rotate(k + ix - r, cs, r, 1);
        j->vec->round(k, act, ix);
        unsigned char *scales = NULL;
        at = by_page_entry(&a->index, &a->batch, seq, idx, ix, &scales);
        j->vec->rec_store(at, a->index.rec == BY_REC_IX4 ? scales : scales_of(at, a->index.rec, ix), a->index.rec, k, ix);
    }
}
by_status by_cpu_entry_store(by_device *dev, const by_entry_store_args *a, by_err *err) {
    int64_t floats = a->latent.cols + a->ik.cols;
    return run(dev, a, &a->k_norm, a->entries.n, floats, 10 * (double)floats, entry_store_rows, err);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void embed_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_embed_args *a = j->args;
    int64_t D = a->table.cols, bytes = by_dtype_row_bytes(a->h.dtype, D);
    float *x = own(j, worker);
    for (int64_t t = begin; t < end; t++) {
        int32_t id = *by_tensor_i32(&a->ids, t);
        const by_tensor *from = id >= 0 ? &a->table : &a->image;
        j->vec->load(x, from->dtype, row(from, id >= 0 ? id : -(int64_t)id - 1), D);
        unsigned char *h = by_tensor_row(&a->h, t);
        j->vec->store(h, a->h.dtype, x, D);
        float *pre = by_tensor_f32(&a->pre, t);
        for (int32_t i = 0; i < a->m; i++) {
            if (i) memcpy(h + i * bytes, h, (size_t)bytes);
            pre[i] = i == 0;
        }
    }
}
by_status by_cpu_embed(by_device *dev, const by_embed_args *a, by_err *err) {
    return run(dev, a, NULL, a->h.rows, a->table.cols, 2 * (double)a->h.cols, embed_rows, err);
}

/* Items are (row, piece of the channels): one row alone is worth sharing. */
enum { PIECE = 1024 };

static void post_pieces(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const job *j = arg;
    const by_hc_post_args *a = j->args;
    int64_t D = a->h.cols / a->m, pieces = (D + PIECE - 1) / PIECE, bytes = a->h.dtype == BY_BF16 ? 2 : 4;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / pieces, c = i % pieces * PIECE, n = D - c < PIECE ? D - c : PIECE;
        j->vec->write_back(by_tensor_row(&a->h, t) + c * bytes, a->h.dtype, by_tensor_row(&a->out, t) + c * bytes,
                           by_tensor_f32(&a->post, t), by_tensor_f32(&a->comb, t), a->m, D, n);
    }
}
by_status by_cpu_hc_post(by_device *dev, const by_hc_post_args *a, by_err *err) {
    int64_t D = a->h.cols / a->m, pieces = (D + PIECE - 1) / PIECE;
    assert(a->out.dtype == a->h.dtype);
    return run(dev, a, NULL, a->h.rows * pieces, 0, (double)a->m * (a->m + 1) * (double)(D / pieces), post_pieces, err);
}

static void close_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_hc_close_args *a = j->args;
    int64_t D = a->h.cols / a->m;
    float *h = own(j, worker), *u = h + a->h.cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = *by_tensor_i32(&a->rows, i);
        j->vec->load(h, a->h.dtype, row(&a->h, t), a->h.cols);
        j->vec->mix(u, by_tensor_f32(&a->pre, t), h, D, a->m, D);
        j->vec->round(u, a->y.dtype, D);
        j->vec->norm(u, u, j->shared, D, a->eps);
        j->vec->store(by_tensor_row(&a->y, i), a->y.dtype, u, D);
    }
}
by_status by_cpu_hc_close(by_device *dev, const by_hc_close_args *a, by_err *err) {
    int64_t D = a->h.cols / a->m;
    return run(dev, a, &a->norm, a->rows.rows, a->h.cols + D, 4 * (double)a->h.cols, close_rows, err);
}

static void read_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_hc_read_args *a = j->args;
    int64_t D = a->h.cols / a->m;
    float *h = own(j, worker), *u = h + a->h.cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = by_tensor_is(&a->rows) ? *by_tensor_i32(&a->rows, i) : i;
        j->vec->load(h, a->h.dtype, row(&a->h, t), a->h.cols);
        j->vec->mix(u, by_tensor_f32(&a->pre, t), h, D, a->m, D);
        j->vec->store(by_tensor_row(&a->y, i), a->y.dtype, u, D);
    }
}
by_status by_cpu_hc_read(by_device *dev, const by_hc_read_args *a, by_err *err) {
    int64_t n = by_tensor_is(&a->rows) ? a->rows.rows : a->h.rows;
    return run(dev, a, NULL, n, a->h.cols + a->h.cols / a->m, 2 * (double)a->h.cols, read_rows, err);
}

/* ---- Engram ------------------------------------------------------------------------------------------------------ */

/* Items are (row, stream). */
static void gate_streams(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const job *j = arg;
    const by_engram_gate_args *a = j->args;
    int64_t D = a->h.cols / a->m, bytes = a->h.dtype == BY_BF16 ? 2 : 4;
    float *x = own(j, worker), *key = x + D, *value = key + D, *qw = value + D, *kw = qw + D;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / a->m, s = i % a->m;
        if (by_tensor_is(&a->row_image) && *by_tensor_i32(&a->row_image, t)) continue;
        unsigned char *at = by_tensor_row(&a->h, t) + s * D * bytes;
        const unsigned char *kv = by_tensor_row(&a->kv, t);
        int64_t kv_bytes = a->kv.dtype == BY_BF16 ? 2 : 4;
        j->vec->load(x, a->h.dtype, at, D);
        j->vec->load(key, a->kv.dtype, kv + s * D * kv_bytes, D);
        j->vec->load(value, a->kv.dtype, kv + a->m * D * kv_bytes, D);
        j->vec->load(qw, a->q_weight.dtype, row(&a->q_weight, s), D);
        j->vec->load(kw, a->k_weight.dtype, row(&a->k_weight, s), D);
        double dot = j->vec->dot4(x, qw, kw, key, D);
        dot /= sqrt(j->vec->dot(x, x, D) / (double)D + (double)a->eps);
        dot /= sqrt(j->vec->dot(key, key, D) / (double)D + (double)a->eps);
        dot /= sqrt((double)D);
        double root = copysign(sqrt(fmax(fabs(dot), 1e-6)), dot);
        j->vec->add_scaled(x, (float)(1.0 / (1.0 + exp(-root))), value, D);
        j->vec->store(at, a->h.dtype, x, D);
    }
}
by_status by_cpu_engram_gate(by_device *dev, const by_engram_gate_args *a, by_err *err) {
    int64_t D = a->h.cols / a->m;
    return run(dev, a, NULL, a->h.rows * a->m, 5 * D, 8 * (double)D, gate_streams, err);
}
