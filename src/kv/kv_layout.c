/* kv_layout.c - byte layout of blocks and slots; see kv.h. */
#include "kv/kv.h"

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static by_status check(const by_kv_spec *s, by_err *err) {
    if (s->n_rings < 1 || s->n_rings > BY_LIMIT_LAYERS + BY_LIMIT_DRAFT_LAYERS)
        return BY_FAIL(err, BY_EINVAL, "caches: %d layers", s->n_rings);
    if (s->head_dim < 32 || s->head_dim > BY_LIMIT_HEAD_DIM || s->head_dim % 32)
        return BY_FAIL(err, BY_EINVAL, "caches: head_dim %d", s->head_dim);
    if (s->window < 1 || s->window > BY_LIMIT_WINDOW || s->backtrack < 0 || s->backtrack > BY_LIMIT_WINDOW)
        return BY_FAIL(err, BY_EINVAL, "caches: window %d, backtrack %d", s->window, s->backtrack);
    if (s->n_sources < 0 || s->n_sources > BY_KV_SOURCES_MAX)
        return BY_FAIL(err, BY_EINVAL, "caches: %d sources", s->n_sources);
    if (s->n_sources && (s->index_dim < 32 || s->index_dim > BY_LIMIT_HEAD_DIM || s->index_dim % 32))
        return BY_FAIL(err, BY_EINVAL, "caches: index_head_dim %d", s->index_dim);
    for (int32_t i = 0; i < s->n_sources; i++)
        if (s->source_ratio[i] != 1 && s->source_ratio[i] != 2)
            return BY_FAIL(err, BY_EINVAL, "caches: source %d has ratio %d", i, s->source_ratio[i]);
    return BY_OK;
}

by_status by_kv_layout_make(by_kv_layout *out, const by_kv_spec *spec, by_err *err) {
    BY_TRY(check(spec, err));
    *out = (by_kv_layout){.spec = *spec};
    int64_t ring_rec = by_rec_bytes(spec->ring_rec, spec->head_dim);
    int64_t main_rec = by_rec_bytes(spec->main_rec, spec->head_dim);
    int64_t index_rec = by_rec_bytes(spec->index_rec, spec->index_dim);
    out->ring_len = spec->window + spec->backtrack;
    out->ring_bytes = out->ring_len * ring_rec;
    out->tails_off = round_up(spec->n_rings * out->ring_bytes, 64);
    out->tail_len = 2 + (spec->backtrack > 1 ? spec->backtrack : 1) - 1; /* ratio + backtrack - 1 tokens */
    out->tail_bytes = out->tail_len * 8 * spec->head_dim;
    int64_t off = 0, used = 0;
    for (int32_t i = 0; i < spec->n_sources; i++) {
        int64_t n = BY_KV_BLOCK_TOKENS / spec->source_ratio[i];
        out->index_off[i] = off;
        off += round_up(n * index_rec, 32);
        used += n * index_rec;
        out->n_tails += spec->source_ratio[i] == 2;
    }
    for (int32_t i = 0; i < spec->n_sources; i++) {
        int64_t n = BY_KV_BLOCK_TOKENS / spec->source_ratio[i];
        out->main_off[i] = off;
        off += round_up(n * main_rec, 32);
        used += n * main_rec;
    }
    out->token_bytes_x128 = used;
    out->block_bytes = round_up(off, 128);
    out->slot_bytes = round_up(out->tails_off + out->n_tails * out->tail_bytes, 64);
    return BY_OK;
}
