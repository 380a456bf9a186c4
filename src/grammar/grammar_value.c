/* grammar_value.c - single JSON values: what makes two texts the same value, and all spellings of one value.
 *
 * A value's canonical text says everything that equality looks at and nothing else: members sorted by key, numbers as digits and
 * point. Its spellings are a term, so that "none of the values seen" is an intersection with a complement, whose dead ends are
 * found like all others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_schema.h"

#define SPELLED_MAX 32u /* members and items of one value; larger ones are only compared at their end */
#define NUMBER_MAX  400u /* bytes of a number that are compared while it is read */
#define ORDERED_MAX 3u  /* members that are spelled in each order */

/* ---- canonical texts ---- */

static int cmp_member(const void *a, const void *b) {
    const by_json_member *const *x = a, *const *y = b;
    return by_str_cmp((*x)->key, (*y)->key);
}

/* The members in the order of their keys, the last one of equal keys. Freed by the caller; NULL: out of memory. */
static const by_json_member **members_of(const by_json *v, uint32_t *n) {
    const by_json_member **m = by_alloc(BY_MEM_GRAMMAR, (v->n + 1) * sizeof *m);
    *n = 0;
    for (uint32_t i = 0; m && i < v->n; i++)
        if (by_json_get_str(v, v->v.members[i].key) == &v->v.members[i].value) m[(*n)++] = &v->v.members[i];
    return m;
}

static bool canonical(const by_json *v, by_buf *out);

static bool canonical_object(const by_json *v, by_buf *out) {
    uint32_t n;
    const by_json_member **m = members_of(v, &n);
    if (!m) return false;
    qsort(m, n, sizeof *m, cmp_member);
    bool ok = by_buf_printf(out, "{%u,", n);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = by_buf_printf(out, "%zu:", m[i]->key.len) && by_buf_push_str(out, m[i]->key) && canonical(&m[i]->value, out);
    by_free(m);
    return ok;
}

/* S + decoded string, N + digits and point, or the literal itself. */
static bool canonical(const by_json *v, by_buf *out) {
    by_gr_decimal d;
    switch (v->type) {
    case BY_JSON_NULL: return by_buf_push_z(out, "null");
    case BY_JSON_BOOL: return by_buf_push_z(out, v->v.b ? "true" : "false");
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE:
        if (!by_gr_decimal_parse(&d, v->raw)) return by_buf_push_byte(out, 'R') && by_buf_push_str(out, v->raw);
        return by_buf_printf(out, "N%s%.*s@%d;", d.neg ? "-" : "", (int)d.n, d.digits, d.point);
    case BY_JSON_STRING: return by_buf_printf(out, "S%zu:", v->v.s.len) && by_buf_push_str(out, v->v.s);
    case BY_JSON_ARRAY:
        if (!by_buf_printf(out, "[%u,", v->n)) return false;
        for (uint32_t i = 0; i < v->n; i++)
            if (!canonical(&v->v.items[i], out)) return false;
        return true;
    case BY_JSON_OBJECT: return canonical_object(v, out);
    }
    return false;
}

bool by_gr_value_parse(by_gr *g, by_str text, by_arena *a, by_json *v, by_buf *canon) {
    by_json_opts o = {.depth_max = 1000};
    by_status s = by_json_parse(v, a, text, &o, NULL);
    if (s >= 0 && canonical(v, canon)) return true;
    if (s >= 0 || s == BY_ENOMEM) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    else if (s == BY_ELIMIT) by_gr_fail(g, BY_EUNSUPPORTED, "grammar: distinct items nest deeper than %u", o.depth_max);
    return false;
}

uint32_t by_gr_value_id(by_gr *g, by_str canon) {
    for (uint32_t i = 0; i < g->n_lits; i++) /* values must be found again wherever they are */
        if (by_str_eq(g->lits[i], canon)) return i;
    if (!by_gr_grow(g, &g->lits, g->n_lits, &g->cap_lits, sizeof *g->lits)) return 0;
    by_str copy = by_arena_dup(&g->arena, canon);
    if (!copy.ptr) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), 0;
    g->lits[g->n_lits] = copy;
    return g->n_lits++;
}

/* The number of a canonical text. */
static bool decimal_of(by_str canon, by_gr_decimal *d) {
    const char *at = canon.len && canon.ptr[0] == 'N' ? memchr(canon.ptr, '@', canon.len) : NULL;
    *d = (by_gr_decimal){0};
    if (!at) return false;
    size_t k = 1;
    if (canon.ptr[k] == '-') d->neg = true, k++;
    while (canon.ptr + k < at && d->n < sizeof d->digits)
        d->digits[d->n++] = canon.ptr[k++];
    d->point = (int32_t)strtol(at + 1, NULL, 10);
    return true;
}

bool by_gr_value_decimal(const by_gr *g, uint32_t value, by_gr_decimal *out) {
    return decimal_of(g->lits[value], out);
}

/* ---- spellings of a number: SAME terms, a = value, b = what was read, x = 1 behind a digit ---- */

/* What an exponent must be so that the digits before it make d; digits[] is its size. Zero may have any. */
static bool exponent_of(const by_gr_decimal *d, const char *mantissa, size_t n, bool *negative, char digits[16]) {
    by_gr_decimal m;
    char text[NUMBER_MAX + 8];
    memcpy(text, mantissa, n);
    if (!by_gr_decimal_parse(&m, by_str_of(text, n)) || m.n == 0) return false;
    int32_t e = d->point - m.point;
    *negative = e < 0;
    snprintf(digits, 16, "%d", e < 0 ? -e : e);
    return m.n == d->n && memcmp(m.digits, d->digits, m.n) == 0;
}

/* The exponent with one byte more; text[e] is its "e". */
static size_t exponent_on(const by_gr_decimal *d, char *text, size_t n, size_t e, char c) {
    char want[16];
    bool negative = false, zero = d->n == 0, sign = text[n - 1] == '-';
    if (!zero && !exponent_of(d, text, e, &negative, want)) return 0;
    if (c == '-' || c == '+') {
        if (n != e + 1 || (!zero && want[0] != '0' && (c == '-') != negative)) return 0;
        if (c == '-') text[n++] = c;
        return n;
    }
    size_t k = n - e - 1 - (n > e + 1 && text[e + 1] == '-');
    if (zero || (c == '0' && k == 0)) return n; /* no digit, or zeros in front, change nothing */
    if (k == 0 && !sign && negative) return 0;
    if (k >= strlen(want) || want[k] != c) return 0;
    text[n++] = c;
    return n;
}

/* The text with one byte more: 0 when no spelling of d begins so. Zeros that change nothing are left out, so that a number of few
 * digits has few states. */
static size_t read_on(const by_gr_decimal *d, char *text, size_t n, char c) {
    const char *e = memchr(text, 'e', n);
    bool point = memchr(text, '.', n) != NULL, digit = c >= '0' && c <= '9';
    uint32_t k = 0; /* significant digits so far */
    if (e) return exponent_on(d, text, n, (size_t)(e - text), c);
    for (size_t i = 0; i < n; i++)
        if (text[i] >= '0' && text[i] <= '9' && (k || text[i] != '0')) k++;
    if (digit) {
        bool leading = !k && c == '0';
        if (!leading && k < d->n && d->digits[k] != c) return 0;
        if (!leading && k >= d->n && c != '0') return 0;
        if (point && c == '0' && (d->n == 0 || k >= d->n)) return n;
    }
    if (c == 'e' && d->n && k < d->n) return 0;
    text[n++] = c;
    return n < NUMBER_MAX ? n : 0;
}

/* Is that byte possible behind that text in a JSON number? */
static bool is_number_byte(const char *text, size_t n, bool whole, char c) {
    size_t sign = n && text[0] == '-';
    if (memchr(text, 'e', n)) return (c >= '0' && c <= '9') || (c != '.' && c != 'e' && text[n - 1] == 'e' && !whole);
    if (c >= '0' && c <= '9') return n != sign + 1 || text[sign] != '0';
    if (c == '.') return whole && !memchr(text, '.', n);
    return c == 'e' ? whole : c == '-' && n == 0;
}

/* b is the text as a list of its bytes, the last one first. */
static by_gr_term same(by_gr *g, uint32_t value, const by_gr_decimal *d, uint32_t list, by_str text, bool whole) {
    by_gr_decimal now;
    bool eq = whole && by_gr_decimal_parse(&now, text) && by_gr_decimal_eq(d, &now);
    return by_gr_node_make(g, BY_GR_K_SAME, whole, value, list, 0, eq ? BY_GR_F_NULLABLE : 0);
}

by_gr_term by_gr_value_numbers(by_gr *g, uint32_t value) {
    by_gr_decimal d;
    if (!decimal_of(g->lits[value], &d)) return BY_GR_NEVER;
    return same(g, value, &d, 0, by_str_of("", 0), false);
}

const by_gr_row *by_gr_row_same(by_gr *g, by_gr_node n) {
    static const char bytes[] = "+-.0123456789Ee";
    by_gr_range out[16];
    unsigned k = 0;
    by_gr_decimal d;
    char text[NUMBER_MAX + 8];
    size_t len = 0;
    if (!decimal_of(g->lits[n.a], &d)) return by_gr_row_make(g, NULL, 0, NULL, 0);
    for (uint32_t i = n.b; i; i = g->nodes[i].b)
        len++;
    size_t at = len;
    for (uint32_t i = n.b; i; i = g->nodes[i].b)
        text[--at] = (char)g->nodes[i].a;
    for (const char *b = bytes; *b; b++) {
        char c = *b == 'E' ? 'e' : *b;
        if (!is_number_byte(text, len, n.x, c) || (len == 0 && d.n && (c == '-') != d.neg)) continue;
        size_t more = read_on(&d, text, len, c);
        if (more == 0) continue;
        bool whole = c >= '0' && c <= '9';
        uint32_t list = more == len ? n.b : by_gr_node_make(g, BY_GR_K_TUPLE, 3, (uint8_t)text[more - 1], n.b, 0, 0);
        bool zeros = whole && more == len && (text[len - 1] < '0' || text[len - 1] > '9'); /* "1e" and "1." with the zero that was left out */
        if (zeros) text[more++] = '0';
        out[k++] = (by_gr_range){(uint8_t)*b, (uint8_t)*b, same(g, n.a, &d, list, by_str_of(text, more), whole)};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

/* ---- spellings of a value ---- */

static by_gr_term blanks(by_gr *g) {
    by_gr_set256 s = {0};
    by_gr_set_add(&s, ' ');
    by_gr_set_add(&s, '\t');
    by_gr_set_add(&s, '\n');
    by_gr_set_add(&s, '\r');
    return by_gr_star(g, by_gr_cls(g, &s));
}

static by_gr_term string_texts(by_gr *g, by_str s) {
    return by_gr_seq(g, by_gr_lit(g, BY_STR("\"")), by_gr_jstr(g, by_gr_lit(g, s), BY_GR_STYLE_ANY));
}

static by_gr_term texts(by_gr *g, const by_json *v);

static by_gr_term list_texts(by_gr *g, const by_json *v) {
    by_gr_term ws = blanks(g), comma = by_gr_group(g, by_gr_seq(g, by_gr_lit(g, BY_STR(",")), ws)), t = by_gr_lit(g, BY_STR("]"));
    for (uint32_t i = v->n; i-- > 0 && !by_gr_bad(g);) {
        t = by_gr_seq(g, texts(g, &v->v.items[i]), by_gr_seq(g, ws, t));
        if (i) t = by_gr_seq(g, comma, t);
    }
    return by_gr_seq(g, by_gr_lit(g, BY_STR("[")), by_gr_seq(g, ws, t));
}

/* The rest of an object whose members of the set are still to come; orders: in any order, else in theirs. */
static by_gr_term members(by_gr *g, const by_json_member *const *m, uint32_t n, uint32_t set, bool orders) {
    by_gr_term ws = blanks(g), all = BY_GR_NEVER;
    if (!set) return by_gr_lit(g, BY_STR("}"));
    for (uint32_t i = 0; i < n && !by_gr_bad(g); i++) {
        if (!(set >> i & 1)) continue;
        uint32_t rest = set & ~(1u << i);
        by_gr_term colon = by_gr_seq(g, ws, by_gr_seq(g, by_gr_lit(g, BY_STR(":")), ws));
        by_gr_term t = members(g, m, n, rest, orders);
        if (rest) t = by_gr_seq(g, by_gr_group(g, by_gr_seq(g, by_gr_lit(g, BY_STR(",")), ws)), t);
        t = by_gr_seq(g, texts(g, &m[i]->value), by_gr_seq(g, ws, t));
        all = by_gr_alt2(g, all, by_gr_seq(g, by_gr_group(g, by_gr_seq(g, string_texts(g, m[i]->key), colon)), t));
        if (!orders) break;
    }
    return all;
}

static by_gr_term texts(by_gr *g, const by_json *v) {
    by_buf canon = {0};
    by_gr_term t = BY_GR_NEVER;
    uint32_t n;
    switch (v->type) {
    case BY_JSON_NULL: return by_gr_lit(g, BY_STR("null"));
    case BY_JSON_BOOL: return v->v.b ? by_gr_lit(g, BY_STR("true")) : by_gr_lit(g, BY_STR("false"));
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE:
        if (!canonical(v, &canon)) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
        else t = by_gr_value_numbers(g, by_gr_value_id(g, by_buf_str(&canon)));
        by_buf_deinit(&canon);
        return t;
    case BY_JSON_STRING: return string_texts(g, v->v.s);
    case BY_JSON_ARRAY: return list_texts(g, v);
    case BY_JSON_OBJECT: break;
    }
    const by_json_member **m = members_of(v, &n);
    if (!m) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
    t = members(g, m, n, n < 32 ? (1u << n) - 1 : UINT32_MAX, n <= (g->opts.any_order ? 2 * ORDERED_MAX : ORDERED_MAX));
    by_free(m);
    return by_gr_seq(g, by_gr_lit(g, BY_STR("{")), by_gr_seq(g, blanks(g), t));
}

/* Values inside, the value itself included; counts no further than SPELLED_MAX. */
static uint32_t count_parts(const by_json *v) {
    uint32_t n = 1;
    if (v->type != BY_JSON_ARRAY && v->type != BY_JSON_OBJECT) return n;
    for (uint32_t i = 0; i < v->n && n < SPELLED_MAX; i++)
        n += count_parts(v->type == BY_JSON_ARRAY ? &v->v.items[i] : &v->v.members[i].value);
    return n;
}

by_gr_term by_gr_value_texts(by_gr *g, const by_json *v) {
    return count_parts(v) < SPELLED_MAX ? texts(g, v) : BY_GR_NEVER;
}
