/* grammar_schema.h - a JSON schema on its way to a language.
 *
 * Schemas are expressions (by_gr_expr, hash-consed): a place in the document, a constant, or and/or/not of expressions.
 * The normal form of an expression says, for each JSON type, which values it takes: null and the booleans as bits,
 * numbers and strings as regular languages, objects and arrays as a list of alternatives, each a conjunction of
 * conditions. All applicators work on normal forms; the schemas of members and items stay expressions, so recursion is
 * unfolded only as far as different conjunctions occur. */
#ifndef BY_GRAMMAR_SCHEMA_H
#define BY_GRAMMAR_SCHEMA_H

#include "grammar/grammar_internal.h"

typedef uint32_t by_gr_expr;
enum { BY_GR_X_TRUE = 0, BY_GR_X_FALSE = 1 };
typedef enum {
    BY_GR_XK_TRUE,
    BY_GR_XK_FALSE,
    BY_GR_XK_NODE,
    BY_GR_XK_CONST,
    BY_GR_XK_AND,
    BY_GR_XK_OR,
    BY_GR_XK_NOT
} by_gr_xkind;

/* A condition on members: key by key, by pattern, and for all other keys. */
typedef struct by_gr_pattern {
    by_gr_term keys;
    by_gr_expr val;
} by_gr_pattern;
typedef struct by_gr_scope {
    uint32_t n, n_pat;
    by_str *keys;
    by_gr_expr *vals;
    by_gr_pattern *pats;
    by_gr_expr rest;
    bool has_rest; /* the rest counts as evaluated */
    bool ev;       /* takes part in unevaluatedProperties */
    bool late;     /* a condition speaks of these keys: that gives them no place in the order */
} by_gr_scope;

typedef struct by_gr_exist { /* at least one member with such a key and value */
    by_gr_term keys;
    by_gr_expr val;
} by_gr_exist;

typedef struct by_gr_orec {
    by_gr_scope **scopes;
    by_str *req;
    by_gr_exist *exist;
    uint32_t n_scopes, n_req, n_exist;
    by_gr_term names; /* language of the keys */
    uint32_t min, max;
    uint32_t def; /* 1 + object definition, once built */
} by_gr_orec;

typedef struct by_gr_ascope {
    uint32_t n;
    by_gr_expr *prefix;
    by_gr_expr rest;
    bool has_rest, ev;
} by_gr_ascope;

typedef struct by_gr_contains {
    by_gr_expr val;
    uint32_t min, max, from; /* items before index from do not count */
    bool ev;
} by_gr_contains;

typedef struct by_gr_arec {
    by_gr_ascope **scopes;
    by_gr_contains *contains;
    uint32_t n_scopes, n_contains;
    uint32_t min, max;
    bool unique;
    uint32_t def;
} by_gr_arec;

/* str: texts that may be spelled with any escapes; lit: texts spelled plainly (enum, const).
 * num: texts that are offered; plain: all texts without exponent that satisfy it (for complements). */
typedef struct by_gr_norm {
    bool null;
    uint8_t bools; /* bit 0: false, bit 1: true */
    by_gr_term str, lit, num, plain;
    by_gr_orec **obj;
    by_gr_arec **arr;
    uint32_t n_obj, n_arr;
    bool narrow;             /* some objects or arrays were left out: */
    struct by_gr_norm *wide; /* holds them too, and may hold more; NULL: not known. It is not narrow itself */
} by_gr_norm;

typedef struct by_gr_xnode {
    uint8_t kind, busy;
    bool prod, reached;
    const by_json *json;
    uint32_t base;  /* resource that references are relative to */
    uint32_t scope; /* what its dynamic references lead to, see by_gr_schema_enter */
    by_gr_expr *list;
    uint32_t n;
    by_gr_norm *norm;
    uint32_t rule;     /* 1 + rule */
    uint32_t next;     /* hash chain, 1 + expr */
    uint64_t written;  /* places: by_gr_schema_hash */
    uint32_t alike;    /* hash chain of small schemas, 1 + expr */
    by_gr_expr parent; /* for error paths: where this place was first reached from */
    const char *kw;
    by_str key;
} by_gr_xnode;

typedef struct by_gr_resource {
    by_str uri;
    const by_json *root;
} by_gr_resource;
typedef struct by_gr_anchor {
    by_str name;
    uint32_t base;
    const by_json *json;
    bool dynamic;
} by_gr_anchor;

#define BY_GR_X_BUCKETS 1024u
struct by_gr_schema {
    const by_json *root;
    by_gr_xnode *x;
    uint32_t n, cap;
    uint32_t bucket[BY_GR_X_BUCKETS];
    uint32_t alike[BY_GR_X_BUCKETS]; /* places by what is written there */
    by_gr_resource *res;
    uint32_t n_res, cap_res;
    by_gr_anchor *anchors;
    uint32_t n_anchors, cap_anchors;
    struct {
        const by_json *json;
        uint32_t base;
    } * bases; /* places with an $id of their own */
    uint32_t n_bases, cap_bases;
    struct {
        uint32_t outer, anchor, n; /* 0 is the empty scope, i is entry i - 1; one more anchor than outer, n with it */
        uint64_t key;              /* of the anchors in any order */
    } * scopes;
    uint32_t n_scopes, cap_scopes;
    bool dynamic; /* what a $dynamicRef means may depend on the scope */
    bool track; /* some unevaluated keyword: alternatives keep apart what they evaluate */
    bool soft;  /* inside an emptiness question: cycles answer "not known" */
    bool hit_busy;
    uint32_t depth;
    by_gr_norm *all; /* norm of true */
    by_arena json_arena;
    by_buf text;
};

/* grammar_schema.c */
by_gr_expr by_gr_x_node(by_gr *g, const by_json *json, uint32_t base, by_gr_expr parent, const char *kw, by_str key);
by_gr_expr by_gr_x_const(by_gr *g, const by_json *json);
by_gr_expr by_gr_x_and(by_gr *g, const by_gr_expr *v, uint32_t n);
by_gr_expr by_gr_x_or(by_gr *g, const by_gr_expr *v, uint32_t n);
by_gr_expr by_gr_x_not(by_gr *g, by_gr_expr e);
/* Sets the error (or, lenient, a warning) for a keyword of a place. Returns false. */
bool by_gr_x_unsupported(by_gr *g, by_gr_expr e, const char *kw, const char *why);
bool by_gr_x_error(by_gr *g, by_gr_expr e, by_status code, const char *kw, const char *why);
void by_gr_x_path(by_gr *g, by_gr_expr e, const char *kw, char *out, size_t size);

/* grammar_schema_same.c: hash of a small schema without its annotations; 0 for one that stays apart. */
uint64_t by_gr_schema_hash(const by_json *v);
bool by_gr_schema_same(const by_json *a, const by_json *b); /* of equal hash */

/* grammar_schema_ref.c */
bool by_gr_schema_index(by_gr *g);
uint32_t by_gr_schema_base(by_gr *g, const by_json *node, uint32_t base);
/* The dynamic scope behind one more resource; always 0 where no reference depends on it. */
uint32_t by_gr_schema_enter(by_gr *g, uint32_t scope, uint32_t base);
/* Place that ref (relative to base) names; NULL with the error set. */
const by_json *by_gr_schema_resolve(by_gr *g, by_gr_expr at, by_str ref, bool dynamic, uint32_t *base);

/* grammar_schema_norm.c: algebra. */
by_gr_norm *by_gr_norm_of(by_gr *g, by_gr_expr e); /* NULL on error, or when not known (soft) */
by_gr_norm *by_gr_norm_true(by_gr *g);
by_gr_norm *by_gr_norm_new(by_gr *g);
by_gr_norm *by_gr_norm_and(by_gr *g, by_gr_norm *a, by_gr_norm *b);
by_gr_norm *by_gr_norm_or(by_gr *g, by_gr_norm *a, by_gr_norm *b);
by_gr_norm *by_gr_norm_not(by_gr *g, by_gr_expr at, by_gr_norm *a);
by_gr_norm *by_gr_norm_const(by_gr *g, const by_json *v);
by_gr_norm *by_gr_norm_enum(by_gr *g, const by_json *list);
bool by_gr_norm_empty(const by_gr_norm *n);
by_gr_norm *by_gr_norm_wide(by_gr_norm *n); /* all values at least; NULL when not known */
bool by_gr_expr_empty(by_gr *g, by_gr_expr e);
by_gr_term by_gr_number_equal(by_gr *g, const by_gr_decimal *d);
/* Value expression of a key: and of what every scope says. */
by_gr_expr by_gr_orec_value(by_gr *g, const by_gr_orec *r, by_str key);
by_gr_expr by_gr_arec_item(by_gr *g, const by_gr_arec *r, uint32_t i);
/* Conjunctions of alternatives: NULL where they cannot hold together. Does a say all that b says? */
by_gr_orec *by_gr_orec_and(by_gr *g, by_gr_orec *a, by_gr_orec *b);
by_gr_arec *by_gr_arec_and(by_gr *g, by_gr_arec *a, by_gr_arec *b);
bool by_gr_orec_within(const by_gr_orec *a, const by_gr_orec *b);

#define BY_GR_ALTERNATIVES_MAX 600u /* object or array alternatives of one normal form */
typedef struct by_gr_rec_list {
    void **v;
    uint32_t n, cap;
} by_gr_rec_list;

/* Alternatives of "not r". With `from` they are to be joined with it, and may leave out what it says. Narrow leaves out alternatives: 1 those
 * that speak of keys from does not know, 2 those of keys that it does not require; cut tells whether any was left out. Out is freed by
 * the caller. */
typedef struct by_gr_minus {
    const by_gr_orec *from;
    unsigned narrow;
    bool cut;
    by_gr_rec_list out;
} by_gr_minus;
bool by_gr_orec_not(by_gr *g, by_gr_minus *o, const by_gr_orec *r);
bool by_gr_arec_not(by_gr *g, by_gr_minus *o, const by_gr_arec *r); /* leaves out "two equal items" */

/* grammar_schema_one.c: branches of which exactly one must hold. What stands beside them holds in any case, so that the branches
 * need to exclude each other only there. */
typedef struct by_gr_one_of {
    by_gr_expr at;
    by_gr_norm **v;
    uint32_t n;
    by_gr_norm *beside;
    by_gr_norm **wide; /* set here: what each branch holds at most */
} by_gr_one_of;
by_gr_norm *by_gr_norm_one_of(by_gr *g, by_gr_one_of *o);

/* grammar_schema_keywords.c: the normal form of one place. */
by_gr_norm *by_gr_norm_node(by_gr *g, by_gr_expr e);

/* grammar_object.c, grammar_array.c: definitions of the machines. 1 + index, or 0 on error. */
uint32_t by_gr_objdef_new(by_gr *g, by_gr_orec *r);
uint32_t by_gr_arrdef_new(by_gr *g, by_gr_arec *r);
typedef bool by_gr_expr_fn(by_gr *g, by_gr_expr e, void *user);
/* Calls fn for every expression that the definition refers to. */
bool by_gr_objdef_each(by_gr *g, uint32_t def, by_gr_expr_fn *fn, void *user);
bool by_gr_arrdef_each(by_gr *g, uint32_t def, by_gr_expr_fn *fn, void *user);
/* Is there a finite value, given the productive expressions so far? */
bool by_gr_objdef_productive(by_gr *g, uint32_t def);
bool by_gr_arrdef_productive(by_gr *g, uint32_t def);
/* Fixes the definition once productivity is settled. */
void by_gr_objdef_finish(by_gr *g, uint32_t def);
void by_gr_arrdef_finish(by_gr *g, uint32_t def);
by_gr_term by_gr_obj_start(by_gr *g, uint32_t def);
by_gr_term by_gr_arr_start(by_gr *g, uint32_t def);

/* The members as DSML parameters joined by line ends. */
by_gr_term by_gr_objdef_dsml(by_gr *g, uint32_t def);

/* grammar_schema_build.c */
by_gr_term by_gr_expr_term(by_gr *g, by_gr_expr e); /* the value's language */
by_gr_term by_gr_norm_term(by_gr *g, const by_gr_norm *n);
unsigned by_gr_string_style(const by_gr *g, by_gr_term text);
static inline bool by_gr_expr_prod(const by_gr *g, by_gr_expr e) {
    return g->schema->x[e].prod;
}

#endif
