/* grammar_dsml.c - DeepSeek V4.1 tool calls as a structural tag. */
#include "base/arena.h"
#include "grammar/grammar.h"
#include "json/json.h"
#include "json/json_write.h"

#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"

/* The tool's own object, out of {"type": "function", "function": {...}} or itself. */
static const by_json *function_of(const by_json *tool) {
    const by_json *f = by_json_get(tool, "function");
    return f ? f : tool;
}

static void write_tag(by_buf *out, const by_json *f) {
    const by_json *params = by_json_get(f, "parameters");
    if (!params) params = by_json_get(f, "input_schema");
    by_buf begin = {0};
    by_buf_push_z(&begin, "<" DSML " invoke name=\"");
    by_buf_push_str(&begin, by_json_get(f, "name")->v.s);
    by_buf_push_z(&begin, "\">\n");
    by_buf_push_z(out, "{\"type\":\"tag\",\"begin\":");
    by_json_write_string(out, by_buf_str(&begin));
    const by_json *strict = by_json_get(f, "strict");
    by_buf_push_z(out, ",\"content\":{\"type\":\"json_schema\",\"style\":\"deepseek_v4_1_xml\",");
    by_buf_push_z(out, by_json_is(strict, BY_JSON_BOOL) && strict->v.b ? "\"strict\":true," : "\"lenient\":true,");
    by_buf_push_z(out, "\"json_schema\":");
    if (by_json_is(params, BY_JSON_OBJECT))
        by_json_write(out, params, BY_JSON_COMPACT);
    else
        by_buf_push_z(out, "{\"type\":\"object\"}");
    by_buf_push_z(out, "},\"end\":\"\\n</" DSML " invoke>\\n\"}");
    by_buf_deinit(&begin);
}

/* What stands before the calls, and behind them. */
static void write_head(by_buf *out, const by_grammar_dsml_opts *o) {
    by_buf_push_z(out, "{\"type\":\"structural_tag\",\"format\":");
    if (!o->required && !o->forced && !o->text.len) {
        by_buf_push_z(out, "{\"type\":\"triggered_tags\",\"triggers\":[\"<" DSML " calls>\"],\"stop_after_first\":true,\"tags\":["
                           "{\"type\":\"tag\",\"begin\":\"<" DSML " calls>\\n\",\"content\":");
        return;
    }
    if (!o->required && !o->forced) {
        by_buf_push_z(out, "{\"type\":\"or\",\"elements\":[");
        by_buf_push_str(out, o->text);
        by_buf_push_byte(out, ',');
    }
    by_buf_push_z(out, "{\"type\":\"sequence\",\"elements\":[");
    if (!o->required) by_buf_push_z(out, "{\"type\":\"const_string\",\"value\":\"\\n\\n<" DSML " calls>\\n\"},");
}

static void write_end(by_buf *out, const by_grammar_dsml_opts *o) {
    bool free_text = !o->required && !o->forced && !o->text.len;
    by_buf_push_z(out, free_text ? ",\"end\":\"</" DSML " calls>\"}]}"
                                 : ",{\"type\":\"const_string\",\"value\":\"</" DSML " calls>\"}]}");
    if (!o->required && !o->forced && o->text.len) by_buf_push_z(out, "]}");
    by_buf_push_byte(out, '}');
}

by_status by_grammar_dsml_tag(by_buf *out, by_str tools_json, const by_grammar_dsml_opts *opts, by_err *err) {
    by_arena a;
    by_json tools;
    by_arena_init(&a, BY_MEM_GRAMMAR);
    by_status status = by_json_parse(&tools, &a, tools_json, NULL, err);
    if (status >= 0 && tools.type != BY_JSON_ARRAY) status = BY_FAIL(err, BY_EINVAL, "tools: a list is expected");
    uint32_t n = 0;
    if (status >= 0) {
        write_head(out, opts);
        by_buf_push_z(out, "{\"type\":\"tags_with_separator\",\"separator\":\"\",\"at_least_one\":true,");
        by_buf_push_z(out, opts->one_call ? "\"stop_after_first\":true,\"tags\":[" : "\"tags\":[");
    }
    for (uint32_t i = 0; status >= 0 && i < tools.n; i++) {
        const by_json *f = function_of(&tools.v.items[i]), *own = by_json_get(f, "name");
        if (!by_json_is(own, BY_JSON_STRING))
            status = BY_FAIL(err, BY_EINVAL, "tools[%u].name: a string is expected", i);
        else if (!opts->name.len || by_str_eq(own->v.s, opts->name)) {
            if (n++) by_buf_push_byte(out, ',');
            write_tag(out, f);
        }
    }
    if (status >= 0 && n == 0)
        status = BY_FAIL(err, BY_EINVAL, opts->name.len ? "tools: there is no tool %.*s" : "tools: the list is empty%.*s",
                         BY_STR_ARG(opts->name));
    if (status >= 0) {
        by_buf_push_z(out, "]}");
        write_end(out, opts);
        status = by_buf_check(out, err);
    }
    by_arena_deinit(&a);
    return status;
}
