/* grammar_tag.c - structural tags: free text, tagged parts, and tokens named by id.
 *
 * Formats nest; each is translated with the list of strings that end it from outside (the end of the enclosing tag),
 * which free text below must not contain. Where a literal spells a control token it is that token. */
#include <stdlib.h>

#include "grammar/grammar_internal.h"

#define NEST_MAX 100u
#define LIST_MAX 2000u

typedef struct {
    by_gr *g;
    by_str ends[NEST_MAX + 1]; /* ends of the enclosing tags */
    uint32_t n_ends, depth, n_schemas;
} tags;

static by_gr_term format(tags *t, const by_json *f);

static by_gr_term bad(tags *t, const char *what) {
    return by_gr_fail(t->g, BY_EINVAL, "structural tag: %s", what);
}

size_t by_gr_control_at(by_gr *g, by_str s, uint32_t *id) {
    size_t best = 0;
    if (!s.len || ((uint8_t)s.ptr[0] < 0x80 && s.ptr[0] != '<')) return 0; /* how control tokens are written */
    for (uint32_t i = 0; i < by_grammar_vocab_size(g->vocab); i++) {
        if (!by_grammar_vocab_is_control(g->vocab, i)) continue;
        by_str b = by_grammar_vocab_bytes(g->vocab, i);
        if (b.len > best && by_str_starts(s, b)) best = b.len, *id = i;
    }
    return best;
}

by_gr_term by_gr_lit_tokens(by_gr *g, by_str s) {
    by_gr_term t = BY_GR_EPS;
    size_t from = 0;
    for (size_t i = 0; i < s.len && !by_gr_bad(g);) {
        uint32_t id;
        size_t len = by_gr_control_at(g, by_str_skip(s, i), &id);
        if (!len) {
            i++;
            continue;
        }
        t = by_gr_seq(g, t, by_gr_lit(g, by_str_of(s.ptr + from, i - from)));
        t = by_gr_seq(g, t, by_gr_tok_set(g, &id, 1, false));
        i += len;
        from = i;
    }
    return by_gr_seq(g, t, by_gr_lit(g, by_str_skip(s, from)));
}

/* A boolean member, `otherwise` where it is absent or null. */
static bool flag_or(tags *t, const by_json *f, const char *name, bool otherwise) {
    const by_json *v = by_json_get(f, name);
    if (!v || v->type == BY_JSON_NULL) return otherwise;
    if (v->type != BY_JSON_BOOL) by_gr_fail(t->g, BY_EINVAL, "structural tag: \"%s\" must be a boolean", name);
    return v->type == BY_JSON_BOOL && v->v.b;
}
static bool flag(tags *t, const by_json *f, const char *name) {
    return flag_or(t, f, name, false);
}

/* A count; false where it is absent or null. */
static bool limit(tags *t, const by_json *f, const char *name, uint32_t *out) {
    const by_json *v = by_json_get(f, name);
    int64_t n = 0;
    if (!v || v->type == BY_JSON_NULL) return false;
    if (!by_json_int_in(v, 0, INT32_MAX, &n)) by_gr_fail(t->g, BY_EINVAL, "structural tag: \"%s\" must be a count", name);
    *out = (uint32_t)n;
    return true;
}

static by_str text(tags *t, const by_json *f, const char *name) {
    const by_json *v = by_json_get(f, name);
    if (by_json_is(v, BY_JSON_STRING)) return v->v.s;
    by_gr_fail(t->g, BY_EINVAL, "structural tag: \"%s\" must be a string", name);
    return (by_str){0};
}

/* Strings of a list into out (appended). */
static bool strings(tags *t, const by_json *v, by_str *out, uint32_t *n, uint32_t max) {
    if (!v) return true;
    if (v->type != BY_JSON_ARRAY) return bad(t, "a list of strings is expected"), false;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->v.items[i].type != BY_JSON_STRING || *n == max) return bad(t, "a list of strings is expected"), false;
        out[(*n)++] = v->v.items[i].v.s;
    }
    return true;
}

/* Ids by number or by the token's spelling. */
static bool token_ids(tags *t, const by_json *v, by_gr_vec *out) {
    const by_grammar_vocab *vocab = t->g->vocab;
    uint32_t n = v && v->type == BY_JSON_ARRAY ? v->n : v ? 1 : 0;
    for (uint32_t i = 0; i < n; i++) {
        const by_json *x = v->type == BY_JSON_ARRAY ? &v->v.items[i] : v;
        int64_t id = -1;
        if (x->type == BY_JSON_STRING)
            for (uint32_t k = 0; k < by_grammar_vocab_size(vocab) && id < 0; k++)
                if (by_str_eq(by_grammar_vocab_bytes(vocab, k), x->v.s)) id = k;
        if (x->type != BY_JSON_STRING) by_json_int_in(x, 0, by_grammar_vocab_size(vocab) - 1, &id);
        if (id < 0) return bad(t, "unknown token"), false;
        if (!by_gr_vec_push(t->g, out, (uint32_t)id)) return false;
    }
    return true;
}

static by_gr_term tokens(tags *t, const by_json *ids, bool negate) {
    by_gr_vec v = {0};
    by_gr_term r = token_ids(t, ids, &v) ? by_gr_tok_set(t->g, v.v, v.n, negate) : BY_GR_NEVER;
    by_gr_vec_free(&v);
    return r;
}

/* ---- tags ---- */

/* begin and end are a string, or a token format. */
static by_gr_term edge(tags *t, const by_json *v) {
    if (!v) return BY_GR_EPS;
    if (v->type == BY_JSON_STRING) return by_gr_lit_tokens(t->g, v->v.s);
    return format(t, v);
}

/* Content and end of a tag; its end is not in the content's free text. */
static by_gr_term body(tags *t, const by_json *tag) {
    const by_json *content = by_json_get(tag, "content"), *end = by_json_get(tag, "end");
    uint32_t keep = t->n_ends, n = end && end->type == BY_JSON_ARRAY ? end->n : 1;
    by_gr_vec ends = {0};
    by_gr_term r = BY_GR_NEVER;
    for (uint32_t i = 0; i < n; i++) {
        const by_json *e = end && end->type == BY_JSON_ARRAY ? &end->v.items[i] : end;
        by_gr_vec_push(t->g, &ends, edge(t, e));
        if (by_json_is(e, BY_JSON_STRING) && e->v.s.len && t->n_ends < NEST_MAX) t->ends[t->n_ends++] = e->v.s;
    }
    if (!content || !end)
        bad(t, content ? "a tag needs end" : "a tag needs content");
    else
        r = by_gr_seq(t->g, format(t, content), by_gr_alt(t->g, ends.v, ends.n));
    t->n_ends = keep;
    by_gr_vec_free(&ends);
    return r;
}

static by_gr_term tag(tags *t, const by_json *f) {
    if (!by_json_get(f, "begin")) return bad(t, "a tag needs begin");
    return by_gr_seq(t->g, edge(t, by_json_get(f, "begin")), body(t, f));
}

static const by_json *tag_list(tags *t, const by_json *f) {
    const by_json *v = by_json_get(f, "tags");
    if (by_json_is(v, BY_JSON_ARRAY) && v->n && v->n <= LIST_MAX) return v;
    bad(t, "\"tags\" must be a list of tags");
    return NULL;
}

static by_gr_term any_tag(tags *t, const by_json *list) {
    by_gr_vec v = {0};
    for (uint32_t i = 0; i < list->n && !by_gr_bad(t->g); i++)
        by_gr_vec_push(t->g, &v, tag(t, &list->v.items[i]));
    by_gr_term r = by_gr_alt(t->g, v.v, v.n);
    by_gr_vec_free(&v);
    return r;
}

/* Excluded strings of free text: its own and the ends of the enclosing tags. */
static uint32_t excludes(tags *t, const by_json *f, by_str *out, uint32_t max) {
    uint32_t n = 0;
    strings(t, by_json_get(f, "excludes"), out, &n, max - NEST_MAX);
    for (uint32_t i = 0; i < t->n_ends; i++)
        out[n++] = t->ends[i];
    return n;
}

static by_gr_term any_text(tags *t, const by_json *f) {
    by_gr *g = t->g;
    by_str *ex = by_gr_alloc(g, LIST_MAX * sizeof *ex);
    uint32_t n = 0;
    if (!ex) return BY_GR_NEVER;
    uint32_t n_ex = excludes(t, f, ex, LIST_MAX);
    if (limit(t, f, "max_tokens", &n)) { /* counted by tokens: every ordinary token is one letter */
        uint32_t chars;
        if ((n_ex || limit(t, f, "max_chars", &chars)) && !g->opts.lenient)
            return by_gr_fail(g, BY_EUNSUPPORTED, "structural tag: max_tokens beside excluded strings or max_chars");
        by_gr_vec control = {0};
        for (uint32_t id = 0; id < by_grammar_vocab_size(g->vocab); id++)
            if (by_grammar_vocab_is_control(g->vocab, id)) by_gr_vec_push(g, &control, id);
        by_gr_term any = by_gr_tok_set(g, control.v, control.n, true);
        by_gr_vec_free(&control);
        return by_gr_rep(g, any, 0, n);
    }
    by_gr_term r = by_gr_free_text(g, ex, n_ex);
    return limit(t, f, "max_chars", &n) ? by_gr_and2(g, r, by_gr_rep(g, BY_GR_ANYCHAR, 0, n)) : r;
}

/* Each tag (or structure of the older form) must begin with some trigger: none else is ever reached. */
static bool all_triggered(tags *t, const by_json *list, const by_str *triggers, uint32_t n) {
    for (uint32_t i = 0; i < list->n && !by_gr_bad(t->g); i++) {
        const by_json *begin = by_json_get(&list->v.items[i], "begin");
        bool found = !by_json_is(begin, BY_JSON_STRING);
        for (uint32_t k = 0; k < n && !found; k++)
            found = by_str_starts(begin->v.s, triggers[k]);
        if (!found)
            by_gr_fail(t->g, BY_EINVAL, "structural tag: the tag \"%.*s\" begins with none of the triggers", BY_STR_ARG(begin->v.s));
        else if (!begin || begin->type != BY_JSON_STRING)
            bad(t, "a triggered tag needs a string to begin with");
    }
    return !by_gr_bad(t->g);
}

/* What follows trigger: the tags that begin with it, less the trigger itself. */
static by_gr_term triggered(tags *t, by_str trigger, const by_json *list) {
    by_gr_vec v = {0};
    for (uint32_t i = 0; i < list->n && !by_gr_bad(t->g); i++) {
        const by_json *begin = by_json_get(&list->v.items[i], "begin");
        if (!by_json_is(begin, BY_JSON_STRING) || !by_str_starts(begin->v.s, trigger)) continue;
        by_gr_term head = by_gr_lit_tokens(t->g, by_str_skip(begin->v.s, trigger.len));
        by_gr_vec_push(t->g, &v, by_gr_seq(t->g, head, body(t, &list->v.items[i])));
    }
    by_gr_term r = by_gr_alt(t->g, v.v, v.n);
    if (!v.n) bad(t, "a trigger that begins no tag");
    by_gr_vec_free(&v);
    return r;
}

static by_gr_term triggered_tags(tags *t, const by_json *f) {
    by_gr *g = t->g;
    const by_json *list = tag_list(t, f);
    by_str *tr = by_gr_alloc(g, LIST_MAX * sizeof *tr), *ex = by_gr_alloc(g, LIST_MAX * sizeof *ex);
    by_gr_term *then = by_gr_alloc(g, LIST_MAX * sizeof *then);
    uint32_t n = 0;
    bool once = flag(t, f, "stop_after_first");
    if (!list || !tr || !ex || !then || !strings(t, by_json_get(f, "triggers"), tr, &n, LIST_MAX)) return BY_GR_NEVER;
    if (n == 0) return bad(t, "\"triggers\" must be a list of strings");
    if (!all_triggered(t, list, tr, n)) return BY_GR_NEVER;
    if (flag(t, f, "at_least_one") && once) return any_tag(t, list);
    for (uint32_t i = 0; i < n; i++) {
        if (!tr[i].len) return bad(t, "an empty trigger");
        then[i] = triggered(t, tr[i], list);
    }
    uint32_t n_ex = excludes(t, f, ex, LIST_MAX);
    if (by_gr_bad(g)) return BY_GR_NEVER;
    by_gr_term r = by_gr_free_term(g, by_gr_free_new(g, tr, then, n, ex, n_ex, !once), true);
    return flag(t, f, "at_least_one") ? by_gr_seq(g, any_tag(t, list), r) : r;
}

/* Rules of a dispatch: [pattern, format] pairs. */
static const by_json *rule_list(tags *t, const by_json *f) {
    const by_json *v = by_json_get(f, "rules");
    bool ok = by_json_is(v, BY_JSON_ARRAY) && v->n && v->n <= LIST_MAX;
    for (uint32_t i = 0; ok && i < v->n; i++)
        ok = v->v.items[i].type == BY_JSON_ARRAY && v->v.items[i].n == 2;
    if (ok) return v;
    bad(t, "\"rules\" must be a list of pairs: pattern and format");
    return NULL;
}

static by_gr_term dispatch(tags *t, const by_json *f) {
    by_gr *g = t->g;
    const by_json *rules = rule_list(t, f);
    by_str *tr = by_gr_alloc(g, LIST_MAX * sizeof *tr), *ex = by_gr_alloc(g, LIST_MAX * sizeof *ex);
    by_gr_term *then = by_gr_alloc(g, LIST_MAX * sizeof *then);
    bool loop = flag_or(t, f, "loop", true);
    if (!rules || !tr || !ex || !then) return BY_GR_NEVER;
    for (uint32_t i = 0; i < rules->n && !by_gr_bad(g); i++) {
        const by_json *pair = rules->v.items[i].v.items;
        if (pair[0].type != BY_JSON_STRING || !pair[0].v.s.len) return bad(t, "a pattern of \"rules\" must be a string");
        tr[i] = pair[0].v.s;
        then[i] = format(t, &pair[1]);
    }
    uint32_t n_ex = excludes(t, f, ex, LIST_MAX);
    if (by_gr_bad(g)) return BY_GR_NEVER;
    return by_gr_free_term(g, by_gr_free_new(g, tr, then, rules->n, ex, n_ex, loop), true);
}

static by_gr_term separated(tags *t, const by_json *f) {
    by_gr *g = t->g;
    const by_json *list = tag_list(t, f);
    by_str sep = text(t, f, "separator");
    if (!list || by_gr_bad(g)) return BY_GR_NEVER;
    by_gr_term one = any_tag(t, list), r = one;
    if (!flag(t, f, "stop_after_first")) r = by_gr_seq(g, one, by_gr_star(g, by_gr_seq(g, by_gr_lit_tokens(g, sep), one)));
    return flag(t, f, "at_least_one") ? r : by_gr_opt(g, r);
}

/* Free tokens and, between them, parts that begin with one of ids (which are not free, nor are excluded ones). */
static by_gr_term among_tokens(tags *t, by_gr_vec *ids, const by_json *ex, by_gr_term one, bool loop, bool required) {
    by_gr *g = t->g;
    if (token_ids(t, ex, ids))
        for (uint32_t id = 0; id < by_grammar_vocab_size(g->vocab); id++)
            if (by_grammar_vocab_is_control(g->vocab, id)) by_gr_vec_push(g, ids, id);
    by_gr_term any = by_gr_bad(g) ? BY_GR_NEVER : by_gr_tok_set(g, ids->v, ids->n, true), free = by_gr_star(g, any);
    if (!loop) return by_gr_seq(g, free, required ? one : by_gr_opt(g, one));
    by_gr_term r = by_gr_star(g, by_gr_alt2(g, any, one));
    return required ? by_gr_seq(g, free, by_gr_seq(g, one, r)) : r;
}

/* begin of its tags: a token format, or a string that starts with one. */
static by_gr_term token_triggered(tags *t, const by_json *f) {
    const by_json *list = tag_list(t, f);
    by_gr_vec ids = {0};
    by_gr_term r = BY_GR_NEVER;
    if (list && token_ids(t, by_json_get(f, "trigger_tokens"), &ids))
        r = among_tokens(t, &ids, by_json_get(f, "exclude_tokens"), any_tag(t, list), !flag(t, f, "stop_after_first"),
                         flag(t, f, "at_least_one"));
    by_gr_vec_free(&ids);
    return r;
}

static by_gr_term token_dispatch(tags *t, const by_json *f) {
    const by_json *rules = rule_list(t, f);
    by_gr_vec ids = {0}, alts = {0};
    for (uint32_t i = 0; rules && i < rules->n && !by_gr_bad(t->g); i++) {
        const by_json *pair = rules->v.items[i].v.items;
        if (!token_ids(t, &pair[0], &ids)) break;
        by_gr_vec_push(t->g, &alts, by_gr_seq(t->g, tokens(t, &pair[0], false), format(t, &pair[1])));
    }
    by_gr_term r = by_gr_bad(t->g) ? BY_GR_NEVER
                                   : among_tokens(t, &ids, by_json_get(f, "exclude_tokens"), by_gr_alt(t->g, alts.v, alts.n),
                                                  flag_or(t, f, "loop", true), false);
    by_gr_vec_free(&ids);
    by_gr_vec_free(&alts);
    return r;
}

/* ---- formats ---- */

static by_gr_term elements(tags *t, const by_json *f, bool seq) {
    const by_json *v = by_json_get(f, "elements");
    by_gr_vec out = {0};
    if (!by_json_is(v, BY_JSON_ARRAY) || v->n > LIST_MAX) return bad(t, "\"elements\" must be a list of formats");
    for (uint32_t i = 0; i < v->n && !by_gr_bad(t->g); i++)
        by_gr_vec_push(t->g, &out, format(t, &v->v.items[i]));
    by_gr_term r = seq ? by_gr_seq_n(t->g, out.v, out.n) : by_gr_alt(t->g, out.v, out.n);
    by_gr_vec_free(&out);
    return by_gr_bad(t->g) ? BY_GR_NEVER : r;
}

/* What a schema says of its texts beside the schema. Order and whitespace are one for the whole grammar. */
static bool schema_extras(tags *t, const by_json *f) {
    by_gr *g = t->g;
    const by_json *ex = by_json_get(f, "excludes"), *order = by_json_get(f, "any_order");
    by_grammar_ws ws = g->opts.whitespace;
    uint32_t n;
    if (ex && ex->type != BY_JSON_NULL && !(ex->type == BY_JSON_ARRAY && ex->n == 0))
        return by_gr_fail(g, BY_EUNSUPPORTED, "structural tag: \"excludes\" of a json_schema"), false;
    if (order && order->type != BY_JSON_NULL && flag(t, f, "any_order") != g->opts.any_order && !by_gr_bad(g)) {
        if (t->n_schemas)
            by_gr_fail(g, BY_EUNSUPPORTED, "structural tag: \"any_order\" must be the same for all schemas");
        if (order->v.b) g->opts.any_order = true;
    }
    if (limit(t, f, "max_whitespace_cnt", &n) && ws != BY_GRAMMAR_WS_COMPACT && (ws != BY_GRAMMAR_WS_BOUNDED || n < 20))
        by_gr_fail(g, BY_EUNSUPPORTED, "structural tag: \"max_whitespace_cnt\" below 20; use the option \"whitespace\" of the request");
    t->n_schemas++;
    return !by_gr_bad(g);
}

/* "strict" and "lenient" are options of this schema alone. */
static by_gr_term schema(tags *t, const by_json *f) {
    by_gr *g = t->g;
    if (!schema_extras(t, f)) return BY_GR_NEVER;
    const by_json *s = by_json_get(f, "json_schema"), *style = by_json_get(f, "style");
    bool dsml = by_json_is(style, BY_JSON_STRING) && by_str_eqz(style->v.s, "deepseek_v4_1_xml");
    if (!s) s = by_json_get(f, "schema");
    if (!s) return bad(t, "json_schema needs a schema");
    if (by_json_is(style, BY_JSON_STRING) && !dsml && !by_str_eqz(style->v.s, "json"))
        return by_gr_fail(g, BY_EUNSUPPORTED, "structural tag: style %.*s", BY_STR_ARG(style->v.s));
    by_grammar_opts keep = g->opts;
    g->opts.strict |= flag(t, f, "strict");
    g->opts.lenient |= flag(t, f, "lenient");
    by_gr_term r = dsml ? by_gr_schema_dsml(g, s) : by_gr_schema_compile(g, s);
    g->opts = keep;
    return r;
}

static by_gr_term repeat(tags *t, const by_json *f, int64_t min, int64_t max) {
    const by_json *c = by_json_get(f, "content"), *lo = by_json_get(f, "min"), *hi = by_json_get(f, "max");
    if (!c) return bad(t, "a repeat needs content");
    if ((lo && !by_json_int_in(lo, 0, 100000, &min)) || (hi && !by_json_int_in(hi, -1, 100000, &max)) ||
        (max >= 0 && min > max))
        return bad(t, "counts of a repeat");
    return by_gr_rep(t->g, format(t, c), (uint32_t)min, max < 0 ? BY_GR_INF : (uint32_t)max);
}

static by_gr_term grammar(tags *t, const by_json *f) {
    by_gr *g = t->g;
    const by_json *syntax = by_json_get(f, "syntax");
    by_str source = text(t, f, "grammar");
    if (by_gr_bad(g)) return BY_GR_NEVER;
    if (by_json_is(syntax, BY_JSON_STRING) && by_str_eqz(syntax->v.s, "lark")) return by_gr_compile_lark(g, source);
    if (!syntax || syntax->type == BY_JSON_NULL || (syntax->type == BY_JSON_STRING && by_str_eqz(syntax->v.s, "ebnf")))
        return by_gr_compile_ebnf(g, source, (by_str){0});
    return bad(t, "\"syntax\" of a grammar must be ebnf or lark");
}

static by_gr_term any_tokens(tags *t, const by_json *f) {
    uint32_t n = BY_GR_INF;
    by_gr_term one = tokens(t, by_json_get(f, "exclude_tokens"), true);
    limit(t, f, "max_tokens", &n);
    return by_gr_rep(t->g, one, 0, n);
}

static by_gr_term one(tags *t, const by_json *f) {
    by_gr *g = t->g;
    by_gr_regex_opts rx = {0};
    by_str k = text(t, f, "type");
    if (by_str_eqz(k, "const_string")) return by_gr_lit_tokens(g, text(t, f, "value"));
    if (by_str_eqz(k, "json_schema")) return schema(t, f);
    if (by_str_eqz(k, "regex")) return by_gr_regex(g, text(t, f, "pattern"), &rx);
    if (by_str_eqz(k, "grammar")) return grammar(t, f);
    if (by_str_eqz(k, "any_text")) return any_text(t, f);
    if (by_str_eqz(k, "sequence")) return elements(t, f, true);
    if (by_str_eqz(k, "or")) return elements(t, f, false);
    if (by_str_eqz(k, "optional")) return repeat(t, f, 0, 1);
    if (by_str_eqz(k, "plus")) return repeat(t, f, 1, -1);
    if (by_str_eqz(k, "star")) return repeat(t, f, 0, -1);
    if (by_str_eqz(k, "repeat")) return repeat(t, f, 0, -1);
    if (by_str_eqz(k, "tag")) return tag(t, f);
    if (by_str_eqz(k, "structural_tag") && by_json_get(f, "format")) return format(t, by_json_get(f, "format"));
    if (by_str_eqz(k, "triggered_tags")) return triggered_tags(t, f);
    if (by_str_eqz(k, "tags_with_separator")) return separated(t, f);
    if (by_str_eqz(k, "token")) return tokens(t, by_json_get(f, "token"), false);
    if (by_str_eqz(k, "exclude_token"))
        return tokens(t, by_json_get(f, "exclude_tokens") ? by_json_get(f, "exclude_tokens") : by_json_get(f, "token"),
                      true);
    if (by_str_eqz(k, "any_tokens")) return any_tokens(t, f);
    if (by_str_eqz(k, "token_triggered_tags")) return token_triggered(t, f);
    if (by_str_eqz(k, "dispatch")) return dispatch(t, f);
    if (by_str_eqz(k, "token_dispatch")) return token_dispatch(t, f);
    return by_gr_fail(g, BY_EUNSUPPORTED, "structural tag: unknown format %.*s", BY_STR_ARG(k));
}

static by_gr_term format(tags *t, const by_json *f) {
    if (by_gr_bad(t->g)) return BY_GR_NEVER;
    if (f->type != BY_JSON_OBJECT) return bad(t, "a format is an object");
    if (++t->depth > NEST_MAX)
        return by_gr_fail(t->g, BY_ELIMIT, "structural tag: formats nest deeper than %u", NEST_MAX);
    by_gr_term r = one(t, f);
    t->depth--;
    return by_gr_bad(t->g) ? BY_GR_NEVER : r;
}

/* The schema of a structure: an object, or its text. */
static const by_json *structure_schema(tags *t, const by_json *structure) {
    const by_json *v = by_json_get(structure, "schema");
    by_err err;
    if (!by_json_is(v, BY_JSON_STRING)) return v ? v : (bad(t, "a structure needs a schema"), NULL);
    by_json *parsed = by_gr_alloc(t->g, sizeof *parsed);
    if (!parsed) return NULL;
    by_status s = by_json_parse(parsed, &t->g->arena, v->v.s, NULL, &err);
    if (s < 0) return by_gr_fail(t->g, s, "structural tag: \"schema\": %s", err.msg), NULL;
    return parsed;
}

/* {structures: [{begin, schema, end}], triggers: [...]}, the older form. */
static by_gr_term old_form(tags *t, const by_json *v) {
    by_gr *g = t->g;
    const by_json *list = by_json_get(v, "structures");
    by_str *tr = by_gr_alloc(g, LIST_MAX * sizeof *tr);
    by_gr_term *then = by_gr_alloc(g, LIST_MAX * sizeof *then);
    uint32_t n = 0;
    if (!tr || !then || !by_json_is(list, BY_JSON_ARRAY)) return bad(t, "\"structures\" must be a list");
    if (!strings(t, by_json_get(v, "triggers"), tr, &n, LIST_MAX)) return BY_GR_NEVER;
    if (n == 0) return bad(t, "\"triggers\" must be a list of strings");
    if (!all_triggered(t, list, tr, n)) return BY_GR_NEVER;
    for (uint32_t i = 0; i < n && !by_gr_bad(g); i++) {
        by_gr_vec alts = {0};
        for (uint32_t k = 0; k < list->n && !by_gr_bad(g); k++) {
            const by_json *s = &list->v.items[k];
            by_str begin = text(t, s, "begin"), end = text(t, s, "end");
            if (!tr[i].len || !by_str_starts(begin, tr[i])) continue;
            const by_json *sch = structure_schema(t, s);
            if (!sch) break;
            by_gr_term p[3] = {by_gr_lit_tokens(g, by_str_skip(begin, tr[i].len)), by_gr_schema_compile(g, sch),
                               by_gr_lit_tokens(g, end)};
            by_gr_vec_push(g, &alts, by_gr_seq_n(g, p, 3));
        }
        then[i] = by_gr_alt(g, alts.v, alts.n);
        if (!alts.n) bad(t, "a trigger that begins no structure");
        by_gr_vec_free(&alts);
    }
    return by_gr_bad(g) ? BY_GR_NEVER : by_gr_free_term(g, by_gr_free_new(g, tr, then, n, NULL, 0, true), true);
}

by_gr_term by_gr_compile_tag(by_gr *g, const by_json *v) {
    tags t = {.g = g};
    if (by_json_get(v, "structures")) return old_form(&t, v);
    const by_json *f = by_json_get(v, "format");
    return format(&t, f ? f : v);
}
