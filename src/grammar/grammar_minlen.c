/* grammar_minlen.c - how many bytes the shortest completion of a state takes: what close_by_budget steers by.
 *
 * The number is a potential: from every state that is not final some byte leads to a state whose number is smaller by
 * at least one, so following it ends the text in time. Structure gives it directly where it can; automaton states are
 * searched breadth first; rules by a fixed point over all rules reached so far. */
#include "grammar/grammar_host.h"
#include "grammar/grammar_internal.h"

#define UNKNOWN    BY_GR_MIN_UNKNOWN
#define SEARCH_MAX 20000u
#define DEPTH_MAX  600u
#define ROUNDS_MAX 64u

static uint32_t add(uint32_t a, uint32_t b) {
    return a >= UNKNOWN || b >= UNKNOWN || a + b >= UNKNOWN ? UNKNOWN : a + b;
}

static uint32_t eval(by_gr *g, by_gr_term t);

static bool searched(const by_gr *g, by_gr_term t) {
    switch (g->nodes[t].kind) {
    case BY_GR_K_AND:
    case BY_GR_K_NOT:
    case BY_GR_K_UNQUOT:
    case BY_GR_K_LIFT:
    case BY_GR_K_ERASE:
    case BY_GR_K_JESC:
    case BY_GR_K_JHEX:
    case BY_GR_K_JLOW:
    case BY_GR_K_TRIE:
    case BY_GR_K_EXCEPT:
    case BY_GR_K_MOD:
    case BY_GR_K_LEAP:
    case BY_GR_K_KEY:
    case BY_GR_K_FREE: return true;
    case BY_GR_K_JSTR: return g->nodes[g->nodes[t].a].kind != BY_GR_K_HOST; /* each text in an A-label is a state of its own */
    default: return false;
    }
}

static uint32_t recall(const by_gr *g, by_gr_term t) {
    return t < g->minlen_cap ? g->minlen[t] : 0;
}

static void keep(by_gr *g, by_gr_term t, uint32_t v) {
    if (t >= g->minlen_cap) {
        uint32_t cap = g->cap > t ? g->cap : t + 1;
        uint32_t *p = by_realloc(BY_MEM_GRAMMAR, g->minlen, by_mul_size(cap, sizeof *p));
        if (!p) {
            by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
            return;
        }
        memset(p + g->minlen_cap, 0, (cap - g->minlen_cap) * sizeof *p);
        g->minlen = p;
        g->minlen_cap = cap;
    }
    g->minlen[t] = v + 1;
}

/* Breadth first over automaton states; other states count with their own number. */
static uint32_t search(by_gr *g, by_gr_term t) {
    by_gr_vec q = {0}, dist = {0};
    uint32_t best = UNKNOWN;
    uint32_t cap = 256, *seen = by_alloc_zero(BY_MEM_GRAMMAR, cap * sizeof *seen);
    if (!seen) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), UNKNOWN;
    by_gr_vec_push(g, &q, t);
    by_gr_vec_push(g, &dist, 0);
    for (uint32_t i = 0; i < q.n && !by_gr_bad(g) && q.n < SEARCH_MAX; i++) {
        uint32_t d = dist.v[i];
        if (d >= best) break;
        if (by_gr_nullable(g, q.v[i])) {
            best = d;
            break;
        }
        const by_gr_row *row = by_gr_row_of(g, q.v[i]);
        for (unsigned k = 0; k < row->n && !by_gr_bad(g); k++) {
            by_gr_term to = row->r[k].to;
            if (!searched(g, to) || recall(g, to)) {
                uint32_t v = add(d + 1, eval(g, to));
                if (v < best) best = v;
                continue;
            }
            uint32_t h = to * 0x9e3779b1u & (cap - 1);
            while (seen[h] && seen[h] != to)
                h = (h + 1) & (cap - 1);
            if (seen[h]) continue;
            seen[h] = to;
            by_gr_vec_push(g, &q, to);
            by_gr_vec_push(g, &dist, d + 1);
            if (q.n * 2 < cap) continue;
            uint32_t *more = by_alloc_zero(BY_MEM_GRAMMAR, cap * 2 * sizeof *more);
            if (!more) {
                by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
                break;
            }
            cap *= 2;
            for (uint32_t j = 0; j < q.n; j++) {
                uint32_t p = q.v[j] * 0x9e3779b1u & (cap - 1);
                while (more[p])
                    p = (p + 1) & (cap - 1);
                more[p] = q.v[j];
            }
            by_free(seen);
            seen = more;
        }
        for (unsigned k = 0; k < row->n_tok; k++) {
            uint32_t v = add(d + 1, eval(g, row->tok[k].to));
            if (v < best) best = v;
        }
    }
    by_gr_vec_free(&q);
    by_gr_vec_free(&dist);
    by_free(seen);
    return best;
}

static uint32_t eval_kind(by_gr *g, by_gr_term t) {
    by_gr_node n = g->nodes[t];
    uint32_t v = UNKNOWN;
    switch ((by_gr_kind)n.kind) {
    case BY_GR_K_EPS:
    case BY_GR_K_WS: return 0;
    case BY_GR_K_CLS:
    case BY_GR_K_TOK: return 1;
    case BY_GR_K_LIT: return (uint32_t)g->lits[n.a].len - n.b;
    case BY_GR_K_SEQ:
        for (v = 0; g->nodes[t].kind == BY_GR_K_SEQ; t = g->nodes[t].b) {
            if (recall(g, t)) break;
            v = add(v, eval(g, g->nodes[t].a));
        }
        return add(v, eval(g, t));
    case BY_GR_K_ALT:
        for (uint32_t i = 0; i < n.x; i++) {
            uint32_t x = eval(g, g->lists.v[n.a + i]);
            if (x < v) v = x;
        }
        return v;
    case BY_GR_K_REP: {
        uint64_t x = n.b ? (uint64_t)eval(g, n.a) * n.b : 0;
        return x > UNKNOWN ? UNKNOWN : (uint32_t)x;
    }
    case BY_GR_K_RULE: {
        if (n.a >= g->rule_min_cap) return UNKNOWN;
        return g->rule_min[n.a];
    }
    case BY_GR_K_NONEMPTY: return search(g, t);
    case BY_GR_K_GROUP: return eval(g, n.a);
    case BY_GR_K_OBJ: return by_gr_obj_min_bytes(g, n);
    case BY_GR_K_ARR: return by_gr_arr_min_bytes(g, n);
    case BY_GR_K_JSTR: {
        by_gr_node x = g->nodes[n.a];
        if (x.kind == BY_GR_K_REP && x.a == BY_GR_ANYCHAR) return x.b + 1;
        if (x.kind == BY_GR_K_HOST) return by_gr_host_min_bytes(g, x) + 1;
        return search(g, t);
    }
    case BY_GR_K_MARK:
    case BY_GR_K_CLOSE: return eval(g, n.a);
    case BY_GR_K_NEVER:
    case BY_GR_K_TUPLE:
    case BY_GR_K_N: return UNKNOWN;
    case BY_GR_K_AND:
    case BY_GR_K_NOT:
    case BY_GR_K_UNQUOT:
    case BY_GR_K_LIFT:
    case BY_GR_K_ERASE:
    case BY_GR_K_JESC:
    case BY_GR_K_JHEX:
    case BY_GR_K_JLOW:
    case BY_GR_K_TRIE:
    case BY_GR_K_EXCEPT:
    case BY_GR_K_MOD:
    case BY_GR_K_LEAP:
    case BY_GR_K_KEY:
    case BY_GR_K_FREE: return search(g, t);
    case BY_GR_K_HOST: return by_gr_host_min_bytes(g, n);
    case BY_GR_K_UNIQ: return add(eval(g, n.a), eval(g, g->nodes[n.b].a));
    }
    return UNKNOWN;
}

static uint32_t eval(by_gr *g, by_gr_term t) {
    if (by_gr_bad(g)) return UNKNOWN;
    if (by_gr_nullable(g, t)) return 0;
    uint32_t v = recall(g, t);
    if (v) return v - 1;
    if (g->depth > DEPTH_MAX) return UNKNOWN;
    g->depth++;
    v = eval_kind(g, t);
    g->depth--;
    if (v < UNKNOWN && g->rules_settled && !by_gr_bad(g)) keep(g, t, v);
    return v;
}

/* Lengths of all rules known so far, by iteration from above. Rules appear while bodies are made, so the loop runs
 * until neither a length nor their number changes. */
static void settle(by_gr *g) {
    g->rules_settled = false;
    if (g->minlen_cap) memset(g->minlen, 0, g->minlen_cap * sizeof *g->minlen); /* made while some rule was not known */
    for (uint32_t round = 0; round < ROUNDS_MAX && !by_gr_bad(g); round++) {
        bool again = false;
        if (g->rule_min_cap < g->n_rules) {
            uint32_t *p = by_realloc(BY_MEM_GRAMMAR, g->rule_min, g->n_rules * sizeof *p);
            if (!p) {
                by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
                return;
            }
            for (uint32_t i = g->rule_min_cap; i < g->n_rules; i++)
                p[i] = UNKNOWN;
            g->rule_min = p;
            g->rule_min_cap = g->n_rules;
            again = true;
        }
        for (uint32_t i = g->rule_min_cap; i-- > 0;) {
            uint32_t v = eval(g, by_gr_rule_body(g, i));
            if (v < g->rule_min[i] && !by_gr_bad(g)) g->rule_min[i] = v, again = true;
        }
        if (!again) break;
    }
    g->rules_settled = !by_gr_bad(g);
}

uint32_t by_gr_min_bytes(by_gr *g, by_gr_term t) {
    if (g->settling) return eval(g, t);
    if (!g->rules_settled || g->rule_min_cap < g->n_rules) {
        g->settling = true;
        settle(g);
        g->settling = false;
    }
    g->settling = true;
    uint32_t v = eval(g, t);
    g->settling = false;
    return v;
}
