/* grammar_schema_build.c - from normal forms to terms. */
#include "grammar/grammar_schema.h"

by_gr_term by_gr_expr_term(by_gr *g, by_gr_expr e) {
    if (by_gr_bad(g) || !by_gr_expr_prod(g, e)) return BY_GR_NEVER;
    if (!g->schema->x[e].rule) {
        uint32_t r = by_gr_rule_new(g);
        if (by_gr_bad(g)) return BY_GR_NEVER;
        g->rules[r].expr = e + 1;
        g->schema->x[e].rule = r + 1;
    }
    return by_gr_rule_term(g, g->schema->x[e].rule - 1);
}

by_gr_term by_gr_schema_rule_body(by_gr *g, uint32_t expr) {
    const by_gr_norm *n = g->schema->x[expr].norm;
    if (!n) return by_gr_fail(g, BY_EINTERNAL, "schema: an expression was not settled");
    return by_gr_norm_term(g, n);
}

/* A string without a pattern may spell any character as an escape; one with a pattern or format only those that need
 * it: models do not write the others, and every offered escape is a chance to leave the pattern's path. */
static bool only_lengths(const by_gr *g, by_gr_term t, unsigned depth) {
    by_gr_node n = g->nodes[t];
    if (t == BY_GR_ANYTEXT || t == BY_GR_ANYCHAR || t == BY_GR_EPS || n.kind == BY_GR_K_EXCEPT) return true;
    if (depth > 8) return false;
    if (n.kind == BY_GR_K_REP || n.kind == BY_GR_K_NOT) return only_lengths(g, n.a, depth + 1);
    if (n.kind == BY_GR_K_SEQ) return only_lengths(g, n.a, depth + 1) && only_lengths(g, n.b, depth + 1);
    if (n.kind != BY_GR_K_ALT && n.kind != BY_GR_K_AND) return false;
    for (uint32_t i = 0; i < n.x; i++)
        if (!only_lengths(g, g->lists.v[n.a + i], depth + 1)) return false;
    return true;
}

unsigned by_gr_string_style(const by_gr *g, by_gr_term text) {
    return only_lengths(g, text, 0) ? BY_GR_STYLE_ANY : BY_GR_STYLE_PLAIN;
}

by_gr_term by_gr_norm_term(by_gr *g, const by_gr_norm *n) {
    by_gr_vec v = {0};
    by_gr_term quote = by_gr_lit(g, BY_STR("\""));
    if (n->null) by_gr_vec_push(g, &v, by_gr_lit(g, BY_STR("null")));
    if (n->bools & 1) by_gr_vec_push(g, &v, by_gr_lit(g, BY_STR("false")));
    if (n->bools & 2) by_gr_vec_push(g, &v, by_gr_lit(g, BY_STR("true")));
    by_gr_vec_push(g, &v, by_gr_group(g, n->num));
    by_gr_vec_push(g, &v, by_gr_seq(g, quote, by_gr_jstr(g, n->str, by_gr_string_style(g, n->str))));
    by_gr_vec_push(g, &v, by_gr_seq(g, quote, by_gr_jstr(g, n->lit, BY_GR_STYLE_PLAIN)));
    for (uint32_t i = 0; i < n->n_obj && !by_gr_bad(g); i++)
        if (by_gr_objdef_productive(g, n->obj[i]->def - 1))
            by_gr_vec_push(g, &v, by_gr_obj_start(g, n->obj[i]->def - 1));
    for (uint32_t i = 0; i < n->n_arr && !by_gr_bad(g); i++)
        if (by_gr_arrdef_productive(g, n->arr[i]->def - 1))
            by_gr_vec_push(g, &v, by_gr_arr_start(g, n->arr[i]->def - 1));
    by_gr_term t = by_gr_alt(g, v.v, v.n);
    by_gr_vec_free(&v);
    return by_gr_bad(g) ? BY_GR_NEVER : t;
}
