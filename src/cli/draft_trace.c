/* draft_trace.c - see draft_trace.h. */
#include "cli/draft_trace.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "json/json.h"
#include "json/json_write.h"

enum { DRAFTS_MAX = 64 };
#define FILE_BYTES_MAX ((size_t)1 << 30) /* a hundred bytes a position: ten million of them */

static bool grow(void **items, int64_t need, int64_t *cap, size_t size) {
    if (need <= *cap) return true;
    void *fresh = by_realloc(BY_MEM_MISC, *items, by_mul_size((size_t)need * 2, size));
    if (!fresh) return false;
    *items = fresh;
    *cap = need * 2;
    return true;
}

by_status by_draft_traces_add(by_draft_traces *t, const by_draft_outcome *outcomes, int64_t n, int32_t n_drafts, by_err *err) {
    if (n_drafts < 1 || n_drafts > DRAFTS_MAX || (t->n_drafts && n_drafts != t->n_drafts))
        return BY_FAIL(err, BY_EFORMAT, "traces: blocks of %d drafts beside blocks of %d", n_drafts, t->n_drafts);
    t->n_drafts = n_drafts;
    const float *before = t->values;
    int64_t cap = t->cap_positions, need = t->n_positions + n;
    bool ok = grow((void **)&t->positions, need, &t->cap_positions, sizeof *t->positions);
    ok = ok && grow((void **)&t->values, need, &cap, (size_t)n_drafts * 4);
    ok = ok && grow((void **)&t->first, t->n_answers + 2, &t->cap_answers, sizeof *t->first);
    if (!ok) return BY_FAIL(err, BY_ENOMEM, "out of memory for traces");
    for (int64_t i = 0; i < n; i++) {
        memcpy(t->values + (t->n_positions + i) * n_drafts, outcomes[i].raw, (size_t)n_drafts * 4);
        t->positions[t->n_positions + i] = outcomes[i];
    }
    t->first[t->n_answers++] = t->n_positions;
    t->n_positions += n;
    t->first[t->n_answers] = t->n_positions;
    for (int64_t i = t->values == before ? t->n_positions - n : 0; i < t->n_positions; i++) t->positions[i].raw = t->values + i * n_drafts;
    return BY_OK;
}

void by_draft_traces_deinit(by_draft_traces *t) {
    by_free(t->positions);
    by_free(t->values);
    by_free(t->first);
    *t = (by_draft_traces){0};
}

void by_draft_traces_write(const by_draft_traces *t, int64_t i, by_str id, by_buf *out) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_string(&o, id);
    by_json_out_key(&o, "positions");
    by_json_out_array_begin(&o);
    for (int64_t p = t->first[i]; p < t->first[i + 1]; p++) {
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "raw");
        by_json_out_array_begin(&o);
        for (int32_t j = 0; j < t->n_drafts; j++) by_json_out_double(&o, (double)t->positions[p].raw[j]);
        by_json_out_array_end(&o);
        by_json_out_key(&o, "accepted");
        by_json_out_int(&o, t->positions[p].accepted);
        if (t->positions[p].n < t->n_drafts) {
            by_json_out_key(&o, "n");
            by_json_out_int(&o, t->positions[p].n);
        }
        by_json_out_object_end(&o);
    }
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
    by_buf_push_byte(out, '\n');
}

/* ---- reading ---- */

static by_status read_position(const by_json *v, float *raw, by_draft_outcome *out, int32_t *n_drafts, by_err *err) {
    const by_json *list = by_json_get(v, "raw"), *count = by_json_get(v, "accepted"), *void_from = by_json_get(v, "n");
    int64_t n = 0, accepted = 0;
    if (!list || !by_json_is(list, BY_JSON_ARRAY) || list->n < 1 || list->n > DRAFTS_MAX || (*n_drafts && (int32_t)list->n != *n_drafts))
        return BY_FAIL(err, BY_EFORMAT, "raw: not a list of 1..%d numbers, as many as elsewhere", DRAFTS_MAX);
    *n_drafts = (int32_t)list->n;
    for (uint32_t j = 0; j < list->n; j++) {
        if (!by_json_is_number(&list->v.items[j])) return BY_FAIL(err, BY_EFORMAT, "raw[%u]: not a number", j);
        raw[j] = (float)by_json_number(&list->v.items[j]);
    }
    n = list->n;
    if (void_from && !by_json_int_in(void_from, 1, list->n, &n)) return BY_FAIL(err, BY_EFORMAT, "n: not in 1..%u", list->n);
    if (!count || !by_json_int_in(count, 0, n, &accepted)) return BY_FAIL(err, BY_EFORMAT, "accepted: not in 0..%lld", (long long)n);
    *out = (by_draft_outcome){.raw = raw, .accepted = (int32_t)accepted, .n = (int32_t)n};
    return BY_OK;
}

static by_status read_line(by_draft_traces *t, by_str line, by_err *err) {
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json row;
    by_status status = by_json_parse(&row, &arena, line, NULL, err);
    const by_json *list = status == BY_OK ? by_json_get(&row, "positions") : NULL;
    if (status == BY_OK && (!list || !by_json_is(list, BY_JSON_ARRAY) || list->n == 0))
        status = BY_FAIL(err, BY_EFORMAT, "positions: not a list of at least one");
    int32_t n_drafts = t->n_drafts;
    by_draft_outcome *outcomes = NULL;
    float *raw = NULL;
    if (status == BY_OK) {
        raw = by_arena_alloc(&arena, by_mul_size(list->n, DRAFTS_MAX * sizeof *raw));
        outcomes = by_arena_alloc(&arena, by_mul_size(list->n, sizeof *outcomes));
        if (!raw || !outcomes) status = BY_FAIL(err, BY_ENOMEM, "out of memory for traces");
    }
    for (uint32_t i = 0; status == BY_OK && i < list->n; i++)
        status = read_position(&list->v.items[i], raw + (size_t)i * (size_t)n_drafts, &outcomes[i], &n_drafts, err);
    if (status == BY_OK) status = by_draft_traces_add(t, outcomes, list->n, n_drafts, err);
    by_arena_deinit(&arena);
    return status;
}

by_status by_draft_traces_read(by_draft_traces *t, const char *path, by_err *err) {
    by_buf text = {0};
    by_status status = by_file_read(&text, path, FILE_BYTES_MAX, err);
    int number = 0;
    for (size_t at = 0; status == BY_OK && at < text.len;) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        size_t n = end ? (size_t)(end - text.ptr) - at : text.len - at;
        number++;
        if (n > 0) status = read_line(t, (by_str){text.ptr + at, n}, err);
        at += n + 1;
    }
    by_buf_deinit(&text);
    if (status < 0 && number) by_err_prefix(err, "%s, line %d: ", path, number);
    if (status == BY_OK && t->n_positions == 0) return BY_FAIL(err, BY_EFORMAT, "%s: no lines", path);
    return status;
}
