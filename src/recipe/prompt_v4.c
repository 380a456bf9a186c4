/* prompt_v4.c - the prompt of DeepSeek-V4-Pro.
 *
 *   bos EFFORT system-texts TOOLS FORMAT message* (assistant think-start|think-end) [call block opened]
 *
 * It has no system token: all system messages, wherever they stand, are joined at the start. Every latest_reminder is
 * written, and a user text in front of a tool result does not share its turn. Reasoning of earlier turns is shown when the
 * conversation has tools, thinking or not. */
#include "recipe/prompt_impl.h"

static void put_effort(by_prompt_job *j) {
    by_recipe_template_id id = BY_TEMPLATE_V4_REASONING_EFFORT_HIGH;
    switch (j->c->effort) {
    case BY_EFFORT_LOW: id = BY_TEMPLATE_V4_REASONING_EFFORT_LOW; break;
    case BY_EFFORT_MAX: id = BY_TEMPLATE_V4_REASONING_EFFORT_MAX; break;
    case BY_EFFORT_NUMBER: /* V4 knows no numbers: the nearest of V4.1's 50, 75 and 100 decides */
        if (j->c->effort_number <= 62) id = BY_TEMPLATE_V4_REASONING_EFFORT_LOW;
        else if (j->c->effort_number >= 88) id = BY_TEMPLATE_V4_REASONING_EFFORT_MAX;
        break;
    default: break;
    }
    by_prompt_put_template(j, id, NULL, NULL);
}

static void put_systems(by_prompt_job *j) {
    bool any = false;
    for (uint32_t i = 0; i < j->c->n_messages; i++) {
        const by_recipe_message *m = &j->c->messages[i];
        if (m->role != BY_ROLE_SYSTEM || by_recipe_text_is_empty(m->content)) continue;
        if (any) BY_PROMPT_PUT(j, "\n\n");
        by_prompt_put_content(j, m->content);
        any = true;
    }
}

/* last: nothing but system messages follows. */
static void put_assistant(by_prompt_job *j, const by_recipe_message *m, bool last) {
    by_prompt_put_special(j, BY_SPECIAL_ASSISTANT);
    if (m->has_reasoning && (j->n_tools || m->prefix)) {
        by_prompt_put_special(j, BY_SPECIAL_THINKING_START);
        by_prompt_put(j, m->reasoning);
    }
    bool goes_on = m->prefix && j->c->thinking && by_recipe_text_is_empty(m->content);
    if (!goes_on) by_prompt_put_special(j, BY_SPECIAL_THINKING_END);
    by_prompt_put_content(j, m->content);
    by_prompt_put_calls(j, m->calls, m->n_calls);
    if (!(m->prefix && last)) by_prompt_put_special(j, BY_SPECIAL_EOS);
}

/* Texts of users in a row are one text; system messages in between do not count. */
static void put_user(by_prompt_job *j, const by_recipe_message *m) {
    const by_recipe_message *end = j->c->messages + j->c->n_messages;
    bool filled = false;
    for (; m < end && (m->role == BY_ROLE_USER || m->role == BY_ROLE_SYSTEM); m++) {
        if (m->role == BY_ROLE_SYSTEM) continue;
        bool empty = by_recipe_text_is_empty(m->content);
        if (filled && !empty) BY_PROMPT_PUT(j, "\n\n");
        by_prompt_put_content(j, m->content);
        filled = filled || !empty;
    }
}

/* Users or a tool. They follow the tool result in front of them in its turn; a tool result behind a user begins one. */
static void put_turn(by_prompt_job *j, const by_recipe_message *m, const by_recipe_message *before) {
    bool tool = m->role == BY_ROLE_TOOL, goes_on = before && (before->role == BY_ROLE_TOOL || (!tool && before->role == BY_ROLE_USER));
    if (goes_on) BY_PROMPT_PUT(j, "\n\n");
    else by_prompt_put_special(j, BY_SPECIAL_USER);
    if (!tool) {
        put_user(j, m);
        return;
    }
    BY_PROMPT_PUT(j, "<tool_result>");
    by_prompt_put_content(j, m->content);
    BY_PROMPT_PUT(j, "</tool_result>");
}

static void put_format(by_prompt_job *j) {
    if (j->c->format == BY_FORMAT_JSON_OBJECT)
        by_prompt_put_template(j, BY_TEMPLATE_V4_RESPONSE_FORMAT_JSON_OBJECT, NULL, NULL);
    else if (j->c->format == BY_FORMAT_JSON_SCHEMA)
        by_prompt_put_template(j, BY_TEMPLATE_V4_RESPONSE_FORMAT_JSON_SCHEMA, by_prompt_put_schema, j->c->schema);
}

void by_prompt_render_v4(by_prompt_job *j) {
    const by_recipe_conversation *c = j->c;
    by_prompt_put_special(j, BY_SPECIAL_BOS);
    if (c->thinking) put_effort(j);
    put_systems(j);
    if (j->n_tools) {
        by_prompt_tool_list tools = {j->tools, j->n_tools, false};
        by_prompt_put_template(j, BY_TEMPLATE_V4_TOOLS_SECTION, by_prompt_put_schema_lines, &tools);
    }
    put_format(j);
    uint32_t n = j->n_order;
    for (uint32_t i = 0; i < n; i++) {
        const by_recipe_message *m = j->order[i];
        if (m->role == BY_ROLE_ASSISTANT) {
            put_assistant(j, m, i + 1 == n);
        } else if (m->role == BY_ROLE_LATEST_REMINDER) {
            by_prompt_put_special(j, BY_SPECIAL_LATEST_REMINDER);
            by_prompt_put_content(j, m->content);
        } else {
            put_turn(j, m, i ? j->order[i - 1] : NULL);
        }
    }
    const by_recipe_message *last = n ? j->order[n - 1] : NULL;
    if (!last || last->role != BY_ROLE_ASSISTANT || !last->prefix) {
        by_prompt_put_special(j, BY_SPECIAL_ASSISTANT);
        by_prompt_put_special(j, c->thinking ? BY_SPECIAL_THINKING_START : BY_SPECIAL_THINKING_END);
    }
    if (c->choice == BY_CHOICE_REQUIRED && j->n_tools) by_prompt_put_template(j, BY_TEMPLATE_V4_REQUIRED_TOOL_SUFFIX, NULL, NULL);
}
