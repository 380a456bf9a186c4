/* prompt.h - conversation -> prompt text, the ranges of it that are special tokens, and token ids.
 *
 * Text of messages never counts as special, whatever it spells: only what the renderer itself writes is in a range, so a
 * user who types "</think>" gets ordinary tokens. Rules: docs/recipe.md; goldens: tests/golden/data/recipe. */
#ifndef BY_RECIPE_PROMPT_H
#define BY_RECIPE_PROMPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "recipe/conversation.h"
#include "recipe/specials.h"
#include "tok/tok.h"

/* Zero-initialise; the same prompt may be rendered into again and again and keeps its memory. One thread. */
typedef struct by_recipe_prompt {
    by_buf text;
    by_tok_range *ranges; /* [n_ranges] bytes of text, ascending, disjoint; each spells one token */
    size_t n_ranges, cap_ranges;
    const by_recipe_image **images; /* [n_images] sources in the order of the prompt, borrowed from the conversation */
    size_t n_images, cap_images;
    by_arena scratch;
    bool failed; /* memory ran out */
} by_recipe_prompt;

void by_recipe_prompt_deinit(by_recipe_prompt *p);

/* Replaces the content of *out. specials NULL = default spellings. c need not come from a request: unknown call ids, calls
 * without tool results and the like are rendered as they are. Errors: BY_ENOMEM. */
by_status by_recipe_render(by_recipe_prompt *out, const by_recipe_conversation *c, by_recipe_version version,
                           const by_recipe_specials *specials, by_err *err);

/* A prompt without chat format: bos and the text; with a suffix, bos, fim-begin, text, fim-hole, suffix, fim-end. suffix
 * may be NULL. Errors: BY_ENOMEM. */
by_status by_recipe_render_completion(by_recipe_prompt *out, by_str text, const by_str *suffix,
                                      const by_recipe_specials *specials, by_err *err);

/* Appends the ids of a rendered prompt. Errors: those of by_tok_encode_ranges; BY_EMISSING when the tokenizer lacks a
 * spelling (the V4 file has no system token: V4.1 prompts need an override). */
by_status by_recipe_encode(by_tok_ids *out, const by_recipe_prompt *prompt, const by_tok *tok, by_tok_scratch *scratch,
                           by_err *err);

#endif
