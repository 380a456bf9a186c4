/* weights.c - see weights.h. */
#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/dummy.h"

/* A device that receives weights. */
typedef struct {
    by_device *dev;
    by_dummy *dummy; /* made-up values instead of the checkpoint's, or NULL */
    bool in_place;   /* views into the mapped shards */
    int32_t shard0;  /* handle of the first shard */
} target;

typedef struct {
    by_weights *out;
    const by_config *cfg;
    const by_checkpoint *ck;
    const by_placement *place;
    target device, host;
    const target *to; /* of the two: where the next tensors go */
    by_err *err;
} binder;

static by_status keep(binder *b, by_mem *mem) {
    by_weights *w = b->out;
    if (w->n_mems == w->cap_mems) {
        int32_t cap = w->cap_mems ? w->cap_mems * 2 : 64;
        by_mem **fresh = by_realloc(BY_MEM_MODEL, w->mems, (size_t)cap * sizeof *fresh);
        if (!fresh) {
            by_mem_free(mem);
            return BY_FAIL(b->err, BY_ENOMEM, "out of memory for weight handles");
        }
        w->mems = fresh;
        w->cap_mems = cap;
    }
    w->mems[w->n_mems++] = mem;
    return BY_OK;
}

/* Whole pages, as the mapping has them: behind the end of the file there are zeros. */
static size_t page_up(size_t n) { return (n + 4095) & ~(size_t)4095; }

static by_status import_shards(binder *b, target *to) {
    to->shard0 = b->out->n_mems;
    for (int i = 0; i < by_checkpoint_n_shards(b->ck); i++) {
        by_mem *mem = NULL;
        size_t size = 0;
        const void *ptr = by_checkpoint_shard_map(b->ck, i, &size);
        BY_TRY(by_mem_import(&mem, to->dev, ptr, page_up(size), true, b->err));
        BY_TRY(keep(b, mem));
    }
    return BY_OK;
}

static by_dtype dtype_of(by_st_dtype t, bool tile) {
    switch (t) {
    case BY_ST_F32: return BY_F32;
    case BY_ST_BF16: return BY_BF16;
    case BY_ST_F8_E4M3: return tile ? BY_FP8_TILE : BY_FP8_ROW;
    case BY_ST_I8: case BY_ST_U8: return BY_FP4_ROW;
    default: return BY_U8; /* F8_E8M0 scales */
    }
}

static by_status find_dummy(binder *b, by_tensor *out, bool table, const char *name) {
    const by_tensor_spec *t = by_dummy_find(b->to->dummy, name);
    if (!t) return BY_FAIL(b->err, BY_EMISSING, "tensor %s: not in the table of tensors", name);
    by_dtype dtype = dtype_of(t->dtype, !table);
    by_mem *mem;
    BY_TRY(by_dummy_make(&mem, b->to->dummy, t, b->err));
    BY_TRY(keep(b, mem));
    int64_t cols = t->n_dims == 1 ? t->shape[0] : t->shape[1], rows = t->n_dims == 1 ? 1 : t->shape[0];
    *out = by_tensor_make(mem, 0, dtype, rows, dtype == BY_FP4_ROW ? cols * 2 : cols);
    return BY_OK;
}

/* A tensor by name as rows x cols (its last dimension). `table` marks Engram tables, which stay on the host. */
static by_status find(binder *b, by_tensor *out, bool table, const char *name) {
    if (b->to->dummy) return find_dummy(b, out, table, name);
    const by_ckpt_tensor *t = by_checkpoint_find(b->ck, name);
    if (!t) return BY_FAIL(b->err, BY_EMISSING, "tensor %s: not in the checkpoint", name);
    by_dtype dtype = dtype_of(t->dtype, !table);
    int64_t cols = t->n_dims ? t->shape[t->n_dims - 1] : 1, rows = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) rows *= t->shape[i];
    if (dtype == BY_FP4_ROW) cols *= 2;
    by_mem *mem;
    int64_t off = 0;
    if (b->to->in_place) {
        size_t size = 0;
        const char *base = by_checkpoint_shard_map(b->ck, t->shard, &size), *data = t->data;
        mem = b->out->mems[b->to->shard0 + t->shard];
        off = data - base;
        if (data < base || data >= base + size) { /* a copy that the checkpoint made of a misaligned tensor */
            BY_TRY(by_mem_import(&mem, b->to->dev, data, (size_t)t->bytes, false, b->err));
            BY_TRY(keep(b, mem));
            off = 0;
        }
    } else {
        BY_TRY(by_mem_import(&mem, b->to->dev, t->data, (size_t)t->bytes, table, b->err));
        BY_TRY(keep(b, mem));
    }
    *out = by_tensor_make(mem, off, dtype, rows, cols);
    return BY_OK;
}

__attribute__((format(printf, 3, 4))) static by_status tensor(binder *b, by_tensor *out, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return find(b, out, false, name);
}

/* `base`.weight and, for FP8 and FP4, `base`.scale. */
__attribute__((format(printf, 4, 5))) static by_status weight(binder *b, by_weight *out, bool table, const char *fmt, ...) {
    char base[200], name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(base, sizeof base, fmt, ap);
    va_end(ap);
    *out = (by_weight){0};
    snprintf(name, sizeof name, "%s.weight", base);
    BY_TRY(find(b, &out->w, table, name));
    if (out->w.dtype == BY_BF16 || out->w.dtype == BY_F32) return BY_OK;
    snprintf(name, sizeof name, "%s.scale", base);
    return find(b, &out->scale, table, name);
}

/* A tensor of any shape as one row. */
static void flatten(by_tensor *t) {
    *t = by_tensor_make(t->mem, t->off, t->dtype, 1, t->rows * t->cols);
}

static by_status bind_hc(binder *b, by_hc_weights *hc, const char *layer, const char *which) {
    BY_TRY(tensor(b, &hc->fn, "%s.hc_%s_fn", layer, which));
    BY_TRY(tensor(b, &hc->base, "%s.hc_%s_base", layer, which));
    return tensor(b, &hc->scale, "%s.hc_%s_scale", layer, which);
}

static by_status bind_attention(binder *b, by_layer_weights *w, const char *layer, const by_layer *kind) {
    BY_TRY(tensor(b, &w->attn_norm, "%s.attn_norm.weight", layer));
    BY_TRY(bind_hc(b, &w->hc_attn, layer, "attn"));
    BY_TRY(weight(b, &w->wq_a, false, "%s.attn.wq_a", layer));
    BY_TRY(weight(b, &w->wq_b, false, "%s.attn.wq_b", layer));
    BY_TRY(weight(b, &w->wkv, false, "%s.attn.wkv", layer));
    BY_TRY(weight(b, &w->wo_a, false, "%s.attn.wo_a", layer));
    BY_TRY(weight(b, &w->wo_b, false, "%s.attn.wo_b", layer));
    BY_TRY(tensor(b, &w->q_norm, "%s.attn.q_norm.weight", layer));
    BY_TRY(tensor(b, &w->kv_norm, "%s.attn.kv_norm.weight", layer));
    BY_TRY(tensor(b, &w->sink, "%s.attn.attn_sink", layer));
    if (kind->is_kv_source) {
        BY_TRY(weight(b, &w->comp_wkv, false, "%s.attn.compressor.wkv", layer));
        if (kind->ratio == 2) BY_TRY(weight(b, &w->comp_wgate, false, "%s.attn.compressor.wgate", layer));
        BY_TRY(tensor(b, &w->comp_norm, "%s.attn.compressor.norm.weight", layer));
        BY_TRY(weight(b, &w->index_wk, false, "%s.attn.indexer.wk", layer));
        BY_TRY(tensor(b, &w->index_k_norm, "%s.attn.indexer.k_norm.weight", layer));
    }
    if (!kind->is_index_source) return BY_OK;
    BY_TRY(weight(b, &w->index_wq_b, false, "%s.attn.indexer.wq_b", layer));
    return weight(b, &w->index_weights, false, "%s.attn.indexer.weights_proj", layer);
}

static by_status bind_expert(binder *b, by_expert *e, const char *base) {
    BY_TRY(weight(b, &e->w1, false, "%s.w1", base));
    BY_TRY(weight(b, &e->w3, false, "%s.w3", base));
    return weight(b, &e->w2, false, "%s.w2", base);
}

/* Routed experts of layer l (drafts follow the trunk): the first ones to the device, the others to the host. */
static by_status bind_routed(binder *b, by_layer_weights *w, const char *layer, int l, int n_experts) {
    char base[128];
    by_status status = BY_OK;
    for (int e = 0; status == BY_OK && e < n_experts; e++) {
        bool here = e < b->place->on_device[l];
        snprintf(base, sizeof base, "%s.ffn.experts.%d", layer, e);
        b->to = here ? &b->device : &b->host;
        status = bind_expert(b, here ? &w->experts[e] : &w->host_experts[e], base);
    }
    b->to = &b->device;
    return status;
}

static by_status bind_ffn(binder *b, by_layer_weights *w, const char *layer, int l, int n_experts) {
    BY_TRY(tensor(b, &w->ffn_norm, "%s.ffn_norm.weight", layer));
    BY_TRY(bind_hc(b, &w->hc_ffn, layer, "ffn"));
    BY_TRY(tensor(b, &w->gate, "%s.ffn.gate.weight", layer));
    BY_TRY(tensor(b, &w->bias, "%s.ffn.gate.bias", layer));
    BY_TRY(tensor(b, &w->bias_vl, "%s.ffn.gate.bias_vl", layer));
    BY_TRY(bind_routed(b, w, layer, l, n_experts));
    if (!b->cfg->n_shared_experts) return BY_OK;
    char base[128];
    snprintf(base, sizeof base, "%s.ffn.shared_experts", layer);
    return bind_expert(b, &w->shared, base);
}

/* What trunk and draft layers have in common. */
static by_status bind_common(binder *b, by_layer_weights *w, int l, const char *layer, const by_layer *kind) {
    int n_experts = l < b->cfg->n_layers ? b->cfg->n_experts : b->cfg->draft.n_experts;
    if (b->place->on_device[l] == n_experts) w->host_experts = NULL;
    BY_TRY(bind_attention(b, w, layer, kind));
    BY_TRY(bind_ffn(b, w, layer, l, n_experts));
    by_tensor *vectors[] = {&w->attn_norm,    &w->ffn_norm,      &w->hc_attn.base, &w->hc_attn.scale, &w->hc_ffn.base,
                            &w->hc_ffn.scale, &w->q_norm,        &w->kv_norm,      &w->sink,          &w->comp_norm,
                            &w->index_k_norm, &w->bias,          &w->bias_vl};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        if (vectors[i]->mem) flatten(vectors[i]);
    return BY_OK;
}

static by_status bind_layer(binder *b, int l) {
    by_layer_weights *w = &b->out->layers[l];
    char layer[32];
    snprintf(layer, sizeof layer, "layers.%d", l);
    size_t first = (size_t)l * (size_t)b->cfg->n_experts;
    w->experts = b->out->experts + first;
    if (b->out->host_experts) w->host_experts = b->out->host_experts + first;
    BY_TRY(bind_common(b, w, l, layer, &b->cfg->layers[l]));
    if (b->cfg->layers[l].engram < 0) return BY_OK;
    BY_TRY(weight(b, &w->engram_table, true, "%s.engram.embed", layer));
    BY_TRY(weight(b, &w->engram_wkv, false, "%s.engram.wkv", layer));
    BY_TRY(tensor(b, &w->engram_q, "%s.engram.q_weight", layer));
    return tensor(b, &w->engram_k, "%s.engram.k_weight", layer);
}

/* Columns [first, first + n) of a weight without scales. */
static by_weight columns(by_weight w, int64_t first, int64_t n) {
    w.w.off += by_dtype_row_bytes(w.w.dtype, first);
    w.w.cols = n;
    return w;
}

static by_status bind_draft(binder *b) {
    const by_draft_config *c = &b->cfg->draft;
    by_draft_weights *d = &b->out->draft;
    if (c->n_layers == 0) return BY_OK;
    d->layers = by_alloc_zero(BY_MEM_MODEL, by_mul_size((size_t)c->n_layers, sizeof *d->layers));
    size_t n = by_mul_size((size_t)c->n_layers, by_mul_size((size_t)c->n_experts, sizeof *d->experts));
    d->experts = by_alloc_zero(BY_MEM_MODEL, n);
    if (b->host.dev) d->host_experts = by_alloc_zero(BY_MEM_MODEL, n);
    bool made = d->layers && d->experts && (!b->host.dev || d->host_experts);
    if (!made) return BY_FAIL(b->err, BY_ENOMEM, "out of memory for the table of draft weights");
    const by_layer window = {.kind = BY_LAYER_WINDOW, .kv_source = -1, .index_source = -1, .engram = -1};
    char layer[32];
    for (int l = 0; l < c->n_layers; l++) {
        snprintf(layer, sizeof layer, "mtp.%d", l);
        size_t first = (size_t)l * (size_t)c->n_experts;
        d->layers[l].experts = d->experts + first;
        if (d->host_experts) d->layers[l].host_experts = d->host_experts + first;
        BY_TRY(bind_common(b, &d->layers[l], b->cfg->n_layers + l, layer, &window));
    }
    BY_TRY(weight(b, &d->main_proj, false, "mtp.0.main_proj"));
    BY_TRY(tensor(b, &d->main_norm, "mtp.0.main_norm.weight"));
    BY_TRY(tensor(b, &d->norm, "%s.norm.weight", layer));
    BY_TRY(tensor(b, &d->markov_embed, "%s.markov_head.embed.weight", layer));
    BY_TRY(weight(b, &d->markov_head, false, "%s.markov_head.head", layer));
    by_weight conf;
    BY_TRY(weight(b, &conf, false, "%s.confidence_head.proj", layer));
    d->conf_u = columns(conf, 0, b->cfg->hidden_size);
    d->conf_e = columns(conf, b->cfg->hidden_size, c->markov_rank);
    flatten(&d->main_norm);
    flatten(&d->norm);
    return BY_OK;
}

static by_status bind(binder *b) {
    by_weights *out = b->out;
    const by_config *cfg = b->cfg;
    by_err *err = b->err;
    *out = (by_weights){0};
    size_t n_layers = (size_t)cfg->n_layers, n_experts = by_mul_size(n_layers, (size_t)cfg->n_experts);
    out->layers = by_alloc_zero(BY_MEM_MODEL, by_mul_size(n_layers, sizeof *out->layers));
    out->experts = by_alloc_zero(BY_MEM_MODEL, by_mul_size(n_experts, sizeof *out->experts));
    if (b->host.dev) out->host_experts = by_alloc_zero(BY_MEM_MODEL, by_mul_size(n_experts, sizeof *out->experts));
    by_status status = BY_OK;
    bool made = out->layers && out->experts && (!b->host.dev || out->host_experts);
    if (!made) status = BY_FAIL(err, BY_ENOMEM, "out of memory for the table of weights");
    b->to = &b->device;
    if (status == BY_OK && b->device.in_place) status = import_shards(b, &b->device);
    if (status == BY_OK && b->host.in_place) status = import_shards(b, &b->host);
    if (status == BY_OK) status = tensor(b, &out->embed, "embed.weight");
    if (status == BY_OK) status = tensor(b, &out->norm, "norm.weight");
    if (status == BY_OK) status = weight(b, &out->head, false, "head");
    for (int l = 0; status == BY_OK && l < cfg->n_layers; l++) status = bind_layer(b, l);
    if (status == BY_OK) status = bind_draft(b);
    if (status < 0) by_weights_release(out);
    else flatten(&out->norm);
    return status;
}

/* A limit is kept by giving the device its own tensors one by one, and not whole shards. */
by_status by_weights_bind(by_weights *out, const by_config *cfg, const by_checkpoint *ck, const by_weights_to *to, by_err *err) {
    bool in_place = by_device_backend(to->dev) != BY_BACKEND_CUDA && !to->host && by_device_room_get(to->dev).limit == 0;
    return bind(&(binder){.out = out, .cfg = cfg, .ck = ck, .place = to->place, .device = {.dev = to->dev, .in_place = in_place},
                          .host = {.dev = to->host, .in_place = to->host != NULL}, .err = err});
}

by_status by_weights_make(by_weights *out, const by_config *cfg, const by_weights_to *to, uint64_t seed, by_err *err) {
    binder b = {.out = out, .cfg = cfg, .place = to->place, .device = {.dev = to->dev}, .host = {.dev = to->host}, .err = err};
    by_status status = by_dummy_create(&b.device.dummy, cfg, to->dev, seed, err);
    if (status == BY_OK && to->host) status = by_dummy_create(&b.host.dummy, cfg, to->host, seed, err);
    if (status == BY_OK) status = bind(&b);
    by_dummy_destroy(b.device.dummy);
    by_dummy_destroy(b.host.dummy);
    return status;
}

void by_weights_release(by_weights *w) {
    for (int32_t i = w->n_mems; i-- > 0;) by_mem_free(w->mems[i]);
    by_free(w->mems);
    by_free(w->layers);
    by_free(w->experts);
    by_free(w->host_experts);
    by_free(w->draft.layers);
    by_free(w->draft.experts);
    by_free(w->draft.host_experts);
    *w = (by_weights){0};
}
