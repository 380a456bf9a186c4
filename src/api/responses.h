/* responses.h - what the files of the Responses conversion share. */
#ifndef BY_API_RESPONSES_H
#define BY_API_RESPONSES_H

#include "api/convert.h"
#include "api/responses_shape.h"

/* Tools of the request, and those that searches found on the way. */
typedef struct by_responses_tools {
    by_recipe_tool *tools;
    by_place *places; /* [n]: of each */
    uint32_t n, cap;
    by_api_namespace *namespaces;
    uint32_t n_namespaces, cap_namespaces;
} by_responses_tools;

/* A list of tool records becomes entries of t; place is the text in front of "[0].name" ("tools", "input[1].tools"), and cv->at its list.
 * Entries are checked one by one; names alone, of all entries, by the second function. */
by_status by_responses_add_tools(by_convert *cv, by_responses_tools *t, const by_json *list, by_str place);
by_status by_responses_check_names(by_convert *cv, const by_json *list, by_str place);
/* The name in the prompt of a function of a namespace: the first that was mapped, else "ns::name". */
by_status by_responses_mapped_name(by_convert *cv, const by_responses_tools *t, by_str ns, by_str name, by_str *out);

/* Tool records in request form, as compact JSON (echo), or as a search result shows them (flat). place for the message
 * about a type that cannot be shown. */
by_status by_responses_write_tools(by_convert *cv, const by_json *list, bool flat, by_str place, by_str *out);

/* Items of the input (a text or a list) become messages of cv; found tools are added to t. */
by_status by_responses_convert_input(by_convert *cv, const by_json *input, by_responses_tools *t);
/* What the response object repeats. */
by_status by_responses_set_echo(by_convert *cv, const by_json *body);

#endif
