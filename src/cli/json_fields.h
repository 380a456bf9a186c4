/* json_fields.h - optional fields of a JSON object of our own formats: numbers in a range, flags, seeds. A field that is absent or
 * null leaves *out as it is. Errors: BY_EINVAL with the field's name. */
#ifndef BY_CLI_JSON_FIELDS_H
#define BY_CLI_JSON_FIELDS_H

#include "base/err.h"
#include "json/json.h"

/* A number, an integer, a boolean; min and max belong to the range. */
by_status by_json_field_double(double *out, const by_json *row, const char *key, double min, double max, by_err *err);
by_status by_json_field_int(int64_t *out, const by_json *row, const char *key, int64_t min, int64_t max, by_err *err);
by_status by_json_field_bool(bool *out, const by_json *row, const char *key, by_err *err);

/* "seed": any 64-bit integer, negative ones modulo 2^64; without one a random number, and *given is false. Errors: BY_EIO (no random
 * number to be had). */
by_status by_json_field_seed(uint64_t *out, bool *given, const by_json *row, by_err *err);

#endif
