/* name_map.h - string to small number, for the names of a checkpoint. Keys are copied; numbers are given in order of
 * first insertion, 0, 1, 2, ... Open addressing, at most half full. A key set made to collide ends in BY_ELIMIT instead
 * of quadratic time. One thread while adding; lookups may be concurrent. */
#ifndef BY_MODEL_NAME_MAP_H
#define BY_MODEL_NAME_MAP_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

typedef struct by_name_map {
    by_arena text;   /* copies of the keys, NUL-terminated */
    by_str *keys;    /* [n] */
    uint32_t *slots; /* number + 1, 0 = free */
    uint32_t n, cap_keys, n_slots;
} by_name_map;

void by_name_map_init(by_name_map *m);
void by_name_map_deinit(by_name_map *m);

/* Number of key, -1 when absent. */
int64_t by_name_map_find(const by_name_map *m, by_str key);

/* Number of key, added when absent. Errors: BY_ENOMEM, BY_ELIMIT. */
by_status by_name_map_add(by_name_map *m, by_str key, uint32_t *number, by_err *err);

#endif
