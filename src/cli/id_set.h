/* id_set.h - a set of texts with a byte of marks each, in one growing table. For commands that have to know every id of a
 * file. One thread. */
#ifndef BY_CLI_ID_SET_H
#define BY_CLI_ID_SET_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

typedef struct by_id_entry {
    by_str id; /* ptr NULL: empty */
    uint64_t hash;
    uint8_t marks;
} by_id_entry;

typedef struct by_id_set {
    by_id_entry *table; /* [cap], a power of two, at most half full */
    size_t n, cap;
    by_arena arena;     /* the texts */
} by_id_set;

void by_id_set_init(by_id_set *s);
void by_id_set_deinit(by_id_set *s);

/* Marks of an id, which is added with none when it is new; valid until the next call. NULL when memory is out. */
uint8_t *by_id_set_marks(by_id_set *s, by_str id);

#endif
