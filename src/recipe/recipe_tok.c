/* recipe_tok.c - see recipe_tok.h. */
#include "recipe/recipe_tok.h"

#include "recipe/specials.h"

by_status by_recipe_tok_open(by_tok **out, const char *path, by_err *err) {
    by_str system = by_recipe_specials_default()->text[BY_SPECIAL_SYSTEM]; /* a literal: it ends in NUL */
    const by_tok_override rename = {.id = 128799, .content = system.ptr};
    by_tok *tok = NULL;
    BY_TRY(by_tok_open(&tok, path, NULL, err));
    if (by_tok_find_added(tok, system) < 0 && by_tok_is_added(tok, rename.id)) {
        by_tok_destroy(tok);
        BY_TRY(by_tok_open(&tok, path, &(by_tok_opts){.overrides = &rename, .n_overrides = 1}, err));
    }
    *out = tok;
    return BY_OK;
}
