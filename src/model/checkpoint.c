/* checkpoint.c - see checkpoint.h. Reading goes in four passes: the index gives names and shards, each shard header
 * gives places, then tensors that only the index knows are found, then the table of expected tensors is compared. A
 * pass adds problems and goes on; only running out of memory or having no index at all stops it. */
#include "model/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/utf8.h"
#include "model/checkpoint_impl.h"
#include "model/tensor_table.h"

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

typedef struct {
    by_checkpoint *ck;
    const char *dir;
    by_problems *problems;
    by_err *err;
} loader;

/* Page size of the mappings; larger real pages only make the advice below a little wider or narrower. */
enum { PAGE = 4096, TEXT_MAX = 160 };

static int text_len(by_str s) {
    return (int)(s.len > TEXT_MAX ? TEXT_MAX : s.len);
}

/* ---- records and shards ---- */

static by_str strip_prefix(by_str name) {
    return by_str_starts(name, BY_STR("model.")) ? by_str_of(name.ptr + 6, name.len - 6) : name;
}

/* The record of a tensor, made when it is new. The pointer is valid until the next call. */
static by_status add_record(loader *l, by_str name, by_ckpt_record **out) {
    by_checkpoint *ck = l->ck;
    uint32_t i, before = ck->names.n;
    BY_TRY(by_name_map_add(&ck->names, strip_prefix(name), &i, l->err));
    if (i >= ck->cap_records) {
        uint32_t cap = ck->cap_records ? ck->cap_records * 2 : 1024;
        by_ckpt_record *fresh = by_realloc(BY_MEM_MODEL, ck->records, by_mul_size(cap, sizeof *fresh));
        if (!fresh) return BY_FAIL(l->err, BY_ENOMEM, "out of memory for %u tensors", i);
        ck->records = fresh;
        ck->cap_records = cap;
    }
    if (i == before) {
        ck->records[i] = (by_ckpt_record){.t = {.name = ck->names.keys[i], .shard = -1}, .index_shard = -1};
        if (i >= BY_LIMIT_ST_TENSORS) return BY_FAIL(l->err, BY_ELIMIT, "more than %d tensors", BY_LIMIT_ST_TENSORS);
    }
    *out = &ck->records[i];
    return BY_OK;
}

static bool shard_name_is_plain(by_str s) {
    return s.len > 0 && s.len < 256 && !memchr(s.ptr, '/', s.len) && !memchr(s.ptr, '\0', s.len) && s.ptr[0] != '.';
}

static by_status add_shard(loader *l, by_str name, int *out) {
    by_checkpoint *ck = l->ck;
    uint32_t i, before = ck->shard_names.n;
    BY_TRY(by_name_map_add(&ck->shard_names, name, &i, l->err));
    if (i == before) {
        if (i >= ck->cap_shards) {
            uint32_t cap = ck->cap_shards ? ck->cap_shards * 2 : 64;
            by_ckpt_shard *fresh = by_realloc(BY_MEM_MODEL, ck->shards, by_mul_size(cap, sizeof *fresh));
            if (!fresh) return BY_FAIL(l->err, BY_ENOMEM, "out of memory for %u shards", i);
            ck->shards = fresh;
            ck->cap_shards = cap;
        }
        ck->shards[i] = (by_ckpt_shard){.name = ck->shard_names.keys[i].ptr};
        if (i >= BY_LIMIT_ST_SHARDS) return BY_FAIL(l->err, BY_ELIMIT, "more than %d shards", BY_LIMIT_ST_SHARDS);
    }
    *out = (int)i;
    return BY_OK;
}

static by_status join(loader *l, const char *name, char path[4096]) {
    int n = snprintf(path, 4096, "%s/%s", l->dir, name);
    return n > 0 && n < 4096 ? BY_OK : BY_FAIL(l->err, BY_EINVAL, "%.100s...: path too long", l->dir);
}

/* A status of reading a file becomes a problem, unless memory is out. */
static by_status as_problem(loader *l, const char *file, by_status status, const by_err *local) {
    if (status == BY_ENOMEM) return BY_FAIL(l->err, BY_ENOMEM, "%s: %s", file, local->msg);
    by_problems_add(l->problems, "%s: %s", file, local->msg);
    return BY_OK;
}

/* ---- the index ---- */

static by_status read_weight_map(loader *l, by_json_walk *w, by_err *err) {
    by_str name, file;
    by_status status;
    int shard = -1;
    BY_TRY(by_json_walk_begin_object(w, err));
    while ((status = by_json_walk_member(w, &name, err)) == BY_OK) {
        by_ckpt_record *record;
        BY_TRY(by_json_walk_string(w, &file, err));
        if (!shard_name_is_plain(file)) {
            by_problems_add(l->problems, "%s: tensor %.*s: \"%.*s\" is not a file name", INDEX_NAME, text_len(name),
                            name.ptr, text_len(file), file.ptr);
            continue;
        }
        if (shard < 0 || !by_str_eqz(file, l->ck->shards[shard].name)) {
            status = add_shard(l, file, &shard); /* long runs of tensors name the same shard */
            if (status < 0) return BY_FAIL(err, status, "%s", l->err->msg);
        }
        status = add_record(l, name, &record);
        if (status < 0) return BY_FAIL(err, status, "%s", l->err->msg);
        if (record->index_shard >= 0)
            by_problems_add(l->problems, "%s: tensor %.*s is listed twice", INDEX_NAME, text_len(name), name.ptr);
        record->index_shard = shard;
        l->ck->shards[shard].n_index++;
    }
    return status == BY_END ? BY_OK : status;
}

static by_status walk_index(loader *l, by_json_walk *w, by_err *err) {
    by_str key;
    by_status status;
    bool found = false;
    BY_TRY(by_json_walk_begin_object(w, err));
    while ((status = by_json_walk_member(w, &key, err)) == BY_OK) {
        bool here = by_str_eqz(key, "weight_map") && !found;
        found = found || here;
        BY_TRY(here ? read_weight_map(l, w, err) : by_json_walk_skip(w, err));
    }
    if (status != BY_END) return status;
    BY_TRY(by_json_walk_finish(w, err));
    return found ? BY_OK : BY_FAIL(err, BY_EFORMAT, "no weight_map");
}

static by_status read_index(loader *l) {
    char path[4096];
    by_err local = {0};
    by_file_map map;
    BY_TRY(join(l, INDEX_NAME, path));
    BY_TRY(by_file_map_open(&map, path, l->err));
    by_str text = by_str_of((const char *)map.ptr, map.size);
    size_t bad = 0;
    by_status status;
    if (map.size > BY_LIMIT_JSON_FILE_BYTES) {
        status = BY_FAIL(&local, BY_ELIMIT, "%zu bytes are over the limit of %u", map.size, BY_LIMIT_JSON_FILE_BYTES);
    } else if (!by_utf8_valid(text, &bad)) {
        status = BY_FAIL(&local, BY_EFORMAT, "byte %zu is not valid UTF-8", bad);
    } else {
        by_json_walk w;
        by_json_walk_init(&w, text);
        status = walk_index(l, &w, &local);
        by_json_walk_deinit(&w);
    }
    by_file_map_close(&map);
    l->ck->has_index = true;
    return status < 0 ? as_problem(l, INDEX_NAME, status, &local) : BY_OK;
}

static by_status find_shards(loader *l) {
    char path[4096];
    BY_TRY(join(l, INDEX_NAME, path));
    if (!by_dir_exists(l->dir)) return BY_FAIL(l->err, BY_EMISSING, "%s: no such directory", l->dir);
    if (by_file_exists(path)) return read_index(l);
    BY_TRY(join(l, SINGLE_NAME, path));
    int shard;
    if (by_file_exists(path)) return add_shard(l, BY_STR(SINGLE_NAME), &shard);
    return BY_FAIL(l->err, BY_EMISSING, "%s: neither %s nor %s is there", l->dir, INDEX_NAME, SINGLE_NAME);
}

/* ---- shards ---- */

typedef struct {
    uint64_t begin, end;
    uint32_t record;
} range;

typedef struct {
    range *items;
    size_t n, cap;
} range_list;

static int by_begin(const void *a, const void *b) {
    const range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Sorted by begin, a range overlaps an earlier one when it starts before the farthest end seen. */
static void check_ranges(loader *l, const by_ckpt_shard *shard, range_list *ranges, uint64_t data_bytes) {
    if (ranges->n > 1) qsort(ranges->items, ranges->n, sizeof *ranges->items, by_begin);
    uint64_t far = 0, covered = 0;
    uint32_t owner = 0;
    for (size_t i = 0; i < ranges->n; i++) {
        const range *r = &ranges->items[i];
        if (r->begin < far)
            by_problems_add(l->problems, "%s: tensors %s and %s overlap", shard->name, l->ck->records[owner].t.name.ptr,
                            l->ck->records[r->record].t.name.ptr);
        if (r->end > far) {
            covered += r->end - (r->begin > far ? r->begin : far);
            far = r->end;
            owner = r->record;
        }
    }
    if (covered < data_bytes)
        by_problems_add(&l->ck->notes, "%s: %" PRIu64 " bytes belong to no tensor", shard->name, data_bytes - covered);
}

static by_status push_range(loader *l, range_list *list, range r) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 256;
        range *fresh = by_realloc(BY_MEM_MODEL, list->items, by_mul_size(cap, sizeof *fresh));
        if (!fresh) return BY_FAIL(l->err, BY_ENOMEM, "out of memory for %zu tensors", list->n);
        list->items = fresh;
        list->cap = cap;
    }
    list->items[list->n++] = r;
    return BY_OK;
}

/* Enters one header entry; `broken` entries only keep their tensor from being reported missing as well. */
static by_status enter(loader *l, int shard_no, const by_st_entry *e, bool broken, range_list *ranges) {
    by_checkpoint *ck = l->ck;
    const by_ckpt_shard *shard = &ck->shards[shard_no];
    by_ckpt_record *r;
    BY_TRY(add_record(l, e->name, &r));
    if (r->t.shard >= 0) {
        by_problems_add(l->problems, "tensor %s is twice there: in %s and in %s", r->t.name.ptr,
                        ck->shards[r->t.shard].name, shard->name);
        return BY_OK;
    }
    if (ck->has_index && r->index_shard < 0)
        by_problems_add(&ck->notes, "%s: tensor %s is not in the index", shard->name, r->t.name.ptr);
    if (r->index_shard >= 0 && r->index_shard != shard_no)
        by_problems_add(l->problems, "tensor %s: the index says %s, it is in %s", r->t.name.ptr,
                        ck->shards[r->index_shard].name, shard->name);
    r->t.shard = shard_no;
    r->broken = broken;
    if (broken) return BY_OK;
    r->t.dtype = e->dtype;
    r->t.n_dims = e->n_dims;
    memcpy(r->t.shape, e->shape, sizeof e->shape);
    r->t.bytes = (int64_t)(e->end - e->begin);
    if (r->t.bytes == 0) return BY_OK;
    r->t.data = shard->map.ptr + shard->data_off + e->begin;
    return push_range(l, ranges, (range){e->begin, e->end, (uint32_t)(r - ck->records)});
}

/* Tensors of a shard that lie behind its end: as a rule the file was cut, and then one line says so for all of them. */
typedef struct {
    long n;
    by_err first;
} lost_tensors;

static void report_lost(loader *l, const by_ckpt_shard *shard, const lost_tensors *lost) {
    if (lost->n == 1) by_problems_add(l->problems, "%s: %s", shard->name, lost->first.msg);
    if (lost->n > 1)
        by_problems_add(l->problems, "%s: file ends at %zu, %ld tensors reach past it (truncated?)", shard->name, shard->map.size, lost->n);
}

static by_status read_entries(loader *l, int shard_no, by_st_reader *reader, range_list *ranges, lost_tensors *lost) {
    by_ckpt_shard *shard = &l->ck->shards[shard_no];
    for (;;) {
        by_st_entry e;
        by_err local = {0};
        by_status status = by_st_reader_next(reader, &e, &local);
        if (status == BY_END) return BY_OK;
        if (status < 0 && status != BY_ELIMIT) {
            shard->failed = true;
            return as_problem(l, shard->name, status, &local);
        }
        bool broken = status == BY_ELIMIT, past = broken && e.begin <= e.end && e.end > reader->data_bytes;
        if (past && lost->n++ == 0) lost->first = local;
        if (broken && !past) by_problems_add(l->problems, "%s: %s", shard->name, local.msg);
        status = enter(l, shard_no, &e, broken, ranges);
        if (status == BY_ELIMIT) {
            shard->failed = true;
            local = *l->err;
            return as_problem(l, shard->name, status, &local);
        }
        BY_TRY(status);
    }
}

static by_status read_shard(loader *l, int shard_no) {
    by_checkpoint *ck = l->ck;
    by_ckpt_shard *shard = &ck->shards[shard_no];
    char path[4096];
    BY_TRY(join(l, shard->name, path));
    by_err local = {0};
    by_status status = by_file_map_open(&shard->map, path, &local);
    if (status < 0) {
        shard->failed = true;
        if (status != BY_EMISSING) return as_problem(l, shard->name, status, &local);
        by_problems_add(l->problems, "%s: the shard is missing; the index places %ld tensors there", shard->name,
                        shard->n_index);
        return BY_OK;
    }
    by_st_reader reader;
    range_list ranges = {0};
    status = by_st_reader_init(&reader, shard->map.ptr, shard->map.size, &local);
    if (status < 0) {
        shard->failed = true;
        status = as_problem(l, shard->name, status, &local);
    } else {
        shard->data_off = reader.data_off;
        lost_tensors lost = {0};
        status = read_entries(l, shard_no, &reader, &ranges, &lost);
        report_lost(l, shard, &lost);
        if (status == BY_OK && !shard->failed) check_ranges(l, shard, &ranges, reader.data_bytes);
        /* the header is not needed again: its pages should not count as ours */
        size_t whole = (size_t)shard->data_off & ~(size_t)(PAGE - 1);
        if (whole > 0) madvise((void *)(uintptr_t)shard->map.ptr, whole, MADV_DONTNEED);
    }
    by_st_reader_deinit(&reader);
    by_free(ranges.items);
    return status;
}

static void check_index_only(loader *l) {
    const by_checkpoint *ck = l->ck;
    for (uint32_t i = 0; i < ck->names.n; i++) {
        const by_ckpt_record *r = &ck->records[i];
        if (r->t.shard >= 0 || r->index_shard < 0 || ck->shards[r->index_shard].failed) continue;
        by_problems_add(l->problems, "tensor %s: the index says %s, it is not there", r->t.name.ptr,
                        ck->shards[r->index_shard].name);
    }
}

/* ---- expected tensors ---- */

static const char *show_shape(const int64_t *shape, int n_dims, char buf[128]) {
    int at = snprintf(buf, 128, "[");
    for (int i = 0; i < n_dims && at < 100; i++)
        at += snprintf(buf + at, (size_t)(128 - at), "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(buf + at, (size_t)(128 - at), "]");
    return buf;
}

/* Some writers do not align the data area; operators read whole elements. */
static by_status move_to_aligned(loader *l, by_ckpt_record *r) {
    by_checkpoint *ck = l->ck;
    if (ck->n_copies == ck->cap_copies) {
        int cap = ck->cap_copies ? ck->cap_copies * 2 : 64;
        void **fresh = by_realloc(BY_MEM_MODEL, ck->copies, sizeof *fresh * (size_t)cap);
        if (!fresh) return BY_FAIL(l->err, BY_ENOMEM, "out of memory for the list of aligned tensors");
        ck->copies = fresh;
        ck->cap_copies = cap;
    }
    void *copy = by_alloc_aligned(BY_MEM_TENSOR, 64, (size_t)r->t.bytes);
    if (!copy)
        return BY_FAIL(l->err, BY_ENOMEM, "out of memory for tensor %s of %" PRId64 " bytes", r->t.name.ptr,
                       r->t.bytes);
    memcpy(copy, r->t.data, (size_t)r->t.bytes);
    ck->copies[ck->n_copies++] = copy;
    r->t.data = copy;
    return BY_OK;
}

static void advise_random(const by_ckpt_tensor *t) {
    uintptr_t from = ((uintptr_t)t->data + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t to = ((uintptr_t)t->data + (uintptr_t)t->bytes) & ~(uintptr_t)(PAGE - 1);
    if (to > from) madvise((void *)from, to - from, MADV_RANDOM);
}

static by_status compare(void *ctx, const by_tensor_spec *spec, by_err *err) {
    (void)err;
    loader *l = ctx;
    by_checkpoint *ck = l->ck;
    int64_t i = by_name_map_find(&ck->names, by_str_z(spec->name));
    by_ckpt_record *r = i >= 0 ? &ck->records[i] : NULL;
    if (!r) {
        by_problems_add(l->problems, "tensor %s is missing", spec->name);
        return BY_OK;
    }
    if (r->t.shard < 0 || r->broken) return BY_OK; /* reported already */
    r->t.expected = true;
    r->engram = spec->part == BY_PART_ENGRAM_TABLE;
    if (r->t.dtype != spec->dtype && r->t.dtype != spec->dtype2)
        by_problems_add(l->problems, "%s: tensor %s: dtype %s, expected %s", ck->shards[r->t.shard].name, spec->name,
                        by_st_dtype_name(r->t.dtype), by_st_dtype_name(spec->dtype));
    bool same = r->t.n_dims == spec->n_dims;
    for (int d = 0; d < spec->n_dims; d++)
        same = same && r->t.shape[d] == spec->shape[d];
    if (!same) {
        char got[128], want[128];
        by_problems_add(l->problems, "%s: tensor %s: shape %s, expected %s", ck->shards[r->t.shard].name, spec->name,
                        show_shape(r->t.shape, r->t.n_dims, got), show_shape(spec->shape, spec->n_dims, want));
    }
    if (r->engram) advise_random(&r->t);
    size_t element = (size_t)by_st_dtype_bits(r->t.dtype) / 8;
    return element > 1 && (uintptr_t)r->t.data % element != 0 ? move_to_aligned(l, r) : BY_OK;
}

static void note_unknown(by_checkpoint *ck) {
    long n = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < ck->names.n; i++) {
        const by_ckpt_record *r = &ck->records[i];
        if (r->t.expected) continue;
        if (n++ < 20)
            by_problems_add(&ck->notes, "tensor %s is not part of this architecture and ignored", r->t.name.ptr);
        bytes += r->t.bytes;
    }
    if (n > 20)
        by_problems_add(&ck->notes, "%ld tensors with %" PRId64 " bytes are ignored, the first 20 are named", n, bytes);
}

/* ---- public ---- */

static by_status load(loader *l, const by_config *config) {
    BY_TRY(find_shards(l));
    for (uint32_t i = 0; i < l->ck->shard_names.n; i++)
        BY_TRY(read_shard(l, (int)i));
    check_index_only(l);
    bool any_failed = false;
    for (uint32_t i = 0; i < l->ck->shard_names.n; i++)
        any_failed = any_failed || l->ck->shards[i].failed;
    /* Without an index the tensors of a bad shard are unknown: calling them all missing would say nothing. */
    if (any_failed && !l->ck->has_index) return BY_OK;
    if (l->ck->names.n == 0 && l->problems->n > 0) return BY_OK;
    BY_TRY(by_tensor_table_walk(config, compare, l, l->err));
    note_unknown(l->ck);
    return BY_OK;
}

by_status by_checkpoint_open(by_checkpoint **out, const char *dir, const by_config *config, by_problems *problems,
                             by_err *err) {
    by_err local = {0};
    if (!err) err = &local;
    by_problems own = {0};
    by_checkpoint *ck = by_alloc_zero(BY_MEM_MODEL, sizeof *ck);
    if (!ck) return BY_FAIL(err, BY_ENOMEM, "out of memory for a checkpoint");
    by_name_map_init(&ck->names);
    by_name_map_init(&ck->shard_names);
    loader l = {.ck = ck, .dir = dir, .problems = &own, .err = err};
    by_status status = load(&l, config);
    if (status < 0)
        by_problems_add(&own, "%s", err->msg);
    else {
        status = by_problems_check(&own, BY_EFORMAT, err);
        if (status < 0) by_err_prefix(err, "%s: ", dir);
    }
    by_problems_append(problems, &own, "");
    by_problems_deinit(&own);
    if (status < 0) {
        by_checkpoint_close(ck);
        return status;
    }
    *out = ck;
    return BY_OK;
}

void by_checkpoint_close(by_checkpoint *ck) {
    if (!ck) return;
    for (uint32_t i = 0; i < ck->shard_names.n && i < ck->cap_shards; i++)
        by_file_map_close(&ck->shards[i].map);
    for (int i = 0; i < ck->n_copies; i++)
        by_free(ck->copies[i]);
    by_free(ck->copies);
    by_free(ck->shards);
    by_free(ck->records);
    by_name_map_deinit(&ck->names);
    by_name_map_deinit(&ck->shard_names);
    by_problems_deinit(&ck->notes);
    by_free(ck);
}

const by_ckpt_tensor *by_checkpoint_find(const by_checkpoint *ck, const char *name) {
    int64_t i = by_name_map_find(&ck->names, by_str_z(name));
    return i >= 0 ? &ck->records[i].t : NULL;
}

size_t by_checkpoint_n_tensors(const by_checkpoint *ck) {
    return ck->names.n;
}
const by_ckpt_tensor *by_checkpoint_at(const by_checkpoint *ck, size_t i) {
    return &ck->records[i].t;
}
int by_checkpoint_n_shards(const by_checkpoint *ck) {
    return (int)ck->shard_names.n;
}
const char *by_checkpoint_shard_name(const by_checkpoint *ck, int shard) {
    return ck->shards[shard].name;
}

const void *by_checkpoint_shard_map(const by_checkpoint *ck, int shard, size_t *bytes) {
    *bytes = ck->shards[shard].map.size;
    return ck->shards[shard].map.ptr;
}

int64_t by_checkpoint_file_bytes(const by_checkpoint *ck) {
    int64_t n = 0;
    for (uint32_t i = 0; i < ck->shard_names.n; i++)
        n += (int64_t)ck->shards[i].map.size;
    return n;
}

const by_problems *by_checkpoint_notes(const by_checkpoint *ck) {
    return &ck->notes;
}
