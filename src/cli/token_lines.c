/* token_lines.c - see token_lines.h. */
#include "cli/token_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "cli/command.h"

void by_token_line_refuse(by_token_lines *t, by_token_line *l, const char *fmt, ...) {
    if (l->problem) return;
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    by_str kept = by_arena_dup(&t->arena, by_str_z(text));
    l->problem = kept.ptr ? (char *)(uintptr_t)kept.ptr : (char *)(uintptr_t)"out of memory";
}

static bool id_ok(by_str id) {
    for (size_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '_' || c == '-'))
            return false;
    }
    return id.len > 0 && id.len <= 200 && !by_str_eqz(id, ".") && !by_str_eqz(id, "..");
}

static void read_tokens(by_token_lines *t, by_token_line *l, int32_t vocab) {
    const by_json *ids = by_json_get(&l->row, "tokens");
    if (!by_json_is(ids, BY_JSON_ARRAY)) {
        by_token_line_refuse(t, l, "tokens: %s", ids ? "not an array" : "missing");
        return;
    }
    if (ids->n == 0) by_token_line_refuse(t, l, "tokens: empty");
    l->tokens = by_arena_alloc(&t->arena, by_mul_size(ids->n, 4));
    if (!l->tokens) {
        by_token_line_refuse(t, l, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < ids->n; i++) {
        int64_t id;
        if (!by_json_int_in(&ids->v.items[i], 0, vocab - 1, &id)) {
            by_str raw = ids->v.items[i].raw.len ? ids->v.items[i].raw : BY_STR("the value");
            by_token_line_refuse(t, l, "tokens[%u]: %.*s is not an id in 0..%d", i, BY_STR_ARG(raw), vocab - 1);
            return;
        }
        l->tokens[i] = (int32_t)id;
    }
    l->n_tokens = ids->n;
}

static void read_line(by_token_lines *t, by_token_line *l, by_str text, int32_t vocab) {
    by_err err = {0};
    if (by_json_parse(&l->row, &t->arena, text, &(by_json_opts){.bytes_max = BY_LIMIT_JSON_FILE_BYTES}, &err) < 0) {
        by_token_line_refuse(t, l, "%s", err.msg);
        return;
    }
    if (l->row.type != BY_JSON_OBJECT) {
        by_token_line_refuse(t, l, "not a JSON object");
        return;
    }
    const by_json *id = by_json_get(&l->row, "id");
    if (!by_json_is(id, BY_JSON_STRING)) {
        by_token_line_refuse(t, l, "id: %s", id ? "not a string" : "missing");
        return;
    }
    if (!id_ok(id->v.s)) {
        by_token_line_refuse(t, l, "id: must be 1 to 200 of A-Z a-z 0-9 . _ -");
        return;
    }
    l->id = id->v.s;
    read_tokens(t, l, vocab);
}

static int by_id(const void *x, const void *y) {
    const by_token_line *a = *(by_token_line *const *)x, *b = *(by_token_line *const *)y;
    int c = by_str_cmp(a->id, b->id);
    return c ? c : (a->number > b->number) - (a->number < b->number);
}

/* The second of two lines with one id is bad. */
static by_status refuse_repeats(by_token_lines *t, by_err *err) {
    by_token_line **order = by_alloc(BY_MEM_REQUEST, by_mul_size(t->n ? t->n : 1, sizeof *order));
    if (!order) return BY_FAIL(err, BY_ENOMEM, "out of memory for the input lines");
    for (size_t i = 0; i < t->n; i++) order[i] = &t->lines[i];
    qsort(order, t->n, sizeof *order, by_id);
    for (size_t i = 1; i < t->n; i++) {
        if (order[i]->id.len == 0 || !by_str_eq(order[i]->id, order[i - 1]->id)) continue;
        by_token_line_refuse(t, order[i], "id: also on line %zu", order[i - 1]->number);
        order[i]->id = order[i - 1]->id;
    }
    by_free(order);
    return BY_OK;
}

static by_token_line *add(by_token_lines *t) {
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        by_token_line *fresh = by_realloc(BY_MEM_REQUEST, t->lines, by_mul_size(cap, sizeof *fresh));
        if (!fresh) return NULL;
        t->lines = fresh;
        t->cap = cap;
    }
    t->lines[t->n] = (by_token_line){0};
    return &t->lines[t->n++];
}

by_status by_token_lines_read(by_token_lines *t, const char *path, int32_t vocab, by_err *err) {
    *t = (by_token_lines){0};
    by_arena_init(&t->arena, BY_MEM_REQUEST);
    by_status status = by_file_read(&t->text, path, (size_t)4 << 30, err);
    by_str rest = by_buf_str(&t->text);
    for (size_t number = 1; status == BY_OK && rest.len; number++) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        by_str line = by_str_of(rest.ptr, end ? (size_t)(end - rest.ptr) : rest.len);
        rest = by_str_skip(rest, line.len + (end != NULL));
        line = by_line_trim(line, number);
        if (line.len == 0) continue;
        by_token_line *l = add(t);
        if (!l) {
            status = BY_FAIL(err, BY_ENOMEM, "out of memory for the input lines");
            break;
        }
        l->number = number;
        read_line(t, l, line, vocab);
    }
    if (status == BY_OK) status = refuse_repeats(t, err);
    if (status < 0) by_token_lines_deinit(t);
    return status;
}

void by_token_lines_deinit(by_token_lines *t) {
    by_free(t->lines);
    by_arena_deinit(&t->arena);
    by_buf_deinit(&t->text);
    *t = (by_token_lines){0};
}
