/* grammar_groups.c - characters in groups: a set of groups says of many tokens at once what they hold.
 *
 * Printable ASCII characters are a group each; all others are grouped as patterns usually name them: letters by script, marks,
 * digits, punctuation, symbols, spaces. A state that goes on with every character of some groups takes all tokens made of them. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "grammar/grammar_unicode.h"
#include "grammar/grammar_vocab.h"

enum { TAB = 95, LINE, RETURN, CONTROL, DELETE }; /* behind the 95 printable ones */

enum { /* beyond ASCII; spaces are the ones that \s takes */
    LATIN_1 = BY_GV_MULTI, LATIN, GREEK, RUSSIAN, CYRILLIC, HAN, KANA, HANGUL, LETTER, LETTER_HIGH, MARK, DIGIT, NUMBER, PUNCTUATION,
    SYMBOL, SYMBOL_HIGH, OTHER, SPACE
};
_Static_assert(SPACE + 1 == BY_GV_MULTI + BY_GV_N_MULTI, "groups");

unsigned by_gv_group(unsigned b) {
    if (b >= 0x20 && b < 0x7f) return b - 0x20;
    return b == '\t' ? TAB : b == '\n' ? LINE : b == '\r' ? RETURN : b < 0x20 ? CONTROL : DELETE;
}

static bool is_space(uint32_t cp) {
    return cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000 || cp == 0xfeff;
}

static unsigned letter_group(uint32_t cp) {
    if (cp >= 0xc0 && cp <= 0xff) return LATIN_1;
    if (cp < 0x370) return LATIN;
    if (cp < 0x400) return GREEK;
    if ((cp >= 0x410 && cp <= 0x44f) || cp == 0x401 || cp == 0x451) return RUSSIAN;
    if (cp < 0x530) return CYRILLIC;
    if (cp >= 0x3041 && cp <= 0x30ff) return KANA;
    if (cp >= 0x4e00 && cp <= 0x9fff) return HAN;
    if (cp >= 0xac00 && cp <= 0xd7a3) return HANGUL;
    return cp < 0x10000 ? LETTER : LETTER_HIGH;
}

static unsigned group_of(uint32_t cp, const char *category) {
    if (is_space(cp)) return SPACE;
    switch (category[0]) {
    case 'L': return letter_group(cp);
    case 'M': return MARK;
    case 'N': return category[1] == 'd' ? DIGIT : NUMBER;
    case 'P': return PUNCTUATION;
    case 'S': return cp < 0x10000 ? SYMBOL : SYMBOL_HIGH;
    default: return OTHER;
    }
}

by_status by_gv_groups_init(by_grammar_vocab *v, by_err *err) {
    for (unsigned b = 0; b < 128; b++)
        v->group[b] = (uint8_t)by_gv_group(b);
    v->group_of = by_alloc(BY_MEM_GRAMMAR, BY_GV_CODE_POINTS);
    v->block_groups = by_alloc_zero(BY_MEM_GRAMMAR, BY_GV_CODE_POINTS / 64 * sizeof *v->block_groups);
    if (!v->group_of || !v->block_groups) return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory for groups of characters");
    memset(v->group_of, OTHER, BY_GV_CODE_POINTS);
    for (uint32_t i = 0; i < by_gr_uni_category_n; i++) {
        const by_gr_uni_range *r = &by_gr_uni_category[i];
        const char *category = by_gr_uni_category_names[r->value];
        for (uint32_t cp = r->lo < 0x80 ? 0x80 : r->lo; cp <= r->hi; cp++)
            v->group_of[cp] = (uint8_t)group_of(cp, category);
    }
    for (uint32_t cp = 0x80; cp < BY_GV_CODE_POINTS; cp++)
        if (cp < 0xd800 || cp > 0xdfff) v->block_groups[cp / 64] |= 1u << (v->group_of[cp] - BY_GV_MULTI);
    return BY_OK;
}

uint32_t by_gv_groups_in(const by_grammar_vocab *v, uint32_t lo, uint32_t hi) {
    uint32_t groups = 0;
    if (lo < 0x80) lo = 0x80;
    for (uint32_t cp = lo & ~63u; cp <= hi; cp += 64)
        groups |= v->block_groups[cp / 64];
    return groups;
}

/* Groups of the characters that a cut sequence may become. */
static by_gv_sig cut_sig(const by_grammar_vocab *v, by_str s) {
    uint8_t lead = (uint8_t)s.ptr[0];
    unsigned n = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t lo = lead & (0x7fu >> n), hi;
    for (size_t i = 1; i < s.len; i++)
        lo = lo << 6 | ((uint8_t)s.ptr[i] & 0x3f);
    unsigned open = 6 * (n - (unsigned)s.len);
    hi = (lo + 1) << open;
    lo <<= open;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (lo < least[n]) lo = least[n];
    if (hi > BY_GV_CODE_POINTS) hi = BY_GV_CODE_POINTS;
    return (by_gv_sig)by_gv_groups_in(v, lo, hi - 1) << BY_GV_MULTI;
}

by_gv_sig by_gv_text_sig(const by_grammar_vocab *v, by_str s) {
    by_gv_sig sig = 0;
    for (size_t i = 0; i < s.len;) {
        uint8_t b = (uint8_t)s.ptr[i];
        if (b < 0x80) {
            sig |= (by_gv_sig)1 << v->group[b];
            i++;
            continue;
        }
        by_utf8_step u = by_utf8_next(s.ptr + i, s.len - i);
        if (u.kind == BY_UTF8_BAD) return BY_GV_BAD;
        sig |= u.kind == BY_UTF8_CHAR ? (by_gv_sig)1 << v->group_of[u.cp] : cut_sig(v, by_str_skip(s, i));
        i += u.n;
    }
    return sig;
}

/* ---- signatures of the trie ---- */

/* What occurs at and below node c when its byte, or one above it, opened a character that needs more continuation bytes; seen: its
 * bytes so far. A token that ends inside the character counts with all that it may become. */
static by_gv_sig inner_sig(by_grammar_vocab *v, uint32_t c, char seen[4], unsigned n_seen, unsigned need, unsigned lo, unsigned hi) {
    by_gv_sig sig = 0;
    by_gv_node *n = &v->nodes[c];
    n->group = BY_GV_INSIDE;
    if (n->tok) sig = cut_sig(v, by_str_of(seen, n_seen));
    for (uint32_t k = n->first; k < n->first + n->n_child; k++) {
        if (v->byte[k] < lo || v->byte[k] > hi) return v->node_sig[c] = BY_GV_BAD;
        seen[n_seen] = (char)v->byte[k];
        if (need > 1) {
            sig |= inner_sig(v, k, seen, n_seen + 1, need - 1, 0x80, 0xbf);
            continue;
        }
        by_utf8_step u = by_utf8_next(seen, n_seen + 1);
        if (u.kind != BY_UTF8_CHAR) return v->node_sig[c] = BY_GV_BAD;
        v->nodes[k].group = v->group_of[u.cp];
        sig |= (by_gv_sig)1 << v->group_of[u.cp] | v->node_sig[k];
    }
    return v->node_sig[c] = sig;
}

void by_gv_sign_trie(by_grammar_vocab *v) {
    for (uint32_t i = 0; i < v->n_nodes; i++)
        for (uint32_t c = v->nodes[i].first; c < v->nodes[i].first + v->nodes[i].n_child; c++)
            v->nodes[c].chars = (uint8_t)(v->nodes[i].chars + ((v->byte[c] & 0xc0) != 0x80));
    for (uint32_t i = v->n_nodes; i-- > 0;) { /* children stand behind their parents */
        by_gv_node *n = &v->nodes[i];
        by_gv_sig sig = 0;
        for (uint32_t c = n->first; c < n->first + n->n_child; c++) {
            uint8_t b = v->byte[c];
            if (v->nodes[c].height + 1 > n->height) n->height = (uint8_t)(v->nodes[c].height + 1);
            unsigned below = v->nodes[c].below + (unsigned)((b & 0xc0) != 0x80);
            if (below > n->below) n->below = (uint8_t)below;
            if (b < 0x80) {
                v->nodes[c].group = v->group[b];
                sig |= (by_gv_sig)1 << v->group[b] | v->node_sig[c];
            } else if (b < 0xc2 || b > 0xf4) {
                v->nodes[c].group = BY_GV_INSIDE;
                sig |= BY_GV_BAD;
            } else {
                unsigned lo = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80, hi = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
                char seen[4] = {(char)b};
                sig |= inner_sig(v, c, seen, 1, b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3, lo, hi);
            }
        }
        v->node_sig[i] = sig;
    }
}

/* ---- sets of tokens ---- */

/* Whole kinds of groups have tables of their own: what a state does not take are often all of a kind. */
enum { N_KINDS = 6 };
static by_gv_sig kind_sig(unsigned k) {
    static const uint8_t of[N_KINDS][2] = {{'a' - 0x20, 26}, {'A' - 0x20, 26}, {'0' - 0x20, 10},
                                           {0, 16},          {TAB, 5},         {BY_GV_MULTI, BY_GV_N_MULTI}};
    return (((by_gv_sig)1 << of[k][1]) - 1) << of[k][0];
}

by_status by_gv_holds_init(by_grammar_vocab *v, by_err *err) {
    v->text = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(v->words, 4));
    v->holds = by_alloc_zero(BY_MEM_GRAMMAR, by_mul_size(by_mul_size(v->words, 4), BY_GV_GROUPS + N_KINDS));
    if (!v->text || !v->holds) return BY_FAIL(err, BY_ENOMEM, "vocabulary: out of memory for groups of tokens");
    for (uint32_t i = 0; i < v->n_order; i++) {
        uint32_t id = v->order[i];
        by_gv_sig sig = by_gv_text_sig(v, v->bytes[id]);
        if (sig & BY_GV_BAD) continue;
        v->text[id >> 5] |= 1u << (id & 31);
        for (unsigned half = 0; half < 128; half += 64)
            for (uint64_t x = (uint64_t)(sig >> half); x; x &= x - 1)
                v->holds[(size_t)(half + (unsigned)__builtin_ctzll(x)) * v->words + (id >> 5)] |= 1u << (id & 31);
        for (unsigned k = 0; k < N_KINDS; k++)
            if (sig & kind_sig(k)) v->holds[(size_t)(BY_GV_GROUPS + k) * v->words + (id >> 5)] |= 1u << (id & 31);
    }
    return BY_OK;
}

static void take_out(const by_grammar_vocab *v, unsigned table, uint32_t *restrict out) {
    const uint32_t *restrict has = v->holds + (size_t)table * v->words;
    uint32_t i = 0;
    for (; i + 16 <= v->words; i += 16) /* in blocks: vector code */
        for (uint32_t k = 0; k < 16; k++)
            out[i + k] &= ~has[i + k];
    for (; i < v->words; i++)
        out[i] &= ~has[i];
}

/* Tokens without a character of any other group. */
static void fill_base(const by_grammar_vocab *v, by_gv_sig sig, uint32_t *out) {
    by_gv_sig no = ~sig;
    memcpy(out, v->text, (size_t)v->words * 4);
    for (unsigned k = 0; k < N_KINDS; k++)
        if ((no & kind_sig(k)) == kind_sig(k)) take_out(v, BY_GV_GROUPS + k, out), no &= ~kind_sig(k);
    for (unsigned g = 0; g < BY_GV_GROUPS; g++)
        if (no >> g & 1) take_out(v, g, out);
}

/* Under the lock. */
static const uint32_t *base_of(by_grammar_vocab *v, by_gv_sig sig, uint32_t n, bool *no_memory) {
    for (uint32_t i = 0; i < v->n_bases; i++)
        if (v->bases[i].sig == sig && v->bases[i].n == n) return v->bases[i].set;
    const uint32_t *all = n == BY_GV_ANY_LENGTH ? NULL : base_of(v, sig, BY_GV_ANY_LENGTH, no_memory);
    if (v->n_bases == BY_GV_BASES || (!all && n != BY_GV_ANY_LENGTH)) return NULL;
    uint32_t *set = by_alloc(BY_MEM_GRAMMAR, (size_t)v->words * 4);
    *no_memory = !set;
    if (!set) return NULL;
    if (!all) fill_base(v, sig, set);
    for (uint32_t i = 0; all && i < v->words; i++)
        set[i] = all[i] & v->fit[n][i];
    v->bases[v->n_bases++] = (struct by_gv_base){sig, n, set};
    return set;
}

const uint32_t *by_gv_base(const by_grammar_vocab *cv, by_gv_sig sig, uint32_t n, bool *no_memory) {
    by_grammar_vocab *v =
        (by_grammar_vocab *)(uintptr_t)cv; /* a cache behind a lock; the object is logically constant */
    if (n != BY_GV_ANY_LENGTH && n > BY_GV_FIT_MAX) n = BY_GV_FIT_MAX;
    pthread_mutex_lock(&v->lock);
    const uint32_t *out = base_of(v, sig, n, no_memory);
    pthread_mutex_unlock(&v->lock);
    return out;
}
