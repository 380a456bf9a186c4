/* prompt_tools.c - tools and calls inside a prompt: one JSON line per tool, and the tag block of an assistant's calls. */
#include <stdlib.h>

#include "json/json_write.h"
#include "base/limits.h"
#include "recipe/prompt_impl.h"

/* The two versions write floats differently. */
static void put_json(by_prompt_job *j, const by_json *v) {
    by_json_write(&j->p->text, v, j->version == BY_RECIPE_V41 ? BY_JSON_PYTHON : BY_JSON_WIDE);
}

size_t by_prompt_put_schema(by_prompt_job *j, const void *json) {
    put_json(j, json);
    return 0;
}

static void put_schema_line(by_prompt_job *j, const by_recipe_tool *t) {
    by_buf *out = &j->p->text;
    BY_PROMPT_PUT(j, "{\"name\": ");
    by_json_write_string(out, t->name);
    BY_PROMPT_PUT(j, ", \"description\": ");
    by_json_write_string(out, t->description);
    BY_PROMPT_PUT(j, ", \"parameters\": ");
    if (t->parameters) put_json(j, t->parameters);
    else BY_PROMPT_PUT(j, "null");
    BY_PROMPT_PUT(j, "}");
}

size_t by_prompt_put_schema_lines(by_prompt_job *j, const void *tool_list) {
    const by_prompt_tool_list *list = tool_list;
    bool first = true;
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->tools[i].defer_loading && !list->all) continue;
        if (!first) BY_PROMPT_PUT(j, "\n");
        put_schema_line(j, &list->tools[i]);
        first = false;
    }
    return first && j->version == BY_RECIPE_V4 ? 1 : 0; /* there the line's end belongs to the line */
}

/* ---- calls ---- */

static void put_tag(by_prompt_job *j, bool close) {
    if (close) BY_PROMPT_PUT(j, "</");
    else BY_PROMPT_PUT(j, "<");
    by_prompt_put_special(j, BY_SPECIAL_DSML);
    if (j->version == BY_RECIPE_V41) BY_PROMPT_PUT(j, " ");
}

/* text = the value is written as it is, without any escape; otherwise as JSON. */
static void put_parameter(by_prompt_job *j, by_str key, const by_json *value) {
    bool text = value->type == BY_JSON_STRING;
    put_tag(j, false);
    BY_PROMPT_PUT(j, "parameter name=\"");
    by_prompt_put(j, key);
    if (text) BY_PROMPT_PUT(j, "\" string=\"true\">");
    else BY_PROMPT_PUT(j, "\" string=\"false\">");
    if (text) by_prompt_put(j, value->v.s);
    else put_json(j, value);
    put_tag(j, true);
    BY_PROMPT_PUT(j, "parameter>");
}

/* Arguments that are not a JSON object become one string parameter with the text as it is. */
static void put_parameters(by_prompt_job *j, by_str arguments) {
    static const by_json_opts opts = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .merge_keys = true};
    by_json v;
    by_status status = by_json_parse(&v, &j->p->scratch, arguments, &opts, NULL);
    if (status == BY_ENOMEM) {
        j->p->failed = true;
        return;
    }
    if (status < 0 || v.type != BY_JSON_OBJECT) {
        by_json text = {.type = BY_JSON_STRING, .v.s = arguments};
        put_parameter(j, BY_STR("arguments"), &text);
        BY_PROMPT_PUT(j, "\n");
        return;
    }
    for (uint32_t i = 0; i < v.n; i++) {
        put_parameter(j, v.v.members[i].key, &v.v.members[i].value);
        BY_PROMPT_PUT(j, "\n");
    }
    if (v.n == 0 && j->version == BY_RECIPE_V41) BY_PROMPT_PUT(j, "\n"); /* V4.1 shows an empty line */
}

static int compare_calls(const void *a, const void *b) {
    const by_recipe_call *const *x = a, *const *y = b;
    int c = by_str_cmp((*x)->id, (*y)->id);
    return c ? c : (*x > *y) - (*x < *y); /* as they were */
}

/* V4 shows calls in the order of their ids. */
static const by_recipe_call **order_calls(by_prompt_job *j, const by_recipe_call *calls, uint32_t n) {
    const by_recipe_call **order = by_arena_alloc(&j->p->scratch, by_mul_size(n, sizeof *order));
    if (!order) return NULL;
    for (uint32_t i = 0; i < n; i++) order[i] = &calls[i];
    if (j->version == BY_RECIPE_V4) qsort(order, n, sizeof *order, compare_calls);
    return order;
}

void by_prompt_put_calls(by_prompt_job *j, const by_recipe_call *calls, uint32_t n) {
    if (n == 0) return;
    const by_recipe_call **order = order_calls(j, calls, n);
    if (!order) {
        j->p->failed = true;
        return;
    }
    BY_PROMPT_PUT(j, "\n\n");
    put_tag(j, false);
    if (j->version == BY_RECIPE_V41) BY_PROMPT_PUT(j, "calls>\n");
    else BY_PROMPT_PUT(j, "tool_calls>\n");
    for (uint32_t i = 0; i < n; i++) {
        put_tag(j, false);
        BY_PROMPT_PUT(j, "invoke name=\"");
        by_prompt_put(j, order[i]->name);
        BY_PROMPT_PUT(j, "\">\n");
        put_parameters(j, order[i]->arguments);
        put_tag(j, true);
        BY_PROMPT_PUT(j, "invoke>\n");
    }
    put_tag(j, true);
    if (j->version == BY_RECIPE_V41) BY_PROMPT_PUT(j, "calls>");
    else BY_PROMPT_PUT(j, "tool_calls>");
}
