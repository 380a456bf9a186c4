/* grammar_number.c - JSON number texts: syntax, exact comparison with decimals of any size, multiples.
 *
 * Bounds are read as decimal text and compared digit by digit, so nothing is rounded. Bounded numbers are offered
 * without exponent: the set of texts is then regular and the comparison exact. */
#include <ctype.h>
#include <stdlib.h>

#include "grammar/grammar_internal.h"

/* Remainders of one multipleOf; states are made only as they are reached. Where other conditions stand beside it, a search
 * for a member may have to go through all of them. */
#define MULTIPLE_MAX 1000000u
#define MULTIPLE_FREE_MAX 4000000000u

static by_gr_term digits(by_gr *g, uint32_t min, uint32_t max) {
    return by_gr_rep(g, by_gr_byte_range(g, '0', '9'), min, max);
}
static by_gr_term lit(by_gr *g, const char *s, size_t n) {
    return by_gr_lit(g, by_str_of(s, n));
}
static by_gr_term natural(by_gr *g) {
    return by_gr_alt2(g, lit(g, "0", 1), by_gr_seq(g, by_gr_byte_range(g, '1', '9'), digits(g, 0, BY_GR_INF)));
}
static by_gr_term fraction(by_gr *g) {
    return by_gr_opt(g, by_gr_seq(g, lit(g, ".", 1), digits(g, 1, BY_GR_INF)));
}
static by_gr_term signed_term(by_gr *g, by_gr_term t) {
    return by_gr_seq(g, by_gr_opt(g, lit(g, "-", 1)), t);
}

by_gr_term by_gr_integer(by_gr *g) {
    by_gr_term t = natural(g);
    if (g->opts.integer_dot_zero)
        t = by_gr_seq(g, t, by_gr_opt(g, by_gr_seq(g, lit(g, ".", 1), by_gr_rep(g, lit(g, "0", 1), 1, BY_GR_INF))));
    return signed_term(g, t);
}

by_gr_term by_gr_number_plain(by_gr *g) {
    return signed_term(g, by_gr_seq(g, natural(g), fraction(g)));
}

by_gr_term by_gr_number(by_gr *g) {
    by_gr_set256 e = {0}, sign = {0};
    by_gr_set_add(&e, 'e');
    by_gr_set_add(&e, 'E');
    by_gr_set_add(&sign, '+');
    by_gr_set_add(&sign, '-');
    by_gr_term exp =
        by_gr_seq(g, by_gr_cls(g, &e), by_gr_seq(g, by_gr_opt(g, by_gr_cls(g, &sign)), digits(g, 1, BY_GR_INF)));
    by_gr_term v[3] = {natural(g), fraction(g), by_gr_opt(g, exp)};
    return signed_term(g, by_gr_seq_n(g, v, 3));
}

/* ---- decimals ---- */

bool by_gr_decimal_parse(by_gr_decimal *d, by_str t) {
    *d = (by_gr_decimal){0};
    size_t i = 0;
    if (t.len && t.ptr[0] == '-') d->neg = true, i = 1;
    int32_t point = 0;
    bool dot = false;
    for (; i < t.len && (isdigit((unsigned char)t.ptr[i]) || t.ptr[i] == '.'); i++) {
        if (t.ptr[i] == '.') {
            dot = true;
            continue;
        }
        if (t.ptr[i] == '0' && d->n == 0) {
            point -= dot;
            continue;
        }
        if (d->n >= sizeof d->digits - 1) return false;
        d->digits[d->n++] = t.ptr[i];
        point += !dot;
    }
    if (i < t.len && (t.ptr[i] == 'e' || t.ptr[i] == 'E')) {
        bool neg = false;
        int32_t e = 0;
        i++;
        if (i < t.len && (t.ptr[i] == '+' || t.ptr[i] == '-')) neg = t.ptr[i++] == '-';
        for (; i < t.len; i++) {
            e = e * 10 + (t.ptr[i] - '0');
            if (e > 100000) return false;
        }
        point += neg ? -e : e;
    }
    while (d->n && d->digits[d->n - 1] == '0')
        d->n--;
    d->point = d->n ? point : 0;
    if (!d->n) d->neg = false;
    return i == t.len && (d->n == 0 || (d->point <= 400 && d->point >= -400));
}

bool by_gr_decimal_eq(const by_gr_decimal *a, const by_gr_decimal *b) {
    return a->neg == b->neg && a->n == b->n && a->point == b->point && memcmp(a->digits, b->digits, a->n) == 0;
}

/* ---- comparison ---- */

typedef struct {
    char i[820], f[820]; /* integer digits ("0" at least), fraction digits without trailing zeros */
    uint32_t ni, nf;
} parts;

static void split(parts *p, const by_gr_decimal *d) {
    p->ni = p->nf = 0;
    for (int32_t k = 0; k < d->point; k++)
        p->i[p->ni++] = (uint32_t)k < d->n ? d->digits[k] : '0';
    if (p->ni == 0) p->i[p->ni++] = '0';
    for (int32_t k = d->point; k < 0; k++)
        p->f[p->nf++] = '0';
    for (int32_t k = d->point > 0 ? d->point : 0; (uint32_t)k < d->n; k++)
        p->f[p->nf++] = d->digits[k];
}

/* Digit strings that first differ from ref[0..n) by a greater (or smaller) digit, followed by rest digits. */
static void differ(by_gr *g, by_gr_vec *out, const char *ref, uint32_t n, bool greater, bool lead, uint32_t rest_min,
                   bool rest_open) {
    for (uint32_t k = 0; k < n; k++) {
        unsigned c = (uint8_t)ref[k];
        unsigned low = lead && k == 0 && n > 1 ? '1' : '0';
        unsigned a = greater ? c + 1 : low, b = greater ? '9' : c - 1;
        if (a > b) continue;
        by_gr_term rest = rest_open ? digits(g, rest_min, BY_GR_INF) : digits(g, n - 1 - k, n - 1 - k);
        by_gr_term v[3] = {lit(g, ref, k), by_gr_byte_range(g, a, b), rest};
        by_gr_vec_push(g, out, by_gr_seq_n(g, v, 3));
    }
}

static by_gr_term int_beyond(by_gr *g, const parts *p, bool greater) {
    by_gr_vec v = {0};
    by_gr_term one = by_gr_byte_range(g, '1', '9');
    if (greater)
        by_gr_vec_push(g, &v, by_gr_seq(g, one, digits(g, p->ni, BY_GR_INF)));
    else if (p->ni > 1) {
        by_gr_vec_push(g, &v, lit(g, "0", 1));
        by_gr_vec_push(g, &v, by_gr_seq(g, one, digits(g, 0, p->ni - 2)));
    }
    differ(g, &v, p->i, p->ni, greater, true, 0, false);
    by_gr_term t = by_gr_alt(g, v.v, v.n);
    by_gr_vec_free(&v);
    return t;
}

/* What may stand behind integer digits equal to the bound's: the fraction with its point, or nothing. */
static by_gr_term fraction_cmp(by_gr *g, const parts *p, by_gr_cmp cmp) {
    by_gr_vec v = {0};
    by_gr_term zeros = by_gr_rep(g, lit(g, "0", 1), 0, BY_GR_INF);
    by_gr_term some = by_gr_seq(g, zeros, by_gr_seq(g, by_gr_byte_range(g, '1', '9'), digits(g, 0, BY_GR_INF)));
    by_gr_term same = lit(g, p->f, p->nf);
    bool greater = cmp == BY_GR_GE || cmp == BY_GR_GT, equal = cmp == BY_GR_GE || cmp == BY_GR_LE;
    by_gr_term t = BY_GR_NEVER;
    if (greater) {
        differ(g, &v, p->f, p->nf, true, false, 0, true);
        if (equal && p->nf)
            by_gr_vec_push(g, &v, by_gr_seq(g, same, digits(g, 0, BY_GR_INF)));
        else if (equal)
            by_gr_vec_push(g, &v, digits(g, 1, BY_GR_INF));
        else
            by_gr_vec_push(g, &v, by_gr_seq(g, same, some));
        t = by_gr_seq(g, lit(g, ".", 1), by_gr_alt(g, v.v, v.n));
        if (equal && p->nf == 0) t = by_gr_opt(g, t);
    } else {
        differ(g, &v, p->f, p->nf, false, false, 0, true);
        for (uint32_t k = 1; k < p->nf; k++)
            by_gr_vec_push(g, &v, lit(g, p->f, k)); /* cut short: padded with zeros */
        if (equal && p->nf)
            by_gr_vec_push(g, &v, by_gr_seq(g, same, zeros));
        else if (equal)
            by_gr_vec_push(g, &v, by_gr_rep(g, lit(g, "0", 1), 1, BY_GR_INF));
        t = by_gr_seq(g, lit(g, ".", 1), by_gr_alt(g, v.v, v.n));
        if (p->nf || equal) t = by_gr_opt(g, t); /* no fraction at all */
    }
    by_gr_vec_free(&v);
    return t;
}

/* Unsigned texts that compare so with the magnitude. */
static by_gr_term magnitude(by_gr *g, by_gr_cmp cmp, const by_gr_decimal *d) {
    parts p;
    split(&p, d);
    by_gr_term beyond = by_gr_seq(g, int_beyond(g, &p, cmp == BY_GR_GE || cmp == BY_GR_GT), fraction(g));
    return by_gr_alt2(g, beyond, by_gr_seq(g, lit(g, p.i, p.ni), fraction_cmp(g, &p, cmp)));
}

by_gr_term by_gr_number_cmp(by_gr *g, by_gr_cmp cmp, by_str bound, bool minus_zero) {
    by_gr_decimal d;
    if (!by_gr_decimal_parse(&d, bound))
        return by_gr_fail(g, BY_ELIMIT, "number %.*s has too many digits for a bound", BY_STR_ARG(bound));
    by_gr_term any = by_gr_seq(g, natural(g), fraction(g)), pos = BY_GR_NEVER, neg = BY_GR_NEVER;
    bool zero = d.n == 0;
    if (!d.neg) {
        pos = magnitude(g, cmp, &d);
        if (cmp == BY_GR_GE)
            neg = zero ? magnitude(g, BY_GR_LE, &d) : BY_GR_NEVER;
        else if (cmp == BY_GR_LE)
            neg = any;
        else if (cmp == BY_GR_LT)
            neg = zero ? magnitude(g, BY_GR_GT, &d) : any;
    } else {
        static const by_gr_cmp mirror[] = {BY_GR_LE, BY_GR_LT, BY_GR_GE, BY_GR_GT};
        neg = magnitude(g, mirror[cmp], &d);
        if (cmp == BY_GR_GE || cmp == BY_GR_GT) pos = any;
    }
    if (!minus_zero && neg != BY_GR_NEVER) { /* the only negative texts that are not below zero are spellings of -0 */
        by_gr_decimal none = {0};
        neg = neg == any                ? magnitude(g, BY_GR_GT, &none)
              : zero && cmp != BY_GR_LT ? BY_GR_NEVER
                                        : by_gr_and2(g, neg, magnitude(g, BY_GR_GT, &none));
    }
    return by_gr_alt2(g, pos, by_gr_seq(g, lit(g, "-", 1), neg));
}

/* ---- multiples: MOD terms. a = modulus, x = fraction digits of the divisor, b = remainder of the digits so far times
 * nothing yet, c = phase. */

#define SCALE_MASK 0x7fffu
#define SCALE_WHOLE 0x8000u /* no fraction is offered */
enum { P_START, P_SIGN, P_ZERO, P_INT, P_FRAC }; /* P_FRAC + j: j fraction digits read */

static uint64_t pow10_mod(uint32_t k, uint64_t m) {
    uint64_t r = 1 % m;
    while (k-- > 0)
        r = r * 10 % m;
    return r;
}

/* Can the value still become a multiple with `left` more fraction digits? */
static bool can_close(uint32_t mod, uint32_t rem, uint32_t left) {
    uint64_t have = rem * pow10_mod(left, mod) % mod, need = have ? mod - have : 0, room = 1;
    for (uint32_t k = 0; k < left && room <= need; k++)
        room *= 10;
    return need < room;
}

bool by_gr_mod_nullable(by_gr *g, uint32_t mod, uint32_t rem, uint32_t phase) {
    (void)g;
    uint32_t scale = phase >> 16 & SCALE_MASK;
    phase &= 0xffff;
    if (phase < P_ZERO || phase == P_FRAC) return false;
    uint32_t done = phase > P_FRAC ? phase - P_FRAC : 0;
    uint32_t left = done < scale ? scale - done : 0;
    return rem * pow10_mod(left, mod) % mod == 0;
}

static by_gr_term mod_make(by_gr *g, uint32_t mod, uint32_t scale, uint32_t rem, uint32_t phase) {
    unsigned f = by_gr_mod_nullable(g, mod, rem, scale << 16 | phase) ? BY_GR_F_NULLABLE : 0;
    return by_gr_node_make(g, BY_GR_K_MOD, scale, mod, rem, phase, f);
}

const by_gr_row *by_gr_row_mod(by_gr *g, by_gr_node n) {
    uint32_t mod = n.a, flags = n.x, scale = n.x & SCALE_MASK, rem = n.b, phase = n.c, k = 0;
    by_gr_range out[12];
    if (phase == P_START) out[k++] = (by_gr_range){'-', '-', mod_make(g, mod, flags, 0, P_SIGN)};
    if ((phase == P_ZERO || phase == P_INT) && !(flags & SCALE_WHOLE) && can_close(mod, rem, scale))
        out[k++] = (by_gr_range){'.', '.', mod_make(g, mod, flags, rem, P_FRAC)};
    for (uint32_t d = 0; d < 10; d++) {
        uint32_t to_phase = P_INT, to = (uint32_t)(((uint64_t)rem * 10 + d) % mod);
        if (phase == P_ZERO) break;
        if (phase <= P_SIGN && d == 0) to_phase = P_ZERO;
        if (phase >= P_FRAC) {
            uint32_t done = phase - P_FRAC;
            to_phase = phase + 1;
            if (done >= scale) { /* beyond the divisor's digits only zeros */
                if (d) break;
                to = rem;
                to_phase = P_FRAC + scale + 1;
            } else if (!can_close(mod, to, scale - done - 1))
                continue;
        }
        out[k++] = (by_gr_range){(uint8_t)('0' + d), (uint8_t)('0' + d), mod_make(g, mod, flags, to, to_phase)};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

by_gr_term by_gr_number_multiple(by_gr *g, by_str of, by_gr_multiple form) {
    by_gr_decimal d;
    if (!by_gr_decimal_parse(&d, of) || d.neg || d.n == 0)
        return by_gr_fail(g, BY_EINVAL, "multipleOf %.*s is not a positive number of usable size", BY_STR_ARG(of));
    int32_t scale = (int32_t)d.n - d.point > 0 ? (int32_t)d.n - d.point : 0;
    uint64_t m = 0;
    uint32_t max = form == BY_GR_MULTIPLE ? MULTIPLE_MAX : MULTIPLE_FREE_MAX;
    for (uint32_t k = 0; k < d.n || (int32_t)k < d.point; k++) {
        m = m * 10 + (k < d.n ? (uint64_t)(d.digits[k] - '0') : 0);
        if (m > max)
            return by_gr_fail(g, BY_EUNSUPPORTED, "multipleOf %.*s: more than %u remainders", BY_STR_ARG(of), max);
    }
    if (form == BY_GR_MULTIPLE) return mod_make(g, (uint32_t)m, (uint32_t)scale, 0, P_START);
    for (int32_t k = 0; k < scale; k++) /* an integer is a multiple of m / 10^scale where it is one of m / gcd(m, 10^scale) */
        m /= common_divisor(m, 10);
    return mod_make(g, (uint32_t)m, form == BY_GR_MULTIPLE_WHOLE ? SCALE_WHOLE : 0, 0, P_START);
}
