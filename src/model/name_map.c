/* name_map.c - see name_map.h. */
#include "model/name_map.h"

#include <string.h>

enum { FIRST_SLOTS = 1024, MAX_PROBES = 2048 };

void by_name_map_init(by_name_map *m) {
    memset(m, 0, sizeof *m);
    by_arena_init(&m->text, BY_MEM_MODEL);
}

void by_name_map_deinit(by_name_map *m) {
    by_free(m->keys);
    by_free(m->slots);
    by_arena_deinit(&m->text);
    memset(m, 0, sizeof *m);
}

/* FNV-1a over words of eight bytes, finished by the mixer of SplitMix64. */
static uint64_t hash(by_str s) {
    uint64_t h = 0xcbf29ce484222325u ^ s.len;
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) {
        uint64_t w;
        memcpy(&w, s.ptr + i, 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    for (; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001b3u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

/* Slot that holds key, or the free one where it belongs; -1 after too many probes. */
static int64_t probe(const by_name_map *m, by_str key) {
    uint32_t mask = m->n_slots - 1, at = (uint32_t)hash(key) & mask;
    for (int i = 0; i < MAX_PROBES; i++, at = (at + 1) & mask) {
        uint32_t v = m->slots[at];
        if (v == 0 || by_str_eq(m->keys[v - 1], key)) return at;
    }
    return -1;
}

int64_t by_name_map_find(const by_name_map *m, by_str key) {
    if (m->n_slots == 0) return -1;
    int64_t at = probe(m, key);
    return at >= 0 ? (int64_t)m->slots[at] - 1 : -1;
}

static by_status grow(by_name_map *m, by_err *err) {
    uint32_t n_slots = m->n_slots ? m->n_slots * 2 : FIRST_SLOTS;
    uint32_t *fresh = by_alloc_zero(BY_MEM_MODEL, by_mul_size(n_slots, sizeof *fresh));
    if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for %u names", m->n);
    by_free(m->slots);
    m->slots = fresh;
    m->n_slots = n_slots;
    for (uint32_t i = 0; i < m->n; i++) {
        int64_t at = probe(m, m->keys[i]);
        if (at < 0) return BY_FAIL(err, BY_ELIMIT, "too many names collide");
        m->slots[at] = i + 1;
    }
    return BY_OK;
}

by_status by_name_map_add(by_name_map *m, by_str key, uint32_t *number, by_err *err) {
    if ((m->n + 1) * 2 > m->n_slots) BY_TRY(grow(m, err));
    int64_t at = probe(m, key);
    if (at < 0) return BY_FAIL(err, BY_ELIMIT, "too many names collide");
    if (m->slots[at]) {
        *number = m->slots[at] - 1;
        return BY_OK;
    }
    if (m->n == m->cap_keys) {
        uint32_t cap = m->cap_keys ? m->cap_keys * 2 : FIRST_SLOTS;
        by_str *fresh = by_realloc(BY_MEM_MODEL, m->keys, by_mul_size(cap, sizeof *fresh));
        if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for %u names", m->n);
        m->keys = fresh;
        m->cap_keys = cap;
    }
    by_str copy = by_arena_dup(&m->text, key);
    if (!copy.ptr) return BY_FAIL(err, BY_ENOMEM, "out of memory for %u names", m->n);
    *number = m->n;
    m->keys[m->n++] = copy;
    m->slots[at] = m->n;
    return BY_OK;
}
