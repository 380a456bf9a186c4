/* test_checkpoint.c - whole directories: what is accepted, one case for each way to be broken, values that are not
 * numbers, memory failures. Each case takes the tensors of the first_light golden, changes something, and writes a
 * directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/checkpoint.h"
#include "model/name_map.h"

#define SOURCE BATHYC_SOURCE_DIR "/tests/golden/data/model/first_light/checkpoint"
#define INDEX  "model.safetensors.index.json"

enum { MAX_ITEMS = 300, MAX_SHARDS = 3, SAME = -2, NOWHERE = -1 };

typedef struct {
    char name[96], dtype[16], shape[48];
    unsigned char *data;
    size_t n;
    int shard, index_shard; /* index_shard SAME: as shard; NOWHERE: not in that place */
    long force_begin;       /* -1: behind the one before */
} item;

typedef struct {
    item items[MAX_ITEMS];
    int n, n_shards;
    bool without_index;
    const char *pad; /* blanks behind the headers */
    char dir[64];
} fixture;

static by_config g_config;
static fixture g_source; /* pristine */

/* ---- building ---- */

static int setup_source(void **state) {
    (void)state;
    by_err err = {0};
    by_checkpoint *ck = NULL;
    if (by_config_load(&g_config, SOURCE, NULL, &err) != BY_OK ||
        by_checkpoint_open(&ck, SOURCE, &g_config, NULL, &err) != BY_OK) {
        print_error("%s\n", err.msg);
        return -1;
    }
    for (size_t i = 0; i < by_checkpoint_n_tensors(ck); i++) {
        const by_ckpt_tensor *t = by_checkpoint_at(ck, i);
        item *it = &g_source.items[g_source.n++];
        snprintf(it->name, sizeof it->name, "%s", t->name.ptr);
        snprintf(it->dtype, sizeof it->dtype, "%s", by_st_dtype_name(t->dtype));
        if (t->n_dims == 1)
            snprintf(it->shape, sizeof it->shape, "[%ld]", (long)t->shape[0]);
        else
            snprintf(it->shape, sizeof it->shape, "[%ld,%ld]", (long)t->shape[0], (long)t->shape[1]);
        it->n = (size_t)t->bytes;
        it->data = malloc(it->n);
        memcpy(it->data, t->data, it->n);
        it->index_shard = SAME;
        it->force_begin = -1;
    }
    g_source.n_shards = 1;
    g_source.pad = "";
    by_checkpoint_close(ck);
    return 0;
}

static int free_source(void **state) {
    (void)state;
    for (int i = 0; i < g_source.n; i++)
        free(g_source.items[i].data);
    return 0;
}

static fixture *fresh(void) {
    static fixture f;
    f = g_source;
    snprintf(f.dir, sizeof f.dir, "/tmp/by_test_ckptXXXXXX");
    assert_non_null(mkdtemp(f.dir));
    return &f;
}

static item *find(fixture *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0) return &f->items[i];
    fail_msg("no tensor %s", name);
    return f->items;
}

static item *append(fixture *f, const item *like, const char *name) {
    assert_true(f->n < MAX_ITEMS);
    item *it = &f->items[f->n++];
    *it = *like;
    snprintf(it->name, sizeof it->name, "%s", name);
    return it;
}

static const char *shard_file(const fixture *f, int shard, char out[64]) {
    if (f->without_index)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, f->n_shards);
    return out;
}

static void write_file(const fixture *f, const char *name, const void *data, size_t n) {
    char path[256];
    by_err err = {0};
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    if (by_file_write(path, data, n, &err) != BY_OK) fail_msg("%s", err.msg);
}

static void write_shard(const fixture *f, int shard) {
    by_buf header = {0}, data = {0};
    char name[64];
    by_buf_push_z(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < f->n; i++) {
        const item *it = &f->items[i];
        if (it->shard != shard) continue;
        size_t begin = it->force_begin >= 0 ? (size_t)it->force_begin : data.len;
        by_buf_printf(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", it->name,
                      it->dtype, it->shape, begin, begin + it->n);
        if (it->force_begin < 0) by_buf_push(&data, it->data, it->n);
    }
    by_buf_printf(&header, "}%s", f->pad);
    by_buf all = {0};
    for (int i = 0; i < 8; i++)
        by_buf_push_byte(&all, (char)(header.len >> (8 * i)));
    by_buf_push(&all, header.ptr, header.len);
    by_buf_push(&all, data.ptr, data.len);
    write_file(f, shard_file(f, shard, name), all.ptr, all.len);
    by_buf_deinit(&header);
    by_buf_deinit(&data);
    by_buf_deinit(&all);
}

static void write_index(const fixture *f) {
    by_buf out = {0};
    char name[64];
    by_buf_push_z(&out, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    bool first = true;
    for (int i = 0; i < f->n; i++) {
        int shard = f->items[i].index_shard == SAME ? f->items[i].shard : f->items[i].index_shard;
        if (shard == NOWHERE) continue;
        by_buf_printf(&out, "%s\n\"%s\": \"%s\"", first ? "" : ",", f->items[i].name, shard_file(f, shard, name));
        first = false;
    }
    by_buf_push_z(&out, "}}");
    write_file(f, INDEX, out.ptr, out.len);
    by_buf_deinit(&out);
}

static void write_dir(const fixture *f) {
    for (int s = 0; s < f->n_shards; s++)
        write_shard(f, s);
    if (!f->without_index) write_index(f);
}

static void remove_dir(const fixture *f) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
}

/* ---- expecting ---- */

static by_checkpoint *open_good(const fixture *f) {
    by_err err = {0};
    by_checkpoint *ck = NULL;
    by_problems problems = {0};
    if (by_checkpoint_open(&ck, f->dir, &g_config, &problems, &err) != BY_OK) fail_msg("%s", by_buf_z(&problems.text));
    by_problems_deinit(&problems);
    return ck;
}

static const char *notes(const by_checkpoint *ck) {
    return by_buf_z((by_buf *)(uintptr_t)&by_checkpoint_notes(ck)->text);
}

/* Opening fails with exactly n problems (0: at least one), the text among them; then the directory goes. */
static void expect_problems(const fixture *f, long n, const char *text) {
    by_err err = {0};
    by_checkpoint *ck = NULL;
    by_problems problems = {0};
    by_status status = by_checkpoint_open(&ck, f->dir, &g_config, &problems, &err);
    assert_true(status < 0);
    assert_null(ck);
    assert_true(err.msg[0] != '\0');
    const char *got = by_buf_z(&problems.text);
    if (!strstr(got, text)) fail_msg("'%s' is missing in:\n%s", text, got);
    if (n > 0 && problems.n != n) fail_msg("%ld problems instead of %ld:\n%s", problems.n, n, got);
    by_problems_deinit(&problems);
    remove_dir(f);
}

/* ---- accepted ---- */

static void rewritten_tensors_load(void **state) {
    (void)state;
    fixture *f = fresh();
    f->n_shards = 3;
    for (int i = 0; i < f->n; i++)
        f->items[i].shard = i % 3;
    write_dir(f);
    by_checkpoint *ck = open_good(f);
    assert_int_equal(by_checkpoint_notes(ck)->n, 0);
    assert_int_equal(by_checkpoint_n_tensors(ck), f->n);
    for (int i = 0; i < f->n; i++) {
        const by_ckpt_tensor *t = by_checkpoint_find(ck, f->items[i].name);
        assert_non_null(t);
        assert_int_equal(t->shard, i % 3);
        assert_int_equal(t->bytes, f->items[i].n);
        assert_memory_equal(t->data, f->items[i].data, f->items[i].n);
    }
    by_checkpoint_close(ck);
    remove_dir(f);
}

static void a_single_file_needs_no_index(void **state) {
    (void)state;
    fixture *f = fresh();
    f->without_index = true;
    write_dir(f);
    by_checkpoint *ck = open_good(f);
    assert_string_equal(by_checkpoint_shard_name(ck, 0), "model.safetensors");
    by_checkpoint_close(ck);
    remove_dir(f);
}

static void names_may_begin_with_model(void **state) {
    (void)state;
    fixture *f = fresh();
    for (int i = 0; i < f->n; i++) {
        char longer[128];
        snprintf(longer, sizeof longer, "model.%s", f->items[i].name);
        memcpy(f->items[i].name, longer, sizeof f->items[i].name);
    }
    write_dir(f);
    by_checkpoint *ck = open_good(f);
    assert_non_null(by_checkpoint_find(ck, "embed.weight"));
    assert_int_equal(by_checkpoint_notes(ck)->n, 0);
    by_checkpoint_close(ck);
    remove_dir(f);
}

static void unknown_tensors_are_noted_and_ignored(void **state) {
    (void)state;
    fixture *f = fresh();
    append(f, find(f, "norm.weight"), "image_pad");
    append(f, find(f, "norm.weight"), "mtp.0.embed.weight")->index_shard = NOWHERE;
    item *odd = append(f, find(f, "norm.weight"), "odd");
    snprintf(odd->dtype, sizeof odd->dtype, "F5_E2M2");
    write_dir(f);
    by_checkpoint *ck = open_good(f);
    assert_non_null(strstr(notes(ck), "tensor image_pad is not part of this architecture and ignored"));
    assert_non_null(strstr(notes(ck), "tensor mtp.0.embed.weight is not in the index"));
    assert_int_equal(by_checkpoint_notes(ck)->n, 4);
    assert_false(by_checkpoint_find(ck, "odd")->expected);
    by_checkpoint_close(ck);
    remove_dir(f);
}

static void data_at_odd_addresses_is_moved(void **state) {
    (void)state;
    for (int pad = 0; pad < 4; pad++) {
        fixture *f = fresh();
        f->pad = &"   "[3 - pad];
        write_dir(f);
        by_checkpoint *ck = open_good(f);
        for (int i = 0; i < f->n; i++) {
            const by_ckpt_tensor *t = by_checkpoint_find(ck, f->items[i].name);
            assert_int_equal((uintptr_t)t->data % (size_t)(by_st_dtype_bits(t->dtype) / 8), 0);
            assert_memory_equal(t->data, f->items[i].data, f->items[i].n);
        }
        by_err err = {0};
        assert_int_equal(by_checkpoint_check_values(ck, BY_CHECK_FULL, NULL, NULL, &err), BY_OK);
        by_checkpoint_close(ck);
        remove_dir(f);
    }
}

static void mixing_matrices_may_be_bf16(void **state) {
    (void)state;
    fixture *f = fresh();
    item *it = find(f, "layers.1.hc_attn_fn");
    snprintf(it->dtype, sizeof it->dtype, "BF16");
    it->n /= 2;
    write_dir(f);
    by_checkpoint *ck = open_good(f);
    assert_int_equal(by_checkpoint_find(ck, "layers.1.hc_attn_fn")->dtype, BY_ST_BF16);
    by_checkpoint_close(ck);
    remove_dir(f);
}

static void bytes_between_tensors_are_noted(void **state) {
    (void)state;
    fixture *f = fresh();
    unsigned char gap[40] = {0};
    item *it = append(f, find(f, "norm.weight"), "gap");
    it->data = gap;
    it->n = sizeof gap;
    snprintf(it->dtype, sizeof it->dtype, "U8");
    snprintf(it->shape, sizeof it->shape, "[40]");
    write_shard(f, 0);
    write_index(f);
    char path[128];
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", f->dir);
    by_buf text = {0};
    by_err err = {0};
    assert_int_equal(by_file_read(&text, path, 1 << 24, &err), BY_OK);
    char *name = memmem(text.ptr, text.len, "\"gap\":{\"dtype\":\"U8\",\"shape\":[40]", 31);
    assert_non_null(name);
    /* the entry keeps its place but claims nothing */
    char *offsets = strstr(name, "data_offsets\":[");
    long from, to;
    assert_int_equal(sscanf(offsets, "data_offsets\":[%ld,%ld]", &from, &to), 2);
    char fresh_text[64];
    int n = snprintf(fresh_text, sizeof fresh_text, "data_offsets\":[%ld,%ld]", from, from);
    memcpy(offsets, fresh_text, (size_t)n);
    memcpy(memmem(name, 40, "[40]", 4), "[ 0]", 4);
    write_file(f, "model-00001-of-00001.safetensors", text.ptr, text.len);
    by_checkpoint *ck = open_good(f);
    assert_non_null(strstr(notes(ck), "40 bytes belong to no tensor"));
    by_checkpoint_close(ck);
    by_buf_deinit(&text);
    remove_dir(f);
}

/* ---- broken ---- */

static void a_missing_tensor_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    item *it = find(f, "layers.2.attn.wq_b.scale");
    it->shard = NOWHERE;
    write_dir(f);
    expect_problems(f, 1, "tensor layers.2.attn.wq_b.scale is missing");
}

static void a_tensor_that_only_the_index_has_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    item *it = find(f, "head.weight");
    it->shard = NOWHERE;
    it->index_shard = 0;
    write_dir(f);
    expect_problems(f, 1, "tensor head.weight: the index says model-00001-of-00001.safetensors, it is not there");
}

static void a_tensor_in_another_shard_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    f->n_shards = 2;
    find(f, "norm.weight")->shard = 1;
    item *it = find(f, "head.weight");
    it->shard = 1;
    it->index_shard = 0;
    write_dir(f);
    expect_problems(f, 1, "tensor head.weight: the index says model-00001-of-00002.safetensors, it is in model-00002");
}

static void a_tensor_in_two_shards_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    f->n_shards = 2;
    find(f, "norm.weight")->shard = 1;
    item *it = append(f, find(f, "head.weight"), "head.weight");
    it->shard = 1;
    it->index_shard = NOWHERE;
    write_dir(f);
    expect_problems(f, 1, "tensor head.weight is twice there: in model-00001-of-00002.safetensors and in model-00002");
}

static void a_name_twice_in_one_header_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    append(f, find(f, "head.weight"), "head.weight")->index_shard = NOWHERE;
    write_dir(f);
    expect_problems(f, 1, "tensor head.weight is twice there");
}

static void a_name_with_and_without_prefix_is_twice_there(void **state) {
    (void)state;
    fixture *f = fresh();
    append(f, find(f, "head.weight"), "model.head.weight");
    write_dir(f);
    expect_problems(f, 2, "tensor model.head.weight is listed twice");
}

static void a_wrong_dtype_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    snprintf(find(f, "norm.weight")->dtype, 16, "F16");
    snprintf(find(f, "layers.0.attn.wq_a.weight")->dtype, 16, "F8_E5M2");
    snprintf(find(f, "layers.0.ffn.experts.1.w1.weight")->dtype, 16, "U8");
    write_dir(f);
    expect_problems(f, 3, "tensor norm.weight: dtype F16, expected BF16");
}

static void a_wrong_shape_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    snprintf(find(f, "layers.1.attn.wq_b.weight")->shape, 48, "[32,64]"); /* [64, 32] */
    snprintf(find(f, "norm.weight")->shape, 48, "[1,32]");
    write_dir(f);
    expect_problems(f, 2, "tensor layers.1.attn.wq_b.weight: shape [32, 64], expected [64, 32]");
}

static void overlapping_tensors_are_named(void **state) {
    (void)state;
    fixture *f = fresh();
    append(f, find(f, "norm.weight"), "shadow")->force_begin = 2; /* inside the first tensor */
    write_dir(f);
    expect_problems(f, 0, "overlap");
}

static void a_tensor_past_the_end_is_named(void **state) {
    (void)state;
    fixture *f = fresh();
    append(f, find(f, "norm.weight"), "far")->force_begin = 1L << 40;
    write_dir(f);
    expect_problems(f, 1, "tensor far: data_offsets [1099511627776, 1099511627840] reach past");
}

static void a_missing_shard_is_one_problem(void **state) {
    (void)state;
    fixture *f = fresh();
    f->n_shards = 2;
    for (int i = 0; i < f->n; i++)
        f->items[i].shard = i % 2;
    write_shard(f, 0);
    write_index(f);
    expect_problems(f, 1, "model-00002-of-00002.safetensors: the shard is missing; the index places 118 tensors there");
}

static void a_truncated_shard_names_the_lost_tensors_only(void **state) {
    (void)state;
    fixture *f = fresh();
    write_dir(f);
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", f->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    expect_problems(f, 1, "(truncated?)");
}

static void tensors_behind_the_end_of_a_shard_are_one_problem(void **state) {
    (void)state;
    fixture *f = fresh();
    append(f, find(f, "norm.weight"), "far")->force_begin = 1L << 40;
    append(f, find(f, "norm.weight"), "farther")->force_begin = 1L << 41;
    write_dir(f);
    char path[128], want[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", f->dir);
    assert_int_equal(stat(path, &st), 0);
    snprintf(want, sizeof want, "file ends at %lld, 2 tensors reach past it", (long long)st.st_size);
    expect_problems(f, 1, want);
}

static void a_shard_cut_inside_its_header_is_one_problem(void **state) {
    (void)state;
    fixture *f = fresh();
    write_dir(f);
    char path[128];
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", f->dir);
    assert_int_equal(truncate(path, 1000), 0);
    expect_problems(f, 1, "is larger than the file of 1000 bytes");
}

static void a_shard_that_is_no_file_is_one_problem(void **state) {
    (void)state;
    char path[128];
    fixture *f = fresh();
    write_index(f);
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", f->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_problems(f, 1, "not a regular file");
    f = fresh();
    write_index(f);
    write_file(f, "model-00001-of-00001.safetensors", "", 0);
    expect_problems(f, 1, "0 bytes are too few");
}

static void a_bad_index_is_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *expect;
    } cases[] = {
        {"", INDEX ": byte 0: expected '{'"},
        {"{}", INDEX ": no weight_map"},
        {"{\"weight_map\": {\"a\": \"b\"}", "expected ',' or '}'"},
        {"{\"weight_map\": [1]}", "expected '{'"},
        {"{\"weight_map\": {\"a\": 3}}", "expected a string"},
        {"{\"weight_map\": {\"embed.weight\": \"../../etc/passwd\"}}",
         "tensor embed.weight: \"../../etc/passwd\" is not a file name"},
        {"{\"weight_map\": {\"embed.weight\": \"/etc/passwd\"}}", "is not a file name"},
        {"{\"weight_map\": {\"embed.weight\": \"\"}}", "is not a file name"},
        {"{\"weight_map\": {\"embed.weight\": \"..\"}}", "is not a file name"},
        {"{\"weight_map\": {\"embed.weight\": \"a\\u0000b\"}}", "is not a file name"},
        {"{\"weight_map\": {\"embed.weight\": \"nothere.safetensors\"}}",
         "nothere.safetensors: the shard is missing; the index places 1 "},
        {"{\"weight_map\": {\"\xff\": \"x\"}}", "byte 17 is not valid UTF-8"},
        {"{\"weight_map\": {}} x", "text after the value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture *f = fresh();
        write_shard(f, 0);
        write_file(f, INDEX, cases[i].text, strlen(cases[i].text));
        expect_problems(f, 0, cases[i].expect);
    }
}

static void a_folder_without_a_model_says_what_was_looked_for(void **state) {
    (void)state;
    by_err err = {0};
    by_checkpoint *ck = NULL;
    assert_int_equal(by_checkpoint_open(&ck, "/nowhere/at/all", &g_config, NULL, &err), BY_EMISSING);
    assert_non_null(strstr(err.msg, "/nowhere/at/all: no such directory"));
    fixture *f = fresh();
    expect_problems(f, 1, "neither " INDEX " nor model.safetensors is there");
}

static void all_problems_are_reported_together(void **state) {
    (void)state;
    fixture *f = fresh();
    f->n_shards = 3;
    find(f, "norm.weight")->shard = 1;
    find(f, "embed.weight")->shard = 2; /* this shard will not be there */
    snprintf(find(f, "layers.3.ffn.gate.bias")->dtype, 16, "I32");
    snprintf(find(f, "layers.0.attn.wkv.scale")->shape, 48, "[1]");
    find(f, "layers.0.attn.wo_b.weight")->shard = NOWHERE;
    append(f, find(f, "norm.weight"), "norm.weight");
    write_shard(f, 0);
    write_shard(f, 1);
    write_index(f);
    by_problems problems = {0};
    by_err err = {0};
    by_checkpoint *ck = NULL;
    assert_int_equal(by_checkpoint_open(&ck, f->dir, &g_config, &problems, &err), BY_EFORMAT);
    static const char *const expect[] = {"norm.weight is listed twice",
                                         "norm.weight is twice there",
                                         "the shard is missing",
                                         "layers.3.ffn.gate.bias: dtype I32",
                                         "layers.0.attn.wkv.scale: shape [1]",
                                         "layers.0.attn.wo_b.weight is missing"};
    for (size_t i = 0; i < sizeof expect / sizeof expect[0]; i++)
        if (!strstr(by_buf_z(&problems.text), expect[i])) fail_msg("'%s' in:\n%s", expect[i], problems.text.ptr);
    assert_int_equal(problems.n, 6);
    assert_non_null(strstr(err.msg, "6 problems"));
    by_problems_deinit(&problems);
    remove_dir(f);
}

static void a_list_of_problems_is_bounded(void **state) {
    (void)state;
    fixture *f = fresh();
    f->n = 1;
    write_dir(f);
    by_problems problems = {0};
    by_err err = {0};
    by_checkpoint *ck = NULL;
    assert_int_equal(by_checkpoint_open(&ck, f->dir, &g_config, &problems, &err), BY_EFORMAT);
    assert_int_equal(problems.n, g_source.n - 1);
    assert_int_equal(problems.n_kept, BY_LIMIT_PROBLEMS);
    by_problems_deinit(&problems);
    remove_dir(f);
}

/* ---- values ---- */

static void put16(item *it, size_t at, unsigned v) {
    it->data[2 * at] = (unsigned char)v;
    it->data[2 * at + 1] = (unsigned char)(v >> 8);
}

static void put32(item *it, size_t at, uint32_t v) {
    for (int i = 0; i < 4; i++)
        it->data[4 * at + (size_t)i] = (unsigned char)(v >> (8 * i));
}

/* Sets one bad element, opens, checks and puts the old bytes back. */
static void expect_bad_value(const char *name, int width, size_t at, uint32_t value, const char *text) {
    fixture *f = fresh();
    item *it = find(f, name);
    unsigned char *old = malloc(it->n);
    memcpy(old, it->data, it->n);
    if (width == 1)
        it->data[at] = (unsigned char)value;
    else if (width == 2)
        put16(it, at, value);
    else
        put32(it, at, value);
    write_dir(f);
    memcpy(it->data, old, it->n);
    free(old);
    by_checkpoint *ck = open_good(f);
    by_problems problems = {0};
    by_err err = {0};
    by_status status = by_checkpoint_check_values(ck, BY_CHECK_AUTO, NULL, &problems, &err);
    if (!text) {
        assert_int_equal(status, BY_OK);
    } else {
        assert_int_equal(status, BY_ENUMERIC);
        assert_int_equal(problems.n, 1);
        if (!strstr(err.msg, name) || !strstr(err.msg, text)) fail_msg("%s", err.msg);
    }
    assert_int_equal(by_checkpoint_check_values(ck, BY_CHECK_NONE, NULL, NULL, NULL), BY_OK);
    by_problems_deinit(&problems);
    by_checkpoint_close(ck);
    remove_dir(f);
}

static void values_that_are_not_numbers_are_named_with_their_place(void **state) {
    (void)state;
    expect_bad_value("layers.0.attn.wq_b.scale", 1, 1, 255, "scale byte 255 (not a number) at [1, 0]");
    expect_bad_value("layers.0.ffn.experts.3.w2.scale", 1, 31, 255, "at [31, 0]");
    expect_bad_value("layers.0.attn.wq_b.weight", 1, 33, 0x7f, "not a number at [1, 1]");
    expect_bad_value("layers.0.attn.wq_b.weight", 1, 2047, 0xff, "not a number at [63, 31]");
    expect_bad_value("norm.weight", 2, 0, 0x7fc0, "not a number or infinite at [0]");
    expect_bad_value("embed.weight", 2, 2047, 0xff80, "at [63, 31]"); /* minus infinity */
    expect_bad_value("embed.weight", 2, 5, 0x7f81, "at [0, 5]");
    expect_bad_value("layers.0.hc_attn_fn", 4, 24 * 128 - 1, 0x7f800000, "at [23, 127]");
    expect_bad_value("layers.3.ffn.gate.bias_vl", 4, 2, 0xffc00000, "at [2]");
}

static void extreme_numbers_are_allowed(void **state) {
    (void)state;
    expect_bad_value("layers.0.attn.wq_b.scale", 1, 0, 254, NULL);
    expect_bad_value("layers.0.attn.wq_b.scale", 1, 0, 0, NULL);
    expect_bad_value("layers.0.attn.wq_b.weight", 1, 0, 0xfe, NULL);
    expect_bad_value("norm.weight", 2, 0, 0x7f7f, NULL);
    expect_bad_value("norm.weight", 2, 0, 0x8000, NULL);
    expect_bad_value("layers.0.hc_attn_fn", 4, 0, 0xff7fffff, NULL);
    /* FP4 has no such codes, whatever the byte */
    expect_bad_value("layers.0.ffn.experts.0.w1.weight", 1, 0, 0xff, NULL);
}

/* ---- memory, names ---- */

static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    fixture *f = fresh();
    f->pad = " "; /* so that tensors are moved as well */
    write_dir(f);
    int64_t before = by_alloc_bytes_total();
    for (int64_t n = 1;; n++) {
        by_err err = {0};
        by_problems problems = {0};
        by_checkpoint *ck = NULL;
        uint64_t calls = by_alloc_calls();
        by_alloc_fail_nth(n);
        by_status status = by_checkpoint_open(&ck, f->dir, &g_config, &problems, &err);
        by_alloc_fail_nth(0);
        bool failed = (int64_t)(by_alloc_calls() - calls) >= n;
        if (status == BY_OK)
            by_checkpoint_close(ck);
        else
            assert_int_equal(status, BY_ENOMEM);
        by_problems_deinit(&problems);
        assert_int_equal(by_alloc_bytes_total(), before);
        if (!failed) {
            assert_int_equal(status, BY_OK);
            assert_true(n > 20);
            break;
        }
    }
    remove_dir(f);
}

static void a_map_keeps_many_names_apart(void **state) {
    (void)state;
    by_name_map m;
    by_err err = {0};
    by_name_map_init(&m);
    assert_int_equal(by_name_map_find(&m, BY_STR("x")), -1);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 100000; i++) {
            char name[32];
            uint32_t number;
            int len = snprintf(name, sizeof name, "layers.%u.w%u", i / 7, i % 7);
            assert_int_equal(by_name_map_add(&m, by_str_of(name, (size_t)len), &number, &err), BY_OK);
            assert_int_equal(number, i);
        }
    }
    assert_int_equal(m.n, 100000);
    assert_int_equal(by_name_map_find(&m, BY_STR("layers.1.w3")), 10);
    assert_int_equal(by_name_map_find(&m, BY_STR("layers.1.w7")), -1);
    assert_int_equal(by_name_map_find(&m, BY_STR("")), -1);
    by_name_map_deinit(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewritten_tensors_load),
        cmocka_unit_test(a_single_file_needs_no_index),
        cmocka_unit_test(names_may_begin_with_model),
        cmocka_unit_test(unknown_tensors_are_noted_and_ignored),
        cmocka_unit_test(data_at_odd_addresses_is_moved),
        cmocka_unit_test(mixing_matrices_may_be_bf16),
        cmocka_unit_test(bytes_between_tensors_are_noted),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_tensor_that_only_the_index_has_is_named),
        cmocka_unit_test(a_tensor_in_another_shard_is_named),
        cmocka_unit_test(a_tensor_in_two_shards_is_named),
        cmocka_unit_test(a_name_twice_in_one_header_is_named),
        cmocka_unit_test(a_name_with_and_without_prefix_is_twice_there),
        cmocka_unit_test(a_wrong_dtype_is_named),
        cmocka_unit_test(a_wrong_shape_is_named),
        cmocka_unit_test(overlapping_tensors_are_named),
        cmocka_unit_test(a_tensor_past_the_end_is_named),
        cmocka_unit_test(a_missing_shard_is_one_problem),
        cmocka_unit_test(a_truncated_shard_names_the_lost_tensors_only),
        cmocka_unit_test(tensors_behind_the_end_of_a_shard_are_one_problem),
        cmocka_unit_test(a_shard_cut_inside_its_header_is_one_problem),
        cmocka_unit_test(a_shard_that_is_no_file_is_one_problem),
        cmocka_unit_test(a_bad_index_is_named),
        cmocka_unit_test(a_folder_without_a_model_says_what_was_looked_for),
        cmocka_unit_test(all_problems_are_reported_together),
        cmocka_unit_test(a_list_of_problems_is_bounded),
        cmocka_unit_test(values_that_are_not_numbers_are_named_with_their_place),
        cmocka_unit_test(extreme_numbers_are_allowed),
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(a_map_keeps_many_names_apart),
    };
    return cmocka_run_group_tests(tests, setup_source, free_source);
}
