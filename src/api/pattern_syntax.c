/* pattern_syntax.c - recursive descent over a pattern's syntax; nothing is compiled. */
#include "api/pattern_syntax.h"

#include <stddef.h>

#include "base/limits.h"

typedef struct {
    const char *at, *end;
    unsigned depth;
    unsigned n_groups; /* opened so far: a back reference may name any group of the pattern */
} parser;

static bool parse_choice(parser *p);

static int peek(const parser *p) { return p->at < p->end ? (unsigned char)*p->at : -1; }
static bool take(parser *p, char c) {
    if (peek(p) != c) return false;
    p->at++;
    return true;
}
static bool take_word(parser *p, const char *word) {
    const char *at = p->at;
    for (; *word; word++, at++)
        if (at >= p->end || *at != *word) return false;
    p->at = at;
    return true;
}
static bool is_word_char(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
static bool is_hex(int c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

static bool hex_digits(parser *p, int n) {
    for (int i = 0; i < n; i++) {
        if (!is_hex(peek(p))) return false;
        p->at++;
    }
    return true;
}

/* Behind \x or \u: n digits, or {digits}. */
static bool hex_escape(parser *p, int n) {
    if (!take(p, '{')) return hex_digits(p, n);
    int count = 0;
    while (is_hex(peek(p))) p->at++, count++;
    return count > 0 && count <= 6 && take(p, '}');
}

/* Behind \p or \P: a letter, or a name in braces. */
static bool property(parser *p) {
    if (!take(p, '{')) {
        int c = peek(p);
        if (!c || !((c | 32) >= 'a' && (c | 32) <= 'z')) return false;
        p->at++;
        return true;
    }
    int count = 0;
    while (is_word_char(peek(p)) || peek(p) == '=' || peek(p) == '^' || peek(p) == '-' || peek(p) == ' ') p->at++, count++;
    return count > 0 && take(p, '}');
}

static bool parse_escape(parser *p, bool in_class) {
    int c = peek(p);
    if (c < 0) return false;
    p->at++;
    switch (c) {
    case 'x': return hex_escape(p, 2);
    case 'u': return hex_escape(p, 4);
    case 'U': return hex_escape(p, 8);
    case 'p':
    case 'P': return property(p);
    case 'c': {
        int letter = peek(p);
        if (!((letter | 32) >= 'a' && (letter | 32) <= 'z')) return false;
        p->at++;
        return true;
    }
    case 'd': case 'D': case 'w': case 'W': case 's': case 'S': case 'n': case 'r': case 't': case 'f': case 'v':
    case 'a': case 'b': case 'e': case 'h': case 'H': return true;
    case 'B': case 'A': case 'z': case 'Z': case 'G': case 'K': return !in_class;
    default: break;
    }
    if (c >= '0' && c <= '9') return true;
    if (c >= 0x80) return true;
    return !is_word_char(c) || c == '_'; /* an escaped letter without a meaning is a fault */
}

static bool parse_class(parser *p) {
    if (++p->depth > BY_LIMIT_REQUEST_DEPTH) return false;
    take(p, '^');
    bool first = true;
    while (p->at < p->end) {
        if (peek(p) == ']' && !first) {
            p->at++;
            p->depth--;
            return true;
        }
        first = false;
        int c = peek(p);
        p->at++;
        if (c == '\\' && !parse_escape(p, true)) return false;
        if (c == '[' && !take_word(p, ":") && !parse_class(p)) return false;
    }
    return false;
}

static bool group_name(parser *p, char close) {
    if (!is_word_char(peek(p)) || (peek(p) >= '0' && peek(p) <= '9')) return false;
    while (is_word_char(peek(p)) || peek(p) >= 0x80) p->at++;
    return take(p, close);
}

static bool parse_flags(parser *p) {
    int count = 0;
    while (peek(p) == 'i' || peek(p) == 'm' || peek(p) == 's' || peek(p) == 'u' || peek(p) == 'x' || peek(p) == 'U' ||
           peek(p) == '-')
        p->at++, count++;
    return count > 0;
}

static bool parse_group(parser *p) {
    p->n_groups++;
    if (take(p, '?')) {
        if (take(p, ':') || take(p, '=') || take(p, '!') || take(p, '>') || take_word(p, "<=") || take_word(p, "<!")) {
        } else if (take_word(p, "P<") || take(p, '<')) {
            if (!group_name(p, '>')) return false;
        } else {
            if (!parse_flags(p)) return false;
            if (take(p, ')')) return true;
            if (!take(p, ':')) return false;
        }
    }
    return parse_choice(p) && take(p, ')');
}

static bool number(parser *p, unsigned *out) {
    unsigned v = 0;
    const char *from = p->at;
    while (peek(p) >= '0' && peek(p) <= '9') {
        v = v * 10 + (unsigned)(*p->at++ - '0');
        if (v > 100000) return false;
    }
    *out = v;
    return p->at > from;
}

/* An optional quantifier; a brace that is none is an ordinary character. */
static bool parse_quantifier(parser *p, bool repeatable) {
    int c = peek(p);
    if (c == '*' || c == '+' || c == '?') {
        p->at++;
    } else if (c == '{') {
        const char *from = p->at++;
        unsigned low = 0, high = 0;
        bool has_low = number(p, &low), range = take(p, ','), has_high = range && number(p, &high);
        if (!has_low || !take(p, '}')) {
            p->at = from;
            return true;
        }
        if (has_high && high < low) return false;
    } else {
        return true;
    }
    if (!repeatable) return false;
    if (!take(p, '?')) take(p, '+');
    return true;
}

static bool parse_term(parser *p) {
    int c = peek(p);
    bool repeatable = true;
    p->at++;
    switch (c) {
    case '(':
        if (++p->depth > BY_LIMIT_REQUEST_DEPTH || !parse_group(p)) return false;
        p->depth--;
        break;
    case '[':
        if (!parse_class(p)) return false;
        break;
    case '\\':
        if (!parse_escape(p, false)) return false;
        break;
    case '*': case '+': case '?': return false;
    case ')': return false;
    case '^': repeatable = true; break;
    default: break;
    }
    return parse_quantifier(p, repeatable);
}

static bool parse_choice(parser *p) {
    while (p->at < p->end && peek(p) != ')') {
        if (take(p, '|')) continue;
        if (!parse_term(p)) return false;
    }
    return true;
}

bool by_pattern_is_valid(by_str pattern) {
    parser p = {.at = pattern.ptr, .end = pattern.ptr + pattern.len};
    return parse_choice(&p) && p.at == p.end;
}
