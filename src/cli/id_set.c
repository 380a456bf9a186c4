/* id_set.c - see id_set.h. Open addressing with linear steps. */
#include "cli/id_set.h"

#include "base/alloc.h"

void by_id_set_init(by_id_set *s) {
    *s = (by_id_set){0};
    by_arena_init(&s->arena, BY_MEM_MISC);
}

void by_id_set_deinit(by_id_set *s) {
    by_free(s->table);
    by_arena_deinit(&s->arena);
    *s = (by_id_set){0};
}

static uint64_t hash_of(by_str id) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a, then mixed: its low bits are weak */
    for (size_t i = 0; i < id.len; i++) h = (h ^ (unsigned char)id.ptr[i]) * 0x100000001b3u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static by_id_entry *place_of(const by_id_set *s, by_str id, uint64_t hash) {
    size_t at = hash & (s->cap - 1);
    while (s->table[at].id.ptr && !(s->table[at].hash == hash && by_str_eq(s->table[at].id, id))) at = (at + 1) & (s->cap - 1);
    return &s->table[at];
}

static bool grow(by_id_set *s) {
    by_id_set bigger = {.cap = s->cap ? s->cap * 2 : 64};
    bigger.table = by_alloc_zero(BY_MEM_MISC, by_mul_size(bigger.cap, sizeof *bigger.table));
    if (!bigger.table) return false;
    for (size_t i = 0; i < s->cap; i++)
        if (s->table[i].id.ptr) *place_of(&bigger, s->table[i].id, s->table[i].hash) = s->table[i];
    by_free(s->table);
    s->table = bigger.table;
    s->cap = bigger.cap;
    return true;
}

uint8_t *by_id_set_marks(by_id_set *s, by_str id) {
    if (2 * (s->n + 1) > s->cap && !grow(s)) return NULL;
    uint64_t hash = hash_of(id);
    by_id_entry *e = place_of(s, id, hash);
    if (!e->id.ptr) {
        by_str copy = by_arena_dup(&s->arena, id);
        if (!copy.ptr) return NULL;
        *e = (by_id_entry){.id = copy, .hash = hash};
        s->n++;
    }
    return &e->marks;
}
