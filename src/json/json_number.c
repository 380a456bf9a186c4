/* json_number.c - numbers of the reader. Integers that fit are exact; the usual short decimal is one exact product or
 * quotient of two doubles (both below 2^53 and 10^22, so one rounding in all); the rest is left to strtod, which rounds
 * correctly. strtod sees digits and an exponent but never a point, because a locale may have changed its sign. */
#include "json/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t mantissa; /* the first 19 significant digits */
    int64_t exponent;  /* of ten, for the mantissa */
    int64_t written;   /* exponent behind the e */
    size_t n_digits;   /* significant digits in all */
    size_t n_fraction; /* digits behind the point */
    bool integral;     /* neither point nor exponent */
} decimal;

enum { MANTISSA_DIGITS = 19, EXPONENT_MAX = 1000000000 };

static bool is_digit(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

static const char *scan_digits(const char *p, const char *end, decimal *d, bool fraction) {
    for (; is_digit(p, end); p++) {
        if (fraction) d->n_fraction++;
        if (d->n_digits == 0 && *p == '0') {
            if (fraction) d->exponent--;
            continue;
        }
        if (d->n_digits++ < MANTISSA_DIGITS) {
            d->mantissa = d->mantissa * 10 + (uint64_t)(*p - '0');
            if (fraction) d->exponent--;
        } else if (!fraction) {
            d->exponent++;
        }
    }
    return p;
}

/* p is behind the e; NULL when no digit follows. */
static const char *scan_exponent(const char *p, const char *end, decimal *d) {
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (!is_digit(p, end)) return NULL;
    int64_t e = 0;
    for (; is_digit(p, end); p++)
        if (e < EXPONENT_MAX) e = e * 10 + (*p - '0');
    d->written = negative ? -e : e;
    d->exponent += d->written;
    return p;
}

/* The slow way: all digits, then the exponent that the point and the e amount to. */
static bool read_with_strtod(by_str raw, const decimal *d, by_arena *arena, double *out) {
    char small[128], *text = small;
    size_t room = by_add_size(raw.len, 32), n = 0;
    if (room > sizeof small && !(text = by_arena_alloc(arena, room))) return false;
    for (size_t i = 0; i < raw.len && raw.ptr[i] != 'e' && raw.ptr[i] != 'E'; i++)
        if (raw.ptr[i] != '.') text[n++] = raw.ptr[i];
    snprintf(text + n, 32, "e%lld", (long long)(d->written - (int64_t)d->n_fraction));
    *out = strtod(text, NULL);
    return true;
}

static bool set_double(by_json *out, const decimal *d, by_arena *arena) {
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool negative = out->raw.ptr[0] == '-';
    out->type = BY_JSON_DOUBLE;
    if (d->n_digits <= MANTISSA_DIGITS && d->mantissa <= (uint64_t)1 << 53 && d->exponent >= -22 && d->exponent <= 22) {
        double m = (double)d->mantissa;
        m = d->exponent < 0 ? m / power[-d->exponent] : m * power[d->exponent];
        out->v.d = negative ? -m : m;
        return true;
    }
    return read_with_strtod(out->raw, d, arena, &out->v.d);
}

/* False when the number is not an integer of 64 bits. "-0" is none on purpose: only a double has a negative zero. */
static bool set_integer(by_json *out, const decimal *d) {
    uint64_t v = d->mantissa;
    if (!d->integral || d->n_digits > MANTISSA_DIGITS + 1) return false;
    if (d->n_digits == MANTISSA_DIGITS + 1) {
        uint64_t last = (uint64_t)(out->raw.ptr[out->raw.len - 1] - '0');
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, last, &v)) return false;
    }
    if (out->raw.ptr[0] == '-') {
        if (v == 0 || v > (uint64_t)INT64_MAX + 1) return false;
        out->type = BY_JSON_INT;
        out->v.i = (int64_t)(0 - v);
    } else if (v <= INT64_MAX) {
        out->type = BY_JSON_INT;
        out->v.i = (int64_t)v;
    } else {
        out->type = BY_JSON_UINT;
        out->v.u = v;
    }
    return true;
}

const char *by_json_scan_number(const char **at, const char *end, by_arena *arena, by_json *out) {
    const char *from = *at, *p = from;
    decimal d = {.integral = true};
    if (*p == '-') p++;
    if (!is_digit(p, end)) return *at = p, "expected a digit";
    if (*p == '0') p++;
    else p = scan_digits(p, end, &d, false);
    if (p < end && *p == '.') {
        d.integral = false;
        if (!is_digit(++p, end)) return *at = p, "expected a digit after the point";
        p = scan_digits(p, end, &d, true);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        d.integral = false;
        const char *behind = scan_exponent(p + 1, end, &d);
        if (!behind) return *at = p, "expected a digit in the exponent";
        p = behind;
    }
    out->raw = by_str_of(from, (size_t)(p - from));
    *at = p;
    if (set_integer(out, &d)) return NULL;
    if (!set_double(out, &d, arena)) return "";
    if (!isfinite(out->v.d)) return *at = from, "number out of range";
    return NULL;
}
