/* config_read.h - private to config*.c: typed reading of keys with one problem line per bad value.
 *
 * A bad or missing value leaves 0 (or an empty list) behind; the checks of relations skip zeros, so that one mistake
 * gives one line and the other mistakes are still found. */
#ifndef BY_MODEL_CONFIG_READ_H
#define BY_MODEL_CONFIG_READ_H

#include "json/json.h"
#include "model/config.h"

typedef struct by_config_reader {
    const by_json *top;  /* the whole file */
    const by_json *text; /* text_config, or the whole file when it is flat */
    by_problems *problems;
} by_config_reader;

typedef enum by_key_need { BY_KEY_REQUIRED, BY_KEY_OPTIONAL } by_key_need;

/* A field of by_config, or of a struct inside it, filled from one key. */
typedef struct by_int_field {
    const char *key;
    size_t at; /* offsetof an int in the struct */
    int min, max;
} by_int_field;

typedef struct by_real_field {
    const char *key;
    size_t at; /* offsetof a double */
    double min, max;
} by_real_field;

/* The value of key in obj; NULL when absent or null, with a problem when it is required. */
const by_json *by_config_find(by_config_reader *r, const by_json *obj, const char *key, by_key_need need);

/* "key: expected an integer, found the string "x"". */
void by_config_wrong_type(by_config_reader *r, const char *key, const char *expected, const by_json *found);

/* Each returns false and leaves *out alone when the key is absent (and optional) or bad. */
bool by_config_read_int(by_config_reader *r, const by_json *obj, const char *key, by_key_need need, int64_t min,
                        int64_t max, int64_t *out);
bool by_config_read_real(by_config_reader *r, const by_json *obj, const char *key, by_key_need need, double min,
                         double max, double *out);
bool by_config_read_bool(by_config_reader *r, const by_json *obj, const char *key, bool *out);
/* At most cap items, each in [min, max]; *n = 0 on a problem. */
bool by_config_read_ints(by_config_reader *r, const by_json *obj, const char *key, by_key_need need, int64_t min,
                         int64_t max, int cap, int64_t *out, int *n);

/* Each field of the table, into base at its offset; problems are collected in r. */
void by_config_read_int_fields(by_config_reader *r, const by_json *obj, const by_int_field *fields, int n, void *base);
void by_config_read_real_fields(by_config_reader *r, const by_json *obj, const by_real_field *fields, int n,
                                void *base);

/* An optional key that, when present, must hold this one value. */
void by_config_expect_str(by_config_reader *r, const by_json *obj, const char *key, const char *value);
void by_config_expect_bool(by_config_reader *r, const by_json *obj, const char *key, bool value, const char *why);

/* Parts; each reads its keys and checks its own relations. by_config_read_layers comes last: it needs the others. */
void by_config_read_layers(by_config_reader *r, by_config *c);
void by_config_read_engram(by_config_reader *r, by_config *c);
void by_config_read_draft(by_config_reader *r, by_config *c);
void by_config_read_vision(by_config_reader *r, by_config *c);

#endif
