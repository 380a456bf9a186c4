/* model.c - see model.h. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/engram_hash.h"
#include "model/footprint.h"
#include "model/rope_freq.h"
#include "tok/token_map.h"

const char *by_numerics_name(by_numerics n) {
    static const char *const names[] = {"exact", "quantised", "deployed"};
    return (unsigned)n < 3 ? names[n] : "?";
}

int32_t by_model_source_index(const by_model *m, int32_t layer) {
    int32_t i = 0;
    for (int32_t l = 0; l < layer; l++) i += m->cfg.layers[l].is_kv_source;
    return i;
}

/* Compressed token ids: from the tokenizer, or the identity when the config asks for no compression. */
static by_status compress_tokens(by_model *m, const char *dir, by_err *err) {
    const by_config *c = &m->cfg;
    if (c->engram.n_layers == 0) return BY_OK;
    m->compressed = by_alloc(BY_MEM_MODEL, (size_t)c->vocab_size * 4);
    if (!m->compressed) return BY_FAIL(err, BY_ENOMEM, "out of memory for the table of compressed tokens");
    if (c->engram.compressed_vocab_size == 0 || (c->engram.compressed_vocab_size == c->vocab_size && !m->tok)) {
        for (int32_t i = 0; i < c->vocab_size; i++) m->compressed[i] = i;
    } else if (!m->ck) { /* made-up weights: any map of the right size */
        for (int32_t i = 0; i < c->vocab_size; i++) m->compressed[i] = i % c->engram.compressed_vocab_size;
    } else {
        if (!m->tok)
            return BY_FAIL(err, BY_EMISSING, "%s/tokenizer.json: needed, since engram_compressed_vocab_size is %d", dir,
                           c->engram.compressed_vocab_size);
        int32_t n = 0;
        BY_TRY(by_tok_compressed_ids(m->tok, m->compressed, c->vocab_size, &n, err));
        if (n != c->engram.compressed_vocab_size)
            return BY_FAIL(err, BY_EFORMAT, "%s/tokenizer.json: %d distinct compressed tokens, config.json says %d", dir, n,
                           c->engram.compressed_vocab_size);
    }
    m->engram_pad = m->compressed[c->engram.pad_token_id];
    if (m->engram_pad < 0)
        return BY_FAIL(err, BY_EFORMAT, "%s/tokenizer.json: no token has engram_pad_token_id %d", dir, c->engram.pad_token_id);
    return BY_OK;
}

/* Writes n bytes of a constant table and returns its tensor. */
static by_status put(by_model *m, int64_t *at, by_tensor *out, by_dtype dtype, int64_t rows, int64_t cols, const void *src,
                     by_err *err) {
    *out = by_tensor_make(m->tables, *at, dtype, rows, cols);
    int64_t bytes = rows * out->stride;
    BY_TRY(by_mem_write(m->tables, (size_t)*at, src, (size_t)bytes, err));
    *at += (bytes + 63) / 64 * 64;
    return BY_OK;
}

static by_status make_tables(by_model *m, by_err *err) {
    const by_config *c = &m->cfg;
    const by_engram_config *e = &c->engram;
    int64_t cols = (int64_t)(e->max_ngram > 1 ? e->max_ngram - 1 : 0) * e->n_heads;
    int64_t bytes = 2 * (c->rope_dim * 2 + 64) + c->hc_mult * 4 + 64 + e->n_layers * (16 * cols + 8 * BY_LIMIT_NGRAM + 192);
    BY_TRY(by_mem_alloc(&m->tables, m->dev, (size_t)bytes, err));
    float freq[BY_LIMIT_HEAD_DIM / 2];
    int64_t at = 0;
    by_rope_freq(freq, c, false);
    BY_TRY(put(m, &at, &m->freq_window, BY_F32, 1, c->rope_dim / 2, freq, err));
    by_rope_freq(freq, c, true);
    BY_TRY(put(m, &at, &m->freq_compressed, BY_F32, 1, c->rope_dim / 2, freq, err));
    float mean[BY_LIMIT_HC_MULT];
    for (int i = 0; i < c->hc_mult; i++) mean[i] = 1.0f / (float)c->hc_mult;
    BY_TRY(put(m, &at, &m->stream_mean, BY_F32, 1, c->hc_mult, mean, err));
    int64_t vocab = e->compressed_vocab_size ? e->compressed_vocab_size : c->vocab_size;
    for (int i = 0; i < e->n_layers; i++) {
        int64_t mult[BY_LIMIT_NGRAM], prime[BY_LIMIT_NGRAM * BY_LIMIT_ENGRAM_HEADS], base[BY_LIMIT_NGRAM * BY_LIMIT_ENGRAM_HEADS];
        by_engram_multipliers(mult, e->layer_ids[i], e->max_ngram, vocab);
        int64_t sum = 0, n = 0;
        for (int b = 0; b < e->max_ngram - 1; b++) {
            for (int h = 0; h < e->n_heads; h++, n++) {
                prime[n] = e->primes[i][b][h];
                base[n] = sum;
                sum += prime[n];
            }
        }
        BY_TRY(put(m, &at, &m->engram_mult[i], BY_I64, 1, e->max_ngram, mult, err));
        BY_TRY(put(m, &at, &m->engram_prime[i], BY_I64, e->max_ngram - 1, e->n_heads, prime, err));
        BY_TRY(put(m, &at, &m->engram_base[i], BY_I64, e->max_ngram - 1, e->n_heads, base, err));
    }
    return BY_OK;
}

/* Decides what lies where, and opens the host's device when something is to be computed there. */
static by_status place_weights(by_model *m, const by_model_opts *opts, by_err *err) {
    by_place_opts place = opts->place;
    place.tables_on_device = opts->dummy;
    if (opts->reserve) BY_TRY(opts->reserve(opts->reserve_arg, m, &place.reserve, err));
    BY_TRY(by_placement_plan(&m->place, &m->cfg, by_device_room_get(m->dev).limit, &place, err));
    by_device_opts host = {.backend = opts->host_ref ? BY_BACKEND_REF : BY_BACKEND_CPU, .n_threads = opts->host_threads, .isa = opts->host_isa};
    return m->place.n_experts[1] ? by_device_open(&m->host, &host, err) : BY_OK;
}

static by_status open_parts(by_model *m, const char *dir, const by_model_opts *opts, by_err *err) {
    by_problems problems = {0};
    by_status status = by_config_load(&m->cfg, dir, &problems, err);
    if (status == BY_OK && opts->context > m->cfg.max_positions)
        status = BY_FAIL(err, BY_EINVAL, "a context of %lld tokens is beyond the model's limit of %lld (max_position_embeddings)",
                         (long long)opts->context, (long long)m->cfg.max_positions);
    if (status == BY_OK && !opts->dummy) status = by_checkpoint_open(&m->ck, dir, &m->cfg, &problems, err);
    if (status == BY_OK && opts->check_weights && !opts->dummy)
        status = by_checkpoint_check_values(m->ck, BY_CHECK_AUTO, NULL, &problems, err);
    by_problems_deinit(&problems);
    BY_TRY(status);
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    if (n < 0 || (size_t)n >= sizeof path) return BY_FAIL(err, BY_EINVAL, "model path is too long");
    if (by_file_exists(path)) BY_TRY(by_tok_open(&m->tok, path, NULL, err));
    m->boundary = m->cfg.last_kv_source;
    for (int l = m->boundary; l >= 0 && l < m->cfg.n_layers; l++)
        if (m->cfg.layers[l].engram >= 0) m->boundary = -1; /* its rows would need the n-grams of the kept rows */
    BY_TRY(place_weights(m, opts, err));
    BY_TRY(compress_tokens(m, dir, err));
    BY_TRY(make_tables(m, err));
    by_weights_to to = {.dev = m->dev, .host = m->host, .place = &m->place};
    if (opts->dummy) return by_weights_make(&m->w, &m->cfg, &to, opts->seed, err);
    return by_weights_bind(&m->w, &m->cfg, m->ck, &to, err);
}

by_status by_model_open(by_model **out, const char *dir, by_device *dev, const by_model_opts *opts, by_err *err) {
    *out = NULL;
    by_model *m = by_alloc_zero(BY_MEM_MODEL, sizeof *m);
    if (!m) return BY_FAIL(err, BY_ENOMEM, "out of memory for a model");
    m->dev = dev;
    m->numerics = opts->numerics;
    m->act = opts->numerics == BY_NUMERICS_DEPLOYED ? BY_BF16 : BY_F32;
    m->quant = opts->numerics != BY_NUMERICS_EXACT;
    by_status status = open_parts(m, dir, opts, err);
    if (status < 0) {
        by_model_close(m);
        return status;
    }
    *out = m;
    return BY_OK;
}

void by_model_close(by_model *m) {
    if (!m) return;
    by_weights_release(&m->w);
    by_device_close(m->host);
    by_mem_free(m->tables);
    by_tok_destroy(m->tok);
    by_free(m->compressed);
    by_checkpoint_close(m->ck);
    by_free(m);
}

by_status by_model_kv_layout(by_kv_layout *out, const by_model *m, int32_t backtrack, by_err *err) {
    by_kv_spec s;
    by_config_kv_spec(&s, &m->cfg, m->quant, backtrack);
    return by_kv_layout_make(out, &s, err);
}
