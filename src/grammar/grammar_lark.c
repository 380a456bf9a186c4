/* grammar_lark.c - the Lark subset that llguidance made common.
 *
 *   start: a "b" | c~2..3        TERMINAL: /regex/ | "text"i | "a".."f"        %ignore X   %import common.X
 *   %json {schema}   %regex /../   %lark { grammar }   @name   <[id]>   <[1-5]>   name[lazy, capture, ...]: ...
 * Terminals are regular and not recursive. Behind each terminal the ignored text may stand any number of times. The
 * language is that of the rules: longest-match lexing is not imitated. */
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/grammar_cfg.h"

#define NEST_MAX     200u
#define REPEAT_MAX   100000u
#define IMPORT_DEPTH 8u

typedef struct {
    by_gr *g;
    by_gr_cfg c;
    by_str s;
    size_t at;
    uint32_t depth, n_grammars;
    uint32_t ignore; /* rule of the ignored text, UINT32_MAX = none */
    bool in_terminal;
    by_str prefix; /* names of an embedded grammar are kept apart */
} parser;

static uint32_t fail(parser *p, size_t at, by_status code, const char *what) {
    by_gr_text_error(p->g, p->s, at, code, "%s", what);
    return 0;
}

static bool more(const parser *p) {
    return p->at < p->s.len;
}
static char peek(const parser *p) {
    return p->at < p->s.len ? p->s.ptr[p->at] : 0;
}
static bool eat(parser *p, const char *z) {
    size_t n = strlen(z);
    if (p->s.len - p->at < n || memcmp(p->s.ptr + p->at, z, n) != 0) return false;
    p->at += n;
    return true;
}

/* Blanks and comments; with lines also line ends. A line that begins with | goes on. */
static void skip(parser *p, bool lines) {
    for (;;) {
        char c = peek(p);
        if (!more(p)) return;
        if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
            p->at++;
        else if (c == '#' || (c == '/' && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] == '/'))
            while (more(p) && peek(p) != '\n')
                p->at++;
        else if (c == '\n') {
            size_t back = p->at;
            skip(p, true);
            if (peek(p) == '|') return;
            p->at = back;
            return;
        } else
            return;
    }
}

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

static by_str word(parser *p) {
    size_t from = p->at;
    while (more(p) && word_char(peek(p)) && !(peek(p) == '.' && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] == '.'))
        p->at++;
    while (p->at > from && p->s.ptr[p->at - 1] == '.')
        p->at--;
    return by_str_of(p->s.ptr + from, p->at - from);
}

static bool is_terminal_name(by_str s) {
    size_t i = 0;
    while (i < s.len && s.ptr[i] == '_')
        i++;
    return i < s.len && s.ptr[i] >= 'A' && s.ptr[i] <= 'Z';
}

static uint32_t find(parser *p, by_str name, size_t at) {
    if (!p->prefix.len) return by_gr_cfg_find(&p->c, name, at);
    by_buf b = {0};
    by_buf_push_str(&b, p->prefix);
    by_buf_push_str(&b, name);
    by_str full = by_arena_dup(&p->g->arena, by_buf_str(&b));
    by_buf_deinit(&b);
    if (!full.ptr) return by_gr_fail(p->g, BY_ENOMEM, "grammar: out of memory");
    return by_gr_cfg_find(&p->c, full, at);
}

/* ---- literals ---- */

/* JSON-like string; the quote is not yet read. */
static by_str string(parser *p) {
    size_t from = p->at++;
    by_str out = {0};
    while (more(p) && peek(p) != '"' && peek(p) != '\n')
        p->at += peek(p) == '\\' ? 2 : 1;
    if (p->at >= p->s.len || !eat(p, "\"")) return fail(p, from, BY_EFORMAT, "string without a closing quote"), out;
    by_str raw = by_str_of(p->s.ptr + from, p->at - from);
    by_buf b = {0}; /* \xHH is not JSON: rewrite it; everything else is read by the JSON reader */
    for (size_t i = 0; i < raw.len; i++) {
        if (raw.ptr[i] == '\\' && i + 3 < raw.len && raw.ptr[i + 1] == 'x') {
            by_buf_push(&b, "\\u00", 4);
            by_buf_push(&b, raw.ptr + i + 2, 2);
            i += 3;
        } else if (raw.ptr[i] == '\\' && i + 1 < raw.len) {
            by_buf_push(&b, strchr("\"\\/bfnrtu", raw.ptr[i + 1]) ? raw.ptr + i : raw.ptr + i + 1,
                        strchr("\"\\/bfnrtu", raw.ptr[i + 1]) ? 2 : 1);
            i++;
        } else if (raw.ptr[i] == '\t')
            by_buf_push(&b, "\\t", 2);
        else
            by_buf_push_byte(&b, raw.ptr[i]);
    }
    by_json v;
    by_str text = by_arena_dup(&p->g->arena, by_buf_str(&b));
    by_status status = text.ptr && !b.failed ? by_json_parse(&v, &p->g->arena, text, NULL, NULL) : BY_ENOMEM;
    if (status >= 0 && v.type == BY_JSON_STRING)
        out = v.v.s;
    else
        fail(p, from, status == BY_ENOMEM ? BY_ENOMEM : BY_EFORMAT, "bad string");
    by_buf_deinit(&b);
    if (!out.ptr) out = BY_STR("");
    return out;
}

static by_gr_term fold_case(parser *p, by_str s) {
    by_gr_term t = BY_GR_EPS;
    for (size_t i = 0; i < s.len && !by_gr_bad(p->g);) {
        by_utf8_step u = by_utf8_next(s.ptr + i, s.len - i);
        by_gr_cps set = {0};
        by_gr_cps_add(p->g, &set, u.cp, u.cp);
        by_gr_cps_fold(p->g, &set);
        t = by_gr_seq(p->g, t, by_gr_cps_term(p->g, &set));
        by_gr_cps_free(&set);
        i += u.n;
    }
    return t;
}

static uint32_t leaf(parser *p, by_gr_term t) {
    uint32_t n = by_gr_cfg_term(&p->c, t);
    if (p->in_terminal || p->ignore == UINT32_MAX || t == BY_GR_EPS) return n;
    return by_gr_cfg_seq(&p->c, n, by_gr_cfg_rule(&p->c, p->ignore)); /* ignored text follows each terminal */
}

static uint32_t string_or_range(parser *p) {
    size_t at = p->at;
    by_str a = string(p);
    if (by_gr_bad(p->g)) return 0;
    size_t back = p->at;
    skip(p, false);
    if (eat(p, "..")) {
        skip(p, false);
        if (peek(p) != '"') return fail(p, p->at, BY_EFORMAT, "string expected behind ..");
        by_str b = string(p);
        if (by_gr_bad(p->g)) return 0;
        by_utf8_step x = {0}, y = {0};
        if (a.len) x = by_utf8_next(a.ptr, a.len);
        if (b.len) y = by_utf8_next(b.ptr, b.len);
        if (!a.len || !b.len || x.n != a.len || y.n != b.len || x.cp > y.cp)
            return fail(p, at, BY_EFORMAT, "a range needs two characters in order");
        return leaf(p, by_gr_char_range(p->g, x.cp, y.cp));
    }
    p->at = back;
    if (peek(p) == 'i' && (p->at + 1 >= p->s.len || !word_char(p->s.ptr[p->at + 1]))) {
        p->at++;
        return leaf(p, fold_case(p, a));
    }
    return leaf(p, by_gr_lit(p->g, a));
}

static uint32_t regex(parser *p) {
    size_t from = ++p->at;
    bool in_class = false;
    for (; more(p) && peek(p) != '\n' && (peek(p) != '/' || in_class); p->at++) {
        if (peek(p) == '\\' && p->at + 1 < p->s.len)
            p->at++;
        else if (peek(p) == '[')
            in_class = true;
        else if (peek(p) == ']')
            in_class = false;
    }
    by_str text = by_str_of(p->s.ptr + from, (p->at < p->s.len ? p->at : p->s.len) - from);
    if (!eat(p, "/")) return fail(p, from - 1, BY_EFORMAT, "regular expression without a closing /");
    by_gr_regex_opts o = {0};
    for (; more(p) && strchr("imslux", peek(p)); p->at++) {
        if (peek(p) == 'i')
            o.icase = true;
        else if (peek(p) == 's')
            o.dotall = true;
        else if (peek(p) != 'u' && peek(p) != 'l')
            return fail(p, p->at, BY_EUNSUPPORTED, "flag of a regular expression");
    }
    by_gr_term t = by_gr_regex(p->g, text, &o);
    if (by_gr_bad(p->g)) {
        p->g->where[0] = 0;
        return fail(p, from, BY_EFORMAT, "");
    }
    return leaf(p, t);
}

/* ---- embedded ---- */

/* End of a {...} that begins at `at`, strings respected. */
static size_t braces(parser *p, size_t at) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = at; i < p->s.len; i++) {
        char c = p->s.ptr[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"')
            quoted = true;
        else if (c == '{')
            depth++;
        else if (c == '}' && --depth == 0)
            return i + 1;
    }
    return 0;
}

static uint32_t json(parser *p) {
    skip(p, true);
    size_t at = p->at, end = peek(p) == '{' ? braces(p, at) : 0;
    if (!end) return fail(p, at, BY_EFORMAT, "%json expects a schema in braces");
    by_json *v = by_gr_alloc(p->g, sizeof *v);
    by_err err;
    if (!v) return 0;
    by_json_opts o = {.depth_max = BY_LIMIT_JSON_DEPTH};
    by_status status = by_json_parse(v, &p->g->arena, by_str_of(p->s.ptr + at, end - at), &o, &err);
    if (status < 0) {
        by_gr_text_error(p->g, p->s, at, status, "%s", err.msg);
        return 0;
    }
    p->at = end;
    by_gr_term t = by_gr_schema_compile(p->g, v);
    if (by_gr_bad(p->g)) {
        p->g->where[0] = 0;
        return fail(p, at, BY_EFORMAT, "");
    }
    return leaf(p, t);
}

static void statements(parser *p);

static uint32_t lark(parser *p) {
    skip(p, true);
    size_t at = p->at, end = peek(p) == '{' ? braces(p, at) : 0;
    if (!end || p->depth >= IMPORT_DEPTH)
        return fail(p, at, end ? BY_ELIMIT : BY_EFORMAT, "%lark expects a grammar in braces");
    parser in = *p;
    char name[32];
    in.s = by_str_of(p->s.ptr, end - 1);
    in.at = at + 1;
    in.depth++;
    in.ignore = UINT32_MAX;
    in.prefix =
        by_arena_dup(&p->g->arena, by_str_of(name, (size_t)snprintf(name, sizeof name, "%%%u/", ++p->n_grammars)));
    in.n_grammars = p->n_grammars;
    statements(&in);
    uint32_t r = find(&in, BY_STR("start"), at);
    p->c = in.c;
    p->n_grammars = in.n_grammars;
    p->at = end;
    return by_gr_cfg_rule(&p->c, r);
}

static uint32_t token_ids(parser *p) {
    by_gr_vec ids = {0};
    while (more(p) && peek(p) != ']' && !by_gr_bad(p->g)) {
        uint32_t v[2] = {0, 0};
        for (int k = 0; k < 2; k++) {
            size_t from = p->at;
            while (peek(p) >= '0' && peek(p) <= '9' && v[k] < BY_LIMIT_VOCAB)
                v[k] = v[k] * 10 + (uint32_t)(p->s.ptr[p->at++] - '0');
            if (p->at == from) fail(p, p->at, BY_EFORMAT, "token id expected");
            if (k == 0 && !eat(p, "-")) {
                v[1] = v[0];
                break;
            }
        }
        for (uint32_t id = v[0]; id <= v[1] && id < by_grammar_vocab_size(p->g->vocab); id++)
            by_gr_vec_push(p->g, &ids, id);
        if (!eat(p, ",")) break;
    }
    if (!eat(p, "]>")) fail(p, p->at, BY_EFORMAT, "]> expected");
    by_gr_term t = by_gr_bad(p->g) ? BY_GR_NEVER : by_gr_tok_set(p->g, ids.v, ids.n, false);
    by_gr_vec_free(&ids);
    return leaf(p, t);
}

/* <name>: the control token with that spelling. */
static uint32_t special(parser *p, size_t at) {
    while (more(p) && peek(p) != '>' && peek(p) != '\n')
        p->at++;
    if (!eat(p, ">")) return fail(p, at, BY_EFORMAT, "< without >");
    by_str name = by_str_of(p->s.ptr + at, p->at - at);
    for (uint32_t id = 0; id < by_grammar_vocab_size(p->g->vocab); id++)
        if (by_grammar_vocab_is_control(p->g->vocab, id) && by_str_eq(by_grammar_vocab_bytes(p->g->vocab, id), name))
            return leaf(p, by_gr_tok_set(p->g, &id, 1, false));
    return fail(p, at, BY_EINVAL, "the tokenizer has no such control token");
}

/* ---- expressions ---- */

static uint32_t alternatives(parser *p);

static uint32_t atom(parser *p) {
    size_t at = p->at;
    char c = peek(p);
    if (c == '"') return string_or_range(p);
    if (c == '/') return regex(p);
    if (eat(p, "(") || eat(p, "[")) {
        if (++p->depth > NEST_MAX) return fail(p, at, BY_ELIMIT, "parentheses nest too deeply");
        skip(p, true);
        uint32_t n = alternatives(p);
        p->depth--;
        skip(p, true);
        if (!eat(p, c == '(' ? ")" : "]")) return fail(p, at, BY_EFORMAT, "bracket is not closed");
        return c == '[' ? by_gr_cfg_alt(&p->c, n, 0) : n;
    }
    if (eat(p, "%json")) return json(p);
    if (eat(p, "%lark")) return lark(p);
    if (eat(p, "%regex")) {
        skip(p, true);
        return peek(p) == '/' ? regex(p) : fail(p, at, BY_EUNSUPPORTED, "%regex expects /.../");
    }
    if (eat(p, "<[")) return token_ids(p);
    if (c == '<') return special(p, at);
    if (c == '@') return fail(p, at, BY_EUNSUPPORTED, "references to other grammars are not supported");
    by_str name = word(p);
    if (!name.len) return fail(p, at, BY_EFORMAT, "an expression is expected");
    uint32_t n = by_gr_cfg_rule(&p->c, find(p, name, at));
    bool terminal = is_terminal_name(name);
    if (p->in_terminal && !terminal) return fail(p, at, BY_EFORMAT, "a terminal refers to a rule");
    if (!p->in_terminal && terminal && p->ignore != UINT32_MAX)
        n = by_gr_cfg_seq(&p->c, n, by_gr_cfg_rule(&p->c, p->ignore));
    return n;
}

static bool count(parser *p, uint32_t *out) {
    size_t from = p->at;
    uint64_t v = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if ((v = v * 10 + (uint64_t)(peek(p) - '0')) > REPEAT_MAX + 1) v = REPEAT_MAX + 1;
    *out = (uint32_t)v;
    return p->at > from;
}

static uint32_t repeated(parser *p) {
    uint32_t n = atom(p);
    for (;;) {
        uint32_t min = 0, max = BY_GR_INF;
        size_t at = p->at;
        if (by_gr_bad(p->g)) return 0;
        if (eat(p, "*")) {
        } else if (eat(p, "+"))
            min = 1;
        else if (eat(p, "?"))
            max = 1;
        else if (eat(p, "~")) {
            skip(p, false);
            if (!count(p, &min)) return fail(p, at, BY_EFORMAT, "~n or ~n..m is expected");
            max = min;
            if (eat(p, "..") && !count(p, &max)) return fail(p, at, BY_EFORMAT, "~n..m is expected");
        } else if (eat(p, "{")) {
            bool ok = count(p, &min);
            max = min;
            skip(p, false);
            if (eat(p, ",")) {
                skip(p, false);
                if (!count(p, &max)) max = BY_GR_INF;
                ok = true;
            }
            if (!ok || !eat(p, "}")) return fail(p, at, BY_EFORMAT, "{n}, {n,} or {n,m} is expected");
        } else
            return n;
        if (min > max) return fail(p, at, BY_EFORMAT, "repeat counts out of order");
        if (min > REPEAT_MAX || (max != BY_GR_INF && max > REPEAT_MAX))
            return fail(p, at, BY_ELIMIT, "repeat count over 100000");
        n = by_gr_cfg_rep(&p->c, n, min, max);
    }
}

static uint32_t sequence(parser *p) {
    uint32_t n = 0;
    for (;;) {
        skip(p, p->depth > 0);
        if (!more(p) || strchr("|)]\n", peek(p)) || by_gr_bad(p->g)) break;
        if (eat(p, "->")) {
            skip(p, false);
            word(p);
            break;
        }
        n = by_gr_cfg_seq(&p->c, n, repeated(p));
    }
    return n;
}

static uint32_t alternatives(parser *p) {
    uint32_t n = sequence(p);
    skip(p, p->depth > 0);
    while (eat(p, "|") && !by_gr_bad(p->g)) {
        skip(p, true);
        n = by_gr_cfg_alt(&p->c, n, sequence(p));
        skip(p, p->depth > 0);
    }
    return n;
}

/* ---- statements ---- */

static const struct {
    const char *name, *regex;
} common[] = {{"DIGIT", "[0-9]"},
              {"HEXDIGIT", "[a-fA-F0-9]"},
              {"INT", "[0-9]+"},
              {"SIGNED_INT", "[+-]?[0-9]+"},
              {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
              {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
              {"NUMBER", "[0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
              {"SIGNED_NUMBER", "[+-]?([0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
              {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
              {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""},
              {"LCASE_LETTER", "[a-z]"},
              {"UCASE_LETTER", "[A-Z]"},
              {"LETTER", "[A-Za-z]"},
              {"WORD", "[A-Za-z]+"},
              {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
              {"WS_INLINE", "[ \\t]+"},
              {"WS", "[ \\t\\f\\r\\n]+"},
              {"CR", "\\r"},
              {"LF", "\\n"},
              {"NEWLINE", "(\\r?\\n)+"},
              {"SH_COMMENT", "#[^\\n]*"}};

static void define(parser *p, by_str name, size_t at, uint32_t body) {
    uint32_t r = find(p, name, at);
    if (by_gr_bad(p->g)) return;
    if (p->c.rules[r].defined) {
        fail(p, at, BY_EFORMAT, "defined twice");
        return;
    }
    p->c.rules[r].body = body;
    p->c.rules[r].defined = true;
    p->c.rules[r].at = at;
}

static void import(parser *p) {
    skip(p, false);
    size_t at = p->at;
    by_str name = word(p);
    by_str shown = name;
    bool ok = by_str_starts(name, BY_STR("common."));
    if (ok) shown = name = by_str_skip(name, 7);
    skip(p, false);
    if (eat(p, "->")) {
        skip(p, false);
        shown = word(p);
    }
    by_gr_regex_opts o = {0};
    for (unsigned i = 0; ok && i < sizeof common / sizeof common[0]; i++)
        if (by_str_eqz(name, common[i].name)) {
            define(p, shown, at, by_gr_cfg_term(&p->c, by_gr_regex(p->g, by_str_z(common[i].regex), &o)));
            return;
        }
    fail(p, at, BY_EUNSUPPORTED, "only the terminals of common can be imported");
}

/* Attributes in brackets behind a name: those that do not change the language are accepted. */
static bool attributes(parser *p) {
    if (!eat(p, "[")) return true;
    size_t from = p->at;
    while (more(p) && peek(p) != ']')
        p->at++;
    by_str a = by_str_of(p->s.ptr + from, p->at - from);
    if (!eat(p, "]")) return fail(p, from, BY_EFORMAT, "[ without ]"), false;
    static const char *const bad[] = {"suffix", "stop", "max_tokens"};
    for (unsigned i = 0; i < 3; i++)
        if (memmem(a.ptr, a.len, bad[i], strlen(bad[i]))) {
            if (!p->g->opts.lenient)
                return fail(p, from, BY_EUNSUPPORTED, "attributes suffix, stop and max_tokens are not supported"),
                       false;
            by_gr_warn(p->g, "attribute [%.*s] is not enforced", BY_STR_ARG(a));
        }
    return true;
}

static void statement(parser *p) {
    size_t at = p->at;
    if (eat(p, "%ignore")) { /* read before the rules: see statements() */
        while (more(p) && peek(p) != '\n')
            p->at++;
        return;
    }
    if (eat(p, "%import")) {
        import(p);
        return;
    }
    if (eat(p, "%llguidance")) {
        skip(p, false);
        size_t end = peek(p) == '{' ? braces(p, p->at) : 0;
        if (!end)
            fail(p, at, BY_EFORMAT, "%llguidance expects options in braces");
        else
            p->at = end;
        by_gr_warn(p->g, "%%llguidance options are ignored");
        return;
    }
    if (peek(p) == '%') {
        fail(p, at, BY_EUNSUPPORTED, "unknown directive");
        return;
    }
    while (eat(p, "?") || eat(p, "!")) {
    }
    by_str name = word(p);
    if (!name.len) {
        fail(p, at, BY_EFORMAT, "a rule is expected");
        return;
    }
    if (!attributes(p)) return;
    skip(p, false);
    if (peek(p) == '.') { /* priority: has no effect on the language */
        uint32_t ignored;
        p->at++;
        count(p, &ignored);
        skip(p, false);
    }
    if (!eat(p, ":")) {
        fail(p, p->at, BY_EFORMAT, ": expected");
        return;
    }
    bool outer = p->in_terminal;
    uint32_t depth = p->depth;
    p->in_terminal = is_terminal_name(name);
    p->depth = 0;
    skip(p, false);
    uint32_t body = alternatives(p);
    p->in_terminal = outer;
    p->depth = depth;
    define(p, name, at, body);
    skip(p, false);
    if (!by_gr_bad(p->g) && more(p) && peek(p) != '\n') fail(p, p->at, BY_EFORMAT, "left-over text");
}

/* %ignore lines come first, wherever they stand: rules need to know whether there are any. */
static void ignores(parser *p) {
    size_t back = p->at;
    uint32_t any = UINT32_MAX;
    for (bool line = true; more(p) && !by_gr_bad(p->g); p->at++) {
        if (line && eat(p, "%ignore")) {
            skip(p, false);
            p->in_terminal = true;
            uint32_t n = alternatives(p);
            p->in_terminal = false;
            any = any == UINT32_MAX ? n : by_gr_cfg_alt(&p->c, any, n);
            if (!more(p)) break;
        }
        line = peek(p) == '\n' || (line && (peek(p) == ' ' || peek(p) == '\t'));
    }
    p->at = back;
    if (any == UINT32_MAX || by_gr_bad(p->g)) return;
    uint32_t r = by_gr_cfg_new_rule(&p->c);
    if (by_gr_bad(p->g)) return;
    uint32_t body = by_gr_cfg_rep(&p->c, any, 0, BY_GR_INF);
    p->c.rules[r].body = body;
    p->c.rules[r].defined = true;
    p->ignore = r;
}

static void statements(parser *p) {
    ignores(p);
    for (skip(p, true); more(p) && !by_gr_bad(p->g); skip(p, true))
        statement(p);
}

/* Terminals must be regular: none may reach itself. Depth-first with an explicit stack of (node, terminal). */
static bool terminals_regular(parser *p) {
    by_gr_cfg *c = &p->c;
    uint8_t *mark = by_alloc_zero(BY_MEM_GRAMMAR, c->n_rules + 1u); /* 1 = open, 2 = done */
    by_gr_vec st = {0};
    bool ok = mark != NULL;
    if (!ok) by_gr_fail(p->g, BY_ENOMEM, "grammar: out of memory");
    for (uint32_t r = 0; ok && r < c->n_rules && !by_gr_bad(p->g); r++) {
        if (!is_terminal_name(c->rules[r].name) || mark[r]) continue;
        by_gr_vec_push(p->g, &st, r << 1 | 1);
        by_gr_vec_push(p->g, &st, UINT32_MAX);
        while (st.n && ok && !by_gr_bad(p->g)) {
            uint32_t tag = st.v[st.n - 2], n = st.v[st.n - 1];
            if (n == UINT32_MAX) { /* a rule: enter, or leave it */
                uint32_t x = tag >> 1;
                if (mark[x] == 1) {
                    mark[x] = 2;
                    st.n -= 2;
                    continue;
                }
                mark[x] = 1;
                by_gr_vec_push(p->g, &st, 0);
                by_gr_vec_push(p->g, &st, c->rules[x].body);
                continue;
            }
            st.n -= 2;
            by_gr_cnode x = c->nodes[n];
            if (x.kind == BY_GR_C_RULE) {
                ok = mark[x.a] != 1;
                if (mark[x.a] == 0) {
                    by_gr_vec_push(p->g, &st, x.a << 1 | 1);
                    by_gr_vec_push(p->g, &st, UINT32_MAX);
                }
                if (!ok) by_gr_text_error(p->g, p->s, c->rules[x.a].at, BY_EFORMAT, "a terminal refers to itself");
            } else if (x.kind == BY_GR_C_SEQ || x.kind == BY_GR_C_ALT || x.kind == BY_GR_C_REP) {
                by_gr_vec_push(p->g, &st, 0);
                by_gr_vec_push(p->g, &st, x.a);
                if (x.kind != BY_GR_C_REP) {
                    by_gr_vec_push(p->g, &st, 0);
                    by_gr_vec_push(p->g, &st, x.b);
                }
            }
        }
        st.n = 0;
    }
    by_gr_vec_free(&st);
    by_free(mark);
    return ok && !by_gr_bad(p->g);
}

by_gr_term by_gr_compile_lark(by_gr *g, by_str text) {
    parser p = {.g = g, .s = text, .ignore = UINT32_MAX};
    by_gr_term t = BY_GR_NEVER;
    by_gr_cfg_init(&p.c, g);
    statements(&p);
    for (uint32_t i = 0; i < p.c.n_rules && !by_gr_bad(g); i++)
        if (!p.c.rules[i].defined)
            by_gr_text_error(g, text, p.c.rules[i].at, BY_EFORMAT, "%.*s is not defined",
                             BY_STR_ARG(p.c.rules[i].name));
    if (!by_gr_bad(g) && terminals_regular(&p)) {
        uint32_t r = by_gr_cfg_find(&p.c, BY_STR("start"), 0);
        if (!by_gr_bad(g) && !p.c.rules[r].defined) by_gr_text_error(g, text, 0, BY_EFORMAT, "there is no rule start");
        if (!by_gr_bad(g)) t = by_gr_cfg_finish(&p.c, r);
        if (!by_gr_bad(g) && t == BY_GR_NEVER) by_gr_text_error(g, text, 0, BY_EINVAL, "start matches nothing");
    }
    by_gr_cfg_free(&p.c);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}
