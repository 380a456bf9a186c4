/* grammar_vocab.c - a tokenizer as a byte trie, and the tables that make masks inside JSON strings cheap.
 *
 * Inside a JSON string nearly every token is allowed, and which ones does not depend on the grammar: body[k] is that
 * set when k characters are left. The rest are tokens that close the string; the places in the trie where they do are
 * the exits, and only behind them the grammar has a say. */
#include "grammar/grammar_vocab.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/utf8.h"

/* ---- the trie ---- */

typedef struct {
    by_str s;
    uint32_t id;
} entry;

static int cmp_entry(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int c = by_str_cmp(x->s, y->s);
    return c ? c : (x->id > y->id) - (x->id < y->id);
}

typedef struct {
    uint32_t lo, hi;
    uint32_t depth;
} span;

static by_status build_trie(by_grammar_vocab *v, const entry *e, uint32_t n, by_err *err) {
    size_t total = 1;
    for (uint32_t i = 0; i < n; i++)
        total += e[i].s.len;
    if (total > UINT32_MAX / 2) return BY_FAIL(err, BY_ELIMIT, "vocabulary: %zu bytes of tokens", total);
    uint32_t cap = (uint32_t)total;
    span *sp = by_alloc(BY_MEM_GRAMMAR, by_mul_size(cap, sizeof *sp));
    by_gv_node *nodes = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(cap, sizeof *nodes));
    uint8_t *byte = by_alloc_zero(BY_MEM_GRAMMAR, cap);
    if (!sp || !nodes || !byte) {
        by_free(sp);
        by_free(nodes);
        by_free(byte);
        return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory for the trie");
    }
    uint32_t count = 1;
    sp[0] = (span){0, n, 0};
    for (uint32_t i = 0; i < count; i++) {
        span s = sp[i];
        nodes[i].tok_lo = s.lo;
        nodes[i].tok_hi = s.hi;
        nodes[i].depth = (uint8_t)s.depth;
        if (s.depth && s.lo < s.hi && e[s.lo].s.len == s.depth) nodes[i].tok = e[s.lo++].id + 1;
        while (s.lo < s.hi && e[s.lo].s.len == s.depth)
            s.lo++; /* equal byte strings: order[] keeps them */
        nodes[i].first = count;
        for (uint32_t j = s.lo, k; j < s.hi; j = k) {
            uint8_t b = (uint8_t)e[j].s.ptr[s.depth];
            for (k = j + 1; k < s.hi && (uint8_t)e[k].s.ptr[s.depth] == b; k++) {
            }
            byte[count] = b;
            sp[count++] = (span){j, k, s.depth + 1};
            nodes[i].n_child++;
        }
    }
    by_free(sp);
    void *less = by_realloc(BY_MEM_GRAMMAR, nodes, by_mul_size(count, sizeof *nodes)); /* tokens share two thirds of their bytes */
    v->nodes = less ? less : nodes;
    less = by_realloc(BY_MEM_GRAMMAR, byte, count);
    v->byte = less ? less : byte;
    v->n_nodes = count;
    v->node_sig = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(count, sizeof *v->node_sig));
    return v->node_sig ? BY_OK : BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory for the trie");
}

static uint32_t find_node(const by_grammar_vocab *v, by_str s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        uint32_t c = v->nodes[n].first, end = c + v->nodes[n].n_child;
        while (c < end && v->byte[c] != (uint8_t)s.ptr[i])
            c++;
        if (c == end) return 0;
        n = c;
    }
    return n;
}

/* ---- JSON strings ---- */

typedef struct {
    bool inside;    /* the whole token stays in the string */
    uint32_t chars; /* decoded characters, an unfinished one included */
    size_t quote;   /* offset behind the closing quote, 0 = none */
    bool plain;     /* no escape that JSON does not need */
    uint32_t n_text;
    char text[2 * BY_GV_TOKEN_MAX];
} lexed;

/* Reads a \u escape at s[i] ("\u" is read). Returns its length in bytes so far, sets *cp, *cut. */
static size_t lex_hex(by_str s, size_t i, uint32_t *cp, bool *cut, bool *bad) {
    uint32_t v = 0;
    size_t k = 0;
    for (; k < 4 && i + k < s.len; k++) {
        char c = s.ptr[i + k];
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return *bad = true, k;
    }
    *cut = k < 4;
    *cp = v;
    /* A low surrogate alone is no character: its first two digits already show it (dc..df). */
    uint32_t head = k == 4 ? v >> 8 : k == 3 ? v >> 4 : k == 2 ? v : 0;
    if (k >= 2 && head >= 0xdc && head <= 0xdf) *bad = true;
    return k;
}

/* The low surrogate that must follow; false when the token ends before it does. */
static bool lex_low(by_str s, size_t *i, uint32_t *cp, bool *bad) {
    static const char want[] = "\\ud";
    for (unsigned k = 0; k < 6; k++, (*i)++) {
        if (*i == s.len) return false;
        char c = s.ptr[*i];
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (k < 2 ? c != want[k] : d < 0 || (k == 2 && d != 13) || (k == 3 && d < 12)) return *bad = true, false;
        if (k == 3) *cp = 0x10000 + ((*cp - 0xd800) << 10) + ((uint32_t)(d - 12) << 8);
        if (k == 4) *cp += (uint32_t)d << 4;
        if (k == 5) *cp += (uint32_t)d;
    }
    return true;
}

/* Digits of a \u escape that can still be those of a control character without a short escape. */
static bool needed_hex(by_str d) {
    for (size_t k = 0; k < d.len; k++) {
        char c = d.ptr[k];
        if (k < 2 ? c != '0' : k == 2 && c != '0' && c != '1') return false;
        if (k == 3 && d.ptr[2] == '0' && strchr("89aAcCdD", c)) return false;
    }
    return true;
}

static bool lex_escape(lexed *o, by_str s, size_t *i, bool *bad) {
    static const char esc[] = "\"\\/bfnrt", val[] = "\"\\/\b\f\n\r\t";
    uint32_t cp = 0;
    bool cut = false;
    if (*i == s.len) return false;
    char c = s.ptr[(*i)++];
    const char *p = c ? strchr(esc, c) : NULL;
    if (p) {
        cp = (uint8_t)val[p - esc];
        o->plain &= c != '/';
    } else if (c == 'u') {
        size_t from = *i;
        *i += lex_hex(s, *i, &cp, &cut, bad);
        o->plain &= needed_hex(by_str_of(s.ptr + from, *i - from));
        if (*bad || cut) return false;
        if (cp >= 0xd800 && cp <= 0xdbff && !lex_low(s, i, &cp, bad)) return false;
    } else
        return *bad = true, false;
    o->n_text += (uint32_t)by_utf8_put(cp, o->text + o->n_text);
    return true;
}

static void lex(lexed *o, by_str s) {
    *o = (lexed){.plain = true};
    bool bad = false;
    for (size_t i = 0; i < s.len && !bad;) {
        uint8_t b = (uint8_t)s.ptr[i];
        if (b < 0x20) return;
        if (b == '"') {
            o->quote = i + 1;
            return;
        }
        o->chars++;
        if (b == '\\') {
            i++;
            if (!lex_escape(o, s, &i, &bad)) break;
            continue;
        }
        by_utf8_step u = by_utf8_next(s.ptr + i, s.len - i);
        if (u.kind == BY_UTF8_BAD) return;
        if (u.kind == BY_UTF8_CUT) break;
        memcpy(o->text + o->n_text, s.ptr + i, u.n);
        o->n_text += u.n;
        i += u.n;
    }
    o->inside = !bad;
}

static by_status build_json(by_grammar_vocab *v, const entry *e, uint32_t n, by_err *err) {
    uint32_t n_masks = BY_GV_BODY_MAX + 3;
    uint32_t *all = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(by_mul_size(n_masks, v->words), 4));
    if (!all) return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory for string tables");
    for (uint32_t k = 0; k <= BY_GV_BODY_MAX; k++)
        v->body[k] = all + (size_t)k * v->words;
    v->body_all = all + (size_t)(n_masks - 2) * v->words;
    v->body_plain = all + (size_t)(n_masks - 1) * v->words;
    uint32_t cap = 0, cap_text = 0, used = 0;
    by_str last = {0};
    for (uint32_t i = 0; i < n; i++) {
        lexed x;
        lex(&x, e[i].s);
        uint32_t w = e[i].id >> 5, bit = 1u << (e[i].id & 31);
        if (x.inside) {
            v->body_all[w] |= bit;
            if (x.plain) v->body_plain[w] |= bit;
            if (x.chars <= BY_GV_BODY_MAX) v->body[x.chars][w] |= bit;
        }
        if (!x.quote) continue;
        by_str head = by_str_take(e[i].s, x.quote);
        if (last.ptr && by_str_eq(head, last)) continue; /* sorted: equal heads are neighbours */
        last = head;
        if (v->n_exits == cap) {
            cap = cap ? cap * 2 : 256;
            void *p = by_realloc(BY_MEM_GRAMMAR, v->exits, cap * sizeof *v->exits);
            if (!p) return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
            v->exits = p;
        }
        if (used + x.n_text + 1 > cap_text) {
            cap_text = cap_text * 2 + 1024;
            void *p = by_realloc(BY_MEM_GRAMMAR, v->exit_text, cap_text);
            if (!p) return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
            v->exit_text = p;
        }
        memcpy(v->exit_text + used, x.text, x.n_text);
        v->exits[v->n_exits++] = (by_gv_exit){find_node(v, head), x.chars, used, x.n_text, x.plain};
        used += x.n_text;
    }
    for (uint32_t k = 1; k <= BY_GV_BODY_MAX; k++)
        for (uint32_t w = 0; w < v->words; w++)
            v->body[k][w] |= v->body[k - 1][w];
    return BY_OK;
}

typedef struct {
    by_str rest;
    by_gv_item it;
} tail_entry;

static int cmp_tail(const void *a, const void *b) {
    const tail_entry *x = a, *y = b;
    int c = by_str_cmp(x->rest, y->rest);
    return c ? c : (x->it.tok > y->it.tok) - (x->it.tok < y->it.tok);
}

/* Merges the tries below the exits into one, so that a grammar's rest is walked once for all of them. */
static by_status build_tails(by_grammar_vocab *v, by_err *err) {
    uint32_t n = 0, k = 0, total = 1;
    for (uint32_t i = 0; i < v->n_exits; i++)
        n += v->nodes[v->exits[i].node].tok_hi - v->nodes[v->exits[i].node].tok_lo;
    tail_entry *e = by_alloc(BY_MEM_GRAMMAR, (n + 1u) * sizeof *e);
    v->items = by_alloc(BY_MEM_GRAMMAR, (n + 1u) * sizeof *v->items);
    for (uint32_t i = 0; e && i < v->n_exits; i++) {
        const by_gv_node *x = &v->nodes[v->exits[i].node];
        for (uint32_t j = x->tok_lo; j < x->tok_hi; j++, k++) {
            e[k] = (tail_entry){by_str_skip(v->bytes[v->order[j]], x->depth), {v->order[j], i}};
            total += (uint32_t)e[k].rest.len;
        }
    }
    span *sp = by_alloc(BY_MEM_GRAMMAR, total * sizeof *sp);
    v->tails = by_alloc_zero(BY_MEM_GRAMMAR, total * sizeof *v->tails);
    if (!e || !v->items || !sp || !v->tails) {
        by_free(e);
        by_free(sp);
        return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
    }
    qsort(e, n, sizeof *e, cmp_tail);
    v->n_tails = 1;
    sp[0] = (span){0, n, 0};
    for (uint32_t i = 0; i < v->n_tails; i++) {
        span s = sp[i];
        v->tails[i].item_lo = s.lo;
        while (s.lo < s.hi && e[s.lo].rest.len == s.depth)
            s.lo++;
        v->tails[i].item_hi = s.lo;
        v->tails[i].first = v->n_tails;
        for (uint32_t j = s.lo, q; j < s.hi; j = q) {
            uint8_t b = (uint8_t)e[j].rest.ptr[s.depth];
            for (q = j + 1; q < s.hi && (uint8_t)e[q].rest.ptr[s.depth] == b; q++) {
            }
            v->tails[v->n_tails].byte = b;
            sp[v->n_tails++] = (span){j, q, s.depth + 1};
            v->tails[i].n_child++;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        v->items[i] = e[i].it;
    v->n_items = n;
    by_free(e);
    by_free(sp);
    return BY_OK;
}

static by_status build_fit(by_grammar_vocab *v, by_err *err) {
    for (uint32_t i = 0; i <= BY_GV_FIT_MAX; i++) {
        v->fit[i] = by_alloc_zero(BY_MEM_GRAMMAR, (size_t)v->words * 4);
        if (!v->fit[i]) return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
    }
    for (uint32_t id = 0; id < v->n; id++) {
        uint32_t chars = 0;
        for (size_t i = 0; i < v->bytes[id].len; i++)
            chars += ((uint8_t)v->bytes[id].ptr[i] & 0xc0) != 0x80;
        if (chars <= BY_GV_FIT_MAX) v->fit[chars][id >> 5] |= 1u << (id & 31);
    }
    for (uint32_t i = 1; i <= BY_GV_FIT_MAX; i++)
        for (uint32_t k = 0; k < v->words; k++)
            v->fit[i][k] |= v->fit[i - 1][k];
    return BY_OK;
}

static by_status build_labels(by_grammar_vocab *v, by_err *err) {
    uint8_t *kind = by_alloc_zero(BY_MEM_GRAMMAR, v->n_nodes); /* of the bytes above: 0 = no label, 1 = letters and digits, 2 = hyphens too */
    for (int pass = 0; kind && pass < 2; pass++) { /* counts, then fills */
        uint32_t n_tokens = 0, n_ends = 0;
        kind[0] = 1;
        for (uint32_t i = 0; i < v->n_nodes; i++) {
            const by_gv_node *n = &v->nodes[i];
            bool ends = false;
            for (uint32_t c = n->first; kind[i] && c < n->first + n->n_child; c++) {
                unsigned b = v->byte[c];
                ends |= b == '.' || b == '"';
                kind[c] = !by_gv_is_label_byte(b) ? 0 : b == '-' ? 2 : kind[i];
                if (!kind[c] || !v->nodes[c].tok || (kind[c] == 1 && v->nodes[c].depth <= BY_GV_FIT_MAX)) continue;
                if (pass) v->label_tokens[n_tokens] = v->nodes[c].tok - 1;
                n_tokens++;
            }
            if (!ends) continue;
            if (pass) v->label_ends[n_ends] = i;
            n_ends++;
        }
        if (pass) break;
        v->label_tokens = by_alloc(BY_MEM_GRAMMAR, (n_tokens + 1u) * sizeof *v->label_tokens);
        v->label_ends = by_alloc(BY_MEM_GRAMMAR, (n_ends + 1u) * sizeof *v->label_ends);
        v->n_label_tokens = n_tokens;
        v->n_label_ends = n_ends;
        if (!v->label_tokens || !v->label_ends) break;
    }
    bool ok = kind && v->label_tokens && v->label_ends;
    by_free(kind);
    return ok ? BY_OK : BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
}

/* ---- life ---- */

static by_status copy_tokens(by_grammar_vocab *v, const by_grammar_vocab_in *in, by_err *err) {
    size_t total = 1;
    for (uint32_t i = 0; i < in->n_tokens; i++)
        total = by_add_size(total, in->bytes[i].len);
    v->bytes = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(in->n_tokens, sizeof *v->bytes));
    v->blob = by_alloc(BY_MEM_GRAMMAR, total);
    v->control = by_alloc_zero(BY_MEM_GRAMMAR, in->n_tokens);
    v->order = by_alloc(BY_MEM_GRAMMAR, by_mul_size(in->n_tokens, sizeof *v->order));
    if (!v->bytes || !v->blob || !v->control || !v->order)
        return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
    char *at = v->blob;
    for (uint32_t i = 0; i < in->n_tokens; i++) {
        if (in->bytes[i].len) memcpy(at, in->bytes[i].ptr, in->bytes[i].len);
        v->bytes[i] = by_str_of(at, in->bytes[i].len);
        at += in->bytes[i].len;
        if (in->control) v->control[i] = in->control[i];
    }
    return BY_OK;
}

by_status by_grammar_vocab_create(by_grammar_vocab **out, const by_grammar_vocab_in *in, by_err *err) {
    *out = NULL;
    if (in->n_tokens == 0 || in->n_tokens > BY_LIMIT_VOCAB || in->eos >= in->n_tokens)
        return BY_FAIL(err, BY_EINVAL, "vocabulary: %u tokens, end token %u", in->n_tokens, in->eos);
    by_grammar_vocab *v = by_alloc_zero(BY_MEM_GRAMMAR, sizeof *v);
    entry *e = by_alloc(BY_MEM_GRAMMAR, by_mul_size(in->n_tokens, sizeof *e));
    by_status status = v && e ? BY_OK : BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory");
    if (status < 0) goto out;
    pthread_mutex_init(&v->lock, NULL);
    v->n = in->n_tokens;
    v->words = (v->n + 31) / 32;
    v->eos = in->eos;
    BY_TRY_OUT(copy_tokens(v, in, err));
    BY_TRY_OUT(by_gv_groups_init(v, err));
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        by_str s = v->bytes[i];
        if (s.len == 0 || s.len > BY_GV_TOKEN_MAX || v->control[i] || i == v->eos) continue;
        e[n++] = (entry){s, i};
    }
    qsort(e, n, sizeof *e, cmp_entry);
    for (uint32_t i = 0; i < n; i++)
        v->order[i] = e[i].id;
    v->n_order = n;
    BY_TRY_OUT(build_trie(v, e, n, err));
    by_gv_sign_trie(v);
    BY_TRY_OUT(by_gv_holds_init(v, err));
    BY_TRY_OUT(build_fit(v, err));
    BY_TRY_OUT(build_json(v, e, n, err));
    BY_TRY_OUT(build_tails(v, err));
    BY_TRY_OUT(build_labels(v, err));
out:
    by_free(e);
    if (status < 0)
        by_grammar_vocab_destroy(v);
    else
        *out = v;
    return status;
}

void by_grammar_vocab_destroy(by_grammar_vocab *v) {
    if (!v) return;
    for (uint32_t i = 0; i < v->n_bases; i++)
        by_free(v->bases[i].set);
    for (uint32_t i = 0; i <= BY_GV_FIT_MAX; i++)
        by_free(v->fit[i]);
    pthread_mutex_destroy(&v->lock);
    by_free(v->bytes);
    by_free(v->blob);
    by_free(v->control);
    by_free(v->node_sig);
    by_free(v->group_of);
    by_free(v->block_groups);
    by_free(v->text);
    by_free(v->holds);
    by_free(v->order);
    by_free(v->nodes);
    by_free(v->byte);
    by_free(v->body[0]);
    by_free(v->exits);
    by_free(v->exit_text);
    by_free(v->tails);
    by_free(v->items);
    by_free(v->label_tokens);
    by_free(v->label_ends);
    by_free(v);
}

uint32_t by_grammar_vocab_size(const by_grammar_vocab *v) {
    return v->n;
}
uint32_t by_grammar_vocab_eos(const by_grammar_vocab *v) {
    return v->eos;
}
uint32_t by_grammar_mask_words(const by_grammar_vocab *v) {
    return v->words;
}
by_str by_grammar_vocab_bytes(const by_grammar_vocab *v, uint32_t id) {
    return id < v->n ? v->bytes[id] : (by_str){0};
}

int64_t by_grammar_vocab_split(const by_grammar_vocab *v, by_str text, uint32_t *ids, size_t max) {
    size_t k = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t node = 0, best = 0;
        size_t best_len = 0;
        for (size_t i = at; i < text.len; i++) {
            uint32_t c = v->nodes[node].first, end = c + v->nodes[node].n_child;
            while (c < end && v->byte[c] != (uint8_t)text.ptr[i])
                c++;
            if (c == end) break;
            node = c;
            if (v->nodes[node].tok) best = v->nodes[node].tok, best_len = i + 1 - at;
        }
        if (!best || k == max) return -1;
        ids[k++] = best - 1;
        at += best_len;
    }
    return (int64_t)k;
}

bool by_grammar_vocab_is_control(const by_grammar_vocab *v, uint32_t id) {
    return id < v->n && v->control[id];
}
