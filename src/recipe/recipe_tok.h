/* recipe_tok.h - the tokenizer file as V4.1 uses it. */
#ifndef BY_RECIPE_RECIPE_TOK_H
#define BY_RECIPE_RECIPE_TOK_H

#include "base/err.h"
#include "tok/tok.h"

/* Opens a tokenizer.json for V4.1 prompts. A file without `<｜System｜>` (the one of V4) gets it in the place that V4.1 gives
 * it, id 128799, when that is an added token there; any other file is taken as it is. *out is set only on success; the caller
 * destroys it. Errors: those of by_tok_open. */
by_status by_recipe_tok_open(by_tok **out, const char *path, by_err *err);

#endif
