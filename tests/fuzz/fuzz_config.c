/* fuzz_config.c - any text as a config.json: it is refused with a reason, or it keeps what config.h promises and the
 * tensor table and the cache sizes can be computed from it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/footprint.h"
#include "model/tensor_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool promise) {
    if (!promise) abort();
}

static by_status visit(void *ctx, const by_tensor_spec *s, by_err *err) {
    (void)err;
    must(memchr(s->name, '\0', sizeof s->name) != NULL);
    must(s->shape[0] > 0 && s->shape[1] > 0 && by_tensor_spec_bytes(s) > 0);
    return ++*(int *)ctx < 20000 ? BY_OK : BY_ELIMIT;
}

static void check_layers(const by_config *c) {
    for (int l = 0; l < c->n_layers; l++) {
        const by_layer *layer = &c->layers[l];
        must((layer->kind == BY_LAYER_WINDOW) == (layer->ratio == 0));
        must(layer->engram >= -1 && layer->engram < c->engram.n_layers);
        if (layer->ratio == 0) {
            must(layer->kv_source == -1 && layer->index_source == -1 && !layer->is_kv_source &&
                 !layer->is_index_source);
            continue;
        }
        must(layer->kv_source >= 0 && layer->kv_source <= layer->index_source && layer->index_source <= l);
        must(c->layers[layer->kv_source].is_kv_source && c->layers[layer->kv_source].ratio == layer->ratio);
        must(c->layers[layer->index_source].is_index_source && c->layers[layer->index_source].ratio == layer->ratio);
        must(c->layers[layer->index_source].kv_source == layer->kv_source);
        must(layer->kv_source <= c->last_kv_source);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static by_config c;
    by_err err = {0};
    by_problems problems = {0};
    by_status status = by_config_parse(&c, by_str_of((const char *)data, size), &problems, &err);
    if (status < 0) {
        must(err.msg[0] != '\0' && problems.n > 0);
    } else {
        must(problems.n == 0);
        must(c.hidden_size % 32 == 0 && c.head_dim % 32 == 0 && c.n_heads % c.o_groups == 0);
        must(c.rope_dim % 2 == 0 && c.rope_dim <= c.head_dim);
        check_layers(&c);
        int n = 0;
        (void)by_tensor_table_walk(&c, visit, &n, NULL);
        by_footprint f;
        by_memory_plan plan;
        must(by_footprint_of(&c, c.draft.block_size, &f, &err) == BY_OK);
        by_footprint_plan(&f, c.max_positions, 1, &plan);
        must(f.layout.slot_bytes > 0 && plan.slot_bytes > 0 && plan.block_bytes >= 0);
    }
    by_problems_deinit(&problems);
    return 0;
}
