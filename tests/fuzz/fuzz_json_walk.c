/* fuzz_json_walk.c - the pull reader and the tree reader accept the same texts. They differ by intent in one point: the
 * walk does not convert numbers, so it passes over one that no double holds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "json/json_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    by_str text = by_str_of((const char *)data, size);
    by_arena arena;
    by_json tree;
    by_err err = {0}, walk_err = {0};
    if (!by_utf8_valid(text, NULL)) return 0;
    by_arena_init(&arena, BY_MEM_JSON);
    by_status parsed = by_json_parse(&tree, &arena, text, NULL, &err);
    bool number = strstr(err.msg, "number out of range") != NULL;
    by_json_walk w;
    by_json_walk_init(&w, text);
    by_status walked = by_json_walk_skip(&w, &walk_err);
    if (walked == BY_OK) walked = by_json_walk_finish(&w, &walk_err);
    if ((parsed == BY_OK) != (walked == BY_OK) && !number) abort();
    by_json_walk_deinit(&w);
    if (parsed == BY_OK && tree.type == BY_JSON_OBJECT) { /* keys and strings decode alike, in order */
        by_str key, value;
        uint32_t i = 0;
        by_json_walk_init(&w, text);
        if (by_json_walk_begin_object(&w, NULL) != BY_OK) abort();
        for (; by_json_walk_member(&w, &key, NULL) == BY_OK; i++) {
            if (i >= tree.n || !by_str_eq(key, tree.v.members[i].key)) abort();
            const by_json *v = &tree.v.members[i].value;
            bool string = by_json_walk_peek(&w) == BY_JSON_STRING;
            if (string != (v->type == BY_JSON_STRING)) abort();
            if (!string && by_json_walk_skip(&w, NULL) != BY_OK) abort();
            if (string && (by_json_walk_string(&w, &value, NULL) != BY_OK || !by_str_eq(value, v->v.s))) abort();
        }
        if (i != tree.n) abort();
        by_json_walk_deinit(&w);
    }
    by_arena_deinit(&arena);
    return 0;
}
