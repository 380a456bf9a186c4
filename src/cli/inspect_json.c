/* inspect_json.c - the report for programs. Keys are stable: new ones may come, none changes its meaning; "format"
 * counts up when that has to happen. */
#include <string.h>

#include "cli/inspect.h"
#include "json/json_write.h"

/* Ids where -1 means none. */
static void put_id(by_json_out *o, const char *key, int64_t v) {
    by_json_out_key(o, key);
    if (v < 0)
        by_json_out_null(o);
    else
        by_json_out_int(o, v);
}

static void put_bool(by_json_out *o, const char *key, bool v) {
    by_json_out_key(o, key);
    by_json_out_bool(o, v);
}

static void put_lines(by_json_out *o, const char *key, const by_problems *p) {
    by_json_out_key(o, key);
    by_json_out_array_begin(o);
    for (size_t from = 0; from < p->text.len;) {
        const char *at = p->text.ptr + from, *nl = memchr(at, '\n', p->text.len - from);
        size_t len = nl ? (size_t)(nl - at) : p->text.len - from;
        by_json_out_string(o, by_str_of(at, len));
        from += len + 1;
    }
    by_json_out_array_end(o);
}

static void put_files(by_json_out *o, const by_inspection *in) {
    by_json_out_key(o, "files");
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "shards", by_checkpoint_n_shards(in->ck));
    by_json_out_member_int(o, "tensors", (int64_t)by_checkpoint_n_tensors(in->ck));
    by_json_out_member_int(o, "bytes", by_checkpoint_file_bytes(in->ck));
    by_json_out_member_int(o, "values_checked_bytes", in->checked_bytes);
    by_json_out_object_end(o);
}

static void put_architecture(by_json_out *o, const by_config *c) {
    by_json_out_key(o, "architecture");
    by_json_out_object_begin(o);
    by_json_out_member_z(o, "name", "DeepseekV41ForCausalLM");
    by_json_out_member_int(o, "layers", c->n_layers);
    by_json_out_member_int(o, "draft_layers", c->draft.n_layers);
    by_json_out_member_int(o, "vision_layers", c->vision.n_layers);
    by_json_out_member_int(o, "vocab_size", c->vocab_size);
    by_json_out_member_int(o, "hidden_size", c->hidden_size);
    by_json_out_member_int(o, "streams", c->hc_mult);
    by_json_out_member_int(o, "heads", c->n_heads);
    by_json_out_member_int(o, "head_dim", c->head_dim);
    by_json_out_member_int(o, "max_positions", c->max_positions);
    by_json_out_member_int(o, "window", c->window);
    by_json_out_member_int(o, "experts", c->n_experts);
    by_json_out_member_int(o, "experts_per_token", c->n_experts_per_token);
    by_json_out_member_int(o, "expert_width", c->moe_width);
    by_json_out_member_int(o, "index_topk", c->index_topk);
    put_id(o, "candidate_source", c->candidate_source);
    put_bool(o, "fp4_sparse_kv", c->fp4_sparse_kv);
    by_json_out_object_end(o);
}

static void put_layers(by_json_out *o, const by_config *c) {
    by_json_out_key(o, "layers");
    by_json_out_array_begin(o);
    for (int l = 0; l < c->n_layers; l++) {
        const by_layer *layer = &c->layers[l];
        by_json_out_object_begin(o);
        by_json_out_member_int(o, "layer", l);
        by_json_out_member_z(o, "kind", by_layer_kind_name(layer->kind));
        by_json_out_member_int(o, "ratio", layer->ratio);
        put_id(o, "kv_source", layer->kv_source);
        put_id(o, "index_source", layer->index_source);
        put_bool(o, "engram", layer->engram >= 0);
        put_bool(o, "picks_candidates", layer->picks_candidates);
        put_bool(o, "uses_candidates", layer->uses_candidates);
        put_bool(o, "draft_target", layer->is_draft_target);
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
}

static void put_weights(by_json_out *o, const by_inspection *in) {
    const by_part_sums *s = &in->sums;
    by_json_out_key(o, "weights");
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "parameters", s->params_total);
    by_json_out_member_int(o, "tensors", s->n_total);
    by_json_out_member_int(o, "bytes", s->bytes_total);
    by_json_out_member_int(o, "resident_bytes", in->resident_bytes);
    by_json_out_member_int(o, "step_fixed_bytes", in->step_fixed_bytes);
    by_json_out_member_int(o, "step_expert_bytes", in->step_expert_bytes);
    by_json_out_key(o, "parts");
    by_json_out_array_begin(o);
    for (int p = 0; p < BY_PART_N; p++) {
        by_json_out_object_begin(o);
        by_json_out_member_z(o, "part", by_part_key((by_part)p));
        by_json_out_member_int(o, "parameters", s->params[p]);
        by_json_out_member_int(o, "tensors", s->n_tensors[p]);
        by_json_out_member_int(o, "bytes", s->bytes[p]);
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
    by_json_out_object_end(o);
}

static void put_caches(by_json_out *o, const by_footprint *f) {
    by_json_out_key(o, "caches");
    by_json_out_object_begin(o);
    by_json_out_member_double(o, "token_bytes", f->token_bytes);
    by_json_out_member_int(o, "kv_record_bytes", f->kv_record);
    by_json_out_member_int(o, "index_record_bytes", f->index_record);
    by_json_out_member_int(o, "window_record_bytes", f->window_record);
    by_json_out_member_int(o, "block_tokens", BY_KV_BLOCK_TOKENS);
    by_json_out_member_int(o, "block_bytes", f->layout.block_bytes);
    by_json_out_member_int(o, "rings", f->layout.spec.n_rings);
    by_json_out_member_int(o, "ring_tokens", f->layout.ring_len);
    by_json_out_member_int(o, "ring_bytes", f->layout.ring_bytes);
    by_json_out_member_int(o, "tail_bytes", f->tail_bytes);
    by_json_out_member_int(o, "sequence_bytes", f->layout.slot_bytes);
    by_json_out_object_end(o);
}

static void put_memory(by_json_out *o, const by_inspection *in) {
    by_json_out_key(o, "memory");
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "ctx_size", in->ctx_size);
    by_json_out_member_int(o, "max_num_seqs", in->n_seqs);
    by_json_out_member_int(o, "kv_blocks", in->plan.n_blocks);
    by_json_out_member_int(o, "kv_bytes", in->plan.block_bytes);
    by_json_out_member_int(o, "state_slots", in->plan.n_slots);
    by_json_out_member_int(o, "state_bytes", in->plan.slot_bytes);
    by_json_out_member_int(o, "weights_bytes", in->resident_bytes);
    by_json_out_member_int(o, "total_bytes", in->plan.block_bytes + in->plan.slot_bytes + in->resident_bytes);
    by_json_out_object_end(o);
}

static void put_placement(by_json_out *o, const by_inspection *in) {
    const by_placement *p = &in->placement;
    if (!in->is_placed) return;
    by_json_out_key(o, "placement");
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "device_bytes", p->limit);
    by_json_out_member_int(o, "reserved_bytes", p->reserve);
    by_json_out_member_int(o, "fixed_bytes", p->fixed_bytes);
    by_json_out_member_int(o, "device_experts", p->n_experts[0]);
    by_json_out_member_int(o, "device_expert_bytes", p->expert_bytes[0]);
    by_json_out_member_int(o, "host_experts", p->n_experts[1]);
    by_json_out_member_int(o, "host_expert_bytes", p->expert_bytes[1]);
    by_json_out_member_int(o, "host_table_bytes", p->table_bytes);
    by_json_out_object_end(o);
}

void by_inspect_json(const by_inspection *in, by_buf *out) {
    by_json_out o = by_json_out_init(out, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    by_json_out_member_int(&o, "format", 1);
    by_json_out_member_z(&o, "directory", in->dir);
    put_files(&o, in);
    put_architecture(&o, &in->config);
    put_layers(&o, &in->config);
    put_weights(&o, in);
    put_caches(&o, &in->footprint);
    put_memory(&o, in);
    put_placement(&o, in);
    put_lines(&o, "notes", by_checkpoint_notes(in->ck));
    by_json_out_object_end(&o);
    by_buf_push_byte(out, '\n');
}

void by_inspect_problems_json(const char *dir, const by_problems *problems, by_buf *out) {
    by_json_out o = by_json_out_init(out, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    by_json_out_member_int(&o, "format", 1);
    by_json_out_member_z(&o, "directory", dir);
    by_json_out_member_int(&o, "n_problems", problems->n);
    put_lines(&o, "problems", problems);
    by_json_out_object_end(&o);
    by_buf_push_byte(out, '\n');
}
