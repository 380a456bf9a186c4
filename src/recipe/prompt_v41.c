/* prompt_v41.c - the prompt of DeepSeek-V4.1-Flash.
 *
 *   bos [system EFFORT first-system TOOLS FORMAT late-tools] message* (assistant think-start|think-end) [call block opened]
 *
 * Reasoning of earlier turns is kept whole when the conversation has tools and dropped whole when it has none. */
#include <stdio.h>

#include "recipe/prompt_impl.h"

static void put_effort(by_prompt_job *j) {
    static const by_recipe_template_id ids[] = {
        [BY_EFFORT_UNSET] = BY_TEMPLATE_V41_REASONING_EFFORT_HIGH, [BY_EFFORT_LOW] = BY_TEMPLATE_V41_REASONING_EFFORT_LOW,
        [BY_EFFORT_HIGH] = BY_TEMPLATE_V41_REASONING_EFFORT_HIGH,  [BY_EFFORT_XHIGH] = BY_TEMPLATE_V41_REASONING_EFFORT_XHIGH,
        [BY_EFFORT_MAX] = BY_TEMPLATE_V41_REASONING_EFFORT_MAX,    [BY_EFFORT_NUMBER] = BY_TEMPLATE_V41_REASONING_EFFORT_MAX,
    };
    by_recipe_template_id id = ids[j->c->effort];
    if (j->c->effort != BY_EFFORT_NUMBER) {
        by_prompt_put_template(j, id, NULL, NULL);
        return;
    }
    /* the sentence of effort max with another number */
    by_str text = by_str_of(by_recipe_templates[id].parts->text, by_recipe_templates[id].parts->len);
    const char *number = memmem(text.ptr, text.len, "100", 3);
    size_t before = (size_t)(number - text.ptr);
    by_prompt_put(j, by_str_take(text, before));
    by_buf_printf(&j->p->text, "%d", (int)j->c->effort_number);
    by_prompt_put(j, by_str_skip(text, before + 3));
}

static void put_system(by_prompt_job *j, const by_recipe_message *m, bool with_late_tools) {
    by_prompt_put_content(j, m->content);
    if (!with_late_tools || m->n_tools == 0) return;
    by_prompt_tool_list late = {m->tools, m->n_tools, true};
    by_prompt_put_template(j, BY_TEMPLATE_V41_UPDATED_TOOLS_SECTION, by_prompt_put_schema_lines, &late);
}

static bool has_format_text(const by_recipe_conversation *c) {
    return c->format == BY_FORMAT_JSON_OBJECT || c->format == BY_FORMAT_JSON_SCHEMA;
}

/* The opening block. The first system message's late tools stand behind everything else in it. */
static void put_opening(by_prompt_job *j) {
    const by_recipe_conversation *c = j->c;
    const by_recipe_message *first = c->n_messages && j->order[0]->role == BY_ROLE_SYSTEM ? j->order[0] : NULL;
    if (!(c->thinking && c->n_messages) && !first && !j->n_tools && !has_format_text(c)) return;
    by_prompt_put_special(j, BY_SPECIAL_SYSTEM);
    if (c->thinking) put_effort(j);
    if (first) put_system(j, first, false);
    if (j->n_tools) {
        by_prompt_tool_list tools = {j->tools, j->n_tools, false};
        by_prompt_put_template(j, BY_TEMPLATE_V41_TOOLS_SECTION, by_prompt_put_schema_lines, &tools);
    }
    if (c->format == BY_FORMAT_JSON_OBJECT) {
        by_prompt_put_template(j, BY_TEMPLATE_V41_RESPONSE_FORMAT_JSON_OBJECT, NULL, NULL);
    } else if (c->format == BY_FORMAT_JSON_SCHEMA) {
        by_prompt_put_template(j, BY_TEMPLATE_V41_RESPONSE_FORMAT_JSON_SCHEMA, by_prompt_put_schema, c->schema);
    }
    if (first && first->n_tools) {
        by_prompt_tool_list late = {first->tools, first->n_tools, true};
        by_prompt_put_template(j, BY_TEMPLATE_V41_UPDATED_TOOLS_SECTION, by_prompt_put_schema_lines, &late);
    }
}

static void put_assistant(by_prompt_job *j, const by_recipe_message *m, uint32_t at) {
    const by_recipe_conversation *c = j->c;
    bool prefix = m->prefix; /* requests allow it on the last message only */
    bool opened = at > 0 || j->n_tools || has_format_text(c);
    by_prompt_put_special(j, BY_SPECIAL_ASSISTANT);
    if (c->thinking && (j->n_tools || (prefix && opened))) {
        by_prompt_put_special(j, BY_SPECIAL_THINKING_START);
        by_prompt_put(j, m->reasoning);
        bool goes_on = prefix && m->n_calls == 0 && by_recipe_text_is_empty(m->content);
        if (!goes_on) by_prompt_put_special(j, BY_SPECIAL_THINKING_END);
    } else {
        by_prompt_put_special(j, BY_SPECIAL_THINKING_END);
    }
    by_prompt_put_content(j, m->content);
    by_prompt_put_calls(j, m->calls, m->n_calls);
    if (!prefix) by_prompt_put_special(j, BY_SPECIAL_EOS);
}

static void put_message(by_prompt_job *j, uint32_t at) {
    const by_recipe_message *m = j->order[at], *before = at ? j->order[at - 1] : NULL;
    bool joined = before && (before->role == BY_ROLE_USER || before->role == BY_ROLE_TOOL);
    switch (m->role) {
    case BY_ROLE_SYSTEM:
        if (at == 0) return; /* in the opening block */
        by_prompt_put_special(j, BY_SPECIAL_SYSTEM);
        put_system(j, m, true);
        return;
    case BY_ROLE_USER:
    case BY_ROLE_TOOL:
        if (joined) BY_PROMPT_PUT(j, "\n\n");
        else by_prompt_put_special(j, BY_SPECIAL_USER);
        if (m->role == BY_ROLE_TOOL) BY_PROMPT_PUT(j, "<tool_result>");
        by_prompt_put_content(j, m->content);
        if (m->role == BY_ROLE_TOOL) BY_PROMPT_PUT(j, "</tool_result>");
        return;
    case BY_ROLE_LATEST_REMINDER: /* only the first of a row */
        if (before && before->role == BY_ROLE_LATEST_REMINDER) return;
        by_prompt_put_special(j, BY_SPECIAL_LATEST_REMINDER);
        by_prompt_put_content(j, m->content);
        return;
    case BY_ROLE_ASSISTANT: put_assistant(j, m, at); return;
    }
}

void by_prompt_render_v41(by_prompt_job *j) {
    const by_recipe_conversation *c = j->c;
    by_prompt_put_special(j, BY_SPECIAL_BOS);
    put_opening(j);
    for (uint32_t i = 0; i < c->n_messages; i++) put_message(j, i);
    const by_recipe_message *last = c->n_messages ? j->order[c->n_messages - 1] : NULL;
    if (!last || last->role != BY_ROLE_ASSISTANT || !last->prefix) {
        by_prompt_put_special(j, BY_SPECIAL_ASSISTANT);
        by_prompt_put_special(j, c->thinking ? BY_SPECIAL_THINKING_START : BY_SPECIAL_THINKING_END);
    }
    if (c->choice == BY_CHOICE_REQUIRED && j->n_tools) by_prompt_put_template(j, BY_TEMPLATE_V41_REQUIRED_TOOL_SUFFIX, NULL, NULL);
}
