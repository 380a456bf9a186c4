/* grammar_regex.c - regular expressions to terms.
 *
 * The common subset of ECMA-262 and Python. Parsing gives a small tree; a tree without zero-width parts (or with ^ and
 * $ only at the edges of its alternatives) is translated directly. Otherwise it is translated from right to left with
 * an explicit continuation: what follows a place is itself a term k, so a look-ahead is an intersection with k, and $
 * is the look-ahead for an end sentinel (byte 0xff, which UTF-8 never holds) that the UNQUOT term takes away again. \b
 * is decided from what stands before it, which is known as one of: start, a word character, none, not known.
 *
 * What asks for more of what stands before it, and what stands inside an unbounded repeat, becomes a mark (grammar_assert.c). A
 * pattern is translated once more when that turns out: look-aheads must pass over the marks behind them. */
#include <stdio.h>

#include "base/utf8.h"
#include "grammar/grammar_internal.h"

#define NEST_MAX   200u
#define REPEAT_MAX 100000u
#define UNROLL_MAX 1000u /* copies of a repeated part that holds look-aheads */

typedef enum { N_EMPTY, N_SET, N_CAT, N_ALT, N_REP, N_AHEAD, N_NOT_AHEAD, N_START, N_END, N_WORD, N_NOT_WORD,
               N_BEHIND, N_NOT_BEHIND, N_LINE_START, N_LINE_END } ntype;

typedef struct {
    ntype type;
    uint32_t a, b;     /* CAT, ALT: left, right; others: child */
    uint32_t min, max; /* REP */
    by_gr_term term;   /* SET */
    uint8_t zero;      /* holds a zero-width part */
    uint8_t ends;      /* 1 = only word characters end it (when it is not empty), 2 = only others, 0 = not known */
    uint8_t empty;     /* may be empty */
    uint32_t at;       /* assertions: offset in the pattern */
} node;

typedef struct {
    by_gr *g;
    by_str s;
    size_t at;
    node *nodes;
    uint32_t n, cap, depth;
    bool icase, dotall, extended, multiline, ecma_space;

    bool with_marks, need_marks; /* translation: marks may be used; were missing */
    bool inside;                 /* a look-ahead: no marks there */
    uint32_t mark_of[BY_GR_MARKS], n_marks;
    by_gr_term allowed[BY_GR_MARKS]; /* texts in which a mark stands only where it may */
} parser;

static uint32_t fail(parser *p, by_status code, const char *what) {
    if (!by_gr_bad(p->g)) {
        size_t n = p->s.len > 120 ? 120 : p->s.len;
        while (n < p->s.len && n > 0 && ((uint8_t)p->s.ptr[n] & 0xc0) == 0x80) /* no character is cut in two */
            n--;
        by_gr_fail(p->g, code, "regex: %s at offset %zu of /%.*s/", what, p->at, (int)n, p->s.ptr);
        if (!p->g->where[0]) snprintf(p->g->where, sizeof p->g->where, "offset %zu", p->at);
    }
    return 0;
}

static uint32_t make(parser *p, node n) {
    if (!by_gr_grow(p->g, &p->nodes, p->n, &p->cap, sizeof *p->nodes)) return 0;
    p->nodes[p->n] = n;
    return p->n++;
}

static bool more(const parser *p) {
    return p->at < p->s.len;
}
static char peek(const parser *p) {
    return p->at < p->s.len ? p->s.ptr[p->at] : 0;
}
static bool ahead(const parser *p, const char *z) {
    size_t n = strlen(z);
    return p->s.len - p->at >= n && memcmp(p->s.ptr + p->at, z, n) == 0;
}
static bool eat(parser *p, const char *z) {
    if (!ahead(p, z)) return false;
    p->at += strlen(z);
    return true;
}

static uint32_t next_char(parser *p) {
    by_utf8_step u = by_utf8_next(p->s.ptr + p->at, p->s.len - p->at);
    if (u.kind != BY_UTF8_CHAR) return fail(p, BY_EFORMAT, "not valid UTF-8");
    p->at += u.n;
    return u.cp;
}

/* ---- sets ---- */

static const uint32_t word_chars[] = {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'};
static const uint32_t digits[] = {'0', '9'};
static const uint32_t ascii_space[] = {9, 13, 32, 32};
static const uint32_t ecma_space[] = {9,      13,     32,     32,     0xa0,   0xa0,   0x1680, 0x1680, 0x2000, 0x200a,
                                      0x2028, 0x2029, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff};

static void add_pairs(parser *p, by_gr_cps *s, const uint32_t *v, size_t n) {
    for (size_t i = 0; i < n; i += 2)
        by_gr_cps_add(p->g, s, v[i], v[i + 1]);
}
#define ADD(s, table) add_pairs(p, (s), (table), sizeof(table) / sizeof(table)[0])

/* Adds a shorthand class (d w s, or capital: its complement); false when c is none. */
static bool add_shorthand(parser *p, by_gr_cps *out, char c) {
    by_gr_cps s = {0};
    switch (c | 32) {
    case 'd': ADD(&s, digits); break;
    case 'w': ADD(&s, word_chars); break;
    case 's':
        if (p->ecma_space)
            ADD(&s, ecma_space);
        else
            ADD(&s, ascii_space);
        break;
    default: return false;
    }
    if (!(c & 32)) by_gr_cps_invert(p->g, &s);
    add_pairs(p, out, s.v, s.n);
    by_gr_cps_free(&s);
    return true;
}

static bool add_property(parser *p, by_gr_cps *out, bool negate) {
    size_t from = p->at;
    by_str name;
    if (eat(p, "{")) {
        from = p->at;
        while (more(p) && peek(p) != '}')
            p->at++;
        name = by_str_of(p->s.ptr + from, p->at - from);
        if (!eat(p, "}")) return fail(p, BY_EFORMAT, "property without }"), false;
    } else {
        if (!more(p)) return fail(p, BY_EFORMAT, "property without a name"), false;
        name = by_str_of(p->s.ptr + p->at++, 1);
    }
    if (name.len && name.ptr[0] == '^') negate = !negate, name = by_str_skip(name, 1);
    by_gr_cps s = {0};
    if (!by_gr_cps_property(p->g, &s, name)) {
        p->at = from;
        by_gr_cps_free(&s);
        return fail(p, BY_EUNSUPPORTED, "unknown Unicode property"), false;
    }
    if (negate) by_gr_cps_invert(p->g, &s);
    add_pairs(p, out, s.v, s.n);
    by_gr_cps_free(&s);
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static uint32_t hex(parser *p, unsigned n) {
    uint32_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        int d = more(p) ? hex_digit(peek(p)) : -1;
        if (d < 0) return fail(p, BY_EFORMAT, "hexadecimal digit expected");
        v = v << 4 | (uint32_t)d;
        p->at++;
    }
    return v;
}

static uint32_t unicode_escape(parser *p) {
    uint32_t v = 0;
    if (eat(p, "{")) {
        while (more(p) && peek(p) != '}' && v <= 0x10ffff && !by_gr_bad(p->g))
            v = v << 4 | hex(p, 1);
        if (!eat(p, "}") || v > 0x10ffff) return fail(p, BY_EFORMAT, "bad \\u{...}");
        return v;
    }
    v = hex(p, 4);
    if (v >= 0xd800 && v <= 0xdbff && eat(p, "\\u")) {
        uint32_t low = hex(p, 4);
        if (low < 0xdc00 || low > 0xdfff) return fail(p, BY_EFORMAT, "high surrogate without a low one");
        v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    return v;
}

/* A single character behind a backslash. */
static uint32_t char_escape(parser *p, bool in_class) {
    char c = peek(p);
    if (!more(p)) return fail(p, BY_EFORMAT, "backslash at the end");
    if ((unsigned char)c >= 0x80) return next_char(p);
    p->at++;
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'a': return 7;
    case 'e': return 27;
    case '0': return 0;
    case 'x': return ahead(p, "{") ? unicode_escape(p) : hex(p, 2);
    case 'u': return unicode_escape(p);
    case 'U': {
        uint32_t v = hex(p, 8);
        return v <= 0x10ffff ? v : fail(p, BY_EFORMAT, "no code point");
    }
    case 'c':
        if (!more(p) || (peek(p) | 32) < 'a' || (peek(p) | 32) > 'z') return fail(p, BY_EFORMAT, "bad \\c");
        return (uint32_t)(p->s.ptr[p->at++] & 31);
    case 'b':
        if (in_class) return 8;
        break;
    default: break;
    }
    if (c >= '1' && c <= '9') return fail(p, BY_EUNSUPPORTED, "back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return fail(p, BY_EUNSUPPORTED, "unknown escape");
    return (uint8_t)c;
}

/* What words say about a set: 1 = only word characters, 2 = none, 0 = both. */
static uint8_t wordness(const by_gr_cps *s) {
    bool in = false, out = false;
    for (uint32_t i = 0; i < s->n; i += 2) {
        uint32_t at = s->v[i];
        for (unsigned k = 0; k < 8; k += 2) {
            if (s->v[i + 1] < word_chars[k] || s->v[i] > word_chars[k + 1]) continue;
            in = true;
            if (at < word_chars[k]) out = true;
            at = word_chars[k + 1] + 1;
        }
        if (at <= s->v[i + 1]) out = true;
    }
    return in && out ? 0 : in ? 1 : 2;
}

static uint32_t set_node(parser *p, by_gr_cps *s) {
    if (p->icase) by_gr_cps_fold(p->g, s);
    by_gr_cps_normalise(s);
    node n = {.type = N_SET, .ends = wordness(s)};
    if (s->n == 2 && s->v[0] == s->v[1] && !(s->v[0] >= 0xd800 && s->v[0] <= 0xdfff)) {
        char u[4];
        n.term = by_gr_lit(p->g, by_str_of(u, by_utf8_put(s->v[0], u)));
    } else
        n.term = by_gr_cps_term(p->g, s);
    by_gr_cps_free(s);
    return make(p, n);
}

static uint32_t parse_class(parser *p) {
    by_gr_cps s = {0};
    bool negate = eat(p, "^"), first = true;
    while (!by_gr_bad(p->g)) {
        if (!more(p)) {
            fail(p, BY_EFORMAT, "[ without ]");
            break;
        }
        if (peek(p) == ']' && !first) break;
        if (first && peek(p) == ']' && p->ecma_space) break; /* ECMA: [] matches nothing */
        first = false;
        uint32_t lo, hi;
        if (eat(p, "\\")) {
            char c = peek(p);
            if (add_shorthand(p, &s, c)) {
                p->at++;
                continue;
            }
            if (c == 'p' || c == 'P') {
                p->at++;
                add_property(p, &s, c == 'P');
                continue;
            }
            lo = char_escape(p, true);
        } else
            lo = next_char(p);
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] != ']') {
            size_t back = p->at++;
            if (eat(p, "\\")) {
                if (strchr("dwsDWSpP", peek(p))) {
                    p->at = back; /* "a-\d": the dash is itself */
                    hi = lo;
                } else
                    hi = char_escape(p, true);
            } else
                hi = next_char(p);
            if (p->at == back) {
                p->at++;
                by_gr_cps_add(p->g, &s, '-', '-');
            } else if (hi < lo)
                fail(p, BY_EFORMAT, "range out of order");
        }
        by_gr_cps_add(p->g, &s, lo, hi);
    }
    eat(p, "]");
    if (p->icase) by_gr_cps_fold(p->g, &s);
    if (negate) by_gr_cps_invert(p->g, &s);
    return set_node(p, &s);
}

/* ---- structure ---- */

static uint32_t parse_alt(parser *p);

static uint32_t zero_width(parser *p, ntype t, uint32_t child) {
    return make(p, (node){.type = t, .a = child, .zero = 1, .empty = 1, .at = (uint32_t)(p->at - 1)});
}

static bool skip_name(parser *p) {
    while (more(p) && peek(p) != '>')
        p->at++;
    return eat(p, ">");
}

/* (?ims-x) or (?i:...): sets flags; *group = a colon follows. */
static bool parse_flags(parser *p, bool *group) {
    bool on = true;
    for (; more(p); p->at++) {
        switch (peek(p)) {
        case '-': on = false; break;
        case 'i': p->icase = on; break;
        case 's': p->dotall = on; break;
        case 'm': p->multiline = on; break;
        case 'x': p->extended = on; break;
        case 'u':
        case 'a':
        case 'L': break;
        case ')':
            p->at++;
            *group = false;
            return true;
        case ':':
            p->at++;
            *group = true;
            return true;
        default:
            fail(p, BY_EUNSUPPORTED, "unknown group");
            return false;
        }
    }
    return fail(p, BY_EFORMAT, "group without )"), false;
}

static uint32_t parse_group(parser *p) {
    if (++p->depth > NEST_MAX) return fail(p, BY_ELIMIT, "groups nest too deeply");
    bool icase = p->icase, dotall = p->dotall, extended = p->extended, multiline = p->multiline, group = true;
    ntype look = N_EMPTY;
    uint32_t n = 0, from = (uint32_t)p->at - 1;
    if (eat(p, "?")) {
        if (eat(p, "="))
            look = N_AHEAD;
        else if (eat(p, "!"))
            look = N_NOT_AHEAD;
        else if (eat(p, "<="))
            look = N_BEHIND;
        else if (eat(p, "<!"))
            look = N_NOT_BEHIND;
        else if (eat(p, "P<") || eat(p, "<")) {
            if (!skip_name(p)) return fail(p, BY_EFORMAT, "group name without >");
        } else if (ahead(p, "#")) {
            while (more(p) && peek(p) != ')')
                p->at++;
            p->depth--;
            return eat(p, ")") ? make(p, (node){.type = N_EMPTY, .empty = 1})
                               : fail(p, BY_EFORMAT, "comment without )");
        } else if (ahead(p, ">") || ahead(p, "(") || ahead(p, "P=") || ahead(p, "R"))
            return fail(p, BY_EUNSUPPORTED, "atomic groups, conditions and recursion are not supported");
        else if (!eat(p, ":") && !parse_flags(p, &group))
            return 0;
        if (!group) { /* flags for the rest of the enclosing group */
            p->depth--;
            return make(p, (node){.type = N_EMPTY, .empty = 1});
        }
    }
    n = parse_alt(p);
    if (!eat(p, ")")) return fail(p, BY_EFORMAT, "( without )");
    p->icase = icase;
    p->dotall = dotall;
    p->extended = extended;
    p->multiline = multiline;
    p->depth--;
    if (look == N_EMPTY) return n;
    n = zero_width(p, look, n);
    if (!by_gr_bad(p->g)) p->nodes[n].at = from;
    return n;
}

static uint32_t parse_atom(parser *p) {
    by_gr_cps s = {0};
    if (eat(p, "(")) return parse_group(p);
    if (eat(p, "[")) return parse_class(p);
    if (eat(p, "^")) return zero_width(p, p->multiline ? N_LINE_START : N_START, 0);
    if (eat(p, "$")) return zero_width(p, p->multiline ? N_LINE_END : N_END, 0);
    if (eat(p, ".")) {
        by_gr_cps_add(p->g, &s, '\n', '\n');
        if (p->dotall) s.n = 0;
        by_gr_cps_invert(p->g, &s);
        return set_node(p, &s);
    }
    if (eat(p, "\\")) {
        char c = peek(p);
        if (c == 'b' || c == 'B' || c == 'A' || c == 'z' || c == 'Z') {
            p->at++;
            return zero_width(p, c == 'b' ? N_WORD : c == 'B' ? N_NOT_WORD : c == 'A' ? N_START : N_END, 0);
        }
        if (add_shorthand(p, &s, c))
            p->at++;
        else if (c == 'p' || c == 'P') {
            p->at++;
            add_property(p, &s, c == 'P');
        } else {
            uint32_t cp = char_escape(p, false);
            by_gr_cps_add(p->g, &s, cp, cp);
        }
        return set_node(p, &s);
    }
    if (strchr("*+?", peek(p)) && peek(p)) return fail(p, BY_EFORMAT, "nothing to repeat");
    uint32_t cp = next_char(p);
    by_gr_cps_add(p->g, &s, cp, cp);
    return set_node(p, &s);
}

static bool number(parser *p, uint32_t *out) {
    size_t from = p->at;
    uint64_t v = 0;
    while (more(p) && peek(p) >= '0' && peek(p) <= '9') {
        v = v * 10 + (uint64_t)(peek(p) - '0');
        if (v > 1u << 30) v = 1u << 30;
        p->at++;
    }
    *out = (uint32_t)v;
    return p->at > from;
}

/* {n} {n,} {n,m}; anything else in braces is literal text, as in ECMA's web dialect and Python. */
static bool parse_braces(parser *p, uint32_t *min, uint32_t *max) {
    size_t back = p->at;
    if (!eat(p, "{")) return false;
    bool has_min = number(p, min);
    *max = *min;
    if (eat(p, ",")) {
        *max = BY_GR_INF;
        uint32_t m;
        if (number(p, &m)) *max = m, has_min = true;
    }
    if (has_min && eat(p, "}")) return true;
    p->at = back;
    return false;
}

static uint32_t parse_repeat(parser *p) {
    uint32_t n = parse_atom(p);
    for (bool again = false; more(p) && !by_gr_bad(p->g); again = true) {
        uint32_t min = 0, max = BY_GR_INF;
        if (eat(p, "*")) {
        } else if (eat(p, "+"))
            min = 1;
        else if (eat(p, "?"))
            max = 1;
        else if (!parse_braces(p, &min, &max))
            break;
        if (again) return fail(p, BY_EFORMAT, "a repeat of a repeat");
        if (eat(p, "+")) return fail(p, BY_EUNSUPPORTED, "possessive repeats are not supported");
        eat(p, "?"); /* lazy: the same language */
        if (min > max) return fail(p, BY_EFORMAT, "repeat counts out of order");
        if (min > REPEAT_MAX || (max != BY_GR_INF && max > REPEAT_MAX))
            return fail(p, BY_ELIMIT, "repeat count over 100000");
        node c = p->nodes[n];
        n = make(p, (node){.type = N_REP,
                           .a = n,
                           .min = min,
                           .max = max,
                           .zero = c.zero,
                           .ends = c.ends,
                           .empty = min == 0 || c.empty});
    }
    return n;
}

static void skip_extended(parser *p) {
    while (p->extended && more(p)) {
        if (strchr(" \t\n\r\f\v", peek(p)))
            p->at++;
        else if (peek(p) == '#')
            while (more(p) && peek(p) != '\n')
                p->at++;
        else
            break;
    }
}

static uint32_t parse_cat(parser *p) {
    uint32_t n = make(p, (node){.type = N_EMPTY, .empty = 1});
    for (skip_extended(p); more(p) && peek(p) != '|' && peek(p) != ')' && !by_gr_bad(p->g); skip_extended(p)) {
        uint32_t m = parse_repeat(p);
        if (by_gr_bad(p->g)) return 0;
        node a = p->nodes[n], b = p->nodes[m];
        if (a.type == N_EMPTY)
            n = m;
        else
            n = make(p, (node){.type = N_CAT,
                               .a = n,
                               .b = m,
                               .zero = a.zero | b.zero,
                               .ends = b.type >= N_AHEAD ? a.ends : b.empty && a.ends != b.ends ? 0 : b.ends,
                               .empty = a.empty & b.empty});
    }
    return n;
}

static uint32_t parse_alt(parser *p) {
    uint32_t n = parse_cat(p);
    while (eat(p, "|") && !by_gr_bad(p->g)) {
        uint32_t m = parse_cat(p);
        if (by_gr_bad(p->g)) return 0;
        node a = p->nodes[n], b = p->nodes[m];
        n = make(p, (node){.type = N_ALT,
                           .a = n,
                           .b = m,
                           .zero = a.zero | b.zero,
                           .ends = a.ends == b.ends ? a.ends : 0,
                           .empty = a.empty | b.empty});
    }
    return n;
}

/* ---- translation ---- */

/* Left-nested chains of CAT and ALT are flattened with loops, so that long patterns need no deep stack. */
static void chain(parser *p, uint32_t n, ntype type, by_gr_vec *out) {
    for (; p->nodes[n].type == type; n = p->nodes[n].a)
        by_gr_vec_push(p->g, out, p->nodes[n].b);
    by_gr_vec_push(p->g, out, n); /* last first */
}

static by_gr_term mark(parser *p, uint32_t n);

static by_gr_term direct(parser *p, uint32_t n) {
    by_gr *g = p->g;
    node d = p->nodes[n];
    by_gr_vec parts = {0};
    by_gr_term t = BY_GR_EPS;
    switch (d.type) {
    case N_SET: return d.term;
    case N_REP: return by_gr_rep(g, direct(p, d.a), d.min, d.max);
    case N_CAT:
        chain(p, n, N_CAT, &parts);
        for (uint32_t i = 0; i < parts.n; i++)
            t = by_gr_seq(g, direct(p, parts.v[i]), t);
        break;
    case N_ALT:
        chain(p, n, N_ALT, &parts);
        for (uint32_t i = 0; i < parts.n; i++)
            parts.v[i] = direct(p, parts.v[i]);
        t = by_gr_alt(g, parts.v, parts.n);
        break;
    case N_EMPTY: break;
    case N_AHEAD:
    case N_NOT_AHEAD:
    case N_START:
    case N_END:
    case N_WORD:
    case N_NOT_WORD:
    case N_BEHIND:
    case N_NOT_BEHIND:
    case N_LINE_START:
    case N_LINE_END: t = mark(p, n); break;
    }
    by_gr_vec_free(&parts);
    return t;
}

enum { PREV_UNKNOWN, PREV_WORD, PREV_OTHER, PREV_START };

/* A condition on what follows: there may be marks in it. */
static by_gr_term following(parser *p, by_gr_term k) {
    return p->with_marks ? by_gr_lift(p->g, k) : k;
}

static by_gr_term word_char(parser *p) {
    by_gr_cps s = {0};
    ADD(&s, word_chars);
    by_gr_term t = by_gr_cps_term(p->g, &s);
    by_gr_cps_free(&s);
    return t;
}

static by_gr_term word_edge(parser *p, uint32_t n, int prev, by_gr_term k) {
    by_gr *g = p->g;
    if (prev == PREV_UNKNOWN) return by_gr_seq(g, mark(p, n), k);
    by_gr_term w = following(p, by_gr_seq(g, word_char(p), BY_GR_ANYBYTES));
    bool is_word = (prev == PREV_WORD) != (p->nodes[n].type == N_WORD);
    return by_gr_and2(g, is_word ? w : by_gr_not(g, w), k);
}

/* What follows the end of a text, or of a line. */
static by_gr_term end_ahead(parser *p, bool line) {
    by_gr *g = p->g;
    by_gr_term end = by_gr_byte_range(g, 255, 255);
    return by_gr_seq(g, line ? by_gr_alt2(g, end, by_gr_lit(g, BY_STR("\n"))) : end, BY_GR_ANYBYTES);
}

static by_gr_term with_tail(parser *p, uint32_t n, by_gr_term k, int prev);

static by_gr_term rep_tail(parser *p, node d, by_gr_term k, int prev) {
    if (d.max == BY_GR_INF || d.max > UNROLL_MAX) return by_gr_seq(p->g, by_gr_rep(p->g, direct(p, d.a), d.min, d.max), k);
    int later = p->nodes[d.a].empty ? PREV_UNKNOWN : p->nodes[d.a].ends;
    by_gr_term t = k;
    for (uint32_t i = d.max; i-- > 0;) {
        by_gr_term once = with_tail(p, d.a, t, i ? later : prev);
        t = i >= d.min ? by_gr_alt2(p->g, once, k) : once;
    }
    return t;
}

/* What may stand before the next part, as bits of PREV_, given what may stand before this one. A group with assertions inside
 * that may be empty leaves it open. */
static unsigned prevs_behind(node d, unsigned before) {
    if (d.type >= N_AHEAD) return before;
    unsigned own = d.ends || d.zero ? 1u << d.ends : 1u << PREV_WORD | 1u << PREV_OTHER;
    if (!d.empty) return own;
    return !d.zero ? own | before : before == own ? own : 1u << PREV_UNKNOWN;
}

static int lowest_bit(unsigned set) {
    return __builtin_ctz(set);
}

/* A part without assertions, and behind it what follows a word character, another one, or (when it may be empty) what stood before. */
static by_gr_term part_tail(parser *p, uint32_t n, const by_gr_term rest[4], int before) {
    by_gr *g = p->g;
    node d = p->nodes[n];
    by_gr_term t = direct(p, n), word = rest[PREV_WORD], other = rest[PREV_OTHER];
    if (d.ends) word = other = rest[d.ends];
    if (word == other && (!d.empty || word == rest[before])) return by_gr_seq(g, t, word);
    by_gr_term v[3] = {BY_GR_NEVER, BY_GR_NEVER, d.empty ? rest[before] : BY_GR_NEVER};
    if (word == other)
        v[0] = by_gr_seq(g, by_gr_nonempty(g, t), word);
    else {
        by_gr_term ends = by_gr_seq(g, BY_GR_ANYTEXT, word_char(p));
        v[0] = by_gr_seq(g, by_gr_and2(g, t, ends), word);
        v[1] = by_gr_seq(g, by_gr_and2(g, by_gr_nonempty(g, t), by_gr_text_not(g, ends)), other);
    }
    return by_gr_alt(g, v, 3);
}

/* A sequence whose rest may ask what stands before it: the rest is made once for each answer that the parts to its left
 * can give. A part that may be empty gives its own and passes on those of the parts before it. */
static by_gr_term cat_tail(parser *p, uint32_t n, by_gr_term k, int prev) {
    by_gr *g = p->g;
    by_gr_vec parts = {0}, sets = {0};
    by_gr_term rest[4] = {k, k, k, k}, now[4] = {0};
    chain(p, n, N_CAT, &parts); /* last first */
    by_gr_vec_push(g, &sets, 1u << prev);
    for (uint32_t i = parts.n; i-- > 1 && !by_gr_bad(g);)
        by_gr_vec_push(g, &sets, prevs_behind(p->nodes[parts.v[i]], sets.v[sets.n - 1]));
    for (uint32_t i = 0; i < parts.n && !by_gr_bad(g); i++) {
        node d = p->nodes[parts.v[i]];
        unsigned all = sets.v[parts.n - 1 - i];
        for (unsigned left = all; left; left &= left - 1) {
            int before = lowest_bit(left);
            unsigned behind = d.type >= N_AHEAD ? 1u << before : prevs_behind(d, all);
            if (d.zero || d.type >= N_AHEAD) now[before] = with_tail(p, parts.v[i], rest[lowest_bit(behind)], before);
            else now[before] = part_tail(p, parts.v[i], rest, before);
        }
        memcpy(rest, now, sizeof rest);
    }
    by_gr_vec_free(&parts);
    by_gr_vec_free(&sets);
    return by_gr_bad(g) ? BY_GR_NEVER : rest[prev];
}

static by_gr_term look_ahead(parser *p, uint32_t n, int prev) {
    bool was = p->inside;
    p->inside = true;
    by_gr_term t = with_tail(p, n, BY_GR_ANYBYTES, prev);
    p->inside = was;
    return t;
}

static by_gr_term with_tail(parser *p, uint32_t n, by_gr_term k, int prev) {
    by_gr *g = p->g;
    node d = p->nodes[n];
    if (by_gr_bad(g)) return BY_GR_NEVER;
    if (!d.zero) return by_gr_seq(g, direct(p, n), k);
    by_gr_vec parts = {0};
    by_gr_term t;
    switch (d.type) {
    case N_CAT: return cat_tail(p, n, k, prev);
    case N_ALT:
        chain(p, n, N_ALT, &parts);
        for (uint32_t i = 0; i < parts.n; i++)
            parts.v[i] = with_tail(p, parts.v[i], k, prev);
        t = by_gr_alt(g, parts.v, parts.n);
        by_gr_vec_free(&parts);
        return t;
    case N_REP: return rep_tail(p, d, k, prev);
    case N_AHEAD: return by_gr_and2(g, following(p, look_ahead(p, d.a, prev)), k);
    case N_NOT_AHEAD: return by_gr_and2(g, by_gr_not(g, following(p, look_ahead(p, d.a, prev))), k);
    case N_START: return prev == PREV_START ? k : prev == PREV_UNKNOWN ? by_gr_seq(g, mark(p, n), k) : BY_GR_NEVER;
    case N_END:
    case N_LINE_END: return by_gr_and2(g, following(p, end_ahead(p, d.type == N_LINE_END)), k);
    case N_WORD:
    case N_NOT_WORD: return word_edge(p, n, prev, k);
    case N_LINE_START: return prev == PREV_START ? k : by_gr_seq(g, mark(p, n), k);
    case N_BEHIND:
    case N_NOT_BEHIND: return by_gr_seq(g, mark(p, n), k);
    case N_EMPTY:
    case N_SET: break;
    }
    return by_gr_seq(g, direct(p, n), k);
}

/* Takes ^ from the front and $ from the end of a chain; false when zero-width parts are left. */
static bool strip_edges(parser *p, uint32_t n, bool *start, bool *end, by_gr_vec *parts) {
    *start = *end = false;
    parts->n = 0;
    chain(p, n, N_CAT, parts); /* last first */
    uint32_t lo = 0, hi = parts->n;
    while (lo < hi && p->nodes[parts->v[lo]].type == N_END)
        *end = true, lo++;
    while (hi > lo && p->nodes[parts->v[hi - 1]].type == N_START)
        *start = true, hi--;
    for (uint32_t i = lo; i < hi; i++) {
        if (p->nodes[parts->v[i]].zero) return false;
        parts->v[i - lo] = parts->v[i];
    }
    parts->n = hi - lo;
    return true;
}

/* ---- marks ---- */

/* Texts that end with a match of a look-behind, which may begin with ^ and holds no other assertion. */
static by_gr_term behind(parser *p, uint32_t n) {
    by_gr *g = p->g;
    by_gr_vec alts = {0}, parts = {0};
    chain(p, n, N_ALT, &alts);
    for (uint32_t i = 0; i < alts.n && !by_gr_bad(g); i++) {
        bool start, end;
        if (!strip_edges(p, alts.v[i], &start, &end, &parts) || end) fail(p, BY_EUNSUPPORTED, "assertion inside a look-behind");
        by_gr_term t = BY_GR_EPS;
        for (uint32_t j = 0; j < parts.n && !by_gr_bad(g); j++)
            t = by_gr_seq(g, direct(p, parts.v[j]), t);
        alts.v[i] = start ? t : by_gr_seq(g, BY_GR_ANYTEXT, t);
    }
    by_gr_term t = by_gr_bad(g) ? BY_GR_NEVER : by_gr_alt(g, alts.v, alts.n);
    by_gr_vec_free(&alts);
    by_gr_vec_free(&parts);
    return t;
}

/* Texts in which some mark i stands between a left and a right part. */
static by_gr_term between(parser *p, uint32_t i, by_gr_term left, by_gr_term right) {
    by_gr *g = p->g;
    by_gr_term at = by_gr_byte_range(g, BY_GR_MARK_FIRST + i, BY_GR_MARK_FIRST + i);
    return by_gr_seq(g, by_gr_lift(g, left), by_gr_seq(g, at, by_gr_lift(g, right)));
}

/* Texts in which mark i stands where the assertion does not hold. */
static by_gr_term misplaced(parser *p, uint32_t i, node d) {
    by_gr *g = p->g;
    by_gr_term t = BY_GR_NEVER, other, any = BY_GR_ANYBYTES;
    switch (d.type) {
    case N_START: return between(p, i, by_gr_nonempty(g, BY_GR_ANYTEXT), any);
    case N_LINE_START:
        t = by_gr_alt2(g, BY_GR_EPS, by_gr_seq(g, BY_GR_ANYTEXT, by_gr_lit(g, BY_STR("\n"))));
        return between(p, i, by_gr_text_not(g, t), any);
    case N_END:
    case N_LINE_END: return between(p, i, BY_GR_ANYTEXT, by_gr_not(g, end_ahead(p, d.type == N_LINE_END)));
    case N_BEHIND: return between(p, i, by_gr_text_not(g, behind(p, d.a)), any);
    case N_NOT_BEHIND: return between(p, i, behind(p, d.a), any);
    case N_AHEAD: return between(p, i, BY_GR_ANYTEXT, by_gr_not(g, look_ahead(p, d.a, PREV_UNKNOWN)));
    case N_NOT_AHEAD: return between(p, i, BY_GR_ANYTEXT, look_ahead(p, d.a, PREV_UNKNOWN));
    case N_WORD:
    case N_NOT_WORD:
        t = by_gr_seq(g, BY_GR_ANYTEXT, word_char(p));
        other = by_gr_seq(g, word_char(p), any);
        if (d.type == N_NOT_WORD) other = by_gr_not(g, other);
        return by_gr_alt2(g, between(p, i, t, other), between(p, i, by_gr_text_not(g, t), by_gr_not(g, other)));
    case N_EMPTY:
    case N_SET:
    case N_CAT:
    case N_ALT:
    case N_REP: break;
    }
    return t;
}

/* The byte that stands for an assertion; the same ones share it. */
static by_gr_term mark(parser *p, uint32_t n) {
    by_gr *g = p->g;
    node d = p->nodes[n];
    uint32_t i = 0;
    if (by_gr_bad(g)) return BY_GR_NEVER;
    p->at = d.at; /* of errors */
    if (p->inside) return fail(p, BY_EUNSUPPORTED, "look-behind, or assertion in a repeat, inside a look-ahead"), BY_GR_NEVER;
    if (!p->with_marks) return p->need_marks = true, BY_GR_NEVER;
    while (i < p->n_marks && (p->nodes[p->mark_of[i]].type != d.type || p->nodes[p->mark_of[i]].a != d.a))
        i++;
    if (i == BY_GR_MARKS) return fail(p, BY_ELIMIT, "more than 7 look-behinds and assertions in repeats"), BY_GR_NEVER;
    if (i == p->n_marks) {
        p->mark_of[p->n_marks++] = n;
        p->allowed[i] = by_gr_not(g, misplaced(p, i, d));
    }
    return by_gr_byte_range(g, BY_GR_MARK_FIRST + i, BY_GR_MARK_FIRST + i);
}

static by_gr_term without_marks(parser *p, by_gr_term t) {
    by_gr_term v[BY_GR_MARKS + 1];
    if (p->n_marks == 0) return t;
    v[0] = t;
    memcpy(v + 1, p->allowed, p->n_marks * sizeof *v);
    return by_gr_erase(p->g, by_gr_and(p->g, v, p->n_marks + 1));
}

static by_gr_term simple(parser *p, uint32_t root, bool search, bool *ok) {
    by_gr *g = p->g;
    by_gr_vec alts = {0}, parts = {0};
    chain(p, root, N_ALT, &alts);
    *ok = true;
    for (uint32_t i = 0; i < alts.n && *ok; i++) {
        bool start, end;
        *ok = strip_edges(p, alts.v[i], &start, &end, &parts);
        by_gr_term t = BY_GR_EPS;
        for (uint32_t j = 0; j < parts.n && *ok; j++)
            t = by_gr_seq(g, direct(p, parts.v[j]), t);
        if (search && by_gr_nullable(g, t) && !(start && end))
            t = BY_GR_ANYTEXT;
        else if (search) {
            if (!end) t = by_gr_seq(g, t, BY_GR_ANYTEXT);
            if (!start) t = by_gr_seq(g, BY_GR_ANYTEXT, t);
        }
        alts.v[i] = t;
    }
    by_gr_term t = *ok ? by_gr_alt(g, alts.v, alts.n) : BY_GR_NEVER; /* else some are still nodes of the pattern */
    by_gr_vec_free(&alts);
    by_gr_vec_free(&parts);
    return t;
}

/* Whole language with an end sentinel, then without it. */
static by_gr_term general(parser *p, uint32_t root, bool search) {
    by_gr *g = p->g;
    by_gr_term end = by_gr_byte_range(g, 255, 255);
    by_gr_term k = search ? by_gr_seq(g, BY_GR_ANYTEXT, end) : end;
    by_gr_term v[3] = {with_tail(p, root, k, PREV_START)};
    if (search) {
        by_gr_cps s = {0};
        ADD(&s, word_chars);
        by_gr_term word = by_gr_cps_term(g, &s);
        by_gr_cps_invert(g, &s);
        by_gr_term other = by_gr_cps_term(g, &s);
        by_gr_cps_free(&s);
        v[1] = by_gr_seq(g, BY_GR_ANYTEXT, by_gr_seq(g, word, with_tail(p, root, k, PREV_WORD)));
        v[2] = by_gr_seq(g, BY_GR_ANYTEXT, by_gr_seq(g, other, with_tail(p, root, k, PREV_OTHER)));
    }
    by_gr_term t = without_marks(p, by_gr_alt(g, v, search ? 3 : 1));
    if (t == BY_GR_NEVER || by_gr_bad(g)) return BY_GR_NEVER;
    unsigned f = by_gr_nullable(g, by_gr_next(g, t, 255)) ? BY_GR_F_NULLABLE : 0;
    t = by_gr_node_make(g, BY_GR_K_UNQUOT, 0, t, 0, 0, f);
    return by_gr_live(g, t) ? t : BY_GR_NEVER;
}

by_gr_term by_gr_regex(by_gr *g, by_str text, const by_gr_regex_opts *o) {
    parser p = {.g = g, .s = text, .icase = o->icase, .dotall = o->dotall, .ecma_space = o->ecma_space};
    by_gr_term t = BY_GR_NEVER;
    make(&p, (node){.type = N_EMPTY, .empty = 1});
    uint32_t root = parse_alt(&p);
    if (!by_gr_bad(g) && more(&p)) fail(&p, BY_EFORMAT, "unmatched )");
    if (!by_gr_bad(g)) {
        bool ok;
        t = simple(&p, root, o->search, &ok);
        if (!ok) t = general(&p, root, o->search);
        if (p.need_marks) {
            p.with_marks = true;
            t = general(&p, root, o->search);
        }
    }
    by_free(p.nodes);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}
