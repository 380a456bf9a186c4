/* templates.h - the fixed strings of the prompt, cut where a special token or a variable part stands.
 *
 * The files in src/recipe/templates are the source; tools/gen_recipe_templates.py turns them into templates_data.c, and
 * tests/unit/test_templates.c checks that both agree. */
#ifndef BY_RECIPE_TEMPLATES_H
#define BY_RECIPE_TEMPLATES_H

#include <stdint.h>

#include "base/str.h"
#include "recipe/specials.h"

enum { BY_PART_TEXT = -1, BY_PART_SLOT = -2 };

typedef struct by_recipe_part {
    const char *text; /* BY_PART_TEXT */
    uint32_t len;
    int32_t what; /* BY_PART_TEXT, BY_PART_SLOT or a by_recipe_special */
} by_recipe_part;

typedef struct by_recipe_template {
    const char *name; /* of the file, without ".txt" */
    const by_recipe_part *parts;
    uint32_t n;
} by_recipe_template;

typedef enum by_recipe_template_id {
    BY_TEMPLATE_V41_REASONING_EFFORT_LOW,
    BY_TEMPLATE_V41_REASONING_EFFORT_HIGH,
    BY_TEMPLATE_V41_REASONING_EFFORT_XHIGH,
    BY_TEMPLATE_V41_REASONING_EFFORT_MAX,
    BY_TEMPLATE_V41_REQUIRED_TOOL_SUFFIX,
    BY_TEMPLATE_V41_RESPONSE_FORMAT_JSON_OBJECT,
    BY_TEMPLATE_V41_RESPONSE_FORMAT_JSON_SCHEMA, /* slot: the schema */
    BY_TEMPLATE_V41_TOOLS_SECTION,               /* slot: schema lines */
    BY_TEMPLATE_V41_UPDATED_TOOLS_SECTION,       /* slot: schema lines */
    BY_TEMPLATE_V4_REASONING_EFFORT_LOW,
    BY_TEMPLATE_V4_REASONING_EFFORT_HIGH,
    BY_TEMPLATE_V4_REASONING_EFFORT_XHIGH,
    BY_TEMPLATE_V4_REASONING_EFFORT_MAX,
    BY_TEMPLATE_V4_REQUIRED_TOOL_SUFFIX,
    BY_TEMPLATE_V4_RESPONSE_FORMAT_JSON_OBJECT,
    BY_TEMPLATE_V4_RESPONSE_FORMAT_JSON_SCHEMA,
    BY_TEMPLATE_V4_TOOLS_SECTION,
    BY_TEMPLATE_V4_MESSAGES_MID_SYSTEM, /* slot: the text */
    BY_TEMPLATE_N
} by_recipe_template_id;

extern const by_recipe_template by_recipe_templates[BY_TEMPLATE_N];

/* The tool behind Responses' custom tool "apply_patch": an object with name, description and parameters. */
extern const by_str by_recipe_apply_patch_json;

#endif
