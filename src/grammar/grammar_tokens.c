/* grammar_tokens.c - sets of tokens: gathered as a list of ids beside whole sets of others, as bits only when they are many. */
#include "grammar/grammar_mask.h"
#include "grammar/grammar_vocab.h"

/* In blocks, which compilers turn into vector code without being asked. */
static void or_bits(uint32_t *restrict to, const uint32_t *restrict from, uint32_t words) {
    uint32_t i = 0;
    for (; i + 16 <= words; i += 16)
        for (uint32_t k = 0; k < 16; k++)
            to[i + k] |= from[i + k];
    for (; i < words; i++)
        to[i] |= from[i];
}

static void or_ids(uint32_t *bits, const uint32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        bits[ids[i] >> 5] |= 1u << (ids[i] & 31);
}

by_gr_tokens *by_gr_tokens_begin(by_gr *g, unsigned level) {
    by_gr_tokens *o = g->making[level];
    size_t words = g->vocab->words;
    if (!o) {
        o = by_alloc(BY_MEM_GRAMMAR, sizeof *o + words * 4);
        if (!o) return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
        g->making[level] = o;
        o->words = (uint32_t)words;
        o->bits = (uint32_t *)(void *)(o + 1);
    }
    o->n_base = o->n_ids = 0;
    o->dense = false;
    return o;
}

void by_gr_tokens_spill(by_gr_tokens *o) {
    if (o->n_base) memcpy(o->bits, o->base[0], (size_t)o->words * 4);
    else memset(o->bits, 0, (size_t)o->words * 4);
    for (uint32_t i = 1; i < o->n_base; i++)
        or_bits(o->bits, o->base[i], o->words);
    or_ids(o->bits, o->ids, o->n_ids);
    o->n_base = o->n_ids = 0;
    o->dense = true;
}

void by_gr_tokens_add_set(by_gr_tokens *o, const uint32_t *set) {
    for (uint32_t i = 0; i < o->n_base; i++)
        if (o->base[i] == set) return;
    if (!o->dense && o->n_base == BY_GR_BASES) by_gr_tokens_spill(o);
    if (o->dense) or_bits(o->bits, set, o->words);
    else o->base[o->n_base++] = set;
}

void by_gr_tokens_add_mask(by_gr_tokens *o, const by_gr_mask *m) {
    if (m->bits) by_gr_tokens_add_set(o, m->bits);
    for (uint32_t i = 0; i < m->n_base; i++)
        by_gr_tokens_add_set(o, m->base[i]);
    for (uint32_t i = 0; i < m->n_ids; i++)
        by_gr_tokens_add(o, m->ids[i]);
}

by_gr_mask *by_gr_tokens_keep(by_gr *g, const by_gr_tokens *o) {
    size_t bytes = sizeof(by_gr_mask) + (size_t)o->n_ids * 4;
    by_gr_mask *m = by_alloc(BY_MEM_GRAMMAR, bytes);
    uint32_t *bits = m && o->dense ? by_alloc(BY_MEM_GRAMMAR, (size_t)o->words * 4) : NULL;
    if (!m || (o->dense && !bits)) {
        by_free(m);
        return by_gr_fail(g, BY_ENOMEM, "grammar: out of memory"), NULL;
    }
    *m = (by_gr_mask){.n_base = o->n_base, .n_ids = o->n_ids, .bits = bits, .bytes = bytes};
    memcpy(m->base, o->base, sizeof m->base[0] * o->n_base);
    if (o->n_ids) memcpy(m + 1, o->ids, (size_t)o->n_ids * 4);
    m->ids = (const uint32_t *)(const void *)(m + 1);
    if (bits) {
        memcpy(bits, o->bits, (size_t)o->words * 4);
        m->bytes += (size_t)o->words * 4;
    }
    return m;
}

void by_gr_mask_free(by_gr_mask *m) {
    if (!m) return;
    by_free(m->bits);
    by_free(m->exits);
    by_free(m->open);
    by_free(m);
}

void by_gr_mask_write(const by_gr *g, const by_gr_mask *m, uint32_t *words) {
    uint32_t n = g->vocab->words;
    const uint32_t *first = m->bits ? m->bits : m->n_base ? m->base[0] : NULL;
    if (first) memcpy(words, first, (size_t)n * 4);
    else memset(words, 0, (size_t)n * 4);
    for (uint32_t i = 1; i < m->n_base; i++)
        or_bits(words, m->base[i], n);
    or_ids(words, m->ids, m->n_ids);
}
