/* grammar_cfg.h - context-free grammars on their way to terms, shared by the EBNF and Lark front ends.
 *
 * The front end builds expressions over rules; by_gr_cfg_finish decides nullability, removes left recursion (hidden and
 * mutual too), drops what cannot end, and gives each rule its term. */
#ifndef BY_GRAMMAR_CFG_H
#define BY_GRAMMAR_CFG_H

#include "grammar/grammar_internal.h"

typedef enum {
    BY_GR_C_EMPTY,
    BY_GR_C_TERM,
    BY_GR_C_RULE,
    BY_GR_C_SEQ,
    BY_GR_C_ALT,
    BY_GR_C_REP,
    BY_GR_C_NONEMPTY
} by_gr_ckind;

typedef struct by_gr_cnode {
    uint8_t kind;
    uint32_t a, b;     /* SEQ, ALT: left and right; REP: body; RULE: rule; TERM: a finished term */
    uint32_t min, max; /* REP */
} by_gr_cnode;

typedef struct by_gr_crule {
    by_str name;
    uint32_t body; /* node */
    bool defined;
    size_t at; /* place of the definition or first use in the text */
    bool nullable, live;
    uint32_t rule;                /* in g->rules */
    uint32_t comp;                /* component of left recursion, 0 = none */
    uint32_t low, num, stack_pos; /* Tarjan */
} by_gr_crule;

typedef struct by_gr_cfg {
    by_gr *g;
    by_gr_cnode *nodes;
    uint32_t n, cap;
    by_gr_crule *rules;
    uint32_t n_rules, cap_rules;
    uint32_t *buckets; /* rule by name */
    uint32_t bucket_cap;
} by_gr_cfg;

/* Node indexes; 0 is EMPTY. */
bool by_gr_cfg_init(by_gr_cfg *c, by_gr *g);
void by_gr_cfg_free(by_gr_cfg *c);
uint32_t by_gr_cfg_term(by_gr_cfg *c, by_gr_term t);
uint32_t by_gr_cfg_rule(by_gr_cfg *c, uint32_t rule);
uint32_t by_gr_cfg_seq(by_gr_cfg *c, uint32_t a, uint32_t b);
uint32_t by_gr_cfg_alt(by_gr_cfg *c, uint32_t a, uint32_t b);
uint32_t by_gr_cfg_rep(by_gr_cfg *c, uint32_t a, uint32_t min, uint32_t max);
/* The rule of that name, made if need be. */
uint32_t by_gr_cfg_find(by_gr_cfg *c, by_str name, size_t at);
uint32_t by_gr_cfg_new_rule(by_gr_cfg *c);
/* Term of the root rule. NEVER with the error set when something is wrong. */
by_gr_term by_gr_cfg_finish(by_gr_cfg *c, uint32_t root);
/* Sets the error with line and column of an offset and the line itself with a caret. */
void by_gr_text_error(by_gr *g, by_str text, size_t at, by_status code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
