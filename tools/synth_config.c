/* synth_config.c - see synth_config.h. Works on the JSON tree, so that keys this program does not know survive. */
#include "synth_config.h"

#include <stdio.h>
#include <string.h>

#include "json/json_write.h"
#include "model/primes.h"

enum { MAX_LIST = 2048 };

typedef struct {
    by_arena arena;
    by_json top;
    by_json *text; /* text_config or the top */
    by_err *err;
} editor;

/* ---- reading and changing members ---- */

static by_json *member(by_json *obj, const char *key) {
    for (uint32_t i = obj->n; obj->type == BY_JSON_OBJECT && i-- > 0;)
        if (by_str_eqz(obj->v.members[i].key, key)) return &obj->v.members[i].value;
    return NULL;
}

static by_status put(editor *e, by_json *obj, const char *key, by_json value) {
    by_json *old = member(obj, key);
    if (old) {
        *old = value;
        return BY_OK;
    }
    by_json_member *more = by_arena_alloc(&e->arena, sizeof *more * (obj->n + 1));
    by_str name = by_arena_dup(&e->arena, by_str_z(key));
    if (!more || !name.ptr) return BY_FAIL(e->err, BY_ENOMEM, "out of memory for %s", key);
    if (obj->n) memcpy(more, obj->v.members, sizeof *more * obj->n);
    more[obj->n] = (by_json_member){.key = name, .value = value};
    obj->v.members = more;
    obj->n++;
    return BY_OK;
}

static by_status put_int(editor *e, const char *key, int64_t v) {
    return put(e, e->text, key, (by_json){.type = BY_JSON_INT, .v.i = v});
}

static by_status put_list(editor *e, const char *key, const int64_t *v, int n) {
    by_json *items = by_arena_alloc(&e->arena, sizeof *items * (size_t)(n + 1));
    if (!items) return BY_FAIL(e->err, BY_ENOMEM, "out of memory for %s", key);
    for (int i = 0; i < n; i++)
        items[i] = (by_json){.type = BY_JSON_INT, .v.i = v[i]};
    return put(e, e->text, key, (by_json){.type = BY_JSON_ARRAY, .n = (uint32_t)n, .v.items = items});
}

static int64_t get_int(editor *e, const char *key, int64_t otherwise) {
    const by_json *v = member(e->text, key);
    return v && v->type == BY_JSON_INT ? v->v.i : otherwise;
}

static int get_list(editor *e, const char *key, int64_t out[MAX_LIST]) {
    const by_json *v = member(e->text, key);
    int n = 0;
    if (!v || v->type != BY_JSON_ARRAY) return 0;
    for (uint32_t i = 0; i < v->n && n < MAX_LIST; i++)
        if (v->v.items[i].type == BY_JSON_INT) out[n++] = v->v.items[i].v.i;
    return n;
}

/* ---- sizes ---- */

/* New layer i takes the ratio of old layer i * from / to; a source moves to the first new layer at or behind it, and is
 * dropped when that one has another ratio or is taken. */
static int move_sources(const int64_t *old_ratio, const int64_t *ratio, int64_t from, int64_t to, int64_t *ids, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int64_t at = (ids[i] * to + from - 1) / from;
        if (ids[i] >= from || at >= to || ratio[at] != old_ratio[ids[i]] || (kept > 0 && ids[kept - 1] >= at)) continue;
        ids[kept++] = at;
    }
    return kept;
}

static by_status set_layers(editor *e, int64_t to) {
    int64_t old[MAX_LIST], ratio[MAX_LIST] = {0}, ids[MAX_LIST], from = get_int(e, "num_hidden_layers", 0);
    int n_ratio = get_list(e, "compress_ratios", old), drafts = (int)get_int(e, "num_nextn_predict_layers", 0);
    if (from <= 0 || from > n_ratio || to > BY_LIMIT_LAYERS || to + drafts > MAX_LIST)
        return BY_FAIL(e->err, BY_EINVAL, "the number of layers cannot be changed to %d", (int)to);
    for (int64_t i = 0; i < to; i++)
        ratio[i] = old[i * from / to];
    static const char *const lists[] = {"kv_source_layer_ids", "index_k_source_layer_ids", "index_source_layer_ids"};
    for (int k = 0; k < 3; k++) {
        int n = get_list(e, lists[k], ids);
        if (n > 0) BY_TRY(put_list(e, lists[k], ids, move_sources(old, ratio, from, to, ids, n)));
    }
    ids[0] = get_int(e, "candidate_source_layer_id", -1);
    if (ids[0] >= 0)
        BY_TRY(put_int(e, "candidate_source_layer_id", move_sources(old, ratio, from, to, ids, 1) ? ids[0] : -1));
    int n = get_list(e, "engram_layer_ids", ids), kept = 0;
    for (int i = 0; i < n; i++) {
        int64_t at = (ids[i] * to + from - 1) / from;
        if (at < to && (kept == 0 || ids[kept - 1] < at)) ids[kept++] = at;
    }
    if (n > 0) BY_TRY(put_list(e, "engram_layer_ids", ids, kept));
    n = get_list(e, "dspark_target_layer_ids", ids);
    if (n > to) n = (int)to;
    for (int i = 0; i < n; i++)
        ids[i] = to - n + i; /* the drafts read the last layers */
    if (n > 0) BY_TRY(put_list(e, "dspark_target_layer_ids", ids, n));
    BY_TRY(put_int(e, "num_hidden_layers", to));
    return put_list(e, "compress_ratios", ratio, (int)to + drafts);
}

static by_status limit(editor *e, const char *key, int64_t max) {
    int64_t v = get_int(e, key, 0);
    return v > max ? put_int(e, key, max) : BY_OK;
}

static by_status set_experts(editor *e, int64_t n) {
    BY_TRY(put_int(e, "n_routed_experts", n));
    BY_TRY(limit(e, "num_experts_per_tok", n));
    BY_TRY(limit(e, "dspark_n_routed_experts", n));
    return limit(e, "dspark_num_experts_per_tok", n);
}

static by_status set_vocab(editor *e, int64_t n) {
    BY_TRY(put_int(e, "vocab_size", n));
    BY_TRY(limit(e, "engram_compressed_vocab_size", n));
    BY_TRY(limit(e, "dspark_noise_token_id", n - 2));
    by_json *image = member(&e->top, "image_token_id");
    if (image && image->type == BY_JSON_INT && image->v.i >= n) image->v.i = n - 1;
    return BY_OK;
}

static by_status remove_drafts(editor *e) {
    int64_t ratio[MAX_LIST], layers = get_int(e, "num_hidden_layers", 0);
    int n = get_list(e, "compress_ratios", ratio);
    BY_TRY(put_int(e, "num_nextn_predict_layers", 0));
    BY_TRY(put_list(e, "dspark_target_layer_ids", NULL, 0));
    return put_list(e, "compress_ratios", ratio, n < layers ? n : (int)layers);
}

/* key=JSON; a key with a point, or one that the top level has, is not the text trunk's. */
static by_status set_one(editor *e, const char *item) {
    const char *eq = strchr(item, '='), *dot;
    char key[128];
    by_json value;
    if (!eq || eq == item || (size_t)(eq - item) >= sizeof key)
        return BY_FAIL(e->err, BY_EINVAL, "--set %s: expected key=value", item);
    memcpy(key, item, (size_t)(eq - item));
    key[eq - item] = '\0';
    by_str copy = by_arena_dup(&e->arena, by_str_z(eq + 1));
    if (!copy.ptr) return BY_FAIL(e->err, BY_ENOMEM, "out of memory for --set");
    if (by_json_parse(&value, &e->arena, copy, NULL, e->err) < 0) return by_err_prefix(e->err, "--set %s: ", key);
    by_json *obj = member(&e->top, key) ? &e->top : e->text;
    const char *name = key;
    if ((dot = strchr(key, '.')) != NULL) {
        char outer[128];
        memcpy(outer, key, (size_t)(dot - key));
        outer[dot - key] = '\0';
        obj = member(&e->top, outer);
        if (!obj) obj = member(e->text, outer);
        if (!obj || obj->type != BY_JSON_OBJECT)
            return BY_FAIL(e->err, BY_EINVAL, "--set %s: there is no object %s", key, outer);
        name = dot + 1;
    }
    return put(e, obj, name, value);
}

/* The rows of a table are the sum of its primes, which by_config_parse checks. */
static by_status sum_engram_rows(editor *e) {
    int64_t ids[MAX_LIST], rows[BY_LIMIT_ENGRAM_LAYERS] = {0};
    int n = get_list(e, "engram_layer_ids", ids);
    int64_t vocab = get_int(e, "engram_vocab_size", 0), heads = get_int(e, "engram_n_heads", 0);
    int64_t sizes = get_int(e, "engram_max_ngram_size", 0) - 1;
    if (n == 0) return put_list(e, "engram_num_embeddings", NULL, 0);
    if (n > BY_LIMIT_ENGRAM_LAYERS || vocab < 2 || vocab > BY_LIMIT_PRIME_START || heads < 1 ||
        heads > BY_LIMIT_ENGRAM_HEADS || sizes < 1 || sizes >= BY_LIMIT_NGRAM)
        return BY_OK; /* left to the check, which names the key */
    uint32_t primes[BY_LIMIT_ENGRAM_LAYERS * BY_LIMIT_ENGRAM_HEADS * BY_LIMIT_NGRAM];
    int per_layer = (int)(heads * sizes);
    by_primes_from((uint32_t)vocab, per_layer * n, primes);
    for (int i = 0; i < per_layer * n; i++)
        rows[i / per_layer] += primes[i];
    return put_list(e, "engram_num_embeddings", rows, n);
}

static by_status edit(editor *e, const by_synth_config_opts *o) {
    by_json *nested = member(&e->top, "text_config");
    e->text = nested && nested->type == BY_JSON_OBJECT ? nested : &e->top;
    if (o->no_drafts) BY_TRY(remove_drafts(e));
    if (o->n_layers > 0) BY_TRY(set_layers(e, o->n_layers));
    if (o->n_experts > 0) BY_TRY(set_experts(e, o->n_experts));
    if (o->vocab > 0) BY_TRY(set_vocab(e, o->vocab));
    if (o->engram_vocab > 0) BY_TRY(put_int(e, "engram_vocab_size", o->engram_vocab));
    if (o->no_compression) BY_TRY(put_int(e, "engram_compressed_vocab_size", 0));
    if (o->no_engram) BY_TRY(put_list(e, "engram_layer_ids", NULL, 0));
    if (o->no_vision) BY_TRY(put(e, &e->top, "vision_config", (by_json){.type = BY_JSON_NULL}));
    for (int i = 0; i < o->sets.n; i++)
        BY_TRY(set_one(e, o->sets.items[i]));
    return sum_engram_rows(e);
}

by_status by_synth_config_make(by_buf *text, by_config *out, const by_synth_config_opts *opts, by_problems *problems,
                               by_err *err) {
    editor e = {.err = err};
    by_buf source = {0};
    by_arena_init(&e.arena, BY_MEM_MISC);
    by_status status = by_json_read_file(&e.top, &e.arena, &source, opts->path, err);
    if (status == BY_OK && e.top.type != BY_JSON_OBJECT)
        status = BY_FAIL(err, BY_EFORMAT, "%s: not an object", opts->path);
    if (status == BY_OK) status = edit(&e, opts);
    if (status == BY_OK) {
        by_json_write(text, &e.top, BY_JSON_PYTHON);
        by_buf_push_byte(text, '\n');
        status = by_buf_check(text, err);
    }
    if (status == BY_OK) status = by_config_parse(out, by_buf_str(text), problems, err);
    by_arena_deinit(&e.arena);
    by_buf_deinit(&source);
    return status;
}
