/* shape.h - the shape of a request body as tables, and the pass that checks JSON against them.
 *
 * by_shape_check rewrites the JSON in place into records: an object becomes the row of its known members in the order of
 * the table (an absent member is null), a word of a closed set becomes its index, a number gets its type. Conversion can
 * then read members by index and need not ask for types again. What is rejected is what deepseek-recipe 0.2.0 rejects as
 * "invalid request body"; unknown members are ignored. */
#ifndef BY_API_SHAPE_H
#define BY_API_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

typedef enum by_shape_kind {
    BY_SHAPE_ANY,            /* any value, left as it is */
    BY_SHAPE_STRING,
    BY_SHAPE_BOOL,
    BY_SHAPE_U8,             /* integers in range -> INT (UINT above 2^63) */
    BY_SHAPE_U32,
    BY_SHAPE_U64,
    BY_SHAPE_F32,            /* any number -> DOUBLE, rounded to float */
    BY_SHAPE_MAP,            /* any object, left as it is */
    BY_SHAPE_WORD,           /* one of words -> INT, its index */
    BY_SHAPE_LIST,           /* array of `of` */
    BY_SHAPE_STRING_OR_LIST, /* string, or array of `of` */
    BY_SHAPE_STRUCT,         /* object with fields */
    BY_SHAPE_TAGGED,         /* object whose member `tag` picks a variant; record: [0] index of the variant, then its fields */
    BY_SHAPE_CUSTOM          /* check() decides */
} by_shape_kind;

typedef struct by_shape by_shape;
typedef struct by_shape_job by_shape_job;

typedef struct by_shape_field {
    const char *key;
    const by_shape *shape;
    enum {
        BY_FIELD_OPTIONAL, /* absent or null */
        BY_FIELD_DEFAULT,  /* may be absent, not null */
        BY_FIELD_REQUIRED
    } need;
} by_shape_field;

typedef struct by_shape_variant {
    const char *word;
    const by_shape_field *fields;
    uint32_t n_fields;
} by_shape_variant;

struct by_shape {
    by_shape_kind kind;
    const char *tag;                                      /* TAGGED */
    const by_shape *of;                                   /* LIST, STRING_OR_LIST */
    const char *const *words;                             /* WORD; n of them. TAGGED: what else the server profile takes,
                                                             up to NULL, for messages; may be NULL */
    const by_shape_field *fields;                         /* STRUCT; n of them */
    const by_shape_variant *variants;                     /* TAGGED; n of them */
    by_status (*check)(by_shape_job *job, by_json *v);    /* CUSTOM */
    const char *range;                                    /* U8, U32: what the server profile's messages say of the range that
                                                             conversion takes, "from 1 to 128"; NULL: that of the type */
    uint32_t n;
};

/* A member's place in the body, for messages. */
typedef struct by_shape_path {
    const struct by_shape_path *up;
    by_str key; /* or index when ptr is NULL */
    uint32_t index;
} by_shape_path;

struct by_shape_job {
    by_arena *arena;
    by_buf *message; /* receives what is wrong: "messages[0].role: ..." */
    by_buf *param;   /* and the place alone: "messages[0].role"; may be NULL */
    const char *code; /* OpenAI's name of what is wrong, once something is */
    by_err *err;
    const by_shape_path *at;
    bool server; /* the server profile's additions are allowed */
};

/* Checks v against shape and rewrites it. BY_EINVAL with *message filled, BY_ENOMEM with err. */
by_status by_shape_check(by_shape_job *job, by_json *v, const by_shape *shape);

/* For CUSTOM shapes: the fields of an object into a record that begins with `tag` (NULL: no such member). */
by_status by_shape_check_fields(by_shape_job *job, by_json *v, const by_shape_field *fields, uint32_t n_fields,
                                const uint32_t *tag);

/* Fails with the path, the text and what v is: a string, in the server profile also a number, as it stands, else its type; v NULL:
 * it is missing. The code is "invalid_type" unless it is set before. Returns BY_EINVAL. */
by_status by_shape_fail(by_shape_job *job, const char *text, const by_json *v);

/* Member i of a record. */
static inline const by_json *by_field(const by_json *record, uint32_t i) { return &record->v.members[i].value; }
static inline bool by_given(const by_json *v) { return v->type != BY_JSON_NULL; }
static inline uint32_t by_variant(const by_json *record) { return (uint32_t)record->v.members[0].value.v.i; }

#define BY_COUNT(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))
#define BY_SHAPE_STRUCT_OF(fields_) {.kind = BY_SHAPE_STRUCT, .fields = (fields_), .n = BY_COUNT(fields_)}
#define BY_SHAPE_WORD_OF(words_) {.kind = BY_SHAPE_WORD, .words = (words_), .n = BY_COUNT(words_)}
#define BY_SHAPE_TAGGED_OF(tag_, variants_)                                                                            \
    {.kind = BY_SHAPE_TAGGED, .tag = (tag_), .variants = (variants_), .n = BY_COUNT(variants_)}
#define BY_SHAPE_LIST_OF(of_) {.kind = BY_SHAPE_LIST, .of = (of_)}
#define BY_SHAPE_STRING_OR_LIST_OF(of_) {.kind = BY_SHAPE_STRING_OR_LIST, .of = (of_)}

/* Integers whose range is narrower than their type. */
extern const by_shape by_shape_n, by_shape_top, by_shape_count, by_shape_id;
extern const by_shape by_shape_seed; /* INT or UINT; negative ones in the server profile only */
extern const by_shape by_shape_any, by_shape_string, by_shape_bool, by_shape_u8, by_shape_u32, by_shape_u64, by_shape_f32,
    by_shape_map;

#endif
