/* specials.c - see specials.h. */
#include "recipe/specials.h"

static const struct {
    const char *name, *key;
} names[BY_SPECIAL_N] = {
#define ROW(id, name, key, spelling) [id] = {name, key},
    BY_RECIPE_SPECIAL_TABLE(ROW)
#undef ROW
};

const by_recipe_specials *by_recipe_specials_default(void) {
    static const by_recipe_specials table = {.text = {
#define ROW(id, name, key, spelling) [id] = {spelling, sizeof spelling - 1},
                                                 BY_RECIPE_SPECIAL_TABLE(ROW)
#undef ROW
                                             }};
    return &table;
}

const char *by_recipe_special_name(by_recipe_special token) {
    return (unsigned)token < BY_SPECIAL_N ? names[token].name : "?";
}

static bool find(by_str word, bool key, by_recipe_special *out) {
    for (int i = 0; i < BY_SPECIAL_N; i++)
        if (by_str_eqz(word, key ? names[i].key : names[i].name)) return *out = (by_recipe_special)i, true;
    return false;
}

bool by_recipe_special_by_name(by_str name, by_recipe_special *out) { return find(name, false, out); }
bool by_recipe_special_by_key(by_str key, by_recipe_special *out) { return find(key, true, out); }
