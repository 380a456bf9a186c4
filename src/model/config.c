/* config.c - the trunk's own keys of config.json; layers, Engram, drafts and images are in config_parts.c.
 *
 * Keys without a documented default are required: a silently assumed width or epsilon would give a model that answers
 * nonsense. Keys that only select a variant this program does not have are refused unless they hold the known value. */
#include "model/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/config_read.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))
#define INT(key, field, min, max)                                                                                      \
    { key, offsetof(by_config, field), min, max }
#define REAL(key, field, min, max)                                                                                     \
    { key, offsetof(by_config, field), min, max }

static const by_int_field trunk_ints[] = {
    INT("vocab_size", vocab_size, 1, BY_LIMIT_VOCAB),
    INT("hidden_size", hidden_size, 1, BY_LIMIT_HIDDEN),
    INT("num_hidden_layers", n_layers, 1, BY_LIMIT_LAYERS),
    INT("num_attention_heads", n_heads, 1, BY_LIMIT_HEADS),
    INT("head_dim", head_dim, 1, BY_LIMIT_HEAD_DIM),
    INT("qk_rope_head_dim", rope_dim, 2, BY_LIMIT_HEAD_DIM),
    INT("q_lora_rank", q_lora_rank, 1, BY_LIMIT_HIDDEN),
    INT("o_lora_rank", o_lora_rank, 1, BY_LIMIT_HIDDEN),
    INT("o_groups", o_groups, 1, BY_LIMIT_HEADS),
    INT("sliding_window", window, 1, BY_LIMIT_WINDOW),
    INT("n_routed_experts", n_experts, 1, BY_LIMIT_EXPERTS),
    INT("num_experts_per_tok", n_experts_per_token, 1, BY_LIMIT_EXPERTS_PER_TOKEN),
    INT("moe_intermediate_size", moe_width, 1, BY_LIMIT_HIDDEN),
    INT("hc_mult", hc_mult, 1, BY_LIMIT_HC_MULT),
    INT("hc_sinkhorn_iters", hc_iters, 1, BY_LIMIT_HC_ITERS),
};

/* The epsilons are used in fp32: smaller ones would be subnormal there. */
static const by_real_field trunk_reals[] = {
    REAL("rms_norm_eps", rms_norm_eps, 1.2e-38, 1),
    REAL("swiglu_limit", swiglu_limit, 0, 1e30),
    REAL("rope_theta", rope_theta, 1, 1e15),
    REAL("hc_eps", hc_eps, 1.2e-38, 1),
    REAL("routed_scaling_factor", routed_scaling, 1e-30, 1e30),
};

static void divides(by_config_reader *r, int d, int value, const char *key, const char *why) {
    if (d > 0 && value > 0 && value % d != 0)
        by_problems_add(r->problems, "%s: %d is not a multiple of %d%s", key, value, d, why);
}

/* A file of another model is one clear line instead of forty missing keys. */
static void check_architecture(by_config_reader *r) {
    static const char *const want = "DeepseekV41ForCausalLM";
    const by_json *arch = by_config_find(r, r->top, "architectures", BY_KEY_OPTIONAL);
    if (arch && arch->type != BY_JSON_ARRAY) {
        by_config_wrong_type(r, "architectures", "a list of names", arch);
    } else if (arch) {
        bool found = false;
        for (uint32_t i = 0; i < arch->n; i++) {
            const by_json *a = &arch->v.items[i];
            found = found || (a->type == BY_JSON_STRING && by_str_eqz(a->v.s, want));
        }
        const by_json *first = by_json_at(arch, 0);
        by_str name = by_json_is(first, BY_JSON_STRING) ? first->v.s : BY_STR("?");
        if (!found)
            by_problems_add(r->problems, "architectures: this is a checkpoint of %.*s; only %s is supported",
                            (int)(name.len > 80 ? 80 : name.len), name.ptr, want);
    }
    const by_json *type = by_config_find(r, r->top, "model_type", BY_KEY_OPTIONAL);
    if (type && type->type != BY_JSON_STRING)
        by_config_wrong_type(r, "model_type", "a string", type);
    else if (type && !by_str_starts(type->v.s, BY_STR("deepseek_v41")))
        by_problems_add(r->problems, "model_type: \"%.*s\" is not supported, only \"deepseek_v41\"",
                        (int)(type->v.s.len > 80 ? 80 : type->v.s.len), type->v.s.ptr);
}

static void check_variants(by_config_reader *r) {
    const by_json *t = r->text;
    by_config_expect_str(r, t, "hidden_act", "silu");
    by_config_expect_str(r, t, "scoring_func", "sqrtsoftplus");
    by_config_expect_str(r, t, "topk_method", "noaux_tc");
    by_config_expect_bool(r, t, "norm_topk_prob", true, "");
    by_config_expect_bool(r, t, "attention_bias", false, "");
    by_config_expect_bool(r, t, "tie_word_embeddings", false, ": head.weight is a tensor of its own");
    by_config_expect_bool(
        r, t, "hc_shifted", true,
        ": it selects the hyper-connections of DeepSeek-V4, this program runs the shifted ones of V4.1");
    int64_t n = 1;
    if (by_config_read_int(r, t, "num_key_value_heads", BY_KEY_OPTIONAL, 1, BY_LIMIT_HEADS, &n) && n != 1)
        by_problems_add(r->problems, "num_key_value_heads: %d is not supported, only 1", (int)n);
    const by_json *q = by_config_find(r, r->top, "quantization_config", BY_KEY_OPTIONAL);
    if (!q) return;
    if (q->type != BY_JSON_OBJECT) {
        by_config_wrong_type(r, "quantization_config", "an object", q);
        return;
    }
    by_config_expect_str(r, q, "quant_method", "fp8");
    by_config_expect_str(r, q, "activation_scheme", "dynamic");
    by_config_expect_str(r, q, "scale_fmt", "ue8m0");
    by_config_expect_str(r, q, "expert_dtype", "fp4");
    int64_t block[2] = {0};
    if (by_config_read_ints(r, q, "weight_block_size", BY_KEY_OPTIONAL, 1, 65536, 2, block, &(int){0}) &&
        (block[0] != BY_QUANT_TILE || block[1] != BY_QUANT_TILE))
        by_problems_add(r->problems, "weight_block_size: [%d, %d] is not supported, only [32, 32]", (int)block[0],
                        (int)block[1]);
}

static void read_rope_scaling(by_config_reader *r, by_config *c) {
    static const by_real_field fields[] = {
        {"factor", offsetof(by_rope_scaling, factor), 1, 1e6},
        {"beta_fast", offsetof(by_rope_scaling, beta_fast), 1e-6, 1e6},
        {"beta_slow", offsetof(by_rope_scaling, beta_slow), 1e-6, 1e6},
    };
    const by_json *v = by_config_find(r, r->text, "rope_scaling", BY_KEY_OPTIONAL);
    if (!v && by_config_find(r, r->text, "rope_parameters", BY_KEY_OPTIONAL)) /* silently plain would be wrong far out */
        by_problems_add(r->problems, "rope_parameters: this newer form is not supported, rope_scaling is expected");
    if (!v) return;
    if (v->type != BY_JSON_OBJECT) {
        by_config_wrong_type(r, "rope_scaling", "null or an object", v);
        return;
    }
    const by_json *type = by_json_get(v, "rope_type");
    if (!type) type = by_json_get(v, "type");
    if (!by_json_is(type, BY_JSON_STRING)) {
        by_problems_add(r->problems, "rope_scaling.rope_type: missing or not a string");
        return;
    }
    if (by_str_eqz(type->v.s, "default")) return;
    if (!by_str_eqz(type->v.s, "yarn")) {
        by_problems_add(r->problems, "rope_scaling.rope_type: \"%.*s\" is not supported, only \"yarn\" and \"default\"",
                        (int)(type->v.s.len > 60 ? 60 : type->v.s.len), type->v.s.ptr);
        return;
    }
    by_rope_scaling *s = &c->rope_scaling;
    s->yarn = true;
    by_config_read_real_fields(r, v, fields, COUNT(fields), s);
    int64_t n = 0;
    if (by_config_read_int(r, v, "original_max_position_embeddings", BY_KEY_REQUIRED, 1, BY_LIMIT_CONTEXT, &n))
        s->original_max_positions = (int)n;
    if (s->beta_fast > 0 && s->beta_slow > 0 && s->beta_fast < s->beta_slow)
        by_problems_add(r->problems, "rope_scaling: beta_fast %g is below beta_slow %g", s->beta_fast, s->beta_slow);
}

/* Published files keep the token ids at the top, flat ones have only one level. */
static int read_token_id(by_config_reader *r, const by_config *c, const char *key, by_key_need need) {
    const by_json *top = by_json_get(r->top, key);
    const by_json *obj = by_json_get(r->text, key) && !(top && top->type != BY_JSON_NULL) ? r->text : r->top;
    int64_t id = -1;
    by_config_read_int(r, obj, key, need, 0, (c->vocab_size > 0 ? c->vocab_size : BY_LIMIT_VOCAB) - 1, &id);
    return (int)id;
}

static void check_trunk(by_config_reader *r, const by_config *c) {
    static const char *const tile = ", the size of a quantised group";
    divides(r, BY_QUANT_TILE, c->hidden_size, "hidden_size", tile);
    divides(r, BY_QUANT_TILE, c->head_dim, "head_dim", tile);
    divides(r, BY_QUANT_TILE, c->q_lora_rank, "q_lora_rank", tile);
    divides(r, BY_QUANT_TILE, c->o_lora_rank, "o_lora_rank", tile);
    divides(r, BY_QUANT_TILE, c->moe_width, "moe_intermediate_size", tile);
    divides(r, 2, c->rope_dim, "qk_rope_head_dim", ": channels are rotated in pairs");
    divides(r, c->o_groups, c->n_heads, "num_attention_heads", ", the value of o_groups");
    if (c->head_dim > 0 && c->rope_dim > c->head_dim)
        by_problems_add(r->problems, "qk_rope_head_dim: %d is above head_dim %d", c->rope_dim, c->head_dim);
    if (c->n_experts > 0 && c->n_experts_per_token > c->n_experts)
        by_problems_add(r->problems, "num_experts_per_tok: %d is above n_routed_experts %d", c->n_experts_per_token,
                        c->n_experts);
}

static void read_trunk(by_config_reader *r, by_config *c) {
    by_config_read_int_fields(r, r->text, trunk_ints, COUNT(trunk_ints), c);
    by_config_read_real_fields(r, r->text, trunk_reals, COUNT(trunk_reals), c);
    by_config_read_int(r, r->text, "max_position_embeddings", BY_KEY_REQUIRED, 1, BY_LIMIT_CONTEXT, &c->max_positions);
    int64_t shared = 1;
    by_config_read_int(r, r->text, "n_shared_experts", BY_KEY_OPTIONAL, 1, 64, &shared);
    c->n_shared_experts = (int)shared;
    c->shared_width = c->n_shared_experts * c->moe_width;
    c->fp4_sparse_kv = true;
    by_config_read_bool(r, r->text, "use_fp4_sparse_kv", &c->fp4_sparse_kv);
    read_rope_scaling(r, c);
    c->bos_id = read_token_id(r, c, "bos_token_id", BY_KEY_REQUIRED);
    c->eos_id = read_token_id(r, c, "eos_token_id", BY_KEY_REQUIRED);
    c->pad_id = read_token_id(r, c, "pad_token_id", BY_KEY_OPTIONAL);
    c->image_id = read_token_id(r, c, "image_token_id", BY_KEY_OPTIONAL);
    check_trunk(r, c);
}

/* Six tensors an expert: the table of tensors must stay below what a checkpoint may hold. */
static void check_tensor_count(by_config_reader *r, const by_config *c) {
    int64_t n = 6 * ((int64_t)c->n_layers * c->n_experts + (int64_t)c->draft.n_layers * c->draft.n_experts);
    if (n > BY_LIMIT_ST_TENSORS)
        by_problems_add(r->problems,
                        "n_routed_experts: all layers together need %" PRId64 " expert tensors, at most %d are allowed",
                        n, BY_LIMIT_ST_TENSORS);
}

static void read_all(by_config_reader *r, by_config *c) {
    check_architecture(r);
    if (r->problems->n > 0) return; /* of another model every other line would be noise */
    check_variants(r);
    read_trunk(r, c);
    by_config_read_engram(r, c);
    by_config_read_draft(r, c);
    by_config_read_vision(r, c);
    by_config_read_layers(r, c);
    check_tensor_count(r, c);
}

by_status by_config_parse(by_config *out, by_str text, by_problems *problems, by_err *err) {
    memset(out, 0, sizeof *out);
    by_problems own = {0};
    by_err local;
    if (!err) err = &local;
    by_arena arena;
    by_arena_init(&arena, BY_MEM_MODEL);
    by_json top;
    by_status status = by_json_parse(&top, &arena, text, &(by_json_opts){.bytes_max = BY_LIMIT_CONFIG_BYTES}, err);
    if (status < 0) goto out;
    if (top.type != BY_JSON_OBJECT) {
        status = BY_FAIL(err, BY_EFORMAT, "expected a JSON object, found %s", by_json_type_name(top.type));
        goto out;
    }
    by_config_reader r = {.top = &top, .text = &top, .problems = &own};
    const by_json *nested = by_json_get(&top, "text_config");
    if (nested && nested->type == BY_JSON_OBJECT)
        r.text = nested;
    else if (nested && nested->type != BY_JSON_NULL)
        by_config_wrong_type(&r, "text_config", "an object", nested);
    read_all(&r, out);
    status = by_problems_check(&own, BY_EFORMAT, err);
out:
    if (status < 0 && own.n == 0) by_problems_add(problems, "%s", err->msg);
    by_problems_append(problems, &own, "");
    by_problems_deinit(&own);
    by_arena_deinit(&arena);
    return status;
}

by_status by_config_load(by_config *out, const char *dir, by_problems *problems, by_err *err) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/config.json", dir);
    if (n < 0 || (size_t)n >= sizeof path) return BY_FAIL(err, BY_EINVAL, "%.100s...: path too long", dir);
    by_buf text = {0};
    by_problems own = {0};
    by_err local;
    if (!err) err = &local;
    by_status status = by_file_read(&text, path, BY_LIMIT_CONFIG_BYTES, err);
    if (status == BY_OK) {
        status = by_config_parse(out, by_buf_str(&text), &own, err);
        if (status < 0) by_err_prefix(err, "%s: ", path);
    } else {
        by_problems_add(problems, "%s", err->msg);
    }
    by_problems_append(problems, &own, "config.json: ");
    by_problems_deinit(&own);
    by_buf_deinit(&text);
    return status;
}

const char *by_layer_kind_name(by_layer_kind kind) {
    static const char *const names[] = {"window", "full", "reindex", "reuse"};
    return (unsigned)kind < COUNT(names) ? names[kind] : "?";
}
