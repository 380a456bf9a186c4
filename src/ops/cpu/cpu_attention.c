/* cpu_attention.c - attention over window and selected entries. Source: model.md section 5.
 *
 * The keys of a row are dequantised once into fp32 (they serve as values too, and all heads share them); then each head takes
 * its scores, softmax and sums. With many rows an item is (row, block of heads) and dequantises for itself; with few rows the
 * keys of a row are dequantised by all threads together, then the heads are shared out. */
#include <string.h>

#include "ops/cpu/cpu_ops.h"

enum { HEAD_BLOCK = 16, FEW_ITEMS_PER_THREAD = 2, KEY_CHUNK = 32 };

typedef struct {
    const by_attention_args *a;
    const by_vec *vec;
    int64_t keys_max, head_block;
    int64_t ring_bytes, main_bytes; /* of a record */
    int64_t t;        /* few rows: the row at hand */
    float *shared;    /* few rows: its keys [keys_max][d] */
    float *scratch;   /* [threads][per_thread] */
    int64_t per_thread;
} attention;

/* What row t sees: n_window positions from p0 on, then `count` entries, all or those listed. */
typedef struct {
    int32_t pos, seq, pos0, row0, p0, n_window, count;
    const unsigned char *ring;
    const int32_t *list; /* NULL = entries 0, 1, ... */
} view;

static view look(const by_attention_args *a, int64_t t) {
    view v = {.pos = *by_tensor_i32(&a->batch.row_pos, t), .seq = *by_tensor_i32(&a->batch.row_seq, t)};
    v.pos0 = *by_tensor_i32(&a->batch.seq_pos0, v.seq);
    v.row0 = *by_tensor_i32(&a->batch.seq_row0, v.seq);
    int32_t slot = *by_tensor_i32(&a->batch.seq_slot, v.seq), from = by_tensor_is(&a->from) ? *by_tensor_i32(&a->from, v.seq) : 0;
    v.ring = a->ring.mem->ptr + a->ring.off + slot * a->ring.slot_stride;
    int32_t first = v.pos - a->window + 1, last = v.pos;
    if (a->block) {
        first = v.pos0 - a->window;
        last = v.pos0 + *by_tensor_i32(&a->batch.seq_row0, v.seq + 1) - v.row0 - 1;
    }
    v.p0 = first > from ? first : from;
    v.n_window = last >= v.p0 ? last - v.p0 + 1 : 0;
    if (!a->main.mem) return v;
    const int32_t *sel = by_tensor_i32(&a->sel, t);
    v.count = sel[0] < 0 ? (v.pos + 1) / a->ratio : sel[0];
    v.list = sel[0] < 0 ? NULL : sel + 1;
    return v;
}

/* Records that lie one behind another. */
typedef struct {
    by_rec rec;
    const unsigned char *at;
    int64_t stride, n;
} run;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The run that begins with key j of the view, window first, then entries. */
static run run_at(const attention *p, const view *v, int64_t j) {
    const by_attention_args *a = p->a;
    int64_t d = a->d, bytes = j < v->n_window ? p->ring_bytes : p->main_bytes;
    if (j < v->n_window) {
        int32_t pos = v->p0 + (int32_t)j;
        int64_t left = v->n_window - j;
        if (pos >= v->pos0) return (run){a->ring.rec, by_tensor_row(&a->kv, v->row0 + (pos - v->pos0)), a->kv.stride, left};
        int32_t slot = pos % a->ring.len;
        return (run){a->ring.rec, v->ring + slot * bytes, bytes, least(least(a->ring.len - slot, v->pos0 - pos), left)};
    }
    int64_t i = j - v->n_window, n = 1;
    int32_t e = v->list ? v->list[i] : (int32_t)i;
    int64_t most = least(a->main.per_block - e % a->main.per_block, v->count - i);
    if (v->list)
        while (n < most && v->list[i + n] == e + n) n++;
    return (run){a->main.rec, by_page_entry(&a->main, &a->batch, v->seq, e, d, NULL), bytes, v->list ? n : most};
}

/* Keys [begin, end) of the view. */
static void load_keys(const attention *p, const view *v, float *keys, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end;) {
        run r = run_at(p, v, j);
        int64_t n = least(r.n, end - j);
        p->vec->rec_load_rows(keys + j * p->a->d, r.rec, r.at, r.stride, n, p->a->d);
        j += n;
    }
}

/* Heads [h0, h1) of row t over n keys. */
static void attend(const attention *p, int64_t t, int32_t h0, int32_t h1, const float *keys, int64_t n, float *scratch) {
    const by_attention_args *a = p->a;
    int64_t d = a->d, heads = h1 - h0, r = a->cs.cols;
    float *q = scratch, *o = q + heads * d, *s = o + heads * d;
    double inv[HEAD_BLOCK];
    const float *sink = by_tensor_f32(&a->sink, 0);
    int64_t bytes = a->q.dtype == BY_BF16 ? 2 : 4;
    p->vec->load(q, a->q.dtype, by_tensor_row(&a->q, t) + h0 * d * bytes, heads * d);
    p->vec->scores(s, p->keys_max, q, d, (int32_t)heads, keys, n, d, a->scale);
    for (int64_t h = 0; h < heads; h++) inv[h] = p->vec->softmax(s + h * p->keys_max, n, sink[h0 + h]);
    p->vec->values(o, d, s, p->keys_max, inv, (int32_t)heads, keys, n, d);
    for (int64_t h = 0; h < heads; h++) p->vec->rotate(o + h * d + d - r, by_tensor_f32(&a->cs, t), r, -1);
    unsigned char *to = by_tensor_row(&a->o, t);
    if (a->o.dtype == BY_A8) p->vec->rec_store(to + h0 * d, to + a->o.cols + h0 * d / 32, BY_REC_FP8, o, heads * d);
    else p->vec->store(to + h0 * d * (a->o.dtype == BY_BF16 ? 2 : 4), a->o.dtype, o, heads * d);
}

static int32_t head_end(const attention *p, int64_t block) {
    int64_t end = (block + 1) * p->head_block;
    return (int32_t)(end < p->a->heads ? end : p->a->heads);
}

/* Items are (row, block of heads). */
static void row_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const attention *p = arg;
    int64_t blocks = (p->a->heads + p->head_block - 1) / p->head_block, loaded = -1, n = 0;
    float *keys = p->scratch + worker * p->per_thread, *rest = keys + p->keys_max * p->a->d;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / blocks, b = i % blocks;
        if (t != loaded) {
            view v = look(p->a, t);
            n = v.n_window + v.count;
            load_keys(p, &v, keys, 0, n);
            loaded = t;
        }
        attend(p, t, (int32_t)(b * p->head_block), head_end(p, b), keys, n, rest);
    }
}

static void key_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    (void)worker;
    const attention *p = arg;
    view v = look(p->a, p->t);
    load_keys(p, &v, p->shared, begin, end);
}

static void head_items(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const attention *p = arg;
    view v = look(p->a, p->t);
    for (int64_t b = begin; b < end; b++)
        attend(p, p->t, (int32_t)(b * p->head_block), head_end(p, b), p->shared, v.n_window + v.count, p->scratch + worker * p->per_thread);
}

static void few_rows(void *arg, by_team *team) {
    const attention *p = arg;
    attention own = *p; /* the row at hand differs between threads for a moment */
    for (own.t = 0; own.t < p->a->q.rows; own.t++) {
        view v = look(p->a, own.t);
        by_team_for(team, v.n_window + v.count, KEY_CHUNK, key_items, &own);
        by_team_for(team, (p->a->heads + p->head_block - 1) / p->head_block, 1, head_items, &own);
    }
}

by_status by_cpu_attention(by_device *dev, const by_attention_args *a, by_err *err) {
    int64_t T = a->q.rows, d = a->d, topk = a->main.mem ? a->sel.cols - 1 : 0;
    if (d % 32 != 0 || a->heads < 1) return by_ops_ref.attention(dev, a, err);
    if (T == 0) return BY_OK;
    attention p = {.a = a, .vec = by_cpu_of(dev)->vec, .head_block = HEAD_BLOCK, .ring_bytes = by_rec_bytes(a->ring.rec, d)};
    if (a->main.mem) p.main_bytes = by_rec_bytes(a->main.rec, d);
    p.keys_max = (a->window + topk + a->block + 15) / 16 * 16;
    by_pool *pool = by_cpu_pool(dev, (double)T * a->heads * (double)d * 64);
    int64_t threads = by_pool_threads(pool), blocks = (a->heads + HEAD_BLOCK - 1) / HEAD_BLOCK;
    bool few = threads > 1 && T * blocks < FEW_ITEMS_PER_THREAD * threads;
    while (few && p.head_block > 1 && (a->heads + p.head_block - 1) / p.head_block < FEW_ITEMS_PER_THREAD * threads) p.head_block /= 2;
    p.per_thread = (few ? 0 : p.keys_max * d) + HEAD_BLOCK * (2 * d + p.keys_max);
    by_cpu_scratch s = {0};
    by_cpu_want(&s, by_mul_size((size_t)threads, (size_t)p.per_thread * 4));
    if (few) by_cpu_want(&s, (size_t)(p.keys_max * d) * 4);
    BY_TRY(by_cpu_begin(&s, dev, err));
    p.scratch = by_cpu_take(&s, (size_t)(threads * p.per_thread) * 4);
    if (few) {
        p.shared = by_cpu_take(&s, (size_t)(p.keys_max * d) * 4);
        by_pool_run(pool, few_rows, &p);
    } else {
        by_pool_for(pool, T * blocks, blocks, row_items, &p);
    }
    return BY_OK;
}
