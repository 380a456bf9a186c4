/* shape.c - see shape.h. */
#include "api/shape.h"

#include <stdio.h>
#include <string.h>

#include "json/json_write.h"

const by_shape by_shape_any = {.kind = BY_SHAPE_ANY}, by_shape_string = {.kind = BY_SHAPE_STRING},
               by_shape_bool = {.kind = BY_SHAPE_BOOL}, by_shape_u8 = {.kind = BY_SHAPE_U8},
               by_shape_u32 = {.kind = BY_SHAPE_U32}, by_shape_u64 = {.kind = BY_SHAPE_U64},
               by_shape_f32 = {.kind = BY_SHAPE_F32}, by_shape_map = {.kind = BY_SHAPE_MAP};

const by_shape by_shape_n = {.kind = BY_SHAPE_U8, .range = "from 1 to 128"}, by_shape_top = {.kind = BY_SHAPE_U8, .range = "from 0 to 20"},
               by_shape_count = {.kind = BY_SHAPE_U32, .range = "from 1"},
               by_shape_id = {.kind = BY_SHAPE_U32, .range = "from 0 to 2147483647"};

/* ---- messages ---- */

static void put_path(by_buf *out, const by_shape_path *at) {
    if (!at) return;
    put_path(out, at->up);
    if (at->key.ptr) {
        if (at->up) by_buf_push_byte(out, '.');
        by_buf_push_str(out, at->key);
    } else {
        by_buf_printf(out, "[%u]", at->index);
    }
}

/* The front of a long value, cut between characters. */
static by_str front_of(by_str s) {
    size_t n = s.len < 64 ? s.len : 64;
    while (n < s.len && n && ((unsigned char)s.ptr[n] & 0xc0u) == 0x80u) n--;
    return by_str_take(s, n);
}

by_status by_shape_fail(by_shape_job *job, const char *text, const by_json *v) {
    by_buf *out = job->message;
    by_buf_clear(out);
    put_path(out, job->at);
    if (job->at) by_buf_push_z(out, ": ");
    if (job->param) put_path(job->param, job->at);
    if (!job->code) job->code = v ? "invalid_type" : "missing_required_parameter";
    by_buf_push_z(out, text);
    if (v && v->type == BY_JSON_STRING) {
        by_buf_push_z(out, ", got \"");
        by_buf_push_str(out, front_of(v->v.s));
        by_buf_push_z(out, v->v.s.len > 64 ? "...\"" : "\"");
    } else if (v && job->server && by_json_is_number(v)) {
        by_buf_push_z(out, ", got ");
        by_json_write(out, v, BY_JSON_COMPACT);
    } else if (v) {
        by_buf_push_z(out, ", got ");
        by_buf_push_z(out, by_json_type_name(v->type));
    }
    if (job->param && by_buf_check(job->param, job->err) < 0) return BY_ENOMEM;
    return by_buf_check(out, job->err) < 0 ? BY_ENOMEM : BY_EINVAL;
}

static by_status fail_words(by_shape_job *job, const by_json *v, const char *const *words, uint32_t n) {
    by_buf text = {0};
    by_buf_push_z(&text, "expected one of");
    for (uint32_t i = 0; i < n; i++) {
        by_buf_push_z(&text, i ? ", " : " ");
        by_buf_push_z(&text, words[i]);
    }
    if (v->type == BY_JSON_STRING) job->code = "invalid_value";
    by_status status = by_shape_fail(job, by_buf_z(&text), v);
    by_buf_deinit(&text);
    return status;
}

/* ---- objects ---- */

static const by_json null_value = {.type = BY_JSON_NULL};

static by_status check_field(by_shape_job *job, by_json *v, bool present, const by_shape_field *f) {
    by_shape_path path = {.up = job->at, .key = by_str_z(f->key)};
    if (!present) {
        if (f->need != BY_FIELD_REQUIRED) return BY_OK;
        job->at = &path;
        return by_shape_fail(job, "missing", NULL);
    }
    if (v->type == BY_JSON_NULL && f->need == BY_FIELD_OPTIONAL) return BY_OK;
    const by_shape_path *outer = job->at;
    job->at = &path;
    BY_TRY(by_shape_check(job, v, f->shape));
    job->at = outer;
    return BY_OK;
}

by_status by_shape_check_fields(by_shape_job *job, by_json *v, const by_shape_field *fields, uint32_t n_fields,
                                const uint32_t *tag) {
    uint32_t first = tag ? 1 : 0, n = n_fields + first;
    by_json_member *record = by_arena_alloc(job->arena, by_mul_size(n, sizeof *record));
    bool present[32] = {false};
    if (!record) return BY_FAIL(job->err, BY_ENOMEM, "out of memory while reading a request");
    if (tag) record[0] = (by_json_member){.value = {.type = BY_JSON_INT, .v.i = *tag}};
    for (uint32_t i = 0; i < n_fields; i++) record[first + i] = (by_json_member){by_str_z(fields[i].key), null_value};
    for (uint32_t k = 0; k < v->n; k++) {
        const by_json_member *m = &v->v.members[k];
        for (uint32_t i = 0; i < n_fields; i++) {
            if (!by_str_eq(m->key, record[first + i].key)) continue;
            record[first + i].value = m->value;
            present[i] = true;
            break;
        }
    }
    for (uint32_t i = 0; i < n_fields; i++) BY_TRY(check_field(job, &record[first + i].value, present[i], &fields[i]));
    *v = (by_json){.type = BY_JSON_OBJECT, .n = n, .v.members = record};
    return BY_OK;
}

static by_status check_tagged(by_shape_job *job, by_json *v, const by_shape *shape) {
    if (v->type != BY_JSON_OBJECT) return by_shape_fail(job, "expected an object", v);
    const by_json *tag = by_json_get(v, shape->tag);
    by_shape_path path = {.up = job->at, .key = by_str_z(shape->tag)};
    if (tag && tag->type == BY_JSON_STRING) {
        for (uint32_t i = 0; i < shape->n; i++)
            if (by_str_eqz(tag->v.s, shape->variants[i].word))
                return by_shape_check_fields(job, v, shape->variants[i].fields, shape->variants[i].n_fields, &i);
    }
    job->at = &path;
    if (!tag) return by_shape_fail(job, "missing", NULL);
    const char *words[32];
    uint32_t n = shape->n;
    for (uint32_t i = 0; i < n; i++) words[i] = shape->variants[i].word;
    for (uint32_t i = 0; job->server && shape->words && shape->words[i]; i++) words[n++] = shape->words[i];
    return fail_words(job, tag, words, n);
}

/* ---- plain values ---- */

static by_status check_list(by_shape_job *job, by_json *v, const by_shape *of) {
    const by_shape_path *outer = job->at;
    for (uint32_t i = 0; i < v->n; i++) {
        by_shape_path path = {.up = outer, .index = i};
        job->at = &path;
        BY_TRY(by_shape_check(job, &v->v.items[i], of));
    }
    job->at = outer;
    return BY_OK;
}

static by_status check_word(by_shape_job *job, by_json *v, const by_shape *shape) {
    if (v->type == BY_JSON_STRING) {
        for (uint32_t i = 0; i < shape->n; i++) {
            if (!by_str_eqz(v->v.s, shape->words[i])) continue;
            *v = (by_json){.type = BY_JSON_INT, .v.i = i};
            return BY_OK;
        }
    }
    return fail_words(job, v, shape->words, shape->n);
}

static by_status fail_integer(by_shape_job *job, const by_json *v, const char *range) {
    char text[96];
    snprintf(text, sizeof text, "expected an integer %s", range);
    if (by_json_is_number(v)) job->code = "invalid_value";
    return by_shape_fail(job, text, v);
}

static by_status check_integer(by_shape_job *job, const by_json *v, int64_t max, const char *range) {
    int64_t n;
    return by_json_int_in(v, 0, max, &n) ? BY_OK : fail_integer(job, v, range);
}

/* OpenAI's seeds are integers of 64 bits with a sign. */
static by_status check_seed(by_shape_job *job, by_json *v) {
    if (!job->server) return by_shape_check(job, v, &by_shape_u64);
    if (v->type == BY_JSON_INT || v->type == BY_JSON_UINT) return BY_OK;
    return fail_integer(job, v, "from -2^63 to 2^63 - 1");
}
const by_shape by_shape_seed = {.kind = BY_SHAPE_CUSTOM, .check = check_seed};

static by_status check_float(by_shape_job *job, by_json *v) {
    if (!by_json_is_number(v)) return by_shape_fail(job, "expected a number", v);
    *v = (by_json){.type = BY_JSON_DOUBLE, .v.d = (double)(float)by_json_number(v)};
    return BY_OK;
}

static by_status want(by_shape_job *job, const by_json *v, by_json_type type, const char *what) {
    return v->type == type ? BY_OK : by_shape_fail(job, what, v);
}

by_status by_shape_check(by_shape_job *job, by_json *v, const by_shape *shape) {
    const char *range = job->server ? shape->range : NULL;
    switch (shape->kind) {
    case BY_SHAPE_ANY: return BY_OK;
    case BY_SHAPE_STRING: return want(job, v, BY_JSON_STRING, "expected a string");
    case BY_SHAPE_BOOL: return want(job, v, BY_JSON_BOOL, "expected true or false");
    case BY_SHAPE_U8: return check_integer(job, v, UINT8_MAX, range ? range : "from 0 to 255");
    case BY_SHAPE_U32: return check_integer(job, v, UINT32_MAX, range ? range : "from 0 to 4294967295");
    case BY_SHAPE_U64:
        if (v->type == BY_JSON_UINT) return BY_OK;
        return check_integer(job, v, INT64_MAX, "from 0 to 18446744073709551615");
    case BY_SHAPE_F32: return check_float(job, v);
    case BY_SHAPE_MAP: return want(job, v, BY_JSON_OBJECT, "expected an object");
    case BY_SHAPE_WORD: return check_word(job, v, shape);
    case BY_SHAPE_LIST:
        BY_TRY(want(job, v, BY_JSON_ARRAY, "expected a list"));
        return check_list(job, v, shape->of);
    case BY_SHAPE_STRING_OR_LIST:
        if (v->type == BY_JSON_STRING) return BY_OK;
        BY_TRY(want(job, v, BY_JSON_ARRAY, "expected a string or a list"));
        return check_list(job, v, shape->of);
    case BY_SHAPE_STRUCT:
        BY_TRY(want(job, v, BY_JSON_OBJECT, "expected an object"));
        return by_shape_check_fields(job, v, shape->fields, shape->n, NULL);
    case BY_SHAPE_TAGGED: return check_tagged(job, v, shape);
    case BY_SHAPE_CUSTOM: return shape->check(job, v);
    }
    return BY_EINVAL;
}
