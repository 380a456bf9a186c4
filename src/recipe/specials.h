/* specials.h - the special tokens of the chat format and how they are spelt.
 *
 * A caller may use other spellings (another checkpoint): fill a by_recipe_specials and pass it where one is taken. All
 * spellings are UTF-8 and not empty. Ids are not known here: they come from the tokenizer file of the model. */
#ifndef BY_RECIPE_SPECIALS_H
#define BY_RECIPE_SPECIALS_H

#include <stdbool.h>

#include "base/str.h"

/* enum value, name in vectors and bindings, key of an override, default spelling */
#define BY_RECIPE_SPECIAL_TABLE(X)                                                                                     \
    X(BY_SPECIAL_BOS, "Bos", "bos", "<｜begin▁of▁sentence｜>")                                                         \
    X(BY_SPECIAL_EOS, "Eos", "eos", "<｜end▁of▁sentence｜>")                                                           \
    X(BY_SPECIAL_THINKING_START, "ThinkingStart", "thinking_start", "<think>")                                         \
    X(BY_SPECIAL_THINKING_END, "ThinkingEnd", "thinking_end", "</think>")                                              \
    X(BY_SPECIAL_SYSTEM, "System", "system", "<｜System｜>")                                                           \
    X(BY_SPECIAL_USER, "User", "user", "<｜User｜>")                                                                   \
    X(BY_SPECIAL_ASSISTANT, "Assistant", "assistant", "<｜Assistant｜>")                                               \
    X(BY_SPECIAL_LATEST_REMINDER, "LatestReminder", "latest_reminder", "<｜latest_reminder｜>")                        \
    X(BY_SPECIAL_DSML, "Dsml", "dsml", "｜DSML｜")                                                                     \
    X(BY_SPECIAL_IMAGE, "Image", "image", "<｜image｜>")                                                               \
    X(BY_SPECIAL_REF, "Ref", "ref", "<｜ref｜>")                                                                       \
    X(BY_SPECIAL_REF_END, "RefEnd", "ref_end", "<｜/ref｜>")                                                           \
    X(BY_SPECIAL_BOX, "Box", "box", "<｜box｜>")                                                                       \
    X(BY_SPECIAL_BOX_END, "BoxEnd", "box_end", "<｜/box｜>")                                                           \
    X(BY_SPECIAL_POINT, "Point", "point", "<｜point｜>")                                                               \
    X(BY_SPECIAL_POINT_END, "PointEnd", "point_end", "<｜/point｜>")                                                   \
    X(BY_SPECIAL_POLYGON, "Polygon", "polygon", "<｜polygon｜>")                                                       \
    X(BY_SPECIAL_POLYGON_END, "PolygonEnd", "polygon_end", "<｜/polygon｜>")

typedef enum by_recipe_special {
#define BY_RECIPE_SPECIAL_ENUM(id, name, key, spelling) id,
    BY_RECIPE_SPECIAL_TABLE(BY_RECIPE_SPECIAL_ENUM)
#undef BY_RECIPE_SPECIAL_ENUM
    BY_SPECIAL_N
} by_recipe_special;

typedef struct by_recipe_specials {
    by_str text[BY_SPECIAL_N];
} by_recipe_specials;

/* The default spellings; lives for ever. */
const by_recipe_specials *by_recipe_specials_default(void);

/* "Bos"; "?" outside the table. */
const char *by_recipe_special_name(by_recipe_special token);

/* Finds a token by its name ("Bos") or override key ("bos"); false when there is none. */
bool by_recipe_special_by_name(by_str name, by_recipe_special *out);
bool by_recipe_special_by_key(by_str key, by_recipe_special *out);

#endif
