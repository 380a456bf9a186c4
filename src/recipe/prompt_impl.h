/* prompt_impl.h - what the files of the renderer share: prompt.c (entry, writing), prompt_v41.c, prompt_v4.c,
 * prompt_tools.c (schema lines, call blocks), prompt_order.c (order of tool results). */
#ifndef BY_RECIPE_PROMPT_IMPL_H
#define BY_RECIPE_PROMPT_IMPL_H

#include "recipe/prompt.h"
#include "recipe/templates.h"

/* One rendering. All writing goes to p; failures are collected in p->failed and p->text.failed. */
typedef struct by_prompt_job {
    by_recipe_prompt *p;
    const by_recipe_conversation *c;
    const by_recipe_specials *specials;
    const by_recipe_message **order; /* [n_order] the messages with tool results in the order of their calls; V4: without
                                      * system messages, and with the first only of messages of users in a row */
    uint32_t n_order;
    const by_recipe_tool *tools;     /* those of c, none when the choice is none */
    uint32_t n_tools;
    by_recipe_version version;
} by_prompt_job;

/* prompt.c */
static inline void by_prompt_put(by_prompt_job *j, by_str s) { by_buf_push(&j->p->text, s.ptr, s.len); }
#define BY_PROMPT_PUT(j, literal) by_buf_push(&(j)->p->text, (literal), sizeof(literal) - 1)
void by_prompt_put_special(by_prompt_job *j, by_recipe_special token);
void by_prompt_put_content(by_prompt_job *j, by_recipe_text t);
/* Parts of a template; fill writes the slot (NULL when there is none) and returns how many bytes of the text behind the
 * slot are left out. */
typedef size_t by_prompt_fill(by_prompt_job *j, const void *arg);
void by_prompt_put_template(by_prompt_job *j, by_recipe_template_id id, by_prompt_fill *fill, const void *arg);

/* prompt_v41.c, prompt_v4.c */
void by_prompt_render_v41(by_prompt_job *j);
void by_prompt_render_v4(by_prompt_job *j);

/* prompt_tools.c: the spaces between the dsml token and the tag names, and the block's name, differ between versions. */
typedef struct by_prompt_tool_list {
    const by_recipe_tool *tools;
    uint32_t n;
    bool all; /* deferred ones too */
} by_prompt_tool_list;
by_prompt_fill by_prompt_put_schema_lines; /* by_prompt_tool_list */
by_prompt_fill by_prompt_put_schema;       /* by_json */
void by_prompt_put_calls(by_prompt_job *j, const by_recipe_call *calls, uint32_t n);

/* prompt_order.c */
bool by_prompt_order_v41(by_prompt_job *j);
bool by_prompt_order_v4(by_prompt_job *j);

#endif
