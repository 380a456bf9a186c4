/* conform_recipe.h - what the kinds of vectors/recipe share. */
#ifndef BY_CLI_CONFORM_RECIPE_H
#define BY_CLI_CONFORM_RECIPE_H

#include "api/api_request.h"
#include "base/utf8.h"
#include "cli/conform.h"
#include "recipe/prompt.h"

/* Default spellings with those of an object {"dsml": "...", ...} over them; overrides may be NULL. The texts are borrowed.
 * Errors: BY_EFORMAT (an unknown key). */
by_status by_conform_specials(const by_json *overrides, by_recipe_specials *out, by_err *err);

/* [[begin, end], ...] in code points. */
void by_conform_write_ranges(by_json_out *o, const by_recipe_prompt *p);

/* The options of a row ("options"; NULL = defaults); specials is room for overridden spellings. Errors: BY_EFORMAT. */
by_status by_conform_options(by_arena *arena, const by_json *options, by_recipe_specials *specials, by_api_options *o,
                             by_err *err);

/* {"ok": false, "error": {...}} of kind convert. */
void by_conform_write_error(by_json_out *o, const by_api_error *e);

/* A float with the digits that it needs, which are fewer than those of the double it becomes. */
void by_conform_write_float(by_json_out *o, float v);

/* Members for an open object: the prompt ("prompt", "special_ranges", "image_sources"), and what else a request says
 * ("thinking_mode" ... "inference", "namespace_tool_map"). */
void by_conform_write_prompt(by_json_out *o, const by_recipe_prompt *p);
void by_conform_write_settings(by_json_out *o, const by_api_converted *c);

#endif
