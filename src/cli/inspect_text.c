/* inspect_text.c - the report for people: aligned columns, units of 1000, layers of one kind on one line. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

typedef struct {
    char text[32];
} shown;

/* 890 B, 23.1 MB, 5.070 GB: at least three digits that count. */
static shown bytes(int64_t n) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    shown s;
    double v = (double)n;
    int u = 0;
    while (v >= 1000 && u < 4) {
        v /= 1000;
        u++;
    }
    snprintf(s.text, sizeof s.text,
             u == 0    ? "%.0f %s"
             : v < 10  ? "%.3f %s"
             : v < 100 ? "%.2f %s"
                       : "%.1f %s",
             v, units[u]);
    return s;
}

/* 24.07 million, 763.0 billion */
static shown amount(int64_t n) {
    shown s;
    bool large = n >= 1000000000;
    snprintf(s.text, sizeof s.text, "%.4g %s", (double)n * (large ? 1e-9 : 1e-6), large ? "billion" : "million");
    return s;
}

/* 1,234,567 */
static shown count(int64_t n) {
    char digits[24];
    shown s;
    int len = snprintf(digits, sizeof digits, "%" PRId64, n), at = 0;
    for (int i = 0; i < len; i++) {
        s.text[at++] = digits[i];
        if ((len - i) % 3 == 1 && i + 1 < len && digits[i] != '-') s.text[at++] = ',';
    }
    s.text[at] = '\0';
    return s;
}

static void line(by_buf *out, const char *label, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void line(by_buf *out, const char *label, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    by_buf_printf(out, "  %-22s %s\n", label, text);
}

static void architecture(const by_config *c, by_buf *out) {
    by_buf_push_z(out, "\nArchitecture\n");
    line(out, "layers", "%d", c->n_layers);
    line(out, "hidden size", "%d, %d residual streams", c->hidden_size, c->hc_mult);
    line(out, "vocabulary", "%s", count(c->vocab_size).text);
    line(out, "attention", "%d heads x %d (%d rotary), query rank %d, output %d groups x %d", c->n_heads, c->head_dim,
         c->rope_dim, c->q_lora_rank, c->o_groups, c->o_lora_rank);
    line(out, "context", "%s positions, window %d", count(c->max_positions).text, c->window);
    if (c->index_topk > 0)
        line(out, "indexer", "%d heads x %d, best %d entries", c->index_n_heads, c->index_head_dim, c->index_topk);
    if (c->candidate_source >= 0)
        line(out, "candidates", "from layer %d: best %d blocks of %d entries", c->candidate_source,
             c->candidate_topk_blocks, c->candidate_block_size);
    line(out, "experts", "%d routed, %d a token, width %d; %d shared", c->n_experts, c->n_experts_per_token,
         c->moe_width, c->n_shared_experts);
    for (int i = 0; i < c->engram.n_layers; i++)
        line(out, i == 0 ? "Engram" : "", "layer %d: %s rows of %d, %d-grams, %d heads", c->engram.layer_ids[i],
             count(c->engram.n_rows[i]).text, c->engram.head_dim, c->engram.max_ngram, c->engram.n_heads);
    if (c->draft.n_layers > 0)
        line(out, "drafts", "%d layers, %d tokens a block, %d experts, %d a token", c->draft.n_layers,
             c->draft.block_size, c->draft.n_experts, c->draft.n_experts_per_token);
    if (c->vision.n_layers > 0)
        line(out, "images", "%d layers, width %d, patches of %d, at most %d tokens", c->vision.n_layers,
             c->vision.hidden_size, c->vision.patch_size, c->vision.max_image_tokens);
}

static bool same_row(const by_layer *a, const by_layer *b) {
    return a->kind == b->kind && a->ratio == b->ratio && a->kind != BY_LAYER_FULL && a->kind != BY_LAYER_REINDEX &&
           a->kv_source == b->kv_source && a->index_source == b->index_source && (a->engram >= 0) == (b->engram >= 0) &&
           a->is_draft_target == b->is_draft_target;
}

static void layers(const by_config *c, by_buf *out) {
    by_buf_push_z(out, "\nLayers\n  layer    kind     tokens/entry  KV of  selection of\n");
    for (int l = 0, next; l < c->n_layers; l = next) {
        const by_layer *layer = &c->layers[l];
        for (next = l + 1; next < c->n_layers && same_row(layer, &c->layers[next]); next++)
            continue;
        char range[32], kv[16] = "-", index[16] = "-", ratio[16] = "-";
        snprintf(range, sizeof range, next - l > 1 ? "%d-%d" : "%d", l, next - 1);
        if (layer->ratio > 0) {
            snprintf(ratio, sizeof ratio, "%d", layer->ratio);
            snprintf(kv, sizeof kv, "%d", layer->kv_source);
            snprintf(index, sizeof index, "%d", layer->index_source);
        }
        by_buf_printf(out, "  %-8s %-8s %12s  %5s  %12s%s%s%s%s\n", range, by_layer_kind_name(layer->kind), ratio, kv,
                      index, layer->engram >= 0 ? "  Engram" : "", layer->picks_candidates ? "  picks candidates" : "",
                      layer->uses_candidates ? "  inside candidates" : "",
                      layer->is_draft_target ? "  read by drafts" : "");
    }
}

static void weights(const by_inspection *in, by_buf *out) {
    const by_part_sums *s = &in->sums;
    by_buf_printf(out, "\nWeights\n  %-34s %10s %12s\n", "part", "tensors", "stored");
    for (int p = 0; p < BY_PART_N; p++)
        if (s->n_tensors[p] > 0)
            by_buf_printf(out, "  %-34s %10s %12s\n", by_part_text((by_part)p), count(s->n_tensors[p]).text,
                          bytes(s->bytes[p]).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "all", count(s->n_total).text, bytes(s->bytes_total).text);
    if (s->bytes[BY_PART_ENGRAM_TABLE] > 0)
        by_buf_printf(out, "  %-34s %10s %12s\n", "all but Engram tables", "", bytes(in->resident_bytes).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "read by a decode step of one token", "",
                  bytes(in->step_fixed_bytes + in->step_expert_bytes).text);
}

static void placement(const by_inspection *in, by_buf *out) {
    static const char *const where[] = {"routed experts on the device", "routed experts on the host"};
    const by_placement *p = &in->placement;
    if (!in->is_placed) return;
    by_buf_push_z(out, "\nPlacement, with these caches on the device\n");
    if (p->limit) by_buf_printf(out, "  %-34s %10s %12s\n", "device memory", "", bytes(p->limit).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "weights always on the device", "", bytes(p->fixed_bytes).text);
    for (int i = 0; i < 2; i++) by_buf_printf(out, "  %-34s %10s %12s\n", where[i], count(p->n_experts[i]).text, bytes(p->expert_bytes[i]).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "Engram tables on the host", "", bytes(p->table_bytes).text);
}

static void memory(const by_inspection *in, by_buf *out) {
    const by_footprint *f = &in->footprint;
    const by_kv_layout *l = &f->layout;
    const by_memory_plan *p = &in->plan;
    by_buf_push_z(out, "\nCaches\n");
    line(out, "per token", "%g B (%s B for a block of %d tokens)", f->token_bytes, count(l->block_bytes).text,
         BY_KV_BLOCK_TOKENS);
    line(out, "per sequence", "%s B (%d windows of %d tokens, %s B of open entries)", count(l->slot_bytes).text,
         l->spec.n_rings, l->ring_len, count(f->tail_bytes).text);
    line(out, "records", "KV %" PRId64 " B, index key %" PRId64 " B, window %" PRId64 " B", f->kv_record,
         f->index_record, f->window_record);
    by_buf_printf(out, "\nMemory for %s sequence%s of %s tokens\n", count(in->n_seqs).text, in->n_seqs == 1 ? "" : "s",
                  count(in->ctx_size).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "KV blocks", count(p->n_blocks).text, bytes(p->block_bytes).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "state slots", count(p->n_slots).text, bytes(p->slot_bytes).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "weights without Engram tables", "", bytes(in->resident_bytes).text);
    by_buf_printf(out, "  %-34s %10s %12s\n", "together", "",
                  bytes(p->block_bytes + p->slot_bytes + in->resident_bytes).text);
    placement(in, out);
    if (in->ctx_size > in->config.max_positions)
        by_buf_printf(out, "  the model was made for at most %s positions\n", count(in->config.max_positions).text);
}

static void notes(const by_inspection *in, by_buf *out) {
    const by_problems *n = by_checkpoint_notes(in->ck);
    if (in->checked_bytes > 0)
        by_buf_printf(
            out, "\nNo bad values in %s of weights%s.\n", bytes(in->checked_bytes).text,
            in->checked_bytes < in->resident_bytes / 20 ? " (small tensors only; --check-weights full reads all)" : "");
    if (n->n == 0) return;
    by_buf_push_z(out, "\nNotes\n");
    for (size_t from = 0; from < n->text.len;) {
        const char *p = n->text.ptr + from, *nl = memchr(p, '\n', n->text.len - from);
        size_t len = nl ? (size_t)(nl - p) : n->text.len - from;
        by_buf_printf(out, "  %.*s\n", (int)len, p);
        from += len + 1;
    }
    if (n->n > n->n_kept) by_buf_printf(out, "  ... and %ld more\n", n->n - n->n_kept);
}

void by_inspect_text(const by_inspection *in, by_buf *out) {
    by_buf_printf(out, "%s\n", in->dir);
    const by_part_sums *s = &in->sums;
    int64_t tables = s->params[BY_PART_ENGRAM_TABLE];
    line(out, "model", "DeepseekV41ForCausalLM, %s parameters%s%s%s", amount(s->params_total).text, tables ? ", " : "",
         tables ? amount(tables).text : "", tables ? " of them in Engram tables" : "");
    line(out, "files", "%d shard%s, %s tensors, %s", by_checkpoint_n_shards(in->ck),
         by_checkpoint_n_shards(in->ck) == 1 ? "" : "s", count((int64_t)by_checkpoint_n_tensors(in->ck)).text,
         bytes(by_checkpoint_file_bytes(in->ck)).text);
    architecture(&in->config, out);
    layers(&in->config, out);
    weights(in, out);
    memory(in, out);
    notes(in, out);
}
