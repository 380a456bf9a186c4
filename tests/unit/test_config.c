/* test_config.c - reading config.json: accepted forms, one case per check, several problems at once, memory failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "model/config.h"
#include "model/primes.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

typedef struct {
    const char *key, *value; /* value NULL in an override: the key is left out */
} pair;

static const pair top_keys[] = {
    {"architectures", "[\"DeepseekV41ForCausalLM\"]"},
    {"model_type", "\"deepseek_v41\""},
    {"bos_token_id", "0"},
    {"eos_token_id", "1"},
    {"pad_token_id", "2"},
    {"image_token_id", "310"},
    {"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [32, 32], \"expert_dtype\": \"fp4\"}"},
    {"vision_config",
     "{\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 2, \"intermediate_size\": 64,"
     "\"patch_size\": 14, \"rope_theta\": 10000.0, \"downsample_ratio\": 3, \"max_image_tokens\": 40,"
     "\"min_pixels\": 5880, \"max_wh_ratio\": null}"},
};
static const pair text_keys[] = {
    {"vocab_size", "320"},
    {"hidden_size", "64"},
    {"num_hidden_layers", "10"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "1"},
    {"head_dim", "32"},
    {"qk_rope_head_dim", "16"},
    {"q_lora_rank", "64"},
    {"o_lora_rank", "32"},
    {"o_groups", "2"},
    {"hidden_act", "\"silu\""},
    {"scoring_func", "\"sqrtsoftplus\""},
    {"topk_method", "\"noaux_tc\""},
    {"norm_topk_prob", "true"},
    {"max_position_embeddings", "4096"},
    {"rms_norm_eps", "1e-20"},
    {"rope_theta", "10000.0"},
    {"compress_rope_theta", "160000"},
    {"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 16, \"beta_fast\": 32, \"beta_slow\": 1,"
                     "\"original_max_position_embeddings\": 256}"},
    {"sliding_window", "16"},
    {"compress_ratios", "[0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0]"},
    {"kv_source_layer_ids", "[2, 4, 6]"},
    {"index_source_layer_ids", "[2, 4, 6, 8]"},
    {"index_k_source_layer_ids", "[2, 4, 6]"},
    {"index_n_heads", "8"},
    {"index_head_dim", "32"},
    {"index_topk", "16"},
    {"candidate_source_layer_id", "6"},
    {"candidate_topk_blocks", "8"},
    {"candidate_block_size", "8"},
    {"n_routed_experts", "8"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "2"},
    {"moe_intermediate_size", "32"},
    {"routed_scaling_factor", "1.5"},
    {"swiglu_limit", "10.0"},
    {"hc_mult", "4"},
    {"hc_sinkhorn_iters", "20"},
    {"hc_eps", "1e-06"},
    {"engram_layer_ids", "[1, 4]"},
    {"engram_num_embeddings", "[660, 864]"},
    {"engram_max_ngram_size", "4"},
    {"engram_vocab_size", "101"},
    {"engram_n_heads", "2"},
    {"engram_head_dim", "32"},
    {"engram_pad_token_id", "2"},
    {"engram_compressed_vocab_size", "0"},
    {"num_nextn_predict_layers", "3"},
    {"dspark_target_layer_ids", "[7, 8, 9]"},
    {"dspark_block_size", "5"},
    {"dspark_noise_token_id", "300"},
    {"dspark_markov_rank", "32"},
    {"dspark_n_routed_experts", "6"},
    {"dspark_num_experts_per_tok", "2"},
};

static void push_pairs(by_buf *b, const pair *pairs, size_t n, const pair *over, size_t n_over, bool *first) {
    for (size_t i = 0; i < n; i++) {
        const char *value = pairs[i].value;
        for (size_t k = 0; k < n_over; k++)
            if (strcmp(over[k].key, pairs[i].key) == 0) value = over[k].value;
        if (!value) continue;
        by_buf_printf(b, "%s\"%s\": %s", *first ? "" : ",\n", pairs[i].key, value);
        *first = false;
    }
}

/* Keys of `over` that are in neither list go to the text level. */
static void push_unknown(by_buf *b, const pair *over, size_t n_over) {
    for (size_t k = 0; k < n_over; k++) {
        bool known = false;
        for (size_t i = 0; i < COUNT(top_keys); i++)
            known = known || strcmp(top_keys[i].key, over[k].key) == 0;
        for (size_t i = 0; i < COUNT(text_keys); i++)
            known = known || strcmp(text_keys[i].key, over[k].key) == 0;
        if (!known && over[k].value) by_buf_printf(b, ",\n\"%s\": %s", over[k].key, over[k].value);
    }
}

static by_buf make_config(const pair *over, size_t n_over, bool flat) {
    by_buf b = {0};
    bool first = true;
    by_buf_push_z(&b, "{");
    push_pairs(&b, top_keys, COUNT(top_keys), over, n_over, &first);
    if (!flat) {
        by_buf_push_z(&b, ",\n\"text_config\": {");
        first = true;
    }
    push_pairs(&b, text_keys, COUNT(text_keys), over, n_over, &first);
    push_unknown(&b, over, n_over);
    by_buf_push_z(&b, flat ? "}\n" : "}}\n");
    assert_false(b.failed);
    return b;
}

static by_status parse(by_config *c, const pair *over, size_t n_over, by_problems *problems, by_err *err) {
    by_buf text = make_config(over, n_over, false);
    by_status status = by_config_parse(c, by_buf_str(&text), problems, err);
    by_buf_deinit(&text);
    return status;
}

static by_config g_config;

static void a_complete_config_gives_every_value_and_layer_kind(void **state) {
    (void)state;
    by_config *c = &g_config;
    by_err err = {0};
    by_status status = parse(c, NULL, 0, NULL, &err);
    if (status != BY_OK) fail_msg("%s", err.msg);
    assert_int_equal(c->vocab_size, 320);
    assert_int_equal(c->n_layers, 10);
    assert_true(c->rms_norm_eps == 1e-20);
    assert_true(c->rope_scaling.yarn && c->rope_scaling.factor == 16 && c->rope_scaling.original_max_positions == 256);
    assert_true(c->fp4_sparse_kv);
    assert_int_equal(c->shared_width, 32);
    assert_int_equal(c->image_id, 310);
    static const by_layer_kind kinds[] = {BY_LAYER_WINDOW,  BY_LAYER_WINDOW, BY_LAYER_FULL, BY_LAYER_REUSE,
                                          BY_LAYER_FULL,    BY_LAYER_REUSE,  BY_LAYER_FULL, BY_LAYER_REUSE,
                                          BY_LAYER_REINDEX, BY_LAYER_REUSE};
    static const int kv[] = {-1, -1, 2, 2, 4, 4, 6, 6, 6, 6}, index[] = {-1, -1, 2, 2, 4, 4, 6, 6, 8, 8};
    for (int l = 0; l < 10; l++) {
        const by_layer *layer = &c->layers[l];
        assert_int_equal(layer->kind, kinds[l]);
        assert_int_equal(layer->kv_source, kv[l]);
        assert_int_equal(layer->index_source, index[l]);
        assert_int_equal(layer->engram, l == 1 ? 0 : l == 4 ? 1 : -1);
        assert_int_equal(layer->uses_candidates, l == 8);
        assert_int_equal(layer->picks_candidates, l == 6);
        assert_int_equal(layer->is_draft_target, l >= 7);
    }
    assert_int_equal(c->last_kv_source, 6);
    assert_int_equal(c->engram.n_rows[1], 864);
    assert_int_equal(c->engram.primes[0][0][0], 101);
    assert_int_equal(c->draft.n_targets, 3);
    assert_int_equal(c->vision.min_pixels, 5880);
}

static void a_flat_config_reads_like_a_nested_one(void **state) {
    (void)state;
    static by_config flat;
    by_err err = {0};
    /* the image tower stays a nested object: its keys repeat the trunk's names */
    by_buf text = make_config(NULL, 0, true);
    by_status status = by_config_parse(&flat, by_buf_str(&text), NULL, &err);
    if (status != BY_OK) fail_msg("%s", err.msg);
    assert_int_equal(parse(&g_config, NULL, 0, NULL, &err), BY_OK);
    assert_memory_equal(&flat, &g_config, sizeof flat);
    by_buf_deinit(&text);
}

static void optional_keys_have_their_documented_defaults(void **state) {
    (void)state;
    static const pair over[] = {
        {"rope_scaling", "null"},
        {"engram_layer_ids", NULL},
        {"num_nextn_predict_layers", NULL},
        {"vision_config", NULL},
        {"image_token_id", NULL},
        {"candidate_source_layer_id", "null"},
        {"index_k_source_layer_ids", NULL},
        {"num_key_value_heads", NULL},
        {"n_shared_experts", NULL},
        {"quantization_config", NULL},
        {"compress_ratios", "[0, 0, 2, 2, 2, 2, 1, 1, 1, 1]"},
        {"use_fp4_sparse_kv", "false"},
        {"some_new_key", "{\"a\": [1, 2]}"},
    };
    by_config *c = &g_config;
    by_err err = {0};
    if (parse(c, over, COUNT(over), NULL, &err) != BY_OK) fail_msg("%s", err.msg);
    assert_false(c->rope_scaling.yarn);
    assert_int_equal(c->engram.n_layers, 0);
    assert_int_equal(c->draft.n_layers, 0);
    assert_int_equal(c->vision.n_layers, 0);
    assert_int_equal(c->image_id, -1);
    assert_int_equal(c->candidate_source, -1);
    assert_false(c->layers[8].uses_candidates);
    assert_int_equal(c->n_shared_experts, 1);
    assert_false(c->fp4_sparse_kv);
}

static void a_window_only_model_needs_no_index_keys(void **state) {
    (void)state;
    static const pair over[] = {
        {"compress_ratios", "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"},
        {"kv_source_layer_ids", "[]"},
        {"index_source_layer_ids", NULL},
        {"index_k_source_layer_ids", NULL},
        {"index_topk", NULL},
        {"index_n_heads", NULL},
        {"index_head_dim", NULL},
        {"candidate_source_layer_id", "-1"},
        {"compress_rope_theta", NULL},
        {"swiglu_limit", "0"}, /* no clamp */
    };
    by_err err = {0};
    if (parse(&g_config, over, COUNT(over), NULL, &err) != BY_OK) fail_msg("%s", err.msg);
    assert_true(g_config.swiglu_limit == 0);
    assert_int_equal(g_config.last_kv_source, -1);
    assert_int_equal(g_config.layers[9].kind, BY_LAYER_WINDOW);
}

typedef struct {
    const char *key, *value, *expect; /* expect: part of the message */
} bad_case;

static const bad_case bad_cases[] = {
    /* missing, wrong type, out of range */
    {"vocab_size", NULL, "vocab_size: missing"},
    {"hidden_size", "null", "hidden_size: null"},
    {"hidden_size", "-64", "hidden_size: -64 is outside"},
    {"hidden_size", "9223372036854775807", "hidden_size: 9223372036854775807 is outside"},
    {"hidden_size", "18446744073709551615", "hidden_size: 18446744073709551615 is outside"},
    {"hidden_size", "1e30", "hidden_size: expected an integer, found 1e30"},
    {"hidden_size", "64.5", "hidden_size: expected an integer, found 64.5"},
    {"hidden_size", "\"64\"", "hidden_size: expected an integer, found the string \"64\""},
    {"hidden_size", "[64]", "hidden_size: expected an integer, found array"},
    {"hidden_size", "0", "hidden_size: 0 is outside"},
    {"num_hidden_layers", "1000000", "num_hidden_layers: 1000000 is outside"},
    {"num_hidden_layers", "true", "num_hidden_layers: expected an integer, found true"},
    {"rms_norm_eps", "0", "rms_norm_eps: 0 is outside"},
    {"rms_norm_eps", "\"small\"", "rms_norm_eps: expected a number"},
    {"rope_theta", "-1", "rope_theta: -1 is outside"},
    {"compress_rope_theta", NULL, "compress_rope_theta: missing"},
    {"swiglu_limit", "-10", "swiglu_limit: -10 is outside"},
    {"max_position_embeddings", "0", "max_position_embeddings: 0"},
    {"sliding_window", "0", "sliding_window: 0"},
    {"eos_token_id", NULL, "eos_token_id: missing"},
    {"eos_token_id", "320", "eos_token_id: 320 is outside 0..319"},
    {"image_token_id", NULL, "image_token_id: missing, and there is a vision_config"},
    {"use_fp4_sparse_kv", "1", "use_fp4_sparse_kv: expected true or false"},
    /* variants that are not supported */
    {"architectures", "[\"LlamaForCausalLM\"]", "this is a checkpoint of LlamaForCausalLM"},
    {"architectures", "[]", "only DeepseekV41ForCausalLM"},
    {"model_type", "\"deepseek_v3\"", "model_type: \"deepseek_v3\" is not supported"},
    {"hidden_act", "\"gelu\"", "hidden_act"},
    {"scoring_func", "\"sigmoid\"", "scoring_func"},
    {"topk_method", "\"greedy\"", "topk_method"},
    {"norm_topk_prob", "false", "norm_topk_prob"},
    {"attention_bias", "true", "attention_bias"},
    {"tie_word_embeddings", "true", "tie_word_embeddings"},
    {"num_key_value_heads", "4", "num_key_value_heads: 4"},
    {"hc_shifted", "false", "hc_shifted: false is not supported: it selects the hyper-connections of DeepSeek-V4"},
    {"quantization_config", "{\"weight_block_size\": [128, 128]}", "weight_block_size: [128, 128]"},
    {"quantization_config", "{\"expert_dtype\": \"fp8\"}", "expert_dtype"},
    {"quantization_config", "7", "quantization_config: expected an object"},
    {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2}", "rope_scaling.rope_type: \"linear\""},
    {"rope_scaling", "{\"factor\": 2}", "rope_scaling.rope_type: missing"},
    {"rope_scaling", "\"yarn\"", "rope_scaling: expected null or an object"},
    {"rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 0.5, \"beta_fast\": 32, \"beta_slow\": 1,"
     "\"original_max_position_embeddings\": 256}",
     "factor: 0.5 is outside"},
    {"rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 1, \"beta_slow\": 32,"
     "\"original_max_position_embeddings\": 256}",
     "beta_fast 1 is below beta_slow 32"},
    {"dspark_target_attn_input", "false", "dspark_target_attn_input: false"},
    /* divisibility and order of sizes */
    {"hidden_size", "65", "hidden_size: 65 is not a multiple of 32"},
    {"head_dim", "40", "head_dim: 40 is not a multiple of 32"},
    {"q_lora_rank", "33", "q_lora_rank: 33"},
    {"o_lora_rank", "16", "o_lora_rank: 16"},
    {"moe_intermediate_size", "48", "moe_intermediate_size: 48"},
    {"index_head_dim", "48", "index_head_dim: 48"},
    {"engram_head_dim", "31", "engram_head_dim: 31"},
    {"qk_rope_head_dim", "15", "qk_rope_head_dim: 15"},
    {"qk_rope_head_dim", "34", "qk_rope_head_dim: 34 is above head_dim 32"},
    {"o_groups", "3", "num_attention_heads: 4 is not a multiple of 3"},
    {"num_experts_per_tok", "9", "num_experts_per_tok: 9 is above n_routed_experts 8"},
    {"num_experts_per_tok", "65", "num_experts_per_tok: 65 is outside 1..64"},
    {"dspark_num_experts_per_tok", "7", "dspark_num_experts_per_tok: 7 is above dspark_n_routed_experts 6"},
    /* layers */
    {"compress_ratios", "[0, 0, 2, 2, 2, 2, 1, 1, 1, 1]", "compress_ratios: 10 entries, but"},
    {"compress_ratios", "[0, 0, 2, 2, 2, 2, 1, 1, 1, 4, 0, 0, 0]", "compress_ratios[9]: 4 is outside 0..2"},
    {"compress_ratios", "[0, 0, 2, 2, 2, 2, 1, 1, 1, -1, 0, 0, 0]", "compress_ratios[9]: -1 is outside 0..2"},
    {"compress_ratios", "[0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 1, 0]", "compress_ratios[11]: 1, but draft layers"},
    {"compress_ratios", "[0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0]",
     "kv_source_layer_ids: layer 5 has ratio 1, its source 4"},
    {"compress_ratios", "[0, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0]",
     "layer 1 has ratio 2, but no source at or before it"},
    {"compress_ratios", "[0, 0, 2, 2, 0, 2, 1, 1, 1, 1, 0, 0, 0]", "layer 4 is a window layer"},
    {"kv_source_layer_ids", NULL, "kv_source_layer_ids: missing"},
    {"kv_source_layer_ids", "[4, 2, 6]", "kv_source_layer_ids: 2 follows 4"},
    {"kv_source_layer_ids", "[2, 2, 6]", "kv_source_layer_ids: 2 follows 2"},
    {"kv_source_layer_ids", "[2, 4, 10]", "kv_source_layer_ids[2]: 10 is outside 0..9"},
    {"kv_source_layer_ids", "[2, 4, 6, 7]", "KV source 7 is not among them"},
    {"index_source_layer_ids", "[2, 4, 8, 6]", "index_source_layer_ids: 6 follows 8"},
    {"index_source_layer_ids", "[4, 6, 8]", "KV source 2 is not among them"},
    {"index_k_source_layer_ids", "[2, 4]", "index_k_source_layer_ids: differs"},
    {"candidate_source_layer_id", "7", "layer 7 is not an index source"},
    {"candidate_source_layer_id", "10", "candidate_source_layer_id: 10 is outside"},
    {"candidate_source_layer_id", "2", "index source 4 reads the KV of layer 4, the candidates are of 2"},
    {"candidate_topk_blocks", "12", "candidate_topk_blocks: 12 is not a multiple of 8"},
    {"candidate_block_size", "4", "candidate_block_size: 4"},
    {"index_topk", "65", "8 blocks of 8 hold fewer entries than index_topk 65"},
    /* Engram */
    {"engram_num_embeddings", NULL, "engram_num_embeddings: missing"},
    {"engram_num_embeddings", "[660, 865]",
     "engram_num_embeddings[1]: 865, but the 6 table sizes of layer 4 sum to 864"},
    {"engram_num_embeddings", "[660]", "engram_num_embeddings: 1 entries for 2"},
    {"engram_layer_ids", "[4, 1]", "engram_layer_ids: 1 follows 4"},
    {"engram_layer_ids", "[1, 10]", "engram_layer_ids[1]: 10 is outside 0..9"},
    {"engram_layer_ids", "[0,1,2,3,4,5,6,7,8,9,0,0,0,0,0,0,0]", "engram_layer_ids: 17 entries, at most 16"},
    {"engram_max_ngram_size", "9", "engram_max_ngram_size: 9 is outside 2..8"},
    {"engram_vocab_size", "4000000000", "engram_vocab_size: 4000000000 is outside"},
    {"engram_compressed_vocab_size", "321", "engram_compressed_vocab_size: 321 is outside 0..320"},
    {"engram_pad_token_id", "-1", "engram_pad_token_id: -1 is outside"},
    /* drafts */
    {"dspark_block_size", NULL, "dspark_block_size: missing"},
    {"dspark_target_layer_ids", "[]", "dspark_target_layer_ids: empty"},
    {"dspark_target_layer_ids", "[7, 7, 9]", "layer 7 appears twice"},
    {"dspark_target_layer_ids", "[7, 8, 10]", "dspark_target_layer_ids[2]: 10 is outside 0..9"},
    {"dspark_noise_token_id", "320", "dspark_noise_token_id: 320 is outside 0..319"},
    {"num_nextn_predict_layers", "-1", "num_nextn_predict_layers: -1 is outside"},
    {"num_nextn_predict_layers", "2",
     "compress_ratios: 13 entries, but num_hidden_layers 10 and num_nextn_predict_layers 2 need 12"},
    /* images */
    {"vision_config", "[]", "vision_config: expected an object"},
    {"vision_config", "{\"num_hidden_layers\": 2}", "vision_config.hidden_size: missing"},
    {"vision_config",
     "{\"num_hidden_layers\": 2, \"hidden_size\": 36, \"num_attention_heads\": 2, \"intermediate_size\": 64,"
     "\"patch_size\": 14, \"rope_theta\": 10000.0, \"downsample_ratio\": 3, \"max_image_tokens\": 40}",
     "vision_config.hidden_size: 36 is not a multiple of 4 x num_attention_heads 2"},
};

static void each_bad_value_is_refused_with_its_key(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(bad_cases); i++) {
        const bad_case *b = &bad_cases[i];
        by_problems problems = {0};
        by_err err = {0};
        by_status status = parse(&g_config, &(pair){b->key, b->value}, 1, &problems, &err);
        if (status != BY_EFORMAT) fail_msg("%s = %s was accepted", b->key, b->value ? b->value : "(missing)");
        const char *text = by_buf_z(&problems.text);
        if (!strstr(text, b->expect))
            fail_msg("%s = %s: expected '%s' in '%s'", b->key, b->value ? b->value : "(missing)", b->expect, text);
        if (err.msg[0] == '\0' || problems.n < 1) fail_msg("%s: no message", b->key);
        by_problems_deinit(&problems);
    }
}

static void several_problems_are_reported_together(void **state) {
    (void)state;
    static const pair over[] = {
        {"vocab_size", NULL},
        {"hidden_size", "-1"},
        {"head_dim", "33"},
        {"hc_shifted", "false"},
        {"engram_num_embeddings", "[660, 1]"},
        {"kv_source_layer_ids", "[2, 4]"},
        {"dspark_block_size", "1000"},
    };
    static const char *const expect[] = {"vocab_size: missing",
                                         "hidden_size: -1",
                                         "head_dim: 33",
                                         "hc_shifted: false",
                                         "engram_num_embeddings[1]: 1",
                                         "layer 6 has ratio 1, its source 4",
                                         "dspark_block_size: 1000"};
    by_problems problems = {0};
    by_err err = {0};
    assert_int_equal(parse(&g_config, over, COUNT(over), &problems, &err), BY_EFORMAT);
    const char *text = by_buf_z(&problems.text);
    for (size_t i = 0; i < COUNT(expect); i++)
        if (!strstr(text, expect[i])) fail_msg("'%s' is missing in '%s'", expect[i], text);
    assert_non_null(strstr(err.msg, "problems"));
    by_problems_deinit(&problems);
}

static void a_newer_spelling_of_rope_is_not_passed_over(void **state) {
    (void)state;
    static const pair over[] = {{"rope_scaling", NULL}, {"rope_parameters", "{\"rope_type\": \"yarn\"}"}};
    by_err err = {0};
    assert_int_equal(parse(&g_config, over, COUNT(over), NULL, &err), BY_EFORMAT);
    assert_non_null(strstr(err.msg, "rope_parameters"));
}

static void more_experts_than_tensors_are_refused(void **state) {
    (void)state;
    static const pair over[] = {{"n_routed_experts", "65536"}, {"dspark_n_routed_experts", "65536"}};
    by_err err = {0};
    assert_int_equal(parse(&g_config, over, COUNT(over), NULL, &err), BY_EFORMAT);
    assert_non_null(strstr(err.msg, "n_routed_experts: all layers together need 5111808 expert tensors"));
}

static void text_that_is_not_a_json_object_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "{", "[1, 2]", "null", "{\"vocab_size\": 1,}", "{\"vocab_size\": \"\xff\"}", "\xef\xbb\xbf{}"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        by_err err = {0};
        assert_int_equal(by_config_parse(&g_config, by_str_z(texts[i]), NULL, &err), BY_EFORMAT);
        assert_true(err.msg[0] != '\0');
        assert_int_equal(by_config_parse(&g_config, by_str_z(texts[i]), NULL, NULL), BY_EFORMAT);
    }
    by_err err = {0};
    assert_int_equal(by_config_parse(&g_config, by_str_z("{\"text_config\": 3}"), NULL, &err), BY_EFORMAT);
    assert_non_null(strstr(err.msg, "text_config: expected an object, found 3"));
    by_buf deep = {0};
    for (int i = 0; i < 100000; i++)
        by_buf_push_byte(&deep, '[');
    assert_true(by_config_parse(&g_config, by_buf_str(&deep), NULL, NULL) < 0);
    by_buf_deinit(&deep);
}

static void a_missing_file_names_its_path(void **state) {
    (void)state;
    by_err err = {0};
    by_problems problems = {0};
    assert_int_equal(by_config_load(&g_config, "/nowhere/at/all", &problems, &err), BY_EMISSING);
    assert_non_null(strstr(err.msg, "/nowhere/at/all/config.json"));
    assert_int_equal(problems.n, 1);
    by_problems_deinit(&problems);
}

static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    static const char *const dir = BATHYC_SOURCE_DIR "/models/tiny";
    int64_t before = by_alloc_bytes_total();
    for (int64_t n = 1;; n++) {
        by_problems problems = {0};
        by_err err = {0};
        uint64_t calls = by_alloc_calls();
        by_alloc_fail_nth(n);
        by_status status = by_config_load(&g_config, dir, &problems, &err);
        by_alloc_fail_nth(0);
        by_problems_deinit(&problems);
        assert_int_equal(by_alloc_bytes_total(), before);
        if ((int64_t)(by_alloc_calls() - calls) < n) {
            assert_int_equal(status, BY_OK);
            break;
        }
        assert_int_equal(status, BY_ENOMEM);
    }
}

static void primes_are_the_published_ones(void **state) {
    (void)state;
    static uint32_t p[48];
    by_primes_from(16000000, 48, p);
    assert_int_equal(p[0], 16000057);
    assert_int_equal(p[1], 16000079);
    assert_int_equal(p[2], 16000081);
    assert_int_equal(p[47], 16000889);
    int64_t sums[2] = {0};
    for (int i = 0; i < 48; i++)
        sums[i / 24] += p[i];
    assert_int_equal(sums[0], 384006168);
    assert_int_equal(sums[1], 384016682);
}

static void prime_test_agrees_with_a_sieve(void **state) {
    (void)state;
    enum { N = 100000 };
    static bool composite[N];
    for (int i = 2; i < N; i++)
        for (int k = 2 * i; k < N; k += i)
            composite[k] = true;
    for (int i = 0; i < N; i++)
        assert_int_equal(by_prime_is((uint32_t)i), i >= 2 && !composite[i]);
    /* strong pseudoprimes to the first bases */
    static const uint32_t liars[] = {2047, 1373653, 25326001, 1194649};
    for (int i = 0; i < 4; i++)
        assert_false(by_prime_is(liars[i]));
    assert_true(by_prime_is(2147483647u));
    assert_false(by_prime_is(2147483649u));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_config_gives_every_value_and_layer_kind),
        cmocka_unit_test(a_flat_config_reads_like_a_nested_one),
        cmocka_unit_test(optional_keys_have_their_documented_defaults),
        cmocka_unit_test(a_window_only_model_needs_no_index_keys),
        cmocka_unit_test(each_bad_value_is_refused_with_its_key),
        cmocka_unit_test(several_problems_are_reported_together),
        cmocka_unit_test(a_newer_spelling_of_rope_is_not_passed_over),
        cmocka_unit_test(more_experts_than_tensors_are_refused),
        cmocka_unit_test(text_that_is_not_a_json_object_is_refused),
        cmocka_unit_test(a_missing_file_names_its_path),
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(primes_are_the_published_ones),
        cmocka_unit_test(prime_test_agrees_with_a_sieve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
