/* grammar_options.c - see grammar_options.h. */
#include "grammar/grammar_options.h"

#include "json/json_write.h"

static by_status whitespace(by_grammar_opts *out, const by_json *v, by_err *err) {
    static const struct {
        const char *name;
        by_grammar_ws ws;
    } names[] = {{"any", BY_GRAMMAR_WS_ANY}, {"bounded", BY_GRAMMAR_WS_BOUNDED}, {"compact", BY_GRAMMAR_WS_COMPACT},
                 {"spaced", BY_GRAMMAR_WS_SPACED}};
    for (unsigned i = 0; i < 4 && v->type == BY_JSON_STRING; i++)
        if (by_str_eqz(v->v.s, names[i].name)) return out->whitespace = names[i].ws, BY_OK;
    const by_json *pattern = by_json_get(v, "pattern");
    if (!by_json_is(pattern, BY_JSON_STRING))
        return BY_FAIL(err, BY_EINVAL, "options.whitespace: any, bounded, compact, spaced or {\"pattern\": regex} is expected");
    out->whitespace = BY_GRAMMAR_WS_PATTERN;
    out->ws_pattern = pattern->v.s;
    return BY_OK;
}

by_status by_grammar_options_read(by_grammar_opts *out, const by_json *v, by_err *err) {
    struct {
        const char *name;
        bool *to;
    } flags[] = {{"any_order", &out->any_order},
                 {"strict", &out->strict},
                 {"lenient", &out->lenient},
                 {"integer_dot_zero", &out->integer_dot_zero}};
    for (uint32_t i = 0; v && v->type == BY_JSON_OBJECT && i < v->n; i++) {
        by_str key = v->v.members[i].key;
        const by_json *x = &v->v.members[i].value;
        bool known = false;
        for (unsigned k = 0; k < 4; k++)
            if (by_str_eqz(key, flags[k].name) && x->type == BY_JSON_BOOL) *flags[k].to = x->v.b, known = true;
        if (by_str_eqz(key, "whitespace")) {
            BY_TRY(whitespace(out, x, err));
            known = true;
        }
        if (by_str_eqz(key, "one_of") && x->type == BY_JSON_STRING)
            out->one_of_any = by_str_eqz(x->v.s, "any"), known = true;
        if (by_str_eqz(key, "root") && x->type == BY_JSON_STRING) out->root = x->v.s, known = true;
        if (by_str_eqz(key, "timeout_us") && x->type == BY_JSON_INT) out->timeout_us = x->v.i, known = true;
        if (!known) return BY_FAIL(err, BY_EINVAL, "options.%.*s: unknown, or of the wrong type", BY_STR_ARG(key));
    }
    return BY_OK;
}

by_status by_grammar_options_parse(by_grammar_opts *out, by_arena *arena, by_str text, by_err *err) {
    by_json v;
    if (text.len == 0) return BY_OK;
    BY_TRY(by_json_parse(&v, arena, text, NULL, err));
    return by_grammar_options_read(out, &v, err);
}

void by_grammar_write_json(by_buf *out, const by_json *v) {
    switch (v->type) {
    case BY_JSON_NULL: by_buf_push_z(out, "null"); break;
    case BY_JSON_BOOL: by_buf_push_z(out, v->v.b ? "true" : "false"); break;
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE: by_buf_push_str(out, v->raw); break;
    case BY_JSON_STRING: by_json_write_string(out, v->v.s); break;
    case BY_JSON_ARRAY:
        for (uint32_t i = 0; i < v->n; i++) {
            by_buf_push_byte(out, i ? ',' : '[');
            by_grammar_write_json(out, &v->v.items[i]);
        }
        by_buf_push_z(out, v->n ? "]" : "[]");
        break;
    case BY_JSON_OBJECT:
        for (uint32_t i = 0; i < v->n; i++) {
            by_buf_push_byte(out, i ? ',' : '{');
            by_json_write_string(out, v->v.members[i].key);
            by_buf_push_byte(out, ':');
            by_grammar_write_json(out, &v->v.members[i].value);
        }
        by_buf_push_z(out, v->n ? "}" : "{}");
        break;
    }
}
