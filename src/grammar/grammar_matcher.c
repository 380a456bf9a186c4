/* grammar_matcher.c - grammars shared by sequences, and one sequence's place in one.
 *
 * A grammar's tables grow while it is used, under its lock. When they reach the memory limit the grammar is compiled
 * again from its text (generation + 1) and every matcher finds its place again by replaying its tokens, so memory stays
 * bounded and no request fails because of another. A matcher is two arrays: its tokens, and the state after each. */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "grammar/grammar_host.h"
#include "grammar/grammar_mask.h"
#include "grammar/grammar_vocab.h"

#define TIMEOUT_DEFAULT_US 2000000
#define REBUILD_MAX_US     100000 /* of the first compilation and of the one that repeats it: a step waits for it */
#define WARM_NS            1000000 /* of processor time for masks in advance; compilation itself takes about a tenth */
#define SCHEMA_TEXT_MAX    ((size_t)4 << 20)
#define GRAMMAR_TEXT_MAX   ((size_t)1 << 20)
#define TRIGGER_MAX        256u
#define WS_BOUND           20u
#define WS_LINES           2u

struct by_grammar {
    pthread_mutex_t lock;
    by_gr g;
    by_gr_term root;
    uint32_t generation;
    uint64_t refs;
    uint64_t rebuilds;
    int64_t compile_us; /* of the first compilation */
    const by_grammar_vocab *vocab;
    by_grammar_kind kind;
    by_buf text, ws_pattern, root_name;
    by_grammar_opts opts;
    by_arena json; /* parsed text; definitions point into it */
};

static const char *const kind_names[BY_GRAMMAR_N] = {"json_schema", "json_object", "regex",         "ebnf",
                                                     "lark",        "choice",      "structural_tag"};

const char *by_grammar_kind_name(by_grammar_kind k) {
    return k < BY_GRAMMAR_N ? kind_names[k] : "?";
}

bool by_grammar_kind_parse(by_grammar_kind *out, by_str name) {
    for (unsigned i = 0; i < BY_GRAMMAR_N; i++)
        if (by_str_eqz(name, kind_names[i])) return *out = (by_grammar_kind)i, true;
    return false;
}

/* ---- compilation ---- */

static by_gr_term whitespace(by_gr *g, const by_grammar_opts *o) {
    by_gr_set256 s = {0};
    by_gr_regex_opts rx = {0};
    for (const char *c = " \t\n\r"; *c; c++)
        by_gr_set_add(&s, (uint8_t)*c);
    switch (o->whitespace) {
    case BY_GRAMMAR_WS_ANY: return by_gr_star(g, by_gr_cls(g, &s));
    case BY_GRAMMAR_WS_COMPACT:
    case BY_GRAMMAR_WS_SPACED: return BY_GR_EPS;
    case BY_GRAMMAR_WS_PATTERN: return by_gr_regex(g, o->ws_pattern, &rx);
    case BY_GRAMMAR_WS_BOUNDED: break;
    }
    return by_gr_node_make(g, BY_GR_K_WS, 0, WS_BOUND, WS_LINES, 0, BY_GR_F_NULLABLE);
}

static by_gr_term choice(by_gr *g, const by_json *list) {
    if (list->type != BY_JSON_ARRAY || list->n == 0 || list->n > 10000)
        return by_gr_fail(g, BY_EINVAL, "choice: a list of 1 to 10000 strings is expected");
    by_str *words = by_gr_alloc(g, list->n * sizeof *words);
    for (uint32_t i = 0; words && i < list->n; i++) {
        if (list->v.items[i].type != BY_JSON_STRING)
            return by_gr_fail(g, BY_EINVAL, "choice: item %u is not a string", i);
        words[i] = list->v.items[i].v.s;
    }
    return words ? by_gr_words(g, words, list->n) : BY_GR_NEVER;
}

static by_gr_term front_end(by_grammar *gr) {
    by_gr *g = &gr->g;
    by_str text = by_buf_str(&gr->text);
    by_gr_regex_opts rx = {0};
    bool is_json = gr->kind == BY_GRAMMAR_JSON_SCHEMA || gr->kind == BY_GRAMMAR_CHOICE || gr->kind == BY_GRAMMAR_TAG;
    by_json *v = NULL;
    if (is_json) {
        by_json_opts o = {.bytes_max = SCHEMA_TEXT_MAX};
        v = by_gr_alloc(g, sizeof *v);
        if (!v) return BY_GR_NEVER;
        by_err err;
        by_status s = by_json_parse(v, &gr->json, text, &o, &err);
        if (s < 0) return by_gr_fail(g, s, "%s", err.msg);
    } else if (text.len > GRAMMAR_TEXT_MAX)
        return by_gr_fail(g, BY_ELIMIT, "grammar text of %zu bytes is longer than %zu", text.len, GRAMMAR_TEXT_MAX);
    switch (gr->kind) {
    case BY_GRAMMAR_JSON_SCHEMA: return by_gr_schema_compile(g, v);
    case BY_GRAMMAR_JSON_OBJECT: return by_gr_schema_any_object(g);
    case BY_GRAMMAR_REGEX: return by_gr_regex(g, text, &rx);
    case BY_GRAMMAR_EBNF: return by_gr_compile_ebnf(g, text, by_buf_str(&gr->root_name));
    case BY_GRAMMAR_LARK: return by_gr_compile_lark(g, text);
    case BY_GRAMMAR_CHOICE: return choice(g, v);
    case BY_GRAMMAR_TAG: return by_gr_compile_tag(g, v);
    case BY_GRAMMAR_N: break;
    }
    return by_gr_fail(g, BY_EINVAL, "grammar: unknown kind");
}

static by_status build(by_grammar *gr, by_grammar_error *where, by_err *err) {
    by_grammar_opts o = gr->opts;
    o.ws_pattern = by_buf_str(&gr->ws_pattern);
    o.root = by_buf_str(&gr->root_name);
    BY_TRY(by_gr_init(&gr->g, gr->vocab, &o, err));
    by_gr *g = &gr->g;
    g->compiling = true;
    g->deadline_ns = by_clock_ns() + (o.timeout_us > 0 ? o.timeout_us : TIMEOUT_DEFAULT_US) * 1000;
    g->ws = whitespace(g, &o);
    g->ws_behind = o.whitespace == BY_GRAMMAR_WS_SPACED ? by_gr_lit(g, BY_STR(" ")) : g->ws;
    gr->root = by_gr_bad(g) ? BY_GR_NEVER : front_end(gr);
    if (!by_gr_bad(g) && gr->root == BY_GR_NEVER && !o.empty_ok) by_gr_fail(g, BY_EINVAL, "grammar: nothing matches");
    if (!by_gr_bad(g)) by_gr_row_of(g, gr->root); /* finds what only the first step shows */
    g->compiling = false;
    by_gr_begin_step(g);
    if (!by_gr_bad(g)) return BY_OK;
    if (err) *err = g->err;
    if (where) memcpy(where->where, g->where, sizeof where->where);
    return g->status;
}

static void teardown(by_grammar *gr) {
    by_gr_masks_flush(&gr->g);
    by_gr_deinit(&gr->g);
    by_arena_deinit(&gr->json);
    by_arena_init(&gr->json, BY_MEM_GRAMMAR);
}

/* Sets the error of g aside. */
static by_status take_error(by_gr *g, by_err *err) {
    by_status s = g->status;
    if (err) *err = g->err;
    g->status = BY_OK;
    g->where[0] = 0;
    g->depth = 0;
    return s;
}

/* Only memory can fail here: a limit that is reached is no reason to refuse the grammar. */
static by_status warm(by_grammar *gr, by_err *err) {
    by_gr *g = &gr->g;
    by_err own;
    by_gr_begin_step(g);
    by_gr_warm(g, gr->root, WARM_NS);
    if (!by_gr_bad(g)) return BY_OK;
    by_status s = take_error(g, &own);
    if (s != BY_ENOMEM) return BY_OK;
    if (err) *err = own;
    return s;
}

by_status by_grammar_compile(by_grammar **out, const by_grammar_vocab *vocab, by_grammar_kind kind, by_str text,
                             const by_grammar_opts *opts, by_grammar_error *where, by_err *err) {
    *out = NULL;
    if (where) where->where[0] = 0;
    by_grammar *gr = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *gr);
    if (!gr) return BY_FAIL(err, BY_ENOMEM, "grammar: out of memory");
    pthread_mutex_init(&gr->lock, NULL);
    by_arena_init(&gr->json, BY_MEM_GRAMMAR);
    gr->refs = 1;
    gr->vocab = vocab;
    gr->kind = kind;
    if (opts) gr->opts = *opts;
    by_status status = BY_OK;
    if (text.len > SCHEMA_TEXT_MAX)
        status = BY_FAIL(err, BY_ELIMIT, "grammar text of %zu bytes is too long", text.len);
    else if (!by_buf_push_str(&gr->text, text) || !by_buf_push_str(&gr->ws_pattern, gr->opts.ws_pattern) ||
             !by_buf_push_str(&gr->root_name, gr->opts.root))
        status = BY_FAIL(err, BY_ENOMEM, "grammar: out of memory");
    int64_t t0 = by_clock_ns();
    if (status >= 0) status = build(gr, where, err);
    gr->compile_us = (by_clock_ns() - t0) / 1000;
    if (status >= 0) status = warm(gr, err);
    if (status < 0) {
        by_grammar_release(gr);
        return status;
    }
    *out = gr;
    return BY_OK;
}

by_grammar *by_grammar_acquire(by_grammar *g) {
    __atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
    return g;
}

void by_grammar_release(by_grammar *gr) {
    if (!gr || __atomic_sub_fetch(&gr->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    teardown(gr);
    by_arena_deinit(&gr->json);
    by_buf_deinit(&gr->text);
    by_buf_deinit(&gr->ws_pattern);
    by_buf_deinit(&gr->root_name);
    pthread_mutex_destroy(&gr->lock);
    by_free(gr);
}

const char *by_grammar_warnings(const by_grammar *gr) {
    by_buf *b = &((by_grammar *)(uintptr_t)gr)->g.warnings; /* appends a NUL that is not part of the content */
    return b->len ? by_buf_z(b) : "";
}

void by_grammar_get_stats(by_grammar *gr, by_grammar_stats *out) {
    pthread_mutex_lock(&gr->lock);
    uint64_t masks = 0;
    for (uint32_t i = 0; i < gr->g.masks_cap; i++)
        masks += (unsigned)(gr->g.masks[i] != NULL) + (unsigned)(gr->g.heads[i] != NULL);
    *out = (by_grammar_stats){gr->g.n, masks,
                              gr->g.mask_bytes + gr->g.arena.used_bytes + (uint64_t)gr->g.cap * sizeof(by_gr_node),
                              gr->rebuilds};
    pthread_mutex_unlock(&gr->lock);
}

/* ---- matchers ---- */

struct by_matcher {
    by_grammar *gr;
    uint32_t generation;
    by_gr_term state;
    uint32_t *ids;      /* accepted tokens */
    by_gr_term *states; /* [n]: the state before ids[i] */
    size_t n, cap;
    size_t ended_at; /* 1 + index of the end token, 0 = not ended */
    uint32_t *trigger, *fail;
    uint32_t n_trigger;
    int64_t bound_id;
    size_t started_at; /* number of tokens before the grammar; SIZE_MAX = not started */
    bool close_by_budget, must_begin;
    uint32_t budget;
    uint32_t need; /* must_begin: bytes of the shortest text, UINT32_MAX = not known yet */
};

/* A grammar whose compilation is slow is not compiled again: all sequences of a step would wait for it. */
static by_status rebuild(by_grammar *gr, by_err *err) {
    if (gr->compile_us > REBUILD_MAX_US)
        return BY_FAIL(err, BY_ELIMIT, "grammar: its tables have reached the memory limit");
    teardown(gr);
    gr->generation++;
    gr->rebuilds++;
    by_grammar_opts keep = gr->opts;
    gr->opts.timeout_us = 4 * REBUILD_MAX_US; /* the machine may be busier now */
    by_status s = build(gr, NULL, err);
    gr->opts = keep;
    if (s < 0) teardown(gr); /* half a grammar is none: the next call makes it again */
    return s;
}

static void replay(by_matcher *m) {
    by_gr *g = &m->gr->g;
    m->state = m->gr->root;
    for (size_t i = m->started_at == SIZE_MAX ? m->n : m->started_at; i < m->n && !by_gr_bad(g); i++) {
        m->states[i] = m->state;
        if (m->ended_at && i + 1 >= m->ended_at) break;
        m->state = by_gr_next_token(g, m->state, m->ids[i]);
    }
    if (!by_gr_bad(g)) m->generation = m->gr->generation; /* else the next call looks for the place again */
}

typedef by_status step_fn(by_matcher *m, void *arg);

/* Runs fn under the lock on up-to-date states. A full table is rebuilt once. */
static by_status with_grammar(by_matcher *m, step_fn *fn, void *arg, by_err *err) {
    by_grammar *gr = m->gr;
    by_gr *g = &gr->g;
    by_status s = BY_OK;
    pthread_mutex_lock(&gr->lock);
    for (int tries = 0; tries < 2; tries++) {
        by_gr_begin_step(g);
        if (!g->nodes) { /* an earlier rebuild failed */
            s = rebuild(gr, err);
            if (s < 0) break;
        }
        if (m->generation != gr->generation) replay(m);
        s = by_gr_bad(g) ? g->status : fn(m, arg);
        if (!by_gr_bad(g)) break;
        s = take_error(g, err);
        if (s != BY_ELIMIT || tries) break;
        s = rebuild(gr, err);
        if (s < 0) break;
    }
    pthread_mutex_unlock(&gr->lock);
    return s;
}

by_gr_term by_gr_next_token(by_gr *g, by_gr_term t, uint32_t id) {
    if (id >= g->vocab->n || id == g->vocab->eos) return BY_GR_NEVER;
    by_str s = g->vocab->bytes[id];
    by_gr_term to = BY_GR_NEVER;
    if (s.len && !g->vocab->control[id] && s.len <= BY_GV_TOKEN_MAX) to = by_gr_step_bytes(g, t, s);
    if (g->host && by_gr_is_alabel(g, t)) return to;
    const by_gr_row *row = by_gr_row_of(g, t);
    for (unsigned i = 0; i < row->n_tok; i++)
        if (s.len && by_gr_tokset_has(g, row->tok[i].set, id)) to = by_gr_alt2(g, to, row->tok[i].to);
    return to;
}

by_status by_matcher_create(by_matcher **out, by_grammar *gr, const by_matcher_opts *o, by_err *err) {
    *out = NULL;
    uint32_t n = o ? o->n_trigger : 0;
    if (n > TRIGGER_MAX || (o && o->bound_id >= 0 && n == 0))
        return BY_FAIL(err, BY_EINVAL,
                       n > TRIGGER_MAX ? "trigger of %u tokens is longer than %u" : "a bound token needs a trigger", n,
                       TRIGGER_MAX);
    by_matcher *m = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *m);
    if (!m) return BY_FAIL(err, BY_ENOMEM, "matcher: out of memory");
    m->gr = by_grammar_acquire(gr);
    m->bound_id = o ? o->bound_id : -1;
    m->n_trigger = n;
    m->started_at = n ? SIZE_MAX : 0;
    m->close_by_budget = o && o->close_by_budget;
    m->must_begin = o && o->must_begin && n;
    m->budget = m->need = UINT32_MAX;
    if (n) {
        m->trigger = by_alloc(BY_MEM_GRAMMAR, 2 * n * sizeof *m->trigger);
        if (!m->trigger) {
            by_matcher_destroy(m);
            return BY_FAIL(err, BY_ENOMEM, "matcher: out of memory");
        }
        m->fail = m->trigger + n;
        memcpy(m->trigger, o->trigger_ids, n * sizeof *m->trigger);
        m->fail[0] = 0;
        for (uint32_t i = 1, k = 0; i < n; i++) { /* prefix function */
            while (k && m->trigger[i] != m->trigger[k])
                k = m->fail[k - 1];
            k += m->trigger[i] == m->trigger[k];
            m->fail[i] = k;
        }
    }
    pthread_mutex_lock(&gr->lock);
    m->generation = gr->generation;
    m->state = gr->root;
    pthread_mutex_unlock(&gr->lock);
    *out = m;
    return BY_OK;
}

void by_matcher_destroy(by_matcher *m) {
    if (!m) return;
    by_grammar_release(m->gr);
    by_free(m->ids);
    by_free(m->states);
    by_free(m->trigger);
    by_free(m);
}

by_status by_matcher_fork(by_matcher **out, const by_matcher *m, by_err *err) {
    *out = NULL;
    by_matcher *c = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *c);
    if (!c) return BY_FAIL(err, BY_ENOMEM, "matcher: out of memory");
    *c = *m;
    c->ids = NULL;
    c->states = NULL;
    c->trigger = NULL;
    by_grammar_acquire(m->gr);
    size_t n = m->n + 1; /* one state more, see waiting */
    if (m->n) {
        c->ids = by_alloc(BY_MEM_GRAMMAR, n * sizeof *c->ids);
        c->states = by_alloc(BY_MEM_GRAMMAR, n * sizeof *c->states);
    }
    if (m->trigger) c->trigger = by_alloc(BY_MEM_GRAMMAR, 2 * m->n_trigger * sizeof *c->trigger);
    if ((m->n && (!c->ids || !c->states)) || (m->trigger && !c->trigger)) {
        by_matcher_destroy(c);
        return BY_FAIL(err, BY_ENOMEM, "matcher: out of memory");
    }
    c->cap = m->n ? n : 0;
    if (m->n) {
        memcpy(c->ids, m->ids, m->n * sizeof *c->ids);
        memcpy(c->states, m->states, (m->started_at == SIZE_MAX ? n : m->n) * sizeof *c->states);
    }
    if (c->trigger) {
        memcpy(c->trigger, m->trigger, 2 * m->n_trigger * sizeof *c->trigger);
        c->fail = c->trigger + c->n_trigger;
    }
    *out = c;
    return BY_OK;
}

/* While the grammar has not begun the state is how much of the trigger has been seen; FORCED: the bound token came. */
#define FORCED 0x80000000u

static by_gr_term waiting(const by_matcher *m) {
    return m->n == 0 ? 0 : m->states[m->n]; /* kept one behind the last token */
}

size_t by_matcher_count(const by_matcher *m) {
    return m->n;
}
bool by_matcher_is_ended(const by_matcher *m) {
    return m->ended_at != 0;
}
bool by_matcher_is_free(const by_matcher *m) {
    return m->started_at == SIZE_MAX && !(waiting(m) & FORCED) && !(m->must_begin && m->need != 0);
}
void by_matcher_set_budget(by_matcher *m, uint32_t tokens_left) {
    m->budget = tokens_left;
}

static bool reserve(by_matcher *m) {
    if (m->n + 1 < m->cap) return true;
    size_t cap = m->cap ? m->cap * 2 : 64;
    uint32_t *ids = by_realloc(BY_MEM_GRAMMAR, m->ids, by_mul_size(cap, sizeof *ids));
    if (ids) m->ids = ids;
    by_gr_term *st = ids ? by_realloc(BY_MEM_GRAMMAR, m->states, by_mul_size(cap, sizeof *st)) : NULL;
    if (!st) return false;
    m->states = st;
    m->cap = cap;
    return true;
}

static by_status accept_waiting(by_matcher *m, uint32_t id) {
    uint32_t w = waiting(m), k = w & ~FORCED;
    if (w & FORCED) {
        if (id != m->trigger[k]) return BY_NOT_FOUND;
        k++;
    } else if (m->must_begin && m->need != 0 && id == m->gr->g.vocab->eos) {
        return BY_NOT_FOUND;
    } else if (id == (uint32_t)m->bound_id && m->bound_id >= 0) {
        w = FORCED;
        k = 0;
    } else {
        while (k && m->trigger[k] != id)
            k = m->fail[k - 1];
        k += m->trigger[k] == id;
    }
    m->ids[m->n] = id;
    m->states[m->n] = waiting(m);
    m->n++;
    if (m->budget != UINT32_MAX && m->budget) m->budget--;
    m->states[m->n] = k | (w & FORCED);
    if (k == m->n_trigger) {
        m->started_at = m->n;
        m->state = m->gr->root;
    }
    return BY_OK;
}

static by_status accept_one(by_matcher *m, void *arg) {
    uint32_t id = *(uint32_t *)arg;
    by_gr *g = &m->gr->g;
    if (m->started_at == SIZE_MAX) return accept_waiting(m, id);
    if (m->ended_at && id != g->vocab->eos) return BY_NOT_FOUND; /* more end tokens may follow, as the mask says */
    by_gr_term to = m->state;
    if (id == g->vocab->eos) {
        if (!by_gr_nullable(g, m->state)) return BY_NOT_FOUND;
    } else
        to = by_gr_next_token(g, m->state, id);
    if (by_gr_bad(g)) return g->status;
    if (to == BY_GR_NEVER) return BY_NOT_FOUND;
    m->ids[m->n] = id;
    m->states[m->n] = m->state;
    m->n++;
    m->state = to;
    if (id == g->vocab->eos && !m->ended_at) m->ended_at = m->n;
    if (m->budget != UINT32_MAX && m->budget) m->budget--;
    return BY_OK;
}

by_status by_matcher_accept(by_matcher *m, uint32_t id, by_err *err) {
    if (id >= m->gr->vocab->n) return BY_NOT_FOUND;
    if (!reserve(m)) return BY_FAIL(err, BY_ENOMEM, "matcher: out of memory");
    return with_grammar(m, accept_one, &id, err);
}

by_status by_matcher_rollback(by_matcher *m, size_t n, by_err *err) {
    if (n > m->n) return BY_FAIL(err, BY_EINVAL, "rollback of %zu tokens, only %zu were accepted", n, m->n);
    if (n == 0) return BY_OK;
    m->n -= n;
    if (m->ended_at > m->n) m->ended_at = 0;
    if (m->budget != UINT32_MAX) m->budget += (uint32_t)n;
    if (m->n_trigger && m->started_at != SIZE_MAX && m->n < m->started_at)
        m->started_at = SIZE_MAX;
    else if (m->started_at != SIZE_MAX)
        m->state = m->states[m->n];
    return BY_OK;
}

static bool is_empty(const by_grammar_vocab *v, const uint32_t *words) {
    for (uint32_t i = 0; i < v->words; i++)
        if (words[i]) return false;
    return true;
}

/* The tokens behind which the budget still holds the shortest completion. A budget that was too small from the start: the tokens
 * that come nearest to the end, of the steps 16, 8, 4, 2, 1 bytes; there is always one that goes one byte. */
static by_status fill_closing(by_matcher *m, uint32_t need, uint32_t *words) {
    by_gr *g = &m->gr->g;
    uint32_t room = m->budget >= 2 ? m->budget - 2 : 0;
    if (m->budget <= 1 && by_gr_nullable(g, m->state)) {
        memset(words, 0, (size_t)g->vocab->words * 4);
        words[g->vocab->eos >> 5] |= 1u << (g->vocab->eos & 31);
        return BY_OK;
    }
    by_gr_mask_closing(g, m->state, room, words);
    for (uint32_t gain = 16; gain && !by_gr_bad(g) && is_empty(g->vocab, words); gain /= 2)
        if (need >= gain) by_gr_mask_closing(g, m->state, need - gain, words);
    return by_gr_bad(g) ? g->status : BY_OK;
}

/* Before the grammar: all, or all but the end token, or only the next token of the trigger. */
static by_status fill_waiting(by_matcher *m, uint32_t *words) {
    by_gr *g = &m->gr->g;
    const by_grammar_vocab *v = g->vocab;
    uint32_t w = waiting(m), k = w & ~FORCED;
    if (m->must_begin && m->need == UINT32_MAX) m->need = by_gr_min_bytes(g, m->gr->root);
    if (by_gr_bad(g)) {
        m->need = UINT32_MAX;
        return g->status;
    }
    bool must = m->must_begin && m->need != 0;
    /* behind this token: the rest of the trigger, a byte a token at worst, the end token; a text of unknown length has no room of its own */
    bool last = must && m->close_by_budget && m->need < BY_GR_MIN_UNKNOWN && m->budget <= (uint64_t)(m->n_trigger - k) + m->need + 1;
    if ((w & FORCED) || last) {
        memset(words, 0, (size_t)v->words * 4);
        words[m->trigger[k] >> 5] |= 1u << (m->trigger[k] & 31);
        return BY_OK;
    }
    memset(words, 0xff, v->n / 32 * 4);
    memset(words + v->n / 32, 0, (v->words - v->n / 32) * 4);
    if (v->n % 32) words[v->n / 32] = (1u << v->n % 32) - 1;
    if (must) words[v->eos >> 5] &= ~(1u << (v->eos & 31));
    return BY_OK;
}

static by_status fill(by_matcher *m, void *arg) {
    uint32_t *words = arg;
    by_gr *g = &m->gr->g;
    const by_grammar_vocab *v = g->vocab;
    if (m->started_at == SIZE_MAX) return fill_waiting(m, words);
    if (m->ended_at) {
        memset(words, 0, (size_t)v->words * 4);
        words[v->eos >> 5] |= 1u << (v->eos & 31);
        return BY_OK;
    }
    if (m->close_by_budget && m->budget != UINT32_MAX) {
        uint32_t need = by_gr_min_bytes(g, m->state); /* a byte is a token at worst; one more for the end token */
        if ((uint64_t)need + 1 + BY_GV_TOKEN_MAX * 2 >= m->budget) return fill_closing(m, need, words);
    }
    const by_gr_mask *mask = by_gr_mask_of(g, m->state);
    if (!mask) return g->status;
    by_gr_mask_write(g, mask, words);
    return BY_OK;
}

by_status by_matcher_fill_mask(by_matcher *m, uint32_t *words, by_err *err) {
    by_status s = with_grammar(m, fill, words, err);
    if (s < 0) memset(words, 0, (size_t)m->gr->vocab->words * 4);
    return s;
}

by_status by_matcher_validate(by_matcher *m, const uint32_t *ids, size_t n, size_t *n_ok, by_err *err) {
    uint32_t budget = m->budget;
    size_t k = 0;
    by_status s = BY_OK;
    while (k < n && (s = by_matcher_accept(m, ids[k], err)) == BY_OK)
        k++;
    by_status back = by_matcher_rollback(m, k, NULL);
    m->budget = budget;
    *n_ok = k;
    return s < 0 ? s : back;
}

by_status by_matcher_draft_masks(by_matcher *m, const uint32_t *drafts, size_t n, uint32_t *rows, size_t stride,
                                 size_t *n_ok, by_err *err) {
    uint32_t budget = m->budget;
    size_t k = 0;
    by_status s = by_matcher_fill_mask(m, rows, err);
    while (s == BY_OK && k < n) {
        s = by_matcher_accept(m, drafts[k], err);
        if (s != BY_OK) break;
        k++;
        s = by_matcher_fill_mask(m, rows + k * stride, err);
    }
    by_status back = by_matcher_rollback(m, k, NULL);
    m->budget = budget;
    *n_ok = k;
    return s < 0 ? s : back;
}

static by_status is_final(by_matcher *m, void *arg) {
    *(bool *)arg = m->started_at != SIZE_MAX && (m->ended_at || by_gr_nullable(&m->gr->g, m->state));
    return BY_OK;
}

bool by_matcher_is_final(by_matcher *m) {
    bool out = false;
    with_grammar(m, is_final, &out, NULL);
    return out;
}

static by_status go_on(by_matcher *m, void *arg) {
    by_gr *g = &m->gr->g;
    const by_gr_row *row = by_gr_row_of(g, m->state);
    *(bool *)arg = m->started_at == SIZE_MAX || (!m->ended_at && (row->n > 0 || row->n_tok > 0));
    return by_gr_bad(g) ? g->status : BY_OK;
}

by_status by_matcher_can_go_on(by_matcher *m, bool *out, by_err *err) {
    return with_grammar(m, go_on, out, err);
}

static by_status min_tokens(by_matcher *m, void *arg) {
    by_gr *g = &m->gr->g;
    *(uint32_t *)arg = m->ended_at ? 0 : by_gr_min_bytes(g, m->state) + 1;
    return by_gr_bad(g) ? g->status : BY_OK;
}

by_status by_matcher_min_tokens(by_matcher *m, uint32_t *out, by_err *err) {
    return with_grammar(m, min_tokens, out, err);
}

/* ---- forced text ---- */

typedef struct {
    by_buf *out;
    size_t max;
} forced_arg;

static by_status forced(by_matcher *m, void *arg) {
    forced_arg *a = arg;
    by_gr *g = &m->gr->g;
    by_gr_term t = m->state;
    if (m->started_at == SIZE_MAX || m->ended_at) return BY_OK;
    for (size_t k = 0; k < a->max && !by_gr_nullable(g, t) && !by_gr_bad(g); k++) {
        const by_gr_row *row = by_gr_row_of(g, t);
        if (row->n != 1 || row->n_tok || row->r[0].lo != row->r[0].hi) break;
        if (!by_buf_push_byte(a->out, (char)row->r[0].lo)) return BY_ENOMEM;
        t = by_gr_step(g, t, row->r[0].lo);
    }
    return by_gr_bad(g) ? g->status : BY_OK;
}

by_status by_matcher_forced_bytes(by_matcher *m, by_buf *out, size_t max, by_err *err) {
    forced_arg a = {out, max};
    return with_grammar(m, forced, &a, err);
}

/* Is there a token that begins with all of s and is longer? Such a token could replace what s was cut into. */
static bool longer_token(const by_grammar_vocab *v, by_str s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        uint32_t c = v->nodes[n].first, end = c + v->nodes[n].n_child;
        while (c < end && v->byte[c] != (uint8_t)s.ptr[i])
            c++;
        if (c == end) return false;
        n = c;
    }
    return v->nodes[n].n_child > 0;
}

by_status by_matcher_forced_tokens(by_matcher *m, by_matcher_encode *encode, void *user, uint32_t *ids, size_t max,
                                   size_t *n, by_err *err) {
    by_buf b = {0};
    *n = 0;
    by_status s = by_matcher_forced_bytes(m, &b, 4096, err);
    int64_t k = s < 0 || b.len == 0 ? 0 : encode(user, by_buf_str(&b), ids, max);
    const by_grammar_vocab *v = m->gr->vocab;
    size_t at = 0, keep = 0, total = 0;
    for (int64_t i = 0; i < k; i++)
        total += v->bytes[ids[i]].len;
    if (k > 0 &&
        total == b.len) { /* drop tokens from the first place where a longer token could begin and cross the end */
        size_t safe = b.len;
        for (size_t from = b.len; from-- > 0 && b.len - from <= BY_GV_TOKEN_MAX;)
            if (longer_token(v, by_str_skip(by_buf_str(&b), from))) safe = from;
        for (int64_t i = 0; i < k && at + v->bytes[ids[i]].len <= safe; i++)
            at += v->bytes[ids[i]].len, keep++;
    }
    by_buf_deinit(&b);
    *n = keep;
    return s;
}

/* ---- whole texts ---- */

by_status by_grammar_match(by_grammar *gr, by_str text, bool *ok, size_t *bad_at, by_err *err) {
    by_status s = BY_OK;
    *ok = false;
    pthread_mutex_lock(&gr->lock);
    by_gr *g = &gr->g;
    if (!g->nodes) s = rebuild(gr, err);
    if (s >= 0) {
        by_gr_term t = gr->root;
        size_t i = 0;
        for (; i < text.len && !by_gr_bad(g); i++) {
            by_gr_begin_step(g);
            by_gr_term to = by_gr_step(g, t, (uint8_t)text.ptr[i]);
            if (to == BY_GR_NEVER) break;
            t = to;
        }
        *ok = i == text.len && by_gr_nullable(g, t);
        if (bad_at) *bad_at = i;
        if (by_gr_bad(g)) s = take_error(g, err);
    }
    pthread_mutex_unlock(&gr->lock);
    return s;
}

by_status by_grammar_sample(by_grammar *gr, uint64_t seed, size_t max_bytes, by_buf *out, by_err *err) {
    by_status s = BY_OK;
    pthread_mutex_lock(&gr->lock);
    by_gr *g = &gr->g;
    if (!g->nodes) s = rebuild(gr, err);
    if (s >= 0) by_gr_sample(g, gr->root, seed, max_bytes, out);
    if (s >= 0 && by_gr_bad(g)) s = take_error(g, err);
    pthread_mutex_unlock(&gr->lock);
    return s;
}
