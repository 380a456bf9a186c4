/* capi_recipe_impl.h - what the files of the recipe's C API share. Not for other modules. */
#ifndef BY_CAPI_RECIPE_CAPI_RECIPE_IMPL_H
#define BY_CAPI_RECIPE_CAPI_RECIPE_IMPL_H

#include "api/api_request.h"
#include "bathyc/recipe.h"
#include "recipe/prompt.h"
#include "tok/tok.h"

struct bathyc_recipe_request {
    by_arena arena;
    by_api_options options; /* models are copied into the arena */
    by_api_converted converted;
    bathyc_recipe_info info;
    by_recipe_prompt prompt;
    by_tok_ids ids;
    bathyc_range *public_ranges; /* what the caller was given last */
    bathyc_image *images;
};

/* The tokenizer and the scratch behind the public names. */
static inline const by_tok *by_capi_recipe_tok(const bathyc_recipe_tok *tok) { return (const by_tok *)tok; }
static inline by_tok_scratch *by_capi_recipe_scratch(bathyc_recipe_scratch *s) { return (by_tok_scratch *)s; }

/* Fills *out (may be NULL) from a failure and returns the public code of a status; BATHYC_OK for BY_OK. */
int by_capi_recipe_result(bathyc_error *out, by_status status, const by_err *err);

#endif
