/* grammar_ebnf.c - EBNF in the two dialects that models and engines use: GBNF (llama.cpp) and xgrammar's.
 *
 *   rule ::= sequence | sequence ...        # comment
 *   "text"  [a-z]  [^...]  .  ( )  * + ? {n} {n,} {n,m}  name  Regex("...")  Token(1, 2)  ExcludeToken(1)  <[5]> !<[5]>
 *   TagDispatch(("tag", rule), ..., stop_str=(...), loop_after_dispatch=true)   (= look-ahead), which is not enforced
 * A rule ends where the next one's `name ::=` begins, or at a line's end outside parentheses. */
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/grammar_cfg.h"

#define NEST_MAX   200u
#define REPEAT_MAX 100000u

typedef struct {
    by_gr *g;
    by_gr_cfg c;
    by_str s;
    size_t at;
    uint32_t depth;
} parser;

static uint32_t fail(parser *p, size_t at, by_status code, const char *what) {
    by_gr_text_error(p->g, p->s, at, code, "%s", what);
    return 0;
}

static char peek(const parser *p) {
    return p->at < p->s.len ? p->s.ptr[p->at] : 0;
}
static bool more(const parser *p) {
    return p->at < p->s.len;
}
static bool eat(parser *p, const char *z) {
    size_t n = strlen(z);
    if (p->s.len - p->at < n || memcmp(p->s.ptr + p->at, z, n) != 0) return false;
    p->at += n;
    return true;
}

static void skip(parser *p, bool lines) {
    while (more(p)) {
        char c = peek(p);
        if (c == '#')
            while (more(p) && peek(p) != '\n')
                p->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
            p->at++;
        else
            break;
    }
}

static bool name_char(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '-' || c == '.'));
}

static by_str read_name(parser *p) {
    size_t from = p->at;
    while (more(p) && name_char(peek(p), p->at == from))
        p->at++;
    return by_str_of(p->s.ptr + from, p->at - from);
}

/* Is the name at `at` followed by ::= (or by = for a rule's head)? */
static bool is_head(const parser *p, size_t at) {
    size_t i = at;
    while (i < p->s.len && name_char(p->s.ptr[i], i == at))
        i++;
    if (i == at) return false;
    while (i < p->s.len && strchr(" \t\r\n", p->s.ptr[i]))
        i++;
    return p->s.len - i >= 3 && memcmp(p->s.ptr + i, "::=", 3) == 0;
}

/* ---- characters ---- */

static uint32_t hex(parser *p, unsigned n) {
    uint32_t v = 0;
    for (unsigned i = 0; i < n; i++, p->at++) {
        char c = peek(p);
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return fail(p, p->at, BY_EFORMAT, "hexadecimal digit expected");
    }
    if (v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) fail(p, p->at - n, BY_EFORMAT, "not a code point");
    return v;
}

static uint32_t character(parser *p) {
    by_utf8_step u = by_utf8_next(p->s.ptr + p->at, p->s.len - p->at);
    if (u.kind != BY_UTF8_CHAR) return fail(p, p->at, BY_EFORMAT, "not valid UTF-8");
    p->at += u.n;
    if (u.cp != '\\') return u.cp;
    if (!more(p)) return fail(p, p->at, BY_EFORMAT, "backslash at the end");
    char c = p->s.ptr[p->at++];
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'a': return 7;
    case 'e': return 27;
    case '0': return 0;
    case 'x': return hex(p, 2);
    case 'u': return hex(p, 4);
    case 'U': return hex(p, 8);
    default: break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return fail(p, p->at - 1, BY_EFORMAT, "unknown escape");
    p->at--;
    u = by_utf8_next(p->s.ptr + p->at, p->s.len - p->at);
    if (u.kind != BY_UTF8_CHAR) return fail(p, p->at, BY_EFORMAT, "not valid UTF-8");
    p->at += u.n;
    return u.cp;
}

/* A string literal; the opening quote is read. The decoded text lives in the arena. */
static by_str string(parser *p) {
    size_t from = p->at - 1;
    by_buf b = {0};
    by_str out = {0};
    while (more(p) && peek(p) != '"' && peek(p) != '\n' && !by_gr_bad(p->g)) {
        char u[4];
        by_buf_push(&b, u, by_utf8_put(character(p), u));
    }
    if (!eat(p, "\""))
        fail(p, from, BY_EFORMAT, "string without a closing quote");
    else {
        out = by_arena_dup(&p->g->arena, by_buf_str(&b));
        if (!out.ptr || b.failed) by_gr_fail(p->g, BY_ENOMEM, "grammar: out of memory");
    }
    by_buf_deinit(&b);
    return out;
}

static by_gr_term char_class(parser *p) {
    size_t from = p->at - 1;
    by_gr_cps s = {0};
    bool negate = eat(p, "^");
    while (more(p) && peek(p) != ']' && !by_gr_bad(p->g)) {
        uint32_t lo = character(p), hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] != ']') {
            p->at++;
            hi = character(p);
            if (hi < lo) fail(p, p->at, BY_EFORMAT, "range out of order");
        }
        by_gr_cps_add(p->g, &s, lo, hi);
    }
    if (!eat(p, "]")) fail(p, from, BY_EFORMAT, "[ without ]");
    by_gr_cps_normalise(&s);
    if (negate) by_gr_cps_invert(p->g, &s);
    by_gr_term t = by_gr_bad(p->g) ? BY_GR_NEVER : by_gr_cps_term(p->g, &s);
    by_gr_cps_free(&s);
    return t;
}

/* ---- calls ---- */

static bool number(parser *p, uint32_t *out) {
    uint64_t v = 0;
    size_t from = p->at;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if ((v = v * 10 + (uint64_t)(peek(p) - '0')) > UINT32_MAX / 2) v = UINT32_MAX / 2;
    *out = (uint32_t)v;
    return p->at > from;
}

static uint32_t token_set(parser *p, const char *close, bool negate) {
    by_gr_vec ids = {0};
    uint32_t id;
    for (;;) {
        skip(p, true);
        if (eat(p, close)) break;
        if (!number(p, &id)) {
            fail(p, p->at, BY_EFORMAT, "token id expected");
            break;
        }
        by_gr_vec_push(p->g, &ids, id);
        skip(p, true);
        eat(p, ",");
    }
    by_gr_term t = by_gr_tok_set(p->g, ids.v, ids.n, negate);
    by_gr_vec_free(&ids);
    return by_gr_cfg_term(&p->c, t);
}

static uint32_t regex_call(parser *p) {
    skip(p, true);
    size_t at = p->at;
    if (!eat(p, "\"")) return fail(p, p->at, BY_EFORMAT, "Regex(\"...\") expects a string");
    by_str s = string(p);
    skip(p, true);
    if (!eat(p, ")")) return fail(p, p->at, BY_EFORMAT, ") expected");
    by_gr_regex_opts o = {0};
    by_gr_term t = by_gr_bad(p->g) ? BY_GR_NEVER : by_gr_regex(p->g, s, &o);
    if (by_gr_bad(p->g)) {
        p->g->where[0] = 0;
        return fail(p, at, BY_EFORMAT, "");
    }
    return by_gr_cfg_term(&p->c, t);
}

#define DISPATCH_MAX 256u

typedef struct {
    by_str tags[DISPATCH_MAX], stops[DISPATCH_MAX];
    by_gr_term then[DISPATCH_MAX];
    uint32_t n, n_stops;
    bool loop;
} dispatch;

/* (tag, rule), or name=value. */
static bool dispatch_item(parser *p, dispatch *d) {
    skip(p, true);
    if (eat(p, "(")) {
        skip(p, true);
        if (!eat(p, "\"") || d->n == DISPATCH_MAX) return fail(p, p->at, BY_EFORMAT, "(\"tag\", rule) expected"), false;
        d->tags[d->n] = string(p);
        skip(p, true);
        eat(p, ",");
        skip(p, true);
        size_t at = p->at;
        by_str name = read_name(p);
        if (!name.len) return fail(p, p->at, BY_EFORMAT, "rule name expected"), false;
        d->then[d->n++] = by_gr_cfg_find(&p->c, name, at);
        skip(p, true);
        return eat(p, ")") || (fail(p, p->at, BY_EFORMAT, ") expected"), false);
    }
    size_t at = p->at;
    by_str key = read_name(p);
    skip(p, true);
    if (!key.len || !eat(p, "=")) return fail(p, at, BY_EFORMAT, "(\"tag\", rule) or name=value expected"), false;
    skip(p, true);
    if (by_str_eqz(key, "loop_after_dispatch") || by_str_eqz(key, "stop_eos")) {
        by_str v = read_name(p);
        if (by_str_eqz(key, "loop_after_dispatch")) d->loop = by_str_eqz(v, "true") || by_str_eqz(v, "True");
        return true;
    }
    if (!by_str_eqz(key, "excludes") && !by_str_eqz(key, "stop_str"))
        return fail(p, at, BY_EUNSUPPORTED, "unknown option of TagDispatch"), false;
    bool list = eat(p, "(");
    do {
        skip(p, true);
        if (list && peek(p) == ')') break;
        if (!eat(p, "\"") || d->n_stops == DISPATCH_MAX) return fail(p, p->at, BY_EFORMAT, "string expected"), false;
        d->stops[d->n_stops++] = string(p);
        skip(p, true);
    } while (list && eat(p, ","));
    return !list || eat(p, ")") || (fail(p, p->at, BY_EFORMAT, ") expected"), false);
}

/* The dispatcher is a machine over rules, whose terms exist only at the end: its node is a rule of its own, made when
 * the grammar is finished. */
static uint32_t dispatch_call(parser *p) {
    dispatch *d = by_gr_alloc(p->g, sizeof *d);
    if (!d) return 0;
    d->loop = true;
    for (;;) {
        skip(p, true);
        if (eat(p, ")")) break;
        if (!dispatch_item(p, d) || by_gr_bad(p->g)) return 0;
        skip(p, true);
        eat(p, ",");
    }
    by_gr_term v[DISPATCH_MAX];
    for (uint32_t i = 0; i < d->n; i++) { /* a placeholder rule of the store stands for the grammar's rule */
        uint32_t r = by_gr_rule_new(p->g);
        if (by_gr_bad(p->g)) return 0;
        p->g->rules[r].built = true;
        p->g->rules[r].expr = 0;
        p->g->rules[r].body = d->then[i]; /* grammar rule; replaced by its term in the end */
        p->g->rules[r].building = true;
        v[i] = by_gr_rule_term(p->g, r);
    }
    uint32_t f = by_gr_free_new(p->g, d->tags, v, d->n, d->stops, d->n_stops, d->loop);
    return by_gr_cfg_term(&p->c, by_gr_free_term(p->g, f, true));
}

/* ---- expressions ---- */

static uint32_t alternatives(parser *p, bool nested);

static uint32_t atom(parser *p) {
    size_t at = p->at;
    if (eat(p, "\"")) {
        by_str s = string(p);
        return by_gr_cfg_term(&p->c, by_gr_bad(p->g) ? BY_GR_NEVER : by_gr_lit(p->g, s));
    }
    if (eat(p, "[")) return by_gr_cfg_term(&p->c, char_class(p));
    if (eat(p, "!<[")) return token_set(p, "]>", true);
    if (eat(p, "<[")) return token_set(p, "]>", false);
    if (eat(p, ".")) return by_gr_cfg_term(&p->c, BY_GR_ANYCHAR);
    if (eat(p, "(=")) { /* xgrammar's look-ahead only helps its own mask cache; the language does not depend on it */
        uint32_t ignored = alternatives(p, true);
        (void)ignored;
        return eat(p, ")") ? 0 : fail(p, at, BY_EFORMAT, "( without )");
    }
    if (eat(p, "(")) {
        if (++p->depth > NEST_MAX) return fail(p, at, BY_ELIMIT, "parentheses nest too deeply");
        uint32_t n = alternatives(p, true);
        p->depth--;
        skip(p, true);
        return eat(p, ")") ? n : fail(p, at, BY_EFORMAT, "( without )");
    }
    by_str name = read_name(p);
    if (!name.len) return fail(p, at, BY_EFORMAT, "an expression is expected");
    if (peek(p) == '(') {
        if (by_str_eqz(name, "Regex") && eat(p, "(")) return regex_call(p);
        if (by_str_eqz(name, "Token") && eat(p, "(")) return token_set(p, ")", false);
        if (by_str_eqz(name, "ExcludeToken") && eat(p, "(")) return token_set(p, ")", true);
        if (by_str_eqz(name, "TagDispatch") && eat(p, "(")) return dispatch_call(p);
    }
    return by_gr_cfg_rule(&p->c, by_gr_cfg_find(&p->c, name, at));
}

static uint32_t repeated(parser *p) {
    uint32_t n = atom(p);
    for (bool go = true; go && !by_gr_bad(p->g);) {
        uint32_t min = 0, max = BY_GR_INF;
        size_t at = p->at;
        if (eat(p, "*")) {
        } else if (eat(p, "+"))
            min = 1;
        else if (eat(p, "?"))
            max = 1;
        else if (eat(p, "{")) {
            skip(p, true);
            bool ok = number(p, &min);
            skip(p, true);
            max = min;
            if (eat(p, ",")) {
                skip(p, true);
                if (!number(p, &max)) max = BY_GR_INF;
                skip(p, true);
                ok = true;
            }
            if (!ok || !eat(p, "}")) return fail(p, at, BY_EFORMAT, "{n}, {n,} or {n,m} is expected");
            if (min > max) return fail(p, at, BY_EFORMAT, "repeat counts out of order");
            if (min > REPEAT_MAX || (max != BY_GR_INF && max > REPEAT_MAX))
                return fail(p, at, BY_ELIMIT, "repeat count over 100000");
        } else
            break;
        n = by_gr_cfg_rep(&p->c, n, min, max);
    }
    return n;
}

static bool at_end(parser *p, bool nested) {
    skip(p, nested);
    if (!more(p) || peek(p) == '|' || peek(p) == ')') return true;
    if (!nested && peek(p) == '\n') {
        size_t back = p->at; /* a line that begins with | goes on */
        skip(p, true);
        if (peek(p) == '|') return true;
        p->at = back;
        return true;
    }
    return is_head(p, p->at);
}

static uint32_t sequence(parser *p, bool nested) {
    uint32_t n = 0;
    while (!at_end(p, nested) && !by_gr_bad(p->g))
        n = by_gr_cfg_seq(&p->c, n, repeated(p));
    return n;
}

static uint32_t alternatives(parser *p, bool nested) {
    skip(p, nested);
    uint32_t n = sequence(p, nested);
    while (eat(p, "|") && !by_gr_bad(p->g)) {
        skip(p, true);
        n = by_gr_cfg_alt(&p->c, n, sequence(p, nested));
    }
    return n;
}

static void rule(parser *p) {
    size_t at = p->at;
    by_str name = read_name(p);
    skip(p, true);
    if (!name.len || !eat(p, "::=")) {
        fail(p, p->at, BY_EFORMAT, "name ::= expected");
        return;
    }
    uint32_t r = by_gr_cfg_find(&p->c, name, at);
    if (by_gr_bad(p->g)) return;
    if (p->c.rules[r].defined) {
        fail(p, at, BY_EFORMAT, "the rule is defined twice");
        return;
    }
    skip(p, true);
    uint32_t body = is_head(p, p->at) ? 0 : alternatives(p, false);
    p->c.rules[r].body = body;
    p->c.rules[r].defined = true;
    p->c.rules[r].at = at;
    skip(p, false);
    if (!by_gr_bad(p->g) && more(p) && peek(p) != '\n' && !is_head(p, p->at))
        fail(p, p->at, BY_EFORMAT, "left-over text");
}

/* Placeholders of dispatchers get the terms of their rules. */
static void bind(parser *p, uint32_t first) {
    for (uint32_t i = first; i < p->g->n_rules; i++) {
        if (!p->g->rules[i].building) continue;
        const by_gr_crule *r = &p->c.rules[p->g->rules[i].body];
        p->g->rules[i].building = false;
        p->g->rules[i].body = by_gr_rule_term(p->g, r->rule);
    }
}

by_gr_term by_gr_compile_ebnf(by_gr *g, by_str text, by_str root) {
    parser p = {.g = g, .s = text};
    by_gr_term t = BY_GR_NEVER;
    uint32_t first = g->n_rules;
    if (!root.len) root = BY_STR("root");
    by_gr_cfg_init(&p.c, g);
    for (skip(&p, true); more(&p) && !by_gr_bad(g); skip(&p, true))
        rule(&p);
    for (uint32_t i = 0; i < p.c.n_rules && !by_gr_bad(g); i++)
        if (!p.c.rules[i].defined)
            by_gr_text_error(g, text, p.c.rules[i].at, BY_EFORMAT, "rule %.*s is not defined",
                             BY_STR_ARG(p.c.rules[i].name));
    if (!by_gr_bad(g)) {
        uint32_t r = by_gr_cfg_find(&p.c, root, 0);
        if (!by_gr_bad(g) && !p.c.rules[r].defined)
            by_gr_text_error(g, text, 0, BY_EFORMAT, "there is no rule %.*s", BY_STR_ARG(root));
        if (!by_gr_bad(g)) t = by_gr_cfg_finish(&p.c, r);
        if (!by_gr_bad(g)) bind(&p, first);
        if (!by_gr_bad(g) && t == BY_GR_NEVER)
            by_gr_text_error(g, text, p.c.rules[r].at, BY_EINVAL, "rule %.*s matches nothing", BY_STR_ARG(root));
    }
    by_gr_cfg_free(&p.c);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}
