/* host_experts.c - see host_experts.h.
 *
 * Four buffers, each with two handles: the device copies activations, choices and weights in and reads products; the host's device
 * works on the same bytes in place. */
#include "model/host_experts.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"

enum { X, IDX, WEIGHT, PART, N_BUFFERS };

struct by_host_experts {
    const by_model *m;
    int64_t max_rows;
    by_mem *shared[N_BUFFERS]; /* of the device */
    by_mem *mine[N_BUFFERS];   /* the same bytes, of the host's device */
    _Atomic bool failed;       /* err is written before it is set and read before it is cleared */
    by_err err;
};

static int32_t choices(const by_config *c, int32_t layer) {
    return layer < c->n_layers ? c->n_experts_per_token : c->draft.n_experts_per_token;
}

static by_dtype x_dtype(const by_model *m) { return m->quant ? BY_A8 : m->act; }

static const by_layer_weights *weights_of(const by_model *m, int32_t layer) {
    return layer < m->cfg.n_layers ? &m->w.layers[layer] : &m->w.draft.layers[layer - m->cfg.n_layers];
}

static by_moe_part_args call_of(const by_host_experts *h, int32_t layer, int64_t n) {
    const by_model *m = h->m;
    const by_config *c = &m->cfg;
    int32_t k = choices(c, layer);
    return (by_moe_part_args){.x = by_tensor_make(h->mine[X], 0, x_dtype(m), n, c->hidden_size),
                              .idx = by_tensor_make(h->mine[IDX], 0, BY_I32, n, k),
                              .weight = by_tensor_make(h->mine[WEIGHT], 0, BY_F32, n, k),
                              .part = by_tensor_make(h->mine[PART], 0, m->act, n * k, c->hidden_size),
                              .experts = weights_of(m, layer)->host_experts,
                              .n_experts = layer < c->n_layers ? c->n_experts : c->draft.n_experts,
                              .inner = c->moe_width,
                              .limit = (float)c->swiglu_limit,
                              .quant = m->quant};
}

/* On the thread beside the device. */
static void run_layer(void *arg, int32_t layer, int32_t n) {
    by_host_experts *h = arg;
    by_err err = {0};
    by_moe_part_args call = call_of(h, layer, n);
    if (by_op_moe_part(h->m->host, &call, &err) == BY_OK) return;
    memset(by_mem_host(h->shared[PART]), 0xff, (size_t)(call.part.rows * call.part.stride)); /* NaN in fp32 and in bf16 */
    if (atomic_load(&h->failed)) return;
    by_err_prefix(&err, "experts on the host, layer %d: ", layer);
    h->err = err;
    atomic_store(&h->failed, true);
}

by_status by_host_experts_create(by_host_experts **out, const by_model *m, int64_t max_rows, by_err *err) {
    *out = NULL;
    if (!m->host) return BY_OK;
    const by_config *c = &m->cfg;
    int64_t k = c->n_experts_per_token > c->draft.n_experts_per_token ? c->n_experts_per_token : c->draft.n_experts_per_token;
    int64_t bytes[N_BUFFERS] = {max_rows * by_dtype_row_bytes(x_dtype(m), c->hidden_size), max_rows * k * 4, max_rows * k * 4,
                                max_rows * k * by_dtype_row_bytes(m->act, c->hidden_size)};
    by_host_experts *h = by_alloc_zero(BY_MEM_MODEL, sizeof *h);
    if (!h) return BY_FAIL(err, BY_ENOMEM, "out of memory for experts on the host");
    h->m = m;
    h->max_rows = max_rows;
    by_status status = by_device_beside_init(m->dev, err);
    for (int i = 0; status == BY_OK && i < N_BUFFERS; i++) {
        status = by_mem_share(&h->shared[i], m->dev, (size_t)bytes[i], err);
        if (status == BY_OK) status = by_mem_import(&h->mine[i], m->host, by_mem_host(h->shared[i]), (size_t)bytes[i], true, err);
    }
    if (status < 0) {
        by_host_experts_destroy(h);
        return status;
    }
    *out = h;
    return BY_OK;
}

void by_host_experts_destroy(by_host_experts *h) {
    if (!h) return;
    for (int i = 0; i < N_BUFFERS; i++) by_mem_free(h->shared[i]); /* waits for calls that are queued: they read the others */
    for (int i = 0; i < N_BUFFERS; i++) by_mem_free(h->mine[i]);
    by_free(h);
}

/* The layer with most work for the host, every choice one of its experts in turn. */
by_status by_host_experts_reserve(by_host_experts *h, by_err *err) {
    if (!h || !by_device_measure_begin(h->m->host)) return BY_OK;
    const by_config *c = &h->m->cfg;
    const by_placement *p = &h->m->place;
    by_status status = BY_OK;
    for (int32_t half = 0; status == BY_OK && half < 2; half++) { /* trunk, drafts */
        int32_t first = half ? c->n_layers : 0, end = half ? p->n_layers : c->n_layers, layer = first;
        for (int32_t l = first; l < end; l++)
            if (p->on_device[l] < p->on_device[layer]) layer = l;
        if (first == end || !weights_of(h->m, layer)->host_experts) continue;
        by_moe_part_args call = call_of(h, layer, h->max_rows);
        int32_t *idx = by_mem_host(h->shared[IDX]), n_host = call.n_experts - p->on_device[layer];
        for (int64_t i = 0; i < call.part.rows; i++) idx[i] = p->on_device[layer] + (int32_t)(i % n_host);
        status = by_op_moe_part(h->m->host, &call, err);
    }
    by_err own;
    by_status end = by_device_measure_end(h->m->host, status == BY_OK ? err : &own);
    return status == BY_OK ? end : status;
}

by_tensor by_host_experts_part(const by_host_experts *h, int64_t n_rows, int32_t k) {
    return by_tensor_make(h->shared[PART], 0, h->m->act, n_rows * k, h->m->cfg.hidden_size);
}

by_status by_host_experts_begin(by_host_experts *h, int32_t layer, by_tensor x, by_tensor idx, by_tensor weight, by_err *err) {
    by_beside b = {.n_copies = 3, .run = run_layer, .arg = h, .which = layer, .n = (int32_t)x.rows};
    const by_tensor *from[] = {&x, &idx, &weight};
    for (int i = 0; i < b.n_copies; i++) {
        b.copy[i].from = *from[i];
        b.copy[i].to = h->shared[i];
    }
    return by_device_beside(h->m->dev, &b, err);
}

by_status by_host_experts_problem(by_host_experts *h, by_err *err) {
    if (!h || !atomic_load(&h->failed)) return BY_OK;
    by_err why = h->err;
    atomic_store(&h->failed, false);
    if (err) *err = why;
    return why.code;
}
