/* json_fields.c - see json_fields.h. */
#include "cli/json_fields.h"

#include <sys/random.h>

static const by_json *given_field(const by_json *row, const char *key) {
    const by_json *v = by_json_get(row, key);
    return v && v->type != BY_JSON_NULL ? v : NULL;
}

by_status by_json_field_double(double *out, const by_json *row, const char *key, double min, double max, by_err *err) {
    const by_json *v = given_field(row, key);
    if (!v) return BY_OK;
    if (!by_json_is_number(v)) return BY_FAIL(err, BY_EINVAL, "%s: not a number", key);
    *out = by_json_number(v);
    if (!(*out >= min && *out <= max)) return BY_FAIL(err, BY_EINVAL, "%s: %g is outside %g..%g", key, *out, min, max);
    return BY_OK;
}

by_status by_json_field_int(int64_t *out, const by_json *row, const char *key, int64_t min, int64_t max, by_err *err) {
    const by_json *v = given_field(row, key);
    if (!v || by_json_int_in(v, min, max, out)) return BY_OK;
    return BY_FAIL(err, BY_EINVAL, "%s: not an integer in %lld..%lld", key, (long long)min, (long long)max);
}

by_status by_json_field_bool(bool *out, const by_json *row, const char *key, by_err *err) {
    const by_json *v = given_field(row, key);
    if (!v) return BY_OK;
    if (!by_json_is(v, BY_JSON_BOOL)) return BY_FAIL(err, BY_EINVAL, "%s: not a boolean", key);
    *out = v->v.b;
    return BY_OK;
}

by_status by_json_field_seed(uint64_t *out, bool *given, const by_json *row, by_err *err) {
    const by_json *v = given_field(row, "seed");
    *given = v != NULL;
    if (v && v->type == BY_JSON_INT) *out = (uint64_t)v->v.i;
    else if (v && v->type == BY_JSON_UINT) *out = v->v.u;
    else if (v) return BY_FAIL(err, BY_EINVAL, "seed: not a 64-bit integer");
    else if (getrandom(out, sizeof *out, 0) != sizeof *out) return BY_FAIL(err, BY_EIO, "seed: no random number to be had");
    return BY_OK;
}
