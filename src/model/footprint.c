/* footprint.c - see footprint.h. */
#include "model/footprint.h"

#include <string.h>

_Static_assert(BY_KV_SOURCES_MAX >= BY_LIMIT_SOURCES, "every accepted configuration fits a cache layout");

void by_config_kv_spec(by_kv_spec *out, const by_config *c, bool quantised, int32_t backtrack) {
    *out = (by_kv_spec){.n_rings = c->n_layers + c->draft.n_layers,
                        .head_dim = c->head_dim,
                        .index_dim = c->index_head_dim,
                        .window = c->window,
                        .backtrack = backtrack,
                        .ring_rec = BY_REC_F32,
                        .main_rec = BY_REC_F32,
                        .index_rec = BY_REC_F32};
    if (quantised) {
        out->ring_rec = BY_REC_FP8;
        out->main_rec = c->fp4_sparse_kv ? BY_REC_FP4 : BY_REC_FP8;
        out->index_rec = BY_REC_IX4;
    }
    for (int l = 0; l < c->n_layers; l++)
        if (c->layers[l].is_kv_source) out->source_ratio[out->n_sources++] = c->layers[l].ratio;
}

by_status by_footprint_of(const by_config *c, int n_draft_tokens, by_footprint *out, by_err *err) {
    by_kv_spec spec;
    by_config_kv_spec(&spec, c, true, n_draft_tokens + 1);
    memset(out, 0, sizeof *out);
    BY_TRY(by_kv_layout_make(&out->layout, &spec, err));
    out->window_record = by_rec_bytes(spec.ring_rec, spec.head_dim);
    out->kv_record = by_rec_bytes(spec.main_rec, spec.head_dim);
    out->index_record = by_rec_bytes(spec.index_rec, spec.index_dim);
    out->token_bytes = (double)out->layout.token_bytes_x128 / BY_KV_BLOCK_TOKENS;
    out->tail_bytes = out->layout.n_tails * out->layout.tail_bytes;
    return BY_OK;
}

void by_footprint_plan(const by_footprint *f, int64_t n_tokens, int64_t n_seqs, by_memory_plan *out) {
    const by_kv_layout *l = &f->layout;
    /* the newest token and the drafts have their places before they are committed */
    int64_t per_seq = by_kv_blocks_for(n_tokens + l->spec.backtrack);
    out->n_blocks = l->block_bytes > 0 ? per_seq * n_seqs + 1 : 0;
    out->n_slots = n_seqs * 6 / 5 + 1;
    out->block_bytes = out->n_blocks * l->block_bytes;
    out->slot_bytes = out->n_slots * l->slot_bytes;
}
