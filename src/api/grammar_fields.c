/* grammar_fields.c - what limits the text of an answer, in the server profile: response_format and its relatives on all APIs, the
 * fields of other servers (vLLM's structured_outputs and guided_*, SGLang's and llama.cpp's names, so_args), and strict or
 * required tools. All of them end as one by_api_grammar. docs/grammar.md has them in one table. */
#include "api/convert.h"
#include "json/json_write.h"

#define STRICT_OPTIONS "{\"strict\":true}"

/* ---- reading ---- */

static by_status refuse_field(by_convert *cv, const char *field, const char *why) {
    by_at(cv, field);
    return BY_REFUSE(cv, by_str_z(field), BY_STR(": "), by_str_z(why));
}

/* Two fields that limit the answer, unless they say the same. */
static by_status set_grammar(by_convert *cv, by_api_grammar g) {
    by_api_grammar *now = &cv->out->inference.grammar;
    if (now->kind) {
        bool same = strcmp(now->kind, g.kind) == 0 && by_str_eq(now->text, g.text) && by_str_eq(now->options, g.options);
        if (same) return BY_OK;
        by_at(cv, g.field);
        return BY_REFUSE(cv, by_str_z(now->field), BY_STR(" and "), by_str_z(g.field), BY_STR(" both limit the answer: give one"));
    }
    g.bound_id = -1;
    if (g.close == BY_API_CLOSE_UNSAID) g.close = now->close;
    *now = g;
    return BY_OK;
}

static by_status keep(by_convert *cv, by_buf *b, by_str *out) {
    *out = b->failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(b));
    by_buf_deinit(b);
    return out->ptr ? BY_OK : by_no_memory(cv);
}

/* A value as JSON, or a text that is JSON already. */
static by_status json_text(by_convert *cv, const by_json *v, by_str *out) {
    if (v->type == BY_JSON_STRING) return *out = v->v.s, BY_OK;
    by_buf b = {0};
    by_json_write(&b, v, BY_JSON_COMPACT);
    return keep(cv, &b, out);
}

/* EBNF rules have "::=" in them, Lark's have a colon alone. */
static const char *grammar_kind(by_str text) {
    for (size_t i = 0; i + 3 <= text.len; i++)
        if (memcmp(text.ptr + i, "::=", 3) == 0) return "ebnf";
    return "lark";
}

static bool is_set(const by_json *v) { return v && v->type != BY_JSON_NULL; }

/* One grammar out of one value; kind NULL: EBNF or Lark, by its look. */
static by_status set_value(by_convert *cv, const char *field, const char *kind, const by_json *v, by_str options) {
    by_api_grammar g = {.kind = kind, .field = field, .options = options};
    bool json = kind && (strcmp(kind, "json_schema") == 0 || strcmp(kind, "structural_tag") == 0);
    if (kind && strcmp(kind, "choice") == 0) {
        if (v->type != BY_JSON_ARRAY) return refuse_field(cv, field, "a list of texts is expected");
        BY_TRY(json_text(cv, v, &g.text));
    } else if (json) {
        if (v->type == BY_JSON_ARRAY || by_json_is_number(v)) return refuse_field(cv, field, "an object or its text is expected");
        BY_TRY(json_text(cv, v, &g.text));
    } else {
        if (v->type != BY_JSON_STRING) return refuse_field(cv, field, "a text is expected");
        g.text = v->v.s;
        if (!kind) g.kind = grammar_kind(g.text);
    }
    return set_grammar(cv, g);
}

/* ---- options ---- */

/* Members that are true or false, where they are set. */
static by_status check_flags(by_convert *cv, const char *field, const by_json *v, const char *const *flags) {
    for (; v && *flags; flags++) {
        const by_json *x = by_json_get(v, *flags);
        if (!is_set(x) || x->type == BY_JSON_BOOL) continue;
        by_at(cv, field);
        return BY_REFUSE(cv, by_str_z(field), BY_STR("."), by_str_z(*flags), BY_STR(": true or false is expected"));
    }
    return BY_OK;
}

/* Options of grammars as by_grammar_options_read takes them, out of the fields that are set. */
static by_status write_options(by_convert *cv, const by_json *v, const by_json *pattern, bool compact, by_str *out) {
    static const char *const flags[] = {"any_order", "lenient", "strict", "integer_dot_zero"};
    by_buf b = {0};
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    for (uint32_t i = 0; v && i < BY_COUNT(flags); i++) {
        const by_json *f = by_json_get(v, flags[i]);
        if (!by_json_is(f, BY_JSON_BOOL)) continue;
        by_json_out_key(&o, flags[i]);
        by_json_out_bool(&o, f->v.b);
    }
    if (is_set(pattern) || compact) by_json_out_key(&o, "whitespace");
    if (is_set(pattern)) {
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "pattern");
        by_json_out_value(&o, pattern);
        by_json_out_object_end(&o);
    } else if (compact) {
        by_json_out_z(&o, "compact");
    }
    by_json_out_object_end(&o);
    return keep(cv, &b, out);
}

static by_status check_pattern(by_convert *cv, const char *field, const by_json *v) {
    return !is_set(v) || v->type == BY_JSON_STRING ? BY_OK : refuse_field(cv, field, "a text is expected");
}

/* ---- the fields ---- */

static by_status structured_outputs(by_convert *cv, const by_json *v) {
    static const struct {
        const char *key, *field, *kind;
    } rows[] = {{"json", "structured_outputs.json", "json_schema"},       {"regex", "structured_outputs.regex", "regex"},
                {"choice", "structured_outputs.choice", "choice"},        {"grammar", "structured_outputs.grammar", NULL},
                {"lark", "structured_outputs.lark", "lark"},
                {"structural_tag", "structured_outputs.structural_tag", "structural_tag"}};
    if (!is_set(v)) return BY_OK;
    if (v->type != BY_JSON_OBJECT) return refuse_field(cv, "structured_outputs", "an object is expected");
    static const char *const flags[] = {"json_object", "disable_any_whitespace", "any_order", "lenient", "strict",
                                        "integer_dot_zero", "close_by_budget", NULL};
    BY_TRY(check_flags(cv, "structured_outputs", v, flags));
    const by_json *pattern = by_json_get(v, "whitespace_pattern"), *compact = by_json_get(v, "disable_any_whitespace");
    const by_json *object = by_json_get(v, "json_object"), *close = by_json_get(v, "close_by_budget");
    by_str options;
    BY_TRY(check_pattern(cv, "structured_outputs.whitespace_pattern", pattern));
    BY_TRY(write_options(cv, v, pattern, by_json_is(compact, BY_JSON_BOOL) && compact->v.b, &options));
    for (uint32_t i = 0; i < BY_COUNT(rows); i++) {
        const by_json *x = by_json_get(v, rows[i].key);
        if (is_set(x)) BY_TRY(set_value(cv, rows[i].field, rows[i].kind, x, options));
    }
    if (by_json_is(object, BY_JSON_BOOL) && object->v.b) {
        by_api_grammar g = {.kind = "json_object", .field = "structured_outputs.json_object", .options = options};
        BY_TRY(set_grammar(cv, g));
    }
    by_api_grammar *now = &cv->out->inference.grammar;
    if (by_json_is(close, BY_JSON_BOOL)) now->close = close->v.b ? BY_API_CLOSE_YES : BY_API_CLOSE_NO; /* alone: of the format or the tools */
    if (!now->kind && now->close == BY_API_CLOSE_UNSAID) return refuse_field(cv, "structured_outputs", "nothing in it limits the answer");
    return BY_OK;
}

static by_status plain_fields(by_convert *cv, const by_json *body) {
    static const struct {
        const char *field, *kind;
    } rows[] = {{"guided_json", "json_schema"},    {"guided_regex", "regex"},      {"guided_choice", "choice"},
                {"guided_grammar", NULL},          {"json_schema", "json_schema"}, {"regex", "regex"},
                {"ebnf", "ebnf"},                  {"grammar", NULL},              {"lark", "lark"},
                {"structural_tag", "structural_tag"}};
    const by_json *pattern = by_json_get(body, "guided_whitespace_pattern"), *object = by_json_get(body, "guided_json_object");
    by_str options = {0};
    BY_TRY(check_pattern(cv, "guided_whitespace_pattern", pattern));
    if (is_set(pattern)) BY_TRY(write_options(cv, NULL, pattern, false, &options));
    for (uint32_t i = 0; i < BY_COUNT(rows); i++) {
        const by_json *x = by_json_get(body, rows[i].field);
        if (is_set(x)) BY_TRY(set_value(cv, rows[i].field, rows[i].kind, x, options));
    }
    if (is_set(object) && object->type != BY_JSON_BOOL) return refuse_field(cv, "guided_json_object", "true or false is expected");
    if (!is_set(object) || !object->v.b) return BY_OK;
    return set_grammar(cv, (by_api_grammar){.kind = "json_object", .field = "guided_json_object", .options = options});
}

static by_status read_id(by_convert *cv, const char *field, const by_json *v, int32_t *out) {
    int64_t id;
    if (!by_json_int_in(v, 0, INT32_MAX, &id)) return refuse_field(cv, field, "token ids are integers from 0");
    *out = (int32_t)id;
    return BY_OK;
}

/* The engine-level fields of so_args. */
static by_status so_args(by_convert *cv, const by_json *v) {
    static const char *const kinds[] = {"json", "regex", "ebnf", "lark", "choice", "structural_tag", "json_object"};
    enum { TRIGGERS_MAX = 256 };
    if (!is_set(v)) return BY_OK;
    if (v->type != BY_JSON_OBJECT) return refuse_field(cv, "so_args", "an object is expected");
    const by_json *type = by_json_get(v, "schema_type"), *schema = by_json_get(v, "schema");
    const by_json *list = by_json_get(v, "trigger_token_ids"), *bound = by_json_get(v, "bound_token_id");
    if (by_json_get(v, "serialized")) return refuse_field(cv, "so_args.serialized", "not supported: give schema");
    if (by_json_get(v, "bound_token_ids")) return refuse_field(cv, "so_args.bound_token_ids", "not supported: give bound_token_id");
    uint32_t k = 0;
    while (k < BY_COUNT(kinds) && !(by_json_is(type, BY_JSON_STRING) && by_str_eqz(type->v.s, kinds[k]))) k++;
    if (k == BY_COUNT(kinds))
        return refuse_field(cv, "so_args.schema_type", "json, regex, ebnf, lark, choice, structural_tag or json_object is expected");
    const char *kind = k == 0 ? "json_schema" : kinds[k];
    by_api_grammar g = {.kind = kind, .field = "so_args", .options = BY_STR("{\"strict\":true,\"whitespace\":\"any\"}")};
    if (strcmp(kind, "json_object") != 0) {
        if (!by_json_is(schema, BY_JSON_STRING)) return refuse_field(cv, "so_args.schema", "a text is expected");
        g.text = schema->v.s;
    }
    BY_TRY(set_grammar(cv, g));
    by_api_grammar *now = &cv->out->inference.grammar;
    if (is_set(list)) {
        if (list->type != BY_JSON_ARRAY || list->n > TRIGGERS_MAX)
            return refuse_field(cv, "so_args.trigger_token_ids", "a list of at most 256 ids is expected");
        int32_t *ids = BY_MAKE(cv, int32_t, list->n);
        if (!ids) return by_no_memory(cv);
        for (uint32_t i = 0; i < list->n; i++) BY_TRY(read_id(cv, "so_args.trigger_token_ids", &list->v.items[i], &ids[i]));
        now->trigger = ids;
        now->n_trigger = list->n;
    }
    if (!is_set(bound)) return BY_OK;
    if (now->n_trigger == 0) return refuse_field(cv, "so_args.bound_token_id", "needs trigger_token_ids");
    return read_id(cv, "so_args.bound_token_id", bound, &now->bound_id);
}

/* Kinds of response_format that the original does not know. */
static by_status extra_format(by_convert *cv, const by_json *f) {
    static const struct {
        const char *type, *key, *kind;
    } rows[] = {{"structural_tag", NULL, "structural_tag"}, {"ebnf", "grammar", "ebnf"}, {"grammar", "grammar", NULL},
                {"lark", "grammar", "lark"},                {"regex", "pattern", "regex"}};
    const by_json *type = by_json_get(f, "type");
    if (!by_json_is(type, BY_JSON_STRING)) return BY_OK;
    for (uint32_t i = 0; i < BY_COUNT(rows); i++) {
        if (!by_str_eqz(type->v.s, rows[i].type)) continue;
        const by_json *v = rows[i].key ? by_json_get(f, rows[i].key) : f;
        if (!v && by_json_get(f, "regex") && strcmp(rows[i].type, "regex") == 0) return BY_OK; /* the original's spelling */
        if (!v)
            return refuse_field(cv, "response_format",
                                strcmp(rows[i].type, "regex") == 0 ? "pattern: a text is expected" : "grammar: a text is expected");
        return set_value(cv, "response_format", rows[i].kind, v, by_str_of(NULL, 0));
    }
    return BY_OK;
}

const char *const by_extra_formats[] = {"structural_tag", "ebnf", "grammar", "lark", NULL};

bool by_is_extra_format(const by_json *f) {
    const by_json *type = by_json_get(f, "type");
    if (!by_json_is(type, BY_JSON_STRING)) return false;
    for (const char *const *t = by_extra_formats; *t; t++)
        if (by_str_eqz(type->v.s, *t)) return true;
    return by_str_eqz(type->v.s, "regex") && !by_json_get(f, "regex");
}

/* The Messages way: output_format, or output_config.format. */
static by_status messages_format(by_convert *cv, const by_json *body) {
    const by_json *config = by_json_get(body, "output_config");
    const by_json *both[] = {by_json_get(body, "output_format"), config ? by_json_get(config, "format") : NULL};
    static const char *const names[] = {"output_format", "output_config.format"};
    for (int i = 0; i < 2; i++) {
        const by_json *type = is_set(both[i]) ? by_json_get(both[i], "type") : NULL;
        const by_json *schema = is_set(both[i]) ? by_json_get(both[i], "schema") : NULL;
        if (!is_set(both[i])) continue;
        if (!by_json_is(type, BY_JSON_STRING) || !by_str_eqz(type->v.s, "json_schema") || !is_set(schema))
            return refuse_field(cv, names[i], "{\"type\": \"json_schema\", \"schema\": ...} is expected");
        BY_TRY(set_value(cv, names[i], "json_schema", schema, BY_STR(STRICT_OPTIONS)));
    }
    return BY_OK;
}

/* Completions know the formats of Chat; the shapes of Chat check them there. */
static by_status completions_format(by_convert *cv, const by_json *f) {
    const by_json *type = by_json_get(f, "type"), *wrap = by_json_get(f, "json_schema"), *schema = by_json_get(wrap, "schema");
    const by_json *strict = by_json_get(wrap, "strict");
    if (!by_json_is(type, BY_JSON_STRING)) return refuse_field(cv, "response_format", "an object with a type is expected");
    if (by_is_extra_format(f) || by_str_eqz(type->v.s, "text")) return BY_OK;
    if (by_str_eqz(type->v.s, "json_object"))
        return set_grammar(cv, (by_api_grammar){.kind = "json_object", .field = "response_format"});
    if (by_str_eqz(type->v.s, "regex")) return set_value(cv, "response_format", "regex", by_json_get(f, "regex"), by_str_of(NULL, 0));
    if (!by_str_eqz(type->v.s, "json_schema"))
        return refuse_field(cv, "response_format.type", "text, json_object, json_schema, regex, ebnf, lark or structural_tag is expected");
    if (!by_json_is(schema, BY_JSON_OBJECT)) return refuse_field(cv, "response_format.json_schema.schema", "an object is expected");
    if (is_set(strict) && strict->type != BY_JSON_BOOL)
        return refuse_field(cv, "response_format.json_schema.strict", "true or false is expected");
    return set_value(cv, "response_format", "json_schema", schema, is_set(strict) && strict->v.b ? BY_STR(STRICT_OPTIONS) : BY_STR(""));
}

by_status by_read_grammar_fields(by_convert *cv, const by_json *body) {
    const by_json *f = by_json_get(body, "response_format");
    if (is_set(f)) BY_TRY(extra_format(cv, f));
    if (is_set(f) && cv->out->api == BY_API_COMPLETIONS) BY_TRY(completions_format(cv, f));
    if (cv->out->api == BY_API_MESSAGES) BY_TRY(messages_format(cv, body));
    BY_TRY(structured_outputs(cv, by_json_get(body, "structured_outputs")));
    BY_TRY(plain_fields(cv, body));
    return so_args(cv, by_json_get(body, "so_args"));
}

/* ---- strict schemas ---- */

typedef enum { AT_SCHEMA, AT_MAP, AT_LIST, AT_VALUE } place;

static place place_of_key(by_str key) {
    static const char *const maps[] = {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"};
    static const char *const lists[] = {"anyOf", "allOf", "oneOf", "prefixItems"};
    static const char *const schemas[] = {"items", "not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"};
    for (uint32_t i = 0; i < BY_COUNT(maps); i++)
        if (by_str_eqz(key, maps[i])) return AT_MAP;
    for (uint32_t i = 0; i < BY_COUNT(lists); i++)
        if (by_str_eqz(key, lists[i])) return AT_LIST;
    for (uint32_t i = 0; i < BY_COUNT(schemas); i++)
        if (by_str_eqz(key, schemas[i])) return AT_SCHEMA;
    return AT_VALUE;
}

/* A schema as it was sent, with every declared property required where `required` is missing, as strict mode has it. Depth is that of
 * the request. */
static void write_strict(by_json_out *o, const by_json *v, place at) {
    if (v->type == BY_JSON_ARRAY && at != AT_VALUE) {
        by_json_out_array_begin(o);
        for (uint32_t i = 0; i < v->n; i++) write_strict(o, &v->v.items[i], AT_SCHEMA);
        by_json_out_array_end(o);
        return;
    }
    if (v->type != BY_JSON_OBJECT || at == AT_VALUE) {
        by_json_out_value(o, v);
        return;
    }
    by_json_out_object_begin(o);
    for (uint32_t i = 0; i < v->n; i++) {
        by_json_out_key_str(o, v->v.members[i].key);
        write_strict(o, &v->v.members[i].value, at == AT_MAP ? AT_SCHEMA : place_of_key(v->v.members[i].key));
    }
    const by_json *properties = at == AT_SCHEMA ? by_json_get(v, "properties") : NULL;
    if (by_json_is(properties, BY_JSON_OBJECT) && !by_json_get(v, "required")) {
        by_json_out_key(o, "required");
        by_json_out_array_begin(o);
        for (uint32_t i = 0; i < properties->n; i++) by_json_out_string(o, properties->v.members[i].key);
        by_json_out_array_end(o);
    }
    by_json_out_object_end(o);
}

/* The format of the answer; kind NULL: any text. */
static by_status read_format(by_convert *cv, by_api_grammar *g) {
    const by_recipe_conversation *c = &cv->out->conversation;
    g->field = cv->out->api == BY_API_RESPONSES ? "text.format" : "response_format";
    switch (c->format) {
    case BY_FORMAT_TEXT: return BY_OK;
    case BY_FORMAT_JSON_OBJECT: g->kind = "json_object"; return BY_OK;
    case BY_FORMAT_REGEX:
        g->kind = "regex";
        g->text = c->regex;
        return BY_OK;
    case BY_FORMAT_JSON_SCHEMA: break;
    }
    by_buf b = {0};
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    g->kind = "json_schema";
    g->param = cv->out->api == BY_API_RESPONSES ? "text.format.schema" : "response_format.json_schema.schema";
    if (cv->strict_format) g->options = BY_STR(STRICT_OPTIONS);
    if (cv->strict_format) write_strict(&o, c->schema, AT_SCHEMA);
    else by_json_out_value(&o, c->schema);
    return keep(cv, &b, &g->text);
}

/* ---- tools ---- */

/* What limits a text, as a format of structural tags; empty when it has none. */
static by_status format_of(by_convert *cv, const by_api_grammar *g, by_str *out) {
    bool strict = by_str_eq(g->options, BY_STR(STRICT_OPTIONS)), json = strcmp(g->kind, "json_schema") == 0;
    by_buf b = {0};
    *out = (by_str){0};
    if (g->n_trigger || (g->options.len && !strict && !by_str_eq(g->options, BY_STR("{}")))) return BY_OK;
    if (json || strcmp(g->kind, "json_object") == 0) {
        by_buf_push_z(&b, strict ? "{\"type\":\"json_schema\",\"strict\":true,\"json_schema\":" : "{\"type\":\"json_schema\",\"json_schema\":");
        by_buf_push_str(&b, json ? g->text : BY_STR("{\"type\":\"object\"}"));
    } else if (strcmp(g->kind, "structural_tag") == 0) {
        by_buf_push_z(&b, "{\"type\":\"structural_tag\",\"format\":");
        by_buf_push_str(&b, g->text);
    } else if (strcmp(g->kind, "regex") == 0 || strcmp(g->kind, "ebnf") == 0) {
        by_buf_push_z(&b, g->kind[0] == 'r' ? "{\"type\":\"regex\",\"pattern\":" : "{\"type\":\"grammar\",\"grammar\":");
        by_json_write_string(&b, g->text);
    } else {
        return BY_OK;
    }
    by_buf_push_byte(&b, '}');
    return keep(cv, &b, out);
}

static bool is_strict(const by_recipe_tool *t) { return t->strict && *t->strict; }

/* No parameters, or an empty list of them: nothing is passed, as OpenAI's API and the servers that follow it have it. A schema that says
 * nothing of properties is that of any object. */
static bool takes_nothing(const by_recipe_tool *t) {
    static const char *const plain[] = {"type", "properties", "required", "title", "description", "$schema"};
    if (!t->given) return true;
    const by_json *properties = by_json_get(t->given, "properties"), *required = by_json_get(t->given, "required");
    if (!by_json_is(properties, BY_JSON_OBJECT) || properties->n || (required && required->n)) return false;
    for (uint32_t i = 0; i < t->given->n; i++) {
        bool known = false;
        for (uint32_t k = 0; k < BY_COUNT(plain); k++) known = known || by_str_eqz(t->given->v.members[i].key, plain[k]);
        if (!known) return false;
    }
    return true;
}

static by_status tools_grammar(by_convert *cv, by_str without_calls) {
    const by_recipe_conversation *c = &cv->out->conversation;
    by_buf b = {0};
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    by_json_out_array_begin(&o);
    for (uint32_t i = 0; i < c->n_tools; i++) {
        const by_recipe_tool *t = &c->tools[i];
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "name");
        by_json_out_string(&o, t->name);
        by_json_out_key(&o, "strict");
        by_json_out_bool(&o, is_strict(t));
        by_json_out_key(&o, "parameters");
        if (takes_nothing(t)) by_json_out_raw(&o, BY_STR("{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"));
        else if (is_strict(t) && t->given && t->given->type == BY_JSON_OBJECT) write_strict(&o, t->given, AT_SCHEMA);
        else by_json_out_value(&o, t->parameters);
        by_json_out_object_end(&o);
    }
    by_json_out_array_end(&o);
    by_api_grammar g = {.kind = "tools", .field = "tools", .required = c->choice == BY_CHOICE_REQUIRED, .one_call = cv->one_call,
                        .forced = cv->force_call, .without_calls = without_calls};
    if (without_calls.len) {
        g.field = "tools and the format of the answer";
        g.param = "tools";
    }
    BY_TRY(keep(cv, &b, &g.text));
    return set_grammar(cv, g);
}

/* With tools that may be called an answer is calls, or follows what limits it. */
by_status by_set_grammar(by_convert *cv) {
    const by_recipe_conversation *c = &cv->out->conversation;
    by_api_grammar *now = &cv->out->inference.grammar, text = {0};
    bool called = c->n_tools && c->choice != BY_CHOICE_NONE, strict = false;
    bool must = called && (c->choice == BY_CHOICE_REQUIRED || cv->force_call);
    for (uint32_t i = 0; called && i < c->n_tools; i++) strict = strict || is_strict(&c->tools[i]);
    if (!must) BY_TRY(read_format(cv, &text));
    if (!called) return text.kind ? set_grammar(cv, text) : BY_OK;
    if (!must && now->kind && !text.kind) text = *now;
    by_str format = {0};
    if (text.kind) BY_TRY(format_of(cv, &text, &format));
    if (!must && !strict && !format.len) return BY_OK;
    if (format.len && now->kind) {
        if (!by_str_eqz(by_str_z(now->field), text.field)) return set_grammar(cv, text); /* two formats */
        *now = (by_api_grammar){.bound_id = -1, .close = now->close};
    }
    return tools_grammar(cv, format);
}
