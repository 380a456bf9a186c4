/* grammar_few.c - the values of an expression, listed where they are few.
 *
 * Lists of distinct items need to know: with few values left, what comes now may be needed later. Lists are made once per expression and
 * only on demand; an expression of unbounded strings or numbers is known at once to have many values. */
#include "grammar/grammar_schema.h"

#include "json/json_write.h"

#define TEXT_MAX 200u /* longer words are taken for signs of a loop */
#define RAW_MAX  4096u

bool by_gr_gather_emit(by_gr *g, by_gr_gather *o) {
    by_arena a;
    by_json v;
    by_buf canon = {0};
    bool ok = false;
    by_arena_init(&a, BY_MEM_GRAMMAR);
    if (o->text.len <= RAW_MAX && by_gr_value_parse(g, by_buf_str(&o->text), &a, &v, &canon)) {
        uint32_t id = by_gr_value_id(g, by_buf_str(&canon)), i = 0;
        while (i < o->few.n && o->few.ids[i] != id)
            i++;
        ok = i < BY_GR_FEW_MAX && !by_gr_bad(g);
        if (ok && i == o->few.n) {
            bool many = v.type == BY_JSON_ARRAY || v.type == BY_JSON_OBJECT;
            o->few.ids[i] = id;
            o->few.texts[i] = many ? by_gr_value_texts(g, &v) : BY_GR_NEVER;
            o->few.raw[i] = by_arena_dup(&g->arena, by_buf_str(&o->text));
            ok = o->few.raw[i].ptr != NULL;
            o->few.n++;
        }
    }
    by_buf_deinit(&canon);
    by_arena_deinit(&a);
    return ok;
}

/* ---- words of a regular language ---- */

typedef bool emit_word(by_gr *g, by_gr_gather *o, by_str word);

typedef struct {
    by_gr_gather *o;
    emit_word *emit;
    char word[TEXT_MAX];
} words;

static bool each_word(by_gr *g, words *w, by_gr_term t, uint32_t n) {
    if (by_gr_nullable(g, t) && !w->emit(g, w->o, by_str_of(w->word, n))) return false;
    if (n == TEXT_MAX) return false;
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n && !by_gr_bad(g); i++)
        for (unsigned b = row->r[i].lo; b <= row->r[i].hi; b++) {
            w->word[n] = (char)b;
            if (!each_word(g, w, row->r[i].to, n + 1)) return false;
        }
    return !by_gr_bad(g);
}

static bool emit_number(by_gr *g, by_gr_gather *o, by_str word) {
    by_buf_clear(&o->text);
    return by_buf_push_str(&o->text, word) && by_gr_gather_emit(g, o);
}

static bool emit_string(by_gr *g, by_gr_gather *o, by_str word) {
    by_buf_clear(&o->text);
    by_json_write_string(&o->text, word);
    return !o->text.failed && by_gr_gather_emit(g, o);
}

/* A number has endless spellings: those that end in no zero, and those with an exponent, which are few or many. */
static bool numbers(by_gr *g, by_gr_gather *o, by_gr_term num) {
    const by_gr_regex_opts whole = {0};
    words w = {.o = o, .emit = emit_number};
    if (num == BY_GR_NEVER) return true;
    by_gr_term plain = by_gr_regex(g, BY_STR("-?[0-9]+(\\.[0-9]*[1-9])?"), &whole);
    by_gr_term exponent = by_gr_regex(g, BY_STR("[-0-9.]+[eE].*"), &whole);
    return each_word(g, &w, by_gr_and2(g, num, plain), 0) && each_word(g, &w, by_gr_and2(g, num, exponent), 0);
}

/* ---- expressions ---- */

static bool constant(by_gr *g, by_gr_gather *o, const char *text) {
    by_buf_clear(&o->text);
    return by_buf_push_z(&o->text, text) && by_gr_gather_emit(g, o);
}

static bool gather(by_gr *g, by_gr_gather *o, const by_gr_norm *n) {
    words w = {.o = o, .emit = emit_string};
    const by_gr_norm *all = by_gr_norm_true(g);
    if (!all || n->num == all->num || n->str == BY_GR_ANYTEXT) return false;
    if (n->null && !constant(g, o, "null")) return false;
    if (n->bools & 1 && !constant(g, o, "false")) return false;
    if (n->bools & 2 && !constant(g, o, "true")) return false;
    if (!each_word(g, &w, n->str, 0) || !each_word(g, &w, n->lit, 0) || !numbers(g, o, n->num)) return false;
    for (uint32_t i = 0; i < n->n_obj; i++)
        if (by_gr_objdef_productive(g, n->obj[i]->def - 1) && !by_gr_objdef_few(g, n->obj[i]->def - 1, o)) return false;
    for (uint32_t i = 0; i < n->n_arr; i++)
        if (by_gr_arrdef_productive(g, n->arr[i]->def - 1) && !by_gr_arrdef_few(g, n->arr[i]->def - 1, o)) return false;
    return true;
}

const by_gr_few *by_gr_expr_few(by_gr *g, by_gr_expr e) {
    by_gr_xnode *x = &g->schema->x[e];
    if (x->few_known) return x->few; /* NULL while it is being found out: recursion has many values */
    if (!x->norm || !x->prod || by_gr_bad(g)) return NULL;
    const by_gr_norm *norm = x->norm;
    x->few_known = 1;
    by_gr_gather o = {.few = {.ids = by_gr_alloc(g, BY_GR_FEW_MAX * sizeof *o.few.ids),
                              .texts = by_gr_alloc(g, BY_GR_FEW_MAX * sizeof *o.few.texts),
                              .raw = by_gr_alloc(g, BY_GR_FEW_MAX * sizeof *o.few.raw)}};
    by_gr_few *few = by_gr_alloc(g, sizeof *few);
    bool ok = few && o.few.ids && o.few.texts && o.few.raw && gather(g, &o, norm);
    if (ok) *few = o.few;
    by_buf_deinit(&o.text);
    x = &g->schema->x[e];
    x->few = ok && !by_gr_bad(g) ? few : NULL;
    x->few_known = by_gr_bad(g) ? 0 : 2;
    return x->few;
}
