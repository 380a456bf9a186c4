/* ref_moe.c - router, experts and Engram. Source: model.md sections 8 and 9. */
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "ops/ref/ref.h"

static float softplus_root(double t) { return (float)sqrt(t > 20 ? t : log1p(exp(t))); }

by_status by_ref_router(by_device *dev, const by_router_args *a, by_err *err) {
    int64_t D = a->x.cols, E = a->gate.rows, T = a->x.rows;
    float *x = by_device_scratch(dev, (size_t)(D + T * D + T * E) * 4, err);
    if (!x) return BY_ENOMEM;
    float *row = x + T * D, *g = row + D;
    for (int64_t t = 0; t < T; t++) by_row_load(x + t * D, &a->x, t);
    for (int64_t e = 0; e < E; e++) {
        by_row_load(row, &a->gate, e);
        for (int64_t t = 0; t < T; t++) g[t * E + e] = softplus_root((float)by_ref_dot(x + t * D, row, D));
    }
    for (int64_t t = 0; t < T; t++) {
        bool image = by_tensor_is(&a->row_image) && *by_tensor_i32(&a->row_image, t) && by_tensor_is(&a->bias_vl);
        const float *bias = by_tensor_f32(image ? &a->bias_vl : &a->bias, 0), *score = g + t * E;
        int32_t *idx = by_tensor_i32_mut(&a->idx, t);
        float *weight = by_tensor_f32(&a->weight, t), sum = 0;
        for (int32_t k = 0; k < a->k; k++) {
            int32_t best = -1;
            for (int32_t e = 0; e < E; e++) {
                bool taken = false;
                for (int32_t j = 0; j < k; j++) taken |= idx[j] == e;
                if (!taken && (best < 0 || score[e] + bias[e] > score[best] + bias[best])) best = e;
            }
            idx[k] = best;
            sum += weight[k] = score[best];
        }
        for (int32_t k = 0; k < a->k; k++)
            weight[k] = (a->norm_topk ? weight[k] / (sum + 1e-20f) : weight[k]) * a->routed_scale;
    }
    return BY_OK;
}

/* Buffers: the rows of one expert, and the products of all pairs. */
typedef struct {
    const by_moe_args *a;
    float *x;       /* [T, D] */
    float *row;     /* one weight row, max(D, I) */
    float *in;      /* [T, I] */
    bool *bad;      /* [T] */
    float *gate;    /* [T, I] */
    float *part;    /* [T * k, D] */
    float *out;     /* [T, D] */
    float *weight;  /* [T] of one expert's rows */
    int32_t *rows, *slots;
    by_dtype act;
} moe_scratch;

static void product(float *y, const float *x, int64_t T, int64_t ld, const int32_t *rows, const by_weight *w, float *row,
                    by_dtype act) {
    int64_t N = w->w.rows, K = w->w.cols;
    for (int64_t n = 0; n < N; n++) {
        by_weight_row_load(row, w, n);
        for (int64_t t = 0; t < T; t++)
            y[t * N + n] = by_round_to(act, (float)by_ref_dot(x + (rows ? rows[t] : t) * ld, row, K));
    }
}

/* Clamping and quantising turn what is not finite into numbers. A bad expert must not go unseen: its output is NaN then. */
static bool all_finite(const float *g, const float *u, int64_t n) {
    for (int64_t c = 0; c < n; c++)
        if (!isfinite(g[c]) || !isfinite(u[c])) return false;
    return true;
}

/* out[i] = expert(x[rows[i]]) with routing weight weight[i] (NULL: 1), [n, D]. */
static void run_expert(const moe_scratch *s, const by_expert *e, int64_t n, const int32_t *rows, const float *weight,
                       float *out) {
    int64_t D = s->a->x.cols, I = e->w1.w.rows; /* the shared expert may be wider */
    product(s->gate, s->x, n, D, rows, &e->w1, s->row, s->act);
    product(s->in, s->x, n, D, rows, &e->w3, s->row, s->act);
    for (int64_t i = 0; i < n; i++) {
        float *g = s->gate + i * I, *u = s->in + i * I, L = s->a->limit, w = weight ? weight[i] : 1;
        s->bad[i] = !all_finite(g, u, I);
        for (int64_t c = 0; c < I; c++) {
            float gv = L > 0 ? fminf(g[c], L) : g[c], uv = L > 0 ? fmaxf(-L, fminf(u[c], L)) : u[c];
            u[c] = (float)((double)gv / (1.0 + exp(-(double)gv))) * uv * w;
        }
        if (!s->a->quant) continue;
        uint8_t data[32], scale;
        for (int64_t c = 0; c < I; c += 32) {
            by_quant_act8(u + c, 32, data, &scale);
            by_dequant_act8(data, &scale, 32, u + c);
        }
    }
    product(out, s->in, n, I, NULL, &e->w2, s->row, s->act);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; s->bad[i] && c < D; c++) out[i * D + c] = NAN;
}

static by_status moe_begin(moe_scratch *s, by_device *dev, const by_moe_args *a, by_err *err) {
    int64_t D = a->x.cols, T = a->x.rows, k = a->idx.cols;
    int64_t I = a->shared && a->shared->w1.w.rows > a->inner ? a->shared->w1.w.rows : a->inner, wide = D > I ? D : I;
    size_t floats = (size_t)(T * D + wide + 2 * T * I + T * k * D + T * D + T) + (size_t)T * 2;
    float *x = by_device_scratch(dev, floats * 4 + (size_t)T, err);
    if (!x) return BY_ENOMEM;
    *s = (moe_scratch){.a = a, .x = x, .row = x + T * D, .act = a->y.dtype};
    s->in = s->row + wide;
    s->gate = s->in + T * I;
    s->part = s->gate + T * I;
    s->out = s->part + T * k * D;
    s->weight = s->out + T * D;
    s->rows = (int32_t *)(void *)(s->weight + T);
    s->slots = s->rows + T;
    s->bad = (bool *)(s->slots + T);
    for (int64_t t = 0; t < T; t++) by_row_load(x + t * D, &a->x, t);
    return BY_OK;
}

static bool is_here(const by_moe_args *a, int32_t e) { return by_tensor_is(&a->experts[e].w1.w); }

/* Products of the routed experts that are here, into part. */
static void run_routed(const moe_scratch *s) {
    const by_moe_args *a = s->a;
    int64_t D = a->x.cols, T = a->x.rows, k = a->idx.cols;
    for (int32_t e = 0; e < a->n_experts; e++) {
        int64_t n = 0;
        for (int32_t t = 0; is_here(a, e) && t < T; t++) {
            const int32_t *idx = by_tensor_i32(&a->idx, t);
            for (int32_t j = 0; j < k; j++) {
                if (idx[j] != e) continue;
                s->rows[n] = t;
                s->slots[n] = j;
                s->weight[n++] = by_tensor_f32(&a->weight, t)[j];
            }
        }
        if (n == 0) continue;
        run_expert(s, &a->experts[e], n, s->rows, s->weight, s->out);
        for (int64_t i = 0; i < n; i++) memcpy(s->part + (s->rows[i] * k + s->slots[i]) * D, s->out + i * D, (size_t)D * 4);
    }
}

by_status by_ref_moe(by_device *dev, const by_moe_args *a, by_err *err) {
    int64_t D = a->x.cols, T = a->x.rows, k = a->idx.cols;
    moe_scratch s;
    BY_TRY(moe_begin(&s, dev, a, err));
    run_routed(&s);
    if (a->shared) run_expert(&s, a->shared, T, NULL, NULL, s.out);
    if (by_tensor_is(&a->part)) BY_TRY(by_device_join(dev, err));
    for (int64_t i = 0; by_tensor_is(&a->part) && i < T * k; i++)
        if (!is_here(a, by_tensor_i32(&a->idx, i / k)[i % k])) by_row_load(s.part + i * D, &a->part, i);
    for (int64_t t = 0; t < T; t++) {
        float *y = s.x + t * D;
        for (int64_t c = 0; c < D; c++) {
            float sum = 0;
            for (int64_t j = 0; j < k; j++) sum += s.part[(t * k + j) * D + c];
            y[c] = a->shared ? sum + s.out[t * D + c] : sum;
        }
        by_row_store(&a->y, t, y);
    }
    return BY_OK;
}

by_status by_ref_moe_part(by_device *dev, const by_moe_part_args *a, by_err *err) {
    int64_t D = a->x.cols, T = a->x.rows, k = a->idx.cols;
    by_moe_args all = {.x = a->x, .idx = a->idx, .weight = a->weight, .experts = a->experts, .n_experts = a->n_experts, .y = a->part,
                       .inner = a->inner, .limit = a->limit, .quant = a->quant};
    moe_scratch s;
    BY_TRY(moe_begin(&s, dev, &all, err));
    run_routed(&s);
    for (int64_t i = 0; i < T * k; i++)
        if (is_here(&all, by_tensor_i32(&a->idx, i / k)[i % k])) by_row_store(&a->part, i, s.part + i * D);
    return BY_OK;
}

by_status by_ref_engram(by_device *dev, const by_engram_args *a, by_err *err) {
    int64_t n = a->grams.cols, heads = a->prime.cols, d = a->table.w.cols, cols = (n - 1) * heads;
    float *e = by_device_scratch(dev, (size_t)(cols * d) * 4, err);
    if (!e) return BY_ENOMEM;
    int64_t mult[BY_LIMIT_NGRAM];
    memcpy(mult, by_tensor_row(&a->mult, 0), (size_t)n * 8);
    for (int64_t t = 0; t < a->grams.rows; t++) {
        const int32_t *gram = by_tensor_i32(&a->grams, t);
        int64_t x = gram[0] * mult[0];
        unsigned char *to = by_tensor_row(&a->e, t);
        for (int64_t b = 1; b < n; b++) {
            x ^= gram[b] * mult[b];
            for (int64_t h = 0; h < heads; h++) {
                int64_t prime, base, col = (b - 1) * heads + h;
                memcpy(&prime, by_tensor_row(&a->prime, b - 1) + 8 * h, 8);
                memcpy(&base, by_tensor_row(&a->base, b - 1) + 8 * h, 8);
                int64_t row = x % prime + base;
                if (by_tensor_is(&a->row_idx)) memcpy(by_tensor_row(&a->row_idx, t) + 8 * col, &row, 8);
                if (a->e.dtype == BY_A8) {
                    memcpy(to + col * d, by_tensor_row(&a->table.w, row), (size_t)d);
                    memcpy(to + cols * d + col * (d / 32), by_tensor_row(&a->table.scale, row), (size_t)d / 32);
                } else {
                    by_weight_row_load(e + col * d, &a->table, row);
                }
            }
        }
        if (a->e.dtype != BY_A8) by_row_store(&a->e, t, e);
    }
    return BY_OK;
}

by_status by_ref_engram_gate(by_device *dev, const by_engram_gate_args *a, by_err *err) {
    int64_t mD = a->h.cols, D = mD / a->m;
    float *h = by_device_scratch(dev, (size_t)(2 * mD + D + 2 * D) * 4, err);
    if (!h) return BY_ENOMEM;
    float *kv = h + mD, *qw = kv + mD + D, *kw = qw + D;
    for (int64_t t = 0; t < a->h.rows; t++) {
        if (by_tensor_is(&a->row_image) && *by_tensor_i32(&a->row_image, t)) continue;
        by_row_load(h, &a->h, t);
        by_row_load(kv, &a->kv, t);
        for (int32_t i = 0; i < a->m; i++) {
            float *x = h + i * D, *key = kv + i * D, *value = kv + mD;
            by_row_load(qw, &a->q_weight, i);
            by_row_load(kw, &a->k_weight, i);
            double dot = 0;
            for (int64_t c = 0; c < D; c++) dot += (double)x[c] * (double)(qw[c] * kw[c]) * (double)key[c];
            dot /= sqrt(by_ref_dot(x, x, D) / (double)D + (double)a->eps);
            dot /= sqrt(by_ref_dot(key, key, D) / (double)D + (double)a->eps);
            dot /= sqrt((double)D);
            double root = copysign(sqrt(fmax(fabs(dot), 1e-6)), dot);
            float gate = (float)(1.0 / (1.0 + exp(-root)));
            for (int64_t c = 0; c < D; c++) x[c] += gate * value[c];
        }
        by_row_store(&a->h, t, h);
    }
    return BY_OK;
}
