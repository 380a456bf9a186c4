/* responses_tools.c - tools of Responses requests: functions, namespaces, the patch tool, tool search; and their texts. */
#include "api/responses.h"
#include "json/json_write.h"
#include "recipe/templates.h"

/* ---- adding ---- */

static by_status add_tool(by_convert *cv, by_responses_tools *t, by_recipe_tool tool) {
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 16;
        by_recipe_tool *fresh = BY_MAKE(cv, by_recipe_tool, cap);
        by_place *places = BY_MAKE(cv, by_place, cap);
        if (!fresh || !places) return by_no_memory(cv);
        if (t->n) memcpy(fresh, t->tools, t->n * sizeof *fresh);
        if (t->n) memcpy(places, t->places, t->n * sizeof *places);
        t->tools = fresh;
        t->places = places;
        t->cap = cap;
    }
    t->places[t->n] = cv->at;
    t->tools[t->n++] = tool;
    return BY_OK;
}

static by_status add_namespace(by_convert *cv, by_responses_tools *t, by_api_namespace entry) {
    if (t->n_namespaces == t->cap_namespaces) {
        uint32_t cap = t->cap_namespaces ? t->cap_namespaces * 2 : 16;
        by_api_namespace *fresh = BY_MAKE(cv, by_api_namespace, cap);
        if (!fresh) return by_no_memory(cv);
        if (t->n_namespaces) memcpy(fresh, t->namespaces, t->n_namespaces * sizeof *fresh);
        t->namespaces = fresh;
        t->cap_namespaces = cap;
    }
    t->namespaces[t->n_namespaces++] = entry;
    return BY_OK;
}

static by_str text_of(const by_json *v) { return by_given(v) ? v->v.s : by_str_of(NULL, 0); }

/* place[i] */
static by_status item_place(by_convert *cv, by_str place, uint32_t i, by_str *out) {
    const by_str parts[] = {place, BY_STR("["), by_number_text(cv, i), BY_STR("]")};
    return by_join(cv, parts, 4, by_str_of(NULL, 0), out);
}

static by_recipe_tool function_tool(const by_json *record) {
    const by_json *description = by_field(record, RT_DESCRIPTION), *strict = by_field(record, RT_STRICT);
    return (by_recipe_tool){.name = by_field(record, RT_NAME)->v.s,
                            .description = text_of(description),
                            .has_description = by_given(description),
                            .parameters = by_field(record, RT_PARAMETERS),
                            .strict = by_given(strict) ? &strict->v.b : NULL};
}

/* What stands between namespace and name. */
static by_str joint(const by_convert *cv) { return cv->out->version == BY_RECIPE_V41 ? BY_STR("::") : BY_STR("__"); }

/* Taken by a namespace member, or by a function of the tools so far or of the list being added. */
static bool is_taken(const by_responses_tools *t, const by_json *list, by_str name) {
    for (uint32_t i = 0; i < t->n; i++)
        if (by_str_eq(t->tools[i].name, name)) return true;
    for (uint32_t i = 0; i < list->n; i++)
        if (by_variant(&list->v.items[i]) == RT_FUNCTION && by_str_eq(by_field(&list->v.items[i], RT_NAME)->v.s, name))
            return true;
    return false;
}

/* "ns::name", with _1, _2 ... behind it when that is taken. */
static by_status map_name(by_convert *cv, const by_responses_tools *t, const by_json *list, by_str ns, by_str name,
                          by_str *out) {
    const by_str parts[] = {ns, joint(cv), name};
    BY_TRY(by_join(cv, parts, 3, by_str_of(NULL, 0), out));
    by_str base = *out;
    for (uint64_t k = 1; is_taken(t, list, *out); k++) {
        const by_str numbered[] = {base, BY_STR("_"), by_number_text(cv, k)};
        BY_TRY(by_join(cv, numbered, 3, by_str_of(NULL, 0), out));
    }
    return BY_OK;
}

static by_status add_member(by_convert *cv, by_responses_tools *t, const by_json *list, const by_json *space,
                            const by_json *record) {
    by_recipe_tool tool = function_tool(record);
    by_api_namespace entry = {.ns = by_field(space, RT_NAME)->v.s, .local = tool.name};
    BY_TRY(map_name(cv, t, list, entry.ns, entry.local, &entry.mapped));
    tool.name = entry.mapped;
    by_str shared = text_of(by_field(space, RT_DESCRIPTION));
    if (shared.len && cv->out->version == BY_RECIPE_V41) {
        const by_str parts[] = {shared, tool.description};
        BY_TRY(by_join(cv, parts, 2, BY_STR("\n"), &tool.description));
        tool.has_description = true;
    }
    BY_TRY(add_namespace(cv, t, entry));
    return add_tool(cv, t, tool);
}

static by_status check_members(by_convert *cv, const by_json *list, by_str place) {
    by_str_set names;
    by_str members_place;
    const by_str parts[] = {place, BY_STR(".tools")};
    BY_TRY(by_join(cv, parts, 2, by_str_of(NULL, 0), &members_place));
    BY_TRY(by_str_set_init(cv, &names, list->n));
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *record = &list->v.items[i];
        by_str name = by_field(record, RT_NAME)->v.s, at;
        uint32_t *value;
        bool custom = by_variant(record) == 1;
        if (custom || !by_is_tool_name(name)) BY_TRY(item_place(cv, members_place, i, &at));
        cv->at = (by_place){place.ptr, -1, ".tools", i, NULL};
        if (custom)
            return BY_REFUSE(cv, BY_STR("Currently custom tools are not allowed inside a namespace. Found custom tool '"), name,
                             BY_STR("' in "), at, BY_STR("."));
        if (!by_is_tool_name(name)) return by_refuse_tool_name(cv, name, at);
        if (!by_str_set_add(&names, name, &value))
            return BY_REFUSE(cv, BY_STR("Tool names within a namespace must be unique."));
    }
    return BY_OK;
}

/* Names of entry i of a list at a place. */
static by_status check_names(by_convert *cv, const by_json *record, by_str place, uint32_t i) {
    if (by_variant(record) != RT_FUNCTION && by_variant(record) != RT_NAMESPACE) return BY_OK;
    by_str name = by_field(record, RT_NAME)->v.s;
    if (by_variant(record) == RT_FUNCTION && by_is_tool_name(name)) return BY_OK;
    BY_TRY(item_place(cv, place, i, &place));
    if (!by_is_tool_name(name)) return by_refuse_tool_name(cv, name, place);
    return check_members(cv, by_field(record, RT_TOOLS), place);
}

static by_status add_all_members(by_convert *cv, by_responses_tools *t, const by_json *all, const by_json *space) {
    enum { MEMBERS_MAX = 4096 }; /* a clash is looked for among all of them */
    const by_json *list = by_field(space, RT_TOOLS);
    if (t->n_namespaces + list->n > MEMBERS_MAX)
        return BY_REFUSE(cv, BY_STR("Too many tools in namespaces: the limit is "), by_number_text(cv, MEMBERS_MAX));
    by_place outer = cv->at;
    for (uint32_t i = 0; i < list->n; i++) {
        cv->at = by_place_in(outer, ".tools", i);
        BY_TRY(add_member(cv, t, all, space, &list->v.items[i]));
    }
    return BY_OK;
}

static by_status add_patch_tool(by_convert *cv, by_responses_tools *t, by_str name) {
    if (!by_str_eqz(name, "apply_patch"))
        return BY_REFUSE(cv, BY_STR("Unsupported custom tool: '"), name, BY_STR("'. Only 'apply_patch' is supported."));
    by_json json;
    if (by_json_parse(&json, cv->arena, by_recipe_apply_patch_json, NULL, NULL) < 0) return by_no_memory(cv);
    by_json *parameters = BY_MAKE(cv, by_json, 1);
    if (!parameters) return by_no_memory(cv);
    *parameters = *by_json_get(&json, "parameters");
    by_str description = by_json_get(&json, "description")->v.s;
    if (cv->out->version == BY_RECIPE_V4) { /* V4's text lacks the first empty line */
        size_t at = (size_t)((const char *)memmem(description.ptr, description.len, "\n\n", 2) - description.ptr);
        const by_str parts[] = {by_str_take(description, at), by_str_skip(description, at + 1)};
        BY_TRY(by_join(cv, parts, 2, by_str_of(NULL, 0), &description));
    }
    return add_tool(cv, t, (by_recipe_tool){.name = name,
                                            .description = description,
                                            .has_description = true,
                                            .parameters = parameters});
}

static by_status add_search_tool(by_convert *cv, by_responses_tools *t, const by_json *record) {
    const by_json *execution = by_field(record, RT_SEARCH_EXECUTION), *d = by_field(record, RT_SEARCH_DESCRIPTION);
    if (cv->out->version == BY_RECIPE_V4 || !by_given(execution) || execution->v.i != RE_CLIENT) return BY_OK;
    return add_tool(cv, t, (by_recipe_tool){.name = BY_STR("tool_search"),
                                            .description = text_of(d),
                                            .has_description = by_given(d),
                                            .parameters = by_field(record, RT_SEARCH_PARAMETERS)});
}

by_status by_responses_check_names(by_convert *cv, const by_json *list, by_str place) {
    for (uint32_t i = 0; i < list->n; i++) BY_TRY(check_names(cv, &list->v.items[i], place, i));
    return BY_OK;
}

by_status by_responses_add_tools(by_convert *cv, by_responses_tools *t, const by_json *list, by_str place) {
    by_place outer = cv->at;
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *record = &list->v.items[i];
        BY_TRY(check_names(cv, record, place, i));
        cv->at = by_place_in(outer, NULL, i);
        switch (by_variant(record)) {
        case RT_FUNCTION: BY_TRY(add_tool(cv, t, function_tool(record))); break;
        case RT_NAMESPACE: BY_TRY(add_all_members(cv, t, list, record)); break;
        case RT_CUSTOM: BY_TRY(add_patch_tool(cv, t, by_field(record, RT_NAME)->v.s)); break;
        case RT_TOOL_SEARCH: BY_TRY(add_search_tool(cv, t, record)); break;
        case RT_WEB_SEARCH:
        case RT_WEB_SEARCH_2025:
            if (cv->opt->reject_responses_web_search) return BY_REFUSE(cv, BY_STR("Server tools are not supported"));
            break;
        default: break;
        }
    }
    return BY_OK;
}

by_status by_responses_mapped_name(by_convert *cv, const by_responses_tools *t, by_str ns, by_str name, by_str *out) {
    for (uint32_t i = 0; i < t->n_namespaces; i++) {
        if (!by_str_eq(t->namespaces[i].ns, ns) || !by_str_eq(t->namespaces[i].local, name)) continue;
        *out = t->namespaces[i].mapped;
        return BY_OK;
    }
    const by_str parts[] = {ns, joint(cv), name};
    return by_join(cv, parts, 3, by_str_of(NULL, 0), out);
}

/* ---- writing ---- */

static void put_value(by_json_out *o, const char *key, const by_json *v) {
    by_json_out_key(o, key);
    by_json_out_value(o, v);
}

static void put_word(by_json_out *o, const char *key, const by_json *v, const char *const *words) {
    by_json_out_key(o, key);
    by_json_out_z(o, by_given(v) ? words[v->v.i] : NULL);
}

static void put_function(by_json_out *o, const by_json *record, const by_json *space) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, "function");
    put_value(o, "name", by_field(record, RT_NAME));
    put_value(o, "description", by_field(record, RT_DESCRIPTION));
    put_value(o, "parameters", by_field(record, RT_PARAMETERS));
    put_value(o, "strict", by_field(record, RT_STRICT));
    if (space) {
        by_json_out_key(o, "namespace");
        by_json_out_object_begin(o);
        put_value(o, "name", by_field(space, RT_NAME));
        by_json_out_key(o, "description");
        by_json_out_string(o, text_of(by_field(space, RT_DESCRIPTION)));
        by_json_out_object_end(o);
    }
    by_json_out_object_end(o);
}

static void put_custom(by_json_out *o, const by_json *record) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, "custom");
    put_value(o, "name", by_field(record, RT_NAME));
    by_json_out_object_end(o);
}

static void put_namespace(by_json_out *o, const by_json *record, bool flat) {
    const by_json *list = by_field(record, RT_TOOLS);
    if (!flat) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "type");
        by_json_out_z(o, "namespace");
        put_value(o, "name", by_field(record, RT_NAME));
        put_value(o, "description", by_field(record, RT_DESCRIPTION));
        by_json_out_key(o, "tools");
        by_json_out_array_begin(o);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        if (by_variant(&list->v.items[i]) == 1) put_custom(o, &list->v.items[i]);
        else put_function(o, &list->v.items[i], flat ? record : NULL);
    }
    if (!flat) {
        by_json_out_array_end(o);
        by_json_out_object_end(o);
    }
}

static void put_search(by_json_out *o, const by_json *record) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, "tool_search");
    put_word(o, "execution", by_field(record, RT_SEARCH_EXECUTION), by_responses_execution_words);
    put_value(o, "description", by_field(record, RT_SEARCH_DESCRIPTION));
    put_value(o, "parameters", by_field(record, RT_SEARCH_PARAMETERS));
    by_json_out_object_end(o);
}

static void put_web_search(by_json_out *o, const by_json *record) {
    static const char *const keys[] = {"city", "country", "region", "timezone"};
    const by_json *location = by_field(record, RT_WEB_LOCATION);
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, by_variant(record) == RT_WEB_SEARCH ? "web_search" : "web_search_2025_08_26");
    put_word(o, "search_context_size", by_field(record, RT_WEB_SIZE), by_responses_level_words);
    by_json_out_key(o, "user_location");
    if (by_given(location)) {
        by_json_out_object_begin(o);
        for (uint32_t i = 0; i < BY_COUNT(keys); i++) put_value(o, keys[i], by_field(location, i));
        by_json_out_object_end(o);
    } else {
        by_json_out_null(o);
    }
    by_json_out_object_end(o);
}

static by_status put_tool(by_convert *cv, by_json_out *o, const by_json *record, bool flat, by_str place) {
    switch (by_variant(record)) {
    case RT_FUNCTION: put_function(o, record, NULL); break;
    case RT_NAMESPACE: put_namespace(o, record, flat); break;
    case RT_CUSTOM: put_custom(o, record); break;
    case RT_TOOL_SEARCH: put_search(o, record); break;
    case RT_WEB_SEARCH:
    case RT_WEB_SEARCH_2025: put_web_search(o, record); break;
    default:
        if (flat) return BY_REFUSE(cv, place, BY_STR(": the enum variant ResponsesTool::Unsupported cannot be serialized"));
    }
    return BY_OK;
}

by_status by_responses_write_tools(by_convert *cv, const by_json *list, bool flat, by_str place, by_str *out) {
    by_buf text = {0};
    by_json_out o = by_json_out_init(&text, BY_JSON_COMPACT);
    by_status status = BY_OK;
    by_json_out_array_begin(&o);
    for (uint32_t i = 0; status == BY_OK && i < list->n; i++) status = put_tool(cv, &o, &list->v.items[i], flat, place);
    by_json_out_array_end(&o);
    if (status == BY_OK) {
        *out = text.failed ? by_str_of(NULL, 0) : by_arena_dup(cv->arena, by_buf_str(&text));
        if (!out->ptr) status = by_no_memory(cv);
    }
    by_buf_deinit(&text);
    return status;
}
