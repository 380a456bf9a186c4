/* grammar_unicode.c - sets of code points and their UTF-8 languages. */
#include "grammar/grammar_unicode.h"

#include <ctype.h>
#include <stdlib.h>

#include "grammar/grammar_internal.h"

bool by_gr_cps_add(by_gr *g, by_gr_cps *s, uint32_t lo, uint32_t hi) {
    if (!by_gr_grow(g, &s->v, s->n + 1, &s->cap, sizeof *s->v)) return false;
    s->v[s->n] = lo;
    s->v[s->n + 1] = hi;
    s->n += 2;
    return true;
}

void by_gr_cps_free(by_gr_cps *s) {
    by_free(s->v);
    *s = (by_gr_cps){0};
}

static int cmp_range(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void by_gr_cps_normalise(by_gr_cps *s) {
    if (s->n < 4) return;
    qsort(s->v, s->n / 2, 2 * sizeof *s->v, cmp_range);
    uint32_t k = 2;
    for (uint32_t i = 2; i < s->n; i += 2) {
        if (s->v[i] <= s->v[k - 1] || s->v[i] == s->v[k - 1] + 1) {
            if (s->v[i + 1] > s->v[k - 1]) s->v[k - 1] = s->v[i + 1];
        } else {
            s->v[k] = s->v[i];
            s->v[k + 1] = s->v[i + 1];
            k += 2;
        }
    }
    s->n = k;
}

bool by_gr_cps_invert(by_gr *g, by_gr_cps *s) {
    by_gr_cps_normalise(s);
    by_gr_cps out = {0};
    uint32_t at = 0;
    bool ok = true;
    for (uint32_t i = 0; i < s->n && ok; i += 2) {
        if (s->v[i] > at) ok = by_gr_cps_add(g, &out, at, s->v[i] - 1);
        at = s->v[i + 1] + 1;
    }
    if (ok && at <= 0x10ffff) ok = by_gr_cps_add(g, &out, at, 0x10ffff);
    by_gr_cps_free(s);
    *s = out;
    return ok;
}

/* Case pairs of the blocks with regular layout; single exceptions are left out (documented). */
static const struct {
    uint32_t lo, hi, delta;
} upper_blocks[] = {{'A', 'Z', 32},     {0xc0, 0xd6, 32},   {0xd8, 0xde, 32},   {0x391, 0x3a1, 32},  {0x3a3, 0x3ab, 32},
                    {0x410, 0x42f, 32}, {0x400, 0x40f, 80}, {0x531, 0x556, 48}, {0xff21, 0xff3a, 32}};

static bool fold_pairs(by_gr *g, by_gr_cps *s, uint32_t lo, uint32_t hi) {
    for (uint32_t cp = lo; cp <= hi; cp++) { /* Latin Extended-A and Cyrillic: even upper, odd lower */
        bool paired = (cp >= 0x100 && cp <= 0x137) || (cp >= 0x14a && cp <= 0x177) || (cp >= 0x460 && cp <= 0x481) ||
                      (cp >= 0x48a && cp <= 0x4bf) || (cp >= 0x4d0 && cp <= 0x52f);
        if (paired && !by_gr_cps_add(g, s, cp ^ 1, cp ^ 1)) return false;
    }
    return true;
}

bool by_gr_cps_fold(by_gr *g, by_gr_cps *s) {
    by_gr_cps_normalise(s);
    uint32_t n = s->n;
    for (uint32_t i = 0; i < n; i += 2) {
        uint32_t lo = s->v[i], hi = s->v[i + 1];
        for (unsigned k = 0; k < sizeof upper_blocks / sizeof upper_blocks[0]; k++) {
            uint32_t d = upper_blocks[k].delta, a = upper_blocks[k].lo, b = upper_blocks[k].hi;
            uint32_t x = lo > a ? lo : a, y = hi < b ? hi : b;
            if (x <= y && !by_gr_cps_add(g, s, x + d, y + d)) return false;
            x = lo > a + d ? lo : a + d;
            y = hi < b + d ? hi : b + d;
            if (x <= y && !by_gr_cps_add(g, s, x - d, y - d)) return false;
        }
        uint32_t a = lo > 0x100 ? lo : 0x100, b = hi < 0x52f ? hi : 0x52f;
        if (a <= b && !fold_pairs(g, s, a, b)) return false;
    }
    by_gr_cps_normalise(s);
    return true;
}

/* ---- properties ---- */

static const struct {
    const char *name, *cats;
} long_names[] = {{"any", "*"},
                  {"assigned", "*"},
                  {"letter", "L"},
                  {"alphabetic", "L,Nl"},
                  {"alpha", "L,Nl"},
                  {"uppercase", "Lu"},
                  {"uppercaseletter", "Lu"},
                  {"lowercase", "Ll"},
                  {"lowercaseletter", "Ll"},
                  {"titlecaseletter", "Lt"},
                  {"modifierletter", "Lm"},
                  {"otherletter", "Lo"},
                  {"casedletter", "Lu,Ll,Lt"},
                  {"lc", "Lu,Ll,Lt"},
                  {"mark", "M"},
                  {"combiningmark", "M"},
                  {"nonspacingmark", "Mn"},
                  {"spacingmark", "Mc"},
                  {"enclosingmark", "Me"},
                  {"number", "N"},
                  {"digit", "Nd"},
                  {"decimalnumber", "Nd"},
                  {"letternumber", "Nl"},
                  {"othernumber", "No"},
                  {"punctuation", "P"},
                  {"punct", "P"},
                  {"connectorpunctuation", "Pc"},
                  {"dashpunctuation", "Pd"},
                  {"openpunctuation", "Ps"},
                  {"closepunctuation", "Pe"},
                  {"initialpunctuation", "Pi"},
                  {"finalpunctuation", "Pf"},
                  {"otherpunctuation", "Po"},
                  {"symbol", "S"},
                  {"mathsymbol", "Sm"},
                  {"currencysymbol", "Sc"},
                  {"modifiersymbol", "Sk"},
                  {"othersymbol", "So"},
                  {"separator", "Z"},
                  {"spaceseparator", "Zs"},
                  {"lineseparator", "Zl"},
                  {"paragraphseparator", "Zp"},
                  {"other", "C"},
                  {"control", "Cc"},
                  {"cntrl", "Cc"},
                  {"format", "Cf"},
                  {"privateuse", "Co"},
                  {"space", "Z"},
                  {"whitespace", "Z"}};

static bool add_category(by_gr *g, by_gr_cps *s, const char *cat, size_t len) {
    bool any = false;
    for (uint32_t i = 0; i < by_gr_uni_category_n; i++) {
        const by_gr_uni_range *r = &by_gr_uni_category[i];
        if (len == 1 && *cat == '*')
            any = by_gr_cps_add(g, s, 0, 0x10ffff);
        else if (strncmp(by_gr_uni_category_names[r->value], cat, len) == 0)
            any = by_gr_cps_add(g, s, r->lo, r->hi);
        if (*cat == '*') break;
    }
    return any;
}

bool by_gr_cps_property(by_gr *g, by_gr_cps *s, by_str name) {
    size_t eq = 0;
    while (eq < name.len && name.ptr[eq] != '=' && name.ptr[eq] != ':')
        eq++;
    by_str key = by_str_take(name, eq), val = eq < name.len ? by_str_skip(name, eq + 1) : name;
    if (eq < name.len && !by_str_eqz(key, "gc") && !by_str_eqz(key, "General_Category") && !by_str_eqz(key, "sc") &&
        !by_str_eqz(key, "Script") && !by_str_eqz(key, "scx") && !by_str_eqz(key, "Script_Extensions"))
        return false;
    if (by_str_starts(val, BY_STR("Is"))) val = by_str_skip(val, 2);
    if (val.len >= 1 && val.len <= 2 && strchr("LMNPSZC", val.ptr[0]) && !by_str_eqz(val, "LC"))
        return add_category(g, s, val.ptr, val.len);
    char low[40];
    size_t n = 0;
    for (size_t i = 0; i < val.len && n < sizeof low - 1; i++)
        if (val.ptr[i] != '_' && val.ptr[i] != ' ' && val.ptr[i] != '-')
            low[n++] = (char)tolower((unsigned char)val.ptr[i]);
    low[n] = 0;
    for (unsigned i = 0; i < sizeof long_names / sizeof long_names[0]; i++) {
        if (strcmp(low, long_names[i].name) != 0) continue;
        for (const char *c = long_names[i].cats; *c; c += strcspn(c, ",") + (c[strcspn(c, ",")] == ','))
            add_category(g, s, c, strcspn(c, ","));
        return true;
    }
    bool found = false;
    for (uint32_t i = 0; i < by_gr_uni_script_n; i++) {
        const by_gr_uni_range *r = &by_gr_uni_script[i];
        const char *sc = by_gr_uni_script_names[r->value];
        if (strlen(sc) == val.len && memcmp(sc, val.ptr, val.len) == 0) found = by_gr_cps_add(g, s, r->lo, r->hi);
    }
    return found;
}

/* ---- UTF-8 ---- */

static unsigned encode(uint32_t cp, uint8_t out[4]) {
    if (cp < 0x80) return out[0] = (uint8_t)cp, 1;
    if (cp < 0x800) return out[0] = (uint8_t)(0xc0 | cp >> 6), out[1] = (uint8_t)(0x80 | (cp & 63)), 2;
    if (cp < 0x10000)
        return out[0] = (uint8_t)(0xe0 | cp >> 12), out[1] = (uint8_t)(0x80 | (cp >> 6 & 63)),
               out[2] = (uint8_t)(0x80 | (cp & 63)), 3;
    return out[0] = (uint8_t)(0xf0 | cp >> 18), out[1] = (uint8_t)(0x80 | (cp >> 12 & 63)),
           out[2] = (uint8_t)(0x80 | (cp >> 6 & 63)), out[3] = (uint8_t)(0x80 | (cp & 63)), 4;
}

/* [lo, hi] of one encoded length, split so that each part is a product of byte ranges. */
static unsigned split_same(uint32_t lo, uint32_t hi, by_gr_utf8_seq *out, unsigned n) {
    uint8_t a[4], b[4];
    unsigned len = encode(lo, a);
    for (unsigned i = 1; i < len; i++) { /* the trailing i characters of 6 bits */
        uint32_t m = (1u << 6 * i) - 1;
        if ((lo & ~m) == (hi & ~m)) break;
        if (lo & m) {
            n = split_same(lo, lo | m, out, n);
            return split_same((lo | m) + 1, hi, out, n);
        }
        if ((hi & m) != m) {
            n = split_same(lo, (hi & ~m) - 1, out, n);
            return split_same(hi & ~m, hi, out, n);
        }
    }
    encode(hi, b);
    out[n].n = (uint8_t)len;
    memcpy(out[n].lo, a, 4);
    memcpy(out[n].hi, b, 4);
    return n + 1;
}

unsigned by_gr_utf8_split(uint32_t lo, uint32_t hi, by_gr_utf8_seq out[32]) {
    static const uint32_t parts[][2] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    unsigned n = 0;
    for (unsigned i = 0; i < 5; i++) {
        uint32_t a = lo > parts[i][0] ? lo : parts[i][0], b = hi < parts[i][1] ? hi : parts[i][1];
        if (a <= b) n = split_same(a, b, out, n);
    }
    return n;
}

static by_gr_term seq_term(by_gr *g, const by_gr_utf8_seq *s) {
    by_gr_term t = BY_GR_EPS;
    for (unsigned d = s->n; d-- > 0;)
        t = by_gr_seq(g, by_gr_byte_range(g, s->lo[d], s->hi[d]), t);
    return t;
}

by_gr_term by_gr_cps_term(by_gr *g, const by_gr_cps *s) {
    if (s->n == 2 && s->v[0] == 0 && s->v[1] == 0x10ffff && g->rules[0].built) return BY_GR_ANYCHAR;
    by_gr_set256 ascii = {0};
    by_gr_vec parts = {0};
    for (uint32_t i = 0; i < s->n && !by_gr_bad(g); i += 2) {
        uint32_t lo = s->v[i], hi = s->v[i + 1];
        for (; lo < 0x80 && lo <= hi; lo++)
            by_gr_set_add(&ascii, lo);
        by_gr_utf8_seq u[32];
        unsigned n = lo <= hi ? by_gr_utf8_split(lo, hi, u) : 0;
        for (unsigned k = 0; k < n; k++)
            by_gr_vec_push(g, &parts, seq_term(g, &u[k]));
    }
    by_gr_vec_push(g, &parts, by_gr_cls(g, &ascii));
    by_gr_term t = by_gr_alt(g, parts.v, parts.n);
    by_gr_vec_free(&parts);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}

by_gr_term by_gr_char_range(by_gr *g, uint32_t lo, uint32_t hi) {
    by_gr_cps s = {0};
    by_gr_term t = by_gr_cps_add(g, &s, lo, hi) ? by_gr_cps_term(g, &s) : BY_GR_NEVER;
    by_gr_cps_free(&s);
    return t;
}
