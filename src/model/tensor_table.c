/* tensor_table.c - see tensor_table.h. A row is one weight; its sizes are symbols resolved against the configuration
 * and the layer, and `when` says in which layers it exists. */
#include "model/tensor_table.h"

#include <stdio.h>
#include <string.h>

/* ---- symbols ---- */

typedef enum {
    NONE, /* no second dimension: a vector */
    ONE,
    D,        /* hidden_size */
    V,        /* vocab_size */
    HEADS,    /* attention heads */
    HEAD_DIM, /* d */
    Q_RANK,   /* q_lora_rank */
    Q_WIDTH,  /* heads * d */
    O_RANKS,  /* o_groups * o_lora_rank */
    O_IN,     /* heads / o_groups * d */
    IX_HEADS, /* index heads */
    IX_DIM,   /* index_head_dim */
    IX_WIDTH, /* index heads * index_head_dim */
    HC_ROWS,  /* m (m + 2) */
    HC_COLS,  /* m D */
    THREE,
    EXPERTS,     /* routed experts of the trunk or of the drafts */
    MOE,         /* width of one routed expert */
    SHARED,      /* width of the shared expert */
    STREAMS,     /* m */
    ENGRAM_ROWS, /* rows of this layer's table */
    ENGRAM_DIM,  /* width of a table row */
    ENGRAM_OUT,  /* (m + 1) D */
    ENGRAM_IN,   /* (n - 1) * heads * width */
    TARGETS_D,   /* draft targets * D */
    MARKOV,      /* rank of the bigram head */
    CONFIDENCE,  /* D + rank */
    VIS,         /* image hidden */
    VIS_3,       /* 3 * image hidden */
    VIS_MLP,     /* image intermediate */
    VIS_MLP_2,   /* gate and up */
    VIS_PATCH,   /* 3 * patch^2 */
    VIS_CELL,    /* image hidden * downsample^2 */
} size_symbol;

typedef enum {
    ALWAYS,
    KV_SOURCE,       /* layers that compress */
    KV_SOURCE_PAIRS, /* ... two tokens into one entry */
    INDEX_SOURCE,
    ENGRAM_LAYER,
    FIRST_DRAFT,
    LAST_DRAFT,
} when;

typedef struct {
    const char *name;
    by_format format;
    uint8_t rows, cols; /* size_symbol; cols NONE: a vector of `rows` values */
    uint8_t when, part, init;
} row;

#define BF16 BY_FORMAT_BF16
#define F32  BY_FORMAT_F32
#define F32B BY_FORMAT_F32_OR_BF16
#define FP8  BY_FORMAT_FP8_TILE
#define FP8R BY_FORMAT_FP8_ROW
#define FP4  BY_FORMAT_FP4_ROW

/* Names of quantised weights stand without ".weight" and ".scale", all others are complete. */
static const row front_rows[] = {
    {"embed.weight", BF16, V, D, ALWAYS, BY_PART_EMBEDDING, BY_INIT_UNIT},
};

static const row block_rows[] = {
    /* trunk and draft layers */
    {"attn_norm.weight", BF16, D, NONE, ALWAYS, BY_PART_NORMS, BY_INIT_NORM},
    {"ffn_norm.weight", BF16, D, NONE, ALWAYS, BY_PART_NORMS, BY_INIT_NORM},
    {"hc_attn_fn", F32B, HC_ROWS, HC_COLS, ALWAYS, BY_PART_HYPER, BY_INIT_LINEAR},
    {"hc_attn_base", F32, HC_ROWS, NONE, ALWAYS, BY_PART_HYPER, BY_INIT_HC_BASE},
    {"hc_attn_scale", F32, THREE, NONE, ALWAYS, BY_PART_HYPER, BY_INIT_HC_SCALE},
    {"hc_ffn_fn", F32B, HC_ROWS, HC_COLS, ALWAYS, BY_PART_HYPER, BY_INIT_LINEAR},
    {"hc_ffn_base", F32, HC_ROWS, NONE, ALWAYS, BY_PART_HYPER, BY_INIT_HC_BASE},
    {"hc_ffn_scale", F32, THREE, NONE, ALWAYS, BY_PART_HYPER, BY_INIT_HC_SCALE},
    {"attn.wq_a", FP8, Q_RANK, D, ALWAYS, BY_PART_ATTENTION, BY_INIT_LINEAR},
    {"attn.q_norm.weight", BF16, Q_RANK, NONE, ALWAYS, BY_PART_NORMS, BY_INIT_NORM},
    {"attn.wq_b", FP8, Q_WIDTH, Q_RANK, ALWAYS, BY_PART_ATTENTION, BY_INIT_LINEAR},
    {"attn.wkv", FP8, HEAD_DIM, D, ALWAYS, BY_PART_ATTENTION, BY_INIT_LINEAR},
    {"attn.kv_norm.weight", BF16, HEAD_DIM, NONE, ALWAYS, BY_PART_NORMS, BY_INIT_NORM},
    {"attn.attn_sink", F32, HEADS, NONE, ALWAYS, BY_PART_NORMS, BY_INIT_BIAS},
    {"attn.wo_a", FP8, O_RANKS, O_IN, ALWAYS, BY_PART_ATTENTION, BY_INIT_LINEAR},
    {"attn.wo_b", FP8, D, O_RANKS, ALWAYS, BY_PART_ATTENTION, BY_INIT_OUTPUT},
    {"attn.compressor.wkv.weight", BF16, HEAD_DIM, D, KV_SOURCE, BY_PART_COMPRESSOR, BY_INIT_LINEAR},
    {"attn.compressor.wgate.weight", BF16, HEAD_DIM, D, KV_SOURCE_PAIRS, BY_PART_COMPRESSOR, BY_INIT_LINEAR},
    {"attn.compressor.norm.weight", BF16, HEAD_DIM, NONE, KV_SOURCE, BY_PART_NORMS, BY_INIT_NORM},
    {"attn.indexer.wk.weight", BF16, IX_DIM, HEAD_DIM, KV_SOURCE, BY_PART_COMPRESSOR, BY_INIT_LINEAR},
    {"attn.indexer.k_norm.weight", BF16, IX_DIM, NONE, KV_SOURCE, BY_PART_NORMS, BY_INIT_NORM},
    {"attn.indexer.wq_b", FP8, IX_WIDTH, Q_RANK, INDEX_SOURCE, BY_PART_INDEXER, BY_INIT_LINEAR},
    {"attn.indexer.weights_proj.weight", BF16, IX_HEADS, D, INDEX_SOURCE, BY_PART_INDEXER, BY_INIT_LINEAR},
    {"ffn.gate.weight", BF16, EXPERTS, D, ALWAYS, BY_PART_ROUTER, BY_INIT_LINEAR},
    {"ffn.gate.bias", F32, EXPERTS, NONE, ALWAYS, BY_PART_ROUTER, BY_INIT_BIAS},
    {"ffn.gate.bias_vl", F32, EXPERTS, NONE, ALWAYS, BY_PART_ROUTER, BY_INIT_BIAS},
    {"ffn.shared_experts.w1", FP8, SHARED, D, ALWAYS, BY_PART_SHARED_EXPERT, BY_INIT_LINEAR},
    {"ffn.shared_experts.w3", FP8, SHARED, D, ALWAYS, BY_PART_SHARED_EXPERT, BY_INIT_LINEAR},
    {"ffn.shared_experts.w2", FP8, D, SHARED, ALWAYS, BY_PART_SHARED_EXPERT, BY_INIT_OUTPUT},
    {"engram.embed", FP8R, ENGRAM_ROWS, ENGRAM_DIM, ENGRAM_LAYER, BY_PART_ENGRAM_TABLE, BY_INIT_UNIT},
    {"engram.wkv", FP8, ENGRAM_OUT, ENGRAM_IN, ENGRAM_LAYER, BY_PART_ENGRAM_PROJECTION, BY_INIT_OUTPUT},
    {"engram.q_weight", BF16, STREAMS, D, ENGRAM_LAYER, BY_PART_ENGRAM_PROJECTION, BY_INIT_ENGRAM_MIX},
    {"engram.k_weight", BF16, STREAMS, D, ENGRAM_LAYER, BY_PART_ENGRAM_PROJECTION, BY_INIT_ENGRAM_MIX},
    {"main_proj", FP8, D, TARGETS_D, FIRST_DRAFT, BY_PART_DRAFT, BY_INIT_LINEAR},
    {"main_norm.weight", BF16, D, NONE, FIRST_DRAFT, BY_PART_DRAFT, BY_INIT_NORM},
    {"norm.weight", BF16, D, NONE, LAST_DRAFT, BY_PART_DRAFT, BY_INIT_NORM},
    {"markov_head.embed.weight", BF16, V, MARKOV, LAST_DRAFT, BY_PART_DRAFT, BY_INIT_UNIT},
    {"markov_head.head.weight", BF16, V, MARKOV, LAST_DRAFT, BY_PART_DRAFT, BY_INIT_LINEAR},
    {"confidence_head.proj.weight", BF16, ONE, CONFIDENCE, LAST_DRAFT, BY_PART_DRAFT, BY_INIT_LINEAR},
};

static const row expert_rows[] = {
    /* behind ffn.experts.E. */
    {"w1", FP4, MOE, D, ALWAYS, BY_PART_EXPERTS, BY_INIT_LINEAR},
    {"w3", FP4, MOE, D, ALWAYS, BY_PART_EXPERTS, BY_INIT_LINEAR},
    {"w2", FP4, D, MOE, ALWAYS, BY_PART_EXPERTS, BY_INIT_OUTPUT},
};

static const row back_rows[] = {
    {"norm.weight", BF16, D, NONE, ALWAYS, BY_PART_NORMS, BY_INIT_NORM},
    {"head.weight", BF16, V, D, ALWAYS, BY_PART_HEAD, BY_INIT_LINEAR},
};

static const row vision_rows[] = {
    {"vision.patch_embed.proj.weight", BF16, VIS, VIS_PATCH, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
    {"vision.patch_embed.proj.bias", BF16, VIS, NONE, ALWAYS, BY_PART_VISION, BY_INIT_SMALL},
    {"vision.norm.weight", BF16, VIS, NONE, ALWAYS, BY_PART_VISION, BY_INIT_NORM},
    {"aligner.w1.weight", BF16, D, VIS_CELL, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
    {"aligner.w1.bias", BF16, D, NONE, ALWAYS, BY_PART_VISION, BY_INIT_SMALL},
    {"aligner.w2.weight", BF16, D, D, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
    {"aligner.w2.bias", BF16, D, NONE, ALWAYS, BY_PART_VISION, BY_INIT_SMALL},
    {"image_start", BF16, D, NONE, ALWAYS, BY_PART_VISION, BY_INIT_UNIT},
    {"image_end", BF16, D, NONE, ALWAYS, BY_PART_VISION, BY_INIT_UNIT},
    {"image_newline", BF16, D, NONE, ALWAYS, BY_PART_VISION, BY_INIT_UNIT},
};

static const row vision_block_rows[] = {
    /* behind vision.blocks.B. */
    {"norm1.weight", BF16, VIS, NONE, ALWAYS, BY_PART_VISION, BY_INIT_NORM},
    {"attn.wqkv.weight", BF16, VIS_3, VIS, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
    {"attn.wqkv.bias", BF16, VIS_3, NONE, ALWAYS, BY_PART_VISION, BY_INIT_SMALL},
    {"attn.wo.weight", BF16, VIS, VIS, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
    {"attn.wo.bias", BF16, VIS, NONE, ALWAYS, BY_PART_VISION, BY_INIT_SMALL},
    {"norm2.weight", BF16, VIS, NONE, ALWAYS, BY_PART_VISION, BY_INIT_NORM},
    {"mlp.w1.weight", BF16, VIS_MLP_2, VIS, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
    {"mlp.w2.weight", BF16, VIS, VIS_MLP, ALWAYS, BY_PART_VISION, BY_INIT_LINEAR},
};

/* ---- the walk ---- */

typedef struct {
    const by_config *c;
    by_tensor_visit visit;
    void *ctx;
    by_err *err;
    by_tensor_spec spec;
    int layer, draft; /* trunk layer, or draft layer when draft >= 0; both -1 outside */
} walk;

static int64_t size_of(const walk *w, size_symbol s) {
    const by_config *c = w->c;
    const by_engram_config *e = &c->engram;
    const by_vision_config *v = &c->vision;
    int64_t engram = w->layer >= 0 ? c->layers[w->layer].engram : -1;
    switch (s) {
    case NONE:
    case ONE: return 1;
    case D: return c->hidden_size;
    case V: return c->vocab_size;
    case HEADS: return c->n_heads;
    case HEAD_DIM: return c->head_dim;
    case Q_RANK: return c->q_lora_rank;
    case Q_WIDTH: return (int64_t)c->n_heads * c->head_dim;
    case O_RANKS: return (int64_t)c->o_groups * c->o_lora_rank;
    case O_IN: return (int64_t)(c->n_heads / c->o_groups) * c->head_dim;
    case IX_HEADS: return c->index_n_heads;
    case IX_DIM: return c->index_head_dim;
    case IX_WIDTH: return (int64_t)c->index_n_heads * c->index_head_dim;
    case HC_ROWS: return by_config_hc_rows(c);
    case HC_COLS: return (int64_t)c->hc_mult * c->hidden_size;
    case THREE: return 3;
    case EXPERTS: return w->draft >= 0 ? c->draft.n_experts : c->n_experts;
    case MOE: return c->moe_width;
    case SHARED: return c->shared_width;
    case STREAMS: return c->hc_mult;
    case ENGRAM_ROWS: return engram >= 0 ? e->n_rows[engram] : 0;
    case ENGRAM_DIM: return e->head_dim;
    case ENGRAM_OUT: return (int64_t)(c->hc_mult + 1) * c->hidden_size;
    case ENGRAM_IN: return (int64_t)(e->max_ngram - 1) * e->n_heads * e->head_dim;
    case TARGETS_D: return (int64_t)c->draft.n_targets * c->hidden_size;
    case MARKOV: return c->draft.markov_rank;
    case CONFIDENCE: return (int64_t)c->hidden_size + c->draft.markov_rank;
    case VIS: return v->hidden_size;
    case VIS_3: return 3 * (int64_t)v->hidden_size;
    case VIS_MLP: return v->intermediate_size;
    case VIS_MLP_2: return 2 * (int64_t)v->intermediate_size;
    case VIS_PATCH: return 3 * (int64_t)v->patch_size * v->patch_size;
    case VIS_CELL: return (int64_t)v->hidden_size * v->downsample_ratio * v->downsample_ratio;
    }
    return 0;
}

static bool exists(const walk *w, when condition) {
    const by_layer *layer = w->layer >= 0 ? &w->c->layers[w->layer] : NULL;
    switch (condition) {
    case ALWAYS: return true;
    case KV_SOURCE: return layer && layer->is_kv_source;
    case KV_SOURCE_PAIRS: return layer && layer->is_kv_source && layer->ratio == 2;
    case INDEX_SOURCE: return layer && layer->is_index_source;
    case ENGRAM_LAYER: return layer && layer->engram >= 0;
    case FIRST_DRAFT: return w->draft == 0;
    case LAST_DRAFT: return w->draft >= 0 && w->draft == w->c->draft.n_layers - 1;
    }
    return false;
}

/* Sets dtype and stored shape of the weight or of its scale. */
static void set_stored(by_tensor_spec *s, bool scale) {
    s->is_scale = scale;
    s->shape[0] = s->rows;
    s->shape[1] = s->cols;
    int64_t groups = (s->cols + BY_QUANT_TILE - 1) / BY_QUANT_TILE;
    switch (s->format) {
    case BY_FORMAT_BF16: s->dtype = BY_ST_BF16; break;
    case BY_FORMAT_F32:
    case BY_FORMAT_F32_OR_BF16: s->dtype = BY_ST_F32; break;
    case BY_FORMAT_FP8_TILE:
    case BY_FORMAT_FP8_ROW: s->dtype = BY_ST_F8_E4M3; break;
    case BY_FORMAT_FP4_ROW:
        s->dtype = BY_ST_I8;
        s->shape[1] = s->cols / 2;
        break;
    }
    if (scale) {
        s->dtype = BY_ST_F8_E8M0;
        s->shape[1] = groups;
        if (s->format == BY_FORMAT_FP8_TILE) s->shape[0] = (s->rows + BY_QUANT_TILE - 1) / BY_QUANT_TILE;
    }
    s->dtype2 = s->format == BY_FORMAT_F32_OR_BF16 ? BY_ST_BF16 : s->dtype;
    if (s->n_dims == 1) {
        s->shape[0] = s->cols;
        s->shape[1] = 1;
    }
}

static by_part draft_part(by_part p) {
    return p == BY_PART_EXPERTS ? BY_PART_DRAFT_EXPERTS : BY_PART_DRAFT;
}

static by_status visit_row(walk *w, const char *prefix, const row *r) {
    if (!exists(w, (when)r->when)) return BY_OK;
    by_tensor_spec *s = &w->spec;
    int64_t rows = size_of(w, (size_symbol)r->rows), cols = size_of(w, (size_symbol)r->cols);
    s->format = r->format;
    s->n_dims = r->cols == NONE ? 1 : 2;
    s->rows = s->n_dims == 1 ? 1 : rows;
    s->cols = s->n_dims == 1 ? rows : cols;
    s->part = w->draft >= 0 ? draft_part((by_part)r->part) : (by_part)r->part;
    s->init = (by_init)r->init;
    bool pair = r->format >= BY_FORMAT_FP8_TILE;
    for (int scale = 0; scale <= pair; scale++) {
        snprintf(s->name, sizeof s->name, "%s%s%s", prefix, r->name, !pair ? "" : scale ? ".scale" : ".weight");
        set_stored(s, scale != 0);
        BY_TRY(w->visit(w->ctx, s, w->err));
    }
    return BY_OK;
}

static by_status visit_rows(walk *w, const char *prefix, const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++)
        BY_TRY(visit_row(w, prefix, &rows[i]));
    return BY_OK;
}

#define VISIT(w, prefix, rows) visit_rows(w, prefix, rows, sizeof rows / sizeof rows[0])

/* One trunk or draft layer with its experts. */
static by_status visit_block(walk *w, const char *stem, int index) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.%d.", stem, index);
    w->spec.layer = index;
    BY_TRY(VISIT(w, prefix, block_rows));
    int n = (int)size_of(w, EXPERTS);
    for (int e = 0; e < n; e++) {
        snprintf(prefix, sizeof prefix, "%s.%d.ffn.experts.%d.", stem, index, e);
        w->spec.expert = e;
        BY_TRY(VISIT(w, prefix, expert_rows));
    }
    w->spec.expert = -1;
    return BY_OK;
}

static by_status visit_vision(walk *w) {
    char prefix[64];
    if (w->c->vision.n_layers == 0) return BY_OK;
    for (int b = 0; b < w->c->vision.n_layers; b++) {
        snprintf(prefix, sizeof prefix, "vision.blocks.%d.", b);
        w->spec.layer = b;
        BY_TRY(VISIT(w, prefix, vision_block_rows));
    }
    w->spec.layer = -1;
    return VISIT(w, "", vision_rows);
}

by_status by_tensor_table_walk(const by_config *c, by_tensor_visit visit, void *ctx, by_err *err) {
    walk w = {
        .c = c, .visit = visit, .ctx = ctx, .err = err, .layer = -1, .draft = -1, .spec = {.layer = -1, .expert = -1}};
    BY_TRY(VISIT(&w, "", front_rows));
    for (w.layer = 0; w.layer < c->n_layers; w.layer++)
        BY_TRY(visit_block(&w, "layers", w.layer));
    w.layer = w.spec.layer = -1;
    BY_TRY(VISIT(&w, "", back_rows));
    for (w.draft = 0; w.draft < c->draft.n_layers; w.draft++)
        BY_TRY(visit_block(&w, "mtp", w.draft));
    w.draft = w.spec.layer = -1;
    return visit_vision(&w);
}

/* ---- sums ---- */

int64_t by_tensor_spec_bytes(const by_tensor_spec *spec) {
    return spec->shape[0] * spec->shape[1] * (by_st_dtype_bits(spec->dtype) / 8);
}

static by_status add_to_sums(void *ctx, const by_tensor_spec *spec, by_err *err) {
    (void)err;
    by_part_sums *s = ctx;
    int64_t bytes = by_tensor_spec_bytes(spec);
    s->bytes[spec->part] += bytes;
    s->n_tensors[spec->part]++;
    s->bytes_total += bytes;
    s->n_total++;
    int64_t params = spec->is_scale ? 0 : spec->rows * spec->cols;
    s->params[spec->part] += params;
    s->params_total += params;
    return BY_OK;
}

void by_tensor_table_sum(const by_config *c, by_part_sums *out) {
    memset(out, 0, sizeof *out);
    (void)by_tensor_table_walk(c, add_to_sums, out, NULL);
}

static const char *const part_keys[] = {
#define KEY(name, key, text) key,
    BY_PART_TABLE(KEY)
#undef KEY
};
static const char *const part_texts[] = {
#define TEXT(name, key, text) text,
    BY_PART_TABLE(TEXT)
#undef TEXT
};

const char *by_part_key(by_part p) {
    return (unsigned)p < BY_PART_N ? part_keys[p] : "?";
}
const char *by_part_text(by_part p) {
    return (unsigned)p < BY_PART_N ? part_texts[p] : "?";
}
