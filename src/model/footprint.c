/* footprint.c - see footprint.h. */
#include "model/footprint.h"

#include <string.h>

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static int64_t gcd(int64_t a, int64_t b) {
    return b ? gcd(b, a % b) : a;
}
static int64_t lcm(int64_t a, int64_t b) {
    return a / gcd(a, b) * b;
}

void by_footprint_of(const by_config *c, int n_draft_tokens, by_footprint *out) {
    by_footprint *f = out;
    memset(f, 0, sizeof *f);
    int64_t d = c->head_dim, x = c->index_head_dim, backtrack = (int64_t)n_draft_tokens + 1, content = 0;
    f->window_record = d + d / 32;
    f->kv_record = c->fp4_sparse_kv ? d / 2 + d / 16 : f->window_record;
    f->index_record = x / 2 + x / 32;
    f->token_bytes_den = 2;
    for (int l = 0; l < c->n_layers; l++) {
        if (!c->layers[l].is_kv_source) continue;
        int64_t ratio = c->layers[l].ratio, entries = BY_BLOCK_TOKENS / ratio;
        f->token_bytes_num += f->token_bytes_den / ratio * (f->kv_record + f->index_record);
        content += round_up(entries * f->index_record, 32) + round_up(entries * f->kv_record, 32);
        if (ratio == 2) f->tail_bytes += (ratio + backtrack - 1) * 2 * d * 4;
    }
    f->block_bytes = round_up(content, lcm(128, f->kv_record));
    f->backtrack = backtrack;
    f->ring_tokens = c->window + backtrack;
    f->ring_bytes = f->ring_tokens * f->window_record;
    f->n_rings = c->n_layers + c->draft.n_layers;
    f->slot_bytes = round_up(f->n_rings * f->ring_bytes + f->tail_bytes, lcm(32, f->window_record));
}

void by_footprint_plan(const by_footprint *f, int64_t n_tokens, int64_t n_seqs, by_memory_plan *out) {
    /* the newest token and the drafts have their places before they are committed */
    int64_t per_seq = round_up(n_tokens + f->backtrack, BY_BLOCK_TOKENS) / BY_BLOCK_TOKENS;
    out->n_blocks = f->block_bytes > 0 ? per_seq * n_seqs + 1 : 0;
    out->n_slots = n_seqs * 6 / 5 + 1;
    out->block_bytes = out->n_blocks * f->block_bytes;
    out->slot_bytes = out->n_slots * f->slot_bytes;
}
