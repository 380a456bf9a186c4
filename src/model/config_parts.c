/* config_parts.c - Engram, draft and image keys, and the kind of every layer with the relations between layers. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "model/config_read.h"
#include "model/primes.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

static void check_tile(by_config_reader *r, int value, const char *key) {
    if (value % BY_QUANT_TILE != 0)
        by_problems_add(r->problems, "%s: %d is not a multiple of 32, the size of a quantised group", key, value);
}

static bool check_ascending(by_config_reader *r, const char *key, const int64_t *ids, int n) {
    for (int i = 1; i < n; i++) {
        if (ids[i] > ids[i - 1]) continue;
        by_problems_add(r->problems, "%s: %" PRId64 " follows %" PRId64 "; ids must ascend without repeats", key,
                        ids[i], ids[i - 1]);
        return false;
    }
    return true;
}

/* ---- Engram ---- */

static void check_engram_rows(by_config_reader *r, by_engram_config *e, const int64_t *rows) {
    int per_layer = (e->max_ngram - 1) * e->n_heads;
    uint32_t all[BY_LIMIT_ENGRAM_LAYERS * (BY_LIMIT_NGRAM - 1) * BY_LIMIT_ENGRAM_HEADS];
    by_primes_from((uint32_t)e->vocab_size, per_layer * e->n_layers, all);
    for (int l = 0; l < e->n_layers; l++) {
        for (int i = 0; i < per_layer; i++) {
            uint32_t p = all[l * per_layer + i];
            e->primes[l][i / e->n_heads][i % e->n_heads] = p;
            e->n_rows[l] += p;
        }
        if (rows[l] != e->n_rows[l])
            by_problems_add(r->problems,
                            "engram_num_embeddings[%d]: %" PRId64
                            ", but the %d table sizes of layer %d sum to %" PRId64,
                            l, rows[l], per_layer, e->layer_ids[l], e->n_rows[l]);
    }
}

static void read_engram_sizes(by_config_reader *r, const by_config *c, by_engram_config *e) {
    static const by_int_field fields[] = {
        {"engram_max_ngram_size", offsetof(by_engram_config, max_ngram), 2, BY_LIMIT_NGRAM},
        {"engram_vocab_size", offsetof(by_engram_config, vocab_size), 2, BY_LIMIT_PRIME_START},
        {"engram_n_heads", offsetof(by_engram_config, n_heads), 1, BY_LIMIT_ENGRAM_HEADS},
        {"engram_head_dim", offsetof(by_engram_config, head_dim), 1, BY_LIMIT_HEAD_DIM},
    };
    by_config_read_int_fields(r, r->text, fields, COUNT(fields), e);
    check_tile(r, e->head_dim, "engram_head_dim");
    int64_t vocab = c->vocab_size > 0 ? c->vocab_size : BY_LIMIT_VOCAB, v = 0;
    by_config_read_int(r, r->text, "engram_compressed_vocab_size", BY_KEY_OPTIONAL, 0, vocab, &v);
    e->compressed_vocab_size = (int)v;
    v = c->pad_id;
    if (!by_config_find(r, r->text, "engram_pad_token_id", BY_KEY_OPTIONAL) && v < 0)
        by_problems_add(r->problems, "engram_pad_token_id: missing, and there is no pad_token_id");
    by_config_read_int(r, r->text, "engram_pad_token_id", BY_KEY_OPTIONAL, 0, vocab - 1, &v);
    e->pad_token_id = (int)v;
}

void by_config_read_engram(by_config_reader *r, by_config *c) {
    by_engram_config *e = &c->engram;
    int64_t ids[BY_LIMIT_ENGRAM_LAYERS], rows[BY_LIMIT_ENGRAM_LAYERS];
    int n = 0, n_rows = 0;
    int64_t last = (c->n_layers > 0 ? c->n_layers : BY_LIMIT_LAYERS) - 1;
    if (!by_config_read_ints(r, r->text, "engram_layer_ids", BY_KEY_OPTIONAL, 0, last, BY_LIMIT_ENGRAM_LAYERS, ids,
                             &n) ||
        n == 0)
        return;
    bool ordered = check_ascending(r, "engram_layer_ids", ids, n);
    read_engram_sizes(r, c, e);
    bool has_rows = by_config_read_ints(r, r->text, "engram_num_embeddings", BY_KEY_REQUIRED, 1, INT64_MAX,
                                        BY_LIMIT_ENGRAM_LAYERS, rows, &n_rows);
    if (has_rows && n_rows != n)
        by_problems_add(r->problems, "engram_num_embeddings: %d entries for %d engram_layer_ids", n_rows, n);
    if (!ordered || n_rows != n) return;
    e->n_layers = n;
    for (int i = 0; i < n; i++)
        e->layer_ids[i] = (int)ids[i];
    if (e->max_ngram > 0 && e->vocab_size > 0 && e->n_heads > 0) check_engram_rows(r, e, rows);
}

/* ---- drafts ---- */

static void read_draft_targets(by_config_reader *r, const by_config *c, by_draft_config *d) {
    int64_t ids[BY_LIMIT_DRAFT_LAYERS], last = (c->n_layers > 0 ? c->n_layers : BY_LIMIT_LAYERS) - 1;
    int n = 0;
    if (!by_config_read_ints(r, r->text, "dspark_target_layer_ids", BY_KEY_REQUIRED, 0, last, BY_LIMIT_DRAFT_LAYERS,
                             ids, &n))
        return;
    if (n == 0) by_problems_add(r->problems, "dspark_target_layer_ids: empty; the drafts read at least one layer");
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            if (ids[i] == ids[j])
                by_problems_add(r->problems, "dspark_target_layer_ids: layer %d appears twice", (int)ids[i]);
        d->target_ids[i] = (int)ids[i];
    }
    d->n_targets = n;
}

void by_config_read_draft(by_config_reader *r, by_config *c) {
    static const by_int_field fields[] = {
        {"dspark_block_size", offsetof(by_draft_config, block_size), 1, BY_LIMIT_DRAFT_BLOCK},
        {"dspark_markov_rank", offsetof(by_draft_config, markov_rank), 1, BY_LIMIT_HIDDEN},
        {"dspark_n_routed_experts", offsetof(by_draft_config, n_experts), 1, BY_LIMIT_EXPERTS},
        {"dspark_num_experts_per_tok", offsetof(by_draft_config, n_experts_per_token), 1, BY_LIMIT_EXPERTS_PER_TOKEN},
    };
    by_draft_config *d = &c->draft;
    int64_t n = 0;
    by_config_read_int(r, r->text, "num_nextn_predict_layers", BY_KEY_OPTIONAL, 0, BY_LIMIT_DRAFT_LAYERS, &n);
    d->n_layers = (int)n;
    if (n == 0) return;
    by_config_read_int_fields(r, r->text, fields, COUNT(fields), d);
    n = 0;
    int64_t vocab = c->vocab_size > 0 ? c->vocab_size : BY_LIMIT_VOCAB;
    by_config_read_int(r, r->text, "dspark_noise_token_id", BY_KEY_REQUIRED, 0, vocab - 1, &n);
    d->noise_token_id = (int)n;
    by_config_expect_bool(r, r->text, "dspark_target_attn_input", true,
                          ": drafts read the attention input of their targets");
    if (d->n_experts > 0 && d->n_experts_per_token > d->n_experts)
        by_problems_add(r->problems, "dspark_num_experts_per_tok: %d is above dspark_n_routed_experts %d",
                        d->n_experts_per_token, d->n_experts);
    read_draft_targets(r, c, d);
}

/* ---- images ---- */

void by_config_read_vision(by_config_reader *r, by_config *c) {
    static const by_int_field fields[] = {
        {"num_hidden_layers", offsetof(by_vision_config, n_layers), 1, BY_LIMIT_VISION_LAYERS},
        {"hidden_size", offsetof(by_vision_config, hidden_size), 1, BY_LIMIT_HIDDEN},
        {"num_attention_heads", offsetof(by_vision_config, n_heads), 1, BY_LIMIT_HEADS},
        {"intermediate_size", offsetof(by_vision_config, intermediate_size), 1, BY_LIMIT_HIDDEN},
        {"patch_size", offsetof(by_vision_config, patch_size), 1, 256},
        {"downsample_ratio", offsetof(by_vision_config, downsample_ratio), 1, 64},
        {"max_image_tokens", offsetof(by_vision_config, max_image_tokens), 4, 1 << 20},
    };
    const by_json *obj = by_config_find(r, r->top, "vision_config", BY_KEY_OPTIONAL);
    if (!obj) return;
    if (obj->type != BY_JSON_OBJECT) {
        by_config_wrong_type(r, "vision_config", "an object", obj);
        return;
    }
    by_vision_config *v = &c->vision;
    by_problems own = {0};
    by_config_reader inner = {.top = r->top, .text = obj, .problems = &own};
    by_config_read_int_fields(&inner, obj, fields, COUNT(fields), v);
    by_config_read_real(&inner, obj, "rope_theta", BY_KEY_REQUIRED, 1, 1e15, &v->rope_theta);
    by_config_read_int(&inner, obj, "min_pixels", BY_KEY_OPTIONAL, 0, INT64_C(1) << 40, &v->min_pixels);
    by_config_read_real(&inner, obj, "max_wh_ratio", BY_KEY_OPTIONAL, 1e-6, 1e6, &v->max_wh_ratio);
    if (v->n_heads > 0 && v->hidden_size % (4 * v->n_heads) != 0)
        by_problems_add(&own, "hidden_size: %d is not a multiple of 4 x num_attention_heads %d", v->hidden_size,
                        v->n_heads);
    by_problems_append(r->problems, &own, "vision_config.");
    by_problems_deinit(&own);
    if (c->image_id < 0) by_problems_add(r->problems, "image_token_id: missing, and there is a vision_config");
}

/* ---- layers ---- */

static bool read_ratios(by_config_reader *r, by_config *c) {
    int64_t ratios[BY_LIMIT_LAYERS + BY_LIMIT_DRAFT_LAYERS];
    int n = 0, want = c->n_layers + c->draft.n_layers;
    if (!by_config_read_ints(r, r->text, "compress_ratios", BY_KEY_REQUIRED, 0, 2, COUNT(ratios), ratios, &n))
        return false;
    if (c->n_layers == 0) return false;
    if (n != want) {
        by_problems_add(r->problems,
                        "compress_ratios: %d entries, but num_hidden_layers %d and num_nextn_predict_layers %d need %d",
                        n, c->n_layers, c->draft.n_layers, want);
        return false;
    }
    for (int l = 0; l < c->n_layers; l++)
        c->layers[l].ratio = (int)ratios[l];
    for (int i = c->n_layers; i < n; i++)
        if (ratios[i] != 0)
            by_problems_add(r->problems, "compress_ratios[%d]: %d, but draft layers are window layers (0)", i,
                            (int)ratios[i]);
    return true;
}

/* Marks the layers of one source list; false when the list cannot be used. */
static bool read_sources(by_config_reader *r, by_config *c, const char *key, by_key_need need, bool kv) {
    int64_t ids[BY_LIMIT_SOURCES];
    int n = 0;
    if (!by_config_read_ints(r, r->text, key, need, 0, c->n_layers - 1, BY_LIMIT_SOURCES, ids, &n))
        return need == BY_KEY_OPTIONAL;
    if (!check_ascending(r, key, ids, n)) return false;
    for (int i = 0; i < n; i++) {
        by_layer *l = &c->layers[ids[i]];
        if (l->ratio == 0) by_problems_add(r->problems, "%s: layer %d is a window layer (ratio 0)", key, (int)ids[i]);
        *(kv ? &l->is_kv_source : &l->is_index_source) = true;
    }
    return true;
}

/* index_k_source_layer_ids exists in published files and repeats kv_source_layer_ids. */
static void check_key_sources(by_config_reader *r, const by_config *c) {
    int64_t ids[BY_LIMIT_SOURCES];
    int n = 0, n_kv = 0;
    if (!by_config_read_ints(r, r->text, "index_k_source_layer_ids", BY_KEY_OPTIONAL, 0, c->n_layers - 1,
                             BY_LIMIT_SOURCES, ids, &n))
        return;
    bool same = true;
    for (int l = 0; l < c->n_layers; l++) {
        if (!c->layers[l].is_kv_source) continue;
        same = same && n_kv < n && ids[n_kv] == l;
        n_kv++;
    }
    if (!same || n != n_kv)
        by_problems_add(r->problems,
                        "index_k_source_layer_ids: differs from kv_source_layer_ids, which is not supported");
}

static void check_layer(by_config_reader *r, const by_config *c, int l) {
    const by_layer *layer = &c->layers[l];
    if (layer->is_kv_source && !layer->is_index_source)
        by_problems_add(r->problems, "index_source_layer_ids: KV source %d is not among them", l);
    if (layer->ratio == 0) return;
    if (layer->kv_source < 0) {
        by_problems_add(r->problems, "kv_source_layer_ids: layer %d has ratio %d, but no source at or before it", l,
                        layer->ratio);
    } else if (c->layers[layer->kv_source].ratio != layer->ratio) {
        by_problems_add(r->problems, "kv_source_layer_ids: layer %d has ratio %d, its source %d has ratio %d", l,
                        layer->ratio, layer->kv_source, c->layers[layer->kv_source].ratio);
    }
    if (layer->index_source < 0) {
        by_problems_add(r->problems, "index_source_layer_ids: layer %d has ratio %d, but no source at or before it", l,
                        layer->ratio);
    } else if (c->layers[layer->index_source].ratio != layer->ratio) {
        by_problems_add(r->problems, "index_source_layer_ids: layer %d has ratio %d, its source %d has ratio %d", l,
                        layer->ratio, layer->index_source, c->layers[layer->index_source].ratio);
    }
}

static void derive_layers(by_config_reader *r, by_config *c) {
    int kv = -1, index = -1;
    c->last_kv_source = -1;
    for (int l = 0; l < c->n_layers; l++) {
        by_layer *layer = &c->layers[l];
        if (layer->is_kv_source) kv = c->last_kv_source = l;
        if (layer->is_index_source) index = l;
        layer->kv_source = layer->ratio ? kv : -1;
        layer->index_source = layer->ratio ? index : -1;
        layer->kind = layer->ratio == 0        ? BY_LAYER_WINDOW
                      : layer->is_kv_source    ? BY_LAYER_FULL
                      : layer->is_index_source ? BY_LAYER_REINDEX
                                               : BY_LAYER_REUSE;
        layer->uses_candidates = layer->is_index_source && c->candidate_source >= 0 && l > c->candidate_source;
        check_layer(r, c, l);
    }
}

static void read_index(by_config_reader *r, by_config *c) {
    static const by_int_field fields[] = {
        {"index_n_heads", offsetof(by_config, index_n_heads), 1, BY_LIMIT_HEADS},
        {"index_head_dim", offsetof(by_config, index_head_dim), 1, BY_LIMIT_HEAD_DIM},
        {"index_topk", offsetof(by_config, index_topk), 1, BY_LIMIT_TOPK},
    };
    by_config_read_int_fields(r, r->text, fields, COUNT(fields), c);
    by_config_read_real(r, r->text, "compress_rope_theta", BY_KEY_REQUIRED, 1, 1e15, &c->compress_rope_theta);
    check_tile(r, c->index_head_dim, "index_head_dim");
    if (c->index_head_dim > 0 && c->rope_dim > c->index_head_dim)
        by_problems_add(r->problems, "qk_rope_head_dim: %d is above index_head_dim %d", c->rope_dim, c->index_head_dim);
}

static void read_candidates(by_config_reader *r, by_config *c) {
    int64_t source = -1, n_blocks = 0, block = 0;
    c->candidate_source = -1;
    if (!by_config_read_int(r, r->text, "candidate_source_layer_id", BY_KEY_OPTIONAL, -1, c->n_layers - 1, &source))
        return;
    if (source < 0) return;
    c->candidate_source = (int)source;
    c->layers[source].picks_candidates = true;
    if (!c->layers[source].is_index_source)
        by_problems_add(r->problems, "candidate_source_layer_id: layer %d is not an index source", (int)source);
    if (by_config_read_int(r, r->text, "candidate_topk_blocks", BY_KEY_REQUIRED, 1, BY_LIMIT_TOPK, &n_blocks) &&
        n_blocks % 8 != 0)
        by_problems_add(r->problems, "candidate_topk_blocks: %d is not a multiple of 8", (int)n_blocks);
    if (by_config_read_int(r, r->text, "candidate_block_size", BY_KEY_REQUIRED, 1, BY_LIMIT_TOPK, &block) &&
        block != 8 && block != 16)
        by_problems_add(r->problems, "candidate_block_size: %d is not supported, only 8 and 16", (int)block);
    if (n_blocks > 0 && block > 0 && n_blocks * block < c->index_topk)
        by_problems_add(r->problems, "candidate_topk_blocks: %d blocks of %d hold fewer entries than index_topk %d",
                        (int)n_blocks, (int)block, c->index_topk);
    c->candidate_topk_blocks = (int)n_blocks;
    c->candidate_block_size = (int)block;
}

/* Candidate blocks number the entries of one KV source: a later index source must read the same one. */
static void check_candidate_users(by_config_reader *r, const by_config *c) {
    if (c->candidate_source < 0) return;
    int source = c->layers[c->candidate_source].kv_source;
    for (int l = c->candidate_source + 1; l < c->n_layers; l++)
        if (c->layers[l].is_index_source && c->layers[l].kv_source != source)
            by_problems_add(
                r->problems,
                "candidate_source_layer_id: index source %d reads the KV of layer %d, the candidates are of %d", l,
                c->layers[l].kv_source, source);
}

void by_config_read_layers(by_config_reader *r, by_config *c) {
    for (int l = 0; l < c->n_layers; l++)
        c->layers[l].engram = -1;
    for (int i = 0; i < c->engram.n_layers; i++)
        c->layers[c->engram.layer_ids[i]].engram = i;
    for (int i = 0; i < c->draft.n_targets; i++)
        if (c->n_layers > 0) c->layers[c->draft.target_ids[i]].is_draft_target = true;
    c->candidate_source = c->last_kv_source = -1;
    if (!read_ratios(r, c)) return;
    bool compresses = false;
    for (int l = 0; l < c->n_layers; l++)
        compresses = compresses || c->layers[l].ratio > 0;
    by_key_need need = compresses ? BY_KEY_REQUIRED : BY_KEY_OPTIONAL;
    if (compresses) read_index(r, c);
    bool good = read_sources(r, c, "kv_source_layer_ids", need, true);
    good = read_sources(r, c, "index_source_layer_ids", need, false) && good;
    if (!good) return;
    check_key_sources(r, c);
    read_candidates(r, c);
    derive_layers(r, c);
    check_candidate_users(r, c);
}
