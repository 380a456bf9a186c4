/* grammar_idna.c - is a label "xn--..." one that a registry may hold? Punycode is RFC 3492, the rules are RFC 5891 to 5893. */
#include "grammar/grammar_idna.h"

#include <string.h>

enum { BASE = 36, T_MIN = 1, T_MAX = 26, SKEW = 38, DAMP = 700, FIRST_BIAS = 72, FIRST_CODE = 0x80 };
#define CODE_MAX 0x10ffffu
#define SHARP_S  0xdfu /* the first letter beyond ASCII that every version of IDNA 2008 allows anywhere */

/* A label is at most 59 characters; decomposed each becomes at most four. */
enum { CHARS_MAX = BY_GR_ALABEL_MAX, PARTS_MAX = 4 * CHARS_MAX };

/* ---- Punycode ---- */

static uint32_t adapt(uint32_t delta, uint32_t n, bool first) {
    uint32_t k = 0;
    delta = first ? delta / DAMP : delta / 2;
    delta += delta / n;
    for (; delta > (BASE - T_MIN) * T_MAX / 2; k += BASE)
        delta /= BASE - T_MIN;
    return k + (BASE - T_MIN + 1) * delta / (delta + SKEW);
}

static uint32_t threshold(uint32_t k, uint32_t bias) {
    return k <= bias ? T_MIN : k >= bias + T_MAX ? T_MAX : k - bias;
}

static int digit_value(char c) {
    if (c >= 'a' && c <= 'z') return c - 'a';
    return c >= '0' && c <= '9' ? c - '0' + 26 : -1;
}

/* One number; *at moves behind it. False at the end of the text or when it is too large. */
static bool read_number(by_str s, size_t *at, uint32_t bias, uint32_t *out) {
    uint64_t value = 0, weight = 1;
    for (uint32_t k = BASE;; k += BASE) {
        int d = *at < s.len ? digit_value(s.ptr[*at]) : -1;
        if (d < 0) return false;
        ++*at;
        value += (uint64_t)d * weight;
        if (value > (uint64_t)CODE_MAX * (CHARS_MAX + 1)) return false;
        uint32_t t = threshold(k, bias);
        if ((uint32_t)d < t) break;
        weight *= BASE - t; /* a digit of this weight that is not 0 would be refused above before it overflows */
        if (weight > UINT32_MAX) return false;
    }
    *out = (uint32_t)value;
    return true;
}

/* The label behind "xn--" as code points; 0 when it is not Punycode, or holds nothing beyond ASCII. */
static unsigned decode(by_str s, uint32_t out[CHARS_MAX]) {
    size_t delimiter = s.len, at;
    while (delimiter > 0 && s.ptr[delimiter - 1] != '-')
        delimiter--;
    unsigned n = delimiter > 1 ? (unsigned)delimiter - 1 : 0;
    for (unsigned i = 0; i < n; i++)
        out[i] = (uint8_t)s.ptr[i];
    uint32_t code = FIRST_CODE, place = 0, bias = FIRST_BIAS, number;
    at = n ? delimiter : 0;
    if (at == s.len) return 0;
    for (bool first = true; at < s.len; first = false) {
        if (!read_number(s, &at, bias, &number) || n == CHARS_MAX) return 0;
        bias = adapt(number, n + 1, first);
        number += place;
        code += number / (n + 1);
        place = number % (n + 1);
        if (code > CODE_MAX) return 0;
        memmove(out + place + 1, out + place, (n - place) * sizeof *out);
        out[place++] = code;
        n++;
    }
    return n;
}

/* ---- properties ---- */

static const by_gr_idna_kind *kind_of(uint32_t code) {
    uint32_t lo = 0, hi = by_gr_idna_n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (by_gr_idna_ranges[mid].hi < code) lo = mid + 1;
        else hi = mid;
    }
    return lo < by_gr_idna_n && by_gr_idna_ranges[lo].lo <= code ? &by_gr_idna_kinds[by_gr_idna_ranges[lo].kind] : NULL;
}

typedef struct {
    uint32_t code[CHARS_MAX];
    const by_gr_idna_kind *kind[CHARS_MAX];
    unsigned n;
} label;

/* ---- normal form C ---- */

static const by_gr_idna_pair *pair_of_composed(uint32_t code) {
    uint32_t lo = 0, hi = by_gr_idna_pairs_n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (by_gr_idna_pairs[by_gr_idna_by_composed[mid]].composed < code) lo = mid + 1;
        else hi = mid;
    }
    const by_gr_idna_pair *p = lo < by_gr_idna_pairs_n ? &by_gr_idna_pairs[by_gr_idna_by_composed[lo]] : NULL;
    return p && p->composed == code ? p : NULL;
}

static uint32_t compose(uint32_t first, uint32_t second) {
    uint32_t lo = 0, hi = by_gr_idna_pairs_n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const by_gr_idna_pair *p = &by_gr_idna_pairs[mid];
        if (p->first < first || (p->first == first && p->second < second)) lo = mid + 1;
        else hi = mid;
    }
    bool hit = lo < by_gr_idna_pairs_n && by_gr_idna_pairs[lo].first == first && by_gr_idna_pairs[lo].second == second;
    return hit ? by_gr_idna_pairs[lo].composed : 0;
}

static unsigned order_of(uint32_t code) {
    const by_gr_idna_kind *k = kind_of(code);
    return k ? k->order : 0;
}

/* Appends the parts of a character: its second part is taken off until the first one has none. */
static unsigned take_apart(uint32_t code, uint32_t *out, unsigned n) {
    uint32_t seconds[PARTS_MAX / CHARS_MAX];
    unsigned k = 0;
    for (const by_gr_idna_pair *p; k < PARTS_MAX / CHARS_MAX - 1 && (p = pair_of_composed(code)); code = p->first)
        seconds[k++] = p->second;
    out[n++] = code;
    while (k > 0)
        out[n++] = seconds[--k];
    return n;
}

/* Is the label what it becomes when it is taken apart, put in order and composed again? Hangul syllables are left as they are: their
 * parts are not allowed in labels, so nothing can meet them. */
static bool is_composed(const label *u) {
    uint32_t v[PARTS_MAX];
    unsigned n = 0, start = PARTS_MAX, last = 0, k = 0;
    bool simple = true;
    for (unsigned i = 0; i < u->n; i++)
        simple &= !u->kind[i]->order && !u->kind[i]->second;
    if (simple) return true;
    for (unsigned i = 0; i < u->n; i++)
        n = take_apart(u->code[i], v, n);
    for (unsigned i = 1; i < n; i++) /* marks by their classes, equal ones as they stand */
        for (unsigned j = i; j > 0 && order_of(v[j]) && order_of(v[j - 1]) > order_of(v[j]); j--) {
            uint32_t t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    for (unsigned i = 0; i < n; i++) {
        unsigned order = order_of(v[i]);
        uint32_t c = start < PARTS_MAX && (last < order || (last == 0 && start + 1 == k)) ? compose(v[start], v[i]) : 0;
        if (c) {
            v[start] = c;
            continue;
        }
        if (order == 0) start = k;
        last = order;
        v[k++] = v[i];
    }
    return k == u->n && memcmp(v, u->code, k * sizeof *v) == 0;
}

/* ---- rules of RFC 5892 and 5893 ---- */

static bool has_code(const label *u, uint32_t lo, uint32_t hi) {
    for (unsigned i = 0; i < u->n; i++)
        if (u->code[i] >= lo && u->code[i] <= hi) return true;
    return false;
}

/* The first joining type beside place i that is not transparent. */
static char joins(const label *u, unsigned i, int step) {
    for (i += (unsigned)step; i < u->n; i += (unsigned)step) /* wraps to a large number in front of the label */
        if (u->kind[i]->joining != 'T') return u->kind[i]->joining;
    return 'U';
}

static bool joiner_fits(const label *u, unsigned i) {
    enum { VIRAMA = 9 };
    if (i > 0 && u->kind[i - 1]->order == VIRAMA) return true;
    if (u->code[i] != 0x200c) return false;
    char before = joins(u, i, -1), behind = joins(u, i, 1);
    return (before == 'L' || before == 'D') && (behind == 'R' || behind == 'D');
}

static bool context_fits(const label *u, unsigned i) {
    uint32_t c = u->code[i];
    switch (c) {
    case 0xb7: return i > 0 && i + 1 < u->n && u->code[i - 1] == 'l' && u->code[i + 1] == 'l';
    case 0x375: return i + 1 < u->n && u->kind[i + 1]->script == BY_GR_SCRIPT_GREEK;
    case 0x5f3:
    case 0x5f4: return i > 0 && u->kind[i - 1]->script == BY_GR_SCRIPT_HEBREW;
    case 0x30fb:
        for (unsigned k = 0; k < u->n; k++)
            if (u->code[k] != 0x30fb && u->kind[k]->script == BY_GR_SCRIPT_KANA_HAN) return true;
        return false;
    default: break;
    }
    if (c >= 0x660 && c <= 0x669) return !has_code(u, 0x6f0, 0x6f9);
    return c >= 0x6f0 && c <= 0x6f9 && !has_code(u, 0x660, 0x669);
}

/* A label with a right-to-left character must be one throughout. */
static bool directions_fit(const label *u) {
    unsigned seen = 0, last = BY_GR_BIDI_NSM;
    for (unsigned i = 0; i < u->n; i++) {
        seen |= 1u << u->kind[i]->bidi;
        if (u->kind[i]->bidi != BY_GR_BIDI_NSM) last = u->kind[i]->bidi;
    }
    if (!(seen & (1u << BY_GR_BIDI_R | 1u << BY_GR_BIDI_AN))) return true;
    if (u->kind[0]->bidi != BY_GR_BIDI_R || (seen >> BY_GR_BIDI_L & 1)) return false;
    if ((seen >> BY_GR_BIDI_AN & 1) && (seen >> BY_GR_BIDI_EN & 1)) return false;
    return last == BY_GR_BIDI_R || last == BY_GR_BIDI_AN || last == BY_GR_BIDI_EN;
}

bool by_gr_alabel_valid(by_str s) {
    label u;
    if (s.len == 0 || s.len > BY_GR_ALABEL_MAX || s.ptr[s.len - 1] == '-') return false;
    for (size_t i = 0; i < s.len; i++)
        if (digit_value(s.ptr[i]) < 0 && s.ptr[i] != '-') return false;
    u.n = decode(s, u.code);
    if (u.n == 0 || u.code[0] == '-' || u.code[u.n - 1] == '-' || (u.n > 3 && u.code[2] == '-' && u.code[3] == '-')) return false;
    for (unsigned i = 0; i < u.n; i++)
        if (!(u.kind[i] = kind_of(u.code[i]))) return false;
    if (u.kind[0]->mark || !directions_fit(&u)) return false;
    for (unsigned i = 0; i < u.n; i++) {
        if (u.kind[i]->rule == BY_GR_IDNA_CONTEXTJ && !joiner_fits(&u, i)) return false;
        if (u.kind[i]->rule == BY_GR_IDNA_CONTEXTO && !context_fits(&u, i)) return false;
    }
    return is_composed(&u);
}

/* ---- endings ---- */

static unsigned write_number(uint32_t value, uint32_t bias, char *out) {
    unsigned n = 0;
    for (uint32_t k = BASE;; k += BASE) {
        uint32_t t = threshold(k, bias), d = value < t ? value : t + (value - t) % (BASE - t);
        out[n++] = (char)(d < 26 ? 'a' + d : '0' + d - 26);
        if (value < t) return n;
        value = (value - t) / (BASE - t);
    }
}

/* The digits that insert sharp s into a label of n characters at these places, which count those before them. */
static unsigned insertions(unsigned n, const unsigned *places, unsigned n_places, char *out) {
    uint32_t bias = FIRST_BIAS;
    unsigned used = 0, at = 0;
    for (unsigned i = 0; i < n_places; i++, n++) {
        uint32_t delta = (i == 0 ? (SHARP_S - FIRST_CODE) * (n + 1) : 0) + places[i] - at;
        used += write_number(delta, bias, out + used);
        bias = adapt(delta, n + 1, i == 0);
        at = places[i] + 1;
    }
    return used;
}

/* The digits behind the basic characters s. */
static unsigned ending_of_basic(by_str s, char *out) {
    unsigned places[3], n = 0, len = (unsigned)s.len, at_front = len == 0 || s.ptr[0] == '-';
    if (at_front) places[n++] = 0;
    /* the third and fourth characters, once something stands in front */
    if (len >= 4 - at_front && s.ptr[2 - at_front] == '-' && s.ptr[3 - at_front] == '-') places[n++] = 3;
    if (n == 0 || (len && s.ptr[len - 1] == '-')) places[n] = len + n, n++;
    return insertions(len, places, n, out);
}

unsigned by_gr_alabel_ending(by_str s, char out[BY_GR_ENDING_MAX]) {
    size_t delimiter = s.len;
    while (delimiter > 0 && s.ptr[delimiter - 1] != '-')
        delimiter--;
    if (delimiter != 1 && s.len - delimiter < BY_GR_ENDING_MAX) { /* on the way from the basic characters? */
        by_str basic = by_str_take(s, delimiter ? delimiter - 1 : 0), rest = by_str_skip(s, delimiter);
        unsigned n = ending_of_basic(basic, out);
        if (rest.len <= n && memcmp(out, rest.ptr, rest.len) == 0) {
            memmove(out, out + rest.len, n - rest.len);
            return n - (unsigned)rest.len;
        }
    }
    out[0] = '-';
    return 1 + ending_of_basic(s, out + 1);
}
